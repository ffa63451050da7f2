# SPDX-License-Identifier: Apache-2.0
"""What a build compiles, source by source: of some sources Meson makes one, as do tests/unit and tests/fuzz of theirs."""
import json
import os
import re

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


def compiled(build):
    """Of each entry of `build`'s compile_commands.json: it, and the paths of the sources that it compiles."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    for entry in entries:
        path = os.path.normpath(os.path.join(entry["directory"], entry["file"]))
        place = os.path.relpath(path, build)
        names = []
        if not place.startswith(".."):
            with open(path, encoding="utf-8") as unit:
                names = re.findall(r'^#include\s*[<"](.*\.cpp)[>"]$', unit.read(), re.M)
        # Without a folder in front a name is that of a file where the unit would stand among the sources.
        here = os.path.join(TOP, os.path.dirname(place))
        yield entry, [os.path.normpath(os.path.join(here, name)) for name in names] or [path]
