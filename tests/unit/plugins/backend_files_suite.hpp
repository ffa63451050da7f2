// SPDX-License-Identifier: Apache-2.0
// What every back end must do with files: data, attributes, how they are made.
#pragma once

#include "backend_fixture.hpp"

namespace suite {

BOOST_FIXTURE_TEST_SUITE(every_backend, fixture)

BOOST_AUTO_TEST_CASE(root_is_a_directory)
{
    const attributes a = stat(fs->root());
    BOOST_TEST(int(a.type) == int(file_type::directory));
    BOOST_TEST(a.fileid != 0u);
    BOOST_TEST(a.fsid != 0u);
    BOOST_TEST(a.mode == 0777u);
}

BOOST_AUTO_TEST_CASE(a_file_comes_back_as_written)
{
    const handle f = make_file("a", "hello, world", 0640);
    const attributes a = stat(f);
    BOOST_TEST(int(a.type) == int(file_type::regular));
    BOOST_TEST(a.mode == 0640u);
    BOOST_TEST(a.size == 12u);
    BOOST_TEST(a.links == 1u);
    BOOST_TEST(a.uid == me.who.uid);
    BOOST_TEST(a.fsid == stat(fs->root()).fsid);
    BOOST_TEST(get(me, f) == "hello, world");
    BOOST_TEST(get(me, f, 7, 3) == "wor");
    BOOST_TEST(get(me, f, 12) == "");
    BOOST_TEST(get(me, f, std::uint64_t(1) << 63) == "");
    BOOST_TEST((find(fs->root(), "a") == f));
}

BOOST_AUTO_TEST_CASE(a_umask_takes_bits_from_the_mode_of_what_is_made)
{
    set_attributes set;
    set.mode = 0666;
    set.umask = 026;
    BOOST_TEST(must(fs->create(me, fs->root(), "f", create_mode::guarded, set, 0)).made.attrs->mode == 0640u);
    BOOST_TEST(must(fs->create(me, fs->root(), "x", create_mode::exclusive, set, 7)).made.attrs->mode ==
               0640u);
    set.mode = 0777;
    BOOST_TEST(must(fs->mkdir(me, fs->root(), "d", set)).made.attrs->mode == 0751u);
    BOOST_TEST(must(fs->mknod(me, fs->root(), "p", file_type::fifo, 0, 0, set)).made.attrs->mode == 0751u);
    // What is there keeps what it has.
    BOOST_TEST(must(fs->create(me, fs->root(), "f", create_mode::unchecked, set, 0)).made.attrs->mode ==
               0640u);
}

BOOST_AUTO_TEST_CASE(read_tells_the_end_of_the_file)
{
    const handle f = make_file("a", "0123456789");
    std::byte out[10];
    auto all = must(fs->read(me, f, 0, out));
    BOOST_TEST(all.count == 10u);
    BOOST_TEST(all.end_of_file);
    auto part = must(fs->read(me, f, 0, std::span(out, 9)));
    BOOST_TEST(part.count == 9u);
    BOOST_TEST(!part.end_of_file);
    auto nothing = must(fs->read(me, f, 4, std::span(out, 0)));
    BOOST_TEST(nothing.count == 0u);
    BOOST_TEST(!nothing.end_of_file);
    auto after = must(fs->read(me, f, 1'000'000, out));
    BOOST_TEST(after.count == 0u);
    BOOST_TEST(after.end_of_file);
    BOOST_REQUIRE(after.attrs);
    BOOST_TEST(after.attrs->size == 10u);
}

BOOST_AUTO_TEST_CASE(write_gathers_and_leaves_holes)
{
    const handle f = make_file("a");
    const std::string parts[3] = {"abc", "", "defg"};
    std::vector<std::span<const std::byte>> pieces;
    for (const auto& p : parts)
        pieces.push_back(bytes(p));
    auto w = must(fs->write(me, f, 100'000, pieces, stability::unstable));
    BOOST_TEST(w.count == 7u);
    BOOST_TEST(int(w.committed) == int(stability::unstable));
    BOOST_REQUIRE(w.file.after);
    BOOST_TEST(w.file.after->size == 100'007u);
    BOOST_TEST(get(me, f, 99'998) == std::string(2, 0) + "abcdefg");
    BOOST_TEST(get(me, f, 0, 4) == std::string(4, 0));
    // More pieces than one gathered write takes.
    std::vector<std::span<const std::byte>> many(200, bytes(parts[0]));
    BOOST_TEST(must(fs->write(me, f, 0, many, stability::unstable)).count == 600u);
    BOOST_TEST(get(me, f, 597, 3) == "abc");
}

BOOST_AUTO_TEST_CASE(a_large_file_comes_back_as_written)
{
    const handle f = make_file("a");
    std::string big(3'000'000, 0);
    for (std::size_t i = 0; i < big.size(); ++i)
        big[i] = char(i * 2654435761u >> 13);
    put(me, f, 0, big);
    BOOST_TEST((get(me, f, 0, big.size()) == big));
    BOOST_TEST((get(me, f, 65'530, 20) == big.substr(65'530, 20)));
}

BOOST_AUTO_TEST_CASE(write_says_how_stable_it_is)
{
    const handle f = make_file("a");
    BOOST_TEST(int(must(write(me, f, 0, "x", stability::file_sync)).committed) == int(stability::file_sync));
    BOOST_TEST(int(must(write(me, f, 0, "x", stability::data_sync)).committed) >= int(stability::data_sync));
    BOOST_TEST(must(fs->commit(me, f, 0, 0)).after->size == 1u);
}

BOOST_AUTO_TEST_CASE(offsets_past_the_end_of_everything_are_refused)
{
    const handle f = make_file("a", "x");
    BOOST_TEST(fails(write(me, f, ~std::uint64_t(0) - 1, "abc")) == EFBIG);
    BOOST_TEST(fails(write(me, f, (std::uint64_t(1) << 63) - 1, "abc")) == EFBIG);
    set_attributes set;
    set.size = ~std::uint64_t(0);
    BOOST_TEST(fails(fs->setattr(me, f, set, std::nullopt)) == EFBIG);
    BOOST_TEST(stat(f).size == 1u);
}

BOOST_AUTO_TEST_CASE(data_of_what_is_no_file)
{
    std::byte out[4];
    BOOST_TEST(fails(fs->read(me, fs->root(), 0, out)) == EISDIR);
    BOOST_TEST(fails(write(me, fs->root(), 0, "x")) == EISDIR);
    const handle l = must(fs->symlink(me, fs->root(), "l", "a", {})).made.handle;
    BOOST_TEST(fails(fs->read(me, l, 0, out)) == EINVAL);
    set_attributes set;
    set.size = 1;
    BOOST_TEST(fails(fs->setattr(me, l, set, std::nullopt)) == EINVAL);
    BOOST_TEST(fails(fs->setattr(me, fs->root(), set, std::nullopt)) == EISDIR);
}

BOOST_AUTO_TEST_CASE(create_modes)
{
    const handle root = fs->root();
    const handle f = make_file("f", "content");
    set_attributes set;
    set.mode = 0600;
    BOOST_TEST(fails(fs->create(me, root, "f", create_mode::guarded, set, 0)) == EEXIST);
    BOOST_TEST(get(me, f) == "content");
    // An unchecked create finds the file and leaves it alone, but for a size.
    BOOST_TEST((must(fs->create(me, root, "f", create_mode::unchecked, set, 0)).made.handle == f));
    BOOST_TEST(get(me, f) == "content");
    BOOST_TEST(stat(f).mode == 0644u);
    set.size = 0;
    auto again = must(fs->create(me, root, "f", create_mode::unchecked, set, 0));
    BOOST_TEST(again.made.attrs->size == 0u);
    BOOST_TEST(get(me, f) == "");
    make_directory(root, "d");
    BOOST_TEST(fails(fs->create(me, root, "d", create_mode::unchecked, set, 0)) == EEXIST);
    must(fs->symlink(me, root, "l", "f", {}));
    BOOST_TEST(fails(fs->create(me, root, "l", create_mode::unchecked, set, 0)) == EEXIST);
    set_attributes sized;
    sized.mode = 0644;
    sized.size = 5;
    BOOST_TEST(must(fs->create(me, root, "sized", create_mode::unchecked, sized, 0)).made.attrs->size == 5u);
}

BOOST_AUTO_TEST_CASE(exclusive_create_knows_its_verifier)
{
    const handle root = fs->root();
    const std::uint64_t verifier = 0x8000000180000002;
    const handle f = must(fs->create(me, root, "f", create_mode::exclusive, {}, verifier)).made.handle;
    BOOST_TEST((must(fs->create(me, root, "f", create_mode::exclusive, {}, verifier)).made.handle == f));
    for (std::uint64_t other : {verifier + 1, verifier ^ (std::uint64_t(1) << 63),
                                verifier ^ (std::uint64_t(1) << 31), std::uint64_t(0)})
        BOOST_TEST(fails(fs->create(me, root, "f", create_mode::exclusive, {}, other)) == EEXIST);
    make_file("plain");
    BOOST_TEST(fails(fs->create(me, root, "plain", create_mode::exclusive, {}, 0)) == EEXIST);
    // Whoever made it goes on to set its attributes.
    set_attributes set;
    set.mode = 0640;
    set.atime.how = set.mtime.how = set_time::kind::server_time;
    must(fs->setattr(me, f, set, std::nullopt));
    BOOST_TEST(stat(f).mode == 0640u);
    BOOST_TEST(fails(fs->create(me, root, "f", create_mode::exclusive, {}, verifier)) == EEXIST);
}

BOOST_AUTO_TEST_CASE(modes_stand_as_asked_for)
{
    // No umask in between, set-id bits included.
    set_attributes set;
    set.mode = 0666;
    BOOST_TEST(must(fs->create(me, fs->root(), "a", create_mode::guarded, set, 0)).made.attrs->mode == 0666u);
    set.mode = 01777;
    BOOST_TEST(must(fs->mkdir(me, fs->root(), "b", set)).made.attrs->mode == 01777u);
    set.mode = 02775;
    BOOST_TEST(must(fs->mkdir(me, fs->root(), "c", set)).made.attrs->mode == 02775u);
    set.mode = 06755;
    BOOST_TEST(must(fs->create(me, fs->root(), "e", create_mode::guarded, set, 0)).made.attrs->mode ==
               06755u);
}

BOOST_AUTO_TEST_CASE(setattr_sets_what_it_is_given)
{
    const handle f = make_file("f", "0123456789");
    set_attributes set;
    set.size = 4;
    auto c = must(fs->setattr(me, f, set, std::nullopt));
    BOOST_REQUIRE(c.after);
    BOOST_TEST(c.after->size == 4u);
    set.size = 6;
    must(fs->setattr(me, f, set, std::nullopt));
    BOOST_TEST(get(me, f) == std::string("0123\0\0", 6));
    set_attributes times;
    times.atime.how = times.mtime.how = set_time::kind::value;
    times.atime.value = {1'000'000'000, 123'000};
    times.mtime.value = {-5, 7'000};
    must(fs->setattr(me, f, times, std::nullopt));
    attributes a = stat(f);
    BOOST_TEST((a.atime == file_time{1'000'000'000, 123'000}));
    BOOST_TEST((a.mtime == file_time{-5, 7'000}));
    times = {};
    times.mtime.how = set_time::kind::server_time;
    must(fs->setattr(me, f, times, std::nullopt));
    a = stat(f);
    BOOST_TEST(a.mtime.seconds > 1'700'000'000);
    BOOST_TEST((a.atime == file_time{1'000'000'000, 123'000}));
    set_attributes mode;
    mode.mode = 0604;
    BOOST_TEST(must(fs->setattr(me, f, mode, std::nullopt)).after->mode == 0604u);
    BOOST_TEST(must(fs->setattr(me, f, {}, std::nullopt)).after->mode == 0604u);
}

BOOST_AUTO_TEST_CASE(a_guard_must_equal_ctime)
{
    const handle f = make_file("f");
    set_attributes set;
    set.mode = 0600;
    file_time t = stat(f).ctime;
    file_time wrong = t;
    ++wrong.nanoseconds;
    BOOST_TEST((fails_with(fs->setattr(me, f, set, wrong)) == errc::not_sync));
    BOOST_TEST(stat(f).mode == 0644u);
    must(fs->setattr(me, f, set, t));
    BOOST_TEST(stat(f).mode == 0600u);
}

BOOST_AUTO_TEST_CASE(symbolic_links_are_data)
{
    const handle root = fs->root();
    auto l = must(fs->symlink(me, root, "l", "/etc/passwd", {}));
    BOOST_TEST(int(l.made.attrs->type) == int(file_type::symlink));
    BOOST_TEST(l.made.attrs->size == 11u);
    BOOST_TEST(must(fs->readlink(me, l.made.handle)) == "/etc/passwd");
    BOOST_TEST(int(must(fs->lookup(me, root, "l")).found.attrs->type) == int(file_type::symlink));
    BOOST_TEST(fails(fs->readlink(me, root)) == EINVAL);
    BOOST_TEST(fails(fs->symlink(me, root, "l", "x", {})) == EEXIST);
    BOOST_TEST(fails(fs->symlink(me, root, "m", "", {})) == EINVAL);
    BOOST_TEST(fails(fs->symlink(me, root, "m", std::string(5000, 'x'), {})) == ENAMETOOLONG);
    // A link to a directory is no directory.
    make_directory(root, "d");
    const handle to_d = must(fs->symlink(me, root, "to_d", "d", {})).made.handle;
    BOOST_TEST(fails(fs->lookup(me, to_d, "x")) == ENOTDIR);
    BOOST_TEST(fails(fs->create(me, to_d, "x", create_mode::unchecked, {}, 0)) == ENOTDIR);
    must(fs->remove(me, root, "to_d"));
}

BOOST_AUTO_TEST_CASE(special_files)
{
    set_attributes set;
    set.mode = 0640;
    auto p = must(fs->mknod(me, fs->root(), "p", file_type::fifo, 0, 0, set));
    BOOST_TEST(int(p.made.attrs->type) == int(file_type::fifo));
    BOOST_TEST(p.made.attrs->mode == 0640u);
    auto s = must(fs->mknod(me, fs->root(), "s", file_type::socket, 0, 0, set));
    BOOST_TEST(int(s.made.attrs->type) == int(file_type::socket));
    std::byte out[1];
    BOOST_TEST(fails(fs->read(me, p.made.handle, 0, out)) == EINVAL); // and does not wait for a writer
    BOOST_TEST(fails(fs->mknod(me, fs->root(), "f", file_type::regular, 0, 0, set)) == EINVAL);
    set.mode = 0600;
    BOOST_TEST(must(fs->setattr(me, p.made.handle, set, std::nullopt)).after->mode == 0600u);
}

BOOST_AUTO_TEST_SUITE_END()

} // namespace suite
