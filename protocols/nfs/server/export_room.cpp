// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/export_room.hpp>

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/combine.hpp>

#include <exception>

namespace verbena::nfs {

task<result<void>> export_room::wait_for_end()
{
    // Named, or g++ 12 lays the frame out wrongly (coroutine_frames.py).
    const bool ends = co_await ends_.wait("its time to ask for the room of an export");
    if (!ends)
        co_return error(std::errc::operation_canceled, "");
    co_return result<void>();
}

// False: it ends.
task<bool> export_room::sleeps(duration time)
{
    const result<void> ended = co_await with_timeout(time, wait_for_end());
    co_return !ended && ended.error() == std::errc::timed_out;
}

task<void> export_room::tend(storage::file_backend& files, duration first)
{
    is_tended_.store(true, std::memory_order_relaxed);
    const task_context& context = co_await current_context();
    storage::request request; // of no caller: with the rights of the process
    request.who = storage::credential(0, 0);
    bool goes_on = true;
    if (first != duration::zero())
        goes_on = co_await sleeps(first);
    while (goes_on) {
        try {
            const storage::handle root = files.root(); // another one where the root has come anew
            const auto said = co_await files.statfs(request, root);
            if (said)
                keep(*said, context.shard->clock());
        } catch (
            const std::
                exception&) { // of a module's back end, or for want of memory: it grows old, and is asked again
        }
        goes_on = co_await sleeps(interval);
    }
    is_tended_.store(false, std::memory_order_release);
}

void export_room::keep(const storage::filesystem_stat& said, const clock_source& clock) noexcept
{
    total_bytes_.store(said.total_bytes, std::memory_order_relaxed);
    free_bytes_.store(said.free_bytes, std::memory_order_relaxed);
    available_bytes_.store(said.available_bytes, std::memory_order_relaxed);
    total_files_.store(said.total_files, std::memory_order_relaxed);
    free_files_.store(said.free_files, std::memory_order_relaxed);
    available_files_.store(said.available_files, std::memory_order_relaxed);
    answered_.store(clock.now().time_since_epoch().count(), std::memory_order_relaxed);
    clock_.store(&clock, std::memory_order_release);
}

std::optional<export_room::look> export_room::last() const noexcept
{
    const clock_source* const clock = clock_.load(std::memory_order_acquire);
    if (clock == nullptr)
        return std::nullopt;
    look l;
    l.room.total_bytes = total_bytes_.load(std::memory_order_relaxed);
    l.room.free_bytes = free_bytes_.load(std::memory_order_relaxed);
    l.room.available_bytes = available_bytes_.load(std::memory_order_relaxed);
    l.room.total_files = total_files_.load(std::memory_order_relaxed);
    l.room.free_files = free_files_.load(std::memory_order_relaxed);
    l.room.available_files = available_files_.load(std::memory_order_relaxed);
    const time_point answered{duration(answered_.load(std::memory_order_relaxed))};
    l.age = clock->now() - answered;
    return l;
}

} // namespace verbena::nfs
