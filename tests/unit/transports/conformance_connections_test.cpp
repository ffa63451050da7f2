// SPDX-License-Identifier: Apache-2.0
// How connections begin and end.

#include "conformance.hpp"

#include <verbena/core/task/event.hpp>

BOOST_AUTO_TEST_SUITE(conformance_connections_test)

using namespace verbena;
using namespace verbena::conformance;

namespace connections_test {

using connect_result = result<std::unique_ptr<verbs::queue_pair>>;

// connect(), beside whatever the test does with the request.
struct attempt {
    task<void> go(fixture& f, verbs::connect_options o)
    {
        outcome.emplace(co_await f.client.context->connect(f.where, *f.client.domain, o, reply));
        if (*outcome)
            (**outcome)->set_handler(&seen);
        else
            BOOST_TEST_MESSAGE("connect: " << why(*outcome));
    }
    bool failed(std::errc e) const { return outcome && !*outcome && outcome->error() == e; }
    std::vector<std::byte> reply;
    std::optional<connect_result> outcome;
    recorder seen;
};

// As it was sent, with the zeros that some providers add.
bool same(fixture& f, std::span<const std::byte> got, std::span<const std::byte> sent)
{
    if (!f.can().private_data_padded)
        return std::ranges::equal(got, sent);
    return got.size() >= sent.size() && std::ranges::equal(got.first(sent.size()), sent) &&
           std::ranges::all_of(got.subspan(sent.size()), [](std::byte b) { return b == std::byte(0); });
}

} // namespace connections_test

// Not anonymous: g++ 12 warns of coroutine frames in templates that hold such a thing.
using connections_test::attempt;
using connections_test::same;

// No timer of ours helps: what the provider does not wake the host for hangs.
CONFORMANCE_CASE(a_connection_lives_in_a_host_loop)
{
    fixture f(p);
    connection n;
    f.run_nested([&]() -> task<void> {
        co_await f.connect(n);
        memory from = co_await registered(*f.client.domain, pattern(40'000));
        memory to = co_await registered(*f.server.domain, 40'000);
        event arrived;
        n.s_seen.hook = [&arrived](const verbs::completion&) { arrived.set(); };
        for (std::uint64_t i = 1; i <= 20; ++i) {
            BOOST_REQUIRE(post_receive(*n.s, i, to.all()));
            BOOST_REQUIRE(post(*n.c, i, opcode::send, {from.all()}));
            const bool came = co_await arrived.wait();
            BOOST_TEST_REQUIRE(came);
            arrived.reset();
            BOOST_TEST(n.s_seen.good(i));
            BOOST_TEST(to.bytes == from.bytes);
            std::ranges::fill(to.bytes, std::byte(0));
        }
        n.c->disconnect();
        co_await f.both_ended(n);
    });
}

CONFORMANCE_CASE(private_data_travels_both_ways)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        const std::size_t most = f.can().max_private_data;
        BOOST_TEST(most >= 56u);
        for (std::size_t size : {std::size_t(0), std::size_t(1), std::size_t(56), most}) {
            const auto question = pattern(size, 3);
            const auto answer = pattern(size, 4);
            verbs::connect_options o;
            o.private_data = question;
            attempt a;
            scope s(f.shard());
            s.spawn([&] { return a.go(f, o); });
            auto request = co_await f.listener->next();
            BOOST_REQUIRE(request);
            const auto got = (*request)->private_data();
            BOOST_TEST(same(f, got, question));
            auto q = co_await (*request)->make_queue_pair(*f.server.domain, {});
            BOOST_REQUIRE_MESSAGE(q, why(q));
            BOOST_TEST(!(*q)->connected());
            recorder seen;
            (*q)->set_handler(&seen);
            o.private_data = answer;
            const auto accepted = co_await (*request)->accept(o);
            BOOST_REQUIRE_MESSAGE(accepted, why(accepted));
            co_await s.join();
            BOOST_REQUIRE((a.outcome && *a.outcome));
            BOOST_TEST(same(f, a.reply, answer));
            BOOST_TEST((*q)->connected());
            BOOST_TEST((**a.outcome)->connected());
            BOOST_TEST(!(*q)->peer_address().empty());
            BOOST_TEST(!(*q)->peer_name().empty());
            BOOST_TEST((*request)->peer_address() == (*q)->peer_address());
            BOOST_TEST(!(**a.outcome)->peer_name().empty());
        }
        const auto too_long = pattern(most + 1);
        verbs::connect_options o;
        o.private_data = too_long;
        attempt a;
        co_await a.go(f, o);
        BOOST_TEST(a.failed(std::errc::message_size));
    });
}

