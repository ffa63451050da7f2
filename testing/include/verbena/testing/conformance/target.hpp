// SPDX-License-Identifier: Apache-2.0
// The end that checks what a server of conformance/server.hpp answers, as `verbena conform URL` does.
#pragma once

#include <verbena/testing/conformance.hpp>
#include <verbena/testing/conformance/end.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::testing::conformance {

/// Where the checks connect to, and the connection over which the server is asked for what became of others.
///
/// This holds for its tasks. Completes when: the connection stands, or the server has answered, within 60 s each. On cancel:
/// they fail. Errors: failure, thrown. Lifetime: the target, and what a task is given, outlive the task. Shard: that of the
/// context, which outlives the target.
struct target {
    /// Of one check; none waits longer.
    static constexpr auto limit = std::chrono::seconds(240);
    static constexpr std::uint32_t usual_reads = 16;

    verbs::context& context;
    std::string address;
    end main;
    std::uint64_t last_id;
    time_point deadline = time_point::max();
    /// What the server's provider can do, if that is known; outlives the target. A check of what that provider says it doesn't check
    /// (checks_read_rights, checks_grant_bounds) is not_supported then, and fails where this is nullptr.
    const verbs::capabilities* of_server = nullptr;
    /// RDMA Writes of nothing, sent to a peer that left a connection's first message without an answer for a second.
    std::uint64_t wakes = 0;

    /// `seed`: ids of connections count from it. No two targets of one server use the same ids.
    target(verbs::context& c, std::string to, std::uint64_t seed)
        : context(c), address(std::move(to)), main(c), last_id(seed)
    {
    }
    /// Connects `e`, which is prepared if it isn't and may send `reads` RDMA Reads at once; returns the connection's
    /// id.
    task<std::uint64_t> connect(end& e, std::uint32_t reads = usual_reads);
    /// Connects `e` with private data of its own; returns the peer's.
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
    /// The server's description of itself (server_options), asked for over `main`. A server that serves one run ends when the
    /// connection has ended over which it was asked for this.
    task<std::string> describe();
    /// Ends `main` in good order, and waits for its end.
    task<void> leave();
};

/// Runs one of checks_from_one_end() by `t`, whose `main` is connected: `co_await t.connect(t.main)` comes once before all of
/// them. Where `main` has ended, as `t.main.ended()` tells, all checks that ask the server something fail: a new target goes on. A check
/// of both ends in one program fails.
///
/// Completes when: the check is over, within `target::limit` and what a connect takes. On cancel: its waits end, and it fails.
/// Errors: none leaves it but in the outcome. Lifetime: `t` outlives the task. Shard: that of the target's context.
task<outcome> run(const check& c, target& t);

} // namespace verbena::testing::conformance

#pragma GCC visibility pop
