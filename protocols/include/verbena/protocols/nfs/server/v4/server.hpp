// SPDX-License-Identifier: Apache-2.0
// The NFS version 4 program: minor versions 0 (7530), 1 (8881) and 2 (7862) over exports, without layouts. docs/internals/nfs4.md.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/protocols/nfs/server/caller_groups.hpp>
#include <verbena/protocols/nfs/server/covered.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>
#include <verbena/protocols/nfs/server/file_handle.hpp>
#include <verbena/protocols/nfs/server/state_home.hpp>
#include <verbena/protocols/nfs/server/v4/callbacks.hpp>
#include <verbena/protocols/nfs/server/v4/pseudo_tree.hpp>
#include <verbena/protocols/nfs/server/v4/sessions.hpp>
#include <verbena/protocols/nfs/server/v4/state_answers.hpp>
#include <verbena/protocols/nfs/server/v4/storage.hpp>
#include <verbena/protocols/nfs/server/v4/v40_state.hpp>
#include <verbena/protocols/nfs/user_names.hpp>
#include <verbena/protocols/nfs/wire/v4/compound.hpp>
#include <verbena/protocols/rpc/service.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// What the programs of all shards share: clients, sessions, state, names. Made when the exports are known; outlives the programs.
struct server_commons {
    /// `home` is the shard of the state layer. `store`, which outlives this, has begun, and `options` has what that said; its key is made of `key`. `now` is the time of day of this start in
    /// seconds since 1970.
    server_commons(const export_table& exports, const handle_key& key, shard& home,
                   files::recovery_store& store, files::state_options options, std::int64_t now,
                   session_limits limits = {});

    /// verbena_nfs4_* of the state, which all shards share.
    metric_registrations expose(metric_registry& registry) const;

    /// Once a lease, ends the clients that have nothing to come back for: what they had was taken, or they had nothing and their
    /// lease is over.
    /// Completes when: its task is stopped. On cancel: it ends. Errors: none. Lifetime: this outlives it. Shard: `home`.
    task<void> tend();
    /// Ends clients whose lease is over, those first that have nothing or whose lease ended first: of the peer's group, or of all. True if there
    /// was one. At most once a second.
    /// Completes when: they are gone. On cancel: as the state layer's store says. Errors: none. Lifetime: `from` is borrowed.
    /// Shard: any.
    task<bool> make_room(session_table::shortage of, std::string_view from);
    /// The same among clients of minor version 0.
    task<bool> make_room_v40(session_table::shortage of, std::string_view from);
    /// The same among all clients, for one that the state layer has no place for.
    task<bool> make_room_of_state();

    /// Ends what `client` has for another user who wants its name, and then it is gone from the state layer. CLID_INUSE
    /// if it does not give way: while its lease runs and it has sessions or something in the state layer, while a call
    /// of its runs, or a session of it is being created. In one step, so that nothing is granted to it in between.
    /// Completes when: it is gone, or stays. On cancel: as the state layer's store says. Errors: as a status, DELAY
    /// where the store refuses; then it stays. Lifetime: this outlives it. Shard: any.
    task<nfsstat4> end_rival(files::client_id client);
    /// Says in the log that the client `from` waits, or is refused, since the one at `holder` has its name. Any thread.
    void note_shared_name(std::span<const std::byte> name, std::string_view holder, std::string_view from);

    const export_table& exports;
    const handle_key key;
    const pseudo_tree tree;
    const std::int64_t started;
    /// The same over restarts, another one for each daemon: else a client would take two servers for one.
    const std::string owner;
    /// Which minor versions are served; to be set before the first call.
    std::array<bool, max_minor_version + 1> minors{false, true, true};
    /// Who knows users and groups by their names, on `home`; nothing where clients may say numbers alone. Outlives the programs, and
    /// is to be set before the first of them is made.
    user_names* users = nullptr;
    callback_sender callbacks;
    state_home state;
    session_table sessions;
    v40_state v40;

private:
    enum class ending : bool { of_what_is_lost, of_each };
    task<std::size_t> end_lapsed(std::vector<files::client_id> clients, ending what, std::size_t most);
    template<class Choose>
    task<bool> end_some(Choose choose);
    seldom made_room_of_state_; // of the state layer's shard
    log_limiter shared_names_{3, std::chrono::minutes(1)};
};

