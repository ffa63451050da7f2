// SPDX-License-Identifier: Apache-2.0
// Files that our client reads and writes by RDMA layouts of our own server: the client's rules of the draft, recalls, and what becomes of bytes when a
// connection, a layout or the server goes.
#include "nfs4_layout_user.hpp"

#include <verbena/protocols/nfs/server/v4/state_answers.hpp>

BOOST_AUTO_TEST_SUITE(nfs4_layout_client_test)

using namespace verbena;
using namespace verbena::test;

BOOST_FIXTURE_TEST_CASE(a_file_is_read_by_rdma, layout_world)
{
    join(holder);
    const std::string text = letters(300'000);
    const auto what = make("f", text);
    auto f = open(what, share4::access_read);
    holder.wire.sent.clear();
    BOOST_TEST((whole(*f, 70'000) == text));
    BOOST_TEST(counts().read_by_rdma == text.size());
    BOOST_TEST(counts().read_by_nfs == 0u);
    // One layout was enough, and the READ is the one that tells that the end is the end.
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutget) == 1u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::getdeviceinfo) == 1u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::read) == 1u);
    BOOST_TEST(f->has_layout());
    BOOST_TEST(data->count().connections == 1);
    close(*f);
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutreturn) == 1u);
    turns();
    BOOST_TEST(service->layouts().counts().segments == 0);
}

BOOST_FIXTURE_TEST_CASE(a_file_is_written_by_rdma_and_grows, layout_world)
{
    join(holder);
    const auto what = make("f", "");
    auto f = open(what);
    const std::string text = letters(300'000);
    holder.wire.sent.clear();
    for (std::size_t at = 0; at < text.size(); at += 50'000)
        write(*f, at, std::string_view(text).substr(at, 50'000));
    BOOST_TEST(counts().written_by_rdma == text.size());
    BOOST_TEST(holder.wire.count(nfs_opnum4::write) == 0u);
    // It reads what it wrote, before anybody else knows of it.
    BOOST_TEST((whole(*f) == text));
    commit(*f);
    BOOST_TEST(f->uncommitted() == 0u);
    BOOST_TEST((there(what) == text));
    BOOST_TEST(holder.wire.count(nfs_opnum4::commit) == 0u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutcommit) >= 1u);
    close(*f);
    BOOST_TEST((there(what) == text));
}

namespace {

/// Looks into what a client sends: the arguments of one operation.
template<class Args, class F>
void each_sent(const std::vector<std::byte>& message, const F& f)
{
    xdr::decoder in(message);
    rpc::call_header header;
    decode(in, header);
    compound_arguments args(in);
    BOOST_REQUIRE(args.ok());
    while (args.next())
        BOOST_REQUIRE(args.visit([&](const auto& of_one) {
            if constexpr (std::is_same_v<std::decay_t<decltype(of_one)>, Args>)
                f(of_one);
        }));
}

/// LAYOUTGET behind SEQUENCE and PUTFH fails so.
void refuse_layout(std::vector<std::byte>& reply, nfsstat4 status)
{
    refuse_at(reply, 2, status);
    if (status == nfsstat4::layouttrylater)
        reply.resize(reply.size() + 4);
}

/// Each extent in the answer to LAYOUTGET, by where its first byte stands.
std::vector<std::size_t> extents_in(const std::vector<std::byte>& reply, const deviceid4& device)
{
    std::vector<std::size_t> places;
    for (std::size_t at = 0; at + 48 <= reply.size(); at += 4) {
        if (std::equal(device.begin(), device.end(), reply.begin() + static_cast<std::ptrdiff_t>(at)))
            places.push_back(at);
    }
    return places;
}

} // namespace

// Rule 3 of the client's: what is not there reads as zeros, without I/O.
BOOST_FIXTURE_TEST_CASE(a_hole_reads_as_zeros_without_io, layout_world)
{
    join(holder);
    const auto what = make("f", "");
    {
        auto made = good([&] { return holder.user.open(what, share4::access_write); });
        BOOST_TEST_REQUIRE(run([&] { return made->write(10 * block, bytes_of("end")); }).has_value());
        BOOST_TEST_REQUIRE(run([&] { return made->close(); }).has_value());
    }
    const auto now = good([&] { return holder.user.lookup(top, "f"); });
    auto f = open(now, share4::access_read);
    const std::uint64_t messages = fabric->counters().messages;
    const std::string zeros = read(*f, 0, 5 * block);
    BOOST_TEST((zeros == std::string(5 * block, '\0')));
    BOOST_TEST(fabric->counters().messages == messages);
    BOOST_TEST(counts().read_by_rdma == 5 * block);
    BOOST_TEST(read(*f, 10 * block, 100) == "end");
    BOOST_TEST(counts().read_by_nfs == 0u);
    close(*f);
}

// Nobody recalls a layout for its holder's own changes, whichever of his files makes them.
BOOST_FIXTURE_TEST_CASE(a_hole_that_this_client_fills_is_none_any_more, layout_world)
{
    join(holder);
    const auto what = make("f", "");
    auto plain = good([&] { return holder.user.open(what, share4::access_both); });
    BOOST_TEST_REQUIRE(run([&] { return plain->write(10 * block, bytes_of("end")); }).has_value());
    BOOST_TEST_REQUIRE(run([&] { return plain->commit(); }).has_value());
    auto f = open(good([&] { return holder.user.lookup(top, "f"); }), share4::access_read);
    BOOST_TEST(read(*f, 0, 4) == std::string(4, '\0'));
    BOOST_TEST_REQUIRE(run([&] { return plain->write(0, bytes_of("full")); }).has_value());
    BOOST_TEST(read(*f, 0, 4) == "full");
    BOOST_TEST(counts().recalled == 0u);
    BOOST_TEST(counts().read_by_nfs == 0u);
    close(*f);
    // The LAYOUTGET sees the hole, and its answer comes behind that of the write which fills it.
    f = open(what, share4::access_read);
    event passes;
    holder.wire.holds_answer = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::layoutget) ? &passes : nullptr;
    };
    std::string got;
    tasks.spawn([&]() -> task<void> {
        const auto some = co_await f->read(2 * block, 4);
        BOOST_TEST_REQUIRE(some.has_value());
        got = text_of(some->data);
    });
    turns();
    BOOST_TEST_REQUIRE(run([&] { return plain->write(2 * block, bytes_of("late")); }).has_value());
    BOOST_TEST(got == "");
    holder.wire.holds_answer = nullptr;
    passes.set();
    pass(100ms, 1ms);
    BOOST_TEST(got == "late");
    BOOST_TEST_REQUIRE(run([&] { return plain->close(); }).has_value());
    close(*f);
}

// Rule 4: no I/O without an extent; what one layout does not cover takes another one.
BOOST_FIXTURE_TEST_CASE(bytes_without_an_extent_take_another_layout, layout_world)
{
    service_options.layouts.bytes = 2 * block;
    end();
    begin();
    join(holder);
    const std::string text = letters(5 * block + 17);
    const auto what = make("f", text);
    auto f = open(what);
    BOOST_TEST(read(*f, block, 5 * block).size() == 2 * block); // as far as the layout goes
    BOOST_TEST((whole(*f) == text));
    BOOST_TEST(counts().read_by_nfs == 0u);
    BOOST_TEST(counts().got == 4u);
    const std::string other_text = letters(5 * block, 1);
    write(*f, 3, other_text);
    BOOST_TEST(counts().written_by_nfs == 0u);
    close(*f);
    BOOST_TEST((there(what) == text.substr(0, 3) + other_text + text.substr(5 * block + 3)));
}

// Rules 1 and 2: of uninitialized blocks whole ones are written, with what lay beneath, or zeros.
BOOST_FIXTURE_TEST_CASE(a_write_to_uninitialized_memory_fills_its_blocks, layout_world)
{
    join(holder);
    const auto what = make("f", std::string(3 * block, 'o'));
    std::optional<deviceid4> device;
    {
        auto f = open(what);
        const auto extents = good([&] { return f->extents(layoutiomode4::rw); });
        device = extents.at(0).device_id;
        close(*f);
    }
    std::vector<pnfs_rdma_range4> told;
    holder.wire.on_call = [&](const sent_compound&, std::vector<std::byte>& message) {
        each_sent<LAYOUTCOMMIT4args>(message, [&](const LAYOUTCOMMIT4args& args) {
            xdr::decoder in(args.update_body);
            pnfs_rdma_layoutupdate4 update;
            xdr::codec<pnfs_rdma_layoutupdate4>::decode(in, update);
            BOOST_TEST((in.ok() && in.rest().empty()));
            BOOST_TEST(broken_rule(update, block) == "");
            for (const pnfs_rdma_range4 r : update.commit_list)
                told.push_back(r);
        });
    };
    // As if the server had given memory without data.
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (!call.has(nfs_opnum4::layoutget))
            return;
        for (const std::size_t at : extents_in(reply, *device)) {
            if (reply[at + 47] == std::byte(0)) // READ_WRITE_DATA
                xdr::store_u32(reply.data() + at + 44, 2);
        }
    };
    auto f = open(what);
    BOOST_TEST((read(*f, block, 100) == std::string(100, 'o'))); // by a layout to read
    write(*f, block + 10, "new");
    BOOST_TEST(counts().written_by_nfs == 0u);
    const std::string zeros(10, '\0');
    BOOST_TEST(read(*f, block, 16) == zeros + "new" + zeros.substr(0, 3));
    commit(*f);
    BOOST_TEST_REQUIRE(told.size() == 1u);
    BOOST_TEST(told[0].file_offset == block);
    BOOST_TEST(told[0].length == block);
    // What is data now is not filled up again.
    write(*f, block, "next");
    BOOST_TEST(read(*f, block, 16) == "next" + zeros.substr(0, 6) + "new" + zeros.substr(0, 3));
    commit(*f);
    BOOST_TEST(told.size() == 1u);
    close(*f);
    const std::string now = there(what);
    BOOST_TEST(now.size() == 3 * block);
    BOOST_TEST((now.substr(0, block) == std::string(block, 'o')));
    BOOST_TEST(now.substr(block, 13) == "next" + zeros.substr(0, 6) + "new");
    BOOST_TEST((now.substr(block + 13, block - 13) == std::string(block - 13, '\0')));
    BOOST_TEST((now.substr(2 * block) == std::string(block, 'o')));
}

