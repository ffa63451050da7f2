// SPDX-License-Identifier: Apache-2.0
// Delegations that our client has of our own server: what they save, what they are recalled for, and what becomes of them when something breaks.
#include "nfs4_two_clients.hpp"

BOOST_AUTO_TEST_SUITE(nfs4_client_delegations_test)

using namespace verbena;
using namespace verbena::test;
using nfs::v4::client;
using nfs::v4::file;
using nfs::v4::new_attributes;
using nfs::v4::open_how;
using fate = direct_transport::fate;

namespace {

using fixture = two_clients;

} // namespace

BOOST_FIXTURE_TEST_CASE(open_and_close_under_a_delegation_make_no_call, fixture)
{
    const auto what = make("f");
    auto first = open(holder, what, share4::access_read);
    BOOST_TEST(holder.user.delegations() == 1u);
    BOOST_TEST(stats().read_delegations.value() == 1);
    holder.wire.sent.clear();
    for (int i = 0; i < 100; ++i) {
        auto again = open(holder, what, share4::access_read);
        BOOST_TEST(again->node().attributes.size == 4u);
        close(*again);
    }
    close(*first);
    auto last = open(holder, what, share4::access_read);
    turns();
    BOOST_TEST(holder.wire.sent.empty());
    BOOST_TEST(holder.user.opens_without_call() == 101u);
    // It reads by what the server knows.
    BOOST_TEST(text_of(*last) == "text");
    BOOST_TEST(holder.wire.sent.size() == 1u);
    // What a read delegation is not good for the server is asked for, and that is no business of the delegation's.
    auto writes = open(holder, what, share4::access_write);
    BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 1u);
    close(*writes);
    BOOST_TEST(holder.wire.count(nfs_opnum4::close) == 1u);
    close(*last);
    BOOST_TEST(holder.wire.count(nfs_opnum4::close) == 1u);
    run([&]() -> task<void> { co_await holder.user.close(); });
    BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == holder.user.returned_delegations());
    BOOST_TEST(holder.wire.sent.back().has(nfs_opnum4::destroy_clientid));
    BOOST_TEST(holder.wire.sent.back().status == nfsstat4::ok); // nothing is left there
}

namespace {

// Our server gives a write delegation to who opens for both alone: that is what it hears.
void ask_for_both(const sent_compound& call, std::vector<std::byte>& message)
{
    if (!call.has(nfs_opnum4::open))
        return;
    xdr::decoder in(message);
    rpc::call_header header;
    BOOST_TEST_REQUIRE((decode(in, header) == rpc::call_verdict::good));
    compound_arguments args(in);
    while (args.next() && args.opcode() != nfs_opnum4::open)
        BOOST_TEST_REQUIRE(args.visit([](const auto&) {}));
    std::byte* const access = message.data() + in.position() + 4;
    xdr::store_u32(access, xdr::load_u32(access) | share4::access_both);
}

// In OPEN's answer behind SEQUENCE and PUTFH, of an open by a handle: an ACE that lets everybody read and write.
void let_everybody(std::vector<std::byte>& reply)
{
    std::size_t at = 24 + 12 + 44 + 8 + 8 + 16 + 20 + 4; // to the attributes that were set
    at += 4 + 4 * xdr::load_u32(reply.data() + at);
    const std::uint32_t type = xdr::load_u32(reply.data() + at);
    at += 4 + 16 + 4 + (type == 2 ? 12 : 0) + 8;
    xdr::store_u32(reply.data() + at, ace4::read_data | ace4::write_data);
    BOOST_TEST_REQUIRE(xdr::load_u32(reply.data() + at + 4) == 0u);
    xdr::store_u32(reply.data() + at + 4, 9);
    const auto text = std::as_bytes(std::span("EVERYONE@\0\0", 12));
    reply.insert(reply.begin() + static_cast<std::ptrdiff_t>(at + 8), text.begin(), text.end());
}

} // namespace

