#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The public headers as one includes them, one per line.
set -euo pipefail
cd "$(dirname "$0")/../.."
find {core,transports,testing,protocols,clients,plugins}/include -name '*.hpp' -printf '%P\n' | sort
