# SPDX-License-Identifier: Apache-2.0
"""The interoperation matrix: one line for each cell."""
import dataclasses
import datetime
import pathlib
import re
import textwrap

from . import kernels, power
from .common import SOURCE, command, read_or_none, say
from .data import EXTENT


@dataclasses.dataclass(frozen=True)
class Cell:
    scenario: str  # with its arguments
    client: str
    server: str
    wire: str
    work: str
    common: bool = False  # one of those that `./check --all` runs; `./check --lab-full` runs all


WORK = "files, sequential, fio, storms, names, git, 8 processes"
CLIENT_WORK = "trees, checksums, names, 8 processes, random procedures"
OPTIONS = "rsize and wsize 4 KiB to 1 MiB, odd ranges, ten groups, nconnect, soft, hard"
RESTART = "server killed three times under load; uncommitted writes lost and sent again"
CUT = "the wire cut and mended three times under a hard mount"
DEVICE = "device removed and added three times under load"
DEVICE_MOUNT = "the server's device removed and added three times under a hard mount; what was acknowledged is whole"
CONFORM = "the checks of the command; what the device fails is named"
BLOCK_PATHS = "two paths, each cut and mended in turn under load that verifies"
BLOCK_WORK = "512 and 4096 bytes, two devices at depth 64, flush, FUA, discard, zeroes, read-only"
BLOCK_RESTART = "server killed three times under load; what was acknowledged is there"
BLOCK_CLIENT = "written, read back; `always_invalidate` Y and N"
BLOCK_FILES = "a file system made, filled, read back and checked, on a block device and on a file"
RESTART4 = "server killed three times under two clients; opens and a lock reclaimed, nobody else gets it, data whole"
VERSION40 = "a tree both ways, names, locks, links; server killed under an open file and a lock"
CLIENTS4 = "two clients on one tree: checksums, locks, flock, SQLite with journals and WAL, git; delegations that the other one and version 3 recall"
KERNEL4 = "a tree both ways, the pseudo file system, flock, links, a delegation that version 3 recalls, and one that a local process does"
PNFS = "beside `verbena` with RDMA layouts on the same files: each sees what the other one wrote; files that are cut and replaced meanwhile"
EXTENDED = "holes, room, copies within the server, clones, extended attributes, umask; on ext4 and memfs"
BAD = "raw verbs beside it: forged and stale keys, garbage, no receives, credits exceeded, sudden ends, 300 connects"
LINUX, GUEST, HOST = "Linux NFSv3", "verbenad `{}` in the guest", "verbenad `{}` on the host, no RDMA device there"

