#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs pynfs against verbenad, and prints what each of its tests came to: for both back ends, in one table.

    tests/interop/pynfs.py PYNFS [--verbenad FILE] [--minor 2] [--backend memfs] [--python-path DIR] [--json FILE]
                           [--beside NAME=FILE] [--report FILE] [TEST...]

PYNFS is a checkout in which `./setup.py build` was run; nothing of it is here. It needs python3-ply, which may lie in --python-path.
TEST are codes and flags of pynfs', `all` without any. Run it as root, so that callers can be anybody. --report writes what is said of the minor
version in the section "pynfs" of docs/interop.md, beside what other servers came to: FILE is what pynfs' own --jsonout wrote of NAME.
(`--beside 'nfs-ganesha 4.3=FILE'`)

The exit status is 0 if all passed but those that KNOWN names, 1 if another one failed or one of KNOWN passed, 2 if pynfs did not run.
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
import daemon  # pylint: disable=wrong-import-position

# Tests that fail, and why, by minor version. docs/interop.md has the same tables.
NO_OPEN_ARGUMENTS = "it wants the attribute open_arguments (RFC 9754), which is not served"
KNOWN = {
    0: {},
    1: {
        "CSESS10": "a client's sessions are created by the user that made the client, as with AUTH_SYS nothing else tells hosts apart",
        "DELEG24": NO_OPEN_ARGUMENTS,
        "DELEG25": NO_OPEN_ARGUMENTS,
    },
    2: {"EID4": "it takes the flag 4 for undefined, which is EXCHGID4_FLAG_SUPP_FENCE_OPS in minor version 2 (RFC 7862 14.1)"},  # besides those of 1
}
# Tests wait for its end, the longer the longer it is; EID9 wants at least 10.
LEASE = 12
LIMIT = 3600  # seconds that pynfs may take for a back end
# Of the section of docs/interop.md; the lab, which writes the rest of that page, leaves it as it is.
HEADING = "## pynfs"
INTRODUCTION = """\
Written by `tests/interop/pynfs.py --report`; [internals/nfs4.md](internals/nfs4.md#pynfs) tells how to run it. The
tests that `all` stands for, and how many of them passed, by the letters that their codes begin with."""


class Unusable(Exception):
    """pynfs did not run."""


def run(pynfs, port, path, options, folder):
    """What pynfs says of each test, by its code: (passed, failed or skipped; the reason)."""
    found = pathlib.Path(folder, "results.json")
    environment = dict(os.environ)
    if options.python_path:
        environment["PYTHONPATH"] = options.python_path
    command = [sys.executable, "testserver.py", f"127.0.0.1:{port}{path}", f"--minorversion={options.minor}", "--maketree", "--rundeps",
               f"--jsonout={found}", *options.tests]
    with open(pathlib.Path(folder, "pynfs.log"), "wb") as log:
        try:
            subprocess.run(command, cwd=pynfs / ("nfs4.0" if options.minor == 0 else "nfs4.1"), env=environment, stdout=log, stderr=log, timeout=LIMIT, check=False)
        except subprocess.TimeoutExpired as late:
            raise Unusable(f"pynfs was not done after {LIMIT} seconds") from late
    if not found.exists():
        raise Unusable("pynfs did not run:\n" + pathlib.Path(folder, "pynfs.log").read_text(encoding="utf-8", errors="replace")[-2000:])
    return results_in(found)


def results_in(path):
    """What pynfs' --jsonout says, by codes."""
    results = {}
    for test in json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["testcase"]:
        if "failure" in test:
            results[test["code"]] = ("failed", " ".join(test["failure"]["message"].split()))
        else:
            results[test["code"]] = ("skipped" if "skipped" in test else "passed", "")
    return results


def serve(backend, options):
    """The results of pynfs against a verbenad of its own."""
    with tempfile.TemporaryDirectory(prefix="verbena-pynfs-") as folder:
        os.chmod(folder, 0o755)
        tree = pathlib.Path(folder, "tree")
        tree.mkdir()
        tree.chmod(0o777)
        # Nobody else writes there, so that there are delegations.
        where = f'directory = "{tree}"\nlocal_writers = false' if backend == "posixfs" else ""
        config = pathlib.Path(folder, "verbenad.toml")
        config.write_text(f"""
[daemon]
state = "{folder}/state"
policy = "event"
shards = 2
[metrics]
listen = "off"
[nfs]
listen = ["tcp://127.0.0.1:0"]
rpcbind = "no"
versions = ["3", "4.0", "4.1", "4.2"]
lease = {LEASE}
[[nfs.export]]
backend = "{backend}"
pseudo = "/export"
root_squash = false
{where}
""", encoding="utf-8")
        server = daemon.Daemon("serve", str(config), folder=folder, exactly=True)
        try:
            results = run(pathlib.Path(options.pynfs).resolve(), server.port("tcp"), "/export", options, folder)
            if server.process.poll() is not None:
                raise Unusable(f"verbenad ended ({server.process.returncode}): {server.log()}")
        finally:
            status = server.stop()
        if status != 0:
            raise Unusable(f"verbenad ended with {status}: {server.log()}")
        return results


