# SPDX-License-Identifier: Apache-2.0
"""A scenario: a guest script, what its `# lab:` line says, and the parts for the host and a second guest that may
stand beside it."""
import dataclasses
import pathlib
import re
import shlex

from .common import LAB, LabError

FOLDER = LAB / "scenarios"
LIMIT = 300


@dataclasses.dataclass
class Scenario:
    path: pathlib.Path
    arguments: list
    limit: int
    net: str

    @property
    def title(self):
        return " ".join([self.path.name.removesuffix(".sh"), *self.arguments])

    @property
    def folder(self):
        """Name of the folder for its artefacts."""
        return re.sub(r"[^\w.=-]+", "-", self.title)

    @property
    def host_part(self):
        """A script that runs on the host while the guest runs, or None."""
        return self.beside(".host.sh")

    @property
    def peer_part(self):
        """A script that runs in a second guest, joined to the first by a wire, or None."""
        return self.beside(".peer.sh")

    def beside(self, ending):
        path = self.path.with_name(self.path.name.removesuffix(".sh") + ending)
        return path if path.exists() else None


def names():
    return sorted(path.name.removesuffix(".sh") for path in FOLDER.glob("*.sh")
                  if not path.name.endswith((".host.sh", ".peer.sh")))


def parse(word, limit=None):
    words = shlex.split(word)
    if not words:
        raise LabError("a scenario without a name")
    path = find(words[0])
    said = {"limit": str(LIMIT), "net": "none"}
    line = re.search(r"^# lab: (.*)$", path.read_text(encoding="utf-8"), re.M)
    for item in line[1].split() if line else []:
        key, _, value = item.partition("=")
        if key not in said:
            raise LabError(f"{path}: `# lab:` knows {', '.join(said)}, not {key!r}")
        said[key] = value
    return Scenario(path, words[1:], limit or int(said["limit"]), said["net"])


def find(name):
    for path in (pathlib.Path(name), FOLDER / name, FOLDER / f"{name}.sh"):
        if path.is_file():
            return path.resolve()
    raise LabError(f"no scenario {name}; there are: {', '.join(names())}")
