// SPDX-License-Identifier: Apache-2.0
// A fabric on several shards of one thread: each end of a connection lives on its own, and a device may be on each.

#include "conformance.hpp"

#include <verbena/core/reactor/simulated_shards.hpp>

#include <map>
#include <new>
#include <span>

BOOST_AUTO_TEST_SUITE(loop_shards_test)

using namespace verbena;
using namespace verbena::conformance;
using loop::fault;

namespace {

/// A server on the shards `a` and `b`, and its client on `c`.
struct three {
    explicit three(std::uint64_t seed = 1, const loop::conditions& conditions = {}) : all(clock, seed)
    {
        loop::fabric_options f;
        f.seed = seed;
        f.conditions = conditions;
        fabric = loop::make_fabric(a.reactor(), f);
        loop::options o;
        o.name = "server";
        server = fabric->make_device(o);
        at_a = server->make_context(a.reactor());
        at_b = server->make_context(b.reactor());
        o.name = "client";
        client = fabric->make_device(o);
        at_c = client->make_context(c.reactor());
        server_domain = std::move(*at_a->make_domain());
        client_domain = std::move(*at_c->make_domain());
        of_a = std::move(*at_a->listen("a"));
        of_b = std::move(*at_b->listen("b"));
    }
    /// On the shard of `l`.
    task<void> answer(verbs::listener& l, connection& n)
    {
        auto request = co_await l.next();
        if (!request)
            co_return;
        auto q = co_await (*request)->make_queue_pair(*server_domain, {});
        BOOST_REQUIRE(q);
        n.s = std::move(*q);
        n.s_seen.reports_to(complaint);
        n.s->set_handler(&n.s_seen);
        (void)co_await (*request)->accept({});
    }
    /// On `c`: to the listener `l` of `there`, which answers.
    task<bool> connect(connection& n, const shard& there, verbs::listener& l, std::string name)
    {
        scope s(c.reactor());
        const auto answers = [this, &l, &n] { return answer(l, n); };
        s.spawn([&there, &answers]() -> task<void> { co_await there.run(answers); });
        std::vector<std::byte> reply;
        auto q = co_await at_c->connect(name, *client_domain, {}, reply);
        s.request_stop();
        co_await s.join();
        if (!q)
            co_return false;
        n.c = std::move(*q);
        n.c_seen.reports_to(complaint);
        n.c->set_handler(&n.c_seen);
        co_return true;
    }
    task<bool> to_a(connection& n) { return connect(n, a, *of_a, "a"); }
    task<bool> to_b(connection& n) { return connect(n, b, *of_b, "b"); }
    /// `f`, on another shard.
    template<class F>
    static task<void> on(const shard& there, F f)
    {
        co_await there.run(std::move(f));
    }
    void run(const std::function<task<void>()>& body)
    {
        all.run(c, body());
        BOOST_TEST(complaint == "");
    }
    std::string complaint; // of recorders