def order(code):
    """Names before numbers, and numbers by their value."""
    name = code.rstrip("0123456789abcdefghijklmnopqrstuvwxyz")
    number = code[len(name):].rstrip("abcdefghijklmnopqrstuvwxyz")
    return name, int(number or 0), code


def known_of(minor):
    return {**KNOWN[1], **KNOWN[2]} if minor == 2 else KNOWN[minor]


def commit_of(folder):
    told = subprocess.run(["git", "-C", str(folder), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return told.stdout.strip() or "of no known commit"


def part(minor):
    """The heading of a minor version; 2 has 1's tests too."""
    return "### Minor versions 1 and 2" if minor == 2 else f"### Minor version {minor}"


def report(path, results, beside, minor, pynfs):
    """Writes the part of the page anew. `results` are verbenad's by back end, `beside` other servers' by their names."""
    columns = {**{f"verbenad, {backend}": found for backend, found in results.items()}, **beside}
    codes = sorted({code for found in columns.values() for code, (word, _) in found.items() if word != "skipped"}, key=order)

    def row(*cells):
        return f"| {' | '.join(cells)} |"

    def counted(of):
        return [f"{sum(found.get(code, ('', ''))[0] == 'passed' for code in of)} of "
                f"{sum(found.get(code, ('skipped', ''))[0] != 'skipped' for code in of)}" for found in columns.values()]
    groups = collections.defaultdict(list)
    for code in codes:
        groups[order(code)[0]].append(code)
    lines = [part(minor), "",
             f"pynfs {commit_of(pynfs)}, verbena {commit_of(HERE)}.", "",
             row("tests", *columns), row(*["---"] * (1 + len(columns)))]
    lines += [row(name, *counted(of)) for name, of in groups.items()]
    lines += [row("all", *counted(codes)), "",
              "Those that do not pass on each of these servers. Where verbenad fails, the last column says why; where another one",
              "does, what pynfs says.", "",
              row("test", *columns, "why"), row(*["---"] * (2 + len(columns)))]
    for code in codes:
        told = [found.get(code, ("", "")) for found in columns.values()]
        if any(word == "failed" for word, _ in told):
            why = known_of(minor).get(code) or next(reason for word, reason in told if word == "failed")
            lines.append(row(code, *(word for word, _ in told), why.replace("|", "\\|")[:200]))
    page, _, section = pathlib.Path(path).read_text(encoding="utf-8").partition(f"\n{HEADING}\n")
    parts = {"### " + text.partition("\n")[0]: "### " + text.strip("\n") for text in section.split("\n### ")[1:]}
    parts[part(minor)] = "\n".join(lines)
    pathlib.Path(path).write_text("\n\n".join([page.rstrip("\n"), HEADING, INTRODUCTION, *(parts[name] for name in sorted(parts, reverse=True))]) + "\n",
                                  encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pynfs", help="a checkout of pynfs that was built")
    parser.add_argument("tests", nargs="*", help="codes and flags")
    parser.add_argument("--verbenad", default="build/services/verbenad")
    parser.add_argument("--minor", type=int, default=2, choices=(0, 1, 2))
    parser.add_argument("--backend", action="append", choices=("memfs", "posixfs"), help="both without it")
    parser.add_argument("--python-path", help="where ply is, if it is not installed")
    parser.add_argument("--json", help="a file for the results")
    parser.add_argument("--report", help="the page whose section is written anew")
    parser.add_argument("--beside", action="append", default=[], metavar="NAME=FILE", help="another server's results, for the page")
    options = parser.parse_args()
    options.tests = options.tests or ["all"]
    daemon.BINARY = str(pathlib.Path(options.verbenad).resolve())
    results = {}
    for backend in options.backend or ["memfs", "posixfs"]:
        try:
            results[backend] = serve(backend, options)
        except (Unusable, AssertionError) as why:
            print(f"{backend}: {why}", file=sys.stderr)
            return 2
    codes = sorted(set().union(*results.values()), key=order)
    print("test      " + "".join(f"{backend:10}" for backend in results) + "reason")
    wrong = []
    for code in codes:
        words = [results[backend].get(code, ("", ""))[0] for backend in results]
        reason = next((results[b][code][1] for b in results if code in results[b] and results[b][code][1]), "")
        if code in known_of(options.minor):
            if "passed" in words:
                wrong.append(f"{code} passes now, and KNOWN says that it fails")
            reason = known_of(options.minor)[code]
        elif "failed" in words:
            wrong.append(f"{code} failed: {reason}")
        print(f"{code:10}" + "".join(f"{word:10}" for word in words) + reason)
    for backend, all_of in results.items():
        counts = collections.Counter(word for word, _ in all_of.values())
        print(f"{backend}: {len(all_of)} tests, " + ", ".join(f"{counts[word]} {word}" for word in ("passed", "failed", "skipped")))
    for line in wrong:
        print(line, file=sys.stderr)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if options.report:
        report(options.report, results, {name: results_in(file) for name, _, file in (word.partition("=") for word in options.beside)}, options.minor, options.pynfs)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