CONFORMANCE_CASE(an_answer_longer_than_private_data_may_be)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        attempt a;
        scope s(f.shard());
        s.spawn([&] { return a.go(f, {}); });
        auto request = co_await f.listener->next();
        BOOST_REQUIRE(request);
        auto q = co_await (*request)->make_queue_pair(*f.server.domain, {});
        BOOST_REQUIRE_MESSAGE(q, why(q));
        recorder seen;
        (*q)->set_handler(&seen);
        const auto too_long = pattern(f.can().max_private_data + 1);
        verbs::connect_options o;
        o.private_data = too_long;
        const auto accepted = co_await (*request)->accept(o);
        BOOST_REQUIRE(!accepted);
        BOOST_TEST((accepted.error() == std::errc::message_size));
        BOOST_TEST(!(*q)->connected());
        q->reset();
        request->reset();
        co_await s.join();
        BOOST_REQUIRE(a.outcome);
        BOOST_TEST(!*a.outcome);
    });
}

CONFORMANCE_CASE(a_reject_carries_private_data)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        attempt a;
        scope s(f.shard());
        s.spawn([&] { return a.go(f, {}); });
        auto request = co_await f.listener->next();
        BOOST_REQUIRE(request);
        const auto why = pattern(20, 8);
        const auto rejected = co_await (*request)->reject(why);
        BOOST_TEST(bool(rejected));
        request->reset();
        co_await s.join();
        BOOST_TEST(a.failed(std::errc::connection_refused));
        BOOST_TEST(same(f, a.reply, why));
    });
}

CONFORMANCE_CASE(a_request_that_nobody_answers_is_refused)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        attempt a;
        scope s(f.shard());
        s.spawn([&] { return a.go(f, {}); });
        auto request = co_await f.listener->next();
        BOOST_REQUIRE(request);
        request->reset();
        co_await s.join();
        BOOST_TEST(a.failed(std::errc::connection_refused));
    });
}

// By the service, between make_queue_pair() and accept(): nothing is answered then, and nobody's descriptor is used.
CONFORMANCE_CASE(a_queue_pair_that_ends_before_it_is_accepted)
{
    using queue_pair = std::unique_ptr<verbs::queue_pair>;
    static constexpr void (*ways[])(queue_pair&) = {
        [](queue_pair& q) { q.reset(); },
        [](queue_pair& q) { q->kill(error(std::errc::operation_canceled, "a test")); },
        [](queue_pair& q) { q->disconnect(); },
    };
    fixture f(p);
    f.run([&]() -> task<void> {
        for (const auto end : ways) {
            attempt a;
            scope s(f.shard());
            s.spawn([&] { return a.go(f, {}); });
            auto request = co_await f.listener->next();
            BOOST_REQUIRE(request);
            auto q = co_await (*request)->make_queue_pair(*f.server.domain, {});
            BOOST_REQUIRE_MESSAGE(q, why(q));
            recorder seen;
            (*q)->set_handler(&seen);
            end(*q);
            const auto accepted = co_await (*request)->accept({});
            BOOST_REQUIRE(!accepted);
            BOOST_TEST((accepted.error() == std::errc::connection_aborted), why(accepted));
            BOOST_TEST((!*q || !(*q)->connected()));
            request->reset();
            q->reset();
            co_await s.join();
            BOOST_REQUIRE(a.outcome);
            BOOST_TEST(!*a.outcome);
        }
    });
}

