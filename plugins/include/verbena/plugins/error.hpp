// SPDX-License-Identifier: Apache-2.0
// error: filters that answer operations with an error instead of doing them, to see what clients do then.
#pragma once

#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/protocols/storage/gated_backend.hpp>
#include <verbena/protocols/storage/gated_block_backend.hpp>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>

#pragma GCC visibility push(default)

namespace verbena::filters {

/// The most that error_choice::look_interval may be.
constexpr duration longest_look_interval = std::chrono::hours(1);

/// The most that block_error_options::stall may be.
constexpr duration longest_stall = std::chrono::hours(1);

/// Which of the operations that may fail do so, and how, whatever the filter stands on.
struct error_choice {
    /// What they are answered with: an errno value (system category) or storage::errc. See parse_error().
    std::error_code code = std::error_code(EIO, std::system_category());
    /// How many of them fail, 0 to 1, by chance. Not together with `every`.
    double probability = 0;
    /// The N-th of them fails, and the 2N-th... 0: none. Counted over all shards.
    std::uint64_t every = 0;
    std::uint64_t seed = 1; ///< of `probability`
    /// If not empty: operations fail only while this file exists, and only then they are counted.
    std::filesystem::path while_exists;
    /// How long what was seen of `while_exists` holds, 0 to longest_look_interval. The first operation after that has a pool
    /// thread look, and waits for it; the others go by what was seen last, so that no shard ever waits for a file system.
    duration look_interval = std::chrono::milliseconds(100);
};

/// Of a filter on files.
struct error_options : error_choice {
    /// Which operations may fail. With `read` among them no read is sent from a file (file_backend::locate).
    storage::operation_set operations = storage::operation_set::all();
};

/// Of a filter on a block device.
struct block_error_options : error_choice {
    /// Which operations may fail.
    storage::block_operation_set operations = storage::block_operation_set::all();
    /// What fails is begun: the first half of its blocks, rounded down, is read, written, discarded or zeroed before.
    bool half = false;
    /// What is chosen takes so long first, 0 to longest_stall. With a `code` of 0 that is all: it is done then. A stop ends the stall; the
    /// operation is answered ECANCELED and is not done below.
    duration stall{};
};

/// What a filter has done, at one moment.
struct error_counters {
    std::uint64_t candidates = 0; ///< operations that might have failed
    std::uint64_t injected = 0;   ///< those that did
    std::uint64_t looks = 0;      ///< times that somebody looked for `while_exists`
};

/// The filter. An operation that is answered with an error is not done below. With a probability the n-th candidate's fate
/// depends on the seed and n alone. Cancellation: none but that of the back end below; the operation that looks for
/// `while_exists` waits for the end of that.
class error_filter : public storage::gated_backend {
public:
    using gated_backend::gated_backend;
    /// Any thread.
    virtual error_counters counters() const noexcept = 0;
};

/// The same on a block device.
class block_error_filter : public storage::gated_block_backend {
public:
    using gated_block_backend::gated_block_backend;
    /// Any thread.
    virtual error_counters counters() const noexcept = 0;
};

/// Puts the filter on `below`, which it owns. `pool`, which looks for `while_exists`, outlives the filter. EINVAL for an option
/// out of its range; the error names the option.
result<std::unique_ptr<error_filter>> open_error(std::unique_ptr<storage::file_backend> below,
                                                 const error_options& options, blocking_pool& pool);
/// The same.
result<std::unique_ptr<block_error_filter>> open_error(std::unique_ptr<storage::block_backend> below,
                                                       const block_error_options& options,
                                                       blocking_pool& pool);

/// The error called `name`: EACCES, EDQUOT, EFBIG, EINVAL, EIO, ENOENT, ENOSPC, ENXIO, EPERM, EROFS, ESTALE, ETIMEDOUT, or
/// "delayed" (storage::errc::delayed: try again later). EINVAL for another name.
result<std::error_code> parse_error(std::string_view name);

} // namespace verbena::filters

#pragma GCC visibility pop
