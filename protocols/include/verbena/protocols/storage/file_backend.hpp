// SPDX-License-Identifier: Apache-2.0
// file_backend: what a file system must offer to be exported.
//
// Handle-based; every call carries who asks and enforces that user's rights. Durability: in mode
// `sync` every change of metadata and every stable write is on stable storage, directory entry
// included, when the call returns (RFC 1813 4.8); in mode `async` only commit() promises that.
#pragma once

#include <verbena/core/task/task.hpp>
#include <verbena/protocols/storage/file_lease.hpp>
#include <verbena/protocols/storage/local_locks.hpp>
#include <verbena/protocols/storage/mapping.hpp>
#include <verbena/protocols/storage/open_file.hpp>
#include <verbena/protocols/storage/snapshots.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::storage {

/// One exported file system or tree.
///
/// This holds for all its tasks. Completes when: the operation is done, as durably as the head of this file tells. On cancel: a
/// call runs to its end, since a disk operation can't be recalled. Only where a filter makes a call wait, and says so, a stop
/// ends the wait: the call is answered ECANCELED, and was not done. Errors: errno values or storage::errc. Lifetime: the back
/// end, and what a call borrows (names, handles, spans, the request), outlive the task. Shard: called from any; each call runs on
/// its caller's shard and comes back there.
///
/// Names arrive unchecked and are checked here: not empty, no '/' or NUL (EINVAL), at most 255 bytes (ENAMETOOLONG); "." and ".."
/// are looked up, never made or removed.
class file_backend {
public:
    virtual ~file_backend() = default;

    /// The name of what made it. A literal.
    virtual std::string_view kind() const noexcept = 0; ///< "posixfs", "memfs"
    /// What the back end can do, and what there is at most. Any thread. It may tell others when the file system
    /// was let go and has come back (suspension), so nobody keeps the reference.
    virtual const filesystem_info& info() const noexcept = 0;
    /// The directory that the handles of all callers begin at.
    virtual handle root() const noexcept = 0;
    /// Changes whenever unstable data may have been lost: at each start (RFC 1813 3.3.7).
    virtual std::uint64_t write_verifier() const noexcept = 0;
    /// What attributes::fileid is, where the handle alone says so: no disk is asked. For people. Nothing: it does not.
    virtual std::optional<std::uint64_t> number_in(const handle&) const noexcept { return std::nullopt; }

