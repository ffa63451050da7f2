#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules for the tree that no compiler and no formatter checks. Each rule is one test; the last line
is `N passed, N failed`."""
import functools
import importlib.machinery
import importlib.util
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import awaitables  # beside this file
import docstrings
import prose

TOP = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(TOP, "tests", "mutants"))
import catalogue  # of mutants
coroutines = importlib.util.module_from_spec(importlib.machinery.ModuleSpec("coroutines", None))
importlib.machinery.SourceFileLoader("coroutines", os.path.join(TOP, "core/tools/verbena-check-coroutines")).exec_module(coroutines)
LAYERS = ("core", "transports", "testing", "protocols", "clients", "plugins", "services")
# What each layer may include besides itself: only what stands below it, and protocols know the verbs
# interface of core but no provider.
BELOW = {
    "core": (),
    "transports": ("core",),
    "testing": ("core", "transports"),
    "protocols": ("core",),
    "clients": ("core", "transports", "protocols"),
    "plugins": ("core", "protocols"),
    "services": ("core", "transports", "testing", "protocols", "clients", "plugins"),
}
# The rooms of protocols/nfs, "" for what stands beside them, and what each may include besides itself.
NFS_ROOMS = {"": (), "wire": ("",), "server": ("", "wire"), "client": ("", "wire")}
# A room's versions don't know each other, and what they share knows none of them. Except these, until their code allows it. Version 4 is
# known to its own folders alone, without exception.
NFS_VERSIONS_KNOWN_TO = {
    "server/v4/operations/attributes.cpp": ("v3",), # the bits of ACCESS
    "server/v4/storage.cpp": ("v3",),               # nfsstat3 of a back end's failure
}
SYSTEM_HEADER = re.compile(r"^([a-z_0-9]+|(sys|netinet|arpa|net|linux|asm)/[\w./]+|"
                           r"(dirent|dlfcn|endian|errno|fcntl|grp|limits|netdb|poll|pthread|pwd|sched|signal|"
                           r"stdint|stdlib|string|time|unistd)\.h)$")
# The two places where a third-party header is the subject of the public header.
THIRD_PARTY = {"transports/include/verbena/transports/rdma/": "infiniband/",
               "core/include/verbena/asio/": "asio/"}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)


@functools.cache  # each asks git
def listed(*patterns):
    script = os.path.join(TOP, "tests/tools/sources.sh")
    return subprocess.run([script, *patterns], check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines()


def text(name):
    with open(os.path.join(TOP, name), encoding="utf-8", errors="replace") as file:
        return file.read()


def code():
    return [name for name in listed("*.cpp", "*.hpp", "*.h")]


def public_headers():
    return [name for name in code() if name.startswith(LAYERS) and "/include/verbena/" in name]


def spdx_line_first():
    """the first line, or the second after #!, is the SPDX line"""
    commands = [name for name in ("check", "quickstart", ".ci/run") if os.path.exists(os.path.join(TOP, name))]
    for name in code() + commands + listed("*.sh", "*.py", "*.in", "*.toml", "*.service", "*.yml", "meson.build",
                                           "meson_options.txt"):
        lines = text(name).split("\n", 2)
        line = lines[1] if lines[0].startswith("#!") and len(lines) > 1 else lines[0]
        # In two parts, so that `reuse` does not take it for a licence of this file.
        if line not in [f"{mark} SPDX-License" + "-Identifier: Apache-2.0" for mark in ("//", "#")]:
            yield f"{name}:1: {line[:60]!r}"


def no_path_of_one_machine():
    """no file names a path that only one developer's machine has"""
    path = re.compile(r"(?<![\w.$}/-])/(?:home|Users|work|tmp/w)/[\w.-]+")
    for name in listed():
        if name.startswith("tests/fuzz/corpus/"):
            continue
        for number, line in enumerate(text(name).split("\n"), 1):
            if found := path.search(line):
                yield f"{name}:{number}: {found[0]}"


