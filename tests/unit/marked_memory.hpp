// SPDX-License-Identifier: Apache-2.0
// Memory that somebody has used before: it holds a mark, which must not be found in what others are sent.
#pragma once

#include <verbena/core/memory/buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace verbena::test {

constexpr std::byte mark{0xd1};

/// Marks memory of `pool` and gives it back: of each size that buffers have, up to `largest`, a slab at least. The pool keeps as much of
/// it as its budget's max_kept() allows.
inline void leave_marks(buffer_pool& pool, std::size_t largest = std::size_t(1) << 20)
{
    std::vector<lease> all;
    for (std::size_t size = buffer_pool::min_size; size <= largest; size *= 2) {
        for (std::size_t got = 0; got < std::max(pool.budget().slab_size(), size); got += size) {
            all.push_back(pool.try_acquire(size));
            if (!all.back())
                return;
            std::ranges::fill(all.back().bytes(), mark);
        }
    }
}

/// The most marks in a row: by chance there are one or two in a key or a time.
inline std::size_t marks_in(std::span<const std::byte> bytes)
{
    std::size_t most = 0;
    std::size_t run = 0;
    for (const std::byte b : bytes) {
        run = b == mark ? run + 1 : 0;
        most = std::max(most, run);
    }
    return most;
}

} // namespace verbena::test
