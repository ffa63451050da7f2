// SPDX-License-Identifier: Apache-2.0
// Names that come from elsewhere, as a terminal may get them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena {

/// How many octets the well-formed UTF-8 character at the front of `text` has; 0 if there is none.
std::size_t utf8_character(std::string_view text) noexcept;
/// Whether all of `text` is well-formed UTF-8; an empty one is.
bool is_utf8(std::string_view text) noexcept;

/// Control characters, those of UTF-8's second block too, and octets that are no UTF-8 as `\ooo`, and a backslash as two, as
/// `ls -b` writes them. Whoever can make a file can put there what a terminal obeys.
std::string printable(std::string_view name);
/// Likewise, line by line: the ends of lines, and backslashes, are ours.
std::string printable_lines(std::string_view text);

} // namespace verbena

#pragma GCC visibility pop
