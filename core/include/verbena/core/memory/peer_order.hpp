// SPDX-License-Identifier: Apache-2.0
// What ThreadSanitizer can't see: peers that reach memory, and the order that they make between shards.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define VERBENA_WITH_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VERBENA_WITH_TSAN 1
#endif
#endif

#ifdef VERBENA_WITH_TSAN
/// @cond
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void __tsan_acquire(void* address); // NOLINT
void __tsan_release(void* address); // NOLINT
}
/// @endcond
#endif

#pragma GCC visibility push(default)

namespace verbena {

/// Has ThreadSanitizer look away from the thread's accesses while it lives; nothing in other builds. What a peer does
/// with memory that it was granted is ordered with nothing here, and bytes that both sides touch at once are anybody's:
/// that is the peer's affair, as it would be on a network.
class reached_meanwhile {
public:
    reached_meanwhile() noexcept
    {
#ifdef VERBENA_WITH_TSAN
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
    }
    reached_meanwhile(const reached_meanwhile&) = delete;
    ~reached_meanwhile()
    {
#ifdef VERBENA_WITH_TSAN
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
    }
};

/// A peer that has an answer by a connection of one shard may send what follows from it by that of another one: its next
/// request, in the memory that the answer came from. That is an order as any other, and ThreadSanitizer is told of it
/// here: by `told_peers()` before bytes are sent, and by `heard_of_peers()` when others have come. `about` is the same
/// object for all connections whose peers reach the same memory. Nothing in other builds.
inline void told_peers([[maybe_unused]] const void* about) noexcept
{
#ifdef VERBENA_WITH_TSAN
    __tsan_release(const_cast<void*>(about));
#endif
}
/// The other half of told_peers().
inline void heard_of_peers([[maybe_unused]] const void* about) noexcept
{
#ifdef VERBENA_WITH_TSAN
    __tsan_acquire(const_cast<void*>(about));
#endif
}

} // namespace verbena

#pragma GCC visibility pop
