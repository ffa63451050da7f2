// SPDX-License-Identifier: Apache-2.0
// The thread of the control plane. docs/internals/control.md.
#pragma once

#include "control_request.hpp"

#include <verbena/core/reactor/runtime.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace verbena::services {

struct control_options {
    std::string path;
    std::chrono::milliseconds patience{1000}; ///< with a shard, for each part of its list
    std::size_t max_connections = 16;         ///< more are told so, and closed
    std::chrono::milliseconds idle{
        60'000}; ///< without a byte either way, while neither a shard nor a work is waited for
    std::chrono::milliseconds beat{1000}; ///< how often who asked for a work that goes on is told so
};

/// False where the build has no Asio: no control_server can be made then.
bool has_control_server() noexcept;

/// Answers on the Unix socket from its constructor until close(), on a thread of its own. Made, closed and destroyed by a thread that is no
/// shard.
class control_server {
public:
    /// Throws config_error if the path can't be had. `rt` runs until close() has returned.
    control_server(runtime& rt, control_table commands, control_options o);
    ~control_server();
    control_server(const control_server&) = delete;

    /// Ends all connections and the thread. Waits for no shard: lists that are on one are ended there, before whatever
    /// else is sent there from now on. Asks works to end. Idempotent.
    void close() noexcept;
    /// close(), and waits for works, for as long as they take. Idempotent.
    void finish() noexcept;
    /// Names of commands whose work goes on. Any thread.
    std::vector<std::string> works() const;
    const std::string& path() const noexcept;

private:
    struct core;
    std::shared_ptr<core> core_;
};

} // namespace verbena::services