// A LAYOUTCOMMIT tells of 256 ranges at most; whatever is written is kept until all of its blocks are told.
BOOST_FIXTURE_TEST_CASE(blocks_that_one_layoutcommit_can_not_tell_of_take_several, layout_world)
{
    join(holder);
    const auto what = make("f", "");
    constexpr std::size_t count = 300;
    {
        auto plain = good([&] { return holder.user.open(what, share4::access_write); });
        BOOST_TEST_REQUIRE(run([&] { return plain->truncate(2 * count * block); }).has_value());
        BOOST_TEST_REQUIRE(run([&] { return plain->close(); }).has_value());
    }
    std::optional<deviceid4> device;
    {
        auto f = open(what);
        device = good([&] { return f->extents(layoutiomode4::rw); }).at(0).device_id;
        close(*f);
    }
    std::vector<std::size_t> told;
    std::vector<std::optional<std::uint64_t>> ends;
    holder.wire.on_call = [&](const sent_compound&, std::vector<std::byte>& message) {
        each_sent<LAYOUTCOMMIT4args>(message, [&](const LAYOUTCOMMIT4args& args) {
            xdr::decoder in(args.update_body);
            pnfs_rdma_layoutupdate4 update;
            xdr::codec<pnfs_rdma_layoutupdate4>::decode(in, update);
            std::size_t n = 0;
            for (const pnfs_rdma_range4 r : update.commit_list) {
                BOOST_TEST(r.file_offset >= args.offset);
                BOOST_TEST(r.file_offset + r.length <= args.offset + args.length);
                ++n;
            }
            told.push_back(n);
            ends.push_back(args.last_write_offset);
        });
    };
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (!call.has(nfs_opnum4::layoutget))
            return;
        for (const std::size_t at : extents_in(reply, *device)) {
            if (reply[at + 47] == std::byte(0)) // READ_WRITE_DATA
                xdr::store_u32(reply.data() + at + 44, 2);
        }
    };
    auto f = open(what);
    f->expect(2 * count * block);
    for (std::size_t i = 0; i < count; ++i)
        write(*f, 2 * i * block + 10, "new");
    commit(*f);
    BOOST_TEST_REQUIRE(told.size() == 2u);
    BOOST_TEST(told[0] == 256u);
    BOOST_TEST(told[1] == count - 256);
    BOOST_TEST(!ends[0].has_value());
    BOOST_TEST_REQUIRE(ends[1].has_value());
    BOOST_TEST(*ends[1] == 2 * (count - 1) * block + 12);
    BOOST_TEST(f->uncommitted() == 0u);
    BOOST_TEST(counts().lost == 0u);
    BOOST_TEST(counts().written_by_nfs == 0u);
    close(*f);
    BOOST_TEST(told.size() == 2u);
    BOOST_TEST(good([&] { return holder.user.getattr(what.handle); }).size == 2 * count * block);
}

// Rule 7: the body of LAYOUTRETURN is empty. And it names the newest number of the stateid.
BOOST_FIXTURE_TEST_CASE(what_goes_back_has_no_body_and_the_newest_number, layout_world)
{
    join(holder);
    const auto what = make("f", letters(1000));
    std::vector<stateid4> returned;
    std::vector<stateid4> asked;
    holder.wire.on_call = [&](const sent_compound&, std::vector<std::byte>& message) {
        each_sent<LAYOUTRETURN4args>(message, [&](const LAYOUTRETURN4args& args) {
            BOOST_TEST(args.layoutreturn.body.empty());
            BOOST_TEST(args.layoutreturn.length == UINT64_MAX);
            returned.push_back(args.layoutreturn.stateid);
        });
        each_sent<LAYOUTGET4args>(message,
                                  [&](const LAYOUTGET4args& args) { asked.push_back(args.stateid); });
    };
    auto f = open(what);
    BOOST_TEST(read(*f, 0, 10) == letters(10));
    write(*f, 0, "x");
    close(*f);
    // Rule 10: by the open that the server has authorised; then by the layout's stateid.
    BOOST_TEST_REQUIRE(asked.size() == 2u);
    BOOST_TEST_REQUIRE(returned.size() == 1u);
    BOOST_TEST((asked[0].other != returned[0].other));
    BOOST_TEST((asked[1].other == returned[0].other));
    BOOST_TEST(asked[1].seqid == 1u);
    BOOST_TEST(returned[0].seqid == 2u);
}

