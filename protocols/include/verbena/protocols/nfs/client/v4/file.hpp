// SPDX-License-Identifier: Apache-2.0
// A file that is open on a server of NFS version 4.1 or 4.2.
#pragma once

#include <verbena/protocols/files/types.hpp>
#include <verbena/protocols/nfs/client/v4/client.hpp>
#include <verbena/protocols/nfs/client/written_file.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

struct file_locks;

/// Made by client::open() and client::create(). close() before it goes, or the server keeps it open until the client's end.
///
/// This holds for all its tasks, those of written_file among them. Completes when: the server has answered. On cancel: the wait ends,
/// ECANCELED or as client_session says; what was written by then is kept for commit(). Errors: those of client_session, and those
/// named below. Lifetime: the file outlives them, and the client the file. Shard: the client's. What the server has forgotten or revoked is opened again, once for each
/// call, by the handle; as nobody else is denied anything, nothing is lost by it but locks.
class file final : public written_file {
public:
    ~file();
    const v4::node& node() const noexcept { return node_; }
    /// By which the server knows that this file is open, for calls that this class does not make: LAYOUTGET.
    stateid4 stateid() const noexcept { return id(); }
    std::uint32_t access() const noexcept { return access_; }

    /// What read() brought.
    struct read_result {
        rpc::payload data; ///< views into what was received
        bool eof = false;  ///< there is nothing behind these bytes
    };
    /// At most `count` bytes, and no more than client::limits().read. None are the end. Errors: EIO when the server gives none though
    /// the file goes on.
    task<result<read_result>> read(std::uint64_t offset, std::uint32_t count);
    /// Has the server copy the first `length` bytes of `source`, an open file of the same client, to the beginning of this one (COPY of minor version
    /// 2), and commits them. Yields how many they were: fewer if the source is shorter. `progress`, if not null, is told of bytes as they are copied,
    /// again of those that the server lost meanwhile. What was written here before is committed first, and the caller writes nothing meanwhile. Where it
    /// fails, the size of node() is the largest that this one may have. Errors: those of commit(); not_supported below minor version 2, or where the
    /// server would go on copying behind its answer; what the server says, also that it can't. Lifetime: `source` outlives it too.
    task<result<std::uint64_t>> copy_from(file& source, std::uint64_t length,
                                          std::function<void(std::uint64_t)> progress);
    /// Sets the size.
    task<result<void>> truncate(std::uint64_t size);
    /// Who changes the file's bytes by a layout says so, before and behind it: what a delegation tells of the file is in doubt then.
    void is_changed_by_layout() noexcept;
    /// Locks bytes for this file against other files and other clients (advisory, as POSIX has it): for reading beside other readers, or for writing
    /// alone. What it had locked of them becomes of that type. With `waits` until they are free, else NFS4ERR_DENIED tells that somebody has
    /// some of them. Needs a file that is open for the same.
    ///
    /// A restart of the server leaves locks where they are: they are reclaimed. Where that fails, or the server has revoked them, the file fails
    /// with EIO from then on, as somebody else may have written meanwhile: unlock() everything, or close it.
    ///
    /// Completes when: they are locked, or are not to be. On cancel: the wait ends, and what the server locks all the same is undone before any later
    /// lock() or unlock() of this file; what it had of the bytes before it has then. The same holds where it fails as no answer came. Errors: EIO as above, what
    /// the server says, and those of the transport, also where what an earlier one has locked can't be undone.
    task<result<void>> lock(files::byte_range bytes, files::lock_type type, bool waits = false);
    /// Whether it fails for that.
    bool has_lost_locks() const noexcept;
    /// Commits what was written here, then unlocks what of these bytes is locked: whoever locks them next may rely on it. Where committing
    /// fails, they stay locked and that error is told. Where locks were lost, what is uncommitted is dropped, which EIO tells once, and they
    /// are unlocked all the same. On cancel: they may be unlocked, before any later lock().
    task<result<void>> unlock(files::byte_range bytes);
    /// What is in the way of lock(), if anything: one of the locks, and its bytes.
    struct lock_in_the_way {
        files::byte_range bytes;                        ///< which it has
        files::lock_type type = files::lock_type::read; ///< for reading, or for writing
    };
    /// Whether lock() would be granted now; nothing if so. Takes no lock.
    task<result<std::optional<lock_in_the_way>>> test_lock(files::byte_range bytes, files::lock_type type);
    /// Commits, unlocks and closes. Where committing fails, the file is closed and that error told. Under a delegation the server is not asked, but
    /// for what is to be committed.
    task<result<void>> close();

private:
    friend class client;
    friend struct server_open;
    class change_under_way;
    file(client& owner, const v4::node& n, std::uint32_t access, std::shared_ptr<server_open> open) noexcept
        : client_(owner), node_(n), access_(access), open_(std::move(open))
    {
    }
    stateid4 id() const noexcept;
    void leave() noexcept;
    file_locks& locks();
    task<result<void>> lock_once(files::byte_range bytes, files::lock_type type, bool waits);
    task<result<void>> unlock_all();
    task<result<void>> drop_what_is_lost();
    error told(error why) const;
    task<result<void>> reopen(stateid4 instead_of);
    task<bool> mended(stateid4 used, error why);
    struct copied {
        std::uint64_t bytes = 0;
        bool stable = false;
        verifier4 verifier{};
    };
    task<result<copied>> copy_some(file& source, std::uint64_t at, std::uint64_t count);

    task<result<write_result>> send(std::uint64_t offset, rpc::payload data) override;
    task<result<v3::writeverf3>> sync() override;
    std::uint32_t most_at_once() const noexcept override { return client_.limits().write; }

    client& client_;
    v4::node node_;
    const std::uint32_t access_;
    const std::shared_ptr<server_open> open_; // of the server's, which others may use too under a delegation
    std::shared_ptr<file_locks> locks_;       // if it ever locked
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
