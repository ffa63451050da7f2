// SPDX-License-Identifier: Apache-2.0
// short_text: text of a bounded length that lies in its object, for what is said where nothing may be allocated.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena {

/// At most `Most` octets. What does not fit is cut off.
template<std::size_t Most>
class short_text {
    static_assert(Most <= UINT16_MAX);

public:
    short_text() noexcept {} // the octets stay as they are
    /// A copy of `text`, cut off where there is no room.
    short_text(std::string_view text) noexcept { append(text); }

    /// Adds a copy behind what is there, cut off where there is no room. No memory is allocated.
    short_text& append(std::string_view text) noexcept
    {
        const std::size_t n = std::min(text.size(), Most - size_);
        std::copy_n(text.begin(), n, octets_.data() + size_);
        size_ = static_cast<std::uint16_t>(size_ + n);
        return *this;
    }
    /// In decimal digits, or to another base.
    template<std::unsigned_integral N>
    short_text& append(N number, int base = 10) noexcept
    {
        std::array<char, 64> digits;
        const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, base);
        return append({digits.data(), static_cast<std::size_t>(end.ptr - digits.data())});
    }
    void clear() noexcept { size_ = 0; }

    bool empty() const noexcept { return size_ == 0; }
    /// The text, which is borrowed from this object.
    std::string_view view() const noexcept { return {octets_.data(), size_}; }
    operator std::string_view() const noexcept { return view(); }

private:
    std::uint16_t size_ = 0;
    std::array<char, Most> octets_;
};

} // namespace verbena

#pragma GCC visibility pop
