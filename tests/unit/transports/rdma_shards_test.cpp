// SPDX-License-Identifier: Apache-2.0
// A protection domain of RDMA devices that two shards use: what one of them registers and grants, the other one's queue pairs know.
#include <boost/test/unit_test.hpp>

#include "fake_rdma_core.hpp"

#include <verbena/core/task/yield.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <semaphore>
#include <source_location>
#include <vector>

BOOST_AUTO_TEST_SUITE(rdma_shards_test)

using namespace verbena;
using namespace verbena::rdma_test;

namespace {

struct side {
    side(rdma::host& all, blocking_pool& pool) : tasks(std::in_place, *shard)
    {
        auto made = all.make_context(*shard, {pool, pool}, {});
        BOOST_REQUIRE_MESSAGE(made, why(made));
        context = std::move(*made);
    }
    std::unique_ptr<reactor> shard = std::move(*reactor::create());
    std::optional<scope> tasks;
    std::unique_ptr<rdma::context> context;
};

struct two_shards {
    ~two_shards()
    {
        queue_pair.reset();
        domain.reset();
        a.context.reset();
        b.context.reset();
        pool.finish();
        BOOST_TEST(it().regions == 0);
        BOOST_TEST(it().protection_domains == 0);
    }
    void until(const std::function<bool()>& done,
               std::source_location where = std::source_location::current())
    {
        for (const time_point limit = system_clock().now() + 60s; !done();) {
            BOOST_REQUIRE_MESSAGE(system_clock().now() < limit, "nothing came at line " << where.line());
            a.shard->turn();
            b.shard->turn();
            std::this_thread::yield();
        }
    }
    // Runs a task on a shard to its end, while both have their turns.
    void run(side& s, std::function<task<void>()> f)
    {
        bool over = false;
        s.tasks->spawn([&]() -> task<void> {
            co_await yield(); // until it is this shard's turn
            co_await f();
            over = true;
        });
        until([&] { return over; });
    }
    void connect_b() { connect(b, queue_pair); }
    // Before it is accepted.
    task<result<std::unique_ptr<rdma::queue_pair>>> new_pair(side& s)
    {
        auto* const id = new rdma_cm_id{};
        id->verbs = &it().verbs();
        id->port_num = 1;
        auto& c = static_cast<context_impl&>(*s.context);
        auto& part = static_cast<whole_domain&>(*domain).at(c);
        const verbs::queue_pair_options o;
        auto made = co_await c.make_pair(id, part, o, "peer:1", "peer");
        if (!made)
            delete id;
        co_return std::move(made);
    }
    error refusal(side& s)
    {
        error out;
        run(s, [&]() -> task<void> {
            auto made = co_await new_pair(s);
            BOOST_REQUIRE(!made);
            out = made.error();
        });
        return out;
    }
    // All of `bytes`, by a region of its own.
    verbs::grant_request grant_of_a(std::shared_ptr<const void> keep)
    {
        verbs::grant_request r;
        r.memory = bytes;
        r.own_region = true;
        r.keep = std::move(keep);
        run(a, [&]() -> task<void> {
            auto made = co_await domain->make_grants({&r, 1});
            BOOST_REQUIRE_MESSAGE(made, why(made));
        });
        return r;
    }
    void connect(side& s, std::unique_ptr<rdma::queue_pair>& into)
    {
        run(s, [&]() -> task<void> {
            auto made = co_await new_pair(s);
            BOOST_REQUIRE_MESSAGE(made, why(made));
            into = std::move(*made);
            into->set_handler(&handler);
            into->open(1);
        });
    }
    result<void> post(std::span<std::byte> bytes, std::uint32_t key)
    {
        const verbs::segment all{bytes.data(), std::uint32_t(bytes.size()), key};
        verbs::send_request w;
        w.segments = {&all, 1};
        return queue_pair->post_send({&w, 1});
    }

    std::unique_ptr<rdma::host> all = rdma::make_host();
    blocking_pool pool{2};
    side a{*all, pool};
    side b{*all, pool};
    std::unique_ptr<verbs::protection_domain> domain = std::move(*all->make_domain());
    ends handler;
    std::unique_ptr<rdma::queue_pair> queue_pair;
    std::vector<std::byte> bytes = std::vector<std::byte>(4096);
};

} // namespace

