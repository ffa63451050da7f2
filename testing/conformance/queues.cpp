// SPDX-License-Identifier: Apache-2.0
// What only some providers have, and what the rest must say instead: shared receive queues, inline data, Writes with
// Immediate, and buffers of a registered pool.

#include "fixture.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace verbena::testing::conformance {
namespace queues {
namespace {

void two_queue_pairs_share_their_receives(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        verbs::shared_receive_queue_options so;
        so.depth = 4;
        auto made = co_await f.server.domain->make_shared_receive_queue(so);
        VERBENA_MUST_EQUAL(bool(made), f.can().shared_receives);
        if (!made) {
            VERBENA_MUST_EQUAL(made.error(), std::errc::operation_not_supported);
            co_return;
        }
        const std::unique_ptr<verbs::shared_receive_queue> shared = std::move(*made);
        verbs::connect_options of_server;
        of_server.queue_pair.shared_receives = shared.get();
        connection a, b;
        co_await f.connect(a, {}, of_server);
        co_await f.connect(b, {}, of_server);
        constexpr std::size_t size = 3000;
        memory in(co_await registered(*f.server.domain, 5 * size));
        memory out(co_await registered(*f.client.domain, pattern(4 * size)));

        VERBENA_MUST_FAIL(post_receive(*a.s, 9, in.part(0, 8)), std::errc::invalid_argument);
        std::vector<verbs::receive_request> batch;
        for (std::uint64_t i = 0; i < 5; ++i)
            batch.push_back({i, in.part(i * size, size)});
        VERBENA_MUST_FAIL(shared->post_receive(batch), std::errc::no_buffer_space);
        VERBENA_MUST_EQUAL(shared->standing(), 0u);
        batch.pop_back();
        VERBENA_MUST(shared->post_receive(batch));
        VERBENA_MUST_EQUAL(shared->standing(), 4u);

        // Each message is told to the queue pair that it came to, whichever receive it took.
        for (const std::size_t i : {0u, 2u})
            VERBENA_MUST(post(*a.c, 10 + i, opcode::send, {out.part(i * size, size)}));
        for (const std::size_t i : {1u, 3u})
            VERBENA_MUST(post(*b.c, 10 + i, opcode::send, {out.part(i * size, size)}));
        const std::function<bool()> all = [&] { return a.s_seen.seen.size() + b.s_seen.seen.size() == 4; };
        co_await f.until(all);
        VERBENA_MUST_EQUAL(shared->standing(), 0u);
        std::vector<std::uint64_t> used;
        for (const auto* end : {&a, &b}) {
            VERBENA_MUST_EQUAL(end->s_seen.seen.size(), 2u);
            for (std::size_t k = 0; k < 2; ++k) {
                const auto& c = end->s_seen.seen[k];
                VERBENA_MUST_EQUAL(c.status, status::success);
                VERBENA_MUST_EQUAL(c.length, size);
                VERBENA_MUST(c.id < 4u);
                used.push_back(c.id);
                const std::size_t sent = 2 * k + (end == &b);
                VERBENA_MUST(std::equal(&out.bytes[sent * size], &out.bytes[sent * size] + size,
                                        &in.bytes[c.id * size]));
            }
        }
        std::ranges::sort(used);
        VERBENA_MUST(used == std::vector<std::uint64_t>{0, 1, 2, 3});

        // The end of one leaves what stands to the other.
        VERBENA_MUST(shared->post_receive(std::span(batch).first(2)));
        a.c->kill(error(std::errc::connection_aborted, "test"));
        co_await f.both_ended(a);
        VERBENA_MUST_EQUAL(a.s_seen.seen.size(), 2u);
        VERBENA_MUST_EQUAL(shared->standing(), 2u);
        VERBENA_MUST(post(*b.c, 20, opcode::send, {out.part(0, size)}));
        const std::function<bool()> more = [&] { return b.s_seen.seen.size() == 3; };
        co_await f.until(more);
        VERBENA_MUST_EQUAL(b.s_seen.seen.back().status, status::success);
        a.s.reset();
        b.s.reset();
    });
}

