// SPDX-License-Identifier: Apache-2.0
// The waits of one delay filter, whatever it stands on.
#pragma once

#include "../seeded_series.hpp"

#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/plugins/delay.hpp>

#include <array>
#include <atomic>
#include <cstdint>

namespace verbena::filters {

/// All shards use it.
class delayer {
public:
    enum class group : std::uint8_t { read, write, sync, metadata };

    /// EINVAL for an option out of its range.
    static result<void> check(const delay_options& options);
    /// Of options that passed.
    explicit delayer(const delay_options& options) noexcept;

    /// Whether operations of this group wait at all.
    bool delays(group g) const noexcept { return ranges_[unsigned(g)].most > duration::zero(); }
    /// Completes when: the time has come. On cancel: ECANCELED. Errors: storage::errc::delayed: too many wait. Lifetime: this outlives it.
    /// Shard: the caller's, whose clock counts.
    task<result<void>> wait(group g);
    delay_counters counters() const noexcept;

private:
    static constexpr auto relaxed = std::memory_order_relaxed;
    static constexpr unsigned groups = 4;

    time_point end_of_wait(group g, reactor& shard) noexcept;

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

} // namespace verbena::filters
