// SPDX-License-Identifier: Apache-2.0
// An open file whose unstable writes are kept until the server says that they are on stable storage
// (RFC 1813 4.8): a server that restarts in between loses them, which its write verifier tells.
#pragma once

#include <verbena/core/event.hpp>
#include <verbena/core/semaphore.hpp>
#include <verbena/protocols/nfs/client.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs {

/// Reads and writes of different ranges may run at once; order between overlapping ones that run at once is the caller's. A write
/// that began when an overlapping one had ended stays on top of it, whatever the server loses. commit() before it goes, or what
/// was written may be lost with the server's memory.
///
/// This holds for all its tasks. On cancel: the wait ends, ECANCELED or as client says; what was sent stands, and what was
/// written by then is kept for commit(). Errors: those of client, and those named below. Lifetime: the file outlives them, and
/// the client the file. Shard: the client's.
class file {
public:
    /// Bytes written and not committed; a write beyond commits first.
    static constexpr std::size_t max_uncommitted = std::size_t(32) << 20;
    /// How often a changed verifier is answered by sending again before it is an error.
    static constexpr unsigned max_resends = 8;

    file(client& owner, const node& n) : client_(owner), node_(n) {}
    const nfs::node& node() const noexcept { return node_; }

    /// As client::read(), and it knows how many bytes there are. None are the end. Completes when: the server has answered.
    /// Errors: EIO when the server gives none though the file goes on, or more than the size that it tells.
    task<result<read_result>> read(std::uint64_t offset, std::uint32_t count);
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

private:
    class unstable {
    public:
        unstable(std::uint64_t o, rpc::payload d, const v3::writeverf3& v)
            : offset(o), data(std::move(d)), verifier(v)
        {
        }
        std::uint64_t end() const noexcept { return offset + data.size(); }
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

    client& client_;
    nfs::node node_;
    std::vector<unstable> unstable_; // in the order in which they were written
    std::size_t uncommitted_ = 0;
    std::uint64_t resent_ = 0;
    semaphore turn_{1}; // of commit()
    std::size_t writing_ = 0;
    bool resending_ = false;
    event resent_all_; // while !resending_
    event quiet_;      // while nothing is being written
};

} // namespace verbena::nfs

#pragma GCC visibility pop
