// SPDX-License-Identifier: Apache-2.0
// Read Responses, of which one call of the system takes several FPDUs: where they are expected, if they are as long as the one before.
// The system's recvmsg is replaced, to have a socket that is never empty.
#include <boost/test/unit_test.hpp>

#include "iwarp_by_hand.hpp"

#include <algorithm>
#include <cstring>
#include <sys/syscall.h>
#include <utility>
#include <vector>

namespace {

std::vector<std::byte>* endless = nullptr; // comes again and again; nullptr: what the system has
std::size_t endless_at = 0;

} // namespace

extern "C" ssize_t recvmsg(int fd, msghdr* m, int flags)
{
    if (endless == nullptr)
        return ::syscall(SYS_recvmsg, fd, m, flags);
    ssize_t all = 0;
    for (std::size_t i = 0; i < m->msg_iovlen; ++i) {
        auto* to = static_cast<std::byte*>(m->msg_iov[i].iov_base);
        for (std::size_t left = m->msg_iov[i].iov_len; left != 0;) {
            const std::size_t part = std::min(left, endless->size() - endless_at);
            std::memcpy(to, endless->data() + endless_at, part);
            endless_at = (endless_at + part) % endless->size();
            to += part;
            left -= part;
            all += static_cast<ssize_t>(part);
        }
    }
    return all;
}

BOOST_AUTO_TEST_SUITE(iwarp_foreseen_test)

using namespace verbena;
using namespace verbena::iwarp_by_hand;

namespace {

constexpr std::size_t kib = 1024;

bytes pattern(std::size_t size, unsigned seed = 1)
{
    bytes made(size);
    for (std::size_t i = 0; i < size; ++i)
        made[i] = std::byte(i * 31 + seed + i / 251);
    return made;
}

struct reader : with_grants {
    ~reader()
    {
        endless = nullptr;
        queue_pair.reset();
    }
    /// Connected, with a Read of so many octets into the beginning of `memory`.
    void reading(std::byte* memory, std::size_t size)
    {
        start();
        peer = connected();
        ask(memory, size);
    }
    void ask(std::byte* memory, std::size_t size)
    {
        write(peer, crc(ready));
        const verbs::segment sink{memory, std::uint32_t(size), 0};
        verbs::send_request r;
        r.id = 7;
        r.opcode = verbs::opcode::rdma_read;
        r.segments = {&sink, 1};
        BOOST_REQUIRE(queue_pair->post_send({&r, 1}));
        const bytes question = read(peer, 52);
        std::string sink_of = to_hex(std::span(question).subspan(20, 12));
        std::erase(sink_of, ' ');
        tag = sink_of.substr(0, 8);
        offset = std::stoull(sink_of.substr(8), nullptr, 16);
    }
    bytes crc(const bytes& one) const { return options.crc == iwarp::crc_mode::on ? with_crc(one) : one; }
    /// The response with `content`, in FPDUs of these sizes; `between` stands behind the second one.
    bytes response(const bytes& content, const std::vector<std::size_t>& sizes,
                   const bytes& between = {}) const
    {
        bytes all;
        std::size_t at = 0;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            const bool last = at + sizes[i] == content.size();
            bytes one = fpdu((last ? "c142 " : "8142 ") + tag + hex(offset + at, 16), sizes[i]);
            std::copy_n(content.begin() + std::ptrdiff_t(at), sizes[i], one.begin() + 16);
            all = std::move(all) + crc(one);
            at += sizes[i];
            if (i == 1)
                all = std::move(all) + between;
        }
        BOOST_REQUIRE(at == content.size());
        return all;
    }
    bool is_read() const
    {
        return std::ranges::any_of(handler.seen, [](const verbs::completion& c) {
            return c.id == 7 && c.status == verbs::status::success;
        });
    }
    std::uint64_t calls() const { return provider->counters().receives.load(); }
    std::uint64_t copied() const { return provider->counters().payload_copied_bytes.load(); }
    void is_placed(const bytes& content)
    {
        until([&] { return is_read(); });
        BOOST_TEST(std::ranges::equal(std::span(into).first(content.size()), content));
        BOOST_TEST(std::ranges::all_of(std::span(into).subspan(content.size()),
                                       [](std::byte b) { return b == std::byte(0xee); }));
        BOOST_TEST(queue_pair->connected());
    }

    std::vector<std::byte> into = bytes(256 * kib, std::byte(0xee));
    int peer = -1;
    std::string tag;
    std::uint64_t offset = 0;
};

