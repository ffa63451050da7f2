// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/protocols/nfs/wire/portmap.hpp>

#include "bytes.hpp"

BOOST_AUTO_TEST_SUITE(portmap_test)

using namespace verbena::test;
using namespace verbena::nfs::portmap;
using verbena::xdr::decoder;
using verbena::xdr::encoder;

namespace {

template<class Args>
std::string encoded(const Args& args)
{
    std::vector<std::byte> block(4096);
    encoder out(block);
    encode(out, args);
    BOOST_TEST(out.ok());
    return to_hex(out.bytes());
}

} // namespace

BOOST_AUTO_TEST_CASE(version_2_mapping)
{
    const auto bytes = from_hex("000186a3 00000003 00000006 00000801");
    decoder in(bytes);
    mapping args;
    decode(in, args);
    BOOST_TEST(in.at_end());
    BOOST_TEST(args.program == 100003u);
    BOOST_TEST(args.version == 3u);
    BOOST_TEST(args.protocol == protocol_tcp);
    BOOST_TEST(args.port == 2049u);
    BOOST_TEST(encoded(args) == to_hex(bytes));
}

BOOST_AUTO_TEST_CASE(rpcb_entry)
{
    // {100003, 3, "rdma", "0.0.0.0.78.81", "1"}
    const auto bytes = from_hex("000186a3 00000003 00000004 72646d61 0000000d 302e302e 302e302e 37382e38"
                                "31000000 00000001 31000000");
    decoder in(bytes);
    rpcb args;
    decode(in, args);
    BOOST_TEST(in.at_end());
    BOOST_TEST(args.program == 100003u);
    BOOST_TEST(args.version == 3u);
    BOOST_TEST(args.netid == "rdma");
    BOOST_TEST(args.addr == universal_address("0.0.0.0", 20049));
    BOOST_TEST(args.owner == "1");
    BOOST_TEST(encoded(args) == to_hex(bytes));
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        decoder cut{std::span(bytes).first(length)};
        decode(cut, args);
        BOOST_TEST(!cut.ok());
    }
}

BOOST_AUTO_TEST_CASE(dumps)
{
    const auto version_2 = from_hex("00000001 000186a0 00000002 00000006 0000006f"
                                    "00000001 000186a5 00000003 00000011 00005000 00000000");
    decoder in_2(version_2);
    mapping entry_2;
    BOOST_TEST(next(in_2, entry_2));
    BOOST_TEST(entry_2.port == 111u);
    BOOST_TEST(next(in_2, entry_2));
    BOOST_TEST(entry_2.program == 100005u);
    BOOST_TEST(!next(in_2, entry_2));
    BOOST_TEST(in_2.at_end());

    const auto version_3 =
        from_hex("00000001 000186a3 00000003 00000003 74637000 00000000 00000000 00000000");
    decoder in_3(version_3);
    rpcb entry_3;
    BOOST_TEST(next(in_3, entry_3));
    BOOST_TEST(entry_3.netid == "tcp");
    BOOST_TEST(!next(in_3, entry_3));
    BOOST_TEST(in_3.at_end());
}

BOOST_AUTO_TEST_CASE(universal_addresses)
{
    BOOST_TEST(universal_address("127.0.0.1", 20049) == "127.0.0.1.78.81");
    BOOST_TEST(universal_address("::", 2049) == "::.8.1");
    BOOST_TEST(*port_of("127.0.0.1.78.81") == 20049u);
    BOOST_TEST(*port_of("::1.8.1") == 2049u);
    BOOST_TEST(*port_of("0.0.0.0.255.255") == 65535u);
    for (const std::string_view text :
         {"", "78", "1.256", "256.1", ".", "a.b.c", "1.2x", "1.-2", "1. 2", "1."})
        BOOST_TEST(!port_of(text));
}

BOOST_AUTO_TEST_SUITE_END()
