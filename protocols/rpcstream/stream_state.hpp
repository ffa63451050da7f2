// SPDX-License-Identifier: Apache-2.0
// What a stream that brings calls is doing, and what may follow.
//
//   reading <-> yielding
//   reading <-> at_limit, waits_for_memory, waits_for_share, waits_for_results
//   any of these --its peer sends no more, or the server shuts down--> finishing --calls and replies gone--> ended
//   any of these, finishing --error, limit of time--> ended --calls gone--> destroyed
//
// Whether the socket takes output, and whether the peer has closed its side, are no states: either may be so in each
// of them.
#pragma once

#include <verbena/core/named_state.hpp>

#include <array>
#include <cstdint>

namespace verbena::rpc {

enum class stream_state : std::uint8_t {
    reading,           ///< bytes are read, and the calls in hand begin
    yielding,          ///< calls in hand wait for the shard's next turn
    at_limit,          ///< until calls under way end, or replies are sent (stream_options)
    waits_for_memory,  ///< until the pool may have a buffer
    waits_for_share,   ///< in the line of its host's streams for memory of large messages
    waits_for_results, ///< in the line of its host's streams for memory of results
    finishing,         ///< no call begins any more; what is under way is answered
    ended,             ///< has no socket
};

/// Whoever waits goes on by reading: what it waited for is looked at anew.
inline constexpr std::array stream_state_rules = {
    state_rule{"reading",
               followed_by(stream_state::yielding, stream_state::at_limit, stream_state::waits_for_memory,
                           stream_state::waits_for_share, stream_state::waits_for_results,
                           stream_state::finishing, stream_state::ended)},
    state_rule{"yielding", followed_by(stream_state::reading, stream_state::finishing, stream_state::ended)},
    state_rule{"at a limit",
               followed_by(stream_state::reading, stream_state::finishing, stream_state::ended)},
    state_rule{"waiting for memory",
               followed_by(stream_state::reading, stream_state::finishing, stream_state::ended)},
    state_rule{"waiting for its host's share of memory",
               followed_by(stream_state::reading, stream_state::finishing, stream_state::ended)},
    state_rule{"waiting for its host's share of results",
               followed_by(stream_state::reading, stream_state::finishing, stream_state::ended)},
    state_rule{"finishing", followed_by(stream_state::ended)},
    state_rule{"ended", followed_by()},
};

} // namespace verbena::rpc
