// SPDX-License-Identifier: Apache-2.0
// Work requests: what arrives, in which order, and what happens when there is no room for it.

#include "conformance.hpp"

BOOST_AUTO_TEST_SUITE(conformance_messages_test)

using namespace verbena;
using namespace verbena::conformance;

CONFORMANCE_CASE(every_operation_at_every_size)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        std::uint64_t id = 0;
        for (std::size_t size : {0u, 1u, 7u, 1000u, 8192u, 65536u, 1'000'001u}) {
            id += 10;
            memory out(co_await registered(*f.client.domain, pattern(size, size)));
            memory in(co_await registered(*f.server.domain, size + 16));
            BOOST_REQUIRE(post_receive(*n.s, id, in.all()));
            std::vector<verbs::segment> parts = {out.part(0, size / 3), out.part(size / 3, size - size / 3)};
            if (f.can().max_send_segments < 2)
                parts = {out.all()};
            BOOST_REQUIRE(post(*n.c, id + 1, opcode::send, parts));
            const std::function<bool()> sent = [&] { return n.s_seen.find(id) && n.c_seen.find(id + 1); };
            co_await f.until(sent);
            BOOST_TEST(n.s_seen.find(id)->status == status::success);
            BOOST_TEST(n.c_seen.find(id + 1)->status == status::success);
            BOOST_TEST(n.s_seen.find(id)->length == size);
            BOOST_TEST(n.s_seen.find(id)->invalidated_key == 0u);
            BOOST_TEST((std::equal(out.bytes.begin(), out.bytes.end(), in.bytes.begin())));
            BOOST_TEST(
                (std::vector<std::byte>(in.bytes.end() - 16, in.bytes.end()) == std::vector<std::byte>(16)));

            memory target(co_await registered(*f.server.domain, size));
            auto g = co_await f.server.domain->make_grant(
                target.bytes, verbs::access::remote_write | verbs::access::remote_read, nullptr);
            BOOST_REQUIRE(g);
            BOOST_REQUIRE(post(*n.c, id + 2, opcode::rdma_write, parts, g->where()));
            memory back(co_await registered(*f.client.domain, size));
            std::vector<verbs::segment> sinks = {back.all()};
            if (f.can().max_read_segments > 1)
                sinks = {back.part(0, size / 2), back.part(size / 2, size - size / 2)};
            BOOST_REQUIRE(post(*n.c, id + 3, opcode::rdma_read, sinks, g->where()));
            const std::function<bool()> read = [&] { return n.c_seen.find(id + 3) != nullptr; };
            co_await f.until(read);
            BOOST_TEST(n.c_seen.find(id + 2)->status == status::success);
            BOOST_TEST(n.c_seen.find(id + 3)->status == status::success);
            BOOST_TEST(n.c_seen.find(id + 3)->length == size);
            BOOST_TEST((target.bytes == out.bytes));
            BOOST_TEST((back.bytes == out.bytes));
        }
        BOOST_TEST(n.c_seen.ends == 0u);
        BOOST_TEST(n.s_seen.ends == 0u);
    });
}

CONFORMANCE_CASE(each_direction_completes_in_order_and_writes_precede_sends)
{
    constexpr std::size_t rounds = 100;
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory target(co_await registered(*f.server.domain, rounds));
        auto g = co_await f.server.domain->make_grant(target.bytes, verbs::access::remote_write, nullptr);
        BOOST_REQUIRE(g);
        memory in(co_await registered(*f.server.domain, rounds * 3000));
        memory out(co_await registered(*f.client.domain, pattern(3000)));
        memory answers(co_await registered(*f.client.domain, rounds * 8));
        memory ones(co_await registered(*f.client.domain, std::vector<std::byte>(rounds, std::byte(1))));
        std::size_t received = 0;
        bool in_order = true;
        n.s_seen.hook = [&](const verbs::completion& c) {
            if (c.opcode != opcode::receive)
                return;
            // The Write of this round, posted before its Send, is there.
            in_order = in_order && c.id == received && target.bytes[received] == std::byte(1) &&
                       c.length == 1 + received * 29;
            ++received;
        };
        for (std::size_t i = 0; i < rounds; ++i) {
            BOOST_REQUIRE(post_receive(*n.s, i, in.part(i * 3000, 3000)));
            BOOST_REQUIRE(post_receive(*n.c, 1000 + i, answers.part(i * 8, 8)));
        }
        std::vector<std::uint64_t> expected;
        for (std::size_t i = 0; i < rounds; ++i) {
            auto at = g->where();
            at.address += i;
            BOOST_REQUIRE(post(*n.c, 2 * i, opcode::rdma_write, {ones.part(i, 1)}, at));
            BOOST_REQUIRE(post(*n.c, 2 * i + 1, opcode::send, {out.part(0, 1 + i * 29)}));
            BOOST_REQUIRE(post(*n.s, 5000 + i, opcode::send, {in.part(0, 8)}));
            expected.push_back(2 * i);
            expected.push_back(2 * i + 1);
        }
        const std::function<bool()> done = [&] {
            return n.c_seen.seen.size() == 3 * rounds && n.s_seen.seen.size() == 2 * rounds;
        };
        co_await f.until(done);
        BOOST_TEST(in_order);
        BOOST_TEST(received == rounds);
        BOOST_TEST(n.c_seen.order(false) == expected, boost::test_tools::per_element());
        BOOST_TEST((std::ranges::is_sorted(n.c_seen.order(true))));
        BOOST_TEST((std::ranges::is_sorted(n.s_seen.order(false))));
    });
}

