// SPDX-License-Identifier: Apache-2.0
// Calls of the MOUNT protocol (RFC 1813 appendix I) and of the port mapper (RFC 1833), with which a
// client finds the root of what it wants to use.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/nfs/client/v3/client.hpp>
#include <verbena/protocols/nfs/wire/v3/types.hpp>
#include <verbena/protocols/rpc/client.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs {

/// What a server exports.
struct export_entry {
    std::string directory;           ///< a path on the server
    std::vector<std::string> groups; ///< who may mount; empty means everybody
};

/// A mount that the server remembers.
struct mount_entry {
    std::string host;      ///< the client's name, as the server has it
    std::string directory; ///< what it mounted
};

/// What mount_path() found.
struct mounted {
    std::string directory; ///< what was mounted
    std::string rest;      ///< what of the asked path lies below it
    v3::nfs_fh3 root;      ///< of `directory`
};

/// Calls MOUNT version 3 (RFC 1813, Appendix I).
///
/// This holds for all its tasks. Completes when: the server has answered. On cancel: as rpc::client_transport::call(), ENOMEM
/// while it waits for memory; what the server did of it stands. Errors: those of the transport and of RPC, bad_message for
/// results that don't decode, mountstat3 as errno's. Lifetime: the transport outlives the client, the client and what is passed
/// by view outlive the task. Shard: the transport's.
class mount_client {
public:
    static constexpr std::size_t max_list = 16384; ///< entries of an EXPORT or DUMP answer

    /// Calls go over `transport`, which outlives it, with the credential of `who`. Nothing is called yet.
    mount_client(rpc::client_transport& transport, const identity& who) : transport_(transport), who_(who) {}

    /// Whether the program is there.
    task<result<void>> null();
    /// What the server exports, in its order. At most max_list entries: more are left out, and is_cut() says so.
    task<result<std::vector<export_entry>>> exports();
    /// Who has mounted what, as far as the server remembers; at most max_list entries, as exports().
    task<result<std::vector<mount_entry>>> dump();
    /// Whether the server had more entries than the last exports() or dump() yielded.
    bool is_cut() const noexcept { return is_cut_; }
    /// Errors: ENAMETOOLONG also for an empty name.
    task<result<v3::nfs_fh3>> mnt(std::string_view directory);
    /// Has the server forget a mount. It succeeds for what was not mounted, too.
    task<result<void>> umnt(std::string_view directory);
    /// Mounts the export that `path` lies in: the longest prefix in the EXPORT list, else the longest
    /// ancestor that MNT accepts.
    task<result<mounted>> mount_path(std::string_view path);

private:
    task<result<rpc::reply>> call(std::uint32_t procedure, std::string_view directory, std::size_t max_reply);

    rpc::client_transport& transport_;
    identity who_;
    bool is_cut_ = false;
};

/// Asks the port mapper at the other end of `transport` where `program` listens by TCP. Completes when: it has answered. On
/// cancel: as rpc::client_transport::call(), ENOMEM while it waits for memory. Errors: ENOENT if the program does not listen,
/// EPROTO for what is no port, those of the transport. Lifetime: `transport` outlives the task. Shard: that of `transport`.
task<result<std::uint16_t>> get_port(rpc::client_transport& transport, std::uint32_t program,
                                     std::uint32_t version);

} // namespace verbena::nfs

#pragma GCC visibility pop
