// SPDX-License-Identifier: Apache-2.0
// Snapshots and layouts: what is recalled for a snapshot, and copy-on-write by a client (draft-hellwig-nfsv4-rdma-layout-00).
#include "nfs4_layout_clients.hpp"

#include <verbena/plugins/memfs.hpp>
#include <verbena/protocols/nfs/server/v3/server.hpp>
#include <verbena/protocols/nfs/wire/v3/codec.hpp>

#include <array>

BOOST_AUTO_TEST_SUITE(nfs4_snapshots_test)

using namespace verbena;
using namespace verbena::test;
using mode = layoutiomode4;
namespace v3 = nfs::v3;

namespace {

/// Two clients of an export with snapshots.
struct fixture : layout_fixture {
    fixture() { make_snapshots(memfs::memfs_options().max_bytes); }
    ~fixture()
    {
        peers.clear();
        tasks.request_stop();
        for (int i = 0; i < 100 && tasks.live() != 0; ++i) {
            shard->turn();
            clock.advance(100ms);
        }
        program.reset();
        old.reset();
        commons.reset();
    }
    /// A call of version 3 that is still running when this returns, unless nothing holds it up.
    template<class Arguments>
    std::shared_ptr<memory_call> begin3(v3::procedure what, const Arguments& args)
    {
        if (!old) {
            old.emplace(exports, key, &commons->state, &home);
            dispatcher->add(*old);
        }
        auto c = std::make_shared<memory_call>(pool, from);
        xdr::encoder out = c->begin(100003, 3, static_cast<std::uint32_t>(what), &*user);
        encode(out, args);
        c->end(out);
        tasks.spawn([this, c]() -> task<void> {
            auto dispatching = dispatcher->dispatch(*c);
            (void)co_await dispatching;
            c->is_done = true;
        });
        turns();
        return c;
    }
    template<class Results>
    static v3::nfsstat3 status3(memory_call& c)
    {
        BOOST_TEST_REQUIRE(c.is_done);
        Results res;
        xdr::decoder in = c.reply();
        BOOST_REQUIRE(c.header_of_reply.success());
        decode(in, res);
        return res.status;
    }
    v3::nfs_fh3 place3()
    {
        answer4 out =
            second.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{".snapshot"}, GETFH4args());
        out.good<PUTROOTFH4res>();
        out.good<LOOKUP4res>();
        out.good<LOOKUP4res>();
        const auto handle = out.good<GETFH4res>();
        v3::nfs_fh3 wire;
        BOOST_REQUIRE(wire.assign(handle.object));
        return wire;
    }
    static CREATE4args directory(std::string_view name)
    {
        CREATE4args args;
        args.objtype.type = nfs_ftype4::dir;
        args.objname = name;
        return args;
    }
    std::shared_ptr<memory_call> begin_taking(client4& c, std::string_view name)
    {
        return called_fixture::begin(c.sequence(1), PUTROOTFH4args(), LOOKUP4args{"export"},
                                     LOOKUP4args{".snapshot"}, directory(name));
    }
    std::shared_ptr<memory_call> begin_ending(client4& c, std::string_view name)
    {
        return called_fixture::begin(c.sequence(1), PUTROOTFH4args(), LOOKUP4args{"export"},
                                     LOOKUP4args{".snapshot"}, REMOVE4args{name});
    }
    // By another slot than what is called meanwhile.
    template<class Args>
    std::shared_ptr<memory_call> begin_of(client4& c, const client4::opened& file, const Args& args)
    {
        return called_fixture::begin(c.sequence(1), PUTFH4args{client4::handle_of(file)}, args);
    }
    static nfsstat4 status_of(memory_call& c)
    {
        BOOST_TEST_REQUIRE(c.is_done);
        return answer_of(c).status();
    }
    nfsstat4 take_snapshot(client4& c, std::string_view name) { return status_of(*begin_taking(c, name)); }
    nfsstat4 end_snapshot(client4& c, std::string_view name) { return status_of(*begin_ending(c, name)); }
    client4::opened open_kept(client4& c, std::string_view snapshot, std::string_view name,
                              std::uint32_t access = share4::access_read)
    {
        answer4 out =
            c.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{".snapshot"}, LOOKUP4args{snapshot},
                   c.opening(name, access | share4::want_no_delegation), GETFH4args());
        client4::opened made;
        made.status = out.status();
        if (made.status != nfsstat4::ok)
            return made;
        out.good<PUTROOTFH4res>();
        for (int i = 0; i < 3; ++i)
            out.good<LOOKUP4res>();
        made.id = out.good<OPEN4res>().stateid;
        const auto handle = out.good<GETFH4res>();
        made.handle.assign(handle.object.begin(), handle.object.end());
        return made;
    }
    /// A file of `blocks` blocks, each with its own letter, that a snapshot has as well.
    client4::opened make_kept(client4& c, std::string_view name, unsigned blocks)
    {
        const auto file = make(c, name, "");
        for (unsigned i = 0; i < blocks; ++i)
            BOOST_TEST_REQUIRE(c.write(file, std::string(block, char('a' + i)), file.id, i * block) ==
                               nfsstat4::ok);
        BOOST_TEST_REQUIRE(take_snapshot(c, std::string("of ") += name) == nfsstat4::ok);
        return file;
    }
    static LAYOUTCOMMIT4args filling(const stateid4& id, std::span<std::byte> memory, std::uint64_t offset,
                                     std::uint64_t length, std::optional<std::uint64_t> last = std::nullopt)
    {
        LAYOUTCOMMIT4args args = committing(id, last);
        const pnfs_rdma_range4 range{offset, length};
        xdr::encoder out(memory);
        xdr::codec<pnfs_rdma_layoutupdate4>::encode(out, {std::span<const pnfs_rdma_range4>(&range, 1)});
        args.update_body = std::span<const std::byte>(memory).first(out.size());
        return args;
    }
    std::string read_at(client4& c, const client4::opened& file, std::uint64_t offset, std::uint32_t count)
    {
        answer4 out = c.call(PUTFH4args{client4::handle_of(file)}, READ4args{file.id, offset, count});
        if (out.status() != nfsstat4::ok)
            return to_string(out.status());
        out.good<PUTFH4res>();
        const auto res = out.good<READ4res>();
        return {reinterpret_cast<const char*>(res.data.inline_bytes.data()), res.data.inline_bytes.size()};
    }
    std::uint64_t held() { return memfs::snapshot_counts_of(*snapshots).held_bytes; }
    std::uint64_t free_bytes()
    {
        turns();
        std::uint64_t bytes = 0;
        const auto asking_it = [&]() -> task<void> {
            const storage::request me;
            const storage::handle root = snapshots->root();
            auto looking = snapshots->statfs(me, root);
            const auto space = co_await looking;
            BOOST_REQUIRE(space);
            bytes = space->free_bytes;
        };
        run_until_complete(*shard, asking_it());
        return bytes;
    }
    std::int64_t segments()
    {
        turns();
        return service->layouts().counts().segments;
    }
    void begin(std::uint64_t most_bytes)
    {
        make_snapshots(most_bytes);
        layout_fixture::begin();
    }
    using layout_fixture::begin;
    void make_snapshots(std::uint64_t most_bytes)
    {
        memfs::memfs_options o;
        o.root_mode = 0777;
        o.max_bytes = most_bytes;
        o.snapshots = true;
        snapshots = std::move(*memfs::open_memfs(o, lane));
        options[0].backend = snapshots.get();
    }
    void rest() { pass(commons->state.options().rest_after_recall * 2); }
    std::unique_ptr<storage::file_backend> snapshots;
    std::optional<v3::server> old;
};

} // namespace

