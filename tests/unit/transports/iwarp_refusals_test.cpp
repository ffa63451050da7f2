// SPDX-License-Identifier: Apache-2.0
// Bytes that no peer may send, made by hand: each is refused for its cause, told in a Terminate (RFC 5040
// 4.8) once there is a connection, and costs that connection only.
#include <boost/test/unit_test.hpp>

#include "../refusals_since.hpp"
#include "iwarp_by_hand.hpp"

#include <verbena/core/net/net.hpp>

#include <cstdio>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <vector>

BOOST_AUTO_TEST_SUITE(iwarp_refusals_test)

using namespace verbena;
using namespace verbena::iwarp_by_hand;

BOOST_FIXTURE_TEST_CASE(start_up_frames, fixture)
{
    start();
    const std::string key(request);
    start_up(from_hex("4d504120 49442052 65702046 72616d65 10020004 00010001"), end_cause::bad_startup);
    start_up(from_hex(key + "10020201"), end_cause::bad_startup); // 513 bytes
    start_up(from_hex(key + "10020003"), end_cause::bad_startup); // no room for the depths
    start_up(from_hex(key + "30020004"), end_cause::bad_startup); // a request that rejects
    start_up(from_hex(key + "00000000"), end_cause::revision_refused);
    start_up(from_hex(key + "00010000"), end_cause::revision_refused);
    start_up(from_hex(key + "00020004 00010001"), end_cause::revision_refused); // not enhanced
    start_up(from_hex(key + "90020004 00010001"), end_cause::markers_refused);
    for (std::size_t size = 1; size < good_start.size(); ++size)
        start_up(bytes(good_start.begin(), good_start.begin() + std::ptrdiff_t(size)), end_cause::peer_reset,
                 true);
    // Peer to peer with a zero-length Send only (RFC 6581 9.2); a Write or a Read would do.
    start_up(from_hex(key + "10020004 c0010001"), end_cause::peer_to_peer_refused);
    for (const char* good : {"80018001", "80014001", "80014000"}) {
        const int peer = connect();
        write(peer, from_hex(key + "10020004" + good));
        BOOST_TEST(read(peer, 24).size() == 24u);
    }
    rejects = true;
    start_up(good_start, end_cause::rejected);
}

// Five seconds, where nobody chose another time: what docs/internals/iwarp.md promises.
BOOST_FIXTURE_TEST_CASE(start_up_takes_no_longer_than_it_may, fixture)
{
    BOOST_TEST((options.startup_timeout == 5s));
    start();
    const int silent = connect();
    const int slow = connect();
    const int late = connect();
    write(slow, from_hex("4d50"));
    shard->turn();
    clock.advance(5s - 10ms);
    for (int i = 0; i < 5; ++i)
        shard->turn();
    BOOST_TEST(ends(end_cause::startup_timeout) == 0u);
    // Bytes give no more time, but a whole frame is in time until then.
    write(slow, from_hex("4120"));
    write(late, good_start);
    BOOST_TEST(read(late, 24).size() == 24u);
    clock.advance(10ms);
    shard->turn();
    BOOST_TEST(ends(end_cause::startup_timeout) == 2u);
    BOOST_TEST(read(silent, 1).empty());
    BOOST_TEST(read(slow, 1).empty());
}

BOOST_FIXTURE_TEST_CASE(start_up_has_room_for_so_many, fixture)
{
    options.max_starting = 2;
    options.max_waiting = 1;
    const test::refusals_since refusals;
    start(false);
    const int oldest = connect();
    const int second = connect();
    const int third = connect();
    BOOST_TEST(ends(end_cause::startup_crowded) == 1u);
    BOOST_TEST(refusals(verbena::refused::connection_handshakes) == 1u);
    BOOST_TEST(read(oldest, 1).empty());
    write(second, good_start);
    shard->turn();
    write(third, good_start);
    until([&] { return ends(end_cause::waiting_crowded) == 1; });
    BOOST_TEST(refusals(verbena::refused::connection_waiting) == 1u);
    // Those that wait are closed with their listener.
    const int last = connect();
    listener->close();
    BOOST_TEST(read(last, 1).empty());
    BOOST_TEST(read(second, 1).empty());
}

