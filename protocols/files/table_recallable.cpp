// SPDX-License-Identifier: Apache-2.0
// Recallable state of any kind: how it is asked back and taken away; and what clients have of other kinds than
// delegations.
#include "entries.hpp"

#include <verbena/core/printable.hpp>
#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace verbena::files {

using namespace detail;

namespace {

// Of a client's states, or of recalls that are overdue, before others have their turn.
constexpr std::size_t looked_at_at_once = 256;

template<class T>
void insert_by_deadline(intrusive_list<member_of<T>>& list, member_of<T>& m) noexcept
{
    auto* before = list.back();
    while (before != nullptr && before->owner.deadline > m.owner.deadline)
        before = list.previous(*before);
    if (before != nullptr)
        list.insert_after(*before, m);
    else
        list.push_front(m);
}

// What `held` has of `bytes`.
byte_ranges part_of(const byte_ranges& held, const byte_range& bytes)
{
    byte_ranges part;
    for (const locked_range& one : held.overlapping(bytes))
        part.set({std::max(one.bytes.offset, bytes.offset), std::min(one.bytes.last, bytes.last)}, one.type);
    return part;
}
std::uint64_t in_microseconds(duration d) noexcept
{
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(d).count());
}

bool is_under_lease(const recallable_entry& r) noexcept
{
    return r.kind == state_kind::delegation &&
           static_cast<const delegation_entry&>(r).leased == delegation_entry::lease_state::held;
}

} // namespace

// --- To have it

// Somebody waits for the file, or had to wait lately: else those who come for more starve him. Or the client returns
// nothing.
bool state_table::is_contended(const client_entry& c, file_entry& f) noexcept
{
    return now() < c.card.trusted_from.load() || f.asking > 0 || recent_->contains(f.hash, now());
}

void state_table::add_recallable(recallable_entry& r)
{
    client_entry& c = r.client;
    c.states.push_back(r.of_client);
    r.file->recallables.push_back(r.of_file);
    ++r.file->states;
    ++c.card.recallables;
}

// Calls that run side by side bear the number that was the newest when they were sent.
result<state_entry*> state_table::check_side_by_side(client_entry& c, const stateid& id,
                                                     const exported_file& file) noexcept
{
    auto s = check(c, id, &file, zero_seqid::newest);
    if (s && id.seqid == 0 && (*s)->kind == state_kind::other &&
        static_cast<other_entry*>(*s)->of.is_numbered())
        return error(errc::bad_stateid, "without its number");
    if (s || s.error() != errc::old_stateid)
        return s;
    state_entry* const known = states_->find(id);
    if (known->kind != state_kind::other ||
        known->seqid - id.seqid > static_cast<other_entry*>(known)->of.most_behind())
        return s;
    return known;
}

// Whether anything is open or locked that the state would be in the way of, or the file is being changed.
bool state_table::is_used_against(const hold_request& r, client_entry& c, file_entry& f) noexcept
{
    const auto is_against = [&r](operation op) { return r.kind->conflicts(r.type, op); };
    if (commons_.operations().is_changed(f.handle))
        return true;
    // An open that is begun may wait for its cut, or for others' I/O.
    for (auto* p = f.pending.front(); p != nullptr; p = f.pending.next(*p)) {
        const std::uint32_t operations = demand(p->request_).operations_;
        const bool is_own = p->request_.client == c.id && p->request_.file.via == r.file.via;
        const auto is_in_its_way = [&](operation op) {
            return is_own ? r.kind->conflicts_with_holder(r.type, op) : is_against(op);
        };
        if (is_any(operations, is_in_its_way))
            return true;
    }
    for (auto* m = f.fences.front(); m != nullptr; m = f.fences.next(*m))
        if (&m->owner.use->of == r.kind)
            return true;
    const auto is_any_against = [&](operation of_read, operation of_write) {
        return (is_against(of_read) ? share::read : share::none) |
               (is_against(of_write) ? share::write : share::none);
    };
    const share access = is_any_against(operation::open_read, operation::open_write);
    const share deny = is_any_against(operation::open_deny_read, operation::open_deny_write);
    unsigned seen = 0;
    if (any(access | deny))
        for (auto* m = f.opens.front(); m != nullptr; m = f.opens.next(*m)) {
            const auto& o = static_cast<open_entry&>(m->owner);
            if (++seen > most_opens_looked_at ||
                (!is_of(o, c.id, r.file.via) && (any(o.access & access) || any(o.deny & deny))))
                return true;
        }
    const share locked = is_any_against(operation::lock_read, operation::lock_write);
    if (any(locked))
        for (auto* m = f.locks.front(); m != nullptr; m = f.locks.next(*m)) {
            const auto& l = static_cast<lock_entry&>(m->owner);
            if (is_of(l, c.id, r.file.via))
                continue;
            for (const locked_range& one : l.ranges.all())
                if (any(locked & (one.type == lock_type::read ? share::read : share::write)))
                    return true;
        }
    return false;
}

