// SPDX-License-Identifier: Apache-2.0
// What is granted to the connections of a listener, and the receives behind it: on a provider that takes memory when a message comes,
// on one with shared receives that must stand, and on one where each connection has its own.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "../../../protocols/rpcrdma/credits.hpp"
#include "../log_at.hpp"

#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/rpcrdma/header.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>
#include <verbena/transports/loop.hpp>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <source_location>
#include <vector>

BOOST_AUTO_TEST_SUITE(rpcrdma_credits_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t plenty = 1000; // credits that a requester asks for

// --- the accounts alone ---

rpcrdma::credit_terms terms(std::uint64_t most_raised, bool on_demand = false)
{
    rpcrdma::credit_terms t;
    t.most = 16;
    t.idle = 2;
    t.most_raised = most_raised;
    t.on_demand = on_demand;
    return t;
}

struct requester {
    requester(rpcrdma::credit_pool& pool, std::uint64_t& of_peer, time_point& now)
        : account(pool, of_peer), now(now)
    {
    }
    // So many calls at once; what the last reply grants.
    std::uint32_t calls(std::uint32_t n)
    {
        std::uint32_t granted = 0;
        for (std::uint32_t i = 0; i < n; ++i)
            (void)account.called(plenty, now);
        for (std::uint32_t i = 0; i < n; ++i)
            granted = account.grant(plenty, false, now);
        return granted;
    }
    // Uses all that it is granted until that grows no more.
    std::uint32_t works()
    {
        std::uint32_t had = 2;
        for (std::uint32_t granted = 0; (granted = calls(had)) > had;)
            had = granted;
        return had;
    }
    rpcrdma::credit_account account;
    time_point& now;
};

struct accounts {
    explicit accounts(const rpcrdma::credit_terms& t) : pool(t) {}
    requester& add()
    {
        of_peers.push_back(0);
        all.push_back(std::make_unique<requester>(pool, of_peers.back(), now));
        return *all.back();
    }
    time_point now{1h};
    rpcrdma::credit_pool pool;
    std::deque<std::uint64_t> of_peers;
    std::vector<std::unique_ptr<requester>> all;
};

} // namespace

BOOST_AUTO_TEST_CASE(credits_rise_with_use_and_fall_in_silence)
{
    for (const bool on_demand : {false, true}) {
        accounts a(terms(1000, on_demand));
        requester& r = a.add();
        BOOST_TEST(a.pool.promised() == 2u);
        BOOST_TEST(r.works() == 16u);
        BOOST_TEST(a.pool.promised() == 16u);
        a.now += 900ms;
        BOOST_TEST(r.calls(1) == 16u);
        a.now += 1100ms;
        BOOST_TEST(r.calls(1) == 2u);
        // It may have sent as many as it was told before, and its receives stand for a while.
        BOOST_TEST(r.account.bound(a.now) == 16u);
        BOOST_TEST(a.pool.promised() == (on_demand ? 2u : 16u));
        a.now += 1s;
        BOOST_TEST(r.account.bound(a.now) == 2u);
        requester& other = a.add(); // what is over is found when somebody wants something
        (void)other.calls(2);
        BOOST_TEST(a.pool.promised() == 2u + 4u);
        a.all.clear();
        BOOST_TEST(a.pool.promised() == 0u);
        BOOST_TEST(a.pool.accounts() == 0u);
    }
}

// It works, but not as much.
BOOST_AUTO_TEST_CASE(credits_that_are_not_used_fall_by_halves)
{
    accounts a(terms(1000));
    requester& r = a.add();
    BOOST_TEST(r.works() == 16u);
    std::uint32_t last = 16;
    for (int i = 0; i < 100; ++i) {
        a.now += 110ms;
        const std::uint32_t granted = r.calls(1);
        BOOST_TEST((granted == last || granted == last / 2));
        last = granted;
    }
    BOOST_TEST(last == 4u); // one call in a window is a quarter of that
}

// RFC 8166 3.3.1. What it was told before counts until it can have heard of less, however often it is told.
BOOST_AUTO_TEST_CASE(a_lower_grant_settles_though_the_requester_works_on)
{
    accounts a(terms(1000));
    requester& r = a.add();
    BOOST_TEST(r.works() == 16u);
    a.now += 1100ms;
    BOOST_TEST(r.calls(1) == 2u);
    for (int i = 0; i < 9; ++i) {
        a.now += 105ms;
        BOOST_TEST(r.calls(1) == 2u);
        BOOST_TEST(r.account.bound(a.now) == 16u);
    }
    a.now += 105ms;
    BOOST_TEST(r.calls(1) == 2u);
    BOOST_TEST(r.account.bound(a.now) == 2u);
    BOOST_TEST(a.pool.promised() == 2u);
}

