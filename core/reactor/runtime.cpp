// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/reactor/request_list.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/resource_metrics.hpp>
#include <verbena/core/task/left_behind.hpp>

#include "signals_blocked.hpp"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cassert>
#include <latch>
#include <optional>
#include <pthread.h>
#include <sched.h>
#include <string>
#include <thread>

namespace verbena {

namespace {

std::unique_ptr<detail::signals_blocked> block_signals()
{
    return std::make_unique<detail::signals_blocked>();
}

void pin_to_nth_cpu(unsigned index) noexcept
{
    cpu_set_t allowed;
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    unsigned nth = index % unsigned(std::max(CPU_COUNT(&allowed), 1));
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &allowed) || nth-- != 0)
            continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        ::pthread_setaffinity_np(::pthread_self(), sizeof one, &one);
        return;
    }
}

task<void> join(scope& s) { co_await s.join(); }

} // namespace

struct runtime::worker {
    // What the threads of one runtime wait for together.
    struct gate {
        explicit gate(std::ptrdiff_t shards) : joined(shards), drained(shards + 1), emptied(shards + 1) {}
        // The tasks of one shard may wait for another one's, so that each goes on until those of all have ended.
        std::latch joined;
        std::atomic<bool> all_joined{false};
        // Also for the thread that stops them: it touches their reactors, and ends the pool's threads, which do
        // so too when they hand a job back.
        std::barrier<> drained;
        std::barrier<> emptied;

        /// For a shard that there is not.
        void count_out()
        {
            joined.count_down();
            drained.arrive_and_drop();
            emptied.arrive_and_drop();
        }
    };

    void main(const runtime_options& options, unsigned index, memory_budget& budget, gate& end,
              std::promise<result<void>> started)
    {
        ::pthread_setname_np(::pthread_self(), ("shard " + std::to_string(index)).c_str());
        if (options.pin)
            pin_to_nth_cpu(index);
        reactor_options mine = options.reactor;
        mine.index = index;
        auto made = reactor::create(mine);
        if (!made) {
            started.set_value(made.error());
            end.count_out();
            return;
        }
        reactor& r = **made;
        {
            buffer_pool buffers(budget, &r);
            exception_logger unhandled("core");
            scope tasks(r, nullptr, &unhandled, "shard");
            view.emplace(index, r, buffers, tasks);
            started.set_value({});
            r.run();
            tasks.request_stop();
            try {
                run_until_complete(r, join(tasks));
            } catch (const incomplete_run&) {
                // Somebody stopped the reactor once more; they have ended all the same.
            }
            end_left_behind(r);
            end.joined.count_down();
            while (!end.all_joined.load(std::memory_order_acquire))
                r.run();
            // Buffers that came to other shards are on their way home now, if they are not there.
            end.drained.arrive_and_wait();
            r.turn();
            end.emptied.arrive_and_wait();
        }
        view.reset();
    }

    std::optional<shard> view;
    std::shared_ptr<gate> end;
    std::thread thread;
};

runtime::runtime(const runtime_options& options)
    : options_(options), budget_(options.memory_limit, options.shards, options.pages)
{
}

result<std::unique_ptr<runtime>> runtime::start(const runtime_options& options)
{
    if (options.shards == 0 || options.shards > max_shards)
        return error(std::errc::invalid_argument, "number of shards", options.shards);
    const auto blocked = block_signals();
    std::unique_ptr<runtime> made(new runtime(options));
    const auto end = std::make_shared<worker::gate>(std::ptrdiff_t(options.shards));
    std::vector<std::future<result<void>>> started;
    result<void> outcome;
    for (unsigned index = 0; index < options.shards; ++index) {
        auto w = std::make_unique<worker>();
        w->end = end;
        std::promise<result<void>> promise;
        auto ready = promise.get_future();
        try {
            w->thread =
                std::thread([w = w.get(), made = made.get(), index, promise = std::move(promise)]() mutable {
                    w->main(made->options_, index, made->budget_, *w->end, std::move(promise));
                });
        } catch (const std::system_error& e) {
            outcome = error(e.code(), "starting the thread of a shard", index);
            end->count_out();
            continue;
        }
        started.push_back(std::move(ready));
        made->shards_.push_back(std::move(w));
    }
    for (auto& s : started) {
        result<void> one = s.get();
        if (outcome && !one)
            outcome = one;
    }
    if (!outcome)
        return outcome.error(); // the destructor stops those that did start
    return made;
}

runtime::~runtime() { stop(); }

