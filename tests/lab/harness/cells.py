# SPDX-License-Identifier: Apache-2.0
"""The interoperation matrix: one line for each cell."""
import dataclasses
import datetime
import hashlib
import json
import pathlib
import re

from . import kernels, power
from .common import SOURCE, LabError, command, read_or_none, say


@dataclasses.dataclass(frozen=True)
class Cell:
    scenario: str  # with its arguments
    client: str
    server: str
    wire: str
    work: str
    brief: bool = False  # run by `./check --all --within MINUTES` however slow the machine
    soon: bool = False  # of the others, one that it turns to first


WORK = "files, sequential, fio, storms, names, git, 8 processes"
CLIENT_WORK = "trees, checksums, names, 8 processes, random procedures"
OPTIONS = "rsize and wsize 4 KiB to 1 MiB, odd ranges, ten groups, nconnect, soft, hard"
RESTART = "server killed three times under load; uncommitted writes lost and sent again"
LINK = "link down and up three times under load"
CUT = "the wire cut and mended three times under a hard mount"
DEVICE = "device removed and added three times under load"
DEVICE_MOUNT = "the server's device removed and added three times under a hard mount; what was acknowledged is whole"
CONFORM = "the checks of the command; what the device fails is named"
TOOLS, PINGS = "rdma-core's test programs, and as servers", "rping of 4,000 and 65,000 octets, rdma_client and rdma_server"
BAD = "raw verbs beside it: forged and stale keys, garbage, no receives, credits exceeded, sudden ends, 300 connects"
LINUX, GUEST, HOST = "Linux NFSv3", "verbenad `{}` in the guest", "verbenad `{}` on the host, no RDMA device there"

