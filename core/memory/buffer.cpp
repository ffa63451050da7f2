// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/memory/buffer.hpp>

#include "slab.hpp"

#include <verbena/core/log.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>

namespace verbena {

namespace {

constexpr std::chrono::milliseconds retry_interval{1};
// So long nothing has asked in vain when a shortage is over.
constexpr std::chrono::seconds calm_after{10};

// The log has one line when a budget is used up and one when it no longer is, however many pools want of it.
void begin_shortage(memory_budget& of, time_point now)
{
    memory_budget::shortage& its = of.its_shortage();
    its.last.store(now.time_since_epoch().count(),
                   std::memory_order_relaxed); // before another shard asks whether it is over
    if (its.lasts.exchange(true, std::memory_order_relaxed))
        return;
    its.since.store(now.time_since_epoch().count(), std::memory_order_relaxed);
    log(log_level::warning, "core",
        "the memory for buffers is used up, so calls wait: raise memory_mib, or see who holds most "
        "of it (verbena admin connections, verbena_peer_most_memory_bytes)",
        {{"mebibytes", of.limit() >> 20}});
}

bool is_short(memory_budget& b) noexcept { return b.its_shortage().lasts.load(std::memory_order_relaxed); }

time_point time_of(const std::atomic<std::int64_t>& ticks) noexcept
{
    return time_point(duration(ticks.load(std::memory_order_relaxed)));
}

// When it may be over, if nothing asks in vain until then.
time_point end_of_shortage(memory_budget& b) noexcept { return time_of(b.its_shortage().last) + calm_after; }

void end_shortage(memory_budget& of)
{
    memory_budget::shortage& its = of.its_shortage();
    const duration took = time_of(its.last) - time_of(its.since);
    if (its.lasts.exchange(false, std::memory_order_relaxed))
        log(log_level::info, "core", "there is memory for buffers again",
            {{"seconds", std::chrono::duration<double>(took).count()}});
}

} // namespace

void lease::give_up() noexcept
{
    detail::buffer_block* block = std::exchange(block_, nullptr);
    if (block->references.fetch_sub(1, std::memory_order_acq_rel) == 1)
        block->pool->give_home(block);
}

void detail::buffer_block::deliver() noexcept { pool->put_back(this); }

buffer_pool::buffer_pool(memory_budget& budget, reactor* shard) : budget_(budget), shard_(shard) {}

buffer_pool::~buffer_pool()
{
    assert(outstanding_ == 0 && "a lease outlives its pool");
    trim(~std::size_t(0));
}

unsigned buffer_pool::class_of(std::size_t size) noexcept
{
    if (size <= min_size)
        return 0;
    return static_cast<unsigned>(std::bit_width(size - 1)) -
           static_cast<unsigned>(std::bit_width(min_size - 1));
}

lease buffer_pool::try_acquire(std::size_t size)
{
    if (size > max_size)
        return {};
    const unsigned index = class_of(size);
    detail::slab* from = find_free(index);
    if (from == nullptr)
        from = add_slab(index);
    for (unsigned larger = index + 1; from == nullptr && larger < classes; ++larger)
        from = find_free(larger);
    if (from != nullptr)
        return take_from(*from);
    // What a device refuses to register is no shortage of the budget, and has lines of its own.
    const std::size_t each = min_size << index;
    if (shard_ != nullptr && each <= budget_.limit() && budget_.used() > budget_.limit() - each) {
        const time_point now = shard_->clock().now();
        begin_shortage(budget_, now);
        if (!retry_.is_armed())
            shard_->timers().arm(retry_, now + calm_after);
    }
    return {};
}

lease buffer_pool::take_beside(std::size_t size) noexcept
{
    class_slabs& its = slabs_[class_of(size)];
    return its.partial.empty() ? lease() : take_from(*its.partial.front());
}

lease buffer_pool::take_from(detail::slab& from) noexcept
{
    class_slabs& its = slabs_[from.size_class()];
    if (from.idle())
        kept_ -= from.size();
    detail::buffer_block* block = from.take();
    if (from.full())
        its.full.push_front(from);
    else
        its.partial.push_front(from);
    block->references.store(1, std::memory_order_relaxed);
    ++outstanding_;
    outstanding_bytes_ += block->size;
    return lease(block);
}

// Slabs in use first, so that others can go.
detail::slab* buffer_pool::find_free(unsigned index) noexcept
{
    class_slabs& of = slabs_[index];
    return of.partial.empty() ? of.idle.front() : of.partial.front();
}

detail::slab* buffer_pool::add_slab(unsigned index)
{
    const std::size_t each = min_size << index;
    std::size_t bytes = std::max(each, budget_.slab_size());
    if (!budget_.reserve(bytes) && !(trim(bytes) && budget_.reserve(bytes))) {
        // What is left of the budget may do for a smaller one.
        do {
            if (bytes == each)
                return nullptr;
            bytes /= 2;
        } while (!budget_.reserve(bytes));
    }
    auto made = detail::slab::map(*this, bytes, each, index);
    // What may be registered has a limit of its own.
    if (made == nullptr || !(announce(made->memory()) || (trim(bytes) && announce(made->memory())))) {
        made.reset();
        budget_.release(bytes);
        return nullptr;
    }
    kept_ += bytes;
    slabs_[index].idle.push_front(*made);
    return made.release();
}

void buffer_pool::give_home(detail::buffer_block* block) noexcept
{
    if (shard_ == nullptr || shard_->is_here())
        put_back(block);
    else
        shard_->post_remote(*block);
}

void buffer_pool::put_back(detail::buffer_block* block) noexcept
{
    --outstanding_;
    outstanding_bytes_ -= block->size;
    detail::slab& home = *block->home;
    class_slabs& its = slabs_[home.size_class()];
    const bool was_full = home.full();
    home.put_back(*block);
    if (!home.idle()) {
        if (was_full)
            its.partial.push_front(home);
    } else if (home.size() > budget_.max_kept()) {
        destroy(&home);
    } else {
        kept_ += home.size();
        home.set_idle_since(++idled_);
        its.idle.push_front(home);
        // Not this one: small calls make their slab idle after each batch, and would map and clear it again for the next.
        while (kept_ > budget_.max_kept())
            drop(*coldest_idle());
    }
    if (!waiters_.empty())
        serve_waiters();
}

// Each list has the one used last in front.
detail::slab* buffer_pool::coldest_idle() noexcept
{
    detail::slab* coldest = nullptr;
    for (class_slabs& of : slabs_) {
        detail::slab* s = of.idle.back();
        if (s != nullptr && (coldest == nullptr || s->idle_since() < coldest->idle_since()))
            coldest = s;
    }
    return coldest;
}

void buffer_pool::destroy(detail::slab* s) noexcept
{
    for (buffer_pool_observer* o = observers_.front(); o != nullptr; o = observers_.next(*o))
        o->on_removed(s->memory());
    const std::size_t bytes = s->size();
    delete s;
    budget_.release(bytes);
}

void buffer_pool::drop(detail::slab& idle) noexcept
{
    idle.unlink();
    kept_ -= idle.size();
    destroy(&idle);
}

// Gives `wanted` bytes of idle slabs back to the budget, if there are as many: those first that lie idle longest.
bool buffer_pool::trim(std::size_t wanted) noexcept
{
    std::size_t freed = 0;
    while (freed < wanted) {
        detail::slab* coldest = coldest_idle();
        if (coldest == nullptr)
            break;
        freed += coldest->size();
        drop(*coldest);
    }
    return freed != 0;
}

// Every observer takes it, or none.
bool buffer_pool::announce(std::span<std::byte> memory) noexcept
{
    for (buffer_pool_observer* o = observers_.front(); o != nullptr; o = observers_.next(*o)) {
        if (o->on_added(memory))
            continue;
        for (buffer_pool_observer* told = observers_.front(); told != o; told = observers_.next(*told))
            told->on_removed(memory);
        return false;
    }
    return true;
}

std::vector<std::span<std::byte>> buffer_pool::all_memory()
{
    std::vector<std::span<std::byte>> all;
    for (class_slabs& of : slabs_) {
        for (auto* list : {&of.partial, &of.idle, &of.full}) {
            for (detail::slab* s = list->front(); s != nullptr; s = list->next(*s))
                all.push_back(s->memory());
        }
    }
    return all;
}

bool buffer_pool::observe(buffer_pool_observer& o) noexcept
{
    const auto all = all_memory();
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (o.on_added(all[i]))
            continue;
        while (i-- > 0)
            o.on_removed(all[i]);
        return false;
    }
    observers_.push_back(o);
    return true;
}

