// SPDX-License-Identifier: Apache-2.0
// Operations: what is in their way, and how it goes out of it.
#include "entries.hpp"

#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/scope.hpp>

#include <algorithm>

namespace verbena::files {

using namespace detail;

namespace {

bool is_against_any(const recallable_entry& r, std::uint32_t operations) noexcept
{
    return is_any(operations, [&r](operation op) { return r.is_against(op); });
}

bool overlaps(const std::array<std::uint32_t, 2>& counts, share s) noexcept
{
    return (any(s & share::read) && counts[0] > 0) || (any(s & share::write) && counts[1] > 0);
}

// What could contradict state of clients that have not reclaimed it yet (RFC 8881 8.4.2): the file of any open, or what keeps others out.
constexpr std::uint32_t not_in_grace = bit(operation::remove) | bit(operation::rename);
constexpr share io_of(std::uint32_t operations) noexcept
{
    return ((operations & bit(operation::read)) != 0 ? share::read : share::none) |
           ((operations &
             (bit(operation::write) | bit(operation::set_size) | bit(operation::change_extents))) != 0
                ? share::write
                : share::none);
}

// What writes data, or opens the file for that.
constexpr std::uint32_t writing = bit(operation::open_write) | bit(operation::write) |
                                  bit(operation::set_size) | bit(operation::change_extents);

} // namespace

demand::demand(operation op, const exported_file& file, client_id who) noexcept
    : file_(file), who_(who), kind_(kind::operation), access_(access_of(op))
{
    add(op);
}

demand::demand(const open_request& r) noexcept
    : file_(r.file),
      who_(r.client),
      kind_(kind::open),
      access_(r.access),
      deny_(r.deny),
      minds_cuts_(any(r.deny & share::write) && r.claim != open_claim::reclaim),
      reclaims_(r.claim == open_claim::reclaim)
{
    if (any(r.access & share::read))
        add(operation::open_read);
    if (any(r.access & share::write))
        add(operation::open_write);
    if (r.truncates) {
        add(operation::set_size);
        access_ = access_ | share::write;
    }
    if (any(r.deny & share::read))
        add(operation::open_deny_read);
    if (any(r.deny & share::write))
        add(operation::open_deny_write);
}

demand::demand(const lock_request& r) noexcept
    : file_(r.file), who_(r.client), kind_(kind::lock), bytes_(r.bytes), type_(r.type)
{
    add(r.type == lock_type::read ? operation::lock_read : operation::lock_write);
}

demand::demand(const owner_lock& r) noexcept
    : file_(r.file), who_(r.client), kind_(kind::lock), bytes_(r.bytes), type_(r.type)
{
    add(r.type == lock_type::read ? operation::lock_read : operation::lock_write);
}

// Deny bits of others would have kept it from having the file open so.
demand::demand(const hold_request& r) noexcept
    : file_(r.file), who_(r.client), kind_(kind::operation), bytes_(r.bytes), type_(r.type), holds_(r.kind)
{
    add(r.type == lock_type::read ? operation::read : operation::write);
}

// --- What is in the way

bool state_table::stands_against(const demand& d, share access, share deny) const noexcept
{
    return any(d.access_ & deny) || any(d.deny_ & access);
}

bool state_table::is_pending_by_others(client_id client, std::uint32_t via, file_entry& f,
                                       delegation_type type) noexcept
{
    for (auto* p = f.pending.front(); p != nullptr; p = f.pending.next(*p))
        // One that was dropped only waits for its end, or cuts the file.
        if (!(p->request_.client == client && p->request_.file.via == via) &&
            !(p->is_dropped() && !any(p->cut())) &&
            (type == delegation_type::write || any((p->request_.access | p->cut()) & share::write) ||
             any(p->request_.deny & share::read)))
            return true;
    return false;
}

// Whether a share or a lock of a client that is there stands against it: nothing is gained by making others go.
bool state_table::is_refused_for_good(file_entry& f, const demand& d) noexcept
{
    if (overlaps(f.denies, d.access_) || overlaps(f.accesses, d.deny_)) {
        for (auto* p = f.pending.front(); p != nullptr; p = f.pending.next(*p))
            if (!is_lapsed(p->request_.client, d.who_) &&
                stands_against(d, p->request_.access, p->request_.deny))
                return true;
        for (auto* m = f.opens.front(); m != nullptr; m = f.opens.next(*m)) {
            const auto& o = static_cast<open_entry&>(m->owner);
            if (!gives_way(o.client, d.who_) && stands_against(d, o.access, o.deny))
                return true;
        }
    }
    if (d.kind_ == demand::kind::lock)
        for (auto* m = f.locks.front(); m != nullptr; m = f.locks.next(*m)) {
            const auto& l = static_cast<lock_entry&>(m->owner);
            if (l.client.id != d.who_ && !gives_way(l.client, d.who_) &&
                l.ranges.find_conflict(d.bytes_, d.type_) != nullptr)
                return true;
        }
    return false;
}

// A courtesy client that has something against it.
std::optional<client_id> state_table::courtesy_holder(file_entry& f, const demand& d) noexcept
{
    if (overlaps(f.denies, d.access_) || overlaps(f.accesses, d.deny_)) {
        for (auto* m = f.opens.front(); m != nullptr; m = f.opens.next(*m)) {
            const auto& o = static_cast<open_entry&>(m->owner);
            if (gives_way(o.client, d.who_) && stands_against(d, o.access, o.deny))
                return o.client.id;
        }
        for (auto* p = f.pending.front(); p != nullptr; p = f.pending.next(*p)) {
            const open_request& r = p->request_;
            if (is_lapsed(r.client, d.who_) && stands_against(d, r.access, r.deny))
                return r.client;
        }
    }
    if (d.kind_ == demand::kind::lock)
        for (auto* m = f.locks.front(); m != nullptr; m = f.locks.next(*m)) {
            const auto& l = static_cast<lock_entry&>(m->owner);
            if (gives_way(l.client, d.who_) && l.ranges.find_conflict(d.bytes_, d.type_) != nullptr)
                return l.client.id;
        }
    for (auto* m = f.recallables.front(); m != nullptr; m = f.recallables.next(*m)) {
        auto& held = static_cast<recallable_entry&>(m->owner);
        if (is_in_way(held, d) && gives_way(held.client, d.who_) && !has_lapsed(held))
            return held.client.id;
    }
    return std::nullopt;
}

bool state_table::is_in_way(const recallable_entry& r, const demand& what) noexcept
{
    if (r.kind == state_kind::other) {
        const auto& o = static_cast<const other_entry&>(r);
        // Also the client's own, which can't be mapped twice: it gets all of it anew, once it has returned this.
        if (what.holds_ == &o.of && o.has_unshared && o.has_some_of(what.bytes_))
            return true;
        if (is_of(r, what.who_, what.file_.via))
            return is_any(what.operations_, [&o, &what](operation op) {
                // Who is to have more of the kind changes nothing yet.
                return what.holds_ != nullptr ? o.of.conflicts_with_holder(o.type(), op)
                                              : o.is_against_holder(op);
            });
        if (what.holds_ != nullptr && o.excludes(*what.holds_, what.type_, what.bytes_))
            return true;
        // Who is to have other bytes fills no hole of these.
        if (what.holds_ != nullptr && !o.has_some_of(what.bytes_))
            return is_any(what.operations_, [&o](operation op) { return o.of.conflicts(o.type(), op); });
    }
    if (!is_of(r, what.who_, what.file_.via))
        return is_against_any(r, what.operations_);
    // What a client had before a restart it has, and gives its delegation back for it; see commit().
    return r.kind == state_kind::delegation &&
           static_cast<const delegation_entry&>(r).leased != delegation_entry::lease_state::none &&
           (what.operations_ & writing) != 0 && !what.reclaims_;
}

// Whether it is not clear yet which holes its client will be told of, and one may be filled by that, also by the client itself. But for
// what a client gets besides: that it knows of.
bool state_table::is_looked_at(const recallable_entry& r, const demand& what) noexcept
{
    if (r.kind != state_kind::other)
        return false;
    const auto& o = static_cast<const other_entry&>(r);
    if (o.looks == 0 ||
        (what.holds_ != nullptr && (is_of(r, what.who_, what.file_.via) || !o.has_some_of(what.bytes_))))
        return false;
    return is_any(what.operations_, [&o](operation op) { return o.of.hole_conflicts(op); });
}

bool state_table::is_held_against(file_entry& f, const demand& d) noexcept
{
    for (auto* m = f.recallables.front(); m != nullptr; m = f.recallables.next(*m)) {
        const auto& held = static_cast<recallable_entry&>(m->owner);
        if (is_in_way(held, d) || is_looked_at(held, d))
            return true;
    }
    return false;
}

// Also by the client that had it: what comes of it still is nothing that it does.
bool state_table::is_fenced_against(file_entry& f, const demand& d) noexcept
{
    for (auto* m = f.fences.front(); m != nullptr; m = f.fences.next(*m)) {
        const fence_entry& e = m->owner;
        const auto is_against = [&e](operation op) {
            return e.use->of.conflicts(e.type, op) || (e.is_unshared && e.use->of.unshared_conflicts(op));
        };
        if (is_any(d.operations_, is_against) ||
            (d.holds_ != nullptr && e.use->of.excludes(e.type, *d.holds_, d.type_)))
            return true;
    }
    return false;
}

result<void> state_table::decide_shares(file_entry* f, const demand& d) noexcept
{
    if (f == nullptr)
        return {};
    if (is_refused_for_good(*f, d))
        return error(d.kind_ == demand::kind::open ? errc::share_denied : errc::locked);
    if (overlaps(f->denies, d.access_) || overlaps(f->accesses, d.deny_))
        return error(errc::in_way, "a courtesy client has it open");
    if (is_held_against(*f, d))
        return error(errc::in_way, "a delegation is out, or what another kind brings");
    if (is_fenced_against(*f, d))
        return error(errc::in_way, "what was taken is not fenced yet");
    if (d.minds_cuts_ && f->cuts > 0)
        return error(errc::in_way, "an open that is begun cuts it");
    return {};
}

state_table::obstacle state_table::find_obstacle(file_entry& f, const demand& d) noexcept
{
    obstacle found;
    if (is_refused_for_good(f, d))
        return found;
    if (const auto holder = courtesy_holder(f, d)) {
        found.what = obstacle::kind::courtesy;
        found.client = *holder;
        return found;
    }
    for (auto* m = f.recallables.front(); m != nullptr; m = f.recallables.next(*m)) {
        auto& held = static_cast<recallable_entry&>(m->owner);
        if (!is_in_way(held, d)) {
            if (found.what == obstacle::kind::none && is_looked_at(held, d))
                found.what = obstacle::kind::operation; // whose end wakes
            continue;
        }
        // Who makes way to hold something himself is to get it then: the file's rest keeps others from that.
        const bool leaves_rest = d.holds_ == nullptr && d.leaves_rest_;
        if (!held.is_recalled) {
            held.leaves_rest = leaves_rest;
        } else if (!held.leaves_rest && leaves_rest) {
            held.leaves_rest = true;
            recent_->add(f.hash, now());
        }
        recall(held);
        if (held.kind == state_kind::delegation && static_cast<delegation_entry&>(held).is_reserved()) {
            if (found.what == obstacle::kind::none)
                found.what = obstacle::kind::operation; // an open, whose end wakes
        } else if (held.deadline <= now() || (has_lapsed(held) && gives_way(held.client, d.who_))) {
            found.what = obstacle::kind::overdue; // or what goes alone, as its client is away
            found.id = states_->id_of(held);
        } else if (found.what != obstacle::kind::overdue) {
            found.what = obstacle::kind::recalled;
            found.until = std::min(found.until, held.deadline);
        }
    }
    if (found.what == obstacle::kind::none && (is_fenced_against(f, d) || (d.minds_cuts_ && f.cuts > 0)))
        found.what = obstacle::kind::operation;
    return found;
}

task<result<void>> state_table::make_way(demand d, duration patience)
{
    file_entry& f = file_of(d.file_.key);
    const pinned kept(*this, f);
    // Whoever asks gets no new delegation put in his way.
    struct asking {
        explicit asking(file_entry& e) noexcept : file(e) { ++file.asking; }
        ~asking() { --file.asking; }
        file_entry& file;
    } asks(f);
    const time_point start = now();
    const time_point end = patience < time_point::max() - start ? start + patience : time_point::max();
    for (;;) {
        age();
        const obstacle found = find_obstacle(f, d);
        result<void> gone;
        switch (found.what) {
        case obstacle::kind::none: co_return result<void>();
        case obstacle::kind::courtesy:
            gone = co_await book_.take(found.client, client_state::expired, true);
            break;
        case obstacle::kind::overdue: gone = co_await take_overdue(found.id); break;
        case obstacle::kind::recalled:
        case obstacle::kind::operation: {
            if (now() >= end)
                co_return error(errc::busy);
            const bool goes_on =
                co_await change_awaiter(f.waiters, std::min(end, found.until), "others to give way");
            if (!goes_on)
                co_return error(std::errc::operation_canceled);
            break;
        }
        }
        if (!gone)
            co_return gone;
    }
}

// --- Operations

result<void> state_table::check(const demand& d) noexcept
{
    assert(d.kind_ == demand::kind::operation);
    if ((d.operations_ & not_in_grace) != 0)
        if (const auto may = refuse_in_grace(); !may)
            return may;
    if (const auto may = refuse_io_in_grace(io_of(d.operations_)); !may)
        return may;
    file_entry* const f = commons_.has_state(d.file_.key) ? find_file(d.file_.key) : nullptr;
    if (f == nullptr) // the usual case
        return {};
    age();
    return decide_shares(f, d);
}

namespace {

// Whatever stateid the client comes with: it sends its delegation's before its lock's, and that before its open's (RFC 8881 8.2.5).
bool keeps_writers_out(file_entry& f, const client_entry& c) noexcept
{
    for (auto* m = f.locks.front(); m != nullptr; m = f.locks.next(*m))
        if (&m->owner.client == &c)
            return true;
    if (f.denies[1] == 0) // else the usual case
        return false;
    for (auto* m = f.opens.front(); m != nullptr; m = f.opens.next(*m))
        if (&m->owner.client == &c && any(static_cast<const open_entry&>(m->owner).deny & share::write))
            return true;
    return false;
}

} // namespace

result<io_grant> state_table::check_io(client_id client, const stateid& id, const exported_file& file,
                                       operation op, zero_seqid zero)
{
    const auto c = living(client);
    if (!c)
        return c.error();
    const auto s = check(**c, id, &file, zero);
    if (!s)
        return s.error();
    file_entry& f = *(*s)->file;
    const share access = access_of(op);
    io_grant granted;
    if ((*s)->kind == state_kind::delegation) {
        if (any(access & share::write) && static_cast<delegation_entry&>(**s).type == delegation_type::read)
            return error(errc::open_mode, "a read delegation");
        granted.opened = static_cast<delegation_entry&>(**s).by;
    } else if ((*s)->kind == state_kind::other) {
        return error(errc::bad_stateid, "of a kind that reads and writes nothing by calls");
    } else {
        const open_entry* const by = (*s)->kind == state_kind::open ? static_cast<open_entry*>(*s)
                                                                    : static_cast<lock_entry&>(**s).open;
        if (by == nullptr)
            return error(errc::bad_stateid, "of locks without an open");
        const open_entry& o = *by;
        if (any(access & share::write) && !any(o.access & share::write))
            return error(errc::open_mode);
        // Reading what is open to write only is let pass (RFC 8881 18.22.3), but not past others' deny bits.
        if (any(access & share::read) && !any(o.access & share::read) &&
            f.denies[0] > std::uint32_t(any(o.deny & share::read)))
            return error(errc::locked);
        granted.opened = o.by[any(access & share::write) ? 1 : 0];
    }
    // No open stands beside a delegation that it contradicts. Beside other kinds it may.
    if (f.others > 0 || !f.fences.empty()) {
        const demand d(op, file, client);
        for (auto* m = f.recallables.front(); m != nullptr; m = f.recallables.next(*m)) {
            const auto& held = static_cast<recallable_entry&>(m->owner);
            if (held.kind == state_kind::other && (is_in_way(held, d) || is_looked_at(held, d)))
                return error(errc::in_way, "a client uses the file without calls");
        }
        if (is_fenced_against(f, d))
            return error(errc::in_way, "what was taken is not fenced yet");
    }
    granted.keeps_writers_out = keeps_writers_out(f, **c);
    return granted;
}

// --- What time does

// What is due, one of each sort. An error is the store's.
task<result<void>> state_table::do_what_is_due()
{
    const time_point t = now();
    result<void> done;
    const recallable_entry* const overdue = first_recalled();
    if (overdue != nullptr && overdue->deadline <= t)
        done = co_await take_overdue(states_->id_of(*overdue));
    if (auto* m = by_->in_way.front(); done && m != nullptr && m->owner.in_way_from <= t) {
        const client_id gone = m->owner.id;
        done = co_await book_.take(gone, client_state::expired, true);
        if (client_entry* const c = find_client(gone)) {
            c->in_way.unlink();
            if (!done)
                by_->in_way.push_back(c->in_way);
        }
    }
    co_return done;
}

task<void> state_table::tend()
{
    const task_context& context = co_await current_context();
    exception_logger lost("nfs");
    scope watching(*context.shard, &context, &lost, "waits for locks of local processes");
    scope fences(*context.shard, &context, &lost, "fences");
    fences_until_.reset();
    stop_hearer hears(*this);
    (void)context.stop.subscribe(hears);
    task<void> running =
        run_fences(&fences, &context.stop); // here, as nothing would be fenced if there were no memory for it
    fences.spawn([](task<void> made) { return made; }, std::move(running));
    watching_ = &watching;
    // From here on there are children, and nothing may leave this but by their end.
    for (;;) {
        age();
        lapse_reservations();
        const time_point t = now();
        time_point next = time_point::max();
        const auto at = [&next](time_point when) { next = std::min(next, when); };
        if (auto* m = by_->to_look.front()) {
            file_entry& f = m->owner;
            ++f.pins;
            look_at_waiters(f);
            --f.pins;
            release_file(f);
        }
        let_go_again();
        result<void> done = error(std::errc::not_enough_memory, "what is due");
        try {
            done = co_await do_what_is_due();
        } catch (...) { // it is tried again
        }
        if (!done) {
            at(now() + std::chrono::seconds(1));
        } else {
            if (auto* m = by_->in_way.front())
                at(m->owner.in_way_from);
            if (const recallable_entry* const first = first_recalled())
                at(first->deadline);
            if (auto* m = by_->told.front())
                at(m->owner.until);
            if (auto* m = by_->untold.front())
                at(m->owner.until);
        }
        if (by_->to_look.front() != nullptr)
            at(t);
        if (!by_->to_keep.empty())
            at(now() + std::chrono::seconds(1));
        const bool goes_on = co_await change_awaiter(tending_, next, "something to be due");
        if (!goes_on) {
            release_leases();
            watching_ = nullptr;
            watching.request_stop();
            co_await watching.join();
            co_await fences.join();
            co_return;
        }
    }
}

} // namespace verbena::files
