// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/v4/v40_clients.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>

namespace verbena::nfs::v4 {

namespace {

constexpr std::size_t longest_key = 1024; // files::limits::owner_bytes

} // namespace

v40_clients::record::record() noexcept = default;

v40_clients::v40_clients(const siphash_key& key, std::uint32_t epoch, duration lease,
                         const session_limits& limits)
    : key_(key), epoch_(epoch), lease_(lease), limits_(limits)
{
}

// No client of a later minor version can have it, as it can't make the number. The same over restarts.
std::string v40_clients::key_of(std::string_view name) const
{
    std::array<char, 32> head{};
    const auto sum = siphash(key_, std::as_bytes(std::span(name)));
    std::snprintf(head.data(), head.size(), "4.0 %016llx ", static_cast<unsigned long long>(sum));
    std::string key(head.data());
    key += name.substr(0, longest_key - key.size());
    return key;
}

// Nobody guesses another one's.
clientid4 v40_clients::make_id()
{
    for (;;) {
        std::array<std::byte, 10> serial{std::byte('i'), std::byte('d')};
        xdr::store_u64(serial.data() + 2, std::uint64_t(epoch_) << 32 | (++last_ & 0xffffffff));
        const clientid4 id = clientid4(epoch_) << 32 | static_cast<std::uint32_t>(siphash(key_, serial));
        if (!by_id_.contains(id))
            return id;
    }
}

verifier4 v40_clients::make_confirm()
{
    std::array<std::byte, 10> serial{std::byte('c'), std::byte('f')};
    xdr::store_u64(serial.data() + 2, std::uint64_t(epoch_) << 32 | (++last_ & 0xffffffff));
    verifier4 out;
    xdr::store_u64(out.data(), siphash(key_, serial));
    return out;
}

void v40_clients::erase_if_empty(names::iterator at)
{
    if (!at->second.confirmed && !at->second.unconfirmed)
        names_.erase(at);
}

void v40_clients::drop_unconfirmed_of(names::iterator at)
{
    record& r = *at->second.unconfirmed;
    unconfirmed_.erase(r.by_age);
    r.peer->second.unconfirmed.erase(r.by_age_of_peer);
    if (!at->second.confirmed || at->second.confirmed->id != r.id)
        by_id_.erase(r.id);
    --count_;
    if (--r.peer->second.clients == 0)
        peers_.erase(r.peer);
    at->second.unconfirmed.reset();
}

void v40_clients::drop_confirmed_of(names::iterator at)
{
    record& r = *at->second.confirmed;
    by_state_.erase(r.state);
    if (!at->second.unconfirmed || at->second.unconfirmed->id != r.id)
        by_id_.erase(r.id);
    --count_;
    if (--r.peer->second.clients == 0)
        peers_.erase(r.peer);
    at->second.confirmed.reset();
}

// It is counted where it calls from now on; what it has open already stays where that was opened.
void v40_clients::move_to(record& confirmed, peers::iterator to) noexcept
{
    ++to->second.clients;
    if (--confirmed.peer->second.clients == 0)
        peers_.erase(confirmed.peer);
    confirmed.peer = to;
}

bool v40_clients::drop_first(std::list<names::iterator>& of)
{
    for (const names::iterator at : of) {
        if (at->second.unconfirmed->confirming)
            continue; // few are
        drop_unconfirmed_of(at);
        erase_if_empty(at);
        return true;
    }
    return false;
}

void v40_clients::drop_unconfirmed(time_point now)
{
    for (auto next = unconfirmed_.begin(); next != unconfirmed_.end();) {
        const names::iterator at = *next++;
        const record& r = *at->second.unconfirmed;
        if (now - r.asked <= lease_)
            return;
        if (r.confirming)
            continue;
        drop_unconfirmed_of(at);
        erase_if_empty(at);
    }
}

// For one more, which the peer's number counts already.
session_table::shortage v40_clients::make_room(peer_entry& peer, time_point now)
{
    if (peer.clients > limits_.clients_per_peer && !drop_first(peer.unconfirmed))
        return session_table::shortage::of_peer;
    if (count_ >= limits_.clients)
        drop_unconfirmed(now);
    if (count_ >= limits_.clients && !drop_first(peer.unconfirmed) && !drop_first(unconfirmed_))
        return session_table::shortage::of_all;
    return session_table::shortage::none;
}

// What keeps somebody from the name of `holder`, for as long as that doesn't yield.
nfsstat4 v40_clients::stands_against(const record& holder, principal_digest who, const verifier4& verifier,
                                     const std::string& group) noexcept
{
    if (holder.who != who)
        return nfsstat4::clid_inuse;
    // With AUTH_SYS anybody claims to be anybody. A client that moved comes again after its lease.
    return holder.verifier != verifier && holder.peer->first != group ? nfsstat4::delay : nfsstat4::ok;
}

v40_clients::made v40_clients::set(const SETCLIENTID4args& args, principal_digest who, std::string_view from,
                                   const std::optional<callback_place>& calls, time_point now,
                                   files::client_id yields)
{
    made out;
    const std::string name(reinterpret_cast<const char*>(args.id.data()), args.id.size());
    const std::string group = peer_group(from, limits_.v6_prefix);
    auto known = names_.find(name);
    const record* const confirmed =
        known != names_.end() && known->second.confirmed ? &*known->second.confirmed : nullptr;
    const bool same = confirmed != nullptr && confirmed->verifier == args.verifier;
    if (confirmed != nullptr && confirmed->state != yields) {
        out.status = stands_against(*confirmed, who, args.verifier, group);
        if (out.status != nfsstat4::ok) {
            out.rival = confirmed->state;
            out.held_by = confirmed->from;
        }
        if (out.status == nfsstat4::clid_inuse) {
            out.netid = confirmed->netid;
            out.address = confirmed->address;
        }
    }
    if (known != names_.end() && known->second.unconfirmed && known->second.unconfirmed->confirming) {
        out.status = nfsstat4::delay;
        out.rival = files::nobody;
    }
    if (out.status != nfsstat4::ok)
        return out;
    // A name of its own, so that what makes room does not take the entry away.
    const clientid4 number = same && confirmed->who == who ? confirmed->id : 0;
    if (known != names_.end() && known->second.unconfirmed) {
        drop_unconfirmed_of(known);
        erase_if_empty(known);
    }
    const auto peer = peers_.try_emplace(group).first;
    ++peer->second.clients;
    out.short_of = make_room(peer->second, now);
    if (out.short_of != session_table::shortage::none) {
        if (--peer->second.clients == 0)
            peers_.erase(peer);
        out.status = nfsstat4::delay;
        return out;
    }
    known = names_.try_emplace(name).first;
    record& r = known->second.unconfirmed.emplace();
    r.id = number != 0 ? number : make_id();
    r.verifier = args.verifier;
    r.confirm = make_confirm();
    r.who = who;
    r.peer = peer;
    r.from = from;
    r.asked = now;
    r.netid = args.cb_location.netid;
    r.address = args.cb_location.addr;
    r.calls = calls;
    r.by_age = unconfirmed_.insert(unconfirmed_.end(), known);
    r.by_age_of_peer = peer->second.unconfirmed.insert(peer->second.unconfirmed.end(), known);
    by_id_[r.id] = known;
    ++count_;
    out.client = r.id;
    out.confirm = r.confirm;
    return out;
}

v40_clients::confirmation v40_clients::begin_confirming(clientid4 id, const verifier4& confirm,
                                                        principal_digest who, time_point now,
                                                        files::client_id yields)
{
    confirmation out;
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) {
        out.status = nfsstat4::stale_clientid;
        return out;
    }
    const names::iterator at = found->second;
    std::optional<record>& confirmed = at->second.confirmed;
    std::optional<record>& unconfirmed = at->second.unconfirmed;
    if (unconfirmed && unconfirmed->id == id && unconfirmed->confirm == confirm) {
        if (unconfirmed->who != who) {
            out.status = nfsstat4::clid_inuse;
        } else if (unconfirmed->confirming) {
            out.status = nfsstat4::delay;
        } else if (now - unconfirmed->asked > lease_) {
            drop_unconfirmed_of(at);
            erase_if_empty(at);
            out.status = nfsstat4::stale_clientid;
        } else if (confirmed && confirmed->id == id) {
            confirmed->confirm = unconfirmed->confirm;
            confirmed->from = std::move(unconfirmed->from);
            confirmed->netid = std::move(unconfirmed->netid);
            confirmed->address = std::move(unconfirmed->address);
            confirmed->calls = unconfirmed->calls;
            out.moved = confirmed->state;
            out.calls = confirmed->calls;
            move_to(*confirmed, unconfirmed->peer);
            drop_unconfirmed_of(at);
        } else {
            if (confirmed && confirmed->state != yields)
                out.status = stands_against(*confirmed, who, unconfirmed->verifier, unconfirmed->peer->first);
            if (out.status != nfsstat4::ok) {
                out.rival = confirmed->state;
                out.held_by = confirmed->from;
                out.name = at->first;
            } else {
                out.key = key_of(at->first);
                out.name = at->first;
                out.from = unconfirmed->from;
                out.older = confirmed ? confirmed->state : files::nobody;
                out.calls = unconfirmed->calls;
                states place;
                place.emplace(files::nobody, at);
                unconfirmed->in_states = place.extract(place.begin());
                unconfirmed->confirming = out.confirms = true;
            }
        }
    } else if (confirmed && confirmed->id == id && confirmed->confirm == confirm) {
        out.status = confirmed->who == who ? nfsstat4::ok : nfsstat4::clid_inuse; // a repeat
    } else {
        out.status = nfsstat4::stale_clientid;
    }
    return out;
}

