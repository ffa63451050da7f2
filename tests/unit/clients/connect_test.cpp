// SPDX-License-Identifier: Apache-2.0
// rpc::connect(): each kind of URL, those that can't work, and who closes.
#include <boost/test/unit_test.hpp>

#include <verbena/clients/connect.hpp>
#include <verbena/core/net/net.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/typed_program.hpp>
#include <verbena/protocols/rpcrdma/requester.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/protocols/rpcstream/stream_server.hpp>
#include <verbena/testing/world.hpp>
#include <verbena/transports/iwarp.hpp>
#include <verbena/transports/stream.hpp>

#include <array>
#include <csignal>
#include <stdexcept>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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

class doubling_program final : public rpc::typed_program {
public:
    doubling_program() : typed_program(doubling)
    {
        on(twice, [](const doubled& a) { return doubled{2 * a.number}; });
        on(hang, [this]() -> task<result<void>> {
            (void)co_await never_.wait();
            co_return result<void>();
        });
    }

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

/// What a child that aborts says on standard error.
std::string last_words(const std::function<void()>& f)
{
    std::array<int, 2> ends{};
    BOOST_REQUIRE(::pipe(ends.data()) == 0);
    const pid_t child = ::fork();
    BOOST_REQUIRE(child >= 0);
    if (child == 0) {
        const rlimit none{0, 0};
        ::setrlimit(RLIMIT_CORE, &none);
        std::signal(SIGABRT, SIG_DFL); // Boost.Test has a handler
        ::alarm(20);
        ::dup2(ends[1], STDERR_FILENO);
        f();
        ::_exit(0);
    }
    ::close(ends[1]);
    std::string said;
    std::array<char, 512> part;
    for (ssize_t n = 0; (n = ::read(ends[0], part.data(), part.size())) > 0;)
        said.append(part.data(), static_cast<std::size_t>(n));
    ::close(ends[0]);
    int status = 0;
    BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
    BOOST_TEST((WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT));
    return said;
}

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
        {"tcp://[fe80::1%nosuch]:7000", std::errc::invalid_argument, "no network interface of the name"},
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

BOOST_AUTO_TEST_CASE(one_that_goes_open_ends_the_process_and_says_which)
{
    const std::string words = last_words([] {
        with_server([](const server& s) -> task<void> { (void)co_await rpc::connect(s.url("iwarp")); });
    });
    BOOST_TEST(words.find("the client of iwarp://127.0.0.1:") != std::string::npos, words);
    BOOST_TEST(words.find("rpc::with_client()") != std::string::npos, words);
}

BOOST_AUTO_TEST_SUITE_END()
