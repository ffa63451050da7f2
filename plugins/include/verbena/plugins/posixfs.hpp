// SPDX-License-Identifier: Apache-2.0
// posixfs: exports a directory tree of a Linux file system.
//
// File handles are the kernel's own (name_to_handle_at), so they survive rename and restart. Every
// caller's rights are enforced by the kernel: an operation runs with the caller's uid, gid and groups.
#pragma once

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/protocols/storage/file_backend.hpp>
#include <verbena/protocols/storage/suspension.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#pragma GCC visibility push(default)

namespace verbena::posixfs {

/// Where a file handle comes from.
enum class handle_mode {
    automatic, ///< kernel, or the path table where the file system has no handles or the process may not open them
    kernel,     ///< kernel handles or a refusal
    path_table, ///< a bounded table of paths: handles die with the process
};

/// What is exported, and by which rights.
struct posixfs_options {
    std::filesystem::path root; ///< an existing directory
    bool async = false;         ///< answers before metadata and stable writes are on stable storage: unsafe
    bool crossmnt = false;      ///< follows mounts beneath the root
    bool read_only = false;     ///< every change fails with EROFS
    handle_mode handles = handle_mode::automatic; ///< where file handles come from
    /// Callers' rights are taken on pool threads only. Needed where shards use RDMA devices: the kernel refuses its
    /// RDMA files to a thread whose credentials ever changed since they were opened. Costs a change of thread for each
    /// LOOKUP, ACCESS and WRITE of callers whose rights aren't the daemon's own (see give_up_resource_rights()).
    bool keep_shard_identity = false;
    /// Every caller may have the process's own rights, whatever they are.
    bool callers_are_daemon = false;
    /// A directory that must be the root of a mount while `root` is served; empty: none. Needs `watch`.
    std::filesystem::path mountpoint = {};
    /// Looks each second, and whenever something is mounted, whether `root` is still what was opened. While it is not, operations
    /// fail with ENOMEDIUM; once it is there again, it is opened and served, whatever file system it is on. So is what is not mounted yet
    /// as the back end is opened, and what does not answer within 5 s then. Handles of another file system than before are stale. One
    /// thread of the process looks.
    bool watch = false;
    /// Files held open per shard; 0: an eighth of RLIMIT_NOFILE. All shards and exports together keep within half of
    /// that limit in descriptors. Raise it before.
    std::size_t cached_files = 0;
    /// Read delegations are given under kernel leases, which make local writers wait for their recall. A thread of the process, started with
    /// the first such back end, hears of them by `lease_signal`, a real-time one; 0: SIGRTMAX - 4. The kernel sends it, and where its queue is full SIGIO, to that
    /// thread alone, which takes both by sigwaitinfo(2) and blocks all others. So handlers of the process are not touched, and nobody has to
    /// block anything. But who has one of both blocked in all threads, and takes it by sigwaitinfo(2) or signalfd(2), may lose some to that thread.
    bool leases = true;
    int lease_signal = 0; ///< see `leases`
    std::size_t most_leases =
        0; ///< of all exports that say the same; each takes a descriptor. 0: a quarter of RLIMIT_NOFILE
    /// Descriptors that keep files which clients have open, for all exports that say the same; 0: an eighth of RLIMIT_NOFILE.
    /// What is open beyond them is kept by its name alone.
    std::size_t most_kept_files = 0;
    /// Clients' locks of bytes are also locks of the file system (open file description locks), which other
    /// processes see, and theirs deny our clients'. Each file that has some takes a descriptor. Half of the pool's
    /// threads work for them.
    bool local_locks = true;
    /// Files with such locks, for all exports that say the same; 0: an eighth of RLIMIT_NOFILE. Half of them are the
    /// most of one peer. Beyond them only clients see locks.
    std::size_t most_lock_files = 0;
    /// Most files the path table remembers; handles of the longest unused ones become stale.
    std::size_t path_table_entries = std::size_t(1) << 20;
    /// What is exported is called so in the log, as in `export=/data`; empty: as `root`.
    std::string name = {};
};

/// Opens the tree. Capabilities that the process needs to act for its callers: CAP_SETUID and CAP_SETGID
/// (switch to the caller), CAP_DAC_READ_SEARCH (open handles), CAP_DAC_OVERRIDE (an owner writes his
/// read-only file), CAP_LEASE (leases of others' files), CAP_CHOWN, CAP_FOWNER, CAP_FSETID, CAP_MKNOD (root's own requests, where root is not
/// squashed). Without the first two everything runs as the daemon's user, which must be asked for (callers_are_daemon) where
/// that user is root or any of the others is held; without the third handles come from the path table; describe() says so.
///
/// The caller has set umask(0) for the process, since a mode in a request is meant as it stands, and ignores
/// SIGXFSZ. `pool` outlives the back end and what it gave to be sent (storage::located_read). Destroy it when no shard runs tasks of it; it may be used on shards
/// numbered below max_shards. Identity is switched per thread and given back at the end of the shard's turn.
///
/// Errors: EINVAL for a lease_signal that is no real-time signal; errno of opening the root; with handle_mode::kernel what name_to_handle_at(2) or open_by_handle_at(2) answered for it,
/// EPERM without CAP_DAC_READ_SEARCH; EPERM where lends_its_rights().
result<std::unique_ptr<storage::file_backend>> open_posixfs(const posixfs_options& options,
                                                            blocking_pool& pool);

/// True if `e` is what a file system or kernel answers that has no file handles for this process, unlike one that lacks memory or
/// descriptors at the moment. With handle_mode::automatic the path table serves then.
bool is_without_handles(const error& e) noexcept;

/// Shards that a back end serves: their numbers are below this.
constexpr unsigned max_shards = 256;

/// What became of files that clients have open where there were more than posixfs may have descriptors for.
struct open_file_counters {
    std::uint64_t closed = 0; ///< closed, to be opened again by their handles
    std::uint64_t lost =
        0; ///< gone with their last name, since somebody removed them on this host while they were closed
    std::uint64_t refused = 0; ///< not removed, since no descriptor was left that would have kept them
};
/// `backend` must come from open_posixfs(). Any thread.
open_file_counters counters_of(const storage::file_backend& backend);

/// Locks that clients have, and that processes of this host do not see; or that were not unlocked for them at once.
struct unseen_lock_counters {
    /// Why a lock is not seen.
    enum class reason : std::uint8_t {
        no_room,       ///< ENOLCK
        unsupported,   ///< the file system has none
        not_permitted, ///< this process may not open the file
        limit,         ///< of descriptors
        failed,        ///< anything else
    };
    static constexpr std::size_t reasons = 5;
    std::array<std::uint64_t, reasons> counts{};
    std::uint64_t operator[](reason why) const noexcept { return counts[std::size_t(why)]; }
};
/// `backend` must come from open_posixfs(). Any thread.
unseen_lock_counters unseen_locks_of(const storage::file_backend& backend);

/// True if requests run with their callers' rights, false if all of them run with the process's own. Decided when first asked.
bool takes_callers_rights() noexcept;
/// True if all requests would run with the process's own rights, and these are more than one plain user's: open_posixfs() then
/// fails with EPERM unless callers_are_daemon.
bool lends_its_rights() noexcept;

/// Takes CAP_SYS_RESOURCE from the calling thread and from those that it starts. With it quotas and reserved blocks
/// don't bind, so no caller is served with it, not even root; and with keep_shard_identity shards serve the daemon's
/// own user only if their threads don't have it. To be called before the process starts any thread. EPERM.
result<void> give_up_resource_rights() noexcept;

/// Whether what is exported is there.
enum class root_state : std::uint8_t {
    up,
    down,      ///< nothing is mounted there, or it is gone
    no_answer, ///< its file system has not answered for 5 s
    suspended, ///< somebody has it let go, or is about to
};
/// `backend` must come from open_posixfs(), and is up unless it is watched. Any thread.
root_state root_state_of(const storage::file_backend& backend);
/// Why it is not up, and what cures that, for people; empty while it is up. Waits for no disk. As root_state_of().
std::string root_trouble_of(const storage::file_backend& backend);
/// For a back end that nobody wants, and that has to stay for as long as its disk hangs: a root that it does not serve now it never
/// serves. As root_state_of().
void leave_root_alone(storage::file_backend& backend) noexcept;

/// Whether something that local_locks_of() gave is still there. `backend` must come from open_posixfs(). Any thread.
bool has_local_locks(const storage::file_backend& backend);
/// What lets go of the file system and comes back to it. nullptr if it is not watched, or is none of open_posixfs().
storage::suspendable* suspension_of(storage::file_backend& backend);

/// One line for the start-up log: whose rights requests run with, what handles survive, what is unsafe.
/// `backend` must come from open_posixfs().
std::string describe(const storage::file_backend& backend);

} // namespace verbena::posixfs

#pragma GCC visibility pop
