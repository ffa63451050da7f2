// SPDX-License-Identifier: Apache-2.0
// A call is told from its repeat by its bytes, wherever a stream has divided either of them.
#include "nfs4_server.hpp"

#include <verbena/protocols/nfs/wire/v4/session_operations.hpp>

#include <algorithm>
#include <numeric>

BOOST_AUTO_TEST_SUITE(nfs4_repeats_in_pieces_test)

using namespace verbena;
using namespace verbena::test;

namespace {

struct fixture : nfs4_fixture {
    fixture()
    {
        client.connect();
        file = client.open(client.creating("f"));
        BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
    }
    /// A directory `name` is made in the directory that has a long name, among operations with numbers, handles, bitmaps and data.
    auto writer(const SEQUENCE4args& sequence, std::string_view name, std::string_view data)
    {
        return [this, sequence, name, data](compound_request& out) {
            CREATE4args made;
            made.objtype.type = nfs_ftype4::dir;
            made.objname = name;
            out.add(sequence);
            out.add(PUTFH4args{client4::handle_of(file)});
            out.add(ACCESS4args{access4::read | access4::modify});
            out.add(WRITE4args{file.id, 5, stable_how4::unstable, std::as_bytes(std::span(data))});
            out.add(PUTROOTFH4args());
            out.add(LOOKUP4args{"export"});
            out.add(made);
            out.add(GETATTR4args{bitmap4{attribute::type, attribute::mounted_on_fileid}});
        };
    }
    answer4 send_in_two(std::size_t at, const std::function<void(compound_request&)>& write)
    {
        border = at;
        answer4 out = send(1, write);
        border = 0;
        return out;
    }
    /// How long `write` makes a call.
    std::size_t size_of(const std::function<void(compound_request&)>& write)
    {
        return prepare(1, write)->size();
    }
    client4 client{*this, "a"};
    client4::opened file;
};

} // namespace

// 8881 2.10.6.1.3: whoever did not hear the answer gets it.
BOOST_FIXTURE_TEST_CASE(a_repeat_is_one_wherever_either_was_divided, fixture)
{
    const std::size_t behind_sequence =
        size_of([&](compound_request& out) { out.add(client.sequence(3, true)); });
    --client.sequences[3];
    const std::size_t whole = size_of(writer({}, "d0000", "data"));
    unsigned wrong = 0;
    for (std::size_t at = behind_sequence; at <= whole; ++at) {
        const std::string name = "d" + std::to_string(1000 + at);
        const auto write = writer(client.sequence(1, true), name, "data");
        const std::size_t elsewhere = behind_sequence + (7 * at) % (whole - behind_sequence);
        const answer4 first = send_in_two(at, write);
        BOOST_TEST_REQUIRE(first.status() == nfsstat4::ok);
        for (const std::size_t border_of_repeat : {at, elsewhere, whole}) {
            const answer4 again = send_in_two(border_of_repeat, write);
            if (first.bytes() != again.bytes())
                ++wrong;
        }
    }
    BOOST_TEST(wrong == 0u);
}

// 8881 2.10.6.1.3.1, though what differs lies in both pieces.
BOOST_FIXTURE_TEST_CASE(another_call_is_none_wherever_it_was_divided, fixture)
{
    const SEQUENCE4args sequence = client.sequence(1, true);
    const std::size_t whole = size_of(writer(sequence, "d0000", "data"));
    BOOST_TEST(send(1, writer(sequence, "d0000", "data")).status() == nfsstat4::ok);
    unsigned wrong = 0;
    for (std::size_t at = whole - 100; at <= whole; ++at) {
        if (send_in_two(at, writer(sequence, "d0001", "data")).status() != nfsstat4::seq_false_retry)
            ++wrong;
    }
    BOOST_TEST(wrong == 0u);
    // The data of a WRITE are not looked at, as a file's pages may have changed.
    BOOST_TEST(send_in_two(whole - 30, writer(sequence, "d0000", "DATA")).status() == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(without_memory_to_compare_them_a_repeat_is_to_come_again, fixture)
{
    const SEQUENCE4args sequence = client.sequence(1, true);
    const auto write = writer(sequence, "d0000", "data");
    const answer4 first = send(1, write);
    BOOST_TEST(first.status() == nfsstat4::ok);
    // Amid the name, which stands in front of attributes (8 bytes) and of the last operation (16).
    const std::size_t amid = size_of(write) - 8 - 16 - 4;
    no_memory_to_join = true;
    BOOST_TEST(send_in_two(amid, write).status() == nfsstat4::delay);
    no_memory_to_join = false;
    const answer4 again = send_in_two(amid, write);
    BOOST_CHECK(first.bytes() == again.bytes());
}

BOOST_AUTO_TEST_CASE(a_digest_is_of_bytes_alone)
{
    std::vector<std::byte> bytes(76);
    std::ranges::generate(bytes, [n = 0]() mutable { return std::byte(11 * ++n); });
    const auto digest = [&](nfs_opnum4 operation, std::size_t at) {
        call_digest made;
        const std::span<const std::byte> all(bytes);
        made.add(operation, {all.first(at), all.subspan(at), bytes.size()});
        return made;
    };
    const auto check = [&](nfs_opnum4 operation) {
        for (std::size_t at = 0; at <= bytes.size(); ++at)
            BOOST_TEST((digest(operation, at) == digest(operation, bytes.size())));
    };
    check(nfs_opnum4::open);
    check(nfs_opnum4::write);
    xdr::store_u32(bytes.data() + 4, static_cast<std::uint32_t>(nfs_ftype4::lnk));
    check(nfs_opnum4::create);
    const call_digest before = digest(nfs_opnum4::open, 40);
    bytes[39] ^= std::byte(1);
    BOOST_TEST(!(digest(nfs_opnum4::open, 40) == before));
    bytes[39] ^= std::byte(1);
    bytes[75] ^= std::byte(1);
    BOOST_TEST(!(digest(nfs_opnum4::open, 40) == before));
}

// An array of which some lies in the other piece is no view of the first one's bytes.
BOOST_AUTO_TEST_CASE(an_array_in_two_pieces_is_to_be_joined)
{
    std::array<callback_sec_parms4, 3> each;
    for (callback_sec_parms4& one : each)
        one.cb_secflavor = static_cast<std::uint32_t>(rpc::auth_flavor::sys);
    BACKCHANNEL_CTL4args args;
    args.cb_program = 7;
    args.sec_parms = std::span<const callback_sec_parms4>(each);
    std::array<std::byte, 512> block{};
    xdr::encoder out(block);
    xdr::codec<BACKCHANNEL_CTL4args>::encode(out, args);
    BOOST_REQUIRE(out.ok());
    const std::vector<std::byte> whole(block.begin(), block.begin() + out.size());
    for (std::size_t at = 0; at <= whole.size(); ++at) {
        // Each in memory of its own, so that a view that leads out of it is found.
        const std::vector<std::byte> first(whole.begin(), whole.begin() + at);
        const std::vector<std::byte> second(whole.begin() + at, whole.end());
        xdr::decoder in(first, second, 0);
        BACKCHANNEL_CTL4args got;
        xdr::codec<BACKCHANNEL_CTL4args>::decode(in, got);
        BOOST_TEST((in.ok() || in.failure() == std::errc::no_buffer_space));
        if (!in.ok())
            continue;
        std::size_t count = 0;
        for (const callback_sec_parms4& one : got.sec_parms)
            count += one.cb_secflavor == each[0].cb_secflavor ? 1 : 0;
        BOOST_TEST(count == each.size());
    }
}

BOOST_AUTO_TEST_SUITE_END()
