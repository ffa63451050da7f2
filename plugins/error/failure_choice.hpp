// SPDX-License-Identifier: Apache-2.0
// Which operations of one error filter fail, whatever it stands on.
#pragma once

#include "../seeded_series.hpp"

#include <verbena/core/task/task.hpp>
#include <verbena/plugins/error.hpp>

#include <atomic>
#include <cstdint>
#include <string>

namespace verbena::filters {

/// All shards use it.
class failure_choice {
public:
    /// EINVAL for an option out of its range.
    static result<void> check(const error_choice& options);
    /// Of options that passed. `pool` outlives it.
    failure_choice(const error_choice& options, blocking_pool& pool);

    /// Whether any operation may fail.
    bool may_fail() const noexcept { return probability_ > 0 || every_ > 0; }
    /// Whether the next operation is to fail.
    /// Completes when: that is known. On cancel: it goes on. Errors: none. Lifetime: this outlives it. Shard: the caller's.
    task<bool> is_chosen();
    error_counters counters() const noexcept;

private:
    static constexpr auto relaxed = std::memory_order_relaxed;

    bool fails() noexcept;
    task<void> look();

    const double probability_;
    const std::uint64_t every_;
    const std::string path_;
    const duration interval_;
    blocking_pool& pool_;
    seeded_series draws_;
    std::atomic<bool> present_;
    std::atomic<bool> looking_{false};
    std::atomic<duration::rep> good_until_{0};
    std::atomic<std::uint64_t> candidates_{0};
    std::atomic<std::uint64_t> injected_{0};
    std::atomic<std::uint64_t> looks_{0};
};

} // namespace verbena::filters
