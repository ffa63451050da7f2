// SPDX-License-Identifier: Apache-2.0
// The MOUNT version 3 program (RFC 1813 appendix I): hands out the root of an export, or a folder in it,
// to those who may use it.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/protocols/nfs/server/caller_groups.hpp>
#include <verbena/protocols/nfs/server/covered.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>
#include <verbena/protocols/nfs/server/file_handle.hpp>
#include <verbena/protocols/nfs/wire/v3/mount.hpp>
#include <verbena/protocols/rpc/program.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::mount3 {

/// Who mounted what, as far as clients said so (RFC 1813 5.2.1: advisory). Thread-safe; one for all
/// shards. The oldest entry makes room for a new one.
class mount_list {
public:
    static constexpr std::size_t max_entries = 1024; ///< one more, and the oldest goes

    /// A mount that a client told of.
    struct entry {
        std::string hostname;  ///< the client's address, as the server saw it
        std::string directory; ///< what it asked for
        friend bool operator==(const entry&, const entry&) = default;
    };
    /// Notes a mount, unless it is there already.
    void add(std::string_view hostname, std::string_view directory);
    /// Forgets one; nothing if it is not there.
    void remove(std::string_view hostname, std::string_view directory);
    /// Forgets all of a client.
    void remove_all(std::string_view hostname);
    /// All, the oldest first.
    std::vector<entry> entries() const;

private:
    mutable std::mutex mutex_;
    std::deque<entry> entries_;
};

/// What one shard's program has done. Written by its shard, read from any thread.
struct server_counters {
    counter mounted;
    access_counters refused;
    counter refused_path;  ///< no such export, or no such folder in it
    counter refused_mount; ///< a mount beneath an export that doesn't follow them
    counter failed; ///< the folder is there, and its back end tells nothing of it, or no handle names it
};

/// One shard's program. `exports` and `mounts` outlive it.
///
/// A path is looked up with the caller's rights, root squashed, and never through a symbolic link, so
/// that MNT opens nothing which LOOKUP would not.
class server final : public rpc::program {
public:
    /// `here` is the program's shard. Without it a MNT may wait for a directory of another export that hangs.
    server(const export_table& exports, const handle_key& key, mount_list& mounts,
           const shard* here = nullptr)
        : exports_(exports), covered_(exports, here), key_(key), mounts_(mounts)
    {
    }

    std::uint32_t number() const noexcept override;
    std::uint32_t low_version() const noexcept override;
    std::uint32_t high_version() const noexcept override;
    std::string_view name() const noexcept override { return "mount"; }
    std::string_view procedure_name(std::uint32_t version, std::uint32_t procedure) const noexcept override;
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return false; }
    bool admits(const rpc::peer& from) override { return is_for(exports_, from, host_); }
    /// verbena_mount_*.
    metric_registrations expose(metric_registry& registry) const override;
    task<rpc::outcome> serve(rpc::call& c) override;

    const server_counters& counters() const noexcept { return counters_; }

private:
    task<rpc::outcome> mnt(rpc::call& c);
    /// Nothing where the groups of the caller are not known now: then there is no answer.
    task<std::optional<mountstat3>> find(rpc::call& c, std::string_view path, v3::nfs_fh3& handle);
    task<rpc::outcome> dump(rpc::call& c);
    rpc::outcome umnt(rpc::call& c);
    task<rpc::outcome> list_exports(rpc::call& c);

    const export_table& exports_;
    covered_directories covered_;
    handle_key key_;
    mount_list& mounts_;
    caller_groups groups_;
    host_addresses host_;
    server_counters counters_;
};

} // namespace verbena::nfs::mount3

#pragma GCC visibility pop
