// SPDX-License-Identifier: Apache-2.0
// Whatever a peer does, one that does no wrong waits for nobody: it is answered while no time passes, within a few turns of
// the shard.
#include <boost/test/unit_test.hpp>

#include "rpcrdma_by_hand.hpp"

#include <utility>

BOOST_AUTO_TEST_SUITE(rpcrdma_bystander_test)

using namespace verbena;
using namespace verbena::responder_test;

namespace {

/// The fixture's peer, and another beside it.
struct two_peers : fixture {
    static constexpr unsigned most_turns =
        12; // for a call that reads a chunk: four messages, and the other's turns between

    two_peers()
    {
        start();
        bad = take_away();
        good = connect_another();
    }
    ~two_peers()
    {
        give_back(good);
        // Of the bad one nothing is asked any more.
        ::close(bad.socket);
    }
    struct end {
        int socket = -1;
        std::uint32_t sequence = 0;
    };
    end take_away() { return {std::exchange(peer, -1), std::exchange(sequence, 0)}; }
    void give_back(const end& e)
    {
        peer = e.socket;
        sequence = e.sequence;
    }
    end connect_another()
    {
        int ends[2];
        BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
        peer = ends[1];
        provider->adopt(ends[0], *listener);
        bytes request = from_hex("4d504120 49442052 65712046 72616d65 10020004");
        put(request, {std::uint32_t(peer_depth) << 16});
        write(request);
        BOOST_TEST(read(32).size() == 32u);
        return take_away();
    }
    /// What the bad peer does.
    void does(const std::function<void()>& act)
    {
        give_back(bad);
        act();
        bad = take_away();
    }
    /// As much of `data` as the server takes now.
    void push(const bytes& data)
    {
        for (std::size_t done = 0; done < data.size();) {
            const ssize_t n = ::send(peer, data.data() + done, data.size() - done, MSG_NOSIGNAL);
            if (n <= 0)
                return;
            done += static_cast<std::size_t>(n);
        }
    }
    /// A small call and one with a Read chunk are answered, now and after a while.
    void good_one_waits_for_nobody()
    {
        give_back(good);
        for (int i = 0; i < 3; ++i) {
            const time_point begun = clock.now();
            unsigned turns = 0;
            const auto message = [&] {
                bytes length;
                bytes got;
                for (; turns < most_turns; ++turns) {
                    std::byte b[256];
                    const ssize_t n = ::recv(peer, b, sizeof b, MSG_DONTWAIT);
                    if (n > 0)
                        got.insert(got.end(), b, b + n);
                    if (got.size() >= 2) {
                        const std::size_t size =
                            std::to_integer<std::size_t>(got[0]) << 8 | std::to_integer<std::size_t>(got[1]);
                        if (got.size() >= (size + 2 + 3) / 4 * 4 + 4)
                            return bytes(got.begin() + 2, got.begin() + 2 + std::ptrdiff_t(size));
                    }
                    shard->turn();
                }
                return bytes();
            };
            push(inline_message(++xid));
            const bytes reply = message();
            BOOST_TEST_REQUIRE(reply.size() > 22u);
            BOOST_TEST(xdr::load_u32(reply.data() + 18) == xid);
            call(++xid);
            const bytes request = message();
            BOOST_TEST_REQUIRE(request.size() == 46u);
            answer(request);
            const bytes second = message();
            BOOST_TEST_REQUIRE(second.size() > 22u);
            BOOST_TEST(xdr::load_u32(second.data() + 18) == xid);
            BOOST_TEST(turns < most_turns);
            BOOST_TEST((clock.now() == begun));
            for (int turn = 0; turn < 20; ++turn)
                shard->turn();
        }
        good = take_away();
    }

    end bad, good;
    std::uint32_t xid = 1'000'000;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(reads_that_are_never_answered, two_peers)
{
    does([&] {
        for (std::uint32_t i = 1; i <= 128; ++i)
            call(i);
    });
    good_one_waits_for_nobody();
}

BOOST_FIXTURE_TEST_CASE(chunks_that_take_a_whole_share, two_peers)
{
    does([&] {
        for (std::uint32_t i = 1; i <= 128; ++i)
            call_at_position_zero(i, 1 << 20);
    });
    good_one_waits_for_nobody();
}

BOOST_FIXTURE_TEST_CASE(a_message_that_never_ends, two_peers)
{
    for (const std::size_t size : {std::size_t(1), std::size_t(30), inline_message(1).size() - 1}) {
        does([&] {
            const bytes whole = inline_message(1);
            push(bytes(whole.begin(), whole.begin() + std::ptrdiff_t(size)));
        });
        good_one_waits_for_nobody();
        ::close(bad.socket);
        bad = connect_another();
    }
}

BOOST_FIXTURE_TEST_CASE(replies_that_nobody_takes, two_peers)
{
    dispatcher.result_size = 1 << 20;
    dispatcher.result_memory = 1 << 20;
    does([&] {
        for (std::uint32_t i = 1; i <= 64; ++i)
            call_with_write_chunk(i, 1, 1 << 20);
        for (int turn = 0; turn < 50; ++turn)
            shard->turn();
    });
    dispatcher.result_size = 0;
    good_one_waits_for_nobody();
}

BOOST_FIXTURE_TEST_CASE(all_its_credits_at_once_and_again, two_peers)
{
    for (int round = 0; round < 3; ++round) {
        does([&] {
            bytes all;
            for (std::uint32_t i = 1; i <= 128; ++i) {
                const bytes one = inline_message(i);
                all.insert(all.end(), one.begin(), one.end());
            }
            push(all);
        });
        good_one_waits_for_nobody();
        does([&] {
            while (!quiet())
                (void)receive();
        });
    }
}

BOOST_FIXTURE_TEST_CASE(what_is_refused, two_peers)
{
    does([&] {
        for (std::uint32_t i = 1; i <= 100; ++i) {
            bytes u = from_hex("4143 00000000 00000000");
            put(u, {++sequence, 0, i, 2, 32, 0, 0, 0, 0, i, 0, 2, 1, 1, 1, 0, 0, 0, 0, 0}); // version 2
            push(fpdu(u));
        }
    });
    good_one_waits_for_nobody();
    does([&] { push(bytes(5000, std::byte(0xff))); }); // ends it
    good_one_waits_for_nobody();
}

// Both are of one host, so they share: this one has to wait, but no longer than they hold it.
BOOST_FIXTURE_TEST_CASE(connections_of_a_host_share_what_chunks_take, two_peers)
{
    constexpr std::uint32_t size = 1 << 20;
    options.max_address_chunk_bytes = 4 * size;
    std::vector<bytes> requests;
    does([&] {
        for (std::uint32_t i = 1; i <= 4; ++i) {
            call(i, size);
            requests.push_back(receive());
        }
    });
    BOOST_TEST(stats.chunk_waits.value() == 0u);
    std::swap(good, bad);
    does([&] {
        call(1, size);
        BOOST_TEST(quiet());
        BOOST_TEST(stats.chunk_waits.value() == 1u);
    });
    std::swap(good, bad);
    // A Send completes behind the Reads that were posted before it.
    does([&] {
        for (std::uint32_t i = 1; i <= 4; ++i) {
            answer(requests[i - 1]);
            BOOST_TEST(xdr::load_u32(receive().data() + 18) == i);
        }
    });
    std::swap(good, bad);
    does([&] { BOOST_TEST(receive().size() == 46u); });
}

BOOST_AUTO_TEST_SUITE_END()