// Rule 10: each user is authorised by OPEN.
BOOST_FIXTURE_TEST_CASE(a_file_that_is_open_to_read_is_not_written, layout_world)
{
    join(holder);
    const auto what = make("f", letters(1000));
    auto f = open(what, share4::access_read);
    BOOST_TEST(read(*f, 0, 10) == letters(10));
    const auto written = run([&] { return f->write(0, bytes_of("x")); });
    BOOST_TEST_REQUIRE(!written.has_value());
    BOOST_TEST((written.error().code() == make_error_code(nfsstat4::openmode)));
    BOOST_TEST(counts().written_by_rdma == 0u);
    close(*f);
}

// Rule 8: after a restart nothing is read from where it was written; it is written again by NFS.
BOOST_FIXTURE_TEST_CASE(what_a_restart_leaves_in_doubt_is_written_by_nfs, layout_world)
{
    join(holder);
    const auto what = make("f", letters(2 * block));
    auto f = open(what);
    BOOST_TEST((whole(*f) == letters(2 * block)));
    const std::string text = letters(3 * block, 1);
    write(*f, block, text);
    BOOST_TEST(counts().written_by_nfs == 0u);
    restart();
    const std::uint64_t by_rdma = counts().read_by_rdma;
    holder.wire.sent.clear();
    commit(*f);
    BOOST_TEST(counts().written_by_nfs == text.size());
    BOOST_TEST(counts().read_by_rdma == by_rdma);
    for (const sent_compound& each : holder.wire.sent)
        BOOST_TEST((!each.has(nfs_opnum4::layoutreturn) || each.status != nfsstat4::ok));
    BOOST_TEST(holder.wire.count(nfs_opnum4::commit) >= 1u);
    BOOST_TEST(counts().lost == 1u);
    BOOST_TEST((there(what) == letters(2 * block).substr(0, block) + text));
    // A while later the new server gives layouts, too.
    pass(100s, 1s);
    BOOST_TEST((whole(*f) == letters(2 * block).substr(0, block) + text));
    BOOST_TEST(counts().read_by_rdma == by_rdma + 4 * block);
    close(*f);
}

// Rule 9.
BOOST_FIXTURE_TEST_CASE(a_server_that_says_later_is_asked_again_and_then_let_rest, layout_world)
{
    join(holder);
    const std::string text = letters(1000);
    const auto what = make("f", text);
    int left = 2;
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::layoutget) && left-- > 0)
            refuse_layout(reply, nfsstat4::layouttrylater);
    };
    auto f = open(what, share4::access_read);
    holder.wire.sent.clear();
    const auto begun = clock.now();
    BOOST_TEST(read(*f, 0, 100) == text.substr(0, 100));
    BOOST_TEST(counts().read_by_rdma == 100u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutget) == 3u);
    BOOST_TEST((clock.now() - begun >= 6ms));
    close(*f);
    // In vain: NFS, and for a while none is asked for.
    left = 1000;
    f = open(what, share4::access_read);
    holder.wire.sent.clear();
    BOOST_TEST(read(*f, 0, 100) == text.substr(0, 100));
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutget) == 5u);
    BOOST_TEST(f->last_reason() == by_nfs::later);
    BOOST_TEST(read(*f, 0, 100) == text.substr(0, 100));
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutget) == 5u);
    BOOST_TEST(counts().read_by_nfs == 200u);
    left = 0;
    pass(2s);
    BOOST_TEST(read(*f, 0, 100) == text.substr(0, 100));
    BOOST_TEST(counts().read_by_rdma == 200u);
    close(*f);
    // So it is for DELAY: the server may wait for what this client has.
    left = 1000;
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::layoutget) && left-- > 0)
            refuse_layout(reply, nfsstat4::delay);
    };
    f = open(what, share4::access_read);
    holder.wire.sent.clear();
    const auto now = clock.now();
    BOOST_TEST(read(*f, 0, 100) == text.substr(0, 100));
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutget) == 5u);
    BOOST_TEST((clock.now() - now < 100ms));
    BOOST_TEST(f->last_reason() == by_nfs::later);
    close(*f);
}

BOOST_FIXTURE_TEST_CASE(a_file_that_the_server_gives_no_layout_of_is_asked_for_once_per_open, layout_world)
{
    join(holder);
    const std::string text = letters(1000);
    const auto what = make("f", text);
    address.clear(); // of the data server
    auto f = open(what, share4::access_read);
    holder.wire.sent.clear();
    BOOST_TEST((whole(*f, 100) == text));
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutget) == 1u);
    BOOST_TEST(f->last_reason() == by_nfs::unavailable);
    BOOST_TEST(counts().read_by_nfs == 1000u);
    pass(10s);
    BOOST_TEST(read(*f, 0, 100) == text.substr(0, 100));
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutget) == 1u);
    close(*f);
    address = "data";
    f = open(what, share4::access_read);
    BOOST_TEST(read(*f, 0, 100) == text.substr(0, 100));
    BOOST_TEST(counts().read_by_rdma == 100u);
    close(*f);
}

// A change of the file by others recalls the layout: I/O that is under way ends, what was written is committed, and then it goes back.
BOOST_FIXTURE_TEST_CASE(a_recall_commits_and_gives_back, layout_world)
{
    join(holder);
    look(other);
    const auto what = make("f", letters(4 * block));
    auto f = open(what);
    write(*f, 0, "written");
    BOOST_TEST(f->uncommitted() == 7u);
    holder.wire.sent.clear();
    new_attributes shorter;
    shorter.size = 2 * block;
    BOOST_TEST(run([&] { return other.user.setattr(what.handle, shorter); }).has_value());
    pass(10ms); // its LAYOUTRETURN is answered then, too
    BOOST_TEST(counts().recalled == 1u);
    BOOST_TEST(!f->has_layout());
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutcommit) == 1u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutreturn) == 1u);
    BOOST_TEST(holder.wire.sent.front().has(nfs_opnum4::layoutcommit));
    BOOST_TEST(f->uncommitted() == 0u);
    BOOST_TEST(counts().lost == 0u);
    // It goes on by another layout, after a rest, and knows that the file is shorter.
    pass(120s, 1s);
    BOOST_TEST((whole(*f) == "written" + letters(2 * block).substr(7)));
    BOOST_TEST(counts().got >= 2u);
    close(*f);
}

BOOST_FIXTURE_TEST_CASE(a_recall_waits_for_io_that_is_under_way, layout_world)
{
    join(holder);
    look(other);
    const auto what = make("f", letters(4 * block));
    auto f = open(what);
    write(*f, 0, "0");
    loop::conditions slow;
    slow.latency = 1s;
    fabric->set_conditions(slow);
    const std::string text = letters(block, 1);
    bool written = false;
    bool cut = false;
    tasks.spawn([&]() -> task<void> {
        const auto done = co_await f->write(block, bytes_of(text));
        BOOST_TEST(done.has_value());
        written = true;
    });
    turns();
    tasks.spawn([&]() -> task<void> {
        new_attributes shorter;
        shorter.size = 2 * block;
        const auto done = co_await other.user.setattr(what.handle, shorter);
        BOOST_TEST(done.has_value());
        BOOST_TEST(written);
        cut = true;
    });
    pass(500ms);
    BOOST_TEST(!written);
    BOOST_TEST(counts().recalled == 1u);
    BOOST_TEST(counts().returned == 0u);
    pass(20s);
    BOOST_TEST(written);
    BOOST_TEST(cut);
    BOOST_TEST(counts().lost == 0u);
    fabric->set_conditions({});
    close(*f);
    BOOST_TEST((there(what) == "0" + letters(block).substr(1) + text));
}

