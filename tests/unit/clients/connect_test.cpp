// SPDX-License-Identifier: Apache-2.0
// rpc::connect(): each kind of URL, those that can't work, and who closes.
#include <boost/test/unit_test.hpp>

#include <verbena/clients/connect.hpp>
#include <verbena/clients/server_name.hpp>
#include <verbena/core/log.hpp>
#include <verbena/core/net/net.hpp>
#include <verbena/core/reactor/own_threads.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/left_behind.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/task/yield.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/typed_program.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/protocols/rpcstream/stream_client.hpp>
#include <verbena/protocols/rpcstream/stream_server.hpp>
#include <verbena/testing/world.hpp>
#include <verbena/transports/iwarp.hpp>
#include <verbena/transports/stream.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <future>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

BOOST_AUTO_TEST_SUITE(connect_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

struct doubled {
    std::uint32_t number = 0;
};
constexpr rpc::program_definition doubling{"doubling", 0x20000042, 1};
constexpr rpc::procedure<doubled, doubled> twice{doubling, 1, "TWICE", rpc::effect::none};
constexpr rpc::procedure<void, void> hang{doubling, 2, "HANG", rpc::effect::none};
constexpr rpc::procedure<void, void> buy{doubling, 3, "BUY", rpc::effect::changes};

class doubling_program final : public rpc::typed_program {
public:
    doubling_program() : typed_program(doubling)
    {
        on(twice, [](const doubled& a) { return doubled{2 * a.number}; });
        on(hang, [this]() -> task<result<void>> {
            (void)co_await never_.wait();
            co_return result<void>();
        });
        on(buy, [this]() -> result<void> {
            ++bought;
            return {};
        });
    }
    int bought = 0;

private:
    event never_;
};

/// Serves the program by TCP and by iWARP on the loopback address.
class server {
public:
    explicit server(reactor& shard)
        : shard_(shard),
          calls_(shard),
          streams_(shard, buffers_, calls_),
          iwarp_(iwarp::make_context(shard)),
          tasks_(shard)
    {
        calls_.add(program_);
        const auto any = net::endpoint::parse("127.0.0.1:0").value();
        auto adopt = [this](net::unique_fd socket, const net::endpoint& peer) {
            streams_.adopt(std::move(socket), peer);
        };
        tcp_ = std::move(*stream::listener::open(shard, any, std::move(adopt)));
        rdma_ = std::move(*iwarp_->listen("127.0.0.1:0"));
        tasks_.spawn([this] { return rpcrdma::serve(*iwarp_, *rdma_, buffers_, calls_, options_, stats_); });
    }
    std::string url(std::string_view scheme, std::string_view host = "127.0.0.1") const
    {
        const std::string own = scheme == "tcp" ? tcp_->local_url() : rdma_->local_url();
        return std::string(scheme) + "://" + std::string(host) + own.substr(own.rfind(':'));
    }
    int bought() const noexcept { return program_.bought; }
    task<void> close()
    {
        rdma_->close();
        co_await tasks_.join();
        co_await streams_.shut_down(shard_.clock().now() + 1s);
    }

private:
    reactor& shard_;
    memory_budget budget_{std::size_t(16) << 20};
    buffer_pool buffers_{budget_, &shard_};
    doubling_program program_;
    rpc::service_dispatcher calls_;
    rpc::stream_server streams_;
    std::unique_ptr<iwarp::context> iwarp_;
    std::unique_ptr<stream::listener> tcp_;
    std::unique_ptr<verbs::listener> rdma_;
    const rpcrdma::responder_options options_;
    rpcrdma::responder_stats stats_;
    scope tasks_;
};

void with_server(const std::function<task<void>(const server&)>& body)
{
    auto shard = reactor::create().value();
    server s(*shard);
    const auto all = [&]() -> task<void> {
        co_await body(s);
        co_await s.close();
    };
    run_until_complete(*shard, all());
}

task<result<std::uint32_t>> ask(rpc::client_transport& server)
{
    const doubled three{3};
    const auto six = co_await twice(server, three);
    if (!six)
        co_return six.error();
    co_return six->number;
}

error outcome_of(const std::string& url, rpc::connect_options o = {})
{
    auto shard = reactor::create().value();
    const auto all = [&]() -> task<error> {
        auto made = co_await rpc::connect(url, o);
        if (!made)
            co_return made.error();
        co_await made->close();
        co_return error();
    };
    return run_until_complete(*shard, all());
}

/// What is logged while it lives, but for debug lines.
class log_lines {
public:
    log_lines() { set_log_capture(&log_lines::take, this); }
    log_lines(const log_lines&) = delete;
    ~log_lines() { set_log_capture(nullptr, nullptr); }
    std::size_t with(std::string_view piece) const
    {
        return static_cast<std::size_t>(std::ranges::count_if(
            lines_, [&](const std::string& l) { return l.find(piece) != std::string::npos; }));
    }

private:
    static void take(void* self, std::string_view line)
    {
        static_cast<log_lines*>(self)->lines_.emplace_back(line);
    }
    std::vector<std::string> lines_;
};

/// The doubling program at a host of a world, for one client.
class loop_server {
public:
    explicit loop_server(testing::world& w)
        : here_(w.add_host("server")),
          calls_(w.shard()),
          listener_(here_.device->listen(here_.name).value()),
          tasks_(w.shard())
    {
        calls_.add(program_);
        tasks_.spawn([this] {
            return rpcrdma::serve(*here_.device, *listener_, here_.buffers, calls_, options_, stats_);
        });
    }
    task<void> close()
    {
        listener_->close();
        tasks_.request_stop();
        co_await tasks_.join();
    }

private:
    testing::host& here_;
    doubling_program program_;
    rpc::service_dispatcher calls_;
    std::unique_ptr<verbs::listener> listener_;
    const rpcrdma::responder_options options_;
    rpcrdma::responder_stats stats_;
    scope tasks_;
};

} // namespace

