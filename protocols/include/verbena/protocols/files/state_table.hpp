// SPDX-License-Identifier: Apache-2.0
// Who has which file open, locked or delegated: what is granted, and what is in the way. docs/internals/files.md.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/log.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/core/task/wait_queue.hpp>
#include <verbena/protocols/files/byte_ranges.hpp>
#include <verbena/protocols/files/client_book.hpp>
#include <verbena/protocols/files/demand.hpp>
#include <verbena/protocols/files/exported_file.hpp>
#include <verbena/protocols/files/options.hpp>
#include <verbena/protocols/files/pending.hpp>
#include <verbena/protocols/files/recallable.hpp>
#include <verbena/protocols/files/requests.hpp>
#include <verbena/protocols/files/stateid.hpp>
#include <verbena/protocols/files/table_commons.hpp>
#include <verbena/protocols/files/types.hpp>
#include <verbena/protocols/files/under_way.hpp>
#include <verbena/protocols/storage/file_lease.hpp>
#include <verbena/protocols/storage/open_file.hpp>
#include <verbena/protocols/storage/suspension.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace verbena {
class scope;
}

// Nobody else's: not exported.
namespace verbena::files::detail {
struct client_card;
struct client_entry;
struct owner_entry;
struct file_entry;
struct state_entry;
enum class state_kind : std::uint8_t;
struct open_entry;
struct lock_entry;
struct recallable_entry;
struct delegation_entry;
struct other_entry;
struct fence_entry;
struct kind_use;
struct wait_entry;
template<class T>
struct member_of;
class stateid_table;
struct file_set;
class recent_recalls;
} // namespace verbena::files::detail

#pragma GCC visibility push(default)

namespace verbena::files {

/// The state of files whose home is one shard. Clients are client_book's. Shard-local, but for stats().
///
/// Plain functions decide and have granted, or have changed nothing. Errors of all of them that take a client: stale_client, expired,
/// admin_revoked, busy (its state is being taken); that take a stateid: bad_stateid, stale_stateid, old_stateid, deleg_revoked, as docs/internals/files.md has them.
/// bad_stateid also for a stateid that its client got by another export than the one by which it names the file.
/// Special stateids are the caller's: here they are bad_stateid.
class state_table {
public:
    /// All outlive the table. `home` is its number among those of `commons`, and no other table's. `where` is its shard.
    state_table(table_commons& commons, client_book& book, unsigned home, const shard& where,
                state_handler& handler);
    /// No task of it runs, nothing is under way, and no pending_open is left.
    ~state_table();
    state_table(const state_table&) = delete;

    // --- Clients

    /// The files of this home of which the client has something. Nothing where these are more than `most`, where
    /// something is being opened for it, and where it has something that was revoked.
    std::optional<std::vector<exported_file>> files_of(client_id client, std::size_t most);
    /// As the book has them, of a client of any shard's.
    bool lacks_record(client_id client, share keeps_out = share::none) const noexcept;
    /// Whether something of the client was revoked that it has not freed. Of a client of any shard's, as the
    /// book has it.
    bool has_revoked(client_id client) const noexcept;
    /// Whom an open keeps from reading or writing for certain, by its deny bits and a write delegation that it
    /// reclaims.
    static share surely_keeps_out(const open_request& r) noexcept;
    /// Whom it may keep out, with the delegation that it may bring.
    share may_keep_out(const open_request& r) noexcept;
    /// Whether an administrator took that from the client, as far as this is known still: until the client frees the
    /// stateid. A client that has lost all its state, or is forgotten, has lost nothing in this way.
    bool has_lost(client_id client, const stateid& id) const noexcept;
    /// Whether there is anything of the client at any table that it has lost so, and has not freed.
    bool has_lost_by_admin(client_id client) const noexcept;
    /// A silent client has heard that the delegation was revoked: that is free_stateid() for it. With the last one its record is
    /// written again by tend(), or by record() if that comes first. Anything else is left as it is.
    void drop_revoked(client_id client, const stateid& id) noexcept;
    /// Likewise all delegations of it that were revoked at `t` or before, for one that does not know which it lost. Looks at all state of the
    /// client.
    void drop_revoked_until(client_id client, time_point t) noexcept;
    /// What the last refusal for a limit was for: good until anything else is asked.
    limited last_lacking() const noexcept { return last_lacking_; }

    // --- Opens
    //
    // Where something new is made, also of locks: too_many_opens or too_many_locks for the client's own limits; peer_is_full, all_is_full
    // for what it shares with others, where drop_courtesy() may help.

