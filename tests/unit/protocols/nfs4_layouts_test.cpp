// SPDX-License-Identifier: Apache-2.0
// Layouts of files of memfs: what clients read and write by RDMA on two shards of a server, and what they can't any
// more once it is taken back.
#include "nfs4_layouts_alone.hpp"

#include <verbena/core/random.hpp>
#include <verbena/core/task/scope.hpp>

#include <boost/test/unit_test.hpp>

#include <random>
#include <string>
#include <utility>
#include <vector>

BOOST_AUTO_TEST_SUITE(nfs4_layouts_test)

using namespace verbena;
using namespace verbena::test;
using namespace verbena::test::layouts_alone;

BOOST_AUTO_TEST_CASE(a_client_reads_and_writes_by_rdma_on_each_shard)
{
    data_server s;
    s.run([&]() -> task<void> {
        const auto f = co_await s.make("f", std::string(3 * block, 'a'));
        auto c = co_await s.connect("c");
        const auto opened = co_await s.open(c, f);
        const auto got = co_await s.get(c, f, opened, lock_type::write, 100, 2 * block, 1);
        BOOST_TEST_REQUIRE(got.has_value());
        BOOST_TEST_REQUIRE(got->extents.size() == 1u); // whole blocks
        BOOST_TEST(got->extents[0].offset == 0u);
        BOOST_TEST(got->extents[0].length == 3 * block);
        BOOST_TEST(got->attrs.size == 3 * block);
        const verbs::remote_segment there = got->extents[0].memory;
        for (unsigned i = 0; i < 2; ++i) {
            const bool done = co_await c.at[i]->write(there, 10 + 20 * i, "by rdma");
            BOOST_TEST(done);
            const auto seen = co_await s.text(f, 9 + 20 * i, 9);
            BOOST_TEST(seen == "aby rdmaa");
        }
        (void)co_await s.put(f, block, "by nfs");
        const auto read = co_await c.at[1]->read(there, block, 6);
        BOOST_TEST((read == std::optional<std::string>("by nfs")));

        // Another client's connection is no way to it.
        auto d = co_await s.connect("d");
        const bool foreign = co_await d.at[0]->write(there, 0, "foreign");
        BOOST_TEST(!foreign);

        const int before = co_await s.cut(f, block);
        BOOST_TEST(before == EAGAIN);
        const auto back = co_await s.give_back(c, f, got->id);
        BOOST_TEST_REQUIRE(back.has_value());
        BOOST_TEST(!back->has_value());
        (void)co_await sleep_for(1ms);
        BOOST_TEST(s.server->grants() == 0u);
        BOOST_TEST(s.kind.counts().segments == 0);
        const bool late = co_await c.at[0]->write(there, 0, "late");
        BOOST_TEST(!late);
        const int then = co_await s.cut(f, block);
        BOOST_TEST(then == 0);
    });
}

BOOST_AUTO_TEST_CASE(a_layout_to_read_has_holes_and_ends_with_the_file)
{
    data_server s;
    s.run([&]() -> task<void> {
        const auto f = co_await s.make("f", "begin");
        (void)co_await s.put(f, 2 * block, "x");
        (void)co_await s.cut(f, 4 * block + 1);
        auto c = co_await s.connect("c");
        const auto opened = co_await s.open(c, f);
        const auto got = co_await s.get(c, f, opened, lock_type::read, 0, files::byte_range::to_the_end);
        BOOST_TEST_REQUIRE(got.has_value());
        BOOST_TEST_REQUIRE(got->extents.size() == 4u);
        std::uint64_t at = 0;
        for (const layouts::extent& e : got->extents) {
            BOOST_TEST(e.offset == at);
            at += e.length;
        }
        BOOST_TEST(at == 5 * block);
        BOOST_TEST((got->extents[1].is == layouts::extent::kind::hole &&
                    got->extents[3].is == layouts::extent::kind::hole));
        const bool done = co_await c.at[0]->write(got->extents[0].memory, 0, "no");
        BOOST_TEST(!done); // to read alone
    });
}