// What the client has of the kind, or nullptr. Its answer is why it may have no more.
result<other_entry*> state_table::other_for(const hold_request& r, client_entry& c, file_entry*& f)
{
    if (const auto may = may_begin_anew(c); !may)
        return may.error();
    const auto s = check_side_by_side(c, r.by, r.file);
    if (!s)
        return s.error();
    f = (*s)->file;
    if ((*s)->kind == state_kind::other && &static_cast<other_entry&>(**s).of != r.kind)
        return error(errc::bad_stateid, "of another kind");
    // Whatever it is asked with, what the client has open now counts.
    const share access = r.type == lock_type::read ? share::read : share::write;
    bool may =
        (*s)->kind == state_kind::delegation &&
        (r.type == lock_type::read || static_cast<delegation_entry&>(**s).type == delegation_type::write);
    for (auto* m = f->opens.front(); m != nullptr && !may; m = f->opens.next(*m))
        may = is_of(m->owner, c.id, r.file.via) && any(static_cast<open_entry&>(m->owner).access & access);
    if (!may)
        return error(errc::open_mode, "the client does not have the file open so");
    if (const auto room = decide_shares(f, demand(r)); !room)
        return room.error();
    const auto known = by_->states.find(state_key{&c, f, r.file.via, r.kind});
    auto* const has = known == by_->states.end() ? nullptr : static_cast<other_entry*>(*known);
    if (has != nullptr && (has->is_recalled || has->fence == nullptr))
        return error(errc::recalled);
    if (fences_until_)
        return error(errc::busy, "the server stops");
    if (!c.card.callable)
        return error(errc::busy, "the client can't be called");
    if (const auto may_have = may_be_granted(c.card, share::none); !may_have)
        return may_have.error();
    if (is_used_against(r, c, *f) || is_contended(c, *f))
        return error(errc::busy, "others are at work on the file, or wait for it");
    return has;
}

// What is fenced takes room as what is held: nobody gets more by losing much.
result<void> state_table::may_have_more(const hold_request& r, client_entry& c, file_entry& f) noexcept
{
    keep_from_limits(*r.kind, c);
    // With what was revoked and is not freed. At all tables, of which others may be at it just now: some more than that are no harm.
    if (c.card.others + c.card.fences + c.card.revoked >= r.kind->most_of_client())
        return refuse({limited::other_states, limit_of::client}, errc::too_many_locks);
    if (const peer_use* const peer = c.card.peer.get(); peer != nullptr) {
        const std::size_t has = peer->others, own = c.card.others + c.card.fences;
        if (has >= r.kind->most() * options_.limits.peer_percent / 100) {
            ask_back(*r.kind, c, c.card.others * 3 / 4);
            return refuse({limited::other_states, has == own ? limit_of::client : limit_of::peer},
                          errc::too_many_locks);
        }
    }
    if (r.kind->held_ + r.kind->fences_ >= r.kind->most()) {
        const error full = refuse({limited::other_states, limit_of::all}, errc::too_many_locks);
        // Fences end by themselves: nobody's state is to be taken for them.
        return r.kind->held_ < r.kind->most() ? error(errc::busy, "what is being fenced takes the room")
                                              : full;
    }
    std::size_t holders = 0;
    for (auto* m = f.recallables.front(); m != nullptr; m = f.recallables.next(*m))
        holders += m->owner.kind == state_kind::other && &static_cast<other_entry&>(m->owner).of == r.kind;
    if (holders >= r.kind->most_of_file())
        return refuse({limited::other_states, limit_of::file}, errc::busy);
    return {};
}

