// SPDX-License-Identifier: Apache-2.0
// Delegations of our client: what its own changes, its sessions and its connections make of them.
#include "nfs4_two_clients.hpp"
#include "nfs4_user_names.hpp"

BOOST_AUTO_TEST_SUITE(nfs4_client_delegation_changes_test)

using namespace verbena;
using namespace verbena::test;
using nfs::v4::new_attributes;
using nfs::v4::open_how;

namespace {

using fixture = two_clients;

/// The server tells names, which the holder looks up.
struct named : two_clients {
    named()
    {
        user_names_options o;
        o.sends_names = true;
        theirs.emplace(tasks, their_source, o);
        commons->users = &*theirs;
        ours.emplace(tasks, our_source);
        holder.user.use_names(&*ours);
    }
    ~named()
    {
        our_source.answer();
        turns(20);
        holder.user.use_names(nullptr);
        commons->users = nullptr;
    }
    /// The holder's open of it, which waits for the name of its owner.
    void begin_open(nfs::v4::node what)
    {
        our_source.be_slow();
        opens.spawn([this, what]() -> task<void> {
            auto got = co_await holder.user.open(what, share4::access_read);
            BOOST_TEST_REQUIRE(got.has_value());
            opened = std::move(*got);
        });
        turns();
        BOOST_TEST_REQUIRE(opened == nullptr);
        BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 1u);
    }
    void end_open()
    {
        BOOST_TEST_REQUIRE(opened == nullptr);
        our_source.answer();
        turns(20);
        BOOST_TEST_REQUIRE(opened != nullptr);
    }

    named_accounts their_source, our_source;
    std::optional<user_names> theirs, ours;
    scope opens{*shard};
    std::unique_ptr<nfs::v4::file> opened;
};

// Where the delegation stands in OPEN's answer behind SEQUENCE and PUTFH, and its length.
std::pair<std::size_t, std::size_t> delegation_in(const std::vector<std::byte>& reply)
{
    std::size_t at = 24 + 12 + 44 + 8 + 8 + 16 + 20 + 4; // to the attributes that were set
    at += 4 + 4 * xdr::load_u32(reply.data() + at);
    const std::span<const std::byte> bytes(reply);
    xdr::decoder in(bytes.subspan(at));
    open_delegation4 read;
    xdr::codec<open_delegation4>::decode(in, read);
    BOOST_TEST_REQUIRE(in.ok());
    return {at, in.position()};
}

// A server that gives the holder the first delegation with each OPEN.
template<class Clients>
struct giving_the_same : Clients {
    giving_the_same()
    {
        this->holder.wire.on_reply_to = [this](const sent_compound& call, std::vector<std::byte>& reply) {
            refuse_what_is_to_be(call, reply);
            if (!call.has(nfs_opnum4::open))
                return;
            const auto [at, length] = delegation_in(reply);
            const auto begin = reply.begin() + static_cast<std::ptrdiff_t>(at);
            const auto end = begin + static_cast<std::ptrdiff_t>(length);
            const std::uint32_t type = xdr::load_u32(reply.data() + at);
            if (type == 1 || type == 2) // for reading or writing
                given.assign(begin, end);
            else if (!given.empty())
                reply.insert(reply.erase(begin, end), given.begin(), given.end());
        };
    }
    void refuse_what_is_to_be(const sent_compound& call, std::vector<std::byte>& reply)
    {
        if (call.has(nfs_opnum4::read) && std::exchange(forgets, false))
            refuse_at(reply, 2, nfsstat4::bad_stateid);
    }
    std::vector<std::byte> given;
    bool forgets = false; // the stateid of the next READ
};
using gives_the_same = giving_the_same<fixture>;
using named_and_gives_the_same = giving_the_same<named>;

} // namespace

BOOST_FIXTURE_TEST_CASE(what_changes_while_an_owners_name_is_looked_up_is_seen, named)
{
    our_source.names = {{{account_kind::user, 1234}, "alice"}};
    const auto what = make("f");
    begin_open(what);
    BOOST_TEST(holder.user.delegations() == 1u);
    new_attributes set;
    set.size = 100;
    BOOST_TEST_REQUIRE(run([&] { return holder.user.setattr(what.handle, set); }).has_value());
    end_open();
    BOOST_TEST(opened->node().attributes.uid == 1234u);
    auto again = open(holder, what, share4::access_read);
    BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 1u);
    BOOST_TEST(again->node().attributes.size == 100u);
    BOOST_TEST(again->node().attributes.uid == 1234u);
    close(*again);
    close(*opened);
    again = open(holder, what, share4::access_read);
    BOOST_TEST(again->node().attributes.uid == 1234u);
    close(*again);
}

