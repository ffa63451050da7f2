// SPDX-License-Identifier: Apache-2.0
#include "fabric.hpp"

#include "context.hpp"
#include "port.hpp"

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
    case fault::late_revocation: return "late_revocation";
    case fault::count_: break;
    }
    return "unknown";
}

fabric_impl::fabric_impl(reactor& shard, const fabric_options& o)
    : first_shard_(shard), random_(o.seed != 0 ? o.seed : 1), begun_(shard.clock().now())
{
    set_conditions(o.conditions);
    (void)port_of(shard);
}

fabric_impl::~fabric_impl() { assert(listeners_.empty() && "a listener outlives its fabric"); }

std::unique_ptr<fabric> make_fabric(reactor& shard, const fabric_options& o)
{
    return std::make_unique<fabric_impl>(shard, o);
}

std::unique_ptr<loop::context> fabric_impl::make_context(const options& o)
{
    return std::make_unique<context_impl>(std::make_unique<device_impl>(*this, o), first_shard_);
}

std::unique_ptr<loop::device> fabric_impl::make_device(const options& o)
{
    return std::make_unique<device_impl>(*this, o);
}

fabric_port& fabric_impl::port_of(reactor& shard)
{
    for (const auto& p : ports_) {
        if (&p->shard() == &shard)
            return *p;
    }
    assert(&shard.clock() == &clock() && "all shards of a loop fabric have one clock");
    assert(shard.on_its_thread() == first_shard_.on_its_thread() &&
           "all shards of a loop fabric are driven by one thread: see simulated_shards");
    return *ports_.emplace_back(std::make_unique<fabric_port>(*this, shard));
}

void fabric_impl::set_conditions(const loop::conditions& c) noexcept
{
    conditions_ = c;
    calm_ = c.latency == duration::zero() &&
            std::ranges::all_of(c.per_million, [](std::uint32_t n) { return n == 0; });
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

duration fabric_impl::revocation_delay() noexcept
{
    return strikes(fault::late_revocation) ? up_to(conditions_.max_delay) : duration::zero();
}

void fabric_impl::note(time_point now, happening what, std::uint64_t where, std::uint64_t kind,
                       std::uint64_t detail) noexcept
{
    const auto at = static_cast<std::uint64_t>((now - begun_).count());
    for (const std::uint64_t word : {at, std::uint64_t(what) << 56 | where << 8 | kind, detail})
        trace_ = (trace_ ^ word) * 0x9e3779b97f4a7c15ULL + (trace_ >> 29);
}

} // namespace verbena::loop
