// SPDX-License-Identifier: Apache-2.0
// The state layer (docs/internals/files.md) where the programs of all versions find it: clients on one shard, and each
// file on its home, which the others visit. It knows no version's types: each has its own names for what is answered here.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/reactor/shard.hpp>
#include <verbena/protocols/files/state_table.hpp>
#include <verbena/protocols/storage/file_backend.hpp>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs {

/// The change attribute: the back end's, or the time of the last change in nanoseconds where the back end has none.
std::uint64_t change_of(const storage::attributes& attrs) noexcept;

/// What the holder of a write delegation says of its file.
struct held_attributes {
    std::uint64_t change = 0; ///< attribute
    std::uint64_t size = 0;
};

/// Asks clients for what they keep to themselves. Used on the clients' home.
class holder_inquiry {
public:
    /// `file` is by the export of the holder. Completes when: `holder` has answered, or it is clear that it doesn't within `patience`. On cancel: ECANCELED. Errors: any, where
    /// there is no answer. Lifetime: `file` is borrowed. Shard: the clients' home.
    virtual task<result<held_attributes>> ask(files::client_id holder, const files::stateid& id,
                                              const files::exported_file& file, duration patience) = 0;

protected:
    ~holder_inquiry() = default;
};

/// What others are to see of a file that a client keeps to itself (RFC 8881 10.4.3).
struct kept_attributes {
    bool modified = false;   ///< the holder has changed the file, and
    std::uint64_t size = 0;  ///< this is its size
    std::uint64_t least = 0; ///< files::state_table::answer::change

    /// What others see, where the server has `known`: more than before where it is modified, and never less, also when
    /// the holder has sent what it kept.
    std::uint64_t change_from(std::uint64_t known) const noexcept
    {
        return modified ? least : std::max(known, least);
    }
    /// Size and times. What was modified is so as of now: when, its holder does not say.
    void apply(storage::attributes& attrs) const noexcept;
};

/// When a client that has a name loses what it has to another one that wants the name.
enum class name_rule : std::uint8_t {
    at_once,
    lapsed, ///< its lease is over
    unused, ///< likewise, or it has nothing
};

/// The book of clients, the tables, and where these are. Made on any shard; used by all.
///
/// This holds for all its tasks. Completes when: the file's table has answered, or the book. On cancel: as shard::run(). Errors: a
/// files::errc, as the table's function of that name; busy, where the recovery store fails or the task was asked to
/// stop: what can't be written isn't promised, and may be as soon as the disk has room. ECANCELED where that home has
/// stopped. Lifetime: what they are given is borrowed.
/// Shard: any.
class state_home {
public:
    /// Files have these homes, 1 to files::table_commons::most_homes, and clients the first of them. They, `store` and
    /// `handler` outlive it. Each runs tend() of its table, and the first one that of clients() too. `handler` is called
    /// on each of them. `key` as for files::table_commons.
    state_home(std::span<shard* const> homes, files::recovery_store& store, files::state_handler& handler,
               files::state_options options, const siphash_key& key);
    ~state_home();
    /// From now on holders of write delegations are asked by `how`, which outlives it, before they have to give them back.
    void ask_holders(holder_inquiry& how) noexcept { inquiry_ = &how; }