void an_empty_shared_queue_is_receiver_not_ready(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        auto made = co_await f.server.domain->make_shared_receive_queue({});
        VERBENA_MUST_EQUAL(made.has_value(), f.can().shared_receives);
        if (!made) {
            VERBENA_MUST_EQUAL(made.error(), std::errc::operation_not_supported);
            co_return;
        }
        verbs::connect_options of_server;
        of_server.queue_pair.shared_receives = made->get();
        connection n;
        co_await f.connect(n, {}, of_server);
        memory in(co_await registered(*f.server.domain, 64));
        memory out(co_await registered(*f.client.domain, pattern(64)));
        VERBENA_MUST(post(*n.c, 1, opcode::send, {out.all()}));
        co_await sleep_for(1ms);
        if (f.can().receive_not_ready_retry) {
            const verbs::receive_request r{2, in.all()};
            VERBENA_MUST((*made)->post_receive({&r, 1}));
            const std::function<bool()> done = [&] { return n.s_seen.good(2) && n.c_seen.good(1); };
            co_await f.until(done);
            VERBENA_MUST(in.bytes == out.bytes);
        } else {
            co_await f.both_ended(n);
        }
        n.s.reset();
    });
}

// Posts what it is given to post, when it is asked.
struct some_receives final : verbs::receive_supply {
    void receive_wanted() noexcept override
    {
        ++wanted;
        if (next == ready.end())
            return;
        posted = queue->post_receive({&*next++, 1}).has_value();
    }
    void receive_returned(std::uint64_t id) noexcept override { returned.push_back(id); }
    verbs::shared_receive_queue* queue = nullptr;
    std::vector<verbs::receive_request> ready;
    std::vector<verbs::receive_request>::iterator next = ready.end();
    std::vector<std::uint64_t> returned;
    unsigned wanted = 0;
    bool posted = false;
};

void a_message_waits_for_a_receive_on_demand(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        some_receives supply;
        verbs::shared_receive_queue_options so;
        so.supply = &supply;
        auto made = co_await f.server.domain->make_shared_receive_queue(so);
        VERBENA_MUST_EQUAL(made.has_value(), f.can().receives_on_demand);
        if (!made) {
            VERBENA_MUST_EQUAL(made.error(), std::errc::operation_not_supported);
            co_return;
        }
        const std::unique_ptr<verbs::shared_receive_queue> shared = std::move(*made);
        supply.queue = shared.get();
        verbs::connect_options of_server;
        of_server.queue_pair.shared_receives = shared.get();
        connection a, b;
        co_await f.connect(a, {}, of_server);
        co_await f.connect(b, {}, of_server);
        constexpr std::size_t size = 3000;
        memory in(co_await registered(*f.server.domain, 4 * size));
        memory out(co_await registered(*f.client.domain, pattern(2 * size)));
        for (std::uint64_t i = 0; i < 4; ++i)
            supply.ready.push_back({i, in.part(i * size, size)});

        // One is there when the first message comes.
        supply.next = supply.ready.begin() + 3;
        VERBENA_MUST(post(*a.c, 10, opcode::send, {out.part(0, size)}));
        const std::function<bool()> first = [&] { return a.s_seen.good(3); };
        co_await f.until(first);
        VERBENA_MUST_EQUAL(supply.wanted, 1u);
        VERBENA_MUST(supply.posted);

        // Then there is none, for as long as it takes. Who came first is served first.
        VERBENA_MUST(post(*b.c, 11, opcode::send, {out.part(size, size)}));
        co_await sleep_for(1ms);
        VERBENA_MUST(post(*a.c, 12, opcode::send, {out.part(0, size)}));
        VERBENA_MUST(post(*a.c, 13, opcode::send, {out.part(0, size)}));
        co_await sleep_for(5ms);
        VERBENA_MUST_EQUAL(a.s_seen.seen.size(), 1u);
        VERBENA_MUST(b.s_seen.seen.empty());
        VERBENA_MUST(a.s->connected());
        VERBENA_MUST(b.s->connected());
        VERBENA_MUST(shared->post_receive({&supply.ready[0], 1}));
        const std::function<bool()> second = [&] { return b.s_seen.good(0); };
        co_await f.until(second);
        VERBENA_MUST_EQUAL(a.s_seen.seen.size(), 1u);
        VERBENA_MUST(std::equal(&out.bytes[size], &out.bytes[2 * size], in.bytes.data()));
        VERBENA_MUST(shared->post_receive({&supply.ready[1], 1}));
        const std::function<bool()> third = [&] { return a.s_seen.good(1); };
        co_await f.until(third);
        VERBENA_MUST(std::equal(&out.bytes[0], &out.bytes[size], &in.bytes[size]));

        // One that ends while it waits leaves its place.
        VERBENA_MUST(post(*b.c, 14, opcode::send, {out.part(size, size)}));
        co_await sleep_for(1ms);
        a.s->kill(error(std::errc::connection_aborted, "test"));
        co_await f.both_ended(a);
        VERBENA_MUST(shared->post_receive({&supply.ready[2], 1}));
        const std::function<bool()> last = [&] { return b.s_seen.good(2); };
        co_await f.until(last);
        VERBENA_MUST_EQUAL(shared->standing(), 0u);
        a.s.reset();
        b.s.reset();
    });
}

