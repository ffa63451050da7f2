// SPDX-License-Identifier: Apache-2.0
// A request of a client, from its permit to its answer.
#pragma once

#include <verbena/protocols/rtrs/client.hpp>

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/task/event.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace verbena::rtrs {

/// A request, from its permit to its answer. Lives in its caller's task.
struct io_operation : list_hook {
    bool is_write = false;
    bool service = false;
    client::header* user = nullptr;
    std::span<std::byte> data;
    std::uint32_t chunk = 0;
    bool answered = false;
    bool refused = false;            ///< by its header
    bool leaving = false;            ///< the device has not given its memory back yet
    std::optional<time_point> until; ///< since it waits without a path: how long it goes on
    result<void> outcome;
    event ended; ///< answered and given back, or its path is gone
};

} // namespace verbena::rtrs
