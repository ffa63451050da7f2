// SPDX-License-Identifier: Apache-2.0
// What the parts of the server need to know of the COMPOUND that they work for.
#pragma once

#include <verbena/core/reactor/clock.hpp>
#include <verbena/protocols/nfs/wire/v4/types.hpp>
#include <verbena/protocols/rpc/program.hpp>

#include <cstdint>

namespace verbena::nfs::v4 {

/// Lookups of names that the operations of one COMPOUND have waited for.
struct name_waits {
    duration waited{0};          // by all of them together
    bool gave_a_name_up = false; // the last one could not be looked up

    /// Of a name that was looked up to compare it: nobody knows whom it means, so that neither answer would be true.
    bool is_undecided(nfsstat4 found) const noexcept
    {
        return found == nfsstat4::delay || (found == nfsstat4::badowner && gave_a_name_up);
    }
};

/// The call and its minor version. Each `compound` is one.
struct call_context {
    rpc::call& c;
    name_waits waits;

    std::uint32_t minor() const noexcept { return minor_; }

protected:
    call_context(rpc::call& from, std::uint32_t minor_version) noexcept : c(from), minor_(minor_version) {}

private:
    const std::uint32_t minor_;
};

} // namespace verbena::nfs::v4
