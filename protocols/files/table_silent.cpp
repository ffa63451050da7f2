// SPDX-License-Identifier: Apache-2.0
// For NFS version 4.0: clients that don't say when they have reclaimed all, and calls that name no client.
#include "entries.hpp"

namespace verbena::files {

using namespace detail;

// `f(card)`, or false where there is no such client. Without a lock where it has something here.
template<class F>
bool state_table::holds(client_id id, F f) const noexcept
{
    if (const auto known = clients_.find(id); known != clients_.end())
        return f(known->second->card);
    const auto card = commons_.clients().find(id);
    return card != nullptr && f(*card);
}

bool state_table::lacks_record(client_id client, share keeps_out) const noexcept
{
    return holds(client, [keeps_out](const client_card& c) { return !c.may_be_granted(keeps_out); });
}

bool state_table::has_revoked(client_id client) const noexcept
{
    return holds(client, [](const client_card& c) { return c.revoked > 0; });
}

share state_table::surely_keeps_out(const open_request& r) noexcept
{
    return r.claim == open_claim::reclaim && r.want == delegation_want::write ? share::both : r.deny;
}

share state_table::may_keep_out(const open_request& r) noexcept
{
    const share surely = surely_keeps_out(r);
    if (r.want == delegation_want::none)
        return surely;
    if (!holds(r.client, [](const client_card& c) { return c.callable.load(); }))
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
    if (s == nullptr || s->file != nullptr || s->client.id != client || !s->client.card.silent)
        return;
    client_card& c = s->client.card;
    remove(*s);
    if (c.revoked == 0 && !c.record.is_written())
        book_.record_later(c);
}

void state_table::drop_revoked_until(client_id client, time_point t) noexcept
{
    client_entry* const c = find_client(client);
    if (c == nullptr || !c->card.silent || c->card.revoked == 0)
        return;
    for (auto* m = c->states.front(); m != nullptr;) {
        state_entry& s = m->owner;
        m = c->states.next(*m);
        if (is_recallable(s.kind) && s.file == nullptr && static_cast<recallable_entry&>(s).deadline <= t)
            remove(s);
    }
    if (c->card.revoked == 0 && !c->card.record.is_written())
        book_.record_later(c->card);
}

error state_table::not_written_down() noexcept { return {errc::busy, "the client is not written down so"}; }

result<void> state_table::may_be_granted(const client_card& c, share keeps_out) noexcept
{
    if (!c.may_be_granted(keeps_out))
        return not_written_down();
    return {};
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
