// SPDX-License-Identifier: Apache-2.0
// Errors as NBD can tell them.
#pragma once

#include <verbena/core/result.hpp>

#include <cerrno>

namespace verbena::nbd {

/// What nbdkit passes on as it is, or as what comes near; EIO for all else. It would make EINVAL of the rest, and a client would look for the
/// fault in what it asked.
inline int errno_of(const error& e) noexcept
{
    switch (const int code = e.errno_value(); code) {
    case EPERM:
    case EROFS:
    case ENOMEM:
    case EINVAL:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EOVERFLOW:
    case EOPNOTSUPP:
    case ESHUTDOWN: return code;
    default: return EIO;
    }
}

} // namespace verbena::nbd