// Once a lease: who has as many as he may and needs all of them is not asked with each one that he wants.
void state_table::ask_back(recallable_kind& kind, client_entry& c, std::size_t keep) noexcept
{
    time_point next = c.card.next_ask_back_others.load();
    if (now() < next || !c.card.callable || c.card.others <= keep)
        return;
    // By one of the tables that want it.
    if (c.card.next_ask_back_others.compare_exchange_strong(next, now() + options_.lease))
        kind.recall_any(c.id, keep);
}

// Where a limit is near, clients are asked for what they don't use, before somebody is refused. Three quarters of what there may be are to
// be left; where the limit is that of all, who has less than the others keeps it.
void state_table::keep_from_limits(recallable_kind& kind, client_entry& c) noexcept
{
    const auto is_near = [](std::size_t count, std::size_t most) { return count + 1 + most / 8 > most; };
    if (is_near(c.card.others + c.card.fences + c.card.revoked, kind.most_of_client()))
        ask_back(kind, c, kind.most_of_client() * 3 / 4);
    if (!is_near(kind.held_ + kind.fences_, kind.most()) || now() < next_ask_back_others_)
        return;
    next_ask_back_others_ = now() + options_.lease;
    std::size_t holders = 0;
    for (const auto& [id, one] : clients_)
        holders += one->card.others > 0;
    for (const auto& [id, one] : clients_)
        ask_back(kind, *one, kind.most() * 3 / 4 / std::max<std::size_t>(holders, 1));
}

void state_table::ask_for_some(recallable_kind& kind, client_id client) noexcept
{
    if (client_entry* const c = find_client(client))
        ask_back(kind, *c, c->card.others * 3 / 4);
}

std::shared_ptr<kind_use> state_table::use_of(client_entry& c, recallable_kind& kind)
{
    for (const auto& use : c.uses)
        if (&use->of == &kind)
            return use;
    c.uses.push_back(std::make_shared<kind_use>(c.shared, kind));
    return c.uses.back();
}

result<stateid> state_table::hold(const hold_request& r)
{
    assert(r.kind != nullptr && "of no kind");
    const auto c = living(r.client);
    if (!c)
        return c.error();
    file_entry* f = nullptr;
    const auto found = other_for(r, **c, f);
    if (!found)
        return found.error();
    other_entry* o = *found;
    if (o != nullptr) {
        byte_ranges& held = o->held[std::size_t(r.type)];
        if (std::ptrdiff_t(held.size()) + held.growth(r.bytes, r.type) >
                std::ptrdiff_t(r.kind->most_ranges()) ||
            !r.kind->has_room(states_->id_of(*o)))
            return refuse({limited::other_states, limit_of::file}, errc::busy);
        held.set(r.bytes, r.type);
        o->looks += r.looks;
        o->seqid = next_seqid(o->seqid);
        return states_->id_of(*o);
    }
    if (const auto may = may_have_more(r, **c, *f); !may)
        return may.error();
    std::shared_ptr<kind_use> use = use_of(**c, *r.kind);
    auto made =
        std::make_unique<other_entry>(**c, *f, r.file.via, use, std::make_unique<fence_entry>(use, *f));
    made->held[std::size_t(r.type)].set(r.bytes, r.type);
    made->looks = r.looks;
    o = &enter(*states_, by_->states, std::move(made));
    add_recallable(*o);
    use->unfenced.push_back(o->unfenced);
    ++use->held;
    ++f->others;
    (*c)->card.count(&client_card::others, 1);
    ++r.kind->held_;
    stats_.other_states.add(1);
    return states_->id_of(*o);
}

result<void> state_table::may_hold(const hold_request& r)
{
    const auto c = living(r.client);
    if (!c)
        return c.error();
    file_entry* f = nullptr;
    const auto found = other_for(r, **c, f);
    return found ? result<void>() : found.error();
}

