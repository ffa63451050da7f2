// SPDX-License-Identifier: Apache-2.0
// Delegations of what processes of this host may change: under a lease, whose order this is.
#include "leasing_files.hpp"
#include "nfs4_version3.hpp"

#include <random>

BOOST_AUTO_TEST_SUITE(nfs4_leases_test)

using namespace verbena;
using namespace verbena::test;
using deleg = open_delegation_type4;
using storage::no_lease;

namespace {

struct fixture : version3_fixture {
    fixture()
    {
        options[0].backend = &leasing;
        first_way = channel;
        second_way = std::make_shared<called_client>(pool);
    }
    ~fixture()
    {
        tasks.request_stop();
        leasing.go.set();
        while (tasks.live() != 0)
            shard->turn();
        program.reset();
        commons.reset(); // with the leases, which the back end outlives
    }
    void begin()
    {
        connect(first);
        way = second_way;
        connect(second);
        add_version3();
        tend();
    }
    static OPEN4args wanting(OPEN4args args, std::uint32_t want)
    {
        args.share_access |= want;
        return args;
    }
    static nfsstat4 give_back(client4& c, const client4::opened& file)
    {
        return c.call(PUTFH4args{client4::handle_of(file)}, DELEGRETURN4args{file.res.delegation.stateid})
            .status();
    }
    static void close(client4& c, const client4::opened& file)
    {
        BOOST_TEST(c.call(PUTFH4args{client4::handle_of(file)}, CLOSE4args{0, file.id}).status() ==
                   nfsstat4::ok);
    }
    void make(std::string_view name)
    {
        const auto made = second.open(wanting(second.creating(name), share4::want_no_delegation));
        BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
        close(second, made);
    }
    /// The first client has a read delegation, and nothing else of the file.
    client4::opened delegated(std::string_view name)
    {
        make(name);
        const auto file = first.open(first.opening(name, share4::access_read));
        BOOST_TEST_REQUIRE(file.res.delegation.delegation_type == deleg::read);
        close(first, file);
        return file;
    }
    const files::state_stats& stats() { return commons->state.table().stats(); }
    std::uint64_t refusals(no_lease why) { return stats().lease_refusals[std::size_t(why)].value(); }
    v3::nfsstat3 write3(const client4::opened& file)
    {
        return call3<v3::WRITE3res>(v3::procedure::write, writing(file)).status;
    }

