#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PAGE.html HEADER.hpp: makes a header of a page, with the policy that lets a browser run what stands in it and nothing else."""
import base64
import hashlib
import re
import sys

DELIMITER = "front_page"


def hashes(page, tag):
    """What is between <TAG> and </TAG>, as Content-Security-Policy names it (CSP 3, 2.3.1)."""
    return " ".join("'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
                    for text in re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S))


def policy(page):
    return "; ".join(["default-src 'self'", "script-src " + hashes(page, "script"), "style-src " + hashes(page, "style"),
                      "img-src 'self' data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"])


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        page = file.read()
    assert ")" + DELIMITER not in page
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(f"""// Made by services/monitoring/front_page.py.
#pragma once

#include <string_view>

namespace verbena::services {{

inline constexpr std::string_view front_page = R"{DELIMITER}({page}){DELIMITER}";
inline constexpr std::string_view front_page_policy = R"{DELIMITER}({policy(page)}){DELIMITER}";

}} // namespace verbena::services
""")


if __name__ == "__main__":
    main()
