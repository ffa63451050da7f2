// SPDX-License-Identifier: Apache-2.0
// verbenad's settings: after '-' the argument of --export, else a TOML file. A file that is accepted must
// print as TOML that reads back as itself; a path of --export need not be UTF-8, which TOML can't say.

#include "fuzz.hpp"

#include <daemon/config_file.hpp>
#include <daemon/export_spec.hpp>

#include <string_view>

using namespace verbena::daemon;

VERBENA_FUZZ_TARGET(config)
{
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    config c;
    try {
        if (text.starts_with('-'))
            c.exports.push_back(parse_export(text.substr(1)));
        else
            c = parse_config(text, "fuzz");
        if (c.state.empty())
            c.state = "/state"; // the default depends on the user
        complete(c);
    } catch (const config_error&) {
        return 0;
    }
    if (text.starts_with('-'))
        return 0;
    const std::string printed = to_toml(c);
    config again = parse_config(printed, "again");
    complete(again);
    verbena::fuzz::require(again.exports == c.exports && to_toml(again) == printed);
    return 0;
}
