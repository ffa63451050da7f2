// SPDX-License-Identifier: Apache-2.0
// What connects devices: names, the list of queue pairs with something to do, luck, and the trace.
#pragma once

#include "../common/random.hpp"

#include <verbena/core/reactor.hpp>
#include <verbena/transports/loop.hpp>

#include <map>
#include <string>

namespace verbena::loop {

class listener;
class queue_pair;

class fabric_impl final : public fabric, private event_source {
public:
    fabric_impl(reactor& shard, const fabric_options& o);
    ~fabric_impl() override;

    std::unique_ptr<loop::context> make_context(const options& o) override;
    void set_conditions(const loop::conditions& c) noexcept override;
    const loop::stats& counters() const noexcept override { return stats_; }
    std::uint64_t trace() const noexcept override { return trace_; }

    reactor& shard() noexcept { return shard_; }
    loop::stats& stats() noexcept { return stats_; }
    const loop::conditions& conditions() const noexcept { return conditions_; }
    std::map<std::string, listener*, std::less<>>& listeners() noexcept { return listeners_; }

    /// Has `q` looked after in the next poll.
    void ready(queue_pair& q) noexcept;

    /// False: nothing is injected and nothing takes time, so nobody need ask for more.
    bool is_calm() const noexcept { return calm_; }
    /// True if `f` strikes; counted.
    bool strikes(fault f) noexcept;
    /// How long a message takes, drops included. Negative: it never arrives.
    duration path_delay() noexcept;
    /// How much later than it happened a completion shows.
    duration completion_delay() noexcept;

    enum class happening : std::uint8_t { completion, connected, ended, refused };
    void note(happening what, std::uint64_t where, std::uint64_t kind, std::uint64_t detail) noexcept;
    std::uint64_t next_seed() noexcept { return next_random(random_) | 1; }

private:
    bool poll() noexcept override;
    bool pending() const noexcept override { return !ready_.empty(); }
    bool try_arm() noexcept override { return ready_.empty(); }
    duration up_to(duration limit) noexcept;

    reactor& shard_;
    loop::conditions conditions_;
    bool calm_ = true;
    std::uint64_t random_;
    std::uint64_t trace_ = 0;
    const time_point begun_;
    loop::stats stats_;
    // A queue pair is in one list of its own at most, and leaves it when it is destroyed.
    mutable intrusive_list<queue_pair> ready_;
    std::map<std::string, listener*, std::less<>> listeners_;
};

} // namespace verbena::loop