// The rest of the batch, the flush and the end come, each once, and the end comes last.
void a_handler_ends_its_queue_pair_amid_a_batch(subject& p)
{
    for (const bool aborts : {false, true}) {
        fixture f(p);
        f.run([&]() -> task<void> {
            connection n;
            co_await f.connect(n);
            constexpr std::size_t size = 64;
            constexpr std::uint64_t sent = 4, standing = 8, answer = 100;
            memory in(co_await registered(*f.server.domain, standing * size));
            memory out(co_await registered(*f.client.domain, pattern(sent * size)));
            memory back(co_await registered(*f.server.domain, size));
            for (std::uint64_t i = 1; i <= standing; ++i)
                VERBENA_MUST(post_receive(*n.s, i, in.part((i - 1) * size, size)));
            bool over = false;
            n.s_seen.hook = [&](const verbs::completion&) {
                if (std::exchange(over, true))
                    return;
                const auto answered = post(*n.s, answer, opcode::send, {back.all()});
                n.s_seen.expect(answered.has_value(), "a handler can't post");
                const error cause(std::errc::connection_aborted, "test");
                if (aborts)
                    n.s->abort(cause);
                else
                    n.s->kill(cause);
                n.s_seen.expect(n.s_seen.ends == 0, "the end was told amid a batch");
                const auto late = post(*n.s, 101, opcode::send, {back.all()});
                n.s_seen.expect(!late && late.error() == std::errc::not_connected,
                                "a request was taken after the end");
            };
            std::vector<verbs::segment> parts;
            std::vector<verbs::send_request> batch(sent);
            for (std::uint64_t i = 0; i < sent; ++i)
                parts.push_back(out.part(i * size, size));
            for (std::uint64_t i = 0; i < sent; ++i) {
                batch[i].id = i + 1;
                batch[i].segments = {&parts[i], 1};
            }
            VERBENA_MUST(n.c->post_send(batch));
            co_await f.both_ended(n);
            VERBENA_MUST(over);
            VERBENA_MUST_EQUAL(n.s_seen.ends, 1u);
            VERBENA_MUST_EQUAL(n.s_seen.why, std::errc::connection_aborted);
            for (std::uint64_t i = 1; i <= standing; ++i)
                VERBENA_MUST_EQUAL(n.s_seen.count(i), 1u);
            VERBENA_MUST_EQUAL(n.s_seen.count(answer), 1u);
            VERBENA_MUST_EQUAL(n.s_seen.count(101), 0u);
            VERBENA_MUST_EQUAL(n.c_seen.ends, 1u);
            for (std::uint64_t i = 1; i <= sent; ++i)
                VERBENA_MUST_EQUAL(n.c_seen.count(i), 1u);
        });
    }
}

void inline_data_is_free_at_once(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory in(co_await registered(*f.server.domain, 1024));
        VERBENA_MUST(post_receive(*n.s, 1, in.all()));
        const std::uint32_t most = f.can().max_inline;
        std::vector<std::byte> data = pattern(most + 1); // of no region
        const auto expected = data;
        const verbs::segment s{data.data(), most, 0};
        verbs::send_request w;
        w.id = 2;
        w.inline_data = true;
        w.segments = {&s, 1};
        if (most == 0) {
            const verbs::segment one{data.data(), 1, 0};
            w.segments = {&one, 1};
            VERBENA_MUST_FAIL(n.c->post_send({&w, 1}), std::errc::message_size);
            co_return;
        }
        VERBENA_MUST(n.c->post_send({&w, 1}));
        std::ranges::fill(data, std::byte(0xee));
        const std::function<bool()> done = [&] { return n.s_seen.good(1) && n.c_seen.good(2); };
        co_await f.until(done);
        VERBENA_MUST_EQUAL(n.s_seen.at(1).length, most);
        VERBENA_MUST(std::equal(in.bytes.begin(), in.bytes.begin() + most, expected.begin()));

        const verbs::segment longer{data.data(), most + 1, 0};
        w.segments = {&longer, 1};
        VERBENA_MUST_FAIL(n.c->post_send({&w, 1}), std::errc::message_size);
        w.opcode = opcode::rdma_read;
        w.segments = {&s, 1};
        VERBENA_MUST_FAIL(n.c->post_send({&w, 1}), std::errc::message_size);
        VERBENA_MUST(n.c->connected());
    });
}

