// SPDX-License-Identifier: Apache-2.0
// The filters of an export or a device, as its configuration has them.
#pragma once

#include <verbena/core/module/module.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::filters {

inline constexpr std::size_t max_filters = 8; ///< of one export or device

/// One of them. `Side` is storage::filter_module or storage::block_filter.
template<class Side>
struct filter_config {
    Side* module = nullptr;
    std::string name;
    setting_values values;
};

/// A module's author must know what every export, device or filter has.
inline void refuse_collision(const std::vector<setting>& own, const std::vector<setting>& of_module,
                             std::string_view name)
{
    for (const setting& s : of_module) {
        if (std::ranges::find(own, s.name, &setting::name) != own.end())
            throw config_error("the module " + std::string(name) + " declares a setting " + s.name +
                               ", which every export, device or filter has: it needs another name");
        if (s.is_main && (s.kind != setting_kind::text || s.is_optional))
            throw config_error("the module " + std::string(name) + " declares the main setting " + s.name +
                               ", which must be a text that is not optional");
    }
}

/// What every table of filters has.
inline setting declare_filters(const char* what)
{
    return setting::tables("filter", {setting::text("name", "", "The module")}, what).open();
}

/// Reads one table, and completes it. `told` names what the filter is for, `path` stands before names of settings, and `side_of(name)`
/// yields the module's side. Throws config_error.
template<class Side, class SideOf>
filter_config<Side> read_filter(setting_values& table, const std::string& told, const std::string& path,
                                const SideOf& side_of)
{
    filter_config<Side> f;
    f.name = table.text("name");
    f.module = &side_of(f.name);
    auto declared = f.module->settings();
    const std::vector<setting> own = {setting::text("name", "", "")};
    refuse_collision(own, declared, f.name);
    declared.insert(declared.begin(), own.front());
    check(declared, table, path);
    f.module->check(table, told + ": filter " + f.name);
    f.values = table;
    return f;
}

/// Reads `filter` of `values`.
template<class Side, class SideOf>
std::vector<filter_config<Side>> read_filters(setting_values& values, const std::string& told,
                                              const std::string& path, const SideOf& side_of)
{
    auto& tables = std::get<setting_values::value::tables>(values.find("filter")->data);
    if (tables.size() > max_filters)
        throw config_error(told + ": more than " + std::to_string(max_filters) + " filters");
    std::vector<filter_config<Side>> all;
    for (setting_values& t : tables)
        at_place(t.place(), [&] { all.push_back(read_filter<Side>(t, told, path, side_of)); });
    return all;
}

} // namespace verbena::filters
