// SPDX-License-Identifier: Apache-2.0
// What an idle connection costs: before it had anything to do, and after it had much.
#include <boost/test/unit_test.hpp>

#include "../live_bytes.hpp"
#include "rpcrdma_by_hand.hpp"

BOOST_AUTO_TEST_SUITE(rpcrdma_idle_cost_test)

using namespace verbena;
using namespace verbena::responder_test;

namespace {

struct many : fixture {
    // Lets go of the peer at hand, which stays.
    void keep() { kept.push_back({std::exchange(peer, -1), sequence}); }
    // Calls and nothing else, as many at once as `credits`, until the server grants that many.
    void work(std::uint32_t credits)
    {
        std::uint32_t had = 1;
        for (std::uint32_t granted = 0; granted < credits; had = granted) {
            bytes all;
            for (std::uint32_t i = 0; i < had; ++i) {
                bytes call = inline_message(++xid);
                xdr::store_u32(call.data() + 28, 1000);
                all.insert(all.end(), call.begin(), call.end());
            }
            write(all);
            for (std::uint32_t i = 0; i < had; ++i) {
                const bytes reply = receive();
                BOOST_REQUIRE(reply.size() > 30u);
                granted = xdr::load_u32(reply.data() + 26);
            }
            BOOST_REQUIRE(granted >= had);
        }
    }
    void rest()
    {
        for (int i = 0; i < 4; ++i) {
            clock.advance(1100ms);
            for (int turn = 0; turn < 20; ++turn)
                shard->turn();
        }
    }
    ~many()
    {
        for (const auto& [socket, ignored] : kept)
            ::close(socket);
    }
    std::vector<std::pair<int, std::uint32_t>> kept;
    std::uint32_t xid = 0;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(an_idle_connection_costs_little_also_after_it_was_busy, many)
{
    constexpr std::size_t count = 50;
    constexpr std::uint64_t most = 5 << 10; // of the heap; there is no more but the socket
    options.idle_credits = 2;
    start();
    work(128); // what the listener has once
    rest();
    keep();
    const std::uint64_t before = test::live_bytes();
    for (std::size_t i = 0; i < count; ++i) {
        ask_to_connect();
        BOOST_TEST(read(32).size() == 32u);
        work(1);
        keep();
    }
    rest();
    const std::uint64_t answered = (test::live_bytes() - before) / count;
    BOOST_TEST_MESSAGE("a connection that was answered once: " << answered << " bytes");
    BOOST_TEST(answered <= most);
    BOOST_TEST(pool->outstanding() == 0u);
    for (auto& [socket, sent] : kept) {
        peer = socket;
        sequence = sent;
        work(128);
        sent = sequence;
        peer = -1;
    }
    const std::uint64_t busy = (test::live_bytes() - before) / count;
    rest();
    const std::uint64_t idle = (test::live_bytes() - before) / count;
    BOOST_TEST_MESSAGE("after it had all its credits in use: " << busy << " bytes, and idle again: " << idle);
    BOOST_TEST(idle <= answered + 1024);
    BOOST_TEST(busy > idle);
    BOOST_TEST(pool->outstanding() == 0u);
    // Each is answered again.
    for (auto& [socket, sent] : kept) {
        peer = socket;
        sequence = sent;
        inline_call(++xid);
        BOOST_TEST(xdr::load_u32(receive().data() + 18) == xid);
        peer = -1;
    }
}

BOOST_AUTO_TEST_SUITE_END()
