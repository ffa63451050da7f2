// SPDX-License-Identifier: Apache-2.0
// The configuration file of `verbenad serve`. docs/reference/config.md describes it.
#pragma once

#include "config.hpp"

#include <string>
#include <string_view>

namespace verbena::daemon {

/// Largest file that is read.
inline constexpr std::size_t max_config_size = std::size_t(4) << 20;

/// Parses TOML. Strict: a key that is not known, or of another type, is a config_error with its place
/// ("file.toml:3:1") and, where one is near, the key that was meant. `name` is for messages.
config parse_config(std::string_view text, std::string_view name);
/// Reads and parses a file.
config load_config(const std::string& path);
/// The same as TOML, with every setting in it. parse_config() of it yields an equal config.
std::string to_toml(const config& c);

} // namespace verbena::daemon
