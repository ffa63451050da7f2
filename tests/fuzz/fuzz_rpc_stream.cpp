// SPDX-License-Identifier: Apache-2.0
// A whole connection: what a peer sends to a stream server, whose dispatcher and duplicate-request cache
// are the real ones. Input: a byte that tells into what steps the rest is cut, then the stream.
//
// Whatever comes, what goes back is a sequence of whole replies, and when the peer is gone no call,
// connection or buffer is left.

#include "fuzz.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/protocols/rpc/dispatcher.hpp>
#include <verbena/protocols/rpc/duplicate_request_cache.hpp>
#include <verbena/protocols/rpcstream/record_marking.hpp>
#include <verbena/protocols/rpcstream/stream_server.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/socket.h>
#include <vector>

using namespace verbena;

namespace {

void check(bool condition, const char* what)
{
    if (!condition) {
        std::fprintf(stderr, "broken: %s\n", what);
        std::abort();
    }
}

/// Program 1, version 1: NULL, ECHO, WRITE (a payload in), READ (a payload out), COUNT (remembered) and SEVERAL (payloads in, each with
/// a text behind it, and the same out).
class program final : public rpc::program {
public:
    std::uint32_t number() const noexcept override { return 1; }
    std::uint32_t low_version() const noexcept override { return 1; }
    std::uint32_t high_version() const noexcept override { return 1; }
    std::string_view name() const noexcept override { return "fuzz"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t p) const noexcept override
    {
        return p < 6 ? "known" : "";
    }
    bool non_idempotent(std::uint32_t, std::uint32_t p) const noexcept override { return p == 4; }
    task<rpc::outcome> serve(rpc::call& c) override
    {
        switch (c.header().procedure) {
        case 0: break;
        case 1: {
            const auto text = c.args().opaque_var(65536);
            if (!c.args().ok())
                co_return rpc::outcome::garbage_args;
            if (!co_await c.reserve_results(text.size() + 8))
                co_return rpc::outcome::system_error;
            c.results().opaque_var(text);
            break;
        }
        case 2: {
            const auto ref = c.args().payload(1 << 20);
            if (!c.args().ok())
                co_return rpc::outcome::garbage_args;
            auto data = co_await c.pull(ref);
            check(bool(data), "pull failed on a stream");
            check(data->size() == ref.length, "a payload of another length than its argument");
            std::uint32_t sum = 0;
            for (const auto piece : data->pieces()) {
                for (const std::byte b : piece)
                    sum += std::to_integer<std::uint32_t>(b);
            }
            c.results().u32(sum);
            break;
        }
        case 3: {
            const std::uint32_t length = c.args().u32() & 0x1ffff;
            lease block = c.buffers().try_acquire(length);
            if (!c.args().ok() || !block)
                co_return rpc::outcome::system_error;
            std::memset(block.data(), 'r', length);
            c.results().note_payload(length);
            const std::span<const std::byte> view(block.data(), length);
            c.attach(rpc::payload(std::move(block), view));
            break;
        }
        case 4: c.results().u32(++count_); break;
        case 5: {
            for (bool joined = false; c.args().ok() && c.args().unread() != 0;) {
                const std::size_t from = c.args().position();
                const auto ref = c.args().payload(1 << 20);
                const auto text = c.args().opaque_var(65536);
                if (!c.args().ok() && c.args().failure() == std::errc::no_buffer_space) {
                    const auto made = co_await c.join_arguments(from);
                    check(bool(made) || joined, "arguments that can't be put in one piece");
                    joined = true;
                    if (!made)
                        co_return rpc::outcome::garbage_args;
                    continue;
                }
                if (!c.args().ok())
                    co_return rpc::outcome::garbage_args;
                if (c.results().payloads().size() == xdr::encoder::max_payloads)
                    co_return rpc::outcome::system_error;
                auto data = co_await c.pull(ref);
                check(bool(data) && data->size() == ref.length,
                      "a payload of another length than its argument");
                if (!co_await c.reserve_results(text.size() + 12))
                    co_return rpc::outcome::system_error;
                c.results().note_payload(ref.length);
                c.results().opaque_var(text);
                c.attach(std::move(*data));
            }
            if (!c.args().ok())
                co_return rpc::outcome::garbage_args;
            break;
        }
        default: co_return rpc::outcome::proc_unavail;
        }
        co_return rpc::outcome::success;
    }

private:
    std::uint32_t count_ = 0;
};

struct world {
    static std::unique_ptr<reactor> make(virtual_clock& clock)
    {
        reactor_options options;
        options.clock = &clock;
        auto r = reactor::create(options);
        check(bool(r), "io_uring is needed");
        return std::move(*r);
    }
    world() { calls.add(served); }

    virtual_clock clock;
    std::unique_ptr<reactor> shard = make(clock);
    memory_budget budget{std::size_t(64) << 20};
    buffer_pool pool{budget, shard.get()};
    rpc::duplicate_request_cache duplicates{1};
    rpc::service_dispatcher calls{*shard, &duplicates};
    program served;
    rpc::stream_server server{*shard, pool, calls};
};

/// Takes whole replies off the front of what came back.
void check_replies(std::vector<std::byte>& back)
{
    std::span<const std::byte> rest(back);
    while (rest.size() >= rpc::fragment_header_size) {
        const auto mark = rpc::decode_fragment_header(rest.first<rpc::fragment_header_size>());
        check(mark.last && mark.length >= 12 && mark.length % 4 == 0, "a reply with a bad record mark");
        if (rest.size() - rpc::fragment_header_size < mark.length)
            break;
        const auto message = rest.subspan(rpc::fragment_header_size, mark.length);
        xdr::decoder in(message);
        rpc::reply_header header;
        decode(in, header);
        check(in.ok(), "a reply that is none");
        rest = rest.subspan(rpc::fragment_header_size + mark.length);
    }
    back.erase(back.begin(), back.end() - static_cast<std::ptrdiff_t>(rest.size()));
}

} // namespace

VERBENA_FUZZ_TARGET(rpc_stream)
{
    static world w;
    if (size == 0)
        return 0;
    const std::size_t step = data[0] == 0 ? size : std::size_t(data[0]) * 7;
    auto stream = std::as_bytes(std::span(data + 1, size - 1));
    int ends[2];
    check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
    w.server.adopt(net::unique_fd(ends[0]), *net::endpoint::parse("192.0.2.1:1"));
    net::unique_fd peer(ends[1]);
    std::vector<std::byte> back;
    std::vector<std::byte> part(65536);
    const auto receive = [&] {
        for (ssize_t n; (n = ::recv(peer.get(), part.data(), part.size(), 0)) > 0;) {
            back.insert(back.end(), part.begin(), part.begin() + n);
            w.shard->turn();
        }
        check_replies(back);
    };
    while (!stream.empty()) {
        const ssize_t n = ::send(peer.get(), stream.data(), std::min(step, stream.size()), MSG_NOSIGNAL);
        w.shard->turn();
        receive();
        if (n < 0)
            break; // the server has closed it
        stream = stream.subspan(static_cast<std::size_t>(n));
    }
    // The end: by the peer, or by a limit of time.
    if (data[0] % 2 == 0)
        peer.reset();
    else
        w.clock.advance(std::chrono::minutes(20));
    for (int i = 0; i < 4; ++i) {
        w.shard->turn();
        if (peer)
            receive();
    }
    check(back.empty(), "half a reply");
    check(w.server.connections() == 0, "a connection is left");
    check(w.server.stats().calls_in_flight.value() == 0, "a call is left");
    check(w.pool.outstanding() == 0, "a buffer is left");
    return 0;
}
