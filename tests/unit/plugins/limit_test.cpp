// SPDX-License-Identifier: Apache-2.0
#include "../protocols/fake_backend.hpp"
#include "filter_fixture.hpp"

#include <verbena/core/reactor/runtime.hpp>
#include <verbena/plugins/delay.hpp>
#include <verbena/plugins/limit.hpp>

#include <algorithm>
#include <cerrno>
#include <random>

BOOST_AUTO_TEST_SUITE(limit_test)

using namespace verbena;
using namespace verbena::test;
using namespace verbena::filters;

namespace {

struct fixture : filter_fixture {
    limit_filter& limit(const limit_options& options) { return use(open_limit(beneath(), options)); }
    duration since_start(std::size_t n) const { return outcomes[n].when - start; }
    /// Uses up what an idle client has saved.
    void spend(std::string_view client, int operations)
    {
        for (int i = 0; i < operations; ++i)
            must(getattr(asked_by(client)));
    }
    const time_point start = clock.now();
};

limit_options of_client(std::uint64_t operations, std::uint64_t bytes = 0)
{
    limit_options options;
    options.client_operations = operations;
    options.client_bytes = bytes;
    return options;
}
limit_options of_export(std::uint64_t operations, std::uint64_t bytes = 0)
{
    limit_options options;
    options.total_operations = operations;
    options.total_bytes = bytes;
    return options;
}

const std::error_code stopped(ECANCELED, std::system_category());

} // namespace

BOOST_FIXTURE_TEST_CASE(a_client_has_a_burst_and_then_its_rate, fixture)
{
    limit_filter& filter = limit(of_client(10));
    for (int i = 0; i < 10; ++i)
        BOOST_TEST((takes(getattr(me)) == 0s));
    for (int i = 0; i < 5; ++i)
        BOOST_TEST((takes(getattr(me)) == 100ms));
    pass(250ms);
    BOOST_TEST((takes(getattr(me)) == 0s));
    BOOST_TEST((takes(getattr(me)) == 0s));
    BOOST_TEST((takes(getattr(me)) == 50ms));
    pass(1h);
    spend("", 10);
    BOOST_TEST((takes(getattr(me)) == 100ms));
    const limit_counters now = filter.counters();
    BOOST_TEST(now.passed == 22u);
    BOOST_TEST(now.waited == 7u);
    BOOST_TEST(now.waited_nanoseconds == 650'000'000u);
    BOOST_TEST(now.waiting == 0u);
}

BOOST_FIXTURE_TEST_CASE(the_burst_may_be_short, fixture)
{
    limit_options options = of_client(1000);
    options.burst = 2ms;
    limit(options);
    spend("", 2);
    BOOST_TEST((takes(getattr(me)) == 1ms));
    // One operation fits in any burst.
    options.client_operations = 1;
    limit(options);
    BOOST_TEST((takes(getattr(me)) == 0s));
    BOOST_TEST((takes(getattr(me)) == 1s));
}

