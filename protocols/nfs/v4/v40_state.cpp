// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/v4/v40_state.hpp>

#include <utility>

namespace verbena::nfs::v4 {

namespace {

// Calls that wait for one owner.
constexpr std::size_t most_waiting = 16;
// Owners that are looked at in one go, of all clients: the others' turn comes a lease later.
constexpr std::size_t tended_at_once = 16384;

nfsstat4 status_of_answer(const error& failure) noexcept
{
    if (failure == files::errc::stale_stateid)
        return nfsstat4::stale_stateid;
    if (failure == files::errc::too_many_opens || failure == files::errc::too_many_locks)
        return nfsstat4::resource;
    return v40_status(nfs_opnum4::illegal, status_of_state(failure));
}

v40_answer answer_of(const result<files::stateid>& done) noexcept
{
    v40_answer out;
    if (done)
        out.id = to_wire(*done);
    else
        out.status = status_of_answer(done.error());
    return out;
}

files::lock_type type_of(nfs_lock_type4 type) noexcept
{
    return type == nfs_lock_type4::read || type == nfs_lock_type4::readw ? files::lock_type::read
                                                                         : files::lock_type::write;
}

} // namespace

nfsstat4 v40_status(nfs_opnum4 operation, nfsstat4 status) noexcept
{
    switch (status) {
    case nfsstat4::rep_too_big:
    case nfsstat4::rep_too_big_to_cache:
    case nfsstat4::req_too_big:
    case nfsstat4::too_many_ops: return nfsstat4::resource;
    case nfsstat4::deleg_revoked: return nfsstat4::bad_stateid;
    case nfsstat4::wrong_type: return operation == nfs_opnum4::open ? nfsstat4::symlink : nfsstat4::inval;
    case nfsstat4::nofilehandle: return operation == nfs_opnum4::restorefh ? nfsstat4::restorefh : status;
    default: return status;
    }
}

v40_state::v40_state(state_home& state, const siphash_key& key, const session_limits& limits)
    : state_(state),
      limits_(limits),
      clients_(key, state.options().epoch, state.options().lease, limits),
      owners_(key)
{
}

// --- Clients

task<v40_clients::made> v40_state::set_client(const SETCLIENTID4args& args, principal who,
                                              std::string_view from)
{
    return state_.at_home(
        [this, a = &args, who, from](files::state_table&) { return set_client_here(a, who, from); });
}

task<v40_clients::made> v40_state::set_client_here(const SETCLIENTID4args* args, principal who,
                                                   std::string_view from)
{
    files::state_table& table = state_.table();
    // Whoever lost what it had begins anew, also under the verifier that it has.
    if (const files::client_id known = clients_.state_of_name(args->id); known != files::nobody) {
        const auto is = table.state_of(known);
        if (!is || *is == files::client_state::expired || *is == files::client_state::revoked) {
            forget(known);
            co_await state_.abandon(known);
        }
    }
    v40_clients::made out = clients_.set(*args, who, from, now(), files::nobody);
    if (out.rival != files::nobody) {
        const auto is = table.state_of(out.rival);
        const auto used = table.is_in_use(out.rival);
        const bool active = is && *is == files::client_state::active;
        const bool in_use = used && *used;
        if (!active || (!in_use && out.status == nfsstat4::clid_inuse))
            out = clients_.set(*args, who, from, now(), files::client_id(out.rival));
    }
    co_return out;
}

task<nfsstat4> v40_state::confirm_client(const SETCLIENTID_CONFIRM4args& args, principal who,
                                         std::uint64_t peer)
{
    return state_.at_home(
        [this, a = &args, who, peer](files::state_table&) { return confirm_client_here(a, who, peer); });
}

task<nfsstat4> v40_state::confirm_client_here(const SETCLIENTID_CONFIRM4args* args, principal who,
                                              std::uint64_t peer)
{
    const v40_clients::confirmation made =
        clients_.begin_confirming(args->clientid, args->setclientid_confirm, who, now());
    if (!made.confirms)
        co_return made.status;
    // Whatever ends this, the next one is not told to come again for ever.
    struct confirming {
        confirming(v40_clients& c, clientid4 i) noexcept : clients(c), id(i) {}
        confirming(const confirming&) = delete;
        ~confirming() { clients.end_confirming(id, state); }
        v40_clients& clients;
        const clientid4 id;
        files::client_id state = files::nobody;
    } begun(clients_, args->clientid);
    // One name has one client, so the one before its restart goes first, with what it had open.
    if (made.older != files::nobody) {
        const nfsstat4 gone = co_await state_.forget(made.older);
        if (gone != nfsstat4::ok)
            co_return gone;
        forget(made.older);
    }
    const state_home::added known = co_await state_.add_client(made.key, peer);
    if (known.status != nfsstat4::ok)
        co_return known.status;
    (void)state_.table().set_silent(known.client);
    begun.state = known.client;
    co_return nfsstat4::ok;
}

task<nfsstat4> v40_state::renew(clientid4 id)
{
    return state_.at_home([this, id](files::state_table&) { return renew_client_here(id); });
}

task<nfsstat4> v40_state::renew_client_here(clientid4 id)
{
    const files::client_id client = clients_.state_of(id);
    if (client == files::nobody)
        co_return nfsstat4::stale_clientid;
    co_return co_await renew_here(client);
}

// A client whose state was taken hears of it once, and begins anew.
task<nfsstat4> v40_state::renew_here(files::client_id client)
{
    const result<void> renewed = state_.table().renew(client);
    if (renewed)
        co_return nfsstat4::ok;
    const nfsstat4 status = status_of_answer(renewed.error());
    if (status == nfsstat4::expired || status == nfsstat4::admin_revoked) {
        forget(client);
        co_await state_.abandon(client);
    }
    co_return status;
}

void v40_state::forget(files::client_id client)
{
    clients_.forget(client);
    owners_.forget(client);
}

bool v40_state::may_make_room(time_point now) noexcept
{
    if (made_room_ != time_point() && now - made_room_ < duration(std::chrono::seconds(1)))
        return false;
    made_room_ = now;
    return true;
}

void v40_state::tend(time_point now)
{
    clients_.drop_unconfirmed(now);
    std::size_t left = tended_at_once;
    for (const files::client_id client : owners_.clients()) {
        if (!clients_.knows(client)) {
            owners_.forget(client);
            continue;
        }
        for (const auto& o : owners_.unused(client, now - state_.options().lease, now, left)) {
            --left;
            if (!o->locks && !o->confirmed)
                drop_unconfirmed(*o);
            else if (is_idle(*o))
                owners_.drop(*o);
        }
    }
}

// --- Owners

bool v40_state::is_idle(const v40_owner& o) { return !state_.table().has_owner(o.client, o.locks, o.name); }

void v40_state::drop_unconfirmed(v40_owner& o)
{
    if (o.first != stateid4())
        (void)state_.table().close(o.client, to_state(o.first), o.first_file, files::zero_seqid::a_number);
    owners_.drop(o);
}

// ok with the turn, which is the caller's to give back. Else RESOURCE, which uses up no number: none was looked at.
task<nfsstat4> v40_state::take_turn(std::shared_ptr<v40_owner> owner)
{
    if (owner->waiting >= most_waiting)
        co_return nfsstat4::resource;
    ++owner->waiting;
    const bool taken = co_await owner->turn.acquire();
    --owner->waiting;
    co_return taken ? nfsstat4::ok : nfsstat4::resource;
}

v40_state::located v40_state::locate(const stateid4& id, bool locks)
{
    located out;
    const auto holder = state_.table().holder_of(to_state(id));
    if (holder) {
        if (holder->has_owner && holder->locks == locks)
            out.owner = owners_.find(holder->client, locks, std::as_bytes(std::span(holder->owner)));
        return out;
    }
    out.status = status_of_answer(holder.error());
    if (out.status == nfsstat4::bad_stateid && !id.is_reserved()) {
        out.owner = owners_.who_closed(id);
        if (out.owner && out.owner->locks != locks)
            out.owner.reset();
    }
    return out;
}

task<v40_state::open_turn> v40_state::begin_open(const OPEN4args& args)
{
    return state_.at_home([this, a = &args](files::state_table&) { return begin_open_here(a); });
}

task<v40_state::open_turn> v40_state::begin_open_here(const OPEN4args* args)
{
    open_turn out;
    out.client = clients_.state_of(args->owner.clientid);
    if (out.client == files::nobody) {
        out.status = nfsstat4::stale_clientid;
        co_return out;
    }
    while (out.status == nfsstat4::ok) {
        out.owner = owners_.make(out.client, false, args->owner.owner, now(),
                                 [this](const v40_owner& o) { return is_idle(o); });
        out.status = co_await take_turn(out.owner);
        if (out.status != nfsstat4::ok)
            break;
        if (!out.owner->gone && !out.owner->confirmed && !out.owner->is_new)
            drop_unconfirmed(*out.owner); // another first one
        if (!out.owner->gone)
            break;
        out.owner->turn.release();
        out.owner.reset();
        if (clients_.state_of(args->owner.clientid) != out.client)
            out.status = nfsstat4::stale_clientid;
    }
    if (out.status != nfsstat4::ok) {
        out.owner.reset();
        co_return out;
    }
    owners_.use(*out.owner, now());
    switch (out.owner->judge(nfs_opnum4::open, args->seqid)) {
    case v40_verdict::run:
        out.status = co_await renew_here(out.client);
        if (out.status == nfsstat4::ok)
            co_return out;
        out.answer.status = out.status;
        out.owner->finish(nfs_opnum4::open, args->seqid, out.answer);
        break;
    case v40_verdict::bad_seqid: out.status = nfsstat4::bad_seqid; break;
    case v40_verdict::repeat:
        out.repeats = true;
        out.answer = out.owner->last;
        break;
    }
    out.owner->turn.release();
    out.owner.reset();
    co_return out;
}

task<void> v40_state::end_open(open_turn& turn, const OPEN4args& args, const storage::handle& file,
                               v40_answer& answer)
{
    return state_.at_home([this, t = &turn, a = &args, f = &file, to = &answer](files::state_table&) {
        return end_open_here(t, a, f, to);
    });
}

task<void> v40_state::end_open_here(open_turn* turn, const OPEN4args* args, const storage::handle* file,
                                    v40_answer* answer)
{
    const std::shared_ptr<v40_owner> owner = std::move(turn->owner);
    const held_permit held(owner->turn);
    if (answer->status == nfsstat4::ok) {
        // What it has now it may take back after the next start; before that is sure, it does not hear of it.
        const result<void> recorded = co_await state_.table().record(turn->client);
        if (!recorded) {
            answer->status = status_of_answer(recorded.error());
            if (!owner->confirmed) // nobody would know of it
                (void)state_.table().close(turn->client, to_state(answer->id), *file,
                                           files::zero_seqid::a_number);
        }
    }
    v40_owner& o = *owner;
    if (answer->status == nfsstat4::ok && !o.confirmed) {
        if (args->claim.claim == open_claim_type4::previous) {
            o.confirmed = true;
        } else {
            answer->rflags |= open4_result::confirm;
            o.first = answer->id;
            o.first_file = *file;
        }
    }
    o.finish(nfs_opnum4::open, args->seqid, *answer);
    if (answer->status != nfsstat4::ok && !o.confirmed)
        owners_.drop(o);
}

// Those that end in one step. `act(table, owner)` is what it does.
template<class Act>
task<v40_answer> v40_state::in_turn(nfs_opnum4 operation, std::uint32_t seqid, stateid4 id, bool locks,
                                    nfsstat4 refused, Act act)
{
    v40_answer out;
    const located found = locate(id, locks);
    if (!found.owner) {
        out.status = found.status;
        co_return out;
    }
    v40_owner& o = *found.owner;
    out.status = co_await take_turn(found.owner);
    if (out.status != nfsstat4::ok)
        co_return out;
    const held_permit held(o.turn);
    if (o.gone) {
        out.status = nfsstat4::bad_stateid;
        co_return out;
    }
    switch (o.judge(operation, seqid)) {
    case v40_verdict::run: break;
    case v40_verdict::repeat: co_return o.last;
    case v40_verdict::bad_seqid: out.status = nfsstat4::bad_seqid; co_return out;
    }
    owners_.use(o, now());
    out.status = co_await renew_here(o.client);
    if (out.status != nfsstat4::ok) {
        o.finish(operation, seqid, out);
        co_return out;
    }
    if (refused != nfsstat4::ok)
        out.status = refused;
    else if (!locks && o.confirmed == (operation == nfs_opnum4::open_confirm))
        out.status = nfsstat4::bad_stateid;
    else
        out = act(state_.table(), found.owner);
    o.finish(operation, seqid, out);
    co_return out;
}

task<v40_answer> v40_state::confirm_open(const OPEN_CONFIRM4args& args, const storage::handle& file,
                                         nfsstat4 refused)
{
    return state_.at_home([this, a = &args, f = &file, refused](files::state_table&) {
        return in_turn(nfs_opnum4::open_confirm, a->seqid, a->open_stateid, false, refused,
                       [a, f](files::state_table& t, const std::shared_ptr<v40_owner>& o) {
                           const auto done = t.renumber(o->client, to_state(a->open_stateid), *f,
                                                        files::zero_seqid::a_number);
                           if (done)
                               o->confirmed = true;
                           return answer_of(done);
                       });
    });
}

task<v40_answer> v40_state::downgrade(const OPEN_DOWNGRADE4args& args, const storage::handle& file,
                                      nfsstat4 refused)
{
    return state_.at_home([this, a = &args, f = &file, refused](files::state_table&) {
        return in_turn(nfs_opnum4::open_downgrade, a->seqid, a->open_stateid, false, refused,
                       [a, f](files::state_table& t, const std::shared_ptr<v40_owner>& o) {
                           return answer_of(t.downgrade(
                               o->client, to_state(a->open_stateid), *f, files::share(a->share_access),
                               files::share(a->share_deny), files::zero_seqid::a_number));
                       });
    });
}

task<v40_answer> v40_state::close(const CLOSE4args& args, const storage::handle& file, nfsstat4 refused)
{
    return state_.at_home([this, a = &args, f = &file, refused](files::state_table&) {
        return in_turn(nfs_opnum4::close, a->seqid, a->open_stateid, false, refused,
                       [this, a, f](files::state_table& t, const std::shared_ptr<v40_owner>& o) {
                           v40_answer out;
                           const auto done =
                               t.close(o->client, to_state(a->open_stateid), *f, files::zero_seqid::a_number);
                           if (!done) {
                               out.status = status_of_answer(done.error());
                           } else {
                               // Of no use to anybody: the open is no more.
                               out.id = stateid4(a->open_stateid);
                               out.id.seqid = files::next_seqid(out.id.seqid);
                               owners_.note_closed(o, a->open_stateid);
                           }
                           return out;
                       });
    });
}

task<v40_answer> v40_state::unlock(const LOCKU4args& args, const storage::handle& file, nfsstat4 refused)
{
    return state_.at_home([this, a = &args, f = &file, refused](files::state_table&) {
        return in_turn(nfs_opnum4::locku, a->seqid, a->lock_stateid, true, refused,
                       [a, f](files::state_table& t, const std::shared_ptr<v40_owner>& o) {
                           const auto bytes = files::byte_range::of(a->offset, a->length);
                           if (!bytes)
                               return answer_of(bytes.error());
                           return answer_of(t.unlock(o->client, to_state(a->lock_stateid), *f, *bytes,
                                                     files::zero_seqid::a_number));
                       });
    });
}

task<v40_answer> v40_state::lock(const LOCK4args& args, const storage::handle& file, nfsstat4 refused)
{
    return state_.at_home(
        [this, a = &args, f = &file, refused](files::state_table&) { return lock_here(a, f, refused); });
}

task<v40_answer> v40_state::lock_here(const LOCK4args* args, const storage::handle* file, nfsstat4 refused)
{
    const locker4& by = args->locker;
    const bool fresh = by.new_lock_owner;
    const stateid4 id = fresh ? by.open_stateid : by.lock_stateid;
    const std::uint32_t seqid = fresh ? by.open_seqid : by.lock_seqid;
    v40_answer out;
    const located found = locate(id, !fresh);
    if (!found.owner) {
        out.status = found.status;
        co_return out;
    }
    v40_owner& o = *found.owner;
    out.status = co_await take_turn(found.owner);
    if (out.status != nfsstat4::ok)
        co_return out;
    const held_permit held(o.turn);
    if (o.gone) {
        out.status = nfsstat4::bad_stateid;
        co_return out;
    }
    switch (o.judge(nfs_opnum4::lock, seqid)) {
    case v40_verdict::run: break;
    case v40_verdict::repeat: co_return o.last;
    case v40_verdict::bad_seqid: out.status = nfsstat4::bad_seqid; co_return out;
    }
    owners_.use(o, now());
    out.status = co_await renew_here(o.client);
    if (out.status != nfsstat4::ok) {
        o.finish(nfs_opnum4::lock, seqid, out);
        co_return out;
    }
    if (fresh && !o.confirmed)
        out.status = nfsstat4::bad_stateid;
    else if (fresh && clients_.state_of(by.lock_owner.clientid) != o.client)
        out.status = clients_.state_of(by.lock_owner.clientid) == files::nobody ? nfsstat4::stale_clientid
                                                                                : nfsstat4::bad_stateid;
    if (out.status != nfsstat4::ok)
        co_return out;
    // A lock owner that is known has a number of its own, and its turn comes behind the open owner's.
    std::shared_ptr<v40_owner> locker = fresh ? owners_.find(o.client, true, by.lock_owner.owner) : nullptr;
    if (locker) {
        out.status = co_await take_turn(locker);
        if (out.status != nfsstat4::ok)
            co_return out;
    }
    const auto leave = [&locker] {
        if (locker)
            locker->turn.release();
    };
    if (locker && !locker->gone && locker->judge(nfs_opnum4::lock, by.lock_seqid) != v40_verdict::run) {
        leave();
        out.status = nfsstat4::bad_seqid;
        co_return out;
    }
    const auto bytes = files::byte_range::of(args->offset, args->length);
    if (refused != nfsstat4::ok) {
        out.status = refused;
    } else if (!bytes) {
        out.status = nfsstat4::inval;
    } else if (id.seqid == 0) {
        out.status = nfsstat4::old_stateid;
    } else {
        files::lock_request request;
        request.client = o.client;
        request.file = *file;
        request.new_owner = fresh;
        request.id = to_state(id);
        request.owner = by.lock_owner.owner;
        request.bytes = *bytes;
        request.type = type_of(args->locktype);
        request.reclaim = args->reclaim;
        const state_home::locked done = co_await state_.lock(request);
        out.status = done.status == nfsstat4::serverfault ? nfsstat4::resource
                                                          : v40_status(nfs_opnum4::lock, done.status);
        out.id = done.id;
        if (done.status == nfsstat4::denied)
            out.holder = std::make_shared<const files::lock_holder>(done.holder);
    }
    if (fresh && out.status == nfsstat4::ok && (!locker || locker->gone) && !o.gone) {
        const auto made = owners_.make(o.client, true, by.lock_owner.owner, now(),
                                       [this](const v40_owner& each) { return is_idle(each); });
        made->confirmed = true;
        made->finish(nfs_opnum4::lock, by.lock_seqid, out);
    } else if (locker) {
        locker->finish(nfs_opnum4::lock, by.lock_seqid, out);
        owners_.use(*locker, now());
    }
    o.finish(nfs_opnum4::lock, seqid, out);
    leave();
    co_return out;
}

// --- Without a number

task<state_home::locked> v40_state::test_lock(const LOCKT4args& args, const storage::handle& file,
                                              const files::byte_range& bytes)
{
    return state_.at_home(
        [this, a = &args, f = &file, b = &bytes](files::state_table&) { return test_lock_here(a, f, b); });
}

task<state_home::locked> v40_state::test_lock_here(const LOCKT4args* args, const storage::handle* file,
                                                   const files::byte_range* bytes)
{
    state_home::locked out;
    out.status = co_await renew_client_here(args->owner.clientid);
    const files::client_id client = clients_.state_of(args->owner.clientid);
    if (out.status != nfsstat4::ok)
        co_return out;
    const std::span<const std::byte> owner = args->owner.owner;
    const auto answer =
        state_.table().test_lock(client, *file, owner, *bytes, type_of(args->locktype), &out.holder);
    if (!answer)
        out.status = status_of_answer(answer.error());
    co_return out;
}

task<nfsstat4> v40_state::release_lock_owner(const RELEASE_LOCKOWNER4args& args)
{
    return state_.at_home([this, a = &args](files::state_table&) { return release_here(a); });
}

task<nfsstat4> v40_state::release_here(const RELEASE_LOCKOWNER4args* args)
{
    const nfsstat4 status = co_await renew_client_here(args->lock_owner.clientid);
    if (status != nfsstat4::ok)
        co_return status;
    const files::client_id client = clients_.state_of(args->lock_owner.clientid);
    const std::span<const std::byte> name = args->lock_owner.owner;
    const auto done = state_.table().release_lock_owner(client, name);
    if (!done)
        co_return status_of_answer(done.error());
    if (const auto known = owners_.find(client, true, name); known && known->turn.available() != 0)
        owners_.drop(*known);
    co_return nfsstat4::ok;
}

task<nfsstat4> v40_state::check_io(const stateid4& id, const storage::handle& file, files::operation op)
{
    return state_.at_home(
        [this, id, f = &file, op](files::state_table&) { return check_io_here(id, f, op); });
}

task<nfsstat4> v40_state::check_io_here(stateid4 id, const storage::handle* file, files::operation op)
{
    if (id.is_anonymous() || id.is_read_bypass())
        co_return v40_status(nfs_opnum4::illegal, co_await state_.check_io(files::nobody, id, *file, op));
    const auto holder = state_.table().holder_of(to_state(id));
    if (!holder)
        co_return status_of_answer(holder.error());
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
    if (status == nfsstat4::ok)
        status = co_await state_.check_io(client, id, *file, op);
    co_return v40_status(nfs_opnum4::illegal, status);
}

} // namespace verbena::nfs::v4