// --- Taking one

BOOST_FIXTURE_TEST_CASE(all_layouts_are_recalled_before_a_snapshot, fixture)
{
    begin();
    const auto f = make(first, "f", "text"), g = make(second, "g", "more");
    const auto one = get(first, f, mode::rw);
    const auto two = get(second, g, mode::read);
    rdma_peer& p = connect_to(first, one);
    const auto taking = begin_taking(second, "s");
    turns();
    BOOST_TEST(!taking->is_done);
    BOOST_TEST((first_way->calls.size() == 1u && second_way->calls.size() == 1u)); // all at once
    // What lands before the layout is back is in the snapshot; no layout is given.
    BOOST_TEST(put(p, one.memory(), 0, "last"));
    BOOST_TEST(commit(first, f, committing(one.id, 3)).status == nfsstat4::ok);
    const auto h = make(first, "h", "text");
    BOOST_TEST(get(first, h, asking(h.id, mode::read)).status == nfsstat4::layouttrylater);
    BOOST_TEST(give_back(first, f, returning(first_way->calls[0].id)).status == nfsstat4::ok);
    BOOST_TEST(give_back(second, g, returning(second_way->calls[0].id)).status == nfsstat4::ok);
    pass(100ms);
    BOOST_TEST(status_of(*taking) == nfsstat4::ok);
    BOOST_TEST(!put(p, one.memory(), 0, "lost"));
    BOOST_TEST(first.write(f, "next") == nfsstat4::ok);
    BOOST_TEST(read_at(second, open_kept(second, "s", "f"), 0, 10) == "last");
    rest();
    BOOST_TEST(get(first, f, asking(f.id, mode::rw)).status == nfsstat4::ok);
    BOOST_TEST(two.status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(a_snapshot_waits_for_a_bounded_time, fixture)
{
    begin();
    const auto f = make(first, "f", "text");
    const auto one = get(first, f, mode::rw);
    rdma_peer& p = connect_to(first, one);
    const auto taking = begin_taking(second, "s");
    pass(2s);
    BOOST_TEST(status_of(*taking) == nfsstat4::delay);
    // A client that never answers loses its layout, and then there is a snapshot.
    BOOST_TEST(put(p, one.memory(), 0, "last"));
    for (int i = 0; i < 10; ++i) {
        pass(10s, 1s);
        (void)first.call();
        (void)second.call();
    }
    BOOST_TEST(segments() == 0);
    BOOST_TEST(take_snapshot(second, "s") == nfsstat4::ok);
    BOOST_TEST(!put(p, one.memory(), 0, "lost"));
    BOOST_TEST(read_at(second, open_kept(second, "s", "f"), 0, 10) == "last");
}

BOOST_FIXTURE_TEST_CASE(version_3_takes_snapshots_and_ends_them, fixture)
{
    begin();
    const auto f = make(first, "f", "text");
    (void)get(first, f, mode::rw);
    const v3::nfs_fh3 place = place3();
    v3::MKDIR3args making;
    making.where = {place, "s"};
    auto taking = begin3(v3::procedure::mkdir, making);
    BOOST_TEST(!taking->is_done);
    pass(2s);
    BOOST_TEST((status3<v3::MKDIR3res>(*taking) == v3::nfsstat3::jukebox));
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    BOOST_TEST(give_back(first, f, returning(first_way->calls[0].id)).status == nfsstat4::ok);
    turns();
    taking = begin3(v3::procedure::mkdir, making);
    BOOST_TEST((status3<v3::MKDIR3res>(*taking) == v3::nfsstat3::ok));
    BOOST_TEST(read_at(second, open_kept(second, "s", "f"), 0, 10) == "text");
    v3::CREATE3args creating;
    creating.where = {place, "file"};
    const auto refused = begin3(v3::procedure::create, creating);
    BOOST_TEST((status3<v3::CREATE3res>(*refused) == v3::nfsstat3::rofs));
    v3::RMDIR3args ending;
    ending.object = {place, "s"};
    const auto ended = begin3(v3::procedure::rmdir, ending);
    BOOST_TEST((status3<v3::RMDIR3res>(*ended) == v3::nfsstat3::ok));
    BOOST_TEST(open_kept(second, "s", "f").status == nfsstat4::noent);
}

BOOST_FIXTURE_TEST_CASE(a_snapshot_that_is_refused_recalls_nothing, fixture)
{
    begin();
    const auto f = make(first, "f", "text");
    BOOST_TEST(take_snapshot(second, "s") == nfsstat4::ok);
    (void)get(first, f, mode::rw);
    BOOST_TEST(take_snapshot(second, "s") == nfsstat4::exist);
    BOOST_TEST(end_snapshot(second, "other") == nfsstat4::noent);
    turns();
    BOOST_TEST(first_way->calls.empty());
    BOOST_TEST(segments() == 1);
}

BOOST_FIXTURE_TEST_CASE(files_of_a_snapshot_are_read_by_layouts_and_not_written, fixture)
{
    begin();
    const auto f = make_kept(first, "f", 2);
    BOOST_TEST(open_kept(first, "of f", "f", share4::access_both).status == nfsstat4::rofs);
    const auto kept = open_kept(first, "of f", "f");
    const auto made = get(first, kept, mode::read);
    rdma_peer& p = connect_to(first, made);
    BOOST_TEST(made.extents.at(0).state == extent_state::read_data);
    BOOST_TEST(held() == 0u); // shared with the file
    BOOST_TEST(first.write(f, "changed") == nfsstat4::ok);
    BOOST_TEST(take(p, made.memory(), 0, 7) == "aaaaaaa");
    BOOST_TEST(held() == block);
    BOOST_TEST(!put(p, made.memory(), 0, "no"));
    BOOST_TEST(get(first, kept, asking(kept.id, mode::rw)).status != nfsstat4::ok);
    // Its end recalls it, as a removal does.
    const auto ending = begin_ending(second, "of f");
    turns();
    BOOST_TEST(!ending->is_done);
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    BOOST_TEST(give_back(first, kept, returning(first_way->calls[0].id)).status == nfsstat4::ok);
    turns();
    BOOST_TEST(status_of(*ending) == nfsstat4::ok);
    BOOST_TEST(held() == block); // the open keeps the file
    close(first, kept);
    turns();
    BOOST_TEST(held() == 0u);
}

BOOST_FIXTURE_TEST_CASE(no_layout_of_a_snapshot_is_given_while_it_ends, fixture)
{
    begin();
    (void)make(first, "g", "text");
    (void)make_kept(first, "f", 1);
    const auto held = open_kept(first, "of f", "f"), asked = open_kept(second, "of f", "g");
    (void)get(first, held, mode::read);
    const auto ending = begin_ending(second, "of f");
    BOOST_TEST(!ending->is_done);
    BOOST_TEST(get(second, asked, asking(asked.id, mode::read)).status == nfsstat4::layouttrylater);
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    BOOST_TEST(give_back(first, held, returning(first_way->calls[0].id)).status == nfsstat4::ok);
    turns();
    BOOST_TEST(status_of(*ending) == nfsstat4::ok);
    BOOST_TEST(second_way->calls.empty());
}

// It is no entry of the root, and nothing is made in its place.
BOOST_FIXTURE_TEST_CASE(no_file_is_created_in_the_place_of_the_directory_of_snapshots, fixture)
{
    begin();
    BOOST_TEST(first.open(first.creating(".snapshot")).status == nfsstat4::isdir); // it is looked up first
    for (const createmode4 how : {createmode4::guarded, createmode4::exclusive4_1})
        BOOST_TEST(first.open(first.creating(".snapshot", how)).status == nfsstat4::exist);
    v3::nfs_fh3 root;
    answer4 out = second.call(PUTROOTFH4args(), LOOKUP4args{"export"}, GETFH4args());
    out.good<PUTROOTFH4res>();
    out.good<LOOKUP4res>();
    const auto handle = out.good<GETFH4res>();
    BOOST_REQUIRE(root.assign(handle.object));
    for (const v3::createmode3 how :
         {v3::createmode3::unchecked, v3::createmode3::guarded, v3::createmode3::exclusive}) {
        v3::CREATE3args creating;
        creating.where = {root, ".snapshot"};
        creating.mode = how;
        const auto refused = begin3(v3::procedure::create, creating);
        BOOST_TEST((status3<v3::CREATE3res>(*refused) == v3::nfsstat3::exist));
    }
}

// There is room for no more copies: READ needs none.
BOOST_FIXTURE_TEST_CASE(a_layout_to_read_that_takes_more_room_than_there_is_is_none, fixture)
{
    begin(1 << 20);
    const auto f = make_kept(first, "f", 4);
    const auto filler = make(first, "filler", "");
    for (unsigned i = 0; first.write(filler, std::string(block, 'x'), filler.id, i * block) == nfsstat4::ok;)
        ++i;
    BOOST_TEST(get(first, f, asking(f.id, mode::read, 0, block)).status == nfsstat4::layoutunavailable);
    BOOST_TEST(get(first, f, asking(f.id, mode::rw, 0, block)).status == nfsstat4::nospc);
    BOOST_TEST(read_at(first, f, 0, 3) == "aaa");
    BOOST_TEST(end_snapshot(first, "of f") == nfsstat4::ok);
    rest();
    BOOST_TEST(get(first, f, asking(f.id, mode::read, 0, block)).status == nfsstat4::ok);
}

// Else who takes snapshots one after the other, or is refused each time, keeps everybody from layouts.
BOOST_FIXTURE_TEST_CASE(files_get_no_rest_behind_a_recall_for_a_snapshot, fixture)
{
    begin();
    const auto f = make(first, "f", "text");
    (void)get(first, f, mode::rw);
    const auto taking = begin_taking(second, "s");
    turns();
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    BOOST_TEST(give_back(first, f, returning(first_way->calls[0].id)).status == nfsstat4::ok);
    pass(100ms);
    BOOST_TEST(status_of(*taking) == nfsstat4::ok);
    BOOST_TEST(get(first, f, asking(f.id, mode::rw)).status == nfsstat4::ok);
}

// --- Copy-on-write by the client

BOOST_FIXTURE_TEST_CASE(rule_2_shared_bytes_come_as_read_data_under_invalid_data, fixture)
{
    begin();
    const auto f = make_kept(first, "f", 3);
    BOOST_TEST(first.write(f, "own", f.id, block) == nfsstat4::ok); // from then on the file's own
    const auto made = get(first, f, asking(f.id, mode::rw, 0, 4 * block));
    BOOST_TEST_REQUIRE(made.extents.size() == 6u);
    const auto& e = made.extents;
    BOOST_TEST((made.offset == 0u && made.length == 4 * block));
    for (const std::size_t at : {0u, 3u}) {
        BOOST_TEST((e[at].state == extent_state::read_data && e[at + 1].state == extent_state::invalid_data));
        BOOST_TEST((e[at].file_offset == e[at + 1].file_offset && e[at].length == e[at + 1].length));
        BOOST_TEST((e[at].handle != e[at + 1].handle));
    }
    BOOST_TEST((e[2].state == extent_state::read_write_data && e[5].state == extent_state::read_write_data));
    rdma_peer& p = connect_to(first, made);
    BOOST_TEST(take(p, made.memory(0), 0, 3) == "aaa");
    // Memory that held other bytes before is zeroed before it is granted.
    BOOST_TEST(take(p, made.memory(1), 0, block) == std::string(block, '\0'));
    BOOST_TEST(take(p, made.memory(2), 0, 4) == "ownb");
    BOOST_TEST(take(p, made.memory(3), 0, 3) == "ccc");
    // The old bytes can't be written.
    BOOST_TEST(!put(p, made.memory(0), 0, "no"));
    BOOST_TEST(read_at(second, open_kept(second, "of f", "f"), 0, 3) == "aaa");
}

BOOST_FIXTURE_TEST_CASE(memory_that_was_used_before_is_zeros_when_it_is_granted, fixture)
{
    begin();
    const auto used = make(first, "used", "");
    BOOST_TEST(first.write(used, std::string(block, 's'), used.id) == nfsstat4::ok);
    const auto f = make_kept(first, "f", 1);
    BOOST_TEST(end_snapshot(first, "of f") == nfsstat4::ok);
    close(first, used);
    answer4 gone = first.call(PUTROOTFH4args(), LOOKUP4args{"export"}, REMOVE4args{"used"});
    BOOST_TEST(gone.status() == nfsstat4::ok);
    BOOST_TEST(take_snapshot(first, "again") == nfsstat4::ok);
    const auto made = get(first, f, asking(f.id, mode::rw, 0, block));
    BOOST_TEST_REQUIRE(made.extents.size() == 2u);
    rdma_peer& p = connect_to(first, made);
    BOOST_TEST(take(p, made.memory(1), 0, block) == std::string(block, '\0'));
}

// With one the same bytes are READ_DATA beneath INVALID_DATA, as above.
BOOST_FIXTURE_TEST_CASE(rule_7_without_a_minimum_all_can_be_written_as_it_is, fixture)
{
    begin();
    const auto f = make_kept(first, "f", 3);
    BOOST_TEST(first.write(f, "own", f.id, block) == nfsstat4::ok);
    const auto made = get(first, f, asking(f.id, mode::rw, 0, 3 * block, 0));
    BOOST_TEST_REQUIRE(!made.extents.empty());
    BOOST_TEST((made.offset == 0u && made.length == 3 * block));
    for (const pnfs_rdma_extent4& e : made.extents)
        BOOST_TEST(e.state == extent_state::read_write_data);
    rdma_peer& p = connect_to(first, made);
    BOOST_TEST(put(p, made.memory(), 0, "new"));
    BOOST_TEST(read_at(first, f, 0, 4) == "newa");
    BOOST_TEST(read_at(second, open_kept(second, "of f", "f"), 0, 4) == "aaaa");
}

// Memory that is no part of the file goes with the fence, and so not before the layout is back.
BOOST_FIXTURE_TEST_CASE(rule_14_invalid_blocks_behind_a_new_end_are_freed_after_their_recall, fixture)
{
    begin();
    const auto f = make_kept(first, "f", 3);
    const std::uint64_t before = free_bytes();
    const auto made = get(first, f, asking(f.id, mode::rw, 0, 3 * block));
    BOOST_TEST_REQUIRE(made.extents.size() == 2u);
    BOOST_TEST(made.extents[1].state == extent_state::invalid_data);
    BOOST_TEST(free_bytes() == before - 3 * block);
    rdma_peer& p = connect_to(first, made);
    attributes values;
    values.size = block;
    values.present.set(attribute::size);
    const encoded size(values);
    const auto mine = open(second, "f");
    const auto cutting = begin_of(second, mine, SETATTR4args{mine.id, size.raw});
    turns();
    BOOST_TEST(!cutting->is_done);
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    BOOST_TEST((first_way->calls[0].operation == nfs_cb_opnum4::layoutrecall));
    BOOST_TEST(put(p, made.memory(1), 2 * block, "behind the end to be"));
    BOOST_TEST(take(p, made.memory(1), 2 * block, 6) == "behind");
    BOOST_TEST(free_bytes() == before - 3 * block);
    BOOST_TEST(give_back(first, f, returning(first_way->calls[0].id)).status == nfsstat4::ok);
    turns();
    BOOST_TEST(status_of(*cutting) == nfsstat4::ok);
    BOOST_TEST(free_bytes() == before);
    BOOST_TEST(!put(p, made.memory(1), 2 * block, "lost"));
    BOOST_TEST(size_of(second, f) == block);
}

BOOST_FIXTURE_TEST_CASE(rule_10_what_is_committed_is_the_files_and_the_rest_is_dropped, fixture)
{
    begin();
    const auto f = make_kept(first, "f", 3);
    const auto made = get(first, f, asking(f.id, mode::rw, 0, 3 * block));
    BOOST_TEST_REQUIRE(made.extents.size() >= 2u);
    rdma_peer& p = connect_to(first, made);
    BOOST_TEST(put(p, made.memory(1), 0, std::string(block, 'A')));
    BOOST_TEST(put(p, made.memory(1), block, std::string(block, 'B')));
    BOOST_TEST(read_at(second, open(second, "f"), 0, 3) == "aaa"); // until it is committed
    std::array<std::byte, 64> body{};
    BOOST_TEST(commit(first, f, filling(made.id, body, block, block, 2 * block - 1)).status == nfsstat4::ok);
    BOOST_TEST(read_at(first, f, block - 2, 4) == "aaBB");
    BOOST_TEST(held() == block);
    // From then on it is the file's own memory, by the same key.
    BOOST_TEST(put(p, made.memory(1), block, "CC"));
    BOOST_TEST(read_at(first, f, block, 3) == "CCB");
    BOOST_TEST(take(p, made.memory(0), block, 2) == "bb");
    BOOST_TEST(give_back(first, f, returning(made.id)).status == nfsstat4::ok);
    turns();
    BOOST_TEST(read_at(first, f, block - 2, 4) == "aaCC");
    BOOST_TEST(held() == block);
    const auto kept = open_kept(second, "of f", "f");
    BOOST_TEST(read_at(second, kept, block - 2, 4) == "aabb");
    close(second, kept);
    BOOST_TEST(end_snapshot(second, "of f") == nfsstat4::ok);
    BOOST_TEST(held() == 0u);
    BOOST_TEST(read_at(first, f, block - 2, 4) == "aaCC");
}

BOOST_FIXTURE_TEST_CASE(what_was_not_committed_goes_with_a_layout_that_is_taken, fixture)
{
    begin();
    const auto f = make_kept(first, "f", 1);
    const auto made = get(first, f, asking(f.id, mode::rw, 0, block));
    rdma_peer& p = connect_to(first, made);
    BOOST_TEST(put(p, made.memory(1), 0, std::string(block, 'A')));
    first_way->says = nfsstat4::nomatching_layout;
    const auto writing = begin_of(second, open(second, "f"),
                                  WRITE4args{stateid4(), 10, stable_how4::unstable,
                                             std::as_bytes(std::span(std::string_view("text")))});
    turns();
    BOOST_TEST(status_of(*writing) == nfsstat4::ok);
    BOOST_TEST(segments() == 0);
    BOOST_TEST(!put(p, made.memory(1), 0, "lost"));
    BOOST_TEST(read_at(first, f, 8, 8) == "aatextaa");
    BOOST_TEST(read_at(second, open_kept(second, "of f", "f"), 8, 8) == "aaaaaaaa");
}

// Its whole blocks would undo the write, whoever writes.
BOOST_FIXTURE_TEST_CASE(a_write_recalls_memory_that_is_not_the_files_yet, fixture)
{
    begin();
    auto f = make_kept(first, "f", 2);
    for (client4* writer : {&second, &first}) {
        const auto made = get(first, f, asking(f.id, mode::rw, 0, block));
        const auto mine = open(*writer, "f");
        const std::size_t calls = first_way->calls.size();
        const auto writing = begin_of(*writer, mine,
                                      WRITE4args{mine.id, block, stable_how4::unstable,
                                                 std::as_bytes(std::span(std::string_view("text")))});
        turns();
        BOOST_TEST(!writing->is_done);
        BOOST_TEST_REQUIRE(first_way->calls.size() == calls + 1);
        BOOST_TEST(give_back(first, f, returning(first_way->calls.back().id)).status == nfsstat4::ok);
        turns();
        BOOST_TEST(status_of(*writing) == nfsstat4::ok);
        BOOST_TEST(made.status == nfsstat4::ok);
        rest();
        if (writer == &first)
            f.id = mine.id;
    }
    // READ does not.
    const auto again = get(first, f, asking(f.id, mode::rw, 0, block));
    BOOST_TEST(read_at(second, open(second, "f"), 0, 3) == "aaa");
    BOOST_TEST(again.status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(one_client_has_memory_of_a_block_that_is_not_the_files_yet, fixture)
{
    begin();
    const auto f = make_kept(first, "f", 3);
    (void)get(first, f, asking(f.id, mode::rw, 0, block));
    const auto mine = open(second, "f");
    // Other blocks are free.
    BOOST_TEST(get(second, mine, asking(mine.id, mode::rw, 2 * block, block)).status == nfsstat4::ok);
    // To read them, too: what the holder commits would not be there.
    for (const mode what : {mode::read, mode::rw}) {
        const std::uint64_t at = what == mode::read ? 0 : block;
        const auto asks = begin_of(second, mine, asking(mine.id, what, at, block));
        turns();
        BOOST_TEST(!asks->is_done);
        BOOST_TEST_REQUIRE(!first_way->calls.empty());
        BOOST_TEST(give_back(first, f, returning(first_way->calls.back().id)).status == nfsstat4::ok);
        turns();
        BOOST_TEST(status_of(*asks) == nfsstat4::ok);
        rest();
        if (what == mode::read)
            BOOST_TEST(get(first, f, asking(f.id, mode::rw, block, block)).status == nfsstat4::ok);
    }
}

// It asks again for what it has: that can't be given twice, so it comes back first.
BOOST_FIXTURE_TEST_CASE(who_has_memory_that_is_not_the_files_yet_gets_it_anew, fixture)
{
    begin();
    const auto f = make_kept(first, "f", 2);
    const auto made = get(first, f, asking(f.id, mode::rw, 0, block));
    BOOST_TEST(get(first, f, asking(made.id, mode::rw, block, block)).status == nfsstat4::ok); // other bytes
    BOOST_TEST(first_way->calls.empty());
    const auto asks = begin_of(first, f, asking(f.id, mode::rw, 0, block));
    turns();
    BOOST_TEST(!asks->is_done);
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    BOOST_TEST(give_back(first, f, returning(first_way->calls[0].id)).status == nfsstat4::ok);
    turns();
    BOOST_TEST(status_of(*asks) == nfsstat4::ok);
    BOOST_TEST(first_way->calls.size() == 1u);
}

// The rest of the last block reads as zeros when the file grows, whatever its holder wrote there.
BOOST_FIXTURE_TEST_CASE(rule_13_bytes_behind_the_end_are_not_the_files, fixture)
{
    begin();
    const auto f = make(first, "f", "text");
    BOOST_TEST(take_snapshot(first, "s") == nfsstat4::ok);
    const auto made = get(first, f, asking(f.id, mode::rw, 0, block));
    rdma_peer& p = connect_to(first, made);
    BOOST_TEST(put(p, made.memory(1), 0, "TEXT and more"));
    std::array<std::byte, 64> body{};
    BOOST_TEST(commit(first, f, filling(made.id, body, 0, block, 3)).status == nfsstat4::ok);
    BOOST_TEST(read_at(first, f, 0, 20) == "TEXT");
    BOOST_TEST(give_back(first, f, returning(made.id)).status == nfsstat4::ok);
    turns();
    attributes values;
    values.size = 10;
    values.present.set(attribute::size);
    const encoded size(values);
    BOOST_TEST(first.call(PUTFH4args{client4::handle_of(f)}, SETATTR4args{f.id, size.raw}).status() ==
               nfsstat4::ok);
    BOOST_TEST(read_at(first, f, 0, 20) == std::string("TEXT\0\0\0\0\0\0", 10));
    BOOST_TEST(read_at(second, open_kept(second, "s", "f"), 0, 20) == "text");
}

BOOST_AUTO_TEST_SUITE_END()