BOOST_FIXTURE_TEST_CASE(a_recall_waits_for_a_read_that_is_under_way, layout_world)
{
    join(holder);
    look(other);
    const std::string text = letters(4 * block);
    const auto what = make("f", text);
    auto f = open(what, share4::access_read);
    BOOST_TEST(read(*f, 0, 1) == text.substr(0, 1));
    loop::conditions slow;
    slow.latency = 1s;
    fabric->set_conditions(slow);
    bool was_read = false;
    tasks.spawn([&]() -> task<void> {
        const auto got = co_await f->read(block, block);
        BOOST_TEST_REQUIRE(got.has_value());
        BOOST_TEST((text_of(got->data) == text.substr(block, block)));
        was_read = true;
    });
    turns();
    tasks.spawn([&]() -> task<void> {
        new_attributes mode;
        mode.mode = 0600;
        const auto done = co_await other.user.setattr(what.handle, mode);
        BOOST_TEST(done.has_value());
        BOOST_TEST(was_read);
    });
    pass(20s);
    BOOST_TEST(was_read);
    BOOST_TEST(counts().recalled == 1u);
    BOOST_TEST(counts().lost == 0u);
    BOOST_TEST(counts().read_by_nfs == 0u);
    fabric->set_conditions({});
    close(*f);
}

BOOST_FIXTURE_TEST_CASE(a_recall_of_what_the_client_has_not_heard_of_is_put_off, layout_world)
{
    join(holder);
    const auto what = make("f", letters(4 * block));
    auto f = open(what, share4::access_read);
    BOOST_TEST(read(*f, 0, 10) == letters(10));
    CB_LAYOUTRECALL4args args;
    args.type = layouttype4::rdma;
    args.iomode = layoutiomode4::any;
    args.recall.recalltype = layoutrecall_type4::file;
    args.recall.fh = what.handle.bytes();
    args.recall.length = UINT64_MAX;
    args.recall.stateid.seqid = 9;
    // Of a layout that nobody has.
    BOOST_TEST(call_back(args) == nfsstat4::nomatching_layout);
    args.type = layouttype4::block_volume;
    BOOST_TEST(call_back(args) == nfsstat4::nomatching_layout);
    args.type = layouttype4::rdma;
    close(*f);
    // While a LAYOUTGET is under way it may be of that.
    auto w = open(what);
    event passes;
    holder.wire.gate = &passes;
    bool done = false;
    tasks.spawn([&]() -> task<void> {
        const auto got = co_await w->read(0, 10);
        BOOST_TEST(got.has_value());
        done = true;
    });
    turns();
    BOOST_TEST(call_back(args) == nfsstat4::delay);
    BOOST_TEST(!done);
    holder.wire.gate = nullptr;
    passes.set();
    turns();
    BOOST_TEST(done);
    BOOST_TEST(w->has_layout());
    BOOST_TEST(call_back(args) == nfsstat4::nomatching_layout);
    close(*w);
}

// A recall that was answered with OK has the server wait.
BOOST_FIXTURE_TEST_CASE(what_is_recalled_goes_back_in_the_end, layout_world)
{
    join(holder);
    look(other);
    const auto what = make("f", letters(4 * block));
    const auto cut = [&](std::uint64_t size) {
        new_attributes shorter;
        shorter.size = size;
        const auto begun = clock.now();
        BOOST_TEST(run([&] { return other.user.setattr(what.handle, shorter); }).has_value());
        BOOST_TEST((clock.now() - begun < 10s));
        pass(10ms); // the LAYOUTRETURN is answered then, too
    };
    int lost = 2;
    holder.wire.decide = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::layoutreturn) && lost-- > 0 ? direct_transport::fate::is_lost
                                                                : direct_transport::fate::arrives;
    };
    auto f = open(what);
    write(*f, 0, "written");
    holder.wire.sent.clear();
    cut(3 * block);
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutreturn) == 3u);
    BOOST_TEST(counts().returned == 1u);
    BOOST_TEST(!f->has_layout());
    BOOST_TEST(service->layouts().counts().segments == 0);
    holder.wire.decide = nullptr;
    pass(120s, 1s);
    // The number that the client knows may be an old one: as if the server's were one more.
    std::optional<stateid4> first;
    std::uint32_t second = 0;
    holder.wire.on_call = [&](const sent_compound&, std::vector<std::byte>& message) {
        std::optional<stateid4> sent;
        each_sent<LAYOUTRETURN4args>(
            message, [&](const LAYOUTRETURN4args& args) { sent = args.layoutreturn.stateid; });
        if (!sent)
            return;
        const auto& id = sent->other;
        const auto at = std::search(message.begin(), message.end(), id.begin(), id.end()) - message.begin();
        if (!first) {
            first = sent;
            message[static_cast<std::size_t>(at)] ^= std::byte(1); // the server refuses it
        } else {
            second = sent->seqid;
            xdr::store_u32(message.data() + at - 4, first->seqid);
        }
    };
    bool is_refused = false;
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::layoutreturn) && !std::exchange(is_refused, true))
            refuse_at(reply, 2, nfsstat4::old_stateid);
    };
    BOOST_TEST(read(*f, 0, 7) == "written");
    BOOST_TEST(f->has_layout());
    cut(2 * block);
    BOOST_TEST(counts().returned == 2u);
    BOOST_TEST_REQUIRE(first.has_value());
    BOOST_TEST(second == first->seqid + 1);
    BOOST_TEST(service->layouts().counts().segments == 0);
    holder.wire.on_call = nullptr;
    holder.wire.on_reply_to = nullptr;
    close(*f);
}

// Who closes it does not wait for ever; then the recall commits what it can and closes it, and writes nothing by an open file that nobody has.
BOOST_FIXTURE_TEST_CASE(a_recall_outlives_a_close_that_was_given_up, layout_world)
{
    join(holder);
    look(other);
    const auto what = make("f", letters(4 * block));
    for (const bool is_refused : {false, true}) {
        pass(120s, 1s);
        const std::uint64_t committed = counts().commits;
        const std::uint64_t by_nfs = counts().written_by_nfs;
        auto f = open(what);
        write(*f, 0, "written");
        holder.wire.sent.clear();
        loop::conditions slow;
        slow.latency = 3s;
        fabric->set_conditions(slow); // the flush takes long
        holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
            if (call.has(nfs_opnum4::layoutcommit) && is_refused)
                refuse_at(reply, 2, nfsstat4::badlayout);
        };
        bool is_cut = false;
        tasks.spawn([&]() -> task<void> {
            new_attributes shorter;
            shorter.size = 3 * block;
            const auto done = co_await other.user.setattr(what.handle, shorter);
            BOOST_TEST(done.has_value());
            is_cut = true;
        });
        pass(1s, 10ms);
        BOOST_TEST(!is_cut);
        BOOST_TEST(!run([&] { return with_timeout(1s, f->close()); }).has_value());
        BOOST_TEST(holder.wire.count(nfs_opnum4::layoutcommit) == 0u);
        f.reset();
        pass(60s, 100ms);
        BOOST_TEST(is_cut);
        fabric->set_conditions({});
        BOOST_TEST(holder.wire.count(nfs_opnum4::layoutcommit) == 1u);
        BOOST_TEST(counts().commits == committed + !is_refused);
        BOOST_TEST(holder.wire.count(nfs_opnum4::layoutreturn) == 1u);
        BOOST_TEST(holder.wire.count(nfs_opnum4::close) == 1u);
        BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 0u);
        BOOST_TEST(holder.wire.count(nfs_opnum4::write) == 0u);
        BOOST_TEST(counts().written_by_nfs == by_nfs);
        BOOST_TEST(holder.layouts->holders() == 0u);
        holder.wire.on_reply_to = nullptr;
    }
}

