// SPDX-License-Identifier: Apache-2.0
// What EXCHANGE_ID, CREATE_SESSION, BIND_CONN_TO_SESSION and those that end clients and sessions refuse, and what they leave behind.
#include "nfs4_called_client.hpp"
#include "nfs4_log_lines.hpp"

#include <verbena/core/task/event.hpp>
#include <verbena/protocols/storage/forwarding_backend.hpp>

#include <cerrno>

BOOST_AUTO_TEST_SUITE(nfs4_session_operations_test)

using namespace verbena;
using namespace verbena::test;

namespace {

/// Exports are everybody's.
struct fixture : nfs4_fixture {
    fixture()
    {
        for (nfs::export_options& made : options)
            BOOST_REQUIRE(made.clients.add("*"));
    }
    clientid4 exchange(const char* name)
    {
        return compound(client4(*this, name).exchange()).good<EXCHANGE_ID4res>().clientid;
    }
    nfsstat4 create(clientid4 id, std::uint32_t sequence = 1)
    {
        return compound(client4::session_of(id, sequence)).status();
    }
};

struct called : called_fixture {
    called() { options[0].local_writers = false; }
    answer4 bind(channel_dir_from_client4 dir)
    {
        BIND_CONN_TO_SESSION4args args;
        args.sessid = client.session;
        args.dir = dir;
        return compound(args);
    }
    bool has_delegation(std::string_view name)
    {
        OPEN4args args = client.opening(name, share4::access_read);
        args.share_access |= share4::want_any_delegation;
        const auto file = client.open(args);
        BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
        return file.res.delegation.delegation_type == open_delegation_type4::read ||
               file.res.delegation.delegation_type == open_delegation_type4::write;
    }
    client4 client{*this, "a"};
};

/// A client's record goes only when it may.
struct held_store final : files::recovery_store {
    task<result<void>> add(std::string_view, files::share) override { co_return result<void>(); }
    task<result<void>> remove(std::string_view) override
    {
        while (held)
            (void)co_await go.wait();
        co_return result<void>();
    }
    task<result<void>> end_grace() override { co_return result<void>(); }
    bool held = false;
    event go;
};

} // namespace

// --- EXCHANGE_ID and CREATE_SESSION

// Both need RPCSEC_GSS. Whoever took them for granted would believe its state to be safe from others.
BOOST_FIXTURE_TEST_CASE(protection_that_there_is_not_is_refused, fixture)
{
    const client4 a(*this, "a");
    EXCHANGE_ID4args args = a.exchange();
    args.state_protect.how = state_protect_how4::mach_cred;
    BOOST_TEST(compound(args).status() == nfsstat4::inval);
    args.state_protect.how = state_protect_how4::ssv;
    BOOST_TEST(compound(args).status() == nfsstat4::inval); // it names no algorithm
    BOOST_TEST(commons->sessions.clients() == 0u);
}

