// SPDX-License-Identifier: Apache-2.0
// Exports of one tree, which share what clients have open, locked and delegated.
#pragma once

#include "export_config.hpp"

#include <verbena/protocols/nfs/server/exports.hpp>

#include <cstddef>
#include <span>
#include <string>

namespace verbena::nfs {

/// What the user of the export at `index` gives up because an earlier one of the same tree says something else of this
/// host's processes; empty if none does. `configs` are those of the table's exports, in their order.
std::string warning_of_shared_tree(const export_list& exports, std::span<const export_config> configs,
                                   std::size_t index);

} // namespace verbena::nfs
