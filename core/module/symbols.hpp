// SPDX-License-Identifier: Apache-2.0
// Names of functions by their addresses.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::detail {

/// Looks into the symbol tables of the files that the process runs from. A coroutine's part behind its first wait is no exported
/// symbol, so that dladdr() does not know it.
class symbols {
public:
    /// Reads what is needed for these addresses.
    explicit symbols(std::vector<std::uintptr_t> addresses);
    /// The name of the function that `address`, one of those, lies in, without its arguments; FILE+0xOFFSET if no table has it.
    std::string name(std::uintptr_t address) const;

private:
    std::map<std::uintptr_t, std::string> names_;
};

/// The name of a coroutine's function from the symbol of its resume function: demangled, without return type and arguments.
std::string coroutine_name(const char* symbol);

} // namespace verbena::detail