BOOST_FIXTURE_TEST_CASE(a_write_delegation_is_good_for_both, fixture)
{
    const auto what = delegated("f", share4::access_both);
    BOOST_TEST(stats().write_delegations.value() == 1);
    auto reads = open(holder, what, share4::access_read);
    auto writes = open(holder, what, share4::access_write);
    write(*writes, "other");
    BOOST_TEST(text_of(*reads) == "other");
    // Each has the access that it was opened with, although one open of the server's has both.
    const auto refused = run([&] { return reads->write(0, bytes_of("x")); });
    BOOST_TEST_REQUIRE(!refused);
    BOOST_CHECK(refused.error().code() == make_error_code(nfsstat4::openmode));
    BOOST_TEST(!run([&] { return reads->truncate(0); }).has_value());
    BOOST_TEST(!run([&] { return writes->read(0, 10); }).has_value());
    close(*reads);
    close(*writes);
    BOOST_TEST(holder.wire.count(nfs_opnum4::open) + holder.wire.count(nfs_opnum4::close) == 0u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::commit) == 1u);
    // What was opened only to write is not there to be read: the server was not asked whether it may be.
    holder.wire.on_call = ask_for_both;
    const auto half = delegated("g", share4::access_write);
    holder.wire.on_call = nullptr;
    auto whole = open(holder, half, share4::access_read);
    BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 1u);
    close(*whole);
}

BOOST_FIXTURE_TEST_CASE(what_others_open_is_given_back_and_they_see_what_was_written, fixture)
{
    const auto what = delegated("f", share4::access_both);
    auto used = open(holder, what, share4::access_both);
    write(*used, "news");
    auto reads = open(other, what, share4::access_read);
    BOOST_TEST(text_of(*reads) == "news");
    BOOST_TEST(holder.way->calls == 1);
    BOOST_TEST(holder.user.delegations() == 0u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == 1u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 0u); // the open that there is suffices
    // Who has it open goes on, and closes it as ever.
    write(*used, "more");
    BOOST_TEST(text_of(*used) == "more");
    close(*used);
    BOOST_TEST(holder.wire.count(nfs_opnum4::close) == 1u);
    BOOST_TEST(text_of(*reads) == "more");
    close(*reads);
    // What nobody has open is closed with it.
    const auto idle = delegated("g", share4::access_both);
    auto cuts = open(other, idle, share4::access_write);
    BOOST_TEST(holder.wire.count(nfs_opnum4::close) == 1u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == 1u);
    close(*cuts);
    BOOST_TEST(stats().opens.value() ==
               stats().write_delegations.value()); // those that the second client keeps
}

BOOST_FIXTURE_TEST_CASE(a_write_under_way_ends_before_the_delegation_goes_back, fixture)
{
    const auto what = delegated("f", share4::access_both);
    auto used = open(holder, what, share4::access_both);
    event go;
    holder.wire.holds_answer = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::write) ? &go : nullptr;
    };
    scope both(*shard);
    bool wrote = false, opened = false;
    both.spawn([&]() -> task<void> {
        auto done = co_await used->write(0, bytes_of("slow"));
        wrote = done.has_value();
    });
    both.spawn([&]() -> task<void> {
        auto reads = co_await other.user.open(what, share4::access_read);
        opened = reads.has_value();
        if (reads)
            (void)co_await (*reads)->close();
    });
    pass(5s);
    BOOST_TEST(holder.way->calls == 1);
    BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == 0u);
    BOOST_TEST(!opened);
    go.set();
    run([&]() -> task<void> { co_await both.join(); });
    BOOST_TEST(wrote);
    BOOST_TEST(opened);
    // One that does not end is waited for a third of a lease: the server would take the delegation away.
    const auto second = delegated("g", share4::access_both);
    auto slow = open(holder, second, share4::access_both);
    go.reset();
    both.spawn([&]() -> task<void> { (void)co_await slow->write(0, bytes_of("slow")); });
    both.spawn([&]() -> task<void> {
        auto reads = co_await other.user.open(second, share4::access_read);
        if (reads)
            (void)co_await (*reads)->close();
    });
    pass(29s, 100ms);
    BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == 0u);
    pass(3s, 100ms);
    BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == 1u);
    go.set();
    run([&]() -> task<void> { co_await both.join(); });
    holder.wire.holds_answer = nullptr;
    close(*used);
    close(*slow);
}

