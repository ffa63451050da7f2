// SPDX-License-Identifier: Apache-2.0
// The client's session against our own server: slots, calls that are lost, repeated or given up, sessions and clients that the
// server has lost, and the lease.
#include "nfs4_direct_transport.hpp"
#include "nfs4_kept_store.hpp"

#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/nfs/client/v4/client.hpp>
#include <verbena/protocols/nfs/client/v4/file.hpp>

#include <climits>

BOOST_AUTO_TEST_SUITE(nfs4_client_session_test)

using namespace verbena;
using namespace verbena::test;
using fate = direct_transport::fate;

namespace {

struct fixture : nfs4_fixture {
    fixture()
    {
        store = &kept;
        gate.set();
        wire.gate = &gate;
        start();
        serve();
    }
    ~fixture()
    {
        const auto end = [this]() -> task<void> { co_await client.close(); };
        run_until_complete(*shard, end());
        stop();
    }
    void serve()
    {
        serving.emplace(*shard);
        serving->spawn([this] { return commons->state.clients().tend(); });
        serving->spawn([this] { return commons->state.table().tend(); });
        serving->spawn([this] { return commons->tend(); });
    }
    void stop()
    {
        serving->request_stop();
        const auto end = [this]() -> task<void> { co_await serving->join(); };
        run_until_complete(*shard, end());
        serving.reset();
        program.reset();
        commons.reset();
    }
    /// Ends as by a kill, and starts. Who had been there may reclaim if `remembers`.
    void restart(bool remembers)
    {
        stop();
        ++begun.epoch;
        begun.reclaimers.clear();
        if (remembers)
            begun.reclaimers = kept.reclaimers();
        begun.lease_before = 90s;
        start();
        serve();
    }
    template<class F>
    auto run(const F& f)
    {
        return run_until_complete(*shard, f());
    }
    result<nfs::v4::node> export_root()
    {
        return run([this]() -> task<result<nfs::v4::node>> {
            auto top = co_await client.root();
            if (!top)
                co_return top.error();
            co_return co_await client.walk(top->handle, "export", true);
        });
    }
    static task<void> look(nfs::v4::client& c, nfs::v4::known_handle handle, int& good)
    {
        auto got = co_await c.getattr(handle);
        good += got ? 1 : 0;
    }

    /// In place of what the server said: SEQUENCE fails.
    static void refuse(std::vector<std::byte>& reply, nfsstat4 status)
    {
        constexpr std::size_t head = 24; // of RPC
        reply.resize(head + 20);
        xdr::store_u32(reply.data() + head, static_cast<std::uint32_t>(status));
        xdr::store_u32(reply.data() + head + 8, 1);
        xdr::store_u32(reply.data() + head + 16, static_cast<std::uint32_t>(status));
    }

    // Likewise the last operation of SEQUENCE, PUTFH and another one.
    static void refuse_third(std::vector<std::byte>& reply, nfsstat4 status) { refuse_at(reply, 2, status); }
    // What SEQUENCE says of the client's state.
    static void set_flags(std::vector<std::byte>& reply, std::uint32_t flags)
    {
        xdr::store_u32(reply.data() + 24 + 12 + 8 + 16 + 16, flags);
    }
    static task<void> make(nfs::v4::client& c, nfs::v4::known_handle in, std::string name,
                           result<std::unique_ptr<nfs::v4::file>>& made)
    {
        made = co_await c.create(in, name, {}, nfs::v4::open_how::guarded);
    }

    const nfs::v4::new_attributes unset; // outlives the tasks that it is told to
    kept_store kept;
    std::optional<scope> serving;
    event gate;
    direct_transport wire{*this};
    nfs::v4::client client{wire, nfs::identity(1000, 100, {}, "host"), "a client"};
};

} // namespace

BOOST_FIXTURE_TEST_CASE(a_session_is_made_when_it_is_needed_and_ended_at_close, fixture)
{
    BOOST_REQUIRE(export_root());
    BOOST_TEST_REQUIRE(wire.sent.size() == 6u);
    BOOST_TEST(wire.sent[0].operations[0] == nfs_opnum4::exchange_id);
    BOOST_TEST(wire.sent[1].operations[0] == nfs_opnum4::create_session);
    BOOST_TEST(wire.sent[2].operations[1] == nfs_opnum4::reclaim_complete);
    BOOST_TEST(client.session().slots() == 64u);
    BOOST_TEST((client.session().lease() == 90s));
    run([this]() -> task<void> {
        co_await client.close();
        co_await client.close();
    });
    BOOST_TEST_REQUIRE(wire.sent.size() == 8u);
    BOOST_TEST(wire.sent[6].operations[0] == nfs_opnum4::destroy_session);
    BOOST_TEST(wire.sent[7].operations[0] == nfs_opnum4::destroy_clientid);
    for (const sent_compound& each : wire.sent)
        BOOST_TEST(each.status == nfsstat4::ok);
    BOOST_TEST(!export_root());
}

