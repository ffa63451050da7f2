// SPDX-License-Identifier: Apache-2.0
// Buffers: size-classed memory under one budget, held through leases.
//
// A lease is kept by whatever may still touch the memory: an operation on the wire, a disk call, a
// reply that waits for its turn. When the last one goes, the buffer returns to its shard's pool.
#pragma once

#include <verbena/core/wait_queue.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace verbena {

class buffer_pool;

/// The hard limit on buffer memory, shared by all pools. Thread-safe.
class memory_budget {
public:
    explicit memory_budget(std::size_t limit) noexcept : limit_(limit) {}
    bool reserve(std::size_t bytes) noexcept
    {
        std::size_t used = used_.load(std::memory_order_relaxed);
        do {
            if (bytes > limit_ || used > limit_ - bytes)
                return false;
        } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
        return true;
    }
    void release(std::size_t bytes) noexcept { used_.fetch_sub(bytes, std::memory_order_relaxed); }
    std::size_t limit() const noexcept { return limit_; }
    std::size_t used() const noexcept { return used_.load(std::memory_order_relaxed); }

private:
    const std::size_t limit_;
    std::atomic<std::size_t> used_{0};
};

namespace detail {
struct buffer_block final : remote_message, list_hook {
    void deliver() noexcept override;
    buffer_pool* pool = nullptr;
    std::byte* data = nullptr;
    std::uint32_t size = 0;
    std::uint32_t size_class = 0;
    std::atomic<std::uint32_t> references{0};
    buffer_block* next_free = nullptr;
};
} // namespace detail

/// A share in one buffer. Move-only; share() makes another one explicitly. May be moved to another
/// thread; the memory goes home by message.
class lease {
public:
    lease() = default;
    lease(lease&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
    lease& operator=(lease&& other) noexcept
    {
        if (this != &other) {
            reset();
            block_ = std::exchange(other.block_, nullptr);
        }
        return *this;
    }
    ~lease() { reset(); }

    explicit operator bool() const noexcept { return block_ != nullptr; }
    std::byte* data() const noexcept { return block_->data; }
    std::size_t size() const noexcept { return block_->size; }
    std::span<std::byte> bytes() const noexcept { return {block_->data, block_->size}; }
    /// Another share in the same buffer.
    lease share() const noexcept
    {
        if (block_ != nullptr)
            block_->references.fetch_add(1, std::memory_order_relaxed);
        return lease(block_);
    }
    /// True if no other lease shares the buffer.
    bool unique() const noexcept { return block_->references.load(std::memory_order_acquire) == 1; }
    void reset() noexcept;

private:
    friend class buffer_pool;
    explicit lease(detail::buffer_block* block) noexcept : block_(block) {}
    detail::buffer_block* block_ = nullptr;
};

/// Hears which memory a pool has: a protection domain registers it. Called on the pool's shard. Unlinked when the
/// pool goes, after on_removed() for all of it; an observer that goes first hears no more.
class buffer_pool_observer : public list_hook {
public:
    /// `memory` belongs to the pool from now on; false: it can't be used, so the pool gives it back.
    virtual bool on_added(std::span<std::byte> memory) noexcept = 0;
    /// It is about to go back to the system.
    virtual void on_removed(std::span<std::byte> memory) noexcept = 0;

protected:
    ~buffer_pool_observer() = default;
};

/// One shard's buffers. Sizes are rounded up to a power of two between min_size and max_size.
class buffer_pool {
public:
    static constexpr std::size_t min_size = 4096;
    static constexpr std::size_t max_size = std::size_t(16) << 20;
    /// Free bytes a pool keeps for reuse before it gives memory back to the system and the budget.
    static constexpr std::size_t max_kept = std::size_t(32) << 20;

    struct sized_waiter : detail::waiter {
        std::size_t size = 0;
        lease granted;
    };

    /// `shard` may be nullptr for a pool used from one thread with no reactor (tests).
    buffer_pool(memory_budget& budget, reactor* shard);
    /// Every lease must have come home.
    ~buffer_pool();
    buffer_pool(const buffer_pool&) = delete;

    /// A buffer of at least `size` bytes, or an empty lease when the budget is spent or size > max_size.
    lease try_acquire(std::size_t size);

    class awaiter {
    public:
        awaiter(buffer_pool& pool, std::size_t size) noexcept : pool_(pool) { waiter_.size = size; }
        bool await_ready()
        {
            if (waiter_.size > max_size)
                return true;
            if (!pool_.waiters_.empty())
                return false;
            waiter_.granted = pool_.try_acquire(waiter_.size);
            return bool(waiter_.granted);
        }
        template<class Promise>
        bool await_suspend(std::coroutine_handle<Promise> h)
        {
            if (!waiter_.suspend(pool_.waiters_, h))
                return false;
            pool_.note_wait();
            return true;
        }
        /// The lease; empty if the wait was stopped or the size can never be had.
        lease await_resume() noexcept { return std::move(waiter_.granted); }

    private:
        buffer_pool& pool_;
        sized_waiter waiter_;
    };
    /// Waits, in order, until the budget allows a buffer. This is how a full budget slows admission.
    awaiter acquire(std::size_t size) noexcept { return awaiter(*this, size); }

    /// Tells `o` of all memory that the pool has, and of what comes and goes from now on. False: it refused some,
    /// and hears nothing more. It gives the rest back.
    bool observe(buffer_pool_observer& o) noexcept;

    std::size_t outstanding() const noexcept { return outstanding_; }
    std::uint64_t waits() const noexcept { return waits_; }
    memory_budget& budget() noexcept { return budget_; }

private:
    friend class lease;
    friend struct detail::buffer_block;
    static constexpr unsigned classes = 13; // 4 KiB .. 16 MiB
    static unsigned class_of(std::size_t size) noexcept;
    void put_back(detail::buffer_block* block) noexcept;
    void give_home(detail::buffer_block* block) noexcept;
    bool announce(std::span<std::byte> memory) noexcept;
    void destroy(detail::buffer_block* block) noexcept;
    bool trim(std::size_t wanted) noexcept;
    void note_wait();
    void serve_waiters() noexcept;
    // Another shard may have freed the budget that our waiters want; nobody tells us, so we look.
    class retry final : public timer {
    public:
        explicit retry(buffer_pool& pool) noexcept : pool_(pool) {}
        void on_timer() noexcept override;

    private:
        buffer_pool& pool_;
    };

    memory_budget& budget_;
    reactor* shard_;
    std::array<detail::buffer_block*, classes> free_{};
    intrusive_list<detail::buffer_block> blocks_; // all of them
    intrusive_list<buffer_pool_observer> observers_;
    std::size_t kept_ = 0;
    std::size_t outstanding_ = 0;
    std::uint64_t waits_ = 0;
    intrusive_list<detail::waiter> waiters_;
    std::thread::id owner_ = std::this_thread::get_id();
    retry retry_{*this};
};

} // namespace verbena
