// SPDX-License-Identifier: Apache-2.0
// What only loop has: faults, the clock, the trace, a device that goes. What it has in common with others is
// in the conformance suites.

#include "conformance.hpp"

BOOST_AUTO_TEST_SUITE(loop_test)

using namespace verbena;
using namespace verbena::conformance;
using loop::fault;

namespace {

const verbs::connect_options defaults;

struct loop_fixture {
    explicit loop_fixture(std::uint64_t seed = 1, const loop::conditions& conditions = {})
    {
        reactor_options o;
        o.clock = &clock;
        shard = std::move(*reactor::create(o));
        loop::fabric_options f;
        f.seed = seed;
        f.conditions = conditions;
        fabric = loop::make_fabric(*shard, f);
        server = fabric->make_context();
        client = fabric->make_context();
        server_domain = std::move(*server->make_domain());
        client_domain = std::move(*client->make_domain());
        listener = std::move(*server->listen("x"));
    }
    task<void> answer(connection& n)
    {
        auto request = co_await listener->next();
        if (!request)
            co_return;
        auto q = co_await (*request)->make_queue_pair(*server_domain, {});
        n.s = std::move(*q);
        n.s_seen.reports_to(complaint);
        n.s->set_handler(&n.s_seen);
        (void)co_await (*request)->accept(defaults);
    }
    task<bool> connect(connection& n)
    {
        scope s(*shard);
        s.spawn([&] { return answer(n); });
        std::vector<std::byte> reply;
        auto q = co_await client->connect("x", *client_domain, {}, reply);
        s.request_stop();
        co_await s.join();
        if (!q)
            co_return false;
        n.c = std::move(*q);
        n.c_seen.reports_to(complaint);
        n.c->set_handler(&n.c_seen);
        co_return true;
    }
    void run(const std::function<task<void>()>& body)
    {
        run_until_complete(*shard, body());
        BOOST_TEST(complaint == "");
    }

