// SPDX-License-Identifier: Apache-2.0
// An iWARP device on two shards of one thread: what one of them takes away while the other one is at it.
#include <boost/test/unit_test.hpp>

#include "../../../transports/iwarp/context.hpp"

#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/transports/iwarp.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(iwarp_shards_test)

using namespace verbena;
using verbs::access;
using verbs::opcode;

namespace {

struct seen final : verbs::completion_handler {
    void on_completions(std::span<const verbs::completion> batch) noexcept override
    {
        for (const auto& c : batch)
            ids.push_back(c.status == verbs::status::success ? c.id : ~c.id);
    }
    void on_disconnected(const error&) noexcept override { ended = true; }
    std::vector<std::uint64_t> ids;
    bool ended = false;
};

// What the device has on one shard: a listener, and a connection that was accepted.
struct side {
    explicit side(iwarp::device& d) : context(d.make_context(*shard)), tasks(std::in_place, *shard)
    {
        auto made = context->listen("127.0.0.1:0");
        BOOST_REQUIRE(made);
        listener = std::move(*made);
    }
    steering::lane& lane() { return static_cast<iwarp::context_impl&>(*context).lane(); }
    task<void> take_one(verbs::protection_domain& domain)
    {
        auto request = co_await listener->next();
        BOOST_REQUIRE(request);
        auto made = co_await (*request)->make_queue_pair(domain, {});
        BOOST_REQUIRE(made);
        pair = std::move(*made);
        pair->set_handler(&handler);
        const auto accepted = co_await (*request)->accept({});
        BOOST_REQUIRE(accepted);
    }

    std::unique_ptr<reactor> shard = std::move(*reactor::create());
    std::unique_ptr<iwarp::context> context;
    std::optional<scope> tasks;
    std::unique_ptr<verbs::listener> listener;
    seen handler;
    std::unique_ptr<verbs::queue_pair> pair;
};

struct fixture {
    fixture()
    {
        for (side* s : {&a, &b}) {
            auto peer = std::make_unique<seen>();
            s->tasks->spawn([this, s] { return s->take_one(*domain); });
            std::unique_ptr<verbs::queue_pair>& to = peers.emplace_back();
            clients->spawn([this, s, &to, h = peer.get()]() -> task<void> {
                std::vector<std::byte> reply;
                auto made =
                    co_await client->connect(s->listener->local_url().substr(8), *client_domain, {}, reply);
                BOOST_REQUIRE(made);
                to = std::move(*made);
                to->set_handler(h);
            });
            handlers.push_back(std::move(peer));
            until([&] { return to != nullptr && s->pair != nullptr && s->pair->connected(); });
        }
    }
    ~fixture()
    {
        a.pair.reset();
        b.pair.reset();
        peers.clear();
        for (int i = 0; i < 10; ++i)
            turn();
    }
    void turn()
    {
        b.shard->turn();
        c->turn();
        a.shard->turn();
    }
    void until(const std::function<bool()>& done,
               std::source_location where = std::source_location::current())
    {
        for (int turns = 0; !done(); ++turns) {
            BOOST_REQUIRE_MESSAGE(turns < 1'000'000, "nothing came at line " << where.line());
            turn();
        }
    }