BOOST_AUTO_TEST_CASE(what_cannot_be_mapped_is_not_held)
{
    data_server s;
    s.run([&]() -> task<void> {
        const auto f = co_await s.make("f", "text");
        auto c = co_await s.connect("c");
        const auto opened = co_await s.open(c, f);
        const auto full = co_await s.make("full", "");
        const std::string chunk(1 << 20, 'x');
        for (std::uint64_t i = 0; i < 63; ++i)
            (void)co_await s.put(full, i << 20, chunk);
        const auto none = co_await s.get(c, f, opened, lock_type::write, 0, 2 << 20);
        BOOST_TEST((!none && none.error().errno_value() == ENOSPC));
        const auto empty = co_await s.get(c, f, opened, lock_type::read, block, 1);
        BOOST_TEST((!empty && empty.error().errno_value() == ENODATA));
        (void)co_await sleep_for(1ms);
        const auto held = co_await s.held(f);
        BOOST_TEST(held == 0u);
        BOOST_TEST(s.kind.counts().segments == 0);
        // What the client had before stays.
        const auto some = co_await s.get(c, f, opened, lock_type::write, 0, block);
        BOOST_TEST_REQUIRE(some.has_value());
        const auto more = co_await s.get(c, f, some->id, lock_type::write, 0, 2 << 20);
        BOOST_TEST(!more.has_value());
        const bool done = co_await c.at[0]->write(some->extents[0].memory, 0, "TEXT");
        BOOST_TEST(done);
        const auto held_still = co_await s.held(f);
        BOOST_TEST(held_still == 1u);
    });
}

BOOST_AUTO_TEST_CASE(a_part_is_given_back_by_what_was_got_at_once)
{
    data_server s;
    s.run([&]() -> task<void> {
        const auto f = co_await s.make("f", std::string(12 * block, 'a'));
        auto c = co_await s.connect("c");
        const auto opened = co_await s.open(c, f);
        const auto one = co_await s.get(c, f, opened, lock_type::write, 0, 4 * block);
        BOOST_TEST_REQUIRE(one.has_value());
        const auto two = co_await s.get(c, f, one->id, lock_type::write, 4 * block, 4 * block, 1);
        BOOST_TEST_REQUIRE(two.has_value());
        BOOST_TEST(two->id.seqid == one->id.seqid + 1);
        // Within the first, which has one key.
        const auto within = co_await s.give_back(c, f, two->id, {block, 2 * block - 1});
        BOOST_TEST_REQUIRE((within && *within));
        (void)co_await sleep_for(1ms);
        BOOST_TEST(s.server->grants() == 2u);
        // The second goes as a whole, and what goes beyond it of the first stays.
        const auto beyond = co_await s.give_back(c, f, **within, {3 * block, 8 * block - 1});
        BOOST_TEST_REQUIRE((beyond && *beyond));
        BOOST_TEST((*beyond)->seqid == (*within)->seqid + 1);
        (void)co_await sleep_for(1ms);
        BOOST_TEST(s.server->grants() == 1u);
        const bool first = co_await c.at[0]->write(one->extents[0].memory, 3 * block, "first");
        BOOST_TEST(first);
        const bool second = co_await c.at[1]->write(two->extents[0].memory, 0, "second");
        BOOST_TEST(!second);
        const auto seen = co_await s.text(f, 3 * block, block + 6);
        BOOST_TEST((seen.starts_with("first") && seen.ends_with("aaaaaa")));
        // With the rest of it the first goes.
        const auto three = co_await s.get(c, f, **beyond, lock_type::write, 8 * block, 4 * block);
        BOOST_TEST_REQUIRE(three.has_value());
        const auto rest = co_await s.give_back(c, f, three->id, {0, 4 * block - 1});
        BOOST_TEST_REQUIRE((rest && *rest));
        (void)co_await sleep_for(1ms);
        BOOST_TEST(s.server->grants() == 1u);
    });
}

