// SPDX-License-Identifier: Apache-2.0
// Writes XDR (RFC 4506) into a block of memory that the caller owns.
//
// The first write that does not fit sticks: nothing is written from then on, and ok() is false. A
// caller writes a whole structure and asks once.
//
// A large opaque need not pass through the block: note_payload() writes its length word only, and
// the transport puts the bytes in that place, gathered with their pad (TCP) or as a Write chunk
// without the pad (RFC 8166 3.4.6).
#pragma once

#include <verbena/protocols/xdr/byte_order.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::xdr {

/// An opaque whose bytes the transport supplies.
struct payload_item {
    /// Where in the block the bytes (and their pad) belong: before the byte at this offset.
    std::size_t offset = 0;
    /// Where its first byte stands in the unreduced stream.
    std::size_t position = 0;
    /// Without the pad.
    std::uint32_t length = 0;
};

/// Not thread-safe. Borrows the block for its whole life.
class encoder {
public:
    /// Payload items in one message.
    static constexpr std::size_t max_payloads = 4;

    encoder() = default;
    explicit encoder(std::span<std::byte> block) noexcept
        : begin_(block.data()), next_(begin_), end_(begin_ + block.size()), real_end_(end_)
    {
    }

    bool ok() const noexcept { return ok_; }
    /// Bytes written to the block.
    std::size_t size() const noexcept { return static_cast<std::size_t>(next_ - begin_); }
    /// Bytes that still fit.
    std::size_t room() const noexcept { return static_cast<std::size_t>(end_ - next_); }
    /// The length so far of the unreduced stream: the block's bytes and the payloads with their pads.
    std::size_t position() const noexcept { return size() + elsewhere_; }
    std::span<const std::byte> bytes() const noexcept { return {begin_, size()}; }
    std::span<const payload_item> payloads() const noexcept { return {payloads_.data(), payload_count_}; }

    void u32(std::uint32_t value) noexcept
    {
        if (std::byte* to = grow(4)) [[likely]]
            store_u32(to, value);
    }

    void i32(std::int32_t value) noexcept { u32(static_cast<std::uint32_t>(value)); }

    void u64(std::uint64_t value) noexcept
    {
        if (std::byte* to = grow(8)) [[likely]]
            store_u64(to, value);
    }

    void boolean(bool value) noexcept { u32(value ? 1 : 0); }

    /// opaque[bytes.size()], with its pad.
    void opaque_fixed(std::span<const std::byte> bytes) noexcept
    {
        if (bytes.empty())
            return;
        if (bytes.size() > room()) [[unlikely]]
            return overflow();
        const std::size_t size = padded(bytes.size());
        if (std::byte* to = grow(size)) [[likely]] {
            // The last unit first: it zeroes the pad.
            std::memset(to + size - unit, 0, unit);
            std::memcpy(to, bytes.data(), bytes.size());
        }
    }

    /// opaque<>.
    void opaque_var(std::span<const std::byte> bytes) noexcept
    {
        if (bytes.size() > UINT32_MAX) [[unlikely]]
            return overflow();
        u32(static_cast<std::uint32_t>(bytes.size()));
        opaque_fixed(bytes);
    }

    /// string<>.
    void string(std::string_view text) noexcept { opaque_var(std::as_bytes(std::span(text))); }

    /// The pad that follows `length` bytes.
    void pad(std::size_t length) noexcept
    {
        const std::size_t count = pad_of(length);
        if (std::byte* to = grow(count)) [[likely]]
            std::memset(to, 0, count);
    }

    /// The next `length` bytes of the block, for the caller to fill; empty on overflow.
    std::span<std::byte> reserve(std::size_t length) noexcept
    {
        std::byte* to = grow(length);
        return to ? std::span<std::byte>(to, length) : std::span<std::byte>();
    }

    /// Writes a length word for `length` bytes that the transport supplies with their pad.
    void note_payload(std::uint32_t length) noexcept
    {
        if (payload_count_ == max_payloads) [[unlikely]]
            return overflow();
        u32(length);
        if (!ok_) [[unlikely]]
            return;
        payloads_[payload_count_++] = {size(), position(), length};
        elsewhere_ += padded(length);
    }

    /// Replaces the word at `offset` of the block (a former size()), which must have been written.
    void patch_u32(std::size_t offset, std::uint32_t value) noexcept
    {
        if (offset > size() || size() - offset < 4) [[unlikely]]
            return overflow();
        store_u32(begin_ + offset, value);
    }

    /// Goes back to a former size(): forgets what was written and noted since, and an overflow.
    void truncate(std::size_t size_before) noexcept
    {
        if (size_before > size())
            return;
        next_ = begin_ + size_before;
        end_ = real_end_;
        while (payload_count_ > 0 && payloads_[payload_count_ - 1].offset > size_before)
            elsewhere_ -= padded(payloads_[--payload_count_].length);
        ok_ = true;
    }

    /// Refuses a value that its type has no room for, as if the block were full.
    void overflow() noexcept
    {
        ok_ = false;
        end_ = next_;
    }

private:
    std::byte* grow(std::size_t length) noexcept
    {
        if (length > room()) [[unlikely]] {
            overflow();
            return nullptr;
        }
        std::byte* to = next_;
        next_ += length;
        return to;
    }

    std::byte* begin_ = nullptr;
    std::byte* next_ = nullptr;
    std::byte* end_ = nullptr; // next_ after an overflow
    std::byte* real_end_ = nullptr;
    std::size_t elsewhere_ = 0;
    bool ok_ = true;
    std::size_t payload_count_ = 0;
    std::array<payload_item, max_payloads> payloads_{};
};

} // namespace verbena::xdr

#pragma GCC visibility pop
