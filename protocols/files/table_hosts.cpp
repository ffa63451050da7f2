// SPDX-License-Identifier: Apache-2.0
// What hosts, which have no lease, lock by owners alone, as NLM does.
#include "entries.hpp"

#include <verbena/core/printable.hpp>

#include <chrono>

namespace verbena::files {

using namespace detail;

result<client_entry*> state_table::living_host(client_id id) noexcept
{
    auto c = living(id);
    if (c && !(*c)->card.is_host)
        return error(errc::invalid, "a client with a lease locks by its opens");
    return c;
}

result<void> state_table::lock_by_owner(const owner_lock& r, lock_holder* holder, pending_lock* local)
{
    const auto host = living_host(r.client);
    if (!host)
        return host.error();
    if (r.bytes.offset > r.bytes.last || r.owner.size() > options_.limits.owner_bytes)
        return error(errc::invalid, "range or owner of a lock");
    lock_request asked;
    asked.client = r.client;
    asked.file = r.file;
    asked.owner = r.owner;
    asked.bytes = r.bytes;
    asked.type = r.type;
    asked.wait = r.wait;
    asked.reclaim = r.reclaim;
    const kept_file kept(*this, r.file.key);
    owner_entry* const known = find_owner(**host, true, r.owner);
    lock_entry* const had = known != nullptr ? locks_by(*known, nullptr, kept.file) : nullptr;
    lock_place at{**host, kept.file, r.owner, nullptr, known, had};
    if (const auto may = may_lock(asked, at, holder, local); !may)
        return may;
    (void)set_lock(asked, at, local);
    return {};
}

// Opens of others, which have recalled that before a lock by an open, were not there.
result<void> state_table::may_lock_without_open(const lock_request& r, file_entry& f) noexcept
{
    const demand d(r);
    const bool is_held = is_held_against(f, d);
    if (is_held && r.reclaim)
        return refuse(errc::reclaim_conflict, "another client reclaimed a delegation",
                      stats_.conflicting_reclaims);
    if (is_held)
        return error(errc::in_way, "a delegation is out, or what another kind brings");
    if (is_fenced_against(f, d))
        return error(errc::in_way, "what was taken is not fenced yet");
    return {};
}

result<void> state_table::unlock_by_owner(client_id client, const storage::handle& file,
                                          std::span<const std::byte> owner, const byte_range& bytes,
                                          back_end_locks* unsettled)
{
    const auto host = living_host(client);
    if (!host)
        return host.error();
    if (bytes.offset > bytes.last)
        return error(errc::invalid, "range of an unlock");
    if (find_file(file) == nullptr)
        return {};
    const kept_file kept(*this, file);
    if (is_asked_for(kept.file, client, owner, bytes))
        return error(errc::busy, "the back end is being asked for a lock of the same owner");
    owner_entry* const known = find_owner(**host, true, owner);
    lock_entry* const l = known != nullptr ? locks_by(*known, nullptr, kept.file) : nullptr;
    if (l == nullptr)
        return {};
    return unlock_bytes(*l, bytes, unsettled);
}

// Neither time nor anybody's need ends it, so who runs the server is told what does: once an hour for each.
void state_table::note_host_denies(lock_entry& l) noexcept
{
    constexpr duration told_after = std::chrono::hours(1);
    if (!l.denies_from)
        l.denies_from = now();
    if (now() - *l.denies_from < told_after)
        return;
    l.denies_from = now();
    try {
        log_limited(
            hosts_deny_, log_level::warning, "nfs",
            "a host that locks without a lease has denied others bytes of a file for an hour, and will until "
            "it unlocks them or says that it has started again",
            {{"host", printable(l.client.card.key)},
             {"cure", "if the host is up, end the program that has the lock, or run sm-notify; if it is gone "
                      "for good, restart this server, which keeps what hosts take back"}});
    } catch (const std::exception&) { // no memory for the line
    }
}

} // namespace verbena::files
