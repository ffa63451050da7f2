# SPDX-License-Identifier: Apache-2.0
"""What a build compiles, source by source: Meson makes one of some sources of a library and knows only the whole."""
import json
import os
import re


def compiled(build):
    """Of each entry of `build`'s compile_commands.json: it, and the paths of the sources that it compiles."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    for entry in entries:
        path = os.path.normpath(os.path.join(entry["directory"], entry["file"]))
        if re.search(r"-unity\d+\.cpp$", path):
            with open(path, encoding="utf-8") as unit:
                yield entry, [os.path.normpath(name) for name in re.findall(r"^#include\s*<(.*)>$", unit.read(), re.M)]
        else:
            yield entry, [path]
