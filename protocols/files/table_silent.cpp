// SPDX-License-Identifier: Apache-2.0
// For NFS version 4.0: clients that don't say when they have reclaimed all, and calls that name no client.
#include "entries.hpp"

namespace verbena::files {

using namespace detail;

result<void> state_table::set_silent(client_id client)
{
    client_entry* c = find_client(client);
    if (c == nullptr)
        return error(errc::stale_client);
    c->silent = true;
    return {};
}

bool state_table::lacks_record(client_id client, share keeps_out) noexcept
{
    const client_entry* const c = find_client(client);
    return c != nullptr && !may_be_granted(*c, keeps_out);
}

share state_table::surely_keeps_out(const open_request& r) noexcept
{
    return r.claim == open_claim::reclaim && r.want == delegation_want::write ? share::both : r.deny;
}

share state_table::may_keep_out(const open_request& r) noexcept
{
    const client_entry* const c = find_client(r.client);
    const share surely = surely_keeps_out(r);
    if (r.want == delegation_want::none || c == nullptr || !c->callable)
        return surely;
    const bool reclaims = r.claim == open_claim::reclaim;
    const bool reads = reclaims ? r.want == delegation_want::read
                                : r.access == share::read && r.want != delegation_want::write;
    const bool writes = !reclaims && r.access == share::both && r.want != delegation_want::read;
    if (writes && options_.write_delegations && !r.leased)
        return share::both;
    if (reads && options_.read_delegations)
        return surely | kept_out_by(delegation_type::read, r.leased);
    return surely;
}

void state_table::drop_revoked(client_id client, const stateid& id) noexcept
{
    state_entry* const s = states_->find(id);
    if (s == nullptr || s->file != nullptr || s->client.id != client || !s->client.silent)
        return;
    client_entry& c = s->client;
    remove(*s);
    if (c.revoked == 0 && !c.recorded)
        record_later(c);
}

void state_table::drop_revoked_until(client_id client, time_point t) noexcept
{
    client_entry* const c = find_client(client);
    if (c == nullptr || !c->silent || c->revoked == 0)
        return;
    for (auto* m = c->states.front(); m != nullptr;) {
        state_entry& s = m->owner;
        m = c->states.next(*m);
        if (is_recallable(s.kind) && s.file == nullptr && static_cast<recallable_entry&>(s).deadline <= t)
            remove(s);
    }
    if (c->revoked == 0 && !c->recorded)
        record_later(*c);
}

void state_table::record_later(client_entry& c) noexcept
{
    by_->unrecorded.push_back(c.unrecorded);
    wake(tending_);
}

bool state_table::is_being_written(client_id client) noexcept
{
    const client_entry* const c = find_client(client);
    return c != nullptr && (c->storing || c->leaving > 0);
}

// Without the record the client could not take that back after the next start, or others' state would stand in its place (7530 9.6.3.4),
// or others would read and write what it keeps them from. A client that has not said "complete" yet is written down with all that it has by
// then. A client of which something was revoked has no record.
result<void> state_table::may_be_granted(const client_entry& c, share keeps_out) noexcept
{
    if ((c.silent && !c.recorded) || (c.recorded && !includes(c.said, keeps_out)))
        return error(errc::busy, "the client is not written down so");
    return {};
}

task<result<void>> state_table::record(client_id client, share keeps_out)
{
    const auto living_one = living(client);
    if (!living_one)
        co_return living_one.error();
    client_entry& c = **living_one;
    c.keeps_out = c.keeps_out | keeps_out;
    if ((c.is_written_down() && !c.storing) || (!c.silent && !c.recorded))
        co_return result<void>();
    const result<void> written = co_await write_record(client);
    if (!written)
        co_return written;
    // Its state may have been taken meanwhile, and the record with it.
    const auto again = living(client);
    if (!again)
        co_return again.error();
    co_return may_be_granted(**again, keeps_out);
}

result<state_holder> state_table::holder_of(const stateid& id) const
{
    if (is_special(id))
        return error(errc::bad_stateid, "a special stateid");
    if (!states_->is_of_this_epoch(id))
        return error(errc::stale_stateid);
    const state_entry* const s = states_->find(id);
    if (s == nullptr && states_->was_taken(id))
        return error(errc::expired);
    if (s == nullptr)
        return error(errc::bad_stateid, "there is none");
    state_holder out;
    out.client = s->client.id;
    if (s->file != nullptr)
        out.file = {s->file->handle, s->via};
    if (s->owner != nullptr) {
        out.has_owner = true;
        out.locks = s->owner->locks;
        out.owner = s->owner->name;
    }
    return out;
}

bool state_table::has_owner(client_id client, bool locks, std::span<const std::byte> owner) noexcept
{
    client_entry* c = find_client(client);
    return c != nullptr && find_owner(*c, locks, owner) != nullptr;
}

result<stateid> state_table::renumber(client_id client, const stateid& id, const exported_file& file,
                                      zero_seqid zero)
{
    const auto s = own(client, id, file, zero, state_kind::open);
    if (!s)
        return s.error();
    (*s)->seqid = next_seqid((*s)->seqid);
    return states_->id_of(**s);
}

} // namespace verbena::files