def layers_include_only_what_stands_below():
    """a layer includes itself and the layers below it, nothing else of verbena"""
    for name in code():
        layer = name.split("/", 1)[0]
        if layer not in BELOW:
            continue
        for included in INCLUDE.findall(text(name)):
            target = re.match(r"verbena/([a-z]+)/", included)
            if target and target[1] in LAYERS and target[1] != layer and target[1] not in BELOW[layer]:
                yield f"{name}: <{included}>"


def nfs_faults(name, content):
    """What the source `name` includes or names and must not, if it is one of protocols/nfs."""
    here = re.fullmatch(r"protocols/(?:include/verbena/protocols/)?nfs/(.*)", name)
    if not here:
        return
    room, _, rest = here[1].rpartition("/")[0].partition("/")
    for quote, included in re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', content, re.M):
        if quote == '"': # named from where the file is
            path = os.path.normpath(os.path.join(os.path.dirname(here[1]), included))
        elif included.startswith("verbena/protocols/nfs/"):
            path = included.removeprefix("verbena/protocols/nfs/")
        else:
            continue
        target, _, of = path.rpartition("/")[0].partition("/")
        known = NFS_VERSIONS_KNOWN_TO.get(here[1], ())
        if (target not in (room,) + NFS_ROOMS.get(room, ()) or (of[:2] == "v4" and rest[:2] != "v4") or
                (target == room != "wire" and of[:2] not in ("", rest[:2]) + known)):
            yield f"<{included}>"
    if room and rest[:2] != "v4":
        for line in content.split("\n"):
            if found := re.search(r"\bv4::\w+", line.split("//")[0]):
                yield found[0]


def nfs_includes_only_what_its_rooms_may():
    """NFS: wire/ knows neither end, server/ and client/ don't know each other, nor do the versions in each (docs/internals/nfs.md)"""
    for name in code():
        for fault in nfs_faults(name, text(name)):
            yield f"{name}: {fault}"


def public_headers_are_self_sufficient_in_kind():
    """a public header includes verbena's and the system's headers only, and is guarded by pragma once"""
    for name in public_headers():
        content = text(name)
        if not re.search(r"^#pragma once$", content, re.M):
            yield f"{name}: no #pragma once"
        allowed = tuple(prefix for folder, prefix in THIRD_PARTY.items() if name.startswith(folder))
        for included in INCLUDE.findall(content):
            if not (included.startswith(("verbena/",) + allowed) or SYSTEM_HEADER.match(included)):
                yield f"{name}: <{included}>"


def public_headers_export_what_they_declare():
    """all but public headers is hidden from modules: they have #pragma GCC visibility push(default) and pop around their namespaces"""
    push, pop = "#pragma GCC visibility push(default)", "#pragma GCC visibility pop"
    for name in code():
        lines = text(name).rstrip("\n").split("\n")
        namespaces = [i for i, line in enumerate(lines) if re.match(r"(?:inline )?namespace verbena\b", line)]
        if name not in public_headers() or not namespaces:
            if push in lines:
                yield f"{name}: only public headers export"
            continue
        includes = [i for i, line in enumerate(lines) if INCLUDE.match(line)]
        at = lines.index(push) if lines.count(push) == 1 else -1
        # What the system's headers declare is not ours to export. In front of it, private classes are made known.
        if not max(includes, default=0) < at < namespaces[-1] or lines.count(pop) != 1 or lines[-1] != pop:
            yield f"{name}: {push} between the last #include and the namespace, and {pop} at the end"


def asio_is_included_by_its_adapter_alone():
    """Asio's macros change its types, so that no library of verbena's may hold any of them, unless they have another name"""
    for name in code():
        if name.startswith(LAYERS) and not name.startswith("core/include/verbena/asio/"):
            if name == "services/service/control_server.cpp" and re.search(r"^#define asio \w+$[^#]*#include <asio/", text(name), re.M):
                continue
            for included in INCLUDE.findall(text(name)):
                if included.startswith(("asio/", "asio.hpp", "boost/asio", "verbena/asio/")):
                    yield f"{name}: <{included}>"


