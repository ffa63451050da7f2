// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"

#include "../standard_output.hpp"
#include <verbena/core/printable.hpp>

#include <cstdio>
#include <iterator>
#include <unistd.h>

namespace verbena::cli {

void say(const std::string& text)
{
    flush_standard_output();
    // Names in it may be a server's; the lines are ours.
    std::fprintf(stderr, "%sverbena: %s\n", ::isatty(STDERR_FILENO) ? "\r\033[K" : "",
                 printable_lines(text).c_str());
}

int complain(const std::string& text, int code)
{
    say(text);
    return code;
}

result<url> url_argument(const std::string& text)
{
    auto parsed = parse_url(text);
    if (!parsed)
        complain(text + ": " + parsed.error().context() +
                     "\n  a URL looks like nfs+iwarp://host/export/path or " +
                     "nfs+tcp://[2001:db8::7]:2049/export/path?mountport=N",
                 exit_usage);
    return parsed;
}

std::string counted(std::uint64_t n, const char* thing)
{
    return std::to_string(n) + " " + thing + (n == 1 ? "" : "s");
}

std::string human(std::uint64_t bytes)
{
    constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= 1024 && unit + 1 < std::size(units)) {
        value /= 1024;
        ++unit;
    }
    char text[32];
    std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

} // namespace verbena::cli
