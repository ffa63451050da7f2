// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/protocols/rpc/auth_sys.hpp>
#include <verbena/protocols/rpc/client.hpp>
#include <verbena/protocols/rpc/message.hpp>
#include <verbena/protocols/rpcstream/record_marking.hpp>

#include "bytes.hpp"

BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::rpc::call_verdict)
BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::rpc::auth_flavor)
BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::rpc::auth_status)
BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::rpc::accept_status)
BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::rpc::reject_status)
BOOST_TEST_DONT_PRINT_LOG_VALUE(verbena::rpc::message_type)

BOOST_AUTO_TEST_SUITE(rpc_message_test)

using namespace verbena::test;
using namespace verbena::rpc;
using verbena::xdr::decoder;
using verbena::xdr::encoder;

namespace {

// NFS version 3 GETATTR by an AUTH_SYS user, up to the arguments.
constexpr std::string_view call_prefix = "12345678 00000000 00000002 000186a3 00000003 00000001";
constexpr std::string_view sys_body =
    "0000002a 00000005 616c706861000000 000003e8 00000064 00000002 00000004 00000018";
constexpr std::string_view sys_credential = "00000001 00000024";
constexpr std::string_view no_auth = "00000000 00000000";

std::string hex(std::initializer_list<std::string_view> parts)
{
    std::string text;
    for (const auto part : parts)
        text += part;
    return text;
}

template<class Header>
std::string encoded(const Header& header)
{
    std::vector<std::byte> block(1000);
    encoder out(block);
    encode(out, header);
    BOOST_TEST(out.ok());
    return to_hex(out.bytes());
}

reply_header decoded_reply(std::string_view text, bool good = true)
{
    const auto bytes = from_hex(text);
    decoder in(bytes);
    reply_header header;
    decode(in, header);
    BOOST_TEST(in.ok() == good);
    if (good)
        BOOST_TEST(in.at_end());
    return header;
}

call_verdict verdict_of(std::string_view text)
{
    const auto bytes = from_hex(text);
    decoder in(bytes);
    call_header header;
    const call_verdict verdict = decode(in, header);
    BOOST_TEST(in.ok() == (verdict == call_verdict::good));
    return verdict;
}

} // namespace

BOOST_AUTO_TEST_SUITE(calls)

BOOST_AUTO_TEST_CASE(every_field)
{
    const auto bytes = from_hex(hex({call_prefix, sys_credential, sys_body, no_auth, "000000aa"}));
    decoder in(bytes);
    call_header header;
    BOOST_TEST(decode(in, header) == call_verdict::good);
    BOOST_TEST(header.xid == 0x12345678u);
    BOOST_TEST(header.program == 100003u);
    BOOST_TEST(header.version == 3u);
    BOOST_TEST(header.procedure == 1u);
    BOOST_TEST(header.credential.flavor == auth_flavor::sys);
    BOOST_TEST(to_hex(header.credential.body) == to_hex(sys_body));
    BOOST_TEST(header.verifier.flavor == auth_flavor::none);
    BOOST_TEST(header.verifier.body.empty());
    BOOST_TEST(in.u32() == 0xaau); // the arguments follow
    BOOST_TEST(in.at_end());

    BOOST_TEST(encoded(header) + " 000000aa" == to_hex(bytes));
}

BOOST_AUTO_TEST_CASE(flavors_without_a_meaning_here_pass_through)
{
    const auto bytes =
        from_hex(hex({call_prefix, "00000006 00000004 aabbccdd", "00000006 00000002 eeff0000"}));
    decoder in(bytes);
    call_header header;
    BOOST_TEST(decode(in, header) == call_verdict::good);
    BOOST_TEST(header.credential.flavor == auth_flavor::rpcsec_gss);
    BOOST_TEST(to_hex(header.verifier.body) == "eeff");
}

BOOST_AUTO_TEST_CASE(every_truncation_is_unanswerable)
{
    const auto bytes = from_hex(hex({call_prefix, sys_credential, sys_body, no_auth}));
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        decoder in{std::span(bytes).first(length)};
        call_header header;
        BOOST_TEST(decode(in, header) == call_verdict::unanswerable);
    }
}

