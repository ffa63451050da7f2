// SPDX-License-Identifier: Apache-2.0
// Peers that a listener over rdma-core doesn't take, on a device that is none: each is rejected, counted once by its
// cause, and told in the log, which peers can't fill.
#include <boost/test/unit_test.hpp>

#include "../../../transports/rdma/listener.hpp"
#include "../../../transports/rdma/queue_pair.hpp"
#include "fake_rdma_core.hpp"

#include <verbena/core/task/scope.hpp>

#include <arpa/inet.h>
#include <map>

BOOST_AUTO_TEST_SUITE(rdma_refusals_test)

using namespace verbena;
using namespace verbena::rdma_test;

namespace {

ibv_context& other_device()
{
    static ibv_device device = [] {
        ibv_device d{};
        std::strcpy(d.name, "other0");
        return d;
    }();
    static ibv_context verbs = [] {
        ibv_context c{};
        c.device = &device;
        return c;
    }();
    return verbs;
}

rdma_cm_id* peer(ibv_context& by, std::uint8_t port)
{
    auto* const id = new rdma_cm_id{};
    id->verbs = &by;
    id->port_num = port;
    auto& from = *reinterpret_cast<sockaddr_in*>(&id->route.addr.dst_addr);
    from.sin_family = AF_INET;
    from.sin_port = htons(4791);
    BOOST_REQUIRE(::inet_pton(AF_INET, "192.0.2.7", &from.sin_addr) == 1);
    return id;
}

options chosen(std::uint32_t port = 0)
{
    options o;
    o.device = "fake0";
    o.port = port;
    return o;
}

struct listening : fixture {
    explicit listening(const options& o = {}) : fixture(0, o), before(it().rejected)
    {
        where = std::move(*context->listen_adopted("rdma://192.0.2.1:20049"));
    }
    ~listening() { where.reset(); }
    void arrive(rdma_cm_id* id)
    {
        cm_event e{RDMA_CM_EVENT_CONNECT_REQUEST, 0, id, {}, 1, 1};
        static_cast<rdma::listener&>(*where).on_cm_event(e);
    }
    unsigned rejected() const { return it().rejected - before; }
    std::map<end_cause, std::uint64_t> counted() const
    {
        std::map<end_cause, std::uint64_t> all;
        for (std::size_t i = 0; i < std::size_t(end_cause::count_); ++i) {
            if (const std::uint64_t n = context->counters().ends[i])
                all[end_cause(i)] = n;
        }
        return all;
    }
    /// A peer arrives, and has a queue pair; the request goes to `asked`.
    task<std::unique_ptr<verbs::queue_pair>> asked_for(std::unique_ptr<verbs::connect_request>& asked)
    {
        arrive(peer(it().verbs(), 1));
        auto next = co_await where->next();
        BOOST_REQUIRE(next);
        asked = std::move(*next);
        const verbs::queue_pair_options o;
        auto made = co_await asked->make_queue_pair(*domain, o);
        BOOST_REQUIRE_MESSAGE(made, why(made));
        co_return std::move(*made);
    }
    std::uint64_t accepted() const { return context->counters().accepted; }
    std::unique_ptr<verbs::listener> where;
    unsigned before;
};

using counts = std::map<end_cause, std::uint64_t>;

} // namespace

BOOST_AUTO_TEST_CASE(a_peer_by_another_device_is_told_of)
{
    const captured log;
    listening f(chosen());
    f.arrive(peer(other_device(), 1));
    BOOST_TEST(f.rejected() == 1U);
    BOOST_TEST((f.counted() == counts{{end_cause::other_device, 1}}));
    BOOST_TEST(f.accepted() == 0U);
    BOOST_TEST(log.with("came by another device") == 1U);
    for (const char* part :
         {"url=rdma://192.0.2.1:20049", "device=fake0", "peer=192.0.2.7:4791", "came_by=other0"})
        BOOST_TEST(log.with(part) == 1U);
    f.arrive(peer(it().verbs(), 2));
    BOOST_TEST(f.rejected() == 1U);
    BOOST_TEST(f.accepted() == 1U);
}

