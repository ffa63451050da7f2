// SPDX-License-Identifier: Apache-2.0
// The command line of verbenad: a command for each protocol, whose options are the settings, and those about files and modules.
#pragma once

#include <verbena/core/module/settings.hpp>
#include <verbena/services/service.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace verbena::daemon {

enum class command_kind : std::uint8_t {
    serve,
    check,        ///< print the effective configuration and exit
    modules,      ///< print the modules and exit
    check_module, ///< say whether files fit, and exit
};

struct command {
    command_kind kind = command_kind::serve;
    bool quiet = false;             ///< of check: print nothing but what is wrong
    std::string file;               ///< for service::load(), before settings; or empty
    setting_values settings;        ///< for service::set()
    std::vector<std::string> files; ///< of check_module
};

struct parsed_command_line {
    std::optional<command> wanted; ///< none: help or the version was printed, exit with exit_status
    int exit_status = 0;
};

/// `s` has the modules that are built in; those that the command line and the file name are loaded into it. Throws config_error for
/// a command line, a file or a module that can't work.
parsed_command_line parse_command_line(int argc, const char* const* argv, service& s);
/// A line for each module, under a heading.
std::string list_of_modules(const module_table& modules);
/// Whether each file is a module that fits this program, and why not. The exit status: 0 if all do.
int check_modules(const std::vector<std::string>& files);

} // namespace verbena::daemon
