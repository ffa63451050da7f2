// SPDX-License-Identifier: Apache-2.0
// Reads XDR (RFC 4506) from bytes that a peer sent.
//
// The first failure sticks: from then on every read returns zero or an empty view, so a caller reads
// a whole structure without a test per field and asks ok() once at the end. Nothing is copied;
// strings and opaques are views into the caller's bytes and live as long as those do.
//
// The bytes in hand may be less than the stream. Two transports need that:
//  - RPC-over-RDMA moves data items out of the stream into chunks (RFC 8166 3.4.5 and 3.4.6), their
//    pads included. Positions count as if they were still there.
//  - over TCP a record may lie in two pieces, and an item may reach from the one into the other.
// Only payload() may meet bytes that are elsewhere, and a number bytes in two pieces; any other read that would is a failure.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::xdr {

/// The data item that a chunk carries. `position` is a Read chunk's position, where the item's first
/// byte would stand in the unreduced stream; `length` is the chunk's total length, which may or may
/// not include the item's pad (RFC 8166 3.4.5.2).
struct external_item {
    /// The first payload(), wherever it stands: a reply's item in a Write chunk, which has no position.
    static constexpr std::size_t any_position = SIZE_MAX;

    std::size_t position = 0;
    std::uint32_t length = 0;
};

/// A large opaque whose bytes may be elsewhere.
struct payload_ref {
    /// Bytes of the opaque, without its pad.
    std::uint32_t length = 0;
    /// Where its first byte stands in the unreduced stream.
    std::size_t position = 0;
    /// The first bytes. The other length - inline_bytes.size() ones are with the transport.
    std::span<const std::byte> inline_bytes;
    /// True if bytes are missing in inline_bytes, or if a chunk carries the opaque.
    bool external = false;
};

/// Not thread-safe; cheap to copy, and a copy reads on from the same place.
class decoder {
public:
    decoder() = default;

    /// A complete stream.
    explicit decoder(std::span<const std::byte> bytes) noexcept
        : begin_(bytes.data()), next_(begin_), end_(begin_ + bytes.size()), real_end_(end_)
    {
    }

    /// The first bytes of a stream of `total_length` bytes. A total_length below bytes.size() means
    /// that the stream ends there.
    decoder(std::span<const std::byte> bytes, std::size_t total_length) noexcept
        : decoder(bytes.first(std::min(bytes.size(), total_length)))
    {
        tail_ = total_length - static_cast<std::size_t>(end_ - begin_);
    }

    /// From `position` of a stream on, in two pieces. A number and a payload() may lie in both; any other item must lie in one of them.
    decoder(std::span<const std::byte> first, std::span<const std::byte> second,
            std::size_t position) noexcept
        : decoder(first)
    {
        second_ = second.data();
        tail_ = second.size();
        elsewhere_ = position;
    }

    /// A stream without the item that a chunk carries.
    decoder(std::span<const std::byte> bytes, external_item item) noexcept : decoder(bytes)
    {
        item_ = item;
        reduced_ = true;
        stop_at_item();
    }

    /// A stream without the items that chunks carry, in the order of their positions. `items` outlive the decoder and its copies.
    decoder(std::span<const std::byte> bytes, std::span<const external_item> items) noexcept : decoder(bytes)
    {
        more_ = items;
        next_item();
    }

    /// Whether all reads so far have succeeded. Once it is false every read yields zero or nothing.
    bool ok() const noexcept { return rule_ == nullptr; }

    /// The first failure: bad_message, or no_buffer_space if the bytes exist but not in the
    /// contiguous part; detail() is the position in the unreduced stream. Only if !ok().
    error failure() const noexcept { return error(code_, rule_, position_of_failure_); }

    /// The position in the unreduced stream of the next item.
    std::size_t position() const noexcept { return static_cast<std::size_t>(next_ - begin_) + elsewhere_; }

    /// Bytes that a read other than payload() can still take.
    std::size_t remaining() const noexcept { return static_cast<std::size_t>(end_ - next_); }

    /// True if nothing follows, neither here nor elsewhere. False after a failure.
    bool at_end() const noexcept { return ok() && next_ == real_end_ && tail_ == 0 && !item_pending(); }

    /// True if external items were given and payload() has not met all of them.
    bool item_pending() const noexcept { return reduced_; }