BOOST_AUTO_TEST_CASE(not_a_call)
{
    BOOST_TEST(verdict_of("12345678 00000001 00000000 00000000 00000000 00000000") ==
               call_verdict::unanswerable);
    BOOST_TEST(verdict_of("12345678 00000002 00000002 00000000 00000000 00000000") ==
               call_verdict::unanswerable);
}

BOOST_AUTO_TEST_CASE(other_rpc_versions)
{
    // Nothing behind the version is looked at: it may be laid out otherwise.
    BOOST_TEST(verdict_of("12345678 00000000 00000003") == call_verdict::rpc_mismatch);
    BOOST_TEST(verdict_of("12345678 00000000 00000001 000186a3") == call_verdict::rpc_mismatch);
}

BOOST_AUTO_TEST_CASE(authenticators_over_their_limit)
{
    const std::string zeros(400 * 2, '0');
    BOOST_TEST(verdict_of(hex({call_prefix, "00000001 00000190", zeros, no_auth})) == call_verdict::good);
    BOOST_TEST(verdict_of(hex({call_prefix, no_auth, "00000001 00000190", zeros})) == call_verdict::good);
    BOOST_TEST(verdict_of(hex({call_prefix, "00000001 00000191", zeros, "00000000", no_auth})) ==
               call_verdict::bad_credential);
    BOOST_TEST(verdict_of(hex({call_prefix, "00000001 ffffffff"})) == call_verdict::bad_credential);
    BOOST_TEST(verdict_of(hex({call_prefix, no_auth, "00000001 00000191", zeros, "00000000"})) ==
               call_verdict::bad_verifier);
}

