// SPDX-License-Identifier: Apache-2.0
#include "device_config.hpp"

#include <verbena/core/byte_size.hpp>
#include <verbena/core/suggestion.hpp>
#include <verbena/plugins/limit.hpp>
#include <verbena/protocols/rnbd/server.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace verbena::block {

namespace {

// The words between commas, with escapes resolved in all but the first '=', which `equals` tells.
struct word {
    std::string text;
    std::size_t equals = std::string::npos;
    std::string name() const { return text.substr(0, equals); }
    std::string value() const { return equals == text.npos ? std::string() : text.substr(equals + 1); }
};

std::vector<word> split(std::string_view text, const std::string& place)
{
    std::vector<word> words(1);
    for (std::size_t i = 0; i < text.size(); ++i) {
        char c = text[i];
        if (c == ',') {
            words.emplace_back();
            continue;
        }
        word& last = words.back();
        if (c == '=' && last.equals == word().equals)
            last.equals = last.text.size();
        if (c == '\\') {
            if (++i == text.size())
                throw config_error(place +
                                   "nothing follows the last backslash; write \\\\ for a backslash itself");
            c = text[i];
        }
        if (c == '\0')
            throw config_error(place + "a NUL character can't stand here");
        last.text += c;
    }
    return words;
}

const setting* main_of(const std::vector<setting>& declared)
{
    const auto found = std::ranges::find(declared, true, &setting::is_main);
    return found == declared.end() ? nullptr : &*found;
}

// What stands behind the name in --device; empty if nothing does.
std::string behind_name(const setting_values& values)
{
    const setting_values::value* given = values.find("");
    const auto* text = given != nullptr ? std::get_if<setting_values::word>(&given->data) : nullptr;
    return text != nullptr ? text->text : std::string();
}

// Where nobody names the back end, a path is fileblk's, and a size is ramblk's.
bool has_path(const setting_values& values)
{
    return values.written("path") || behind_name(values).find('/') != std::string::npos;
}

// An option in the place of a path or a size, as in NAME=backend=nullblk.
void refuse_option_behind_name(const device_config& d, const std::string& text,
                               const std::vector<std::string_view>& known)
{
    const std::string_view option = std::string_view(text).substr(0, text.find('='));
    if (option.size() != text.size() && std::ranges::find(known, option) != known.end())
        throw config_error(d.told + ": " + text + " is an option, and those stand behind a comma: write " +
                           d.name + "," + text + ", or ./" + text + " if it is the path of a file");
}

storage::block_filter& filter_of(module_table& modules, const std::string& name, const std::string& told)
{
    auto* side = modules.use<storage::filter_module>(name, "filter", told + ": ").for_blocks();
    if (side == nullptr)
        throw config_error(told + ": the filter " + name + " stands on files only");
    return *side;
}

// `iops` and `bw`, as a filter in front of those that are written.
std::optional<device_config::filter> short_limit(const setting_values& values, const std::string& told,
                                                 module_table& modules)
{
    setting_values limit(values.place());
    const auto set = [&](const char* name, std::uint64_t n) {
        limit.set(name, setting_values::value{static_cast<std::int64_t>(n)});
    };
    if (values.written("iops"))
        set("device_operations", values.number("iops"));
    if (values.written("bw") && !values.text("bw").empty()) {
        const auto bytes = parse_byte_size(values.text("bw"));
        if (!bytes || *bytes < filters::least_limited_bytes || *bytes > filters::most_limited_bytes)
            throw config_error(values.place("bw"), told + ": bw " + values.text("bw") +
                                                       " is no number of bytes from 1K to 931G: write bytes, "
                                                       "or as 100M");
        set("device_bytes", *bytes);
    }
    if (limit.all().empty())
        return std::nullopt;
    limit.set("name", setting_values::value{std::string("limit")});
    return filters::read_filter<storage::block_filter>(
        limit, told, "block.device.filter.",
        [&](const std::string& name) -> storage::block_filter& { return filter_of(modules, name, told); });
}

device_config read_device(setting_values& values, module_table& modules)
{
    device_config d;
    d.place = values.place();
    d.name = values.text("name");
    d.told = d.name.empty() ? "a device" : "device " + d.name;
    d.backend_name = values.text("backend");
    if (d.backend_name.empty()) {
        d.backend_name = has_path(values) ? "fileblk" : "ramblk";
        setting_values::value chosen{d.backend_name};
        chosen.is_default = true;
        values.set("backend", std::move(chosen));
    }
    d.backend = &modules.use<storage::block_module>(d.backend_name, "block back end", d.told + ": ");
    const std::vector<setting> own = device_settings();
    const std::vector<setting> of_backend = d.backend->settings();
    filters::refuse_collision(own, of_backend, d.backend_name);
    std::vector<std::string_view> known;
    for (const auto* list : {&own, &of_backend}) {
        for (const setting& s : *list)
            known.emplace_back(s.name);
    }
    // What stands behind the first "=" is whichever setting the back end has for it.
    if (const setting_values::value* given = values.find(""); given != nullptr) {
        const setting* main = main_of(of_backend);
        const std::string text = behind_name(values);
        refuse_option_behind_name(d, text, known);
        if (main == nullptr)
            throw config_error(d.told + ": the back end " + d.backend_name +
                               " takes nothing behind the name");
        const bool is_size = main->name == std::string_view("size");
        if (is_size && values.written("size") && !text.empty() && !parse_byte_size(text))
            throw config_error(
                d.told + ": " + text +
                " has no slash, so that it is taken for a size: for the path of a file write ./" + text);
        if (values.written(main->name))
            throw config_error(d.told + ": " + main->name + " stands behind the name already");
        values.set(main->name, *given);
        values.erase("");
    }
    refuse_unknown(known, values, "block.device.");
    if (d.name.empty() || d.name.size() > rnbd::max_device_name)
        throw config_error("a device needs a name of 1 to 254 bytes: write --device NAME=WHAT, or name = "
                           "\"NAME\" in its table");
    check(of_backend, values, "block.device.", true);
    d.backend->check(values, d.told);
    for (const std::string& text : values.list("clients")) {
        if (const auto added = d.clients.add(text); !added)
            throw config_error(d.told + ": clients=" + text + ": " + std::string(added.error().context()) +
                               "; write an address, a prefix as 10.0.0.0/8, or *");
    }
    d.session = values.text("session");
    d.read_only = values.flag("read_only");
    d.filters = filters::read_filters<storage::block_filter>(
        values, d.told, "block.device.filter.",
        [&](const std::string& name) -> storage::block_filter& { return filter_of(modules, name, d.told); });
    if (auto limit = short_limit(values, d.told, modules))
        d.filters.insert(d.filters.begin(), std::move(*limit));
    d.values = values;
    return d;
}

} // namespace

