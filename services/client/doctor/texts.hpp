// SPDX-License-Identifier: Apache-2.0
// What the kernel and systemd write for others to read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace verbena::cli {

/// A socket that listens, of /proc/net/tcp or tcp6.
struct listening_socket {
    std::uint16_t port = 0;
    bool is_wildcard = false;
    std::string address; ///< as the kernel writes it, in hexadecimal
    std::uint64_t inode = 0;
};
/// Lines of another form are left out.
std::vector<listening_socket> listening_sockets(std::string_view table);
/// An address as these tables have it; empty: it is none.
std::string in_socket_table(std::string_view address);

/// What `systemctl show` says of a unit.
struct unit_facts {
    std::string name;
    bool is_loaded = false;
    std::vector<std::string> command; ///< of ExecStart=
    std::string user;                 ///< empty: root
    std::string state_directory;      ///< the first, without /var/lib
    std::string working_directory;
    std::uint64_t descriptors = 0; ///< or no_limit
    std::uint64_t locked_memory = 0;
    std::uint64_t bounding = 0; ///< bits of capabilities
    std::uint64_t ambient = 0;
    std::vector<std::string> mounts_wanted;
};
/// Lines "Name=value".
unit_facts parse_unit(std::string_view name, std::string_view shown);

/// Of /proc/PID/limits: the soft limit of the line that begins with `what`; no_limit for "unlimited", 0 if there is no such line.
std::uint64_t limit_in(std::string_view limits, std::string_view what);

/// Where something is mounted, of /proc/self/mountinfo: "8:1" of a device. Empty: nowhere.
std::string mounted_at(std::string_view mounts, std::string_view device);

/// Whether /proc/swaps has this path, with all links followed.
bool is_swap(std::string_view swaps, std::string_view path);
/// Of /proc/PID/fdinfo/FD: whether it is open for writing.
bool is_open_to_write(std::string_view fdinfo);

} // namespace verbena::cli
