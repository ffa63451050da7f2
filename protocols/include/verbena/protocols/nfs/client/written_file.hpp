// SPDX-License-Identifier: Apache-2.0
// Unstable writes that are kept until the server says that they are on stable storage (RFC 1813 4.8, RFC 8881 18.32): a server that
// restarts in between loses them, which its write verifier tells.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/semaphore.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/nfs/wire/v3/arguments.hpp>
#include <verbena/protocols/rpc/payload.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs {

/// What a server says of one WRITE, in any version.
struct write_result {
    std::uint32_t count = 0;                             ///< may be less than was asked
    v3::stable_how committed = v3::stable_how::unstable; ///< how stable the server says it is
    v3::writeverf3 verifier{};                           ///< of the server's life in which it was written
};

/// The leases of `data` shared, and so its bytes.
rpc::payload share(const rpc::payload& data);
/// Likewise, of its bytes [begin, end) alone.
rpc::payload slice(const rpc::payload& data, std::size_t begin, std::size_t end);

/// A file that is written to. Writes of different ranges may run at once; order between overlapping ones that run at once is the
/// caller's. A write that began when an overlapping one had ended stays on top of it, whatever the server loses. commit() before
/// it goes, or what was written may be lost with the server's memory.
///
/// This holds for all its tasks. On cancel: the wait ends, ECANCELED or as the client says; what was sent stands, and what was
/// written by then is kept for commit(). Errors: those of the client, and those named below. Lifetime: the file outlives them, and
/// the client the file. Shard: the client's.
class written_file {
public:
    /// Bytes written and not committed; a write beyond commits first.
    static constexpr std::size_t max_uncommitted = std::size_t(32) << 20;
    /// How often a changed verifier is answered by sending again before it is an error.
    static constexpr unsigned max_resends = 8;

    written_file() = default;
    written_file(const written_file&) = delete;
    written_file& operator=(const written_file&) = delete;

    /// Writes all of `data`, unstable, in as many WRITEs as it takes. Completes when: the server has all of it; before, it waits
    /// while a commit() sends lost data again, and commits what is beyond max_uncommitted. Lifetime: the leases of `data` are
    /// shared until it is stable, so the memory must not change before commit() ends.
    task<result<void>> write(std::uint64_t offset, rpc::payload data);
    /// Brings everything written before the call to stable storage, sending again what the server lost, the oldest first. Calls
    /// take turns. Completes when: all of that is stable. Errors: EIO after max_resends; whatever it fails with, a later commit()
    /// goes on with the rest.
    task<result<void>> commit();
    std::size_t uncommitted() const noexcept { return uncommitted_; }
    /// Bytes sent again because a verifier changed.
    std::uint64_t resent() const noexcept { return resent_; }

protected:
    ~written_file() = default;

    /// Forgets what is not committed, as it must not be sent again. Yields how many bytes. Completes when: no commit() and no write() is under way. On cancel: the
    /// wait ends, and nothing is forgotten. Errors: ECANCELED.
    task<result<std::size_t>> drop_uncommitted();
    /// Counts pieces written, for committed().
    std::uint64_t written() const noexcept { return written_; }
    /// A COMMIT that was sent when written() was `before` has yielded that verifier. What it made stable is forgotten; where anything was lost, or a
    /// commit() is under way, nothing is.
    void committed(std::uint64_t before, const v3::writeverf3& verifier) noexcept;

    /// One unstable WRITE, of most_at_once() bytes at most. Completes when, on cancel, errors: as the client's.
    virtual task<result<write_result>> send(std::uint64_t offset, rpc::payload data) = 0;
    /// COMMIT of the whole file. Completes when, on cancel, errors: as the client's.
    virtual task<result<v3::writeverf3>> sync() = 0;
    /// The largest WRITE that the server takes, in bytes.
    virtual std::uint32_t most_at_once() const noexcept = 0;

private:
    class unstable {
    public:
        unstable(std::uint64_t n, std::uint64_t o, rpc::payload d, const v3::writeverf3& v)
            : number(n), offset(o), data(std::move(d)), verifier(v)
        {
        }
        std::uint64_t end() const noexcept { return offset + data.size(); }
        std::uint64_t number;
        std::uint64_t offset;
        rpc::payload data;
        v3::writeverf3 verifier;
        bool lost = false;
    };
    class writing;
    class no_writes;
    void sort_out(std::size_t covered, const v3::writeverf3& verifier);
    task<result<void>> send_again();
    task<result<void>> send_again(std::size_t index);

    std::vector<unstable> unstable_; // in the order in which they were written
    std::size_t uncommitted_ = 0;
    std::uint64_t written_ = 0;
    std::uint64_t resent_ = 0;
    semaphore turn_{1}; // of commit()
    std::size_t writing_ = 0;
    bool resending_ = false;
    event resent_all_; // while !resending_
    event quiet_;      // while nothing is being written
};

} // namespace verbena::nfs

#pragma GCC visibility pop
