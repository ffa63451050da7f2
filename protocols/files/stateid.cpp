// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/files/stateid.hpp>

#include <algorithm>

namespace verbena::files {

bool is_special(const stateid& id) noexcept
{
    const std::byte first = id.other.front();
    return (first == std::byte(0) || first == std::byte(0xff)) &&
           std::all_of(id.other.begin(), id.other.end(), [first](std::byte b) { return b == first; });
}

} // namespace verbena::files
