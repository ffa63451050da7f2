// SPDX-License-Identifier: Apache-2.0
// A server of version 4 whose files have their homes on three shards, each with a connection of its own. Orders in which
// the shards have their turns are drawn by seeds.
#include "nfs4_spread_server.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(nfs4_homes_test)

using namespace verbena;
using namespace verbena::test;

namespace {

constexpr std::uint64_t orders = 40;

/// A client of minor version 0 with one open owner and one lock owner.
struct spread_client0 {
    explicit spread_client0(spread_server& s) : server(s)
    {
        s.minor = 0;
        answer4 set = s.compound(1, SETCLIENTID4args());
        const auto res = set.good<SETCLIENTID4res>();
        id = res.clientid;
        answer4 confirmed = s.compound(2, SETCLIENTID_CONFIRM4args{id, res.setclientid_confirm});
        BOOST_TEST_REQUIRE(confirmed.status() == nfsstat4::ok);
    }
    struct opened {
        stateid4 id;
        std::vector<std::byte> handle;
        std::uint32_t rflags = 0;
        std::span<const std::byte> fh() const noexcept { return handle; }
    };
    opened open(std::size_t at, std::string_view name, std::string_view owner = "opener")
    {
        OPEN4args args = spread_client::opening(name, share4::access_both);
        args.seqid = ++seqids[std::string(owner)];
        args.owner = {id, named(owner)};
        answer4 out = server.compound(at, PUTROOTFH4args(), LOOKUP4args{"export"}, args, GETFH4args());
        out.good<PUTROOTFH4res>();
        out.good<LOOKUP4res>();
        const auto res = out.good<OPEN4res>();
        const auto handle = out.good<GETFH4res>();
        return {res.stateid, {handle.object.begin(), handle.object.end()}, res.rflags};
    }
    /// The owner confirmed where it must be.
    opened ready(std::size_t at, std::string_view name, std::string_view owner = "opener")
    {
        opened file = open(at, name, owner);
        if ((file.rflags & open4_result::confirm) == 0)
            return file;
        const OPEN_CONFIRM4args confirming{file.id, ++seqids[std::string(owner)]};
        answer4 out = server.compound(at, PUTFH4args{file.fh()}, confirming);
        out.good<PUTFH4res>();
        file.id = out.good<OPEN_CONFIRM4res>().open_stateid;
        return file;
    }
    LOCK4args locking(const opened& file, std::uint64_t offset, std::uint32_t lock_seqid)
    {
        LOCK4args args;
        args.locktype = nfs_lock_type4::write;
        args.offset = offset;
        args.length = 1;
        args.locker.new_lock_owner = true;
        args.locker.open_seqid = ++seqids["opener"];
        args.locker.open_stateid = file.id;
        args.locker.lock_seqid = lock_seqid;
        args.locker.lock_owner = {id, named("locker")};
        return args;
    }
    static LOCKU4args unlocking(const stateid4& lock, std::uint32_t seqid)
    {
        LOCKU4args args;
        args.lock_stateid = lock;
        args.seqid = seqid;
        args.length = UINT64_MAX;
        return args;
    }
    nfsstat4 close(std::size_t at, const opened& file, std::string_view owner = "opener")
    {
        return server.compound(at, PUTFH4args{file.fh()}, CLOSE4args{++seqids[std::string(owner)], file.id})
            .status();
    }
    /// One whose home is that one.
    opened ready_at(unsigned home, std::string_view owner = "opener")
    {
        for (;;) {
            opened file = ready(0, "of" + std::to_string(next_++), owner);
            if (server.home_of(file.id) == home)
                return file;
            BOOST_TEST_REQUIRE(close(0, file, owner) == nfsstat4::ok);
        }
    }

    spread_server& server;
    clientid4 id = 0;
    std::map<std::string, std::uint32_t> seqids;

private:
    unsigned next_ = 0;
};

using stats = verbena::files::state_stats;

} // namespace

