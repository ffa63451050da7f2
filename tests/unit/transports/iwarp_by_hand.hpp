// SPDX-License-Identifier: Apache-2.0
// A peer whose octets are made by hand, at the other end of a socket.
#pragma once

#include <boost/test/unit_test.hpp>

#include "../protocols/bytes.hpp"

#include <verbena/core/task/scope.hpp>
#include <verbena/transports/iwarp.hpp>

#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace verbena::iwarp_by_hand {

using namespace std::chrono_literals;
using iwarp::end_cause;
using test::from_hex;
using test::to_hex;
using bytes = std::vector<std::byte>;

inline const std::span<const std::byte> nothing;

constexpr std::string_view request = "4d504120 49442052 65712046 72616d65";
inline const bytes good_start = from_hex(std::string(request) + "10020004 00010001");

struct nobody final : verbs::completion_handler {
    void on_completions(std::span<const verbs::completion> batch) noexcept override
    {
        seen.insert(seen.end(), batch.begin(), batch.end());
        if (ended)
            late += batch.size();
        if (then)
            then();
    }
    void on_disconnected(const error&) noexcept override { ended = true; }
    bool ended = false;
    std::vector<verbs::completion> seen;
    std::size_t late = 0; // behind the end, where none may be
    std::function<void()> then;
};

inline bytes operator+(bytes a, const bytes& b)
{
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// RFC 5044 4.1; `length` of the ULPDU may lie.
inline bytes fpdu(std::string_view hex, std::size_t payload = 0, std::optional<std::size_t> length = {})
{
    bytes ulpdu = from_hex(hex);
    ulpdu.resize(ulpdu.size() + payload);
    const std::size_t size = length.value_or(ulpdu.size());
    bytes all = bytes{std::byte(size >> 8), std::byte(size & 0xff)} + ulpdu;
    all.resize((all.size() + 3) / 4 * 4 + 4);
    return all;
}

// RFC 5044 4.4, bit by bit.
inline bytes with_crc(bytes fpdu)
{
    std::uint32_t crc = ~0u;
    for (std::size_t i = 0; i < fpdu.size() - 4; ++i) {
        crc ^= std::to_integer<std::uint32_t>(fpdu[i]);
        for (int bit = 0; bit < 8; ++bit)
            crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
    }
    for (unsigned i = 0; i < 4; ++i)
        fpdu[fpdu.size() - 4 + i] = std::byte(~crc >> (8 * i));
    return fpdu;
}

/// An RDMA Write of nothing: the initiator's first FPDU, for which the other end waits.
inline const bytes ready = fpdu("c140 00000000 00000000 00000000");

// Accepts every peer with one receive of 100 bytes, IRD 1, and one RDMA Read of its own of 100 bytes.
struct fixture {
    fixture()
    {
        reactor_options r;
        r.clock = &clock;
        auto made = reactor::create(r);
        BOOST_REQUIRE(made);
        shard = std::move(*made);
        options.close_timeout = 10ms;
    }
    void start(bool accepts = true)
    {
        if (apart)
            device = iwarp::make_device();
        provider = apart ? device->make_context(*shard, options) : iwarp::make_context(*shard, options);
        domain = std::move(*provider->make_domain());
        listener = std::move(*provider->listen_adopted("iwarp://test"));
        tasks.emplace(*shard);
        if (accepts)
            tasks->spawn([&] { return serve(); });
    }
    ~fixture()
    {
        queue_pair.reset();
        stop_listening();
        for (const int fd : peers)
            ::close(fd);
    }
    void stop_listening()
    {
        if (!listener)
            return;
        listener->close();
        tasks->request_stop();
        until([&] { return tasks->live() == 0; });
        listener.reset();
    }
    task<void> serve()
    {
        for (;;) {
            auto next = co_await listener->next();
            if (!next)
                co_return;
            if (rejects) {
                const result<void> said = co_await (*next)->reject(nothing);
                BOOST_TEST(said.has_value());
                continue;
            }
            verbs::queue_pair_options with;
            with.shared_receives = shared.get();
            auto made = co_await (*next)->make_queue_pair(*domain, with);
            BOOST_REQUIRE(made);
            queue_pair = std::move(*made);
            handler.ended = false;
            queue_pair->set_handler(&handler);
            const verbs::receive_request receive{1, {memory.data(), 100, 0}};
            if (!shared)
                BOOST_REQUIRE(queue_pair->post_receive({&receive, 1}));
            verbs::connect_options o;
            o.responder_resources = 1;
            const result<void> accepted = co_await (*next)->accept(o);
            if (!accepted || !reads)
                continue;
            const verbs::segment sink{memory.data(), 100, 0};
            verbs::send_request read;
            read.opcode = verbs::opcode::rdma_read;
            read.segments = {&sink, 1};
            BOOST_REQUIRE(queue_pair->post_send({&read, 1}));
        }
    }
    int connect()
    {
        int ends[2];
        BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
        peers.push_back(ends[1]);
        if (send_buffer != 0)
            BOOST_REQUIRE(::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer) ==
                          0);
        provider->adopt(ends[0], *listener);
        return ends[1];
    }
    void until(const std::function<bool()>& done,
               std::source_location where = std::source_location::current())
    {
        for (const time_point limit = system_clock().now() + 30s; !done();) {
            BOOST_REQUIRE_MESSAGE(system_clock().now() < limit, "nothing came at line " << where.line());
            clock.advance(10us);
            shard->turn();
        }
    }
    std::uint64_t ends(end_cause c) const { return provider->counters().ends[std::size_t(c)].load(); }
    std::uint64_t all_ends() const
    {
        std::uint64_t sum = 0;
        for (const auto& n : provider->counters().ends)
            sum += n.load();
        return sum;
    }
    /// Writes what the other end reads before this returns.
    void arrives(int peer, const bytes& b)
    {
        const auto before = provider->counters().bytes_received.load();
        write(peer, b);
        until([&] { return provider->counters().bytes_received == before + b.size(); });
    }
    static void write(int peer, const bytes& b)
    {
        BOOST_REQUIRE(::write(peer, b.data(), b.size()) == static_cast<ssize_t>(b.size()));
    }
    bytes read(int peer, std::size_t size)
    {
        bytes got;
        until([&] {
            std::byte b[256];
            const ssize_t n = ::recv(peer, b, std::min(sizeof b, size - got.size()), MSG_DONTWAIT);
            if (n > 0)
                got.insert(got.end(), b, b + n);
            return got.size() == size || n == 0 || (n < 0 && errno == ECONNRESET);
        });
        return got;
    }
    /// What start-up does with `hello`.
    void start_up(const bytes& hello, end_cause expected, bool finishes = false)
    {
        BOOST_TEST_CONTEXT(to_hex(hello) << ", " << iwarp::to_string(expected))
        {
            const auto before = ends(expected);
            const auto all_before = all_ends();
            const int peer = connect();
            write(peer, hello);
            if (finishes)
                ::shutdown(peer, SHUT_WR);
            until([&] { return ends(expected) == before + 1; });
            for (int i = 0; i < 5; ++i)
                shard->turn();
            BOOST_TEST(all_ends() == all_before + 1); // one end has one cause
        }
    }
    /// Sends `attack` on a new connection; `code` is layer, type and code of the Terminate.
    void refused(const bytes& attack, end_cause expected, std::string_view code)
    {
        BOOST_TEST_CONTEXT(to_hex(attack).substr(0, 60) << ", " << iwarp::to_string(expected))
        {
            const auto before = ends(expected);
            const auto all_before = all_ends();
            const int peer = connect();
            write(peer, good_start);
            BOOST_TEST(read(peer, 24).size() == 24u);
            if (reads) {
                write(peer, ready);
                const bytes question = read(peer, 52);
                sink = to_hex(std::span(question).subspan(20, 12));
                write(peer, on_read(sink));
            }
            write(peer, attack);
            const bytes head = read(peer, 24);
            BOOST_REQUIRE(head.size() == 24u);
            BOOST_TEST(to_hex(std::span(head).subspan(2, 2)) == "4147"); // Terminate
            BOOST_TEST(to_hex(std::span(head).subspan(20, 2)) == to_hex(code));
            ::shutdown(peer, SHUT_WR);
            until([&] { return ends(expected) == before + 1 && handler.ended; });
            BOOST_TEST(all_ends() == all_before + 1);
        }
    }

    virtual_clock clock;
    iwarp::options options;
    std::unique_ptr<reactor> shard;
    std::unique_ptr<iwarp::device> device; // if it is `apart` from its context
    std::unique_ptr<iwarp::context> provider;
    std::unique_ptr<verbs::protection_domain> domain;
    std::unique_ptr<verbs::listener> listener;
    std::unique_ptr<verbs::shared_receive_queue> shared; // nullptr: each connection has one of its own
    std::unique_ptr<verbs::queue_pair> queue_pair;
    std::optional<scope> tasks;
    nobody handler;
    std::vector<std::byte> memory = bytes(100);
    std::vector<int> peers;
    bool apart = false;
    bool rejects = false;
    bool reads = false;
    int send_buffer = 0; // of this end; 0: as the system has it
    std::string sink;    // tag and offset of our Read
    std::function<bytes(const std::string&)> on_read;
};

