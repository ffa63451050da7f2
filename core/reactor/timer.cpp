// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/reactor/timer.hpp>

namespace verbena {

timer_queue::~timer_queue()
{
    for (timer* t : heap_)
        t->queue_ = nullptr;
}

void timer_queue::place(std::size_t index, timer* t) noexcept
{
    heap_[index] = t;
    t->index_ = index;
}

void timer_queue::sift_up(std::size_t index) noexcept
{
    timer* t = heap_[index];
    while (index > 0) {
        const std::size_t parent = (index - 1) / 2;
        if (heap_[parent]->when_ <= t->when_)
            break;
        place(index, heap_[parent]);
        index = parent;
    }
    place(index, t);
}

void timer_queue::sift_down(std::size_t index) noexcept
{
    timer* t = heap_[index];
    for (;;) {
        std::size_t child = index * 2 + 1;
        if (child >= heap_.size())
            break;
        if (child + 1 < heap_.size() && heap_[child + 1]->when_ < heap_[child]->when_)
            ++child;
        if (t->when_ <= heap_[child]->when_)
            break;
        place(index, heap_[child]);
        index = child;
    }
    place(index, t);
}

void timer_queue::arm(timer& t, time_point when)
{
    t.cancel();
    heap_.push_back(&t);
    t.queue_ = this;
    t.when_ = when;
    sift_up(heap_.size() - 1);
}

void timer_queue::cancel(timer& t) noexcept
{
    const std::size_t index = t.index_;
    timer* last = heap_.back();
    heap_.pop_back();
    t.queue_ = nullptr;
    if (last == &t)
        return;
    place(index, last);
    sift_up(index);
    sift_down(last->index_);
}

bool timer_queue::expire(time_point now) noexcept
{
    bool any = false;
    while (!heap_.empty() && heap_.front()->when_ <= now) {
        timer& t = *heap_.front();
        cancel(t);
        t.on_timer();
        any = true;
    }
    return any;
}

std::optional<time_point> timer_queue::next() const noexcept
{
    if (heap_.empty())
        return std::nullopt;
    return heap_.front()->when_;
}

} // namespace verbena