void v40_clients::end_confirming(clientid4 id, files::client_id state) noexcept
{
    const auto found = by_id_.find(id);
    if (found == by_id_.end() || !found->second->second.unconfirmed ||
        found->second->second.unconfirmed->id != id)
        return;
    const names::iterator at = found->second;
    at->second.unconfirmed->confirming = false;
    if (state == files::nobody)
        return;
    if (at->second.confirmed)
        drop_confirmed_of(at);
    record& r = *at->second.unconfirmed;
    unconfirmed_.erase(r.by_age);
    r.peer->second.unconfirmed.erase(r.by_age_of_peer);
    r.state = state;
    r.in_states.key() = state;
    by_state_.insert(std::move(r.in_states));
    at->second.confirmed = std::move(at->second.unconfirmed);
    at->second.unconfirmed.reset();
}

files::client_id v40_clients::state_of(clientid4 id) const noexcept
{
    const auto found = by_id_.find(id);
    if (found == by_id_.end())
        return files::nobody;
    const std::optional<record>& confirmed = found->second->second.confirmed;
    return confirmed && confirmed->id == id ? confirmed->state : files::nobody;
}

files::client_id v40_clients::state_of_name(std::span<const std::byte> name) const
{
    const auto found = names_.find(std::string(reinterpret_cast<const char*>(name.data()), name.size()));
    return found == names_.end() || !found->second.confirmed ? files::nobody : found->second.confirmed->state;
}