    /// Whether the client may open a file anew, by `owner`: to be asked before a file is made for it. Errors: invalid, grace, too_many_opens.
    result<void> may_open(client_id client, std::span<const std::byte> owner);
    /// begin_open() and commit() at once.
    result<opened> open(const open_request& r);
    /// Errors: invalid, share_denied, in_way, grace, no_grace, reclaim_bad, reclaim_conflict, too_many_opens.
    result<void> begin_open(const open_request& r, pending_open& p);
    /// Of an open_request::leased: whether it would bring a read delegation, whose stateid this is. Then its place is held: whoever the delegation will be in the way of waits
    /// from now on, until commit() or the end of `p`. The caller asks the back end for a lease, whose holder recalls the delegation by its stateid, and
    /// gives it to `p`. Without one, and where anybody wanted the file meanwhile, commit() grants no delegation; one that is reclaimed
    /// it grants recalled.
    std::optional<stateid> reserve_delegation(pending_open& p);
    /// Draws the stateid's number: to be sent. `p` is done with. Errors: the client's.
    result<opened> commit(pending_open& p);
    /// Whether what has become of its client meanwhile lets commit() go on. Who does something that can't be undone
    /// asks before. Errors: expired; those of a client.
    result<void> may_commit(const pending_open& p) noexcept;
    /// The open is from now on as if only those of its opens had been that `access` and `deny` include. Errors: invalid, where these are not
    /// the union of such (RFC 8881 18.18.3).
    result<stateid> downgrade(client_id client, const stateid& id, const exported_file& file, share access,
                              share deny, zero_seqid zero = zero_seqid::newest);
    /// Draws the next number of an open's stateid, and changes nothing else.
    result<stateid> renumber(client_id client, const stateid& id, const exported_file& file,
                             zero_seqid zero = zero_seqid::newest);
    /// All that the owner has open is closed. Errors: the client's; then it is as it was.
    result<void> close_all(client_id client, std::span<const std::byte> owner);
    /// Locks that hang on the open go with it, and, with the client's last one of the file, whoever of its waits for
    /// one. `unsettled` as in unlock().
    result<void> close(client_id client, const stateid& id, const exported_file& file,
                       zero_seqid zero = zero_seqid::newest, back_end_locks* unsettled = nullptr);

    // --- Byte-range locks

    /// `holder`, if given, hears what stands against it. Errors: denied, in_way, open_mode, grace, no_grace, reclaim_bad,
    /// reclaim_conflict, too_many_locks. With `local`: where processes of this host lock bytes of the file, too,
    /// and the table would grant it, it is begun, and the answer is busy (pending_lock::asks_back_end()).
    result<stateid> lock(const lock_request& r, lock_holder* holder = nullptr,
                         zero_seqid zero = zero_seqid::newest, pending_lock* local = nullptr);
    /// Asks the back end for a lock that was begun. Then the same lock() grants it, unless its client or its open
    /// went meanwhile. Completes when: the back end has answered. On cancel: it goes on. Errors: denied, for a
    /// process of this host, of which `holder`, if given, hears, and for whose end the lock's owner waits as for
    /// others; reclaim_conflict; no_file, io; busy, where the file can't be asked. Lifetime: the table, `local`, `r`
    /// and `holder` outlive it. Shard: the table's.
    task<result<void>> lock_locally(pending_lock& local, const lock_request& r, lock_holder* holder);
    /// Where test_lock() gave `asked`: whether a process of this host stands against it. Completes when: the back end
    /// has answered. On cancel: busy. Errors: denied; no_file, io; busy, where the file can't be asked. Lifetime:
    /// `holder` outlives it. Shard: the table's.
    static task<result<void>> test_locally(back_end_locks asked, byte_range bytes, lock_type type,
                                           lock_holder* holder);
    /// What would be denied, without any effect. Errors: denied, grace. Where it would not, and processes of this
    /// host lock bytes of the file, too, `asks`, if given, is whom to ask by test_locally().
    result<void> test_lock(client_id client, const storage::handle& file, std::span<const std::byte> owner,
                           const byte_range& bytes, lock_type type, lock_holder* holder = nullptr,
                           back_end_locks* asks = nullptr);
    /// Of bytes that are not locked, too. Errors: too_many_locks, where a range is split. `unsettled`, if given, is
    /// whose settle() to await, before the client hears of it, for processes of this host to find the bytes unlocked.
    result<stateid> unlock(client_id client, const stateid& id, const exported_file& file,
                           const byte_range& bytes, zero_seqid zero = zero_seqid::newest,
                           back_end_locks* unsettled = nullptr);
    /// Locks bytes for a host, by the lock's owner alone. Deny bits do not stand against it: the protocol asks
    /// whether the caller may read or write the file. A host hears of each lock that it waits for. Errors: those of
    /// lock(), but for stateids and opens; invalid for a client with a lease; in_way also for what no open has
    /// recalled, such as a delegation. `local` as in lock().
    result<void> lock_by_owner(const owner_lock& r, lock_holder* holder = nullptr,
                               pending_lock* local = nullptr);
    /// The same for a lock_by_owner() that was begun. Completes when: the back end has answered. On cancel: it goes on.
    /// Errors: those of the other one. Lifetime: the table, `local` and `holder` outlive it. Shard: the table's.
    task<result<void>> lock_locally(pending_lock& local, const owner_lock& r, lock_holder* holder);
    /// Unlocks bytes for a host, whether the owner has them locked or not. Errors: invalid for a client with a lease;
    /// too_many_locks, where a range is split; busy, while the back end is being asked to lock some of them for this
    /// owner: the host alone knows which of the two calls is the later one. `unsettled` as in unlock().
    result<void> unlock_by_owner(client_id client, const storage::handle& file,
                                 std::span<const std::byte> owner, const byte_range& bytes,
                                 back_end_locks* unsettled = nullptr);
    /// Whether the owner has bytes of this home's files locked.
    bool has_locks(client_id client, std::span<const std::byte> owner) noexcept;
    /// The owner is no more here. Errors: locks_held.
    result<void> release_lock_owner(client_id client, std::span<const std::byte> owner);
    /// Whether it was told that it may ask for its lock, and has not done so yet.
    bool is_told(client_id client, const storage::handle& file, std::span<const std::byte> owner) noexcept;
    /// Its waits of this file end; true if there was one.
    bool stop_waiting(client_id client, const storage::handle& file, std::span<const std::byte> owner);

