// SPDX-License-Identifier: Apache-2.0
// What a connection is doing, and what ends it in each state: docs/internals/iwarp.md.
#include <boost/test/unit_test.hpp>

#include "../state_trace.hpp"
#include "iwarp_by_hand.hpp"

#include <verbena/core/net/net.hpp>

#include <array>
#include <cerrno>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

BOOST_AUTO_TEST_SUITE(iwarp_states_test)

using namespace verbena;
using namespace verbena::iwarp_by_hand;

namespace {

const bytes send_1 = fpdu("4143 00000000 00000000 00000001 00000000", 50);
const bytes first_of_send_1 = fpdu("0143 00000000 00000000 00000001 00000000", 50);
const bytes terminate = fpdu("4147 00000000 00000002 00000001 00000000", 4);

struct watched : with_grants {
    std::string trace() { return test::state_trace(*shard, "iWARP connection"); }
    void send()
    {
        verbs::send_request r;
        r.id = 7;
        r.opcode = verbs::opcode::send;
        const verbs::segment s{memory.data(), 10, 0};
        r.segments = {&s, 1};
        BOOST_REQUIRE(queue_pair->post_send({&r, 1}));
    }
    void turns(int count = 5)
    {
        for (int i = 0; i < count; ++i)
            shard->turn();
    }
    // Within some turns: what may never come is not waited for.
    bool soon(const std::function<bool()>& done)
    {
        for (int i = 0; i < 1000; ++i) {
            if (done())
                return true;
            shard->turn();
        }
        return false;
    }
};

// Receives of a supply that has so many of them.
struct supplied : watched, verbs::receive_supply {
    void supply(bool reading = false)
    {
        reads = reading;
        start(false);
        verbs::shared_receive_queue_options o;
        o.supply = this;
        const auto make = [](supplied& f, verbs::shared_receive_queue_options with) -> task<void> {
            auto made = co_await f.domain->make_shared_receive_queue(with);
            BOOST_REQUIRE(made);
            f.shared = std::move(*made);
        };
        tasks->spawn([&] { return make(*this, o); });
        until([&] { return shared != nullptr; });
        tasks->spawn([&] { return serve(); });
    }
    ~supplied() { queue_pair.reset(); }
    void receive_wanted() noexcept override
    {
        ++wanted;
        if (left == 0)
            return;
        --left;
        post();
    }
    void receive_returned(std::uint64_t) noexcept override { ++left; }
    void post()
    {
        const verbs::receive_request r{1, {memory.data(), 100, 0}};
        BOOST_REQUIRE(shared->post_receive({&r, 1}));
    }
    int parked()
    {
        const int peer = connected();
        write(peer, send_1);
        until([&] { return wanted != 0; });
        turns();
        BOOST_TEST(handler.seen.empty());
        return peer;
    }
    unsigned left = 0;
    unsigned wanted = 0;
};

// Over TCP, which knows resets.
struct over_tcp : watched {
    int connected_by_tcp()
    {
        start(false);
        listener = std::move(*provider->listen("127.0.0.1:0"));
        tasks->spawn([&] { return serve(); });
        const std::string where = listener->local_url().substr(std::string_view("iwarp://").size());
        const int peer = net::start_connect(*net::endpoint::parse(where))->release();
        peers.push_back(peer);
        write(peer, good_start);
        BOOST_TEST(read(peer, 24).size() == 24u);
        return peer;
    }
    // What it finds behind the last octet: 0 for a FIN, else an errno.
    int end_of(int peer)
    {
        int found = -1;
        until([&] {
            std::byte b;
            const ssize_t n = ::recv(peer, &b, 1, MSG_DONTWAIT);
            if (n == 0)
                found = 0;
            else if (n < 0 && errno != EAGAIN)
                found = errno;
            return found >= 0;
        });
        return found;
    }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(an_orderly_end, watched)
{
    start();
    const int peer = connected();
    BOOST_TEST(trace() == "starting, open (both ends have agreed)");
    queue_pair->disconnect();
    BOOST_TEST(read(peer, 1).empty());
    ::shutdown(peer, SHUT_WR);
    until([&] { return handler.ended; });
    BOOST_TEST(trace() == "starting, open (both ends have agreed), draining (disconnect()), "
                          "closing (everything is out), closed (orderly)");
    BOOST_TEST(shard->stats().illegal_transitions.load() == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_peer_that_breaks_a_rule, watched)
{
    start();
    const int peer = connected();
    write(peer, fpdu("4143 00000000 00000000 00000002 00000000", 4));
    BOOST_TEST(!read(peer, 24).empty());
    ::shutdown(peer, SHUT_WR);
    until([&] { return handler.ended; });
    BOOST_TEST(trace() == "starting, open (both ends have agreed), refusing (message sequence number out of "
                          "order), terminating (the Terminate is next), closing (everything is out), "
                          "closed (protocol_error)");
}

// Both ends find a fault: each tells its own.
BOOST_FIXTURE_TEST_CASE(a_terminate_that_meets_another_one, watched)
{
    start();
    const int peer = connected();
    arrives(peer, fpdu("4143 00000000 00000000 00000002 00000000", 4) + terminate);
    const bytes head = read(peer, 24);
    BOOST_REQUIRE(head.size() == 24u);
    BOOST_TEST(to_hex(std::span(head).subspan(2, 2)) == "4147");
    ::shutdown(peer, SHUT_WR);
    until([&] { return handler.ended; });
    BOOST_TEST(ends(end_cause::protocol_error) == 1u);
    BOOST_TEST(all_ends() == 1u);
}

// This end was about to close, but what it had sent failed.
BOOST_FIXTURE_TEST_CASE(a_terminate_while_this_end_drains, watched)
{
    start();
    const int peer = connected();
    send(); // waits for the peer's first FPDU, and the end with it
    queue_pair->disconnect();
    turns();
    write(peer, terminate);
    until([&] { return handler.ended; });
    BOOST_TEST(ends(end_cause::peer_terminate) == 1u);
    BOOST_TEST(all_ends() == 1u);
    BOOST_REQUIRE(handler.seen.size() == 2u);
    BOOST_TEST((handler.seen[0].status == verbs::status::remote_access_error));
}

// The socket refuses to send before anybody has read why.
BOOST_FIXTURE_TEST_CASE(a_terminate_before_a_reset_is_heard, watched)
{
    start();
    const int peer = connected();
    bool done = false;
    handler.then = [&] {
        if (!std::exchange(done, true)) {
            write(peer, terminate);
            ::shutdown(peer, SHUT_RD);
            send();
        }
    };
    write(peer, send_1);
    until([&] { return handler.ended; });
    BOOST_TEST(ends(end_cause::peer_terminate) == 1u);
    BOOST_TEST(all_ends() == 1u);
}

// Half of a message is no message, and no fault of the peer's.
BOOST_FIXTURE_TEST_CASE(an_orderly_end_inside_a_message, watched)
{
    start();
    const int peer = connected();
    arrives(peer, first_of_send_1);
    queue_pair->disconnect();
    BOOST_TEST(read(peer, 1).empty());
    arrives(peer, fpdu("4143 00000000 00000000 00000001 00000032", 50)); // the rest
    ::shutdown(peer, SHUT_WR);
    until([&] { return handler.ended; });
    BOOST_TEST(ends(end_cause::orderly) == 1u);
    BOOST_REQUIRE(handler.seen.size() == 1u);
    BOOST_TEST((handler.seen[0].status == verbs::status::work_request_flushed));
}

// It has said what it wants, and goes before the service has answered.
BOOST_FIXTURE_TEST_CASE(a_fin_before_start_up_is_over, watched)
{
    start(false);
    const int peer = connect();
    write(peer, good_start);
    ::shutdown(peer, SHUT_WR);
    turns();
    BOOST_TEST(all_ends() == 0u);
    tasks->spawn([&] { return serve(); });
    until([&] { return queue_pair && handler.ended; });
    BOOST_TEST(ends(end_cause::orderly) == 1u);
    BOOST_TEST(provider->counters().active == 0u);
    BOOST_TEST(trace() == "starting, open (both ends have agreed), closed (orderly)");
}

// A FIN between two messages would say that all is well.
BOOST_AUTO_TEST_CASE(what_was_posted_and_has_not_gone_out_ends_with_a_reset)
{
    for (const bool killed : {true, false}) {
        over_tcp f;
        const int peer = f.connected_by_tcp();
        f.send(); // waits for the peer's first FPDU
        f.queue_pair->disconnect();
        f.turns();
        if (killed)
            f.queue_pair->kill(error(std::errc::operation_canceled, "a test"));
        else
            f.clock.advance(f.options.close_timeout);
        BOOST_TEST(f.end_of(peer) == ECONNRESET);
        f.until([&] { return f.handler.ended; });
        BOOST_TEST(f.ends(end_cause::orderly) == 1u); // as it began
    }
}

BOOST_FIXTURE_TEST_CASE(an_fpdu_that_takes_too_long_ends_with_a_reset, over_tcp)
{
    const int peer = connected_by_tcp();
    arrives(peer, bytes(send_1.begin(), send_1.begin() + 10));
    clock.advance(options.fpdu_limit);
    BOOST_TEST(end_of(peer) == ECONNRESET);
    BOOST_TEST(ends(end_cause::slow_fpdu) == 1u);
}

// The system tells of it once, and a read finds the end of the stream then.
BOOST_FIXTURE_TEST_CASE(a_reset_that_a_send_hears_of, over_tcp)
{
    const int peer = connected_by_tcp();
    bool done = false;
    handler.then = [&] {
        if (std::exchange(done, true))
            return;
        const linger at_once{1, 0};
        BOOST_REQUIRE(::setsockopt(peer, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
        ::close(peer);
        std::erase(peers, peer);
        send();
    };
    write(peer, send_1);
    until([&] { return handler.ended; });
    BOOST_TEST(ends(end_cause::peer_reset) == 1u);
    BOOST_TEST(all_ends() == 1u);
}

BOOST_FIXTURE_TEST_CASE(an_end_in_good_order_is_no_reset, over_tcp)
{
    const int peer = connected_by_tcp();
    queue_pair->disconnect();
    BOOST_TEST(end_of(peer) == 0);
    queue_pair->kill(error(std::errc::operation_canceled, "a test"));
    BOOST_TEST(end_of(peer) == 0);
}

BOOST_FIXTURE_TEST_CASE(a_message_that_waits_for_memory, supplied)
{
    supply();
    (void)parked();
    BOOST_TEST(queue_pair->connected());
    BOOST_TEST(trace() == "starting, open (both ends have agreed), parked (a message has no receive)");
    BOOST_TEST(queue_pair->pauses().lasts);
    clock.advance(3s);
    post();
    until([&] { return !handler.seen.empty(); });
    BOOST_TEST(handler.seen[0].length == 50u);
    BOOST_TEST(trace() == "starting, open (both ends have agreed), parked (a message has no receive), open "
                          "(there may be a receive for it)");
    BOOST_TEST(!queue_pair->pauses().lasts);
    BOOST_TEST((queue_pair->pauses().over >= 3s));
    BOOST_TEST((queue_pair->pauses().over < 4s));
}

// Nothing that it sent is answered any more, so it holds up nobody who waits for memory too.
BOOST_FIXTURE_TEST_CASE(a_peer_that_goes_while_its_message_waits_for_memory, supplied)
{
    supply();
    const int peer = parked();
    ::shutdown(peer, SHUT_WR);
    BOOST_REQUIRE(soon([&] { return handler.ended; }));
    BOOST_TEST(ends(end_cause::peer_reset) == 1u);
    BOOST_TEST(handler.seen.empty());
    post();
    BOOST_TEST(shared->standing() == 1u); // is nobody's
}

// As long as its peer is there it waits, and nothing of that stays when it is over.
BOOST_FIXTURE_TEST_CASE(a_peer_that_goes_behind_its_message, supplied)
{
    supply();
    const int peer = parked();
    post();
    until([&] { return !handler.seen.empty(); });
    turns();
    ::shutdown(peer, SHUT_WR);
    until([&] { return handler.ended; });
    BOOST_TEST(ends(end_cause::orderly) == 1u);
}

BOOST_FIXTURE_TEST_CASE(killed_while_a_message_waits_for_memory, supplied)
{
    supply();
    const int peer = parked();
    queue_pair->kill(error(std::errc::operation_canceled, "a test"));
    BOOST_TEST(handler.ended);
    BOOST_TEST(read(peer, 1).empty());
    post();
    BOOST_TEST(shared->standing() == 1u);
    turns();
    BOOST_TEST(trace() == "starting, open (both ends have agreed), parked (a message has no receive), closed "
                          "(local)");
}

// The memory for it has come, but not yet its turn.
BOOST_FIXTURE_TEST_CASE(killed_as_memory_comes, supplied)
{
    supply();
    (void)parked();
    post();
    queue_pair->kill(error(std::errc::operation_canceled, "a test"));
    turns();
    BOOST_REQUIRE(handler.seen.size() == 1u);
    BOOST_TEST((handler.seen[0].status == verbs::status::work_request_flushed));
    BOOST_TEST(handler.late == 0u);
}

BOOST_FIXTURE_TEST_CASE(an_orderly_end_while_a_message_waits_for_memory, supplied)
{
    supply();
    const int peer = parked();
    send(); // and need not wait for the message: its peer sends FPDUs
    std::array<std::byte, 100> said{};
    BOOST_REQUIRE(soon([&] { return ::recv(peer, said.data(), said.size(), MSG_DONTWAIT) == 36; }));
    queue_pair->disconnect();
    BOOST_TEST(trace() == "starting, open (both ends have agreed), parked (a message has no receive), "
                          "draining, parked (disconnect())");
    BOOST_TEST(read(peer, 1).empty());
    ::shutdown(peer, SHUT_WR);
    until([&] { return handler.ended; });
    BOOST_TEST(ends(end_cause::orderly) == 1u);
    BOOST_TEST(shard->stats().illegal_transitions.load() == 0u);
}

// The message may get memory while this end drains.
BOOST_FIXTURE_TEST_CASE(memory_comes_while_this_end_drains, supplied)
{
    supply(true); // a Read of ours keeps it from its end
    const int peer = connected();
    write(peer, ready);
    BOOST_TEST(read(peer, 52).size() == 52u);
    write(peer, send_1);
    turns();
    queue_pair->disconnect();
    BOOST_TEST(trace().ends_with("draining, parked (disconnect())"));
    post();
    until([&] { return !handler.seen.empty(); });
    BOOST_TEST((handler.seen[0].opcode == verbs::opcode::receive));
    BOOST_TEST(trace().ends_with("draining (there may be a receive for it)"));
}

// The socket owes octets of memory that is taken back, while nothing is read from it.
BOOST_FIXTURE_TEST_CASE(revoked_while_a_message_waits_for_memory, supplied)
{
    send_buffer = 4096;
    supply();
    const int peer = connected();
    pages memory(1 << 20);
    auto grant = granted(memory.all(), verbs::access::remote_read);
    write(peer, read_request(grant));
    write(peer, send_1);
    until([&] { return wanted != 0; });
    turns();
    BOOST_TEST(trace().ends_with("parked (a message has no receive)"));
    const auto revoke = [](watched& f, verbs::grant& g) -> task<void> { co_await f.domain->revoke({&g, 1}); };
    tasks->spawn([&] { return revoke(*this, grant); });
    until([&] { return handler.ended; });
    BOOST_TEST(trace().ends_with("parked (a message has no receive), closed (local)"));
    post();
    BOOST_TEST(shared->standing() == 1u);
}

// The receive in reserve is given to it as its message asks for one: it would stand in line behind others with it in hand.
BOOST_FIXTURE_TEST_CASE(a_message_takes_the_reserve_that_comes_with_it, supplied)
{
    supply(true);
    const int peer = connected();
    write(peer, ready);
    BOOST_TEST(read(peer, 52).size() == 52u); // goes without a reserve
    left = 1;
    write(peer, send_1);
    BOOST_REQUIRE(soon([&] { return !handler.seen.empty(); }));
    BOOST_TEST(handler.seen[0].length == 50u);
}

BOOST_AUTO_TEST_SUITE_END()
