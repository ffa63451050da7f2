// SPDX-License-Identifier: Apache-2.0
// Calls over streams: limits, payloads, ends.
#include <boost/test/unit_test.hpp>

#include "../allocation_count.hpp"
#include "../log_at.hpp"
#include "rpc_server.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/rpcstream/record_reader.hpp>
#include <verbena/transports/stream.hpp>

BOOST_AUTO_TEST_SUITE(rpc_stream_server_test)

using namespace verbena;
using namespace verbena::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t null_reply = 28;

bytes calls_of(int n, std::uint32_t procedure, std::span<const std::byte> arguments = {})
{
    bytes all;
    for (int i = 0; i < n; ++i)
        append(all, framed(call_of(static_cast<std::uint32_t>(i), procedure, arguments)));
    return all;
}

} // namespace

BOOST_AUTO_TEST_CASE(all_replies_of_a_turn_go_in_one_call)
{
    served_streams s;
    auto client = s.connect();
    const auto stream = calls_of(200, 0);
    BOOST_REQUIRE(::send(client.get(), stream.data(), stream.size(), 0) ==
                  static_cast<ssize_t>(stream.size()));
    const auto replies = s.receive(client, 200 * null_reply);
    BOOST_REQUIRE(replies.size() == 200 * null_reply);
    for (std::uint32_t i = 0; i < 200; ++i) {
        bytes expected = from_hex("80000018");
        append_u32(expected, i);
        append(expected, from_hex("00000001 00000000 00000000 00000000 00000000"));
        BOOST_TEST(to_hex(std::span(replies).subspan(i * null_reply, null_reply)) == to_hex(expected));
    }
    BOOST_TEST(s.server->stats().receives.value() == 1);
    BOOST_TEST(s.server->stats().sends.value() == 1);
}

namespace {

// Throws at once for a call of XID 1, later for one of XID 2, and answers nothing else.
class throwing_dispatcher final : public rpc::dispatcher {
public:
    task<bool> dispatch(rpc::call& c) override
    {
        (void)c.decode_header();
        if (c.header().xid == 2)
            (void)co_await go.wait();
        if (c.header().xid <= 2)
            throw std::runtime_error("boom");
        ++others;
        co_return false;
    }
    event go;
    int others = 0;
};

} // namespace

BOOST_AUTO_TEST_CASE(a_dispatcher_that_throws_costs_one_connection)
{
    const test::log_at quiet(log_level::off);
    for (const std::uint32_t xid : {1u, 2u}) {
        served_streams s;
        throwing_dispatcher calls;
        {
            rpc::stream_server server(*s.shard, s.pool, calls);
            const auto connect = [&] {
                int ends[2];
                BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) ==
                              0);
                server.adopt(net::unique_fd(ends[0]), *net::endpoint::parse("192.0.2.1:1023"));
                return net::unique_fd(ends[1]);
            };
            auto one = connect();
            auto other = connect();
            s.send(one, framed(call_of(xid, 0)));
            s.turns();
            calls.go.set();
            BOOST_TEST(s.receive(one).empty());
            BOOST_TEST(s.closed);
            s.send(other, framed(call_of(9, 0)));
            s.turns();
            BOOST_TEST(calls.others == 1);
            BOOST_TEST(server.connections() == 1u);
            BOOST_TEST(server.stats().ended[std::size_t(rpc::stream_end::exception)].value() == 1);
            BOOST_TEST(server.stats().calls_in_flight.value() == 0);
            run_until_complete(*s.shard, server.shut_down(s.shard->clock().now()));
        }
    }
}

BOOST_AUTO_TEST_CASE(bytes_may_come_one_by_one)
{
    served_streams s;
    auto client = s.connect();
    for (const std::byte b : calls_of(3, 1, opaque(10, 'x')))
        s.send(client, {&b, 1});
    BOOST_TEST(s.receive(client).size() == 3 * (null_reply + 16));
}

BOOST_AUTO_TEST_CASE(a_call_in_fragments_is_served)
{
    served_streams s;
    auto client = s.connect();
    const auto message = call_of(5, 1, opaque(10, 'x'));
    bytes stream;
    for (std::size_t at = 0; at < message.size(); at += 8) {
        const std::size_t n = std::min<std::size_t>(8, message.size() - at);
        append_u32(stream, static_cast<std::uint32_t>(n) | (at + n == message.size() ? 0x80000000u : 0));
        append(stream, std::span(message).subspan(at, n));
    }
    s.send(client, stream);
    BOOST_TEST(to_hex(s.receive(client)) ==
               to_hex("80000028 00000005 00000001 00000000 00000000 00000000 00000000"
                      "0000000a 78787878 78787878 78780000"));
}