    // --- Delegations

    /// `seqid` of the stateid as in close().
    result<void> return_delegation(client_id client, const stateid& id, const exported_file& file,
                                   zero_seqid zero = zero_seqid::newest);
    /// A write delegation whose holder can be asked for the file's attributes (RFC 8881 10.4.3).
    struct writer {
        client_id client = nobody;
        stateid id;
        std::uint64_t change =
            0; ///< when it was granted: what the holder says as long as it keeps nothing to itself
        std::uint32_t via = 0; ///< the export by which it got it, and knows the file
    };
    /// One of somebody else than `who`, or of `who` by another export; or nothing: then make_way() may still have to wait for one that is recalled.
    std::optional<writer> writer_of(const exported_file& file, client_id who) noexcept;
    /// The change attribute of the file of `id`, a write delegation, seen since it was granted: nothing if it is not known, then it is recalled
    /// where it would be asked.
    void note_change(const stateid& id, std::optional<std::uint64_t> change) noexcept;
    /// What a holder's answer comes to.
    struct answer {
        bool modified = false; ///< it has changed the file
        /// The change attribute that others are told: no less than this, and just this if it is modified.
        std::uint64_t change = 0;
    };
    /// The holder of `id` has said which change attribute the file has for it. `has_own_size`: it has said another size
    /// than the server's, so that it has changed the file too (RFC 8881 10.4.3). `known`: the server's change attribute,
    /// looked at before the holder was asked. What others are told never goes back: an answer that has modified the file,
    /// and the first one behind it that has not, is more than all that was told before. Nothing if the delegation is back,
    /// or recalled.
    std::optional<answer> note_answer(const stateid& id, std::uint64_t change, bool has_own_size,
                                      std::uint64_t known) noexcept;
    /// The back end has no room for another lease: clients are asked to give back what they don't use, every 10 s at most.
    void lacks_leases();
    /// Releases all leases, and takes none any more: the shard goes. tend() does so at its end.
    void release_leases() noexcept;
    /// Where memory is short: asks each client that has more than `keep` delegations to give some back. Also done where a limit comes near.
    void recall_any(std::size_t keep);

    // --- Recallable state of any kind

