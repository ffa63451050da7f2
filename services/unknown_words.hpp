// SPDX-License-Identifier: Apache-2.0
// What a command line holds that its parser does not know, with what was meant.
#pragma once

#include "suggestion.hpp"

#include <CLI/CLI.hpp>

namespace verbena {

/// "no command bogus; known: ..." or "no option --polcy of nfs; did you mean --policy?"; empty when nothing is
/// unknown. After app.parse() threw.
inline std::string unknown_word(const CLI::App& app)
{
    const auto subcommands = app.get_subcommands();
    const CLI::App& used = subcommands.empty() ? app : *subcommands.front();
    for (const std::string& word : app.remaining(true)) {
        std::vector<std::string> names;
        const bool option = word.starts_with('-');
        if (option) {
            for (const CLI::App* from : {&app, &used}) {
                for (const CLI::Option* o : from->get_options()) {
                    for (const std::string& name : o->get_lnames())
                        names.push_back("--" + name);
                }
            }
        } else if (subcommands.empty()) {
            for (const CLI::App* s : app.get_subcommands([](const CLI::App*) { return true; }))
                names.push_back(s->get_name());
        } else {
            continue;
        }
        const std::string bare = word.substr(0, word.find('='));
        return (option ? "no option " : "no command ") + bare +
               did_you_mean(bare, {names.begin(), names.end()});
    }
    return {};
}

} // namespace verbena