    /// Bytes of the unreduced stream that were not read yet, wherever they are. The item of a chunk counts with
    /// its pad, whether the chunk holds that or not.
    std::size_t unread() const noexcept
    {
        std::size_t items = reduced_ ? padded(item_.length) : 0;
        for (const external_item& item : more_)
            items += padded(item.length);
        return static_cast<std::size_t>(real_end_ - next_) + tail_ + items;
    }

    /// The bytes that remaining() counts.
    std::span<const std::byte> rest() const noexcept { return {next_, remaining()}; }

    /// The bytes that follow rest() in the second piece; none where that is being read already, or there is none.
    std::span<const std::byte> rest_of_second() const noexcept
    {
        return {second_, second_ == nullptr ? 0 : tail_};
    }

    /// Ends the reading with a rule of the caller's, unless an earlier failure stands. `rule` has
    /// static storage duration.
    void fail(const char* rule) noexcept { fail(rule, std::errc::bad_message); }

    /// Ends the reading with no_buffer_space: the caller needs in one piece what lies in two.
    void fail_apart() noexcept { fail("need more contiguous bytes", std::errc::no_buffer_space); }

    /// unsigned int (RFC 4506 4.2); 0 after a failure, as the others.
    std::uint32_t u32() noexcept
    {
        if (remaining() < 4) [[unlikely]] {
            std::array<std::byte, 4> bytes{};
            return take_apart(bytes) ? load_u32(bytes.data()) : 0;
        }
        const std::uint32_t value = load_u32(next_);
        next_ += 4;
        return value;
    }

    /// int (4.1).
    std::int32_t i32() noexcept { return static_cast<std::int32_t>(u32()); }

    /// unsigned hyper (4.5).
    std::uint64_t u64() noexcept
    {
        if (remaining() < 8) [[unlikely]] {
            std::array<std::byte, 8> bytes{};
            return take_apart(bytes) ? load_u64(bytes.data()) : 0;
        }
        const std::uint64_t value = load_u64(next_);
        next_ += 8;
        return value;
    }

    /// RFC 4506 4.4: 0 or 1; anything else is a failure.
    bool boolean() noexcept
    {
        const std::uint32_t value = u32();
        if (value > 1) [[unlikely]]
            fail("boolean is neither 0 nor 1");
        return value == 1;
    }

    /// opaque[length]. The pad is consumed; its bytes may have any value.
    std::span<const std::byte> opaque_fixed(std::size_t length) noexcept
    {
        // Compared before padding, so that padding cannot overflow.
        if (remaining() < length || remaining() < padded(length)) [[unlikely]] {
            if (remaining() != 0 || second_ == nullptr || !ok())
                return fail_short(remaining() < length ? length : padded(length)),
                       std::span<const std::byte>();
            go_on_in_second(0);
            return opaque_fixed(length);
        }
        const std::span<const std::byte> bytes(next_, length);
        next_ += padded(length);
        return bytes;
    }

    /// opaque<max>.
    std::span<const std::byte> opaque_var(std::uint32_t max) noexcept
    {
        const std::uint32_t length = u32();
        if (length > max) [[unlikely]]
            return fail("opaque longer than its limit"), std::span<const std::byte>();
        return opaque_fixed(length);
    }

    /// string<max>. Any byte value may occur in it, zero too.
    std::string_view string(std::uint32_t max) noexcept
    {
        const std::uint32_t length = u32();
        if (length > max) [[unlikely]]
            return fail("string longer than its limit"), std::string_view();
        const auto bytes = opaque_fixed(length);
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }

    /// The count of a counted array whose elements take at least `element_size` bytes: a count that
    /// the remaining bytes cannot hold is a failure, so it is safe to reserve for.
    std::uint32_t array_count(std::uint32_t max, std::size_t element_size) noexcept
    {
        const std::uint32_t count = u32();
        if (count > max) [[unlikely]]
            return fail("array longer than its limit"), 0;
        if (element_size != 0 && count > remaining() / element_size) [[unlikely]]
            return fail_short(count * element_size), 0;
        return count;
    }

    /// Passes over `length` bytes of the contiguous part.
    void skip(std::size_t length) noexcept
    {
        if (remaining() < length) [[unlikely]]
            return fail_short(length);
        next_ += length;
    }

