// SPDX-License-Identifier: Apache-2.0
// Files of memfs whose memory somebody has: it stays theirs, and is the file.
#include "backend_fixture.hpp"

#include <verbena/core/random.hpp>
#include <verbena/plugins/memfs.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <random>

namespace suite {

namespace {
constexpr std::uint64_t block = 64 << 10;
}

std::unique_ptr<file_backend> make_backend(blocking_pool& pool, const backend_options& options)
{
    memfs::memfs_options o;
    o.root_mode = 0777;
    o.read_only = options.read_only;
    o.max_bytes = 64 << 20;
    auto fs = memfs::open_memfs(o, pool);
    BOOST_REQUIRE(fs);
    return std::move(*fs);
}

bool tells_users_apart() { return true; }

} // namespace suite

using namespace suite;

namespace {

struct mappings : fixture {
    mapping map(const handle& f, std::uint64_t offset, std::uint64_t length, map_use use = map_use::write)
    {
        return must(fs->map(me, f, offset, length, use));
    }
    void cut(const handle& f, std::uint64_t size) { must(fs->setattr(me, f, sized(size), std::nullopt)); }
    static set_attributes sized(std::uint64_t size)
    {
        set_attributes set;
        set.size = size;
        return set;
    }
    std::uint64_t free_bytes() { return must(fs->statfs(me, fs->root())).free_bytes; }
    static std::string text(const mapping::part& p, std::uint64_t from, std::size_t length)
    {
        return {reinterpret_cast<const char*>(p.memory.data()) + (from - p.offset), length};
    }
    static void poke(const mapping& m, std::uint64_t at, std::string_view what)
    {
        for (const mapping::part& p : m.parts)
            if (at >= p.offset && at + what.size() <= p.offset + p.memory.size())
                return void(std::ranges::copy(bytes(what), p.memory.begin() + std::ptrdiff_t(at - p.offset)));
        BOOST_FAIL("no such memory");
    }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_large_file_is_one_part, mappings)
{
    const handle f = make_file("f");
    const std::string chunk(1 << 20, 'x');
    for (int i = 0; i < 16; ++i)
        put(me, f, std::uint64_t(i) << 20, chunk);
    const mapping m = map(f, 0, 16 << 20, map_use::read);
    BOOST_TEST_REQUIRE(m.parts.size() == 1u);
    BOOST_TEST(m.parts[0].offset == 0u);
    BOOST_TEST(m.parts[0].memory.size() == 16u << 20);
    BOOST_TEST(m.attrs.size == 16u << 20);
    // In pieces of a block each, also beside another file that grows: few parts.
    const handle a = make_file("a");
    const handle b = make_file("b");
    for (int i = 0; i < 64; ++i) {
        put(me, a, i * block, std::string_view(chunk).substr(0, block));
        put(me, b, i * block, std::string_view(chunk).substr(0, block));
    }
    BOOST_TEST(map(a, 0, 64 * block, map_use::read).parts.size() <= 4u);
    BOOST_TEST(map(b, 0, 64 * block, map_use::read).parts.size() <= 4u);
}

BOOST_FIXTURE_TEST_CASE(memory_and_file_are_the_same_bytes, mappings)
{
    const handle f = make_file("f", std::string(3 * block, 'a'));
    const mapping m = map(f, block, block);
    BOOST_TEST_REQUIRE(m.parts.size() == 1u);
    BOOST_TEST(m.parts[0].offset == block);
    poke(m, block + 10, "by the peer");
    BOOST_TEST(get(me, f, block + 9, 13) == "aby the peera");
    put(me, f, block + 100, "by the server");
    BOOST_TEST(text(m.parts[0], block + 100, 13) == "by the server");
    // What is deallocated is zeros to both, and the memory stays.
    must(fs->deallocate(me, f, block, block));
    BOOST_TEST(text(m.parts[0], block + 10, 3) == std::string(3, '\0'));
    poke(m, block + 10, "again");
    BOOST_TEST(get(me, f, block + 10, 5) == "again");
}

BOOST_FIXTURE_TEST_CASE(what_is_mapped_is_not_cut_nor_replaced, mappings)
{
    const handle f = make_file("f", std::string(4 * block, 'a'));
    const handle g = make_file("g", std::string(4 * block, 'b'));
    std::optional<mapping> m = map(f, 2 * block, block, map_use::read);
    BOOST_TEST(fails(fs->setattr(me, f, sized(block), std::nullopt)) == EAGAIN);
    BOOST_TEST(fails(fs->setattr(me, f, sized(0), std::nullopt)) == EAGAIN);
    BOOST_TEST(fails(fs->clone(me, g, 0, f, block, 2 * block)) == EAGAIN);
    BOOST_TEST(stat(f).size == 4 * block);
    BOOST_TEST(text(m->parts[0], 2 * block, 2) == "aa");
    // Within the last block that is mapped, behind it, and beside it.
    cut(f, 2 * block + 100);
    BOOST_TEST(text(m->parts[0], 2 * block + 99, 2) == std::string("a\0", 2));
    must(fs->clone(me, g, 0, f, 0, block));
    must(fs->clone(me, g, 0, f, 3 * block, block));
    m.reset();
    must(fs->clone(me, g, 0, f, block, 2 * block));
    cut(f, 0);
    BOOST_TEST(stat(f).used == 0u);
}

BOOST_FIXTURE_TEST_CASE(what_is_shared_is_parted_and_what_is_mapped_is_not_shared, mappings)
{
    const handle f = make_file("f", std::string(2 * block, 'a'));
    const handle g = make_file("g");
    must(fs->clone(me, f, 0, g, 0, 2 * block));
    const mapping m = map(f, 0, 2 * block);
    poke(m, 5, "peer");
    BOOST_TEST(get(me, g, 0, 10) == "aaaaaaaaaa");
    BOOST_TEST(get(me, f, 0, 10) == "aaaaapeera");
    must(fs->clone(me, f, 0, g, 0, 2 * block));
    poke(m, 5, "once");
    BOOST_TEST(get(me, g, 0, 10) == "aaaaapeera");
    // Also where it is only read by its peer: the file's own writes go there.
    const handle h = make_file("h");
    must(fs->clone(me, f, 0, h, 0, 2 * block));
    const mapping seen = map(h, 0, 2 * block, map_use::read);
    put(me, h, 0, "new");
    BOOST_TEST(text(seen.parts[0], 0, 3) == "new");
    const handle k = make_file("k", std::string(block, 'k'));
    const handle l = make_file("l");
    must(fs->clone(me, k, 0, l, 0, block));
    const mapping of_l = map(l, 0, block, map_use::read);
    put(me, l, 0, "own");
    BOOST_TEST(text(of_l.parts[0], 0, 4) == "ownk");
    BOOST_TEST(get(me, k, 0, 4) == "kkkk");
}

BOOST_FIXTURE_TEST_CASE(a_file_without_a_name_lives_while_it_is_mapped, mappings)
{
    const std::uint64_t before = free_bytes();
    const handle f = make_file("f", std::string(block, 'a'));
    std::optional<mapping> m = map(f, 0, block);
    must(fs->remove(me, fs->root(), "f"));
    BOOST_TEST(free_bytes() + block <= before);
    poke(*m, 0, "still there");
    BOOST_TEST(get(me, f, 0, 11) == "still there");
    m.reset();
    BOOST_TEST(free_bytes() == before);
    BOOST_TEST(fails(fs->getattr(me, f)) == ESTALE);
}

BOOST_FIXTURE_TEST_CASE(holes_have_memory_for_who_writes, mappings)
{
    const handle f = make_file("f");
    put(me, f, 5 * block, "x");
    const mapping reads = map(f, 0, 6 * block, map_use::read);
    BOOST_TEST_REQUIRE(reads.parts.size() == 1u);
    BOOST_TEST(reads.parts[0].offset == 5 * block);
    const mapping writes = map(f, block, 3 * block);
    std::uint64_t mapped = 0;
    for (const mapping::part& p : writes.parts) {
        BOOST_TEST(std::ranges::all_of(p.memory, [](std::byte b) { return b == std::byte(0); }));
        mapped += p.memory.size();
    }
    BOOST_TEST(mapped == 3 * block);
    BOOST_TEST(map(f, 7 * block, block, map_use::read).parts.empty());
    BOOST_TEST(fails(fs->map(me, f, 0, 0, map_use::read)) == EINVAL);
    BOOST_TEST(fails(fs->map(me, f, ~std::uint64_t(0) - 5, 5, map_use::write)) == EFBIG);
    BOOST_TEST(fails(fs->map(user(7, 7), f, 0, 1, map_use::write)) == EACCES);
    BOOST_TEST(fails(fs->map(me, fs->root(), 0, 1, map_use::read)) == EISDIR);
}

// What is zeroed or copied for a mapping holds up all shards.
BOOST_FIXTURE_TEST_CASE(a_mapping_that_takes_long_is_shorter, mappings)
{
    const handle f = make_file("f");
    const mapping some = map(f, 100, 32 << 20);
    BOOST_TEST(some.length == (4 << 20) - 100);
    BOOST_TEST(some.parts[0].memory.size() == 4u << 20);
    const mapping more = map(f, 4 << 20, 100);
    BOOST_TEST(more.length == 100u);
    BOOST_TEST(map(f, 0, (4 << 20) + 5).length == (4u << 20) + 5);
    // Shared blocks are copied.
    const std::string chunk(1 << 20, 'x');
    const handle from = make_file("from");
    for (int i = 0; i < 6; ++i)
        put(me, from, std::uint64_t(i) << 20, chunk);
    const handle to = make_file("to");
    must(fs->clone(me, from, 0, to, 0, 0));
    BOOST_TEST(map(to, 0, 6 << 20, map_use::read).length == 4u << 20);
    BOOST_TEST(map(to, 0, 6 << 20, map_use::read).length == 6u << 20);
    // So are pinned ones for a clone.
    const mapping pinned = map(from, 0, 6 << 20, map_use::read);
    BOOST_TEST(fails(fs->clone(me, from, 0, make_file("other"), 0, 0)) == EAGAIN);
    BOOST_TEST(map(from, 5 << 20, 100 << 20, map_use::read).length == 1u << 20);
}

BOOST_FIXTURE_TEST_CASE(room_is_taken_for_what_is_mapped, mappings)
{
    const handle f = make_file("f");
    const std::string chunk(1 << 20, 'x');
    for (int i = 0; i < 61; ++i)
        put(me, f, std::uint64_t(i) << 20, chunk);
    const handle g = make_file("g");
    BOOST_TEST(fails(fs->map(me, g, 0, 4 << 20, map_use::write)) == ENOSPC);
    BOOST_TEST(stat(g).used == 0u);
    {
        const mapping m = map(g, 0, 1 << 20);
        BOOST_TEST(stat(g).used == 1u << 20);
    }
    BOOST_TEST(stat(g).used == 0u);
}

BOOST_FIXTURE_TEST_CASE(attributes_of_a_mapped_file_change, mappings)
{
    const handle f = make_file("f", std::string(block, 'a'));
    const mapping m = map(f, 0, block);
    set_attributes set;
    set.mode = 0600;
    must(fs->setattr(me, f, set, std::nullopt));
    BOOST_TEST(stat(f).mode == 0600u);
    cut(f, 2 * block);
    BOOST_TEST(stat(f).size == 2 * block);
}

BOOST_FIXTURE_TEST_CASE(what_one_wrote_behind_the_end_goes_beside_anothers_mapping, mappings)
{
    const handle f = make_file("f", "abc");
    std::optional<mapping> one = map(f, 0, 2 * block);
    const mapping two = map(f, 2 * block, block);
    poke(*one, 100, "lost");
    poke(*one, block, "lost");
    poke(two, 2 * block, "kept");
    one.reset();
    must(fs->note_written(me, f, 2 * block + 4));
    BOOST_TEST(get(me, f, 100, 4) == std::string(4, '\0'));
    BOOST_TEST(get(me, f, block, 4) == std::string(4, '\0'));
    BOOST_TEST(get(me, f, 2 * block, 9) == "kept");
}

// Whoever reads it keeps the block, and nobody is left who could say that these bytes are the file's.
BOOST_FIXTURE_TEST_CASE(what_a_writer_left_behind_the_end_goes_beside_a_reader, mappings)
{
    const handle f = make_file("f", "abc");
    const mapping reads = map(f, 0, 3, map_use::read);
    std::optional<mapping> one = map(f, 0, block), two = map(f, 0, block);
    poke(*one, 100, "lost");
    one.reset();
    BOOST_TEST(text(reads.parts[0], 100, 4) == "lost"); // the other writer may have put it there
    two.reset();
    BOOST_TEST(text(reads.parts[0], 100, 4) == std::string(4, '\0'));
    BOOST_TEST(text(reads.parts[0], 0, 3) == "abc");
    put(me, f, 200, "x");
    BOOST_TEST(get(me, f, 100, 4) == std::string(4, '\0'));
}

BOOST_FIXTURE_TEST_CASE(memory_of_other_files_shows_nowhere, mappings)
{
    make_file("secret", std::string(40 * block, 's'));
    must(fs->remove(me, fs->root(), "secret"));
    const handle f = make_file("f", "x");
    const mapping m = map(f, 0, 40 * block);
    for (const mapping::part& p : m.parts)
        BOOST_TEST(std::ranges::count(p.memory, std::byte('s')) == 0);
}

BOOST_FIXTURE_TEST_CASE(what_lies_behind_the_end_is_the_files_when_it_is_said, mappings)
{
    const handle f = make_file("f", "abc");
    {
        const mapping m = map(f, 0, 2 * block);
        poke(m, 3, "def");
        poke(m, block, "behind");
        BOOST_TEST(get(me, f) == "abc");
        const auto noted = must(fs->note_written(me, f, 6));
        BOOST_TEST(noted.after->size == 6u);
        BOOST_TEST(noted.after->change.value() > noted.before->change.value());
        BOOST_TEST(get(me, f) == "abcdef");
        // It never makes it shorter, and what nobody told of is zeros when the file grows over it.
        must(fs->note_written(me, f, 2));
        cut(f, block + 3);
        BOOST_TEST(get(me, f, block, 10) == std::string(3, '\0'));
        poke(m, block + 10, "lost");
    }
    // With the memory what was told to nobody goes.
    BOOST_TEST(stat(f).used == 2 * block);
    cut(f, 2 * block);
    BOOST_TEST(get(me, f, block + 10, 4) == std::string(4, '\0'));
    BOOST_TEST(fails(fs->note_written(user(7, 7), f, 1)) == EACCES);
}

// Who writes behind what a peer has written, and not told of yet, takes nothing of it away.
BOOST_FIXTURE_TEST_CASE(a_write_behind_the_end_leaves_what_peers_wrote_before_it, mappings)
{
    const handle f = make_file("f", "abc");
    {
        const mapping m = map(f, 0, 3 * block);
        poke(m, 10, "told later");
        poke(m, block + 1, "this too");
        put(me, f, block + 50, "x");
        BOOST_TEST(get(me, f, 10, 10) == "told later");
        BOOST_TEST(get(me, f, block + 1, 8) == "this too");
        must(fs->note_written(me, f, block + 9));
        BOOST_TEST(stat(f).size == block + 51);
    }
    BOOST_TEST(get(me, f, 10, 10) == "told later");
    BOOST_TEST(stat(f).used == 2 * block);
}

BOOST_FIXTURE_TEST_CASE(who_may_only_write_maps_nothing, mappings)
{
    const handle f = make_file("f", "abc");
    storage::set_attributes set;
    set.mode = 0622;
    must(fs->setattr(me, f, set, std::nullopt));
    const storage::request other = user(7, 7);
    for (const map_use use : {map_use::read, map_use::write})
        BOOST_TEST(fails(fs->map(other, f, 0, 3, use)) == EACCES);
    set.mode = 0644;
    must(fs->setattr(me, f, set, std::nullopt));
    BOOST_TEST(fails(fs->map(other, f, 0, 3, map_use::read)) == 0);
    BOOST_TEST(fails(fs->map(other, f, 0, 3, map_use::write)) == EACCES);
}

// Who has the memory needs no call to write a program: nobody's set-ID bits stay on it.
BOOST_FIXTURE_TEST_CASE(memory_to_write_takes_set_id_bits_away, mappings)
{
    const handle f = make_file("f", "abc");
    storage::set_attributes set;
    set.mode = 06777;
    must(fs->setattr(me, f, set, std::nullopt));
    const storage::request other = user(7, 7);
    (void)must(fs->map(other, f, 0, 3, map_use::read));
    BOOST_TEST(stat(f).mode == 06777u);
    const auto before = stat(f).change.value();
    (void)must(fs->map(other, f, 0, 3, map_use::write));
    BOOST_TEST(stat(f).mode == 0777u);
    BOOST_TEST(stat(f).change.value() > before);
}

// The random walk found this.
BOOST_FIXTURE_TEST_CASE(a_peer_of_a_file_that_was_cut_writes_behind_the_end, mappings)
{
    const handle f = make_file("f", std::string(block, 'a'));
    const mapping m = map(f, 0, block);
    cut(f, 100);
    poke(m, 200, "behind");
    cut(f, block);
    BOOST_TEST(get(me, f, 200, 6) == std::string(6, '\0'));
}

// Whoever has the source's memory may have written behind its end; the clone's end may move in three ways.
BOOST_FIXTURE_TEST_CASE(a_peers_write_behind_the_end_shows_in_no_clone, mappings)
{
    const handle f = make_file("f", "abc");
    const mapping m = map(f, 0, block);
    poke(m, 100, "garbage");
    const auto clone_of_f = [&](const char* name) {
        const handle g = make_file(name);
        must(fs->clone(me, f, 0, g, 0, 3));
        return g;
    };
    const std::string zeros(7, '\0');
    const handle longer = clone_of_f("longer");
    cut(longer, 200);
    BOOST_TEST(get(me, longer, 100, 7) == zeros);
    const handle seen = clone_of_f("seen");
    const mapping by_reader = map(seen, 0, 3, map_use::read);
    BOOST_TEST(text(by_reader.parts[0], 0, 3) == "abc");
    BOOST_TEST(text(by_reader.parts[0], 100, 7) == zeros);
    put(me, seen, 150, "x");
    BOOST_TEST(get(me, seen, 100, 7) == zeros);
    const handle told = clone_of_f("told");
    const mapping by_writer = map(told, 0, block);
    must(fs->note_written(me, told, 200));
    BOOST_TEST(get(me, told, 100, 7) == zeros);
    // The peer of the source has lost nothing.
    must(fs->note_written(me, f, 107));
    BOOST_TEST(get(me, f, 100, 7) == "garbage");
}

// Whole blocks and then a part of one, at another place of the file itself.
BOOST_FIXTURE_TEST_CASE(a_clone_within_a_file_ends_with_zeros, mappings)
{
    const handle f = make_file("f", std::string(block + 3, 'a'));
    const mapping m = map(f, 0, 2 * block);
    poke(m, block + 100, "garbage");
    must(fs->clone(me, f, 0, f, 3 * block, block + 3));
    must(fs->note_written(me, f, 5 * block));
    BOOST_TEST(get(me, f, 4 * block, 4) == std::string("aaa\0", 4));
    BOOST_TEST(get(me, f, 4 * block + 100, 7) == std::string(7, '\0'));
    BOOST_TEST(get(me, f, 4 * block - 1, 1) == "a");
}

BOOST_FIXTURE_TEST_CASE(random_walk_of_files_and_their_memory, mappings)
{
    const auto fresh = static_cast<unsigned>(system_random().draw());
    std::size_t lent = 0;
    for (const unsigned seed : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, fresh}) {
        BOOST_TEST_CONTEXT("seed " << seed)
        {
            std::mt19937 random(seed);
            const auto below = [&](std::uint64_t n) { return std::uint64_t(random()) % n; };
            constexpr std::uint64_t most = 12 * block;
            struct holding {
                map_use use;
                mapping m;
            };
            struct file {
                handle h;
                std::string content;
                std::vector<holding> held;
            };
            struct reading { // of a READ that is being sent
                lent_memory memory;
                std::string content;
            };
            std::vector<reading> sent;
            std::array<file, 3> files;
            for (std::size_t i = 0; i < files.size(); ++i)
                files[i].h = make_file("w" + std::to_string(seed) + std::to_string(i));
            const auto is_held = [&](const file& f, std::uint64_t begin, std::uint64_t end) {
                return std::ranges::any_of(f.held, [&](const holding& held) {
                    return std::ranges::any_of(held.m.parts, [&](const mapping::part& p) {
                        return p.offset < end && p.offset + p.memory.size() > begin;
                    });
                });
            };
            const auto is_written = [](const file& f, std::uint64_t at) {
                return std::ranges::any_of(f.held, [&](const holding& held) {
                    return held.use == map_use::write &&
                           std::ranges::any_of(held.m.parts, [&](const mapping::part& p) {
                               return p.offset <= at && at - p.offset < p.memory.size();
                           });
                });
            };
            // Behind the end there is what peers write that still have it, and nobody else's bytes.
            const auto has_zeros_behind = [&is_written](const file& f, const mapping& m) {
                return std::ranges::all_of(m.parts, [&](const mapping::part& p) {
                    const std::uint64_t size = f.content.size();
                    const std::uint64_t end = p.offset + p.memory.size();
                    return end <= size || is_written(f, size) ||
                           std::ranges::all_of(p.memory.subspan(size - p.offset),
                                               [](std::byte b) { return b == std::byte(0); });
                });
            };
            for (int step = 0; step < 300; ++step) {
                file& f = files[below(files.size())];
                const std::uint64_t at = below(2) == 0 ? below(most) : below(12) * block;
                const std::uint64_t length = 1 + below(below(2) == 0 ? 300 : 3 * block);
                // What there is from the end to there: zeros, and what peers that still have it have written.
                const auto grow_to = [&f](std::uint64_t end) {
                    const std::size_t before = f.content.size();
                    f.content.resize(std::max<std::size_t>(before, end));
                    for (const holding& held : f.held) {
                        if (held.use == map_use::read)
                            continue;
                        for (const mapping::part& p : held.m.parts) {
                            for (std::uint64_t i = std::max<std::uint64_t>(before, p.offset);
                                 i < std::min<std::uint64_t>(end, p.offset + p.memory.size()); ++i)
                                f.content[i] = char(p.memory[i - p.offset]);
                        }
                    }
                };
                switch (below(14)) {
                case 0: { // WRITE
                    const std::string text(length, char('a' + below(26)));
                    grow_to(at);
                    if (f.content.size() < at + length)
                        f.content.resize(at + length);
                    put(me, f.h, at, text);
                    f.content.replace(at, length, text);
                    break;
                }
                case 1: { // SETATTR
                    const std::uint64_t first_lost = (at + block - 1) / block * block;
                    const bool refused = at < f.content.size() && is_held(f, first_lost, ~std::uint64_t(0));
                    BOOST_TEST(fails(fs->setattr(me, f.h, sized(at), std::nullopt)) ==
                               (refused ? EAGAIN : 0));
                    if (!refused)
                        f.content.resize(at);
                    break;
                }
                case 2: // DEALLOCATE
                    must(fs->deallocate(me, f.h, at, length));
                    if (at < f.content.size()) {
                        const std::uint64_t n = std::min<std::uint64_t>(length, f.content.size() - at);
                        f.content.replace(at, n, std::string(n, '\0'));
                    }
                    break;
                case 3: { // CLONE of whole blocks, or up to the end
                    const file& from = files[below(files.size())];
                    if (&from == &f || from.content.empty())
                        break;
                    const std::uint64_t size = from.content.size();
                    const std::uint64_t source = below((size + block - 1) / block) * block;
                    const std::uint64_t to = below(8) * block;
                    std::uint64_t count = size - source;
                    if (to + count < f.content.size() || below(2) == 0)
                        count = count / block * block;
                    if (count == 0)
                        break;
                    const bool refused = is_held(f, to, to + (count + block - 1) / block * block);
                    BOOST_TEST(fails(fs->clone(me, from.h, source, f.h, to, count)) ==
                               (refused ? EAGAIN : 0));
                    if (refused)
                        break;
                    if (f.content.size() < to + count)
                        f.content.resize(to + count);
                    f.content.replace(to, count, from.content.substr(source, count));
                    break;
                }
                case 9: // LAYOUTCOMMIT
                    must(fs->note_written(me, f.h, at));
                    grow_to(at);
                    break;
                case 10: // ALLOCATE
                    must(fs->allocate(me, f.h, at, length));
                    f.content.resize(std::max<std::size_t>(f.content.size(), at + length));
                    break;
                case 11: { // COPY
                    const file& from = files[below(files.size())];
                    const std::uint64_t source = below(most);
                    if (&from == &f || source >= from.content.size())
                        break;
                    const std::uint64_t count = std::min<std::uint64_t>(length, from.content.size() - source);
                    must(fs->copy(me, from.h, source, f.h, at, count));
                    if (f.content.size() < at + count)
                        f.content.resize(at + count);
                    f.content.replace(at, count, from.content.substr(source, count));
                    break;
                }
                case 4:
                case 5: // LAYOUTGET
                    if (f.held.size() < 3) {
                        const map_use use = below(2) == 0 ? map_use::read : map_use::write;
                        f.held.push_back({use, map(f.h, at, length, use)});
                    }
                    break;
                case 6: // LAYOUTRETURN
                    if (!f.held.empty())
                        f.held.erase(f.held.begin() + std::ptrdiff_t(below(f.held.size())));
                    break;
                case 12: { // READ, sent from where the bytes lie
                    const std::uint64_t asked = block / 2 + below(2 * block); // less is copied
                    located_read there =
                        must(fs->locate(me, f.h, at, std::uint32_t(asked), locatable::memory));
                    lent += there.here;
                    if (there.here && sent.size() < 8)
                        sent.push_back({std::move(there.memory), f.content.substr(at, asked)});
                    break;
                }
                case 13: // all of one has been sent
                    if (!sent.empty())
                        sent.erase(sent.begin() + std::ptrdiff_t(below(sent.size())));
                    break;
                default: // a peer writes, within the file and behind its end
                    for (const auto& [use, m] : f.held) {
                        if (use == map_use::read)
                            continue;
                        for (const mapping::part& p : m.parts) {
                            const std::uint64_t begin = below(p.memory.size());
                            const std::uint64_t n = std::min<std::uint64_t>(length, p.memory.size() - begin);
                            const char c = char('A' + below(26));
                            std::ranges::fill(p.memory.subspan(begin, n), std::byte(c));
                            const std::uint64_t to = p.offset + begin;
                            if (to < f.content.size()) {
                                const std::uint64_t inside =
                                    std::min<std::uint64_t>(n, f.content.size() - to);
                                f.content.replace(to, inside, std::string(inside, c));
                            }
                        }
                    }
                }
                for (const reading& each : sent) {
                    std::size_t from = 0;
                    for (const auto piece : std::span(each.memory.pieces).first(each.memory.count)) {
                        BOOST_TEST_REQUIRE(from + piece.size() <= each.content.size());
                        BOOST_TEST_REQUIRE(
                            std::memcmp(piece.data(), each.content.data() + from, piece.size()) == 0);
                        from += piece.size();
                    }
                    BOOST_TEST_REQUIRE(from == each.content.size());
                }
                for (const file& each : files) {
                    BOOST_TEST_REQUIRE((get(me, each.h, 0, 2 * most) == each.content));
                    for (const auto& [use, m] : each.held) {
                        BOOST_TEST_REQUIRE((use == map_use::write || has_zeros_behind(each, m)));
                        for (const mapping::part& p : m.parts) {
                            const std::uint64_t n =
                                p.offset >= each.content.size()
                                    ? 0
                                    : std::min<std::uint64_t>(each.content.size() - p.offset,
                                                              p.memory.size());
                            BOOST_TEST_REQUIRE(
                                (text(p, p.offset, n) == each.content.substr(n == 0 ? 0 : p.offset, n)));
                        }
                    }
                }
            }
        }
    }
    BOOST_TEST(lent != 0u); // else the walk shows nothing of them
}
