// SPDX-License-Identifier: Apache-2.0
// What becomes of bytes when a connection, an RDMA layout or the server goes.
#include "nfs4_layout_user.hpp"

#include <verbena/protocols/nfs/server/v4/state_answers.hpp>

BOOST_AUTO_TEST_SUITE(nfs4_layout_client_losses_test)

using namespace verbena;
using namespace verbena::test;

// Rule 8: after a restart nothing is read from where it was written; it is written again by NFS.
BOOST_FIXTURE_TEST_CASE(rule_8_what_a_restart_leaves_in_doubt_is_written_by_nfs, layout_world)
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
    std::vector<device_error4> told;
    holder.wire.on_call = [&](const sent_compound&, std::vector<std::byte>& message) {
        each_sent<LAYOUTERROR4args>(message, [&](const LAYOUTERROR4args& args) {
            BOOST_TEST((args.offset == 0u && args.length == UINT64_MAX));
            for (const device_error4 each : args.errors)
                told.push_back(each);
        });
    };
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
    // The server hears of it as the layout goes back.
    BOOST_TEST_REQUIRE(told.size() == 1u);
    BOOST_TEST((told[0].status == nfsstat4::io));
    BOOST_TEST(told[0].opnum == std::uint32_t(nfs_opnum4::read));
    BOOST_TEST(service->layouts().counts().segments == 0);
    fabric->set_conditions({});
    close(*f);
    BOOST_TEST(told.size() == 1u);
}

// Rule 11: an I/O error means that the layout is gone.
BOOST_FIXTURE_TEST_CASE(rule_11_a_layout_that_was_fenced_is_given_up, layout_world)
{
    join(holder);
    const std::string text = letters(4 * block);
    const auto what = make("f", text);
    stateid4 id;
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::layoutget))
            id = layout_id_in(reply);
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

// What one of them wrote and a lost layout leaves in doubt is written again by any that may write; not by one that is closed.
BOOST_FIXTURE_TEST_CASE(what_is_lost_is_written_again_by_an_open_file_that_may_write, layout_world)
{
    join(holder);
    const auto what = make("f", std::string(3 * block, '.'));
    auto reader = open(what, share4::access_read);
    auto first = open(what);
    auto second = open(what);
    write(*first, 0, "first");
    write(*second, block, "second");
    cut_connections();
    pass(100ms);
    BOOST_TEST(read(*reader, 0, 5) == "first");
    BOOST_TEST(counts().written_by_nfs == 11u);
    // It is stable then: no open file leaves that to the commit of another one.
    BOOST_TEST(first->plain().uncommitted() + second->plain().uncommitted() == 0u);
    // Whatever went by NFS is committed before RDMA writes, whichever of them wrote it.
    pass(2s);
    BOOST_TEST(run([&] { return first->plain().write(0, bytes_of("fIrst")); }).has_value());
    write(*second, 2 * block, "x"); // there is a layout
    BOOST_TEST(run([&] { return first->plain().write(0, bytes_of("First")); }).has_value());
    holder.wire.sent.clear();
    write(*second, 0, "FIRST");
    BOOST_TEST(holder.wire.sent.back().has(nfs_opnum4::commit));
    close(*first);
    close(*second);
    BOOST_TEST(read(*reader, block, 6) == "second");
    BOOST_TEST(read(*reader, 0, 5) == "FIRST");
    close(*reader);
}

// Else a restart would have the server hear of them again, over what another open file has written by RDMA since.
BOOST_FIXTURE_TEST_CASE(what_a_file_that_closes_wrote_by_nfs_is_stable_before_others_write_by_rdma,
                        layout_world)
{
    join(holder);
    const auto what = make("f", std::string(3 * block, '.'));
    auto first = open(what);
    auto second = open(what);
    write(*second, block, "second");
    BOOST_TEST(run([&] { return first->plain().write(0, bytes_of("first")); }).has_value());
    event passes;
    holder.wire.holds_answer = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::commit) ? &passes : nullptr;
    };
    unsigned done = 0;
    tasks.spawn([&]() -> task<void> {
        const auto closed = co_await first->close();
        BOOST_TEST(closed.has_value());
        ++done;
    });
    pass(10ms);
    BOOST_TEST(holder.wire.count(nfs_opnum4::commit) >= 1u);
    const std::uint64_t by_rdma = counts().written_by_rdma;
    tasks.spawn([&]() -> task<void> {
        const auto written = co_await second->write(0, bytes_of("FIRST"));
        BOOST_TEST(written.has_value());
        ++done;
    });
    pass(10ms);
    BOOST_TEST(counts().written_by_rdma == by_rdma);
    holder.wire.holds_answer = nullptr;
    passes.set();
    pass(100ms);
    BOOST_TEST(done == 2u);
    BOOST_TEST(counts().written_by_rdma == by_rdma + 5);
    close(*second);
    BOOST_TEST(there(what).substr(0, 6) == "FIRST.");
}

// Somebody else may have written since: EIO says so by whatever way its bytes would go, and what it wrote is not written again.
BOOST_FIXTURE_TEST_CASE(an_open_file_that_has_lost_its_locks_fails_and_no_other_does, layout_world)
{
    join(holder);
    const auto what = make("f", std::string(3 * block, '.'));
    auto first = open(what);
    auto second = open(what);
    BOOST_TEST(
        run([&] { return first->plain().lock({0, 9}, verbena::files::lock_type::write); }).has_value());
    write(*first, 0, "first");
    write(*second, block, "second");
    restart(false);
    const auto is_told = [](const auto& done) { return !done && done.error() == std::errc::io_error; };
    commit(*second);
    BOOST_TEST(first->plain().has_lost_locks());
    BOOST_TEST(second->uncommitted() == 0u);
    BOOST_TEST(counts().written_by_nfs == 6u);
    BOOST_TEST(is_told(run([&] { return first->commit(); })));
    pass(100s, 1s);
    BOOST_TEST(read(*second, block, 6) == "second");
    BOOST_TEST(second->has_layout());
    BOOST_TEST(is_told(run([&] { return first->read(0, 5); })));
    BOOST_TEST(is_told(run([&] { return first->write(0, bytes_of("FIRST")); })));
    write(*second, 0, "SECOND");
    (void)run([&] { return first->close(); });
    close(*second);
    BOOST_TEST(there(what).substr(0, 7) == "SECOND.");
}

BOOST_FIXTURE_TEST_CASE(a_lease_that_may_be_over_is_renewed_by_nfs_first, layout_world)
{
    join(holder);
    const std::string text = letters(1000);
    const auto what = make("f", text);
    auto f = open(what, share4::access_read);
    BOOST_TEST((whole(*f) == text));
    BOOST_TEST(counts().read_by_nfs == 0u);
    // The renewal does not come through, and no recall.
    holder.wire.decide = [](const sent_compound&) { return direct_transport::fate::is_lost; };
    holder.way->loses_calls = 1000;
    pass(95s, 1s);
    holder.wire.decide = nullptr;
    holder.way->loses_calls = 0;
    BOOST_TEST(f->has_layout());
    BOOST_TEST(read(*f, 0, 10) == text.substr(0, 10));
    BOOST_TEST(counts().read_by_nfs == 10u);
    close(*f);
    // The server asked for the layout when the lease was over. A return that is lost on the way leaves it to the server to take.
    pass(commons->state.options().recall_time + 1s, 1s);
}

BOOST_AUTO_TEST_SUITE_END()
