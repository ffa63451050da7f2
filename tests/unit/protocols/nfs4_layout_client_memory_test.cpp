// SPDX-License-Identifier: Apache-2.0
// Layouts of a client whose memory is spent: what holds memory is committed and goes back all the same.
#include "nfs4_layout_user.hpp"

BOOST_AUTO_TEST_SUITE(nfs4_layout_client_memory_test)

using namespace verbena;
using namespace verbena::test;

BOOST_FIXTURE_TEST_CASE(what_was_written_is_committed_without_memory, layout_world)
{
    join_with_little_memory(holder);
    const auto what = make("f", std::string(3 * block, '.'));
    auto f = open(what);
    write(*f, 0, "written");
    auto all = all_memory();
    bool is_committed = false;
    tasks.spawn([&]() -> task<void> {
        const auto done = co_await f->commit();
        BOOST_TEST(done.has_value());
        is_committed = true;
    });
    pass(100ms);
    BOOST_TEST(is_committed);
    BOOST_TEST(counts().commits == 1u);
    BOOST_TEST(f->uncommitted() == 0u);
    all.clear();
    close(*f);
}

BOOST_FIXTURE_TEST_CASE(what_is_recalled_goes_back_without_memory, layout_world)
{
    join_with_little_memory(holder);
    look(other);
    const auto what = make("f", std::string(3 * block, '.'));
    auto f = open(what);
    write(*f, 0, "written");
    auto all = all_memory();
    new_attributes shorter;
    shorter.size = 2 * block;
    const auto begun = clock.now();
    BOOST_TEST(run([&] { return other.user.setattr(what.handle, shorter); }).has_value());
    BOOST_TEST((clock.now() - begun < 1s));
    pass(100ms);
    BOOST_TEST(counts().returned == 1u);
    BOOST_TEST(!f->has_layout());
    BOOST_TEST(f->uncommitted() == 0u);
    all.clear();
    close(*f);
}

BOOST_FIXTURE_TEST_CASE(what_is_lost_is_written_again_without_memory, layout_world)
{
    join_with_little_memory(holder);
    const auto what = make("f", std::string(3 * block, '.'));
    auto f = open(what);
    write(*f, 0, "written");
    auto all = all_memory();
    cut_connections();
    bool is_committed = false;
    tasks.spawn([&]() -> task<void> {
        const auto done = co_await f->commit();
        BOOST_TEST(done.has_value());
        is_committed = true;
    });
    pass(100ms);
    BOOST_TEST(is_committed);
    BOOST_TEST(counts().written_by_nfs == 7u);
    all.clear();
    close(*f);
    BOOST_TEST(there(what).substr(0, 8) == "written.");
}

BOOST_FIXTURE_TEST_CASE(a_layout_is_asked_for_without_memory_where_there_is_one_already, layout_world)
{
    service_options.layouts.bytes = 2 * block;
    end();
    begin();
    join_with_little_memory(holder);
    const auto what = make("f", std::string(4 * block, '.'));
    auto f = open(what);
    write(*f, 0, "written");
    auto all = all_memory();
    bool is_written = false;
    tasks.spawn([&]() -> task<void> {
        const auto done = co_await f->write(3 * block, bytes_of("too"));
        BOOST_TEST(done.has_value());
        is_written = true;
    });
    pass(100ms);
    BOOST_TEST(is_written);
    BOOST_TEST(counts().got == 2u);
    BOOST_TEST(counts().written_by_nfs == 0u);
    all.clear();
    close(*f);
}

// The memory that commits it was there when a layout was to be asked for, and went with a recall.
BOOST_FIXTURE_TEST_CASE(a_layout_that_was_asked_for_behind_a_recall_is_committed_without_memory, layout_world)
{
    join_with_little_memory(holder);
    const auto what = make("f", std::string(4 * block, '.'));
    auto f = open(what);
    stateid4 id;
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::layoutget) && id == stateid4())
            id = layout_id_in(reply);
    };
    BOOST_TEST(read(*f, 0, 1) == "."); // of a layout to read
    event passes;
    holder.wire.gate = &passes;
    unsigned written = 0;
    const auto begin_to_write = [&](std::uint64_t at) {
        tasks.spawn([&, at]() -> task<void> {
            const auto done = co_await f->write(at, bytes_of("written"));
            BOOST_TEST(done.has_value());
            ++written;
        });
        pass(1ms);
    };
    begin_to_write(0);
    CB_LAYOUTRECALL4args args = recall_of(what);
    args.recall.stateid = id;
    BOOST_TEST(call_back(args) == nfsstat4::ok);
    pass(1ms);
    begin_to_write(block);
    holder.wire.gate = nullptr;
    passes.set();
    pass(1s, 10ms);
    BOOST_TEST(written == 2u);
    BOOST_TEST(counts().returned == 1u);
    BOOST_TEST_REQUIRE(f->has_layout());
    auto all = all_memory();
    bool is_committed = false;
    tasks.spawn([&]() -> task<void> {
        const auto done = co_await f->commit();
        BOOST_TEST(done.has_value());
        is_committed = true;
    });
    pass(100ms);
    BOOST_TEST(is_committed);
    all.clear();
    close(*f);
}

