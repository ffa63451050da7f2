// SPDX-License-Identifier: Apache-2.0
// What a client may do with a file: opens, operations and locks.
#include "files_world.hpp"

namespace verbena::sim {

// --- Draws

byte_range files_world::some_bytes()
{
    std::uint64_t a = random_() % byte_count, b = random_() % byte_count;
    return {std::min(a, b), std::max(a, b)};
}

// --- Opens

open_request files_world::request_of(const m_pending& p)
{
    open_request r;
    r.client = clients_[p.client].id;
    r.owner = owner_bytes(p.owner);
    r.file = file_number(p.file);
    r.access = p.access;
    r.deny = p.deny;
    r.want = p.want;
    r.truncates = p.cuts;
    r.hears_of_locks = true;
    r.leased = has_leases(p.file);
    r.opened = open_of(p.file, p.access);
    return r;
}

std::shared_ptr<const storage::open_file> files_world::open_of(unsigned file, share access)
{
    return std::make_shared<const kept_file>(kept_[file], access);
}

result<opened> files_world::commit(const open_request& r, pending_open& p)
{
    took_lease_ = false;
    if (r.leased && at(r).reserve_delegation(p)) {
        took_lease_ = random_() % 4 != 0;
        if (took_lease_)
            p.set_lease(std::make_unique<one_lease>(leases_));
        else
            p.set_lease(storage::no_lease::in_use);
        ++(took_lease_ ? told_.leases : told_.refused_leases);
    }
    return at(r).commit(p);
}

result<opened> files_world::open_at_once(const open_request& r)
{
    pending_open p;
    const result<void> begun = at(r).begin_open(r, p);
    if (!begun)
        return begun.error();
    return commit(r, p);
}

void files_world::local_writer()
{
    sync();
    std::vector<m_delegation*> all;
    for (m_delegation& d : delegations_)
        if (const m_client& c = clients_[d.client];
            d.leased && !d.is_revoked && c.id != nobody && !c.is_restarting)
            all.push_back(&d);
    if (all.empty())
        return;
    ++told_.local;
    const stateid wanted = all[random_() % all.size()]->id;
    SIM_REQUIRE(at(wanted).recall(wanted));
    sync();
}

void files_world::opened_so(const m_pending& p, const opened& made)
{
    ++told_.opens;
    if (m_open* o = find_open(p.client, p.owner, p.file)) {
        SIM_REQUIRE((o->id.other == made.id.other));
        SIM_REQUIRE(made.id.seqid == next_seqid(o->id.seqid)); // none is left out
        o->pairs.emplace_back(p.access, p.deny);
        o->id = made.id;
    } else {
        SIM_REQUIRE(made.id.seqid == 1u);
        opens_.push_back({p.client, p.owner, p.file, {{p.access, p.deny}}, made.id});
    }
    if (made.delegation) {
        ++told_.delegations;
        SIM_REQUIRE((!is_changed(p.file) || in_grace_));
        SIM_REQUIRE((asking_[p.file] == 0 || in_grace_));
        SIM_REQUIRE((!clients_[p.client].is_distrusted(clock_.now()) || made.delegation->recalled));
        for (const auto& [file, when] : resting_)
            SIM_REQUIRE((file != p.file || when + rest <= clock_.now() || in_grace_));
        SIM_REQUIRE((!has_leases(p.file) || took_lease_ || made.delegation->recalled));
        delegations_.push_back({p.client, p.file, made.delegation->type, made.delegation->id, took_lease_});
    }
}

bool files_world::open(m_pending p, bool at_once)
{
    sync();
    open_request r = request_of(p);
    const m_client& c = clients_[p.client];
    const auto expected = shares(p.client, p.file, p.cuts ? p.access | share::write : p.access, p.deny,
                                 operations_of(p.access, p.deny, p.cuts));
    std::size_t have = 0;
    for (const m_open& o : opens_)
        have += o.client == p.client;
    for (const m_pending& q : pending_)
        have += q.client == p.client;
    const bool beyond = have >= opens_limit_ && find_open(p.client, p.owner, p.file) == nullptr;
    p.at = std::make_unique<pending_open>();
    const result<void> begun = at(r).begin_open(r, *p.at);
    if (!c.complete || book_->grace() != grace_period::phase::over) {
        SIM_REQUIRE((!begun && begun.error() == errc::grace));
        ++told_.refused_grace;
        return true;
    }
    if (expected == share_answer::denied) {
        SIM_REQUIRE((!begun && begun.error() == errc::share_denied));
        ++told_.denied_shares;
        return true;
    }
    if (expected == share_answer::in_way) {
        SIM_REQUIRE((!begun && begun.error() == errc::in_way));
        ++told_.needed_room;
        return false;
    }
    if (beyond) {
        SIM_REQUIRE((!begun && begun.error() == errc::too_many_opens));
        ++told_.limits;
        return true;
    }
    BOOST_REQUIRE_MESSAGE(begun, (begun ? "" : begun.error().message()));
    if (!ends(p.file, p.deny)) {
        r.opened.reset();
        p.at.reset();
        sync();
        return true;
    }
    if (!at_once) {
        pending_.push_back(std::move(p));
        return true;
    }
    const auto made = commit(r, *p.at);
    opened_or_unwritten(p, made);
    r.opened.reset();
    p.at.reset();
    sync();
    return true;
}

bool files_world::ends(unsigned file, share access)
{
    result<void> over;
    const auto asks = [&]() -> task<void> {
        over = co_await commons_->operations().ended(file_number(file), access, 0s);
    };
    scope asking(*shard_);
    asking.spawn(asks);
    SIM_REQUIRE(asking.live() == 0);
    SIM_REQUIRE(over.has_value() == is_over(file, access));
    told_.not_over += !over;
    return over.has_value();
}

void files_world::opened_or_unwritten(const m_pending& p, const result<opened>& made)
{
    if (!is_written(p.client, p.deny)) {
        SIM_REQUIRE((!made && made.error() == errc::busy));
        ++told_.unwritten;
        return;
    }
    SIM_REQUIRE(made);
    opened_so(p, *made);
}

task<void> files_world::write_down(unsigned client, share keeps_out)
{
    const client_id id = clients_[client].id;
    if (random_() % 4 != 0 && book_->lacks_record(id, keeps_out))
        (void)co_await book_->record(id, keeps_out);
}

task<void> files_world::open_with_room(m_pending p, duration patience)
{
    const share keeps_out = at(p.file).may_keep_out(request_of(p));
    co_await write_down(p.client, keeps_out);
    if (stopping_ || !is_free(clients_[p.client]) || clients_[p.client].expired)
        co_return;
    if (open({nullptr, p.client, p.owner, p.file, p.access, p.deny, p.want, p.cuts}, true))
        co_return;
    ++asking_[p.file];
    const demand wanted(request_of(p));
    const result<void> room = co_await at(p.file).make_way(wanted, patience);
    --asking_[p.file];
    if (stopping_)
        co_return;
    if (room) {
        ++told_.made_room;
        m_client& c = clients_[p.client];
        sync();
        if (is_free(c) && !c.expired) {
            const bool has_room =
                open({nullptr, p.client, p.owner, p.file, p.access, p.deny, p.want, p.cuts}, true);
            SIM_REQUIRE(has_room); // that is the promise
        }
    } else if (room.error() == errc::busy) {
        ++told_.busy;
    }
}

// --- Operations of others

bool files_world::operate(operation op, unsigned file, unsigned who, std::unique_ptr<under_way>& doing)
{
    sync();
    const bool by_name = op == operation::remove || op == operation::rename;
    const auto expected = shares(who, file, access_of(op), share::none, {op});
    const demand d(op, file_number(file), who == no_client ? nobody : clients_[who].id);
    const bool in_grace = book_->grace() != grace_period::phase::over;
    const result<void> begun = at(file).check(d);
    if (in_grace && (by_name || (!begun && begun.error() == errc::grace))) {
        SIM_REQUIRE((!begun && begun.error() == errc::grace));
        SIM_REQUIRE((by_name || waits_for_somebody(access_of(op))));
        ++told_.refused_grace;
    } else if (expected == share_answer::denied) {
        SIM_REQUIRE((!begun && begun.error() == errc::locked));
    } else if (expected == share_answer::in_way) {
        SIM_REQUIRE((!begun && begun.error() == errc::in_way));
        ++told_.needed_room;
        return false;
    } else {
        SIM_REQUIRE(begun);
        ++told_.io;
        if (in_grace && any(access_of(op))) {
            ++told_.io_in_grace;
            nobody_held_that(op, file);
        }
        if (doing)
            passages_.push_back({std::move(doing), who, file, op, in_grace});
    }
    return true;
}

bool files_world::waits_for_somebody(share access) const
{
    return std::ranges::any_of(reclaimers_, [&](const reclaimer& one) {
        const auto c = std::ranges::find(clients_, one.key, &m_client::key);
        return any(one.keeps_out & access) && !c->complete;
    });
}

void files_world::nobody_held_that(operation op, unsigned file) const
{
    const auto may_come = [&](unsigned client) {
        const m_client& c = clients_[client];
        return !c.complete && !c.lost && may_reclaim(reclaimers_, c);
    };
    for (const m_open& o : old_opens_)
        if (o.file == file && may_come(o.client))
            SIM_REQUIRE(!any(o.deny() & access_of(op)));
    for (const m_delegation& d : old_delegations_)
        if (d.file == file && may_come(d.client))
            SIM_REQUIRE(!any(kept_out_by(d.type, has_leases(file)) & access_of(op)));
}

task<void> files_world::operate_with_room(operation op, unsigned file, unsigned who, duration patience)
{
    std::unique_ptr<under_way> doing; // it is that before anybody is asked
    if (op == operation::read || is_change(op)) {
        doing = std::make_unique<under_way>();
        const auto named = open_file_key(file_number(file));
        doing->begin(commons_->operations().on(place_->here), named->space, named->file, op);
    }
    if (operate(op, file, who, doing))
        co_return;
    ++asking_[file];
    const demand d(op, file_number(file), who == no_client ? nobody : clients_[who].id);
    if (doing)
        held_up_.emplace_back(file, op);
    const result<void> room = co_await at(file).make_way(d, patience);
    if (doing)
        held_up_.erase(std::ranges::find(held_up_, std::pair(file, op)));
    --asking_[file];
    if (stopping_)
        co_return;
    if (!room) {
        told_.busy += room.error() == errc::busy;
        co_return;
    }
    ++told_.made_room;
    if (who != no_client && clients_[who].id == nobody) // it began anew meanwhile
        co_return;
    const bool has_room = operate(op, file, who, doing);
    SIM_REQUIRE(has_room);
}

// --- Locks

void files_world::lock(unsigned client)
{
    m_open* o = any_of(opens_, client);
    if (o == nullptr)
        return;
    const unsigned owner = unsigned(random_() % owner_count);
    const byte_range bytes = some_bytes();
    const lock_type type = random_() % 2 == 0 ? lock_type::read : lock_type::write;
    lock_request r;
    r.client = clients_[client].id;
    r.file = file_number(o->file);
    m_lock* l = nullptr;
    for (m_lock& one : locks_)
        if (one.client == client && one.owner == owner && one.file == o->file && one.by == o->owner)
            l = &one;
    r.new_owner = l == nullptr || random_() % 2 == 0;
    r.id = r.new_owner ? o->id : l->id;
    r.owner = owner_bytes(owner);
    r.bytes = bytes;
    r.type = type;
    r.wait = random_() % 2 == 0;
    const auto expected = would_lock(client, owner, o->file, bytes, type);
    m_lock after = l != nullptr ? *l : m_lock{client, owner, o->file, o->owner, {}, {}};
    if (l == nullptr)
        after.bytes.fill('-');
    set(after, bytes, type == lock_type::read ? 'r' : 'w');
    const std::size_t have = ranges_of(client), grown = ranges_of(after) + ranges_without(after, bytes);
    const bool beyond = grown > have && grown > locks_limit_;
    lock_holder holder;
    const auto made = at(o->file).lock(r, &holder);
    const share wanted = type == lock_type::read ? share::read : share::write;
    if (!includes(o->access(), wanted)) {
        SIM_REQUIRE((!made && made.error() == errc::open_mode));
    } else if (!clients_[client].complete || book_->grace() != grace_period::phase::over) {
        SIM_REQUIRE((!made && made.error() == errc::grace));
    } else if (expected == lock_answer::denied) {
        SIM_REQUIRE((!made && made.error() == errc::denied));
        ++told_.denied_locks;
        SIM_REQUIRE(holder.bytes.overlaps(bytes));
        SIM_REQUIRE((holder.client != r.client || holder.owner != owner_name(owner)));
        note_denial(client, owner, o->file, bytes, type, r.wait);
    } else if (expected == lock_answer::in_way) {
        SIM_REQUIRE((!made && made.error() == errc::in_way));
        ++told_.needed_room;
        serving_->spawn([this, d = demand(r), patience = some_patience(), file = o->file] {
            return room_for_lock(d, file, patience);
        });
    } else if (beyond) {
        SIM_REQUIRE((!made && made.error() == errc::too_many_locks));
        ++told_.limits;
    } else {
        SIM_REQUIRE(made);
        ++told_.locks;
        if (const m_wait* w = find_wait(client, owner, o->file); w != nullptr && w->bytes.overlaps(bytes))
            std::erase_if(waits_, [w](const m_wait& one) { return &one == w; });
        SIM_REQUIRE(made->seqid == (l == nullptr ? 1 : next_seqid(l->id.seqid)));
        after.id = *made;
        told_.of_two_opens += clear_beside(after, bytes);
        if (l != nullptr)
            *l = after;
        else
            locks_.push_back(after);
    }
    sync();
}

void files_world::note_denial(unsigned client, unsigned owner, unsigned file, const byte_range& bytes,
                              lock_type type, bool waits)
{
    m_wait* w = find_wait(client, owner, file);
    const time_point until = clock_.now() + lock_wait;
    if (w != nullptr) {
        w->is_told = false;
        w->until = until;
    }
    if (waits && w != nullptr) {
        w->bytes = bytes;
        w->type = type;
    } else if (waits) {
        waits_.push_back({client, owner, file, bytes, type, false, until});
    } else if (w != nullptr && w->bytes == bytes && w->type == type) {
        // It asks without waiting for what it waited for.
        std::erase_if(waits_, [w](const m_wait& one) { return &one == w; });
    }
}

task<void> files_world::room_for_lock(demand d, unsigned file, duration patience)
{
    ++asking_[file];
    const result<void> room = co_await at(file).make_way(d, patience);
    --asking_[file];
    told_.made_room += room.has_value();
}

void files_world::unlock(unsigned client)
{
    m_lock* l = any_of(locks_, client);
    if (l == nullptr)
        return;
    const byte_range bytes = some_bytes();
    m_lock after = *l;
    set(after, bytes, '-');
    const std::size_t have = ranges_of(client), grown = ranges_of(after) + ranges_without(after, bytes);
    const auto done = at(l->file).unlock(clients_[client].id, l->id, file_number(l->file), bytes);
    if (grown > have && grown > locks_limit_) {
        SIM_REQUIRE((!done && done.error() == errc::too_many_locks));
        ++told_.limits;
    } else {
        SIM_REQUIRE(done);
        after.id = *done;
        told_.of_two_opens += clear_beside(after, bytes);
        *l = after;
    }
    sync();
}

void files_world::test_locks(unsigned client)
{
    const unsigned file = unsigned(random_() % file_count), owner = unsigned(random_() % owner_count);
    for (std::uint64_t i = 0; i < byte_count; ++i)
        for (const lock_type type : {lock_type::read, lock_type::write}) {
            const auto free =
                at(file).test_lock(clients_[client].id, file_number(file), owner_bytes(owner), {i, i}, type);
            if (book_->grace() != grace_period::phase::over)
                SIM_REQUIRE((!free && free.error() == errc::grace));
            else
                SIM_REQUIRE(free.has_value() ==
                            (would_lock(client, owner, file, {i, i}, type) != lock_answer::denied));
        }
}

void files_world::free_lock(unsigned client)
{
    m_lock* l = any_of(locks_, client);
    if (l == nullptr)
        return;
    const unsigned owner = l->owner;
    bool held = false;
    for (const m_lock& one : locks_)
        held = held || (one.client == client && one.owner == owner && ranges_of(one) > 0);
    result<void> done;
    const auto asks = [&]() -> task<void> {
        done = co_await book_->release_lock_owner(clients_[client].id, owner_bytes(owner));
    };
    scope asking(*shard_);
    asking.spawn(asks);
    SIM_REQUIRE(asking.live() == 0);
    SIM_REQUIRE(done.has_value() == !held);
    if (done)
        std::erase_if(locks_, [&](const m_lock& one) { return one.client == client && one.owner == owner; });
    sync();
}

} // namespace verbena::sim