    virtual_clock clock;
    memory_budget budget{std::size_t(4) << 20, 3};
    simulated_shards all;
    shard& a = all.add(budget);
    shard& b = all.add(budget);
    shard& c = all.add(budget);
    std::unique_ptr<loop::fabric> fabric;
    std::unique_ptr<loop::device> server, client;
    std::unique_ptr<loop::context> at_a, at_b, at_c;
    std::unique_ptr<verbs::protection_domain> server_domain, client_domain;
    std::unique_ptr<verbs::listener> of_a, of_b;
};

/// Where a handler was called.
struct placed final : verbs::completion_handler {
    void on_completions(std::span<const verbs::completion> batch) noexcept override
    {
        completions += batch.size();
        others += reactor::current() != home;
    }
    void on_disconnected(const error&) noexcept override
    {
        ++ends;
        others += reactor::current() != home;
    }
    reactor* home = nullptr;
    std::size_t completions = 0;
    unsigned ends = 0;
    unsigned others = 0; // calls in the turn of another shard, or in none
};

/// Messages both ways by one end, in tasks of its shard; each request that was posted has completed once.
task<std::uint64_t> talk(verbs::queue_pair& q, recorder& seen)
{
    std::vector<std::byte> out = pattern(100), in(100);
    std::vector<std::uint64_t> posted;
    for (std::uint64_t i = 0; i < 20; ++i) {
        if (post_receive(q, i, {in.data(), 100, 0}))
            posted.push_back(i);
    }
    co_await sleep_for(100us); // the other has posted its receives too
    for (std::uint64_t i = 100; i < 120; ++i) {
        if (post(q, i, opcode::send, {{out.data(), 100, 0}}))
            posted.push_back(i);
    }
    for (int i = 0; i < 300 && seen.ends == 0 && seen.seen.size() < 40; ++i)
        co_await sleep_for(1ms);
    co_await sleep_for(1ms);
    q.kill(error(std::errc::connection_aborted, "over"));
    BOOST_TEST(seen.ends == 1U);
    std::vector<std::uint64_t> completed;
    std::uint64_t arrived = 0;
    for (const verbs::completion& one : seen.seen) {
        completed.push_back(one.id);
        arrived += one.opcode == opcode::receive && one.status == status::success;
    }
    std::ranges::sort(completed);
    BOOST_TEST((completed == posted));
    co_return arrived;
}

struct run_of_traffic {
    std::uint64_t trace = 0, order = 0, arrived = 0;
    duration took{};
    loop::stats stats;
};

run_of_traffic traffic(std::uint64_t seed, const loop::conditions& conditions)
{
    three f(seed, conditions);
    run_of_traffic o;
    const time_point begun = f.clock.now();
    f.run([&]() -> task<void> {
        for (int round = 0; round < 20; ++round) {
            connection n;
            const shard& there = round % 2 == 0 ? f.a : f.b;
            auto connecting = round % 2 == 0 ? f.to_a(n) : f.to_b(n);
            const bool up = co_await std::move(connecting);
            if (up) {
                const auto other_end = [&]() -> task<void> {
                    const std::uint64_t arrived = co_await talk(*n.s, n.s_seen);
                    o.arrived += arrived;
                };
                scope s(f.c.reactor());
                s.spawn([&] { return three::on(there, other_end); });
                const std::uint64_t arrived = co_await talk(*n.c, n.c_seen);
                o.arrived += arrived;
                co_await s.join();
            }
            const auto destroy = [&] { n.s.reset(); };
            co_await there.run(destroy);
            co_await sleep_for(1ms);
        }
    });
    o.trace = f.fabric->trace();
    o.order = f.all.trace();
    o.stats = f.fabric->counters();
    o.took = f.clock.now() - begun;
    BOOST_TEST(o.stats.active == 0U);
    BOOST_TEST(f.server->grants() == 0U);
    return o;
}

class handover final : public remote_message {
public:
    handover(std::unique_ptr<verbs::arrival> p, std::function<void(std::unique_ptr<verbs::arrival>)> f)
        : peer_(std::move(p)), arrived_(std::move(f))
    {
    }
    void deliver() noexcept override
    {
        arrived_(std::move(peer_));
        delete this;
    }

private:
    std::unique_ptr<verbs::arrival> peer_;
    std::function<void(std::unique_ptr<verbs::arrival>)> arrived_;
};

} // namespace