    /// As it was made. Any thread.
    const files::state_options& options() const noexcept { return book_.options(); }
    /// Any thread.
    void set_limits(const files::changeable_limits& most) noexcept { book_.set_limits(most); }
    /// Whether `s` is the clients' home. Any thread.
    bool is_home(const shard& s) const noexcept { return &s == &home_; }
    /// Of clients.
    shard& home() const noexcept { return home_; }
    /// On the clients' home only.
    time_point now() const noexcept { return home_.reactor().clock().now(); }
    /// Any thread. Of clients and of grace; of files these are one home's alone, and total() is of all.
    const files::state_stats& stats() const noexcept { return book_.stats(); }
    /// Any thread. What the counts of all homes are together.
    std::uint64_t total(counter files::state_stats::* what) const noexcept
    {
        std::uint64_t sum = 0;
        each_stats([&](const files::state_stats& s) { sum += (s.*what).value(); });
        return sum;
    }
    std::int64_t total(gauge files::state_stats::* what) const noexcept
    {
        std::int64_t sum = 0;
        each_stats([&](const files::state_stats& s) { sum += (s.*what).value(); });
        return sum;
    }
    /// `f(stats)` of each part of these. Any thread.
    template<class F>
    void each_stats(F f) const
    {
        f(book_.stats());
        for (const file_home& home : homes_)
            if (&home.table.stats() != &book_.stats()) // a table on the clients' home counts with the book
                f(home.table.stats());
    }
    /// On the clients' home only.
    files::client_book& clients() noexcept { return book_; }
    /// Of that home, and on it only.
    files::state_table& table(unsigned home = 0) noexcept { return homes_[home].table; }
    /// Homes of files: as many tables. Any thread.
    unsigned homes() const noexcept { return commons_.homes(); }
    /// Where table() of that number is used.
    shard& where(unsigned home) const noexcept { return homes_[home].where; }
    /// Whether clients may reclaim what they had before a restart: until then nobody gets anything new. Any shard.
    bool is_in_grace() const noexcept { return stats().grace.value() != 0; }
    /// Whether one of these clients may have kept others from `access`, of whatever file, as its record says. Any shard.
    bool is_in_grace(files::share access) const noexcept
    {
        return (any(access & files::share::read) && stats().reads_wait_for.value() != 0) ||
               (any(access & files::share::write) && stats().writes_wait_for.value() != 0);
    }

    /// co_await of what `f(table)` yields, a value or a task, on the home of the file, by its key, or of what has the
    /// stateid. A stateid that nobody gave out leads to some home.
    template<class F>
    auto at_home_of(const storage::handle& file, F f)
    {
        return at(homes_[commons_.home_of(file)], std::move(f));
    }
    template<class F>
    auto at_home_of(const files::stateid& id, F f)
    {
        return at(homes_[commons_.home_of(id)], std::move(f));
    }
    /// co_await of what `f(book)` yields, likewise, on the home of clients.
    template<class F>
    auto at_clients(F f)
    {
        return home_.run([f = std::move(f), this]() mutable { return f(book_); });
    }

    /// What add_client() gives.
    struct added {
        files::client_id client = files::nobody; ///< its number in the state layer
        bool must_reclaim = false;               ///< it may, and is to say when it is done
    };
    /// Errors: too_many_clients, where all places are taken, of whichever version: another client has to go first.
    task<result<added>> add_client(std::string_view key, std::uint64_t peer = 0,
                                   const files::client_label& label = no_label());
    /// What a client has to hear of when it renews its lease.
    struct losses {
        bool revoked = false;    ///< it has something that was revoked, and has not freed it
        bool with_lease = false; ///< files::client_book::has_lost_with_lease()
        bool by_admin = false;   ///< files::client_book::has_lost_by_admin()
    };
    /// Its lease begins anew. Errors: stale_client, expired: it is none any more.
    task<result<void>> renew(files::client_id client, losses& lost);
    /// As files::client_book::note_asked(). Any thread.
    void note_asked(files::client_id client) noexcept { book_.note_asked(client); }
    /// It can be called back from now on, so that opens may bring it delegations. Errors: stale_client.
    task<result<void>> set_callable(files::client_id client);
    /// Also of one that is not there.
    task<result<void>> forget(files::client_id client);
    /// The same for who wants its name. Errors: client_busy while it does not yield by `rule`, nor at all while the
    /// store writes of it.
    task<result<void>> take_name(files::client_id client, name_rule rule);
    /// On the clients' home only. Whether a client gives way by `rule`.
    bool yields(files::client_id client, name_rule rule);
    /// As forget(), for a caller that has nobody to tell a failure: what the store refuses is tried again by
    /// forget_abandoned(). Does not wait for fences.
    task<void> abandon(files::client_id client);
    /// On the clients' home only. Completes when: each was tried once.
    task<void> forget_abandoned();
    /// What life_of() tells.
    struct life {
        bool active = false; ///< its lease is not over
        bool in_use = false; ///< it has something
    };
    /// Whether the client is alive, and whether it has anything at any home.
    task<life> life_of(files::client_id client);
    /// RECLAIM_COMPLETE: the client has taken back what it wants. Errors: already_complete.
    task<result<void>> reclaim_complete(files::client_id client);
    /// Of which file the client's delegation is; empty where it has none such.
    task<files::exported_file> file_of_delegation(files::client_id client, const files::stateid& id);

