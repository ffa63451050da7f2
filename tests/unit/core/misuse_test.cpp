// SPDX-License-Identifier: Apache-2.0
// What a program must not do ends it with a message, where assertions are compiled in, in place of a hang or a wrong answer. Each
// misuse happens in a child.
#include <boost/test/unit_test.hpp>

#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/reactor/simulated_shards.hpp>
#include <verbena/core/task/channel.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/gate.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/semaphore.hpp>
#include <verbena/core/task/sleep.hpp>

#include <array>
#include <csignal>
#include <functional>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

BOOST_AUTO_TEST_SUITE(misuse_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

/// What a child that aborts says on standard error; "lives" if `f` returns, "ends by" another signal.
std::string last_words(const std::function<void()>& f)
{
    std::array<int, 2> ends{};
    BOOST_REQUIRE(::pipe(ends.data()) == 0);
    const pid_t child = ::fork();
    BOOST_REQUIRE(child >= 0);
    if (child == 0) {
        const rlimit none{0, 0};
        ::setrlimit(RLIMIT_CORE, &none);
        std::signal(SIGABRT, SIG_DFL); // Boost.Test has a handler
        std::signal(SIGALRM, SIG_DFL);
        ::alarm(20); // what hangs is a failure
        ::dup2(ends[1], STDERR_FILENO);
        f();
        ::_exit(0);
    }
    ::close(ends[1]);
    std::string said;
    std::array<char, 512> part;
    for (ssize_t n = 0; (n = ::read(ends[0], part.data(), part.size())) > 0;)
        said.append(part.data(), static_cast<std::size_t>(n));
    ::close(ends[0]);
    int status = 0;
    BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
    if (WIFEXITED(status))
        return "lives";
    if (WTERMSIG(status) != SIGABRT)
        return "ends by signal " + std::to_string(WTERMSIG(status)) + ": " + said;
    return said;
}

bool says(const std::string& words, std::string_view text)
{
    BOOST_TEST_MESSAGE(words);
    return words.find(text) != std::string::npos;
}

std::unique_ptr<reactor> make(clock_source* clock = nullptr)
{
    reactor_options o;
    o.clock = clock;
    o.policy = wait_policy::event;
    auto r = reactor::create(o);
    return r ? std::move(*r) : nullptr;
}

std::unique_ptr<runtime> start(unsigned shards)
{
    runtime_options options;
    options.shards = shards;
    options.blocking_threads = 1;
    options.reactor.policy = wait_policy::event;
    auto made = runtime::start(options);
    return made ? std::move(*made) : nullptr;
}

/// What a child says in which another thread does `f` while a task awaits `what`.
template<class What, class F>
std::string touched_from_outside(What what, F f)
{
    return last_words([&] {
        auto r = make();
        scope s(*r);
        s.spawn([&]() -> task<void> { (void)co_await what(); });
        std::thread(f).join();
    });
}

} // namespace

BOOST_AUTO_TEST_CASE(a_shard_does_not_wait_for_its_own_runtime)
{
    for (const std::size_t other : {0U, 1U}) {
        BOOST_TEST(says(last_words([&] {
                            auto rt = start(2);
                            rt->call(0, [&](shard&) { rt->call(other, [](shard&) {}); });
                        }),
                        "on a shard of its own, which waits for itself"));
        BOOST_TEST(says(last_words([&] {
                            auto rt = start(2);
                            auto inner = [](shard&) -> task<void> { co_return; };
                            auto outer = [&](shard&) -> task<void> {
                                (void)co_await sleep_for(1ms);
                                rt->run(other, inner);
                            };
                            rt->run(0, outer);
                        }),
                        "runtime::call() or run() on a shard of its own"));
    }
    BOOST_TEST(says(last_words([] {
                        auto rt = start(1);
                        rt->call(0, [&](shard&) { rt->stop(); });
                    }),
                    "runtime::stop() on a shard of its own"));
    BOOST_TEST(says(last_words([] {
                        auto rt = start(1);
                        rt->call(0, [&](shard&) { (void)rt->add_lane("of a shard"); });
                    }),
                    "runtime::add_lane() on a shard"));
}

// A runtime is no shard of another one.
BOOST_AUTO_TEST_CASE(a_shard_may_wait_for_another_runtime)
{
    BOOST_TEST(last_words([] {
                   auto one = start(1);
                   auto other = start(1);
                   const int n =
                       one->call(0, [&](shard&) { return other->call(0, [](shard&) { return 7; }); });
                   ::_exit(n == 7 ? 0 : 1);
               }) == "lives");
}

