// SPDX-License-Identifier: Apache-2.0
// The roots of other exports, for a listing of what lies around them.
#pragma once

#include "attribute_source.hpp"
#include "call_context.hpp"
#include "handle_space.hpp"
#include "owner_names.hpp"

#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/task/task.hpp>

#include <chrono>
#include <map>
#include <memory>

namespace verbena::nfs::v4 {

/// One shard's. Another file system that hangs holds a listing up for `patience` at most.
class root_looks {
public:
    /// How long one listing waits for what all other exports that begin in it tell of their roots.
    static constexpr duration patience = std::chrono::seconds(1);

    /// All is borrowed for as long as this lives.
    root_looks(handle_space& handles, owner_names& names, attribute_source& values, const shard& here)
        : handles_(handles), names_(names), values_(values), here_(here)
    {
    }

    /// When a listing that begins now waits for no other export any longer.
    time_point until() const noexcept;
    /// attribute_source::values_of() an export's root, or a directory of the pseudo file system. delay where it has not
    /// answered `until` then.
    task<nfsstat4> values_of(call_context& k, const object& root, bitmap4 wanted, object_values& out,
                             time_point until);

private:
    /// What a look at an export's root gives.
    struct look;
    static task<void> run(std::shared_ptr<look> l);

    handle_space& handles_;
    owner_names& names_;
    attribute_source& values_;
    const shard& here_;
    /// Looks that were waited for in vain. While one lasts its export is not asked again.
    std::map<std::uint32_t, std::shared_ptr<look>> late_; // by the export's id
};

} // namespace verbena::nfs::v4
