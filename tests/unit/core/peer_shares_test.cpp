// SPDX-License-Identifier: Apache-2.0
// What a peer may hold, whichever thread charges it. A program of its own: here an allocation may fail, but where ThreadSanitizer keeps the
// allocator for itself.
#include <boost/test/unit_test.hpp>

#include <verbena/core/net/peer_shares.hpp>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#if defined(__SANITIZE_THREAD__)
#define ALLOCATES_AS_EVER
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ALLOCATES_AS_EVER
#endif
#endif

#ifndef ALLOCATES_AS_EVER
namespace {

thread_local bool allocations_fail = false;

} // namespace

void* operator new(std::size_t size)
{
    void* const made = allocations_fail ? nullptr : std::malloc(size);
    if (made == nullptr)
        throw std::bad_alloc();
    return made;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
#endif

BOOST_AUTO_TEST_SUITE(peer_shares_test)

using namespace verbena;

namespace {

constexpr peer_use streams = peer_use::streams, memory = peer_use::memory;

} // namespace

BOOST_AUTO_TEST_CASE(a_peer_is_an_address_or_a_prefix_within_which_a_host_chooses)
{
    BOOST_TEST(peer_group("192.0.2.1") == "192.0.2.1");
    BOOST_TEST(peer_group("192.0.2.1") != peer_group("192.0.2.2"));
    BOOST_TEST(peer_group("::ffff:192.0.2.1") == "192.0.2.1");
    BOOST_TEST(peer_group("2001:db8:0:1::1") == peer_group("2001:db8:0:1:ffff::2"));
    BOOST_TEST(peer_group("2001:db8:0:1::1") != peer_group("2001:db8:0:2::1"));
    BOOST_TEST(peer_group("fe80::1") != peer_group("fe80::2"));
    BOOST_TEST(peer_group("loop") == "loop");
    BOOST_TEST(peer_group("2001:db8:0:100::", 56) == peer_group("2001:db8:0:1ff::", 56));
    BOOST_TEST(peer_group("2001:db8:0:100::", 57) != peer_group("2001:db8:0:1ff::", 57));
    BOOST_TEST(peer_group("2001:db8::1", 128) != peer_group("2001:db8::2", 128));
    BOOST_TEST(peer_group("2001:db8::1", 0) == peer_group("fd00::2", 0));
    BOOST_TEST(peer_group("192.0.2.1", 0) == "192.0.2.1");
}

BOOST_AUTO_TEST_CASE(nobody_has_more_than_the_share_and_all_comes_back)
{
    peer_shares all;
    {
        const peer_charge a = all.charge("192.0.2.1", streams, 1, 2);
        const peer_charge b = all.charge("192.0.2.1", streams, 1, 2);
        BOOST_REQUIRE(a);
        BOOST_REQUIRE(b);
        BOOST_TEST(!all.charge("192.0.2.1", streams, 1, 2));
        BOOST_TEST(!a.also(streams, 1, 2));
        BOOST_TEST(all.refused(streams) == 2u);
        // Another peer has a share of its own, and another kind of thing is another account.
        const peer_charge other = all.charge("192.0.2.2", streams, 2, 2);
        BOOST_TEST(bool(other));
        const peer_charge bytes = a.also(memory, 100, 100);
        BOOST_TEST(bool(bytes));
        BOOST_TEST(!a.also(memory, 1, 100));
        BOOST_TEST(!b.also(memory, UINT64_MAX, UINT64_MAX)); // no wrap
        BOOST_TEST(all.peers() == 2u);
        BOOST_TEST(all.greatest(memory) == 100u);
        BOOST_TEST(all.held(streams) == 4u);
    }
    BOOST_TEST(all.peers() == 0u);
    BOOST_TEST(all.held(streams) == 0u);
    BOOST_TEST(!all.charge("192.0.2.1", streams, 3, 2));
    BOOST_TEST(all.peers() == 0u); // who was refused is not known
}

BOOST_AUTO_TEST_CASE(a_charge_may_outlive_the_one_that_it_came_beside)
{
    peer_shares all;
    peer_charge connection = all.charge("2001:db8::1", streams, 1, 1);
    peer_charge session = connection.also(peer_use::rtrs_sessions, 1, 1);
    connection.give_back();
    connection.give_back();
    BOOST_TEST(!connection);
    BOOST_TEST(all.peers() == 1u);
    BOOST_TEST(all.held(streams) == 0u);
    // The session's address may be another one of the host's.
    BOOST_TEST(!all.charge("2001:db8::ffff", peer_use::rtrs_sessions, 1, 1));
    peer_charge moved = std::move(session);
    BOOST_TEST(!session);
    session = std::move(moved);
    BOOST_TEST(all.held(peer_use::rtrs_sessions) == 1u);
    session = {};
    BOOST_TEST(all.peers() == 0u);
}

BOOST_AUTO_TEST_CASE(the_prefix_is_an_option)
{
    peer_shares all({.v6_prefix = 56});
    const peer_charge a = all.charge("2001:db8:0:100::1", streams, 1, 1);
    BOOST_TEST(bool(a));
    BOOST_TEST(!all.charge("2001:db8:0:1ff::1", streams, 1, 1));
    BOOST_TEST(bool(all.charge("2001:db8:0:200::1", streams, 1, 1)));
}

#ifndef ALLOCATES_AS_EVER
BOOST_AUTO_TEST_CASE(without_memory_a_peer_is_refused)
{
    peer_shares all;
    const std::string far = "2001:db8:1234:5678::1"; // longer than a string holds in itself
    allocations_fail = true;
    const peer_charge none = all.charge(far, streams, 1, 9);
    allocations_fail = false;
    BOOST_TEST(!none);
    BOOST_TEST(all.refused(streams) == 1u);
    BOOST_TEST(all.peers() == 0u);
    const peer_charge one = all.charge(far, streams, 1, 9);
    BOOST_REQUIRE(one);
    allocations_fail = true;
    const peer_charge more = one.also(memory, 1, 1); // which needs none
    allocations_fail = false;
    BOOST_TEST(bool(more));
}
#endif

BOOST_AUTO_TEST_CASE(threads_share_a_peer)
{
    peer_shares all;
    constexpr std::uint64_t most = 3;
    std::atomic<std::uint64_t> held = 0, above = 0, got = 0;
    const auto work = [&] {
        for (int i = 0; i < 20'000; ++i) {
            peer_charge a = all.charge("192.0.2.1", streams, 1, most);
            if (!a)
                continue;
            if (held.fetch_add(1) + 1 > most)
                ++above;
            ++got;
            peer_charge b = a.also(memory, 10, 40);
            held.fetch_sub(1);
            if (i % 2 == 0)
                a.give_back();
        }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
        threads.emplace_back(work);
    for (auto& t : threads)
        t.join();
    BOOST_TEST(above.load() == 0u);
    BOOST_TEST(got.load() > 0u);
    BOOST_TEST(all.peers() == 0u);
}

BOOST_AUTO_TEST_CASE(metrics_name_no_peer)
{
    peer_shares all;
    metric_registry registry;
    const auto registered = expose(registry, all);
    const peer_charge a = all.charge("192.0.2.1", streams, 3, 5);
    const peer_charge b = all.charge("192.0.2.2", streams, 4, 5);
    const peer_charge c = b.also(memory, 1000, 1000);
    BOOST_TEST(!all.charge("192.0.2.2", streams, 2, 5));
    const auto value = [&](std::string_view name, std::string_view of) {
        for (const auto& family : registry.collect()) {
            if (family.family.name != name)
                continue;
            for (const auto& s : family.samples) {
                if (s.labels.empty() || s.labels[0] == of)
                    return s.value;
            }
        }
        return -1.0;
    };
    BOOST_TEST(value("verbena_peers", "") == 2);
    BOOST_TEST(value("verbena_peer_most_held", "streams") == 4);
    BOOST_TEST(value("verbena_peer_most_held", "rtrs_sessions") == 0);
    BOOST_TEST(value("verbena_peer_most_memory_bytes", "") == 1000);
    BOOST_TEST(value("verbena_peer_refusals_total", "streams") == 1);
    BOOST_TEST(value("verbena_peer_refusals_total", "memory") == 0);
    BOOST_TEST(value("verbena_peer_most_left_bytes", "") == 0);
    const peer_charge d = b.also(peer_use::calls_left, 70, 1000);
    BOOST_TEST(value("verbena_peer_most_left_bytes", "") == 70);
}

// The peers are visited once for all families, so a scrape shows one moment; and the next one shows the next.
BOOST_AUTO_TEST_CASE(a_scrape_looks_at_the_peers_once)
{
    peer_shares all;
    metric_registry registry;
    const auto registered = expose(registry, all);
    const peer_charge a = all.charge("192.0.2.1", memory, 1000, UINT64_MAX);
    std::vector<peer_charge> more;
    // Between two families, which are collected in the order of their names.
    const auto between = registry.add({"verbena_peer_most_i", "", metric_type::gauge, ""}, [&](metric_sink&) {
        more.push_back(all.charge("192.0.2.2", memory, 5000 * (more.size() + 1), UINT64_MAX));
    });
    const auto scrape = [&] {
        std::vector<double> values;
        for (const auto& family : registry.collect()) {
            if (family.family.name == "verbena_peer_most_memory_bytes" ||
                family.family.name == "verbena_peers")
                values.push_back(family.samples.at(0).value);
        }
        return values;
    };
    BOOST_TEST(scrape() == (std::vector<double>{1000, 1}), boost::test_tools::per_element());
    BOOST_TEST(scrape() == (std::vector<double>{5000, 2}), boost::test_tools::per_element());
    BOOST_TEST(scrape() == (std::vector<double>{15000, 2}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
