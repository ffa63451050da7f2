// SPDX-License-Identifier: Apache-2.0
// Grants by windows of type 1, where what the device does can be chosen: on one that is none.
#include <boost/test/unit_test.hpp>

#include "fake_rdma_core.hpp"

#include <algorithm>
#include <semaphore>

BOOST_AUTO_TEST_SUITE(rdma_windows_test)

using namespace verbena;
using namespace verbena::rdma_test;

namespace {

constexpr std::size_t count = 200; // more than are bound at once
constexpr std::size_t each = 64;

struct windows : fixture {
    explicit windows(unsigned flags) : fixture(flags) {}
    ~windows()
    {
        domain.reset();
        context.reset();
        BOOST_TEST(it().windows == 0);
        BOOST_TEST(it().regions == 0);
    }
    task<void> prepare()
    {
        auto made = co_await domain->register_memory(memory);
        BOOST_REQUIRE_MESSAGE(made, why(made));
        region = std::move(*made);
        it().binds.clear();
        it().windows_made = 0;
    }
    task<std::vector<verbs::grant>> grants()
    {
        std::vector<verbs::grant_request> requests(count);
        for (std::size_t i = 0; i < count; ++i) {
            requests[i].memory = std::span(memory).subspan(i * each, each);
            requests[i].rights = verbs::access::remote_write;
        }
        auto made = co_await domain->make_grants(requests);
        BOOST_REQUIRE_MESSAGE(made, why(made));
        std::vector<verbs::grant> all;
        std::vector<std::uint32_t> keys;
        for (auto& r : requests) {
            BOOST_TEST(r.made.valid());
            keys.push_back(r.made.where().key);
            all.push_back(std::move(r.made));
        }
        std::ranges::sort(keys);
        BOOST_TEST((std::ranges::adjacent_find(keys) == keys.end()));
        co_return all;
    }
    /// Grants of windows of type 2.
    task<std::vector<verbs::grant>> grants_of(verbs::queue_pair& q, std::size_t number)
    {
        std::vector<verbs::grant_request> requests(number);
        for (auto& r : requests) {
            r.memory = std::span(memory).first(each);
            r.scope = &q;
        }
        auto made = co_await domain->make_grants(requests);
        BOOST_REQUIRE_MESSAGE(made, why(made));
        std::vector<verbs::grant> all;
        for (auto& r : requests)
            all.push_back(std::move(r.made));
        co_return all;
    }
    std::uint64_t binds() const { return context->counters().window_binds.load(); }
    std::uint64_t regions() const { return context->counters().region_grants.load(); }

    std::vector<std::byte> memory = std::vector<std::byte>(count * each);
    std::unique_ptr<verbs::region> region;
};

/// Does `body` on a device that makes windows and binds them well, and has it so again afterwards.
void run(const std::function<task<void>(windows&)>& body, unsigned flags = IBV_DEVICE_MEM_WINDOW)
{
    it().makes_windows = true;
    it().refused_bind = 0;
    it().bind_status = IBV_WC_SUCCESS;
    windows w(flags);
    const auto all = [&w, &body]() -> task<void> {
        co_await body(w);
        w.region.reset();
    };
    run_until_complete(*w.shard, all());
}

} // namespace

BOOST_AUTO_TEST_CASE(windows_are_bound_and_unbound_and_bound_again)
{
    run([](windows& w) -> task<void> {
        ends seen;
        auto q = co_await w.connected(seen);
        co_await w.prepare();
        for (int round = 0; round < 3; ++round) {
            it().binds.clear();
            auto all = co_await w.grants();
            BOOST_TEST(it().binds.size() == count);
            BOOST_TEST(std::ranges::all_of(it().binds, [](const auto& b) {
                return b.length == each && b.rights == unsigned(IBV_ACCESS_REMOTE_WRITE);
            }));
            it().binds.clear();
            co_await w.domain->revoke(all);
            BOOST_TEST(it().binds.size() == count);
            BOOST_TEST(std::ranges::all_of(it().binds, [](const auto& b) { return b.length == 0; }));
        }
        BOOST_TEST(it().windows_made == int(count)); // used again
        BOOST_TEST(w.binds() == 3 * count);
        BOOST_TEST(w.regions() == 0U);
    });
}

BOOST_AUTO_TEST_CASE(without_a_queue_pair_grants_are_regions)
{
    run([](windows& w) -> task<void> {
        co_await w.prepare();
        auto all = co_await w.grants();
        BOOST_TEST(w.regions() == count);
        BOOST_TEST(w.binds() == 0U);
        co_await w.domain->revoke(all);
    });
}

