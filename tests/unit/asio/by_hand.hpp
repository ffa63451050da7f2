// SPDX-License-Identifier: Apache-2.0
// A reactor on a virtual clock and an io_context, both turned by hand on the test's thread.
#pragma once

#include <boost/test/unit_test.hpp>

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/scope.hpp>

#include <asio/io_context.hpp>

#include <memory>
#include <optional>
#include <utility>

namespace verbena::test {

inline std::unique_ptr<reactor> make_reactor(clock_source* clock = nullptr)
{
    reactor_options o;
    o.clock = clock;
    auto made = reactor::create(o);
    BOOST_REQUIRE_MESSAGE(made, (made ? std::string() : made.error().message()));
    return std::move(*made);
}

/// Asio's io_context, which goes when it is told, before the reactor.
struct by_hand {
    by_hand() { io.emplace(); }
    ~by_hand() { settle(); }
    /// Until neither has anything to do. No time passes.
    void settle()
    {
        for (bool any = true; any;) {
            any = r->turn();
            if (io) {
                io->restart();
                any = io->poll() != 0 || any;
            }
        }
    }
    /// Runs a task to its end, or until nothing happens any more.
    template<class F>
    void run(F f)
    {
        scope tasks(*r);
        tasks.spawn(std::move(f));
        settle();
        BOOST_TEST(tasks.live() == 0U);
    }

    virtual_clock clock;
    std::unique_ptr<reactor> r = make_reactor(&clock);
    std::optional<asio::io_context> io;
};

} // namespace verbena::test
