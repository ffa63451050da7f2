// SPDX-License-Identifier: Apache-2.0
// Recallable state of any kind: how it is asked back, taken away and fenced; and what clients have of other kinds
// than delegations.
#include "entries.hpp"

#include <verbena/core/combine.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/core/sleep.hpp>

#include <algorithm>
#include <chrono>

namespace verbena::files {

using namespace detail;

namespace {

// Of a client's states, or of recalls that are overdue, before others have their turn.
constexpr std::size_t looked_at_at_once = 256;
// Fences that run. Others wait for their turn.
constexpr std::size_t fences_at_once = 64;
// One that failed is tried again after that.
constexpr duration between_fences = std::chrono::seconds(1);

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
    return now() < c.trusted_from || f.asking > 0 || recent_->contains(f.hash, now());
}

void state_table::add_recallable(recallable_entry& r)
{
    client_entry& c = r.client;
    by_->states.insert(&r);
    c.states.push_back(r.of_client);
    r.file->recallables.push_back(r.of_file);
    ++r.file->states;
    ++c.recallables;
}

// What the client has of the kind, or nullptr. Its answer is why it may have no more.
result<other_entry*> state_table::other_for(const hold_request& r, client_entry& c, file_entry*& f)
{
    if (const auto may = may_begin_anew(c); !may)
        return may.error();
    const auto s = check(c, r.by, &r.file, zero_seqid::newest);
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
        may = &m->owner.client == &c && any(static_cast<open_entry&>(m->owner).access & access);
    if (!may)
        return error(errc::open_mode, "the client does not have the file open so");
    // Deny bits of others would have kept it from having the file open so.
    const operation op = r.type == lock_type::read ? operation::read : operation::write;
    if (const auto room = decide_shares(f, demand(op, r.file, c.id).past_denies()); !room)
        return room.error();
    const auto known = by_->states.find(state_key{&c, f, r.kind});
    auto* const has = known == by_->states.end() ? nullptr : static_cast<other_entry*>(*known);
    if (has != nullptr && has->is_recalled)
        return error(errc::busy, "it is to be returned");
    if (!c.callable)
        return error(errc::busy, "the client can't be called");
    if (const auto may_have = may_be_granted(c, share::none); !may_have)
        return may_have.error();
    bool passed = !in_flight_.over_before(f->since) || changes_.has(f->handle);
    for (unsigned i = 0; i < operation_count && !passed; ++i)
        passed = f->passing[i] > 0 && r.kind->conflicts(r.type, operation(i));
    for (auto* m = f->fences.front(); m != nullptr && !passed; m = f->fences.next(*m))
        passed = &m->owner.kind == r.kind;
    if (passed || is_contended(c, *f))
        return error(errc::busy, "others are at work on the file, or wait for it");
    return has;
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
            std::ptrdiff_t(r.kind->most_ranges()))
            return refuse({limited::other_states, limit_of::file}, errc::busy);
        held.set(r.bytes, r.type);
        o->seqid = next_seqid(o->seqid);
        return states_->id_of(*o);
    }
    // With what was revoked and is not freed.
    if ((*c)->others + (*c)->revoked >= r.kind->most_of_client())
        return refuse({limited::other_states, limit_of::client}, errc::too_many_locks);
    if (r.kind->held_ >= r.kind->most())
        return refuse({limited::other_states, limit_of::all}, errc::too_many_locks);
    auto made =
        std::make_unique<other_entry>(**c, *f, *r.kind, std::make_unique<fence_entry>(*r.kind, (*c)->id, *f));
    made->held[std::size_t(r.type)].set(r.bytes, r.type);
    o = static_cast<other_entry*>(&states_->add(std::move(made)));
    add_recallable(*o);
    ++(*c)->others;
    ++r.kind->held_;
    stats_.other_states.add(1);
    return states_->id_of(*o);
}

