// SPDX-License-Identifier: Apache-2.0
// Files that our client reads and writes by RDMA layouts of our own server: the client's rules of the draft.
#include "nfs4_layout_user.hpp"

#include <algorithm>

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
    // One layout was enough, and the server is asked whether the end is the end.
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutget) == 1u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::getdeviceinfo) == 1u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::read) == 0u);
    BOOST_TEST(holder.wire.sent.back().has(nfs_opnum4::getattr));
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

// Rule 3 of the client's: what is not there reads as zeros, without I/O.
BOOST_FIXTURE_TEST_CASE(rule_3_a_hole_reads_as_zeros_without_io, layout_world)
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

namespace {

struct kept_files : layout_world {
    kept_files() : layout_world(loop::options().profile, files_are::in_snapshots) {}
};

} // namespace

// A snapshot has the file's blocks, so that the client writes copies of them.
BOOST_FIXTURE_TEST_CASE(rule_1_part_of_a_block_is_merged_and_the_old_memory_never_read_again, kept_files)
{
    join(holder);
    const std::string old = letters(3 * block);
    const auto what = make("f", old);
    const auto place = good([&] { return holder.user.walk(top, "/.snapshot", true); }).handle;
    (void)good([&] { return holder.user.mkdir(place, "s", {}); });
    auto f = open(what);
    const auto extents = good([&] { return f->extents(layoutiomode4::rw); });
    for (const auto state : {pnfs_rdma_extent_state4::read_data, pnfs_rdma_extent_state4::invalid_data})
        BOOST_TEST(std::ranges::count(extents, state, &pnfs_rdma_extent4::state) == 1);
    std::string now = old;
    const auto change = [&](std::uint64_t at, std::string_view text) {
        write(*f, at, text);
        now.replace(static_cast<std::size_t>(at), text.size(), text);
    };
    change(block + 10, "new");
    BOOST_TEST((whole(*f) == now));
    BOOST_TEST((there(what) == old)); // until it is committed
    change(block, "next");            // what is merged already is not read from the old block again
    BOOST_TEST((whole(*f) == now));
    commit(*f);
    BOOST_TEST((there(what) == now));
    change(3 * block - 2, "x"); // a block beside it
    BOOST_TEST((whole(*f) == now));
    close(*f);
    BOOST_TEST(counts().written_by_nfs == 0u);
    BOOST_TEST(counts().read_by_nfs == 0u);
    BOOST_TEST(counts().lost == 0u);
    BOOST_TEST((there(what) == now));
    BOOST_TEST((there(good([&] { return holder.user.walk(place, "/s/f", true); })) == old));
}

// Rules 1 and 2: of uninitialized blocks whole ones are written, with what lay beneath, or zeros.
BOOST_FIXTURE_TEST_CASE(rule_2_a_write_to_uninitialized_memory_fills_its_blocks, layout_world)
{
    join(holder);
    const auto what = make("f", std::string(3 * block, 'o'));
    const deviceid4 device = device_of(what);
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
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::layoutget))
            give_uninitialized(reply, device);
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
    const deviceid4 device = device_of(what);
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
        if (call.has(nfs_opnum4::layoutget))
            give_uninitialized(reply, device);
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
BOOST_FIXTURE_TEST_CASE(rule_7_what_goes_back_has_no_body_and_the_newest_number, layout_world)
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

