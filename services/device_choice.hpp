// SPDX-License-Identifier: Apache-2.0
// An RDMA device, or one of its ports, as users name it: NAME or NAME:PORT.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace verbena {

struct device_choice {
    std::string name;       ///< as `verbena doctor` tells it; empty: none is chosen
    std::uint32_t port = 0; ///< 0: any
    std::string text() const { return port == 0 ? name : name + ":" + std::to_string(port); }
    bool operator==(const device_choice&) const = default;
};

/// Nothing: `text` is neither NAME nor NAME:PORT, where ports count from 1.
inline std::optional<device_choice> parse_device_choice(std::string_view text)
{
    device_choice d;
    const std::size_t colon = text.find(':');
    d.name = text.substr(0, colon);
    const auto plain = [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
               c == '-' || c == '.';
    };
    if (d.name.empty() || !std::ranges::all_of(d.name, plain))
        return {};
    if (colon == std::string_view::npos)
        return d;
    const char* const end = text.data() + text.size();
    const auto [stop, failed] = std::from_chars(text.data() + colon + 1, end, d.port);
    if (failed != std::errc() || stop != end || d.port == 0)
        return {};
    return d;
}

} // namespace verbena
