// SPDX-License-Identifier: Apache-2.0
// How often each operation got each status other than OK.
#pragma once

#include <verbena/core/metrics.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)

namespace verbena::nfs {

/// Counts of pairs of an operation and a status, as they occur. Written by one shard, read from any thread. Allocates nothing.
class status_counts {
public:
    /// Pairs that have a count of their own. Versions 3 and 4 have some 7,000 that could occur; a server sees some 100.
    static constexpr std::size_t most = 384;

    /// `operation` and `status` are numbers of the protocol, below 65,536; `status` is not OK, which is 0.
    void note(std::uint32_t operation, std::uint32_t status) noexcept;

    /// `show(operation, status, count)` for each pair that has a count of its own.
    template<class Show>
    void each(Show show) const
    {
        for (const slot& s : slots_) {
            const std::uint32_t pair = s.pair.load(std::memory_order_acquire);
            if (pair != 0)
                show(pair >> 16, pair & 0xffff, s.count.value());
        }
    }
    /// Of all other pairs.
    std::uint64_t others() const noexcept { return others_.value(); }

private:
    static constexpr unsigned slot_bits = 9; // a quarter stays empty, so that a search is short
    struct slot {
        std::atomic<std::uint32_t> pair{0};
        counter count;
    };
    static_assert(most < std::size_t(1) << slot_bits);

    std::array<slot, std::size_t(1) << slot_bits> slots_;
    std::size_t used_ = 0;
    counter others_;
};

} // namespace verbena::nfs

#pragma GCC visibility pop
