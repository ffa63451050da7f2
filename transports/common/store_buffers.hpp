// SPDX-License-Identifier: Apache-2.0
// Buffers by which a shard reads and writes stores for its peers: from the shard's pool, with a line of those who
// wait for one.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/timer.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace verbena::steering {

class store_buffers;
class store_buffer_waiter;

/// What one peer has of them. Of store_buffers.
struct store_buffer_peer : list_hook {
    std::size_t used = 0;              ///< bytes of the pool
    std::size_t users = 0;             ///< shares, and buffers that are out
    const std::string* name = nullptr; ///< nullptr: those who are not told apart
    intrusive_list<store_buffer_waiter> line;
};

/// By which a connection asks, as its peer. Goes before the store_buffers are let go. On its shard.
class store_buffer_share {
public:
    store_buffer_share() = default;
    store_buffer_share(store_buffer_share&& other) noexcept
        : of_(std::exchange(other.of_, nullptr)), peer_(std::exchange(other.peer_, nullptr))
    {
    }
    store_buffer_share& operator=(store_buffer_share&& other) noexcept
    {
        std::swap(of_, other.of_);
        std::swap(peer_, other.peer_);
        return *this;
    }
    inline ~store_buffer_share();

private:
    friend class store_buffers;
    store_buffer_share(store_buffers& of, store_buffer_peer& peer) noexcept : of_(&of), peer_(&peer) {}
    store_buffers* of_ = nullptr;
    store_buffer_peer* peer_ = nullptr;
};

/// One of them. On its shard. It may outlive the context whose it is, but not the pool.
class store_buffer {
public:
    store_buffer() = default;
    store_buffer(store_buffer&& other) noexcept
        : of_(std::exchange(other.of_, nullptr)),
          peer_(other.peer_),
          lease_(std::move(other.lease_)),
          bytes_(std::exchange(other.bytes_, {}))
    {
    }
    store_buffer& operator=(store_buffer&& other) noexcept
    {
        if (this != &other) {
            reset();
            of_ = std::exchange(other.of_, nullptr);
            peer_ = other.peer_;
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
    store_buffer(store_buffers& of, store_buffer_peer& peer, lease l, std::span<std::byte> bytes) noexcept
        : of_(&of), peer_(&peer), lease_(std::move(l)), bytes_(bytes)
    {
    }
    store_buffers* of_ = nullptr;
    store_buffer_peer* peer_ = nullptr;
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
    time_point since_{};
};

/// What they count. One writer; any thread may read.
struct store_buffer_counts {
    std::atomic<std::uint64_t>& bytes; ///< that are in use
    std::atomic<std::uint64_t>& waits; ///< how often somebody had to stand in line
};

/// A buffer is held for one access. Whoever needs the next one goes to the end of the line of its peer, so that
/// connections take turns, and so do peers, however many connections one has. A peer has half of what may be in use at
/// most.
///
/// Memory of the pool goes to those who wait for it in the pool first. Where there is none, one buffer that is no
/// memory of the pool goes round among those in the line: so each access has its turn, however long the pool is
/// spent.
///
/// Whoever made them lets them go when nobody stands in line any more. An access that a disk holds up may have a buffer
/// still: they stay until the last one has come back, and count no more. On its shard.
class store_buffers final : private timer, private deferred {
public:
    /// What an access gets at most, and at least if it asks for as much.
    static constexpr std::size_t largest = std::size_t(256) << 10;
    static constexpr std::size_t least = std::size_t(64) << 10;

    struct let_go {
        void operator()(store_buffers* b) const noexcept { b->leave(); }
    };
    using pointer = std::unique_ptr<store_buffers, let_go>;

    /// `pool` is of the shard and outlives all buffers; nullptr: there is one of their own. `most`: bytes that are in
    /// use at once. `counts` are there until they are let go. Throws std::bad_alloc.
    static pointer make(reactor& shard, buffer_pool* pool, std::size_t most,
                        const store_buffer_counts& counts);

    /// That of the peer of this name (peer_group()). Throws std::bad_alloc.
    store_buffer_share share_of(std::string_view peer);
    /// For `size` bytes, or fewer: `largest`, and `least` where memory is short. Empty: `w` stands in line, and gets
    /// it. `who`: an empty one is of those who are not told apart, whose share is all.
    store_buffer take(std::size_t size, store_buffer_waiter& w, const store_buffer_share& who = {}) noexcept;
    /// For all of `size` bytes, or empty. Nobody waits.
    store_buffer try_take(std::size_t size, const store_buffer_share& who = {}) noexcept;
    /// Somebody has waited for `patience` or longer, and would have a buffer of `who`'s if it came back.
    bool are_wanted(duration patience, const store_buffer_share& who) noexcept;

private:
    friend class store_buffer;
    friend class store_buffer_share;
    store_buffers(reactor& shard, buffer_pool* pool, std::size_t most, const store_buffer_counts& counts);
    void leave() noexcept;
    void count_used() noexcept;
    store_buffer_peer& peer_of(const store_buffer_share& who) noexcept
    {
        return who.peer_ != nullptr ? *who.peer_ : anybody_;
    }
    std::size_t most_of(const store_buffer_peer& peer) const noexcept
    {
        return peer.name == nullptr ? most_ : most_ / 2;
    }
    /// Whether its share has room for what an access of `size` gets at least. Else some of it is out.
    bool has_share(const store_buffer_peer& peer, std::size_t size) const noexcept
    {
        return peer.name == nullptr || peer.used == 0 ||
               peer.used + std::min(rounded(size), least) <= most_of(peer);
    }
    /// As the pool does it.
    static std::size_t rounded(std::size_t size) noexcept
    {
        return std::bit_ceil(std::max(size, buffer_pool::min_size));
    }
    store_buffer find(std::size_t size, store_buffer_peer& peer) noexcept;
    store_buffer from_pool(std::size_t size, store_buffer_peer& peer) noexcept;
    void leave_peer(store_buffer_peer& peer) noexcept;
    void returned(std::size_t size, store_buffer_peer& peer) noexcept;
    void serve() noexcept;
    void look_later() noexcept;
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
    std::optional<store_buffer_counts> counts_; // none: whoever made them has let them go
    std::size_t used_ = 0;
    std::size_t out_ = 0; // buffers
    const std::unique_ptr<std::byte[]>
        reserve_; // of `least` bytes; no page of it is touched before it is needed
    bool reserve_is_out_ = false;
    std::map<std::string, store_buffer_peer, std::less<>> peers_;
    store_buffer_peer anybody_;
    intrusive_list<store_buffer_peer> line_; // those who may have somebody in theirs
};

store_buffer_share::~store_buffer_share()
{
    if (peer_ != nullptr)
        of_->leave_peer(*peer_);
}

} // namespace verbena::steering
