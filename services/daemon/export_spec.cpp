// SPDX-License-Identifier: Apache-2.0
#include "export_spec.hpp"

#include <charconv>
#include <set>

namespace verbena::daemon {

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
    throw config_error("--export " + std::string(spec) + ": " + why);
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

bool parse_yes_no(std::string_view spec, std::string_view option, bool has_value, std::string_view value)
{
    if (!has_value || value == "yes" || value == "true" || value == "1")
        return true;
    if (value == "no" || value == "false" || value == "0")
        return false;
    fail(spec, "option " + std::string(option) + " takes yes or no, not " + std::string(value));
}

std::uint32_t parse_id(std::string_view spec, std::string_view option, std::string_view value)
{
    std::uint32_t id = 0;
    const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), id);
    if (status != std::errc() || end != value.data() + value.size() || !ranges::id.holds(id))
        fail(spec, "option " + std::string(option) + " takes " + ranges::id.text() + ", as in " +
                       std::string(option) + "=65534");
    return id;
}

const std::vector<std::string_view>& option_names()
{
    static const std::vector<std::string_view> names = {
        "ro",        "rw",      "root_squash", "all_squash", "anonuid", "anongid", "clients",
        "transport", "backend", "crossmnt",    "async",      "sync",    "secure",  "handles"};
    return names;
}

void apply_option(std::string_view spec, export_config& e, std::string_view name, bool has_value,
                  std::string_view value)
{
    const auto flag = [&] { return parse_yes_no(spec, name, has_value, value); };
    const auto text = [&] {
        if (value.empty())
            fail(spec, "option " + std::string(name) + " needs a value, as in " + std::string(name) + "=" +
                           (name == "clients"     ? "10.0.0.0/8"
                            : name == "transport" ? "tcp"
                            : name == "handles"   ? "path"
                                                  : "posixfs"));
        return std::string(value);
    };
    if (name == "ro")
        e.read_only = flag();
    else if (name == "rw")
        e.read_only = !flag();
    else if (name == "root_squash")
        e.root_squash = flag();
    else if (name == "all_squash")
        e.all_squash = flag();
    else if (name == "anonuid")
        e.anonuid = parse_id(spec, name, value);
    else if (name == "anongid")
        e.anongid = parse_id(spec, name, value);
    else if (name == "clients")
        e.clients.push_back(text());
    else if (name == "transport")
        e.transports.push_back(text());
    else if (name == "backend")
        e.backend = text();
    else if (name == "handles")
        e.handles = text();
    else if (name == "crossmnt")
        e.crossmnt = flag();
    else if (name == "async")
        e.async = flag();
    else if (name == "sync")
        e.async = !flag();
    else if (name == "secure")
        e.secure = flag();
    else
        fail(spec, "unknown option " + std::string(name) + did_you_mean(name, option_names()));
}

} // namespace

export_config parse_export(std::string_view spec)
{
    const unescaped whole = resolve_escapes(spec);
    const std::string_view text = whole.text;
    export_config e;
    std::size_t at = whole.find(',', 0);

    std::size_t directory_end = at;
    for (std::size_t i = 0; i + 1 < at; ++i) {
        if (whole.is_bare(i, ':') && whole.is_bare(i + 1, '/'))
            directory_end = i;
    }
    e.directory = text.substr(0, directory_end);
    if (directory_end != at)
        e.pseudo = text.substr(directory_end + 1, at - directory_end - 1);

    std::set<std::string_view> seen;
    while (at < text.size()) {
        const std::size_t begin = at + 1;
        at = whole.find(',', begin);
        const std::size_t equals = std::min(whole.find('=', begin), at);
        const std::string_view name = text.substr(begin, equals - begin);
        const bool has_value = equals < at;
        if (name.empty())
            fail(spec, "an option is empty; a comma in a path is written \\,");
        // Opposites are one setting.
        const std::string_view setting = name == "rw" ? "ro" : name == "sync" ? "async" : name;
        if (!seen.insert(setting).second && name != "clients" && name != "transport")
            fail(spec, "option " + std::string(name) + " stands twice or beside its opposite");
        apply_option(spec, e, name, has_value, has_value ? text.substr(equals + 1, at - equals - 1) : "");
    }
    return e;
}

} // namespace verbena::daemon
