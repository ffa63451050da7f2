// SPDX-License-Identifier: Apache-2.0
// How a service puts its configuration together again, and that a mistake anywhere changes nothing.
#include <boost/test/unit_test.hpp>

#include <service/reloader.hpp>

#include <verbena/core/module/protocol_module.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

BOOST_AUTO_TEST_SUITE(reloader_test)

using namespace verbena;
using services::configuration_words;
using services::reloader;

namespace {

struct folder {
    folder()
    {
        std::string name = std::filesystem::temp_directory_path() / "verbena-reload-XXXXXX";
        path = ::mkdtemp(name.data());
    }
    folder(const folder&) = delete;
    ~folder() { std::filesystem::remove_all(path); }
    std::string write(const std::string& name, const std::string& text) const
    {
        std::ofstream(path / name) << text;
        return path / name;
    }
    std::filesystem::path path;
};

std::uint64_t number(const setting_values& values, const char* table, const char* name)
{
    return values.table(table).number(name);
}

// A protocol whose one setting can change, unless it is 13.
class changing final : public protocol_module, public reloadable {
public:
    std::string_view role_word() const noexcept override { return "verbs"; }
    std::vector<setting> settings() const override
    {
        return {setting::number("n", {0, 99}, 1, "A number"),
                setting::number("fixed", {0, 99}, 1, "Another")};
    }
    std::vector<std::string> default_listeners() const override { return {"tcp://127.0.0.1:0"}; }
    std::unique_ptr<reload_plan> plan_reload(setting_values& values, module_table&, bool) override
    {
        struct plan final : reload_plan {
            plan(changing& o, std::uint64_t n) : of(o), wanted(n) { ++of.plans; }
            ~plan() override { --of.plans; }
            void apply() noexcept override { of.runs = wanted; }
            changing& of;
            const std::uint64_t wanted;
        };
        const std::uint64_t n = values.number("n");
        if (n == 13)
            throw config_error(values.place("n"), "n: 13 is bad luck: take 12");
        auto made = std::make_unique<plan>(*this, n);
        if (n != runs)
            made->changes.push_back({"n", std::to_string(n), false});
        return made;
    }
    std::uint64_t runs = 1;
    int plans = 0;
};

struct fixture {
    fixture()
    {
        for (const auto& [descriptor, m] : {std::pair(&first, &one), std::pair(&second, &other)}) {
            auto made = std::make_unique<changing>();
            *m = made.get();
            modules.add(*descriptor, std::move(made), "here");
        }
    }
    reloader make()
    {
        reloader::terms t;
        t.program = "test";
        t.words = &words;
        t.modules = &modules;
        t.settings = [this] {
            std::vector<setting> all;
            all.push_back(setting::list("modules", "Files"));
            all.push_back(setting::table(
                "daemon",
                {setting::text("state", "", "A folder"), setting::number("speed", {0, 9}, 1, "How fast")},
                "The process"));
            all.push_back(setting::table("memory", {}, "Buffers"));
            all.push_back(setting::table("metrics", {}, "Metrics"));
            for (changing* m : {one, other}) {
                std::vector<setting> own = m->settings();
                own.push_back(setting::list("listen", "Where"));
                own.push_back(setting::flag("iwarp_crc", false, "Sums"));
                own.push_back(setting::number("rdma_read_seconds", {1, 99}, 30, "How long"));
                all.push_back(setting::table(m == one ? "one" : "other", std::move(own), "A protocol"));
            }
            return all;
        };
        t.complete = [](setting_values&) {};
        t.protocols = {{"one", {one}}, {"other", {other}}};
        t.running = words.said();
        check(t.settings(), t.running);
        for (const char* const name : {"one", "other"})
            std::get<setting_values::value::texts>(
                std::get<setting_values::value::tables>(t.running.find(name)->data)
                    .front()
                    .find("listen")
                    ->data) = one->default_listeners();
        t.at_once = {{"speed", [this](const setting_values& daemon) { speed = daemon.number("speed"); }}};
        return reloader(std::move(t));
    }
    static inline const module_descriptor first = {.name = "one", .version = "1", .summary = "one"};
    static inline const module_descriptor second = {.name = "other", .version = "1", .summary = "another"};
    folder here;
    module_table modules;
    changing* one = nullptr;
    changing* other = nullptr;
    configuration_words words;
    std::uint64_t speed = 1;
};

std::string complaint(reloader& r)
{
    try {
        (void)r.reload();
    } catch (const std::exception& e) {
        return e.what();
    }
    return {};
}

} // namespace

