// SPDX-License-Identifier: Apache-2.0
// A server of version 4.1 that starts again, over its database and the same files: what clients take back, and who waits meanwhile.
#include "../plugins/temporary_directory.hpp"
#include "busy_threads.hpp"
#include "leasing_files.hpp"
#include "nfs4_called_client.hpp"

#include <verbena/core/task/sleep.hpp>
#include <verbena/plugins/posixfs.hpp>
#include <verbena/protocols/files/recovery_database.hpp>

#include <filesystem>

BOOST_AUTO_TEST_SUITE(nfs4_recovery_test)

using namespace verbena;
using namespace verbena::test;
using files::recovery_change;

namespace {

/// The database, at once: a virtual clock doesn't wait for a pool.
class direct_store final : public files::recovery_store {
public:
    task<result<void>> add(std::string_view key, files::share keeps_out) override
    {
        return write(recovery_change(recovery_change::kind::add, key, keeps_out));
    }
    task<result<void>> remove(std::string_view key) override
    {
        return write(recovery_change(recovery_change::kind::remove, key));
    }
    task<result<void>> end_grace() override
    {
        return write(recovery_change(recovery_change::kind::end_grace));
    }

    std::optional<files::recovery_database> database;
    bool is_full = false; ///< the disk

private:
    task<result<void>> write(recovery_change c)
    {
        if (is_full)
            co_return error(std::errc::no_space_on_device);
        const recovery_change* const one[] = {&c};
        co_return database->apply(one);
    }
};

struct recovery_fixture : called_fixture {
    explicit recovery_fixture(storage::file_backend* exported = nullptr)
    {
        if (exported != nullptr)
            options[0].backend = exported;
        options[0].local_writers = false; // who can be called gets delegations
        store = &direct;
        start_again();
    }
    ~recovery_fixture() { stop(); }
    /// Ends as by a kill, and starts.
    void start_again()
    {
        stop();
        direct.database.reset();
        direct.database.emplace(folder.path().string() + "/recovery.sqlite");
        begun = direct.database->begin(90s, 7);
        start();
        serving.emplace(*shard);
        serving->spawn([this] { return commons->state.clients().tend(); });
        serving->spawn([this] { return commons->state.table().tend(); });
        serving->spawn([this] { return commons->tend(); });
        serving->spawn([this] { return commons->callbacks.run(); });
        turn();
    }
    void stop()
    {
        if (serving) {
            serving->request_stop();
            const auto end = [this]() -> task<void> { co_await serving->join(); };
            run_until_complete(*shard, end());
            serving.reset();
        }
        program.reset();
        commons.reset();
    }
    void turn()
    {
        for (int i = 0; i < 20; ++i)
            shard->turn();
    }
    void pass(duration d)
    {
        clock.advance(d);
        turn();
    }
    std::int64_t grace() const { return commons->state.stats().grace.value(); }

    suite::temporary_directory folder;
    direct_store direct;
    std::optional<scope> serving;
};

/// One that takes back what it had.
struct reclaiming : client4 {
    reclaiming(nfs4_fixture& f, std::string name) : client4(f, name), f_(f), owner_(std::move(name)) {}

