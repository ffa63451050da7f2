#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The public headers as one includes them, one per line: those that are not the first thing which a source of the libraries
# includes. The suite `embed` compiles these sources without precompiled headers, so the other headers have come first there.
set -euo pipefail
cd "$(dirname "$0")/../.."
first() { find core transports protocols plugins -name '*.cpp' -exec grep -hm1 '^#include' {} ';' | sed -n 's/^#include [<"]\(.*\)[>"].*/\1/p'; }
grep -vxFf <(first) <(find {core,transports,protocols,plugins}/include -name '*.hpp' -printf '%P\n') | sort
