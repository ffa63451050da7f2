// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/protocols/rpcrdma/header.hpp>

#include "bytes.hpp"

BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::rpcrdma::verdict)
BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::rpcrdma::procedure)
BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::rpcrdma::error_kind)
BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::rpcrdma::segment)
BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::rpcrdma::read_segment)

BOOST_AUTO_TEST_SUITE(rpcrdma_header_test)

using namespace verbena::test;
using namespace verbena::rpcrdma;
using verbena::xdr::encoder;

namespace {

// RFC 8166 4.7 draws the lists; H, L and OO below are handle, length and offset.
constexpr std::string_view fixed_msg = "00000011 00000001 00000020 00000000";
constexpr std::string_view fixed_nomsg = "00000011 00000001 00000020 00000001";
constexpr std::string_view hloo_1 = "0000aaaa 00001000 00000011 00020000";
constexpr std::string_view hloo_2 = "0000bbbb 00000800 00000011 00030000";
constexpr segment segment_1{0xaaaa, 0x1000, 0x1100020000};
constexpr segment segment_2{0xbbbb, 0x800, 0x1100030000};

std::string hex(std::initializer_list<std::string_view> parts)
{
    std::string text;
    for (const auto part : parts)
        text += part;
    return text;
}

std::string repeated(std::size_t count, std::string_view text)
{
    std::string all;
    while (count-- > 0)
        all += text;
    return all;
}

std::string encoded(const header& value)
{
    std::vector<std::byte> block(max_header_size);
    encoder out(block);
    encode(out, value);
    BOOST_TEST(out.ok());
    BOOST_TEST(out.size() == encoded_size(value));
    return to_hex(out.bytes());
}

verdict verdict_of(std::string_view text)
{
    header value;
    const auto decoded = decode(from_hex(text), value);
    BOOST_TEST((decoded.rule == nullptr) == (decoded.action == verdict::good));
    return decoded.action;
}

/// Decodes a good header, and checks that it is encoded to the same bytes.
header good(std::string_view text)
{
    header value;
    const auto bytes = from_hex(text);
    const auto decoded = decode(bytes, value);
    BOOST_TEST(decoded.action == verdict::good);
    BOOST_TEST(decoded.offset == bytes.size());
    BOOST_TEST(encoded(value) == to_hex(text));
    return value;
}

} // namespace

BOOST_AUTO_TEST_SUITE(good_headers)

BOOST_AUTO_TEST_CASE(no_chunks)
{
    const auto message = from_hex(hex({fixed_msg, "00000000 00000000 00000000", "00000011 00000000"}));
    header call;
    const auto decoded = decode(message, call);
    BOOST_TEST(decoded.action == verdict::good);
    BOOST_TEST(decoded.offset == 28u); // the payload stream follows
    BOOST_TEST(call.xid == 0x11u);
    BOOST_TEST(call.version == 1u);
    BOOST_TEST(call.credits == 32u);
    BOOST_TEST(call.proc == procedure::msg);
    BOOST_TEST(call.reads.empty());
    BOOST_TEST(call.writes.empty());
    BOOST_TEST(!call.has_reply_chunk);
    BOOST_TEST(broken_call_rule(call, std::span(message).subspan(28)) == nullptr);
    BOOST_TEST(broken_reply_rule(call, std::span(message).subspan(28)) == nullptr);
}

BOOST_AUTO_TEST_CASE(read_chunk_of_two_segments)
{
    const header call = good(hex({fixed_msg, "00000001 0000009c", hloo_1, "00000001 0000009c", hloo_2,
                                  "00000000", "00000000", "00000000"}));
    BOOST_REQUIRE(call.reads.size() == 2u);
    BOOST_TEST(call.reads.all()[0] == (read_segment{156, segment_1}));
    BOOST_TEST(call.reads.all()[1] == (read_segment{156, segment_2}));
    BOOST_TEST(call.position_zero().empty());
    BOOST_TEST(call.data_reads().size() == 2u);
    BOOST_TEST(total_length(call.reads.all()) == 0x1800u);
}