# Two guests side by side take them in turn, and the order is such that both end at about the same time: what goes with the longest,
# bad-peers siw, is short. Pairs of guests take the next one; conform-hosts siw, which may wait for minutes while nothing is at work
# (docs/internals/rdma.md), is the last. What a scenario's arguments may be stands in its first lines.
CELLS = (
    Cell("work iwarp siw", LINUX, GUEST.format("iwarp"), "siw", WORK, brief=True),
    Cell("work rdma rxe", LINUX, GUEST.format("rdma"), "rxe", WORK, brief=True),
    Cell("work tcp lo", LINUX, GUEST.format("tcp"), "TCP", WORK, brief=True),
    Cell("options iwarp siw", LINUX, GUEST.format("iwarp"), "siw", OPTIONS, brief=True),
    Cell("conform-rdma siw", "the verbs conformance suites", "themselves", "siw", "every verb, its errors and ends; what siw lacks is named", brief=True),
    Cell("client-work rdma rxe", "verbena `rdma`", "knfsd v3", "rxe", CLIENT_WORK, brief=True),
    Cell("client-work rdma siw", "verbena `rdma`", "knfsd v3", "siw", CLIENT_WORK, brief=True),
    Cell("client-work iwarp siw", "verbena `iwarp`", "knfsd v3", "siw", CLIENT_WORK, brief=True),
    Cell("link tcp lo", LINUX, GUEST.format("tcp"), "TCP", LINK, brief=True),
    Cell("restart iwarp siw", LINUX, GUEST.format("iwarp"), "siw", RESTART, brief=True),
    Cell("restart rdma rxe", LINUX, GUEST.format("rdma"), "rxe", RESTART, brief=True),
    Cell("device rdma rxe", "verbena `rdma`", GUEST.format("rdma"), "rxe", DEVICE, brief=True),
    Cell("conform-rdma rxe", "the verbs conformance suites", "themselves", "rxe", "every verb, its errors and ends", brief=True),
    Cell("verbs-tools rdma rxe", TOOLS, "examples/verbs_peer by `rdma`", "rxe", f"{PINGS}; ucmatose", brief=True),
    Cell("verbs-tools iwarp siw", TOOLS, "examples/verbs_peer by `iwarp`", "siw", f"{PINGS}; ucmatose as the server", brief=True),
    Cell("bad-peers rxe", LINUX, GUEST.format("rdma"), "rxe", BAD, soon=True),
    Cell("bad-peers siw", LINUX, GUEST.format("rdma"), "siw", BAD, soon=True),
    Cell("work-host", LINUX, HOST.format("iwarp"), "siw through the guest's NIC", WORK, soon=True),
    Cell("conform-command rdma rdma rxe", "`verbena conform`", "`verbena conform`", "rxe", CONFORM, soon=True),
    Cell("options rdma rxe", LINUX, GUEST.format("rdma"), "rxe", OPTIONS, soon=True),
    Cell("capture", LINUX, GUEST.format("iwarp"), "siw", "what tshark finds fault with, beside knfsd's traffic", soon=True),
    Cell("options rdma siw", LINUX, GUEST.format("rdma"), "siw", OPTIONS, soon=True),
    Cell("conform-command iwarp rdma siw", "`verbena conform` by `iwarp`", "`verbena conform` by `rdma`", "siw", CONFORM, soon=True),
    Cell("conform-command rdma rdma siw", "`verbena conform`", "`verbena conform`", "siw", CONFORM, soon=True),
    Cell("conform-command rdma iwarp siw", "`verbena conform` by `rdma`", "`verbena conform` by `iwarp`", "siw", CONFORM, soon=True),
    Cell("work rdma siw", LINUX, GUEST.format("rdma"), "siw", WORK, soon=True),
    Cell("link iwarp siw", LINUX, GUEST.format("iwarp"), "siw", LINK, soon=True),
    Cell("options tcp lo", LINUX, GUEST.format("tcp"), "TCP", OPTIONS, soon=True),
    Cell("device-choice", "`verbena conform`", "`verbena conform`", "rxe beside siw", "`--device`, `--source`, verbenad's `?device=`; doctor's ports and GIDs", soon=True),
    Cell("held-ports siw", "verbena `rdma`", GUEST.format("rdma"), "siw", "ports that TCP holds are passed over", soon=True),
    Cell("restart tcp lo", LINUX, GUEST.format("tcp"), "TCP", RESTART, soon=True),
    Cell("client-work iwarp siw rdma", "verbena `iwarp`", GUEST.format("rdma"), "siw", CLIENT_WORK, soon=True),
    Cell("shared-queue siw", "`rdma link delete`", "a shared receive queue by `rdma`", "siw", "the device goes; a queue on the next", soon=True),
    Cell("shared-queue rxe", "`rdma link delete`", "a shared receive queue by `rdma`", "rxe", "the device goes; a queue on the next", soon=True),
    Cell("conform-rdma rxe type_1_window", "the verbs conformance suites", "themselves", "rxe", "the same, grants by windows of type 1", soon=True),
    Cell("conform-rdma rxe region", "the verbs conformance suites", "themselves", "rxe", "the same, grants by registrations", soon=True),
    Cell("restart rdma siw", LINUX, GUEST.format("rdma"), "siw", RESTART, soon=True),
    Cell("link rdma siw", LINUX, GUEST.format("rdma"), "siw", LINK, soon=True),
    Cell("client-work tcp siw", "verbena `tcp`", "knfsd v3", "TCP", CLIENT_WORK, soon=True),
    Cell("device rdma siw", "verbena `rdma`", GUEST.format("rdma"), "siw", DEVICE, soon=True),
    Cell("device rdma rxe *", "verbena `rdma`", GUEST.format("rdma").replace("guest", "guest, on every address"), "rxe", DEVICE, soon=True),
    Cell("device rdma siw *", "verbena `rdma`", GUEST.format("rdma").replace("guest", "guest, on every address"), "siw", DEVICE, soon=True),
    Cell("wire", "a guest", "another guest", "Ethernet between the two", "answers; the capture; cut and mended", brief=True),
    Cell("cut rdma rxe", LINUX, GUEST.format("rdma"), "RoCEv2 between two guests", CUT, soon=True),
    Cell("device-mount rdma rxe", LINUX, GUEST.format("rdma"), "RoCEv2 between two guests", DEVICE_MOUNT, soon=True),
    Cell("roce-wire", f"{LINUX}, verbena `rdma`", f"{GUEST.format('rdma')}, knfsd v3", "RoCEv2 between two guests",
         "procedures and chunk forms that tshark decodes; what it finds fault with, beside kernels' traffic", soon=True),
    Cell("cut iwarp siw", LINUX, GUEST.format("iwarp"), "siw between two guests", CUT, soon=True),
    Cell("cut rdma siw", LINUX, GUEST.format("rdma"), "siw between two guests", CUT, soon=True),
    Cell("cut tcp lo", LINUX, GUEST.format("tcp"), "TCP between two guests", CUT, soon=True),
    Cell("device-mount rdma siw", LINUX, GUEST.format("rdma"), "siw between two guests", DEVICE_MOUNT, soon=True),
    Cell("conform-hosts rxe", "`verbena conform`", "`verbena conform`", "RoCEv2 between two guests", CONFORM, soon=True),
    Cell("conform-hosts siw", "`verbena conform`", "`verbena conform`", "siw between two guests", CONFORM),
)


