// SPDX-License-Identifier: Apache-2.0
// What state costs in memory.
#include "../allocation_count.hpp"
#include "files_fixture.hpp"

#include <array>
#include <cstdio>
#include <unistd.h>

BOOST_AUTO_TEST_SUITE(files_cost_test)

using namespace verbena;
using namespace verbena::files;
using namespace verbena::test;

BOOST_FIXTURE_TEST_CASE(an_open_costs_less_than_a_kilobyte, files_fixture)
{
    const client_id a = client("a");
    constexpr std::uint64_t count = 100'000;
    std::vector<opened> made;
    made.reserve(count);
    const std::uint64_t before = allocated_bytes.load();
    storage::credential opener(1000, 100); // of as many groups as AUTH_SYS carries
    std::array<std::uint32_t, 16> groups{};
    for (std::size_t i = 0; i < groups.size(); ++i)
        groups[i] = std::uint32_t(200 + i);
    opener.set_groups(groups);
    // Of an owner and a file each: nothing is shared. Names as Linux has them; the largest handles.
    std::string owner = "open id:0123456789abcdef", file(storage::handle::max_size, 'f');
    for (std::uint64_t i = 0; i < count; ++i) {
        std::snprintf(owner.data(), owner.size(), "open id:%015llu", static_cast<unsigned long long>(i));
        std::snprintf(file.data(), 16, "%015llu", static_cast<unsigned long long>(i));
        open_request wanted = request(a, owner, file, share::both);
        wanted.opened = std::make_shared<const storage::open_file>(opener, R_OK | W_OK);
        auto o = table->open(wanted);
        BOOST_REQUIRE(o);
        made.push_back(*o);
    }
    // All that was ever asked for, also what tables outgrew.
    const std::uint64_t each = (allocated_bytes.load() - before) / count;
    std::printf("an open, its owner and its file: %llu bytes\n", static_cast<unsigned long long>(each));
    BOOST_TEST(each < 1024u);
    BOOST_TEST(table->stats().opens.value() == std::int64_t(count));
}

BOOST_FIXTURE_TEST_CASE(operations_on_files_without_state_cost_nothing, files_fixture)
{
    const client_id a = client("a");
    BOOST_REQUIRE(open(a, "o", "other", share::both));
    const std::uint64_t before = allocations.load();
    for (int i = 0; i < 1000; ++i) {
        BOOST_REQUIRE(check(operation::write, "f"));
    }
    BOOST_TEST(allocations.load() == before);
    BOOST_TEST(table->stats().files.value() == 1);
}

BOOST_FIXTURE_TEST_CASE(io_by_an_open_costs_nothing, files_fixture)
{
    const client_id a = client("a");
    const auto o = open(a, "o", "f", share::both);
    const std::uint64_t before = allocations.load();
    for (int i = 0; i < 1000; ++i) {
        BOOST_REQUIRE(check_io(a, o->id, "f", share::write));
    }
    BOOST_TEST(allocations.load() == before);
}

BOOST_FIXTURE_TEST_CASE(what_is_under_way_costs_nothing, files_fixture)
{
    operations_here& here = table->commons().operations().on(place.here);
    std::printf("an operation that is under way: %zu bytes\n", sizeof(under_way));
    const std::uint64_t before = allocations.load();
    for (int i = 0; i < 1000; ++i) {
        under_way reading, writing, removing;
        reading.begin(here, 1, file_named("f"), operation::read);
        writing.begin(here, 1, file_named("f"), operation::write);
        removing.begin_by_name(here, operation::remove);
    }
    BOOST_TEST(allocations.load() == before);
}

BOOST_AUTO_TEST_SUITE_END()