std::vector<v40_clients::client_report> v40_clients::clients_behind(files::client_id last,
                                                                    std::size_t most) const
{
    std::vector<client_report> all;
    for (auto at = by_state_.upper_bound(last); at != by_state_.end() && all.size() < most; ++at) {
        const record& r = *at->second->second.confirmed;
        all.push_back({at->second->first, r.id, r.from, at->first});
    }
    return all;
}

std::vector<files::client_id> v40_clients::states_of(std::string_view from) const
{
    const std::string group = peer_group(from, limits_.v6_prefix);
    std::vector<files::client_id> all;
    for (const auto& [state, at] : by_state_) {
        if (at->second.confirmed->peer->first == group)
            all.push_back(state);
    }
    return all;
}

bool v40_clients::is_of(files::client_id state, std::string_view from) const
{
    return peer_of(state) == peer_group(from, limits_.v6_prefix);
}

std::string_view v40_clients::peer_of(files::client_id state) const noexcept
{
    const auto found = by_state_.find(state);
    return found == by_state_.end() ? std::string_view()
                                    : std::string_view(found->second->second.confirmed->peer->first);
}

bool v40_clients::may_expire_lapsed(session_table::shortage of, std::string_view from, time_point now)
{
    if (of == session_table::shortage::of_all)
        return last_expired_.may(now);
    const auto peer = peers_.find(peer_group(from, limits_.v6_prefix));
    return of == session_table::shortage::of_peer && peer != peers_.end() &&
           peer->second.last_expired.may(now);
}

void v40_clients::forget(files::client_id state)
{
    const auto found = by_state_.find(state);
    if (found == by_state_.end())
        return;
    const names::iterator at = found->second;
    // What would only move its callbacks goes with it: else its number would come back without what it had.
    if (at->second.unconfirmed && at->second.unconfirmed->id == at->second.confirmed->id)
        drop_unconfirmed_of(at);
    drop_confirmed_of(at);
    erase_if_empty(at);
}

} // namespace verbena::nfs::v4
