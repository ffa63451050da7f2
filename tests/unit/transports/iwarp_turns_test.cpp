// SPDX-License-Identifier: Apache-2.0
// A peer that takes all that it is sent, as fast as it is sent, has its part of a turn and no more. The system's sendmsg is
// replaced, so that the socket is never full, and its getsockopt, so that it has a segment size.
#include <boost/test/unit_test.hpp>

#include "iwarp_by_hand.hpp"

#include <algorithm>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/syscall.h>

namespace {

std::size_t taken_at_once = 0; // 0: the system's own
std::size_t longest = 0;       // piece that was taken
int segment_size = 0;          // 0: the system's own

} // namespace

extern "C" ssize_t sendmsg(int fd, const msghdr* m, int flags)
{
    if (taken_at_once == 0)
        return ::syscall(SYS_sendmsg, fd, m, flags);
    std::size_t size = 0;
    for (std::size_t i = 0; i < m->msg_iovlen; ++i)
        size += m->msg_iov[i].iov_len;
    for (std::size_t i = 0; i < m->msg_iovlen; ++i)
        longest = std::max(longest, m->msg_iov[i].iov_len);
    return static_cast<ssize_t>(std::min(size, taken_at_once));
}

extern "C" int getsockopt(int fd, int level, int name, void* value, socklen_t* size) noexcept
{
    if (segment_size == 0 || level != IPPROTO_TCP || name != TCP_MAXSEG)
        return static_cast<int>(::syscall(SYS_getsockopt, fd, level, name, value, size));
    *static_cast<int*>(value) = segment_size;
    return 0;
}

BOOST_AUTO_TEST_SUITE(iwarp_turns_test)

using namespace verbena;
using namespace verbena::iwarp_by_hand;

namespace {

struct fast_reader : with_grants {
    ~fast_reader()
    {
        taken_at_once = 0;
        segment_size = 0;
    }
    std::uint64_t sent() const { return provider->counters().bytes_sent.load(); }
    std::uint64_t calls() const { return provider->counters().sends.load(); }
    // Turns until the response to a read of `size` bytes is out; the most of `count` that one turn had.
    std::uint64_t most_of_a_turn(std::size_t size, std::uint64_t (fast_reader::*count)() const)
    {
        const std::uint64_t begun = sent();
        std::uint64_t most = 0;
        until([&] {
            const std::uint64_t before = (this->*count)();
            shard->turn();
            most = std::max(most, (this->*count)() - before);
            return sent() - begun >= size;
        });
        return most;
    }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_turn_sends_no_more_than_some_megabytes, fast_reader)
{
    start();
    const int peer = connected();
    pages memory(std::size_t(64) << 20);
    auto grant = granted(memory.all(), verbs::access::remote_read);
    taken_at_once = SIZE_MAX;
    write(peer, read_request(grant));
    const std::uint64_t most = most_of_a_turn(memory.size, &fast_reader::sent);
    BOOST_TEST(most <= 11u << 20); // twice: at its end, and behind all others
    BOOST_TEST(queue_pair->connected());
}

BOOST_FIXTURE_TEST_CASE(a_turn_sends_no_more_than_some_times, fast_reader)
{
    start();
    const int peer = connected();
    pages memory(std::size_t(1) << 20);
    auto grant = granted(memory.all(), verbs::access::remote_read);
    taken_at_once = 1000;
    write(peer, read_request(grant));
    const std::uint64_t most = most_of_a_turn(memory.size, &fast_reader::calls);
    BOOST_TEST(most <= 64u);
    BOOST_TEST(queue_pair->connected());
}

// Octets that a turn left to the next one are owed, as those are that the socket did not take: the connection ends with the grant.
BOOST_FIXTURE_TEST_CASE(what_a_turn_leaves_is_owed, fast_reader)
{
    start();
    const int peer = connected();
    pages memory(std::size_t(1) << 20);
    auto grant = granted(memory.all(), verbs::access::remote_read);
    taken_at_once = 1000;
    arrives(peer, read_request(grant));
    BOOST_TEST(queue_pair->connected());
    grant = verbs::grant();
    BOOST_TEST(!queue_pair->connected());
    BOOST_TEST(ends(end_cause::local) == 1u);
    memory.unmap();
    for (int i = 0; i < 5; ++i)
        shard->turn();
}

// RFC 5044 4.5: an FPDU fits in a segment, whose size may change. It is looked at again when a MiB was sent.
BOOST_FIXTURE_TEST_CASE(fpdus_follow_the_segment_size, fast_reader)
{
    segment_size = 9000;
    start();
    const int peer = connected();
    pages memory(std::size_t(512) << 10);
    auto grant = granted(memory.all(), verbs::access::remote_read);
    taken_at_once = SIZE_MAX;
    unsigned number = 0;
    const auto longest_of_a_response = [&] {
        longest = 0;
        const std::uint64_t begun = sent();
        write(peer, fpdu("4141 00000000 00000001" + hex(++number, 8) + "00000000 00000007" + hex(0, 16) +
                         hex(memory.size, 8) + at(grant)));
        until([&] { return sent() - begun >= memory.size; });
        return longest;
    };
    for (int i = 0; i < 2; ++i) {
        const std::size_t first = longest_of_a_response();
        BOOST_TEST(first > 8000u);
        BOOST_TEST(first < 9000u);
        segment_size = 60'000;
    }
    for (int i = 0; i < 2; ++i) {
        const std::size_t larger = longest_of_a_response();
        BOOST_TEST(larger > 50'000u);
        BOOST_TEST(larger < 60'000u);
        segment_size = 1460;
    }
    BOOST_TEST(longest_of_a_response() < 1460u);
    BOOST_TEST(queue_pair->connected());
}

BOOST_AUTO_TEST_SUITE_END()
