// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/core/random.hpp>
#include <verbena/core/reactor/reactor.hpp>

#include <algorithm>
#include <array>
#include <set>

BOOST_AUTO_TEST_SUITE(random_test)

using namespace verbena;

BOOST_AUTO_TEST_CASE(a_seed_draws_the_same_again)
{
    // splitmix64 of 0, as its author's test has it.
    seeded_random zero(0);
    BOOST_TEST(zero.draw() == 0xe220a8397b1dcdafu);
    BOOST_TEST(zero.draw() == 0x6e789e6aa1b965f4u);
    seeded_random one(1), again(1), two(2);
    std::set<std::uint64_t> drawn;
    for (int i = 0; i < 100; ++i) {
        const std::uint64_t n = one.draw();
        BOOST_TEST(again.draw() == n);
        drawn.insert(n);
        drawn.insert(two.draw());
    }
    BOOST_TEST(drawn.size() == 200u);
}

BOOST_AUTO_TEST_CASE(fills_as_much_as_is_asked_for)
{
    seeded_random seeded(3);
    for (random_source* r : {static_cast<random_source*>(&seeded), &system_random()}) {
        std::array<std::byte, 32> bytes{};
        r->fill(std::span(bytes).subspan(2, 27));
        BOOST_TEST((bytes[0] == std::byte() && bytes[1] == std::byte()));
        BOOST_TEST((bytes[29] == std::byte() && bytes[30] == std::byte() && bytes[31] == std::byte()));
        BOOST_TEST(std::ranges::count(bytes, std::byte()) < 16);
        BOOST_TEST((r->key() != r->key()));
    }
    BOOST_TEST(system_random().draw() != system_random().draw());
}

BOOST_AUTO_TEST_CASE(a_shard_draws_of_its_seed_or_of_the_system)
{
    const auto drawn = [](std::uint64_t seed) {
        reactor_options o;
        o.seed = seed;
        return reactor::create(o).value()->random().draw();
    };
    BOOST_TEST(drawn(7) == drawn(7));
    BOOST_TEST(drawn(7) != drawn(8));
    BOOST_TEST(drawn(0) != drawn(0));
}

BOOST_AUTO_TEST_SUITE_END()