// A peer for whom no descriptor is left waits in the system's queue, where it keeps the listener readable.
BOOST_FIXTURE_TEST_CASE(accepting_pauses_when_descriptors_run_out, fixture)
{
    start(false);
    const auto by_tcp = std::move(*provider->listen("127.0.0.1:0"));
    const std::string where = by_tcp->local_url().substr(std::string_view("iwarp://").size());
    for (int i = 0; i < 5; ++i)
        shard->turn();
    rlimit before{};
    BOOST_REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    const net::unique_fd peer = std::move(*net::start_connect(*net::endpoint::parse(where)));
    const rlimit none{rlim_t(peer.get()), before.rlim_max};
    BOOST_REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    int worked = 0;
    for (int i = 0; i < 1000; ++i)
        worked += shard->turn() ? 1 : 0;
    const bool restored = ::setrlimit(RLIMIT_NOFILE, &before) == 0;
    BOOST_REQUIRE(restored);
    BOOST_TEST(worked < 10);
    BOOST_TEST(provider->counters().accepted == 0u);
    clock.advance(100ms);
    until([&] { return provider->counters().accepted == 1; });
    by_tcp->close();
}

BOOST_FIXTURE_TEST_CASE(segments, fixture)
{
    start();
    constexpr auto protocol = end_cause::protocol_error;
    const std::string zero = "00000000";
    const auto untagged = [&](const char* control, const char* queue, const char* sequence,
                              const char* offset, std::size_t payload) {
        return fpdu(std::string(control) + zero + queue + sequence + offset, payload);
    };
    // Too short for what they are.
    refused(fpdu("c140 00000001 00000000 00000000", 0, 13), protocol, "2003");
    refused(fpdu("4143 00000000 00000000", 8, 17), protocol, "2003");
    refused(untagged("4141", "00000001", "00000001", "00000000", 10), protocol, "2003");
    // The same with nothing behind the FPDU; which header it lacks can't be known below 14 bytes.
    const std::string write_header = "c14000000001" + zero + zero;
    for (std::size_t size = 0; size < 14; ++size)
        refused(fpdu(write_header.substr(0, 2 * size)), protocol, "2003");
    const std::string send_header = "4143" + zero + zero + "00000001" + zero;
    for (std::size_t size = 14; size < 18; ++size)
        refused(fpdu(send_header.substr(0, 2 * size)), protocol, "2003");
    // Versions and opcodes.
    refused(untagged("4043", "00000000", "00000001", "00000000", 4), protocol, "1206");
    refused(fpdu("c240 00000001 00000000 00000000"), protocol, "1104");
    refused(untagged("4183", "00000000", "00000001", "00000000", 4), protocol, "0205");
    refused(untagged("4140", "00000000", "00000001", "00000000", 4), protocol, "0206");
    refused(untagged("414f", "00000000", "00000001", "00000000", 4), protocol, "0206");
    refused(fpdu("c143 00000001 00000000 00000000", 4), protocol, "0206");
    // Queues, sequence and offset.
    refused(untagged("4143", "00000001", "00000001", "00000000", 4), protocol, "1201");
    refused(untagged("4143", "00000000", "00000002", "00000000", 4), protocol, "1203");
    refused(untagged("4143", "00000000", "00000001", "00000004", 4), protocol, "1204");
    refused(untagged("4143", "00000000", "00000001", "00000000", 101), end_cause::no_receive, "1202");
    refused(untagged("4143", "00000000", "00000001", "00000000", 4) +
                untagged("4143", "00000000", "00000002", "00000000", 4),
            end_cause::no_receive, "1202");
    // One octet more than its receive holds, however it is cut.
    for (const std::size_t first : {1u, 60u, 99u, 100u}) {
        char offset[9];
        std::snprintf(offset, sizeof offset, "%08zx", first);
        refused(untagged("0143", "00000000", "00000001", "00000000", first) +
                    untagged("4143", "00000000", "00000001", offset, 101 - first),
                end_cause::no_receive, "1202");
    }
    // Invalidation of tag 0, and of one that is nobody's.
    refused(untagged("4144", "00000000", "00000001", "00000000", 4), end_cause::access_error, "0109");
    refused(fpdu("4144 00000007 00000000 00000001 00000000", 4), end_cause::access_error, "0109");
    // RDMA Reads: another queue, out of order, with a payload, of memory that isn't granted, more than IRD.
    const auto read = [&](const char* queue, const char* sequence, std::size_t more) {
        return untagged("4141", queue, sequence, "00000000", 28 + more);
    };
    refused(read("00000000", "00000001", 0), protocol, "1201");
    refused(read("00000001", "00000002", 0), protocol, "1203");
    refused(read("00000001", "00000001", 4), protocol, "2003");
    refused(fpdu("4141" + zero +
                 "00000001 00000001 00000000 00000001 00000000 00000000 00000004 00000007 "
                 "00000000 00000000"),
            end_cause::access_error, "0100");
    refused(read("00000001", "00000001", 0) + read("00000001", "00000002", 0), protocol, "1202");
    // A Terminate on another queue, and one that is too long.
    refused(untagged("4147", "00000000", "00000001", "00000000", 4), protocol, "1201");
    refused(untagged("4147", "00000002", "00000001", "00000000", 100), protocol, "1205");
    // Writes to nobody's tag; segments of one message that do not follow each other.
    refused(fpdu("c140 00000007 00000000 00000000", 4), end_cause::access_error, "1100");
    refused(fpdu("8140 00000007 00000000 00000000") + fpdu("c140 00000007 00000000 00000004", 4), protocol,
            "1101");
    refused(fpdu("c142 00000007 00000000 00000000", 4), protocol, "0206");
}

