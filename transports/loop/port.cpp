// SPDX-License-Identifier: Apache-2.0
#include "port.hpp"

#include "queue_pair.hpp"

#include <cassert>

namespace verbena::loop {

fabric_port::fabric_port(fabric_impl& f, reactor& shard) : fabric_(f), shard_(shard) { shard.add(*this); }

fabric_port::~fabric_port() { assert(ready_.empty() && "a queue pair outlives its fabric"); }

void fabric_port::ready(queue_pair& q) noexcept
{
    if (!q.list_hook::is_linked())
        ready_.push_back(q);
}

// What becomes ready while the others run waits for the next poll: two that answer each other from
// their handlers must not keep the shard here for ever.
bool fabric_port::poll() noexcept
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

} // namespace verbena::loop
