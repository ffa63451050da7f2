// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <system_error>

namespace verbena::rpc {

/// What call::pull() fails with where the connection ended before the argument was here. It equals
/// std::errc::connection_aborted. It has a category of its own, so that a typed program can tell it from an
/// ECONNABORTED that its handler got from somebody else, behind which something may have been changed.
std::error_code argument_lost() noexcept;

} // namespace verbena::rpc
