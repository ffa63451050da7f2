// SPDX-License-Identifier: Apache-2.0
// Requests come and go while somebody looks at them; the old ones are told of, and the slow ones are kept.
#include <boost/test/unit_test.hpp>

#include "../log_at.hpp"

#include <verbena/core/reactor/request_list.hpp>
#include <verbena/core/reactor/simulated_shards.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/in_context.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/task/trace_name.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(request_list_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

struct request final : listed_request {
    explicit request(std::uint32_t n, std::string p = "test") : number(n), protocol(std::move(p)) {}
    void report(request_report& into) const noexcept override
    {
        into.trace = trace_of(7, number);
        into.peer.append("192.0.2.1:700");
        into.protocol.append(protocol);
        into.version.append("3");
        into.transport.append("tcp");
        into.operation.append("READ");
        if (detail() != nullptr)
            detail()->describe(into);
    }
    const std::uint32_t number;
    const std::string protocol;
};

struct of_file final : request_detail {
    void describe(request_report& into) const noexcept override { into.object.append("/data inode 5"); }
};

// A shard by a virtual clock.
struct bench {
    bench()
    {
        reactor_options o;
        o.clock = &clock;
        r = reactor::create(o).value();
        settle();
    }
    void settle()
    {
        while (r->turn()) {
        }
    }
    void pass(duration d)
    {
        clock.advance(d);
        settle();
    }
    request& begin(std::uint32_t number, std::string protocol = "test")
    {
        all.push_back(std::make_unique<request>(number, std::move(protocol)));
        r->requests().begin(*all.back());
        return *all.back();
    }
    void end_all()
    {
        for (auto& one : all)
            one->served("ok");
        all.clear();
    }
    std::map<std::string, std::uint64_t> slow() const
    {
        std::map<std::string, std::uint64_t> counts;
        std::as_const(*r).requests().for_each_slow(
            [&](std::string_view protocol, const counter& n) { counts[std::string(protocol)] = n.value(); });
        return counts;
    }
    std::vector<std::uint32_t> listed()
    {
        std::vector<std::uint32_t> numbers;
        request_list::reader reader(r->requests());
        while (const listed_request* one = reader.next())
            numbers.push_back(static_cast<const request*>(one)->number);
        return numbers;
    }
    // How long those took that are kept, in milliseconds.
    std::vector<long> kept() const
    {
        std::vector<long> times;
        for (const auto& one : std::as_const(*r).requests().slowest())
            times.push_back(std::chrono::duration_cast<std::chrono::milliseconds>(one.took).count());
        std::ranges::sort(times);
        return times;
    }

    virtual_clock clock;
    std::unique_ptr<reactor> r;
    std::vector<std::unique_ptr<request>> all;
};

std::uint32_t next(request_list::reader& reader)
{
    const listed_request* const one = reader.next();
    return one == nullptr ? 0 : static_cast<const request*>(one)->number;
}

struct captured_log {
    captured_log()
    {
        set_log_capture(
            [](void* to, std::string_view line) {
                static_cast<std::vector<std::string>*>(to)->emplace_back(line);
            },
            &lines);
    }
    ~captured_log() { set_log_capture(nullptr, nullptr); }
    std::vector<std::string> lines;
};

task<void> serve(request& r, event& until, bool throws)
{
    served_by here(r);
    co_await here;
    (void)co_await until.wait();
    if (throws)
        throw std::runtime_error("it can't be served");
}

} // namespace

BOOST_AUTO_TEST_CASE(texts_and_names)
{
    BOOST_TEST(trace_name(trace_of(12, 0x3fa0c11d)).view() == "12.3fa0c11d");
    BOOST_TEST(trace_name(trace_of(4294967295, 0)).view() == "4294967295.00000000");
    BOOST_TEST(trace_name(trace_of(1, 0xabc)).view() == "1.00000abc");
    BOOST_TEST(trace_name(17).view() == "17");
    short_text<5> text("abc");
    text.append("defg");
    BOOST_TEST(text.view() == "abcde");
    text.append("h");
    BOOST_TEST(text.view() == "abcde");
    text.clear();
    BOOST_TEST(text.empty());
    BOOST_TEST(text.append(255U, 16).append(7U).view() == "ff7");
}