BOOST_FIXTURE_TEST_CASE(what_only_the_delegation_allows_is_claimed_before_it_goes_back, fixture)
{
    const auto what = make("f");
    holder.wire.on_reply_to = [](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::open))
            let_everybody(reply);
    };
    holder.wire.on_call = ask_for_both;
    auto writes = open(holder, what, share4::access_write);
    holder.wire.on_call = nullptr;
    holder.wire.on_reply_to = nullptr;
    BOOST_TEST(holder.user.delegations() == 1u);
    holder.wire.sent.clear();
    auto reads = open(holder, what, share4::access_read);
    BOOST_TEST(holder.wire.sent.empty());
    BOOST_TEST(text_of(*reads) == "text"); // by the delegation's stateid
    auto conflicts = open(other, what, share4::access_read);
    BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 1u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == 1u);
    for (std::size_t i = 0; i < holder.wire.sent.size(); ++i) {
        BOOST_TEST(holder.wire.sent[i].status == nfsstat4::ok);
        if (holder.wire.sent[i].has(nfs_opnum4::delegreturn))
            BOOST_TEST((i > 0 && holder.wire.sent[i - 1].has(nfs_opnum4::open)));
    }
    BOOST_TEST(text_of(*reads) == "text");
    write(*writes, "next");
    BOOST_TEST(text_of(*reads) == "next");
    BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 1u);
    close(*reads);
    BOOST_TEST(holder.wire.count(nfs_opnum4::close) == 0u);
    close(*writes);
    BOOST_TEST(holder.wire.count(nfs_opnum4::close) == 1u);
    close(*conflicts);
}

BOOST_FIXTURE_TEST_CASE(what_was_locked_is_lost_where_what_is_claimed_is_another_open, fixture)
{
    const auto what = make("f");
    holder.wire.on_reply_to = [](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::open))
            let_everybody(reply);
    };
    holder.wire.on_call = ask_for_both;
    auto writes = open(holder, what, share4::access_write);
    holder.wire.on_call = nullptr;
    BOOST_TEST(holder.user.delegations() == 1u);
    auto reads = open(holder, what, share4::access_read);
    BOOST_TEST(run([&] { return writes->lock({0, 9}, verbena::files::lock_type::write); }).has_value());
    holder.wire.on_reply_to = [](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::open))
            reply[24 + 12 + 44 + 8 + 8 + 15] ^= std::byte(1); // of the open's stateid
    };
    auto conflicts = open(other, what, share4::access_read);
    holder.wire.on_reply_to = nullptr;
    BOOST_TEST(holder.user.delegations() == 0u);
    BOOST_TEST((run([&] { return writes->write(0, bytes_of("x")); }).error() == std::errc::io_error));
    close(*writes);
    close(*reads);
    close(*conflicts);
}

BOOST_FIXTURE_TEST_CASE(a_recall_that_overtakes_the_answer_to_open_gives_it_back_at_once, fixture)
{
    const auto what = make("f");
    event go;
    holder.wire.holds_answer = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::open) ? &go : nullptr;
    };
    scope both(*shard);
    std::unique_ptr<file> first, second;
    both.spawn([&]() -> task<void> {
        auto opened = co_await holder.user.open(what, share4::access_both);
        if (opened)
            first = std::move(*opened);
    });
    turns();
    BOOST_TEST(delegations() == 1u);
    both.spawn([&]() -> task<void> {
        auto opened = co_await other.user.open(what, share4::access_read);
        if (opened)
            second = std::move(*opened);
    });
    pass(3s);
    BOOST_TEST(holder.way->calls == 1); // which was answered: else it would come again
    BOOST_TEST(holder.service.counts().recalls.value() == 1u);
    BOOST_TEST(!second);
    go.set();
    run([&]() -> task<void> { co_await both.join(); });
    BOOST_TEST_REQUIRE(first);
    BOOST_TEST_REQUIRE(second);
    BOOST_TEST(holder.user.delegations() == 0u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == 1u);
    holder.wire.holds_answer = nullptr;
    close(*first);
    close(*second);
    // While no OPEN is under way nobody can have brought it.
    CB_RECALL4args unknown;
    unknown.stateid.other[0] = std::byte(77);
    BOOST_TEST(call_back(unknown) == nfsstat4::bad_stateid);
}

