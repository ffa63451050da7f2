// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/byte_size.hpp>

#include <charconv>

namespace verbena {

std::optional<std::uint64_t> parse_byte_size(std::string_view text) noexcept
{
    std::uint64_t number = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (failed != std::errc())
        return std::nullopt;
    std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
    if (unit.empty())
        return number;
    constexpr std::string_view units = "KMGT";
    const char letter = unit.front() >= 'a' && unit.front() <= 'z'
                            ? static_cast<char>(unit.front() - 'a' + 'A')
                            : unit.front();
    const std::size_t power = units.find(letter);
    unit.remove_prefix(1);
    if (power == units.npos || !(unit.empty() || unit == "i" || unit == "iB"))
        return std::nullopt;
    const auto shift = static_cast<unsigned>(10 * (power + 1));
    if (number > UINT64_MAX >> shift)
        return std::nullopt;
    return number << shift;
}

} // namespace verbena