// One that works can't keep the others at what they began with.
BOOST_AUTO_TEST_CASE(who_has_more_than_a_share_gives_way)
{
    for (const bool on_demand : {false, true}) {
        accounts a(terms(28, on_demand));
        requester& first = a.add();
        requester& second = a.add();
        BOOST_TEST(first.works() == 16u);
        BOOST_TEST(second.works() == 16u);
        requester& third = a.add();
        BOOST_TEST(third.calls(2) == 2u); // there is none left
        BOOST_TEST(first.calls(4) == 2u + 28 / 3);
        BOOST_TEST(second.calls(4) == 2u + 28 / 3);
        a.now += 1s;
        BOOST_TEST(a.pool.promised() <= 28u + 3 * 2);
        BOOST_TEST(third.calls(2) == 4u);
        BOOST_TEST(third.calls(4) == 8u);
        BOOST_TEST(a.pool.raised() <= 28u);
    }
}

// Nothing is ever granted that is not promised, and no more is promised than there is.
BOOST_AUTO_TEST_CASE(what_is_granted_adds_up_to_no_more_than_there_is)
{
    constexpr std::uint64_t most = 40;
    std::uint32_t random = 1;
    const auto below = [&](std::uint32_t n) {
        random = random * 1664525 + 1013904223;
        return (random >> 8) % n;
    };
    accounts a(terms(most));
    std::vector<std::uint32_t> had;
    for (int i = 0; i < 20; ++i) {
        a.add();
        had.push_back(2);
    }
    for (int step = 0; step < 20'000; ++step) {
        a.now += std::chrono::milliseconds(below(40));
        const std::size_t i = below(20);
        had[i] = a.all[i]->calls(1 + below(had[i]));
        BOOST_REQUIRE(had[i] >= 1u);
        std::uint64_t sum = 0;
        for (const auto& r : a.all)
            sum += std::max(r->account.bound(a.now), 2u);
        BOOST_REQUIRE(sum <= a.pool.promised());
        BOOST_REQUIRE(a.pool.raised() <= most);
    }
}

// One that was told much, and is silent, would hold it for ever. What it sends then waits for its turn.
BOOST_AUTO_TEST_CASE(where_messages_wait_silent_connections_hold_nothing)
{
    accounts a(terms(14, true));
    requester& first = a.add();
    BOOST_TEST(first.works() == 16u);
    a.now += 1100ms;
    requester& second = a.add();
    BOOST_TEST(second.works() == 16u);
    BOOST_TEST(first.account.bound(a.now) == 16u); // it was told so
    BOOST_TEST(first.calls(16) == 2u);
    BOOST_TEST(a.pool.raised() <= 14u);
}

BOOST_AUTO_TEST_CASE(replies_to_calls_back_are_promised_too)
{
    accounts a(terms(100));
    requester& r = a.add();
    for (int i = 0; i < 5; ++i)
        r.account.called_back(2);
    BOOST_TEST(a.pool.promised() == 4u);
    r.account.answered_back();
    BOOST_TEST(a.pool.promised() == 3u);
    for (int i = 0; i < 5; ++i)
        r.account.answered_back();
    BOOST_TEST(a.pool.promised() == 2u);
}