    /// What the file is like now. Whoever has a handle may ask, whatever rights the file gives.
    virtual task<result<attributes>> getattr(const request& r, const handle& file) = 0;
    /// `guard`: fails with errc::not_sync unless it equals the file's ctime.
    virtual task<result<change>> setattr(const request& r, const handle& file, const set_attributes& set,
                                         std::optional<file_time> guard) = 0;
    /// ".." at the root is the root.
    virtual task<result<lookup_result>> lookup(const request& r, const handle& directory,
                                               std::string_view name) = 0;
    /// The subset of `wanted` (R_OK, W_OK, X_OK of access(2)) that the user has.
    virtual task<result<unsigned>> access(const request& r, const handle& file, unsigned wanted) = 0;
    /// Opens a regular file to read it (R_OK), to write it (W_OK) or both: see open_file. Who may execute a file may read it.
    /// EACCES without the right; EISDIR or EINVAL for what is no regular file. A call whose request::open is null, or belongs to
    /// another user, is checked for rights as always. A back end that does not override this has files that go with their last
    /// name, though they are open. What is returned is destroyed before the back end.
    virtual task<result<opened_file>> open(const request& r, const handle& file, unsigned wanted,
                                           open_right right);
    /// The target of a symbolic link; EINVAL for what is none.
    virtual task<result<std::string>> readlink(const request& r, const handle& link) = 0;
    /// Reads up to out.size() bytes; short only at the end of the file.
    virtual task<result<read_result>> read(const request& r, const handle& file, std::uint64_t offset,
                                           std::span<std::byte> out) = 0;
    /// read() for a caller that can send bytes from where they lie: up to `length` bytes from `offset`. Asked for
    /// filesystem_info::least_located bytes and more, which a back end with a locate() of its own sets. Not `here` if this back end has no
    /// place of kind `where` to show, or if the disk has to be read first: the caller asks read() then. The rules for rights are those of
    /// read().
    virtual task<result<located_read>> locate(const request&, const handle&, std::uint64_t /*offset*/,
                                              std::uint32_t /*length*/, locatable /*where*/)
    {
        co_return located_read();
    }
    /// Writes the pieces one after another from `offset`.
    virtual task<result<write_result>> write(const request& r, const handle& file, std::uint64_t offset,
                                             std::span<const std::span<const std::byte>> pieces,
                                             stability wanted) = 0;
    /// exclusive: `verifier` is kept with the file; a repeat with the same one succeeds, else EEXIST. Of `set` mode and ACL count, and a list
    /// that the file can't have makes none; the rest is for the setattr() that follows.
    virtual task<result<create_result>> create(const request& r, const handle& directory,
                                               std::string_view name, create_mode mode,
                                               const set_attributes& set, std::uint64_t verifier) = 0;
    /// Makes a directory with the attributes in `set`; EEXIST if the name is there.
    virtual task<result<create_result>> mkdir(const request& r, const handle& directory,
                                              std::string_view name, const set_attributes& set) = 0;
    /// Makes a symbolic link to `target`, 1 to 4095 bytes without NUL, which is not looked at; EEXIST if the
    /// name is there.
    virtual task<result<create_result>> symlink(const request& r, const handle& directory,
                                                std::string_view name, std::string_view target,
                                                const set_attributes& set) = 0;
    /// Makes a FIFO, a socket, or a device with the numbers `major` and `minor`; EEXIST if the name is there.
    /// EINVAL for another type.
    virtual task<result<create_result>> mknod(const request& r, const handle& directory,
                                              std::string_view name, file_type type, std::uint32_t major,
                                              std::uint32_t minor, const set_attributes& set) = 0;
    /// Takes a name away that is no directory's: EISDIR. The file goes with its last name and open_file.
    virtual task<result<change>> remove(const request& r, const handle& directory, std::string_view name) = 0;
    /// Takes an empty directory away: ENOTDIR, ENOTEMPTY.
    virtual task<result<change>> rmdir(const request& r, const handle& directory, std::string_view name) = 0;
    /// Gives a file another name, in the place of what has it: a directory for an empty directory alone,
    /// another file for another file. Two names of one file: nothing happens, and that is success.
    virtual task<result<rename_result>> rename(const request& r, const handle& from_directory,
                                               std::string_view from, const handle& to_directory,
                                               std::string_view to) = 0;
    /// Whether remove() or rmdir() of that, by whichever the file's type needs, would be refused now: asked before others have to give up
    /// what they have of the file. By default whether access() lets the user change the directory; a back end that knows more overrides
    /// it. Errors: those of remove() and rmdir(). Without one they may fail all the same.
    virtual task<result<void>> may_remove(const request& r, const handle& directory, std::string_view name);
    /// The same of rename(), as to both names and both directories.
    virtual task<result<void>> may_rename(const request& r, const handle& from_directory,
                                          std::string_view from, const handle& to_directory,
                                          std::string_view to);
    /// Gives a file one name more; EEXIST if the name is there, EPERM for a directory.
    virtual task<result<link_result>> link(const request& r, const handle& file, const handle& directory,
                                           std::string_view name) = 0;
    /// Gives entries from `cookie` (0: the start) until `sink` refuses one. `verifier` is the one returned
    /// with that cookie (0 at the start); errc::bad_cookie when it is stale. Includes "." and "..".
    virtual task<result<readdir_result>> readdir(const request& r, const handle& directory,
                                                 std::uint64_t cookie, std::uint64_t verifier,
                                                 bool with_attributes, directory_sink& sink) = 0;
    /// How much room the file system of `file` has, for this caller.
    virtual task<result<filesystem_stat>> statfs(const request& r, const handle& file) = 0;
    /// On return what was written to the range (count 0: to the end) is on stable storage.
    virtual task<result<change>> commit(const request& r, const handle& file, std::uint64_t offset,
                                        std::uint32_t count) = 0;

    // What not every back end can do: EOPNOTSUPP, but where somebody overrides it.

