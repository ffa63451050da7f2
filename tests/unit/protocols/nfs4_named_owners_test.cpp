// SPDX-License-Identifier: Apache-2.0
// Owners by name: what a server says and takes.
#include "nfs4_server.hpp"
#include "nfs4_user_names.hpp"

#include <set>

BOOST_AUTO_TEST_SUITE(nfs4_named_owners_test)

using namespace verbena;
using namespace verbena::test;

namespace {

using answer = user_names_counters::answer;
using texts = std::vector<std::string>;

/// A server that root uses.
struct server_fixture : nfs4_fixture {
    explicit server_fixture(bool sends_names = true)
    {
        options[0].root_squash = false;
        user->uid = user->gid = 0;
        start();
        user_names_options o;
        o.sends_names = sends_names;
        users.emplace(tasks, source, o);
        commons->users = &*users;
        client.connect();
        file = client.open(client.creating("f"));
        BOOST_TEST_REQUIRE(file.status == nfsstat4::ok);
    }
    ~server_fixture()
    {
        source.answer();
        turns(50);
    }
    PUTFH4args put() const { return PUTFH4args{client4::handle_of(file)}; }
    static encoded owners(std::optional<std::string_view> owner, std::optional<std::string_view> group)
    {
        attributes values;
        if (owner) {
            values.present.set(attribute::owner);
            values.owner = *owner;
        }
        if (group) {
            values.present.set(attribute::owner_group);
            values.owner_group = *group;
        }
        return encoded(values);
    }
    nfsstat4 set(std::optional<std::string_view> owner, std::optional<std::string_view> group = {})
    {
        return client.call(put(), SETATTR4args{{}, owners(owner, group).raw}).status();
    }
    std::string told(answer4 out)
    {
        if (out.status() != nfsstat4::ok)
            return to_string(out.status());
        out.good<PUTFH4res>();
        attributes values;
        BOOST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
        return std::string(values.owner) + ' ' + std::string(values.owner_group);
    }
    static GETATTR4args ask() { return GETATTR4args{{attribute::owner, attribute::owner_group}}; }
    std::string told() { return told(client.call(put(), ask())); }
    /// name=owner of each entry.
    std::map<std::string, std::string> listed(std::uint32_t maxcount = 32768)
    {
        std::map<std::string, std::string> all;
        READDIR4args args;
        args.maxcount = maxcount;
        args.attr_request = {attribute::owner, attribute::owner_group};
        for (bool eof = false; !eof;) {
            answer4 out = client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, args);
            BOOST_TEST_REQUIRE(out.status() == nfsstat4::ok);
            out.good<PUTROOTFH4res>();
            out.good<LOOKUP4res>();
            args.cookieverf = out.good<READDIR4res>().cookieverf;
            readdir_reader reader(out.in());
            for (entry4 entry; reader.next(entry);) {
                attributes values;
                BOOST_REQUIRE(decode_attributes(entry.attrs, values));
                args.cookie = entry.cookie;
                all[std::string(entry.name)] =
                    std::string(values.owner) + ' ' + std::string(values.owner_group);
            }
            eof = reader.eof();
        }
        return all;
    }

    named_accounts source;
    std::optional<user_names> users;
    client4 client{*this, "a"};
    client4::opened file;
};

struct numbers_fixture : server_fixture {
    numbers_fixture() : server_fixture(false) {}
};

} // namespace

BOOST_FIXTURE_TEST_CASE(an_owner_is_set_by_its_name, numbers_fixture)
{
    BOOST_TEST(set("alice@example.org", "staff@Example.Org") == nfsstat4::ok);
    BOOST_TEST(told() == "1000 50");
    BOOST_TEST(set("7", "staff@example.org") == nfsstat4::ok);
    BOOST_TEST(told() == "7 50");
    BOOST_TEST(set("alice@example.org", "8") == nfsstat4::ok);
    BOOST_TEST(told() == "1000 8");
    for (const std::string_view bad : {"@", "alice@", "@example.org", "alice", "bob@example.org",
                                       "alice@example.com", "007", "4294967295"}) {
        BOOST_TEST(set(bad, "9") == nfsstat4::badowner, bad);
        BOOST_TEST(set({}, bad) == nfsstat4::badowner, bad);
    }
    BOOST_TEST(set("") == nfsstat4::inval);
    BOOST_TEST(told() == "1000 8");
    // Other attributes beside it are set likewise, and refused likewise.
    attributes values;
    values.present = {attribute::mode, attribute::owner, attribute::size};
    values.mode = 0640;
    values.size = ~std::uint64_t(0);
    values.owner = std::string_view("alice@example.org");
    const encoded too_large(values);
    BOOST_TEST(client.call(put(), SETATTR4args{file.id, too_large.raw}).status() == nfsstat4::fbig);
    // Nothing of what is told is a name.
    BOOST_TEST(std::ranges::none_of(source.asked, [](const std::string& s) { return s == "u 1000"; }));
}

