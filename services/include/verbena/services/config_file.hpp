// SPDX-License-Identifier: Apache-2.0
// A configuration file in TOML, as `verbenad serve` reads one (docs/reference/config.md). service::load() takes one for a program of
// somebody's own.
#pragma once

#include <verbena/core/module/settings.hpp>

#include <cstddef>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena {

class module_table;

/// Largest file that is read.
inline constexpr std::size_t max_config_size = std::size_t(4) << 20;

/// Parses TOML; `name` is for messages. What keys there may be is for check() to say. Any thread. Throws config_error with the place
/// ("file.toml:3:1").
setting_values parse_config(std::string_view text, std::string_view name);
/// Reads and parses a file; blocks. Throws config_error, also where it can't be read.
setting_values load_config(const std::string& path);
/// What parse_config() would read as `values`.
std::string to_toml(const setting_values& values);
/// Loads the modules that `file` names (`modules = [...]`), as load_module() does; what else it says is then compared with what they
/// declare. Blocks. Throws config_error with the place.
/// A file that was loaded by an earlier call is passed over.
void load_modules(const setting_values& file, module_table& into);

} // namespace verbena

#pragma GCC visibility pop
