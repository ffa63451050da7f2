// SPDX-License-Identifier: Apache-2.0
// Values of variable length that own nothing: views into the message that they were decoded from, or into the sender's memory. Each
// has its limit in its type and its wire form in xdr::codec, so that structs made of them need no code of their own.
#pragma once

#include <verbena/protocols/xdr/codec.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>
#include <type_traits>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// string<Max> as bytes of any value: names are not judged here. A text of up to `Read` bytes is read: RFCs have errors of
/// their own for one that is too long. Only Max bytes of it count in xdr::max_size.
template<std::uint32_t Max, std::uint32_t Read = Max>
struct text_view : std::string_view {
    text_view() = default;
    /// Borrows the text.
    text_view(std::string_view value) noexcept : std::string_view(value) {}
    /// Borrows the text.
    text_view(const char* value) noexcept : std::string_view(value) {}
};

/// opaque<Max>.
template<std::uint32_t Max>
struct bytes_view : std::span<const std::byte> {
    bytes_view() = default;
    /// Borrows the bytes.
    bytes_view(std::span<const std::byte> value) noexcept : std::span<const std::byte>(value) {}

    friend bool operator==(const bytes_view& a, const bytes_view& b) noexcept
    {
        return std::ranges::equal(a, b);
    }
};

/// opaque<Max> whose bytes may be with the transport: in a chunk, or behind the contiguous part of a record. To send such bytes set
/// `external` and `length`; else inline_bytes are copied. Its bytes don't count in xdr::max_size.
template<std::uint32_t Max>
struct large_opaque : xdr::payload_ref {
    large_opaque() = default;
    /// What the decoder found.
    large_opaque(const xdr::payload_ref& ref) noexcept : xdr::payload_ref(ref) {}
    /// Bytes to be copied into the message; they are borrowed until then.
    large_opaque(std::span<const std::byte> bytes) noexcept
    {
        length = static_cast<std::uint32_t>(bytes.size());
        inline_bytes = bytes;
    }
};

/// T<Max> that lies in the message, element by element as it came, or in the sender's memory. Its elements are made when they are
/// looked at.
///
///     for (const stateid4 id : args.ts_stateids) ...
template<class T, std::uint32_t Max>
class array_view {
public:
    /// Reads one element after the other out of the message.
    class iterator {
    public:
        using value_type = T;
        /// As std::input_iterator has it.
        using difference_type = std::ptrdiff_t;
        /// As std::input_iterator has it.
        using iterator_concept = std::input_iterator_tag;

        iterator() = default;
        T operator*() const
        {
            if (element_)
                return *element_;
            T value{};
            xdr::decoder in(in_);
            xdr::codec<T>::decode(in, value);
            return value;
        }
        iterator& operator++()
        {
            --left_;
            if (element_) {
                ++element_;
            } else {
                T value{};
                xdr::codec<T>::decode(in_, value);
            }
            return *this;
        }
        void operator++(int) { ++*this; }
        friend bool operator==(const iterator& at, std::default_sentinel_t) noexcept { return at.left_ == 0; }

    private:
        friend class array_view;
        iterator(xdr::decoder in, const T* element, std::uint32_t left) noexcept
            : in_(in), element_(element), left_(left)
        {
        }
        xdr::decoder in_;
        const T* element_ = nullptr;
        std::uint32_t left_ = 0;
    };

    array_view() = default;
    /// To be sent. More than Max elements are refused then, as what has no room (encoder::overflow()).
    array_view(std::span<const T> elements) noexcept
        : elements_(elements.data()), size_(static_cast<std::uint32_t>(elements.size()))
    {
    }

    std::uint32_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }
    iterator begin() const noexcept { return {xdr::decoder(encoded_), elements_, size_}; }
    std::default_sentinel_t end() const noexcept { return {}; }

private:
    friend struct xdr::codec<array_view>;
    const T* elements_ = nullptr;
    std::span<const std::byte> encoded_; // where there is no elements_; each of them was decoded once
    std::uint32_t size_ = 0;
};

} // namespace verbena::nfs::v4

namespace verbena::xdr {

/// string<Max>, read up to Read bytes.
template<std::uint32_t Max, std::uint32_t Read>
struct codec<nfs::v4::text_view<Max, Read>> {
    static_assert(Read >= Max);
    static constexpr std::size_t min_size = 4;
    static constexpr std::size_t max_size = opaque_size(Max);
    static void encode(encoder& out, const nfs::v4::text_view<Max, Read>& value) noexcept
    {
        if (value.size() > Read)
            return out.overflow();
        out.string(value);
    }
    static void decode(decoder& in, nfs::v4::text_view<Max, Read>& value) noexcept
    {
        value = in.string(Read);
    }
};

/// opaque<Max>.
template<std::uint32_t Max>
struct codec<nfs::v4::bytes_view<Max>> {
    static constexpr std::size_t min_size = 4;
    static constexpr std::size_t max_size = opaque_size(Max);
    static void encode(encoder& out, const nfs::v4::bytes_view<Max>& value) noexcept
    {
        if (value.size() > Max)
            return out.overflow();
        out.opaque_var(value);
    }
    static void decode(decoder& in, nfs::v4::bytes_view<Max>& value) noexcept { value = in.opaque_var(Max); }
};

/// opaque<Max>, whose bytes may be a payload item.
template<std::uint32_t Max>
struct codec<nfs::v4::large_opaque<Max>> : detail::fixed_size<4> {
    static void encode(encoder& out, const nfs::v4::large_opaque<Max>& value) noexcept
    {
        if (value.length > Max)
            return out.overflow();
        if (value.external)
            out.note_payload(value.length);
        else
            out.opaque_var(value.inline_bytes);
    }
    static void decode(decoder& in, nfs::v4::large_opaque<Max>& value) noexcept { value = in.payload(Max); }
};

/// T<Max>.
template<class T, std::uint32_t Max>
struct codec<nfs::v4::array_view<T, Max>> {
    static_assert(codec<T>::min_size > 0, "elements that take no bytes could be announced in any number");
    static constexpr std::size_t min_size = 4;
    static constexpr std::size_t max_size =
        detail::saturated_sum(4, detail::saturated_product(Max, codec<T>::max_size));
    static void encode(encoder& out, const nfs::v4::array_view<T, Max>& value) noexcept
    {
        if (value.size_ > Max)
            return out.overflow();
        out.u32(value.size_);
        if (!value.elements_)
            return out.opaque_fixed(value.encoded_);
        for (std::uint32_t i = 0; i < value.size_ && out.ok(); ++i)
            codec<T>::encode(out, value.elements_[i]);
    }
    static void decode(decoder& in, nfs::v4::array_view<T, Max>& value) noexcept
    {
        value = {};
        const std::uint32_t count = in.array_count(Max, codec<T>::min_size);
        const auto behind = in.rest();
        const std::size_t begun = in.position();
        for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
            T element{};
            codec<T>::decode(in, element);
        }
        const std::size_t taken = in.position() - begun;
        // A number, or an element that begins there, leads into a second piece without a failure.
        if (taken > behind.size())
            in.fail_apart();
        if (!in.ok())
            return;
        value.encoded_ = behind.first(taken);
        value.size_ = count;
    }
};

} // namespace verbena::xdr

#pragma GCC visibility pop