BOOST_AUTO_TEST_CASE(one_line_makes_a_client_of_each_transport_and_of_a_name)
{
    with_server([](const server& s) -> task<void> {
        for (const auto& [scheme, host] :
             std::initializer_list<std::pair<const char*, const char*>>{{"tcp", "127.0.0.1"},
                                                                        {"iwarp", "127.0.0.1"},
                                                                        {"tcp", "localhost"},
                                                                        {"iwarp", "localhost"}}) {
            const std::string url = s.url(scheme, host);
            auto made = co_await rpc::connect(url);
            BOOST_TEST_REQUIRE(bool(made), url + ": " + (made ? "" : made.error().message()));
            const auto six = co_await ask(*made);
            BOOST_TEST((six && *six == 6));
            BOOST_TEST(made->name() == scheme);
            BOOST_TEST(made->url() == url);
            BOOST_TEST(made->address().starts_with("127.0.0.1:"));
            co_await made->close();
        }
    });
}

BOOST_AUTO_TEST_CASE(what_the_caller_has_is_used_in_place_of_an_own_one)
{
    testing::world w;
    testing::host& here = w.add_host("server");
    testing::host& there = w.add_host("client");
    const auto all = [&]() -> task<void> {
        doubling_program program;
        rpc::service_dispatcher calls(w.shard());
        calls.add(program);
        const rpcrdma::responder_options serving;
        rpcrdma::responder_stats stats;
        auto listener = here.device->listen(here.name).value();
        scope tasks(w.shard());
        tasks.spawn(
            [&] { return rpcrdma::serve(*here.device, *listener, here.buffers, calls, serving, stats); });
        rpc::connect_options o;
        o.keeper = &tasks;
        o.provider = there.device.get();
        o.buffers = &there.buffers;
        {
            auto made = co_await rpc::connect("loop://server", o);
            BOOST_TEST_REQUIRE(bool(made));
            BOOST_TEST(there.buffers.outstanding() != 0U);
            const auto six = co_await ask(*made);
            BOOST_TEST((six && *six == 6));
            // A server that is silent costs a call its time and no more.
            const time_point begun = w.clock().now();
            const auto lost = co_await hang(*made);
            BOOST_TEST((!lost && lost.error() == std::errc::timed_out));
            BOOST_TEST((w.clock().now() - begun == 30s));
            co_await made->close();
            o.provider = here.device.get();
            const auto other = co_await rpc::connect("iwarp://127.0.0.1:1", o);
            BOOST_TEST((!other && other.error() == std::errc::invalid_argument));
        }
        listener->close();
        tasks.request_stop();
        co_await tasks.join();
    };
    w.run(all());
    BOOST_TEST(w.left_over() == "");
}

BOOST_AUTO_TEST_CASE(addresses_that_can_t_work_fail_at_once_and_say_why)
{
    const struct {
        std::string url;
        std::errc code;
        std::string says;
    } all[] = {
        {"127.0.0.1:7000", std::errc::invalid_argument, "write SCHEME://HOST:PORT"},
        {"tcp://", std::errc::invalid_argument, "address is missing"},
        {"tcp://127.0.0.1", std::errc::invalid_argument, "port is missing"},
        {"iwarp://localhost", std::errc::invalid_argument, "port is missing"},
        {"iwarp://localhost:seven", std::errc::invalid_argument, "a port is a number"},
        {"iwarp://2001:db8::1:7000", std::errc::invalid_argument, "stands in brackets"},
        {"tcp://127.0.0.1:7000/x", std::errc::invalid_argument, "nothing may stand beside"},
        {"udp://127.0.0.1:7000", std::errc::invalid_argument, "tcp://HOST:PORT, iwarp://HOST:PORT"},
        {"iwrap://server", std::errc::invalid_argument, "no such transport"},
        {"tcp://[fe80::1%nosuch]:7000", std::errc::no_such_device, "no network interface of the name"},
        {"tcp://[localhost]:7000", std::errc::invalid_argument, "not a numeric address"},
        {"loop://server", std::errc::invalid_argument, "connect_options::provider"},
        {"iwarp://127.0.0.1:1", std::errc::connection_refused, "is the server up"},
        {"tcp://localhost:1", std::errc::connection_refused, "is the server up"},
    };
    for (const auto& one : all) {
        const error e = outcome_of(one.url);
        BOOST_TEST((e == one.code), one.url + ": " + e.message());
        BOOST_TEST(e.message().find(one.says) != std::string::npos, one.url + ": " + e.message());
    }
    // With no device there is none, and with one nobody listens.
    BOOST_TEST(outcome_of("rdma://127.0.0.1:1").message() != error().message());
}

BOOST_AUTO_TEST_CASE(of_a_server_of_another_transport_it_says_that_it_may_be_that)
{
    with_server([](const server& s) -> task<void> {
        std::string wrong = s.url("tcp");
        wrong.replace(0, 3, "iwarp");
        rpc::connect_options o;
        o.client.connect_timeout = 2s;
        const auto made = co_await rpc::connect(wrong, o);
        BOOST_TEST_REQUIRE(!made);
        BOOST_TEST(made.error().message().find("is this its transport") != std::string::npos,
                   made.error().message());
    });
}

