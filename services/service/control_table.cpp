// SPDX-License-Identifier: Apache-2.0
#include "control_request.hpp"

#include <verbena/core/module/settings.hpp>
#include <verbena/core/printable.hpp>

#include <algorithm>
#include <utility>

namespace verbena::services {

namespace {

constexpr std::size_t longest_name = 32;

bool is_name(std::string_view text, char joint)
{
    return !text.empty() && text.size() <= longest_name && std::ranges::all_of(text, [joint](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == joint;
    });
}

} // namespace

std::string told_of(const control_request& r)
{
    std::string text = r.command->name;
    for (const control_argument& a : r.command->arguments) {
        if (const std::string* said = r.arguments.find(a.name); said != nullptr)
            text += ' ' + printable(*said);
    }
    return text;
}

void control_table::add(control_command c)
{
    if (!is_name(c.name, '-'))
        throw config_error(
            "the control command \"" + printable(c.name) +
            "\" has no name that a command may have: write up to 32 lower-case letters, digits and '-'");
    if (find(c.name) != nullptr)
        throw config_error("there are two control commands " + c.name + ": give one of them another name");
    for (const std::string& column : c.columns) {
        if (!is_name(column, '_'))
            throw config_error("the control command " + c.name + " has a column \"" + printable(column) +
                               "\": write up to 32 lower-case letters, digits and '_'");
    }
    if (c.work && (c.answer || c.list))
        throw config_error("the control command " + c.name +
                           " has work, and an answer or a list beside it: "
                           "let the work give all rows");
    all_.push_back(std::move(c));
}

const control_command* control_table::find(std::string_view name) const noexcept
{
    const auto found = std::ranges::find(all_, name, &control_command::name);
    return found == all_.end() ? nullptr : &*found;
}

std::vector<std::string_view> control_table::names() const
{
    std::vector<std::string_view> all;
    for (const control_command& c : all_)
        all.push_back(c.name);
    return all;
}

} // namespace verbena::services
