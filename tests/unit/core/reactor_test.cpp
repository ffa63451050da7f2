// SPDX-License-Identifier: Apache-2.0
#define BOOST_TEST_MODULE reactor
#include <boost/test/unit_test.hpp>

#include <verbena/core/reactor.hpp>
#include <verbena/core/timer.hpp>

#include <array>
#include <string>

using namespace verbena;

namespace {

std::unique_ptr<reactor> make()
{
    auto r = reactor::create({});
    BOOST_REQUIRE_MESSAGE(r, (r ? std::string() : r.error().message()));
    return std::move(*r);
}

class counted final : public deferred {
public:
    void run() noexcept override { ++runs; }
    int runs = 0;
};

// A source that never runs dry: each look at it finds `batch` pieces of work.
class endless final : public event_source {
public:
    endless(reactor& r, std::size_t batch) : reactor_(r), batch_(batch) { r.add(*this); }
    ~endless() { unlink(); }
    bool poll() noexcept override
    {
        ++polls;
        for (std::size_t i = 0; i < batch_; ++i)
            reactor_.post(work[i]);
        return true;
    }
    std::array<counted, 8> work;
    int polls = 0;

private:
    reactor& reactor_;
    std::size_t batch_;
};

class flag final : public timer, public remote_message {
public:
    void on_timer() noexcept override { ++timeouts; }
    void deliver() noexcept override { ++delivered; }
    int timeouts = 0;
    int delivered = 0;
};

} // namespace

BOOST_AUTO_TEST_CASE(one_completion_after_the_other_shares_a_turn)
{
    const auto r = make();
    endless source(*r, 1);
    BOOST_TEST(r->turn());
    BOOST_TEST(source.polls > 1);
    BOOST_TEST(source.polls <= 64); // and the turn ends
    BOOST_TEST(source.work[0].runs == source.polls);
}

BOOST_AUTO_TEST_CASE(after_a_batch_the_turn_ends)
{
    const auto r = make();
    endless source(*r, 8);
    BOOST_TEST(r->turn());
    BOOST_TEST(source.polls == 1);
    BOOST_TEST(source.work[7].runs == 1);
}

BOOST_AUTO_TEST_CASE(a_source_that_never_runs_dry_keeps_neither_timers_nor_other_shards_out)
{
    const auto r = make();
    endless source(*r, 1);
    flag f;
    r->timers().arm(f, r->clock().now());
    r->post_remote(f);
    BOOST_TEST(r->turn());
    BOOST_TEST(f.timeouts == 1);
    BOOST_TEST(f.delivered == 1);
    r->post_remote(f);
    BOOST_TEST(r->turn());
    BOOST_TEST(f.delivered == 2);
}
