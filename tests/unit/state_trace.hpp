// SPDX-License-Identifier: Apache-2.0
// What a dump of a shard's tasks shows of an object's state.
#pragma once

#include <verbena/core/task/task_dump.hpp>

#include <string>
#include <string_view>

namespace verbena::test {

/// How the first `machine` of the shard came to where it is: "reading, at a limit (why), reading (why)", or nothing
/// if there is none. A change that was refused begins with "refused, ".
inline std::string state_trace(reactor& shard, std::string_view machine)
{
    const std::string dump = task_dump::take(shard, 100'000).text();
    const std::string head = "    " + std::string(machine) + " 0x";
    std::size_t at = dump.find(head);
    if (at == std::string::npos)
        return {};
    const std::string_view all(dump);
    const auto line_at = [&](std::size_t from) { return all.substr(from, all.find('\n', from) - from); };
    std::string_view first = line_at(at);
    std::string trace(first.substr(first.find(": ") + 2));
    trace.resize(trace.rfind(" for "));
    std::string changes;
    std::string begin;
    for (at += first.size() + 1; at < all.size() && all.substr(at, 6) == "      ";
         at += line_at(at).size() + 1) {
        std::string_view change = line_at(at);
        change.remove_prefix(change.find("ago: ") + 5);
        const std::size_t arrow = change.find(" -> ");
        if (changes.empty())
            begin = change.substr(0, arrow);
        if (begin.starts_with("refused, "))
            begin.erase(0, 9);
        changes += change.starts_with("refused, ") ? ", refused, " : ", ";
        changes += change.substr(arrow + 4);
    }
    return changes.empty() ? trace : begin + changes;
}

} // namespace verbena::test
