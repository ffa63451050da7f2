#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# site.sh [FOLDER]: the pages of docs/ and the API reference beneath them, as HTML with navigation and search. FOLDER is build-site unless it
# is given, and is made anew. What is warned about fails: links that lead nowhere, and comments of headers that name what is not there.
# Needs doxygen, sphinx, myst-parser and furo (tests/tools/packages.sh, `site`). Nothing of the site comes from elsewhere when it is read.
set -euo pipefail
site=$(realpath -m "${1:-build-site}")
cd "$(dirname "$0")/.."
# Only what this made is removed.
[[ ! -e $site || -e $site/.made_by_site.sh ]] || { echo "$site is there, and is no site: name another folder, or remove it"; exit 1; }
rm -rf "$site"
mkdir -p "$site"
touch "$site/.made_by_site.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

{
    cat docs/doxygen.conf
    printf '%s = %s\n' OUTPUT_DIRECTORY "$site" GENERATE_TAGFILE "$work/tags"
} | doxygen - >"$work/log" 2>&1 || true
# What a filter complains about is no warning of Doxygen's.
[[ ! -s $work/log ]] || { cat "$work/log"; exit 1; }
API_TAGS=$work/tags sphinx-build -q -W --keep-going -j auto -b html -c docs -d "$work/doctrees" . "$site"
cp "$site/README.html" "$site/index.html"
python3 tests/tools/site_links.py "$site"
echo "$site/index.html"