CONFORMANCE_CASE(a_closed_listener)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        // Someone waits in next(), a peer waits for an answer.
        attempt waiting;
        scope s(f.shard());
        s.spawn([&] { return waiting.go(f, {}); });
        // Linux's iw_cm drops a request that comes while its listener is destroyed, and its peer hears nothing: on a device
        // it shall have come before.
        co_await sleep_for(p.device ? 500ms : 20ms);
        BOOST_TEST(!waiting.outcome);
        f.listener->close();
        co_await s.join();
        BOOST_TEST(waiting.failed(std::errc::connection_refused));
        auto next = co_await f.listener->next();
        BOOST_REQUIRE(!next);
        BOOST_TEST((next.error() == std::errc::operation_canceled));
        attempt late;
        co_await late.go(f, {});
        BOOST_TEST(late.failed(std::errc::connection_refused));
        f.listener->close();
    });
}

CONFORMANCE_CASE(close_and_stop_end_a_wait_for_peers)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        int ended = 0;
        const auto wait = [&]() -> task<void> {
            auto next = co_await f.listener->next();
            ended += !next && next.error() == std::errc::operation_canceled;
        };
        {
            scope s(f.shard());
            s.spawn(wait);
            s.request_stop();
            co_await s.join();
        }
        BOOST_TEST(ended == 1);
        scope s(f.shard());
        s.spawn(wait);
        f.listener->close();
        co_await s.join();
        BOOST_TEST(ended == 2);
    });
}

CONFORMANCE_CASE(connect_has_a_time_limit_and_can_be_stopped)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        verbs::connect_options o;
        o.timeout = 50ms;
        attempt a; // nobody answers it
        co_await a.go(f, o);
        BOOST_TEST(a.failed(std::errc::timed_out));
        attempt stopped;
        scope s(f.shard());
        s.spawn([&] { return stopped.go(f, {}); });
        co_await sleep_for(5ms);
        s.request_stop();
        co_await s.join();
        BOOST_TEST(stopped.failed(std::errc::operation_canceled));
    });
}

CONFORMANCE_CASE(read_depths_are_negotiated)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        const std::uint32_t most = f.can().max_outstanding_reads;
        struct wish {
            std::uint32_t c_ord, c_ird, s_ord, s_ird;
        };
        for (const wish w :
             {wish{16, 16, 16, 16}, wish{8, 2, 4, 6}, wish{3, 9, 100000, 100000}, wish{0, 1, 0, 1}}) {
            connection n;
            verbs::connect_options client, server;
            client.initiator_depth = w.c_ord;
            client.responder_resources = w.c_ird;
            server.initiator_depth = w.s_ord;
            server.responder_resources = w.s_ird;
            co_await f.connect(n, client, server);
            // RFC 6581 9.1, and the same of InfiniBand's CM: never more than the other end answers.
            const std::uint32_t answered = f.can().bounds_peer_reads ? w.s_ird : most;
            BOOST_TEST(n.c->max_reads() == std::min({w.c_ord, answered, most}));
            BOOST_TEST(n.s->max_reads() == std::min({w.s_ord, w.c_ird, most}));
            memory sink(co_await registered(*f.client.domain, 64 * 8));
            if (w.c_ord == 0) {
                BOOST_TEST(!post(*n.c, 1, opcode::rdma_read, {sink.part(0, 8)}));
                continue;
            }
            // As many as it was told are answered, and more wait their turn.
            memory source(co_await registered(*f.server.domain, pattern(64 * 8)));
            auto g = co_await f.server.domain->make_grant(source.bytes, verbs::access::remote_read, nullptr);
            BOOST_REQUIRE_MESSAGE(g, why(g));
            for (std::uint64_t i = 0; i < 64; ++i) {
                auto where = g->where();
                where.address += i * 8;
                BOOST_REQUIRE(post(*n.c, i, opcode::rdma_read, {sink.part(i * 8, 8)}, where));
            }
            const std::function<bool()> all = [&] { return n.c_seen.seen.size() == 64; };
            co_await f.until(all);
            for (std::uint64_t i = 0; i < 64; ++i)
                BOOST_TEST(n.c_seen.good(i));
            BOOST_TEST((sink.bytes == source.bytes));
        }
    });
}