BOOST_FIXTURE_TEST_CASE(an_early_recall_that_no_open_explains_goes_back_by_its_name, fixture)
{
    const auto what = make("f");
    const auto second = make("g");
    event go;
    holder.wire.holds_answer = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::open) ? &go : nullptr;
    };
    scope opening(*shard);
    std::unique_ptr<file> opened;
    opening.spawn([&]() -> task<void> {
        auto done = co_await holder.user.open(what, share4::access_read);
        if (done)
            opened = std::move(*done);
    });
    turns();
    CB_RECALL4args unknown;
    unknown.stateid.other[0] = std::byte(77);
    unknown.fh = what.handle.bytes();
    BOOST_TEST(call_back(unknown) == nfsstat4::ok);
    BOOST_TEST(call_back(unknown) == nfsstat4::ok);
    BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == 0u);
    // One that began later is not waited for.
    event never;
    holder.wire.holds_answer = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::open) ? &never : nullptr;
    };
    scope later(*shard);
    later.spawn([&]() -> task<void> {
        auto done = co_await holder.user.open(second, share4::access_read);
        if (done)
            (void)co_await (*done)->close();
    });
    turns();
    go.set();
    run([&]() -> task<void> { co_await opening.join(); });
    turns();
    holder.wire.holds_answer = nullptr;
    BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == 1u);
    BOOST_TEST(holder.user.delegations() == 1u); // that of the open is another one
    never.set();
    run([&]() -> task<void> { co_await later.join(); });
    BOOST_TEST_REQUIRE(opened);
    close(*opened);
}

BOOST_FIXTURE_TEST_CASE(a_callback_that_refers_to_a_call_under_way_waits, fixture)
{
    const auto what = delegated("f");
    event go;
    holder.wire.holds_answer = [&](const sent_compound&) { return &go; };
    scope looking(*shard);
    looking.spawn([&]() -> task<void> { (void)co_await holder.user.getattr(what.handle); });
    turns();
    BOOST_TEST_REQUIRE(holder.wire.sent.size() == 1u);
    const SEQUENCE4args& under_way = *holder.wire.sent[0].sequence;
    const std::array<referring_call4, 1> calls{{{under_way.sequenceid, under_way.slotid}}};
    std::array<referring_call_list4, 1> lists;
    lists[0].sessionid = holder.wire.session;
    lists[0].referring_calls = std::span<const referring_call4>(calls);
    BOOST_TEST(call_back(CB_RECALL_ANY4args(), lists) == nfsstat4::delay);
    go.set();
    run([&]() -> task<void> { co_await looking.join(); });
    holder.wire.holds_answer = nullptr;
    BOOST_TEST(call_back(CB_RECALL_ANY4args(), lists) == nfsstat4::ok);
    // One that was given up has no answer that anybody waits for.
    const std::array<referring_call4, 1> given_up{{{under_way.sequenceid + 1, under_way.slotid}}};
    lists[0].referring_calls = std::span<const referring_call4>(given_up);
    holder.wire.decide = [](const sent_compound&) { return fate::reply_is_lost; };
    BOOST_TEST(!run([&] { return holder.user.getattr(what.handle); }).has_value());
    holder.wire.decide = nullptr;
    BOOST_TEST(call_back(CB_RECALL_ANY4args(), lists) == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(slots_are_recalled_too, fixture)
{
    BOOST_TEST(holder.user.session().slots() == 64u);
    BOOST_TEST(call_back(CB_RECALL_SLOT4args{4}) == nfsstat4::ok);
    BOOST_TEST(holder.user.session().slots() == 5u);
    BOOST_TEST(call_back(CB_RECALL_SLOT4args{1000}) == nfsstat4::ok);
    BOOST_TEST(holder.user.session().slots() == 64u);
}

BOOST_FIXTURE_TEST_CASE(callbacks_are_signed_and_nobody_else_s_session_is_known, fixture)
{
    const auto what = delegated("f");
    auto writes = open(other, what, share4::access_write);
    BOOST_CHECK(holder.way->signed_as == rpc::auth_flavor::sys);
    close(*writes);
    holder.wire.session[0] ^= std::byte(1);
    BOOST_TEST(call_back(CB_RECALL_ANY4args()) == nfsstat4::badsession);
    // While a session is made, it may be that one.
    holder.wire.session[0] ^= std::byte(1);
    const auto kept = delegated("g");
    bool refuses = true;
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.sequence && std::exchange(refuses, false)) {
            refuse_sequence(reply, nfsstat4::badsession);
        }
    };
    event go;
    holder.wire.holds_answer = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::create_session) ? &go : nullptr;
    };
    scope looking(*shard);
    looking.spawn([&]() -> task<void> { (void)co_await holder.user.getattr(what.handle); });
    turns();
    holder.wire.session[0] ^= std::byte(1);
    BOOST_TEST(call_back(CB_RECALL_ANY4args()) == nfsstat4::delay);
    go.set();
    run([&]() -> task<void> { co_await looking.join(); });
    holder.wire.holds_answer = nullptr;
    holder.wire.on_reply_to = nullptr;
    // The delegation is the client's: the next session is called for it.
    BOOST_TEST(holder.user.delegations() == 1u);
    auto conflicting = open(other, kept, share4::access_write);
    BOOST_TEST(holder.user.delegations() == 0u);
    close(*conflicting);
}

