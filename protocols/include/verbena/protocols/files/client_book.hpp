// SPDX-License-Identifier: Apache-2.0
// The clients that have state of files: their leases, what is written down of them, and their end. docs/internals/files.md.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/core/task/wait_queue.hpp>
#include <verbena/protocols/files/exported_file.hpp>
#include <verbena/protocols/files/options.hpp>
#include <verbena/protocols/files/recovery.hpp>
#include <verbena/protocols/files/requests.hpp>
#include <verbena/protocols/files/table_commons.hpp>
#include <verbena/protocols/files/types.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace verbena {
class shard;
}

// Nobody else's: not exported.
namespace verbena::files::detail {
struct booked_client;
struct client_card;
struct peer_use;
template<class T>
struct member_of;
} // namespace verbena::files::detail

#pragma GCC visibility push(default)

namespace verbena::files {

class state_table;

/// Who a client is, for people. Its protocol says that once.
struct client_label {
    std::string name;         ///< its own for itself: any octets
    std::string address;      ///< that it came from
    std::uint64_t number = 0; ///< by which its protocol knows it
};

/// How much a client has, at all tables.
struct client_holdings {
    std::size_t opens = 0;
    std::size_t locks = 0; ///< ranges
    std::size_t delegations = 0;
    std::size_t others = 0;  ///< of other kinds than delegations, such as layouts
    std::size_t revoked = 0; ///< that it has not freed
    std::size_t fences = 0;  ///< of what it lost, and may still reach
};

/// The clients of a process, on one shard, their home. Tables have what these have of files, each of the files whose home
/// it is; they make themselves known to the book.
///
/// Plain functions are called on the clients' home, and have done what they say, or changed nothing. Errors of all of
/// them that take a client: stale_client, expired, admin_revoked, busy (its state is being taken).
///
/// For its tasks, as far as they don't say otherwise. Completes when: all tables have answered, one after the other. On
/// cancel: as shard::run(). Errors: stale_client; what is thrown where there is no memory to ask a table. Lifetime: what
/// they are given is borrowed, and the book outlives them. Shard: any.
class client_book {
public:
    /// All outlive the book, and the book outlives the tables of `commons`. A table whose shard has stopped has nothing
    /// for anybody.
    client_book(table_commons& commons, const shard& home, recovery_store& store, state_handler& handler,
                state_options options);
    /// No task of it runs.
    ~client_book();
    client_book(const client_book&) = delete;

