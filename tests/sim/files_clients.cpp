// SPDX-License-Identifier: Apache-2.0
// What a host and a client do, and how they begin anew.
#include "files_world.hpp"

namespace verbena::sim {

// --- What a host does

owner_lock files_world::owner_lock_of(unsigned client, unsigned owner, unsigned file, const byte_range& bytes,
                                      lock_type type)
{
    owner_lock r;
    r.client = clients_[client].id;
    r.file = file_number(file);
    r.owner = owner_bytes(owner);
    r.bytes = bytes;
    r.type = type;
    return r;
}

m_lock* files_world::find_host_lock(unsigned client, unsigned owner, unsigned file)
{
    for (m_lock& l : locks_)
        if (l.client == client && l.owner == owner && l.file == file)
            return &l;
    return nullptr;
}

m_lock files_world::host_lock(unsigned client, unsigned owner, unsigned file)
{
    if (const m_lock* l = find_host_lock(client, owner, file))
        return *l;
    m_lock made{client, owner, file, m_lock::no_open, {}, {}};
    made.bytes.fill('-');
    ++last_made_up_;
    for (unsigned i = 0; i < 4; ++i)
        made.id.other[i] = std::byte(last_made_up_ >> (8 * i));
    return made;
}

void files_world::keep_host_lock(const m_lock& l)
{
    std::erase_if(locks_, [&](const m_lock& one) { return one.id.other == l.id.other; });
    if (ranges_of(l) > 0)
        locks_.push_back(l);
}

bool files_world::calls(unsigned client)
{
    m_client& c = clients_[client];
    const auto restarted = book_->has_restarted(c.id, c.start, client_book::host_word::calls);
    SIM_REQUIRE(restarted);
    SIM_REQUIRE(*restarted == (c.locked_by != 0 && c.locked_by != c.start));
    if (!*restarted)
        c.locked_by = c.start;
    return !*restarted;
}

void files_world::act_as_host(unsigned client)
{
    m_client& c = clients_[client];
    sync();
    if (!calls(client)) { // nobody has told of that
        begin_anew(client);
        return;
    }
    switch (random_() % 16) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4: serving_->spawn([this, client] { return lock_by_owner(client); }); break;
    case 5:
    case 6:
    case 7:
    case 8:
    case 9:
    case 10: unlock_by_owner(client); break;
    case 11: test_locks(client); break;
    case 12:
        if (m_wait* w = any_of(waits_, client)) {
            SIM_REQUIRE(at(w->file).stop_waiting(c.id, file_number(w->file), owner_bytes(w->owner)));
            std::erase_if(waits_, [w](const m_wait& one) { return &one == w; });
            sync();
        }
        break;
    case 13: begin_anew(client); break; // NLM_FREE_ALL
    case 14: {                          // a notice that was on its way for long
        const auto late = book_->has_restarted(c.id, c.start, client_book::host_word::restarted);
        SIM_REQUIRE((late && !*late));
        ++told_.late_notices;
        break;
    }
    default: // it starts again, and says so now or by its next call
        c.start += 2;
        ++told_.host_restarts;
        if (random_() % 2 == 0) {
            const auto told = book_->has_restarted(c.id, c.start, client_book::host_word::restarted);
            SIM_REQUIRE((told && *told));
            begin_anew(client);
        }
    }
}