    leasing_files leasing{*files};
    client4 first{*this, "first"};
    client4 second{*this, "second"};
    std::shared_ptr<called_client> first_way, second_way;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(there_are_delegations_to_read_alone, fixture)
{
    begin();
    make("f");
    const auto reads = first.open(first.opening("f", share4::access_read));
    BOOST_TEST(reads.res.delegation.delegation_type == deleg::read);
    BOOST_TEST(!reads.res.delegation.recall);
    BOOST_TEST(leasing.out == 1);
    const auto reads_too = second.open(second.opening("f", share4::access_read));
    BOOST_TEST(reads_too.res.delegation.delegation_type == deleg::read);
    BOOST_TEST(leasing.out == 2);
    BOOST_TEST(give_back(first, reads) == nfsstat4::ok);
    BOOST_TEST(leasing.out == 1);
    BOOST_TEST(give_back(second, reads_too) == nfsstat4::ok);
    BOOST_TEST(leasing.out == 0);
    make("g");
    for (const std::uint32_t want : {share4::want_any_delegation, share4::want_write_delegation}) {
        const auto both = first.open(wanting(first.opening("g", share4::access_both), want));
        BOOST_TEST(both.res.delegation.delegation_type == deleg::none_ext);
        close(first, both);
    }
    const auto unwanted =
        first.open(wanting(first.opening("g", share4::access_read), share4::want_no_delegation));
    close(first, unwanted);
    BOOST_TEST(leasing.asked == 2); // where none is given no lease is asked for
    // Without leases there are none, and with no local writers none is needed.
    const auto elsewhere =
        first.call(PUTROOTFH4args(), LOOKUP4args{"deep"}, LOOKUP4args{"other"}, first.creating("h"));
    BOOST_TEST(elsewhere.status() == nfsstat4::ok);
    BOOST_TEST(stats().read_delegations.value() + stats().write_delegations.value() == 0);
}

BOOST_FIXTURE_TEST_CASE(with_no_local_writers_none_is_needed, fixture)
{
    options[0].local_writers = false;
    begin();
    const auto file = delegated("f");
    make("g");
    const auto both = first.open(first.opening("g", share4::access_both));
    BOOST_TEST(both.res.delegation.delegation_type == deleg::write);
    BOOST_TEST(leasing.asked == 0);
    // The holder's own writes recall nothing.
    const auto own =
        first.open(wanting(first.opening("f", share4::access_write), share4::want_no_delegation));
    BOOST_TEST(own.status == nfsstat4::ok);
    BOOST_TEST(first_way->calls.empty());
}

BOOST_FIXTURE_TEST_CASE(a_local_writer_recalls_it, fixture)
{
    begin();
    const auto file = delegated("f");
    BOOST_TEST(leasing.local_writer());
    turns();
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    BOOST_CHECK(first_way->calls[0].operation == nfs_cb_opnum4::recall);
    BOOST_CHECK(first_way->calls[0].id == file.res.delegation.stateid);
    BOOST_TEST(stats().local_recalls.value() == 1u);
    BOOST_TEST(leasing.out == 1); // he waits for the client
    leasing.local_writer();
    turns();
    BOOST_TEST(first_way->calls.size() == 1u);
    BOOST_TEST(stats().local_recalls.value() == 1u);
    BOOST_TEST(give_back(first, file) == nfsstat4::ok);
    BOOST_TEST(leasing.out == 0);
    // As after any recall there is a rest.
    const auto again = first.open(first.opening("f", share4::access_read));
    BOOST_TEST(again.res.delegation.delegation_type == deleg::none);
    BOOST_TEST(leasing.asked == 1);
}

BOOST_FIXTURE_TEST_CASE(it_ends_with_what_is_revoked, fixture)
{
    begin();
    (void)delegated("f");
    first_way->silent = true;
    leasing.local_writer();
    for (int i = 0; i < 9; ++i) {
        BOOST_TEST(leasing.out == 1);
        pass(10s, 500ms);
        (void)flags(first);
        (void)flags(second);
    }
    pass(1s);
    BOOST_TEST(stats().revocations.value() == 1u);
    BOOST_TEST(leasing.out == 0);
}

BOOST_FIXTURE_TEST_CASE(it_ends_with_its_client, fixture)
{
    begin();
    (void)delegated("f");
    for (int i = 0; i < 10; ++i) { // its lease ends
        pass(10s, 1s);
        (void)flags(second);
    }
    BOOST_TEST(leasing.out == 1);
    const auto writes =
        second.open(wanting(second.opening("f", share4::access_write), share4::want_no_delegation));
    BOOST_TEST(writes.status == nfsstat4::ok);
    BOOST_TEST(leasing.out == 0);
}

BOOST_FIXTURE_TEST_CASE(without_a_lease_the_open_brings_no_delegation, fixture)
{
    begin();
    make("f");
    const struct {
        int failure;
        no_lease reason;
        why_no_delegation4 why;
    } rows[] = {
        {EAGAIN, no_lease::in_use, why_no_delegation4::contention},
        {EACCES, no_lease::not_permitted, why_no_delegation4::resource},
        {EPERM, no_lease::not_permitted, why_no_delegation4::resource},
        {EINVAL, no_lease::unsupported, why_no_delegation4::resource},
        {EOPNOTSUPP, no_lease::unsupported, why_no_delegation4::resource},
        {EMFILE, no_lease::limit, why_no_delegation4::resource},
        {ENFILE, no_lease::limit, why_no_delegation4::resource},
        {ENOLCK, no_lease::limit, why_no_delegation4::resource},
        {ENOMEM, no_lease::limit, why_no_delegation4::resource},
        {ESTALE, no_lease::failed, why_no_delegation4::resource},
    };
    for (const auto& row : rows) {
        const std::uint64_t before = refusals(row.reason);
        leasing.refuses_with = row.failure;
        const auto file =
            first.open(wanting(first.opening("f", share4::access_read), share4::want_any_delegation));
        BOOST_TEST(file.status == nfsstat4::ok);
        BOOST_TEST(file.res.delegation.delegation_type == deleg::none_ext);
        BOOST_TEST(file.res.delegation.why == row.why);
        BOOST_TEST(refusals(row.reason) == before + 1);
        BOOST_TEST(stats().read_delegations.value() == 0);
        close(first, file);
    }
    // The next one may have more luck: there is no rest.
    leasing.refuses_with = 0;
    BOOST_TEST(first.open(first.opening("f", share4::access_read)).res.delegation.delegation_type ==
               deleg::read);
}

BOOST_FIXTURE_TEST_CASE(where_there_are_too_many_clients_are_asked_for_some, fixture)
{
    begin();
    for (const char* name : {"a", "b", "c", "d"})
        (void)delegated(name);
    make("f");
    leasing.refuses_with = EMFILE;
    (void)first.open(first.opening("f", share4::access_read));
    turns();
    BOOST_TEST_REQUIRE(first_way->calls.size() == 1u);
    BOOST_CHECK(first_way->calls[0].operation == nfs_cb_opnum4::recall_any);
    BOOST_TEST(first_way->calls[0].keep == 3u);
    BOOST_TEST(second_way->calls.empty());
}

// The order: it is known, then the lease, then the client hears of it.
BOOST_FIXTURE_TEST_CASE(who_changes_the_file_while_the_lease_is_taken_waits_for_that, fixture)
{
    begin();
    make("f");
    const auto known =
        second.open(wanting(second.opening("f", share4::access_read), share4::want_no_delegation));
    leasing.holds = true;
    const auto opening_it = nfs4_fixture::begin(first.sequence(), PUTROOTFH4args(), LOOKUP4args{"export"},
                                                first.opening("f", share4::access_read));
    BOOST_TEST_REQUIRE(leasing.asked == 1);
    const auto write = begin3<v3::WRITE3res>(v3::procedure::write, writing(known));
    BOOST_TEST(!write->is_done);
    BOOST_TEST(leasing.changes == 0);
    leasing.go.set();
    turns();
    // The lease came too late: who opened has no delegation and is not called, and who writes has what he waited for.
    BOOST_TEST_REQUIRE(opening_it->is_done);
    answer4 opened = answer_of(*opening_it);
    opened.good<SEQUENCE4res>();
    opened.good<PUTROOTFH4res>();
    opened.good<LOOKUP4res>();
    const auto res = opened.good<OPEN4res>();
    BOOST_TEST(res.delegation.delegation_type == deleg::none);
    BOOST_TEST_REQUIRE(write->is_done);
    BOOST_TEST(answer3<v3::WRITE3res>(*write).status == v3::nfsstat3::ok);
    BOOST_TEST(leasing.changes == 1);
    BOOST_TEST(leasing.broken == 0);
    BOOST_TEST(first_way->calls.empty());
    BOOST_TEST(stats().read_delegations.value() == 0);
}

BOOST_FIXTURE_TEST_CASE(who_changes_it_locally_before_its_client_hears_of_it_prevents_it, fixture)
{
    begin();
    make("f");
    leasing.holds = true;
    const auto opening_it = nfs4_fixture::begin(first.sequence(), PUTROOTFH4args(), LOOKUP4args{"export"},
                                                first.opening("f", share4::access_read));
    BOOST_TEST_REQUIRE(leasing.asked == 1);
    leasing.local_writer();
    leasing.go.set();
    turns();
    BOOST_TEST_REQUIRE(opening_it->is_done);
    answer4 opened = answer_of(*opening_it);
    opened.good<SEQUENCE4res>();
    opened.good<PUTROOTFH4res>();
    opened.good<LOOKUP4res>();
    BOOST_TEST(opened.good<OPEN4res>().delegation.delegation_type == deleg::none);
    BOOST_TEST(leasing.out == 0);
    BOOST_TEST(first_way->calls.empty());
}

BOOST_FIXTURE_TEST_CASE(nobody_writes_through_us_while_there_is_a_lease, fixture)
{
    begin();
    const auto file = delegated("f");
    BOOST_TEST(write3(file) == v3::nfsstat3::jukebox);
    BOOST_TEST(leasing.out == 1);
    BOOST_TEST(leasing.changes == 0);
    // Who waits goes on when the delegation is back, and finds no lease.
    const auto write = begin3<v3::WRITE3res>(v3::procedure::write, writing(file));
    BOOST_TEST(!write->is_done);
    BOOST_TEST(give_back(first, file) == nfsstat4::ok);
    turns();
    BOOST_TEST_REQUIRE(write->is_done);
    BOOST_TEST(answer3<v3::WRITE3res>(*write).status == v3::nfsstat3::ok);
    BOOST_TEST(leasing.changes == 1);
    BOOST_TEST(leasing.broken == 0);
}

// Elsewhere the holder's own writes are in nobody's way. Here they would break the lease, and local writers would go unseen.
BOOST_FIXTURE_TEST_CASE(its_holder_gives_it_back_to_write, fixture)
{
    begin();
    const auto each = [&](const char* name, auto ask) {
        BOOST_TEST_CONTEXT(name)
        {
            const auto file = delegated(name);
            const int changes = leasing.changes;
            const std::size_t before = first_way->calls.size();
            BOOST_TEST(ask(file) == nfsstat4::delay);
            BOOST_TEST_REQUIRE(first_way->calls.size() == before + 1);
            BOOST_CHECK(first_way->calls.back().id == file.res.delegation.stateid);
            // It opens to read, to have an open when the delegation is gone.
            OPEN4args under = first.opening(name, share4::access_read);
            under.claim.claim = open_claim_type4::delegate_cur;
            under.claim.delegate_stateid = file.res.delegation.stateid;
            const auto opened = first.open(under);
            BOOST_TEST(opened.status == nfsstat4::ok);
            BOOST_TEST(leasing.changes == changes);
            BOOST_TEST(give_back(first, file) == nfsstat4::ok);
            BOOST_TEST(ask(file) == nfsstat4::ok);
            BOOST_TEST(leasing.broken == 0);
        }
    };
    each("open", [&](const auto&) {
        return first.open(wanting(first.opening("open", share4::access_write), share4::want_no_delegation))
            .status;
    });
    each("write", [&](const auto& file) { return first.write(file, "x", stateid4()); });
    each("cut", [&](const auto& file) {
        SETATTR4args args;
        attributes wanted;
        wanted.size = 0;
        wanted.present.set(attribute::size);
        const encoded set(wanted);
        args.obj_attributes = set.raw;
        return first.call(PUTFH4args{client4::handle_of(file)}, args).status();
    });
    // What changes no data is not in its own way.
    const auto own = delegated("own");
    const std::size_t before = first_way->calls.size();
    BOOST_TEST(first.call(PUTROOTFH4args(), LOOKUP4args{"export"}, REMOVE4args{"own"}).status() ==
               nfsstat4::ok);
    BOOST_TEST(first_way->calls.size() == before);
}

BOOST_FIXTURE_TEST_CASE(who_has_it_open_for_writing_gets_none, fixture)
{
    begin();
    make("f");
    const auto writes =
        first.open(wanting(first.opening("f", share4::access_write), share4::want_no_delegation));
    OPEN4args reading = first.opening("f", share4::access_read);
    const std::string_view another = "another owner";
    reading.owner.owner = std::as_bytes(std::span(another));
    const auto reads = first.open(wanting(reading, share4::want_any_delegation));
    BOOST_TEST(reads.res.delegation.delegation_type == deleg::none_ext);
    BOOST_TEST(reads.res.delegation.why == why_no_delegation4::contention);
    BOOST_TEST(leasing.asked == 0);
    close(first, reads);
    close(first, writes);
    BOOST_TEST(first.open(reading).res.delegation.delegation_type == deleg::read);
}

// Two clients, callers of version 3 and local processes, while leases take their time.
BOOST_FIXTURE_TEST_CASE(no_lease_is_broken_by_us_whatever_comes_between, fixture)
{
    begin();
    std::mt19937 random(41);
    const std::array<std::string, 2> names = {"a", "b"};
    std::array<client4*, 2> clients = {&first, &second};
    std::array<std::shared_ptr<called_client>, 2> ways = {first_way, second_way};
    std::map<std::string, client4::opened> known;
    for (const auto& name : names) {
        make(name);
        known[name] =
            second.open(wanting(second.opening(name, share4::access_read), share4::want_no_delegation));
        close(second, known[name]);
    }
    leasing.takes = [&] { return std::chrono::milliseconds(random() % 20); };
    int grants = 0, unwanted = 0, writes3 = 0, local = 0, own = 0;
    const auto later = [&](duration when, std::string name, bool locally) -> task<void> {
        co_await sleep_for(when);
        if (locally) {
            local += leasing.local_writer();
            co_return;
        }
        const auto c = call_of<v3::WRITE3res>(v3::procedure::write, writing(known[name]));
        (void)co_await dispatcher->dispatch(*c);
        writes3 += answer3<v3::WRITE3res>(*c).status == v3::nfsstat3::ok;
    };
    struct holding {
        client4::opened file;
        bool is_recalled = false;
    };
    std::array<std::map<std::string, holding>, 2> held;
    const auto give_some_back = [&](std::size_t i, bool all) {
        for (const auto& call : ways[i]->calls)
            for (auto& [name, h] : held[i])
                h.is_recalled = h.is_recalled || h.file.res.delegation.stateid == call.id;
        ways[i]->calls.clear();
        for (auto it = held[i].begin(); it != held[i].end();) {
            if (!it->second.is_recalled || !(all || random() % 2 == 0)) {
                ++it;
                continue;
            }
            BOOST_TEST(give_back(*clients[i], it->second.file) == nfsstat4::ok);
            it = held[i].erase(it);
        }
    };
    for (int step = 0; step < 600; ++step) {
        const std::size_t i = random() % 2;
        client4& c = *clients[i];
        const std::string& target = names[random() % 2];
        for (auto n = random() % 3; n > 0; --n)
            tasks.spawn([&later, when = std::chrono::milliseconds(random() % 40), name = names[random() % 2],
                         locally = random() % 3 == 0] { return later(when, name, locally); });
        switch (random() % 4) {
        case 0:
        case 1: {
            const int asked = leasing.asked;
            const auto file = c.open(c.opening(target, share4::access_read));
            if (file.status != nfsstat4::ok)
                break;
            if (file.res.delegation.delegation_type == deleg::read) {
                held[i][target] = {file, false};
                ++grants;
            } else {
                unwanted += leasing.asked - asked;
            }
            close(c, file);
            break;
        }
        case 2: {
            const auto file =
                c.open(wanting(c.opening(target, share4::access_write), share4::want_no_delegation));
            if (file.status != nfsstat4::ok)
                break;
            own += c.write(file, "x") == nfsstat4::ok;
            close(c, file);
            break;
        }
        default:
            give_some_back(i, false);
            if (random() % 3 == 0) { // a rest follows each recall
                give_some_back(0, true);
                give_some_back(1, true);
                pass(70s, 5s);
            }
            (void)flags(first);
            (void)flags(second);
        }
    }
    BOOST_TEST(leasing.broken == 0);
    BOOST_TEST(grants > 20);
    BOOST_TEST(unwanted > 5);
    BOOST_TEST(writes3 > 20);
    BOOST_TEST(local > 20);
    BOOST_TEST(own > 20);
    BOOST_TEST(stats().revocations.value() == 0u);
    pass(1s);
    BOOST_TEST(leasing.out == int(stats().read_delegations.value()));
}

// The reactor of the shard goes before the table.
BOOST_FIXTURE_TEST_CASE(they_end_with_their_shards_work, fixture)
{
    begin();
    (void)delegated("f");
    tasks.request_stop();
    while (tasks.live() != 0)
        shard->turn();
    BOOST_TEST(leasing.out == 0);
}

BOOST_AUTO_TEST_SUITE_END()