// Or else a server reads in what it asks for the size of before.
BOOST_FIXTURE_TEST_CASE(a_delegation_does_not_tell_the_size_of_before_a_layoutcommit, layout_world)
{
    holder.user.use_delegations(8);
    join(holder);
    look(other);
    const auto what = make("f", "short");
    auto f = open(what);
    BOOST_TEST_REQUIRE(holder.user.delegations() == 1u);
    write(*f, 0, letters(block));
    commit(*f);
    BOOST_TEST(counts().written_by_rdma == block);
    BOOST_TEST(good([&] { return other.user.getattr(what.handle); }).size == block);
    close(*f);
}

// Else a recall would wait for it for ever, and so would all other I/O of the file.
BOOST_FIXTURE_TEST_CASE(a_data_server_that_does_not_answer_is_given_up, layout_world)
{
    join(holder);
    const auto what = make("f", letters(4 * block));
    auto f = open(what);
    BOOST_TEST(read(*f, 0, 10) == letters(10));
    loop::conditions silent;
    silent.latency = 1h;
    fabric->set_conditions(silent);
    const auto begun = clock.now();
    std::string got;
    tasks.spawn([&]() -> task<void> {
        const auto some = co_await f->read(10, 10);
        BOOST_TEST_REQUIRE(some.has_value());
        got = text_of(some->data);
    });
    pass(70s, 100ms);
    BOOST_TEST(got == letters(20).substr(10));
    BOOST_TEST((clock.now() - begun >= 30s));
    BOOST_TEST(counts().lost == 1u);
    BOOST_TEST(f->last_reason() == by_nfs::lost);
    fabric->set_conditions({});
    close(*f);
}

BOOST_FIXTURE_TEST_CASE(a_recall_does_not_wait_for_a_connection_to_be_made, layout_world)
{
    join(holder);
    look(other);
    const auto what = make("f", letters(4 * block));
    loop::conditions slow;
    slow.latency = 3s;
    fabric->set_conditions(slow);
    for (const bool writes : {false, true}) {
        auto f = open(what);
        bool is_cut = false;
        bool is_done = false;
        tasks.spawn([&]() -> task<void> {
            if (writes) {
                const auto written = co_await f->write(0, bytes_of(letters(10)));
                BOOST_TEST(written.has_value());
            } else {
                const auto got = co_await f->read(0, 10);
                BOOST_TEST((got && text_of(got->data) == letters(10)));
            }
            is_done = true;
        });
        pass(100ms);
        BOOST_TEST(f->has_layout());
        tasks.spawn([&]() -> task<void> {
            new_attributes shorter;
            shorter.size = writes ? block : 2 * block;
            const auto done = co_await other.user.setattr(what.handle, shorter);
            BOOST_TEST(done.has_value());
            is_cut = true;
        });
        pass(2s, 10ms);
        BOOST_TEST((is_cut && !is_done));
        pass(60s, 100ms);
        BOOST_TEST(is_done);
        BOOST_TEST(counts().lost == 0u);
        close(*f);
        cut_connections();
    }
    // Who gives up waiting for it keeps the layout.
    auto f = open(what);
    BOOST_TEST(!run([&] { return with_timeout(1s, f->read(0, 10)); }).has_value());
    BOOST_TEST(f->has_layout());
    BOOST_TEST(counts().lost == 0u);
    fabric->set_conditions({});
    BOOST_TEST(read(*f, 0, 10) == letters(10));
    close(*f);
}

// Rule 11: an I/O error means that the layout is gone.
BOOST_FIXTURE_TEST_CASE(a_layout_that_was_fenced_is_given_up, layout_world)
{
    join(holder);
    const std::string text = letters(4 * block);
    const auto what = make("f", text);
    stateid4 id;
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (!call.has(nfs_opnum4::layoutget))
            return;
        xdr::decoder in(std::span<const std::byte>(reply).subspan(24)); // behind the head of RPC
        compound_reply results(in);
        SEQUENCE4res sequence;
        PUTFH4res put;
        LAYOUTGET4res got;
        BOOST_TEST_REQUIRE((results.read(sequence) && results.read(put) && results.read(got)));
        id = got.stateid;
    };
    auto f = open(what);
    write(*f, 0, "w");
    BOOST_TEST(read(*f, block, 10) == text.substr(block, 10));
    // The server does so without asking, as when nobody answers.
    const auto revoked = run([&] { return commons->state.table().revoke(to_state(id)); });
    BOOST_TEST_REQUIRE(revoked.has_value());
    pass(100ms);
    BOOST_TEST(read(*f, block, 10) == text.substr(block, 10));
    BOOST_TEST(counts().lost == 1u);
    BOOST_TEST(counts().written_by_nfs == 1u);
    BOOST_TEST(f->last_reason() == by_nfs::lost);
    pass(2s);
    BOOST_TEST((whole(*f) == "w" + text.substr(1)));
    BOOST_TEST(counts().read_by_rdma > 4 * block);
    close(*f);
}

BOOST_FIXTURE_TEST_CASE(a_connection_that_is_killed_in_mid_write_loses_nothing, layout_world)
{
    join(holder);
    const auto what = make("f", "");
    auto f = open(what);
    const std::string text = letters(40 * block);
    loop::conditions slow;
    slow.latency = 10ms;
    fabric->set_conditions(slow);
    std::size_t written = 0;
    for (std::size_t i = 0; i < 8; ++i)
        tasks.spawn([&, i]() -> task<void> {
            for (std::size_t n = 0; n < 5; ++n) {
                const std::size_t at = (n * 8 + i) * block;
                const auto done = co_await f->write(at, bytes_of(std::string_view(text).substr(at, block)));
                BOOST_TEST(done.has_value());
                ++written;
            }
        });
    while (written < 9)
        pass(1ms, 1ms);
    BOOST_TEST(written < 40u);
    cut_connections();
    pass(10s);
    BOOST_TEST(written == 40u);
    BOOST_TEST(counts().lost >= 1u);
    BOOST_TEST(counts().written_by_nfs > 0u);
    fabric->set_conditions({});
    commit(*f);
    BOOST_TEST((there(what) == text));
    close(*f);
}

// The flush finds that the connection is gone: its Writes may not be placed.
BOOST_FIXTURE_TEST_CASE(writes_whose_connection_ended_before_the_flush_are_written_again, layout_world)
{
    join(holder);
    const auto what = make("f", "");
    auto f = open(what);
    const std::string text = letters(3 * block);
    write(*f, 0, text);
    BOOST_TEST(counts().written_by_nfs == 0u);
    cut_connections();
    commit(*f);
    BOOST_TEST(counts().written_by_nfs == text.size());
    BOOST_TEST((there(what) == text));
    close(*f);
}

