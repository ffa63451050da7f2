// SPDX-License-Identifier: Apache-2.0
// What LOCK and LOCKT are answered, in any minor version.
#pragma once

#include "../compound.hpp"

namespace verbena::nfs::v4::operations {

/// A view of `holder`.
LOCK4denied to_denied(const files::lock_holder& holder) noexcept;

/// Adds the answer, where DENIED says for what.
template<class Results>
nfsstat4 add_lock(compound& k, Results& res, nfsstat4 status, const files::lock_holder* holder) noexcept
{
    res.status = status;
    if (status == nfsstat4::denied && holder != nullptr)
        res.denied = to_denied(*holder);
    else if (status != nfsstat4::ok)
        return status;
    const nfsstat4 added = k.add(res);
    k.answered = added == nfsstat4::ok && status != nfsstat4::ok;
    return added == nfsstat4::ok ? status : added;
}

} // namespace verbena::nfs::v4::operations
