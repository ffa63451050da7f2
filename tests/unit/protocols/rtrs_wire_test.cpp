// SPDX-License-Identifier: Apache-2.0
// Messages of RTRS and RNBD: the bytes that kernels send, and what is none of them.
#include <boost/test/unit_test.hpp>

#include <verbena/protocols/rnbd/wire.hpp>
#include <verbena/protocols/rtrs/wire.hpp>

#include <algorithm>
#include <cerrno>
#include <initializer_list>
#include <vector>

BOOST_AUTO_TEST_SUITE(rtrs_wire_test)

using namespace verbena;

namespace {

bool begins(std::span<const std::byte> bytes, std::initializer_list<unsigned> with)
{
    return std::ranges::equal(bytes.first(with.size()), with, {}, [](std::byte b) { return unsigned(b); });
}

rtrs::uuid numbered(unsigned from)
{
    rtrs::uuid id;
    for (std::size_t i = 0; i < id.bytes.size(); ++i)
        id.bytes[i] = std::byte(from + i);
    return id;
}

} // namespace

BOOST_AUTO_TEST_CASE(connection_requests)
{
    rtrs::connect_request m;
    m.connection = 1;
    m.connections = 0x103;
    m.reconnects = 7;
    m.path = numbered(0x10);
    m.session = numbered(0x80);
    m.first = true;
    const auto bytes = encode(m);
    BOOST_TEST(bytes.size() == 56u);
    BOOST_TEST(begins(bytes, {0, 0, 0xBD, 0x1B, 0x00, 0x02, 1, 0, 3, 1, 7, 0, 0x10, 0x11}));
    BOOST_TEST(unsigned(bytes[28]) == 0x80u);
    BOOST_TEST(unsigned(bytes[44]) == 1u);
    const auto back = rtrs::decode_connect_request(bytes);
    BOOST_REQUIRE(back);
    BOOST_TEST((*back == m));

    // InfiniBand's connection manager hands on all that it has.
    std::vector<std::byte> padded(bytes.begin(), bytes.end());
    padded.resize(92);
    BOOST_TEST(rtrs::decode_connect_request(padded).has_value());

    const auto refused = [&](auto change) {
        auto other = bytes;
        change(other);
        return !rtrs::decode_connect_request(other);
    };
    BOOST_TEST(refused([](auto& b) { b[2] = std::byte(0); }));  // magic
    BOOST_TEST(refused([](auto& b) { b[5] = std::byte(3); }));  // major
    BOOST_TEST(!refused([](auto& b) { b[4] = std::byte(9); })); // minor
    BOOST_TEST(refused([](auto& b) { b[9] = std::byte(0), b[8] = std::byte(0); }));
    BOOST_TEST(refused([](auto& b) { b[9] = std::byte(0x10), b[8] = std::byte(1); })); // 4097
    BOOST_TEST(refused([](auto& b) { b[7] = std::byte(1), b[6] = std::byte(3); })); // number 0x103 of 0x103
    for (std::size_t size = 0; size < bytes.size(); ++size)
        BOOST_TEST(!rtrs::decode_connect_request(std::span(bytes).first(size)));
}

BOOST_AUTO_TEST_CASE(connection_answers)
{
    rtrs::connect_reply m;
    m.queue_depth = 512;
    m.max_io_size = 126976;
    m.max_header_size = 4096;
    m.new_keys = true;
    const auto bytes = encode(m);
    BOOST_TEST(begins(bytes, {0xBD, 0x1B, 0x00, 0x02, 0, 0, 0, 2, 0, 0xF0, 1, 0, 0, 0x10, 0, 0, 2, 0, 0, 0}));
    const auto back = rtrs::decode_connect_reply(bytes);
    BOOST_REQUIRE(back);
    BOOST_TEST((*back == m));

    rtrs::connect_reply no;
    no.error = ECONNRESET;
    const auto refusal = encode(no);
    BOOST_TEST(begins(std::span(refusal).subspan(4), {0x98, 0xFF})); // -104
    BOOST_REQUIRE(rtrs::decode_connect_reply(refusal));
    BOOST_TEST(rtrs::decode_connect_reply(refusal)->error == ECONNRESET);

    const auto with = [&](std::uint16_t depth, std::uint32_t io, std::uint32_t header) {
        rtrs::connect_reply odd = m;
        odd.queue_depth = depth;
        odd.max_io_size = io;
        odd.max_header_size = header;
        return rtrs::decode_connect_reply(encode(odd)).has_value();
    };
    BOOST_TEST(!with(0, 126976, 4096));
    BOOST_TEST(!with(512, 0, 4096));
    BOOST_TEST(!with(512, 126976, 23));
    BOOST_TEST(with(512, (1 << 19) - 4096, 4096));
    BOOST_TEST(!with(512, (1 << 19) - 4095, 4096)); // more bits than an immediate has
    BOOST_TEST(!with(512, 0xFFFFFFFF, 0xFFFFFFFF));
}

