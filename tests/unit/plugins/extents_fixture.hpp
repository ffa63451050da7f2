// SPDX-License-Identifier: Apache-2.0
// A back end under test, asked for holes, data and extended attributes.
#pragma once

#include "backend_fixture.hpp"

#include <algorithm>

namespace suite {

/// More than a block of any back end.
constexpr std::uint64_t piece = 128 << 10;

struct extents : fixture {
    std::uint64_t data(const handle& f, std::uint64_t offset)
    {
        return must(fs->seek(me, f, offset, extent::data)).offset;
    }
    std::uint64_t hole(const handle& f, std::uint64_t offset)
    {
        return must(fs->seek(me, f, offset, extent::hole)).offset;
    }
    /// Waits until a change shows in the ctime.
    void let_the_clock_tick(const handle& f)
    {
        const file_time before = stat(f).ctime;
        set_attributes set;
        do {
            set.mode = stat(f).mode;
            must(fs->setattr(me, f, set, std::nullopt));
        } while (stat(f).ctime == before);
        const file_time last = stat(f).ctime;
        do
            must(fs->setattr(me, f, set, std::nullopt));
        while (stat(f).ctime == last);
    }
    int set(const request& who, const handle& f, std::string_view name, std::string_view value,
            xattr_mode mode = xattr_mode::either)
    {
        return fails(fs->setxattr(who, f, name, bytes(value), mode));
    }
    std::string xattr(const handle& f, std::string_view name)
    {
        const auto value = must(fs->getxattr(me, f, name));
        return {reinterpret_cast<const char*>(value.data()), value.size()};
    }
    std::vector<std::string> xattrs(const handle& f)
    {
        auto names = must(fs->listxattrs(me, f));
        std::ranges::sort(names);
        return names;
    }
};

} // namespace suite
