// SPDX-License-Identifier: Apache-2.0
// Whether a shard without work spins or sleeps at once.
#pragma once

#include <algorithm>
#include <cstdint>

#pragma GCC visibility push(default)

namespace verbena::detail {

/// Of one shard of policy `adaptive`. A spin pays if work comes before it ends. A spin in vain took a processor, maybe from the
/// peer that was to make the work. So after spins in vain a shard sleeps at once in 1, 2, 4 and up to 256 idle periods before it
/// tries the next spin. A spin that pays shortens the pauses to a quarter, and the next idle period is spun through, too.
///
/// What an idle period that was slept through would have paid can't be seen: the way out of sleep, the peer's and our own, is
/// part of how long it took. Only spins tell about spins.
class spin_choice {
public:
    static constexpr std::uint32_t longest_pause = 256;

    /// At the begin of an idle period: whether to spin.
    bool spins() noexcept
    {
        if (left_ == 0)
            return true;
        --left_;
        return false;
    }
    /// Work came before the spin's end.
    void paid() noexcept { pause_ /= 4; }
    /// The spin ended without work.
    void was_in_vain() noexcept
    {
        pause_ = std::clamp<std::uint32_t>(2 * pause_, 1, longest_pause);
        left_ = pause_;
    }

private:
    std::uint32_t pause_ = 0; // length of the last pause; the next one is twice as long
    std::uint32_t left_ = 0;  // of the pause that goes on
};

} // namespace verbena::detail

#pragma GCC visibility pop
