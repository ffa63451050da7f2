// SPDX-License-Identifier: Apache-2.0
// What our client does when the server wants RDMA layouts back.
#include "nfs4_layout_user.hpp"

BOOST_AUTO_TEST_SUITE(nfs4_layout_client_recalls_test)

using namespace verbena;
using namespace verbena::test;

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
    CB_LAYOUTRECALL4args args = recall_of(what);
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

// Who closes a file leaves that to a recall that is under way, and another recall may come while it does so.
BOOST_FIXTURE_TEST_CASE(a_recall_that_comes_while_a_file_is_closed_for_another_one_is_heard, layout_world)
{
    join(holder);
    look(other);
    const auto what = make("f", letters(4 * block));
    auto first = open(what);
    auto second = open(what);
    BOOST_TEST(
        run([&] { return first->plain().lock({0, 10}, verbena::files::lock_type::write); }).has_value());
    write(*second, 0, "written");
    const auto cut = [&](std::uint64_t size, bool& is_cut) {
        tasks.spawn([&, size]() -> task<void> {
            new_attributes shorter;
            shorter.size = size;
            const auto done = co_await other.user.setattr(what.handle, shorter);
            BOOST_TEST(done.has_value());
            is_cut = true;
        });
    };
    // The first LAYOUTRETURN is lost, so that the recall is still to be served when the file is closed.
    int lost = 1;
    holder.wire.decide = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::layoutreturn) && lost-- > 0 ? direct_transport::fate::is_lost
                                                                : direct_transport::fate::arrives;
    };
    event passes;
    holder.wire.holds_answer = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::locku) ? &passes : nullptr;
    };
    bool first_cut = false;
    bool second_cut = false;
    bool is_closed = false;
    cut(3 * block, first_cut);
    for (int i = 0; i < 100 && lost > 0; ++i)
        pass(1ms, 1ms);
    BOOST_TEST(lost == 0);
    tasks.spawn([&]() -> task<void> {
        const auto closed = co_await first->close();
        BOOST_TEST(closed.has_value());
        is_closed = true;
    });
    pass(100ms, 1ms);
    BOOST_TEST(first_cut);
    BOOST_TEST(counts().returned == 1u);
    BOOST_TEST(!is_closed);
    pass(120s, 1s); // the server gives none for a while
    BOOST_TEST(read(*second, 0, 7) == "written");
    BOOST_TEST(second->has_layout());
    cut(2 * block, second_cut);
    pass(100ms, 1ms);
    BOOST_TEST(counts().recalled == 2u);
    holder.wire.holds_answer = nullptr;
    passes.set();
    pass(1s, 10ms);
    BOOST_TEST(is_closed);
    BOOST_TEST(second_cut);
    BOOST_TEST(counts().returned == 2u);
    BOOST_TEST(!second->has_layout());
    close(*second);
}

// Nor does it wait for a server that hears no LAYOUTRETURN.
BOOST_FIXTURE_TEST_CASE(who_closes_a_file_does_not_wait_for_a_layout_to_go_back_that_others_use, layout_world)
{
    join(holder);
    look(other);
    const auto what = make("f", letters(4 * block));
    auto first = open(what);
    auto second = open(what);
    write(*second, 0, "written");
    unsigned lost = 0;
    holder.wire.decide = [&](const sent_compound& call) {
        if (!call.has(nfs_opnum4::layoutreturn))
            return direct_transport::fate::arrives;
        ++lost;
        return direct_transport::fate::is_lost;
    };
    tasks.spawn([&]() -> task<void> {
        new_attributes shorter;
        shorter.size = 3 * block;
        (void)co_await other.user.setattr(what.handle, shorter);
    });
    for (int i = 0; i < 100 && lost == 0; ++i)
        pass(1ms, 1ms);
    BOOST_TEST(lost >= 1u);
    bool is_closed = false;
    tasks.spawn([&]() -> task<void> {
        const auto closed = co_await first->close();
        BOOST_TEST(closed.has_value());
        is_closed = true;
    });
    pass(3s, 10ms);
    BOOST_TEST(is_closed);
    BOOST_TEST(counts().returned == 0u);
    holder.wire.decide = nullptr;
    pass(10s, 100ms);
    BOOST_TEST(counts().returned == 1u);
    close(*second);
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
        if (call.has(nfs_opnum4::layoutget))
            newest = layout_id_in(reply);
    };
    auto f = open(what, share4::access_read);
    BOOST_TEST((whole(*f) == text));
    BOOST_TEST(counts().got == 3u);
    CB_LAYOUTRECALL4args args = recall_of(what);
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

// Else the server takes the key under the Read, and the connection ends with all I/O of all files on it.
BOOST_FIXTURE_TEST_CASE(a_layout_goes_back_when_a_read_that_nobody_waits_for_has_ended, layout_world)
{
    auto o = quick();
    o.connections.connections = 1;
    join(holder, o);
    const std::string text = letters(4 * block);
    const auto what = make("f", text);
    const auto another = make("g", text);
    for (const bool writes : {false, true}) {
        auto f = open(what);
        auto g = open(another);
        BOOST_TEST(read(*f, 0, 10) == text.substr(0, 10));
        BOOST_TEST(read(*g, 0, 10) == text.substr(0, 10));
        if (writes)
            write(*f, 0, std::string_view(text).substr(0, 10));
        loop::conditions slow;
        slow.latency = 1s;
        fabric->set_conditions(slow);
        if (writes)
            BOOST_TEST(!run([&] {
                            return with_timeout(
                                100ms, f->write(0, bytes_of(std::string_view(text).substr(0, block))));
                        }).has_value());
        else
            BOOST_TEST(!run([&] { return with_timeout(100ms, f->read(0, 3 * block)); }).has_value());
        close(*f);
        pass(5s, 100ms);
        fabric->set_conditions({});
        BOOST_TEST(read(*g, 10, 10) == text.substr(10, 10));
        BOOST_TEST(counts().lost == 0u);
        BOOST_TEST(holder.layouts->connections().count().made == 1u);
        close(*g);
    }
}

// One that takes its time keeps no other from going back.
BOOST_FIXTURE_TEST_CASE(files_that_are_recalled_go_back_side_by_side, layout_world)
{
    join(holder);
    const auto one_file = make("f", letters(1000));
    const auto another = make("g", letters(1000, 1));
    auto f = open(one_file);
    auto g = open(another);
    write(*f, 0, "f");
    BOOST_TEST(read(*g, 0, 1) == letters(1, 1));
    event passes;
    holder.wire.holds_answer = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::layoutcommit) ? &passes : nullptr;
    };
    CB_LAYOUTRECALL4args args = recall_of(one_file);
    args.recall.recalltype = layoutrecall_type4::all;
    BOOST_TEST(call_back(args) == nfsstat4::ok);
    pass(100ms);
    BOOST_TEST((f->has_layout() && !g->has_layout()));
    holder.wire.holds_answer = nullptr;
    passes.set();
    pass(100ms);
    BOOST_TEST(!f->has_layout());
    close(*f);
    close(*g);
}

BOOST_AUTO_TEST_SUITE_END()
