// SPDX-License-Identifier: Apache-2.0
// What clients of all versions keep to.
#pragma once

#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)

namespace verbena::nfs {

/// What a client never goes beyond, whatever its server says.
struct client_limits {
    static constexpr std::size_t max_name = 1024; ///< a longer name is ENAMETOOLONG without asking
    static constexpr unsigned max_links = 16;     ///< symbolic links followed in one walk
    static constexpr std::size_t listing_bytes = std::size_t(1) << 30; ///< of a whole directory
    static constexpr std::uint32_t max_transfer = 1u << 20;            ///< the largest READ or WRITE
};

} // namespace verbena::nfs

#pragma GCC visibility pop