namespace {

// --- a responder and its requesters ---

enum class receives : std::uint8_t { on_demand, shared, own };
constexpr receives all_kinds[] = {receives::on_demand, receives::shared, receives::own};
std::ostream& operator<<(std::ostream& out, receives r)
{
    return out << (r == receives::on_demand ? "on demand" : r == receives::shared ? "shared" : "own");
}

class answering final : public rpc::dispatcher {
public:
    task<bool> dispatch(rpc::call& c) override
    {
        BOOST_REQUIRE((c.decode_header() == rpc::call_verdict::good));
        ++served;
        if (waits) {
            const bool goes = co_await go.wait();
            if (!goes)
                co_return false;
        }
        rpc::encode(c.results(),
                    rpc::reply_header::accepted_with(c.header().xid, rpc::accept_status::success));
        co_return true;
    }
    bool waits = false;
    event go;
    unsigned served = 0;
};

class crowd {
public:
    class client final : private verbs::completion_handler {
    public:
        explicit client(crowd& all) : all_(all) {}
        // A message of this XID.
        void post(std::uint32_t xid)
        {
            lease memory = all_.clients_memory.try_acquire(1024);
            xdr::encoder out(memory.bytes());
            rpcrdma::header h;
            h.xid = xid;
            h.credits = plenty;
            encode(out, h);
            for (const std::uint32_t word : {xid, 0u, 2u, 1u, 1u, 1u, 0u, 0u, 0u, 0u})
                out.u32(word);
            const verbs::segment local{memory.data(), static_cast<std::uint32_t>(out.size()), 0};
            verbs::send_request w;
            w.id = 1000;
            w.segments = {&local, 1};
            if (pair->post_send({&w, 1}))
                sends_.push_back(std::move(memory));
        }
        // So many calls at once; what the last reply grants, or 0 if the connection ended.
        std::uint32_t calls(std::uint32_t n)
        {
            const std::size_t before = replies;
            for (std::uint32_t i = 0; i < n; ++i)
                post(++all_.xid);
            all_.until([&] { return replies == before + n || ended; });
            sends_.clear();
            return ended ? 0 : granted;
        }
        std::uint32_t works()
        {
            std::uint32_t had = 1;
            for (std::uint32_t now = 0; (now = calls(had)) > had;)
                had = now;
            return had;
        }
        std::unique_ptr<verbs::queue_pair> pair;
        std::size_t replies = 0;
        std::uint32_t granted = 0;
        bool ended = false;

    private:
        friend class crowd;
        static constexpr std::size_t standing = 64;
        void receive(std::size_t slot)
        {
            const verbs::receive_request r{slot, {receives_[slot].data(), 1024, 0}};
            (void)pair->post_receive({&r, 1});
        }
        void begin()
        {
            pair->set_handler(this);
            for (std::size_t i = 0; i < standing; ++i) {
                receives_.push_back(all_.clients_memory.try_acquire(1024));
                receive(i);
            }
        }
        void on_completions(std::span<const verbs::completion> batch) noexcept override
        {
            for (const verbs::completion& c : batch) {
                if (c.id >= receives_.size() || c.status != verbs::status::success)
                    continue;
                ++replies;
                granted = xdr::load_u32(receives_[std::size_t(c.id)].data() + 8);
                receive(std::size_t(c.id));
            }
        }
        void on_disconnected(const error&) noexcept override { ended = true; }
        crowd& all_;
        std::vector<lease> receives_;
        std::vector<lease> sends_;
    };