// An FPDU that has begun is whole within its time, wherever it stops and however slowly it comes.
BOOST_FIXTURE_TEST_CASE(an_fpdu_takes_no_longer_than_it_may, fixture)
{
    BOOST_TEST((iwarp::options().fpdu_limit == 60s));
    start();
    const bytes whole = fpdu("4143 00000000 00000000 00000001 00000000", 50);
    for (const std::size_t size :
         {std::size_t(1), std::size_t(10), std::size_t(19), std::size_t(40), whole.size() - 2}) {
        const auto before = ends(end_cause::slow_fpdu);
        const int peer = connect();
        write(peer, good_start);
        BOOST_TEST(read(peer, 24).size() == 24u);
        clock.advance(2 * options.fpdu_limit); // idle
        shard->turn();
        arrives(peer, bytes(whole.begin(), whole.begin() + std::ptrdiff_t(size)));
        clock.advance(options.fpdu_limit - 10ms);
        arrives(peer, bytes(whole.begin() + std::ptrdiff_t(size), whole.begin() + std::ptrdiff_t(size + 1)));
        BOOST_TEST(ends(end_cause::slow_fpdu) == before);
        clock.advance(10ms);
        until([&] { return ends(end_cause::slow_fpdu) == before + 1 && handler.ended; });
        BOOST_TEST(read(peer, 1).empty());
    }
    BOOST_TEST(all_ends() == 5u);
}

