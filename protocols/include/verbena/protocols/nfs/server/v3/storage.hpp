// SPDX-License-Identifier: Apache-2.0
// Between what a back end says and what RFC 1813 says.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/protocols/nfs/wire/v3/types.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <cstdint>

#pragma GCC visibility push(default)

namespace verbena::nfs::v3 {

/// The status that answers a back end's failure. What no client could make sense of is io.
nfsstat3 to_status(const error& failure) noexcept;

/// Attributes as version 3 has them (RFC 1813 2.5).
fattr3 to_fattr3(const storage::attributes& attrs) noexcept;
/// Attributes behind an operation, where they are known.
post_op_attr to_post_op(const std::optional<storage::attributes>& attrs) noexcept;
/// Attributes before and behind a change; those before it are fewer.
wcc_data to_wcc(const storage::change& change) noexcept;

/// What may not be set at all is inval: the id 4294967295, which chown(2) takes for "leave it", and
/// nanoseconds of a second or more, among which utimensat(2) has two such values.
nfsstat3 from_sattr3(const sattr3& from, storage::set_attributes& to) noexcept;

/// The bits of `wanted` (of access3) that `permissions` (R_OK, W_OK, X_OK) give on such a file.
std::uint32_t to_access3(std::uint32_t wanted, unsigned permissions, storage::file_type type) noexcept;
/// The permissions to ask a back end about.
unsigned to_permissions(std::uint32_t wanted, storage::file_type type) noexcept;

} // namespace verbena::nfs::v3

#pragma GCC visibility pop