BOOST_FIXTURE_TEST_CASE(memory_of_one_shard_is_known_at_the_queue_pair_of_another, two_shards)
{
    BOOST_TEST(all->query().domains_across_shards);
    BOOST_TEST(rdma::make_host()->query().domains_across_shards); // before there is a context
    connect_b();
    std::unique_ptr<verbs::region> region;
    run(a, [&]() -> task<void> {
        // The part of this shard comes with a queue pair or a grant.
        auto made = co_await domain->register_memory(bytes);
        BOOST_REQUIRE_MESSAGE(made, why(made));
        region = std::move(*made);
        auto granted = co_await domain->make_grant(bytes, verbs::access::remote_read, nullptr);
        BOOST_REQUIRE_MESSAGE(granted, why(granted));
    });
    BOOST_TEST(it().protection_domains == 1);
    BOOST_TEST(domain->is_registered(bytes));
    auto posted = post(bytes, 0);
    BOOST_TEST(bool(posted), why(posted));
    posted = post(bytes, region->local_key());
    BOOST_TEST(bool(posted), why(posted));
    BOOST_TEST(queue_pair->connected());
    run(a, [&]() -> task<void> {
        region.reset();
        co_return;
    });
    BOOST_TEST(!domain->is_registered(bytes));
    // What nobody knows any more ends the connection.
    BOOST_TEST(bool(post(bytes, 0)));
    until([&] { return handler.count != 0; });
}

// Of memory that lasts, and of which each peer gets some: all of it is not registered for that.
BOOST_FIXTURE_TEST_CASE(a_grant_with_a_region_of_its_own_needs_no_other_and_takes_it_along, two_shards)
{
    connect_b();
    const auto kept = std::make_shared<int>();
    verbs::grant_request r;
    r.memory = bytes;
    r.own_region = true;
    r.keep = kept;
    run(a, [&]() -> task<void> {
        auto made = co_await domain->make_grants({&r, 1});
        BOOST_REQUIRE_MESSAGE(made, why(made));
    });
    BOOST_TEST(it().regions == 1);
    BOOST_TEST(r.made.where().key != 0u);
    BOOST_TEST(!domain->is_registered(bytes)); // for nobody else
    BOOST_TEST(kept.use_count() == 2);
    // Any shard takes it away, and none of them waits for the kernel; the memory is kept until it has gone.
    int kept_then = 0;
    it().before_taken_away = [&] { kept_then = int(kept.use_count()); };
    run(b, [&]() -> task<void> { co_await domain->revoke({&r.made, 1}); });
    it().before_taken_away = nullptr;
    BOOST_TEST(kept_then == 2);
    BOOST_TEST(it().regions == 0);
    BOOST_TEST((it().taken_away_by != std::this_thread::get_id()));
    BOOST_TEST(kept.use_count() == 1);

    std::array<verbs::grant_request, 2> wrong;
    for (auto& each : wrong) {
        each.memory = bytes;
        each.own_region = true;
    }
    wrong[0].scope = queue_pair.get();
    wrong[1].renewable = true;
    run(b, [&]() -> task<void> {
        for (auto& each : wrong) {
            auto made = co_await domain->make_grants({&each, 1});
            BOOST_TEST((!made && made.error() == std::errc::invalid_argument));
        }
    });
    // Without room for it the request keeps nothing.
    it().refused_region = ENOMEM;
    r.keep = kept;
    run(a, [&]() -> task<void> {
        auto made = co_await domain->make_grants({&r, 1});
        BOOST_TEST((!made && made.error() == std::errc::not_enough_memory));
    });
    it().refused_region.reset();
    BOOST_TEST(it().regions == 0);
}

// Its peer may still reach the memory, which must not become another's. What was dropped stays until the kernel is asked
// again.
BOOST_FIXTURE_TEST_CASE(memory_that_the_kernel_does_not_take_away_stays_with_its_domain, two_shards)
{
    const auto kept = std::make_shared<int>();
    std::unique_ptr<rdma::queue_pair> own;
    for (const int revoked_by : {0, 1, 2}) {
        queue_pair.reset();
        own.reset();
        it().stuck_regions = 0;
        connect(a, own);
        connect_b();
        BOOST_TEST(it().regions == 0);
        verbs::grant_request r = grant_of_a(kept);
        it().stuck_regions = 2;
        if (revoked_by == 2)
            run(a, [&]() -> task<void> {
                r.made = verbs::grant(); // dropped
                co_return;
            });
        else
            run(revoked_by == 0 ? a : b, [&]() -> task<void> { co_await domain->revoke({&r.made, 1}); });
        until([&] { return own->over(); });
        BOOST_TEST(it().stuck_regions == (revoked_by == 2 ? 1 : 0));
        BOOST_TEST(it().regions == 1);
        BOOST_TEST(kept.use_count() == 2);
    }
    queue_pair.reset();
    own.reset();
    it().stuck_regions = 0;
    domain.reset();
    BOOST_TEST(it().regions == 0);
    BOOST_TEST(kept.use_count() == 1);
}

