// SPDX-License-Identifier: Apache-2.0
// The back end in memory: what clears much of it takes turns with others.
#include <boost/test/unit_test.hpp>

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/plugins/ramblk.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(ramblk_test)

using namespace verbena;

namespace {

constexpr std::uint64_t mib = 1 << 20;
constexpr std::uint64_t size = 64 * mib;

struct fixture {
    fixture()
    {
        reactor_options r;
        r.clock = &clock;
        shard = std::move(*reactor::create(r));
        ramblk::ramblk_options o;
        o.size = size;
        disk = std::move(*ramblk::open_ramblk(o));
    }
    // Of 512 bytes each: whether it holds `b`.
    std::size_t blocks_of(std::byte b, std::uint64_t from, std::uint64_t to)
    {
        std::vector<std::byte> all(to - from);
        BOOST_REQUIRE(run_until_complete(*shard, disk->read(from, all)));
        std::size_t count = 0;
        for (std::size_t at = 0; at < all.size(); at += 512)
            count += std::ranges::count(std::span(all).subspan(at, 512), b) == 512;
        return count;
    }
    void join(scope& s)
    {
        const auto all = [&]() -> task<void> { co_await s.join(); };
        run_until_complete(*shard, all());
    }
    virtual_clock clock;
    std::unique_ptr<reactor> shard;
    std::unique_ptr<storage::block_backend> disk;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_large_discard_lets_others_be_served, fixture)
{
    for (const bool discards : {true, false}) {
        for (const bool keep : {true, false}) {
            std::string ended;
            scope s(*shard);
            s.spawn([&]() -> task<void> {
                result<void> done;
                if (discards)
                    done = co_await disk->discard(0, size);
                else
                    done = co_await disk->write_zeroes(0, size, keep);
                BOOST_TEST(done.has_value());
                ended += 'd';
            });
            s.spawn([&]() -> task<void> {
                std::vector<std::byte> bytes(512);
                const auto done = co_await disk->read(0, bytes);
                BOOST_TEST(done.has_value());
                ended += 'r';
            });
            const std::uint64_t turns = shard->stats().turns;
            join(s);
            BOOST_TEST(ended == "rd");
            BOOST_TEST(shard->stats().turns - turns >= size / (4 * mib)); // no more than 4 MiB in one
        }
    }
}

BOOST_FIXTURE_TEST_CASE(parts_clear_the_range_and_nothing_else, fixture)
{
    constexpr std::byte full{0x33};
    const std::vector<std::byte> bytes(8 * mib, full);
    for (const bool discards : {true, false}) {
        BOOST_REQUIRE(run_until_complete(*shard, disk->write(0, bytes, false)));
        const std::uint64_t from = mib + 512;
        const std::uint64_t to = 7 * mib - 1024;
        const auto done = run_until_complete(*shard, discards ? disk->discard(from, to - from)
                                                              : disk->write_zeroes(from, to - from, true));
        BOOST_TEST(done.has_value());
        BOOST_TEST(blocks_of(full, 0, from) == from / 512);
        BOOST_TEST(blocks_of(std::byte(0), from, to) == (to - from) / 512);
        BOOST_TEST(blocks_of(full, to, 8 * mib) == (8 * mib - to) / 512);
    }
}

// As of all back ends: what was begun goes on to its end.
BOOST_FIXTURE_TEST_CASE(a_stop_leaves_no_discard_half_done, fixture)
{
    const std::vector<std::byte> bytes(8 * mib, std::byte(0x33));
    BOOST_REQUIRE(run_until_complete(*shard, disk->write(0, bytes, false)));
    scope s(*shard);
    s.spawn([&]() -> task<void> {
        const auto done = co_await disk->discard(0, 8 * mib);
        BOOST_TEST(done.has_value());
    });
    s.request_stop();
    join(s);
    BOOST_TEST(blocks_of(std::byte(0), 0, 8 * mib) == 8 * mib / 512);
}

BOOST_AUTO_TEST_SUITE_END()
