// SPDX-License-Identifier: Apache-2.0
#include "stall_watch.hpp"

#include "symbols.hpp"

#include <cstdint>
#include <cstdlib>
#include <cxxabi.h>
#include <memory>

namespace verbena {

std::string stall_watch::name() const
{
    if (code_ != nullptr) {
        const auto address = reinterpret_cast<std::uintptr_t>(code_);
        return detail::symbols({address}).name(address);
    }
    if (what_ == nullptr)
        return "?";
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> demangled(
        abi::__cxa_demangle(what_, nullptr, nullptr, &status), &std::free);
    return demangled ? demangled.get() : what_;
}

} // namespace verbena