BOOST_AUTO_TEST_CASE(a_handler_is_called_in_turns_of_its_own_shard)
{
    loop::conditions c;
    c.latency = 5us;
    for (const auto& conditions : {loop::conditions(), c}) {
        three f(3, conditions);
        placed of_server, of_client;
        of_server.home = &f.b.reactor();
        of_client.home = &f.c.reactor();
        std::vector<std::byte> out = pattern(8), in(8), back(8);
        f.run([&]() -> task<void> {
            connection n;
            const bool up = co_await f.to_b(n);
            BOOST_REQUIRE(up);
            n.c->set_handler(&of_client);
            const auto server_sends = [&] {
                n.s->set_handler(&of_server);
                BOOST_REQUIRE(post_receive(*n.s, 1, {in.data(), 8, 0}));
                BOOST_REQUIRE(post(*n.s, 2, opcode::send, {{out.data(), 8, 0}}));
            };
            BOOST_REQUIRE(post_receive(*n.c, 1, {back.data(), 8, 0}));
            co_await f.b.run(server_sends);
            BOOST_REQUIRE(post(*n.c, 2, opcode::send, {{out.data(), 8, 0}}));
            co_await sleep_for(1ms);
            BOOST_TEST(of_client.completions == 2U);
            BOOST_TEST(of_server.completions == 2U);
            n.c->disconnect();
            co_await sleep_for(1ms);
            BOOST_TEST(of_client.ends == 1U);
            BOOST_TEST(of_server.ends == 1U);
            const auto destroy = [&] { n.s.reset(); };
            co_await f.b.run(destroy);
        });
        BOOST_TEST((in == out));
        BOOST_TEST((back == out));
        BOOST_TEST(of_client.others == 0U);
        BOOST_TEST(of_server.others == 0U);
    }
}

BOOST_AUTO_TEST_CASE(latency_is_the_clocks_between_shards_too)
{
    loop::conditions c;
    c.latency = 10ms;
    three f(1, c);
    f.run([&]() -> task<void> {
        connection n;
        const time_point begun = f.clock.now();
        const bool up = co_await f.to_a(n);
        BOOST_REQUIRE(up);
        BOOST_TEST((f.clock.now() - begun == 20ms));
        std::vector<std::byte> bytes(8), in(8);
        time_point received, sent;
        n.s_seen.hook = [&](const verbs::completion&) { received = f.a.reactor().now(); };
        n.c_seen.hook = [&](const verbs::completion&) { sent = f.c.reactor().now(); };
        const auto stands = [&] { BOOST_REQUIRE(post_receive(*n.s, 1, {in.data(), 8, 0})); };
        co_await f.a.run(stands);
        co_await sleep_for(1h); // for which the server's shard has no turn
        const time_point posted = f.clock.now();
        BOOST_REQUIRE(post(*n.c, 2, opcode::send, {{bytes.data(), 8, 0}}));
        co_await sleep_for(1s);
        BOOST_TEST((received - posted == 10ms));
        BOOST_TEST((sent - posted == 20ms));
        const auto destroy = [&] { n.s.reset(); };
        co_await f.a.run(destroy);
    });
}

BOOST_AUTO_TEST_CASE(a_calm_fabric_loses_nothing_between_shards)
{
    const run_of_traffic o = traffic(1, {});
    BOOST_TEST(o.arrived == 20U * 40);
    BOOST_TEST(o.stats.messages == 20U * 40);
}

