// SPDX-License-Identifier: Apache-2.0
// What the responder allows one requester: a raw peer at the other end of a socket speaks iWARP made by
// hand, and answers RDMA Reads when the test says so.
#define BOOST_TEST_MODULE rpcrdma_responder
#include <boost/test/unit_test.hpp>

#include "bytes.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/scope.hpp>
#include <verbena/protocols/rpc/reverse_channel.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>
#include <verbena/transports/iwarp.hpp>

#include <functional>
#include <source_location>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

using namespace verbena;
using namespace std::chrono_literals;
using test::from_hex;
using bytes = std::vector<std::byte>;

namespace {

constexpr std::uint32_t argument_size = 4096;

// Pulls the opaque argument of each call.
class puller final : public rpc::dispatcher {
public:
    task<bool> dispatch(rpc::call& c) override
    {
        BOOST_REQUIRE((c.decode_header() == rpc::call_verdict::good));
        const task_context& context = co_await current_context();
        trace = context.trace_id;
        most_result = c.most_result();
        if (keeps_channel)
            channel = c.reverse();
        const auto ref = c.args().payload(2 << 20);
        rpc::encode(c.results(),
                    rpc::reply_header::accepted_with(c.header().xid, rpc::accept_status::success));
        const auto got = co_await c.pull(ref);
        pulled += got ? 1 : 0;
        if (reserved != 0) {
            const bool room = co_await c.reserve_results(reserved);
            starved += room ? 0 : 1;
        }
        if (got && result_size != 0) {
            lease memory = co_await c.buffers().acquire(result_memory);
            if (!memory)
                co_return false;
            ++prepared;
            if (waits && !co_await go.wait())
                co_return false;
            c.results().note_payload(result_size);
            const std::span<const std::byte> bytes(memory.data(), result_size);
            c.attach(rpc::payload(std::move(memory), bytes));
        }
        co_return got.has_value();
    }
    unsigned pulled = 0;
    std::uint64_t trace = 0;          ///< of the last call
    std::uint32_t result_size = 0;    ///< of a data item, if not 0
    std::size_t result_memory = 4096; ///< that it lies in
    unsigned prepared = 0;            ///< calls that have it
    bool waits = false;               ///< then, for `go`
    event go;
    std::size_t reserved = 0;      ///< room for results that is asked for
    unsigned starved = 0;          ///< calls that didn't get it
    std::uint64_t most_result = 0; ///< that the last call had room for
    bool keeps_channel = false;
    std::shared_ptr<rpc::reverse_channel> channel;
};

void put(bytes& to, std::initializer_list<std::uint32_t> words)
{
    for (const std::uint32_t w : words) {
        for (int shift = 24; shift >= 0; shift -= 8)
            to.push_back(std::byte(w >> shift));
    }
}

// RFC 5044 4.1: length, ULPDU, pad, CRC that nobody asked for.
bytes fpdu(const bytes& ulpdu)
{
    bytes all = {std::byte(ulpdu.size() >> 8), std::byte(ulpdu.size() & 0xff)};
    all.insert(all.end(), ulpdu.begin(), ulpdu.end());
    all.resize((all.size() + 3) / 4 * 4 + 4);
    return all;
}

// A provider whose queue pairs take no RDMA Read, though they said they would.
class no_reads_queue_pair final : public verbs::queue_pair {
public:
    explicit no_reads_queue_pair(std::unique_ptr<verbs::queue_pair> q) : q_(std::move(q)) {}
    result<void> post_send(std::span<const verbs::send_request> batch) override
    {
        if (batch.front().opcode == verbs::opcode::rdma_read)
            return error(std::errc::no_buffer_space, "no Read today");
        return q_->post_send(batch);
    }
    void set_handler(verbs::completion_handler* h) noexcept override { q_->set_handler(h); }
    result<void> post_receive(std::span<const verbs::receive_request> b) override
    {
        return q_->post_receive(b);
    }
    void disconnect() noexcept override { q_->disconnect(); }
    void kill(const error& cause) noexcept override { q_->kill(cause); }
    bool connected() const noexcept override { return q_->connected(); }
    verbs::protection_domain& domain() noexcept override { return q_->domain(); }
    std::uint32_t max_reads() const noexcept override { return q_->max_reads(); }
    std::string_view peer_name() const noexcept override { return q_->peer_name(); }
    std::string_view peer_address() const noexcept override { return q_->peer_address(); }

private:
    std::unique_ptr<verbs::queue_pair> q_;
};

class no_reads_request final : public verbs::connect_request {
public:
    explicit no_reads_request(std::unique_ptr<verbs::connect_request> r) : r_(std::move(r)) {}
    task<result<std::unique_ptr<verbs::queue_pair>>>
    make_queue_pair(verbs::protection_domain& d, const verbs::queue_pair_options& o) override
    {
        auto made = co_await r_->make_queue_pair(d, o);
        if (!made)
            co_return made.error();
        co_return std::unique_ptr<verbs::queue_pair>(std::make_unique<no_reads_queue_pair>(std::move(*made)));
    }
    std::span<const std::byte> private_data() const noexcept override { return r_->private_data(); }
    std::string_view peer_address() const noexcept override { return r_->peer_address(); }
    std::string_view peer_name() const noexcept override { return r_->peer_name(); }
    std::uint32_t peer_responder_resources() const noexcept override
    {
        return r_->peer_responder_resources();
    }
    task<result<void>> accept(const verbs::connect_options& o) override { return r_->accept(o); }
    task<result<void>> reject(std::span<const std::byte> data) override { return r_->reject(data); }

private:
    std::unique_ptr<verbs::connect_request> r_;
};

class no_reads_listener final : public verbs::listener {
public:
    task<result<std::unique_ptr<verbs::connect_request>>> next() override
    {
        auto r = co_await under->next();
        if (!r)
            co_return r.error();
        co_return std::unique_ptr<verbs::connect_request>(std::make_unique<no_reads_request>(std::move(*r)));
    }
    void close() noexcept override { under->close(); }
    std::string local_url() const override { return under->local_url(); }
    verbs::listener* under = nullptr;
};

struct fixture {
    fixture()
    {
        set_log_level(log_level::off);
        reactor_options r;
        r.clock = &clock;
        auto made = reactor::create(r);
        BOOST_REQUIRE(made);
        shard = std::move(*made);
        pool = std::make_unique<buffer_pool>(budget, shard.get());
        iwarp::options o;
        o.close_timeout = 10ms;
        provider = iwarp::make_context(*shard, o);
    }
    void start()
    {
        auto l = provider->listen_adopted("iwarp://test");
        BOOST_REQUIRE(l);
        listener = std::move(*l);
        tasks.emplace(*shard);
        unreadable.under = listener.get();
        verbs::listener& l2 = reads_fail ? unreadable : *listener;
        tasks->spawn(rpcrdma::serve(*provider, l2, *pool, dispatcher, options, stats));
        int ends[2];
        BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
        peer = ends[1];
        provider->adopt(ends[0], *listener);
        // MPA revision 2, enhanced, ORD 0 (RFC 6581 6).
        bytes request = from_hex("4d504120 49442052 65712046 72616d65 10020004");
        put(request, {std::uint32_t(peer_depth) << 16});
        write(request);
        BOOST_TEST(read(32).size() == 32u); // header, depths, private message
    }
    ~fixture()
    {
        listener->close();
        tasks->request_stop();
        ending = true;
        until([&] { return tasks->live() == 0; });
        ::close(peer);
        held.clear();
        // Whatever the peer did, nothing of it stays behind.
        BOOST_TEST(pool->outstanding() == 0u);
        BOOST_TEST(provider->counters().active == 0u);
    }
    void until(const std::function<bool()>& done,
               std::source_location where = std::source_location::current())
    {
        for (const time_point limit = system_clock().now() + 30s; !done();) {
            BOOST_REQUIRE_MESSAGE(system_clock().now() < limit, "nothing came at line " << where.line());
            if (ending)
                clock.advance(1ms); // close_timeout
            shard->turn();
        }
    }
    void write(const bytes& b)
    {
        std::size_t written = 0;
        until([&] {
            const ssize_t n = ::send(peer, b.data() + written, b.size() - written, MSG_NOSIGNAL);
            written += n > 0 ? static_cast<std::size_t>(n) : 0;
            return written == b.size();
        });
    }
    bytes read(std::size_t size, std::source_location where = std::source_location::current())
    {
        bytes got;
        until(
            [&] {
                std::byte b[1024];
                const ssize_t n = ::recv(peer, b, std::min(sizeof b, size - got.size()), MSG_DONTWAIT);
                if (n > 0)
                    got.insert(got.end(), b, b + n);
                return got.size() == size || n == 0;
            },
            where);
        return got;
    }
    /// The next ULPDU from the server; empty at the end.
    bytes receive(std::source_location where = std::source_location::current())
    {
        const bytes length = read(2, where);
        if (length.empty())
            return {};
        const auto size =
            std::to_integer<std::size_t>(length[0]) << 8 | std::to_integer<std::size_t>(length[1]);
        const bytes ulpdu = read(size);
        (void)read(((size + 2 + 3) / 4 * 4 - size - 2) + 4);
        return ulpdu;
    }
    /// RFC 8166 4.1: RDMA_MSG with a Read chunk of `size` bytes at the opaque's position.
    void call(std::uint32_t xid, std::uint32_t size = argument_size)
    {
        bytes u = from_hex("4143 00000000 00000000");
        put(u, {++sequence, 0});
        put(u, {xid, 1, 32, 0, 1, 44, 0xabcd, size, 0, 0, 0, 0, 0});
        put(u, {xid, 0, 2, 1, 1, 1, 0, 0, 0, 0, size});
        write(fpdu(u));
    }
    /// The same in `count` segments with tags from 1 on, which together are the argument.
    void call_in_segments(std::uint32_t xid, std::uint32_t count)
    {
        bytes u = from_hex("4143 00000000 00000000");
        put(u, {++sequence, 0, xid, 1, 32, 0});
        for (std::uint32_t tag = 1; tag <= count; ++tag)
            put(u, {1, 44, tag, argument_size / count, 0, 0});
        put(u, {0, 0, 0, xid, 0, 2, 1, 1, 1, 0, 0, 0, 0, argument_size});
        write(fpdu(u));
    }
    /// The whole call in a Position-Zero chunk (tag 1) but for its argument, which is a chunk of its own (tag 2).
    void call_in_two_chunks(std::uint32_t xid)
    {
        bytes u = from_hex("4143 00000000 00000000");
        put(u, {++sequence, 0, xid, 1, 32, 1});
        put(u, {1, 0, 1, 44, 0, 0});
        put(u, {1, 44, 2, argument_size, 0, 0});
        put(u, {0, 0, 0});
        write(fpdu(u));
    }
    bytes inline_message(std::uint32_t xid)
    {
        bytes u = from_hex("4143 00000000 00000000");
        put(u, {++sequence, 0, xid, 1, 32, 0, 0, 0, 0, xid, 0, 2, 1, 1, 1, 0, 0, 0, 0, 4, 0x61626364});
        return fpdu(u);
    }
    /// The whole call in a Position-Zero chunk, whose tag is its XID.
    void call_at_position_zero(std::uint32_t xid, std::uint32_t argument)
    {
        bytes u = from_hex("4143 00000000 00000000");
        put(u, {++sequence, 0, xid, 1, 32, 1, 1, 0, xid, 44 + argument, 0, 0, 0, 0, 0});
        write(fpdu(u));
    }
    static bytes call_head(std::uint32_t xid, std::uint32_t argument)
    {
        bytes head;
        put(head, {xid, 0, 2, 1, 1, 1, 0, 0, 0, 0, argument});
        return head;
    }
    void inline_call(std::uint32_t xid) { write(inline_message(xid)); }
    /// The same with a Write chunk for its data item, in `count` segments.
    void call_with_write_chunk(std::uint32_t xid, std::uint32_t count, std::uint32_t length)
    {
        bytes u = from_hex("4143 00000000 00000000");
        put(u, {++sequence, 0, xid, 1, 32, 0, 0, 1, count});
        for (std::uint32_t tag = 1; tag <= count; ++tag)
            put(u, {tag, length, 0, 0});
        put(u, {0, 0, xid, 0, 2, 1, 1, 1, 0, 0, 0, 0, 4, 0x61626364});
        write(fpdu(u));
    }
    /// RFC 5040 4.4: answers a Read Request with a Read Response, of zeros behind `data`.
    void answer(const bytes& request, bytes data = {})
    {
        BOOST_REQUIRE(request.size() == 46u);
        data.resize(xdr::load_u32(request.data() + 30));
        const std::uint32_t sink = xdr::load_u32(request.data() + 18);
        const std::uint64_t offset = xdr::load_u64(request.data() + 22);
        constexpr std::size_t most = 32768; // of one FPDU
        std::size_t done = 0;
        do {
            const std::size_t part = std::min(most, data.size() - done);
            bytes u = from_hex(done + part == data.size() ? "c142" : "8142");
            put(u, {sink, std::uint32_t((offset + done) >> 32), std::uint32_t(offset + done)});
            const auto from = data.begin() + std::ptrdiff_t(done);
            u.insert(u.end(), from, from + std::ptrdiff_t(part));
            write(fpdu(u));
            done += part;
        } while (done < data.size());
    }
    /// The tag that a Read Request names; 0 if that is none.
    static std::uint32_t source_of(const bytes& request)
    {
        return request.size() == 46 ? xdr::load_u32(request.data() + 34) : 0;
    }
    /// The next Send is RDMA_ERROR with ERR_CHUNK (RFC 8166 4.5).
    void expect_chunk_error(std::uint32_t xid)
    {
        const bytes reply = receive();
        BOOST_REQUIRE(reply.size() == 18u + 5 * 4);
        BOOST_TEST(xdr::load_u32(reply.data() + 18) == xid);
        BOOST_TEST(xdr::load_u32(reply.data() + 30) == 4u); // RDMA_ERROR
        BOOST_TEST(xdr::load_u32(reply.data() + 34) == 2u); // ERR_CHUNK
    }
    task<void> call_back()
    {
        rpc::call_header header;
        header.program = 0x40000000;
        header.version = 1;
        lease block = co_await dispatcher.channel->acquire(1024);
        rpc::request request(std::move(block), header);
        const auto reply = co_await dispatcher.channel->call(request);
        outcome = reply ? "a reply" : reply.error().message();
    }
    /// Takes all memory that comes in buffers of `size` bytes, but for `count` of them.
    void leave(std::size_t count, std::size_t size)
    {
        while (lease taken = pool->try_acquire(size))
            held.push_back(std::move(taken));
        held.resize(held.size() - count);
    }
    /// Waits for memory and keeps it.
    task<void> hog(std::size_t size)
    {
        for (;;) {
            lease taken = co_await pool->acquire(size);
            if (!taken)
                co_return;
            held.push_back(std::move(taken));
        }
    }
    /// True if the server has nothing to say by itself.
    bool quiet()
    {
        for (int i = 0; i < 50; ++i)
            shard->turn();
        std::byte b;
        return ::recv(peer, &b, 1, MSG_DONTWAIT | MSG_PEEK) == -1;
    }

