// SPDX-License-Identifier: Apache-2.0
// What clients have of a table's files, as people are shown it.
#include "files_fixture.hpp"
#include "files_memory.hpp"

#include <verbena/protocols/files/state_list.hpp>

#include <map>
#include <set>
#include <utility>

BOOST_AUTO_TEST_SUITE(files_list_test)

using namespace verbena;
using namespace verbena::files;
using namespace verbena::test;

namespace {

std::string text_of_share(share s)
{
    return std::string(any(s & share::read) ? "r" : "-") + (any(s & share::write) ? "w" : "-");
}

std::string name_in(const storage::handle* h)
{
    if (h == nullptr)
        return "?";
    const auto named = open_file_key(*h);
    return {reinterpret_cast<const char*>(named->file.bytes().data()), named->file.bytes().size()};
}

struct list_fixture : files_fixture {
    list_fixture()
    {
        a = client("a");
        b = client("b");
    }
    // "open f rw -- by o"
    std::string text_of(const listed_state& s)
    {
        static constexpr const char* words[] = {"open", "delegation", "other", "lock", "wait"};
        std::string out = std::string(s.client == a   ? "a "
                                      : s.client == b ? "b "
                                                      : "? ") +
                          words[std::size_t(s.is)] + ' ' + name_in(s.file) + ' ' + text_of_share(s.access);
        if (s.is == listed_state::what::open)
            out += " deny " + text_of_share(s.deny);
        if (s.is == listed_state::what::lock || s.is == listed_state::what::wait)
            out += ' ' + std::to_string(s.bytes.offset) + '-' + std::to_string(s.bytes.last);
        if (!s.owner.empty())
            out += " by " + std::string(s.owner);
        if (!s.kind.empty())
            out += " of " + std::string(s.kind);
        if (s.is_recalled)
            out += " recalled";
        if (s.waits_for_local)
            out += " local";
        return out;
    }
    using lines = std::vector<std::string>;
    // At most so many in each step.
    lines list(state_list::of what, std::size_t rows = SIZE_MAX, std::size_t looks = 1000,
               std::function<void()> between = {})
    {
        lines all;
        state_list l(*table, what);
        for (bool more = true; more;) {
            std::size_t some = 0;
            more = l.next(looks, [&](const listed_state& s) {
                all.push_back(text_of(s));
                return ++some < rows;
            });
            BOOST_TEST(some <= rows);
            if (more && between)
                between();
        }
        std::ranges::sort(all);
        return all;
    }
    result<stateid> lock(client_id c, const stateid& open, std::string_view file, std::string_view owner,
                         byte_range bytes, lock_type type = lock_type::write, bool wait = false)
    {
        lock_request r = lock_of(c, open, file);
        r.id.seqid = 0;
        r.owner = owner_named(owner);
        r.bytes = bytes;
        r.type = type;
        r.wait = wait;
        return table->lock(r);
    }
    client_id a = 0, b = 0;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(opens_and_delegations_are_told_with_file_access_and_deny, list_fixture)
{
    BOOST_REQUIRE(open(a, "o", "f", share::both, share::write));
    BOOST_REQUIRE(open(b, "p", "g", share::read, share::none, delegation_want::read));
    BOOST_TEST(list(state_list::of::opens) ==
                   (lines{"a open f rw deny -w by o", "b delegation g r-", "b open g r- deny -- by p"}),
               boost::test_tools::per_element());
    BOOST_TEST(list(state_list::of::locks) == lines{}, boost::test_tools::per_element());
}

BOOST_FIXTURE_TEST_CASE(each_thing_is_told_with_who_has_its_file_open, list_fixture)
{
    struct opened_here final : storage::open_file {
        opened_here() : open_file(storage::credential(), 0) {}
    };
    const auto opens = [&](client_id c, std::string_view file, std::uint32_t via) {
        auto r = request(c, "o", file, share::both, share::none, delegation_want::none);
        r.file.via = via;
        r.opened = std::make_shared<opened_here>();
        BOOST_REQUIRE(table->open(r));
        return r.opened.get();
    };
    using files = std::set<const storage::open_file*>;
    const auto told = [&](state_list::of what) {
        std::map<std::pair<client_id, std::uint32_t>, files> all;
        state_list l(*table, what);
        while (l.next(1000, [&](const listed_state& s) {
            all[{s.client, s.via}].insert(s.opened);
            return true;
        })) {
        }
        return all;
    };
    // By two exports, whose back ends know nothing of each other's.
    const auto* const by_seven = opens(a, "f", 7);
    const auto* const by_eight = opens(a, "f", 8);
    auto r = request(b, "o", "f", share::both, share::none, delegation_want::none);
    r.file.via = 8;
    const auto without = table->open(r);
    BOOST_REQUIRE(without);
    BOOST_TEST((told(state_list::of::opens)[{a, 7}] == files{by_seven}));
    BOOST_TEST((told(state_list::of::opens)[{a, 8}] == files{by_eight}));
    BOOST_TEST((told(state_list::of::opens)[{b, 8}] == files{by_eight})); // another client's
    auto l = lock_of(b, without->id, "f");
    l.file.via = 8;
    BOOST_REQUIRE(table->lock(l));
    const auto locks = told(state_list::of::locks);
    BOOST_TEST(locks.size() == 1u);
    BOOST_TEST((locks.at({b, 8}) == files{by_eight}));
}

BOOST_FIXTURE_TEST_CASE(what_is_of_other_kinds_is_told_by_the_kinds_name, list_fixture)
{
    memory_kind kind;
    const auto o = open(a, "o", "f", share::both);
    hold_request r;
    r.client = a;
    r.file = file_named("f");
    r.kind = &kind;
    r.by = o->id;
    r.bytes = {0, 99};
    r.type = lock_type::write;
    BOOST_REQUIRE(table->hold(r));
    BOOST_TEST(list(state_list::of::opens) == (lines{"a open f rw deny -- by o", "a other f rw of memory"}),
               boost::test_tools::per_element());
    BOOST_TEST(book->holdings_of(a).opens == 1u);
    BOOST_TEST(book->holdings_of(a).others == 1u);
    BOOST_TEST(book->holdings_of(b).opens == 0u);
    table.reset(); // before the kind goes
}

BOOST_FIXTURE_TEST_CASE(each_range_of_a_lock_is_told_and_who_waits, list_fixture)
{
    const auto of_a = open(a, "o", "f", share::both);
    const auto of_b = open(b, "p", "f", share::both);
    BOOST_REQUIRE(lock(a, of_a->id, "f", "x", {0, 9}));
    BOOST_REQUIRE(lock(a, of_a->id, "f", "x", {20, 29}, lock_type::read));
    BOOST_REQUIRE(lock(a, of_a->id, "f", "x", {40, byte_range::to_the_end}));
    BOOST_REQUIRE(is(lock(b, of_b->id, "f", "y", {5, 5}, lock_type::write, true), errc::denied));
    const lines all{"a lock f r- 20-29 by x", "a lock f rw 0-9 by x",
                    "a lock f rw 40-18446744073709551615 by x", "b wait f rw 5-5 by y"};
    // However small the steps are.
    for (const std::size_t rows : {std::size_t(1), std::size_t(2), SIZE_MAX})
        for (const std::size_t looks : {std::size_t(1), std::size_t(2), std::size_t(1000)})
            BOOST_TEST(list(state_list::of::locks, rows, looks) == all, boost::test_tools::per_element());
    BOOST_TEST(book->holdings_of(a).locks == 3u);
}

// A list that began anew, or went on by how many it had told of, would tell some twice or leave some out.
BOOST_FIXTURE_TEST_CASE(what_stays_is_told_once_while_others_come_and_go, list_fixture)
{
    std::vector<stateid> goes;
    lines stay;
    for (int i = 0; i < 40; ++i) {
        const std::string file = "f" + std::to_string(i);
        const auto o = open(i % 2 == 0 ? a : b, "o", file, share::read);
        BOOST_REQUIRE(o);
        if (i % 2 == 0)
            stay.push_back("a open " + file + " r- deny -- by o");
        else
            goes.push_back(o->id);
    }
    std::ranges::sort(stay);
    std::size_t gone = 0;
    const auto change = [&] {
        if (gone < goes.size()) {
            stateid id = goes[gone];
            id.seqid = 0;
            BOOST_REQUIRE(table->close(b, id, file_named("f" + std::to_string(2 * gone + 1))));
            ++gone;
            BOOST_REQUIRE(open(b, "o", "new" + std::to_string(gone), share::read));
        }
    };
    lines told = list(state_list::of::opens, 1, 1000, change);
    std::erase_if(told, [](const std::string& line) { return !line.starts_with("a "); });
    BOOST_TEST(gone == goes.size());
    BOOST_TEST(told == stay, boost::test_tools::per_element());
}

BOOST_FIXTURE_TEST_CASE(ranges_of_one_owner_that_come_and_go_leave_the_others_told_once, list_fixture)
{
    const auto of_a = open(a, "o", "f", share::both);
    result<stateid> held = error(errc::invalid);
    for (std::uint64_t i = 0; i < 20; ++i)
        held = lock(a, of_a->id, "f", "x", {10 * i, 10 * i + 3});
    std::uint64_t at = 0;
    const auto change = [&] {
        // The first ones go, so that all others move up.
        if (at < 10) {
            stateid id = *held;
            id.seqid = 0;
            BOOST_REQUIRE(table->unlock(a, id, file_named("f"), {10 * at, 10 * at + 3}));
            ++at;
        }
    };
    const lines told = list(state_list::of::locks, 1, 1000, change);
    lines all;
    for (std::uint64_t i = 0; i < 20; ++i)
        all.push_back("a lock f rw " + std::to_string(10 * i) + '-' + std::to_string(10 * i + 3) + " by x");
    std::ranges::sort(all);
    BOOST_TEST(told == all, boost::test_tools::per_element());
}

BOOST_FIXTURE_TEST_CASE(a_step_looks_at_no_more_than_it_may, list_fixture)
{
    for (int i = 0; i < 100; ++i)
        BOOST_REQUIRE(open(a, "o", "f" + std::to_string(i), share::read));
    state_list l(*table, state_list::of::locks);
    std::size_t steps = 0;
    while (l.next(10, [](const listed_state&) { return true; }))
        ++steps;
    BOOST_TEST(steps == 9u); // the tenth is the last: of opens, none of which is a lock
}

BOOST_FIXTURE_TEST_CASE(a_list_goes_on_behind_what_it_told_last, list_fixture)
{
    for (int i = 0; i < 5; ++i)
        BOOST_REQUIRE(open(a, "o", "f" + std::to_string(i), share::read));
    state_list l(*table, state_list::of::opens);
    lines told;
    bool more = true;
    for (int step = 0; step < 6 && more; ++step)
        more = l.next(1000, [&](const listed_state& s) {
            told.push_back(name_in(s.file));
            return false;
        });
    BOOST_TEST(!more);
    BOOST_TEST(told == (lines{"f0", "f1", "f2", "f3", "f4"}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