    /// Gives the client `bytes` of the file, besides those that it has of that kind; its answer is the next number of
    /// the stateid that names all of them. Errors: open_mode, where the client may not do with the file what `type`
    /// says; those of check() for a read or a write of the client; in_way also where another kind excludes it
    /// (make_way() with a demand for `r` helps); recalled; busy, where somebody waits for the file
    /// or had to lately, what is against it is open or locked, the file is being changed, what was there before is not
    /// fenced yet, or the file has as many holders as it may; too_many_locks for limits of the client, all_is_full.
    result<stateid> hold(const hold_request& r);
    /// What hold() would answer, but for its limits.
    result<void> may_hold(const hold_request& r);
    /// Of what hold() gave with the number of `id`, the client will not hear of these bytes: they go without a fence, and no number is
    /// drawn. Where nothing is left the state goes: true. What is gone, or being taken, is left as it is.
    bool forgo(const stateid& id, const byte_range& bytes, lock_type type);
    /// Nor of that number: the next answer has it, if it is still the newest.
    void forgo_number(const stateid& id) noexcept;
    /// Gives `bytes` back, those to read or to write alone if `type` says so. Yields the next number, or nothing
    /// where none are left: then the state goes. What is back is fenced, for `why`. Errors: busy, where more ranges or
    /// more fences would come of it than there may be; all together can always be given back.
    result<std::optional<stateid>> give_back(client_id client, const stateid& id, const exported_file& file,
                                             const byte_range& bytes, std::optional<lock_type> type,
                                             loss why = loss::returned);
    /// From now on the client gives it back as soon as it has the file neither open nor delegated (RFC 8881 18.43.3,
    /// logr_return_on_close): at once if that is so already. Whether the client still has it; what is gone, or being taken, is left as it is.
    bool end_with_last_close(const stateid& id) noexcept;
    /// Recalls it, for a reason that the table doesn't know of (a local process wants the file). A delegation that is
    /// reserved is not granted then.
    result<void> recall(const stateid& id);
    /// Takes it away at once, for a reason that the table doesn't know of: the client answers deleg_revoked until it
    /// frees it. What is gone already is left as it is. With it goes what the client should have returned by now.
    /// Completes when: the client's record is gone, and it is revoked. Its fence begins before, and is not awaited. On
    /// cancel: as the store says. Errors: the store's; then it is recalled. Lifetime: the table outlives it. Shard:
    /// the table's.
    task<result<void>> revoke(stateid id);
    /// The client is near a limit of the kind that the table does not know: it is asked to give back a quarter of what it has
    /// (recallable_kind::recall_any()), once a lease at most.
    void ask_for_some(recallable_kind& kind, client_id client) noexcept;
    /// What clients have of a kind and are not asked for: of all clients, or of one; and of a file, of all clients.
    /// Looks at all of it.
    std::vector<held_state> held(const recallable_kind& kind, client_id client = nobody) const;
    std::vector<held_state> held(const recallable_kind& kind, const storage::handle& file);
    /// What a client has of a kind, be it asked for or not, but for what is being taken.
    std::vector<held_state> all_of(const recallable_kind& kind, client_id client) const;
    /// The files of a space of which any client has something of a kind, be it asked for or not, but for what is being taken.
    std::vector<storage::handle> files_with_kinds(std::uint32_t space) const;
    /// Which bytes a client has by a stateid of the kind: those to read, and those to write as well. Errors: as give_back().
    result<std::array<byte_ranges, 2>> ranges_of(const recallable_kind& kind, client_id client,
                                                 const stateid& id, const exported_file& file);
    /// Whether any client has some of the bytes so, be it asked for or not, but for what is being taken.
    bool is_held(const recallable_kind& kind, const storage::handle& file, const byte_range& bytes,
                 lock_type type);
    /// What the client of `id` was told by it.
    struct told {
        bool holes = false;    ///< of a hole of the file
        bool unshared = false; ///< that it has bytes to write which are not the file's yet
    };
    /// `is_known`: and what one hold() left open is known now. What is gone, or being taken, is left as it is: false.
    bool note_told(const stateid& id, told what, bool is_known = false) noexcept;

    // --- Exports that go

    /// What drop_export() takes.
    enum class export_state : std::uint8_t { all, layouts, delegations };
    /// How much drop_export() has taken.
    struct export_losses {
        std::size_t opens = 0;
        std::size_t locks = 0;
        std::size_t delegations = 0;
        std::size_t layouts = 0;
    };
    /// Takes a part of what clients got by an export: what is recallable is recalled, so that its clients hear of it, and gone at once;
    /// fences begin, and are not awaited. The client finds out by the file's handle, which nobody takes any more. False: `place`, which begins at 0,
    /// has come to the end. What is given meanwhile may stay, so who wants all of it begins once more when nobody asks for more. `whose`
    /// says of each client whether it is meant; empty: all are. It is asked with each of the client's states, and does not throw.
    /// Clients are told to look what they have (client_book::has_lost_by_admin()), and their stateids answer admin_revoked until
    /// they are freed, as far as the table keeps them in mind. Layouts are gone without that.
    bool drop_export(std::uint32_t via, export_state what, std::size_t& place, export_losses& lost,
                     const std::function<bool(const client_label&)>& whose = {});
    /// Whether a fence of something that was got by the export has not ended yet.
    bool has_fences_by(std::uint32_t via) const noexcept;
    /// Where has_files_in() goes on. Begins empty.
    struct file_search {
        std::size_t next = 0;
        std::size_t buckets = 0;
    };
    /// Looks at a part of the files that there is something of, locks of the file system among it, or that
    /// somebody is at work on. True: one is of `space`. False: none is. Nothing: none so far, and it goes on
    /// from `at` the next time.
    std::optional<bool> has_files_in(std::uint32_t space, file_search& at) const;

    // --- Stateids

