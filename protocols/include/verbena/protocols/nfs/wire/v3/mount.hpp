// SPDX-License-Identifier: Apache-2.0
// The MOUNT protocol version 3 (RFC 1813 appendix I), for servers and callers. Nothing in it may
// travel in chunks (RFC 8267 5.1). Strings are views into the message.
#pragma once

#include <verbena/protocols/nfs/wire/v3/types.hpp>
#include <verbena/protocols/xdr/decoder.hpp>
#include <verbena/protocols/xdr/encoder.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::nfs::mount3 {

/// RPC's number of MOUNT.
inline constexpr std::uint32_t program = 100005;
/// RPC's version, that goes with NFS version 3.
inline constexpr std::uint32_t version = 3;

inline constexpr std::uint32_t max_path = 1024; ///< MNTPATHLEN
inline constexpr std::uint32_t max_name = 255;  ///< MNTNAMLEN
/// Flavors of one MNT result; RFC 1813 names no limit.
inline constexpr std::uint32_t max_auth_flavors = 16;

/// The procedures (RFC 1813 5.2).
enum class procedure : std::uint32_t { null = 0, mnt = 1, dump = 2, umnt = 3, umntall = 4, exports = 5 };
/// How many there are, NULL among them.
inline constexpr std::uint32_t procedure_count = 6;

/// "MNT" and so on; "unknown" for other values.
const char* to_string(procedure value) noexcept;

/// What MNT is answered (RFC 1813 5.1.5).
enum class mountstat3 : std::uint32_t {
    ok = 0,
    perm = 1,
    noent = 2,
    io = 5,
    acces = 13,
    notdir = 20,
    inval = 22,
    nametoolong = 63,
    notsupp = 10004,
    serverfault = 10006,
};

/// "MNT3ERR_ACCES" and so on.
const char* to_string(mountstat3 status) noexcept;

/// Arguments of MNT and UMNT.
struct dirpath {
    std::string_view path;
};

/// Writes the path.
void encode(xdr::encoder& out, const dirpath& args) noexcept;
/// Reads it; a view into the message.
void decode(xdr::decoder& in, dirpath& args) noexcept;

/// MNT's result (RFC 1813 5.2.1): the handle of the export's root, and the flavours that it takes.
struct mountres3 {
    mountstat3 status = mountstat3::ok;
    // if ok
    v3::nfs_fh3 fhandle;
    std::uint32_t auth_flavor_count = 0;
    std::array<std::uint32_t, max_auth_flavors> auth_flavors{};
};

/// Writes the result as its status has it.
void encode(xdr::encoder& out, const mountres3& res) noexcept;
/// Reads it.
void decode(xdr::decoder& in, mountres3& res) noexcept;

/// What a MNT result takes at most.
inline constexpr std::size_t max_mnt_reply_size =
    4 + xdr::opaque_size(v3::max_handle_size) + 4 + max_auth_flavors * 4;

/// A mount, as DUMP lists it.
struct mount_entry {
    std::string_view hostname;
    std::string_view directory;
};

/// DUMP's result: any number of entries, then end_of_list().
void encode(xdr::encoder& out, const mount_entry& entry) noexcept;
/// What stands behind the last entry of DUMP or EXPORT.
void end_of_list(xdr::encoder& out) noexcept;
/// False behind the last entry, and on a failure.
bool next(xdr::decoder& in, mount_entry& entry) noexcept;

/// EXPORT's result: any number of exports, then end_of_list(). No groups means everybody.
void encode_export(xdr::encoder& out, std::string_view directory,
                   std::span<const std::string_view> groups) noexcept;

/// Reads EXPORT's result:
///
///     while (reader.next(directory))
///         while (reader.next_group(group)) ...
///     if (!in.ok()) ...
class export_reader {
public:
    /// Of `in`, which outlives it, at the beginning of the result.
    explicit export_reader(xdr::decoder& in) noexcept : in_(&in) {}
    /// The next export; groups of the one before that were not read are skipped. False behind the
    /// last one, and on a failure.
    bool next(std::string_view& directory) noexcept;
    /// The next group of that export. False behind its last one, and on a failure.
    bool next_group(std::string_view& group) noexcept;

private:
    xdr::decoder* in_;
    bool in_groups_ = false;
    bool done_ = false;
};

} // namespace verbena::nfs::mount3

#pragma GCC visibility pop
