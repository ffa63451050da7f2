#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""layout.py INCLUDE: a source that includes each public header beneath INCLUDE/verbena and prints size and alignment of each class and
enumeration that is declared in namespace scope there and is no template, one a line."""
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "core"))
import abi_interfaces # the same reading of headers

root = pathlib.Path(sys.argv[1])
headers = sorted(str(path.relative_to(root)) for path in (root / "verbena").rglob("*.hpp"))
names = set()
for header in headers:
    if header == abi_interfaces.GENERATED:
        continue
    for name, tokens in abi_interfaces.entries(header, (root / header).read_text(encoding="utf-8")):
        # Names without a namespace are traits of std's.
        if name != header and name.startswith("verbena::") and tokens[0] != "template" and "<" not in name:
            names.add(name)
if len(names) < 150:
    sys.exit(f"only {len(names)} types in {len(headers)} headers")
print("".join(f"#include <{header}>\n" for header in headers))
print("#include <cstdio>\nint main()\n{")
for name in sorted(names):
    print(f'    std::printf("{name} %zu %zu\\n", sizeof({name}), alignof({name}));')
print("}")