/// What one shard's program has done. Written by its shard, read from any thread.
struct server_counters {
    enum class result_class : std::uint8_t { ok, later, failed };
    static constexpr std::size_t classes = 3;
    static constexpr std::size_t kinds = static_cast<std::size_t>(last_operation) + 1;

    void note(nfs_opnum4 operation, nfsstat4 status) noexcept;

    /// By number; 0 counts those that are none.
    std::array<std::array<counter, classes>, kinds> operations;
    counter bytes_read;
    counter bytes_written;
    access_counters refused;
    counter refused_handle;               ///< forged, or signed with another key
    counter refused_export;               ///< a good handle of an export that is gone
    files::limit_counters refused_limits; ///< clients and sessions that were not made
    counter replays;                      ///< calls answered by what their slot kept
    counter known_names;                  ///< owners whose names this shard knew
};

/// One shard's program. Calls of all of the shard's connections go through it, whatever their transport. `commons` and `here`, that
/// shard, outlive it, and the calls to clients.
class server final : public rpc::program {
public:
    /// maxread and maxwrite.
    static constexpr std::uint32_t max_transfer = 1u << 20;
    /// The largest READDIR result.
    static constexpr std::uint32_t max_listing = 128u << 10;
    /// What one COPY copies, and how long it begins to copy more. The client asks for the rest.
    static constexpr std::uint64_t max_copy = 64u << 20;
    static constexpr duration max_copy_time = std::chrono::seconds(2);
    /// Names of owners that a shard keeps at hand, and as many numbers that have none: more than a listing has.
    static constexpr std::size_t names_at_hand = 8192;
    /// How long one listing waits for what other exports that begin in it tell of their roots.
    static constexpr duration patience_with_roots = std::chrono::seconds(1);

    server(server_commons& commons, const shard& here)
        : commons_(commons), here_(here), covered_(commons.exports, &here), io_(commons.state.io_of(here))
    {
    }

    std::uint32_t number() const noexcept override { return v4::program; }
    std::uint32_t low_version() const noexcept override { return v4::version; }
    std::uint32_t high_version() const noexcept override { return v4::version; }
    std::string_view name() const noexcept override { return "nfs"; }
    std::string_view procedure_name(std::uint32_t version, std::uint32_t procedure) const noexcept override;
    /// By repeats(): where there are sessions, slots answer repeats.
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return false; }
    rpc::repeat_rule repeats(rpc::call& c) const noexcept override;
    /// Each COMPOUND: where there are sessions its slot keeps what it was answered with, and a repeat gets that.
    bool goes_on_alone(rpc::call& c) const noexcept override;
    bool calls_back() const noexcept override { return true; }
    bool admits(const rpc::peer& from) override { return is_for(commons_.exports, from, host_); }
    /// verbena_nfs4_*.
    metric_registrations expose(metric_registry& registry) const override;
    task<rpc::outcome> serve(rpc::call& c) override;

    const server_counters& counters() const noexcept { return counters_; }