BOOST_AUTO_TEST_CASE(without_windows_left_grants_are_regions)
{
    run([](windows& w) -> task<void> {
        ends seen;
        auto q = co_await w.connected(seen);
        co_await w.prepare();
        it().makes_windows = false;
        auto all = co_await w.grants();
        BOOST_TEST(w.regions() == count);
        BOOST_TEST(w.binds() == 0U);
        BOOST_TEST(q->connected());
        co_await w.domain->revoke(all);
    });
}

BOOST_AUTO_TEST_CASE(a_bind_that_fails_ends_its_queue_pair_and_its_windows_are_not_used_again)
{
    for (const bool at_once : {true, false}) {
        run([at_once](windows& w) -> task<void> {
            ends seen;
            auto q = co_await w.connected(seen);
            co_await w.prepare();
            it().refused_bind = at_once ? EINVAL : 0;
            it().bind_status = IBV_WC_MW_BIND_ERR;
            auto all = co_await w.grants();
            BOOST_TEST(w.regions() == count);
            BOOST_TEST(w.binds() == 0U);
            BOOST_TEST(!q->connected());
            BOOST_TEST(it().windows < it().windows_made); // those of the failed batch were taken away
            co_await w.domain->revoke(all);
            co_await w.wait_until([&seen] { return seen.count != 0; });
            BOOST_TEST(seen.count == 1U);
        });
    }
}

BOOST_AUTO_TEST_CASE(windows_whose_queue_pairs_are_gone_are_taken_away)
{
    run([](windows& w) -> task<void> {
        ends seen;
        auto q = co_await w.connected(seen);
        co_await w.prepare();
        auto all = co_await w.grants();
        q.reset();
        BOOST_TEST(all.front().valid()); // they are the domain's
        it().binds.clear();
        const int before = it().windows;
        co_await w.domain->revoke(all);
        BOOST_TEST(it().binds.empty());
        BOOST_TEST(before - it().windows == int(count));
    });
}

BOOST_AUTO_TEST_CASE(a_window_that_is_revoked_at_once_is_taken_away)
{
    run([](windows& w) -> task<void> {
        ends seen;
        auto q = co_await w.connected(seen);
        co_await w.prepare();
        auto all = co_await w.grants();
        const int before = it().windows;
        all.front() = verbs::grant();
        all.front() = verbs::grant();
        BOOST_TEST(!all.front().valid());
        BOOST_TEST(before - it().windows == 1);
        co_await w.domain->revoke(all);
    });
}

