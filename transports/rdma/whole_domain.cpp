// SPDX-License-Identifier: Apache-2.0
#include "whole_domain.hpp"

#include "context.hpp"

#include <verbena/core/log.hpp>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <utility>

namespace verbena::rdma {

whole_domain::~whole_domain()
{
    shares_.clear();
    for (const auto& each : held_)
        (void)::ibv_dereg_mr(each.region);
    assert(away_.load() == 0 && "a grant that another shard dropped outlives its domain: revoke it");
    for (const auto& each : devices_)
        ::ibv_dealloc_pd(each.pd);
}

void whole_domain::hold(ibv_mr* region, verbs::memory_owner keep) noexcept
{
    note_stuck(region->context, true);
    const std::size_t bytes = region->length;
    const char* const device = ::ibv_get_device_name(region->context->device);
    try {
        const std::scoped_lock held(memory_lock_);
        held_.reserve(held_.size() + 1);
        held_.push_back({region, std::move(keep)});
    } catch (const std::bad_alloc&) {
        // There is no memory for a note of the owner, which must not go before the region: so it never goes.
        alignas(verbs::memory_owner) std::byte for_ever[sizeof(verbs::memory_owner)];
        ::new (static_cast<void*>(for_ever)) verbs::memory_owner(std::move(keep));
    }
    try {
        log(log_level::error, "rdma",
            "the kernel does not take away a region that a peer was given: its memory stays in use",
            {{"bytes", bytes}, {"device", device}});
    } catch (const std::bad_alloc&) {
    }
}

void whole_domain::note_stuck(const ibv_context* verbs, bool is_one_more) noexcept
{
    const std::scoped_lock held(devices_lock_);
    const auto there = std::ranges::find(devices_, verbs, &device_part::on);
    assert(there != devices_.end());
    there->stuck += is_one_more ? 1 : std::size_t(-1);
}

bool whole_domain::is_stuck(const ibv_context* verbs) const noexcept
{
    const std::scoped_lock held(devices_lock_);
    const auto there = std::ranges::find(devices_, verbs, &device_part::on);
    return there != devices_.end() && there->stuck != 0;
}

bool whole_domain::settle(const ibv_context* verbs) noexcept
{
    while (is_stuck(verbs)) {
        memory_grant::left_behind one;
        {
            const std::scoped_lock held(memory_lock_);
            const auto found = std::ranges::find_if(
                held_, [verbs](const auto& each) { return each.region->context == verbs; });
            if (found == held_.end()) // somebody else asks for it
                return false;
            one = std::exchange(*found, std::move(held_.back()));
            held_.pop_back();
        }
        if (::ibv_dereg_mr(one.region) != 0) {
            hold(one.region, std::move(one.keep));
            note_stuck(verbs, false); // the one before
            return false;
        }
        note_stuck(verbs, false);
    }
    return true;
}

result<ibv_pd*> whole_domain::device_domain(ibv_context* verbs) noexcept
{
    const std::scoped_lock held(devices_lock_);
    for (const auto& each : devices_) {
        if (each.on == verbs)
            return each.pd;
    }
    try {
        devices_.reserve(devices_.size() + 1);
    } catch (const std::bad_alloc&) {
        return error(std::errc::not_enough_memory, "a protection domain");
    }
    ibv_pd* const made = ::ibv_alloc_pd(verbs);
    if (made == nullptr)
        return error::from_errno(errno, "ibv_alloc_pd");
    devices_.push_back({verbs, made});
    return made;
}

domain& whole_domain::at(context_impl& c)
{
    const std::scoped_lock held(lock_);
    for (const share& s : shares_) {
        if (s.context == &c)
            return *s.part;
    }
    auto made = std::make_unique<domain>(c, *this);
    const std::scoped_lock also(memory_lock_); // find_elsewhere() goes through them
    return *shares_.emplace_back(share{&c, std::move(made)}).part;
}

domain* whole_domain::known_here() const noexcept
{
    const reactor* const shard = reactor::current();
    const std::scoped_lock held(lock_);
    for (const share& s : shares_) {
        if (shard != nullptr ? &s.context->shard() == shard : s.context->shard().on_its_thread())
            return s.part.get();
    }
    return nullptr;
}

// What a task does with the domain it does by a context of its shard.
result<domain*> whole_domain::here()
{
    if (domain* const known = known_here(); known != nullptr)
        return known;
    context_impl* const c = host_.context_here();
    if (c == nullptr)
        return error(std::errc::no_such_device,
                     "this shard has no context of the RDMA devices: make one there");
    return &at(*c);
}

task<result<std::unique_ptr<verbs::region>>> whole_domain::register_memory(std::span<std::byte> memory)
{
    auto d = here();
    if (!d)
        co_return d.error();
    co_return co_await (*d)->register_memory(memory);
}

task<result<void>> whole_domain::add_pool(buffer_pool& pool)
{
    auto d = here();
    if (!d)
        co_return d.error();
    co_return co_await (*d)->add_pool(pool);
}

bool whole_domain::is_registered(std::span<const std::byte> memory) const noexcept
{
    if (memory.empty())
        return true;
    const domain* const own = known_here();
    if (own != nullptr && own->find(memory) != nullptr)
        return true;
    const std::scoped_lock held(memory_lock_);
    return std::ranges::any_of(
        shares_, [&](const share& s) { return s.part.get() != own && s.part->find(memory) != nullptr; });
}

task<result<void>> whole_domain::make_grants(std::span<verbs::grant_request> batch)
{
    auto d = here();
    if (!d)
        co_return d.error();
    co_return co_await (*d)->make_grants(batch);
}

task<result<std::unique_ptr<verbs::shared_receive_queue>>>
whole_domain::make_shared_receive_queue(const verbs::shared_receive_queue_options& o)
{
    auto d = here();
    if (!d)
        co_return d.error();
    co_return co_await (*d)->make_shared_receive_queue(o);
}

// To the shard that made some of the grants, and back with their regions: the kernel, which may take long to unpin what they had,
// holds no shard.
class whole_domain::errand final : public remote_message {
public:
    errand(domain& d, reactor& home, std::size_t& left, event& done) noexcept
        : domain_(d), home_(home), left_(left), done_(done)
    {
    }
    void add(memory_grant& g)
    {
        left_behind_.reserve(grants_.size() + 1);
        grants_.push_back(&g);
    }
    std::vector<memory_grant::left_behind>& left_behind() noexcept { return left_behind_; }
    blocking_pool& pool() const noexcept { return domain_.owner().pool(); }
    bool is_for(const domain& d) const noexcept { return &domain_ == &d; }
    void go() noexcept { domain_.owner().shard().post_remote(*this); }

private:
    void deliver() noexcept override
    {
        if (std::exchange(there_, true)) { // and back
            if (--left_ == 0)
                done_.set();
            return;
        }
        for (memory_grant* g : grants_)
            left_behind_.push_back(g->leave());
        home_.post_remote(*this);
    }
    domain& domain_;
    reactor& home_;
    std::size_t& left_;
    event& done_;
    std::vector<memory_grant*> grants_;
    std::vector<memory_grant::left_behind> left_behind_;
    bool there_ = false;
};

task<void> whole_domain::revoke(std::span<verbs::grant> batch)
{
    domain* const own = known_here();
    std::vector<verbs::grant> ours;
    std::vector<std::unique_ptr<errand>> errands;
    event done;
    std::size_t left = 0;
    const auto is_ours = [own](const verbs::grant& g) {
        return g.slot() == nullptr || &static_cast<memory_grant*>(g.slot())->of() == own;
    };
    if (std::ranges::all_of(batch, is_ours)) {
        if (own != nullptr)
            co_await own->revoke(batch);
        co_return;
    }
    const task_context& here = co_await current_context();
    reactor& home = *here.shard;
    ours.reserve(batch.size());
    for (const auto& g : batch) {
        if (is_ours(g))
            continue;
        auto& slot = static_cast<memory_grant&>(*g.slot());
        auto there = std::ranges::find_if(errands, [&slot](const auto& e) { return e->is_for(slot.of()); });
        if (there == errands.end())
            there = errands.insert(there, std::make_unique<errand>(slot.of(), home, left, done));
        (*there)->add(slot);
    }
    left = errands.size();
    std::vector<task<void>> taking;
    taking.reserve(errands.size());
    for (const auto& e : errands)
        taking.push_back(take_away(e->left_behind(), e->pool()));
    // Nothing throws from here on, so that none of them is anybody's twice.
    for (auto& g : batch) {
        if (is_ours(g))
            ours.push_back(std::move(g));
        else
            g.release();
    }
    for (const auto& e : errands)
        e->go();
    co_await done.wait_shielded();
    for (task<void>& each : taking)
        co_await each;
    if (own != nullptr)
        co_await own->revoke(ours);
}

// Goes from one shard of the domain to the next, ends the queue pairs of a device there and waits until they are over;
// then it goes home. It is one message, so that nothing is allocated on the way. Where it has been, make_pair() makes no
// new ones.
class whole_domain::pairs_end final : public remote_message, private pairs_watch {
public:
    pairs_end(const whole_domain& all, const ibv_context* on, reactor& home) noexcept
        : all_(all), on_(on), home_(home)
    {
    }
    void go() noexcept
    {
        at_ = all_.share_behind(at_);
        (at_ != nullptr ? at_->owner().shard() : home_).post_remote(*this);
    }
    event over;

private:
    void deliver() noexcept override
    {
        if (at_ == nullptr) {
            over.set();
            return;
        }
        at_->owner().end_pairs(all_, on_);
        at_->watch_pairs(*this);
        on_pair_over();
    }
    void on_pair_over() noexcept override
    {
        if (at_->owner().has_pairs(all_, on_))
            return;
        unlink();
        go();
    }
    const whole_domain& all_;
    const ibv_context* const on_;
    reactor& home_;
    domain* at_ = nullptr;
};

domain* whole_domain::share_behind(const domain* last) const noexcept
{
    const std::scoped_lock held(lock_);
    auto at = shares_.begin();
    if (last != nullptr)
        at = std::next(std::ranges::find(shares_, last, [](const share& s) { return s.part.get(); }));
    return at != shares_.end() ? at->part.get() : nullptr;
}

task<void> whole_domain::take_away(std::vector<memory_grant::left_behind>& regions, blocking_pool& pool)
{
    // Nothing here allocates memory: an exception would let go of memory that a peer still reaches.
    bool is_refused = false;
    auto ask = [this, &regions, &is_refused] {
        for (auto& each : regions) {
            if (each.region == nullptr)
                continue;
            if (ibv_context* const on = each.region->context; ::ibv_dereg_mr(each.region) == 0) {
                each.region = nullptr;
            } else {
                note_stuck(on, true);
                is_refused = true;
            }
        }
    };
    co_await pool.run(std::move(ask));
    if (!is_refused)
        co_return;
    const task_context& here = co_await current_context();
    reactor& home = *here.shard;
    for (const auto& each : regions) {
        if (each.region == nullptr)
            continue;
        pairs_end end(*this, each.region->context, home);
        end.go();
        co_await end.over.wait_shielded();
    }
    auto ask_again = [this, &regions] {
        for (auto& each : regions) {
            if (each.region == nullptr)
                continue;
            ibv_context* const on = each.region->context;
            if (::ibv_dereg_mr(each.region) != 0)
                hold(each.region, std::move(each.keep));
            each.region = nullptr;
            note_stuck(on, false); // by hold() it is once more
        }
    };
    co_await pool.run(std::move(ask_again));
}

ibv_mr* whole_domain::find_elsewhere(const domain& asking, std::span<const std::byte> memory,
                                     ibv_context* verbs) const noexcept
{
    const std::scoped_lock held(memory_lock_);
    for (const share& s : shares_) {
        if (s.part.get() == &asking)
            continue;
        const registered_memory* const r = s.part->find(memory);
        if (r == nullptr)
            continue;
        if (ibv_mr* const known = s.part->known_on(*r, verbs); known != nullptr)
            return known;
    }
    return nullptr;
}

ibv_mr* whole_domain::find_elsewhere(const domain& asking, const verbs::segment& s,
                                     ibv_context* verbs) const noexcept
{
    if (s.local_key == 0)
        return find_elsewhere(asking, std::span<const std::byte>(s.address, s.length), verbs);
    const std::scoped_lock held(memory_lock_);
    for (const share& other : shares_) {
        if (other.part.get() == &asking)
            continue;
        const registered_memory* const r = other.part->by_key(s.local_key);
        if (r == nullptr || !r->covers({s.address, s.length}))
            continue;
        if (ibv_mr* const known = other.part->known_on(*r, verbs); known != nullptr)
            return known;
    }
    return nullptr;
}

} // namespace verbena::rdma
