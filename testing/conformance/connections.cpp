// SPDX-License-Identifier: Apache-2.0
// How connections begin and end.

#include "fixture.hpp"

#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/event.hpp>

#include <algorithm>
#include <optional>
#include <utility>

namespace verbena::testing::conformance {
namespace connections {
namespace {

using connect_result = result<std::unique_ptr<verbs::queue_pair>>;

// connect(), beside whatever the test does with the request.
struct attempt {
    explicit attempt(fixture& f) : seen(f.complaint) {}
    task<void> go(fixture& f, verbs::connect_options o)
    {
        outcome.emplace(co_await f.client.context->connect(f.where, *f.client.domain, o, reply));
        if (*outcome)
            (**outcome)->set_handler(&seen);
    }
    bool failed(std::errc e) const { return outcome && !*outcome && outcome->error() == e; }
    std::vector<std::byte> reply;
    recorder seen;
    std::optional<connect_result> outcome; // its queue pair goes first
};

// As it was sent, with the zeros that some providers add.
bool same(fixture& f, std::span<const std::byte> got, std::span<const std::byte> sent)
{
    if (!f.can().private_data_padded)
        return std::ranges::equal(got, sent);
    return got.size() >= sent.size() && std::ranges::equal(got.first(sent.size()), sent) &&
           std::ranges::all_of(got.subspan(sent.size()), [](std::byte b) { return b == std::byte(0); });
}

task<std::unique_ptr<verbs::connect_request>> next_request(fixture& f)
{
    auto next = co_await with_timeout(fixture::waits_for_peer, f.listener->next());
    VERBENA_MUST(next);
    co_return std::move(*next);
}

task<std::unique_ptr<verbs::queue_pair>> made_queue_pair(fixture& f, verbs::connect_request& r)
{
    auto made = co_await r.make_queue_pair(*f.server.domain, {});
    VERBENA_MUST(made);
    co_return std::move(*made);
}

// No timer of ours helps: what the provider does not wake the host for hangs.
void a_connection_lives_in_a_host_loop(subject& p)
{
    fixture f(p);
    f.run_nested([&]() -> task<void> {
        memory from = co_await registered(*f.client.domain, pattern(40'000));
        memory to = co_await registered(*f.server.domain, 40'000);
        event arrived;
        // Its queue pairs go first: where the check fails, the shard turns on, and they use all of these.
        connection n;
        co_await f.connect(n);
        n.s_seen.hook = [&arrived](const verbs::completion&) { arrived.set(); };
        for (std::uint64_t i = 1; i <= 20; ++i) {
            VERBENA_MUST(post_receive(*n.s, i, to.all()));
            VERBENA_MUST(post(*n.c, i, opcode::send, {from.all()}));
            const bool came = co_await arrived.wait();
            VERBENA_MUST(came);
            arrived.reset();
            VERBENA_MUST(n.s_seen.good(i));
            VERBENA_MUST(to.bytes == from.bytes);
            std::ranges::fill(to.bytes, std::byte(0));
        }
        n.c->disconnect();
        co_await f.both_ended(n);
    });
}

void private_data_travels_both_ways(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        const std::size_t most = f.can().max_private_data;
        VERBENA_MUST(most >= 56u);
        for (std::size_t size : {std::size_t(0), std::size_t(1), std::size_t(56), most}) {
            const auto question = pattern(size, 3);
            const auto answer = pattern(size, 4);
            verbs::connect_options o;
            o.private_data = question;
            attempt a(f);
            recorder seen(f.complaint);
            std::unique_ptr<verbs::connect_request> request;
            std::unique_ptr<verbs::queue_pair> q;
            const auto connects = [&] { return a.go(f, o); };
            const auto answers = [&]() -> task<void> {
                request = co_await next_request(f);
                VERBENA_MUST(same(f, request->private_data(), question));
                q = co_await made_queue_pair(f, *request);
                VERBENA_MUST(!q->connected());
                q->set_handler(&seen);
                verbs::connect_options theirs;
                theirs.private_data = answer;
                const auto accepted = co_await request->accept(theirs);
                VERBENA_MUST(accepted);
            };
            co_await f.beside(connects, answers);
            VERBENA_MUST(a.outcome && *a.outcome);
            VERBENA_MUST(same(f, a.reply, answer));
            VERBENA_MUST(q->connected());
            VERBENA_MUST((**a.outcome)->connected());
            VERBENA_MUST(!q->peer_address().empty());
            VERBENA_MUST(!q->peer_name().empty());
            VERBENA_MUST(request->peer_address() == q->peer_address());
            VERBENA_MUST(!(**a.outcome)->peer_name().empty());
        }
        const auto too_long = pattern(most + 1);
        verbs::connect_options o;
        o.private_data = too_long;
        attempt a(f);
        co_await a.go(f, o);
        VERBENA_MUST(a.failed(std::errc::message_size));
    });
}

void an_answer_longer_than_private_data_may_be(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        attempt a(f);
        const auto connects = [&] { return a.go(f, {}); };
        const auto answers = [&]() -> task<void> {
            const auto request = co_await next_request(f);
            recorder seen(f.complaint);
            const auto q = co_await made_queue_pair(f, *request);
            q->set_handler(&seen);
            const auto too_long = pattern(f.can().max_private_data + 1);
            verbs::connect_options o;
            o.private_data = too_long;
            const auto accepted = co_await request->accept(o);
            VERBENA_MUST(!accepted);
            VERBENA_MUST_EQUAL(accepted.error(), std::errc::message_size);
            VERBENA_MUST(!q->connected());
        };
        co_await f.beside(connects, answers);
        VERBENA_MUST(a.outcome.has_value());
        VERBENA_MUST(!*a.outcome);
    });
}

void a_reject_carries_private_data(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        attempt a(f);
        const auto why = pattern(20, 8);
        const auto connects = [&] { return a.go(f, {}); };
        const auto rejects = [&]() -> task<void> {
            const auto request = co_await next_request(f);
            const auto rejected = co_await request->reject(why);
            VERBENA_MUST(rejected);
        };
        co_await f.beside(connects, rejects);
        VERBENA_MUST(a.failed(std::errc::connection_refused));
        VERBENA_MUST(same(f, a.reply, why));
    });
}