CONFORMANCE_CASE(an_orderly_end_drains_and_flushes)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory out(co_await registered(*f.client.domain, pattern(3'000'000)));
        memory in(co_await registered(*f.server.domain, out.bytes.size()));
        memory spare(co_await registered(*f.server.domain, 10));
        BOOST_REQUIRE(post_receive(*n.s, 1, in.all()));
        BOOST_REQUIRE(post_receive(*n.s, 2, spare.all()));
        BOOST_REQUIRE(post(*n.c, 3, opcode::send, {out.all()}));
        n.c->disconnect();
        n.c->disconnect();
        BOOST_TEST(!n.c->connected());
        const auto late = post(*n.c, 4, opcode::send, {out.all()});
        BOOST_REQUIRE(!late);
        BOOST_TEST((late.error() == std::errc::not_connected));
        co_await f.both_ended(n);
        BOOST_TEST((in.bytes == out.bytes));
        BOOST_TEST(n.s_seen.find(1)->status == status::success);
        BOOST_TEST(n.s_seen.find(2)->status == status::work_request_flushed);
        BOOST_TEST(n.c_seen.find(3)->status == status::success);
        BOOST_TEST(n.c_seen.count(4) == 0u);
        BOOST_TEST(!n.s->connected());
        BOOST_TEST(!post(*n.s, 5, opcode::send, {in.part(0, 1)}));
        BOOST_TEST(!post_receive(*n.s, 6, spare.all()));
    });
}

CONFORMANCE_CASE(an_orderly_end_is_orderly_to_both)
{
    enum class by { client, server, both };
    for (const by closer : {by::client, by::server, by::both}) {
        fixture f(p);
        f.run([&]() -> task<void> {
            connection n;
            co_await f.connect(n);
            memory out(co_await registered(*f.client.domain, pattern(100)));
            memory in(co_await registered(*f.server.domain, 100));
            BOOST_REQUIRE(post_receive(*n.s, 1, in.all()));
            BOOST_REQUIRE(post_receive(*n.s, 2, in.all()));
            BOOST_REQUIRE(post(*n.c, 3, opcode::send, {out.all()}));
            const auto both_sent = [&] { return n.s_seen.good(1) && n.c_seen.good(3); };
            co_await f.until(both_sent);
            if (closer != by::server)
                n.c->disconnect();
            if (closer != by::client)
                n.s->disconnect();
            co_await f.both_ended(n);
            BOOST_TEST((n.c_seen.why == verbs::connection_end::orderly), n.c_seen.why.message());
            BOOST_TEST((n.s_seen.why == verbs::connection_end::orderly), n.s_seen.why.message());
        });
    }
}

CONFORMANCE_CASE(a_killed_connection_is_orderly_to_nobody)
{
    enum class how { kill_client, kill_server, destroy_client };
    for (const how end : {how::kill_client, how::kill_server, how::destroy_client}) {
        fixture f(p);
        f.run([&]() -> task<void> {
            connection n;
            co_await f.connect(n);
            memory out(co_await registered(*f.client.domain, pattern(100)));
            memory in(co_await registered(*f.server.domain, 100));
            BOOST_REQUIRE(post_receive(*n.s, 1, in.all()));
            BOOST_REQUIRE(post(*n.c, 3, opcode::send, {out.all()}));
            const auto both_sent = [&] { return n.s_seen.good(1) && n.c_seen.good(3); };
            co_await f.until(both_sent);
            const error cause(std::errc::owner_dead, "for a test");
            if (end == how::destroy_client)
                n.c.reset();
            else
                (end == how::kill_client ? n.c : n.s)->kill(cause);
            recorder& itself = end == how::kill_server ? n.s_seen : n.c_seen;
            recorder& peer = end == how::kill_server ? n.c_seen : n.s_seen;
            const auto peer_ended = [&] { return peer.ends == 1; };
            co_await f.until(peer_ended);
            if (end != how::destroy_client)
                BOOST_TEST((itself.why == std::errc::owner_dead), itself.why.message());
            // A connection manager has one word for both.
            BOOST_TEST((p.device || peer.why != verbs::connection_end::orderly), peer.why.message());
        });
    }
}