std::vector<setting> device_settings()
{
    return {
        setting::text("name", "", "What clients ask for"),
        setting::text("backend", "",
                      "The module that keeps the blocks; its settings stand beside these. Unless one is "
                      "written: fileblk for a path, which has a slash, else ramblk"),
        setting::list("clients", "Addresses and CIDR prefixes that may open it, or * for everybody; this "
                                 "host only unless one is written"),
        setting::text(
            "session", "",
            "Sessions of this name only. Clients choose their names, so this keeps no stranger out"),
        setting::flag("read_only", false, "Clients may change nothing"),
        setting::number("iops", {1, filters::most_limited_operations}, 0,
                        "Operations of all its clients together a second: the filter limit in short")
            .optional("no limit"),
        setting::text("bw", "", "Bytes that they may read, write and zero a second, with K, M or G")
            .form("BYTES"),
        filters::declare_filters(
            "A filter on the device, with its settings; the last one stands on the back end"),
    };
}

setting_values parse_device(std::string_view text)
{
    const std::string place = "--device " + without_secrets(text) + ": ";
    setting_values values;
    std::map<std::string, std::string> seen; // settings, and the words that they were written by
    bool is_first = true;
    for (const word& w : split(text, place)) {
        const auto set = [&](const std::string& name, const std::string& option, std::string value) {
            setting_values::value v{setting_values::word{std::move(value)}};
            v.key_place = {place};
            v.option = place + option;
            values.set(name, std::move(v));
        };
        if (std::exchange(is_first, false)) {
            set("name", "NAME", w.name());
            if (w.equals != w.text.npos)
                set("", "what stands behind the name", w.value());
            continue;
        }
        std::string name = w.name();
        if (name.empty())
            throw config_error(place + "an option is empty; a comma in a path is written \\,");
        const bool opposite = name == "rw";
        if (opposite && w.equals != w.text.npos)
            throw config_error(place + "option rw takes no value: write rw or ro");
        if (name == "ro" || opposite)
            name = "read_only";
        const bool list = name == "clients";
        const auto [before, is_new] = seen.emplace(name, w.name());
        if (!is_new && !list)
            throw config_error(
                place + "option " + w.name() +
                (before->second == w.name()
                     ? " stands twice"
                     : " stands beside " + before->second + ", which says the same thing or the opposite"));
        if (!list)
            set(name, "option " + (is_secret(w.name()) ? w.name() + '=' + std::string(not_shown) : w.text),
                opposite ? "no" : w.value());
        else if (w.value().empty())
            throw config_error(place + "option clients needs a value, as in clients=10.0.0.0/8");
        else
            values.append(name, w.value(), {place});
    }
    return values;
}

std::vector<device_config> read_devices(setting_values& block, module_table& modules)
{
    auto& tables = std::get<setting_values::value::tables>(block.find("device")->data);
    if (tables.empty())
        throw config_error(
            "nothing is served: name a device with --device NAME=WHAT, or in a [[block.device]] table");
    std::vector<device_config> all;
    std::set<std::string> names;
    for (setting_values& t : tables) {
        at_place(t.place(), [&] {
            all.push_back(read_device(t, modules));
            if (!names.insert(all.back().name).second)
                throw config_error(all.back().told +
                                   ": a device before it has this name; give it another one");
        });
    }
    return all;
}

} // namespace verbena::block