void a_write_with_immediate(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory target(co_await registered(*f.server.domain, 5000));
        memory in(co_await registered(*f.server.domain, 16));
        memory out(co_await registered(*f.client.domain, pattern(5000)));
        auto g = co_await f.server.domain->make_grant(target.bytes, verbs::access::remote_write, nullptr);
        VERBENA_MUST(g);
        for (std::uint64_t i = 1; i <= 3; ++i)
            VERBENA_MUST(post_receive(*n.s, i, in.all()));
        const verbs::segment all = out.all();
        verbs::send_request w;
        w.id = 10;
        w.opcode = opcode::write_with_immediate;
        w.immediate = 0x80c0ffee;
        w.segments = {&all, 1};
        w.remote_address = g->where().address;
        w.remote_key = g->where().key;
        const auto posted = n.c->post_send({&w, 1});
        VERBENA_MUST_EQUAL(bool(posted), f.can().write_with_immediate);
        if (!posted) {
            VERBENA_MUST_EQUAL(posted.error(), std::errc::operation_not_supported);
            VERBENA_MUST(n.c->connected());
            co_return;
        }
        // Without a byte it needs no key.
        w.id = 11;
        w.immediate = 7;
        w.segments = {};
        w.remote_key = 0;
        VERBENA_MUST(n.c->post_send({&w, 1}));
        const std::function<bool()> done = [&] { return n.s_seen.good(2) && n.c_seen.good(11); };
        co_await f.until(done);
        const verbs::completion first = n.s_seen.at(1);
        VERBENA_MUST(bool(first.opcode == opcode::receive_immediate));
        VERBENA_MUST_EQUAL(first.immediate, 0x80c0ffeeu);
        VERBENA_MUST_EQUAL(first.length, 5000u);
        VERBENA_MUST(target.bytes == out.bytes);
        VERBENA_MUST_EQUAL(n.s_seen.at(2).immediate, 7u);
        VERBENA_MUST_EQUAL(n.s_seen.at(2).length, 0u);

        // Where it may not write, it tells nothing.
        const auto before = target.bytes;
        w.id = 12;
        w.segments = {&all, 1};
        w.remote_key = g->where().key;
        w.remote_address = g->where().address + 1;
        VERBENA_MUST(n.c->post_send({&w, 1}));
        co_await f.both_ended(n);
        if (f.can().completion_means_delivered)
            VERBENA_MUST_EQUAL(n.c_seen.at(12).status, status::remote_access_error);
        VERBENA_MUST_EQUAL(n.s_seen.at(3).status, status::work_request_flushed);
        VERBENA_MUST(target.bytes == before);
    });
}

void a_send_with_immediate(subject& p)
{
    fixture f(p);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory in(co_await registered(*f.server.domain, 256));
        memory out(co_await registered(*f.client.domain, pattern(100)));
        for (std::uint64_t i = 0; i < 4; ++i)
            VERBENA_MUST(post_receive(*n.s, 1 + i, in.part(i * 64, 64)));
        const verbs::segment half = out.part(0, 40);
        verbs::send_request w;
        w.id = 10;
        w.opcode = opcode::send_with_immediate;
        w.immediate = 0x80c0ffee;
        w.segments = {&half, 1};
        const auto posted = n.c->post_send({&w, 1});
        VERBENA_MUST_EQUAL(bool(posted), f.can().send_with_immediate);
        if (!posted) {
            VERBENA_MUST_EQUAL(posted.error(), std::errc::operation_not_supported);
            VERBENA_MUST(n.c->connected());
            co_return;
        }
        // One without a byte takes as many receives.
        w.id = 11;
        w.immediate = 7;
        w.segments = {};
        VERBENA_MUST(n.c->post_send({&w, 1}));
        const bool apart = f.can().immediates_apart;
        const std::uint64_t last = apart ? 4 : 2;
        const std::function<bool()> done = [&] { return n.s_seen.good(last) && n.c_seen.good(11); };
        co_await f.until(done);
        VERBENA_MUST(bool(n.c_seen.at(10).opcode == opcode::send_with_immediate));
        VERBENA_MUST_EQUAL(n.c_seen.count(10), 1u);
        std::vector<std::uint32_t> immediates;
        for (std::uint64_t i = 1; i <= last; ++i) {
            const verbs::completion c = n.s_seen.at(i);
            const bool brings_bytes = !apart || i % 2 == 1;
            const bool brings_immediate = !apart || i % 2 == 0;
            VERBENA_MUST(verbs::is_receive(c.opcode));
            VERBENA_MUST(verbs::has_immediate(c.opcode) == brings_immediate);
            VERBENA_MUST(bool(c.opcode == opcode::receive_immediate) == !brings_bytes);
            VERBENA_MUST(c.length == (i == 1 ? 40u : 0u));
            if (brings_immediate)
                immediates.push_back(c.immediate);
        }
        VERBENA_MUST(immediates == (std::vector<std::uint32_t>{0x80c0ffee, 7}));
        VERBENA_MUST(std::equal(in.bytes.begin(), in.bytes.begin() + 40, out.bytes.begin()));

        // Longer than the receive, it tells nothing.
        VERBENA_MUST(post_receive(*n.s, 20, in.part(0, 64)));
        const verbs::segment all = out.all();
        w.id = 12;
        w.segments = {&all, 1};
        VERBENA_MUST(n.c->post_send({&w, 1}));
        co_await f.both_ended(n);
        const std::uint64_t next = apart ? 20 : 3;
        const status failed = n.s_seen.at(next).status;
        VERBENA_MUST(failed == status::local_length_error || failed == status::local_protection_error); // rxe
        VERBENA_MUST_EQUAL(n.s_seen.at(next).immediate, 0u);
    });
}