bool state_table::forgo(const stateid& id, const byte_range& bytes, lock_type type)
{
    state_entry* const s = states_->find(id);
    if (s == nullptr || s->kind != state_kind::other || s->file == nullptr)
        return false;
    auto& o = static_cast<other_entry&>(*s);
    if (o.fence == nullptr)
        return false;
    o.held[std::size_t(type)].clear(bytes);
    if (o.held[0].empty() && o.held[1].empty()) {
        o.unfenced.unlink();
        o.to_fence.unlink();
        o.fence.reset();
        remove(o);
        return true;
    }
    changed(*o.file);
    return false;
}

void state_table::forgo_number(const stateid& id) noexcept
{
    state_entry* const s = states_->find(id);
    if (s != nullptr && s->kind == state_kind::other && s->seqid == id.seqid && s->seqid > 1)
        --s->seqid;
}

result<std::optional<stateid>> state_table::give_back(client_id client, const stateid& id,
                                                      const exported_file& file, const byte_range& bytes,
                                                      std::optional<lock_type> type, loss why)
{
    const auto c = living(client);
    if (!c)
        return c.error();
    const auto s = check_side_by_side(**c, id, file);
    if (!s)
        return s.error();
    if ((*s)->kind != state_kind::other)
        return error(errc::bad_stateid, "of another kind");
    auto& o = static_cast<other_entry&>(**s);
    std::array<byte_ranges, 2> left = o.held, part;
    for (const lock_type of : {lock_type::read, lock_type::write}) {
        if (type && *type != of)
            continue;
        part[std::size_t(of)] = part_of(left[std::size_t(of)], bytes);
        left[std::size_t(of)].clear(bytes);
    }
    if (left[0].empty() && left[1].empty()) {
        fence_now(o, why);
        remove(o);
        return std::optional<stateid>();
    }
    if (std::max(left[0].size(), left[1].size()) > o.of.most_ranges())
        return refuse({limited::other_states, limit_of::file}, errc::busy);
    std::unique_ptr<fence_entry> fence;
    if (!part[0].empty() || !part[1].empty()) {
        if ((*c)->card.fences >= o.of.most_of_client())
            return refuse({limited::other_states, limit_of::client}, errc::busy);
        if (o.of.fences_ >= o.of.most())
            return refuse({limited::other_states, limit_of::all}, errc::busy);
        fence = std::make_unique<fence_entry>(o.use, *o.file);
    }
    o.held.swap(left);
    o.seqid = next_seqid(o.seqid);
    if (fence != nullptr) {
        fence->what.id = states_->id_of(o);
        fence->what.via = o.via;
        fence->what.why = why;
        fence->what.bytes.swap(part);
        fence->what.is_all = false;
        fence->is_unshared = o.has_unshared;
        begin_fence(std::move(fence));
    }
    changed(*o.file); // who waits may be against those alone that are back
    return std::optional(states_->id_of(o));
}

// The client has closed the file, or given its delegation back.
void state_table::return_at_close(client_entry& c, std::uint32_t via, file_entry& f) noexcept
{
    if (c.card.others == 0 || f.others == 0)
        return;
    bool ends = false;
    for (auto* m = f.recallables.front(); m != nullptr; m = f.recallables.next(*m)) {
        if (!is_of(m->owner, c.id, via))
            continue;
        if (m->owner.kind == state_kind::delegation)
            return;
        ends = ends || static_cast<other_entry&>(m->owner).ends_with_last_close;
    }
    for (auto* m = f.opens.front(); m != nullptr && ends; m = f.opens.next(*m))
        ends = !is_of(m->owner, c.id, via);
    if (!ends)
        return;
    ++f.pins; // it stays until all is done
    for (auto* m = f.recallables.front(); m != nullptr;) {
        state_entry& s = m->owner;
        m = f.recallables.next(*m);
        if (!is_of(s, c.id, via) || !static_cast<other_entry&>(s).ends_with_last_close)
            continue;
        fence_now(static_cast<other_entry&>(s), loss::returned);
        remove(s);
    }
    --f.pins;
}

