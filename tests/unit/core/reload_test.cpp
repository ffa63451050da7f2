// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/core/adjustable.hpp>
#include <verbena/core/module/module.hpp>
#include <verbena/core/module/reload.hpp>

#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(reload_test)

using namespace verbena;
using value = setting_values::value;

namespace {

const std::vector<setting> declared = {
    setting::flag("fast", true, "Goes fast"),
    setting::number("count", {2, 9}, 5, "How many"),
    setting::number("shards", {1, 256}, 0, "Threads").optional("one per CPU"),
    setting::text("name", "", "Who"),
    setting::list("clients", "Who may come"),
    setting::table("inner", {setting::number("depth", {0, 3}, 1, "How deep")}, "More"),
    setting::tables("export", {setting::text("path", "/", "Where")}, "What"),
    setting::text("api_key", "", "A secret"),
    setting::table("credentials", {setting::text("user", "", "Who")}, "More of them"),
};

struct words {
    words() { check(declared, running); }
    words& say(const std::string& path, value v)
    {
        wanted.set_path(path, std::move(v));
        return *this;
    }
    std::string changes()
    {
        check(declared, wanted);
        std::vector<reload_change> all;
        note_changes(declared, running, wanted, "x.", true, all);
        std::string text;
        for (const reload_change& c : all)
            text += c.what + ": " + c.change + (c.needs_restart ? "!\n" : "\n");
        return text;
    }
    setting_values running, wanted;
};

} // namespace

BOOST_AUTO_TEST_CASE(a_default_that_is_written_is_no_change)
{
    BOOST_TEST(words().changes().empty());
    BOOST_TEST(
        words().say("count", {std::int64_t(5)}).say("inner.depth", {std::int64_t(1)}).changes().empty());
}

BOOST_AUTO_TEST_CASE(each_setting_that_differs_is_named_with_both_values)
{
    BOOST_TEST(words()
                   .say("fast", {false})
                   .say("count", {std::int64_t(7)})
                   .say("shards", {std::int64_t(2)})
                   .say("name", {std::string("a\x1b")})
                   .say("clients", {value::texts{"one", "two"}})
                   .say("inner.depth", {std::int64_t(2)})
                   .changes() ==
               "x.fast: false, was true!\nx.count: 7, was 5!\nx.shards: 2, was nothing!\n"
               "x.name: a\\033, was nothing!\nx.clients: one, two, was nothing!\nx.inner.depth: 2, was 1!\n");
    value exports{value::tables(1)};
    BOOST_TEST(words().say("export", std::move(exports)).changes() == "x.export: changed!\n");
}

namespace {

class nothing : public module {
public:
    std::string_view role() const noexcept override { return "back end"; }
};

} // namespace

BOOST_AUTO_TEST_CASE(of_a_secret_it_is_told_that_it_changed)
{
    words w;
    w.running.set_path("api_key", {std::string("hunter1")});
    w.running.set_path("credentials.user", {std::string("ada")});
    BOOST_TEST(
        w.say("api_key", {std::string("hunter2")}).say("credentials.user", {std::string("eve")}).changes() ==
        "x.api_key: changed!\nx.credentials: changed!\n");
    BOOST_TEST(reload_text(w.running, "api_key") == "(not shown)");
    BOOST_TEST(change_text(w.running, w.wanted, "api_key") == "changed");
}

BOOST_AUTO_TEST_CASE(no_module_comes_into_use_behind_the_start)
{
    static const module_descriptor used = {.name = "used", .version = "1", .summary = "one"};
    static const module_descriptor other = {.name = "other", .version = "1", .summary = "another"};
    module_table table;
    table.add(used, std::make_unique<nothing>(), "here");
    table.add(other, std::make_unique<nothing>(), "here");
    (void)table.use<module>("used", "back end");
    table.start_began();
    BOOST_TEST(&table.use<module>("used", "back end") == table.find("used"));
    std::string said;
    try {
        (void)table.use<module>("other", "back end");
    } catch (const config_error& e) {
        said = e.what();
    }
    BOOST_TEST(said.find("other was not in use when the program started") != said.npos, said);
    BOOST_TEST(said.find("restart") != said.npos, said);
    BOOST_TEST(!table.all()[1].used);
}

BOOST_AUTO_TEST_CASE(a_number_that_is_set_is_read)
{
    struct limits {
        adjustable<std::size_t> most = 3;
    };
    limits one, other;
    one.most = 7;
    other = one;
    const limits copy(other);
    BOOST_TEST(std::size_t(copy.most) == 7u);
    one.most = 8;
    BOOST_TEST(std::size_t(copy.most) == 7u);
}

BOOST_AUTO_TEST_SUITE_END()
