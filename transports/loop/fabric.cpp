// SPDX-License-Identifier: Apache-2.0
#include "fabric.hpp"

#include "context.hpp"
#include "queue_pair.hpp"

#include <algorithm>
#include <cassert>

namespace verbena::loop {

std::string_view to_string(fault f) noexcept
{
    switch (f) {
    case fault::drop: return "drop";
    case fault::delay: return "delay";
    case fault::reorder: return "reorder";
    case fault::receiver_not_ready: return "receiver_not_ready";
    case fault::flush: return "flush";
    case fault::disconnect: return "disconnect";
    case fault::device_removal: return "device_removal";
    case fault::count_: break;
    }
    return "unknown";
}

fabric_impl::fabric_impl(reactor& shard, const fabric_options& o)
    : shard_(shard), random_(o.seed != 0 ? o.seed : 1), begun_(shard.clock().now())
{
    set_conditions(o.conditions);
    shard.add(*this);
}

fabric_impl::~fabric_impl() { assert(listeners_.empty() && "a listener outlives its fabric"); }

std::unique_ptr<fabric> make_fabric(reactor& shard, const fabric_options& o)
{
    return std::make_unique<fabric_impl>(shard, o);
}

std::unique_ptr<loop::context> fabric_impl::make_context(const options& o)
{
    return std::make_unique<context_impl>(*this, o);
}

void fabric_impl::set_conditions(const loop::conditions& c) noexcept
{
    conditions_ = c;
    calm_ = c.latency == duration::zero() &&
            std::ranges::all_of(c.per_million, [](std::uint32_t n) { return n == 0; });
}

void fabric_impl::ready(queue_pair& q) noexcept
{
    if (!q.list_hook::is_linked())
        ready_.push_back(q);
}

// What becomes ready while the others run waits for the next poll: two that answer each other from
// their handlers must not keep the shard here for ever.
bool fabric_impl::poll() noexcept
{
    if (ready_.empty())
        return false;
    intrusive_list<queue_pair> batch;
    while (queue_pair* q = ready_.pop_front())
        batch.push_back(*q);
    while (queue_pair* q = batch.pop_front())
        q->progress();
    return true;
}

bool fabric_impl::strikes(fault f) noexcept
{
    const std::uint32_t chance = conditions_.per_million[std::size_t(f)];
    if (chance == 0 || next_random(random_) % 1'000'000 >= chance)
        return false;
    ++stats_.faults[std::size_t(f)];
    return true;
}

duration fabric_impl::up_to(duration limit) noexcept
{
    return limit <= duration::zero() ? duration::zero()
                                     : duration(static_cast<duration::rep>(next_random(random_) %
                                                                           std::uint64_t(limit.count() + 1)));
}

duration fabric_impl::path_delay() noexcept
{
    duration d = conditions_.latency;
    for (unsigned lost = 0; strikes(fault::drop); ++lost) {
        if (lost == conditions_.retries)
            return duration(-1);
        d += conditions_.retransmit_after;
    }
    if (strikes(fault::delay))
        d += up_to(conditions_.max_delay);
    return d;
}

duration fabric_impl::completion_delay() noexcept
{
    return strikes(fault::reorder) ? up_to(conditions_.max_delay) : duration::zero();
}

void fabric_impl::note(happening what, std::uint64_t where, std::uint64_t kind, std::uint64_t detail) noexcept
{
    const auto at = static_cast<std::uint64_t>((shard_.now() - begun_).count());
    for (const std::uint64_t word : {at, std::uint64_t(what) << 56 | where << 8 | kind, detail})
        trace_ = (trace_ ^ word) * 0x9e3779b97f4a7c15ULL + (trace_ >> 29);
}

} // namespace verbena::loop
