// SPDX-License-Identifier: Apache-2.0
// Fresh memory of memfs: what a peer has in the place of a block that a snapshot has, too. It is not the file's until it is taken in.
#include "memfs_snapshots.hpp"

#include <algorithm>
#include <optional>
#include <span>

using namespace suite;

namespace {

struct fresh : snapshots {
    void take_in(const handle& f, std::uint64_t offset, std::uint64_t length, std::uint64_t end = 0)
    {
        const mapped_range filled{offset, length};
        must(fs->note_written(me, f, {end, std::span(&filled, 1)}));
    }
    int resize(const handle& f, std::uint64_t size)
    {
        set_attributes set;
        set.size = size;
        return fails(fs->setattr(me, f, set, std::nullopt));
    }
};

} // namespace

// As a client has it under READ_DATA and INVALID_DATA.
BOOST_FIXTURE_TEST_CASE(fresh_memory_is_not_the_files_until_it_is_taken_in, fresh)
{
    const handle f = make_file("f", std::string(3 * block, 'a'));
    const handle s = find(take("one"), "f");
    put(me, f, block, "own");
    const std::uint64_t before = free_bytes();
    std::optional<mapping> m = must(fs->map(me, f, 0, 4 * block, map_use::write_apart));
    BOOST_TEST_REQUIRE(m->parts.size() == 4u);
    for (const std::size_t i : {0u, 2u}) {
        const mapping::part& p = m->parts[i];
        BOOST_TEST((p.offset == i * block && p.memory.size() == block && p.beneath.size() == block));
        BOOST_TEST(std::ranges::all_of(p.memory, [](std::byte b) { return b == std::byte(0); }));
        BOOST_TEST(std::ranges::all_of(p.beneath, [](std::byte b) { return b == std::byte('a'); }));
        std::ranges::fill(p.memory, std::byte('B'));
    }
    BOOST_TEST((m->parts[1].beneath.empty() && m->parts[3].beneath.empty()));
    BOOST_TEST(free_bytes() == before - 3 * block); // two, and one behind the end
    BOOST_TEST(get(me, f, 2 * block, 1) == "a");
    // Nobody changes these bytes, or has them mapped, meanwhile.
    BOOST_TEST(fails(write(me, f, 2 * block + 5, "x")) == EAGAIN);
    BOOST_TEST(fails(fs->deallocate(me, f, 2 * block, block)) == EAGAIN);
    BOOST_TEST(fails(fs->copy(me, s, 0, f, 0, block)) == EAGAIN);
    BOOST_TEST(fails(fs->clone(me, s, 0, f, 0, block)) == EAGAIN);
    set_attributes shorter;
    shorter.size = block;
    BOOST_TEST(fails(fs->setattr(me, f, shorter, std::nullopt)) == EAGAIN);
    BOOST_TEST(fails(fs->map(me, f, 0, block, map_use::read)) == EAGAIN);
    BOOST_TEST(fails(fs->map(me, f, 2 * block, block, map_use::write_apart)) == EAGAIN);
    BOOST_TEST(must(fs->map(me, f, block, 2 * block, map_use::read)).length == block);
    const mapped_range filled{2 * block, block};
    must(fs->note_written(me, f, {0, std::span(&filled, 1)}));
    BOOST_TEST(get(me, f, 2 * block - 1, 2) == "aB");
    BOOST_TEST(char(m->parts[2].beneath[0]) == 'a'); // as long as it is mapped
    put(me, f, 2 * block, "x");
    BOOST_TEST(char(m->parts[2].memory[0]) == 'x');
    m.reset();
    BOOST_TEST(get(me, f, 0, 1) == "a");
    BOOST_TEST(get(me, f, 2 * block, 2) == "xB");
    BOOST_TEST(get(me, s, 2 * block, 2) == "aa");
    BOOST_TEST(held() == 2 * block);
    const memfs::snapshot_counts counts = memfs::snapshot_counts_of(*fs);
    BOOST_TEST((counts.fresh_blocks == 2u && counts.taken_in == 1u));
    end("one");
    BOOST_TEST(held() == 0u);
    BOOST_TEST(stat(f).used == 3 * block);
}

