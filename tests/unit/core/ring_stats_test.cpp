// SPDX-License-Identifier: Apache-2.0
// What a ring counts, read by another thread while the ring's own goes on.
#include <boost/test/unit_test.hpp>

#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/ring.hpp>
#include <verbena/core/reactor/runtime.hpp>

#include <map>
#include <poll.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

BOOST_AUTO_TEST_SUITE(ring_stats_test)

using namespace verbena;

namespace {

struct counting final : ring_completion {
    void on_complete(std::int32_t) noexcept override { ++count; }
    unsigned count = 0;
};

struct wakeable {
    ~wakeable() { ::close(fd); }
    void wake() const
    {
        const std::uint64_t one = 1;
        BOOST_REQUIRE(::write(fd, &one, sizeof one) == ssize_t(sizeof one));
    }
    int fd = ::eventfd(0, EFD_NONBLOCK);
};

std::unique_ptr<ring> make_ring()
{
    auto made = ring::create(8);
    BOOST_REQUIRE_MESSAGE(made, (made ? std::string() : made.error().message()));
    return std::move(*made);
}

} // namespace

BOOST_AUTO_TEST_CASE(operations_given_up_are_told_apart)
{
    const auto r = make_ring();
    const wakeable w;
    counting kept;
    BOOST_REQUIRE(r->poll_once(w.fd, POLLIN, kept));
    r->submit();
    w.wake();
    while (kept.count == 0)
        BOOST_REQUIRE(r->wait(std::chrono::seconds(5)));
    BOOST_TEST(r->stats().submitted == 1U);
    BOOST_TEST(r->stats().enters >= 1U);
    BOOST_TEST(r->stats().stale == 0U);
    // Given up: its own completion comes all the same, beside that of the cancelling, which is nobody's.
    const wakeable silent;
    counting gone;
    BOOST_REQUIRE(r->poll_once(silent.fd, POLLIN, gone));
    r->submit();
    r->detach(gone);
    while (r->stats().stale == 0)
        BOOST_REQUIRE(r->wait(std::chrono::seconds(5)));
    BOOST_TEST(gone.count == 0U);
    BOOST_TEST(r->stats().stale == 1U);
    BOOST_TEST(r->stats().submitted == 3U);
}

BOOST_AUTO_TEST_CASE(another_thread_reads_them)
{
    const auto r = make_ring();
    const wakeable silent;
    std::atomic<bool> over{false};
    std::uint64_t seen = 0;
    std::thread reader([&] {
        while (!over)
            seen = std::max(seen, r->stats().stale + r->stats().submitted + r->stats().enters);
    });
    for (unsigned i = 1; i <= 200; ++i) {
        counting gone;
        BOOST_REQUIRE(r->poll_once(silent.fd, POLLIN, gone));
        r->submit();
        r->detach(gone);
        while (r->stats().stale < i)
            BOOST_REQUIRE(r->wait(std::chrono::seconds(5)));
    }
    over = true;
    reader.join();
    BOOST_TEST(seen <= r->stats().stale + r->stats().submitted + r->stats().enters);
    BOOST_TEST(r->stats().stale == 200U);
    BOOST_TEST(r->stats().submitted == 400U);
}

BOOST_AUTO_TEST_CASE(a_scrape_tells_them_by_shard)
{
    metric_registry registry;
    runtime_options options;
    options.shards = 2;
    auto rt = runtime::start(options);
    BOOST_REQUIRE(rt.has_value());
    (*rt)->expose(registry);
    const auto scrape = [&registry] {
        std::map<std::string, double> all;
        for (const auto& m : registry.collect()) {
            for (const auto& s : m.samples) {
                if (m.family.name.starts_with("verbena_shard_ring_"))
                    all[m.family.name + " " + s.labels.at(0)] = s.value;
            }
        }
        return all;
    };
    const auto before = scrape();
    BOOST_TEST(before.size() == 6U);
    const wakeable silent;
    (*rt)->call(1, [&silent](shard& s) {
        ring& r = s.reactor().io();
        counting gone;
        BOOST_REQUIRE(r.poll_once(silent.fd, POLLIN, gone));
        r.submit();
        r.detach(gone);
    });
    const auto stale = [&] { return scrape().at("verbena_shard_ring_stale_completions_total 1"); };
    const auto first = before.at("verbena_shard_ring_stale_completions_total 1");
    for (int i = 0; i < 500 && stale() < first + 1; ++i)
        (*rt)->call(1, [](shard&) {});
    BOOST_TEST(stale() >= first + 1);
    BOOST_TEST(scrape().at("verbena_shard_ring_submitted_total 1") >=
               before.at("verbena_shard_ring_submitted_total 1") + 2);
    BOOST_TEST(scrape().at("verbena_shard_ring_enters_total 1") >=
               before.at("verbena_shard_ring_enters_total 1") + 1);
}

BOOST_AUTO_TEST_SUITE_END()
