#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""symbols.py [--update] BUILD: compares what BUILD/services/verbenad exports of each library with tests/abi/symbols/LAYER.txt.

What a module can be linked against is what is listed there: functions and variables that a source of ours defines. Names in a list
stand in the form of c++filt, constructors and destructors once. Not listed is what the compiler makes of a header wherever it
needs it (inline functions, templates, vtables, typeinfo, thunks), which differs between levels of optimisation and compilers; a
change there is a change of a header, which the hashes of abi_interfaces.py tell. Nor is what the linker exports since a shared library
has it as well (services/daemon/exported_symbols.list), and what a sanitizer brings."""
import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
LISTS = TOP / "tests/abi/symbols"
# Not plugins: which of them are built in is a choice of the build's, and modules are not linked against each other.
LAYERS = {"core": "core/libverbena_core.a", "protocols": "protocols/libverbena_protocols.a",
          "transports": "transports/libverbena_transports.a", "services": "services/service/libverbena_service.a"}
# Vtables and such; guards of variables.
MADE = re.compile(r"_ZT|_ZGV|_ZZ")

# As a source writes them.
SHORT = {"std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >": "std::string",
         "std::basic_string_view<char, std::char_traits<char> >": "std::string_view",
         "std::__exception_ptr::exception_ptr": "std::exception_ptr", "std::__n4861::": "std::", "[abi:cxx11]": ""}


def strong(*arguments):
    """Mangled names of what is defined once, not merely where it is needed."""
    lines = subprocess.run(["nm", "--defined-only", "--format=posix", *arguments], check=True, capture_output=True, text=True).stdout
    found = [line.split()[:2] for line in lines.splitlines() if len(line.split()) >= 3]
    return {name for name, kind in found if kind in "TDBR" and not MADE.match(name)}


def demangled(names):
    done = subprocess.run(["c++filt"], check=True, capture_output=True, text=True, input="".join(f"{name}\n" for name in sorted(names)))
    text = done.stdout
    for long, short in SHORT.items():
        text = text.replace(long, short)
    return sorted(set(text.splitlines()))


def main():
    update = "--update" in sys.argv[1:]
    build = pathlib.Path([a for a in sys.argv[1:] if a != "--update"][0])
    exported = strong("--dynamic", str(build / "services/verbenad"))
    failed = 0
    for layer, library in LAYERS.items():
        there = demangled(exported & strong("--extern-only", str(build / library)))
        path = LISTS / f"{layer}.txt"
        text = "".join(f"{name}\n" for name in there)
        if update:
            path.write_text(text, encoding="utf-8")
            continue
        listed = path.read_text(encoding="utf-8").splitlines()
        gone, new = sorted(set(listed) - set(there)), sorted(set(there) - set(listed))
        failed += bool(gone or new)
        if gone or new:
            print(f"tests/abi/symbols/{layer}.txt: exported before and not now (-), exported now and not before (+):")
            print("\n".join([f"  - {name}" for name in gone] + [f"  + {name}" for name in new]))
    if failed:
        print(f"If that is meant: python3 tests/abi/symbols.py --update {build}, and commit the lists with the change.")
    return 1 if failed else 0


sys.exit(main())
