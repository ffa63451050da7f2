// SPDX-License-Identifier: Apache-2.0
// LOCK, and what has no number: LOCKT, RELEASE_LOCKOWNER, and whether a stateid may read or write.
#include <verbena/protocols/nfs/server/v4/v40_state.hpp>

#include <utility>

namespace verbena::nfs::v4 {

task<v40_answer> v40_state::lock(const LOCK4args& args, const files::exported_file& file, nfsstat4 refused)
{
    return state_.at_clients(
        [this, a = &args, f = &file, refused](files::client_book&) { return lock_here(a, f, refused); });
}

task<v40_answer> v40_state::lock_here(const LOCK4args* args, const files::exported_file* file,
                                      nfsstat4 refused)
{
    const locker4& by = args->locker;
    const bool fresh = by.new_lock_owner;
    const std::uint32_t seqid = fresh ? by.open_seqid : by.lock_seqid;
    begun b = co_await begin(nfs_opnum4::lock, seqid, fresh ? by.open_stateid : by.lock_stateid, !fresh);
    if (!b.runs)
        co_return std::move(b.answer);
    v40_owner& o = *b.turn;
    v40_answer out;
    out.status = co_await end_if_unaware(o.client);
    if (out.status != nfsstat4::ok)
        co_return out;
    if (fresh && !o.confirmed)
        out.status = nfsstat4::bad_stateid;
    else if (fresh && clients_.state_of(by.lock_owner.clientid) != o.client)
        out.status = clients_.state_of(by.lock_owner.clientid) == files::nobody ? nfsstat4::stale_clientid
                                                                                : nfsstat4::bad_stateid;
    // The lock owner has a number of its own, and its turn comes behind the open owner's. It is there before the lock, so that one that is
    // granted finds it.
    v40_turn locker;
    if (fresh && out.status == nfsstat4::ok)
        out.status = co_await turn_of(o.client, true, by.lock_owner.owner, locker);
    if (out.status == nfsstat4::ok && locker &&
        locker->judge(nfs_opnum4::lock, by.lock_seqid) != v40_verdict::run)
        out.status = nfsstat4::bad_seqid;
    if (out.status != nfsstat4::ok)
        co_return out;
    out.status = refused;
    if (refused == nfsstat4::ok)
        out.status = co_await lock_by(o, *args, *file, out);
    if (locker && locker->is_new && out.status != nfsstat4::ok) {
        owners_.drop(*locker);
    } else if (locker) {
        locker->confirmed = true;
        owners_.finish(*locker, nfs_opnum4::lock, by.lock_seqid, out);
        owners_.use(*locker, now());
    }
    owners_.finish(o, nfs_opnum4::lock, seqid, out);
    co_return out;
}

task<nfsstat4> v40_state::lock_by(v40_owner& o, const LOCK4args& args, const files::exported_file& file,
                                  v40_answer& answer)
{
    const locker4& by = args.locker;
    const stateid4 id = by.new_lock_owner ? by.open_stateid : by.lock_stateid;
    const auto bytes = files::byte_range::of(args.offset, args.length);
    if (!bytes)
        co_return nfsstat4::inval;
    if (id.seqid == 0)
        co_return nfsstat4::old_stateid;
    files::lock_request request;
    request.client = o.client;
    request.file = file;
    request.new_owner = by.new_lock_owner;
    request.id = to_state(id);
    request.owner = by.lock_owner.owner;
    request.bytes = *bytes;
    request.type = type_of(args.locktype);
    request.reclaim = args.reclaim;
    files::lock_holder holder;
    const auto done = co_await state_.lock(request, holder);
    if (done)
        answer.id = to_wire(*done);
    const nfsstat4 status = status_of_state(done);
    if (status == nfsstat4::denied)
        answer.holder = std::make_shared<const files::lock_holder>(std::move(holder));
    co_return status == nfsstat4::serverfault ? nfsstat4::resource : v40_status(nfs_opnum4::lock, status);
}

// --- Without a number

task<nfsstat4> v40_state::test_lock(const LOCKT4args& args, const files::exported_file& file,
                                    const files::byte_range& bytes, files::lock_holder& holder)
{
    return state_.at_clients([this, a = &args, f = &file, b = &bytes, h = &holder](files::client_book&) {
        return test_lock_here(a, f, b, h);
    });
}

task<nfsstat4> v40_state::test_lock_here(const LOCKT4args* args, const files::exported_file* file,
                                         const files::byte_range* bytes, files::lock_holder* holder)
{
    const nfsstat4 status = co_await renew_client_here(args->owner.clientid);
    const files::client_id client = clients_.state_of(args->owner.clientid);
    if (status != nfsstat4::ok)
        co_return status;
    const std::span<const std::byte> owner = args->owner.owner;
    const files::lock_type type = type_of(args->locktype);
    files::back_end_locks asks;
    result<void> answer = co_await state_.test_lock(client, file->key, owner, *bytes, type, *holder, &asks);
    if (answer && asks)
        answer = co_await state_.test_locally(file->key, asks, *bytes, type, *holder);
    co_return answer ? nfsstat4::ok : v40_status(answer.error());
}

task<nfsstat4> v40_state::release_lock_owner(const RELEASE_LOCKOWNER4args& args)
{
    return state_.at_clients([this, a = &args](files::client_book&) { return release_here(a); });
}

task<nfsstat4> v40_state::release_here(const RELEASE_LOCKOWNER4args* args)
{
    const nfsstat4 status = co_await renew_client_here(args->lock_owner.clientid);
    if (status != nfsstat4::ok)
        co_return status;
    const files::client_id client = clients_.state_of(args->lock_owner.clientid);
    const std::span<const std::byte> name = args->lock_owner.owner;
    // The homes of its files are asked one after the other, and it locks nothing at one of them meanwhile.
    v40_turn turn;
    std::shared_ptr<v40_owner> known;
    do {
        turn.give_back();
        known = owners_.find(client, true, name);
        if (!known)
            co_return nfsstat4::ok; // who has something is known
        const nfsstat4 taken = co_await take_turn(known, turn);
        if (taken != nfsstat4::ok)
            co_return taken;
    } while (known->gone); // another one has its name by now, if any
    const auto done = co_await state_.clients().release_lock_owner(client, name);
    if (!done)
        co_return v40_status(done.error());
    owners_.drop(*known);
    co_return nfsstat4::ok;
}

task<nfsstat4> v40_state::check_io(const stateid4& id, const files::exported_file& file, files::operation op,
                                   state_home::io_terms& terms)
{
    return state_.at_clients(
        [this, id, f = &file, op, to = &terms](files::client_book&) { return check_io_here(id, f, op, to); });
}

task<nfsstat4> v40_state::check_io_here(stateid4 id, const files::exported_file* file, files::operation op,
                                        state_home::io_terms* terms)
{
    *terms = {};
    if (id.is_anonymous() || id.is_read_bypass()) {
        const result<void> checked = co_await v4::check_io(state_, files::nobody, id, *file, op, *terms);
        co_return v40_status(nfs_opnum4::illegal, status_of_state(checked));
    }
    const auto holder = co_await look_up(id);
    if (!holder)
        co_return v40_status(holder.error());
    const files::client_id client = holder->client;
    if (holder->has_owner && !holder->locks) {
        const auto owner = owners_.find(client, false, std::as_bytes(std::span(holder->owner)));
        if (owner && !owner->confirmed)
            co_return nfsstat4::bad_stateid;
    }
    if (!clients_.knows(client)) // of another minor version
        co_return nfsstat4::bad_stateid;
    nfsstat4 status = co_await renew_here(client);
    if (status == nfsstat4::ok && id.seqid == 0)
        status = nfsstat4::old_stateid;
    if (status == nfsstat4::ok) {
        const result<void> checked = co_await v4::check_io(state_, client, id, *file, op, *terms);
        status = status_of_state(checked);
        terms->client = client;
    }
    if (status == nfsstat4::deleg_revoked)
        co_await hears_of_revoked(client, id);
    co_return v40_status(nfs_opnum4::illegal, status);
}

task<nfsstat4> v40_state::return_delegation(const stateid4& id, const files::exported_file& file)
{
    return state_.at_clients(
        [this, id, f = &file](files::client_book&) { return return_delegation_here(id, f); });
}

task<nfsstat4> v40_state::return_delegation_here(stateid4 id, const files::exported_file* file)
{
    const auto holder = co_await look_up(id);
    if (!holder)
        co_return v40_status(holder.error());
    const files::client_id client = holder->client;
    if (holder->has_owner || !clients_.knows(client))
        co_return nfsstat4::bad_stateid;
    const nfsstat4 status = co_await renew_here(client);
    if (status != nfsstat4::ok)
        co_return status;
    const auto give_back = [client, given = to_state(id), file](files::state_table& t) {
        const result<void> done = t.return_delegation(client, given, *file, files::zero_seqid::a_number);
        if (!done)
            t.drop_revoked(client, given);
        return done;
    };
    const result<void> done = co_await state_.at_home_of(to_state(id), give_back);
    co_return done ? nfsstat4::ok : v40_status(done.error());
}

task<files::client_id> v40_state::holder_of(const stateid4& id)
{
    return state_.at_clients([this, id](files::client_book&) { return holder_here(id); });
}

task<files::client_id> v40_state::holder_here(stateid4 id)
{
    const auto holder = co_await look_up(id);
    co_return holder&& clients_.knows(holder->client) ? holder->client : files::client_id(files::nobody);
}

task<files::client_id> v40_state::client_of(clientid4 id, std::string_view from)
{
    return state_.at_clients([this, id, from](files::client_book&) {
        const files::client_id client = clients_.state_of(id);
        return client != files::nobody && clients_.is_of(client, from) ? client
                                                                       : files::client_id(files::nobody);
    });
}

} // namespace verbena::nfs::v4
