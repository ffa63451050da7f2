// SPDX-License-Identifier: Apache-2.0
// The NFS version 3 program (RFC 1813): every procedure, over exports.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/protocols/nfs/server/caller_groups.hpp>
#include <verbena/protocols/nfs/server/covered.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>
#include <verbena/protocols/nfs/server/file_handle.hpp>
#include <verbena/protocols/nfs/server/state_home.hpp>
#include <verbena/protocols/nfs/server/status_counts.hpp>
#include <verbena/protocols/nfs/wire/v3/arguments.hpp>
#include <verbena/protocols/nfs/wire/v3/results.hpp>
#include <verbena/protocols/rpc/program.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v3 {

/// What one shard's program has done. Written by its shard, read from any thread.
struct server_counters {
    counter bytes_read;
    counter bytes_written;
    access_counters refused;
    counter refused_handle;    ///< forged, or signed with another key
    counter refused_export;    ///< a good handle of an export that is gone
    counter refused_read_only; ///< a change to a read-only export
    counter refused_mount;     ///< a mount beneath an export that doesn't follow them
    status_counts errors;      ///< by procedure and status
};

/// One shard's program. Calls of all of the shard's connections go through it, whatever their
/// transport. `exports` and `state` outlive it. `state`, if given, is what version 4's clients have of the same exports: what of it
/// contradicts a call is recalled before, and the caller told to come again (JUKEBOX) where that takes long.
class server final : public rpc::program {
public:
    /// rtmax and wtmax. A larger READ is cut short, as RFC 1813 3.3.6 allows; a larger WRITE is taken if
    /// its transport took it.
    static constexpr std::uint32_t max_transfer = 1u << 20;
    /// The largest READDIR and READDIRPLUS result.
    static constexpr std::uint32_t max_listing = 128u << 10;
    static constexpr std::uint32_t preferred_listing = 64u << 10;

    /// `state`, which outlives it, is what clients of version 4 have of the same files. What is in the way of that waits for it or comes
    /// again; so does, after a restart, what might contradict what they have still to take back (RFC 8881 8.4.2). nullptr: there is none.
    /// `here` is the program's shard, to be given with it, and where there are several.
    server(const export_table& exports, const handle_key& key, state_home* state = nullptr,
           const shard* here = nullptr)
        : exports_(exports),
          key_(key),
          state_(state),
          index_(here != nullptr ? here->index() : 0),
          covered_(exports, here),
          under_way_(state != nullptr ? &state->operations().on(*here) : nullptr)
    {
    }

    std::uint32_t number() const noexcept override;
    std::uint32_t low_version() const noexcept override;
    std::uint32_t high_version() const noexcept override;
    std::string_view name() const noexcept override { return "nfs"; }
    std::string_view procedure_name(std::uint32_t version, std::uint32_t procedure) const noexcept override;
    bool non_idempotent(std::uint32_t version, std::uint32_t procedure) const noexcept override;
    bool repeats_in_turn(std::uint32_t version, std::uint32_t procedure) const noexcept override;
    bool admits(const rpc::peer& from) override { return is_for(exports_, from, host_); }
    /// verbena_nfs_*.
    metric_registrations expose(metric_registry& registry) const override;
    task<rpc::outcome> serve(rpc::call& c) override;

    const server_counters& counters() const noexcept { return counters_; }

private:
    // A file that a caller named, once it was found that it may use that file's export.
    struct target final : request_detail {
        export_table::use lists = {};
        export_ref exported = {};
        storage::handle file;
        storage::request request;

        storage::file_backend& backend() const noexcept { return *exported->backend; }
        void describe(request_report& into) const noexcept override { nfs::describe(*exported, file, into); }
    };
    enum class purpose : bool { reading, changing };

