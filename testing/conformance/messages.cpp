// SPDX-License-Identifier: Apache-2.0
// Work requests: what arrives, in which order, and what happens when there is no room for it.

#include "fixture.hpp"

#include <algorithm>

namespace verbena::testing::conformance {
namespace messages {
namespace {

void every_operation_at_every_size(subject& p)
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
            VERBENA_MUST(post_receive(*n.s, id, in.all()));
            std::vector<verbs::segment> parts = {out.part(0, size / 3), out.part(size / 3, size - size / 3)};
            if (f.can().max_send_segments < 2)
                parts = {out.all()};
            VERBENA_MUST(post(*n.c, id + 1, opcode::send, parts));
            const std::function<bool()> sent = [&] { return n.s_seen.find(id) && n.c_seen.find(id + 1); };
            co_await f.until(sent);
            VERBENA_MUST_EQUAL(n.s_seen.at(id).status, status::success);
            VERBENA_MUST_EQUAL(n.c_seen.at(id + 1).status, status::success);
            VERBENA_MUST_EQUAL(n.s_seen.at(id).length, size);
            VERBENA_MUST_EQUAL(n.s_seen.at(id).invalidated_key, 0u);
            VERBENA_MUST(std::equal(out.bytes.begin(), out.bytes.end(), in.bytes.begin()));
            VERBENA_MUST(std::vector<std::byte>(in.bytes.end() - 16, in.bytes.end()) ==
                         std::vector<std::byte>(16));

            memory target(co_await registered(*f.server.domain, size));
            auto g = co_await f.server.domain->make_grant(
                target.bytes, verbs::access::remote_write | verbs::access::remote_read, nullptr);
            VERBENA_MUST(g);
            VERBENA_MUST(post(*n.c, id + 2, opcode::rdma_write, parts, g->where()));
            memory back(co_await registered(*f.client.domain, size));
            std::vector<verbs::segment> sinks = {back.all()};
            if (f.can().max_read_segments > 1)
                sinks = {back.part(0, size / 2), back.part(size / 2, size - size / 2)};
            VERBENA_MUST(post(*n.c, id + 3, opcode::rdma_read, sinks, g->where()));
            const std::function<bool()> read = [&] { return n.c_seen.find(id + 3) != nullptr; };
            co_await f.until(read);
            VERBENA_MUST_EQUAL(n.c_seen.at(id + 2).status, status::success);
            VERBENA_MUST_EQUAL(n.c_seen.at(id + 3).status, status::success);
            VERBENA_MUST_EQUAL(n.c_seen.at(id + 3).length, size);
            VERBENA_MUST(target.bytes == out.bytes);
            VERBENA_MUST(back.bytes == out.bytes);
        }
        VERBENA_MUST_EQUAL(n.c_seen.ends, 0u);
        VERBENA_MUST_EQUAL(n.s_seen.ends, 0u);
    });
}

void each_direction_completes_in_order_and_writes_precede_sends(subject& p)
{
    constexpr std::size_t rounds = 100;
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory target(co_await registered(*f.server.domain, rounds));
        auto g = co_await f.server.domain->make_grant(target.bytes, verbs::access::remote_write, nullptr);
        VERBENA_MUST(g);
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
            in_order = in_order && received < rounds && c.id == received &&
                       target.bytes[received] == std::byte(1) && c.length == 1 + received * 29;
            ++received;
        };
        for (std::size_t i = 0; i < rounds; ++i) {
            VERBENA_MUST(post_receive(*n.s, i, in.part(i * 3000, 3000)));
            VERBENA_MUST(post_receive(*n.c, 1000 + i, answers.part(i * 8, 8)));
        }
        std::vector<std::uint64_t> expected;
        for (std::size_t i = 0; i < rounds; ++i) {
            auto at = g->where();
            at.address += i;
            VERBENA_MUST(post(*n.c, 2 * i, opcode::rdma_write, {ones.part(i, 1)}, at));
            VERBENA_MUST(post(*n.c, 2 * i + 1, opcode::send, {out.part(0, 1 + i * 29)}));
            VERBENA_MUST(post(*n.s, 5000 + i, opcode::send, {in.part(0, 8)}));
            expected.push_back(2 * i);
            expected.push_back(2 * i + 1);
        }
        const std::function<bool()> done = [&] {
            return n.c_seen.seen.size() == 3 * rounds && n.s_seen.seen.size() == 2 * rounds;
        };
        co_await f.until(done);
        VERBENA_MUST(in_order);
        VERBENA_MUST_EQUAL(received, rounds);
        VERBENA_MUST(n.c_seen.order(false) == expected);
        VERBENA_MUST(std::ranges::is_sorted(n.c_seen.order(true)));
        VERBENA_MUST(std::ranges::is_sorted(n.s_seen.order(false)));
    });
}

