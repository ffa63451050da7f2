// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/module/reload.hpp>
#include <verbena/core/printable.hpp>

#include <algorithm>
#include <variant>

namespace verbena {

namespace {

using value = setting_values::value;

bool same_table(const setting_values& one, const setting_values& other);

bool same_value(const value& one, const value& other)
{
    if (one.data.index() != other.data.index())
        return false;
    if (const auto* tables = std::get_if<value::tables>(&one.data))
        return std::ranges::equal(*tables, std::get<value::tables>(other.data), same_table);
    if (const auto* flag = std::get_if<bool>(&one.data))
        return *flag == std::get<bool>(other.data);
    if (const auto* number = std::get_if<std::int64_t>(&one.data))
        return *number == std::get<std::int64_t>(other.data);
    if (const auto* text = std::get_if<std::string>(&one.data))
        return *text == std::get<std::string>(other.data);
    if (const auto* texts = std::get_if<value::texts>(&one.data))
        return *texts == std::get<value::texts>(other.data);
    return false; // check() leaves nothing else
}

bool same_table(const setting_values& one, const setting_values& other)
{
    const auto same = [](const auto& a, const auto& b) {
        return a.first == b.first && same_value(a.second, b.second);
    };
    return std::ranges::equal(one.all(), other.all(), same);
}

const setting_values* table_in(const setting_values& values, std::string_view name) noexcept
{
    const value* const v = values.find(name);
    const auto* const tables = v == nullptr ? nullptr : std::get_if<value::tables>(&v->data);
    return tables != nullptr && tables->size() == 1 ? &tables->front() : nullptr;
}

} // namespace

bool differ(const setting_values& running, const setting_values& wanted, std::string_view name)
{
    const value* const before = running.find(name);
    const value* const now = wanted.find(name);
    if (before == nullptr || now == nullptr)
        return before != now;
    return !same_value(*before, *now);
}

std::string reload_text(const setting_values& values, std::string_view name)
{
    const value* const v = values.find(name);
    if (v == nullptr)
        return "nothing";
    if (is_secret(name))
        return std::string(not_shown);
    if (const auto* flag = std::get_if<bool>(&v->data))
        return *flag ? "true" : "false";
    if (const auto* number = std::get_if<std::int64_t>(&v->data))
        return std::to_string(*number);
    if (const auto* text = std::get_if<std::string>(&v->data))
        return text->empty() ? "nothing" : printable(*text);
    if (const auto* tables = std::get_if<value::tables>(&v->data))
        return std::to_string(tables->size());
    const auto* const texts = std::get_if<value::texts>(&v->data);
    std::string all;
    for (std::size_t i = 0; texts != nullptr && i < texts->size(); ++i)
        all += (i == 0 ? "" : ", ") + printable((*texts)[i]);
    return all.empty() ? "nothing" : all;
}

std::string change_text(const setting_values& running, const setting_values& wanted, std::string_view name)
{
    return is_secret(name) ? "changed" : reload_text(wanted, name) + ", was " + reload_text(running, name);
}

void note_changes(std::span<const setting> declared, const setting_values& running,
                  const setting_values& wanted, const std::string& path, bool needs_restart,
                  std::vector<reload_change>& to)
{
    for (const setting& s : declared) {
        if (!differ(running, wanted, s.name))
            continue;
        const setting_values* const before = table_in(running, s.name);
        const setting_values* const now = table_in(wanted, s.name);
        if (s.kind == setting_kind::table && before != nullptr && now != nullptr && !is_secret(s.name))
            note_changes(s.inner, *before, *now, path + s.name + '.', needs_restart, to);
        else if (s.kind == setting_kind::table || s.kind == setting_kind::tables)
            to.push_back({path + s.name,
                          before == nullptr && s.kind == setting_kind::table ? "added"
                          : now == nullptr && s.kind == setting_kind::table  ? "removed"
                                                                             : "changed",
                          needs_restart});
        else
            to.push_back({path + s.name, change_text(running, wanted, s.name), needs_restart});
    }
}

} // namespace verbena