    /// Whose state a stateid is, for a protocol whose calls name no client; its number is not looked at. Errors: bad_stateid, stale_stateid;
    /// expired, where it was taken from a client that is silent, as far as that is known still.
    result<state_holder> holder_of(const stateid& id) const;
    /// Whether the owner has anything.
    bool has_owner(client_id client, bool locks, std::span<const std::byte> owner) noexcept;
    /// RFC 8881 18.48. Of any file. Never busy.
    result<void> test_stateid(client_id client, const stateid& id);
    /// RFC 8881 18.38: a revoked delegation, what an administrator took, or a lock stateid without locks.
    /// Completes when: it is freed, and, with the last that was revoked, the client's record is written again. On cancel: as the
    /// store says. Errors: locks_held; the store's. Lifetime: the table outlives it. Shard: the table's.
    task<result<void>> free_stateid(client_id client, stateid id);

    // --- Operations

    // Whoever asks these has begun an under_way before, so that nothing is granted behind the answer that contradicts it.

    /// Whether nothing is in the way of an operation. Errors: locked, in_way, grace.
    result<void> check(const demand& d) noexcept;
    /// Whether the client may do `op`, which reads, writes or sets attributes, by a stateid of any kind that has data. Errors:
    /// open_mode, locked; in_way for what others have besides delegations, and for fences.
    result<io_grant> check_io(client_id client, const stateid& id, const exported_file& file, operation op,
                              zero_seqid zero = zero_seqid::newest);
    /// Whether another client has the file open and denies others to write it: then nobody but that client removes it (RFC 8881
    /// 18.25.4). Clients whose lease is over keep nobody from it.
    bool is_denied_removal(const storage::handle& file, client_id who) noexcept;
    /// Makes what is in the way of `d` go: recalls delegations and waits for them, takes what courtesy clients have, waits for cuts by
    /// opens that are begun. The same question, asked behind it without another wait, finds the way free.
    /// Completes when: nothing is in the way that can be made to go; what can't, the next question answers. Or `patience` is over.
    /// On cancel: ECANCELED. Errors: busy; the store's. Lifetime: the table outlives it. Shard: the table's.
    task<result<void>> make_way(demand d, duration patience);

    /// What happens by time alone: delegations not returned in time, reservations of locks; client_book::tend() has the rest.
    /// One runs as long as the table serves.
    /// Completes when: its task is stopped. On cancel: it ends, after the store has answered, and after the fences of
    /// all that is held of other kinds than delegations: after state_options::fence_time those are told to end by
    /// force. Errors: none; what the store refuses is tried again after a second. Lifetime: the table outlives it.
    /// Shard: the table's.
    task<void> tend();
    /// What the end of tend() does with recallable state, before it: nothing of the kind is given any more, and what is out is fenced. For who
    /// has what fences need for a shorter time than the table lives.
    /// Completes when: all of it is fenced, or state_options::fence_time is over. On cancel: at once; the fences go on. Errors: none.
    /// Lifetime: the table outlives it. Shard: the table's, where tend() runs.
    task<void> end_recallable();

    // --- While the file system of an export is let go: storage::suspension
    //
    // These hold the shard for some hundred files at a time.

    /// Locks of bytes are no more locks of the file system, though their owners have them. New ones are busy.
    /// Completes when: all files of the space were looked at, or `goes_on` is false. On cancel: it ends early. Errors: none; throws
    /// std::bad_alloc. Lifetime: the table and `goes_on` outlive it. Shard: the table's.
    task<void> let_go_of_local_locks(std::uint32_t space, const std::atomic<bool>& goes_on);
    /// They are again. What a process of this host has locked meanwhile is taken from its owners, whose stateids of these locks answer
    /// admin_revoked. `to.later` counts files that could not be asked: it is to be called again for them.
    /// Completes when: all that was let go is locked again, or counted. On cancel: it ends early. Errors: none; throws std::bad_alloc.
    /// Lifetime: the table and `to` outlive it. Shard: the table's.
    task<void> lock_locally_again(std::uint32_t space, storage::restored_state& to);
    /// Looks for all files of the space that clients have open. `is_there(key)` fails with ESTALE or errc::bad_handle for one that is gone:
    /// then all state of it goes, 128 states at a time, and its stateids answer admin_revoked.
    /// Completes when: all files of the space were looked for, or `goes_on` is false: then nothing is taken any more, whatever `is_there`
    /// says. On cancel: it ends early. Errors: none; throws what `is_there` does. Lifetime: the table, `is_there`, `to` and `goes_on`
    /// outlive it. Shard: the table's.
    task<void> drop_lost_files(std::uint32_t space,
                               const std::function<task<result<void>>(const storage::handle&)>& is_there,
                               storage::restored_state& to, const std::atomic<bool>& goes_on);

    table_commons& commons() const noexcept { return commons_; }
    client_book& book() const noexcept { return book_; }
    /// Any thread.
    const state_stats& stats() const noexcept { return stats_; }
    const state_options& options() const noexcept { return options_; }

private:
    friend class pending_open;
    friend class pending_lock;
    using waiter_list = intrusive_list<verbena::detail::waiter>;
    struct obstacle;
    struct pinned;
    struct indexes;
    struct lock_obstacle;

