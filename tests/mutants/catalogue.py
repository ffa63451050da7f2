# SPDX-License-Identifier: Apache-2.0
"""The list of mutants: what `tests/mutants/*.toml` say, whether that still fits the sources, and which of them a change concerns."""
import os
import re
import subprocess
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.normpath(os.path.join(HERE, "..", ".."))
FIELDS = {"name", "file", "old", "new", "breaks", "test", "cases"}
LANDING = 20 # commits, where nothing tells what a change is compared with


def content_of(path):
    """The bytes of a file, or None."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def read(folder=HERE):
    """All mutants, each a dict of FIELDS. Those of one file follow each other, so that a run compiles it once to mend one and to plant the
    next. Raises ValueError for a list that no run can use."""
    mutants = []
    for name in sorted(os.listdir(folder)):
        if name.endswith(".toml"):
            for mutant in tomllib.loads(content_of(os.path.join(folder, name)).decode())["mutant"]:
                if set(mutant) != FIELDS:
                    raise ValueError(f"{name}: {mutant.get('name')}: has {sorted(mutant)}, and must have {sorted(FIELDS)}")
                mutants.append(mutant)
    names = [m["name"] for m in mutants]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two mutants are named {', '.join(sorted(twice))}")
    return sorted(mutants, key=lambda m: (m["file"], m["test"]))


def why_stale(mutant, content):
    """What is wrong with a mutant of a source of this content (None: it is gone); None if it can be planted."""
    if content is None:
        return f"{mutant['file']} is gone"
    if (times := content.count(mutant["old"].encode())) != 1:
        return f"{mutant['file']} has the piece {times} times"
    if mutant["old"] == mutant["new"]:
        return "it changes nothing"
    return None


def identifier(name):
    """As as_identifier() of the conformance kit."""
    return "_".join(re.findall(r"[A-Za-z0-9]+", name))


def cases_of(sources):
    """The names of all test cases in these texts, of Boost.Test's macros and ours, of the conformance kit's tables, and of Python's."""
    found = set()
    for text in sources:
        found.update(re.findall(r"_(?:CASE|SUITE)\(\s*(\w+)", text))
        for names in re.findall(r'^    \{"([^"]+)",\s*"([^"]+)",', text, re.M):
            found.update(map(identifier, names))
        found.update(re.findall(r"^class (\w+)", text, re.M))
        found.update(re.findall(r"^    def (test_\w+)", text, re.M))
    return found


def unknown_cases(mutant, known):
    """Names in `cases` that no test has. A run would take a test that does not exist for one that fails."""
    for word in re.split(r"[/,.\s]+", mutant["cases"]):
        prefix = word.rstrip("*")
        if prefix not in known and not (word != prefix and any(name.startswith(prefix) for name in known)):
            yield word


def suites_of(top=TOP):
    """The suites of each program that has several, as the groups of tests/unit/meson.build list them."""
    text = (content_of(os.path.join(top, "tests", "unit", "meson.build")) or b"").decode()
    return {"unit_" + name: set(re.findall(r"/(\w+)\.cpp'", files)) for name, files in re.findall(r"'(\w+)': \[\n(.*?)\n  \]", text, re.S)}


def suites_elsewhere(mutant, programs):
    """Suites in `cases` that its program does not have. Boost.Test fails then, as if the mutant were seen."""
    suites = programs.get(mutant["test"])
    for case in mutant["cases"].split(",") if suites else ():
        suite = case.split("/")[0]
        if suite != "*" and suite not in suites:
            yield suite


def problems(sources, top=TOP, folder=HERE):
    """One line for each mutant that no run could plant or test; `sources` are the texts of all tests."""
    try:
        mutants = read(folder)
    except (ValueError, KeyError) as wrong: # what TOML refuses is a ValueError
        yield str(wrong)
        return
    known = cases_of(sources)
    programs = suites_of(top)
    contents = {name: content_of(os.path.join(top, name)) for name in {m["file"] for m in mutants}}
    for mutant in mutants:
        if why := why_stale(mutant, contents[mutant["file"]]):
            yield f"{mutant['name']}: {why}"
        for case in unknown_cases(mutant, known):
            yield f"{mutant['name']}: no test is named {case}"
        if re.search(r",.*/", mutant["cases"]) and mutant["test"] in programs: # Boost.Test would find none
            yield f"{mutant['name']}: a comma stands between names of one level"
        for suite in suites_elsewhere(mutant, programs):
            yield f"{mutant['name']}: {mutant['test']} has no suite {suite}"


def git(top, *arguments):
    """What git prints, or None if it fails."""
    done = subprocess.run(["git", *arguments], cwd=top, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def base(top=TOP):
    """The commit that a change is compared with: where it left the branch that it goes to, else the newest tag, else LANDING commits back.
    None without any."""
    here = git(top, "rev-parse", "HEAD")
    for branch in ("origin/HEAD", "origin/main", "main"):
        left = git(top, "merge-base", branch, "HEAD")
        if left and left != here:
            return left.strip()
    tag = git(top, "describe", "--tags", "--abbrev=0")
    if tag and git(top, "rev-parse", tag.strip() + "^{commit}") != here:
        return tag.strip()
    first = git(top, "rev-list", "--first-parent", f"--max-count={LANDING + 1}", "HEAD")
    return first.split()[-1] if first else None


def changed_since(revision, top):
    """The files that differ from `revision`, uncommitted changes included; None for a revision that git does not know."""
    listed = git(top, "diff", "--name-only", "-z", revision)
    return None if listed is None else set(listed.split("\0"))


def differing(mutants, revision, top=TOP, folder=HERE):
    """Those of the mutants that `revision` does not have, or not so."""
    changed = changed_since(revision, top)
    prefix = os.path.relpath(folder, top)
    before = []
    for name in sorted(os.listdir(folder)):
        path = os.path.join(prefix, name)
        if name.endswith(".toml") and path in changed:
            text = git(top, "show", f"{revision}:{path}")
            before += tomllib.loads(text)["mutant"] if text else []
        elif name.endswith(".toml"):
            before += tomllib.loads(content_of(os.path.join(folder, name)).decode())["mutant"]
    return [m for m in mutants if m not in before]


def concerned(mutants, revision, top=TOP, folder=HERE):
    """The mutants whose source differs from `revision`, uncommitted changes included, and those that differ themselves. None for a revision
    that git does not know."""
    changed = changed_since(revision, top)
    if changed is None:
        return None
    new = {m["name"] for m in differing(mutants, revision, top, folder)}
    return [m for m in mutants if m["file"] in changed or m["name"] in new]