BOOST_AUTO_TEST_CASE(of_a_server_that_ends_connections_a_call_says_so)
{
    with_server([](const server& s) -> task<void> {
        std::string wrong = s.url("iwarp");
        wrong.replace(0, 5, "tcp");
        rpc::connect_options o;
        o.client.without_reply_for = 0ms;
        o.client.reconnect_delay = 1ms;
        auto made = co_await rpc::connect(wrong, o);
        BOOST_TEST_REQUIRE(bool(made));
        const auto six = co_await ask(*made);
        BOOST_TEST((!six && six.error() == std::errc::connection_reset));
        BOOST_TEST(six.error().message().find("is this its transport and port?") != std::string::npos);
        BOOST_TEST(made->connections() == 3u);
        co_await made->close();
    });
}

// It would wait for ever: no such address comes into being.
BOOST_AUTO_TEST_CASE(a_hard_call_to_an_address_that_can_t_be_read_fails_at_once)
{
    auto shard = reactor::create().value();
    memory_budget budget(std::size_t(16) << 20);
    buffer_pool buffers(budget, shard.get());
    const auto provider = iwarp::make_context(*shard);
    const auto hard = rpcrdma::make_requester(*provider, buffers, "localhost:7000"); // takes digits alone
    const auto all = [&]() -> task<void> {
        const auto six = co_await ask(*hard);
        BOOST_TEST((!six && six.error() == std::errc::invalid_argument));
        co_await hard->close();
    };
    run_until_complete(*shard, all());
}

BOOST_AUTO_TEST_CASE(who_is_stopped_gets_no_client)
{
    auto shard = reactor::create().value();
    const auto all = [&]() -> task<void> {
        scope stopped(*shard);
        std::optional<error> heard;
        stopped.request_stop();
        stopped.spawn([&]() -> task<void> {
            const auto made = co_await rpc::connect("tcp://localhost:1");
            if (!made)
                heard = made.error();
        });
        co_await stopped.join();
        BOOST_TEST((heard && *heard == std::errc::operation_canceled));
    };
    run_until_complete(*shard, all());
}

// Both connect in the same moment. The one that comes second is dropped, and must not be open.
BOOST_AUTO_TEST_CASE(the_first_of_two_servers_is_taken_and_the_other_closed)
{
    testing::world w;
    testing::host& client = w.add_host("client");
    const std::array<testing::host*, 2> hosts{&w.add_host("first"), &w.add_host("second")};
    const log_lines log;
    const auto all = [&]() -> task<void> {
        doubling_program program;
        rpc::service_dispatcher calls(w.shard());
        calls.add(program);
        const rpcrdma::responder_options serving;
        rpcrdma::responder_stats stats;
        std::vector<std::unique_ptr<verbs::listener>> listeners;
        scope tasks(w.shard());
        for (testing::host* h : hosts) {
            verbs::listener& l = *listeners.emplace_back(h->device->listen(h->name).value());
            tasks.spawn([&, h] { return rpcrdma::serve(*h->device, l, h->buffers, calls, serving, stats); });
        }
        rpc::connect_options o;
        o.keeper = &tasks;
        o.provider = client.device.get();
        o.buffers = &client.buffers;
        {
            auto first = co_await when_any(rpc::connect("loop://first", o), rpc::connect("loop://second", o));
            BOOST_TEST_REQUIRE(bool(first.value));
            const auto six = co_await ask(*first.value);
            BOOST_TEST((six && *six == 6));
            co_await first.value->close();
        }
        for (auto& l : listeners)
            l->close();
        tasks.request_stop();
        co_await tasks.join();
    };
    w.run(all());
    BOOST_TEST(w.left_over() == "");
    BOOST_TEST(log.with("dropped open") == 0u);
}

BOOST_AUTO_TEST_CASE(with_client_closes_however_its_user_ends)
{
    with_server([](const server& s) -> task<void> {
        auto good = [](rpc::client& c) -> task<result<std::uint32_t>> { return ask(c); };
        const auto six = co_await rpc::with_client(s.url("iwarp"), std::move(good));
        BOOST_TEST((six && *six == 6));
        auto bad = [](rpc::client&) -> task<result<void>> { co_return error(std::errc::no_message); };
        const auto none = co_await rpc::with_client(s.url("tcp"), std::move(bad));
        BOOST_TEST((!none && none.error() == std::errc::no_message));
        auto throws = [](rpc::client& c) -> task<result<void>> {
            (void)co_await ask(c);
            throw std::runtime_error("of the user");
        };
        std::string heard;
        try {
            (void)co_await rpc::with_client(s.url("iwarp"), std::move(throws));
        } catch (const std::runtime_error& e) {
            heard = e.what();
        }
        BOOST_TEST(heard == "of the user");
        auto never = [](rpc::client&) -> task<result<void>> {
            BOOST_ERROR("there is no server");
            co_return result<void>();
        };
        const auto refused = co_await rpc::with_client("tcp://127.0.0.1:1", std::move(never));
        BOOST_TEST((!refused && refused.error() == std::errc::connection_refused));
    });
}

