// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/protocols/nfs/server/exports.hpp>
#include <verbena/protocols/storage/forwarding_backend.hpp>

#include "fake_backend.hpp"

#include <memory>
#include <optional>
#include <thread>

BOOST_AUTO_TEST_SUITE(nfs_exports_test)

using namespace verbena;
using namespace verbena::nfs;
using verbena::test::fake_backend;

namespace {

ip_address address(std::string_view text) { return ip_address::parse(text).value(); }

struct fixture {
    fake_backend files;
    export_table table;
    host_addresses host{{address("192.0.2.5"), address("8.8.8.8")}};

    export_options options(std::string pseudo)
    {
        export_options made;
        made.pseudo = std::move(pseudo);
        made.backend = &files;
        return made;
    }
    bool add(std::string pseudo) { return bool(table.add(options(std::move(pseudo)))); }
    std::string found(std::string_view path)
    {
        const auto match = table.by_path(path);
        return match ? match->exported->pseudo + " + " + std::string(match->rest) : "none";
    }
    static rpc::peer peer(std::string_view at, std::string_view transport = "tcp", std::uint16_t port = 50000)
    {
        return {at, at, transport, port};
    }
};

rpc::principal user(std::uint32_t uid, std::uint32_t gid, std::initializer_list<std::uint32_t> groups = {})
{
    return {uid, gid, std::span(groups.begin(), groups.size())};
}

storage::credential who(std::uint32_t uid, std::uint32_t gid,
                        std::initializer_list<std::uint32_t> groups = {})
{
    storage::credential made(uid, gid);
    const std::vector<std::uint32_t> list(groups);
    made.set_groups(list);
    return made;
}

} // namespace

BOOST_FIXTURE_TEST_CASE(the_longest_export_wins, fixture)
{
    BOOST_TEST(add("/export"));
    BOOST_TEST(add("/export/deep"));
    BOOST_TEST(add("/exporter"));
    BOOST_TEST(found("/export") == "/export + ");
    BOOST_TEST(found("/export/") == "/export + ");
    BOOST_TEST(found("//export//a/b") == "/export + a/b");
    BOOST_TEST(found("/export/deep/a") == "/export/deep + a");
    BOOST_TEST(found("/export/deeper") == "/export + deeper");
    BOOST_TEST(found("/exporter") == "/exporter + ");
    BOOST_TEST(found("/expo") == "none");
    BOOST_TEST(found("/") == "none");
    BOOST_TEST(found("") == "none");
    BOOST_TEST(found("export") == "none");
    BOOST_TEST(add("/"));
    BOOST_TEST(found("/") == "/ + ");
    BOOST_TEST(found("/expo/x") == "/ + expo/x");
    BOOST_TEST(found("/export/x") == "/export + x");
}

BOOST_FIXTURE_TEST_CASE(what_is_no_export, fixture)
{
    for (const char* pseudo : {"", "export", "/export/", "//export", "/a//b", "/a/./b", "/a/..", "/."})
        BOOST_TEST(!add(pseudo), pseudo);
    BOOST_TEST(!add("/" + std::string(1024, 'a')));
    BOOST_TEST(add("/export"));
    BOOST_TEST(!add("/export"));
    auto nowhere = options("/x");
    nowhere.backend = nullptr;
    BOOST_TEST(!table.add(nowhere));
    auto same_id = options("/y");
    same_id.id = export_id_of("/export");
    BOOST_TEST(!table.add(same_id));
    auto bad_anonymous = options("/z");
    bad_anonymous.anongid = 0xffffffff;
    BOOST_TEST(!table.add(bad_anonymous));
    fake_backend long_handles(52);
    auto unsignable = options("/w");
    unsignable.backend = &long_handles;
    BOOST_TEST(!table.add(unsignable));
    BOOST_TEST(table.all().size() == 1u);
}

