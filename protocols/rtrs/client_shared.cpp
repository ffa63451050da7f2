// SPDX-License-Identifier: Apache-2.0
#include "client_shared.hpp"

#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/task/yield.hpp>

#include <algorithm>
#include <exception>
#include <new>

namespace verbena::rtrs {

bool client_shared::agree(const connect_reply& r)
{
    if (queue_depth == 0) {
        if (r.queue_depth < 2)
            return false;
        // What may fail comes first: the next answer is compared with this one.
        sent_by.resize(r.queue_depth);
        held.reserve(r.queue_depth);
        free_chunks.reserve(r.queue_depth);
        queue_depth = r.queue_depth;
        max_io_size = r.max_io_size;
        max_header_size = r.max_header_size;
        for (std::uint32_t i = queue_depth; i > 0; --i)
            free_chunks.push_back(i - 1);
        permits.give(queue_depth - 1);
    }
    return queue_depth == r.queue_depth && max_io_size == r.max_io_size &&
           max_header_size == r.max_header_size;
}

void client_shared::path_up(const uuid& path, std::uint64_t life)
{
    const std::size_t freed = std::erase_if(held, [&](std::uint32_t chunk) {
        auto& until = sent_by[chunk];
        std::erase_if(until, [&](const carrier& c) { return c.path == path && c.life < life; });
        if (!until.empty())
            return false;
        free_chunks.push_back(chunk);
        give_permit();
        return true;
    });
    const bool first = connected_paths++ == 0;
    look_at_held();
    if (freed != 0 || first)
        wake_waiters();
    if (!first)
        return;
    if (epoch++ == 0 || !restarted)
        return;
    restarting = true;
    tasks.spawn(already_made, restart()); // without memory, its path does not come up
}

// While this goes on, the session may begin anew again.
task<void> client_shared::restart()
{
    const std::uint64_t begun = epoch;
    for (bool is_done = false; !is_done && begun == epoch;) {
        try {
            co_await restarted();
            is_done = true;
        } catch (const std::bad_alloc&) { // requests wait for it
        }
        if (is_done)
            break;
        co_await yield(); // if there is no memory to sleep either
        bool stopped = false;
        try {
            const bool slept = co_await sleep_for(pause_without_memory);
            stopped = !slept;
        } catch (const std::bad_alloc&) {
        }
        if (stopped)
            co_return;
    }
    if (begun != epoch)
        co_return;
    restarting = false;
    path_moved.set();
}

void client_shared::give_permit() noexcept
{
    if (owed_permits != 0)
        --owed_permits;
    else
        permits.give();
}

void client_shared::release_held() noexcept
{
    for (auto& by : sent_by)
        by.clear();
    for (const std::uint32_t chunk : held) {
        free_chunks.push_back(chunk);
        give_permit();
    }
    held.clear();
    look_at_held();
    wake_waiters();
}

duration client_shared::stuck_for() const noexcept
{
    return stuck_before + (stuck_since ? shard.clock().now() - *stuck_since : duration::zero());
}

// Without a path nothing counts: when the paths come back, some do before others.
void client_shared::look_at_held() noexcept
{
    if (!all_held()) {
        stuck_since.reset();
        stuck_before = duration::zero();
    } else if (connected_paths == 0) {
        stuck_before = stuck_for();
        stuck_since.reset();
    } else if (!stuck_since) {
        stuck_since = shard.clock().now();
    }
}

// They look anew at what they may wait for, and how long.
void client_shared::wake_waiters() noexcept
{
    permits.wake_all();
    service_permit.wake_all();
    chunk_free.set();
}

void client_shared::path_lost() noexcept
{
    if (--connected_paths != 0)
        return;
    look_at_held();
    wake_waiters();
}

void client_shared::end() noexcept
{
    closing = true;
    path_moved.set();
    wake_waiters();
}

time_point client_shared::patience_of(io_operation& o)
{
    if (connected_paths != 0 && !all_held(o)) {
        o.until.reset();
        return time_point::max();
    }
    if (!o.until)
        o.until = shard.clock().now() + options.patience;
    if (stuck_since) // it may have begun to wait without a path
        o.until = std::max(*o.until, *stuck_since + (options.patience - stuck_before));
    return *o.until;
}

namespace {

const error closed(std::errc::operation_canceled, "the client is closed");
const error without_path(std::errc::not_connected, "no path to the server is connected");

} // namespace

task<result<void>> client_shared::wait_for(event& what, time_point until)
{
    const auto happened = [&what]() -> task<result<void>> {
        const bool woken = co_await what.wait();
        if (!woken)
            co_return error(std::errc::operation_canceled, "a wait for a path");
        co_return result<void>();
    };
    const auto waited = co_await with_timeout(until - shard.clock().now(), happened());
    if (!waited && waited.error() == std::errc::timed_out)
        co_return without_path;
    co_return waited;
}

task<result<void>> client_shared::take_chunk(io_operation& o)
{
    permit_line& line = o.service ? service_permit : permits;
    while (!line.try_take()) {
        if (closing)
            co_return closed;
        const turn how = co_await line.wait(patience_of(o));
        if (how == turn::taken)
            break;
        if (how == turn::late)
            co_return without_path;
        if (how == turn::stopped)
            co_return error(std::errc::operation_canceled, "a wait for a chunk");
    }
    if (free_chunks.empty()) {
        result<void> freed;
        std::exception_ptr failed;
        try {
            freed = co_await wait_for_chunk(o);
        } catch (...) {
            failed = std::current_exception();
        }
        if (failed || !freed) {
            if (o.service)
                service_permit.give();
            else
                give_permit();
        }
        if (failed)
            std::rethrow_exception(std::move(failed));
        if (!freed)
            co_return freed;
    }
    o.chunk = free_chunks.back();
    free_chunks.pop_back();
    sent_by[o.chunk].clear();
    co_return result<void>();
}

// Of a service message, if chunks are held.
task<result<void>> client_shared::wait_for_chunk(io_operation& o)
{
    while (free_chunks.empty()) {
        if (closing)
            co_return closed;
        chunk_free.reset();
        const auto freed = co_await wait_for(chunk_free, patience_of(o));
        if (!freed)
            co_return freed;
    }
    co_return result<void>();
}

void client_shared::give_chunk(io_operation& o) noexcept
{
    const bool over = o.answered || sent_by[o.chunk].empty();
    if (over) {
        free_chunks.push_back(o.chunk);
        chunk_free.set();
    } else {
        held.push_back(o.chunk);
        look_at_held();
        if (all_held())
            wake_waiters(); // whom no answer to a request helps any more
    }
    if (o.service) {
        service_permit.give();
        if (!over && !permits.try_take())
            ++owed_permits;
    } else if (over) {
        give_permit();
    }
}

} // namespace verbena::rtrs
