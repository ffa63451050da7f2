// SPDX-License-Identifier: Apache-2.0
// channel<T>: a bounded queue between tasks of one shard.
#pragma once

#include <verbena/core/task/semaphore.hpp>
#include <verbena/core/task/task.hpp>

#include <cassert>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

/// Shard-local, any number of senders and receivers, each served in order of asking. The memory for
/// `capacity` values is taken once. Must outlive every task that waits on it.
template<class T>
class channel {
public:
    /// Takes the memory for `capacity` values, at least 1; throws std::bad_alloc without it.
    explicit channel(std::size_t capacity) : ring_(capacity), room_(capacity), filled_(0)
    {
        assert(capacity > 0);
    }
    channel(const channel&) = delete;
    channel& operator=(const channel&) = delete;

    /// `co_await c.send(v)`. Completes when: there is room and who asked before has sent. On cancel, and once the channel is closed: yields
    /// false, and `value` is dropped. Errors: none. Lifetime: the channel outlives the wait. Shard: that of all who use the channel.
    task<bool> send(T value)
    {
        const bool room = co_await room_.acquire();
        if (!room || closed_)
            co_return false;
        put(std::move(value));
        co_return true;
    }
    /// Sends without waiting; false (and `value` unmoved) if there is no room or the channel is closed.
    [[nodiscard("false: nothing was sent")]] bool try_send(T& value)
    {
        if (closed_ || !room_.try_acquire())
            return false;
        put(std::move(value));
        return true;
    }
    /// `co_await c.receive()`. Completes when: there is a value and who asked before has one; yields the oldest. On cancel, and
    /// once the channel is closed and drained: yields nothing. Errors: none. Lifetime: the channel outlives the wait. Shard: that
    /// of all who use the channel.
    task<std::optional<T>> receive()
    {
        std::optional<T> value;
        const bool any = co_await filled_.acquire();
        if (any && size_ > 0)
            value = take();
        co_return value;
    }
    /// Nothing can be sent from now on; what was sent can still be received. Idempotent.
    void close() noexcept
    {
        if (std::exchange(closed_, true))
            return;
        // Whoever waits, now or later, goes through and sees that it is closed.
        room_.release(everybody);
        filled_.release(everybody);
    }
    bool closed() const noexcept { return closed_; }
    std::size_t size() const noexcept { return size_; }
    /// How many values it holds before a sender waits.
    std::size_t capacity() const noexcept { return ring_.size(); }

private:
    static constexpr std::size_t everybody = std::numeric_limits<std::size_t>::max() / 2;

    void put(T&& value)
    {
        ring_[(head_ + size_) % ring_.size()].emplace(std::move(value));
        ++size_;
        filled_.release();
    }
    std::optional<T> take()
    {
        std::optional<T> value = std::move(ring_[head_]);
        ring_[head_].reset();
        head_ = (head_ + 1) % ring_.size();
        --size_;
        room_.release();
        return value;
    }

    std::vector<std::optional<T>> ring_;
    std::size_t head_ = 0;
    std::size_t size_ = 0;
    bool closed_ = false;
    semaphore room_;
    semaphore filled_;
};

} // namespace verbena

#pragma GCC visibility pop
