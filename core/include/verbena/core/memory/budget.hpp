// SPDX-License-Identifier: Apache-2.0
// Slabs: the pieces in which buffer memory comes from the system, and the budget that they count against.
//
// Buffers are carved from slabs, so that a device that wants memory registered is asked once for many of
// them. docs/internals/reactor.md tells how they are carved.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena {

/// What a slab lies on.
enum class slab_kind : std::uint8_t {
    plain,       ///< pages of the usual size
    transparent, ///< the kernel was asked for huge pages, and gives them as it can
    huge,        ///< huge pages that were reserved (vm.nr_hugepages)
};
/// How many values slab_kind has.
inline constexpr std::size_t slab_kind_count = 3;
/// "plain", "transparent" or "huge": a label of the metrics.
std::string_view to_string(slab_kind k) noexcept;

/// Which pages slabs may lie on.
enum class huge_pages : std::uint8_t {
    automatic, ///< reserved huge pages, else transparent ones, else plain
    no,
};

/// The hard limit on buffer memory, shared by the pools of a process. Counts whole slabs, as they are mapped.
/// Thread-safe.
class memory_budget {
public:
    static constexpr std::size_t largest_slab = std::size_t(2) << 20; ///< bytes
    static constexpr std::size_t smallest_slab = 4096;                ///< bytes

    /// `limit` in bytes, for `pools` buffer pools: the less of it there is for each, the smaller the slabs.
    explicit memory_budget(std::size_t limit, unsigned pools = 1,
                           huge_pages pages = huge_pages::automatic) noexcept;

    /// Takes `bytes` out of the budget; false, and nothing taken, if the limit would be passed. Any thread,
    /// without a lock.
    bool reserve(std::size_t bytes) noexcept
    {
        std::size_t used = used_.load(std::memory_order_relaxed);
        do {
            if (bytes > limit_ || used > limit_ - bytes)
                return false;
        } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
        return true;
    }
    /// Gives back what reserve() took. Any thread.
    void release(std::size_t bytes) noexcept { used_.fetch_sub(bytes, std::memory_order_relaxed); }
    std::size_t limit() const noexcept { return limit_; }
    /// Bytes that are reserved now. Any thread.
    std::size_t used() const noexcept { return used_.load(std::memory_order_relaxed); }

    /// Bytes of a slab; buffers that are larger have a slab of their own. A power of two.
    std::size_t slab_size() const noexcept { return slab_size_; }
    /// Bytes of slabs without a buffer in use that a pool keeps before it gives them back.
    std::size_t max_kept() const noexcept { return max_kept_; }
    huge_pages pages() const noexcept { return pages_; }

    /// Counts of slabs that are mapped, and their bytes.
    void count(slab_kind k, std::ptrdiff_t slabs, std::ptrdiff_t bytes) noexcept
    {
        slabs_[static_cast<std::size_t>(k)].fetch_add(slabs, std::memory_order_relaxed);
        bytes_[static_cast<std::size_t>(k)].fetch_add(bytes, std::memory_order_relaxed);
    }
    /// How many slabs of a kind are mapped. Any thread.
    std::ptrdiff_t slabs(slab_kind k) const noexcept
    {
        return slabs_[static_cast<std::size_t>(k)].load(std::memory_order_relaxed);
    }
    /// Bytes of the slabs of a kind that are mapped. Any thread.
    std::ptrdiff_t bytes(slab_kind k) const noexcept
    {
        return bytes_[static_cast<std::size_t>(k)].load(std::memory_order_relaxed);
    }

    /// Whether it is used up, for the log of the pools that want of it. Times are those of the pools' clock, in its ticks.
    struct shortage {
        std::atomic<bool> lasts{false};
        std::atomic<std::int64_t> since{0};
        std::atomic<std::int64_t> last{0}; ///< when somebody asked in vain
    };
    /// Of this budget, for as long as it lives. Any thread.
    shortage& its_shortage() noexcept { return shortage_; }

private:
    const std::size_t limit_;
    const std::size_t slab_size_;
    const std::size_t max_kept_;
    const huge_pages pages_;
    std::atomic<std::size_t> used_{0};
    std::array<std::atomic<std::ptrdiff_t>, slab_kind_count> slabs_{};
    std::array<std::atomic<std::ptrdiff_t>, slab_kind_count> bytes_{};
    shortage shortage_;
};

} // namespace verbena

#pragma GCC visibility pop
