// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/state_home.hpp>
#include <verbena/protocols/nfs/server/v4/storage.hpp>

#include <algorithm>
#include <ctime>

namespace verbena::nfs::v4 {

namespace {

using files::errc;

// How long a request waits for what is in its way before its client is told to come again.
constexpr duration patience = std::chrono::seconds(1);

// Where all, or the clients of one peer, have used up what there is, one of them whose lease is over has it taken: true, at most as often as
// `tries` has left.
task<bool> find_more(files::state_table& table, files::client_id client, const error& why, int& tries)
{
    const bool of_peer = why == errc::peer_is_full;
    if ((!of_peer && why != errc::all_is_full) || --tries < 0)
        co_return false;
    const auto dropped =
        co_await table.drop_courtesy(1, table.last_lacking(), of_peer ? client : files::nobody);
    co_return dropped && *dropped > 0;
}
constexpr int most_dropped = 4;

nfsstat4 status_of_result(const result<void>& r) noexcept
{
    return r ? nfsstat4::ok : status_of_state(r.error());
}

template<class Table, class Decide>
task<nfsstat4> decide(Table& table, files::demand what, Decide& ask, files::client_id client)
{
    files::passage room;
    int tries = most_dropped;
    for (;;) {
        const result<void> answer = ask();
        if (answer)
            co_return nfsstat4::ok;
        const bool more = co_await find_more(table, client, answer.error(), tries);
        if (more)
            continue;
        if (answer.error() != errc::needs_room)
            co_return status_of_state(answer.error());
        room.end();
        if (const auto made = co_await table.make_room(what, patience, room); !made)
            co_return status_of_state(made.error());
    }
}

// What a client that never says that it took back all gets now it may take back after the next start. Before that is sure, it gets nothing.
// The same holds for what keeps others from reading or writing, as these wait after a start only for clients of whom that is written down.
// If the store refuses, an open is granted without what it `may` bring besides.
task<nfsstat4> write_down(files::state_table& table, files::client_id client, files::share keeps_out,
                          files::share may)
{
    if (!table.lacks_record(client, keeps_out | may))
        co_return nfsstat4::ok;
    const result<void> written = co_await table.record(client, keeps_out | may);
    co_return table.lacks_record(client, keeps_out) ? status_of_result(written) : nfsstat4::ok;
}

task<state_home::opened> open_here(state_home& state, shard& home, files::state_table& table,
                                   const files::open_request* request, const state_home::opening* file)
{
    state_home::opened out;
    files::pending_open pending;
    const auto ask = [&] { return table.begin_open(*request, pending); };
    out.status = co_await decide(table, files::demand(*request), ask, request->client);
    // A client that has to open what it has open under a delegation can't do without: it closes something else meanwhile.
    if (out.status == nfsstat4::nospc && request->claim == files::open_claim::under_delegation)
        out.status = nfsstat4::delay;
    if (out.status == nfsstat4::ok)
        out.status = co_await write_down(table, request->client, table.surely_keeps_out(*request),
                                         table.may_keep_out(*request));
    if (out.status != nfsstat4::ok)
        co_return out;
    // Nobody begins to read or write any more what it denies, and who began before is waited for. What is reclaimed was denied then already.
    if (any(request->deny) && request->claim != files::open_claim::reclaim) {
        const bool alone = co_await state.io_ends(request->file, request->deny, patience);
        if (!alone) {
            out.status = nfsstat4::delay;
            co_return out;
        }
    }
    if (request->truncates) {
        storage::set_attributes none;
        none.size = 0;
        io_list::hold cut_now;
        cut_now.begin(state.io_of(home), file->export_id, file->file, files::share::write);
        files::change_hold change;
        change.begin(table.changes(), request->file);
        const auto cut = co_await file->backend->setattr(file->request, file->file, none, std::nullopt);
        if (!cut) {
            out.failure = cut.error();
            co_return out;
        }
        pending.set_change(cut->after ? std::optional(change_of(*cut->after)) : std::nullopt);
    }
    // Whoever the delegation is in the way of waits from here on; and whoever is not asked here, on the lease.
    if (const auto reserved = table.reserve_delegation(pending)) {
        storage::lease_wanted wanted = [&table, id = *reserved] { (void)table.recall(id); };
        auto taking = file->backend->lease(file->file, std::move(wanted));
        auto lease = co_await taking;
        // What local processes did while the server was away its holder has not seen.
        if (lease && request->claim == files::open_claim::reclaim) {
            const auto attrs = co_await file->backend->getattr(file->request, file->file);
            if (!attrs || attrs->ctime.seconds >= table.options().reclaimed_unchanged)
                pending.set_gives_back();
        }
        if (lease) {
            pending.set_lease(std::move(*lease));
        } else {
            const storage::no_lease why = storage::why_no_lease(lease.error());
            pending.set_lease(why);
            if (why == storage::no_lease::limit)
                table.lacks_leases();
        }
    }
    const auto done = table.commit(pending);
    if (done) {
        out.id = to_wire(done->id);
        out.delegation = done->delegation;
        out.why = done->why;
    } else {
        out.status = status_of_state(done.error());
    }
    // What was reclaimed its holder may have changed before the restart.
    if (out.delegation && out.delegation->type == files::delegation_type::write &&
        request->claim != files::open_claim::reclaim) {
        const auto attrs = co_await file->backend->getattr(file->request, file->file);
        table.note_change(out.delegation->id, attrs ? std::optional(change_of(*attrs)) : std::nullopt);
    }
    co_return out;
}

task<nfsstat4> may_open_here(files::state_table& table, files::client_id client,
                             std::span<const std::byte> owner, files::share deny)
{
    int tries = most_dropped;
    for (;;) {
        const result<void> answer = table.may_open(client, owner);
        if (answer)
            co_return co_await write_down(table, client, deny, files::share::none);
        const bool more = co_await find_more(table, client, answer.error(), tries);
        if (!more)
            co_return status_of_state(answer.error());
    }
}

task<nfsstat4> way_here(files::state_table& table, files::client_id client, const storage::handle* file,
                        files::operation op)
{
    files::passage p;
    const files::demand what(op, *file, client);
    const auto ask = [&] { return table.begin(what, p); };
    const auto is_kept = [&] {
        return op == files::operation::remove && table.is_denied_removal(*file, client);
    };
    if (is_kept()) // before delegations are recalled for it
        co_return nfsstat4::file_open;
    const nfsstat4 status = co_await decide(table, what, ask, client);
    co_return status == nfsstat4::ok&& is_kept() ? nfsstat4::file_open : status;
}

task<state_home::looked> look_here(files::state_table& table, holder_inquiry* inquiry,
                                   files::client_id client, const storage::handle* file)
{
    state_home::looked out;
    const auto writer = inquiry == nullptr ? std::nullopt : table.writer_of(*file, client);
    if (writer) {
        const auto said = co_await inquiry->ask(writer->client, writer->id, *file, patience);
        // It may have come back meanwhile, or be wanted back for more than this.
        const auto noted = said ? table.note_answer(writer->id, said->change) : std::nullopt;
        if (noted) {
            out.kept = kept_attributes{noted->modified, said->size, noted->change, noted->modifieds};
            co_return out;
        }
    }
    out.status = co_await way_here(table, client, file, files::operation::get_attributes);
    co_return out;
}

task<nfsstat4> free_here(files::state_table& table, files::client_id client, stateid4 id, bool* revoked)
{
    const result<void> done = co_await table.free_stateid(client, to_state(id));
    *revoked = table.has_revoked(client);
    co_return status_of_result(done);
}

task<nfsstat4> check_here(files::state_table& table, files::client_id client, stateid4 id,
                          const storage::handle* file, files::operation op, state_home::io_terms* terms)
{
    files::passage p;
    *terms = {};
    if (id.is_anonymous() || id.is_read_bypass()) {
        files::demand what(op, *file, client);
        if (id.is_read_bypass() && op == files::operation::read)
            what.past_denies();
        const auto ask = [&] { return table.begin(what, p); };
        co_return co_await decide(table, what, ask, client);
    }
    if (id.is_reserved())
        co_return nfsstat4::bad_stateid;
    const auto answer = table.begin_io(client, to_state(id), *file, files::access_of(op), p);
    terms->guarded = p.keeps_writers_out();
    terms->opened = p.take_opened();
    co_return answer ? nfsstat4::ok : status_of_state(answer.error());
}

task<state_home::locked> lock_here(files::state_table& table, const files::lock_request* request)
{
    state_home::locked out;
    result<files::stateid> granted = error(errc::denied);
    const auto ask = [&]() -> result<void> {
        granted = table.lock(*request, &out.holder);
        return granted ? result<void>() : result<void>(granted.error());
    };
    out.status = co_await write_down(table, request->client, files::share::none, files::share::none);
    if (out.status == nfsstat4::ok)
        out.status = co_await decide(table, files::demand(*request), ask, request->client);
    if (granted)
        out.id = to_wire(*granted);
    co_return out;
}

task<nfsstat4> forget_here(files::state_table& table, files::client_id client)
{
    const result<void> done = co_await table.forget(client);
    // Somebody else was quicker.
    if (!done && done.error() == errc::stale_client)
        co_return nfsstat4::ok;
    co_return status_of_result(done);
}

task<nfsstat4> refused_here(nfsstat4 status) { co_return status; }

task<nfsstat4> status_of_task(task<result<void>> t)
{
    const result<void> done = co_await t;
    co_return status_of_result(done);
}

} // namespace

nfsstat4 status_of(errc why) noexcept
{
    switch (why) {
    case errc::invalid: return nfsstat4::inval;
    // A client that the session layer knows has lost what it had; see renew().
    case errc::stale_client: return nfsstat4::expired;
    case errc::expired: return nfsstat4::expired;
    case errc::admin_revoked: return nfsstat4::admin_revoked;
    case errc::bad_stateid:
    case errc::stale_stateid: return nfsstat4::bad_stateid; // 8881 15.1.16.5
    case errc::old_stateid: return nfsstat4::old_stateid;
    case errc::deleg_revoked: return nfsstat4::deleg_revoked;
    case errc::share_denied: return nfsstat4::share_denied;
    case errc::locked: return nfsstat4::locked;
    case errc::open_mode: return nfsstat4::openmode;
    case errc::denied: return nfsstat4::denied;
    case errc::locks_held: return nfsstat4::locks_held;
    case errc::client_busy: return nfsstat4::clientid_busy;
    case errc::needs_room:
    case errc::busy:
    case errc::too_many_clients:
    case errc::peer_is_full:
    case errc::all_is_full: return nfsstat4::delay;
    // What only the client itself can give back: its user hears of it. OPEN and LOCK have no RESOURCE in minor version 1 (8881 15.2). Linux
    // makes ENOSPC of the one, as of its own limits of watches, and EREMOTEIO of the other, whose RFC has no NOSPC.
    case errc::too_many_opens: return nfsstat4::nospc;
    case errc::too_many_locks: return nfsstat4::serverfault;
    case errc::grace: return nfsstat4::grace;
    case errc::no_grace: return nfsstat4::no_grace;
    case errc::reclaim_bad: return nfsstat4::reclaim_bad;
    case errc::reclaim_conflict: return nfsstat4::reclaim_conflict;
    case errc::already_complete: return nfsstat4::complete_already;
    }
    return nfsstat4::serverfault;
}

nfsstat4 status_of_state(const error& failure) noexcept
{
    if (failure.code().category() == files::files_category())
        return status_of(errc(failure.code().value()));
    return nfsstat4::delay;
}

void kept_attributes::apply(storage::attributes& attrs) const noexcept
{
    if (!modified)
        return;
    attrs.size = size;
    std::timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    attrs.mtime = attrs.ctime = {now.tv_sec, static_cast<std::uint32_t>(now.tv_nsec)};
}

state_home::state_home(shard& home, files::recovery_store& store, files::state_handler& handler,
                       files::state_options options)
    : home_(home), table_(home.reactor().clock(), store, handler, std::move(options))
{
}

io_list& state_home::io_of(const shard& where)
{
    const std::lock_guard held(places_lock_);
    for (const auto& known : places_) {
        if (known->where == &where)
            return known->io;
    }
    return places_.emplace_back(std::make_unique<place>(where))->io;
}

task<bool> state_home::io_ends(storage::handle file, files::share denied, duration patience)
{
    const task_context& context = co_await current_context();
    const clock_source& clock = context.shard->clock();
    const time_point end = clock.now() + patience;
    for (std::size_t i = 0;; ++i) {
        place* at = nullptr;
        {
            const std::lock_guard held(places_lock_);
            if (i == places_.size())
                co_return true;
            at = places_[i].get();
        }
        const duration left = std::max(end - clock.now(), duration::zero());
        const auto ends_there = [at, &file, denied, left] { return at->io.ends(file, denied, left); };
        const bool ended = co_await at->where->run(ends_there);
        if (!ended)
            co_return false;
    }
}

task<state_home::added> state_home::add_client(std::string_view key, std::uint64_t peer)
{
    return at_home([key, peer, this](files::state_table&) { return add_here(key, peer); });
}

task<state_home::added> state_home::add_here(std::string_view key, std::uint64_t peer)
{
    added out;
    // One that is still to be forgotten may have had the same name: the end of its record would be that of the new one's.
    co_await forget_abandoned();
    if (!abandoned_.empty()) {
        out.status = nfsstat4::delay;
        co_return out;
    }
    const auto made = table_.add_client(key, peer);
    if (made) {
        out.client = *made;
        const auto reclaims = table_.must_reclaim(*made);
        out.must_reclaim = reclaims && *reclaims;
    } else {
        out.status = status_of_state(made.error());
        out.is_full = made.error() == errc::too_many_clients;
    }
    co_return out;
}

task<nfsstat4> state_home::renew(files::client_id client, bool& revoked)
{
    return at_home([client, &revoked](files::state_table& t) {
        revoked = t.has_revoked(client);
        return status_of_result(t.renew(client));
    });
}

task<nfsstat4> state_home::set_callable(files::client_id client)
{
    return at_home(
        [client](files::state_table& t) { return status_of_result(t.set_callable(client, true)); });
}

task<nfsstat4> state_home::forget(files::client_id client)
{
    return at_home([client](files::state_table& t) { return forget_here(t, client); });
}

bool state_home::yields(files::client_id client, nfsstat4 stands_against)
{
    // What is being written of it may be that it opens something.
    if (table_.is_being_written(client))
        return false;
    const auto is = table_.state_of(client);
    const auto used = table_.is_in_use(client);
    const bool active = is && *is == files::client_state::active;
    const bool in_use = used && *used;
    return !active || (!in_use && stands_against == nfsstat4::clid_inuse);
}

task<nfsstat4> state_home::take_name(files::client_id client, nfsstat4 stands_against)
{
    // Nothing comes between the question and the end of what it has: see state_table::take_state().
    return at_home([client, stands_against, this](files::state_table& t) -> task<nfsstat4> {
        if (stands_against != nfsstat4::ok && !yields(client, stands_against))
            return refused_here(stands_against);
        return forget_here(t, client);
    });
}

task<void> state_home::abandon(files::client_id client)
{
    return at_home([client, this](files::state_table&) -> task<void> {
        if (std::ranges::find(abandoned_, client) == abandoned_.end())
            abandoned_.push_back(client);
        return forget_abandoned();
    });
}

task<void> state_home::forget_abandoned()
{
    const std::vector<files::client_id> all = abandoned_;
    for (const files::client_id client : all) {
        const nfsstat4 gone = co_await forget_here(table_, client);
        if (gone == nfsstat4::ok)
            std::erase(abandoned_, client);
    }
}

task<nfsstat4> state_home::is_in_use(files::client_id client, bool& in_use)
{
    return at_home([client, &in_use](files::state_table& t) {
        const auto used = t.is_in_use(client);
        // One that expired has nothing any more.
        in_use = used && *used;
        return nfsstat4::ok;
    });
}

task<state_home::life> state_home::life_of(files::client_id client)
{
    return at_home([client](files::state_table& t) {
        const auto is = t.state_of(client);
        const auto used = t.is_in_use(client);
        return life{is && *is == files::client_state::active, used && *used};
    });
}

task<nfsstat4> state_home::reclaim_complete(files::client_id client)
{
    return at_home([client](files::state_table& t) { return status_of_task(t.reclaim_complete(client)); });
}

task<storage::handle> state_home::file_of_delegation(files::client_id client, const stateid4& id)
{
    return at_home([client, id = to_state(id)](files::state_table& t) {
        const auto holder = t.holder_of(id);
        const bool is_its = holder && holder->client == client && !holder->has_owner;
        return is_its ? holder->file : storage::handle();
    });
}

task<nfsstat4> state_home::may_open(files::client_id client, std::span<const std::byte> owner,
                                    files::share deny)
{
    return at_home(
        [client, owner, deny](files::state_table& t) { return may_open_here(t, client, owner, deny); });
}

task<state_home::opened> state_home::open(const files::open_request& request, const opening& file)
{
    return at_home(
        [r = &request, f = &file, this](files::state_table& t) { return open_here(*this, home_, t, r, f); });
}

task<nfsstat4> state_home::close(files::client_id client, const stateid4& id, const storage::handle& file)
{
    return at_home([client, id, f = &file](files::state_table& t) {
        return status_of_result(t.close(client, to_state(id), *f));
    });
}

task<state_home::opened> state_home::downgrade(files::client_id client, const stateid4& id,
                                               const storage::handle& file, files::share access,
                                               files::share deny)
{
    return at_home([client, id, f = &file, access, deny](files::state_table& t) {
        opened out;
        const auto done = t.downgrade(client, to_state(id), *f, access, deny);
        if (done)
            out.id = to_wire(*done);
        else
            out.status = status_of_state(done.error());
        return out;
    });
}

task<nfsstat4> state_home::check_io(files::client_id client, const stateid4& id, const storage::handle& file,
                                    files::operation op, io_terms& terms)
{
    return at_home([client, id, f = &file, op, to = &terms](files::state_table& t) {
        return check_here(t, client, id, f, op, to);
    });
}

task<std::vector<nfsstat4>> state_home::test(files::client_id client, std::span<const stateid4> ids)
{
    return at_home([client, ids](files::state_table& t) {
        std::vector<nfsstat4> statuses;
        statuses.reserve(ids.size());
        for (const stateid4& id : ids)
            statuses.push_back(id.is_reserved() ? nfsstat4::bad_stateid
                                                : status_of_result(t.test_stateid(client, to_state(id))));
        return statuses;
    });
}

task<nfsstat4> state_home::make_way(files::client_id client, const storage::handle& file, files::operation op)
{
    return at_home([client, f = &file, op](files::state_table& t) { return way_here(t, client, f, op); });
}

task<state_home::looked> state_home::look(files::client_id client, const storage::handle& file)
{
    return at_home(
        [client, f = &file, this](files::state_table& t) { return look_here(t, inquiry_, client, f); });
}

task<nfsstat4> state_home::return_delegation(files::client_id client, const stateid4& id,
                                             const storage::handle& file)
{
    return at_home([client, id, f = &file](files::state_table& t) {
        return status_of_result(t.return_delegation(client, to_state(id), *f));
    });
}

task<nfsstat4> state_home::free(files::client_id client, const stateid4& id, bool& revoked)
{
    return at_home([client, id, r = &revoked](files::state_table& t) { return free_here(t, client, id, r); });
}

task<state_home::locked> state_home::lock(const files::lock_request& request)
{
    return at_home([r = &request](files::state_table& t) { return lock_here(t, r); });
}

task<state_home::locked> state_home::test_lock(files::client_id client, const storage::handle& file,
                                               std::span<const std::byte> owner,
                                               const files::byte_range& bytes, files::lock_type type)
{
    return at_home([client, f = &file, owner, bytes, type](files::state_table& t) {
        locked out;
        const auto answer = t.test_lock(client, *f, owner, bytes, type, &out.holder);
        out.status = status_of_result(answer);
        return out;
    });
}

task<state_home::locked> state_home::unlock(files::client_id client, const stateid4& id,
                                            const storage::handle& file, const files::byte_range& bytes)
{
    return at_home([client, id, f = &file, bytes](files::state_table& t) {
        locked out;
        const auto done = t.unlock(client, to_state(id), *f, bytes);
        if (done)
            out.id = to_wire(*done);
        else
            out.status = status_of_state(done.error());
        return out;
    });
}

} // namespace verbena::nfs::v4
