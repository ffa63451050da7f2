// SPDX-License-Identifier: Apache-2.0
// bitmap4: sets of attribute numbers, operation numbers and the like.
#pragma once

#include <verbena/protocols/xdr/codec.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// Bits 0 to 95, which are more than any RFC has given a meaning.
///
/// A bitmap of any length is legal. Decoding drops what has no place here, but beyond() tells of it: whoever only reads attributes
/// ignores it, whoever sets or compares them answers ATTRNOTSUPP.
class bitmap4 {
public:
    static constexpr std::size_t words = 3;
    static constexpr std::uint32_t bits = 32 * words;

    constexpr bitmap4() = default;
    /// With these bits set.
    template<class Number>
    constexpr bitmap4(std::initializer_list<Number> numbers) noexcept
    {
        for (const Number each : numbers)
            set(each);
    }

    /// `number` is below `bits`.
    template<class Number>
    constexpr void set(Number number) noexcept
    {
        const auto bit = static_cast<std::uint32_t>(number);
        words_[bit / 32] |= 1U << bit % 32;
    }
    /// Clears one bit.
    template<class Number>
    constexpr void reset(Number number) noexcept
    {
        const auto bit = static_cast<std::uint32_t>(number);
        words_[bit / 32] &= ~(1U << bit % 32);
    }
    /// False for numbers that have no place.
    template<class Number>
    constexpr bool test(Number number) const noexcept
    {
        const auto bit = static_cast<std::uint32_t>(number);
        return bit < bits && (words_[bit / 32] >> bit % 32 & 1) != 0;
    }
    /// No bit is set in bits 0 to 95.
    constexpr bool none() const noexcept { return (words_[0] | words_[1] | words_[2]) == 0; }
    /// A bit was set behind them when this was decoded.
    constexpr bool beyond() const noexcept { return beyond_; }
    /// All bits of this one, and those that it had no place for, are in `other`.
    constexpr bool is_subset_of(const bitmap4& other) const noexcept
    {
        return !beyond_ && (*this - other).none();
    }
    /// Bits 32 * `index` and the 31 behind it; below `words`.
    constexpr std::uint32_t word(std::size_t index) const noexcept { return words_[index]; }

    /// f(number) for each bit from the lowest to the highest, until it returns false. Whether all returned true.
    template<class F>
    constexpr bool for_each(F&& f) const
    {
        for (std::uint32_t i = 0; i < words; ++i) {
            for (std::uint32_t left = words_[i]; left != 0; left &= left - 1) {
                if (!f(32 * i + static_cast<std::uint32_t>(std::countr_zero(left))))
                    return false;
            }
        }
        return true;
    }

    friend constexpr bitmap4 operator&(bitmap4 a, const bitmap4& b) noexcept
    {
        for (std::size_t i = 0; i < words; ++i)
            a.words_[i] &= b.words_[i];
        a.beyond_ = false;
        return a;
    }
    friend constexpr bitmap4 operator|(bitmap4 a, const bitmap4& b) noexcept
    {
        for (std::size_t i = 0; i < words; ++i)
            a.words_[i] |= b.words_[i];
        return a;
    }
    friend constexpr bitmap4 operator-(bitmap4 a, const bitmap4& b) noexcept
    {
        for (std::size_t i = 0; i < words; ++i)
            a.words_[i] &= ~b.words_[i];
        return a;
    }
    friend constexpr bool operator==(const bitmap4&, const bitmap4&) = default;

private:
    friend struct xdr::codec<bitmap4>;
    std::array<std::uint32_t, words> words_{};
    bool beyond_ = false;
};

} // namespace verbena::nfs::v4

/// Written without zero words at its end.
template<>
struct verbena::xdr::codec<verbena::nfs::v4::bitmap4> {
    static constexpr std::size_t min_size = 4;
    static constexpr std::size_t max_size = 4 + 4 * nfs::v4::bitmap4::words;
    static void encode(encoder& out, const nfs::v4::bitmap4& value) noexcept;
    static void decode(decoder& in, nfs::v4::bitmap4& value) noexcept;
};

#pragma GCC visibility pop
