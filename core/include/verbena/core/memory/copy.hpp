// SPDX-License-Identifier: Apache-2.0
// A copy that goes past the processor's caches: for what is stored, and mostly read when the caches hold other data.
#pragma once

#include <cstddef>

#pragma GCC visibility push(default)

namespace verbena {

/// Copies `count` bytes as std::memcpy() does. Where the library is built for processors with SSE2, it writes whole cache lines of
/// `to` straight to memory. An ordinary copy first reads each line of `to` from memory. It also pushes other lines out of the caches,
/// as those of the buffers that the next call is received in. This copy gains for some 16 KiB and more, unless somebody reads `to` at
/// once. What is stored after it has returned is seen after the bytes; among themselves, and with what was stored before, they
/// have no order.
void copy_past_caches(std::byte* to, const std::byte* from, std::size_t count) noexcept;

} // namespace verbena

#pragma GCC visibility pop