// They may not be placed, and a Read by another connection would find what was there before.
BOOST_FIXTURE_TEST_CASE(a_read_behind_a_connection_that_ended_does_not_believe_its_writes, layout_world)
{
    join(holder);
    const auto what = make("f", std::string(3 * block, 'o'));
    auto f = open(what);
    const std::string text = letters(block);
    write(*f, block, text);
    BOOST_TEST(counts().written_by_nfs == 0u);
    cut_connections();
    pass(100ms); // it has heard of it
    BOOST_TEST((read(*f, block, block) == text));
    BOOST_TEST(counts().read_by_rdma == 0u);
    BOOST_TEST(counts().written_by_nfs == text.size());
    BOOST_TEST(f->last_reason() == by_nfs::lost);
    // So it is for a write, which else would be the only one that is left of the two.
    pass(2s);
    write(*f, block, text);
    cut_connections();
    pass(100ms); // it has heard of it
    write(*f, 2 * block, text);
    BOOST_TEST(counts().written_by_nfs == 3 * text.size());
    close(*f);
    BOOST_TEST((there(what) == std::string(block, 'o') + text + text));
}

BOOST_FIXTURE_TEST_CASE(a_layoutcommit_that_the_server_refuses_has_the_bytes_written_by_nfs, layout_world)
{
    join(holder);
    const auto what = make("f", "");
    auto f = open(what);
    const std::string text = letters(3 * block);
    write(*f, 0, text);
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::layoutcommit))
            refuse_at(reply, 2, nfsstat4::badlayout);
    };
    commit(*f);
    BOOST_TEST(counts().written_by_nfs == text.size());
    BOOST_TEST((there(what) == text));
    close(*f);
}

// Another client makes the file longer: what lies in between are zeros, but for what is the file's.
BOOST_FIXTURE_TEST_CASE(what_is_written_behind_the_end_survives_growth_by_others, layout_world)
{
    join(holder);
    look(other);
    const auto what = make("f", "begin");
    auto f = open(what);
    write(*f, 100, "behind the end");
    BOOST_TEST(counts().written_by_rdma == 14u);
    BOOST_TEST(f->uncommitted() == 14u);
    auto theirs = good([&] { return other.user.open(what, share4::access_write); });
    BOOST_TEST_REQUIRE(run([&] { return theirs->write(block - 10, bytes_of("theirs")); }).has_value());
    BOOST_TEST_REQUIRE(run([&] { return theirs->close(); }).has_value());
    write(*f, 200, "more");
    commit(*f);
    const std::string now = there(what);
    BOOST_TEST(now.size() == block - 4);
    BOOST_TEST(now.substr(0, 6) == std::string("begin\0", 6));
    BOOST_TEST(now.substr(100, 14) == "behind the end");
    BOOST_TEST(now.substr(200, 4) == "more");
    BOOST_TEST(now.substr(block - 10) == "theirs");
    BOOST_TEST(counts().recalled == 0u);
    close(*f);
}

// Each chunk of a layout costs one call more, where the size is known; what was not written stays out of the file where it is not.
BOOST_FIXTURE_TEST_CASE(a_file_grows_by_what_is_expected_or_written, layout_world)
{
    join(holder);
    const auto what = make("f", "");
    auto f = open(what);
    write(*f, 0, letters(1000));
    BOOST_TEST(good([&] { return holder.user.getattr(what.handle); }).size == 1000u);
    close(*f);
    f = open(what);
    f->expect(20 * block);
    holder.wire.sent.clear();
    for (std::size_t i = 0; i < 20; ++i)
        write(*f, i * block, letters(block, static_cast<unsigned>(i)));
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutcommit) == 1u);
    BOOST_TEST(good([&] { return holder.user.getattr(what.handle); }).size == 20 * block);
    commit(*f);
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutcommit) == 2u);
    close(*f);
}

BOOST_FIXTURE_TEST_CASE(a_write_by_nfs_and_one_by_rdma_keep_their_order, layout_world)
{
    join(holder);
    const auto what = make("f", std::string(2 * block, '.'));
    bool refuses = true;
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::layoutget) && refuses)
            refuse_layout(reply, nfsstat4::inval);
        // The server loses what NFS writes now and does not commit: its verifier is another one by then.
        if (call.has(nfs_opnum4::write))
            reply.back() ^= std::byte(1);
    };
    auto f = open(what);
    write(*f, 0, "nfs nfs");
    BOOST_TEST(counts().written_by_nfs == 7u);
    refuses = false;
    holder.wire.on_reply_to = nullptr;
    pass(2s);
    write(*f, 4, "rdma");
    BOOST_TEST(counts().written_by_rdma == 4u);
    commit(*f);
    BOOST_TEST(there(what).substr(0, 9) == "nfs rdma.");
    close(*f);
}

BOOST_FIXTURE_TEST_CASE(a_write_by_rdma_and_one_by_nfs_keep_their_order, layout_world)
{
    join(holder);
    const auto what = make("f", std::string(2 * block, '.'));
    auto f = open(what);
    write(*f, 0, "rdma rdma");
    // The renewal does not come through, so that the next write goes by NFS.
    holder.wire.decide = [](const sent_compound&) { return direct_transport::fate::is_lost; };
    pass(95s, 1s);
    holder.wire.decide = nullptr;
    write(*f, 0, "nfs");
    BOOST_TEST(f->last_reason() == by_nfs::no_lease);
    cut_connections();
    commit(*f);
    BOOST_TEST(there(what).substr(0, 10) == "nfsa rdma.");
    close(*f);
}

BOOST_FIXTURE_TEST_CASE(where_layouts_are_required_io_by_nfs_fails_with_the_reason, layout_world)
{
    join(holder, quick(true));
    const auto what = make("f", letters(1000));
    auto f = open(what);
    BOOST_TEST(read(*f, 0, 10) == letters(10));
    write(*f, 0, "x");
    close(*f);
    address.clear();
    f = open(what);
    const auto got = run([&] { return f->read(0, 10); });
    BOOST_TEST_REQUIRE(!got.has_value());
    BOOST_TEST((got.error() == std::errc::not_supported));
    BOOST_TEST(std::string(got.error().context()) == "the server gives no layout of this file");
    const auto written = run([&] { return f->write(0, bytes_of("y")); });
    BOOST_TEST_REQUIRE(!written.has_value());
    BOOST_TEST((written.error() == std::errc::not_supported));
    BOOST_TEST(counts().read_by_nfs + counts().written_by_nfs == 0u);
    close(*f);
}

BOOST_FIXTURE_TEST_CASE(a_client_that_can_not_be_called_has_no_layouts, layout_world)
{
    one silent(*this, "silent", false);
    join(holder);
    join(silent);
    const std::string text = letters(1000);
    const auto what = make("f", text);
    {
        auto f = open(silent, what, share4::access_read);
        silent.wire.sent.clear();
        BOOST_TEST((whole(*f) == text));
        BOOST_TEST(f->last_reason() == by_nfs::no_way_back);
        BOOST_TEST(silent.wire.count(nfs_opnum4::layoutget) == 0u);
        close(*f);
    }
    run([&]() -> task<void> {
        co_await silent.layouts->close();
        co_await silent.user.close();
    });
}

BOOST_FIXTURE_TEST_CASE(a_server_without_layouts_costs_no_call, layout_world)
{
    end();
    options[0].pnfs = false;
    exports = nfs::export_table();
    begin();
    join(holder);
    const std::string text = letters(1000);
    const auto what = make("f", text);
    auto f = open(what, share4::access_read);
    holder.wire.sent.clear();
    BOOST_TEST((whole(*f) == text));
    BOOST_TEST(holder.wire.sent.size() == 2u);
    BOOST_TEST(f->last_reason() == by_nfs::no_server);
    close(*f);
}