BOOST_AUTO_TEST_CASE(a_fence_waits_for_memory_that_is_being_granted)
{
    for (const bool maps_late : {true, false}) {
        data_server s;
        s.run([&]() -> task<void> {
            const auto f = co_await s.make("f", std::string(2 * block, 'a'));
            auto c = co_await s.connect("c");
            const auto opened = co_await s.open(c, f);
            const auto had = co_await s.get(c, f, opened, lock_type::write, 0, block);
            BOOST_TEST_REQUIRE(had.has_value());
            (maps_late ? s.backend->before : s.backend->after) = 1s;
            scope getting(s.here().reactor());
            result<layouts::granted> got = error(std::errc::operation_in_progress);
            getting.spawn([&]() -> task<void> {
                got = co_await s.get(c, f, had->id, lock_type::write, block, block, 1);
            });
            (void)co_await sleep_for(100ms);
            const auto back = co_await s.give_back(c, f, had->id);
            BOOST_TEST((back && !*back));
            (void)co_await sleep_for(500ms);
            // Whoever waits for the file waits for this, too.
            BOOST_TEST(s.kind.counts().segments == 2);
            co_await getting.join();
            (void)co_await sleep_for(100ms); // it looks 64 ms later at most
            BOOST_TEST(s.kind.counts().segments == 0);
            BOOST_TEST(s.server->grants() == 0u);
            const int cut = co_await s.cut(f, 0);
            BOOST_TEST(cut == 0);
        });
    }
}

BOOST_AUTO_TEST_CASE(a_fence_is_over_when_the_device_has_revoked)
{
    data_server s;
    s.run([&]() -> task<void> {
        const auto f = co_await s.make("f", std::string(block, 'a'));
        auto c = co_await s.connect("c");
        c.of = std::make_shared<layout_client>(
            c.of->id, std::make_unique<slow_domain>(std::move(*s.server->make_domain())));
        const auto opened = co_await s.open(c, f);
        const auto got = co_await s.get(c, f, opened, lock_type::write, 0, block);
        BOOST_TEST_REQUIRE(got.has_value());
        (void)co_await s.give_back(c, f, got->id);
        (void)co_await sleep_for(900ms);
        BOOST_TEST(s.kind.counts().segments == 1);
        const auto again = co_await s.get(c, f, opened, lock_type::write, 0, block);
        BOOST_TEST((!again && again.error() == files::errc::busy));
        (void)co_await sleep_for(200ms);
        BOOST_TEST(s.kind.counts().segments == 0);
        BOOST_TEST(s.kind.counts().revoked == 1u);
    });
}

// As of a client that an operator ends (evictions::end()).
BOOST_AUTO_TEST_CASE(a_client_whose_state_was_taken_reaches_nothing_by_rdma)
{
    data_server s;
    s.run([&]() -> task<void> {
        const auto f = co_await s.make("f", std::string(block, 'a'));
        auto c = co_await s.connect("c");
        auto d = co_await s.connect("d");
        const auto opened = co_await s.open(c, f);
        const auto got = co_await s.get(c, f, opened, lock_type::write, 0, block);
        BOOST_TEST_REQUIRE(got.has_value());
        const verbs::remote_segment there = got->extents[0].memory;
        const bool early = co_await c.at[1]->write(there, 0, "b");
        BOOST_TEST(early);
        const auto g = co_await s.make("g", std::string(block, 'a'));
        const auto of_d = co_await s.open(d, g);
        const auto theirs = co_await s.get(d, g, of_d, lock_type::write, 0, block);
        BOOST_TEST_REQUIRE(theirs.has_value());
        const auto end = [&s, id = c.of->id] { return s.state->clients().revoke_client(id); };
        auto ending = s.shards.at(0).run(end);
        const auto gone = co_await ending;
        BOOST_TEST(gone.has_value());
        for (unsigned i = 0; i < 2; ++i) {
            const bool late = co_await c.at[i]->write(there, 0, "late");
            BOOST_TEST(!late);
            const bool other = co_await d.at[i]->write(theirs->extents[0].memory, 0, "mine");
            BOOST_TEST(other);
        }
        const auto seen = co_await s.text(f, 0, 4);
        BOOST_TEST(seen == "baaa");
    });
}