// This process stood still meanwhile: the rest came in time, and nobody looked.
BOOST_FIXTURE_TEST_CASE(an_fpdu_whose_end_waits_in_the_socket_is_not_late, fixture)
{
    start();
    const int peer = connect();
    write(peer, good_start);
    BOOST_TEST(read(peer, 24).size() == 24u);
    const bytes nothing_written = fpdu("c140 00000007 00000000 00000000");
    const bytes begun(nothing_written.begin(), nothing_written.begin() + 10);
    const bytes rest(nothing_written.begin() + 10, nothing_written.end());
    arrives(peer, begun);
    // The next one has begun as well, and has its own time.
    for (int i = 0; i < 2; ++i) {
        write(peer, rest + begun);
        clock.advance(options.fpdu_limit);
        for (int turn = 0; turn < 3; ++turn)
            shard->turn();
        BOOST_TEST(all_ends() == 0u);
        BOOST_TEST(queue_pair->connected());
    }
    clock.advance(options.fpdu_limit);
    until([&] { return ends(end_cause::slow_fpdu) == 1 && handler.ended; });
}

BOOST_FIXTURE_TEST_CASE(fpdus_that_are_whole_in_time_may_go_on_for_ever, fixture)
{
    start();
    const int peer = connect();
    write(peer, good_start);
    BOOST_TEST(read(peer, 24).size() == 24u);
    const bytes nothing_written = fpdu("c140 00000007 00000000 00000000");
    for (int i = 0; i < 5; ++i) {
        // The end of one and the beginning of the next come together.
        arrives(peer, bytes(nothing_written.begin() + (i == 0 ? 0 : 10), nothing_written.end()) +
                          bytes(nothing_written.begin(), nothing_written.begin() + 10));
        clock.advance(options.fpdu_limit * 3 / 4);
        for (int turn = 0; turn < 3; ++turn)
            shard->turn();
    }
    BOOST_TEST(all_ends() == 0u);
    BOOST_TEST(queue_pair->connected());
}

BOOST_FIXTURE_TEST_CASE(answers_to_a_read, fixture)
{
    reads = true;
    start();
    struct wrong {
        const char* what;
        std::function<bytes(const std::string&)> answer;
        end_cause cause;
        const char* code;
    };
    // Tag and offset of `s`, `n` octets on.
    const auto behind = [](std::string s, std::uint64_t n) {
        std::erase(s, ' ');
        char offset[17];
        std::snprintf(offset, sizeof offset, "%016llx",
                      static_cast<unsigned long long>(std::stoull(s.substr(8), nullptr, 16) + n));
        return s.substr(0, 8) + offset;
    };
    const std::vector<wrong> all = {
        {"somewhere else", [&](const std::string& s) { return fpdu("c142" + behind(s, 4), 100); },
         end_cause::access_error, "1100"},
        {"too long in two parts",
         [&](const std::string& s) { return fpdu("8142" + s, 60) + fpdu("c142" + behind(s, 60), 41); },
         end_cause::access_error, "1101"},
        {"too short in two parts",
         [&](const std::string& s) { return fpdu("8142" + s, 60) + fpdu("c142" + behind(s, 60), 39); },
         end_cause::protocol_error, "1101"},
        {"with a gap",
         [&](const std::string& s) { return fpdu("8142" + s, 60) + fpdu("c142" + behind(s, 61), 39); },
         end_cause::protocol_error, "1101"},
        {"another tag", [](const std::string& s) { return fpdu("c142 00000000" + s.substr(8), 100); },
         end_cause::access_error, "1100"},
        {"too long", [](const std::string& s) { return fpdu("c142" + s, 101); }, end_cause::access_error,
         "1101"},
        {"too short", [](const std::string& s) { return fpdu("c142" + s, 99); }, end_cause::protocol_error,
         "1101"},
        {"whole, but not the last", [](const std::string& s) { return fpdu("8142" + s, 100); },
         end_cause::protocol_error, "1101"},
    };
    for (const auto& a : all) {
        BOOST_TEST_CONTEXT(a.what)
        {
            on_read = a.answer;
            refused({}, a.cause, a.code);
        }
    }
}

