#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""prose.py [--fix] FILE...: names the lines of prose in Markdown files that have more than 120 columns; with --fix it wraps them.

Tables, code blocks and definitions of links may be wider, and so may a line that has no place for a break before column 120. A paragraph
is filled anew from its first line that is too wide; lines above that one stay."""
import re
import sys

COLUMNS = 120
FENCE = re.compile(r"\s*(```|~~~)")
ITEM = re.compile(r"(\s*)([-*+]|\d{1,9}[.)])\s+")
# What would begin another kind of block if a line began with it.
STARTS_A_BLOCK = re.compile(r"([-*+]|\d{1,9}[.)])$|[#>|]|={1,}$|-{2,}$|```|~~~")
# A word, or what should stay in one piece: a code span, a link.
PIECE = re.compile(r"(?:`[^`]*`|\[[^\]\[]*\]\([^)\s]*\)|[^\s`\[]|[`\[])+")


def kinds(lines):
    """For each line what it is: '' for none, 'code', 'table', 'link', 'heading', or 'prose'."""
    fence, list_indent, before = None, None, ""
    for line in lines:
        stripped = line.strip()
        indent = len(line) - len(line.lstrip(" "))
        mark = FENCE.match(line)
        if fence is not None:
            kind = "code"
            if mark and mark[1] == fence:
                fence = None
        elif mark:
            kind, fence = "code", mark[1]
        elif not stripped:
            kind = ""
        elif ITEM.match(line) and (indent < 4 or list_indent is not None):
            kind, list_indent = "prose", indent
        elif before in ("", "code") and indent >= (4 if list_indent is None else list_indent + 6):
            kind = "code"
        elif stripped.startswith("|"):
            kind = "table"
        elif re.match(r"\[[^\]]+\]:\s", stripped):
            kind = "link"
        elif stripped.startswith("#"):
            kind, list_indent = "heading", None
        else:
            kind = "prose"
            if indent == 0 and before != "prose":
                list_indent = None
        yield kind
        before = kind


def begins_paragraph(lines, of, at):
    """Whether line `at` of prose goes on with nothing of the line above it."""
    return (at == 0 or of[at - 1] != "prose" or ITEM.match(lines[at]) is not None or lines[at].lstrip().startswith(">") or
            lines[at - 1].endswith(("  ", "\\")))


def within_code(lines, of, at):
    """Whether a code span goes on from the line above line `at`."""
    marks = 0
    while not begins_paragraph(lines, of, at):
        at -= 1
        marks += lines[at].count("`")
    return marks % 2 == 1


def can_break(line):
    """Whether a space stands where the line may be broken, before the column that it must end at."""
    item = ITEM.match(line)
    rest = line[item.end():] if item else line.strip()
    pieces = PIECE.findall(rest)
    at = len(line) - len(rest)
    for before, after in zip(pieces, pieces[1:]):
        at = line.index(before, at) + len(before)
        if at > COLUMNS:
            return False
        if not STARTS_A_BLOCK.match(after):
            return True
    return False


def too_wide(text):
    """The numbers of the lines of prose that are wider than they may be, from 1."""
    lines = text.split("\n")
    of = list(kinds(lines))
    for at, (line, kind) in enumerate(zip(lines, of)):
        if len(line) > COLUMNS and (kind == "heading" or
                                    kind == "prose" and (can_break(line) or within_code(lines, of, at))):
            yield at + 1


def filled(first, other, words):
    """`words` in lines, the first one behind `first` and the others behind `other`."""
    out, line = [], []

    def width(of):
        return len(first if not out else other) + len(" ".join(of))

    for word in words:
        if line and width([*line, word]) > COLUMNS:
            over = [word]
            # A line may not begin with what would be a list or a heading there.
            while STARTS_A_BLOCK.match(over[0]) and len(line) > 1:
                over.insert(0, line.pop())
            out.append((first if not out else other) + " ".join(line))
            line = over
        else:
            line.append(word)
    out.append((first if not out else other) + " ".join(line))
    return out


def wrapped(text):
    """`text` with its prose in lines of 120 columns at most, where that can be."""
    lines = text.split("\n")
    of = list(kinds(lines))
    wide = set()
    for at in (number - 1 for number in too_wide(text)):
        while of[at] == "prose" and within_code(lines, of, at): # where the code begins, to keep that whole
            at -= 1
        if of[at] == "prose":
            wide.add(at)
    out, at = [], 0
    while at < len(lines):
        if at not in wide:
            out.append(lines[at])
            at += 1
            continue
        end = at + 1
        while end < len(lines) and of[end] == "prose" and not begins_paragraph(lines, of, end):
            end += 1
        item = ITEM.match(lines[at])
        first = item[0] if item else re.match(r"\s*(?:> ?)?", lines[at])[0]
        if end > at + 1:
            other = re.match(r"\s*", lines[at + 1])[0]
        else:
            other = " " * len(item[0]) if item else first
        # An indented continuation would be code, or part of another item.
        if item and len(other) > len(item[0]):
            other = " " * len(item[0])
        words = PIECE.findall(" ".join([lines[at][len(first):], *(line.strip() for line in lines[at + 1:end])]))
        out += filled(first, other, words)
        at = end
    return "\n".join(out)


def main():
    fix = sys.argv[1:2] == ["--fix"]
    wide = 0
    for name in sys.argv[1 + fix:]:
        with open(name, encoding="utf-8") as file:
            text = file.read()
        if fix and (better := wrapped(text)) != text:
            with open(name, "w", encoding="utf-8") as file:
                file.write(better)
            text = better
        for number in too_wide(text):
            print(f"{name}:{number}: more than {COLUMNS} columns")
            wide += 1
    return 1 if wide else 0


if __name__ == "__main__":
    sys.exit(main())