result<std::optional<stateid>> state_table::give_back(client_id client, const stateid& id,
                                                      const storage::handle& file, const byte_range& bytes,
                                                      std::optional<lock_type> type)
{
    const auto s = own(client, id, file, zero_seqid::newest, state_kind::other);
    if (!s)
        return s.error();
    auto& o = static_cast<other_entry&>(**s);
    const auto goes = [&](lock_type of) { return !type || *type == of; };
    for (const lock_type of : {lock_type::read, lock_type::write}) {
        const byte_ranges& held = o.held[std::size_t(of)];
        if (goes(of) && std::ptrdiff_t(held.size()) + held.growth(bytes, std::nullopt) >
                            std::ptrdiff_t(o.of.most_ranges()))
            return refuse({limited::other_states, limit_of::file}, errc::busy);
    }
    for (const lock_type of : {lock_type::read, lock_type::write})
        if (goes(of))
            o.held[std::size_t(of)].clear(bytes);
    if (o.held[0].empty() && o.held[1].empty()) {
        remove(o);
        return std::optional<stateid>();
    }
    o.seqid = next_seqid(o.seqid);
    changed(*o.file); // who waits may be against those alone that are back
    return std::optional(states_->id_of(o));
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
    r.deadline = now() + options_.recall_time;
    by_->recalled.push_back(r.by_deadline);
    stats_.recalls.add();
    stats_.recalled_delegations.add(1);
    recent_->add(r.file->hash, now());
    recall_notice told = {r.client.id, states_->id_of(r), &r.file->handle};
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
        recent_->add(f.hash, now()); // the rest begins with its end
        stats_.ended_recalls.add();
        stats_.recall_microseconds.add(in_microseconds(now() - (r.deadline - options_.recall_time)));
        stats_.recalled_delegations.add(-1);
    }
    by_->states.erase(by_->states.find(state_hash::key(&r)));
    if (r.kind == state_kind::delegation) {
        leave_delegation(static_cast<delegation_entry&>(r));
    } else {
        auto& o = static_cast<other_entry&>(r);
        --r.client.others;
        --o.of.held_;
        stats_.other_states.add(-1);
        begin_fence(o);
    }
    r.of_file.unlink();
    r.by_deadline.unlink();
    r.file = nullptr;
    --f.states;
    changed(f);
}

void state_table::remove_recallable(recallable_entry& r) noexcept
{
    client_entry& c = r.client;
    if (r.is_revoked()) {
        --c.revoked;
        stats_.revoked_delegations.add(-1);
    } else {
        leave_file(r);
    }
    --c.recallables;
    states_->remove(r);
}

// So all of it has one deadline and is revoked together. This yields between pieces, and the client may go meanwhile.
task<void> state_table::recall_what_it_has(client_id client, held what)
{
    client_entry* c = find_client(client);
    std::size_t left = c == nullptr ? 0 : c->opens + c->lock_states + c->recallables;
    while (left > 0 && (c = find_client(client)) != nullptr && !c->states.empty()) {
        for (std::size_t i = 0; i < looked_at_at_once && left > 0; ++i, --left) {
            auto* m = c->states.front();
            m->unlink(); // so that the next one is in front
            c->states.push_back(*m);
            if (!is_recallable(m->owner.kind) || m->owner.file == nullptr)
                continue;
            auto& r = static_cast<recallable_entry&>(m->owner);
            if (what == held::all ||
                (r.kind == state_kind::delegation &&
                 static_cast<delegation_entry&>(r).leased != delegation_entry::lease_state::none))
                recall(r);
        }
        if (left > 0)
            (void)co_await sleep_for(duration::zero());
    }
}

void state_table::revoke_now(recallable_entry& r) noexcept
{
    client_entry& c = r.client;
    // It let local processes wait in vain, and would again with all that it has under leases.
    if (is_under_lease(r))
        c.leases_from = now() + options_.distrust;
    // One that can't answer for a while is not to be blamed for it: its lease is over, too.
    if (c.state == client_state::active) {
        c.revoked_lately = now() - c.last_revocation > options_.distrust ? 1 : c.revoked_lately + 1;
        c.last_revocation = now();
    }
    leave_file(r);
    r.deadline = now();
    ++c.revoked;
    stats_.revoked_delegations.add(1);
    stats_.revocations.add();
}

// Revokes what else the client has not returned in time. Its record is gone already, so this needs no further write.
void state_table::revoke_overdue(client_entry& c) noexcept
{
    auto* m = by_->recalled.front();
    for (std::size_t i = 0; i < looked_at_at_once && m != nullptr && m->owner.deadline <= now(); ++i) {
        recallable_entry& r = m->owner;
        m = by_->recalled.next(*m);
        if (&r.client == &c)
            revoke_now(r);
    }
}

// True if the client was trusted until now.
bool state_table::trusts_no_more(client_entry& c) noexcept
{
    if (c.revoked_lately < options_.trusted_revocations)
        return false;
    const bool begins = now() >= c.trusted_from;
    c.trusted_from = now() + options_.distrust;
    if (!begins)
        return false;
    stats_.distrusted_clients.add();
    const auto minutes = std::chrono::ceil<std::chrono::minutes>(options_.distrust).count();
    log_limited(
        distrusted_, log_level::warning, "nfs",
        "a client renews its lease and returns no delegation that is recalled, which others wait for: it "
        "gets none for a while, and what it has is recalled",
        {{"client", printable(c.key)},
         {"revoked", c.revoked_lately},
         {"minutes", minutes},
         {"cure", "see whether it can be called back: verbena_nfs4_callbacks_total"}});
    return true;
}

