// SPDX-License-Identifier: Apache-2.0
#include "wait_text.hpp"

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/timer.hpp>

#include <algorithm>
#include <chrono>

namespace verbena::detail {

namespace {

// Nested deeper than this, scopes that wait for each other in a circle are given up.
constexpr unsigned deepest_scope = 8;

std::string innermost(const wait_record& first, reactor& shard, unsigned depth)
{
    const wait_record* r = &first;
    while (const wait_record* const next = r->awaited_task())
        r = next;
    if (r->kind() == wait_kind::nothing)
        return {};
    if (r->kind() == wait_kind::scope && depth < deepest_scope) {
        auto& roots = const_cast<task_group*>(static_cast<const task_group*>(r->awaited()))->roots();
        for (root_record* child = roots.front(); child != nullptr; child = roots.next(*child)) {
            std::string text = innermost(*child, shard, depth + 1);
            if (!text.empty())
                return text;
        }
    }
    return awaited_by(*r, shard);
}

} // namespace

std::string seconds(duration d) { return format("%.3f s", std::chrono::duration<double>(d).count()); }

std::string name_of(const task_group& g)
{
    if (g.name() == nullptr)
        return format("scope %p", static_cast<const void*>(&g));
    return format("scope \"%s\" %p", g.name(), static_cast<const void*>(&g));
}

std::string awaited_by(const wait_record& r, reactor& shard)
{
    const void* object = r.awaited();
    switch (r.kind()) {
    case wait_kind::nothing:
    case wait_kind::task: break;
    case wait_kind::scope: return name_of(*static_cast<const task_group*>(object));
    case wait_kind::event: return format("event %p", object);
    case wait_kind::semaphore: return format("semaphore %p", object);
    case wait_kind::sleep:
        return "a sleep, " +
               seconds(std::max(static_cast<const timer*>(object)->when() - shard.clock().now(),
                                duration::zero())) +
               " left";
    case wait_kind::buffer: return "memory for a buffer";
    case wait_kind::blocking_call:
        return "a blocking call in lane " + static_cast<const blocking_pool*>(object)->name();
    case wait_kind::file_read: return "a read by the ring";
    case wait_kind::other_shard:
        return "a call on shard " + std::to_string(static_cast<const reactor*>(object)->index());
    case wait_kind::other: return static_cast<const char*>(object);
    }
    return "?";
}

std::string text_of_wait(const wait_record& first, reactor& shard) { return innermost(first, shard, 0); }

} // namespace verbena::detail