    virtual_clock clock;
    memory_budget budget{std::size_t(64) << 20};
    std::unique_ptr<reactor> shard;
    std::unique_ptr<buffer_pool> pool;
    std::unique_ptr<iwarp::context> provider;
    std::vector<lease> held;
    puller dispatcher;
    rpcrdma::responder_options options;
    rpcrdma::responder_stats stats;
    std::unique_ptr<verbs::listener> listener;
    no_reads_listener unreadable;
    bool reads_fail = false; ///< no RDMA Read can be posted
    std::optional<scope> tasks;
    int peer = -1;
    std::uint16_t peer_depth = 8; ///< IRD: Reads that the peer allows
    std::uint32_t sequence = 0;
    std::string outcome; ///< of call_back()
    bool ending = false;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(reads_that_nobody_answers_end_the_connection, fixture)
{
    start();
    call(1);
    BOOST_TEST(receive().size() == 46u); // the Read Request
    clock.advance(options.read_limit);
    BOOST_TEST(receive().empty());
    BOOST_TEST(stats.stalled_reads.value() == 1u);
    until([&] { return stats.failed_reads.value() == 1; });
    BOOST_TEST(dispatcher.pulled == 0u);
}

BOOST_FIXTURE_TEST_CASE(reads_that_are_answered_slowly_do_not, fixture)
{
    start();
    for (std::uint32_t xid = 1; xid <= 3; ++xid) {
        call(xid);
        const bytes request = receive();
        clock.advance(options.read_limit - 1ms);
        shard->turn();
        answer(request);
        BOOST_TEST(receive().size() > 18u + 28u); // the reply
        clock.advance(options.read_limit * 2);    // idle
        shard->turn();
    }
    BOOST_TEST(dispatcher.pulled == 3u);
    BOOST_TEST(dispatcher.trace == 1u); // the connection's
    BOOST_TEST(stats.stalled_reads.value() == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_requester_that_ignores_its_credits_is_sent_away, fixture)
{
    options.credits = 4; // and 8 receives more than that
    start();
    for (std::uint32_t xid = 1; xid <= 12; ++xid)
        call(xid);
    until([&] { return stats.calls.value() == 12; });
    BOOST_TEST(stats.credit_overruns.value() == 0u);
    call(13);
    until([&] { return provider->counters().active == 0; });
    BOOST_TEST(stats.credit_overruns.value() == 1u);
    BOOST_TEST(stats.calls.value() == 12u);
}

// Sends complete in order of posting, so behind a Read: what a requester can't see is no fault of its.
BOOST_FIXTURE_TEST_CASE(answered_calls_behind_a_slow_read_need_no_credits, fixture)
{
    options.credits = 4;
    start();
    call(1);
    const bytes request = receive();
    for (std::uint32_t xid = 2; xid < 100; ++xid) {
        inline_call(xid);
        const bytes reply = receive();
        BOOST_REQUIRE(reply.size() > 22u);
        BOOST_TEST(xdr::load_u32(reply.data() + 18) == xid);
    }
    answer(request);
    BOOST_TEST(xdr::load_u32(receive().data() + 18) == 1u);
    BOOST_TEST(stats.credit_overruns.value() == 0u);
}

BOOST_FIXTURE_TEST_CASE(many_calls_at_once_are_served_in_turns, fixture)
{
    start();
    for (std::uint32_t xid = 1; xid <= 100; ++xid)
        inline_call(xid);
    while (dispatcher.pulled < 100) {
        const unsigned before = dispatcher.pulled;
        shard->turn();
        BOOST_TEST(dispatcher.pulled <= before + 32); // its part of the turn, and one behind the others'
    }
    for (std::uint32_t xid = 1; xid <= 100; ++xid)
        BOOST_TEST(xdr::load_u32(receive().data() + 18) == xid);
    BOOST_TEST(stats.yields.value() >= 3u);
    BOOST_TEST(stats.credit_overruns.value() == 0u);
}

BOOST_FIXTURE_TEST_CASE(calls_wait_for_room_in_the_share_of_their_connection, fixture)
{
    options.max_chunk_bytes = 2 * argument_size;
    start();
    for (std::uint32_t xid = 1; xid <= 3; ++xid)
        call(xid);
    const bytes first = receive();
    const bytes second = receive();
    until([&] { return stats.calls.value() == 3; });
    BOOST_TEST(stats.chunk_waits.value() == 1u);
    answer(first);
    answer(second);
    // Two replies and the Read Request of the third, in any order.
    bytes third;
    for (int i = 0; i < 3; ++i) {
        bytes next = receive();
        if (next.size() == 46)
            third = next;
    }
    answer(third);
    until([&] { return dispatcher.pulled == 3; });
    BOOST_TEST(stats.chunk_waits.value() == 1u);
}

// The segments of one call are read side by side, as many as both ends allow; each answer lets one more go.
BOOST_AUTO_TEST_CASE(a_call_reads_as_much_at_once_as_both_ends_allow)
{
    static constexpr std::uint32_t segments = 8;
    struct depths {
        std::uint32_t own;
        std::uint16_t peer;
    };
    for (const depths d : {depths{32, 8}, depths{32, 4}, depths{2, 8}, depths{32, 1}, depths{1, 8}}) {
        BOOST_TEST_CONTEXT("own depth " << d.own << ", the peer's " << d.peer)
        {
            fixture f;
            f.options.read_depth = d.own;
            f.peer_depth = d.peer;
            f.start();
            f.call_in_segments(1, segments);
            const std::uint32_t depth = std::min<std::uint32_t>(d.own, d.peer);
            std::vector<bytes> out;
            for (std::uint32_t tag = 1; tag <= depth; ++tag) {
                out.push_back(f.receive());
                BOOST_TEST(fixture::source_of(out.back()) == tag);
            }
            for (std::uint32_t tag = depth + 1; tag <= segments; ++tag) {
                BOOST_TEST(f.quiet());
                f.answer(out[tag - 1 - depth]);
                out.push_back(f.receive());
                BOOST_TEST(fixture::source_of(out.back()) == tag);
            }
            BOOST_TEST(f.quiet());
            for (std::uint32_t tag = segments - depth; tag < segments; ++tag) {
                BOOST_TEST(f.dispatcher.pulled == 0u);
                f.answer(out[tag]);
            }
            BOOST_TEST(xdr::load_u32(f.receive().data() + 18) == 1u); // the reply
            BOOST_TEST(f.stats.read_depth_waits.value() == segments - depth);
            BOOST_TEST(f.stats.read_chunk_bytes.value() == argument_size);
            // It was the responder that waited, and not the stack beneath it.
            BOOST_TEST(f.provider->counters().read_depth_waits == 0u);
        }
    }
}

// The chunks of one call too, whichever is answered first.
BOOST_FIXTURE_TEST_CASE(a_call_reads_all_its_chunks_at_once, fixture)
{
    start();
    call_in_two_chunks(7);
    const bytes body = receive();
    const bytes item = receive();
    BOOST_TEST(source_of(body) == 1u);
    BOOST_TEST(source_of(item) == 2u);
    answer(body, call_head(7, argument_size));
    BOOST_TEST(dispatcher.pulled == 0u);
    answer(item);
    const bytes reply = receive();
    BOOST_REQUIRE(reply.size() > 22u);
    BOOST_TEST(xdr::load_u32(reply.data() + 18) == 7u);
    BOOST_TEST(dispatcher.pulled == 1u);
    BOOST_TEST(stats.read_depth_waits.value() == 0u);
}

// Nothing is read of a call whose chunks can't lie where they say.
BOOST_FIXTURE_TEST_CASE(chunks_out_of_place_are_not_read, fixture)
{
    start();
    bytes u = from_hex("4143 00000000 00000000");
    put(u, {++sequence, 0, 9, 1, 32, 1});
    put(u, {1, 0, 1, 44, 0, 0});
    put(u, {1, 48, 2, 4, 0, 0}); // the call ends before it
    put(u, {0, 0, 0});
    write(fpdu(u));
    expect_chunk_error(9);
    BOOST_TEST(stats.read_chunk_bytes.value() == 0u);
}

// A requester with IRD 0 that offers Read chunks all the same is told so: nothing can be read from it.
BOOST_FIXTURE_TEST_CASE(read_chunks_of_a_requester_that_answers_no_reads_are_refused, fixture)
{
    peer_depth = 0;
    start();
    call(1);
    expect_chunk_error(1);
    call_in_two_chunks(2);
    expect_chunk_error(2);
    BOOST_TEST(stats.chunk_errors.value() == 2u);
    BOOST_TEST(stats.failed_reads.value() == 0u);
    // And is served what has none.
    inline_call(3);
    BOOST_TEST(xdr::load_u32(receive().data() + 18) == 3u);
    BOOST_TEST(stats.connections.value() == 1);
}

// Whether the call's procedure asked for the Read or its assembly did.
BOOST_AUTO_TEST_CASE(reads_that_cannot_be_posted_end_the_connection)
{
    for (const bool assembled : {false, true}) {
        fixture f;
        f.reads_fail = true;
        f.start();
        if (assembled)
            f.call_in_two_chunks(1);
        else
            f.call(1);
        BOOST_TEST(f.receive().empty());
        f.until([&] { return f.provider->counters().active == 0; });
        BOOST_TEST(f.stats.failed_reads.value() == 1u);
        BOOST_TEST(f.dispatcher.pulled == 0u);
    }
}

// A Read that can't be posted since the connection ends already does not cut the Terminate off.
BOOST_FIXTURE_TEST_CASE(an_end_under_way_still_says_why, fixture)
{
    start();
    call(1);
    write(fpdu(from_hex("4043 00000000 00000000 00000002 00000000"))); // DDP version 0
    const bytes last = receive();
    BOOST_REQUIRE(last.size() > 20u);
    BOOST_TEST(test::to_hex(std::span(last).first(2)) == "4147"); // Terminate
    BOOST_TEST(test::to_hex(std::span(last).subspan(18, 2)) == "1206");
    BOOST_TEST(stats.failed_reads.value() == 1u);
    ::shutdown(peer, SHUT_WR);
    until([&] { return provider->counters().active == 0; });
}

// Nor does a reply that can't be: the call and what ends the connection come at once.
BOOST_FIXTURE_TEST_CASE(an_end_under_way_is_not_cut_off_by_a_reply, fixture)
{
    start();
    bytes both = inline_message(1);
    const bytes bad = fpdu(from_hex("4043 00000000 00000000 00000002 00000000")); // DDP version 0
    both.insert(both.end(), bad.begin(), bad.end());
    write(both);
    const bytes last = receive();
    BOOST_REQUIRE(last.size() > 20u);
    BOOST_TEST(test::to_hex(std::span(last).first(2)) == "4147"); // Terminate
    BOOST_TEST(test::to_hex(std::span(last).subspan(18, 2)) == "1206");
    BOOST_TEST(dispatcher.pulled == 1u);
    ::shutdown(peer, SHUT_WR);
    until([&] { return provider->counters().active == 0; });
}

BOOST_FIXTURE_TEST_CASE(calls_share_the_depth_of_their_connection, fixture)
{
    peer_depth = 2;
    start();
    for (std::uint32_t xid = 1; xid <= 3; ++xid)
        call(xid);
    const bytes first = receive();
    const bytes second = receive();
    BOOST_TEST(quiet());
    BOOST_TEST(stats.calls.value() == 3u);
    BOOST_TEST(stats.read_depth_waits.value() == 1u);
    answer(first);
    bytes third = receive(); // or the first one's reply, which is ready too
    const bytes other = receive();
    if (third.size() != 46)
        third = other;
    answer(second);
    answer(third);
    until([&] { return dispatcher.pulled == 3; });
    BOOST_TEST(stats.read_depth_waits.value() == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_drain_answers_what_was_begun_and_begins_nothing, fixture)
{
    start();
    call(1);
    const bytes request = receive();
    listener->close();
    for (int i = 0; i < 10; ++i)
        shard->turn();
    call(2);
    until([&] { return stats.refused_draining.value() == 1; });
    BOOST_TEST(provider->counters().active == 1u);
    answer(request);
    const bytes reply = receive();
    BOOST_REQUIRE(reply.size() > 22u);
    BOOST_TEST(xdr::load_u32(reply.data() + 18) == 1u);
    BOOST_TEST(receive().empty());
    BOOST_TEST(dispatcher.pulled == 1u);
    ::shutdown(peer, SHUT_WR);
    until([&] { return tasks->live() == 0; });
}

BOOST_FIXTURE_TEST_CASE(a_drain_that_is_stopped_leaves_a_stuck_call_behind, fixture)
{
    start();
    call(1);
    (void)receive();
    listener->close();
    for (int i = 0; i < 100; ++i)
        shard->turn();
    BOOST_TEST(tasks->live() == 1u);
    tasks->request_stop();
    ending = true;
    until([&] { return tasks->live() == 0; }); // though the peer says nothing
}

// A call back that finds the send queue full of Reads and of Sends behind them goes out when those are done.
BOOST_FIXTURE_TEST_CASE(a_call_back_waits_for_the_send_queue_and_no_longer, fixture)
{
    options.credits = 400;
    options.read_depth = peer_depth = 400;
    options.reverse_credits = 1;
    dispatcher.keeps_channel = true;
    start();
    std::uint32_t xid = 1;
    std::vector<bytes> reads;
    call(xid);
    reads.push_back(receive());
    // Replies want room for their largest form, which these nearly take.
    dispatcher.result_size = 60 * 4;
    for (bool full = false; !full;) {
        call_with_write_chunk(++xid, 60, 4);
        for (full = true; !quiet(); full = false)
            (void)receive();
    }
    dispatcher.result_size = 0;
    for (call(++xid); !quiet(); call(++xid))
        reads.push_back(receive());
    BOOST_TEST(reads.size() < 400u);
    BOOST_REQUIRE(dispatcher.channel);
    tasks->spawn(call_back());
    BOOST_TEST(quiet());
    BOOST_TEST(outcome == "");
    for (const bytes& request : reads)
        answer(request);
    for (bool called = false; !called;) {
        const bytes message = receive();
        BOOST_REQUIRE(!message.empty());
        if (message.size() == 46) // a Read that had no room
            answer(message);
        else if (message.front() == std::byte(0x41) && message.size() >= 18 + 28 + 8u) // a Send
            called = xdr::load_u32(message.data() + 18 + 28 + 4) == 0; // its message is a call (RFC 5531 9)
    }
    BOOST_TEST(outcome == "");
    dispatcher.channel.reset();
}

// What a reply needs is there, but another call waits for more than that, which the reply's own memory would be.
BOOST_FIXTURE_TEST_CASE(a_reply_does_not_wait_behind_a_call_that_waits_for_its_memory, fixture)
{
    dispatcher.result_size = 100;
    dispatcher.result_memory = 1 << 20;
    dispatcher.waits = true;
    start();
    leave(1, 1 << 20);
    inline_call(1);
    inline_call(2);
    until([&] { return dispatcher.pulled == 2; });
    BOOST_TEST(dispatcher.prepared == 1u);
    dispatcher.go.set();
    BOOST_TEST(xdr::load_u32(receive().data() + 18) == 1u); // though no time passes
    BOOST_TEST(xdr::load_u32(receive().data() + 18) == 2u);
}

// Two buffers for each, one after the other, would let the calls that hold one wait for each other for ever.
BOOST_FIXTURE_TEST_CASE(long_calls_do_not_wait_for_each_other, fixture)
{
    constexpr std::uint32_t size = 1 << 20;
    start();
    leave(4, 2 << 20);
    for (std::uint32_t xid = 1; xid <= 6; ++xid)
        call_at_position_zero(xid, size);
    until([&] { return stats.calls.value() == 6; });
    for (unsigned replies = 0; replies < 6;) {
        const bytes message = receive();
        BOOST_REQUIRE(message.size() > 22u);
        if (const std::uint32_t xid = source_of(message); xid != 0)
            answer(message, call_head(xid, size));
        else
            ++replies;
    }
    BOOST_TEST(dispatcher.pulled == 6u);
    BOOST_TEST(stats.payload_copied_bytes.value() == 0u); // it was read to where it is looked at
}

// No answer can be made of it, and without one its requester would wait for ever.
BOOST_FIXTURE_TEST_CASE(a_long_call_for_which_there_is_no_memory_ends_the_connection, fixture)
{
    start();
    leave(0, 2 << 20);
    call_at_position_zero(1, 1 << 20);
    until([&] { return pool->waits() == 1; });
    clock.advance(buffer_pool::call_patience - 1ms);
    BOOST_TEST(quiet());
    clock.advance(1ms);
    BOOST_TEST(receive().empty());
}

// A procedure hears that it has no room, and tells its client to come again.
BOOST_FIXTURE_TEST_CASE(results_wait_for_memory_as_long_as_a_call_may, fixture)
{
    dispatcher.reserved = 1 << 20;
    start();
    leave(0, 1 << 20);
    inline_call(1);
    until([&] { return pool->waits() == 1; });
    clock.advance(buffer_pool::call_patience - 1ms);
    BOOST_TEST(quiet());
    clock.advance(1ms);
    BOOST_TEST(xdr::load_u32(receive().data() + 18) == 1u);
    BOOST_TEST(dispatcher.starved == 1u);
}

// Others take the memory of each call that is over, until no receive stands and no call is left whose end would bring one.
BOOST_FIXTURE_TEST_CASE(a_connection_without_receives_has_some_when_there_is_memory, fixture)
{
    options.credits = 1; // and 8 receives more than that
    start();
    leave(0, 4096);
    scope others(*shard);
    others.spawn(hog(4096));
    std::uint32_t xid = 1;
    for (; xid <= 9; ++xid) {
        inline_call(xid);
        BOOST_TEST(xdr::load_u32(receive().data() + 18) == xid);
        BOOST_TEST(quiet());
        BOOST_TEST(stats.receive_shortages.value() >= xid);
    }
    others.request_stop();
    until([&] { return others.live() == 0; });
    held.clear();
    BOOST_TEST(quiet());
    for (; xid <= 20; ++xid) {
        inline_call(xid);
        BOOST_TEST(xdr::load_u32(receive().data() + 18) == xid);
    }
}

// Nor does it keep from others, meanwhile, what is too small for it.
BOOST_FIXTURE_TEST_CASE(a_connection_without_receives_holds_nobody_up, fixture)
{
    constexpr std::size_t size = 256 << 10;
    options.credits = 1;
    options.inline_size = size;
    start();
    lease small = pool->try_acquire(4096); // and there are more where it comes from
    leave(0, size);
    scope others(*shard);
    others.spawn(hog(size));
    for (std::uint32_t xid = 1; xid <= 9; ++xid) {
        inline_call(xid);
        BOOST_TEST(xdr::load_u32(receive().data() + 18) == xid);
        BOOST_TEST(quiet());
    }
    others.request_stop();
    until([&] { return others.live() == 0; });
    scope more(*shard);
    const std::size_t before = held.size();
    more.spawn(hog(4096));
    until([&] { return held.size() > before; });
    more.request_stop();
    until([&] { return more.live() == 0; });
}

// What a requester may have under way at once by its credits, at the size that Linux asks for.
BOOST_FIXTURE_TEST_CASE(a_full_share_of_reads_and_small_calls_beside_them_wait_for_nothing, fixture)
{
    dispatcher.result_size = 1 << 20;
    dispatcher.result_memory = 1 << 20;
    dispatcher.waits = true;
    start();
    std::uint32_t xid = 1;
    for (; xid <= 32; ++xid)
        call_with_write_chunk(xid, 1, 1 << 20);
    until([&] { return dispatcher.prepared == 32; });
    dispatcher.result_size = 0;
    for (; xid <= 128; ++xid)
        inline_call(xid);
    until([&] { return dispatcher.pulled == 128; });
    BOOST_TEST(stats.chunk_waits.value() == 0u);
    call_with_write_chunk(xid, 1, 1 << 20); // over the share
    until([&] { return stats.chunk_waits.value() == 1; });
}

BOOST_FIXTURE_TEST_CASE(a_procedure_is_told_what_its_caller_has_room_for, fixture)
{
    start();
    inline_call(1);
    (void)receive();
    BOOST_TEST(dispatcher.most_result == 1024u); // RFC 8166 3.3.2
    call_with_write_chunk(2, 3, 100);
    (void)receive();
    BOOST_TEST(dispatcher.most_result == 300u);
    bytes u = from_hex("4143 00000000 00000000");
    put(u, {++sequence, 0, 3, 1, 32, 0, 0, 0, 1, 2, 7, 3000, 0, 0, 8, 2000, 0, 0}); // Reply chunk
    put(u, {3, 0, 2, 1, 1, 1, 0, 0, 0, 0, 4, 0x61626364});
    write(fpdu(u));
    (void)receive();
    BOOST_TEST(dispatcher.most_result == 5000u);
}

namespace {

// Answered calls whose Sends complete only when the first one's Read is answered.
struct behind_a_read : fixture {
    behind_a_read()
    {
        options.credits = 4;
        receives = (4 + 8) * 4096;
    }
    void begin()
    {
        start();
        call(xid);
        request = receive();
        BOOST_REQUIRE(request.size() == 46u);
        dispatcher.result_size = 100;
        dispatcher.result_memory = 1 << 20;
    }
    /// How many calls are answered, of at most `most`.
    std::uint32_t answered(std::uint32_t most, const std::function<void(std::uint32_t)>& make)
    {
        for (std::uint32_t n = 0; n < most; ++n) {
            make(++xid);
            if (quiet())
                return n;
            while (!quiet())
                (void)receive();
        }
        return most;
    }
    bytes request; ///< of the Read
    std::size_t receives;
    std::uint32_t xid = 1;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_small_result_keeps_no_large_buffer, behind_a_read)
{
    begin();
    BOOST_TEST(answered(100, [&](std::uint32_t x) { inline_call(x); }) == 100u);
    BOOST_TEST(pool->outstanding_bytes() <= receives + 102 * 4096);
    BOOST_TEST(stats.chunk_waits.value() == 0u);
}

// Whatever the call was to move: here 100 bytes.
BOOST_FIXTURE_TEST_CASE(what_answered_calls_keep_counts, behind_a_read)
{
    options.max_chunk_bytes = 8 << 20;
    begin();
    const auto make = [&](std::uint32_t x) { call_with_write_chunk(x, 1, 100); };
    BOOST_TEST(answered(100, make) == 8u);
    BOOST_TEST(pool->outstanding_bytes() <= receives + (9 << 20));
    BOOST_TEST(stats.chunk_waits.value() == 1u);
    answer(request);
    BOOST_TEST(answered(1, make) == 1u);
    until([&] { return dispatcher.pulled == 11; });
    BOOST_TEST(pool->outstanding_bytes() <= receives);
}

// 2 MiB each, since buffers come in powers of two.
BOOST_AUTO_TEST_CASE(calls_under_way_count_as_the_buffers_that_they_take)
{
    for (const bool whole : {false, true}) {
        fixture f;
        f.options.max_chunk_bytes = 4 << 20;
        f.start();
        for (std::uint32_t xid = 1; xid <= 4; ++xid) {
            if (whole)
                f.call_at_position_zero(xid, 1 << 20);
            else
                f.call(xid, (1 << 20) + 4);
        }
        f.until([&] { return f.stats.calls.value() == 4; });
        BOOST_TEST(f.quiet() == false); // two Read Requests
        BOOST_TEST(f.stats.chunk_waits.value() == 2u);
    }
}

// As many as there are credits, and the slack, cost nothing; further ones have their buffer counted.
BOOST_FIXTURE_TEST_CASE(calls_that_keep_no_more_than_their_message_count_too, behind_a_read)
{
    options.max_chunk_bytes = 20 * 4096; // one of them for the Read
    begin();
    BOOST_TEST(answered(100, [&](std::uint32_t x) { inline_call(x); }) == 11u + 19u);
    BOOST_TEST(stats.chunk_waits.value() == 1u);
    answer(request);
    until([&] { return dispatcher.pulled == 32; });
}

// And so have those that are refused.
BOOST_FIXTURE_TEST_CASE(calls_that_are_refused_count_too, behind_a_read)
{
    options.max_chunk_bytes = 20 * 4096;
    begin();
    const auto make = [&](std::uint32_t x) {
        bytes u = from_hex("4143 00000000 00000000");
        put(u, {++sequence, 0, x, 2, 32, 0, 0, 0, 0, x, 0, 2, 1, 1, 1, 0, 0, 0, 0, 0}); // version 2
        write(fpdu(u));
    };
    BOOST_TEST(answered(100, make) == 11u + 19u);
    answer(request);
    until([&] { return stats.version_errors.value() == 31; });
}
