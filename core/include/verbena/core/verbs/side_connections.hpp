// SPDX-License-Identifier: Apache-2.0
// Connections of a second protocol on the listeners of a first one, told apart by the private data of their requests.
#pragma once

#include <verbena/core/task/task.hpp>
#include <verbena/core/verbs/verbs.hpp>

#include <cstddef>
#include <memory>
#include <span>

#pragma GCC visibility push(default)

namespace verbena::verbs {

/// Takes those connections of a listener that are meant for another protocol than the listener's own, as a data server
/// of pNFS does beside NFS. The listener's protocol asks it for each request, before it makes anything for the
/// connection. It outlives the tasks of all listeners that it is given to.
class side_connections {
public:
    /// Whether a connect request with these private data is for this protocol. Whatever a peer may send comes here. Any
    /// shard, several at once.
    virtual bool takes(std::span<const std::byte> private_data) noexcept = 0;
    /// Accepts or rejects the request, and has the connection until it ends.
    ///
    /// Completes when: the connection has ended, or the request is rejected. On cancel: it ends the connection, and
    /// completes. Errors: none; an exception ends this connection alone, and the listener's protocol logs it.
    /// Lifetime: this outlives the task. Shard: the listener's.
    virtual task<void> serve(std::unique_ptr<connect_request> request) = 0;
    /// All listeners have ended, and with them each connection. Lets go of what it has of the device: grants, regions, domains. The device's
    /// contexts go behind that.
    ///
    /// Completes when: that has gone. On cancel: it goes on. Errors: none. Lifetime: this outlives the task. Shard: any, once.
    virtual task<void> end() = 0;

protected:
    ~side_connections() = default;
};

} // namespace verbena::verbs

#pragma GCC visibility pop
