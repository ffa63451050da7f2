// SPDX-License-Identifier: Apache-2.0
// The replies that wait for one stream to take them.
#pragma once

#include "stream_call.hpp"

#include <verbena/core/metrics.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace verbena::rpc {

/// Short pieces are gathered in a buffer, large ones go out from where they lie. Shard-local.
class stream_output {
public:
    /// Pieces up to this size are copied: an entry of a gathered send costs the kernel about as much.
    static constexpr std::size_t max_copied_piece = 256;
    /// Likewise of results, wherever they were written: the buffer that was taken for longer ones serves the next call then.
    static constexpr std::size_t max_copied_results =
        fragment_header_size + success_header_size + call::inline_results;
    /// Entries of one system call.
    static constexpr std::size_t max_gathered = 256;
    static constexpr std::size_t buffer_size = std::size_t(16) << 10;
    /// Room for segments from the first reply on, so that a stream of usual depth allocates once. 5 KiB.
    static constexpr std::size_t usual_segments = 64;

    enum class status : std::uint8_t {
        drained,
        blocked,
        failed,
        cut_short, ///< a file ended before the bytes that its record's length promises
    };

    stream_output(buffer_pool& pool, counter& copied) noexcept : pool_(pool), payload_copied_(copied) {}

    /// Queues the reply that stands in `c`'s results. Returns how much of stream_call::unused_results() is free by that: the block of
    /// results that were copied out of it.
    std::size_t append(std::unique_ptr<stream_call> c);
    /// Queues `length` bytes of a record that begins there.
    void append(lease bytes, std::size_t length);
    /// Sends what the socket takes; `sent` is how much that was, `calls` the number of system calls.
    status send(int fd, std::size_t& sent, unsigned& calls) noexcept;

    /// Bytes that wait.
    std::size_t queued() const noexcept { return queued_; }
    /// Gives everything up.
    void clear() noexcept;

private:
    struct segment {
        segment(std::span<const std::byte> b, lease o) noexcept : bytes(b), owner(std::move(o)) {}
        explicit segment(file_range f) noexcept : file(std::move(f)) {}
        std::size_t size() const noexcept { return bytes.size() + file.size; }
        std::span<const std::byte> bytes;
        lease owner;
        file_range file;                     // instead of `bytes`; its owner may be that of `bytes`
        std::unique_ptr<stream_call> keeper; // a call whose own memory `bytes` may be
    };
    bool copy(std::span<const std::byte> bytes);
    void reserve_segment();
    void drop_sent() noexcept;
    void refer(std::span<const std::byte> bytes, lease owner);
    void refer(file_range file);
    ssize_t send_memory(int fd, std::size_t& offered) noexcept;
    void drop(std::size_t bytes) noexcept;

    buffer_pool& pool_;
    counter& payload_copied_;
    std::vector<segment> segments_; // those before first_ are sent
    std::size_t first_ = 0;
    std::size_t queued_ = 0;
    lease buffer_; // [0, used_) is written
    std::size_t used_ = 0;
};

} // namespace verbena::rpc
