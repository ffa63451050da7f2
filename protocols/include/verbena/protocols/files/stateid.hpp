// SPDX-License-Identifier: Apache-2.0
// The name that a client has for a piece of state (RFC 8881 8.2).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)

namespace verbena::files {

/// A number that grows with each change of the state, and which state it is.
struct stateid {
    std::uint32_t seqid = 0;           ///< grows with each change of the state; 0: whatever it is
    std::array<std::byte, 12> other{}; ///< which state it is
    friend bool operator==(const stateid&, const stateid&) = default;
};

/// The number after `n`: 0 is left out, as it means "the newest" (RFC 8881 8.2.2).
constexpr std::uint32_t next_seqid(std::uint32_t n) noexcept { return n + 1 == 0 ? 1 : n + 1; }
/// Whether `a` is behind `b`, modulo 2^32.
constexpr bool is_behind(std::uint32_t a, std::uint32_t b) noexcept { return std::int32_t(a - b) < 0; }
/// True of all that have no bits in `other` or all of them: those with a meaning of their own (RFC 8881 8.2.3), which callers handle
/// before they ask, and those that are none.
bool is_special(const stateid& id) noexcept;
/// The table that gave out `id`, of `homes` that there are. Whatever `id` has, it is one of these.
unsigned home_of(const stateid& id, unsigned homes) noexcept;

/// What seqid 0 says: the newest, as of version 4.1, or the number that it is.
enum class zero_seqid : bool { newest, a_number };

} // namespace verbena::files

#pragma GCC visibility pop
