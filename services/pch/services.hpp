// SPDX-License-Identifier: Apache-2.0
// Precompiled for both programs, as core/pch/core.hpp is for the libraries.
#include "../../core/pch/core.hpp"

#include <verbena/protocols/nfs/client/v3/client.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>

#include <filesystem>
#include <set>
