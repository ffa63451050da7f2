// SPDX-License-Identifier: Apache-2.0
// Clients, sessions, slots, and what a COMPOUND may contain.
#include "nfs4_log_lines.hpp"
#include "nfs4_server.hpp"

BOOST_AUTO_TEST_SUITE(nfs4_server_sessions_test)

using namespace verbena;
using namespace verbena::test;

namespace {

CREATE4args directory(std::string_view name)
{
    CREATE4args args;
    args.objtype.type = nfs_ftype4::dir;
    args.objname = name;
    return args;
}

} // namespace

struct fixture : nfs4_fixture {
    fixture() { client.connect(); }
    client4 client{*this, "a"};
};

BOOST_FIXTURE_TEST_CASE(a_client_reads_the_root, fixture)
{
    const bitmap4 wanted{attribute::type, attribute::fsid, attribute::lease_time};
    answer4 out = client.call(PUTROOTFH4args(), GETATTR4args{wanted});
    out.good<PUTROOTFH4res>();
    attributes values;
    BOOST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
    BOOST_CHECK(values.present == wanted);
    BOOST_CHECK(values.type == nfs_ftype4::dir);
    BOOST_TEST(values.lease_time == 90u);
}

BOOST_FIXTURE_TEST_CASE(a_repeat_is_answered_from_its_slot, fixture)
{
    const SEQUENCE4args sequence = client.sequence(1, true);
    const auto make = [&] {
        return compound(sequence, PUTROOTFH4args(), LOOKUP4args{"export"}, directory("d"));
    };
    answer4 first = make();
    BOOST_TEST(first.status() == nfsstat4::ok);
    answer4 again = make();
    BOOST_CHECK(first.bytes() == again.bytes());
    // A failure is kept too.
    const SEQUENCE4args next = client.sequence(1, true);
    answer4 failed = compound(next, PUTROOTFH4args(), LOOKUP4args{"export"}, directory("d"));
    BOOST_TEST(failed.status() == nfsstat4::exist);
    client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, REMOVE4args{"d"});
    BOOST_TEST(compound(next, PUTROOTFH4args(), LOOKUP4args{"export"}, directory("d")).status() ==
               nfsstat4::exist);
}

BOOST_FIXTURE_TEST_CASE(a_repeat_of_what_was_not_kept_says_so, fixture)
{
    const SEQUENCE4args sequence = client.sequence(1, false);
    compound(sequence, PUTROOTFH4args());
    answer4 again = compound(sequence, PUTROOTFH4args());
    BOOST_TEST(again.good<SEQUENCE4res>().sequenceid == sequence.sequenceid);
    BOOST_TEST(again.take<PUTROOTFH4res>().status == nfsstat4::retry_uncached_rep);
    // A SEQUENCE that stood alone is answered in full.
    const SEQUENCE4args alone = client.sequence(2, false);
    compound(alone);
    BOOST_TEST(compound(alone).status() == nfsstat4::ok);
}

// 8881 2.10.6.1.3.1.
BOOST_FIXTURE_TEST_CASE(a_repeat_is_told_from_a_call_that_only_begins_like_it, fixture)
{
    const std::string name(100, 'd');
    const std::string_view long_name = name;
    std::uint32_t slot = 0;
    // `again` behind the same long way, in a call with the number of the one that did `first`.
    const auto comes_again = [&](const auto& first, const auto& again) -> std::string {
        const SEQUENCE4args sequence = client.sequence(slot++ % 4, true);
        const auto ask = [&](const auto& last) {
            return compound(sequence, PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{long_name}, last);
        };
        const answer4 one = ask(first);
        const answer4 other = ask(again);
        return std::ranges::equal(one.bytes(), other.bytes()) ? "a repeat" : to_string(other.status());
    };
    CREATE4args made;
    made.objtype.type = nfs_ftype4::dir;
    made.objname = long_name;
    BOOST_TEST(client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, made).status() == nfsstat4::ok);
    made.objname = "a";
    CREATE4args other = made;
    other.objname = "b";
    BOOST_TEST(comes_again(made, made) == "a repeat");
    BOOST_TEST(comes_again(other, REMOVE4args{"b"}) == "NFS4ERR_SEQ_FALSE_RETRY");
    BOOST_TEST(comes_again(REMOVE4args{"a"}, REMOVE4args{"b"}) == "NFS4ERR_SEQ_FALSE_RETRY");
    BOOST_TEST(comes_again(made, other) == "NFS4ERR_SEQ_FALSE_RETRY");
    // Pages of a file may have changed when a client sends them again.
    const auto writing = [](std::string_view text, std::uint64_t offset) {
        return WRITE4args{{}, offset, stable_how4::unstable, std::as_bytes(std::span(text))};
    };
    BOOST_TEST(comes_again(writing("data", 0), writing("DATA", 0)) == "a repeat");
    BOOST_TEST(comes_again(writing("data", 0), writing("data", 8)) == "NFS4ERR_SEQ_FALSE_RETRY");
    BOOST_TEST(comes_again(writing("data", 0), writing("more data", 0)) == "NFS4ERR_SEQ_FALSE_RETRY");
}

