# SPDX-License-Identifier: Apache-2.0
"""Runs scenarios: artefact folders, host parts, boots side by side, one of two guests for each peer part, results."""
import concurrent.futures
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from . import boot, data, wire
from .common import LAB, SOURCE, LabError, last_lines, read_or_none, say

SHOWN_LINES = 60
one_report = threading.Lock()


def run(kernels, scenarios, args):
    """Runs all scenarios on all kernels; returns a row (kernel release, title, reason or None, seconds) for each."""
    folders = [scenario.folder for scenario in scenarios]
    if len(set(folders)) != len(folders):
        raise LabError("a scenario with the same arguments can stand only once in a boot")
    out = pathlib.Path(args.out or tempfile.mkdtemp(prefix="verbena-lab-")).absolute()
    build = pathlib.Path(args.build or SOURCE / "build").absolute()
    alone = [scenario for scenario in scenarios if not scenario.peer_part]
    groups = [alone[first::args.boots] for first in range(min(args.boots, len(alone)))]
    pairs = [[scenario] for scenario in scenarios if scenario.peer_part]

    def works(groups):
        return [lambda kernel=kernel, group=group: run_boot(
            kernel, group, out / f"{kernel.series}-{group[0].folder}", build, args, args.command == "run")
            for kernel in kernels for group in groups]
    rows = []
    try:
        for some in side_by_side(works(groups), args.boots):
            rows += some
        for some in side_by_side(works(pairs), pairs_at_once(args)):
            rows += some
    finally:
        if args.out or any(reason is not None for _, _, reason, _ in rows):
            say(f"artefacts: {out}")
        else:
            shutil.rmtree(out, ignore_errors=True)
    return rows


