// SPDX-License-Identifier: Apache-2.0
// File attributes as people and programs read them.
#pragma once

#include <verbena/core/printable.hpp>

#include <verbena/protocols/nfs/v3/types.hpp>

#include <string>
#include <string_view>

namespace verbena::cli {

/// "drwxr-xr-x".
std::string mode_text(const nfs::v3::fattr3& a);
/// "file", "directory", "symlink" and so on.
const char* type_text(nfs::v3::ftype3 type) noexcept;
/// Local time, "2026-01-31 12:00:00"; with `precise`, nanoseconds and zone.
std::string time_text(const nfs::v3::nfstime3& t, bool precise = false);

} // namespace verbena::cli