BOOST_FIXTURE_TEST_CASE(slots_refuse_what_is_out_of_turn, fixture)
{
    SEQUENCE4args sequence = client.sequence();
    const auto status_of = [&](const SEQUENCE4args& s) { return compound(s, PUTROOTFH4args()).status(); };
    SEQUENCE4args bad = sequence;
    ++bad.sequenceid;
    BOOST_TEST(status_of(bad) == nfsstat4::seq_misordered);
    bad = sequence;
    bad.slotid = 4;
    BOOST_TEST(status_of(bad) == nfsstat4::badslot);
    bad = sequence;
    bad.highest_slotid = 4;
    BOOST_TEST(status_of(bad) == nfsstat4::bad_high_slot);
    bad = sequence;
    bad.sessionid[15] ^= std::byte(1);
    BOOST_TEST(status_of(bad) == nfsstat4::badsession);
    bad = sequence;
    bad.slotid = 3;
    bad.sequenceid = 0;
    BOOST_TEST(status_of(bad) == nfsstat4::seq_misordered);
    // None of them used the slot.
    BOOST_TEST(status_of(sequence) == nfsstat4::ok);
    // The same sequence for something else, or by somebody else.
    BOOST_TEST(compound(sequence, PUTROOTFH4args(), GETFH4args()).status() == nfsstat4::seq_false_retry);
    user->uid = 1001;
    BOOST_TEST(status_of(sequence) == nfsstat4::seq_false_retry);
}

BOOST_FIXTURE_TEST_CASE(a_call_keeps_to_the_session_s_limits, fixture)
{
    SEQUENCE4args sequence = client.sequence();
    answer4 many = send(1, [&](compound_request& out) {
        out.add(sequence);
        for (int i = 0; i < 16; ++i)
            out.add(PUTROOTFH4args());
    });
    BOOST_TEST(many.take<SEQUENCE4res>().status == nfsstat4::too_many_ops);
    CREATE_SESSION4args small = client4::session_of(client.id, client.create_sequence++);
    small.fore_chan_attrs.maxrequestsize = 400;
    small.fore_chan_attrs.maxresponsesize = 400;
    small.fore_chan_attrs.maxresponsesize_cached = 120;
    answer4 made = compound(small);
    client.session = made.good<CREATE_SESSION4res>().sessionid;
    client.sequences.clear();
    BOOST_TEST(client.call(PUTROOTFH4args(), LOOKUP4args{std::string_view(std::string(400, 'n'))}).status() ==
               nfsstat4::req_too_big);
    // The largest result there may be does not fit, so that nothing was made.
    BOOST_TEST(compound(client.sequence(0, true), PUTROOTFH4args(), LOOKUP4args{"export"}, directory("d"))
                   .status() == nfsstat4::rep_too_big_to_cache);
    BOOST_TEST(client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"d"}).status() ==
               nfsstat4::noent);
}