CONFORMANCE_CASE(an_abrupt_end_flushes_everything_once_and_in_order)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory in(co_await registered(*f.client.domain, 4096));
        memory out(co_await registered(*f.client.domain, 4096));
        memory target(co_await registered(*f.server.domain, 4096));
        auto g = co_await f.server.domain->make_grant(target.bytes, verbs::access::remote_read, nullptr);
        BOOST_REQUIRE(g);
        std::vector<std::uint64_t> expected;
        for (std::uint64_t i = 0; i < 50; ++i) {
            BOOST_REQUIRE(post_receive(*n.c, 1000 + i, in.all()));
            // Unsignalled ones show too when they fail.
            BOOST_REQUIRE(post(*n.c, i, opcode::rdma_read, {in.all()}, g->where(), 0, i % 2 == 0));
            expected.push_back(i);
        }
        n.c->kill(error(std::errc::owner_dead, "for a test"));
        BOOST_TEST(n.c_seen.ends == 1u);
        BOOST_TEST((n.c_seen.why == std::errc::owner_dead));
        // A device works on while the shard does not turn: some may be over. Then come all the others.
        std::vector<std::uint64_t> flushed;
        for (const auto& c : n.c_seen.seen) {
            if (c.opcode == opcode::receive)
                continue;
            BOOST_TEST((c.status == status::work_request_flushed ||
                        (p.device && c.status == status::success && flushed.empty())));
            if (c.status == status::work_request_flushed)
                flushed.push_back(c.id);
        }
        if (p.device)
            expected.erase(expected.begin(),
                           expected.end() - std::ptrdiff_t(std::min<std::size_t>(flushed.size(), 50)));
        BOOST_TEST(flushed == expected, boost::test_tools::per_element());
        BOOST_TEST(n.c_seen.order(true).size() == 50u);
        BOOST_TEST((std::ranges::is_sorted(n.c_seen.order(true))));
        BOOST_TEST((std::ranges::all_of(n.c_seen.seen, [](const verbs::completion& c) {
            return c.status == status::work_request_flushed || c.opcode != opcode::receive;
        })));
        BOOST_TEST(!n.c->connected());
        const auto late = post(*n.c, 99, opcode::send, {out.all()});
        BOOST_REQUIRE(!late);
        BOOST_TEST((late.error() == std::errc::not_connected));
        n.c->kill(error(std::errc::io_error, "again"));
        n.c->disconnect();
        co_await f.both_ended(n);
    });
}

// Some are carried out by then, some on their way, and of some the answer is.
CONFORMANCE_CASE(an_end_at_any_moment_completes_each_request_once)
{
    for (const auto delay :
         {0us, 10us, 40us, 70us, 100us, 150us, 200us, 300us, 500us, 800us, 1200us, 2000us, 3000us, 5000us}) {
        fixture f(p);
        f.run([&]() -> task<void> {
            connection n;
            co_await f.connect(n);
            memory in(co_await registered(*f.server.domain, 64));
            memory out(co_await registered(*f.client.domain, pattern(64)));
            memory back(co_await registered(*f.client.domain, 64));
            auto g = co_await f.server.domain->make_grant(in.bytes, verbs::access::remote_read, nullptr);
            BOOST_REQUIRE(g);
            std::vector<std::uint64_t> expected;
            for (std::uint64_t i = 0; i < 20; ++i) {
                BOOST_REQUIRE(post_receive(*n.s, i, in.all()));
                BOOST_REQUIRE(i % 4 == 3 ? post(*n.c, i, opcode::rdma_read, {back.all()}, g->where())
                                         : post(*n.c, i, opcode::send, {out.all()}));
                expected.push_back(i);
            }
            if (delay != 0us)
                co_await sleep_for(delay);
            n.c->kill(error(std::errc::owner_dead, "for a test"));
            BOOST_TEST(n.c_seen.order(false) == expected, boost::test_tools::per_element());
            co_await f.both_ended(n);
            BOOST_TEST(n.s_seen.order(true) == expected, boost::test_tools::per_element());
        });
    }
}

