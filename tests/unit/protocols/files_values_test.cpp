// SPDX-License-Identifier: Apache-2.0
// Ranges, numbers, the conflict table and the grace period, as values.
#include <boost/test/unit_test.hpp>

#include <verbena/protocols/files/byte_ranges.hpp>
#include <verbena/protocols/files/conflicts.hpp>
#include <verbena/protocols/files/presence.hpp>
#include <verbena/protocols/files/recovery.hpp>
#include <verbena/protocols/files/stateid.hpp>

#include <array>
#include <random>

BOOST_AUTO_TEST_SUITE(files_values_test)

using namespace verbena;
using namespace verbena::files;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t top = ~std::uint64_t(0);

stateid with(std::uint32_t seqid, std::byte fill)
{
    stateid id;
    id.seqid = seqid;
    id.other.fill(fill);
    return id;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_range_is_of_bytes_that_can_be)
{
    struct {
        std::uint64_t offset, length;
        bool good;
        std::uint64_t last;
    } const rows[] = {
        {0, 1, true, 0},       {5, 10, true, 14},           {0, 0, false, 0},
        {7, top, true, top},   {0, top, true, top},         {top, 1, false, 0},
        {top, 2, false, 0},    {2, top - 1, false, 0},      {3, top - 1, false, 0},
        {top, top, true, top}, {1, top - 1, true, top - 1},
    };
    for (const auto& row : rows) {
        const auto r = byte_range::of(row.offset, row.length);
        BOOST_TEST(r.has_value() == row.good, row.offset << " " << row.length);
        if (r) {
            BOOST_TEST(r->offset == row.offset);
            BOOST_TEST(r->last == row.last);
        } else {
            BOOST_TEST((r.error() == errc::invalid));
        }
    }
    BOOST_TEST(byte_range({7, top}).length() == top);
    BOOST_TEST(byte_range({7, 9}).length() == 3u);
}

BOOST_AUTO_TEST_CASE(ranges_split_and_merge_and_change)
{
    using enum lock_type;
    struct step {
        byte_range bytes;
        std::optional<lock_type> type;
        std::vector<locked_range> then;
    };
    const step steps[] = {
        {{10, 19}, read, {{{10, 19}, read}}},
        {{20, 29}, read, {{{10, 29}, read}}},                                     // neighbours
        {{0, 4}, read, {{{0, 4}, read}, {{10, 29}, read}}},                       // not one
        {{5, 9}, read, {{{0, 29}, read}}},                                        // fills the gap
        {{10, 19}, write, {{{0, 9}, read}, {{10, 19}, write}, {{20, 29}, read}}}, // upgrade of the middle
        {{15, 15}, std::nullopt, {{{0, 9}, read}, {{10, 14}, write}, {{16, 19}, write}, {{20, 29}, read}}},
        {{5, 24}, read, {{{0, 29}, read}}}, // downgrade
        {{40, top}, write, {{{0, 29}, read}, {{40, top}, write}}},
        {{30, 39}, write, {{{0, 29}, read}, {{30, top}, write}}},
        {{top, top}, std::nullopt, {{{0, 29}, read}, {{30, top - 1}, write}}},
        {{100, 50 + 100}, std::nullopt, {{{0, 29}, read}, {{30, 99}, write}, {{151, top - 1}, write}}},
        {{0, top}, std::nullopt, {}},
        {{3, 5}, std::nullopt, {}},
    };
    byte_ranges r;
    for (const step& s : steps) {
        const auto before = std::ptrdiff_t(r.size());
        const auto growth = r.growth(s.bytes, s.type);
        if (s.type)
            r.set(s.bytes, *s.type);
        else
            r.clear(s.bytes);
        BOOST_TEST((std::vector(r.all().begin(), r.all().end()) == s.then),
                   s.bytes.offset << "-" << s.bytes.last);
        BOOST_TEST(std::ptrdiff_t(r.size()) - before == growth);
    }
}

