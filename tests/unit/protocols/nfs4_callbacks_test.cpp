// SPDX-License-Identifier: Apache-2.0
// The back channel of a session: when it is granted, how a client is called over it, and how it is repaired.
#include "nfs4_called_client.hpp"

BOOST_AUTO_TEST_SUITE(nfs4_callbacks_test)

using namespace verbena;
using namespace verbena::test;

namespace {

struct fixture : called_fixture {
    /// Something that needs no delegation.
    void ask(const client4& c, std::size_t keep)
    {
        commons->callbacks.recall_any(commons->sessions.find(c.session)->state(), keep);
    }
    std::uint64_t count(callback_counters::outcome o) const
    {
        return commons->callbacks.counters()
            .calls[std::size_t(callback_counters::kind::recall_any)][std::size_t(o)]
            .value();
    }
};
using outcome = callback_counters::outcome;

} // namespace

BOOST_FIXTURE_TEST_CASE(a_back_channel_is_granted_where_there_is_a_way_back, fixture)
{
    client4 client(*this, "a");
    connect(client);
    BOOST_TEST(open_session(client).flags == create_session4::conn_back_chan);
    // Who did not ask has none.
    CREATE_SESSION4args args = session_of(client);
    args.flags = 0;
    BOOST_TEST(compound(args).good<CREATE_SESSION4res>().flags == 0u);
    ++client.create_sequence;
    // RPCSEC_GSS: we gave nobody a handle of it.
    args = session_of(client);
    parms.resize(1);
    parms[0].cb_secflavor = 6;
    args.sec_parms = std::span<const callback_sec_parms4>(parms);
    BOOST_TEST(compound(args).status() == nfsstat4::noent);
    ++client.create_sequence;
    way.reset();
    const auto res = compound(session_of(client)).good<CREATE_SESSION4res>();
    BOOST_TEST(res.flags == 0u);
    // A repeat is answered as the first was.
    way = channel;
    BOOST_TEST(compound(session_of(client)).good<CREATE_SESSION4res>().flags == 0u);
    BOOST_TEST(flags(client) == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_call_is_the_client_s_program_signed_as_it_wants, fixture)
{
    client4 client(*this, "a");
    connect(client);
    tend();
    ask(client, 7);
    turns();
    BOOST_TEST_REQUIRE(channel->calls.size() == 1u);
    const called_client::heard& h = channel->calls[0];
    BOOST_TEST(h.program == 0x40000000u);
    BOOST_CHECK(h.flavor == rpc::auth_flavor::sys);
    BOOST_TEST(h.uid == 5u);
    BOOST_TEST(h.minor == 1u);
    BOOST_CHECK(h.session == client.session);
    BOOST_TEST(h.sequence == 1u);
    BOOST_TEST(h.slot == 0u);
    BOOST_CHECK(h.operation == nfs_cb_opnum4::recall_any);
    BOOST_TEST(h.keep == 7u);
    BOOST_TEST(count(outcome::ok) == 1u);
    // Another program, and no more AUTH_SYS.
    parms.resize(1);
    BACKCHANNEL_CTL4args control;
    control.cb_program = 0x40000001;
    control.sec_parms = std::span<const callback_sec_parms4>(parms);
    BOOST_TEST(client.call(control).status() == nfsstat4::ok);
    ask(client, 6);
    turns();
    BOOST_TEST_REQUIRE(channel->calls.size() == 2u);
    BOOST_TEST(channel->calls[1].program == 0x40000001u);
    BOOST_CHECK(channel->calls[1].flavor == rpc::auth_flavor::none);
    BOOST_TEST(channel->calls[1].sequence == 2u);
    parms[0].cb_secflavor = 6;
    BOOST_TEST(client.call(control).status() == nfsstat4::noent);
}

BOOST_FIXTURE_TEST_CASE(a_number_is_used_again_until_it_is_known_to_be_used_up, fixture)
{
    client4 client(*this, "a");
    connect(client);
    tend();
    // Nothing is used up by what does not get as far.
    channel->says_of_sequence = nfsstat4::delay;
    ask(client, 1);
    turns();
    BOOST_TEST(channel->calls.back().sequence == 1u);
    channel->says_of_sequence = nfsstat4::ok;
    pass(100ms);
    BOOST_TEST(channel->calls.back().sequence == 1u);
    BOOST_TEST(count(outcome::later) == 1u);
    BOOST_TEST(count(outcome::ok) == 1u);
    // A failure behind CB_SEQUENCE has used its number.
    channel->says = nfsstat4::delay;
    ask(client, 2);
    turns();
    channel->says = nfsstat4::ok;
    pass(100ms);
    BOOST_TEST(channel->calls.back().sequence == 3u);
    // A lost answer: the client has seen 4, and says so.
    channel->loses_answers = 1;
    ask(client, 3);
    turns();
    BOOST_TEST(channel->calls.back().sequence == 4u);
    pass(11s, 100ms);
    BOOST_TEST(count(outcome::unanswered) == 1u);
    BOOST_TEST(count(outcome::ok) == 3u);
    std::vector<std::uint32_t> numbers;
    for (const called_client::heard& h : channel->calls)
        numbers.push_back(h.sequence);
    const std::vector<std::uint32_t> expected = {1, 1, 2, 3, 4, 4, 5};
    BOOST_TEST(numbers == expected, boost::test_tools::per_element());
    BOOST_TEST(flags(client) == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_client_has_as_many_calls_at_once_as_it_offers_slots, fixture)
{
    back_slots = 2;
    client4 client(*this, "a");
    connect(client);
    tend();
    channel->silent = true;
    for (std::size_t keep = 1; keep <= 3; ++keep)
        ask(client, keep);
    turns();
    BOOST_TEST_REQUIRE(channel->calls.size() == 2u);
    BOOST_TEST(channel->calls[0].slot == 0u);
    BOOST_TEST(channel->calls[1].slot == 1u);
    BOOST_TEST(channel->calls[1].sequence == 1u);
    channel->silent = false;
    pass(15s, 100ms);
    BOOST_TEST(count(outcome::ok) == 3u);
    // One that takes fewer than it said.
    channel->slots = 1;
    channel->calls.clear();
    ask(client, 4);
    ask(client, 5);
    pass(1s, 100ms);
    BOOST_TEST(count(outcome::ok) == 5u);
    BOOST_TEST(flags(client) == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_client_that_lost_count_begins_at_one, fixture)
{
    client4 client(*this, "a");
    connect(client);
    tend();
    ask(client, 1);
    turns();
    channel->last.clear();
    ask(client, 2);
    turns();
    BOOST_TEST(channel->calls.back().sequence == 1u);
    BOOST_TEST(count(outcome::ok) == 2u);
    BOOST_TEST(flags(client) == 0u);
    // One with which nothing helps is asked for another session.
    channel->says_of_sequence = nfsstat4::seq_misordered;
    ask(client, 3);
    turns();
    BOOST_TEST(flags(client) == seq4_status::backchannel_fault);
    channel->says_of_sequence = nfsstat4::ok;
    channel->last.clear();
    open_session(client);
    pass(5s, 100ms);
    BOOST_TEST(count(outcome::ok) == 3u);
    BOOST_CHECK(channel->calls.back().session == client.session);
    BOOST_TEST(flags(client) == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_client_that_never_answers_is_told, fixture)
{
    client4 client(*this, "a");
    connect(client);
    tend();
    channel->silent = true;
    ask(client, 1);
    pass(9s, 100ms);
    BOOST_TEST(flags(client) == 0u);
    pass(2s, 100ms);
    BOOST_TEST(flags(client) == seq4_status::backchannel_fault);
    channel->silent = false;
    pass(12s, 100ms);
    BOOST_TEST(count(outcome::ok) == 1u);
    BOOST_TEST(flags(client) == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_connection_that_goes_is_bound_anew, fixture)
{
    client4 client(*this, "a");
    connect(client);
    tend();
    BOOST_TEST(flags(client) == 0u);
    channel->is_open = false;
    BOOST_TEST(flags(client) == (seq4_status::cb_path_down | seq4_status::cb_path_down_session));
    ask(client, 1);
    pass(3s, 100ms);
    BOOST_TEST(count(outcome::unreachable) == 1u);
    BOOST_TEST(channel->calls.empty());
    // The way forth alone repairs nothing.
    const auto bind = [&](channel_dir_from_client4 dir) {
        BIND_CONN_TO_SESSION4args args;
        args.sessid = client.session;
        args.dir = dir;
        return compound(args);
    };
    auto second = std::make_shared<called_client>(pool);
    second->last = channel->last;
    way = second;
    BOOST_CHECK(bind(channel_dir_from_client4::fore).good<BIND_CONN_TO_SESSION4res>().dir ==
                channel_dir_from_server4::fore);
    BOOST_TEST(flags(client) != 0u);
    BOOST_CHECK(bind(channel_dir_from_client4::fore_or_both).good<BIND_CONN_TO_SESSION4res>().dir ==
                channel_dir_from_server4::both);
    BOOST_TEST(flags(client) == 0u);
    pass(3s, 100ms);
    BOOST_TEST(second->calls.size() == 1u);
    BOOST_TEST(count(outcome::ok) == 1u);
    // Where there is no way back, none is promised.
    way.reset();
    BOOST_CHECK(bind(channel_dir_from_client4::fore_or_both).good<BIND_CONN_TO_SESSION4res>().dir ==
                channel_dir_from_server4::fore);
    BOOST_TEST(bind(channel_dir_from_client4::back).status() == nfsstat4::inval);
}

BOOST_AUTO_TEST_SUITE_END()
