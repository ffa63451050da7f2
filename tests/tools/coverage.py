#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""coverage.py BUILD [FOLDER]: line coverage of everything that decodes a stranger's bytes, by unit tests and the
replayed fuzz corpora. Prints a table, what is missed below 95 %, and `N passed, N failed`, one result per format.

Only what is measured is compiled for it, into FOLDER (build-coverage): the tests are linked anew out of BUILD, which
clang 19 has built, with these objects in the place of its own. That is a tenth of a build. Needs llvm-19.

What a back end reads out of a file handle is not here: nfs/server/file_handle.cpp lets in only what the server signed.
"""
import concurrent.futures
import os
import shlex
import subprocess
import sys

sys.dont_write_bytecode = True
import compile_commands # beside this file

LEAST = 95
NFS4 = ["attributes", "callback", "compound", "directory", "extended_operations", "file_operations", "layout_operations", "rdma_layout", "rdma_layout_connect", "session_operations", "state_operations", "types"]

SOURCES = {
    "xdr": ["protocols/include/verbena/protocols/xdr/decoder.hpp",
            "protocols/include/verbena/protocols/xdr/byte_order.hpp", "protocols/include/verbena/protocols/xdr/codec.hpp",
            "protocols/include/verbena/protocols/xdr/bounded.hpp"],
    "rpc": ["protocols/rpc/message.cpp", "protocols/rpc/auth_sys.cpp", "protocols/rpc/call.cpp",
            "protocols/rpc/client.cpp", "protocols/rpcstream/record_reader.cpp"],
    "rpcrdma": ["protocols/rpcrdma/header.cpp", "protocols/rpcrdma/private_data.cpp"],
    "iwarp": ["transports/iwarp/wire.cpp", "transports/iwarp/startup.cpp", "transports/iwarp/receive.cpp",
              "transports/iwarp/connect.cpp"],
    "rtrs": ["protocols/rtrs/wire.cpp"],
    "rnbd": ["protocols/rnbd/wire.cpp"],
    "mount3": ["protocols/nfs/wire/v3/mount.cpp", "protocols/nfs/wire/portmap.cpp"],
    "nfs3": ["protocols/nfs/wire/v3/arguments.cpp", "protocols/nfs/wire/v3/attributes.cpp", "protocols/nfs/wire/v3/results.cpp",
             "protocols/nfs/wire/v3/directory.cpp", "protocols/nfs/wire/v3/pieces.hpp", "protocols/nfs/server/file_handle.cpp"],
    "nfs4": ["protocols/nfs/wire/v4/" + part + ".cpp" for part in NFS4],
    "config": ["services/service/config_file.cpp", "core/module/settings.cpp", "plugins/nfs/export_config.cpp",
               "plugins/nfs/export_word.cpp", "core/net/ip_address.cpp"],
    "metrics": ["services/client/top/metrics_text.cpp"], # of any server that `verbena top --url` asks
}
TESTS = ["unit_codecs", "unit_conformance", "unit_core", "unit_rpc", "unit_rpcrdma", "unit_rtrs", "unit_providers", "unit_services",
         "transports_iwarp_refusals_test"]
CORPORA = "fuzz_corpora"
# Headers count where they are compiled in, so these tests are measured too.
WITH_HEADERS = ["tests/unit/protocols/xdr_test.cpp", "tests/unit/protocols/xdr_codec_test.cpp", "tests/fuzz/fuzz_xdr.cpp",
                "tests/fuzz/fuzz_xdr_codec.cpp"]
FLAGS = ["-O0", "-g0", "-fprofile-instr-generate", "-fcoverage-mapping"]


def run(command, **more):
    """Ends the program with the output of a command that fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
                          **more)
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(command)[:300]}\n{done.stdout[-8000:]}\n0 passed, 1 failed")


