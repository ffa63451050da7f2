#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# unreached.sh FILE COMPILER...: makes unreached.cpp the plugin FILE for that clang, if it is not there.
# Fails where LLVM's headers of the same version are missing.
set -euo pipefail
plugin=$1 source=$(dirname "$(readlink -f "$0")")/unreached.cpp
shift
version=$("$@" -dumpversion)
headers=/usr/lib/llvm-${version%%.*}/include
[[ -f $headers/llvm/Passes/PassPlugin.h ]] || exit 1
[[ ! $plugin -nt $source ]] || exit 0
# Clang has the functions itself.
"$@" -std=c++17 -O1 -shared -fPIC -fno-rtti -fno-exceptions -isystem "$headers" "$source" -o "$plugin.new"
# That it loads is seen here, and not by each file.
"$@" -fpass-plugin="$plugin.new" -x c++ -c /dev/null -o /dev/null
mv "$plugin.new" "$plugin"
