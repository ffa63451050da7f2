// SPDX-License-Identifier: Apache-2.0
// What a fabric does on one of its shards: it looks after the queue pairs there. Those of other shards may give them
// something to do; their handlers are called here alone.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/reactor/reactor.hpp>

namespace verbena::loop {

class fabric_impl;
class queue_pair;

class fabric_port final : private event_source {
public:
    fabric_port(fabric_impl& f, reactor& shard);
    ~fabric_port();

    fabric_impl& fabric() noexcept { return fabric_; }
    reactor& shard() noexcept { return shard_; }
    /// Has `q`, which is of this shard, looked after in the next poll. In the turn of any shard.
    void ready(queue_pair& q) noexcept;

private:
    bool poll() noexcept override;
    bool pending() const noexcept override { return !ready_.empty(); }
    bool try_arm() noexcept override { return ready_.empty(); }

    fabric_impl& fabric_;
    reactor& shard_;
    // A queue pair is in one list of its own at most, and leaves it when it is destroyed.
    intrusive_list<queue_pair> ready_;
};

} // namespace verbena::loop