BOOST_FIXTURE_TEST_CASE(the_highest_minor_version_that_both_have_is_spoken, fixture)
{
    struct {
        bool has1, has2;
        minor_versions spoken;
        std::uint32_t found; // 0: none
    } const cases[] = {{true, true, {}, 2},      {true, false, {}, 1},    {false, true, {}, 2},
                       {true, true, {1, 1}, 1},  {true, true, {2, 2}, 2}, {true, false, {2, 2}, 0},
                       {false, true, {1, 1}, 0}, {false, false, {}, 0}};
    for (const auto& each : cases) {
        commons->minors = {false, each.has1, each.has2};
        wire.sent.clear();
        nfs::v4::client other(wire, nfs::identity(1000, 100, {}, "host"), {}, each.spoken);
        const auto root = run([&] { return other.root(); });
        BOOST_TEST(root.has_value() == (each.found != 0));
        if (root) {
            BOOST_TEST(other.session().minor_version() == each.found);
            BOOST_TEST(wire.sent.back().minor == each.found);
            // One look for each version that is not there, and none once one was found.
            BOOST_TEST(wire.count(nfs_opnum4::exchange_id) == 1 + each.spoken.highest - each.found);
        } else {
            BOOST_TEST((root.error() == std::errc::protocol_not_supported));
        }
        run([&]() -> task<void> { co_await other.close(); });
    }
    commons->minors = {false, true, true};
}

BOOST_FIXTURE_TEST_CASE(a_server_that_comes_back_without_the_minor_version_is_told_of, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    restart(false);
    commons->minors = {false, true, false};
    for (int i = 0; i < 2; ++i)
        BOOST_TEST(
            (run([&] { return client.getattr(top->handle); }).error() == std::errc::protocol_not_supported));
    commons->minors = {false, true, true};
    BOOST_TEST(run([&] { return client.getattr(top->handle); }).has_value());
}

BOOST_FIXTURE_TEST_CASE(a_session_goes_over_several_connections, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    direct_transport second(*this);
    direct_transport third(*this);
    BOOST_TEST(run([&] { return client.session().add_connection(second); }).has_value());
    BOOST_TEST(run([&] { return client.session().add_connection(third); }).has_value());
    BOOST_TEST(client.session().connections() == 3u);
    // It need not be the same server that answers there.
    direct_transport other(*this);
    for (const std::size_t what :
         {24 + 12 + 8 + 7, 24 + 12 + 8 + 8 + 4}) { // client id, flags with CONFIRMED_R
        other.on_reply = [&](std::vector<std::byte>& reply) { reply[what] ^= std::byte(0x80); };
        BOOST_TEST((run([&] { return client.session().add_connection(other); }).error() ==
                    std::errc::protocol_error));
    }
    other.sent.clear();

    gate.reset();
    second.gate = third.gate = &gate;
    wire.sent.clear();
    second.sent.clear();
    third.sent.clear();
    int good = 0;
    scope callers(*shard);
    for (int i = 0; i < 60; ++i)
        callers.spawn(look, std::ref(client), top->handle, std::ref(good));
    turns();
    for (const direct_transport* each : {&wire, &second, &third})
        BOOST_TEST(each->under_way == 20u);
    gate.set();
    run([&]() -> task<void> { co_await callers.join(); });
    BOOST_TEST(good == 60);
    BOOST_TEST(other.sent.empty());

    // What a connection is bound by goes over it, and so does a call that is sent again.
    gate.reset();
    second.sent.clear();
    bool refuses = true;
    second.on_reply = [&](std::vector<std::byte>& reply) {
        if (std::exchange(refuses, false))
            refuse(reply, nfsstat4::conn_not_bound_to_session);
    };
    for (int i = 0; i < 2; ++i)
        callers.spawn(look, std::ref(client), top->handle, std::ref(good));
    turns();
    gate.set();
    run([&]() -> task<void> { co_await callers.join(); });
    BOOST_TEST(good == 62);
    BOOST_TEST(second.count(nfs_opnum4::bind_conn_to_session) == 1u);
    BOOST_TEST(second.count(nfs_opnum4::getattr) == 2u);

    // The next session has them all.
    restart(false);
    for (int i = 0; i < 60; ++i)
        callers.spawn(look, std::ref(client), top->handle, std::ref(good));
    run([&]() -> task<void> { co_await callers.join(); });
    BOOST_TEST(good == 122);
    run([&]() -> task<void> { co_await client.close(); });
}

BOOST_FIXTURE_TEST_CASE(no_more_calls_than_slots_are_under_way_and_the_lowest_slots_are_used, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    for (const sent_compound& each : wire.sent)
        BOOST_TEST((!each.sequence || each.sequence->slotid == 0u));
    gate.reset();
    int good = 0;
    scope callers(*shard);
    for (int i = 0; i < 200; ++i)
        callers.spawn(look, std::ref(client), top->handle, std::ref(good));
    turns();
    BOOST_TEST(wire.under_way == client.session().slots());
    gate.set();
    run([&]() -> task<void> { co_await callers.join(); });
    BOOST_TEST(good == 200);
    BOOST_TEST(wire.most_at_once == client.session().slots());
    for (const sent_compound& each : wire.sent) {
        if (each.sequence)
            BOOST_TEST(each.sequence->highest_slotid >= each.sequence->slotid);
    }
    // One alone is in the first again.
    wire.sent.clear();
    BOOST_REQUIRE(export_root());
    BOOST_TEST(wire.sent.back().sequence->slotid == 0u);
    BOOST_TEST(wire.sent.back().sequence->highest_slotid == 0u);
}

