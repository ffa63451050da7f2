// SPDX-License-Identifier: Apache-2.0
// A device's ports, their GIDs, and the addresses by which the connection manager chooses among them.
#pragma once

#include <verbena/core/net/net.hpp>
#include <verbena/transports/rdma.hpp>

#include <infiniband/verbs.h>

namespace verbena::rdma {

/// Blocks. A port that can't be asked has no link layer.
std::vector<port_report> ports_of(ibv_context* verbs);

/// An address of a port of the device named (`port` 0: of any), from which `to` is best reached: of its subnet, else
/// one that is not link-local, else any. Blocks; any thread. Errors: ENODEV without such a device, EADDRNOTAVAIL
/// where it has no address of that family.
result<net::endpoint> own_address(std::string_view device, std::uint32_t port, const net::endpoint& to);
/// The name of the device to which peers of this address of the host come. Blocks for a moment; any thread. Errors: EINVAL: no address;
/// ENODEV: no device has it.
result<std::string> device_with(std::string_view address);
/// "192.0.2.1", "2001:db8::1", "fe80::1%eth0", as an endpoint without a port. EINVAL.
result<net::endpoint> parse_source(std::string_view text);

} // namespace verbena::rdma
