// SPDX-License-Identifier: Apache-2.0
// Bytes that follow from a seed and from where they stand, so that whoever reads them can tell whether they are those that were written
// there.
#pragma once

#include <verbena/core/byte_order.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace verbena::cli {

/// Each 8 bytes of a device, little endian, are SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) of the seed and their number: no two words of
/// one seed are alike, and a word tells its number.
class block_pattern {
public:
    explicit block_pattern(std::uint64_t seed) noexcept : begin_(mix(seed)) {}

    /// What stands at `offset`, which is a multiple of 8 as the size is.
    void fill(std::uint64_t offset, std::span<std::byte> into) const noexcept
    {
        for (std::size_t i = 0; i < into.size(); i += word)
            store_little_endian(into.data() + i, at(offset + i));
    }
    bool is_at(std::uint64_t offset, std::span<const std::byte> bytes) const noexcept
    {
        for (std::size_t i = 0; i < bytes.size(); i += word) {
            if (load(bytes.data() + i) != at(offset + i))
                return false;
        }
        return true;
    }
    /// How many words, of 8 bytes, are those that stand there.
    std::size_t words_at(std::uint64_t offset, std::span<const std::byte> bytes) const noexcept
    {
        std::size_t right = 0;
        for (std::size_t i = 0; i < bytes.size(); i += word)
            right += load(bytes.data() + i) == at(offset + i) ? 1 : 0;
        return right;
    }
    /// Where in a device of `size` bytes these bytes belong, by the same seed. Nothing if they belong nowhere.
    std::optional<std::uint64_t> place_of(std::span<const std::byte> bytes, std::uint64_t size) const noexcept
    {
        const std::uint64_t number = (unmix(load(bytes.data())) - begin_) * inverse_of(gamma);
        if (number >= size / word || size - number * word < bytes.size() || !is_at(number * word, bytes))
            return std::nullopt;
        return number * word;
    }

    static constexpr std::size_t word = 8; ///< bytes

private:
    static constexpr std::uint64_t gamma = 0x9e3779b97f4a7c15; // odd, so that it has an inverse
    static constexpr std::uint64_t inverse_of(std::uint64_t odd) noexcept
    {
        std::uint64_t inverse = odd; // right to 3 bits; each step doubles them
        for (int i = 0; i < 5; ++i)
            inverse *= 2 - odd * inverse;
        return inverse;
    }
    static constexpr std::uint64_t first = 0xbf58476d1ce4e5b9;
    static constexpr std::uint64_t second = 0x94d049bb133111eb;

    static constexpr std::uint64_t mix(std::uint64_t z) noexcept
    {
        z = (z ^ (z >> 30)) * first;
        z = (z ^ (z >> 27)) * second;
        return z ^ (z >> 31);
    }
    static constexpr std::uint64_t unmix(std::uint64_t z) noexcept
    {
        z = (z ^ (z >> 31) ^ (z >> 62)) * inverse_of(second);
        z = (z ^ (z >> 27) ^ (z >> 54)) * inverse_of(first);
        return z ^ (z >> 30) ^ (z >> 60);
    }
    std::uint64_t at(std::uint64_t offset) const noexcept { return mix(begin_ + offset / word * gamma); }
    static std::uint64_t load(const std::byte* from) noexcept
    {
        return load_little_endian<std::uint64_t>(from);
    }

    const std::uint64_t begin_;
};

} // namespace verbena::cli
