// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/v4/v40_state.hpp>

#include <verbena/protocols/nfs/server/v4/evictions.hpp>

#include <utility>

namespace verbena::nfs::v4 {

namespace {

// Calls that wait for one owner.
constexpr std::size_t most_waiting = 16;
// How long a client that takes back a delegation waits for what becomes of the first try to call it.
constexpr duration first_try = std::chrono::seconds(1);

v40_answer answer_of(const result<files::stateid>& done) noexcept
{
    v40_answer out;
    if (done)
        out.id = to_wire(*done);
    else
        out.status = v40_status(done.error());
    return out;
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
    // A link is no file that these are about, and no directory (7530 16.10, 16.14, 16.23, 16.36).
    case nfsstat4::symlink:
        switch (operation) {
        case nfs_opnum4::lock:
        case nfs_opnum4::lockt:
        case nfs_opnum4::read:
        case nfs_opnum4::write: return nfsstat4::inval;
        case nfs_opnum4::lookupp: return nfsstat4::notdir;
        default: return status;
        }
    case nfsstat4::wrong_type: return operation == nfs_opnum4::open ? nfsstat4::symlink : nfsstat4::inval;
    case nfsstat4::nofilehandle: return operation == nfs_opnum4::restorefh ? nfsstat4::restorefh : status;
    default: return status;
    }
}

nfsstat4 v40_status(const error& failure) noexcept
{
    if (failure == files::errc::stale_stateid)
        return nfsstat4::stale_stateid;
    if (failure == files::errc::too_many_opens || failure == files::errc::too_many_locks)
        return nfsstat4::resource;
    return v40_status(nfs_opnum4::illegal, status_of_state(failure));
}

v40_state::v40_state(state_home& state, const siphash_key& key, const session_limits& limits)
    : state_(state),
      limits_(limits),
      clients_(key, state.options().epoch, state.options().lease, limits),
      owners_(key, limits),
      paths_(state, limits)
{
}

// --- Clients

task<v40_clients::made> v40_state::set_client(const SETCLIENTID4args& args, principal_digest who,
                                              std::string_view from,
                                              const std::optional<callback_place>& calls)
{
    return state_.at_clients([this, a = &args, who, from, c = &calls](files::client_book&) {
        return set_client_here(a, who, from, c);
    });
}

// Asks for a name, and again where the one that has it gives way: its lease is over, or, for another user, it has nothing.
template<class Ask>
auto v40_state::ask_of_name(Ask ask)
{
    auto out = ask(files::client_id(files::nobody));
    const files::client_id rival = out.rival;
    if (rival != files::nobody && state_.yields(rival, name_rule_of(out.status)))
        out = ask(rival);
    return out;
}

task<v40_clients::made> v40_state::set_client_here(const SETCLIENTID4args* args, principal_digest who,
                                                   std::string_view from,
                                                   const std::optional<callback_place>* calls)
{
    // Whoever lost what it had begins anew, also under the verifier that it has.
    if (const files::client_id known = clients_.state_of_name(args->id); known != files::nobody) {
        const auto is = state_.clients().state_of(known);
        if (!is || *is == files::client_state::expired || *is == files::client_state::revoked) {
            forget(known);
            co_await state_.abandon(known);
        }
    }
    co_return ask_of_name(
        [&](files::client_id yields) { return clients_.set(*args, who, from, *calls, now(), yields); });
}

task<v40_state::confirmed> v40_state::confirm_client(const SETCLIENTID_CONFIRM4args& args,
                                                     principal_digest who, std::uint64_t peer,
                                                     const evictions& evicted, std::string_view from)
{
    return state_.at_clients([this, a = &args, who, peer, e = &evicted, from](files::client_book&) {
        return confirm_client_here(a, who, peer, e, from);
    });
}

task<v40_state::confirmed> v40_state::confirm_client_here(const SETCLIENTID_CONFIRM4args* args,
                                                          principal_digest who, std::uint64_t peer,
                                                          const evictions* evicted, std::string_view from)
{
    confirmed out;
    // Nothing comes between this and the end of what the older one has: see client_book::take().
    const v40_clients::confirmation made = ask_of_name([&](files::client_id yields) {
        return clients_.begin_confirming(args->clientid, args->setclientid_confirm, who, now(), yields);
    });
    out.status = made.status;
    out.held_by = made.held_by;
    out.name = made.name;
    if (made.moved != files::nobody)
        paths_.set(made.moved, made.calls);
    if (!made.confirms)
        co_return out;
    // Whatever ends this, the next one is not told to come again for ever.
    struct confirming {
        confirming(v40_clients& c, clientid4 i) noexcept : clients(c), id(i) {}
        confirming(const confirming&) = delete;
        ~confirming() { clients.end_confirming(id, state); }
        v40_clients& clients;
        const clientid4 id;
        files::client_id state = files::nobody;
    } guard(clients_, args->clientid);
    // It may have said its name before it was kept out.
    if (evicted->turns_away(std::as_bytes(std::span(made.name)), from, now())) {
        out.status = nfsstat4::delay;
        co_return out;
    }
    // One name has one client, so the one before its restart goes first, with what it had open.
    if (made.older != files::nobody) {
        const result<void> forgotten = co_await state_.forget(made.older);
        out.status = status_of_state(forgotten);
        if (!forgotten)
            co_return out;
        forget(made.older);
    }
    const files::client_label label{made.name, made.from, args->clientid};
    const auto known = co_await state_.add_client(made.key, peer, label);
    out.status = status_of_state(known);
    out.is_full = !known && known.error() == files::errc::too_many_clients;
    if (!known)
        co_return out;
    (void)state_.clients().set_silent(known->client);
    guard.state = out.client = known->client;
    paths_.set(known->client, made.calls);
    co_return out;
}

task<nfsstat4> v40_state::renew(clientid4 id, files::client_id& client)
{
    files::client_id known = files::nobody; // `client` may be of another shard
    const auto renewing = [this, id, to = &known](files::client_book&) {
        *to = clients_.state_of(id);
        return renew_and_tell_here(id);
    };
    const nfsstat4 status = co_await state_.at_clients(renewing);
    if (known != files::nobody)
        client = known;
    co_return status;
}

task<nfsstat4> v40_state::renew_client_here(clientid4 id)
{
    const files::client_id client = clients_.state_of(id);
    if (client == files::nobody)
        co_return nfsstat4::stale_clientid;
    co_return co_await renew_here(client);
}

task<nfsstat4> v40_state::renew_and_tell_here(clientid4 id)
{
    const nfsstat4 status = co_await renew_client_here(id);
    const files::client_id client = clients_.state_of(id);
    const bool lost_some = state_.clients().has_revoked(client) || unheard_.contains(client);
    if (!lost_some)
        told_.erase(client);
    if (status != nfsstat4::ok || (!lost_some && !state_.clients().has_delegations(client)))
        co_return status;
    // As of before the try, which takes its time. One that lost a delegation and has not heard of it gives them back then, and so hears of it.
    const bool is_down = lost_some || paths_.is_down(client);
    paths_.nudge(client);
    if (lost_some)
        co_await end_telling(client);
    co_return is_down ? nfsstat4::cb_path_down : nfsstat4::ok;
}

// One that does not know what it lost never hears of it: the answer to its OPEN was lost, say. It has had the time to give all back that it knows of.
task<void> v40_state::end_telling(files::client_id client)
{
    const auto [at, is_new] = told_.try_emplace(client, now());
    const time_point told = at->second;
    if (now() - told < 2 * state_.options().lease)
        co_return;
    at->second = now(); // of the others
    if (const auto lost = unheard_.find(client); lost != unheard_.end() && lost->second <= told)
        unheard_.erase(lost);
    (void)co_await state_.clients().drop_revoked_until(client, told);
}

// A client whose state was taken hears of it once, and begins anew.
task<nfsstat4> v40_state::renew_here(files::client_id client)
{
    const result<void> renewed = state_.clients().renew(client);
    if (renewed)
        co_return nfsstat4::ok;
    const nfsstat4 status = v40_status(renewed.error());
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
    paths_.forget(client);
    told_.erase(client);
    unheard_.erase(client);
}

void v40_state::note_unheard_loss(files::client_id client)
{
    if (clients_.knows(client))
        unheard_.insert_or_assign(client, now());
}

task<bool> v40_state::tend(time_point now, std::size_t most_owners)
{
    clients_.drop_unconfirmed(now);
    for (std::size_t left = owners_.clients(); left > 0 && most_owners > 0; --left) {
        const files::client_id client = owners_.next_client(tended_);
        tended_ = client;
        if (!clients_.knows(client)) {
            owners_.forget(client);
            continue;
        }
        const auto unused = owners_.unused(client, now - state_.options().lease, now, most_owners);
        for (const std::shared_ptr<v40_owner>& o : unused)
            co_await tend_owner(o, now);
    }
    co_return most_owners == 0;
}

// The turn is held while tables are asked, so that nothing is opened meanwhile. Whoever has it uses the owner.
task<void> v40_state::tend_owner(std::shared_ptr<v40_owner> o, time_point looked_at)
{
    v40_turn turn(o, state_.home().reactor());
    if (!o->turn.try_acquire())
        co_return;
    turn.taken();
    if (o->gone || o->used() != looked_at) // used since
        co_return;
    if (!o->locks && !o->confirmed)
        (void)co_await drop_unconfirmed(o);
    else if (is_idle(*o))
        owners_.drop(*o);
}

// --- Owners

// It has a delegation that was revoked, and has not heard of it, so it is not written down and gets nothing new. No other answer would tell it. It
// begins anew.
task<nfsstat4> v40_state::end_if_unaware(files::client_id client)
{
    files::client_book& book = state_.clients();
    if (!book.lacks_record(client) || !book.has_revoked(client))
        co_return nfsstat4::ok;
    forget(client);
    co_await state_.abandon(client);
    co_return nfsstat4::expired;
}

// Of one whose turn nobody has: what is under way for others tables may have done or not.
bool v40_state::is_idle(const v40_owner& o) { return !state_.clients().has_owner(o.client, o.locks, o.name); }

// With all that it has open, also what no answer has told of. DELAY where that can't be taken just now. The caller has
// the owner's turn.
task<nfsstat4> v40_state::drop_unconfirmed(std::shared_ptr<v40_owner> o)
{
    result<void> closed = error(files::errc::busy, "no memory to ask the homes of its files");
    try {
        closed = co_await state_.clients().close_all(o->client, o->name);
    } catch (const std::bad_alloc&) {
    }
    if (!closed && !is_idle(*o))
        co_return nfsstat4::delay;
    owners_.drop(*o);
    co_return nfsstat4::ok;
}

// Else RESOURCE, which uses up no number: none was looked at.
task<nfsstat4> v40_state::take_turn(std::shared_ptr<v40_owner> owner, v40_turn& turn)
{
    if (owner->waiting >= most_waiting)
        co_return nfsstat4::resource;
    v40_turn next(owner, state_.home().reactor()); // first, as it may find no memory
    struct waiting {
        explicit waiting(v40_owner& o) noexcept : owner(o) { ++owner.waiting; }
        waiting(const waiting&) = delete;
        ~waiting() { --owner.waiting; }
        v40_owner& owner;
    };
    bool taken = false;
    {
        const waiting waits(*owner);
        taken = co_await owner->turn.acquire();
    }
    if (!taken)
        co_return nfsstat4::resource;
    next.taken();
    turn = std::move(next);
    co_return nfsstat4::ok;
}

// Of an owner by its name. It is made where there is none; RESOURCE where it can't be.
task<nfsstat4> v40_state::turn_of(files::client_id client, bool locks, std::span<const std::byte> name,
                                  v40_turn& turn)
{
    for (;;) {
        const v40_owners::made made = owners_.make(client, clients_.peer_of(client), locks, name, now(),
                                                   [this](const v40_owner& o) { return is_idle(o); });
        if (!made.owner) {
            refused_limits_.add(files::limited::owners, made.short_of == session_table::shortage::of_all
                                                            ? files::limit_of::all
                                                            : files::limit_of::peer);
            co_return nfsstat4::resource;
        }
        const nfsstat4 status = co_await take_turn(made.owner, turn);
        if (status != nfsstat4::ok || !turn->gone)
            co_return status;
        turn.give_back();
        if (!clients_.knows(client))
            co_return nfsstat4::stale_clientid;
    }
}

// True: the operation runs. It is judged by its number before anything else, and its client's lease begins anew.
task<bool> v40_state::judge(v40_owner& o, nfs_opnum4 operation, std::uint32_t seqid, v40_answer& answer)
{
    owners_.use(o, now());
    switch (o.judge(operation, seqid)) {
    case v40_verdict::run: break;
    case v40_verdict::repeat: answer = o.last; co_return false;
    case v40_verdict::bad_seqid: answer.status = nfsstat4::bad_seqid; co_return false;
    }
    answer.status = co_await renew_here(o.client);
    if (answer.status == nfsstat4::ok)
        co_return true;
    owners_.finish(o, operation, seqid, answer);
    co_return false;
}

// Of the owner whose stateid it names.
task<v40_state::begun> v40_state::begin(nfs_opnum4 operation, std::uint32_t seqid, stateid4 id, bool locks)
{
    begun out;
    const located found = co_await locate(id, locks);
    out.answer.status = found.status;
    if (!found.owner)
        co_return out;
    out.answer.status = co_await take_turn(found.owner, out.turn);
    if (out.answer.status == nfsstat4::ok && found.owner->gone)
        out.answer.status = nfsstat4::bad_stateid;
    if (out.answer.status == nfsstat4::ok)
        out.runs = co_await judge(*found.owner, operation, seqid, out.answer);
    co_return out;
}

// Whose it is, as its home knows: by the time of the answer it may be somebody else's turn, and the stateid may be gone.
task<result<files::state_holder>> v40_state::look_up(const stateid4& id)
{
    const auto ask = [asked = to_state(id)](files::state_table& t) { return t.holder_of(asked); };
    return state_.at_home_of(to_state(id), ask);
}

task<v40_state::located> v40_state::locate(stateid4 id, bool locks)
{
    located out;
    const auto holder = co_await look_up(id);
    if (holder) {
        if (holder->has_owner && holder->locks == locks)
            out.owner = owners_.find(holder->client, locks, std::as_bytes(std::span(holder->owner)));
        co_return out;
    }
    out.status = v40_status(holder.error());
    if (out.status == nfsstat4::bad_stateid && !id.is_reserved()) {
        out.owner = owners_.who_closed(id);
        if (out.owner && out.owner->locks != locks)
            out.owner.reset();
    }
    co_return out;
}

// That it was revoked, by an answer: with that it is freed.
task<void> v40_state::hears_of_revoked(files::client_id client, const stateid4& id)
{
    const auto free = [client, freed = to_state(id)](files::state_table& t) -> result<void> {
        t.drop_revoked(client, freed);
        return {};
    };
    (void)co_await state_.at_home_of(to_state(id), free);
}

task<v40_state::begun> v40_state::begin_open(const OPEN4args& args)
{
    return state_.at_clients([this, a = &args](files::client_book&) { return begin_open_here(a); });
}

task<v40_state::begun> v40_state::begin_open_here(const OPEN4args* args)
{
    begun out;
    const files::client_id client = clients_.state_of(args->owner.clientid);
    out.answer.status = client == files::nobody ? nfsstat4::stale_clientid : nfsstat4::ok;
    out.client = client;
    while (out.answer.status == nfsstat4::ok) {
        out.answer.status = co_await turn_of(client, false, args->owner.owner, out.turn);
        if (out.answer.status != nfsstat4::ok || out.turn->confirmed || out.turn->is_new)
            break;
        out.answer.status = co_await drop_unconfirmed(out.turn.owner()); // another first one
        out.turn.give_back();
        if (!clients_.knows(client))
            out.answer.status = nfsstat4::stale_clientid; // it has gone meanwhile
    }
    if (out.answer.status == nfsstat4::ok)
        out.runs = co_await judge(*out.turn, nfs_opnum4::open, args->seqid, out.answer);
    if (!out.runs) {
        out.turn.give_back();
        co_return out;
    }
    if (args->claim.claim != open_claim_type4::delegate_cur)
        out.answer.status = co_await end_if_unaware(client);
    if (out.answer.status != nfsstat4::ok) {
        out.runs = false;
        out.turn.give_back();
        co_return out;
    }
    const bool reclaims = args->claim.claim == open_claim_type4::previous;
    // The client is only just back, and is to keep what it had.
    if (reclaims && args->claim.delegate_type != open_delegation_type4::none)
        co_await paths_.settle(client, first_try);
    else
        paths_.nudge(client);
    // An OPEN that is to be confirmed may be anybody's. What a client had it has, though it may not be called where it is now.
    out.may_delegate = reclaims ? paths_.calls_anybody() : out.turn->confirmed;
    co_return out;
}

task<void> v40_state::end_open(begun& open, const OPEN4args& args, v40_answer& answer)
{
    return state_.at_clients(
        [this, o = &open, a = &args, to = &answer](files::client_book&) { return end_open_here(o, a, to); });
}

task<void> v40_state::end_open_here(begun* open, const OPEN4args* args, v40_answer* answer)
{
    const v40_turn turn = std::move(open->turn);
    v40_owner& o = *turn;
    if (answer->status == nfsstat4::ok && !o.confirmed) {
        if (args->claim.claim == open_claim_type4::previous)
            o.confirmed = true;
        else
            answer->rflags |= open4_result::confirm;
    }
    owners_.finish(o, nfs_opnum4::open, args->seqid, *answer);
    if (answer->status == nfsstat4::bad_stateid && args->claim.claim == open_claim_type4::delegate_cur)
        co_await hears_of_revoked(open->client, args->claim.delegate_stateid);
    if (answer->status != nfsstat4::ok && !o.confirmed)
        (void)co_await drop_unconfirmed(turn.owner());
}

namespace {

// At the home of what it is about. Local processes find bytes unlocked when the client hears that they are.
template<class Act>
task<result<v40_answer>> act_at_home(files::state_table* table, files::client_id client, const Act* act)
{
    files::back_end_locks unsettled;
    v40_answer out = (*act)(*table, client, unsettled);
    if (unsettled)
        co_await unsettled->settle();
    co_return out;
}

} // namespace

/// While an open of an owner's is being closed: a repeat that comes meanwhile waits for the owner, and is answered.
struct v40_state::closing {
    closing(v40_owners& all, const std::shared_ptr<v40_owner>& o, const stateid4& id) : owners(all), of(*o)
    {
        owners.begin_closing(o, id);
    }
    closing(const closing&) = delete;
    ~closing() { owners.end_closing(of, is_closed); }
    v40_owners& owners;
    v40_owner& of;
    bool is_closed = false;
};

// Those that one table decides, in one step. `act(table, client, unsettled)` is what it does there. The owner's turn is
// held until the answer is known here and kept.
template<class Act>
task<v40_answer> v40_state::in_turn(nfs_opnum4 operation, std::uint32_t seqid, stateid4 id, bool locks,
                                    nfsstat4 refused, Act act)
{
    begun b = co_await begin(operation, seqid, id, locks);
    if (!b.runs)
        co_return std::move(b.answer);
    v40_owner& o = *b.turn;
    std::optional<closing> closes;
    if (refused != nfsstat4::ok) {
        b.answer.status = refused;
    } else if (!locks && o.confirmed == (operation == nfs_opnum4::open_confirm)) {
        b.answer.status = nfsstat4::bad_stateid;
    } else {
        if (operation == nfs_opnum4::close)
            closes.emplace(owners_, b.turn.owner(), id);
        const auto visit = [client = o.client, a = &act](files::state_table& t) {
            return act_at_home(&t, client, a);
        };
        result<v40_answer> done = co_await state_.at_home_of(to_state(id), visit);
        if (done)
            b.answer = std::move(*done);
        else // that home has stopped
            b.answer.status = v40_status(done.error());
        const bool is_done = b.answer.status == nfsstat4::ok;
        if (closes)
            closes->is_closed = is_done;
        if (is_done && operation == nfs_opnum4::open_confirm)
            o.confirmed = true;
    }
    owners_.finish(o, operation, seqid, b.answer);
    co_return std::move(b.answer);
}

task<v40_answer> v40_state::confirm_open(const OPEN_CONFIRM4args& args, const files::exported_file& file,
                                         nfsstat4 refused)
{
    return state_.at_clients([this, a = &args, f = &file, refused](files::client_book&) {
        return in_turn(nfs_opnum4::open_confirm, a->seqid, a->open_stateid, false, refused,
                       [a, f](files::state_table& t, files::client_id client, files::back_end_locks&) {
                           return answer_of(t.renumber(client, to_state(a->open_stateid), *f,
                                                       files::zero_seqid::a_number));
                       });
    });
}

task<v40_answer> v40_state::downgrade(const OPEN_DOWNGRADE4args& args, const files::exported_file& file,
                                      nfsstat4 refused)
{
    return state_.at_clients([this, a = &args, f = &file, refused](files::client_book&) {
        return in_turn(nfs_opnum4::open_downgrade, a->seqid, a->open_stateid, false, refused,
                       [a, f](files::state_table& t, files::client_id client, files::back_end_locks&) {
                           return answer_of(t.downgrade(
                               client, to_state(a->open_stateid), *f, files::share(a->share_access),
                               files::share(a->share_deny), files::zero_seqid::a_number));
                       });
    });
}

task<v40_answer> v40_state::close(const CLOSE4args& args, const files::exported_file& file, nfsstat4 refused)
{
    return state_.at_clients([this, a = &args, f = &file, refused](files::client_book&) {
        return in_turn(
            nfs_opnum4::close, a->seqid, a->open_stateid, false, refused,
            [a, f](files::state_table& t, files::client_id client, files::back_end_locks& unsettled) {
                v40_answer out;
                const auto done =
                    t.close(client, to_state(a->open_stateid), *f, files::zero_seqid::a_number, &unsettled);
                if (!done) {
                    out.status = v40_status(done.error());
                } else {
                    // Of no use to anybody: the open is no more.
                    out.id = stateid4(a->open_stateid);
                    out.id.seqid = files::next_seqid(out.id.seqid);
                }
                return out;
            });
    });
}

task<v40_answer> v40_state::unlock(const LOCKU4args& args, const files::exported_file& file, nfsstat4 refused)
{
    return state_.at_clients([this, a = &args, f = &file, refused](files::client_book&) {
        return in_turn(
            nfs_opnum4::locku, a->seqid, a->lock_stateid, true, refused,
            [a, f](files::state_table& t, files::client_id client, files::back_end_locks& unsettled) {
                const auto bytes = files::byte_range::of(a->offset, a->length);
                if (!bytes)
                    return answer_of(bytes.error());
                return answer_of(t.unlock(client, to_state(a->lock_stateid), *f, *bytes,
                                          files::zero_seqid::a_number, &unsettled));
            });
    });
}

} // namespace verbena::nfs::v4
