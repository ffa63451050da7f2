// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/sleep.hpp>
#include <verbena/protocols/nfs/file_handle.hpp>
#include <verbena/protocols/nfs/io_list.hpp>

#include <algorithm>
#include <chrono>

namespace verbena::nfs {

namespace {

// Between two looks. Opens that deny something are few, so I/O doesn't look for who waits as it ends.
constexpr duration between_looks = std::chrono::milliseconds(1);

} // namespace

bool io_list::has(const storage::handle& file, files::share denied, std::uint64_t before) noexcept
{
    for (hold* h = holds_.front(); h != nullptr && h->number_ < before; h = holds_.next(*h)) {
        if (any(h->access_ & denied) &&
            (h->export_id_ == hold::any_export || state_key(h->export_id_, h->file_) == file))
            return true;
    }
    return false;
}

task<bool> io_list::ends(storage::handle file, files::share denied, duration patience)
{
    const std::uint64_t before = next_;
    const task_context& context = co_await current_context();
    const clock_source& clock = context.shard->clock();
    const time_point end = clock.now() + patience;
    while (has(file, denied, before)) {
        const duration left = end - clock.now();
        if (left <= duration::zero())
            co_return false;
        if (!co_await sleep_for(std::min(left, between_looks)))
            co_return false;
    }
    co_return true;
}

} // namespace verbena::nfs
