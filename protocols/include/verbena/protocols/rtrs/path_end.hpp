// SPDX-License-Identifier: Apache-2.0
// Why a path of RTRS ended, as either end counts it.
#pragma once

#include <cstdint>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::rtrs {

/// Why a path ended. A label of the metrics.
enum class path_end : std::uint8_t {
    closed,      ///< orderly, by the client
    lost,        ///< a connection broke
    silent,      ///< no heartbeat came
    bad_message, ///< the other end broke the protocol
    refused,     ///< the service did not want the session, or its name was in use
    unfinished,  ///< it was not set up in time
    no_memory,   ///< there was none for its chunks
    stopped,     ///< by the server, which ends
    count_
};
/// The label. A literal.
std::string_view to_string(path_end e) noexcept;

} // namespace verbena::rtrs

#pragma GCC visibility pop
