// SPDX-License-Identifier: Apache-2.0
// Precompiled for `verbena`, with what prints JSON.
#include "../../pch/services.hpp"

#include <nlohmann/json.hpp>