// All connections share receives, which come when the test says so.
struct short_of_receives : reader, verbs::receive_supply {
    ~short_of_receives() { queue_pair.reset(); }
    void receive_wanted() noexcept override {}
    void receive_returned(std::uint64_t) noexcept override {}
    void begin()
    {
        start(false);
        tasks->spawn([this]() -> task<void> {
            verbs::shared_receive_queue_options o;
            o.supply = this;
            auto made = co_await domain->make_shared_receive_queue(o);
            BOOST_REQUIRE(made);
            shared = std::move(*made);
        });
        until([&] { return shared != nullptr; });
        tasks->spawn([&] { return serve(); });
    }
    // Sends of 50 octets with these patterns.
    static bytes sends(std::initializer_list<unsigned> seeds)
    {
        bytes all;
        unsigned number = 0;
        for (const unsigned seed : seeds) {
            bytes one = fpdu("4143 00000000 00000000" + hex(++number, 8) + "00000000", 50);
            std::ranges::copy(pattern(50, seed), one.begin() + 20);
            all = std::move(all) + one;
        }
        return all;
    }
    std::size_t received() const
    {
        return std::size_t(
            std::ranges::count(handler.seen, verbs::opcode::receive, &verbs::completion::opcode));
    }
};

} // namespace

// The header of the first, then all of it with what is foreseen. Nothing is copied.
BOOST_FIXTURE_TEST_CASE(a_call_takes_several_fpdus, reader)
{
    const bytes content = pattern(90 * kib);
    reading(into.data(), content.size());
    const auto before = calls();
    arrives(peer, response(content, {16 * kib, 16 * kib, 16 * kib, 16 * kib, 16 * kib, 10 * kib}));
    is_placed(content);
    BOOST_TEST(calls() - before <= 3u);
    BOOST_TEST(copied() == 0u);
}

// Whatever stands where: shorter and longer ones, a last one that ends early, a Send between them.
BOOST_FIXTURE_TEST_CASE(fpdus_that_are_not_as_foreseen, reader)
{
    options.crc = iwarp::crc_mode::on;
    const bytes content = pattern(80 * kib + 3);
    const bytes message = pattern(50, 9);
    reading(into.data(), content.size());
    bytes send = fpdu("4143 00000000 00000000 00000001 00000000", 50);
    std::ranges::copy(message, send.begin() + 20);
    arrives(peer, response(content, {9 * kib, 9 * kib, 9 * kib, 20 * kib, 1, 8 * kib, 25 * kib + 2},
                           with_crc(send)));
    is_placed(content);
    BOOST_TEST(handler.seen.size() == 2u);
    BOOST_TEST(std::ranges::equal(std::span(memory).first(50), message));
    BOOST_TEST(provider->counters().crc_checked == 9u);
}

// The longer one takes more of the sink than was foreseen, and reaches what lies staged behind it.
BOOST_FIXTURE_TEST_CASE(fpdus_that_grow, reader)
{
    const bytes content = pattern(120 * kib, 5);
    reading(into.data(), content.size());
    arrives(peer, response(content, {8 * kib, 8 * kib, 40 * kib, 40 * kib, 24 * kib}));
    is_placed(content);
}

