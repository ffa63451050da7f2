// SPDX-License-Identifier: Apache-2.0
// Sizes as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena {

/// "4096", "64K", "10M", "2G", "1T", small letters and "KiB" or "Ki" too: powers of 1024. Nothing if it is no size, or over 64 bits.
std::optional<std::uint64_t> parse_byte_size(std::string_view text) noexcept;

} // namespace verbena

#pragma GCC visibility pop
