// SPDX-License-Identifier: Apache-2.0
// Memory that is taken back while a peer writes or reads it: nothing of it is touched any more, and the end is
// told once.
#include <boost/test/unit_test.hpp>

#include "iwarp_by_hand.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(iwarp_revoked_test)

using namespace verbena;
using namespace verbena::iwarp_by_hand;

// Its payload was placed while it might be; nobody looks at it again when the CRC comes.
BOOST_FIXTURE_TEST_CASE(the_crc_of_a_write_comes_behind_the_end_of_its_grant, with_grants)
{
    options.crc = iwarp::crc_mode::on;
    start();
    // Staged, and received in place.
    for (const std::size_t size : {std::size_t(4096), std::size_t(32768)}) {
        for (const bool right : {true, false}) {
            BOOST_TEST_CONTEXT(size << " octets, CRC right: " << right)
            {
                const auto crc_errors = ends(end_cause::crc_error);
                const int peer = connected();
                pages memory(size);
                auto grant = granted(memory.all(), verbs::access::remote_write);
                bytes whole = fpdu("c140" + at(grant), size);
                for (std::size_t i = 16; i < whole.size() - 4; ++i)
                    whole[i] = std::byte(i * 31);
                whole = with_crc(whole);
                if (!right)
                    whole.back() ^= std::byte(1);
                // In three parts, none of which is a multiple of four.
                const auto first = whole.begin() + 1001;
                const auto second = whole.begin() + 3002;
                arrives(peer, bytes(whole.begin(), first));
                arrives(peer, bytes(first, second));
                arrives(peer, bytes(second, whole.end() - 4));
                BOOST_TEST((memory.all().back() == std::byte((whole.size() - 5) * 31)));
                grant = verbs::grant();
                memory.unmap();
                const auto checked = provider->counters().crc_checked.load();
                arrives(peer, bytes(whole.end() - 4, whole.end()));
                shard->turn();
                BOOST_TEST(queue_pair->connected() == right);
                BOOST_TEST(provider->counters().crc_checked - checked == (right ? 1u : 0u));
                if (!right) {
                    const bytes terminate = read(peer, 24);
                    BOOST_REQUIRE(terminate.size() == 24u);
                    BOOST_TEST(to_hex(std::span(terminate).subspan(20, 2)) == "2002");
                    ::shutdown(peer, SHUT_WR);
                    until([&] { return ends(end_cause::crc_error) == crc_errors + 1 && handler.ended; });
                }
                queue_pair.reset();
            }
        }
    }
}

// The header of the FPDU was good. What of its payload comes after the grant has gone is placed nowhere.
BOOST_FIXTURE_TEST_CASE(a_grant_goes_in_the_middle_of_the_payload_of_a_write, with_grants)
{
    start();
    // Staged, and received in place.
    for (const std::size_t size : {std::size_t(4096), std::size_t(32768)}) {
        for (const std::size_t placed : {std::size_t(0), std::size_t(1), std::size_t(1001), size - 1}) {
            BOOST_TEST_CONTEXT(placed << " of " << size << " octets")
            {
                const auto before = ends(end_cause::access_error);
                const int peer = connected();
                bytes memory(size);
                auto grant = granted(memory, verbs::access::remote_write);
                bytes whole = fpdu("c140" + at(grant), size);
                std::fill(whole.begin() + 16, whole.end() - 4, std::byte('x'));
                const auto cut = whole.begin() + 16 + std::ptrdiff_t(placed);
                arrives(peer, bytes(whole.begin(), cut));
                BOOST_TEST(std::ranges::count(memory, std::byte('x')) == std::ptrdiff_t(placed));
                grant = verbs::grant();
                const bytes as_it_was = memory;
                arrives(peer, bytes(cut, whole.end()));
                shard->turn();
                BOOST_TEST((memory == as_it_was));
                const bytes terminate = read(peer, 24);
                BOOST_REQUIRE(terminate.size() == 24u);
                BOOST_TEST(to_hex(std::span(terminate).subspan(20, 2)) == "1100"); // invalid steering tag
                ::shutdown(peer, SHUT_WR);
                until([&] { return ends(end_cause::access_error) == before + 1 && handler.ended; });
                queue_pair.reset();
            }
        }
    }
}