task<void> files_world::lock_by_owner(unsigned client)
{
    const unsigned file = unsigned(random_() % file_count), owner = unsigned(random_() % owner_count);
    const byte_range bytes = some_bytes();
    const lock_type type = random_() % 2 == 0 ? lock_type::read : lock_type::write;
    const bool waits = random_() % 2 == 0;
    const client_id was = clients_[client].id;
    co_await write_down(client, share::none);
    m_client& c = clients_[client];
    if (stopping_ || c.id != was || !is_free(c) || !calls(client))
        co_return;
    sync();
    owner_lock r = owner_lock_of(client, owner, file, bytes, type);
    r.wait = waits;
    const auto expected = would_lock(client, owner, file, bytes, type);
    const operation op = type == lock_type::read ? operation::lock_read : operation::lock_write;
    const bool is_held = shares(client, file, share::none, share::none, {op}) == share_answer::in_way;
    m_lock after = host_lock(client, owner, file);
    set(after, bytes, type == lock_type::read ? 'r' : 'w');
    const std::size_t have = ranges_of(client), grown = ranges_of(after) + ranges_without(after, bytes);
    const bool beyond = grown > have && grown > locks_limit_;
    lock_holder holder;
    const auto made = at(file).lock_by_owner(r, &holder);
    m_wait* const w = find_wait(client, owner, file);
    if (book_->grace() != grace_period::phase::over) {
        SIM_REQUIRE((!made && made.error() == errc::grace));
    } else if (c.is_monitored && !is_written_host(c)) {
        SIM_REQUIRE((!made && made.error() == errc::busy));
        ++told_.unwritten;
    } else if (expected == lock_answer::denied) {
        SIM_REQUIRE((!made && made.error() == errc::denied));
        ++told_.denied_locks;
        SIM_REQUIRE(holder.bytes.overlaps(bytes));
        SIM_REQUIRE((holder.client != r.client || holder.owner != owner_name(owner)));
        note_denial(client, owner, file, bytes, type, waits);
    } else if (expected == lock_answer::in_way || is_held) {
        SIM_REQUIRE((!made && made.error() == errc::in_way));
        ++told_.needed_room;
        serving_->spawn([this, d = demand(r), patience = some_patience(), file] {
            return room_for_lock(d, file, patience);
        });
    } else if (beyond) {
        SIM_REQUIRE((!made && made.error() == errc::too_many_locks));
        ++told_.limits;
    } else {
        BOOST_REQUIRE_MESSAGE(made, (made ? "" : made.error().message()));
        ++told_.host_locks;
        if (w != nullptr && w->bytes.overlaps(bytes))
            std::erase_if(waits_, [w](const m_wait& one) { return &one == w; });
        keep_host_lock(after);
    }
    sync();
}

void files_world::unlock_by_owner(unsigned client)
{
    const unsigned file = unsigned(random_() % file_count), owner = unsigned(random_() % owner_count);
    const byte_range bytes = random_() % 2 == 0 ? some_bytes() : byte_range{0, byte_count - 1};
    m_lock after = host_lock(client, owner, file); // which may be none
    const std::size_t have = ranges_of(client);
    set(after, bytes, '-');
    const std::size_t grown = ranges_of(after) + ranges_without(after, bytes);
    const auto done =
        at(file).unlock_by_owner(clients_[client].id, file_number(file), owner_bytes(owner), bytes);
    if (grown > have && grown > locks_limit_) {
        SIM_REQUIRE((!done && done.error() == errc::too_many_locks));
        ++told_.limits;
    } else {
        SIM_REQUIRE(done);
        keep_host_lock(after);
    }
    sync();
}

task<void> files_world::reclaim_as_host(unsigned client)
{
    m_client& c = clients_[client];
    co_await sleep_for(std::chrono::milliseconds(random_() % (random_() % 8 == 0 ? 20000 : 3000)));
    if (stopping_)
        co_return;
    join(client);
    const client_id was = c.id;
    const bool may = c.is_monitored && may_reclaim(reclaimers_, c);
    SIM_REQUIRE(!(may && c.lost));
    const auto locks = mine(old_locks_, client);
    co_await write_down(client, share::none);
    if (stopping_ || c.id != was)
        co_return;
    sync();
    for (const m_lock& l : locks) {
        m_lock now = host_lock(client, l.owner, l.file);
        for (unsigned i = 0; i < byte_count;) {
            unsigned last = i;
            while (last + 1 < byte_count && l.bytes[last + 1] == l.bytes[i])
                ++last;
            if (l.bytes[i] != '-') {
                owner_lock r = owner_lock_of(client, l.owner, l.file, {i, last},
                                             l.bytes[i] == 'r' ? lock_type::read : lock_type::write);
                r.reclaim = true;
                const auto made = at(l.file).lock_by_owner(r);
                if (book_->grace() != grace_period::phase::reclaiming) {
                    SIM_REQUIRE((!made && made.error() == errc::no_grace));
                    ++told_.refused_reclaims;
                } else if (!may) {
                    SIM_REQUIRE((!made && made.error() == errc::reclaim_bad));
                    ++told_.refused_reclaims;
                } else if (!is_written_host(c)) {
                    SIM_REQUIRE((!made && made.error() == errc::busy));
                    ++told_.unwritten;
                } else {
                    // Nobody can have got in its way.
                    BOOST_REQUIRE_MESSAGE(made, (made ? "" : made.error().message()));
                    ++told_.host_reclaims;
                    for (unsigned k = i; k <= last; ++k)
                        now.bytes[k] = l.bytes[i];
                }
            }
            i = last + 1;
        }
        keep_host_lock(now);
    }
    c.is_reclaiming = false;
    sync();
}

