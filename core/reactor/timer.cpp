// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/reactor/timer.hpp>

#include <algorithm>
#include <new>
#include <utility>

namespace verbena {

timer_queue::~timer_queue()
{
    for (timer* t : heap_)
        t->queue_ = nullptr;
    for (timer* t = outside_; t != nullptr; t = t->next_)
        t->queue_ = nullptr;
}

bool timer_queue::has_room() noexcept
{
    if (heap_.size() < heap_.capacity())
        return true;
    try {
        heap_.reserve(std::max<std::size_t>(16, 2 * heap_.capacity()));
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

void timer_queue::leave_list(timer& t) noexcept
{
    timer** at = &outside_;
    while (*at != &t)
        at = &(*at)->next_;
    *at = t.next_;
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

void timer_queue::arm(timer& t, time_point when) noexcept
{
    t.cancel();
    t.queue_ = this;
    t.when_ = when;
    if (heap_.size() < heap_.capacity()) { // and nothing is outside
        heap_.push_back(&t);
        sift_up(heap_.size() - 1);
        return;
    }
    t.index_ = outside;
    t.next_ = std::exchange(outside_, &t);
    take_in();
}

// All of them as soon as there is memory again: each turn looks at those that stay outside.
void timer_queue::take_in() noexcept
{
    while (outside_ != nullptr && has_room()) {
        timer* const t = std::exchange(outside_, outside_->next_);
        heap_.push_back(t);
        sift_up(heap_.size() - 1);
    }
}

void timer_queue::cancel(timer& t) noexcept
{
    t.queue_ = nullptr;
    const std::size_t index = t.index_;
    if (index == outside) {
        leave_list(t);
        return;
    }
    timer* last = heap_.back();
    heap_.pop_back();
    if (last != &t) {
        place(index, last);
        sift_up(index);
        sift_down(last->index_);
    }
    if (outside_ != nullptr)
        take_in();
}

timer* timer_queue::first() const noexcept
{
    timer* found = heap_.empty() ? nullptr : heap_.front();
    for (timer* t = outside_; t != nullptr; t = t->next_) {
        if (found == nullptr || t->when_ < found->when_)
            found = t;
    }
    return found;
}

bool timer_queue::expire(time_point now) noexcept
{
    bool any = false;
    for (timer* t = first(); t != nullptr && t->when_ <= now; t = first()) {
        cancel(*t);
        t->on_timer();
        any = true;
    }
    return any;
}

std::optional<time_point> timer_queue::next() const noexcept
{
    const timer* const t = first();
    if (t == nullptr)
        return std::nullopt;
    return t->when_;
}

} // namespace verbena