namespace {

// Of a call that has 30 s.
struct time_out {
    explicit time_out(fixture& f) : shard(*f.shard), begun(shard.clock().now()) {}
    void ended(const auto& how)
    {
        took_30s = !how && how.error() == std::errc::timed_out && shard.clock().now() - begun == 30s;
    }
    reactor& shard;
    const time_point begun;
    bool took_30s = false;
};

} // namespace

// Else as many calls as wait end one after the other, each after its time.
BOOST_FIXTURE_TEST_CASE(the_time_of_a_soft_call_is_that_of_its_wait_for_a_slot_too, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    BOOST_TEST((wire.deadline == time_point::max()));
    wire.time = 30s;
    gate.reset();
    int good = 0;
    scope callers(*shard);
    for (std::size_t i = 0; i < client.session().slots(); ++i)
        callers.spawn(look, std::ref(client), top->handle, std::ref(good));
    turns();
    BOOST_TEST((wire.deadline == time_point::max())); // the transport itself counts from now on
    BOOST_REQUIRE(wire.under_way == client.session().slots());

    time_out waiting(*this);
    const auto ask = [&]() -> task<void> {
        auto got = co_await client.getattr(top->handle);
        waiting.ended(got);
    };
    callers.spawn([&] { return ask(); });
    run([]() -> task<void> { (void)co_await sleep_for(31s); });
    BOOST_TEST(waiting.took_30s);

    // One that gets its slot in time has what is left.
    callers.spawn(look, std::ref(client), top->handle, std::ref(good));
    const time_point began = shard->clock().now();
    run([]() -> task<void> { (void)co_await sleep_for(20s); });
    gate.set();
    run([&]() -> task<void> { co_await callers.join(); });
    BOOST_TEST(good == int(client.session().slots()) + 1);
    BOOST_TEST((wire.deadline - began == 30s));
    wire.time = duration::max();
}

// Nor does one wait for others that make the session, each for its time.
BOOST_FIXTURE_TEST_CASE(the_time_of_a_soft_call_is_that_of_its_wait_for_a_session_too, fixture)
{
    wire.time = 30s;
    gate.reset();
    int good = 0;
    scope callers(*shard);
    const auto make = [&]() -> task<void> {
        auto top = co_await client.root();
        good += top ? 1 : 0;
    };
    callers.spawn([&] { return make(); });
    turns();
    time_out waiting(*this);
    const auto ask = [&]() -> task<void> {
        auto top = co_await client.root();
        waiting.ended(top);
    };
    callers.spawn([&] { return ask(); });
    run([]() -> task<void> { (void)co_await sleep_for(31s); });
    BOOST_TEST(waiting.took_30s);
    gate.set();
    run([&]() -> task<void> { co_await callers.join(); });
    BOOST_TEST(good == 1);
    wire.time = duration::max();
}

// The call that makes the session fails, and the one that waited for it makes one in what is left of its own time.
BOOST_FIXTURE_TEST_CASE(a_silent_server_costs_a_soft_call_its_time_once, fixture)
{
    wire.time = 30s;
    wire.keeps_time = true;
    gate.reset();
    scope callers(*shard);
    const auto ask = [&](time_out& limit) -> task<void> {
        auto top = co_await client.root();
        limit.ended(top);
    };
    time_out first(*this);
    callers.spawn([&] { return ask(first); });
    run([]() -> task<void> { (void)co_await sleep_for(10s); });
    time_out second(*this);
    callers.spawn([&] { return ask(second); });
    run([]() -> task<void> { (void)co_await sleep_for(31s); });
    BOOST_TEST(first.took_30s);
    BOOST_TEST(second.took_30s);
    gate.set();
    run([&]() -> task<void> { co_await callers.join(); });
    wire.time = duration::max();
}

// The server loses the session, and says nothing from then on.
BOOST_FIXTURE_TEST_CASE(a_silent_server_costs_a_soft_call_whose_session_is_lost_no_more, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    wire.time = 30s;
    wire.keeps_time = true;
    gate.reset();
    wire.on_reply = [&](std::vector<std::byte>& reply) {
        refuse(reply, nfsstat4::badsession);
        gate.reset();
    };
    scope callers(*shard);
    time_out lost(*this);
    const auto ask = [&]() -> task<void> {
        auto got = co_await client.getattr(top->handle);
        lost.ended(got);
    };
    callers.spawn([&] { return ask(); });
    run([]() -> task<void> { (void)co_await sleep_for(20s); });
    gate.set();
    run([]() -> task<void> { (void)co_await sleep_for(11s); });
    BOOST_TEST(lost.took_30s);
    wire.on_reply = nullptr;
    gate.set();
    run([&]() -> task<void> { co_await callers.join(); });
    wire.time = duration::max();
}

// A session is made when the calls of the one before have ended, which may not be soft.
BOOST_FIXTURE_TEST_CASE(the_time_of_a_soft_call_is_that_of_its_wait_for_calls_of_a_lost_session, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    wire.time = 30s;
    event answered;
    event* hold = &answered;
    wire.holds_answer = [&](const sent_compound&) { return std::exchange(hold, nullptr); };
    int good = 0;
    scope callers(*shard);
    callers.spawn(look, std::ref(client), top->handle, std::ref(good));
    turns();
    bool loses = true;
    wire.on_reply = [&](std::vector<std::byte>& reply) {
        if (std::exchange(loses, false))
            refuse(reply, nfsstat4::badsession);
    };
    time_out waiting(*this);
    const auto ask = [&]() -> task<void> {
        auto got = co_await client.getattr(top->handle);
        waiting.ended(got);
    };
    callers.spawn([&] { return ask(); });
    run([]() -> task<void> { (void)co_await sleep_for(31s); });
    BOOST_TEST(waiting.took_30s);
    answered.set();
    run([&]() -> task<void> { co_await callers.join(); });
    wire.holds_answer = nullptr;
    wire.on_reply = nullptr;
    wire.time = duration::max();
}

