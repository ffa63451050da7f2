// SPDX-License-Identifier: Apache-2.0
// g++ 12 destroys some temporaries of a co_await expression twice (CONTRIBUTING.md, Rules for code). These
// are the forms that the project uses; each must destroy exactly what it made, in every compiler.
#include <boost/test/unit_test.hpp>

#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(coroutine_balance_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

/// Counts its living instances, and complains about one that is destroyed twice.
class tracked {
public:
    tracked() noexcept { ++live; }
    tracked(const tracked&) noexcept { ++live; }
    tracked(tracked&&) noexcept { ++live; }
    tracked& operator=(const tracked&) noexcept = default;
    tracked& operator=(tracked&&) noexcept = default;
    ~tracked()
    {
        --live;
        twice += alive_ ? 0 : 1;
        alive_ = false;
    }
    static inline int live = 0;
    static inline int twice = 0;

private:
    bool alive_ = true;
};

/// What options and leases look like: an owner with a constructor.
class owner {
public:
    explicit owner(int n) : number(n) {}
    tracked memory;
    int number;
};

class owning_awaiter {
public:
    explicit owning_awaiter(bool ready) : ready_(ready) {}
    bool await_ready() const noexcept { return ready_; }
    template<class Promise>
    bool await_suspend(std::coroutine_handle<Promise> h) noexcept
    {
        h.promise().context()->shard->post(h);
        return true;
    }
    tracked await_resume() const { return {}; }

private:
    tracked memory_;
    bool ready_;
};

task<int> by_value(owner o, bool wait)
{
    if (wait)
        (void)co_await sleep_for(1ns);
    co_return o.number;
}
task<owner> yields(bool wait)
{
    if (wait)
        (void)co_await sleep_for(1ns);
    co_return owner(5);
}
task<result<owner>> maybe(bool good)
{
    (void)co_await sleep_for(1ns);
    if (!good)
        co_return error(std::errc::io_error, "no");
    co_return owner(6);
}
template<class F>
task<void> run(F f)
{
    (void)co_await sleep_for(1ns);
    f();
}
task<bool> truth(owner o, bool value)
{
    (void)co_await sleep_for(1ns);
    co_return value&& o.number > 0;
}

task<void> constructed_argument(bool wait)
{
    const int n = co_await by_value(owner(1), wait);
    BOOST_TEST(n == 1);
}
task<void> moved_argument(bool wait)
{
    owner o(2);
    const int n = co_await by_value(std::move(o), wait);
    BOOST_TEST(n == 2);
}
task<void> awaiter_that_owns(bool wait)
{
    const tracked t = co_await owning_awaiter(!wait);
    (void)t;
}
task<void> value_that_owns(bool wait)
{
    const owner o = co_await yields(wait);
    BOOST_TEST(o.number == 5);
}
task<void> in_a_condition(bool wait)
{
    if ((co_await yields(wait)).number == 5) {
        const tracked t = co_await owning_awaiter(!wait);
        (void)t;
    }
}
task<void> short_circuit(bool wait)
{
    int n = 0;
    if (wait || !co_await truth(owner(1), true))
        ++n;
    if (wait && co_await truth(owner(1), true))
        ++n;
    BOOST_TEST(n == (wait ? 2 : 0));
}
task<void> results(bool wait)
{
    auto r = co_await maybe(wait);
    BOOST_TEST(bool(r) == wait);
    if (r) {
        const owner o = std::move(*r);
        BOOST_TEST(o.number == 6);
    }
}
task<void> named_lambda(bool)
{
    tracked t;
    int n = 0;
    auto f = [t, &n] { ++n; };
    co_await run(std::move(f));
    std::function<void()> g = [t, &n] { ++n; };
    co_await run(std::move(g));
    BOOST_TEST(n == 2);
}
task<void> in_a_loop(bool wait)
{
    for (int i = 0; i < 10; ++i) {
        const int n = co_await by_value(owner(i), wait);
        if (n == 7)
            break;
    }
    std::optional<owner> kept;
    kept.emplace(co_await yields(wait));
}
task<void> exception_inside(bool wait)
{
    try {
        const owner o = co_await yields(wait);
        throw std::string("x");
    } catch (const std::string&) {
    }
}

} // namespace

BOOST_AUTO_TEST_CASE(each_form_destroys_what_it_made)
{
    auto made = reactor::create();
    BOOST_REQUIRE(made);
    struct form {
        const char* name;
        task<void> (*body)(bool);
    };
    const form forms[] = {
        {"constructed_argument", constructed_argument},
        {"moved_argument", moved_argument},
        {"awaiter_that_owns", awaiter_that_owns},
        {"value_that_owns", value_that_owns},
        {"in_a_condition", in_a_condition},
        {"short_circuit", short_circuit},
        {"results", results},
        {"named_lambda", named_lambda},
        {"in_a_loop", in_a_loop},
        {"exception_inside", exception_inside},
    };
    for (const form& f : forms) {
        for (const bool wait : {false, true}) {
            BOOST_TEST_CONTEXT(f.name << (wait ? ", waiting" : ", ready"))
            {
                run_until_complete(**made, f.body(wait));
                BOOST_TEST(tracked::live == 0);
                BOOST_TEST(tracked::twice == 0);
                tracked::live = tracked::twice = 0;
            }
        }
    }
}

BOOST_AUTO_TEST_SUITE_END()