// Whoever gives the layout back may want that memory.
BOOST_FIXTURE_TEST_CASE(a_read_waits_for_a_layout_with_no_memory_in_its_hands, layout_world)
{
    join_with_little_memory(holder);
    const std::string text = letters(8 * block);
    const auto what = make("f", text);
    auto f = open(what, share4::access_read);
    event passes;
    holder.wire.holds_answer = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::layoutget) ? &passes : nullptr;
    };
    std::string got;
    tasks.spawn([&]() -> task<void> {
        const auto some = co_await f->read(0, 4 * block);
        BOOST_TEST_REQUIRE(some.has_value());
        got = text_of(some->data);
    });
    pass(10ms);
    BOOST_TEST(holder.wire.count(nfs_opnum4::layoutget) == 1u);
    BOOST_TEST(little_pool.outstanding_bytes() < block);
    holder.wire.holds_answer = nullptr;
    passes.set();
    pass(100ms);
    BOOST_TEST((got == text.substr(0, 4 * block)));
    close(*f);
}

// All of it may wait to be committed, and nobody else would do that.
BOOST_FIXTURE_TEST_CASE(a_read_without_memory_has_what_was_written_committed, layout_world)
{
    join_with_little_memory(holder);
    const std::string text = letters(8 * block);
    const auto what = make("f", text);
    auto f = open(what);
    BOOST_TEST(read(*f, 0, 1) == text.substr(0, 1));
    {
        lease memory = little_pool.try_acquire(8 * block);
        BOOST_TEST_REQUIRE(bool(memory));
        std::ranges::fill(memory.bytes(), std::byte('w'));
        const auto bytes = memory.bytes();
        BOOST_TEST_REQUIRE(
            run([&] { return f->write(0, rpc::payload(std::move(memory), bytes)); }).has_value());
    }
    auto all = all_memory();
    bool was_read = false;
    tasks.spawn([&]() -> task<void> {
        const auto got = co_await f->read(0, 8 * block);
        BOOST_TEST_REQUIRE(got.has_value());
        BOOST_TEST((text_of(got->data) == std::string(8 * block, 'w')));
        was_read = true;
    });
    pass(100ms);
    BOOST_TEST(was_read);
    BOOST_TEST(counts().read_by_nfs == 0u);
    all.clear();
    close(*f);
}

// Nor is it kept by what went by NFS.
BOOST_FIXTURE_TEST_CASE(a_read_without_memory_has_what_went_by_nfs_committed, layout_world)
{
    join_with_little_memory(holder);
    const std::string text = letters(8 * block);
    const auto what = make("f", text);
    auto f = open(what);
    BOOST_TEST(read(*f, 0, 1) == text.substr(0, 1));
    {
        lease memory = little_pool.try_acquire(8 * block);
        BOOST_TEST_REQUIRE(bool(memory));
        std::ranges::fill(memory.bytes(), std::byte('w'));
        const auto bytes = memory.bytes();
        BOOST_TEST_REQUIRE(
            run([&] { return f->plain().write(0, rpc::payload(std::move(memory), bytes)); }).has_value());
    }
    auto all = all_memory();
    BOOST_TEST_REQUIRE(all.size() > 8u);
    all.resize(all.size() - 8); // for the COMMIT
    bool was_read = false;
    tasks.spawn([&]() -> task<void> {
        const auto got = co_await f->read(0, 8 * block);
        BOOST_TEST_REQUIRE(got.has_value());
        BOOST_TEST((text_of(got->data) == std::string(8 * block, 'w')));
        was_read = true;
    });
    pass(100ms);
    BOOST_TEST(was_read);
    all.clear();
    commit(*f);
    pass(100ms); // or a read that still waits goes on
    close(*f);
}

// Its connection may end while memory is waited for.
BOOST_FIXTURE_TEST_CASE(a_read_that_waited_for_memory_looks_for_its_connection_again, layout_world)
{
    join_with_little_memory(holder);
    const std::string text = letters(4 * block);
    const auto what = make("f", text);
    auto f = open(what, share4::access_read);
    BOOST_TEST(read(*f, 0, 1) == text.substr(0, 1));
    auto all = all_memory();
    std::string got;
    tasks.spawn([&]() -> task<void> {
        const auto some = co_await f->read(0, 4 * block);
        BOOST_TEST_REQUIRE(some.has_value());
        got = text_of(some->data);
    });
    pass(100ms);
    BOOST_TEST(got.empty());
    cut_connections();
    pass(100ms);
    all.clear();
    pass(1s, 10ms);
    BOOST_TEST((got == text));
    BOOST_TEST(counts().lost == 0u);
    BOOST_TEST(counts().read_by_nfs == 0u);
    close(*f);
}

BOOST_AUTO_TEST_SUITE_END()
