// SPDX-License-Identifier: Apache-2.0
#include "debug_layout.hpp"

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/task/task.hpp>

#include <cstddef>
#include <mutex>

// The data of a process that a debugger starts from, by their names. verbenad exports them (services/daemon/exported_symbols.list),
// since strip leaves the names that the dynamic linker needs.
extern "C" {
[[gnu::visibility("default")]] extern const verbena::detail::debug_layout verbena_debug_layout;
[[gnu::visibility("default")]] extern verbena::reactor* verbena_debug_reactors;
}

[[gnu::used, gnu::retain]] verbena::reactor* verbena_debug_reactors = nullptr;

namespace verbena::detail {
namespace {
constinit std::mutex reactors_mutex;
} // namespace

// offsetof of a class that derives from another one is conditionally supported: clang and GCC do.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
constexpr debug_layout debug_layout::here() noexcept
{
    return {
        .version = 1,
        .size = sizeof(debug_layout),
        .reactor_next = offsetof(reactor, next_),
        .reactor_index = offsetof(reactor, options_) + offsetof(reactor_options, index),
        .reactor_thread = offsetof(reactor, kernel_thread_),
        .reactor_groups = offsetof(reactor, task_groups_),
        .hook_next = offsetof(list_hook, next_),
        .group_hook = offsetof(task_group, next_) - offsetof(list_hook, next_),
        .group_name = offsetof(task_group, name_),
        .group_roots = offsetof(task_group, roots_),
        .group_joiner = offsetof(task_group, joiner_),
        .root_hook = offsetof(root_record, next_) - offsetof(list_hook, next_),
        .root_wait = offsetof(root_record, kind_) - offsetof(wait_record, kind_),
        .record_kind = offsetof(wait_record, kind_),
        .record_awaited = offsetof(wait_record, awaited_),
        .record_frame = offsetof(wait_record, frame_),
        .record_context = offsetof(wait_record, context_),
        .context_trace = offsetof(task_context, trace_id),
        .pool_name = offsetof(blocking_pool, name_),
    };
}
#pragma GCC diagnostic pop

void debug_layout::enlist(reactor& r) noexcept
{
    const std::lock_guard lock(reactors_mutex);
    r.next_ = verbena_debug_reactors;
    verbena_debug_reactors = &r;
}

void debug_layout::strike_out(reactor& r) noexcept
{
    const std::lock_guard lock(reactors_mutex);
    for (reactor** at = &verbena_debug_reactors; *at != nullptr; at = &(*at)->next_) {
        if (*at == &r) {
            *at = r.next_;
            return;
        }
    }
}

} // namespace verbena::detail

[[gnu::used, gnu::retain]] constinit const verbena::detail::debug_layout verbena_debug_layout =
    verbena::detail::debug_layout::here();
