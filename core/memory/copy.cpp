// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/memory/copy.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace verbena {

void copy_past_caches(std::byte* to, const std::byte* from, std::size_t count) noexcept
{
#ifdef __SSE2__
    constexpr std::size_t line = 64, step = sizeof(__m128i);
    std::size_t at = std::min(count, (line - reinterpret_cast<std::uintptr_t>(to) % line) % line);
    std::memcpy(to, from, at);
    for (; count - at >= line; at += line) {
        __m128i words[line / step];
        std::memcpy(words, from + at, line);
        for (std::size_t i = 0; i < line / step; ++i)
            _mm_stream_si128(reinterpret_cast<__m128i*>(to + at + i * step), words[i]);
    }
    _mm_sfence(); // these stores have no order among others
    to += at;
    from += at;
    count -= at;
#endif
    std::memcpy(to, from, count);
}

} // namespace verbena
