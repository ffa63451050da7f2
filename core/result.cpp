// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/result.hpp>

#include <cstdio>
#include <cstdlib>

namespace verbena::detail {

// Not by the log: it may not be set up, and this is for whoever wrote the line.
void value_of_an_error(const error& e) noexcept
{
    std::fprintf(
        stderr,
        "verbena: the value of a result was read without a look whether there is one. It is an error: %s\n",
        e.message().c_str());
    std::abort();
}

} // namespace verbena::detail
