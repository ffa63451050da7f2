// SPDX-License-Identifier: Apache-2.0
// Exports that a reload brings, changes and takes away, on two shards.
#include "../../../plugins/nfs/export_set.hpp"

#include <verbena/core/module/start_error.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/plugins/memfs.hpp>
#include <verbena/plugins/modules.hpp>
#include <verbena/protocols/storage/gated_backend.hpp>

#include "../log_at.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

BOOST_AUTO_TEST_SUITE(nfs_export_set_test)

using namespace verbena;
using namespace verbena::nfs;

namespace {

/// What its back ends are on, and what their lanes wait for while it hangs.
struct disk {
    void hang(bool then_fails)
    {
        const std::lock_guard lock(mutex);
        hangs = true;
        fails = then_fails;
    }
    void fail()
    {
        const std::lock_guard lock(mutex);
        fails = true;
    }
    void answer()
    {
        const std::lock_guard lock(mutex);
        hangs = fails = closes_hang = is_locked = false;
        fails_at_begin.clear();
        changed.notify_all();
    }
    std::mutex mutex;
    std::condition_variable changed;
    bool hangs = false, fails = false;
    bool closes_hang = false; // where files are closed
    unsigned closes = 0;      // those that have begun
    bool is_locked = false;
    std::string fails_at_begin; // the label of an export
    unsigned begun = 0;
    unsigned not_wanted = 0;                               // back ends that were told so
    std::vector<std::chrono::steady_clock::time_point> by; // until when each that was begun is waited for
    bool was_waited_for = false;
    std::weak_ptr<int> last; // of the last back end that was opened
};
disk the_disk;

/// Of one tree, whichever export has it.
class files_of_disk final : public storage::gated_backend {
public:
    explicit files_of_disk(std::unique_ptr<storage::file_backend> below)
        : gated_backend(std::move(below)), info_(gated_backend::info())
    {
        info_.file_space = 42;
    }
    ~files_of_disk() override
    {
        std::unique_lock lock(the_disk.mutex);
        ++the_disk.closes;
        the_disk.changed.notify_all();
        const auto answers = [] { return !the_disk.closes_hang; };
        if (!the_disk.changed.wait_for(lock, std::chrono::seconds(30), answers))
            the_disk.was_waited_for = true;
    }
    const storage::filesystem_info& info() const noexcept override { return info_; }
    bool gates(storage::operation) const noexcept override { return false; }
    task<result<void>> enter(storage::operation, const storage::request&, std::uint64_t) override
    {
        co_return result<void>();
    }

private:
    storage::filesystem_info info_;
};

class waits_for_disk final : public blocking_pool::job {
public:
    void execute() noexcept override
    {
        {
            std::unique_lock lock(the_disk.mutex);
            ++the_disk.begun;
            the_disk.changed.notify_all();
            // Whoever waits for this is let go in the end, to fail.
            const auto answers = [] { return !the_disk.hangs; };
            the_disk.was_waited_for = !the_disk.changed.wait_for(lock, std::chrono::seconds(30), answers);
        }
        delete this;
    }
    void deliver() noexcept override {}
};

/// As posixfs, which goes on with its start while its lane looks for a root that does not answer.
class hung_module final : public storage::backend_module {
public:
    std::vector<setting> settings() const override { return {}; }
    storage::opened_backend open(const setting_values& values, const storage::open_context& context) override
    {
        return begin_open(values, context)->finish();
    }
    std::unique_ptr<storage::opening> begin_open(const setting_values&,
                                                 const storage::open_context& context) override
    {
        auto made = std::make_unique<begun>(context);
        auto job = std::make_unique<waits_for_disk>();
        const std::lock_guard lock(the_disk.mutex);
        if (the_disk.fails_at_begin == context.label)
            throw config_error("it can't be begun");
        made->before = the_disk.begun;
        the_disk.by.push_back(context.answer_by.value());
        if (context.lane.submit(*job))
            (void)job.release();
        return made;
    }

private:
    struct begun final : storage::opening {
        explicit begun(const storage::open_context& c) noexcept : context(c) {}
        storage::opened_backend finish() override
        {
            std::unique_lock lock(the_disk.mutex);
            the_disk.changed.wait(lock, [this] { return the_disk.begun != before; });
            if (the_disk.fails)
                throw config_error("there is something else that is wrong");
            storage::opened_backend out;
            out.files = std::make_unique<files_of_disk>(memfs::open_memfs({}, context.lane).value());
            out.has_locks = []() -> bool {
                const std::lock_guard here(the_disk.mutex);
                return the_disk.fails ? throw std::runtime_error("by hand") : the_disk.is_locked;
            };
            auto lives = std::make_shared<int>();
            the_disk.last = lives;
            out.is_up = [lives] { return *lives == 0; };
            out.not_wanted = [] {
                const std::lock_guard here(the_disk.mutex);
                ++the_disk.not_wanted;
            };
            return out;
        }
        const storage::open_context& context;
        unsigned before = 0;
    };
};

const module_descriptor hung = {
    .name = "hung",
    .version = "1",
    .summary = "what a disk keeps",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<hung_module>(); },
};

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
        host.table.add(hung);
        exports.emplace(table);
        exports->open(host, configs({"/a", "/b"}), {}, wait);
    }
    ~fixture()
    {
        the_disk.answer();
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
    static constexpr const char* on_disk = ""; // as its directory
    std::vector<export_config> configs(const std::vector<written>& wanted)
    {
        setting_values::value::tables tables;
        for (const written& w : wanted) {
            setting_values& e = tables.emplace_back();
            e.set("pseudo", {w.pseudo});
            e.set("backend", {std::string(w.directory == nullptr   ? "memfs"
                                          : w.directory == on_disk ? "hung"
                                                                   : "posixfs")});
            e.set("clients", {w.clients});
            if (w.directory != nullptr && w.directory != on_disk)
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
        export_set::terms by{host,           {},     nullptr,   false,  false, host.state, patience,
                             close_patience, parked, suspended, closing};
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
    static void until_gone(const std::weak_ptr<int>& kept)
    {
        while (!kept.expired())
            std::this_thread::yield();
    }
    // Something runs on its lane until the disk answers.
    static void occupy(const std::weak_ptr<export_backend>& b)
    {
        auto job = std::make_unique<waits_for_disk>();
        if (b.lock()->lane->submit(*job))
            (void)job.release();
    }
    void until_it_waits_for(const std::string& pseudo, const std::string& what) const
    {
        for (;;) {
            for (const auto& each : exports->all_leaving())
                if (each.as.pseudo == pseudo && each.why.starts_with("waits for " + what))
                    return;
            std::this_thread::yield();
        }
    }
    // Exports whose disks are waited for, be they served or not.
    std::size_t hanging() const
    {
        return std::size_t(std::ranges::count_if(
            host.rt->stuck_lanes({}), [](const auto& lane) { return lane.name.starts_with("export "); }));
    }
    // What was given up, and keeps nobody waiting, goes behind the answer.
    void answer_and_close()
    {
        BOOST_TEST_REQUIRE(!the_disk.was_waited_for);
        the_disk.answer();
        while (hanging() != 0)
            std::this_thread::yield();
        (void)plan({"/a", "/b"});
    }
    std::string why_not(const std::vector<written>& wanted, bool looks = true)
    {
        try {
            (void)plan(wanted, looks);
        } catch (const config_error& e) {
            return e.what();
        }
        return {};
    }
    std::size_t up()
    {
        for (const metric_snapshot& m : host.registry.collect())
            if (m.family.name == "verbena_export_up")
                return m.samples.size();
        return 0;
    }

    one_host host;
    export_table table, another_table;
    hung_wait wait;
    std::optional<export_set> exports;
    std::size_t closing = export_set::most_closing;
    std::chrono::milliseconds close_patience = std::chrono::hours(1);
    std::size_t parked = export_set::most_parked;
    std::map<std::uint32_t, std::string> suspended;
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
    BOOST_TEST(said.find("it waits for calls of clients that use it: see verbena admin requests") !=
                   said.npos,
               said);
    BOOST_TEST(!goes.expired());
    const auto leaving = exports->all_leaving();
    BOOST_TEST_REQUIRE(leaving.size() == 1u);
    BOOST_TEST((leaving[0].as.pseudo == "/b" && leaving[0].why.starts_with("waits for calls of clients")));
    host.rt->call(0, [&](shard&) {
        at_work.reset();
        call.reset();
    });
    until_gone(goes);
    while (!exports->all_leaving().empty())
        std::this_thread::yield();
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

BOOST_FIXTURE_TEST_CASE(delegations_go_only_where_a_change_keeps_somebody_out, fixture)
{
    const export_config before = configs({"/b"}).front();
    const auto lost = [&](const std::function<void(export_config&)>& change) {
        export_config one = before, other = before;
        change(other);
        return std::pair(lost_by_change(one, other), lost_by_change(other, one));
    };
    using enum lost_delegations;
    const auto is = [](const auto& pair, lost_delegations there, lost_delegations back) {
        return pair.first == there && pair.second == back;
    };
    BOOST_TEST(is(lost([](export_config&) {}), none, none));
    BOOST_TEST(is(lost([](export_config& e) { e.read_only = e.all_squash = true; }), none, none));
    BOOST_TEST(is(lost([](export_config& e) { e.values.set("clients", {std::vector<std::string>{"*"}}); }),
                  of_kept_out, of_kept_out));
    BOOST_TEST(is(lost([](export_config& e) { e.secure = true; }), all, none));
    BOOST_TEST(is(lost([](export_config& e) { e.transports = {"tcp"}; }), all, none));
    export_config both = before, tcp = before, rdma = before;
    both.transports = {"tcp", "rdma"};
    tcp.transports = {"tcp"};
    rdma.transports = {"rdma"};
    BOOST_TEST((lost_by_change(both, tcp) == all && lost_by_change(tcp, both) == none));
    BOOST_TEST((lost_by_change(tcp, rdma) == all));
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

BOOST_FIXTURE_TEST_CASE(a_disk_that_hangs_holds_up_nobody_who_opened_something_there_for_nothing, fixture)
{
    const test::log_at quiet(log_level::error);
    close_patience = std::chrono::milliseconds(1);
    for (const bool looks : {true, false}) {
        the_disk.hang(false);
        auto p = plan({"/a", "/b", {"/c", {}, on_disk}}, looks);
        BOOST_TEST(p->changes.size() == 1u);
        p.reset();
        const auto kept = the_disk.last;
        BOOST_TEST(!kept.expired());
        BOOST_TEST(up() == 2u); // nothing is told of it
        (void)plan({"/a", "/b"});
        BOOST_TEST(!kept.expired());
        BOOST_TEST_REQUIRE(!the_disk.was_waited_for);
        BOOST_TEST(the_disk.not_wanted == 1u);
        BOOST_TEST(exports->count_unclosed().unused == 1u);
        // It ends when the disk answers, without another reload.
        the_disk.not_wanted = 0;
        the_disk.answer();
        until_gone(kept);
        BOOST_TEST(exports->count_unclosed().unused == 0u);
        // What could not be opened at all, too.
        the_disk.hang(true);
        BOOST_CHECK_THROW((void)plan({"/a", "/b", {"/c", {}, on_disk}}, looks), config_error);
        BOOST_TEST_REQUIRE(!the_disk.was_waited_for);
        the_disk.answer();
        while (exports->count_unclosed().unused != 0)
            std::this_thread::yield();
    }
    BOOST_TEST(names() == "/a/b");
}

BOOST_FIXTURE_TEST_CASE(what_disks_keep_is_bounded, fixture)
{
    const test::log_at quiet(log_level::error);
    close_patience = std::chrono::milliseconds(1);
    parked = 2;
    the_disk.hang(false);
    (void)plan({"/a", "/b", {"/c", {}, on_disk}}, true);
    const auto first = the_disk.last;
    const auto refuses = [&](const std::vector<written>& more) {
        std::vector<written> all = {"/a", "/b"};
        all.insert(all.end(), more.begin(), more.end());
        std::string said;
        try {
            (void)plan(all, true);
        } catch (const start_error& e) {
            said = e.what();
        }
        BOOST_TEST(said.find("the disks of 2 exports") != said.npos, said);
    };
    refuses({{"/c", {}, on_disk}, {"/d", {}, on_disk}});
    refuses({{"/c", {}, on_disk}});
    the_disk.answer();
    until_gone(first);
    auto p = plan({"/a", "/b", {"/c", {}, on_disk}});
    p->apply();
    BOOST_TEST(names() == "/a/b/c");
}

// All are begun before one is waited for.
BOOST_FIXTURE_TEST_CASE(what_was_begun_beside_one_that_fails_waits_for_no_disk, fixture)
{
    const test::log_at quiet(log_level::error);
    close_patience = std::chrono::milliseconds(1);
    const std::vector<written> wanted = {
        "/a", "/b", {"/c", {}, on_disk}, {"/d", {}, on_disk}, {"/e", {}, on_disk}};
    for (const bool looks : {true, false}) {
        the_disk.hang(false);
        the_disk.fails_at_begin = "/d";
        const std::string at_begin = why_not(wanted, looks);
        BOOST_TEST(at_begin.find("it can't be begun") != at_begin.npos, at_begin);
        BOOST_TEST(hanging() == 1u);
        answer_and_close();
        the_disk.hang(true);
        const std::string at_end = why_not(wanted, looks);
        BOOST_TEST(at_end.find("something else that is wrong") != at_end.npos, at_end);
        BOOST_TEST(hanging() == 3u);
        answer_and_close();
    }
    // None is kept: each may be had.
    parked = 3;
    plan(wanted)->apply();
    BOOST_TEST(names() == "/a/b/c/d/e");
    BOOST_TEST(hanging() == 0u);
}

BOOST_FIXTURE_TEST_CASE(a_start_that_fails_waits_for_no_disk, fixture)
{
    const test::log_at quiet(log_level::error);
    exports->stop();
    exports.emplace(table);
    the_disk.hang(true);
    std::string said;
    try {
        exports->open(host, configs({{"/c", {}, on_disk}, {"/d", {}, on_disk}, {"/e", {}, on_disk}}), {},
                      wait);
    } catch (const config_error& e) {
        said = e.what();
    }
    BOOST_TEST(said.find("something else that is wrong") != said.npos, said);
    BOOST_TEST(hanging() == 3u);
    answer_and_close();
    BOOST_TEST(hanging() == 0u);
}

// Of disks that hang each has its share of one time, and not a time of its own.
BOOST_AUTO_TEST_CASE(a_thousand_disks_that_hang_are_waited_for_no_longer_than_one)
{
    using std::chrono::milliseconds;
    hung_wait wait;
    const hung_wait::clock::time_point start{};
    auto now = start, until = start;
    BOOST_TEST((wait.until(now) == start + milliseconds(5000)));
    for (int i = 0; i < 1000; ++i) {
        until = std::max(until, wait.until(now));
        const auto begun = now;
        now += wait.pause();
        wait.note_hung(begun);
    }
    BOOST_TEST((now == start + milliseconds(2500)));
    BOOST_TEST((until == start + milliseconds(5000)));
    // One that is opened later, since others took their time, may answer all the same.
    now = start + milliseconds(9000);
    BOOST_TEST((wait.until(now) == now + milliseconds(500)));
    BOOST_TEST((wait.pause() == milliseconds(0)));
}

BOOST_FIXTURE_TEST_CASE(disks_that_hang_are_given_up_at_one_moment, fixture)
{
    the_disk.by.clear();
    the_disk.hang(false);
    exports->stop();
    exports.emplace(another_table);
    wait = hung_wait(std::chrono::hours(1));
    exports->open(host, configs({{"/c", {}, on_disk}, {"/d", {}, on_disk}, {"/e", {}, on_disk}}), {}, wait);
    BOOST_TEST_REQUIRE(the_disk.by.size() == 3u);
    BOOST_TEST((the_disk.by[1] == the_disk.by[0] && the_disk.by[2] == the_disk.by[0]));
    BOOST_TEST(hanging() == 3u);
    BOOST_TEST_REQUIRE(!the_disk.was_waited_for);
}

BOOST_FIXTURE_TEST_CASE(no_more_are_begun_than_may_be_kept, fixture)
{
    const test::log_at quiet(log_level::error);
    close_patience = std::chrono::milliseconds(1);
    parked = 2;
    const std::vector<written> wanted = {
        "/a", "/b", {"/c", {}, on_disk}, {"/d", {}, on_disk}, {"/e", {}, on_disk}, {"/f", {}, on_disk}};
    the_disk.hang(false);
    const std::string said = why_not(wanted);
    BOOST_TEST(said.find("the disks of 2 exports") != said.npos, said);
    BOOST_TEST(hanging() == 2u);
    // One is kept: one more is begun.
    answer_and_close();
    the_disk.hang(false);
    (void)plan({"/a", "/b", {"/c", {}, on_disk}}, true);
    (void)why_not(wanted);
    BOOST_TEST(hanging() == 2u);
    answer_and_close();
    plan(wanted)->apply();
    BOOST_TEST(names() == "/a/b/c/d/e/f");
}

// Nothing of them holds up another one, nor the reload.
BOOST_FIXTURE_TEST_CASE(exports_that_nobody_can_close_take_no_thread_and_are_told, fixture)
{
    const test::log_at quiet(log_level::error);
    closing = 3;
    std::vector<written> all = {"/a", {"/c0", {}, on_disk}, {"/c1", {}, on_disk}, {"/c2", {}, on_disk}, "/d"};
    plan(all)->apply();
    const auto goes = backend("/d");
    std::vector<std::weak_ptr<export_backend>> hung;
    the_disk.hang(false);
    for (const char* name : {"/c0", "/c1"}) {
        hung.push_back(backend(name));
        occupy(hung.back());
    }
    for (int i = 0; i < 2; ++i) {
        all.erase(all.begin() + 1);
        plan(all)->apply();
    }
    while (exports->all_leaving().size() != 2 ||
           !exports->all_leaving()[1].why.starts_with("waits for its disk"))
        std::this_thread::yield();
    BOOST_TEST(exports->all_leaving()[0].why.starts_with("waits for its disk"));
    BOOST_TEST_REQUIRE(
        (exports->all_leaving()[0].as.pseudo == "/c0" && exports->count_unclosed().removed == 2u));
    // One whose disk answers is closed beside them.
    all.pop_back();
    plan(all)->apply();
    until_gone(goes);
    while (exports->count_unclosed().removed != 2)
        std::this_thread::yield();
    (void)plan(all);
    closing = 2;
    all.pop_back();
    const std::string said = why_not(all, false);
    BOOST_TEST(said.find("2 exports that were removed before are still being closed") != said.npos, said);
    BOOST_TEST(said.find("verbena admin exports") != said.npos, said);
    BOOST_TEST(names() == "/a/c2");
    BOOST_TEST_REQUIRE(!the_disk.was_waited_for);
    the_disk.answer();
    for (const auto& each : hung)
        until_gone(each);
    while (exports->count_unclosed().removed != 0)
        std::this_thread::yield();
    plan(all)->apply();
    BOOST_TEST(names() == "/a");
}

BOOST_FIXTURE_TEST_CASE(of_exports_that_one_reload_removes_none_waits_for_another, fixture)
{
    const test::log_at quiet(log_level::error);
    plan({"/a", {"/c", {}, on_disk}, "/d", "/e"})->apply();
    const auto hung = backend("/c"), used = backend("/d"), goes = backend("/e");
    the_disk.hang(false);
    occupy(hung);
    std::optional<export_table::use> call;
    std::optional<export_ref> at_work;
    host.rt->call(0, [&](shard&) {
        call = table.begin_use();
        at_work = *table.by_id(export_id_of("/d"));
    });
    plan({"/a"})->apply();
    until_gone(goes);
    until_it_waits_for("/c", "its disk");
    until_it_waits_for("/d", "calls of clients");
    while (exports->count_unclosed().removed != 2)
        std::this_thread::yield();
    // Each says why it can't be had again.
    std::string said = why_not({"/a", "/d"});
    BOOST_TEST(
        said.find("/d: it was removed by a reload before, and is not closed yet: it waits for calls") !=
            said.npos,
        said);
    said = why_not({"/a", {"/c", {}, on_disk}});
    BOOST_TEST(
        said.find("/c: it was removed by a reload before, and is not closed yet: it waits for its disk") !=
            said.npos,
        said);
    plan({"/a", "/e"})->apply();
    BOOST_TEST(names() == "/a/e");
    host.rt->call(0, [&](shard&) {
        at_work.reset();
        call.reset();
    });
    until_gone(used);
    BOOST_TEST(!hung.expired());
    BOOST_TEST_REQUIRE(!the_disk.was_waited_for);
    the_disk.answer();
    until_gone(hung);
}

// A disk that hangs just when files are closed is nobody's who removes or looks at exports, and all closes are begun at once.
BOOST_FIXTURE_TEST_CASE(closes_that_hang_hold_up_no_other_and_no_reload, fixture)
{
    const test::log_at quiet(log_level::error);
    std::vector<written> all = {"/a", "/b"};
    for (const char* name : {"/c0", "/c1", "/c2", "/c3", "/c4", "/c5", "/c6", "/c7"})
        all.emplace_back(name, std::vector<std::string>(), on_disk);
    plan(all)->apply();
    {
        const std::lock_guard lock(the_disk.mutex);
        the_disk.closes_hang = true;
        the_disk.closes = 0;
    }
    all.erase(all.begin() + 3, all.end());
    plan(all)->apply(); // seven go
    {
        std::unique_lock lock(the_disk.mutex);
        BOOST_TEST_REQUIRE(
            the_disk.changed.wait_for(lock, std::chrono::seconds(20), [] { return the_disk.closes == 7; }));
    }
    BOOST_TEST(exports->count_unclosed().removed == 7u);
    BOOST_TEST(up() == 3u);
    BOOST_TEST(why_not({"/a", "/b", "/d"}).empty());
    plan({"/a", "/b", "/d"})->apply();
    BOOST_TEST(names() == "/a/b/d");
    until_it_waits_for("/c0", "its disk");
    BOOST_TEST_REQUIRE(!the_disk.was_waited_for);
    the_disk.answer();
    while (exports->count_unclosed().removed != 0)
        std::this_thread::yield();
}

BOOST_FIXTURE_TEST_CASE(what_an_earlier_reload_left_for_its_locks_keeps_no_export_open, fixture)
{
    const test::log_at quiet(log_level::error);
    plan({"/a", {"/c", {}, on_disk}, {"/d", {}, on_disk}, {"/e", {}, on_disk}})->apply();
    const auto locked = backend("/c"), goes = backend("/d");
    {
        const std::lock_guard lock(the_disk.mutex);
        the_disk.is_locked = true;
    }
    plan({"/a", {"/d", {}, on_disk}, {"/e", {}, on_disk}})->apply();
    while (exports->count_unclosed().removed != 0)
        std::this_thread::yield();
    BOOST_TEST(!locked.expired());
    {
        const std::lock_guard lock(the_disk.mutex);
        the_disk.is_locked = false;
    }
    the_disk.hang(false);
    occupy(locked);
    plan({"/a", {"/e", {}, on_disk}})->apply();
    until_gone(goes);
    while (exports->count_unclosed().removed != 0)
        std::this_thread::yield();
    BOOST_TEST(!locked.expired());
    BOOST_TEST_REQUIRE(!the_disk.was_waited_for);
    the_disk.answer();
    until_gone(locked);
}

// The locks of a tree may be held by the back end of an export that went before: it stays until they are gone, whatever else closes.
BOOST_FIXTURE_TEST_CASE(what_has_locks_of_a_tree_goes_no_sooner_than_they, fixture)
{
    const test::log_at quiet(log_level::error);
    plan({"/a", "/b", {"/c", {}, on_disk}, {"/d", {}, on_disk}})->apply();
    const auto locked = backend("/c"), last = backend("/d"), other = backend("/b");
    const auto has_locks = [](bool now) {
        const std::lock_guard lock(the_disk.mutex);
        the_disk.is_locked = now;
    };
    has_locks(true);
    plan({"/a", "/b", {"/d", {}, on_disk}})->apply();
    while (exports->count_unclosed().removed != 0)
        std::this_thread::yield();
    plan({"/a"})->apply();
    until_gone(other);
    for (const char* name :
         {"/x", "/y", "/z"}) { // each has a turn behind all that was taken with the one before
        plan({"/a", name})->apply();
        const auto next = backend(name);
        plan({"/a"})->apply();
        until_gone(next);
    }
    while (exports->count_unclosed().removed > 1)
        std::this_thread::yield();
    BOOST_TEST_REQUIRE(exports->count_unclosed().removed == 1u);
    BOOST_TEST(!locked.expired());
    BOOST_TEST(!last.expired());
    has_locks(false);
    until_gone(last);
    until_gone(locked);
}

BOOST_FIXTURE_TEST_CASE(a_removed_export_serves_no_root_that_comes_later, fixture)
{
    const test::log_at quiet(log_level::error);
    plan({"/a", {"/c", {}, on_disk}, {"/d", {}, on_disk}})->apply();
    const auto goes = backend("/c");
    the_disk.hang(false);
    occupy(goes);
    the_disk.not_wanted = 0;
    plan({"/a", {"/d", {}, on_disk}})->apply(); // which waits for the first of what is taken
    BOOST_TEST(the_disk.not_wanted == 1u);
    BOOST_TEST_REQUIRE(!the_disk.was_waited_for);
    the_disk.answer();
    until_gone(goes);
    BOOST_TEST(the_disk.not_wanted == 1u);
}

BOOST_FIXTURE_TEST_CASE(what_is_given_up_without_a_thread_comes_to_no_life, fixture)
{
    const test::log_at quiet(log_level::error);
    close_patience = std::chrono::milliseconds(1);
    // None is left for those that close.
    std::vector<blocking_pool*> lanes;
    for (;;) {
        const auto lane = host.rt->add_lane("another", 1);
        if (!lane)
            break;
        lanes.push_back(*lane);
    }
    host.rt->remove_lane(*lanes.back());
    the_disk.hang(false);
    the_disk.not_wanted = 0;
    (void)plan({"/a", "/b", {"/c", {}, on_disk}}, true);
    BOOST_TEST(the_disk.not_wanted == 1u);
    BOOST_TEST(exports->count_unclosed().unused == 1u);
    const auto kept = the_disk.last;
    BOOST_TEST_REQUIRE(!the_disk.was_waited_for);
    the_disk.answer();
    while (hanging() != 0)
        std::this_thread::yield();
    (void)plan({"/a", "/b"}); // as the line says
    until_gone(kept);
    BOOST_TEST(exports->count_unclosed().unused == 0u);
}

BOOST_FIXTURE_TEST_CASE(the_thread_that_closes_exports_has_a_name_and_takes_no_signal, fixture)
{
    plan({"/a"})->apply();
    std::string blocked;
    while (blocked.empty())
        for (const auto& each : std::filesystem::directory_iterator("/proc/self/task")) {
            std::string name;
            std::getline(std::ifstream(each.path() / "comm"), name);
            std::ifstream status(each.path() / "status");
            for (std::string line; name == "closing exports" && std::getline(status, line);)
                if (line.starts_with("SigBlk:"))
                    blocked = line.substr(7);
        }
    BOOST_TEST((std::stoull(blocked, nullptr, 16) >> (SIGUSR1 - 1) & 1) == 1u);
}

BOOST_FIXTURE_TEST_CASE(whoever_looks_at_an_export_keeps_it_open, fixture)
{
    plan({"/a", "/b", "/c"})->apply();
    const auto goes = backend("/b"), later = backend("/c");
    std::optional<export_set::exports> looked = exports->all();
    plan({"/a", "/c"})->apply();
    plan({"/a"})->apply();
    BOOST_TEST(!goes.expired());
    looked->pop_back(); // /c
    until_gone(later);
    for (int i = 0; i < 20; ++i) // some time for whoever closes it
        (void)plan({"/a"});
    until_it_waits_for("/b", "a command or a scrape");
    BOOST_TEST(!goes.expired());
    BOOST_TEST((looked->back()->backend == goes.lock()));
    looked.reset();
    until_gone(goes);
}

// As a suspension does whose end is left to a task.
BOOST_FIXTURE_TEST_CASE(whoever_has_its_back_end_keeps_it_open, fixture)
{
    plan({"/a", "/b", "/c"})->apply();
    const auto goes = backend("/b"), later = backend("/c");
    std::shared_ptr<export_backend> has = goes.lock();
    plan({"/a", "/c"})->apply();
    plan({"/a"})->apply();
    until_gone(later);
    for (int i = 0; i < 20; ++i)
        (void)plan({"/a"});
    BOOST_TEST(!has->is_closed_early);
    has.reset();
    until_gone(goes);
}

BOOST_FIXTURE_TEST_CASE(what_goes_has_no_metrics_while_calls_hang, fixture)
{
    std::optional<export_ref> at_work;
    host.rt->call(0, [&](shard&) { at_work = *table.by_id(export_id_of("/b")); });
    plan({"/a"})->apply();
    BOOST_TEST(up() == 1u);
    host.rt->call(0, [&](shard&) { at_work.reset(); });
}

BOOST_FIXTURE_TEST_CASE(nothing_is_added_of_a_tree_that_is_suspended, fixture)
{
    plan({"/a", "/b", {"/c", {}, on_disk}})->apply();
    suspended[table.newest()->by_id(export_id_of("/c"))->space] = "/c";
    for (const bool looks : {true, false}) {
        std::string said;
        try {
            (void)plan({"/a", "/b", {"/c", {}, on_disk}, {"/d", {}, on_disk}}, looks);
        } catch (const start_error& e) {
            said = e.what();
        }
        BOOST_TEST(said.find("export /c, which is suspended: resume that first") != said.npos, said);
    }
    // One of another tree is.
    plan({"/a", "/b", {"/c", {}, on_disk}, "/e"})->apply();
    BOOST_TEST(names() == "/a/b/c/e");
    suspended.clear();
    plan({"/a", "/b", {"/c", {}, on_disk}, "/e", {"/d", {}, on_disk}})->apply();
    BOOST_TEST(names() == "/a/b/c/e/d");
}

BOOST_FIXTURE_TEST_CASE(an_export_that_can_t_be_closed_is_told_apart_from_one_that_is_used, fixture)
{
    const test::log_at quiet(log_level::off);
    plan({"/a", "/b", {"/c", {}, on_disk}, {"/d", {}, on_disk}})->apply();
    the_disk.fail();
    plan({"/a", "/b", {"/c", {}, on_disk}})->apply();
    std::string said;
    for (int i = 0; i < 1000 && (i == 0 || said.find("is not closed yet") != said.npos); ++i) {
        said.clear();
        std::this_thread::yield();
        try {
            (void)plan({"/a", "/b", {"/c", {}, on_disk}, {"/d", {}, on_disk}});
        } catch (const start_error& e) {
            said = e.what();
        }
    }
    BOOST_TEST(said.find("could not be closed (by hand): restart the program") != said.npos, said);
}

BOOST_AUTO_TEST_SUITE_END()
