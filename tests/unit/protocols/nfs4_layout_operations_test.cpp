// SPDX-License-Identifier: Apache-2.0
// GETDEVICEINFO, LAYOUTGET, LAYOUTCOMMIT, LAYOUTRETURN and CB_LAYOUTRECALL of RDMA layouts, and what a client reads and writes by them.
#include "nfs4_layout_clients.hpp"
#include "nfs4_log_lines.hpp"

BOOST_AUTO_TEST_SUITE(nfs4_layout_operations_test)

using namespace verbena;
using namespace verbena::test;
using mode = layoutiomode4;

BOOST_FIXTURE_TEST_CASE(rule_8_a_client_reads_and_writes_a_file_without_calls, layout_fixture)
{
    begin();
    const auto file = make(first, "f", "written by a call");
    const auto made = get(first, file, mode::rw);
    BOOST_TEST(made.id.seqid == 1u);
    BOOST_TEST(!made.return_on_close);
    BOOST_TEST((made.offset == 0u && made.length >= block && made.iomode == mode::rw));
    rdma_peer& p = connect_to(first, made);
    BOOST_TEST(take(p, made.memory(), 0, 17) == "written by a call");
    BOOST_TEST(put(p, made.memory(), 0, "without"));
    BOOST_TEST(take(p, made.memory(), 0, 17) == "without by a call");
    BOOST_TEST(first.read(file, file.id) == "without by a call");
    BOOST_TEST(data->count().connections == 1);
    BOOST_TEST(service->layouts().counts().segments == 1);
    const auto back = give_back(first, file, returning(made.id));
    BOOST_TEST((back.status == nfsstat4::ok && !back.stateid));
    turns();
    BOOST_TEST(service->layouts().counts().segments == 0);
    BOOST_TEST(take(p, made.memory(), 0, 7) == "?"); // and so the connection is gone
}

// --- GETDEVICEINFO

BOOST_FIXTURE_TEST_CASE(a_device_is_known_to_its_client_alone, layout_fixture)
{
    begin();
    const auto made = get(first, make(first, "f", "text"), mode::read);
    const auto ask = [&](client4& c, const GETDEVICEINFO4args& args) { return c.call(args).status(); };
    GETDEVICEINFO4args args = asking_of(made);
    BOOST_TEST(ask(first, args) == nfsstat4::ok);
    BOOST_TEST(ask(second, args) == nfsstat4::noent);
    args.device_id[7] ^= std::byte(1);
    BOOST_TEST(ask(first, args) == nfsstat4::noent);
    args = asking_of(made);
    args.layout_type = layouttype4::block_volume;
    BOOST_TEST(ask(first, args) == nfsstat4::unknown_layouttype);
}

BOOST_FIXTURE_TEST_CASE(an_address_that_has_no_room_is_too_big, layout_fixture)
{
    begin();
    GETDEVICEINFO4args args = asking_of(get(first, make(first, "f", "text"), mode::read));
    constexpr std::uint32_t needed = 4 + 4 + (4 + 4) + (4 + 4); // type, length, "rdma", "data"
    args.maxcount = needed - 1;
    answer4 small = first.call(args);
    const auto refused = small.take<GETDEVICEINFO4res>();
    BOOST_TEST(refused.status == nfsstat4::toosmall);
    BOOST_TEST(refused.mincount == needed);
    args.maxcount = needed;
    BOOST_TEST(first.call(args).status() == nfsstat4::ok);
    // For its notifications alone, of which there are none.
    args.maxcount = 0;
    answer4 none = first.call(args);
    const auto res = none.good<GETDEVICEINFO4res>();
    BOOST_TEST(res.addr_body.empty());
    BOOST_TEST(res.notification.none());
    // An address of version 6 has another netid.
    address = "2001:db8::7.78.81";
    args.maxcount = 4096;
    answer4 six = first.call(args);
    const auto body = six.good<GETDEVICEINFO4res>().addr_body;
    BOOST_TEST(std::string_view(reinterpret_cast<const char*>(body.data()) + 4, 5) == "rdma6");
}

// --- LAYOUTGET: arguments

BOOST_FIXTURE_TEST_CASE(arguments_that_make_no_sense_are_refused, layout_fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto refused = [&](auto change) {
        LAYOUTGET4args args = asking(file.id, mode::read);
        change(args);
        return get(first, file, args).status;
    };
    BOOST_TEST(refused([](auto& a) { a.iomode = mode::any; }) == nfsstat4::badiomode);
    BOOST_TEST(refused([](auto& a) { a.iomode = mode(7); }) == nfsstat4::badiomode);
    BOOST_TEST(refused([](auto& a) { a.layout_type = layouttype4::nfsv4_1_files; }) ==
               nfsstat4::unknown_layouttype);
    BOOST_TEST(refused([](auto& a) { a.length = 10, a.minlength = 11; }) == nfsstat4::inval);
    BOOST_TEST(refused([](auto& a) { a.length = 0, a.minlength = 0; }) == nfsstat4::inval);
    BOOST_TEST(refused([](auto& a) { a.offset = 2, a.length = UINT64_MAX - 1; }) == nfsstat4::inval);
    BOOST_TEST(refused([](auto& a) { a.offset = 2, a.minlength = UINT64_MAX - 1; }) == nfsstat4::inval);
    BOOST_TEST(refused([](auto& a) { a.offset = 2, a.minlength = UINT64_MAX; }) ==
               nfsstat4::ok); // to the end
    BOOST_TEST(first.call(asking(file.id, mode::read)).status() == nfsstat4::nofilehandle);
    BOOST_TEST(first.call(PUTROOTFH4args(), asking(file.id, mode::read)).status() == nfsstat4::wrong_type);
    BOOST_TEST(first.call(PUTROOTFH4args(), LOOKUP4args{"export"}, asking(file.id, mode::read)).status() ==
               nfsstat4::wrong_type);
}