BOOST_FIXTURE_TEST_CASE(a_data_server_that_is_full_is_let_rest, layout_world)
{
    service_options.data.connections_of_client = 0;
    end();
    begin();
    join(holder);
    const std::string text = letters(1000);
    const auto what = make("f", text);
    auto f = open(what);
    BOOST_TEST((whole(*f) == text));
    BOOST_TEST(f->last_reason() == by_nfs::no_connection);
    BOOST_TEST(!f->has_layout()); // it is of no use
    BOOST_TEST(holder.layouts->connections().count().refused == 1u);
    write(*f, 0, "x");
    BOOST_TEST(holder.layouts->connections().count().refused == 1u);
    pass(15s);
    BOOST_TEST(read(*f, 0, 1) == "x");
    BOOST_TEST(holder.layouts->connections().count().refused == 2u);
    // The rest is twice as long each time.
    pass(15s);
    BOOST_TEST(read(*f, 0, 1) == "x");
    BOOST_TEST(holder.layouts->connections().count().refused == 2u);
    pass(10s);
    BOOST_TEST(read(*f, 0, 1) == "x");
    BOOST_TEST(holder.layouts->connections().count().refused == 3u);
    close(*f);
}

BOOST_FIXTURE_TEST_CASE(a_layout_that_breaks_a_rule_is_not_used, layout_world)
{
    join(holder);
    const std::string text = letters(2 * block);
    const auto what = make("f", text);
    std::optional<deviceid4> device;
    {
        auto f = open(what);
        const auto extents = good([&] { return f->extents(layoutiomode4::read); });
        BOOST_TEST(extents.size() >= 1u);
        BOOST_TEST((extents[0].state == pnfs_rdma_extent_state4::read_data));
        device = extents[0].device_id;
        close(*f);
    }
    // One that can be written, in a layout to read.
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (!call.has(nfs_opnum4::layoutget))
            return;
        for (const std::size_t at : extents_in(reply, *device))
            xdr::store_u32(reply.data() + at + 44, 0);
    };
    auto f = open(what, share4::access_read);
    const std::uint64_t by_rdma = counts().read_by_rdma;
    BOOST_TEST((whole(*f) == text));
    BOOST_TEST(counts().read_by_rdma == by_rdma);
    BOOST_TEST(!f->has_layout());
    turns();
    BOOST_TEST(service->layouts().counts().segments == 0);
    close(*f);
}

BOOST_FIXTURE_TEST_CASE(a_file_is_cut_without_a_recall, layout_world)
{
    join(holder);
    const std::string text = letters(4 * block);
    const auto what = make("f", text);
    auto f = open(what);
    BOOST_TEST((whole(*f) == text));
    write(*f, block, "w");
    BOOST_TEST(run([&] { return f->truncate(block + 5); }).has_value());
    BOOST_TEST(counts().recalled == 0u);
    BOOST_TEST((whole(*f) == text.substr(0, block) + "w" + text.substr(block + 1, 4)));
    close(*f);
    BOOST_TEST((there(what) == text.substr(0, block) + "w" + text.substr(block + 1, 4)));
}

// It goes on to where it is expected to, and ends where it is told to in the end, whatever its open has said.
BOOST_FIXTURE_TEST_CASE(a_file_that_was_to_be_longer_is_cut, layout_world)
{
    join(holder);
    const auto what = make("f", "");
    auto f = open(what);
    f->expect(20 * block);
    write(*f, 0, "half of it");
    BOOST_TEST(f->node().attributes.size == 0u);
    BOOST_TEST(f->size() > 10u);
    BOOST_TEST(run([&] { return f->truncate(10); }).has_value());
    BOOST_TEST(f->size() == 10u);
    write(*f, 8, "again");
    BOOST_TEST(f->size() == 13u);
    close(*f);
    BOOST_TEST(there(what) == "half of again");
}

// Who gave up waiting for a LAYOUTGET does not know what the server has given.
BOOST_FIXTURE_TEST_CASE(what_a_lost_answer_may_have_given_goes_back_in_the_end, layout_world)
{
    join(holder);
    const auto what = make("f", letters(1000));
    auto f = open(what, share4::access_read);
    holder.wire.decide = [](const sent_compound& call) {
        return call.has(nfs_opnum4::layoutget) ? direct_transport::fate::reply_is_lost
                                               : direct_transport::fate::arrives;
    };
    BOOST_TEST(read(*f, 0, 10) == letters(10));
    BOOST_TEST(counts().read_by_nfs == 10u);
    BOOST_TEST(service->layouts().counts().segments == 1);
    close(*f);
    run([&]() -> task<void> { co_await holder.layouts->close(); });
    pass(100ms);
    BOOST_TEST(service->layouts().counts().segments == 0);
}

// 8881 12.5.5.1: all of it goes back, and then one LAYOUTRETURN of the kind of the recall.
BOOST_FIXTURE_TEST_CASE(a_recall_of_a_file_system_or_of_all_ends_with_a_return_of_that, layout_world)
{
    join(holder);
    const auto one_file = make("f", letters(1000));
    const auto another = make("g", letters(1000, 1));
    for (const layoutrecall_type4 type : {layoutrecall_type4::fsid, layoutrecall_type4::all}) {
        auto f = open(one_file);
        auto g = open(another);
        write(*f, 0, "f");
        write(*g, 0, "g");
        std::vector<layoutreturn_type4> returned;
        holder.wire.on_call = [&](const sent_compound&, std::vector<std::byte>& message) {
            each_sent<LAYOUTRETURN4args>(message, [&](const LAYOUTRETURN4args& args) {
                returned.push_back(args.layoutreturn.returntype);
            });
        };
        CB_LAYOUTRECALL4args args;
        args.type = layouttype4::rdma;
        args.iomode = layoutiomode4::any;
        args.recall.recalltype = type;
        args.recall.fsid = {77, 77};
        if (type == layoutrecall_type4::fsid) {
            BOOST_TEST(call_back(args) == nfsstat4::nomatching_layout);
            args.recall.fsid = one_file.attributes.fsid;
        }
        BOOST_TEST(call_back(args) == nfsstat4::ok);
        pass(100ms);
        BOOST_TEST_REQUIRE(returned.size() == 3u);
        BOOST_TEST((returned[0] == layoutreturn_type4::file && returned[1] == layoutreturn_type4::file));
        BOOST_TEST((returned[2] == static_cast<layoutreturn_type4>(type)));
        BOOST_TEST((!f->has_layout() && !g->has_layout()));
        BOOST_TEST(f->uncommitted() + g->uncommitted() == 0u);
        BOOST_TEST(call_back(args) == nfsstat4::nomatching_layout);
        close(*f);
        close(*g);
    }
}

