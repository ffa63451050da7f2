// SPDX-License-Identifier: Apache-2.0
// A connection that fails, or has ended, keeps no memory for stores that nothing goes by any more.
#include <boost/test/unit_test.hpp>

#include "iwarp_store_memory.hpp"

BOOST_AUTO_TEST_SUITE(iwarp_store_releases_test)

using namespace verbena;
using namespace verbena::iwarp_by_hand;

namespace {

// Which the peer ends, and it takes its time.
struct failing : with_budget {
    failing() { options.close_timeout = 10s; }
    /// Octets against a rule.
    static bytes bad() { return fpdu("414f 00000000 00000000 00000001 00000000", 5); }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_wrong_crc_of_what_is_staged, failing)
{
    options.crc = iwarp::crc_mode::on;
    start();
    const int peer = connected();
    grant = granted_store(0, 100'000);
    write(peer, with_crc(half(grant, 0, 100)));
    until([&] { return in_use() == 256 * kib; });
    bytes wrong = with_crc(half(grant, 100, 100));
    wrong.back() ^= std::byte(1);
    write(peer, wrong);
    expect_terminate(peer, "2002");
    BOOST_TEST(!handler.ended);
    BOOST_TEST(pool.outstanding() == 0u);
    BOOST_TEST(log() == "");
}

BOOST_FIXTURE_TEST_CASE(what_is_staged_of_a_connection_that_fails, failing)
{
    start();
    const int peer = connected();
    grant = granted_store(0, 100'000);
    arrives(peer, half(grant, 0, 100));
    BOOST_TEST(in_use() == 256 * kib);
    // The message goes on elsewhere.
    write(peer, fpdu("c140 00000001" + hex(0, 16), 8));
    expect_terminate(peer, "1101");
    BOOST_TEST(pool.outstanding() == 0u);
}

// It stands in line no more.
BOOST_FIXTURE_TEST_CASE(a_response_that_waits_for_a_buffer, failing)
{
    start();
    grant = granted_store(0, 100'000);
    spend();
    const int holder = one_more(), fails = one_more(), other = one_more();
    store->hangs = true;
    write(holder, message(grant, 0, pattern(100, 1)));
    until([&] { return store->log.size() == 1; });
    write(fails, ready + read_request(grant, 0, 100));
    until([&] { return waits() == 1; });
    write(other, ready + read_request(grant, 0, 200));
    until([&] { return waits() == 2; });
    write(fails, bad());
    expect_terminate(fails, "0206");
    store->goes_on();
    milliseconds(5); // before what is idle goes by itself
    BOOST_TEST(log() == "write 0+100, read 0+200");
    BOOST_TEST(response(other, 200).size() == 200u);
}

BOOST_FIXTURE_TEST_CASE(a_response_that_has_not_begun, failing)
{
    start();
    const int peer = connected();
    grant = granted_store(0, 100'000);
    store->hangs = true;
    write(peer, ready + read_request(grant, 0, 5000));
    until([&] { return store->log.size() == 1; });
    write(peer, bad());
    expect_terminate(peer, "0206");
    store->goes_on();
    until([&] { return in_use() == 0; });
    BOOST_TEST(!handler.ended);
}

// Its end waits for the write, and nothing of the response is sent.
BOOST_FIXTURE_TEST_CASE(a_response_of_a_connection_that_has_ended_amid_a_write, with_budget)
{
    send_buffer = 8192;
    start();
    const int peer = connected();
    grant = granted_store(0, 300'000);
    write(peer, ready + read_request(grant, 0, 200'000));
    until([&] { return store->log.size() == 1; });
    store->hangs = true;
    write(peer, message(grant, 0, pattern(100, 1)));
    until([&] { return store->log.size() == 2; });
    BOOST_TEST(in_use() == 260 * kib);
    queue_pair->abort(error(std::errc::connection_aborted));
    BOOST_TEST(!handler.ended);
    BOOST_TEST(in_use() == 4 * kib);
    store->goes_on();
    until([&] { return handler.ended; });
    BOOST_TEST(in_use() == 0u);
}

// The context has one place for what was read ahead without memory, and nobody reads ahead while it is taken.
BOOST_FIXTURE_TEST_CASE(the_place_for_what_was_read_ahead, with_budget)
{
    start();
    grant = granted_store(0, 10'000);
    const int holder = one_more(), waiting = one_more(), other = one_more();
    arrives(other, ready);
    spend();
    store->hangs = true;
    write(holder, message(grant, 0, pattern(100, 1)));
    until([&] { return store->log.size() == 1; });
    // One Write, and no more of the next one than its header.
    const bytes next = message(grant, 200, pattern(100, 3));
    write(waiting, message(grant, 100, pattern(100, 2)) + bytes(next.begin(), next.begin() + 16));
    until([&] { return waits() == 1; });
    one_goes_on();
    until([&] { return store->log.size() == 2; });
    milliseconds(1);
    const auto before = provider->counters().receives.load();
    bytes many;
    for (int i = 0; i < 50; ++i)
        many = std::move(many) + ready;
    arrives(other, many);
    BOOST_TEST(provider->counters().receives - before < 10u);
    write(waiting, bytes(next.begin() + 16, next.end()));
    store->goes_on();
    until([&] { return store->log.size() == 3; });
    BOOST_TEST((store->part(200, 100) == pattern(100, 3)));
}

BOOST_AUTO_TEST_SUITE_END()