BOOST_FIXTURE_TEST_CASE(what_is_made_has_the_named_owner, numbers_fixture)
{
    const encoded named = owners("alice@example.org", "staff@example.org");
    CREATE4args folder;
    folder.objtype.type = nfs_ftype4::dir;
    folder.objname = "d";
    folder.createattrs = named.raw;
    OPEN4args opening = client.creating("g");
    opening.openhow.attrs = named.raw;
    BOOST_TEST(client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, folder).status() == nfsstat4::ok);
    BOOST_TEST(client.open(opening).status == nfsstat4::ok);
    const auto all = listed();
    BOOST_TEST(all.at("d") == "1000 50");
    BOOST_TEST(all.at("g") == "1000 50");
    const encoded unknown = owners("bob@example.org", {});
    folder.objname = "e";
    folder.createattrs = unknown.raw;
    opening = client.creating("h");
    opening.openhow.attrs = unknown.raw;
    BOOST_TEST(client.call(PUTROOTFH4args(), LOOKUP4args{"export"}, folder).status() == nfsstat4::badowner);
    BOOST_TEST(client.open(opening).status == nfsstat4::badowner);
    BOOST_TEST(listed().size() == all.size());
}

BOOST_FIXTURE_TEST_CASE(entries_of_an_acl_are_of_named_users_and_groups, numbers_fixture)
{
    std::array<nfsace4, 3> aces;
    aces[0].access_mask = ace4::read_data | ace4::execute;
    aces[0].who = std::string_view("alice@example.org");
    aces[1] = aces[0];
    aces[1].flag = ace4::identifier_group;
    aces[1].who = std::string_view("staff@example.org");
    aces[2] = aces[0];
    aces[2].who = std::string_view("12");
    attributes values;
    values.present.set(attribute::acl);
    values.acl = acl_view(std::span<const nfsace4>(aces));
    const auto set_acl = [&] {
        const encoded raw(values);
        return client.call(put(), SETATTR4args{{}, raw.raw}).status();
    };
    BOOST_TEST(set_acl() == nfsstat4::ok);
    auto a = client.call(put(), GETATTR4args{{attribute::acl}});
    (void)a.good<PUTFH4res>();
    const auto res = a.good<GETATTR4res>();
    attributes told;
    BOOST_TEST_REQUIRE(decode_attributes(res.obj_attributes, told));
    BOOST_TEST_REQUIRE(told.acl.size() == 3u);
    auto at = told.acl.begin();
    for (const std::string_view who : {"1000", "50", "12"}) {
        const nfsace4 each = *at;
        BOOST_TEST(std::string_view(each.who) == who);
        BOOST_TEST((each.flag == ace4::identifier_group) == (who == "50"));
        ++at;
    }
    // Whoever has set it may verify it in the same words, and in others that mean the same.
    const auto verify = [&] {
        const encoded raw(values);
        const nfsstat4 status = client.call(put(), VERIFY4args{raw.raw}).status();
        const nfsstat4 other = client.call(put(), NVERIFY4args{raw.raw}).status();
        BOOST_TEST((status == nfsstat4::ok) == (other == nfsstat4::same));
        BOOST_TEST((status == nfsstat4::not_same) == (other == nfsstat4::ok));
        return status;
    };
    BOOST_TEST(verify() == nfsstat4::ok);
    aces[0].who = std::string_view("1000");
    BOOST_TEST(verify() == nfsstat4::ok);
    aces[2].who = std::string_view("alice@EXAMPLE.org");
    BOOST_TEST(verify() == nfsstat4::not_same);
    aces[2].who = std::string_view("12");
    aces[1].flag = 0; // no group
    BOOST_TEST(verify() == nfsstat4::not_same);
    aces[1].flag = ace4::identifier_group;
    aces[2].access_mask = ace4::read_data;
    BOOST_TEST(verify() == nfsstat4::not_same);
    aces[2].access_mask = aces[0].access_mask;
    aces[1].who = std::string_view("bob@example.org");
    BOOST_TEST(verify() == nfsstat4::not_same);
    source.fails = true;
    aces[1].who = std::string_view("carol@example.org");
    BOOST_TEST(verify() == nfsstat4::delay);
    source.fails = false;
    for (const std::string_view bad : {"bob@example.org", "alice@example.com", "bob", "@"}) {
        aces[1].who = bad;
        BOOST_TEST(set_acl() == nfsstat4::badowner, bad);
    }
}