    std::string complaint; // of recorders
    virtual_clock clock;
    std::unique_ptr<reactor> shard;
    std::unique_ptr<loop::fabric> fabric;
    std::unique_ptr<loop::context> server, client;
    std::unique_ptr<verbs::protection_domain> server_domain, client_domain;
    std::unique_ptr<verbs::listener> listener;
};

struct outcome {
    std::uint64_t trace;
    std::uint64_t delivered;
    loop::stats stats;
    duration took;
};

// Connections one after the other, each with messages both ways, until `rounds` are over.
outcome traffic(std::uint64_t seed, const loop::conditions& conditions, int rounds = 40)
{
    loop_fixture f(seed, conditions);
    outcome o{};
    const time_point begun = f.clock.now();
    f.run([&]() -> task<void> {
        for (int round = 0; round < rounds; ++round) {
            connection n;
            const bool up = co_await f.connect(n);
            if (!up) {
                co_await sleep_for(1ms);
                continue;
            }
            std::vector<std::byte> out = pattern(100), in(100);
            // The ids that each end posted: receives, and Sends from 1000 on.
            std::vector<std::uint64_t> of_c, of_s;
            const auto posted = [](std::vector<std::uint64_t>& ids, std::uint64_t id,
                                   const result<void>& done) {
                if (done)
                    ids.push_back(id);
                return bool(done);
            };
            for (std::uint64_t i = 0; i < 50; ++i) {
                if (!posted(of_s, i, post_receive(*n.s, i, {in.data(), 100, 0})) ||
                    !posted(of_c, i, post_receive(*n.c, i, {in.data(), 100, 0})) ||
                    !posted(of_c, 1000 + i, post(*n.c, 1000 + i, opcode::send, {{out.data(), 100, 0}})) ||
                    !posted(of_s, 1000 + i, post(*n.s, 1000 + i, opcode::send, {{out.data(), 50, 0}})))
                    break;
            }
            for (int i = 0; i < 3000 && n.c_seen.seen.size() + n.s_seen.seen.size() < 200; ++i) {
                if (n.c_seen.ends != 0 && n.s_seen.ends != 0)
                    break;
                co_await sleep_for(100us);
            }
            // Whatever happened, each request that was posted has completed once.
            n.c->kill(error(std::errc::connection_aborted, "over"));
            if (n.s)
                n.s->kill(error(std::errc::connection_aborted, "over"));
            BOOST_TEST(n.c_seen.ends == 1u);
            BOOST_TEST(n.s_seen.ends == 1u);
            for (auto [r, ids] : {std::pair(&n.c_seen, &of_c), std::pair(&n.s_seen, &of_s)}) {
                std::vector<std::uint64_t> completed;
                for (const verbs::completion& c : r->seen)
                    completed.push_back(c.id);
                std::ranges::sort(completed);
                std::ranges::sort(*ids);
                BOOST_TEST((completed == *ids));
                o.delivered += std::uint64_t(std::ranges::count_if(r->seen, [](const verbs::completion& c) {
                    return c.opcode == opcode::receive && c.status == status::success;
                }));
            }
        }
    });
    o.trace = f.fabric->trace();
    o.stats = f.fabric->counters();
    o.took = f.clock.now() - begun;
    BOOST_TEST(o.stats.active == 0u);
    BOOST_TEST(f.server->grants() == 0u);
    return o;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_calm_fabric_takes_no_time_and_loses_nothing)
{
    const outcome o = traffic(1, {});
    BOOST_TEST(o.delivered == 40u * 100);
    BOOST_TEST(o.stats.messages == 40u * 100);
    BOOST_TEST(o.stats.bytes == 40u * 50 * 150);
    BOOST_TEST((o.stats.faults == std::array<std::uint64_t, std::size_t(fault::count_)>{}));
}

BOOST_AUTO_TEST_CASE(latency_is_the_clocks)
{
    loop::conditions c;
    c.latency = 10ms;
    loop_fixture f(1, c);
    f.run([&]() -> task<void> {
        const time_point begun = f.clock.now();
        connection n;
        const bool up = co_await f.connect(n);
        BOOST_TEST(up);
        BOOST_TEST((f.clock.now() - begun == 20ms));
        std::vector<std::byte> out = pattern(8), in(8);
        BOOST_REQUIRE(post_receive(*n.s, 1, {in.data(), 8, 0}));
        time_point received, sent;
        n.s_seen.hook = [&](const verbs::completion&) { received = f.shard->now(); };
        n.c_seen.hook = [&](const verbs::completion&) { sent = f.shard->now(); };
        const time_point posted = f.shard->now();
        BOOST_REQUIRE(post(*n.c, 2, opcode::send, {{out.data(), 8, 0}}));
        co_await sleep_for(1s);
        BOOST_TEST((received - posted == 10ms));
        BOOST_TEST((sent - posted == 20ms));
    });
}

BOOST_AUTO_TEST_CASE(each_fault_strikes_and_is_what_it_says)
{
    struct expectation {
        fault f;
        std::uint32_t per_million;
        bool harmless; // nothing is lost by it
    };
    const expectation all[] = {
        {fault::drop, 100'000, true},          {fault::delay, 300'000, true},
        {fault::reorder, 300'000, true},       {fault::receiver_not_ready, 200'000, true},
        {fault::flush, 3'000, false},          {fault::disconnect, 3'000, false},
        {fault::device_removal, 3'000, false},
    };
    for (const auto& e : all) {
        BOOST_TEST_CONTEXT(to_string(e.f))
        {
            loop::conditions c;
            c[e.f] = e.per_million;
            const outcome o = traffic(7, c);
            BOOST_TEST(o.stats.faults[std::size_t(e.f)] > 0u);
            for (std::size_t i = 0; i < o.stats.faults.size(); ++i)
                BOOST_TEST((i == std::size_t(e.f) || o.stats.faults[i] == 0));
            BOOST_TEST((o.delivered == 40u * 100) == e.harmless);
            BOOST_TEST(o.delivered > 0u);
        }
    }
}

BOOST_AUTO_TEST_CASE(a_seed_gives_the_same_run_again_and_another_seed_another)
{
    loop::conditions c;
    c.latency = 5us;
    c.per_million = {50'000, 100'000, 100'000, 50'000, 1'000, 1'000, 500};
    const outcome first = traffic(42, c);
    const outcome again = traffic(42, c);
    const outcome other = traffic(43, c);
    BOOST_TEST(first.trace == again.trace);
    BOOST_TEST(first.delivered == again.delivered);
    BOOST_TEST((first.took == again.took));
    BOOST_TEST((first.stats.faults == again.stats.faults));
    BOOST_TEST(first.trace != other.trace);
}

BOOST_AUTO_TEST_CASE(a_path_that_drops_everything_ends_in_retry_exceeded)
{
    loop_fixture f;
    f.run([&]() -> task<void> {
        connection n;
        const bool up = co_await f.connect(n);
        BOOST_TEST(up);
        loop::conditions c;
        c[fault::drop] = 1'000'000;
        f.fabric->set_conditions(c);
        std::vector<std::byte> out(8), in(8);
        BOOST_REQUIRE(post_receive(*n.s, 1, {in.data(), 8, 0}));
        BOOST_REQUIRE(post(*n.c, 2, opcode::send, {{out.data(), 8, 0}}));
        BOOST_REQUIRE(post(*n.c, 3, opcode::send, {{out.data(), 8, 0}}));
        co_await sleep_for(1s);
        BOOST_TEST(n.c_seen.find(2)->status == status::retry_exceeded);
        BOOST_TEST(n.c_seen.find(3)->status == status::work_request_flushed);
        BOOST_TEST(n.s_seen.find(1)->status == status::work_request_flushed);
        BOOST_TEST(n.s_seen.ends == 1u);
        // Nor does a connection come about.
        connection none;
        const bool not_up = co_await f.connect(none);
        BOOST_TEST(!not_up);
    });
}

// The trap that providers with one completion queue per direction set: an answer may be seen before the
// completion of the request that it answers.
BOOST_AUTO_TEST_CASE(completions_of_two_directions_overtake_each_other)
{
    loop::conditions c;
    c[fault::reorder] = 500'000;
    loop_fixture f(3, c);
    f.run([&]() -> task<void> {
        connection n;
        const bool up = co_await f.connect(n);
        BOOST_TEST(up);
        int answers_first = 0;
        std::vector<std::byte> out(8), in(8);
        for (std::uint64_t i = 0; i < 200; ++i) {
            BOOST_REQUIRE(post_receive(*n.s, i, {in.data(), 8, 0}));
            BOOST_REQUIRE(post_receive(*n.c, i, {in.data(), 8, 0}));
            BOOST_REQUIRE(post(*n.c, 1000 + i, opcode::send, {{out.data(), 8, 0}}));
            while (n.s_seen.find(i) == nullptr)
                co_await sleep_for(1us);
            BOOST_REQUIRE(post(*n.s, 1000 + i, opcode::send, {{out.data(), 8, 0}}));
            while (n.c_seen.find(i) == nullptr)
                co_await sleep_for(1us);
            answers_first += n.c_seen.find(1000 + i) == nullptr;
        }
        BOOST_TEST(answers_first > 0);
        co_await sleep_for(10ms);
        BOOST_TEST((std::ranges::is_sorted(n.c_seen.order(false))));
        BOOST_TEST((std::ranges::is_sorted(n.c_seen.order(true))));
    });
}

BOOST_AUTO_TEST_CASE(a_device_goes_and_comes_back)
{
    loop_fixture f;
    f.run([&]() -> task<void> {
        connection n;
        const bool up = co_await f.connect(n);
        BOOST_TEST(up);
        std::vector<std::byte> out(8), in(8);
        BOOST_REQUIRE(post_receive(*n.s, 1, {in.data(), 8, 0}));
        BOOST_REQUIRE(post(*n.c, 2, opcode::send, {{out.data(), 8, 0}}));
        f.server->remove_device();
        f.server->remove_device();
        BOOST_TEST(!f.server->present());
        // Not inside the call: ends are told in the poll phase.
        BOOST_TEST(n.s_seen.ends == 0u);
        co_await sleep_for(1ms);
        BOOST_TEST(n.s_seen.ends == 1u);
        BOOST_TEST((n.s_seen.why == std::errc::no_such_device));
        BOOST_TEST(n.s_seen.find(1)->status == status::work_request_flushed);
        BOOST_TEST(n.c_seen.ends == 1u);
        connection none;
        const bool not_up = co_await f.connect(none);
        BOOST_TEST(!not_up);
        f.server->return_device();
        connection back;
        const bool up_again = co_await f.connect(back);
        BOOST_TEST(up_again);

        f.client->remove_device();
        std::vector<std::byte> reply;
        auto gone = co_await f.client->connect("x", *f.client_domain, {}, reply);
        BOOST_REQUIRE(!gone);
        BOOST_TEST((gone.error() == std::errc::no_such_device));
        co_await sleep_for(1ms);
        BOOST_TEST((back.c_seen.why == std::errc::no_such_device));
        BOOST_TEST(back.s_seen.ends == 1u);
    });
}

BOOST_AUTO_TEST_CASE(a_device_that_goes_takes_the_connects_in_progress_along)
{
    for (const bool of_client : {false, true}) {
        loop_fixture f;
        f.run([&]() -> task<void> {
            scope s(*f.shard);
            std::optional<result<std::unique_ptr<verbs::queue_pair>>> outcome;
            std::vector<std::byte> reply;
            const auto connect = [&]() -> task<void> {
                outcome.emplace(co_await f.client->connect("x", *f.client_domain, {}, reply));
            };
            s.spawn(connect);
            auto request = co_await f.listener->next();
            BOOST_REQUIRE(request);
            (of_client ? f.client : f.server)->remove_device();
            auto q = co_await (*request)->make_queue_pair(*f.server_domain, {});
            BOOST_REQUIRE(q);
            const auto accepted = co_await (*request)->accept(defaults);
            BOOST_TEST(!accepted);
            request->reset();
            co_await s.join();
            BOOST_REQUIRE(outcome);
            BOOST_TEST(!*outcome);
        });
    }
}

BOOST_AUTO_TEST_CASE(names)
{
    loop_fixture f;
    BOOST_TEST(f.listener->local_url() == "loop://x");
    const auto again = f.client->listen("x");
    BOOST_REQUIRE(!again);
    BOOST_TEST((again.error() == std::errc::address_in_use));
    BOOST_TEST(!f.client->listen(""));
    f.listener->close();
    BOOST_TEST(bool(f.client->listen("x")));
}

// Slots are freed by completions only, as hardware does it: who asks for none runs out of room.
BOOST_AUTO_TEST_CASE(work_that_is_never_signalled_fills_the_queue)
{
    loop_fixture f;
    f.run([&]() -> task<void> {
        connection n;
        const bool up = co_await f.connect(n);
        BOOST_TEST(up);
        std::vector<std::byte> memory(8);
        auto g = co_await f.server_domain->make_grant(memory, verbs::access::remote_write, nullptr);
        BOOST_REQUIRE(g);
        const verbs::queue_pair_options depth;
        for (std::uint32_t i = 0; i < depth.send_depth; ++i)
            BOOST_REQUIRE(post(*n.c, i, opcode::rdma_write, {{memory.data(), 0, 0}}, g->where(), 0, false));
        co_await sleep_for(1ms);
        const auto one_more = post(*n.c, 1, opcode::rdma_write, {{memory.data(), 0, 0}}, g->where());
        BOOST_REQUIRE(!one_more);
        BOOST_TEST((one_more.error() == std::errc::no_buffer_space));
        BOOST_TEST(n.c_seen.seen.empty());
    });
}

BOOST_AUTO_TEST_SUITE_END()