// A key that the kernel leaves is of no use: whoever has revoked a grant may count on it.
BOOST_FIXTURE_TEST_CASE(no_peer_has_a_connection_with_a_key_that_was_not_taken_away, two_shards)
{
    const auto kept = std::make_shared<int>();
    std::unique_ptr<verbs::protection_domain> another = std::move(*all->make_domain());
    std::unique_ptr<rdma::queue_pair> stays, own;
    ends of_another;
    std::swap(domain, another);
    connect(a, stays);
    stays->set_handler(&of_another);
    std::swap(domain, another);
    for (const bool is_revoked_by_a : {true, false}) {
        for (const int refusals : {1, 2}) {
            handler.count = 0;
            connect(a, own);
            connect_b();
            const unsigned destroyed = it().destroyed;
            verbs::grant_request r = grant_of_a(kept);
            it().stuck_regions = refusals;
            run(is_revoked_by_a ? a : b, [&]() -> task<void> {
                co_await domain->revoke({&r.made, 1});
                BOOST_TEST(it().destroyed - destroyed == 2u);
                BOOST_TEST(own->over());
                BOOST_TEST(queue_pair->over());
            });
            BOOST_TEST(handler.count == 2u);
            BOOST_TEST((handler.last == std::errc::io_error));
            // Without connections the kernel takes it away, as a rule. Where it does not, there are no new ones.
            BOOST_TEST(it().regions == refusals - 1);
            BOOST_TEST(kept.use_count() == refusals);
            own.reset();
            queue_pair.reset();
            if (refusals == 2) {
                it().stuck_regions = 1;
                BOOST_TEST((refusal(b) == std::errc::device_or_resource_busy));
                BOOST_TEST(it().regions == 1);
            }
        }
    }
    connect_b();
    BOOST_TEST(it().regions == 0);
    BOOST_TEST(kept.use_count() == 1);
    BOOST_TEST(stays->connected());
    BOOST_TEST(of_another.count == 0u);
    run(a, [&]() -> task<void> {
        stays.reset();
        co_return;
    });
}

// Its maker hears of it, or it ends like the others.
BOOST_FIXTURE_TEST_CASE(a_connection_that_is_being_made_has_no_key_that_was_not_taken_away, two_shards)
{
    const auto kept = std::make_shared<int>();
    connect_b();
    verbs::grant_request r = grant_of_a(kept);
    std::unique_ptr<rdma::queue_pair> begun;
    run(a, [&]() -> task<void> {
        auto made = co_await new_pair(a);
        BOOST_REQUIRE_MESSAGE(made, why(made));
        begun = std::move(*made); // and not accepted
    });
    it().stuck_regions = 2;
    run(b, [&]() -> task<void> {
        co_await domain->revoke({&r.made, 1});
        BOOST_TEST(begun->over());
    });
    begun.reset();
    // And one that nobody could end, as there is no queue pair yet.
    it().stuck_regions = 0;
    queue_pair.reset();
    connect_b();
    r = grant_of_a(kept);
    std::binary_semaphore go_on{0};
    std::atomic<bool> is_there{false};
    it().before_pair = [&] {
        is_there = true;
        go_on.acquire();
    };
    bool over = false;
    a.tasks->spawn([&]() -> task<void> {
        auto made = co_await new_pair(a);
        BOOST_TEST((!made && made.error() == std::errc::device_or_resource_busy));
        over = true;
    });
    until([&] { return is_there.load(); });
    it().stuck_regions = 2;
    run(b, [&]() -> task<void> { co_await domain->revoke({&r.made, 1}); });
    BOOST_TEST(!over);
    go_on.release();
    until([&] { return over; });
    it().before_pair = nullptr;
    queue_pair.reset();
}

