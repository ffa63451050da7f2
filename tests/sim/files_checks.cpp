// SPDX-License-Identifier: Apache-2.0
// The server, what must be so after each step, and a run from its start to its end.
#include "files_world.hpp"

namespace verbena::sim {

// --- The server

void files_world::start()
{
    const auto keys = lists_.begin();
    begin_on_disk(keys);
    state_options o;
    o.epoch = lists_.epoch;
    o.lease = sim::lease;
    o.grace_time = grace_time;
    o.recall_time = recall_time;
    o.rest_after_recall = rest;
    o.lock_reserve = reserve;
    o.lock_wait = lock_wait;
    o.courtesy_time = courtesy;
    o.trusted_revocations = trusted_revocations;
    o.distrust = distrust;
    o.limits.opens_per_client = opens_limit_;
    o.limits.locks_per_client = o.limits.lock_states_per_client = locks_limit_;
    o.reclaimers = keys;
    if (few_steps_)
        o.limits.waiter_steps = 1;
    grace_began_ = clock_.now();
    in_grace_ = !keys.empty();
    store_ = std::make_unique<test::memory_store>(lists_);
    store_->wrote = [this](std::string_view what, std::string_view key, share keeps_out) {
        write_on_disk(what, key, keeps_out);
        if (!store_->is_gone)
            return;
        ++told_.unheard;
        if (what == "add")
            unheard_.emplace_back(key);
    };
    if (slow_store_)
        store_->takes = [this] { return std::chrono::milliseconds(random_() % 50); };
    if (failing_store_)
        store_->fails = [this] { return random_() % 10 == 0; };
    commons_.emplace(siphash_key(), homes_);
    book_.emplace(*commons_, place_->here, *store_, *this, std::move(o));
    for (unsigned home = 0; home < homes_; ++home)
        tables_.push_back(std::make_unique<state_table>(*commons_, *book_, home, place_->here, *this));
    serving_ = std::make_unique<scope>(*shard_);
    serving_->spawn([this] { return book_->tend(); });
    for (const auto& table : tables_)
        serving_->spawn([&table] { return table->tend(); });
    // A client that may reclaim has lost nothing.
    for (const m_client& c : clients_)
        SIM_REQUIRE(!(c.lost && may_reclaim(keys, c)));
}

void files_world::begin_on_disk(const std::vector<reclaimer>& keys)
{
    if (!folder_)
        return;
    database_.reset();
    database_.emplace(folder_->path().string() + "/recovery.sqlite");
    recovery_start begun = database_->begin(sim::lease, 1);
    std::sort(begun.reclaimers.begin(), begun.reclaimers.end());
    SIM_REQUIRE(begun.reclaimers == keys);
    SIM_REQUIRE(begun.epoch == lists_.epoch);
}

void files_world::write_on_disk(std::string_view what, std::string_view key, share keeps_out)
{
    if (!database_)
        return;
    using kind = recovery_change::kind;
    const recovery_change change(what == "add"   ? kind::add
                                 : what == "end" ? kind::end_grace
                                                 : kind::remove,
                                 key, keeps_out);
    const recovery_change* const one[] = {&change};
    SIM_REQUIRE(database_->apply(one));
    ++told_.on_disk;
}

task<void> files_world::crash()
{
    sync();
    store_->is_gone = true;
    store_->arrives = random_() % 2 == 0;
    stopping_ = true;
    serving_->request_stop();
    co_await serving_->join();
    stopping_ = false;
    told_.store_failures += book_->stats().store_failures.value();
    pending_.clear();
    passages_.clear();
    tables_.clear();
    book_.reset();
    serving_.reset();
    heard_.clear();
    waits_.clear();
    asking_.fill(0);
    resting_.clear();
    // Those that did not say "complete" in a grace period that was over have no right to another one.
    for (m_client& c : clients_) {
        if (!in_grace_ && !c.complete && !is_written_host(c))
            c.lost = true;
        c.id = nobody;
        c.busy_until = time_point();
        c.is_restarting = c.is_reclaiming = false;
        if (c.expired)
            drop(unsigned(&c - clients_.data()));
        c.expired = false;
        // It said "complete", and the server stopped between the record and the answer.
        if (std::count(unheard_.begin(), unheard_.end(), c.key) > 0)
            c.lost = false;
    }
    unheard_.clear();
}

void files_world::recall(const recall_notice& n) noexcept
{
    heard_.push_back({clock_.now(), true, n.client, n.id, {}, *n.file});
}

time_point files_world::last_heard(client_id id) noexcept
{
    const unsigned client = number_of(id);
    if (client == no_client || clients_[client].busy_until == time_point())
        return time_point::min();
    const time_point until = clients_[client].busy_until;
    told_.outlived += until + sim::lease > clock_.now();
    return clock_.now() < until ? time_point::max() : until;
}

void files_world::lock_available(const lock_notice& n) noexcept
{
    heard_.push_back({clock_.now(),
                      false,
                      n.client,
                      {},
                      std::string(reinterpret_cast<const char*>(n.owner.data()), n.owner.size()),
                      *n.file});
}

// --- The model and the table

void files_world::sync()
{
    if (stopping_ || tables_.empty())
        return;
    const time_point now = clock_.now();
    for (unsigned i = 0; i < clients_.size(); ++i) {
        m_client& c = clients_[i];
        if (c.id == nobody)
            continue;
        const auto state = book_->state_of(c.id);
        SIM_REQUIRE(state);
        if (c.is_host && !c.is_restarting) { // whatever others want, and however long it says nothing
            SIM_REQUIRE(*state == client_state::active);
            if (is_written_host(c))
                c.lost = false;
            told_.silent_hosts += c.silent_until > now;
        }
        if (*state == client_state::expired && !c.expired && !c.is_restarting) {
            SIM_REQUIRE((c.heard() + sim::lease <= now)); // nobody else is driven out
            SIM_REQUIRE((!lists_.new_list.contains(c.key) && !lists_.old_list.contains(c.key)));
            drop(i);
            c.expired = c.lost = true;
            ++told_.expired;
        }
        // Somebody was quicker than forget(), be it because the lease was over.
        if (*state == client_state::expired && c.is_restarting)
            drop(i);
        if (!c.expired && !c.is_restarting)
            SIM_REQUIRE(((*state == client_state::courtesy) == is_courtesy(c)));
    }
    // Makes reservations that are over lapse.
    bool lapses = false;
    for (const m_client& c : clients_)
        if (c.id != nobody && !c.expired && !c.is_restarting && !lapses)
            lapses =
                at(0).test_lock(c.id, file_number(0), owner_bytes(0), {0, 0}, lock_type::read).has_value() ||
                book_->grace() == grace_period::phase::over;
    for (const heard& h : std::exchange(heard_, {})) {
        const unsigned client = number_of(h.client);
        if (h.is_recall) {
            resting_.emplace_back(number_of(h.file), h.when);
            for (m_delegation& d : delegations_)
                if (d.client == client && d.id.other == h.id.other) {
                    SIM_REQUIRE(!d.is_recalled); // once
                    d.is_recalled = true;
                    d.recalled = h.when;
                    ++told_.recalls;
                }
            continue;
        }
        lapse(h.when);
        m_wait* w = find_wait(client, owner_number(h.owner), number_of(h.file));
        if (w == nullptr) { // it went with its client
            SIM_REQUIRE((client == no_client || clients_[client].expired || clients_[client].is_restarting));
            continue;
        }
        SIM_REQUIRE(!w->is_told);
        SIM_REQUIRE((would_lock(w->client, w->owner, w->file, w->bytes, w->type) != lock_answer::denied));
        w->is_told = true;
        w->until = h.when + reserve;
        ++told_.waits_told;
    }
    lapse(now);
    for (m_delegation& d : delegations_) {
        const m_client& c = clients_[d.client];
        if (d.is_revoked || c.id == nobody || c.is_restarting)
            continue;
        const auto there = at(d.id).test_stateid(c.id, d.id);
        if (!there && there.error() == errc::deleg_revoked) {
            SIM_REQUIRE((d.is_recalled && d.recalled + recall_time <= now)); // never before its time
            SIM_REQUIRE((!lists_.new_list.contains(c.key) && !lists_.old_list.contains(c.key)));
            d.is_revoked = true;
            clients_[d.client].lost = true;
            // Surely while its lease ran. What its holder can't help is not held against it.
            if (c.heard() <= d.recalled + recall_time && now < c.heard() + sim::lease)
                clients_[d.client].revocations.push_back({d.recalled + recall_time, now});
            ++told_.revocations;
            resting_.emplace_back(d.file, d.recalled + recall_time); // or later: we only see it now
        }
    }
    // All that somebody has who is not trusted any more is recalled together.
    for (const m_delegation& d : delegations_)
        if (const m_client& c = clients_[d.client]; c.is_distrusted(now) && !c.is_restarting) {
            SIM_REQUIRE((d.is_recalled || d.is_revoked));
            ++told_.distrusted;
        }
    if (in_grace_ && book_->grace() == grace_period::phase::over) {
        // Nobody who might reclaim was left, or its time was over.
        for (m_client& c : clients_)
            if (!c.complete && may_reclaim(reclaimers_, c))
                SIM_REQUIRE((c.lost || c.id == nobody || (c.is_host && c.is_restarting) ||
                             clock_.now() >= grace_began_ + grace_time));
        in_grace_ = false;
    }
    if (lapses && (!few_steps_ || is_settled_)) // no waiter is forgotten
        for (const m_wait& w : waits_)
            if (!w.is_told)
                SIM_REQUIRE((would_lock(w.client, w.owner, w.file, w.bytes, w.type) == lock_answer::denied));
    agrees(lapses);
}

void files_world::lapse(time_point now)
{
    told_.lapsed += std::erase_if(waits_, [&](const m_wait& w) { return w.until <= now; });
}

void files_world::agrees(bool lapsed)
{
    for (const m_client& c : clients_)
        if (c.is_restarting) // what it has may be gone and we don't know yet
            return;
    const state_stats& s = book_->stats();
    SIM_REQUIRE(std::size_t(s.hosts.value()) ==
                std::size_t(std::ranges::count_if(
                    clients_, [](const m_client& c) { return c.is_host && c.id != nobody; })));
    std::size_t ranges = 0, live = 0, revoked = 0;
    for (const m_lock& l : locks_)
        for (unsigned i = 0; i < byte_count; ++i)
            ranges += l.bytes[i] != '-' && (i == 0 || l.bytes[i - 1] != l.bytes[i]);
    for (const m_delegation& d : delegations_)
        ++(d.is_revoked ? revoked : live);
    SIM_REQUIRE(std::size_t(s.opens.value()) == opens_.size());
    SIM_REQUIRE(std::size_t(s.lock_states.value()) == locks_.size());
    SIM_REQUIRE(std::size_t(s.locks.value()) == ranges);
    SIM_REQUIRE(std::size_t(s.read_delegations.value() + s.write_delegations.value()) == live);
    SIM_REQUIRE(std::size_t(s.revoked_delegations.value()) == revoked);
    SIM_REQUIRE(leases_ == std::size_t(std::ranges::count_if(delegations_, [](const m_delegation& d) {
                    return d.leased && !d.is_revoked;
                })));
    if (lapsed)
        SIM_REQUIRE(std::size_t(s.lock_waiters.value()) == waits_.size());
    for (const m_open& o : opens_)
        is_there(o.client, o.id);
    for (const m_lock& l : locks_)
        if (l.by != m_lock::no_open)
            is_there(l.client, l.id);
        else // it is on the disk before it is granted, and nobody else is
            SIM_REQUIRE(lists_.new_list.contains(clients_[l.client].key) == clients_[l.client].is_monitored);
    for (unsigned f = 0; f < file_count; ++f) {
        const auto here = [f](const auto& x) { return x.file == f; };
        if (std::any_of(opens_.begin(), opens_.end(), here) || // as who locks by an open has one
            std::any_of(delegations_.begin(), delegations_.end(),
                        [f](const m_delegation& d) { return d.file == f && !d.is_revoked; }))
            SIM_REQUIRE((commons_->has_state(file_number(f)) && kept_[f] > 0));
        else if (std::any_of(locks_.begin(), locks_.end(), here))
            SIM_REQUIRE(commons_->has_state(file_number(f)));
        else if (asking_[f] == 0 && std::none_of(pending_.begin(), pending_.end(), here) &&
                 std::none_of(waits_.begin(), waits_.end(), here))
            SIM_REQUIRE((!commons_->has_state(file_number(f)) && kept_[f] == 0));
    }
    nothing_contradicts();
    // What keeps others out stands in its client's record, if it has one.
    for (const m_open& o : opens_)
        SIM_REQUIRE(is_written(o.client, o.deny()));
    for (const m_delegation& d : delegations_)
        SIM_REQUIRE((d.is_revoked || is_written(d.client, kept_out_by(d.type, has_leases(d.file)))));
}

bool files_world::is_written(unsigned client, share keeps_out) const
{
    const m_client& c = clients_[client];
    const auto record = lists_.new_list.find(c.key);
    return !c.complete || record == lists_.new_list.end() || includes(record->second, keeps_out);
}

bool files_world::may_reclaim(const std::vector<reclaimer>& all, const m_client& c)
{
    return std::ranges::any_of(all, [&c](const reclaimer& one) { return one.key == c.key; });
}

void files_world::is_there(unsigned client, const stateid& id)
{
    const auto there = at(id).test_stateid(clients_[client].id, id);
    if (!there)
        BOOST_FAIL(clients_[client].key << ": " << there.error().message());
}

// --- The whole

task<void> files_world::restart()
{
    co_await crash();
    ++told_.restarts;
    co_await sleep_for(std::chrono::milliseconds(random_() % 2000));
    old_opens_ = std::exchange(opens_, {});
    old_locks_ = std::exchange(locks_, {});
    old_delegations_ = std::exchange(delegations_, {});
    std::erase_if(old_delegations_, [](const m_delegation& d) { return d.is_revoked; });
    start();
    reclaimers_.clear();
    for (const auto& [key, keeps_out] : lists_.old_list)
        reclaimers_.push_back({key, keeps_out});
    for (unsigned i = 0; i < clients_.size(); ++i) {
        clients_[i].complete = false;
        clients_[i].is_reclaiming = true;
        if (clients_[i].is_host)
            serving_->spawn([this, i] { return reclaim_as_host(i); });
        else
            serving_->spawn([this, i] { return reclaim(i); });
    }
}

task<void> files_world::whole(unsigned steps)
{
    start();
    for (unsigned i = 0; i < clients_.size(); ++i) {
        clients_[i].is_restarting = true;
        serving_->spawn([this, i] { return anew(i); });
    }
    for (unsigned step = 0; step < steps; ++step) {
        // The odd nanosecond: what is due at a time that was named in milliseconds is due before or after, never with it.
        co_await sleep_for(std::chrono::milliseconds(random_() % (random_() % 6 == 0 ? 3000 : 200)) + 1ns);
        is_settled_ = true; // each waiter has been looked at
        sync();
        is_settled_ = false;
        if (random_() % 16 == 0)
            local_writer();
        unsigned client = unsigned(random_() % clients_.size());
        if (clients_[client].is_host && random_() % 4 != 0) // it is the last one, and others have their turns
            client = unsigned(random_() % (clients_.size() - 1));
        m_client& c = clients_[client];
        switch (random_() % 100) {
        case 0:
            if (random_() % 2 == 0) {
                // In the middle of a change of the list, if there is one soon.
                if (slow_store_ && is_free(c))
                    begin_anew(client);
                for (unsigned i = 0; slow_store_ && i < 20 && store_->writing == 0; ++i) {
                    co_await sleep_for(5ms + 1ns);
                    sync();
                }
                co_await restart();
            }
            break;
        case 1: // it is cut off
            c.silent_until = clock_.now() + std::chrono::milliseconds(random_() % 40000);
            break;
        case 2:
            if (is_free(c))
                begin_anew(client);
            break;
        case 3: {
            const auto dropped = co_await book_->drop_courtesy(1);
            SIM_REQUIRE((dropped || dropped.error() == std::errc::io_error));
            break;
        }
        case 4:
        case 5:
        case 6:
        case 7:
        case 8: // a caller of version 3
            serving_->spawn(
                [this, op = some_operation(), file = unsigned(random_() % file_count),
                 patience = some_patience()] { return operate_with_room(op, file, no_client, patience); });
            break;
        case 9:
        case 10:
        case 11:
            if (!pending_.empty())
                end_pending(random_() % pending_.size());
            break;
        default:
            // Most renew at each step, those that are cut off don't.
            for (unsigned i = 0; i < clients_.size(); ++i)
                if (m_client& one = clients_[i]; is_free(one) && !one.expired &&
                                                 one.silent_until <= clock_.now() && !one.is_host &&
                                                 random_() % 2 == 0 && book_->renew(one.id)) {
                    told_.returned += is_courtesy(one);
                    one.renewed = clock_.now();
                }
            if (is_free(c) && c.silent_until <= clock_.now() && c.is_host)
                act_as_host(client);
            else if (is_free(c) && c.silent_until <= clock_.now())
                act(client);
        }
        while (passages_.size() > 4 || (!passages_.empty() && random_() % 3 == 0)) {
            passages_.erase(passages_.begin() + std::ptrdiff_t(random_() % passages_.size()));
            sync();
        }
    }
    co_await all_home();
}

void files_world::end_pending(std::size_t i)
{
    sync();
    m_pending p = std::move(pending_[i]);
    pending_.erase(pending_.begin() + std::ptrdiff_t(i));
    m_client& c = clients_[p.client];
    if (is_free(c) && random_() % 3 != 0 && book_->renew(c.id)) {
        c.renewed = clock_.now();
        const auto made = commit(request_of(p), *p.at);
        opened_or_unwritten(p, made);
    }
    p.at.reset();
    sync();
}

task<void> files_world::all_home()
{
    sync();
    store_->fails = nullptr;
    passages_.clear();
    pending_.clear();
    co_await sleep_for(60s); // whoever waits for room gives up, whoever restarts has
    sync();
    for (unsigned i = 0; i < clients_.size(); ++i) {
        m_client& c = clients_[i];
        SIM_REQUIRE((!c.is_restarting && !c.is_reclaiming));
        if (c.id == nobody)
            continue;
        const auto gone = co_await book_->forget(c.id);
        SIM_REQUIRE(gone);
        drop(i);
        c.id = nobody;
    }
    passages_.clear();
    told_.store_failures += book_->stats().store_failures.value();
    const state_stats& s = book_->stats();
    for (const gauge* g :
         {&s.clients, &s.courtesy_clients, &s.lost_clients, &s.hosts, &s.files, &s.open_owners,
          &s.lock_owners, &s.opens, &s.lock_states, &s.locks, &s.read_delegations, &s.write_delegations,
          &s.revoked_delegations, &s.recalled_delegations, &s.lock_waiters})
        SIM_REQUIRE(g->value() == 0);
    SIM_REQUIRE((lists_.new_list.empty() && lists_.old_list.empty()));
    stopping_ = true;
    serving_->request_stop();
    co_await serving_->join();
    tables_.clear();
    book_.reset();
}

} // namespace verbena::sim
