// SPDX-License-Identifier: Apache-2.0
#include "context.hpp"

#include "connect.hpp"
#include "queue_pair.hpp"

#include <cassert>

namespace verbena::loop {

context_impl::context_impl(device_impl& d, reactor& shard)
    : device_(d),
      port_(d.fabric().port_of(shard)),
      shard_(shard),
      fabric_(d.fabric()),
      profile_(d.query()),
      table_(d.table())
{
    d.add(*this);
}

context_impl::context_impl(std::unique_ptr<device_impl> d, reactor& shard) : context_impl(*d, shard)
{
    own_ = std::move(d);
}

context_impl::~context_impl()
{
    assert(queue_pairs_.empty() && "a queue pair outlives its context");
    device_.remove(*this);
}

void context_impl::device_gone(time_point now, const error& why) noexcept
{
    for (queue_pair* q : queue_pairs_)
        q->end_at(now, why);
    for (handshake* h : handshakes_)
        h->device_gone(why);
}

} // namespace verbena::loop
