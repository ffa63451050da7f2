// SPDX-License-Identifier: Apache-2.0
// What a connection of a server is charged with.
#pragma once

#include "budget_part.hpp"

#include <verbena/core/net/peer_shares.hpp>

namespace verbena::rtrs {

/// What a connection holds, from before anything is made for it.
struct connection_charges {
    peer_charge place;  ///< among the connections of its peer
    peer_charge memory; ///< for its queues
    budget_part budget; ///< likewise
};

} // namespace verbena::rtrs