CONFORMANCE_CASE(unsignalled_work_is_retired_by_a_later_completion)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        verbs::connect_options o;
        o.queue_pair.send_depth = 16;
        co_await f.connect(n, o);
        memory target(co_await registered(*f.server.domain, 64));
        memory out(co_await registered(*f.client.domain, pattern(64)));
        auto g = co_await f.server.domain->make_grant(target.bytes, verbs::access::remote_write, nullptr);
        BOOST_REQUIRE(g);
        // Many times what the queue holds.
        for (std::uint64_t round = 0; round < 20; ++round) {
            for (std::size_t i = 0; i < 15; ++i) {
                auto at = g->where();
                at.address += i;
                BOOST_REQUIRE(post(*n.c, 9999, opcode::rdma_write, {out.part(i, 1)}, at, 0, false));
            }
            BOOST_REQUIRE(post(*n.c, round, opcode::rdma_write, {out.all()}, g->where()));
            const std::function<bool()> done = [&] { return n.c_seen.find(round) != nullptr; };
            co_await f.until(done);
            BOOST_TEST(n.c_seen.find(round)->status == status::success);
        }
        BOOST_TEST(n.c_seen.count(9999) == 0u);
        BOOST_TEST(n.c_seen.seen.size() == 20u);
        const std::function<bool()> there = [&] { return target.bytes == out.bytes; };
        co_await f.until(there);
    });
}

CONFORMANCE_CASE(a_batch_without_room_is_refused_whole)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        verbs::connect_options o;
        o.queue_pair.send_depth = 8;
        o.queue_pair.receive_depth = 8;
        co_await f.connect(n, o, o);
        memory in(co_await registered(*f.server.domain, 64));
        memory out(co_await registered(*f.client.domain, 64));
        std::vector<verbs::receive_request> receives(9);
        for (std::size_t i = 0; i < receives.size(); ++i)
            receives[i] = {i, in.part(i, 1)};
        const auto all_receives = n.s->post_receive(receives);
        BOOST_REQUIRE(!all_receives);
        BOOST_TEST((all_receives.error() == std::errc::no_buffer_space));
        BOOST_REQUIRE(n.s->post_receive(std::span(receives).first(8)));

        const std::vector<verbs::segment> byte = {out.part(0, 1)};
        std::vector<verbs::send_request> sends(9);
        for (std::size_t i = 0; i < sends.size(); ++i) {
            sends[i].id = 100 + i;
            sends[i].segments = byte;
        }
        const auto all = n.c->post_send(sends);
        BOOST_REQUIRE(!all);
        BOOST_TEST((all.error() == std::errc::no_buffer_space));
        BOOST_REQUIRE(n.c->post_send(std::span(sends).first(8)));
        const auto more = n.c->post_send(std::span(sends).last(1));
        BOOST_REQUIRE(!more);
        BOOST_TEST((more.error() == std::errc::no_buffer_space));
        const std::function<bool()> done = [&] {
            return n.c_seen.seen.size() >= 8 && n.s_seen.seen.size() >= 8;
        };
        co_await f.until(done);
        co_await sleep_for(2ms);
        BOOST_TEST(n.c_seen.seen.size() == 8u);
        BOOST_TEST(n.s_seen.seen.size() == 8u);
        BOOST_TEST(n.c_seen.count(108) == 0u);
        // And there is room again.
        BOOST_REQUIRE(n.s->post_receive(std::span(receives).first(8)));
        BOOST_REQUIRE(n.c->post_send(std::span(sends).first(8)));
        const std::function<bool()> again = [&] { return n.s_seen.seen.size() == 16; };
        co_await f.until(again);
    });
}