// RFC 7862 15.7. It costs no call.
BOOST_FIXTURE_TEST_CASE(what_goes_back_tells_how_much_went_by_rdma, layout_world)
{
    join(holder);
    const auto what = make("f", letters(1000));
    std::vector<LAYOUTSTATS4args> told;
    holder.wire.on_call = [&](const sent_compound&, std::vector<std::byte>& message) {
        each_sent<LAYOUTSTATS4args>(message, [&](const LAYOUTSTATS4args& args) {
            BOOST_TEST((args.offset == 0u && args.length == UINT64_MAX));
            BOOST_TEST((args.layout_type == layouttype4::rdma));
            BOOST_TEST(args.update_body.empty());
            BOOST_TEST((args.deviceid != deviceid4()));
            told.push_back(args);
        });
    };
    auto f = open(what);
    holder.wire.sent.clear();
    BOOST_TEST(read(*f, 0, 10) == letters(10));
    BOOST_TEST(read(*f, 10, 20) == letters(30).substr(10));
    write(*f, 0, "new");
    BOOST_TEST(told.empty());
    close(*f);
    BOOST_TEST_REQUIRE(told.size() == 1u);
    BOOST_TEST((told[0].read.count == 2u && told[0].read.bytes == 30u));
    BOOST_TEST((told[0].write.count == 1u && told[0].write.bytes == 3u));
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutreturn) == 1u);
    BOOST_TEST(program->counters().layout_bytes_read.value() == 30u);
    BOOST_TEST(program->counters().layout_bytes_written.value() == 3u);
    // Each byte once, and nothing of a layout by which none went.
    f = open(what);
    BOOST_TEST(read(*f, 0, 5).size() == 5u);
    close(*f);
    BOOST_TEST_REQUIRE(told.size() == 2u);
    BOOST_TEST((told[1].read.bytes == 5u && told[1].write.count == 0u));
    (void)device_of(what);
    BOOST_TEST(told.size() == 2u);
}

BOOST_FIXTURE_TEST_CASE(a_server_that_does_not_count_bytes_is_told_once, layout_world)
{
    join(holder);
    const auto what = make("f", letters(1000));
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::layoutstats))
            refuse_at(reply, 2, nfsstat4::notsupp);
    };
    for (const std::size_t returns : {2u, 3u}) { // again, without it, the first time
        auto f = open(what);
        BOOST_TEST(read(*f, 0, 10) == letters(10));
        close(*f);
        BOOST_TEST(holder.wire.count(nfs_opnum4::layoutreturn) == returns);
        BOOST_TEST(holder.wire.count(nfs_opnum4::layoutstats) == 1u);
        BOOST_TEST(service->layouts().counts().segments == 0);
    }
}

// Rule 10: each user is authorised by OPEN.
BOOST_FIXTURE_TEST_CASE(rule_10_a_file_that_is_open_to_read_is_not_written, layout_world)
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

// Rule 9.
BOOST_FIXTURE_TEST_CASE(rule_9_a_server_that_says_later_is_asked_again_and_then_let_rest, layout_world)
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

// The server has a recall under way that has not come yet, and gives nothing before what it recalls is back.
BOOST_FIXTURE_TEST_CASE(rule_9_a_recall_is_done_with_before_a_layout_is_asked_for_again, layout_world)
{
    join(holder);
    const std::string text = letters(1000);
    const auto what = make("f", text);
    auto f = open(what);
    BOOST_TEST(read(*f, 0, 100) == text.substr(0, 100)); // by a layout to read
    int left = 1;
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::layoutget) && left-- > 0)
            refuse_layout(reply, nfsstat4::recallconflict);
    };
    holder.wire.sent.clear();
    write(*f, 0, "new");
    BOOST_TEST(counts().written_by_rdma == 3u);
    std::string order;
    for (const sent_compound& each : holder.wire.sent)
        order += each.has(nfs_opnum4::layoutget)      ? "get "
                 : each.has(nfs_opnum4::layoutreturn) ? "return "
                                                      : "";
    BOOST_TEST(order == "get return get ");
    close(*f);
    BOOST_TEST(there(what).substr(0, 10) == "new" + text.substr(3, 7));
}