BOOST_AUTO_TEST_CASE(what_is_a_shards_is_not_touched_from_another_thread)
{
    constexpr std::string_view why = "used on another thread than its shard's";
    event e;
    BOOST_TEST(says(touched_from_outside([&] { return e.wait(); }, [&] { e.set(); }), why));
    BOOST_TEST(says(touched_from_outside([&] { return e.wait_shielded(); }, [&] { e.set(); }), why));
    semaphore s(0);
    BOOST_TEST(says(touched_from_outside([&] { return s.acquire(); }, [&] { s.release(); }), why));
    channel<int> c(1);
    int n = 1;
    BOOST_TEST(says(touched_from_outside([&] { return c.receive(); }, [&] { (void)c.try_send(n); }), why));
    BOOST_TEST(says(touched_from_outside([&] { return c.receive(); }, [&] { c.close(); }), why));
    gate g;
    gate::pass in = g.enter();
    BOOST_TEST(says(touched_from_outside([&] { return g.close(); }, [&] { in.leave(); }), why));
}

BOOST_AUTO_TEST_CASE(a_scope_is_not_touched_from_another_thread)
{
    BOOST_TEST(says(last_words([] {
                        auto rt = start(1);
                        scope* tasks = rt->call(0, [](shard& s) { return &s.tasks(); });
                        tasks->spawn([]() -> task<void> { co_return; });
                    }),
                    "scope::spawn() on another thread"));
    BOOST_TEST(says(last_words([] {
                        auto rt = start(1);
                        rt->call(0, [](shard& s) { return &s.tasks(); })->request_stop();
                    }),
                    "scope::request_stop() on another thread"));
}

BOOST_AUTO_TEST_CASE(tasks_of_two_shards_do_not_wait_for_one_event)
{
    BOOST_TEST(says(last_words([] {
                        auto rt = start(2);
                        event e;
                        auto wait = [&](shard&) -> task<void> { (void)co_await e.wait(); };
                        rt->call(0, [&](shard& s) { s.tasks().spawn(wait, std::ref(s)); });
                        rt->run(1, wait);
                    }),
                    "tasks of two shards wait for one event"));
}

// Where one thread drives several, too.
BOOST_AUTO_TEST_CASE(what_is_a_shards_is_not_touched_in_the_turn_of_another)
{
    const auto touched = [](const std::function<void(shard & other, event & of_other)>& touch) {
        return last_words([&] {
            virtual_clock clock;
            memory_budget budget(std::size_t(1) << 20, 2);
            simulated_shards all(clock, 1);
            shard& one = all.add(budget);
            shard& other = all.add(budget);
            event e;
            other.tasks().spawn([&]() -> task<void> { (void)co_await e.wait(); });
            const auto touches = [&]() -> task<void> {
                touch(other, e);
                co_return;
            };
            all.run(one, touches());
        });
    };
    constexpr std::string_view why = "in another shard's turn";
    BOOST_TEST(says(touched([](shard&, event& e) { e.set(); }), why));
    BOOST_TEST(says(touched([](shard& other, event&) { other.tasks().request_stop(); }), why));
    BOOST_TEST(says(
        touched([](shard& other, event&) { other.tasks().spawn([]() -> task<void> { co_return; }); }), why));
    BOOST_TEST(says(touched([](shard& other, event&) { (void)other.reactor().timers(); }), why));
}

BOOST_AUTO_TEST_CASE(a_value_that_is_not_there_names_the_error)
{
    constexpr std::string_view text = "It is an error: listen, port: Address already in use (2049)";
    const auto refused = [] {
        return result<std::string>(error(std::errc::address_in_use, "listen, port", 2049));
    };
    BOOST_TEST(says(last_words([&] { (void)*refused(); }), text));
    BOOST_TEST(says(last_words([&] {
                        const auto r = refused();
                        (void)r->size();
                    }),
                    text));
    BOOST_TEST(says(last_words([&] { (void)refused().value(); }), text));
}

BOOST_AUTO_TEST_CASE(a_task_that_can_neither_end_nor_be_stopped_ends_the_process)
{
    BOOST_TEST(
        says(last_words([] {
                 virtual_clock clock;
                 auto r = make(&clock);
                 event never;
                 auto deaf = [&]() -> task<void> { co_await never.wait_shielded(); };
                 run_until_complete(*r, deaf());
             }),
             "run_until_complete: the task waits for something that can't happen, and is deaf to a stop"));
}

