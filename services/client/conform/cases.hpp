// SPDX-License-Identifier: Apache-2.0
// The checks of `verbena conform`, from the connecting end.
#pragma once

#include "end.hpp"

#include <verbena/core/memory/buffer.hpp>

#include <string>
#include <vector>

namespace verbena::conform {

/// Where the checks connect to, and the connection over which the server is asked for what became of others.
struct target {
    /// Of one check; none waits longer.
    static constexpr auto limit = std::chrono::seconds(240);
    static constexpr std::uint32_t usual_reads = 16;

    verbs::context& context;
    buffer_pool& buffers;
    std::string address;
    end main;
    std::uint64_t last_id;
    time_point deadline = time_point::max();
    std::uint64_t wakes =
        0; ///< RDMA Writes of nothing, sent to who left a connection's first message without an answer for a second

    target(verbs::context& c, buffer_pool& b, std::string to, std::uint64_t seed)
        : context(c), buffers(b), address(std::move(to)), main(c), last_id(seed)
    {
    }
    /// Connects `e`, which is prepared if it isn't and may send `reads` RDMA Reads at once; returns the connection's
    /// id. Errors: failure.
    task<std::uint64_t> connect(end& e, std::uint32_t reads = usual_reads);
    /// Connects `e` with private data of its own; returns the peer's. Errors: failure.
    task<std::vector<std::byte>> connect_as(end& e, std::span<const std::byte> private_data,
                                            std::uint32_t reads = usual_reads);
    /// A check begins: its time counts from now.
    void begin_check() noexcept
    {
        deadline = context.shard().clock().now() + limit;
        main.set_deadline(deadline);
    }
    /// A bit set of connection_fate, once the connection has ended at the server too.
    task<std::uint64_t> fate(std::uint64_t id);
};

struct check {
    const char* name;
    task<void> (*run)(target& t); ///< throws failure or not_supported
};
struct check_group {
    const char* name; ///< in the report
    std::span<const check> checks;
};
/// In the order in which they run.
std::span<const check> verbs_checks() noexcept;
std::span<const check> rpc_checks() noexcept;        ///< by our requester
std::span<const check> rpc_header_checks() noexcept; ///< by headers made one by one

} // namespace verbena::conform
