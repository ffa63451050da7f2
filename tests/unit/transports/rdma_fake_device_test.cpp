// SPDX-License-Identifier: Apache-2.0
// The provider over rdma-core on a device that is none: asynchronous events, and what grants are made by.
#define BOOST_TEST_MODULE rdma_fake_device
#include <boost/test/unit_test.hpp>

#include "fake_rdma_core.hpp"

using namespace verbena;
using namespace verbena::rdma_test;

BOOST_AUTO_TEST_CASE(an_event_of_a_queue_pair_ends_it)
{
    fixture f;
    auto body = [&f]() -> task<void> {
        ends seen;
        auto q = co_await f.connected(seen);
        const unsigned before = it().acknowledged;
        it().say(IBV_EVENT_QP_FATAL, &it().qp);
        co_await f.long_enough();
        BOOST_TEST(seen.count == 1U);
        BOOST_TEST(it().acknowledged == before + 1);
    };
    run_until_complete(*f.shard, body());
}

BOOST_AUTO_TEST_CASE(a_late_event_of_a_queue_pair_does_not_touch_the_next_of_its_number)
{
    fixture f;
    auto body = [&f]() -> task<void> {
        ends first_seen;
        ends seen;
        auto first = co_await f.connected(first_seen);
        const serial old = first->serial_number();
        const std::uint32_t number = first->number();
        first.reset();
        BOOST_TEST(first_seen.count == 0U); // destroyed: nobody is told
        auto q = co_await f.connected(seen);
        BOOST_TEST(q->number() == number);
        BOOST_TEST(q->serial_number() > old);
        // As it was told by the shard that read it, before the queue pair went.
        f.impl().on_notice({&it().verbs, device_event::queue_pair_error, old});
        // Nor one of a completion queue with a queue pair's serial.
        f.impl().on_notice({&it().verbs, device_event::completion_queue_error, old});
        f.impl().on_notice({&it().verbs, device_event::completion_queue_error, q->serial_number()});
        co_await f.long_enough();
        BOOST_TEST(q->connected());
        BOOST_TEST(seen.count == 0U);
        f.impl().on_notice({&it().verbs, device_event::queue_pair_error, q->serial_number()});
        co_await f.long_enough();
        BOOST_TEST(!q->connected());
        BOOST_TEST(seen.count == 1U);
    };
    run_until_complete(*f.shard, body());
}

BOOST_AUTO_TEST_CASE(an_event_of_a_completion_queue_ends_those_that_use_it)
{
    fixture f;
    auto body = [&f]() -> task<void> {
        ends seen;
        auto q = co_await f.connected(seen);
        serial queue = 1;
        while (!q->completes_at(queue))
            ++queue;
        f.impl().on_notice({&it().verbs, device_event::completion_queue_error, queue - 1});
        co_await f.long_enough();
        BOOST_TEST(seen.count == 0U);
        f.impl().on_notice({&it().verbs, device_event::completion_queue_error, queue});
        co_await f.long_enough();
        BOOST_TEST(seen.count == 1U);
        // It is used no more.
        ends next_seen;
        q.reset();
        auto next = co_await f.connected(next_seen);
        BOOST_TEST(!next->completes_at(queue));
    };
    run_until_complete(*f.shard, body());
}

BOOST_AUTO_TEST_CASE(grants_are_made_by_the_best_that_the_device_has)
{
    constexpr unsigned both = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    const auto kind = [](unsigned flags, std::optional<grant_kind> wanted = {}) {
        it().attributes.device_cap_flags = flags;
        return query(&it().verbs, wanted);
    };
    // Says so, and its provider makes none.
    BOOST_TEST((kind(both)->grants == grant_kind::region));
    it().makes_windows = true;
    BOOST_TEST((kind(0)->grants == grant_kind::region));
    const auto first = kind(IBV_DEVICE_MEM_WINDOW);
    BOOST_TEST((first->grants == grant_kind::type_1_window));
    BOOST_TEST((it().made_type == IBV_MW_TYPE_1));
    BOOST_TEST(!first->can.grant_per_queue_pair);
    BOOST_TEST(!first->can.remote_invalidate);
    BOOST_TEST(!first->can.local_invalidate);
    const auto second = kind(both);
    BOOST_TEST((second->grants == grant_kind::type_2_window));
    BOOST_TEST((it().made_type == IBV_MW_TYPE_2));
    BOOST_TEST(second->can.grant_per_queue_pair);
    BOOST_TEST(second->can.remote_invalidate);
    // What is asked for, or nothing.
    BOOST_TEST((kind(both, grant_kind::type_1_window)->grants == grant_kind::type_1_window));
    BOOST_TEST((kind(both, grant_kind::region)->grants == grant_kind::region));
    const auto refused = kind(IBV_DEVICE_MEM_WINDOW, grant_kind::type_2_window);
    BOOST_REQUIRE(!refused);
    BOOST_TEST((refused.error() == std::errc::operation_not_supported));
    auto r = reactor::create({});
    BOOST_REQUIRE(r);
    blocking_pool pool{1};
    options o;
    o.grants = grant_kind::type_2_window;
    const auto context = make_context(**r, pool, o);
    BOOST_REQUIRE(!context);
    BOOST_TEST((context.error() == std::errc::operation_not_supported));
}