BOOST_FIXTURE_TEST_CASE(an_open_while_an_owners_name_is_looked_up_shows_it_too, named)
{
    our_source.names = {{{account_kind::user, 1234}, "alice"}};
    const auto what = make("f");
    begin_open(what);
    std::unique_ptr<nfs::v4::file> second;
    opens.spawn([&]() -> task<void> {
        auto got = co_await holder.user.open(what, share4::access_read);
        BOOST_TEST_REQUIRE(got.has_value());
        second = std::move(*got);
    });
    turns();
    end_open();
    BOOST_TEST(opened->node().attributes.uid == 1234u);
    BOOST_TEST_REQUIRE(second != nullptr);
    BOOST_TEST(second->node().attributes.uid == 1234u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 1u);
    for (auto* each : {&opened, &second})
        close(**each);
    opened.reset();
    // What is known then is not asked for again.
    holder.wire.sent.clear();
    const auto other_file = make("g");
    our_source.names = {{{account_kind::user, 1235}, "alice"}};
    ours.emplace(tasks, our_source);
    begin_open(other_file);
    end_open();
    holder.wire.sent.clear();
    second = open(holder, other_file, share4::access_read);
    BOOST_TEST(second->node().attributes.uid == 1235u);
    BOOST_TEST(holder.wire.sent.empty());
    close(*opened);
    close(*second);
}

BOOST_FIXTURE_TEST_CASE(who_has_gone_leaves_no_delegation_without_an_owners_name, named)
{
    our_source.names = {{{account_kind::user, 1234}, "alice"}};
    const auto what = make("f");
    event go;
    holder.wire.holds_answer = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::open) ? &go : nullptr;
    };
    scope gives_up(*shard);
    gives_up.spawn([&]() -> task<void> { (void)co_await holder.user.open(what, share4::access_read); });
    turns();
    gives_up.request_stop();
    turns();
    go.set();
    run([&]() -> task<void> { co_await gives_up.join(); });
    turns();
    BOOST_TEST_REQUIRE(holder.user.delegations() == 1u);
    BOOST_TEST(our_source.asked.empty());
    auto again = open(holder, what, share4::access_read);
    BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 1u);
    BOOST_TEST(again->node().attributes.uid == 1234u);
    close(*again);
}

BOOST_FIXTURE_TEST_CASE(a_recall_does_not_wait_for_an_owners_name, named)
{
    const auto what = make("f");
    begin_open(what);
    auto writes = open(other, what, share4::access_write);
    BOOST_TEST(holder.user.delegations() == 0u);
    end_open();
    BOOST_TEST(text_of(*opened) == "text");
    close(*writes);
    close(*opened);
}

BOOST_FIXTURE_TEST_CASE(a_restart_while_an_owners_name_is_looked_up_leaves_what_the_server_has, named)
{
    const auto what = make("f");
    begin_open(what);
    restart(true);
    (void)good([&] { return holder.user.access(what.handle, access4::read); });
    end_open();
    BOOST_TEST(holder.user.delegations() == 1u);
    BOOST_TEST(delegations() == 1u);
    close(*opened);
}

// AUTH_SYS sends a number, and the server compares it with its own.
BOOST_FIXTURE_TEST_CASE(the_mode_is_judged_by_the_servers_number_of_the_owner, named_and_gives_the_same)
{
    // Here alice is the holder.
    our_source.names = {{{account_kind::user, 1000}, "alice"}};
    (void)make("f");
    auto made =
        good([&] { return holder.user.create(top, "f", {}, open_how::unchecked, share4::access_both); });
    BOOST_TEST(made->node().attributes.uid == 1000u);
    BOOST_TEST_REQUIRE(holder.user.delegations() == 1u);
    auto again = open(holder, made->node(), share4::access_read);
    BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 2u);
    close(*again);
    // What that OPEN told of the delegation was judged so as well, although the name was known by then.
    again = open(holder, made->node(), share4::access_read);
    BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 3u);
    close(*again);
    close(*made);
}