BOOST_FIXTURE_TEST_CASE(owners_are_told_by_their_names, server_fixture)
{
    BOOST_TEST(set("1000", "50") == nfsstat4::ok);
    BOOST_TEST(told() == "alice@example.org staff@example.org");
    BOOST_TEST(told() == "alice@example.org staff@example.org");
    BOOST_TEST((source.asked == texts{"u 1000", "g 50"}));
    BOOST_TEST(program->counters().known_names.value() != 0u);
    const encoded same = owners("alice@example.org", "staff@example.org");
    BOOST_TEST(client.call(put(), VERIFY4args{same.raw}).status() == nfsstat4::ok);
    // One that has no name is told by its number.
    BOOST_TEST(set("1001", "51") == nfsstat4::ok);
    BOOST_TEST(told() == "1001 51");
    BOOST_TEST(told() == "1001 51");
    BOOST_TEST((source.asked == texts{"u 1000", "g 50", "u 1001", "g 51"}));
    // For as long as that is kept.
    source.names[{account_kind::user, 1001}] = "bob";
    pass(61s, 1s);
    BOOST_TEST(told() == "bob@example.org 51");
    // A call that asks for no owner has nothing looked up.
    pass(601s, 10s);
    source.asked.clear();
    BOOST_TEST(client.call(put(), GETATTR4args{{attribute::size}}).status() == nfsstat4::ok);
    BOOST_TEST(source.asked.empty());
    BOOST_TEST(told() == "bob@example.org 51");
    BOOST_TEST((source.asked == texts{"u 1001", "g 51"}));
}

BOOST_FIXTURE_TEST_CASE(a_listing_looks_up_each_owner_once, server_fixture)
{
    const auto own = [&](const client4::opened& f, std::uint32_t uid) {
        const std::string id = std::to_string(uid);
        const encoded to = owners(id, id);
        BOOST_TEST_REQUIRE(
            client.call(PUTFH4args{client4::handle_of(f)}, SETATTR4args{{}, to.raw}).status() ==
            nfsstat4::ok);
    };
    for (std::uint32_t i = 0; i < 60; ++i) {
        const std::string name = "file " + std::to_string(i);
        const client4::opened made = client.open(client.creating(name));
        BOOST_TEST_REQUIRE(made.status == nfsstat4::ok);
        own(made, 2000 + i % 30);
        source.names[{account_kind::user, 2000 + i % 30}] = "user" + std::to_string(i % 30);
    }
    source.asked.clear();
    for (const std::uint32_t maxcount : {32768U, 1024U}) {
        const auto all = listed(maxcount);
        BOOST_TEST(all.size() == 61u);
        for (std::uint32_t i = 0; i < 60; ++i)
            BOOST_TEST(all.at("file " + std::to_string(i)) ==
                       "user" + std::to_string(i % 30) + "@example.org " + std::to_string(2000 + i % 30));
    }
    std::multiset<std::string> asked(source.asked.begin(), source.asked.end());
    BOOST_TEST(asked.size() == 62u); // with root's
    BOOST_TEST((std::set<std::string>(asked.begin(), asked.end()).size() == asked.size()));
}

