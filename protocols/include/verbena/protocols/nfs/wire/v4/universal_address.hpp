// SPDX-License-Identifier: Apache-2.0
// Universal addresses (RFC 5665): how a client of minor version 0 says where it is to be called.
#pragma once

#include <verbena/core/net/net.hpp>
#include <verbena/core/result.hpp>

#include <cstdint>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// An address of a server or client in the form of RFC 5665.
struct universal_address {
    /// What its netid says: "tcp" and "tcp6", or "rdma" and "rdma6".
    enum class transport : std::uint8_t { stream, rdma };
    transport over = transport::stream;
    net::endpoint at; ///< a port that is not 0
};

/// Of the netids tcp, tcp6, rdma and rdma6: "192.0.2.7.8.1" or "2001:db8::7.8.1", whose last two numbers are the port's bytes. Scopes
/// ("%eth0") are none of an address here. Any thread. Errors: EPROTONOSUPPORT for another netid, EINVAL with the rule that was broken.
result<universal_address> parse_universal_address(std::string_view netid, std::string_view text);

/// `of` where the address is that of the host `from`, as rpc::peer has it, with the scope that `from` has. Any thread. Errors: EACCES where it is
/// another one; EINVAL where `from` is no address.
result<universal_address> at_home_of(const universal_address& of, std::string_view from);

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
