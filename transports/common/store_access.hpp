// SPDX-License-Identifier: Apache-2.0
// Accesses to stores for a peer: a buffer, and the task that fills it or writes it out.
#pragma once

#include "steering.hpp"
#include "store_buffers.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/verbs/byte_store.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace verbena::steering {

/// How an access stands.
enum class store_progress : std::uint8_t {
    under_way, ///< store_user::access_over() follows
    done,
    failed, ///< the store says so, and of a write it remembers it
    lost,   ///< it did not come to the store, or an exception left it: there was no memory
};

/// Whose accesses they are.
class store_user {
public:
    /// What was under way has ended, as `how` says. Amid a turn of the shard, outside of sections. It may let the store_access go.
    virtual void access_over(store_progress how) noexcept = 0;
    /// What is under way waits for a disk: access_over() follows in a later turn. Likewise, but it lets nothing go.
    virtual void access_waits() noexcept {}

protected:
    ~store_user() = default;
};

/// One access at a time, by a buffer. The store is called from a step of the shard of its own, outside of sections: a call may hold a shard
/// up, and revocations on other shards wait for sections.
///
/// Its user may go amid an access: what is under way goes on to its end, with the buffer and the
/// grant's slot, and nobody hears of it. Until then the slot is in use, so whoever revokes the grant waits for that end, and the device is
/// there. On its shard.
class store_access final : private deferred {
public:
    struct let_go {
        void operator()(store_access* a) const noexcept { a->leave(); }
    };
    using pointer = std::unique_ptr<store_access, let_go>;

    /// nullptr: there is no memory for it.
    static pointer make(reactor& shard, store_user& user) noexcept;

    /// The buffer of the next access. One to write takes it along; that of one to read stays until release().
    void put(store_buffer b) noexcept { buffer_ = std::move(b); }
    bool has_buffer() const noexcept { return bool(buffer_); }
    std::span<std::byte> buffer() const noexcept { return buffer_.bytes(); }
    /// Nothing is under way.
    void release() noexcept { buffer_.reset(); }
    bool is_busy() const noexcept { return record_ != nullptr; }
    /// Whether what is under way waits for a disk, or what ended last did.
    bool has_waited() const noexcept { return has_waited_; }
    /// Begins to fill the buffer's first `size` bytes, or to write them: at `offset` of the store of `r`. Within the section in which check()
    /// found `r`, and while nothing is under way. access_over() follows, later.
    void read(record& r, std::uint64_t offset, std::size_t size) noexcept { begin(r, false, offset, size); }
    void write(record& r, std::uint64_t offset, std::size_t size) noexcept { begin(r, true, offset, size); }
    /// The connection has ended: the store is asked to stop what is under way, and other accesses by the grant wait for the end of a write, which
    /// would land on theirs. access_over() follows all the same. Nothing begins any more.
    void abandon() noexcept;

private:
    store_access(reactor& shard, store_user& user) noexcept
        : shard_(shard), user_(&user), work_(shard, nullptr, nullptr, "access to a store for a peer")
    {
    }
    void leave() noexcept;
    void begin(record& r, bool writes, std::uint64_t offset, std::size_t size) noexcept;
    task<void> work();
    void run() noexcept override; // the task is to begin, or it has ended, which had suspended
    void start() noexcept;
    void end() noexcept;

    reactor& shard_;
    store_user* user_; // nullptr: it has gone
    store_buffer buffer_;
    record* record_ = nullptr; // of the access that is under way
    bool writes_ = false;
    std::uint64_t offset_ = 0;
    std::size_t part_ = 0; // of the buffer
    store_progress progress_ = store_progress::done;
    bool has_begun_ = false; // the task
    bool has_waited_ = false;
    bool is_abandoned_ = false;
    scope work_;
};

} // namespace verbena::steering