BOOST_AUTO_TEST_CASE(words_are_put_together_in_their_order_with_files_as_they_are_now)
{
    const folder here;
    const std::string file = here.write("f.toml", "[a]\nx = 1\ny = 1\nz = 1\n");
    configuration_words words;
    words.set("a.x", {std::int64_t(5)});
    words.load(file);
    words.set("a.y", {std::int64_t(7)});
    BOOST_TEST(number(words.said(), "a", "x") == 1u);
    BOOST_TEST(number(words.said(), "a", "y") == 7u);
    here.write("f.toml", "[a]\ny = 2\nz = 2\n");
    const setting_values now = words.again();
    BOOST_TEST(number(now, "a", "x") == 5u);
    BOOST_TEST(number(now, "a", "y") == 7u);
    BOOST_TEST(number(now, "a", "z") == 2u);
    BOOST_TEST(number(words.said(), "a", "z") == 1u);
    const std::string other = here.write("g.toml", "[a]\nz = 3\n");
    BOOST_TEST(number(words.again(&other), "a", "z") == 3u);
    BOOST_TEST(number(words.again(&other), "a", "y") == 7u);
    // Without a file of its own it stands beneath all that was said.
    configuration_words alone;
    alone.set("a.z", {std::int64_t(9)});
    BOOST_TEST(!alone.has_file());
    BOOST_TEST(number(alone.again(&other), "a", "z") == 9u);
}

BOOST_FIXTURE_TEST_CASE(what_can_change_changes_and_all_else_is_named, fixture)
{
    words.load(here.write("f.toml", "[one]\nn = 1\n[other]\nn = 1\n"));
    reloader r = make();
    here.write("f.toml", "[daemon]\nspeed = 3\n[one]\nn = 2\n[other]\nlisten = [\"tcp://127.0.0.1:7\"]\n");
    const auto done = r.reload();
    BOOST_TEST_REQUIRE(done.changes.size() == 3u);
    BOOST_TEST((done.changes[0].what == "daemon.speed" && done.changes[0].change == "3, was 1"));
    BOOST_TEST((done.changes[1].what == "n" && !done.changes[1].needs_restart));
    BOOST_TEST((done.changes[2].what == "other.listen" && done.changes[2].needs_restart));
    BOOST_TEST(speed == 3u);
    BOOST_TEST(one->runs == 2u);
    BOOST_TEST(one->plans + other->plans == 0);
    // What needs a restart is said again, what runs is not.
    BOOST_TEST(r.reload().changes.size() == 1u);
}

BOOST_FIXTURE_TEST_CASE(a_mistake_of_the_last_one_changes_nothing_of_the_first, fixture)
{
    words.load(here.write("f.toml", "[one]\nn = 1\n[other]\nn = 1\n"));
    reloader r = make();
    const std::string bad = here.write("f.toml", "[daemon]\nspeed = 3\n[one]\nn = 2\n[other]\nn = 13\n");
    BOOST_TEST(complaint(r) == bad + ":6:5: n: 13 is bad luck: take 12");
    BOOST_TEST((one->runs == 1u && other->runs == 1u && speed == 1u));
    BOOST_TEST(one->plans + other->plans == 0);
    here.write("f.toml", "[one]\nn = 2\n[other]\nn = 3\n");
    BOOST_TEST(r.look(nullptr).changes.size() == 2u);
    BOOST_TEST((one->runs == 1u && other->runs == 1u));
    BOOST_TEST(complaint(r).empty());
    BOOST_TEST((one->runs == 2u && other->runs == 3u));
}

BOOST_FIXTURE_TEST_CASE(without_a_file_there_is_nothing_to_read, fixture)
{
    words.set("one.n", {std::int64_t(1)});
    words.set("other.n", {std::int64_t(1)});
    reloader r = make();
    BOOST_TEST(complaint(r).find("has no file") != std::string::npos);
    BOOST_CHECK_THROW(r.look(nullptr), config_error);
    const std::string relative = "f.toml";
    BOOST_CHECK_THROW(r.look(&relative), config_error);
    r.stop();
    words.load(here.write("f.toml", "[one]\nn = 2\n"));
    BOOST_TEST(complaint(r) == "the program stops");
}

BOOST_AUTO_TEST_SUITE_END()