BOOST_FIXTURE_TEST_CASE(what_this_client_changes_itself_its_next_open_sees, fixture)
{
    const auto what = delegated("f");
    const auto from = make("s");
    auto source = open(other, from, share4::access_read); // so that there is no delegation
    auto reads = open(holder, from, share4::access_read);
    auto writes = open(holder, what, share4::access_write); // for which the delegation is no good
    const auto size = [&](const nfs::v4::node& of) {
        const std::size_t before = holder.wire.count(nfs_opnum4::open);
        auto opened = open(holder, of, share4::access_read);
        BOOST_TEST(holder.wire.count(nfs_opnum4::open) == before);
        const std::uint64_t told = opened->node().attributes.size;
        BOOST_TEST(opened->node().attributes.change ==
                   good([&] { return other.user.getattr(of.handle); }).change);
        close(*opened);
        return told;
    };
    write(*writes, "longer than it was");
    BOOST_TEST(size(what) == 18u);
    BOOST_TEST_REQUIRE(run([&] { return writes->truncate(2); }).has_value());
    BOOST_TEST(size(what) == 2u);
    BOOST_TEST_REQUIRE(run([&] { return writes->copy_from(*reads, 2, {}); }).has_value());
    BOOST_TEST(size(what) == 2u);
    new_attributes set;
    set.size = 9;
    BOOST_TEST_REQUIRE(run([&] { return holder.user.setattr(what.handle, set); }).has_value());
    BOOST_TEST(size(what) == 9u);
    set.size = 0;
    auto again = good([&] { return holder.user.create(top, "f", set, open_how::unchecked); });
    BOOST_TEST(size(what) == 0u);
    close(*again);
    close(*writes);
    // Once it has been looked at, opens make no call.
    BOOST_TEST(size(what) == 0u);
    holder.wire.sent.clear();
    BOOST_TEST(size(what) == 0u);
    BOOST_TEST(holder.wire.sent.empty());
    close(*reads);
    close(*source);

    // Of two files under one delegation, the one that is closed last may know the least.
    const auto both = delegated("g", share4::access_both);
    auto first = open(holder, both, share4::access_both);
    auto second = open(holder, both, share4::access_both);
    BOOST_TEST_REQUIRE(run([&] { return first->truncate(0); }).has_value());
    close(*second);
    BOOST_TEST(size(both) == 0u);
    // The server hears that nothing is kept here: the change attribute of before, and the size of now.
    write(*first, "longer than it was");
    CB_GETATTR4args asked;
    asked.fh = both.handle.bytes();
    asked.attr_request = {attribute::change, attribute::size};
    attributes told;
    BOOST_TEST(call_back(asked, {}, &told) == nfsstat4::ok);
    BOOST_TEST(told.present.test(attribute::size));
    BOOST_TEST(told.size == 18u);
    const changeid4 change = told.change;
    BOOST_TEST_REQUIRE(run([&] { return first->truncate(7); }).has_value());
    BOOST_TEST(call_back(asked, {}, &told) == nfsstat4::ok);
    BOOST_TEST(told.size == 7u);
    BOOST_TEST(told.change == change);
    // Which of two the server has done last, answers don't tell: it is asked itself.
    event go;
    holder.wire.gate = &go;
    const auto open_it = [](event& e) -> task<void> {
        e.set();
        co_return;
    };
    const auto done = run([&] { return when_all(first->truncate(3), first->truncate(5), open_it(go)); });
    holder.wire.gate = nullptr;
    BOOST_TEST((std::get<0>(done) && std::get<1>(done)));
    BOOST_TEST(call_back(asked, {}, &told) == nfsstat4::serverfault);
    close(*first);
}

// The server may have done it already. Another size than the server's would be a change that is kept here.
BOOST_FIXTURE_TEST_CASE(a_size_is_told_as_it_is_behind_what_is_under_way, fixture)
{
    const auto what = delegated("f", share4::access_both);
    auto used = open(holder, what, share4::access_both);
    CB_GETATTR4args asked;
    asked.fh = what.handle.bytes();
    asked.attr_request = {attribute::change, attribute::size};
    attributes told;
    event go;
    holder.wire.holds_answer = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::write) || call.has(nfs_opnum4::setattr) ? &go : nullptr;
    };
    scope changing(*shard);
    bool is_good = false;
    const auto end = [&] {
        go.set();
        run([&]() -> task<void> { co_await changing.join(); });
        go.reset();
        BOOST_TEST(std::exchange(is_good, false));
    };
    changing.spawn([&]() -> task<void> {
        auto wrote = co_await used->write(4, bytes_of(" and more"));
        is_good = wrote.has_value();
    });
    turns();
    BOOST_TEST(call_back(asked, {}, &told) == nfsstat4::ok);
    BOOST_TEST(told.size == 13u);
    BOOST_TEST(good([&] { return other.user.getattr(what.handle); }).size == 13u);
    end();
    BOOST_TEST(call_back(asked, {}, &told) == nfsstat4::ok);
    BOOST_TEST(told.size == 13u);
    // Of a cut nobody knows when it is done.
    changing.spawn([&]() -> task<void> {
        auto cut = co_await used->truncate(2);
        is_good = cut.has_value();
    });
    turns();
    BOOST_TEST(call_back(asked, {}, &told) == nfsstat4::delay);
    end();
    BOOST_TEST(call_back(asked, {}, &told) == nfsstat4::ok);
    BOOST_TEST(told.size == 2u);
    close(*used);
    BOOST_TEST(holder.user.delegations() == 1u);
}