// It says that the call is to be sent again: then it is there, and the call has its time anew.
BOOST_FIXTURE_TEST_CASE(a_soft_call_that_is_put_off_has_its_time_anew, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    wire.time = 30s;
    wire.keeps_time = true;
    gate.reset();
    wire.on_reply = [&](std::vector<std::byte>& reply) {
        refuse_third(reply, nfsstat4::delay);
        gate.reset();
    };
    scope callers(*shard);
    const time_point begun = shard->clock().now();
    std::optional<duration> took;
    const auto ask = [&]() -> task<void> {
        auto got = co_await client.getattr(top->handle);
        if (!got)
            took = shard->clock().now() - begun;
    };
    callers.spawn([&] { return ask(); });
    run([]() -> task<void> { (void)co_await sleep_for(20s); });
    gate.set();
    run([]() -> task<void> { (void)co_await sleep_for(40s); });
    BOOST_TEST_REQUIRE(took.has_value());
    BOOST_TEST((*took >= 50s && *took < 51s));
    wire.on_reply = nullptr;
    gate.set();
    run([&]() -> task<void> { co_await callers.join(); });
    wire.time = duration::max();
}

BOOST_FIXTURE_TEST_CASE(the_servers_target_bounds_what_is_under_way, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    std::uint32_t target = 2;
    wire.on_reply = [&](std::vector<std::byte>& reply) {
        // Behind the RPC header, COMPOUND's head, and what of SEQUENCE's results comes first.
        xdr::store_u32(reply.data() + 24 + 12 + 8 + 16 + 12, target);
    };
    BOOST_REQUIRE(export_root());
    BOOST_TEST(client.session().slots() == 3u);
    gate.reset();
    wire.most_at_once = 0;
    int good = 0;
    scope callers(*shard);
    for (int i = 0; i < 50; ++i)
        callers.spawn(look, std::ref(client), top->handle, std::ref(good));
    turns();
    BOOST_TEST(wire.under_way == 3u);
    target = 40; // and so are more, when they come
    gate.set();
    run([&]() -> task<void> { co_await callers.join(); });
    BOOST_TEST(good == 50);
    BOOST_TEST(client.session().slots() == 41u);
    // Fewer while many are under way: those end, and then the target holds.
    gate.reset();
    target = 0;
    for (int i = 0; i < 60; ++i)
        callers.spawn(look, std::ref(client), top->handle, std::ref(good));
    turns();
    gate.set();
    run([&]() -> task<void> { co_await callers.join(); });
    BOOST_TEST(good == 110);
    gate.reset();
    wire.most_at_once = 0;
    for (int i = 0; i < 5; ++i)
        callers.spawn(look, std::ref(client), top->handle, std::ref(good));
    turns();
    BOOST_TEST(wire.under_way == 1u);
    gate.set();
    run([&]() -> task<void> { co_await callers.join(); });
    BOOST_TEST(good == 115);
    wire.on_reply = nullptr;
}

BOOST_FIXTURE_TEST_CASE(what_is_sent_again_runs_once, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    wire.decide = [](const sent_compound&) { return fate::runs_twice; };
    const auto made = run([&] { return client.mkdir(top->handle, "once", unset); });
    BOOST_REQUIRE(made);
    BOOST_TEST(wire.sent.back().sequence->cachethis);
    const auto removed = run([&] { return client.remove(top->handle, "once"); });
    BOOST_TEST(removed.has_value());
    // What may run twice is not kept, and is asked anew when only its repeat is answered.
    const auto seen = run([&] { return client.getattr(top->handle); });
    BOOST_TEST(!wire.sent.back().sequence->cachethis);
    wire.decide = nullptr;
    BOOST_TEST(run([&] { return client.getattr(top->handle); }).has_value());
    (void)seen;
}

