// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbena/core/task/frame_pool.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace verbena::test {

/// While it is there, this thread has no frame left that a coroutine could have without asking for memory.
class used_up_frames {
public:
    used_up_frames()
    {
        for (std::size_t size = 64; size < 4096; size += 64) {
            for (std::uint64_t fresh = 0; fresh != current_frame_pool_stats().fresh;) {
                fresh = current_frame_pool_stats().fresh + 1;
                held_.emplace_back(allocate_frame(size), size);
            }
        }
    }
    used_up_frames(const used_up_frames&) = delete;
    ~used_up_frames()
    {
        for (const auto& [frame, size] : held_)
            release_frame(frame, size);
    }

private:
    std::vector<std::pair<void*, std::size_t>> held_;
};

} // namespace verbena::test
