// SPDX-License-Identifier: Apache-2.0
// file_lease: makes processes of this host wait that want to change a file which a client has a read delegation of.
#pragma once

#include <verbena/core/result.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>

#pragma GCC visibility push(default)

namespace verbena::storage {

/// A lease on a file, from file_backend::lease() until it is destroyed: whoever wants to change the file's data, other than through the
/// state layer that holds it, waits as long as the back end can make him wait, and its holder is told.
///
/// Ownership: the holder's, who destroys it before the back end and before the reactor of its shard. Shard: it is destroyed on the
/// shard on which lease() was called. With its destructor the lease is released, and the holder is told no more.
class file_lease {
public:
    file_lease() = default;
    file_lease(const file_lease&) = delete;
    virtual ~file_lease() = default;
};

/// Tells the holder of a lease that somebody waits for its end. Called once at most, on the shard on which lease() was called, in a turn
/// of its own; also before lease() has completed. It may destroy the lease. Whatever it refers to lives as long as the lease.
using lease_wanted = std::function<void()>;

/// Why there is no lease.
enum class no_lease : std::uint8_t {
    in_use,        ///< somebody has the file open for writing, or is about to
    not_permitted, ///< this process may take none of this file
    unsupported,   ///< the back end, its file system or its kernel has none
    limit,         ///< of descriptors, or of memory
    failed,        ///< anything else
};
/// How many values no_lease has.
constexpr std::size_t no_lease_count = 5;

/// What an error of file_backend::lease() means.
no_lease why_no_lease(const error& failure) noexcept;

} // namespace verbena::storage

#pragma GCC visibility pop
