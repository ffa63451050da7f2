// SPDX-License-Identifier: Apache-2.0
#include "store_buffers.hpp"

#include <algorithm>
#include <chrono>

namespace verbena::steering {
namespace {

// As a pool looks for who waits in it.
constexpr duration look_again = std::chrono::milliseconds(1);
// Of a pool of its own, beyond what may be in use: the rest of a slab.
constexpr std::size_t beside = memory_budget::largest_slab;

} // namespace

void store_buffer::reset() noexcept
{
    if (of_ == nullptr)
        return;
    const std::size_t size = lease_ ? lease_.size() : 0;
    lease_.reset();
    bytes_ = {};
    std::exchange(of_, nullptr)->returned(size);
}

store_buffers::store_buffers(reactor& shard, buffer_pool* pool, std::size_t most,
                             const store_buffer_counts& counts)
    : shard_(shard),
      own_budget_(pool == nullptr ? std::optional<memory_budget>(std::in_place, most + beside)
                                  : std::nullopt),
      pool_(pool != nullptr ? *pool : own_pool_.emplace(*own_budget_, &shard)),
      most_(most),
      counts_(counts),
      reserve_(new std::byte[least])
{
}

store_buffers::~store_buffers() = default;

store_buffer store_buffers::from_pool(std::size_t size) noexcept
{
    if (size > most_ || used_ > most_ - size)
        return {};
    // With no patience nobody waits, and nobody is passed who does.
    auto asking = pool_.acquire(size, std::chrono::nanoseconds::zero());
    lease l = asking.await_ready() ? asking.await_resume() : lease();
    if (!l)
        return {};
    used_ += l.size();
    counts_.bytes.store(used_, std::memory_order_relaxed);
    const auto bytes = l.bytes();
    return {*this, std::move(l), bytes};
}

// Beyond half of what may be in use there are more small ones, so that more connections go on.
store_buffer store_buffers::find(std::size_t size) noexcept
{
    size = std::min(size, largest);
    store_buffer found;
    if (size <= least || used_ + size <= most_ / 2)
        found = from_pool(size);
    if (!found && size > least)
        found = from_pool(least);
    if (!found && !std::exchange(reserve_is_out_, true))
        found = store_buffer(*this, lease(), {reserve_.get(), least});
    return found;
}

store_buffer store_buffers::take(std::size_t size, store_buffer_waiter& w) noexcept
{
    if (line_.empty()) {
        if (store_buffer found = find(size))
            return found;
    }
    w.size_ = size;
    line_.push_back(w);
    counts_.waits.store(counts_.waits.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (!timer::is_armed())
        shard_.timers().arm(*this, shard_.now() + look_again);
    return {};
}

store_buffer store_buffers::try_take(std::size_t size) noexcept
{
    return line_.empty() ? from_pool(size) : store_buffer();
}

void store_buffers::returned(std::size_t size) noexcept
{
    if (size == 0)
        reserve_is_out_ = false;
    used_ -= size;
    counts_.bytes.store(used_, std::memory_order_relaxed);
    if (!line_.empty() && !deferred::is_linked())
        shard_.post(*this);
}

void store_buffers::serve() noexcept
{
    while (store_buffer_waiter* const w = line_.front()) {
        store_buffer found = find(w->size_);
        if (!found)
            break;
        w->unlink();
        w->give(std::move(found));
    }
    if (!line_.empty() && !timer::is_armed())
        shard_.timers().arm(*this, shard_.now() + look_again);
}

} // namespace verbena::steering
