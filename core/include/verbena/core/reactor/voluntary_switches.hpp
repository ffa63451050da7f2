// SPDX-License-Identifier: Apache-2.0
// Tells a system call that waited from one whose thread was kept from the processor.
#pragma once

#include <cstdint>
#include <sys/resource.h>

#pragma GCC visibility push(default)

namespace verbena {

/// How often the calling thread has given up its processor to wait for something (getrusage(2), ru_nvcsw). One system call.
inline std::int64_t voluntary_switches() noexcept
{
    rusage used{};
    return ::getrusage(RUSAGE_THREAD, &used) == 0 ? used.ru_nvcsw : 0;
}

} // namespace verbena

#pragma GCC visibility pop