BOOST_FIXTURE_TEST_CASE(a_cut_or_growth_within_a_block_waits_for_its_fresh_memory, fresh)
{
    const handle f = make_file("f", std::string(2 * block + 100, 'a'));
    take("one");
    std::optional<mapping> m = must(fs->map(me, f, 2 * block, block, map_use::write_apart));
    BOOST_TEST(resize(f, 2 * block + 50) == EAGAIN);
    BOOST_TEST(resize(f, 2 * block + 200) == EAGAIN);
    BOOST_TEST(resize(f, 5 * block) == EAGAIN);
    BOOST_TEST(resize(f, block + 1) == EAGAIN);
    BOOST_TEST(resize(f, 2 * block + 100) == 0); // as it is
    m.reset();
    BOOST_TEST(resize(f, 2 * block + 50) == 0);
    BOOST_TEST(resize(f, 2 * block + 200) == 0);
}

// As long as nobody has told of them, bytes behind the end are zeros when the file grows over them.
BOOST_FIXTURE_TEST_CASE(a_file_that_grows_over_fresh_memory_has_zeros_there, fresh)
{
    const handle f = make_file("f", std::string(100, 'a'));
    take("one");
    std::optional<mapping> m = must(fs->map(me, f, 0, block, map_use::write_apart));
    BOOST_TEST_REQUIRE(m->parts.size() == 1u);
    std::ranges::fill(m->parts[0].memory, std::byte('B'));
    must(fs->allocate(me, f, block, block));
    take_in(f, 0, block);
    BOOST_TEST(get(me, f, 98, 4) == std::string("BB\0\0", 4));
    BOOST_TEST(get(me, f, block - 1, 2) == std::string("\0\0", 2));
}

BOOST_FIXTURE_TEST_CASE(only_whole_blocks_are_taken_in, fresh)
{
    const handle f = make_file("f", std::string(3 * block, 'a'));
    take("one");
    std::optional<mapping> m = must(fs->map(me, f, 0, 3 * block, map_use::write_apart));
    for (const mapping::part& p : m->parts)
        std::ranges::fill(p.memory, std::byte('B'));
    take_in(f, 1, 10); // no block begins there
    take_in(f, 1, block - 1);
    take_in(f, block + 1, block);
    take_in(f, block, block - 1);
    BOOST_TEST(get(me, f, 0, 3 * block) == std::string(3 * block, 'a'));
    const mapped_range beyond{~std::uint64_t(0) - 1, 100};
    BOOST_TEST(fails(fs->note_written(me, f, {0, std::span(&beyond, 1)})) == EFBIG);
    take_in(f, block - 1, block + 2);
    BOOST_TEST(get(me, f, block - 1, 1) == "a");
    BOOST_TEST(get(me, f, block, block) == std::string(block, 'B'));
    BOOST_TEST(get(me, f, 2 * block, 1) == "a");
}

// Each call by itself, as one that is refused hides another.
BOOST_FIXTURE_TEST_CASE(whoever_would_change_bytes_with_fresh_memory_waits, fresh)
{
    const handle f = make_file("f", std::string(4 * block, 'a'));
    const handle other = make_file("g", std::string(4 * block, 'g'));
    take("one");
    std::optional<mapping> m = must(fs->map(me, f, 2 * block, block, map_use::write_apart));
    BOOST_TEST(fails(write(me, f, 2 * block - 1, "xx")) == EAGAIN);
    BOOST_TEST(fails(write(me, f, 3 * block - 1, "x")) == EAGAIN);
    BOOST_TEST(fails(fs->deallocate(me, f, block, block + 1)) == EAGAIN);
    BOOST_TEST(fails(fs->copy(me, other, 0, f, block, block + 1)) == EAGAIN);
    BOOST_TEST(fails(fs->clone(me, other, 0, f, 2 * block, block)) == EAGAIN);
    BOOST_TEST(resize(f, 2 * block) == EAGAIN);
    BOOST_TEST(fails(fs->map(me, f, 2 * block, block, map_use::read)) == EAGAIN);
    BOOST_TEST(fails(fs->map(me, f, 2 * block, block, map_use::write)) == EAGAIN);
    BOOST_TEST(must(fs->map(me, f, 0, 4 * block, map_use::read)).length == 2 * block);
    BOOST_TEST(get(me, f, 0, 4 * block) == std::string(4 * block, 'a'));
    // What lies beside them is nobody's.
    put(me, f, 2 * block - 1, "x");
    put(me, f, 3 * block, "x");
    must(fs->deallocate(me, f, block, block));
    must(fs->copy(me, other, 0, f, block, block));
    must(fs->clone(me, other, 0, f, 3 * block, block));
    BOOST_TEST(resize(f, 3 * block) == 0);
}

