// SPDX-License-Identifier: Apache-2.0
#include "delayer.hpp"

#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <cerrno>

namespace verbena::filters {

namespace {

struct delay_rule {
    const delay_range& range;
    const char* negative;
    const char* long_one;
    const char* order;
};

result<void> check_rule(const delay_rule& r)
{
    if (r.range.least < duration::zero())
        return error(std::errc::invalid_argument, r.negative);
    if (r.range.most > longest_delay)
        return error(std::errc::invalid_argument, r.long_one, std::uint64_t(r.range.most.count()));
    if (r.range.most < r.range.least)
        return error(std::errc::invalid_argument, r.order, std::uint64_t(r.range.least.count()));
    return {};
}

} // namespace

result<void> delayer::check(const delay_options& options)
{
    const delay_rule rules[] = {
        {options.read, "delay, read: the least delay is below 0; take 0 or more",
         "delay, read: the longest delay is over an hour; take less",
         "delay, read: the least delay is over the most; swap them"},
        {options.write, "delay, write: the least delay is below 0; take 0 or more",
         "delay, write: the longest delay is over an hour; take less",
         "delay, write: the least delay is over the most; swap them"},
        {options.sync, "delay, sync: the least delay is below 0; take 0 or more",
         "delay, sync: the longest delay is over an hour; take less",
         "delay, sync: the least delay is over the most; swap them"},
        {options.metadata, "delay, metadata: the least delay is below 0; take 0 or more",
         "delay, metadata: the longest delay is over an hour; take less",
         "delay, metadata: the least delay is over the most; swap them"},
    };
    for (const delay_rule& r : rules) {
        if (auto good = check_rule(r); !good)
            return good.error();
    }
    if (options.waiting < 1 || options.waiting > most_delayed)
        return error(std::errc::invalid_argument,
                     "delay, waiting: not within 1 to 1048576; take a number within", options.waiting);
    return {};
}

delayer::delayer(const delay_options& options) noexcept
    : ranges_{options.read, options.write, options.sync, options.metadata},
      limit_(options.waiting),
      draws_(options.seed)
{
}

delay_counters delayer::counters() const noexcept
{
    delay_counters now;
    now.delayed = delayed_.load(relaxed);
    now.cancelled = cancelled_.load(relaxed);
    now.refused = refused_.load(relaxed);
    now.waiting = waiting_.load(relaxed);
    return now;
}

task<result<void>> delayer::wait(group g)
{
    const task_context& context = co_await current_context();
    if (waiting_.fetch_add(1, relaxed) >= limit_) {
        waiting_.fetch_sub(1, relaxed);
        refused_.fetch_add(1, relaxed);
        co_return error(storage::errc::delayed, "as many operations as may wait are being delayed");
    }
    delayed_.fetch_add(1, relaxed);
    const bool came = co_await sleep_until(end_of_wait(g, *context.shard));
    waiting_.fetch_sub(1, relaxed);
    if (!came) {
        cancelled_.fetch_add(1, relaxed);
        co_return error::from_errno(ECANCELED, "stopped while it was delayed");
    }
    co_return result<void>();
}

time_point delayer::end_of_wait(group g, reactor& shard) noexcept
{
    const delay_range& range = ranges_[unsigned(g)];
    const time_point now = shard.clock().now();
    if (range.least != range.most) {
        const auto width = std::uint64_t((range.most - range.least).count()) + 1;
        return now + range.least + duration(draws_.next() % width);
    }
    // Timers that end at the same moment run in any order: each ends later than the one before it.
    auto& last = last_[shard.index() % last_.size()][unsigned(g)];
    const duration::rep end =
        std::max((now + range.least).time_since_epoch().count(), last.load(relaxed) + 1);
    last.store(end, relaxed);
    return time_point(duration(end));
}

} // namespace verbena::filters
