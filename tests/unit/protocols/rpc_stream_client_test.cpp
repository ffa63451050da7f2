// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include "../creeping_clock.hpp"

#include <verbena/core/net/net.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/rpcstream/stream_client.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <functional>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

BOOST_AUTO_TEST_SUITE(rpc_stream_client_test)

using namespace verbena;
using namespace std::chrono_literals;

namespace {

using bytes = std::vector<std::byte>;

bytes words(std::initializer_list<std::uint32_t> values)
{
    bytes out;
    for (std::uint32_t v : values) {
        for (int shift = 24; shift >= 0; shift -= 8)
            out.push_back(std::byte(v >> shift));
    }
    return out;
}

std::uint32_t word(const bytes& b, std::size_t index) { return xdr::load_u32(b.data() + 4 * index); }

// The other end of one connection: blocking calls on a thread of its own.
class peer {
public:
    explicit peer(net::unique_fd fd) : fd_(std::move(fd)) {}

    // The next record without its marks; empty at the end of the stream.
    bytes record()
    {
        bytes out;
        for (bool last = false; !last;) {
            const bytes mark = read(4);
            if (mark.empty())
                return {};
            const std::uint32_t w = xdr::load_u32(mark.data());
            last = (w & 0x80000000) != 0;
            const bytes part = read(w & 0x7fffffff);
            out.insert(out.end(), part.begin(), part.end());
        }
        return out;
    }
    void write(const bytes& b)
    {
        for (std::size_t done = 0; done < b.size();) {
            const auto n = ::send(fd_.get(), b.data() + done, b.size() - done, MSG_NOSIGNAL);
            if (n <= 0)
                return;
            done += static_cast<std::size_t>(n);
        }
    }
    void fragment(const bytes& b, bool last)
    {
        write(words({static_cast<std::uint32_t>(b.size()) | (last ? 0x80000000u : 0)}));
        write(b);
    }
    // True if nothing more has come.
    bool quiet() const
    {
        pollfd p{fd_.get(), POLLIN, 0};
        return ::poll(&p, 1, 0) == 0;
    }
    // True once the client has ended the connection, having sent nothing more; false if it does not.
    bool ends() const { return hears(); }
    // True once something has come, or the end.
    bool hears() const
    {
        pollfd p{fd_.get(), POLLIN, 0};
        return ::poll(&p, 1, 30'000) == 1;
    }
    // A successful reply to `call`, whose only result is `value`.
    void answer(const bytes& call, std::uint32_t value)
    {
        fragment(words({word(call, 0), 1, 0, 0, 0, 0, value}), true);
    }

private:
    bytes read(std::size_t n)
    {
        bytes out(n);
        for (std::size_t done = 0; done < n;) {
            const auto got = ::recv(fd_.get(), out.data() + done, n - done, 0);
            if (got <= 0)
                return {};
            done += static_cast<std::size_t>(got);
        }
        return out;
    }
    net::unique_fd fd_;
};

// So that a large call does not fit into a connection that nobody reads.
constexpr int small_window = 65536;

// Runs `script` for each connection in turn.
class fake_server {
public:
    /// `receive_buffer`: that of connections in bytes, or 0 for the system's.
    explicit fake_server(std::vector<std::function<void(peer&)>> scripts, int receive_buffer = 0)
    {
        auto any = net::endpoint::parse("127.0.0.1:0");
        listener_ = std::move(*net::open_listener(*any));
        if (receive_buffer != 0)
            BOOST_REQUIRE(::setsockopt(listener_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer,
                                       sizeof receive_buffer) == 0);
        address_ = net::endpoint::local(listener_.get())->to_string();
        thread_ = std::thread([this, scripts = std::move(scripts)] {
            for (const auto& script : scripts) {
                pollfd p{listener_.get(), POLLIN, 0};
                if (::poll(&p, 1, 10'000) != 1)
                    break;
                const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
                peer client{net::unique_fd(fd)};
                script(client);
            }
            over_ = true;
        });
    }
    ~fake_server()
    {
        // A script may wait for the end of its connection, and a socket that was closed is let go in a turn, where the ring watches it.
        while (!over_ && turning != nullptr)
            turning->turn();
        thread_.join();
    }
    inline static reactor* turning = nullptr; // the fixture's
    const std::string& address() const { return address_; }

private:
    net::unique_fd listener_;
    std::string address_;
    std::atomic<bool> over_{false};
    std::thread thread_;
};

// So patient that the clock does not creep so far.
rpc::client_options patient()
{
    rpc::client_options options;
    options.timeout = 1h;
    options.connect_timeout = 1h;
    options.first_silence = 1h;
    options.reconnect_delay = 1ms;
    options.reconnect_delay_max = 10ms;
    return options;
}

struct fixture {
    fixture() : budget(64 << 20)
    {
        reactor_options o;
        o.clock = &clock;
        auto made = reactor::create(o);
        BOOST_REQUIRE(made);
        shard = std::move(*made);
        buffers.emplace(budget, shard.get());
        far.emplace(*shard);
        fake_server::turning = shard.get();
    }
    ~fixture() { fake_server::turning = nullptr; }
    std::unique_ptr<rpc::client_transport> client(const fake_server& server,
                                                  const rpc::client_options& options = patient())
    {
        rpc::stream_client_options o;
        o.client = options;
        auto made = rpc::make_stream_client(*shard, *buffers, server.address(), o);
        BOOST_REQUIRE(made);
        return std::move(*made);
    }
    rpc::request ask(std::uint32_t procedure)
    {
        rpc::call_header header;
        header.program = 100003;
        header.version = 3;
        header.procedure = procedure;
        return rpc::request(buffers->try_acquire(4096), header);
    }
    // Whether one call is answered.
    bool answers(rpc::client_transport& client)
    {
        auto main = [&]() -> task<bool> {
            rpc::request r = ask(0);
            const auto reply = co_await client.call(r);
            co_await client.close();
            co_return bool(reply);
        };
        return run_until_complete(*shard, main());
    }
    // Waits for what a peer's thread does. No time passes meanwhile, and the machine's matters only where nothing comes.
    template<class F>
    task<void> until(F done)
    {
        for (const time_point limit = system_clock().now() + 60s; !done();) {
            BOOST_REQUIRE(system_clock().now() < limit);
            std::this_thread::yield();
            co_await sleep_for(0s);
        }
    }
    // Calls; what it fails with goes to `outcome`.
    task<void> fails(rpc::client_transport& client, std::optional<error>& outcome)
    {
        rpc::request r = ask(0);
        const auto reply = co_await client.call(r);
        if (!reply)
            outcome = reply.error();
    }
    // Lets the client do what it can do now.
    static task<void> turns()
    {
        for (int i = 0; i < 200; ++i)
            co_await sleep_for(0s);
    }
    // Waits until the client waits for its next attempt to connect, and tells how long it is to wait.
    task<duration> pause()
    {
        const auto wait = [this] { return *shard->timers().next() - clock.now(); };
        co_await until([&] { return wait() > 0s && wait() < 1min; });
        co_return wait();
    }
    // Has that time pass.
    task<duration> next_attempt()
    {
        const duration passed = co_await pause();
        clock.advance(passed);
        co_return passed;
    }
    test::creeping_clock clock;
    memory_budget budget;
    std::unique_ptr<reactor> shard;
    std::optional<buffer_pool> buffers;
    std::optional<test::far_timer> far;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_call_and_a_reply_in_fragments, fixture)
{
    bytes seen;
    fake_server server({[&](peer& p) {
        seen = p.record();
        p.fragment(words({word(seen, 0), 1, 0}), false);
        p.fragment({}, false);
        p.fragment(words({0, 0, 0, 0xabcd0123}), true);
    }});
    auto client = this->client(server);
    auto main = [&]() -> task<std::uint32_t> {
        rpc::request r = ask(17);
        r.message().u32(0x11223344);
        auto reply = co_await client->call(r);
        const std::uint32_t value = reply ? reply->results().u32() : 0;
        if (reply)
            BOOST_TEST(reply->results().at_end());
        co_await client->close();
        co_return value;
    };
    BOOST_TEST(run_until_complete(*shard, main()) == 0xabcd0123u);
    // RFC 5531 9: xid, CALL, rpcvers 2, prog, vers, proc, two empty AUTH_NONE, then the argument.
    BOOST_TEST(seen.size() == 44u);
    const bytes expected = words({word(seen, 0), 0, 2, 100003, 3, 17, 0, 0, 0, 0, 0x11223344});
    BOOST_TEST((seen == expected));
}

BOOST_FIXTURE_TEST_CASE(a_payload_travels_in_its_place_with_its_pad, fixture)
{
    bytes seen;
    fake_server server({[&](peer& p) {
        seen = p.record();
        p.answer(seen, 1);
    }});
    auto client = this->client(server);
    auto main = [&]() -> task<bool> {
        rpc::request r = ask(7);
        r.message().u32(1);
        r.message().note_payload(5);
        r.message().u32(2);
        lease data = buffers->try_acquire(4096);
        std::memcpy(data.data(), "hello", 5);
        const std::span<const std::byte> view(data.data(), 5);
        r.attach(rpc::payload(std::move(data), view));
        auto reply = co_await client->call(r);
        co_await client->close();
        co_return bool(reply);
    };
    BOOST_TEST(run_until_complete(*shard, main()));
    const bytes expected = words({1, 5, 0x68656c6c, 0x6f000000, 2});
    BOOST_REQUIRE(seen.size() == 60u);
    BOOST_TEST((bytes(seen.begin() + 40, seen.end()) == expected));
}

BOOST_FIXTURE_TEST_CASE(replies_in_another_order_reach_their_calls, fixture)
{
    constexpr int count = 100;
    fake_server server({[&](peer& p) {
        std::vector<bytes> calls;
        for (int i = 0; i < count; ++i)
            calls.push_back(p.record());
        for (int i = count; i-- > 0;)
            p.answer(calls[i], word(calls[i], 10) * 3);
    }});
    auto client = this->client(server);
    int right = 0;
    auto one = [&](std::uint32_t n) -> task<void> {
        rpc::request r = ask(1);
        r.message().u32(n);
        auto reply = co_await client->call(r);
        if (reply && reply->results().u32() == 3 * n)
            ++right;
    };
    auto main = [&]() -> task<void> {
        scope s(*shard);
        for (std::uint32_t i = 0; i < count; ++i)
            s.spawn(one, i);
        co_await s.join();
        co_await client->close();
    };
    run_until_complete(*shard, main());
    BOOST_TEST(right == count);
}

BOOST_FIXTURE_TEST_CASE(max_calls_bounds_what_is_outstanding, fixture)
{
    bool two_only = false;
    std::atomic<bool> two_came = false;
    std::atomic<bool> look = false;
    fake_server server({[&](peer& p) {
        const bytes first = p.record();
        const bytes second = p.record();
        two_came = true;
        look.wait(false);
        two_only = p.quiet();
        p.answer(first, 1);
        p.answer(p.record(), 1);
        p.answer(second, 1);
    }});
    rpc::client_options options = patient();
    options.max_calls = 2;
    auto client = this->client(server, options);
    int answered = 0;
    auto one = [&]() -> task<void> {
        rpc::request r = ask(1);
        if (co_await client->call(r))
            ++answered;
    };
    auto main = [&]() -> task<void> {
        scope s(*shard);
        for (int i = 0; i < 3; ++i)
            s.spawn(one);
        co_await until([&] { return two_came.load(); });
        co_await turns(); // a third would have been sent
        look = true;
        look.notify_all();
        co_await s.join();
        co_await client->close();
    };
    run_until_complete(*shard, main());
    BOOST_TEST(answered == 3);
    BOOST_TEST(two_only);
}

BOOST_FIXTURE_TEST_CASE(a_new_connection_carries_the_same_calls, fixture)
{
    std::vector<bytes> before, after;
    fake_server server({[&](peer& p) {
                            before = {p.record(), p.record()};
                            p.write(words({0x80000010, word(before[1], 0), 1})); // cut short
                        },
                        [&](peer& p) {
                            after = {p.record(), p.record()};
                            p.answer(after[0], 10);
                            p.answer(after[1], 11);
                        }});
    auto client = this->client(server);
    std::vector<std::uint32_t> values(2);
    auto one = [&](std::uint32_t i) -> task<void> {
        rpc::request r = ask(1);
        r.message().u32(i);
        auto reply = co_await client->call(r);
        values[i] = reply ? reply->results().u32() : 0;
    };
    auto main = [&]() -> task<void> {
        scope s(*shard);
        s.spawn(one, 0);
        s.spawn(one, 1);
        co_await s.join();
        BOOST_TEST(client->connections() == 2u);
        co_await client->close();
    };
    run_until_complete(*shard, main());
    BOOST_TEST((before == after));
    BOOST_TEST(values[0] == 10u);
    BOOST_TEST(values[1] == 11u);
}

BOOST_FIXTURE_TEST_CASE(a_large_reply_arrives_whole, fixture)
{
    constexpr std::uint32_t size = (1 << 20) + 3;
    fake_server server({[&](peer& p) {
        const bytes call = p.record();
        bytes reply = words({word(call, 0), 1, 0, 0, 0, 0, size});
        for (std::uint32_t i = 0; i < xdr::padded(size); ++i)
            reply.push_back(std::byte(i * 31 >> 3));
        p.fragment(reply, true);
        p.answer(p.record(), 5);
    }});
    auto client = this->client(server);
    auto main = [&]() -> task<bool> {
        bool same = false;
        rpc::request r = ask(6);
        r.max_result = size;
        auto reply = co_await client->call(r);
        if (reply) {
            auto ref = reply->results().payload(size);
            auto data = reply->take(ref);
            same = data && data->size() == size;
            for (std::uint32_t i = 0; same && i < size; ++i)
                same = data->pieces()[0][i] == std::byte(i * 31 >> 3);
        }
        rpc::request next = ask(0);
        auto second = co_await client->call(next);
        co_await client->close();
        co_return same&& second && second->results().u32() == 5;
    };
    BOOST_TEST(run_until_complete(*shard, main()));
}

BOOST_FIXTURE_TEST_CASE(a_large_call_to_a_slow_reader, fixture)
{
    constexpr std::uint32_t size = 8 << 20;
    bytes seen;
    std::atomic<bool> connected = false;
    std::atomic<bool> read = false;
    fake_server server({[&](peer& p) {
                           connected = true;
                           read.wait(false);
                           seen = p.record();
                           p.answer(seen, 1);
                       }},
                       small_window);
    auto client = this->client(server);
    bool answered = false;
    auto call = [&]() -> task<void> {
        rpc::request r = ask(7);
        r.message().note_payload(size);
        lease data = buffers->try_acquire(size);
        for (std::uint32_t i = 0; i < size; ++i)
            data.data()[i] = std::byte(i >> 7);
        const auto view = std::span<const std::byte>(data.data(), size);
        r.attach(rpc::payload(std::move(data), view));
        auto reply = co_await client->call(r);
        answered = bool(reply);
    };
    auto main = [&]() -> task<void> {
        scope s(*shard);
        s.spawn(call);
        co_await until([&] { return connected.load(); });
        co_await turns(); // what the connection takes is on its way
        read = true;
        read.notify_all();
        co_await s.join();
        co_await client->close();
    };
    run_until_complete(*shard, main());
    BOOST_TEST(answered);
    BOOST_REQUIRE(seen.size() == 44u + size);
    bool same = true;
    for (std::uint32_t i = 0; i < size; ++i)
        same = same && seen[44 + i] == std::byte(i >> 7);
    BOOST_TEST(same);
}

BOOST_FIXTURE_TEST_CASE(a_call_given_up_half_sent_does_not_break_the_stream, fixture)
{
    constexpr std::uint32_t size = 8 << 20;
    std::vector<bytes> seen;
    std::atomic<bool> begun = false;
    std::atomic<bool> given_up = false;
    fake_server server({[&](peer& p) {
                           begun = p.hears();
                           given_up.wait(false);
                           seen = {p.record(), p.record()};
                           p.answer(seen[0], 1);
                           p.answer(seen[1], 2);
                       }},
                       small_window);
    auto client = this->client(server);
    error first;
    auto abandoned = [&]() -> task<void> {
        rpc::request r = ask(7);
        r.message().note_payload(size);
        lease data = buffers->try_acquire(size);
        std::memset(data.data(), 0x5a, size);
        const auto view = std::span<const std::byte>(data.data(), size);
        r.attach(rpc::payload(std::move(data), view));
        auto reply = co_await client->call(r);
        if (!reply)
            first = reply.error();
    };
    auto main = [&]() -> task<std::uint32_t> {
        scope s(*shard);
        s.spawn(abandoned);
        co_await until([&] { return begun.load(); });
        s.request_stop();
        co_await s.join();
        given_up = true;
        given_up.notify_all();
        rpc::request r = ask(0);
        auto reply = co_await client->call(r);
        const std::uint32_t value = reply ? reply->results().u32() : 0;
        co_await client->close();
        co_return value;
    };
    BOOST_TEST(run_until_complete(*shard, main()) == 2u);
    BOOST_TEST((first == std::errc::operation_canceled));
    BOOST_REQUIRE(seen.size() == 2u);
    BOOST_TEST(seen[0].size() == 44u + size);
    BOOST_TEST((seen[0].back() == std::byte(0x5a)));
    BOOST_TEST(word(seen[1], 5) == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_soft_client_gives_up_and_a_rejection_is_an_error, fixture)
{
    std::atomic<int> calls = 0; // of the server's threads
    auto silent = [&](peer& p) {
        while (!p.record().empty())
            ++calls;
    };
    fake_server server({silent, silent, [&](peer& p) {
                            const bytes call = p.record();
                            p.fragment(words({word(call, 0), 1, 0, 0, 0, 2, 2, 4}), true); // PROG_MISMATCH
                        }});
    rpc::client_options options = patient();
    options.hard = false;
    options.timeout = 1s;
    options.retries = 1;
    clock.creeps = false;
    auto client = this->client(server, options);
    std::optional<error> outcome;
    auto call = [&]() -> task<void> {
        rpc::request r = ask(1);
        auto reply = co_await client->call(r);
        BOOST_TEST(!reply);
        outcome = reply ? error() : reply.error();
    };
    auto main = [&]() -> task<void> {
        scope s(*shard);
        s.spawn(call);
        for (const int sent : {1, 2}) {
            co_await until([&] { return calls == sent; });
            clock.advance(options.timeout - 1ns);
            co_await turns();
            BOOST_TEST(calls == sent);
            BOOST_TEST(!outcome);
            clock.advance(1ns);
        }
        co_await s.join();
        BOOST_TEST((outcome == std::errc::timed_out));
        co_await client->close();
    };
    run_until_complete(*shard, main());
    BOOST_TEST(calls == 2);
    auto second = this->client(server);
    auto rejected = [&]() -> task<void> {
        rpc::request r = ask(1);
        auto reply = co_await second->call(r);
        BOOST_TEST((!reply && reply.error().code() == make_error_code(rpc::accept_status::program_mismatch)));
        co_await second->close();
    };
    run_until_complete(*shard, rejected());
}

// A server that ends each connection as soon as it has the call: no connection lives long enough to be silent.
BOOST_FIXTURE_TEST_CASE(a_soft_call_fails_however_often_the_connection_is_made_anew, fixture)
{
    constexpr int most = 10;
    std::atomic<int> calls = 0;
    const auto end_it = [&](peer& p) { calls += !p.record().empty(); };
    fake_server server(std::vector<std::function<void(peer&)>>(most, end_it));
    rpc::client_options options = patient();
    options.hard = false;
    options.retries = 2;
    options.reconnect_delay = 5ms;
    options.reconnect_delay_max = 10ms;
    clock.creeps = false;
    auto client = this->client(server, options);
    bool over = false;
    auto call = [&]() -> task<void> {
        rpc::request r = ask(1);
        auto reply = co_await client->call(r);
        BOOST_TEST(!reply);
        over = true;
    };
    auto main = [&]() -> task<void> {
        scope s(*shard);
        const time_point ends = clock.now() + options.timeout * (options.retries + 1);
        s.spawn(call);
        for (int i = 1; i < most; ++i) { // more often than time-outs alone would ask
            co_await until([&] { return calls == i; });
            const duration waited = co_await next_attempt();
            BOOST_TEST((waited == (i == 1 ? 5ms : 10ms)));
        }
        co_await until([&] { return calls == most; });
        clock.advance(ends - clock.now() - 1ns);
        co_await turns();
        BOOST_TEST(!over);
        clock.advance(1ns);
        co_await s.join();
        co_await client->close();
    };
    run_until_complete(*shard, main());
}

BOOST_FIXTURE_TEST_CASE(a_peer_that_hangs_up_without_any_reply_is_no_server, fixture)
{
    std::atomic<int> calls = 0;
    const auto hang_up = [&](peer& p) { calls += !p.record().empty(); };
    rpc::client_options options = patient();
    options.connections_without_reply = 3;
    options.without_reply_for = 0ms;
    // It stands while there is a connection: one that lasts for a second, as by a server whose thread has no processor, is another case.
    clock.creeps = false;
    {
        fake_server server({hang_up, hang_up, hang_up});
        auto client = this->client(server, options);
        auto call = [&]() -> task<void> {
            rpc::request r = ask(0);
            const auto reply = co_await client->call(r);
            BOOST_TEST((!reply && reply.error() == std::errc::connection_reset));
            BOOST_TEST(client->connections() == 3u);
            BOOST_TEST(!client->answered());
        };
        auto main = [&]() -> task<void> {
            scope s(*shard);
            s.spawn(call);
            for (int i = 1; i < 3; ++i) {
                co_await until([&] { return calls == i; });
                (void)co_await next_attempt();
            }
            co_await s.join();
            co_await client->close();
        };
        run_until_complete(*shard, main());
    }
    BOOST_TEST(calls == 3);
}

BOOST_FIXTURE_TEST_CASE(a_server_that_has_replied_once_is_waited_for, fixture)
{
    const auto hang_up = [](peer& p) { p.record(); };
    const auto answer = [](peer& p) { p.answer(p.record(), 5); };
    rpc::client_options options = patient();
    options.connections_without_reply = 3;
    options.without_reply_for = 0ms;
    fake_server server({hang_up, hang_up, answer, hang_up, hang_up, hang_up, hang_up, answer});
    auto client = this->client(server, options);
    auto main = [&]() -> task<void> {
        for (const std::uint64_t connections : {3, 8}) {
            rpc::request r = ask(0);
            const auto reply = co_await client->call(r);
            BOOST_TEST(bool(reply));
            BOOST_TEST(client->answered());
            BOOST_TEST(client->connections() == connections);
        }
        co_await client->close();
    };
    run_until_complete(*shard, main());
}

BOOST_FIXTURE_TEST_CASE(a_server_that_is_full_for_a_while_is_waited_for, fixture)
{
    const auto hang_up = [](peer& p) { p.record(); };
    const auto answer = [](peer& p) { p.answer(p.record(), 5); };
    rpc::client_options options = patient();
    options.connections_without_reply = 3;
    options.without_reply_for = 1min;
    fake_server server({hang_up, hang_up, hang_up, hang_up, hang_up, answer});
    BOOST_TEST(answers(*this->client(server, options)));
}

BOOST_FIXTURE_TEST_CASE(a_peer_must_hang_up_for_some_time_to_be_no_server, fixture)
{
    rpc::client_options options = patient();
    options.connections_without_reply = 3;
    options.without_reply_for = 300ms;
    options.reconnect_delay = 20ms;
    options.reconnect_delay_max = 1s;
    clock.creeps = false;
    fake_server server(std::vector<std::function<void(peer&)>>(5, [](peer& p) { p.record(); }));
    auto client = this->client(server, options);
    std::optional<error> outcome;
    auto main = [&]() -> task<void> {
        scope s(*shard);
        s.spawn([&] { return fails(*client, outcome); });
        for (const duration delay : {20ms, 40ms, 80ms, 160ms}) {
            const duration waited = co_await next_attempt();
            BOOST_TEST((waited == delay));
            BOOST_TEST(!outcome);
        }
        co_await s.join();
        BOOST_TEST((outcome == std::errc::connection_reset));
        BOOST_TEST(client->connections() == 5u);
        co_await client->close();
    };
    run_until_complete(*shard, main());
}

BOOST_FIXTURE_TEST_CASE(a_connection_that_does_not_end_at_once_begins_the_row_anew, fixture)
{
    // Each hangs up: at once, or when the test has moved the clock, or not by itself.
    std::atomic<int> came = 0;
    std::atomic<bool> go = false;
    const auto hang_up = [&](peer& p) { came += !p.record().empty(); };
    const auto late = [&](peer& p) {
        hang_up(p);
        go.wait(false);
    };
    const auto silent = [&](peer& p) {
        hang_up(p);
        while (!p.record().empty()) {
        }
    };
    const auto answer = [](peer& p) { p.answer(p.record(), 5); };
    rpc::client_options options = patient();
    options.connections_without_reply = 3;
    options.without_reply_for = 0ms;
    clock.creeps = false;
    struct way {
        std::function<void(peer&)> third;
        duration lasts;
        bool counts; // as one that ended at once
    };
    const way ways[] = {{late, 1s, false}, {late, 1s - 1ns, true}, {silent, options.timeout, false}};
    for (const way& w : ways) {
        came = 0;
        go = false;
        fake_server server(w.counts ? std::vector<std::function<void(peer&)>>{hang_up, hang_up, w.third}
                                    : std::vector<std::function<void(peer&)>>{hang_up, hang_up, w.third,
                                                                              hang_up, hang_up, answer});
        auto client = this->client(server, options);
        std::optional<error> outcome;
        auto main = [&]() -> task<void> {
            scope s(*shard);
            s.spawn([&] { return fails(*client, outcome); });
            (void)co_await next_attempt();
            (void)co_await next_attempt();
            co_await until([&] { return came == 3; });
            clock.advance(w.lasts);
            go = true;
            go.notify_all();
            // One that lasted is made again at once.
            for (int i = 0; i < 2 && !w.counts; ++i)
                (void)co_await next_attempt();
            co_await s.join();
            BOOST_TEST((w.counts ? outcome == std::errc::connection_reset : !outcome));
            co_await client->close();
        };
        run_until_complete(*shard, main());
    }
}

BOOST_FIXTURE_TEST_CASE(a_refused_connection_begins_the_row_anew, fixture)
{
    auto listener = net::open_listener(*net::endpoint::parse("127.0.0.1:0"));
    BOOST_REQUIRE(listener);
    const net::endpoint where = *net::endpoint::local(listener->get());
    const auto next = [&] {
        pollfd p{listener->get(), POLLIN, 0};
        ::poll(&p, 1, 10'000);
        return peer(net::unique_fd(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC)));
    };
    std::atomic<bool> down = false;
    std::atomic<bool> up = false;
    std::thread restarted([&] {
        next().record();
        {
            peer last = next();
            last.record();
            *listener = {};
        }
        down = true;
        up.wait(false);
        listener = net::open_listener(where);
        up = false;
        up.notify_all();
        next().record();
        peer answered = next();
        answered.answer(answered.record(), 5);
    });
    rpc::stream_client_options o;
    o.client = patient();
    o.client.connections_without_reply = 3;
    o.client.without_reply_for = 0ms;
    o.client.reconnect_delay = 1ms;
    o.client.reconnect_delay_max = 2ms;
    clock.creeps = false;
    auto client = rpc::make_stream_client(*shard, *buffers, where.to_string(), o);
    BOOST_REQUIRE(client);
    std::optional<error> outcome;
    auto main = [&]() -> task<void> {
        scope s(*shard);
        s.spawn([&] { return fails(**client, outcome); });
        (void)co_await next_attempt();
        co_await until([&] { return down.load(); });
        for (int i = 0; i < 20; ++i) // each is refused
            (void)co_await next_attempt();
        (void)co_await pause();
        up = true;
        up.notify_all();
        co_await until([&] { return !up; });
        for (int i = 0; i < 2; ++i)
            (void)co_await next_attempt();
        co_await s.join();
        BOOST_TEST(!outcome);
        BOOST_TEST((*client)->connections() == 4u);
        co_await (*client)->close();
    };
    run_until_complete(*shard, main());
    restarted.join();
}

BOOST_FIXTURE_TEST_CASE(the_watch_hears_of_a_silence_and_of_its_end_once_each, fixture)
{
    struct : rpc::client_watch {
        void on_silence(const error& cause) noexcept override { heard += cause.code() ? "gone " : "silent "; }
        void on_answer() noexcept override { heard += "answer "; }
        std::string heard;
    } watch;
    std::atomic<bool> came = false;
    std::atomic<bool> go_on = false;
    fake_server server({[&](peer& p) {
        const bytes first = p.record();
        came = true;
        go_on.wait(false);
        p.answer(first, 1);
        p.answer(p.record(), 2);
    }});
    rpc::client_options options = patient();
    options.watch = &watch;
    options.first_silence = 20ms;
    clock.creeps = false;
    auto client = this->client(server, options);
    auto call = [&]() -> task<void> {
        rpc::request r = ask(0);
        const auto reply = co_await client->call(r);
        BOOST_TEST(bool(reply));
    };
    auto main = [&]() -> task<void> {
        scope s(*shard);
        s.spawn(call);
        co_await until([&] { return came.load(); });
        clock.advance(options.first_silence - 1ns);
        co_await turns();
        BOOST_TEST(watch.heard == "");
        clock.advance(1ns);
        co_await turns();
        BOOST_TEST(watch.heard == "silent ");
        for (int i = 0; i < 50; ++i) { // it is told once
            clock.advance(options.first_silence);
            co_await turns();
        }
        go_on = true;
        go_on.notify_all();
        co_await s.join();
        BOOST_TEST(watch.heard == "silent answer ");
        co_await call();
        for (int i = 0; i < 3; ++i) { // nothing is outstanding
            clock.advance(options.timeout);
            co_await turns();
        }
        BOOST_TEST(watch.heard == "silent answer ");
        co_await client->close();
    };
    run_until_complete(*shard, main());
}

BOOST_FIXTURE_TEST_CASE(the_watch_hears_why_there_is_no_connection, fixture)
{
    struct : rpc::client_watch {
        void on_silence(const error& cause) noexcept override { why = cause; }
        void on_answer() noexcept override {}
        error why;
    } watch;
    rpc::client_options options = patient();
    options.watch = &watch;
    options.reconnect_delay = 1min;
    options.reconnect_delay_max = 2min;
    std::unique_ptr<rpc::client_transport> client;
    {
        fake_server server({[](peer& p) { p.answer(p.record(), 1); }});
        client = this->client(server, options);
        auto first = [&]() -> task<void> {
            rpc::request r = ask(0);
            const auto reply = co_await client->call(r);
            BOOST_TEST(bool(reply));
        };
        run_until_complete(*shard, first());
    }
    auto main = [&]() -> task<void> {
        scope s(*shard);
        auto one = [&]() -> task<void> {
            rpc::request r = ask(0);
            const auto reply = co_await client->call(r);
            BOOST_TEST(!reply);
        };
        // Once it is known that nobody listens.
        for (auto there = co_await client->connect(); there; there = co_await client->connect())
            co_await sleep_for(1ms);
        s.spawn(one);
        co_await turns();
        clock.advance(options.timeout);
        co_await until([&] { return bool(watch.why.code()); });
        BOOST_TEST((watch.why == std::errc::connection_refused));
        co_await client->close();
        co_await s.join();
    };
    run_until_complete(*shard, main());
}

BOOST_FIXTURE_TEST_CASE(close_ends_calls_and_a_refused_connect_is_an_error, fixture)
{
    std::unique_ptr<rpc::client_transport> client;
    {
        std::atomic<bool> came = false;
        fake_server server({[&](peer& p) {
            came = !p.record().empty();
            p.record();
        }});
        client = this->client(server);
        auto main = [&]() -> task<void> {
            scope s(*shard);
            error outcome;
            auto one = [&]() -> task<void> {
                rpc::request r = ask(1);
                auto reply = co_await client->call(r);
                if (!reply)
                    outcome = reply.error();
            };
            s.spawn(one);
            co_await until([&] { return came.load(); });
            co_await client->close();
            co_await s.join();
            BOOST_TEST((outcome == std::errc::operation_canceled));
        };
        run_until_complete(*shard, main());
        client = this->client(server);
    }
    auto main = [&]() -> task<void> {
        auto connected = co_await client->connect();
        BOOST_TEST((!connected && connected.error().errno_value() == ECONNREFUSED));
        co_await client->close();
    };
    run_until_complete(*shard, main());
}

BOOST_FIXTURE_TEST_CASE(what_is_no_reply_ends_the_connection, fixture)
{
    fake_server server({[](peer& p) {
                            p.record();
                            p.fragment(words({1}), true);
                        },
                        [](peer& p) {
                            p.record();
                            p.write(words({0xffffffff}));
                        },
                        [](peer& p) {
                            const bytes call = p.record();
                            p.answer(words({~word(call, 0)}), 1); // nobody's
                            p.answer(call, 9);
                        }});
    rpc::client_options options = patient();
    auto client = this->client(server, options);
    auto main = [&]() -> task<std::uint32_t> {
        rpc::request r = ask(1);
        auto reply = co_await client->call(r);
        const std::uint32_t value = reply ? reply->results().u32() : 0;
        BOOST_TEST(client->connections() == 3u);
        co_await client->close();
        co_return value;
    };
    BOOST_TEST(run_until_complete(*shard, main()) == 9u);
}

// At its mark: nothing is kept for what a server announces, be it in one fragment or in several.
BOOST_FIXTURE_TEST_CASE(a_reply_longer_than_any_ends_the_connection, fixture)
{
    constexpr auto most = static_cast<std::uint32_t>(rpc::max_stream_reply);
    std::array<bool, 2> ended{};
    fake_server server({[&](peer& p) {
                            p.record();
                            p.write(words({0x80000000 | (most + 1)}));
                            ended[0] = p.ends();
                        },
                        [&](peer& p) {
                            p.record();
                            p.fragment(words({1}), false);
                            p.write(words({0x80000000 | (most - 3)}));
                            ended[1] = p.ends();
                        },
                        [](peer& p) { p.answer(p.record(), 9); }});
    rpc::client_options options = patient();
    auto client = this->client(server, options);
    auto main = [&]() -> task<std::uint32_t> {
        rpc::request r = ask(1);
        auto reply = co_await client->call(r);
        const std::uint32_t value = reply ? reply->results().u32() : 0;
        co_await client->close();
        co_return value;
    };
    BOOST_TEST(run_until_complete(*shard, main()) == 9u);
    BOOST_TEST(ended[0]);
    BOOST_TEST(ended[1]);
}

// Also one that came whole with the first read.
BOOST_FIXTURE_TEST_CASE(who_says_so_takes_small_replies_alone, fixture)
{
    std::array<bool, 2> ended{};
    const auto long_one = [](bool& over, std::size_t size) {
        return [&over, size](peer& p) {
            p.record();
            p.fragment(bytes(size), true);
            over = p.ends();
        };
    };
    fake_server server(
        {long_one(ended[0], 1004), long_one(ended[1], 200'000), [](peer& p) { p.answer(p.record(), 9); }});
    rpc::stream_client_options options;
    options.client = patient();
    options.max_reply = 1000;
    auto client = std::move(*rpc::make_stream_client(*shard, *buffers, server.address(), options));
    auto main = [&]() -> task<std::uint32_t> {
        rpc::request r = ask(1);
        auto reply = co_await client->call(r);
        const std::uint32_t value = reply ? reply->results().u32() : 0;
        co_await client->close();
        co_return value;
    };
    BOOST_TEST(run_until_complete(*shard, main()) == 9u);
    BOOST_TEST(ended[0]);
    BOOST_TEST(ended[1]);
}

BOOST_AUTO_TEST_SUITE_END()
