// SPDX-License-Identifier: Apache-2.0
// What a server's refusals of LAYOUTGET, LAYOUTCOMMIT and LAYOUTRETURN say.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/protocols/nfs/wire/v4/types.hpp>

namespace verbena::nfs::v4::pnfs {

inline bool is_a_status(const error& e) noexcept
{
    return e.code().category() == make_error_code(nfsstat4::ok).category();
}

inline bool answers_with(const error& e, nfsstat4 status) noexcept
{
    return e.code() == make_error_code(status);
}

inline bool is_for_later(const error& e) noexcept
{
    return answers_with(e, nfsstat4::layouttrylater) || answers_with(e, nfsstat4::recallconflict) ||
           answers_with(e, nfsstat4::delay) || answers_with(e, nfsstat4::grace);
}

inline const error no_longer_waited_for(std::errc::operation_canceled, "layouts of a file");

} // namespace verbena::nfs::v4::pnfs