namespace {

task<int> seven() { co_return 7; }
task<int> seven_later()
{
    (void)co_await sleep_for(1ms);
    co_return 7;
}
task<void> await_twice(task<int> t)
{
    (void)co_await t;
    (void)co_await t;
}
task<void> await_together(task<int>& t) { (void)co_await t; }
task<void> await_what_was_moved()
{
    task<int> t = seven();
    const task<int> other = std::move(t);
    (void)co_await t;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_task_that_is_awaited_twice_is_named)
{
    constexpr std::string_view rule = "a task is awaited a second time; a task is awaited once";
    for (task<int> (*make_task)() : {&seven, &seven_later}) {
        const std::string words = last_words([&] {
            auto r = make();
            run_until_complete(*r, await_twice(make_task()));
        });
        BOOST_TEST(says(words, rule));
        BOOST_TEST(says(words, make_task == &seven ? "seven\n" : "seven_later\n"));
        BOOST_TEST(says(words, "await_twice\n"));
    }
    // While the first still waits.
    const std::string words = last_words([] {
        auto r = make();
        task<int> t = seven_later();
        scope s(*r);
        s.spawn(await_together, std::ref(t));
        s.spawn(await_together, std::ref(t));
    });
    BOOST_TEST(says(words, rule));
    BOOST_TEST(says(words, "seven_later\n"));
    BOOST_TEST(says(words, "await_together\n"));
}

BOOST_AUTO_TEST_CASE(a_task_without_a_coroutine_is_not_awaited)
{
    const std::string words = last_words([] {
        auto r = make();
        run_until_complete(*r, await_what_was_moved());
    });
    BOOST_TEST(says(words, "a task without a coroutine is awaited"));
    BOOST_TEST(says(words, "await_what_was_moved\n"));
}

namespace {

task<void> throw_past_a_scope(reactor& r, event& never)
{
    scope s(r, nullptr, nullptr, "of the test");
    s.spawn([&]() -> task<void> { co_await never.wait_shielded(); });
    throw std::runtime_error("the cause of it all");
    co_return;
}
// The scope goes, and the exception with it.
task<void> catch_behind_a_scope(reactor& r, event& never)
{
    try {
        scope s(r, nullptr, nullptr, "of the test");
        s.spawn([&]() -> task<void> { co_await never.wait_shielded(); });
        throw std::runtime_error("caught");
    } catch (const std::runtime_error&) {
    }
    (void)co_await sleep_for(1ms); // the child could run meanwhile
}

} // namespace

BOOST_AUTO_TEST_CASE(a_scope_that_goes_with_children_is_named)
{
    const std::string words = last_words([] {
        auto r = make();
        event never;
        scope s(*r, nullptr, nullptr, "of the test");
        s.spawn([&]() -> task<void> { co_await never.wait_shielded(); });
        s.spawn([&]() -> task<void> { co_await never.wait_shielded(); });
    });
    BOOST_TEST(says(words, "scope \"of the test\" with 2 live children is destroyed; a scope must be joined "
                           "before it goes: request_stop(), then co_await join()"));
}

BOOST_AUTO_TEST_CASE(an_exception_that_leaves_a_scope_is_shown)
{
    const std::string words = last_words([] {
        auto r = make();
        event never;
        run_until_complete(*r, throw_past_a_scope(*r, never));
    });
    BOOST_TEST(
        says(words, "an exception leaves scope \"of the test\" with 1 live child; a scope must be joined"));
    BOOST_TEST(
        says(words, "the exception that left scope \"of the test\" with 1 live child: the cause of it all"));

    // Nobody may run what refers to the scope.
    BOOST_TEST(says(last_words([] {
                        auto r = make();
                        event never;
                        run_until_complete(*r, catch_behind_a_scope(*r, never));
                    }),
                    "the exception that left scope \"of the test\" with 1 live child was caught on its way"));

    // Outside of tasks whoever catches it shows it.
    BOOST_TEST(last_words([] {
                   event never;
                   try {
                       auto r = make();
                       scope s(*r);
                       s.spawn([&]() -> task<void> { co_await never.wait_shielded(); });
                       throw std::runtime_error("of a test's body");
                   } catch (const std::runtime_error&) {
                       ::_exit(0);
                   }
               }) == "lives");
}

BOOST_AUTO_TEST_SUITE_END()
