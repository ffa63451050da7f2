// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/protocols/xdr/decoder.hpp>
#include <verbena/protocols/xdr/encoder.hpp>

#include "bytes.hpp"

BOOST_AUTO_TEST_SUITE(xdr_test)

using namespace verbena::test;
using verbena::xdr::decoder;
using verbena::xdr::encoder;
using verbena::xdr::external_item;

BOOST_AUTO_TEST_SUITE(decoding)

BOOST_AUTO_TEST_CASE(every_type_in_turn)
{
    const auto bytes = from_hex("00000102 ffffffff 0102030405060708 00000001 00000000"
                                "00000005 68656c6c 6f000000" // "hello"
                                "00000003 aabbccff"          // three bytes, non-zero pad
                                "0a0b0c0d 0e0f0000");        // opaque[6]
    decoder in(bytes);
    BOOST_TEST(in.u32() == 0x102u);
    BOOST_TEST(in.i32() == -1);
    BOOST_TEST(in.u64() == 0x0102030405060708u);
    BOOST_TEST(in.boolean());
    BOOST_TEST(!in.boolean());
    BOOST_TEST(in.position() == 24u);
    BOOST_TEST(in.string(5) == "hello");
    const auto opaque = in.opaque_var(3);
    BOOST_TEST(to_hex(opaque) == "aabbcc");
    BOOST_TEST((opaque.data() == bytes.data() + 40)); // a view, not a copy
    BOOST_TEST(to_hex(in.opaque_fixed(6)) == "0a0b0c0d 0e0f");
    BOOST_TEST(in.ok());
    BOOST_TEST(in.at_end());
}

BOOST_AUTO_TEST_CASE(empty_opaque_and_string)
{
    const auto bytes = from_hex("00000000 00000000 00000007");
    decoder in(bytes);
    BOOST_TEST(in.string(10) == "");
    BOOST_TEST(in.opaque_var(0).empty());
    BOOST_TEST(in.u32() == 7u);
    BOOST_TEST(in.ok());
}

BOOST_AUTO_TEST_CASE(first_failure_sticks)
{
    const auto bytes = from_hex("00000007 0000");
    decoder in(bytes);
    BOOST_TEST(in.u32() == 7u);
    BOOST_TEST(in.u32() == 0u);
    BOOST_TEST(!in.ok());
    BOOST_TEST(in.remaining() == 0u);
    in.fail("a later rule");
    BOOST_TEST(in.opaque_fixed(2).empty());
    BOOST_TEST(in.u64() == 0u);
    BOOST_TEST((in.failure() == std::errc::bad_message));
    BOOST_TEST(in.failure().detail() == 4u);
    BOOST_TEST(in.failure().context() == "message ends inside an item");
    BOOST_TEST(!in.at_end());
}

BOOST_AUTO_TEST_CASE(limits)
{
    const auto bytes = from_hex("00000005 68656c6c 6f000000");
    BOOST_TEST(decoder(bytes).string(4) == "");
    decoder at_limit(bytes), below(bytes), opaque(bytes);
    BOOST_TEST(at_limit.string(5).size() == 5u);
    below.string(4);
    BOOST_TEST(below.failure().context() == "string longer than its limit");
    opaque.opaque_var(4);
    BOOST_TEST(opaque.failure().context() == "opaque longer than its limit");
    BOOST_TEST(opaque.failure().detail() == 4u);
}

BOOST_AUTO_TEST_CASE(missing_pad_is_a_failure)
{
    const auto bytes = from_hex("00000005 68656c6c 6f0000");
    decoder in(bytes);
    BOOST_TEST(in.string(100) == "");
    BOOST_TEST(!in.ok());
}

