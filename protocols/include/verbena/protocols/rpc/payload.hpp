// SPDX-License-Identifier: Apache-2.0
// Bytes of a call or reply that stay where they were received or read: views with the leases that
// keep them alive.
//
// A message is a sequence of inline bytes, which an xdr::encoder has written, and of payloads, whose places are noted there. What
// puts both together is encoder::in_order(), over every transport, for calls and for replies.
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/reactor/file_range.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::rpc {

/// A few pieces of memory, in order. Move-only. Shard-local unless its leases say otherwise.
class payload {
public:
    /// Pieces that one payload may have: a TCP record lies in at most two receive buffers, and a
    /// Read chunk is pulled into one.
    static constexpr std::size_t max_pieces = 4;

    payload() = default;
    /// One piece, which `owner` keeps alive until the payload goes; an empty lease for bytes that outlive the
    /// call by themselves.
    payload(lease owner, std::span<const std::byte> bytes) noexcept { append(std::move(owner), bytes); }
    /// Bytes of any owner, which `keeper` keeps there, unchanged, until they are sent: so what a program has stored goes out from where it is.
    /// Where a device needs registered memory they are copied there, once. Taking a share of a std::shared_ptr allocates nothing; it is let
    /// go on the call's shard.
    payload(std::shared_ptr<const void> keeper, std::span<const std::byte> bytes) noexcept
        : keeper_(std::move(keeper))
    {
        append(lease(), bytes);
    }
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
    /// The pieces in order. Valid until something is appended or the payload goes.
    std::span<const std::span<const std::byte>> pieces() const noexcept { return {pieces_.data(), count_}; }
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }
    /// Keeps those pieces alive that have no lease; may be none.
    const std::shared_ptr<const void>& keeper() const noexcept { return keeper_; }
    /// The lease that keeps piece `i` alive; empty for memory of keeper(), or that outlives the call by itself.
    const lease& owner(std::size_t i) const noexcept { return owners_[i]; }
    void clear() noexcept
    {
        for (std::size_t i = 0; i < count_; ++i)
            owners_[i].reset();
        keeper_.reset();
        count_ = 0;
        size_ = 0;
    }

private:
    std::array<std::span<const std::byte>, max_pieces> pieces_{};
    std::array<lease, max_pieces> owners_{};
    std::shared_ptr<const void> keeper_;
    std::size_t count_ = 0;
    std::size_t size_ = 0;
};

/// What stands in the place of one payload item: memory, or a range of a file.
struct attachment {
    std::size_t size() const noexcept { return bytes.size() + file.size; }

    payload bytes;
    file_range file;
};

/// The payloads of one message, in the order of their items: any number, of which the first takes no memory of its own. Move-only;
/// shard-local.
class attachments {
public:
    /// Behind those that are there; throws std::bad_alloc for all but the first.
    void add(payload&& bytes)
    {
        next().bytes = std::move(bytes);
        ++count_;
    }
    /// A range of a file as the next payload: it is sent from there.
    void add(file_range&& file)
    {
        next().file = std::move(file);
        ++count_;
    }
    std::size_t size() const noexcept { return count_; }
    bool empty() const noexcept { return count_ == 0; }
    /// `i` is below size(), or 0: an empty one stands there where there is none.
    attachment& operator[](std::size_t i) noexcept { return i == 0 ? first_ : more_[i - 1]; }
    const attachment& operator[](std::size_t i) const noexcept { return i == 0 ? first_ : more_[i - 1]; }
    /// Lets all of them go. Keeps the memory of a list that was longer than one.
    void clear() noexcept
    {
        if (count_ == 0)
            return;
        first_.bytes.clear();
        first_.file = file_range();
        more_.clear();
        count_ = 0;
    }

private:
    attachment& next() { return count_ == 0 ? first_ : more_.emplace_back(); }

    attachment first_;
    std::vector<attachment> more_;
    std::size_t count_ = 0;
};

} // namespace verbena::rpc

#pragma GCC visibility pop
