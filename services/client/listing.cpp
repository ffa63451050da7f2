// SPDX-License-Identifier: Apache-2.0
#include "listing.hpp"

#include <array>
#include <cstdio>
#include <ctime>

namespace verbena::cli {

std::string mode_text(const attributes& a)
{
    constexpr std::string_view types = "?-dbclsp"; // by their numbers
    const auto type = static_cast<std::size_t>(a.type);
    std::string text(1, type < types.size() ? types[type] : '?');
    constexpr std::string_view bits = "rwxrwxrwx";
    for (std::size_t i = 0; i < bits.size(); ++i)
        text += (a.mode >> (8 - i) & 1) != 0 ? bits[i] : '-';
    const auto special = [&](unsigned bit, std::size_t at, char with_x, char without) {
        if ((a.mode & bit) != 0)
            text[at] = text[at] == 'x' ? with_x : without;
    };
    special(04000, 3, 's', 'S');
    special(02000, 6, 's', 'S');
    special(01000, 9, 't', 'T');
    return text;
}

const char* type_text(file_type type) noexcept
{
    switch (type) {
    case file_type::reg: return "file";
    case file_type::dir: return "directory";
    case file_type::blk: return "block device";
    case file_type::chr: return "character device";
    case file_type::lnk: return "symlink";
    case file_type::sock: return "socket";
    case file_type::fifo: return "fifo";
    case file_type::attrdir:
    case file_type::namedattr: break;
    }
    return "unknown";
}

std::string time_text(const file_time& t, bool precise)
{
    const auto seconds = static_cast<std::time_t>(t.seconds);
    std::tm parts{};
    ::localtime_r(&seconds, &parts);
    std::array<char, 64> text{};
    std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
    if (!precise)
        return text.data();
    std::array<char, 16> zone{};
    std::strftime(zone.data(), zone.size(), "%z", &parts);
    std::array<char, 16> fraction{};
    std::snprintf(fraction.data(), fraction.size(), ".%09u ", t.nseconds % 1'000'000'000);
    return std::string(text.data()) + fraction.data() + zone.data();
}

} // namespace verbena::cli
