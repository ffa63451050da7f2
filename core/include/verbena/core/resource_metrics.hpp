// SPDX-License-Identifier: Apache-2.0
// Limits beside what is used of them, of all layers in one pair of families: one rule watches all of them.
#pragma once

#include <verbena/core/metrics.hpp>

#include <string>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena {

/// Registers what there may be of a thing, and what there is of it. `of` names the thing: a value of the label. `used()` and `limit()` yield
/// numbers, on any thread; registered for several shards, they are added up.
template<class Used, class Limit>
void add_resource(metric_group& group, std::string_view of, Used used, Limit limit)
{
    static constexpr std::size_t most = 64;
    group.add({"verbena_resource_used",
               "What is used of what verbena_resource_limit bounds.",
               metric_type::gauge,
               "",
               {"of"},
               most},
              [of = std::string(of), used](metric_sink& out) { out.value({of}, double(used())); });
    group.add({"verbena_resource_limit",
               "The most that there may be of a thing: bytes of memory and of the other kinds of memory, and "
               "numbers of all "
               "else. Who wants more is refused, or waits.",
               metric_type::gauge,
               "",
               {"of"},
               most},
              [of = std::string(of), limit](metric_sink& out) { out.value({of}, double(limit())); });
}

} // namespace verbena

#pragma GCC visibility pop
