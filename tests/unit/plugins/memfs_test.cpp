// SPDX-License-Identifier: Apache-2.0
#include "backend_suite.hpp"
#include "backend_walk_suite.hpp"

#include <verbena/plugins/memfs.hpp>

namespace suite {

std::unique_ptr<file_backend> make_backend(blocking_pool& pool, const backend_options& options)
{
    memfs::memfs_options o;
    o.root_mode = 0777;
    o.read_only = options.read_only;
    o.max_bytes = 8 << 20;
    o.max_files = 1000;
    auto fs = memfs::open_memfs(o, pool);
    BOOST_REQUIRE(fs);
    return std::move(*fs);
}

bool tells_users_apart() { return true; }

} // namespace suite

using namespace suite;

BOOST_FIXTURE_TEST_CASE(space_is_bounded, fixture)
{
    const auto empty = must(fs->statfs(me, fs->root()));
    BOOST_TEST(empty.total_bytes == 8u << 20);
    const handle f = make_file("f");
    const std::string chunk(1 << 20, 'x');
    for (int i = 0; i < 7; ++i)
        put(me, f, std::uint64_t(i) << 20, chunk);
    // The name takes a little of the last block.
    BOOST_TEST(fails(write(me, f, 7 << 20, chunk)) == ENOSPC);
    put(me, f, 7 << 20, std::string_view(chunk).substr(64 << 10));
    BOOST_TEST(fails(write(me, f, 8 << 20, "x")) == ENOSPC);
    BOOST_TEST(must(fs->statfs(me, fs->root())).free_bytes < 64u << 10);
    put(me, f, 100, "there is room within");
    // A hole costs nothing.
    set_attributes set;
    set.size = std::uint64_t(1) << 50;
    must(fs->setattr(me, f, set, std::nullopt));
    must(fs->remove(me, fs->root(), "f"));
    BOOST_TEST(must(fs->statfs(me, fs->root())).free_bytes == 8u << 20);
    BOOST_TEST(must(fs->statfs(me, fs->root())).free_files == empty.free_files);
}

BOOST_FIXTURE_TEST_CASE(files_are_bounded, fixture)
{
    for (int i = 1; i < 1000; ++i)
        make_file("f" + std::to_string(i));
    BOOST_TEST(fails(fs->create(me, fs->root(), "one_more", create_mode::guarded, {}, 0)) == ENOSPC);
    BOOST_TEST(fails(fs->mkdir(me, fs->root(), "one_more", {})) == ENOSPC);
    must(fs->remove(me, fs->root(), "f1"));
    make_file("one_more");
}

// Each of the thousand files could have as many names as a directory has room for.
BOOST_FIXTURE_TEST_CASE(names_and_targets_are_bounded, fixture)
{
    const handle f = make_file("f");
    const auto free = [&] { return must(fs->statfs(me, fs->root())).free_bytes; };
    const std::uint64_t before = free();
    const std::string pad(240, 'n');
    int links = 0;
    while (links < 20000 && fails(fs->link(me, f, fs->root(), pad + std::to_string(links))) == 0)
        ++links;
    BOOST_TEST(links > 8 << 10);
    BOOST_TEST(links < 16 << 10);
    BOOST_TEST(fails(fs->link(me, f, fs->root(), pad)) == ENOSPC);
    BOOST_TEST(fails(fs->symlink(me, fs->root(), "s", std::string(4000, 't'), {})) == ENOSPC);
    BOOST_TEST(fails(fs->create(me, fs->root(), pad + "f", create_mode::guarded, {}, 0)) == ENOSPC);
    // Shorter names make room, longer ones need it.
    must(fs->rename(me, fs->root(), pad + "0", fs->root(), "short"));
    must(fs->rename(me, fs->root(), "short", fs->root(), pad + "0"));
    for (int i = 0; i < links; ++i)
        must(fs->remove(me, fs->root(), pad + std::to_string(i)));
    BOOST_TEST(free() == before);
    must(fs->symlink(me, fs->root(), "s", std::string(4000, 't'), {}));
    BOOST_TEST(before - free() > 4000u);
    BOOST_TEST(fails(fs->symlink(me, fs->root(), "s", "other", {})) == EEXIST);
    must(fs->remove(me, fs->root(), "s"));
    BOOST_TEST(free() == before);

    // A name that takes another's place needs no room.
    make_file("s");
    make_file(pad);
    while (fails(fs->link(me, f, fs->root(), std::to_string(links))) == 0)
        ++links;
    BOOST_TEST(fails(fs->rename(me, fs->root(), "s", fs->root(), pad + "0")) == ENOSPC);
    must(fs->rename(me, fs->root(), "s", fs->root(), pad));
}

BOOST_FIXTURE_TEST_CASE(changes_carry_attributes_from_before, fixture)
{
    const handle f = make_file("f", "x");
    set_attributes set;
    set.mode = 0600;
    auto c = must(fs->setattr(me, f, set, std::nullopt));
    BOOST_REQUIRE(c.before);
    BOOST_TEST(c.before->mode == 0644u);
    BOOST_TEST(c.after->mode == 0600u);
    auto w = must(write(me, f, 1, "y"));
    BOOST_REQUIRE(w.file.before);
    BOOST_TEST(w.file.before->size == 1u);
    BOOST_TEST(w.file.after->size == 2u);
}

BOOST_FIXTURE_TEST_CASE(what_was_cut_off_stays_away, fixture)
{
    const handle f = make_file("f", "secret");
    set_attributes set;
    set.size = 2;
    must(fs->setattr(me, f, set, std::nullopt));
    set.size = 6;
    must(fs->setattr(me, f, set, std::nullopt));
    BOOST_TEST(get(me, f) == std::string("se\0\0\0\0", 6));
}