inline std::string hex(std::uint64_t value, int digits)
{
    char text[17];
    std::snprintf(text, sizeof text, "%0*llx", digits, static_cast<unsigned long long>(value));
    return text;
}

// Pages that can be given back to the system.
struct pages {
    explicit pages(std::size_t n) : size(n)
    {
        void* const p = ::mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        BOOST_REQUIRE(p != MAP_FAILED);
        start = static_cast<std::byte*>(p);
    }
    ~pages() { unmap(); }
    void unmap()
    {
        if (start != nullptr)
            ::munmap(start, size);
        start = nullptr;
    }
    std::span<std::byte> all() const { return {start, size}; }
    std::byte* start = nullptr;
    std::size_t size;
};

struct with_grants : fixture {
    int connected()
    {
        const int peer = connect();
        write(peer, good_start);
        BOOST_TEST(read(peer, 24).size() == 24u);
        return peer;
    }
    verbs::grant granted(std::span<std::byte> memory, verbs::access rights)
    {
        verbs::grant made;
        const auto make = [](with_grants& f, std::span<std::byte> m, verbs::access r,
                             verbs::grant& to) -> task<void> {
            auto g = co_await f.domain->make_grant(m, r, f.queue_pair.get());
            BOOST_REQUIRE(g);
            to = std::move(*g);
        };
        tasks->spawn([&] { return make(*this, memory, rights, made); });
        until([&] { return bool(made); });
        return made;
    }
    static std::string at(const verbs::grant& g)
    {
        return hex(g.where().key, 8) + hex(g.where().address, 16);
    }
};

// An RDMA Read Request for all of `g`.
inline bytes read_request(const verbs::grant& g)
{
    return fpdu("4141 00000000 00000001 00000001 00000000 00000007" + hex(0, 16) + hex(g.where().length, 8) +
                with_grants::at(g));
}

} // namespace verbena::iwarp_by_hand
