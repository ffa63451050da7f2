// SPDX-License-Identifier: Apache-2.0
// Buffers: size-classed memory under one budget, held through leases.
//
// A lease is kept by whatever may still touch the memory: an operation on the wire, a disk call, a
// reply that waits for its turn. When the last one goes, the buffer returns to its shard's pool.
#pragma once

#include <verbena/core/memory/budget.hpp>
#include <verbena/core/task/wait_queue.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

class buffer_pool;

namespace detail {
class slab;
struct buffer_block final : remote_message {
    void deliver() noexcept override;
    buffer_pool* pool = nullptr;
    slab* home = nullptr;
    std::byte* data = nullptr;
    std::uint32_t size = 0;
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

    /// Whether it holds a buffer. data(), size(), bytes() and unique() are for one that does.
    explicit operator bool() const noexcept { return block_ != nullptr; }
    std::byte* data() const noexcept { return block_->data; }
    std::size_t size() const noexcept { return block_->size; }
    /// All of the buffer, which may be larger than what was asked for. Valid while a lease shares it.
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
    /// Gives its share up; the last one sends the buffer home. Any thread.
    void reset() noexcept
    {
        if (block_ != nullptr) // most leases that go were moved from
            give_up();
    }

private:
    friend class buffer_pool;
    void give_up() noexcept;
    explicit lease(detail::buffer_block* block) noexcept : block_(block) {}
    detail::buffer_block* block_ = nullptr;
};

/// Hears which memory a pool has, slab by slab: a protection domain registers it. Called on the pool's shard. Unlinked
/// when the pool goes, after on_removed() for all of it; an observer that goes first hears no more.
class buffer_pool_observer : public list_hook {
public:
    /// `memory` belongs to the pool from now on; false: it can't be used, so the pool gives it back.
    virtual bool on_added(std::span<std::byte> memory) noexcept = 0;
    /// It is about to go back to the system.
    virtual void on_removed(std::span<std::byte> memory) noexcept = 0;

protected:
    ~buffer_pool_observer() = default;
};

/// One shard's buffers. Sizes are rounded up to a power of two between min_size and max_size; when the budget is
/// spent a larger one that is free may be given instead.
class buffer_pool {
public:
    static constexpr std::size_t min_size = 4096;                  ///< bytes; what is smaller gets so much
    static constexpr std::size_t max_size = std::size_t(16) << 20; ///< bytes; what is larger is refused
    /// How long a server's call waits before its client is told to come again.
    static constexpr std::chrono::seconds call_patience{10};
    /// A task that waits for a buffer: part of the awaiter.
    struct sized_waiter : detail::waiter {
        std::size_t size = 0;                 ///< bytes, at least
        std::chrono::nanoseconds patience{};  ///< how long it waits at most; max(): for ever
        time_point until = time_point::max(); ///< when that is over, once it waits
        lease granted;                        ///< the buffer, when it has been given one
    };

    /// `shard` may be nullptr for a pool used from one thread with no reactor (tests).
    buffer_pool(memory_budget& budget, reactor* shard);
    /// Every lease must have come home.
    ~buffer_pool();
    buffer_pool(const buffer_pool&) = delete;

    /// A buffer of at least `size` bytes, or an empty lease when the budget is spent or size > max_size.
    lease try_acquire(std::size_t size);

    /// What acquire() returns.
    class [[nodiscard("co_await it: nothing waits here otherwise")]] awaiter {
    public:
        awaiter(buffer_pool& pool, std::size_t size, std::chrono::nanoseconds patience) noexcept : pool_(pool)
        {
            waiter_.size = size;
            waiter_.patience = patience;
        }
        bool await_ready()
        {
            if (waiter_.size > max_size)
                return true;
            waiter_.granted =
                pool_.waiters_.empty() ? pool_.try_acquire(waiter_.size) : pool_.take_beside(waiter_.size);
            return bool(waiter_.granted) || waiter_.patience == std::chrono::nanoseconds::zero();
        }
        template<class Promise>
        bool await_suspend(std::coroutine_handle<Promise> h)
        {
            if (!waiter_.suspend(pool_.waiters_, h, wait_kind::buffer, &pool_))
                return false;
            pool_.note_wait(waiter_);
            return true;
        }
        /// The lease; empty if the wait was stopped or too long, or the size can never be had.
        lease await_resume() noexcept { return std::move(waiter_.granted); }

    private:
        buffer_pool& pool_;
        sized_waiter waiter_;
    };
    /// `co_await pool.acquire(size)`: a buffer of at least `size` bytes. This is how a full budget slows admission.
    ///
    /// Completes when: the budget allows it, in order of asking; who wants no more than what a slab in use has free passes those
    /// who want another size. After `patience` it gives up, with a patience of zero without waiting: idle connections' receives may be all that holds the memory which a
    /// device lets a process register. On cancel: it ends. Errors: an empty lease, of a wait that was stopped or took too long,
    /// and at once for more than max_size. Lifetime: the pool outlives the wait and the lease. Shard: the pool's.
    awaiter acquire(std::size_t size,
                    std::chrono::nanoseconds patience = std::chrono::nanoseconds::max()) noexcept
    {
        return awaiter(*this, size, patience);
    }

    /// Tells `o` of all memory that the pool has, and of what comes and goes from now on. False: it refused some,
    /// and hears nothing more. It gives the rest back.
    bool observe(buffer_pool_observer& o) noexcept;

    /// Buffers that leases hold, and their bytes.
    std::size_t outstanding() const noexcept { return outstanding_; }
    std::size_t outstanding_bytes() const noexcept { return outstanding_bytes_; }
    std::uint64_t waits() const noexcept { return waits_; }
    /// What the pool's slabs count against.
    memory_budget& budget() noexcept { return budget_; }

private:
    friend class lease;
    friend struct detail::buffer_block;
    static constexpr unsigned classes = 13; // 4 KiB .. 16 MiB
    struct class_slabs {
        intrusive_list<detail::slab> partial; // with buffers in use, and free ones
        intrusive_list<detail::slab> idle;    // without buffers in use; the one used last stands first
        intrusive_list<detail::slab> full;
    };
    static unsigned class_of(std::size_t size) noexcept;
    detail::slab* find_free(unsigned index) noexcept;
    detail::slab* add_slab(unsigned index);
    lease take_from(detail::slab& s) noexcept;
    /// What others wait in vain for isn't this: a buffer of this class, of a slab that is in use anyhow.
    lease take_beside(std::size_t size) noexcept;
    void put_back(detail::buffer_block* block) noexcept;
    void give_home(detail::buffer_block* block) noexcept;
    bool announce(std::span<std::byte> memory) noexcept;
    void destroy(detail::slab* s) noexcept;
    detail::slab* coldest_idle() noexcept;
    void drop(detail::slab& idle) noexcept;
    bool trim(std::size_t wanted) noexcept;
    std::vector<std::span<std::byte>> all_memory();
    void note_wait(sized_waiter& w);
    void serve_waiters() noexcept;
    void give_up(time_point now) noexcept;
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
    std::array<class_slabs, classes> slabs_;
    intrusive_list<buffer_pool_observer> observers_;
    std::size_t kept_ = 0;    // bytes of idle slabs
    std::uint64_t idled_ = 0; // slabs that became idle so far
    std::size_t outstanding_ = 0;
    std::size_t outstanding_bytes_ = 0;
    std::uint64_t waits_ = 0;
    intrusive_list<detail::waiter> waiters_;
    retry retry_{*this};
};

} // namespace verbena

#pragma GCC visibility pop
