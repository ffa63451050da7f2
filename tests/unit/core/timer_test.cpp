// SPDX-License-Identifier: Apache-2.0
// Timers beside a model, with memory and without. A program of its own: here operator new fails when a test says so.
#include <boost/test/unit_test.hpp>

#include <verbena/core/random.hpp>
#include <verbena/core/reactor/timer.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <new>
#include <optional>
#include <vector>

namespace {

bool is_out = false; // of memory
unsigned failed = 0;

} // namespace

void* operator new(std::size_t size)
{
    failed += is_out ? 1 : 0;
    void* const made = is_out ? nullptr : std::malloc(size);
    if (made == nullptr)
        throw std::bad_alloc();
    return made;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

BOOST_AUTO_TEST_SUITE(timer_test)

using namespace verbena;

namespace {

time_point at(std::uint64_t n) { return time_point(std::chrono::milliseconds(n)); }

struct noted final : timer {
    void on_timer() noexcept override
    {
        ++ran;
        if (then)
            then();
    }
    unsigned ran = 0;
    std::function<void()> then;
};

} // namespace

// In half of the runs there is no memory while a timer is armed, at most times.
BOOST_AUTO_TEST_CASE(each_runs_once_and_when_it_is_due)
{
    for (std::uint64_t seed = 1; seed <= 80; ++seed) {
        seeded_random random(seed);
        failed = 0;
        const auto below = [&](std::uint64_t n) { return random.draw() % n; };
        timer_queue queue;
        std::vector<noted> timers(1 + below(60));
        std::vector<std::optional<std::uint64_t>> due(timers.size());
        std::vector<unsigned> expected(timers.size());
        std::uint64_t now = 0;
        for (int step = 0; step < 2000; ++step) {
            const std::size_t i = below(timers.size());
            switch (below(4)) {
            case 0:
            case 1:
                due[i] = now + below(30);
                is_out = seed % 2 == 0 && below(50) != 0;
                queue.arm(timers[i], at(*due[i]));
                is_out = false;
                break;
            case 2:
                due[i].reset();
                timers[i].cancel();
                break;
            default: {
                now += below(8);
                bool any = false;
                for (std::size_t t = 0; t < timers.size(); ++t) {
                    if (due[t] && *due[t] <= now) {
                        ++expected[t];
                        due[t].reset();
                        any = true;
                    }
                }
                BOOST_REQUIRE_EQUAL(queue.expire(at(now)), any);
            }
            }
            std::optional<std::uint64_t> first;
            for (std::size_t t = 0; t < timers.size(); ++t) {
                BOOST_REQUIRE_EQUAL(timers[t].ran, expected[t]);
                BOOST_REQUIRE_EQUAL(timers[t].is_armed(), due[t].has_value());
                if (due[t])
                    first = std::min(first.value_or(*due[t]), *due[t]);
            }
            BOOST_REQUIRE((queue.next() == (first ? std::optional(at(*first)) : std::nullopt)));
        }
        BOOST_TEST((failed > 0) == (seed % 2 == 0));
    }
}

BOOST_AUTO_TEST_CASE(they_run_in_the_order_in_which_they_are_due)
{
    for (const bool out : {false, true}) {
        timer_queue queue;
        std::vector<noted> timers(100);
        std::vector<std::size_t> order;
        order.reserve(timers.size());
        for (std::size_t i = 0; i < timers.size(); ++i) {
            timers[i].then = [&order, i] { order.push_back(i * 37 % 100); };
            is_out = out && i >= 20;
            queue.arm(timers[i], at(i * 37 % 100));
            is_out = false;
        }
        BOOST_TEST(queue.expire(at(49)));
        BOOST_TEST(order.size() == 50u);
        BOOST_TEST(!queue.expire(at(49)));
        BOOST_TEST(queue.expire(at(99)));
        BOOST_TEST(order.size() == 100u);
        BOOST_TEST(std::ranges::is_sorted(order));
    }
}

BOOST_AUTO_TEST_CASE(one_may_arm_itself_again_and_cancel_others)
{
    for (const bool out : {false, true}) {
        timer_queue queue;
        noted again, other;
        again.then = [&] {
            other.cancel();
            if (again.ran < 3)
                queue.arm(again, at(again.ran));
        };
        is_out = out;
        queue.arm(again, at(0));
        queue.arm(other, at(1));
        const bool any = queue.expire(at(2));
        is_out = false;
        BOOST_TEST(any);
        BOOST_TEST(again.ran == 3u);
        BOOST_TEST(other.ran == 0u);
        BOOST_TEST(!queue.next().has_value());
    }
}

BOOST_AUTO_TEST_CASE(a_queue_that_ends_lets_go_of_its_timers)
{
    std::vector<noted> timers(40);
    {
        timer_queue queue;
        for (std::size_t i = 0; i < timers.size(); ++i) {
            is_out = i >= 10;
            queue.arm(timers[i], at(i));
            is_out = false;
        }
    }
    for (noted& t : timers) {
        BOOST_TEST(!t.is_armed());
        t.cancel();
        BOOST_TEST(t.ran == 0u);
    }
}

BOOST_AUTO_TEST_SUITE_END()
