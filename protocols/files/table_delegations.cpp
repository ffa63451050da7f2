// SPDX-License-Identifier: Apache-2.0
// Delegations: whether one is granted, and how it comes back.
#include "entries.hpp"

#include <algorithm>
#include <chrono>

namespace verbena::files {

using namespace detail;

namespace {

// No client is asked more often to give back what it does not use.
constexpr duration between_requests = std::chrono::seconds(10);

// By whomever: to a lease of the back end all are one.
bool is_written(const file_entry& f) noexcept { return f.accesses[1] != 0 || f.cuts != 0; }

// What is left of a limit when clients are asked.
constexpr std::size_t spare(std::size_t limit) noexcept
{
    return std::min(limit, std::max<std::size_t>(limit / 8, 1));
}

} // namespace

void recent_recalls::turn(time_point now) noexcept
{
    if (now - turned_ < rest_)
        return;
    current_ ^= 1;
    filters_[current_] = {};
    if (now - turned_ >= 2 * rest_)
        filters_[current_ ^ 1] = {};
    turned_ = now;
}

void recent_recalls::add(std::uint64_t hash, time_point now) noexcept
{
    turn(now);
    for (unsigned i = 0; i < 3; ++i, hash >>= 13)
        filters_[current_][hash % bits / 64] |= std::uint64_t(1) << (hash % 64);
}

bool recent_recalls::contains(std::uint64_t hash, time_point now) noexcept
{
    turn(now);
    for (const auto& filter : filters_) {
        bool all = true;
        std::uint64_t h = hash;
        for (unsigned i = 0; i < 3; ++i, h >>= 13)
            all = all && (filter[h % bits / 64] >> (h % 64) & 1) != 0;
        if (all)
            return true;
    }
    return false;
}

gauge& state_table::gauge_of(delegation_type type) noexcept
{
    return type == delegation_type::read ? stats_.read_delegations : stats_.write_delegations;
}

// --- To grant

bool state_table::others_contradict(const client_entry& c, std::uint32_t via, file_entry& f,
                                    delegation_type type) noexcept
{
    // What a client has of another kind it may use without calls, and also while that is being fenced.
    for (auto* m = f.others > 0 ? f.recallables.front() : nullptr; m != nullptr; m = f.recallables.next(*m)) {
        if (m->owner.kind == state_kind::other && !is_of(m->owner, c.id, via) &&
            (type == delegation_type::write ||
             static_cast<const other_entry&>(m->owner).type() == lock_type::write))
            return true;
    }
    for (auto* m = f.fences.front(); m != nullptr; m = f.fences.next(*m))
        if (type == delegation_type::write || m->owner.type == lock_type::write)
            return true;
    if (book_.stats().hosts.value() > 0 && is_locked_by_hosts(f, type))
        return true;
    // Opens that are begun count among them.
    if (type == delegation_type::read && f.accesses[1] == 0 && f.cuts == 0)
        return false;
    const auto contradicts = [&](share access, share deny) {
        return type == delegation_type::write || any(access & share::write) || any(deny & share::read);
    };
    unsigned seen = 0;
    for (auto* m = f.opens.front(); m != nullptr; m = f.opens.next(*m)) {
        const auto& o = static_cast<open_entry&>(m->owner);
        if (++seen > most_opens_looked_at || (!is_of(o, c.id, via) && contradicts(o.access, o.deny)))
            return true;
    }
    return is_pending_by_others(c.id, via, f, type);
}

// Their locks have no opens that would stand against it. Locks for which the back end is being asked count, too.
bool state_table::is_locked_by_hosts(file_entry& f, delegation_type type) noexcept
{
    const auto is_against = [type](lock_type of) {
        return conflicts(type, of == lock_type::read ? operation::lock_read : operation::lock_write);
    };
    for (auto* p = f.pending_locks.front(); p != nullptr; p = f.pending_locks.next(*p))
        if (!p->has_open_ && is_against(p->type_))
            return true;
    std::size_t seen = 0; // beyond so many nobody looks whose they are, as of opens
    for (auto* m = f.locks.front(); m != nullptr; m = f.locks.next(*m)) {
        const auto& l = static_cast<const lock_entry&>(m->owner);
        seen += l.open == nullptr ? l.ranges.size() : 1;
        if (seen > most_opens_looked_at)
            return true;
        if (l.open == nullptr)
            for (const locked_range& one : l.ranges.all())
                if (is_against(one.type))
                    return true;
    }
    return false;
}

std::optional<no_delegation> state_table::refuse_delegation(const open_request& r, client_entry& c,
                                                            file_entry& f, delegation_type type) noexcept
{
    if (!c.card.callable)
        return no_delegation::not_callable;
    if (!(type == delegation_type::read ? options_.read_delegations : options_.write_delegations))
        return no_delegation::unsuited;
    const bool of_client = c.card.recallables - c.card.others >= options_.limits.delegations_per_client;
    if (of_client || commons_.clients().use.delegations >= options_.limits.delegations) {
        stats_.refused_limits.add(limited::delegations, of_client ? limit_of::client : limit_of::all);
        keep_from_limits(c);
        return no_delegation::resource;
    }
    if (r.leased && (c.card.revoked > 0 || now() < c.card.leases_from.load()))
        return no_delegation::contention;
    if (r.claim == open_claim::reclaim ? now() < c.card.trusted_from.load() : is_contended(c, f))
        return no_delegation::contention;
    return std::nullopt;
}

// Which one the open brings, but for `refused`, which stands against one that is new alone.
std::optional<delegation_type> state_table::may_delegate(const open_request& r, client_entry& c,
                                                         file_entry& f, opened& out,
                                                         std::optional<no_delegation>& refused)
{
    out.why = no_delegation::not_wanted;
    if (r.want == delegation_want::none)
        return std::nullopt;
    out.why = no_delegation::unsuited;
    const bool reclaims = r.claim == open_claim::reclaim;
    if (reclaims && r.want == delegation_want::any)
        return std::nullopt;
    if (const auto has = by_->states.find(state_key{&c, &f, r.file.via}); has != by_->states.end()) {
        const auto type = static_cast<const delegation_entry*>(*has)->type;
        if (type == delegation_type::read && r.want == delegation_want::write)
            out.why = no_delegation::no_upgrade;
        if (type == delegation_type::write && r.want == delegation_want::read)
            out.why = no_delegation::no_downgrade;
        return std::nullopt;
    }
    std::optional<delegation_type> type;
    if (reclaims ? r.want == delegation_want::write
                 : r.access == share::both && r.want != delegation_want::read)
        type = delegation_type::write;
    else if (reclaims || (r.access == share::read && r.want != delegation_want::write))
        type = delegation_type::read;
    if (!type)
        return std::nullopt;
    out.why = no_delegation::contention;
    if (others_contradict(c, r.file.via, f, *type))
        return std::nullopt;
    // A client that reclaims has it already, whatever began since the restart.
    if (!reclaims && commons_.operations().is_changed(f.handle))
        return std::nullopt;
    if (r.leased && !reclaims && is_written(f))
        return std::nullopt;
    // Two readers may have one each. Beside a writer's there is no open of another client to bring one.
    if (*type == delegation_type::write && delegation_of(f) != nullptr)
        return std::nullopt;
    out.why = no_delegation::resource;
    if (!c.card.may_be_granted(kept_out_by(*type, r.leased)))
        return std::nullopt;
    refused = refuse_delegation(r, c, f, *type);
    if (refused && !reclaims) {
        out.why = *refused;
        return std::nullopt;
    }
    return type;
}

void state_table::decide_delegation(const open_request& r, client_entry& c, file_entry& f, opened& out)
{
    std::optional<no_delegation> refused;
    const auto type = may_delegate(r, c, f, out, refused);
    if (!type)
        return;
    const bool reclaims = r.claim == open_claim::reclaim;
    if (r.leased && !reclaims) { // nobody has asked for a lease
        out.why = no_delegation::unsuited;
        return;
    }
    if (!c.card.record.note(kept_out_by(*type, r.leased), c.card.silent)) {
        out.why = no_delegation::resource; // as may_delegate() has it: its record went since
        return;
    }
    delegation_entry& d = grant(c, f, *type, r);
    // Others may have written since the restart.
    const share said =
        book_.grace() == grace_period::phase::over ? share::none : c.card.reclaims_against.load();
    const bool kept_out_nobody = reclaims && !includes(said, kept_out_by(*type, r.leased));
    const bool unwanted = refused || kept_out_nobody || (reclaims && (r.gives_back || r.leased));
    out.delegation = granted_delegation{states_->id_of(d), *type, unwanted};
    if (unwanted) // it had it, so it keeps it until it has returned it (RFC 8881 10.2.1)
        recall(d);
}

std::optional<stateid> state_table::reserve_delegation(pending_open& p)
{
    assert(p.table_ == this && !p.reserved_ && "not a begun open of this table");
    const open_request& r = p.request_;
    const auto c = living(r.client);
    if (!r.leased || !c || !takes_leases_)
        return std::nullopt;
    file_entry& f = *p.file_;
    opened out;
    std::optional<no_delegation> refused;
    const auto type = may_delegate(r, **c, f, out, refused);
    // What is taken back while it is written, or beyond a limit, is recalled, and needs no lease.
    const bool reclaims = r.claim == open_claim::reclaim;
    if (type != delegation_type::read || refused || (reclaims && is_written(f)))
        return std::nullopt;
    if (!(*c)->card.record.note(kept_out_by(*type, r.leased), (*c)->card.silent))
        return std::nullopt;
    delegation_entry& d = grant(**c, f, *type, r);
    d.leased = delegation_entry::lease_state::reserved;
    p.reserved_ = states_->id_of(d);
    return p.reserved_;
}

delegation_entry* state_table::reserved_of(const pending_open& p) noexcept
{
    state_entry* s = p.reserved_ ? states_->find(*p.reserved_) : nullptr;
    return s != nullptr && s->file != nullptr ? static_cast<delegation_entry*>(s) : nullptr;
}

void state_table::settle_reserved(pending_open& p, opened& out)
{
    delegation_entry* const d = reserved_of(p);
    p.reserved_.reset();
    out.why = no_delegation::contention;
    if (!p.lease_ && p.why_no_lease_ != storage::no_lease::in_use)
        out.why = no_delegation::resource;
    if (!p.lease_)
        stats_.lease_refusals[std::size_t(p.why_no_lease_)].add();
    if (d == nullptr) // its client's state was taken
        return;
    const bool is_wanted = d->leased == delegation_entry::lease_state::unwanted;
    if (!takes_leases_)
        p.lease_.reset();
    const bool keeps = p.lease_ != nullptr && !is_wanted && !p.request_.gives_back;
    if (!keeps && p.request_.claim != open_claim::reclaim) {
        p.lease_.reset();
        if (is_wanted) // as after a recall
            recent_->add(d->file->hash, now());
        return remove(*d);
    }
    d->leased = p.lease_ ? delegation_entry::lease_state::held : delegation_entry::lease_state::none;
    d->lease = std::move(p.lease_);
    out.delegation = granted_delegation{states_->id_of(*d), d->type, !keeps};
    if (!keeps) // it had it
        recall(*d);
}

delegation_entry& state_table::grant(client_entry& c, file_entry& f, delegation_type type,
                                     const open_request& r)
{
    auto& d =
        enter(*states_, by_->states, std::make_unique<delegation_entry>(c, f, r.file.via, type, r.change));
    d.by = r.opened;
    add_recallable(d);
    gauge_of(type).add(1);
    ++commons_.clients().use.delegations;
    keep_from_limits(c);
    return d;
}

// --- To get it back

// A local process can only wait. So what a client whose lease is over has goes as soon as it makes one wait, as it does for whoever asks the table.
void state_table::give_way_if_gone(delegation_entry& d) noexcept
{
    client_entry& c = d.client;
    if (c.card.state != client_state::courtesy || !d.is_recalled ||
        d.leased != delegation_entry::lease_state::held || c.in_way.is_linked())
        return;
    c.in_way_from = now();
    by_->in_way.push_front(c.in_way);
    wake(tending_);
}

void state_table::recall_any(std::size_t keep)
{
    for (const auto& [id, c] : clients_)
        if (c->card.delegations() > keep)
            handler_.recall_any(id, keep);
}

void state_table::ask_back(client_entry& c, std::size_t keep) noexcept
{
    time_point next = c.card.next_ask_back.load();
    if (now() < next || !c.card.callable || c.card.delegations() <= keep)
        return;
    // By one of the tables that want it.
    if (c.card.next_ask_back.compare_exchange_strong(next, now() + between_requests))
        handler_.recall_any(c.id, keep);
}

// Where a limit is near, clients are asked for what they don't use, so that those get some that do. Beyond it none is granted.
void state_table::keep_from_limits(client_entry& c) noexcept
{
    const limits& most = options_.limits;
    if (c.card.recallables - c.card.others > most.delegations_per_client - spare(most.delegations_per_client))
        ask_back(c, most.delegations_per_client * 3 / 4);
    const std::size_t all = commons_.clients().use.delegations;
    if (all > most.delegations - spare(most.delegations))
        ask_all_back(most.delegations);
}

// Three quarters of what there may be are to be left. Who has less than the others keeps it.
void state_table::ask_all_back(std::size_t of) noexcept
{
    if (now() < next_ask_back_)
        return;
    next_ask_back_ = now() + between_requests;
    std::size_t holders = 0;
    for (const auto& [id, one] : clients_)
        holders += one->card.delegations() > 0;
    for (const auto& [id, one] : clients_)
        ask_back(*one, of * 3 / 4 / std::max<std::size_t>(holders, 1));
}

// Their shard goes, and with it whoever is told that one is wanted.
void state_table::release_leases() noexcept
{
    takes_leases_ = false;
    for (const auto& [id, c] : clients_)
        for (auto* m = c->states.front(); m != nullptr; m = c->states.next(*m))
            if (m->owner.kind == state_kind::delegation)
                static_cast<delegation_entry&>(m->owner).lease.reset();
}

void state_table::lacks_leases() { ask_all_back(commons_.clients().use.delegations); }

std::optional<state_table::writer> state_table::writer_of(const exported_file& file, client_id who) noexcept
{
    age();
    file_entry* f = find_file(file.key);
    const delegation_entry* const held = f == nullptr ? nullptr : delegation_of(*f);
    if (held == nullptr)
        return std::nullopt;
    const delegation_entry& d = *held;
    if (d.type != delegation_type::write || d.is_recalled || !d.change || is_of(d, who, file.via) ||
        d.client.card.state != client_state::active)
        return std::nullopt;
    return writer{d.client.id, states_->id_of(d), *d.change, d.via};
}

void state_table::note_change(const stateid& id, std::optional<std::uint64_t> change) noexcept
{
    state_entry* s = states_->find(id);
    if (s != nullptr && s->kind == state_kind::delegation)
        static_cast<delegation_entry&>(*s).change = change;
}

std::optional<state_table::answer> state_table::note_answer(const stateid& id, std::uint64_t change,
                                                            bool has_own_size, std::uint64_t known) noexcept
{
    state_entry* s = states_->find(id);
    if (s == nullptr || s->kind != state_kind::delegation)
        return std::nullopt;
    auto& d = static_cast<delegation_entry&>(*s);
    if (d.is_recalled || !d.change) // what is revoked was recalled
        return std::nullopt;
    const bool modified = change != *d.change || has_own_size;
    // Behind one that has modified it the file is as the server has it again, and may be another one than was told.
    const std::uint64_t least = std::max(*d.change, d.told) + (!modified && d.was_modified);
    d.told = std::max(known, least) + modified;
    d.was_modified = modified;
    return answer{modified, d.told};
}

result<void> state_table::return_delegation(client_id client, const stateid& id, const exported_file& file,
                                            zero_seqid zero)
{
    const auto c = living(client);
    if (!c)
        return c.error();
    const auto s = check(**c, id, &file, zero);
    if (!s)
        return s.error();
    if ((*s)->kind != state_kind::delegation)
        return error(errc::bad_stateid, "not a delegation");
    remove(**s);
    return {};
}

// Off the file, be it revoked or gone.
void state_table::leave_delegation(delegation_entry& d) noexcept
{
    d.lease.reset(); // before anybody who waits for this goes on
    d.by.reset();    // one that is revoked stays, and keeps no file
    gauge_of(d.type).add(-1);
    --commons_.clients().use.delegations;
}

} // namespace verbena::files
