// SPDX-License-Identifier: Apache-2.0
// What every verbs provider must do alike: the providers under test, and two connected ends of one.
//
// A case asks query() what the provider can do and states the opposite where it can't; it skips nothing.
#pragma once

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/transports/iwarp.hpp>
#include <verbena/transports/loop.hpp>
#ifdef VERBENA_HAS_RDMA
#include <verbena/transports/rdma.hpp>
#endif

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <ostream>
#include <poll.h>
#include <string>
#include <vector>

namespace verbena::conformance {

using namespace std::chrono_literals;
using verbs::opcode;
using verbs::status;

template<class T>
std::string why(const result<T>& r)
{
    return r ? std::string() : r.error().message();
}

/// Contexts of one provider that can reach each other.
class world {
public:
    virtual ~world() = default;
    reactor& shard() noexcept { return *shard_; }
    virtual std::unique_ptr<verbs::context> make_context(const std::string& name) = 0;
    /// Where a test listens.
    virtual std::string address() const = 0;
    /// Nothing is left to do now; until the next timer nothing comes by itself under a virtual clock.
    void pass_time()
    {
        const auto next = shard_->timers().next();
        if (next)
            clock_.advance_to(*next);
    }

protected:
    explicit world(bool virtual_time)
    {
        reactor_options o;
        if (virtual_time)
            o.clock = &clock_;
        auto made = reactor::create(o);
        BOOST_REQUIRE_MESSAGE(made, why(made));
        shard_ = std::move(*made);
    }

private:
    virtual_clock clock_;
    std::unique_ptr<reactor> shard_;
};

class loop_world final : public world {
public:
    loop_world(const loop::options& o, const loop::conditions& c) : world(true), options_(o)
    {
        loop::fabric_options f;
        f.conditions = c;
        fabric_ = loop::make_fabric(shard(), f);
    }
    std::unique_ptr<verbs::context> make_context(const std::string& name) override
    {
        loop::options o = options_;
        o.name = name;
        return fabric_->make_context(o);
    }
    std::string address() const override { return "here"; }

private:
    loop::options options_;
    std::unique_ptr<loop::fabric> fabric_;
};

class iwarp_world final : public world {
public:
    explicit iwarp_world(iwarp::crc_mode crc) : world(false) { options_.crc = crc; }
    std::unique_ptr<verbs::context> make_context(const std::string&) override
    {
        return iwarp::make_context(shard(), options_);
    }
    std::string address() const override { return "127.0.0.1:0"; }

private:
    iwarp::options options_;
};

#ifdef VERBENA_HAS_RDMA
class rdma_world final : public world {
public:
    explicit rdma_world(const char* address) : world(false), address_(address) {}
    std::unique_ptr<verbs::context> make_context(const std::string&) override
    {
        rdma::options o;
        if (const char* device = std::getenv("VERBENA_TEST_RDMA_DEVICE"))
            o.device = device;
        if (const char* wanted = std::getenv("VERBENA_TEST_RDMA_GRANTS")) {
            using kind = rdma::grant_kind;
            for (const kind k : {kind::region, kind::type_1_window, kind::type_2_window}) {
                if (to_string(k) == wanted)
                    o.grants = k;
            }
            BOOST_REQUIRE_MESSAGE(o.grants,
                                  "VERBENA_TEST_RDMA_GRANTS is region, type_1_window or type_2_window");
        }
        auto made = rdma::make_context(shard(), {pool_, pool_}, o);
        BOOST_REQUIRE_MESSAGE(made, why(made));
        return std::move(*made);
    }
    std::string address() const override { return address_; }

private:
    std::string address_;
    blocking_pool pool_{2};
};
#endif

struct provider {
    const char* name;
    std::unique_ptr<world> (*make)();
    bool device = false; ///< works on while the shard does not turn
};
inline std::ostream& operator<<(std::ostream& out, const provider& p) { return out << p.name; }

template<class Change>
std::unique_ptr<world> make_loop(Change change)
{
    loop::options o;
    loop::conditions c;
    change(o.profile, c);
    return std::make_unique<loop_world>(o, c);
}

/// Each provider, and loop as providers that can less. With VERBENA_TEST_RDMA=ADDRESS:PORT, an address of an RDMA
/// device, that device alone; VERBENA_TEST_RDMA_DEVICE names it where there are several, and VERBENA_TEST_RDMA_GRANTS
/// what its grants are made by (rdma::grant_kind), where that is not the best it has.
inline const std::vector<provider>& providers()
{
    using caps = verbs::capabilities;
    using conditions = loop::conditions;
#ifdef VERBENA_HAS_RDMA
    static const char* const rdma_address = std::getenv("VERBENA_TEST_RDMA");
    if (rdma_address != nullptr) {
        static const std::vector<provider> device = {
            {"rdma", []() -> std::unique_ptr<world> { return std::make_unique<rdma_world>(rdma_address); },
             true}};
        return device;
    }
#endif
    static const std::vector<provider> all = {
        {"loop", [] { return make_loop([](caps&, conditions&) {}); }},
        {"loop, no windows",
         [] {
             return make_loop([](caps& p, conditions&) {
                 p.remote_invalidate = false;
                 p.grant_per_queue_pair = false;
                 p.local_invalidate = false;
             });
         }},
        {"loop, ORD 1, one segment, no inline",
         [] {
             return make_loop([](caps& p, conditions&) {
                 p.max_outstanding_reads = 1;
                 p.max_send_segments = 1;
                 p.max_inline = 0;
             });
         }},
        {"loop, immediates apart",
         [] { return make_loop([](caps& p, conditions&) { p.immediates_apart = true; }); }},
        {"loop, grants renewed in their turn",
         [] { return make_loop([](caps& p, conditions&) { p.renews_at_once = false; }); }},
        {"loop, no immediates",
         [] {
             return make_loop([](caps& p, conditions&) {
                 p.write_with_immediate = false;
                 p.send_with_immediate = false;
                 p.renewable_grants = false;
             });
         }},
        {"loop, segments of a Read",
         [] { return make_loop([](caps& p, conditions&) { p.max_read_segments = 4; }); }},
        {"loop, local keys",
         [] { return make_loop([](caps& p, conditions&) { p.needs_local_keys = true; }); }},
        {"loop, no receiver-not-ready retry",
         [] { return make_loop([](caps& p, conditions&) { p.receive_not_ready_retry = false; }); }},
        {"loop, no check of Reads, no bound on them",
         [] {
             return make_loop([](caps& p, conditions&) {
                 p.checks_read_rights = false;
                 p.bounds_peer_reads = false;
             });
         }},
        // What a healthy but slow and lossy path does changes no outcome.
        {"loop, slow path",
         [] {
             return make_loop([](caps&, conditions& c) {
                 c.latency = 30us;
                 c[loop::fault::drop] = 100'000;
                 c[loop::fault::delay] = 200'000;
                 c[loop::fault::reorder] = 300'000;
                 c[loop::fault::receiver_not_ready] = 100'000;
                 c.retries = 1000;
             });
         }},
        {"iwarp",
         []() -> std::unique_ptr<world> { return std::make_unique<iwarp_world>(iwarp::crc_mode::off); }},
        {"iwarp, CRC",
         []() -> std::unique_ptr<world> { return std::make_unique<iwarp_world>(iwarp::crc_mode::on); }},
    };
    return all;
}

/// One case for each provider; `p` in its body.
// The body is a plain function: g++ 12 refuses coroutines in what Boost makes a template of.
#define CONFORMANCE_CASE(name)                                                                     \
    void name##_by(const verbena::conformance::provider& p);                                       \
    BOOST_DATA_TEST_CASE(name, boost::unit_test::data::make(verbena::conformance::providers()), p) \
    {                                                                                              \
        name##_by(p);                                                                              \
    }                                                                                              \
    void name##_by(const verbena::conformance::provider& p)

inline std::vector<std::byte> pattern(std::size_t n, std::size_t seed = 1)
{
    std::vector<std::byte> v(n);
    for (std::size_t i = 0; i < n; ++i)
        v[i] = std::byte((i * 31 + i / 251 + seed) & 0xff);
    return v;
}

struct recorder final : verbs::completion_handler {
    void on_completions(std::span<const verbs::completion> batch) noexcept override
    {
        for (const auto& c : batch) {
            BOOST_TEST(ends == 0, "a completion after the end");
            seen.push_back(c);
            if (hook)
                hook(c);
        }
    }
    void on_disconnected(const error& cause) noexcept override
    {
        ++ends;
        why = cause;
    }
    const verbs::completion* find(std::uint64_t id) const
    {
        const auto i = std::ranges::find(seen, id, &verbs::completion::id);
        return i == seen.end() ? nullptr : &*i;
    }
    std::size_t count(std::uint64_t id) const
    {
        return std::size_t(std::ranges::count(seen, id, &verbs::completion::id));
    }
    bool good(std::uint64_t id) const { return find(id) != nullptr && find(id)->status == status::success; }
    /// The ids of one direction, in the order of their completions.
    std::vector<std::uint64_t> order(bool receives) const
    {
        std::vector<std::uint64_t> ids;
        for (const auto& c : seen) {
            if ((c.opcode == opcode::receive) == receives)
                ids.push_back(c.id);
        }
        return ids;
    }
    std::vector<verbs::completion> seen;
    std::function<void(const verbs::completion&)> hook;
    unsigned ends = 0;
    error why;
};

/// Memory that a domain knows.
struct memory {
    memory(std::vector<std::byte> content, std::unique_ptr<verbs::region> r)
        : bytes(std::move(content)), region(std::move(r))
    {
    }
    verbs::segment part(std::size_t offset, std::size_t size)
    {
        return {bytes.data() + offset, std::uint32_t(size), region->local_key()};
    }
    verbs::segment all() { return part(0, bytes.size()); }

