// SPDX-License-Identifier: Apache-2.0
// READs of memfs that are sent from where their bytes lie: they are what the file held when it was read.
#include "memfs_snapshots.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

using namespace suite;

namespace {

constexpr std::uint64_t most_lent = 64;

struct loans : snapshots {
    located_read locate(const request& who, const handle& f, std::uint64_t offset, std::uint32_t length)
    {
        return must(fs->locate(who, f, offset, length, locatable::memory));
    }
    std::optional<lent_memory> lend(const handle& f, std::uint64_t offset, std::uint32_t length)
    {
        located_read there = locate(me, f, offset, length);
        BOOST_TEST(there.here == !there.memory.empty());
        BOOST_TEST(there.bytes.empty());
        return there.here ? std::optional(std::move(there.memory)) : std::nullopt;
    }
    static set_attributes sized(std::uint64_t size)
    {
        set_attributes set;
        set.size = size;
        return set;
    }
    static std::string text(const lent_memory& m)
    {
        std::string out;
        for (const auto piece : std::span(m.pieces).first(m.count))
            out.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        return out;
    }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_read_on_loan_is_as_read_is, loans)
{
    std::string content(3 * block + 100, 'a');
    for (std::size_t i = 0; i < content.size(); ++i)
        content[i] = char('a' + i * 7 % 23);
    const handle f = make_file("f", content);
    const auto same = [&](std::uint64_t offset, std::uint32_t length) {
        const located_read there = locate(me, f, offset, length);
        std::string taken(length, 0);
        const read_result read =
            must(fs->read(me, f, offset, std::as_writable_bytes(std::span(taken.data(), taken.size()))));
        taken.resize(read.count);
        BOOST_TEST_REQUIRE(there.here);
        BOOST_TEST(there.read.count == read.count);
        BOOST_TEST(there.read.end_of_file == read.end_of_file);
        BOOST_TEST(there.read.attrs->change.value() == read.attrs->change.value());
        BOOST_TEST(there.read.attrs->size == content.size());
        BOOST_TEST((text(there.memory) == taken));
        BOOST_TEST(there.memory.count == 1u); // neighbours in the file are neighbours in memory
    };
    same(0, 3 * block);
    same(10, 2 * block);
    same(block - 1, block / 2);
    same(block, block);
    same(2 * block, 10 * block); // to the end
    // Nothing to lend: read() tells why.
    BOOST_TEST(!lend(f, content.size(), block));
    BOOST_TEST(!lend(f, 0, 0));
    BOOST_TEST(!lend(make_file("empty"), 0, block));
    // For a little a whole block would stay on loan.
    BOOST_TEST(lend(f, 0, block / 2).has_value());
    BOOST_TEST(!lend(f, 0, block / 2 - 1));
    BOOST_TEST(!lend(f, 3 * block, block));
}

BOOST_FIXTURE_TEST_CASE(who_may_not_read_gets_no_loan, loans)
{
    const handle f = make_file("f", std::string(block, 'a'), 0600);
    const request bob = user(1000, 1000);
    BOOST_TEST(fails(fs->locate(bob, f, 0, block, locatable::memory)) == EACCES);
    BOOST_TEST(fails(fs->locate(me, fs->root(), 0, block, locatable::memory)) == EISDIR);
    must(fs->remove(me, fs->root(), "f"));
    BOOST_TEST(fails(fs->locate(me, f, 0, block, locatable::memory)) == ESTALE);
}

BOOST_FIXTURE_TEST_CASE(a_loan_keeps_its_bytes_whatever_is_done_to_the_file, loans)
{
    const std::string old(4 * block, 'o');
    const handle other = make_file("other", std::string(4 * block, 'x'));
    const std::vector<std::function<void(const handle&)>> changes = {
        [&](const handle& f) { put(me, f, block + 5, "new"); },
        [&](const handle& f) { put(me, f, 0, std::string(4 * block, 'n')); },
        [&](const handle& f) { cut(f, 0); },
        [&](const handle& f) { cut(f, block + 1); },
        [&](const handle& f) { must(fs->deallocate(me, f, 0, 4 * block)); },
        [&](const handle& f) { must(fs->deallocate(me, f, 7, 3 * block)); },
        [&](const handle& f) { must(fs->clone(me, other, 0, f, 0, 4 * block)); },
        [&](const handle& f) { must(fs->copy(me, other, 0, f, 3, 4 * block - 3)); },
        [&](const handle&) { must(fs->remove(me, fs->root(), "f")); },
        [&](const handle& f) {
            const mapping m = must(fs->map(me, f, 0, 4 * block, map_use::write));
            for (const mapping::part& p : m.parts)
                std::ranges::fill(p.memory, std::byte('p'));
            must(fs->note_written(me, f, 4 * block));
        },
    };
    const std::uint64_t room = free_bytes();
    for (const auto& change : changes) {
        const handle f = make_file("f", old);
        {
            const auto lent = lend(f, 0, 4 * block);
            BOOST_TEST_REQUIRE(lent.has_value());
            change(f);
            // Blocks that were let go are taken by others, if nobody keeps them.
            make_file("next", std::string(8 * block, 'z'));
            BOOST_TEST((text(*lent) == old));
            must(fs->remove(me, fs->root(), "next"));
        }
        (void)run(fs->remove(me, fs->root(), "f"));
        BOOST_TEST_REQUIRE(free_bytes() == room);
    }
}

BOOST_FIXTURE_TEST_CASE(the_file_has_what_was_written_while_its_bytes_were_on_loan, loans)
{
    const handle f = make_file("f", std::string(2 * block, 'o'));
    const auto first = lend(f, 0, 2 * block);
    put(me, f, 10, "new");
    const auto second = lend(f, 0, 2 * block);
    put(me, f, 20, "newer");
    BOOST_TEST((text(*first) == std::string(2 * block, 'o')));
    BOOST_TEST(text(*second).substr(8, 20) == "oonewooooooooooooooo");
    BOOST_TEST(get(me, f, 8, 20) == "oonewooooooonewerooo");
}

BOOST_FIXTURE_TEST_CASE(holes_and_memory_that_a_peer_may_write_are_not_lent, loans)
{
    const handle f = make_file("f", std::string(4 * block, 'a'));
    must(fs->deallocate(me, f, block, block));
    BOOST_TEST(!lend(f, 0, 2 * block));
    BOOST_TEST(!lend(f, block, block));
    BOOST_TEST(lend(f, 2 * block, 2 * block).has_value());
    must(fs->allocate(me, f, block, block)); // room that nobody has written to
    BOOST_TEST(!lend(f, 0, 2 * block));
    {
        const mapping m = must(fs->map(me, f, 3 * block, block, map_use::write));
        BOOST_TEST(!lend(f, 2 * block, 2 * block));
        BOOST_TEST(lend(f, 2 * block, block).has_value());
    }
    BOOST_TEST(lend(f, 2 * block, 2 * block).has_value());
    // A loan that began before sees nothing of what the peer writes.
    const auto lent = lend(f, 2 * block, 2 * block);
    const mapping m = must(fs->map(me, f, 2 * block, 2 * block, map_use::write));
    for (const mapping::part& p : m.parts)
        std::ranges::fill(p.memory, std::byte('p'));
    BOOST_TEST((text(*lent) == std::string(2 * block, 'a')));
    BOOST_TEST(get(me, f, 2 * block, 3) == "ppp");
}

BOOST_FIXTURE_TEST_CASE(a_file_in_more_pieces_than_a_reply_takes_is_copied, loans)
{
    // Written into gaps between other files' blocks.
    const handle a = make_file("a");
    std::vector<handle> small;
    for (int i = 0; i < 40; ++i)
        small.push_back(make_file("s" + std::to_string(i), std::string(block, 's')));
    for (int i = 0; i < 40; i += 2)
        must(fs->remove(me, fs->root(), "s" + std::to_string(i)));
    for (std::uint64_t at = 0; at < 5; ++at)
        put(me, a, 2 * at * block, std::string(block, 'a')); // its neighbours are holes
    for (std::uint64_t at = 0; at < 5; ++at)
        put(me, a, (2 * at + 1) * block, std::string(block, 'b'));
    std::size_t most = 0, none = 0;
    for (std::uint64_t at = 0; at < 10; ++at) {
        for (std::uint32_t n = 1; at + n <= 10; ++n) {
            const auto lent = lend(a, at * block, n * block);
            most = std::max(most, lent ? lent->count : 0);
            none += !lent;
            if (lent)
                BOOST_TEST((text(*lent) == get(me, a, at * block, n * block)));
        }
    }
    BOOST_TEST(most == lent_memory::max_pieces);
    BOOST_TEST(none > 0u);
    // What was begun and not made is no loan: all can be changed without a copy, and nothing is kept.
    const std::uint64_t used = stat(a).used;
    cut(a, 0);
    BOOST_TEST(used == 10 * block);
    BOOST_TEST(stat(a).used == 0u);
}

BOOST_FIXTURE_TEST_CASE(loans_that_came_to_nothing_leave_none, loans)
{
    const handle f = make_file("f", std::string(block, 'a'));
    must(fs->setattr(me, f, sized(2 * block), std::nullopt)); // a hole behind the block
    make_file("g", std::string(2 * block, 'b'));
    for (std::uint64_t i = 0; i < 2 * most_lent; ++i)
        BOOST_TEST(!lend(f, 0, 2 * block));
    // As many as may be on loan still can.
    std::vector<handle> small;
    std::vector<lent_memory> out;
    while (free_bytes() >= 2 * block) {
        small.push_back(make_file("s" + std::to_string(small.size()), std::string(block, 's')));
        out.push_back(lend(small.back(), 0, block).value());
        put(me, small.back(), 0, "t");
    }
    // A block that is let go is taken at once by who needs one: nobody has the first file's.
    cut(f, 0);
    const std::uint64_t most = most_lent - out.size();
    std::size_t more = 0;
    for (const handle& each : small) {
        if (auto lent = lend(each, 0, block)) {
            out.push_back(std::move(*lent));
            ++more;
        }
    }
    BOOST_TEST(more == std::min<std::uint64_t>(most, small.size()));
}

// Loans take none of the room of files, and have a bound of their own.
BOOST_FIXTURE_TEST_CASE(a_full_file_system_all_of_which_is_on_loan_can_be_written_anew, loans)
{
    constexpr std::uint64_t count = 1024, most = count / 8; // an eighth
    memfs::memfs_options o;
    o.max_bytes = count * block;
    fs = std::move(*memfs::open_memfs(o, pool));
    const handle f = make_file("f");
    std::uint64_t places = 0;
    for (; free_bytes() >= block; ++places)
        put(me, f, places * block, std::string(block, 'o'));
    BOOST_TEST_REQUIRE(places == count - 1); // names take some of the rest
    const std::uint64_t room = free_bytes();
    const auto lend_all = [&] {
        std::vector<lent_memory> out;
        for (std::uint64_t at = 0; at < places; ++at)
            if (auto lent = lend(f, at * block, block))
                out.push_back(std::move(*lent));
        return out;
    };
    const auto write_all = [&](char c) {
        for (std::uint64_t at = 0; at < places; ++at)
            put(me, f, at * block, std::string(block, c));
    };
    std::vector<lent_memory> out = lend_all();
    BOOST_TEST(out.size() == most);
    BOOST_TEST(free_bytes() == room);
    write_all('n');
    BOOST_TEST(free_bytes() == room);
    BOOST_TEST(lend_all().empty()); // the old blocks are on loan still
    write_all('m');
    for (const lent_memory& each : out)
        BOOST_TEST((text(each) == std::string(block, 'o')));
    out.clear();
    BOOST_TEST(free_bytes() == room);
    BOOST_TEST(lend_all().size() == most);
}

BOOST_FIXTURE_TEST_CASE(loans_of_one_block_count_once, loans)
{
    const handle f = make_file("f", std::string(2 * block, 'a'));
    std::vector<lent_memory> out;
    for (std::uint64_t i = 0; i < 2 * most_lent; ++i)
        out.push_back(lend(f, 0, block).value());
    put(me, f, 0, "b");
    out.resize(1);
    make_file("next", std::string(block, 'z'));
    BOOST_TEST((text(out[0]) == std::string(block, 'a')));
}

BOOST_FIXTURE_TEST_CASE(a_loan_outlives_the_back_end, loans)
{
    const handle f = make_file("f", std::string(2 * block, 'a'));
    std::optional<lent_memory> lent = lend(f, 0, 2 * block);
    fs.reset();
    BOOST_TEST((text(lent.value()) == std::string(2 * block, 'a')));
}

// As when a reload takes an export whose replies still wait for a slow client.
BOOST_FIXTURE_TEST_CASE(loans_end_while_the_back_end_goes, loans)
{
    const handle f = make_file("f", std::string(32 * block, 'a'));
    std::vector<lent_memory> lent;
    for (std::uint64_t at = 0; at < 32; ++at)
        lent.push_back(lend(f, at * block, block).value());
    BOOST_TEST(memfs::lent_bytes_of(*fs) == 32 * block);
    std::thread other([&lent] { lent.clear(); });
    fs.reset();
    other.join();
    BOOST_TEST(lent.empty());
}

BOOST_FIXTURE_TEST_CASE(blocks_of_snapshots_are_lent_and_counted_as_before, loans)
{
    const handle f = make_file("f", std::string(4 * block, 'o'));
    take("s");
    put(me, f, 0, std::string(2 * block, 'n'));
    BOOST_TEST(held() == 2 * block);
    const std::uint64_t room = free_bytes();
    const handle kept = find(find(place(), "s"), "f");
    const auto lent = lend(kept, 0, 4 * block);
    BOOST_TEST_REQUIRE(lent.has_value());
    BOOST_TEST(held() == 2 * block);
    BOOST_TEST(free_bytes() == room);
    put(me, f, 2 * block, std::string(2 * block, 'n'));
    BOOST_TEST(held() == 4 * block);
    end("s");
    BOOST_TEST(held() == 0u);
    make_file("next", std::string(8 * block, 'z'));
    BOOST_TEST((text(*lent) == std::string(4 * block, 'o')));
    BOOST_TEST((get(me, f, 0, 4 * block) == std::string(4 * block, 'n')));
}
