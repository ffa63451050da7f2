#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""site_links.py FOLDER: whether each link within a site leads somewhere, and nothing of it is loaded from elsewhere. Prints what does not,
and fails then."""
import functools
import html
import pathlib
import re
import sys
import urllib.parse

LINK = re.compile(r'<(\w+)\s[^>]*?\b(?:href|src)="([^"]*)"[^>]*')
ANCHOR = re.compile(r'\b(?:id|name)="([^"]*)"')
IN_STYLE = re.compile(r"@import\s+[\"'][^\"']*//|url\([\"']?(?:https?:)?//")
FOREIGN = re.compile(r"(?:https?:)?//")


@functools.cache
def text(page):
    return page.read_text(encoding="utf-8", errors="replace")


@functools.cache
def anchors(page):
    return set(ANCHOR.findall(text(page)))


def faults(site):
    pages = sorted(site.rglob("*.html"))
    if len(pages) < 100:
        yield f"{site}: only {len(pages)} pages"
    for page in pages:
        # Links in scripts are made when they run.
        for tag, target in LINK.findall(re.sub(r"<script\b[^>]*>.*?</script>", lambda found: found[0].split(">", 1)[0], text(page), flags=re.S)):
            target = html.unescape(target)
            if FOREIGN.match(target):
                if tag != "a":
                    yield f"{page.relative_to(site)}: loads {target}"
                continue
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            path = path.partition("?")[0]
            to = page.parent / urllib.parse.unquote(path) if path else page
            if to.is_dir():
                to /= "index.html"
            if not to.exists():
                yield f"{page.relative_to(site)}: {target}"
            elif anchor == "nested-classes":
                pass # Doxygen 1.9.4 writes it for classes whose nested ones are all private, without a section of that name.
            elif anchor and to.suffix == ".html" and urllib.parse.unquote(anchor) not in anchors(to):
                yield f"{page.relative_to(site)}: no #{anchor} in {to.resolve().relative_to(site)}"
    for style in sorted(site.rglob("*.css")):
        if IN_STYLE.search(text(style)):
            yield f"{style.relative_to(site)}: loads what is elsewhere"


def main():
    found = sorted(set(faults(pathlib.Path(sys.argv[1]).resolve())))
    print("\n".join(found[:50]))
    sys.exit(f"{len(found)} links lead nowhere" if found else 0)


if __name__ == "__main__":
    main()
