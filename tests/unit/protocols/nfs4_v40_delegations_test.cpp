// SPDX-License-Identifier: Apache-2.0
// Delegations of clients of minor version 0: who gets one, and what becomes of it.
#include "nfs4_called_host.hpp"

#include <verbena/protocols/nfs/server/v4/state_answers.hpp>

#include <algorithm>
#include <random>

BOOST_AUTO_TEST_SUITE(nfs4_v40_delegations_test)

using namespace verbena;
using namespace verbena::test;
using deleg = open_delegation_type4;
using outcome = callback_counters::outcome;
using kind = callback_counters::kind;
using fixture = called_hosts_fixture;

namespace {

/// A client whose delegation of "f" was revoked, as it did not answer.
struct revoked_fixture : fixture {
    revoked_fixture()
    {
        store = &kept;
        commons.reset();
        program.reset();
        dispatcher.reset();
        start();
        begin();
        c.connect();
        file = delegated(c, "f");
        other.address = "127.0.0.1.8.2";
        other.connect();
        make(other, "g");
        BOOST_TEST(lists.new_list.size() == 2u);
        host.silent = true;
        const auto told_to_wait = take(other, "f");
        pass(2s);
        BOOST_TEST(status_of(*told_to_wait) == nfsstat4::delay);
        for (int i = 0; i < 3; ++i) { // also meanwhile its lease is renewed
            pass(28s, 100ms);
            BOOST_TEST((c.renew() == nfsstat4::cb_path_down || i == 0));
            (void)other.renew();
        }
        pass(10s, 100ms);
        BOOST_TEST(commons->state.table().stats().revocations.value() == 1u);
        BOOST_TEST(lists.new_list.size() == 1u);
        BOOST_TEST(c.renew() == nfsstat4::cb_path_down); // until it has heard of it
        BOOST_TEST(other.open(other.opening("f")).status == nfsstat4::ok);
    }
    ~revoked_fixture()
    {
        tasks.request_stop();
        while (tasks.live() != 0)
            shard->turn();
        program.reset();
        commons.reset(); // before its store
    }
    recovery_lists lists;
    memory_store kept{lists};
    client0 c{*this, "c"}, other{*this, "other"};
    client0::opened file;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(who_does_not_answer_loses_the_delegation, revoked_fixture)
{
    // The open is as good as before.
    BOOST_TEST(compound(PUTFH4args{file.fh()}, READ4args{file.id, 0, 10}).status() == nfsstat4::ok);
    BOOST_TEST(lists.new_list.size() == 1u);
    // It hears of it by its stateid, and then is as others are.
    BOOST_TEST(compound(PUTFH4args{file.fh()}, READ4args{file.delegation.stateid, 0, 10}).status() ==
               nfsstat4::bad_stateid);
    BOOST_TEST(commons->state.table().stats().revoked_delegations.value() == 0);
    BOOST_TEST(c.renew() == nfsstat4::ok);
    pass(1ms);
    BOOST_TEST(lists.new_list.size() == 2u); // whatever it does next
    BOOST_TEST(give_back(file) == nfsstat4::bad_stateid);
    BOOST_TEST(c.open(c.opening("g", share4::access_read)).status == nfsstat4::ok);
}

// The answer to its OPEN was lost, say: no stateid of its own tells it.
BOOST_FIXTURE_TEST_CASE(who_does_not_know_what_it_lost_is_told_for_two_leases, revoked_fixture)
{
    host.silent = false;
    for (int i = 0; i < 6; ++i) {
        BOOST_TEST(commons->state.table().stats().revoked_delegations.value() == 1);
        pass(30s, 100ms);
        BOOST_TEST(c.renew() == nfsstat4::cb_path_down);
        BOOST_TEST(other.renew() == nfsstat4::ok);
    }
    BOOST_TEST(commons->state.table().stats().revoked_delegations.value() == 0);
    pass(1ms);
    BOOST_TEST(lists.new_list.size() == 2u);
    BOOST_TEST(c.renew() == nfsstat4::ok);
    BOOST_TEST(c.open(c.opening("g", share4::access_read)).status == nfsstat4::ok);
    BOOST_TEST(give_back(file) == nfsstat4::bad_stateid);
}

// With its export, say by a reload that keeps the client out for some time. It goes by what it caches until it hears of
// that.
BOOST_FIXTURE_TEST_CASE(who_can_t_be_called_hears_by_renew_what_went_with_an_export, fixture)
{
    begin();
    client0 c(*this, "c"), other(*this, "other");
    c.connect();
    (void)delegated(c, "f");
    other.address = "127.0.0.1.8.2";
    other.connect();
    (void)delegated(other, "g");
    host.silent = true;
    files::state_table::export_losses lost;
    std::size_t place = 0;
    while (commons->state.table().drop_export(exports.all()[0].id,
                                              files::state_table::export_state::delegations, place, lost)) {
    }
    BOOST_TEST(lost.delegations == 2u);
    pass(30s, 100ms);
    BOOST_TEST(called.at("127.0.0.1:2050").calls.size() == 1u); // the other one can be called
    host.silent = false;
    const auto told_for = [&](int times) {
        for (int i = 0; i < times; ++i) {
            BOOST_TEST(c.renew() == nfsstat4::cb_path_down);
            BOOST_TEST(other.renew() == nfsstat4::ok);
            pass(30s, 100ms);
        }
    };
    told_for(7); // two leases from the first time on
    BOOST_TEST(c.renew() == nfsstat4::ok);
    // What is lost when it has been told already is told as long.
    const files::client_id client = commons->v40.clients().state_of(c.id);
    commons->v40.note_unheard_loss(client);
    told_for(1);
    commons->v40.note_unheard_loss(client);
    told_for(12);
    BOOST_TEST(c.renew() == nfsstat4::ok);
}

namespace {

/// Likewise, and it has heard of that, and has delegations of "h" and "i".
struct revoked_again_fixture : revoked_fixture {
    revoked_again_fixture()
    {
        host.silent = false;
        BOOST_TEST(give_back(file) == nfsstat4::bad_stateid);
        BOOST_TEST(c.renew() == nfsstat4::ok);
        move(c);
        second = delegated(c, "h");
        (void)delegated(c, "i");
    }
    /// It does not give that back, and loses it after a lease.
    void lose(std::string_view name)
    {
        (void)begin0(PUTROOTFH4args(), LOOKUP4args{"export"}, REMOVE4args{name});
    }
    /// Its lease goes on without RENEW.
    void go_on(int times)
    {
        for (int i = 0; i < times; ++i) {
            pass(30s, 100ms);
            BOOST_TEST(compound(PUTFH4args{file.fh()}, READ4args{file.id, 0, 10}).status() == nfsstat4::ok);
        }
    }
    client0::opened second;
    std::int64_t revoked() { return commons->state.table().stats().revoked_delegations.value(); }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(two_leases_begin_when_it_is_told, revoked_again_fixture)
{
    lose("h");
    go_on(10);
    BOOST_TEST(revoked() == 1);
    BOOST_TEST(c.renew() == nfsstat4::cb_path_down);
    go_on(5);
    BOOST_TEST(c.renew() == nfsstat4::cb_path_down);
    BOOST_TEST(revoked() == 1);
    go_on(1);
    BOOST_TEST(c.renew() == nfsstat4::cb_path_down);
    BOOST_TEST(revoked() == 0);
}

BOOST_FIXTURE_TEST_CASE(what_is_lost_later_is_told_as_long, revoked_again_fixture)
{
    lose("h");
    go_on(4);
    BOOST_TEST(c.renew() == nfsstat4::cb_path_down);
    lose("i");
    go_on(5);
    BOOST_TEST(revoked() == 2);
    go_on(2);
    BOOST_TEST(c.renew() == nfsstat4::cb_path_down);
    BOOST_TEST(revoked() == 1);
    go_on(5);
    BOOST_TEST(c.renew() == nfsstat4::cb_path_down);
    BOOST_TEST(revoked() == 1);
    go_on(1);
    BOOST_TEST(c.renew() == nfsstat4::cb_path_down);
    BOOST_TEST(revoked() == 0);
}

// Though RENEW told of another one long before.
BOOST_FIXTURE_TEST_CASE(what_is_lost_after_one_was_heard_of_is_told_anew, revoked_again_fixture)
{
    lose("h");
    go_on(4);
    BOOST_TEST(c.renew() == nfsstat4::cb_path_down);
    BOOST_TEST(give_back(second) == nfsstat4::bad_stateid);
    BOOST_TEST(revoked() == 0);
    lose("i");
    go_on(10);
    BOOST_TEST(revoked() == 1);
    BOOST_TEST(c.renew() == nfsstat4::cb_path_down);
    BOOST_TEST(revoked() == 1);
}

BOOST_FIXTURE_TEST_CASE(who_returns_a_revoked_delegation_hears_of_it, revoked_fixture)
{
    BOOST_TEST(give_back(file) == nfsstat4::bad_stateid);
    BOOST_TEST(commons->state.table().stats().revoked_delegations.value() == 0);
    BOOST_TEST(c.renew() == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(what_is_claimed_under_a_revoked_delegation_tells_too, revoked_fixture)
{
    OPEN4args claim = c.opening("f", share4::access_read);
    claim.claim.claim = open_claim_type4::delegate_cur;
    claim.claim.delegate_stateid = file.delegation.stateid;
    BOOST_TEST(c.open(claim).status == nfsstat4::bad_stateid);
    --c.seqid; // that used up no number
    BOOST_TEST(commons->state.table().stats().revoked_delegations.value() == 0);
    BOOST_TEST(c.open(c.opening("g", share4::access_read)).status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(who_opens_something_before_it_heard_of_it_begins_anew, revoked_fixture)
{
    BOOST_TEST(c.open(c.opening("g", share4::access_read)).status == nfsstat4::expired);
    BOOST_TEST(c.renew() == nfsstat4::stale_clientid);
    BOOST_TEST(compound(PUTFH4args{file.fh()}, READ4args{file.id, 0, 10}).status() == nfsstat4::expired);
    BOOST_TEST(commons->state.table().stats().revoked_delegations.value() == 0);
    host.silent = false;
    c.connect();
    make(c, "h");
    BOOST_TEST(c.open(c.opening("h", share4::access_read)).delegation.delegation_type == deleg::read);
    BOOST_TEST(lists.new_list.size() == 2u);
}

BOOST_FIXTURE_TEST_CASE(an_owner_that_is_not_confirmed_gets_no_delegation, fixture)
{
    begin();
    client0 c(*this, "c");
    c.connect();
    make(c, "f");
    c.owner = "another";
    const auto file = c.open(c.opening("f", share4::access_read));
    BOOST_TEST((file.rflags & open4_result::confirm) != 0u);
    BOOST_TEST(file.delegation.delegation_type == deleg::none);
    BOOST_TEST(c.confirm(file).status == nfsstat4::ok);
    const auto again = c.open(c.opening("f", share4::access_read));
    BOOST_TEST((again.rflags & open4_result::confirm) == 0u);
    BOOST_TEST(again.delegation.delegation_type == deleg::read);
}

BOOST_FIXTURE_TEST_CASE(a_repeat_of_open_has_the_same_delegation, fixture)
{
    begin();
    client0 c(*this, "c");
    c.connect();
    make(c, "f");
    const OPEN4args args = c.opening("f");
    const auto first = c.open(args), again = c.open(args);
    BOOST_TEST(first.delegation.delegation_type == deleg::write);
    BOOST_TEST(again.delegation.delegation_type == deleg::write);
    BOOST_TEST((again.delegation.stateid == first.delegation.stateid));
    BOOST_TEST(again.delegation.space_limit.filesize == UINT64_MAX);
    BOOST_TEST(commons->state.table().stats().write_delegations.value() == 1);
}

BOOST_FIXTURE_TEST_CASE(opens_are_claimed_under_a_delegation, fixture)
{
    begin();
    client0 c(*this, "c"), other(*this, "other");
    other.address = "127.0.0.1.8.2";
    c.connect();
    const auto file = delegated(c, "f", share4::access_both);
    BOOST_TEST(c.close(file).status == nfsstat4::ok);
    other.connect();
    make(other, "g");
    (void)take(other, "f");
    BOOST_TEST(host.calls.size() == 1u);
    OPEN4args claim = c.opening("f");
    claim.claim.claim = open_claim_type4::delegate_cur;
    claim.claim.delegate_stateid = file.delegation.stateid;
    const auto claimed = c.open(claim);
    BOOST_TEST(claimed.status == nfsstat4::ok);
    BOOST_TEST(claimed.delegation.delegation_type == deleg::none);
    BOOST_TEST(c.write(claimed, claimed.id) == nfsstat4::ok);
    claim.seqid = ++c.seqid;
    claim.claim.claim = open_claim_type4::delegate_prev;
    BOOST_TEST(c.open(claim).status == nfsstat4::notsupp);
    // Linux asks for attributes in front: it does not wait for itself.
    answer4 back = compound(PUTFH4args{file.fh()}, GETATTR4args{{attribute::change, attribute::size}},
                            DELEGRETURN4args{file.delegation.stateid});
    BOOST_TEST(back.status() == nfsstat4::ok);
    BOOST_TEST(compound(PUTROOTFH4args(), DELEGPURGE4args{c.id}).status() == nfsstat4::notsupp);
}

// As pynfs does it.
BOOST_FIXTURE_TEST_CASE(a_new_owner_claims_while_it_is_recalled, fixture)
{
    begin();
    client0 c(*this, "c"), other(*this, "other");
    other.address = "127.0.0.1.8.2";
    c.connect();
    const auto file = delegated(c, "f");
    other.connect();
    make(other, "g");
    const auto waiting = take(other, "f");
    pass(1100ms);
    BOOST_TEST(status_of(*waiting) == nfsstat4::delay);
    pass(2s);
    c.owner = "new";
    OPEN4args claim = c.opening("f", share4::access_read, share4::deny_write);
    claim.claim.claim = open_claim_type4::delegate_cur;
    claim.claim.delegate_stateid = file.delegation.stateid;
    const auto claimed = c.open(claim);
    BOOST_TEST(claimed.status == nfsstat4::ok);
    BOOST_TEST(give_back(file) == nfsstat4::ok);
}

// A laptop that changes from one network to another, say. Linux asks for attributes behind OPEN.
BOOST_FIXTURE_TEST_CASE(who_calls_from_another_address_does_not_wait_for_itself, fixture)
{
    begin();
    client0 c(*this, "c");
    c.connect();
    make(c, "f");
    from.address = "127.0.0.9";
    const bitmap4 wanted = {attribute::size, attribute::change};
    const auto opening =
        begin0(PUTROOTFH4args(), LOOKUP4args{"export"}, c.opening("f"), GETFH4args(), GETATTR4args{wanted});
    BOOST_TEST_REQUIRE(opening->is_done);
    answer4 out = answer_of(*opening);
    out.good<PUTROOTFH4res>();
    out.good<LOOKUP4res>();
    BOOST_TEST(out.good<OPEN4res>().delegation.delegation_type == deleg::write);
    const auto handle = out.good<GETFH4res>().object;
    const std::vector<std::byte> file(handle.begin(), handle.end());
    out.good<GETATTR4res>();
    BOOST_TEST(host.calls.empty());
    // An owner that nobody has confirmed may be anybody's.
    host.values.present = {attribute::change, attribute::size};
    c.owner = "new";
    BOOST_TEST(
        compound(PUTROOTFH4args(), LOOKUP4args{"export"}, c.opening("f"), GETATTR4args{wanted}).status() ==
        nfsstat4::ok);
    BOOST_TEST(host.calls.size() == 1u);
    // It says where it is now: that is its own address then, whose limits it shares.
    const auto ask = [&] {
        (void)compound(PUTFH4args{std::span(file)}, GETATTR4args{wanted}, c.opening("f"));
    };
    ask();
    BOOST_TEST(host.calls.size() == 2u);
    c.address = "127.0.0.9.8.1";
    move(c);
    ask();
    BOOST_TEST(host.calls.size() == 2u);
    BOOST_TEST(called.at("127.0.0.9:2049").calls.empty());
    BOOST_TEST(commons->v40.clients().states_of("127.0.0.1").empty());
    BOOST_TEST(commons->v40.clients().states_of("127.0.0.9").size() == 1u);
    BOOST_TEST(commons->v40.clients().size() == 1u);
}

BOOST_FIXTURE_TEST_CASE(others_ask_a_writer_for_attributes, fixture)
{
    begin();
    client0 c(*this, "c");
    c.connect();
    const auto file = delegated(c, "f", share4::access_both);
    host.values.present = {attribute::change, attribute::size};
    host.values.change = 1;
    host.values.size = 4711;
    // The holder's own calls say who it is, by what stands anywhere in them.
    const bitmap4 wanted = {attribute::size};
    const auto own = [&](answer4 out) {
        BOOST_TEST(out.status() == nfsstat4::ok);
        BOOST_TEST(host.calls.empty());
    };
    own(compound(PUTFH4args{file.fh()}, READ4args{file.id, 0, 1}, GETATTR4args{wanted}));
    own(compound(PUTFH4args{file.fh()}, GETATTR4args{wanted}, READ4args{file.delegation.stateid, 0, 1}));
    own(compound(PUTROOTFH4args(), LOOKUP4args{"export"}, c.opening("f"), GETATTR4args{wanted}));
    // Others'.
    answer4 seen = compound(PUTFH4args{file.fh()}, GETATTR4args{wanted});
    seen.good<PUTFH4res>();
    const auto res = seen.good<GETATTR4res>();
    attributes values;
    BOOST_TEST(decode_attributes(res.obj_attributes, values));
    BOOST_TEST(values.size == 4711u);
    BOOST_TEST_REQUIRE(host.calls.size() == 1u);
    BOOST_TEST((host.calls[0].operation == nfs_cb_opnum4::getattr));
    BOOST_TEST(host.calls[0].ident == 77u);
    BOOST_TEST(std::ranges::equal(host.calls[0].handle, file.handle));
    BOOST_TEST(count(kind::getattr, outcome::ok) == 1u);
    // From another host it is not the holder's, whatever it says.
    from.address = "127.0.0.9";
    BOOST_TEST(compound(PUTFH4args{file.fh()}, GETATTR4args{wanted}, c.opening("f")).status() ==
               nfsstat4::notdir);
    from.address = "127.0.0.1";
    BOOST_TEST(host.calls.size() == 2u);
    // One that has no answer in time is recalled, and its path is no worse for that.
    host.silent_recalls = true;
    const auto asking = begin0(PUTFH4args{file.fh()}, GETATTR4args{wanted});
    pass(1100ms);
    host.silent_recalls = false;
    pass(1s);
    BOOST_TEST(status_of(*asking) == nfsstat4::delay);
    BOOST_TEST(host.open == 1);
    BOOST_TEST(c.renew() == nfsstat4::ok);
    BOOST_TEST(give_back(file) == nfsstat4::ok);
}

namespace {

struct restarted : restarting_fixture {
    restarted() : restarting_fixture(false) { hosts = &called; }
    ~restarted() { stop(); }
    void go_on()
    {
        serving->spawn([this] { return commons->callbacks.run(); });
        turns();
    }
    called_hosts called{pool};
    called_hosts::listener& host = called.at("127.0.0.1:2049");
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_delegation_is_taken_back_after_a_restart, restarted)
{
    start_again();
    go_on();
    client0 c(*this, "c");
    c.connect();
    pass(1ms);
    auto file = c.ready(c.creating("f"));
    file = c.open(c.opening("f"));
    BOOST_TEST_REQUIRE(file.delegation.delegation_type == deleg::write);
    for (const std::string_view now : {"as it was", "not there", "elsewhere"}) {
        const bool is_there = now == "as it was";
        start_again();
        go_on();
        host.hangs = now == "not there";
        c.netid = now == "elsewhere" ? "udp" : "tcp";
        c.connect();
        c.seqid = 0;
        OPEN4args claim = c.opening("");
        claim.claim.claim = open_claim_type4::previous;
        claim.claim.delegate_type = deleg::write;
        auto reclaiming = prepare(0, [&](compound_request& out) {
            out.add(PUTFH4args{file.fh()});
            out.add(claim);
        });
        memory_call& c0 = *reclaiming;
        serving->spawn([&]() -> task<void> {
            (void)co_await dispatcher->dispatch(c0);
            c0.is_done = true;
        });
        pass(is_there ? 1ms : 1100ms);
        BOOST_TEST_REQUIRE(c0.is_done);
        answer4 out = answer_of(c0);
        out.good<PUTFH4res>();
        const auto res = out.good<OPEN4res>();
        BOOST_TEST(res.delegation.delegation_type == deleg::write);
        BOOST_TEST(res.delegation.recall == !is_there);
        BOOST_TEST((res.rflags & open4_result::confirm) == 0u);
        BOOST_TEST(c.renew() == (now == "elsewhere" ? nfsstat4::cb_path_down : nfsstat4::ok));
        BOOST_TEST(compound(PUTFH4args{file.fh()}, DELEGRETURN4args{res.delegation.stateid}).status() ==
                   nfsstat4::ok);
    }
}

// --- All at once

namespace {

/// Clients of three files that hosts keep from being called at times, each in its own way.
struct walk : called_hosts_fixture {
    struct held {
        std::string name;
        deleg type = deleg::none;
        client0::opened file;
    };
    struct one {
        one(walk& w, int n) : client(w, "c" + std::to_string(n)), port(n)
        {
            client.address = "127.0.0.1.8." + std::to_string(n);
        }
        client0 client;
        int port;
        std::vector<held> holds;
        bool obeys = true;
    };
    static constexpr int files_count = 3;

    explicit walk(std::uint64_t seed) : luck(seed)
    {
        program.reset();
        dispatcher.reset();
        commons.reset();
        homes = seed % 2 == 0 ? 3 : 1;
        begin();
        for (int n = 1; n <= 3; ++n) {
            one& c = clients.emplace_back(*this, n);
            c.client.connect();
            for (int f = 0; f < files_count; ++f)
                make(c.client, name_of(f));
        }
    }
    static std::string name_of(int f) { return "f" + std::to_string(f); }
    std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(luck); }
    called_hosts::listener& host_of(const one& c)
    {
        return called.at("127.0.0.1:" + std::to_string(2048 + c.port));
    }
    bool is_valid(const one& c, const held& h)
    {
        const files::client_id client = commons->v40.clients().state_of(c.client.id);
        for (unsigned home = 0; home < homes; ++home)
            if (commons->state.table(home).test_stateid(client, to_state(h.file.delegation.stateid)))
                return true;
        return false;
    }
    void give_back(one& c, std::size_t i)
    {
        const bool valid = is_valid(c, c.holds[i]);
        BOOST_TEST(fixture::give_back(c.holds[i].file) == (valid ? nfsstat4::ok : nfsstat4::bad_stateid));
        c.holds.erase(c.holds.begin() + std::ptrdiff_t(i));
    }
    /// Who was called gives back what it was called for, if it does as it is told.
    void obey()
    {
        for (one& c : clients) {
            for (const auto& h : host_of(c).calls) {
                const auto of = std::ranges::find_if(
                    c.holds, [&](const held& each) { return each.file.delegation.stateid == h.id; });
                if (c.obeys && of != c.holds.end() && of->file.delegation.stateid == h.id)
                    give_back(c, std::size_t(of - c.holds.begin()));
            }
            if (c.obeys)
                host_of(c).calls.clear();
        }
    }
    void renew_all()
    {
        for (one& c : clients) {
            const bool has_one = // or one that was revoked, of which it has not heard
                std::ranges::any_of(c.holds, [&](const held& h) { return is_valid(c, h); }) ||
                commons->state.clients().has_revoked(commons->v40.clients().state_of(c.client.id));
            const nfsstat4 status = c.client.renew();
            BOOST_TEST((status == nfsstat4::ok || (has_one && status == nfsstat4::cb_path_down)));
        }
    }
    /// What others hold of a file is gone before an open that it is in the way of is answered.
    void open(one& c, int f, std::uint32_t access)
    {
        const auto running = begin0(PUTROOTFH4args(), LOOKUP4args{"export"},
                                    c.client.opening(name_of(f), access), GETFH4args());
        for (int i = 0; i < 150 && !running->is_done; ++i) {
            obey();
            pass(10ms);
        }
        BOOST_TEST_REQUIRE(running->is_done);
        answer4 out = answer_of(*running);
        out.good<PUTROOTFH4res>();
        out.good<LOOKUP4res>();
        const auto res = out.take<OPEN4res>();
        if (res.status == nfsstat4::expired) { // it lost one and had not heard of that
            BOOST_TEST(std::ranges::none_of(c.holds, [&](const held& h) { return is_valid(c, h); }));
            c.holds.clear();
            c.client.connect();
            make(c.client, "own" + std::to_string(c.port));
            ++begun_anew;
            return;
        }
        BOOST_TEST((res.status == nfsstat4::ok || res.status == nfsstat4::delay), res.status);
        if (res.status != nfsstat4::ok)
            return;
        const bool writes = (access & share4::access_write) != 0;
        const deleg got = res.delegation.delegation_type;
        for (one& other : clients)
            for (const held& h : other.holds)
                if (&other != &c && h.name == name_of(f) &&
                    (writes || got == deleg::write || h.type == deleg::write))
                    BOOST_TEST(!is_valid(other, h));
        held made{name_of(f), got, {}};
        made.file.id = res.stateid;
        made.file.delegation = res.delegation;
        const auto handle = out.good<GETFH4res>();
        made.file.handle.assign(handle.object.begin(), handle.object.end());
        BOOST_TEST(c.client.close(made.file).status == nfsstat4::ok);
        if (got != deleg::none) {
            ++given;
            c.holds.push_back(std::move(made));
        }
    }
    void disturb(one& c)
    {
        called_hosts::listener& l = host_of(c);
        l.refuses = l.hangs = l.silent = l.silent_recalls = l.rejects = l.babbles = false;
        l.says = nfsstat4::ok;
        c.obeys = below(5) != 0;
        switch (below(12)) {
        case 0: l.refuses = true; break;
        case 1: l.hangs = true; break;
        case 2: l.silent = true; break;
        case 3: l.silent_recalls = true; break;
        case 4: l.rejects = true; break;
        case 5: l.babbles = true; break;
        case 6: l.breaks = 1; break;
        case 7: l.says = nfsstat4::delay; break;
        case 8: l.says = nfsstat4::serverfault; break;
        default: break;
        }
    }
    void move(one& c)
    {
        c.client.ident += 1;
        const auto set = c.client.set();
        BOOST_TEST_REQUIRE(set.status == nfsstat4::ok);
        BOOST_TEST(c.client.confirm(set.clientid, set.setclientid_confirm) == nfsstat4::ok);
    }
    void step()
    {
        one& c = clients[below(clients.size())];
        switch (below(10)) {
        case 0: disturb(c); break;
        case 1: move(c); break;
        case 2:
            if (!c.holds.empty())
                give_back(c, below(c.holds.size()));
            break;
        case 3: pass(std::chrono::milliseconds(below(12'000)), 100ms); break;
        case 4: pass(30s, 500ms); break;
        default: open(c, int(below(files_count)), below(3) == 0 ? share4::access_both : share4::access_read);
        }
        renew_all();
        obey();
        BOOST_TEST(paths().connections.value() <= std::int64_t(clients.size()) * 2);
        std::int64_t known = 0;
        for (const auto v :
             {callback_path::verdict::unknown, callback_path::verdict::up, callback_path::verdict::down})
            known += paths().paths(v).value();
        BOOST_TEST(known == std::int64_t(clients.size()));
    }
    /// When all can be called again nothing is left of it.
    void end()
    {
        for (one& c : clients) {
            called_hosts::listener& l = host_of(c);
            l.refuses = l.hangs = l.silent = l.silent_recalls = l.rejects = l.babbles = false;
            l.says = nfsstat4::ok;
            l.breaks = 0;
            c.obeys = true;
        }
        for (int i = 0; i < 12; ++i) {
            pass(30s, 1s);
            obey();
            renew_all();
            for (one& c : clients)
                open(c, 0, share4::access_read);
        }
        BOOST_TEST(paths().paths(callback_path::verdict::up).value() == std::int64_t(clients.size()));
        for (one& c : clients)
            while (!c.holds.empty())
                give_back(c, 0);
        pass(20s, 100ms);
        BOOST_TEST(paths().connections.value() == 0);
        BOOST_TEST(commons->callbacks.counters().waiting.value() == 0);
        const auto& stats = commons->state.table().stats();
        BOOST_TEST(stats.read_delegations.value() + stats.write_delegations.value() == 0);
        BOOST_TEST(stats.revoked_delegations.value() == 0);
        for (one& c : clients)
            BOOST_TEST(host_of(c).open == 0);
    }

    std::mt19937_64 luck;
    std::deque<one> clients;
    int given = 0, begun_anew = 0;
};

} // namespace

BOOST_AUTO_TEST_CASE(nobody_holds_what_another_one_changes)
{
    int given = 0, begun_anew = 0;
    std::uint64_t revoked = 0;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        BOOST_TEST_CONTEXT("seed " << seed)
        {
            walk w(seed);
            for (int i = 0; i < 120; ++i)
                w.step();
            w.end();
            given += w.given;
            begun_anew += w.begun_anew;
            revoked += w.commons->state.total(&files::state_stats::revocations);
        }
    }
    BOOST_TEST(given > 40);
    BOOST_TEST(revoked > 2u);
    BOOST_TEST(begun_anew > 0);
}

BOOST_AUTO_TEST_SUITE_END()
