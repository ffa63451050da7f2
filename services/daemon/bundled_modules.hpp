// SPDX-License-Identifier: Apache-2.0
// The modules that were built into this program: those of Meson's option `modules`.
#pragma once

#include <verbena/core/module/module.hpp>

#include <span>

namespace verbena::daemon {

std::span<const module_descriptor* const> bundled_modules() noexcept;

} // namespace verbena::daemon