// Its buffers and its device are of the world, which sees what is left.
BOOST_AUTO_TEST_CASE(one_that_goes_open_is_closed_by_its_keeper_and_the_log_says_which)
{
    testing::world w;
    testing::host& client = w.add_host("client");
    loop_server server(w);
    const log_lines log;
    const auto all = [&]() -> task<void> {
        scope keeper(w.shard());
        scope calls(w.shard());
        rpc::connect_options o;
        o.keeper = &keeper;
        o.provider = client.device.get();
        o.buffers = &client.buffers;
        std::optional<error> heard;
        {
            auto made = co_await rpc::connect("loop://server", o);
            BOOST_TEST_REQUIRE(bool(made));
            const auto six = co_await ask(*made);
            BOOST_TEST((six && *six == 6));
            calls.spawn([&heard, &server = *made]() -> task<void> {
                const auto lost = co_await hang(server);
                if (!lost)
                    heard = lost.error();
            });
            co_await yield();
        }
        co_await calls.join();
        BOOST_TEST((heard && *heard == std::errc::operation_canceled));
        co_await keeper.join();
        BOOST_TEST(client.buffers.outstanding() == 0U);
        co_await server.close();
    };
    w.run(all());
    BOOST_TEST(w.left_over() == "");
    BOOST_TEST(log.with("a client was dropped open") == 1u);
    BOOST_TEST(log.with("loop://server") == 1u);
}

BOOST_AUTO_TEST_CASE(one_that_was_closed_goes_in_silence)
{
    const log_lines log;
    with_server([](const server& s) -> task<void> {
        for (const char* scheme : {"tcp", "iwarp"}) {
            auto made = co_await rpc::connect(s.url(scheme));
            BOOST_TEST_REQUIRE(bool(made));
            co_await made->close();
        }
    });
    BOOST_TEST(log.with("dropped open") == 0u);
}

BOOST_AUTO_TEST_CASE(one_that_goes_open_in_a_turn_is_closed_by_the_shard)
{
    const log_lines log;
    with_server([](const server& s) -> task<void> {
        (void)co_await rpc::connect(s.url("iwarp"));
        (void)co_await rpc::connect(s.url("tcp"));
    });
    BOOST_TEST(log.with("dropped open") == 2u);
}

BOOST_AUTO_TEST_CASE(one_that_goes_open_between_turns_is_closed_before_the_shard_has_gone)
{
    const log_lines log;
    const auto listener = net::open_listener(net::endpoint::parse("127.0.0.1:0").value()).value();
    net::unique_fd peer;
    {
        auto shard = reactor::create().value();
        const std::string url = "tcp://" + net::endpoint::local(listener.get())->to_string();
        auto made = run_until_complete(*shard, rpc::connect(url));
        BOOST_TEST_REQUIRE(bool(made));
        peer = std::move(net::accept(listener.get())->fd);
        char byte = 0;
        BOOST_TEST((::read(peer.get(), &byte, 1) == -1 && errno == EAGAIN));
    }
    char byte = 0;
    BOOST_TEST(::read(peer.get(), &byte, 1) == 0);
    BOOST_TEST(log.with("dropped open") == 1u);
}

// Whoever drops a client in an exception's way has no chance to close it.
BOOST_AUTO_TEST_CASE(an_exception_may_leave_the_owner_of_an_open_client)
{
    with_server([](const server& s) -> task<void> {
        const auto throws = [&s]() -> task<void> {
            const auto made = co_await rpc::connect(s.url("iwarp"));
            if (made)
                throw std::runtime_error("of the owner");
        };
        std::string heard;
        try {
            co_await throws();
        } catch (const std::runtime_error& e) {
            heard = e.what();
        }
        BOOST_TEST(heard == "of the owner");
    });
}

BOOST_AUTO_TEST_CASE(what_is_lent_asks_for_a_keeper)
{
    testing::world w;
    testing::host& client = w.add_host("client");
    rpc::service_dispatcher calls(w.shard());
    class nowhere final : public rpc::server_addresses {
        task<result<std::vector<std::string>>> find() override { co_return std::vector<std::string>(); }
        void connected(const std::string&) noexcept override {}
    } addresses;
    std::array<rpc::connect_options, 4> all;
    all[0].provider = client.device.get();
    all[1].buffers = &client.buffers;
    all[2].callbacks = &calls;
    all[3].client.addresses = &addresses;
    for (const rpc::connect_options& o : all) {
        const auto made = w.run(rpc::connect("loop://client", o));
        BOOST_TEST_REQUIRE(!made);
        BOOST_TEST((made.error() == std::errc::invalid_argument));
        BOOST_TEST(made.error().message().find("name the scope") != std::string::npos,
                   made.error().message());
    }
}

BOOST_AUTO_TEST_CASE(the_stop_of_its_keeper_closes_a_client)
{
    testing::world w;
    testing::host& client = w.add_host("client");
    loop_server server(w);
    const log_lines log;
    const auto all = [&]() -> task<void> {
        scope keeper(w.shard());
        rpc::connect_options o;
        o.keeper = &keeper;
        o.provider = client.device.get();
        auto made = co_await rpc::connect("loop://server", o);
        BOOST_TEST_REQUIRE(bool(made));
        keeper.request_stop();
        co_await keeper.join();
        BOOST_TEST(client.device->grants() == 0u);
        const auto six = co_await ask(*made);
        BOOST_TEST((!six && six.error() == std::errc::not_enough_memory)); // for the call
        const lease none = co_await made->acquire(4096);
        BOOST_TEST(!none);
        const auto again = co_await made->connect();
        BOOST_TEST((!again && again.error() == std::errc::operation_canceled));
        BOOST_TEST(made->connections() == 0u);
        co_await made->close();
        // A keeper that was stopped before makes none.
        const auto late = co_await rpc::connect("loop://server", o);
        BOOST_TEST((!late && late.error() == std::errc::operation_canceled));
        co_await keeper.join();
        co_await server.close();
    };
    w.run(all());
    BOOST_TEST(w.left_over() == "");
    BOOST_TEST(log.with("dropped open") == 0u);
}

