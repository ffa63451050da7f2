// SPDX-License-Identifier: Apache-2.0
// What a command line holds that its parser does not know, with what was meant.
#pragma once

#include <verbena/core/suggestion.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace verbena {

/// "no command bogus; known: ...", "no option --polcy; did you mean --policy?" or "no option --shards of serve, only of block, nfs;
/// known: ..."; empty when nothing is
/// unknown. After app.parse() threw.
inline std::string unknown_word(const CLI::App& app)
{
    // The command that was given, which may be another one's, and those it stands in.
    std::vector<const CLI::App*> path = {&app};
    for (auto next = app.get_subcommands(); !next.empty(); next = path.back()->get_subcommands())
        path.push_back(next.front());
    const CLI::App& used = *path.back();
    const CLI::App& above = path.size() > 1 ? **(path.end() - 2) : app;
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
            for (const CLI::App* other : above.get_subcommands([](const CLI::App*) { return true; })) {
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
            for (auto at = path.rbegin(); at != path.rend(); ++at)
                add_options(**at);
        } else {
            for (const CLI::App* s : used.get_subcommands([](const CLI::App*) { return true; }))
                names.push_back(s->get_name());
            if (names.empty())
                continue; // an argument too many
        }
        return (option ? "no option " : "no command ") +
               (&used == &app || option ? "" : used.get_name() + ' ') + bare +
               did_you_mean(bare, {names.begin(), names.end()});
    }
    return {};
}

} // namespace verbena
