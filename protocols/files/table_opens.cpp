// SPDX-License-Identifier: Apache-2.0
// Opens and their share reservations; entries of files; how a stateid is checked.
#include "entries.hpp"

#include <algorithm>

namespace verbena::files {

using namespace detail;

namespace {

void count_bits(std::array<std::uint32_t, 2>& counts, share s, int by) noexcept
{
    for (std::size_t i = 0; i < 2; ++i)
        if (any(s & halves[i]))
            counts[i] += std::uint32_t(by);
}

/// The union of all pairs that `access` and `deny` include, and those pairs.
struct pairs_within {
    pairs_within(share_pairs opened, share a, share d) noexcept
    {
        for (unsigned i = 0; i < 16; ++i) {
            const share access = share(i / 4), deny = share(i % 4);
            if ((opened >> i & 1) != 0 && includes(a, access) && includes(d, deny)) {
                pairs |= share_pairs(1u << i);
                all_access = all_access | access;
                all_deny = all_deny | deny;
            }
        }
    }
    share_pairs pairs = 0;
    share all_access = share::none;
    share all_deny = share::none;
};

} // namespace

// --- Entries of files

file_entry* state_table::find_file(const storage::handle& h) noexcept
{
    const auto it = files_->find(std::pair(commons_.presence().hash(h), &h));
    return it == files_->end() ? nullptr : it->get();
}

file_entry& state_table::file_of(const storage::handle& h)
{
    if (file_entry* found = find_file(h))
        return *found;
    const std::uint64_t hash = commons_.presence().hash(h);
    auto made = std::make_unique<file_entry>(h, hash);
    file_entry& f = *made;
    files_->insert(std::move(made));
    commons_.presence().add(hash); // before what is under way is looked at, and when there is memory for it
    stats_.files.add(1);
    return f;
}

void state_table::release_file(file_entry& f) noexcept
{
    if (!f.has_nothing())
        return;
    commons_.presence().remove(f.hash);
    local_files_ -= f.local != nullptr;
    files_->erase(files_->find(std::pair(f.hash, &f.handle)));
    stats_.files.add(-1);
}

// Something went that others may have waited for: no lock, for that is unlocked(). The file may go with it.
void state_table::changed(file_entry& f) noexcept
{
    wake(f.waiters); // who runs later
    release_file(f);
}

// --- Stateids

result<state_entry*> state_table::check(client_entry& c, const stateid& id, const exported_file* file,
                                        zero_seqid zero) noexcept
{
    // RFC 8881 8.2.4, in its order.
    if (is_special(id))
        return error(errc::bad_stateid, "a special stateid");
    if (!states_->is_of_this_epoch(id))
        return error(errc::stale_stateid);
    state_entry* s = states_->find(id);
    if (s == nullptr && states_->revoked_from(id) == c.id)
        return error(errc::admin_revoked, "what it named was lost");
    if (s == nullptr)
        return error(errc::bad_stateid, "there is none");
    if (file != nullptr && s->file != nullptr && !(s->file->handle == file->key))
        return error(errc::bad_stateid, "of another file");
    // The open_file behind it was made by that export's back end, for the user that the caller is there. By another export
    // the caller may be another user, and may not be allowed to write.
    if (file != nullptr && s->file != nullptr && s->via != file->via)
        return error(errc::bad_stateid, "of another export of the file");
    if (&s->client != &c)
        return error(errc::bad_stateid, "of another client");
    if (s->file == nullptr)
        return error(errc::deleg_revoked);
    if (id.seqid == 0 && zero == zero_seqid::newest)
        return s;
    if (is_behind(s->seqid, id.seqid))
        return error(errc::bad_stateid, "a number that was never given");
    if (id.seqid != s->seqid)
        return error(errc::old_stateid);
    return s;
}

// The client's, and of that kind.
result<state_entry*> state_table::own(client_id client, const stateid& id, const exported_file& file,
                                      zero_seqid zero, state_kind kind) noexcept
{
    const auto c = living(client);
    if (!c)
        return c.error();
    auto s = check(**c, id, &file, zero);
    if (s && (*s)->kind != kind)
        return error(errc::bad_stateid, "of another kind");
    return s;
}

state_entry* state_table::state_of(owner_entry& o, file_entry& f, std::uint32_t via) noexcept
{
    const auto it = by_->states.find(state_key{&o, &f, via});
    return it == by_->states.end() ? nullptr : *it;
}

void state_table::remove(state_entry& s) noexcept
{
    switch (s.kind) {
    case state_kind::open: return remove_open(static_cast<open_entry&>(s));
    case state_kind::lock: return remove_lock(static_cast<lock_entry&>(s));
    case state_kind::delegation:
    case state_kind::other: return remove_recallable(static_cast<recallable_entry&>(s));
    }
}

result<void> state_table::test_stateid(client_id client, const stateid& id)
{
    const auto c = living(client, true);
    if (!c)
        return c.error();
    const auto s = check(**c, id, nullptr, zero_seqid::newest);
    if (!s)
        return s.error();
    return {};
}

// --- Opens

void state_table::set_shares(open_entry& o, share access, share deny) noexcept
{
    count_bits(o.file->accesses, o.access, -1);
    count_bits(o.file->denies, o.deny, -1);
    o.access = access;
    o.deny = deny;
    count_bits(o.file->accesses, access, 1);
    count_bits(o.file->denies, deny, 1);
    for (std::size_t i = 0; i < 2; ++i)
        if (!any(access & halves[i]))
            o.by[i].reset();
}

result<opened> state_table::open(const open_request& r)
{
    pending_open p;
    const result<void> begun = begin_open(r, p);
    if (!begun)
        return begun.error();
    return commit(p);
}

result<void> state_table::may_open(client_id client, std::span<const std::byte> owner)
{
    const auto c = living(client);
    if (!c)
        return c.error();
    if (owner.size() > options_.limits.owner_bytes)
        return error(errc::invalid, "owner of an open");
    if (const auto may = may_begin_anew(**c); !may)
        return may;
    if (const auto lacking = lacks_for_open(**c, owner.size()))
        return refuse(*lacking, errc::too_many_opens);
    return {};
}

result<void> state_table::begin_open(const open_request& r, pending_open& p)
{
    assert(p.table_ == nullptr && "a pending_open is used twice");
    const auto living_one = living(r.client);
    if (!living_one)
        return living_one.error();
    client_entry& c = **living_one;
    if (!any(r.access) || unsigned(r.access) > 3 || unsigned(r.deny) > 3 ||
        r.owner.size() > options_.limits.owner_bytes)
        return error(errc::invalid, "access, deny or owner of an open");
    if (r.claim == open_claim::reclaim) {
        const bool of_writer = r.want == delegation_want::write;
        if (const auto may = check_reclaim(c, of_writer ? share::both : r.deny); !may)
            return may;
    } else if (r.claim == open_claim::under_delegation) {
        const auto s = check(c, r.delegation, &r.file, zero_seqid::newest);
        if (!s)
            return s.error();
        if ((*s)->kind != state_kind::delegation)
            return error(errc::bad_stateid, "not a delegation");
        if (static_cast<delegation_entry*>(*s)->type == delegation_type::read &&
            (any(r.access & share::write) || any(r.deny & share::read)))
            return error(errc::bad_stateid, "a read delegation allows no such open");
    } else if (const auto may = may_begin_anew(c); !may) {
        return may;
    }

    file_entry* f = find_file(r.file.key);
    if (const auto shares = decide_shares(f, demand(r)); !shares) {
        if (r.claim == open_claim::reclaim)
            return refuse(errc::reclaim_conflict, "another client reclaimed the file",
                          stats_.conflicting_reclaims);
        if (shares.error() == errc::share_denied)
            stats_.share_denials.add();
        return shares;
    }
    const owner_entry* owner = find_owner(c, false, r.owner);
    const bool grows = f == nullptr || owner == nullptr ||
                       by_->states.find(state_key{owner, f, r.file.via}) == by_->states.end();
    if (grows && !r.promised) {
        if (const auto lacking = lacks_for_open(c, owner == nullptr ? r.owner.size() : 0))
            return refuse(*lacking, errc::too_many_opens);
    }
    p.file_ = &file_of(r.file.key);
    p.table_ = this; // from here on there is something to undo
    p.request_ = r;
    ++p.file_->pins;
    ++c.card.pending;
    c.opening.push_back(p.of_client_);
    p.file_->pending.push_back(p);
    count_bits(p.file_->accesses, r.access, 1);
    p.file_->cuts += r.truncates;
    count_bits(p.file_->denies, r.deny, 1);
    return {};
}

pending_open::~pending_open()
{
    if (table_ == nullptr)
        return;
    unlink();
    count_bits(file_->accesses, request_.access, -1);
    file_->cuts -= request_.truncates;
    count_bits(file_->denies, request_.deny, -1);
    if (delegation_entry* d = table_->reserved_of(*this))
        table_->remove(*d);
    if (of_client_.is_linked())
        --table_->find_client(request_.client)->card.pending;
    of_client_.unlink();
    --file_->pins;
    table_->changed(*file_);
}

// All that its client has is taken. It stands in nobody's way any more, but that a cut of the file is still under way.
void state_table::drop_pending(pending_open& p) noexcept
{
    file_entry& f = *p.file_;
    count_bits(f.accesses, p.request_.access, -1);
    count_bits(f.denies, p.request_.deny, -1);
    p.request_.access = p.request_.deny = share::none;
    p.dropped_.store(true, std::memory_order_release);
    --find_client(p.request_.client)->card.pending;
    p.of_client_.unlink();
    wake(f.waiters);
}

bool state_table::is_lapsed(client_id client, client_id who) noexcept
{
    const client_entry* const c = find_client(client);
    return c != nullptr && gives_way(*c, who);
}

result<void> state_table::may_commit(const pending_open& p) noexcept
{
    assert(p.table_ == this && "not a begun open of this table");
    const auto living_one = living(p.request_.client);
    if (!living_one)
        return living_one.error();
    if (p.is_dropped())
        return error(errc::expired, "what the client had was taken");
    return {};
}

result<opened> state_table::commit(pending_open& p)
{
    if (const auto may = may_commit(p); !may)
        return may.error();
    const open_request& r = p.request_;
    client_entry& c = *find_client(r.client);
    const share keeps_out = surely_keeps_out(r);
    if (!c.card.record.note(keeps_out, c.card.silent))
        return not_written_down();
    file_entry& f = *p.file_;
    owner_entry& owner = owner_of(c, false, r.owner);
    auto* o = static_cast<open_entry*>(state_of(owner, f, r.file.via));
    if (o == nullptr) {
        try {
            o = &enter(*states_, by_->states, std::make_unique<open_entry>(c, owner, f, r.file.via));
        } catch (...) {
            release_owner(owner);
            throw;
        }
        c.states.push_back(o->of_client);
        f.opens.push_back(o->of_file);
        owner.states.push_back(o->of_owner);
        ++f.states;
        c.card.count(&use_counts::opens, 1);
        stats_.opens.add(1);
    } else {
        o->seqid = next_seqid(o->seqid);
    }
    o->opened |= share_pairs(1u << pair_of(r.access, r.deny));
    o->hears_of_locks |= r.hears_of_locks;
    set_shares(*o, o->access | r.access, o->deny | r.deny);
    for (std::size_t i = 0; i < 2; ++i)
        if (any(r.access & halves[i]))
            o->by[i] = r.opened;
    if (r.claim == open_claim::reclaim)
        stats_.reclaims.add();

    // From here on the open itself counts.
    p.unlink();
    count_bits(f.accesses, r.access, -1);
    count_bits(f.denies, r.deny, -1);
    f.cuts -= r.truncates;
    if (r.truncates)
        wake(f.waiters);
    --c.card.pending;
    p.of_client_.unlink();
    --f.pins;
    p.table_ = nullptr;

    opened out;
    out.id = states_->id_of(*o);
    // What it reclaimed under a lease before goes: the lease would not outlive the first write.
    if (r.claim == open_claim::reclaim && any(r.access & share::write)) {
        const auto own = by_->states.find(state_key{&c, &f, r.file.via});
        if (own != by_->states.end() &&
            static_cast<delegation_entry&>(**own).leased != delegation_entry::lease_state::none)
            recall(static_cast<delegation_entry&>(**own));
    }
    if (p.reserved_)
        settle_reserved(p, out);
    else
        decide_delegation(r, c, f, out);
    p.request_.opened.reset(); // what is open has it
    return out;
}

result<stateid> state_table::downgrade(client_id client, const stateid& id, const exported_file& file,
                                       share access, share deny, zero_seqid zero)
{
    const auto s = own(client, id, file, zero, state_kind::open);
    if (!s)
        return s.error();
    auto& o = static_cast<open_entry&>(**s);
    if (!any(access) || unsigned(access) > 3 || unsigned(deny) > 3)
        return error(errc::invalid, "access or deny of a downgrade");
    const pairs_within left(o.opened, access, deny);
    if (left.all_access != access || left.all_deny != deny)
        return error(errc::invalid, "not the union of some of its opens");
    o.opened = left.pairs;
    o.seqid = next_seqid(o.seqid);
    set_shares(o, access, deny); // nobody waits for a share
    return states_->id_of(o);
}

result<void> state_table::close(client_id client, const stateid& id, const exported_file& file,
                                zero_seqid zero, back_end_locks* unsettled)
{
    const auto s = own(client, id, file, zero, state_kind::open);
    if (!s)
        return s.error();
    auto& o = static_cast<open_entry&>(**s);
    if (unsettled != nullptr && o.file->local != nullptr)
        for (auto* m = o.locks.front(); m != nullptr && *unsettled == nullptr; m = o.locks.next(*m))
            if (!m->owner.ranges.empty())
                *unsettled = o.file->local;
    remove_open(o);
    return {};
}

result<void> state_table::close_all(client_id client, std::span<const std::byte> owner)
{
    const auto c = living(client);
    if (!c)
        return c.error();
    // With its last state it is no more. One without any is what an open left that found no memory.
    while (owner_entry* const o = find_owner(**c, false, owner)) {
        if (o->states.empty())
            release_owner(*o);
        else
            remove(o->states.front()->owner);
    }
    return {};
}

void state_table::remove_open(open_entry& o) noexcept
{
    file_entry& f = *o.file;
    owner_entry& owner = *o.owner;
    bool had_locks = false;
    while (auto* l = o.locks.front())
        had_locks |= erase_lock(l->owner);
    set_shares(o, share::none, share::none);
    const std::uint32_t via = o.via;
    by_->states.erase(by_->states.find(state_key{&owner, &f, via}));
    o.client.card.count(&use_counts::opens, -1);
    --f.states;
    stats_.opens.add(-1);
    client_entry& c = o.client;
    states_->remove(o);
    release_owner(owner);
    let_go_locally(f);
    return_at_close(c, via, f);
    // Without an open of the file it can't lock anything of it.
    if (end_waits(c, via, f) || had_locks)
        tell_waiters(f);
    changed(f);
}

bool state_table::is_denied_removal(const storage::handle& file, client_id who) noexcept
{
    file_entry* const f = find_file(file);
    if (f == nullptr || f->denies[1] == 0)
        return false;
    for (auto* m = f->opens.front(); m != nullptr; m = f->opens.next(*m)) {
        const auto& o = static_cast<open_entry&>(m->owner);
        if (o.client.id != who && any(o.deny & share::write) && !gives_way(o.client, who))
            return true;
    }
    for (auto* p = f->pending.front(); p != nullptr; p = f->pending.next(*p)) {
        const open_request& r = p->request_;
        if (r.client != who && any(r.deny & share::write) && !is_lapsed(r.client, who))
            return true;
    }
    return false;
}

} // namespace verbena::files