def commit():
    """Of the source, in hexadecimal digits; 0 where it is not in git."""
    try:
        return command("git", "-C", SOURCE, "rev-parse", "HEAD").strip()
    except LabError:
        return "0"


def others(cells, digits):
    """The scenarios of the cells that are not brief, as a run takes them that may have no time for all: first those marked `soon`.
    Which of the rest comes next goes by the commit's DIGITS, so that over some commits each has its turn."""
    soon = [cell.scenario for cell in cells if cell.soon]
    rest = [cell.scenario for cell in cells if not cell.soon and not cell.brief]
    first = int(digits[:8], 16) % max(1, len(rest))
    return soon + rest[first:] + rest[:first]


# What every cell is made of: the programs, and the harness but for this file, which lists the cells and writes the page.
COMMON = ("core", "transports", "protocols", "plugins", "services", "examples", "subprojects", "meson.build", "meson_options.txt",
          "tests/lab/lab", "tests/lab/harness", "tests/lab/guest/init", "tests/lab/guest/driver.sh", "tests/lab/guest/lib.sh")
HERE = "tests/lab/harness/cells.py"
# What else a cell is made of if its scripts, or files that these bring in, have that word. Other scripts come in by their names.
NAMED = {"services/client/conform": "conform", "tests/lab/ledger": "ledger", "tests/lab/raw_verbs": "raw_verbs", "tests/lab/shared_queue": "shared_queue",
         "tests/unit/transports": "transports_conformance", "tests/integration/peers.py": "peers"}


class Sources:
    """The files at HEAD, of which a cell is made of some. A commit that changes none of those is the same to it."""

    def __init__(self):
        self.files = {}
        for line in command("git", "-C", SOURCE, "ls-tree", "-r", "HEAD").splitlines():
            what, path = line.split("\t")
            self.files[path] = what
        self.named = NAMED | {path: pathlib.PurePath(path).name for path in self.under("tests/lab/guest")} | \
            {path: f"scenarios/{pathlib.PurePath(path).name}" for path in self.under("tests/lab/scenarios")}

    def under(self, path):
        return {each for each in self.files if each == path or each.startswith(f"{path}/")}

    def of(self, title):
        """The files that the cell, or the loss of power, is made of."""
        if title == power.TITLE:
            scripts = {"tests/lab/harness/power.py"}
        else:
            begin = f"tests/lab/scenarios/{title.split()[0]}."
            scripts = {path for path in self.under("tests/lab/scenarios") if path.startswith(begin)}
        used = set().union(*map(self.under, COMMON)) - set().union(*map(self.under, NAMED)) - {HERE} - scripts
        more = scripts | self.under("tests/lab/guest/lib.sh")
        while more:
            used |= more
            text = "\n".join((SOURCE / path).read_text(encoding="utf-8") for path in more)
            more = set().union(*(self.under(path) for path, word in self.named.items()
                                 if re.search(rf"(?<![\w-]){re.escape(word)}", text))) - used
        return used

    def content(self, title):
        return hashlib.sha256("\n".join(f"{self.files[path]} {path}" for path in sorted(self.of(title))).encode()).hexdigest()


def changed_files():
    """Of those of which cells are made, the ones that differ from HEAD."""
    return set(command("git", "-C", SOURCE, "diff", "--name-only", "--no-renames", "HEAD", "--", *COMMON, "tests/lab", *NAMED).splitlines())