BOOST_FIXTURE_TEST_CASE(without_memory_a_call_is_to_come_again, fixture)
{
    const SEQUENCE4args sequence = client.sequence();
    no_memory = true;
    answer4 out = compound(sequence, PUTROOTFH4args());
    BOOST_TEST(out.take<SEQUENCE4res>().status == nfsstat4::delay);
    no_memory = false;
    BOOST_TEST(compound(sequence, PUTROOTFH4args()).status() == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(results_that_find_no_memory_are_to_come_again, fixture)
{
    CREATE_SESSION4args wide = client4::session_of(client.id, client.create_sequence);
    wide.fore_chan_attrs.maxoperations = 64;
    client.session = compound(wide).good<CREATE_SESSION4res>().sessionid;
    client.sequences.clear();
    const auto ask = [&] {
        return send(1, [&](compound_request& out) {
            out.add(client.sequence());
            out.add(PUTROOTFH4args());
            for (int i = 0; i < 40; ++i)
                out.add(GETATTR4args{bitmap4{
                    attribute::supported_attrs, attribute::type, attribute::owner, attribute::owner_group,
                    attribute::time_access, attribute::time_modify, attribute::time_metadata,
                    attribute::suppattr_exclcreat, attribute::filehandle, attribute::maxread,
                    attribute::maxwrite, attribute::space_avail, attribute::space_free,
                    attribute::space_total, attribute::files_avail, attribute::files_free}});
        });
    };
    reserves = 1;
    BOOST_TEST(ask().status() == nfsstat4::delay);
    reserves = INT_MAX;
    BOOST_TEST(ask().status() == nfsstat4::ok);
}

// What is done can't be taken back for want of room for its answer.
BOOST_FIXTURE_TEST_CASE(sessions_operations_ask_for_room_first, fixture)
{
    client4 fresh(*this, "fresh");
    fresh.id = compound(fresh.exchange()).good<EXCHANGE_ID4res>().clientid;
    CREATE_SESSION4args tiny = client4::session_of(fresh.id, 1);
    tiny.fore_chan_attrs.maxresponsesize_cached = 94; // header, head, SEQUENCE, and one failure
    fresh.session = compound(tiny).good<CREATE_SESSION4res>().sessionid;
    const SEQUENCE4args kept = fresh.sequence(0, true);
    BOOST_TEST(compound(kept, client4::reclaimed()).status() == nfsstat4::rep_too_big_to_cache);
    BOOST_TEST(compound(fresh.sequence(0, true), DESTROY_SESSION4args{fresh.session}).status() ==
               nfsstat4::rep_too_big_to_cache);
    BOOST_TEST(fresh.call(client4::reclaimed()).status() == nfsstat4::ok);
}

// Opens f, and writes what does not come.
struct lost_data_fixture : fixture {
    /// Nothing where the call is dropped.
    std::optional<answer4> send_lost(const SEQUENCE4args& sequence, bool creates, std::errc why)
    {
        memory_call c(pool, from);
        c.pull_fails = why;
        xdr::encoder out = c.begin(100003, 4, 1, &*user);
        compound_head head;
        head.minorversion = 1;
        compound_request request(out, head);
        request.add(sequence).add(PUTROOTFH4args()).add(LOOKUP4args{"export"});
        request.add(creates ? client.creating("f", createmode4::guarded) : client.opening("f"));
        WRITE4args data{stateid4::current(), 0, stable_how4::unstable, {}};
        data.data.length = 4;
        data.data.external = true;
        request.add(data);
        c.end(out, std::vector<std::byte>(4));
        if (!run_until_complete(*shard, dispatcher->dispatch(c)))
            return std::nullopt;
        xdr::decoder in = c.reply();
        return std::optional<answer4>(in);
    }
};

BOOST_FIXTURE_TEST_CASE(what_was_changed_before_data_are_lost_is_not_done_again, lost_data_fixture)
{
    const SEQUENCE4args sequence = client.sequence(0, true);
    BOOST_TEST(!send_lost(sequence, true, std::errc::connection_aborted));
    // Over a new connection. It hears that the file was made, and that WRITE is to come again.
    auto again = send_lost(sequence, true, std::errc::connection_aborted);
    BOOST_TEST_REQUIRE(again.has_value());
    BOOST_TEST(again->status() == nfsstat4::delay);
    BOOST_TEST(again->operations() == 5u);
    // One that kept nothing hears that, and does nothing again either.
    const SEQUENCE4args unkept = client.sequence(0, false);
    BOOST_TEST(!send_lost(unkept, false, std::errc::connection_aborted));
    again = send_lost(unkept, false, std::errc::connection_aborted);
    BOOST_TEST_REQUIRE(again.has_value());
    BOOST_TEST(again->status() == nfsstat4::retry_uncached_rep);
}

BOOST_FIXTURE_TEST_CASE(data_that_lie_nowhere_are_no_arguments, lost_data_fixture)
{
    const auto out = send_lost(client.sequence(0, true), true, std::errc::bad_message);
    BOOST_TEST_REQUIRE(out.has_value());
    BOOST_TEST(out->status() == nfsstat4::badxdr);
}

BOOST_FIXTURE_TEST_CASE(a_denied_lock_tells_nobody_s_number, fixture)
{
    client4 other(*this, "b");
    other.connect();
    const auto held = client.open(client.creating("f"));
    const auto wants = other.open(other.opening("f"));
    LOCK4args args;
    args.locktype = nfs_lock_type4::write;
    args.length = 10;
    args.locker.new_lock_owner = true;
    args.locker.open_stateid = held.id;
    args.locker.lock_owner.owner = std::as_bytes(std::span("x", 1));
    BOOST_TEST(client.call(PUTFH4args{client4::handle_of(held)}, args).status() == nfsstat4::ok);
    args.locker.open_stateid = wants.id;
    answer4 out = other.call(PUTFH4args{client4::handle_of(wants)}, args);
    out.good<PUTFH4res>();
    const auto res = out.take<LOCK4res>();
    BOOST_TEST(res.status == nfsstat4::denied);
    BOOST_TEST(res.denied.owner.owner.size() == 1u);
    BOOST_TEST(res.denied.owner.clientid == 0u);
}

BOOST_FIXTURE_TEST_CASE(arguments_that_lie_in_two_pieces_are_too_big, fixture)
{
    const std::string name(200, 'n');
    in_one_piece = 256;
    answer4 out = client.call(PUTROOTFH4args(), LOOKUP4args{std::string_view(name)});
    out.good<PUTROOTFH4res>();
    BOOST_TEST(out.take<LOOKUP4res>().status == nfsstat4::req_too_big);
    in_one_piece = 0;
    BOOST_TEST(client.call(PUTROOTFH4args(), LOOKUP4args{std::string_view(name)}).status() ==
               nfsstat4::noent);
}

BOOST_FIXTURE_TEST_CASE(operations_have_their_places, fixture)
{
    BOOST_TEST(compound(PUTROOTFH4args()).status() == nfsstat4::op_not_in_session);
    BOOST_TEST(compound(client.exchange(), PUTROOTFH4args()).status() == nfsstat4::not_only_op);
    BOOST_TEST(client.call(PUTROOTFH4args(), client.sequence(1)).status() == nfsstat4::sequence_pos);
    --client.sequences[1];
    BOOST_TEST(compound().status() == nfsstat4::ok);
    for (const std::uint32_t minor : {0u, 3u}) {
        answer4 out = send(minor, [](compound_request& r) { r.add(PUTROOTFH4args()); });
        BOOST_TEST(out.status() == nfsstat4::minor_vers_mismatch);
        BOOST_TEST(out.operations() == 0u);
    }
    // Known and not served; the first failure ends the call.
    answer4 out = client.call(PUTROOTFH4args(), OPENATTR4args(), PUTROOTFH4args());
    BOOST_TEST(out.status() == nfsstat4::notsupp);
    BOOST_TEST(out.operations() == 3u);
    // Of another minor version: one that there is none of.
    BOOST_TEST(client.call(PUTROOTFH4args(), SEEK4args()).status() == nfsstat4::op_illegal);
    BOOST_TEST(client.call(GETFH4args()).status() == nfsstat4::nofilehandle);
    BOOST_TEST(client.call(RESTOREFH4args()).status() == nfsstat4::nofilehandle);
}

BOOST_FIXTURE_TEST_CASE(a_client_that_restarts_loses_its_sessions_when_it_is_confirmed, fixture)
{
    client4 after(*this, "a", 2);
    answer4 known = compound(after.exchange());
    after.id = known.good<EXCHANGE_ID4res>().clientid;
    BOOST_TEST(after.id != client.id);
    BOOST_TEST(client.call(PUTROOTFH4args()).status() == nfsstat4::ok);
    after.open_session();
    BOOST_TEST(client.call(PUTROOTFH4args()).status() == nfsstat4::badsession);
}

BOOST_FIXTURE_TEST_CASE(exchange_id_follows_its_table, fixture)
{
    answer4 again = compound(client.exchange());
    const auto same = again.good<EXCHANGE_ID4res>();
    BOOST_TEST(same.clientid == client.id);
    BOOST_TEST(same.flags == (exchgid4::use_non_pnfs | exchgid4::confirmed_r));
    EXCHANGE_ID4args args = client.exchange();
    args.flags = exchgid4::upd_confirmed_rec_a;
    BOOST_TEST(compound(args).status() == nfsstat4::ok);
    args.clientowner.verifier[0] = std::byte(9);
    BOOST_TEST(compound(args).status() == nfsstat4::not_same);
    args.clientowner.ownerid = std::as_bytes(std::span("z", 1));
    BOOST_TEST(compound(args).status() == nfsstat4::noent);
    args.flags = exchgid4::confirmed_r;
    BOOST_TEST(compound(args).status() == nfsstat4::inval);
    user->uid = 1001;
    BOOST_TEST(compound(client.exchange()).status() == nfsstat4::clid_inuse);
    EXCHANGE_ID4args update = client.exchange();
    update.flags = exchgid4::upd_confirmed_rec_a;
    BOOST_TEST(compound(update).status() == nfsstat4::perm);
}

// Nor is a session told to whoever knows the client's number: what it repeats is not its own.
BOOST_FIXTURE_TEST_CASE(another_user_creates_no_session_of_a_client, fixture)
{
    const CREATE_SESSION4args repeated = client4::session_of(client.id, client.create_sequence - 1);
    BOOST_TEST(compound(repeated).status() == nfsstat4::ok);
    user->uid = 1001;
    BOOST_TEST(compound(repeated).status() == nfsstat4::clid_inuse);
    BOOST_TEST(compound(client4::session_of(client.id, client.create_sequence)).status() ==
               nfsstat4::clid_inuse);
    user->uid = 1000;
    BOOST_TEST(compound(client4::session_of(client.id, client.create_sequence)).status() == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(numbers_of_clients_do_not_follow_each_other, fixture)
{
    clientid4 before = client.id;
    for (const char* name : {"b", "c", "d"}) {
        answer4 known = compound(client4(*this, name).exchange());
        const clientid4 id = known.good<EXCHANGE_ID4res>().clientid;
        BOOST_TEST((id >> 32) == (before >> 32));
        BOOST_TEST(((id ^ before) & 0xffff'0000) != 0u);
        before = id;
    }
}

BOOST_FIXTURE_TEST_CASE(a_client_that_is_gone_can_be_forgotten, fixture)
{
    const result<void> forgotten = run_until_complete(*shard, commons->state.forget(12345));
    BOOST_TEST(forgotten.has_value());
}

BOOST_FIXTURE_TEST_CASE(create_session_has_a_slot_of_its_own, fixture)
{
    CREATE_SESSION4args args = client4::session_of(client.id, client.create_sequence);
    CREATE_SESSION4args tiny = args;
    tiny.fore_chan_attrs.maxrequests = 0;
    // What is too small can be asked for again, with the same number.
    for (int i = 0; i < 3; ++i)
        BOOST_TEST(compound(tiny).status() == nfsstat4::toosmall);
    // A back channel that none can be, also where none is asked for; one that says nothing at all means none.
    tiny = args;
    tiny.back_chan_attrs.maxoperations = 1;
    BOOST_TEST(compound(tiny).status() == nfsstat4::toosmall);
    args.back_chan_attrs = {};
    answer4 made = compound(args);
    answer4 again = compound(args);
    BOOST_CHECK(made.bytes() == again.bytes());
    args.sequence += 2;
    BOOST_TEST(compound(args).status() == nfsstat4::seq_misordered);
    args.clientid ^= 1;
    BOOST_TEST(compound(args).status() == nfsstat4::stale_clientid);
    // A client that goes no further is dropped after a lease.
    client4 idle(*this, "idle");
    const clientid4 id = compound(idle.exchange()).good<EXCHANGE_ID4res>().clientid;
    clock.advance(91s);
    BOOST_TEST(compound(client4::session_of(id, 1)).status() == nfsstat4::stale_clientid);
}

BOOST_FIXTURE_TEST_CASE(what_was_destroyed_is_gone, fixture)
{
    const sessionid4 first = client.session;
    BOOST_TEST(compound(DESTROY_CLIENTID4args{client.id}).status() == nfsstat4::clientid_busy);
    client.open_session();
    BOOST_TEST(compound(DESTROY_SESSION4args{first}).status() == nfsstat4::ok);
    BOOST_TEST(compound(SEQUENCE4args{first, 2, 0, 0, false}).status() == nfsstat4::badsession);
    // Of the own session only at the end.
    BOOST_TEST(client.call(DESTROY_SESSION4args{client.session}, PUTROOTFH4args()).status() ==
               nfsstat4::not_only_op);
    BOOST_TEST(client.call(DESTROY_SESSION4args{client.session}).status() == nfsstat4::ok);
    BOOST_TEST(compound(DESTROY_CLIENTID4args{client.id}).status() == nfsstat4::ok);
    BOOST_TEST(compound(DESTROY_CLIENTID4args{client.id}).status() == nfsstat4::stale_clientid);
    BOOST_TEST(commons->sessions.sessions() == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_client_without_a_lease_gives_way, fixture)
{
    const auto held = client.open(client.creating("f"));
    BOOST_TEST_REQUIRE(held.status == nfsstat4::ok);
    const auto denying = client.open(client.opening("f", share4::access_read, share4::deny_write));
    BOOST_TEST(denying.status == nfsstat4::share_denied); // the same owner's other open writes
    BOOST_TEST(client.call(PUTFH4args{client4::handle_of(held)}, CLOSE4args{0, held.id}).status() ==
               nfsstat4::ok);
    BOOST_TEST_REQUIRE(client.open(client.opening("f", share4::access_read, share4::deny_write)).status ==
                       nfsstat4::ok);
    client4 other(*this, "b");
    other.connect();
    BOOST_TEST(other.open(other.opening("f")).status == nfsstat4::share_denied);
    // Whoever sends something keeps its lease.
    for (int i = 0; i < 3; ++i) {
        clock.advance(60s);
        BOOST_TEST(client.call(PUTROOTFH4args()).status() == nfsstat4::ok);
        BOOST_TEST(other.call(PUTROOTFH4args()).status() == nfsstat4::ok);
    }
    BOOST_TEST(other.open(other.opening("f")).status == nfsstat4::share_denied);
    clock.advance(60s);
    BOOST_TEST(other.call(PUTROOTFH4args()).status() == nfsstat4::ok);
    clock.advance(60s);
    BOOST_TEST(other.open(other.opening("f")).status == nfsstat4::ok);
    // It learns that all is lost, and begins anew.
    BOOST_TEST(client.call(PUTROOTFH4args()).status() == nfsstat4::badsession);
    client.connect();
    BOOST_TEST(client.open(client.opening("f", share4::access_read)).status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(clients_that_went_are_dropped, fixture)
{
    client4 idle(*this, "idle");
    idle.connect();
    client4 holding(*this, "holding");
    holding.connect();
    BOOST_TEST(holding.open(holding.creating("f")).status == nfsstat4::ok);
    compound(client4(*this, "half").exchange());
    BOOST_TEST(commons->sessions.clients() == 4u);
    tasks.spawn([this] { return commons->tend(); });
    const auto pass = [&](duration d) {
        clock.advance(d);
        for (int i = 0; i < 20; ++i)
            shard->turn();
    };
    pass(60s);
    BOOST_TEST(client.call(PUTROOTFH4args()).status() == nfsstat4::ok);
    pass(40s); // the others' leases are over, and the first look has been had
    BOOST_TEST(client.call(PUTROOTFH4args()).status() == nfsstat4::ok);
    BOOST_TEST(commons->sessions.clients() == 2u);
    BOOST_TEST(idle.call(PUTROOTFH4args()).status() == nfsstat4::badsession);
    BOOST_TEST(holding.call(PUTROOTFH4args()).status() == nfsstat4::ok);
    tasks.request_stop();
    for (int i = 0; i < 20; ++i)
        shard->turn();
}

BOOST_FIXTURE_TEST_CASE(reclaims_end_before_opens_begin, nfs4_fixture)
{
    client4 fresh(*this, "c");
    fresh.id = compound(fresh.exchange()).good<EXCHANGE_ID4res>().clientid;
    fresh.open_session();
    BOOST_TEST(fresh.open(fresh.creating("f")).status == nfsstat4::grace);
    RECLAIM_COMPLETE4args one;
    one.one_fs = true;
    BOOST_TEST(fresh.call(one).status() == nfsstat4::nofilehandle);
    BOOST_TEST(fresh.call(PUTROOTFH4args(), one).status() == nfsstat4::ok);
    BOOST_TEST(fresh.open(fresh.creating("f")).status == nfsstat4::grace);
    BOOST_TEST(fresh.call(client4::reclaimed()).status() == nfsstat4::ok);
    BOOST_TEST(fresh.call(client4::reclaimed()).status() == nfsstat4::complete_already);
    BOOST_TEST(fresh.open(fresh.creating("f")).status == nfsstat4::ok);
}

// What one peer may have of what all share. Exports are everybody's here, and each test sets the limits that it means.
struct shared_fixture : nfs4_fixture {
    shared_fixture()
    {
        for (nfs::export_options& made : options)
            BOOST_REQUIRE(made.clients.add("*"));
    }
    void come_from(std::string_view address) { from.address = address; }
    void pass(duration d)
    {
        clock.advance(d);
        shard->turn();
    }
    /// EXCHANGE_ID alone: the client's number, or 0 where it is to come again.
    clientid4 exchange(const char* name)
    {
        answer4 out = compound(client4(*this, name).exchange());
        const auto res = out.take<EXCHANGE_ID4res>();
        BOOST_TEST((res.status == nfsstat4::ok || res.status == nfsstat4::delay));
        return res.status == nfsstat4::ok ? res.clientid : 0;
    }
    nfsstat4 create(clientid4 id) { return compound(client4::session_of(id, 1)).status(); }
    std::uint32_t slots_of(client4& c)
    {
        answer4 made = compound(client4::session_of(c.id, c.create_sequence));
        const auto res = made.take<CREATE_SESSION4res>();
        if (res.status != nfsstat4::ok) {
            BOOST_TEST(res.status == nfsstat4::delay); // which uses up no number
            return 0;
        }
        ++c.create_sequence;
        c.session = res.sessionid;
        c.sequences.clear();
        return res.fore_chan_attrs.maxrequests;
    }
};

BOOST_FIXTURE_TEST_CASE(clients_that_do_not_go_on_give_way_to_their_peer_s_next, shared_fixture)
{
    limits.clients_per_peer = 3;
    client4 there(*this, "there");
    there.connect();
    const clientid4 first = exchange("1"), second = exchange("2");
    come_from("192.0.2.9");
    const clientid4 elsewhere = exchange("elsewhere");
    come_from("127.0.0.1");
    for (int i = 0; i < 5; ++i)
        BOOST_TEST(exchange(("x" + std::to_string(i)).c_str()) != 0u);
    BOOST_TEST(commons->sessions.clients() == 4u);
    BOOST_TEST(create(first) == nfsstat4::stale_clientid);
    BOOST_TEST(create(second) == nfsstat4::stale_clientid);
    BOOST_TEST(there.call(PUTROOTFH4args()).status() == nfsstat4::ok);
    come_from("192.0.2.9");
    BOOST_TEST(create(elsewhere) == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(where_all_places_are_taken_the_oldest_that_does_not_go_on_gives_way, shared_fixture)
{
    limits.clients = 3;
    const clientid4 first = exchange("1");
    come_from("192.0.2.9");
    const clientid4 second = exchange("2");
    const clientid4 third = exchange("3");
    // Its own first, though there are older ones.
    BOOST_TEST(exchange("4") != 0u);
    BOOST_TEST(create(second) == nfsstat4::stale_clientid);
    come_from("192.0.2.10");
    const clientid4 new_one = exchange("5");
    BOOST_TEST(create(new_one) == nfsstat4::ok);
    come_from("192.0.2.9");
    BOOST_TEST(create(third) == nfsstat4::ok);
    come_from("127.0.0.1");
    BOOST_TEST(create(first) == nfsstat4::stale_clientid);
}

BOOST_FIXTURE_TEST_CASE(a_peer_has_its_share_of_clients_and_others_have_theirs, shared_fixture)
{
    limits.clients_per_peer = 2;
    client4 a(*this, "a"), b(*this, "b"), other(*this, "other");
    a.connect();
    b.connect();
    BOOST_TEST_REQUIRE(b.open(b.creating("f")).status == nfsstat4::ok);
    BOOST_TEST(exchange("c") == 0u);
    BOOST_TEST(program->counters().refused_limits.value(verbena::files::limited::clients,
                                                        verbena::files::limit_of::peer) == 1u);
    come_from("192.0.2.9");
    other.connect();
    BOOST_TEST_REQUIRE(other.open(other.creating("g")).status == nfsstat4::ok);
    pass(60s);
    come_from("127.0.0.1");
    BOOST_TEST(a.call(PUTROOTFH4args()).status() == nfsstat4::ok);
    pass(60s);
    // b's lease is over, and so is that of another peer, which is in nobody's way.
    BOOST_TEST(exchange("c") != 0u);
    BOOST_TEST(a.call(PUTROOTFH4args()).status() == nfsstat4::ok);
    BOOST_TEST(b.call(PUTROOTFH4args()).status() == nfsstat4::badsession);
    come_from("192.0.2.9");
    BOOST_TEST(other.call(PUTROOTFH4args()).status() == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(where_all_clients_have_their_leases_the_next_one_waits, shared_fixture)
{
    limits.clients = 1;
    client4 a(*this, "a");
    a.connect();
    BOOST_TEST_REQUIRE(a.open(a.creating("f")).status == nfsstat4::ok);
    come_from("192.0.2.9");
    BOOST_TEST(exchange("c") == 0u);
    clock.advance(91s);
    BOOST_TEST(exchange("c") != 0u);
}

BOOST_FIXTURE_TEST_CASE(a_peer_has_its_share_of_sessions, shared_fixture)
{
    limits.sessions_per_peer = 2;
    client4 a(*this, "a"), other(*this, "other");
    a.connect();
    BOOST_TEST(slots_of(a) == 4u);
    BOOST_TEST(slots_of(a) == 0u);
    BOOST_TEST(program->counters().refused_limits.value(verbena::files::limited::sessions,
                                                        verbena::files::limit_of::peer) == 1u);
    come_from("192.0.2.9");
    other.connect();
    come_from("127.0.0.1");
    BOOST_TEST(compound(DESTROY_SESSION4args{a.session}).status() == nfsstat4::ok);
    BOOST_TEST(slots_of(a) == 4u);
}

BOOST_FIXTURE_TEST_CASE(sessions_have_as_many_slots_as_there_is_room_for_what_they_keep, shared_fixture)
{
    const std::size_t slot = session::bytes_of({0, 0, 0, 4096, 0, 1, std::nullopt});
    BOOST_TEST(slot > 4096u);
    limits.sessions_per_peer = 5;
    limits.slot_bytes_per_peer = (1 + 4 + 32) * slot;
    client4 a(*this, "a"), other(*this, "other");
    a.id = exchange("a");
    BOOST_TEST(slots_of(a) ==
               3u); // of four: one is left for each of four others, and two are a sixteenth of the rest
    const sessionid4 first = a.session;
    for (int i = 0; i < 4; ++i)
        BOOST_TEST(slots_of(a) > 0u);
    BOOST_TEST(slots_of(a) == 0u);
    // Others have theirs.
    come_from("192.0.2.9");
    other.id = exchange("other");
    BOOST_TEST(slots_of(other) == 3u);
    come_from("127.0.0.1");
    BOOST_TEST(compound(DESTROY_SESSION4args{first}).status() == nfsstat4::ok);
    BOOST_TEST(slots_of(a) > 0u);
}

BOOST_FIXTURE_TEST_CASE(without_room_for_a_slot_there_is_no_session, shared_fixture)
{
    const std::size_t slot = session::bytes_of({0, 0, 0, 4096, 0, 1, std::nullopt});
    limits.slot_bytes = 3 * slot - 1;
    client4 a(*this, "a");
    a.id = exchange("a");
    BOOST_TEST(slots_of(a) == 1u);
    BOOST_TEST(slots_of(a) == 1u);
    BOOST_TEST(slots_of(a) == 0u);
    BOOST_TEST(compound(DESTROY_SESSION4args{a.session}).status() == nfsstat4::ok);
    BOOST_TEST(slots_of(a) == 1u);
}

BOOST_FIXTURE_TEST_CASE(whoever_may_use_no_export_is_not_remembered, nfs4_fixture)
{
    from.address = "192.0.2.9";
    BOOST_TEST(compound(client4(*this, "a").exchange()).status() == nfsstat4::perm);
    BOOST_TEST(commons->sessions.clients() == 0u);
}

BOOST_FIXTURE_TEST_CASE(another_user_destroys_nothing, fixture)
{
    user->uid = 1001;
    BOOST_TEST(compound(DESTROY_SESSION4args{client.session}).status() == nfsstat4::badsession);
    user->uid = 1000;
    BOOST_TEST(compound(DESTROY_SESSION4args{client.session}).status() == nfsstat4::ok);
    user->uid = 1001;
    BOOST_TEST(compound(DESTROY_CLIENTID4args{client.id}).status() == nfsstat4::stale_clientid);
    user->uid = 1000;
    BOOST_TEST(compound(DESTROY_CLIENTID4args{client.id}).status() == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(a_name_is_taken_as_long_as_its_client_has_something, fixture)
{
    BOOST_TEST_REQUIRE(client.open(client.creating("f")).status == nfsstat4::ok);
    BOOST_TEST(compound(DESTROY_SESSION4args{client.session}).status() == nfsstat4::ok);
    user->uid = 1001;
    BOOST_TEST(compound(client.exchange()).status() == nfsstat4::clid_inuse);
    clock.advance(91s);
    BOOST_TEST(compound(client.exchange()).status() == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(nobody_ends_a_client_from_elsewhere_while_it_is_there, shared_fixture)
{
    client4 a(*this, "a");
    a.connect();
    come_from("192.0.2.9");
    const client4 claims(*this, "a", 2);
    BOOST_TEST(compound(claims.exchange()).status() == nfsstat4::delay);
    // The same client over another of its addresses.
    BOOST_TEST(compound(a.exchange()).status() == nfsstat4::ok);
    BOOST_TEST(a.call(PUTROOTFH4args()).status() == nfsstat4::ok);
    clock.advance(91s);
    BOOST_TEST(compound(claims.exchange()).status() == nfsstat4::ok);
}

// Machines that were cloned have one name. The second one's mount waits, and nothing else would say why.
BOOST_FIXTURE_TEST_CASE(a_host_that_waits_for_the_name_of_another_one_is_told_of_in_the_log, shared_fixture)
{
    const log_lines log;
    client4 a(*this, "cloned"), again(*this, "cloned", 2);
    a.connect();
    again.connect(); // the same host, after a restart
    BOOST_TEST(log.of_names() == 0u);
    come_from("192.0.2.9");
    const client4 second(*this, "cloned", 3);
    BOOST_TEST(compound(second.exchange()).status() == nfsstat4::delay);
    BOOST_TEST(log.of_names({"cloned", "waits=192.0.2.9", "has_it=127.0.0.1", "nfs4_unique_id"}) == 1u);
    // It asks again and again, and the log is no longer for that.
    for (int i = 0; i < 20; ++i)
        BOOST_TEST(compound(second.exchange()).status() == nfsstat4::delay);
    BOOST_TEST(log.of_names() == 3u);
}

BOOST_FIXTURE_TEST_CASE(so_is_a_user_who_has_the_name_of_another_one, fixture)
{
    const log_lines log;
    BOOST_TEST_REQUIRE(client.open(client.creating("f")).status == nfsstat4::ok);
    user->uid = 1001;
    BOOST_TEST(compound(client.exchange()).status() == nfsstat4::clid_inuse);
    BOOST_TEST(log.of_names() == 1u);
}

// Between EXCHANGE_ID and CREATE_SESSION the one that has the name may come back.
BOOST_FIXTURE_TEST_CASE(who_is_back_by_now_keeps_its_name_from_elsewhere, shared_fixture)
{
    client4 a(*this, "a"), claims(*this, "a", 2);
    a.connect();
    const auto file = a.open(a.creating("f"));
    clock.advance(91s);
    come_from("192.0.2.9");
    answer4 known = compound(claims.exchange());
    const auto exchanged = known.good<EXCHANGE_ID4res>();
    come_from("127.0.0.1");
    BOOST_TEST(a.call(PUTROOTFH4args()).status() == nfsstat4::ok);
    come_from("192.0.2.9");
    const log_lines log;
    BOOST_TEST(create(exchanged.clientid) == nfsstat4::delay);
    BOOST_TEST(log.of_names({"waits=192.0.2.9", "has_it=127.0.0.1"}) == 1u);
    come_from("127.0.0.1");
    BOOST_TEST(a.write(file, "text") == nfsstat4::ok);
    BOOST_TEST(commons->state.stats().opens.value() == 1);
    // It goes on as soon as that lease is over.
    clock.advance(80s);
    come_from("192.0.2.9");
    BOOST_TEST(create(exchanged.clientid) == nfsstat4::delay);
    BOOST_TEST(compound(claims.exchange()).status() == nfsstat4::delay);
    clock.advance(20s);
    claims.connect();
    BOOST_TEST(commons->state.stats().opens.value() == 0);
    come_from("127.0.0.1");
    BOOST_TEST(a.call(PUTROOTFH4args()).status() == nfsstat4::badsession);
}

BOOST_FIXTURE_TEST_CASE(state_that_no_session_names_is_ended, fixture)
{
    const auto left = run_until_complete(*shard, commons->state.add_client("left"));
    BOOST_TEST_REQUIRE(left.has_value());
    const result<void> complete = run_until_complete(*shard, commons->state.reclaim_complete(left->client));
    BOOST_TEST(complete.has_value());
    files::open_request request;
    request.client = left->client;
    request.file = storage::handle(std::as_bytes(std::span("file", 4)));
    BOOST_TEST(commons->state.table().open(request).has_value());
    BOOST_TEST(commons->state.table().stats().clients.value() == 2);
    tasks.spawn([this] { return commons->tend(); });
    const auto pass = [&](duration d) {
        clock.advance(d);
        for (int i = 0; i < 20; ++i)
            shard->turn();
    };
    pass(60s);
    BOOST_TEST(client.call(PUTROOTFH4args()).status() == nfsstat4::ok);
    pass(40s);
    BOOST_TEST(commons->state.table().stats().clients.value() == 1);
    BOOST_TEST(client.call(PUTROOTFH4args()).status() == nfsstat4::ok);
    tasks.request_stop();
    for (int i = 0; i < 20; ++i)
        shard->turn();
}

// By the address alone, as version 3 and MOUNT do: a connection by RDMA has no port, and other transports lead elsewhere.
BOOST_FIXTURE_TEST_CASE(whom_the_program_admits, nfs4_fixture)
{
    for (nfs::export_options& each : options) {
        BOOST_REQUIRE(each.clients.add("10.0.0.0/8"));
        each.secure = true;
        each.transports = {"tcp"};
    }
    start();
    BOOST_TEST(program->admits({"10.1.2.3", "10.1.2.3:5000", "tcp", 5000}));
    BOOST_TEST(program->admits({"10.1.2.3", "10.1.2.3", "rdma", 0}));
    BOOST_TEST(program->admits({"a client", "a client", "loop", 0}));
    BOOST_TEST(!program->admits({"192.0.2.66", "192.0.2.66:700", "tcp", 700}));
    BOOST_TEST(!dispatcher->admits({"192.0.2.66", "192.0.2.66", "rdma", 0}));
}

BOOST_AUTO_TEST_SUITE_END()