BOOST_FIXTURE_TEST_CASE(ids_stay_the_same, fixture)
{
    // Handles hold it: another value here makes every client's handles stale at an update.
    BOOST_TEST(export_id_of("/export") == 0xe4db8904u);
    BOOST_TEST(add("/export"));
    BOOST_TEST(add("/other"));
    auto chosen = options("/chosen");
    chosen.id = 5;
    BOOST_TEST(bool(table.add(chosen)));
    BOOST_TEST((table.by_id(5) && table.by_id(5)->pseudo == "/chosen"));
    BOOST_TEST(
        (table.by_id(export_id_of("/other")) && table.by_id(export_id_of("/other"))->pseudo == "/other"));
    BOOST_TEST(table.by_id(6) == nullptr);
}

// What clients have by one export counts for those that reach the same files by the same handles, and for no other one.
BOOST_FIXTURE_TEST_CASE(exports_of_one_tree_have_one_space, fixture)
{
    struct renamed final : storage::forwarding_backend {
        using forwarding_backend::forwarding_backend;
        std::string_view kind() const noexcept override { return "renamed"; }
    } of_another_kind(files);
    fake_backend same, another, unknown, unknown_too;
    files.properties.file_space = same.properties.file_space = 7;
    another.properties.file_space = 8;
    struct {
        const char* pseudo;
        storage::file_backend* backend;
        const char* as;
    } const rows[] = {
        {"/a", &files, "/a"},           {"/b", &another, "/b"}, {"/c", &same, "/a"},
        {"/d", &of_another_kind, "/d"}, {"/e", &unknown, "/e"}, {"/f", &unknown_too, "/f"},
        {"/g", &unknown, "/e"}, // one back end has one tree, though it does not say so
        {"/h", &files, "/a"},
    };
    for (const auto& row : rows) {
        auto made = options(row.pseudo);
        made.backend = row.backend;
        BOOST_REQUIRE(table.add(made));
    }
    for (const auto& row : rows)
        BOOST_TEST(table.by_id(export_id_of(row.pseudo))->space == export_id_of(row.as), row.pseudo);
    std::string all;
    for (const auto& [space, each] : table.of_space(export_id_of("/a")))
        all += each->pseudo;
    BOOST_TEST(all == "/a/c/h");
    BOOST_TEST(table.of_space(export_id_of("/c")).empty());
}

BOOST_FIXTURE_TEST_CASE(who_may_connect, fixture)
{
    const auto verdict = [&](const std::vector<std::string>& clients, std::string_view at) {
        export_options exported = options("/e");
        for (const auto& text : clients) {
            const auto added = exported.clients.add(text);
            BOOST_REQUIRE(added);
        }
        return check_access(exported, peer(at), host) == access_refusal::none;
    };
    // without clients: this host
    BOOST_TEST(verdict({}, "127.0.0.1"));
    BOOST_TEST(verdict({}, "::1"));
    BOOST_TEST(verdict({}, "192.0.2.5"));
    BOOST_TEST(verdict({}, "::ffff:192.0.2.5"));
    BOOST_TEST(!verdict({}, "192.0.2.6"));
    BOOST_TEST(!verdict({}, "not an address"));
    // with clients: those, and no others
    BOOST_TEST(verdict({"10.0.0.0/8"}, "10.9.8.7"));
    BOOST_TEST(!verdict({"10.0.0.0/8"}, "127.0.0.1"));
    BOOST_TEST(verdict({"10.0.0.0/8", "fd00::/8"}, "fd00::7"));
    BOOST_TEST(!verdict({"10.0.0.0/8", "fd00::/8"}, "fe80::7%eth0"));
    BOOST_TEST(verdict({"fe80::/10"}, "fe80::7%eth0"));
    BOOST_TEST(verdict({"*"}, "203.0.113.1"));
    BOOST_TEST(verdict({"10.0.0.0/8", "*"}, "2001:db8::1"));
    client_list list;
    for (const char* text : {"", "**", "10.0.0.1/8", "host.example", "10.0.0.0/8 "})
        BOOST_TEST(!list.add(text).has_value(), text);
    BOOST_TEST(list.local_only());
}

