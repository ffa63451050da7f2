# SPDX-License-Identifier: Apache-2.0
"""The site: README.md and the pages of docs/ as they are, by Sphinx. docs/site.sh runs it, in the tree's root.

Pages are written for whoever reads them as files, too. So what only the site has is added here: the navigation, and links to headers that
lead to the API reference."""
import os
import re
import xml.etree.ElementTree

import pygments.lexers.special

project = "verbena"
author = copyright = "the authors of verbena"
root_doc = "README"
extensions = ["myst_parser"]
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**.md"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "verbena"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}

SECTIONS = (
    ("Build on it", ("docs/howto/tutorial", "docs/howto/embed", "docs/howto/typed", "docs/howto/long_polls", "docs/howto/asio",
                     "docs/howto/test", "docs/howto/module", "docs/howto/verbs", "docs/howto/nfs_client", "docs/reference/api")),
    ("Serve and use", ("docs/howto/*",)),
    ("Look up", ("docs/reference/*", "docs/interop", "docs/performance", "CHANGELOG")),
    ("How it works", ("docs/architecture", "docs/internals/*", "CONTRIBUTING")),
)


def pages(app):
    """The pages of each section. One that is named in a section before is not in a later one."""
    known, seen = sorted(app.env.found_docs), {root_doc}
    for title, patterns in SECTIONS:
        named = {name for _, other in SECTIONS for name in other} - set(patterns)
        chosen = []
        for pattern in patterns:
            for name in known:
                fits = name == pattern or pattern.endswith("*") and name.startswith(pattern[:-1]) and name not in named
                if fits and name not in seen:
                    seen.add(name)
                    chosen.append(name)
        yield title, chosen


def of_the_api(app, docname):
    """A function that makes of a link to a public header a link to its page in the API reference."""
    names = app.config.header_pages

    def link(found):
        header = found[2].split("/include/", 1)[1]
        if header not in names:
            return found[0]
        return f'<a href="{"../" * docname.count("/")}api/{names[header]}">{found[1]}</a>'

    return link


def add_what_the_site_has(app, docname, source):
    text = re.sub(r"\[([^\]]*)\]\(((?:\.\./)*\w+/include/verbena/[^)#]+\.hpp)\)", of_the_api(app, docname), source[0])
    if docname == root_doc:
        for title, chosen in pages(app):
            text += "\n".join(["\n", "```{toctree}", ":hidden:", f":caption: {title}", "", *chosen, "```", ""])
    if docname == "docs/reference/api":
        text += '\n<a href="../../api/index.html">All headers, classes and functions</a>\n'
    source[0] = text


def setup(app):
    tags = xml.etree.ElementTree.parse(os.environ["API_TAGS"])
    header_pages = {(file.findtext("path", "") + file.findtext("name", "")).rpartition("/include/")[2]: file.findtext("filename", "")
                    for file in tags.iterfind("compound[@kind='file']")}
    app.add_config_value("header_pages", header_pages, "env")
    app.connect("source-read", add_what_the_site_has)
    app.add_lexer("mermaid", pygments.lexers.special.TextLexer) # Diagrams stay text: what draws them is not in Debian 12.
    return {"parallel_read_safe": True}
