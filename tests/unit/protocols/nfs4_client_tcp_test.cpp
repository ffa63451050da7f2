// SPDX-License-Identifier: Apache-2.0
// A client of ours and a server of ours over TCP: the server calls over the connection that the client made, and over the next one when that broke.
#include "nfs4_server.hpp"

#include <verbena/core/net/net.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/nfs/client/v4/client.hpp>
#include <verbena/protocols/nfs/client/v4/file.hpp>
#include <verbena/protocols/rpcstream/stream_client.hpp>
#include <verbena/protocols/rpcstream/stream_server.hpp>

#include <sys/socket.h>
#include <unistd.h>

BOOST_AUTO_TEST_SUITE(nfs4_client_tcp_test)

using namespace verbena;
using namespace verbena::test;
using nfs::v4::client;
using nfs::v4::file;

namespace {

/// A client with a connection of its own.
struct end {
    end(nfs4_fixture& f, const std::string& address, std::string name) : callbacks(*f.shard)
    {
        rpc::stream_client_options o;
        o.callbacks = &callbacks;
        transport = std::move(*rpc::make_stream_client(*f.shard, f.pool, address, o));
        user.emplace(*transport, nfs::identity(1000, 100, {}, "host"), std::move(name), minor_versions(),
                     &callbacks);
        user->use_delegations(8);
    }
    callback_service callbacks;
    std::unique_ptr<rpc::client_transport> transport;
    std::optional<client> user;
};

struct fixture : nfs4_fixture {
    /// Runs it while the kernel carries what is sent, and time passes slowly.
    template<class F>
    void drive(const F& f)
    {
        scope s(*shard);
        s.spawn([&] { return f(); });
        for (int i = 0; i < 1'000'000 && s.live() != 0; ++i) {
            const int fd = ::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (fd >= 0) {
                accepted.emplace_back(::dup(fd));
                streams->adopt(net::unique_fd(fd), *net::endpoint::parse("127.0.0.1:700"));
            }
            turns();
            clock.advance(1ms);
        }
        BOOST_TEST_REQUIRE(s.live() == 0u);
    }
    template<class F>
    auto good(const F& f)
    {
        std::optional<decltype(run_until_complete(*shard, f()))> got;
        drive([&]() -> task<void> {
            auto came = co_await f();
            got.emplace(std::move(came));
        });
        BOOST_REQUIRE_MESSAGE(*got, (*got ? std::string() : got->error().message()));
        return std::move(**got);
    }
    void close(file& f)
    {
        bool done = false;
        drive([&]() -> task<void> {
            auto closed = co_await f.close();
            done = closed.has_value();
        });
        BOOST_TEST(done);
    }
    fixture()
    {
        options[0].local_writers = false;
        start();
        streams.emplace(*shard, pool, *dispatcher, rpc::stream_options());
        listener = std::move(*net::open_listener(*net::endpoint::parse("127.0.0.1:0")));
        const std::string address = net::endpoint::local(listener.get())->to_string();
        holder.emplace(*this, address, "holder");
        other.emplace(*this, address, "other");
        tend();
        what.handle = good([&]() -> task<result<nfs::v4::known_handle>> {
            auto top = co_await other->user->root();
            if (!top)
                co_return top.error();
            auto folder = co_await other->user->walk(top->handle, "/export", true);
            if (!folder)
                co_return folder.error();
            auto made = co_await other->user->create(folder->handle, "f", {}, nfs::v4::open_how::guarded);
            if (!made)
                co_return made.error();
            const nfs::v4::known_handle handle = (*made)->node().handle;
            auto closed = co_await (*made)->close();
            if (!closed)
                co_return closed.error();
            co_return handle;
        });
        other->user->use_delegations(0);
        (void)good([&] { return other->user->getattr(what.handle); });
    }
    ~fixture()
    {
        drive([&]() -> task<void> {
            co_await holder->user->close();
            co_await other->user->close();
            co_await holder->transport->close();
            co_await other->transport->close();
            co_await streams->shut_down(shard->clock().now());
        });
        other.reset();
        holder.reset();
        streams.reset();
    }

    std::optional<rpc::stream_server> streams;
    net::unique_fd listener;
    std::vector<net::unique_fd> accepted; // duplicates of what the server has
    std::optional<end> holder, other;
    nfs::v4::node what;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_delegation_is_recalled_over_the_clients_connection, fixture)
{
    auto used = good([&] { return holder->user->open(what, share4::access_both); });
    BOOST_TEST(holder->user->delegations() == 1u);
    auto same = good([&] { return holder->user->open(what, share4::access_read); });
    BOOST_TEST(holder->user->opens_without_call() == 1u);
    close(*same);
    auto reads = good([&] { return other->user->open(what, share4::access_read); });
    BOOST_TEST(holder->user->delegations() == 0u);
    BOOST_TEST(holder->callbacks.counts().recalls.value() == 1u);
    close(*reads);
    close(*used);
}

BOOST_FIXTURE_TEST_CASE(it_is_recalled_over_the_next_connection_when_that_broke, fixture)
{
    auto used = good([&] { return holder->user->open(what, share4::access_both); });
    BOOST_TEST(holder->user->delegations() == 1u);
    for (const net::unique_fd& each : accepted)
        (void)::shutdown(each.get(), SHUT_RDWR);
    (void)good([&] { return holder->user->getattr(what.handle); });
    drive([&]() -> task<void> { (void)co_await sleep_for(10ms); });
    BOOST_TEST(holder->transport->connections() == 2u);
    BOOST_TEST(holder->user->delegations() == 1u);
    BOOST_TEST(holder->user->session().can_be_called());
    BOOST_TEST(holder->user->session().sessions() == 1u);
    auto reads = good([&] { return other->user->open(what, share4::access_read); });
    BOOST_TEST(holder->user->delegations() == 0u);
    BOOST_TEST(holder->callbacks.counts().recalls.value() == 1u);
    BOOST_TEST(commons->state.stats().revocations.value() == 0u);
    close(*reads);
    close(*used);
}

BOOST_AUTO_TEST_SUITE_END()