BOOST_AUTO_TEST_CASE(files_have_their_homes_on_all_shards)
{
    spread_server s;
    spread_client a(s, "a", 0);
    std::vector<spread_client::opened> all;
    std::array<unsigned, homes> of_home{};
    for (unsigned i = 0; i < 40; ++i) {
        all.push_back(a.open(i % homes, "f" + std::to_string(i)));
        BOOST_TEST_REQUIRE(all.back().status == nfsstat4::ok);
        ++of_home.at(s.home_of(all.back().id));
    }
    for (unsigned i = 0; i < homes; ++i) {
        BOOST_TEST(of_home[i] > 0u);
        BOOST_TEST(s.commons->state.table(i).stats().opens.value() == of_home[i]);
    }
    BOOST_TEST(s.total(&stats::opens) == 40);
    BOOST_TEST(s.total(&stats::clients) == 1); // however many homes know it
    for (unsigned i = 0; i < 40; ++i)
        BOOST_TEST(a.close((i + 1) % homes, all[i]) == nfsstat4::ok);
    BOOST_TEST(s.total(&stats::opens) == 0);
}

// What the tables tell of delegations comes to the client, whichever home a file has, and by which shard it is wanted.
BOOST_AUTO_TEST_CASE(a_client_is_recalled_by_each_home)
{
    for (std::uint64_t seed = 1; seed <= orders; ++seed) {
        spread_server s(seed);
        spread_client a(s, "a", seed % homes), b(s, "b", 0);
        std::array<bool, homes> seen{};
        for (unsigned i = 0; i < 40 && !std::ranges::all_of(seen, std::identity()); ++i) {
            const std::string name = "f" + std::to_string(i);
            const auto file = a.open(i % homes, name);
            BOOST_TEST_REQUIRE((file.delegation.delegation_type == open_delegation_type4::write));
            const stateid4 held = file.delegation.stateid;
            seen.at(s.home_of(held)) = true;
            BOOST_TEST_REQUIRE(a.close(0, file) == nfsstat4::ok);
            const std::size_t before = a.channel->calls.size();
            BOOST_TEST(b.open((i + 1) % homes, name).status == nfsstat4::delay);
            BOOST_TEST_REQUIRE(a.channel->calls.size() == before + 1);
            BOOST_TEST((a.channel->calls.back().operation == nfs_cb_opnum4::recall));
            BOOST_TEST((a.channel->calls.back().id == held));
            BOOST_TEST(a.call(2, PUTFH4args{file.fh()}, DELEGRETURN4args{held}).status() == nfsstat4::ok);
            BOOST_TEST(b.open((i + 2) % homes, name).status == nfsstat4::ok);
        }
        BOOST_TEST((seen == std::array<bool, homes>{true, true, true}));
        BOOST_TEST(s.total(&stats::recalled_delegations) == 0);
    }
}

// It is asked again as long as its home says that it is out, and no longer.
BOOST_AUTO_TEST_CASE(what_is_back_at_its_home_is_not_recalled_again)
{
    spread_server s;
    spread_client a(s, "a", 1), b(s, "b", 2);
    for (unsigned i = 0; i < 6; ++i) {
        const std::string name = "f" + std::to_string(i);
        const auto file = a.open(0, name);
        BOOST_TEST_REQUIRE((file.delegation.delegation_type == open_delegation_type4::write));
        a.channel->says = nfsstat4::delay;
        std::size_t before = a.channel->calls.size();
        BOOST_TEST(b.open(0, name).status == nfsstat4::delay);
        BOOST_TEST(a.channel->calls.size() > before + 1);
        BOOST_TEST(a.call(2, PUTFH4args{file.fh()}, DELEGRETURN4args{file.delegation.stateid}).status() ==
                   nfsstat4::ok);
        before = a.channel->calls.size();
        s.pass(10s);
        BOOST_TEST(a.channel->calls.size() <= before + 1); // one may be on its way
        a.channel->says = nfsstat4::ok;
        BOOST_TEST(a.close(1, file) == nfsstat4::ok);
    }
}