BOOST_AUTO_TEST_CASE(write_list_with_an_empty_chunk)
{
    const header call = good(hex({fixed_msg, "00000000", "00000001 00000002", hloo_1, hloo_2,
                                  "00000001 00000000", "00000001 00000001", hloo_2, "00000000", "00000000"}));
    BOOST_REQUIRE(call.writes.size() == 3u);
    BOOST_REQUIRE(call.writes.chunk(0).size() == 2u);
    BOOST_TEST(call.writes.chunk(0)[0] == segment_1);
    BOOST_TEST(call.writes.chunk(0)[1] == segment_2);
    BOOST_TEST(call.writes.chunk(1).empty());
    BOOST_REQUIRE(call.writes.chunk(2).size() == 1u);
    BOOST_TEST(call.writes.chunk(2)[0] == segment_2);
}

BOOST_AUTO_TEST_CASE(long_call_with_reply_chunk)
{
    const header call = good(hex({fixed_nomsg, "00000001 00000000", hloo_1, "00000001 00000054", hloo_2,
                                  "00000000", "00000000", "00000001 00000001", hloo_2}));
    BOOST_TEST(call.proc == procedure::nomsg);
    BOOST_REQUIRE(call.position_zero().size() == 1u);
    BOOST_TEST(call.position_zero()[0].target == segment_1);
    BOOST_REQUIRE(call.data_reads().size() == 1u);
    BOOST_TEST(call.data_reads()[0].position == 84u);
    BOOST_TEST(call.has_reply_chunk);
    BOOST_REQUIRE(call.reply.size() == 1u);
    BOOST_TEST(call.reply.all()[0] == segment_2);
    BOOST_TEST(broken_call_rule(call, {}) == nullptr);
}

BOOST_AUTO_TEST_CASE(reply_chunk_without_segments)
{
    const header call = good(hex({fixed_msg, "00000000 00000000 00000001 00000000"}));
    BOOST_TEST(call.has_reply_chunk);
    BOOST_TEST(call.reply.empty());
}

BOOST_AUTO_TEST_CASE(read_chunks_are_put_in_order)
{
    const auto message = from_hex(
        hex({fixed_nomsg, "00000001 00000064", hloo_1, "00000001 00000000", hloo_2, "00000001 00000064",
             hloo_2, "00000001 00000000", hloo_1, "00000000 00000000 00000000"}));
    header call;
    BOOST_TEST(decode(message, call).action == verdict::good);
    std::span<const read_segment> rest = call.reads.all();
    const auto first = take_read_chunk(rest);
    const auto second = take_read_chunk(rest);
    BOOST_TEST(take_read_chunk(rest).empty());
    BOOST_REQUIRE(first.size() == 2u);
    BOOST_TEST(first[0] == (read_segment{0, segment_2})); // as sent, within the chunk
    BOOST_TEST(first[1] == (read_segment{0, segment_1}));
    BOOST_REQUIRE(second.size() == 2u);
    BOOST_TEST(second[0] == (read_segment{100, segment_1}));
    BOOST_TEST(second[1] == (read_segment{100, segment_2}));
}

BOOST_AUTO_TEST_CASE(lists_at_their_limits)
{
    const std::string read_item = hex({"00000001 00000064", hloo_1});
    good(hex({fixed_msg, repeated(64, read_item), "00000000 00000000 00000000"}));
    good(hex({fixed_msg, "00000000", repeated(8, hex({"00000001 00000008", repeated(8, hloo_1)})),
              "00000000 00000001 00000040", repeated(64, hloo_2)}));
    const header all = good(hex({fixed_msg, repeated(64, read_item), "00000000",
                                 repeated(8, hex({"00000001 00000008", repeated(8, hloo_1)})),
                                 "00000000 00000001 00000040", repeated(64, hloo_2)}));
    BOOST_TEST(encoded_size(all) == max_header_size);
}

BOOST_AUTO_TEST_CASE(a_copy_holds_what_is_in_use)
{
    const header call = good(hex({fixed_nomsg, "00000001 00000000", hloo_1, "00000000", "00000001 00000001",
                                  hloo_2, "00000000", "00000001 00000001", hloo_1}));
    const header copy = call;
    header assigned;
    assigned = copy;
    assigned = *&assigned;
    BOOST_TEST(encoded(assigned) == encoded(call));
}