BOOST_FIXTURE_TEST_CASE(a_further_connection_brings_calls_too, fixture)
{
    direct_transport second(*this);
    const auto way = std::make_shared<called_way>(holder.service, pool);
    second.way = way;
    BOOST_TEST(run([&] { return holder.user.session().add_connection(second); }).has_value());
    BOOST_TEST(second.count(nfs_opnum4::bind_conn_to_session) == 1u);
    const auto what = delegated("f");
    holder.way->is_open = false;
    auto writes = open(other, what, share4::access_write);
    BOOST_TEST(way->calls == 1);
    BOOST_TEST(holder.user.delegations() == 0u);
    close(*writes);
    run([&]() -> task<void> { co_await holder.user.close(); });
}

BOOST_FIXTURE_TEST_CASE(a_recall_is_heard_although_calls_and_answers_are_lost, fixture)
{
    const auto what = delegated("f");
    holder.way->loses_calls = 1;
    holder.way->loses_answers = 1;
    auto writes = open(other, what, share4::access_write);
    BOOST_TEST(holder.user.delegations() == 0u);
    BOOST_TEST(holder.service.counts().recalls.value() == 1u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == 1u);
    close(*writes);
}

BOOST_FIXTURE_TEST_CASE(a_way_back_that_broke_is_bound_again, fixture)
{
    const auto what = delegated("f");
    // The connection is another one now.
    holder.way->is_open = false;
    holder.wire.way = holder.way = std::make_shared<called_way>(holder.service, pool);
    BOOST_TEST(good([&] { return holder.user.getattr(what.handle); }).size == 4u);
    turns();
    BOOST_TEST(holder.wire.count(nfs_opnum4::bind_conn_to_session) == 1u);
    BOOST_TEST(holder.user.session().can_be_called());
    pass(20s, 100ms);
    BOOST_TEST(holder.wire.count(nfs_opnum4::bind_conn_to_session) == 1u); // it helped
    BOOST_TEST(holder.user.session().sessions() == 1u);
    auto writes = open(other, what, share4::access_write);
    BOOST_TEST(holder.way->calls == 1);
    BOOST_TEST(holder.user.delegations() == 0u);
    close(*writes);
    // Somebody else wants it while there is no way: the renewal of the lease mends that.
    const auto second = delegated("g");
    holder.way->is_open = false;
    holder.wire.way = holder.way = std::make_shared<called_way>(holder.service, pool);
    const time_point began = clock.now();
    auto waits = open(other, second, share4::access_write);
    BOOST_TEST((clock.now() - began < 90s / 2));
    BOOST_TEST(stats().revocations.value() == 0u);
    close(*waits);
}