    std::unique_ptr<iwarp::device> device = iwarp::make_device();
    std::unique_ptr<verbs::protection_domain> domain = std::move(*device->make_domain());
    side a{*device};
    side b{*device};
    std::unique_ptr<reactor> c = std::move(*reactor::create());
    std::unique_ptr<iwarp::context> client = iwarp::make_context(*c);
    std::unique_ptr<verbs::protection_domain> client_domain = std::move(*client->make_domain());
    std::optional<scope> clients{*c};
    std::vector<std::unique_ptr<seen>> handlers;           // outlive these
    std::vector<std::unique_ptr<verbs::queue_pair>> peers; // of a, of b
    std::vector<std::byte> memory = std::vector<std::byte>(4096);
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_revocation_waits_for_the_other_shard, fixture)
{
    BOOST_TEST(!domain->renews_at_once());
    verbs::grant g;
    bool revoked = false;
    a.tasks->spawn([&]() -> task<void> {
        auto made = co_await domain->make_grant(memory, access::remote_write, nullptr);
        BOOST_REQUIRE(made);
        g = std::move(*made);
    });
    until([&] { return bool(g); });
    {
        const steering::section here(b.lane()); // b is about to place what its peer wrote
        a.tasks->spawn([&]() -> task<void> {
            const std::span<verbs::grant> one(&g, 1);
            co_await domain->revoke(one);
            revoked = true;
        });
        for (int i = 0; i < 3; ++i)
            a.shard->turn();
        BOOST_TEST(!revoked);
    }
    until([&] { return revoked; });
    BOOST_TEST(!g);
}

namespace {

// Of which each write waits, on its shard.
struct hung_store final : verbs::byte_store {
    task<result<void>> read(std::uint64_t, std::span<std::byte>) override { co_return result<void>(); }
    task<result<void>> write(std::uint64_t, std::span<const std::byte>) override
    {
        ++begun;
        is_outside = look();
        co_await free.wait_shielded();
        ++ended;
        co_return result<void>();
    }
    std::error_code write_failure() const noexcept override { return {}; }
    event free;
    int begun = 0, ended = 0;
    std::function<bool()> look;
    bool is_outside = false; // of all sections
};

} // namespace

// It has left the section in which its tag was found, and its shard has answered. The connection may be gone meanwhile.
BOOST_FIXTURE_TEST_CASE(a_revocation_waits_for_an_access_to_a_store_on_the_other_shard, fixture)
{
    const auto store = std::make_shared<hung_store>();
    auto& shards = static_cast<iwarp::context_impl&>(*a.context).table().shards();
    store->look = [&] {
        const auto epoch = shards.begin(&a.lane());
        return epoch == 0 || shards.is_over(epoch);
    };
    std::vector<verbs::grant_request> wanted(1);
    wanted[0].store = store;
    wanted[0].store_offset = 5000;
    wanted[0].store_length = 100;
    wanted[0].rights = access::remote_write;
    bool made = false;
    a.tasks->spawn([&]() -> task<void> {
        const auto done = co_await domain->make_grants(wanted);
        BOOST_REQUIRE(done);
        made = true;
    });
    until([&] { return made; });
    const verbs::segment some{memory.data(), 100, 0};
    verbs::send_request write;
    write.opcode = opcode::rdma_write;
    write.segments = {&some, 1};
    write.remote_key = wanted[0].made.where().key;
    write.remote_address = wanted[0].made.where().address;
    BOOST_REQUIRE(peers[1]->post_send({&write, 1}));
    until([&] { return store->begun == 1; });
    BOOST_TEST(store->is_outside); // so that no revocation waits for a call that a disk holds up
    bool revoked = false;
    a.tasks->spawn([&]() -> task<void> {
        co_await domain->revoke({&wanted[0].made, 1});
        revoked = true;
    });
    for (int i = 0; i < 20; ++i)
        turn();
    b.pair.reset();
    for (int i = 0; i < 20; ++i)
        turn();
    BOOST_TEST(!revoked);
    BOOST_TEST(store.use_count() == 2);
    store->free.set();
    until([&] { return revoked; });
    BOOST_TEST(store->ended == 1);
    BOOST_TEST(store.use_count() == 1);
}

// What stands behind it may tell the peer that the memory is its owner's.
BOOST_FIXTURE_TEST_CASE(unbind_waits_for_the_other_shard, fixture)
{
    std::vector<verbs::grant_request> wanted(1);
    wanted[0].memory = memory;
    wanted[0].rights = access::remote_write;
    wanted[0].renewable = true;
    bool made = false;
    a.tasks->spawn([&]() -> task<void> {
        const auto done = co_await domain->make_grants(wanted);
        BOOST_REQUIRE(done);
        made = true;
    });
    until([&] { return made; });
    verbs::send_request unbind;
    unbind.id = 7;
    unbind.opcode = opcode::unbind;
    unbind.grant = &wanted[0].made;
    // Before that a message of the peer's, as the end that accepts sends nothing else.
    verbs::send_request hello;
    hello.opcode = opcode::rdma_write;
    BOOST_REQUIRE(peers[0]->post_send({&hello, 1}));
    until([&] { return !handlers[0]->ids.empty(); });
    for (int i = 0; i < 20; ++i)
        turn();
    {
        const steering::section here(b.lane());
        BOOST_REQUIRE(a.pair->post_send({&unbind, 1}));
        BOOST_TEST(!wanted[0].made.valid());
        for (int i = 0; i < 5; ++i)
            a.shard->turn();
        BOOST_TEST(a.handler.ids.empty());
    }
    until([&] { return !a.handler.ids.empty(); });
    BOOST_TEST(a.handler.ids.front() == 7U);
    wanted[0].made = verbs::grant();
}

BOOST_FIXTURE_TEST_CASE(a_domain_of_another_device_is_refused, fixture)
{
    std::optional<error> said;
    clients->spawn([&]() -> task<void> {
        std::vector<std::byte> reply;
        auto made = co_await client->connect(a.listener->local_url().substr(8), *domain, {}, reply);
        BOOST_REQUIRE(!made);
        said = made.error();
    });
    until([&] { return said.has_value(); });
    BOOST_TEST((*said == std::errc::invalid_argument));
}

BOOST_AUTO_TEST_SUITE_END()
