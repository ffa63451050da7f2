// SPDX-License-Identifier: Apache-2.0
// Minor version 0: owners and their numbers, locks, reclaim.
#include "nfs4_v40_client.hpp"

#include <verbena/protocols/storage/gated_backend.hpp>

#include <new>

BOOST_AUTO_TEST_SUITE(nfs4_v40_test)

using namespace verbena;
using namespace verbena::test;

// --- COMPOUND

BOOST_FIXTURE_TEST_CASE(it_is_served_where_it_is_named_alone, v40_fixture)
{
    answer4 refused = compound(PUTROOTFH4args());
    BOOST_TEST(refused.status() == nfsstat4::minor_vers_mismatch);
    BOOST_TEST(refused.operations() == 0u);
    serve();
    BOOST_TEST(compound(PUTROOTFH4args(), GETFH4args()).status() == nfsstat4::ok);
    BOOST_TEST(compound().status() == nfsstat4::ok);
    // What later minor versions have is none of its operations.
    answer4 later = compound(PUTROOTFH4args(), EXCHANGE_ID4args());
    BOOST_TEST(later.status() == nfsstat4::op_illegal);
    BOOST_TEST(later.operations() == 2u);
    minor = 1;
    BOOST_TEST(compound(RENEW4args{1}).status() == nfsstat4::op_not_in_session);
}

BOOST_FIXTURE_TEST_CASE(its_errors_are_its_own, v40_fixture)
{
    serve();
    BOOST_TEST(compound(RESTOREFH4args()).status() == nfsstat4::restorefh);
    BOOST_TEST(compound(PUTROOTFH4args(), READLINK4args()).status() == nfsstat4::inval);
    answer4 secinfo = compound(PUTROOTFH4args(), SECINFO4args{"export"}, GETFH4args());
    BOOST_TEST(secinfo.status() == nfsstat4::ok); // it keeps the handle
    const auto many = [](compound_request& out) {
        for (int i = 0; i < 65; ++i)
            out.add(PUTROOTFH4args());
    };
    answer4 too_many = send(0, many);
    BOOST_TEST(too_many.status() == nfsstat4::resource);
    BOOST_TEST(too_many.operations() == 0u);
}

// --- Owners

BOOST_FIXTURE_TEST_CASE(the_first_open_of_an_owner_is_to_be_confirmed, v40_fixture)
{
    client0 a(*this, "a");
    a.connect();
    a.seqid = 41;
    auto file = a.open(a.creating("f"));
    BOOST_TEST((file.rflags & open4_result::confirm) != 0);
    BOOST_TEST(file.id.seqid == 1u);
    BOOST_TEST(a.write(file, file.id) == nfsstat4::bad_stateid);
    BOOST_TEST(a.close(file, a.seqid + 1).status == nfsstat4::bad_stateid); // moves nothing
    const auto res = a.confirm(file);
    BOOST_TEST_REQUIRE(res.status == nfsstat4::ok);
    BOOST_TEST(res.open_stateid.seqid == 2u);
    BOOST_TEST(a.confirm(file, a.seqid).status == nfsstat4::ok); // a repeat
    file.id = res.open_stateid;
    BOOST_TEST(a.write(file, file.id) == nfsstat4::ok);
    BOOST_TEST(a.confirm(file).status == nfsstat4::bad_stateid); // OPCF1
    --a.seqid;
    // The second one needs none.
    const auto second = a.open(a.creating("g"));
    BOOST_TEST(second.status == nfsstat4::ok);
    BOOST_TEST((second.rflags & open4_result::confirm) == 0u);
}

BOOST_FIXTURE_TEST_CASE(an_owner_that_was_not_confirmed_is_forgotten_by_its_next_open, v40_fixture)
{
    client0 a(*this, "a");
    a.connect();
    const auto first = a.open(a.creating("f"));
    a.seqid = 1000;
    const auto second = a.open(a.creating("g"));
    BOOST_TEST((second.rflags & open4_result::confirm) != 0);
    BOOST_TEST(commons->state.stats().opens.value() == 1);
    BOOST_TEST(a.confirm(first, 1002).status == nfsstat4::bad_stateid);
    BOOST_TEST(a.confirm(second, 1002).status == nfsstat4::ok);
    // And by time, with what it opened.
    client0 b(*this, "b");
    b.connect();
    (void)b.open(b.creating("h"));
    BOOST_TEST(commons->state.stats().opens.value() == 2);
    clock.advance(91s);
    BOOST_TEST(b.renew() == nfsstat4::ok);
    BOOST_TEST(a.renew() == nfsstat4::ok);
    (void)run_until_complete(*shard, commons->v40.tend(clock.now()));
    BOOST_TEST(commons->state.stats().opens.value() == 1);
}