task<result<void>> state_table::revoke(stateid id)
{
    const auto live = [this, &id]() -> recallable_entry* {
        state_entry* s = states_->find(id);
        return s != nullptr && s->file != nullptr ? static_cast<recallable_entry*>(s) : nullptr;
    };
    recallable_entry* r;
    while ((r = live()) != nullptr && r->client.storing) {
        const bool goes_on = co_await change_awaiter(storing_, time_point::max(), "the recovery store");
        if (!goes_on)
            co_return error(std::errc::operation_canceled);
    }
    if (r == nullptr)
        co_return result<void>();
    client_entry& c = r->client; // stays while `storing` is set
    c.storing = true;
    const result<void> removed = co_await store_.remove(c.key);
    c.storing = false;
    wake(storing_);
    if (!removed) {
        stats_.store_failures.add();
        co_return removed;
    }
    c.recorded = false;
    if ((r = live()) == nullptr) { // it came back after all
        if (c.complete || c.silent)
            record_later(c); // write_record() leaves it out while another is revoked
        co_return result<void>();
    }
    const client_id client = c.id;
    const bool was_leased = is_under_lease(*r);
    revoke_now(*r);
    revoke_overdue(c);
    const bool begins = trusts_no_more(c);
    if (begins || was_leased)
        co_await recall_what_it_has(client, begins ? held::all : held::under_leases);
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
    if (s.error() != errc::deleg_revoked)
        co_return s.error();
    // First the record, if this is the last one: were it refused after that, nobody would ask for it again.
    if ((*c)->complete) {
        const result<void> written = co_await write_record(client, true);
        if (!written)
            co_return written;
    }
    if (state_entry* revoked = states_->find(id))
        remove(*revoked);
    co_return result<void>();
}

// --- Fences

void state_table::begin_fence(other_entry& o) noexcept
{
    if (ends_) // with the memory that it would be about
        return;
    fence_entry& e = *o.fence.release();
    e.id = states_->id_of(o);
    e.type = o.type();
    e.begun = now();
    ++e.file.pins;
    e.file.fences.push_back(e.of_file);
    by_->fences[indexes::waits].push_back(e.by_age);
    ++o.client.fences;
    stats_.fences.add(1);
    wake(fencing_);
}

void state_table::end_fence(fence_entry& e) noexcept
{
    stats_.fences.add(-1);
    stats_.ended_fences.add();
    stats_.fence_microseconds.add(in_microseconds(now() - e.begun));
    if (client_entry* c = find_client(e.client))
        --c->fences;
    file_entry& f = e.file;
    delete &e; // which takes it off its lists
    --f.pins;
    changed(f);
    wake(fenced_);
}

// Whatever becomes of it, the file stays closed to what it is in the way of until it has ended.
task<void> state_table::run_fence(fence_entry* e)
{
    for (;;) {
        task<result<void>> fencing = e->kind.fence(e->client, e->id, e->file.handle);
        const result<void> done = co_await with_timeout(options_.fence_time, std::move(fencing));
        if (done)
            break;
        const bool goes_on = co_await sleep_for(between_fences);
        if (!goes_on)
            co_return;
    }
    end_fence(*e);
    --running_fences_;
    wake(fencing_);
}

// In the scope of tend(), but beside it: what tend() waits for may be the end of a fence.
task<void> state_table::run_fences(scope* running)
{
    for (;;) {
        const time_point t = now();
        while (auto* m = running_fences_ < fences_at_once ? by_->fences[indexes::waits].front() : nullptr) {
            m->unlink();
            by_->fences[indexes::runs].push_back(*m);
            ++running_fences_;
            running->spawn(&state_table::run_fence, this, &m->owner); // after which it may be gone
        }
        time_point next = time_point::max();
        while (auto* m = by_->fences[indexes::runs].front()) {
            fence_entry& e = m->owner;
            if (e.begun + options_.fence_time > t) {
                next = e.begun + options_.fence_time;
                break;
            }
            m->unlink();
            by_->fences[indexes::late].push_back(*m);
            stats_.late_fences.add();
            const client_entry* const c = find_client(e.client);
            log_limited(late_, log_level::warning, "nfs",
                        "what a client has lost is not out of its reach in time, and its file is closed to "
                        "others until it is",
                        {{"kind", e.kind.name()},
                         {"client", c == nullptr ? std::string("gone") : printable(c->key)},
                         {"cure", "see whether its connections can be ended"}});
        }
        const bool goes_on = co_await change_awaiter(fencing_, next, "fences");
        if (!goes_on)
            co_return;
    }
}

// Those of a client: who asks for the end of all that it has may rely on that, unless it takes too long. Others wait
// for each where they want the file.
task<void> state_table::fences_of(client_id client)
{
    const time_point end = now() + options_.fence_time;
    for (;;) {
        const client_entry* const c = find_client(client);
        if (c == nullptr || c->fences == 0 || now() >= end)
            co_return;
        const bool goes_on = co_await change_awaiter(fenced_, end, "fences of a client");
        if (!goes_on)
            co_return;
    }
}

} // namespace verbena::files