BOOST_AUTO_TEST_CASE(a_reader_sees_each_that_stays_once_the_oldest_first)
{
    bench b;
    std::optional<request> a(std::in_place, 1), c(std::in_place, 3), d(std::in_place, 4);
    request second(2), last(5);
    for (request* one : {&*a, &second, &*c, &*d, &last}) {
        b.pass(1s);
        b.r->requests().begin(*one);
    }
    request_list::reader first(b.r->requests());
    request_list::reader other(b.r->requests());
    BOOST_TEST(next(first) == 1);
    a.reset(); // the one that it has just shown
    BOOST_TEST(next(first) == 2);
    c.reset(); // its next one
    BOOST_TEST(next(other) == 2);
    BOOST_TEST(next(first) == 4);
    b.pass(1s);
    request late(6); // came meanwhile: else a list of a busy shard would have no end
    b.r->requests().begin(late);
    BOOST_TEST(next(first) == 5);
    BOOST_TEST(next(first) == 0);
    BOOST_TEST(next(first) == 0);
    d.reset();
    BOOST_TEST(next(other) == 5);
    BOOST_TEST(next(other) == 0);
    BOOST_TEST((b.listed() == std::vector<std::uint32_t>{2, 5, 6}));
    second.leave();
    second.leave();
    BOOST_TEST(!second.is_listed());
    BOOST_TEST((b.listed() == std::vector<std::uint32_t>{5, 6}));
}

BOOST_AUTO_TEST_CASE(readers_and_requests_may_outlive_the_shard)
{
    std::optional<bench> b(std::in_place);
    request one(1);
    b->r->requests().begin(one);
    request_list::reader reader(b->r->requests());
    b.reset();
    BOOST_TEST(next(reader) == 0);
    BOOST_TEST(!one.is_listed());
    one.served("ok");
    one.leave();
}

BOOST_AUTO_TEST_CASE(a_request_goes_with_the_task_that_serves_it_however_that_ends)
{
    bench b;
    scope s(*b.r, nullptr, nullptr, "test");
    event until, never;
    const auto lists = [&](std::vector<std::uint32_t> wanted) { return b.listed() == wanted; };
    request ends(1), throws(2), stops(3);
    for (request* one : {&ends, &throws, &stops})
        b.r->requests().begin(*one);
    s.spawn(serve, std::ref(ends), std::ref(until), false);
    s.spawn(serve, std::ref(throws), std::ref(until), true);
    s.spawn(serve, std::ref(stops), std::ref(never), false);
    b.settle();
    BOOST_TEST(lists({1, 2, 3}));
    until.set();
    b.settle();
    BOOST_TEST(lists({3}));
    s.request_stop();
    b.settle();
    BOOST_TEST(lists({}));
    auto join = [](scope& all, bool& thrown) -> task<void> {
        try {
            co_await all.join();
        } catch (const std::runtime_error&) {
            thrown = true;
        }
    };
    bool thrown = false;
    run_until_complete(*b.r, join(s, thrown));
    BOOST_TEST(thrown);
}

BOOST_AUTO_TEST_CASE(an_object_that_serves_the_next_request_already_stays_listed)
{
    bench b;
    request one(1);
    const auto again = [](bench& of, request& r) -> task<void> {
        served_by here(r);
        co_await here;
        r.leave();
        of.r->requests().begin(r); // its object was free
    };
    b.r->requests().begin(one);
    run_until_complete(*b.r, again(b, one));
    BOOST_TEST(one.is_listed());
}

BOOST_AUTO_TEST_CASE(what_a_request_waits_for_is_what_its_innermost_task_waits_for)
{
    bench b;
    scope s(*b.r, nullptr, nullptr, "test");
    request one(1), nobodys(2);
    b.r->requests().begin(one);
    b.r->requests().begin(nobodys);
    const auto sleeps = []() -> task<void> { (void)co_await sleep_for(5s); };
    const auto serves = [&sleeps](bench& of, request& r) -> task<void> {
        served_by here(r);
        co_await here;
        scope inner(*of.r, nullptr, nullptr, "inner");
        inner.spawn(sleeps);
        co_await inner.join();
    };
    s.spawn(serves, std::ref(b), std::ref(one));
    b.settle();
    BOOST_TEST(b.r->requests().waits_for(one) == "a sleep, 5.000 s left");
    BOOST_TEST(b.r->requests().waits_for(nobodys) == "");
    b.pass(5s);
    auto join = [](scope& all) -> task<void> { co_await all.join(); };
    run_until_complete(*b.r, join(s));
    BOOST_TEST(!one.is_listed());
}

