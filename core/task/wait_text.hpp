// SPDX-License-Identifier: Apache-2.0
// What a suspended coroutine waits for, in words: for dumps of tasks, and for lists of requests.
#pragma once

#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/task/wait_record.hpp>

#include <array>
#include <cstdio>
#include <string>

namespace verbena {
class reactor;
}

namespace verbena::detail {

template<class... Values>
std::string format(const char* how, Values... values)
{
    std::array<char, 160> text;
    std::snprintf(text.data(), text.size(), how, values...);
    return text.data();
}
std::string seconds(duration d);
std::string name_of(const task_group& g);

/// What `r` itself awaits, if that is no task; "?" for what nobody knows. On its shard.
std::string awaited_by(const wait_record& r, reactor& shard);
/// What the innermost of those whom `first` awaits waits for. Of a scope: its first child that waits. Empty: it runs, or awaits
/// something that keeps no mark. On its shard.
std::string text_of_wait(const wait_record& first, reactor& shard);

} // namespace verbena::detail
