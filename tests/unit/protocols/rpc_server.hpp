// SPDX-License-Identifier: Apache-2.0
// A program and a stream server for tests, driven by hand-made bytes from a client socket.
#pragma once

#include "bytes.hpp"

#include <algorithm>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpcstream/stream_server.hpp>

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <thread>
#include <vector>

namespace verbena::test {

using bytes = std::vector<std::byte>;

/// Program 0x20000001 at versions 2 and 3 whose procedures misbehave on request.
class test_program final : public rpc::program {
public:
    std::uint32_t number() const noexcept override { return 0x20000001; }
    std::uint32_t low_version() const noexcept override { return 2; }
    std::uint32_t high_version() const noexcept override { return 3; }
    std::string_view name() const noexcept override { return "test"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t procedure) const noexcept override
    {
        static constexpr std::string_view names[] = {"NULL", "ECHO", "WAIT", "WRITE", "READ", "COUNT"};
        return procedure < std::size(names) ? names[procedure] : std::string_view();
    }
    bool non_idempotent(std::uint32_t, std::uint32_t procedure) const noexcept override
    {
        return procedure == 5 || procedure == 17 || procedure == 18;
    }
    bool repeats_in_turn(std::uint32_t, std::uint32_t procedure) const noexcept override
    {
        return procedure == 13;
    }

    bool admits(const rpc::peer& from) override
    {
        if (from.address == throws_for)
            throw std::runtime_error("admits");
        return from.address != not_admitted;
    }

