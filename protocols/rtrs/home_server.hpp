// SPDX-License-Identifier: Apache-2.0
// A server as the servers of other shards see it, to whom connections of its sessions come.
#pragma once

#include "connection_charges.hpp"
#include "server_path.hpp"

#include <verbena/core/verbs/verbs.hpp>

#include <cstdint>
#include <string>

namespace verbena::rtrs {

/// What a session's home says of a connection that came to another shard.
struct joined {
    explicit joined(std::uint16_t errno_value) noexcept : refused(errno_value) {}
    joined(path_hold h, connection_charges c) noexcept : hold(std::move(h)), charges(std::move(c)) {}
    std::uint16_t refused = 0; ///< an errno, or 0: the rest is there
    path_hold hold;
    connection_charges charges;
};

/// On its shard.
class home_server {
public:
    /// Charges `peer` with the connection, and gives it its place in its path.
    virtual joined join(const connect_request& m, const std::string& peer, const verbs::device& device) = 0;

protected:
    ~home_server() = default;
};

} // namespace verbena::rtrs