BOOST_AUTO_TEST_CASE(a_seed_gives_the_same_run_on_several_shards_and_another_seed_another)
{
    loop::conditions c;
    c.latency = 5us;
    c.per_million = {50'000, 100'000, 100'000, 50'000, 2'000, 2'000, 1'000};
    const run_of_traffic first = traffic(42, c);
    const run_of_traffic again = traffic(42, c);
    const run_of_traffic other = traffic(43, c);
    BOOST_TEST(first.trace == again.trace);
    BOOST_TEST(first.order == again.order);
    BOOST_TEST(first.arrived == again.arrived);
    BOOST_TEST((first.took == again.took));
    BOOST_TEST(first.arrived > 0U);
    BOOST_TEST(first.trace != other.trace);
    BOOST_TEST(first.order != other.order);
}

BOOST_AUTO_TEST_CASE(faults_complete_each_request_once_on_several_shards)
{
    std::array<std::uint64_t, std::size_t(fault::count_)> struck{};
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        loop::conditions c;
        c.latency = 3us;
        c.per_million = {50'000, 100'000, 100'000, 50'000, 3'000, 3'000, 3'000};
        const run_of_traffic o = traffic(seed, c);
        for (std::size_t i = 0; i < struck.size(); ++i)
            struck[i] += o.stats.faults[i];
    }
    struck[std::size_t(fault::late_revocation)] = 1; // nothing is revoked here
    for (const std::uint64_t n : struck)
        BOOST_TEST(n > 0U);
}

BOOST_AUTO_TEST_CASE(who_is_not_served_is_refused_across_shards)
{
    int not_there = 0;
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
        three f(seed);
        f.run([&]() -> task<void> {
            std::vector<std::byte> reply;
            auto nobody = co_await f.at_c->connect("nobody", *f.client_domain, {}, reply);
            BOOST_REQUIRE(!nobody);
            BOOST_TEST((nobody.error() == std::errc::connection_refused));
            // The listener goes while the request is on its way there, or waits.
            scope s(f.c.reactor());
            s.spawn([&f]() -> task<void> {
                const auto close = [&f] { f.of_a->close(); };
                co_await f.a.run(close);
            });
            auto late = co_await f.at_c->connect("a", *f.client_domain, {}, reply);
            BOOST_REQUIRE(!late);
            BOOST_TEST((late.error() == std::errc::connection_refused));
            not_there += late.error().message().find("nobody listens") != std::string::npos;
            co_await s.join();
        });
        BOOST_TEST(f.fabric->counters().active == 0U);
    }
    BOOST_TEST(not_there > 0);
    BOOST_TEST(not_there < 50);
}

BOOST_AUTO_TEST_CASE(a_rejection_brings_its_data_to_another_shard)
{
    three f;
    f.run([&]() -> task<void> {
        scope s(f.c.reactor());
        const std::vector<std::byte> why(5, std::byte(7));
        const auto rejects = [&]() -> task<void> {
            auto request = co_await f.of_a->next();
            BOOST_REQUIRE(request);
            const auto done = co_await (*request)->reject(why);
            BOOST_TEST(bool(done));
        };
        s.spawn([&] { return three::on(f.a, rejects); });
        std::vector<std::byte> reply;
        auto q = co_await f.at_c->connect("a", *f.client_domain, {}, reply);
        BOOST_TEST(!q);
        BOOST_TEST((reply == why));
        co_await s.join();
    });
}

// Whoever leaves first, nothing is left of the connection.
BOOST_AUTO_TEST_CASE(a_stop_meets_a_connect_in_all_orders)
{
    int came = 0, left = 0, unheard = 0;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        loop::conditions c;
        c.latency = 2us * (seed % 2);
        three f(seed, c);
        connection n;
        f.run([&]() -> task<void> {
            scope s(f.c.reactor());
            const auto answers = [&] { return f.answer(*f.of_a, n); };
            s.spawn([&] { return three::on(f.a, answers); });
            scope connecting(f.c.reactor());
            bool up = false;
            connecting.spawn([&]() -> task<void> {
                std::vector<std::byte> reply;
                auto q = co_await f.at_c->connect("a", *f.client_domain, {}, reply);
                up = bool(q);
                ++(q ? came : left);
            });
            for (std::uint64_t steps = seed / 2 % 8; steps > 0; --steps) {
                if (seed % 2 == 0)
                    co_await yield();
                else
                    co_await sleep_for(1us);
            }
            connecting.request_stop();
            co_await connecting.join();
            co_await sleep_for(1ms);
            unheard += n.s == nullptr;
            s.request_stop();
            co_await s.join();
            const auto over = [&] {
                BOOST_TEST(n.s_seen.ends == (n.s == nullptr ? 0U : 1U));
                n.s.reset();
            };
            co_await f.a.run(over);
        });
        BOOST_TEST(f.fabric->counters().active == 0U);
    }
    BOOST_TEST(came > 10);
    BOOST_TEST(left > 10);
    BOOST_TEST(unheard > 0);
    BOOST_TEST(unheard < left);
}

