// SPDX-License-Identifier: Apache-2.0
// Owners by name: how a name is read, what is looked up, how often and for how long.
#include "nfs4_server.hpp"
#include "nfs4_user_names.hpp"

#include "../../../protocols/nfs/nsswitch_lookup.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/protocols/nfs/nsswitch_names.hpp>
#include <verbena/protocols/nfs/server/v4/storage.hpp>

BOOST_AUTO_TEST_SUITE(nfs4_user_names_test)

using namespace verbena;
using namespace verbena::test;

namespace {

using outcome = user_names::outcome;
using answer = user_names_counters::answer;
using texts = std::vector<std::string>;

std::string parts_of(std::string_view text)
{
    const auto parts = split_owner(text);
    return parts ? std::string(parts->name) + '|' + std::string(parts->domain) : "none";
}

/// A cache of names alone.
struct names_fixture {
    ~names_fixture()
    {
        source.answer();
        turns();
        BOOST_TEST(lookups.live() == 0u);
    }
    user_names& users(user_names_options options = {})
    {
        if (!made)
            made.emplace(lookups, source, std::move(options));
        return *made;
    }
    void turns()
    {
        for (int i = 0; i < 20; ++i)
            shard->turn();
    }
    /// "alice@example.org" is "1000", nobody's is "unknown".
    std::string id_of(std::string text, account_kind kind = account_kind::user)
    {
        const auto got = run_until_complete(*shard, users().id_of(kind, std::move(text)));
        return got.how == outcome::found      ? std::to_string(got.id)
               : got.how == outcome::unknown  ? "unknown"
               : got.how == outcome::given_up ? "given up"
                                              : "later";
    }
    texts texts_of(std::vector<account> those)
    {
        texts told;
        for (const auto& each : run_until_complete(*shard, users().texts_of(std::move(those))))
            told.push_back(each.how == outcome::found     ? *each.text
                           : each.how == outcome::unknown ? "unknown"
                                                          : "later");
        return told;
    }
    std::uint64_t given(answer how) { return users().counters().given[std::size_t(how)].value(); }
    std::size_t asked() const { return source.asked.size(); }

    virtual_clock clock;
    std::unique_ptr<reactor> shard = nfs4_fixture::make_reactor(clock);
    scope lookups{*shard};
    named_accounts source;
    std::optional<user_names> made;
};

constexpr account user(std::uint32_t id) { return {account_kind::user, id}; }
constexpr account group(std::uint32_t id) { return {account_kind::group, id}; }

} // namespace

BOOST_AUTO_TEST_CASE(names_are_taken_apart)
{
    BOOST_TEST(parts_of("alice@example.org") == "alice|example.org");
    BOOST_TEST(parts_of("a@b") == "a|b");
    BOOST_TEST(parts_of("j\xc3\xbcrgen@example.org") == "j\xc3\xbcrgen|example.org");
    BOOST_TEST(parts_of("alice@ad.example.org@example.org") == "alice@ad.example.org|example.org");
    BOOST_TEST(parts_of("@@b") == "@|b");
    BOOST_TEST(parts_of(std::string(256, 'x') + "@b") == std::string(256, 'x') + "|b");
    for (const std::string_view none : {"", "@", "a@", "@b", "alice", "a\xff@b", "a\nb@c", "\x7f@c"})
        BOOST_TEST(parts_of(none) == "none", none);
    // What ends a string of C would name somebody else.
    BOOST_TEST(parts_of(std::string_view("root\0x@b", 8)) == "none");
    BOOST_TEST(parts_of(std::string(257, 'x') + "@b") == "none");
}

BOOST_AUTO_TEST_CASE(numbers_are_digits_alone)
{
    std::uint32_t id = 0;
    BOOST_TEST((parse_owner("0", id) && id == 0));
    BOOST_TEST((parse_owner("4294967294", id) && id == 4294967294));
    for (const std::string_view none : {"", "00", "007", "4294967295", "4294967296", "99999999999999999999",
                                        "+1", "-1", " 1", "1 ", "0x1", "1@b"})
        BOOST_TEST(!parse_owner(none, id), none);
}

