// SPDX-License-Identifier: Apache-2.0
// Byte-range locks, and those who wait for them.
#include "entries.hpp"

#include <algorithm>

namespace verbena::files {

using namespace detail;

namespace {

// Visits the owner's other lock states that hold bytes of the file. They came by other opens. `l` may be nullptr. If the owner has other
// states, this costs as many steps as the file has lockers.
template<class Do>
void for_each_beside(file_entry& f, owner_entry* o, const lock_entry* l, Do&& what)
{
    if (o == nullptr || (l != nullptr && o->states.front() == o->states.back()))
        return;
    for (auto* m = f.locks.front(); m != nullptr;) {
        state_entry& one = m->owner;
        m = f.locks.next(*m);
        if (one.owner == o && &one != l)
            what(static_cast<lock_entry&>(one));
    }
}

} // namespace

namespace {

// The back end hears of the file's ranges, so they are bounded. One client, or all of one peer, has half of them by its
// locks: others have the rest. An unlock that splits a range may go beyond that, and who has few ranges may always
// unlock: to wait would help nobody, and who unlocks often can't be told to come again.
std::optional<limit_of> lacks_of_file(file_entry& f, const client_entry& c, std::size_t more,
                                      std::size_t most, bool unlocks) noexcept
{
    constexpr std::size_t always = 16;
    const std::size_t part = unlocks ? most / 4 * 3 : most / 2;
    if (f.ranges + more <= part)
        return std::nullopt;
    std::size_t own = more, of_peer = more;
    for (auto* m = f.locks.front(); m != nullptr; m = f.locks.next(*m)) {
        const auto& l = static_cast<const lock_entry&>(m->owner);
        const bool is_own = &l.client == &c;
        own += is_own ? l.ranges.size() : 0;
        of_peer +=
            is_own || (c.card.peer != nullptr && l.client.card.peer == c.card.peer) ? l.ranges.size() : 0;
    }
    if (unlocks && own <= always)
        return std::nullopt;
    if (own > part)
        return limit_of::client;
    if (of_peer > part || f.ranges + more > (unlocks ? most / 2 * 3 : most))
        return limit_of::file; // others can let go of some
    return std::nullopt;
}

} // namespace

// The first lock of another owner that stands against this one, those of courtesy clients last; or what is kept for a waiter.
std::optional<state_table::lock_obstacle>
state_table::find_lock_obstacle(file_entry& f, client_id client, std::span<const std::byte> owner,
                                const byte_range& bytes, lock_type type, std::size_t* steps) noexcept
{
    std::optional<lock_obstacle> of_courtesy;
    for (auto* m = f.locks.front(); m != nullptr; m = f.locks.next(*m)) {
        auto& l = static_cast<lock_entry&>(m->owner);
        if (steps != nullptr)
            ++*steps;
        if (l.client.id == client && l.owner->name == text_of(owner))
            continue;
        const locked_range* r = l.ranges.find_conflict(bytes, type);
        if (r == nullptr)
            continue;
        const lock_obstacle found{r->bytes, r->type, &l.client, l.owner->name, &l};
        if (!gives_way(l.client, client))
            return found;
        if (!of_courtesy)
            of_courtesy = found;
    }
    return of_courtesy ? of_courtesy : find_reservation(f, client, owner, bytes, type);
}

std::optional<state_table::lock_obstacle> state_table::find_reservation(file_entry& f, client_id client,
                                                                        std::span<const std::byte> owner,
                                                                        const byte_range& bytes,
                                                                        lock_type type) noexcept
{
    for (auto* m = f.waits.front(); m != nullptr; m = f.waits.next(*m)) {
        const wait_entry& w = m->owner;
        if (w.is_told && w.client.card.state != client_state::courtesy && w.bytes.overlaps(bytes) &&
            conflict(w.type, type) && !(w.client.id == client && w.owner == text_of(owner)))
            return lock_obstacle{w.bytes, w.type, &w.client, w.owner, nullptr};
    }
    return std::nullopt;
}

namespace {

void tell(lock_holder* holder, const byte_range& bytes, lock_type type, client_id client,
          std::string_view owner)
{
    if (holder == nullptr)
        return;
    holder->bytes = bytes;
    holder->type = type;
    holder->client = client;
    holder->owner = owner;
}

} // namespace

result<stateid> state_table::lock(const lock_request& r, lock_holder* holder, zero_seqid zero,
                                  pending_lock* local)
{
    const auto living_one = living(r.client);
    if (!living_one)
        return living_one.error();
    client_entry& c = **living_one;
    const auto s = check(c, r.id, &r.file, zero);
    if (!s)
        return s.error();
    if ((*s)->kind != (r.new_owner ? state_kind::open : state_kind::lock))
        return error(errc::bad_stateid, r.new_owner ? "not an open" : "not a lock");
    if (r.bytes.offset > r.bytes.last || r.owner.size() > options_.limits.owner_bytes)
        return error(errc::invalid, "range or owner of a lock");
    file_entry& f = *(*s)->file;
    lock_entry* l = r.new_owner ? nullptr : static_cast<lock_entry*>(*s);
    if (l != nullptr && l->open == nullptr)
        return error(errc::bad_stateid, "of locks without an open");
    owner_entry* const known = l != nullptr ? l->owner : find_owner(c, true, r.owner);
    open_entry& by = l != nullptr ? *l->open : static_cast<open_entry&>(**s);
    if (l == nullptr && known != nullptr)
        l = locks_by(*known, &by, f); // it came with its open again
    if (!includes(by.access, r.type == lock_type::read ? share::read : share::write))
        return error(errc::open_mode);
    const std::span<const std::byte> owner = l != nullptr ? bytes_of(l->owner->name) : r.owner;
    lock_place at{c, f, owner, &by, known, l};
    if (const auto may = may_lock(r, at, holder, local); !may)
        return may.error();
    return states_->id_of(set_lock(r, at, local));
}

// What lock() and lock_by_owner() have in common. Not yet: whose the stateid is, and what the open may.
result<void> state_table::may_lock(const lock_request& r, lock_place& at, lock_holder* holder,
                                   pending_lock* local)
{
    client_entry& c = at.client;
    file_entry& f = at.file;
    const std::span<const std::byte> owner = at.owner;
    lock_entry* const l = at.had;
    // That was judged before the back end was asked; grace may be over since.
    const bool is_judged = local != nullptr && local->is_held_;
    if (const auto may = is_judged   ? result<void>()
                         : r.reclaim ? check_reclaim(c, share::none)
                                     : may_begin_anew(c);
        !may)
        return may;
    if (const auto may = may_be_granted(c.card, share::none); !may)
        return may;

    lapse_reservations();
    wait_entry* waits = find_wait(f, r.client, owner);
    const bool was_told = waits != nullptr && waits->is_told;
    auto found = find_lock_obstacle(f, r.client, owner, r.bytes, r.type);
    const bool is_pending = !found && (found = find_pending_lock(f, r.client, owner, r.bytes, r.type));
    if (found) {
        tell(holder, found->bytes, found->type, found->client->id, found->owner);
        if (r.reclaim)
            return refuse(errc::reclaim_conflict, "another client reclaimed the range",
                          stats_.conflicting_reclaims);
        if (!is_pending && gives_way(*found->client, r.client))
            return error(errc::in_way, "a courtesy client has it locked");
        stats_.lock_denials.add();
        if (found->lock != nullptr && found->client->card.is_host)
            note_host_denies(*found->lock);
        if (r.wait && at.hears())
            wait_for(c, r.file.via, f, owner, r.bytes, r.type);
        else if (waits != nullptr && waits->bytes == r.bytes && waits->type == r.type)
            erase_wait(
                *waits); // it asks without waiting for what it waited for, so it waits no more (8881 9.6)
        else if (waits != nullptr) // it keeps its place, but no range
            begin_wait(*waits);
        if (was_told) // what was kept for it is free
            tell_waiters(f);
        return error(errc::denied);
    }
    if (at.by == nullptr)
        if (const auto may = may_lock_without_open(r, f); !may)
            return may;
    std::ptrdiff_t growth = l != nullptr ? l->ranges.growth(r.bytes, r.type) : 1;
    for_each_beside(f, at.known, l, [&](lock_entry& beside) { growth += beside.ranges.growth(r.bytes, {}); });
    if (const auto lacking = lacks_for_locks(c, growth > 0 ? std::size_t(growth) : 0, l == nullptr,
                                             at.known == nullptr ? r.owner.size() : 0))
        return refuse(*lacking, errc::too_many_locks);
    if ((l == nullptr || l->ranges.empty()) && f.lockers >= options_.limits.lockers_per_file)
        return refuse({limited::lock_owners, limit_of::file}, errc::too_many_locks);
    if (f.local != nullptr && growth > 0)
        if (const auto whose =
                lacks_of_file(f, c, std::size_t(growth), options_.limits.local_ranges_per_file, false))
            return refuse({limited::locks, *whose}, errc::too_many_locks);
    if (local != nullptr && !local->is_held_ && local_of(f) != nullptr) {
        // Which of the two is the later one would be known to the client alone.
        if (is_asked_for(f, r.client, owner, r.bytes))
            return error(errc::busy, "the back end is being asked for a lock of the same owner");
        begin_locally(*local, at, r);
        return error(errc::busy, "the back end is to be asked first");
    }
    at.waits = waits;
    at.growth = growth;
    return {};
}

lock_entry& state_table::set_lock(const lock_request& r, const lock_place& at, pending_lock* local)
{
    client_entry& c = at.client;
    file_entry& f = at.file;
    lock_entry* l = at.had;
    wait_entry* const waits = at.waits;
    const bool was_told = waits != nullptr && waits->is_told;
    // First all that there may be no memory for.
    for_each_beside(f, at.known, l, [&](lock_entry& beside) { beside.ranges.reserve(r.bytes, {}); });
    if (l == nullptr) {
        owner_entry& o = owner_of(c, true, at.owner);
        try {
            auto made = std::make_unique<lock_entry>(c, o, f, r.file.via, at.by);
            made->ranges.reserve(r.bytes, r.type);
            l = &enter(*states_, by_->states, std::move(made));
        } catch (...) {
            release_owner(o);
            throw;
        }
        c.states.push_back(l->of_client);
        o.states.push_back(l->of_owner);
        ++f.states;
        c.card.count(&use_counts::lock_states, 1);
        stats_.lock_states.add(1);
    } else {
        l->ranges.reserve(r.bytes, r.type);
        l->seqid = next_seqid(l->seqid);
    }
    if (waits != nullptr && waits->bytes.overlaps(r.bytes))
        erase_wait(*waits);  // and nobody hears of it before this lock stands
    if (l->ranges.empty()) { // nobody looks at it otherwise
        f.locks.push_back(l->of_file);
        ++f.lockers;
    }
    // What was locked to write may now be locked to read only.
    bool frees = r.type == lock_type::read && l->ranges.find_conflict(r.bytes, lock_type::read) != nullptr;
    for_each_beside(f, l->owner, l, [&](lock_entry& beside) {
        frees |=
            r.type == lock_type::read && beside.ranges.find_conflict(r.bytes, lock_type::read) != nullptr;
        clear(beside, r.bytes); // the bytes are of this open from now on
    });
    l->ranges.set(r.bytes, r.type);
    l->denies_from.reset();
    c.card.count(&use_counts::locks, at.growth);
    f.ranges += std::uint32_t(at.growth);
    stats_.locks.add(at.growth);
    if (r.reclaim)
        stats_.reclaims.add();
    if (local != nullptr)
        end_locally(*local, frees);
    // What was kept for it may be free, too.
    if (was_told || frees)
        unlocked(f);
    return *l;
}

result<void> state_table::test_lock(client_id client, const storage::handle& file,
                                    std::span<const std::byte> owner, const byte_range& bytes, lock_type type,
                                    lock_holder* holder, back_end_locks* asks)
{
    const auto c = living(client);
    if (!c)
        return c.error();
    if (const auto may = refuse_in_grace(); !may)
        return may;
    lapse_reservations();
    file_entry* f = find_file(file);
    std::optional<lock_obstacle> found;
    if (f != nullptr)
        found = find_lock_obstacle(*f, client, owner, bytes, type);
    if (f != nullptr && (!found || gives_way(*found->client, client)))
        found = find_pending_lock(*f, client, owner, bytes, type);
    if (!found) {
        const bool has_none = f != nullptr && f->local == nullptr && f->local_sought;
        if (asks != nullptr && !has_none)
            *asks = f != nullptr && f->local != nullptr ? f->local : handler_.local_locks_of(file);
        return {};
    }
    tell(holder, found->bytes, found->type, found->client->id, found->owner);
    return error(errc::denied);
}

result<stateid> state_table::unlock(client_id client, const stateid& id, const exported_file& file,
                                    const byte_range& bytes, zero_seqid zero, back_end_locks* unsettled)
{
    const auto s = own(client, id, file, zero, state_kind::lock);
    if (!s)
        return s.error();
    if (bytes.offset > bytes.last)
        return error(errc::invalid, "range of an unlock");
    auto& l = static_cast<lock_entry&>(**s);
    if (const auto done = unlock_bytes(l, bytes, unsettled); !done)
        return done.error();
    l.seqid = next_seqid(l.seqid);
    return states_->id_of(l);
}

// Locks by an owner alone go with their last range.
result<void> state_table::unlock_bytes(lock_entry& l, const byte_range& bytes, back_end_locks* unsettled)
{
    file_entry& f = *l.file;
    std::ptrdiff_t growth = 0;
    std::optional<byte_range> gone; // all that it has of them lies there
    const auto look = [&](const lock_entry& one) {
        growth += one.ranges.growth(bytes, std::nullopt);
        const auto had = one.ranges.overlapping(bytes);
        if (had.empty())
            return;
        const byte_range its{std::max(bytes.offset, had.front().bytes.offset),
                             std::min(bytes.last, had.back().bytes.last)};
        gone = gone ? byte_range{std::min(gone->offset, its.offset), std::max(gone->last, its.last)} : its;
    };
    look(l);
    for_each_beside(f, l.owner, &l, look);
    // Else a client could make as many as it likes of one.
    if (growth > 0) {
        if (const auto lacking = lacks_for_locks(l.client, std::size_t(growth), false, 0))
            return refuse(*lacking, errc::too_many_locks);
        if (f.local != nullptr)
            if (const auto whose = lacks_of_file(f, l.client, std::size_t(growth),
                                                 options_.limits.local_ranges_per_file, true))
                return refuse({limited::locks, *whose}, errc::too_many_locks);
    }
    // First all that there may be no memory for.
    l.ranges.reserve(bytes, std::nullopt);
    for_each_beside(f, l.owner, &l, [&](lock_entry& beside) { beside.ranges.reserve(bytes, std::nullopt); });
    clear(l, bytes);
    for_each_beside(f, l.owner, &l, [&](lock_entry& beside) { clear(beside, bytes); });
    l.client.card.count(&use_counts::locks, growth);
    f.ranges += std::uint32_t(growth);
    stats_.locks.add(growth);
    if (gone)
        l.denies_from.reset();
    if (l.open == nullptr && l.ranges.empty())
        (void)erase_lock(l);
    if (gone && unsettled != nullptr)
        *unsettled = f.local;
    if (gone)
        keep_locally(f, *gone);
    if (gone)
        unlocked(f);
    return {};
}

lock_entry* state_table::locks_by(owner_entry& o, const open_entry* by, file_entry& f) noexcept
{
    const auto it = by_->states.find(state_hash::of_locks(o, by, f));
    return it == by_->states.end() ? nullptr : static_cast<lock_entry*>(*it);
}

// The caller corrects the counts of ranges.
void state_table::clear(lock_entry& l, const byte_range& bytes)
{
    const bool had_some = !l.ranges.empty();
    l.ranges.clear(bytes);
    if (had_some && l.ranges.empty()) {
        l.of_file.unlink();
        --l.file->lockers;
    }
}

// True if others may have waited for it: nobody is told of that here. The file stays, even with nothing left.
bool state_table::erase_lock(lock_entry& l) noexcept
{
    file_entry& f = *l.file;
    owner_entry& owner = *l.owner;
    const bool had_some = !l.ranges.empty();
    l.client.card.count(&use_counts::locks, -std::ptrdiff_t(l.ranges.size()));
    l.client.card.count(&use_counts::lock_states, -1);
    f.lockers -= had_some;
    f.ranges -= std::uint32_t(l.ranges.size());
    note_unlocked(f, l.ranges);
    stats_.locks.add(-std::int64_t(l.ranges.size()));
    stats_.lock_states.add(-1);
    by_->states.erase(by_->states.find(state_hash::key(&l)));
    --f.states;
    states_->remove(l);
    release_owner(owner);
    return had_some;
}

void state_table::remove_lock(lock_entry& l) noexcept
{
    file_entry& f = *l.file;
    if (erase_lock(l))
        unlocked(f);
    else
        release_file(f);
}

bool state_table::has_locks(client_id client, std::span<const std::byte> owner) noexcept
{
    client_entry* const c = find_client(client);
    owner_entry* const o = c == nullptr ? nullptr : find_owner(*c, true, owner);
    for (auto* m = o == nullptr ? nullptr : o->states.front(); m != nullptr; m = o->states.next(*m))
        if (!static_cast<lock_entry&>(m->owner).ranges.empty())
            return true;
    return false;
}

result<void> state_table::release_lock_owner(client_id client, std::span<const std::byte> owner)
{
    const auto c = living(client);
    if (!c)
        return c.error();
    owner_entry* o = find_owner(**c, true, owner);
    if (o == nullptr)
        return {};
    if (has_locks(client, owner))
        return error(errc::locks_held);
    for (bool last = false; !last;) { // the owner goes with the last of them
        auto& l = static_cast<lock_entry&>(o->states.front()->owner);
        last = o->states.next(l.of_owner) == nullptr;
        remove_lock(l);
    }
    return {};
}

// --- Waiting

wait_entry* state_table::find_wait(file_entry& f, client_id client, std::span<const std::byte> owner) noexcept
{
    for (auto* m = f.waits.front(); m != nullptr; m = f.waits.next(*m))
        if (m->owner.client.id == client && m->owner.owner == text_of(owner))
            return &m->owner;
    return nullptr;
}

// An owner waits for one range of a file. Where it asks for another one, it waits for that, at the place it has.
void state_table::wait_for(client_entry& c, std::uint32_t via, file_entry& f,
                           std::span<const std::byte> owner, const byte_range& bytes, lock_type type)
{
    if (wait_entry* w = find_wait(f, c.id, owner)) {
        begin_wait(*w);
        w->is_local = false;
        w->via = via;
        w->bytes = bytes;
        w->type = type;
        return;
    }
    const bool of_client = c.card.waits >= options_.limits.waiters_per_client;
    if (of_client || f.waiting >= options_.limits.waiters_per_file) {
        stats_.refused_limits.add(limited::waiters, of_client ? limit_of::client : limit_of::file);
        return;
    }
    auto made = std::make_unique<wait_entry>(c, f, via, owner, bytes, type);
    made->number = ++last_wait_;
    by_->waits.emplace_hint(by_->waits.end(), made->number, made.get());
    wait_entry* const w = made.release();
    c.waiting.push_back(w->of_client);
    f.waits.push_back(w->of_file);
    ++c.card.waits;
    ++f.waiting;
    ++f.pins;
    begin_wait(*w);
    stats_.lock_waiters.add(1);
}

// It has just asked, and was told of nothing since.
void state_table::begin_wait(wait_entry& w) noexcept
{
    w.is_told = false;
    w.until = now() + options_.lock_wait;
    const bool ends_first = by_->untold.empty();
    by_->untold.push_back(w.by_end);
    if (ends_first)
        wake(tending_);
}

// The file stays, even with nothing left.
void state_table::erase_wait(wait_entry& w) noexcept
{
    --w.client.card.waits;
    --w.file.waiting;
    --w.file.pins;
    stats_.lock_waiters.add(-1);
    by_->waits.erase(w.number);
    delete &w;
}

void state_table::remove_wait(wait_entry& w) noexcept
{
    file_entry& f = w.file;
    const bool frees = w.is_told;
    erase_wait(w);
    if (frees)
        unlocked(f);
    else
        release_file(f);
}

// Where the client has no open of the file by that export left. True if others may have waited for what was kept.
bool state_table::end_waits(client_entry& c, std::uint32_t via, file_entry& f) noexcept
{
    if (c.card.waits == 0 || f.waiting == 0 || c.card.is_host)
        return false;
    for (auto* m = f.opens.front(); m != nullptr; m = f.opens.next(*m))
        if (is_of(m->owner, c.id, via))
            return false;
    bool frees = false;
    for (auto* m = f.waits.front(); m != nullptr;) {
        wait_entry& w = m->owner;
        m = f.waits.next(*m);
        if (&w.client == &c && w.via == via) {
            frees |= w.is_told;
            erase_wait(w);
        }
    }
    return frees;
}

bool state_table::is_told(client_id client, const storage::handle& file,
                          std::span<const std::byte> owner) noexcept
{
    file_entry* f = find_file(file);
    const wait_entry* w = f == nullptr ? nullptr : find_wait(*f, client, owner);
    return w != nullptr && w->is_told;
}

bool state_table::stop_waiting(client_id client, const storage::handle& file,
                               std::span<const std::byte> owner)
{
    file_entry* f = find_file(file);
    wait_entry* w = f == nullptr ? nullptr : find_wait(*f, client, owner);
    if (w == nullptr)
        return false;
    remove_wait(*w);
    return true;
}

// Each waiter that nothing is in the way of hears of it, in the order of asking. Courtesy clients are in nobody's way. It costs as many
// steps as there are waiters times holders, so it is for what frees bytes, once for all that goes together, and in pieces.
void state_table::tell_waiters(file_entry& f) noexcept
{
    for (auto* m = f.waits.front(); m != nullptr; m = f.waits.next(*m))
        m->owner.to_look = true;
    look_at_waiters(f);
}

// Looks at the waiters that are marked. If that takes too many steps, tend() goes on in a later turn; until then another owner may get
// the bytes first.
void state_table::look_at_waiters(file_entry& f) noexcept
{
    if (f.to_look.is_linked()) {
        f.to_look.unlink();
        --f.pins;
    }
    std::size_t steps = 0;
    for (auto* m = f.waits.front(); m != nullptr; m = f.waits.next(*m)) {
        wait_entry& w = m->owner;
        if (!w.to_look)
            continue;
        if (steps >= options_.limits.waiter_steps) {
            by_->to_look.push_back(f.to_look);
            ++f.pins;
            wake(tending_);
            break;
        }
        w.to_look = false;
        stats_.waiter_checks.add();
        if (w.is_told || w.is_local)
            continue;
        // A range that is kept for an earlier waiter stands against most of the others, and is found faster. But a courtesy client's lock
        // would come first.
        if (stats_.courtesy_clients.value() == 0 &&
            find_reservation(f, w.client.id, bytes_of(w.owner), w.bytes, w.type))
            continue;
        const auto found = find_lock_obstacle(f, w.client.id, bytes_of(w.owner), w.bytes, w.type, &steps);
        if ((found && !gives_way(*found->client, w.client.id)) ||
            find_pending_lock(f, w.client.id, bytes_of(w.owner), w.bytes, w.type))
            continue;
        w.is_told = true;
        w.until = now() + options_.lock_reserve;
        by_->told.push_back(w.by_end);
        handler_.lock_available({w.client.id, bytes_of(w.owner), &f.handle, w.bytes, w.type, w.via});
        wake(tending_);
    }
    stats_.waiter_steps.add(steps);
}

// Bytes of it came free. The file may go.
void state_table::unlocked(file_entry& f) noexcept
{
    ++f.pins;
    let_go_locally(f);
    tell_waiters(f);
    --f.pins;
    release_file(f);
}

// To be told of later, with others: once, however often it is noted. Until then it stays. What that will cost, in the unit of what is dropped.
std::size_t state_table::tell_later(file_entry& f, file_list& files) noexcept
{
    if (f.to_tell.is_linked())
        return 0;
    ++f.pins;
    files.push_back(f.to_tell);
    return (std::size_t(f.waiting) * f.lockers + (f.local != nullptr ? 4 * std::size_t(f.ranges) : 0)) / 64;
}

void state_table::tell_all(file_list& files) noexcept
{
    while (auto* m = files.front()) {
        m->unlink();
        --m->owner.pins;
        unlocked(m->owner);
    }
}

// Waiters that were told and did not come lose their place; the next ones hear of it. So do those that have given up: nobody says so.
void state_table::lapse_reservations() noexcept
{
    file_list freed;
    for (auto* list : {&by_->untold, &by_->told})
        for (auto* m = list->front(); m != nullptr && m->owner.until <= now(); m = list->front()) {
            file_entry& f = m->owner.file;
            if (m->owner.is_told)
                (void)tell_later(f, freed);
            erase_wait(m->owner);
            release_file(f);
        }
    tell_all(freed);
}

} // namespace verbena::files