BOOST_AUTO_TEST_CASE(who_waits_for_memory_is_told_when_the_keeper_stops)
{
    testing::world w;
    testing::host& client = w.add_host("client");
    loop_server server(w);
    const auto all = [&]() -> task<void> {
        scope keeper(w.shard());
        scope waiters(w.shard());
        rpc::connect_options o;
        o.keeper = &keeper;
        o.provider = client.device.get();
        o.memory = std::size_t(15) << 20; // so that what the client's end gives back is too little
        auto made = co_await rpc::connect("loop://server", o);
        BOOST_TEST_REQUIRE(bool(made));
        std::vector<lease> held;
        bool told = false;
        waiters.spawn([&]() -> task<void> {
            for (;;) {
                lease memory = co_await made->acquire(std::size_t(4) << 20);
                if (!memory)
                    break;
                held.push_back(std::move(memory));
            }
            told = true;
        });
        for (int i = 0; i < 64; ++i)
            co_await yield();
        BOOST_TEST(!held.empty());
        BOOST_TEST(!told);
        keeper.request_stop();
        co_await sleep_for(1s);
        BOOST_TEST(told);
        held.clear(); // now there is memory, for who still waits for some
        co_await waiters.join();
        co_await keeper.join();
        co_await server.close();
    };
    w.run(all());
    BOOST_TEST(w.left_over() == "");
}

BOOST_AUTO_TEST_CASE(a_task_that_was_made_and_begins_behind_the_keeper_s_stop_says_so)
{
    with_server([](const server& s) -> task<void> {
        const task_context& context = co_await current_context();
        scope keeper(*context.shard);
        rpc::connect_options o;
        o.keeper = &keeper;
        const std::string right = s.url("tcp").substr(6);
        o.look_up = [right](const std::string&) -> result<std::vector<net::endpoint>> {
            return std::vector<net::endpoint>{net::endpoint::parse(right).value()};
        };
        auto made = co_await rpc::connect("tcp://server.test:7000", o);
        BOOST_TEST_REQUIRE(bool(made));
        lease block = co_await made->acquire(4096);
        rpc::request r(std::move(block), rpc::call_header());
        auto connecting = made->connect();
        auto calling = made->call(r);
        r = rpc::request();
        keeper.request_stop();
        co_await keeper.join();
        const auto connected = co_await std::move(connecting);
        BOOST_TEST((!connected && connected.error() == std::errc::operation_canceled));
        const auto called = co_await std::move(calling);
        BOOST_TEST((!called && called.error() == std::errc::operation_canceled));
        BOOST_TEST(made->address() == right);
    });
}

BOOST_AUTO_TEST_CASE(buffers_of_a_client_may_go_a_little_after_it)
{
    with_server([](const server& s) -> task<void> {
        lease kept;
        {
            auto made = co_await rpc::connect(s.url("tcp"));
            BOOST_TEST_REQUIRE(bool(made));
            kept = co_await made->acquire(4096);
            BOOST_TEST(bool(kept));
            co_await made->close();
        }
    });
}

// It is not given back, so that nothing breaks. A static pointer leads to it, for who looks for leaks.
BOOST_AUTO_TEST_CASE(buffers_that_outlive_a_client_for_long_are_left_to_who_has_them)
{
    testing::world w;
    testing::host& client = w.add_host("client");
    loop_server server(w);
    const log_lines log;
    static lease* kept;
    const auto all = [&]() -> task<void> {
        scope keeper(w.shard());
        rpc::connect_options o;
        o.keeper = &keeper;
        o.provider = client.device.get();
        {
            auto made = co_await rpc::connect("loop://server", o);
            BOOST_TEST_REQUIRE(bool(made));
            lease block = co_await made->acquire(4096);
            kept = new lease(std::move(block));
            co_await made->close();
        }
        const time_point begun = w.clock().now();
        co_await keeper.join();
        BOOST_TEST((w.clock().now() - begun >= 10s));
        co_await server.close();
    };
    w.run(all());
    std::memset(kept->data(), 1, kept->size());
    BOOST_TEST(log.with("still holds its buffers") == 1u);
}

BOOST_AUTO_TEST_CASE(with_client_may_be_lent_what_goes_behind_it)
{
    testing::world w;
    testing::host& client = w.add_host("client");
    loop_server server(w);
    const auto all = [&]() -> task<void> {
        rpc::connect_options o;
        o.provider = client.device.get();
        o.buffers = &client.buffers;
        auto good = [](rpc::client& c) -> task<result<std::uint32_t>> { return ask(c); };
        const auto six = co_await rpc::with_client("loop://server", std::move(good), o);
        BOOST_TEST((six && *six == 6));
        BOOST_TEST(client.buffers.outstanding() == 0U);
        co_await server.close();
    };
    w.run(all());
    BOOST_TEST(w.left_over() == "");
}

