// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/event.hpp>
#include <verbena/core/timer.hpp>
#include <verbena/protocols/nfs/server/file_handle.hpp>
#include <verbena/protocols/nfs/server/io_list.hpp>

namespace verbena::nfs {

/// Somebody who waits for what was under way when he came. Holds are looked through once, when he comes: those that he waits for
/// say when they end.
struct io_list::ending final : list_hook, timer {
    ending(const storage::handle& f, files::share d, std::uint64_t b) noexcept : file(f), denied(d), before(b)
    {
    }
    bool minds(const hold& h) const noexcept
    {
        return h.number_ < before && any(h.access_ & denied) &&
               (h.export_id_ == hold::any_export || state_key(h.export_id_, h.file_) == file);
    }
    void on_timer() noexcept override { over.set(); }

    const storage::handle file;
    const files::share denied;
    const std::uint64_t before;
    std::size_t left = 0; // that have not ended
    event over;           // or his patience is
};

void io_list::ended(const hold& h) noexcept
{
    for (list_hook* e = endings_.front(); e != nullptr; e = endings_.next(*e)) {
        ending& waits = static_cast<ending&>(*e);
        if (waits.minds(h) && --waits.left == 0)
            waits.over.set();
    }
}

task<bool> io_list::ends(storage::handle file, files::share denied, duration patience)
{
    ending waits(file, denied, next_);
    for (hold* h = holds_.front(); h != nullptr; h = holds_.next(*h)) {
        if (waits.minds(*h)) {
            h->awaited_by_ = this;
            ++waits.left;
        }
    }
    if (waits.left == 0)
        co_return true;
    if (patience <= duration::zero())
        co_return false;
    const task_context& context = co_await current_context();
    endings_.push_back(waits);
    context.shard->timers().arm(waits, context.shard->now() + patience);
    (void)co_await waits.over.wait();
    co_return waits.left == 0;
}

} // namespace verbena::nfs
