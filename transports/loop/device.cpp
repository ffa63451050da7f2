// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include "context.hpp"
#include "queue_pair.hpp"

#include "../common/shared_receives.hpp"

#include <verbena/core/task/event.hpp>

#include <algorithm>
#include <cassert>
#include <map>

namespace verbena::loop {

options::options()
{
    profile.provider = "loop";
    profile.remote_invalidate = true;
    profile.grant_per_queue_pair = true;
    profile.receive_not_ready_retry = true;
    profile.completion_means_delivered = true;
    profile.checks_read_rights = true;
    profile.checks_grant_bounds = true;
    profile.bounds_peer_reads = true;
    profile.write_with_immediate = true;
    profile.send_with_immediate = true;
    profile.renewable_grants = true;
    profile.renews_at_once = true;
    profile.shared_receives = true;
    profile.domains_across_shards = true;
    profile.receives_on_demand = true;
    profile.local_invalidate = profile.grants_stores = true;
    profile.max_inline = max_inline;
    profile.max_send_segments = max_segments;
    profile.max_outstanding_reads = 128;
    profile.max_private_data = 252;
}

// --- domain ---

class domain::registered final : public verbs::region {
public:
    registered(domain& d, std::span<std::byte> m) : domain_(d), memory_(m), key_(d.device_.next_local_key())
    {
        d.regions_.push_back(this);
    }
    ~registered() override { std::erase(domain_.regions_, this); }
    std::uint32_t local_key() const noexcept override { return key_; }
    bool covers(std::span<const std::byte> part) const noexcept
    {
        return part.data() >= memory_.data() && part.size() <= memory_.size() &&
               static_cast<std::size_t>(part.data() - memory_.data()) <= memory_.size() - part.size();
    }

private:
    domain& domain_;
    std::span<std::byte> memory_;
    std::uint32_t key_;
};

// What one pool has, each piece a region.
class domain::pool_memory final : public buffer_pool_observer {
public:
    pool_memory(domain& d, const buffer_pool& p) noexcept : domain_(d), pool_(&p) {}
    /// Another one may stand where a pool has gone.
    bool is_of(const buffer_pool& p) const noexcept { return is_linked() && pool_ == &p; }
    bool on_added(std::span<std::byte> memory) noexcept override
    {
        pieces_.emplace(memory.data(), std::make_unique<registered>(domain_, memory));
        return true;
    }
    void on_removed(std::span<std::byte> memory) noexcept override { pieces_.erase(memory.data()); }

private:
    domain& domain_;
    const buffer_pool* const pool_;
    std::map<std::byte*, std::unique_ptr<registered>> pieces_;
};

domain::domain(device_impl& d) noexcept : device_(d) {}
domain::~domain() = default;

task<result<std::unique_ptr<verbs::region>>> domain::register_memory(std::span<std::byte> memory)
{
    co_return std::unique_ptr<verbs::region>(std::make_unique<registered>(*this, memory));
}

task<result<void>> domain::add_pool(buffer_pool& pool)
{
    if (!device_.query().needs_local_keys ||
        std::ranges::any_of(pools_, [&pool](const auto& known) { return known->is_of(pool); }))
        co_return result<void>();
    auto memory = std::make_unique<pool_memory>(*this, pool);
    if (!pool.observe(*memory))
        co_return error(std::errc::not_enough_memory, "register a buffer pool");
    pools_.push_back(std::move(memory));
    co_return result<void>();
}

bool domain::is_registered(std::span<const std::byte> memory) const noexcept
{
    return !device_.query().needs_local_keys || memory.empty() ||
           std::ranges::any_of(regions_, [memory](const registered* r) { return r->covers(memory); });
}

bool domain::owns(const verbs::segment& s) const noexcept
{
    if (!device_.query().needs_local_keys || s.length == 0)
        return true;
    return std::ranges::any_of(regions_, [&s](const registered* r) {
        return (s.local_key == 0 || r->local_key() == s.local_key) && r->covers({s.address, s.length});
    });
}

task<result<void>> domain::make_grants(std::span<verbs::grant_request> batch)
{
    for (const auto& r : batch) {
        if (r.memory.size() > 0xffffffff)
            co_return error(std::errc::invalid_argument, "a grant covers less than 4 GiB", r.memory.size());
        if (r.scope != nullptr && !device_.query().grant_per_queue_pair)
            co_return error(std::errc::operation_not_supported,
                            "the provider can't limit a grant to one queue pair");
        if (r.own_region && (r.scope != nullptr || r.renewable))
            co_return error(std::errc::invalid_argument,
                            "a grant with a region of its own is for all queue pairs, and not renewable");
        if (!r.own_region && !is_registered(r.memory))
            co_return error(std::errc::invalid_argument, "a grant lies in registered memory",
                            r.memory.size());
        if (r.store != nullptr && !device_.query().grants_stores)
            co_return error(std::errc::operation_not_supported,
                            "the provider grants memory, and no bytes of a store");
        if (r.store != nullptr && r.store_offset > ~std::uint64_t(0) - r.store_length)
            co_return error(std::errc::invalid_argument, "a grant of a store beyond the last offset",
                            r.store_offset);
        if (r.renewable && !device_.query().renewable_grants)
            co_return error(std::errc::operation_not_supported, "the provider can't renew a grant");
    }
    const auto terms_of = [this](verbs::grant_request& r) {
        steering::tag_terms terms{*this, r};
        terms.base = r.store != nullptr ? r.store_offset : device_.next_offset(r.memory.size());
        terms.scope = r.scope != nullptr ? static_cast<queue_pair*>(r.scope)->scope() : 0;
        return terms;
    };
    co_return device_.table().make_all(batch, nullptr, terms_of);
}

namespace {

// Goes on when it is over, whatever stops.
class certain_delay final : public timer {
public:
    void on_timer() noexcept override { over.set(); }
    event over;
};

} // namespace

task<void> domain::revoke(std::span<verbs::grant> batch)
{
    if (const duration late = device_.fabric().revocation_delay(); late != duration::zero()) {
        reactor& shard = *reactor::current();
        certain_delay delay;
        shard.timers().arm(delay, shard.clock().now() + late);
        co_await delay.over.wait_shielded();
    }
    bool has_stores = false;
    for (const auto& g : batch) {
        if (auto* const r = static_cast<steering::record*>(g.slot()); r != nullptr) {
            r->retire();
            has_stores |= r->store() != nullptr;
        }
    }
    if (has_stores) {
        task<void> waiting = steering::until_unused(batch);
        co_await waiting;
    }
    for (auto& g : batch) {
        if (auto* const r = static_cast<steering::record*>(g.release()); r != nullptr)
            device_.table().free(*r, nullptr);
    }
}

bool domain::renews_at_once() const noexcept { return device_.query().renews_at_once; }

task<result<std::unique_ptr<verbs::shared_receive_queue>>>
domain::make_shared_receive_queue(const verbs::shared_receive_queue_options& o)
{
    if (!device_.query().shared_receives)
        co_return error(std::errc::operation_not_supported, "the provider has no shared receive queues");
    if (o.supply != nullptr && !device_.query().receives_on_demand)
        co_return error(std::errc::operation_not_supported, "the provider has no receives on demand");
    co_return std::unique_ptr<verbs::shared_receive_queue>(std::make_unique<shared_receives>(o));
}

// --- device ---

device_impl::device_impl(fabric_impl& f, const loop::options& o)
    : fabric_(f), options_(o), table_(shards_, f.next_seed())
{
    verbs::capabilities& p = options_.profile;
    p.max_send_segments = std::clamp(p.max_send_segments, 1u, loop::options::max_segments);
    p.max_read_segments = std::clamp(p.max_read_segments, 1u, p.max_send_segments);
    p.max_outstanding_reads = std::min(p.max_outstanding_reads, loop::options::max_reads);
    p.max_inline = std::min(p.max_inline, loop::options::max_inline);
}

device_impl::~device_impl()
{
    assert(contexts_.empty() && "a context outlives its device");
    assert(table_.size() == 0 && "a grant outlives its device");
}

result<std::unique_ptr<verbs::protection_domain>> device_impl::make_domain(std::string_view)
{
    return std::unique_ptr<verbs::protection_domain>(std::make_unique<domain>(*this));
}

std::unique_ptr<loop::context> device_impl::make_context(reactor& shard)
{
    return std::make_unique<context_impl>(*this, shard);
}

std::uint64_t device_impl::next_offset(std::size_t size) noexcept
{
    // A gap behind each: what runs over the end of one grant does not land in the next.
    const std::uint64_t offset = next_offset_;
    next_offset_ += (size + 0x1ffff) & ~std::uint64_t(0xffff);
    return offset;
}

void device_impl::remove(time_point now) noexcept
{
    if (!std::exchange(present_, false))
        return;
    const error gone(std::errc::no_such_device, "the device was removed");
    for (context_impl* c : contexts_)
        c->device_gone(now, gone);
}

void device_impl::lose(reactor& shard, duration until) noexcept
{
    remove(shard.now());
    shard.timers().arm(*this, shard.clock().now() + until);
}

void device_impl::return_device() noexcept
{
    timer::cancel();
    present_ = true;
}

} // namespace verbena::loop