    /// A session, before RECLAIM_COMPLETE.
    void come_back()
    {
        answer4 known = f_.compound(exchange());
        const auto exchanged = known.good<EXCHANGE_ID4res>();
        BOOST_TEST((exchanged.flags & exchgid4::confirmed_r) == 0u);
        id = exchanged.clientid;
        create_sequence = exchanged.sequenceid;
        open_session();
    }
    nfsstat4 complete() { return call(reclaimed()).status(); }
    opened open_again(const opened& before, std::uint32_t access = share4::access_both,
                      std::uint32_t deny = share4::deny_none,
                      open_delegation_type4 had = open_delegation_type4::none)
    {
        OPEN4args args = opening("", access, deny);
        args.claim.claim = open_claim_type4::previous;
        args.claim.delegate_type = had;
        answer4 out = call(PUTFH4args{handle_of(before)}, args);
        opened made;
        if (out.status() == nfsstat4::ok) {
            out.good<PUTFH4res>();
            made.res = out.good<OPEN4res>();
            made.id = made.res.stateid;
            made.handle = before.handle;
        }
        made.status = out.status();
        return made;
    }
    nfsstat4 lock(const opened& file, bool again = false, std::uint64_t offset = 0)
    {
        LOCK4args args;
        args.locktype = nfs_lock_type4::write;
        args.reclaim = again;
        args.offset = offset;
        args.length = 10;
        args.locker.new_lock_owner = true;
        args.locker.open_stateid = file.id;
        args.locker.lock_owner.owner = std::as_bytes(std::span(owner_));
        return call(PUTFH4args{handle_of(file)}, args).status();
    }
    std::uint32_t flags()
    {
        answer4 out = f_.compound(sequence());
        return out.good<SEQUENCE4res>().status_flags;
    }

private:
    nfs4_fixture& f_;
    std::string owner_;
};

/// Files of a folder. At each start posixfs is another one, where the export finds it.
struct files_on_disk {
    struct passing final : storage::forwarding_backend {
        using forwarding_backend::forwarding_backend;
    };
    files_on_disk()
    {
        std::filesystem::permissions(exported.path(), std::filesystem::perms::all);
        open_files();
    }
    void open_files()
    {
        between.reset();
        on_disk.reset();
        posixfs::posixfs_options o;
        o.root = exported.path();
        o.leases = false;
        auto made = posixfs::open_posixfs(o, work);
        BOOST_REQUIRE_MESSAGE(made, (made ? std::string() : made.error().message()));
        on_disk = std::move(*made);
        between.emplace(*on_disk);
    }
    suite::temporary_directory exported;
    blocking_pool work{2};
    std::unique_ptr<storage::file_backend> on_disk;
    std::optional<passing> between;
};

struct recovery_on_disk : files_on_disk, recovery_fixture {
    recovery_on_disk() : recovery_fixture(&*between) { shard->add(threads); }
    ~recovery_on_disk()
    {
        stop();
        between.reset();
        on_disk.reset();
        work.finish();
        threads.unlink();
    }
    void crash()
    {
        stop();
        open_files();
        start_again();
    }
    busy_threads threads;
};

} // namespace

// Who has seen stateids of one start can't guess those of the next: the tag of a place is another one.
BOOST_FIXTURE_TEST_CASE(a_start_gives_out_no_stateid_that_can_be_known_from_the_last_one, recovery_fixture)
{
    const auto tag = [](const reclaiming::opened& o) {
        std::array<std::byte, 4> out;
        std::copy_n(o.id.other.begin() + 8, 4, out.begin());
        return out;
    };
    reclaiming a(*this, "a");
    a.connect();
    const reclaiming::opened before = a.open(a.creating("f"));
    BOOST_REQUIRE(before.status == nfsstat4::ok);
    start_again();
    a.come_back();
    const reclaiming::opened again = a.open_again(before);
    BOOST_REQUIRE(again.status == nfsstat4::ok);
    // The first state of its start, as the other one was.
    BOOST_TEST(
        std::equal(again.id.other.begin() + 4, again.id.other.begin() + 8, before.id.other.begin() + 4));
    BOOST_TEST((tag(again) != tag(before)));
}