BOOST_AUTO_TEST_CASE(names_of_sessions)
{
    const auto bytes = rtrs::encode_info_request("blk");
    BOOST_TEST(bytes.size() == 272u);
    BOOST_TEST(begins(bytes, {0, 0, 'b', 'l', 'k', 0}));
    BOOST_TEST(*rtrs::decode_info_request(bytes) == "blk");
    BOOST_TEST(*rtrs::decode_info_request(rtrs::encode_info_request(std::string(254, 'x'))) ==
               std::string(254, 'x'));
    BOOST_TEST(!rtrs::decode_info_request(rtrs::encode_info_request("")));
    BOOST_TEST(!rtrs::decode_info_request(rtrs::encode_info_request("a/b")));
    BOOST_TEST(!rtrs::decode_info_request(rtrs::encode_info_request("a.b")));
    auto endless = bytes;
    std::fill(endless.begin() + 2, endless.end(), std::byte('x'));
    BOOST_TEST(!rtrs::decode_info_request(endless));
    BOOST_TEST(!rtrs::decode_info_request(std::span(bytes).first(256)));
    auto other = bytes;
    other[0] = std::byte(1);
    BOOST_TEST(!rtrs::decode_info_request(other));
}

BOOST_AUTO_TEST_CASE(places_of_chunks)
{
    const std::vector<rtrs::descriptor> chunks = {{0x1122334455667788, 0xAABBCCDD, 0x20000}, {1, 2, 3}};
    std::vector<std::byte> bytes(rtrs::info_response_size(2));
    rtrs::encode_info_response(bytes, chunks);
    BOOST_TEST(begins(bytes, {1,    0,    2,    0,    0,    0,    0,    0, 0x88, 0x77, 0x66, 0x55, 0x44,
                              0x33, 0x22, 0x11, 0xDD, 0xCC, 0xBB, 0xAA, 0, 0,    2,    0,    1}));
    std::vector<rtrs::descriptor> back(2);
    BOOST_TEST(*rtrs::decode_info_response(bytes, back) == 2u);
    BOOST_TEST((back == chunks));
    BOOST_TEST(!rtrs::decode_info_response(bytes, std::span(back).first(1)));
    for (std::size_t size = 0; size < bytes.size(); ++size)
        BOOST_TEST(!rtrs::decode_info_response(std::span(bytes).first(size), back));
}

BOOST_AUTO_TEST_CASE(headers_of_requests)
{
    std::vector<std::byte> bytes(rtrs::read_header_size);
    rtrs::io_header write;
    write.is_write = true;
    write.user_size = 32;
    BOOST_TEST(encode(bytes, write) == 4u);
    BOOST_TEST(begins(bytes, {2, 0, 32, 0}));
    BOOST_TEST((*rtrs::decode_io_header(std::span(bytes).first(4)) == write));
    BOOST_TEST(!rtrs::decode_io_header(std::span(bytes).first(3)));

    rtrs::io_header read;
    read.user_size = 0x1234;
    read.invalidate = true;
    read.sink = rtrs::descriptor{0x1000, 7, 4096};
    BOOST_TEST(encode(bytes, read) == 24u);
    BOOST_TEST(
        begins(bytes, {3, 0, 0x34, 0x12, 1, 0, 1, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0x10, 0, 0}));
    BOOST_TEST((*rtrs::decode_io_header(bytes) == read));
    BOOST_TEST(!rtrs::decode_io_header(std::span(bytes).first(23)));

    rtrs::io_header flush;
    flush.user_size = 32;
    BOOST_TEST(encode(bytes, flush) == 8u);
    BOOST_TEST((*rtrs::decode_io_header(std::span(bytes).first(8)) == flush));

    bytes[6] = std::byte(2); // two sinks
    BOOST_TEST(!rtrs::decode_io_header(bytes));
    bytes[0] = std::byte(9);
    BOOST_TEST(!rtrs::decode_io_header(bytes));

    const auto key = encode(rtrs::new_key{5, 0x01020304});
    BOOST_TEST(begins(key, {4, 0, 5, 0, 4, 3, 2, 1}));
    BOOST_TEST((*rtrs::decode_new_key(key) == rtrs::new_key{5, 0x01020304}));
    BOOST_TEST(!rtrs::decode_new_key(std::span(key).first(7)));
}

