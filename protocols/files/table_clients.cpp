// SPDX-License-Identifier: Apache-2.0
// Clients: leases, what is written down of them, and the end of what they have.
#include "entries.hpp"

#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <cstdint>

namespace verbena::files {

using namespace detail;

namespace {

// Of a client's states, before others have their turn: less than a millisecond's.
constexpr std::size_t dropped_at_once = 256;

} // namespace

error state_table::no_memory() noexcept { return {std::errc::not_enough_memory, "the recovery store"}; }

state_table::state_table(table_commons& commons, unsigned home, const clock_source& clock,
                         recovery_store& store, state_handler& handler, state_options options)
    : commons_(commons),
      clock_(clock),
      store_(store),
      handler_(handler),
      options_(std::move(options)),
      grace_(options_.reclaimers, clock.now() + options_.grace_time),
      states_(std::make_unique<stateid_table>(options_.epoch, commons.key(), home, commons.homes())),
      files_(std::make_unique<file_set>()),
      recent_(std::make_unique<recent_recalls>(options_.rest_after_recall)),
      by_(std::make_unique<indexes>())
{
    note_grace();
    assert(home < commons.homes() && "a home that no file has");
    assert(options_.epoch != 0 && options_.epoch != ~std::uint32_t(0) && "a stateid would be special");
}

state_table::~state_table()
{
    ends_ = true;
    for (auto* const all : {&by_->fences, &by_->late_fences})
        while (auto* m = all->front())
            delete &m->owner;
    for (auto& [id, c] : clients_) // first, so that nobody is told of what goes
        while (auto* w = c->waiting.front())
            erase_wait(w->owner);
    for (auto& [id, c] : clients_) {
        assert(!c->storing && "a task of the table outlives it");
        while (drop_some(*c, SIZE_MAX)) {
        }
    }
}

// --- Leases

void state_table::to_state(client_entry& c, client_state s) noexcept
{
    c.by_lease.unlink();
    stats_.courtesy_clients.add((s == client_state::courtesy) - (c.state == client_state::courtesy));
    const auto is_lost = [](client_state of) {
        return of == client_state::expired || of == client_state::revoked;
    };
    if (!c.is_host)
        stats_.lost_clients.add(is_lost(s) - is_lost(c.state));
    c.state = s;
    if (s == client_state::active && !c.is_host)
        by_->active.push_back(c.by_lease);
    else if (s == client_state::courtesy)
        by_->courtesy.push_back(c.by_lease);
}

// Whether a client whose lease would be over was heard from meanwhile. Others may have been later.
bool state_table::outlives(client_entry& c, time_point t) noexcept
{
    const time_point heard = std::min(handler_.last_heard(c.id), t);
    if (heard <= c.renewed)
        return false;
    c.renewed = heard;
    c.by_lease.unlink();
    auto* before = by_->active.back();
    while (before != nullptr && before->owner.renewed > heard)
        before = by_->active.previous(*before);
    if (before != nullptr)
        by_->active.insert_after(*before, c.by_lease);
    else
        by_->active.push_front(c.by_lease);
    return true;
}

// Clients whose lease is over become courtesy clients. Cheap where none is: the first in the list tells.
void state_table::age() noexcept
{
    file_list freed;
    for (const time_point t = now(); auto* first = by_->active.front();) {
        client_entry& c = first->owner;
        if (c.renewed + options_.lease > t)
            break;
        if (!outlives(c, t)) {
            to_state(c, client_state::courtesy);
            // Whoever waits for a lock of its, or for what is kept for it, may ask for that now.
            if (stats_.lock_waiters.value() > 0)
                for (auto* s = c.states.front(); s != nullptr; s = c.states.next(*s))
                    if (s->owner.kind == state_kind::lock && s->owner.of_file.is_linked()) // has ranges
                        (void)tell_later(*s->owner.file, freed);
            for (auto* w = c.waiting.front(); w != nullptr; w = c.waiting.next(*w))
                if (w->owner.is_told)
                    (void)tell_later(w->owner.file, freed);
            give_way_locally(c);
            if (stats_.recalled_delegations.value() > 0)
                for (auto* s = c.states.front(); s != nullptr && !c.in_way.is_linked(); s = c.states.next(*s))
                    if (s->owner.kind == state_kind::delegation)
                        give_way_if_gone(static_cast<delegation_entry&>(s->owner));
        }
    }
    tell_all(freed);
}

client_entry* state_table::find_client(client_id id) noexcept
{
    const auto it = clients_.find(id);
    return it == clients_.end() ? nullptr : it->second.get();
}

result<client_entry*> state_table::living(client_id id, bool even_leaving) noexcept
{
    age();
    client_entry* c = find_client(id);
    if (c == nullptr)
        return error(errc::stale_client);
    switch (c->state) {
    case client_state::active:
    case client_state::courtesy: break; // it still has all; that it asks renews nothing
    case client_state::expired: return error(errc::expired);
    case client_state::revoked: return error(errc::admin_revoked);
    }
    if (c->leaving && !even_leaving)
        return error(errc::busy, "the client's state is being taken");
    return c;
}

result<client_id> state_table::add_client(std::string_view key, std::uint64_t peer)
{
    const auto made = make_client(key, peer, false);
    if (!made)
        return made.error();
    return (*made)->id;
}

result<client_entry*> state_table::make_client(std::string_view key, std::uint64_t peer, bool is_host)
{
    if (key.size() > options_.limits.owner_bytes)
        return error(errc::invalid, "a client's name");
    if (clients_.size() >= options_.limits.clients) {
        stats_.refused_limits.add(limited::clients, limit_of::all);
        return error(errc::too_many_clients);
    }
    if (const auto shared = peers_.find(peer);
        is_host && peer != 0 && shared != peers_.end() &&
        shared->second->hosts >= options_.limits.clients * options_.limits.peer_percent / 100)
        return refuse({limited::clients, limit_of::peer}, errc::too_many_clients);
    client_id id = nobody;
    do // its 32 bits may have gone round
        id = std::uint64_t(options_.epoch) << 32 | (++last_client_ & 0xffffffff);
    while (clients_.contains(id));
    auto made = std::make_unique<client_entry>(id, key);
    client_entry& c = *made;
    c.is_host = is_host;
    clients_.emplace(id, std::move(made));
    if (peer != 0) {
        auto& use = peers_[peer];
        if (!use)
            use = std::make_unique<peer_use>(peer);
        c.peer = use.get();
        ++c.peer->clients;
        c.peer->hosts += is_host;
    }
    c.renewed = now();
    to_state(c, client_state::active);
    stats_.clients.add(1);
    stats_.hosts.add(is_host);
    wake(tending_);
    return &c;
}

result<void> state_table::renew(client_id client)
{
    age();
    client_entry* c = find_client(client);
    if (c == nullptr)
        return error(errc::stale_client);
    if (c->state == client_state::expired)
        return error(errc::expired);
    if (c->state == client_state::revoked)
        return error(errc::admin_revoked);
    // Its record may be gone already: what it has would not survive a restart.
    if (c->leaving)
        return error(errc::busy, "the client's state is being taken");
    if (c->state == client_state::courtesy)
        stats_.returned_clients.add();
    c->renewed = now();
    to_state(*c, client_state::active);
    return {};
}

result<void> state_table::set_callable(client_id client, bool callable)
{
    client_entry* c = find_client(client);
    if (c == nullptr)
        return error(errc::stale_client);
    c->callable = callable;
    return {};
}

result<client_state> state_table::state_of(client_id client)
{
    age();
    const client_entry* c = find_client(client);
    if (c == nullptr)
        return error(errc::stale_client);
    return c->state;
}

std::vector<client_id> state_table::lapsed()
{
    age();
    std::vector<client_id> all;
    for (const auto& [id, c] : clients_)
        if (c->state == client_state::expired || c->state == client_state::revoked)
            all.push_back(id);
    for (auto* c = by_->courtesy.front(); c != nullptr; c = by_->courtesy.next(*c))
        all.push_back(c->owner.id);
    return all;
}

result<bool> state_table::must_reclaim(client_id client)
{
    const client_entry* c = find_client(client);
    if (c == nullptr)
        return error(errc::stale_client);
    return !c->complete && grace_.now() == grace_period::phase::reclaiming && grace_.may_reclaim(c->key);
}

result<bool> state_table::is_in_use(client_id client)
{
    const client_entry* c = find_client(client);
    if (c == nullptr)
        return error(errc::stale_client);
    return !c->states.empty() || c->pending > 0;
}

std::optional<std::vector<exported_file>> state_table::files_of(client_id client, std::size_t most)
{
    client_entry* const c = find_client(client);
    if (c == nullptr || c->pending > 0)
        return std::nullopt;
    std::vector<exported_file> all;
    for (auto* m = c->states.front(); m != nullptr; m = c->states.next(*m)) {
        const file_entry* const f = m->owner.file;
        if (f == nullptr)
            return std::nullopt;
        const std::uint32_t via = m->owner.via;
        if (!all.empty() && all.back().key == f->handle && all.back().via == via) // an open and its locks
            continue;
        if (all.size() == most)
            return std::nullopt;
        all.emplace_back(f->handle, via);
    }
    return all;
}

bool state_table::has_revoked(client_id client) noexcept
{
    const client_entry* c = find_client(client);
    return c != nullptr && c->revoked > 0;
}

bool state_table::has_delegations(client_id client) noexcept
{
    const client_entry* c = find_client(client);
    return c != nullptr && c->delegations() > 0;
}

bool state_table::is_recalled(client_id client) noexcept
{
    client_entry* c = find_client(client);
    for (auto* m = c == nullptr ? nullptr : c->states.front(); m != nullptr; m = c->states.next(*m)) {
        if (is_recallable(m->owner.kind) && m->owner.file != nullptr &&
            static_cast<recallable_entry&>(m->owner).is_recalled)
            return true;
    }
    return false;
}

// --- The recovery store

// Where the client has something that was revoked: only as it frees that.
task<result<void>> state_table::write_record(client_id id, bool frees_the_last)
{
    bool was_due = false;
    // The client may get something during a write that the record being written does not cover. Then it is written again.
    for (;;) {
        client_entry* c;
        while ((c = find_client(id)) != nullptr && c->storing) {
            const bool goes_on = co_await change_awaiter(storing_, time_point::max(), "the recovery store");
            if (!goes_on)
                co_return error(std::errc::operation_canceled);
        }
        if (c == nullptr)
            co_return error(errc::stale_client);
        was_due = was_due || c->unrecorded.is_linked();
        c->unrecorded.unlink();
        // What it had may have been taken meanwhile, and given to others: it is not to take that back after a restart (8881 8.4.3).
        const bool has_lost_all = c->state != client_state::active && c->state != client_state::courtesy;
        if (c->is_written_down() || has_lost_all || c->revoked > std::size_t(frees_the_last))
            co_return result<void>();
        c->storing = true;
        // While one whose record was gone is written down again it may get more.
        const share says = c->complete && !c->recorded && !c->silent ? share::both : c->keeps_out;
        result<void> written = no_memory();
        try {
            written = co_await store_.add(c->key, says); // it stays while `storing` is set
        } catch (...) {                                  // as a store that refuses
        }
        c->storing = false;
        wake(storing_);
        if (!written) {
            stats_.store_failures.add();
            if (was_due)
                record_later(*c);
            co_return written;
        }
        c->recorded = true;
        c->said = says;
    }
}

task<result<void>> state_table::reclaim_complete(client_id client)
{
    const auto living_one = living(client);
    if (!living_one)
        co_return living_one.error();
    if ((*living_one)->is_host)
        co_return error(errc::invalid, "a host may reclaim until grace is over");
    if ((*living_one)->complete)
        co_return error(errc::already_complete);
    result<void> written = co_await write_record(client);
    if (!written)
        co_return written;
    const auto again = living(client);
    if (!again)
        co_return again.error();
    if ((*again)->complete)
        co_return error(errc::already_complete);
    (*again)->complete = true;
    grace_.complete((*again)->key);
    note_grace();
    if (grace_.is_due(now())) // if the store refuses, tend() tries again: the client has done its part
        written = co_await end_grace();
    co_return result<void>();
}

task<result<void>> state_table::end_grace()
{
    grace_.begin_end();
    note_grace();
    result<void> written = no_memory();
    try {
        written = co_await store_.end_grace();
    } catch (...) { // as a store that refuses
    }
    grace_.end(written.has_value());
    note_grace();
    if (!written)
        stats_.store_failures.add();
    wake(tending_); // which tries again
    co_return written;
}

task<result<void>> state_table::take_state(client_id id, client_state into, bool only_courtesy)
{
    client_entry* c = find_client(id);
    if (c == nullptr)
        co_return result<void>();
    if (only_courtesy && c->state != client_state::courtesy) // it came back, or is gone already
        co_return result<void>();
    // At once: a store that hangs, whatever it writes of the client, leaves no memory within its reach.
    leaving leaves(*this, *c);
    if (c->others > 0)
        co_await fence_what_it_has(id);
    while ((c = find_client(id)) != nullptr && c->storing) {
        const bool goes_on = co_await change_awaiter(storing_, time_point::max(), "the recovery store");
        if (!goes_on)
            co_return error(std::errc::operation_canceled);
    }
    if (c == nullptr)
        co_return result<void>();
    if (only_courtesy && c->state != client_state::courtesy) // somebody else was quicker
        co_return result<void>();
    c->storing = true;
    result<void> removed = no_memory();
    try {
        removed = co_await store_.remove(c->key);
    } catch (...) { // as a store that refuses
    }
    // It may be much, and others are served meanwhile.
    for (bool more = removed.has_value(); more;) {
        more = drop_some(*c, dropped_at_once);
        if (more)
            (void)co_await sleep_for(duration::zero());
    }
    c->storing = false;
    wake(storing_);
    if (!removed) {
        stats_.store_failures.add();
        co_return removed;
    }
    leaves.is_done = true;
    c->recorded = false;
    grace_.complete(c->key); // what it had is gone: nothing is left to reclaim
    note_grace();
    if (grace_.is_due(now()))
        wake(tending_);
    if (only_courtesy)
        stats_.expired_clients.add();
    to_state(*c, into);
    co_return result<void>();
}

task<result<void>> state_table::forget(client_id client, fences wait)
{
    const client_entry* const c = find_client(client);
    if (c == nullptr)
        co_return error(errc::stale_client);
    // Made before, as it can't fail once the client is gone.
    task<void> fencing = fences_of(wait == fences::awaited ? c->uses : uses());
    const result<void> taken = co_await take_state(client, client_state::expired, false);
    if (!taken)
        co_return taken;
    // Somebody else may have forgotten it meanwhile, or write of it.
    if (const auto it = clients_.find(client); it != clients_.end() && !it->second->storing) {
        to_state(*it->second, client_state::expired);
        leave_peer(*it->second);
        const bool is_host = it->second->is_host;
        (is_host ? stats_.hosts : stats_.lost_clients).add(-1);
        clients_.erase(it);
        stats_.clients.add(-1);
    }
    // It is gone by now, and nobody but the caller waits for this.
    co_await fencing;
    co_return result<void>();
}

task<result<void>> state_table::revoke_client(client_id client)
{
    const client_entry* const c = find_client(client);
    if (c == nullptr)
        co_return error(errc::stale_client);
    task<void> fencing = fences_of(c->uses);
    const result<void> taken = co_await take_state(client, client_state::revoked, false);
    if (!taken)
        co_return taken;
    co_await fencing;
    co_return result<void>();
}

task<result<std::size_t>> state_table::drop_courtesy(std::size_t count, std::optional<limited> what,
                                                     client_id like)
{
    age();
    const std::uint64_t before = stats_.expired_clients.value();
    while (stats_.expired_clients.value() - before < count) {
        const client_entry* const c = like == nobody ? nullptr : find_client(like);
        const auto helps = [&](const client_entry& held) {
            if (like != nobody && (c == nullptr || c->peer == nullptr || held.peer != c->peer || &held == c))
                return false;
            return !what || has_of(held, *what) > 0;
        };
        auto* first = by_->courtesy.front();
        while (first != nullptr && !helps(first->owner))
            first = by_->courtesy.next(*first);
        if (first == nullptr)
            break;
        const result<void> taken = co_await take_state(first->owner.id, client_state::expired, true);
        if (!taken)
            co_return taken.error();
    }
    co_return std::size_t(stats_.expired_clients.value() - before);
}

// True if something is left. Of each file its waiters hear once, at the end.
bool state_table::drop_some(client_entry& c, std::size_t most) noexcept
{
    file_list freed;
    while (auto* p = c.opening.front())
        drop_pending(p->open);
    for (std::size_t spent = 0; spent < most; ++spent) {
        if (auto* w = c.waiting.front()) {
            file_entry& f = w->owner.file;
            if (w->owner.is_told)
                spent += tell_later(f, freed);
            erase_wait(w->owner);
            release_file(f);
            continue;
        }
        auto* s = c.states.front();
        if (s == nullptr)
            break;
        // The end of an open takes its locks along, so it is always the first that is looked at.
        auto* m =
            s->owner.kind == state_kind::open ? static_cast<open_entry&>(s->owner).locks.front() : nullptr;
        if (c.silent && !c.is_host) // it hears of it by its stateids alone
            states_->note_taken(m != nullptr ? static_cast<state_entry&>(m->owner) : s->owner);
        lock_entry* l = m != nullptr                        ? &m->owner
                        : s->owner.kind == state_kind::lock ? static_cast<lock_entry*>(&s->owner)
                                                            : nullptr;
        if (l == nullptr) {
            remove(s->owner);
            continue;
        }
        file_entry& f = *l->file;
        if (!l->ranges.empty())
            spent += tell_later(f, freed);
        (void)erase_lock(*l);
        release_file(f);
    }
    tell_all(freed);
    return !c.states.empty() || !c.waiting.empty();
}

void state_table::leave_peer(client_entry& c) noexcept
{
    if (c.peer != nullptr) {
        c.peer->hosts -= c.is_host;
        if (--c.peer->clients == 0)
            peers_.erase(c.peer->number);
    }
    c.peer = nullptr;
}

// --- Limits

// What of it would be given back if the client went.
std::size_t state_table::has_of(const client_entry& c, limited what) noexcept
{
    switch (what) {
    case limited::opens: return c.opens;
    case limited::locks: return c.locks;
    case limited::lock_owners: return c.lock_states;
    case limited::owner_names: return c.owner_names;
    case limited::delegations: return c.delegations();
    case limited::other_states: return c.others;
    case limited::waiters: return c.waits;
    case limited::clients:
    case limited::sessions:
    case limited::owners: break;
    }
    return 1;
}

std::optional<state_table::shortage> state_table::lacks(const client_entry& c, limited what,
                                                        std::size_t more) const noexcept
{
    const limits& most = options_.limits;
    std::size_t own = 0, most_of_own = 0, used = 0, limit = 0;
    std::size_t peer_use::* of_peer = nullptr;
    const auto set = [&](std::size_t has, std::size_t may_have, const gauge& all, std::size_t most_of_all,
                         std::size_t peer_use::* shared) {
        own = has;
        most_of_own = may_have;
        used = std::size_t(all.value());
        limit = most_of_all;
        of_peer = shared;
    };
    switch (what) {
    case limited::opens:
        set(c.opens + c.pending, most.opens_per_client, stats_.opens, most.opens, &peer_use::opens);
        break;
    case limited::locks:
        set(c.locks, most.locks_per_client, stats_.locks, most.locks, &peer_use::locks);
        break;
    case limited::lock_owners:
        set(c.lock_states, most.lock_states_per_client, stats_.lock_states, most.lock_states,
            &peer_use::lock_states);
        break;
    case limited::owner_names:
        set(c.owner_names, most.owner_names_per_client, stats_.owner_names, most.owner_names,
            &peer_use::owner_names);
        break;
    case limited::clients:
    case limited::sessions:
    case limited::owners:
    case limited::delegations:
    case limited::other_states:
    case limited::waiters: return std::nullopt; // no peer has a share of these
    }
    if (more == 0)
        return std::nullopt;
    if (own + more > most_of_own)
        return shortage{what, limit_of::client};
    // Where the others have nothing, what it has itself is all that can be given back.
    const std::size_t has = has_of(c, what);
    if (c.peer != nullptr && c.peer->*of_peer + more > limit * most.peer_percent / 100)
        return shortage{what, c.peer->*of_peer == has ? limit_of::client : limit_of::peer};
    if (used + more > limit)
        return shortage{what, used == has ? limit_of::client : limit_of::all};
    return std::nullopt;
}

std::optional<state_table::shortage> state_table::lacks_for_open(const client_entry& c,
                                                                 std::size_t name) const noexcept
{
    const auto state = lacks(c, limited::opens, 1);
    return state ? state : lacks(c, limited::owner_names, name);
}

std::optional<state_table::shortage> state_table::lacks_for_locks(const client_entry& c, std::size_t ranges,
                                                                  bool state, std::size_t name) const noexcept
{
    auto lacking = lacks(c, limited::locks, ranges);
    if (!lacking)
        lacking = lacks(c, limited::lock_owners, state ? 1 : 0);
    return lacking ? lacking : lacks(c, limited::owner_names, name);
}

error state_table::refuse(const shortage& lacking, errc own) noexcept
{
    stats_.refused_limits.add(lacking.what, lacking.whose);
    last_lacking_ = lacking.what;
    switch (lacking.whose) {
    case limit_of::client: return error(own);
    case limit_of::peer: return error(errc::peer_is_full);
    case limit_of::all: return error(errc::all_is_full);
    case limit_of::file: break;
    }
    return error(errc::busy);
}

// --- Owners

owner_entry* state_table::find_owner(client_entry& c, bool locks, std::span<const std::byte> name) noexcept
{
    const auto it = c.owners.find(owner_key{siphash(commons_.key(), name), locks, text_of(name)});
    return it == c.owners.end() ? nullptr : it->get();
}

owner_entry& state_table::owner_of(client_entry& c, bool locks, std::span<const std::byte> name)
{
    if (owner_entry* found = find_owner(c, locks, name))
        return *found;
    auto made = std::make_unique<owner_entry>(c, locks, text_of(name), siphash(commons_.key(), name));
    owner_entry& o = *made;
    c.owners.insert(std::move(made));
    c.count(&client_entry::owner_names, &peer_use::owner_names, std::ptrdiff_t(name.size()));
    stats_.owner_names.add(std::int64_t(name.size()));
    (locks ? stats_.lock_owners : stats_.open_owners).add(1);
    return o;
}

// If it has no state.
void state_table::release_owner(owner_entry& o) noexcept
{
    if (!o.states.empty())
        return;
    (o.locks ? stats_.lock_owners : stats_.open_owners).add(-1);
    o.client.count(&client_entry::owner_names, &peer_use::owner_names, -std::ptrdiff_t(o.name.size()));
    stats_.owner_names.add(-std::int64_t(o.name.size()));
    auto& owners = o.client.owners;
    owners.erase(owners.find(owner_key{o.hash, o.locks, o.name}));
}

// --- Grace

error state_table::refuse(errc e, const char* context, counter& counted) noexcept
{
    counted.add();
    return error(e, context);
}

void state_table::note_grace() noexcept
{
    const auto phase = grace_.now();
    stats_.grace.set(phase == grace_period::phase::over         ? 0
                     : phase == grace_period::phase::reclaiming ? 1
                                                                : 2);
    stats_.to_reclaim.set(phase == grace_period::phase::over ? 0 : std::int64_t(grace_.left()));
    stats_.reads_wait_for.set(std::int64_t(grace_.left_against(share::read)));
    stats_.writes_wait_for.set(std::int64_t(grace_.left_against(share::write)));
}

// I/O contradicts only what keeps it out, so it waits only for clients that may reclaim such.
result<void> state_table::refuse_io_in_grace(share access) noexcept
{
    if (grace_.holds_up(access))
        return refuse(errc::grace, "others may reclaim what keeps it out", stats_.refused_grace);
    return {};
}

result<void> state_table::refuse_in_grace() noexcept
{
    if (grace_.now() != grace_period::phase::over)
        return refuse(errc::grace, "others may reclaim", stats_.refused_grace);
    return {};
}

result<void> state_table::may_begin_anew(const client_entry& c) noexcept
{
    if (!c.complete && !c.silent && !c.is_host) // RFC 8881 18.51.3
        return refuse(errc::grace, "the client has not said that it reclaimed all", stats_.refused_grace);
    return refuse_in_grace();
}

result<void> state_table::check_reclaim(const client_entry& c, share keeps_out) noexcept
{
    if (c.complete || grace_.now() != grace_period::phase::reclaiming)
        return refuse(errc::no_grace, "the time to reclaim is over", stats_.late_reclaims);
    if (c.is_host && !c.silent) // though its name may stand in the list, as it was monitored before
        return refuse(errc::reclaim_bad, "the host is not monitored", stats_.bad_reclaims);
    if (!grace_.may_reclaim(c.key))
        return refuse(errc::reclaim_bad, "the client is not in the list", stats_.bad_reclaims);
    // Its record kept nobody out, so others may read and write already.
    if (!includes(grace_.keeps_out(c.key), keeps_out))
        return refuse(errc::reclaim_bad, "the client's record says that it had no such", stats_.bad_reclaims);
    return {};
}

void state_table::wake(waiter_list& list) noexcept
{
    // Only those that wait now: a woken one runs later.
    while (verbena::detail::waiter* w = list.front())
        w->wake();
}

} // namespace verbena::files