BOOST_AUTO_TEST_CASE(a_peer_by_another_port_is_told_of)
{
    const captured log;
    listening f(chosen(1));
    f.arrive(peer(it().verbs(), 2));
    BOOST_TEST(f.rejected() == 1U);
    BOOST_TEST((f.counted() == counts{{end_cause::other_device, 1}}));
    BOOST_TEST(log.with("came_by=fake0 by_port=2") == 1U);
    f.arrive(peer(it().verbs(), 1));
    BOOST_TEST(f.accepted() == 1U);
}

BOOST_AUTO_TEST_CASE(without_a_choice_peers_come_by_any_device)
{
    listening f;
    f.arrive(peer(it().verbs(), 1));
    f.arrive(peer(other_device(), 2));
    BOOST_TEST(f.rejected() == 0U);
    BOOST_TEST(f.accepted() == 2U);
    BOOST_TEST(f.counted().empty());
}

BOOST_AUTO_TEST_CASE(peers_cannot_fill_the_log)
{
    const captured log;
    listening f(chosen());
    for (int i = 0; i < 1000; ++i)
        f.arrive(peer(other_device(), 1));
    BOOST_TEST(f.rejected() == 1000U);
    BOOST_TEST((f.counted() == counts{{end_cause::other_device, 1000}}));
    // A burst for the interval, and for another if this machine was slow.
    BOOST_TEST(log.lines.size() >= 1U);
    BOOST_TEST(log.lines.size() <= 10U);
}

BOOST_AUTO_TEST_CASE(a_diverted_peer_was_looked_at_before)
{
    unsigned diverted = 0;
    options o = chosen();
    o.divert = [&diverted](std::unique_ptr<verbs::arrival>& p) {
        ++diverted;
        p.reset();
    };
    const captured log;
    listening f(o);
    f.arrive(peer(other_device(), 1));
    BOOST_TEST(diverted == 0U);
    f.arrive(peer(it().verbs(), 1));
    BOOST_TEST(diverted == 1U);
}

// As it may for lack of memory.
BOOST_AUTO_TEST_CASE(an_exception_costs_one_peer)
{
    unsigned asked = 0;
    options o;
    o.divert = [&](std::unique_ptr<verbs::arrival>&) {
        if (++asked == 1)
            throw std::bad_alloc();
    };
    const captured log;
    listening f(o);
    f.arrive(peer(it().verbs(), 1));
    BOOST_TEST(f.rejected() == 1U);
    BOOST_TEST((f.counted() == counts{{end_cause::setup_failed, 1}}));
    BOOST_TEST(log.with("std::bad_alloc") == 1U);
    f.arrive(peer(it().verbs(), 1));
    BOOST_TEST(f.rejected() == 1U);
    BOOST_TEST(f.accepted() == 1U);
}

BOOST_AUTO_TEST_CASE(peers_beyond_those_that_may_wait)
{
    options o;
    o.max_waiting = 2;
    const captured log;
    listening f(o);
    for (int i = 0; i < 3; ++i)
        f.arrive(peer(it().verbs(), 1));
    BOOST_TEST(f.rejected() == 1U);
    BOOST_TEST((f.counted() == counts{{end_cause::waiting_crowded, 1}}));
    BOOST_TEST(log.with("reason=waiting") == 1U);
    // Those that waited when it closes, and one that comes from another shard then.
    f.where->close();
    BOOST_TEST(f.rejected() == 3U);
    f.context->adopt(std::make_unique<arrived_peer>(
                         cm_event{RDMA_CM_EVENT_CONNECT_REQUEST, 0, peer(it().verbs(), 1), {}, 1, 1}),
                     *f.where);
    BOOST_TEST(f.rejected() == 4U);
    BOOST_TEST((f.counted() == counts{{end_cause::waiting_crowded, 1}, {end_cause::rejected, 3}}));
}

