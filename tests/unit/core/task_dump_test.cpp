// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include "../../../core/module/symbols.hpp"

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/task/channel.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/gate.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/semaphore.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/task/task_dump.hpp>

#include <cctype>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(task_dump_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

// Lines as they stand, with addresses and this file's namespaces taken out.
std::string plain(std::string text)
{
    for (const std::string what : {"task_dump_test::(anonymous namespace)::", "verbena::"}) {
        for (std::size_t at; (at = text.find(what)) != std::string::npos;)
            text.erase(at, what.size());
    }
    // Lambdas, which each compiler names in its own way.
    for (std::size_t at = 0; (at = text.find("::operator()", at)) != std::string::npos;) {
        const std::size_t from = text.rfind("  ", at) + 2;
        text.replace(from, at + 2 - from, "");
        at = from + 1;
    }
    // Template arguments, which GCC leaves out of the name of a coroutine's further part.
    for (std::size_t at; (at = text.find('<')) != std::string::npos;) {
        std::size_t end = at;
        for (int depth = 0; end < text.size(); ++end) {
            depth += (text[end] == '<') - (text[end] == '>');
            if (depth == 0)
                break;
        }
        text.erase(at, end + 1 - at);
    }
    for (std::size_t at; (at = text.find(" 0x")) != std::string::npos;) {
        std::size_t end = at + 3;
        while (end < text.size() && std::isxdigit(static_cast<unsigned char>(text[end])) != 0)
            ++end;
        text.erase(at, end - at);
    }
    return text;
}

// A reactor on a virtual clock, and a scope whose children are looked at.
class bench {
public:
    bench()
    {
        reactor_options o;
        o.clock = &clock;
        auto made = reactor::create(o);
        BOOST_REQUIRE(made);
        r = std::move(*made);
        s = std::make_unique<scope>(*r, nullptr, nullptr, "test");
    }
    ~bench()
    {
        s->request_stop();
        end();
    }
    // Until all that can happen has, without moving the clock.
    void settle()
    {
        while (r->turn()) {
        }
    }
    void end()
    {
        auto join = [](scope& all) -> task<void> { co_await all.join(); };
        run_until_complete(*r, join(*s));
    }
    std::string dump(std::size_t lines = task_dump::usual_lines)
    {
        settle();
        return plain(task_dump::take(*r, lines).text());
    }

    virtual_clock clock;
    std::unique_ptr<reactor> r;
    std::unique_ptr<scope> s;
};

task<void> wait_for_event(event& e) { (void)co_await e.wait(); }
task<void> wait_shielded(event& e) { co_await e.wait_shielded(); }
task<bool> wait_for_permit(semaphore& m) { co_return co_await m.acquire(); }
task<int> middle(semaphore& m)
{
    const bool got = co_await wait_for_permit(m);
    co_return got ? 1 : 0;
}
task<void> wait_for_permit_and_leave(semaphore& m) { (void)co_await wait_for_permit(m); }
task<void> outer(semaphore& m) { (void)co_await middle(m); }
task<void> sleeper() { (void)co_await sleep_for(2500ms); }
task<result<void>> slow()
{
    (void)co_await sleep_for(10s);
    co_return result<void>();
}

// Leaves no note of itself.
class unmarked {
public:
    explicit unmarked(std::coroutine_handle<>& who) : who_(who) {}
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> h) noexcept { who_ = h; }
    void await_resume() const noexcept {}

private:
    std::coroutine_handle<>& who_;
};

// A child that joins its own scope. Nothing could end a real one.
struct circle_state {
    reactor& r;
    detail::task_group* group = nullptr;
    std::coroutine_handle<> handle;

    void end()
    {
        group->joiner_goes_on();
        r.post(handle);
    }
};
class joins_its_own {
public:
    explicit joins_its_own(circle_state& state) : state_(state) {}
    bool await_ready() const noexcept { return false; }
    template<class Promise>
    void await_suspend(std::coroutine_handle<Promise> h)
    {
        state_.handle = h;
        state_.group = state_.r.task_groups().front();
        state_.group->joined_by(detail::record_of(h));
    }
    void await_resume() const noexcept {}

private:
    circle_state& state_;
};

} // namespace

