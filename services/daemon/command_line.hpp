// SPDX-License-Identifier: Apache-2.0
// The command line of verbenad.
#pragma once

#include "config.hpp"

#include <iosfwd>
#include <optional>

namespace verbena::daemon {

enum class command_kind { serve, check };

struct command {
    command_kind kind = command_kind::serve;
    config settings; ///< complete
};

/// What to do; or, after --help, --version or an error, which it prints, the exit status. Throws config_error for
/// settings that can't work.
struct parsed_command_line {
    std::optional<command> wanted;
    int exit_status = 0;
};
parsed_command_line parse_command_line(int argc, const char* const* argv);

} // namespace verbena::daemon
