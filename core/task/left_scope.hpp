// SPDX-License-Identifier: Apache-2.0
// A scope that an exception left before its children had ended. They refer to what is gone, so none of them may run
// again. The exception on its way says why, and nobody can read it before it is caught. So the scope's destructor
// leaves a note in the reactor. The end of the task that the exception leaves reads it, which knows the exception, or
// else the shard's next step.
#pragma once

#include <verbena/core/reactor/reactor.hpp>

#include <cstddef>
#include <string>

namespace verbena::detail {

struct late_parts;

struct left_scope {
    /// Of a reactor that was created without an error. On its thread.
    static late_parts& late(reactor& r) noexcept;
    static void note(reactor& r, const char* name, std::size_t live) noexcept;
    static bool any(const reactor& r) noexcept { return r.left_children_ != 0; }
    /// Ends the process.
    [[noreturn]] static void end(const reactor& r, const std::string& exception) noexcept;
    /// Before a step.
    static void check(const reactor& r) noexcept
    {
        if (any(r))
            end(r, " was caught on its way");
    }
    /// The reactor goes, and so its tasks will not run.
    static void never_ended(const reactor& r) noexcept;
};

} // namespace verbena::detail