BOOST_FIXTURE_TEST_CASE(a_slot_whose_call_was_given_up_is_asked_what_became_of_it, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    for (const fate lost : {fate::is_lost, fate::reply_is_lost}) {
        wire.sent.clear();
        wire.decide = [&](const sent_compound&) { return lost; };
        BOOST_TEST(!run([&] { return client.mkdir(top->handle, "given up", unset); }));
        wire.decide = nullptr;
        const auto looked = run([&] { return client.lookup(top->handle, "given up"); });
        BOOST_TEST(looked.has_value() == (lost == fate::reply_is_lost));
        BOOST_TEST_REQUIRE(wire.sent.size() == 3u);
        BOOST_TEST(wire.sent[1].operations.size() == 1u);
        BOOST_TEST(wire.sent[1].sequence->sequenceid == wire.sent[0].sequence->sequenceid);
        BOOST_TEST(wire.sent[2].sequence->sequenceid == wire.sent[0].sequence->sequenceid + 1);
    }
    BOOST_TEST(client.session().sessions() == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_session_that_the_server_has_lost_is_made_anew, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    restart(false);
    wire.sent.clear();
    gate.reset();
    int good = 0;
    scope callers(*shard);
    for (int i = 0; i < 100; ++i)
        callers.spawn(look, std::ref(client), top->handle, std::ref(good));
    turns();
    gate.set();
    run([&]() -> task<void> { co_await callers.join(); });
    BOOST_TEST(good == 100);
    BOOST_TEST(client.session().sessions() == 2u);
    BOOST_TEST(client.session().incarnation() == 2u);
    BOOST_TEST(wire.count(nfs_opnum4::exchange_id) == 1u);
    BOOST_TEST(wire.count(nfs_opnum4::reclaim_complete) == 1u);
}

BOOST_FIXTURE_TEST_CASE(the_next_session_may_have_fewer_slots, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    limits.slots = 2;
    restart(false);
    gate.reset();
    int good = 0;
    scope callers(*shard);
    for (int i = 0; i < 100; ++i)
        callers.spawn(look, std::ref(client), top->handle, std::ref(good));
    turns();
    wire.most_at_once = 0;
    wire.sent.clear();
    gate.set();
    run([&]() -> task<void> { co_await callers.join(); });
    BOOST_TEST(good == 100);
    BOOST_TEST(client.session().slots() == 2u);
    bool made = false;
    for (const sent_compound& each : wire.sent) {
        made = made || each.has(nfs_opnum4::create_session);
        if (made && each.sequence)
            BOOST_TEST(each.sequence->slotid < 2u);
    }
    BOOST_TEST(made);
}

BOOST_FIXTURE_TEST_CASE(what_is_put_off_is_asked_again, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    int left = 3;
    wire.on_reply = [&](std::vector<std::byte>& reply) {
        if (left-- > 0)
            refuse(reply, nfsstat4::delay);
    };
    time_point began = clock.now();
    BOOST_TEST(run([&] { return client.getattr(top->handle); }).has_value());
    BOOST_TEST((clock.now() - began == 700ms));
    // In the end it is told.
    left = INT_MAX;
    began = clock.now();
    const auto refused = run([&] { return client.getattr(top->handle); });
    BOOST_TEST_REQUIRE(!refused);
    BOOST_TEST((refused.error().code() == make_error_code(nfsstat4::delay)));
    BOOST_TEST((clock.now() - began == nfs::patience::usual));
    wire.on_reply = nullptr;
    BOOST_TEST(run([&] { return client.getattr(top->handle); }).has_value());
}

// Another call in its slot would be told what this one did.
BOOST_FIXTURE_TEST_CASE(a_call_that_is_put_off_by_its_slot_keeps_the_slot, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    for (const nfsstat4 status : {nfsstat4::delay, nfsstat4::conn_not_bound_to_session}) {
        wire.sent.clear();
        bool refuses = true;
        wire.on_reply = [&](std::vector<std::byte>& reply) {
            if (std::exchange(refuses, false))
                refuse(reply, status);
        };
        int good = 0;
        bool made = false;
        const auto both = [&]() -> task<void> {
            scope first(*shard);
            first.spawn(look, std::ref(client), top->handle, std::ref(good));
            co_await sleep_for(1ms);
            auto other = co_await client.mkdir(top->handle, "other", {});
            made = other.has_value();
            co_await first.join();
            (void)co_await client.remove(top->handle, "other");
        };
        run(both);
        wire.on_reply = nullptr;
        BOOST_TEST(good == 1);
        BOOST_TEST(made);
        std::vector<sent_compound> looks;
        for (const sent_compound& each : wire.sent) {
            if (each.sequence && each.has(nfs_opnum4::getattr) && !each.has(nfs_opnum4::create))
                looks.push_back(each);
            // While the first call's number may be in use, its slot is nobody else's.
            if (each.has(nfs_opnum4::create) && status == nfsstat4::delay)
                BOOST_TEST(each.sequence->slotid == 1u);
        }
        BOOST_TEST_REQUIRE(looks.size() >= 2u);
        BOOST_TEST(looks[1].sequence->slotid == looks[0].sequence->slotid);
        BOOST_TEST(looks[1].sequence->sequenceid == looks[0].sequence->sequenceid);
    }
    BOOST_TEST(client.session().sessions() == 1u);
}

// Servers differ in where they say it.
BOOST_FIXTURE_TEST_CASE(a_number_is_used_up_whose_reply_sequence_says_was_not_kept, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    bool refuses = true;
    wire.on_reply = [&](std::vector<std::byte>& reply) {
        if (std::exchange(refuses, false))
            refuse(reply, nfsstat4::retry_uncached_rep);
    };
    wire.sent.clear();
    BOOST_TEST(run([&] { return client.getattr(top->handle); }).has_value());
    wire.on_reply = nullptr;
    BOOST_TEST_REQUIRE(wire.sent.size() == 2u);
    BOOST_TEST(wire.sent[1].sequence->sequenceid == wire.sent[0].sequence->sequenceid + 1);
    BOOST_TEST(client.session().sessions() == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_connection_is_bound_where_the_server_wants_it, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    wire.sent.clear();
    bool refuses = true;
    wire.on_reply = [&](std::vector<std::byte>& reply) {
        if (std::exchange(refuses, false))
            refuse(reply, nfsstat4::conn_not_bound_to_session);
    };
    BOOST_TEST(run([&] { return client.getattr(top->handle); }).has_value());
    BOOST_TEST(wire.count(nfs_opnum4::bind_conn_to_session) == 1u);
    BOOST_TEST(client.session().sessions() == 1u);
    wire.on_reply = nullptr;
}

BOOST_FIXTURE_TEST_CASE(a_server_that_never_keeps_a_session_is_given_up, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    wire.sent.clear();
    wire.on_reply = [&](std::vector<std::byte>& reply) {
        if (wire.sent.back().has(nfs_opnum4::getattr))
            refuse(reply, nfsstat4::badsession);
    };
    const auto refused = run([&] { return client.getattr(top->handle); });
    BOOST_TEST_REQUIRE(!refused);
    BOOST_TEST((refused.error().code() == make_error_code(nfsstat4::badsession)));
    BOOST_TEST(wire.count(nfs_opnum4::create_session) <= nfs::v4::client_session::max_losses + 1);
    wire.on_reply = nullptr;
}

BOOST_FIXTURE_TEST_CASE(open_files_are_reclaimed_from_a_server_that_remembers_the_client, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    auto made = run([&] { return client.create(top->handle, "kept", unset, nfs::v4::open_how::guarded); });
    BOOST_REQUIRE(made);
    restart(true);
    wire.sent.clear();
    const time_point began = clock.now();
    const auto read = run([&] { return (*made)->read(0, 10); });
    BOOST_REQUIRE_MESSAGE(read, (read ? std::string() : read.error().message()));
    BOOST_TEST(read->eof);
    // By CLAIM_PREVIOUS, and so before the client says that it has all.
    std::vector<nfs_opnum4> order;
    for (const sent_compound& each : wire.sent) {
        for (const nfs_opnum4 operation : each.operations) {
            if (operation == nfs_opnum4::open || operation == nfs_opnum4::reclaim_complete)
                order.push_back(operation);
        }
    }
    BOOST_TEST((order == std::vector{nfs_opnum4::open, nfs_opnum4::reclaim_complete}));
    BOOST_TEST(client.session().incarnation() == 2u);
    BOOST_TEST((clock.now() - began < 1s)); // nobody waited for the end of the grace period
    BOOST_TEST(run([&] { return (*made)->close(); }).has_value());
}

BOOST_FIXTURE_TEST_CASE(what_cannot_be_reclaimed_is_opened_again, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    auto made = run([&] { return client.create(top->handle, "again", unset, nfs::v4::open_how::guarded); });
    BOOST_REQUIRE(made);
    restart(false);
    const auto read = run([&] { return (*made)->read(0, 10); });
    BOOST_REQUIRE_MESSAGE(read, (read ? std::string() : read.error().message()));
    BOOST_TEST(run([&] { return (*made)->close(); }).has_value());
}

BOOST_FIXTURE_TEST_CASE(both_files_of_a_copy_are_opened_again_by_a_server_that_forgot_them, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    auto from = run([&] { return client.create(top->handle, "from", unset, nfs::v4::open_how::guarded); });
    auto to = run([&] { return client.create(top->handle, "to", unset, nfs::v4::open_how::guarded); });
    BOOST_REQUIRE((from && to));
    const std::string text(100'000, 'x');
    const auto fill = [&]() -> task<result<void>> {
        rpc::payload bytes(lease(), std::as_bytes(std::span(text)));
        auto written = co_await (*from)->write(0, std::move(bytes));
        if (!written)
            co_return written;
        co_return co_await (*from)->commit();
    };
    BOOST_REQUIRE(run(fill));
    restart(false);
    wire.sent.clear();
    const auto copied = run([&] { return (*to)->copy_from(**from, text.size(), nullptr); });
    BOOST_REQUIRE_MESSAGE(copied, (copied ? std::string() : copied.error().message()));
    BOOST_TEST(*copied == text.size());
    BOOST_TEST(run([&] { return client.getattr((*to)->node().handle); })->size == text.size());
    for (auto* each : {&from, &to})
        BOOST_TEST(run([&] { return (**each)->close(); }).has_value());
}

BOOST_FIXTURE_TEST_CASE(who_comes_in_the_grace_period_waits_for_its_end, fixture)
{
    kept.keys.insert("somebody else");
    restart(true);
    const auto top = export_root();
    BOOST_REQUIRE(top);
    const time_point began = clock.now();
    auto made = run([&] { return client.create(top->handle, "late", unset, nfs::v4::open_how::guarded); });
    BOOST_REQUIRE_MESSAGE(made, (made ? std::string() : made.error().message()));
    BOOST_TEST((clock.now() - began > nfs::patience::usual));
    BOOST_TEST(run([&] { return (*made)->close(); }).has_value());
}

// Whoever waits for the end of a grace period is not ended by another one's DELAY.
BOOST_FIXTURE_TEST_CASE(delay_in_vain_ends_nobody_who_waits_for_the_end_of_grace, fixture)
{
    kept.keys.insert("somebody else");
    restart(true);
    const auto top = export_root();
    BOOST_REQUIRE(top);
    wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::getattr) && !call.has(nfs_opnum4::open))
            refuse_third(reply, nfsstat4::delay);
    };
    result<std::unique_ptr<nfs::v4::file>> made{std::errc::io_error};
    int good = 0;
    run([&]() -> task<void> {
        scope both(*shard);
        both.spawn(look, std::ref(client), top->handle, std::ref(good));
        co_await sleep_for(1ms);
        both.spawn(make, std::ref(client), top->handle, "late", std::ref(made));
        co_await both.join();
    });
    wire.on_reply_to = nullptr;
    BOOST_TEST(good == 0);
    BOOST_REQUIRE_MESSAGE(made, (made ? std::string() : made.error().message()));
    BOOST_TEST(run([&] { return (*made)->close(); }).has_value());
}