    /// Whether an open anew would be refused whatever the file: to be asked before one is made. The open that follows is promised.
    task<result<void>> promise_open(files::client_id client, std::span<const std::byte> owner,
                                    files::share deny);
    /// What open() needs of the back end.
    struct opening {
        storage::file_backend* backend = nullptr;
        storage::request request;
        storage::handle file;
        std::uint32_t space = 0;                ///< of its export
        files::operations_here* here = nullptr; ///< of the caller's shard, where the file is cut
    };
    /// Opens. Between the decision and its answer the file is cut to no bytes, if the request says so, and its
    /// change attribute looked at, where its client gets a write delegation: others may have changed the file
    /// while this waited. Errors: the back end's, too, where the file can't be cut; these are none of
    /// files::errc.
    task<result<files::opened>> open(const files::open_request& request, const opening& file);
    /// `unsettled`, if given: as in files::state_table::unlock(), to be awaited by settle().
    task<result<void>> close(files::client_id client, const files::stateid& id,
                             const files::exported_file& file, files::back_end_locks* unsettled = nullptr);
    /// The open has less access and denies less from now on. Errors: invalid: not what some of the opens that
    /// it stands for asked for together; bad_stateid.
    task<result<files::stateid>> downgrade(files::client_id client, const files::stateid& id,
                                           const files::exported_file& file, files::share access,
                                           files::share deny);
    using io_terms = files::io_grant; ///< what check_io() tells of the open
    /// Whether `client` may read, write or set the size of `file` by `id`. The operation is under way already: nothing that
    /// contradicts it is granted until it ends.
    task<result<void>> check_io(files::client_id client, const files::stateid& id,
                                const files::exported_file& file, files::operation op, io_terms& terms);
    /// The same without an open. `past_denies`: what reads may pass over deny bits.
    task<result<void>> check_io_without_open(files::client_id client, const files::exported_file& file,
                                             files::operation op, bool past_denies);
    /// What others hold of `file` that has to go before `op` is made to go; `client` may be nobody. Where !has_state() there is
    /// nothing. As check_io(), it is asked when `op` is under way. `is_anybody`: who calls may be one of those that hold the file, so that
    /// no deny keeps it from being removed. Errors: removal_denied.
    task<result<void>> make_way(files::client_id client, const files::exported_file& file,
                                files::operation op, bool is_anybody = false);
    /// make_way() for all files of a space of which anybody has recallable state besides delegations, and whose handles at the back end
    /// `concerns` says true of: all of that is asked for at once, and the files get no rest behind it (files::demand::without_rest()). Such
    /// state may be given anew meanwhile. Errors: busy, where it is not
    /// back by `until`. Lifetime: `concerns` is called on each home's shard in turn.
    task<result<void>> make_way_in(std::uint32_t space, files::operation op,
                                   const std::function<bool(const storage::handle&)>& concerns,
                                   time_point until);
    /// A file whose attributes somebody reads, as the server has it.
    struct looking {
        storage::file_backend* backend = nullptr;
        storage::request request; ///< by which the backend was asked for `before`
        storage::handle file;
        files::exported_file known;
        storage::attributes before; ///< looked at before its holder is asked
    };
    /// make_way() for who reads attributes: whoever has a write delegation of the file is asked for them, and recalled if
    /// it does not answer. Yields what the holder said, if there is one and it has answered.
    task<result<std::optional<kept_attributes>>> look(files::client_id client, const looking& file);
    /// Gives a delegation back. Errors: bad_stateid for what is none of the client's.
    task<result<void>> return_delegation(files::client_id client, const files::stateid& id,
                                         const files::exported_file& file);
    /// Of each.
    task<std::vector<result<void>>> test(files::client_id client, std::span<const files::stateid> ids);
    /// `left`: what the client has still to free, of what was revoked or taken by an administrator.
    task<result<void>> free(files::client_id client, const files::stateid& id, losses& left);

