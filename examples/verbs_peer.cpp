// SPDX-License-Identifier: Apache-2.0
// A service on verbs alone, which speaks what the test programs of rdma-core (Debian: rdmacm-utils) speak. The same
// code runs on an RDMA device (rdma://) and on a TCP socket (iwarp://).
//
//   verbs_peer rping-server URL             one connection of `rping -c`
//   verbs_peer rping-client URL COUNT SIZE  as `rping -c -C COUNT -S SIZE -V` does
//   verbs_peer rdma-server URL              one connection of `rdma_client`
//   verbs_peer rdma-client URL              as `rdma_client` does
//   verbs_peer cmatose-server URL           one connection of `ucmatose -s`; not over iWARP, where an initiator must
//   verbs_peer cmatose-client URL           send first (RFC 5044 7.1.2)
//
// URL: rdma://ADDRESS:PORT or iwarp://ADDRESS:PORT, ADDRESS in digits.
#include <verbena/core/blocking.hpp>
#include <verbena/core/scope.hpp>
#include <verbena/transports/iwarp.hpp>
#ifdef VERBENA_HAS_RDMA
#include <verbena/transports/rdma.hpp>
#endif

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

using namespace verbena;
using verbs::opcode;

namespace {

constexpr std::size_t max_data = std::size_t(1) << 20; // bytes of one ping
constexpr std::size_t slot = 128;                      // bytes of a message
constexpr std::size_t slots = 16;
constexpr int cmatose_messages = 10;
constexpr std::uint32_t cmatose_size = 100;
constexpr std::uint32_t hello_size = 16;

// rping's only message, in both directions: where its memory is. What it answers with says nothing.
struct advertisement {
    static constexpr std::uint32_t size = 16;
    std::uint64_t address = 0;
    std::uint32_t key = 0;
    std::uint32_t length = 0;

    void write(std::byte* to) const
    {
        for (int i = 0; i < 8; ++i)
            to[i] = std::byte(address >> (56 - 8 * i));
        for (int i = 0; i < 4; ++i) {
            to[8 + i] = std::byte(key >> (24 - 8 * i));
            to[12 + i] = std::byte(length >> (24 - 8 * i));
        }
    }
    static advertisement read(const std::byte* from)
    {
        advertisement a;
        for (int i = 0; i < 8; ++i)
            a.address = a.address << 8 | std::to_integer<std::uint64_t>(from[i]);
        for (int i = 0; i < 4; ++i) {
            a.key = a.key << 8 | std::to_integer<std::uint32_t>(from[8 + i]);
            a.length = a.length << 8 | std::to_integer<std::uint32_t>(from[12 + i]);
        }
        return a;
    }
};

// A connection, its memory, and what it tells, for a coroutine to wait for.
class peer final : public verbs::completion_handler {
public:
    peer(verbs::context& c, std::unique_ptr<verbs::protection_domain> d) : context(c), domain(std::move(d)) {}

    task<result<void>> prepare()
    {
        auto made = co_await domain->register_memory(memory_);
        if (!made)
            co_return made.error();
        region_ = std::move(*made);
        co_return result<void>();
    }
    void adopt(std::unique_ptr<verbs::queue_pair> q)
    {
        pair = std::move(q);
        pair->set_handler(this);
    }
    result<void> post_receives()
    {
        for (std::uint64_t i = 0; i < slots; ++i) {
            if (auto posted = post_receive(i); !posted)
                return posted;
        }
        return {};
    }
    result<void> post_receive(std::uint64_t i)
    {
        const verbs::receive_request r{i, segment(message(i), slot)};
        return pair->post_receive({&r, 1});
    }
    // Posts one request and waits for its end.
    task<result<void>> run(opcode op, std::span<std::byte> local, advertisement remote = {})
    {
        const verbs::segment s = segment(local.data(), local.size());
        verbs::send_request w;
        w.opcode = op;
        w.segments = {&s, 1};
        w.remote_address = remote.address;
        w.remote_key = remote.key;
        if (auto posted = pair->post_send({&w, 1}); !posted)
            co_return posted.error();
        auto ended = co_await next(false);
        if (!ended)
            co_return ended.error();
        co_return result<void>();
    }
    task<result<void>> send(std::uint32_t size) { return run(opcode::send, {outgoing(), size}); }
    // The next message; its receive is posted again, as nobody sends before this end has answered.
    task<result<advertisement>> receive(std::uint32_t size)
    {
        auto c = co_await next(true);
        if (!c)
            co_return c.error();
        if (c->length != size)
            co_return error(std::errc::bad_message, "a message of another size", c->length);
        const advertisement a = advertisement::read(message(c->id));
        // A peer whose last word this was may be gone already.
        if (auto posted = post_receive(c->id); !posted && posted.error() != std::errc::not_connected)
            co_return posted.error();
        co_return a;
    }
    task<void> end()
    {
        while (!ended_) {
            changed_.reset();
            co_await changed_.wait();
        }
    }
    std::span<std::byte> data(std::size_t size) { return {memory_.data(), size}; }
    std::span<std::byte> second_data(std::size_t size) { return {memory_.data() + max_data, size}; }
    std::byte* outgoing() { return memory_.data() + 2 * max_data + slots * slot; }

