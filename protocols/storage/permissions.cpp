// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/storage/permissions.hpp>

#include <algorithm>
#include <unistd.h>

namespace verbena::storage {

bool in_group(const credential& who, std::uint32_t gid) noexcept
{
    return who.gid == gid || std::ranges::binary_search(who.groups(), gid);
}

unsigned allowed(const attributes& a, const credential& who, unsigned wanted) noexcept
{
    static_assert(R_OK == 4 && W_OK == 2 && X_OK == 1, "the bits of access(2) are those of a mode");
    if (who.uid == 0) {
        const bool executable = a.type == file_type::directory || (a.mode & 0111) != 0;
        return executable ? wanted : wanted & ~unsigned(X_OK);
    }
    if (who.uid == a.uid)
        return wanted & (a.mode >> 6);
    if (in_group(who, a.gid))
        return wanted & (a.mode >> 3);
    return wanted & a.mode & 7;
}

} // namespace verbena::storage
