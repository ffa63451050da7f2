// SPDX-License-Identifier: Apache-2.0
// What the state layer of files and its users say to each other. No NFS type stands here: each version maps these to its own.
#pragma once

#include <verbena/core/result.hpp>

#include <cstdint>
#include <limits>
#include <string_view>
#include <system_error>

#pragma GCC visibility push(default)

namespace verbena::files {

/// Why something is not granted. Whatever answers one of these has changed nothing.
enum class errc {
    invalid = 1,      ///< a share, a range or a set of shares that can't be
    stale_client,     ///< no such client
    expired,          ///< the client's lease was over, and its state was taken
    admin_revoked,    ///< an administrator took the client's state
    bad_stateid,      ///< not a stateid of this client, this file, this kind
    stale_stateid,    ///< of an earlier start of the server
    old_stateid,      ///< its number is behind
    deleg_revoked,    ///< a delegation that was not returned in time
    share_denied,     ///< an open against another open
    locked,           ///< I/O against an open that denies it
    open_mode,        ///< the open or the delegation doesn't have this access
    denied,           ///< a lock against another owner's
    removal_denied,   ///< a removal against an open that denies others to write
    locks_held,       ///< what is to be freed is in use
    client_busy,      ///< the client still has state
    in_way,           ///< what is in the way can be made to go: make_way()
    busy,             ///< it did not go in time, or a file has too many lock owners: try again later
    grace,            ///< not while others may reclaim, or before this client has said that it reclaimed all
    no_grace,         ///< a reclaim after its time
    reclaim_bad,      ///< this client may not reclaim
    reclaim_conflict, ///< against what another one reclaimed
    already_complete, ///< a second "reclaim complete"
    too_many_clients, ///< limits::clients
    too_many_opens,   ///< the client has what it may have: only what it gives back itself helps
    too_many_locks,   ///< likewise
    peer_is_full,     ///< clients of its peer have together what they may have
    all_is_full,      ///< all clients have together what there may be
    no_file,          ///< the back end has lost the file
    io,               ///< the back end can't reach the file
    recalled,         ///< the client is to return what it has of that, and gets no more of it before
};
/// Category "files": values of errc.
const std::error_category& files_category() noexcept;
/// So an errc stands in an error.
std::error_code make_error_code(errc e) noexcept;

/// A client of one state_table. Never 0; never used again within an epoch.
using client_id = std::uint64_t;
/// Somebody of whom no client is known: a caller of version 3, or one who gave an anonymous stateid.
constexpr client_id nobody = 0;

/// Access, or what others are denied.
enum class share : std::uint8_t { none = 0, read = 1, write = 2, both = 3 };
constexpr share operator|(share a, share b) noexcept { return share(unsigned(a) | unsigned(b)); }
constexpr share operator&(share a, share b) noexcept { return share(unsigned(a) & unsigned(b)); }
/// Whether it is anything but none.
constexpr bool any(share s) noexcept { return s != share::none; }
/// Whether `all` has each bit of `part`.
constexpr bool includes(share all, share part) noexcept { return (all & part) == part; }

/// Bytes `offset` to `last`, both included; offset <= last.
struct byte_range {
    std::uint64_t offset = 0; ///< the first
    std::uint64_t last = 0;   ///< included

    /// of a range without an end
    static constexpr std::uint64_t to_the_end = std::numeric_limits<std::uint64_t>::max();
    /// `length` bytes, or with to_the_end all that follow. Errors: invalid, where it is none or goes beyond 2^64 - 1.
    static result<byte_range> of(std::uint64_t offset, std::uint64_t length) noexcept;
    /// As a protocol says it: to_the_end where it ends with the last byte that there can be.
    constexpr std::uint64_t length() const noexcept
    {
        return last == to_the_end ? to_the_end : last - offset + 1;
    }
    /// Whether they have a byte in common.
    constexpr bool overlaps(const byte_range& other) const noexcept
    {
        return offset <= other.last && other.offset <= last;
    }
    friend constexpr bool operator==(const byte_range&, const byte_range&) = default;
};

/// How bytes are locked: beside other readers, or alone.
enum class lock_type : std::uint8_t { read, write };
/// Whether two owners can't have locks of these types of the same byte.
constexpr bool conflict(lock_type a, lock_type b) noexcept
{
    return a == lock_type::write || b == lock_type::write;
}

/// What a delegation lets its client do without asking: read, or write as well.
enum class delegation_type : std::uint8_t { read, write };

} // namespace verbena::files

template<>
struct std::is_error_code_enum<verbena::files::errc> : std::true_type {};

#pragma GCC visibility pop
