// SPDX-License-Identifier: Apache-2.0
// How long the opening of many exports waits for those whose disks do not answer.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace verbena::nfs {

/// Disks that answer are opened one after the other, by one thread, in the order of the list. Those that hang are waited for
/// together, and all of them no longer than one. An export that was not waited for comes up when its disk answers. One for
/// each start or reload; of its thread.
class hung_wait {
public:
    using clock = std::chrono::steady_clock;
    /// For all disks that hang together, from when the first of them was begun.
    static constexpr std::chrono::milliseconds usual{5000};
    /// Whoever opens something goes on to the next one when its disk has not answered by then.
    static constexpr std::chrono::milliseconds stagger{50};
    /// A disk is waited for so long at least, however many others hang: it may be one that answers.
    static constexpr std::chrono::milliseconds least{500};

    explicit hung_wait(std::chrono::milliseconds most = usual) noexcept : most_(most), left_(most / 2) {}
    /// Until when what is begun at `now` is waited for.
    clock::time_point until(clock::time_point now) const noexcept
    {
        return first_ ? std::max(*first_ + most_, now + std::min<clock::duration>(most_, least))
                      : now + most_;
    }
    /// How long to wait for what was just begun, before the next one is. Half of the time goes for that at most: the other
    /// half is for the last ones.
    clock::duration pause() const noexcept { return std::min<clock::duration>(stagger, left_); }
    /// What was begun at `begun` has not answered within pause().
    void note_hung(clock::time_point begun) noexcept
    {
        left_ -= pause();
        if (!first_)
            first_ = begun;
    }

private:
    clock::duration most_;
    clock::duration left_; // for all pauses for what hangs
    std::optional<clock::time_point> first_;
};

} // namespace verbena::nfs