# Two guests side by side take them in turn; pairs of guests run last. What a scenario's arguments may be stands in its first lines.
CELLS = (
    Cell("work iwarp siw", LINUX, GUEST.format("iwarp"), "siw", WORK, common=True),
    Cell("work rdma rxe", LINUX, GUEST.format("rdma"), "rxe", WORK, common=True),
    Cell("work tcp lo", LINUX, GUEST.format("tcp"), "TCP", WORK, common=True),
    Cell("options iwarp siw", LINUX, GUEST.format("iwarp"), "siw", OPTIONS, common=True),
    Cell("conform-rdma siw", "the verbs conformance suites", "themselves", "siw", "every verb, its errors and ends; what siw lacks is named", common=True),
    Cell("client-work rdma rxe", "verbena `rdma`", "knfsd v3", "rxe", CLIENT_WORK),
    Cell("client-work rdma siw", "verbena `rdma`", "knfsd v3", "siw", CLIENT_WORK),
    Cell("client-work iwarp siw", "verbena `iwarp`", "knfsd v3", "siw", CLIENT_WORK),
    Cell("restart iwarp siw", LINUX, GUEST.format("iwarp"), "siw", RESTART, common=True),
    Cell("restart rdma rxe", LINUX, GUEST.format("rdma"), "rxe", RESTART),
    Cell("device rdma rxe", "verbena `rdma`", GUEST.format("rdma"), "rxe", DEVICE, common=True),
    Cell("conform-rdma rxe", "the verbs conformance suites", "themselves", "rxe", "every verb, its errors and ends", common=True),
    Cell("bad-peers rxe", LINUX, GUEST.format("rdma"), "rxe", BAD, common=True),
    Cell("bad-peers siw", LINUX, GUEST.format("rdma"), "siw", BAD, common=True),
    Cell("rnbd-paths", "Linux RNBD", "`verbenad block` `rdma` in the guest", "rxe", BLOCK_PATHS, common=True),
    Cell("rnbd-guest", "Linux RNBD", "`verbenad block` `rdma` in the guest", "rxe", BLOCK_FILES),
    Cell("rnbd-work", "Linux RNBD", "`verbenad block` `rdma` in the guest", "rxe", BLOCK_WORK, common=True),
    Cell("rnbd-restart", "Linux RNBD", "`verbenad block` `rdma` in the guest", "rxe", BLOCK_RESTART, common=True),
    Cell("rnbd-client", "`verbena block` `rdma`", "Linux RNBD", "rxe", BLOCK_CLIENT, common=True),
    Cell("work-host", LINUX, HOST.format("iwarp"), "siw through the guest's NIC", WORK),
    Cell("conform-command rdma rdma rxe", "`verbena conform`", "`verbena conform`", "rxe", CONFORM),
    Cell("options rdma rxe", LINUX, GUEST.format("rdma"), "rxe", OPTIONS),
    Cell("capture", LINUX, GUEST.format("iwarp"), "siw", "what tshark finds fault with, beside knfsd's traffic", common=True),
    Cell("options rdma siw", LINUX, GUEST.format("rdma"), "siw", OPTIONS),
    Cell("work rdma siw", LINUX, GUEST.format("rdma"), "siw", WORK),
    Cell("options tcp lo", LINUX, GUEST.format("tcp"), "TCP", OPTIONS),
    Cell("device-choice", "`verbena conform`", "`verbena conform`", "rxe beside siw", "`--device`, `--source`, verbenad's `?device=`; doctor's ports and GIDs"),
    Cell("held-ports siw", "verbena `rdma`", GUEST.format("rdma"), "siw", "ports that TCP holds are passed over"),
    Cell("restart tcp lo", LINUX, GUEST.format("tcp"), "TCP", RESTART),
    Cell("nfs41-restart", "Linux NFSv4.1", GUEST.format("tcp"), "TCP", RESTART4, common=True),
    Cell("nfs40-guest", "Linux NFSv4.0", GUEST.format("tcp"), "TCP", VERSION40),
    Cell("nfs41-guest", "Linux NFSv4.1", GUEST.format("tcp"), "TCP", KERNEL4),
    Cell("nfs41-guest siw", "Linux NFSv4.1", GUEST.format("iwarp"), "siw", KERNEL4),
    Cell("nfs41-guest rxe", "Linux NFSv4.1", GUEST.format("rdma"), "rxe", KERNEL4),
    Cell("pnfs-guest", "Linux NFSv4.1, verbena `iwarp`", GUEST.format("iwarp"), "siw", PNFS, common=True),
    Cell("pnfs-guest rdma rxe", "Linux NFSv4.1, verbena `rdma`", GUEST.format("rdma"), "rxe", PNFS),
    Cell("nfs42-guest", "Linux NFSv4.2", GUEST.format("tcp"), "TCP", EXTENDED, common=True),
    Cell("nfs42-guest siw", "Linux NFSv4.2", GUEST.format("iwarp"), "siw", EXTENDED),
    Cell("nfs42-guest rxe", "Linux NFSv4.2", GUEST.format("rdma"), "rxe", EXTENDED),
    Cell("nfs4-clients tcp lo", "Linux NFSv4.2, 4.1, 3", GUEST.format("tcp"), "TCP", CLIENTS4, common=True),
    Cell("nfs4-clients iwarp siw", "Linux NFSv4.2, 4.1, 3", GUEST.format("iwarp"), "siw", CLIENTS4),
    Cell("nfs4-clients rdma rxe", "Linux NFSv4.2, 4.1, 3", GUEST.format("rdma"), "rxe", CLIENTS4),
    Cell("options tcp lo vers=4.2", "Linux NFSv4.2", GUEST.format("tcp"), "TCP", OPTIONS),
    Cell("options iwarp siw vers=4.1", "Linux NFSv4.1", GUEST.format("iwarp"), "siw", OPTIONS),
    Cell("work tcp lo vers=4.2", "Linux NFSv4.2", GUEST.format("tcp"), "TCP", WORK),
    Cell("work iwarp siw vers=4.1", "Linux NFSv4.1", GUEST.format("iwarp"), "siw", WORK),
    Cell("work rdma rxe vers=4.2", "Linux NFSv4.2", GUEST.format("rdma"), "rxe", WORK),
    Cell("client-work iwarp siw rdma", "verbena `iwarp`", GUEST.format("rdma"), "siw", CLIENT_WORK),
    Cell("restart rdma siw", LINUX, GUEST.format("rdma"), "siw", RESTART),
    Cell("client-work tcp siw", "verbena `tcp`", "knfsd v3", "TCP", CLIENT_WORK),
    Cell("client-work tcp siw knfsd 4.2", "verbena `tcp`", "knfsd v4.2", "TCP", CLIENT_WORK),
    Cell("device rdma siw", "verbena `rdma`", GUEST.format("rdma"), "siw", DEVICE),
    Cell("device rdma rxe *", "verbena `rdma`", GUEST.format("rdma").replace("guest", "guest, on every address"), "rxe", DEVICE),
    Cell("device rdma siw *", "verbena `rdma`", GUEST.format("rdma").replace("guest", "guest, on every address"), "siw", DEVICE),
    Cell("cut rdma rxe", LINUX, GUEST.format("rdma"), "RoCEv2 between two guests", CUT),
    Cell("device-mount rdma rxe", LINUX, GUEST.format("rdma"), "RoCEv2 between two guests", DEVICE_MOUNT),
    Cell("roce-wire", f"{LINUX}, verbena `rdma`", f"{GUEST.format('rdma')}, knfsd v3", "RoCEv2 between two guests",
         "procedures and chunk forms that tshark decodes; what it finds fault with, beside kernels' traffic"),
    Cell("cut iwarp siw", LINUX, GUEST.format("iwarp"), "siw between two guests", CUT, common=True),
    Cell("cut rdma siw", LINUX, GUEST.format("rdma"), "siw between two guests", CUT),
    Cell("cut tcp lo", LINUX, GUEST.format("tcp"), "TCP between two guests", CUT),
    Cell("device-mount rdma siw", LINUX, GUEST.format("rdma"), "siw between two guests", DEVICE_MOUNT),
    Cell("conform-hosts rxe", "`verbena conform`", "`verbena conform`", "RoCEv2 between two guests", CONFORM),
    Cell("conform-hosts siw", "`verbena conform`", "`verbena conform`", "siw between two guests", CONFORM),
)


