// SPDX-License-Identifier: Apache-2.0
#include <boost/test/unit_test.hpp>

#include <verbena/core/module/module.hpp>

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

BOOST_AUTO_TEST_SUITE(module_test)

using namespace verbena;

namespace {

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

bool holds(const std::string& text, std::string_view part)
{
    BOOST_TEST_INFO_SCOPE(text);
    return text.find(part) != std::string::npos;
}

class storer : public module {
public:
    std::string_view role() const noexcept override { return "storer"; }
};
class plain final : public module {
public:
    std::string_view role() const noexcept override { return "plain"; }
};
class filter final : public module {
public:
    std::string_view role() const noexcept override { return "filter"; }
    std::string_view role_word() const noexcept override { return "filter"; }
};

std::unique_ptr<module> make_storer() { return std::make_unique<storer>(); }
std::unique_ptr<module> make_plain() { return std::make_unique<plain>(); }

module_descriptor described(const char* name, const char* const* needs = nullptr,
                            std::unique_ptr<module> (*create)() = &make_plain)
{
    module_descriptor d;
    d.name = name;
    d.version = "1";
    d.summary = "for tests";
    d.needs = needs;
    d.create = create;
    return d;
}

constexpr std::array<const char*, 2> needs_a{"a", nullptr};
constexpr std::array<const char*, 2> needs_b{"b", nullptr};
constexpr std::array<const char*, 2> needs_c{"c", nullptr};

} // namespace

BOOST_AUTO_TEST_CASE(a_module_is_found_by_its_name_and_role)
{
    const module_descriptor a = described("a", nullptr, &make_storer);
    const module_descriptor b = described("b");
    module_table table;
    table.add(a);
    table.add(b, "/lib/b.so");
    BOOST_TEST(table.find("a") != nullptr);
    BOOST_TEST(table.find<storer>("a") != nullptr);
    BOOST_TEST(table.find<storer>("b") == nullptr);
    BOOST_TEST(table.find("c") == nullptr);
    BOOST_TEST((table.names<storer>() == std::vector<std::string_view>{"a"}));
    BOOST_TEST(table.name_of(*table.find("b")) == "b");
    BOOST_TEST(table.all()[1].from == "/lib/b.so");
    BOOST_TEST(holds(complaint([&] { (void)table.use<storer>("b", "storer", "export of x: "); }),
                     "export of x: no storer b; did you mean a?"));
}

BOOST_AUTO_TEST_CASE(a_descriptor_that_breaks_a_rule_is_refused)
{
    module_table table;
    const auto refused = [&](const module_descriptor& d, std::string_view why) {
        const std::string said = complaint([&] { table.add(d, "/lib/x.so"); });
        return holds(said, "/lib/x.so") && holds(said, why);
    };
    for (const char* bad : {"", "A", "1a", "_a", "a-b", "a b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"})
        BOOST_TEST(refused(described(bad), "must be a letter"), bad);
    BOOST_TEST(refused(described(nullptr), "must be a letter"));
    module_descriptor d = described("a");
    d.size = 8;
    BOOST_TEST(refused(d, "build it against the headers of this version"));
    d = described("a");
    d.version = nullptr;
    BOOST_TEST(refused(d, "no version"));
    d = described("a");
    d.create = nullptr;
    BOOST_TEST(refused(d, "no function that makes it"));
    BOOST_TEST(holds(complaint([&] { table.add(d, std::unique_ptr<module>(), "here"); }),
                     "module (here): a can't be made"));
    BOOST_TEST(table.all().empty());
    const module_descriptor good = described("a");
    table.add(good, "/lib/first.so");
    BOOST_TEST(refused(good, "the name a is taken by a module from elsewhere (/lib/first.so)"));
}

// Types that another role uses were not compared with those of this program.
BOOST_AUTO_TEST_CASE(a_module_from_a_file_has_the_role_that_the_file_declares)
{
    const module_descriptor of_no_role = described("a");
    const module_descriptor good =
        described("b", nullptr, []() -> std::unique_ptr<module> { return std::make_unique<filter>(); });
    module_table table;
    BOOST_TEST(
        holds(complaint([&] { table.add(good, "/lib/b.so", "backend"); }),
              "module (/lib/b.so): b is declared as VERBENA_MODULE(backend, ...), but is a filter: write "
              "VERBENA_MODULE(filter, ...)"));
    BOOST_TEST(holds(complaint([&] { table.add(of_no_role, "/lib/a.so", "backend"); }),
                     "but is a plain, which none of the roles that files may have derives from"));
    BOOST_TEST(table.all().empty());
    table.add(good, "/lib/b.so", "filter");
    table.add(of_no_role);
    BOOST_TEST(table.all().size() == 2u);
}

BOOST_AUTO_TEST_CASE(what_making_a_module_throws_is_its_refusal)
{
    module_table table;
    const auto said = [&](std::unique_ptr<module> (*create)()) {
        const module_descriptor d = described("a", nullptr, create);
        return complaint([&] { table.add(d, "/lib/x.so"); });
    };
    BOOST_TEST(holds(said([]() -> std::unique_ptr<module> { throw std::runtime_error("no disk"); }),
                     "module (/lib/x.so): a can't be made: no disk"));
    BOOST_TEST(holds(said([]() -> std::unique_ptr<module> { throw 1; }), "no std::exception"));
    BOOST_TEST(holds(said([]() -> std::unique_ptr<module> { return {}; }), "returned nothing"));
    BOOST_TEST(table.all().empty());
}

BOOST_AUTO_TEST_CASE(those_in_use_come_behind_what_they_need)
{
    const module_descriptor c = described("c", needs_b.data());
    const module_descriptor b = described("b", needs_a.data());
    const module_descriptor a = described("a");
    const module_descriptor unused = described("unused", needs_a.data());
    module_table table;
    for (const module_descriptor* d : {&c, &b, &unused, &a})
        table.add(*d);
    BOOST_TEST(table.in_order().empty());
    table.mark_used("c");
    std::vector<std::string_view> names;
    for (const module* m : table.in_order())
        names.push_back(table.name_of(*m));
    BOOST_TEST((names == std::vector<std::string_view>{"a", "b", "c"}));
}

BOOST_AUTO_TEST_CASE(a_need_that_nobody_meets_and_a_circle_are_errors)
{
    const module_descriptor a = described("a", needs_b.data());
    const module_descriptor b = described("b", needs_c.data());
    const module_descriptor c = described("c", needs_a.data());
    module_table table;
    table.add(a, "/lib/a.so");
    table.mark_used("a");
    BOOST_TEST(holds(complaint([&] { (void)table.in_order(); }),
                     "module a (/lib/a.so) needs the module b, which is not here: load it too"));
    table.add(b);
    table.add(c);
    BOOST_TEST(holds(complaint([&] { (void)table.in_order(); }), "a needs b needs c needs a"));
}

BOOST_AUTO_TEST_SUITE_END()