// In a child, since the limit is the user's. Root has none.
BOOST_AUTO_TEST_CASE(where_no_thread_can_be_started_connect_says_so)
{
    const pid_t child = ::fork();
    BOOST_REQUIRE(child >= 0);
    if (child == 0) {
        if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0)
            ::_exit(2);
        rlimit before{};
        ::getrlimit(RLIMIT_NPROC, &before);
        const rlimit no_more{1, before.rlim_max};
        auto shard = reactor::create().value();
        if (::setrlimit(RLIMIT_NPROC, &no_more) != 0)
            ::_exit(3);
        rpc::connect_options o;
        o.look_up = [](const std::string&) -> result<std::vector<net::endpoint>> {
            return std::vector<net::endpoint>{net::endpoint::parse("127.0.0.1:1").value()};
        };
        const auto refused = run_until_complete(*shard, rpc::connect("tcp://server.test:1", o));
        if (refused || refused.error() != std::errc::resource_unavailable_try_again ||
            refused.error().message().find("ulimit -u") == std::string::npos)
            ::_exit(4);
        if (::setrlimit(RLIMIT_NPROC, &before) != 0)
            ::_exit(5);
        const auto tried = run_until_complete(*shard, rpc::connect("tcp://server.test:1", o));
        ::_exit(!tried && tried.error() == std::errc::connection_refused ? 0 : 6);
    }
    int status = 0;
    BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
    BOOST_TEST(WIFEXITED(status));
    BOOST_TEST(WEXITSTATUS(status) == 0);
}

// A hard one: it would wait for ever at the old address.
BOOST_AUTO_TEST_CASE(a_client_finds_a_server_that_has_moved)
{
    for (const char* scheme : {"tcp", "iwarp"}) {
        auto shard = reactor::create().value();
        auto old = std::make_unique<server>(*shard);
        server other(*shard);
        const auto at = [&](const server& s) {
            return net::endpoint::parse(s.url(scheme).substr(std::string_view(scheme).size() + 3)).value();
        };
        std::mutex guard; // of what the resolver knows
        net::endpoint known = at(*old);
        const auto all = [&]() -> task<void> {
            rpc::connect_options o;
            o.client.hard = true;
            o.client.reconnect_delay = 0ms;
            o.look_up = [&](const std::string& name) -> result<std::vector<net::endpoint>> {
                if (name != "server.test:7000")
                    return error(std::errc::address_not_available);
                const std::lock_guard lock(guard);
                return std::vector<net::endpoint>{known};
            };
            auto made = co_await rpc::connect(std::string(scheme) + "://server.test:7000", o);
            BOOST_TEST_REQUIRE(bool(made));
            BOOST_TEST(made->address() == known.to_string());
            const auto six = co_await ask(*made);
            BOOST_TEST((six && *six == 6));
            {
                const std::lock_guard lock(guard);
                known = at(other);
            }
            co_await old->close();
            old.reset();
            const auto again = co_await ask(*made);
            BOOST_TEST((again && *again == 6));
            BOOST_TEST(made->address() == known.to_string());
            BOOST_TEST(made->connections() == 2u);
            co_await made->close();
            co_await other.close();
        };
        run_until_complete(*shard, all());
    }
}

namespace {

task<net::unique_fd> who_comes(int listener)
{
    for (;;) {
        auto peer = net::accept(listener);
        if (peer)
            co_return std::move(peer->fd);
        co_await yield();
    }
}

task<void> something_comes(int socket)
{
    char byte = 0;
    while (::recv(socket, &byte, 1, MSG_PEEK) != 1)
        co_await yield();
}

} // namespace

// The first server takes a call and ends the connection. The name has both addresses, now in the other order.
BOOST_AUTO_TEST_CASE(a_client_goes_back_to_the_address_it_had_and_asks_nobody)
{
    auto shard = reactor::create().value();
    server other(*shard);
    net::unique_fd first = net::open_listener(net::endpoint::parse("127.0.0.1:0").value()).value();
    const net::endpoint at_first = net::endpoint::local(first.get()).value();
    const net::endpoint at_other = net::endpoint::parse(other.url("tcp").substr(6)).value();
    std::atomic<int> asked{0};
    const auto all = [&]() -> task<void> {
        rpc::connect_options o;
        o.client.reconnect_delay = 0ms;
        o.look_up = [&](const std::string&) -> result<std::vector<net::endpoint>> {
            if (asked++ == 0)
                return std::vector<net::endpoint>{at_first, at_other};
            return std::vector<net::endpoint>{at_other, at_first};
        };
        auto made = co_await rpc::connect("tcp://server.test:7000", o);
        BOOST_TEST_REQUIRE(bool(made));
        scope calls(*shard);
        std::optional<error> of_buy;
        std::optional<std::uint32_t> six;
        calls.spawn([&]() -> task<void> {
            const auto done = co_await buy(*made);
            of_buy = done ? error() : done.error();
        });
        calls.spawn([&]() -> task<void> {
            const auto done = co_await ask(*made);
            if (done)
                six = *done;
        });
        {
            const net::unique_fd peer = co_await who_comes(first.get());
            co_await something_comes(peer.get());
        }
        {
            const net::unique_fd again = co_await who_comes(first.get());
            co_await something_comes(again.get());
            BOOST_TEST(asked == 1);
            BOOST_TEST((!of_buy && !six));
            first = net::unique_fd();
        }
        // It is gone for good. What changes nothing goes on at the other one; BUY may have run at the first.
        co_await calls.join();
        BOOST_TEST((of_buy && *of_buy == std::errc::connection_reset));
        BOOST_TEST(of_buy->message().find("another address") != std::string::npos, of_buy->message());
        BOOST_TEST((six && *six == 6));
        BOOST_TEST(other.bought() == 0);
        BOOST_TEST(asked == 2);
        BOOST_TEST(made->address() == at_other.to_string());
        const auto later = co_await buy(*made); // is of this one
        BOOST_TEST(bool(later));
        BOOST_TEST(other.bought() == 1);
        co_await made->close();
        co_await other.close();
    };
    run_until_complete(*shard, all());
}

