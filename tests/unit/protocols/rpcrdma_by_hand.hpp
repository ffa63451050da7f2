// SPDX-License-Identifier: Apache-2.0
// A responder and a raw peer at the other end of a socket, which speaks iWARP made by hand and answers RDMA Reads when the test
// says so.
#pragma once

#include "../log_at.hpp"
#include "bytes.hpp"

#include <boost/test/unit_test.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/scope.hpp>
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

namespace verbena::responder_test {

using namespace std::chrono_literals;
using test::from_hex;
using bytes = std::vector<std::byte>;

constexpr std::uint32_t argument_size = 4096;

// Pulls the opaque argument of each call.
class puller final : public rpc::dispatcher {
public:
    task<bool> dispatch(rpc::call& c) override
    {
        if (throws)
            throw std::runtime_error("boom");
        const rpc::call_verdict verdict = c.decode_header();
        if (verdict == rpc::call_verdict::unanswerable && expects_garbage)
            co_return false;
        BOOST_REQUIRE((verdict == rpc::call_verdict::good));
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
    bool expects_garbage = false; ///< calls may be none
    bool throws = false;
    std::shared_ptr<rpc::reverse_channel> channel;
};

inline void put(bytes& to, std::initializer_list<std::uint32_t> words)
{
    for (const std::uint32_t w : words) {
        for (int shift = 24; shift >= 0; shift -= 8)
            to.push_back(std::byte(w >> shift));
    }
}

// RFC 5044 4.1: length, ULPDU, pad, CRC that nobody asked for.
inline bytes fpdu(const bytes& ulpdu)
{
    bytes all = {std::byte(ulpdu.size() >> 8), std::byte(ulpdu.size() & 0xff)};
    all.insert(all.end(), ulpdu.begin(), ulpdu.end());
    all.resize((all.size() + 3) / 4 * 4 + 4);
    return all;
}

/// What the responder may not do with a queue pair, since it holds the shard where ends take their time.
struct shard_holding {
    unsigned killed = 0;
    unsigned destroyed = 0; ///< before its end was told
};

// A provider whose queue pairs take no RDMA Read, though they said they would, and whose ends take a while.
class no_reads_queue_pair final : public verbs::queue_pair,
                                  private verbs::completion_handler,
                                  private deferred {
public:
    no_reads_queue_pair(std::unique_ptr<verbs::queue_pair> q, bool reads_fail, shard_holding& held)
        : q_(std::move(q)), reads_fail_(reads_fail), held_(held)
    {
        q_->set_handler(this);
    }
    ~no_reads_queue_pair() override { held_.destroyed += !told_; }
    void abort(const error& cause) noexcept override
    {
        if (told_ || deferred::is_linked())
            return;
        cause_ = cause;
        reactor::current()->post_last(*this);
    }
    result<void> post_send(std::span<const verbs::send_request> batch) override
    {
        if (reads_fail_ && batch.front().opcode == verbs::opcode::rdma_read)
            return error(std::errc::no_buffer_space, "no Read today");
        return q_->post_send(batch);
    }
    void set_handler(verbs::completion_handler* h) noexcept override { handler_ = h; }
    result<void> post_receive(std::span<const verbs::receive_request> b) override
    {
        return q_->post_receive(b);
    }
    void disconnect() noexcept override { q_->disconnect(); }
    void kill(const error& cause) noexcept override
    {
        ++held_.killed;
        q_->kill(cause);
    }
    bool connected() const noexcept override { return q_->connected() && !deferred::is_linked(); }
    verbs::protection_domain& domain() noexcept override { return q_->domain(); }
    std::uint32_t max_reads() const noexcept override { return q_->max_reads(); }
    std::string_view peer_name() const noexcept override { return q_->peer_name(); }
    std::string_view peer_address() const noexcept override { return q_->peer_address(); }

private:
    void run() noexcept override { q_->kill(cause_); }
    void on_completions(std::span<const verbs::completion> batch) noexcept override
    {
        handler_->on_completions(batch);
    }
    void on_disconnected(const error& cause) noexcept override
    {
        told_ = true;
        deferred::unlink();
        if (handler_ != nullptr)
            handler_->on_disconnected(cause);
    }
    std::unique_ptr<verbs::queue_pair> q_;
    bool reads_fail_;
    shard_holding& held_;
    verbs::completion_handler* handler_ = nullptr;
    error cause_;
    bool told_ = false;
};

/// Where a request of the test's throws.
enum class throwing : std::uint8_t { never, making_a_queue_pair, accepting };
/// What the test's own provider does.
struct behaviour {
    bool reads_fail = false; ///< no RDMA Read can be posted
    bool accepts_fail = false;
    bool waits_to_make = false;        ///< a queue pair, for `go`
    bool waits_to_accept = false;      ///< likewise
    throwing throws = throwing::never; ///< the next connection
    event go;                          ///< when it has accepted
    std::string peer;                  ///< the address of the last connection
    shard_holding held;
};

class no_reads_request final : public verbs::connect_request {
public:
    no_reads_request(std::unique_ptr<verbs::connect_request> r, behaviour& b)
        : r_(std::move(r)), throws_(std::exchange(b.throws, throwing::never)), behaviour_(b)
    {
    }
    task<result<std::unique_ptr<verbs::queue_pair>>>
    make_queue_pair(verbs::protection_domain& d, const verbs::queue_pair_options& o) override
    {
        if (throws_ == throwing::making_a_queue_pair)
            throw std::runtime_error("boom");
        behaviour_.peer = r_->peer_address();
        if (std::exchange(behaviour_.waits_to_make, false))
            co_await behaviour_.go.wait_shielded();
        auto made = co_await r_->make_queue_pair(d, o);
        if (!made)
            co_return made.error();
        co_return std::unique_ptr<verbs::queue_pair>(
            std::make_unique<no_reads_queue_pair>(std::move(*made), behaviour_.reads_fail, behaviour_.held));
    }
    std::span<const std::byte> private_data() const noexcept override { return r_->private_data(); }
    std::string_view peer_address() const noexcept override { return r_->peer_address(); }
    std::string_view peer_name() const noexcept override { return r_->peer_name(); }
    std::uint32_t peer_responder_resources() const noexcept override
    {
        return r_->peer_responder_resources();
    }
    task<result<void>> accept(const verbs::connect_options& o) override
    {
        auto accepted = co_await r_->accept(o);
        if (behaviour_.waits_to_accept)
            co_await behaviour_.go.wait_shielded();
        if (throws_ == throwing::accepting) {
            co_await behaviour_.go.wait_shielded();
            throw std::runtime_error("boom");
        }
        if (behaviour_.accepts_fail)
            co_return error(std::errc::timed_out, "accept");
        co_return accepted;
    }
    task<result<void>> reject(std::span<const std::byte> data) override { return r_->reject(data); }

private:
    std::unique_ptr<verbs::connect_request> r_;
    throwing throws_;
    behaviour& behaviour_;
};

class no_reads_listener final : public verbs::listener {
public:
    task<result<std::unique_ptr<verbs::connect_request>>> next() override
    {
        auto r = co_await under->next();
        if (!r)
            co_return r.error();
        co_return std::unique_ptr<verbs::connect_request>(
            std::make_unique<no_reads_request>(std::move(*r), does));
    }
    void close() noexcept override { under->close(); }
    std::string local_url() const override { return under->local_url(); }
    verbs::listener* under = nullptr;
    behaviour does;
};

struct fixture {
    const test::log_at level_of_log{log_level::off};
    fixture()
    {
        reactor_options r;
        r.clock = &clock;
        auto made = reactor::create(r);
        BOOST_REQUIRE(made);
        shard = std::move(*made);
        pool = std::make_unique<buffer_pool>(budget, shard.get());
        options.idle_credits = UINT32_MAX; // the requesters here begin at full speed
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
        verbs::listener& l2 = own_provider ? unreadable : *listener;
        tasks->spawn([&] { return rpcrdma::serve(*provider, l2, *pool, dispatcher, options, stats); });
        ask_to_connect();
        BOOST_TEST(read(32).size() == 32u); // header, depths, private message
    }
    /// A new peer, in the place of the one before.
    void ask_to_connect()
    {
        if (peer != -1)
            ::close(peer);
        sequence = 0;
        int ends[2];
        BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
        peer = ends[1];
        provider->adopt(ends[0], *listener);
        // MPA revision 2, enhanced, ORD 0 (RFC 6581 6).
        bytes request = from_hex("4d504120 49442052 65712046 72616d65 10020004");
        request.back() = std::byte(4 + private_data.size());
        put(request, {std::uint32_t(peer_depth) << 16});
        request.insert(request.end(), private_data.begin(), private_data.end());
        write(request);
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
        BOOST_TEST(unreadable.does.held.killed == 0u);
        BOOST_TEST(unreadable.does.held.destroyed == 0u);
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
    /// An FPDU of the Send number `send`, from `offset` on.
    static bytes part_of_send(std::uint32_t send, std::uint32_t offset, const bytes& data, bool last)
    {
        bytes u = from_hex(last ? "4143 00000000 00000000" : "0143 00000000 00000000");
        put(u, {send, offset});
        u.insert(u.end(), data.begin(), data.end());
        return fpdu(u);
    }
    /// RFC 7306 6.1, which RPC-over-RDMA has no use for.
    bytes immediate_data()
    {
        bytes u = from_hex("4148 00000000 00000000");
        put(u, {++sequence, 0, 0x12345678, 0});
        return fpdu(u);
    }
    /// The whole Read Response to `request`, of zeros.
    static bytes read_response(const bytes& request)
    {
        bytes u = from_hex("c142");
        const auto sink = request.begin() + 18; // tag and offset
        u.insert(u.end(), sink, sink + 12);
        u.resize(u.size() + xdr::load_u32(request.data() + 30));
        return fpdu(u);
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
    /// Calls the peer back, and gives up after `patience`.
    task<void> call_back(duration patience = duration::max())
    {
        outcome.clear();
        rpc::call_header header;
        header.program = 0x40000000;
        header.version = 1;
        lease block = co_await dispatcher.channel->acquire(1024);
        rpc::request request(std::move(block), header);
        auto limited = with_timeout(patience, dispatcher.channel->call(request));
        const auto reply = co_await limited;
        outcome = reply ? "a reply" : reply.error().message();
    }
    /// The XID of the next Send, which is a call of the server's; 0 if it is none.
    std::uint32_t called_back()
    {
        const bytes message = receive();
        const bool is_call =
            message.size() >= 18 + 28 + 8u && xdr::load_u32(message.data() + 18 + 28 + 4) == 0;
        return is_call ? xdr::load_u32(message.data() + 18) : 0;
    }
    /// Answers a call of the server's and grants `credits`.
    void answer_call_back(std::uint32_t xid, std::uint32_t credits)
    {
        bytes u = from_hex("4143 00000000 00000000");
        put(u, {++sequence, 0, xid, 1, credits, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0});
        write(fpdu(u));
    }
    /// Takes all memory that comes in buffers of `size` bytes, but for `count` of them and for that of `messages` more.
    void leave(std::size_t count, std::size_t size, std::size_t messages = 0)
    {
        std::vector<lease> of_messages;
        for (std::size_t i = 0; i < messages; ++i)
            of_messages.push_back(pool->try_acquire(options.inline_size));
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
    bool own_provider = false; ///< with `unreadable.does`
    std::optional<scope> tasks;
    int peer = -1;
    std::uint16_t peer_depth = 8; ///< IRD: Reads that the peer allows
    bytes private_data;           ///< of the peer's connect request
    std::uint32_t sequence = 0;
    std::string outcome; ///< of call_back()
    bool ending = false;
};

} // namespace verbena::responder_test
