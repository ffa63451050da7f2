// SPDX-License-Identifier: Apache-2.0
#include "../seeded_series.hpp"

#include <verbena/core/runtime.hpp>
#include <verbena/core/sleep.hpp>
#include <verbena/plugins/delay.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <utility>

namespace verbena::filters {

namespace {

enum class group : std::uint8_t { read, write, sync, metadata };
constexpr unsigned groups = 4;

group group_of(storage::operation op) noexcept
{
    switch (op) {
    case storage::operation::read: return group::read;
    case storage::operation::write: return group::write;
    case storage::operation::commit: return group::sync;
    default: return group::metadata;
    }
}

class delaying final : public delay_filter {
public:
    delaying(std::unique_ptr<storage::file_backend> below, const delay_options& options)
        : delay_filter(std::move(below)),
          ranges_{options.read, options.write, options.sync, options.metadata},
          limit_(options.waiting),
          draws_(options.seed)
    {
    }

    delay_counters counters() const noexcept override
    {
        delay_counters now;
        now.delayed = delayed_.load(relaxed);
        now.cancelled = cancelled_.load(relaxed);
        now.refused = refused_.load(relaxed);
        now.waiting = waiting_.load(relaxed);
        return now;
    }

private:
    static constexpr auto relaxed = std::memory_order_relaxed;

    bool gates(storage::operation op) const noexcept override
    {
        return ranges_[unsigned(group_of(op))].most > duration::zero();
    }
    task<result<void>> enter(storage::operation op, const storage::request&, std::uint64_t) override
    {
        const task_context& context = co_await current_context();
        if (waiting_.fetch_add(1, relaxed) >= limit_) {
            waiting_.fetch_sub(1, relaxed);
            refused_.fetch_add(1, relaxed);
            co_return error(storage::errc::delayed, "as many operations as may wait are being delayed");
        }
        delayed_.fetch_add(1, relaxed);
        const bool came = co_await sleep_until(end_of_wait(group_of(op), *context.shard));
        waiting_.fetch_sub(1, relaxed);
        if (!came) {
            cancelled_.fetch_add(1, relaxed);
            co_return error::from_errno(ECANCELED, "stopped while it was delayed");
        }
        co_return result<void>();
    }

    time_point end_of_wait(group g, reactor& shard) noexcept
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

    const std::array<delay_range, groups> ranges_;
    const std::size_t limit_;
    seeded_series draws_;
    // When the last operation with a fixed delay ends its wait; of each shard, which alone writes here.
    std::array<std::array<std::atomic<duration::rep>, groups>, runtime::max_shards> last_{};
    std::atomic<std::uint64_t> delayed_{0};
    std::atomic<std::uint64_t> cancelled_{0};
    std::atomic<std::uint64_t> refused_{0};
    std::atomic<std::uint64_t> waiting_{0};
};

struct delay_rule {
    const delay_range& range;
    const char* negative;
    const char* long_one;
    const char* order;
};

result<void> check(const delay_rule& r)
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

result<std::unique_ptr<delay_filter>> open_delay(std::unique_ptr<storage::file_backend> below,
                                                 const delay_options& options)
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
        if (auto good = check(r); !good)
            return good.error();
    }
    if (options.waiting < 1 || options.waiting > most_delayed)
        return error(std::errc::invalid_argument,
                     "delay, waiting: not within 1 to 1048576; take a number within", options.waiting);
    return std::unique_ptr<delay_filter>(std::make_unique<delaying>(std::move(below), options));
}

} // namespace verbena::filters
