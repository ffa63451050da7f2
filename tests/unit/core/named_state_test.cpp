// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include "../log_at.hpp"

#include <verbena/core/named_state.hpp>
#include <verbena/core/task/task_dump.hpp>

#include <cctype>
#include <memory>
#include <string>

BOOST_AUTO_TEST_SUITE(named_state_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

enum class door : std::uint8_t { open, shut, locked };
constexpr std::array door_rules = {
    state_rule{"open", followed_by(door::shut)},
    state_rule{"shut", followed_by(door::open, door::locked)},
    state_rule{"locked", followed_by(door::shut)},
};
using door_state = named_state<door, door_rules>;

constexpr std::array outside = {state_rule{"here", 2}, state_rule{"there", 4}};
static_assert(!detail::rules_fit(outside));
constexpr std::array unreachable = {state_rule{"here", 1}, state_rule{"there", 2}};
static_assert(!detail::rules_fit(unreachable));

struct house {
    house()
    {
        reactor_options o;
        o.clock = &clock;
        r = reactor::create(o).value();
    }
    void pass(duration d)
    {
        clock.advance(d);
        (void)r->turn();
    }
    // Without addresses.
    std::string dump(std::size_t lines = task_dump::usual_lines)
    {
        std::string text = task_dump::take(*r, lines).text();
        for (std::size_t at; (at = text.find(" 0x")) != std::string::npos;) {
            std::size_t end = at + 3;
            while (std::isxdigit(static_cast<unsigned char>(text[end])) != 0)
                ++end;
            text.erase(at, end - at);
        }
        return text;
    }

    virtual_clock clock;
    std::unique_ptr<reactor> r;
};

} // namespace

BOOST_AUTO_TEST_CASE(goes_where_a_rule_leads)
{
    house h;
    door_state s(*h.r, "door", door::shut);
    BOOST_TEST((s == door::shut));
    BOOST_TEST(s.to(door::locked, "night"));
    BOOST_TEST((s.get() == door::locked));
    BOOST_TEST(s.name() == std::string("locked"));
    BOOST_TEST(s.is_in(door::open, door::locked));
    BOOST_TEST(!s.is_in(door::open, door::shut));
    BOOST_TEST(h.r->stats().illegal_transitions.load() == 0);
}

BOOST_AUTO_TEST_CASE(stays_where_no_rule_leads_on_and_says_so)
{
    house h;
    test::log_at quiet(log_level::off);
    door_state s(*h.r, "door", door::locked);
    BOOST_TEST(!s.to(door::open, "by force"));
    BOOST_TEST((s == door::locked));
    BOOST_TEST(!s.to(door::locked, "once more")); // no rule leads to itself unless it says so
    BOOST_TEST(h.r->stats().illegal_transitions.load() == 2);
    BOOST_TEST(h.dump() == "shard 0: 0 tasks\n"
                           "  states:\n"
                           "    door: locked for 0.000 s\n"
                           "      0.000 s ago: refused, locked -> open (by force)\n"
                           "      0.000 s ago: refused, locked -> locked (once more)\n");
}

BOOST_AUTO_TEST_CASE(a_dump_shows_the_last_changes_with_their_times)
{
    house h;
    (void)h.r->turn();
    {
        door_state s(*h.r, "door");
        h.pass(1s);
        BOOST_TEST(s.to(door::shut, "wind"));
        h.pass(2s);
        BOOST_TEST(s.to(door::locked, "night"));
        h.pass(500ms);
        BOOST_TEST(h.dump() == "shard 0: 0 tasks\n"
                               "  states:\n"
                               "    door: locked for 0.500 s\n"
                               "      2.500 s ago: open -> shut (wind)\n"
                               "      0.500 s ago: shut -> locked (night)\n");
        // The oldest ones go first.
        for (int i = 0; i < 4; ++i) {
            BOOST_TEST(s.to(door::shut, "morning"));
            BOOST_TEST(s.to(door::locked, "evening"));
        }
        const std::string text = h.dump();
        BOOST_TEST(text.find("wind") == std::string::npos);
        BOOST_TEST(text.find("night") == std::string::npos);
        std::size_t lines = 0;
        for (std::size_t at = 0; (at = text.find("->", at)) != std::string::npos; ++at)
            ++lines;
        BOOST_TEST(lines == detail::state_record::kept);
        BOOST_TEST(h.dump(4).find("... 6 more") != std::string::npos);
    }
    BOOST_TEST(h.dump() == "shard 0: 0 tasks\n");
}

BOOST_AUTO_TEST_SUITE_END()