bool state_table::end_with_last_close(const stateid& id) noexcept
{
    const auto has_it = [this, &id]() -> other_entry* {
        state_entry* const s = states_->find(id);
        return s != nullptr && s->kind == state_kind::other && s->file != nullptr
                   ? static_cast<other_entry*>(s)
                   : nullptr;
    };
    other_entry* const o = has_it();
    if (o == nullptr)
        return false;
    o->ends_with_last_close = true;
    return_at_close(o->client, o->via, *o->file); // a fence keeps the file's entry
    return has_it() != nullptr;
}

std::vector<held_state> state_table::held(const recallable_kind& kind, client_id client) const
{
    std::vector<held_state> all;
    for (const auto& [id, c] : clients_) {
        if (client != nobody && client != id)
            continue;
        for (const auto& use : c->uses)
            for (auto* m = use->unfenced.front(); m != nullptr; m = use->unfenced.next(*m))
                if (&use->of == &kind && !m->owner.is_recalled)
                    all.push_back({id, states_->id_of(m->owner), m->owner.file->handle, m->owner.via});
    }
    return all;
}

std::vector<held_state> state_table::held(const recallable_kind& kind, const storage::handle& file)
{
    std::vector<held_state> all;
    file_entry* const f = find_file(file);
    for (auto* m = f == nullptr ? nullptr : f->recallables.front(); m != nullptr;
         m = f->recallables.next(*m)) {
        if (m->owner.kind != state_kind::other)
            continue;
        const auto& o = static_cast<other_entry&>(m->owner);
        if (&o.of == &kind && !o.is_recalled && o.fence != nullptr)
            all.push_back({o.client.id, states_->id_of(o), file, o.via});
    }
    return all;
}

std::vector<held_state> state_table::all_of(const recallable_kind& kind, client_id client) const
{
    std::vector<held_state> all;
    const auto found = clients_.find(client);
    if (found == clients_.end())
        return all;
    for (const auto& use : found->second->uses)
        for (auto* m = use->unfenced.front(); m != nullptr; m = use->unfenced.next(*m))
            if (&use->of == &kind)
                all.push_back({client, states_->id_of(m->owner), m->owner.file->handle, m->owner.via});
    return all;
}

std::vector<storage::handle> state_table::files_with_kinds(std::uint32_t space) const
{
    std::vector<storage::handle> all;
    for (const auto& [id, c] : clients_)
        for (const auto& use : c->uses)
            for (auto* m = use->unfenced.front(); m != nullptr; m = use->unfenced.next(*m))
                if (const auto named = open_file_key(m->owner.file->handle); named && named->space == space)
                    all.push_back(m->owner.file->handle);
    const auto in_order = [](const storage::handle& a, const storage::handle& b) {
        return std::ranges::lexicographical_compare(a.bytes(), b.bytes());
    };
    std::ranges::sort(all, in_order);
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
}

result<std::array<byte_ranges, 2>> state_table::ranges_of(const recallable_kind& kind, client_id client,
                                                          const stateid& id, const exported_file& file)
{
    const auto c = living(client);
    if (!c)
        return c.error();
    const auto s = check_side_by_side(**c, id, file);
    if (!s)
        return s.error();
    if ((*s)->kind != state_kind::other || &static_cast<other_entry&>(**s).of != &kind)
        return error(errc::bad_stateid, "of another kind");
    return static_cast<other_entry&>(**s).held;
}

bool state_table::is_held(const recallable_kind& kind, const storage::handle& file, const byte_range& bytes,
                          lock_type type)
{
    file_entry* const f = find_file(file);
    for (auto* m = f == nullptr ? nullptr : f->recallables.front(); m != nullptr;
         m = f->recallables.next(*m)) {
        if (m->owner.kind != state_kind::other)
            continue;
        const auto& o = static_cast<other_entry&>(m->owner);
        if (&o.of == &kind && !o.held[std::size_t(type)].overlapping(bytes).empty())
            return true;
    }
    return false;
}