BOOST_FIXTURE_TEST_CASE(what_was_written_is_stable_before_the_delegation_goes_back, fixture)
{
    const auto what = delegated("f", share4::access_both);
    auto used = open(holder, what, share4::access_both);
    auto idle = open(holder, what, share4::access_both);
    write(*used, "mine");
    BOOST_TEST(used->uncommitted() == 4u);
    auto conflicts = open(other, what, share4::access_both);
    BOOST_TEST(holder.user.delegations() == 0u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::commit) == 1u);
    BOOST_TEST(used->uncommitted() == 0u);
    write(*conflicts, "them");
    BOOST_TEST(run([&] { return conflicts->commit(); }).has_value());
    lose_unstable_data();
    close(*used);
    close(*idle);
    holder.wire.on_reply_to = other.wire.on_reply_to = nullptr;
    BOOST_TEST(text_of(*conflicts) == "them");
    close(*conflicts);
    // A file may go while it is committed for.
    const auto second = delegated("g", share4::access_both);
    used = open(holder, second, share4::access_both);
    write(*used, "mine");
    event go;
    holder.wire.holds_answer = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::commit) ? &go : nullptr;
    };
    scope both(*shard);
    both.spawn([&]() -> task<void> {
        auto reads = co_await other.user.open(second, share4::access_read);
        if (reads)
            (void)co_await (*reads)->close();
    });
    pass(3s);
    BOOST_TEST(holder.wire.count(nfs_opnum4::commit) == 1u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == 0u);
    used.reset();
    go.set();
    run([&]() -> task<void> { co_await both.join(); });
    BOOST_TEST(holder.user.delegations() == 0u);
    holder.wire.holds_answer = nullptr;
}

namespace {

// SEQUENCE says that the server can't call, while that is so.
struct cannot_call : fixture {
    cannot_call()
    {
        for (direct_transport* each : {&holder.wire, &second})
            each->on_reply_to = [this](const sent_compound& call, std::vector<std::byte>& reply) {
                if (is_down && call.sequence && xdr::load_u32(reply.data() + 24) == 0)
                    xdr::store_u32(reply.data() + 24 + 12 + 8 + 16 + 16, seq4_status::cb_path_down);
            };
        second.way = std::make_shared<called_way>(holder.service, pool);
    }
    /// BIND_CONN_TO_SESSION is not answered before `bound`, nor READ before `go`.
    void hold(event& bound, event& go)
    {
        holder.wire.holds_answer = [&](const sent_compound& call) {
            return call.has(nfs_opnum4::bind_conn_to_session) ? &bound
                   : call.has(nfs_opnum4::read)               ? &go
                                                              : nullptr;
        };
    }
    // Nothing comes of what is sent there to mend it.
    void leads_nowhere(direct_transport& way)
    {
        way.decide = [this, &way](const sent_compound& call) {
            const bool is_lost =
                call.has(nfs_opnum4::bind_conn_to_session) || call.operations.size() == 1; // SEQUENCE
            way.gate = is_lost ? &never : nullptr;
            return is_lost ? direct_transport::fate::is_lost : direct_transport::fate::arrives;
        };
    }
    void leads_on(direct_transport& way)
    {
        way.decide = nullptr;
        way.gate = nullptr;
        never.set();
        turns();
    }
    bool is_down = false;
    event never;
    direct_transport second{*this};
};

} // namespace