# Of the loss of power, whose rows say in `work` what they came to.
POWER_FILES = Cell("power", "verbena `tcp`, `iwarp`", "verbenad on ext4", "TCP", "loss of power, and a server that does not sync is found out")
POWER_BLOCKS = Cell("power", "verbena `rnbd+iwarp`", "`verbenad block`, a file on ext4", "TCP", POWER_FILES.work)
# What no cell reaches.
NOWHERE = ("No cell has RDMA hardware: rxe and siw stand for it. No cell has clients other than Linux's and verbena's own, or kernels other "
           "than Debian's 6.1 and 6.12. RNBD does not run over siw, which has no RDMA Write with immediate.")


EVERY = (*CELLS, POWER_FILES, POWER_BLOCKS)


def is_of(cell, key):
    """Whether that is the key of a result of CELL. What the loss of power came to stands in its rows alone."""
    return key[:3] == (cell.client, cell.server, cell.wire) and (key[3] == cell.work or cell in (POWER_FILES, POWER_BLOCKS))


def cell_of(row):
    """The cell that a row (kernel release, title, reason or None, seconds) is a result of."""
    named = {cell.scenario: cell for cell in CELLS}.get(row[1])
    return named or (POWER_BLOCKS if power.BLOCKS.of in row[1] else POWER_FILES)


def filled(text):
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


# The section that `tests/interop/pynfs.py --report` writes, behind all that is ours.
OF_PYNFS = "\n## pynfs\n"


# What the page says of itself. `tests/lab/lab` alone writes it.
ABOUT = ("Written by `tests/lab/lab --report`, which `./check --lab-full` calls too, and not by hand. Each row is the newest run of its cell: when, on "
         "which commit, at which size. Stock Debian kernels under qemu's software emulation, so the seconds say what a run costs, not how fast anything "
         "is. [internals/lab.md](internals/lab.md) tells what each cell does, and the [last of its tables](#what-has-not-run) what has not run.")