BOOST_FIXTURE_TEST_CASE(a_layout_that_has_no_room_is_too_big, layout_fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    LAYOUTGET4args args = asking(file.id, mode::read);
    constexpr std::uint32_t needed = 4 + 8 + 8 + 4 + 4 + 4 + 4 + 48; // one layout of one extent
    args.maxcount = needed - 1;
    BOOST_TEST(get(first, file, args).status == nfsstat4::toosmall);
    BOOST_TEST(service->layouts().counts().segments == 0);
    args.maxcount = needed;
    BOOST_TEST(get(first, file, args).status == nfsstat4::ok);
    // The hole before the data takes the one extent that there is room for, and so less is given; if that is not enough, none is.
    const auto holes = make(first, "holes", "");
    BOOST_TEST(first.write(holes, "text", holes.id, block) == nfsstat4::ok);
    args.stateid = holes.id;
    args.minlength = block + 1;
    BOOST_TEST(get(first, holes, args).status == nfsstat4::toosmall);
    args.minlength = block;
    const auto made = get(first, holes, args);
    BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
    BOOST_TEST(made.length == block);
}

BOOST_FIXTURE_TEST_CASE(files_that_have_none_say_so, layout_fixture)
{
    options[1].local_writers = false;
    begin();
    const auto file = make(first, "f", "text");
    address.clear(); // the data server listens nowhere for this client
    BOOST_TEST(get(first, file, asking(file.id, mode::read)).status == nfsstat4::layoutunavailable);
    address = "data";
    // Where that is not known at the moment it may be so later.
    const auto known = std::exchange(
        data_place, [](std::string_view) { return error::from_errno(EMFILE, "where it listens"); });
    BOOST_TEST(get(first, file, asking(file.id, mode::read)).status == nfsstat4::layouttrylater);
    data_place = known;
    // Of an export that has none.
    OPEN4args args = first.creating("f");
    args.share_access |= share4::want_no_delegation;
    answer4 out = first.call(PUTROOTFH4args(), LOOKUP4args{"deep"}, LOOKUP4args{"other"}, args,
                             asking(stateid4::current(), mode::read));
    BOOST_TEST(out.status() == nfsstat4::layoutunavailable);
    // A client that can't be called.
    second_way->is_open = false;
    const auto mine = open(second, "f");
    BOOST_TEST(get(second, mine, asking(mine.id, mode::read)).status == nfsstat4::layoutunavailable);
}

namespace {

struct device_with_local_keys : layout_fixture {
    static loop::options options_of_it()
    {
        loop::options o;
        o.profile.needs_local_keys = true;
        return o;
    }
    device_with_local_keys() : layout_fixture(options_of_it()) {}
};

} // namespace

BOOST_FIXTURE_TEST_CASE(what_is_granted_need_not_be_registered_before, device_with_local_keys)
{
    begin();
    const auto file = make(first, "f", "written by a call");
    const auto made = get(first, file, mode::rw);
    BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
    rdma_peer& p = connect_to(first, made);
    BOOST_TEST(take(p, made.memory(), 0, 17) == "written by a call");
    BOOST_TEST(give_back(first, file, returning(made.id)).status == nfsstat4::ok);
}

// Its keys are of the device with that address. Elsewhere a client is told what is so now.
BOOST_FIXTURE_TEST_CASE(a_client_is_told_the_address_that_its_domain_is_of, device_with_local_keys)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, mode::read);
    address = "elsewhere";
    const auto found = service->find(first.id, made.extents.at(0).device_id);
    BOOST_TEST_REQUIRE(found.client != nullptr);
    BOOST_TEST(service->place_for(found, "peer").value() == "data");
}

BOOST_FIXTURE_TEST_CASE(what_a_device_has_registered_for_layouts_is_bounded, device_with_local_keys)
{
    layout_options.layouts.locked_of_client = 2 * block;
    layout_options.layouts.locked = 3 * block;
    begin();
    std::vector<client4::opened> files;
    for (const char* name : {"a", "b", "c", "d"})
        files.push_back(make(first, name, "text"));
    const auto ask = [&](client4& c, const client4::opened& of) {
        return get(c, of, asking(of.id, mode::read));
    };
    const auto a = ask(first, files[0]);
    BOOST_TEST(a.status == nfsstat4::ok);
    BOOST_TEST(ask(first, files[1]).status == nfsstat4::ok);
    // What the client may have.
    BOOST_TEST(ask(first, files[2]).status == nfsstat4::layouttrylater);
    const auto others_c = open(second, "c");
    const auto others_d = open(second, "d");
    BOOST_TEST(ask(second, others_c).status == nfsstat4::ok);
    // What all may have.
    BOOST_TEST(ask(second, others_d).status == nfsstat4::layouttrylater);
    BOOST_TEST(give_back(first, files[0], returning(a.id)).status == nfsstat4::ok);
    turns();
    BOOST_TEST(ask(second, others_d).status == nfsstat4::ok);
    BOOST_TEST(ask(first, files[0]).status == nfsstat4::layouttrylater);
}