// Whatever is given back in whichever order, a key is gone with the last of its bytes, and works before.
BOOST_AUTO_TEST_CASE(keys_go_with_the_last_of_their_bytes)
{
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed)
        {
            std::mt19937_64 random(seed);
            data_server s;
            s.run([&]() -> task<void> {
                const auto f = co_await s.make("f", std::string(16 * block, 'a'));
                auto c = co_await s.connect("c");
                const auto opened = co_await s.open(c, f);
                struct one {
                    std::uint64_t begin, end;
                    verbs::remote_segment memory;
                };
                std::vector<one> all;
                files::stateid id = opened;
                const auto keep = co_await s.get(c, f, id, lock_type::read, 15 * block, block);
                BOOST_TEST_REQUIRE(keep.has_value());
                id = keep->id;
                for (int i = 0; i < 5; ++i) {
                    const std::uint64_t begin = random() % 12;
                    const std::uint64_t count = 1 + random() % 4;
                    const auto got = co_await s.get(c, f, id, lock_type::write, begin * block, count * block);
                    BOOST_TEST_REQUIRE(got.has_value());
                    BOOST_TEST(got->id.seqid > id.seqid - (id == opened));
                    id = got->id;
                    all.push_back({begin, begin + count, got->extents[0].memory});
                }
                for (int i = 0; i < 6; ++i) {
                    const std::uint64_t begin = i == 5 ? 0 : random() % 12;
                    const std::uint64_t end =
                        i == 5 ? 15 : std::min<std::uint64_t>(begin + 1 + random() % 6, 15);
                    const auto back = co_await s.give_back(c, f, id, {begin * block, end * block - 1});
                    BOOST_TEST_REQUIRE(back.has_value(), (back ? std::string() : back.error().message()));
                    BOOST_TEST_REQUIRE(back->has_value());
                    id = **back;
                    (void)co_await sleep_for(5ms);
                    // What lies within it as a whole may be gone; what goes beyond it is there.
                    for (const one& each : all) {
                        if (each.begin >= begin && each.end <= end)
                            continue;
                        const bool was_gone = each.memory.key == 0;
                        if (was_gone)
                            continue;
                        const auto read = co_await c.at[0]->read(each.memory, 0, 1);
                        BOOST_TEST(read.has_value());
                    }
                    std::erase_if(all,
                                  [&](const one& each) { return each.begin >= begin && each.end <= end; });
                }
                // All that was to write is back.
                BOOST_TEST(s.server->grants() == 1u);
                BOOST_TEST(s.kind.counts().segments == 1);
                BOOST_TEST(c.of->grants.load() == 1u);
            });
        }
    }
}