BOOST_FIXTURE_TEST_CASE(delegations_go_back_where_no_way_leads_anywhere, cannot_call)
{
    const auto what = delegated("f");
    leads_nowhere(holder.wire);
    is_down = true;
    (void)good([&] { return holder.user.getattr(what.handle); });
    pass(20s, 100ms);
    BOOST_TEST(holder.user.delegations() == 1u);
    pass(15s, 100ms);
    BOOST_TEST(holder.wire.count(nfs_opnum4::bind_conn_to_session) == 1u);
    BOOST_TEST(!holder.user.session().can_be_called());
    BOOST_TEST(holder.user.delegations() == 0u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::destroy_session) == 0u);
    is_down = false;
    leads_on(holder.wire);
    (void)good([&] { return holder.user.getattr(what.handle); });
    BOOST_TEST(holder.user.session().can_be_called());
    BOOST_TEST(delegations() == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_way_that_leads_somewhere_is_asked_whether_it_helped, cannot_call)
{
    BOOST_TEST(run([&] { return holder.user.session().add_connection(second); }).has_value());
    const auto what = delegated("f");
    leads_nowhere(holder.wire);
    is_down = true;
    second.on_call = [&](const sent_compound& call, std::vector<std::byte>&) {
        is_down = is_down && !call.has(nfs_opnum4::bind_conn_to_session);
    };
    second.sent.clear();
    (void)good([&] { return holder.user.getattr(what.handle); });
    pass(20s, 100ms);
    BOOST_TEST(second.sent.size() == 2u); // BIND_CONN_TO_SESSION and SEQUENCE
    pass(40s, 100ms);
    BOOST_TEST(!is_down);
    BOOST_TEST(second.count(nfs_opnum4::bind_conn_to_session) == 1u);
    BOOST_TEST(holder.user.session().can_be_called());
    BOOST_TEST(holder.user.delegations() == 1u);
    // Nothing helps, and a new session would have to be made where nobody answers.
    second.on_call = nullptr;
    is_down = true;
    (void)good([&] { return holder.user.getattr(what.handle); });
    pass(90s, 100ms);
    BOOST_TEST(second.count(nfs_opnum4::bind_conn_to_session) >= 5u);
    BOOST_TEST(holder.user.session().sessions() == 1u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::destroy_session) == 0u);
    BOOST_TEST(holder.user.delegations() == 0u);
    is_down = false;
    leads_on(holder.wire);
    run([&]() -> task<void> { co_await holder.user.close(); });
}

BOOST_FIXTURE_TEST_CASE(no_session_is_made_where_nobody_was_asked, cannot_call)
{
    BOOST_TEST(run([&] { return holder.user.session().add_connection(second); }).has_value());
    const auto what = delegated("f");
    holder.wire.way = nullptr; // a new connection, that serves no calls
    leads_nowhere(holder.wire);
    is_down = true;
    (void)good([&] { return holder.user.getattr(what.handle); });
    pass(40s, 100ms);
    BOOST_TEST(second.count(nfs_opnum4::bind_conn_to_session) >= 3u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::bind_conn_to_session) == 0u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::destroy_session) == 0u);
    BOOST_TEST(holder.user.session().sessions() == 1u);
    BOOST_TEST(holder.user.delegations() == 0u);
    is_down = false;
    leads_on(holder.wire);
    run([&]() -> task<void> { co_await holder.user.close(); });
}

BOOST_FIXTURE_TEST_CASE(who_waits_for_a_slot_to_ask_does_not_take_that_for_silence, cannot_call)
{
    const auto what = delegated("f");
    auto reads = open(holder, what, share4::access_read);
    event bound, go;
    hold(bound, go);
    is_down = true;
    (void)good([&] { return holder.user.getattr(what.handle); });
    is_down = false;
    // A call that takes longer than a few looks of a sixth of a lease has the only slot.
    CB_RECALL_SLOT4args one;
    BOOST_TEST(call_back(one) == nfsstat4::ok);
    BOOST_TEST(holder.user.session().slots() == 1u);
    scope reading(*shard);
    reading.spawn([&]() -> task<void> { (void)co_await reads->read(0, 10); });
    turns();
    BOOST_TEST(holder.wire.count(nfs_opnum4::read) == 1u);
    BOOST_TEST(holder.user.session().slots() == 1u);
    bound.set();
    pass(80s, 100ms);
    BOOST_TEST(holder.wire.count(nfs_opnum4::bind_conn_to_session) == 1u);
    BOOST_TEST(holder.user.delegations() == 1u);
    // The answer has its own limit, which is a sixth of the lease again.
    event answered;
    holder.wire.holds_answer = [&](const sent_compound& call) {
        return call.operations.size() == 1 ? &answered : nullptr; // SEQUENCE
    };
    is_down = true;
    go.set();
    run([&]() -> task<void> { co_await reading.join(); });
    pass(14s, 100ms);
    is_down = false;
    holder.wire.holds_answer = nullptr;
    answered.set();
    pass(2s, 100ms);
    BOOST_TEST(holder.user.session().sessions() == 1u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::bind_conn_to_session) == 1u);
    BOOST_TEST(holder.user.session().can_be_called());
    BOOST_TEST(holder.user.delegations() == 1u);
    BOOST_TEST(delegations() == 1u);
    close(*reads);
}