BOOST_AUTO_TEST_CASE(immediates)
{
    const rtrs::request_layout usual(512);
    BOOST_TEST(usual.immediate(3, 0x1020) == 0x00181020u);
    BOOST_TEST(usual.chunk(0x00181020) == 3u);
    BOOST_TEST(usual.offset(0x00181020) == 0x1020u);
    BOOST_TEST(usual.fits(1 << 19));
    BOOST_TEST(!usual.fits((1 << 19) + 1));
    const rtrs::request_layout one(1);
    BOOST_TEST(one.chunk(0x0fffffff) == 0u);
    BOOST_TEST(one.offset(0x0fffffff) == 0x0fffffffu);
    const rtrs::request_layout odd(3); // takes two bits
    BOOST_TEST(odd.chunk(odd.immediate(2, 5)) == 2u);
    BOOST_TEST(odd.offset(odd.immediate(2, 5)) == 5u);

    BOOST_TEST(rtrs::encode(rtrs::response{3, 5}, false) == 0x10280003u);
    BOOST_TEST(rtrs::encode(rtrs::response{3, 5}, true) == 0x20280003u);
    BOOST_TEST((rtrs::decode_response(0x10280003) == rtrs::response{3, 5}));
    BOOST_TEST(rtrs::decode_response(rtrs::encode(rtrs::response{1, 512}, false)).error == EIO);
    BOOST_TEST(rtrs::make_immediate(rtrs::immediate_type::heartbeat) == 0x80000000u);
    BOOST_TEST((rtrs::type_of(0x90000000) == rtrs::immediate_type::heartbeat_reply));
}

BOOST_AUTO_TEST_CASE(messages_of_rnbd)
{
    const auto info = rnbd::encode_session_info(rnbd::message::session_info, 2);
    BOOST_TEST(info.size() == 36u);
    BOOST_TEST(*rnbd::decode_session_info(rnbd::message::session_info, info) == 2);
    BOOST_TEST(!rnbd::decode_session_info(rnbd::message::session_info_response, info));
    BOOST_TEST(rnbd::token_of_session_info(info) == 0u);
    const auto answer =
        rnbd::encode_session_info(rnbd::message::session_info_response, 2, 0x8877665544332211);
    BOOST_TEST(begins(answer, {1, 0, 0, 0, 2, 0, 0, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0}));
    BOOST_TEST(rnbd::token_of_session_info(answer) == 0x8877665544332211);
    BOOST_TEST(rnbd::token_of_session_info(std::span(answer).first(15)) == 0u);

    const auto open = rnbd::encode(rnbd::open_request{rnbd::access_mode::migration, "disk"});
    BOOST_TEST(open.size() == 264u);
    BOOST_TEST(begins(open, {2, 0, 0, 0, 2, 0, 'd', 'i', 's', 'k', 0}));
    BOOST_TEST(rnbd::decode_open(open)->device == "disk");
    BOOST_TEST((rnbd::decode_open(open)->mode == rnbd::access_mode::migration));
    auto odd = open;
    odd[4] = std::byte(3);
    BOOST_TEST(!rnbd::decode_open(odd)); // no such mode
    odd = open;
    odd[6] = std::byte(0);
    BOOST_TEST(!rnbd::decode_open(odd)); // no name
    std::fill(odd.begin() + 6, odd.end(), std::byte('x'));
    BOOST_TEST(!rnbd::decode_open(odd)); // one without an end
    BOOST_TEST(!rnbd::decode_open(std::span(open).first(260)));

    rnbd::open_response told;
    told.device = 4;
    told.sectors = 0x100000000;
    told.max_sectors = 248;
    told.max_write_zeroes_sectors = 9;
    told.max_discard_sectors = 10;
    told.discard_granularity = 4096;
    told.physical_block_size = 4096;
    told.logical_block_size = 512;
    told.fua = told.write_back = true;
    told.run = 0x8877665544332211;
    const auto bytes = encode(told);
    BOOST_TEST(bytes.size() == 56u);
    BOOST_TEST(begins(std::span(bytes).subspan(36), {0, 0x10, 0, 2}));
    BOOST_TEST(unsigned(bytes[45]) == 3u);
    BOOST_TEST((*rnbd::decode_open_response(bytes) == told));
    BOOST_TEST(begins(std::span(bytes).subspan(46), {0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0, 0}));
    BOOST_TEST(rnbd::decode_open_response(std::span(bytes).first(53))->run == 0u);
    auto blockless = bytes;
    blockless[39] = std::byte(0);
    BOOST_TEST(!rnbd::decode_open_response(blockless));
    BOOST_TEST(!rnbd::decode_open_response(std::span(bytes).first(45)));

    BOOST_TEST(*rnbd::decode_close(rnbd::encode_close(77)) == 77u);

    rnbd::io_request io;
    io.device = 1;
    io.sector = 0x123456789;
    io.operation = rnbd::operation::write;
    io.flags = rnbd::flag_sync | rnbd::flag_fua;
    io.bytes = 4096;
    io.priority = 3;
    const auto sent = encode(io);
    BOOST_TEST(sent.size() == 32u);
    BOOST_TEST(begins(std::span(sent).subspan(16), {1, 3, 0, 0, 0, 0x10, 0, 0, 3, 0}));
    BOOST_TEST((*rnbd::decode_io(sent) == io));
    io.priority = 0;
    BOOST_TEST((*rnbd::decode_io(std::span(sent).first(24)) == io)); // older clients have none
    BOOST_TEST(!rnbd::decode_io(std::span(sent).first(23)));
    BOOST_TEST(!rnbd::type_of(std::span(sent).first(3)));
}

BOOST_AUTO_TEST_SUITE_END()