BOOST_FIXTURE_TEST_CASE(flags_of_a_session_that_nobody_knows_are_refused, fixture)
{
    CREATE_SESSION4args args = client4::session_of(exchange("a"), 1);
    args.flags = 8;
    BOOST_TEST(compound(args).status() == nfsstat4::inval);
    BOOST_TEST(commons->sessions.sessions() == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_first_session_has_the_number_that_was_told, fixture)
{
    const clientid4 id = exchange("a");
    answer4 out = compound(client4::session_of(id, 0));
    BOOST_TEST(out.status() == nfsstat4::seq_misordered);
    BOOST_TEST(out.take<CREATE_SESSION4res>().status == nfsstat4::seq_misordered);
    BOOST_TEST(create(id) == nfsstat4::ok);
}

// What is done can't be taken back for want of room for its answer.
BOOST_FIXTURE_TEST_CASE(what_has_no_room_for_its_answer_is_not_done, fixture)
{
    client4 a(*this, "a");
    a.connect();
    CREATE_SESSION4args tiny = client4::session_of(a.id, a.create_sequence++);
    tiny.fore_chan_attrs.maxresponsesize_cached = 94; // header, head, SEQUENCE, and one failure
    a.session = compound(tiny).good<CREATE_SESSION4res>().sessionid;
    a.sequences.clear();
    const clientid4 b = exchange("b");
    const auto kept = [&](const auto& args) { return compound(a.sequence(0, true), args).status(); };
    BOOST_TEST(kept(client4(*this, "c").exchange()) == nfsstat4::rep_too_big_to_cache);
    BOOST_TEST(kept(client4::session_of(b, 1)) == nfsstat4::rep_too_big_to_cache);
    BOOST_TEST(kept(DESTROY_CLIENTID4args{b}) == nfsstat4::rep_too_big_to_cache);
    BOOST_TEST(commons->sessions.clients() == 2u);
    BOOST_TEST(commons->sessions.sessions() == 2u);
    BOOST_TEST(create(b) == nfsstat4::ok);
}

// A session of a client that is gone makes room for another one's.
BOOST_FIXTURE_TEST_CASE(sessions_of_who_is_gone_make_room, fixture)
{
    limits.sessions_per_peer = 2;
    client4 a(*this, "a"), b(*this, "b");
    a.connect();
    b.connect();
    BOOST_TEST_REQUIRE(b.open(b.creating("f")).status == nfsstat4::ok);
    BOOST_TEST(create(a.id, a.create_sequence) == nfsstat4::delay);
    pass(60s, 60s);
    BOOST_TEST(a.call(PUTROOTFH4args()).status() == nfsstat4::ok);
    pass(60s, 60s);
    BOOST_TEST(create(a.id, a.create_sequence) == nfsstat4::ok);
    BOOST_TEST(b.call(PUTROOTFH4args()).status() == nfsstat4::badsession);
}

BOOST_FIXTURE_TEST_CASE(clients_of_the_state_layer_that_are_gone_make_room, fixture)
{
    state_limits.clients = 1;
    client4 a(*this, "a"), b(*this, "b");
    a.connect();
    BOOST_TEST_REQUIRE(a.open(a.creating("f")).status == nfsstat4::ok);
    clock.advance(91s);
    b.connect();
    BOOST_TEST(b.call(PUTROOTFH4args()).status() == nfsstat4::ok);
    BOOST_TEST(a.call(PUTROOTFH4args()).status() == nfsstat4::badsession);
}

// It is the name of one whose lease is over, and the room that of a third one.
BOOST_FIXTURE_TEST_CASE(a_client_that_room_is_made_for_hears_nothing_of_who_has_given_way, fixture)
{
    limits.clients_per_peer = 1;
    client4 before(*this, "a"), third(*this, "b");
    before.connect();
    BOOST_TEST_REQUIRE(before.open(before.creating("f")).status == nfsstat4::ok);
    from.address = "192.0.2.9";
    third.connect();
    BOOST_TEST_REQUIRE(third.open(third.creating("g")).status == nfsstat4::ok);
    clock.advance(91s);
    const log_lines log;
    client4 moved(*this, "a", 2);
    answer4 out = compound(moved.exchange());
    BOOST_TEST(out.take<EXCHANGE_ID4res>().status == nfsstat4::ok);
    BOOST_TEST(log.of_names() == 0u);
    moved.connect();
    BOOST_TEST(moved.call(PUTROOTFH4args()).status() == nfsstat4::ok);
    BOOST_TEST(third.call(PUTROOTFH4args()).status() == nfsstat4::badsession);
}

// Clients of one peer share what it may have of the state layer's.
BOOST_FIXTURE_TEST_CASE(clients_of_a_peer_have_its_part_of_opens, fixture)
{
    state_limits.opens = 8;
    state_limits.peer_percent = 50;
    client4 a(*this, "a"), b(*this, "b"), other(*this, "other");
    a.connect();
    b.connect();
    for (const char* name : {"1", "2"}) {
        BOOST_TEST_REQUIRE(a.open(a.creating(name)).status == nfsstat4::ok);
        BOOST_TEST_REQUIRE(b.open(b.creating(name)).status == nfsstat4::ok);
    }
    BOOST_TEST(b.open(b.creating("3")).status != nfsstat4::ok);
    from.address = "192.0.2.9";
    other.connect();
    BOOST_TEST(other.open(other.creating("3")).status == nfsstat4::ok);
}

// While the client before a restart went, somebody else took the last session. What was made for this one goes again.
BOOST_FIXTURE_TEST_CASE(a_client_that_gets_no_session_has_no_state, fixture)
{
    held_store slow;
    store = &slow;
    limits.sessions = 2;
    client4 a(*this, "a"), after(*this, "a", 2), b(*this, "b");
    a.connect();
    const clientid4 id = compound(after.exchange()).good<EXCHANGE_ID4res>().clientid;
    slow.held = true;
    const auto creating = begin(client4::session_of(id, 1));
    b.connect();
    slow.held = false;
    slow.go.set();
    turns();
    BOOST_TEST(answer_of(*creating).status() == nfsstat4::delay);
    BOOST_TEST(commons->state.table().stats().clients.value() == 1); // b
}

// --- Ends

BOOST_FIXTURE_TEST_CASE(who_has_a_file_open_is_not_destroyed, fixture)
{
    client4 a(*this, "a");
    a.connect();
    const auto file = a.open(a.creating("f"));
    BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
    BOOST_TEST(compound(DESTROY_SESSION4args{a.session}).status() == nfsstat4::ok);
    BOOST_TEST(compound(DESTROY_CLIENTID4args{a.id}).status() == nfsstat4::clientid_busy);
    a.open_session();
    BOOST_TEST(a.write(file, "text") == nfsstat4::ok);
}

namespace {

/// Files may be gone though somebody has them open, as those that posixfs has closed and somebody removed on the host.
struct losing final : storage::forwarding_backend {
    using forwarding_backend::forwarding_backend;
    task<result<storage::attributes>> getattr(const storage::request& r, const storage::handle& file) override
    {
        auto attrs = co_await below().getattr(r, file);
        if (attrs && attrs->type == storage::file_type::regular && attrs->size < lost_below)
            co_return error::from_errno(says);
        co_return attrs;
    }
    std::uint64_t lost_below = 0; ///< bytes
    int says = ESTALE;
};

struct losing_fixture : nfs4_fixture {
    losing_fixture()
    {
        options[0].backend = &between;
        a.connect();
        // Of 1 byte, and of 2.
        for (const std::string_view text : {"1", "22"}) {
            const auto file = a.open(a.creating(text));
            BOOST_TEST_REQUIRE(a.write(file, text) == nfsstat4::ok);
        }
        BOOST_TEST(compound(DESTROY_SESSION4args{a.session}).status() == nfsstat4::ok);
    }
    ~losing_fixture()
    {
        program.reset();
        commons.reset();
    }
    nfsstat4 destroy() { return compound(DESTROY_CLIENTID4args{a.id}).status(); }
    std::int64_t opens() const { return commons->state.stats().opens.value(); }
    losing between{*files};
    client4 a{*this, "a"};
};

} // namespace

// What a client has open of files that are gone it can't close: its CLOSE stands behind a GETATTR.
BOOST_FIXTURE_TEST_CASE(who_has_only_lost_files_open_is_destroyed, losing_fixture)
{
    BOOST_TEST(destroy() == nfsstat4::clientid_busy);
    between.lost_below = 3;
    BOOST_TEST(destroy() == nfsstat4::ok);
    BOOST_TEST(opens() == 0);
    BOOST_TEST(commons->state.stats().clients.value() == 0);
    BOOST_TEST(commons->sessions.clients() == 0u);
}

BOOST_FIXTURE_TEST_CASE(who_has_another_file_open_beside_a_lost_one_is_not, losing_fixture)
{
    between.lost_below = 2;
    BOOST_TEST(destroy() == nfsstat4::clientid_busy);
    BOOST_TEST(opens() == 2); // a file that comes back is still open
}

BOOST_FIXTURE_TEST_CASE(a_file_that_can_not_be_asked_for_is_not_gone, losing_fixture)
{
    between.lost_below = 3;
    between.says = EIO;
    BOOST_TEST(destroy() == nfsstat4::clientid_busy);
    between.says = EAGAIN;
    BOOST_TEST(destroy() == nfsstat4::clientid_busy);
    BOOST_TEST(opens() == 2);
}

// --- The way back

BOOST_FIXTURE_TEST_CASE(a_connection_is_bound_as_it_is_asked_for, called)
{
    connect(client);
    // A session whose client agreed to no calls has no way back.
    CREATE_SESSION4args calls_nobody = client4::session_of(client.id, client.create_sequence++);
    calls_nobody.back_chan_attrs = {};
    const sessionid4 called_session =
        std::exchange(client.session, compound(calls_nobody).good<CREATE_SESSION4res>().sessionid);
    BOOST_TEST(bind(channel_dir_from_client4::back).status() == nfsstat4::inval);
    BOOST_CHECK(bind(channel_dir_from_client4::fore_or_both).good<BIND_CONN_TO_SESSION4res>().dir ==
                channel_dir_from_server4::fore);
    client.session = called_session;
    // The session was made over this one, which brings both. It is taken off none.
    BOOST_TEST(bind(channel_dir_from_client4::back).status() == nfsstat4::inval);
    way = std::make_shared<called_client>(pool);
    BOOST_CHECK(bind(channel_dir_from_client4::back).good<BIND_CONN_TO_SESSION4res>().dir ==
                channel_dir_from_server4::back);
    BOOST_CHECK(bind(channel_dir_from_client4::back_or_both).good<BIND_CONN_TO_SESSION4res>().dir ==
                channel_dir_from_server4::both);
    BOOST_TEST(bind(channel_dir_from_client4(4)).status() == nfsstat4::badxdr);
}

// A session that was made over a connection without a way back: whoever can be called from then on gets delegations.
BOOST_FIXTURE_TEST_CASE(who_binds_a_way_back_gets_delegations, called)
{
    client.id = compound(client.exchange()).good<EXCHANGE_ID4res>().clientid;
    CREATE_SESSION4args args = session_of(client);
    args.flags = 0;
    client.session = compound(args).good<CREATE_SESSION4res>().sessionid;
    BOOST_TEST_REQUIRE(client.call(client4::reclaimed()).status() == nfsstat4::ok);
    tend();
    BOOST_TEST_REQUIRE(client.open(client.creating("f")).status == nfsstat4::ok);
    BOOST_TEST(!has_delegation("f"));
    BOOST_TEST(flags(client) == 0u);
    BOOST_TEST(bind(channel_dir_from_client4::fore_or_both).status() == nfsstat4::ok);
    BOOST_TEST(has_delegation("f"));
    channel->is_open = false;
    BOOST_TEST(flags(client) == (seq4_status::cb_path_down | seq4_status::cb_path_down_session));
}

BOOST_FIXTURE_TEST_CASE(nothing_is_bound_for_who_has_lost_all, called)
{
    client.connect();
    const files::client_id state = commons->sessions.find(client.session)->state();
    const result<void> forgotten = run_until_complete(*shard, commons->state.forget(state));
    BOOST_TEST(forgotten.has_value());
    BOOST_TEST(bind(channel_dir_from_client4::fore_or_both).status() != nfsstat4::ok);
    BOOST_TEST(!commons->sessions.find(client.session)->back().is_up());
}

// A client with another session that is called hears of the session whose way back is gone, and that is all.
BOOST_FIXTURE_TEST_CASE(one_way_back_of_two_is_told_as_one, called)
{
    connect(client);
    const sessionid4 first = client.session;
    auto second = std::make_shared<called_client>(pool);
    way = second;
    open_session(client);
    channel->is_open = false;
    BOOST_TEST(flags(client) == 0u);
    client.session = first;
    client.sequences[0] = 1;
    BOOST_TEST(flags(client) == seq4_status::cb_path_down_session);
    second->is_open = false;
    BOOST_TEST(flags(client) == (seq4_status::cb_path_down | seq4_status::cb_path_down_session));
}

BOOST_AUTO_TEST_SUITE_END()