void a_request_that_nobody_answers_is_refused(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        attempt a(f);
        const auto connects = [&] { return a.go(f, {}); };
        const auto forgets = [&]() -> task<void> { (void)co_await next_request(f); };
        co_await f.beside(connects, forgets);
        VERBENA_MUST(a.failed(std::errc::connection_refused));
    });
}

// By the service, between make_queue_pair() and accept(): nothing is answered then, and nobody's descriptor is used.
void a_queue_pair_that_ends_before_it_is_accepted(subject& p)
{
    using queue_pair = std::unique_ptr<verbs::queue_pair>;
    static constexpr void (*ways[])(queue_pair&) = {
        [](queue_pair& q) { q.reset(); },
        [](queue_pair& q) { q->kill(error(std::errc::operation_canceled, "a test")); },
        [](queue_pair& q) { q->disconnect(); },
    };
    fixture f(p);
    f.run([&]() -> task<void> {
        for (const auto ends : ways) {
            attempt a(f);
            const auto connects = [&] { return a.go(f, {}); };
            const auto answers = [&]() -> task<void> {
                const auto request = co_await next_request(f);
                recorder seen(f.complaint);
                queue_pair q = co_await made_queue_pair(f, *request);
                q->set_handler(&seen);
                ends(q);
                const verbs::connect_options plain;
                const auto accepted = co_await request->accept(plain);
                VERBENA_MUST(!accepted);
                VERBENA_MUST_EQUAL(accepted.error(), std::errc::connection_aborted);
                VERBENA_MUST(!q || !q->connected());
            };
            co_await f.beside(connects, answers);
            VERBENA_MUST(a.outcome.has_value());
            VERBENA_MUST(!*a.outcome);
        }
    });
}