def awaitables_answer_the_same_questions():
    """what users await says Completes when:, On cancel:, Errors:, Lifetime: and Shard:, in its own comment or its class's"""
    for name in public_headers():
        for line, what, said in awaitables.awaitables(text(name)):
            if missing := awaitables.unanswered(said):
                yield f"{name}:{line}: {what} does not say {', '.join(missing)}"


def public_declarations_say_what_they_are():
    """what users of a public header name has a comment: classes, enums, constants, functions, what may be chosen (docstrings.py tells)"""
    for name in public_headers():
        for line, kind, what in docstrings.undocumented(text(name)):
            yield f"{name}:{line}: {kind} {what} has no comment: what it does, who owns what and for how long, thread, units, errors, source"


def each_unit_test_is_listed():
    """a file tests/unit/**/*_test.cpp that Meson does not know would never run"""
    known = text("tests/unit/meson.build")
    for name in listed("tests/unit/*_test.cpp"):
        if f"'{name.removeprefix('tests/unit/')}'" not in known:
            yield name


def each_unit_test_is_a_suite_of_its_name():
    """a test file of a group is a suite that is called like the file: some programs' suites are tests of their own, by those names"""
    meson = text("tests/unit/meson.build")
    for name in re.findall(r"'(\w+/\w+_test\.cpp)'", meson[meson.index("groups = {"):meson.index("alone = [")]):
        suites = re.findall(r"^BOOST_(?:AUTO|FIXTURE)_TEST_SUITE\((\w+)", text("tests/unit/" + name), re.M)
        if not suites or suites[0] != os.path.basename(name).removesuffix(".cpp"):
            yield f"tests/unit/{name}: {suites[:1]}"


def operator_new_is_replaced_by_one():
    """a test with an operator new of its own is built only where Meson says `not threads_alone` or no sanitizer: TSan has its own"""
    without = r"(?ms)^( *)if (?:[^\n]* )?(?:not threads_alone|get_option\('b_sanitize'\) == 'none')$.*?^\1endif$"
    with_tsan = re.sub(without, "", text("tests/unit/meson.build"))
    for name in listed("tests/unit/*_test.cpp"):
        content = text(name)
        replaces = re.search(r"^void\* operator new", content, re.M) and "__SANITIZE_THREAD__" not in content
        if replaces and f"'{name.removeprefix('tests/unit/')}'" in with_tsan:
            yield name


def each_mutant_fits_its_source():
    """a mutant's `old` stands once in its file, and the cases that must fail exist (docs/internals/mutants.md)"""
    yield from catalogue.problems(text(name) for name in code() + listed("*.py") if name.startswith(("tests/", "testing/conformance/")))


def links_in_documents_lead_somewhere():
    """a relative link in a Markdown file names a file of the tree"""
    for name in listed("*.md"):
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text(name)):
            if re.match(r"[a-z]+:", target):
                continue
            if not os.path.exists(os.path.join(TOP, os.path.dirname(name), target)):
                yield f"{name}: {target}"


def prose_is_not_wider_than_120_columns():
    """a line of prose in a Markdown file has 120 columns at most: python3 tests/tools/prose.py --fix FILE wraps what has more"""
    for name in listed("*.md"):
        for number in prose.too_wide(text(name)):
            yield f"{name}:{number}"


def readme_shows_a_program_that_is_built():
    """the code in README.md is examples/hello.cpp, which Meson builds and a test runs"""
    shown = re.findall(r"^```cpp\n(.*?)^```$", text("README.md"), re.M | re.S)
    if shown != [text("examples/hello.cpp").split("\n", 1)[1]]:
        yield "README.md: not examples/hello.cpp without its first line"
    if "'hello.cpp'" not in text("examples/meson.build"):
        yield "examples/meson.build: no hello.cpp"


# Pages whose code is of an example, which Meson builds and a test runs.
SHOWN = {"docs/howto/long_polls.md": "examples/jobs.cpp", "docs/howto/nfs_client.md": "examples/nfs_files.cpp",
         "docs/howto/verbs.md": "examples/echo/echo.cpp", "docs/howto/conform.md": "examples/conformance.cpp"}