// --- What a client does

m_pending files_world::some_open(unsigned client)
{
    m_pending p;
    p.client = client;
    p.owner = unsigned(random_() % owner_count);
    p.file = unsigned(random_() % file_count);
    p.access = share(1 + random_() % 3);
    p.deny = random_() % 4 == 0 ? share(random_() % 4) : share::none;
    p.want = random_() % 4 == 0 ? delegation_want::none : delegation_want::any;
    p.cuts = random_() % 4 == 0;
    return p;
}

void files_world::act(unsigned client)
{
    m_client& c = clients_[client];
    sync();
    const auto renewed = book_->renew(c.id);
    if (!renewed) {
        SIM_REQUIRE((renewed.error() == (c.expired ? errc::expired : errc::busy)));
        if (c.expired)
            begin_anew(client);
        return;
    }
    SIM_REQUIRE(!c.expired);
    told_.returned += is_courtesy(c);
    c.renewed = clock_.now();
    if (random_() % 16 == 0) { // a compound that takes its time
        c.busy_until = clock_.now() + std::chrono::milliseconds(random_() % 15000);
        c.silent_until = c.busy_until + std::chrono::milliseconds(random_() % 15000);
    }
    sync();
    switch (random_() % 16) {
    case 0:
    case 1:
    case 2: {
        m_pending p = some_open(client);
        serving_->spawn([this, client, owner = p.owner, file = p.file, access = p.access, deny = p.deny,
                         want = p.want, cuts = p.cuts, patience = some_patience()] {
            return open_with_room({nullptr, client, owner, file, access, deny, want, cuts}, patience);
        });
        break;
    }
    case 3: (void)open(some_open(client), false); break;
    case 4:
        if (m_open* o = any_of(opens_, client)) {
            const share access = share(1 + random_() % 3), deny = share(random_() % 4);
            share all_access = share::none, all_deny = share::none;
            std::vector<std::pair<share, share>> left;
            for (const auto& p : o->pairs)
                if (includes(access, p.first) && includes(deny, p.second)) {
                    left.push_back(p);
                    all_access = all_access | p.first;
                    all_deny = all_deny | p.second;
                }
            const auto done = at(o->file).downgrade(c.id, o->id, file_number(o->file), access, deny);
            SIM_REQUIRE(done.has_value() == (all_access == access && all_deny == deny));
            if (done) {
                ++told_.downgrades;
                SIM_REQUIRE(done->seqid == next_seqid(o->id.seqid));
                o->id = *done;
                o->pairs = left;
            }
            sync();
        }
        break;
    case 5:
    case 6:
        if (m_open* o = any_of(opens_, client)) {
            SIM_REQUIRE(at(o->file).close(c.id, o->id, file_number(o->file)));
            std::erase_if(locks_, [o](const m_lock& l) {
                return l.client == o->client && l.file == o->file && l.by == o->owner;
            });
            const unsigned file = o->file;
            std::erase_if(opens_, [o](const m_open& one) { return &one == o; });
            const auto is_left = [=](const m_open& one) { return one.client == client && one.file == file; };
            if (std::none_of(opens_.begin(), opens_.end(), is_left))
                std::erase_if(waits_, [=](const m_wait& w) { return w.client == client && w.file == file; });
            sync();
        }
        break;
    case 7:
    case 8:
    case 9: lock(client); break;
    case 10: unlock(client); break;
    case 11: test_locks(client); break;
    case 12: free_lock(client); break;
    case 13:
        if (m_delegation* d = any_of(delegations_, client)) {
            if (d->is_revoked) {
                serving_->spawn([this, client, id = d->id] { return free_revoked(client, id); });
            } else {
                SIM_REQUIRE(at(d->file).return_delegation(c.id, d->id, file_number(d->file)));
                if (d->is_recalled)
                    resting_.emplace_back(d->file, clock_.now());
                std::erase_if(delegations_, [d](const m_delegation& one) { return &one == d; });
                sync();
            }
        }
        break;
    case 14: io(client); break;
    default: {
        const operation op = some_operation();
        serving_->spawn(
            [this, op, file = unsigned(random_() % file_count), client, patience = some_patience()] {
                return operate_with_room(op, file, client, patience);
            });
    }
    }
}

operation files_world::some_operation()
{
    constexpr operation all[] = {operation::read,           operation::write,    operation::get_attributes,
                                 operation::set_attributes, operation::set_size, operation::remove,
                                 operation::rename,         operation::link};
    return all[random_() % std::size(all)];
}