def pairs_at_once(args):
    """How many pairs of guests run side by side: they wait for each other and for time to pass more than single ones do."""
    return max(1, args.boots // args.cpus)


def side_by_side(works, many):
    """Does WORKS, MANY at a time; yields what they return, in the order in which they end. If one fails, or this is
    interrupted, the guests of the others are killed."""
    with concurrent.futures.ThreadPoolExecutor(many) as threads:
        begun = [threads.submit(work) for work in works]
        try:
            for each in concurrent.futures.as_completed(begun):
                yield each.result()
        except BaseException:
            for each in begun:
                each.cancel()
            boot.end_all()
            raise


def run_boot(kernel, scenarios, out, build, args, show):
    """Runs all scenarios in one boot of one kernel, or one that has a peer part; returns a row for each. What a boot that ended
    early did not come to has another one."""
    shutil.rmtree(out, ignore_errors=True)
    net = args.net or ("user" if any(scenario.net == "user" for scenario in scenarios) else "none")
    variables = {"LAB_ROOT": SOURCE, "LAB_BUILD": build, "LAB_LIB": LAB / "guest/lib.sh", "LAB_NET": net,
                 "LAB_DATA": data.prepare(args.size), **data.EXTENT[args.size].variables()}
    for scenario in scenarios:
        (out / scenario.folder).mkdir(parents=True)
    begun = time.monotonic()
    ended, peer_ended = {}, ""
    host_parts = {}
    try:
        for scenario in scenarios:
            if scenario.host_part:
                host_parts[scenario.folder] = HostPart(scenario, out / scenario.folder, variables)
        left = [scenario for scenario in scenarios
                if scenario.folder not in host_parts or host_parts[scenario.folder].wait_until_ready()]
        boots = idle = 0
        while left and idle < 2:
            limit = sum(scenario.limit for scenario in left)
            boots += 1
            if boots > 1:
                put_aside(out, boots - 1, left)
            if left[0].peer_part:
                ended[left[0].folder], peer_ended = run_two(kernel, out, net, args, left[0], limit, show, variables)
                came = left if came_to_two(out / left[0].folder, out / "peer" / left[0].folder) else []
            else:
                write_plan(out, [(scenario, scenario.path) for scenario in left], variables)
                # A kernel waits for its server for ever. What runs beside others must leave them their time, though.
                alone = host_parts.get(left[0].folder) if len(left) == 1 else None
                why = boot.run(kernel, out, net, args, limit, show, alone.gone if alone else lambda: None)
                ended.update({scenario.folder: why for scenario in left})
                came = [scenario for scenario in left if come_to(out / scenario.folder)]
            left = [scenario for scenario in left if scenario not in came]
            # An emulated processor hangs in its boot now and then: that is none of the scenario's.
            idle = 0 if came else idle + 1
            if idle == 1:
                say(f"a guest for {left[0].title} did not boot; once more")
    finally:
        for part in host_parts.values():
            part.stop()
    rows = []
    for scenario in scenarios:
        reason = verdict(out / scenario.folder, host_parts.get(scenario.folder), ended.get(scenario.folder, ""))
        if scenario.peer_part:
            reason = of_two(reason, verdict(out / "peer" / scenario.folder, None, peer_ended))
        with one_report:
            seconds = report(kernel, scenario, out, reason, show)
        rows.append((kernel.release, scenario.title, reason, seconds))
    say(f"{kernel.release}: {time.monotonic() - begun:.0f} s for this boot")
    return rows


def come_to(folder):
    return (folder / "begun").exists()


def came_to_two(folder, peer_folder):
    """Whether both parts began, or one went down in its work, which is no matter of booting."""
    begun = [each for each in (folder, peer_folder) if (each / "begun").exists()]
    return len(begun) == 2 or any(not (each / "result").exists() for each in begun)


def put_aside(out, number, scenarios):
    """What a boot wrote that the next one, of SCENARIOS, will write anew."""
    for name in ("console", "output", "qemu", "booted", "peer", *(scenario.folder for scenario in scenarios if scenario.peer_part)):
        if (out / name).exists():
            (out / name).rename(out / f"{name}.{number}")
    (out / "finished").unlink(missing_ok=True)
    for scenario in scenarios:
        (out / scenario.folder).mkdir(exist_ok=True)


def run_two(kernel, out, net, args, scenario, limit, show, variables):
    """Runs a scenario and its peer part in two guests; returns why each had to be ended.

    The second guest's folders are in `peer`, where its scenario's folder is where the two meet."""
    peer = out / "peer"
    meeting = peer / scenario.folder
    meeting.mkdir(parents=True)
    outs, parts, seen = (out, peer), (scenario.path, scenario.peer_part), ("/lab/job/peer", "/lab/job")
    for number in range(2):
        write_plan(outs[number], [(scenario, parts[number])], {
            **variables, "LAB_SELF": wire.ADDRESSES[number], "LAB_PEER": wire.ADDRESSES[1 - number],
            "LAB_MAC": wire.MACS[number], "LAB_MEETING": f"{seen[number]}/{scenario.folder}"})
    joined = wire.Wire(meeting)
    try:
        return boot.run_two(kernel, outs, joined, net, args, limit, show)
    finally:
        joined.close()


def of_two(reason, peer_reason):
    """Of the reasons of two guests the one that a part gave itself goes before one that its end gave it."""
    both = [each for each in (reason, peer_reason and f"second guest: {peer_reason}") if each]
    return min(both, key=lambda each: "while it ran" in each, default=None)


def write_plan(out, scenarios, variables):
    """What the guest runs after its start: variables and one line for each scenario and its script."""
    lines = [f"export {name}={shlex.quote(str(value))}" for name, value in variables.items()]
    lines.append(f". {shlex.quote(str(LAB / 'guest/driver.sh'))}")
    for scenario, path in scenarios:
        words = ["scenario", scenario.folder, str(scenario.limit), str(path)]
        lines.append(" ".join(shlex.quote(word) for word in [*words, *scenario.arguments]))
    (out / "plan").write_text("\n".join([*lines, "finish", ""]), encoding="utf-8")


def verdict(folder, host_part, ended):
    """Why the scenario has failed, or None."""
    if host_part and host_part.failure:
        return host_part.failure
    result = read_or_none(folder / "result")
    if result is None:
        return f"{ended or 'the guest went down'} while it ran" if (folder / "begun").exists() \
            else f"not reached: {ended or 'the guest went down before'}"
    reason = (read_or_none(folder / "reason") or "").strip().replace("\n", " / ")
    status = int(result.split()[0])
    if status or reason:
        return reason or f"ended with status {status}"
    return None


def report(kernel, scenario, out, reason, shown):
    """Prints the line of one result; returns its seconds, "-" if it came to no end."""
    name = f"{scenario.title} on {kernel.series}"
    seconds = (read_or_none(out / scenario.folder / "result") or "0 -").split()[1]
    if reason is None:
        say(f"PASS {name} ({seconds} s)")
        return seconds
    logs = [] if shown else [out / scenario.folder / "log"]
    for log in [*logs, out / scenario.folder / "host.log", out / "peer" / scenario.folder / "log"]:
        for line in last_lines(log, SHOWN_LINES):
            say(line)
    say(f"FAIL {name}: {reason}")
    return seconds


class HostPart:
    """The script beside a scenario that runs on this machine from before the boot until after it.

    It makes the file $LAB_OUT/ready when the guest may come; assignments in it are seen by the guest part.
    At the end it gets SIGTERM, then, as all that it started, SIGKILL.
    """
    READY_SECONDS = 120
    STOP_SECONDS = 60

    def __init__(self, scenario, folder, variables):
        self.folder = folder
        self.failure = None
        environment = {**os.environ, **{name: str(value) for name, value in variables.items()}, "LAB_OUT": str(folder)}
        with open(folder / "host.log", "wb") as log:
            self.process = subprocess.Popen(["bash", str(scenario.host_part), *scenario.arguments], env=environment,
                                            cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                            start_new_session=True)

    def wait_until_ready(self):
        deadline = time.monotonic() + self.READY_SECONDS
        while not (self.folder / "ready").exists():
            if self.process.poll() is not None:
                self.failure = f"the host part ended with status {self.process.returncode} before it was ready"
            elif time.monotonic() > deadline:
                self.failure = f"the host part was not ready after {self.READY_SECONDS} s"
            if self.failure:
                self.failure = (read_or_none(self.folder / "reason") or self.failure).strip()
                return False
            time.sleep(0.02)
        return True

    def gone(self):
        """Why there is nobody any more whom the guest could work with, or ""."""
        return "" if self.process.poll() is None else "the host part has ended"

    def stop(self):
        early = self.process.poll()
        if early is not None and not self.failure:
            self.failure = f"the host part ended early with status {early}"
        if early is None:
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            status = self.process.wait(self.STOP_SECONDS)
            if status not in (0, -signal.SIGTERM, 128 + signal.SIGTERM) and not self.failure:
                self.failure = f"the host part ended with status {status}"
        except subprocess.TimeoutExpired:
            self.failure = self.failure or f"the host part did not end within {self.STOP_SECONDS} s of SIGTERM"
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