// A crash closes a file that has no name any more, and nothing is left of it. Its client hears so when it takes the file
// back, and goes on with the rest.
BOOST_FIXTURE_TEST_CASE(what_lost_its_name_is_lost_in_a_crash_and_nothing_else, recovery_on_disk)
{
    reclaiming a(*this, "a"), b(*this, "b");
    a.connect();
    b.connect();
    const auto gone = a.open(a.creating("gone"));
    const auto stays = a.open(a.creating("stays"));
    BOOST_TEST(a.write(gone, "of no name") == nfsstat4::ok);
    BOOST_TEST(a.write(stays, "named") == nfsstat4::ok);
    BOOST_TEST(a.lock(gone) == nfsstat4::ok);
    BOOST_TEST(a.lock(stays) == nfsstat4::ok);
    BOOST_TEST(b.call(PUTROOTFH4args(), LOOKUP4args{"export"}, REMOVE4args{"gone"}).status() == nfsstat4::ok);
    BOOST_TEST(a.read(gone, gone.id) == "of no name");
    crash();
    BOOST_TEST(grace() == 1);
    a.come_back();
    BOOST_TEST(a.open_again(gone).status == nfsstat4::stale);
    const auto again = a.open_again(stays);
    BOOST_TEST_REQUIRE(again.status == nfsstat4::ok);
    BOOST_TEST(a.lock(again, true) == nfsstat4::ok);
    BOOST_TEST(a.complete() == nfsstat4::ok);
    b.come_back();
    BOOST_TEST(b.complete() == nfsstat4::ok);
    BOOST_TEST(grace() == 0);
    BOOST_TEST(a.read(again, again.id) == "named");
    const auto anew = b.open(b.creating("gone"));
    BOOST_TEST_REQUIRE(anew.status == nfsstat4::ok);
    BOOST_TEST(b.read(anew, anew.id) == "");
    BOOST_TEST(commons->state.stats().opens.value() == 2);
    BOOST_TEST(commons->state.stats().files.value() == 2);
    BOOST_TEST(a.call(PUTFH4args{client4::handle_of(again)}, CLOSE4args{0, again.id}).status() ==
               nfsstat4::ok);
    BOOST_TEST(b.call(PUTFH4args{client4::handle_of(anew)}, CLOSE4args{0, anew.id}).status() == nfsstat4::ok);
    BOOST_TEST(commons->state.stats().files.value() == 0);
    BOOST_TEST(posixfs::counters_of(*on_disk).lost == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_client_learns_of_the_restart, recovery_fixture)
{
    reclaiming a(*this, "a");
    answer4 before = compound(a.exchange());
    const auto first = before.good<EXCHANGE_ID4res>();
    a.connect();
    BOOST_TEST(grace() == 0); // a first start
    const auto file = a.open(a.creating("f"));
    BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
    const clientid4 old = a.id;
    start_again();
    BOOST_TEST(grace() == 1);
    BOOST_TEST(commons->state.stats().to_reclaim.value() == 1);
    BOOST_TEST(a.call(PUTROOTFH4args()).status() == nfsstat4::badsession);
    BOOST_TEST(compound(client4::session_of(old, a.create_sequence)).status() == nfsstat4::stale_clientid);
    answer4 after = compound(a.exchange());
    const auto second = after.good<EXCHANGE_ID4res>();
    BOOST_TEST(second.clientid != old);
    // Another scope, and Linux would open anew what it may take back.
    BOOST_TEST(std::ranges::equal(first.server_scope, second.server_scope));
    BOOST_TEST(std::ranges::equal(first.server_owner.major_id, second.server_owner.major_id));
    a.come_back();
    BOOST_TEST(a.flags() == seq4_status::restart_reclaim_needed);
    // A stateid of before is none.
    BOOST_TEST(a.write(file, "x") == nfsstat4::bad_stateid);
    // The handle is what it was.
    BOOST_TEST(a.open_again(file).status == nfsstat4::ok);
    BOOST_TEST(a.flags() == seq4_status::restart_reclaim_needed);
    BOOST_TEST(a.complete() == nfsstat4::ok);
    BOOST_TEST(a.flags() == 0u);
    BOOST_TEST(grace() == 0);
}

BOOST_FIXTURE_TEST_CASE(delegations_are_taken_back, recovery_fixture)
{
    using deleg = open_delegation_type4;
    reclaiming a(*this, "a"), b(*this, "b");
    connect(a);
    b.connect();
    const auto made = b.open(b.creating("r"));
    BOOST_TEST(b.call(PUTFH4args{client4::handle_of(made)}, CLOSE4args{0, made.id}).status() == nfsstat4::ok);
    const auto written = a.open(a.creating("w"));
    const auto read = a.open(a.opening("r", share4::access_read));
    BOOST_REQUIRE(written.res.delegation.delegation_type == deleg::write);
    BOOST_REQUIRE(read.res.delegation.delegation_type == deleg::read);
    const auto plain = a.open(a.creating("plain"));
    start_again();

    channel->last.clear(); // of another session
    answer4 known = compound(a.exchange());
    const auto exchanged = known.good<EXCHANGE_ID4res>();
    a.id = exchanged.clientid;
    a.create_sequence = exchanged.sequenceid;
    open_session(a);
    const auto written_again =
        a.open_again(written, share4::access_both, share4::deny_none, deleg::write).res.delegation;
    BOOST_CHECK(written_again.delegation_type == deleg::write);
    BOOST_TEST(!written_again.recall);
    const auto read_again =
        a.open_again(read, share4::access_read, share4::deny_none, deleg::read).res.delegation;
    BOOST_CHECK(read_again.delegation_type == deleg::read);
    BOOST_TEST(!read_again.recall);
    // Who had none gets none.
    BOOST_CHECK(a.open_again(plain).res.delegation.delegation_type == deleg::none);
    BOOST_TEST(a.complete() == nfsstat4::ok);
    b.come_back();
    BOOST_TEST(b.complete() == nfsstat4::ok);
    BOOST_TEST(grace() == 0);
    BOOST_TEST(commons->state.stats().write_delegations.value() == 1);
    BOOST_TEST(commons->state.stats().read_delegations.value() == 1);
    // They are recalled as others are, also for attributes: what was changed before the restart nobody knows.
    const GETATTR4args size{{attribute::size}};
    const auto looking = begin(b.sequence(1), PUTFH4args{client4::handle_of(written)}, size);
    BOOST_TEST_REQUIRE(channel->calls.size() == 1u);
    BOOST_CHECK(channel->calls[0].operation == nfs_cb_opnum4::recall);
    BOOST_CHECK(channel->calls[0].id.other == written_again.stateid.other);
    BOOST_TEST(
        a.call(PUTFH4args{client4::handle_of(written)}, DELEGRETURN4args{written_again.stateid}).status() ==
        nfsstat4::ok);
    turn();
    BOOST_TEST_REQUIRE(looking->is_done);
    BOOST_TEST(answer_of(*looking).status() == nfsstat4::ok);
}

// It keeps it until it has heard that it has to give it back.
BOOST_FIXTURE_TEST_CASE(who_can_t_be_called_takes_back_a_delegation_that_is_recalled, recovery_fixture)
{
    reclaiming a(*this, "a");
    connect(a);
    const auto file = a.open(a.creating("f"));
    BOOST_REQUIRE(file.res.delegation.delegation_type == open_delegation_type4::write);
    start_again();
    a.come_back(); // without a back channel
    const auto again =
        a.open_again(file, share4::access_both, share4::deny_none, open_delegation_type4::write);
    BOOST_CHECK(again.res.delegation.delegation_type == open_delegation_type4::write);
    BOOST_TEST(again.res.delegation.recall);
    BOOST_TEST(a.call(PUTFH4args{client4::handle_of(file)}, DELEGRETURN4args{again.res.delegation.stateid})
                   .status() == nfsstat4::ok);
}

// Its export had none before the restart that wrote by itself.
BOOST_FIXTURE_TEST_CASE(where_others_may_write_a_delegation_is_taken_back_and_recalled, recovery_fixture)
{
    reclaiming a(*this, "a");
    connect(a);
    // Of another export.
    BOOST_REQUIRE(a.open(a.creating("held")).res.delegation.delegation_type == open_delegation_type4::write);
    answer4 made =
        a.call(PUTROOTFH4args(), LOOKUP4args{"deep"}, LOOKUP4args{"other"}, a.creating("f"), GETFH4args());
    made.good<PUTROOTFH4res>();
    made.good<LOOKUP4res>();
    made.good<LOOKUP4res>();
    BOOST_CHECK(made.good<OPEN4res>().delegation.delegation_type == open_delegation_type4::none);
    const auto handle = made.good<GETFH4res>();
    client4::opened file;
    file.handle.assign(handle.object.begin(), handle.object.end());
    start_again();
    channel->last.clear();
    answer4 known = compound(a.exchange());
    const auto exchanged = known.good<EXCHANGE_ID4res>();
    a.id = exchanged.clientid;
    a.create_sequence = exchanged.sequenceid;
    open_session(a);
    const auto again =
        a.open_again(file, share4::access_both, share4::deny_none, open_delegation_type4::write);
    BOOST_CHECK(again.res.delegation.delegation_type == open_delegation_type4::write);
    BOOST_TEST(again.res.delegation.recall);
}

namespace {

struct leased_fixture : recovery_fixture {
    leased_fixture()
    {
        options[0].local_writers = true;
        options[0].backend = &leasing;
        exports = nfs::export_table();
        start_again();
    }
    ~leased_fixture() { stop(); } // with the leases
    leasing_files leasing{*files};
};

} // namespace

// Local processes are made to wait for it again. Where they can't be, or may have changed the file while the server was away, it is recalled.
BOOST_FIXTURE_TEST_CASE(a_delegation_under_a_lease_is_taken_back_with_its_lease, leased_fixture)
{
    const struct {
        const char* client;
        int refusal;
        std::int64_t unchanged; // since then, in seconds since 1970
        bool is_kept;
    } rows[] = {{"a", 0, INT64_MAX, true}, {"b", EAGAIN, INT64_MAX, false}, {"c", 0, 1, false}};
    for (const auto& row : rows) {
        reclaiming a(*this, row.client);
        leasing.refuses_with = 0;
        channel->last.clear();
        channel->calls.clear();
        connect(a);
        const auto made = a.open(a.creating("f"));
        BOOST_REQUIRE(made.status == nfsstat4::ok);
        BOOST_TEST(a.call(PUTFH4args{client4::handle_of(made)}, CLOSE4args{0, made.id}).status() ==
                   nfsstat4::ok);
        const auto file = a.open(a.opening("f", share4::access_read));
        BOOST_REQUIRE(file.res.delegation.delegation_type == open_delegation_type4::read);
        BOOST_TEST(leasing.out == 1);
        reclaimed_unchanged = row.unchanged;
        start_again();
        BOOST_TEST(leasing.out == 0);
        leasing.refuses_with = row.refusal;
        channel->last.clear();
        answer4 known = compound(a.exchange());
        const auto exchanged = known.good<EXCHANGE_ID4res>();
        a.id = exchanged.clientid;
        a.create_sequence = exchanged.sequenceid;
        open_session(a);
        const auto again =
            a.open_again(file, share4::access_read, share4::deny_none, open_delegation_type4::read);
        BOOST_CHECK(again.res.delegation.delegation_type == open_delegation_type4::read);
        BOOST_TEST(again.res.delegation.recall == !row.is_kept);
        BOOST_TEST(leasing.out == (row.refusal == 0));
        turn();
        BOOST_TEST(channel->calls.size() == (row.is_kept ? 0u : 1u));
        BOOST_TEST(a.complete() == nfsstat4::ok);
        BOOST_TEST(
            a.call(PUTFH4args{client4::handle_of(file)}, DELEGRETURN4args{again.res.delegation.stateid})
                .status() == nfsstat4::ok);
        BOOST_TEST(leasing.out == 0);
        BOOST_TEST(a.call(PUTFH4args{client4::handle_of(file)}, CLOSE4args{0, again.id}).status() ==
                   nfsstat4::ok);
        pass(91s); // for those of other rows, who don't come back
    }
}

BOOST_FIXTURE_TEST_CASE(opens_and_locks_are_taken_back_while_others_wait, recovery_fixture)
{
    reclaiming a(*this, "a"), b(*this, "b"), c(*this, "c");
    a.connect();
    b.connect();
    const auto of_a = a.open(a.creating("f"));
    const auto of_b = b.open(b.creating("g"));
    BOOST_TEST(a.lock(of_a) == nfsstat4::ok);
    BOOST_TEST(a.write(of_a, "kept") == nfsstat4::ok);
    // Each has denied others something, so that what they have open may do so, too.
    for (auto* who : {&a, &b}) {
        OPEN4args denying = who->creating(who == &a ? "denied by a" : "denied by b");
        denying.share_deny = share4::deny_both;
        BOOST_TEST(who->open(denying).status == nfsstat4::ok);
    }
    start_again();

    // One who had nothing.
    c.come_back();
    BOOST_TEST(c.flags() == 0u);
    BOOST_TEST(c.open_again(of_a).status == nfsstat4::reclaim_bad);
    BOOST_TEST(c.complete() == nfsstat4::ok);
    BOOST_TEST(c.open(c.opening("f")).status == nfsstat4::grace);
    BOOST_TEST(c.open(c.creating("new")).status == nfsstat4::grace);
    BOOST_TEST(c.call(PUTROOTFH4args(), LOOKUP4args{"export"}, LOOKUP4args{"new"}).status() ==
               nfsstat4::noent); // nothing was made
    BOOST_TEST(c.call(PUTROOTFH4args(), LOOKUP4args{"export"}, REMOVE4args{"f"}).status() == nfsstat4::grace);
    BOOST_TEST(
        c.call(PUTROOTFH4args(), LOOKUP4args{"export"}, SAVEFH4args(), RENAME4args{"f", "h"}).status() ==
        nfsstat4::grace);
    BOOST_TEST(c.read(of_a, stateid4()) == "NFS4ERR_GRACE");
    BOOST_TEST(c.write(of_a, "lost", stateid4()) == nfsstat4::grace);
    BOOST_TEST(c.call(PUTROOTFH4args(), GETATTR4args{}).status() == nfsstat4::ok);

    a.come_back();
    const auto back = a.open_again(of_a);
    BOOST_TEST_REQUIRE(back.status == nfsstat4::ok);
    BOOST_TEST((back.res.delegation.delegation_type == open_delegation_type4::none));
    BOOST_TEST(a.read(back, back.id) == "kept");
    BOOST_TEST(a.lock(back) == nfsstat4::grace);
    BOOST_TEST(a.lock(back, true) == nfsstat4::ok);
    RECLAIM_COMPLETE4args one;
    one.one_fs = true;
    BOOST_TEST(a.call(PUTROOTFH4args(), one).status() == nfsstat4::ok);
    BOOST_TEST(a.flags() == seq4_status::restart_reclaim_needed); // that said nothing of the rest
    BOOST_TEST(a.complete() == nfsstat4::ok);
    BOOST_TEST(a.flags() == 0u);
    BOOST_TEST(a.complete() == nfsstat4::complete_already);
    BOOST_TEST(a.open_again(of_a).status == nfsstat4::no_grace);
    BOOST_TEST(a.open(a.opening("f")).status == nfsstat4::grace); // b is not done
    BOOST_TEST(commons->state.stats().to_reclaim.value() == 1);

    b.come_back();
    // It never had these.
    BOOST_TEST(b.open_again(of_a, share4::access_both, share4::deny_both).status ==
               nfsstat4::reclaim_conflict);
    const auto wrong = b.open_again(of_a);
    BOOST_TEST(wrong.status == nfsstat4::ok);
    BOOST_TEST(b.lock(wrong, true) == nfsstat4::reclaim_conflict);
    BOOST_TEST(b.open_again(of_b).status == nfsstat4::ok);
    BOOST_TEST(b.complete() == nfsstat4::ok);

    // All are done.
    BOOST_TEST(grace() == 0);
    BOOST_TEST(commons->state.stats().to_reclaim.value() == 0);
    const auto opened = c.open(c.opening("f"));
    BOOST_TEST_REQUIRE(opened.status == nfsstat4::ok);
    BOOST_TEST(c.lock(opened) == nfsstat4::denied);
    BOOST_TEST(c.lock(opened, true) == nfsstat4::no_grace);
    BOOST_TEST(c.lock(opened, false, 10) == nfsstat4::ok);
    BOOST_TEST(c.call(PUTROOTFH4args(), LOOKUP4args{"export"}, REMOVE4args{"g"}).status() == nfsstat4::ok);
    const auto& stats = commons->state.stats();
    BOOST_TEST(stats.reclaims.value() == 4u);
    BOOST_TEST(stats.bad_reclaims.value() == 1u);
    BOOST_TEST(stats.late_reclaims.value() == 2u);
    BOOST_TEST(stats.conflicting_reclaims.value() == 2u);
}

BOOST_FIXTURE_TEST_CASE(a_delegation_of_before_is_none, recovery_fixture)
{
    reclaiming a(*this, "a");
    a.connect();
    const auto file = a.open(a.creating("f"));
    BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
    start_again();
    a.come_back();
    OPEN4args under = a.opening("");
    under.claim.claim = open_claim_type4::deleg_cur_fh;
    under.claim.delegate_stateid = file.id;
    BOOST_TEST(a.call(PUTFH4args{reclaiming::handle_of(file)}, under).status() == nfsstat4::bad_stateid);
    BOOST_TEST(a.open_again(file).status == nfsstat4::ok);
    BOOST_TEST(commons->state.stats().write_delegations.value() == 0);
    BOOST_TEST(a.complete() == nfsstat4::ok);
    BOOST_TEST(grace() == 0);
}

BOOST_FIXTURE_TEST_CASE(grace_ends_by_time_and_who_missed_it_has_lost, recovery_fixture)
{
    reclaiming a(*this, "a"), b(*this, "b");
    a.connect();
    b.connect();
    const auto of_a = a.open(a.creating("f"));
    const auto of_b = b.open(b.creating("g"));
    start_again();
    pass(50s);
    b.come_back();
    BOOST_TEST(b.open_again(of_b).status == nfsstat4::ok);
    BOOST_TEST(b.complete() == nfsstat4::ok);
    pass(30s);
    BOOST_TEST(grace() == 1);
    BOOST_TEST(b.open(b.opening("f")).status == nfsstat4::grace);
    pass(15s);
    BOOST_TEST(grace() == 0);
    BOOST_TEST(b.open(b.opening("f")).status == nfsstat4::ok);
    // Not after another start, either: the second edge condition of 8881 8.4.3.
    start_again();
    a.come_back();
    BOOST_TEST(a.flags() == 0u);
    BOOST_TEST(a.open_again(of_a).status == nfsstat4::reclaim_bad);
    b.come_back();
    BOOST_TEST(b.open_again(of_b).status == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(grace_ends_when_the_last_one_says_goodbye, recovery_fixture)
{
    reclaiming a(*this, "a");
    a.connect();
    start_again();
    BOOST_TEST(grace() == 1);
    a.come_back();
    turn();
    BOOST_TEST(grace() == 1);
    BOOST_TEST(compound(DESTROY_SESSION4args{a.session}).status() == nfsstat4::ok);
    BOOST_TEST(compound(DESTROY_CLIENTID4args{a.id}).status() == nfsstat4::ok);
    turn();
    BOOST_TEST(grace() == 0);
}

BOOST_FIXTURE_TEST_CASE(a_restart_within_grace_begins_it_anew, recovery_fixture)
{
    reclaiming a(*this, "a"), b(*this, "b");
    a.connect();
    b.connect();
    const auto of_a = a.open(a.creating("f"));
    const auto of_b = b.open(b.creating("g"));
    start_again();
    a.come_back();
    BOOST_TEST(a.open_again(of_a).status == nfsstat4::ok);
    BOOST_TEST(a.complete() == nfsstat4::ok);
    pass(80s);
    start_again();
    pass(80s);
    a.come_back();
    b.come_back();
    BOOST_TEST(a.open_again(of_a).status == nfsstat4::ok);
    BOOST_TEST(b.open_again(of_b).status == nfsstat4::ok);
    BOOST_TEST(a.complete() == nfsstat4::ok);
    BOOST_TEST(b.complete() == nfsstat4::ok);
    BOOST_TEST(grace() == 0);
}

// A server that dies behind the record and in front of the reply has promised nothing, and keeps it all the same.
BOOST_FIXTURE_TEST_CASE(a_record_whose_reply_was_lost_counts, recovery_fixture)
{
    reclaiming a(*this, "a");
    a.connect();
    const auto file = a.open(a.creating("f"));
    start_again();
    a.come_back();
    BOOST_TEST(a.open_again(file).status == nfsstat4::ok);
    BOOST_TEST(a.complete() == nfsstat4::ok); // nobody hears of it
    start_again();
    a.come_back();
    BOOST_TEST(a.open_again(file).status == nfsstat4::ok);
    BOOST_TEST(a.complete() == nfsstat4::ok);
}

BOOST_FIXTURE_TEST_CASE(on_a_full_disk_clients_wait_and_nothing_is_lost, recovery_fixture)
{
    reclaiming a(*this, "a"), b(*this, "b");
    direct.is_full = true;
    a.come_back();
    BOOST_TEST(a.complete() == nfsstat4::delay);
    BOOST_TEST(a.open(a.creating("f")).status == nfsstat4::grace); // it is not promised, so it has nothing
    direct.is_full = false;
    BOOST_TEST(a.complete() == nfsstat4::ok);
    const auto file = a.open(a.creating("f"));
    BOOST_TEST(a.lock(file) == nfsstat4::ok);
    b.connect();
    BOOST_TEST(commons->state.stats().store_failures.value() == 1u);

    // Whoever fell silent gives way only when it is written that it did (8881 8.4.3, the first edge condition).
    pass(60s);
    BOOST_TEST(b.call(PUTROOTFH4args()).status() == nfsstat4::ok);
    pass(60s);
    const auto other = b.open(b.opening("f"));
    BOOST_TEST_REQUIRE(other.status == nfsstat4::ok);
    direct.is_full = true;
    BOOST_TEST(b.lock(other) == nfsstat4::delay);
    BOOST_TEST(a.write(file, "still here") == nfsstat4::ok); // so it has it still
    BOOST_TEST(b.lock(other) == nfsstat4::denied);
    pass(60s);
    BOOST_TEST(b.call(PUTROOTFH4args()).status() == nfsstat4::ok);
    pass(60s);
    direct.is_full = false;
    BOOST_TEST(b.lock(other) == nfsstat4::ok);
    start_again();
    a.come_back();
    BOOST_TEST(a.open_again(file).status == nfsstat4::reclaim_bad);
    b.come_back();
    const auto back = b.open_again(file);
    BOOST_TEST(b.lock(back, true) == nfsstat4::ok);
}

// After a restart reads and writes of others wait for those alone of whom that is written.
BOOST_FIXTURE_TEST_CASE(what_keeps_others_out_is_on_the_disk_before_it_is_granted, recovery_fixture)
{
    using deleg = open_delegation_type4;
    reclaiming a(*this, "a"), b(*this, "b"), c(*this, "c");
    a.connect();
    b.connect();
    connect(c);
    const auto file = a.open(a.creating("f"));
    BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
    for (const char* name : {"g", "h"}) {
        const auto made = a.open(a.creating(name));
        BOOST_TEST(a.call(PUTFH4args{client4::handle_of(made)}, CLOSE4args{0, made.id}).status() ==
                   nfsstat4::ok);
    }
    direct.is_full = true;
    const OPEN4args denying = b.opening("g", share4::access_read, share4::deny_write);
    BOOST_TEST(b.open(denying).status == nfsstat4::delay);
    OPEN4args making = b.creating("made");
    making.share_deny = share4::deny_write;
    BOOST_TEST(b.open(making).status == nfsstat4::delay);
    BOOST_TEST(b.open(b.opening("made")).status == nfsstat4::noent); // a GUARDED one would find its own
    // An open is granted without the delegation.
    const auto without = c.open(c.opening("h", share4::access_read));
    BOOST_TEST(without.status == nfsstat4::ok);
    BOOST_CHECK(without.res.delegation.delegation_type != deleg::read);
    BOOST_TEST(c.call(PUTFH4args{client4::handle_of(without)}, CLOSE4args{0, without.id}).status() ==
               nfsstat4::ok);
    direct.is_full = false;
    BOOST_TEST(b.open(denying).status == nfsstat4::ok);
    const auto with = c.open(c.opening("h", share4::access_read));
    BOOST_CHECK(with.res.delegation.delegation_type == deleg::read);
    start_again();
    const std::vector<files::reclaimer> expected = {
        {"a", files::share::none}, {"b", files::share::write}, {"c", files::share::write}};
    BOOST_TEST((begun.reclaimers == expected));
}

BOOST_FIXTURE_TEST_CASE(grace_ends_only_when_that_is_written, recovery_fixture)
{
    reclaiming a(*this, "a"), b(*this, "b");
    a.connect();
    const auto file = a.open(a.creating("f"));
    start_again();
    b.connect();
    direct.is_full = true;
    pass(100s);
    BOOST_TEST(grace() != 0);
    BOOST_TEST(b.call(PUTROOTFH4args()).status() == nfsstat4::badsession); // its lease went meanwhile
    direct.is_full = false;
    pass(2s);
    BOOST_TEST(grace() == 0);
    b.connect();
    BOOST_TEST(b.open(b.opening("f")).status == nfsstat4::ok);
    start_again();
    a.come_back();
    BOOST_TEST(a.open_again(file).status == nfsstat4::reclaim_bad);
}

BOOST_FIXTURE_TEST_CASE(a_client_that_could_not_be_forgotten_is_in_nobody_s_place, recovery_fixture)
{
    reclaiming a(*this, "a");
    a.connect();
    // It has nothing, and goes with its lease, but its record can't be removed yet.
    direct.is_full = true;
    pass(200s);
    BOOST_TEST(commons->sessions.clients() == 0u);
    BOOST_TEST(commons->state.stats().clients.value() == 1);
    // Another user takes the name.
    user->uid = 2000;
    answer4 known = compound(a.exchange());
    const auto exchanged = known.good<EXCHANGE_ID4res>();
    answer4 refused = compound(client4::session_of(exchanged.clientid, exchanged.sequenceid));
    BOOST_TEST(refused.status() == nfsstat4::delay);
    direct.is_full = false;
    a.id = exchanged.clientid;
    a.create_sequence = exchanged.sequenceid;
    a.open_session();
    BOOST_TEST(a.complete() == nfsstat4::ok);
    pass(100s);
    BOOST_TEST(commons->state.stats().clients.value() <= 1);
    // What was forgotten late took nothing of the new one's.
    start_again();
    BOOST_TEST(begun.reclaimers.size() <= 1u);
}

BOOST_AUTO_TEST_SUITE_END()