    /// The first place at or behind `offset` that is data or a hole; the end of the file is a hole. ENXIO where `offset` is not before that end.
    virtual task<result<seek_result>> seek(const request& r, const handle& file, std::uint64_t offset,
                                           extent what);
    /// Takes room for a range, so that a write there finds it; the bytes stay, and a file that ends before the range's end grows to there.
    /// As durable as a change of metadata; so are deallocate() and clone().
    virtual task<result<change>> allocate(const request& r, const handle& file, std::uint64_t offset,
                                          std::uint64_t length);
    /// From then on the range reads as zeros, and takes no room as far as the file system's blocks allow it. The size stays.
    virtual task<result<change>> deallocate(const request& r, const handle& file, std::uint64_t offset,
                                            std::uint64_t length);
    /// Copies at most `length` bytes, and fewer where they take long: whoever wants more asks again. 0 at the end of `from` alone. EINVAL for
    /// ranges of one file that overlap. What was copied is as durable as `committed` says; commit() of `to` does the rest.
    virtual task<result<copy_result>> copy(const request& r, const handle& from, std::uint64_t from_offset,
                                           const handle& to, std::uint64_t to_offset, std::uint64_t length);
    /// Has `to` share the range's bytes with `from`, all at once: nobody sees a part of it. 0 bytes: up to the end of `from`. EINVAL beyond that end,
    /// for offsets that are no multiples of info().clone_block, for a length that is none unless it reaches the end, and for ranges of
    /// one file that overlap.
    virtual task<result<change>> clone(const request& r, const handle& from, std::uint64_t from_offset,
                                       const handle& to, std::uint64_t to_offset, std::uint64_t length);
    /// Where a range of a regular file lies in memory, for who lets peers read it there or write to it, too: by the rights of
    /// read() or write(). For map_use::write room is taken for the whole range; for map_use::read the range ends with the
    /// file. EINVAL for no bytes; EFBIG past the largest offset; ENOSPC without room.
    virtual task<result<mapping>> map(const request& r, const handle& file, std::uint64_t offset,
                                      std::uint64_t length, map_use use);
    /// Who has written to a mapping says so, by the rights of write(). The file has at least the size that `what` says, and is changed now. The bytes are as durable as what write() leaves unstable: commit() does the rest.
    virtual task<result<change>> note_written(const request& r, const handle& file, peer_writes what);
    /// Of the name space "user", which `name` does not say; it has 250 bytes at most. ENODATA where there is none.
    virtual task<result<std::vector<std::byte>>> getxattr(const request& r, const handle& file,
                                                          std::string_view name);
    /// E2BIG for a value of over 65536 bytes. A file system may have less room for it: ENOSPC.
    virtual task<result<change>> setxattr(const request& r, const handle& file, std::string_view name,
                                          std::span<const std::byte> value, xattr_mode mode);
    /// All of them, in any order.
    virtual task<result<std::vector<std::string>>> listxattrs(const request& r, const handle& file);
    /// ENODATA where there is none.
    virtual task<result<change>> removexattr(const request& r, const handle& file, std::string_view name);
    /// The access control list; of a file that has none what its mode means. EACCES where the list does not let `r.who` read it.
    virtual task<result<access_list>> getacl(const request& r, const handle& file);
    /// Makes processes of this host wait that want to change the data of `file`, a regular one, for as long as the lease is there; `wanted` is called when
    /// one does. There may be several leases of one file. What this back end itself opens for writing breaks them, so the caller sees to it that none of its
    /// calls changes the file meanwhile. Asked for where info().leases says so, with the process's own rights: there is no request.
    ///
    /// Completes when: the lease is there; whoever changed the file before that has closed it, so attributes that are looked at afterwards
    /// show it. On cancel: it goes on. Errors: EAGAIN where somebody has the file open for writing; EACCES or EPERM; EINVAL or EOPNOTSUPP; EMFILE, ENFILE, ENOLCK or ENOMEM; others
    /// (why_no_lease()). Lifetime: `file` outlives the task; as to `wanted` and the lease, see there. Shard: any; all shards on which the back end was
    /// used still run.
    virtual task<result<std::unique_ptr<file_lease>>> lease(const handle& file, lease_wanted wanted);
    /// For who locks bytes of `file`, a regular one: the means to make these locks of the file system as well.
    /// nullptr: this back end has none, and no other process locks its files. With the process's own rights: there
    /// is no request. Any shard; nothing is asked of the file system yet.
    virtual std::unique_ptr<local_locks> local_locks_of(const handle& file);

    /// Gives up what it has of the calling shard, such as timers. On each shard, when nobody uses the back end any more: so it may end while
    /// shards run, on a thread that is none of them and may wait for disks. One that ends when the shards have needs none of it.
    virtual void leave_shard() noexcept {}
    /// Whether changes are refused (EROFS), from now on. Any thread. Who exports it refuses them as well.
    virtual void refuse_changes(bool all) noexcept { (void)all; }

    /// Of a back end that takes snapshots; else nullptr. It lives as long as this does. Any thread.
    virtual snapshot_keeper* snapshots() noexcept { return nullptr; }
};

} // namespace verbena::storage

#pragma GCC visibility pop
