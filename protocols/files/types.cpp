// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/files/types.hpp>

#include <string>

namespace verbena::files {

const std::error_category& files_category() noexcept
{
    static const class : public std::error_category {
        const char* name() const noexcept override { return "files"; }
        std::string message(int value) const override
        {
            switch (errc(value)) {
            case errc::invalid: return "no such share or range";
            case errc::stale_client: return "no such client";
            case errc::expired: return "the client's lease was over and its state was taken";
            case errc::admin_revoked: return "an administrator took the client's state";
            case errc::bad_stateid: return "no such stateid here";
            case errc::stale_stateid: return "a stateid of an earlier start";
            case errc::old_stateid: return "the stateid's number is behind";
            case errc::deleg_revoked: return "the delegation was not returned in time";
            case errc::share_denied: return "another open denies it";
            case errc::locked: return "an open denies this access to others";
            case errc::open_mode: return "not opened for this access";
            case errc::denied: return "another owner has it locked";
            case errc::removal_denied: return "another client has it open and denies others to write it";
            case errc::locks_held: return "it is in use";
            case errc::client_busy: return "the client has state";
            case errc::in_way: return "somebody must give way first";
            case errc::busy: return "nobody gave way in time";
            case errc::grace: return "not while others may reclaim";
            case errc::no_grace: return "a reclaim after its time";
            case errc::reclaim_bad: return "this client may not reclaim";
            case errc::reclaim_conflict: return "another client reclaimed it";
            case errc::already_complete: return "the client has reclaimed all already";
            case errc::too_many_clients: return "too many clients";
            case errc::too_many_opens: return "too many opens";
            case errc::too_many_locks: return "too many locks";
            case errc::peer_is_full: return "too much state of clients of one peer";
            case errc::all_is_full: return "too much state of all clients";
            case errc::no_file: return "the back end has lost the file";
            case errc::io: return "the back end can't reach the file";
            case errc::recalled: return "the client is to return what it has of that first";
            }
            return "unknown reason";
        }
    } category;
    return category;
}

std::error_code make_error_code(errc e) noexcept { return {static_cast<int>(e), files_category()}; }

result<byte_range> byte_range::of(std::uint64_t offset, std::uint64_t length) noexcept
{
    if (length == to_the_end)
        return byte_range{offset, to_the_end};
    // The last byte of all is in a range to the end alone (8881 18.10.3).
    if (length == 0 || length > to_the_end - offset)
        return error(errc::invalid, "a range of no bytes, or beyond 2^64 - 1", offset);
    return byte_range{offset, offset + (length - 1)};
}

} // namespace verbena::files
