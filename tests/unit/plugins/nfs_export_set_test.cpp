// SPDX-License-Identifier: Apache-2.0
// Exports that a reload brings, changes and takes away, on two shards.
#include "../../../plugins/nfs/export_set.hpp"

#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/plugins/modules.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

BOOST_AUTO_TEST_SUITE(nfs_export_set_test)

using namespace verbena;
using namespace verbena::nfs;

namespace {

struct one_host final : module_host {
    runtime& shards() noexcept override { return *rt; }
    metric_registry& metrics() noexcept override { return registry; }
    module_table& modules() noexcept override { return table; }
    peer_shares& peers() noexcept override { return shares; }
    bool uses_rdma_devices() const noexcept override { return false; }
    const std::string& state_directory() override { return state; }

    metric_registry registry;
    std::unique_ptr<runtime> rt = runtime::start({.shards = 2}).value();
    module_table table;
    peer_shares shares{peer_options{}};
    std::string state = "/nonexistent";
};

struct fixture {
    fixture()
    {
        host.table.add(modules::memfs);
        host.table.add(modules::posixfs);
        exports.emplace(table);
        exports->open(host, configs({"/a", "/b"}), {});
    }
    ~fixture()
    {
        exports->stop();
        host.rt->stop();
        exports.reset();
    }
    struct written {
        written(const char* p, std::vector<std::string> c = {}, const char* d = nullptr)
            : pseudo(p), clients(std::move(c)), directory(d)
        {
        }
        std::string pseudo;
        std::vector<std::string> clients;
        const char* directory; // of posixfs
    };
    std::vector<export_config> configs(const std::vector<written>& wanted)
    {
        setting_values::value::tables tables;
        for (const written& w : wanted) {
            setting_values& e = tables.emplace_back();
            e.set("pseudo", {w.pseudo});
            e.set("backend", {std::string(w.directory == nullptr ? "memfs" : "posixfs")});
            e.set("clients", {w.clients});
            if (w.directory != nullptr)
                e.set("directory", {std::string(w.directory)});
        }
        setting_values values;
        values.set("export", {std::move(tables)});
        check({setting::tables("export", export_settings(), "").open()}, values);
        return read_exports(values, host.table);
    }
    std::unique_ptr<reload_plan> plan(const std::vector<written>& wanted, bool looks = false,
                                      std::chrono::milliseconds patience = std::chrono::hours(1))
    {
        export_set::terms by{host, {}, nullptr, false, false, host.state, patience};
        return exports->plan(by, configs(wanted), looks);
    }
    std::string names() const
    {
        std::string text;
        for (const auto& e : exports->all())
            text += e->config.pseudo;
        return text;
    }
    // Of a shard's list.
    std::string seen(std::size_t shard)
    {
        return host.rt->call(shard, [this](verbena::shard&) {
            std::string text;
            for (const export_options& e : table.all())
                text += e.pseudo;
            return text;
        });
    }
    std::weak_ptr<export_backend> backend(const char* pseudo) const
    {
        const auto all = exports->all();
        return std::ranges::find(all, pseudo, [](const auto& e) { return e->config.pseudo; })->get()->backend;
    }
    static void until_gone(const std::weak_ptr<export_backend>& b)
    {
        while (!b.expired())
            std::this_thread::yield();
    }
    std::size_t up()
    {
        for (const metric_snapshot& m : host.registry.collect())
            if (m.family.name == "verbena_export_up")
                return m.samples.size();
        return 0;
    }

