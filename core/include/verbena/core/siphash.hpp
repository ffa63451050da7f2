// SPDX-License-Identifier: Apache-2.0
// SipHash-2-4 (Aumasson and Bernstein, 2012): a keyed 64-bit hash of short messages that nobody
// without the key can forge or collide.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#pragma GCC visibility push(default)

namespace verbena {

/// The 128 bits that the hash depends on. Secret where a peer must not find collisions: random_source::key().
using siphash_key = std::array<std::byte, 16>;

namespace detail {

constexpr std::uint64_t load_le64(const std::byte* bytes, std::size_t count) noexcept
{
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < count; ++i)
        value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
    return value;
}

struct siphash_state {
    std::uint64_t v0, v1, v2, v3;

    constexpr void round() noexcept
    {
        v0 += v1;
        v2 += v3;
        v1 = std::rotl(v1, 13) ^ v0;
        v3 = std::rotl(v3, 16) ^ v2;
        v0 = std::rotl(v0, 32) + v3;
        v2 += v1;
        v3 = std::rotl(v3, 21) ^ v0;
        v1 = std::rotl(v1, 17) ^ v2;
        v2 = std::rotl(v2, 32);
    }
    constexpr void absorb(std::uint64_t word) noexcept
    {
        v3 ^= word;
        round();
        round();
        v0 ^= word;
    }
};

} // namespace detail

/// The hash of `message` under `key`. Some 20 ns for a file handle; never allocates.
constexpr std::uint64_t siphash(const siphash_key& key, std::span<const std::byte> message) noexcept
{
    const std::uint64_t k0 = detail::load_le64(key.data(), 8);
    const std::uint64_t k1 = detail::load_le64(key.data() + 8, 8);
    // The four words spell "somepseudorandomlygeneratedbytes".
    detail::siphash_state state{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261,
                                k1 ^ 0x7465646279746573};
    const std::size_t whole = message.size() / 8 * 8;
    for (std::size_t i = 0; i < whole; i += 8)
        state.absorb(detail::load_le64(message.data() + i, 8));
    state.absorb(detail::load_le64(message.data() + whole, message.size() - whole) |
                 std::uint64_t(message.size()) << 56);
    state.v2 ^= 0xff;
    for (int i = 0; i < 4; ++i)
        state.round();
    return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

} // namespace verbena

#pragma GCC visibility pop
