// SPDX-License-Identifier: Apache-2.0
// The state layer's table (docs/internals/files.md) where all programs of version 4 find it: on one shard, which the others visit.
#pragma once

#include <verbena/core/shard.hpp>
#include <verbena/protocols/files/state_table.hpp>
#include <verbena/protocols/nfs/server/io_list.hpp>
#include <verbena/protocols/nfs/wire/v4/state_operations.hpp>
#include <verbena/protocols/nfs/wire/v4/types.hpp>
#include <verbena/protocols/storage/file_backend.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// The status that answers what the state layer says.
nfsstat4 status_of(files::errc why) noexcept;
/// Of an error of the state layer; else, of its recovery store's, delay: what can't be written isn't promised, and may be as soon as
/// the disk has room.
nfsstat4 status_of_state(const error& failure) noexcept;

inline files::stateid to_state(const stateid4& id) noexcept { return {id.seqid, id.other}; }
inline stateid4 to_wire(const files::stateid& id) noexcept { return {id.seqid, id.other}; }

inline files::lock_type type_of(nfs_lock_type4 type) noexcept
{
    return type == nfs_lock_type4::read || type == nfs_lock_type4::readw ? files::lock_type::read
                                                                         : files::lock_type::write;
}

/// What the holder of a write delegation says of its file.
struct held_attributes {
    changeid4 change = 0;
    std::uint64_t size = 0;
};

/// Asks clients for what they keep to themselves. Used on the state layer's shard.
class holder_inquiry {
public:
    /// Completes when: `holder` has answered, or it is clear that it doesn't within `patience`. On cancel: ECANCELED. Errors: any, where
    /// there is no answer. Lifetime: `file` is borrowed. Shard: the state layer's.
    virtual task<result<held_attributes>> ask(files::client_id holder, const files::stateid& id,
                                              const storage::handle& file, duration patience) = 0;

protected:
    ~holder_inquiry() = default;
};

/// What others are to see of a file that a client keeps to itself (RFC 8881 10.4.3).
struct kept_attributes {
    bool modified = false;   ///< the holder has changed the file, and
    std::uint64_t size = 0;  ///< this is its size
    changeid4 least = 0;     ///< the change attribute when the holder got it
    std::uint64_t steps = 0; ///< how often others have seen it changed: each time it was one more

    /// What others see, from what the server has: more than before where it is modified, and never less, also when the holder has sent
    /// what it kept, or has given the delegation back.
    changeid4 change_from(changeid4 known) const noexcept
    {
        return modified ? std::max(known, least) + steps : std::max(known, least + steps);
    }
    /// Size and times. What was modified is so as of now: when, its holder does not say.
    void apply(storage::attributes& attrs) const noexcept;
};

/// The table and its home. Made on any shard; used by all.
///
/// This holds for all its tasks. Completes when: the table has answered. On cancel: as shard::run(). Errors: as the table's function
/// of that name, as a status. Lifetime: what they are given is borrowed. Shard: any.
class state_home {
public:
    /// `home`, `store` and `handler` outlive it, and `home` runs its table's tend().
    state_home(shard& home, files::recovery_store& store, files::state_handler& handler,
               files::state_options options);
    /// From now on holders of write delegations are asked by `how`, which outlives it, before they have to give them back.
    void ask_holders(holder_inquiry& how) noexcept { inquiry_ = &how; }

    const files::state_options& options() const noexcept { return table_.options(); }
    bool is_home(const shard& s) const noexcept { return &s == &home_; }
    shard& home() const noexcept { return home_; }
    /// On its home only.
    time_point now() const noexcept { return home_.reactor().clock().now(); }
    /// Any thread.
    const files::state_stats& stats() const noexcept { return table_.stats(); }
    /// On its home only.
    files::state_table& table() noexcept { return table_; }
    /// Whether clients may reclaim what they had before a restart: until then nobody gets anything new. Any shard.
    bool is_in_grace() const noexcept { return stats().grace.value() != 0; }
    /// Whether one of these clients may have kept others from `access`, of whatever file, as its record says. Any shard.
    bool is_in_grace(files::share access) const noexcept
    {
        return (any(access & files::share::read) && stats().reads_wait_for.value() != 0) ||
               (any(access & files::share::write) && stats().writes_wait_for.value() != 0);
    }

    /// co_await of what `f(table)` yields, a value or a task, on the table's shard.
    template<class F>
    auto at_home(F f)
    {
        return home_.run([f = std::move(f), this]() mutable { return f(table_); });
    }

    struct added {
        nfsstat4 status = nfsstat4::ok;
        files::client_id client = files::nobody;
        bool must_reclaim = false; ///< it may, and is to say when it is done
        bool is_full =
            false; ///< all places are taken, of whichever minor version: another client has to go first
    };
    task<added> add_client(std::string_view key, std::uint64_t peer = 0);
    /// `revoked`: whether the client has something that was revoked.
    task<nfsstat4> renew(files::client_id client, bool& revoked);
    task<nfsstat4> set_callable(files::client_id client);
    /// Also of one that is not there.
    task<nfsstat4> forget(files::client_id client);
    /// The same for who wants its name. `stands_against`, unless it is ok, is the answer while the client does not yield: while the store writes
    /// of it, while its lease runs, and, of CLID_INUSE, only if it also has something.
    task<nfsstat4> take_name(files::client_id client, nfsstat4 stands_against);
    /// On its home only. Whether a client gives way to who is told `stands_against` otherwise.
    bool yields(files::client_id client, nfsstat4 stands_against);
    /// As forget(), for who has nobody to tell a failure: what the store refuses is tried again by forget_abandoned().
    task<void> abandon(files::client_id client);
    /// On its home only. Completes when: each was tried once.
    task<void> forget_abandoned();
    task<nfsstat4> is_in_use(files::client_id client, bool& in_use);
    struct life {
        bool active = false; ///< its lease is not over
        bool in_use = false; ///< it has something
    };
    task<life> life_of(files::client_id client);
    task<nfsstat4> reclaim_complete(files::client_id client);
    /// Of which file the client's delegation is; empty where it has none such.
    task<storage::handle> file_of_delegation(files::client_id client, const stateid4& id);