BOOST_AUTO_TEST_CASE(ranges_are_what_a_lock_for_each_byte_would_be)
{
    std::mt19937_64 random(1);
    for (int round = 0; round < 300; ++round) {
        constexpr unsigned bytes = 24;
        std::array<char, bytes> model;
        model.fill('-');
        byte_ranges r;
        for (int step = 0; step < 40; ++step) {
            unsigned first = unsigned(random() % bytes), last = unsigned(random() % bytes);
            if (first > last)
                std::swap(first, last);
            const unsigned what = unsigned(random() % 3);
            for (unsigned i = first; i <= last; ++i)
                model[i] = "-rw"[what];
            if (what == 0)
                r.clear({first, last});
            else
                r.set({first, last}, what == 1 ? lock_type::read : lock_type::write);
            // As few ranges as can be, in order.
            std::vector<locked_range> expected;
            for (unsigned i = 0; i < bytes; ++i)
                if (model[i] != '-') {
                    if (i > 0 && model[i - 1] == model[i])
                        expected.back().bytes.last = i;
                    else
                        expected.push_back({{i, i}, model[i] == 'r' ? lock_type::read : lock_type::write});
                }
            BOOST_REQUIRE((std::vector(r.all().begin(), r.all().end()) == expected));
            for (unsigned i = 0; i < bytes; ++i) {
                BOOST_REQUIRE((r.find_conflict({i, i}, lock_type::write) != nullptr) == (model[i] != '-'));
                BOOST_REQUIRE((r.find_conflict({i, i}, lock_type::read) != nullptr) == (model[i] == 'w'));
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(numbers_of_stateids_wrap_past_zero)
{
    BOOST_TEST(next_seqid(1) == 2u);
    BOOST_TEST(next_seqid(0xffffffff) == 1u);
    BOOST_TEST(is_behind(1, 2));
    BOOST_TEST(!is_behind(2, 2));
    BOOST_TEST(!is_behind(3, 2));
    BOOST_TEST(is_behind(0xfffffffe, 3));
    BOOST_TEST(!is_behind(3, 0xfffffffe));
}

BOOST_AUTO_TEST_CASE(special_stateids_are_all_of_one_kind_of_bit)
{
    for (const std::uint32_t seqid : {0u, 1u, 7u, 0xffffffffu}) {
        BOOST_TEST(is_special(with(seqid, std::byte(0))));
        BOOST_TEST(is_special(with(seqid, std::byte(0xff))));
        BOOST_TEST(!is_special(with(seqid, std::byte(1))));
    }
    stateid almost = with(0, std::byte(0));
    almost.other[11] = std::byte(1);
    BOOST_TEST(!is_special(almost));
}

// RFC 8881 10.4.4, 18.16.4.
BOOST_AUTO_TEST_CASE(who_gives_way_to_what)
{
    using enum operation;
    struct {
        operation op;
        const char* row; // read delegation, write delegation
    } const rows[] = {
        {open_read, "-w"},       {open_write, "rw"},       {open_deny_read, "rw"}, {open_deny_write, "-w"},
        {operation::read, "-w"}, {operation::write, "rw"}, {get_attributes, "-w"}, {set_attributes, "rw"},
        {set_size, "rw"},        {remove, "rw"},           {rename, "rw"},         {link, "rw"},
        {lock_read, "-w"},       {lock_write, "rw"},       {change_extents, "rw"},
    };
    BOOST_TEST(std::size(rows) == operation_count);
    for (const auto& row : rows)
        for (unsigned h = 0; h < 2; ++h)
            BOOST_TEST(conflicts(h == 0 ? delegation_type::read : delegation_type::write, row.op) ==
                           (row.row[h] != '-'),
                       int(row.op) << " " << h);
    BOOST_TEST((access_of(operation::read) == share::read));
    BOOST_TEST((access_of(operation::write) == share::write));
    BOOST_TEST((access_of(set_size) == share::write));
    BOOST_TEST((access_of(change_extents) == share::write));
    BOOST_TEST((access_of(rename) == share::none));
}

BOOST_AUTO_TEST_CASE(grace_is_over_where_nobody_may_reclaim)
{
    grace_period none({}, time_point() + 90s);
    BOOST_TEST((none.now() == grace_period::phase::over));
    BOOST_TEST(!none.is_due(time_point() + 100s));
}

BOOST_AUTO_TEST_CASE(grace_ends_when_all_are_done_or_by_time)
{
    grace_period g({{"a", share::none}, {"b", share::write}}, time_point() + 90s);
    BOOST_TEST((!g.holds_up(share::read) && g.holds_up(share::write)));
    BOOST_TEST((g.keeps_out("a") == share::none && g.keeps_out("b") == share::write));
    BOOST_TEST((g.now() == grace_period::phase::reclaiming));
    BOOST_TEST(g.may_reclaim("a"));
    BOOST_TEST(!g.may_reclaim("c"));
    BOOST_TEST(!g.is_due(time_point() + 89s));
    BOOST_TEST(g.is_due(time_point() + 90s));
    g.complete("c"); // not one of them
    g.complete("a");
    BOOST_TEST(!g.may_reclaim("a"));
    BOOST_TEST(!g.is_due(time_point()));
    g.complete("b");
    BOOST_TEST(g.is_due(time_point()));
    g.begin_end();
    BOOST_TEST((g.now() == grace_period::phase::ending));
    BOOST_TEST(!g.is_due(time_point() + 100s)); // once
    g.end(false);
    BOOST_TEST((g.now() == grace_period::phase::reclaiming));
    BOOST_TEST(g.is_due(time_point()));
    g.begin_end();
    g.end(true);
    BOOST_TEST((g.now() == grace_period::phase::over));
}

BOOST_AUTO_TEST_CASE(grace_tells_who_is_done_who_is_back_and_who_is_absent)
{
    using names = std::vector<std::string>;
    std::vector<reclaimer> all;
    for (const char* key : {"a", "b", "c", "d", "e"})
        all.push_back({key, share::none});
    grace_period g(all, time_point() + 90s);
    for (const char* key : {"b", "b", "c", "d", "z"}) // one comes twice, and one is not of them
        g.note_back(key);
    g.complete("c");
    g.complete("d", grace_period::part::lost);
    const auto is_as_it_should = [](const grace_period::counts& c) {
        return c.recorded == 5 && c.done == 1 && c.lost == 1 && c.back == 1 && c.absent == 2;
    };
    grace_period::report told = g.how_it_goes(time_point() + 30s, 10);
    BOOST_TEST((told.now == grace_period::phase::reclaiming && told.left == 60s));
    BOOST_TEST(is_as_it_should(told.clients));
    BOOST_TEST((told.keys_back == names{"b"} && told.keys_absent == names{"a", "e"}));
    BOOST_TEST((g.how_it_goes(time_point() + 100s, 1).keys_absent == names{"a"}));
    BOOST_TEST((g.how_it_goes(time_point() + 100s, 1).left == 0s));
    // When it is over, too.
    g.begin_end();
    g.end(true);
    told = g.how_it_goes(time_point() + 30s, 10);
    BOOST_TEST((told.now == grace_period::phase::over && told.left == 0s));
    BOOST_TEST(is_as_it_should(told.clients));
    BOOST_TEST((told.keys_back == names{"b"} && told.keys_absent == names{"a", "e"}));
    BOOST_TEST((g.how_it_goes(time_point(), 1).keys_absent == names{"a"}));
    g.note_back("a"); // too late
    BOOST_TEST(is_as_it_should(g.clients()));
}

BOOST_AUTO_TEST_CASE(a_key_of_minor_version_0_has_its_name_behind_a_head)
{
    BOOST_TEST(name_of_key("4.0 0123456789abcdef a b") == "a b");
    BOOST_TEST(name_of_key("4.0 0123456789abcdef ") == "");
    for (const char* other : {"a", "", "4.0 ", "4.0 0123456789abcdeg a", "4.0 0123456789abcdef",
                              "4.1 0123456789abcdef a", "4.0 0123456789abcdef0a"})
        BOOST_TEST(name_of_key(other) == other);
}

BOOST_AUTO_TEST_CASE(of_absent_clients_no_more_than_some_are_kept_in_mind)
{
    std::vector<reclaimer> all;
    for (std::size_t i = 0; i < grace_period::most_kept + 10; ++i)
        all.push_back({std::to_string(i), share::none});
    grace_period g(all, time_point() + 90s);
    g.begin_end();
    g.end(true);
    const grace_period::report told = g.how_it_goes(time_point(), 10000);
    BOOST_TEST(told.keys_absent.size() == grace_period::most_kept);
    BOOST_TEST(told.clients.absent == grace_period::most_kept + 10);
}

BOOST_AUTO_TEST_SUITE_END()
