// SPDX-License-Identifier: Apache-2.0
// What the server says in the log of clients that have one name.
#pragma once

#include <verbena/core/log.hpp>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::test {

/// Takes what is logged as long as it lives.
struct log_lines {
    log_lines()
    {
        set_log_capture(
            [](void* to, std::string_view line) {
                static_cast<std::vector<std::string>*>(to)->emplace_back(line);
            },
            &all);
    }
    ~log_lines() { set_log_capture(nullptr, nullptr); }
    /// How many of a name that two have, with each of `parts`.
    std::size_t of_names(std::initializer_list<std::string_view> parts = {}) const
    {
        return std::size_t(std::ranges::count_if(all, [&](const std::string& line) {
            return line.find("has the name of another one") != std::string::npos &&
                   std::ranges::all_of(parts,
                                       [&](auto part) { return line.find(part) != std::string::npos; });
        }));
    }
    std::vector<std::string> all;
};

} // namespace verbena::test
