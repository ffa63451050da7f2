// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"

#include "../standard_output.hpp"
#include <verbena/core/printable.hpp>

#include <cstdio>
#include <unistd.h>

namespace verbena::cli {

void say(const std::string& text)
{
    flush_standard_output();
    // Names in it may be a server's; the lines are ours.
    std::fprintf(stderr, "%sverbena: %s\n", ::isatty(STDERR_FILENO) ? "\r\033[K" : "",
                 printable_lines(text).c_str());
}

} // namespace verbena::cli
