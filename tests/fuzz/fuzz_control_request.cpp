// SPDX-License-Identifier: Apache-2.0
// A line of a peer of the control plane: what it asks is a command that there is, with arguments that it has, or the answer says
// in one line why not.

#include "fuzz.hpp"

#include <service/control_request.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <variant>

using namespace verbena;
using namespace verbena::services;

namespace {

const control_table& commands()
{
    static const control_table table = [] {
        control_table made;
        control_command level;
        level.name = "loglevel";
        level.arguments = {{.name = "level", .help = "", .words = {"debug", "info"}}};
        made.add(level);
        control_command evict;
        evict.name = "evict";
        evict.arguments = {{.name = "client", .help = "", .required = true}, {.name = "reason", .help = ""}};
        made.add(evict);
        return made;
    }();
    return table;
}

} // namespace

VERBENA_FUZZ_TARGET(control_request)
{
    const std::string_view line(reinterpret_cast<const char*>(data), size);
    const auto read = read_control_request(line, commands());
    if (const auto* why = std::get_if<control_refusal>(&read)) {
        const std::string said = control_error(*why);
        fuzz::require(!why->message.empty() && said.ends_with("\"more\":false}\n"));
        fuzz::require(std::ranges::count(said, '\n') == 1);
        return 0;
    }
    const auto& request = std::get<control_request>(read);
    fuzz::require(line.size() <= max_control_line &&
                  request.command == commands().find(request.command->name));
    for (const control_argument& a : request.command->arguments) {
        const std::string* const said = request.arguments.find(a.name);
        fuzz::require(said != nullptr || !a.required);
        fuzz::require(said == nullptr || a.words.empty() ||
                      std::ranges::find(a.words, *said) != a.words.end());
    }
    return 0;
}