// Answered between polls. It stays until then, since a shard that is held has it in its queue.
class runtime::dump_request final : public remote_message {
public:
    dump_request(reactor& r, std::size_t lines) : reactor_(r), lines_(lines) {}
    void deliver() noexcept override
    {
        // Not touched after the promise has been kept: the waiting thread may destroy it.
        std::promise<task_dump> promise = std::move(promise_);
        try {
            promise.set_value(task_dump::take(reactor_, lines_));
        } catch (...) {
            promise.set_exception(std::current_exception());
        }
    }

private:
    reactor& reactor_;
    const std::size_t lines_;
    std::promise<task_dump> promise_;

public:
    std::future<task_dump> answer = promise_.get_future();
};

std::string runtime::describe_tasks(std::chrono::milliseconds patience, std::size_t lines)
{
    assert(!on_own_shard() && "runtime::describe_tasks() on a shard: see task_dump::take()");
    std::erase_if(dumps_, [](const auto& d) {
        return d->answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    });
    std::vector<std::unique_ptr<dump_request>> asked;
    for (auto& w : shards_) {
        asked.push_back(std::make_unique<dump_request>(w->view->reactor(), lines));
        w->view->reactor().post_remote(*asked.back());
    }
    const auto until = std::chrono::steady_clock::now() + patience;
    std::string out;
    for (std::size_t i = 0; i < asked.size(); ++i) {
        if (asked[i]->answer.wait_until(until) == std::future_status::ready) {
            out += asked[i]->answer.get().text();
            continue;
        }
        out += "shard " + std::to_string(i) + ": held for " + std::to_string(patience.count()) +
               " ms or longer by something that does not return; a debugger shows where\n";
        dumps_.push_back(std::move(asked[i]));
    }
    return out;
}

shard& runtime::at(std::size_t index) noexcept
{
    assert(index < shards_.size() && shards_[index]->view);
    return *shards_[index]->view;
}

bool runtime::on_own_shard() const noexcept
{
    return std::ranges::any_of(shards_, [here = reactor::current()](const auto& w) {
        return here != nullptr && w->view && &w->view->reactor() == here;
    });
}

void runtime::stop()
{
    if (shards_.empty())
        return;
    assert(!on_own_shard() && "runtime::stop() on a shard of its own, which waits for itself");
    metrics_.clear();
    const auto stop_all = [this] {
        for (auto& w : shards_) {
            if (w->view)
                w->view->reactor().stop();
        }
    };
    auto& end = *shards_.front()->end;
    stop_all();
    end.joined.wait();
    end.all_joined.store(true, std::memory_order_release);
    stop_all();
    end.drained.arrive_and_wait();
    for (auto& lane : lanes_)
        lane->finish();
    for (auto& crew : crews_) {
        if (crew)
            crew->finish();
    }
    end.emptied.arrive_and_wait();
    for (auto& w : shards_)
        w->thread.join();
    shards_.clear();
    dumps_.clear();
}

result<blocking_pool*> runtime::add_lane(std::string name, unsigned threads, lane_rights rights)
{
    assert(!on_own_shard() && "runtime::add_lane() on a shard, whose rights and CPUs its threads would have");
    const std::lock_guard lock(lanes_mutex_);
    if (lanes_.size() == max_lanes)
        return error(std::errc::too_many_files_open, "lanes for calls that block", max_lanes);
    auto& crew = crews_[std::size_t(rights)];
    const auto blocked = block_signals();
    try {
        if (!crew)
            crew = std::make_unique<blocking_crew>();
    } catch (const std::system_error& e) {
        return error(e.code(),
                     "starting a thread for calls that block, which needs a higher limit of threads");
    }
    lanes_.push_back(std::make_unique<blocking_pool>(
        *crew, threads != 0 ? threads : options_.blocking_threads, std::move(name)));
    return lanes_.back().get();
}

void runtime::remove_lane(blocking_pool& lane) noexcept
{
    assert(!on_own_shard() && "runtime::remove_lane() on a shard");
    std::unique_ptr<blocking_pool> gone; // destroyed behind the lock
    const std::lock_guard lock(lanes_mutex_);
    const auto found = std::ranges::find(lanes_, &lane, [](const auto& each) { return each.get(); });
    if (found == lanes_.end())
        return;
    try {
        removed_.push_back(std::move(*found));
    } catch (const std::bad_alloc&) { // it stays among the others
        return;
    }
    lanes_.erase(found);
    if (removed_.size() > most_removed) {
        gone = std::move(removed_.front());
        removed_.pop_front();
    }
}