BOOST_AUTO_TEST_CASE(a_client_has_no_more_than_its_share)
{
    data_server s;
    s.run([&]() -> task<void> {
        const auto f = co_await s.make("f", std::string(block, 'a'));
        auto c = co_await s.connect("c");
        const auto opened = co_await s.open(c, f);
        const auto hole = co_await s.make("hole", "");
        (void)co_await s.cut(hole, block);
        const auto empty = co_await s.open(c, hole);
        // The same bytes again and again, whatever by.
        const auto take = [&](const data_server::file& of, const files::stateid& by, lock_type type,
                              bool by_open) -> task<void> {
            files::stateid id = by;
            int got = 0;
            for (int i = 0; i < 100; ++i) {
                const auto more = co_await s.get(c, of, by_open ? by : id, type, 0, block);
                if (!more) {
                    BOOST_TEST((more.error() == files::errc::busy));
                    break;
                }
                id = more->id;
                ++got;
            }
            BOOST_TEST(got == 64);
            const auto back = co_await s.give_back(c, of, id);
            BOOST_TEST((back && !*back));
            (void)co_await sleep_for(1ms);
        };
        co_await take(f, opened, lock_type::write, false);
        co_await take(f, opened, lock_type::write, true);
        co_await take(hole, empty, lock_type::read, true);
        BOOST_TEST(s.server->grants() == 0u);
        BOOST_TEST(c.of->grants.load() == 0u);
    });
}

// What a client says as its stateid leads to another home than its file.
BOOST_AUTO_TEST_CASE(a_stateid_of_another_home_is_not_looked_for_there)
{
    data_server s;
    s.run([&]() -> task<void> {
        auto c = co_await s.connect("c");
        const auto at = co_await s.make_at_each(std::string(block, 'a'));
        const auto opened = co_await s.open(c, at[1]);
        (void)co_await s.open(c, at[0]);
        files::stateid id;
        for (int i = 0; i < 64; ++i) {
            const auto more = co_await s.get(c, at[1], opened, lock_type::write, 0, block);
            BOOST_TEST_REQUIRE(more.has_value());
            id = more->id;
        }
        const auto got = co_await s.get(c, at[0], id, lock_type::write, 0, block);
        BOOST_TEST((!got && got.error() == files::errc::bad_stateid));
        const auto back = co_await s.give_back(c, at[0], id);
        BOOST_TEST((!back && back.error() == files::errc::bad_stateid));
        BOOST_TEST(s.kind.counts().segments == 64);
        (void)co_await s.give_back(c, at[1], id);
        (void)co_await sleep_for(1ms);
    });
}

// Whoever waits for the file cuts it as soon as he may.
BOOST_AUTO_TEST_CASE(memory_that_was_mapped_in_vain_is_let_go_before_its_file)
{
    nfs::v4::pnfs::layout_limits limits;
    limits.grants_of_client = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed)
        {
            data_server s(seed, {}, limits);
            s.run([&]() -> task<void> {
                const auto f = co_await s.make("f", std::string(2 * block, 'a'));
                const unsigned home = co_await s.home_of(f);
                auto c = co_await s.connect("c");
                const auto opened = co_await s.open(c, f);
                s.backend->after = 100ms;
                scope both(s.here().reactor());
                result<layouts::granted> got = error(std::errc::operation_in_progress);
                both.spawn([&]() -> task<void> {
                    got = co_await s.get(c, f, opened, lock_type::write, 0, block, 1 - home);
                });
                (void)co_await sleep_for(50ms);
                int cut = -1;
                const auto cut_it = [&](files::state_table& table) -> task<result<void>> {
                    const files::demand wanted(files::operation::set_size, f.known);
                    auto making = table.make_way(wanted, 10s);
                    const auto made = co_await making;
                    if (made)
                        cut = co_await s.cut(f, 0);
                    co_return made;
                };
                auto cutting = s.state->at_home_of(f.known.key, cut_it);
                const auto made = co_await cutting;
                BOOST_TEST(made.has_value());
                BOOST_TEST(cut == 0);
                co_await both.join();
                BOOST_TEST((!got && got.error() == files::errc::busy));
                BOOST_TEST(s.kind.counts().segments == 0);
            });
        }
    }
}