BOOST_AUTO_TEST_CASE(lengths_near_the_top_of_the_range)
{
    const auto bytes = from_hex("ffffffff 00000000 00000000");
    decoder opaque(bytes), payload(bytes), count(bytes), partial(bytes, 0x100000000u);
    BOOST_TEST(opaque.opaque_var(UINT32_MAX).empty());
    BOOST_TEST(!opaque.ok());
    BOOST_TEST(payload.payload(UINT32_MAX).length == 0u);
    BOOST_TEST(!payload.ok());
    BOOST_TEST(count.array_count(UINT32_MAX, 4) == 0u);
    BOOST_TEST(!count.ok());
    BOOST_TEST(partial.payload(UINT32_MAX).length == 0u); // its pad would end behind the stream
    BOOST_TEST(!partial.ok());
    decoder fixed(bytes);
    BOOST_TEST(fixed.opaque_fixed(SIZE_MAX).empty());
    BOOST_TEST(!fixed.ok());
    decoder skipped(bytes);
    skipped.skip(SIZE_MAX);
    BOOST_TEST(!skipped.ok());
}

BOOST_AUTO_TEST_CASE(array_count_is_bounded_by_the_bytes_left)
{
    const auto bytes = from_hex("00000002 00000001 00000002");
    decoder fits(bytes), too_big(bytes), over_limit(bytes);
    BOOST_TEST(fits.array_count(16, 4) == 2u);
    BOOST_TEST(fits.ok());
    BOOST_TEST(too_big.array_count(16, 8) == 0u);
    BOOST_TEST(!too_big.ok());
    BOOST_TEST(over_limit.array_count(1, 4) == 0u);
    BOOST_TEST(over_limit.failure().context() == "array longer than its limit");
}

BOOST_AUTO_TEST_CASE(booleans_are_zero_or_one)
{
    const auto bytes = from_hex("00000002");
    decoder in(bytes);
    BOOST_TEST(!in.boolean());
    BOOST_TEST(in.failure().context() == "boolean is neither 0 nor 1");
}

