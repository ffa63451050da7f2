#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What suite `style` says of a source that knows more of NFS than it may, and of prose that is too wide."""
import sys
import unittest
from unittest import mock

sys.dont_write_bytecode = True
import awaitables
import docstrings
import prose
import source_rules

HEADERS = "protocols/include/verbena/protocols/nfs/"


def faults(name, *lines):
    return list(source_rules.nfs_faults(name, "\n".join(lines) + "\n"))


def includes(name, *headers):
    return faults(name, *(f"#include <verbena/protocols/nfs/{header}>" for header in headers))


class TestsOfManyData(unittest.TestCase):
    def test_a_member_of_what_is_awaited_is_found_where_the_test_is_a_template(self):
        body = "{\n    BOOST_TEST((co_await d.flush()).has_value());\n}\n"
        self.assertEqual(list(source_rules.members_of_awaited_results("\nBOOST_DATA_TEST_CASE(a_test, many, one)\n" + body)), [4])
        self.assertEqual(list(source_rules.members_of_awaited_results("BOOST_AUTO_TEST_CASE(a_test)\n" + body)), [])
        wrapped = body.replace(").has", ")\n        .has")
        self.assertEqual(list(source_rules.members_of_awaited_results("BOOST_DATA_TEST_CASE(a_test, many, one)\n" + wrapped)), [3])
        comment = body.replace("BOOST_TEST", "// BOOST_TEST")
        self.assertEqual(list(source_rules.members_of_awaited_results("BOOST_DATA_TEST_CASE(a_test, many, one)\n" + comment)), [])
        of_one_line = "BOOST_DATA_TEST_CASE(by_a_function, many, one) { is_tested_by(one); }\n"
        self.assertEqual(list(source_rules.members_of_awaited_results(of_one_line + "BOOST_AUTO_TEST_CASE(a_test)\n" + body)), [])
        named = body.replace("(co_await d.flush()).has_value()", "succeeded(co_await d.flush())")
        self.assertEqual(list(source_rules.members_of_awaited_results("BOOST_DATA_TEST_CASE(a_test, many, one)\n" + named)), [])


class VersionsOfNfs(unittest.TestCase):
    def test_what_versions_share_and_version_3_do_not_know_version_4(self):
        for name in ("protocols/nfs/server/state_home.cpp", HEADERS + "server/state_home.hpp", "protocols/nfs/server/metrics.hpp",
                     "protocols/nfs/server/v3/server.cpp", HEADERS + "server/v3/server.hpp"):
            for header in ("server/v4/server.hpp", "server/v4/state_answers.hpp", "wire/v4/types.hpp"):
                self.assertEqual(includes(name, header), [f"<verbena/protocols/nfs/{header}>"], name)
        for name in ("protocols/nfs/client/written_file.cpp", "protocols/nfs/client/v3/client.cpp", HEADERS + "client/v3/client.hpp"):
            for header in ("client/v4/session.hpp", "wire/v4/types.hpp"):
                self.assertEqual(includes(name, header), [f"<verbena/protocols/nfs/{header}>"], name)
        self.assertEqual(includes("protocols/nfs/wire/v3/types.cpp", "wire/v4/types.hpp"), ["<verbena/protocols/nfs/wire/v4/types.hpp>"])

    def test_nor_name_its_types(self):
        self.assertEqual(faults("protocols/nfs/server/v3/server.cpp", "v4::nfsstat4 status;"), ["v4::nfsstat4"])
        self.assertEqual(faults("protocols/nfs/server/state_home.cpp", "int a; // as v4::server has it"), [])
        self.assertEqual(faults("protocols/nfs/server/v4/server.cpp", "v4::nfsstat4 status;"), [])

    def test_a_private_header_is_one_too(self):
        self.assertEqual(faults("protocols/nfs/server/metrics.hpp", '#include "v4/compound.hpp"'), ["<v4/compound.hpp>"])
        self.assertEqual(faults("protocols/nfs/server/v3/server.cpp", '#include "../v4/compound.hpp"'), ["<../v4/compound.hpp>"])
        self.assertEqual(faults("protocols/nfs/server/v4/operations/opens.cpp", '#include "../compound.hpp"'), [])
        self.assertEqual(faults("protocols/nfs/server/v3/metrics.cpp", '#include "../metrics.hpp"'), [])

    def test_version_4_knows_what_is_shared(self):
        self.assertEqual(includes("protocols/nfs/server/v4/server.cpp", "server/state_home.hpp", "wire/v4/types.hpp", "wire/v3/types.hpp",
                                  "user_names.hpp"), [])
        self.assertEqual(includes("protocols/nfs/client/v4/session.cpp", "client/v3/client.hpp"),
                         ["<verbena/protocols/nfs/client/v3/client.hpp>"])
        self.assertEqual(includes("protocols/nfs/server/v4/storage.cpp", "server/v3/storage.hpp"), [])

    def test_both_ends_are_strangers(self):
        self.assertEqual(includes("protocols/nfs/server/exports.cpp", "client/patience.hpp"), ["<verbena/protocols/nfs/client/patience.hpp>"])
        self.assertEqual(includes("protocols/nfs/wire/v4/types.cpp", "server/exports.hpp"), ["<verbena/protocols/nfs/server/exports.hpp>"])

    def test_the_rest_is_no_business_of_this_rule(self):
        self.assertEqual(faults("protocols/nfs/server/state_home.cpp", "#include <verbena/core/task/task.hpp>",
                                "#include <verbena/protocols/files/types.hpp>", "#include <algorithm>", "#include <sys/stat.h>"), [])
        self.assertEqual(includes("services/verbenad/main.cpp", "server/v4/server.hpp"), [])