private:
    struct object;
    struct compound;
    class entry_sink;
    enum class purpose : bool { reading, changing };

    static task<rpc::outcome> end_with(rpc::outcome outcome);
    task<rpc::outcome> serve_compound(rpc::call& c);
    task<rpc::outcome> serve_session(rpc::call& c, compound_arguments& args, const xdr::decoder& entire);
    task<rpc::outcome> serve_alone(rpc::call& c, compound_arguments& args);
    task<void> run_operations(compound& k);
    task<nfsstat4> run(compound& k, nfs_opnum4 operation);
    static task<nfsstat4> answer_with(nfsstat4 status);
    principal caller(const rpc::call& c) const noexcept;
    std::uint64_t mark_of(rpc::call& c, const compound_arguments& args,
                          const SEQUENCE4args& sequence) const noexcept;
    task<nfsstat4> renew(session& s);

    // Minor version 0.
    rpc::repeat_rule rule_of(xdr::decoder ahead) const noexcept;
    task<rpc::outcome> serve_v40(rpc::call& c, compound_arguments& args, const xdr::decoder* whole);
    task<void> learn_client(compound& k);
    task<nfsstat4> run_v40(compound& k, nfs_opnum4 operation);
    task<nfsstat4> setclientid(compound& k);
    task<nfsstat4> setclientid_confirm(compound& k);
    task<nfsstat4> renew(compound& k);
    task<nfsstat4> release_lockowner(compound& k);
    task<nfsstat4> run_open_v40(compound& k, const OPEN4args& args, OPEN4res& res);
    task<nfsstat4> open_v40(compound& k);
    nfsstat4 refusal_v40(const compound& k, nfsstat4 room) const noexcept;
    template<class Args>
    using owned = task<v40_answer> (v40_state::*)(const Args&, const storage::handle&, nfsstat4);
    template<class Args, class Results>
    task<nfsstat4> run_owned(compound& k, stateid4 Results::* id, owned<Args> what);
    task<nfsstat4> lock_v40(compound& k);

    // Clients and sessions.
    task<nfsstat4> exchange_id(compound& k);
    task<nfsstat4> create_session(compound& k);
    task<nfsstat4> make_session(compound& k, const CREATE_SESSION4args& args,
                                const session_table::creation& made);
    task<nfsstat4> destroy_session(compound& k);
    task<nfsstat4> destroy_clientid(compound& k);
    task<nfsstat4> bind_conn_to_session(compound& k);
    task<nfsstat4> backchannel_ctl(compound& k);
    std::uint32_t status_flags(rpc::call& c, const session& s) const;
    task<nfsstat4> reclaim_complete(compound& k);

    // Handles and names.
    nfsstat4 find(const rpc::call& c, std::span<const std::byte> wire, object& to);
    nfsstat4 find_exported(const rpc::call& c, std::uint32_t export_id, const storage::handle& file,
                           object& to);
    nfsstat4 enter(const rpc::call& c, const pseudo_node& node, object& to);
    /// Likewise, when the groups of the caller have been looked up if need be.
    task<nfsstat4> enter_with_groups(const rpc::call& c, const pseudo_node& node, object& to);
    /// Has set_export() know the groups of the caller, which it has just not known (manage_gids).
    task<void> learn_groups(const rpc::call& c);
    /// delay, and no export: the groups of the caller are not known, and nothing else yields it. serverfault: for so
    /// long that nobody should come again.
    nfsstat4 set_export(const rpc::call& c, const export_options& exported, object& to);
    bool sign(const object& of, file_handle& to) const noexcept;
    /// The place in the pseudo file system of an export that begins by `name` in `directory`, the root of another one; else nullptr.
    const pseudo_node* nested_at(const object& directory, std::string_view name) const noexcept;
    task<nfsstat4> enter_nested(const rpc::call& c, const pseudo_node& place, object& to);
    /// The place of the export that covers `directory`, found in its export under whatever name; nullptr if none does.
    task<const pseudo_node*> place_covering(const object& directory, const storage::attributes* attrs);
    task<nfsstat4> find_parent_of_export(compound& k, const pseudo_node& place, object& to);
    task<nfsstat4> find_child(compound& k, const object& directory, std::string_view name, object& to);
    task<nfsstat4> find_parent(compound& k, const object& of, object& to);
    task<nfsstat4> putfh(compound& k);
    task<nfsstat4> put_root(compound& k, nfs_opnum4 as);
    task<nfsstat4> getfh(compound& k);
    task<nfsstat4> savefh(compound& k);
    task<nfsstat4> restorefh(compound& k);
    task<nfsstat4> lookup(compound& k);
    task<nfsstat4> lookupp(compound& k);
    task<nfsstat4> secinfo(compound& k);
    task<nfsstat4> secinfo_no_name(compound& k);

    // Attributes.
    /// What the file system of `of` has, in the minor version of the call.
    static bitmap4 supported(const compound& k, const object& of) noexcept;
    /// `kept`, if given: what a client keeps to itself of the file.
    task<nfsstat4> values_of(compound& k, const object& of, bitmap4 wanted, object_values& out,
                             const kept_attributes* kept = nullptr,
                             const storage::attributes* before = nullptr);
    task<nfsstat4> current_values(compound& k, bitmap4 wanted, object_values& out);
    void set_constants(const compound& k, const object& of, object_values& out) const noexcept;
    void set_pseudo(const rpc::call& c, const pseudo_node& node, object_values& out);
    void set_file(const object& of, const storage::attributes& attrs, object_values& out) const noexcept;
    /// What mounted_on_fileid is of the root of an export that lies in another one.
    task<void> set_covered(const rpc::call& c, const object& root, object_values& out);
    task<nfsstat4> getattr(compound& k);
    task<nfsstat4> setattr(compound& k);
    task<nfsstat4> access(compound& k);
    task<nfsstat4> verify(compound& k);
    task<nfsstat4> nverify(compound& k);
    task<nfsstat4> compare(compound& k, const fattr4& theirs);
    task<nfsstat4> compare_acl(compound& k, const acl_view& theirs, object_values& values);
    static task<nfsstat4> values_of_acl(const object& of, object_values& out);
    static task<void> make_room(compound& k, const object_values& values);

    // Owners by name.
    using name_text = std::shared_ptr<const std::string>;
    bool says_names(const bitmap4& wanted) const noexcept;
    /// Says those that this shard knows; others are added to `unknown`. It is nullptr where they have just been asked for.
    void say_known_names(const bitmap4& wanted, object_values& out, std::vector<account>* unknown);
    /// Has this shard know the names of `those`, as far as they can be found out in time.
    task<void> learn_names(compound& k, std::vector<account>& those);
    task<void> say_names(compound& k, bitmap4 wanted, object_values& out);
    /// When a call that begins to wait for a name now waits no longer: all its names have one patience.
    time_point names_until(const compound& k) const noexcept;
    /// from_settable(), which answers badowner for names, for who may name owners, and whoever has an entry in an ACL.
    task<nfsstat4> named_settable(compound& k, const attributes& from, storage::set_attributes& to,
                                  storage::access_list& acl);
    task<nfsstat4> named_attributes(compound& k, const attributes& from, storage::set_attributes& to);
    task<nfsstat4> id_named(compound& k, account_kind kind, std::string_view text, std::uint32_t& id);

    // Directories.
    task<nfsstat4> create(compound& k);
    task<nfsstat4> remove(compound& k);
    static nfsstat4 need_both(const compound& k);
    task<nfsstat4> may_change(const object& directory, std::string_view name);
    task<nfsstat4> rename(compound& k);
    static task<nfsstat4> status_of_renaming(compound& k, nfsstat4 status);
    task<nfsstat4> link(compound& k);
    task<nfsstat4> readdir(compound& k);
    task<nfsstat4> list_pseudo(compound& k, const READDIR4args& args);
    static task<nfsstat4> why_unseen(const object& directory);
    bool set_entry(const compound& k, const storage::directory_entry& e, bitmap4& said,
                   object_values& out) const;
    task<nfsstat4> list_one_by_one(compound& k, const READDIR4args& args, std::uint64_t cookie,
                                   std::uint64_t verifier);
    task<nfsstat4> say_entry(compound& k, const storage::directory_entry& e, bitmap4& said,
                             object_values& out, time_point until);
    task<void> say_nested(compound& k, const pseudo_node& place, std::uint64_t covered, bitmap4& said,
                          object_values& out, time_point until);
    /// What a look at an export's root gives.
    struct root_look;
    static task<void> look_at_root(std::shared_ptr<root_look> l);
    /// values_of() an export's root, for a listing of what lies around it: another file system that hangs holds it up
    /// until then at most. delay where it does.
    task<nfsstat4> values_of_root(compound& k, const object& root, bitmap4 wanted, object_values& out,
                                  time_point until);
    /// When a listing that begins now waits for no other export any longer.
    time_point roots_until() const noexcept;

    // Data.
    task<nfsstat4> refuse_data(const object& of, nfsstat4 status);
    task<nfsstat4> read(compound& k);
    task<nfsstat4> write(compound& k);
    task<nfsstat4> commit(compound& k);
    task<nfsstat4> readlink(compound& k);

    // Minor version 2.
    task<nfsstat4> seek(compound& k);
    task<nfsstat4> allocate(compound& k);
    task<nfsstat4> deallocate(compound& k);
    using extents_change = task<result<storage::change>> (storage::file_backend::*)(const storage::request&,
                                                                                    const storage::handle&,
                                                                                    std::uint64_t,
                                                                                    std::uint64_t);
    template<class Arguments, class Results>
    task<nfsstat4> change_extents(compound& k, extents_change what);
    task<nfsstat4> io_advise(compound& k);
    task<nfsstat4> copy(compound& k);
    static task<nfsstat4> may_copy_between(const object& from, const object& to);
    task<nfsstat4> clone(compound& k);
    task<nfsstat4> begin_between(compound& k, stateid4 source, stateid4 target, files::change_hold& change);
    task<nfsstat4> getxattr(compound& k);
    task<nfsstat4> setxattr(compound& k);
    task<nfsstat4> listxattrs(compound& k);
    task<nfsstat4> removexattr(compound& k);
    task<nfsstat4> begin_changing_xattrs(compound& k, std::string_view name, std::size_t size,
                                         files::change_hold& change, storage::attributes& seen);

    // State.
    struct open_target;
    task<nfsstat4> check_io(compound& k, stateid4 id, files::operation op);
    task<nfsstat4> check_io_of(compound& k, object& of, stateid4 id, files::operation op);
    task<nfsstat4> open(compound& k);
    task<nfsstat4> open_file(compound& k, const OPEN4args& args, OPEN4res& res);
    task<nfsstat4> find_to_open(compound& k, const OPEN4args& args, open_target& to);
    task<nfsstat4> find_by_delegation(compound& k, const stateid4& id, open_target& to);
    task<nfsstat4> create_to_open(compound& k, const OPEN4args& args, open_target& to);
    task<void> unmake(const object& directory, std::string_view name, const storage::handle& file);
    task<nfsstat4> status_of_stale(compound& k, std::string_view name, const object& file);
    task<nfsstat4> open_target_for(open_target& to, files::share access);
    task<nfsstat4> open_downgrade(compound& k);
    task<nfsstat4> close(compound& k);
    task<nfsstat4> delegreturn(compound& k);
    task<nfsstat4> make_way(compound& k, const object& of, files::operation op);
    task<nfsstat4> make_way_to(compound& k, const object& directory, std::string_view name,
                               files::operation op, files::change_hold& change);
    task<nfsstat4> may_lock(const object& file);
    task<nfsstat4> lock(compound& k);
    task<nfsstat4> lockt(compound& k);
    task<nfsstat4> locku(compound& k);
    task<nfsstat4> test_stateid(compound& k);
    task<nfsstat4> free_stateid(compound& k);

    server_commons& commons_;
    const shard& here_;
    covered_directories covered_;
    io_list& io_;
    caller_groups groups_;
    host_addresses host_;
    detail::expiring_cache<account, name_text> names_{names_at_hand, names_at_hand};
    /// Of exports that lie in others, the number of what each covers.
    std::map<const export_options*, std::uint64_t> covered_numbers_;
    /// Looks that were waited for in vain. While one lasts its export is not asked again.
    std::map<const export_options*, std::shared_ptr<root_look>> late_roots_;
    server_counters counters_;
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