BOOST_FIXTURE_TEST_CASE(rule_9_a_server_in_grace_or_amid_a_recall_is_asked_again_and_then_let_rest,
                        layout_world)
{
    join(holder);
    const std::string text = letters(1000);
    const auto what = make("f", text);
    for (const nfsstat4 status : {nfsstat4::recallconflict, nfsstat4::grace})
        BOOST_TEST_CONTEXT(to_string(status))
        {
            int left = 2;
            holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
                if (call.has(nfs_opnum4::layoutget) && left-- > 0)
                    refuse_layout(reply, status);
            };
            auto f = open(what, share4::access_read);
            holder.wire.sent.clear();
            const auto begun = clock.now();
            const auto before = counts();
            BOOST_TEST(read(*f, 0, 100) == text.substr(0, 100));
            BOOST_TEST(holder.wire.count(nfs_opnum4::layoutget) == 3u);
            BOOST_TEST((clock.now() - begun >= 6ms));
            BOOST_TEST(counts().read_by_rdma == before.read_by_rdma + 100);
            close(*f);
            // In vain: NFS, at once, and for a second without asking.
            left = 1000;
            f = open(what, share4::access_read);
            holder.wire.sent.clear();
            const auto now = clock.now();
            BOOST_TEST(read(*f, 0, 100) == text.substr(0, 100));
            BOOST_TEST(read(*f, 0, 100) == text.substr(0, 100));
            BOOST_TEST((clock.now() - now < 100ms));
            BOOST_TEST(holder.wire.count(nfs_opnum4::layoutget) == 5u);
            BOOST_TEST(counts().read_by_nfs == before.read_by_nfs + 200);
            BOOST_TEST(f->last_reason() == by_nfs::later);
            left = 0;
            pass(2s);
            BOOST_TEST(read(*f, 0, 100) == text.substr(0, 100));
            BOOST_TEST(counts().read_by_rdma == before.read_by_rdma + 200);
            close(*f);
        }
}

BOOST_FIXTURE_TEST_CASE(rule_9_a_file_that_the_server_gives_no_layout_of_is_asked_for_once_per_open,
                        layout_world)
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
    // What were still to be committed would be written again.
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::layoutcommit))
            refuse_at(reply, 2, nfsstat4::badlayout);
    };
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
    const std::string text = letters(100'000);
    const auto what = make("f", text);
    const auto use = [&](auto& f) {
        holder.wire.sent.clear();
        std::string all;
        for (std::string some = "first"; !some.empty(); all += some)
            some = text_of(good([&] { return f.read(all.size(), 30'000); }).data);
        BOOST_TEST((all == text));
        BOOST_TEST_REQUIRE(run([&] { return f.write(0, bytes_of(text)); }).has_value());
        BOOST_TEST_REQUIRE(run([&] { return f.commit(); }).has_value());
        BOOST_TEST_REQUIRE(run([&] { return f.close(); }).has_value());
        std::vector<nfs_opnum4> calls;
        for (const sent_compound& each : holder.wire.sent)
            calls.insert(calls.end(), each.operations.begin(), each.operations.end());
        return calls;
    };
    const auto plain = good([&] { return holder.user.open(what, share4::access_both); });
    const auto by_layout = open(what);
    BOOST_TEST((use(*by_layout) == use(*plain)));
    BOOST_TEST(by_layout->last_reason() == by_nfs::no_server);
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

BOOST_FIXTURE_TEST_CASE(open_files_of_a_client_share_the_layout_and_the_last_one_gives_it_back, layout_world)
{
    join(holder);
    const std::string text = letters(3 * block);
    const auto what = make("f", text);
    holder.wire.sent.clear();
    auto f = open(what);
    auto g = open(what, share4::access_read);
    BOOST_TEST((whole(*f) == text));
    BOOST_TEST((whole(*g) == text));
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutget) == 1u);
    // Each reads what the other one wrote, before anybody else knows of it.
    write(*f, block, "written");
    BOOST_TEST(read(*g, block, 7) == "written");
    BOOST_TEST(counts().read_by_nfs + counts().written_by_nfs == 0u);
    close(*f);
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutreturn) == 0u);
    BOOST_TEST(g->has_layout());
    BOOST_TEST(read(*g, block, 7) == "written");
    BOOST_TEST(counts().read_by_nfs == 0u);
    close(*g);
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutreturn) == 1u);
    turns();
    BOOST_TEST(service->layouts().counts().segments == 0);
    BOOST_TEST(there(what).substr(block, 7) == "written");
}