bool state_table::note_told(const stateid& id, told what, bool is_known) noexcept
{
    state_entry* const s = states_->find(id);
    if (s == nullptr || s->kind != state_kind::other || s->file == nullptr)
        return false;
    auto& o = static_cast<other_entry&>(*s);
    const bool had_holes = std::exchange(o.tells_holes, what.holes);
    const bool had_unshared = std::exchange(o.has_unshared, what.unshared);
    o.looks -= is_known;
    if (is_known || (had_holes && !what.holes) || (had_unshared && !what.unshared))
        changed(*o.file); // who waits may be against holes alone
    return o.fence != nullptr;
}

// --- To get it back

void state_table::recall(recallable_entry& r) noexcept
{
    auto* const d = r.kind == state_kind::delegation ? static_cast<delegation_entry*>(&r) : nullptr;
    if (d != nullptr && d->is_reserved()) { // nobody has it yet, and nobody will
        d->leased = delegation_entry::lease_state::unwanted;
        return;
    }
    if (r.is_recalled)
        return;
    r.is_recalled = true;
    r.recalled = now();
    r.deadline = now() + options_.recall_time;
    if (d != nullptr) {
        by_->recalled.push_back(r.by_deadline);
    } else {
        auto& o = static_cast<other_entry&>(r);
        if (o.of.is_numbered())
            o.seqid = next_seqid(o.seqid);
        r.deadline = now() + o.of.recall_time().value_or(options_.recall_time);
        insert_by_deadline(by_->recalled_others, r.by_deadline);
        if (o.fence != nullptr)
            insert_by_deadline(by_->to_fence, o.to_fence);
        wake(fencing_);
    }
    stats_.recalls.add();
    stats_.recalled_delegations.add(1);
    ++r.client.card.recalled;
    if (r.leaves_rest)
        recent_->add(r.file->hash, now());
    recall_notice told = {r.client.id, states_->id_of(r), &r.file->handle, delegation_type::read, r.via};
    if (d != nullptr) {
        told.type = d->type;
        handler_.recall(told);
    } else {
        static_cast<other_entry&>(r).of.recall(told);
    }
    wake(tending_);
}

result<void> state_table::recall(const stateid& id)
{
    state_entry* s = states_->find(id);
    if (s == nullptr || !is_recallable(s->kind) || s->file == nullptr)
        return error(errc::bad_stateid);
    auto& r = static_cast<recallable_entry&>(*s);
    if (!r.is_recalled)
        stats_.local_recalls.add();
    recall(r);
    if (r.kind == state_kind::delegation)
        give_way_if_gone(static_cast<delegation_entry&>(r));
    return {};
}

// Off the file, be it revoked or gone. The file may go, too.
void state_table::leave_file(recallable_entry& r) noexcept
{
    file_entry& f = *r.file;
    if (r.is_recalled) {
        if (r.leaves_rest)
            recent_->add(f.hash, now()); // the rest begins with its end
        stats_.ended_recalls.add();
        stats_.recall_microseconds.add(in_microseconds(now() - r.recalled));
        stats_.recalled_delegations.add(-1);
        --r.client.card.recalled;
    }
    by_->states.erase(by_->states.find(state_hash::key(&r)));
    if (r.kind == state_kind::delegation) {
        leave_delegation(static_cast<delegation_entry&>(r));
    } else {
        auto& o = static_cast<other_entry&>(r);
        --f.others;
        r.client.card.count(&client_card::others, -1);
        --o.use->held;
        --o.of.held_;
        stats_.other_states.add(-1);
        fence_now(o, loss::client_ended);
        tell_if_left(*o.use); // its fence may have ended before
    }
    r.of_file.unlink();
    r.by_deadline.unlink();
    r.file = nullptr;
    if (r.kind == state_kind::delegation)
        return_at_close(r.client, r.via, f);
    --f.states;
    changed(f);
}

void state_table::remove_recallable(recallable_entry& r) noexcept
{
    client_entry& c = r.client;
    if (r.is_revoked()) {
        --c.card.revoked;
        stats_.revoked_delegations.add(-1);
    } else {
        leave_file(r);
    }
    --c.card.recallables;
    states_->remove(r);
}