BOOST_FIXTURE_TEST_CASE(a_way_back_that_is_not_mended_within_a_lease_is_lost, cannot_call)
{
    const auto what = delegated("f");
    auto reads = open(holder, what, share4::access_read);
    event bound, go;
    hold(bound, go);
    is_down = true;
    (void)good([&] { return holder.user.getattr(what.handle); });
    const time_point begun_at = clock.now();
    CB_RECALL_SLOT4args one;
    BOOST_TEST(call_back(one) == nfsstat4::ok);
    scope reading(*shard);
    reading.spawn([&]() -> task<void> { (void)co_await reads->read(0, 10); });
    pass(10s, 100ms);
    bound.set();
    pass(89s - (clock.now() - begun_at), 100ms);
    BOOST_TEST(holder.user.delegations() == 1u);
    pass(2s, 100ms);
    BOOST_TEST(!holder.user.session().can_be_called());
    BOOST_TEST(holder.user.delegations() == 0u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::bind_conn_to_session) == 1u);
    is_down = false;
    holder.wire.holds_answer = nullptr;
    go.set();
    run([&]() -> task<void> { co_await reading.join(); });
    turns();
    BOOST_TEST(delegations() == 0u);
    close(*reads);
}

BOOST_FIXTURE_TEST_CASE(what_mends_the_way_back_cuts_no_recovery_short, cannot_call)
{
    const auto what = delegated("f");
    event go;
    holder.wire.on_call = [&](const sent_compound& call, std::vector<std::byte>&) {
        holder.wire.gate = call.has(nfs_opnum4::bind_conn_to_session) ? &go : nullptr;
    };
    is_down = true;
    (void)good([&] { return holder.user.getattr(what.handle); });
    turns();
    BOOST_TEST(holder.wire.count(nfs_opnum4::bind_conn_to_session) == 1u);
    is_down = false;
    restart(true);
    bool is_late = true;
    holder.wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (is_late && call.has(nfs_opnum4::reclaim_complete))
            refuse_at(reply, 1, nfsstat4::delay);
    };
    holder.wire.sent.clear();
    go.set();
    pass(20s, 100ms); // a sixth of the lease is 15 s
    BOOST_TEST(holder.wire.count(nfs_opnum4::reclaim_complete) >= 2u);
    is_late = false;
    pass(20s, 100ms);
    BOOST_TEST(holder.wire.count(nfs_opnum4::exchange_id) == 1u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 1u);
    BOOST_TEST(holder.user.delegations() == 1u);
    BOOST_TEST(delegations() == 1u);
    holder.wire.on_call = nullptr;
}

BOOST_FIXTURE_TEST_CASE(who_made_a_file_may_no_more_than_its_mode_lets_him, fixture)
{
    new_attributes mode;
    mode.mode = 0444;
    auto made = good([&] { return holder.user.create(top, "f", mode, open_how::guarded); });
    BOOST_TEST_REQUIRE(stats().write_delegations.value() == 1);
    write(*made, "text");
    const auto refused = run([&] { return holder.user.open(made->node(), share4::access_write); });
    BOOST_TEST_REQUIRE(!refused);
    BOOST_CHECK(refused.error().code() == make_error_code(nfsstat4::access));
    holder.wire.sent.clear();
    auto reads = open(holder, made->node(), share4::access_read);
    BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 0u);
    close(*reads);
    close(*made);
}

