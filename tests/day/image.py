#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The container image as docs/howto/container.md makes and runs it: `image.py BASE PACKAGES CLIENT WORK`.

BASE is an archive of a root folder, in place of the image that a registry has; PACKAGES the folder with the package; CLIENT a `verbena`. Podman does
what the page has Docker do, by the page's own lines."""
import json
import os
import re
import shlex
import sys

import container
import steps
from container import SERVER, command, until
from steps import check, digest

SOURCES = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
USER = 10001
TCP, IWARP = f"nfs+tcp://{SERVER}/data", f"nfs+iwarp://{SERVER}/data"
BASE_NAME = "docker.io/library/debian:bookworm-slim"
NAME = "verbena"
# Neither systemd nor a manager of networks runs here.
HERE = ["--cgroups=disabled", "--network=ns:/run/netns/server"]


def commands_of_page(begin):
    """The commands of the page that begin so, as lists of words."""
    with open(os.path.join(SOURCES, "docs/howto/container.md"), encoding="utf-8") as file:
        text = file.read().replace("\\\n", " ")
    found = [shlex.split(line) for line in re.findall(rf"(?m)^    ({re.escape(begin)} .*)$", text)]
    check(found, "the page has no", begin)
    return found


class Image:
    """The steps, and what they are made of."""

    def __init__(self, base, packages, client, work):
        self.base, self.packages, self.client, self.work = base, packages, client, work
        self.srv = os.path.join(work, "srv")
        self.data = os.path.join(self.srv, "data")
        os.makedirs(self.data)
        os.chown(self.data, USER, USER)
        self.tree = os.path.join(SOURCES, "services")
        self.starts = 0 # of the container that is there
        self.as_user, self.as_root = commands_of_page("docker run")
        with open(os.path.join(container.network(), "cgroup.procs"), "w", encoding="utf-8") as group:
            group.write(str(os.getpid()))

    def podman(self, *words, by=command, **options):
        storage = ["--root", os.path.join(self.work, "storage"), "--runroot", "/run/podman", "--storage-driver", "overlay",
                   "--cgroup-manager", "cgroupfs", "--runtime", "crun"]
        return by("podman", *storage, *words, **options)

    def verbena(self, *words, **options):
        return command(self.client, *words, **options)

    def run(self, line, *more, profile=None):
        """`docker run` of the page, with `more` options. Ports are reached without being published."""
        words = iter(line[2:-1])
        taken = []
        for word in words:
            if word == "-p":
                next(words)
            elif word.startswith("/srv"):
                taken.append(self.srv + word.removeprefix("/srv"))
            elif word.startswith("seccomp="):
                taken.append("seccomp=" + (profile or os.path.join(SOURCES, word.removeprefix("seccomp="))))
            else:
                taken.append(word)
        self.podman("run", *HERE, *taken, *more, line[-1])
        self.starts = 1

    def log(self):
        done = self.podman("logs", NAME, code=None)
        return done.stdout + done.stderr

    def ready(self):
        """Waits until the container serves."""
        def said():
            check(self.state("Running") == "true", "it ended:", self.log())
            return self.podman("logs", NAME).splitlines().count("ready") == self.starts
        until("it says ready", said)

    def start_again(self):
        self.podman("start", NAME)
        self.starts += 1
        self.ready()

    def state(self, key):
        return self.podman("inspect", "--format", f"{{{{.State.{key}}}}}", NAME).strip()

    def handle(self):
        return json.loads(self.verbena("--json", "stat", TCP + "/tree"))[0]["handle"]

    def stop(self):
        """docker stop, which waits as long as the page's command says."""
        self.podman("stop", NAME)
        check(self.state("ExitCode") == "0", "it ended with", self.state("ExitCode"), self.log())

    # --- the steps ---

    def make(self):
        """The image is made of the package."""
        self.podman("import", self.base, BASE_NAME)
        (line,) = commands_of_page("docker build")
        words = [word.replace("services/container", os.path.join(SOURCES, "services/container")) for word in line[2:-1]]
        self.podman("build", "--pull=never", "--format=docker", "--isolation=chroot", "--network=host", *words, self.packages,
                    by=container.outside, limit=8 * container.LIMIT)
        uses = json.loads(self.podman("inspect", "--format", "{{json .Config}}", NAME))
        check(uses["User"] == f"{USER}:{USER}", uses)

    def start(self):
        """It serves as a user without any capability, under the profile, and is healthy."""
        self.run(self.as_user)
        self.ready()
        with open(f"/proc/{self.state('Pid')}/status", encoding="utf-8") as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file)
        check(status["Uid"].split() == [str(USER)] * 4 and status["NoNewPrivs"] == "1" and status["Seccomp"] == "2", status)
        for each in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            check(int(status[each], 16) == 0, each, status[each])
        self.podman("healthcheck", "run", NAME)
        rows = json.loads(self.podman("exec", NAME, "verbena", "--json", "admin", "exports"))["rows"]
        check([(row["path"], row["state"]) for row in rows] == [("/data", "up")], rows)

    def serve(self):
        """Files come and go by both transports, and are the user's."""
        for number, url in enumerate((TCP, IWARP)):
            back = os.path.join(self.work, f"back{number}")
            self.verbena("-q", "cp", "-r", "--checksum", self.tree, f"{url}/tree{number or ''}")
            self.verbena("-q", "cp", "-r", f"{url}/tree{number or ''}", back)
            command("diff", "-r", self.tree, back)
        for folder, _, names in os.walk(os.path.join(self.data, "tree")):
            for name in names:
                check(os.stat(os.path.join(folder, name)).st_uid == USER, name)

    def limits(self):
        """What the page says that it can't do: others' files, handles that live on."""
        secret = os.path.join(self.data, "secret")
        with open(secret, "w", encoding="utf-8") as file:
            file.write("of root\n")
        os.chmod(secret, 0o600)
        done = self.verbena("cat", TCP + "/secret", code=None)
        check(done.returncode == 1 and "Permission denied" in done.stderr, done)
        before, key = self.handle(), digest(self.key())
        self.stop()
        self.start_again()
        check(digest(self.key()) == key, "the volume has another key")
        check(self.handle() != before, "handles live on")

    def key(self):
        return os.path.join(self.podman("volume", "inspect", "--format", "{{.Mountpoint}}", "verbena-state").strip(), "handle.key")

    def reload(self):
        """A configuration of one's own, mounted; a folder of the host that is a disk is served once it is mounted."""
        self.stop()
        self.podman("rm", NAME)
        command("mount", "--bind", self.srv, self.srv)
        command("mount", "--make-shared", self.srv)
        with open(os.path.join(SOURCES, "services/container/verbenad.toml"), encoding="utf-8") as file:
            text = file.read()
        own = os.path.join(self.work, "verbenad.toml")
        with open(own, "w", encoding="utf-8") as file:
            file.write(text + "mountpoint = true\n")
        self.run(["/srv:/srv:rslave" if word == "/srv/data:/srv/data" else word for word in self.as_user], "-v",
                 f"{own}:/etc/verbena/verbenad.toml:ro")
        self.ready()
        done = self.verbena("--soft", "--timeout", "1", "ls", TCP + "/", code=None)
        check(done.returncode != 0, "the folder beneath is served", done)
        command("mount", "-t", "tmpfs", "-o", f"uid={USER},gid={USER}", "none", self.data)
        until("the disk is served", lambda: self.verbena("--soft", "--timeout", "1", "mkdir", TCP + "/made", code=None).returncode == 0)
        check(os.listdir(self.data) == ["made"], os.listdir(self.data))
        with open(own, "a", encoding="utf-8") as file:
            file.write("[nfs.limits]\nopens = 1000\n")
        self.podman("exec", NAME, "verbena", "admin", "reload")
        self.stop()
        self.podman("rm", NAME)
        command("umount", self.data)

    def profile(self):
        """Without io_uring it says so."""
        with open(os.path.join(SOURCES, "services/container/seccomp.json"), encoding="utf-8") as file:
            all_calls = json.load(file)
        (calls,) = all_calls["syscalls"]
        calls["names"] = [name for name in calls["names"] if not name.startswith("io_uring")]
        narrow = os.path.join(self.work, "seccomp.json")
        with open(narrow, "w", encoding="utf-8") as file:
            json.dump(all_calls, file)
        self.run(self.as_user, profile=narrow)
        until("it ends", lambda: self.state("Running") == "false")
        check(self.state("ExitCode") == "1" and "io_uring is refused" in self.log(), self.state("ExitCode"), self.log())
        self.podman("rm", NAME)

    def rights(self):
        """With the unit's capabilities each caller has its own rights, and handles live on."""
        os.mkdir(os.path.join(self.srv, "verbena-state"), 0o700)
        self.run(self.as_root)
        self.ready()
        check("requests run with their callers' rights; handles survive rename and restart" in self.log(), self.log())
        before = self.handle()
        self.stop()
        self.start_again()
        check(self.handle() == before, "handles don't live on")
        self.stop()

    def end(self):
        self.podman("rm", "--force", "--all", code=None)


if __name__ == "__main__":
    container.alone(os.path.abspath(__file__))
    sys.exit(steps.run("image", Image(*map(os.path.abspath, sys.argv[1:])), [
        Image.make, Image.start, Image.serve, Image.limits, Image.reload, Image.profile, Image.rights], Image.log))
