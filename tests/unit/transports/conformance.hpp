// SPDX-License-Identifier: Apache-2.0
// The providers that every one of the kit's checks (verbena/testing/conformance.hpp) runs on, and cases of our own on each.
//
// A case asks query() what the provider can do and states the opposite where it can't; it skips nothing.
#pragma once

#include "../../../testing/conformance/fixture.hpp"

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/transports/iwarp.hpp>
#include <verbena/transports/loop.hpp>
#ifdef VERBENA_HAS_RDMA
#include <verbena/transports/rdma.hpp>
#endif

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace verbena::conformance {

using namespace std::chrono_literals;
using testing::conformance::connection;
using testing::conformance::memory;
using testing::conformance::pattern;
using testing::conformance::post;
using testing::conformance::post_receive;
using testing::conformance::recorder;
using testing::conformance::registered;
using testing::conformance::side;
using verbs::opcode;
using verbs::status;

template<class T>
std::string why(const result<T>& r)
{
    return r ? std::string() : r.error().message();
}

/// Contexts of one provider that can reach each other.
class world : public testing::conformance::subject {
public:
    reactor& shard() noexcept final { return *shard_; }

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
    bool works_by_itself() const noexcept override { return true; }

private:
    std::string address_;
    blocking_pool pool_{2};
};
#endif

struct provider {
    const char* name;
    std::unique_ptr<world> (*make)();
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
            {"rdma", []() -> std::unique_ptr<world> { return std::make_unique<rdma_world>(rdma_address); }}};
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

/// Two contexts of a provider in a world of their own.
struct own_world {
    std::unique_ptr<world> world_;
};
struct fixture : own_world, testing::conformance::fixture {
    explicit fixture(const provider& p) : own_world{p.make()}, testing::conformance::fixture(*world_) {}
};

} // namespace verbena::conformance

namespace verbena::verbs {
inline std::ostream& operator<<(std::ostream& out, status s) { return out << to_string(s); }
} // namespace verbena::verbs