void files_world::io(unsigned client)
{
    const share access = random_() % 2 == 0 ? share::read : share::write;
    const operation op = access == share::read ? operation::read : operation::write;
    if (m_delegation* d = any_of(delegations_, client); d != nullptr && random_() % 2 == 0) {
        const auto begun = at(d->file).check_io(clients_[client].id, d->id, file_number(d->file), op);
        if (d->is_revoked)
            SIM_REQUIRE((!begun && begun.error() == errc::deleg_revoked));
        else
            SIM_REQUIRE(begun.has_value() == (d->type == delegation_type::write || access == share::read));
        return; // its own: nothing that another one's grant would have to mind for longer
    }
    if (m_open* o = any_of(opens_, client)) {
        bool denied = false;
        for (const m_open& other : opens_)
            denied = denied || (&other != o && other.file == o->file && any(other.deny() & share::read));
        for (const m_pending& other : pending_)
            denied = denied || (other.file == o->file && any(other.deny & share::read));
        const auto begun = at(o->file).check_io(clients_[client].id, o->id, file_number(o->file), op);
        if (access == share::write && !any(o->access() & share::write)) {
            SIM_REQUIRE((!begun && begun.error() == errc::open_mode));
        } else if (access == share::read && !any(o->access() & share::read) && denied) {
            SIM_REQUIRE((!begun && begun.error() == errc::locked));
        } else {
            SIM_REQUIRE(begun);
            ++told_.io;
            // By the open that let it in. What is open to write alone is read by nobody's.
            const unsigned use = access == share::read ? R_OK : W_OK;
            const auto& by = begun->opened;
            SIM_REQUIRE((by != nullptr) == any(access & o->access()));
            SIM_REQUIRE((!by || by->lets(storage::credential(), use)));
            // It ends before another step: nothing_contradicts() knows of operations of others alone.
        }
    }
}

task<void> files_world::free_revoked(unsigned client, stateid id)
{
    const client_id was = clients_[client].id;
    const auto done = co_await at(id).free_stateid(was, id);
    if (stopping_ || clients_[client].id != was || !done)
        co_return;
    std::erase_if(delegations_, [&](const m_delegation& d) { return d.id.other == id.other; });
    m_client& c = clients_[client];
    // With the last of them it may reclaim again what it has now.
    if (std::none_of(delegations_.begin(), delegations_.end(),
                     [&](const m_delegation& d) { return d.client == client && d.is_revoked; }))
        c.lost = c.expired;
    sync();
}

void files_world::begin_anew(unsigned client)
{
    clients_[client].is_restarting = true;
    std::erase_if(pending_, [&](const m_pending& p) { return p.client == client; });
    serving_->spawn([this, client] { return anew(client); });
}

task<void> files_world::anew(unsigned client)
{
    m_client& c = clients_[client];
    while (c.id != nobody) {
        const auto gone = co_await book_->forget(c.id);
        if (stopping_)
            co_return;
        if (gone || gone.error() == errc::stale_client)
            break;
        co_await sleep_for(10ms);
        if (stopping_)
            co_return;
    }
    drop(client);
    c.id = nobody;
    c.complete = c.expired = false;
    c.lost = true; // it has nothing to reclaim
    join(client);
    if (c.is_host) { // what it had it can't take back, though it is written down again when it locks
        SIM_REQUIRE((!lists_.new_list.contains(c.key) && !lists_.old_list.contains(c.key)));
        std::erase_if(reclaimers_, [&c](const reclaimer& one) { return one.key == c.key; });
        c.is_restarting = false;
        sync();
        co_return;
    }
    if (random_() % 2 == 0) // at once for all that it may ever have
        co_await write_down(client, share::both);
    co_await say_complete(client);
}

void files_world::join(unsigned client)
{
    m_client& c = clients_[client];
    const auto id = c.is_host ? book_->add_host(c.key, 0, c.is_monitored) : book_->add_client(c.key);
    SIM_REQUIRE(id);
    c.id = *id;
    c.locked_by = 0;
    c.renewed = clock_.now();
    c.busy_until = time_point();
    c.expired = false;
    c.revocations.clear();
    if (c.is_host)
        return;
    SIM_REQUIRE(book_->set_callable(c.id, random_() % 8 != 0));
}