    /// What is under way on each shard, which is said by begin(), or by check_io()'s caller. Any thread.
    files::operations_under_way& operations() noexcept { return commons_.operations(); }
    /// Asked on any thread, without a way to the table: whether anybody has state of `file`, or of any file.
    bool has_state(const storage::handle& file) const noexcept
    {
        return commons_.has_any_state() && commons_.has_state(file);
    }
    /// Whether anybody has state of any file. Any thread.
    bool has_any_state() const noexcept { return commons_.has_any_state(); }
    /// Likewise, whether anybody may have a delegation to write of the file: then look() is awaited for its attributes.
    bool may_have_writer(std::uint32_t space, const storage::handle& file) const noexcept
    {
        if (!commons_.has_any_state())
            return false;
        const storage::handle key = files::file_key(space, file);
        return homes_[commons_.home_of(key)].table.stats().write_delegations.value() != 0 &&
               commons_.has_state(key);
    }
    /// Begins `doing`, as files::under_way::begin() has it, and tells then whether anybody may have state of the file: if so, make_way() is
    /// awaited before the operation is done. Called on the shard of `here`.
    [[nodiscard]] bool begin(files::under_way& doing, files::operations_here& here, std::uint32_t space,
                             const storage::handle& file, files::operation op) noexcept
    {
        doing.begin(here, space, file, op);
        return has_any_state() && commons_.has_state(files::file_key(space, file));
    }
    /// The same of a file that is known by its name alone. True: the name is looked up, and begin() is said of the file. False: nobody has
    /// state of any file, nor gets any that the operation contradicts while it is under way, so the name need not be
    /// looked up. What `doing` stood for before is over in any case.
    [[nodiscard]] bool begin_by_name(files::under_way& doing, files::operations_here& here,
                                     files::operation op) noexcept
    {
        if (has_any_state()) {
            doing.end(); // as begin_by_name() does
            return true;
        }
        doing.begin_by_name(here, op);
        return has_any_state();
    }

    /// `holder` is who has it, if it is denied.
    task<result<files::stateid>> lock(const files::lock_request& request, files::lock_holder& holder);
    /// Where it yields no error and gives `asks` something, test_locally() has the answer.
    task<result<void>> test_lock(files::client_id client, const storage::handle& file,
                                 std::span<const std::byte> owner, const files::byte_range& bytes,
                                 files::lock_type type, files::lock_holder& holder,
                                 files::back_end_locks* asks = nullptr);
    /// Asks the file system where test_lock() gave `asks` something: whether other processes of this host have
    /// locked the bytes. Fills `holder` if so. Errors: as test_lock().
    task<result<void>> test_locally(const storage::handle& file, files::back_end_locks& asks,
                                    const files::byte_range& bytes, files::lock_type type,
                                    files::lock_holder& holder);
    /// `unsettled` as in close().
    task<result<files::stateid>> unlock(files::client_id client, const files::stateid& id,
                                        const files::exported_file& file, const files::byte_range& bytes,
                                        files::back_end_locks* unsettled = nullptr);
    /// Processes of this host find unlocked what close() or unlock() of `file` has unlocked. Of something, once.
    task<void> settle(const storage::handle& file, files::back_end_locks& unsettled);

private:
    static const files::client_label& no_label() noexcept
    {
        static const files::client_label none;
        return none;
    }
    struct file_home {
        file_home(state_home& of, unsigned number, shard& s, files::state_handler& handler)
            : where(s), table(of.commons_, of.book_, number, s, handler)
        {
        }
        shard& where;
        files::state_table table;
        intrusive_list<list_hook> begun; // each a begun_open
    };
    template<class F>
    static auto at(file_home& home, F f)
    {
        return home.where.run([f = std::move(f), &home]() mutable { return f(home.table); });
    }
    task<std::vector<result<void>>> test_at_each(files::client_id client,
                                                 std::span<const files::stateid> ids);
    task<result<added>> add_here(std::string_view key, std::uint64_t peer, const files::client_label* label);
    // An open of a file that is cut on its caller's shard. The caller owns it, and however the caller's task ends, it
    // comes home and ends there: that needs no memory.
    class begun_open;
    struct give_home {
        void operator()(begun_open* b) const noexcept;
    };
    task<result<files::opened>> open_and_cut(const files::open_request& request, const opening& file);
    static task<result<void>> begin_to_cut(const files::open_request* request, begun_open* begun);
    static task<result<files::opened>> end_cut(const files::open_request* request, const opening* file,
                                               begun_open* begun, const result<storage::change>* cut);

    shard& home_;
    holder_inquiry* inquiry_ = nullptr;
    files::table_commons commons_;
    files::client_book book_;
    std::deque<file_home> homes_;
    std::vector<files::client_id> abandoned_; // of the clients' home
};

} // namespace verbena::nfs

#pragma GCC visibility pop