BOOST_FIXTURE_TEST_CASE(what_is_opened_for_who_has_gone_is_closed, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    wire.sent.clear();
    gate.reset();
    result<std::unique_ptr<nfs::v4::file>> made{std::errc::io_error};
    scope callers(*shard);
    callers.spawn(make, std::ref(client), top->handle, "lost", std::ref(made));
    turns();
    callers.request_stop();
    // The caller waits no more, and OPEN goes on.
    run([&]() -> task<void> { co_await callers.join(); });
    BOOST_TEST_REQUIRE(!made);
    BOOST_TEST((made.error() == std::errc::operation_canceled));
    BOOST_TEST(wire.under_way == 1u);
    gate.set();
    run([&]() -> task<void> { co_await client.close(); });
    BOOST_TEST(wire.count(nfs_opnum4::open) == 1u);
    BOOST_TEST(wire.count(nfs_opnum4::close) == 1u);
    BOOST_TEST(wire.sent.back().has(nfs_opnum4::destroy_clientid));
    for (const sent_compound& each : wire.sent)
        BOOST_TEST(each.status == nfsstat4::ok); // CLIENTID_BUSY, if the file were open
}

// It might make or cut a file long after the caller has been told that nothing came of it.
BOOST_FIXTURE_TEST_CASE(an_open_is_not_repeated_for_who_has_gone, fixture)
{
    kept.keys.insert("somebody else");
    restart(true);
    const auto top = export_root();
    BOOST_REQUIRE(top);
    wire.sent.clear();
    result<std::unique_ptr<nfs::v4::file>> made{std::errc::io_error};
    const time_point began = clock.now();
    run([&]() -> task<void> {
        scope callers(*shard);
        callers.spawn(make, std::ref(client), top->handle, "late", std::ref(made));
        co_await sleep_for(1s);
        callers.request_stop();
        co_await callers.join();
    });
    BOOST_TEST((!made && made.error() == std::errc::operation_canceled));
    const std::size_t asked = wire.count(nfs_opnum4::open);
    BOOST_TEST(asked >= 1u);
    BOOST_TEST((wire.sent.back().status == nfsstat4::grace));
    run([]() -> task<void> { (void)co_await sleep_for(400s); });
    BOOST_TEST(wire.count(nfs_opnum4::open) == asked);
    const auto found = run([&] { return client.lookup(top->handle, "late"); });
    BOOST_TEST((!found && found.error().code() == make_error_code(nfsstat4::noent)));

    // Nor where the session is lost meanwhile, and close() waits for the answer alone.
    wire.sent.clear();
    wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.has(nfs_opnum4::open))
            refuse(reply, nfsstat4::badsession);
    };
    gate.reset();
    const time_point before = clock.now();
    scope callers(*shard);
    callers.spawn(make, std::ref(client), top->handle, "late", std::ref(made));
    turns();
    callers.request_stop();
    run([&]() -> task<void> { co_await callers.join(); });
    gate.set();
    run([&]() -> task<void> { co_await client.close(); });
    BOOST_TEST(wire.count(nfs_opnum4::open) == 1u);
    BOOST_TEST((clock.now() - before < 1s));
    BOOST_TEST((clock.now() - began >= 400s));
}