// The one whose time is over first.
recallable_entry* state_table::first_recalled() noexcept
{
    auto* const d = by_->recalled.front();
    auto* const o = by_->recalled_others.front();
    if (d == nullptr || (o != nullptr && o->owner.deadline < d->owner.deadline))
        return o == nullptr ? nullptr : &o->owner;
    return &d->owner;
}

// The store did not let it go. What is out of its reach it is to return, as it may come back.
void state_table::recall_what_is_fenced(client_entry& c) noexcept
{
    if (c.card.others == 0)
        return;
    for (auto* m = c.states.front(); m != nullptr; m = c.states.next(*m))
        if (m->owner.kind == state_kind::other && m->owner.file != nullptr &&
            static_cast<other_entry&>(m->owner).fence == nullptr)
            recall(static_cast<recallable_entry&>(m->owner));
}

// So all of it has one deadline and is revoked together. This yields between pieces, and the client may go meanwhile.
task<void> state_table::recall_what_it_has(client_id client, of_client what)
{
    client_entry* c = find_client(client);
    std::size_t left = c == nullptr ? 0 : c->card.use.opens + c->card.use.lock_states + c->card.recallables;
    while (left > 0 && (c = find_client(client)) != nullptr && !c->states.empty()) {
        for (std::size_t i = 0; i < looked_at_at_once && left > 0; ++i, --left) {
            auto* m = c->states.front();
            m->unlink(); // so that the next one is in front
            c->states.push_back(*m);
            if (!is_recallable(m->owner.kind) || m->owner.file == nullptr)
                continue;
            auto& r = static_cast<recallable_entry&>(m->owner);
            if (what == of_client::all ||
                (r.kind == state_kind::delegation &&
                 static_cast<delegation_entry&>(r).leased != delegation_entry::lease_state::none))
                recall(r);
        }
        if (left > 0)
            (void)co_await sleep_for(duration::zero());
    }
}

// It is recalled, or is about to be, and its client's lease was over meanwhile. Who can't be heard of for so long is not blamed, also if it is
// back by now. The client's card says so before begin_lapse() runs on this shard.
bool state_table::has_lapsed(recallable_entry& r) noexcept
{
    if (r.kind != state_kind::other)
        return false;
    auto& o = static_cast<other_entry&>(r);
    if (o.of.ends_with_lease() && o.client.card.state == client_state::courtesy)
        o.has_lapsed = true;
    return o.has_lapsed;
}

// Nothing of it is kept as revoked: that would cost the client its record, and so its opens after a restart, for what nobody took from it.
void state_table::take_lapsed(recallable_entry& r) noexcept
{
    ++r.client.card.losses;
    fence_now(r, loss::lapsed);
    remove(r);
}

// What was not returned in time.
task<result<void>> state_table::take_overdue(stateid id)
{
    state_entry* const s = states_->find(id);
    const bool is_there = s != nullptr && is_recallable(s->kind) && s->file != nullptr;
    if (!is_there || !has_lapsed(static_cast<recallable_entry&>(*s)))
        co_return co_await revoke(id);
    take_lapsed(static_cast<recallable_entry&>(*s));
    co_return result<void>();
}

void state_table::revoke_now(recallable_entry& r) noexcept
{
    client_entry& c = r.client;
    // It let local processes wait in vain, and would again with all that it has under leases.
    if (is_under_lease(r))
        c.card.leases_from = now() + options_.distrust;
    // One that can't answer for a while is not to be blamed for it: its lease is over, too.
    if (c.card.state == client_state::active) {
        const std::lock_guard held(c.card.blame);
        const bool again = now() - c.card.last_revocation <= options_.distrust;
        c.card.revoked_lately = again ? c.card.revoked_lately + 1 : 1;
        c.card.last_revocation = now();
    }
    fence_now(r, loss::revoked);
    leave_file(r);
    r.deadline = now();
    ++c.card.revoked;
    stats_.revoked_delegations.add(1);
    stats_.revocations.add();
}