// What it may say is written would come after what others do once the fence is over.
BOOST_AUTO_TEST_CASE(nothing_is_committed_while_some_of_the_layout_is_being_taken)
{
    data_server s;
    s.run([&]() -> task<void> {
        const auto f = co_await s.make("f", std::string(2 * block, 'a'));
        auto c = co_await s.connect("c");
        c.of = std::make_shared<layout_client>(
            c.of->id, std::make_unique<slow_domain>(std::move(*s.server->make_domain())));
        const auto opened = co_await s.open(c, f);
        const auto one = co_await s.get(c, f, opened, lock_type::write, 0, block);
        const auto two = co_await s.get(c, f, one->id, lock_type::write, block, block);
        const auto rest = co_await s.give_back(c, f, two->id, {0, block - 1});
        BOOST_TEST_REQUIRE((rest && *rest));
        const auto commit = [&]() -> task<result<void>> {
            const auto begin = [&](files::state_table& table) {
                const auto begun =
                    s.kind.begin_commit(table, c.of->id, **rest, f.known, {block, 2 * block - 1}, {});
                return begun ? result<void>() : result<void>(begun.error());
            };
            auto beginning = s.state->at_home_of(f.known.key, begin);
            co_return co_await beginning;
        };
        (void)co_await sleep_for(500ms);
        const auto early = co_await commit();
        BOOST_TEST((!early && early.error() == files::errc::busy));
        (void)co_await sleep_for(1s);
        const auto later = co_await commit();
        BOOST_TEST(later.has_value());
    });
}

// A commit takes as long as the disk does, and a shard has others to serve meanwhile.
BOOST_AUTO_TEST_CASE(a_fence_that_waits_for_a_commit_looks_less_and_less_often)
{
    data_server s;
    s.run([&]() -> task<void> {
        const auto f = co_await s.make("f", std::string(block, 'a'));
        auto c = co_await s.connect("c");
        const auto opened = co_await s.open(c, f);
        const auto got = co_await s.get(c, f, opened, lock_type::write, 0, block);
        BOOST_TEST_REQUIRE(got.has_value());
        std::optional<layouts::commit> committing;
        const auto begin = [&](files::state_table& table) {
            auto begun = s.kind.begin_commit(table, c.of->id, got->id, f.known, {0, block - 1}, {});
            if (begun)
                committing.emplace(std::move(*begun));
            return begun ? result<void>() : result<void>(begun.error());
        };
        auto beginning = s.state->at_home_of(f.known.key, begin);
        const result<void> begun = co_await beginning;
        BOOST_TEST_REQUIRE(begun.has_value());
        (void)co_await s.give_back(c, f, got->id);
        const auto turns = [&] {
            std::uint64_t all = 0;
            for (std::size_t i = 0; i < s.shards.size(); ++i)
                all += s.shards.at(i).reactor().stats().turns;
            return all;
        };
        (void)co_await sleep_for(1s);
        const std::uint64_t before = turns();
        (void)co_await sleep_for(10s);
        BOOST_TEST(turns() - before < 2000u);
        BOOST_TEST(s.kind.counts().segments == 1);
        const auto end = [&](files::state_table&) {
            committing.reset();
            return result<void>();
        };
        auto ending = s.state->at_home_of(f.known.key, end);
        (void)co_await ending;
        (void)co_await sleep_for(100ms); // it looks 64 ms later at most
        BOOST_TEST(s.kind.counts().segments == 0);
    });
}

