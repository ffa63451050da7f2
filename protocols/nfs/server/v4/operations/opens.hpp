// SPDX-License-Identifier: Apache-2.0
// OPEN, which minor version 0 has with numbers of owners around it.
#pragma once

#include "../compound.hpp"

#include <verbena/core/task/task.hpp>

namespace verbena::nfs::v4::operations {

/// All of OPEN but the arguments and the answer: for that `res` was found to have room.
task<nfsstat4> open_file(compound& k, const OPEN4args& args, OPEN4res& res);

/// `type` is read, write or none.
open_delegation4 delegation4_of(open_delegation_type4 type, const stateid4& id, bool recalled) noexcept;

} // namespace verbena::nfs::v4::operations
