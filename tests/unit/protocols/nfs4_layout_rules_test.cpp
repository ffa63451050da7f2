// SPDX-License-Identifier: Apache-2.0
// Rules of the RDMA layout's draft that are about the whole server: each case bears the number of its rule in
// docs/internals/pnfs.md, which names the tests of the others.
#include "../acl_text.hpp"
#include "nfs4_layout_clients.hpp"

#include <verbena/protocols/nfs/server/v4/storage.hpp>

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
    /// Whether one change of rights has the layout recalled, and its keys gone before it is made, though the holder
    /// answers nothing.
    void fences(const attributes& change)
    {
        begin();
        const auto file = make(first, "f", "text");
        const auto made = get(first, file, mode::rw);
        rdma_peer& p = connect_to(first, made);
        const std::uint32_t before = mode_of(file);
        auto setting = begin_setting(second, file, change);
        BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
        BOOST_TEST((first_way->calls[0].operation == nfs_cb_opnum4::layoutrecall));
        BOOST_TEST(!setting->is_done);
        BOOST_TEST(mode_of(file) == before);
        BOOST_TEST(put(p, made.memory(), 0, "more")); // until the time for an answer is over
        for (int i = 0; i < 60; ++i) {
            pass(5s, 1s);
            (void)first.call();
            const nfsstat4 status = status_of(*setting);
            if (status == nfsstat4::ok)
                break;
            BOOST_TEST_REQUIRE(status == nfsstat4::delay); // a call waits so long, and is to come again
            BOOST_TEST(mode_of(file) == before);
            setting = begin_setting(second, file, change);
        }
        BOOST_TEST(status_of(*setting) == nfsstat4::ok);
        BOOST_TEST(!put(p, made.memory(), 0, "lost"));
        BOOST_TEST(second.read(open(second, "f", share4::access_read), stateid4::anonymous(), 4) == "more");
    }
};

} // namespace

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

BOOST_FIXTURE_TEST_CASE(rule_7_without_a_minimum_to_write_is_what_can_be_written, fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, asking(file.id, mode::rw, 0, 4 * block, 0));
    BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
    BOOST_TEST_REQUIRE(!made.extents.empty());
    BOOST_TEST(made.extents[0].file_offset == 0u);
    for (const pnfs_rdma_extent4& e : made.extents)
        BOOST_TEST(e.state == extent_state::read_write_data);
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

BOOST_FIXTURE_TEST_CASE(rule_18_a_change_of_mode_fences, fixture)
{
    attributes change;
    change.mode = 0640;
    change.present.set(attribute::mode);
    fences(change);
    BOOST_TEST(mode_of(open(first, "f", share4::access_read)) == 0640u);
}

BOOST_FIXTURE_TEST_CASE(rule_18_a_change_of_owner_fences, fixture)
{
    attributes change;
    change.owner_group = "100";
    change.present.set(attribute::owner_group);
    fences(change);
}

BOOST_FIXTURE_TEST_CASE(rule_18_a_change_of_acl_fences, fixture)
{
    object_values change;
    change.set_acl(acl("A::OWNER@:rwatTnNcCoy"));
    fences(change.all);
}

BOOST_AUTO_TEST_SUITE_END()