std::vector<runtime::stuck_lane> runtime::stuck_lanes(std::chrono::steady_clock::duration limit) const
{
    std::vector<stuck_lane> out;
    const std::lock_guard lock(lanes_mutex_);
    for (const auto& lane : lanes_) {
        const blocking_pool::occupation now = lane->look();
        if (now.running != 0 && now.longest >= limit)
            out.push_back({lane->name(), now});
    }
    return out;
}

void runtime::expose(metric_registry& registry)
{
    const auto per_shard_of = [&](const char* name, const char* help, const char* unit, auto read) {
        metrics_.push_back(registry.add({name, help, metric_type::counter, unit, {"shard"}, max_shards},
                                        [this, read](metric_sink& out) {
                                            for (auto& w : shards_) {
                                                const std::string index = std::to_string(w->view->index());
                                                out.value({index}, read(w->view->reactor()));
                                            }
                                        }));
    };
    using source = double (*)(const reactor_stats&);
    const auto per_shard = [&](const char* name, const char* help, const char* unit, source read) {
        per_shard_of(name, help, unit, [read](reactor& r) { return read(r.stats()); });
    };
    const auto of_ring = [&](const char* name, const char* help, const char* unit,
                             std::atomic<std::uint64_t> ring_stats::* which) {
        per_shard_of(name, help, unit, [which](reactor& r) {
            return double((r.io().stats().*which).load(std::memory_order_relaxed));
        });
    };
    const auto of = [](const std::atomic<std::uint64_t>& n) {
        return double(n.load(std::memory_order_relaxed));
    };
    static constexpr double nanosecond = 1e-9;

    metrics_.push_back(registry.add({"verbena_slow_requests_total",
                                     "Requests that had not been answered after [daemon] slow_seconds.",
                                     metric_type::counter,
                                     "requests",
                                     {"protocol"},
                                     2 * request_list::max_protocols},
                                    [this](metric_sink& out) {
                                        for (auto& w : shards_) {
                                            const reactor& r = w->view->reactor();
                                            r.requests().for_each_slow(
                                                [&](std::string_view protocol, const counter& slow) {
                                                    out.value({protocol}, value_of(slow));
                                                });
                                        }
                                    }));
    metrics_.push_back(registry.add(
        {"verbena_shard_policy_seconds_total",
         "Time a shard spent working, spinning without work, and asleep.",
         metric_type::counter,
         "seconds",
         {"shard", "policy", "state"},
         std::size_t(max_shards) * 3},
        [this, of](metric_sink& out) {
            for (auto& w : shards_) {
                reactor& r = w->view->reactor();
                const std::string index = std::to_string(w->view->index());
                const std::string_view policy = to_string(r.policy());
                out.value({index, policy, "busy"}, of(r.stats().busy_nanoseconds) * nanosecond);
                out.value({index, policy, "spin"}, of(r.stats().spin_nanoseconds) * nanosecond);
                out.value({index, policy, "sleep"}, of(r.stats().sleep_nanoseconds) * nanosecond);
            }
        }));
    per_shard("verbena_shard_turns_total", "Turns of a shard's loop.", "turns",
              [](const reactor_stats& s) { return double(s.turns.load(std::memory_order_relaxed)); });
    per_shard("verbena_shard_sleeps_total", "Times a shard went to sleep.", "sleeps",
              [](const reactor_stats& s) { return double(s.sleeps.load(std::memory_order_relaxed)); });
    metrics_.push_back(registry.add({"verbena_shard_spins_total",
                                     "Spins of policy adaptive, by whether work came before they ended.",
                                     metric_type::counter,
                                     "spins",
                                     {"shard", "outcome"},
                                     std::size_t(max_shards) * 2},
                                    [this, of](metric_sink& out) {
                                        for (auto& w : shards_) {
                                            const reactor_stats& s = w->view->reactor().stats();
                                            const std::string index = std::to_string(w->view->index());
                                            out.value({index, "paid"}, of(s.spins_paid));
                                            out.value({index, "in_vain"}, of(s.spins_in_vain));
                                        }
                                    }));
    per_shard(
        "verbena_shard_messages_total", "Messages that a shard took from other threads.", "messages",
        [](const reactor_stats& s) { return double(s.remote_messages.load(std::memory_order_relaxed)); });
    per_shard("verbena_shard_stalls_total", "Turns that held a shard for more than a millisecond.", "turns",
              [](const reactor_stats& s) { return double(s.stalls.load(std::memory_order_relaxed)); });
    per_shard("verbena_shard_stall_seconds_total",
              "Time in turns that held a shard for more than a millisecond.", "seconds",
              [](const reactor_stats& s) {
                  return double(s.stall_nanoseconds.load(std::memory_order_relaxed)) * nanosecond;
              });
    per_shard("verbena_shard_illegal_transitions_total",
              "Changes of an object's state that no rule allows and that did not happen: faults of verbena.",
              "changes", [](const reactor_stats& s) {
                  return double(s.illegal_transitions.load(std::memory_order_relaxed));
              });

    of_ring("verbena_shard_ring_enters_total", "Calls of io_uring_enter.", "calls", &ring_stats::enters);
    of_ring("verbena_shard_ring_submitted_total", "Entries given to a shard's io_uring.", "entries",
            &ring_stats::submitted);
    of_ring("verbena_shard_ring_stale_completions_total",
            "Completions of a shard's io_uring for operations that had been given up.", "completions",
            &ring_stats::stale);

    const auto level = [&](const char* name, const char* help, const char* unit, auto read) {
        metrics_.push_back(registry.add({name, help, metric_type::gauge, unit},
                                        [read](metric_sink& out) { out.value({}, double(read())); }));
    };
    level("verbena_memory_budget_bytes", "Most memory that buffers may take.", "bytes",
          [this] { return budget_.limit(); });
    level("verbena_memory_registered_bytes", "Buffer memory that is taken from the budget.", "bytes",
          [this] { return budget_.used(); });
    metric_group resources(registry);
    add_resource(resources, "memory", [this] { return budget_.used(); }, [this] { return budget_.limit(); });
    append(metrics_, resources.take());
    const auto per_kind = [&](const char* name, const char* help, const char* unit, auto read) {
        metrics_.push_back(registry.add(
            {name, help, metric_type::gauge, unit, {"kind"}, slab_kind_count}, [read](metric_sink& out) {
                for (std::size_t i = 0; i < slab_kind_count; ++i)
                    out.value({to_string(slab_kind(i))}, double(read(slab_kind(i))));
            }));
    };
    per_kind("verbena_memory_slabs", "Slabs of buffer memory, by what they lie on.", "slabs",
             [this](slab_kind k) { return budget_.slabs(k); });
    per_kind("verbena_memory_slab_bytes", "Their bytes.", "bytes",
             [this](slab_kind k) { return budget_.bytes(k); });
    const auto per_lane = [&](const char* name, const char* help, const char* unit, auto read) {
        metrics_.push_back(registry.add({name, help, metric_type::gauge, unit, {"lane"}, max_lanes},
                                        [this, read](metric_sink& out) {
                                            const std::lock_guard lock(lanes_mutex_);
                                            for (const auto& lane : lanes_)
                                                out.value({lane->name()}, double(read(*lane)));
                                        }));
    };
    metrics_.push_back(
        registry.add({"verbena_blocking_threads",
                      "Threads for calls that block, of all lanes: they start when they are needed, and end "
                      "when they have nothing to do.",
                      metric_type::gauge, "threads"},
                     [this](metric_sink& out) {
                         const std::lock_guard lock(lanes_mutex_);
                         std::size_t all = 0;
                         for (const auto& crew : crews_)
                             all += crew ? crew->threads() : 0;
                         out.value({}, double(all));
                     }));
    metrics_.push_back(
        registry.add({"verbena_blocking_start_failures_total",
                      "Times that no thread could be started for a blocking call, which went on waiting.",
                      metric_type::counter, "failures"},
                     [this](metric_sink& out) {
                         const std::lock_guard lock(lanes_mutex_);
                         std::uint64_t all = 0;
                         for (const auto& crew : crews_)
                             all += crew ? crew->failures() : 0;
                         out.value({}, double(all));
                     }));
    metrics_.push_back(registry.add({"verbena_blocking_refused_total",
                                     "Blocking calls that were put off, since as many waited as may.",
                                     metric_type::counter,
                                     "calls",
                                     {"lane"},
                                     max_lanes},
                                    [this](metric_sink& out) {
                                        const std::lock_guard lock(lanes_mutex_);
                                        for (const auto& lane : lanes_)
                                            out.value({lane->name()}, double(lane->refused()));
                                    }));
    per_lane("verbena_blocking_queued_jobs", "Blocking calls that wait for a thread of their lane.", "jobs",
             [](const blocking_pool& lane) { return lane.look().queued; });
    per_lane("verbena_blocking_running_jobs", "Blocking calls that have a thread of their lane.", "jobs",
             [](const blocking_pool& lane) { return lane.look().running; });
    per_lane(
        "verbena_blocking_longest_seconds",
        "How long the oldest blocking call of a lane has run: what it calls may hang.", "seconds",
        [](const blocking_pool& lane) { return std::chrono::duration<double>(lane.look().longest).count(); });
}

} // namespace verbena
