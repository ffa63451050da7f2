// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/result.hpp>

#include "last_words.hpp"

#include <cstdlib>
#include <string>

namespace verbena::detail {

// Not by the log: it may not be set up, and this is for whoever wrote the line.
void value_of_an_error(const error& e) noexcept
{
    write_last_words(
        "verbena: the value of a result was read without a look whether there is one. It is an error: " +
        e.message() + "\n");
    std::abort();
}

} // namespace verbena::detail
