// SPDX-License-Identifier: Apache-2.0
// What `verbena top` shows, as lines.
#pragma once

#include "model.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace verbena::cli {

/// One line, and whether it is the head of a table.
struct top_line {
    std::string text;
    bool is_head = false;
};

/// "1.2k", "3.4 MiB/s", "120 us"; "-" of nothing.
std::string text_of(top_value value, top_unit unit);
/// The lines in front of the tables.
std::vector<top_line> header_lines(const top_view& v);
/// All tables. `idle`: also rows in which nothing happens. No line is longer than `width`, where that is not 0.
std::vector<top_line> table_lines(const top_view& v, bool idle, std::size_t width = 0);

/// The screen: what of the lines is seen, and what keys do to it.
struct top_screen {
    std::size_t sorted_by = 1; ///< for top_model::view()
    std::size_t scrolled = 0;  ///< lines of the tables that are above the screen
    bool shows_idle = false;
    bool has_ended = false;

    enum class key : unsigned char { quit, sort, up, down, page_up, page_down, home, idle };
    /// `lines`: of the tables; `height`: of the screen, with header and keys.
    void press(key k, std::size_t lines, std::size_t height);
    /// Never more lines than `height`, the last one with the keys.
    std::vector<top_line> lines(const top_view& v, std::size_t width, std::size_t height);
    /// By what rows are sorted: "calls/s".
    std::string sort_text(const top_view& v) const;
};

} // namespace verbena::cli
