// SPDX-License-Identifier: Apache-2.0
// What connects devices: names, luck, the trace, and a port on each shard.
#pragma once

#include "../common/random.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/transports/loop.hpp>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace verbena::loop {

class fabric_port;
class listener;

class fabric_impl final : public fabric {
public:
    fabric_impl(reactor& shard, const fabric_options& o);
    ~fabric_impl() override;

    std::unique_ptr<loop::context> make_context(const options& o) override;
    std::unique_ptr<loop::device> make_device(const options& o) override;
    void set_conditions(const loop::conditions& c) noexcept override;
    const loop::stats& counters() const noexcept override { return stats_; }
    std::uint64_t trace() const noexcept override { return trace_; }

    /// What the fabric does on `shard`, from the first time on that somebody asks.
    fabric_port& port_of(reactor& shard);
    clock_source& clock() noexcept { return first_shard_.clock(); }
    loop::stats& stats() noexcept { return stats_; }
    const loop::conditions& conditions() const noexcept { return conditions_; }
    std::map<std::string, listener*, std::less<>>& listeners() noexcept { return listeners_; }

    /// False: nothing is injected and nothing takes time, so nobody need ask for more.
    bool is_calm() const noexcept { return calm_; }
    /// True if `f` strikes; counted.
    bool strikes(fault f) noexcept;
    /// How long a message takes, drops included. Negative: it never arrives.
    duration path_delay() noexcept;
    /// How much later than it happened a completion shows.
    duration completion_delay() noexcept;
    /// How much later than it was asked for a revocation is over.
    duration revocation_delay() noexcept;

    enum class happening : std::uint8_t { completion, connected, ended, refused };
    /// By a shard for which it is `now`.
    void note(time_point now, happening what, std::uint64_t where, std::uint64_t kind,
              std::uint64_t detail) noexcept;
    std::uint64_t next_seed() noexcept { return next_random(random_) | 1; }

private:
    duration up_to(duration limit) noexcept;

    reactor& first_shard_;
    loop::conditions conditions_;
    bool calm_ = true;
    std::uint64_t random_;
    std::uint64_t trace_ = 0;
    const time_point begun_;
    loop::stats stats_;
    std::vector<std::unique_ptr<fabric_port>> ports_;
    std::map<std::string, listener*, std::less<>> listeners_;
};

} // namespace verbena::loop
