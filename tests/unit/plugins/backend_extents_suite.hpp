// SPDX-License-Identifier: Apache-2.0
// What every back end that has them must do with holes, room, copies and extended attributes.
#pragma once

#include "extents_fixture.hpp"

namespace suite {

BOOST_FIXTURE_TEST_SUITE(every_backend_with_extents, extents)

BOOST_AUTO_TEST_CASE(holes_and_data_are_found)
{
    const handle f = make_file("f");
    put(me, f, piece, std::string(piece, 'x'));
    put(me, f, 3 * piece, "x");
    BOOST_TEST(hole(f, 0) == 0u);
    BOOST_TEST(data(f, 0) == piece);
    BOOST_TEST(data(f, piece + 5) == piece + 5);
    BOOST_TEST(hole(f, piece + 5) == 2 * piece);
    BOOST_TEST(data(f, 2 * piece) == 3 * piece);
    // The end of the file is a hole.
    const auto last = must(fs->seek(me, f, 3 * piece, extent::hole));
    BOOST_TEST(last.offset == 3 * piece + 1);
    BOOST_TEST(last.end_of_file);
    BOOST_TEST(!must(fs->seek(me, f, 3 * piece, extent::data)).end_of_file);
    BOOST_TEST(fails(fs->seek(me, f, 3 * piece + 1, extent::data)) == ENXIO);
    BOOST_TEST(fails(fs->seek(me, f, 3 * piece + 1, extent::hole)) == ENXIO);
    BOOST_TEST(fails(fs->seek(me, f, ~std::uint64_t(0), extent::hole)) == ENXIO);
    set_attributes set;
    set.size = 5 * piece;
    must(fs->setattr(me, f, set, std::nullopt));
    const auto none = must(fs->seek(me, f, 4 * piece, extent::data));
    BOOST_TEST(none.offset == 5 * piece);
    BOOST_TEST(none.end_of_file);
    BOOST_TEST(fails(fs->seek(me, fs->root(), 0, extent::data)) == EISDIR);
}

BOOST_AUTO_TEST_CASE(room_is_taken_and_given_back)
{
    const handle f = make_file("f", "begin");
    const attributes before = stat(f);
    let_the_clock_tick(f);
    const auto taken = must(fs->allocate(me, f, piece, piece));
    BOOST_REQUIRE(taken.after);
    BOOST_TEST(taken.after->size == 2 * piece);
    BOOST_TEST(taken.after->used >= before.used + piece);
    BOOST_TEST(!(stat(f).ctime == before.ctime));
    BOOST_TEST(!(stat(f).mtime == before.mtime));
    BOOST_TEST(get(me, f, 0, 10) == std::string("begin") + std::string(5, '\0'));
    // Bytes and size stay.
    put(me, f, piece, std::string(piece, 'x'));
    must(fs->allocate(me, f, 0, piece + 100));
    BOOST_TEST(stat(f).size == 2 * piece);
    BOOST_TEST(get(me, f, piece, 2) == "xx");
    const attributes full = stat(f);
    let_the_clock_tick(f);
    const auto given = must(fs->deallocate(me, f, 2, 2 * piece - 4));
    BOOST_REQUIRE(given.after);
    BOOST_TEST(given.after->size == 2 * piece);
    BOOST_TEST(given.after->used < full.used);
    BOOST_TEST(!(given.after->ctime == full.ctime));
    BOOST_TEST(get(me, f, 0, 4) == std::string("be\0\0", 4));
    BOOST_TEST(get(me, f, 2 * piece - 4) == std::string("\0\0xx", 4));
    BOOST_TEST(get(me, f, piece, 100) == std::string(100, '\0'));
    BOOST_TEST(hole(f, 2) < piece);
    // Behind the end there is nothing to be given back, and the file ends where it did.
    must(fs->deallocate(me, f, 3 * piece, piece));
    BOOST_TEST(stat(f).size == 2 * piece);
}

BOOST_AUTO_TEST_CASE(a_range_within_a_block_is_cleared)
{
    const handle f = make_file("f", std::string(1000, 'x'));
    must(fs->deallocate(me, f, 100, 200));
    BOOST_TEST(get(me, f) == std::string(100, 'x') + std::string(200, '\0') + std::string(700, 'x'));
    must(fs->deallocate(me, f, 0, 50));
    BOOST_TEST(get(me, f, 0, 100) == std::string(50, '\0') + std::string(50, 'x'));
}

BOOST_AUTO_TEST_CASE(ranges_are_checked)
{
    const handle f = make_file("f", "x");
    const std::uint64_t far = std::uint64_t(1) << 63;
    BOOST_TEST(fails(fs->allocate(me, f, 0, 0)) == EINVAL);
    BOOST_TEST(fails(fs->deallocate(me, f, 0, 0)) == EINVAL);
    BOOST_TEST(fails(fs->allocate(me, f, far - 1, 1)) == EFBIG);
    BOOST_TEST(fails(fs->deallocate(me, f, far, 1)) == EFBIG);
    BOOST_TEST(fails(fs->allocate(me, f, far - 2, 2)) == EFBIG);
    BOOST_TEST(fails(fs->allocate(me, fs->root(), 0, 1)) == EISDIR);
    BOOST_TEST(fails(fs->copy(me, f, 0, f, far - 1, 1)) == EFBIG);
    BOOST_TEST(fails(fs->copy(me, fs->root(), 0, f, 0, 1)) == EISDIR);
    BOOST_TEST(fails(fs->copy(me, f, 0, fs->root(), 0, 1)) == EISDIR);
    // More than there is anywhere.
    BOOST_TEST(fails(fs->allocate(me, f, 0, std::uint64_t(1) << 50)) != 0);
    BOOST_TEST(stat(f).size == 1u);
}

BOOST_AUTO_TEST_CASE(bytes_are_copied)
{
    const handle from = make_file("from", "0123456789");
    const handle to = make_file("to", "abcdef");
    const auto part = must(fs->copy(me, from, 2, to, 4, 3));
    BOOST_TEST(part.count == 3u);
    BOOST_TEST(part.file.after->size == 7u);
    BOOST_TEST(get(me, to) == "abcd234");
    BOOST_TEST(get(me, from) == "0123456789");
    // No more than there is.
    BOOST_TEST(must(fs->copy(me, from, 8, to, 0, 100)).count == 2u);
    BOOST_TEST(get(me, to) == "89cd234");
    BOOST_TEST(must(fs->copy(me, from, 10, to, 0, 100)).count == 0u);
    BOOST_TEST(must(fs->copy(me, from, 1000, to, 0, 100)).count == 0u);
    BOOST_TEST(stat(to).size == 7u);
    // Within a file, as far as nothing is overwritten that is still to be copied.
    BOOST_TEST(must(fs->copy(me, from, 0, from, 5, 5)).count == 5u);
    BOOST_TEST(get(me, from) == "0123401234");
    BOOST_TEST(fails(fs->copy(me, from, 0, from, 4, 5)) == EINVAL);
    BOOST_TEST(fails(fs->copy(me, from, 4, from, 0, 5)) == EINVAL);
}

BOOST_AUTO_TEST_CASE(a_long_copy_is_made_in_pieces)
{
    std::string text(3 << 20, 0);
    for (std::size_t i = 0; i < text.size(); ++i)
        text[i] = char(i * 7 + i / 1000);
    const handle from = make_file("from", text);
    const handle to = make_file("to");
    std::uint64_t done = 0;
    while (done < text.size()) {
        const auto some = must(fs->copy(me, from, done, to, done, text.size()));
        BOOST_TEST_REQUIRE(some.count != 0u);
        done += some.count;
    }
    BOOST_TEST(done == text.size());
    BOOST_TEST((get(me, to, 0, text.size()) == text));
    must(fs->commit(me, to, 0, 0));
}

BOOST_AUTO_TEST_CASE(whoever_may_not_read_or_write_gets_no_further)
{
    if (!tells_users_apart())
        return;
    const handle mine = make_file("mine", "secret", 0600);
    const request other = user(1001, 1001);
    const handle theirs = make_file(other, fs->root(), "theirs", "theirs", 0600);
    BOOST_TEST(fails(fs->seek(other, mine, 0, extent::data)) == EACCES);
    BOOST_TEST(fails(fs->allocate(other, mine, 0, 10)) == EACCES);
    BOOST_TEST(fails(fs->deallocate(other, mine, 0, 10)) == EACCES);
    BOOST_TEST(fails(fs->copy(other, mine, 0, theirs, 0, 3)) == EACCES);
    BOOST_TEST(fails(fs->copy(other, theirs, 0, mine, 0, 3)) == EACCES);
    BOOST_TEST(fails(fs->clone(other, mine, 0, theirs, 0, 0)) == EACCES);
    BOOST_TEST(fails(fs->clone(other, theirs, 0, mine, 0, 0)) == EACCES);
    BOOST_TEST(get(me, mine) == "secret");
    BOOST_TEST(set(other, mine, "a", "x") == EACCES);
    BOOST_TEST(set(me, mine, "a", "x") == 0);
    BOOST_TEST(fails(fs->getxattr(other, mine, "a")) == EACCES);
    BOOST_TEST(fails(fs->removexattr(other, mine, "a")) == EACCES);
    // Set-ID bits fall as they do for a write.
    const handle program = make_file(other, fs->root(), "program", std::string(100, 'x'));
    set_attributes mode;
    mode.mode = 06777;
    const auto loses_them = [&](auto change) {
        must(fs->setattr(other, program, mode, std::nullopt));
        BOOST_TEST(stat(program).mode == 06777u);
        must(std::move(change));
        BOOST_TEST(stat(program).mode == 0777u);
    };
    loses_them(fs->allocate(other, program, 0, 200));
    loses_them(fs->deallocate(other, program, 0, 100));
    loses_them(fs->copy(other, theirs, 0, program, 0, 3));
}

BOOST_AUTO_TEST_CASE(nothing_changes_through_a_read_only_back_end)
{
    const handle f = make_file("f", "x");
    must(fs->setxattr(me, f, "a", bytes("1"), xattr_mode::either));
    const auto writable = std::move(fs);
    fs = make_backend(pool, {.read_only = true});
    // Its files may be others; what is refused is refused whatever the file.
    const handle there = fs->root();
    BOOST_TEST(fails(fs->allocate(me, there, 0, 1)) == EROFS);
    BOOST_TEST(fails(fs->deallocate(me, there, 0, 1)) == EROFS);
    BOOST_TEST(fails(fs->copy(me, there, 0, there, 10, 1)) == EROFS);
    BOOST_TEST(fails(fs->clone(me, there, 0, there, 0, 0)) == EROFS);
    BOOST_TEST(fails(fs->setxattr(me, there, "a", bytes("2"), xattr_mode::either)) == EROFS);
    BOOST_TEST(fails(fs->removexattr(me, there, "a")) == EROFS);
}

BOOST_AUTO_TEST_CASE(extended_attributes_come_and_go)
{
    const handle d = make_directory(fs->root(), "d");
    for (const handle& f : {make_file("f"), d}) {
        BOOST_TEST(xattrs(f).empty());
        BOOST_TEST(fails(fs->getxattr(me, f, "a")) == ENODATA);
        BOOST_TEST(fails(fs->removexattr(me, f, "a")) == ENODATA);
        BOOST_TEST(set(me, f, "a", "1", xattr_mode::replace) == ENODATA);
        BOOST_TEST(set(me, f, "a", "1", xattr_mode::create) == 0);
        BOOST_TEST(set(me, f, "a", "2", xattr_mode::create) == EEXIST);
        BOOST_TEST(xattr(f, "a") == "1");
        BOOST_TEST(set(me, f, "a", "two", xattr_mode::replace) == 0);
        BOOST_TEST(set(me, f, "b.c/d", std::string_view("\0\xff", 2)) == 0);
        BOOST_TEST(set(me, f, "empty", "") == 0);
        BOOST_TEST(xattr(f, "a") == "two");
        BOOST_TEST(xattr(f, "b.c/d") == std::string("\0\xff", 2));
        BOOST_TEST(xattr(f, "empty") == "");
        BOOST_CHECK(xattrs(f) == (std::vector<std::string>{"a", "b.c/d", "empty"}));
        const file_time before = stat(f).ctime;
        let_the_clock_tick(f);
        const auto changed = must(fs->removexattr(me, f, "a"));
        BOOST_REQUIRE(changed.after);
        BOOST_TEST(!(changed.after->ctime == before));
        BOOST_CHECK(xattrs(f) == (std::vector<std::string>{"b.c/d", "empty"}));
        BOOST_TEST(fails(fs->getxattr(me, f, "a")) == ENODATA);
    }
}

BOOST_AUTO_TEST_CASE(extended_attributes_have_limits)
{
    const handle f = make_file("f");
    BOOST_TEST(set(me, f, "", "x") == EINVAL);
    BOOST_TEST(set(me, f, std::string_view("a\0b", 3), "x") == EINVAL);
    BOOST_TEST(set(me, f, std::string(250, 'n'), "x") == 0);
    BOOST_TEST(set(me, f, std::string(251, 'n'), "x") == ENAMETOOLONG);
    BOOST_TEST(fails(fs->getxattr(me, f, std::string(251, 'n'))) == ENAMETOOLONG);
    BOOST_TEST(set(me, f, "big", std::string(65537, 'x')) == E2BIG);
    BOOST_CHECK(xattrs(f) == std::vector<std::string>{std::string(250, 'n')});
    // Files and directories alone have them.
    const handle link = must(fs->symlink(me, fs->root(), "s", "f", {})).made.handle;
    const handle pipe = must(fs->mknod(me, fs->root(), "p", file_type::fifo, 0, 0, {})).made.handle;
    for (const handle& other : {link, pipe}) {
        BOOST_TEST(set(me, other, "a", "x") == EPERM);
        BOOST_TEST(fails(fs->getxattr(me, other, "a")) == ENODATA);
        BOOST_TEST(xattrs(other).empty());
    }
    BOOST_TEST(fs->info().xattrs);
}

BOOST_AUTO_TEST_SUITE_END()

} // namespace suite
