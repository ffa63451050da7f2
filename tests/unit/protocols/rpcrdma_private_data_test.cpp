// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/protocols/rpcrdma/private_data.hpp>

#include "bytes.hpp"

BOOST_AUTO_TEST_SUITE(rpcrdma_private_data_test)

using namespace verbena::test;
using namespace verbena::rpcrdma;

BOOST_AUTO_TEST_CASE(encoding)
{
    BOOST_TEST(to_hex(encode({true, 4096, 4096})) == "f6ab0e18 01010303"); // what Linux clients send
    BOOST_TEST(to_hex(encode({false, 1024, 262144})) == "f6ab0e18 010000ff");
    BOOST_TEST(to_hex(encode({false, 0, 1 << 30})) == "f6ab0e18 010000ff"); // held within the limits
    BOOST_TEST(to_hex(encode({false, 5000, 2047})) == "f6ab0e18 01000300"); // rounded down
}

BOOST_AUTO_TEST_CASE(found_anywhere)
{
    for (const std::string_view text :
         {"f6ab0e18 01010307", "00112233 f6ab0e18 01010307", "aa f6ab0e18 01010307 0000000000",
          "f6ab f6ab0e18 01010307", "f6ab0e18 02ffffff f6ab0e18 01010307"}) {
        const auto message = find_private_message(from_hex(text));
        BOOST_REQUIRE(message);
        BOOST_TEST(message->remote_invalidation);
        BOOST_TEST(message->send_size == 4096u);
        BOOST_TEST(message->receive_size == 8192u);
    }
    const auto largest = find_private_message(from_hex("f6ab0e18 01fe00ff"));
    BOOST_REQUIRE(largest);
    BOOST_TEST(!largest->remote_invalidation); // only the lowest bit counts
    BOOST_TEST(largest->send_size == 1024u);
    BOOST_TEST(largest->receive_size == 262144u);
}

BOOST_AUTO_TEST_CASE(not_there)
{
    BOOST_TEST(!find_private_message({}));
    BOOST_TEST(!find_private_message(from_hex("f6ab0e18 010103")));
    BOOST_TEST(!find_private_message(from_hex("f6ab0e18 02010303")));
    BOOST_TEST(!find_private_message(from_hex("f6ab0e19 01010303 00000000")));
}

BOOST_AUTO_TEST_CASE(terms)
{
    const private_message own{true, 8192, 4096};
    const auto none = negotiate(own, std::nullopt);
    BOOST_TEST(none.send_threshold == 1024u);
    BOOST_TEST(none.receive_threshold == 1024u);
    BOOST_TEST(!none.remote_invalidation);

    const auto both = negotiate(own, private_message{true, 2048, 65536});
    BOOST_TEST(both.send_threshold == 8192u);
    BOOST_TEST(both.receive_threshold == 2048u);
    BOOST_TEST(both.remote_invalidation);

    const auto smaller = negotiate(own, private_message{false, 65536, 1024});
    BOOST_TEST(smaller.send_threshold == 1024u);
    BOOST_TEST(smaller.receive_threshold == 4096u);
    BOOST_TEST(!smaller.remote_invalidation);
    BOOST_TEST(!negotiate({false, 4096, 4096}, private_message{true, 4096, 4096}).remote_invalidation);
}

BOOST_AUTO_TEST_SUITE_END()
