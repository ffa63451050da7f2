// SPDX-License-Identifier: Apache-2.0
#include "quiescence.hpp"

#include <new>
#include <stdexcept>
#include <thread>

namespace verbena::steering {
namespace {

void raise(std::atomic<std::uint64_t>& number, std::uint64_t to) noexcept
{
    std::uint64_t now = number.load(std::memory_order_relaxed);
    while (now < to && !number.compare_exchange_weak(now, to, std::memory_order_acq_rel)) {
    }
}

} // namespace

lane::lane(quiescence& all, reactor& shard)
    : all_(all),
      shard_(shard),
      visit_(new letter(*this, &quiescence::visited)),
      wake_(new letter(*this, &quiescence::look_again))
{
}

// --- letter ---

void lane::letter::send(reactor& shard) noexcept
{
    {
        const std::scoped_lock held(lock_);
        if (under_way_)
            return;
        under_way_ = true;
    }
    shard.post_remote(*this);
}

void lane::letter::deliver() noexcept
{
    std::unique_lock held(lock_);
    under_way_ = false;
    lane* const l = to_;
    if (l == nullptr) {
        held.unlock();
        delete this;
        return;
    }
    opened_ = true;
    held.unlock();
    (l->all_.*errand_)(*l);
    held.lock();
    opened_ = false;
}

void lane::letter::give_up() noexcept
{
    std::unique_lock held(lock_);
    to_ = nullptr;
    while (opened_) { // on its shard, for a moment
        held.unlock();
        std::this_thread::yield();
        held.lock();
    }
    const bool comes = under_way_;
    held.unlock();
    if (!comes)
        delete this;
}

// --- quiescence ---

quiescence::~quiescence()
{
    for (std::size_t i = 0; i < count(); ++i) {
        lanes_[i]->visit_.reset();
        lanes_[i]->wake_.reset();
    }
    for (std::size_t i = 0; i < count(); ++i) {
        while (passing* p = lanes_[i]->passing_.pop_front())
            p->passed();
    }
    while (passing* p = orphans_.pop_front())
        p->passed();
}

lane* quiescence::add(reactor& shard)
{
    const std::size_t n = count();
    if (n == max_lanes)
        return nullptr;
    lanes_[n] = std::make_unique<lane>(*this, shard);
    lanes_[n]->passed_.store(epoch_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    count_.store(n + 1, std::memory_order_release);
    return lanes_[n].get();
}

// A shard that comes where one has gone may have its address, and takes over what is left of it: nothing.
lane& quiescence::enter(reactor& shard, lane_user& user, magazine& slots)
{
    const std::scoped_lock held(lock_);
    lane* l = nullptr;
    for (std::size_t i = 0, n = count(); i < n && l == nullptr; ++i) {
        if (&lanes_[i]->shard_ == &shard && lanes_[i]->user_ == nullptr)
            l = lanes_[i].get();
    }
    if (l == nullptr)
        l = add(shard);
    if (l == nullptr)
        throw std::length_error("a device has 1024 contexts at most");
    l->user_ = &user;
    l->slots_ = &slots;
    return *l;
}

void quiescence::leave(lane& l) noexcept
{
    l.slots_ = nullptr;
    {
        const std::scoped_lock held(lock_);
        l.user_ = nullptr; // nothing is sent to it from now on, unless a task of its shard waits
        l.waits_ = !l.passing_.empty();
        raise(l.passed_, epoch_.load(std::memory_order_seq_cst));
    }
    wake_all();
    look_at_orphans();
}

lane* quiescence::here() noexcept
{
    const reactor* const shard = reactor::current();
    lane* found = nullptr;
    if (shard == nullptr) { // set up or taken down, as when a program ends
        const std::scoped_lock held(lock_);
        for (std::size_t i = 0, n = count(); i < n; ++i) {
            if (lanes_[i]->user_ != nullptr && lanes_[i]->shard_.on_its_thread())
                return lanes_[i].get();
        }
        return nullptr;
    }
    for (std::size_t i = 0, n = count(); i < n; ++i) {
        if (&lanes_[i]->shard_ != shard)
            continue;
        found = lanes_[i].get();
        if (found->slots_ != nullptr)
            break;
    }
    return found;
}

lane* quiescence::make_here() noexcept
{
    lane* const known = here();
    if (known != nullptr || reactor::current() == nullptr)
        return known;
    const std::scoped_lock held(lock_);
    try {
        return add(*reactor::current()); // which no other thread does for this shard
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

void quiescence::settle_here() noexcept
{
    const lane* const own = here();
    for (std::size_t i = 0, n = own != nullptr ? count() : 0; i < n; ++i) {
        const lane& l = *lanes_[i];
        if (l.is_beside(own) && l.debts_.load(std::memory_order_relaxed) != 0)
            l.user_->settle_debts();
    }
}

std::uint64_t quiescence::begin(const lane* own) noexcept
{
    bool quiet = true;
    for (std::size_t i = 0, n = count(); i < n && quiet; ++i)
        quiet = lanes_[i]->is_beside(own) || lanes_[i]->is_quiet();
    if (quiet)
        return 0;
    const std::scoped_lock held(lock_);
    const std::uint64_t epoch = epoch_.fetch_add(1, std::memory_order_seq_cst) + 1;
    for (std::size_t i = 0, n = count(); i < n; ++i) {
        lane& l = *lanes_[i];
        // Its own shard, too, may have to look at what others took away before.
        if (l.user_ == nullptr || l.is_quiet())
            raise(l.passed_, epoch);
        else
            l.visit_->send(l.shard_);
    }
    return epoch;
}

bool quiescence::is_over(std::uint64_t epoch) const noexcept
{
    for (std::size_t i = 0, n = count(); i < n; ++i) {
        if (lanes_[i]->passed_.load(std::memory_order_acquire) < epoch)
            return false;
    }
    return true;
}

void quiescence::visited(lane& l)
{
    const std::uint64_t epoch = epoch_.load(std::memory_order_seq_cst);
    if (l.user_ != nullptr) // its context may have gone since
        l.user_->settle_debts();
    raise(l.passed_, epoch);
    wake_all();
    look_at_orphans();
}

void quiescence::wake_all() noexcept
{
    const std::scoped_lock held(lock_);
    for (std::size_t i = 0, n = count(); i < n; ++i) {
        lane& l = *lanes_[i];
        if (l.waits_)
            l.wake_->send(l.shard_);
    }
}

void quiescence::look_again(lane& l)
{
    // Whoever hears of it may take others out of the list: the search begins anew.
    for (passing* p = l.passing_.front(); p != nullptr;) {
        if (!is_over(p->epoch_)) {
            p = l.passing_.next(*p);
            continue;
        }
        p->unlink();
        p->passed();
        p = l.passing_.front();
    }
    const std::scoped_lock held(lock_);
    l.waits_ = !l.passing_.empty();
}

void quiescence::wait(lane& at, std::uint64_t epoch, passing& p) noexcept
{
    p.epoch_ = epoch;
    at.passing_.push_back(p);
    const std::scoped_lock held(lock_);
    at.waits_ = true;
    if (is_over(epoch)) // it may have been before that was seen
        at.wake_->send(at.shard_);
}

void quiescence::wait_anywhere(std::uint64_t epoch, passing& p) noexcept
{
    {
        const std::scoped_lock held(lock_);
        p.epoch_ = epoch;
        orphans_.push_back(p);
        has_orphans_.store(true, std::memory_order_relaxed);
    }
    look_at_orphans(); // it may have been over before that was seen
}

void quiescence::look_at_orphans() noexcept
{
    if (!has_orphans_.load(std::memory_order_relaxed))
        return;
    intrusive_list<passing> over;
    {
        const std::scoped_lock held(lock_);
        for (passing* p = orphans_.front(); p != nullptr;) {
            passing* const next = orphans_.next(*p);
            if (is_over(p->epoch_))
                over.push_back(*p);
            p = next;
        }
        has_orphans_.store(!orphans_.empty(), std::memory_order_relaxed);
    }
    while (passing* const p = over.pop_front())
        p->passed();
}

} // namespace verbena::steering
