#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""man_page.py NAME SUMMARY: reads a page of docs/reference and writes what lowdown makes a man page NAME of.

Of a page that has a chapter of that name, this chapter is taken. Links become their text, since what they lead to is not there, and
tables become lists: a terminal has no room for the columns."""
import re
import sys


def listed(table):
    """The rows of a table as items: the first cell, those between with their heads, and the last."""
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]] for line in table.strip().split("\n")]
    items = []
    for row in rows[2:]:
        between = [f"{head}: {cell}" for head, cell in zip(rows[0][1:-1], row[1:-1]) if cell]
        said = f" ({'; '.join(between)})" if between else ""
        items.append(f"- {row[0]}{said}\n\n  {row[-1]}\n")
    return "\n" + "\n".join(items) + "\n"


name, summary = sys.argv[1:]
page = sys.stdin.read()
chapters = re.split(r"(?m)^## ", page)
own = [chapter for chapter in chapters if chapter.split("\n", 1)[0] == name]
# Of one that is about a single thing, all but its title.
body = own[0].split("\n", 1)[1] if own else page.split("\n", 1)[1]
body = re.sub(r"(?m)(^\|.*\n)+", lambda table: listed(table.group()), body)
body = re.sub(r"(?m)^##(#*) ", r"#\1 ", body)
body = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", body)
print(f"# NAME\n\n{name} - {summary}\n\n# DESCRIPTION\n{body}")