    friend class client_book;
    friend class state_list;

    // Clients: table_clients.cpp.
    time_point now() const noexcept { return clock_.now(); }
    void age() noexcept;
    detail::client_entry* find_client(client_id id) noexcept;
    template<class F>
    bool holds(client_id id, F f) const noexcept;
    result<detail::client_entry*> living(client_id id, bool even_leaving = false) noexcept;
    result<detail::client_entry*> living_host(client_id id) noexcept;
    bool drop_some(detail::client_entry& c, std::size_t most) noexcept;
    // What the book says, on the table's shard.
    void begin_lapse(const detail::client_card& card) noexcept;
    void end_lapse() noexcept;
    void look_at_clients() noexcept;
    bool fence_some(client_id client) noexcept;
    bool drop_some_of(client_id client) noexcept;
    void keep(client_id client) noexcept;
    void leave(client_id client) noexcept;
    bool has_fences_of(client_id client) const noexcept;
    task<void> fences_of(client_id client, time_point until);
    struct shortage;
    std::optional<shortage> lacks(const detail::client_entry& c, limited what,
                                  std::size_t more) const noexcept;
    std::optional<shortage> lacks_for_open(const detail::client_entry& c, std::size_t name) const noexcept;
    std::optional<shortage> lacks_for_locks(const detail::client_entry& c, std::size_t ranges, bool state,
                                            std::size_t name) const noexcept;
    error refuse(const shortage& lacking, errc own) noexcept;
    detail::owner_entry& owner_of(detail::client_entry& c, bool locks, std::span<const std::byte> name);
    detail::owner_entry* find_owner(detail::client_entry& c, bool locks,
                                    std::span<const std::byte> name) noexcept;
    void release_owner(detail::owner_entry& o) noexcept;
    static void wake(waiter_list& list) noexcept;
    result<void> refuse_in_grace() noexcept;
    result<void> refuse_io_in_grace(share access) noexcept;
    result<void> check_reclaim(const detail::client_entry& c, share keeps_out) noexcept;
    result<void> may_begin_anew(const detail::client_entry& c) noexcept;
    static error not_written_down() noexcept;
    static result<void> may_be_granted(const detail::client_card& c, share keeps_out) noexcept;
    error refuse(errc e, const char* context, counter& counted) noexcept;

    // Files.
    detail::file_entry* find_file(const storage::handle& h) noexcept;
    detail::file_entry& file_of(const storage::handle& h);
    void release_file(detail::file_entry& f) noexcept; // if it has nothing
    void changed(detail::file_entry& f) noexcept;

    // Stateids.
    result<detail::state_entry*> check(detail::client_entry& c, const stateid& id, const exported_file* file,
                                       zero_seqid zero) noexcept;
    result<detail::state_entry*> own(client_id client, const stateid& id, const exported_file& file,
                                     zero_seqid zero, detail::state_kind kind) noexcept;
    detail::state_entry* state_of(detail::owner_entry& o, detail::file_entry& f, std::uint32_t via) noexcept;
    void remove(detail::state_entry& s) noexcept;
    void remove_open(detail::open_entry& o) noexcept;
    detail::lock_entry* locks_by(detail::owner_entry& o, const detail::open_entry* by,
                                 detail::file_entry& f) noexcept;
    static void clear(detail::lock_entry& l, const byte_range& bytes);
    bool erase_lock(detail::lock_entry& l) noexcept;
    void remove_lock(detail::lock_entry& l) noexcept;
    void set_shares(detail::open_entry& o, share access, share deny) noexcept;
    void drop_pending(pending_open& p) noexcept;
    bool is_lapsed(client_id client, client_id who) noexcept;

    // Delegations.
    void decide_delegation(const open_request& r, detail::client_entry& c, detail::file_entry& f,
                           opened& out);
    std::optional<no_delegation> refuse_delegation(const open_request& r, detail::client_entry& c,
                                                   detail::file_entry& f, delegation_type type) noexcept;
    bool others_contradict(const detail::client_entry& c, std::uint32_t via, detail::file_entry& f,
                           delegation_type type) noexcept;
    bool is_pending_by_others(client_id client, std::uint32_t via, detail::file_entry& f,
                              delegation_type type) noexcept;
    static bool is_locked_by_hosts(detail::file_entry& f, delegation_type type) noexcept;
    std::optional<delegation_type> may_delegate(const open_request& r, detail::client_entry& c,
                                                detail::file_entry& f, opened& out,
                                                std::optional<no_delegation>& refused);
    void settle_reserved(pending_open& p, opened& out);
    detail::delegation_entry* reserved_of(const pending_open& p) noexcept;
    static bool is_in_way(const detail::recallable_entry& d, const demand& what) noexcept;
    static bool is_looked_at(const detail::recallable_entry& r, const demand& what) noexcept;
    void ask_all_back(std::size_t of) noexcept;
    void give_way_if_gone(detail::delegation_entry& d) noexcept;
    detail::delegation_entry& grant(detail::client_entry& c, detail::file_entry& f, delegation_type type,
                                    const open_request& r);
    gauge& gauge_of(delegation_type type) noexcept;
    void ask_back(detail::client_entry& c, std::size_t keep) noexcept;
    void ask_back(recallable_kind& kind, detail::client_entry& c, std::size_t keep) noexcept;
    void keep_from_limits(recallable_kind& kind, detail::client_entry& c) noexcept;
    void keep_from_limits(detail::client_entry& c) noexcept;
    void leave_delegation(detail::delegation_entry& d) noexcept;

