// SPDX-License-Identifier: Apache-2.0
// Copies of bytes that a peer may read or write by RDMA at the same time.
#pragma once

#include <cstddef>
#include <cstring>

#if defined(__SANITIZE_THREAD__)
#define VERBENA_MEMFS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VERBENA_MEMFS_TSAN 1
#endif
#endif

#ifdef VERBENA_MEMFS_TSAN
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace verbena::memfs {

/// Has ThreadSanitizer look away. What a peer does with memory that it was granted is ordered with nothing here, and bytes that both sides touch at
/// once are anybody's: that is the peer's affair, as it would be on a network.
class reached_meanwhile {
public:
    reached_meanwhile() noexcept
    {
#ifdef VERBENA_MEMFS_TSAN
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
    }
    reached_meanwhile(const reached_meanwhile&) = delete;
    ~reached_meanwhile()
    {
#ifdef VERBENA_MEMFS_TSAN
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
    }
};

inline void copy_reached(std::byte* to, const std::byte* from, std::size_t count) noexcept
{
    const reached_meanwhile here;
    std::memcpy(to, from, count);
}

inline void set_reached(std::byte* to, std::size_t count) noexcept
{
    const reached_meanwhile here;
    std::memset(to, 0, count);
}

} // namespace verbena::memfs