BOOST_AUTO_TEST_CASE(prefix)
{
    BOOST_TEST(!peek(from_hex("12345678 000000")));
    BOOST_TEST(!peek(from_hex("12345678 00000002")));
    const auto call = from_hex("12345678 00000000"), reply = from_hex("00000009 00000001 aa");
    BOOST_REQUIRE(peek(call));
    BOOST_TEST(peek(call)->xid == 0x12345678u);
    BOOST_TEST(peek(call)->type == message_type::call);
    BOOST_REQUIRE(peek(reply));
    BOOST_TEST(peek(reply)->type == message_type::reply);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(replies)

BOOST_AUTO_TEST_CASE(success)
{
    constexpr std::string_view text = "00000007 00000001 00000000 00000000 00000000 00000000";
    const auto header = decoded_reply(text);
    BOOST_TEST(header.xid == 7u);
    BOOST_TEST(header.success());
    BOOST_TEST(encoded(reply_header::accepted_with(7, accept_status::success)) == to_hex(text));
    BOOST_TEST(from_hex(text).size() == success_header_size);
}

BOOST_AUTO_TEST_CASE(every_accept_status)
{
    for (std::uint32_t value = 1; value <= 5; ++value) {
        if (value == 2)
            continue;
        const std::string text =
            "00000007 00000001 00000000 00000000 00000000 0000000" + std::to_string(value);
        const auto status = static_cast<accept_status>(value);
        const auto header = decoded_reply(text);
        BOOST_TEST(!header.success());
        BOOST_TEST(header.accept == status);
        BOOST_TEST(encoded(reply_header::accepted_with(7, status)) == to_hex(text));
        BOOST_TEST((to_error(header).code() == status));
    }
}

BOOST_AUTO_TEST_CASE(program_mismatch)
{
    constexpr std::string_view text =
        "00000007 00000001 00000000 00000000 00000000 00000002 00000003 00000004";
    const auto header = decoded_reply(text);
    BOOST_TEST(header.accept == accept_status::program_mismatch);
    BOOST_TEST(header.low == 3u);
    BOOST_TEST(header.high == 4u);
    BOOST_TEST(encoded(reply_header::program_mismatch(7, 3, 4)) == to_hex(text));
}

BOOST_AUTO_TEST_CASE(rpc_mismatch)
{
    constexpr std::string_view text = "00000007 00000001 00000001 00000000 00000002 00000002";
    const auto header = decoded_reply(text);
    BOOST_TEST(!header.success());
    BOOST_TEST(!header.accepted);
    BOOST_TEST(header.reject == reject_status::rpc_mismatch);
    BOOST_TEST(header.low == 2u);
    BOOST_TEST(header.high == 2u);
    BOOST_TEST(encoded(reply_header::rpc_mismatch(7)) == to_hex(text));
    BOOST_TEST((to_error(header) == std::errc::protocol_not_supported));
}

BOOST_AUTO_TEST_CASE(authentication_errors)
{
    constexpr std::string_view text = "00000007 00000001 00000001 00000001 00000005";
    const auto header = decoded_reply(text);
    BOOST_TEST(header.reject == reject_status::auth_error);
    BOOST_TEST(header.auth == auth_status::too_weak);
    BOOST_TEST(encoded(reply_header::denied(7, auth_status::too_weak)) == to_hex(text));
    BOOST_TEST((to_error(header).code() == auth_status::too_weak));
    // A value that a later standard may define.
    BOOST_TEST(!decoded_reply("00000007 00000001 00000001 00000001 00000063").success());
}

BOOST_AUTO_TEST_CASE(verifier_is_handed_on)
{
    constexpr std::string_view text = "00000007 00000001 00000000 00000006 00000003 aabbcc00 00000000";
    const auto header = decoded_reply(text);
    BOOST_TEST(header.success());
    BOOST_TEST(header.verifier.flavor == auth_flavor::rpcsec_gss);
    BOOST_TEST(header.verifier.body.size() == 3u);
}

BOOST_AUTO_TEST_CASE(malformed)
{
    decoded_reply("00000007 00000000 00000000 00000000 00000000 00000000", false); // a call
    decoded_reply("00000007 00000001 00000002", false);                   // neither accepted nor denied
    decoded_reply("00000007 00000001 00000001 00000002 00000000", false); // unknown rejection
    decoded_reply("00000007 00000001 00000001 00000001 00000000", false); // rejected with AUTH_OK
    decoded_reply("00000007 00000001 00000000 00000000 00000000 00000006", false); // unknown acceptance
    decoded_reply("00000007 00000001 00000000 00000000 00000191", false);          // verifier too long
    const auto bytes = from_hex("00000007 00000001 00000000 00000000 00000000 00000002 00000003 00000004");
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        decoder in{std::span(bytes).first(length)};
        reply_header header;
        decode(in, header);
        BOOST_TEST(!in.ok());
    }
}

