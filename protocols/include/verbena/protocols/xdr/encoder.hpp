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
    std::size_t offset;
    /// Where its first byte stands in the unreduced stream.
    std::size_t position;
    /// Without the pad.
    std::uint32_t length;
};

/// Writes XDR (RFC 4506) into a block. The first write that does not fit sticks: ok(). Not thread-safe. Borrows
/// the block for its whole life.
class encoder {
public:
    /// Payload items in one message. One more is as what has no room.
    static constexpr std::size_t max_payloads = 16;

    encoder() = default;
    /// Writes to `block`, which outlives it.
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
    /// What was written to the block. Valid as long as that.
    std::span<const std::byte> bytes() const noexcept { return {begin_, size()}; }
    /// The payloads that were noted, in order. Valid until the next one.
    std::span<const payload_item> payloads() const noexcept { return payloads_.all(); }

    /// unsigned int (RFC 4506 4.2).
    void u32(std::uint32_t value) noexcept
    {
        if (std::byte* to = grow(4)) [[likely]]
            store_u32(to, value);
    }

    /// int (4.1).
    void i32(std::int32_t value) noexcept { u32(static_cast<std::uint32_t>(value)); }

    /// unsigned hyper (4.5).
    void u64(std::uint64_t value) noexcept
    {
        if (std::byte* to = grow(8)) [[likely]]
            store_u64(to, value);
    }

    /// bool (4.4).
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
        if (payloads_.count == max_payloads) [[unlikely]]
            return overflow();
        u32(length);
        if (!ok_) [[unlikely]]
            return;
        payloads_.items[payloads_.count++] = {size(), position(), length};
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
        while (payloads_.count > 0 && payloads_.items[payloads_.count - 1].offset > size_before)
            elsewhere_ -= padded(payloads_.items[--payloads_.count].length);
        ok_ = true;
    }

    /// Goes on in another block, which gets what was written; what was noted stays noted. `block` has room for size() bytes.
    void move_to(std::span<std::byte> block) noexcept
    {
        const std::size_t written = size();
        if (written > block.size()) [[unlikely]]
            return overflow();
        if (written != 0)
            std::memcpy(block.data(), begin_, written);
        begin_ = block.data();
        next_ = begin_ + written;
        real_end_ = begin_ + block.size();
        end_ = ok_ ? real_end_ : next_;
    }

    /// The message as it travels: calls `bytes(std::span<const std::byte>)` for each stretch of the block that is not empty, and
    /// `item(std::size_t i)` for payloads()[i] with its pad, in the order of the stream.
    template<class Bytes, class Item>
    void in_order(Bytes bytes, Item item) const
    {
        std::size_t done = 0;
        for (std::size_t i = 0; i < payloads_.count; ++i) {
            const std::size_t offset = payloads_.items[i].offset;
            if (offset != done)
                bytes(std::span<const std::byte>(begin_ + done, offset - done));
            item(i);
            done = offset;
        }
        if (done != size())
            bytes(std::span<const std::byte>(begin_ + done, size() - done));
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
    // Copies those in use, and clears none: most messages have one at most.
    struct item_list {
        item_list() noexcept {} // leaves `items` as they are
        item_list(const item_list& other) noexcept { *this = other; }
        item_list& operator=(const item_list& other) noexcept
        {
            count = other.count;
            for (std::size_t i = 0; i < count; ++i)
                items[i] = other.items[i];
            return *this;
        }
        std::span<const payload_item> all() const noexcept { return {items.data(), count}; }
        std::size_t count = 0;
        std::array<payload_item, max_payloads> items;
    };
    item_list payloads_;
};

} // namespace verbena::xdr

#pragma GCC visibility pop