    std::vector<std::byte> bytes;
    std::unique_ptr<verbs::region> region;
};

inline task<memory> registered(verbs::protection_domain& d, std::vector<std::byte> content)
{
    auto made = co_await d.register_memory(content);
    BOOST_REQUIRE_MESSAGE(made, why(made));
    co_return memory(std::move(content), std::move(*made));
}
inline task<memory> registered(verbs::protection_domain& d, std::size_t size)
{
    return registered(d, std::vector<std::byte>(size));
}

struct side {
    explicit side(std::unique_ptr<verbs::context> c)
        : context(std::move(c)), domain(std::move(*context->make_domain()))
    {
    }
    std::unique_ptr<verbs::context> context;
    std::unique_ptr<verbs::protection_domain> domain;
};

/// One connection: `c` is the initiator's end, `s` the responder's.
struct connection {
    recorder c_seen, s_seen;
    std::unique_ptr<verbs::queue_pair> c, s;
};

inline result<void> post(verbs::queue_pair& q, std::uint64_t id, opcode op,
                         std::vector<verbs::segment> segments, const verbs::remote_segment& remote = {},
                         std::uint32_t invalidate = 0, bool signalled = true)
{
    verbs::send_request w;
    w.id = id;
    w.opcode = op;
    w.signalled = signalled;
    w.segments = segments;
    w.remote_address = remote.address;
    w.remote_key = remote.key;
    w.invalidate_key = invalidate;
    return q.post_send({&w, 1});
}

inline result<void> post_receive(verbs::queue_pair& q, std::uint64_t id, const verbs::segment& s)
{
    const verbs::receive_request w{id, s};
    return q.post_receive({&w, 1});
}

/// A listener and one connection to it, and whatever else the body makes.
struct fixture {
    explicit fixture(const provider& p)
        : under(p.make()), server(under->make_context("server")), client(under->make_context("client"))
    {
        auto l = server.context->listen(under->address());
        BOOST_REQUIRE_MESSAGE(l, why(l));
        listener = std::move(*l);
        where = listener->local_url().substr(listener->local_url().find("://") + 3);
    }
    const verbs::capabilities& can() const { return server.context->query(); }
    reactor& shard() { return under->shard(); }