// The guess is wrong when all of it has come: no more than there is room for was guessed.
BOOST_FIXTURE_TEST_CASE(much_that_is_not_as_foreseen, reader)
{
    const bytes content = pattern(248 * kib, 5);
    reading(into.data(), content.size());
    const int room = 1 << 20;
    BOOST_REQUIRE(::setsockopt(peer, SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0);
    arrives(peer, response(content, {60 * kib, 8 * kib, 60 * kib, 60 * kib, 60 * kib}));
    is_placed(content);
    BOOST_TEST(copied() <= 128 * kib);
}

// After the first guess that was wrong none is made: what it brought is the only copy.
BOOST_FIXTURE_TEST_CASE(fpdus_of_uneven_lengths_are_copied_once, reader)
{
    into.assign(320 * kib, std::byte(0xee));
    const bytes content = pattern(300 * kib, 3);
    reading(into.data(), content.size());
    const int room = 1 << 20;
    BOOST_REQUIRE(::setsockopt(peer, SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0);
    std::vector<std::size_t> sizes;
    for (std::size_t at = 0; at < content.size(); at += sizes.back())
        sizes.push_back(std::min(content.size() - at, (sizes.size() % 2 == 0 ? 60 : 9) * kib));
    arrives(peer, response(content, sizes));
    is_placed(content);
    BOOST_TEST(copied() <= 128 * kib);
}

// It comes octet for octet, and in parts that end anywhere.
BOOST_FIXTURE_TEST_CASE(what_is_foreseen_comes_in_parts, reader)
{
    options.crc = iwarp::crc_mode::on;
    const bytes content = pattern(50 * kib);
    reading(into.data(), content.size());
    const bytes all = response(content, {10 * kib, 10 * kib, 10 * kib, 10 * kib, 10 * kib});
    const std::size_t one = 10 * kib + 16 + 4 + 2; // with its pad
    for (std::size_t at = 0; at < all.size();) {
        const std::size_t behind = at % one;
        const std::size_t part = behind < 20 || behind > one - 10 ? 1 : one - 9 - behind;
        const std::size_t n = std::min(part, all.size() - at);
        arrives(peer, bytes(all.begin() + std::ptrdiff_t(at), all.begin() + std::ptrdiff_t(at + n)));
        at += n;
    }
    is_placed(content);
    BOOST_TEST(copied() == 0u);
}

// Of an FPDU that is foreseen the last octet of its CRC is wrong.
BOOST_FIXTURE_TEST_CASE(a_wrong_crc_of_what_is_foreseen, reader)
{
    options.crc = iwarp::crc_mode::on;
    const bytes content = pattern(48 * kib);
    reading(into.data(), content.size());
    bytes all = response(content, {16 * kib, 16 * kib, 16 * kib});
    all[2 * (all.size() / 3) - 1] ^= std::byte(1);
    arrives(peer, all);
    until([&] { return handler.ended || ends(end_cause::crc_error) == 1; });
    BOOST_TEST(ends(end_cause::crc_error) == 1u);
    BOOST_TEST(!is_read());
}

// What follows the response is not taken for a part of it: no octet lands behind the sink.
BOOST_FIXTURE_TEST_CASE(nothing_is_foreseen_behind_the_sink, reader)
{
    const bytes content = pattern(40 * kib);
    reading(into.data(), content.size());
    const bytes send = fpdu("4143 00000000 00000000 00000001 00000000", 50);
    bytes writes; // of nothing
    for (int i = 0; i < 200; ++i)
        writes = std::move(writes) + ready;
    arrives(peer, response(content, {16 * kib, 16 * kib, 8 * kib}) + send + writes);
    is_placed(content);
    BOOST_TEST(handler.seen.size() == 2u);
}

// The context has one place for what was read behind a message that waits for memory, and the first connection takes it. Sends amid
// a response, which nobody foresees, make the second one wait as well.
BOOST_FIXTURE_TEST_CASE(nothing_is_foreseen_while_another_connection_waits_for_memory, short_of_receives)
{
    begin();
    const int other = connected();
    const auto of_other = std::move(queue_pair);
    arrives(other, sends({1, 2, 3}));
    BOOST_TEST(received() == 0u);
    peer = connected();
    const bytes content = pattern(64 * kib);
    ask(into.data(), content.size());
    write(peer, response(content, {16 * kib, 16 * kib, 16 * kib, 16 * kib}, sends({4, 5, 6})));
    const auto turns = [&] {
        for (int i = 0; i < 100; ++i)
            shard->turn();
    };
    turns();
    BOOST_TEST(received() == 0u);
    BOOST_TEST(std::ranges::equal(std::span(into).first(32 * kib), std::span(content).first(32 * kib)));
    std::vector<bytes> rooms(8, bytes(100));
    for (std::size_t i = 0; i < rooms.size(); ++i) {
        const verbs::receive_request r{i, {rooms[i].data(), 100, 0}};
        BOOST_REQUIRE(shared->post_receive({&r, 1}));
        turns();
    }
    is_placed(content);
    BOOST_TEST(of_other->connected());
    std::vector<unsigned> of_first, of_second; // each in its order
    for (const verbs::completion& c : handler.seen) {
        if (c.opcode != verbs::opcode::receive)
            continue;
        for (unsigned seed = 1; seed <= 6; ++seed) {
            if (std::ranges::equal(std::span(rooms[c.id]).first(50), pattern(50, seed)))
                (seed <= 3 ? of_first : of_second).push_back(seed);
        }
    }
    BOOST_TEST(of_first == (std::vector<unsigned>{1, 2, 3}), boost::test_tools::per_element());
    BOOST_TEST(of_second == (std::vector<unsigned>{4, 5, 6}), boost::test_tools::per_element());
}

// However much comes at once, others have their turn.
BOOST_FIXTURE_TEST_CASE(a_turn_receives_no_more_than_a_megabyte, reader)
{
    pages memory(std::size_t(64) << 20);
    reading(memory.start, memory.size);
    std::vector<std::size_t> sizes(memory.size / (60 * kib), 60 * kib);
    if (const std::size_t rest = memory.size % (60 * kib); rest != 0)
        sizes.push_back(rest);
    bytes all = response(bytes(memory.size), sizes);
    endless = &all;
    endless_at = 0;
    write(peer, ready); // there is something
    const auto received = [&] { return provider->counters().bytes_received.load(); };
    std::uint64_t most = 0;
    for (int i = 0; i < 1000 && !is_read(); ++i) {
        const std::uint64_t before = received();
        shard->turn();
        most = std::max(most, received() - before);
        if (received() > memory.size)
            break;
    }
    endless = nullptr;
    BOOST_TEST(most >= 1u << 20);
    BOOST_TEST(most <= (1u << 20) + 256 * kib);
}

BOOST_AUTO_TEST_SUITE_END()