BOOST_AUTO_TEST_CASE(empty_stream)
{
    decoder none, empty{std::span<const std::byte>()};
    BOOST_TEST(none.at_end());
    BOOST_TEST(empty.opaque_fixed(0).empty());
    BOOST_TEST(empty.ok());
    BOOST_TEST(empty.u32() == 0u);
    BOOST_TEST(!empty.ok());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(payloads_in)

// Of two pieces a payload alone may have a part in each; behind it reading goes on in the second one.
BOOST_AUTO_TEST_CASE(a_payload_leads_into_the_second_piece)
{
    const auto rest = from_hex("05060708 09000000 0000002a 00000003 61626300");
    const auto first = from_hex("0000002b 00000009 01020304");
    decoder in(first, rest, 100);
    BOOST_TEST(in.position() == 100u);
    BOOST_TEST(in.unread() == 32u);
    BOOST_TEST(in.u32() == 0x2bu);
    const auto payload = in.payload(9);
    BOOST_TEST(payload.external);
    BOOST_TEST(payload.position == 108u);
    BOOST_TEST(payload.inline_bytes.size() == 4u);
    BOOST_TEST(in.position() == 120u);
    BOOST_TEST(in.unread() == 12u);
    BOOST_TEST(!in.at_end());
    BOOST_TEST(in.u32() == 0x2au);
    const auto second = in.payload(9);
    BOOST_TEST(!second.external);
    BOOST_TEST(text_of(second.inline_bytes) == "abc");
    BOOST_TEST(second.inline_bytes.data() == rest.data() + 16);
    BOOST_TEST(in.at_end());
    in.u32();
    BOOST_TEST(!in.ok());
}

// The border may be a payload's end, or lie in its pad.
BOOST_AUTO_TEST_CASE(a_payload_ends_at_the_border)
{
    const auto all = from_hex("00000005 61626364 65000000 0000002a");
    for (std::size_t border = 4; border <= 12; ++border) {
        BOOST_TEST_CONTEXT("border " << border)
        {
            decoder in(std::span<const std::byte>(all).first(border), std::span(all).subspan(border), 0);
            const auto payload = in.payload(5);
            BOOST_TEST(payload.length == 5u);
            BOOST_TEST(payload.external == (border < 9));
            BOOST_TEST(in.u32() == 0x2au);
            BOOST_TEST(in.at_end());
        }
    }
    decoder nothing(std::span<const std::byte>(all).first(0), std::span(all), 0);
    BOOST_TEST(text_of(nothing.payload(5).inline_bytes) == "abcde");
    BOOST_TEST(nothing.u32() == 0x2au);
}

// A number is put together from both pieces, and what begins at the border is read behind it.
BOOST_AUTO_TEST_CASE(a_number_leads_into_the_second_piece)
{
    const auto all = from_hex("00000001 0000000200000003 00000004 61626364 0000002a");
    for (std::size_t border = 0; border <= all.size(); ++border) {
        if (border > 16 && border < 20)
            continue; // inside the text, see below
        BOOST_TEST_CONTEXT("border " << border)
        {
            decoder in(std::span<const std::byte>(all).first(border), std::span(all).subspan(border), 0);
            BOOST_TEST(in.u32() == 1u);
            BOOST_TEST(in.u64() == 0x0000000200000003u);
            BOOST_TEST(in.position() == 12u);
            BOOST_TEST(text_of(in.opaque_var(4)) == "abcd");
            BOOST_TEST(in.position() == 20u);
            BOOST_TEST(in.u32() == 0x2au);
            BOOST_TEST(in.at_end());
            BOOST_TEST(in.u32() == 0u);
            BOOST_TEST((in.failure() == std::errc::bad_message));
        }
    }
    // Both together are too short; a failure stands, also where the second piece has what comes next.
    for (std::size_t border = 0; border <= 6; ++border) {
        decoder in(std::span<const std::byte>(all).first(border), std::span(all).subspan(border, 6 - border),
                   0);
        BOOST_TEST(in.u64() == 0u);
        BOOST_TEST((in.failure() == std::errc::bad_message));
        BOOST_TEST(in.u32() == 0u);
        BOOST_TEST(in.opaque_fixed(4).empty());
        BOOST_TEST(in.failure().detail() == 0u);
    }
}

BOOST_AUTO_TEST_CASE(no_text_leads_into_the_second_piece)
{
    const auto all = from_hex("00000008 61626364 65666768 0000002a");
    for (const std::size_t border : {5u, 8u, 11u}) {
        decoder in(std::span<const std::byte>(all).first(border), std::span(all).subspan(border), 0);
        (void)in.string(8);
        in.u32();
        BOOST_TEST(!in.ok());
        BOOST_TEST((in.failure() == std::errc::no_buffer_space));
    }
    const auto big = from_hex("00000009 61626364");
    decoder longer(big, std::span(all).first(4), 0); // than both pieces together
    BOOST_TEST(longer.payload(100).length == 0u);
    BOOST_TEST((longer.failure() == std::errc::bad_message));
}

BOOST_AUTO_TEST_CASE(whole_payload_in_hand)
{
    const auto bytes = from_hex("0000000a 00000003 61626300 00000009");
    decoder in(bytes);
    in.u32();
    const auto payload = in.payload(3);
    BOOST_TEST(payload.length == 3u);
    BOOST_TEST(payload.position == 8u);
    BOOST_TEST(text_of(payload.inline_bytes) == "abc");
    BOOST_TEST(!payload.external);
    BOOST_TEST(in.u32() == 9u);
    BOOST_TEST(in.at_end());
}

BOOST_AUTO_TEST_CASE(payload_over_its_limit)
{
    const auto bytes = from_hex("00000003 61626300");
    decoder in(bytes);
    BOOST_TEST(in.payload(2).length == 0u);
    BOOST_TEST(in.failure().context() == "opaque longer than its limit");
}

// RFC 8166 3.4.5.2: neither the item nor its pad is inline; the chunk may or may not hold the pad.
BOOST_AUTO_TEST_CASE(payload_in_a_read_chunk)
{
    const auto bytes = from_hex("0000000a 00000005 00000009");
    for (const std::uint32_t chunk_length : {5u, 8u}) {
        decoder in(bytes, external_item{8, chunk_length});
        BOOST_TEST(in.u32() == 10u);
        BOOST_TEST(in.item_pending());
        const auto payload = in.payload(100);
        BOOST_TEST(payload.external);
        BOOST_TEST(payload.inline_bytes.empty());
        BOOST_TEST(payload.length == 5u);
        BOOST_TEST(payload.position == 8u);
        BOOST_TEST(in.position() == 16u);
        BOOST_TEST(!in.item_pending());
        BOOST_TEST(in.u32() == 9u);
        BOOST_TEST(in.position() == 20u);
        BOOST_TEST(in.at_end());
    }
}

// RFC 8267 6.4.1: several chunks, told apart by their positions.
BOOST_AUTO_TEST_CASE(payloads_in_several_read_chunks)
{
    const auto bytes = from_hex("0000000a 00000005 00000009 00000002 61620000 00000004 0000000b");
    const external_item items[] = {{8, 5}, {32, 4}};
    decoder in(bytes, items);
    BOOST_TEST(in.unread() == bytes.size() + 8 + 4);
    BOOST_TEST(in.u32() == 10u);
    const auto first = in.payload(100);
    BOOST_TEST(first.external);
    BOOST_TEST(first.position == 8u);
    BOOST_TEST(in.item_pending());
    BOOST_TEST(in.unread() == 5 * 4u + 4u);
    BOOST_TEST(in.u32() == 9u);
    const auto between = in.payload(100);
    BOOST_TEST(!between.external);
    BOOST_TEST(text_of(between.inline_bytes) == "ab");
    const decoder copy(in); // reads on from the same place
    const auto second = in.payload(100);
    BOOST_TEST(second.external);
    BOOST_TEST(second.position == 32u);
    BOOST_TEST(second.length == 4u);
    BOOST_TEST(!in.item_pending());
    BOOST_TEST(in.u32() == 11u);
    BOOST_TEST(in.position() == 40u);
    BOOST_TEST(in.at_end());
    decoder again(copy);
    BOOST_TEST(again.payload(100).position == 32u);
    BOOST_TEST(again.u32() == 11u);
    BOOST_TEST(again.at_end());
}

BOOST_AUTO_TEST_CASE(read_chunks_that_payloads_do_not_meet)
{
    const auto bytes = from_hex("00000005 00000009 00000004 0000000b");
    const external_item in_a_word[] = {{4, 5}, {12, 4}}; // the second one inside what follows the first
    decoder in(bytes, in_a_word);
    BOOST_TEST(in.payload(100).external);
    BOOST_TEST(in.u32() == 0u);
    BOOST_TEST(in.failure().context() == "an item that is not the call's payload lies in a Read chunk");

    const external_item overlapping[] = {{4, 5}, {8, 4}};
    decoder behind(bytes, overlapping);
    BOOST_TEST(behind.payload(100).external);
    BOOST_TEST(behind.u32() == 0u);
    BOOST_TEST(!behind.ok());

    const external_item beyond[] = {{4, 5}, {400, 4}};
    decoder pending(bytes, beyond);
    BOOST_TEST(pending.payload(100).external);
    for (const std::uint32_t word : {9u, 4u, 11u})
        BOOST_TEST(pending.u32() == word);
    BOOST_TEST(pending.ok());
    BOOST_TEST(!pending.at_end());

    decoder none(bytes, std::span<const external_item>());
    BOOST_TEST(none.u32() == 5u);
    BOOST_TEST(none.unread() == 12u);
}

BOOST_AUTO_TEST_CASE(first_payload_in_a_write_chunk)
{
    const auto bytes = from_hex("0000000a 00000005 00000002 61620000");
    decoder in(bytes, external_item{external_item::any_position, 5});
    BOOST_TEST(in.u32() == 10u);
    BOOST_TEST(in.payload(100).external);
    const auto second = in.payload(100);
    BOOST_TEST(!second.external);
    BOOST_TEST(text_of(second.inline_bytes) == "ab");
    BOOST_TEST(in.position() == 4u + 12u + 8u);
    BOOST_TEST(in.at_end());

    // An unused Write chunk: RFC 8166 4.3.2 forbids the responder to leave the data inline then.
    const auto inline_data = from_hex("00000002 61620000");
    decoder unused(inline_data, external_item{external_item::any_position, 0});
    BOOST_TEST(unused.payload(100).length == 0u);
    BOOST_TEST(!unused.ok());
}

BOOST_AUTO_TEST_CASE(read_chunk_at_the_end_of_the_stream)
{
    const auto bytes = from_hex("00000005");
    decoder in(bytes, external_item{4, 5});
    BOOST_TEST(!in.at_end());
    BOOST_TEST(in.payload(100).external);
    BOOST_TEST(in.at_end());
}

BOOST_AUTO_TEST_CASE(read_chunk_of_another_length_than_the_opaque)
{
    const auto bytes = from_hex("00000005 00000009");
    for (const std::uint32_t chunk_length : {0u, 4u, 9u, 4096u}) {
        decoder in(bytes, external_item{4, chunk_length});
        BOOST_TEST(in.payload(100).length == 0u);
        BOOST_TEST(in.failure().context() == "chunk and opaque differ in length");
    }
}

BOOST_AUTO_TEST_CASE(read_chunk_for_an_item_that_is_not_the_payload)
{
    // The chunk took the string's bytes out; reading on would take 00000009 for them.
    const auto bytes = from_hex("00000004 00000009 00000008");
    decoder in(bytes, external_item{4, 4});
    BOOST_TEST(in.string(10) == "");
    BOOST_TEST(!in.ok());
    BOOST_TEST(in.failure().context() == "an item that is not the call's payload lies in a Read chunk");
    BOOST_TEST(in.item_pending());
    BOOST_TEST(!in.at_end());
}

BOOST_AUTO_TEST_CASE(read_chunk_in_the_middle_of_a_word)
{
    const auto bytes = from_hex("00000004 00000009");
    decoder in(bytes, external_item{2, 4});
    BOOST_TEST(in.u32() == 0u);
    BOOST_TEST(!in.ok());
}

BOOST_AUTO_TEST_CASE(read_chunk_beyond_the_stream_stays_pending)
{
    const auto bytes = from_hex("00000004");
    decoder in(bytes, external_item{400, 4});
    BOOST_TEST(in.u32() == 4u);
    BOOST_TEST(in.ok());
    BOOST_TEST(!in.at_end());
    BOOST_TEST(in.item_pending());
}

BOOST_AUTO_TEST_CASE(payload_that_continues_with_the_transport)
{
    const auto bytes = from_hex("00000001 0000000a 61626364 6566");
    decoder in(bytes, 4 + 4 + 12);
    BOOST_TEST(in.u32() == 1u);
    const auto payload = in.payload(10);
    BOOST_TEST(payload.length == 10u);
    BOOST_TEST(payload.external);
    BOOST_TEST(text_of(payload.inline_bytes) == "abcdef");
    BOOST_TEST(in.position() == 20u);
    BOOST_TEST(in.at_end());
}

BOOST_AUTO_TEST_CASE(only_the_pad_lies_beyond)
{
    const auto bytes = from_hex("00000003 616263");
    decoder in(bytes, 8);
    const auto payload = in.payload(10);
    BOOST_TEST(!payload.external);
    BOOST_TEST(text_of(payload.inline_bytes) == "abc");
    BOOST_TEST(in.at_end());
}

BOOST_AUTO_TEST_CASE(items_behind_the_contiguous_part)
{
    const auto bytes = from_hex("00000004 6162");
    decoder in(bytes, 12);
    BOOST_TEST(in.payload(10).external);
    BOOST_TEST(!in.at_end());
    BOOST_TEST(in.u32() == 0u);
    BOOST_TEST((in.failure() == std::errc::no_buffer_space));
    BOOST_TEST(in.failure().context() == "need more contiguous bytes");
    BOOST_TEST(in.failure().detail() == 8u);

    decoder plain(bytes, 12); // the same bytes where an ordinary opaque is expected
    BOOST_TEST(plain.opaque_var(10).empty());
    BOOST_TEST((plain.failure() == std::errc::no_buffer_space));
}

// No more of it is anywhere, so nobody may look for it in another piece.
BOOST_AUTO_TEST_CASE(a_pad_that_is_missing)
{
    const auto bytes = from_hex("00000005 61626364 6500");
    decoder in(bytes);
    BOOST_TEST(in.opaque_var(10).empty());
    BOOST_TEST((in.failure() == std::errc::bad_message));
}

BOOST_AUTO_TEST_CASE(payload_longer_than_the_whole_stream)
{
    const auto bytes = from_hex("00000009 6162");
    decoder in(bytes, 12);
    BOOST_TEST(in.payload(100).length == 0u);
    BOOST_TEST((in.failure() == std::errc::bad_message));
}

BOOST_AUTO_TEST_CASE(total_length_may_cut_the_bytes)
{
    const auto bytes = from_hex("00000001 00000002");
    decoder in(bytes, 4);
    BOOST_TEST(in.u32() == 1u);
    BOOST_TEST(in.at_end());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(encoding)

BOOST_AUTO_TEST_CASE(every_type_in_turn)
{
    std::vector<std::byte> block(100, std::byte(0xee));
    encoder out(block);
    out.u32(0x102);
    out.i32(-1);
    out.u64(0x0102030405060708);
    out.boolean(true);
    out.boolean(false);
    out.string("hello");
    out.opaque_var(from_hex("aabbcc"));
    out.opaque_fixed(from_hex("0a0b0c0d0e0f"));
    out.opaque_var({});
    out.pad(7);
    BOOST_TEST(out.ok());
    BOOST_TEST(out.size() == 57u);
    BOOST_TEST(to_hex(out.bytes().first(56)) ==
               to_hex("00000102 ffffffff 01020304 05060708 00000001 00000000 00000005 68656c6c 6f000000"
                      "00000003 aabbcc00 0a0b0c0d 0e0f0000 00000000"));
    BOOST_TEST((block[56] == std::byte(0)));
    BOOST_TEST((block[57] == std::byte(0xee)));
}

BOOST_AUTO_TEST_CASE(exact_fit_and_one_byte_less)
{
    std::vector<std::byte> block(12);
    encoder out(block);
    out.string("hello");
    BOOST_TEST(out.ok());
    BOOST_TEST(out.room() == 0u);

    encoder shorter(std::span<std::byte>(block).first(11));
    shorter.string("hello");
    BOOST_TEST(!shorter.ok());
    BOOST_TEST(shorter.size() == 4u);
}

BOOST_AUTO_TEST_CASE(overflow_sticks_until_truncated)
{
    std::vector<std::byte> block(8);
    encoder out(block);
    out.u32(1);
    out.u64(2);
    BOOST_TEST(!out.ok());
    out.u32(3); // would fit, but comes behind something that did not
    BOOST_TEST(out.size() == 4u);
    BOOST_TEST(out.reserve(1).empty());
    out.truncate(0);
    out.u64(4);
    BOOST_TEST(out.ok());
    BOOST_TEST(to_hex(out.bytes()) == "00000000 00000004");
}

BOOST_AUTO_TEST_CASE(patching)
{
    std::vector<std::byte> block(16);
    encoder out(block);
    out.u32(0);
    out.u32(2);
    out.patch_u32(0, 0x11223344);
    BOOST_TEST(to_hex(out.bytes()) == "11223344 00000002");
    out.patch_u32(5, 0); // would reach behind what is written
    BOOST_TEST(!out.ok());
}

BOOST_AUTO_TEST_CASE(reserved_space_is_the_callers)
{
    std::vector<std::byte> block(16);
    encoder out(block);
    out.u32(3);
    const auto space = out.reserve(3);
    BOOST_REQUIRE(space.size() == 3u);
    space[0] = space[1] = space[2] = std::byte('x');
    out.pad(3);
    BOOST_TEST(to_hex(out.bytes()) == "00000003 78787800");
}

BOOST_AUTO_TEST_CASE(payloads_leave_only_their_length)
{
    std::vector<std::byte> block(64);
    encoder out(block);
    out.u32(1);
    out.note_payload(5);
    out.u32(2);
    out.note_payload(8);
    BOOST_TEST(to_hex(out.bytes()) == "00000001 00000005 00000002 00000008");
    BOOST_TEST(out.position() == 16u + 8u + 8u);
    const auto items = out.payloads();
    BOOST_REQUIRE(items.size() == 2u);
    BOOST_TEST(items[0].offset == 8u);
    BOOST_TEST(items[0].position == 8u);
    BOOST_TEST(items[0].length == 5u);
    BOOST_TEST(items[1].offset == 16u);
    BOOST_TEST(items[1].position == 24u);
    BOOST_TEST(items[1].length == 8u);

    out.truncate(12);
    BOOST_TEST(out.payloads().size() == 1u);
    BOOST_TEST(out.position() == 20u);
    out.truncate(4);
    BOOST_TEST(out.payloads().empty());
    BOOST_TEST(out.position() == 4u);
}

BOOST_AUTO_TEST_CASE(a_message_moves_with_its_payloads)
{
    std::vector<std::byte> block(12), larger(16), small(8);
    encoder out(block);
    out.u32(1);
    out.note_payload(5);
    out.u32(2);
    out.u32(3);
    BOOST_TEST(!out.ok());
    out.truncate(12);
    out.move_to(larger);
    block.assign(12, std::byte(0xff));
    BOOST_TEST(out.room() == 4u);
    out.u32(4);
    BOOST_TEST(out.ok());
    BOOST_TEST(to_hex(out.bytes()) == "00000001 00000005 00000002 00000004");
    BOOST_TEST(out.position() == 16u + 8u);
    BOOST_REQUIRE(out.payloads().size() == 1u);
    BOOST_TEST(out.payloads()[0].offset == 8u);
    const encoder copy(out);
    BOOST_REQUIRE(copy.payloads().size() == 1u);
    BOOST_TEST(copy.payloads()[0].length == 5u);
    out.move_to(small);
    BOOST_TEST(!out.ok());
}

// Head, payloads and what stands around them: the one place where they are put together.
BOOST_AUTO_TEST_CASE(a_message_is_told_in_order)
{
    std::vector<std::byte> block(64);
    const auto told = [](const encoder& out) {
        std::string text;
        out.in_order([&](std::span<const std::byte> bytes) { text += to_hex(bytes) + "; "; },
                     [&](std::size_t item) { text += "item " + std::to_string(item) + "; "; });
        return text;
    };
    encoder out(block);
    BOOST_TEST(told(out) == "");
    out.u32(1);
    BOOST_TEST(told(out) == "00000001; ");
    out.note_payload(5);
    BOOST_TEST(told(out) == "00000001 00000005; item 0; ");
    out.note_payload(0);
    out.u32(2);
    BOOST_TEST(told(out) == "00000001 00000005; item 0; 00000000; item 1; 00000002; ");
}

BOOST_AUTO_TEST_CASE(payload_items_are_limited)
{
    std::vector<std::byte> block(4 * encoder::max_payloads + 4);
    encoder out(block);
    for (std::size_t i = 0; i < encoder::max_payloads; ++i)
        out.note_payload(4);
    BOOST_TEST(out.ok());
    out.note_payload(4);
    BOOST_TEST(!out.ok());
    BOOST_TEST(out.payloads().size() == encoder::max_payloads);

    encoder no_room(std::span<std::byte>(block).first(3));
    no_room.note_payload(4);
    BOOST_TEST(!no_room.ok());
    BOOST_TEST(no_room.payloads().empty());
}

BOOST_AUTO_TEST_CASE(no_block_at_all)
{
    encoder out;
    out.pad(3);
    BOOST_TEST(!out.ok());
    encoder empty;
    empty.opaque_fixed({});
    BOOST_TEST(empty.ok());
    empty.u32(1);
    BOOST_TEST(!empty.ok());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE_END()
