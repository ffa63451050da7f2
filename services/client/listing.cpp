// SPDX-License-Identifier: Apache-2.0
#include "listing.hpp"

#include <array>
#include <cstdio>
#include <ctime>

namespace verbena::cli {

std::string mode_text(const nfs::v3::fattr3& a)
{
    constexpr std::string_view types = "?-dbclsp"; // by ftype3
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

const char* type_text(nfs::v3::ftype3 type) noexcept
{
    switch (type) {
    case nfs::v3::ftype3::reg: return "file";
    case nfs::v3::ftype3::dir: return "directory";
    case nfs::v3::ftype3::blk: return "block device";
    case nfs::v3::ftype3::chr: return "character device";
    case nfs::v3::ftype3::lnk: return "symlink";
    case nfs::v3::ftype3::sock: return "socket";
    case nfs::v3::ftype3::fifo: return "fifo";
    }
    return "unknown";
}

std::string time_text(const nfs::v3::nfstime3& t, bool precise)
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
