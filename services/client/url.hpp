// SPDX-License-Identifier: Apache-2.0
// nfs+iwarp://host:port/export/path?mountport=N&nfsport=N&vers=4.2&nconnect=N
#pragma once

#include <verbena/core/result.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace verbena::cli {

/// As Linux has it for mounts.
inline constexpr unsigned max_connections = 16;

enum class transport_kind : std::uint8_t { tcp, iwarp, rdma };
std::string_view to_string(transport_kind kind) noexcept;
/// Of NFS. `highest` is that of the server, of those that follow.
enum class nfs_version : std::uint8_t { highest, v3, v4_1, v4_2 };
/// "3", "4.1", "4.2"; `highest` has no text.
std::string_view to_string(nfs_version version) noexcept;

/// Where a file or directory on a server is.
struct url {
    transport_kind transport = transport_kind::tcp;
    std::string host;             ///< name or address, without brackets
    std::uint16_t port = 0;       ///< of NFS, defaulted
    bool port_given = false;      ///< by :port or nfsport
    std::uint16_t mount_port = 0; ///< of MOUNT by TCP; 0: to be found
    unsigned connections = 1;     ///< that the session of version 4 goes over
    nfs_version version = nfs_version::highest;
    std::string path; ///< begins with '/', percent signs decoded

    /// "nfs+tcp://host:port/path" without the query, as parse_url() takes it. Octets of the path that a terminal would obey
    /// or that are no UTF-8, '%' and '?' are percent-encoded.
    std::string to_string() const;
    /// "host:port", "[v6]:port".
    std::string authority(std::uint16_t for_port) const;
};

/// True if `text` names something on a server rather than a local path.
bool is_url(std::string_view text) noexcept;

/// The context of the error names the rule and how it should be.
result<url> parse_url(std::string_view text);

} // namespace verbena::cli