    /// A client that was confirmed, by a name that stays the same over its restarts and ours. Those of one `peer`, a number that is not
    /// 0, have its share of limits (limits::peers). The protocol sees to it that of
    /// one name there is one (forget() for the older one). Errors: too_many_clients, where drop_courtesy() and forget() may help; invalid
    /// for a name beyond limits::owner_bytes.
    result<client_id> add_client(std::string_view key, std::uint64_t peer = 0, client_label label = {});
    /// A host, which locks by lock_by_owner() and has no lease (NLM). A host stays active however long it is silent.
    /// Nobody else's need takes anything from it: what it has goes by unlock_by_owner(), forget() or revoke_client()
    /// alone. The protocol calls forget() for SM_NOTIFY and NLM_FREE_ALL. `key` and `peer` are those of add_client().
    /// The key should hold more than the host's own name for itself, or others end its locks in its name.
    ///
    /// A `monitored` host is a client of set_silent(): it needs a record() before its first lock, and may reclaim
    /// after the next start. A host that is not monitored (NLM_NM_LOCK) has no record and reclaims nothing, until
    /// set_silent() makes it a monitored one. A host that has nothing stays until forget(), too; is_in_use() tells of
    /// opens and locks, and not of waits. Errors: those of add_client(); peer_is_full, where hosts of its peer take
    /// the part of limits::clients that they may (limits::peer_percent).
    result<client_id> add_host(std::string_view key, std::uint64_t peer = 0, bool monitored = true);
    /// What a host says by its state number (NSM): that it calls, or that it has started again (SM_NOTIFY).
    enum class host_word : std::uint8_t { calls, restarted };
    /// Whether the host has started again since it got what it has. Then the protocol awaits forget() before anything
    /// else. `number` is the host's state number, which each of its starts changes; 0 says nothing. The book notes
    /// the first number of the host's calls. A call with another number tells of a restart. So does each notice, but
    /// for one with the noted number: that one comes late. Errors: stale_client; invalid for a client with a lease.
    result<bool> has_restarted(client_id host, std::uint32_t number, host_word says);
    /// Its lease begins anew. A courtesy client is active again. Errors: busy while its state is being taken.
    result<void> renew(client_id client);
    /// Whether it can be called back: without that it gets no delegation.
    result<void> set_callable(client_id client, bool callable);
    /// As of now. Errors: stale_client.
    result<client_state> state_of(client_id client);
    /// Those that are not active: what time has taken first, then by the end of their leases. As of now.
    std::vector<client_id> lapsed();
    /// Whether it has still to say that it reclaimed all that it may. Errors: stale_client.
    result<bool> must_reclaim(client_id client);
    /// How the time goes in which clients take back what they had before the restart, or how it went. `most`: keys of clients, of
    /// each sort.
    grace_period::report how_grace_goes(std::size_t most) const;
    /// Whether it has opens, locks or delegations, revoked ones too: then DESTROY_CLIENTID is refused.
    result<bool> is_in_use(client_id client);
    /// Whether delegations of it were revoked that it has not freed.
    bool has_revoked(client_id client) noexcept;
    /// Whether something of the client's ended with its lease (recallable_kind::ends_with_lease()), and it has not asked since it was told
    /// (by this) what is left to it. Where it never asks, one lease from the first time on that this is true of the last such loss.
    bool has_lost_with_lease(client_id client) noexcept;
    /// Whether an administrator took some of what the client had (a reload took its export, say, or the file system came back
    /// without the file), and the client has not freed all of that (RFC 8881 18.46.3). Of one that frees nothing: for one
    /// lease from the first time on that this is true of the last such loss, since a client repairs what it is told by each call.
    bool has_lost_by_admin(client_id client) noexcept;
    /// It asks which of its stateids are good, or gives one up: it has heard of what it was told of. Any shard.
    void note_asked(client_id client) noexcept;
    /// When its lease began anew; long ago of a client that there is not.
    time_point renewed(client_id client) noexcept;
    /// Nothing of a client that there is not.
    client_holdings holdings_of(client_id client) noexcept;
    /// Whether it has delegations, but for those.
    bool has_delegations(client_id client) noexcept;
    /// Whether something of it is recalled, and neither returned yet nor revoked.
    bool is_recalled(client_id client) noexcept;
    /// Whether the owner of a client of set_silent() has anything. What tables are doing for that owner just now they
    /// may have done or not: the protocol has its calls wait for each other.
    bool has_owner(client_id client, bool locks, std::span<const std::byte> owner) noexcept;
    /// The client has taken back what it had, or had nothing: before this it gets nothing new. It is in the recovery store when this
    /// is answered. Completes when: it was written. On cancel: as the store says. Errors: already_complete, busy;
    /// invalid for a host; the store's. Lifetime: the book outlives it. Shard: any.
    task<result<void>> reclaim_complete(client_id client);
    /// The client never says that it took back all that it had (NFS version 4.0): it may until grace is over, and gets something new as
    /// soon as it is, and a record() of it. That takes the place of reclaim_complete(). Errors: stale_client.
    result<void> set_silent(client_id client);
    /// Whether record() is to be awaited before the client gets opens or locks, or what keeps others from reading or writing: the client is
    /// silent and has no record, or its record does not cover that. Without record() a deny bit is refused (busy), and an open brings no
    /// delegation. As long as something of the client is revoked and not freed, it gets no record.
    bool lacks_record(client_id client, share keeps_out = share::none) const noexcept;
    /// The client may take back after the next start what it gets from now on, and may hold then what keeps out whom `keeps_out` says. For a
    /// client that has not said "complete" yet that is noted, and written with it.
    /// Completes when: it is in the recovery store; at once where it is already. On cancel: as the store says. Errors: stale_client, expired,
    /// admin_revoked, busy; the store's. Lifetime: the book outlives it. Shard: any.
    task<result<void>> record(client_id client, share keeps_out = share::none);
    /// Whether its end waits for the recovery store.
    bool waits_for_store(client_id client) const noexcept;
    /// Whether the recovery store writes of it just now. Until that is over it is not known what it has, nor whether it keeps that.
    bool is_being_written(client_id client) noexcept;
    /// Whether the end of a client waits for its fences (recallable_kind::fence()), for state_options::fence_time at
    /// most. It may do without: what they are in the way of stays closed until each has ended.
    enum class fences : bool { left, awaited };
    /// The client is no more, nor is what it had: it said goodbye, or began anew under another id.
    /// Completes when: its record is gone, all tables have let go of what it had, and that is fenced, as `wait` says.
    /// On cancel: as the store says. Errors: the store's; then it is there still. Lifetime: the book outlives it.
    /// Shard: any.
    task<result<void>> forget(client_id client, fences wait = fences::awaited);
    /// As an administrator asks: its state goes, and each of its stateids answers admin_revoked until forget().
    /// Completes when: record and state are gone, and what it had is fenced, as of forget(). On cancel: as the store
    /// says. Errors: the store's. Lifetime: the book outlives it. Shard: any.
    task<result<void>> revoke_client(client_id client);
    /// Where memory is short: takes the state of up to `count` courtesy clients, those first whose lease ended first; yields how many it were.
    /// Of those that have some of `what` alone, if it is given, and of the peer of `like`, where that is not nobody.
    /// Completes when: it is taken. On cancel: as the store says. Errors: the store's. Lifetime: the book outlives it. Shard: any.
    task<result<std::size_t>> drop_courtesy(std::size_t count, std::optional<limited> what = {},
                                            client_id like = nobody);

    // What one asks of all tables, each on its shard.

