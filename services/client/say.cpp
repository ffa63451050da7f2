// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"
#include "listing.hpp"

#include "../standard_output.hpp"

#include <algorithm>
#include <cstdio>
#include <unistd.h>

namespace verbena::cli {

void say(const std::string& text)
{
    flush_standard_output();
    // Names in it may be a server's; the lines are ours.
    std::string shown;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        shown += printable(std::string_view(text).substr(begin, end - begin)) + '\n';
        begin = end + 1;
    }
    std::fprintf(stderr, "%sverbena: %s", ::isatty(STDERR_FILENO) ? "\r\033[K" : "", shown.c_str());
}

} // namespace verbena::cli