BOOST_FIXTURE_TEST_CASE(a_server_that_wants_fewer_layouts_gets_those_that_were_used_least_lately,
                        layout_world)
{
    join(holder);
    const auto one_file = make("f", letters(1000));
    const auto another = make("g", letters(1000, 1));
    auto f = open(one_file);
    auto g = open(another);
    BOOST_TEST(read(*g, 0, 1) == letters(1, 1));
    BOOST_TEST(read(*f, 0, 1) == letters(1));
    CB_RECALL_ANY4args args;
    args.objects_to_keep = 1;
    args.type_mask.set(static_cast<std::uint32_t>(rca4_type::rdata_dlg)); // none of ours
    BOOST_TEST(call_back(args) == nfsstat4::ok);
    pass(100ms);
    BOOST_TEST((f->has_layout() && g->has_layout()));
    args.type_mask.set(static_cast<std::uint32_t>(rca4_type::other_layout_min));
    BOOST_TEST(call_back(args) == nfsstat4::ok);
    pass(100ms);
    BOOST_TEST((f->has_layout() && !g->has_layout()));
    close(*f);
    close(*g);
}

BOOST_FIXTURE_TEST_CASE(a_part_that_is_recalled_goes_back_alone, layout_world)
{
    service_options.layouts.bytes = 2 * block;
    end();
    begin();
    join(holder);
    const std::string text = letters(6 * block);
    const auto what = make("f", text);
    std::optional<stateid4> newest;
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (!call.has(nfs_opnum4::layoutget))
            return;
        xdr::decoder in(std::span<const std::byte>(reply).subspan(24));
        compound_reply results(in);
        SEQUENCE4res sequence;
        PUTFH4res put;
        LAYOUTGET4res got;
        BOOST_TEST_REQUIRE((results.read(sequence) && results.read(put) && results.read(got)));
        newest = got.stateid;
    };
    auto f = open(what, share4::access_read);
    BOOST_TEST((whole(*f) == text));
    BOOST_TEST(counts().got == 3u);
    CB_LAYOUTRECALL4args args;
    args.type = layouttype4::rdma;
    args.iomode = layoutiomode4::any;
    args.recall.recalltype = layoutrecall_type4::file;
    args.recall.fh = what.handle.bytes();
    args.recall.offset = 2 * block;
    args.recall.length = 2 * block;
    args.recall.stateid = *newest;
    BOOST_TEST(call_back(args) == nfsstat4::ok);
    pass(100ms);
    BOOST_TEST(f->has_layout());
    const auto left = good([&] { return f->extents(layoutiomode4::read); });
    BOOST_TEST(counts().got == 4u); // what went back is got again, the rest was there
    BOOST_TEST(left.back().file_offset + left.back().length == 6 * block);
    BOOST_TEST((whole(*f) == text));
    close(*f);
}

BOOST_FIXTURE_TEST_CASE(a_data_server_that_has_forgotten_the_client_is_found_again, layout_world)
{
    auto o = quick();
    o.connections.connections = 1;
    join(holder, o);
    const std::string text = letters(1000);
    const auto what = make("f", text);
    auto f = open(what, share4::access_read);
    BOOST_TEST(read(*f, 0, 10) == text.substr(0, 10));
    close(*f);
    for (int i = 0; i < 3; ++i) {
        run([&] { return data->forget_idle(); });
        pass(100ms);
    }
    BOOST_TEST(data->count().connections == 0);
    f = open(what, share4::access_read);
    BOOST_TEST(read(*f, 0, 10) == text.substr(0, 10));
    BOOST_TEST(counts().read_by_rdma == 20u);
    BOOST_TEST(holder.layouts->connections().count().made == 2u);
    close(*f);
}

// The data server may have started again in between: the server is asked where the device is once more, and then it is no use.
BOOST_FIXTURE_TEST_CASE(a_cookie_that_is_not_known_is_asked_for_once_more, layout_world)
{
    join(holder);
    const std::string text = letters(1000);
    const auto what = make("f", text);
    std::optional<deviceid4> device;
    {
        auto f = open(what, share4::access_read);
        device = good([&] { return f->extents(layoutiomode4::read); }).at(0).device_id;
        close(*f);
    }
    const auto flip = [&](std::vector<std::byte>& message, deviceid4 from, deviceid4 to) {
        for (const std::size_t at : extents_in(message, from))
            std::ranges::copy(to, message.begin() + static_cast<std::ptrdiff_t>(at));
    };
    deviceid4 forged = *device;
    forged.back() ^= std::byte(1);
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::layoutget))
            flip(reply, *device, forged);
    };
    holder.wire.on_call = [&](const sent_compound& call, std::vector<std::byte>& message) {
        if (!call.has(nfs_opnum4::getdeviceinfo))
            return;
        const auto at = std::ranges::search(message, forged);
        BOOST_TEST_REQUIRE(!at.empty());
        std::ranges::copy(*device, at.begin());
    };
    holder.wire.sent.clear();
    auto f = open(what, share4::access_read);
    BOOST_TEST(read(*f, 0, 10) == text.substr(0, 10));
    BOOST_TEST(f->last_reason() == by_nfs::no_connection);
    BOOST_TEST(holder.wire.count(nfs_opnum4::getdeviceinfo) == 2u);
    BOOST_TEST(holder.layouts->connections().count().refused == 2u);
    BOOST_TEST(!f->has_layout());
    close(*f);
}

// The server says so in SEQUENCE.
BOOST_FIXTURE_TEST_CASE(what_the_server_says_is_revoked_is_given_up, layout_world)
{
    join(holder);
    look(other);
    const auto what = make("f", letters(4 * block));
    auto f = open(what);
    write(*f, 0, "w");
    // It hears no recall, so that the server takes the layout after a while.
    holder.way->loses_calls = 1000;
    new_attributes shorter;
    shorter.size = 2 * block;
    bool cut = false;
    tasks.spawn([&]() -> task<void> {
        while (!cut) {
            const auto done = co_await other.user.setattr(what.handle, shorter);
            cut = done.has_value();
        }
    });
    pass(300s, 1s);
    BOOST_TEST(cut);
    holder.way->loses_calls = 0;
    BOOST_TEST(counts().lost == 1u);
    commit(*f);
    BOOST_TEST(counts().written_by_nfs == 1u);
    BOOST_TEST((there(what) == "w" + letters(2 * block).substr(1)));
    close(*f);
}

BOOST_FIXTURE_TEST_CASE(one_open_file_of_a_client_has_the_layout, layout_world)
{
    join(holder);
    const std::string text = letters(1000);
    const auto what = make("f", text);
    auto f = open(what);
    auto g = open(what, share4::access_read);
    BOOST_TEST((whole(*f) == text));
    BOOST_TEST((whole(*g) == text));
    BOOST_TEST(g->last_reason() == by_nfs::other_file);
    close(*f);
    BOOST_TEST((whole(*g) == text));
    BOOST_TEST(g->has_layout());
    close(*g);
}

BOOST_FIXTURE_TEST_CASE(a_lease_that_may_be_over_is_renewed_by_nfs_first, layout_world)
{
    join(holder);
    const std::string text = letters(1000);
    const auto what = make("f", text);
    auto f = open(what, share4::access_read);
    BOOST_TEST((whole(*f) == text));
    BOOST_TEST(counts().read_by_nfs == 0u);
    // The renewal does not come through.
    holder.wire.decide = [](const sent_compound&) { return direct_transport::fate::is_lost; };
    pass(95s, 1s);
    holder.wire.decide = nullptr;
    BOOST_TEST(read(*f, 0, 10) == text.substr(0, 10));
    BOOST_TEST(counts().read_by_nfs == 10u);
    close(*f);
    // The server asked for the layout when the lease was over. A return that is lost on the way leaves it to the server to take.
    pass(commons->state.options().recall_time + 1s, 1s);
}

BOOST_AUTO_TEST_SUITE_END()
