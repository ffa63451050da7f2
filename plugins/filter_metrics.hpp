// SPDX-License-Identifier: Apache-2.0
// How filters show what they have done: by export.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/settings.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace verbena::filters {

/// Exports that have series of their own.
inline constexpr std::size_t max_export_series = 64;

/// Operations of an export by what became of them: `show(add)` calls add(outcome, count). What `show` reads outlives the registration.
template<class Show>
metric_registry::registration expose_outcomes(metric_registry& registry, std::string label, const char* name,
                                              const char* help, std::size_t outcomes, Show show)
{
    return registry.add(
        {name, help, metric_type::counter, "operations", {"export", "outcome"}, max_export_series * outcomes},
        [label = std::move(label), show](metric_sink& out) {
            show([&](std::string_view outcome, std::uint64_t count) {
                out.value({label, outcome}, static_cast<double>(count));
            });
        });
}

/// One number of an export.
template<class Read>
metric_registry::registration expose_number(metric_registry& registry, std::string label, const char* name,
                                            const char* help, metric_type type, const char* unit, Read read)
{
    return registry.add({name, help, type, unit, {"export"}, max_export_series},
                        [label = std::move(label), read](metric_sink& out) { out.value({label}, read()); });
}

/// What a filter that can't be opened says, as an error of a configuration.
[[noreturn]] inline void refuse(const std::string& name, const error& e)
{
    throw config_error(name + ": " + e.message());
}

} // namespace verbena::filters
