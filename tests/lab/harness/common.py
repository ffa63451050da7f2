# SPDX-License-Identifier: Apache-2.0
"""Folders, and commands whose output is shown only when they fail."""
import contextlib
import fcntl
import hashlib
import os
import pathlib
import subprocess
import sys

LAB = pathlib.Path(__file__).resolve().parent.parent
SOURCE = LAB.parent.parent


class LabError(Exception):
    """The harness cannot do its work: the message names the thing and the cure."""


def cache_folder():
    named = os.environ.get("VERBENA_LAB_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = pathlib.Path(named or os.path.join(base, "verbena", "lab")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def cache_lock():
    """One process at a time changes the cache."""
    with open(cache_folder() / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def say(text):
    print(text, flush=True)


def command(*words, **options):
    """Runs a command and returns its standard output; its error output is the reason if it fails."""
    try:
        done = subprocess.run([str(word) for word in words], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, **options)
    except FileNotFoundError as error:
        raise LabError(f"{words[0]} is not here: {error}") from error
    if done.returncode:
        end = "\n".join((done.stdout + done.stderr).strip().split("\n")[-20:])
        raise LabError(f"`{' '.join(str(word) for word in words)}` failed with {done.returncode}:\n{end}")
    return done.stdout


def recipe(*parts):
    """A digest of everything that a prepared part is made from: another digest, another part."""
    return hashlib.sha256("\0".join(str(part) for part in parts).encode()).hexdigest()


def read_or_none(path):
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def last_lines(path, count):
    """The end of a log, indented."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").replace("\r", "").rstrip().split("\n")
    return [f"    {line}" for line in lines[-count:]]


def warn(text):
    print(f"lab: {text}", file=sys.stderr, flush=True)