def lines_not_of(example, page):
    """The lines of a page's code that the example does not have, whatever breaks and comments stand in it."""
    plain = " ".join(re.sub(r"//[^\n]*", "", example).split())
    for block in re.findall(r"^```cpp\n(.*?)^```$", page, re.M | re.S):
        for line in block.split("\n"):
            code = " ".join(line.split("//")[0].split())
            if code not in ("", "...") and code not in plain:
                yield code


def howtos_show_code_of_examples():
    """each line of code in these pages is one of the example that the page is about"""
    for page, example in SHOWN.items():
        for line in lines_not_of(text(example), text(page)):
            yield f"{page}: {line}"


def no_owning_temporary_inside_co_await():
    """nothing that g++ 12 compiles wrongly around a co_await, as verbena-check-coroutines finds it"""
    for name in code():
        for line, form in coroutines.findings(text(name)):
            # Arguments of tests are values of the wire, which own nothing.
            if form != "braces" or not name.startswith("tests/"):
                yield f"{name}:{line}: {coroutines.FORMS[form]}"
    for name in listed("*.md"):
        page = text(name)
        for block in re.finditer(r"^```cpp[^\n]*\n(.*?)^```$", page, re.M | re.S):
            for line, form in coroutines.findings(block[1]):
                yield f"{name}:{page.count(chr(10), 0, block.start(1)) + line}: {coroutines.FORMS[form]}"


def members_of_awaited_results(source):
    """The lines where a test that is a template has a member of `(co_await ...)`."""
    for test in re.finditer(r"^BOOST_(?:DATA_TEST_CASE|\w*TEST_CASE_TEMPLATE)\w*\((?:[^\n]*\}$|.*?^\})", source, re.M | re.S):
        body = re.sub(r"//[^\n]*", lambda comment: " " * len(comment[0]), test[0])
        for found in re.finditer(r"\(\s*co_await\b", body):
            depth, at = 1, found.end()
            while depth and at < len(body):
                depth += {"(": 1, ")": -1}.get(body[at], 0)
                at += 1
            if body[at:].lstrip().startswith((".", "->")):
                yield source.count("\n", 0, test.start() + found.start()) + 1


def tests_of_many_data_name_what_they_await():
    """a test of many data, which is a template, has no member of `(co_await ...)`: g++ 12 does not parse that; give what was awaited a name"""
    for name in code():
        for line in members_of_awaited_results(text(name)):
            yield f"{name}:{line}"


def handlers_take_whole_batches():
    """a handler takes its whole batch of completions (core/verbs/verbs.hpp): nothing leaves the loop of an on_completions()"""
    begin = re.compile(r"\bon_completions\([^;{]*\)[^;{]*\{")
    for name in code():
        source = text(name)
        for found in begin.finditer(source):
            depth, at = 1, found.end()
            while depth and at < len(source):
                depth += {"{": 1, "}": -1}.get(source[at], 0)
                at += 1
            body = source[found.end():at]
            loop = body.find("for (")
            for leaves in re.finditer(r"\b(return|break|goto|throw|co_return)\b", body if loop >= 0 else ""):
                # What stands behind the loop leaves none.
                if loop <= leaves.start() and body.count("{", loop, leaves.start()) > body.count("}", loop, leaves.start()):
                    number = source.count("\n", 0, found.end() + leaves.start()) + 1
                    yield f"{name}:{number}: {leaves[0]} in the loop over a batch"


