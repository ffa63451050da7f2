#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints a seccomp profile for containers that allows what the unit's SystemCallFilter= allows: `seccomp_profile.py verbenad.service > seccomp.json`.

Docker's own profile, and Kubernetes' RuntimeDefault, refuse io_uring, without which no shard starts."""
import json
import re
import subprocess
import sys


def calls_of(words):
    """Names of system calls; those of a @group, and of groups in it, instead of the group."""
    found = set()
    for word in words:
        if not word.startswith("@"):
            found.add(word)
            continue
        listed = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager", word], capture_output=True, text=True, check=True).stdout
        found |= calls_of(line.strip() for line in listed.splitlines()[1:] if line.startswith("    ") and not line.strip().startswith("#"))
    return found


def profile(unit):
    """The profile, of the unit's text."""
    words = re.search(r"(?m)^SystemCallFilter=(.*)$", unit)[1].split()
    names = sorted(calls_of([*words, "@default"]))
    return {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1, "syscalls": [{"names": names, "action": "SCMP_ACT_ALLOW"}]}


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print(json.dumps(profile(file.read()), indent=1))
