// SPDX-License-Identifier: Apache-2.0
// Buffers by which a shard reads and writes stores for its peers: from the shard's pool, with a line of those who
// wait for one.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/timer.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

namespace verbena::steering {

class store_buffers;

/// One of them. On its shard; its store_buffers outlive it.
class store_buffer {
public:
    store_buffer() = default;
    store_buffer(store_buffer&& other) noexcept
        : of_(std::exchange(other.of_, nullptr)),
          lease_(std::move(other.lease_)),
          bytes_(std::exchange(other.bytes_, {}))
    {
    }
    store_buffer& operator=(store_buffer&& other) noexcept
    {
        if (this != &other) {
            reset();
            of_ = std::exchange(other.of_, nullptr);
            lease_ = std::move(other.lease_);
            bytes_ = std::exchange(other.bytes_, {});
        }
        return *this;
    }
    ~store_buffer() { reset(); }

    explicit operator bool() const noexcept { return of_ != nullptr; }
    std::span<std::byte> bytes() const noexcept { return bytes_; }
    void reset() noexcept;

private:
    friend class store_buffers;
    store_buffer(store_buffers& of, lease l, std::span<std::byte> bytes) noexcept
        : of_(&of), lease_(std::move(l)), bytes_(bytes)
    {
    }
    store_buffers* of_ = nullptr;
    lease lease_; // empty: it is the reserve
    std::span<std::byte> bytes_;
};

/// Waits for a buffer, in line.
class store_buffer_waiter : public list_hook {
public:
    /// It has left the line. Amid a turn of the shard, outside of sections.
    virtual void give(store_buffer b) noexcept = 0;

protected:
    ~store_buffer_waiter() = default;

private:
    friend class store_buffers;
    std::size_t size_ = 0;
};

/// What they count. One writer; any thread may read.
struct store_buffer_counts {
    std::atomic<std::uint64_t>& bytes; ///< that are in use
    std::atomic<std::uint64_t>& waits; ///< how often somebody had to stand in line
};

/// A buffer is held for one access. Whoever needs the next one goes to the end of the line, so that connections take
/// turns.
///
/// Memory of the pool goes to those who wait for it in the pool first. Where there is none, one buffer that is no
/// memory of the pool goes round among those in the line: so each access has its turn, however long the pool is
/// spent. On its shard.
class store_buffers final : private timer, private deferred {
public:
    /// What an access gets at most, and at least if it asks for as much.
    static constexpr std::size_t largest = std::size_t(256) << 10;
    static constexpr std::size_t least = std::size_t(64) << 10;

    /// `pool` is of the shard and outlives this; nullptr: it has one of its own. `most`: bytes that are in use at once.
    store_buffers(reactor& shard, buffer_pool* pool, std::size_t most, const store_buffer_counts& counts);
    ~store_buffers();

    /// For `size` bytes, or fewer: `largest`, and `least` where memory is short. Empty: `w` stands in line, and gets
    /// it.
    store_buffer take(std::size_t size, store_buffer_waiter& w) noexcept;
    /// For all of `size` bytes, or empty. Nobody waits.
    store_buffer try_take(std::size_t size) noexcept;

private:
    friend class store_buffer;
    store_buffer find(std::size_t size) noexcept;
    store_buffer from_pool(std::size_t size) noexcept;
    void returned(std::size_t size) noexcept;
    void serve() noexcept;
    void run() noexcept override { serve(); }
    void on_timer() noexcept override
    {
        serve();
    } // another shard, or another user of the pool, may have freed memory

    reactor& shard_;
    std::optional<memory_budget> own_budget_;
    std::optional<buffer_pool> own_pool_;
    buffer_pool& pool_;
    const std::size_t most_;
    store_buffer_counts counts_;
    std::size_t used_ = 0;
    const std::unique_ptr<std::byte[]>
        reserve_; // of `least` bytes; no page of it is touched before it is needed
    bool reserve_is_out_ = false;
    intrusive_list<store_buffer_waiter> line_;
};

} // namespace verbena::steering
