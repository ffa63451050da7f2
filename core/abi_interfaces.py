#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""abi_interfaces.py OUTPUT DEPFILE ROOT... -- ROLE=FOLDER,...

Writes a header with a macro for each role: the types that a module of that role shares with the program that loads it, each
with a hash of its definition, and each header with a hash of what else it declares. C++20 can't see what virtual functions a
class has, so the definitions themselves are compared, without comments and white space. A role's folders hold all that a module of it
may derive from or pass on."""
import hashlib
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*<(verbena/[^>]+)>', re.M)
TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|//[^\n]*|/\*.*?\*/|#(?:\\\n|[^\n])*|\w+|::|\s+|.', re.S)
# Not part of what both sides see: written by this program.
GENERATED = "verbena/core/abi_interfaces.hpp"


def closure(folders, roots):
    found = {}
    left = [str(path.relative_to(root)) for folder in folders for root in roots for path in (root / folder).glob("*.hpp")]
    if not left:
        sys.exit(f"abi_interfaces.py: no headers in {' '.join(folders)}")
    while left:
        header = left.pop()
        if header in found or header == GENERATED:
            continue
        path = next((root / header for root in roots if (root / header).exists()), None)
        if path is None:
            sys.exit(f"abi_interfaces.py: {header} is in none of {' '.join(map(str, roots))}")
        found[header] = path
        left += INCLUDE.findall(path.read_text(encoding="utf-8"))
    return found


def tokens_of(text):
    for token in TOKEN.findall(text):
        if token.isspace() or token.startswith(("//", "/*")):
            continue
        if token.startswith("#") and not re.match(r"#\s*define", token):
            continue
        yield " ".join(token.split())


def name_of(head):
    """The type that a definition's tokens before its body name; nothing for a function."""
    plain, depth = [], 0 # without attributes
    for token in head:
        depth += (token == "[") - (token == "]")
        if depth == 0 and token != "]":
            plain.append(token)
    head = plain
    while head[:1] == ["template"]:
        depth = 0
        for i, token in enumerate(head):
            depth += (token == "<") - (token == ">")
            if token == ">" and depth == 0:
                head = head[i + 1:]
                break
        else:
            return None
    if "(" in head and "__attribute__" not in head and "alignas" not in head:
        return None
    for i, token in enumerate(head):
        if token in ("class", "struct", "union", "enum"):
            words = [t for t in head[i + 1:] if t not in ("class", "struct")]
            name = []
            depth = 0
            for word in words:
                if word in ("(", "[", "<"):
                    depth += 1
                elif word in (")", "]", ">"):
                    depth -= 1
                elif word in (":", "final", "{") and depth == 0:
                    break
                elif depth == 0 and (re.fullmatch(r"\w+", word) and word not in ("__attribute__", "alignas")
                                     and not word.startswith("VERBENA_")):
                    name.append(word)
            return "::".join(name) or None
    return None


def entries(header, text):
    """(type or header, tokens) for all that the header declares."""
    rest, namespaces, head = [], [], []
    source = tokens_of(text)
    for token in source:
        if token.startswith("#"):
            rest.append(token)
        elif token == "}":
            rest += head
            head = []
            if not namespaces:
                raise ValueError("a brace too many")
            namespaces.pop()
        elif token == ";":
            rest += head + [";"]
            head = []
        elif token == "{" and "namespace" in head:
            namespaces.append("".join(t for t in head if t not in ("namespace", "inline")))
            head = []
        elif token == "{":
            body, depth = ["{"], 1
            for inner in source:
                body.append(inner)
                depth += (inner == "{") - (inner == "}")
                if depth == 0:
                    break
            name = name_of(head)
            if name:
                yield "::".join([n for n in namespaces if n] + [name]), head + body
            else:
                rest += head + body
            head = []
        else:
            head.append(token)
    if namespaces:
        raise ValueError("a namespace that does not end")
    if set(rest + head) - {";"}:
        yield header, rest + head


def interfaces(headers):
    lines = {}
    for header, path in sorted(headers.items()):
        text = path.read_text(encoding="utf-8")
        try:
            found = list(entries(header, text))
        except ValueError:  # macros that open and close braces: all of it then counts as one
            found = [(header, list(tokens_of(text)))]
        for name, tokens in found:
            lines.setdefault(name, []).append(" ".join(tokens))
    return {name: hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12] for name, texts in lines.items()}


def main():
    output, depfile, *rest = sys.argv[1:]
    split = rest.index("--")
    roots = [pathlib.Path(root) for root in rest[:split]]
    read = {}
    out = ["// SPDX-License-Identifier: Apache-2.0",
           "// Written by abi_interfaces.py from the headers of this version: the types that modules share with their program.",
           "#pragma once", ""]
    for role in rest[split + 1:]:
        name, folders = role.split("=")
        headers = closure(folders.split(","), roots)
        read.update(headers)
        out.append(f"#define VERBENA_ABI_INTERFACES_{name} \\")
        table = sorted(interfaces(headers).items())
        out += [f'    "{key}={value}\\n" \\' for key, value in table]
        out += ['    ""', ""]
    pathlib.Path(output).write_text("\n".join(out), encoding="utf-8")
    pathlib.Path(depfile).write_text(f"{output}: {' '.join(str(p) for p in sorted(read.values()))}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