BOOST_FIXTURE_TEST_CASE(fresh_memory_takes_room_and_gives_it_back, fresh)
{
    const handle f = make_file("f", std::string(3 * block, 'a'));
    const handle keeps = find(take("one"), "f");
    fill();
    must(fs->deallocate(me, find(fs->root(), "filler"), 0, 2 * block));
    const std::uint64_t before = free_bytes();
    BOOST_TEST(before / block == 2u);
    BOOST_TEST(fails(fs->map(me, f, 0, 3 * block, map_use::write_apart)) == ENOSPC);
    BOOST_TEST(free_bytes() == before);
    std::optional<mapping> m = must(fs->map(me, f, 0, 2 * block, map_use::write_apart));
    BOOST_TEST(free_bytes() == before - 2 * block);
    // The old block takes the place of the fresh one, which is the file's.
    take_in(f, 0, block);
    BOOST_TEST(free_bytes() == before - 2 * block);
    BOOST_TEST(held() == block);
    m.reset();
    BOOST_TEST(free_bytes() == before - block);
    end("one");
    BOOST_TEST(held() == 0u);
    BOOST_TEST(free_bytes() >= before);
    BOOST_TEST(stat(f).used == 3 * block);
    BOOST_TEST(fails(fs->getattr(me, keeps)) == ESTALE);
}

BOOST_FIXTURE_TEST_CASE(a_snapshot_may_end_while_a_peer_has_fresh_memory, fresh)
{
    const handle f = make_file("f", std::string(2 * block, 'a'));
    const std::uint64_t before = free_bytes();
    take("one");
    std::optional<mapping> m = must(fs->map(me, f, 0, 2 * block, map_use::write_apart));
    for (const mapping::part& p : m->parts)
        std::ranges::fill(p.memory, std::byte('B'));
    end("one");
    BOOST_TEST(free_bytes() == before - 2 * block);
    take_in(f, 0, block);
    BOOST_TEST(char(m->parts[0].beneath[0]) == 'a'); // a reader has it still
    BOOST_TEST(free_bytes() == before - 2 * block);
    BOOST_TEST(get(me, f, block - 1, 2) == "Ba");
    m.reset();
    BOOST_TEST(free_bytes() == before);
    BOOST_TEST(held() == 0u);
    BOOST_TEST(get(me, f, block - 1, 2) == "Ba");
}

BOOST_FIXTURE_TEST_CASE(a_file_without_a_name_keeps_its_fresh_memory_until_it_is_let_go, fresh)
{
    const handle f = make_file("f", std::string(2 * block, 'a'));
    take("one");
    const std::uint64_t files = free_files();
    std::optional<mapping> m = must(fs->map(me, f, 0, 2 * block, map_use::write_apart));
    must(fs->remove(me, fs->root(), "f"));
    take_in(f, 0, block);
    m.reset();
    BOOST_TEST(fails(fs->getattr(me, f)) == ESTALE);
    BOOST_TEST(free_files() == files + 1);
    BOOST_TEST(held() == 2 * block);
    end("one");
    BOOST_TEST(held() == 0u);
}
