// SPDX-License-Identifier: Apache-2.0
// Exit status 0 says that everything was done, and what was asked for stands on the standard output.
#pragma once

#include <cerrno>
#include <cstdarg>
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

namespace detail {

/// Why the first write failed: stdio tells it once, to whom it fails.
inline std::error_code first_loss;

inline void note_loss() noexcept
{
    if (!first_loss)
        first_loss = {errno, std::system_category()};
}

} // namespace detail

/// printf() that remembers why it failed. From one thread, as flush_standard_output().
[[gnu::format(printf, 1, 2)]] inline void print(const char* format, ...) noexcept
{
    std::va_list arguments;
    va_start(arguments, format);
    if (std::vprintf(format, arguments) < 0)
        detail::note_loss();
    va_end(arguments);
}

/// Sends what is still buffered for the standard output, and tells whether that and all before it went out.
inline printed flush_standard_output() noexcept
{
    if (std::fflush(stdout) != 0)
        detail::note_loss();
    return {detail::first_loss || std::ferror(stdout) != 0, detail::first_loss};
}

} // namespace verbena