BOOST_FIXTURE_TEST_CASE(a_delegation_that_comes_again_while_it_goes_back_is_not_kept, gives_the_same)
{
    const auto what = delegated("f");
    event go;
    holder.wire.on_call = [&](const sent_compound& call, std::vector<std::byte>&) {
        holder.wire.gate = call.has(nfs_opnum4::delegreturn) ? &go : nullptr;
    };
    holder.user.use_delegations(0);
    holder.user.use_delegations(8);
    turns();
    BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == 1u);
    auto again = open(holder, what, share4::access_read);
    BOOST_TEST(holder.user.delegations() == 0u);
    go.set();
    turns();
    // Nobody knows which one the server has run first: it may have given it anew.
    BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == 2u);
    BOOST_TEST(text_of(*again) == "text");
    close(*again);

    // The OPEN runs first, and its answer comes last.
    const auto second = delegated("g");
    go.reset();
    holder.user.use_delegations(0);
    holder.user.use_delegations(8);
    turns();
    event late, later;
    scope asking(*shard);
    int kept = 0;
    const auto asks = [&]() -> task<void> {
        auto opened = co_await holder.user.open(second, share4::access_read);
        kept += static_cast<int>(holder.user.delegations());
        if (opened)
            (void)co_await (*opened)->close();
    };
    for (event* const held : {&late, &later}) {
        holder.wire.holds_answer = [held](const sent_compound& call) {
            return call.has(nfs_opnum4::open) ? held : nullptr;
        };
        asking.spawn(asks);
        turns();
    }
    BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 2u);
    holder.wire.holds_answer = nullptr;
    go.set();
    turns();
    BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == 1u);
    BOOST_TEST(delegations() == 0u);
    late.set();
    turns();
    BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == 2u);
    BOOST_TEST(kept == 0);
    BOOST_TEST(holder.wire.count(nfs_opnum4::close) == 2u);
    // An OPEN that was sent later may bring it anew. Our server gives none to a file that somebody writes.
    other.user.use_delegations(0);
    auto writes = open(other, second, share4::access_write);
    again = open(holder, second, share4::access_read);
    BOOST_TEST(holder.user.delegations() == 1u);
    later.set();
    run([&]() -> task<void> { co_await asking.join(); });
    close(*again);
    close(*writes);
    holder.wire.on_call = nullptr;
    holder.wire.gate = nullptr;
}

BOOST_FIXTURE_TEST_CASE(a_delegation_that_is_given_anew_while_it_goes_back_goes_back_again, gives_the_same)
{
    // A server that uses the stateid again: the one that it gives now is not the one that came back.
    const auto what = delegated("f");
    event go, late;
    for (const bool open_is_late : {false, true}) {
        go.reset();
        late.reset();
        bool is_first = true;
        holder.wire.holds_answer = [&](const sent_compound& call) {
            return call.has(nfs_opnum4::delegreturn) && std::exchange(is_first, false) ? &go
                   : call.has(nfs_opnum4::open) && open_is_late                        ? &late
                                                                                       : nullptr;
        };
        holder.wire.sent.clear();
        holder.user.use_delegations(0);
        holder.user.use_delegations(8);
        turns();
        BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == 1u);
        BOOST_TEST(delegations() == 0u); // it has been returned, and the answer is on its way
        other.user.use_delegations(0);
        auto writes = open(other, what, share4::access_write); // so that our server gives none of its own
        scope asking(*shard);
        std::unique_ptr<nfs::v4::file> opened;
        asking.spawn([&]() -> task<void> {
            auto done = co_await holder.user.open(what, share4::access_read);
            if (done)
                opened = std::move(*done);
        });
        turns();
        BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == 1u);
        go.set();
        turns();
        BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == (open_is_late ? 1u : 2u));
        late.set();
        run([&]() -> task<void> { co_await asking.join(); });
        turns();
        BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == 2u);
        BOOST_TEST(holder.user.delegations() == 0u);
        holder.wire.holds_answer = nullptr;
        BOOST_TEST_REQUIRE(opened != nullptr);
        close(*opened);
        // A later one is kept.
        opened = open(holder, what, share4::access_read);
        BOOST_TEST(holder.user.delegations() == 1u);
        close(*opened);
        close(*writes);
        if (open_is_late)
            break;
        holder.user.use_delegations(0);
        holder.user.use_delegations(8);
        turns();
        given.clear();
        opened = open(holder, what, share4::access_read);
        BOOST_TEST(delegations() == 1u);
        close(*opened);
    }
}

