// SPDX-License-Identifier: Apache-2.0
// delay: filters that make operations of the back end below take longer, to see how clients do with a slow disk.
#pragma once

#include <verbena/core/reactor/clock.hpp>
#include <verbena/protocols/storage/gated_backend.hpp>
#include <verbena/protocols/storage/gated_block_backend.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

#pragma GCC visibility push(default)

namespace verbena::filters {

/// The most that delay_range::most may be.
constexpr duration longest_delay = std::chrono::hours(1);
/// The most that delay_options::waiting may be.
constexpr std::size_t most_delayed = std::size_t(1) << 20;

/// How long an operation waits before it reaches the back end below: evenly distributed from `least` to `most`, both within
/// 0 to longest_delay. Equal: always so long. Both 0: no wait.
struct delay_range {
    duration least{};
    duration most{};
};

/// How long operations wait, by what they do.
struct delay_options {
    delay_range read;       ///< read(). With a delay no read is sent from a file (file_backend::locate).
    delay_range write;      ///< write(), copy(), clone(), allocate() and deallocate()
    delay_range sync;       ///< commit(); of a device flush()
    delay_range metadata;   ///< all else: of a device discard() and write_zeroes()
    std::uint64_t seed = 1; ///< of the delays that are drawn
    /// How many operations may wait at once, 1 to most_delayed. One more is answered storage::errc::delayed, and EBUSY on a device.
    std::size_t waiting = 65536;
};

/// What a filter has done, at one moment.
struct delay_counters {
    std::uint64_t delayed = 0;   ///< operations that waited, those that still do among them
    std::uint64_t cancelled = 0; ///< waits that a stop ended
    std::uint64_t refused = 0;   ///< operations beyond delay_options::waiting
    std::uint64_t waiting = 0;   ///< operations that wait now
};

/// The filter. An operation waits on its shard, by the shard's clock, and only then reaches the back end below, so that what it
/// answers is from after the wait. With a fixed delay operations of one shard that wait equally long reach it in the order in
/// which they came. With random delays the n-th draw depends on the seed and n alone. Cancellation: a stop of the context ends
/// the wait; the operation is answered ECANCELED and is not done below.
class delay_filter : public storage::gated_backend {
public:
    using gated_backend::gated_backend;
    /// Any thread.
    virtual delay_counters counters() const noexcept = 0;
};

/// The same on a block device.
class block_delay_filter : public storage::gated_block_backend {
public:
    using gated_block_backend::gated_block_backend;
    /// Any thread.
    virtual delay_counters counters() const noexcept = 0;
};

/// Puts the filter on `below`, which it owns. Serves shards of any number. EINVAL for an option out of its range; the error
/// names the option, and its detail is the value that was given (nanoseconds).
result<std::unique_ptr<delay_filter>> open_delay(std::unique_ptr<storage::file_backend> below,
                                                 const delay_options& options);
/// The same.
result<std::unique_ptr<block_delay_filter>> open_delay(std::unique_ptr<storage::block_backend> below,
                                                       const delay_options& options);

} // namespace verbena::filters

#pragma GCC visibility pop