// Revokes what else the client has not returned in time. Its record is gone already, so this needs no further write.
void state_table::revoke_overdue(client_entry& c) noexcept
{
    for (auto* const of : {&by_->recalled, &by_->recalled_others}) {
        auto* m = of->front();
        for (std::size_t i = 0; i < looked_at_at_once && m != nullptr && m->owner.deadline <= now(); ++i) {
            recallable_entry& r = m->owner;
            m = of->next(*m);
            if (&r.client != &c)
                continue;
            if (has_lapsed(r))
                take_lapsed(r);
            else
                revoke_now(r);
        }
    }
}

// True if the client was trusted until now.
bool state_table::trusts_no_more(client_entry& c) noexcept
{
    unsigned revoked = 0;
    {
        const std::lock_guard held(c.card.blame);
        revoked = c.card.revoked_lately;
        if (revoked < options_.trusted_revocations)
            return false;
        const bool begins = now() >= c.card.trusted_from.load();
        c.card.trusted_from = now() + options_.distrust;
        if (!begins)
            return false;
    }
    stats_.distrusted_clients.add();
    const auto minutes = std::chrono::ceil<std::chrono::minutes>(options_.distrust).count();
    log_limited(
        distrusted_, log_level::warning, "nfs",
        "a client renews its lease and returns no delegation that is recalled, which others wait for: it "
        "gets none for a while, and what it has is recalled",
        {{"client", printable(c.card.key)},
         {"revoked", revoked},
         {"minutes", minutes},
         {"cure", "see whether it can be called back: verbena_nfs4_callbacks_total"}});
    return true;
}

task<result<void>> state_table::revoke(stateid id)
{
    const auto live = [this, &id]() -> recallable_entry* {
        state_entry* s = states_->find(id);
        return s != nullptr && is_recallable(s->kind) && s->file != nullptr
                   ? static_cast<recallable_entry*>(s)
                   : nullptr;
    };
    recallable_entry* r = live();
    if (r == nullptr)
        co_return result<void>();
    if (r->kind == state_kind::delegation && static_cast<delegation_entry*>(r)->is_reserved()) {
        recall(*r); // nobody has it yet, and nobody will
        co_return result<void>();
    }
    fence_now(*r, loss::revoked); // a store that hangs leaves no memory within the client's reach
    const client_id client = r->client.id;
    const std::shared_ptr<client_card> card = r->client.shared;
    const result<bool> unrecorded = co_await book_.unrecord(client);
    if (!unrecorded) {
        r = live();
        if (r != nullptr)
            recall(*r); // what is fenced is of no use any more
        co_return unrecorded.error();
    }
    r = live();
    if (r == nullptr) { // it came back after all, or its client is gone
        if (*unrecorded) {
            --card->revoking;
            if (card->complete || card->silent)
                book_.record_later(*card); // write_record() leaves it out while another is revoked
        }
        co_return result<void>();
    }
    client_entry& c = r->client;
    const bool was_leased = is_under_lease(*r);
    revoke_now(*r);
    revoke_overdue(c);
    if (*unrecorded)
        --card->revoking;
    const bool begins = trusts_no_more(c);
    if (begins || was_leased) {
        const of_client what = begins ? of_client::all : of_client::under_leases;
        co_await recall_what_it_has(client, what);
        co_await book_.recall_elsewhere(client, begins, *this);
    }
    co_return result<void>();
}

task<result<void>> state_table::free_stateid(client_id client, stateid id)
{
    const auto c = living(client);
    if (!c)
        co_return c.error();
    const auto s = check(**c, id, nullptr, zero_seqid::newest);
    if (s) {
        if ((*s)->kind != state_kind::lock || !static_cast<lock_entry&>(**s).ranges.empty())
            co_return error(errc::locks_held);
        remove(**s);
        co_return result<void>();
    }
    if (has_lost(client, id)) {
        states_->free_revoked(id);
        --(*c)->card.admin_lost;
        co_return result<void>();
    }
    if (s.error() != errc::deleg_revoked)
        co_return s.error();
    // First the record, if this is the last one: were it refused after that, nobody would ask for it again.
    if ((*c)->card.complete) {
        const result<void> written = co_await book_.write_record(client, true);
        if (!written)
            co_return written;
    }
    if (state_entry* revoked = states_->find(id))
        remove(*revoked);
    co_return result<void>();
}

} // namespace verbena::files