    explicit crowd(receives kind)
    {
        reactor_options r;
        r.clock = &clock;
        shard = reactor::create(r).value();
        pool = std::make_unique<buffer_pool>(budget, shard.get());
        fabric = loop::make_fabric(*shard);
        loop::options device;
        device.profile.receive_not_ready_retry = false; // a Send without a receive is fatal
        device.profile.receives_on_demand = kind == receives::on_demand;
        device.profile.shared_receives = kind != receives::own;
        server = fabric->make_context(device);
        client_device = fabric->make_context(device);
        domain = client_device->make_domain().value();
        options.credits = 16;
        options.shares_standing_receives = true;
        options.credit_settling = 1s;
    }
    void start()
    {
        listener = server->listen("server").value();
        tasks.emplace(*shard);
        tasks->spawn([&] { return rpcrdma::serve(*server, *listener, *pool, dispatcher, options, stats); });
    }
    client* connect()
    {
        auto c = std::make_unique<client>(*this);
        bool done = false;
        tasks->spawn([&]() -> task<void> {
            verbs::connect_options o;
            std::vector<std::byte> answer;
            auto pair = co_await client_device->connect("server", *domain, o, answer);
            if (pair)
                c->pair = std::move(*pair);
            done = true;
        });
        until([&] { return done; });
        if (!c->pair)
            return nullptr;
        c->begin();
        clients.push_back(std::move(c));
        return clients.back().get();
    }
    void settle()
    {
        for (int i = 0; i < 100; ++i)
            shard->turn();
    }
    void until(const std::function<bool()>& done,
               std::source_location where = std::source_location::current())
    {
        for (int turns = 0; !done(); ++turns) {
            BOOST_REQUIRE_MESSAGE(turns < 100'000, "nothing came at line " << where.line());
            shard->turn();
        }
    }
    /// Takes what comes free, before most who wait for it.
    void hog(scope& others)
    {
        for (int i = 0; i < 8; ++i)
            others.spawn([this] { return take_all(); });
    }
    task<void> take_all()
    {
        for (;;) {
            lease taken = co_await pool->acquire(4096);
            if (!taken)
                co_return;
            held.push_back(std::move(taken));
        }
    }
    // All memory, but for `count` buffers.
    void leave(std::size_t count)
    {
        while (lease taken = pool->try_acquire(4096))
            held.push_back(std::move(taken));
        held.resize(held.size() - count);
    }
    ~crowd()
    {
        clients.clear();
        listener->close();
        tasks->request_stop();
        until([&] { return tasks->live() == 0; });
        held.clear();
        BOOST_TEST(pool->outstanding() == 0u);
        BOOST_TEST(shard->stats().illegal_transitions.load() == 0u);
        domain.reset();
    }

    const test::log_at level_of_log{log_level::off};
    virtual_clock clock;
    memory_budget budget{std::size_t(16) << 20};
    memory_budget clients_budget{std::size_t(64) << 20};
    std::unique_ptr<reactor> shard;
    std::unique_ptr<buffer_pool> pool;
    buffer_pool clients_memory{clients_budget, nullptr};
    std::unique_ptr<loop::fabric> fabric;
    std::unique_ptr<loop::context> server, client_device;
    std::unique_ptr<verbs::protection_domain> domain;
    std::unique_ptr<verbs::listener> listener;
    answering dispatcher;
    rpcrdma::responder_options options;
    rpcrdma::responder_stats stats;
    std::optional<scope> tasks;
    std::vector<std::unique_ptr<client>> clients;
    std::vector<lease> held;
    std::uint32_t xid = 0;
};

} // namespace

BOOST_DATA_TEST_CASE(all_that_is_granted_can_be_used_at_once, all_kinds, kind)
{
    crowd c(kind);
    c.start();
    std::vector<crowd::client*> all;
    for (int i = 0; i < 5; ++i)
        all.push_back(c.connect());
    for (crowd::client* one : all)
        BOOST_TEST(one->works() == 16u);
    // Of all of them together, none of which is answered meanwhile.
    c.dispatcher.waits = true;
    for (crowd::client* one : all) {
        for (int i = 0; i < 16; ++i)
            one->post(++c.xid);
    }
    const unsigned before = c.dispatcher.served;
    c.until([&] { return c.dispatcher.served == before + 5 * 16; });
    c.dispatcher.go.set();
    c.settle();
    for (crowd::client* one : all)
        BOOST_TEST(!one->ended);
}

// Also after it had much to do.
BOOST_DATA_TEST_CASE(an_idle_connection_holds_little, all_kinds, kind)
{
    constexpr std::size_t count = 100;
    crowd c(kind);
    c.start();
    for (std::size_t i = 0; i < count; ++i) {
        crowd::client* one = c.connect();
        BOOST_REQUIRE(one != nullptr);
        BOOST_TEST(one->calls(1) == 2u);
        BOOST_TEST(one->works() == 16u);
    }
    if (kind == receives::on_demand)
        BOOST_TEST(c.pool->outstanding() == 0u);
    c.clock.advance(1100ms);
    for (const auto& one : c.clients)
        BOOST_TEST(one->calls(1) == 2u);
    c.clock.advance(1100ms);
    // What stands is used up before less stands.
    for (int i = 0; i < 20; ++i) {
        for (const auto& one : c.clients)
            BOOST_TEST(one->calls(1) <= 4u);
        c.clock.advance(1100ms);
    }
    BOOST_TEST(c.pool->outstanding() <= count * 3 + 8);
}

// Its own messages are not needed for that.
BOOST_AUTO_TEST_CASE(receives_for_a_grant_that_was_lowered_are_used_up_by_others)
{
    crowd c(receives::shared);
    c.start();
    for (int i = 0; i < 10; ++i)
        BOOST_TEST(c.connect()->works() == 16u);
    c.clock.advance(1100ms);
    for (const auto& one : c.clients)
        BOOST_TEST(one->calls(1) == 2u);
    BOOST_TEST(c.pool->outstanding() >= 10u * 16);
    for (int i = 0; i < 200; ++i) {
        c.clock.advance(101ms);
        (void)c.clients.front()->calls(1);
    }
    BOOST_TEST(c.pool->outstanding() <= 10u * 3 + 8);
}

// One that takes what belongs to others, as long as there is some, is ended alone.
BOOST_DATA_TEST_CASE(more_than_its_credits_ends_a_connection_alone, all_kinds, kind)
{
    crowd c(kind);
    c.start();
    crowd::client* good = c.connect();
    crowd::client* bad = c.connect();
    BOOST_TEST(good->works() == 16u);
    BOOST_TEST(bad->calls(1) == 2u);
    c.dispatcher.waits = true;
    // More than it, or anybody, may have been told.
    const std::uint32_t most = kind == receives::shared ? 2 : c.options.credits;
    for (std::uint32_t i = 0; i <= most + rpcrdma::responder_options::receive_slack; ++i)
        bad->post(++c.xid);
    c.until([&] { return bad->ended; });
    BOOST_TEST(c.stats.credit_overruns.value() + (kind == receives::own ? 1 : 0) >= 1u);
    for (int i = 0; i < 16; ++i)
        good->post(++c.xid);
    c.settle();
    BOOST_TEST(!good->ended);
    c.dispatcher.waits = false;
    c.dispatcher.go.set();
    c.settle();
    BOOST_TEST(good->calls(1) == 16u);
}

// The receives of those that are there count, and memory comes back with those that go.
BOOST_DATA_TEST_CASE(without_memory_nobody_is_promised_any, all_kinds, kind)
{
    crowd c(kind);
    c.start();
    crowd::client* one = c.connect();
    BOOST_TEST(one->calls(1) == 2u);
    c.leave(0);
    if (kind != receives::on_demand) {
        // Others take what comes free: receives that were used are not posted again, and none are for more credits.
        scope others(*c.shard);
        c.hog(others);
        std::uint32_t granted = 2;
        for (int i = 0; i < 40 && granted > 1; ++i) {
            const std::uint32_t now = one->calls(1);
            BOOST_TEST(now >= 1u);
            BOOST_TEST(now <= granted);
            granted = now;
            c.clock.advance(101ms);
        }
        BOOST_TEST(granted == 1u);
        BOOST_TEST((c.connect() == nullptr)); // there is nothing for its first message
        others.request_stop();
        c.until([&] { return others.live() == 0; });
    } else {
        one->post(++c.xid);
        c.settle();
        BOOST_TEST(one->replies == 1u);
        crowd::client* other = c.connect();
        BOOST_REQUIRE(other != nullptr);
        other->post(++c.xid);
        c.settle();
        BOOST_TEST(other->replies == 0u);
        c.held.pop_back(); // one buffer serves both, in order
        c.clock.advance(1ms);
        c.until([&] { return other->replies == 1; });
        BOOST_TEST(one->replies == 2u);
    }
    c.held.clear();
    c.clock.advance(101ms);
    c.settle();
    BOOST_TEST(one->calls(1) >= 2u);
}

BOOST_DATA_TEST_CASE(a_connection_that_ends_gives_back_what_came, all_kinds, kind)
{
    crowd c(kind);
    c.options.turn_share = 1;
    c.options.idle_credits = 16;
    c.start();
    crowd::client* one = c.connect();
    crowd::client* other = c.connect();
    BOOST_TEST(one->calls(1) == 16u);
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 16; ++i)
            one->post(++c.xid);
        c.shard->turn();
        c.shard->turn();
        one->pair->kill(error(std::errc::connection_aborted, "test"));
        c.settle();
        one = c.connect();
    }
    BOOST_TEST(other->calls(16) == 16u);
    c.settle();
    const std::size_t most = kind == receives::on_demand ? 0 : kind == receives::shared ? 2 * 17 + 8 : 2 * 24;
    BOOST_TEST(c.pool->outstanding() <= most);
}

// What one client sent stays its own: the next message in the same memory is shorter.
BOOST_AUTO_TEST_CASE(nothing_of_another_message_is_looked_at)
{
    crowd c(receives::on_demand);
    c.start();
    crowd::client* one = c.connect();
    crowd::client* other = c.connect();
    c.leave(1);
    BOOST_TEST(one->calls(1) == 2u);
    // A header alone, in the memory of a whole call.
    lease memory = c.clients_memory.try_acquire(1024);
    xdr::encoder out(memory.bytes());
    rpcrdma::header h;
    h.xid = 77;
    h.credits = 1;
    encode(out, h);
    const verbs::segment local{memory.data(), static_cast<std::uint32_t>(out.size()), 0};
    verbs::send_request w;
    w.id = 1000;
    w.segments = {&local, 1};
    BOOST_REQUIRE(other->pair->post_send({&w, 1}));
    c.until([&] { return other->replies == 1; });
    BOOST_TEST(c.dispatcher.served == 1u);
    BOOST_TEST(c.stats.chunk_errors.value() == 1u);
    BOOST_TEST(c.stats.version_errors.value() == 0u);
    BOOST_TEST(other->granted == 1u);
}

BOOST_AUTO_TEST_SUITE_END()
