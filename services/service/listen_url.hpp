// SPDX-License-Identifier: Apache-2.0
// Where a protocol listens, as people write it.
#pragma once

#include "../device_choice.hpp"

#include <verbena/core/module/protocol_module.hpp>
#include <verbena/core/net/net.hpp>
#include <verbena/core/result.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::services {

/// "tcp://127.0.0.1:2049", "rdma://192.0.2.1:20049?device=mlx5_0:1".
struct listen_url {
    std::string scheme;
    std::string host; ///< a name or an address without brackets; "*" for every address
    std::uint16_t port = 0;
    device_choice device = {}; ///< of rdma: the address must lead to it, peers must come by it
    std::string text() const;
    /// "host:port" or "[v6]:port".
    std::string address() const;
    bool operator==(const listen_url&) const = default;
};
/// The port may be left out where the protocol has one. Port 0 takes a free one. Throws config_error.
listen_url parse_listen_url(std::string_view text, const protocol_module& protocol);
/// The device that each rdma:// listener names, with the port if they agree on it too; empty if they don't.
device_choice common_device(const std::vector<listen_url>& listen);
/// The addresses that it means; asks the resolver. Throws config_error.
std::vector<net::endpoint> endpoints_of(const listen_url& url);
/// What to do when nobody can listen there.
std::string cure_of_listening(const error& e, const listen_url& url);

} // namespace verbena::services