BOOST_AUTO_TEST_CASE(all_addresses_of_a_name_are_tried)
{
    with_server([](const server& s) -> task<void> {
        rpc::connect_options o;
        const std::string right = s.url("tcp").substr(6);
        o.look_up = [right](const std::string&) -> result<std::vector<net::endpoint>> {
            return std::vector<net::endpoint>{net::endpoint::parse("127.0.0.1:1").value(),
                                              net::endpoint::parse(right).value()};
        };
        auto made = co_await rpc::connect("tcp://server.test:7000", o);
        BOOST_TEST_REQUIRE(bool(made));
        BOOST_TEST(made->address() == right);
        co_await made->close();
        o.look_up = [](const std::string&) -> result<std::vector<net::endpoint>> {
            return std::vector<net::endpoint>();
        };
        const auto none = co_await rpc::connect("tcp://server.test:7000", o);
        BOOST_TEST((!none && none.error() == std::errc::address_not_available));
        o.look_up = [](const std::string&) -> result<std::vector<net::endpoint>> {
            throw std::runtime_error("of the resolver");
        };
        const auto thrown = co_await rpc::connect("tcp://server.test:7000", o);
        BOOST_TEST((!thrown && thrown.error() == std::errc::state_not_recoverable));
    });
}

BOOST_AUTO_TEST_CASE(a_look_up_that_fails_leaves_the_addresses_of_the_last_one)
{
    auto shard = reactor::create().value();
    std::atomic<bool> fails{false};
    rpc::server_name name(
        *shard, "server.test:7000", 10s, [&](const std::string&) -> result<std::vector<net::endpoint>> {
            if (fails)
                return error(std::errc::host_unreachable);
            return std::vector<net::endpoint>{net::endpoint::parse("192.0.2.7:7000").value()};
        });
    const auto all = [&]() -> task<void> {
        for (const bool now : {true, false, true}) {
            fails = now;
            const auto found = co_await name.find();
            if (!name.found()) {
                BOOST_TEST((!found && found.error() == std::errc::host_unreachable));
            } else {
                BOOST_TEST_REQUIRE(bool(found));
                BOOST_TEST((*found == std::vector<std::string>{"192.0.2.7:7000"}));
            }
        }
        BOOST_TEST(name.found());
    };
    run_until_complete(*shard, all());
}

namespace {

// Virtual time does not pass meanwhile, as there is something to do.
task<result<std::vector<std::string>>> found_without_haste(rpc::server_name& name)
{
    const task_context& context = co_await current_context();
    scope busy(*context.shard);
    bool over = false;
    busy.spawn([&over]() -> task<void> {
        while (!over)
            co_await yield();
    });
    auto found = co_await name.find();
    over = true;
    co_await busy.join();
    co_return std::move(found);
}

} // namespace

// The clock is virtual, so that the time is over as soon as nothing else can be done.
BOOST_AUTO_TEST_CASE(a_look_up_that_takes_long_is_waited_for_again_and_its_late_answer_is_not_taken)
{
    virtual_clock clock;
    reactor_options options;
    options.clock = &clock;
    auto shard = reactor::create(options).value();
    std::promise<void> answers;
    std::atomic<int> asked{0};
    rpc::server_name name(
        *shard, "server.test:7000", 5s,
        [&, open = answers.get_future().share()](const std::string&) -> result<std::vector<net::endpoint>> {
            ++asked;
            open.wait();
            return std::vector<net::endpoint>{net::endpoint::parse("192.0.2.7:7000").value()};
        });
    for (int i = 0; i < 2; ++i) {
        const time_point begun = clock.now();
        const auto late = run_until_complete(*shard, name.find());
        BOOST_TEST((!late && late.error() == std::errc::timed_out));
        BOOST_TEST((clock.now() - begun == 5s));
    }
    answers.set_value();
    while (left_behind(*shard).live() != 0)
        shard->turn();
    const auto found = run_until_complete(*shard, found_without_haste(name));
    BOOST_TEST_REQUIRE(bool(found));
    BOOST_TEST((*found == std::vector<std::string>{"192.0.2.7:7000"}));
    BOOST_TEST(asked == 2);
}

BOOST_AUTO_TEST_CASE(who_knows_addresses_waits_shortly_for_a_look_up)
{
    virtual_clock clock;
    reactor_options options;
    options.clock = &clock;
    auto shard = reactor::create(options).value();
    std::promise<void> answers;
    std::atomic<bool> hangs{false};
    rpc::server_name name(
        *shard, "server.test:7000", 5s,
        [&, open = answers.get_future().share()](const std::string&) -> result<std::vector<net::endpoint>> {
            if (hangs)
                open.wait();
            return std::vector<net::endpoint>{net::endpoint::parse("192.0.2.7:7000").value()};
        });
    const auto first = run_until_complete(*shard, found_without_haste(name));
    BOOST_TEST(bool(first));
    hangs = true;
    const time_point begun = clock.now();
    const auto known = run_until_complete(*shard, name.find());
    BOOST_TEST((known && *known == std::vector<std::string>{"192.0.2.7:7000"}));
    BOOST_TEST((clock.now() - begun == rpc::server_name::patience));
    answers.set_value();
    while (left_behind(*shard).live() != 0)
        shard->turn();
}