    one_host host;
    export_table table;
    std::optional<export_set> exports;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(exports_come_and_go_and_what_stays_has_its_back_end, fixture)
{
    const auto stays = backend("/a"), goes = backend("/b");
    auto p = plan({"/a", "/c"});
    BOOST_REQUIRE(p->changes.size() == 2u);
    BOOST_TEST((p->changes[0].what == "export /b" && p->changes[0].change == "removed"));
    BOOST_TEST((p->changes[1].what == "export /c" && p->changes[1].change.starts_with("added: ")));
    BOOST_TEST(names() == "/a/b");
    BOOST_TEST(seen(0) == "/a/b");
    p->apply();
    BOOST_TEST(p->late.empty());
    BOOST_TEST(names() == "/a/c");
    BOOST_TEST((seen(0) == "/a/c" && seen(1) == "/a/c"));
    until_gone(goes);
    BOOST_TEST((backend("/a").lock() == stays.lock()));
    BOOST_TEST(up() == 2u);
    p.reset();
    BOOST_TEST(plan({"/a", "/c"})->changes.empty());
}

BOOST_FIXTURE_TEST_CASE(a_plan_that_is_dropped_has_changed_nothing, fixture)
{
    for (const bool looks : {true, false}) {
        auto p = plan({"/a", "/c"}, looks);
        BOOST_TEST(p->changes.size() == 2u);
        p.reset();
        BOOST_TEST(names() == "/a/b");
        BOOST_TEST((seen(0) == "/a/b" && seen(1) == "/a/b"));
        BOOST_TEST(up() == 2u);
        BOOST_TEST(!backend("/b").expired());
    }
    // The first one is opened, and closed again when the second one can't be.
    BOOST_CHECK_THROW(plan({"/c", {"/d", {}, "/nonexistent/folder"}}), config_error);
    BOOST_TEST(names() == "/a/b");
    BOOST_TEST(up() == 2u);
}

BOOST_FIXTURE_TEST_CASE(who_is_at_work_keeps_a_back_end_open_and_the_name_taken, fixture)
{
    const auto goes = backend("/b");
    std::optional<export_table::use> call;
    std::optional<export_ref> at_work;
    host.rt->call(0, [&](shard&) {
        call = table.begin_use();
        at_work = *table.by_id(export_id_of("/b"));
    });
    auto p = plan({"/a"});
    p->apply();
    BOOST_TEST(seen(0) == "/a");
    p.reset();
    std::string said;
    try {
        (void)plan({"/a", "/b"});
    } catch (const config_error& e) {
        said = e.what();
    }
    BOOST_TEST(said.find("still use it") != said.npos, said);
    BOOST_TEST(!goes.expired());
    host.rt->call(0, [&](shard&) {
        at_work.reset();
        call.reset();
    });
    until_gone(goes);
    p = plan({"/a", "/b"});
    p->apply();
    BOOST_TEST(seen(1) == "/a/b");
}

BOOST_FIXTURE_TEST_CASE(clients_change_in_place, fixture)
{
    const auto before = backend("/b");
    auto p = plan({"/a", {"/b", {"192.0.2.0/24"}}});
    BOOST_REQUIRE(p->changes.size() == 1u);
    BOOST_TEST(p->changes[0].change == "clients: 192.0.2.0/24, was this host only");
    BOOST_TEST(!p->changes[0].needs_restart);
    p->apply();
    BOOST_TEST(host.rt->call(1, [this](shard&) {
        return table.by_id(export_id_of("/b"))->clients.texts().front();
    }) == "192.0.2.0/24");
    BOOST_TEST((backend("/b").lock() == before.lock()));
}

BOOST_FIXTURE_TEST_CASE(another_back_end_needs_a_restart_and_brings_no_other_clients, fixture)
{
    auto p = plan({{"/a", {"192.0.2.0/24"}}, {"/b", {"*"}, "/"}});
    BOOST_REQUIRE(p->changes.size() == 2u);
    BOOST_TEST(!p->changes[0].needs_restart);
    BOOST_TEST(p->changes[1].needs_restart);
    BOOST_TEST(p->changes[1].change == "backend: posixfs, was memfs");
    p->apply();
    BOOST_REQUIRE(seen(0) == "/a/b");
    BOOST_TEST(host.rt->call(0, [this](shard&) {
        return table.by_id(export_id_of("/b"))->clients.everybody();
    }) == false);
}

BOOST_FIXTURE_TEST_CASE(a_shard_that_hangs_takes_it_when_it_turns_again, fixture)
{
    const auto goes = backend("/b");
    std::promise<void> held, let_go;
    std::thread holds([&] {
        host.rt->call(1, [&](shard&) {
            held.set_value();
            let_go.get_future().wait();
        });
    });
    held.get_future().wait();
    auto p = plan({"/a"}, false, std::chrono::milliseconds(1));
    p->apply();
    BOOST_REQUIRE(!p->late.empty());
    BOOST_TEST(std::ranges::any_of(p->late, [](const std::string& t) { return t.starts_with("shard 1 "); }));
    BOOST_TEST(names() == "/a");
    BOOST_TEST(seen(0) == "/a");
    // It may still be at work on what goes.
    BOOST_TEST(!goes.expired());
    let_go.set_value();
    holds.join();
    BOOST_TEST(seen(1) == "/a");
    until_gone(goes);
}

BOOST_AUTO_TEST_SUITE_END()
