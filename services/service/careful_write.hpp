// SPDX-License-Identifier: Apache-2.0
// Writes much to a descriptor that nobody may read from.
#pragma once

#include <chrono>
#include <cstddef>
#include <string_view>

namespace verbena::services {

/// Writes `text` to `fd` as far as whoever reads it takes it within `patience`, and returns how many bytes that were. It fills a
/// pipe by half at most, so that others who write there, and wait for room, find some. Any thread; it blocks for `patience` at most
/// as long as nobody else fills `fd` meanwhile.
std::size_t write_carefully(int fd, std::string_view text, std::chrono::milliseconds patience) noexcept;

} // namespace verbena::services
