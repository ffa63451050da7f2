// SPDX-License-Identifier: Apache-2.0
// What a service and its callers need of the port mapper, version 2, and of rpcbind, versions 3 and
// 4 (RFC 1833). Strings are views into the message or the caller's memory.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/protocols/xdr/decoder.hpp>
#include <verbena/protocols/xdr/encoder.hpp>

#include <cstdint>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::nfs::portmap {

/// RPC's number of the port mapper and of rpcbind (RFC 1833).
inline constexpr std::uint32_t program = 100000;
/// Where it listens.
inline constexpr std::uint16_t port = 111;

/// Strings of rpcbind; RFC 1833 names no limit.
inline constexpr std::uint32_t max_string = 1024;

/// The port mapper: of ports of IPv4 (RFC 1833 3).
inline constexpr std::uint32_t version_2 = 2;
/// Its procedures.
enum class procedure_2 : std::uint32_t { null = 0, set = 1, unset = 2, getport = 3, dump = 4 };
/// mapping::protocol of TCP.
inline constexpr std::uint32_t protocol_tcp = 6;
/// mapping::protocol of UDP.
inline constexpr std::uint32_t protocol_udp = 17;

/// Arguments of SET, UNSET and GETPORT. GETPORT answers with a u32: the port, 0 if there is none;
/// SET and UNSET with a boolean.
struct mapping {
    std::uint32_t program = 0;
    std::uint32_t version = 0;
    std::uint32_t protocol = 0;
    std::uint32_t port = 0;
};

/// Writes the four numbers.
void encode(xdr::encoder& out, const mapping& args) noexcept;
/// Reads them; all values are good ones.
void decode(xdr::decoder& in, mapping& args) noexcept;

/// rpcbind: of universal addresses (RFC 1833 2).
inline constexpr std::uint32_t version_3 = 3;
/// The same, with procedures of its own that are not served here.
inline constexpr std::uint32_t version_4 = 4;
/// The procedures that both have.
enum class procedure_3 : std::uint32_t { null = 0, set = 1, unset = 2, getaddr = 3, dump = 4 };

/// Arguments of SET, UNSET and GETADDR, and the entries of DUMP. GETADDR answers with a string: the
/// universal address, empty if there is none; SET and UNSET with a boolean.
struct rpcb {
    std::uint32_t program = 0;
    std::uint32_t version = 0;
    std::string_view netid; ///< "tcp", "tcp6", "rdma", "rdma6"
    std::string_view addr;  ///< a universal address
    std::string_view owner;
};

/// Writes it; a string beyond max_string overflows `out`.
void encode(xdr::encoder& out, const rpcb& args) noexcept;
/// Reads it; the strings are views into the message.
void decode(xdr::decoder& in, rpcb& args) noexcept;

/// Reads DUMP's result of versions 3 and 4. False behind the last entry, and on a failure.
bool next(xdr::decoder& in, rpcb& entry) noexcept;
/// The same of version 2.
bool next(xdr::decoder& in, mapping& entry) noexcept;

/// The host, then the port as two decimal octets (RFC 5665 5.2.3): "127.0.0.1" and 20049 give
/// "127.0.0.1.78.81".
std::string universal_address(std::string_view host, std::uint16_t port);

/// The port of a universal address.
result<std::uint16_t> port_of(std::string_view universal_address) noexcept;

} // namespace verbena::nfs::portmap

#pragma GCC visibility pop