// A late RDMA Write does not land on what the client writes by NFS then. Nor does it wait for ever, or for one home after the other.
BOOST_AUTO_TEST_CASE(a_return_of_all_waits_for_its_fences_a_second_at_most)
{
    for (const duration takes : {duration(100ms), duration(9s)}) {
        data_server s;
        s.run([&]() -> task<void> {
            const auto at = co_await s.make_at_each(std::string(block, 'a'));
            auto c = co_await s.connect("c");
            c.of = std::make_shared<layout_client>(
                c.of->id, std::make_unique<slow_domain>(std::move(*s.server->make_domain()), takes));
            for (const auto& f : at) {
                const auto opened = co_await s.open(c, f);
                const auto got = co_await s.get(c, f, opened, lock_type::write, 0, block);
                BOOST_TEST_REQUIRE(got.has_value());
            }
            const time_point before = s.clock.now();
            const auto give = [&] {
                return s.kind.give_back_all(*s.state, c.of->id, std::nullopt, std::nullopt);
            };
            auto giving = s.shards.at(0).run(give);
            const auto back = co_await giving;
            BOOST_TEST(back.has_value());
            const duration waited = s.clock.now() - before;
            BOOST_TEST(
                (waited >= std::min<duration>(takes, 1s) && waited < takes + 900ms && waited < 1100ms));
            BOOST_TEST(s.kind.counts().segments == (takes < 1s ? 0 : 2));
            (void)co_await sleep_for(10s);
            BOOST_TEST(s.kind.counts().segments == 0);
        });
    }
}

// Of a limit that the state layer does not know.
BOOST_AUTO_TEST_CASE(a_client_with_many_ranges_of_memory_is_asked_for_layouts)
{
    nfs::v4::pnfs::layout_limits limits;
    limits.grants_of_client = 8;
    data_server s(1, {}, limits);
    s.run([&]() -> task<void> {
        auto c = co_await s.connect("c");
        for (int i = 0; i < 9; ++i) {
            BOOST_TEST(s.recalls.asked.size() == (i < 8 ? 0u : 1u));
            const auto f = co_await s.make("f" + std::to_string(i), std::string(block, 'a'));
            const auto opened = co_await s.open(c, f);
            const auto got = co_await s.get(c, f, opened, lock_type::write, 0, block);
            BOOST_TEST(got.has_value() == (i < 8));
        }
        BOOST_TEST_REQUIRE(s.recalls.asked.size() == 1u);
        BOOST_TEST(s.recalls.asked[0].first == c.of->id);
        BOOST_TEST(s.recalls.asked[0].second == 6u);
    });
}

// Its fence has no place yet, as others of the client take their time.
BOOST_AUTO_TEST_CASE(nothing_is_given_by_what_waits_for_its_fence)
{
    data_server s;
    s.run([&]() -> task<void> {
        auto c = co_await s.connect("c");
        c.of = std::make_shared<layout_client>(
            c.of->id, std::make_unique<slow_domain>(std::move(*s.server->make_domain())));
        std::vector<data_server::file> all;
        std::vector<files::stateid> opens, ids;
        for (int i = 0; i < 60; ++i) {
            all.push_back(co_await s.make("f" + std::to_string(i), std::string(block, 'a')));
            opens.push_back(co_await s.open(c, all.back()));
            const auto got = co_await s.get(c, all.back(), opens.back(), lock_type::write, 0, block);
            BOOST_TEST_REQUIRE(got.has_value());
            ids.push_back(got->id);
        }
        scope asking(s.here().reactor());
        s.backend->after = 100ms;
        result<layouts::granted> late = error(files::errc::busy);
        asking.spawn([&]() -> task<void> {
            late = co_await s.get(c, all.back(), ids.back(), lock_type::write, block, block);
        });
        (void)co_await sleep_for(1ms);
        for (std::size_t i = 0; i < all.size(); ++i)
            (void)co_await s.give_back(c, all[i], ids[i]);
        co_await asking.join();
        BOOST_TEST((!late && late.error() == files::errc::recalled));
        (void)co_await sleep_for(10s);
        BOOST_TEST(s.kind.counts().segments == 0);
        BOOST_TEST(s.server->grants() == 0u);
    });
}