// A socket that is full holds some of them, which the kernel has copied; of the memory nothing is read any more.
BOOST_FIXTURE_TEST_CASE(a_grant_goes_in_the_middle_of_a_read_response, with_grants)
{
    send_buffer = 4096;
    start();
    const int peer = connected();
    bytes memory(4 << 20, std::byte('x'));
    auto grant = granted(memory, verbs::access::remote_read);
    arrives(peer, read_request(grant));
    for (int i = 0; i < 5; ++i)
        shard->turn();
    BOOST_TEST(queue_pair->connected());
    grant = verbs::grant();
    std::ranges::fill(memory, std::byte('y'));
    bytes all;
    until([&] {
        std::byte b[4096];
        const ssize_t n = ::recv(peer, b, sizeof b, MSG_DONTWAIT);
        if (n > 0)
            all.insert(all.end(), b, b + n);
        return n == 0 || (n < 0 && errno != EAGAIN);
    });
    BOOST_TEST(std::ranges::count(all, std::byte('x')) > 0);
    BOOST_TEST(std::ranges::count(all, std::byte('y')) < 100); // of 4 MiB: what headers have by chance
    until([&] { return handler.ended; });
    BOOST_TEST(all_ends() == 1u);
}

// Its octets are owed by a socket that is full, so the connection goes; the Send that asks for that is not
// delivered then.
BOOST_FIXTURE_TEST_CASE(a_send_invalidates_what_the_peer_is_reading, with_grants)
{
    start();
    const int peer = connected();
    bytes memory(4 << 20);
    auto grant = granted(memory, verbs::access::remote_read);
    arrives(peer, read_request(grant));
    arrives(peer, fpdu("4144" + hex(grant.where().key, 8) + "00000000 00000001 00000000", 4));
    until([&] { return handler.ended; });
    BOOST_TEST(!grant.valid());
    BOOST_TEST(ends(end_cause::local) == 1u);
    BOOST_TEST(all_ends() == 1u);
    BOOST_REQUIRE(handler.seen.size() == 1u);
    BOOST_TEST((handler.seen[0].status == verbs::status::work_request_flushed));
    BOOST_TEST(handler.late == 0u);
}

// Before the Read Response begins.
BOOST_FIXTURE_TEST_CASE(a_read_whose_grant_has_gone_is_answered_with_a_terminate, with_grants)
{
    start();
    const int peer = connected();
    bytes memory(4096);
    auto grant = granted(memory, verbs::access::remote_read);
    handler.then = [&] { grant = verbs::grant(); };
    // The end of the Send revokes, the turn's end answers; the header of another FPDU, begun by then, is none of its.
    const bytes next = fpdu("4143 00000000 00000000 00000002 00000000", 4);
    arrives(peer, fpdu("4143 00000000 00000000 00000001 00000000", 4) + read_request(grant) +
                      bytes(next.begin(), next.begin() + 17));
    const bytes terminate = read(peer, 24);
    BOOST_REQUIRE(terminate.size() == 24u);
    BOOST_TEST(to_hex(std::span(terminate).subspan(2, 2)) == "4147");
    BOOST_TEST(to_hex(std::span(terminate).subspan(20, 4)) == "01000000");
    BOOST_TEST(read(peer, 8).size() == 4u); // CRC, then FIN
    ::shutdown(peer, SHUT_WR);
    until([&] { return handler.ended; });
    BOOST_TEST(ends(end_cause::access_error) == 1u);
    BOOST_TEST(all_ends() == 1u);
}