BOOST_FIXTURE_TEST_CASE(a_number_says_what_runs, v40_fixture)
{
    client0 a(*this, "a");
    a.connect();
    const auto file = a.ready(a.creating("f"));
    // One too far, and one too old, whatever else is wrong.
    BOOST_TEST(a.close(file, a.seqid + 2).status == nfsstat4::bad_seqid);
    BOOST_TEST(a.close(file, a.seqid - 1).status == nfsstat4::bad_seqid);
    // The last one's again, but of another operation.
    BOOST_TEST(a.close(file, a.seqid).status == nfsstat4::bad_seqid);
    OPEN4args missing = a.opening("none");
    BOOST_TEST(a.open(missing).status == nfsstat4::noent);
    missing.seqid = a.seqid + 5;
    BOOST_TEST(a.open(missing).status == nfsstat4::bad_seqid);
    BOOST_TEST(a.close(file).status == nfsstat4::ok); // NOENT used up its number, BAD_SEQID none
}

BOOST_FIXTURE_TEST_CASE(errors_that_name_no_state_use_up_no_number, v40_fixture)
{
    client0 a(*this, "a");
    a.connect();
    auto file = a.ready(a.creating("f"));
    auto wrong = file;
    wrong.id.seqid = 77;
    BOOST_TEST(a.close(wrong, a.seqid + 1).status == nfsstat4::bad_stateid);
    auto special = file;
    special.id = stateid4::current();
    BOOST_TEST(a.close(special, a.seqid + 1).status == nfsstat4::bad_stateid);
    auto stale = file;
    stale.id.other[0] ^= std::byte(1);
    BOOST_TEST(a.close(stale, a.seqid + 1).status == nfsstat4::stale_stateid);
    BOOST_TEST(compound(CLOSE4args{a.seqid + 1, file.id}).status() == nfsstat4::nofilehandle);
    auto older = file;
    older.id.seqid = 1;
    BOOST_TEST(a.close(older).status == nfsstat4::old_stateid); // this one does
    BOOST_TEST(a.write(older, older.id) == nfsstat4::old_stateid);
    older.id.seqid = 0; // a number as others are
    BOOST_TEST(a.write(older, older.id) == nfsstat4::old_stateid);
    BOOST_TEST(a.close(file).status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(repeats_are_answered_as_the_first_time, v40_fixture)
{
    client0 a(*this, "a");
    a.connect();
    (void)a.ready(a.creating("f"));
    const OPEN4args args = a.creating("g");
    const auto made = a.open(args);
    const auto again = a.open(args);
    BOOST_TEST(again.status == nfsstat4::ok);
    BOOST_CHECK(again.id == made.id);
    BOOST_CHECK(again.handle == made.handle); // what follows finds the file
    BOOST_TEST(program->counters().replays.value() == 1u);
    BOOST_TEST(commons->state.stats().opens.value() == 2);
    // Of CLOSE, whose stateid is no more.
    const auto closed = a.close(made);
    BOOST_TEST(closed.status == nfsstat4::ok);
    const auto repeated = a.close(made, a.seqid);
    BOOST_TEST(repeated.status == nfsstat4::ok);
    BOOST_CHECK(repeated.open_stateid == closed.open_stateid);
    BOOST_TEST(a.close(made, a.seqid + 1).status == nfsstat4::bad_stateid);
    // A failure too.
    const OPEN4args missing = a.opening("none");
    BOOST_TEST(a.open(missing).status == nfsstat4::noent);
    client0 b(*this, "b");
    b.connect();
    (void)b.ready(b.creating("none"));
    BOOST_TEST(a.open(missing).status == nfsstat4::noent);
}

BOOST_FIXTURE_TEST_CASE(opens_of_an_owner_are_one_and_go_down, v40_fixture)
{
    client0 a(*this, "a");
    a.connect();
    (void)a.ready(a.creating("f"));
    const auto reading = a.open(a.opening("f", share4::access_read));
    auto file = a.open(a.opening("f"));
    BOOST_TEST(file.id.seqid == reading.id.seqid + 1);
    const auto downgrade = [&](std::uint32_t access) {
        answer4 out = compound(PUTFH4args{file.fh()}, OPEN_DOWNGRADE4args{file.id, ++a.seqid, access, 0});
        out.good<PUTFH4res>();
        return out.take<OPEN_DOWNGRADE4res>();
    };
    BOOST_TEST(downgrade(share4::access_write).status == nfsstat4::inval);
    const auto less = downgrade(share4::access_read);
    BOOST_TEST_REQUIRE(less.status == nfsstat4::ok);
    file.id = less.open_stateid;
    BOOST_TEST(a.write(file, file.id) == nfsstat4::openmode);
}

BOOST_FIXTURE_TEST_CASE(what_later_minor_versions_say_is_refused, v40_fixture)
{
    client0 a(*this, "a");
    a.connect();
    (void)a.ready(a.creating("f"));
    OPEN4args wants = a.opening("f", share4::access_read | share4::want_no_delegation);
    BOOST_TEST(a.open(wants).status == nfsstat4::inval);
    OPEN4args by_handle = a.opening("f");
    by_handle.claim.claim = open_claim_type4::fh;
    BOOST_TEST(a.open(by_handle).status == nfsstat4::badxdr);
    --a.seqid;
    OPEN4args exclusive = a.creating("g");
    exclusive.openhow.mode = createmode4::exclusive4_1;
    BOOST_TEST(a.open(exclusive).status == nfsstat4::badxdr);
    --a.seqid;
    BOOST_TEST(a.open(a.opening("f")).status == nfsstat4::ok);
    OPEN4args nobody = a.opening("f");
    nobody.owner.clientid = 12345;
    BOOST_TEST(a.open(nobody).status == nfsstat4::stale_clientid);
}

BOOST_FIXTURE_TEST_CASE(idle_owners_go, v40_fixture)
{
    client0 a(*this, "a");
    a.connect();
    const auto file = a.ready(a.creating("f"));
    BOOST_TEST(a.close(file).status == nfsstat4::ok);
    BOOST_TEST(commons->v40.owners().size() == 1u);
    clock.advance(91s);
    BOOST_TEST(a.renew() == nfsstat4::ok);
    (void)run_until_complete(*shard, commons->v40.tend(clock.now()));
    BOOST_TEST(commons->v40.owners().size() == 0u);
    // And sooner where there are many.
    for (int i = 0; i < 1200; ++i) {
        a.owner = "o" + std::to_string(i);
        const auto each = a.ready(a.opening("f"));
        BOOST_TEST(a.close(each).status == nfsstat4::ok);
    }
    BOOST_TEST(commons->v40.owners().size() <= 1025u);
}

namespace {

/// Operations of one kind throw.
class throwing_files final : public storage::gated_backend {
public:
    using gated_backend::gated_backend;
    bool gates(storage::operation op) const noexcept override { return op == throws; }
    task<result<void>> enter(storage::operation, const storage::request&, std::uint64_t) override
    {
        throw std::bad_alloc();
        co_return result<void>();
    }
    storage::operation throws = storage::operation::create;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(what_throws_leaves_its_owner_to_others, v40_fixture)
{
    throwing_files throwing(*files);
    add("/throwing", throwing);
    client0 a(*this, "a");
    a.connect();
    const auto before = a.ready(a.creating("g"));
    const auto c = prepare(0, [&](compound_request& out) {
        out.add(PUTROOTFH4args()).add(LOOKUP4args{"throwing"}).add(a.creating("f"));
    });
    BOOST_REQUIRE(run_until_complete(*shard, dispatcher->dispatch(*c)));
    (void)c->reply();
    BOOST_TEST(!c->header_of_reply.success());
    // Its number is not used up, since nobody has heard what became of it.
    --a.seqid;
    BOOST_TEST(a.open(a.creating("f")).status == nfsstat4::ok);
    BOOST_TEST(a.close(before).status == nfsstat4::ok);
    BOOST_TEST(commons->state.stats().opens.value() == 1);
}

// Where something throws when the open is made already nobody knows its stateid: it goes with the owner that made it.
BOOST_FIXTURE_TEST_CASE(an_open_that_nobody_was_told_of_does_not_stay, v40_fixture)
{
    client0 a(*this, "a"), b(*this, "b");
    a.connect();
    b.connect();
    const auto file = b.ready(b.creating("f"));
    const auto lose_one = [&] {
        const OPEN4args args = a.opening("f", share4::access_read, share4::deny_write);
        const v40_state::begun begun = run_until_complete(*shard, commons->v40.begin_open(args));
        BOOST_TEST_REQUIRE(begun.runs);
        files::open_request request;
        request.client = begun.client;
        request.owner = args.owner.owner;
        request.file = storage::handle(bytes_of("another file"));
        const auto opened = run_until_complete(*shard, commons->state.open(request, {}));
        BOOST_TEST(opened.has_value());
        BOOST_TEST(commons->state.stats().opens.value() == 2);
    };
    // As time goes by.
    lose_one();
    clock.advance(60s);
    BOOST_TEST(a.renew() == nfsstat4::ok);
    BOOST_TEST(b.renew() == nfsstat4::ok);
    clock.advance(60s);
    (void)run_until_complete(*shard, commons->v40.tend(clock.now()));
    BOOST_TEST(commons->state.stats().opens.value() == 1);
    BOOST_TEST(commons->v40.owners().size() == 1u);
    // And when its owner's next open fails.
    lose_one();
    BOOST_TEST(a.open(a.opening("missing")).status == nfsstat4::noent);
    BOOST_TEST(commons->state.stats().opens.value() == 1);
    BOOST_TEST(b.close(file).status == nfsstat4::ok);
}

// A repeat has the file again, as PUTFH would have it.
BOOST_FIXTURE_TEST_CASE(a_repeat_from_a_host_that_may_not_use_the_export_has_no_file, v40_fixture)
{
    for (auto& made : options)
        BOOST_REQUIRE(made.clients.add(&made == &options.front() ? "127.0.0.1" : "*"));
    client0 a(*this, "a");
    a.connect();
    (void)a.ready(a.creating("f"));
    const OPEN4args args = a.opening("f");
    BOOST_TEST(a.open(args).status == nfsstat4::ok);
    BOOST_TEST(compound(PUTROOTFH4args(), args, GETFH4args()).status() == nfsstat4::ok);
    from = {"192.0.2.7", "192.0.2.7:700", "tcp", 700};
    BOOST_TEST(compound(PUTROOTFH4args(), GETFH4args()).status() == nfsstat4::ok);
    answer4 out = compound(PUTROOTFH4args(), args, GETFH4args());
    BOOST_TEST(out.status() == nfsstat4::access);
    BOOST_TEST(out.operations() == 2u);
    BOOST_TEST(program->counters().refused.address.value() == 1u);
}

// --- Locks

BOOST_FIXTURE_TEST_CASE(lock_owners_have_numbers_of_their_own, v40_fixture)
{
    client0 a(*this, "a"), b(*this, "b");
    a.connect();
    b.connect();
    const auto file = a.ready(a.creating("f"));
    const LOCK4args first = a.locking(file, 0, 10);
    const auto held = a.lock(file, first);
    BOOST_TEST_REQUIRE(held.status == nfsstat4::ok);
    BOOST_CHECK(a.lock(file, first).lock_stateid == held.lock_stateid); // a repeat, by the open owner
    const LOCK4args second = a.again(held.lock_stateid, 20, 10);
    const auto more = a.lock(file, second);
    BOOST_TEST_REQUIRE(more.status == nfsstat4::ok);
    BOOST_TEST(more.lock_stateid.seqid == held.lock_stateid.seqid + 1);
    BOOST_CHECK(a.lock(file, second).lock_stateid == more.lock_stateid);
    LOCK4args wrong = a.again(more.lock_stateid, 40, 10);
    wrong.locker.lock_seqid += 3;
    BOOST_TEST(a.lock(file, wrong).status == nfsstat4::bad_seqid);
    --a.lock_seqid;
    // Known already: its number must be the next.
    LOCK4args known = a.locking(file, 60, 10);
    BOOST_TEST(a.lock(file, known).status == nfsstat4::bad_seqid);
    known.locker.lock_seqid = ++a.lock_seqid;
    const auto by_open = a.lock(file, known);
    BOOST_TEST(by_open.status == nfsstat4::ok);
    // Another client's.
    const auto theirs = b.ready(b.opening("f"));
    const LOCK4args denied = b.locking(theirs, 5, 1);
    answer4 out = compound(PUTFH4args{theirs.fh()}, denied);
    out.good<PUTFH4res>();
    const auto refused = out.take<LOCK4res>();
    BOOST_TEST(refused.status == nfsstat4::denied);
    BOOST_TEST(refused.denied.length == 10u);
    BOOST_TEST(b.lock(theirs, denied).denied.length == 10u); // a repeat
    LOCKT4args test;
    test.locktype = nfs_lock_type4::read;
    test.length = 1;
    test.owner.clientid = b.id;
    test.owner.owner = bytes_of(b.locker);
    BOOST_TEST(compound(PUTFH4args{theirs.fh()}, test).status() == nfsstat4::denied);
    test.owner.clientid = 1;
    BOOST_TEST(compound(PUTFH4args{theirs.fh()}, test).status() == nfsstat4::stale_clientid);
    // Unlocked, released.
    const RELEASE_LOCKOWNER4args release{{a.id, bytes_of(a.locker)}};
    BOOST_TEST(compound(release).status() == nfsstat4::locks_held);
    LOCKU4args unlock;
    unlock.seqid = ++a.lock_seqid;
    unlock.lock_stateid = by_open.lock_stateid;
    unlock.length = UINT64_MAX;
    BOOST_TEST(compound(PUTFH4args{file.fh()}, unlock).status() == nfsstat4::ok);
    BOOST_TEST(compound(PUTFH4args{file.fh()}, unlock).status() == nfsstat4::ok); // a repeat
    BOOST_TEST(b.lock(theirs, b.locking(theirs, 5, 1)).status == nfsstat4::ok);
    BOOST_TEST(compound(release).status() == nfsstat4::ok);
    BOOST_TEST(commons->state.stats().lock_states.value() == 1);
    // It is unknown again, and begins with any number.
    a.lock_seqid = 500;
    BOOST_TEST(a.lock(file, a.locking(file, 100, 1)).status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(a_range_is_looked_at_behind_the_number, v40_fixture)
{
    client0 a(*this, "a");
    a.connect();
    const auto file = a.ready(a.creating("f"));
    LOCK4args none = a.locking(file, 0, 0);
    BOOST_TEST(a.lock(file, none).status == nfsstat4::inval);
    none.locker.open_seqid += 4;
    BOOST_TEST(a.lock(file, none).status == nfsstat4::bad_seqid);
    BOOST_TEST(a.lock(file, a.locking(file, 0, 1)).status == nfsstat4::ok);
}

// --- Restarts

BOOST_FIXTURE_TEST_CASE(a_client_takes_back_what_it_had, restarting_fixture)
{
    client0 a(*this, "a"), b(*this, "b");
    a.connect();
    BOOST_TEST(lists.new_list.empty()); // it has nothing yet
    const auto file = a.ready(a.creating("f"));
    BOOST_TEST(lists.new_list.size() == 1u);
    start_again();
    BOOST_TEST(a.renew() == nfsstat4::stale_clientid);
    BOOST_TEST(a.write(file, file.id) == nfsstat4::stale_stateid);
    a.connect();
    b.connect();
    const auto reclaim = [&](client0& of) {
        OPEN4args args = of.opening("");
        args.claim.claim = open_claim_type4::previous;
        args.claim.delegate_type = open_delegation_type4::write; // it never had one
        answer4 out = compound(PUTFH4args{file.fh()}, args);
        out.good<PUTFH4res>();
        return out.take<OPEN4res>();
    };
    b.seqid = 10;
    BOOST_TEST(reclaim(b).status == nfsstat4::reclaim_bad);
    BOOST_TEST(b.open(b.opening("f")).status == nfsstat4::grace);
    const OPEN4res again = reclaim(a);
    BOOST_TEST_REQUIRE(again.status == nfsstat4::ok);
    BOOST_TEST((again.rflags & open4_result::confirm) == 0u); // its name is proof enough
    BOOST_TEST(commons->state.stats().write_delegations.value() == 0u);
    auto back = file;
    back.id = again.stateid;
    BOOST_TEST(a.write(back, back.id) == nfsstat4::ok);
    LOCK4args lock = a.locking(back, 0, 10);
    lock.reclaim = true;
    BOOST_TEST(a.lock(back, lock).status == nfsstat4::ok);
    BOOST_TEST(a.open(a.opening("f")).status == nfsstat4::grace);
    // Nobody says that he is done: it takes its time.
    pass(91s, 1s);
    BOOST_TEST(a.renew() == nfsstat4::ok);
    BOOST_TEST(reclaim(a).status == nfsstat4::no_grace);
    BOOST_TEST(a.open(a.opening("f")).status == nfsstat4::ok);
    BOOST_TEST(b.renew() == nfsstat4::stale_clientid); // it was silent, and had nothing
    b.connect();
    BOOST_TEST(b.open(b.opening("f")).status == nfsstat4::ok);
}

// The second edge condition (7530 9.6.3.4): who came back in grace and took back nothing may not in the next one.
BOOST_FIXTURE_TEST_CASE(who_took_back_nothing_is_not_in_the_list, restarting_fixture)
{
    client0 a(*this, "a");
    a.connect();
    (void)a.ready(a.creating("f"));
    start_again();
    a.connect();
    pass(91s, 1s);
    BOOST_TEST(lists.new_list.empty());
    start_again();
    a.connect();
    OPEN4args args = a.opening("");
    args.claim.claim = open_claim_type4::previous;
    answer4 out = compound(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"f"}, args);
    BOOST_TEST(out.status() == nfsstat4::no_grace);
}

BOOST_FIXTURE_TEST_CASE(an_open_that_cant_be_written_down_is_not_answered, restarting_fixture)
{
    client0 a(*this, "a");
    a.connect();
    memory->fails = [] { return true; };
    BOOST_TEST(a.open(a.creating("f")).status == nfsstat4::delay);
    memory->fails = nullptr;
    BOOST_TEST(a.ready(a.creating("f")).status == nfsstat4::ok);
    BOOST_TEST(lists.new_list.size() == 1u);
}

// The file is not made before: one that comes again as GUARDED would find it.
BOOST_FIXTURE_TEST_CASE(a_file_is_not_made_before_its_client_is_written_down, restarting_fixture)
{
    client0 a(*this, "a");
    a.connect();
    memory->fails = [] { return true; };
    OPEN4args guarded = a.creating("f");
    guarded.openhow.mode = createmode4::guarded;
    BOOST_TEST(a.open(guarded).status == nfsstat4::delay);
    BOOST_TEST(commons->state.stats().opens.value() == 0);
    memory->fails = nullptr;
    guarded.seqid = ++a.seqid;
    BOOST_TEST(a.ready(guarded).status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(a_file_is_not_cut_before_its_client_is_written_down, restarting_fixture)
{
    client0 a(*this, "a"), b(*this, "b");
    a.connect();
    b.connect();
    const auto file = a.ready(a.creating("f"));
    BOOST_TEST(a.write(file, file.id) == nfsstat4::ok);
    memory->fails = [] { return true; };
    OPEN4args cuts = b.creating("f");
    const encoded none = [] {
        attributes values;
        values.present = {attribute::size};
        values.size = 0;
        return encoded(values);
    }();
    cuts.openhow.attrs = none.raw;
    BOOST_TEST(b.open(cuts).status == nfsstat4::delay);
    BOOST_TEST(commons->state.stats().opens.value() == 1);
    answer4 out = compound(PUTFH4args{file.fh()}, READ4args{file.id, 0, 100});
    out.good<PUTFH4res>();
    BOOST_TEST(out.good<READ4res>().data.length == 4u);
    memory->fails = nullptr;
    cuts.seqid = ++b.seqid;
    BOOST_TEST(b.open(cuts).status == nfsstat4::ok);
    BOOST_TEST(lists.new_list.size() == 2u);
}

BOOST_FIXTURE_TEST_CASE(calls_of_one_owner_wait_for_each_other, restarting_fixture)
{
    client0 a(*this, "a");
    a.connect();
    memory->takes = [] { return 1s; };
    const OPEN4args first = a.creating("f");
    const auto begin_open = [&] {
        const auto write = [&](compound_request& out) {
            out.add(PUTROOTFH4args()).add(LOOKUP4args{"export"}).add(first);
        };
        std::shared_ptr<memory_call> c = prepare(minor, write);
        tasks.spawn([this, c]() -> task<void> {
            (void)co_await dispatcher->dispatch(*c);
            c->is_done = true;
        });
        turns();
        return c;
    };
    const auto one = begin_open();
    BOOST_TEST(!one->is_done); // it is being written down
    std::vector<std::shared_ptr<memory_call>> others;
    for (int i = 0; i < 16; ++i) {
        others.push_back(begin_open());
        BOOST_TEST(!others.back()->is_done);
    }
    const auto too_many = begin_open();
    BOOST_TEST_REQUIRE(too_many->is_done);
    BOOST_TEST(answer_of(*too_many).status() == nfsstat4::resource);
    pass(30s, 100ms);
    BOOST_TEST_REQUIRE(one->is_done);
    BOOST_TEST(answer_of(*one).status() == nfsstat4::ok);
    for (const auto& c : others) {
        BOOST_TEST_REQUIRE(c->is_done);
        BOOST_TEST(answer_of(*c).status() == nfsstat4::ok);
    }
    BOOST_TEST(commons->state.stats().opens.value() ==
               1); // none was confirmed: each took the place of the one before
}

BOOST_AUTO_TEST_SUITE_END()
