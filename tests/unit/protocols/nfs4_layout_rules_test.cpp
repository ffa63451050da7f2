// SPDX-License-Identifier: Apache-2.0
// Rules of the RDMA layout's draft that are about the whole server. Cases named rule_N_* bear the number that the rule has
// in docs/internals/pnfs.md, which names the tests of the others.
#include "../acl_text.hpp"
#include "nfs4_layout_clients.hpp"

#include <verbena/protocols/nfs/server/v4/storage.hpp>

#include <array>
#include <string>

BOOST_AUTO_TEST_SUITE(nfs4_layout_rules_test)

using namespace verbena;
using namespace verbena::test;
using mode = layoutiomode4;

namespace {

struct fixture : layout_fixture {
    std::shared_ptr<memory_call> begin_setting(client4& c, const client4::opened& file,
                                               const attributes& values)
    {
        const encoded set(values);
        return called_fixture::begin(c.sequence(), PUTFH4args{client4::handle_of(file)},
                                     SETATTR4args{stateid4::anonymous(), set.raw});
    }
    std::shared_ptr<memory_call> begin_setting_size(client4& c, const client4::opened& file,
                                                    std::uint64_t size)
    {
        attributes values;
        values.size = size;
        values.present.set(attribute::size);
        return begin_setting(c, file, values);
    }
    static nfsstat4 status_of(memory_call& c)
    {
        BOOST_TEST_REQUIRE(c.is_done);
        return answer_of(c).status();
    }
    std::uint32_t mode_of(const client4::opened& file)
    {
        GETATTR4args args;
        args.attr_request.set(attribute::mode);
        answer4 out = first.call(PUTFH4args{client4::handle_of(file)}, args);
        out.good<PUTFH4res>();
        attributes values;
        BOOST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
        return values.mode;
    }
    /// What decides who may do what with the file.
    std::string rights_of(const client4::opened& file)
    {
        GETATTR4args args;
        args.attr_request = {attribute::mode, attribute::owner, attribute::owner_group, attribute::acl};
        answer4 out = first.call(PUTFH4args{client4::handle_of(file)}, args);
        out.good<PUTFH4res>();
        const auto values = out.good<GETATTR4res>().obj_attributes.attr_vals;
        return {reinterpret_cast<const char*>(values.data()), values.size()};
    }
    /// Whether one change of rights has the layout recalled, and its keys gone before it is made, though the holder
    /// answers nothing.
    void fences(const attributes& change, mode of = mode::rw)
    {
        begin();
        const auto file = make(first, "f", "text");
        const auto made = get(first, file, of);
        rdma_peer& p = connect_to(first, made);
        const auto reaches = [&] {
            return of == mode::rw ? put(p, made.memory(), 0, "text") : take(p, made.memory(), 0, 4) == "text";
        };
        const std::string before = rights_of(file);
        auto setting = begin_setting(second, file, change);
        BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
        BOOST_TEST((first_way->calls[0].operation == nfs_cb_opnum4::layoutrecall));
        BOOST_TEST(!setting->is_done);
        BOOST_TEST((rights_of(file) == before));
        BOOST_TEST(reaches()); // until the time for an answer is over
        for (int i = 0; i < 60; ++i) {
            pass(5s, 1s);
            (void)first.call();
            const nfsstat4 status = status_of(*setting);
            if (status == nfsstat4::ok)
                break;
            BOOST_TEST_REQUIRE(status == nfsstat4::delay); // a call waits so long, and is to come again
            BOOST_TEST((rights_of(file) == before));
            setting = begin_setting(second, file, change);
        }
        BOOST_TEST(status_of(*setting) == nfsstat4::ok);
        BOOST_TEST((rights_of(file) != before));
        BOOST_TEST(!reaches());
    }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(rule_3_the_first_extent_has_the_offset, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    BOOST_TEST(first.write(file, "more", file.id, 3 * block) == nfsstat4::ok);
    for (const mode of : {mode::read, mode::rw}) // which gives the hole memory
        for (const std::uint64_t offset :
             {std::uint64_t(0), std::uint64_t(3), block - 1, block, 2 * block + 5, 3 * block, 3 * block + 3})
            BOOST_TEST_CONTEXT("layout " << of << " of " << offset)
            {
                const auto made = get(first, file, asking(file.id, of, offset, all, 1));
                BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
                BOOST_TEST_REQUIRE(!made.extents.empty());
                const pnfs_rdma_extent4& e = made.extents[0];
                BOOST_TEST((e.file_offset <= offset && offset - e.file_offset < e.length));
                BOOST_TEST((made.offset == e.file_offset && made.iomode == of));
            }
}

BOOST_FIXTURE_TEST_CASE(rule_5_extents_are_contiguous, fixture)
{
    begin();
    const auto file = make(first, "f", "");
    for (const std::uint64_t at : {1, 3, 4, 7})
        BOOST_TEST(first.write(file, std::string(block, 'x'), file.id, at * block) == nfsstat4::ok);
    const auto reads = get(first, file, asking(file.id, mode::read, 0, all, 8 * block));
    std::string states;
    for (const pnfs_rdma_extent4& e : reads.extents)
        states += e.state == extent_state::none_data ? '-' : 'x';
    BOOST_TEST(states == "-x-x-x");
    const auto writes = get(first, file, asking(file.id, mode::rw, 0, 8 * block, 8 * block));
    for (const layout& made : {reads, writes}) {
        BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
        std::uint64_t next = made.offset;
        for (const pnfs_rdma_extent4& e : made.extents) {
            BOOST_TEST(e.file_offset == next);
            BOOST_TEST(e.length != 0u);
            next += e.length;
        }
        BOOST_TEST((made.offset == 0u && next == 8 * block && made.length == next));
    }
}

BOOST_FIXTURE_TEST_CASE(rule_7_without_a_minimum_to_read_is_all_that_there_is, fixture)
{
    begin();
    const auto file = make(first, "f", "");
    BOOST_TEST(first.write(file, "text", file.id, 2 * block) == nfsstat4::ok);
    const auto made = get(first, file, asking(file.id, mode::read, 0, all, 0));
    BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
    BOOST_TEST_REQUIRE(made.extents.size() == 2u);
    BOOST_TEST(made.extents[0].state == extent_state::none_data);
    BOOST_TEST(made.extents[1].state == extent_state::read_data);
    BOOST_TEST((made.offset == 0u && made.length == 3 * block));
}

// Until it is back they are good.
BOOST_FIXTURE_TEST_CASE(rule_9_handles_go_with_the_return_that_a_recall_asks_for, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto writes = get(first, file, mode::rw);
    const auto reads = get(first, file, asking(writes.id, mode::read));
    rdma_peer& writer = connect_to(first, writes);
    rdma_peer& reader = connect_to(first, reads);
    const auto cutting = begin_setting_size(second, file, 2);
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    BOOST_TEST(!cutting->is_done);
    BOOST_TEST(put(writer, writes.memory(), 0, "last"));
    BOOST_TEST(take(reader, reads.memory(), 0, 4) == "last");
    BOOST_TEST(give_back(first, file, returning(first_way->calls[0].id)).status == nfsstat4::ok);
    BOOST_TEST(!put(writer, writes.memory(), 0, "lost"));
    BOOST_TEST(take(reader, reads.memory(), 0, 2) == "?");
    turns();
    BOOST_TEST(status_of(*cutting) == nfsstat4::ok);
    BOOST_TEST(second.read(open(second, "f", share4::access_read), stateid4::anonymous(), 4) == "la");
}

// By its delegation the holder could write what that open denies.
BOOST_FIXTURE_TEST_CASE(rule_11_none_is_given_of_what_others_are_about_to_deny, fixture)
{
    begin();
    const auto file = first.open(first.creating("f"));
    BOOST_TEST_REQUIRE((file.res.delegation.delegation_type == open_delegation_type4::write));
    const stateid4 delegation = file.res.delegation.stateid;
    BOOST_TEST(first.write(file, "text") == nfsstat4::ok);
    close(first, file);
    OPEN4args denying =
        second.opening("f", share4::access_read | share4::want_no_delegation, share4::deny_write);
    const auto opening =
        called_fixture::begin(second.sequence(), PUTROOTFH4args(), LOOKUP4args{"export"}, denying);
    BOOST_TEST(!opening->is_done); // the delegation is to come back
    for (const mode of : {mode::read, mode::rw})
        BOOST_TEST(get(first, file, asking(delegation, of)).status == nfsstat4::layouttrylater);
    BOOST_TEST(first.call(PUTFH4args{client4::handle_of(file)}, DELEGRETURN4args{delegation}).status() ==
               nfsstat4::ok);
    turns();
    BOOST_TEST(status_of(*opening) == nfsstat4::ok);
    // Who may not open the file to write gets no layout to write either, and the other one.
    pass(commons->state.options().rest_after_recall * 2, 1s);
    BOOST_TEST(first.open(first.opening("f")).status == nfsstat4::share_denied);
    const auto reads = open(first, "f", share4::access_read);
    BOOST_TEST(get(first, reads, asking(reads.id, mode::rw)).status == nfsstat4::openmode);
    BOOST_TEST(get(first, reads, asking(reads.id, mode::read)).status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(rule_11_an_open_recalls_the_layouts_that_it_denies, fixture)
{
    begin();
    struct one {
        mode of;
        std::uint32_t denies;
        bool is_recalled;
    };
    int number = 0;
    for (const one& each :
         {one{mode::read, share4::deny_read, true}, one{mode::read, share4::deny_write, false},
          one{mode::rw, share4::deny_read, true}, one{mode::rw, share4::deny_write, true}})
        BOOST_TEST_CONTEXT("layout " << each.of << ", denied " << each.denies)
        {
            const std::string name = "f" + std::to_string(++number);
            const auto file = make(first, name, "text");
            const auto made = get(first, file, each.of);
            rdma_peer& p = connect_to(first, made);
            close(first, file); // the layout stays
            const std::size_t calls = first_way->calls.size();
            OPEN4args denying =
                second.opening(name, share4::access_both | share4::want_no_delegation, each.denies);
            const auto opening =
                called_fixture::begin(second.sequence(), PUTROOTFH4args(), LOOKUP4args{"export"}, denying);
            BOOST_TEST(take(p, made.memory(), 0, 4) == "text");
            BOOST_TEST(opening->is_done == !each.is_recalled);
            BOOST_TEST_REQUIRE(first_way->calls.size() == calls + (each.is_recalled ? 1 : 0));
            if (each.is_recalled)
                BOOST_TEST(give_back(first, file, returning(first_way->calls.back().id)).status ==
                           nfsstat4::ok);
            turns();
            BOOST_TEST(status_of(*opening) == nfsstat4::ok);
            BOOST_TEST((take(p, made.memory(), 0, 4) == "text") == !each.is_recalled);
        }
}

// Else those who come for more keep him from the file for ever.
BOOST_FIXTURE_TEST_CASE(rule_12_who_waits_has_the_next_turn, fixture)
{
    begin();
    client4 third(*this, "third");
    const auto third_way = std::make_shared<called_client>(pool);
    way = third_way;
    connect(third);
    const auto file = make(first, "f", "");
    BOOST_TEST(first.write(file, "text", file.id, block) == nfsstat4::ok);
    (void)get(first, file, mode::read); // which tells of a hole
    const auto mine = open(second, "f");
    const auto theirs = open(third, "f", share4::access_read);
    const auto asks = called_fixture::begin(second.sequence(), PUTFH4args{client4::handle_of(mine)},
                                            asking(mine.id, mode::rw));
    BOOST_TEST(!asks->is_done);
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    BOOST_TEST(get(first, file, asking(file.id, mode::read)).status == nfsstat4::recallconflict);
    BOOST_TEST(get(third, theirs, asking(theirs.id, mode::read)).status == nfsstat4::layouttrylater);
    BOOST_TEST(give_back(first, file, returning(first_way->calls[0].id)).status == nfsstat4::ok);
    turns();
    BOOST_TEST(status_of(*asks) == nfsstat4::ok);
    BOOST_TEST(third_way->calls.empty());
    const auto late = get(third, theirs, mode::read);
    BOOST_TEST(late.extents.at(0).state == extent_state::read_data);
}

BOOST_FIXTURE_TEST_CASE(rule_13_what_lay_behind_a_cut_is_zeros, fixture)
{
    begin();
    const auto file = make(first, "f", "0123456789");
    const auto made = get(first, file, mode::rw);
    rdma_peer& p = connect_to(first, made);
    const auto cutting = begin_setting_size(second, file, 4);
    BOOST_TEST(!cutting->is_done);
    // What the holder places until it has returned the layout lies behind the cut as well.
    BOOST_TEST(put(p, made.memory(), 4, "placed"));
    BOOST_TEST(give_back(first, file, returning(first_way->calls.at(0).id)).status == nfsstat4::ok);
    turns();
    BOOST_TEST(status_of(*cutting) == nfsstat4::ok);
    const auto growing = begin_setting_size(second, file, 10);
    turns();
    BOOST_TEST(status_of(*growing) == nfsstat4::ok);
    BOOST_TEST(second.read(open(second, "f", share4::access_read), stateid4::anonymous(), 16) ==
               std::string("0123\0\0\0\0\0\0", 10));
}

BOOST_FIXTURE_TEST_CASE(rule_13_a_cut_that_waits_too_long_is_put_off, fixture)
{
    begin();
    const auto file = make(first, "f", "0123456789");
    const auto made = get(first, file, mode::rw);
    rdma_peer& p = connect_to(first, made);
    auto cutting = begin_setting_size(second, file, 4);
    pass(5s, 1s);
    BOOST_TEST(status_of(*cutting) == nfsstat4::delay);
    BOOST_TEST(size_of(second, file) == 10u);
    BOOST_TEST(put(p, made.memory(), 0, "mine"));
    cutting = begin_setting_size(second, file, 4);
    BOOST_TEST(first_way->calls.size() == 1u);
    BOOST_TEST(give_back(first, file, returning(first_way->calls[0].id)).status == nfsstat4::ok);
    turns();
    BOOST_TEST(status_of(*cutting) == nfsstat4::ok);
    BOOST_TEST(second.read(open(second, "f", share4::access_read), stateid4::anonymous(), 16) == "mine");
}

BOOST_FIXTURE_TEST_CASE(rule_15_a_write_that_makes_a_file_longer_recalls_nothing, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, mode::rw);
    rdma_peer& p = connect_to(first, made);
    const auto theirs = open(second, "f");
    BOOST_TEST(second.write(theirs, "more", theirs.id, 8) == nfsstat4::ok);
    BOOST_TEST(second.write(theirs, "far", theirs.id, 5 * block) == nfsstat4::ok);
    BOOST_TEST(first_way->calls.empty());
    BOOST_TEST(size_of(second, file) == 5 * block + 3);
    BOOST_TEST(take(p, made.memory(), 8, 4) == "more");
    BOOST_TEST(put(p, made.memory(), 4, "mine"));
    BOOST_TEST(second.read(theirs, theirs.id, 12) == "textminemore");
}

BOOST_FIXTURE_TEST_CASE(rule_16_a_hint_is_refused, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    // layouthint4: a type, and a body without octets. What suppattr_exclcreat does not name is INVAL (8881 18.16.3).
    std::array<std::byte, 8> hint{};
    fattr4 hints;
    hints.attrmask.set(attribute::layout_hint);
    hints.attr_vals = std::span<const std::byte>(hint);
    for (const layouttype4 type : {layouttype4::rdma, layouttype4::nfsv4_1_files}) {
        xdr::store_u32(hint.data(), static_cast<std::uint32_t>(type));
        BOOST_TEST(first.call(PUTFH4args{client4::handle_of(file)}, SETATTR4args{file.id, hints}).status() ==
                   nfsstat4::attrnotsupp);
        for (const createmode4 how :
             {createmode4::unchecked, createmode4::guarded, createmode4::exclusive4_1}) {
            OPEN4args creating = first.creating("none", how);
            creating.openhow.attrs = hints;
            BOOST_TEST(first.open(creating).status ==
                       (how == createmode4::exclusive4_1 ? nfsstat4::inval : nfsstat4::attrnotsupp));
        }
        CREATE4args directory;
        directory.objtype.type = nfs_ftype4::dir;
        directory.objname = "none";
        directory.createattrs = hints;
        BOOST_TEST(first.call(PUTROOTFH4args(), LOOKUP4args{"export"}, directory).status() ==
                   nfsstat4::attrnotsupp);
        BOOST_TEST(first.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"none"}).status() ==
                   nfsstat4::noent);
    }
    GETATTR4args args;
    args.attr_request = {attribute::supported_attrs, attribute::suppattr_exclcreat};
    answer4 out = first.call(PUTFH4args{client4::handle_of(file)}, args);
    out.good<PUTFH4res>();
    attributes values;
    BOOST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
    BOOST_TEST(values.supported_attrs.test(attribute::layout_types));
    BOOST_TEST(!values.supported_attrs.test(attribute::layout_hint));
    BOOST_TEST(!values.suppattr_exclcreat.test(attribute::layout_hint));
}

namespace {

attributes change_of_mode()
{
    attributes change;
    change.mode = 0640;
    change.present.set(attribute::mode);
    return change;
}

} // namespace

BOOST_FIXTURE_TEST_CASE(rule_18_a_change_of_mode_fences, fixture)
{
    fences(change_of_mode());
    BOOST_TEST(mode_of(open(first, "f", share4::access_read)) == 0640u);
}

BOOST_FIXTURE_TEST_CASE(rule_18_a_change_of_mode_fences_who_reads, fixture)
{
    fences(change_of_mode(), mode::read);
}

// Nobody but root gives files away.
BOOST_FIXTURE_TEST_CASE(rule_18_a_change_of_owner_fences, fixture)
{
    options[0].root_squash = false;
    user->uid = 0;
    attributes change;
    change.owner = "2000";
    change.present.set(attribute::owner);
    fences(change);
}

BOOST_FIXTURE_TEST_CASE(rule_18_a_change_of_group_fences, fixture)
{
    options[0].root_squash = false;
    user->uid = 0;
    attributes change;
    change.owner_group = "2000";
    change.present.set(attribute::owner_group);
    fences(change, mode::read);
}

BOOST_FIXTURE_TEST_CASE(rule_18_a_change_of_acl_fences, fixture)
{
    object_values change;
    change.set_acl(acl("A::OWNER@:rwatTnNcCoy"));
    fences(change.all);
}

BOOST_FIXTURE_TEST_CASE(rule_18_a_change_of_acl_fences_who_reads, fixture)
{
    object_values change;
    change.set_acl(acl("A::OWNER@:rwatTnNcCoy"));
    fences(change.all, mode::read);
}

// --- A client that takes what it can, and gives nothing back

BOOST_AUTO_TEST_CASE(others_get_layouts_while_one_client_hoards_them)
{
    fixture f;
    f.layout_options.layouts.layouts = 16;
    f.layout_options.layouts.layouts_of_client = 8;
    f.state_limits.peer_percent = 100; // hosts have no part: that of a client is in question
    const auto as = [&f](client4& c) -> client4& {
        f.from.address = &c == &f.first ? "127.0.0.1" : "127.0.0.2";
        return c;
    };
    f.start_layouts();
    f.connect(as(f.first));
    f.way = f.second_way;
    f.connect(as(f.second));
    const auto take = [&f, &as](client4& c, const std::string& name, mode of) {
        const auto file = f.make(as(c), name, "text");
        return f.get(c, file, f.asking(file.id, of));
    };
    std::size_t got = 0;
    for (int i = 0; i < 32; ++i) {
        const nfsstat4 status = take(f.first, "hoarded" + std::to_string(i), mode::rw).status;
        BOOST_TEST((status == nfsstat4::ok || status == nfsstat4::layouttrylater));
        got += status == nfsstat4::ok;
    }
    BOOST_TEST(got == 8u);
    // The other one reads and writes by layouts, in files of both.
    for (int i = 0; i < 3; ++i) {
        const auto made = take(f.second, "own" + std::to_string(i), mode::rw);
        BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
        rdma_peer& p = f.connect_to(f.second, made);
        BOOST_TEST(f.put(p, made.memory(), 0, "more"));
        BOOST_TEST(f.take(p, made.memory(), 0, 4) == "more");
        const auto theirs = f.open(as(f.second), "hoarded" + std::to_string(i), share4::access_read);
        const auto same = f.get(f.second, theirs, f.asking(theirs.id, mode::read));
        BOOST_TEST_REQUIRE(same.status == nfsstat4::ok);
        BOOST_TEST(f.take(p, same.memory(), 0, 4) == "text");
    }
    BOOST_TEST(f.second_way->calls.empty());
    BOOST_TEST((take(f.first, "one more", mode::read).status == nfsstat4::layouttrylater));
}

BOOST_AUTO_TEST_SUITE_END()