BOOST_FIXTURE_TEST_CASE(transports_and_ports, fixture)
{
    export_options exported = options("/e");
    exported.transports = {"iwarp", "rdma"};
    BOOST_TEST((check_access(exported, peer("127.0.0.1", "iwarp"), host) == access_refusal::none));
    BOOST_TEST((check_access(exported, peer("127.0.0.1", "tcp"), host) == access_refusal::transport));
    BOOST_TEST((check_mount_access(exported, peer("127.0.0.1", "tcp"), host) == access_refusal::none));
    BOOST_TEST((check_mount_access(exported, peer("192.0.2.9", "tcp"), host) == access_refusal::address));
    exported.transports.clear();
    exported.secure = true;
    BOOST_TEST((check_access(exported, peer("127.0.0.1", "tcp", 1023), host) == access_refusal::none));
    BOOST_TEST((check_access(exported, peer("127.0.0.1", "tcp", 1024), host) == access_refusal::port));
    BOOST_TEST((check_mount_access(exported, peer("127.0.0.1", "tcp", 1024), host) == access_refusal::port));
    BOOST_TEST((check_access(exported, peer("127.0.0.1", "tcp", 0), host) == access_refusal::port));
    BOOST_TEST((check_access(exported, peer("192.0.2.9", "tcp", 1), host) == access_refusal::address));
    BOOST_TEST((check_access(exported, peer("name", "loop", 0), host) == access_refusal::none));
}

// Of a table, whatever the transport and the port: who could use no export of it needs no connection.
BOOST_FIXTURE_TEST_CASE(whom_any_export_is_for, fixture)
{
    export_table table;
    BOOST_TEST(!is_for(table, peer("127.0.0.1"), host));
    export_options one = options("/one");
    BOOST_REQUIRE(one.clients.add("10.0.0.0/8"));
    one.transports = {"tcp"};
    one.secure = true;
    BOOST_REQUIRE(table.add(std::move(one)));
    export_options two = options("/two");
    BOOST_REQUIRE(two.clients.add("fd00::/8"));
    BOOST_REQUIRE(table.add(std::move(two)));
    BOOST_TEST(is_for(table, peer("10.0.0.1", "iwarp", 5000), host));
    BOOST_TEST(is_for(table, peer("fd00::1"), host));
    BOOST_TEST(is_for(table, peer("anybody", "loop"), host));
    BOOST_TEST(!is_for(table, peer("127.0.0.1"), host));
    BOOST_TEST(!is_for(table, peer("192.0.2.66"), host));
}

BOOST_FIXTURE_TEST_CASE(squashing, fixture)
{
    struct rule {
        const char* what;
        bool root_squash, all_squash;
        rpc::principal claimed;
        storage::credential expected;
    };
    const rule rules[] = {
        {"a user", true, false, user(7, 8, {10, 9, 10}), who(7, 8, {9, 10})},
        {"root", true, false, user(0, 5, {6}), who(100, 200)},
        {"root's group", true, false, user(7, 0, {0, 9}), who(7, 200, {9, 200})},
        {"root, believed", false, false, user(0, 0, {0, 9}), who(0, 0, {0, 9})},
        {"everybody", true, true, user(7, 8, {9}), who(100, 200)},
        {"everybody, root_squash off", false, true, user(0, 0), who(100, 200)},
        {"AUTH_NONE", true, false, rpc::principal(), who(100, 200)},
        {"AUTH_NONE, root_squash off", false, false, rpc::principal(), who(100, 200)},
        // setfsuid(-1) would keep the daemon's own identity
        {"uid -1", false, false, user(0xffffffff, 8, {9}), who(100, 200)},
        {"gid -1", false, false, user(7, 0xffffffff, {0xffffffff, 9}), who(7, 200, {9, 200})},
    };
    for (const rule& r : rules) {
        export_options exported = options("/e");
        exported.anonuid = 100;
        exported.anongid = 200;
        exported.root_squash = r.root_squash;
        exported.all_squash = r.all_squash;
        const auto got = squash(exported, r.claimed);
        BOOST_TEST((got == r.expected), r.what);
    }
    const auto seventeen = user(1, 1, {17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1});
    const auto all = squash(options("/e"), seventeen);
    BOOST_TEST(all.groups().size() == rpc::principal::max_groups);
    BOOST_TEST(all.groups().front() == 2u);
}