void a_closed_listener(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        // Someone waits in next(), a peer waits for an answer.
        attempt waiting(f);
        const auto connects = [&] { return waiting.go(f, {}); };
        const auto closes = [&]() -> task<void> {
            // Linux's iw_cm drops a request that comes while its listener is destroyed, and its peer hears nothing: on a
            // device it shall have come before.
            co_await sleep_for(p.works_by_itself() ? 500ms : 20ms);
            VERBENA_MUST(!waiting.outcome);
            f.listener->close();
        };
        co_await f.beside(connects, closes);
        VERBENA_MUST(waiting.failed(std::errc::connection_refused));
        auto next = co_await f.listener->next();
        VERBENA_MUST(!next);
        VERBENA_MUST_EQUAL(next.error(), std::errc::operation_canceled);
        attempt late(f);
        co_await late.go(f, {});
        VERBENA_MUST(late.failed(std::errc::connection_refused));
        f.listener->close();
    });
}

void close_and_stop_end_a_wait_for_peers(subject& p)
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
        VERBENA_MUST_EQUAL(ended, 1);
        const auto close = [&]() -> task<void> {
            f.listener->close();
            co_return;
        };
        co_await f.beside(wait, close);
        VERBENA_MUST_EQUAL(ended, 2);
    });
}

void connect_has_a_time_limit_and_can_be_stopped(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        verbs::connect_options o;
        o.timeout = 50ms;
        attempt a(f); // nobody answers it
        co_await a.go(f, o);
        VERBENA_MUST(a.failed(std::errc::timed_out));
        attempt stopped(f);
        scope s(f.shard());
        s.spawn([&] { return stopped.go(f, {}); });
        co_await sleep_for(5ms);
        s.request_stop();
        co_await s.join();
        VERBENA_MUST(stopped.failed(std::errc::operation_canceled));
    });
}

void read_depths_are_negotiated(subject& p)
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
            VERBENA_MUST(n.c->max_reads() == std::min({w.c_ord, answered, most}));
            VERBENA_MUST(n.s->max_reads() == std::min({w.s_ord, w.c_ird, most}));
            memory sink(co_await registered(*f.client.domain, 64 * 8));
            if (w.c_ord == 0) {
                VERBENA_MUST(!post(*n.c, 1, opcode::rdma_read, {sink.part(0, 8)}));
                continue;
            }
            // As many as it was told are answered, and more wait their turn.
            memory source(co_await registered(*f.server.domain, pattern(64 * 8)));
            auto g = co_await f.server.domain->make_grant(source.bytes, verbs::access::remote_read, nullptr);
            VERBENA_MUST(g);
            for (std::uint64_t i = 0; i < 64; ++i) {
                auto where = g->where();
                where.address += i * 8;
                VERBENA_MUST(post(*n.c, i, opcode::rdma_read, {sink.part(i * 8, 8)}, where));
            }
            const std::function<bool()> all = [&] { return n.c_seen.seen.size() == 64; };
            co_await f.until(all);
            for (std::uint64_t i = 0; i < 64; ++i)
                VERBENA_MUST(n.c_seen.good(i));
            VERBENA_MUST(sink.bytes == source.bytes);
        }
    });
}

