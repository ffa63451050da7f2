# SPDX-License-Identifier: Apache-2.0
"""Debian packages: those that this machine must have, and those that only the guest sees.

The guest's packages (NFS server, rpcbind, RDMA tools) start services when they are installed, so they
are not installed here. Those that this machine lacks are unpacked into the cache, in a tree that the
guest lays over this machine's root.
"""
import json
import os
import re
import shutil
import subprocess

from .common import LabError, SOURCE, cache_folder, cache_lock, command, recipe, read_or_none, say

HOST = ["busybox-static", "cpio", "e2fsprogs", "gcc-12", "kmod", "libelf1", "make", "qemu-system-x86", "xz-utils", "zstd"]
GUEST = ["curl", "fio", "git", "ibverbs-providers", "iproute2", "kmod", "netbase", "nfs-common",
         "nfs-kernel-server", "procps", "rdma-core", "rpcbind"]
# In the tree laid over the root these must stay links, as they are in the root.
MERGED = ("bin", "lib", "lib64", "sbin")


def prepare(install):
    missing = [name for name in HOST if not installed(name)]
    if missing and not install:
        raise LabError("these Debian packages are missing: " + " ".join(missing) +
                       f"\n  apt-get install --no-install-recommends {' '.join(missing)}")
    if missing:
        # `check` and this install in the same way and with the same words.
        script = SOURCE / "tests/tools/packages.sh"
        done = subprocess.run(["bash", "-c", f'. "{script}" && install_packages "$@"', "lab", *missing])
        if done.returncode:
            raise LabError("could not install: " + " ".join(missing))
    with cache_lock():
        prepare_layer(install)


def layer_folder():
    return cache_folder() / "userland"


def prepare_layer(install):
    """Unpacks those of GUEST, and what they depend on, that this machine lacks."""
    folder = layer_folder()
    stamp = folder.with_suffix(".json")
    made = json.loads(read_or_none(stamp) or "{}")
    absent = [name for name in GUEST if not installed(name)]
    if folder.is_dir() and made.get("recipe") == recipe(*GUEST) and set(absent) <= set(made["packages"]):
        return
    names = packages_to_add(absent)
    if names and not install:
        raise LabError("the guest needs these Debian packages, installed here or unpacked by `lab prepare`: " +
                       " ".join(absent))
    if names:
        say(f"unpacking {len(names)} Debian packages for the guest: {' '.join(names)}")
    new = folder.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    (new / "usr").mkdir(parents=True)
    for name in MERGED:
        (new / "usr" / name).mkdir()
        (new / name).symlink_to(f"usr/{name}")
    for archive in download(names, folder.with_suffix(".debs")):
        unpack(archive, new)
    shutil.rmtree(folder.with_suffix(".debs"), ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)
    stamp.write_text(json.dumps({"recipe": recipe(*GUEST), "packages": names}), encoding="utf-8")


def packages_to_add(names):
    if not names:
        return []
    plan = command("apt-get", "-s", "-q", "install", "--no-install-recommends", *names, env={**os.environ, "LC_ALL": "C"})
    return sorted(re.findall(r"^Inst (\S+)", plan, re.M))


def installed(name):
    done = subprocess.run(["dpkg-query", "-W", "-f=${db:Status-Status}", name], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL)
    return done.stdout == "installed"


def download(names, folder):
    """Fetches the packages into a new FOLDER; returns the archives in the order of the names."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if names:
        command("apt-get", "download", "-q", *names, cwd=folder)
    # apt writes name_version_arch.deb, where a name may come with a version (name=version).
    archives = [sorted(folder.glob(name.split("=")[0] + "_*.deb")) for name in names]
    if not all(archives):
        raise LabError(f"apt-get downloaded only {sorted(path.name for path in folder.iterdir())} of {names}")
    return [found[0] for found in archives]


def unpack(archive, folder, *tar_options):
    """Unpacks into FOLDER, following links to folders in it; `dpkg -x` would replace /sbin by a folder."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE) as source:
        subprocess.run(["tar", "-x", "-C", str(folder), "--keep-directory-symlink", "--no-same-owner", *tar_options],
                       stdin=source.stdout, check=True)
        source.stdout.close()
    if source.returncode not in (0, -13):
        raise LabError(f"cannot unpack {archive}")