BOOST_AUTO_TEST_CASE(a_shard_that_cannot_take_a_peer_over)
{
    const captured log;
    listening f;
    it().refused_migrate = ENOMEM;
    f.context->adopt(std::make_unique<arrived_peer>(
                         cm_event{RDMA_CM_EVENT_CONNECT_REQUEST, 0, peer(it().verbs(), 1), {}, 1, 1}),
                     *f.where);
    it().refused_migrate = 0;
    BOOST_TEST(f.rejected() == 1U);
    BOOST_TEST((f.counted() == counts{{end_cause::setup_failed, 1}}));
    BOOST_TEST(log.with("could not take it over") == 1U);
}

BOOST_AUTO_TEST_CASE(peers_that_wait_while_their_device_goes)
{
    const captured log;
    listening f;
    f.arrive(peer(it().verbs(), 1));
    f.arrive(peer(other_device(), 1));
    static_cast<rdma::listener&>(*f.where).lose(&other_device());
    BOOST_TEST(f.rejected() == 1U);
    BOOST_TEST((f.counted() == counts{{end_cause::device_removed, 1}}));
}

BOOST_AUTO_TEST_CASE(set_up_that_fails_is_counted_once)
{
    const captured log;
    listening f(chosen(1));
    auto body = [&f]() -> task<void> {
        const verbs::queue_pair_options o;
        // No queue pair could be made.
        const std::unique_ptr<rdma_cm_id> elsewhere(peer(it().verbs(), 2));
        const auto none = co_await f.impl().make_pair(elsewhere.get(), f.impl_part(), o, "peer:1", "peer");
        BOOST_TEST(!none);
        BOOST_TEST((f.counted() == counts{{end_cause::setup_failed, 1}}));
        // One that never stood.
        auto made = co_await f.impl().make_pair(peer(it().verbs(), 1), f.impl_part(), o, "peer:1", "peer");
        BOOST_REQUIRE(made);
        (*made).reset();
        BOOST_TEST((f.counted() == counts{{end_cause::setup_failed, 2}}));
        // One that the peer rejected.
        auto second = co_await f.impl().make_pair(peer(it().verbs(), 1), f.impl_part(), o, "peer:1", "peer");
        BOOST_REQUIRE(second);
        (*second)->end(end_cause::rejected, error(std::errc::connection_refused, "no"));
        (*second).reset();
        BOOST_TEST((f.counted() == counts{{end_cause::setup_failed, 2}, {end_cause::rejected, 1}}));
        // One that stood.
        ends seen;
        auto stood = co_await f.connected(seen);
        stood.reset();
        BOOST_TEST((f.counted() ==
                    counts{{end_cause::setup_failed, 2}, {end_cause::rejected, 1}, {end_cause::local, 1}}));
    };
    run_until_complete(*f.shard, body());
}

BOOST_AUTO_TEST_CASE(a_queue_pair_outlives_the_request_that_made_it)
{
    listening f;
    auto body = [&f]() -> task<void> {
        std::unique_ptr<verbs::connect_request> asked;
        const auto made = co_await f.asked_for(asked);
        ends seen;
        made->set_handler(&seen);
        asked.reset();
        auto& q = static_cast<rdma::queue_pair&>(*made);
        BOOST_REQUIRE(q.id()->context == static_cast<rdma::cm_handler*>(&q));
        cm_event over{RDMA_CM_EVENT_DISCONNECTED, 0, q.id(), {}, 0, 0};
        q.on_cm_event(over);
        co_await f.wait_until([&seen] { return seen.count != 0; });
        BOOST_TEST(seen.count == 1U);
    };
    run_until_complete(*f.shard, body());
}