class Measured:
    """The objects of what is measured, and the tests that are linked with them."""

    def __init__(self, build, folder):
        self.build = os.path.abspath(build)
        self.folder = os.path.abspath(folder)
        os.makedirs(self.folder, exist_ok=True)
        wanted = {source for sources in SOURCES.values() for source in sources if source.endswith(".cpp")}
        found = set()
        self.commands = {}    # by the object, which may be of some sources
        self.tests = {}       # likewise, of WITH_HEADERS, and what a test compiles for itself of what is measured
        self.replaced = set() # objects in whose place the archive is linked
        for entry, paths in compile_commands.compiled(self.build):
            sources = {os.path.relpath(path) for path in paths}
            if sources.intersection(wanted):
                self.replaced.add(entry["output"])
            if new := sources.intersection(wanted).difference(found):
                self.commands[entry["output"]] = self.compiler(entry)
                found.update(new)
            elif len(sources) == 1 and sources <= wanted:
                self.tests[entry["output"]] = self.compiler(entry)
            if new := sources.intersection(WITH_HEADERS).difference(found):
                self.tests[entry["output"]] = self.compiler(entry)
                found.update(new)
        if missing := sorted(wanted.union(WITH_HEADERS).difference(found)):
            raise SystemExit(f"{build} does not compile {', '.join(missing)}\n0 passed, 1 failed")
        self.archive = os.path.join(self.folder, "measured.a")

    def object_of(self, output):
        return os.path.join(self.folder, output.replace("/", "_"))

    def compiler(self, entry):
        words = shlex.split(entry["command"])
        words[words.index("-o") + 1] = self.object_of(entry["output"])
        if "-include-pch" in words: # which is compiled with other flags, and may hold what is measured
            at = words.index("-include-pch")
            del words[at:at + 2]
        at = words.index("-MD") # -MD -MQ target -MF file
        return words[:at] + words[at + 5:] + FLAGS

    def compile(self, command):
        run(command, cwd=self.build)

    def pack(self):
        if os.path.exists(self.archive):
            os.remove(self.archive)
        run(["llvm-ar-19", "rcsT", self.archive, *map(self.object_of, self.commands)])

    def link(self, test):
        """The link command of BUILD; an archive that stands before the others is asked first."""
        words = shlex.split(subprocess.run(["ninja", "-C", self.build, "-t", "commands", "-s", test], check=True,
                                           stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
        # Of an inline function that several objects have, the linker takes the first.
        first, linked = [], []
        for word in words:
            if word in self.tests:
                first.append(self.object_of(word))
            elif word == test:
                linked.append(self.program(test))
            elif word not in self.replaced:
                linked.append(word)
        linked.insert(linked.index("-Wl,--start-group"), self.archive)
        linked[1:1] = first
        run(linked + ["-fprofile-instr-generate", "-Wl,--strip-debug"], cwd=self.build)

    def program(self, test):
        return os.path.join(self.folder, os.path.basename(test))

    def measure(self, test):
        program = self.program(test)
        corpus = ["tests/fuzz/corpus"] if os.path.basename(test) == CORPORA else []
        run([program, *corpus], env={**os.environ, "LLVM_PROFILE_FILE": program + ".profraw"})


def report(measured, tests):
    """File name -> (lines, lines that no test reached)."""
    profile = os.path.join(measured.folder, "all.profdata")
    run(["llvm-profdata-19", "merge", "-sparse", "-o", profile, *(measured.program(test) + ".profraw" for test in tests)])
    objects = [word for test in tests for word in ("-object", measured.program(test))]
    sources = [os.path.abspath(source) for named in SOURCES.values() for source in named]
    shown = subprocess.run(["llvm-cov-19", "export", "-format=lcov", "-instr-profile", profile, *objects, "-sources", *sources],
                           check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    files = {}
    for line in shown.splitlines():
        key, _, value = line.partition(":")
        if key == "SF":
            # What is compiled in a folder of its own may be named from there.
            lines = files.setdefault(os.path.relpath(os.path.join(measured.build, value)), {})
        elif key == "DA":
            number, count = value.split(",")[:2]
            lines[int(number)] = lines.get(int(number), 0) + int(count)
    return {source: (len(lines), sorted(n for n, count in lines.items() if count == 0)) for source, lines in files.items()}


def verdict(files):
    good = bad = 0
    print(f"{'format':9} {'source':60} {'lines':>6} {'covered':>8}")
    for form, sources in SOURCES.items():
        enough = True
        for source in sources:
            lines, missed = files.get(source, (0, []))
            covered = 100 * (lines - len(missed)) / lines if lines else 0
            print(f"{form:9} {source:60} {lines:6} {covered:7.1f}%")
            if covered < LEAST:
                enough = False
                print(f"  below {LEAST} %; no test reaches line {', '.join(map(str, missed)) or 'any'}")
        good, bad = good + enough, bad + (not enough)
    print(f"{good} passed, {bad} failed")
    return 0 if good and not bad else 1


def main():
    build, folder = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "build-coverage"
    os.chdir(os.path.join(os.path.dirname(os.path.realpath(__file__)), "../.."))
    measured = Measured(build, folder)
    tests = [f"tests/unit/{name}" for name in TESTS] + [f"tests/fuzz/{CORPORA}"]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(measured.compile, [*measured.commands.values(), *measured.tests.values()]))
        measured.pack()
        list(pool.map(measured.link, tests))
        list(pool.map(measured.measure, tests))
    return verdict(report(measured, tests))


if __name__ == "__main__":
    sys.exit(main())