BOOST_AUTO_TEST_CASE(the_holder_of_a_file_of_each_home_is_asked_for_its_size)
{
    spread_server s;
    spread_client a(s, "a", 1), b(s, "b", 2);
    for (unsigned i = 0; i < 6; ++i) {
        const std::string name = "f" + std::to_string(i);
        const auto file = a.open(i % homes, name);
        BOOST_TEST_REQUIRE((file.delegation.delegation_type == open_delegation_type4::write));
        a.channel->values.present = {attribute::change, attribute::size};
        a.channel->values.change = 1'000'000;
        a.channel->values.size = 77 + i;
        answer4 out = b.call((i + 1) % homes, PUTFH4args{file.fh()}, GETATTR4args{{attribute::size}});
        out.good<PUTFH4res>();
        attributes values;
        BOOST_TEST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
        BOOST_TEST(values.size == 77u + i);
    }
}

BOOST_AUTO_TEST_CASE(a_waiter_of_each_home_hears_that_its_lock_is_free)
{
    spread_server s;
    spread_client a(s, "a", 1), b(s, "b", 2);
    for (unsigned i = 0; i < 6; ++i) {
        const std::string name = "f" + std::to_string(i);
        OPEN4args both = spread_client::opening(name, share4::access_both);
        both.share_access |= share4::want_no_delegation;
        const auto mine = a.open(0, name, both.share_access), theirs = b.open(1, name, both.share_access);
        const auto lock = [&](const spread_client::opened& file, std::string_view owner) {
            LOCK4args args;
            args.locktype = nfs_lock_type4::writew;
            args.length = 10;
            args.locker.new_lock_owner = true;
            args.locker.open_stateid = file.id;
            args.locker.lock_owner.owner = named(owner);
            return args;
        };
        answer4 locked = a.call(i % homes, PUTFH4args{mine.fh()}, lock(mine, "of a"));
        locked.good<PUTFH4res>();
        const stateid4 held = locked.good<LOCK4res>().lock_stateid;
        BOOST_TEST(b.call(0, PUTFH4args{theirs.fh()}, lock(theirs, "of b")).status() == nfsstat4::denied);
        const std::size_t before = b.channel->calls.size();
        LOCKU4args unlock;
        unlock.lock_stateid = held;
        unlock.length = 10;
        BOOST_TEST(a.call(1, PUTFH4args{mine.fh()}, unlock).status() == nfsstat4::ok);
        s.shards.settle();
        BOOST_TEST_REQUIRE(b.channel->calls.size() == before + 1);
        BOOST_TEST((b.channel->calls.back().operation == nfs_cb_opnum4::notify_lock));
        BOOST_TEST(b.channel->calls.back().owner == "of b");
        BOOST_TEST(b.call(0, PUTFH4args{theirs.fh()}, lock(theirs, "of b")).status() == nfsstat4::ok);
    }
}

// --- Minor version 0, whose owners are on the clients' home

// Its stateid is nobody's as soon as its home has let go of it, and the first run's answer is known elsewhere later.
BOOST_AUTO_TEST_CASE(a_repeat_of_close_is_answered_as_the_close_that_runs)
{
    for (std::uint64_t seed = 1; seed <= orders; ++seed) {
        spread_server s(seed);
        spread_client0 c(s);
        for (unsigned home = 0; home < homes; ++home) {
            const auto file = c.ready_at(home);
            const CLOSE4args closing{++c.seqids["opener"], file.id};
            std::vector<spread_server::call> calls;
            for (std::size_t at = 0; at < homes; ++at)
                calls.push_back(s.prepare(at, PUTFH4args{file.fh()}, closing));
            s.serve(calls);
            for (auto& each : calls)
                BOOST_TEST(each.answer().status() == nfsstat4::ok, "seed " << seed << ", home " << home);
        }
        BOOST_TEST(s.total(&stats::opens) == 0);
    }
}

