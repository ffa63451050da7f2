// SPDX-License-Identifier: Apache-2.0
// The first FPDU of a connection is the initiator's (RFC 5044 7.1.2): the end that accepted holds back what it has posted until then.
#include <boost/test/unit_test.hpp>

#include "iwarp_by_hand.hpp"

#include <algorithm>
#include <array>

BOOST_AUTO_TEST_SUITE(iwarp_first_fpdu_test)

using namespace verbena;
using namespace verbena::iwarp_by_hand;

namespace {

// A service that speaks first: it posts a Send and a Write of nothing as soon as it has accepted.
struct speaks_first : fixture {
    speaks_first()
    {
        start(false);
        tasks->spawn([this] { return accept_and_speak(); });
    }
    task<void> accept_and_speak()
    {
        for (;;) {
            auto next = co_await listener->next();
            if (!next)
                co_return;
            auto made = co_await (*next)->make_queue_pair(*domain, verbs::queue_pair_options());
            BOOST_REQUIRE(made);
            handler.ended = false;
            queue_pair = std::move(*made);
            queue_pair->set_handler(&handler);
            const verbs::receive_request receive{1, {memory.data(), 100, 0}};
            BOOST_REQUIRE(queue_pair->post_receive({&receive, 1}));
            verbs::connect_options o;
            o.responder_resources = 1;
            const result<void> accepted = co_await (*next)->accept(o);
            BOOST_REQUIRE(accepted.has_value());
            if (says_something)
                say();
        }
    }
    void say()
    {
        handler.seen.clear();
        const verbs::segment word{memory.data(), 4, 0};
        std::array<verbs::send_request, 2> both;
        both[0].id = 10;
        both[0].segments = {&word, 1};
        both[1].id = 11;
        both[1].opcode = verbs::opcode::rdma_write;
        BOOST_REQUIRE(queue_pair->post_send(both));
    }
    /// A peer that has the reply frame, and said `hello` to get it.
    int started(const bytes& hello = good_start)
    {
        const int peer = connect();
        write(peer, hello);
        BOOST_TEST(read(peer, 24).size() == 24u);
        until([&] { return queue_pair != nullptr && queue_pair->connected(); });
        return peer;
    }
    /// Whether nothing comes in the time of some turns.
    bool is_silent(int peer)
    {
        for (int i = 0; i < 20; ++i)
            shard->turn();
        std::byte b;
        return ::recv(peer, &b, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
    }
    std::vector<std::uint64_t> completed(verbs::status how) const
    {
        std::vector<std::uint64_t> ids;
        for (const verbs::completion& c : handler.seen) {
            if (c.status == how && c.id >= 10)
                ids.push_back(c.id);
        }
        return ids;
    }
    /// What was posted has gone out now.
    void hears_both(int peer)
    {
        const bytes send = read(peer, 28);
        BOOST_REQUIRE(send.size() == 28u);
        BOOST_TEST(to_hex(std::span(send).subspan(2, 2)) == "4143");
        const bytes nothing_written = read(peer, 20);
        BOOST_REQUIRE(nothing_written.size() == 20u);
        BOOST_TEST(to_hex(std::span(nothing_written).subspan(2, 2)) == "c140");
        until([&] { return completed(verbs::status::success).size() == 2; });
    }
    bool says_something = true;
};

const bytes send_of_4 = fpdu("4143 00000000 00000000 00000001 00000000", 4);
const std::vector<std::uint64_t> both = {10, 11};

} // namespace

BOOST_FIXTURE_TEST_CASE(what_is_posted_waits_for_the_first_fpdu, speaks_first)
{
    for (const bytes& first : {ready, send_of_4}) {
        const int peer = started();
        BOOST_TEST(is_silent(peer));
        // A part of it is none.
        write(peer, bytes(first.begin(), first.end() - 1));
        BOOST_TEST(is_silent(peer));
        BOOST_TEST(completed(verbs::status::success).empty());
        write(peer, bytes(first.end() - 1, first.end()));
        hears_both(peer);
        // From now on nothing waits.
        say();
        hears_both(peer);
    }
}

// RFC 6581 4.2: there the ready-to-receive message is the first FPDU.
BOOST_FIXTURE_TEST_CASE(a_ready_to_receive_message_is_the_first_fpdu, speaks_first)
{
    const int writes = started(from_hex(std::string(request) + "10020004 80018001"));
    BOOST_TEST(is_silent(writes));
    write(writes, ready);
    hears_both(writes);

    const int reads_nothing = started(from_hex(std::string(request) + "10020004 80014001"));
    BOOST_TEST(is_silent(reads_nothing));
    write(reads_nothing, fpdu("4141 00000000 00000001 00000001 00000000 00000000 00000000 00000000 00000000 "
                              "00000000 00000000 00000000"));
    bytes answer;
    until([&] {
        std::byte b[256];
        const ssize_t n = ::recv(reads_nothing, b, sizeof b, MSG_DONTWAIT);
        if (n > 0)
            answer.insert(answer.end(), b, b + n);
        return answer.size() == 28 + 20 + 20;
    });
    until([&] { return completed(verbs::status::success).size() == 2; });
}

// The peer is in full operation, as it has sent something.
BOOST_FIXTURE_TEST_CASE(a_bad_first_fpdu_is_answered_with_a_terminate_alone, speaks_first)
{
    const int peer = started();
    write(peer, fpdu("4143 00000000 00000007 00000001 00000000", 4));
    const bytes head = read(peer, 24);
    BOOST_REQUIRE(head.size() == 24u);
    BOOST_TEST(to_hex(std::span(head).subspan(2, 2)) == "4147");
    ::shutdown(peer, SHUT_WR);
    until([&] { return handler.ended; });
    BOOST_TEST(completed(verbs::status::work_request_flushed) == both);
}

BOOST_FIXTURE_TEST_CASE(an_end_does_not_wait_for_a_peer_that_says_nothing, speaks_first)
{
    // In good order, but what waits can't go out: close_timeout.
    int peer = started();
    queue_pair->disconnect();
    BOOST_TEST(is_silent(peer));
    BOOST_TEST(!handler.ended);
    const time_point begun = clock.now();
    until([&] { return handler.ended; });
    BOOST_TEST((clock.now() - begun <= options.close_timeout + 1ms));
    BOOST_TEST(completed(verbs::status::work_request_flushed) == both);

    // The peer speaks in time: all goes out, then the FIN.
    peer = started();
    queue_pair->disconnect();
    BOOST_TEST(is_silent(peer));
    write(peer, ready);
    hears_both(peer);
    BOOST_TEST(read(peer, 1).empty());

    // At once.
    (void)started();
    queue_pair->kill(error(std::errc::operation_canceled, "a test"));
    BOOST_TEST(handler.ended);
    BOOST_TEST(completed(verbs::status::work_request_flushed) == both);

    // By the peer.
    peer = started();
    ::shutdown(peer, SHUT_WR);
    until([&] { return handler.ended; });
    BOOST_TEST(completed(verbs::status::work_request_flushed) == both);

    // A FIN is no FPDU.
    says_something = false;
    peer = started();
    queue_pair->disconnect();
    BOOST_TEST(read(peer, 1).empty());
}

// A queue that is full of what waits takes no more.
BOOST_FIXTURE_TEST_CASE(what_waits_is_bounded_by_the_send_queue, speaks_first)
{
    const int peer = started();
    const verbs::segment word{memory.data(), 4, 0};
    verbs::send_request w;
    w.segments = {&word, 1};
    std::size_t posted = 2;
    while (queue_pair->post_send({&w, 1}))
        ++posted;
    BOOST_TEST(posted == verbs::queue_pair_options().send_depth);
    BOOST_TEST(is_silent(peer));
    queue_pair.reset();
    BOOST_TEST(handler.seen.empty()); // nobody hears of a queue pair that was destroyed
}

BOOST_AUTO_TEST_SUITE_END()