// The device's contexts go next, and nothing may need them any more.
BOOST_FIXTURE_TEST_CASE(the_end_of_a_data_server_takes_all_back, layout_fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, mode::rw);
    rdma_peer& p = connect_to(first, made);
    BOOST_TEST(take(p, made.memory(), 0, 4) == "text");
    bool ended = false;
    tasks.spawn([&]() -> task<void> {
        task<void> ending = data->end();
        co_await ending;
        ended = true;
    });
    turns();
    BOOST_TEST(ended);
    BOOST_TEST(service->layouts().counts().segments == 0);
    BOOST_TEST(data->count().clients == 0u);
    BOOST_TEST(take(p, made.memory(), 0, 4) == "?");
    BOOST_TEST(get(first, file, asking(file.id, mode::rw)).status != nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(clients_reach_memory_by_the_device_they_call_by, layout_fixture)
{
    begin();
    nfs::v4::pnfs::service& s = *service;
    BOOST_TEST(s.way_for("rdma", {}, false) == s.way_for("loop", {}, false));
    BOOST_TEST(s.way_for("tcp", {}, false) == s.way_for("loop", {}, false));
    loop::options o;
    o.name = "other";
    o.profile.grants_stores = false;
    other_device = fabric->make_device(o);
    auto* const by_other =
        s.add_way("rdma", *other_device, [](std::string_view) { return std::string("other"); });
    BOOST_TEST_REQUIRE(by_other != nullptr);
    BOOST_TEST(&s.way_for("rdma", {}, false)->data == by_other);
    BOOST_TEST(&s.way_for("tcp", {}, false)->data == data);
    const std::array<std::string, 2> some = {"tcp", "rdma"};
    BOOST_TEST(&s.way_for("tcp", some, false)->data == by_other);
    BOOST_TEST(s.way_for("tcp", std::span(some).first(1), false) == nullptr);
    BOOST_TEST(s.add_way("third", *other_device, s.way_for("rdma", {}, false)->where) == nullptr);
    // Files that are no memory are for devices that place by calls.
    BOOST_TEST(&s.way_for("rdma", {}, true)->data == data);
    BOOST_TEST(s.way_for("rdma", some, true) == nullptr);
    // A device id leads to its own one.
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, mode::read);
    const auto found = s.find(first.id, made.extents.at(0).device_id);
    BOOST_TEST_REQUIRE(found.client != nullptr);
    BOOST_TEST((found.client == data->known(found.client->id)));
    BOOST_TEST(&found.by->data == data);
    BOOST_TEST(s.connections().clients == 1u);
    BOOST_TEST(by_other->count().clients == 0u);
}

// --- LAYOUTGET: what is given

BOOST_FIXTURE_TEST_CASE(rule_1_a_layout_to_read_tells_data_and_holes, layout_fixture)
{
    begin();
    const auto file = make(first, "f", "");
    BOOST_TEST(first.write(file, "text", file.id, 2 * block + 5) == nfsstat4::ok);
    const auto made = get(first, file, asking(file.id, mode::read, block / 2, all, block));
    BOOST_TEST_REQUIRE(made.extents.size() == 2u);
    BOOST_TEST((made.offset == 0u && made.length == 3 * block)); // around what was asked for
    BOOST_TEST(made.extents[0].state == extent_state::none_data);
    BOOST_TEST((made.extents[0].file_offset == 0u && made.extents[0].length == 2 * block));
    BOOST_TEST((made.extents[0].device_id == deviceid4()));
    BOOST_TEST((made.extents[0].handle == 0u && made.extents[0].storage_offset == 0u));
    BOOST_TEST(made.extents[1].state == extent_state::read_data);
    BOOST_TEST(made.extents[1].file_offset == 2 * block);
    LAYOUTGET4args at_data = asking(made.id, mode::read, 2 * block);
    const auto again = get(first, file, at_data);
    BOOST_TEST_REQUIRE(again.status == nfsstat4::ok);
    rdma_peer& p = connect_to(first, again);
    BOOST_TEST(take(p, made.memory(1), 5, 4) == "text");
    BOOST_TEST(!put(p, made.memory(1), 5, "more")); // to read alone
    BOOST_TEST(first.read(file, file.id, 4) == std::string(4, '\0'));
}

BOOST_FIXTURE_TEST_CASE(rule_2_a_layout_to_write_has_memory_for_each_byte, layout_fixture)
{
    begin();
    const auto file = make(first, "f", "");
    const auto made = get(first, file, asking(file.id, mode::rw, 10, 3 * block, block));
    BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
    BOOST_TEST((made.offset == 0u && made.length == 4 * block));
    for (const pnfs_rdma_extent4& e : made.extents)
        BOOST_TEST(e.state == extent_state::read_write_data);
    BOOST_TEST(size_of(first, file) == 0u); // until LAYOUTCOMMIT says so
}