void buffers_of_a_pool_need_no_key(subject& p)
{
    fixture f(p);
    memory_budget budget(64 << 20);
    buffer_pool pool(budget, &f.shard());
    lease early = pool.try_acquire(4096);
    f.run([&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        for (auto* d : {f.client.domain.get(), f.server.domain.get()}) {
            const auto added = co_await d->add_pool(pool);
            VERBENA_MUST(added);
        }
        lease late = pool.try_acquire(6 << 20);
        lease back = pool.try_acquire(6 << 20);
        VERBENA_MUST(f.server.domain->is_registered(early.bytes()));
        VERBENA_MUST(f.server.domain->is_registered(late.bytes()));
        std::vector<std::byte> elsewhere(64);
        VERBENA_MUST_EQUAL(f.server.domain->is_registered(elsewhere), !f.can().needs_local_keys);
        std::ranges::copy(pattern(late.size()), late.data());
        auto g = co_await f.client.domain->make_grant(late.bytes(), verbs::access::remote_read, nullptr);
        VERBENA_MUST(g);
        VERBENA_MUST(post_receive(*n.s, 1, {early.data(), 4096, 0}));
        VERBENA_MUST(post(*n.c, 2, opcode::send, {{late.data(), 4096, 0}}));
        VERBENA_MUST(
            post(*n.s, 3, opcode::rdma_read, {{back.data(), std::uint32_t(back.size()), 0}}, g->where()));
        const std::function<bool()> done = [&] { return n.s_seen.good(1) && n.s_seen.good(3); };
        co_await f.until(done);
        VERBENA_MUST(alike(early.bytes(), late.bytes().first(4096)));
        VERBENA_MUST(alike(back.bytes(), late.bytes()));
        const std::span<std::byte> part(late.data() + 100, 1);
        std::array<verbs::grant, 2> several;
        several[0] = std::move(*g);
        auto second = co_await f.client.domain->make_grant(part, verbs::access::remote_write, nullptr);
        VERBENA_MUST(second);
        several[1] = std::move(*second);
        const auto where = several[1].where();
        co_await f.client.domain->revoke(several);
        VERBENA_MUST(!several[0]);
        VERBENA_MUST(!several[1]);
        VERBENA_MUST(post(*n.s, 4, opcode::rdma_write, {{back.data(), 1, 0}}, where));
        co_await f.both_ended(n);
    });
}

constexpr check all[] = {
    {"two queue pairs share their receives", "queues", two_queue_pairs_share_their_receives, nullptr},
    {"an empty shared queue is receiver not ready", "queues", an_empty_shared_queue_is_receiver_not_ready,
     nullptr},
    {"a message waits for a receive on demand", "queues", a_message_waits_for_a_receive_on_demand, nullptr},
    {"a handler ends its queue pair amid a batch", "queues", a_handler_ends_its_queue_pair_amid_a_batch,
     nullptr},
    {"inline data is free at once", "queues", inline_data_is_free_at_once, nullptr},
    {"a write with immediate", "queues", a_write_with_immediate, nullptr},
    {"a send with immediate", "queues", a_send_with_immediate, nullptr},
    {"buffers of a pool need no key", "queues", buffers_of_a_pool_need_no_key, nullptr},
};

} // namespace
} // namespace queues

std::span<const check> queue_checks() noexcept { return queues::all; }

} // namespace verbena::testing::conformance