BOOST_FIXTURE_TEST_CASE(a_fault_that_stays_makes_a_new_session_and_then_delegations_go_back, fixture)
{
    const auto what = delegated("f");
    bool faulty = true;
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (faulty && call.sequence && xdr::load_u32(reply.data() + 24) == 0)
            xdr::store_u32(reply.data() + 24 + 12 + 8 + 16 + 16, seq4_status::backchannel_fault);
    };
    (void)good([&] { return holder.user.getattr(what.handle); });
    pass(6s);
    BOOST_TEST(holder.user.session().sessions() == 1u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::bind_conn_to_session) == 3u);
    BOOST_TEST(holder.user.delegations() == 1u);
    pass(4s);
    BOOST_TEST(holder.user.session().sessions() == 2u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::destroy_session) == 1u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::exchange_id) == 0u);
    // Nor did that help.
    BOOST_TEST(!holder.user.session().can_be_called());
    BOOST_TEST(holder.user.delegations() == 0u);
    BOOST_TEST(delegations() == 0u);
    auto again = open(holder, what, share4::access_read);
    BOOST_TEST(holder.user.delegations() == 0u);
    close(*again);
    faulty = false;
    (void)good([&] { return holder.user.getattr(what.handle); });
    BOOST_TEST(holder.user.session().can_be_called());
    again = open(holder, what, share4::access_read);
    BOOST_TEST(holder.user.delegations() == 1u);
    close(*again);
    // There is one new session in a lease at most.
    faulty = true;
    pass(40s, 100ms);
    BOOST_TEST(holder.user.session().sessions() == 2u);
}

BOOST_FIXTURE_TEST_CASE(a_restart_leaves_the_delegation_where_it_is_reclaimed, fixture)
{
    const auto what = delegated("f", share4::access_both);
    auto used = open(holder, what, share4::access_both);
    restart(true);
    (void)good([&] { return holder.user.getattr(what.handle); });
    BOOST_TEST(holder.user.delegations() == 1u);
    BOOST_TEST(stats().write_delegations.value() == 1);
    holder.wire.sent.clear();
    auto again = open(holder, what, share4::access_read);
    BOOST_TEST(holder.wire.sent.empty());
    write(*used, "kept");
    BOOST_TEST(text_of(*again) == "kept");
    BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 0u);
    close(*again);
    auto reads = open(other, what, share4::access_read);
    BOOST_TEST(holder.way->calls == 1);
    BOOST_TEST(holder.user.delegations() == 0u);
    BOOST_TEST(text_of(*reads) == "kept");
    close(*reads);
    close(*used);
}

BOOST_FIXTURE_TEST_CASE(a_restart_that_remembers_nobody_takes_the_delegation, fixture)
{
    const auto what = delegated("f");
    auto used = open(holder, what, share4::access_read);
    restart(false);
    (void)good([&] { return holder.user.getattr(what.handle); });
    BOOST_TEST(holder.user.delegations() == 0u);
    BOOST_TEST(text_of(*used) == "text"); // opened again by its handle
    close(*used);
    BOOST_TEST(stats().opens.value() == 0);
}

BOOST_FIXTURE_TEST_CASE(what_the_server_wants_back_after_a_restart_goes_back, fixture)
{
    const auto what = delegated("f");
    holder.way->is_open = false; // so it grants nothing that it could not recall, but for this
    holder.wire.way = nullptr;
    restart(true);
    (void)good([&] { return holder.user.getattr(what.handle); });
    turns();
    BOOST_TEST(holder.user.delegations() == 0u);
    BOOST_TEST(delegations() == 0u);
}

BOOST_FIXTURE_TEST_CASE(what_is_revoked_is_freed_and_opens_ask_again, fixture)
{
    const auto what = delegated("f");
    auto used = open(holder, what, share4::access_read);
    // It hears nothing of the recall, but its lease is renewed.
    holder.way->loses_calls = 1000;
    other.user.session().patience().have(200s, nullptr);
    auto writes = open(other, what, share4::access_write);
    BOOST_TEST(stats().revocations.value() == 1u);
    (void)good([&] { return holder.user.getattr(what.handle); });
    pass(3s, 100ms);
    (void)good([&] { return holder.user.getattr(what.handle); });
    pass(1s);
    BOOST_TEST(holder.user.delegations() == 0u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::free_stateid) == 1u);
    BOOST_TEST(text_of(*used) == "text");
    close(*used);
    close(*writes);
    holder.way->loses_calls = 0;
    pass(1s);
}