BOOST_FIXTURE_TEST_CASE(bytes_are_those_of_data_in_bytes_a_second, fixture)
{
    limit(of_client(0, 1'000'000));
    const auto file = make_file("f", 1'000'000);
    BOOST_TEST((takes(write(me, file, 600'000)) == 0s));
    BOOST_TEST((takes(write(me, file, 400'000)) == 0s));
    BOOST_TEST((takes(write(me, file, 1)) == 1us));
    BOOST_TEST((takes(read(me, file, 250'000)) == 250ms));
    // What moves no data costs none, and does not wait for any.
    for (int i = 0; i < 1000; ++i)
        BOOST_TEST((takes(getattr(me)) == 0s));
    BOOST_TEST((takes(fs->commit(me, file, 0, 0)) == 0s));
    BOOST_TEST((takes(read(me, file, 1000)) == 1ms));
}

// A copy moves no byte over the network, and the disk has the work all the same. Room is only promised, and as much as somebody asks for.
BOOST_FIXTURE_TEST_CASE(bytes_are_those_of_copies_too_and_not_of_room, fixture)
{
    limit(of_client(0, 1'000'000));
    const auto from = make_file("f", 400'000);
    const auto to = make_file("g", 1);
    must(write(me, to, 200'000));
    must(fs->copy(me, from, 0, to, 0, 400'000));
    must(write(me, to, 400'000));
    BOOST_TEST((takes(fs->copy(me, from, 0, to, 0, 250'000)) == 250ms));
    BOOST_TEST((takes(fs->allocate(me, to, 0, 250'000)) == 0s));
    BOOST_TEST((takes(fs->seek(me, to, 0, storage::extent::data)) == 0s));
    BOOST_TEST((takes(fs->deallocate(me, to, 0, 500'000)) == 0s));
    BOOST_TEST((takes(write(me, to, 1)) == 1us));
}

BOOST_FIXTURE_TEST_CASE(an_operation_larger_than_the_burst_waits_for_a_full_one, fixture)
{
    limit_options options = of_client(0, 1'000'000);
    options.burst = 100ms;
    limit(options);
    const auto file = make_file("f", 10);
    BOOST_TEST((takes(write(me, file, 500'000)) == 0s));
    // 400 ms for what it took too much, and 100 ms for the burst.
    BOOST_TEST((takes(write(me, file, 500'000)) == 500ms));
    BOOST_TEST((takes(write(me, file, 1000)) == 401ms));
}

BOOST_FIXTURE_TEST_CASE(what_was_not_moved_is_given_back, fixture)
{
    limit(of_client(0, 1'000'000));
    const auto file = make_file("f", 100);
    // 100 bytes each, whatever was asked for.
    for (int i = 0; i < 20; ++i)
        BOOST_TEST((takes(read(me, file, 800'000)) == 0s));
    // A write that fails moves nothing.
    const storage::handle root = fs->root();
    for (int i = 0; i < 3; ++i)
        BOOST_TEST(bool(fails_with(write(me, root, 800'000))));
    BOOST_TEST((clock.now() == start));
    BOOST_TEST((takes(write(me, file, 800'000)) == 0s));
    BOOST_TEST((takes(write(me, file, 298'000)) == 100ms));
}

// While the operation took its time below, the burst was saved up again.
BOOST_FIXTURE_TEST_CASE(what_is_given_back_is_no_more_than_a_burst, fixture)
{
    delay_options slow;
    slow.read = {1s, 1s};
    auto below = open_delay(beneath(), slow);
    BOOST_REQUIRE(below);
    use(open_limit(std::move(*below), of_client(0, 1'000'000)));
    const auto file = make_file("f", 100);
    begin(read(me, file, 1'000'000));
    shard->turn();
    clock.advance(1s);
    BOOST_TEST((takes(write(me, file, 1)) == 0s)); // and was counted, before the other gave back
    join();
    BOOST_TEST((takes(write(me, file, 1'000'000)) == 0s));
    BOOST_TEST((takes(write(me, file, 1000)) == 1ms));
}

BOOST_FIXTURE_TEST_CASE(what_is_given_back_lets_the_next_one_pass, fixture)
{
    limit(of_client(0, 1'000'000));
    const auto file = make_file("f", 1000);
    must(write(me, make_file("g", 0), 200'000));
    begin(read(me, file, 1'000'000)); // waits 200 ms and then moves 1000 bytes
    const auto next = begin(read(me, file, 1'000'000));
    join();
    BOOST_TEST((since_start(next) == 201ms));
}

BOOST_FIXTURE_TEST_CASE(a_client_over_its_limit_holds_up_nobody_else, fixture)
{
    limit(of_client(10));
    spend("a", 10);
    for (int i = 0; i < 5; ++i)
        begin(mkdir(asked_by("a"), "a" + std::to_string(i)));
    pass(1ns);
    BOOST_TEST((takes(getattr(asked_by("b"))) == 0s));
    // Its queue is its own, too.
    spend("b", 9);
    const time_point before = clock.now();
    begin(mkdir(asked_by("b"), "b0"));
    join();
    BOOST_TEST(noted->order() == "a:a0 b:b0 a:a1 a:a2 a:a3 a:a4");
    BOOST_TEST((outcomes[5].when - before == 100ms));
}

BOOST_FIXTURE_TEST_CASE(operations_of_one_client_go_in_their_order, fixture)
{
    limit(of_client(0, 1'000'000));
    const auto file = make_file("f", 10);
    must(write(me, file, 1'000'000));
    // Small ones don't overtake.
    const std::size_t sizes[] = {900'000, 10, 500'000, 1, 1, 300'000};
    std::vector<std::size_t> all;
    for (const std::size_t size : sizes) {
        all.push_back(begin(write(me, file, size)));
        pass(10ms); // after which there would be enough for most
    }
    join();
    duration sum{};
    for (std::size_t i = 0; i < all.size(); ++i) {
        sum += std::chrono::microseconds(sizes[i]);
        BOOST_TEST((since_start(all[i]) == sum), i);
    }
}

BOOST_FIXTURE_TEST_CASE(at_the_exports_limit_clients_take_turns, fixture)
{
    limit(of_export(10));
    spend("a", 10);
    for (int i = 0; i < 6; ++i)
        begin(mkdir(asked_by("a"), "a" + std::to_string(i)));
    pass(150ms);
    // The flood of the first one does not come before these.
    for (int i = 0; i < 3; ++i)
        begin(mkdir(asked_by("b"), "b" + std::to_string(i)));
    begin(mkdir(asked_by("c"), "c0"));
    join();
    BOOST_TEST(noted->order() == "a:a0 a:a1 b:b0 c:c0 a:a2 b:b1 a:a3 b:b2 a:a4 a:a5");
    for (std::size_t i = 1; i < noted->notes.size(); ++i)
        BOOST_TEST((noted->notes[i].when - noted->notes[i - 1].when == 100ms), i);
}

BOOST_FIXTURE_TEST_CASE(what_is_small_does_not_pass_what_waits_for_the_export, fixture)
{
    limit(of_export(0, 1'000'000));
    const auto file = make_file("f", 10);
    must(write(asked_by("a"), file, 600'000));
    const auto large = begin(write(asked_by("a"), file, 1'000'000));
    const auto small = begin(write(asked_by("b"), file, 1000));
    join();
    BOOST_TEST((since_start(large) == 600ms));
    BOOST_TEST((since_start(small) == 601ms));
}

BOOST_FIXTURE_TEST_CASE(one_of_two_clients_floods_and_the_other_has_its_half, fixture)
{
    limit_options options = of_export(100);
    options.total_queue = 10'000;
    options.client_queue = 10'000;
    limit(options);
    spend("flood", 100);
    for (int i = 0; i < 1000; ++i)
        begin(getattr(asked_by("flood")));
    const auto one_by_one = [](fixture& f, unsigned& done) -> task<result<void>> {
        for (;;) {
            auto answer = f.getattr(asked_by("quiet"));
            const auto got = co_await answer;
            if (!got)
                co_return got.error();
            ++done;
        }
    };
    unsigned done = 0;
    begin(one_by_one(*this, done));
    pass(5s);
    // 500 in five seconds; the quiet one asks for the next only when it has the last.
    BOOST_TEST(done >= 249u);
    BOOST_TEST(done <= 251u);
    stop_all();
}

BOOST_FIXTURE_TEST_CASE(a_client_has_two_limits_and_both_hold, fixture)
{
    limit_options options = of_client(100, 1'000'000);
    options.total_bytes = 2'000'000;
    limit(options);
    const auto file = make_file("f", 10);
    for (const char* name : {"a", "b", "c"}) {
        spend(name, 10);
        begin(write(asked_by(name), file, 1'000'000));
    }
    const auto last = begin(write(asked_by("d"), file, 500'000));
    join();
    // The export's two million bytes were gone with the first two.
    BOOST_TEST((since_start(0) == 0s));
    BOOST_TEST((since_start(1) == 0s));
    BOOST_TEST((since_start(2) == 500ms));
    BOOST_TEST((since_start(last) == 750ms));
    const auto again = begin(write(asked_by("d"), file, 1'000'000));
    join();
    // Its own bytes: 250,000 short of a million 750 ms after it took half of them.
    BOOST_TEST((since_start(again) == 1250ms));
}

BOOST_FIXTURE_TEST_CASE(the_queue_of_a_client_is_bounded, fixture)
{
    limit_options options = of_client(10);
    options.client_queue = 2;
    limit_filter& filter = limit(options);
    spend("a", 10);
    for (int i = 0; i < 4; ++i)
        begin(mkdir(asked_by("a"), "a" + std::to_string(i)));
    pass(1ns);
    BOOST_TEST((outcomes[2].code == storage::errc::delayed));
    BOOST_TEST((outcomes[3].code == storage::errc::delayed));
    BOOST_TEST(filter.counters().waiting == 2u);
    spend("b", 10);
    begin(mkdir(asked_by("b"), "b"));
    join();
    BOOST_TEST(noted->order() == "a:a0 b:b a:a1");
    BOOST_TEST(filter.counters().refused_by_client == 2u);
    BOOST_TEST(filter.counters().refused_by_total == 0u);
    // No place at all: what can't pass at once never waits.
    options.client_queue = 0;
    limit(options);
    spend("a", 10);
    BOOST_TEST((fails_with(getattr(asked_by("a"))) == storage::errc::delayed));
}

BOOST_FIXTURE_TEST_CASE(the_queue_of_an_export_is_bounded, fixture)
{
    limit_options options = of_client(10);
    options.total_queue = 3;
    limit_filter& filter = limit(options);
    for (const char* name : {"a", "b"}) {
        spend(name, 10);
        begin(mkdir(asked_by(name), std::string(name) + "0"));
        begin(mkdir(asked_by(name), std::string(name) + "1"));
    }
    pass(1ns);
    BOOST_TEST((outcomes[3].code == storage::errc::delayed));
    BOOST_TEST(filter.counters().refused_by_total == 1u);
    BOOST_TEST((takes(getattr(asked_by("c"))) == 0s));
    join();
    BOOST_TEST(noted->notes.size() == 3u);
}

BOOST_FIXTURE_TEST_CASE(a_stop_ends_the_wait_and_takes_nothing, fixture)
{
    limit_filter& filter = limit(of_client(10));
    spend("", 10);
    begin(mkdir(me, "a"));
    begin(mkdir(me, "b"));
    pass(50ms);
    const time_point now = clock.now();
    stop_all();
    BOOST_TEST((clock.now() == now));
    for (const outcome& o : outcomes)
        BOOST_TEST((o.code == stopped));
    BOOST_TEST(noted->notes.empty());
    BOOST_TEST(filter.counters().cancelled == 2u);
    BOOST_TEST(filter.counters().waiting == 0u);
    BOOST_TEST((takes(getattr(me)) == 50ms));
    // One that was stopped before waits neither.
    tasks->request_stop();
    begin(mkdir(me, "c"));
    join();
    BOOST_TEST((outcomes[2].code == stopped));
    BOOST_TEST((clock.now() == now + 50ms));
    BOOST_TEST(filter.counters().cancelled == 3u);
}

BOOST_FIXTURE_TEST_CASE(whoever_stood_behind_a_stopped_one_goes_when_it_can, fixture)
{
    limit(of_client(0, 1'000'000));
    const auto file = make_file("f", 10);
    must(write(me, file, 1'000'000));
    {
        scope first(*shard);
        const auto large = [](fixture& f, storage::handle to) -> task<void> {
            auto written = f.write(f.me, to, 1'000'000);
            const auto done = co_await written;
            BOOST_TEST((done.error() == stopped));
        };
        const auto end = [](scope& s) -> task<void> { co_await s.join(); };
        first.spawn([&] { return large(*this, file); });
        begin(write(me, file, 1000));
        pass(500us);
        BOOST_TEST(!outcomes[0].done);
        first.request_stop();
        run(end(first));
    }
    join();
    BOOST_TEST((since_start(0) == 1ms));
}

BOOST_FIXTURE_TEST_CASE(so_many_clients_are_remembered_and_no_more, fixture)
{
    limit_options options = of_client(1);
    options.clients = 4;
    limit_filter& filter = limit(options);
    std::vector<std::string> names;
    for (int i = 0; i < 100; ++i)
        names.push_back("client " + std::to_string(i));
    for (const std::string& name : names)
        BOOST_TEST((takes(getattr(asked_by(name))) == 0s));
    BOOST_TEST(filter.counters().clients == 4u);
    BOOST_TEST(filter.counters().forgotten == 96u);
    // The last four are known, and have used up what they had.
    begin(getattr(asked_by(names[96])));
    pass(1ms);
    BOOST_TEST(!outcomes[0].done);
    join();
    // It came last, so the others go first; who was forgotten begins anew.
    for (int i = 0; i < 3; ++i)
        BOOST_TEST((takes(getattr(asked_by(names[std::size_t(i)]))) == 0s));
    BOOST_TEST((takes(getattr(asked_by(names[96]))) == 1s));
    BOOST_TEST(filter.counters().forgotten == 99u);
}

BOOST_FIXTURE_TEST_CASE(who_was_there_last_is_forgotten_last, fixture)
{
    limit_options options = of_client(2);
    options.clients = 2;
    limit(options);
    for (const char* name : {"a", "b", "a", "c"}) // b goes for c
        BOOST_TEST((takes(getattr(asked_by(name))) == 0s));
    BOOST_TEST((takes(getattr(asked_by("a"))) == 500ms));
}

// A stop that comes when the wait is over ends nothing: what was taken was taken for this one.
BOOST_FIXTURE_TEST_CASE(whoever_has_its_turn_is_not_stopped, fixture)
{
    limit_filter& filter = limit(of_client(10));
    spend("", 10);
    begin(mkdir(me, "a"));
    const auto stops = [](fixture& f) -> task<void> {
        co_await sleep_for(100ms - 1ns);
        f.tasks->request_stop();
    };
    scope other(*shard);
    other.spawn([&] { return stops(*this); });
    shard->turn();
    clock.advance(100ms); // both timers in one turn, that of the stop first
    join();
    BOOST_TEST(!outcomes[0].code);
    BOOST_TEST(filter.counters().waited == 1u);
    BOOST_TEST(filter.counters().cancelled == 0u);
    BOOST_TEST(filter.counters().waiting == 0u);
    const auto end = [](scope& s) -> task<void> { co_await s.join(); };
    run(end(other));
}

BOOST_FIXTURE_TEST_CASE(whoever_waits_is_not_forgotten, fixture)
{
    limit_options options = of_client(1);
    options.clients = 2;
    limit_filter& filter = limit(options);
    for (const char* name : {"a", "b"}) {
        must(getattr(asked_by(name)));
        begin(getattr(asked_by(name)));
    }
    const auto newcomer = begin(getattr(asked_by("c")));
    pass(1ms);
    BOOST_TEST((outcomes[newcomer].code == storage::errc::delayed));
    BOOST_TEST(filter.counters().refused_newcomers == 1u);
    BOOST_TEST(filter.counters().forgotten == 0u);
    join();
    must(getattr(asked_by("c")));
    BOOST_TEST(filter.counters().forgotten == 1u);
    BOOST_TEST(filter.counters().clients == 2u);
    // A stop makes it idle, too.
    begin(getattr(asked_by("c")));
    pass(1ms);
    stop_all();
    must(getattr(asked_by("d")));
    must(getattr(asked_by("e")));
    BOOST_TEST(filter.counters().refused_newcomers == 1u);
}

BOOST_FIXTURE_TEST_CASE(names_are_cut, fixture)
{
    limit_filter& filter = limit(of_client(1));
    const std::string long_name(256, 'n');
    must(getattr(asked_by(long_name + "1")));
    BOOST_TEST((takes(getattr(asked_by(long_name + "2"))) == 1s));
    BOOST_TEST(filter.counters().clients == 1u);
    // What is given back is given to the same one.
    limit(of_client(0, 1'000'000));
    const auto file = make_file("f", 100);
    const std::string name = long_name + "1";
    for (int i = 0; i < 3; ++i)
        BOOST_TEST((takes(read(asked_by(name), file, 800'000)) == 0s));
}

BOOST_FIXTURE_TEST_CASE(no_limit_asks_nobody, fixture)
{
    limit_filter& filter = limit({});
    const auto file = make_file("f", 10);
    must(read(me, file, 10));
    must(getattr(me));
    BOOST_TEST(filter.counters().passed == 0u);
    BOOST_TEST(filter.counters().clients == 0u);
}

BOOST_FIXTURE_TEST_CASE(reads_from_files_pay_and_go_when_they_need_not_wait, fixture)
{
    auto lowest = std::make_unique<fake_backend>();
    lowest->add(fake_backend::root_id, "f", storage::file_type::regular);
    (*lowest)[2].data.resize(600'000);
    lowest->in_file = 7;
    const storage::handle file = lowest->handle_of(2);
    limit_filter& filter = use(open_limit(std::move(lowest), of_client(0, 1'000'000)));
    // Only what is there is paid for.
    const auto first = must(fs->locate(me, file, 0, 900'000, storage::locatable::memory_or_file));
    BOOST_TEST(first.here);
    BOOST_TEST(first.read.count == 600'000u);
    BOOST_TEST(filter.counters().passed == 1u);
    BOOST_TEST(!must(fs->locate(me, file, 0, 500'000, storage::locatable::memory_or_file)).here);
    BOOST_TEST(must(fs->locate(me, file, 0, 400'000, storage::locatable::memory_or_file)).here);
    BOOST_TEST(!must(fs->locate(me, file, 0, 1, storage::locatable::memory_or_file)).here);
    BOOST_TEST((takes(read(me, file, 500'000)) == 500ms));
    // Names are cut here, too.
    const std::string long_name(256, 'n');
    BOOST_TEST(
        must(fs->locate(asked_by(long_name + "1"), file, 0, 600'000, storage::locatable::memory_or_file))
            .here);
    BOOST_TEST(
        !must(fs->locate(asked_by(long_name + "2"), file, 0, 500'000, storage::locatable::memory_or_file))
             .here);
}

// Any window of time: no more than the rate and a burst.
BOOST_FIXTURE_TEST_CASE(no_window_holds_more_than_rate_and_burst, fixture)
{
    std::mt19937_64 luck(3);
    const auto below = [&](std::uint64_t n) { return luck() % n; };
    limit_options options = of_client(50);
    options.total_operations = 120;
    options.burst = 200ms;
    options.client_queue = options.total_queue = 10'000;
    limit(options);
    const std::string clients[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 400; ++i) {
        const std::string& who = clients[below(4)];
        for (std::uint64_t n = below(below(10) == 0 ? 40 : 3); n > 0; --n)
            begin(mkdir(asked_by(who), "d" + std::to_string(outcomes.size())));
        pass(duration(below(20'000'000)));
    }
    join();
    BOOST_TEST(noted->notes.size() == outcomes.size());
    const auto check = [&](const std::vector<time_point>& times, double rate) {
        for (std::size_t i = 0; i < times.size(); ++i) {
            for (std::size_t j = i; j < times.size(); ++j) {
                const double seconds = std::chrono::duration<double>(times[j] - times[i]).count();
                if (double(j - i + 1) > rate * (seconds + 0.2) + 1e-6)
                    BOOST_FAIL(j - i + 1 << " operations in " << seconds << " s");
            }
        }
    };
    std::vector<time_point> all;
    for (const auto& n : noted->notes)
        all.push_back(n.when);
    check(all, 120);
    for (const std::string& who : clients) {
        std::vector<time_point> own;
        int last = -1;
        for (const auto& n : noted->notes) {
            if (n.client != who)
                continue;
            own.push_back(n.when);
            BOOST_TEST(std::stoi(n.what.substr(1)) > last);
            last = std::stoi(n.what.substr(1));
        }
        BOOST_TEST(own.size() > 100u);
        check(own, 50);
    }
}

// Two shards in one thread, on one clock that this test moves.
BOOST_FIXTURE_TEST_CASE(order_and_turns_hold_over_shards, fixture)
{
    reactor_options second;
    second.clock = &clock;
    second.index = 1;
    auto made = reactor::create(second);
    BOOST_REQUIRE(made);
    reactor& other = **made;
    const auto settle = [&] {
        for (bool busy = true; busy;) {
            busy = shard->turn();
            busy = other.turn() || busy;
        }
    };
    limit_filter& filter = limit(of_export(10));
    spend("a", 10);
    scope there(other);
    const auto make = [](fixture& f, std::string_view client, std::string name) -> task<void> {
        auto operation = f.mkdir(asked_by(client), std::move(name));
        const auto done = co_await operation;
        BOOST_TEST((done || done.error() == stopped));
        const task_context& context = co_await current_context();
        BOOST_TEST((reactor::current() == context.shard));
    };
    tasks->spawn([&] { return make(*this, "a", "a0"); });
    there.spawn([&] { return make(*this, "b", "b0"); });
    there.spawn([&] { return make(*this, "a", "a1"); });
    tasks->spawn([&] { return make(*this, "b", "b1"); });
    there.spawn([&] { return make(*this, "b", "b2"); });
    tasks->spawn([&] { return make(*this, "a", "a2"); });
    settle();
    BOOST_TEST(noted->notes.empty());
    for (int i = 1; i <= 4; ++i) {
        clock.advance(100ms);
        settle();
        BOOST_TEST(noted->notes.size() == std::size_t(i));
    }
    BOOST_TEST(noted->order() == "a:a0 b:b0 a:a1 b:b1");
    // One shard's wait ends by a stop; the other's goes on.
    there.request_stop();
    settle();
    BOOST_TEST(there.live() == 0u);
    BOOST_TEST(filter.counters().cancelled == 1u);
    clock.advance(100ms);
    settle();
    BOOST_TEST(noted->order() == "a:a0 b:b0 a:a1 b:b1 a:a2");
    BOOST_TEST(tasks->live() == 0u);
}

BOOST_AUTO_TEST_CASE(shards_with_threads_of_their_own_share_the_limit)
{
    runtime_options options;
    options.shards = 3;
    auto started = runtime::start(options);
    BOOST_REQUIRE(started);
    runtime& shards = **started;
    blocking_pool pool{1};
    auto lowest = memfs::open_memfs({}, pool);
    BOOST_REQUIRE(lowest);
    limit_options limits = of_export(10'000);
    limits.client_operations = 8'000;
    limits.burst = 1ms;
    limits.client_queue = limits.total_queue = 100'000;
    auto made = open_limit(std::move(*lowest), limits);
    BOOST_REQUIRE(made);
    limit_filter& filter = **made;
    constexpr int each = 300;
    std::atomic<int> passed{0};
    const auto ask = [](limit_filter& fs, std::string_view client, std::atomic<int>& count) -> task<void> {
        const storage::request r = asked_by(client);
        const storage::handle root = fs.root();
        auto operation = fs.getattr(r, root);
        const auto got = co_await operation;
        count += got ? 1 : 0;
    };
    const auto many = [&](shard& s) -> task<bool> {
        scope tasks(s.reactor());
        for (int i = 0; i < each; ++i)
            tasks.spawn([&] { return ask(filter, i % 2 == 0 ? "a" : "b", passed); });
        co_await tasks.join();
        co_return true;
    };
    std::vector<std::thread> callers;
    for (std::size_t i = 0; i < shards.size(); ++i)
        callers.emplace_back([&, i] { shards.run(i, many); });
    for (std::thread& t : callers)
        t.join();
    const limit_counters now = filter.counters();
    BOOST_TEST(passed == int(shards.size()) * each);
    BOOST_TEST(now.passed + now.waited == shards.size() * each);
    BOOST_TEST(now.waited > 0u);
    BOOST_TEST(now.waiting == 0u);
    shards.stop();
}

BOOST_FIXTURE_TEST_CASE(options_are_checked, fixture)
{
    const auto refused = [&](const limit_options& options) {
        const auto made = open_limit(beneath(), options);
        BOOST_REQUIRE(!made);
        BOOST_TEST((made.error() == std::errc::invalid_argument));
        return made.error().message();
    };
    limit_options options;
    options.client_operations = most_limited_operations + 1;
    BOOST_TEST(refused(options).starts_with("limit, client_operations: over 1000000000 a second"));
    options = {};
    options.total_operations = most_limited_operations + 1;
    BOOST_TEST(refused(options).starts_with("limit, total_operations: "));
    for (const std::uint64_t bytes : {std::uint64_t(1), least_limited_bytes - 1, most_limited_bytes + 1}) {
        options = {};
        options.client_bytes = bytes;
        BOOST_TEST(
            refused(options).starts_with("limit, client_bytes: not within 1024 to 1000000000000 a second"));
        options = {};
        options.total_bytes = bytes;
        BOOST_TEST(refused(options).starts_with("limit, total_bytes: "));
    }
    for (const auto burst : {-1ms, 0ms, longest_burst + 1ms}) {
        options = {};
        options.burst = burst;
        BOOST_TEST(refused(options).starts_with("limit, burst: not within 1 to 60000 ms"));
    }
    options = {};
    options.client_queue = most_limited_waiting + 1;
    BOOST_TEST(refused(options).starts_with("limit, client_queue: "));
    options = {};
    options.total_queue = most_limited_waiting + 1;
    BOOST_TEST(refused(options).starts_with("limit, total_queue: "));
    for (const std::size_t clients : {std::size_t(0), most_limited_clients + 1}) {
        options = {};
        options.clients = clients;
        BOOST_TEST(refused(options).starts_with("limit, clients: not within 1 to 1048576"));
    }
}

BOOST_AUTO_TEST_SUITE_END()