BOOST_AUTO_TEST_CASE(nothing_is_there)
{
    bench b;
    BOOST_TEST(b.dump() == "shard 0: 0 tasks\n");
}

BOOST_AUTO_TEST_CASE(a_chain_down_to_what_it_waits_for)
{
    bench b;
    semaphore m(0);
    b.s->spawn(outer, std::ref(m));
    BOOST_TEST(b.dump() == "shard 0: 3 tasks\n"
                           "  scope \"test\": 1 child\n"
                           "    outer\n"
                           "      middle\n"
                           "        wait_for_permit waits for semaphore\n");
    // It goes on, and is in the run queue: it waits for nothing.
    m.release();
    BOOST_TEST(plain(task_dump::take(*b.r).text()) == "shard 0: 3 tasks\n"
                                                      "  scope \"test\": 1 child\n"
                                                      "    outer\n"
                                                      "      middle\n"
                                                      "        wait_for_permit\n");
    BOOST_TEST(b.dump() == "shard 0: 0 tasks\n");
}

BOOST_AUTO_TEST_CASE(each_kind_of_wait)
{
    bench b;
    event e;
    channel<int> c(1);
    gate g;
    gate::pass inside = g.enter();
    const auto receive = [](channel<int>& from) -> task<void> { (void)co_await from.receive(); };
    const auto close = [](gate& of) -> task<void> { co_await of.close(); };
    b.s->spawn(wait_for_event, std::ref(e));
    b.s->spawn(wait_shielded, std::ref(e));
    b.s->spawn(sleeper);
    b.s->spawn(receive, std::ref(c));
    b.s->spawn(close, std::ref(g));
    const std::string text = b.dump();
    BOOST_TEST_MESSAGE(text);
    BOOST_TEST(text.find("    wait_for_event waits for event\n") != std::string::npos);
    BOOST_TEST(text.find("    wait_shielded waits for event\n") != std::string::npos);
    BOOST_TEST(text.find("    sleeper waits for a sleep, 2.500 s left\n") != std::string::npos);
    BOOST_TEST(text.find("      channel::receive waits for semaphore\n") != std::string::npos);
    BOOST_TEST(text.find("operator() waits for event\n") != std::string::npos);
    e.set();
    b.clock.advance(1s);
    const std::string later = b.dump();
    BOOST_TEST_MESSAGE(later);
    BOOST_TEST(later.find("wait_for_event") == std::string::npos);
    BOOST_TEST(later.find("wait_shielded") == std::string::npos);
    BOOST_TEST(later.find("sleep, 1.500 s left") != std::string::npos);
    inside.leave();
}

BOOST_AUTO_TEST_CASE(a_wait_that_a_stop_ended)
{
    bench b;
    semaphore m(0);
    b.s->spawn(outer, std::ref(m));
    b.settle();
    b.s->request_stop();
    const std::string text = plain(task_dump::take(*b.r).text());
    BOOST_TEST_MESSAGE(text);
    BOOST_TEST(text.find("    outer, asked to stop\n") != std::string::npos);
    BOOST_TEST(text.find("        wait_for_permit\n") != std::string::npos);
    BOOST_TEST(b.dump() == "shard 0: 0 tasks\n");
}

BOOST_AUTO_TEST_CASE(the_next_wait_of_a_coroutine_takes_the_place_of_the_last)
{
    bench b;
    event first;
    semaphore second(0);
    b.s->spawn([&]() -> task<void> {
        (void)co_await first.wait();
        (void)co_await middle(second);
        (void)co_await first.wait();
    });
    BOOST_TEST(b.dump().find("operator() waits for event\n") != std::string::npos);
    first.set();
    const std::string text = b.dump();
    BOOST_TEST(text.find("operator()\n      middle\n        wait_for_permit waits for semaphore\n") !=
               std::string::npos);
    first.reset();
    second.release();
    const std::string later = b.dump();
    BOOST_TEST_MESSAGE(later);
    BOOST_TEST(later.find("middle") == std::string::npos);
    BOOST_TEST(later.find("operator() waits for event\n") != std::string::npos);
}