// The one before it can be repeated still when a CLOSE comes to nothing.
BOOST_AUTO_TEST_CASE(a_close_that_fails_leaves_what_was_closed_before_it)
{
    spread_server s;
    spread_client0 c(s);
    const auto first = c.ready_at(1), second = c.ready_at(2);
    const CLOSE4args closing{++c.seqids["opener"], first.id};
    const auto close = [&](const CLOSE4args& args, const spread_client0::opened& file) {
        return s.compound(1, PUTFH4args{file.fh()}, args).status();
    };
    BOOST_TEST_REQUIRE(close(closing, first) == nfsstat4::ok);
    // Of another file: BAD_STATEID, which uses up no number.
    BOOST_TEST(close({c.seqids["opener"] + 1, second.id}, first) == nfsstat4::bad_stateid);
    BOOST_TEST(close({c.seqids["opener"] + 1, first.id}, first) == nfsstat4::bad_stateid);
    BOOST_TEST(close(closing, first) == nfsstat4::ok);
    BOOST_TEST(c.close(0, second) == nfsstat4::ok);
    BOOST_TEST(close(closing, first) == nfsstat4::bad_stateid); // that is too long ago
}

// It asks the homes one after the other, and nothing is locked at one of them behind its question.
BOOST_AUTO_TEST_CASE(a_lock_owner_is_released_beside_a_lock_of_its_own)
{
    unsigned locks_held = 0, released = 0;
    for (std::uint64_t seed = 1; seed <= orders; ++seed) {
        spread_server s(seed);
        spread_client0 c(s);
        const auto first = c.ready_at(1), second = c.ready_at(2);
        // The owner is known, and has nothing locked.
        answer4 once = s.compound(0, PUTFH4args{second.fh()}, c.locking(second, 0, 1));
        once.good<PUTFH4res>();
        const stateid4 by_second = once.good<LOCK4res>().lock_stateid;
        BOOST_TEST_REQUIRE(s.compound(0, PUTFH4args{second.fh()}, c.unlocking(by_second, 2)).status() ==
                           nfsstat4::ok);
        LOCK4args locking = c.locking(first, 5, 3);
        std::vector<spread_server::call> calls;
        // Sooner or later.
        const std::size_t before = seed % 5;
        calls.push_back(s.write(seed % homes, [&](compound_request& out) {
            for (std::size_t i = 0; i < before; ++i)
                out.add(RENEW4args{c.id});
            out.add(PUTFH4args{first.fh()}).add(locking);
        }));
        calls.push_back(s.prepare(seed / homes % homes, RELEASE_LOCKOWNER4args{{c.id, named("locker")}}));
        s.serve(calls);
        answer4 locked = calls[0].answer();
        for (std::size_t i = 0; i < before; ++i)
            locked.good<RENEW4res>();
        locked.good<PUTFH4res>();
        const auto lock = locked.good<LOCK4res>();
        const nfsstat4 release = calls[1].answer().status();
        locks_held += release == nfsstat4::locks_held;
        released += release == nfsstat4::ok;
        BOOST_TEST((release == nfsstat4::ok || release == nfsstat4::locks_held));
        // In either case the lock is there, and its owner goes on by its number.
        BOOST_TEST(s.total(&stats::locks) == 1);
        BOOST_TEST(s.compound(1, PUTFH4args{first.fh()}, c.unlocking(lock.lock_stateid, 4)).status() ==
                       nfsstat4::ok,
                   "seed " << seed);
    }
    BOOST_TEST(locks_held > 0u);
    BOOST_TEST(released > 0u);
}

