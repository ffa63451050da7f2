// SPDX-License-Identifier: Apache-2.0
// The memory that the replies hold which wait for one stream to take them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace verbena::rpc {

/// It is not their length: a short listing lies in a large buffer, and bytes sent from a file take none. Of replies in the
/// order of the stream; a reply counts until all of it is sent. Costs an allocation when more wait than ever before.
class output_memory {
public:
    /// Small replies up to this many bytes together are one entry.
    static constexpr std::size_t together = std::size_t(16) << 10;

    /// A reply of `length` bytes that holds `memory`.
    void append(std::size_t length, std::size_t memory)
    {
        end_ += length;
        bytes_ += memory;
        if (first_ < entries_.size() && entries_.back().memory + memory <= together) {
            entries_.back().end = end_;
            entries_.back().memory += memory;
            return;
        }
        if (first_ != 0 && entries_.size() == entries_.capacity()) {
            entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(first_));
            first_ = 0;
        }
        entries_.push_back({end_, memory});
    }
    /// So many more bytes of the stream were sent.
    void sent(std::size_t length) noexcept
    {
        sent_ += length;
        for (; first_ < entries_.size() && entries_[first_].end <= sent_; ++first_)
            bytes_ -= entries_[first_].memory;
        if (first_ == entries_.size())
            clear();
    }
    void clear() noexcept
    {
        entries_.clear();
        first_ = 0;
        bytes_ = 0;
        end_ = sent_ = 0;
    }
    std::size_t bytes() const noexcept { return bytes_; }

private:
    struct entry {
        std::uint64_t end; // of its last reply, in bytes of the stream
        std::size_t memory;
    };
    std::vector<entry> entries_; // those before first_ are sent
    std::size_t first_ = 0;
    std::size_t bytes_ = 0;
    std::uint64_t end_ = 0;
    std::uint64_t sent_ = 0;
};

} // namespace verbena::rpc