BOOST_FIXTURE_TEST_CASE(rule_4_fewer_bytes_than_the_minimum_are_none, layout_fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    // To read, only the end of the file may be before it.
    BOOST_TEST(get(first, file, asking(file.id, mode::read, 0, 10 * block, 10 * block)).status ==
               nfsstat4::ok);
    BOOST_TEST(get(first, file, asking(file.id, mode::read, block, all, 1)).status == nfsstat4::badlayout);
    BOOST_TEST(get(first, file, asking(file.id, mode::read, block, all, 0)).status ==
               nfsstat4::layouttrylater);
    // The most that is given at once.
    const std::uint64_t most = layout_options.layouts.bytes;
    BOOST_TEST(get(first, file, asking(file.id, mode::rw, 0, all, most + 1)).status == nfsstat4::badlayout);
    BOOST_TEST(get(first, file, asking(file.id, mode::rw, 0, all, all)).status == nfsstat4::badlayout);
    // More than the back end maps in one go.
    const auto big = get(first, file, asking(file.id, mode::rw, 0, 9 << 20, 9 << 20));
    BOOST_TEST(big.status == nfsstat4::ok);
    BOOST_TEST(big.length >= std::uint64_t(9) << 20);
}

// --- LAYOUTGET: the stateid

BOOST_FIXTURE_TEST_CASE(the_first_layout_is_by_an_open_and_the_next_ones_by_the_layout, layout_fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto one = get(first, file, mode::read);
    BOOST_TEST(one.id.seqid == 1u);
    const auto two = get(first, file, asking(one.id, mode::rw));
    BOOST_TEST_REQUIRE(two.status == nfsstat4::ok);
    BOOST_TEST(two.id.seqid == 2u);
    BOOST_TEST((two.id.other == one.id.other));
    // Calls that run side by side bear one number.
    const auto three = get(first, file, asking(one.id, mode::read));
    BOOST_TEST_REQUIRE(three.status == nfsstat4::ok);
    BOOST_TEST(three.id.seqid == 3u);
    // 0 does not stand for the newest, and a number that was never given is none.
    stateid4 id = three.id;
    id.seqid = 0;
    BOOST_TEST(get(first, file, asking(id, mode::read)).status == nfsstat4::bad_stateid);
    id.seqid = 9;
    BOOST_TEST(get(first, file, asking(id, mode::read)).status == nfsstat4::bad_stateid);
    // Nor is it good for data, nor the client's who does not have it.
    BOOST_TEST(first.write(file, "x", three.id) == nfsstat4::bad_stateid);
    BOOST_TEST(get(second, open(second, "f"), asking(three.id, mode::read)).status == nfsstat4::bad_stateid);
    // A client that has forgotten its layouts begins anew.
    const auto four = get(first, file, asking(file.id, mode::read));
    BOOST_TEST((four.id.other == one.id.other && four.id.seqid == 4u));
    for (const stateid4& reserved : {stateid4::anonymous(), stateid4::read_bypass()})
        BOOST_TEST(get(first, file, asking(reserved, mode::read)).status == nfsstat4::bad_stateid);
}

BOOST_FIXTURE_TEST_CASE(what_is_not_given_takes_no_number, layout_fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto one = get(first, file, asking(file.id, mode::rw, 0, block));
    BOOST_TEST(one.id.seqid == 1u);
    user->uid = 2000; // who may not, as turns out when the range is held
    BOOST_TEST(get(first, file, asking(one.id, mode::rw, 0, all)).status == nfsstat4::access);
    user->uid = 1000;
    BOOST_TEST(service->layouts().counts().segments == 1);
    const auto two = get(first, file, asking(one.id, mode::rw, block, block));
    BOOST_TEST_REQUIRE(two.status == nfsstat4::ok);
    BOOST_TEST(two.id.seqid == 2u);
    // Nor does what is less than was asked for.
    const auto three = get(first, file, asking(two.id, mode::rw, 2 * block));
    BOOST_TEST_REQUIRE(three.status == nfsstat4::ok);
    BOOST_TEST(three.id.seqid == 3u);
    BOOST_TEST(stats().fences.value() == 0);
}

BOOST_FIXTURE_TEST_CASE(an_open_and_its_layout_are_one_call, layout_fixture)
{
    begin();
    OPEN4args args = first.creating("f");
    args.share_access |= share4::want_no_delegation;
    answer4 out = first.call(PUTROOTFH4args(), LOOKUP4args{"export"}, args, GETFH4args(),
                             asking(stateid4::current(), mode::rw), returning(stateid4::current()));
    BOOST_TEST(out.status() == nfsstat4::ok);
    turns();
    BOOST_TEST(service->layouts().counts().granted == 1u);
    BOOST_TEST(service->layouts().counts().segments == 0);
}