// The shard that serves it knows no more than where it is.
BOOST_AUTO_TEST_CASE(what_a_request_waits_for_on_another_shard_is_listed_there)
{
    virtual_clock clock;
    memory_budget budget{std::size_t(4) << 20, 2};
    simulated_shards all(clock, 1);
    shard& home = all.add(budget);
    shard& other = all.add(budget);
    request one(1);
    const auto look = [](shard& of) {
        std::vector<std::string> told;
        request_list::reader reader(of.reactor().requests());
        while (const listed_request* const r = reader.next()) {
            request_report report;
            r->report(report);
            told.push_back(std::string(trace_name(report.trace).view()) + ' ' +
                           std::string(report.operation.view()) + ": " +
                           of.reactor().requests().waits_for(*r));
        }
        return told;
    };
    const auto sleeps = []() -> task<void> { (void)co_await sleep_for(5s); };
    const auto serves = [&](shard& there, std::uint64_t trace) -> task<void> {
        task_context context = co_await current_context();
        context.trace_id = trace;
        const task<void> away = there.run(sleeps);
        detail::in_context<void> traced(away, context);
        co_await traced;
    };
    const auto both = [&](shard& here, shard& there) -> task<void> {
        here.reactor().requests().begin(one);
        served_by runner(one);
        co_await runner;
        scope s(here.reactor());
        s.spawn(serves, std::ref(there), trace_of(7, 1));
        s.spawn(serves, std::ref(there), std::uint64_t(0)); // of nobody's request
        (void)co_await sleep_for(1s);
        BOOST_TEST(look(here) == std::vector<std::string>{"7.00000001 READ: "},
                   boost::test_tools::per_element());
        const std::vector<std::string> far = co_await there.run(look, std::ref(there));
        BOOST_TEST(far == std::vector<std::string>{"7.00000001 for shard 0: a sleep, 4.000 s left"},
                   boost::test_tools::per_element());
        co_await s.join();
        const std::vector<std::string> none = co_await there.run(look, std::ref(there));
        BOOST_TEST(none.empty());
    };
    all.run(home, both(home, other));
}

BOOST_AUTO_TEST_CASE(a_request_that_lasts_too_long_is_told_of_once)
{
    const test::log_at level(log_level::info);
    captured_log log;
    bench b;
    b.r->requests().expect("nfs");
    b.r->requests().set_slow(10s);
    request& old = b.begin(0x17);
    const of_file file;
    old.set_detail(&file);
    b.pass(4s);
    b.begin(2);
    b.all.pop_back(); // ends in time
    b.begin(3);
    b.pass(5999ms);
    BOOST_TEST(log.lines.empty());
    BOOST_TEST((b.slow() == std::map<std::string, std::uint64_t>{{"nfs", 0}}));
    b.pass(1ms);
    BOOST_REQUIRE(log.lines.size() == 1U);
    BOOST_TEST(log.lines[0].find("warning requests: a request has not been answered for long call=7.00000017 "
                                 "peer=192.0.2.1:700 protocol=test version=3 transport=tcp operation=READ "
                                 "object=\"/data inode 5\" waits_for=\"\" seconds=10") != std::string::npos,
               log.lines[0]);
    b.pass(3s);
    BOOST_TEST(log.lines.size() == 1U);
    b.pass(1s);
    BOOST_TEST(log.lines.size() == 2U);
    b.pass(1h);
    BOOST_TEST(log.lines.size() == 2U);
    BOOST_TEST((b.slow() == std::map<std::string, std::uint64_t>{{"nfs", 0}, {"test", 2}}));
}

BOOST_AUTO_TEST_CASE(a_request_that_may_take_long_is_not_slow)
{
    const test::log_at level(log_level::off);
    bench b;
    b.r->requests().set_slow(10s);
    request& one = b.begin(1);
    one.may_take_long(); // a long poll
    b.begin(2);
    b.pass(1h);
    BOOST_TEST(b.slow()["test"] == 1U);
    one.served("ok");
    BOOST_TEST(b.kept().empty());
    // The same object, as another request.
    b.r->requests().begin(one);
    b.pass(1h);
    BOOST_TEST(b.slow()["test"] == 2U);
    one.served("ok");
    BOOST_TEST(b.kept().size() == 1U);
}

// Also of a shard whose requests never all end, and nothing is armed when nothing can become old.
BOOST_AUTO_TEST_CASE(those_that_come_while_old_ones_hang_are_told_of_in_their_time)
{
    const test::log_at level(log_level::off);
    bench b;
    b.r->requests().set_slow(10s);
    for (std::uint32_t i = 0; i < 250; ++i)
        b.begin(i);
    // Some at a time, so that a disk that hangs under many calls does not hold the shard as well.
    b.pass(10s);
    BOOST_TEST(b.slow()["test"] == request_list::at_once);
    b.pass(1ms);
    BOOST_TEST(b.slow()["test"] == 2 * request_list::at_once);
    b.pass(1ms);
    BOOST_TEST(b.slow()["test"] == 250U);
    BOOST_TEST(!b.r->timers().next().has_value());
    b.begin(250);
    b.pass(9999ms);
    BOOST_TEST(b.slow()["test"] == 250U);
    b.pass(1ms);
    BOOST_TEST(b.slow()["test"] == 251U);
    b.begin(251);
    b.r->requests().set_slow(2s);
    b.pass(2s);
    BOOST_TEST(b.slow()["test"] == 252U);
    b.begin(252);
    b.r->requests().set_slow(duration::zero());
    b.pass(1h);
    BOOST_TEST(b.slow()["test"] == 252U);
    BOOST_TEST(!b.r->timers().next().has_value());
    b.begin(253); // the watch begins anew with those that are there
    b.r->requests().set_slow(10s);
    b.pass(1ms);
    BOOST_TEST(b.slow()["test"] == 253U);
    b.pass(10s);
    BOOST_TEST(b.slow()["test"] == 254U);
}

