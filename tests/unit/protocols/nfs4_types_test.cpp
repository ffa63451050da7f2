// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include "nfs4_vectors.hpp"

#include <cstring>
#include <set>
#include <string>

BOOST_AUTO_TEST_SUITE(nfs4_types_test)

using namespace verbena::test;
using namespace verbena::nfs::v4;
using namespace verbena;

namespace {
std::vector<std::byte> bytes;
}

BOOST_AUTO_TEST_CASE(special_stateids)
{
    const auto all = [](const char* hex) { return both_ways<stateid4>(hex, bytes); };
    const stateid4 anonymous = all("00000000 00000000 00000000 00000000");
    const stateid4 bypass = all("ffffffff ffffffff ffffffff ffffffff");
    const stateid4 current = all("00000001 00000000 00000000 00000000");
    const stateid4 invalid = all("ffffffff 00000000 00000000 00000000");
    const stateid4 odd_zeros = all("00000002 00000000 00000000 00000000");
    const stateid4 odd_ones = all("00000000 ffffffff ffffffff ffffffff");
    const stateid4 usual = all("00000000 00000000 00000000 00000001");
    BOOST_TEST((anonymous == stateid4::anonymous() && bypass == stateid4::read_bypass()));
    BOOST_TEST((current == stateid4::current() && invalid == stateid4::invalid()));

    const stateid4 each[] = {anonymous, bypass, current, invalid, odd_zeros, odd_ones, usual};
    for (const stateid4& id : each) {
        BOOST_TEST(id.is_anonymous() == (id == anonymous));
        BOOST_TEST(id.is_read_bypass() == (id == bypass));
        BOOST_TEST(id.is_current() == (id == current));
        BOOST_TEST(id.is_invalid() == (id == invalid));
        BOOST_TEST(id.is_reserved() == !(id == usual));
    }
    BOOST_TEST(!stateid_7().is_reserved());
}

BOOST_AUTO_TEST_CASE(seqids_go_round)
{
    BOOST_TEST(compare_seqids(5, 5) == 0);
    BOOST_TEST(compare_seqids(5, 6) < 0);
    BOOST_TEST(compare_seqids(6, 5) > 0);
    BOOST_TEST(compare_seqids(0xffffffff, 1) < 0);
    BOOST_TEST(compare_seqids(1, 0xffffffff) > 0);
    BOOST_TEST(compare_seqids(0x7fffffff, 0x80000001) < 0);
    BOOST_TEST(next_seqid(1) == 2u);
    BOOST_TEST(next_seqid(0xfffffffe) == 0xffffffffu);
    BOOST_TEST(next_seqid(0xffffffff) == 1u);
}