    // The export that covers what `directory` has by this name; nullptr if none does.
    const export_options* nested_at(const target& directory, std::string_view name) const noexcept;
    // The one that covers what was found there under whatever name.
    task<const export_options*> covering(const target& directory, const storage::entry& found);
    task<nfsstat3> may_change(rpc::call& c, const target& directory, std::string_view name);
    bool is_in_grace() const noexcept;
    bool is_in_grace(files::operation op) const noexcept;
    // A call counts for the first export whose object it names.
    void begin_counting(rpc::call& c, const export_options& of) noexcept;
    static export_counters* counters_of(const rpc::call& c) noexcept
    {
        return static_cast<export_counters*>(c.noted());
    }
    void count_read(const rpc::call& c, std::uint32_t bytes) noexcept;
    void count_error(const rpc::call& c, nfsstat3 status) noexcept;
    // What a back end's failure is to a caller. A rule of the export is counted here, so that none is missed.
    nfsstat3 status_of(const error& failure) noexcept;
    // Before anything is changed.
    nfsstat3 open(rpc::call& c, const nfs_fh3& handle, purpose why, target& to);
    // Likewise, of what might contradict what clients of version 4 have still to take back: by names, or to read or write.
    nfsstat3 open_outside_grace(rpc::call& c, const nfs_fh3& handle, purpose why, target& to);
    nfsstat3 open_for_io(rpc::call& c, const nfs_fh3& handle, files::operation op, target& to);
    nfsstat3 find(const rpc::call& c, const nfs_fh3& handle, purpose why, target& to);
    task<nfsstat3> open_root(rpc::call& c, const export_options& exported, target& to);
    // As whom the caller acts in to.exported, if it may use that.
    nfsstat3 enter(const rpc::call& c, target& to);
    // `op` is under way from here on. Whether clients of version 4 may have something of the file, so that make_way() is to be awaited.
    [[nodiscard]] bool begin(files::under_way& doing, const target& of, files::operation op) noexcept;
    task<nfsstat3> make_way(rpc::call& c, const target& of, files::operation op);
    /// What is in the way, as the state layer says it.
    static nfsstat3 refuse_way(rpc::call& c, const error& why) noexcept;
    // `may`, if given, asks the back end first whether it would refuse the operation. `asked` gets the handle of the file that was asked about.
    task<nfsstat3> make_way_to(rpc::call& c, const target& directory, std::string_view name,
                               files::operation op, files::under_way& doing,
                               std::function<task<result<void>>()> may = nullptr,
                               std::optional<storage::handle>* asked = nullptr);
    post_op_fh3 sign(const export_options& exported, const storage::handle& inner) const noexcept;
    // Ends a procedure. An error is counted here, so that none is missed.
    template<class Results>
    rpc::outcome reply(rpc::call& c, const Results& res) noexcept;
    // What a procedure returns beside its results, if it can be had.
    task<post_op_attr> attributes_of(const target& of);
    // Ends a change that failed, with what `of` is like now: wcc_data help above all then (RFC 1813 2.6). `wcc` is of `res`.
    template<class Results>
    task<rpc::outcome> refuse(rpc::call& c, Results& res, nfsstat3 why, wcc_data& wcc, const target& of);

    static task<rpc::outcome> end_with(rpc::outcome outcome);
    task<rpc::outcome> run(rpc::call& c);
    // Whether the groups of the caller have to be looked up first (manage_gids): a handle in the arguments is ours, of
    // an export that the peer may use and where they matter.
    bool must_learn(rpc::call& c);
    bool opens_with_groups(const rpc::call& c, const nfs_fh3& handle);
    // When that was done, as far as it can be.
    task<rpc::outcome> learn_and_run(rpc::call& c);
    task<rpc::outcome> getattr(rpc::call& c);
    task<rpc::outcome> setattr(rpc::call& c);
    task<rpc::outcome> lookup(rpc::call& c);
    task<rpc::outcome> access(rpc::call& c);
    task<rpc::outcome> readlink(rpc::call& c);
    task<rpc::outcome> read(rpc::call& c);
    task<rpc::outcome> write(rpc::call& c);
    task<rpc::outcome> create(rpc::call& c);
    task<rpc::outcome> mkdir(rpc::call& c);
    task<rpc::outcome> symlink(rpc::call& c);
    task<rpc::outcome> mknod(rpc::call& c);
    task<rpc::outcome> remove(rpc::call& c);
    task<rpc::outcome> rmdir(rpc::call& c);
    task<rpc::outcome> rename(rpc::call& c);
    task<rpc::outcome> link(rpc::call& c);
    task<rpc::outcome> readdir(rpc::call& c);
    task<rpc::outcome> readdirplus(rpc::call& c);
    task<rpc::outcome> fsstat(rpc::call& c);
    task<rpc::outcome> fsinfo(rpc::call& c);
    task<rpc::outcome> pathconf(rpc::call& c);
    task<rpc::outcome> commit(rpc::call& c);

    // Whether `user` may write `file`, asked before bytes are brought here for it.
    task<nfsstat3> may_write(const target& file);
    void end_creation(const target& directory, const result<storage::create_result>& made,
                      CREATE3res& res) noexcept;
    template<class Writer, class Arguments>
    task<rpc::outcome> list(rpc::call& c, Arguments args, std::uint32_t size);

    const export_table& exports_;
    handle_key key_;
    state_home* state_;
    const unsigned index_; // of the shard
    covered_directories covered_;
    files::operations_here* under_way_; // if state_
    caller_groups groups_;
    host_addresses host_;
    server_counters counters_;
};

} // namespace verbena::nfs::v3

#pragma GCC visibility pop
