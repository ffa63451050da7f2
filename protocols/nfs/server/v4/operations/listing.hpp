// SPDX-License-Identifier: Apache-2.0
// What READDIR does in either way: straight from the back end, or entry by entry.
#pragma once

#include "../compound.hpp"

#include <cstddef>
#include <cstdint>

namespace verbena::nfs::v4::operations {

/// Bytes of an empty listing: opcode, status, verifier, and the two words behind the entries.
inline constexpr std::size_t least_listing = 24;

/// Of what READDIR fails with: back ends say of the verifier alone that it is no longer good (8881 18.23.3).
inline nfsstat4 status_of_listing(const error& failure) noexcept
{
    return failure == storage::errc::bad_cookie ? nfsstat4::not_same : status_of_storage(failure);
}

/// What is told of an entry by what the back end gave with it. `said` is what is asked for, and then what is told.
/// False where the entry can't be looked at and `said` has no place to tell that.
bool set_entry(const compound& k, const storage::directory_entry& e, bitmap4& said, object_values& out);

/// Of entries that could not be looked at, for who asked for no place to be told so (8881 18.23.3).
task<nfsstat4> why_unseen(const object& directory);

/// READDIR where entries are asked about one by one: for their ACLs, and where other exports begin in the directory.
task<nfsstat4> list_one_by_one(compound& k, const READDIR4args& args, std::uint64_t cookie,
                               std::uint64_t verifier);

} // namespace verbena::nfs::v4::operations