BOOST_AUTO_TEST_CASE(operations_of_minor_versions)
{
    const auto known = [](std::uint32_t number, std::uint32_t minor) {
        return is_operation(static_cast<nfs_opnum4>(number), minor);
    };
    for (std::uint32_t minor = 0; minor <= max_minor_version; ++minor) {
        for (const std::uint32_t number : {0U, 1U, 2U, 76U, 10044U, 0xffffffffU})
            BOOST_TEST(!known(number, minor));
        BOOST_TEST(known(3, minor));
        BOOST_TEST(known(39, minor));
    }
    BOOST_TEST((!known(40, 0) && known(40, 1) && known(58, 1)));
    BOOST_TEST((!known(59, 1) && known(59, 2) && known(75, 2)));

    BOOST_TEST((!is_obsolete(nfs_opnum4::renew, 0) && is_obsolete(nfs_opnum4::renew, 1)));
    std::set<std::uint32_t> obsolete;
    for (std::uint32_t number = 3; number < 76; ++number) {
        if (is_obsolete(static_cast<nfs_opnum4>(number), 2))
            obsolete.insert(number);
    }
    BOOST_TEST(obsolete == (std::set<std::uint32_t>{20, 30, 35, 36, 39, 48}),
               boost::test_tools::per_element());
    BOOST_TEST(!is_obsolete(nfs_opnum4::getdevicelist, 1));

    std::set<std::uint32_t> alone;
    for (std::uint32_t number = 3; number < 76; ++number) {
        if (runs_without_session(static_cast<nfs_opnum4>(number)))
            alone.insert(number);
    }
    BOOST_TEST(alone == (std::set<std::uint32_t>{41, 42, 43, 44, 57}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(names)
{
    BOOST_TEST(to_string(nfs_opnum4::bind_conn_to_session) == std::string("BIND_CONN_TO_SESSION"));
    std::set<std::string> operations;
    for (std::uint32_t number = 3; number < 76; ++number)
        operations.insert(to_string(static_cast<nfs_opnum4>(number)));
    BOOST_TEST(operations.size() == 73u);
    BOOST_TEST(!operations.contains("ILLEGAL"));
    BOOST_TEST(to_string(nfs_opnum4::illegal) == std::string("ILLEGAL"));
    BOOST_TEST(to_string(nfs_opnum4(76)) == std::string("ILLEGAL"));

    BOOST_TEST(to_string(nfsstat4::ok) == std::string("NFS4_OK"));
    // The two that RFC 8881's text misprints.
    BOOST_TEST(to_string(nfsstat4(10025)) == std::string("NFS4ERR_BAD_STATEID"));
    BOOST_TEST(to_string(nfsstat4(10068)) == std::string("NFS4ERR_RETRY_UNCACHED_REP"));
    BOOST_TEST(to_string(nfsstat4(10069)) == std::string("NFS4ERR_UNSAFE_COMPOUND"));
    BOOST_TEST(to_string(nfsstat4(10096)) == std::string("NFS4ERR_XATTR2BIG"));
    BOOST_TEST(to_string(nfsstat4(10073)) == std::string("NFS4ERR_unknown"));
    std::set<std::string> statuses;
    for (std::uint32_t number = 0; number <= 10100; ++number)
        statuses.insert(to_string(nfsstat4(number)));
    BOOST_TEST(statuses.size() ==
               19u + 94u + 1u); // those of POSIX, 10001 to 10096 without two, and the unknown
}

BOOST_AUTO_TEST_CASE(statuses_as_error_codes)
{
    const std::error_code stale = nfsstat4::stale;
    BOOST_TEST(stale.category().name() == std::string("nfs4"));
    BOOST_TEST(stale.message().starts_with("NFS4ERR_STALE: "));
    BOOST_TEST((std::error_code(nfsstat4::access) == std::errc::permission_denied));
    BOOST_TEST((std::error_code(nfsstat4::notsupp) == std::errc::not_supported));
    BOOST_TEST((std::error_code(nfsstat4::ok).message() == "NFS4_OK"));
    BOOST_TEST((std::error_code(nfsstat4::bad_seqid).message() == "NFS4ERR_BAD_SEQID: 10026"));
    std::set<std::string> conditions;
    for (std::uint32_t number = 1; number <= 10096; ++number) {
        const std::error_code code = nfsstat4(number);
        BOOST_TEST(!code.message().empty());
        if (code.default_error_condition().category() == std::generic_category())
            conditions.insert(code.default_error_condition().message());
    }
    BOOST_TEST(conditions.size() == 18u);
}

BOOST_AUTO_TEST_CASE(flags_of_exchange_id)
{
    BOOST_TEST(exchgid4::of_clients(1) == 0x40070103u);
    BOOST_TEST(exchgid4::of_clients(2) == 0x40070107u);
    BOOST_TEST((exchgid4::of_clients(2) & exchgid4::confirmed_r) == 0u);
}

BOOST_AUTO_TEST_CASE(enums_that_nobody_knows)
{
    // An error of the operation's own for them.
    BOOST_TEST((both_ways<nfs_ftype4>("00000063", bytes) == nfs_ftype4(0x63)));
    BOOST_TEST((both_ways<layoutiomode4>("00000009", bytes) == layoutiomode4(9)));
    BOOST_TEST((both_ways<layouttype4>("80000006", bytes) == layouttype4::rdma));
    BOOST_TEST((both_ways<data_content4>("00000002", bytes) == data_content4(2)));
    BOOST_TEST((both_ways<channel_dir_from_client4>("00000004", bytes) == channel_dir_from_client4(4)));
    BOOST_TEST((both_ways<channel_dir_from_server4>("00000003", bytes) == channel_dir_from_server4::both));
    BOOST_TEST((both_ways<secinfo_style4>("00000002", bytes) == secinfo_style4(2)));
    BOOST_TEST((both_ways<layoutreturn_type4>("00000004", bytes) == layoutreturn_type4(4)));
    BOOST_TEST((both_ways<change_attr_type4>("00000009", bytes) == change_attr_type4(9)));
    BOOST_TEST((both_ways<why_no_delegation4>("00000009", bytes) == why_no_delegation4(9)));
    BOOST_TEST((both_ways<nfsstat4>("00002759", bytes) == nfsstat4(10073)));
    BOOST_TEST((both_ways<rpc_gss_svc_t>("00000009", bytes) == rpc_gss_svc_t(9)));
    // BADXDR.
    refused<stable_how4>("00000003");
    refused<time_how4>("00000002");
    refused<createmode4>("00000004");
    refused<opentype4>("00000002");
    refused<open_claim_type4>("00000007");
    refused<open_delegation_type4>("00000006");
    refused<limit_by4>("00000000");
    refused<limit_by4>("00000003");
    refused<nfs_lock_type4>("00000000");
    refused<nfs_lock_type4>("00000005");
    refused<state_protect_how4>("00000003");
    refused<layoutrecall_type4>("00000000");
    refused<layoutrecall_type4>("00000004");
    refused<netloc_type4>("00000000");
    refused<netloc_type4>("00000004");
    refused<setxattr_option4>("00000003");
}

BOOST_AUTO_TEST_CASE(views_keep_their_limits)
{
    using name = text_view<4>;
    using body = bytes_view<4>;
    using large = large_opaque<4>;
    using list = array_view<std::uint32_t, 2>;
    BOOST_TEST(both_ways<name>("00000004 61620063", bytes) == std::string_view("ab\0c", 4));
    refused<name>("00000005 61626364 65000000");
    BOOST_TEST(text_of(both_ways<body>("00000004 61626364", bytes)) == "abcd");
    refused<body>("00000005 61626364 65000000");
    refused<large>("00000005 61626364 65000000");
    refused<list>("00000003 00000001 00000002 00000003");
    refused<list>("ffffffff 00000001 00000002");

    std::array<std::byte, 64> block{};
    const auto too_long = [&block](const auto& value) {
        xdr::encoder out(block);
        xdr::codec<std::remove_cvref_t<decltype(value)>>::encode(out, value);
        return !out.ok();
    };
    const std::array<std::uint32_t, 3> three{1, 2, 3};
    BOOST_TEST(too_long(name("abcde")));
    BOOST_TEST(too_long(body(std::span(block).first(5))));
    BOOST_TEST(too_long(large(std::span<const std::byte>(block).first(5))));
    BOOST_TEST(too_long(list(three)));
}

BOOST_AUTO_TEST_CASE(arrays_are_read_from_either_memory)
{
    using list = array_view<stateid4, 4>;
    const auto came = both_ways<list>(hex({"00000002", sid_7, sid_8}), bytes);
    BOOST_TEST(came.size() == 2u);
    const std::array<stateid4, 2> own{stateid_7(), stateid_8()};
    const list made(own);
    BOOST_TEST(to_hex(encoded(made)) == to_hex(bytes));
    for (const list& each : {came, made}) {
        std::vector<stateid4> seen;
        for (const stateid4 id : each)
            seen.push_back(id);
        BOOST_TEST((seen == std::vector<stateid4>{stateid_7(), stateid_8()}));
    }
    BOOST_TEST(both_ways<list>(none_hex, bytes).empty());
    // A list whose second element is broken is none.
    xdr::decoder in(bytes);
    using claims = array_view<open_claim_type4, 4>;
    refused<claims>("00000002 00000001 00000007");
}

BOOST_AUTO_TEST_CASE(large_opaques_stay_with_the_transport)
{
    using data = large_opaque<8>;
    const auto message = from_hex("00000005");
    xdr::decoder in(message, xdr::external_item{4, 5});
    data value;
    xdr::codec<data>::decode(in, value);
    BOOST_TEST(in.at_end());
    BOOST_TEST((value.external && value.length == 5));
    std::array<std::byte, 16> block{};
    xdr::encoder out(block);
    xdr::codec<data>::encode(out, value);
    BOOST_TEST(to_hex(out.bytes()) == "00000005");
    BOOST_REQUIRE(out.payloads().size() == 1u);
    BOOST_TEST(out.payloads()[0].length == 5u);
    BOOST_TEST(text_of(both_ways<data, false>("00000005 68656c6c 6f000000", bytes).inline_bytes) == "hello");
}

BOOST_AUTO_TEST_SUITE_END()