// What was not confirmed within a lease goes, unless it is confirmed just then: nothing of both.
BOOST_AUTO_TEST_CASE(an_owner_is_confirmed_beside_its_end)
{
    unsigned confirmed = 0, gone = 0;
    for (std::uint64_t seed = 1; seed <= orders; ++seed) {
        spread_server s(seed);
        spread_client0 c(s);
        std::vector<spread_client0::opened> files;
        for (unsigned i = 0; i < 4; ++i)
            files.push_back(c.open(i % homes, "f" + std::to_string(i), "owner" + std::to_string(i)));
        s.pass(60s);
        BOOST_TEST_REQUIRE(s.compound(0, RENEW4args{c.id}).status() == nfsstat4::ok);
        s.pass(60s);
        const time_point now = s.clock.now();
        std::vector<spread_server::call> calls;
        for (std::size_t i = 0; i < files.size(); ++i)
            calls.push_back(
                s.prepare(i % homes, PUTFH4args{files[i].fh()}, OPEN_CONFIRM4args{files[i].id, 2}));
        const auto both = [](spread_server* of, std::vector<spread_server::call>* all,
                             time_point t) -> task<void> {
            scope tasks(of->shards.at(0).reactor());
            tasks.spawn(already_made, of->dispatch_all(all));
            const auto tend = [of, t]() -> task<void> { (void)co_await of->commons->v40.tend(t); };
            co_await tend();
            co_await tasks.join();
        };
        s.shards.run(s.shards.at(0), both(&s, &calls, now));
        for (std::size_t i = 0; i < files.size(); ++i) {
            answer4 out = calls[i].answer();
            if (out.status() != nfsstat4::ok) {
                BOOST_TEST(out.status() == nfsstat4::bad_stateid);
                ++gone;
                continue;
            }
            ++confirmed;
            out.good<PUTFH4res>();
            const stateid4 id = out.good<OPEN_CONFIRM4res>().open_stateid;
            BOOST_TEST(s.compound(2, PUTFH4args{files[i].fh()}, CLOSE4args{3, id}).status() == nfsstat4::ok,
                       "seed " << seed);
        }
        BOOST_TEST(s.total(&stats::opens) == 0, "seed " << seed);
    }
    BOOST_TEST(confirmed > 0u);
    BOOST_TEST(gone > 0u);
}

// It is looked for at all homes, so that it keeps its number.
BOOST_AUTO_TEST_CASE(an_owner_with_an_open_at_any_home_stays)
{
    for (unsigned home = 0; home < homes; ++home) {
        spread_server s;
        spread_client0 c(s);
        const auto file = c.ready_at(home);
        for (int i = 0; i < 4; ++i) {
            s.pass(80s);
            BOOST_TEST_REQUIRE(s.compound(0, RENEW4args{c.id}).status() == nfsstat4::ok);
            s.shards.run(s.shards.at(0), [](spread_server* of) -> task<void> {
                (void)co_await of->commons->v40.tend(of->clock.now());
            }(&s));
        }
        BOOST_TEST(s.commons->v40.owners().size() == 1u);
        BOOST_TEST(c.close(1, file) == nfsstat4::ok);
    }
}

BOOST_AUTO_TEST_CASE(what_is_locked_at_one_home_is_unlocked_there)
{
    spread_server s;
    spread_client0 c(s);
    for (unsigned home = 0; home < homes; ++home) {
        const auto file = c.ready_at(home);
        const std::string text = "text";
        BOOST_TEST(
            s.compound(1, PUTFH4args{file.fh()}, WRITE4args{file.id, 0, stable_how4::unstable, named(text)})
                .status() == nfsstat4::ok);
        answer4 locked = s.compound(2, PUTFH4args{file.fh()}, c.locking(file, 0, 1));
        locked.good<PUTFH4res>();
        const stateid4 lock = locked.good<LOCK4res>().lock_stateid;
        LOCKT4args test;
        test.locktype = nfs_lock_type4::write;
        test.length = 10;
        test.owner = {c.id, named("another")};
        BOOST_TEST(s.compound(0, PUTFH4args{file.fh()}, test).status() == nfsstat4::denied);
        BOOST_TEST(s.compound(0, RELEASE_LOCKOWNER4args{{c.id, named("locker")}}).status() ==
                   nfsstat4::locks_held);
        BOOST_TEST(s.compound(0, PUTFH4args{file.fh()}, c.unlocking(lock, 2)).status() == nfsstat4::ok);
        BOOST_TEST(s.compound(0, PUTFH4args{file.fh()}, test).status() == nfsstat4::ok);
        BOOST_TEST(s.compound(1, RELEASE_LOCKOWNER4args{{c.id, named("locker")}}).status() == nfsstat4::ok);
        BOOST_TEST(s.total(&stats::lock_states) == 0);
        BOOST_TEST(c.close(2, file) == nfsstat4::ok);
    }
}

BOOST_AUTO_TEST_SUITE_END()