BOOST_FIXTURE_TEST_CASE(a_slow_lookup_holds_up_no_other_call, server_fixture)
{
    BOOST_TEST(set("1000", "50") == nfsstat4::ok);
    BOOST_TEST(client.call(PUTROOTFH4args(), ask()).status() == nfsstat4::ok); // so that the domain is known
    source.asked.clear();
    source.be_slow();
    const auto waiting = begin(client.sequence(1), put(), ask());
    const auto second = begin(client.sequence(2), put(), ask());
    BOOST_TEST((!waiting->is_done && !second->is_done));
    BOOST_TEST((source.asked == texts{"u 1000", "g 50"}));
    BOOST_TEST(client.read(file, file.id).empty());
    BOOST_TEST(client.write(file, "text") == nfsstat4::ok);
    BOOST_TEST((!waiting->is_done && !second->is_done));
    source.answer();
    turns(50);
    BOOST_TEST_REQUIRE((waiting->is_done && second->is_done));
    BOOST_TEST(source.asked.size() == 2u);
    for (memory_call* const c : {waiting.get(), second.get()}) {
        answer4 out = answer_of(*c);
        out.take<SEQUENCE4res>();
        BOOST_TEST(told(std::move(out)) == "alice@example.org staff@example.org");
    }
}

BOOST_FIXTURE_TEST_CASE(where_names_do_not_come_numbers_are_told, server_fixture)
{
    BOOST_TEST(set("1000", "50") == nfsstat4::ok);
    BOOST_TEST(client.call(PUTROOTFH4args(), ask()).status() == nfsstat4::ok); // so that the domain is known
    source.asked.clear();
    source.be_slow();
    const time_point before = clock.now();
    BOOST_TEST(told() == "1000 50");
    BOOST_TEST(listed().at("f") == "1000 50");
    BOOST_TEST((clock.now() - before == 2s));
    BOOST_TEST((source.asked == texts{"u 1000", "g 50"}));
    // Of two, the one that is known is told.
    source.answer();
    turns(50);
    source.be_slow();
    BOOST_TEST(set("1001", "50") == nfsstat4::ok);
    BOOST_TEST(told() == "1001 staff@example.org");
    BOOST_TEST(set("1000", "50") == nfsstat4::ok);
    source.asked.clear();
    // A name that can't be found out yet is not refused: the client comes again.
    BOOST_TEST(set("bob@example.org") == nfsstat4::delay);
    BOOST_TEST((source.asked == texts{"u bob"}));
    source.answer();
    turns(50);
    BOOST_TEST(told() == "alice@example.org staff@example.org");
    BOOST_TEST(set("alice@example.org") == nfsstat4::ok);
    // But it comes again for a minute, and no longer.
    source.fails = true;
    BOOST_TEST(set("carol@example.org") == nfsstat4::delay);
    clock.advance(1min);
    BOOST_TEST(set("carol@example.org") == nfsstat4::badowner);
}

BOOST_FIXTURE_TEST_CASE(all_names_of_a_call_have_one_patience, server_fixture)
{
    BOOST_TEST(client.call(PUTROOTFH4args(), ask()).status() == nfsstat4::ok); // so that the domain is known
    BOOST_TEST(set("1000", "50") == nfsstat4::ok);
    client4::opened other = client.open(client.creating("g"));
    const PUTFH4args put_other{client4::handle_of(other)};
    const encoded others = owners("1001", "51");
    BOOST_TEST(client.call(put_other, SETATTR4args{{}, others.raw}).status() == nfsstat4::ok);
    source.asked.clear();
    source.be_slow();
    const encoded named = owners("bob@example.org", "wheel@example.org");
    time_point before = clock.now();
    BOOST_TEST(client.call(put(), SETATTR4args{{}, named.raw}).status() == nfsstat4::delay);
    BOOST_TEST((clock.now() - before == 2s));
    before = clock.now();
    BOOST_TEST(client.call(put(), ask(), put_other, ask()).status() == nfsstat4::ok);
    BOOST_TEST((clock.now() - before == 2s));
    // What comes behind has no time left, and begins nothing.
    BOOST_TEST((source.asked == texts{"u bob", "u 1000", "g 50"}));
}