# Names of the standard library by the header that they stand in.
STANDARD_NAMES = {header: re.compile(names) for header, names in {
    "algorithm": r"(?:sort|stable_sort|find|find_if|count|count_if|any_of|all_of|none_of|fill|equal|min_element|max_element|reverse"
                 r"|transform|unique|lower_bound|upper_bound|remove_if|mismatch|search|shuffle)\(|ranges::(?!subrange|view)",
    "array": "array<", "charconv": r"(?:from|to)_chars\b", "condition_variable": r"condition_variable\b",
    "cstdio": r"(?:snprintf|printf|fprintf|fopen|FILE)\b", "deque": "deque<", "filesystem": "filesystem:", "fstream": r"[io]?fstream\b",
    "functional": "function<", "future": r"(?:future|promise)<|async\(", "iostream": r"(?:cout|cerr)\b", "list": "list<",
    "map": "(?:multi)?map<", "memory": r"(?:(?:unique|shared|weak)_ptr<|make_(?:unique|shared)\b)", "mutex": r"(?:mutex|lock_guard|scoped_lock|unique_lock)\b",
    "numeric": r"(?:accumulate|iota)\(", "optional": "optional<", "random": r"(?:mt19937|uniform_)", "regex": r"regex\b", "set": "(?:multi)?set<",
    "sstream": r"[io]?stringstream\b", "string": r"(?:string|to_string)\b", "thread": r"(?:thread|jthread|this_thread)\b", "tuple": r"(?:tuple<|tie\(|ignore\b)",
    "unordered_map": "unordered_map<", "unordered_set": "unordered_set<", "variant": "variant<", "vector": "vector<",
}.items()}
INCLUDE_FOLDERS = tuple(f"{layer}/include" for layer in LAYERS) + ("services", "plugins", "tests/unit", "tests/sim", "tests/fuzz")


@functools.cache
def standard_headers_of(name):
    """What the source and the headers of ours that it includes name of the standard library."""
    found = set()
    for included in INCLUDE.findall(text(name)):
        places = [os.path.join(folder, included) for folder in (os.path.dirname(name), *INCLUDE_FOLDERS)]
        ours = next((place for place in places if os.path.isfile(os.path.join(TOP, place))), None)
        found |= {included} if ours is None else standard_headers_of(os.path.normpath(ours))
    return found


def standard_names_have_their_headers():
    """a source includes the header of each standard name, itself or by a header of ours: precompiled headers and groups hide that it is missing"""
    for name in code():
        if not name.endswith(".cpp"):
            continue
        named = set(re.findall(r"\bstd::((?:ranges::)?\w+[<(:]?)", re.sub(r"//[^\n]*", "", text(name))))
        for header, names in STANDARD_NAMES.items():
            for found in filter(names.match, named):
                if header not in standard_headers_of(name):
                    yield f"{name}: std::{found.rstrip('<(:')} needs <{header}>"


def limits_of_python_tests_grow_with_slow():
    """a limit of a test with real processes is a number times VERBENA_SLOW, which `./check --slow` sets (daemon.SLOW, peers.LIMIT)"""
    limit = re.compile(r"(?:timeout=|settimeout\(|monotonic\(\) \+ |\.wait\()\d+\b(?![.]| \* )")
    for name in listed("*.py"):
        if name.startswith(("tests/integration/", "tests/abi/")):
            for number, line in enumerate(text(name).splitlines(), 1):
                if limit.search(line):
                    yield f"{name}:{number}: {line.strip()}"


RULES = (spdx_line_first, no_path_of_one_machine, layers_include_only_what_stands_below, nfs_includes_only_what_its_rooms_may,
         public_headers_are_self_sufficient_in_kind, public_headers_export_what_they_declare, asio_is_included_by_its_adapter_alone,
         awaitables_answer_the_same_questions, public_declarations_say_what_they_are, each_unit_test_is_listed,
         each_unit_test_is_a_suite_of_its_name, operator_new_is_replaced_by_one, each_mutant_fits_its_source, links_in_documents_lead_somewhere,
         prose_is_not_wider_than_120_columns,
         readme_shows_a_program_that_is_built, howtos_show_code_of_examples, no_owning_temporary_inside_co_await,
         tests_of_many_data_name_what_they_await, handlers_take_whole_batches,
         standard_names_have_their_headers, limits_of_python_tests_grow_with_slow)


def main():
    failed = 0
    for rule in RULES:
        broken = list(rule())
        failed += bool(broken)
        if broken:
            print(f"{rule.__name__}: {rule.__doc__}")
            print("".join(f"  {where}\n" for where in broken), end="")
    print(f"{len(RULES) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
