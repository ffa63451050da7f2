// SPDX-License-Identifier: Apache-2.0
// Free lists for coroutine frames, one set per thread.
//
// A request runs a handful of short coroutines; taking each frame from malloc would be the largest
// allocation cost on the data path. A frame is almost always freed on the thread that made it; one
// that isn't simply joins the other thread's list.
#pragma once

#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)

namespace verbena {

/// What the calling thread's frame lists have done. `fresh` counts the frames that came from the
/// heap: constant in steady state.
struct frame_pool_stats {
    std::uint64_t reused = 0; ///< frames that came from the thread's own lists
    std::uint64_t fresh = 0;  ///< frames that came from the heap
};

/// Memory for one frame of `size` bytes, from the calling thread's list or the heap.
void* allocate_frame(std::size_t size);
/// Gives a frame back; `size` must be what it was allocated with.
void release_frame(void* frame, std::size_t size) noexcept;
/// The calling thread's counts.
frame_pool_stats current_frame_pool_stats() noexcept;

} // namespace verbena

#pragma GCC visibility pop