CONFORMANCE_CASE(requests_beyond_what_query_says_are_refused)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory out(co_await registered(*f.client.domain, 64));
        const std::vector<verbs::segment> enough(f.can().max_send_segments + 1, out.part(0, 1));
        const auto segments = post(*n.c, 1, opcode::send, enough);
        BOOST_REQUIRE(!segments);
        BOOST_TEST((segments.error() == std::errc::argument_list_too_long));
        const std::vector<verbs::segment> sinks(f.can().max_read_segments + 1, out.part(0, 1));
        BOOST_TEST(!post(*n.c, 2, opcode::rdma_read, sinks));
        verbs::segment huge = out.all();
        huge.length = f.can().max_message + 1;
        const auto message = post(*n.c, 3, opcode::send, {huge});
        BOOST_REQUIRE(!message);
        BOOST_TEST((message.error() == std::errc::message_size));
        const auto invalidate = post(*n.c, 4, opcode::send_with_invalidate, {out.all()}, {}, 1);
        if (!f.can().remote_invalidate) {
            BOOST_REQUIRE(!invalidate);
            BOOST_TEST((invalidate.error() == std::errc::operation_not_supported));
            // Nothing of it went out.
            co_await sleep_for(2ms);
            BOOST_TEST(n.c_seen.seen.empty());
            BOOST_TEST(n.c->connected());
        } else {
            BOOST_TEST(bool(invalidate));
        }
    });
}

CONFORMANCE_CASE(queues_as_deep_as_asked_for)
{
    constexpr std::uint32_t depth = 1000;
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        verbs::connect_options o;
        o.queue_pair.send_depth = o.queue_pair.receive_depth = depth;
        co_await f.connect(n, o, o);
        memory in(co_await registered(*f.server.domain, depth * 64));
        memory out(co_await registered(*f.client.domain, pattern(depth * 64)));
        for (std::uint32_t i = 0; i < depth; ++i)
            BOOST_REQUIRE(post_receive(*n.s, i, in.part(i * 64, 64)));
        for (std::uint32_t i = 0; i < depth; ++i)
            BOOST_REQUIRE(post(*n.c, i, opcode::send, {out.part(i * 64, 64)}));
        const std::function<bool()> sent = [&] {
            return n.c_seen.seen.size() == depth && n.s_seen.seen.size() == depth;
        };
        co_await f.until(sent);
        BOOST_TEST((in.bytes == out.bytes));

        // Reads far beyond the ORD wait for it.
        n.c_seen.seen.clear();
        memory back(co_await registered(*f.client.domain, depth * 64));
        auto g = co_await f.server.domain->make_grant(in.bytes, verbs::access::remote_read, nullptr);
        BOOST_REQUIRE(g);
        BOOST_TEST(n.c->max_reads() >= 1u);
        BOOST_TEST(n.c->max_reads() <= f.can().max_outstanding_reads);
        std::vector<std::uint64_t> expected;
        for (std::uint32_t i = 0; i < depth; ++i) {
            auto from = g->where();
            from.address += i * 64;
            BOOST_REQUIRE(post(*n.c, i, opcode::rdma_read, {back.part(i * 64, 64)}, from));
            expected.push_back(i);
        }
        const std::function<bool()> read = [&] { return n.c_seen.seen.size() == depth; };
        co_await f.until(read);
        BOOST_TEST((back.bytes == out.bytes));
        BOOST_TEST((n.c_seen.order(false) == expected));
        BOOST_TEST(n.c_seen.ends == 0u);
    });
}