// RFC 5040 6.1: only between messages is a close orderly.
BOOST_FIXTURE_TEST_CASE(a_peer_that_closes_inside_a_message, fixture)
{
    start();
    const bytes send = fpdu("4143 00000000 00000000 00000001 00000000", 50);
    const bytes first_of_send = fpdu("0143 00000000 00000000 00000001 00000000", 50);
    const bytes first_of_write = fpdu("8140 00000007 00000000 00000000");
    const bytes write_of_nothing = fpdu("c140 00000007 00000000 00000000");
    struct {
        bytes before;
        end_cause expected;
    } const all[] = {
        {{}, end_cause::orderly},
        {send, end_cause::orderly},
        {write_of_nothing, end_cause::orderly},
        {first_of_write + write_of_nothing, end_cause::orderly},
        {bytes(send.begin(), send.begin() + 1), end_cause::peer_reset},
        {bytes(send.begin(), send.end() - 1), end_cause::peer_reset},
        {first_of_send, end_cause::peer_reset},
        {first_of_write, end_cause::peer_reset},
    };
    for (const auto& a : all) {
        BOOST_TEST_CONTEXT(to_hex(a.before) << ", " << iwarp::to_string(a.expected))
        {
            const auto before = ends(a.expected);
            const auto all_before = all_ends();
            const int peer = connect();
            write(peer, good_start);
            BOOST_TEST(read(peer, 24).size() == 24u);
            if (!a.before.empty())
                arrives(peer, a.before);
            ::shutdown(peer, SHUT_WR);
            until([&] { return all_ends() == all_before + 1 && handler.ended; });
            BOOST_TEST(ends(a.expected) == before + 1);
        }
    }
}

BOOST_FIXTURE_TEST_CASE(a_wrong_crc, fixture)
{
    options.crc = iwarp::crc_mode::on;
    start();
    refused(fpdu("4143 00000000 00000000 00000001 00000000", 4), end_cause::crc_error, "2002");
}

// Its descriptor is somebody else's by then.
BOOST_FIXTURE_TEST_CASE(a_request_whose_queue_pair_ended_answers_on_no_descriptor, fixture)
{
    start(false);
    unsigned answered = 0;
    const auto answer = [](fixture& f, unsigned& done) -> task<void> {
        for (const bool destroyed : {false, true}) {
            auto next = co_await f.listener->next();
            BOOST_REQUIRE(next);
            auto made = co_await (*next)->make_queue_pair(*f.domain, verbs::queue_pair_options());
            BOOST_REQUIRE(made);
            if (destroyed)
                made->reset();
            else
                (*made)->kill(error(std::errc::operation_canceled, "a test"));
            int others[2];
            BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, others) == 0);
            const result<void> accepted = co_await (*next)->accept(verbs::connect_options());
            BOOST_TEST((!accepted && accepted.error() == std::errc::connection_aborted));
            std::byte b;
            for (const int fd : others)
                BOOST_TEST(::recv(fd, &b, 1, MSG_DONTWAIT) == -1);
            for (const int fd : others)
                ::close(fd);
            ++done;
        }
    };
    tasks->spawn([&] { return answer(*this, answered); });
    for (unsigned i = 1; i <= 2; ++i) {
        write(connect(), good_start);
        until([&] { return answered == i; });
    }
    BOOST_TEST(provider->counters().active == 0u);
}