BOOST_AUTO_TEST_CASE(domains_differ_in_more_than_case)
{
    BOOST_TEST(is_same_domain("Example.ORG", "example.org"));
    BOOST_TEST(!is_same_domain("example.org", "example.or"));
    BOOST_TEST(!is_same_domain("example.org.", "example.org"));
    BOOST_TEST(!is_same_domain("\xc3\x84", "\xc3\xa4"));
    BOOST_TEST(
        (is_id_domain("localdomain") && is_id_domain("a-b_c.1") && is_id_domain(std::string(120, 'd'))));
    for (const std::string& none : {std::string(), std::string("a b"), std::string("a@b"), std::string("a\n"),
                                    std::string("\xc3\xa4"), std::string(121, 'd')})
        BOOST_TEST(!is_id_domain(none), none);
}

BOOST_FIXTURE_TEST_CASE(a_name_is_looked_up_once_and_kept, names_fixture)
{
    BOOST_TEST(id_of("alice@example.org") == "1000");
    BOOST_TEST(id_of("alice@EXAMPLE.Org") == "1000");
    BOOST_TEST(id_of("staff@example.org", account_kind::group) == "50");
    BOOST_TEST(id_of("staff@example.org") == "unknown");
    BOOST_TEST(texts_of({user(1000), group(50), user(50)}) ==
               (texts{"alice@example.org", "staff@example.org", "unknown"}));
    const texts all = {"u alice", "g staff", "u staff", "u 1000", "g 50", "u 50"};
    BOOST_TEST(source.asked == all);
    BOOST_TEST(source.domains_asked == 1);
    clock.advance(59s);
    BOOST_TEST(id_of("staff@example.org") == "unknown");
    BOOST_TEST(texts_of({user(50)}) == texts{"unknown"});
    BOOST_TEST(asked() == all.size());
    // What is not there may be made; what is there stays longer.
    source.names[user(50)] = "staff";
    clock.advance(2s);
    BOOST_TEST(id_of("staff@example.org") == "50");
    BOOST_TEST(texts_of({user(50)}) == texts{"staff@example.org"});
    BOOST_TEST(asked() == all.size() + 2);
    clock.advance(538s);
    BOOST_TEST(id_of("alice@example.org") == "1000");
    BOOST_TEST(asked() == all.size() + 2);
    source.names[user(1000)] = "bob";
    clock.advance(2s);
    BOOST_TEST(id_of("alice@example.org") == "unknown");
    BOOST_TEST(texts_of({user(1000)}) == texts{"bob@example.org"});
    BOOST_TEST(asked() == all.size() + 4);
}

