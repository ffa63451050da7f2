// SPDX-License-Identifier: Apache-2.0
// simulated_shards: several shards in one thread, on one virtual clock and one seed. For tests and simulations.
//
// A runtime's shards take their turns when the kernel lets their threads. Here a seed draws who is next among the
// shards that have something to do, so that messages between them meet in all orders, and each order comes again with
// its seed. Time stands still while a shard has something to do, and then goes to the first timer of any.
// docs/internals/reactor.md.
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/core/task/yield.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

/// Made, used and destroyed on one thread, between turns. In a turn what belongs to another of the shards must not be
/// touched, as if that had a thread of its own (reactor::is_here()); between turns all of it may be. Not simulated:
/// threads of a blocking_pool, which the clock would jump over, sockets, and the ring.
class simulated_shards final : private detail::driver {
public:
    /// `clock` outlives it. `seed` draws who is next, and the order in which each shard serves its tasks.
    simulated_shards(virtual_clock& clock, std::uint64_t seed) noexcept;
    /// Calls stop(). What else uses the shards goes before it: devices, scopes, leases that no message has.
    ~simulated_shards();
    simulated_shards(const simulated_shards&) = delete;

    /// One more shard, with the next number from 0. It lives as long as this. `budget` outlives it. Ends the process
    /// with a message where io_uring is refused.
    shard& add(memory_budget& budget);
    std::size_t size() const noexcept { return shards_.size(); }
    /// The shard of that number, below size().
    shard& at(std::size_t index) noexcept { return shards_[index].view; }

    /// Runs `t` to its end on `where`, one of these, and yields its value; it begins in a turn of that shard. The
    /// others have their turns meanwhile. Errors: as run_until_complete(); the reactor that somebody else stops may
    /// be any of them.
    template<class T>
    T run(shard& where, task<T> t)
    {
        return detail::complete_by(*this, where.reactor(), in_a_turn(std::move(t)));
    }
    /// Turns those that have something to do until none has. The clock stands: what waits for a timer waits on.
    void settle();
    /// Asks the tasks of each shard (shard::tasks()) to stop, runs until they have ended and settles, so that buffers
    /// are home. No shard takes calls any more.
    void stop();
    /// Covers who had a turn, and when, so far. Two runs that did the same have the same.
    std::uint64_t trace() const noexcept { return trace_; }
    /// How many messages `from` has sent to `to`, another one, in its turns so far. Both are numbers of at().
    std::uint64_t messages(std::size_t from, std::size_t to) const noexcept
    {
        return shards_[to].messages_from[from];
    }

private:
    struct one {
        one(unsigned index, std::unique_ptr<verbena::reactor> made, memory_budget& budget)
            : reactor(std::move(made)),
              buffers(budget, reactor.get()),
              tasks(*reactor, nullptr, &unhandled, "shard"),
              view(index, *reactor, buffers, tasks)
        {
        }
        std::unique_ptr<verbena::reactor> reactor;
        buffer_pool buffers;
        exception_logger unhandled{"core"};
        scope tasks;
        shard view;
        std::vector<std::uint64_t> messages_from; // by the sender's number
        const remote_message* newest_known = nullptr;
    };
    class turn_of;
    class late_messages;

    template<class T>
    static task<T> in_a_turn(task<T> t)
    {
        co_await yield();
        co_return co_await t;
    }
    run_end run() override;
    /// `late`: so many of the newest messages come only after this turn.
    bool turn(one& next, std::size_t late);
    void look_at_inboxes() noexcept;
    void count_messages(const one& from) noexcept;
    /// Takes one out of candidates_.
    one& draw_candidate() noexcept;
    bool turn_one_that_has_work();
    bool turn_each();
    bool go_to_the_next_timer();
    bool take_stop() noexcept;
    std::uint64_t draw() noexcept;

    virtual_clock& clock_;
    std::uint64_t random_;
    std::uint64_t trace_ = 0;
    std::deque<one> shards_;
    std::vector<one*> candidates_;
};

} // namespace verbena

#pragma GCC visibility pop