BOOST_FIXTURE_TEST_CASE(a_failed_lookup_is_not_asked_for_by_each_call, server_fixture)
{
    BOOST_TEST(set("1000", "50") == nfsstat4::ok);
    BOOST_TEST(client.call(PUTROOTFH4args(), ask()).status() == nfsstat4::ok);
    source.fails = true;
    BOOST_TEST(listed().at("f") == "1000 50");
    const std::uint64_t answers = users->counters().given[std::size_t(answer::cached)].value();
    const std::uint64_t known = program->counters().known_names.value();
    BOOST_TEST(listed().at("f") == "1000 50");
    BOOST_TEST(told() == "1000 50");
    BOOST_TEST(users->counters().given[std::size_t(answer::cached)].value() == answers);
    BOOST_TEST(program->counters().known_names.value() == known + 4);
    source.fails = false;
    pass(6s, 1s);
    BOOST_TEST(listed().at("f") == "alice@example.org staff@example.org");
}

BOOST_FIXTURE_TEST_CASE(a_lookup_that_hangs_is_not_asked_for_by_each_call, server_fixture)
{
    const auto late = [&] { return users->counters().given[std::size_t(answer::late)].value(); };
    BOOST_TEST(set("1000", "50") == nfsstat4::ok);
    // Likewise while the domain is not known, hangs or fails.
    for (const bool domain : {true, false}) {
        source.be_slow();
        BOOST_TEST(told() == "1000 50");
        clock.advance(1ms);
        for (int i = 0; i < 3; ++i) {
            BOOST_TEST(listed().at("f") == "1000 50");
            const std::uint64_t before = late();
            const std::uint64_t known = program->counters().known_names.value();
            BOOST_TEST(listed().at("f") == "1000 50");
            BOOST_TEST(told() == "1000 50");
            BOOST_TEST(late() == before);
            BOOST_TEST(program->counters().known_names.value() == known + 4);
            clock.advance(1s);
            BOOST_TEST(told() == "1000 50");
            BOOST_TEST(late() != before);
        }
        clock.advance(1s);
        source.domain_fails = domain;
        source.answer();
        turns(50);
        if (domain) {
            BOOST_TEST(told() == "1000 50");
            const std::uint64_t before = late();
            clock.advance(4s);
            BOOST_TEST(told() == "1000 50");
            BOOST_TEST(late() == before);
            clock.advance(2s);
            source.domain_fails = false;
            BOOST_TEST(client.call(PUTROOTFH4args(), ask()).status() == nfsstat4::ok); // so that it is known
        }
    }
    BOOST_TEST(told() == "alice@example.org staff@example.org");
}

// What a client has set it may verify in the same words.
BOOST_AUTO_TEST_CASE(owners_are_verified_by_whom_they_mean)
{
    for (const bool sends_names : {false, true}) {
        server_fixture f(sends_names);
        BOOST_TEST(f.set("alice@example.org", "staff@example.org") == nfsstat4::ok);
        const auto verify = [&](std::optional<std::string_view> owner,
                                std::optional<std::string_view> group) {
            const encoded to = server_fixture::owners(owner, group);
            const nfsstat4 status = f.client.call(f.put(), VERIFY4args{to.raw}).status();
            const nfsstat4 other = f.client.call(f.put(), NVERIFY4args{to.raw}).status();
            BOOST_TEST((other == (status == nfsstat4::ok         ? nfsstat4::same
                                  : status == nfsstat4::not_same ? nfsstat4::ok
                                                                 : status)));
            return status;
        };
        for (const std::string_view same : {"1000", "alice@example.org", "alice@Example.ORG"}) {
            BOOST_TEST(verify(same, {}) == nfsstat4::ok, same);
            BOOST_TEST(verify(same, "50") == nfsstat4::ok, same);
            BOOST_TEST(verify(same, "staff@EXAMPLE.org") == nfsstat4::ok, same);
            BOOST_TEST(verify(same, "51") == nfsstat4::not_same, same);
        }
        for (const std::string_view none :
             {"1001", "bob@example.org", "alice@example.com", "alice", "", "01000"})
            BOOST_TEST(verify(none, "50") == nfsstat4::not_same, none);
        f.source.be_slow();
        BOOST_TEST(verify("carol@example.org", "50") == nfsstat4::delay);
        // Who sets her is refused by now; that says nothing of whose the file is.
        f.clock.advance(1min);
        BOOST_TEST(f.set("carol@example.org", {}) == nfsstat4::badowner);
        BOOST_TEST(verify("carol@example.org", "50") == nfsstat4::delay);
    }
}

BOOST_AUTO_TEST_SUITE_END()