BOOST_AUTO_TEST_CASE(a_look_up_that_finds_nothing_leaves_what_is_known_and_many_addresses_are_cut)
{
    auto shard = reactor::create().value();
    std::atomic<int> many{20};
    rpc::server_name name(
        *shard, "server.test:7000", 10s, [&](const std::string&) -> result<std::vector<net::endpoint>> {
            return std::vector<net::endpoint>(many, net::endpoint::parse("192.0.2.7:7000").value());
        });
    for (int i = 0; i < 2; ++i) {
        const auto found = run_until_complete(*shard, name.find());
        BOOST_TEST_REQUIRE(bool(found));
        BOOST_TEST(found->size() == rpc::server_name::max_addresses);
        many = 0;
    }
}

// All threads for names hang, so that the fifth one's question waits for its turn.
BOOST_AUTO_TEST_CASE(a_question_that_nobody_waits_for_is_not_asked)
{
    std::promise<void> answers;
    std::atomic<unsigned> hung{0};
    std::atomic<bool> asked{false};
    virtual_clock clock;
    reactor_options options;
    options.clock = &clock;
    auto shard = reactor::create(options).value();
    const log_lines log;
    const auto open = answers.get_future().share();
    const auto hangs = [&hung, open](const std::string&) -> result<std::vector<net::endpoint>> {
        ++hung;
        open.wait();
        return error(std::errc::host_unreachable);
    };
    std::vector<std::unique_ptr<rpc::server_name>> names;
    for (unsigned i = 0; i < own_threads::max_look_ups; ++i) {
        names.push_back(std::make_unique<rpc::server_name>(*shard, "hung.test:7000", 1s, hangs));
        (void)run_until_complete(*shard, names.back()->find());
    }
    while (hung != own_threads::max_look_ups)
        std::this_thread::yield();
    names.clear();
    {
        rpc::server_name name(*shard, "fifth.test:7000", 1s,
                              [&asked](const std::string&) -> result<std::vector<net::endpoint>> {
                                  asked = true;
                                  return error(std::errc::host_unreachable);
                              });
        const auto late = run_until_complete(*shard, name.find());
        BOOST_TEST((!late && late.error() == std::errc::timed_out));
    }
    // The shard's end tells of those that it waits for.
    left_behind(*shard).request_stop();
    while (shard->turn()) {
    }
    BOOST_TEST(log.with("hung.test:7000") == own_threads::max_look_ups);
    BOOST_TEST(log.with("fifth.test:7000") == 0u);
    answers.set_value();
    while (left_behind(*shard).live() != 0)
        shard->turn();
    BOOST_TEST(!asked);
}

BOOST_AUTO_TEST_CASE(who_is_stopped_does_not_wait_for_the_resolver)
{
    auto shard = reactor::create().value();
    std::promise<void> answers;
    rpc::connect_options o;
    o.look_up = [open =
                     answers.get_future().share()](const std::string&) -> result<std::vector<net::endpoint>> {
        open.wait();
        return error(std::errc::host_unreachable);
    };
    const auto all = [&]() -> task<void> {
        scope stopped(*shard);
        std::optional<error> heard;
        stopped.spawn([&]() -> task<void> {
            const auto made = co_await rpc::connect("tcp://server.test:7000", o);
            if (!made)
                heard = made.error();
        });
        stopped.request_stop();
        co_await stopped.join();
        BOOST_TEST((heard && *heard == std::errc::operation_canceled));
    };
    run_until_complete(*shard, all());
    answers.set_value();
}

// As for any host that is not there. The clock is virtual: an hour passes in no time.
BOOST_AUTO_TEST_CASE(a_hard_call_waits_for_the_interface_of_its_server_s_address)
{
    virtual_clock clock;
    reactor_options options;
    options.clock = &clock;
    auto shard = reactor::create(options).value();
    memory_budget budget(std::size_t(16) << 20);
    buffer_pool buffers(budget, shard.get());
    const auto provider = iwarp::make_context(*shard);
    const std::string address = "[fe80::1%verbena.none]:7000";
    std::array<std::unique_ptr<rpc::client_transport>, 2> clients{
        rpc::make_stream_client(*shard, buffers, address).value(),
        rpcrdma::make_requester(*provider, buffers, address)};
    for (auto& client : clients) {
        const log_lines log;
        const auto all = [&]() -> task<void> {
            const time_point begun = clock.now();
            const auto once = co_await client->connect();
            BOOST_TEST((!once && once.error() == std::errc::no_such_device));
            const auto six = co_await with_timeout(1h, ask(*client));
            BOOST_TEST((!six && six.error() == std::errc::timed_out));
            BOOST_TEST((clock.now() - begun == 1h));
            co_await client->close();
        };
        run_until_complete(*shard, all());
        BOOST_TEST(log.with("the way to a server is not here") == 1u);
        BOOST_TEST(log.with("or no RDMA device leads to it") == 1u); // which has the same error
        BOOST_TEST(log.with("no network interface of the name behind %") == 1u);
    }
}

BOOST_AUTO_TEST_SUITE_END()