    // Recallable state of any kind.
    bool is_contended(const detail::client_entry& c, detail::file_entry& f) noexcept;
    void add_recallable(detail::recallable_entry& r);
    void recall(detail::recallable_entry& r) noexcept;
    enum class of_client : bool { under_leases, all };
    task<void> recall_what_it_has(client_id client, of_client what);
    void recall_what_is_fenced(detail::client_entry& c) noexcept;
    detail::recallable_entry* first_recalled() noexcept;
    void revoke_overdue(detail::client_entry& c) noexcept;
    void revoke_now(detail::recallable_entry& r) noexcept;
    static bool has_lapsed(detail::recallable_entry& r) noexcept;
    void take_lapsed(detail::recallable_entry& r) noexcept;
    task<result<void>> take_overdue(stateid id);
    bool trusts_no_more(detail::client_entry& c) noexcept;
    void leave_file(detail::recallable_entry& r) noexcept;
    void remove_recallable(detail::recallable_entry& r) noexcept;
    result<detail::state_entry*> check_side_by_side(detail::client_entry& c, const stateid& id,
                                                    const exported_file& file) noexcept;
    result<detail::other_entry*> other_for(const hold_request& r, detail::client_entry& c,
                                           detail::file_entry*& f);
    bool is_used_against(const hold_request& r, detail::client_entry& c, detail::file_entry& f) noexcept;
    result<void> may_have_more(const hold_request& r, detail::client_entry& c,
                               detail::file_entry& f) noexcept;
    static std::shared_ptr<detail::kind_use> use_of(detail::client_entry& c, recallable_kind& kind);
    void return_at_close(detail::client_entry& c, std::uint32_t via, detail::file_entry& f) noexcept;

    void stop_waiting_by(std::uint32_t via) noexcept;

    // Fences: table_fences.cpp.
    void fence_now(detail::recallable_entry& r, loss why) noexcept;
    void begin_fence(std::unique_ptr<detail::fence_entry> made) noexcept;
    void end_fence(detail::fence_entry& e) noexcept;
    void tell_if_left(detail::kind_use& u) noexcept;
    void take_a_turn(detail::kind_use& u) noexcept;
    void give_up_place(detail::fence_entry& e) noexcept;
    void note_late(detail::fence_entry& e) noexcept;
    void note_left() noexcept;
    void fence_all() noexcept;
    task<void> run_fence(detail::fence_entry* e);
    bool start_fences(scope& running) noexcept;
    task<result<void>> do_what_is_due();
    struct stop_hearer;
    task<void> run_fences(scope* running, const stop_token* stops);

    // Locks.
    struct lock_place;
    struct kept_file;
    result<void> may_lock(const lock_request& r, lock_place& at, lock_holder* holder, pending_lock* local);
    detail::lock_entry& set_lock(const lock_request& r, const lock_place& at, pending_lock* local);
    result<void> unlock_bytes(detail::lock_entry& l, const byte_range& bytes, back_end_locks* unsettled);
    result<void> may_lock_without_open(const lock_request& r, detail::file_entry& f) noexcept;
    void note_host_denies(detail::lock_entry& l) noexcept;
    detail::wait_entry* find_wait(detail::file_entry& f, client_id client,
                                  std::span<const std::byte> owner) noexcept;
    void wait_for(detail::client_entry& c, std::uint32_t via, detail::file_entry& f,
                  std::span<const std::byte> owner, const byte_range& bytes, lock_type type);
    void begin_wait(detail::wait_entry& w) noexcept;
    void erase_wait(detail::wait_entry& w) noexcept;
    void remove_wait(detail::wait_entry& w) noexcept;
    void tell_waiters(detail::file_entry& f) noexcept;
    void look_at_waiters(detail::file_entry& f) noexcept;
    bool end_waits(detail::client_entry& c, std::uint32_t via, detail::file_entry& f) noexcept;
    void unlocked(detail::file_entry& f) noexcept;
    using file_list = intrusive_list<detail::member_of<detail::file_entry>>;
    std::size_t tell_later(detail::file_entry& f, file_list& files) noexcept;
    void tell_all(file_list& files) noexcept;
    void lapse_reservations() noexcept;
    std::optional<lock_obstacle> find_lock_obstacle(detail::file_entry& f, client_id client,
                                                    std::span<const std::byte> owner, const byte_range& bytes,
                                                    lock_type type, std::size_t* steps = nullptr) noexcept;
    static std::optional<lock_obstacle> find_reservation(detail::file_entry& f, client_id client,
                                                         std::span<const std::byte> owner,
                                                         const byte_range& bytes, lock_type type) noexcept;