// Of type 2, which the queue pair itself binds: to the memory of its grant and no more, and for what was asked for.
BOOST_AUTO_TEST_CASE(windows_of_a_queue_pair_are_bound_and_invalidated)
{
    const auto body = [](windows& w) -> task<void> {
        ends seen;
        auto q = co_await w.connected(seen);
        co_await w.prepare();
        it().doorbells.clear();
        std::vector<verbs::grant_request> requests(3);
        const verbs::access rights[] = {verbs::access::remote_read, verbs::access::remote_write,
                                        verbs::access::remote_read | verbs::access::remote_write};
        const unsigned expected[] = {IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE,
                                     IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};
        for (std::size_t i = 0; i < 3; ++i) {
            requests[i].memory = std::span(w.memory).subspan(100 + i * each, each - 1);
            requests[i].rights = rights[i];
            requests[i].scope = q.get();
        }
        const auto made = co_await w.domain->make_grants(requests);
        BOOST_REQUIRE_MESSAGE(made, why(made));
        BOOST_TEST_REQUIRE(it().doorbells.size() == 1U);
        const auto binds = it().doorbells.front();
        BOOST_TEST_REQUIRE(binds.size() == 3U);
        const auto completes = [](const fake::request& r) {
            ibv_wc done{};
            done.wr_id = r.id;
            it().completions.push_back(done);
        };
        std::vector<verbs::grant> all;
        for (std::size_t i = 0; i < 3; ++i) {
            if (binds[i].signalled)
                completes(binds[i]);
            BOOST_TEST((binds[i].what == IBV_WR_BIND_MW));
            BOOST_TEST(binds[i].key == requests[i].made.where().key);
            BOOST_TEST((binds[i].at == w.memory.data() + 100 + i * each));
            BOOST_TEST(binds[i].length == each - 1);
            BOOST_TEST(binds[i].rights == expected[i]);
            all.push_back(std::move(requests[i].made));
        }
        it().doorbells.clear();
        scope revoking(*w.shard);
        revoking.spawn([&] { return w.domain->revoke(all); });
        for (std::size_t i = 0; i < 3; ++i) {
            const auto asked = [i] { return it().doorbells.size() == i + 1; };
            co_await windows::wait_until(asked);
            BOOST_TEST_REQUIRE(it().doorbells.size() == i + 1);
            const auto& one = it().doorbells.back();
            BOOST_TEST_REQUIRE(one.size() == 1U);
            BOOST_TEST((one[0].what == IBV_WR_LOCAL_INV));
            BOOST_TEST(one[0].key == binds[i].key);
            BOOST_TEST(all[i].valid()); // until the device has done it
            completes(one[0]);
        }
        co_await revoking.join();
        BOOST_TEST(std::ranges::none_of(all, [](const auto& g) { return bool(g); }));
        BOOST_TEST(it().windows == it().windows_made); // which the next grants have
        BOOST_TEST(q->connected());
    };
    run(body, IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
}

BOOST_AUTO_TEST_CASE(a_queue_pair_may_go_while_the_revoking_of_its_grants_waits_for_room)
{
    const auto body = [](windows& w) -> task<void> {
        ends seen;
        auto q = co_await w.connected(seen);
        co_await w.prepare();
        auto all = co_await w.grants_of(*q, internal_depth);
        scope waiting(*w.shard);
        waiting.spawn([&] { return w.domain->revoke(all); });
        co_await w.pass(5ms);
        q.reset();
        co_await waiting.join();
        BOOST_TEST(std::ranges::none_of(all, [](const auto& g) { return bool(g); }));
    };
    run(body, IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
}

namespace {

// A queue pair with two grants whose peer has gone, while the pool's thread, which takes it down, is at other work.
void while_it_is_taken_down(const std::function<task<void>(windows&, std::vector<verbs::grant>&, ends&,
                                                           std::binary_semaphore&)>& then)
{
    const auto body = [&then](windows& w) -> task<void> {
        ends seen;
        auto q = co_await w.connected(seen);
        co_await w.prepare();
        auto all = co_await w.grants_of(*q, 2);
        std::binary_semaphore goes_on{0};
        const auto other_work = [&w, &goes_on]() -> task<void> {
            auto wait = [&goes_on] { goes_on.acquire(); };
            co_await w.pool.run(std::move(wait));
        };
        scope busy(*w.shard);
        busy.spawn(other_work);
        co_await w.pass(5ms);
        cm_event gone{RDMA_CM_EVENT_DISCONNECTED, 0, q->id(), {}, 0, 0};
        q->on_cm_event(gone);
        BOOST_TEST(!q->connected());
        BOOST_TEST(all.front().valid()); // until the device knows
        BOOST_TEST(it().windows == it().windows_made);
        co_await then(w, all, seen, goes_on);
        co_await busy.join();
        const auto told = [&seen] { return seen.count != 0; };
        co_await windows::wait_until(told);
        BOOST_TEST(seen.count == 1U);
    };
    run(body, IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
}

} // namespace

BOOST_AUTO_TEST_CASE(revoking_waits_for_a_queue_pair_that_is_taken_down)
{
    while_it_is_taken_down(
        [](windows& w, auto& all, ends& seen, std::binary_semaphore& goes_on) -> task<void> {
            scope revoking(*w.shard);
            revoking.spawn([&] { return w.domain->revoke(all); });
            co_await w.pass(5ms);
            BOOST_TEST(std::ranges::all_of(all, [](const auto& g) { return g && g.valid(); }));
            BOOST_TEST(seen.count == 0U);
            goes_on.release();
            co_await revoking.join();
            BOOST_TEST(std::ranges::none_of(all, [](const auto& g) { return bool(g); }));
            BOOST_TEST(it().windows == it().windows_made - 2);
        });
}

BOOST_AUTO_TEST_CASE(a_grant_that_is_revoked_at_once_has_its_queue_pair_taken_down_at_once)
{
    while_it_is_taken_down([](windows&, auto& all, ends& seen, std::binary_semaphore& goes_on) -> task<void> {
        for (int twice = 0; twice < 2; ++twice)
            all.front() = verbs::grant();
        BOOST_TEST(!all.front().valid());
        BOOST_TEST(it().windows == it().windows_made - 2);
        BOOST_TEST(seen.count == 0U); // of its handler's caller this was none
        all.clear();
        goes_on.release();
        co_return;
    });
}

BOOST_AUTO_TEST_SUITE_END()
