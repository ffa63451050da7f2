// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/v4/state_answers.hpp>

namespace verbena::nfs::v4 {

using files::errc;

nfsstat4 status_of(errc why) noexcept
{
    switch (why) {
    case errc::invalid: return nfsstat4::inval;
    // A client that the session layer knows has lost what it had; see renew_lease().
    case errc::stale_client: return nfsstat4::expired;
    case errc::expired: return nfsstat4::expired;
    case errc::admin_revoked: return nfsstat4::admin_revoked;
    case errc::bad_stateid:
    case errc::stale_stateid: return nfsstat4::bad_stateid; // 8881 15.1.16.5
    case errc::old_stateid: return nfsstat4::old_stateid;
    case errc::deleg_revoked: return nfsstat4::deleg_revoked;
    case errc::share_denied: return nfsstat4::share_denied;
    case errc::locked: return nfsstat4::locked;
    case errc::open_mode: return nfsstat4::openmode;
    case errc::denied: return nfsstat4::denied;
    case errc::removal_denied: return nfsstat4::file_open;
    case errc::locks_held: return nfsstat4::locks_held;
    case errc::client_busy: return nfsstat4::clientid_busy;
    case errc::in_way:
    case errc::busy:
    case errc::too_many_clients:
    case errc::peer_is_full:
    case errc::all_is_full: return nfsstat4::delay;
    // What only the client itself can give back: its user hears of it. OPEN and LOCK have no RESOURCE in minor
    // version 1 (8881 15.2). Linux makes ENOSPC of the one, as of its own limits of watches, and EREMOTEIO of the
    // other, whose RFC has no NOSPC.
    case errc::too_many_opens: return nfsstat4::nospc;
    case errc::too_many_locks: return nfsstat4::serverfault;
    case errc::grace: return nfsstat4::grace;
    case errc::no_grace: return nfsstat4::no_grace;
    case errc::reclaim_bad: return nfsstat4::reclaim_bad;
    case errc::reclaim_conflict: return nfsstat4::reclaim_conflict;
    case errc::already_complete: return nfsstat4::complete_already;
    case errc::no_file: return nfsstat4::stale;
    case errc::io: return nfsstat4::io;
    case errc::recalled: return nfsstat4::recallconflict;
    }
    return nfsstat4::serverfault;
}

nfsstat4 status_of_state(const error& failure) noexcept
{
    if (failure.code().category() == files::files_category())
        return status_of(errc(failure.code().value()));
    return nfsstat4::delay;
}

namespace {

task<result<void>> refused(errc why) { co_return error(why); }

} // namespace

task<result<void>> check_io(state_home& state, files::client_id client, const stateid4& id,
                            const files::exported_file& file, files::operation op,
                            state_home::io_terms& terms)
{
    terms = {};
    if (id.is_anonymous() || id.is_read_bypass())
        return state.check_io_without_open(client, file, op, id.is_read_bypass());
    if (id.is_reserved())
        return refused(errc::bad_stateid);
    return state.check_io(client, to_state(id), file, op, terms);
}

} // namespace verbena::nfs::v4