BOOST_FIXTURE_TEST_CASE(a_lease_that_may_be_over_answers_no_open, fixture)
{
    const auto what = delegated("f");
    holder.wire.decide = [](const sent_compound&) { return fate::is_lost; };
    pass(91s, 1s);
    holder.wire.decide = nullptr;
    BOOST_TEST(!holder.user.session().lease_holds());
    holder.wire.sent.clear();
    auto opened = open(holder, what, share4::access_read);
    BOOST_TEST(!holder.wire.sent.empty());
    BOOST_TEST(holder.user.opens_without_call() == 0u);
    close(*opened);
}

BOOST_FIXTURE_TEST_CASE(no_more_are_kept_than_are_wanted, fixture)
{
    holder.user.use_delegations(2);
    std::vector<nfs::v4::node> all;
    for (const char* name : {"a", "b", "c", "d"})
        all.push_back(make(name));
    auto used = open(holder, all[0], share4::access_read);
    for (const int i : {1, 2, 1, 3}) {
        auto opened = open(holder, all[static_cast<std::size_t>(i)], share4::access_read);
        close(*opened);
        turns();
        BOOST_TEST(holder.user.delegations() <= 2u);
        BOOST_TEST(delegations() == holder.user.delegations());
    }
    // The one that is in use stayed.
    holder.wire.sent.clear();
    auto same = open(holder, all[0], share4::access_read);
    BOOST_TEST(holder.wire.sent.empty());
    close(*same);
    close(*used);
    holder.user.use_delegations(0);
    turns();
    BOOST_TEST(holder.user.delegations() == 0u);
    BOOST_TEST(delegations() == 0u);
    BOOST_TEST(stats().opens.value() == 0);
    auto plain = open(holder, all[0], share4::access_read);
    BOOST_TEST(delegations() == 0u);
    close(*plain);
}

BOOST_FIXTURE_TEST_CASE(recall_any_gives_back_what_was_used_least_recently, fixture)
{
    std::vector<nfs::v4::node> all;
    for (const char* name : {"a", "b", "c", "d"})
        all.push_back(delegated(name));
    const auto writes = delegated("w", share4::access_both);
    auto used = open(holder, all[1], share4::access_read);
    auto touched = open(holder, all[0], share4::access_read);
    close(*touched);
    CB_RECALL_ANY4args any;
    any.objects_to_keep = 2;
    any.type_mask = {rca4_type::rdata_dlg};
    BOOST_TEST(call_back(any) == nfsstat4::ok);
    turns();
    BOOST_TEST(holder.user.delegations() == 3u);
    BOOST_TEST(stats().write_delegations.value() == 1);
    holder.wire.sent.clear();
    for (const auto& each : {all[0], all[1], writes}) {
        auto opened = open(holder, each, share4::access_read);
        close(*opened);
    }
    BOOST_TEST(holder.wire.sent.empty());
    close(*used);
    any.type_mask = {rca4_type::rdata_dlg, rca4_type::wdata_dlg};
    any.objects_to_keep = 0;
    BOOST_TEST(call_back(any) == nfsstat4::ok);
    turns();
    BOOST_TEST(delegations() == 0u);
    BOOST_TEST(stats().opens.value() == 0);
}

BOOST_FIXTURE_TEST_CASE(others_see_a_file_s_attributes_without_a_recall, fixture)
{
    const auto what = delegated("f", share4::access_both);
    auto used = open(holder, what, share4::access_both);
    write(*used, "longer than it was");
    BOOST_TEST(good([&] { return other.user.getattr(what.handle); }).size == 18u);
    BOOST_TEST(holder.way->calls == 1);
    BOOST_TEST(holder.user.delegations() == 1u);
    CB_GETATTR4args unknown;
    unknown.fh = top.bytes();
    BOOST_TEST(call_back(unknown) == nfsstat4::badhandle);
    close(*used);
}

BOOST_FIXTURE_TEST_CASE(who_changes_the_mode_has_no_delegation_any_more, fixture)
{
    const auto what = delegated("f");
    new_attributes set;
    set.mode = 0;
    BOOST_TEST(run([&] { return holder.user.setattr(what.handle, set); }).has_value());
    BOOST_TEST(holder.user.delegations() == 0u);
    BOOST_TEST(!run([&] { return holder.user.open(what, share4::access_read); }).has_value());
}