BOOST_AUTO_TEST_CASE(decoding_replaces_what_was_there)
{
    header value = good(hex({fixed_nomsg, "00000001 00000000", hloo_1, "00000000", "00000001 00000001",
                             hloo_2, "00000000", "00000001 00000001", hloo_1}));
    decode(from_hex(hex({fixed_msg, "00000000 00000000 00000000"})), value);
    BOOST_TEST(encoded_size(value) == 28u);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(bad_headers)

BOOST_AUTO_TEST_CASE(below_28_bytes_is_dropped)
{
    const auto message = from_hex(hex({fixed_msg, "00000000 00000000 00000000"}));
    for (std::size_t length = 0; length < 28; ++length) {
        header value;
        BOOST_TEST(decode(std::span(message).first(length), value).action == verdict::drop);
    }
    BOOST_TEST(verdict_of("00000011 00000007 00000020 00000000 00000000 00000000") == verdict::drop);
}

BOOST_AUTO_TEST_CASE(other_versions)
{
    header value;
    const auto decoded =
        decode(from_hex("00000011 00000002 00000020 00000000 00000000 00000000 00000000"), value);
    BOOST_TEST(decoded.action == verdict::version_error);
    BOOST_TEST(encoded(error_reply(value, error_kind::version, 9)) ==
               to_hex("00000011 00000002 00000009 00000004 00000001 00000001 00000001"));
    BOOST_TEST(verdict_of("00000011 00000000 00000020 000000ff 00000000 00000000 00000000") ==
               verdict::version_error);
}

BOOST_AUTO_TEST_CASE(procedures_of_the_past_and_unknown_ones)
{
    constexpr std::string_view lists = "00000000 00000000 00000000";
    BOOST_TEST(verdict_of(hex({"00000011 00000001 00000020 00000002", lists})) == verdict::chunk_error);
    BOOST_TEST(verdict_of(hex({"00000011 00000001 00000020 00000003", lists})) == verdict::drop);
    BOOST_TEST(verdict_of(hex({"00000011 00000001 00000020 00000005", lists})) == verdict::chunk_error);
    header value;
    decode(from_hex(hex({"00000011 00000001 00000020 00000002", lists})), value);
    BOOST_TEST(encoded(error_reply(value, error_kind::chunk, 9)) ==
               to_hex("00000011 00000001 00000009 00000004 00000002"));
}

BOOST_AUTO_TEST_CASE(nomsg_without_any_chunk)
{
    BOOST_TEST(verdict_of(hex({fixed_nomsg, "00000000 00000000 00000000"})) == verdict::chunk_error);
}

BOOST_AUTO_TEST_CASE(lists_over_their_limits)
{
    const std::string read_item = hex({"00000001 00000064", hloo_1});
    BOOST_TEST(verdict_of(hex({fixed_msg, repeated(65, read_item), "00000000 00000000 00000000"})) ==
               verdict::chunk_error);
    BOOST_TEST(verdict_of(hex({fixed_msg, "00000000", repeated(9, "00000001 00000000"),
                               "00000000 00000000"})) == verdict::chunk_error);
    BOOST_TEST(verdict_of(hex({fixed_msg, "00000000", "00000001 00000041", repeated(65, hloo_1),
                               "00000000 00000000"})) == verdict::chunk_error);
    BOOST_TEST(
        verdict_of(hex({fixed_msg, "00000000", repeated(2, hex({"00000001 00000021", repeated(33, hloo_1)})),
                        "00000000 00000000"})) == verdict::chunk_error);
    BOOST_TEST(verdict_of(hex({fixed_msg, "00000000 00000000 00000001 00000041", repeated(65, hloo_1)})) ==
               verdict::chunk_error);
}

BOOST_AUTO_TEST_CASE(absurd_counts)
{
    BOOST_TEST(verdict_of(hex({fixed_msg, "00000000 00000001 ffffffff 00000000"})) == verdict::chunk_error);
    BOOST_TEST(verdict_of(hex({fixed_msg, "00000000 00000000 00000001 10000001"})) == verdict::chunk_error);
    BOOST_TEST(verdict_of(hex({fixed_msg, "00000002 00000000 00000000"})) == verdict::chunk_error);
    BOOST_TEST(verdict_of(hex({fixed_msg, "00000000 00000000 ffffffff"})) == verdict::chunk_error);
}

BOOST_AUTO_TEST_CASE(position_inside_a_word)
{
    BOOST_TEST(verdict_of(hex({fixed_msg, "00000001 00000066", hloo_1, "00000000 00000000 00000000"})) ==
               verdict::chunk_error);
}

BOOST_AUTO_TEST_CASE(every_truncation_of_the_lists)
{
    const auto message =
        from_hex(hex({fixed_msg, "00000001 0000009c", hloo_1, "00000000", "00000001 00000001", hloo_2,
                      "00000000", "00000001 00000001", hloo_1}));
    for (std::size_t length = 28; length < message.size(); ++length) {
        header value;
        const auto decoded = decode(std::span(message).first(length), value);
        BOOST_TEST(decoded.action == verdict::chunk_error);
        BOOST_TEST(decoded.offset <= length);
    }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(errors)

BOOST_AUTO_TEST_CASE(both_kinds)
{
    const header version = good("00000011 00000002 00000001 00000004 00000001 00000001 00000001");
    BOOST_TEST(version.proc == procedure::error);
    BOOST_TEST(version.error == error_kind::version);
    BOOST_TEST(version.low_version == 1u);
    BOOST_TEST(version.high_version == 1u);
    const header chunk = good("00000011 00000001 00000001 00000004 00000002"); // 20 bytes only
    BOOST_TEST(chunk.error == error_kind::chunk);
    BOOST_TEST(broken_reply_rule(chunk, {}) == nullptr);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_decoded_is_dropped)
{
    BOOST_TEST(verdict_of("00000011 00000001 00000001 00000004 00000003 00000000 00000000") == verdict::drop);
    BOOST_TEST(verdict_of("00000011 00000001 00000001 00000004 00000001 00000001") == verdict::drop);
    BOOST_TEST(verdict_of("00000011 00000001 00000001 00000004") == verdict::drop);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(roles)

BOOST_AUTO_TEST_CASE(calls)
{
    const auto own_xid = from_hex("00000011"), other_xid = from_hex("00000012"),
               too_short = from_hex("000000");
    header call;
    call.xid = 0x11;
    BOOST_TEST(broken_call_rule(call, own_xid) == nullptr);
    BOOST_TEST(broken_call_rule(call, other_xid) != nullptr);
    BOOST_TEST(broken_call_rule(call, too_short) != nullptr);
    BOOST_TEST(call.reads.push_back({0, segment_1}));
    BOOST_TEST(broken_call_rule(call, own_xid) != nullptr);
    call.proc = procedure::nomsg;
    BOOST_TEST(broken_call_rule(call, {}) == nullptr);
    call.reads.clear();
    call.has_reply_chunk = true;
    BOOST_TEST(broken_call_rule(call, {}) != nullptr);
}

// RFC 8166 3.4.5: positions count the stream with its data items in it, each with its pad.
BOOST_AUTO_TEST_CASE(data_items_of_a_call)
{
    header call;
    const auto found = [&](std::initializer_list<read_segment> reads, std::size_t size) {
        call.reads.clear();
        for (const read_segment& s : reads)
            BOOST_TEST(call.reads.push_back(s));
        data_items items;
        std::string text;
        if (!find_data_items(call, size, items))
            return std::string("no");
        for (const auto& item : items.all())
            text += std::to_string(item.position) + "+" + std::to_string(item.length) + " ";
        return text;
    };
    BOOST_TEST(found({}, 0) == "");
    BOOST_TEST(found({{0, {1, 100, 0}}}, 100) == ""); // the Position-Zero chunk is none
    BOOST_TEST(found({{40, {1, 5, 0}}}, 40) == "40+5 ");
    BOOST_TEST(found({{40, {1, 5, 0}}}, 36) == "no");
    BOOST_TEST(found({{0, {1, 100, 0}}, {40, {1, 5, 0}}, {40, {2, 3, 0}}, {52, {3, 1, 0}}}, 44) ==
               "40+8 52+1 ");
    BOOST_TEST(found({{40, {1, 5, 0}}, {48, {2, 3, 0}}}, 40) == "40+5 48+3 ");
    BOOST_TEST(found({{40, {1, 5, 0}}, {44, {2, 3, 0}}}, 100) == "no"); // in the pad of the first
    BOOST_TEST(found({{40, {1, 5, 0}}, {52, {2, 3, 0}}}, 44) == "40+5 52+3 ");
    BOOST_TEST(found({{40, {1, 5, 0}}, {56, {2, 3, 0}}}, 44) == "no");
    call.reads.clear();
    for (std::uint32_t i = 0; i < max_read_chunks; ++i)
        BOOST_TEST(call.reads.push_back({40 + 4 * i, {1, 4, 0}}));
    data_items all, again;
    BOOST_TEST(find_data_items(call, 40, all));
    BOOST_TEST(all.size() == 16u);
    BOOST_TEST(call.reads.push_back({40 + 4 * 16, {1, 4, 0}}));
    BOOST_TEST(!find_data_items(call, 40, again));
}

BOOST_AUTO_TEST_CASE(replies)
{
    const auto own_xid = from_hex("00000011"), other_xid = from_hex("00000012");
    header reply;
    reply.xid = 0x11;
    BOOST_TEST(broken_reply_rule(reply, own_xid) == nullptr);
    BOOST_TEST(broken_reply_rule(reply, other_xid) != nullptr);
    reply.has_reply_chunk = true;
    BOOST_TEST(reply.reply.push_back({1, 0, 0})); // offered, not used
    BOOST_TEST(broken_reply_rule(reply, own_xid) == nullptr);
    reply.reply.all()[0].length = 100;
    BOOST_TEST(broken_reply_rule(reply, own_xid) != nullptr);
    reply.proc = procedure::nomsg;
    BOOST_TEST(broken_reply_rule(reply, {}) == nullptr);
    reply.reply.all()[0].length = 0;
    BOOST_TEST(broken_reply_rule(reply, {}) != nullptr);
    reply.reply.all()[0].length = 100;
    BOOST_TEST(reply.reads.push_back({100, segment_1}));
    BOOST_TEST(broken_reply_rule(reply, {}) != nullptr);
}

// RFC 8166 3.4.6: a responder returns all segments, with the lengths that it filled.
BOOST_AUTO_TEST_CASE(call_header_becomes_reply_header)
{
    header value = good(hex({fixed_msg, "00000001 0000009c", hloo_1, "00000000", "00000001 00000002", hloo_1,
                             hloo_2, "00000000", "00000001 00000001", hloo_2}));
    value.reads.clear();
    value.credits = 64;
    BOOST_TEST(set_returned_length(value.writes.chunk(0), 0x1234));
    BOOST_TEST(set_returned_length(value.reply.all(), 0));
    BOOST_TEST(encoded(value) == to_hex("00000011 00000001 00000040 00000000 00000000"
                                        "00000001 00000002 0000aaaa 00001000 00000011 00020000"
                                        "0000bbbb 00000234 00000011 00030000 00000000"
                                        "00000001 00000001 0000bbbb 00000000 00000011 00030000"));
}

BOOST_AUTO_TEST_CASE(returned_length_beyond_the_chunk)
{
    std::vector<segment> chunk{segment_1, segment_2};
    BOOST_TEST(!set_returned_length(chunk, 0x1801));
    BOOST_TEST(chunk[1] == segment_2);
    BOOST_TEST(set_returned_length(chunk, 0x1800));
    BOOST_TEST(chunk[1] == segment_2);
    BOOST_TEST(!set_returned_length({}, 1));
    BOOST_TEST(set_returned_length({}, 0));
    const std::vector<segment> large{{1, UINT32_MAX, 0}, {2, UINT32_MAX, 0}};
    BOOST_TEST(total_length(large) == 0x1fffffffeu);
}

BOOST_AUTO_TEST_CASE(write_list_needs_a_chunk_first)
{
    write_list list;
    BOOST_TEST(!list.add_segment(segment_1));
    BOOST_TEST(list.empty());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE_END()
