// SPDX-License-Identifier: Apache-2.0
#include "backend_extents_suite.hpp"
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

BOOST_FIXTURE_TEST_CASE(a_clone_is_a_file_of_its_own, extents)
{
    const std::uint64_t block = fs->info().clone_block;
    const std::string text = std::string(2 * block, 'a') + "tail";
    const handle from = make_file("from", text);
    const handle to = make_file("to", std::string(3 * block, 'b'));
    const auto free = [&] { return must(fs->statfs(me, fs->root())).free_bytes; };
    const std::uint64_t before = free();
    must(fs->clone(me, from, 0, to, block, block));
    BOOST_TEST((get(me, to, 0, 4 * block) ==
                std::string(block, 'b') + std::string(block, 'a') + std::string(block, 'b')));
    BOOST_TEST(free() == before);
    must(fs->clone(me, from, block, to, 3 * block, 0));
    BOOST_TEST(stat(to).size == 4 * block + 4);
    BOOST_TEST(get(me, to, 4 * block) == "tail");
    // Each pays for its blocks, and so can be written to whatever else there is.
    BOOST_TEST(free() == before - 2 * block);
    put(me, from, block, "changed");
    BOOST_TEST(get(me, to, 3 * block, 7) == "aaaaaaa");
    put(me, to, block, "other");
    BOOST_TEST(get(me, from, 0, 5) == "aaaaa");
    must(fs->deallocate(me, to, 3 * block, 10));
    BOOST_TEST(get(me, from, block, 7) == "changed");
    // Within a file, and holes too.
    must(fs->clone(me, to, 0, to, 2 * block, block));
    BOOST_TEST(get(me, to, 2 * block, 2) == "bb");
    set_attributes empty;
    empty.size = 0;
    must(fs->setattr(me, from, empty, std::nullopt));
    empty.size = 10 * block;
    must(fs->setattr(me, from, empty, std::nullopt));
    must(fs->clone(me, from, 0, to, 0, 0));
    BOOST_TEST(stat(to).used == 0u);
    BOOST_TEST(data(to, 0) == 10 * block);
    must(fs->remove(me, fs->root(), "from"));
    must(fs->remove(me, fs->root(), "to"));
    BOOST_TEST(free() == 8u << 20);
}

BOOST_FIXTURE_TEST_CASE(clones_are_checked, extents)
{
    const std::uint64_t block = fs->info().clone_block;
    const handle from = make_file("from", std::string(2 * block + 4, 'a'));
    const handle to = make_file("to", std::string(3 * block, 'b'));
    const auto refusal = [&](std::uint64_t at, std::uint64_t where, std::uint64_t length) {
        return fails(fs->clone(me, from, at, to, where, length));
    };
    BOOST_TEST(refusal(1, 0, 0) == EINVAL);
    BOOST_TEST(refusal(0, 1, 0) == EINVAL);
    BOOST_TEST(refusal(0, 0, 7) == EINVAL);
    BOOST_TEST(refusal(2 * block, 0, 5) == EINVAL);
    BOOST_TEST(refusal(3 * block, 0, 0) == EINVAL);
    BOOST_TEST(refusal(0, 0, ~std::uint64_t(0)) == EINVAL);
    // The rest of the target's last block would be lost.
    BOOST_TEST(refusal(0, 0, 0) == EINVAL);
    BOOST_TEST(refusal(0, (std::uint64_t(1) << 63) - block, 0) == EFBIG);
    BOOST_TEST(fails(fs->clone(me, from, 0, from, block, 2 * block)) == EINVAL);
    BOOST_TEST((get(me, to, 0, 3 * block) == std::string(3 * block, 'b')));
    const handle big = make_file("big", std::string(80 * block, 'x'));
    BOOST_TEST(fails(fs->clone(me, big, 0, to, 0, 0)) == ENOSPC);
    BOOST_TEST((get(me, to, 0, 3 * block) == std::string(3 * block, 'b')));
}

BOOST_FIXTURE_TEST_CASE(extended_attributes_are_bounded, extents)
{
    const auto free = [&] { return must(fs->statfs(me, fs->root())).free_bytes; };
    const handle f = make_file("f");
    const std::uint64_t before = free();
    const std::string value(65536, 'v');
    BOOST_TEST(set(me, f, "a", value) == 0);
    BOOST_TEST(free() < before - 65536);
    BOOST_TEST(set(me, f, "a", "small") == 0);
    BOOST_TEST(free() > before - 1024);
    BOOST_TEST(fails(fs->removexattr(me, f, "a")) == 0);
    BOOST_TEST(free() == before);
    int count = 0;
    while (count < 1000 && set(me, f, std::to_string(count), value) == 0)
        ++count;
    BOOST_TEST(count > 100);
    BOOST_TEST(set(me, f, "last", value) == ENOSPC);
    must(fs->remove(me, fs->root(), "f"));
    BOOST_TEST(free() == 8u << 20);
    // All names fit one list.
    const handle many = make_file("many");
    const std::string pad(240, 'n');
    count = 0;
    while (count < 1000 && set(me, many, pad + std::to_string(count), "") == 0)
        ++count;
    BOOST_TEST(count > 200);
    BOOST_TEST(count < 300);
}

// To take room is to count, not to fill it: a file of a petabyte is refused at once, one of a gigabyte taken at once.
BOOST_FIXTURE_TEST_CASE(room_that_was_taken_is_there, extents)
{
    const handle f = make_file("f");
    must(fs->allocate(me, f, 0, 7 << 20));
    BOOST_TEST(stat(f).used == 7u << 20);
    BOOST_TEST(data(f, 0) == 7u << 20);
    const handle other = make_file("other");
    const std::string chunk(1 << 20, 'x');
    BOOST_TEST(fails(write(me, other, 0, chunk)) == ENOSPC);
    put(me, f, 3 << 20, chunk);
    BOOST_TEST(stat(f).used == 7u << 20);
    BOOST_TEST(fails(fs->allocate(me, f, 0, 9 << 20)) == ENOSPC);
    must(fs->deallocate(me, f, 0, 7 << 20));
    BOOST_TEST(stat(f).used == 0u);
    put(me, other, 0, chunk);
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
