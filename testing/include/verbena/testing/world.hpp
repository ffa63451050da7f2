// SPDX-License-Identifier: Apache-2.0
// testing::world: hosts of a service and its clients in one process, on one virtual clock and one seed. For tests of services.
// docs/howto/test.md.
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/transports/loop.hpp>

#include <cstdint>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena::testing {

/// What a world is made with.
struct world_options {
    std::uint64_t seed = 1;                     ///< of the order of tasks, of faults and of delays; not 0
    loop::conditions conditions;                ///< of the fabric at the start
    loop::options device;                       ///< what every host's device can do; its name is the host's
    std::size_t memory = std::size_t(64) << 20; ///< bytes of each host's buffers
    /// Of the clock: a run that takes longer makes no progress. Virtual hours pass in no time.
    duration limit = std::chrono::hours(24);
};

/// What run() throws when options.limit is over.
class no_progress : public std::runtime_error {
public:
    no_progress() : std::runtime_error("the world's time is over and the work is not done") {}
};

/// A host: a device that others reach by its name ("loop://NAME"), and buffers.
struct host {
    /// For world::add_host().
    host(std::string n, std::unique_ptr<loop::context> d, std::size_t memory_limit, reactor& shard)
        : name(std::move(n)), device(std::move(d)), memory(memory_limit), buffers(memory, &shard)
    {
    }
    const std::string name;                ///< of the device
    std::unique_ptr<loop::context> device; ///< what it connects and listens with
    memory_budget memory;                  ///< what its buffers count against
    buffer_pool buffers;                   ///< of its device's requests
};

/// Made, used and destroyed on one thread. The same seed and the same program give the same run, to the last completion
/// (loop::fabric::trace()).
class world {
public:
    /// Without hosts; the clock stands at virtual_clock's start.
    explicit world(const world_options& o = {}) : options_(o), shard_(make_shard(clock_, o.seed))
    {
        loop::fabric_options f;
        f.seed = o.seed;
        f.conditions = o.conditions;
        fabric_ = loop::make_fabric(*shard_, f);
    }
    world(const world&) = delete;

    /// The one shard on which all hosts run.
    reactor& shard() noexcept { return *shard_; }
    /// The clock of the world: time goes on only when nothing is ready.
    virtual_clock& clock() noexcept { return clock_; }
    /// What connects the hosts: where faults are set, and what happened is counted.
    loop::fabric& fabric() noexcept { return *fabric_; }
    /// Lives as long as the world. `name` is no other host's.
    host& add_host(const std::string& name)
    {
        loop::options device = options_.device;
        device.name = name;
        return hosts_.emplace_back(name, fabric_->make_context(device), options_.memory, *shard_);
    }
    /// Runs `t` to its end and yields its value. Errors: what leaves the task; incomplete_run: nothing can happen any more;
    /// no_progress.
    template<class T>
    T run(task<T> t)
    {
        const watchdog limit(*this);
        late_ = false;
        try {
            return run_until_complete(*shard_, std::move(t));
        } catch (const incomplete_run&) {
            if (late_)
                throw no_progress();
            throw;
        }
    }
    /// What is not given back, for people, or nothing: buffers that leases hold, grants that stand.
    std::string left_over() const
    {
        std::string text;
        for (const host& h : hosts_) {
            if (h.buffers.outstanding() != 0)
                text += h.name + ": " + std::to_string(h.buffers.outstanding()) + " buffers; ";
            if (h.device->grants() != 0)
                text += h.name + ": " + std::to_string(h.device->grants()) + " grants; ";
        }
        return text;
    }

private:
    class watchdog final : private timer {
    public:
        explicit watchdog(world& w) : world_(w)
        {
            w.shard_->timers().arm(*this, w.clock_.now() + w.options_.limit);
        }

    private:
        void on_timer() noexcept override
        {
            world_.late_ = true;
            world_.shard_->stop();
        }
        world& world_;
    };
    static std::unique_ptr<reactor> make_shard(virtual_clock& clock, std::uint64_t seed)
    {
        reactor_options o;
        o.clock = &clock;
        o.seed = seed;
        return reactor::create(o).value();
    }

    const world_options options_;
    virtual_clock clock_;
    std::unique_ptr<reactor> shard_;
    std::unique_ptr<loop::fabric> fabric_;
    std::deque<host> hosts_;
    bool late_ = false;
};

} // namespace verbena::testing

#pragma GCC visibility pop