// Chunks of RTRS are: any connection of a path takes a key away and gives the next one.
BOOST_AUTO_TEST_CASE(a_grant_of_one_shard_is_renewed_by_the_queue_pair_of_another)
{
    it().makes_windows = true;
    it().refused_bind = 0;
    it().bind_status = IBV_WC_SUCCESS;
    it().attributes.device_cap_flags = IBV_DEVICE_MEM_WINDOW;
    {
        two_shards all;
        std::unique_ptr<rdma::queue_pair> own;
        all.connect(all.a, own);
        all.connect_b();
        std::unique_ptr<verbs::region> region;
        verbs::grant_request wanted;
        all.run(all.a, [&]() -> task<void> {
            auto made = co_await all.domain->register_memory(all.bytes);
            BOOST_REQUIRE_MESSAGE(made, why(made));
            region = std::move(*made);
            wanted.memory = all.bytes;
            wanted.rights = verbs::access::remote_write;
            wanted.renewable = true;
            auto granted = co_await all.domain->make_grants({&wanted, 1});
            BOOST_REQUIRE_MESSAGE(granted, why(granted));
        });
        verbs::grant& grant = wanted.made;
        std::uint32_t last = grant.where().key;
        for (rdma::queue_pair* by : {all.queue_pair.get(), own.get(), all.queue_pair.get()}) {
            for (const verbs::opcode what : {verbs::opcode::unbind, verbs::opcode::bind}) {
                it().doorbells.clear();
                const std::uint32_t next = grant.next_key();
                verbs::send_request w;
                w.opcode = what;
                w.grant = &grant;
                const auto posted = by->post_send({&w, 1});
                BOOST_REQUIRE_MESSAGE(posted, why(posted));
                BOOST_REQUIRE(it().doorbells.size() == 1u);
                const auto& bind = it().doorbells.front().front();
                BOOST_TEST((bind.what == IBV_WR_BIND_MW));
                BOOST_TEST(bind.key == next);
                BOOST_TEST(bind.key != last);
                BOOST_TEST(bind.length == (what == verbs::opcode::bind ? all.bytes.size() : 0u));
                BOOST_TEST(grant.where().key == next);
                last = next;
            }
        }
        all.run(all.b, [&]() -> task<void> {
            all.queue_pair.reset();
            co_return;
        });
        all.run(all.a, [&]() -> task<void> {
            own.reset();
            co_await all.domain->revoke({&grant, 1});
            region.reset();
        });
    }
    BOOST_TEST(it().windows == 0);
    it().attributes.device_cap_flags = 0;
    it().makes_windows = false;
}

// It was made there, so it is in that shard's books; and the kernel is asked on no shard.
BOOST_FIXTURE_TEST_CASE(a_grant_of_one_shard_is_taken_back_from_another, two_shards)
{
    connect_b();
    std::unique_ptr<verbs::region> region;
    std::array<verbs::grant, 2> grants;
    run(a, [&]() -> task<void> {
        auto made = co_await domain->register_memory(bytes);
        BOOST_REQUIRE(made);
        region = std::move(*made);
        for (auto& g : grants) {
            auto granted = co_await domain->make_grant(bytes, verbs::access::remote_read, nullptr);
            BOOST_REQUIRE_MESSAGE(granted, why(granted));
            g = std::move(*granted);
        }
    });
    BOOST_TEST(it().regions == 3);
    bool revoked = false;
    b.tasks->spawn([&]() -> task<void> {
        co_await domain->revoke(grants);
        revoked = true;
    });
    for (int i = 0; i < 5; ++i)
        b.shard->turn();
    BOOST_TEST(!revoked);
    BOOST_TEST(it().regions == 3);
    a.shard->turn();
    BOOST_TEST(it().regions == 3);
    until([&] { return revoked; });
    BOOST_TEST(it().regions == 1);
    BOOST_TEST((it().taken_away_by != std::this_thread::get_id()));
    BOOST_TEST(!grants[0]);
    BOOST_TEST(!grants[1]);
    run(a, [&]() -> task<void> {
        region.reset();
        co_return;
    });
}

BOOST_FIXTURE_TEST_CASE(a_grant_that_another_shard_drops_keeps_its_memory_until_it_has_gone, two_shards)
{
    std::unique_ptr<verbs::region> region;
    verbs::grant g;
    auto owner = std::make_shared<const int>(1);
    const std::weak_ptr<const int> kept = owner;
    run(a, [&]() -> task<void> {
        auto made = co_await domain->register_memory(bytes);
        BOOST_REQUIRE(made);
        region = std::move(*made);
        std::array<verbs::grant_request, 1> wanted;
        wanted[0].memory = bytes;
        wanted[0].keep = std::exchange(owner, nullptr);
        const auto granted = co_await domain->make_grants(wanted);
        BOOST_REQUIRE_MESSAGE(granted, why(granted));
        g = std::move(wanted[0].made);
    });
    b.tasks->spawn([&]() -> task<void> {
        g = verbs::grant();
        co_return;
    });
    for (int i = 0; i < 5; ++i)
        b.shard->turn();
    BOOST_TEST(!g);
    // Two shards of one thread: the message goes where the grant was made.
    until([&] { return kept.expired(); });
    BOOST_TEST(it().regions == 1);
    run(a, [&]() -> task<void> {
        region.reset();
        co_return;
    });
}

