// SPDX-License-Identifier: Apache-2.0
// Clients: leases, and the end of what they have, on whichever shards that is.
#include "booked_client.hpp"

#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstdint>

namespace verbena::files {

using namespace detail;

namespace {

// Where there was no memory to ask a table, it is asked again.
constexpr duration pause_without_memory = std::chrono::milliseconds(20);

} // namespace

client_book::client_book(table_commons& commons, const shard& home, recovery_store& store,
                         state_handler& handler, state_options options)
    : commons_(commons),
      home_(home),
      store_(store),
      handler_(handler),
      options_(std::move(options)),
      grace_(options_.reclaimers, home.reactor().clock().now() + options_.grace_time),
      phase_(grace_.now()),
      places_(std::make_unique<place[]>(commons.homes())),
      news_(std::make_unique<news>(*this)),
      by_(std::make_unique<lists>())
{
    note_grace();
    assert(options_.epoch != 0 && options_.epoch != ~std::uint32_t(0) && "a stateid would be special");
}

client_book::~client_book()
{
    for (const auto& [id, c] : clients_) {
        assert(!c->storing && "a task of the book outlives it");
        commons_.clients().remove(id);
    }
}

time_point client_book::now() const noexcept { return home_.reactor().clock().now(); }

bool client_book::is_here() const noexcept { return home_.reactor().is_here(); }

void client_book::add_table(state_table& t, unsigned home, const shard& where) noexcept
{
    assert(places_[home].table == nullptr && "two tables have one home");
    places_[home].where = &where;
    places_[home].is_here = &where.reactor() == &home_.reactor();
    places_[home].table.store(&t, std::memory_order_release);
}

void client_book::remove_table(unsigned home) noexcept
{
    places_[home].table.store(nullptr, std::memory_order_release);
}

void client_book::wake(waiter_list& list) noexcept
{
    // Only those that wait now: a woken one runs later.
    while (verbena::detail::waiter* w = list.front())
        w->wake();
}

// --- Leases

void client_book::to_state(booked_client& c, client_state s) noexcept
{
    client_card& card = *c.card;
    const client_state before = card.state;
    c.by_lease.unlink();
    stats_.courtesy_clients.add((s == client_state::courtesy) - (before == client_state::courtesy));
    const auto is_lost = [](client_state of) {
        return of == client_state::expired || of == client_state::revoked;
    };
    if (!card.is_host)
        stats_.lost_clients.add(is_lost(s) - is_lost(before));
    card.state = s;
    if (s == client_state::active && !card.is_host)
        by_->active.push_back(c.by_lease);
    else if (s == client_state::courtesy)
        by_->courtesy.push_back(c.by_lease);
}

// Whether a client whose lease would be over was heard from meanwhile. Others may have been later.
bool client_book::outlives(booked_client& c, time_point t) noexcept
{
    const time_point heard = std::min(handler_.last_heard(c.card->id), t);
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
void client_book::age() noexcept
{
    bool some = false;
    for (const time_point t = now(); auto* first = by_->active.front();) {
        booked_client& c = first->owner;
        if (c.renewed + options_.lease > t)
            break;
        if (outlives(c, t))
            continue;
        to_state(c, client_state::courtesy);
        c.card->lapses.fetch_add(1);
        some = true;
        for (unsigned home = 0; home < commons_.homes(); ++home)
            if (state_table* const table = places_[home].local())
                table->begin_lapse(*c.card);
    }
    for (unsigned home = 0; some && home < commons_.homes(); ++home) {
        if (state_table* const table = places_[home].local())
            table->end_lapse();
        else
            places_[home].tell();
    }
}

booked_client* client_book::find(client_id id) noexcept
{
    const auto it = clients_.find(id);
    return it == clients_.end() ? nullptr : it->second.get();
}

result<booked_client*> client_book::living(client_id id) noexcept
{
    age();
    booked_client* const c = find(id);
    if (c == nullptr)
        return error(errc::stale_client);
    if (const auto may = is_living(*c->card, false); !may)
        return may.error();
    return c;
}

result<client_id> client_book::add_client(std::string_view key, std::uint64_t peer, client_label label)
{
    const auto made = make_client(key, peer, std::move(label), false);
    if (!made)
        return made.error();
    return (*made)->card->id;
}

result<booked_client*> client_book::make_client(std::string_view key, std::uint64_t peer, client_label label,
                                                bool is_host)
{
    if (key.size() > options_.limits.owner_bytes)
        return error(errc::invalid, "a client's name");
    if (clients_.size() >= options_.limits.clients) {
        stats_.refused_limits.add(limited::clients, limit_of::all);
        return error(errc::too_many_clients);
    }
    if (const auto known = peers_.find(peer);
        is_host && peer != 0 && known != peers_.end() &&
        known->second->hosts >= options_.limits.clients * options_.limits.peer_percent / 100) {
        stats_.refused_limits.add(limited::clients, limit_of::peer);
        return error(errc::peer_is_full);
    }
    client_id id = nobody;
    do // its 32 bits may have gone round
        id = std::uint64_t(options_.epoch) << 32 | (++last_client_ & 0xffffffff);
    while (clients_.contains(id));
    std::shared_ptr<peer_use> shared;
    if (peer != 0) {
        const auto known = peers_.find(peer);
        shared = known != peers_.end() ? known->second : std::make_shared<peer_use>(peer);
    }
    auto made = std::make_unique<booked_client>(
        std::make_shared<client_card>(id, key, shared, commons_.clients().use, std::move(label), is_host));
    booked_client& c = *made;
    if (shared != nullptr)
        peers_.try_emplace(peer, shared);
    try {
        clients_.emplace(id, std::move(made));
        commons_.clients().add(c.card);
    } catch (...) {
        clients_.erase(id);
        if (shared != nullptr && shared->clients == 0)
            peers_.erase(peer);
        throw;
    }
    if (shared != nullptr) {
        ++shared->clients;
        shared->hosts += is_host;
    }
    c.card->may_reclaim = grace_.may_reclaim(key);
    c.card->reclaims_against = grace_.keeps_out(key);
    grace_.note_back(key);
    note_grace();
    c.renewed = now();
    to_state(c, client_state::active);
    stats_.clients.add(1);
    stats_.hosts.add(is_host);
    wake(tending_);
    return &c;
}

void client_book::leave_peer(client_card& c) noexcept
{
    if (c.peer == nullptr)
        return;
    c.peer->hosts -= c.is_host;
    if (--c.peer->clients == 0)
        peers_.erase(c.peer->number);
}

result<client_id> client_book::add_host(std::string_view key, std::uint64_t peer, bool monitored)
{
    const auto made = make_client(key, peer, client_label(), true);
    if (!made)
        return made.error();
    (*made)->card->silent = monitored;
    return (*made)->card->id;
}

result<bool> client_book::has_restarted(client_id host, std::uint32_t number, host_word says)
{
    booked_client* const c = find(host);
    if (c == nullptr)
        return error(errc::stale_client);
    if (!c->card->is_host)
        return error(errc::invalid, "a client with a lease has no state number");
    if (says == host_word::restarted)
        return number == 0 || number != c->host_number;
    if (number == 0)
        return false;
    if (c->host_number == 0)
        c->host_number = number;
    return number != c->host_number;
}

result<void> client_book::renew(client_id client)
{
    age();
    booked_client* const c = find(client);
    if (c == nullptr)
        return error(errc::stale_client);
    // Not while it leaves: its record may be gone already, and what it has would not survive a restart.
    if (const auto may = is_living(*c->card, false); !may)
        return may;
    if (c->card->state == client_state::courtesy) {
        stats_.returned_clients.add();
        wake(tending_); // which looks when this lease is over
    }
    c->renewed = now();
    to_state(*c, client_state::active);
    return {};
}

result<void> client_book::set_callable(client_id client, bool callable)
{
    booked_client* const c = find(client);
    if (c == nullptr)
        return error(errc::stale_client);
    c->card->callable = callable;
    return {};
}

result<client_state> client_book::state_of(client_id client)
{
    age();
    const booked_client* const c = find(client);
    if (c == nullptr)
        return error(errc::stale_client);
    return c->card->state.load();
}

std::vector<client_id> client_book::lapsed()
{
    age();
    std::vector<client_id> all;
    for (const auto& [id, c] : clients_) {
        const client_state is = c->card->state;
        if (is == client_state::expired || is == client_state::revoked)
            all.push_back(id);
    }
    for (auto* c = by_->courtesy.front(); c != nullptr; c = by_->courtesy.next(*c))
        all.push_back(c->owner.card->id);
    return all;
}

result<bool> client_book::is_in_use(client_id client)
{
    const booked_client* const c = find(client);
    if (c == nullptr)
        return error(errc::stale_client);
    return c->card->has_something();
}

bool client_book::has_revoked(client_id client) noexcept
{
    const booked_client* const c = find(client);
    return c != nullptr && c->card->revoked > 0;
}

bool client_book::has_lost_with_lease(client_id client) noexcept
{
    booked_client* const c = find(client);
    if (c == nullptr)
        return false;
    client_card& card = *c->card;
    const unsigned losses = card.losses;
    if (losses == card.asked_losses)
        return false;
    if (losses != card.told_losses) {
        card.told_losses = losses;
        c->told_of_loss = now();
    }
    if (now() - c->told_of_loss <= options_.lease)
        return true;
    card.asked_losses = losses;
    return false;
}

bool client_book::has_lost_by_admin(client_id client) noexcept
{
    booked_client* const c = find(client);
    if (c == nullptr || c->card->admin_lost == 0)
        return false;
    if (const unsigned losses = c->card->admin_losses; losses != c->told_admin_losses) {
        c->told_admin_losses = losses;
        c->told_of_admin_loss = now();
    }
    return now() - c->told_of_admin_loss <= options_.lease;
}

void client_book::note_asked(client_id client) noexcept
{
    if (const auto card = commons_.clients().find(client))
        card->asked_losses = card->told_losses.load();
}

time_point client_book::renewed(client_id client) noexcept
{
    const booked_client* const c = find(client);
    return c == nullptr ? time_point::min() : c->renewed;
}

client_holdings client_book::holdings_of(client_id client) noexcept
{
    const booked_client* const c = find(client);
    if (c == nullptr)
        return {};
    const client_card& card = *c->card;
    return {card.use.opens, card.use.locks, card.delegations(), card.others, card.revoked, card.fences};
}

bool client_book::has_delegations(client_id client) noexcept
{
    const booked_client* const c = find(client);
    return c != nullptr && c->card->delegations() > 0;
}

bool client_book::is_recalled(client_id client) noexcept
{
    const booked_client* const c = find(client);
    return c != nullptr && c->card->recalled > 0;
}

bool client_book::has_owner(client_id client, bool locks, std::span<const std::byte> owner) noexcept
{
    const booked_client* const c = find(client);
    return c != nullptr && c->card->owners.has(locks, siphash(commons_.key(), owner));
}

// --- The end of what a client has

/// All that a client has is being taken. If that is not done in the end, it is to return what is fenced by then, as it
/// may come back.
struct client_book::leaving {
    leaving(client_book& b, std::shared_ptr<client_card> c) noexcept : book(b), card(std::move(c))
    {
        ++card->leaving;
    }
    leaving(const leaving&) = delete;
    ~leaving()
    {
        if (--card->leaving == 0 && !is_done)
            book.tell_kept(card->id);
    }
    client_book& book;
    const std::shared_ptr<client_card> card;
    bool is_done = false;
};

void client_book::tell_kept(client_id client) noexcept
{
    for (unsigned home = 0; home < commons_.homes(); ++home) {
        if (state_table* const table = places_[home].local())
            table->keep(client);
        else
            places_[home].tell();
    }
}

// What it has is fenced, and no table grants it anything more: who is there now does not get by is_living(), and a table
// answers between its decisions.
task<void> client_book::close_to(client_id client)
{
    for (unsigned home = 0; home < commons_.homes(); ++home) {
        const place& at = places_[home];
        for (bool more = at.table != nullptr; more;) {
            if (state_table* const table = at.local()) {
                more = table->fence_some(client);
                if (more)
                    (void)co_await sleep_for(duration::zero());
                continue;
            }
            const auto ask = [&at, client]() -> result<bool> {
                state_table* const table = at.table;
                return table != nullptr && table->fence_some(client);
            };
            const result<bool> some = co_await at.where->run(ask);
            more = some && *some; // a shard that has stopped grants nothing
        }
    }
}

// Its record is gone, so this has to come to its end.
task<void> client_book::drop_all_of(client_id client)
{
    for (unsigned home = 0; home < commons_.homes(); ++home) {
        const place& at = places_[home];
        for (bool more = at.table != nullptr; more;) {
            duration pause = duration::zero();
            if (state_table* const table = at.local()) {
                more = table->drop_some_of(client);
            } else {
                const auto ask = [&at, client]() -> result<bool> {
                    state_table* const there = at.table;
                    return there != nullptr && there->drop_some_of(client);
                };
                try {
                    const result<bool> some = co_await at.where->run(ask);
                    more = some && *some;
                } catch (...) {
                    pause = pause_without_memory;
                }
            }
            // It may be much, and others are served meanwhile.
            if (more)
                (void)co_await sleep_for(pause);
        }
    }
}

task<result<void>> client_book::take(client_id client, client_state into, bool only_courtesy)
{
    if (is_here())
        return take_here(client, into, only_courtesy);
    return home_.run([this, client, into, only_courtesy] { return take_here(client, into, only_courtesy); });
}

task<result<void>> client_book::take_here(client_id id, client_state into, bool only_courtesy)
{
    booked_client* c = find(id);
    if (c == nullptr)
        co_return result<void>();
    if (only_courtesy && c->card->state != client_state::courtesy) // it came back, or is gone already
        co_return result<void>();
    // At once: a store that hangs, whatever it writes of the client, leaves no memory within its reach.
    leaving leaves(*this, c->card);
    co_await close_to(id);
    while ((c = find(id)) != nullptr && c->storing) {
        const bool goes_on = co_await change_awaiter(storing_, time_point::max(), "the recovery store");
        if (!goes_on)
            co_return error(std::errc::operation_canceled);
    }
    if (c == nullptr)
        co_return result<void>();
    if (only_courtesy && c->card->state != client_state::courtesy) // somebody else was quicker
        co_return result<void>();
    const bool had_something = c->card->has_something();
    loss_notice loss;
    loss.client = id;
    loss.opens = c->card->use.opens;
    loss.locks = c->card->use.locks;
    loss.delegations = c->card->delegations();
    task<void> dropping = drop_all_of(id); // made before, as it can't fail once the record is gone
    c->storing = true;
    result<void> removed = error(std::errc::not_enough_memory, "the recovery store");
    try {
        removed = co_await store_.remove(c->card->key);
    } catch (...) { // as a store that refuses
    }
    c->is_dropping = removed.has_value();
    if (removed)
        co_await dropping;
    c->is_dropping = false;
    c->storing = false;
    wake(storing_);
    if (!removed) {
        stats_.store_failures.add();
        co_return removed;
    }
    leaves.is_done = true;
    c->card->record.clear();
    note_complete(*c->card, grace_period::part::lost); // what it had is gone: nothing is left to reclaim
    if (grace_.is_due(now()))
        wake(tending_);
    if (only_courtesy)
        stats_.expired_clients.add();
    to_state(*c, into);
    if (only_courtesy && had_something) {
        loss.key = c->card->key;
        loss.silent = now() - c->renewed;
        handler_.lost(loss);
    }
    co_return result<void>();
}

task<result<void>> client_book::forget(client_id client, fences wait)
{
    if (is_here())
        return forget_here(client, wait);
    return home_.run([this, client, wait] { return forget_here(client, wait); });
}

task<result<void>> client_book::forget_here(client_id client, fences wait)
{
    if (find(client) == nullptr)
        co_return error(errc::stale_client);
    // Made before, as it can't fail once the client is gone.
    task<void> fencing = fences_of(client, wait);
    const result<void> taken = co_await take_here(client, client_state::expired, false);
    if (!taken)
        co_return taken;
    // Somebody else may have forgotten it meanwhile, or write of it.
    if (booked_client* const c = find(client); c != nullptr && !c->storing) {
        to_state(*c, client_state::expired);
        leave_peer(*c->card);
        (c->card->is_host ? stats_.hosts : stats_.lost_clients).add(-1);
        commons_.clients().remove(client);
        clients_.erase(client);
        stats_.clients.add(-1);
        for (unsigned home = 0; home < commons_.homes(); ++home) {
            if (state_table* const table = places_[home].local())
                table->leave(client);
            else
                places_[home].tell();
        }
    }
    // It is gone by now, and nobody but the caller waits for this.
    co_await fencing;
    co_return result<void>();
}

task<result<void>> client_book::revoke_client(client_id client)
{
    if (is_here())
        return revoke_here(client);
    return home_.run([this, client] { return revoke_here(client); });
}

task<result<void>> client_book::revoke_here(client_id client)
{
    if (find(client) == nullptr)
        co_return error(errc::stale_client);
    task<void> fencing = fences_of(client, fences::awaited);
    const result<void> taken = co_await take_here(client, client_state::revoked, false);
    if (!taken)
        co_return taken;
    co_await fencing;
    co_return result<void>();
}

// Who asks for the end of all that a client has may rely on that, unless it takes too long. Others wait for each
// where they want the file.
task<void> client_book::fences_of(client_id client, fences wait)
{
    if (wait == fences::left)
        co_return;
    const time_point end = now() + options_.fence_time;
    for (unsigned home = 0; home < commons_.homes(); ++home) {
        const place& at = places_[home];
        if (state_table* const table = at.local()) {
            while (table->has_fences_of(client) && now() < end) {
                const bool goes_on = co_await change_awaiter(table->fenced_, end, "fences of a client");
                if (!goes_on)
                    co_return;
            }
        } else if (at.table != nullptr) {
            const auto ask = [&at, client, end]() -> task<void> {
                return at.table.load()->fences_of(client, end);
            };
            try {
                co_await at.where->run(ask);
            } catch (...) { // no memory, or the shard stops: then all of them end
            }
        }
    }
}

task<result<std::size_t>> client_book::drop_courtesy(std::size_t count, std::optional<limited> what,
                                                     client_id like)
{
    if (is_here())
        return drop_courtesy_here(count, what, like);
    return home_.run([this, count, what, like] { return drop_courtesy_here(count, what, like); });
}

namespace {

// What of it would be given back if the client went.
std::size_t has_of(const client_card& c, limited what) noexcept
{
    switch (what) {
    case limited::opens: return c.use.opens;
    case limited::locks: return c.use.locks;
    case limited::lock_owners: return c.use.lock_states;
    case limited::owner_names: return c.use.owner_names;
    case limited::delegations: return c.delegations();
    case limited::other_states: return c.others;
    case limited::waiters: return c.waits;
    case limited::clients:
    case limited::sessions:
    case limited::owners: break;
    }
    return 1;
}

} // namespace

task<result<std::size_t>> client_book::drop_courtesy_here(std::size_t count, std::optional<limited> what,
                                                          client_id like)
{
    age();
    const std::uint64_t before = stats_.expired_clients.value();
    while (stats_.expired_clients.value() - before < count) {
        const booked_client* const c = like == nobody ? nullptr : find(like);
        const peer_use* const peer = c == nullptr ? nullptr : c->card->peer.get();
        const auto helps = [&](const booked_client& held) {
            if (like != nobody && (peer == nullptr || held.card->peer.get() != peer || &held == c))
                return false;
            return !what || has_of(*held.card, *what) > 0;
        };
        auto* first = by_->courtesy.front();
        while (first != nullptr && !helps(first->owner))
            first = by_->courtesy.next(*first);
        if (first == nullptr)
            break;
        const result<void> taken = co_await take_here(first->owner.card->id, client_state::expired, true);
        if (!taken)
            co_return taken.error();
    }
    co_return std::size_t(stats_.expired_clients.value() - before);
}

// What is not recalled now is when somebody wants it.
task<void> client_book::recall_elsewhere(client_id client, bool all, const state_table& except)
{
    const auto what = all ? state_table::of_client::all : state_table::of_client::under_leases;
    for (unsigned home = 0; home < commons_.homes(); ++home) {
        const place& at = places_[home];
        state_table* const there = at.table;
        if (there == nullptr || there == &except)
            continue;
        const auto ask = [there, client, what] { return there->recall_what_it_has(client, what); };
        try {
            co_await at.where->run(ask);
        } catch (...) { // no memory, or the shard stops
        }
    }
}

// --- What one asks of all tables

// `ask(table)`, until one of them answers an error.
template<class Ask>
task<result<void>> client_book::ask_each(client_id client, Ask ask)
{
    if (commons_.clients().find(client) == nullptr)
        co_return error(errc::stale_client);
    for (unsigned home = 0; home < commons_.homes(); ++home) {
        const place& at = places_[home];
        const auto there = [&at, &ask]() -> result<void> {
            state_table* const table = at.table;
            return table == nullptr ? result<void>() : ask(*table);
        };
        if (at.where == nullptr)
            continue;
        const result<void> answer = co_await at.where->run(there);
        if (!answer && answer.error().errno_value() != ECANCELED)
            co_return answer;
    }
    co_return result<void>();
}

task<std::optional<std::vector<exported_file>>> client_book::files_of(client_id client, std::size_t most)
{
    std::optional<std::vector<exported_file>> all(std::in_place);
    const auto add = [client, most, &all](state_table& t) -> result<void> {
        auto some = t.files_of(client, most - all->size());
        if (!some)
            return error(errc::busy, "more than is wanted");
        all->insert(all->end(), some->begin(), some->end());
        return {};
    };
    const result<void> asked = co_await ask_each(client, add);
    if (!asked)
        all.reset();
    co_return all;
}

task<result<void>> client_book::release_lock_owner(client_id client, std::span<const std::byte> owner)
{
    const auto may = [client, owner](state_table& t) -> result<void> {
        if (t.has_locks(client, owner))
            return error(errc::locks_held);
        return {};
    };
    const result<void> free = co_await ask_each(client, may);
    if (!free)
        co_return free;
    const auto release = [client, owner](state_table& t) -> result<void> {
        return t.has_owner(client, true, owner) ? t.release_lock_owner(client, owner) : result<void>();
    };
    co_return co_await ask_each(client, release);
}

task<result<void>> client_book::close_all(client_id client, std::span<const std::byte> owner)
{
    const auto close = [client, owner](state_table& t) -> result<void> {
        return t.has_owner(client, false, owner) ? t.close_all(client, owner) : result<void>();
    };
    co_return co_await ask_each(client, close);
}

task<result<void>> client_book::drop_revoked_until(client_id client, time_point t)
{
    const auto drop = [client, t](state_table& table) -> result<void> {
        table.drop_revoked_until(client, t);
        return {};
    };
    co_return co_await ask_each(client, drop);
}

// --- What time does

// What is due, one of each sort. An error is the store's.
task<result<void>> client_book::do_what_is_due()
{
    const time_point t = now();
    result<void> done;
    if (grace_.is_due(t))
        done = co_await end_grace();
    auto* oldest = by_->courtesy.front();
    if (done && oldest != nullptr && oldest->owner.renewed + options_.lease + options_.courtesy_time <= t)
        done = co_await take_here(oldest->owner.card->id, client_state::expired, true);
    if (auto* m = by_->unrecorded.front(); done && m != nullptr) {
        const client_id lacking = m->owner.card->id;
        done = co_await write_record_here(lacking, false);
    }
    co_return done;
}

task<void> client_book::tend()
{
    for (;;) {
        age();
        const time_point t = now();
        time_point next = time_point::max();
        const auto at = [&next](time_point when) { next = std::min(next, when); };
        result<void> done = error(std::errc::not_enough_memory, "the recovery store");
        try {
            done = co_await do_what_is_due();
        } catch (...) { // it is tried again
        }
        if (!done) {
            at(now() + std::chrono::seconds(1));
        } else {
            if (grace_.now() == grace_period::phase::reclaiming)
                at(grace_.until());
            if (by_->unrecorded.front() != nullptr)
                at(t);
            if (auto* m = by_->active.front())
                at(m->owner.renewed + options_.lease);
            if (auto* m = by_->courtesy.front())
                at(m->owner.renewed + options_.lease + options_.courtesy_time);
        }
        const bool goes_on = co_await change_awaiter(tending_, next, "something to be due");
        if (!goes_on)
            co_return;
    }
}

// --- Messages that need no memory

void client_book::place::deliver() noexcept
{
    is_told.store(false);
    if (state_table* const there = table.load())
        there->look_at_clients();
}

void client_book::news::deliver() noexcept
{
    is_told.store(false);
    book.hear_of_records();
}

} // namespace verbena::files
