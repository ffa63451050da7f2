// SPDX-License-Identifier: Apache-2.0
// What a connection is doing, and what may follow.
//
//   starting -> open <-> parked
//   open, parked --disconnect()--> draining <-> draining, parked --everything is out--> closing
//   open, parked, draining --the peer breaks a rule--> refusing -> terminating --everything is out--> closing
//   any of these --error, limit of time, the peer's FIN--> closed
//
// docs/internals/iwarp.md says which facts beside it may be so in which of these states.
#pragma once

#include <verbena/core/named_state.hpp>

#include <array>
#include <cstdint>

namespace verbena::iwarp {

enum class connection_state : std::uint8_t {
    starting,        ///< MPA start-up still runs; receives may be posted
    open,            ///< bytes are placed and sent
    parked,          ///< open, but a message waits for a receive, or for a write to a store: nothing is read
    draining,        ///< disconnect(): sends what was posted, then FIN
    draining_parked, ///< draining, but a message waits as in `parked`
    refusing, ///< a Terminate waits behind the message that is being sent. From here on what comes is dropped
    terminating, ///< the Terminate is on its way, then FIN
    closing,     ///< FIN sent; waits for the peer's
    closed,      ///< has no socket
};

inline constexpr std::array connection_state_rules = {
    state_rule{"starting", followed_by(connection_state::open, connection_state::closed)},
    state_rule{"open", followed_by(connection_state::parked, connection_state::draining,
                                   connection_state::refusing, connection_state::closed)},
    state_rule{"parked", followed_by(connection_state::open, connection_state::draining_parked,
                                     connection_state::refusing, connection_state::closed)},
    state_rule{"draining", followed_by(connection_state::draining_parked, connection_state::refusing,
                                       connection_state::closing, connection_state::closed)},
    state_rule{"draining, parked", followed_by(connection_state::draining, connection_state::refusing,
                                               connection_state::closing, connection_state::closed)},
    state_rule{"refusing", followed_by(connection_state::terminating, connection_state::closed)},
    state_rule{"terminating", followed_by(connection_state::closing, connection_state::closed)},
    state_rule{"closing", followed_by(connection_state::closed)},
    state_rule{"closed", followed_by()},
};

} // namespace verbena::iwarp