// Also where a task that ended without a wait comes between.
BOOST_AUTO_TEST_CASE(a_task_that_did_not_wait_leaves_nothing)
{
    bench b;
    std::coroutine_handle<> goes_on;
    b.s->spawn([&]() -> task<void> {
        semaphore free(1);
        task<int> kept = middle(free);
        (void)co_await kept;
        unmarked wait(goes_on);
        co_await wait;
    });
    BOOST_TEST(b.dump() == "shard 0: 1 task\n"
                           "  scope \"test\": 1 child\n"
                           "    operator()\n");
    b.r->post(goes_on);
}

// What it awaits next may say nothing, and the task may be gone by then.
BOOST_AUTO_TEST_CASE(a_task_that_ended_is_gone)
{
    bench b;
    semaphore m(0);
    std::coroutine_handle<> goes_on;
    b.s->spawn([&]() -> task<void> {
        task<int> kept = middle(m);
        (void)co_await kept;
        unmarked wait(goes_on);
        co_await wait;
    });
    BOOST_TEST(b.dump().find("      middle\n") != std::string::npos);
    m.release();
    BOOST_TEST(b.dump() == "shard 0: 1 task\n"
                           "  scope \"test\": 1 child\n"
                           "    operator()\n");
    b.r->post(goes_on);
}

BOOST_AUTO_TEST_CASE(a_joined_scope_is_gone)
{
    bench b;
    event e;
    std::coroutine_handle<> goes_on;
    b.s->spawn([&]() -> task<void> {
        scope inner(*b.r, nullptr, nullptr, "inner");
        inner.spawn(wait_for_event, std::ref(e));
        co_await inner.join();
        unmarked wait(goes_on);
        co_await wait;
    });
    BOOST_TEST(b.dump() == "shard 0: 2 tasks\n"
                           "  scope \"test\": 1 child\n"
                           "    operator() waits for scope \"inner\"\n"
                           "      wait_for_event waits for event\n");
    e.set();
    BOOST_TEST(b.dump() == "shard 0: 1 task\n"
                           "  scope \"test\": 1 child\n"
                           "    operator()\n");
    b.r->post(goes_on);
}

