// SPDX-License-Identifier: Apache-2.0
// What is logged, for a test to read.
#pragma once

#include <verbena/core/log.hpp>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::test {

/// Takes all lines as long as it lives. The level is the caller's (log_at).
class lines_of_log {
public:
    lines_of_log()
    {
        set_log_capture(
            [](void* to, std::string_view line) {
                static_cast<std::vector<std::string>*>(to)->emplace_back(line);
            },
            &all);
    }
    lines_of_log(const lines_of_log&) = delete;
    ~lines_of_log() { set_log_capture(nullptr, nullptr); }
    /// How many have each of `parts`.
    std::size_t count(std::initializer_list<std::string_view> parts) const
    {
        return std::size_t(std::ranges::count_if(all, [&](const std::string& line) {
            return std::ranges::all_of(parts,
                                       [&](auto part) { return line.find(part) != std::string::npos; });
        }));
    }
    std::vector<std::string> all;
};

} // namespace verbena::test