    verbs::context& context;
    std::unique_ptr<verbs::protection_domain> domain;
    std::unique_ptr<verbs::queue_pair> pair;

private:
    std::byte* message(std::uint64_t i) { return memory_.data() + 2 * max_data + i * slot; }
    verbs::segment segment(std::byte* at, std::size_t size)
    {
        return {at, static_cast<std::uint32_t>(size), region_->local_key()};
    }
    task<result<verbs::completion>> next(bool receive)
    {
        for (;;) {
            const auto i = std::ranges::find_if(
                seen_, [receive](const auto& c) { return verbs::is_receive(c.opcode) == receive; });
            if (i != seen_.end()) {
                const verbs::completion c = *i;
                seen_.erase(i);
                if (c.status == verbs::status::success)
                    co_return c;
                if (c.status != verbs::status::work_request_flushed)
                    co_return error(verbs::make_error_code(c.status), "a work request", c.vendor_error);
                continue; // what ended the connection tells more
            }
            if (ended_)
                co_return cause_;
            changed_.reset();
            co_await changed_.wait();
        }
    }
    void on_completions(std::span<const verbs::completion> batch) noexcept override
    {
        seen_.insert(seen_.end(), batch.begin(), batch.end());
        changed_.set();
    }
    void on_disconnected(const error& cause) noexcept override
    {
        ended_ = true;
        cause_ = cause;
        changed_.set();
    }