void an_orderly_end_drains_and_flushes(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory out(co_await registered(*f.client.domain, pattern(3'000'000)));
        memory in(co_await registered(*f.server.domain, out.bytes.size()));
        memory spare(co_await registered(*f.server.domain, 10));
        VERBENA_MUST(post_receive(*n.s, 1, in.all()));
        VERBENA_MUST(post_receive(*n.s, 2, spare.all()));
        VERBENA_MUST(post(*n.c, 3, opcode::send, {out.all()}));
        n.c->disconnect();
        n.c->disconnect();
        VERBENA_MUST(!n.c->connected());
        const auto late = post(*n.c, 4, opcode::send, {out.all()});
        VERBENA_MUST(!late);
        VERBENA_MUST_EQUAL(late.error(), std::errc::not_connected);
        co_await f.both_ended(n);
        VERBENA_MUST(in.bytes == out.bytes);
        VERBENA_MUST_EQUAL(n.s_seen.at(1).status, status::success);
        VERBENA_MUST_EQUAL(n.s_seen.at(2).status, status::work_request_flushed);
        VERBENA_MUST_EQUAL(n.c_seen.at(3).status, status::success);
        VERBENA_MUST_EQUAL(n.c_seen.count(4), 0u);
        VERBENA_MUST(!n.s->connected());
        VERBENA_MUST(!post(*n.s, 5, opcode::send, {in.part(0, 1)}));
        VERBENA_MUST(!post_receive(*n.s, 6, spare.all()));
    });
}

void an_orderly_end_is_orderly_to_both(subject& p)
{
    enum class by { client, server, both };
    for (const by closer : {by::client, by::server, by::both}) {
        fixture f(p);
        f.run([&]() -> task<void> {
            connection n;
            co_await f.connect(n);
            memory out(co_await registered(*f.client.domain, pattern(100)));
            memory in(co_await registered(*f.server.domain, 100));
            VERBENA_MUST(post_receive(*n.s, 1, in.all()));
            VERBENA_MUST(post_receive(*n.s, 2, in.all()));
            VERBENA_MUST(post(*n.c, 3, opcode::send, {out.all()}));
            const auto both_sent = [&] { return n.s_seen.good(1) && n.c_seen.good(3); };
            co_await f.until(both_sent);
            if (closer != by::server)
                n.c->disconnect();
            if (closer != by::client)
                n.s->disconnect();
            co_await f.both_ended(n);
            VERBENA_MUST(n.c_seen.why == verbs::connection_end::orderly);
            VERBENA_MUST(n.s_seen.why == verbs::connection_end::orderly);
        });
    }
}

void a_killed_connection_is_orderly_to_nobody(subject& p)
{
    enum class how { kill_client, kill_server, destroy_client };
    for (const how end : {how::kill_client, how::kill_server, how::destroy_client}) {
        fixture f(p);
        f.run([&]() -> task<void> {
            connection n;
            co_await f.connect(n);
            memory out(co_await registered(*f.client.domain, pattern(100)));
            memory in(co_await registered(*f.server.domain, 100));
            VERBENA_MUST(post_receive(*n.s, 1, in.all()));
            VERBENA_MUST(post(*n.c, 3, opcode::send, {out.all()}));
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
                VERBENA_MUST_EQUAL(itself.why, std::errc::owner_dead);
            // A connection manager has one word for both.
            VERBENA_MUST(p.works_by_itself() || peer.why != verbs::connection_end::orderly);
        });
    }
}

