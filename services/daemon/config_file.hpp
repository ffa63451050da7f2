// SPDX-License-Identifier: Apache-2.0
// The configuration file of `verbenad serve`. docs/reference/config.md describes it.
#pragma once

#include <verbena/core/module/settings.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace verbena::daemon {

/// Largest file that is read.
inline constexpr std::size_t max_config_size = std::size_t(4) << 20;

/// Parses TOML; `name` is for messages. What keys there may be is for check() to say. Throws config_error with the place
/// ("file.toml:3:1").
setting_values parse_config(std::string_view text, std::string_view name);
/// Reads and parses a file.
setting_values load_config(const std::string& path);
/// What parse_config() would read as `values`.
std::string to_toml(const setting_values& values);

} // namespace verbena::daemon