    /// opaque<max> that may be elsewhere; see payload_ref.
    payload_ref payload(std::uint32_t max) noexcept
    {
        payload_ref ref;
        ref.length = u32();
        ref.position = position();
        if (ref.length > max) [[unlikely]]
            return fail("opaque longer than its limit"), payload_ref();
        if (!ok()) [[unlikely]]
            return payload_ref();
        const std::size_t size = padded(ref.length);
        if (reduced_ && (ref.position == item_.position || item_.position == external_item::any_position)) {
            if (item_.length < ref.length || item_.length > size) [[unlikely]]
                return fail("chunk and opaque differ in length"), payload_ref();
            elsewhere_ += size;
            next_item();
            ref.external = true;
        } else if (size <= remaining()) {
            ref.inline_bytes = {next_, ref.length};
            next_ += size;
            if (next_ == end_ && second_ != nullptr)
                go_on_in_second(0);
        } else if (size - remaining() <= tail_) {
            const std::size_t beyond = size - remaining();
            ref.inline_bytes = {next_, std::min<std::size_t>(ref.length, remaining())};
            ref.external = ref.inline_bytes.size() < ref.length;
            next_ = end_;
            if (second_ != nullptr) {
                go_on_in_second(beyond);
            } else {
                tail_ -= beyond;
                elsewhere_ += beyond;
            }
        } else {
            return fail_short(size), payload_ref();
        }
        return ref;
    }

private:
    // All of the first piece is read, and `skipped` bytes of the second one are a payload's.
    void go_on_in_second(std::size_t skipped) noexcept
    {
        elsewhere_ = position() + skipped;
        begin_ = next_ = second_ + skipped;
        end_ = real_end_ = second_ + tail_;
        second_ = nullptr;
        tail_ = 0;
    }

    // A number of which at least one byte lies in the second piece. False, and a failure: there is no such piece, or it is too short.
    [[gnu::cold, gnu::noinline]] bool take_apart(std::span<std::byte> number) noexcept
    {
        if (!ok() || second_ == nullptr || number.size() > remaining() + tail_) {
            fail_short(number.size());
            return false;
        }
        const std::size_t here = remaining();
        std::copy_n(next_, here, number.begin());
        next_ = end_;
        std::copy_n(second_, number.size() - here, number.begin() + static_cast<std::ptrdiff_t>(here));
        go_on_in_second(number.size() - here);
        return true;
    }

    void next_item() noexcept
    {
        reduced_ = !more_.empty();
        end_ = real_end_;
        if (!reduced_)
            return;
        item_ = more_.front();
        more_ = more_.subspan(1);
        stop_at_item();
    }

    // Until payload() takes the item, nothing behind it may be read: a read across it would take the following item's bytes for
    // its own. One that should stand in front of what has been read never comes.
    void stop_at_item() noexcept
    {
        const std::size_t ahead = item_.position < position() ? 0 : item_.position - position();
        if (ahead < static_cast<std::size_t>(real_end_ - next_))
            end_ = next_ + ahead;
    }

    void fail(const char* rule, std::errc code) noexcept
    {
        if (!ok())
            return;
        rule_ = rule;
        code_ = code;
        position_of_failure_ = position();
        end_ = next_;
    }

    [[gnu::cold, gnu::noinline]] void fail_short(std::size_t wanted) noexcept
    {
        if (reduced_ && end_ != real_end_)
            fail("an item that is not the call's payload lies in a Read chunk", std::errc::bad_message);
        else if (wanted <= remaining() + tail_)
            fail_apart();
        else
            fail("message ends inside an item", std::errc::bad_message);
    }

    const std::byte* begin_ = nullptr;
    const std::byte* next_ = nullptr;
    const std::byte* end_ = nullptr;      // end of what may be read now
    const std::byte* real_end_ = nullptr; // end of the bytes in hand
    std::size_t elsewhere_ = 0;           // bytes that position() counts and next_ does not
    std::size_t tail_ = 0;                // bytes of the stream behind real_end_
    const std::byte* second_ = nullptr;   // of two pieces, while the first one is read: where tail_ begins
    external_item item_;
    std::span<const external_item> more_; // behind item_
    bool reduced_ = false;                // item_ still stands ahead
    const char* rule_ = nullptr;
    std::errc code_ = std::errc::bad_message;
    std::size_t position_of_failure_ = 0;
};

} // namespace verbena::xdr

#pragma GCC visibility pop