BOOST_FIXTURE_TEST_CASE(a_lock_or_a_delegation_is_good_for_a_layout, layout_fixture)
{
    begin();
    const auto file = first.open(first.creating("f"));
    BOOST_TEST_REQUIRE((file.res.delegation.delegation_type == open_delegation_type4::write));
    close(first, file);
    BOOST_TEST(get(first, file, asking(file.res.delegation.stateid, mode::rw)).status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(who_has_the_file_not_open_hears_nothing_of_it, layout_fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto reads = open(second, "f", share4::access_read);
    stateid4 none = file.id;
    none.other[9] ^= std::byte(1);
    for (const std::uint64_t offset : {std::uint64_t(0), 10 * block}) {
        BOOST_TEST(get(first, file, asking(none, mode::read, offset)).status == nfsstat4::bad_stateid);
        BOOST_TEST(get(first, file, asking(none, mode::rw, offset, all, all)).status ==
                   nfsstat4::bad_stateid);
        BOOST_TEST(get(second, reads, asking(reads.id, mode::rw, offset, all, all)).status ==
                   nfsstat4::openmode);
    }
    // Nor is anything made for him.
    BOOST_TEST(data->count().clients == 0u);
    BOOST_TEST(get(first, file, asking(file.id, mode::read)).status == nfsstat4::ok);
    BOOST_TEST(data->count().clients == 1u);
}

// --- LAYOUTGET: who may

BOOST_FIXTURE_TEST_CASE(an_open_to_read_gives_none_to_write, layout_fixture)
{
    begin();
    close(first, make(first, "f", "text"));
    const auto reads = open(first, "f", share4::access_read);
    BOOST_TEST(get(first, reads, asking(reads.id, mode::rw)).status == nfsstat4::openmode);
    BOOST_TEST(get(first, reads, asking(reads.id, mode::read)).status == nfsstat4::ok);
    const auto writes = open(second, "f", share4::access_write);
    BOOST_TEST(get(second, writes, asking(writes.id, mode::read)).status == nfsstat4::openmode);
}

BOOST_FIXTURE_TEST_CASE(rule_19_the_callers_own_rights_count, layout_fixture)
{
    begin();
    const auto file = make(first, "f", "text"); // with mode 0
    attributes values;
    values.mode = 0644;
    values.present.set(attribute::mode);
    const encoded set(values);
    BOOST_TEST(first.call(PUTFH4args{client4::handle_of(file)}, SETATTR4args{file.id, set.raw}).status() ==
               nfsstat4::ok);
    user->uid = 2000; // who did not open it
    BOOST_TEST(get(first, file, asking(file.id, mode::rw)).status == nfsstat4::access);
    BOOST_TEST(get(first, file, asking(file.id, mode::read)).status == nfsstat4::ok);
    user->uid = 1000;
    BOOST_TEST(get(first, file, asking(file.id, mode::rw)).status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(rule_19_an_export_to_read_gives_none_to_write, layout_fixture)
{
    storage::set_attributes set;
    set.mode = 0666;
    const auto creating = [&]() -> task<void> {
        const storage::request me;
        const storage::handle root = files->root();
        auto making = files->create(me, root, "f", storage::create_mode::guarded, set, 0);
        const auto made = co_await making;
        BOOST_REQUIRE(made);
    };
    run_until_complete(*shard, creating());
    options[0].read_only = true;
    begin();
    const auto reads = open(first, "f", share4::access_read);
    BOOST_TEST(get(first, reads, asking(reads.id, mode::rw)).status == nfsstat4::access);
}

// --- LAYOUTCOMMIT

BOOST_FIXTURE_TEST_CASE(what_was_written_beyond_the_end_is_there_once_it_is_committed, layout_fixture)
{
    begin();
    const auto file = make(first, "f", "");
    const auto made = get(first, file, mode::rw);
    rdma_peer& p = connect_to(first, made);
    BOOST_TEST(put(p, made.memory(), 0, "bytes"));
    BOOST_TEST(size_of(first, file) == 0u);
    const auto done = commit(first, file, committing(made.id, 4));
    BOOST_TEST(done.status == nfsstat4::ok);
    BOOST_TEST((done.newsize == 5u));
    BOOST_TEST(first.read(file, file.id) == "bytes");
    // The layout goes on, and so does its number.
    BOOST_TEST(put(p, made.memory(), 1, "xx"));
    const auto same = commit(first, file, committing(made.id, 2));
    BOOST_TEST(same.status == nfsstat4::ok);
    BOOST_TEST((!same.newsize)); // it is not cut
    BOOST_TEST((!commit(first, file, committing(made.id)).newsize));
    BOOST_TEST(first.read(file, file.id) == "bxxes");
}

BOOST_FIXTURE_TEST_CASE(a_commit_without_a_layout_to_write_is_refused, layout_fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto reads = get(first, file, mode::read);
    BOOST_TEST(commit(first, file, committing(reads.id, 1)).status == nfsstat4::badiomode);
    LAYOUTCOMMIT4args elsewhere = committing(reads.id);
    elsewhere.offset = 10 * block;
    elsewhere.length = block;
    BOOST_TEST(commit(first, file, elsewhere).status == nfsstat4::badlayout);
    BOOST_TEST(commit(first, file, committing(file.id, 1)).status == nfsstat4::bad_stateid);
    const auto writes = get(first, file, asking(reads.id, mode::rw, 0, block));
    elsewhere.stateid = writes.id;
    BOOST_TEST(commit(first, file, elsewhere).status == nfsstat4::badlayout);
    BOOST_TEST(commit(first, file, committing(writes.id, 3)).status == nfsstat4::ok);
    BOOST_TEST(commit(second, open(second, "f"), committing(writes.id, 3)).status == nfsstat4::bad_stateid);
}

BOOST_FIXTURE_TEST_CASE(a_commit_is_of_what_the_layout_reaches, layout_fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, asking(file.id, mode::rw, 0, block));
    BOOST_TEST_REQUIRE(made.length == block);
    BOOST_TEST(commit(first, file, committing(made.id, block)).status == nfsstat4::badlayout);
    BOOST_TEST(commit(first, file, committing(made.id, std::uint64_t(1) << 62)).status ==
               nfsstat4::badlayout);
    LAYOUTCOMMIT4args args = committing(made.id);
    const std::array<pnfs_rdma_range4, 1> ranges{{{0, 2 * block}}};
    std::array<std::byte, 64> body{};
    xdr::encoder out(body);
    xdr::codec<pnfs_rdma_layoutupdate4>::encode(out, {std::span<const pnfs_rdma_range4>(ranges)});
    args.update_body = std::span<const std::byte>(body).first(out.size());
    BOOST_TEST(commit(first, file, args).status == nfsstat4::badlayout);
    BOOST_TEST(size_of(first, file) == 4u);
    BOOST_TEST(commit(first, file, committing(made.id, block - 1)).status == nfsstat4::ok);
    BOOST_TEST(size_of(first, file) == block);
}

BOOST_FIXTURE_TEST_CASE(operations_that_are_not_served_say_so, layout_fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, mode::read);
    BOOST_TEST(first.call(GETDEVICELIST4args{layouttype4::rdma, 1, 0, {}}).status() == nfsstat4::notsupp);
    LAYOUTERROR4args errors;
    errors.stateid = made.id;
    BOOST_TEST(first.call(PUTFH4args{client4::handle_of(file)}, errors).status() == nfsstat4::op_illegal);
    minor = 2;
    // The others are in both minor versions.
    BOOST_TEST(get(first, file, asking(made.id, mode::rw)).status == nfsstat4::ok);
}

// RFC 7862 15.6, 15.7: who runs the server hears what its clients met.
BOOST_FIXTURE_TEST_CASE(what_clients_say_of_their_layouts_is_counted, layout_fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, mode::read);
    minor = 2;
    const std::array<device_error4, 3> said{device_error4{made.extents[0].device_id, nfsstat4::nxio, 38},
                                            device_error4{made.extents[0].device_id, nfsstat4::nxio, 38},
                                            device_error4{made.extents[0].device_id, nfsstat4::stale, 25}};
    LAYOUTERROR4args errors;
    errors.length = all;
    errors.stateid = made.id;
    errors.errors = std::span<const device_error4>(said);
    const auto say = [&](client4& c, const auto& args) {
        return c.call(PUTFH4args{client4::handle_of(file)}, args).status();
    };
    const log_lines lines;
    const auto logged = [&] {
        return std::ranges::count_if(lines.all, [](const std::string& line) {
            return line.find("a client failed to reach a file by its layout") != std::string::npos;
        });
    };
    BOOST_TEST(say(first, errors) == nfsstat4::ok);
    const auto& counters = program->counters();
    BOOST_TEST(counters.layout_errors[1].value() == 2u);
    BOOST_TEST(counters.layout_errors[4].value() == 1u);
    BOOST_TEST(logged() == 3);
    for (int i = 0; i < 10; ++i)
        BOOST_TEST(say(first, errors) == nfsstat4::ok);
    BOOST_TEST(logged() <= 5);
    BOOST_TEST(get(first, file, asking(made.id, mode::read)).status == nfsstat4::ok); // it stays
    LAYOUTSTATS4args stats_of;
    stats_of.length = all;
    stats_of.stateid = made.id;
    stats_of.layout_type = layouttype4::rdma;
    stats_of.read = {2, 8192};
    stats_of.write = {1, 10};
    BOOST_TEST(say(first, stats_of) == nfsstat4::ok);
    BOOST_TEST(counters.layout_bytes_read.value() == 8192u);
    BOOST_TEST(counters.layout_bytes_written.value() == 10u);
    // What can't be true is cut short.
    constexpr std::uint64_t most = std::uint64_t(1) << 44;
    stats_of.read.bytes = stats_of.write.bytes = UINT64_MAX;
    BOOST_TEST(say(first, stats_of) == nfsstat4::ok);
    BOOST_TEST(counters.layout_bytes_read.value() == most + 8192u);
    BOOST_TEST(counters.layout_bytes_written.value() == most + 10u);
    // Of a layout that it has, and of nothing else.
    for (const stateid4& id : {file.id, stateid4::anonymous(), stateid4{99, made.id.other}}) {
        errors.stateid = stats_of.stateid = id;
        BOOST_TEST(say(first, errors) == nfsstat4::bad_stateid);
        BOOST_TEST(say(first, stats_of) == nfsstat4::bad_stateid);
    }
    errors.stateid = stats_of.stateid = made.id;
    BOOST_TEST(say(second, errors) == nfsstat4::bad_stateid);
    stats_of.layout_type = layouttype4::scsi;
    BOOST_TEST(say(first, stats_of) == nfsstat4::unknown_layouttype);
    errors.length = 0;
    BOOST_TEST(say(first, errors) == nfsstat4::inval);
    BOOST_TEST(counters.layout_bytes_read.value() == most + 8192u);
}

// CB_RECALL_ANY, before it is refused more.
BOOST_AUTO_TEST_CASE(a_client_near_its_limit_is_asked_for_layouts)
{
    layout_fixture f;
    f.layout_options.layouts.layouts_of_client = 8;
    f.begin();
    const auto take = [&](int i) {
        const std::string name = "f" + std::to_string(i);
        const auto file = f.make(f.first, name, "text");
        return f.get(f.first, file, f.asking(file.id, mode::read)).status;
    };
    for (int i = 0; i < 7; ++i)
        BOOST_TEST(take(i) == nfsstat4::ok);
    f.turns();
    BOOST_TEST(f.first_way->calls.empty());
    BOOST_TEST(take(7) == nfsstat4::ok);
    f.turns();
    BOOST_TEST_REQUIRE(f.first_way->calls.size() == 1u);
    const called_client::heard& told = f.first_way->calls[0];
    BOOST_TEST((told.operation == nfs_cb_opnum4::recall_any));
    BOOST_TEST(told.keep == 6u);
    bitmap4 layouts_alone;
    layouts_alone.set(rca4_type::other_layout_min);
    BOOST_TEST((told.kinds == layouts_alone));
    // Once a lease: it may need all of them.
    BOOST_TEST(take(8) == nfsstat4::layouttrylater);
    f.turns();
    BOOST_TEST(f.first_way->calls.size() == 1u);
    f.pass(f.commons->state.options().lease - 10s, 1s);
    (void)f.first.call();
    f.pass(20s, 1s);
    BOOST_TEST(take(9) == nfsstat4::layouttrylater);
    f.turns();
    BOOST_TEST(f.first_way->calls.size() == 2u);
    BOOST_TEST(f.second_way->calls.empty());
}

// Who has all that it may have gets no more by another name, and others get theirs.
BOOST_AUTO_TEST_CASE(a_host_of_many_clients_leaves_layouts_to_other_hosts)
{
    layout_fixture f;
    f.layout_options.layouts.layouts = 8;
    f.state_limits.peer_percent = 50;
    f.start_layouts();
    f.connect(f.first);
    client4 third(f, "third");
    f.connect(third);
    f.from.address = "127.0.0.2";
    f.way = f.second_way;
    f.connect(f.second);
    const auto take = [&](client4& c, int i) {
        const std::string name = "f" + std::to_string(i);
        const auto file = f.make(c, name, "text");
        return f.get(c, file, f.asking(file.id, mode::read)).status;
    };
    for (int i = 0; i < 4; ++i)
        BOOST_TEST(take(i % 2 == 0 ? f.first : third, i) == nfsstat4::ok);
    for (int i = 4; i < 10; ++i)
        BOOST_TEST(take(i % 2 == 0 ? f.first : third, i) == nfsstat4::layouttrylater);
    for (int i = 10; i < 14; ++i)
        BOOST_TEST(take(f.second, i) == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(rule_10_a_commit_that_makes_no_sense_is_refused, layout_fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, mode::rw);
    const auto refused = [&](auto change) {
        LAYOUTCOMMIT4args args = committing(made.id);
        args.offset = block;
        args.length = block;
        change(args);
        return commit(first, file, args).status;
    };
    BOOST_TEST(refused([](auto& a) { a.length = 0; }) == nfsstat4::inval);
    BOOST_TEST(refused([](auto& a) { a.length = UINT64_MAX - 1; }) == nfsstat4::inval);
    BOOST_TEST(refused([](auto& a) { a.last_write_offset = block - 1; }) == nfsstat4::inval);
    BOOST_TEST(refused([](auto& a) { a.last_write_offset = 2 * block; }) == nfsstat4::inval);
    BOOST_TEST(refused([](auto& a) { a.length = UINT64_MAX, a.last_write_offset = UINT64_MAX - 1; }) ==
               nfsstat4::fbig);
    BOOST_TEST(refused([](auto& a) { a.layout_type = layouttype4::scsi; }) == nfsstat4::unknown_layouttype);
    BOOST_TEST(refused([](auto& a) { a.reclaim = true; }) == nfsstat4::no_grace);
    // The list: no bytes are no list, and ranges are of whole blocks.
    BOOST_TEST(refused([](auto& a) { a.update_body = {}; }) == nfsstat4::badxdr);
    const auto of_ranges = [&](std::vector<pnfs_rdma_range4> ranges) {
        std::array<std::byte, 128> body{};
        xdr::encoder out(body);
        xdr::codec<pnfs_rdma_layoutupdate4>::encode(out, {std::span<const pnfs_rdma_range4>(ranges)});
        const auto said = std::span<const std::byte>(body).first(out.size());
        return refused([said](auto& a) { a.update_body = said; });
    };
    BOOST_TEST(of_ranges({{block + 1, block}}) == nfsstat4::inval);
    BOOST_TEST(of_ranges({{block, 512}}) == nfsstat4::inval);
    BOOST_TEST(of_ranges({{2 * block, block}, {block, block}}) == nfsstat4::inval);
    BOOST_TEST(of_ranges({{block, block}, {2 * block, block}}) ==
               nfsstat4::inval); // beyond what is committed
    BOOST_TEST(of_ranges({{0, 2 * block}}) == nfsstat4::inval);
    BOOST_TEST(of_ranges({{block, block}}) == nfsstat4::ok);
    BOOST_TEST(size_of(first, file) == 4u);
}

BOOST_FIXTURE_TEST_CASE(a_commit_sets_no_time_back, layout_fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, mode::rw);
    const auto modified = [&] {
        GETATTR4args args;
        args.attr_request.set(attribute::time_modify);
        args.attr_request.set(attribute::change);
        answer4 out = first.call(PUTFH4args{client4::handle_of(file)}, args);
        out.good<PUTFH4res>();
        attributes values;
        BOOST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
        return std::pair(values.time_modify, values.change);
    };
    const auto before = modified();
    LAYOUTCOMMIT4args args = committing(made.id);
    args.time_modify = nfstime4{1, 0};
    BOOST_TEST(commit(first, file, args).status == nfsstat4::ok);
    const auto after = modified();
    BOOST_TEST((after.first.seconds >= before.first.seconds));
    BOOST_TEST((after.second != before.second));
}

// --- LAYOUTRETURN

BOOST_FIXTURE_TEST_CASE(a_layout_is_returned_in_part_or_as_a_whole, layout_fixture)
{
    begin();
    const auto file = make(first, "f", std::string(3 * block, 'x').substr(0, 1000));
    const auto one = get(first, file, asking(file.id, mode::rw, 0, block));
    const auto two = get(first, file, asking(one.id, mode::rw, block, block));
    BOOST_TEST_REQUIRE((one.status == nfsstat4::ok && two.status == nfsstat4::ok));
    rdma_peer& p = connect_to(first, one);
    const auto part = give_back(first, file, returning(two.id, mode::any, 0, block));
    BOOST_TEST_REQUIRE((part.status == nfsstat4::ok && part.stateid.has_value()));
    BOOST_TEST(part.stateid->seqid == 3u);
    turns();
    BOOST_TEST(service->layouts().counts().segments == 1);
    BOOST_TEST(put(p, two.memory(), 0, "still"));
    // What there is none of can be returned.
    const auto none = give_back(first, file, returning(*part.stateid, mode::read));
    BOOST_TEST((none.status == nfsstat4::ok && none.stateid.has_value()));
    const auto rest = give_back(first, file, returning(*none.stateid, mode::rw));
    BOOST_TEST((rest.status == nfsstat4::ok && !rest.stateid));
    turns();
    BOOST_TEST(service->layouts().counts().segments == 0);
    BOOST_TEST(give_back(first, file, returning(*none.stateid)).status == nfsstat4::bad_stateid);
}

BOOST_FIXTURE_TEST_CASE(a_return_that_makes_no_sense_is_refused, layout_fixture)
{
    begin();
    const auto file = make(first, "f", "text");
    const auto made = get(first, file, mode::rw);
    const auto refused = [&](auto change) {
        LAYOUTRETURN4args args = returning(made.id);
        change(args);
        return give_back(first, file, args).status;
    };
    static constexpr std::array<std::byte, 4> body{};
    BOOST_TEST(refused([](auto& a) { a.layoutreturn.stateid.seqid = 0; }) == nfsstat4::bad_stateid);
    BOOST_TEST(refused([&](auto& a) { a.layoutreturn.stateid = file.id; }) == nfsstat4::bad_stateid);
    BOOST_TEST(refused([](auto& a) { a.layoutreturn.stateid = stateid4::anonymous(); }) ==
               nfsstat4::bad_stateid);
    BOOST_TEST(refused([](auto& a) { a.iomode = mode(4); }) == nfsstat4::badiomode);
    BOOST_TEST(refused([](auto& a) { a.iomode = mode(0); }) == nfsstat4::badiomode);
    BOOST_TEST(refused([](auto& a) { a.layout_type = layouttype4::scsi; }) == nfsstat4::unknown_layouttype);
    BOOST_TEST(refused([](auto& a) { a.layoutreturn.length = 0; }) == nfsstat4::inval);
    BOOST_TEST(refused([](auto& a) { a.layoutreturn.offset = 2, a.layoutreturn.length = UINT64_MAX - 1; }) ==
               nfsstat4::inval);
    BOOST_TEST(refused([](auto& a) { a.layoutreturn.body = std::span<const std::byte>(body); }) ==
               nfsstat4::badxdr);
    BOOST_TEST(refused([](auto& a) { a.reclaim = true; }) == nfsstat4::no_grace);
    for (const auto what : {layoutreturn_type4::fsid, layoutreturn_type4::all}) {
        LAYOUTRETURN4args args = returning(what);
        args.reclaim = true;
        BOOST_TEST(give_back(first, file, args).status == nfsstat4::inval);
    }
    BOOST_TEST(first.call(returning(layoutreturn_type4::fsid)).status() == nfsstat4::nofilehandle);
    BOOST_TEST(first.call(returning(made.id)).status() == nfsstat4::nofilehandle);
    BOOST_TEST(service->layouts().counts().segments == 1);
    BOOST_TEST(give_back(first, file, returning(made.id)).status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(all_of_a_file_system_or_of_the_server_is_returned_at_once, layout_fixture)
{
    options[1].pnfs = true;
    options[1].local_writers = false;
    begin();
    const auto open_other = [&] {
        OPEN4args args = first.creating("g");
        args.share_access |= share4::want_no_delegation;
        return args;
    };
    const auto f = make(first, "f", "text");
    (void)get(first, f, mode::rw);
    const auto h = make(first, "h", "text");
    (void)get(first, h, mode::read);
    BOOST_TEST(first
                   .call(PUTROOTFH4args(), LOOKUP4args{"deep"}, LOOKUP4args{"other"}, open_other(),
                         asking(stateid4::current(), mode::rw))
                   .status() == nfsstat4::ok);
    (void)get(second, open(second, "f"), mode::read);
    const auto segments = [&] {
        turns();
        return service->layouts().counts().segments;
    };
    BOOST_TEST(segments() == 4);
    // Those to read alone, of the one file system.
    const auto some = give_back(first, f, returning(layoutreturn_type4::fsid, mode::read));
    BOOST_TEST((some.status == nfsstat4::ok && !some.stateid));
    BOOST_TEST(segments() == 3);
    BOOST_TEST(give_back(first, f, returning(layoutreturn_type4::fsid)).status == nfsstat4::ok);
    BOOST_TEST(segments() == 2);
    BOOST_TEST(first.call(returning(layoutreturn_type4::all)).status() == nfsstat4::ok);
    BOOST_TEST(segments() == 1);                                                         // the other client's
    BOOST_TEST(first.call(returning(layoutreturn_type4::all)).status() == nfsstat4::ok); // of nothing
}

BOOST_AUTO_TEST_SUITE_END()