    task<void> answer(connection& n, verbs::connect_options o)
    {
        auto request = co_await listener->next();
        BOOST_REQUIRE(request);
        auto q = co_await (*request)->make_queue_pair(*server.domain, o.queue_pair);
        BOOST_REQUIRE_MESSAGE(q, why(q));
        n.s = std::move(*q);
        n.s->set_handler(&n.s_seen);
        auto accepted = co_await (*request)->accept(o);
        BOOST_REQUIRE_MESSAGE(accepted, why(accepted));
    }
    task<void> connect(connection& n, verbs::connect_options of_client = {},
                       verbs::connect_options of_server = {})
    {
        scope children(shard());
        children.spawn([&] { return answer(n, of_server); });
        std::vector<std::byte> reply;
        auto q = co_await client.context->connect(where, *client.domain, of_client, reply);
        BOOST_REQUIRE_MESSAGE(q, why(q));
        n.c = std::move(*q);
        n.c->set_handler(&n.c_seen);
        co_await children.join();
    }
    static constexpr int patience = 5000; // milliseconds of the shard's clock
    /// Waits until `done`; fails after some seconds of the shard's clock.
    task<void> until(const std::function<bool()>& done)
    {
        for (int i = 0; i < patience && !done(); ++i)
            co_await sleep_for(1ms);
        BOOST_TEST_REQUIRE(done());
    }
    task<void> both_ended(connection& n)
    {
        for (int i = 0; i < patience && (n.c_seen.ends == 0 || n.s_seen.ends == 0); ++i)
            co_await sleep_for(1ms);
        // Long enough for a second end to show.
        co_await sleep_for(5ms);
        BOOST_TEST_REQUIRE(n.c_seen.ends == 1u);
        BOOST_TEST_REQUIRE(n.s_seen.ends == 1u);
    }
    void run(const std::function<task<void>()>& body) { run_until_complete(shard(), body()); }
    /// As run(), in a host loop that sleeps wherever the shard lets it.
    void run_nested(const std::function<task<void>()>& body)
    {
        const int fd = shard().native_handle().value();
        bool done = false;
        scope tasks(shard());
        tasks.spawn([&] { return note_end(body(), done); });
        while (!done) {
            if (shard().try_arm()) {
                under->pass_time();
                pollfd readable{fd, POLLIN, 0};
                BOOST_TEST_REQUIRE((shard().clock().is_virtual() || ::poll(&readable, 1, 60'000) == 1));
            }
            shard().poll();
        }
        run_until_complete(shard(), join(tasks));
    }
    static task<void> note_end(task<void> body, bool& done)
    {
        co_await std::move(body);
        done = true;
    }
    static task<void> join(scope& tasks) { co_await tasks.join(); }

    std::unique_ptr<world> under;
    side server, client;
    std::unique_ptr<verbs::listener> listener;
    std::string where;
};

} // namespace verbena::conformance

namespace verbena::verbs {
inline std::ostream& operator<<(std::ostream& out, status s) { return out << to_string(s); }
} // namespace verbena::verbs