BOOST_AUTO_TEST_CASE(a_shard_that_nobody_told_how_slow_is_slow_arms_nothing)
{
    bench b;
    b.begin(1);
    BOOST_TEST(!b.r->timers().next().has_value());
    b.pass(1h);
    BOOST_TEST(b.slow().empty());
}

BOOST_AUTO_TEST_CASE(protocols_beyond_the_first_ones_are_counted_together)
{
    const test::log_at level(log_level::off);
    bench b;
    b.r->requests().set_slow(1s);
    for (std::uint32_t i = 0; i < 12; ++i)
        b.begin(i, "p" + std::to_string(i));
    b.pass(1s);
    const auto counts = b.slow();
    BOOST_TEST(counts.size() == request_list::max_protocols);
    BOOST_TEST(counts.at("p0") == 1U);
    BOOST_TEST(counts.at("p6") == 1U);
    BOOST_TEST(counts.at("other") == 5U);
}

BOOST_AUTO_TEST_CASE(the_slowest_are_kept)
{
    bench b;
    request quick(1);
    b.r->requests().begin(quick);
    b.pass(999us);
    quick.served("ok");
    BOOST_TEST(b.kept().empty());
    // 40 that take 2, 3 ... 41 ms.
    for (std::uint32_t i = 0; i < 40; ++i)
        b.begin(i);
    b.pass(1ms);
    for (auto& one : b.all) {
        b.pass(1ms);
        one->served("ok");
    }
    std::vector<long> slowest;
    for (long i = 10; i <= 41; ++i)
        slowest.push_back(i);
    BOOST_TEST(b.kept() == slowest, boost::test_tools::per_element());
    b.all.clear();
    // One that is faster than all of them takes nobody's place, one that is slower takes that of the fastest.
    b.begin(100);
    b.pass(5ms);
    b.end_all();
    b.begin(101);
    b.pass(50ms);
    b.end_all();
    BOOST_TEST(b.kept().front() == 11);
    BOOST_TEST(b.kept().back() == 50);
    BOOST_TEST(b.kept().size() == request_list::kept);
}

BOOST_AUTO_TEST_CASE(what_is_said_first_of_a_slow_request_is_kept)
{
    bench b;
    request one(9);
    b.r->requests().begin(one);
    {
        const of_file file;
        one.set_detail(&file);
        b.pass(2s);
        one.served("NFS3ERR_IO");
        one.set_detail(nullptr);
    }
    b.pass(1s);
    one.served("ok");
    one.leave();
    one.served("ok");
    const auto all = b.r->requests().slowest();
    BOOST_REQUIRE(all.size() == 1U);
    BOOST_TEST(all[0].what.status.view() == "NFS3ERR_IO");
    BOOST_TEST(all[0].what.object.view() == "/data inode 5");
    BOOST_TEST(all[0].what.trace == trace_of(7, 9));
    BOOST_TEST((all[0].took == 2s));
    BOOST_TEST((b.r->now() - all[0].when == 1s));
    // The same object, as another request.
    b.r->requests().begin(one);
    b.pass(3s);
    one.served("ok");
    BOOST_TEST(b.r->requests().slowest().size() == 2U);
}

// Those of an hour ago keep none of today's out.
BOOST_AUTO_TEST_CASE(the_slowest_are_those_of_the_last_minutes)
{
    bench b;
    const auto take = [&](duration d) {
        b.begin(1);
        b.pass(d);
        b.end_all();
    };
    for (std::size_t i = 0; i < request_list::kept; ++i)
        take(100ms);
    take(2ms);
    BOOST_TEST(b.kept().size() == request_list::kept);
    b.pass(request_list::period);
    take(2ms);
    BOOST_TEST(b.kept().size() == request_list::kept + 1); // of two periods
    BOOST_TEST(b.kept().front() == 2);
    b.pass(request_list::period);
    take(3ms);
    BOOST_TEST((b.kept() == std::vector<long>{2, 3}));
    b.pass(3 * request_list::period);
    BOOST_TEST(b.kept().empty());
    take(4ms);
    BOOST_TEST((b.kept() == std::vector<long>{4}));
}

BOOST_AUTO_TEST_SUITE_END()
