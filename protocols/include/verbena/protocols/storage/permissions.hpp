// SPDX-License-Identifier: Apache-2.0
// What mode, owner and group of a file allow, for back ends that no kernel checks rights for.
#pragma once

#include <verbena/protocols/storage/types.hpp>

#pragma GCC visibility push(default)

namespace verbena::storage {

/// True if `gid` is the group of `who` or one of the supplementary ones.
bool in_group(const credential& who, std::uint32_t gid) noexcept;
/// The subset of `wanted` (R_OK, W_OK, X_OK of access(2)) that mode, owner and group allow. uid 0 is held back only from
/// executing what nobody may execute.
unsigned allowed(const attributes& a, const credential& who, unsigned wanted) noexcept;

} // namespace verbena::storage

#pragma GCC visibility pop