BOOST_AUTO_TEST_CASE(a_device_goes_on_all_its_shards)
{
    for (const bool by_itself : {false, true}) {
        three f;
        f.run([&]() -> task<void> {
            connection on_a, on_b;
            const bool up_a = co_await f.to_a(on_a);
            const bool up_b = co_await f.to_b(on_b);
            BOOST_REQUIRE((up_a && up_b));
            const auto remove = [&] { f.at_b->remove_device(); };
            if (by_itself)
                f.server->remove_device(); // in the turn of the client's
            else
                co_await f.b.run(remove);
            BOOST_TEST(!f.at_a->present());
            co_await sleep_for(1ms);
            for (connection* n : {&on_a, &on_b}) {
                BOOST_TEST(n->s_seen.ends == 1U);
                BOOST_TEST((n->s_seen.why == std::errc::no_such_device));
                BOOST_TEST(n->c_seen.ends == 1U);
            }
            connection none;
            const bool not_up = co_await f.to_a(none);
            BOOST_TEST(!not_up);
            f.server->return_device();
            connection back;
            const bool up_again = co_await f.to_a(back);
            BOOST_TEST(up_again);
            const auto destroy = [&] {
                on_a.s.reset();
                on_b.s.reset();
                back.s.reset();
            };
            co_await f.a.run(destroy);
        });
        BOOST_TEST(f.fabric->counters().active == 0U);
    }
}

// The initiator's device goes in the turn of the shard that is asked.
BOOST_AUTO_TEST_CASE(a_device_that_goes_ends_a_connect_of_another_shard)
{
    three f;
    f.run([&]() -> task<void> {
        scope s(f.c.reactor());
        const auto removes = [&]() -> task<void> {
            auto request = co_await f.of_a->next();
            BOOST_REQUIRE(request);
            f.client->remove_device();
        };
        s.spawn([&] { return three::on(f.a, removes); });
        std::vector<std::byte> reply;
        auto q = co_await f.at_c->connect("a", *f.client_domain, {}, reply);
        BOOST_REQUIRE(!q);
        BOOST_TEST((q.error() == std::errc::no_such_device));
        co_await s.join();
    });
}

BOOST_AUTO_TEST_CASE(a_grant_of_one_shard_is_used_by_the_connection_of_another)
{
    three f;
    f.run([&]() -> task<void> {
        connection n;
        const bool up = co_await f.to_b(n);
        BOOST_REQUIRE(up);
        std::vector<std::byte> theirs(8), ours = pattern(8);
        verbs::grant g;
        const auto grants = [&]() -> task<void> {
            auto made = co_await f.server_domain->make_grant(theirs, verbs::access::remote_write, nullptr);
            BOOST_REQUIRE(made);
            g = std::move(*made);
        };
        co_await f.a.run(grants);
        BOOST_TEST(f.at_b->grants() == 1U);
        BOOST_REQUIRE(post(*n.c, 1, opcode::rdma_write, {{ours.data(), 8, 0}}, g.where()));
        co_await sleep_for(1ms);
        BOOST_TEST(n.c_seen.good(1));
        BOOST_TEST((theirs == ours));
        // Revoked by the shard that made it, it is good for nothing on the other.
        const verbs::remote_segment where = g.where();
        const auto revokes = [&]() -> task<void> {
            const std::span<verbs::grant> batch(&g, 1);
            co_await f.server_domain->revoke(batch);
            std::ranges::fill(theirs, std::byte(0));
        };
        co_await f.a.run(revokes);
        BOOST_REQUIRE(post(*n.c, 2, opcode::rdma_write, {{ours.data(), 8, 0}}, where));
        co_await sleep_for(1ms);
        BOOST_TEST(n.c_seen.find(2)->status == status::remote_access_error);
        BOOST_TEST((theirs == std::vector<std::byte>(8)));
        const auto destroy = [&] { n.s.reset(); };
        co_await f.b.run(destroy);
    });
    BOOST_TEST(f.server->grants() == 0U);
}

