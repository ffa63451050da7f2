// SPDX-License-Identifier: Apache-2.0
// limit: filters that bound how many operations and bytes a second a client may have, and all clients of an export or a device together.
#pragma once

#include <verbena/protocols/storage/gated_backend.hpp>
#include <verbena/protocols/storage/gated_block_backend.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#pragma GCC visibility push(default)

namespace verbena::filters {

/// The most operations that a limit may be.
constexpr std::uint64_t most_limited_operations = 1'000'000'000; ///< a second
/// The least bytes that a limit may be.
constexpr std::uint64_t least_limited_bytes = 1024; ///< a second
/// The most bytes that a limit may be.
constexpr std::uint64_t most_limited_bytes = 1'000'000'000'000; ///< a second
/// The most that limit_options::burst may be.
constexpr std::chrono::milliseconds longest_burst = std::chrono::minutes(1);
/// Clients that a limit may remember.
constexpr std::size_t most_limited_clients = std::size_t(1) << 20;
/// Operations that a limit may let wait.
constexpr std::size_t most_limited_waiting = std::size_t(1) << 20;

/// How fast clients may be, and how many may wait.
struct limit_options {
    /// Operations of each client a second, of all kinds: 1 to most_limited_operations; 0: no limit.
    std::uint64_t client_operations = 0;
    /// Bytes of each client a second, least_limited_bytes to most_limited_bytes; 0: no limit. What counts are data that read(), write()
    /// and copy() move, and room that allocate() takes; of a device also those of write_zeroes(), which its disk may have to write.
    std::uint64_t client_bytes = 0;
    std::uint64_t total_operations = 0; ///< as client_operations, of all clients together
    std::uint64_t total_bytes = 0;      ///< as client_bytes, of all clients together
    /// What an idle client, or export or device, saves up at most: what its rate gives in this time, and at least one operation. 1 ms to
    /// longest_burst.
    std::chrono::milliseconds burst{1000};
    /// How many operations of one client may wait, 0 to most_limited_waiting; one more is answered storage::errc::delayed,
    /// and EBUSY on a device.
    std::size_t client_queue = 64;
    /// And how many of all clients together.
    std::size_t total_queue = 1024;
    /// How many clients are remembered, 1 to most_limited_clients. The client that was idle for the longest time is forgotten
    /// for a new one; if it comes again, it has its whole burst again. If all have operations that wait, an operation of a new
    /// client is answered so, too.
    std::size_t clients = 1024;
};

/// What a filter has done, at one moment.
struct limit_counters {
    std::uint64_t passed = 0;             ///< operations that passed at once
    std::uint64_t waited = 0;             ///< operations that passed after a wait
    std::uint64_t waited_nanoseconds = 0; ///< how long these waited together
    std::uint64_t refused_by_client = 0;  ///< operations beyond client_queue
    std::uint64_t refused_by_total = 0;   ///< operations beyond total_queue
    std::uint64_t refused_newcomers = 0;  ///< operations of clients for which there was no place
    std::uint64_t cancelled = 0;          ///< waits that a stop ended
    std::uint64_t forgotten = 0;          ///< clients that made place for others
    std::uint64_t waiting = 0;            ///< operations that wait now
    std::uint64_t clients = 0;            ///< clients that are remembered now
};

/// The filter. A client is what storage::request::client says: an address without port, all its connections together; at most
/// its first 256 bytes count.
///
/// What is over a limit waits on its shard, by the shard's clock. Operations of one client go in the order in which they came. A
/// client over its own limit holds up nobody else. At the export's limit the clients that wait take turns, one operation each.
/// A read or a write pays for its bytes before it reaches the back end below, and gets back what it did not move.
///
/// Precision: one set of token buckets under a lock serves all shards, so that order and turns hold over all of them and, in any
/// time t, no more passes than rate * (t + burst), and one operation more where one is larger than the burst. What a short
/// read gives back may reach an operation that waits on another shard late, but no later than without it.
///
/// Cancellation: a stop of the context ends the wait; the operation is answered ECANCELED and is not done below.
class limit_filter : public storage::gated_backend {
public:
    using gated_backend::gated_backend;
    /// Any thread.
    virtual limit_counters counters() const noexcept = 0;
};

/// The same on a block device. A client is whoever for_client() names; whoever uses the filter itself is one without a name. An
/// operation that fails below gets its bytes back. What was said of order, turns, precision and cancellation holds here, too.
class block_limit_filter : public storage::gated_block_backend {
public:
    using gated_block_backend::gated_block_backend;
    /// Any thread.
    virtual limit_counters counters() const noexcept = 0;
};

/// Puts the filter on `below`, which it owns. EINVAL for an option out of its range; the error names the option, and its detail
/// is the value that was given.
result<std::unique_ptr<limit_filter>> open_limit(std::unique_ptr<storage::file_backend> below,
                                                 const limit_options& options);
/// The same.
result<std::unique_ptr<block_limit_filter>> open_limit(std::unique_ptr<storage::block_backend> below,
                                                       const limit_options& options);

} // namespace verbena::filters

#pragma GCC visibility pop
