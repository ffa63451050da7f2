// SPDX-License-Identifier: Apache-2.0
// The sizes of public types as this source sees them. The library and a program are compiled with assertions or without, each for
// itself, and pass these to each other.
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/net/net.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/file_read.hpp>
#include <verbena/core/reactor/io_watch.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/ring.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/channel.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/gate.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/semaphore.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/core/verbs/verbs.hpp>

#include <array>
#include <cstddef>
#include <string>

namespace {

template<class... Ts>
constexpr std::array<std::size_t, 2 * sizeof...(Ts)> sizes_of()
{
    return {sizeof(Ts)..., alignof(Ts)...};
}
constexpr auto layout = [] {
    using namespace verbena;
    return sizes_of<result<int>, result<std::string>, result<void>, error, task<int>, task<int>::promise_type,
                    task_context, stop_source, stop_token, list_hook, detail::waiter, event, event::awaiter,
                    semaphore, semaphore::awaiter, channel<int>, gate, gate::pass, scope, scope::join_awaiter,
                    sleep_awaiter, detail::linked_scope, timer_queue, reactor, reactor_options, reactor_stats,
                    ring, io_watch, file_read, blocking_pool, lease, buffer_pool, buffer_pool::awaiter,
                    memory_budget, metric_registry, shard, runtime, runtime_options, net::unique_fd>();
}();

} // namespace
