// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/core/module/settings.hpp>

#include <stdexcept>
#include <string>

BOOST_AUTO_TEST_SUITE(settings_test)

using namespace verbena;
using value = setting_values::value;

namespace {

const std::vector<setting> declared = {
    setting::flag("fast", true, "Goes fast"),
    setting::number("count", {2, 9}, 5, "How many"),
    setting::number("shards", {1, 256}, 0, "Threads").optional("one per CPU"),
    setting::text("name", "nobody", "Who"),
    setting::word("mode", {"auto", "no"}, "auto", "How"),
    setting::list("clients", "Who may come"),
    setting::table("inner", {setting::number("depth", {0, 3}, 1, "How deep")}, "More"),
    setting::tables("export", {setting::text("path", "/", "Where")}, "What").open(),
};

template<class F>
std::string complaint(F f)
{
    try {
        f();
    } catch (const config_error& e) {
        return e.what();
    }
    return {};
}

std::string said(std::string name, value v)
{
    v.place = {"f:1:2: "};
    v.key_place = {"f:1:1: "};
    setting_values values;
    values.set(std::move(name), std::move(v));
    return complaint([&] { check(declared, values, "x."); });
}

} // namespace

BOOST_AUTO_TEST_CASE(what_nobody_wrote_has_its_default)
{
    setting_values v;
    check(declared, v);
    BOOST_TEST(v.flag("fast"));
    BOOST_TEST(v.number("count") == 5U);
    BOOST_TEST((v.find("shards") == nullptr));
    BOOST_TEST(v.text("name") == "nobody");
    BOOST_TEST(v.text("mode") == "auto");
    BOOST_TEST(v.list("clients").empty());
    BOOST_TEST(v.table("inner").number("depth") == 1U);
    BOOST_TEST(v.tables("export").empty());
    BOOST_TEST(!v.written("count"));
}

BOOST_AUTO_TEST_CASE(a_module_that_reads_what_it_does_not_declare_hears_of_it)
{
    setting_values v;
    check(declared, v);
    BOOST_CHECK_THROW((void)v.text("nam"), std::logic_error);
    BOOST_CHECK_THROW((void)v.number("name"), std::logic_error);
    BOOST_CHECK_THROW((void)v.table("export"), std::logic_error);
}

BOOST_AUTO_TEST_CASE(types_and_ranges_are_checked_with_their_place)
{
    BOOST_TEST(said("count", value{std::int64_t(1)}) == "f:1:2: x.count must be a number from 2 to 9, not 1");
    BOOST_TEST(said("count", value{std::int64_t(9)}) == "");
    BOOST_TEST(said("count", value{std::string("3")}) == "f:1:2: x.count must be a number from 2 to 9");
    BOOST_TEST(said("fast", value{std::int64_t(1)}) == "f:1:2: x.fast must be true or false");
    BOOST_TEST(said("name", value{setting_values::other{"a date"}}) == "f:1:2: x.name must be a string");
    BOOST_TEST(said("name", value{std::string("a\0b", 3)}) == "f:1:2: x.name holds a NUL character");
    BOOST_TEST(said("mode", value{std::string("atuo")}) ==
               "f:1:2: x.mode must be \"auto\" or \"no\", not \"atuo\"; did you mean auto?");
    BOOST_TEST(said("clients", value{value::texts{std::string("\0", 1)}}) ==
               "f:1:2: x.clients holds a NUL character");
    BOOST_TEST(said("export", value{value::texts{"a"}}) ==
               "f:1:2: x.export must be a list of tables, written [[x.export]]");
    BOOST_TEST(said("export", value{value::texts{}}) == "");
    BOOST_TEST(said("inner", value{value::tables{}}) == "f:1:2: x.inner must be a table");
    BOOST_TEST(said("cuont", value{std::int64_t(3)}) == "f:1:1: unknown key x.cuont; did you mean count?");
}

BOOST_AUTO_TEST_CASE(words_of_a_command_line_become_what_is_declared)
{
    const auto word = [](std::string text) {
        value v{setting_values::word{std::move(text)}};
        v.option = "--it:";
        return v;
    };
    setting_values v;
    v.set("fast", word("no"));
    v.set("count", word("7"));
    v.set("name", word("me"));
    v.set("mode", word("no"));
    check(declared, v);
    BOOST_TEST(!v.flag("fast"));
    BOOST_TEST(v.number("count") == 7U);
    BOOST_TEST(v.text("name") == "me");
    BOOST_TEST(v.text("mode") == "no");
    for (const char* yes : {"", "yes", "true", "1"}) {
        setting_values one;
        one.set("fast", word(yes));
        check(declared, one);
        BOOST_TEST(one.flag("fast"), yes);
    }
    for (const char* bad : {"", "x", "7x", "10", "-1", "99999999999999999999"})
        BOOST_TEST(said("count", word(bad)) == "--it: must be a number from 2 to 9", bad);
    BOOST_TEST(said("fast", word("maybe")) == "--it: must be yes or no");
    BOOST_TEST(said("mode", word("x")) == "--it: must be auto or no");
    BOOST_TEST(said("cuont", word("3")) == "f:1:1: unknown option cuont; did you mean count?");
}

BOOST_AUTO_TEST_CASE(a_path_leads_through_tables)
{
    setting_values v;
    v.set_path("inner.depth", {std::int64_t(3)});
    v.set_path("count", {std::int64_t(9)});
    check(declared, v);
    BOOST_TEST(v.table("inner").number("depth") == 3U);
    BOOST_TEST(v.number("count") == 9U);
    BOOST_CHECK_THROW(v.set_path("count.more", {true}), std::logic_error);
}

BOOST_AUTO_TEST_CASE(an_open_table_keeps_what_somebody_else_declares)
{
    setting_values inner;
    inner.set("handles", {std::string("path")});
    setting_values v;
    v.set("export", {value::tables{inner}});
    check(declared, v);
    const setting_values& e = v.tables("export").at(0);
    BOOST_TEST(e.text("path") == "/");
    BOOST_TEST(e.text("handles") == "path");
    BOOST_TEST(e.written("handles"));
    BOOST_TEST(complaint([&] {
                   refuse_unknown({"path"}, e, "x.export.");
               }).find("unknown key x.export.handles") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_secret_is_known_by_its_name_and_told_to_nobody)
{
    for (const char* name : {"password", "api_key", "client-secrets", "token.file", "psk", "auth_header"})
        BOOST_TEST(is_secret(name), name);
    for (const char* name : {"keyboard", "path", "", "monkey", "authority"})
        BOOST_TEST(!is_secret(name), name);
    BOOST_TEST(without_secrets("vm1=/srv/disk,api_key=hunter2,ro") == "vm1=/srv/disk,api_key=(not shown),ro");
    BOOST_TEST(without_secrets("vm1,key=a\\,b") == "vm1,key=(not shown)");
    BOOST_TEST(without_secrets("secret=a\\") == "secret=(not shown)");
    BOOST_TEST(without_secrets("vm1,") == "vm1,");
    // A value that is none of those that there are may be one that was mistyped.
    const std::vector<setting> secrets = {setting::word("key_kind", {"a", "b"}, "a", "Which"),
                                          setting::number("psk", {1, 9}, 1, "Which")};
    setting_values v;
    v.set("key_kind", {std::string("hunter2")});
    BOOST_TEST(complaint([&] { check(secrets, v); }).find("hunter2") == std::string::npos);
    v.set("key_kind", {std::string("a")});
    v.set("psk", {std::int64_t(1234)});
    BOOST_TEST(complaint([&] { check(secrets, v); }).find("1234") == std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