BOOST_FIXTURE_TEST_CASE(strangers_at_a_public_address, fixture)
{
    const auto refused = [&](const char* clients, std::vector<ip_address> listeners,
                             const host_addresses& at) {
        export_options exported = options("/e");
        if (clients != nullptr) {
            const auto added = exported.clients.add(clients);
            BOOST_REQUIRE(added);
        }
        return !refuse_public(exported, listeners, at).has_value();
    };
    const host_addresses inside({address("127.0.0.1"), address("10.0.0.1")});
    const auto any = address("0.0.0.0");
    BOOST_TEST(refused("*", {address("8.8.8.8")}, host));
    BOOST_TEST(refused("*", {any}, host));
    BOOST_TEST(refused("*", {address("::")}, host));
    BOOST_TEST(refused("0.0.0.0/0", {address("127.0.0.1"), address("8.8.8.8")}, host));
    BOOST_TEST(!refused("*", {address("127.0.0.1")}, host));
    BOOST_TEST(!refused("*", {address("192.168.1.1")}, host));
    BOOST_TEST(!refused("*", {any}, inside));
    BOOST_TEST(!refused("10.0.0.0/8", {address("8.8.8.8")}, host));
    BOOST_TEST(!refused(nullptr, {address("8.8.8.8")}, host));
}

BOOST_FIXTURE_TEST_CASE(exports_in_exports, fixture)
{
    // In any order, and only those of which nothing lies between.
    for (const char* pseudo : {"/a/b", "/", "/a", "/ab", "/a/b/c/d", "/a/b/e", "/z/y"})
        BOOST_TEST(add(pseudo));
    const auto nested = [&](std::string_view outer, std::string_view name) -> std::string {
        const export_options* const found = table.nested(*table.by_path(outer)->exported, name);
        return found != nullptr ? found->pseudo : "none";
    };
    BOOST_TEST(nested("/", "a") == "/a");
    BOOST_TEST(nested("/", "ab") == "/ab");
    BOOST_TEST(nested("/", "b") == "none");
    BOOST_TEST(nested("/", "z") == "none");
    BOOST_TEST(nested("/", "") == "none");
    BOOST_TEST(nested("/a", "b") == "/a/b");
    BOOST_TEST(nested("/a/b", "e") == "/a/b/e");
    BOOST_TEST(nested("/a/b", "c") == "none");
    BOOST_TEST(nested("/ab", "b") == "none");
    BOOST_TEST(table.has_nested(*table.by_path("/")->exported));
    BOOST_TEST(table.has_nested(*table.by_path("/a")->exported));
    BOOST_TEST(!table.has_nested(*table.by_path("/ab")->exported));
    BOOST_TEST(!table.has_nested(*table.by_path("/a/b/e")->exported));
}

// --- Lists that follow one another