    std::vector<std::byte> memory_ = std::vector<std::byte>(2 * max_data + (slots + 1) * slot);
    std::unique_ptr<verbs::region> region_; // goes before its memory
    std::deque<verbs::completion> seen_;
    event changed_;
    bool ended_ = false;
    error cause_;
};

bool orderly(const error& e) { return e == verbs::make_error_code(verbs::connection_end::orderly); }

// --- rping ---

task<result<void>> serve_pings(peer& p)
{
    for (int count = 0;; ++count) {
        const auto source = co_await p.receive(advertisement::size);
        if (!source) {
            std::printf("%d pings\n", count);
            if (count != 0 && orderly(source.error()))
                co_return result<void>();
            co_return source.error();
        }
        if (source->length > max_data)
            co_return error(std::errc::message_size, "more data than this program takes", source->length);
        const auto data = p.data(source->length);
        const auto pulled = co_await p.run(opcode::rdma_read, data, *source);
        if (!pulled)
            co_return pulled.error();
        const auto told = co_await p.send(advertisement::size);
        if (!told)
            co_return told.error();
        const auto sink = co_await p.receive(advertisement::size);
        if (!sink)
            co_return sink.error();
        const auto pushed = co_await p.run(
            opcode::rdma_write, data.first(std::min<std::size_t>(data.size(), sink->length)), *sink);
        if (!pushed)
            co_return pushed.error();
        const auto done = co_await p.send(advertisement::size);
        if (!done)
            co_return done.error();
    }
}

task<result<std::unique_ptr<verbs::grant>>> open_to(peer& p, std::span<std::byte> memory,
                                                    verbs::access rights)
{
    return p.domain->make_grant(memory, rights,
                                p.context.query().grant_per_queue_pair ? p.pair.get() : nullptr);
}

// Advertises what `g` opens, and waits for "go ahead".
task<result<void>> advertise(peer& p, const verbs::grant& g)
{
    const verbs::remote_segment where = g.where();
    advertisement a;
    a.address = where.address;
    a.key = where.key;
    a.length = where.length;
    a.write(p.outgoing());
    const auto sent = co_await p.send(advertisement::size);
    if (!sent)
        co_return sent.error();
    const auto answer = co_await p.receive(advertisement::size);
    if (!answer)
        co_return answer.error();
    co_return result<void>();
}

task<result<void>> ping(peer& p, int count, std::size_t size)
{
    const auto source = p.data(size);
    const auto sink = p.second_data(size);
    const auto readable = co_await open_to(p, source, verbs::access::remote_read);
    if (!readable)
        co_return readable.error();
    const auto writable = co_await open_to(p, sink, verbs::access::remote_write);
    if (!writable)
        co_return writable.error();
    for (int i = 0; i < count; ++i) {
        for (std::size_t k = 0; k + 1 < size; ++k)
            source[k] = std::byte('A' + (k + std::size_t(i)) % 58);
        source[size - 1] = {}; // rping prints it as text
        std::ranges::fill(sink, std::byte{0xff});
        const auto read = co_await advertise(p, **readable);
        if (!read)
            co_return read.error();
        const auto written = co_await advertise(p, **writable);
        if (!written)
            co_return written.error();
        if (!std::ranges::equal(source, sink))
            co_return error(std::errc::bad_message, "the peer wrote other data than it read", i);
    }
    std::printf("%d pings\n", count);
    p.pair->disconnect();
    co_await p.end();
    co_return result<void>();
}

// --- rdma_client, ucmatose ---

task<result<void>> exchange(peer& p, bool first, int messages, std::uint32_t size, bool ends)
{
    for (int round = 0; round < 2; ++round) {
        for (int i = 0; i < messages; ++i) {
            if (first == (round == 0)) {
                const auto sent = co_await p.send(size);
                if (!sent)
                    co_return sent.error();
            } else {
                const auto got = co_await p.receive(size);
                if (!got)
                    co_return got.error();
            }
        }
    }
    std::printf("%d messages each way\n", messages);
    if (ends)
        p.pair->disconnect();
    co_await p.end();
    co_return result<void>();
}

// --- both ends ---

task<result<void>> accept_one(peer& p, const std::string& address)
{
    auto listener = p.context.listen(address);
    if (!listener)
        co_return listener.error();
    std::printf("listening on %s\n", (*listener)->local_url().c_str());
    std::fflush(stdout);
    auto request = co_await (*listener)->next();
    if (!request)
        co_return request.error();
    const verbs::connect_options o;
    auto made = co_await (*request)->make_queue_pair(*p.domain, o.queue_pair);
    if (!made)
        co_return made.error();
    p.adopt(std::move(*made));
    if (auto posted = p.post_receives(); !posted)
        co_return posted.error();
    co_return co_await (*request)->accept(o);
}

task<result<void>> connect(peer& p, const std::string& address)
{
    const verbs::connect_options o;
    std::vector<std::byte> reply;
    auto made = co_await p.context.connect(address, *p.domain, o, reply);
    if (!made)
        co_return made.error();
    p.adopt(std::move(*made));
    co_return p.post_receives();
}

task<result<void>> run(verbs::context& c, std::string role, std::string address, int count, std::size_t size)
{
    auto domain = c.make_domain();
    if (!domain)
        co_return domain.error();
    peer p(c, std::move(*domain));
    const auto ready = co_await p.prepare();
    if (!ready)
        co_return ready.error();
    const bool server = role.ends_with("-server");
    result<void> done;
    if (server)
        done = co_await accept_one(p, address);
    else
        done = co_await connect(p, address);
    if (!done)
        co_return done.error();
    if (role == "rping-server")
        done = co_await serve_pings(p);
    else if (role == "rping-client")
        done = co_await ping(p, count, size);
    else if (role == "rdma-server" || role == "rdma-client")
        done = co_await exchange(p, !server, 1, hello_size, !server);
    else
        done = co_await exchange(p, server, cmatose_messages, cmatose_size, server);
    p.pair.reset();
    co_return done;
}

int usage()
{
    std::fprintf(
        stderr,
        "verbs_peer: ROLE URL [COUNT [SIZE]]; ROLE is rping-, rdma- or cmatose- and server or client,\n"
        "URL rdma://ADDRESS:PORT or iwarp://ADDRESS:PORT, SIZE 2 to 1048576 bytes\n");
    return 2;
}

template<class T>
T or_throw(result<T> r)
{
    if (!r)
        throw std::runtime_error(r.error().message());
    return std::move(*r);
}

std::unique_ptr<verbs::context> provider(const std::string& scheme, reactor& shard,
                                         [[maybe_unused]] blocking_pool& pool)
{
    if (scheme == "iwarp")
        return iwarp::make_context(shard);
#ifdef VERBENA_HAS_RDMA
    return or_throw(rdma::make_context(shard, {pool, pool}));
#else
    throw std::runtime_error("this build has no RDMA devices; iwarp:// needs none");
#endif
}

} // namespace

int main(int argc, char** argv)
{
    const std::vector<std::string> words(argv + 1, argv + argc);
    constexpr const char* roles[] = {"rping-server", "rping-client",   "rdma-server",
                                     "rdma-client",  "cmatose-server", "cmatose-client"};
    if (words.size() < 2 || std::ranges::find(roles, words[0]) == std::end(roles))
        return usage();
    const std::size_t colon = words[1].find("://");
    const std::string scheme = words[1].substr(0, colon);
    if (colon == std::string::npos || (scheme != "iwarp" && scheme != "rdma"))
        return usage();
    const int count = words.size() > 2 ? std::atoi(words[2].c_str()) : 10;
    const std::size_t size = words.size() > 3 ? std::strtoul(words[3].c_str(), nullptr, 10) : 64;
    if (count < 1 || size < 2 || size > max_data)
        return usage();
    try {
        auto shard = or_throw(reactor::create());
        blocking_pool pool(2);
        const auto context = provider(scheme, *shard, pool);
        const auto done =
            run_until_complete(*shard, run(*context, words[0], words[1].substr(colon + 3), count, size));
        if (!done)
            throw std::runtime_error(done.error().message());
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "verbs_peer: %s\n", e.what());
        return 1;
    }
}