class Prose(unittest.TestCase):
    WIDE = " ".join(["word"] * 30)  # 149 columns

    def wide(self, *lines):
        return list(prose.too_wide("\n".join(lines)))

    def wraps(self, given, wanted):
        self.assertEqual(prose.wrapped(given), wanted)
        self.assertEqual(self.wide(wanted), [])
        self.assertEqual(prose.wrapped(wanted), wanted)

    def test_a_line_may_have_120_columns_and_no_more(self):
        self.assertEqual(self.wide("a" * 60 + " " + "b" * 59), [])
        self.assertEqual(self.wide("a" * 60 + " " + "b" * 60), [1])
        self.assertEqual(self.wide("short", "", "- " + self.WIDE, "", "> " + self.WIDE, "", "   " + self.WIDE), [3, 5, 7])
        self.assertEqual(self.wide("## " + self.WIDE), [1], "a heading can't be wrapped, but written anew")

    def test_what_is_no_prose_may_be_wider(self):
        self.assertEqual(self.wide("| " + self.WIDE + " |", "", "    " + self.WIDE, "", "```", self.WIDE, "```", "", "  ```cpp", self.WIDE, "  ```"), [])
        self.assertEqual(self.wide("[name]: https://example.org/" + "a" * 120 + " of it"), [])
        self.assertEqual(self.wide("```", "```", self.WIDE), [3], "behind a block there is prose again")

    def test_a_line_without_a_place_for_a_break_may_be_wider(self):
        self.assertEqual(self.wide("- [name](https://example.org/" + "a" * 120 + ")"), [])
        self.assertEqual(self.wide("`" + self.WIDE + "`"), [])
        self.assertEqual(self.wide("see [name](https://example.org/" + "a" * 120 + ")"), [1], "it may stand in a line of its own")
        self.assertEqual(self.wide("a `code", f"span` {self.WIDE} `another`"), [2], "the first mark of this line ends a span")

    def test_the_rule_asks_of_each_document(self):
        documents = {"a.md": "short\n", "docs/b.md": "short\n" + self.WIDE + "\n"}
        with mock.patch.object(source_rules, "listed", lambda *_: list(documents)), mock.patch.object(source_rules, "text", documents.get):
            self.assertEqual(list(source_rules.prose_is_not_wider_than_120_columns()), ["docs/b.md:2"])
        self.assertIn(source_rules.prose_is_not_wider_than_120_columns, source_rules.RULES)

    def test_a_paragraph_is_wrapped_from_the_line_that_is_too_wide(self):
        full = " ".join(["word"] * 24)  # 119 columns
        self.wraps(f"first\n{self.WIDE}\nlast\n\nnext\n", f"first\n{full}\n{' '.join(['word'] * 6)} last\n\nnext\n")
        self.wraps(f"- {self.WIDE}\n- next", f"- {' '.join(['word'] * 23)}\n  {' '.join(['word'] * 7)}\n- next")
        self.wraps(f"  1. {self.WIDE}", f"  1. {' '.join(['word'] * 23)}\n     {' '.join(['word'] * 7)}")
        self.wraps(f"> {self.WIDE}", f"> {' '.join(['word'] * 23)}\n> {' '.join(['word'] * 7)}")

    def test_what_belongs_together_stays_in_a_line(self):
        head = " ".join(["word"] * 22)  # 109 columns
        for together in ("`two words`", "[two words](x.md)", "(`two words`),"):
            self.wraps(f"{head} {together} end", f"{head}\n{together} end")
        # A code span that begins in the line above.
        self.wraps(f"a `code\n{self.WIDE}` and\nmore", f"a\n`code {self.WIDE}`\nand more")

    def test_no_line_becomes_an_item_or_a_heading(self):
        head = " ".join(["word"] * 23)  # 114 columns
        for mark in ("-", "+", "*", "3.", "#", ">"):
            self.wraps(f"{head} word {mark} words behind", f"{head}\nword {mark} words behind")