BOOST_FIXTURE_TEST_CASE(answers_that_a_service_may_not_give, fixture)
{
    start(false);
    unsigned answered = 0;
    const auto answer = [](fixture& f, unsigned& done) -> task<void> {
        const std::vector<std::byte> long_data(f.provider->query().max_private_data + 1);
        auto first = co_await f.listener->next();
        BOOST_REQUIRE(first);
        verbs::connect_options o;
        const result<void> early = co_await (*first)->accept(o);
        BOOST_TEST((!early && early.error() == std::errc::invalid_argument));
        const result<void> longer = co_await (*first)->reject(long_data);
        BOOST_TEST((!longer && longer.error() == std::errc::message_size));
        ++done;
        auto second = co_await f.listener->next();
        BOOST_REQUIRE(second);
        auto made = co_await (*second)->make_queue_pair(*f.domain, verbs::queue_pair_options());
        BOOST_REQUIRE(made);
        const auto again = co_await (*second)->make_queue_pair(*f.domain, verbs::queue_pair_options());
        BOOST_TEST((!again && again.error() == std::errc::invalid_argument));
        const result<void> late = co_await (*second)->reject(nothing);
        BOOST_TEST((!late && late.error() == std::errc::invalid_argument));
        // The peer went away before the answer.
        const result<void> gone = co_await (*second)->accept(o);
        BOOST_TEST((!gone && gone.error() == std::errc::broken_pipe));
        BOOST_TEST(!(*made)->connected());
        ++done;
        const auto third = co_await f.listener->next();
        BOOST_TEST((!third && third.error() == std::errc::operation_canceled));
        ++done;
    };
    write(connect(), good_start);
    tasks->spawn([&] { return answer(*this, answered); });
    until([&] { return answered == 1; });
    const int impatient = connect();
    write(impatient, good_start);
    BOOST_TEST(::shutdown(impatient, SHUT_RD) == 0);
    until([&] { return answered == 2; });
    tasks->request_stop();
    until([&] { return answered == 3; });
}

// As a service whose shards share the peers has it: one context reads the request, another one serves.
BOOST_FIXTURE_TEST_CASE(a_peer_is_looked_at_and_moved_behind_its_request, fixture)
{
    const auto other = iwarp::make_context(*shard, options);
    const auto elsewhere = std::move(*other->listen_adopted("iwarp://elsewhere"));
    std::string said;
    bool moves = false;
    options.divert = [&](std::unique_ptr<verbs::arrival>& peer, verbs::listener& where) {
        BOOST_TEST(&where == listener.get());
        said = to_hex(peer->private_data());
        if (moves)
            other->adopt(std::move(peer), *elsewhere);
    };
    start();
    const auto arrives = [&](std::string_view private_data) {
        said.clear();
        const int peer = connect();
        write(peer, from_hex(std::string(request) + "10020006 00010001" + std::string(private_data)));
        until([&] { return !said.empty(); });
        BOOST_TEST(said == private_data);
        return peer;
    };
    BOOST_TEST(read(arrives("0007"), 24).size() == 24u); // left alone: served here
    moves = true;
    const int moved = arrives("0008");
    std::unique_ptr<verbs::connect_request> taken;
    tasks->spawn([&]() -> task<void> {
        auto next = co_await elsewhere->next();
        BOOST_REQUIRE(next);
        taken = std::move(*next);
    });
    until([&] { return taken != nullptr; });
    BOOST_TEST(to_hex(taken->private_data()) == "0008");
    elsewhere->close();
    arrives("0009"); // its listener takes nobody in any more
    BOOST_TEST(read(peers.back(), 24).empty());
    tasks->spawn([&]() -> task<void> {
        const auto rejected = co_await taken->reject(nothing);
        BOOST_TEST(rejected.has_value());
    });
    BOOST_TEST(read(moved, 24).size() == 24u);
    BOOST_TEST(other->counters().ends[std::size_t(end_cause::rejected)].load() == 1u);
    BOOST_TEST(ends(end_cause::rejected) == 0u);
}

// As it may for lack of memory.
BOOST_FIXTURE_TEST_CASE(an_exception_costs_one_peer, fixture)
{
    unsigned asked = 0;
    options.divert = [&](std::unique_ptr<verbs::arrival>&, verbs::listener&) {
        if (++asked == 1)
            throw std::bad_alloc();
    };
    start();
    const int first = connect();
    write(first, good_start);
    BOOST_TEST(read(first, 24).empty());
    BOOST_TEST(ends(end_cause::setup_failed) == 1u);
    const int second = connect();
    write(second, good_start);
    BOOST_TEST(read(second, 24).size() == 24u);
}

BOOST_AUTO_TEST_SUITE_END()