namespace {

class no_calls final : public rpc::dispatcher {
public:
    task<bool> dispatch(rpc::call&) override { co_return false; }
};

// Two listeners for calls on a shard, whose buffers lie in one piece.
struct listeners {
    listeners(side& s, verbs::protection_domain& d) : on(s)
    {
        options.domain = &d;
        for (const char* url : {"rdma://first", "rdma://second"}) {
            all.push_back(std::move(*on.context->listen_adopted(url)));
            on.tasks->spawn([this, at = all.back().get()] { return serve(*at); });
        }
    }
    task<void> serve(verbs::listener& at)
    {
        co_await yield(); // to a turn of the shard
        co_await rpcrdma::serve(*on.context, at, buffers, dispatcher, options, stats);
    }
    ~listeners() { close(); }
    void close()
    {
        for (auto& l : all)
            l->close();
        for (int i = 0; i < 1000 && on.tasks->live() != 0; ++i)
            on.shard->turn();
    }
    side& on;
    memory_budget budget{std::size_t(16) << 20};
    buffer_pool buffers{budget, on.shard.get()};
    lease held = buffers.try_acquire(4096);
    no_calls dispatcher;
    rpcrdma::responder_options options;
    rpcrdma::responder_stats stats;
    std::vector<std::unique_ptr<verbs::listener>> all;
};

} // namespace

// However many listeners and shards use it.
BOOST_FIXTURE_TEST_CASE(listeners_register_their_buffers_once_in_their_domain, two_shards)
{
    listeners of_a(a, *domain);
    listeners of_b(b, *domain);
    for (int i = 0; i < 5; ++i) {
        a.shard->turn();
        b.shard->turn();
    }
    BOOST_TEST(it().regions == 0); // no device is used yet
    BOOST_REQUIRE(domain->is_registered(of_a.held.bytes()));
    BOOST_TEST(a.tasks->live() == 2u);
    connect_b();
    BOOST_TEST(it().regions == 1);
    run(a, [&]() -> task<void> {
        const auto granted =
            co_await domain->make_grant(of_a.held.bytes(), verbs::access::remote_read, nullptr);
        BOOST_REQUIRE_MESSAGE(granted, why(granted));
        BOOST_TEST(domain->is_registered(of_b.held.bytes()));
    });
    BOOST_TEST(it().regions == 2);
    BOOST_TEST(it().protection_domains == 1);
    of_a.close();
    of_b.close();
    BOOST_TEST(a.tasks->live() == 0u);
    BOOST_TEST(b.tasks->live() == 0u);
    BOOST_TEST(it().regions == 2); // for the next ones
}

// What stands where a pool was is another one.
BOOST_FIXTURE_TEST_CASE(a_pool_at_the_place_of_another_one_is_registered, two_shards)
{
    connect_b();
    memory_budget budget(std::size_t(16) << 20);
    std::optional<buffer_pool> pool;
    for (int i = 0; i < 2; ++i) {
        pool.emplace(budget, b.shard.get());
        run(b, [&]() -> task<void> {
            const auto added = co_await domain->add_pool(*pool);
            BOOST_REQUIRE_MESSAGE(added, why(added));
        });
        const lease held = pool->try_acquire(4096);
        BOOST_TEST(domain->is_registered(held.bytes()));
    }
    pool.reset();
}

BOOST_AUTO_TEST_CASE(a_shard_without_a_context_is_told_so)
{
    const auto all = rdma::make_host();
    auto domain = std::move(*all->make_domain());
    const auto shard = std::move(*reactor::create());
    std::vector<std::byte> bytes(64);
    scope tasks(*shard);
    bool over = false;
    tasks.spawn([&]() -> task<void> {
        const auto made = co_await domain->register_memory(bytes);
        BOOST_TEST((!made && made.error() == std::errc::no_such_device));
        over = true;
    });
    shard->turn();
    BOOST_TEST(over);
}

BOOST_AUTO_TEST_SUITE_END()
