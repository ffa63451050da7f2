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
#include <verbena/core/net/net.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/verbs/connection.hpp>
#include <verbena/transports/iwarp.hpp>
#ifdef VERBENA_HAS_RDMA
#include <verbena/transports/rdma.hpp>
#endif

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

using namespace verbena;

namespace {

constexpr std::size_t max_data = std::size_t(1) << 20; // bytes of one ping
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
    verbs::remote_segment where() const { return {key, length, address}; }
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

// One connection.
struct peer {
    peer(verbs::context& c, reactor& shard) : context(c), pool(budget, &shard) {}

    task<result<void>> prepare()
    {
        auto made = context.make_domain();
        if (!made)
            co_return made.error();
        domain = std::move(*made);
        co_return co_await domain->add_pool(pool);
    }
    task<result<void>> send(const advertisement& a, std::uint32_t size = advertisement::size)
    {
        lease message = co_await pool.acquire(size);
        std::ranges::fill(message.bytes().first(size), std::byte(0));
        a.write(message.data());
        co_return co_await connection->send(std::move(message), size);
    }
    task<result<advertisement>> receive(std::uint32_t size = advertisement::size)
    {
        const auto m = co_await connection->receive();
        if (!m)
            co_return m.error();
        if (m->bytes().size() != size)
            co_return error(std::errc::bad_message, "a message of another size", m->bytes().size());
        co_return advertisement::read(m->bytes().data());
    }

    verbs::context& context;
    memory_budget budget{std::size_t(16) << 20};
    buffer_pool pool;
    std::unique_ptr<verbs::protection_domain> domain;
    std::unique_ptr<verbs::connection> connection;
};

bool orderly(const error& e) { return e == verbs::make_error_code(verbs::connection_end::orderly); }

// --- rping ---

task<result<void>> serve_pings(peer& p)
{
    for (int count = 0;; ++count) {
        const auto source = co_await p.receive();
        if (!source) {
            std::printf("%d pings\n", count);
            if (count != 0 && orderly(source.error()))
                co_return result<void>();
            co_return source.error();
        }
        if (source->length > max_data)
            co_return error(std::errc::message_size, "more data than this program takes", source->length);
        lease memory = co_await p.pool.acquire(source->length);
        auto data = co_await p.connection->read(std::move(memory), source->length, source->where());
        if (!data)
            co_return data.error();
        const auto told = co_await p.send({});
        if (!told)
            co_return told.error();
        const auto sink = co_await p.receive();
        if (!sink)
            co_return sink.error();
        const auto pushed = co_await p.connection->write(
            std::move(*data), std::min(source->length, sink->length), sink->where());
        if (!pushed)
            co_return pushed.error();
        const auto done = co_await p.send({});
        if (!done)
            co_return done.error();
    }
}

// The buffer is kept for as long as the peer may touch it, whenever the grant goes.
task<result<verbs::grant>> open_to(peer& p, const lease& buffer, std::size_t size, verbs::access rights)
{
    return p.domain->make_grant(buffer.bytes().first(size), rights,
                                p.context.query().grant_per_queue_pair ? &p.connection->scope() : nullptr,
                                buffer.share());
}

// Advertises what `g` opens, and waits for "go ahead".
task<result<void>> advertise(peer& p, const verbs::grant& g)
{
    const verbs::remote_segment where = g.where();
    advertisement a;
    a.address = where.address;
    a.key = where.key;
    a.length = where.length;
    const auto sent = co_await p.send(a);
    if (!sent)
        co_return sent.error();
    const auto answer = co_await p.receive();
    if (!answer)
        co_return answer.error();
    co_return result<void>();
}

task<result<void>> ping(peer& p, int count, std::size_t size)
{
    const lease source_memory = co_await p.pool.acquire(size);
    const lease sink_memory = co_await p.pool.acquire(size);
    const auto source = source_memory.bytes().first(size);
    const auto sink = sink_memory.bytes().first(size);
    const auto readable = co_await open_to(p, source_memory, size, verbs::access::remote_read);
    if (!readable)
        co_return readable.error();
    const auto writable = co_await open_to(p, sink_memory, size, verbs::access::remote_write);
    if (!writable)
        co_return writable.error();
    for (int i = 0; i < count; ++i) {
        for (std::size_t k = 0; k + 1 < size; ++k)
            source[k] = std::byte('A' + (k + std::size_t(i)) % 58);
        source[size - 1] = {}; // rping prints it as text
        std::ranges::fill(sink, std::byte{0xff});
        const auto read = co_await advertise(p, *readable);
        if (!read)
            co_return read.error();
        const auto written = co_await advertise(p, *writable);
        if (!written)
            co_return written.error();
        if (!std::ranges::equal(source, sink))
            co_return error(std::errc::bad_message, "the peer wrote other data than it read", i);
    }
    std::printf("%d pings\n", count);
    p.connection->disconnect();
    co_await p.connection->ended();
    co_return result<void>();
}

// --- rdma_client, ucmatose ---

task<result<void>> exchange(peer& p, bool first, int messages, std::uint32_t size, bool ends)
{
    for (int round = 0; round < 2; ++round) {
        for (int i = 0; i < messages; ++i) {
            if (first == (round == 0)) {
                const auto sent = co_await p.send({}, size);
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
        p.connection->disconnect();
    co_await p.connection->ended();
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
    auto made =
        co_await verbs::connection::accept(p.context.shard(), std::move(*request), *p.domain, p.pool, {});
    if (!made)
        co_return made.error();
    p.connection = std::move(*made);
    co_return result<void>();
}

task<result<void>> connect(peer& p, const std::string& address)
{
    auto made = co_await verbs::connection::connect(p.context, address, *p.domain, p.pool, {});
    if (!made)
        co_return made.error();
    p.connection = std::move(*made);
    co_return result<void>();
}

task<result<void>> run(verbs::context& c, std::string role, std::string address, int count, std::size_t size)
{
    peer p(c, c.shard());
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
    const auto url = net::split_url(words[1]);
    if (!url || (url->scheme != "iwarp" && url->scheme != "rdma"))
        return usage();
    const int count = words.size() > 2 ? std::atoi(words[2].c_str()) : 10;
    const std::size_t size = words.size() > 3 ? std::strtoul(words[3].c_str(), nullptr, 10) : 64;
    if (count < 1 || size < 2 || size > max_data)
        return usage();
    try {
        auto shard = or_throw(reactor::create());
        blocking_pool pool(2);
        const auto context = provider(url->scheme, *shard, pool);
        const auto done = run_until_complete(*shard, run(*context, words[0], url->address, count, size));
        if (!done)
            throw std::runtime_error(done.error().message());
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "verbs_peer: %s\n", e.what());
        return 1;
    }
}
