// SPDX-License-Identifier: Apache-2.0
// Timers of one shard: a binary heap of nodes that live in their owners.
#pragma once

#include <verbena/core/reactor/clock.hpp>

#include <cstddef>
#include <optional>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

class timer_queue;

/// Something that wants to run at a time. Leaves its queue when destroyed.
class timer {
public:
    timer() = default;
    timer(const timer&) = delete;
    timer& operator=(const timer&) = delete;

    /// Whether on_timer() is still to come: armed, and neither called since nor cancelled.
    bool is_armed() const noexcept { return queue_ != nullptr; }
    time_point when() const noexcept { return when_; }
    /// Disarms it; on_timer() is not called. On the shard. Nothing if it is not armed.
    inline void cancel() noexcept;

protected:
    ~timer() { cancel(); }
    /// Runs on the shard, between polls; may arm itself again.
    virtual void on_timer() noexcept = 0;

private:
    friend class timer_queue;
    timer_queue* queue_ = nullptr;
    time_point when_{};
    std::size_t index_ = 0; // in the heap
    timer* next_ = nullptr; // of those outside
};

/// The timers of one shard (reactor::timers()). Not thread-safe. A timer is armed in one queue at a time.
class timer_queue {
public:
    timer_queue() = default;
    timer_queue(const timer_queue&) = delete;
    timer_queue& operator=(const timer_queue&) = delete;
    /// What is armed is so no more.
    ~timer_queue();
    /// Arms `t` for `when`, moving it if it is armed already. Succeeds without memory, too: who arms a timer is often in a place that
    /// no exception may leave.
    void arm(timer& t, time_point when) noexcept;
    /// Disarms `t`, if it is armed here.
    void cancel(timer& t) noexcept;
    /// Runs every timer due at `now`; true if one ran.
    bool expire(time_point now) noexcept;
    /// When the first is due; nothing if none is armed.
    std::optional<time_point> next() const noexcept;

private:
    static constexpr std::size_t outside = ~std::size_t(0);
    timer* first() const noexcept;
    bool has_room() noexcept;
    void take_in() noexcept;
    void leave_list(timer& t) noexcept;
    void place(std::size_t index, timer* t) noexcept;
    void sift_up(std::size_t index) noexcept;
    void sift_down(std::size_t index) noexcept;
    std::vector<timer*> heap_;
    timer* outside_ = nullptr; // a list, in no order, of those for which the heap is too small and can't grow
};

void timer::cancel() noexcept
{
    if (queue_ != nullptr)
        queue_->cancel(*this);
}

} // namespace verbena

#pragma GCC visibility pop