BOOST_FIXTURE_TEST_CASE(what_stays_keeps_its_number_in_the_pseudo_file_system, fixture)
{
    BOOST_REQUIRE(add("/a/b"));
    BOOST_REQUIRE(add("/c"));
    const pseudo_tree& before = table.places();
    const auto number = [](const pseudo_tree& tree, std::string_view path) {
        const pseudo_node* at = &tree.root();
        for (auto name = next_component(path); !name.empty(); name = next_component(path))
            at = at->children.find(name)->second;
        return at->fileid;
    };
    export_list next(table.now(), 5'000'000'000);
    BOOST_REQUIRE(next.add(options("/a/d")));
    BOOST_REQUIRE(next.add(options("/c")));
    for (const char* const path : {"/", "/a", "/c"})
        BOOST_TEST(number(next.places(), path) == number(before, path));
    BOOST_TEST(number(next.places(), "/a/d") != number(before, "/a/b"));
    BOOST_TEST(next.places().changed() == 5'000'000'000);
    BOOST_TEST(before.changed() == 0);
    BOOST_TEST((next.places().of(*next.by_id(export_id_of("/c"))) != nullptr));
    // What comes back is another one, even if its place was free.
    export_list third(next, 6'000'000'000);
    BOOST_REQUIRE(third.add(options("/e")));
    BOOST_TEST(number(third.places(), "/e") > number(next.places(), "/a/d"));
}

// The first export of a tree has gone, and its number stands for what clients have by the second one.
BOOST_FIXTURE_TEST_CASE(a_tree_keeps_its_number_and_no_other_one_gets_it, fixture)
{
    BOOST_REQUIRE(add("/a"));
    BOOST_REQUIRE(add("/b"));
    const export_options stays = table.all()[1];
    BOOST_TEST(stays.space == export_id_of("/a"));
    export_list next(table.now(), 1);
    BOOST_REQUIRE(next.add(stays));
    fake_backend others;
    export_options made = options("/a");
    made.backend = &others;
    BOOST_REQUIRE(next.add(made));
    BOOST_TEST(next.all()[0].space == export_id_of("/a"));
    BOOST_TEST(next.all()[1].id == export_id_of("/a"));
    BOOST_TEST(next.all()[1].space != export_id_of("/a"));
}

BOOST_FIXTURE_TEST_CASE(a_list_is_there_as_long_as_a_call_may_refer_to_it, fixture)
{
    BOOST_REQUIRE(add("/a"));
    // On a thread that is no shard there is one place, which is also that of all shards that there are none of.
    std::optional<export_table::use> call = table.begin_use();
    const export_options* const seen = table.by_id(export_id_of("/a"));
    const auto follow = [&](const char* pseudo) {
        auto next = std::make_shared<export_list>(*table.newest(), 1);
        BOOST_REQUIRE(next->add(options(pseudo)));
        table.publish(std::move(next), 0);
    };
    follow("/b");
    BOOST_TEST((table.by_id(export_id_of("/a")) == nullptr));
    BOOST_TEST((table.by_id(export_id_of("/b")) != nullptr));
    follow("/c");
    // The second has no call of its own, but the first one's call may have seen it.
    BOOST_TEST(table.drop_old() == 2u);
    BOOST_TEST(seen->pseudo == "/a");
    export_table::use again = *call;
    call.reset();
    BOOST_TEST(table.drop_old() == 2u);
    again = export_table::use();
    BOOST_TEST(table.drop_old() == 0u);
}

BOOST_FIXTURE_TEST_CASE(who_is_at_work_on_an_export_is_counted, fixture)
{
    BOOST_REQUIRE(add("/a"));
    BOOST_REQUIRE(add("/b"));
    const export_options& a = table.all()[0];
    const export_options& b = table.all()[1];
    {
        export_ref first(a);
        export_ref second = first;
        BOOST_TEST((first == second));
        export_ref moved = std::move(first);
        BOOST_TEST((first == nullptr));
        BOOST_TEST(!a.users->none());
        moved = export_ref(b);
        second = export_ref();
        BOOST_TEST(a.users->none());
        BOOST_TEST(!b.users->none());
    }
    BOOST_TEST(b.users->none());
    // The same export of another list.
    export_list next(table.now(), 1);
    BOOST_REQUIRE(next.add(a));
    BOOST_TEST((export_ref(a) == export_ref(next.all()[0])));
    BOOST_TEST((export_ref(a) != export_ref(b)));
    BOOST_TEST((next.all()[0].users == a.users));
}

// Each shard writes its own count, without a step that others see whole; whoever is no shard takes one that all share.
BOOST_AUTO_TEST_CASE(who_is_at_work_on_an_export_is_counted_by_several_threads)
{
    export_users users(2);
    BOOST_TEST(users.none());
    for (const std::size_t one : {0, 1}) {
        const auto work = [&users](std::size_t shard) {
            for (int i = 0; i < 200'000; ++i) {
                users.enter(shard);
                users.enter(shard);
                users.leave(shard);
                users.leave(shard);
            }
            users.enter(shard);
        };
        std::thread other(work, one == 0 ? 1 : 257);
        work(one == 0 ? 0 : 256);
        other.join();
        BOOST_TEST(!users.none());
        users.leave(one == 0 ? 0 : 256);
        BOOST_TEST(!users.none());
        users.leave(one == 0 ? 1 : 257);
        BOOST_TEST(users.none());
    }
}

BOOST_AUTO_TEST_SUITE_END()