    /// Whether an open anew would be refused whatever the file: to be asked before one is made. The open that follows is promised.
    task<nfsstat4> may_open(files::client_id client, std::span<const std::byte> owner, files::share deny);
    /// Opens. Between the decision and its answer the file is cut to no bytes, if the request says so, and its change attribute looked at, where
    /// its client gets a write delegation: others may have changed the file while this waited.
    struct opening {
        storage::file_backend* backend = nullptr;
        storage::request request;
        storage::handle file;
        std::uint32_t export_id = 0;
    };
    struct opened {
        nfsstat4 status = nfsstat4::ok;
        stateid4 id;
        std::optional<files::granted_delegation> delegation;
        files::no_delegation why = files::no_delegation::not_wanted; ///< where there is none
        std::optional<error> failure;                                ///< of the back end
    };
    task<opened> open(const files::open_request& request, const opening& file);
    task<nfsstat4> close(files::client_id client, const stateid4& id, const storage::handle& file);
    task<opened> downgrade(files::client_id client, const stateid4& id, const storage::handle& file,
                           files::share access, files::share deny);
    /// What check_io() found out about the stateid: see files::passage.
    struct io_terms {
        bool guarded = false; ///< keeps_writers_out()
        std::shared_ptr<const storage::open_file> opened;
    };
    /// Whether `client` may read, write or set the size of `file` by `id`, special ones too. Who changes the file has a hold of
    /// changes() before: nothing that contradicts is granted until it ends.
    task<nfsstat4> check_io(files::client_id client, const stateid4& id, const storage::handle& file,
                            files::operation op, io_terms& terms);
    /// What others hold of `file` that has to go before `op` is made to go; `client` may be nobody. Where !has_state() there is
    /// nothing. As to changes, see check_io().
    task<nfsstat4> make_way(files::client_id client, const storage::handle& file, files::operation op);
    /// make_way() for who reads attributes: whoever has a write delegation of the file is asked for them, and recalled if it does not answer.
    struct looked {
        nfsstat4 status = nfsstat4::ok;
        std::optional<kept_attributes> kept; ///< if somebody has one, and has answered
    };
    task<looked> look(files::client_id client, const storage::handle& file);
    task<nfsstat4> return_delegation(files::client_id client, const stateid4& id,
                                     const storage::handle& file);
    /// Of each; special ones are bad_stateid.
    task<std::vector<nfsstat4>> test(files::client_id client, std::span<const stateid4> ids);
    /// `revoked`: whether the client still has something that was revoked.
    task<nfsstat4> free(files::client_id client, const stateid4& id, bool& revoked);

    /// Where what reads or writes on a shard stands before it asks check_io() or make_way(), until it is over. Any thread; `where` and what it
    /// yields are good as long as this.
    io_list& io_of(const shard& where);
    /// What reads or writes the file on any shard and began before this has ended, or not within `patience`.
    task<bool> io_ends(storage::handle file, files::share denied, duration patience);

    /// Asked on any thread, without a way to the table: whether anybody has state of `file`, or of any file.
    bool has_state(const storage::handle& file) const noexcept
    {
        return table_.has_any_state() && table_.has_state(file);
    }
    bool has_any_state() const noexcept { return table_.has_any_state(); }
    /// Of a change whose file is known by a name alone. True: nobody has state of any file, and until `change` ends nobody gets a delegation
    /// that the change contradicts, so the name need not be looked up. False: `change` holds nothing that matters. Called on `where`.
    bool passes_unseen(files::change_hold& change, const shard& where) noexcept
    {
        if (has_any_state())
            return false;
        change.begin_of_any(changes(), where.index());
        return !has_any_state();
    }
    files::changes_under_way& changes() noexcept { return table_.changes(); }

    struct locked {
        nfsstat4 status = nfsstat4::ok;
        stateid4 id;
        files::lock_holder holder; ///< if denied
    };
    task<locked> lock(const files::lock_request& request);
    task<locked> test_lock(files::client_id client, const storage::handle& file,
                           std::span<const std::byte> owner, const files::byte_range& bytes,
                           files::lock_type type);
    task<locked> unlock(files::client_id client, const stateid4& id, const storage::handle& file,
                        const files::byte_range& bytes);

private:
    task<added> add_here(std::string_view key, std::uint64_t peer);

    struct place {
        explicit place(const shard& s) noexcept : where(&s) {}
        const shard* where;
        io_list io;
    };
    shard& home_;
    holder_inquiry* inquiry_ = nullptr;
    files::state_table table_;
    std::mutex places_lock_;
    std::vector<std::unique_ptr<place>> places_; // one for each shard that serves
    std::vector<files::client_id> abandoned_;    // of the home
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