void unsignalled_work_is_retired_by_a_later_completion(subject& p)
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
        VERBENA_MUST(g);
        // Many times what the queue holds.
        for (std::uint64_t round = 0; round < 20; ++round) {
            for (std::size_t i = 0; i < 15; ++i) {
                auto at = g->where();
                at.address += i;
                VERBENA_MUST(post(*n.c, 9999, opcode::rdma_write, {out.part(i, 1)}, at, 0, false));
            }
            VERBENA_MUST(post(*n.c, round, opcode::rdma_write, {out.all()}, g->where()));
            const std::function<bool()> done = [&] { return n.c_seen.find(round) != nullptr; };
            co_await f.until(done);
            VERBENA_MUST_EQUAL(n.c_seen.at(round).status, status::success);
        }
        VERBENA_MUST_EQUAL(n.c_seen.count(9999), 0u);
        VERBENA_MUST_EQUAL(n.c_seen.seen.size(), 20u);
        const std::function<bool()> there = [&] { return target.bytes == out.bytes; };
        co_await f.until(there);
    });
}

void a_batch_without_room_is_refused_whole(subject& p)
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
        VERBENA_MUST(!all_receives);
        VERBENA_MUST_EQUAL(all_receives.error(), std::errc::no_buffer_space);
        VERBENA_MUST(n.s->post_receive(std::span(receives).first(8)));

        const std::vector<verbs::segment> byte = {out.part(0, 1)};
        std::vector<verbs::send_request> sends(9);
        for (std::size_t i = 0; i < sends.size(); ++i) {
            sends[i].id = 100 + i;
            sends[i].segments = byte;
        }
        const auto all = n.c->post_send(sends);
        VERBENA_MUST(!all);
        VERBENA_MUST_EQUAL(all.error(), std::errc::no_buffer_space);
        VERBENA_MUST(n.c->post_send(std::span(sends).first(8)));
        const auto more = n.c->post_send(std::span(sends).last(1));
        VERBENA_MUST(!more);
        VERBENA_MUST_EQUAL(more.error(), std::errc::no_buffer_space);
        const std::function<bool()> done = [&] {
            return n.c_seen.seen.size() >= 8 && n.s_seen.seen.size() >= 8;
        };
        co_await f.until(done);
        co_await sleep_for(2ms);
        VERBENA_MUST_EQUAL(n.c_seen.seen.size(), 8u);
        VERBENA_MUST_EQUAL(n.s_seen.seen.size(), 8u);
        VERBENA_MUST_EQUAL(n.c_seen.count(108), 0u);
        // And there is room again.
        VERBENA_MUST(n.s->post_receive(std::span(receives).first(8)));
        VERBENA_MUST(n.c->post_send(std::span(sends).first(8)));
        const std::function<bool()> again = [&] { return n.s_seen.seen.size() == 16; };
        co_await f.until(again);
    });
}

