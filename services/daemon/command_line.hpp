// SPDX-License-Identifier: Apache-2.0
// The command line of verbenad: a command for each protocol, whose options are the settings, and those about files and modules.
#pragma once

#include <verbena/core/settings.hpp>
#include <verbena/services/service.hpp>

#include <cstdint>
#include <optional>

namespace verbena::daemon {

enum class command_kind : std::uint8_t {
    serve,
    check, ///< print the effective configuration and exit
};

struct command {
    command_kind kind = command_kind::serve;
    setting_values settings; ///< for service::configure()
};

struct parsed_command_line {
    std::optional<command> wanted; ///< none: help or the version was printed, exit with exit_status
    int exit_status = 0;
};

/// `s` has its modules. Throws config_error for a command line or a file that can't work.
parsed_command_line parse_command_line(int argc, const char* const* argv, const service& s);

} // namespace verbena::daemon