// The fence must not wait for what never comes.
BOOST_AUTO_TEST_CASE(a_back_end_that_throws_leaves_nothing_behind)
{
    data_server s;
    s.run([&]() -> task<void> {
        const auto f = co_await s.make("f", std::string(block, 'a'));
        auto c = co_await s.connect("c");
        const auto opened = co_await s.open(c, f);
        s.backend->throws = true;
        const auto got = co_await s.get(c, f, opened, lock_type::write, 0, block, 1);
        BOOST_TEST(!got.has_value());
        s.backend->throws = false;
        (void)co_await sleep_for(1ms);
        const auto held = co_await s.held(f);
        BOOST_TEST(held == 0u);
        BOOST_TEST(s.kind.counts().segments == 0);
        const auto again = co_await s.get(c, f, opened, lock_type::write, 0, block, 1);
        BOOST_TEST(again.has_value());
    });
}

// Peers write all the time, on both shards. From the moment at which the file could be cut on no byte of it changes.
BOOST_AUTO_TEST_CASE(no_byte_is_placed_after_a_layout_is_gone)
{
    const auto fresh = system_random().draw() >> 32;
    std::vector<std::uint64_t> seeds;
    for (std::uint64_t seed = 1; seed <= 20; ++seed)
        seeds.push_back(seed);
    for (int i = 0; i < 10; ++i)
        seeds.push_back(fresh + std::uint64_t(i));
    std::size_t written = 0, refused = 0;
    for (const std::uint64_t seed : seeds) {
        BOOST_TEST_CONTEXT("seed " << seed)
        {
            std::mt19937_64 random(seed);
            loop::conditions conditions;
            if (seed % 2 == 0)
                conditions.latency = 5us;
            if (seed % 3 == 0)
                conditions[loop::fault::late_revocation] = 500'000;
            data_server s(seed, conditions);
            s.run([&]() -> task<void> {
                const auto f = co_await s.make("f", std::string(4 * block, 'a'));
                auto c = co_await s.connect("c");
                const auto opened = co_await s.open(c, f);
                for (int round = 0; round < 3; ++round) {
                    for (unsigned i = 0; i < 2; ++i)
                        if (!c.at[i]->is_up())
                            co_await s.connect(c, i);
                    const auto got = co_await s.get(c, f, opened, lock_type::write, 0, 4 * block, round % 2);
                    BOOST_TEST_REQUIRE(got.has_value());
                    bool goes_on = true;
                    scope writers(s.here().reactor());
                    for (unsigned i = 0; i < 2; ++i)
                        writers.spawn([&, i]() -> task<void> {
                            for (int n = 0; goes_on && c.at[i]->is_up(); ++n) {
                                const std::string text(1 + random() % 5000, char('b' + n % 20));
                                const bool done = co_await c.at[i]->write(got->extents[0].memory,
                                                                          random() % (3 * block), text);
                                (done ? written : refused) += 1;
                                (void)co_await sleep_for(1us);
                            }
                        });
                    (void)co_await sleep_for(std::chrono::microseconds(50 + random() % 100));
                    if (round % 2 == 0)
                        co_await s.revoke(f, got->id);
                    else
                        (void)co_await s.give_back(c, f, got->id);
                    // As who opens the file and denies others would.
                    for (int tries = 0; s.kind.counts().segments != 0 && tries < 1000; ++tries)
                        (void)co_await sleep_for(1us);
                    BOOST_TEST(s.kind.counts().segments == 0);
                    const auto then = co_await s.text(f, 0, 4 * block);
                    (void)co_await sleep_for(10ms);
                    const auto later = co_await s.text(f, 0, 4 * block);
                    BOOST_TEST((then == later));
                    goes_on = false;
                    co_await writers.join();
                    BOOST_TEST(s.server->grants() == 0u);
                    if (round % 2 == 0) {
                        const auto free = [&](files::state_table& table) {
                            return table.free_stateid(c.of->id, got->id);
                        };
                        auto freeing = s.state->at_home_of(f.known.key, free);
                        (void)co_await freeing;
                        (void)co_await sleep_for(s.state->options().rest_after_recall + 1s);
                    }
                }
            });
        }
    }
    BOOST_TEST(written > 1000u);
    BOOST_TEST(refused > 20u);
}

BOOST_AUTO_TEST_SUITE_END()