BOOST_FIXTURE_TEST_CASE(a_session_that_is_closed_while_it_is_made_stays_closed, fixture)
{
    const auto handle = nfs::v4::known_handle(std::as_bytes(std::span("handle")));
    gate.reset();
    int good = 0;
    scope both(*shard);
    both.spawn(look, std::ref(client), handle, std::ref(good));
    turns();
    BOOST_TEST(wire.count(nfs_opnum4::exchange_id) == 1u);
    both.spawn([this]() -> task<void> { co_await client.close(); });
    turns();
    gate.set();
    run([&]() -> task<void> { co_await both.join(); });
    BOOST_TEST(wire.count(nfs_opnum4::create_session) == wire.count(nfs_opnum4::destroy_session));
    wire.sent.clear();
    BOOST_TEST((run([&] { return client.getattr(handle); }).error() == std::errc::operation_canceled));
    BOOST_TEST(wire.sent.empty());
}

BOOST_FIXTURE_TEST_CASE(what_the_server_says_it_has_revoked_is_looked_for_and_freed, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    auto one = run([&] { return client.create(top->handle, "one", unset, nfs::v4::open_how::guarded); });
    auto two = run([&] { return client.create(top->handle, "two", unset, nfs::v4::open_how::guarded); });
    BOOST_REQUIRE(one);
    BOOST_REQUIRE(two);
    std::uint32_t flags = 0;
    wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.sequence)
            set_flags(reply, flags);
        if (call.has(nfs_opnum4::test_stateid)) // of the last one
            xdr::store_u32(reply.data() + reply.size() - 4, static_cast<std::uint32_t>(nfsstat4::expired));
    };
    for (const std::uint32_t flag :
         {seq4_status::expired_all_state_revoked, seq4_status::expired_some_state_revoked,
          seq4_status::admin_state_revoked, seq4_status::recallable_state_revoked}) {
        for (const std::uint32_t now : {flag, flag, std::uint32_t(0)}) {
            flags = now;
            BOOST_TEST(run([&] { return client.getattr(top->handle); }).has_value());
            turns();
        }
        // Once for each time that it comes.
        BOOST_TEST(wire.count(nfs_opnum4::test_stateid) == 1u);
        BOOST_TEST(wire.count(nfs_opnum4::free_stateid) == 1u);
        wire.sent.clear();
    }
    flags = seq4_status::cb_path_down | seq4_status::cb_path_down_session | seq4_status::backchannel_fault |
            seq4_status::lease_moved | seq4_status::devid_changed;
    BOOST_TEST(run([&] { return client.getattr(top->handle); }).has_value());
    turns();
    BOOST_TEST(wire.sent.size() == 1u);
    wire.on_reply_to = nullptr;
    BOOST_TEST(run([&] { return (*one)->close(); }).has_value());
    BOOST_TEST(run([&] { return (*two)->close(); }).has_value());
}