// No layout is recalled for that: only the server knows where the file ends.
BOOST_FIXTURE_TEST_CASE(a_file_that_others_made_longer_is_read_to_its_new_end, layout_world)
{
    for (const bool requires_layouts : {false, true}) {
        BOOST_TEST_CONTEXT("requires layouts " << requires_layouts)
        {
            join(holder, quick(requires_layouts));
            look(other);
            const std::string text = letters(block - 100);
            const auto what = make(requires_layouts ? "f" : "g", text);
            auto f = open(what, share4::access_read);
            BOOST_TEST(!good([&] { return f->read(0, 1 << 20); }).eof);
            auto theirs = good([&] { return other.user.open(what, share4::access_write); });
            const std::string more = letters(3 * block, 1);
            BOOST_TEST_REQUIRE(run([&] { return theirs->write(text.size(), bytes_of(more)); }).has_value());
            BOOST_TEST_REQUIRE(run([&] { return theirs->close(); }).has_value());
            BOOST_TEST((whole(*f) == text + more));
            BOOST_TEST(counts().read_by_nfs == 0u);
            const auto end = good([&] { return f->read(text.size() + more.size(), 10); });
            BOOST_TEST((end.eof && end.data.empty()));
            close(*f);
            f.reset();
            run([&]() -> task<void> { co_await holder.layouts->close(); });
            holder.layouts.reset();
        }
    }
}

// Its layout went back while it waited for its turn.
BOOST_FIXTURE_TEST_CASE(a_write_behind_the_end_asks_again_for_what_has_gone_back, layout_world)
{
    join(holder);
    const auto what = make("f", letters(10));
    auto f = open(what);
    write(*f, 0, "x"); // so that it has the first block
    event passes;
    holder.wire.holds_answer = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::layoutget) ? &passes : nullptr;
    };
    std::size_t written = 0;
    const auto write_beside = [&](std::uint64_t offset) {
        tasks.spawn([&, offset]() -> task<void> {
            const auto done = co_await f->write(offset, bytes_of("written"));
            BOOST_TEST(done.has_value());
            ++written;
        });
        turns();
    };
    write_beside(3 * block); // has the turn
    tasks.spawn([&]() -> task<void> {
        const auto done = co_await f->truncate(10);
        BOOST_TEST(done.has_value());
    });
    turns();
    write_beside(5 * block); // gets another layout, of other bytes
    write_beside(100);
    holder.wire.holds_answer = nullptr;
    passes.set();
    pass(10s);
    BOOST_TEST(written == 3u);
    BOOST_TEST(counts().lost == 0u);
    close(*f);
    BOOST_TEST(there(what).substr(100, 7) == "written");
}

// What is had goes back while more is asked for.
BOOST_FIXTURE_TEST_CASE(a_list_of_extents_has_all_of_them, layout_world)
{
    service_options.layouts.bytes = 2 * block;
    end();
    begin();
    join(holder);
    const auto what = make("f", letters(6 * block));
    auto f = open(what, share4::access_read);
    std::optional<stateid4> newest;
    std::size_t answers = 0;
    event passes;
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::layoutget))
            newest = layout_id_in(reply);
    };
    holder.wire.holds_answer = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::layoutget) && ++answers == 2 ? &passes : nullptr;
    };
    std::vector<pnfs_rdma_extent4> all;
    tasks.spawn([&]() -> task<void> {
        const auto got = co_await f->extents(layoutiomode4::read);
        BOOST_TEST_REQUIRE(got.has_value());
        all = *got;
    });
    turns();
    BOOST_TEST_REQUIRE(newest.has_value());
    CB_LAYOUTRECALL4args args = recall_of(what);
    args.recall.stateid = *newest;
    args.recall.stateid.seqid += 1;
    BOOST_TEST(call_back(args) == nfsstat4::ok);
    pass(10ms); // it waits for its turn
    passes.set();
    pass(1s);
    BOOST_TEST(counts().recalled == 1u);
    std::uint64_t end = 0;
    for (const pnfs_rdma_extent4& each : all) {
        BOOST_TEST(each.file_offset == end);
        end += each.length;
    }
    BOOST_TEST(end == 6 * block);
    close(*f);
}

