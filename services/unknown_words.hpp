// SPDX-License-Identifier: Apache-2.0
// What a command line holds that its parser does not know, with what was meant.
#pragma once

#include <verbena/core/suggestion.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>

namespace verbena {

/// "no command bogus; known: ...", "no option --polcy; did you mean --policy?" or "no option --shards of serve, only of block, nfs;
/// known: ..."; empty when nothing is
/// unknown. After app.parse() threw.
inline std::string unknown_word(const CLI::App& app)
{
    const auto subcommands = app.get_subcommands();
    const CLI::App& used = subcommands.empty() ? app : *subcommands.front();
    for (const std::string& word : app.remaining(true)) {
        std::vector<std::string> names;
        const bool option = word.starts_with('-');
        const std::string bare = word.substr(0, word.find('='));
        const auto add_options = [&names](const CLI::App& from) {
            for (const CLI::Option* o : from.get_options()) {
                for (const std::string& name : o->get_lnames()) {
                    if (std::ranges::find(names, "--" + name) == names.end())
                        names.push_back("--" + name);
                }
            }
        };
        if (option) {
            if (&used != &app && app.get_option_no_throw(bare) != nullptr)
                return "the option " + bare + " stands in front of the command";
            std::string others;
            for (const CLI::App* other : app.get_subcommands([](const CLI::App*) { return true; })) {
                if (other != &used && other->get_option_no_throw(bare) != nullptr)
                    others += (others.empty() ? "" : ", ") + other->get_name();
            }
            if (!others.empty()) {
                add_options(used);
                std::string known;
                for (const std::string& name : names)
                    known += ' ' + name;
                return "no option " + bare + " of " + used.get_name() + ", only of " + others +
                       "; known:" + known;
            }
            if (&used != &app)
                add_options(used);
            add_options(app);
        } else if (subcommands.empty()) {
            for (const CLI::App* s : app.get_subcommands([](const CLI::App*) { return true; }))
                names.push_back(s->get_name());
        } else {
            continue;
        }
        return (option ? "no option " : "no command ") + bare +
               did_you_mean(bare, {names.begin(), names.end()});
    }
    return {};
}

} // namespace verbena