BOOST_FIXTURE_TEST_CASE(what_was_revoked_is_freed_and_opened_again_by_who_uses_it, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    auto made = run([&] { return client.create(top->handle, "kept", unset, nfs::v4::open_how::guarded); });
    BOOST_REQUIRE(made);
    for (const nfsstat4 status : {nfsstat4::expired, nfsstat4::admin_revoked, nfsstat4::bad_stateid}) {
        bool refuses = true;
        wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
            if (call.has(nfs_opnum4::read) && std::exchange(refuses, false))
                refuse_third(reply, status);
        };
        wire.sent.clear();
        BOOST_TEST(run([&] { return (*made)->read(0, 10); }).has_value());
        BOOST_TEST(wire.count(nfs_opnum4::free_stateid) == (status == nfsstat4::bad_stateid ? 0u : 1u));
        BOOST_TEST(wire.count(nfs_opnum4::open) == 1u);
    }
    wire.on_reply_to = nullptr;
    BOOST_TEST(run([&] { return (*made)->close(); }).has_value());
}

// A server that keeps its sessions over a restart, and what was open not.
BOOST_FIXTURE_TEST_CASE(what_a_server_wants_reclaimed_is_reclaimed_in_the_session_that_is_there, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    auto made = run([&] { return client.create(top->handle, "kept", unset, nfs::v4::open_how::guarded); });
    BOOST_REQUIRE(made);
    wire.sent.clear();
    wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.sequence)
            set_flags(reply, seq4_status::restart_reclaim_needed); // and it goes on saying so
    };
    for (int i = 0; i < 3; ++i)
        BOOST_TEST(run([&] { return client.getattr(top->handle); }).has_value());
    wire.on_reply_to = nullptr;
    BOOST_TEST(wire.count(nfs_opnum4::create_session) == 0u);
    BOOST_TEST(wire.count(nfs_opnum4::open) == 1u);
    BOOST_TEST(wire.count(nfs_opnum4::reclaim_complete) == 1u);
    BOOST_TEST(client.session().incarnation() == 2u);
    BOOST_TEST(run([&] { return (*made)->close(); }).has_value());
}

BOOST_FIXTURE_TEST_CASE(a_high_slot_that_is_refused_is_not_the_calls_own, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    bool put_off = false;
    bool refused = false;
    wire.on_reply_to = [&](const sent_compound& call, std::vector<std::byte>& reply) {
        if (call.sequence->slotid == 0 && !std::exchange(put_off, true))
            refuse(reply, nfsstat4::delay);
        else if (call.sequence->highest_slotid == 5 && call.sequence->slotid == 0 &&
                 !std::exchange(refused, true))
            refuse(reply, nfsstat4::bad_high_slot);
    };
    int good = 0;
    run([&]() -> task<void> {
        scope callers(*shard);
        callers.spawn(look, std::ref(client), top->handle, std::ref(good));
        co_await sleep_for(1ms);
        gate.reset();
        for (int i = 0; i < 5; ++i)
            callers.spawn(look, std::ref(client), top->handle, std::ref(good));
        co_await sleep_for(200ms); // the first one is sent again
        gate.set();
        co_await callers.join();
    });
    wire.on_reply_to = nullptr;
    BOOST_TEST(refused);
    BOOST_TEST(good == 6);
    BOOST_TEST(client.session().slots() == 5u);
}

BOOST_FIXTURE_TEST_CASE(the_lease_is_renewed_while_nobody_calls, fixture)
{
    const auto top = export_root();
    BOOST_REQUIRE(top);
    wire.sent.clear();
    run([&]() -> task<void> {
        const bool slept = co_await sleep_for(1000s);
        BOOST_TEST(slept);
    });
    BOOST_TEST(wire.sent.size() >= 30u);
    BOOST_TEST(wire.sent.size() <= 35u);
    BOOST_REQUIRE(export_root());
    BOOST_TEST(client.session().sessions() == 1u);
    // Who calls renews by that.
    wire.sent.clear();
    run([&]() -> task<void> {
        for (int i = 0; i < 100; ++i) {
            (void)co_await sleep_for(10s);
            (void)co_await client.getattr(top->handle);
        }
    });
    BOOST_TEST(wire.sent.size() <= 102u);
}

BOOST_AUTO_TEST_SUITE_END()