HEAD = ("| client | server | wire | work | kernel | result | seconds | run |", "|---|---|---|---|---|---|---|---|")
COLUMNS = HEAD[0].count("|") - 1


def series_of(release):
    return next((series for series in kernels.SERIES if release.startswith(series + ".")), release)


def key_of_line(line):
    """Of a row of the page: what it is a result of, or None for a line that is no such row."""
    words = [word.strip() for word in re.split(r"(?<!\\)\|", line)[1:-1]]
    if len(words) != COLUMNS or words[0] == "client" or set(words[0]) == {"-"}:
        return None
    client, server, wire, work, release = words[:5]
    if any((client, server) == (cell.client, cell.server) for cell in (POWER_FILES, POWER_BLOCKS)):
        work = re.sub(r"\d+", "N", work) # which are others in each run
    return client, server, wire, work, series_of(release)


class Report:
    """The page: rows of earlier runs stand until the same cell runs again on a kernel of the same series. It is written anew after each result,
    so that a run that is stopped shows what it came to."""

    def __init__(self, path, size):
        self.path = pathlib.Path(path)
        commit = command("git", "-C", SOURCE, "rev-parse", "--short", "HEAD").strip()
        changed = command("git", "-C", SOURCE, "status", "--porcelain", "--untracked-files=no").strip()
        self.made = f"{datetime.date.today()}, {commit}{' and what is not committed' if changed else ''}, {size}"
        self.results = []  # (kernel release, title of the cell, reason or None, seconds)
        self.lines = {}  # of the table, by what they are a result of
        page = read_or_none(self.path) or ""
        for line in page.partition("\n## ")[0].split("\n"):
            key = key_of_line(line)
            if key and any(is_of(cell, key) for cell in EVERY): # the row of a cell that is no more goes
                self.lines[key] = line

    def add(self, rows):
        """ROWS as the runner and the loss of power return them."""
        for row in rows:
            release, name, reason, seconds = row
            cell = cell_of(row)
            work = name if cell in (POWER_FILES, POWER_BLOCKS) else cell.work
            result = "passed" if reason is None else f"failed: {reason}".replace("|", "\\|").replace("\n", " ")
            line = f"| {cell.client} | {cell.server} | {cell.wire} | {work} | {release} | {result} | {seconds} | {self.made} |"
            self.lines[key_of_line(line)] = line
        self.results += rows
        self.write()

    def unrun(self, some_series):
        """The cells without a row for one of these kernel series."""
        return [cell for cell in CELLS if not all(self.has(cell, series) for series in some_series)]

    def has(self, cell, series):
        return any(is_of(cell, key) and key[-1] == series for key in self.lines)

    def not_run(self):
        """What a reader might look for in vain."""
        lines = ["", "## What has not run", "", *filled(NOWHERE)]
        for series in kernels.SERIES:
            left = [cell for cell in EVERY if not self.has(cell, series)]
            if len(left) == len(EVERY):
                lines += ["", f"None of this ran on {series}, where `./check --all` runs the smoke scenarios."]
            elif left:
                lines += ["", f"On {series}:", "", "| client | server | wire | work |", "|---|---|---|---|",
                          *sorted(f"| {cell.client} | {cell.server} | {cell.wire} | {cell.work} |" for cell in left)]
        return lines

    def write(self):
        sizes = "; ".join(f"{name}: {extent.files} files, {extent.mebibytes} MiB, {extent.names} names in a folder, storms of {extent.storm} files"
                          for name, extent in EXTENT.items())
        lines = ["# Interoperation", "", *filled(ABOUT), "",
                 *filled(f"Sizes: {sizes}. Each guest has one processor, and verbenad in it two shards but for capture, device-choice and roce-wire."),
                 "", *HEAD, *(self.lines[key] for key in sorted(self.lines)), # what is alike stands together
                 *self.not_run()]
        _, heading, section = (read_or_none(self.path) or "").partition(OF_PYNFS)
        self.path.write_text("\n".join([*lines, ""]) + heading + section, encoding="utf-8")
        say(f"report: {self.path}")