// The kernel waits until the device has let go of a queue pair, and no peer may make the shard wait for that.
BOOST_AUTO_TEST_CASE(an_accept_that_fails_has_its_queue_pair_destroyed_elsewhere)
{
    listening f;
    enum class way : std::uint8_t { refused, not_heard_of, given_up };
    auto body = [&f](way w) -> task<void> {
        std::unique_ptr<verbs::connect_request> asked;
        auto made = co_await f.asked_for(asked);
        ends seen;
        made->set_handler(&seen);
        const unsigned before = it().destroyed;
        verbs::connect_options o;
        o.timeout = w == way::not_heard_of ? duration(1ms) : duration(1h);
        it().refused_accept = w == way::refused ? EINVAL : 0;
        scope s(*f.shard);
        bool failed = false;
        auto accept = [&]() -> task<void> {
            const auto accepted = co_await asked->accept(o);
            failed = !accepted;
        };
        s.spawn(accept);
        if (w == way::given_up)
            say(static_cast<rdma::queue_pair&>(*made).id(), RDMA_CM_EVENT_UNREACHABLE);
        if (w == way::not_heard_of)
            co_await f.pass(o.timeout);
        co_await s.join();
        it().refused_accept = 0;
        BOOST_TEST(failed);
        BOOST_TEST(!made->connected());
        co_await f.wait_until([&seen] { return seen.count != 0; });
        BOOST_TEST(seen.count == 1U);
        BOOST_TEST(it().destroyed == before + 1);
        BOOST_TEST((it().destroyed_by.load() != std::this_thread::get_id()));
    };
    for (const way w : {way::refused, way::not_heard_of, way::given_up})
        run_until_complete(*f.shard, body(w));
    BOOST_TEST((f.counted() == counts{{end_cause::setup_failed, 3}}));
}

BOOST_AUTO_TEST_CASE(a_connect_that_fails_has_its_queue_pair_destroyed_elsewhere)
{
    fixture f;
    auto body = [&f](bool refused) -> task<void> {
        const unsigned before = it().destroyed;
        it().refused_connect = refused ? ECONNREFUSED : 0;
        it().connecting = nullptr;
        scope s(*f.shard);
        std::errc why{};
        auto connect = [&]() -> task<void> {
            std::vector<std::byte> reply;
            const verbs::connect_options o;
            const auto made = co_await f.context->connect("192.0.2.1:20049", *f.domain, o, reply);
            BOOST_REQUIRE(!made);
            why = std::errc(made.error().errno_value());
        };
        s.spawn(connect);
        co_await f.wait_until([] { return it().connecting != nullptr; });
        if (!refused) {
            co_await f.pass(1ms);
            say(it().connecting, RDMA_CM_EVENT_REJECTED);
        }
        co_await s.join();
        BOOST_TEST((why == std::errc::connection_refused));
        BOOST_TEST(it().destroyed == before + 1);
        BOOST_TEST((it().destroyed_by.load() != std::this_thread::get_id()));
    };
    for (const bool refused : {true, false})
        run_until_complete(*f.shard, body(refused));
}

BOOST_AUTO_TEST_CASE(a_queue_pair_that_is_aborted_does_not_hold_the_shard)
{
    fixture f;
    auto body = [&f]() -> task<void> {
        ends seen;
        auto q = co_await f.connected(seen);
        q->abort(error(std::errc::protocol_error, "a test"));
        BOOST_TEST(!q->connected());
        BOOST_TEST(seen.count == 0U);
        co_await f.wait_until([&seen] { return seen.count != 0; });
        BOOST_TEST(seen.count == 1U);
        BOOST_TEST((seen.last == std::errc::protocol_error));
        BOOST_TEST((it().destroyed_by.load() != std::this_thread::get_id()));
    };
    run_until_complete(*f.shard, body());
}

BOOST_AUTO_TEST_CASE(nobody_waits_for_a_connection_whose_queue_pair_has_ended)
{
    listening f;
    auto body = [&f]() -> task<void> {
        std::unique_ptr<verbs::connect_request> asked;
        const auto made = co_await f.asked_for(asked);
        bool answered = false;
        scope s(*f.shard);
        auto accept = [&]() -> task<void> {
            verbs::connect_options o;
            o.timeout = 1h;
            const auto accepted = co_await asked->accept(o);
            BOOST_TEST(!accepted);
            BOOST_TEST((accepted.error() == std::errc::connection_aborted));
            answered = true;
        };
        s.spawn(accept);
        co_await f.pass(1ms);
        BOOST_TEST(!answered);
        f.impl().on_notice({&it().verbs(), device_event::device_fatal});
        co_await f.wait_until([&answered] { return answered; });
        BOOST_TEST(answered);
        s.request_stop();
        co_await s.join();
    };
    run_until_complete(*f.shard, body());
}

BOOST_AUTO_TEST_SUITE_END()