    // Locks of the file system: table_local.cpp.
    storage::local_locks* local_of(detail::file_entry& f);
    void drop_local(detail::file_entry& f) noexcept;
    void begin_locally(pending_lock& p, const lock_place& at, const lock_request& r);
    task<result<void>> ask_locally(pending_lock& p, bool reclaims, lock_holder* holder);
    bool has_open_still(const pending_lock& p) const noexcept;
    void end_locally(pending_lock& p, bool weakens) noexcept;
    bool is_asked_for(detail::file_entry& f, client_id client, std::span<const std::byte> owner,
                      const byte_range& bytes) noexcept;
    std::optional<lock_obstacle> find_pending_lock(detail::file_entry& f, client_id client,
                                                   std::span<const std::byte> owner, const byte_range& bytes,
                                                   lock_type type) noexcept;
    void keep_locally(detail::file_entry& f, const byte_range& bytes) noexcept;
    void tell_what_is_kept(detail::file_entry& f, const byte_range& bytes);
    static void note_unlocked(detail::file_entry& f, const byte_ranges& gone) noexcept;
    static void note_unlocked(detail::file_entry& f, const byte_range& gone) noexcept;
    void let_go_locally(detail::file_entry& f) noexcept;
    void let_go_again() noexcept;
    void give_way_locally(detail::client_entry& c) noexcept;

    // While a file system is let go: table_suspension.cpp.
    template<class F>
    task<std::deque<storage::handle>> files_where(std::uint32_t space, F concerns);
    void lose_locks(detail::file_entry& f, const storage::lock_range& bytes, const std::string& why,
                    storage::restored_state& to);
    task<void> lose_file(storage::handle file, storage::restored_state& to);
    void note_lost(detail::state_entry& s) noexcept;
    void wait_locally(const pending_lock& p);
    void look_soon(detail::file_entry& f);
    task<bool> look_locally(detail::file_entry& f);
    task<void> watch_locally(storage::handle file, std::uint64_t number);

    // What is in the way.
    bool stands_against(const demand& d, share access, share deny) const noexcept;
    bool is_refused_for_good(detail::file_entry& f, const demand& d) noexcept;
    std::optional<client_id> courtesy_holder(detail::file_entry& f, const demand& d) noexcept;
    bool is_held_against(detail::file_entry& f, const demand& d) noexcept;
    bool is_fenced_against(detail::file_entry& f, const demand& d) noexcept;
    obstacle find_obstacle(detail::file_entry& f, const demand& d) noexcept;
    result<void> decide_shares(detail::file_entry* f, const demand& d) noexcept;

    table_commons& commons_;
    client_book& book_;
    const unsigned home_;
    const clock_source& clock_;
    state_handler& handler_;
    const state_options& options_;
    const bool has_book_; // on its shard
    state_stats own_stats_;
    state_stats& stats_; // those of the book, if that is here
    std::unique_ptr<detail::stateid_table> states_;
    std::unique_ptr<detail::file_set> files_;
    std::unique_ptr<detail::recent_recalls> recent_;
    std::unordered_map<client_id, std::unique_ptr<detail::client_entry>> clients_;
    limited last_lacking_ = limited::opens;
    time_point next_ask_back_{};        // of all clients
    time_point next_ask_back_others_{}; // likewise, for what is of other kinds than delegations
    log_limiter distrusted_, late_, hosts_deny_;
    bool takes_leases_ = true;
    bool ends_ = false;                      // in its destructor
    std::size_t running_fences_ = 0;         // that have a place
    std::optional<time_point> fences_until_; // the shard stops, and they may take so long
    std::unique_ptr<indexes> by_; // recalls and reservations by their end, states by owner and file
    waiter_list tending_;
    scope* watching_ = nullptr; // of tend(): for those who wait for local processes
    std::uint64_t last_wait_ = 0, last_watch_ = 0;
    std::size_t local_files_ = 0; // files that have locks of the file system
    waiter_list fencing_;         // the task that begins fences
    waiter_list fenced_;          // wait for fences of a client
};

} // namespace verbena::files

#pragma GCC visibility pop
