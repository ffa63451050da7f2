// SPDX-License-Identifier: Apache-2.0
// What the state layer is told, and what it tells: limits and times, callbacks, counts.
#pragma once

#include <verbena/core/adjustable.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/protocols/files/recallable.hpp>
#include <verbena/protocols/files/recovery.hpp>
#include <verbena/protocols/files/stateid.hpp>
#include <verbena/protocols/files/types.hpp>
#include <verbena/protocols/storage/file_lease.hpp>
#include <verbena/protocols/storage/local_locks.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::files {

/// Those that may be set while they are read (client_book::set_limits()): who has more then keeps it.
struct changeable_limits {
    adjustable<std::size_t> clients = 16384;            ///< with those whose lease is over
    adjustable<std::size_t> opens = 1'000'000;          ///< of all clients
    adjustable<std::size_t> opens_per_client = 200'000; ///< of one client
    adjustable<std::size_t> locks = 1'000'000;          ///< ranges
    adjustable<std::size_t> locks_per_client = 100'000; ///< of one client
    adjustable<std::size_t> lock_states =
        1'000'000; ///< lock owners of files, also those that have no range any more
    adjustable<std::size_t> lock_states_per_client = 100'000;     ///< of one client
    adjustable<std::size_t> owner_names = std::size_t(256) << 20; ///< bytes of the names of all owners
    adjustable<std::size_t> owner_names_per_client = std::size_t(16) << 20; ///< bytes, of one client
    adjustable<std::size_t> delegations = 100'000;                          ///< of all clients
    adjustable<std::size_t> delegations_per_client =
        20'000; ///< with those that were revoked and are not freed
    /// Clients of one peer together have no more than this part of all opens, lock_states, locks, owner_names, and of
    /// what a recallable_kind has at most.
    /// Hosts of one peer take no more than this part of `clients`, as hosts don't go by time.
    adjustable<unsigned> peer_percent = 25;
};

/// Each of one state_table. Beyond one: its error, or, where an answer without it is legal (a delegation, a wait), that answer.
struct limits : changeable_limits {
    std::size_t lockers_per_file = 2048; ///< that have ranges
    /// Ranges of a file whose locks processes of this host see, too: an unlock tells the back end what is left of them.
    std::size_t local_ranges_per_file = 4096;
    std::size_t waiters_per_client = 1024; ///< for locks; a wait more is not kept
    std::size_t waiters_per_file = 64;     ///< likewise
    /// Comparisons of waiters with holders in one go when bytes come free. tend() does the rest.
    std::size_t waiter_steps = 4096;
    std::size_t owner_bytes = 1024; ///< of an owner's name, RFC 8881 NFS4_OPAQUE_LIMIT
};

/// How a state_table keeps its promises: times, and what clients may have.
struct state_options {
    std::uint32_t epoch = 1; ///< of this start, another one each time; not 0 and not 2^32 - 1
    /// a client that is not heard of for so long may lose what it has
    duration lease = std::chrono::seconds(90);
    duration courtesy_time = std::chrono::hours(24); ///< after the lease's end
    duration grace_time = std::chrono::seconds(90);  ///< at least the lease of the start before
    duration recall_time = std::chrono::seconds(90); ///< after it a delegation is revoked
    /// If a client lets so many delegations be revoked, each within `distrust` of the one before, it is not trusted for that time: it gets none,
    /// and all that it has is recalled at once. Otherwise each would cost somebody `recall_time`.
    unsigned trusted_revocations = 3;
    duration distrust = std::chrono::minutes(15); ///< for so long a client is not trusted
    /// How long a fence (recallable.hpp) has before it is asked to end by force; how long the end of a client's state
    /// waits for those of it; and how long all of them have when the shard stops.
    duration fence_time = std::chrono::seconds(10);
    duration rest_after_recall =
        std::chrono::seconds(30); ///< no delegation of a file for so long, or twice it at most
    duration lock_reserve = std::chrono::seconds(
        2); ///< how long a range is kept for a waiter that was told that it may try again
    duration lock_wait = std::chrono::seconds(
        75); ///< a waiter that has not asked again for so long waits no more: Linux asks each 30 s
    /// Of what is reclaimed under a lease: nobody has changed a file unseen whose change time, in seconds since 1970, is before this. It was
    /// under a lease since then at least, until the server ended. Others may have been changed since; 0: all.
    std::int64_t reclaimed_unchanged = 0;
    bool read_delegations = true;  ///< whether any are given
    bool write_delegations = true; ///< whether any are given
    files::limits limits;          ///< what there may be at once
    /// Those that may reclaim, as the recovery store has them at this start; the grace period begins with them.
    std::vector<reclaimer> reclaimers;
};

/// A waiter that may ask for its lock again. The range is kept for it for state_options::lock_reserve.
struct lock_notice {
    client_id client = nobody;             ///< who waits
    std::span<const std::byte> owner;      ///< of the lock that it wants
    const storage::handle* file = nullptr; ///< good during the call
    byte_range bytes;                      ///< that it wants
    lock_type type = lock_type::read;      ///< to read, or to write
    std::uint32_t via = 0;                 ///< the export by which the client waits, and knows the file
};