void requests_beyond_what_query_says_are_refused(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory out(co_await registered(*f.client.domain, 64));
        const std::vector<verbs::segment> enough(f.can().max_send_segments + 1, out.part(0, 1));
        const auto segments = post(*n.c, 1, opcode::send, enough);
        VERBENA_MUST(!segments);
        VERBENA_MUST_EQUAL(segments.error(), std::errc::argument_list_too_long);
        const std::vector<verbs::segment> sinks(f.can().max_read_segments + 1, out.part(0, 1));
        VERBENA_MUST(!post(*n.c, 2, opcode::rdma_read, sinks));
        verbs::segment huge = out.all();
        huge.length = f.can().max_message + 1;
        const auto message = post(*n.c, 3, opcode::send, {huge});
        VERBENA_MUST(!message);
        VERBENA_MUST_EQUAL(message.error(), std::errc::message_size);
        const auto invalidate = post(*n.c, 4, opcode::send_with_invalidate, {out.all()}, {}, 1);
        if (!f.can().remote_invalidate) {
            VERBENA_MUST(!invalidate);
            VERBENA_MUST_EQUAL(invalidate.error(), std::errc::operation_not_supported);
            // Nothing of it went out.
            co_await sleep_for(2ms);
            VERBENA_MUST(n.c_seen.seen.empty());
            VERBENA_MUST(n.c->connected());
        } else {
            VERBENA_MUST(bool(invalidate));
        }
    });
}

void queues_as_deep_as_asked_for(subject& p)
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
            VERBENA_MUST(post_receive(*n.s, i, in.part(i * 64, 64)));
        for (std::uint32_t i = 0; i < depth; ++i)
            VERBENA_MUST(post(*n.c, i, opcode::send, {out.part(i * 64, 64)}));
        const std::function<bool()> sent = [&] {
            return n.c_seen.seen.size() == depth && n.s_seen.seen.size() == depth;
        };
        co_await f.until(sent);
        VERBENA_MUST(in.bytes == out.bytes);

        // Reads far beyond the ORD wait for it.
        n.c_seen.seen.clear();
        memory back(co_await registered(*f.client.domain, depth * 64));
        auto g = co_await f.server.domain->make_grant(in.bytes, verbs::access::remote_read, nullptr);
        VERBENA_MUST(g);
        VERBENA_MUST(n.c->max_reads() >= 1u);
        VERBENA_MUST(n.c->max_reads() <= f.can().max_outstanding_reads);
        std::vector<std::uint64_t> expected;
        for (std::uint32_t i = 0; i < depth; ++i) {
            auto from = g->where();
            from.address += i * 64;
            VERBENA_MUST(post(*n.c, i, opcode::rdma_read, {back.part(i * 64, 64)}, from));
            expected.push_back(i);
        }
        const std::function<bool()> read = [&] { return n.c_seen.seen.size() == depth; };
        co_await f.until(read);
        VERBENA_MUST(back.bytes == out.bytes);
        VERBENA_MUST(n.c_seen.order(false) == expected);
        VERBENA_MUST_EQUAL(n.c_seen.ends, 0u);
    });
}

void a_fence_waits_for_reads(subject& p)
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
        VERBENA_MUST(g);
        bool was_there = false;
        n.s_seen.hook = [&](const verbs::completion&) { was_there = sink.bytes == source.bytes; };
        VERBENA_MUST(post_receive(*n.s, 1, in.all()));
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
        VERBENA_MUST(n.c->post_send(batch));
        const std::function<bool()> done = [&] { return n.s_seen.find(1) != nullptr; };
        co_await f.until(done);
        VERBENA_MUST(was_there);
    });
}

void a_send_that_comes_before_its_receive(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory in(co_await registered(*f.server.domain, 64));
        memory out(co_await registered(*f.client.domain, pattern(64)));
        VERBENA_MUST(post(*n.c, 1, opcode::send, {out.all()}));
        co_await sleep_for(1ms);
        if (f.can().receive_not_ready_retry) {
            VERBENA_MUST(n.c_seen.seen.empty());
            VERBENA_MUST(post_receive(*n.s, 2, in.all()));
            const std::function<bool()> done = [&] { return n.s_seen.good(2) && n.c_seen.good(1); };
            co_await f.until(done);
            VERBENA_MUST(in.bytes == out.bytes);
            // Retries are bounded.
            VERBENA_MUST(post(*n.c, 3, opcode::send, {out.all()}));
            co_await f.both_ended(n);
            VERBENA_MUST_EQUAL(n.c_seen.at(3).status, status::rnr_retry_exceeded);
        } else {
            co_await f.both_ended(n);
            if (f.can().completion_means_delivered)
                VERBENA_MUST(n.c_seen.at(1).status != status::success);
        }
    });
}

