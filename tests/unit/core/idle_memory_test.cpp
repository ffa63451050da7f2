// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/core/memory/idle_memory.hpp>

#include <memory>

BOOST_AUTO_TEST_SUITE(idle_memory_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

struct queue final : grown_object {
    bool shrink() noexcept override
    {
        ++asked;
        return !busy;
    }
    bool busy = true;
    unsigned asked = 0;
};

struct bench {
    bench()
    {
        reactor_options o;
        o.clock = &clock;
        r = reactor::create(o).value();
        idle = std::make_unique<idle_memory>(*r, 1s);
    }
    void pass(duration d)
    {
        clock.advance(d);
        (void)r->turn();
        (void)r->turn();
    }
    virtual_clock clock;
    std::unique_ptr<reactor> r;
    std::unique_ptr<idle_memory> idle;
};

} // namespace

BOOST_AUTO_TEST_CASE(what_has_grown_is_asked_until_it_has_shrunk)
{
    bench b;
    queue one, other;
    b.pass(5s);
    b.idle->grown(one);
    b.idle->grown(one);
    b.idle->grown(other);
    other.busy = false;
    b.pass(900ms);
    BOOST_TEST(one.asked == 0u);
    b.pass(200ms);
    BOOST_TEST(one.asked == 1u);
    BOOST_TEST(other.asked == 1u);
    b.pass(1100ms);
    BOOST_TEST(one.asked == 2u);
    BOOST_TEST(other.asked == 1u);
    one.busy = false;
    b.pass(1100ms);
    b.pass(5s);
    BOOST_TEST(one.asked == 3u);
    // Nothing is armed any more: under a virtual clock nothing can ever happen.
    BOOST_TEST((b.r->run() == run_end::nothing_left));
    b.idle->grown(one);
    b.pass(1100ms);
    BOOST_TEST(one.asked == 4u);
}

BOOST_AUTO_TEST_CASE(what_goes_is_not_asked)
{
    bench b;
    {
        queue one;
        b.idle->grown(one);
    }
    queue other;
    other.busy = false;
    b.idle->grown(other);
    b.pass(1100ms);
    BOOST_TEST(other.asked == 1u);
}

BOOST_AUTO_TEST_SUITE_END()