BOOST_FIXTURE_TEST_CASE(an_older_open_does_not_tell_the_type_of_a_newer_delegation, gives_the_same)
{
    const auto what = delegated("f");
    event late;
    const auto is_open = [&](const sent_compound& call) {
        return call.has(nfs_opnum4::open) ? &late : nullptr;
    };
    const auto open_late = [&](scope& in, std::unique_ptr<nfs::v4::file>& opened) {
        in.spawn([&]() -> task<void> {
            auto done = co_await holder.user.open(what, share4::access_write);
            if (done)
                opened = std::move(*done);
        });
        turns();
    };
    holder.wire.holds_answer = is_open;
    scope asking(*shard);
    std::unique_ptr<nfs::v4::file> older;
    open_late(asking, older);
    BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 1u);
    holder.wire.holds_answer = nullptr;
    holder.user.use_delegations(0);
    holder.user.use_delegations(8);
    turns();
    BOOST_TEST(delegations() == 0u);
    other.user.use_delegations(0);
    auto writes = open(other, what, share4::access_write); // so that our server gives none of its own
    auto reads = open(holder, what, share4::access_read);
    BOOST_TEST_REQUIRE(holder.user.delegations() == 1u);
    // With that stateid the server had given one for writing before.
    const std::vector<std::byte> unlimited = {std::byte(0), std::byte(0), std::byte(0), std::byte(1),
                                              std::byte(9), std::byte(0), std::byte(0), std::byte(0),
                                              std::byte(0), std::byte(0), std::byte(0), std::byte(0)};
    const std::vector<std::byte> for_reading = given;
    xdr::store_u32(given.data(), static_cast<std::uint32_t>(open_delegation_type4::write));
    given.insert(given.begin() + 24, unlimited.begin(), unlimited.end());
    late.set();
    run([&]() -> task<void> { co_await asking.join(); });
    BOOST_TEST_REQUIRE(older != nullptr);
    BOOST_TEST(holder.user.delegations() == 1u);
    // It is one for reading: it answers no open for writing, and the server is told nothing of what is written.
    CB_GETATTR4args asked;
    asked.fh = what.handle.bytes();
    asked.attr_request = {attribute::change, attribute::size};
    BOOST_TEST(call_back(asked) == nfsstat4::badhandle);
    late.reset();
    holder.wire.holds_answer = is_open;
    std::unique_ptr<nfs::v4::file> between;
    scope also(*shard);
    open_late(also, between);
    holder.wire.holds_answer = nullptr;
    // A newer one may tell, and what is older than that may not.
    auto newer = open(holder, what, share4::access_write);
    BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 4u);
    BOOST_TEST(holder.user.delegations() == 1u);
    BOOST_TEST(call_back(asked) == nfsstat4::ok);
    given = for_reading;
    late.set();
    run([&]() -> task<void> { co_await also.join(); });
    BOOST_TEST_REQUIRE(between != nullptr);
    BOOST_TEST(call_back(asked) == nfsstat4::ok);
    for (auto* each : {&older, &reads, &between, &newer, &writes})
        close(**each);
}

BOOST_FIXTURE_TEST_CASE(an_open_that_is_begun_anew_takes_no_delegation_from_another, gives_the_same)
{
    const auto what = make("f");
    holder.user.use_delegations(0);
    auto reads = open(holder, what, share4::access_read);
    holder.user.use_delegations(8);
    auto holds = open(holder, what, share4::access_read);
    BOOST_TEST(holder.user.delegations() == 1u);
    holder.wire.sent.clear();
    forgets = true;
    BOOST_TEST(text_of(*reads) == "text");
    turns();
    BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 1u);
    BOOST_TEST_REQUIRE(holder.wire.count(nfs_opnum4::delegreturn) == 0u);
    BOOST_TEST(holder.user.delegations() == 1u);
    BOOST_TEST(delegations() == 1u);
    // One that goes back is not returned again.
    event go;
    holder.wire.on_call = [&](const sent_compound& call, std::vector<std::byte>&) {
        holder.wire.gate = call.has(nfs_opnum4::delegreturn) ? &go : nullptr;
    };
    holder.user.use_delegations(0);
    turns();
    forgets = true;
    BOOST_TEST(text_of(*reads) == "text");
    BOOST_TEST(holder.wire.count(nfs_opnum4::open) == 2u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == 1u);
    go.set();
    turns();
    // Another one than that which is held: none of both is relied on.
    holder.user.use_delegations(8);
    auto third = open(holder, what, share4::access_read);
    BOOST_TEST(holder.user.delegations() == 1u);
    xdr::store_u32(given.data() + 8, ~xdr::load_u32(given.data() + 8));
    forgets = true;
    holder.wire.sent.clear();
    BOOST_TEST(text_of(*reads) == "text");
    turns();
    BOOST_TEST(holder.user.delegations() == 0u);
    BOOST_TEST(holder.wire.count(nfs_opnum4::delegreturn) == 2u);
    BOOST_TEST(delegations() == 0u);
    holder.wire.on_call = nullptr;
    holder.wire.gate = nullptr;
    for (auto* each : {&reads, &holds, &third})
        close(**each);
}

BOOST_AUTO_TEST_SUITE_END()
