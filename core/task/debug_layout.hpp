// SPDX-License-Identifier: Apache-2.0
// Where a debugger finds tasks, in a program without debug information too: core/gdb/verbena_gdb.py reads it.
#pragma once

#include <verbena/core/reactor/reactor.hpp>

#include <cstddef>
#include <cstdint>

namespace verbena::detail {

/// Offsets in bytes. A debugger reads the fields in this order, each of 4 bytes; `version` changes with their meaning.
struct debug_layout {
    std::uint32_t version;
    std::uint32_t size;
    // in a reactor
    std::uint32_t reactor_next;
    std::uint32_t reactor_index;
    std::uint32_t reactor_thread; // gettid(2), int
    std::uint32_t reactor_groups; // a list
    // in a list's head and in a hook
    std::uint32_t hook_next;
    // in a task_group
    std::uint32_t group_hook;
    std::uint32_t group_name;
    std::uint32_t group_roots; // a list
    std::uint32_t group_joiner;
    // in a root_record
    std::uint32_t root_hook;
    std::uint32_t root_wait;
    // in a wait_record
    std::uint32_t record_kind; // one byte
    std::uint32_t record_awaited;
    std::uint32_t record_frame;
    std::uint32_t record_context;
    // in a task_context
    std::uint32_t context_trace;
    // in a blocking_pool
    std::uint32_t pool_name; // std::string

    static constexpr debug_layout here() noexcept;
    /// Into the list of the process's reactors, and out of it. Any thread.
    static void enlist(reactor& r) noexcept;
    static void strike_out(reactor& r) noexcept;
};

} // namespace verbena::detail
