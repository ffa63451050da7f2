// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/module/start_error.hpp>

#include <cerrno>

namespace verbena {

bool may_pass(const error& why) noexcept
{
    switch (why.errno_value()) {
    // Somebody has it.
    case EADDRINUSE:
    case EBUSY:
    case ETXTBSY:
    // There is no room for it, or no room in the process.
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case ENOBUFS:
    case EMFILE:
    case ENFILE:
    case EAGAIN:
    // A network or a disk that is not there yet, or that is broken.
    case EADDRNOTAVAIL:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ETIMEDOUT:
    case ENOTCONN:
    case ENOENT:
    case ENODEV:
    case ENXIO:
    case ENOMEDIUM:
    case ESTALE:
    case EIO:
    case EROFS: return true; // as after an error of the disk
    default: return false;
    }
}

void throw_start_failure(const error& why, const std::string& what)
{
    if (may_pass(why))
        throw start_error(what);
    throw config_error(what);
}

} // namespace verbena