void an_abrupt_end_flushes_everything_once_and_in_order(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory in(co_await registered(*f.client.domain, 4096));
        memory out(co_await registered(*f.client.domain, 4096));
        memory target(co_await registered(*f.server.domain, 4096));
        auto g = co_await f.server.domain->make_grant(target.bytes, verbs::access::remote_read, nullptr);
        VERBENA_MUST(g);
        std::vector<std::uint64_t> expected;
        for (std::uint64_t i = 0; i < 50; ++i) {
            VERBENA_MUST(post_receive(*n.c, 1000 + i, in.all()));
            // Unsignalled ones show too when they fail.
            VERBENA_MUST(post(*n.c, i, opcode::rdma_read, {in.all()}, g->where(), 0, i % 2 == 0));
            expected.push_back(i);
        }
        n.c->kill(error(std::errc::owner_dead, "for a test"));
        VERBENA_MUST_EQUAL(n.c_seen.ends, 1u);
        VERBENA_MUST_EQUAL(n.c_seen.why, std::errc::owner_dead);
        // A device works on while the shard does not turn: some may be over. Then come all the others.
        std::vector<std::uint64_t> flushed;
        for (const auto& c : n.c_seen.seen) {
            if (c.opcode == opcode::receive)
                continue;
            VERBENA_MUST(c.status == status::work_request_flushed ||
                         (p.works_by_itself() && c.status == status::success && flushed.empty()));
            if (c.status == status::work_request_flushed)
                flushed.push_back(c.id);
        }
        if (p.works_by_itself())
            expected.erase(expected.begin(),
                           expected.end() - std::ptrdiff_t(std::min<std::size_t>(flushed.size(), 50)));
        VERBENA_MUST(flushed == expected);
        VERBENA_MUST_EQUAL(n.c_seen.order(true).size(), 50u);
        VERBENA_MUST(std::ranges::is_sorted(n.c_seen.order(true)));
        VERBENA_MUST(std::ranges::all_of(n.c_seen.seen, [](const verbs::completion& c) {
            return c.status == status::work_request_flushed || c.opcode != opcode::receive;
        }));
        VERBENA_MUST(!n.c->connected());
        const auto late = post(*n.c, 99, opcode::send, {out.all()});
        VERBENA_MUST(!late);
        VERBENA_MUST_EQUAL(late.error(), std::errc::not_connected);
        n.c->kill(error(std::errc::io_error, "again"));
        n.c->disconnect();
        co_await f.both_ended(n);
    });
}

// Some are carried out by then, some on their way, and of some the answer is.
void an_end_at_any_moment_completes_each_request_once(subject& p)
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
            VERBENA_MUST(g);
            std::vector<std::uint64_t> expected;
            for (std::uint64_t i = 0; i < 20; ++i) {
                VERBENA_MUST(post_receive(*n.s, i, in.all()));
                VERBENA_MUST(i % 4 == 3 ? post(*n.c, i, opcode::rdma_read, {back.all()}, g->where())
                                        : post(*n.c, i, opcode::send, {out.all()}));
                expected.push_back(i);
            }
            if (delay != 0us)
                co_await sleep_for(delay);
            n.c->kill(error(std::errc::owner_dead, "for a test"));
            VERBENA_MUST(n.c_seen.order(false) == expected);
            co_await f.both_ended(n);
            VERBENA_MUST(n.s_seen.order(true) == expected);
        });
    }
}

void a_destroyed_queue_pair_ends_the_peers_and_touches_nothing_more(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        // A device may be so quick that only what fits goes on until the end.
        memory in(co_await registered(*f.server.domain, p.works_by_itself() ? 2'000'000 : 64));
        auto out = std::make_unique<memory>(co_await registered(*f.client.domain, pattern(2'000'000)));
        for (std::uint64_t i = 1; i <= (p.works_by_itself() ? 16 : 1); ++i)
            VERBENA_MUST(post_receive(*n.s, i, in.all()));
        for (std::uint64_t i = 0; i < 16; ++i) {
            const auto posted = post(*n.c, i, opcode::send, {out->all()});
            VERBENA_MUST(posted);
        }
        n.c.reset();
        out.reset(); // no sanitizer shall see it read
        const std::function<bool()> ended = [&] { return n.s_seen.ends != 0; };
        co_await f.until(ended);
        VERBENA_MUST_EQUAL(n.s_seen.ends, 1u);
        if (!p.works_by_itself())
            VERBENA_MUST_EQUAL(n.s_seen.at(1).status, status::work_request_flushed);
        VERBENA_MUST(n.c_seen.seen.empty()); // who is gone hears nothing
        VERBENA_MUST_EQUAL(n.c_seen.ends, 0u);
    });
}

