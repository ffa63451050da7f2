// SPDX-License-Identifier: Apache-2.0
// How much clients of version 4 may have: the settings for that, and the limits that they are.
#pragma once

#include <verbena/core/module/settings.hpp>
#include <verbena/protocols/files/options.hpp>
#include <verbena/protocols/nfs/server/v4/pnfs/layouts.hpp>
#include <verbena/protocols/nfs/server/v4/sessions.hpp>

#include <vector>

namespace verbena::nfs {

/// Of a table of their own.
std::vector<setting> limit_settings();

struct limits_config {
    v4::session_limits sessions;
    files::limits state;
    v4::pnfs::layout_limits layouts;
};
/// Of checked values. Where a limit for each client or peer is not written, it is no more than that of all. Throws config_error where
/// one is written that is more.
limits_config read_limits(const setting_values& values);

} // namespace verbena::nfs