/// A client whose lease was over lost what it had, since others needed it.
struct loss_notice {
    client_id client = nobody; ///< as the table called it
    std::string_view key;      ///< as of client_book::add_client()
    std::size_t opens = 0, locks = 0, delegations = 0;
    duration silent{}; ///< since it was last heard of
};

/// Hears what clients have to be told. Called in the middle of a decision: it notes what it is told and sends it later, and does
/// not call the table. Arguments are good during the call.
class state_handler {
public:
    virtual void recall(const recall_notice& n) noexcept = 0; ///< of a delegation
    /// The client is asked to give back what it can spare, so that `keep` delegations are left to it.
    virtual void recall_any(client_id client, std::size_t keep) noexcept = 0;
    /// A lock that this client waits for may be free: it is to ask again.
    virtual void lock_available(const lock_notice& n) noexcept = 0;
    /// When the client was last heard from besides by state_table::renew(): its last compound's end, time_point::max() while one runs, or
    /// time_point::min() where it had none. Asked where a lease would end: it does not while a compound runs, nor earlier than a whole
    /// lease after it (RFC 8881 8.3).
    virtual time_point last_heard(client_id client) noexcept = 0;
    /// On the clients' home, once what the client had is gone.
    virtual void lost(const loss_notice& n) noexcept { (void)n; }
    /// As storage::file_backend::local_locks_of() of the file that the state layer calls `file`. Asked before its
    /// first lock.
    virtual std::unique_ptr<storage::local_locks> local_locks_of(const storage::handle& file);

protected:
    ~state_handler() = default;
};

/// What there are limits of.
enum class limited : std::uint8_t {
    clients,
    sessions, ///< of the protocol
    opens,
    locks,
    lock_owners, ///< stateids of locks
    owner_names,
    delegations,
    waiters,
    owners,       ///< of the protocol, with those that have nothing
    other_states, ///< recallable ones, but for delegations
};
/// Whose limit one is.
enum class limit_of : std::uint8_t { client, peer, all, file };

/// How often something was refused, or a delegation or a wait not given, for each limit.
class limit_counters {
public:
    static constexpr std::size_t kinds = 10, scopes = 4; ///< of each enum
    /// One refusal more. On the counters' shard.
    void add(limited what, limit_of whose) noexcept { counts_[std::size_t(what)][std::size_t(whose)].add(); }
    /// How often that was refused. Any thread.
    std::uint64_t value(limited what, limit_of whose) const noexcept
    {
        return counts_[std::size_t(what)][std::size_t(whose)].value();
    }
    /// Of all.
    std::uint64_t value() const noexcept
    {
        std::uint64_t sum = 0;
        for (const auto& of_kind : counts_)
            for (const counter& c : of_kind)
                sum += c.value();
        return sum;
    }

private:
    std::array<std::array<counter, scopes>, kinds> counts_;
};

/// Levels and counts. One writer, any reader.
struct state_stats {
    gauge clients, courtesy_clients; ///< all, and those of them whose lease is over
    gauge lost_clients;              ///< whose state was taken; no hosts
    gauge hosts;                     ///< clients without a lease: state_table::add_host()
    gauge files;                     ///< that have an entry
    gauge open_owners, lock_owners;
    gauge opens;
    gauge lock_states, locks; ///< stateids, and ranges
    gauge owner_names;        ///< bytes
    gauge read_delegations, write_delegations, revoked_delegations;
    gauge
        recalled_delegations; ///< asked for and not returned yet; this and what is counted of recalls is of all recallable state
    gauge other_states;                                    ///< of other kinds than delegations
    gauge fences;                                          ///< under way, or waiting for their turn
    counter failed_fences;                                 ///< each time that one failed: it is tried again
    counter ended_fences, late_fences, fence_microseconds; ///< of those that ended: from their beginning
    gauge lock_waiters;
    counter expired_clients, returned_clients; ///< of courtesy clients: state taken, and back in time
    counter recalls, revocations;
    counter distrusted_clients; ///< that let too many be revoked, each time
    counter local_recalls;      ///< of these recalls: for a local process
    std::array<counter, storage::no_lease_count>
        lease_refusals; ///< delegations that were not given for want of a lease, by storage::no_lease
    counter ended_recalls,
        recall_microseconds; ///< from the recall until it is back or revoked, all of these together
    counter share_denials, lock_denials;
    counter local_lock_denials; ///< for the lock of a process of this host; not counted as lock_denials
    counter waiter_checks,
        waiter_steps; ///< looks at whether a waiter's lock is free, and at holders for these
    limit_counters refused_limits;
    counter refused_grace;
    gauge grace; ///< 0: over; 1: clients reclaim; 2: its end is being written
    /// Clients that had something before the restart; of these, those that have said that they took back all, and those that
    /// have not come back: after grace, as it was at its end.
    gauge grace_recorded, grace_done, grace_absent;
    gauge to_reclaim; ///< clients that may reclaim and have not said that they are done
    /// Of these, those that may reclaim what keeps others from reading, or from writing: deny bits, delegations.
    gauge reads_wait_for, writes_wait_for;
    counter reclaims;
    counter late_reclaims, bad_reclaims,
        conflicting_reclaims; ///< refused: no_grace, reclaim_bad, reclaim_conflict
    counter store_failures;
};

} // namespace verbena::files

#pragma GCC visibility pop