CONFORMANCE_CASE(a_destroyed_queue_pair_ends_the_peers_and_touches_nothing_more)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        // A device may be so quick that only what fits goes on until the end.
        memory in(co_await registered(*f.server.domain, p.device ? 2'000'000 : 64));
        auto out = std::make_unique<memory>(co_await registered(*f.client.domain, pattern(2'000'000)));
        for (std::uint64_t i = 1; i <= (p.device ? 16 : 1); ++i)
            BOOST_REQUIRE(post_receive(*n.s, i, in.all()));
        for (std::uint64_t i = 0; i < 16; ++i) {
            const auto posted = post(*n.c, i, opcode::send, {out->all()});
            BOOST_REQUIRE_MESSAGE(posted, why(posted));
        }
        n.c.reset();
        out.reset(); // no sanitizer shall see it read
        const std::function<bool()> ended = [&] { return n.s_seen.ends != 0; };
        co_await f.until(ended);
        BOOST_TEST(n.s_seen.ends == 1u);
        if (!p.device)
            BOOST_TEST(n.s_seen.find(1)->status == status::work_request_flushed);
        BOOST_TEST(n.c_seen.seen.empty()); // who is gone hears nothing
        BOOST_TEST(n.c_seen.ends == 0u);
    });
}

CONFORMANCE_CASE(connections_do_not_disturb_each_other)
{
    constexpr std::size_t count = 20;
    fixture f(p);
    f.run([&]() -> task<void> {
        std::vector<std::unique_ptr<connection>> all;
        for (std::size_t i = 0; i < count; ++i) {
            all.push_back(std::make_unique<connection>());
            co_await f.connect(*all.back());
        }
        memory in(co_await registered(*f.server.domain, count * 16));
        memory out(co_await registered(*f.client.domain, pattern(count * 16)));
        for (std::size_t i = 0; i < count; ++i) {
            BOOST_REQUIRE(post_receive(*all[i]->s, 1, in.part(i * 16, 16)));
            if (i % 2 == 0)
                all[i]->c->kill(error(std::errc::owner_dead, "for a test"));
            else
                BOOST_REQUIRE(post(*all[i]->c, 2, opcode::send, {out.part(i * 16, 16)}));
        }
        const std::function<bool()> done = [&] {
            return std::ranges::all_of(all, [](const auto& n) { return n->s_seen.find(1) != nullptr; });
        };
        co_await f.until(done);
        for (std::size_t i = 0; i < count; ++i) {
            BOOST_TEST((all[i]->s_seen.find(1)->status == status::success) == (i % 2 == 1));
            BOOST_TEST((all[i]->s_seen.ends == 0u) == (i % 2 == 1));
        }
    });
}

CONFORMANCE_CASE(a_handler_may_post_and_may_end_the_connection)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory in(co_await registered(*f.server.domain, 64));
        memory out(co_await registered(*f.client.domain, pattern(64)));
        int rounds = 0;
        // Each message asks for the next.
        n.s_seen.hook = [&](const verbs::completion& c) {
            // More may stand in the batch that ended it.
            if (c.status != status::success || rounds == 20)
                return;
            if (++rounds == 20) {
                n.s->kill(error(std::errc::owner_dead, "enough"));
                return;
            }
            BOOST_TEST(bool(post_receive(*n.s, 1, in.all())));
        };
        n.c_seen.hook = [&](const verbs::completion& c) {
            if (c.status == status::success)
                (void)post(*n.c, 2, opcode::send, {out.all()});
        };
        BOOST_REQUIRE(post_receive(*n.s, 1, in.all()));
        if (!f.can().receive_not_ready_retry) {
            // One receive at a time is not enough there.
            for (int i = 0; i < 100; ++i)
                BOOST_REQUIRE(post_receive(*n.s, 1, in.all()));
        }
        BOOST_REQUIRE(post(*n.c, 2, opcode::send, {out.all()}));
        co_await f.both_ended(n);
        BOOST_TEST(rounds == 20);
        BOOST_TEST((n.s_seen.why == std::errc::owner_dead));
    });
}

BOOST_AUTO_TEST_SUITE_END()
