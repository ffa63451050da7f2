// SPDX-License-Identifier: Apache-2.0
// Exit status 0 says that everything was done, and what was asked for stands on the standard output.
#pragma once

#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>

namespace verbena {

/// What became of all that was printed.
struct printed {
    bool lost = false;
    std::error_code why = {}; ///< if it is known
    std::string message() const
    {
        const std::string text = "the standard output did not take all that was printed";
        return why ? text + ": " + why.message() : text;
    }
};

/// Sends what is still buffered for the standard output, and tells whether that and all before it went out.
inline printed flush_standard_output() noexcept
{
    const bool failed_before = std::ferror(stdout) != 0;
    if (std::fflush(stdout) != 0)
        return {true, {errno, std::system_category()}};
    return {failed_before};
}

} // namespace verbena
