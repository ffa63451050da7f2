// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbena/core/task/event.hpp>
#include <verbena/protocols/rpc/address_shares.hpp>

#include <cstddef>
#include <cstdint>

namespace verbena::rpcrdma {

/// What the calls of the connections of one peer move through chunks at this moment, or hold in buffers if that is more.
struct chunk_share {
    std::uint64_t bytes = 0;
    std::uint64_t raised = 0; // receives, beyond those of idle connections
    std::size_t connections = 0;
    event freed;
};

/// Of all peers that a listener has connections of, on one shard, so that no call touches what shards share.
using chunk_shares = rpc::address_shares<chunk_share>;

} // namespace verbena::rpcrdma
