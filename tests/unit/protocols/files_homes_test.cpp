// SPDX-License-Identifier: Apache-2.0
// Several tables that share what a process knows of its files: which is home of a file, and whose a stateid is.
#include "files_fixture.hpp"

#include <array>
#include <set>
#include <thread>

BOOST_AUTO_TEST_SUITE(files_homes_test)

using namespace verbena;
using namespace verbena::files;
using namespace verbena::test;

using enum share;

namespace {

siphash_key key_of(std::uint8_t n)
{
    siphash_key key{};
    key[0] = std::byte(n);
    return key;
}

std::uint32_t number_in(const stateid& id)
{
    std::uint32_t number = 0;
    for (std::size_t i = 0; i < 4; ++i)
        number |= std::to_integer<std::uint32_t>(id.other[4 + i]) << (8 * i);
    return number;
}

/// Three tables on one shard.
struct homes_fixture : files_fixture {
    homes_fixture()
    {
        stop();
        commons.emplace(key_of(1), 3);
        store = std::make_unique<memory_store>(lists);
        book.emplace(*commons, place.here, *store, handler, options());
        for (unsigned home = 0; home < tables.size(); ++home)
            tables[home] = std::make_unique<state_table>(*commons, *book, home, place.here, handler);
        a = client("a");
    }
    ~homes_fixture()
    {
        for (auto& t : tables)
            t.reset();
    }
    result<opened> open_at(unsigned home, std::string_view file)
    {
        return tables[home]->open(request(a, "o", file, both));
    }
    std::array<std::unique_ptr<state_table>, 3> tables;
    client_id a = nobody;
};

} // namespace

BOOST_AUTO_TEST_CASE(a_file_has_one_home_which_its_name_does_not_tell)
{
    const table_commons three(key_of(1), 3), others(key_of(2), 3), one(key_of(1));
    std::array<unsigned, 3> files{};
    unsigned moved = 0;
    for (int i = 0; i < 3000; ++i) {
        const auto file = file_named("file " + std::to_string(i));
        const unsigned home = three.home_of(file);
        BOOST_REQUIRE(home < 3u);
        BOOST_TEST(home == three.home_of(file));
        BOOST_TEST(one.home_of(file) == 0u);
        ++files[home];
        moved += others.home_of(file) != home;
    }
    for (const unsigned n : files)
        BOOST_TEST((n > 850 && n < 1150), n);
    // By another key two of three files are elsewhere.
    BOOST_TEST((moved > 1800 && moved < 2200), moved);
}

BOOST_FIXTURE_TEST_CASE(a_stateid_leads_to_the_table_that_gave_it_out_and_to_no_other, homes_fixture)
{
    std::set<std::array<std::byte, 12>> seen;
    for (unsigned home = 0; home < 3; ++home)
        for (int i = 0; i < 20; ++i) {
            const auto o = open_at(home, "f" + std::to_string(i));
            BOOST_REQUIRE(o);
            BOOST_TEST(commons->home_of(o->id) == home);
            BOOST_TEST(seen.insert(o->id.other).second);
            for (unsigned other = 0; other < 3; ++other) {
                const auto known = tables[other]->test_stateid(a, o->id);
                if (other == home)
                    BOOST_TEST(known.has_value());
                else
                    BOOST_TEST(is(known, errc::bad_stateid));
            }
        }
}

// The tables have the same places, and tags that are made by one key.
BOOST_FIXTURE_TEST_CASE(a_stateid_that_is_made_for_another_table_is_none, homes_fixture)
{
    const auto o = open_at(1, "f");
    BOOST_REQUIRE((o && open_at(0, "f") && open_at(2, "f")));
    for (unsigned home = 0; home < 3; ++home) {
        stateid made = o->id;
        const std::uint32_t number = number_in(o->id) / 3 * 3 + home;
        for (std::size_t i = 0; i < 4; ++i)
            made.other[4 + i] = std::byte(number >> (8 * i));
        BOOST_TEST(commons->home_of(made) == home);
        BOOST_TEST(tables[home]->test_stateid(a, made).has_value() == (home == 1));
    }
}

BOOST_FIXTURE_TEST_CASE(whatever_comes_in_a_stateid_leads_to_a_table_that_does_not_know_it, homes_fixture)
{
    const auto o = open_at(0, "f");
    BOOST_REQUIRE(o);
    for (const std::uint32_t number : {0u, 1u, 2u, 3u, 0x7fffffffu, 0x80000000u, 0xfffffffdu, 0xffffffffu}) {
        stateid made = o->id;
        for (std::size_t i = 0; i < 4; ++i)
            made.other[4 + i] = std::byte(number >> (8 * i));
        const unsigned home = commons->home_of(made);
        BOOST_REQUIRE(home < 3u);
        if (made == o->id)
            continue;
        BOOST_TEST(is(tables[home]->test_stateid(a, made), errc::bad_stateid));
    }
}

// As it was before there were several: clients' traces stay readable.
BOOST_FIXTURE_TEST_CASE(the_only_table_numbers_its_places, files_fixture)
{
    const client_id a = client("a");
    for (std::uint32_t i = 0; i < 5; ++i) {
        const auto o = open(a, "o", "f" + std::to_string(i), read);
        BOOST_REQUIRE(o);
        BOOST_TEST(number_in(o->id) == i);
        BOOST_TEST(commons->home_of(o->id) == 0u);
    }
}

BOOST_FIXTURE_TEST_CASE(whoever_asks_for_state_hears_of_that_of_all_tables, homes_fixture)
{
    BOOST_TEST(!commons->has_any_state());
    std::array<stateid, 3> ids;
    for (unsigned home = 0; home < 3; ++home) {
        const auto o = open_at(home, "f");
        BOOST_REQUIRE(o);
        ids[home] = o->id;
    }
    for (unsigned home = 0; home < 3; ++home) {
        BOOST_TEST(commons->has_state(file_named("f")));
        BOOST_TEST(commons->has_any_state());
        BOOST_TEST(tables[home]->close(a, ids[home], file_named("f")).has_value());
    }
    BOOST_TEST(!commons->has_state(file_named("f")));
    BOOST_TEST(!commons->has_any_state());
}

// Homes are on several threads, and files of several homes have one bucket.
BOOST_AUTO_TEST_CASE(no_homes_state_is_lost_to_another_ones)
{
    table_commons commons(key_of(1), 2);
    constexpr int rounds = 300'000;
    const auto come_and_go = [&] {
        for (int i = 0; i < rounds; ++i) {
            commons.presence().add(7);
            commons.presence().remove(7);
        }
        commons.presence().add(7);
    };
    std::thread other(come_and_go);
    come_and_go();
    other.join();
    BOOST_TEST(commons.has_any_state());
    commons.presence().remove(7);
    BOOST_TEST(commons.has_any_state());
    commons.presence().remove(7);
    BOOST_TEST(!commons.has_any_state());
}

BOOST_AUTO_TEST_SUITE_END()
