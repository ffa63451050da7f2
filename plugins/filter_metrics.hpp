// SPDX-License-Identifier: Apache-2.0
// How filters show what they have done: by export, or by device.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/core/module/settings.hpp>
#include <verbena/core/result.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace verbena::filters {

/// Exports, or devices, that have series of their own.
inline constexpr std::size_t max_series = 64;

/// Whose filter it is: an export's or a device's.
struct filtered {
    metric_registry& registry;
    const char* label; ///< "export", "device"
    std::string name;
};

/// Its operations by what became of them: `show(add)` calls add(outcome, count). What `show` reads outlives the registration.
template<class Show>
metric_registry::registration expose_outcomes(const filtered& of, const char* name, const char* help,
                                              std::size_t outcomes, Show show)
{
    return of.registry.add(
        {name, help, metric_type::counter, "operations", {of.label, "outcome"}, max_series * outcomes},
        [label = of.name, show](metric_sink& out) {
            show([&](std::string_view outcome, std::uint64_t count) {
                out.value({label, outcome}, static_cast<double>(count));
            });
        });
}

/// One number of it.
template<class Read>
metric_registry::registration expose_number(const filtered& of, const char* name, const char* help,
                                            metric_type type, const char* unit, Read read)
{
    return of.registry.add({name, help, type, unit, {of.label}, max_series},
                           [label = of.name, read](metric_sink& out) { out.value({label}, read()); });
}

/// What a filter that can't be opened says, as an error of a configuration.
[[noreturn]] inline void refuse(const std::string& name, const error& e)
{
    throw config_error(name + ": " + e.message());
}

} // namespace verbena::filters
