// SPDX-License-Identifier: Apache-2.0
// Hand-made messages for the codec tests: hex text with spaces and line ends anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::test {

inline std::vector<std::byte> from_hex(std::string_view text)
{
    std::vector<std::byte> bytes;
    int high = -1;
    for (const char c : text) {
        int digit;
        if (c >= '0' && c <= '9')
            digit = c - '0';
        else if (c >= 'a' && c <= 'f')
            digit = c - 'a' + 10;
        else if (c == ' ' || c == '\n')
            continue;
        else
            throw std::invalid_argument("not a hex digit in a test vector");
        if (high < 0) {
            high = digit;
        } else {
            bytes.push_back(static_cast<std::byte>(high << 4 | digit));
            high = -1;
        }
    }
    if (high >= 0)
        throw std::invalid_argument("odd number of hex digits in a test vector");
    return bytes;
}

/// Groups of four bytes, so that a failed comparison shows where two messages part.
inline std::string to_hex(std::span<const std::byte> bytes)
{
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (i != 0 && i % 4 == 0)
            text += ' ';
        text += digits[std::to_integer<unsigned>(bytes[i]) >> 4];
        text += digits[std::to_integer<unsigned>(bytes[i]) & 15];
    }
    return text;
}

inline std::string to_hex(std::string_view hex) { return to_hex(from_hex(hex)); }

inline std::string text_of(std::span<const std::byte> bytes)
{
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

} // namespace verbena::test