class Howtos(unittest.TestCase):
    EXAMPLE = "// What it does.\ntask<int> f(int a,\n            int b) // of both\n{\n    co_return a + b;\n}\n"

    def missing(self, *lines):
        return list(source_rules.lines_not_of(self.EXAMPLE, "\n".join(["Text: g()", "```cpp", *lines, "```", ""])))

    def test_code_is_the_example_s_however_it_is_broken(self):
        self.assertEqual(self.missing("task<int> f(int a, int b)", "{", "    ...", "    co_return a +", "        b; // the sum", "}", ""), [])

    def test_what_the_example_does_not_have_is_told(self):
        self.assertEqual(self.missing("task<int> f(int a, int b)", "    co_return a - b;"), ["co_return a - b;"])

    def test_each_page_is_looked_at(self):
        files = {page: "```cpp\nodd();\n```\n" for page in source_rules.SHOWN} | {name: "even();" for name in source_rules.SHOWN.values()}
        with mock.patch.object(source_rules, "text", files.get):
            self.assertEqual(list(source_rules.howtos_show_code_of_examples()), [f"{page}: odd();" for page in source_rules.SHOWN])
        self.assertIn(source_rules.howtos_show_code_of_examples, source_rules.RULES)


class Docstrings(unittest.TestCase):
    def missing(self, *lines):
        return [what for _, _, what in docstrings.undocumented("\n".join(["namespace verbena {", *lines, "}", ""]))]

    def test_what_has_no_comment_is_told_with_its_line(self):
        code = "namespace verbena {\n/// Said.\nstruct said {\n    int field;\n    void f();\n};\nenum class e { a };\nusing name = int;\n" \
               "inline constexpr int limit = 1;\ntemplate<class T>\nconcept c = true;\nclass bare {};\nint g(int a)\n{\n    return a;\n}\n}\n"
        self.assertEqual(list(docstrings.undocumented(code)), [(5, "function", "f"), (7, "enum", "e"), (8, "name", "name"), (9, "constant", "limit"),
                                                               (10, "concept", "c"), (12, "class", "bare"), (13, "function", "g")])

    def test_one_comment_serves_what_belongs_together(self):
        self.assertEqual(self.missing("/// Sets.", "void set(int a);", "void set(bool a);"), [])
        self.assertEqual(self.missing("/// Sets.", "void set(int a);", "void other();", "void set(bool a);"), ["other", "set"])
        self.assertEqual(self.missing("/// @name Group", "/// All of them.", "/// @{", "void a();", "void b();", "/// @}", "void c();"), ["c"])
        self.assertEqual(self.missing("/// Bits.", "namespace bits {", "inline constexpr int one = 1;", "}"), [])

    def test_a_comment_behind_is_of_what_stands_before_it(self):
        self.assertEqual(self.missing("inline constexpr int a = 1; ///< bytes", "inline constexpr int b = 1;"), ["b"])
        said = dict((name, said) for _, name, said in awaitables.awaitables("int a; ///< Shard: any\ntask<void> f();\n"))
        self.assertEqual(said["f"].strip(), "")

    def test_each_field_of_what_users_choose_has_one(self):
        fields = ["    int a = 1; ///< bytes", "    /// Seconds.", "    std::chrono::seconds b{60};", "    std::function<int()> c = {};", "    int d;",
                  "    std::chrono::seconds e{60}; ///< between two", "    std::chrono::seconds f{60};"]
        self.assertEqual(self.missing("/// Of x.", "struct x_options {", *fields, "};"), ["c", "d", "f"])
        self.assertEqual(self.missing("/// Of x.", "struct x_result {", *fields, "};"), [])

    def test_what_its_declaration_tells_needs_none(self):
        self.assertEqual(self.missing("/// C.", "class c : public base {", "public:", "    c() = default;", "    c(const c& other);", "    ~c();",
                                      "    c& operator=(c&& other) noexcept;", "    int size() const;", "    int a() const { return a_; }",
                                      "    void f() override;", "    void g() = delete;", "private:", "    void h();", "    int a_;", "};",
                                      "namespace detail {", "void i();", "}", "/// @cond", "void j();", "/// @endcond"), [])
        self.assertEqual(self.missing("/// C.", "class c {", "public:", "    explicit c(int a);", "    explicit operator bool() const;",
                                      "    int a() const { return b_; }", "protected:", "    virtual void f() = 0;", "};"),
                         ["c", "operatorbool", "a", "f"])

    def test_headers_are_looked_at(self):
        name = "core/include/verbena/core/x.hpp"
        with mock.patch.object(source_rules, "public_headers", lambda: [name]), \
                mock.patch.object(source_rules, "text", {name: "namespace verbena {\nint bare();\n}\n"}.get):
            told = list(source_rules.public_declarations_say_what_they_are())
        self.assertEqual([line.split(" has ")[0] for line in told], [f"{name}:2: function bare"])
        self.assertIn(source_rules.public_declarations_say_what_they_are, source_rules.RULES)


if __name__ == "__main__":
    unittest.main()
