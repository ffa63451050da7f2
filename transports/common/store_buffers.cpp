// SPDX-License-Identifier: Apache-2.0
#include "store_buffers.hpp"

#include <algorithm>
#include <chrono>
#include <new>

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
    std::exchange(of_, nullptr)->returned(size, *peer_);
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

store_buffers::pointer store_buffers::make(reactor& shard, buffer_pool* pool, std::size_t most,
                                           const store_buffer_counts& counts)
{
    return pointer(new store_buffers(shard, pool, most, counts));
}

void store_buffers::leave() noexcept
{
    timer::cancel();
    deferred::unlink();
    counts_.reset();
    if (out_ == 0)
        delete this;
}

void store_buffers::count_used() noexcept
{
    if (counts_)
        counts_->bytes.store(used_, std::memory_order_relaxed);
}

store_buffer_share store_buffers::share_of(std::string_view peer)
{
    auto known = peers_.find(peer);
    if (known == peers_.end())
        known = peers_.try_emplace(std::string(peer)).first;
    known->second.name = &known->first;
    ++known->second.users;
    return {*this, known->second};
}

void store_buffers::leave_peer(store_buffer_peer& peer) noexcept
{
    if (peer.name != nullptr && --peer.users == 0)
        peers_.erase(peers_.find(*peer.name));
}

store_buffer store_buffers::from_pool(std::size_t size, store_buffer_peer& peer) noexcept
{
    // As much as the pool gives for that: it counts.
    size = rounded(size);
    if (size > most_ || used_ > most_ - size || peer.used + size > most_of(peer))
        return {};
    lease l;
    try {
        // With no patience nobody waits, and nobody is passed who does.
        auto asking = pool_.acquire(size, std::chrono::nanoseconds::zero());
        if (asking.await_ready())
            l = asking.await_resume();
    } catch (const std::bad_alloc&) { // for a slab: as if there were no memory of the budget
    }
    // Where the budget is spent the pool may have a larger one alone, of which this would use a part.
    if (!l || l.size() > size)
        return {};
    used_ += size;
    peer.used += size;
    ++peer.users;
    ++out_;
    count_used();
    const auto bytes = l.bytes();
    return {*this, peer, std::move(l), bytes};
}

// Beyond half of what may be in use there are more small ones, so that more connections go on.
store_buffer store_buffers::find(std::size_t size, store_buffer_peer& peer) noexcept
{
    size = std::min(size, largest);
    store_buffer found;
    if (!has_share(peer, size))
        return found;
    if (size <= least || (used_ + size <= most_ / 2 && peer.used + size <= most_of(peer) / 2))
        found = from_pool(size, peer);
    if (!found && size > least)
        found = from_pool(least, peer);
    if (!found && !std::exchange(reserve_is_out_, true)) {
        ++peer.users;
        ++out_;
        found = store_buffer(*this, peer, lease(), {reserve_.get(), least});
    }
    return found;
}

store_buffer store_buffers::take(std::size_t size, store_buffer_waiter& w,
                                 const store_buffer_share& who) noexcept
{
    store_buffer_peer& peer = peer_of(who);
    if (line_.empty()) {
        if (store_buffer found = find(size, peer))
            return found;
    }
    w.size_ = size;
    w.since_ = shard_.now();
    peer.line.push_back(w);
    if (!peer.is_linked())
        line_.push_back(peer);
    counts_->waits.store(counts_->waits.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    look_later();
    // Those before it may be waiting for their shares alone.
    if (who.peer_ != nullptr && has_share(peer, size) && !deferred::is_linked())
        shard_.post(*this);
    return {};
}

store_buffer store_buffers::try_take(std::size_t size, const store_buffer_share& who) noexcept
{
    return line_.empty() ? from_pool(size, peer_of(who)) : store_buffer();
}

bool store_buffers::are_wanted(duration patience, const store_buffer_share& who) noexcept
{
    const time_point since = shard_.now() - patience;
    for (store_buffer_peer* p = line_.front(); p != nullptr; p = line_.next(*p)) {
        const store_buffer_waiter* const w = p->line.front();
        if (w != nullptr && w->since_ <= since && (p == &peer_of(who) || has_share(*p, w->size_)))
            return true;
    }
    return false;
}

void store_buffers::returned(std::size_t size, store_buffer_peer& peer) noexcept
{
    if (size == 0)
        reserve_is_out_ = false;
    used_ -= size;
    peer.used -= size;
    leave_peer(peer);
    count_used();
    if (--out_ == 0 && !counts_) {
        delete this;
        return;
    }
    if (!line_.empty() && !deferred::is_linked())
        shard_.post(*this);
}

void store_buffers::serve() noexcept
{
    store_buffer_peer* next = nullptr;
    for (store_buffer_peer* p = line_.front(); p != nullptr; p = next) {
        next = line_.next(*p);
        store_buffer_waiter* const w = p->line.front();
        if (w == nullptr) { // it has left
            p->unlink();
            continue;
        }
        if (!has_share(*p, w->size_)) // it waits for what it has itself, and others don't wait for it
            continue;
        store_buffer found = find(w->size_, *p);
        if (!found)
            break;
        w->unlink();
        line_.push_back(*p); // others have their turn
        w->give(std::move(found));
        next = line_.front();
    }
    if (!line_.empty())
        look_later();
}

void store_buffers::look_later() noexcept
{
    if (!timer::is_armed())
        shard_.timers().arm(*this, shard_.now() + look_again);
}

} // namespace verbena::steering