// The server has begun the layout anew: what was filled up before is told of all the same.
BOOST_FIXTURE_TEST_CASE(blocks_that_were_filled_up_are_told_of_by_the_next_stateid, layout_world)
{
    service_options.layouts.bytes = 2 * block;
    end();
    begin();
    join(holder);
    const auto what = make("f", std::string(6 * block, 'o'));
    const deviceid4 device = device_of(what);
    std::optional<stateid4> real;
    stateid4 forged;
    std::size_t answers = 0;
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (!call.has(nfs_opnum4::layoutget))
            return;
        give_uninitialized(reply, device);
        real = layout_id_in(reply);
        forged = *real;
        forged.other[0] ^= std::byte(1);
        if (++answers == 2)
            replace(reply, real->other, forged.other);
    };
    std::vector<pnfs_rdma_range4> told;
    holder.wire.on_call = [&](const sent_compound&, std::vector<std::byte>& message) {
        each_sent<LAYOUTCOMMIT4args>(message, [&](const LAYOUTCOMMIT4args& args) {
            xdr::decoder in(args.update_body);
            pnfs_rdma_layoutupdate4 update;
            xdr::codec<pnfs_rdma_layoutupdate4>::decode(in, update);
            for (const pnfs_rdma_range4 r : update.commit_list)
                told.push_back(r);
        });
        if (real)
            replace(message, forged.other, real->other);
    };
    auto f = open(what);
    write(*f, 10, "first");
    write(*f, 4 * block, "second");
    BOOST_TEST(answers == 2u);
    commit(*f);
    BOOST_TEST_REQUIRE(told.size() == 2u);
    BOOST_TEST(told[0].file_offset == 0u);
    BOOST_TEST(told[1].file_offset == 4 * block);
    BOOST_TEST(counts().lost == 0u);
    close(*f);
}

// A client that is killed leaves no more of it than that.
BOOST_FIXTURE_TEST_CASE(a_file_goes_on_a_little_way_behind_what_is_written, layout_world)
{
    constexpr std::uint64_t mib = 1 << 20;
    join(holder);
    const auto what = make("f", "");
    auto f = open(what);
    auto second = open(what);
    f->expect(40 * mib);
    const auto size = [&] { return good([&] { return other.user.getattr(what.handle); }).size; };
    look(other);
    write(*f, 0, letters(block));
    BOOST_TEST(size() > block);
    BOOST_TEST(size() <= block + 8 * mib);
    // What one of them is to write is not what the others are.
    BOOST_TEST(run([&] { return f->truncate(block); }).has_value());
    f->expect(40 * mib);
    pass(2s);
    write(*second, block, "appended");
    BOOST_TEST(size() == block + 8);
    BOOST_TEST(counts().written_by_nfs == 0u);
    close(*f);
    close(*second);
}

// Who waits for its turn to ask hears what the one before was told.
BOOST_FIXTURE_TEST_CASE(a_refusal_counts_for_all_who_wait_to_ask, layout_world)
{
    join(holder);
    const auto what = make("f", letters(4 * block));
    for (const nfsstat4 status : {nfsstat4::serverfault, nfsstat4::layoutunavailable}) {
        auto f = open(what);
        holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
            if (call.has(nfs_opnum4::layoutget))
                refuse_layout(reply, status);
        };
        holder.wire.sent.clear();
        event passes;
        holder.wire.gate = &passes;
        unsigned done = 0;
        for (unsigned i = 0; i < 8; ++i)
            tasks.spawn([&, i]() -> task<void> {
                const auto got = co_await f->read(i * block / 2, 10);
                BOOST_TEST(got.has_value());
                ++done;
            });
        pass(1ms);
        holder.wire.gate = nullptr;
        passes.set();
        pass(100ms);
        BOOST_TEST(done == 8u);
        BOOST_TEST(holder.wire.count(nfs_opnum4::layoutget) == 1u);
        holder.wire.on_reply_to = nullptr;
        close(*f);
        pass(120s, 1s);
    }
}

BOOST_FIXTURE_TEST_CASE(who_gives_up_asking_for_a_layout_keeps_nobody_else_from_it, layout_world)
{
    auto o = quick();
    o.first_wait = o.most_wait = 1s;
    join(holder, o);
    const auto what = make("f", letters(4 * block));
    auto f = open(what);
    holder.wire.on_reply_to = [](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::layoutget))
            refuse_layout(reply, nfsstat4::layouttrylater);
    };
    (void)run([&] { return with_timeout(100ms, f->read(0, 10)); });
    holder.wire.on_reply_to = nullptr;
    BOOST_TEST(read(*f, 0, 10) == letters(10));
    BOOST_TEST(counts().read_by_rdma == 10u);
    close(*f);
}

BOOST_AUTO_TEST_SUITE_END()
