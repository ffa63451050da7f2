// SPDX-License-Identifier: Apache-2.0
#include "failure_choice.hpp"

#include <unistd.h>

namespace verbena::filters {

namespace {

bool exists(const std::string& path) noexcept { return ::access(path.c_str(), F_OK) == 0; }

} // namespace

result<void> failure_choice::check(const error_choice& options)
{
    // Written so that NaN is refused.
    if (!(options.probability >= 0 && options.probability <= 1))
        return error(std::errc::invalid_argument,
                     "error, probability: not within 0 to 1; take 0.01 for one in a hundred");
    if (options.probability > 0 && options.every > 0)
        return error(
            std::errc::invalid_argument,
            "error, every: stands beside probability, and only one can decide; leave out one of them",
            options.every);
    if (options.look_interval < duration::zero() || options.look_interval > longest_look_interval)
        return error(std::errc::invalid_argument,
                     "error, look_interval: not within 0 to an hour; take a time within");
    return {};
}

failure_choice::failure_choice(const error_choice& options, blocking_pool& pool)
    : probability_(options.probability),
      every_(options.every),
      path_(options.while_exists),
      interval_(options.look_interval),
      pool_(pool),
      draws_(options.seed),
      present_(path_.empty())
{
}

error_counters failure_choice::counters() const noexcept
{
    error_counters now;
    now.candidates = candidates_.load(relaxed);
    now.injected = injected_.load(relaxed);
    now.looks = looks_.load(relaxed);
    return now;
}

task<bool> failure_choice::is_chosen()
{
    if (!path_.empty())
        co_await look();
    const bool chosen = present_.load(relaxed) && fails();
    if (chosen)
        injected_.fetch_add(1, relaxed);
    co_return chosen;
}

bool failure_choice::fails() noexcept
{
    const std::uint64_t n = candidates_.fetch_add(1, relaxed) + 1;
    if (every_ > 0)
        return n % every_ == 0;
    // 53 bits are what a double holds: below 1 for sure.
    return double(draws_.next() >> 11) * 0x1p-53 < probability_;
}

task<void> failure_choice::look()
{
    const task_context& context = co_await current_context();
    const clock_source& clock = context.shard->clock();
    if (clock.now().time_since_epoch().count() < good_until_.load(relaxed))
        co_return;
    // One at a time: where a look hangs, one operation hangs with it.
    if (looking_.exchange(true, std::memory_order_acquire))
        co_return;
    auto find = [this]() noexcept { return exists(path_); };
    const bool found = co_await pool_.run(std::move(find));
    looks_.fetch_add(1, relaxed);
    present_.store(found, relaxed);
    good_until_.store((clock.now() + interval_).time_since_epoch().count(), relaxed);
    looking_.store(false, std::memory_order_release);
}

} // namespace verbena::filters