BOOST_AUTO_TEST_CASE(scopes_and_children_that_end_are_gone)
{
    bench b;
    event e;
    auto other = std::make_unique<scope>(*b.r, nullptr, nullptr, "other");
    other->spawn(wait_for_event, std::ref(e));
    b.s->spawn(sleeper);
    std::string text = b.dump();
    BOOST_TEST(text.find("scope \"other\": 1 child\n") != std::string::npos);
    BOOST_TEST(text.find("scope \"test\": 1 child\n") != std::string::npos);
    e.set();
    text = b.dump();
    BOOST_TEST(text.find("other") == std::string::npos);
    BOOST_TEST(text.find("scope \"test\": 1 child\n") != std::string::npos);
    other->spawn(sleeper);
    BOOST_TEST(b.dump().find("scope \"other\": 1 child\n") != std::string::npos);
    other->request_stop();
    b.settle();
    other.reset();
    BOOST_TEST(b.dump().find("other") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(what_combinators_run_stands_below_them)
{
    bench b;
    event e;
    semaphore m(0);
    b.s->spawn([&]() -> task<void> { co_await when_all(wait_for_event(e), middle(m)); });
    b.s->spawn([&]() -> task<void> {
        std::vector<task<bool>> racers;
        racers.push_back(wait_for_permit(m));
        racers.push_back(wait_for_permit(m));
        (void)co_await when_any(std::move(racers));
    });
    b.s->spawn([&]() -> task<void> { (void)co_await with_timeout(3s, slow()); });
    std::string text = b.dump();
    BOOST_TEST_MESSAGE(text);
    // Each once, and none by itself.
    BOOST_TEST(text.find("\n  scope:") == std::string::npos);
    BOOST_TEST(text.find("      when_all waits for scope\n"
                         "        detail::keep\n"
                         "          wait_for_event waits for event\n"
                         "        detail::keep\n"
                         "          middle\n"
                         "            wait_for_permit waits for semaphore\n") != std::string::npos);
    BOOST_TEST(text.find("      when_any waits for scope\n"
                         "        detail::race\n"
                         "          detail::keep\n"
                         "            wait_for_permit waits for semaphore\n"
                         "        detail::race\n"
                         "          detail::keep\n"
                         "            wait_for_permit waits for semaphore\n") != std::string::npos);
    BOOST_TEST(text.find("      with_timeout waits for scope\n"
                         "        detail::keep, deadline in 3.000 s\n"
                         "          slow waits for a sleep, 10.000 s left\n") != std::string::npos);
    // One branch has ended, the other one has not.
    e.set();
    text = b.dump();
    BOOST_TEST_MESSAGE(text);
    BOOST_TEST(text.find("wait_for_event") == std::string::npos);
    BOOST_TEST(text.find("when_all waits for scope\n        detail::keep\n") != std::string::npos);
    m.release();
    m.release();
    text = b.dump();
    BOOST_TEST_MESSAGE(text);
    BOOST_TEST(text.find("when_all") == std::string::npos);
    BOOST_TEST(text.find("when_any") == std::string::npos);
    BOOST_TEST(text.find("with_timeout") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_child_that_joins_its_own_scope)
{
    bench b;
    event e;
    scope circle(*b.r, nullptr, nullptr, "circle");
    circle_state state{*b.r, nullptr, {}};
    circle.spawn(wait_for_event, std::ref(e));
    circle.spawn([&]() -> task<void> {
        joins_its_own wait(state);
        co_await wait;
    });
    const std::string text = b.dump();
    BOOST_TEST_MESSAGE(text);
    BOOST_TEST(text.find("  scope \"circle\": 2 children\n"
                         "    wait_for_event waits for event\n"
                         "    operator() waits for scope \"circle\", see above\n") != std::string::npos);
    state.end();
    e.set();
    b.settle();
    BOOST_TEST(b.dump() == "shard 0: 0 tasks\n");
}

BOOST_AUTO_TEST_CASE(trace_and_deadline_of_a_context)
{
    bench b;
    task_context context;
    context.trace_id = 17;
    context.deadline = b.clock.now() + 4s;
    scope traced(*b.r, &context);
    event e;
    traced.spawn(wait_for_event, std::ref(e));
    BOOST_TEST(b.dump().find("wait_for_event, trace 17, deadline in 4.000 s waits for event\n") !=
               std::string::npos);
    b.clock.advance(6s);
    BOOST_TEST(b.dump().find("trace 17, deadline passed 2.000 s ago") != std::string::npos);
    e.set();
    b.settle();
}

BOOST_AUTO_TEST_CASE(many_lines_are_counted)
{
    bench b;
    semaphore m(0);
    for (int i = 0; i < 10; ++i)
        b.s->spawn(wait_for_permit_and_leave, std::ref(m));
    BOOST_TEST(b.dump(4) == "shard 0: 20 tasks\n"
                            "  scope \"test\": 10 children\n"
                            "    wait_for_permit_and_leave\n"
                            "      wait_for_permit waits for semaphore\n"
                            "    wait_for_permit_and_leave\n"
                            "  ... 17 more\n");
}

BOOST_AUTO_TEST_CASE(calls_of_threads_and_of_other_shards)
{
    runtime_options o;
    o.shards = 2;
    auto made = runtime::start(o);
    BOOST_REQUIRE(made);
    runtime& rt = **made;
    blocking_pool* lane = *rt.add_lane("disk", 1);
    std::latch waiting(1);
    std::latch go(1);
    event never;
    rt.call(0, [&](shard& s) {
        s.tasks().spawn([&, lane]() -> task<void> {
            auto block = [&] {
                waiting.count_down();
                go.wait();
            };
            co_await lane->run(std::move(block));
        });
        s.tasks().spawn([&]() -> task<void> {
            auto there = [](event& e) -> task<void> { (void)co_await e.wait(); };
            co_await rt.at(1).run(there, std::ref(never));
        });
    });
    waiting.wait();
    rt.call(1, [](shard&) {}); // the call has come there
    std::string text = plain(rt.describe_tasks());
    for (int i = 0; i < 1000 && text.find("waits for event") == std::string::npos; ++i)
        text = plain(rt.describe_tasks());
    BOOST_TEST_MESSAGE(text);
    BOOST_TEST(text.starts_with("shard 0: "));
    BOOST_TEST(text.find("\nshard 1: ") != std::string::npos);
    BOOST_TEST(text.find("waits for a blocking call in lane disk\n") != std::string::npos);
    BOOST_TEST(text.find("waits for a call on shard 1\n") != std::string::npos);
    BOOST_TEST(text.find("operator() waits for event\n") != std::string::npos);
    go.count_down();
    rt.stop();
}

BOOST_AUTO_TEST_CASE(a_shard_that_is_held)
{
    runtime_options o;
    o.shards = 2;
    auto made = runtime::start(o);
    BOOST_REQUIRE(made);
    runtime& rt = **made;
    std::latch held(1);
    std::latch go(1);
    rt.call(1, [&](shard& s) {
        s.tasks().spawn([&]() -> task<void> {
            (void)co_await sleep_for(0ms);
            held.count_down();
            go.wait();
        });
    });
    held.wait();
    const std::string text = rt.describe_tasks(1ms);
    BOOST_TEST_MESSAGE(text);
    BOOST_TEST(text.find("shard 1: held for 1 ms or longer by something that does not return") !=
               std::string::npos);
    go.count_down();
    BOOST_TEST(rt.describe_tasks(60s).find("shard 1: 0 tasks") != std::string::npos);
}

// What the compilers call the part of a coroutine that is resumed.
BOOST_AUTO_TEST_CASE(names_of_functions)
{
    using detail::coroutine_name;
    BOOST_TEST(coroutine_name("_ZN1a3fooEi.resume") == "a::foo");
    BOOST_TEST(coroutine_name("_ZN1a3fooEPZNS_3fooEiE16_ZN1a3fooEi.Frame.actor") == "a::foo");
    BOOST_TEST(coroutine_name("_ZN1a3fooIiEENS_4taskIT_EES2_.resume") == "a::foo<int>");
    BOOST_TEST(coroutine_name("_ZZN1a3fooEvENKUlvE_clEv.resume") == "a::foo()::{lambda()#1}::operator()");
    BOOST_TEST(coroutine_name("_ZNK1a1b3barEv.resume") == "a::b::bar");
    BOOST_TEST(coroutine_name("_ZZZN1a3fooEvENKUlvE_clEvENKUliE_clEi.resume") ==
               "a::foo()::{lambda()#1}::operator()()::{lambda(int)#1}::operator()");
    BOOST_TEST(coroutine_name("main") == "main");
    BOOST_TEST(coroutine_name("plain.resume") == "plain.resume");
}

// In no table: such as addr2line takes it.
BOOST_AUTO_TEST_CASE(code_without_a_name)
{
    static const int no_function = 0;
    const auto data = reinterpret_cast<std::uintptr_t>(&no_function);
    const detail::symbols names({data, 16});
    const std::string name = names.name(data);
    BOOST_TEST(name.starts_with("/"));
    BOOST_TEST(name.find("+0x") != std::string::npos);
    BOOST_TEST(names.name(16) == "0x10");
    const auto here = reinterpret_cast<std::uintptr_t>(&reactor::current);
    BOOST_TEST(detail::symbols({here}).name(here) == "verbena::reactor::current");
}

BOOST_AUTO_TEST_SUITE_END()