BOOST_AUTO_TEST_CASE(every_status_has_a_text)
{
    for (int value = 0; value <= 5; ++value)
        BOOST_TEST(accept_category().message(value).find("unknown") == std::string::npos);
    for (int value = 0; value <= 14; ++value)
        BOOST_TEST(auth_category().message(value).find("unknown") == std::string::npos);
    BOOST_TEST(accept_category().message(6) == "unknown accept status");
    BOOST_TEST(auth_category().message(15) == "unknown authentication status");
    BOOST_TEST(std::string(accept_category().name()) == "rpc");
    BOOST_TEST(std::string(auth_category().name()) == "rpc-auth");
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(auth_sys_credential)

BOOST_AUTO_TEST_CASE(every_field)
{
    const auto body = from_hex(sys_body);
    const auto credential = decode_auth_sys(body);
    BOOST_REQUIRE(credential);
    BOOST_TEST(credential->stamp == 42u);
    BOOST_TEST(credential->machine_name == "alpha");
    BOOST_TEST(credential->uid == 1000u);
    BOOST_TEST(credential->gid == 100u);
    BOOST_REQUIRE(credential->other_groups().size() == 2u);
    BOOST_TEST(credential->other_groups()[0] == 4u);
    BOOST_TEST(credential->other_groups()[1] == 24u);
    BOOST_TEST(encoded(*credential) == to_hex(sys_body));
}

BOOST_AUTO_TEST_CASE(sixteen_groups_and_not_seventeen)
{
    const std::string_view head = "00000000 00000000 00000001 00000002";
    const auto sixteen = from_hex(hex({head, "00000010", std::string(16 * 8, '1')}));
    const auto seventeen = from_hex(hex({head, "00000011", std::string(17 * 8, '1')}));
    const auto good = decode_auth_sys(sixteen);
    BOOST_REQUIRE(good);
    BOOST_TEST(good->other_groups().size() == 16u);
    BOOST_TEST(good->other_groups()[15] == 0x11111111u);
    BOOST_TEST(good->machine_name.empty());
    BOOST_TEST(!decode_auth_sys(seventeen));
}

BOOST_AUTO_TEST_CASE(malformed)
{
    const auto whole = from_hex(sys_body);
    for (std::size_t length = 0; length < whole.size(); ++length)
        BOOST_TEST(!decode_auth_sys(std::span(whole).first(length)));
    auto longer = whole;
    longer.resize(whole.size() + 4);
    BOOST_TEST(!decode_auth_sys(longer));
    const auto name_255 =
        from_hex(hex({"00000000 000000ff", std::string(256 * 2, '6'), "00000001 00000002 00000000"}));
    const auto name_256 =
        from_hex(hex({"00000000 00000100", std::string(256 * 2, '6'), "00000001 00000002 00000000"}));
    BOOST_TEST(decode_auth_sys(name_255)->machine_name.size() == 255u);
    BOOST_TEST(!decode_auth_sys(name_256));
}

BOOST_AUTO_TEST_CASE(machine_name_too_long_to_send)
{
    const std::string name(256, 'x');
    auth_sys credential;
    credential.machine_name = name;
    std::vector<std::byte> block(1000);
    encoder out(block);
    encode(out, credential);
    BOOST_TEST(!out.ok());
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_CASE(record_marking)
{
    const auto bytes = from_hex("80000028 00000100 ffffffff");
    const std::span all(bytes);
    const auto last = decode_fragment_header(all.subspan<0, 4>());
    BOOST_TEST(last.length == 40u);
    BOOST_TEST(last.last);
    const auto middle = decode_fragment_header(all.subspan<4, 4>());
    BOOST_TEST(middle.length == 256u);
    BOOST_TEST(!middle.last);
    BOOST_TEST(decode_fragment_header(all.subspan<8, 4>()).length == max_fragment_length);

    std::vector<std::byte> out(8);
    encode_fragment_header(std::span(out).subspan<0, 4>(), {40, true});
    encode_fragment_header(std::span(out).subspan<4, 4>(), {256, false});
    BOOST_TEST(to_hex(out) == "80000028 00000100");
}

// RFC 8166 4.3.2: where a Write chunk was offered the result comes by it and nowhere else, whole.
BOOST_AUTO_TEST_CASE(a_result_comes_the_way_that_was_offered)
{
    const auto success = from_hex("00000001 00000001 00000000 00000000 00000000 00000000"
                                  "00000004 01020304 00000000");
    const auto data = from_hex("0102030405");
    reply inline_anyway({}, success, {}, true);
    BOOST_REQUIRE(inline_anyway.decode_header());
    auto ref = inline_anyway.results().payload(100);
    BOOST_TEST((inline_anyway.take(ref).error().code() == std::errc::protocol_error));
    ref = inline_anyway.results().payload(100);
    const auto nothing = inline_anyway.take(ref);
    BOOST_REQUIRE(nothing);
    BOOST_TEST(nothing->empty());

    verbena::xdr::payload_ref shorter;
    shorter.external = true;
    shorter.length = 4;
    reply by_chunk({}, success, payload(verbena::lease(), data), true);
    BOOST_TEST((by_chunk.take(shorter).error().code() == std::errc::protocol_error));
    shorter.length = 5;
    const auto whole = by_chunk.take(shorter);
    BOOST_REQUIRE(whole);
    BOOST_TEST(whole->size() == 5u);

    // What can't be decoded yields nothing.
    reply cut({}, std::span(success).first(9), {}, false);
    BOOST_TEST(!cut.decode_header());
    BOOST_TEST(!cut.take(shorter));
}

BOOST_AUTO_TEST_SUITE_END()