task<void> files_world::say_complete(unsigned client)
{
    m_client& c = clients_[client];
    const client_id was = c.id;
    for (;;) {
        const auto done = co_await book_->reclaim_complete(was);
        if (stopping_ || c.id != was)
            co_return;
        if (done) {
            c.complete = true;
            sync(); // something that it reclaimed may have been revoked since
            const bool in_list = lists_.new_list.contains(c.key);
            const bool has_revoked =
                std::any_of(delegations_.begin(), delegations_.end(),
                            [&](const m_delegation& d) { return d.client == client && d.is_revoked; });
            SIM_REQUIRE((in_list || has_revoked)); // written before it was answered
            c.lost = has_revoked;
            // What it did not take back it has no more.
            break;
        }
        if (done.error() == errc::expired || done.error() == errc::stale_client)
            break;
        co_await sleep_for(20ms);
        if (stopping_ || c.id != was)
            co_return;
    }
    c.is_restarting = c.is_reclaiming = false;
    sync();
}

task<void> files_world::reclaim(unsigned client)
{
    m_client& c = clients_[client];
    co_await sleep_for(std::chrono::milliseconds(random_() % (random_() % 8 == 0 ? 20000 : 3000)));
    if (stopping_)
        co_return;
    join(client);
    const client_id was = c.id;
    const bool may = may_reclaim(reclaimers_, c);
    SIM_REQUIRE(!(may && c.lost));
    const auto opens = mine(old_opens_, client);
    const auto locks = mine(old_locks_, client);
    const auto delegations = mine(old_delegations_, client);
    for (const m_open& o : opens) {
        open_request r;
        r.client = c.id;
        r.owner = owner_bytes(o.owner);
        r.file = file_number(o.file);
        r.access = o.access();
        r.deny = o.deny();
        r.claim = open_claim::reclaim;
        r.hears_of_locks = true;
        r.want = delegation_want::none;
        for (const m_delegation& d : delegations)
            if (d.file == o.file && !has_delegation(client, d.file))
                r.want = d.type == delegation_type::read ? delegation_want::read : delegation_want::write;
        r.leased = has_leases(o.file);
        r.opened = open_of(o.file, r.access);
        const auto made = open_at_once(r);
        if (book_->grace() != grace_period::phase::reclaiming) {
            SIM_REQUIRE((!made && made.error() == errc::no_grace));
            ++told_.refused_reclaims;
            continue;
        }
        if (!may) {
            SIM_REQUIRE((!made && made.error() == errc::reclaim_bad));
            ++told_.refused_reclaims;
            continue;
        }
        BOOST_REQUIRE_MESSAGE(made,
                              (made ? "" : made.error().message())); // nobody can have got in its way
        ++told_.reclaims;
        r.opened.reset();
        m_pending p{nullptr, client, o.owner, o.file, r.access, r.deny, r.want};
        opened_so(p, *made);
        if (r.want != delegation_want::none)
            SIM_REQUIRE(made->delegation);
        for (const m_lock& l : locks)
            if (l.file == o.file && l.by == o.owner)
                reclaim_lock(l, made->id);
        if (slow_store_) {
            co_await sleep_for(std::chrono::milliseconds(random_() % 100));
            if (stopping_ || c.id != was)
                co_return;
        }
    }
    if (random_() % 4 == 0) { // one that comes late
        co_await sleep_for(std::chrono::milliseconds(random_() % 9000));
        if (stopping_ || c.id != was)
            co_return;
    }
    co_await say_complete(client);
}

void files_world::reclaim_lock(const m_lock& l, const stateid& open)
{
    m_lock now = l;
    now.bytes.fill('-');
    bool has_state = false;
    for (unsigned i = 0; i < byte_count;) {
        if (l.bytes[i] == '-') {
            ++i;
            continue;
        }
        unsigned last = i;
        while (last + 1 < byte_count && l.bytes[last + 1] == l.bytes[i])
            ++last;
        lock_request r;
        r.client = clients_[l.client].id;
        r.file = file_number(l.file);
        r.new_owner = true;
        r.id = open;
        r.owner = owner_bytes(l.owner);
        r.bytes = {i, last};
        r.type = l.bytes[i] == 'r' ? lock_type::read : lock_type::write;
        r.reclaim = true;
        const auto made = at(l.file).lock(r);
        if (!made) { // a downgrade may have left it a lock that its open doesn't have the mode for
            SIM_REQUIRE((made.error() == errc::open_mode));
        } else {
            ++told_.reclaims;
            now.id = *made;
            has_state = true;
            for (unsigned k = i; k <= last; ++k)
                now.bytes[k] = l.bytes[i];
        }
        i = last + 1;
    }
    if (has_state)
        locks_.push_back(now);
}

} // namespace verbena::sim
