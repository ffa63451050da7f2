// SPDX-License-Identifier: Apache-2.0
#include "control_request.hpp"

#include <verbena/core/printable.hpp>
#include <verbena/core/suggestion.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>
#include <variant>

namespace verbena::services {

namespace {

using nlohmann::json;
using ordered = nlohmann::ordered_json;

// The parser keeps a stack of what it is in, on the heap: how deep that gets is known before it begins.
bool is_shallow(std::string_view line)
{
    int depth = 0;
    bool in_text = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
        const char c = line[i];
        if (in_text) {
            if (c == '\\')
                ++i;
            else if (c == '"')
                in_text = false;
        } else if (c == '"') {
            in_text = true;
        } else if (c == '[' || c == '{') {
            if (++depth > max_control_depth)
                return false;
        } else if (c == ']' || c == '}') {
            --depth;
        }
    }
    return true;
}

std::string usage(const control_command& c)
{
    std::string text = c.name;
    for (const control_argument& a : c.arguments) {
        std::string word = a.name;
        std::ranges::transform(word, word.begin(), [](char l) { return l >= 'a' && l <= 'z' ? l - 32 : l; });
        text += a.required ? ' ' + word : " [" + word + ']';
    }
    return text;
}

control_refusal bad_argument(const control_command& c, const std::string& why)
{
    return {"bad_argument", c.name + ": " + why + "; it is called as: " + usage(c)};
}

// One argument, by name. Empty: it was taken.
std::string take(const control_command& c, const std::string& name, const json& value, control_request& into)
{
    const auto declared = std::ranges::find(c.arguments, name, &control_argument::name);
    if (declared == c.arguments.end())
        return "it has no argument " + printable(name);
    if (!value.is_string())
        return "the argument " + name + " is no text: write it in quotation marks";
    const auto& text = value.get_ref<const std::string&>();
    if (!declared->words.empty() && std::ranges::find(declared->words, text) == declared->words.end()) {
        const std::vector<std::string_view> words(declared->words.begin(), declared->words.end());
        return "no " + name + ' ' + printable(text) + did_you_mean(text, words);
    }
    into.arguments.set(name, text);
    return {};
}

// By name as an object, or in their order as a list.
std::variant<control_request, control_refusal> with_arguments(const control_command& c, const json& request)
{
    control_request made{&c, {}};
    if (const auto given = request.find("arguments"); given != request.end()) {
        if (!given->is_object() && !given->is_array())
            return bad_argument(c, "arguments are an object or a list");
        std::size_t i = 0;
        for (const auto& [key, value] : given->items()) {
            if (given->is_array() && i == c.arguments.size())
                return bad_argument(c, c.arguments.empty() ? "it takes no argument" : "too many arguments");
            const std::string& name = given->is_array() ? c.arguments[i++].name : key;
            if (const std::string why = take(c, name, value, made); !why.empty())
                return bad_argument(c, why);
        }
    }
    for (const control_argument& a : c.arguments) {
        if (a.required && made.arguments.find(a.name) == nullptr)
            return bad_argument(c, "the argument " + a.name + " is missing");
    }
    return made;
}

ordered json_of(const control_value& v)
{
    return std::visit(
        [](const auto& held) -> ordered {
            if constexpr (std::is_same_v<std::remove_cvref_t<decltype(held)>, std::monostate>)
                return nullptr;
            else
                return held;
        },
        v);
}

// What is no UTF-8 stands there as U+FFFD.
std::string line_of(const ordered& value)
{
    return value.dump(-1, ' ', false, ordered::error_handler_t::replace) + '\n';
}

} // namespace

std::variant<control_request, control_refusal> read_control_request(std::string_view line,
                                                                    const control_table& table)
{
    const auto bad = [](const std::string& why) {
        return control_refusal{"bad_request",
                               why + R"(; write one object a line: {"version":1,"command":"help"})"};
    };
    if (line.size() > max_control_line)
        return bad("the request has more than " + std::to_string(max_control_line) + " bytes");
    if (!is_shallow(line))
        return bad("the request is nested deeper than " + std::to_string(max_control_depth));
    const json request = json::parse(line, nullptr, false);
    if (request.is_discarded())
        return bad("the request is no JSON");
    if (!request.is_object())
        return bad("the request is no object");
    for (const auto& [key, value] : request.items()) {
        if (key != "version" && key != "command" && key != "arguments")
            return bad("the request has a key " + printable(key) +
                       did_you_mean(key, {"version", "command", "arguments"}));
    }
    const auto version = request.find("version");
    if (version == request.end() || !version->is_number_integer())
        return bad("the request has no version, which is a number");
    if (*version != control_version)
        return control_refusal{"unknown_version",
                               "no version " + version->dump() +
                                   " of the control protocol; there is 1: use a `verbena` of this "
                                   "daemon's version"};
    const auto name = request.find("command");
    if (name == request.end() || !name->is_string())
        return bad("the request has no command, which is a text");
    const auto& wanted = name->get_ref<const std::string&>();
    const control_command* const c = table.find(wanted);
    if (c == nullptr)
        return control_refusal{"unknown_command",
                               "no command " + printable(wanted) + did_you_mean(wanted, table.names())};
    return with_arguments(*c, request);
}

std::string control_head(const control_command& c)
{
    ordered head;
    head["version"] = control_version;
    head["command"] = c.name;
    head["columns"] = c.columns;
    head["single"] = c.single;
    if (!c.largest_first.empty())
        head["largest_first"] = c.largest_first;
    head["more"] = true;
    return line_of(head);
}

std::string control_patience(std::chrono::seconds since)
{
    ordered part;
    part["version"] = control_version;
    part["working_seconds"] = since.count();
    part["more"] = true;
    return line_of(part);
}

std::string control_rows(const control_command& c, std::span<const control_row> rows)
{
    ordered part;
    part["version"] = control_version;
    ordered& list = part["rows"] = ordered::array();
    for (const control_row& row : rows) {
        ordered item = ordered::object();
        for (std::size_t i = 0; i < c.columns.size(); ++i)
            item[c.columns[i]] = i < row.size() ? json_of(row[i]) : ordered(nullptr);
        list.push_back(std::move(item));
    }
    part["more"] = true;
    return line_of(part);
}

std::string control_tail(const control_end& end)
{
    ordered tail;
    tail["version"] = control_version;
    tail["shards_silent"] = end.silent;
    ordered& failed = tail["shards_failed"] = ordered::array();
    for (const control_end::failed& f : end.failures)
        failed.push_back({{"shard", f.shard}, {"message", f.why}});
    tail["more"] = false;
    return line_of(tail);
}

std::string control_error(const control_refusal& why)
{
    ordered tail;
    tail["version"] = control_version;
    tail["error"] = {{"code", why.code}, {"message", why.message}};
    tail["more"] = false;
    return line_of(tail);
}

} // namespace verbena::services