BOOST_AUTO_TEST_CASE(reading_stops_at_the_limit_of_calls)
{
    served_streams s;
    auto client = s.connect();
    s.send(client, calls_of(300, 2));
    s.turns(20 + 300 / static_cast<int>(rpc::stream_options().turn_share));
    BOOST_TEST(s.program.served == 256);
    BOOST_TEST(s.server->stats().calls_in_flight.value() == 256);
    BOOST_TEST(s.server->stats().pauses.value() == 1);
    s.program.go.set();
    BOOST_TEST(s.receive(client).size() == 300 * null_reply);
    BOOST_TEST(s.program.served == 300);
    BOOST_TEST(s.server->stats().calls_in_flight.value() == 0);
}

BOOST_AUTO_TEST_CASE(reading_stops_at_the_limit_of_bytes)
{
    served_streams s;
    auto client = s.connect();
    const auto stream = calls_of(12, 2, bytes(1 << 20));
    std::span<const std::byte> rest(stream);
    for (int quiet = 0; quiet < 100; ++quiet) {
        const ssize_t n = ::send(client.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
        if (n > 0) {
            rest = rest.subspan(static_cast<std::size_t>(n));
            quiet = 0;
        }
        s.shard->turn();
    }
    BOOST_TEST(s.program.served == 8);
    BOOST_TEST(!rest.empty());
    BOOST_TEST(s.budget.used() < 20u << 20);
    s.program.go.set();
    s.send(client, rest);
    BOOST_TEST(s.receive(client).size() == 12 * null_reply);
}

BOOST_AUTO_TEST_CASE(large_arguments_are_not_copied)
{
    served_streams s;
    auto client = s.connect();
    std::uint32_t xid = 0;
    for (const std::size_t size : {16384u, 16385u, 20000u, 65535u, 65536u, 100'001u, 262'144u, 1u << 20}) {
        for (int i = 0; i < 12; ++i) {
            const char fill = static_cast<char>('a' + i);
            s.send(client, framed(call_of(++xid, 3, opaque(size, fill))));
            const auto reply = s.receive(client, null_reply + 8);
            BOOST_REQUIRE(reply.size() == null_reply + 8);
            const auto length = xdr::load_u32(reply.data() + null_reply);
            const auto pieces = xdr::load_u32(reply.data() + null_reply + 4);
            BOOST_TEST(length == size);
            BOOST_TEST(pieces <= 2u);
            BOOST_TEST((s.program.written == bytes(size, static_cast<std::byte>(fill))));
        }
    }
    BOOST_TEST(s.server->stats().payload_copied_bytes.value() == 0);
    // In fragments they are, and it is counted.
    const auto message = call_of(1, 3, opaque(20000));
    bytes stream;
    append_u32(stream, 10000);
    append(stream, std::span(message).first(10000));
    append(stream, framed(std::span(message).subspan(10000)));
    s.send(client, stream);
    BOOST_TEST(s.receive(client).size() == null_reply + 8);
    BOOST_TEST(s.server->stats().payload_copied_bytes.value() == 20000);
}

BOOST_AUTO_TEST_CASE(large_arguments_back_to_back_are_not_copied)
{
    served_streams s;
    auto client = s.connect();
    s.send(client, calls_of(100, 3, opaque(50'001, 'k')));
    BOOST_TEST(s.receive(client).size() == 100 * (null_reply + 8));
    BOOST_TEST((s.program.written == bytes(50'001, std::byte('k'))));
    BOOST_TEST(s.server->stats().payload_copied_bytes.value() == 0);
}

BOOST_AUTO_TEST_CASE(large_results_are_not_copied)
{
    served_streams s;
    auto client = s.connect();
    std::uint32_t xid = 0;
    for (const std::uint32_t size : {1u, 256u, 257u, 16384u, 16387u, 1u << 20}) {
        bytes argument;
        append_u32(argument, size);
        const auto before = s.server->stats().payload_copied_bytes.value();
        s.send(client, framed(call_of(++xid, 4, argument)));
        const auto reply = s.receive(client);
        const auto expected = opaque(size, 'r');
        BOOST_REQUIRE(reply.size() == null_reply + expected.size());
        BOOST_TEST(xdr::load_u32(reply.data()) == 0x80000000u + reply.size() - 4);
        BOOST_TEST(std::equal(expected.begin(), expected.end(), reply.begin() + null_reply));
        BOOST_TEST(s.server->stats().payload_copied_bytes.value() - before == (size <= 256 ? size : 0));
    }
    BOOST_TEST(s.pool.outstanding() == 0);
}

// Payloads anywhere in a record, and in a reply. Each piece is kept by the buffer that it lies in.
BOOST_AUTO_TEST_CASE(several_payloads_of_a_call_and_of_its_reply)
{
    served_streams s;
    std::uint32_t xid = 0;
    // The first buffer takes 64508 bytes of a record: the border lies in a payload, at its ends, and in front of a length.
    for (const std::size_t first :
         {0u, 3u, 300u, 20'000u, 64'455u, 64'456u, 64'457u, 64'460u, 64'464u, 70'001u}) {
        auto client = s.connect();
        bytes arguments;
        std::vector<bytes> parts;
        for (const std::size_t size : {first, std::size_t(40'002), std::size_t(9), std::size_t(90'000)}) {
            parts.emplace_back(size, std::byte('a' + parts.size()));
            append(arguments, opaque(size, static_cast<char>('a' + parts.size() - 1)));
            append_u32(arguments, 0x7700 + static_cast<std::uint32_t>(parts.size()));
        }
        const auto before = s.server->stats().payload_copied_bytes.value();
        s.send(client, framed(call_of(++xid, 15, arguments)));
        const auto reply = s.receive(client);
        BOOST_REQUIRE(reply.size() == null_reply + arguments.size());
        BOOST_TEST(xdr::load_u32(reply.data()) == 0x80000000u + reply.size() - 4);
        BOOST_TEST(std::equal(arguments.begin(), arguments.end(), reply.begin() + null_reply));
        // What is small is gathered in the reply. Of a call nothing is copied, also where a number lies across the border.
        const std::size_t gathered = 9 + (first <= 256 ? first : 0);
        BOOST_TEST(s.server->stats().payload_copied_bytes.value() - before <= gathered + 2 * 256);
        // Other calls come through the same buffers.
        s.send(client, calls_of(3, 3, opaque(200'000, 'z')));
        BOOST_TEST(s.receive(client).size() == 3 * (null_reply + 8));
        BOOST_REQUIRE(s.program.kept.size() == parts.size());
        for (std::size_t i = 0; i < parts.size(); ++i) {
            bytes all;
            for (const auto piece : s.program.kept[i].pieces())
                append(all, piece);
            BOOST_TEST((all == parts[i]));
        }
        s.program.kept.clear();
    }
    BOOST_TEST(s.program.joined == 0);
    s.turns();
    BOOST_TEST(s.pool.outstanding() == 0);
}

// As a call is that is to be compared with its repeat. What lies behind the border is short, or longer than what is joined at first.
BOOST_AUTO_TEST_CASE(arguments_in_two_buffers_may_be_read_once_more)
{
    for (const std::size_t size : {200u, 30'000u}) {
        served_streams s;
        auto client = s.connect();
        bytes arguments = opaque(64'400, 'p');
        const bytes item = opaque(size, 'i');
        append(arguments, item);
        s.send(client, framed(call_of(1, 19, arguments)));
        const auto reply = s.receive(client);
        BOOST_REQUIRE(reply.size() == null_reply + 2 * item.size());
        BOOST_TEST(std::equal(item.begin(), item.end(), reply.begin() + null_reply));
        BOOST_TEST(std::equal(item.begin(), item.end(), reply.end() - std::ptrdiff_t(item.size())));
        // What was joined is there still.
        BOOST_TEST(s.program.joined == (size > 4096 ? 3 : 2));
        BOOST_TEST(s.server->stats().payload_copied_bytes.value() <= 2 * (size + 4096));
    }
}

// The owner of a payload may be anybody.
BOOST_AUTO_TEST_CASE(a_stored_value_is_sent_from_where_it_is)
{
    served_streams s;
    auto client = s.connect();
    for (const std::size_t size : {0u, 256u, 5'000u, 1u << 20}) {
        const auto value = std::make_shared<const bytes>(size, std::byte('s'));
        s.program.stored = value;
        s.send(client, framed(call_of(1, 14)));
        s.turns();
        s.program.stored.reset(); // whoever keeps it forgets it
        const auto reply = s.receive(client);
        const auto expected = opaque(size, 's');
        BOOST_REQUIRE(reply.size() == null_reply + expected.size());
        BOOST_TEST(std::equal(expected.begin(), expected.end(), reply.begin() + null_reply));
        BOOST_TEST(value.use_count() == 1);
    }
    BOOST_TEST(s.server->stats().payload_copied_bytes.value() == 256u);
    // One that nobody takes stays, and no buffer nor call with it.
    auto value = std::make_shared<const bytes>(8 << 20, std::byte('s'));
    s.program.stored = value;
    s.send(client, framed(call_of(1, 14)));
    s.turns();
    s.program.stored.reset();
    BOOST_TEST(value.use_count() == 2);
    BOOST_TEST(s.server->stats().calls_in_flight.value() == 0);
    BOOST_TEST(s.pool.outstanding() <= 2u); // of the stream: what its head was gathered in, and to receive in
    client.reset();
    s.turns();
    BOOST_TEST(value.use_count() == 1);
}

// Several calls that hold data and wait could wait for what the others hold.
BOOST_AUTO_TEST_CASE(a_call_that_holds_data_waits_for_no_more_memory)
{
    virtual_clock clock;
    served_streams s({}, &clock, std::size_t(8) << 20);
    const auto ask = [&](bool holds) {
        s.program.stored = holds ? std::make_shared<const bytes>(5'000, std::byte('s')) : nullptr;
        auto client = s.connect();
        s.send(client, framed(call_of(1, 16)));
        s.turns();
    };
    ask(true);
    BOOST_TEST(s.program.rooms_refused == 1);
    ask(false);
    BOOST_TEST(s.program.rooms_refused == 1); // this one waits
    clock.advance(buffer_pool::call_patience + 1s);
    s.turns();
    BOOST_TEST(s.program.rooms_refused == 2);
    BOOST_TEST(s.program.rooms_given == 0);
}

BOOST_AUTO_TEST_CASE(results_out_of_a_file)
{
    served_streams s;
    auto client = s.connect();
    s.program.file.reset(std::tmpfile(), [](std::FILE* f) { std::fclose(f); });
    BOOST_REQUIRE(s.program.file);
    constexpr std::size_t in_file = (1u << 20) + 5;
    const bytes content(in_file, std::byte('f'));
    BOOST_REQUIRE(std::fwrite(content.data(), 1, in_file, s.program.file.get()) == in_file);
    BOOST_REQUIRE(std::fflush(s.program.file.get()) == 0);
    std::uint32_t xid = 0;
    for (const std::uint32_t size : {1u, 65536u, 65537u, 1u << 20}) {
        bytes argument;
        append_u32(argument, size);
        // Behind it one from memory, so that what follows the file is seen to be in its place.
        bytes both = framed(call_of(++xid, 10, argument));
        append(both, framed(call_of(++xid, 4, argument)));
        s.send(client, both);
        auto expected = opaque(size, 'f');
        append(expected, bytes(null_reply));
        append(expected, opaque(size, 'r'));
        const auto reply = s.receive(client, null_reply + expected.size());
        BOOST_REQUIRE(reply.size() == null_reply + expected.size());
        const std::size_t first = opaque(size).size();
        BOOST_TEST(xdr::load_u32(reply.data()) == 0x80000000u + null_reply + first - 4);
        BOOST_TEST(std::equal(expected.begin(), expected.begin() + std::ptrdiff_t(first),
                              reply.begin() + null_reply));
        BOOST_TEST(std::equal(expected.end() - std::ptrdiff_t(first), expected.end(),
                              reply.end() - std::ptrdiff_t(first)));
    }
    // A file that became shorter after its length was told: no other bytes take their place. The connection ends, and the client asks again.
    constexpr std::size_t left = 70'000;
    for (const std::size_t size : {left, std::size_t(0)}) {
        BOOST_REQUIRE(::ftruncate(fileno(s.program.file.get()), off_t(size)) == 0);
        client = s.connect();
        const std::uint64_t lost = s.server->stats().ended[std::size_t(rpc::stream_end::lost)].value();
        bytes argument;
        append_u32(argument, 1u << 20);
        s.send(client, framed(call_of(++xid, 10, argument)));
        const auto reply = s.receive(client);
        BOOST_TEST_REQUIRE(reply.size() == null_reply + 4 + size);
        const auto data = std::span(reply).subspan(null_reply + 4);
        BOOST_TEST(std::ranges::count(data, std::byte('f')) == std::ptrdiff_t(size));
        BOOST_TEST(s.server->stats().ended[std::size_t(rpc::stream_end::lost)].value() == lost + 1);
    }
    BOOST_TEST(s.program.file.use_count() == 1);
    BOOST_TEST(s.pool.outstanding() == 0);
}

// sendfile(2) would raise SIGPIPE, which ends this test.
BOOST_AUTO_TEST_CASE(a_peer_that_goes_while_a_file_is_sent)
{
    served_streams s;
    auto client = s.connect();
    s.program.file.reset(std::tmpfile(), [](std::FILE* f) { std::fclose(f); });
    BOOST_REQUIRE(s.program.file);
    BOOST_REQUIRE(::ftruncate(fileno(s.program.file.get()), 1 << 20) == 0);
    bytes argument;
    append_u32(argument, 1u << 20);
    s.send(client, framed(call_of(1, 10, argument)));
    BOOST_REQUIRE(s.receive(client, 1000).size() == 1000);
    client.reset();
    s.turns();
    BOOST_TEST(s.server->stats().connections.value() == 0);
    BOOST_TEST(s.program.file.use_count() == 1);
}

namespace {

int calls_told = 0;
int error_told = 0;
const void* owner_told = nullptr;

} // namespace

BOOST_AUTO_TEST_CASE(who_gave_a_file_is_told_how_it_was_sent)
{
    const auto send = [](const char* mode, bool all) {
        served_streams s;
        auto client = s.connect();
        std::shared_ptr<std::FILE> file(std::fopen("/proc/self/exe", "r"),
                                        [](std::FILE* f) { std::fclose(f); });
        if (*mode == 'w')
            file.reset(std::fopen("/dev/null", "w"), [](std::FILE* f) { std::fclose(f); });
        BOOST_REQUIRE(file);
        constexpr std::size_t size = std::size_t(1) << 20;
        calls_told = error_told = 0;
        const auto told = [](const void* owner, const file_send& how) noexcept {
            ++calls_told;
            error_told = how.error != 0 ? how.error : error_told;
            owner_told = owner;
            errno = 0; // is nobody else's
        };
        s.program.range = file_range(file, fileno(file.get()), 0, size, told);
        bytes argument;
        append_u32(argument, std::uint32_t(size));
        s.send(client, framed(call_of(1, 10, argument)));
        const auto reply = s.receive(client, all ? ~std::size_t(0) : 1000);
        client.reset();
        s.turns();
        BOOST_TEST(s.server->stats().connections.value() == 0);
        BOOST_TEST(calls_told != 0);
        BOOST_TEST(owner_told == file.get());
        return reply.size();
    };
    BOOST_TEST(send("r", true) == null_reply + 4 + (1u << 20));
    BOOST_TEST(error_told == 0);
    // The peer goes amid it, which says nothing of the file.
    BOOST_TEST(send("r", false) == 1000u);
    BOOST_TEST(calls_told > 1);
    BOOST_TEST(error_told == 0);
    // What may not be read. The connection ends, since its bytes were promised.
    BOOST_TEST(send("w", true) < null_reply + 4 + (1u << 20));
    BOOST_TEST(error_told == EBADF);
}

BOOST_AUTO_TEST_CASE(a_peer_that_takes_no_replies_costs_bounded_memory)
{
    served_streams s;
    auto client = s.connect();
    bytes argument;
    append_u32(argument, 1 << 20);
    s.send(client, calls_of(100, 4, argument));
    s.turns(100);
    BOOST_TEST(s.program.served <= 6);
    BOOST_TEST(s.pool.outstanding_bytes() < 10u << 20);
    BOOST_TEST(s.receive(client).size() == 100 * (null_reply + 4 + (1u << 20)));
    BOOST_TEST(s.program.served == 100);
}

BOOST_AUTO_TEST_CASE(an_idle_stream_holds_no_buffer)
{
    served_streams s;
    auto client = s.connect();
    s.send(client, calls_of(3, 0));
    BOOST_TEST(s.receive(client).size() == 3 * null_reply);
    BOOST_TEST(s.pool.outstanding() == 0);
    // nor after a call that took its time
    s.send(client, calls_of(1, 2));
    BOOST_TEST(s.pool.outstanding() == 1);
    s.program.go.set();
    BOOST_TEST(s.receive(client).size() == null_reply);
    BOOST_TEST(s.pool.outstanding() == 0);
}

BOOST_AUTO_TEST_CASE(steady_calls_allocate_nothing)
{
    served_streams s;
    auto client = s.connect();
    bytes argument;
    append_u32(argument, 65536);
    bytes stream = calls_of(20, 0);
    append(stream, calls_of(3, 3, opaque(65536)));
    append(stream, calls_of(3, 4, argument));
    append(stream, calls_of(3, 14));
    s.program.stored = std::make_shared<const bytes>(65536, std::byte('s'));
    const std::size_t expected = 20 * null_reply + 3 * (null_reply + 8) + 6 * (null_reply + 4 + 65536);
    std::vector<std::byte> sink(expected);
    std::uint64_t before = 0;
    for (int round = 0; round < 30; ++round) {
        if (round == 10)
            before = allocations.load();
        std::span<const std::byte> to_send(stream);
        std::size_t got = 0;
        for (int i = 0; i < 10'000 && got < expected; ++i) {
            const ssize_t sent = ::send(client.get(), to_send.data(), to_send.size(), MSG_NOSIGNAL);
            if (sent > 0)
                to_send = to_send.subspan(static_cast<std::size_t>(sent));
            s.shard->turn();
            const ssize_t n = ::recv(client.get(), sink.data() + got, expected - got, 0);
            if (n > 0)
                got += static_cast<std::size_t>(n);
        }
        if (got != expected)
            BOOST_REQUIRE(got == expected);
    }
    BOOST_TEST(allocations.load() - before == 0u);
}

BOOST_AUTO_TEST_CASE(bad_records_end_the_stream_alone)
{
    served_streams s;
    auto good = s.connect();
    auto too_long = s.connect();
    auto too_many = s.connect();
    s.send(too_long, from_hex("ffffffff 00000000"));
    BOOST_TEST(s.receive(too_long).empty());
    BOOST_TEST(s.closed);
    s.send(too_many, bytes(4 * (rpc::record_reader::max_fragments + 1)));
    s.receive(too_many);
    BOOST_TEST(s.closed);
    BOOST_TEST(s.ended(rpc::stream_end::record_too_long) == 1);
    BOOST_TEST(s.ended(rpc::stream_end::too_many_fragments) == 1);
    s.send(good, calls_of(1, 0));
    BOOST_TEST(s.receive(good).size() == null_reply);
    BOOST_TEST(s.server->connections() == 1);
    BOOST_TEST(s.server->stats().connections.value() == 1);
}

BOOST_AUTO_TEST_CASE(calls_before_the_end_of_a_stream_are_answered)
{
    served_streams s;
    s.program.wait_in_count = true;
    auto client = s.connect();
    s.send(client, calls_of(2, 5));
    ::shutdown(client.get(), SHUT_WR);
    s.turns();
    BOOST_TEST(s.server->connections() == 1);
    BOOST_TEST(s.program.stopped == 0); // they change something
    s.program.go.set();
    BOOST_TEST(s.receive(client).size() == 2 * (null_reply + 4));
    BOOST_TEST(s.closed);
    BOOST_TEST(s.ended(rpc::stream_end::closed_by_peer) == 1);
}

// A client that is gone looks like one that only sends no more. What its calls answer all the same is sent.
BOOST_AUTO_TEST_CASE(at_the_end_of_a_stream_calls_that_change_nothing_are_asked_to_stop)
{
    served_streams s;
    auto client = s.connect();
    s.send(client, calls_of(2, 2));
    s.turns();
    BOOST_TEST(s.program.stopped == 0);
    ::shutdown(client.get(), SHUT_WR);
    BOOST_TEST(s.receive(client).size() == 2 * null_reply);
    BOOST_TEST(s.program.stopped == 2);
    BOOST_TEST(s.closed);
    BOOST_TEST(s.ended(rpc::stream_end::closed_by_peer) == 1);
}

BOOST_AUTO_TEST_CASE(a_client_that_vanishes_stops_its_calls_but_those_that_change_something)
{
    served_streams s;
    s.program.wait_in_count = true;
    auto client = s.connect();
    s.send(client, calls_of(2, 2));
    s.send(client, calls_of(1, 5));
    s.send(client, calls_of(1, 13));
    bytes large;
    append_u32(large, 1 << 20);
    s.send(client, calls_of(1, 4, large)); // its reply waits for the client
    client.reset();
    s.turns();
    BOOST_TEST(s.program.stopped == 2);
    BOOST_TEST(s.server->stats().calls_in_flight.value() == 2);
    s.program.go.set();
    s.turns();
    BOOST_TEST(s.program.stopped == 2);
    BOOST_TEST(s.program.count == 2);
    BOOST_TEST(s.server->stats().calls_in_flight.value() == 0);
    BOOST_TEST(s.server->connections() == 0);
    BOOST_TEST(s.pool.outstanding() == 0);
}

BOOST_AUTO_TEST_CASE(time_limits)
{
    virtual_clock clock;
    served_streams s({}, &clock);
    const auto pass = [&](duration d) {
        clock.advance(d);
        s.turns(3);
    };
    auto silent = s.connect();
    auto slow = s.connect();
    auto idle = s.connect();
    auto stuck = s.connect();
    auto waiting = s.connect();
    s.send(slow, calls_of(1, 0));
    s.send(idle, calls_of(1, 0));
    bytes large;
    append_u32(large, 1 << 20);
    s.send(stuck, calls_of(4, 4, large));
    s.send(waiting, calls_of(1, 2));
    s.send(slow, from_hex("80000100 00"));
    pass(14s);
    BOOST_TEST(s.server->connections() == 5);
    pass(2s);
    BOOST_TEST(s.ended(rpc::stream_end::no_first_call) == 1);
    for (int i = 0; i < 4; ++i) { // a byte now and then does not help
        pass(10s);
        s.send(slow, from_hex("00"));
    }
    BOOST_TEST(s.server->connections() == 4);
    pass(5s);
    BOOST_TEST(s.ended(rpc::stream_end::slow_record) == 1);
    BOOST_TEST(s.ended(rpc::stream_end::output_not_taken) == 1);
    BOOST_TEST(s.server->connections() == 2);
    pass(5min);
    BOOST_TEST(s.ended(rpc::stream_end::idle) == 1);
    BOOST_TEST(s.server->connections() == 1); // a call of ours that takes long is not the peer's fault
    s.program.go.set();
    s.turns();
    BOOST_TEST(s.receive(waiting).size() == null_reply);
}

BOOST_AUTO_TEST_CASE(a_peer_that_goes_on_is_not_idle)
{
    virtual_clock clock;
    served_streams s({}, &clock);
    auto client = s.connect();
    for (int i = 0; i < 10; ++i) {
        s.send(client, calls_of(1, 0));
        BOOST_TEST(s.receive(client).size() == null_reply);
        clock.advance(5min);
        s.turns(3);
    }
    BOOST_TEST(s.server->connections() == 1);
}

namespace {

// Two are taken, a third is refused until one of them goes; another host's is meanwhile.
void takes_two(const rpc::stream_options& options, bool others)
{
    served_streams s(options);
    auto a = s.connect();
    auto b = s.connect();
    auto c = s.connect();
    s.receive(c);
    BOOST_TEST(s.closed);
    BOOST_TEST(s.ended(rpc::stream_end::refused) == 1);
    const auto served = [&s](const net::unique_fd& client) {
        s.send(client, calls_of(1, 0));
        return s.receive(client).size() == null_reply;
    };
    if (others) {
        const auto other = s.connect("192.0.2.2:1023");
        BOOST_TEST(served(other));
    }
    a.reset();
    s.turns();
    const auto d = s.connect();
    BOOST_TEST(served(d));
}

} // namespace

BOOST_AUTO_TEST_CASE(connections_have_a_limit)
{
    rpc::stream_options options;
    options.max_connections = 2;
    takes_two(options, false);
    options.max_connections = SIZE_MAX;
    options.max_peer_connections = 2;
    takes_two(options, true);
}

BOOST_AUTO_TEST_CASE(a_spent_budget_slows_streams_and_ends_none)
{
    virtual_clock clock;
    served_streams s({}, &clock, 128u << 10);
    auto a = s.connect();
    auto b = s.connect();
    lease hog = s.pool.try_acquire(128u << 10);
    BOOST_REQUIRE(hog);
    s.send(a, calls_of(3, 0));
    s.send(b, calls_of(3, 0));
    BOOST_TEST(s.receive(a).empty());
    BOOST_TEST(s.server->stats().memory_waits.value() == 2);
    hog.reset();
    clock.advance(2ms);
    BOOST_TEST(s.receive(a).size() == 3 * null_reply);
    clock.advance(2ms);
    BOOST_TEST(s.receive(b).size() == 3 * null_reply);
    BOOST_TEST(s.server->connections() == 2);
}

BOOST_AUTO_TEST_CASE(streams_without_memory_ask_less_and_less_often)
{
    virtual_clock clock;
    served_streams s({}, &clock, 128u << 10);
    auto a = s.connect();
    lease hog = s.pool.try_acquire(128u << 10);
    BOOST_REQUIRE(hog);
    s.send(a, calls_of(3, 0));
    BOOST_TEST(s.receive(a).empty());
    const auto pass = [&](int milliseconds) {
        for (int i = 0; i < milliseconds; ++i) {
            clock.advance(1ms);
            s.turns();
        }
    };
    pass(3); // after 1 ms, and 2 ms later
    BOOST_TEST(s.server->stats().memory_waits.value() == 3);
    pass(997); // 1, 2, 4, 8, 16 and 32 ms, and each 50 ms then
    BOOST_TEST(s.server->stats().memory_waits.value() == 25);
    hog.reset();
    pass(50);
    BOOST_TEST(s.receive(a).size() == 3 * null_reply);
    // The next shortage is not the last one.
    pass(100);
    hog = s.pool.try_acquire(128u << 10);
    BOOST_REQUIRE(hog);
    s.send(a, calls_of(3, 0));
    BOOST_TEST(s.receive(a).empty());
    hog.reset();
    pass(1);
    BOOST_TEST(s.receive(a).size() == 3 * null_reply);
}

BOOST_AUTO_TEST_CASE(replies_go_out_when_no_buffer_is_left_to_gather_them)
{
    served_streams s({}, nullptr, 64u << 10);
    auto client = s.connect();
    s.send(client, calls_of(20, 0)); // the call buffer takes the whole budget
    BOOST_TEST(s.receive(client).size() == 20 * null_reply);
    s.turns();
    BOOST_TEST(s.server->stats().calls_in_flight.value() == 0);
}

BOOST_AUTO_TEST_CASE(shut_down_lets_calls_finish)
{
    virtual_clock clock;
    served_streams s({}, &clock);
    auto client = s.connect();
    auto idle = s.connect();
    s.send(client, calls_of(2, 2));
    auto body = [](served_streams& streams) -> task<void> {
        const task_context& context = co_await current_context();
        scope work(*context.shard);
        auto later = [](event& e) -> task<void> {
            co_await sleep_for(5ms);
            e.set();
        };
        work.spawn([&] { return later(streams.program.go); });
        co_await streams.server->shut_down(streams.shard->clock().now() + 10s);
        co_await work.join();
    };
    run_until_complete(*s.shard, body(s));
    BOOST_TEST(s.program.stopped == 0);
    BOOST_TEST(s.receive(client).size() == 2 * null_reply);
    BOOST_TEST(s.closed);
    BOOST_TEST(s.ended(rpc::stream_end::shutdown) == 2);
    auto late = s.connect();
    s.receive(late);
    BOOST_TEST(s.closed);
}

BOOST_AUTO_TEST_CASE(shut_down_stops_calls_at_the_deadline)
{
    virtual_clock clock;
    served_streams s({}, &clock);
    auto client = s.connect();
    s.send(client, calls_of(2, 2));
    run_until_complete(*s.shard, s.server->shut_down(clock.now() + 10s));
    BOOST_TEST(s.program.stopped == 2);
    BOOST_TEST(s.receive(client).empty());
    BOOST_TEST(s.closed);
}

BOOST_AUTO_TEST_CASE(over_tcp)
{
    served_streams s;
    for (const char* where : {"127.0.0.1:0", "[::1]:0"}) {
        auto handler = [&](net::unique_fd socket, const net::endpoint& peer) {
            s.server->adopt(std::move(socket), peer);
        };
        auto listener = stream::listener::open(*s.shard, *net::endpoint::parse(where), std::move(handler));
        BOOST_REQUIRE(listener);
        BOOST_TEST((*listener)->local_url() == "tcp://" + (*listener)->where().to_string());
        for (int i = 0; i < 3; ++i) {
            auto client = net::start_connect((*listener)->where());
            BOOST_REQUIRE(client);
            // The kernel brings the connection and the calls, in its own time.
            s.send(*client, calls_of(10, 0));
            bytes replies;
            for (const time_point limit = system_clock().now() + 60s;
                 replies.size() < 10 * null_reply && system_clock().now() < limit;)
                append(replies, s.receive(*client, 10 * null_reply - replies.size()));
            BOOST_TEST(replies.size() == 10 * null_reply);
        }
        BOOST_TEST((*listener)->stats().accepted.value() == 3);
    }
}

BOOST_AUTO_TEST_SUITE_END()
