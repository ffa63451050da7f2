// SPDX-License-Identifier: Apache-2.0
// Bytes of a call or reply that stay where they were received or read: views with the leases that
// keep them alive.
#pragma once

#include <verbena/core/buffer.hpp>

#include <array>
#include <cstddef>
#include <span>

#pragma GCC visibility push(default)

namespace verbena::rpc {

/// A few pieces of memory, in order. Move-only. Shard-local unless its leases say otherwise.
class payload {
public:
    /// Pieces that one payload may have: a TCP record lies in at most two receive buffers, and a
    /// Read chunk is pulled into one.
    static constexpr std::size_t max_pieces = 4;

    payload() = default;
    payload(lease owner, std::span<const std::byte> bytes) noexcept { append(std::move(owner), bytes); }
    payload(payload&&) = default;
    payload& operator=(payload&&) = default;

    /// Adds a piece; false when there is no room for it.
    bool append(lease owner, std::span<const std::byte> bytes) noexcept
    {
        if (count_ == max_pieces)
            return false;
        owners_[count_] = std::move(owner);
        pieces_[count_++] = bytes;
        size_ += bytes.size();
        return true;
    }
    std::span<const std::span<const std::byte>> pieces() const noexcept { return {pieces_.data(), count_}; }
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }
    /// The lease that keeps piece `i` alive; empty for memory that outlives the call by itself.
    const lease& owner(std::size_t i) const noexcept { return owners_[i]; }
    void clear() noexcept
    {
        for (std::size_t i = 0; i < count_; ++i)
            owners_[i].reset();
        count_ = 0;
        size_ = 0;
    }

private:
    std::array<std::span<const std::byte>, max_pieces> pieces_{};
    std::array<lease, max_pieces> owners_{};
    std::size_t count_ = 0;
    std::size_t size_ = 0;
};

} // namespace verbena::rpc

#pragma GCC visibility pop
