// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbena/core/net/net.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/task.hpp>

namespace verbena::rpc {

/// A connected, non-blocking TCP socket with TCP_NODELAY and keep-alive. `reserved_port`: from a port
/// below 1024 where the process may. Cancellation: the socket is closed, ECANCELED.
task<result<net::unique_fd>> connect_stream(reactor& shard, net::endpoint to, duration timeout,
                                            bool reserved_port);

} // namespace verbena::rpc