class Report:
    """The results of a full run, kept beside the page made of them so that another day or machine can go on with it."""

    def __init__(self, path, extent, size):
        self.path, self.extent, self.size = pathlib.Path(path), extent, size
        self.commit = command("git", "-C", SOURCE, "rev-parse", "--short", "HEAD").strip()
        self.changed = bool(changed_files())
        self.sources = Sources()
        self.kept = self.path.with_suffix(".json")
        # What ran with changes that are not committed says nothing of the commit, and with another content nothing of this.
        there = {cell.scenario for cell in CELLS} | {power.TITLE}
        self.results = [] if self.changed else [each for each in self.read_kept() if each["title"] in there and
                                                each["content"] == self.sources.content(each["title"])]
        if self.results:
            self.write() # of this commit, also when nothing is left to run

    def read_kept(self):
        text = read_or_none(self.kept)
        if text is None:
            return []
        try:
            known = json.loads(text)
            size = known["size"]
            results = [{key: each[key] for key in ("kernel", "title", "content", "rows")} for each in known["results"]]
        except (ValueError, KeyError, TypeError) as error:
            raise LabError(f"{self.kept} holds no results of a full run ({error}); mend or remove it") from None
        if size != self.size:
            raise LabError(f"{self.kept} has results of --size {size}; name another file with --report, or remove it")
        return results

    def has(self, release, title):
        """Whether that passed already."""
        return any(each["kernel"] == release and each["title"] == title and
                   all(reason is None for _, reason, _ in each["rows"]) for each in self.results)

    def add(self, title, rows):
        """ROWS as the runner and the loss of power return them; they replace what was there of the same title."""
        release = rows[0][0]
        self.results = [each for each in self.results if (each["kernel"], each["title"]) != (release, title)]
        content = None if self.changed else self.sources.content(title)
        if content and (changed_files() & self.sources.of(title) or Sources().content(title) != content):
            content = None
            rows = [(*row[:2], row[2] or "files that it runs have changed since this run began", row[3]) for row in rows]
        self.results.append({"kernel": release, "title": title, "content": content, "rows": [list(row[1:]) for row in rows]})
        if not self.changed:
            whole = self.kept.with_suffix(".new")
            lines = ",\n".join(json.dumps(each) for each in self.results)
            whole.write_text(f'{{"size": {json.dumps(self.size)}, "results": [\n{lines}\n]}}\n', encoding="utf-8")
            whole.replace(self.kept)
        self.write()

    def rows(self):
        return [(each["kernel"], *row) for each in self.results for row in each["rows"]]

    def write(self):
        cells = {cell.scenario: cell for cell in CELLS}
        changed = " and changes that are not committed" if self.changed else ""
        extent = self.extent
        lines = [
            "# Interoperation", "",
            "Written by `tests/lab/lab full`, which `./check --lab-full` calls, and not by hand. Stock Debian kernels under qemu's software",
            "emulation, so the seconds say what a run costs, not how fast anything is. [internals/lab.md](internals/lab.md) tells what each",
            "cell does.",
            "", f"Commit {self.commit}{changed}, or for each cell one before it in which all that it runs is the same; "
            f"{datetime.date.today()}.",
            f"Sizes: {extent.files} files, {extent.mebibytes} MiB, "
            f"{extent.names} names in a folder, storms of {extent.storm} files. Each guest has one processor, and verbenad in it two shards but for capture, device-choice and roce-wire.", "",
            "| client | server | wire | work | kernel | result | seconds |", "|---|---|---|---|---|---|---|"]
        for release, name, reason, seconds in sorted(self.rows(), key=lambda row: row[:2]): # what is alike stands together
            cell = cells.get(name)
            what = f"{cell.client} | {cell.server} | {cell.wire} | {cell.work}" if cell \
                else f"verbena `tcp`, `iwarp` | verbenad on ext4 | TCP | {name}"
            result = "passed" if reason is None else f"failed: {reason}".replace("|", "\\|")
            lines.append(f"| {what} | {release} | {result} | {seconds} |")
        for release in sorted({each["kernel"] for each in self.results}):
            left = [title for title in [*cells, power.TITLE] if not any(
                (each["kernel"], each["title"]) == (release, title) for each in self.results)]
            if left:
                lines += ["", f"Not run on {release}: {', '.join(left)}."]
        for series in kernels.SERIES:
            if not any(each["kernel"].startswith(series + ".") for each in self.results):
                lines += ["", f"None of this ran on {series}, where `./check --all` runs the smoke scenarios."]
        self.path.write_text("\n".join([*lines, ""]), encoding="utf-8")
        say(f"report: {self.path}")