    /// The files of which the client has something. Nothing where these are more than `most`, where something is being
    /// opened for it, where it has something that was revoked, and where there is no such client.
    task<std::optional<std::vector<exported_file>>> files_of(client_id client, std::size_t most);
    /// The owner is no more. What else it locks meanwhile may be left: the protocol has its calls wait for each other.
    /// Errors: locks_held, where it has any; then it is as it was.
    task<result<void>> release_lock_owner(client_id client, std::span<const std::byte> owner);
    /// All that the owner has open is closed.
    task<result<void>> close_all(client_id client, std::span<const std::byte> owner);
    /// state_table::drop_revoked_until(), at all tables.
    task<result<void>> drop_revoked_until(client_id client, time_point t);

    /// What happens by time alone: leases, the end of grace. One runs on the clients' home as long as the tables serve.
    /// Completes when: its task is stopped. On cancel: it ends, after the store has answered. Errors: none; what the store
    /// refuses is tried again after a second. Lifetime: the book outlives it. Shard: the clients' home.
    task<void> tend();

    const shard& home() const noexcept { return home_; }
    const state_options& options() const noexcept { return options_; }
    /// Of what is given from now on. Any thread.
    void set_limits(const changeable_limits& most) noexcept
    {
        static_cast<changeable_limits&>(options_.limits) = most;
    }
    /// Any thread: of clients, and of tables on the clients' home.
    const state_stats& stats() const noexcept { return stats_; }
    /// Whether clients may still reclaim what they had before the restart. Any thread.
    grace_period::phase grace() const noexcept { return phase_.load(std::memory_order_acquire); }

private:
    friend class state_table;
    using waiter_list = intrusive_list<verbena::detail::waiter>;
    struct leaving;
    struct lists;
    struct place;
    struct news;

    time_point now() const noexcept;
    bool is_here() const noexcept;
    void age() noexcept;
    bool outlives(detail::booked_client& c, time_point t) noexcept;
    detail::booked_client* find(client_id id) noexcept;
    result<detail::booked_client*> living(client_id id) noexcept;
    result<detail::booked_client*> make_client(std::string_view key, std::uint64_t peer, client_label label,
                                               bool is_host);
    void leave_peer(detail::client_card& c) noexcept;
    void to_state(detail::booked_client& c, client_state s) noexcept;
    static void wake(waiter_list& list) noexcept;

    // What tables ask for, on whichever shard.
    task<result<void>> take(client_id client, client_state into, bool only_courtesy);
    task<result<void>> write_record(client_id client, bool frees_the_last = false);
    /// Removes the record before something of the client is revoked. True: client_card::revoking counts that, so that no
    /// record is written before the caller has revoked it and counts itself out.
    task<result<bool>> unrecord(client_id client);
    void record_later(detail::client_card& c) noexcept;
    /// At the tables but `except`: state_table::recall_what_it_has().
    task<void> recall_elsewhere(client_id client, bool all, const state_table& except);
    bool holds_up(share access) const noexcept;
    void add_table(state_table& t, unsigned home, const shard& where) noexcept;
    void remove_table(unsigned home) noexcept;

    task<result<void>> take_here(client_id client, client_state into, bool only_courtesy);
    task<result<void>> write_record_here(client_id client, bool frees_the_last);
    task<result<bool>> unrecord_here(client_id client);
    task<result<void>> reclaim_complete_here(client_id client);
    task<result<void>> record_here(client_id client, share keeps_out);
    task<result<void>> forget_here(client_id client, fences wait);
    task<result<void>> revoke_here(client_id client);
    task<result<std::size_t>> drop_courtesy_here(std::size_t count, std::optional<limited> what,
                                                 client_id like);
    template<class Ask>
    task<result<void>> ask_each(client_id client, Ask ask);
    task<void> close_to(client_id client);
    task<void> drop_all_of(client_id client);
    task<void> fences_of(client_id client, fences wait);
    void tell_kept(client_id client) noexcept;
    void hear_of_records() noexcept;
    void queue_record(detail::booked_client& c) noexcept;
    void note_complete(detail::client_card& c, grace_period::part how) noexcept;
    void tell_end_of_grace() const noexcept;
    task<result<void>> end_grace();
    void note_grace() noexcept;
    task<result<void>> do_what_is_due();

    table_commons& commons_;
    const shard& home_;
    recovery_store& store_;
    state_handler& handler_;
    state_options options_; // its limits may be set
    grace_period grace_;
    state_stats stats_;
    // Of `grace_`, for tables.
    std::atomic<grace_period::phase> phase_;
    std::atomic<bool> holds_up_reads_{false}, holds_up_writes_{false};
    std::unordered_map<client_id, std::unique_ptr<detail::booked_client>> clients_;
    std::unordered_map<std::uint64_t, std::shared_ptr<detail::peer_use>> peers_;
    std::uint64_t last_client_ = 0;
    std::unique_ptr<place[]> places_; // of tables, by their homes
    std::unique_ptr<news> news_;      // from tables
    std::unique_ptr<lists> by_;
    waiter_list storing_; // wait for the store's answer to somebody else
    waiter_list tending_;
};

} // namespace verbena::files

#pragma GCC visibility pop