// Octets of the memory stand in the batch before it. An RDMA Read that ends meanwhile brings completions of this
// queue, and not that one.
BOOST_FIXTURE_TEST_CASE(a_local_invalidate_is_complete_when_no_octet_of_its_memory_is_unsent, with_grants)
{
    reads = true;
    send_buffer = 4096;
    start();
    const int peer = connected();
    write(peer, ready);
    const bytes question = read(peer, 52); // our own Read
    BOOST_REQUIRE(question.size() == 52u);
    bytes user(32768, std::byte('x')); // one batch
    auto grant = granted(user, verbs::access::remote_read);
    const auto completed = [&](verbs::opcode op) {
        return std::ranges::count(handler.seen, op, &verbs::completion::opcode);
    };
    handler.then = [&] {
        if (completed(verbs::opcode::local_invalidate) != 0) {
            std::ranges::fill(user, std::byte('y'));
        } else if (handler.seen.size() == 1) { // the Send: the Read Request behind it is known
            verbs::send_request w;
            w.opcode = verbs::opcode::local_invalidate;
            w.invalidate_key = grant.where().key;
            BOOST_REQUIRE(queue_pair->post_send({&w, 1}));
        }
    };
    arrives(peer, fpdu("4143 00000000 00000000 00000001 00000000", 4) + read_request(grant));
    until([&] { return !handler.seen.empty(); });
    for (int i = 0; i < 5; ++i)
        shard->turn();
    arrives(peer, fpdu("c142" + to_hex(std::span(question).subspan(20, 12)), 100));
    for (int i = 0; i < 5; ++i)
        shard->turn();
    BOOST_TEST(completed(verbs::opcode::local_invalidate) == 0);
    bytes all;
    until([&] {
        std::byte b[1000];
        const ssize_t n = ::recv(peer, b, sizeof b, MSG_DONTWAIT);
        if (n > 0)
            all.insert(all.end(), b, b + n);
        return n <= 0 && completed(verbs::opcode::local_invalidate) != 0;
    });
    BOOST_TEST(completed(verbs::opcode::rdma_read) == 1);
    BOOST_TEST(completed(verbs::opcode::local_invalidate) == 1);
    BOOST_TEST(!grant.valid());
    BOOST_TEST((std::ranges::count(all, std::byte('x')) >= std::ptrdiff_t(user.size())));
    BOOST_TEST(queue_pair->connected());
}

// What hears of one connection's end may revoke another grant, which ends another connection: those that owe octets of the first
// grant end all the same.
BOOST_FIXTURE_TEST_CASE(a_grant_revoked_while_another_is_leaves_no_connection_that_owes_it, with_grants)
{
    send_buffer = 4096;
    start(false);
    struct end {
        std::unique_ptr<verbs::queue_pair> pair;
        nobody handler;
        int peer = -1;
    };
    std::array<end, 3> all;
    const auto accept = [](fixture& f, end& e) -> task<void> {
        auto next = co_await f.listener->next();
        BOOST_REQUIRE(next);
        auto made = co_await (*next)->make_queue_pair(*f.domain, verbs::queue_pair_options());
        BOOST_REQUIRE(made);
        e.pair = std::move(*made);
        e.pair->set_handler(&e.handler);
        const verbs::receive_request receive{1, {f.memory.data(), 100, 0}};
        BOOST_REQUIRE(e.pair->post_receive({&receive, 1}));
        verbs::connect_options o;
        o.responder_resources = 1;
        const result<void> accepted = co_await (*next)->accept(o);
        BOOST_TEST(accepted.has_value());
    };
    for (end& e : all) {
        tasks->spawn([&] { return accept(*this, e); });
        e.peer = connect();
        write(e.peer, good_start);
        BOOST_TEST(read(e.peer, 24).size() == 24u);
    }
    bytes one(1 << 20);
    bytes other(1 << 20);
    auto of_the_first = granted(one, verbs::access::remote_read);
    auto of_the_rest = granted(other, verbs::access::remote_read);
    arrives(all[0].peer, read_request(of_the_first));
    arrives(all[1].peer, read_request(of_the_rest));
    arrives(all[2].peer, read_request(of_the_rest));
    for (int i = 0; i < 5; ++i)
        shard->turn();
    all[1].handler.then = [&] { of_the_first = verbs::grant(); };
    of_the_rest = verbs::grant();
    for (end& e : all) {
        BOOST_TEST(!e.pair->connected());
        BOOST_TEST(e.handler.ended);
    }
    BOOST_TEST(ends(end_cause::local) == 3u);
}

BOOST_AUTO_TEST_SUITE_END()
