// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

namespace verbena {

/// The process's soft limit of `resource` (RLIMIT_NOFILE, RLIMIT_MEMLOCK) becomes the hard one. Errors: none; it stays.
inline void raise_soft_limit(decltype(RLIMIT_NOFILE) resource) noexcept
{
    rlimit own{};
    if (::getrlimit(resource, &own) != 0 || own.rlim_cur == own.rlim_max)
        return;
    own.rlim_cur = own.rlim_max;
    ::setrlimit(resource, &own);
}

} // namespace verbena
