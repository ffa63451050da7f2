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
    for (const auto& [verbs, pd] : devices_)
        ::ibv_dealloc_pd(pd);
}

void whole_domain::hold(ibv_mr* region, verbs::memory_owner keep) noexcept
{
    try {
        log(log_level::error, "rdma",
            "the kernel does not take away a region that a peer was given: its memory stays in use",
            {{"bytes", region->length}, {"device", ::ibv_get_device_name(region->context->device)}});
        const std::scoped_lock held(memory_lock_);
        held_.push_back({region, std::move(keep)});
    } catch (const std::bad_alloc&) { // without memory for a note of it
    }
}

result<ibv_pd*> whole_domain::device_domain(ibv_context* verbs) noexcept
{
    const std::scoped_lock held(devices_lock_);
    for (const auto& [on, pd] : devices_) {
        if (on == verbs)
            return pd;
    }
    try {
        devices_.reserve(devices_.size() + 1);
    } catch (const std::bad_alloc&) {
        return error(std::errc::not_enough_memory, "a protection domain");
    }
    ibv_pd* const made = ::ibv_alloc_pd(verbs);
    if (made == nullptr)
        return error::from_errno(errno, "ibv_alloc_pd");
    devices_.emplace_back(verbs, made);
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
    for (const auto& e : errands) {
        auto work = [this, &regions = e->left_behind()] {
            for (auto& each : regions)
                if (each.region != nullptr && ::ibv_dereg_mr(each.region) != 0)
                    hold(each.region, std::move(each.keep));
        };
        co_await e->pool().run(std::move(work));
    }
    if (own != nullptr)
        co_await own->revoke(ours);
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
