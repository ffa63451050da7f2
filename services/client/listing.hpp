// SPDX-License-Identifier: Apache-2.0
// File attributes as people and programs read them.
#pragma once

#include "remote.hpp"

#include <verbena/core/printable.hpp>

#include <string>
#include <string_view>

namespace verbena::cli {

/// "drwxr-xr-x".
std::string mode_text(const attributes& a);
/// "file", "directory", "symlink" and so on.
const char* type_text(file_type type) noexcept;
/// Local time, "2026-01-31 12:00:00"; with `precise`, nanoseconds and zone.
std::string time_text(const file_time& t, bool precise = false);

} // namespace verbena::cli