CONFORMANCE_CASE(a_fence_waits_for_reads)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory source(co_await registered(*f.server.domain, pattern(300'000)));
        memory sink(co_await registered(*f.client.domain, source.bytes.size()));
        memory in(co_await registered(*f.server.domain, 8));
        memory out(co_await registered(*f.client.domain, 8));
        auto g = co_await f.server.domain->make_grant(source.bytes, verbs::access::remote_read, nullptr);
        BOOST_REQUIRE(g);
        bool was_there = false;
        n.s_seen.hook = [&](const verbs::completion&) { was_there = sink.bytes == source.bytes; };
        BOOST_REQUIRE(post_receive(*n.s, 1, in.all()));
        const std::vector<verbs::segment> sinks = {sink.all()};
        const std::vector<verbs::segment> message = {out.all()};
        std::vector<verbs::send_request> batch(2);
        batch[0].id = 2;
        batch[0].opcode = opcode::rdma_read;
        batch[0].segments = sinks;
        batch[0].remote_address = g->where().address;
        batch[0].remote_key = g->where().key;
        batch[1].id = 3;
        batch[1].fence = true;
        batch[1].segments = message;
        BOOST_REQUIRE(n.c->post_send(batch));
        const std::function<bool()> done = [&] { return n.s_seen.find(1) != nullptr; };
        co_await f.until(done);
        BOOST_TEST(was_there);
    });
}

CONFORMANCE_CASE(a_send_that_comes_before_its_receive)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory in(co_await registered(*f.server.domain, 64));
        memory out(co_await registered(*f.client.domain, pattern(64)));
        BOOST_REQUIRE(post(*n.c, 1, opcode::send, {out.all()}));
        co_await sleep_for(1ms);
        if (f.can().receive_not_ready_retry) {
            BOOST_TEST(n.c_seen.seen.empty());
            BOOST_REQUIRE(post_receive(*n.s, 2, in.all()));
            const std::function<bool()> done = [&] { return n.s_seen.good(2) && n.c_seen.good(1); };
            co_await f.until(done);
            BOOST_TEST((in.bytes == out.bytes));
            // Retries are bounded.
            BOOST_REQUIRE(post(*n.c, 3, opcode::send, {out.all()}));
            co_await f.both_ended(n);
            BOOST_TEST(n.c_seen.find(3)->status == status::rnr_retry_exceeded);
        } else {
            co_await f.both_ended(n);
            if (f.can().completion_means_delivered)
                BOOST_TEST(n.c_seen.find(1)->status != status::success);
        }
    });
}

CONFORMANCE_CASE(a_message_longer_than_its_receive)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory in(co_await registered(*f.server.domain, 128));
        memory out(co_await registered(*f.client.domain, pattern(65)));
        BOOST_REQUIRE(post_receive(*n.s, 1, in.part(0, 64)));
        BOOST_REQUIRE(post_receive(*n.s, 2, in.part(64, 64)));
        BOOST_REQUIRE(post(*n.c, 3, opcode::send, {out.all()}));
        co_await f.both_ended(n);
        BOOST_REQUIRE(n.s_seen.find(1) != nullptr);
        // rxe calls it a protection error, and tells the peer of an operation error.
        BOOST_TEST((n.s_seen.find(1)->status == status::local_length_error ||
                    (p.device && n.s_seen.find(1)->status == status::local_protection_error)));
        BOOST_REQUIRE(n.s_seen.find(2) != nullptr);
        BOOST_TEST(n.s_seen.find(2)->status == status::work_request_flushed);
        BOOST_TEST(
            (std::vector<std::byte>(in.bytes.begin() + 64, in.bytes.end()) == std::vector<std::byte>(64)));
        if (f.can().completion_means_delivered)
            BOOST_TEST((n.c_seen.find(3)->status == status::remote_invalid_request ||
                        (p.device && n.c_seen.find(3)->status == status::remote_operation_error)));
    });
}

CONFORMANCE_CASE(a_message_shorter_than_its_receive_leaves_the_rest)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory in(co_await registered(*f.server.domain, std::vector<std::byte>(4096, std::byte(0xee))));
        memory out(co_await registered(*f.client.domain, pattern(100)));
        BOOST_REQUIRE(post_receive(*n.s, 1, in.all()));
        BOOST_REQUIRE(post(*n.c, 2, opcode::send, {out.all()}));
        const std::function<bool()> done = [&] { return n.s_seen.good(1); };
        co_await f.until(done);
        BOOST_TEST(n.s_seen.find(1)->length == 100u);
        BOOST_TEST((std::equal(out.bytes.begin(), out.bytes.end(), in.bytes.begin())));
        BOOST_TEST(std::ranges::count(in.bytes, std::byte(0xee)) >= 4096 - 100);
        BOOST_TEST((std::all_of(in.bytes.begin() + 100, in.bytes.end(),
                                [](std::byte b) { return b == std::byte(0xee); })));
    });
}

BOOST_AUTO_TEST_SUITE_END()
