// SPDX-License-Identifier: Apache-2.0
// What clients have of a table's files: limits and owners of it, and its end.
#include "booked_client.hpp"

#include <verbena/protocols/files/limit_met.hpp>

#include <algorithm>
#include <cstdint>
#include <new>

namespace verbena::files {

using namespace detail;

namespace {

// Of a client's states, before others have their turn: less than a millisecond's.
constexpr std::size_t dropped_at_once = 256;

} // namespace

state_table::state_table(table_commons& commons, client_book& book, unsigned home, const shard& where,
                         state_handler& handler)
    : commons_(commons),
      book_(book),
      home_(home),
      clock_(where.reactor().clock()),
      handler_(handler),
      options_(book.options()),
      has_book_(&where.reactor() == &book.home().reactor()),
      stats_(has_book_ ? book.stats_ : own_stats_),
      states_(std::make_unique<stateid_table>(options_.epoch, commons.key(), home, commons.homes())),
      files_(std::make_unique<file_set>()),
      recent_(std::make_unique<recent_recalls>(options_.rest_after_recall)),
      by_(std::make_unique<indexes>())
{
    assert(home < commons.homes() && "a home that no file has");
    book.add_table(*this, home, where);
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
    for (auto& [id, c] : clients_)
        while (drop_some(*c, SIZE_MAX)) {
        }
    book_.remove_table(home_);
}

// --- Clients

void state_table::age() noexcept
{
    if (has_book_)
        book_.age();
}

client_entry* state_table::find_client(client_id id) noexcept
{
    const auto it = clients_.find(id);
    return it == clients_.end() ? nullptr : it->second.get();
}

// What it has here begins with what it asks for here.
result<client_entry*> state_table::living(client_id id, bool even_leaving) noexcept
{
    age();
    if (client_entry* const known = find_client(id)) {
        if (const auto may = is_living(known->card, even_leaving); !may)
            return may.error();
        return known;
    }
    std::shared_ptr<client_card> card = commons_.clients().find(id);
    if (card == nullptr)
        return error(errc::stale_client);
    if (const auto may = is_living(*card, even_leaving); !may)
        return may.error();
    try {
        return clients_.emplace(id, std::make_unique<client_entry>(std::move(card))).first->second.get();
    } catch (const std::bad_alloc&) {
        return error(errc::busy, "no memory for what the client has");
    }
}

std::optional<std::vector<exported_file>> state_table::files_of(client_id client, std::size_t most)
{
    client_entry* const c = find_client(client);
    std::vector<exported_file> all;
    if (c == nullptr)
        return all;
    if (c->card.pending > 0)
        return std::nullopt;
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

// --- What the book says

// Its lease is over: whoever waits for a lock of its, or for what is kept for it, may ask for that now. All of them hear
// that at the end of the breath, once for each file.
void state_table::begin_lapse(const client_card& card) noexcept
{
    client_entry* const c = find_client(card.id);
    if (c == nullptr)
        return;
    c->lapses = card.lapses;
    if (stats_.lock_waiters.value() > 0)
        for (auto* s = c->states.front(); s != nullptr; s = c->states.next(*s))
            if (s->owner.kind == state_kind::lock && s->owner.of_file.is_linked()) // has ranges
                (void)tell_later(*s->owner.file, by_->freed);
    for (auto* w = c->waiting.front(); w != nullptr; w = c->waiting.next(*w))
        if (w->owner.is_told)
            (void)tell_later(w->owner.file, by_->freed);
    give_way_locally(*c);
    if (card.others > 0)
        for (auto* s = c->states.front(); s != nullptr; s = c->states.next(*s))
            if (s->owner.kind == state_kind::other && s->owner.file != nullptr &&
                static_cast<other_entry&>(s->owner).of.ends_with_lease()) {
                static_cast<other_entry&>(s->owner).has_lapsed = true;
                recall(static_cast<recallable_entry&>(s->owner));
            }
    if (stats_.recalled_delegations.value() > 0)
        for (auto* s = c->states.front(); s != nullptr && !c->in_way.is_linked(); s = c->states.next(*s))
            if (s->owner.kind == state_kind::delegation)
                give_way_if_gone(static_cast<delegation_entry&>(s->owner));
}

void state_table::end_lapse() noexcept { tell_all(by_->freed); }

// Something of what their cards say has changed.
void state_table::look_at_clients() noexcept
{
    for (auto at = clients_.begin(); at != clients_.end();) {
        client_entry& c = *(at++)->second;
        if (c.lapses != c.card.lapses) {
            if (c.card.state == client_state::courtesy)
                begin_lapse(c.card);
            c.lapses = c.card.lapses;
        }
        if (c.card.leaving == 0)
            recall_what_is_fenced(c);
        if (commons_.clients().find(c.id) == nullptr)
            leave(c.id);
    }
    end_lapse();
}

bool state_table::drop_some_of(client_id client) noexcept
{
    client_entry* const c = find_client(client);
    return c != nullptr && drop_some(*c, dropped_at_once);
}

void state_table::keep(client_id client) noexcept
{
    if (client_entry* const c = find_client(client))
        recall_what_is_fenced(*c);
}

// It is forgotten, and all it had is gone.
void state_table::leave(client_id client) noexcept { clients_.erase(client); }

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
        if (c.card.hears_by_stateids()) // it hears of it by its stateids alone
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

// --- Limits

std::optional<state_table::shortage> state_table::lacks(const client_entry& c, limited what,
                                                        std::size_t more) const noexcept
{
    const limits& most = options_.limits;
    const client_card& card = c.card;
    std::size_t own = 0, most_of_own = 0, limit = 0;
    std::atomic<std::size_t> use_counts::* used = nullptr;
    const auto set = [&](std::atomic<std::size_t> use_counts::* counted, std::size_t may_have,
                         std::size_t most_of_all) {
        used = counted;
        own = card.use.*counted;
        most_of_own = may_have;
        limit = most_of_all;
    };
    switch (what) {
    case limited::opens: set(&use_counts::opens, most.opens_per_client, most.opens); break;
    case limited::locks: set(&use_counts::locks, most.locks_per_client, most.locks); break;
    case limited::lock_owners:
        set(&use_counts::lock_states, most.lock_states_per_client, most.lock_states);
        break;
    case limited::owner_names:
        set(&use_counts::owner_names, most.owner_names_per_client, most.owner_names);
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
    if (own + (what == limited::opens ? card.pending.load() : 0) + more > most_of_own)
        return shortage{what, limit_of::client};
    // Where the others have nothing, what it has itself is all that can be given back.
    if (card.peer != nullptr && card.peer.get()->*used + more > limit * most.peer_percent / 100)
        return shortage{what, card.peer.get()->*used == own ? limit_of::client : limit_of::peer};
    if (card.all.*used + more > limit)
        return shortage{what, card.all.*used == own ? limit_of::client : limit_of::all};
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
    case limit_of::client: return error_of({lacking.what, lacking.whose}, own);
    case limit_of::peer: return error_of({lacking.what, lacking.whose}, errc::peer_is_full);
    case limit_of::all: return error_of({lacking.what, lacking.whose}, errc::all_is_full);
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
    const bool is_counted = o.is_counted; // an insertion that fails takes the entry along
    const std::uint64_t hash = o.hash;
    if (is_counted)
        c.card.owners.enter(locks, hash);
    try {
        c.owners.insert(std::move(made));
    } catch (...) {
        if (is_counted)
            c.card.owners.leave(locks, hash);
        throw;
    }
    c.card.count(&use_counts::owner_names, std::ptrdiff_t(name.size()));
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
    o.client.card.count(&use_counts::owner_names, -std::ptrdiff_t(o.name.size()));
    stats_.owner_names.add(-std::int64_t(o.name.size()));
    if (o.is_counted)
        o.client.card.owners.leave(o.locks, o.hash);
    auto& owners = o.client.owners;
    owners.erase(owners.find(owner_key{o.hash, o.locks, o.name}));
}

// --- Grace

error state_table::refuse(errc e, const char* context, counter& counted) noexcept
{
    counted.add();
    return error(e, context);
}

// I/O contradicts only what keeps it out, so it waits only for clients that may reclaim such.
result<void> state_table::refuse_io_in_grace(share access) noexcept
{
    if (book_.holds_up(access))
        return refuse(errc::grace, "others may reclaim what keeps it out", stats_.refused_grace);
    return {};
}

result<void> state_table::refuse_in_grace() noexcept
{
    if (book_.grace() != grace_period::phase::over)
        return refuse(errc::grace, "others may reclaim", stats_.refused_grace);
    return {};
}

result<void> state_table::may_begin_anew(const client_entry& c) noexcept
{
    if (!c.card.complete && !c.card.silent && !c.card.is_host) // RFC 8881 18.51.3
        return refuse(errc::grace, "the client has not said that it reclaimed all", stats_.refused_grace);
    return refuse_in_grace();
}

result<void> state_table::check_reclaim(const client_entry& c, share keeps_out) noexcept
{
    if (c.card.complete || book_.grace() != grace_period::phase::reclaiming)
        return refuse(errc::no_grace, "the time to reclaim is over", stats_.late_reclaims);
    if (c.card.is_host && !c.card.silent) // though its name may stand in the list, as it was monitored before
        return refuse(errc::reclaim_bad, "the host is not monitored", stats_.bad_reclaims);
    if (!c.card.may_reclaim)
        return refuse(errc::reclaim_bad, "the client is not in the list", stats_.bad_reclaims);
    // Its record kept nobody out, so others may read and write already.
    if (!includes(c.card.reclaims_against, keeps_out))
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
