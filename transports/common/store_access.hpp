// SPDX-License-Identifier: Apache-2.0
// Accesses to stores for a peer: a buffer, and the task that fills it or writes it out.
#pragma once

#include "steering.hpp"

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

protected:
    ~store_user() = default;
};

/// One access at a time, by a buffer. Its user may go amid an access: what is under way goes on to its end, with the buffer and the
/// grant's slot, and nobody hears of it. Until then the slot is in use, so whoever revokes the grant waits for that end, and the device is
/// there. On its shard.
class store_access final : private deferred {
public:
    struct let_go {
        void operator()(store_access* a) const noexcept { a->leave(); }
    };
    using pointer = std::unique_ptr<store_access, let_go>;

    /// nullptr: there is no memory for it.
    static pointer make(reactor& shard, store_user& user, std::size_t size) noexcept;

    std::span<std::byte> buffer() const noexcept { return {buffer_.get(), size_}; }
    bool is_busy() const noexcept { return record_ != nullptr; }
    /// Fills the buffer's first `size` bytes, or writes them: at `offset` of the store of `r`. Within the section in which check() found
    /// `r`, and while nothing is under way.
    store_progress read(record& r, std::uint64_t offset, std::size_t size) noexcept;
    store_progress write(record& r, std::uint64_t offset, std::size_t size) noexcept;

private:
    store_access(reactor& shard, store_user& user, std::unique_ptr<std::byte[]> buffer,
                 std::size_t size) noexcept
        : shard_(shard),
          user_(&user),
          buffer_(std::move(buffer)),
          size_(size),
          work_(shard, nullptr, nullptr, "access to a store for a peer")
    {
    }
    void leave() noexcept;
    store_progress begin(record& r, bool writes, std::uint64_t offset, std::size_t size) noexcept;
    task<void> work(bool writes, std::uint64_t offset, std::size_t size);
    void run() noexcept override; // the task has ended, which had suspended
    void end() noexcept;

    reactor& shard_;
    store_user* user_; // nullptr: it has gone
    const std::unique_ptr<std::byte[]> buffer_;
    const std::size_t size_;
    record* record_ = nullptr; // of the access that is under way
    store_progress progress_ = store_progress::done;
    bool is_beginning_ = false;
    scope work_;
};

} // namespace verbena::steering