void a_message_longer_than_its_receive(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory in(co_await registered(*f.server.domain, 128));
        memory out(co_await registered(*f.client.domain, pattern(65)));
        VERBENA_MUST(post_receive(*n.s, 1, in.part(0, 64)));
        VERBENA_MUST(post_receive(*n.s, 2, in.part(64, 64)));
        VERBENA_MUST(post(*n.c, 3, opcode::send, {out.all()}));
        co_await f.both_ended(n);
        VERBENA_MUST(n.s_seen.find(1) != nullptr);
        // rxe calls it a protection error, and tells the peer of an operation error.
        VERBENA_MUST(n.s_seen.at(1).status == status::local_length_error ||
                     (p.works_by_itself() && n.s_seen.at(1).status == status::local_protection_error));
        VERBENA_MUST(n.s_seen.find(2) != nullptr);
        VERBENA_MUST_EQUAL(n.s_seen.at(2).status, status::work_request_flushed);
        VERBENA_MUST(std::vector<std::byte>(in.bytes.begin() + 64, in.bytes.end()) ==
                     std::vector<std::byte>(64));
        if (f.can().completion_means_delivered)
            VERBENA_MUST(n.c_seen.at(3).status == status::remote_invalid_request ||
                         (p.works_by_itself() && n.c_seen.at(3).status == status::remote_operation_error));
    });
}

void a_message_shorter_than_its_receive_leaves_the_rest(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory in(co_await registered(*f.server.domain, std::vector<std::byte>(4096, std::byte(0xee))));
        memory out(co_await registered(*f.client.domain, pattern(100)));
        VERBENA_MUST(post_receive(*n.s, 1, in.all()));
        VERBENA_MUST(post(*n.c, 2, opcode::send, {out.all()}));
        const std::function<bool()> done = [&] { return n.s_seen.good(1); };
        co_await f.until(done);
        VERBENA_MUST_EQUAL(n.s_seen.at(1).length, 100u);
        VERBENA_MUST(std::equal(out.bytes.begin(), out.bytes.end(), in.bytes.begin()));
        VERBENA_MUST(std::ranges::count(in.bytes, std::byte(0xee)) >= 4096 - 100);
        VERBENA_MUST(std::all_of(in.bytes.begin() + 100, in.bytes.end(),
                                 [](std::byte b) { return b == std::byte(0xee); }));
    });
}

constexpr check all[] = {
    {"every operation at every size", "messages", every_operation_at_every_size, nullptr},
    {"each direction completes in order and writes precede sends", "messages",
     each_direction_completes_in_order_and_writes_precede_sends, nullptr},
    {"unsignalled work is retired by a later completion", "messages",
     unsignalled_work_is_retired_by_a_later_completion, nullptr},
    {"a batch without room is refused whole", "messages", a_batch_without_room_is_refused_whole, nullptr},
    {"requests beyond what query says are refused", "messages", requests_beyond_what_query_says_are_refused,
     nullptr},
    {"queues as deep as asked for", "messages", queues_as_deep_as_asked_for, nullptr},
    {"a fence waits for reads", "messages", a_fence_waits_for_reads, nullptr},
    {"a send that comes before its receive", "messages", a_send_that_comes_before_its_receive, nullptr},
    {"a message longer than its receive", "messages", a_message_longer_than_its_receive, nullptr},
    {"a message shorter than its receive leaves the rest", "messages",
     a_message_shorter_than_its_receive_leaves_the_rest, nullptr},
};

} // namespace
} // namespace messages

std::span<const check> message_checks() noexcept { return messages::all; }

} // namespace verbena::testing::conformance