    task<rpc::outcome> serve(rpc::call& c) override
    {
        ++served;
        switch (c.header().procedure) {
        case 0: break;
        case 1: { // returns its opaque<>
            const auto text = c.args().opaque_var(4096);
            if (!c.args().ok())
                co_return rpc::outcome::garbage_args;
            if (!co_await c.reserve_results(text.size() + 8))
                co_return rpc::outcome::system_error;
            c.results().opaque_var(text);
            break;
        }
        case 2: // returns when the test says so
            if (!co_await go.wait())
                ++stopped;
            break;
        case 18:  // the same, and a repeat would do harm
        case 3: { // takes a payload, returns its length and what it was made of
            const auto ref = c.args().payload(1 << 20);
            if (!c.args().ok())
                co_return rpc::outcome::garbage_args;
            auto data = co_await c.pull(ref);
            if (!data)
                co_return rpc::outcome::drop;
            written.clear();
            for (const auto piece : data->pieces())
                written.insert(written.end(), piece.begin(), piece.end());
            c.results().u32(static_cast<std::uint32_t>(data->size()));
            c.results().u32(static_cast<std::uint32_t>(data->pieces().size()));
            break;
        }
        case 4: { // returns a payload of the length asked for
            const std::uint32_t length = c.args().u32();
            lease block = c.buffers().try_acquire(length);
            if (!block)
                co_return rpc::outcome::system_error;
            std::memset(block.data(), 'r', length);
            c.results().note_payload(length);
            const std::span<const std::byte> view(block.data(), length);
            c.attach(rpc::payload(std::move(block), view));
            break;
        }
        case 5: // counts
            ++count;
            if (throw_in_count)
                throw std::runtime_error("boom");
            if (wait_in_count && !co_await go.wait())
                ++stopped;
            c.results().u32(static_cast<std::uint32_t>(count));
            break;
        case 6: co_return rpc::outcome::system_error;
        case 7: co_return rpc::outcome::auth_too_weak;
        case 8: co_return rpc::outcome::drop;
        case 9: // more than results() holds
            for (int i = 0; i < 1000; ++i)
                c.results().u32(1);
            break;
        case 10: { // returns a payload out of `range`, or out of `file` from its start
            const std::uint32_t length = c.args().u32();
            if (c.sends_in_place() != rpc::sent_in_place::memory_or_file)
                co_return rpc::outcome::system_error;
            c.results().note_payload(length);
            c.attach(range.empty() ? file_range(file, fileno(file.get()), 0, length) : range);
            break;
        }
        case 11: // throws, with results written and a payload attached
            c.results().u32(1);
            c.results().note_payload(4);
            c.attach(rpc::payload(c.buffers().try_acquire(4), {}));
            throw std::runtime_error("boom");
        case 12: // throws later, and no exception of the library's
            (void)co_await go.wait();
            throw 7;
        case 13: // counts those that run and have run
            ++running;
            most_running = std::max(most_running, running);
            if (wait_in_count && !co_await go.wait())
                ++stopped;
            --running;
            ++count;
            c.results().u32(static_cast<std::uint32_t>(count));
            break;
        case 14: // returns what is stored, from where it is
            c.results().note_payload(static_cast<std::uint32_t>(stored->size()));
            c.attach(rpc::payload(stored, *stored));
            break;
        case 15: // takes payloads, each with a word behind it, and returns and keeps them
            while (c.args().unread() != 0) {
                const std::size_t from = c.args().position();
                const auto ref = c.args().payload(1 << 20);
                const std::uint32_t word = c.args().u32();
                if (!c.args().ok()) {
                    bool joins = c.args().failure() == std::errc::no_buffer_space;
                    if (joins) {
                        const auto in_one_piece = co_await c.join_arguments(from);
                        joins = in_one_piece.has_value();
                    }
                    if (!joins)
                        co_return rpc::outcome::garbage_args;
                    ++joined;
                    continue;
                }
                auto data = co_await c.pull(ref);
                auto again = co_await c.pull(ref);
                const bool room = co_await c.reserve_results(8);
                if (!data || !again || !room)
                    co_return rpc::outcome::drop;
                kept.push_back(std::move(*again));
                c.results().note_payload(ref.length);
                c.results().u32(word);
                c.attach(std::move(*data));
            }
            break;
        case 16: { // asks for more room where there is none, with what is stored attached if there is something
            if (stored) {
                c.results().note_payload(static_cast<std::uint32_t>(stored->size()));
                c.attach(rpc::payload(stored, *stored));
            }
            std::vector<lease> all;
            for (const std::size_t size : {std::size_t(1) << 20, std::size_t(1) << 17})
                while (lease one = c.buffers().try_acquire(size))
                    all.push_back(std::move(one));
            const bool given = co_await c.reserve_results(100'000);
            (given ? rooms_given : rooms_refused)++;
            co_return rpc::outcome::drop;
        }
        case 17: { // counts when the test says so, if somebody still waits for that
            const bool came = co_await c.while_awaited(until_go());
            if (!came) {
                ++stopped;
                c.refuse();
                co_return rpc::outcome::system_error;
            }
            c.results().u32(static_cast<std::uint32_t>(++count));
            break;
        }
        case 19: // returns an opaque<> behind a payload, read twice
            if (!co_await read_twice(c))
                co_return rpc::outcome::garbage_args;
            break;
        default: co_return rpc::outcome::proc_unavail;
        }
        co_return rpc::outcome::success;
    }
    task<bool> read_twice(rpc::call& c)
    {
        const xdr::decoder entire = c.args();
        for (int i = 0; i < 2; ++i) {
            c.args() = entire;
            (void)c.args().payload(1 << 20);
            const std::size_t from = c.args().position();
            std::span<const std::byte> text = c.args().opaque_var(60'000);
            while (!c.args().ok()) {
                const auto in_one_piece = co_await c.join_arguments(from);
                if (!in_one_piece)
                    co_return false;
                ++joined;
                text = c.args().opaque_var(60'000);
            }
            if (!co_await c.reserve_results(text.size() + 8))
                co_return false;
            c.results().opaque_var(text);
        }
        co_return true;
    }
    task<bool> until_go()
    {
        const bool came = co_await go.wait();
        co_return came;
    }

    int rooms_given = 0;
    int rooms_refused = 0;
    std::shared_ptr<const bytes> stored;
    std::vector<rpc::payload> kept;
    int joined = 0;

    std::shared_ptr<std::FILE> file;
    file_range range;

    std::string not_admitted; ///< an address
    std::string throws_for;

    event go;
    int served = 0;
    int count = 0;
    int running = 0;
    int most_running = 0;
    int stopped = 0;
    bool wait_in_count = false;
    bool throw_in_count = false;
    bytes written;
};

/// A server on one shard and, in the same thread, the client ends of its streams.
class served_streams {
public:
    explicit served_streams(const rpc::stream_options& options = {}, clock_source* clock = nullptr,
                            std::size_t memory = std::size_t(256) << 20)
        : budget(memory),
          shard(make(clock)),
          pool(budget, shard.get()),
          calls(*shard),
          server(std::make_unique<rpc::stream_server>(*shard, pool, calls, options))
    {
        calls.add(program);
    }
    ~served_streams()
    {
        program.go.set();
        run_until_complete(*shard, server->shut_down(shard->clock().now()));
        server.reset();
        BOOST_TEST(shard->stats().illegal_transitions.load() == 0u);
    }

    net::unique_fd connect(std::string_view from = "192.0.2.1:1023")
    {
        int ends[2];
        BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
        server->adopt(net::unique_fd(ends[0]), *net::endpoint::parse(from));
        return net::unique_fd(ends[1]);
    }
    void turns(int n = 20)
    {
        for (int i = 0; i < n; ++i)
            shard->turn();
    }
    /// Sends all of it, turning the shard as the socket fills up.
    void send(const net::unique_fd& to, std::span<const std::byte> data)
    {
        for (int i = 0; !data.empty() && i < 100'000; ++i) {
            const ssize_t n = ::send(to.get(), data.data(), data.size(), MSG_NOSIGNAL);
            if (n > 0)
                data = data.subspan(static_cast<std::size_t>(n));
            shard->turn();
        }
        BOOST_REQUIRE(data.empty());
    }
    /// What arrives until `size` bytes are there, the stream ends, or nothing comes any more.
    bytes receive(const net::unique_fd& from, std::size_t size = ~std::size_t(0))
    {
        bytes all;
        closed = false;
        for (int quiet = 0; quiet < 50 && all.size() < size; ++quiet) {
            shard->turn();
            std::byte part[65536];
            const ssize_t n = ::recv(from.get(), part, std::min(sizeof part, size - all.size()), 0);
            if (n > 0) {
                all.insert(all.end(), part, part + n);
                quiet = 0;
            } else if (n == 0 || errno != EAGAIN) {
                closed = true;
                break;
            }
        }
        return all;
    }
    std::uint64_t ended(rpc::stream_end cause) const
    {
        return server->stats().ended[static_cast<std::size_t>(cause)].value();
    }

    memory_budget budget;
    std::unique_ptr<reactor> shard;
    buffer_pool pool;
    test_program program;
    rpc::service_dispatcher calls;
    std::unique_ptr<rpc::stream_server> server;
    bool closed = false; ///< the server closed the stream that receive() read

private:
    static std::unique_ptr<reactor> make(clock_source* clock)
    {
        reactor_options o;
        o.clock = clock;
        auto r = reactor::create(o);
        BOOST_REQUIRE_MESSAGE(r, (r ? std::string() : r.error().message()));
        return std::move(*r);
    }
};

inline void append(bytes& to, std::span<const std::byte> more)
{
    to.insert(to.end(), more.begin(), more.end());
}
inline void append_u32(bytes& to, std::uint32_t value)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        to.push_back(static_cast<std::byte>(value >> shift));
}
/// A record of one fragment.
inline bytes framed(std::span<const std::byte> message)
{
    bytes all;
    append_u32(all, 0x80000000u | static_cast<std::uint32_t>(message.size()));
    append(all, message);
    return all;
}
/// A call of the test program with AUTH_NONE.
inline bytes call_of(std::uint32_t xid, std::uint32_t procedure, std::span<const std::byte> arguments = {},
                     std::uint32_t version = 3)
{
    bytes all;
    for (const std::uint32_t word : {xid, 0u, 2u, 0x20000001u, version, procedure, 0u, 0u, 0u, 0u})
        append_u32(all, word);
    append(all, arguments);
    return all;
}
/// An opaque<> with its pad.
inline bytes opaque(std::size_t length, char fill = 'w')
{
    bytes all;
    append_u32(all, static_cast<std::uint32_t>(length));
    all.resize(4 + length, static_cast<std::byte>(fill));
    all.resize(4 + (length + 3) / 4 * 4);
    return all;
}

} // namespace verbena::test