void connections_do_not_disturb_each_other(subject& p)
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
            VERBENA_MUST(post_receive(*all[i]->s, 1, in.part(i * 16, 16)));
            if (i % 2 == 0)
                all[i]->c->kill(error(std::errc::owner_dead, "for a test"));
            else
                VERBENA_MUST(post(*all[i]->c, 2, opcode::send, {out.part(i * 16, 16)}));
        }
        const std::function<bool()> done = [&] {
            return std::ranges::all_of(all, [](const auto& n) { return n->s_seen.find(1) != nullptr; });
        };
        co_await f.until(done);
        for (std::size_t i = 0; i < count; ++i) {
            VERBENA_MUST((all[i]->s_seen.at(1).status == status::success) == (i % 2 == 1));
            VERBENA_MUST((all[i]->s_seen.ends == 0u) == (i % 2 == 1));
        }
    });
}

void a_handler_may_post_and_may_end_the_connection(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory in(co_await registered(*f.server.domain, 64));
        memory out(co_await registered(*f.client.domain, pattern(64)));
        constexpr std::size_t most_sends = 10'000; // some find no receive, and are sent again
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
            n.s_seen.expect(post_receive(*n.s, 1, in.all()).has_value(), "a handler can't post a receive");
        };
        n.c_seen.hook = [&](const verbs::completion& c) {
            // Not for ever with a provider that delivers none of them.
            if (c.status == status::success && n.c_seen.seen.size() < most_sends)
                (void)post(*n.c, 2, opcode::send, {out.all()});
        };
        VERBENA_MUST(post_receive(*n.s, 1, in.all()));
        if (!f.can().receive_not_ready_retry) {
            // One receive at a time is not enough there.
            for (int i = 0; i < 100; ++i)
                VERBENA_MUST(post_receive(*n.s, 1, in.all()));
        }
        VERBENA_MUST(post(*n.c, 2, opcode::send, {out.all()}));
        co_await f.both_ended(n);
        VERBENA_MUST_EQUAL(rounds, 20);
        VERBENA_MUST_EQUAL(n.s_seen.why, std::errc::owner_dead);
    });
}

constexpr check all[] = {
    {"a connection lives in a host loop", "connections", a_connection_lives_in_a_host_loop, nullptr},
    {"private data travels both ways", "connections", private_data_travels_both_ways, nullptr},
    {"an answer longer than private data may be", "connections", an_answer_longer_than_private_data_may_be,
     nullptr},
    {"a reject carries private data", "connections", a_reject_carries_private_data, nullptr},
    {"a request that nobody answers is refused", "connections", a_request_that_nobody_answers_is_refused,
     nullptr},
    {"a queue pair that ends before it is accepted", "connections",
     a_queue_pair_that_ends_before_it_is_accepted, nullptr},
    {"a closed listener", "connections", a_closed_listener, nullptr},
    {"close and stop end a wait for peers", "connections", close_and_stop_end_a_wait_for_peers, nullptr},
    {"connect has a time limit and can be stopped", "connections",
     connect_has_a_time_limit_and_can_be_stopped, nullptr},
    {"read depths are negotiated", "connections", read_depths_are_negotiated, nullptr},
    {"an orderly end drains and flushes", "connections", an_orderly_end_drains_and_flushes, nullptr},
    {"an orderly end is orderly to both", "connections", an_orderly_end_is_orderly_to_both, nullptr},
    {"a killed connection is orderly to nobody", "connections", a_killed_connection_is_orderly_to_nobody,
     nullptr},
    {"an abrupt end flushes everything once and in order", "connections",
     an_abrupt_end_flushes_everything_once_and_in_order, nullptr},
    {"an end at any moment completes each request once", "connections",
     an_end_at_any_moment_completes_each_request_once, nullptr},
    {"a destroyed queue pair ends the peers and touches nothing more", "connections",
     a_destroyed_queue_pair_ends_the_peers_and_touches_nothing_more, nullptr},
    {"connections do not disturb each other", "connections", connections_do_not_disturb_each_other, nullptr},
    {"a handler may post and may end the connection", "connections",
     a_handler_may_post_and_may_end_the_connection, nullptr},
};

} // namespace
} // namespace connections

std::span<const check> connection_checks() noexcept { return connections::all; }

} // namespace verbena::testing::conformance
