// SPDX-License-Identifier: Apache-2.0
#include "export_word.hpp"

#include <set>
#include <vector>

namespace verbena::nfs {

namespace {

// The text with its escapes resolved; `bare` says which characters were not escaped.
struct unescaped {
    std::string text;
    std::vector<bool> bare;

    bool is_bare(std::size_t at, char c) const { return bare[at] && text[at] == c; }
    std::size_t find(char c, std::size_t from) const
    {
        while (from < text.size() && !is_bare(from, c))
            ++from;
        return from;
    }
};

[[noreturn]] void fail(std::string_view spec, const std::string& why)
{
    throw config_error("--export " + without_secrets(spec) + ": " + why);
}

unescaped resolve_escapes(std::string_view spec)
{
    unescaped out;
    for (std::size_t i = 0; i < spec.size(); ++i) {
        const bool escaped = spec[i] == '\\';
        if (escaped && ++i == spec.size())
            fail(spec, "nothing follows the last backslash; write \\\\ for a backslash itself");
        if (spec[i] == '\0')
            fail(spec, "a path can't hold a NUL character");
        out.text += spec[i];
        out.bare.push_back(!escaped);
    }
    return out;
}

// What differs from the settings' own names. The value that an option has when none is written is a flag's.
struct alias {
    std::string_view option;
    std::string_view setting;
    bool opposite;
};
constexpr alias aliases[] = {{"ro", "read_only", false},
                             {"rw", "read_only", true},
                             {"mp", "mountpoint", false},
                             {"sync", "async", true},
                             {"transport", "transports", false}};

std::string_view opposite_of(std::string_view value)
{
    for (const std::string_view yes : {"", "yes", "true", "1"}) {
        if (value == yes)
            return "no";
    }
    for (const std::string_view no : {"no", "false", "0"}) {
        if (value == no)
            return "yes";
    }
    return value; // refused with the option's name
}

} // namespace

setting_values parse_export(std::string_view spec)
{
    const unescaped whole = resolve_escapes(spec);
    const std::string_view text = whole.text;
    const setting_place place{"--export " + without_secrets(spec) + ": "};
    setting_values e;
    std::size_t at = whole.find(',', 0);

    std::size_t directory_end = at;
    for (std::size_t i = 0; i + 1 < at; ++i) {
        if (whole.is_bare(i, ':') && whole.is_bare(i + 1, '/'))
            directory_end = i;
    }
    const auto add = [&](std::string_view name, std::string_view option, std::string value) {
        setting_values::value v{setting_values::word{std::move(value)}};
        v.key_place = place;
        v.option = place.text + std::string(option);
        e.set(std::string(name), std::move(v));
    };
    if (directory_end != 0)
        add("", "DIR", std::string(text.substr(0, directory_end)));
    if (directory_end != at)
        add("pseudo", "PSEUDO", std::string(text.substr(directory_end + 1, at - directory_end - 1)));

    std::set<std::string_view> seen;
    if (directory_end != at)
        seen.insert("pseudo");
    while (at < text.size()) {
        const std::size_t begin = at + 1;
        at = whole.find(',', begin);
        const std::size_t equals = std::min(whole.find('=', begin), at);
        const std::string_view name = text.substr(begin, equals - begin);
        const std::string_view value =
            equals < at ? text.substr(equals + 1, at - equals - 1) : std::string_view();
        const std::string option =
            "option " + (is_secret(name) && equals < at ? std::string(name) + '=' + std::string(not_shown)
                                                        : std::string(text.substr(begin, at - begin)));
        if (name.empty())
            fail(spec, "an option is empty; a comma in a path is written \\,");
        alias means{name, name, false};
        for (const alias& a : aliases) {
            if (a.option == name)
                means = a;
        }
        // exports(5) has one option for both.
        if (means.setting == "mountpoint" && value.starts_with('/'))
            means.setting = "mountpoint_at";
        const bool list = means.setting == "clients" || means.setting == "transports";
        // Opposites are one setting.
        if (!seen.insert(means.setting).second && !list)
            fail(spec, "option " + std::string(name) + " stands twice or beside its opposite");
        if (list) {
            if (value.empty())
                fail(spec, "option " + std::string(name) + " needs a value, as in " + std::string(name) +
                               "=" + (name == "clients" ? "10.0.0.0/8" : "tcp"));
            e.append(std::string(means.setting), std::string(value), place);
        } else {
            add(means.setting, option, std::string(means.opposite ? opposite_of(value) : value));
        }
    }
    return e;
}

} // namespace verbena::nfs
