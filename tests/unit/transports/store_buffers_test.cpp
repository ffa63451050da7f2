// SPDX-License-Identifier: Apache-2.0
// Buffers for stores: how many a peer has, and in which order they are given.
#include <boost/test/unit_test.hpp>

#include "../../../transports/common/store_buffers.hpp"

#include <verbena/core/reactor/reactor.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

BOOST_AUTO_TEST_SUITE(store_buffers_test)

using namespace verbena;
using namespace std::chrono_literals;
using steering::store_buffer;
using steering::store_buffer_share;
using steering::store_buffers;

namespace {

constexpr std::size_t kib = 1024;

struct fixture {
    explicit fixture(std::size_t most = 1024 * kib)
    {
        reactor_options r;
        r.clock = &clock;
        shard = std::move(*reactor::create(r));
        all = store_buffers::make(*shard, &pool, most, {bytes, waits});
    }
    struct waiter final : steering::store_buffer_waiter {
        waiter(fixture& f, std::string n) : of(f), name(std::move(n)) {}
        void give(store_buffer b) noexcept override
        {
            has = std::move(b);
            of.order += name;
        }
        fixture& of;
        std::string name;
        store_buffer has;
    };
    waiter& wants(const store_buffer_share& who, std::string name, std::size_t size = 64 * kib)
    {
        auto& w = *waiters.emplace_back(std::make_unique<waiter>(*this, std::move(name)));
        w.has = all->take(size, w, who);
        return w;
    }
    void turns()
    {
        for (int i = 0; i < 10; ++i) {
            clock.advance(1ms);
            shard->turn();
        }
    }

    virtual_clock clock;
    std::unique_ptr<reactor> shard;
    memory_budget budget{std::size_t(8) << 20, 1, huge_pages::no};
    buffer_pool pool{budget, nullptr};
    std::atomic<std::uint64_t> bytes{0}, waits{0};
    store_buffers::pointer all;
    std::string order;
    std::vector<std::unique_ptr<waiter>> waiters;
};

struct small_fixture : fixture {
    small_fixture() : fixture(128 * kib) {}
};

} // namespace

// It has half of them however many connections it makes, and others have theirs at once.
BOOST_FIXTURE_TEST_CASE(a_peer_has_half_of_them, fixture)
{
    const auto greedy = all->share_of("a"), also_greedy = all->share_of("a"), modest = all->share_of("b");
    for (int i = 0; i < 8; ++i)
        BOOST_TEST(bool(wants(i % 2 == 0 ? greedy : also_greedy, "a").has));
    BOOST_TEST(bytes == 512 * kib);
    // Nor has it the one that goes round.
    BOOST_TEST(!wants(greedy, "a").has);
    BOOST_TEST(!wants(also_greedy, "A").has);
    auto& other = wants(modest, "b");
    turns();
    BOOST_TEST(bool(other.has));
    BOOST_TEST(order == "b");
    BOOST_TEST(!all->try_take(4 * kib, greedy));
    // What it has itself goes round in it.
    waiters[3]->has.reset();
    turns();
    BOOST_TEST(order == "ba");
    waiters[4]->has.reset();
    turns();
    BOOST_TEST(order == "baA");
    BOOST_TEST(waits == 3u);
}

// Those who are not told apart have all.
BOOST_FIXTURE_TEST_CASE(without_peers_there_is_no_share, fixture)
{
    for (int i = 0; i < 16; ++i)
        BOOST_TEST(bool(wants({}, "a").has));
    BOOST_TEST(bytes == 1024 * kib);
}

// One peer has many connections in line, another one has one.
BOOST_FIXTURE_TEST_CASE(peers_take_turns, small_fixture)
{
    const auto first = all->share_of("a"), second = all->share_of("b"), third = all->share_of("c");
    auto& one = wants(first, "", 64 * kib);
    auto& two = wants(second, "", 64 * kib);
    auto& reserve = wants(third, "", 64 * kib);
    BOOST_TEST((one.has && two.has && reserve.has));
    for (int i = 0; i < 5; ++i)
        (void)wants(first, "a");
    (void)wants(second, "b");
    (void)wants(second, "b");
    turns();
    BOOST_TEST(order == "");
    one.has.reset();
    two.has.reset();
    for (std::size_t i = 3; i < 8; ++i) {
        turns();
        reserve.has.reset();
        for (auto& w : waiters)
            w->has.reset();
    }
    turns();
    BOOST_TEST(order.substr(0, 4) == "abab");
    BOOST_TEST(order.size() == 7u);
}

// Who has waited longest has the next one, though another one would do with less.
BOOST_FIXTURE_TEST_CASE(nobody_is_passed_for_lack_of_memory, small_fixture)
{
    std::vector<store_buffer_share> peers;
    for (const char* const name : {"a", "b", "c", "d", "e"})
        peers.push_back(all->share_of(name));
    auto& large = wants(peers[0], "");
    auto& small = wants(peers[1], "", 4 * kib);
    auto& goes_round = wants(peers[2], "");
    BOOST_TEST((large.has && small.has && goes_round.has));
    (void)wants(peers[3], "d", 48 * kib);
    (void)wants(peers[4], "e", 4 * kib);
    turns();
    BOOST_TEST(order == "");
    goes_round.has.reset();
    turns();
    BOOST_TEST(order == "de");
}

// What a peer has over is no other's: its own slow connections are ended for its own, and for those whom that helps.
BOOST_FIXTURE_TEST_CASE(whose_buffers_are_wanted, fixture)
{
    const auto greedy = all->share_of("a"), modest = all->share_of("b");
    for (int i = 0; i < 8; ++i)
        (void)wants(greedy, "a");
    (void)wants(modest, "b");
    BOOST_TEST(!all->are_wanted(1s, greedy));
    (void)wants(greedy, "a");
    clock.advance(999ms);
    shard->turn();
    BOOST_TEST(!all->are_wanted(1s, greedy));
    clock.advance(1ms);
    shard->turn();
    BOOST_TEST(all->are_wanted(1s, greedy));
    BOOST_TEST(!all->are_wanted(1s, modest));
}

// Of a larger one, which the pool gives where the budget is spent, most would lie idle.
BOOST_FIXTURE_TEST_CASE(a_buffer_is_no_larger_than_what_is_asked_for, fixture)
{
    std::vector<lease> spent;
    for (std::size_t size = 128 * kib; size >= 4 * kib; size /= 2) {
        while (lease l = pool.try_acquire(size))
            spent.push_back(std::move(l));
    }
    // One of several in a slab, which stays of that size.
    BOOST_TEST_REQUIRE(spent.front().size() == 128 * kib);
    spent.erase(spent.begin());
    auto& w = wants({}, "", 8 * kib);
    BOOST_TEST(bool(w.has));
    BOOST_TEST(w.has.bytes().size() == 64 * kib); // the one that goes round
    BOOST_TEST(bytes == 0u);
    BOOST_TEST(!all->try_take(8 * kib));
    BOOST_TEST(pool.outstanding() == spent.size());
    BOOST_TEST(bool(pool.try_acquire(128 * kib)));
}

BOOST_AUTO_TEST_SUITE_END()