BOOST_FIXTURE_TEST_CASE(of_another_domain_nobody_is_known, names_fixture)
{
    BOOST_TEST(id_of("alice@example.com") == "unknown");
    BOOST_TEST(id_of("alice@") == "unknown");
    BOOST_TEST(id_of("alice") == "unknown");
    BOOST_TEST(asked() == 0u);
    BOOST_TEST(given(answer::foreign) == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_domain_that_is_set_is_not_asked_for, names_fixture)
{
    user_names_options options;
    options.domain = "set.example";
    users(options);
    BOOST_TEST(id_of("alice@set.example") == "1000");
    BOOST_TEST(texts_of({user(1000)}) == texts{"alice@set.example"});
    BOOST_TEST(source.domains_asked == 0);
}

BOOST_FIXTURE_TEST_CASE(a_host_without_a_domain_is_of_localdomain, names_fixture)
{
    source.own_domain.clear();
    BOOST_TEST(id_of("alice@localdomain") == "1000");
}

// "localdomain" is a wrong answer where nobody could be asked.
BOOST_FIXTURE_TEST_CASE(a_domain_that_can_not_be_found_out_is_asked_for_again, names_fixture)
{
    source.domain_fails = true;
    BOOST_TEST(id_of("alice@example.org") == "later");
    BOOST_TEST(texts_of({user(1000)}) == texts{"later"});
    BOOST_TEST(id_of("alice@localdomain") == "later");
    BOOST_TEST(source.domains_asked == 1);
    source.domain_fails = false;
    clock.advance(4s);
    BOOST_TEST(id_of("alice@example.org") == "later");
    clock.advance(2s);
    BOOST_TEST(id_of("alice@example.org") == "1000");
    BOOST_TEST(texts_of({user(1000)}) == texts{"alice@example.org"});
    BOOST_TEST(source.domains_asked == 2);
}

BOOST_FIXTURE_TEST_CASE(what_was_found_is_told_while_nobody_can_be_asked, names_fixture)
{
    BOOST_TEST(id_of("alice@example.org") == "1000");
    BOOST_TEST(id_of("bob@example.org") == "unknown");
    BOOST_TEST(texts_of({user(1000), user(7)}) == (texts{"alice@example.org", "unknown"}));
    const time_point learnt = clock.now();
    clock.advance(11min);
    source.be_slow();
    // By that name a file may be given away, which is nothing for what was so once.
    BOOST_TEST(id_of("alice@example.org") == "later");
    BOOST_TEST((users().known_id(account_kind::user, "alice@example.org") == 1000u));
    BOOST_TEST(texts_of({user(1000)}) == texts{"alice@example.org"});
    BOOST_TEST((clock.now() - learnt == 11min + 4s));
    BOOST_TEST(given(answer::late) == 2u);
    BOOST_TEST(id_of("bob@example.org") == "later");
    BOOST_TEST(texts_of({user(7)}) == texts{"later"});
    // Likewise where it fails, for as long as it does.
    source.fails = true;
    source.answer();
    turns();
    for (int i = 0; i < 3; ++i) {
        source.asked.clear();
        clock.advance(6s);
        BOOST_TEST(id_of("alice@example.org") == "later");
        BOOST_TEST(texts_of({user(1000)}) == texts{"alice@example.org"});
        BOOST_TEST(id_of("alice@example.org") == "later");
        BOOST_TEST((users().known_id(account_kind::user, "alice@example.org") == 1000u));
        BOOST_TEST(asked() == 2u);
    }
    // It is not what is so any more, once that is known.
    source.fails = false;
    source.names.clear();
    clock.advance(6s);
    BOOST_TEST(id_of("alice@example.org") == "unknown");
    BOOST_TEST(texts_of({user(1000)}) == texts{"unknown"});
    clock.advance(61s);
    source.fails = true;
    BOOST_TEST(id_of("alice@example.org") == "later");
    BOOST_TEST(texts_of({user(1000)}) == texts{"later"});
}

BOOST_FIXTURE_TEST_CASE(what_is_known_is_told_without_a_lookup, names_fixture)
{
    const auto known = [&](std::string_view text) {
        const auto id = users().known_id(account_kind::user, text);
        return id ? int(*id) : -1;
    };
    BOOST_TEST(known("alice@example.org") == -1);
    BOOST_TEST(source.domains_asked == 0);
    BOOST_TEST(id_of("alice@example.org") == "1000");
    BOOST_TEST(id_of("bob@example.org") == "unknown");
    source.asked.clear();
    clock.advance(11min);
    BOOST_TEST(known("alice@Example.org") == 1000);
    for (const std::string_view none : {"alice@example.com", "alice", "bob@example.org", "carol@example.org"})
        BOOST_TEST(known(none) == -1, none);
    BOOST_TEST(asked() == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_source_that_throws_has_failed, names_fixture)
{
    source.throws = true;
    BOOST_TEST(id_of("alice@example.org") == "later");
    BOOST_TEST(texts_of({user(1000)}) == texts{"later"});
    BOOST_TEST(users().counters().under_way.value() == 0);
    source.throws = false;
    clock.advance(6s);
    BOOST_TEST(id_of("alice@example.org") == "1000");
    BOOST_TEST(texts_of({user(1000)}) == texts{"alice@example.org"});
}

BOOST_FIXTURE_TEST_CASE(who_is_cancelled_waits_no_longer, names_fixture)
{
    BOOST_TEST(id_of("nobody@example.org") == "unknown");
    source.asked.clear();
    source.be_slow();
    const time_point before = clock.now();
    scope calls(*shard);
    int over = 0;
    const auto one = [&]() -> task<void> {
        auto asking = users().id_of(account_kind::user, "alice@example.org");
        const auto got = co_await asking;
        BOOST_TEST((got.how == outcome::later));
        ++over;
    };
    const auto many = [&]() -> task<void> {
        std::vector<account> those;
        for (std::uint32_t i = 0; i < 100; ++i)
            those.push_back(user(i));
        auto asking = users().texts_of(std::move(those));
        const auto got = co_await asking;
        BOOST_TEST(std::ranges::all_of(got, [](const auto& each) { return each.how == outcome::later; }));
        ++over;
    };
    calls.spawn(one);
    calls.spawn(many);
    turns();
    BOOST_TEST(over == 0);
    calls.request_stop();
    turns();
    BOOST_TEST(over == 2);
    BOOST_TEST((clock.now() == before));
    BOOST_TEST(asked() == 17u);
    // The lookup goes on, for others.
    source.answer();
    turns();
    BOOST_TEST(id_of("alice@example.org") == "1000");
    BOOST_TEST(asked() == 17u);
}

BOOST_FIXTURE_TEST_CASE(lookups_under_way_are_over_before_the_names_go, names_fixture)
{
    BOOST_TEST(id_of("nobody@example.org") == "unknown");
    source.be_slow();
    BOOST_TEST(id_of("alice@example.org") == "later");
    BOOST_TEST(texts_of({user(1000)}) == texts{"later"});
    BOOST_TEST(lookups.live() == 2u);
    bool is_over = false;
    scope ends(*shard);
    ends.spawn([&]() -> task<void> {
        co_await lookups.join();
        is_over = true;
    });
    lookups.request_stop();
    turns();
    BOOST_TEST(!is_over);
    source.answer();
    turns();
    BOOST_TEST(is_over);
    made.reset();
}

BOOST_FIXTURE_TEST_CASE(many_slow_names_of_one_call_leave_others_a_place, names_fixture)
{
    BOOST_TEST(id_of("nobody@example.org") == "unknown");
    source.asked.clear();
    source.be_slow();
    std::vector<account> those;
    for (std::uint32_t i = 0; i < 100; ++i)
        those.push_back(user(i));
    BOOST_TEST(texts_of(those) == texts(100, "later"));
    BOOST_TEST(asked() == 16u);
    BOOST_TEST(texts_of({user(1000)}) == texts{"later"});
    BOOST_TEST(asked() == 17u);
    BOOST_TEST(given(answer::refused) == 0u);
    // The next page comes as far again.
    BOOST_TEST(texts_of(those) == texts(100, "later"));
    BOOST_TEST(asked() == 33u);
}

BOOST_FIXTURE_TEST_CASE(a_deadline_may_come_before_patience_ends, names_fixture)
{
    BOOST_TEST(id_of("nobody@example.org") == "unknown");
    source.be_slow();
    const time_point before = clock.now();
    const auto one =
        run_until_complete(*shard, users().id_of(account_kind::user, "alice@example.org", before + 500ms));
    BOOST_TEST((one.how == outcome::later && clock.now() - before == 500ms));
    const auto two = run_until_complete(*shard, users().texts_of({user(1000)}, before + 700ms));
    BOOST_TEST((two[0].how == outcome::later && clock.now() - before == 700ms));
    // Who waits no longer begins nothing.
    source.asked.clear();
    const auto late = run_until_complete(*shard, users().texts_of({user(1), user(2)}, clock.now()));
    BOOST_TEST((late[0].how == outcome::later && late[1].how == outcome::later));
    BOOST_TEST(asked() == 0u);
}

BOOST_FIXTURE_TEST_CASE(what_can_not_be_sent_is_told_by_its_number, names_fixture)
{
    source.names[user(1)] = std::string(user_names::max_text - 12, 'x');
    source.names[user(2)] = std::string(user_names::max_text - 11, 'x');
    source.names[user(3)] = "a\nb";
    source.names[user(4)] = "";
    source.names[user(5)] = "a\xff";
    BOOST_TEST(texts_of({user(1), user(2), user(3), user(4), user(5)}) ==
               (texts{source.names[user(1)] + "@example.org", "unknown", "unknown", "unknown", "unknown"}));
    // As setuid(2) has it nobody.
    source.names[user(~0U)] = "none";
    BOOST_TEST(id_of("none@example.org") == "unknown");
}

BOOST_FIXTURE_TEST_CASE(a_failure_is_kept_for_moments, names_fixture)
{
    source.fails = true;
    BOOST_TEST(id_of("alice@example.org") == "later");
    BOOST_TEST(texts_of({user(1000)}) == texts{"later"});
    clock.advance(4s);
    source.fails = false;
    BOOST_TEST(id_of("alice@example.org") == "later");
    BOOST_TEST(asked() == 2u);
    clock.advance(2s);
    BOOST_TEST(id_of("alice@example.org") == "1000");
    BOOST_TEST(texts_of({user(1000)}) == texts{"alice@example.org"});
}

// A source that is off for good must not have a chown wait for good.
BOOST_FIXTURE_TEST_CASE(a_name_that_can_not_be_looked_up_is_given_up_in_time, names_fixture)
{
    std::string warnings;
    const log_level before_all = current_log_level();
    set_log_level(log_level::warning);
    set_log_capture(
        [](void* to, std::string_view line) {
            if (line.find("nsswitch.conf") != std::string_view::npos)
                static_cast<std::string*>(to)->append(line) += '\n';
        },
        &warnings);
    user_names_options options;
    options.domain = "example.org";
    options.logs = true;
    options.most_others = 3;
    users(options);
    BOOST_TEST(id_of("alice@example.org") == "1000");
    clock.advance(11min);
    source.fails = true;
    // Whether somebody was called so once or not, and however often it is asked for meanwhile.
    const time_point before = clock.now();
    for (; clock.now() - before < 1min; clock.advance(6s)) {
        BOOST_TEST(id_of("bob@example.org") == "later");
        BOOST_TEST(id_of("alice@example.org") == "later");
    }
    BOOST_TEST(warnings.empty());
    BOOST_TEST(id_of("bob@example.org") == "given up");
    BOOST_TEST(id_of("alice@example.org") == "given up");
    BOOST_TEST((users().known_id(account_kind::user, "alice@example.org") == 1000u));
    BOOST_TEST(warnings.find("bob@example.org") != std::string::npos);
    BOOST_TEST(std::ranges::count(warnings, '\n') == 1);
    // Each name has a minute of its own, and each is still looked up.
    BOOST_TEST(id_of("carol@example.org") == "later");
    clock.advance(1h);
    source.asked.clear();
    BOOST_TEST(id_of("bob@example.org") == "given up");
    BOOST_TEST(id_of("bob@example.org") == "given up");
    BOOST_TEST(asked() == 1u);
    // One that failed once, and was not asked for since, has not failed all that time.
    BOOST_TEST(id_of("carol@example.org") == "later");
    clock.advance(59s);
    BOOST_TEST(id_of("carol@example.org") == "later");
    clock.advance(1s);
    BOOST_TEST(id_of("carol@example.org") == "given up");
    // A lookup that succeeds ends it.
    source.fails = false;
    clock.advance(6s);
    BOOST_TEST(id_of("bob@example.org") == "unknown");
    BOOST_TEST(id_of("alice@example.org") == "1000");
    clock.advance(11min);
    source.fails = true;
    BOOST_TEST(id_of("bob@example.org") == "later");
    BOOST_TEST(id_of("alice@example.org") == "later");
    // No more is kept for it than of what is not there.
    for (const char* other : {"1@example.org", "2@example.org", "3@example.org"})
        BOOST_TEST(id_of(other) == "later");
    BOOST_TEST(users().counters().cached.value() == 4);
    clock.advance(2min);
    BOOST_TEST(id_of("bob@example.org") == "later");
    BOOST_TEST(std::ranges::count(warnings, '\n') == 1);
    set_log_capture(nullptr, nullptr);
    set_log_level(before_all);
}

BOOST_FIXTURE_TEST_CASE(a_lookup_that_hangs_is_given_up_in_time, names_fixture)
{
    user_names_options options;
    options.most_under_way = 2;
    users(options);
    BOOST_TEST(id_of("nobody@example.org") == "unknown");
    source.be_slow();
    BOOST_TEST(id_of("alice@example.org") == "later");
    clock.advance(30s);
    BOOST_TEST(id_of("staff@example.org", account_kind::group) == "later");
    clock.advance(25s);
    BOOST_TEST(id_of("alice@example.org") == "later");
    BOOST_TEST(id_of("bob@example.org") == "later");
    clock.advance(1s);
    BOOST_TEST(id_of("alice@example.org") == "given up");
    // One that finds no place is, when all places hang for so long.
    BOOST_TEST(id_of("bob@example.org") == "later");
    clock.advance(31s);
    BOOST_TEST(id_of("bob@example.org") == "later");
    clock.advance(1s);
    BOOST_TEST(id_of("bob@example.org") == "given up");
    BOOST_TEST(given(answer::refused) == 4u);
    source.answer();
    turns();
    BOOST_TEST(id_of("alice@example.org") == "1000");
    BOOST_TEST(id_of("bob@example.org") == "unknown");
}

BOOST_FIXTURE_TEST_CASE(without_a_domain_names_are_given_up_in_time, names_fixture)
{
    source.domain_fails = true;
    BOOST_TEST(id_of("alice@example.org") == "later");
    clock.advance(30s);
    BOOST_TEST(id_of("alice@example.org") == "later");
    clock.advance(29s);
    BOOST_TEST(id_of("bob@example.org") == "later");
    clock.advance(1s);
    BOOST_TEST(id_of("bob@example.org") == "given up");
    BOOST_TEST(id_of("alice@example.org") == "given up");
    BOOST_TEST(texts_of({user(1000)}) == texts{"later"});
    source.domain_fails = false;
    clock.advance(6s);
    BOOST_TEST(id_of("alice@example.org") == "1000");
    BOOST_TEST(asked() == 1u);
}

BOOST_FIXTURE_TEST_CASE(all_who_want_a_name_wait_for_one_lookup, names_fixture)
{
    BOOST_TEST(id_of("nobody@example.org") == "unknown"); // so that the domain is known
    source.asked.clear();
    source.be_slow();
    std::vector<std::uint32_t> got;
    scope calls(*shard);
    const auto want = [&]() -> task<void> {
        auto asking = users().id_of(account_kind::user, "alice@example.org");
        const auto told = co_await asking;
        got.push_back(told.id);
    };
    for (int i = 0; i < 5; ++i)
        calls.spawn(want);
    turns();
    BOOST_TEST(asked() == 1u);
    BOOST_TEST(users().counters().under_way.value() == 1);
    source.answer();
    turns();
    BOOST_TEST(got == std::vector<std::uint32_t>(5, 1000));
    BOOST_TEST(asked() == 1u);
    BOOST_TEST(users().counters().under_way.value() == 0);
    BOOST_TEST(given(answer::looked_up) == 6u);
}

BOOST_FIXTURE_TEST_CASE(nobody_waits_for_longer_than_the_patience, names_fixture)
{
    BOOST_TEST(id_of("nobody@example.org") == "unknown");
    source.be_slow();
    const time_point before = clock.now();
    BOOST_TEST(id_of("alice@example.org") == "later");
    BOOST_TEST((clock.now() - before == 2s));
    // What was waited for in vain is not waited for again, and what another page wants is waited for once for all of it.
    BOOST_TEST(id_of("alice@example.org") == "later");
    BOOST_TEST((clock.now() - before == 2s));
    BOOST_TEST(texts_of({user(1000), user(1), user(2), user(3)}) == texts(4, "later"));
    BOOST_TEST((clock.now() - before == 4s));
    BOOST_TEST(given(answer::late) == 6u);
    // It is known when it comes, all the same.
    source.answer();
    turns();
    source.asked.clear();
    BOOST_TEST(id_of("alice@example.org") == "1000");
    BOOST_TEST(texts_of({user(1000), user(1)}) == (texts{"alice@example.org", "unknown"}));
    BOOST_TEST(asked() == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_domain_that_does_not_come_is_not_waited_for, names_fixture)
{
    source.be_slow();
    const time_point before = clock.now();
    BOOST_TEST(id_of("alice@example.org") == "later");
    BOOST_TEST(texts_of({user(1000), user(1)}) == texts(2, "later"));
    BOOST_TEST((clock.now() - before == 2s));
    BOOST_TEST(asked() == 0u);
    source.answer();
    turns();
    BOOST_TEST(id_of("alice@example.org") == "1000");
}

BOOST_FIXTURE_TEST_CASE(lookups_under_way_are_limited, names_fixture)
{
    user_names_options options;
    options.most_under_way = 3;
    users(options);
    BOOST_TEST(id_of("nobody@example.org") == "unknown");
    source.asked.clear();
    source.be_slow();
    scope calls(*shard);
    const auto want = [&](int i) -> task<void> {
        auto asking = users().id_of(account_kind::user, std::to_string(i) + "@example.org");
        (void)co_await asking;
    };
    for (int i = 0; i < 5; ++i)
        calls.spawn(want, i);
    turns();
    BOOST_TEST(asked() == 3u);
    BOOST_TEST(given(answer::refused) == 2u);
    // Numbers have a limit of their own, and one that was refused had no time of its own either.
    BOOST_TEST(texts_of({user(1), user(2), user(3), user(4), user(5)}) == texts(5, "later"));
    BOOST_TEST(asked() == 6u);
    source.answer();
    turns();
    BOOST_TEST(asked() == 6u);
    BOOST_TEST(texts_of({user(4), user(1000)}) == (texts{"unknown", "alice@example.org"}));
}

BOOST_FIXTURE_TEST_CASE(what_is_kept_is_limited, names_fixture)
{
    user_names_options options;
    options.most_found = 3;
    options.most_others = 2;
    users(options);
    for (std::uint32_t i = 1; i <= 3; ++i)
        source.names[user(i)] = "u" + std::to_string(i);
    BOOST_TEST(texts_of({user(1), user(2), user(3)}).size() == 3u);
    // Those that nobody has drive out none that somebody has.
    BOOST_TEST(texts_of({user(10), user(11), user(12), user(13)}) == texts(4, "unknown"));
    BOOST_TEST(users().counters().cached.value() == 5);
    source.asked.clear();
    BOOST_TEST(texts_of({user(1), user(3), user(13)}).size() == 3u);
    BOOST_TEST(asked() == 0u);
    // The one that was not used for longest goes.
    BOOST_TEST(texts_of({user(1000)}) == texts{"alice@example.org"});
    source.asked.clear();
    BOOST_TEST(texts_of({user(1), user(3)}).size() == 2u);
    BOOST_TEST(asked() == 0u);
    BOOST_TEST(texts_of({user(2)}) == texts{"u2@example.org"});
    BOOST_TEST(asked() == 1u);
    BOOST_TEST(users().counters().cached.value() == 5);
}

// A daemon whose socket is not there, or is refused, says nothing of who there is.
BOOST_AUTO_TEST_CASE(nobody_is_told_from_nobody_to_ask)
{
    const auto ask = [](int failure) {
        const auto got = nfs::v4::detail::look_up<int, int>(
            [&](int*, char*, std::size_t, int** found) {
                *found = nullptr;
                return failure;
            },
            [](int value) { return value; });
        return !got ? "failed" : *got ? "found" : "nobody";
    };
    BOOST_TEST(ask(0) == "nobody");
    for (const int failure : {ENOENT, ESRCH, EBADF, EPERM, ECONNREFUSED, EIO, EMFILE})
        BOOST_TEST(ask(failure) == "failed", failure);
    BOOST_TEST(ask(ERANGE) == "failed");
    BOOST_TEST(nfs::v4::detail::is_unknown_to_resolver(EAI_NONAME));
    for (const int failure : {EAI_AGAIN, EAI_FAIL, EAI_MEMORY, EAI_SYSTEM})
        BOOST_TEST(!nfs::v4::detail::is_unknown_to_resolver(failure), failure);
}

// What each host has.
BOOST_AUTO_TEST_CASE(nsswitch_knows_root)
{
    auto r = std::move(*reactor::create({}));
    blocking_pool lane(1);
    scope lookups(*r);
    nsswitch_names source(lane);
    const auto all = [&]() -> task<void> {
        const auto id = co_await source.find_id(account_kind::user, "root");
        BOOST_TEST((id && *id == 0u));
        const auto gid = co_await source.find_id(account_kind::group, "root");
        BOOST_TEST((gid && *gid == 0u));
        const auto name = co_await source.find_name(user(0));
        BOOST_TEST((name && *name == "root"));
        const auto group_name = co_await source.find_name(group(0));
        BOOST_TEST((group_name && *group_name == "root"));
        const auto none = co_await source.find_id(account_kind::user, "no such user, surely");
        BOOST_TEST((none && !*none));
        const auto nobody = co_await source.find_name(user(4'000'000'123));
        BOOST_TEST((nobody && !*nobody));
        const auto domain = co_await source.domain();
        BOOST_TEST((!domain || !domain->starts_with('.')));
    };
    run_until_complete(*r, all());
}

BOOST_AUTO_TEST_SUITE_END()