void buffer_pool::serve_waiters() noexcept
{
    bool in_turn = true;
    for (auto* w = static_cast<sized_waiter*>(waiters_.front()); w != nullptr;) {
        auto* next = static_cast<sized_waiter*>(waiters_.next(*w));
        w->granted = in_turn ? try_acquire(w->size) : take_beside(w->size);
        if (w->granted)
            w->wake();
        else
            in_turn = false;
        w = next;
    }
}

void buffer_pool::note_wait(sized_waiter& w)
{
    ++waits_;
    if (shard_ == nullptr)
        return;
    const time_point now = shard_->clock().now();
    if (w.patience < time_point::max() - now)
        w.until = now + w.patience;
    if (!retry_.is_armed() || retry_.when() > now + retry_interval)
        shard_->timers().arm(retry_, now + retry_interval);
}

void buffer_pool::give_up(time_point now) noexcept
{
    for (auto* w = static_cast<sized_waiter*>(waiters_.front()); w != nullptr;) {
        auto* next = static_cast<sized_waiter*>(waiters_.next(*w));
        if (w->until <= now)
            w->wake();
        w = next;
    }
}

void buffer_pool::retry::on_timer() noexcept
{
    pool_.serve_waiters();
    const time_point now = pool_.shard_->clock().now();
    pool_.give_up(now);
    if (!pool_.waiters_.empty())
        pool_.shard_->timers().arm(*this, now + retry_interval);
    else if (!is_short(pool_.budget_))
        return;
    else if (end_of_shortage(pool_.budget_) > now)
        pool_.shard_->timers().arm(*this, end_of_shortage(pool_.budget_));
    else
        end_shortage(pool_.budget_);
}

} // namespace verbena