BOOST_AUTO_TEST_CASE(a_peer_is_handed_over_to_another_shard)
{
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        three f(seed);
        auto adopted = std::move(*f.at_b->listen_adopted("loop://adopted"));
        BOOST_TEST(adopted->local_url() == "loop://adopted");
        std::map<std::size_t, int> seen; // by the size of the private data
        f.at_a->divert([&](std::unique_ptr<verbs::arrival>& peer, verbs::listener& where) {
            BOOST_TEST(&where == f.of_a.get());
            BOOST_TEST(reactor::current() == &f.a.reactor());
            const std::size_t size = peer->private_data().size();
            ++seen[size];
            if (size == 1)
                f.b.reactor().post_remote(*new handover(std::move(peer), [&](auto p) {
                    BOOST_TEST(reactor::current() == &f.b.reactor());
                    f.at_b->adopt(std::move(p), *adopted);
                }));
            else if (size == 2)
                peer.reset();
        });
        f.run([&]() -> task<void> {
            std::vector<std::byte> reply;
            const std::vector<std::byte> data(2);
            verbs::connect_options o;
            // Diverted, and served there.
            connection n;
            scope s(f.c.reactor());
            const auto answers = [&] { return f.answer(*adopted, n); };
            s.spawn([&] { return three::on(f.b, answers); });
            o.private_data = std::span(data).first(1);
            auto served = co_await f.at_c->connect("a", *f.client_domain, o, reply);
            BOOST_REQUIRE(served);
            n.c = std::move(*served);
            n.c->set_handler(&n.c_seen);
            co_await s.join();
            n.c->disconnect();
            co_await sleep_for(1ms);
            BOOST_TEST(n.s_seen.ends == 1U);
            // Dropped.
            o.private_data = data;
            auto dropped = co_await f.at_c->connect("a", *f.client_domain, o, reply);
            BOOST_REQUIRE(!dropped);
            BOOST_TEST((dropped.error() == std::errc::connection_refused));
            // Left where it came.
            connection here;
            const bool up = co_await f.to_a(here);
            BOOST_TEST(up);
            // To a listener that is closed.
            const auto close = [&] {
                adopted->close();
                n.s.reset();
            };
            co_await f.b.run(close);
            o.private_data = std::span(data).first(1);
            auto late = co_await f.at_c->connect("a", *f.client_domain, o, reply);
            BOOST_REQUIRE(!late);
            BOOST_TEST((late.error() == std::errc::connection_refused));
            const auto destroy = [&] { here.s.reset(); };
            co_await f.a.run(destroy);
        });
        BOOST_TEST((seen == std::map<std::size_t, int>{{0, 1}, {1, 2}, {2, 1}}));
        BOOST_TEST(f.fabric->counters().active == 0U);
    }
}

// It comes by a message between shards, which an exception must not leave.
BOOST_AUTO_TEST_CASE(a_peer_for_which_there_is_no_memory_is_refused)
{
    three f;
    unsigned asked = 0;
    f.at_a->divert([&](std::unique_ptr<verbs::arrival>&, verbs::listener&) {
        if (asked++ == 0)
            throw std::bad_alloc();
    });
    f.run([&]() -> task<void> {
        std::vector<std::byte> reply;
        auto unlucky = co_await f.at_c->connect("a", *f.client_domain, {}, reply);
        BOOST_REQUIRE(!unlucky);
        BOOST_TEST((unlucky.error() == std::errc::connection_refused));
        connection n;
        const bool up = co_await f.to_a(n);
        BOOST_TEST(up);
        const auto destroy = [&] { n.s.reset(); };
        co_await f.a.run(destroy);
    });
    BOOST_TEST(asked == 2u);
    BOOST_TEST(f.fabric->counters().active == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