BOOST_FIXTURE_TEST_CASE(without_a_way_back_none_is_wanted, fixture)
{
    const auto what = make("f");
    one_client deaf(*this, "deaf");
    deaf.wire.way = nullptr;
    auto opened = open(deaf, what, share4::access_read);
    BOOST_TEST(!deaf.user.session().can_be_called());
    BOOST_TEST(deaf.user.delegations() == 0u);
    BOOST_TEST(deaf.wire.count(nfs_opnum4::delegreturn) == 0u);
    close(*opened);
    run([&]() -> task<void> { co_await deaf.user.close(); });
}

BOOST_FIXTURE_TEST_CASE(a_new_session_without_a_way_back_has_no_delegations, fixture)
{
    const auto what = delegated("f");
    bool refuses = true;
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.sequence && std::exchange(refuses, false))
            refuse_sequence(reply, nfsstat4::badsession);
    };
    holder.wire.way = nullptr;
    (void)good([&] { return holder.user.getattr(what.handle); });
    turns();
    BOOST_TEST(holder.user.session().sessions() == 2u);
    BOOST_TEST(!holder.user.session().can_be_called());
    BOOST_TEST(holder.user.delegations() == 0u);
    BOOST_TEST(delegations() == 0u);
}

BOOST_FIXTURE_TEST_CASE(the_lease_counts_from_the_call_not_from_its_answer, fixture)
{
    const auto what = delegated("f");
    event go;
    holder.wire.holds_answer = [&](const sent_compound&) { return &go; };
    scope looking(*shard);
    looking.spawn([&]() -> task<void> { (void)co_await holder.user.getattr(what.handle); });
    pass(80s, 1s);
    BOOST_TEST(holder.user.session().lease_holds());
    pass(50s, 1s); // the renewal's call was sent after 30 s
    holder.wire.sent.clear();
    go.set();
    turns();
    BOOST_TEST(holder.wire.sent.empty());
    BOOST_TEST(!holder.user.session().lease_holds());
    holder.wire.holds_answer = nullptr;
    run([&]() -> task<void> { co_await looking.join(); });
}

BOOST_FIXTURE_TEST_CASE(a_connection_that_is_bound_brings_calls_at_once, fixture)
{
    const auto what = delegated("f");
    bool refuses = true;
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.sequence && std::exchange(refuses, false))
            refuse_sequence(reply, nfsstat4::conn_not_bound_to_session);
    };
    (void)good([&] { return holder.user.getattr(what.handle); });
    BOOST_TEST_REQUIRE(holder.wire.count(nfs_opnum4::bind_conn_to_session) == 1u);
    for (const sent_compound& each : holder.wire.sent) {
        if (each.bound_as)
            BOOST_TEST((*each.bound_as == channel_dir_from_client4::fore_or_both));
    }
}

BOOST_FIXTURE_TEST_CASE(a_connection_that_leads_nowhere_does_not_hold_up_the_others, fixture)
{
    direct_transport second(*this);
    second.way = std::make_shared<called_way>(holder.service, pool);
    BOOST_TEST(run([&] { return holder.user.session().add_connection(second); }).has_value());
    const auto what = delegated("f");
    event never;
    second.gate = &never;
    std::static_pointer_cast<called_way>(second.way)->is_open = false;
    for (int i = 1; i <= 2; ++i) {
        // The connection is another one now.
        holder.way->is_open = false;
        holder.wire.way = holder.way = std::make_shared<called_way>(holder.service, pool);
        (void)good([&] { return holder.user.getattr(what.handle); });
        pass(31s, 100ms);
        (void)good([&] { return holder.user.getattr(what.handle); });
        BOOST_TEST(holder.wire.count(nfs_opnum4::bind_conn_to_session) >= std::size_t(i));
    }
    auto conflicts = open(other, what, share4::access_write);
    BOOST_TEST(holder.user.delegations() == 0u);
    BOOST_TEST(holder.way->calls == 1);
    close(*conflicts);
    never.set();
    turns();
    run([&]() -> task<void> { co_await holder.user.close(); });
}

BOOST_AUTO_TEST_SUITE_END()
