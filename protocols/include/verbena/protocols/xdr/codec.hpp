// SPDX-License-Identifier: Apache-2.0
// XDR (RFC 4506) of C++ types, made from the types alone:
//
//     enum class color { red, green };
//     constexpr bool valid(color c) { return c == color::red || c == color::green; }
//     struct car {
//         xdr::text<40> name;
//         color paint = color::red;
//         std::optional<std::uint32_t> owner;
//         xdr::list<std::uint64_t, 8> keys;
//     };
//     xdr::codec<car>::encode(out, c);
//     xdr::codec<car>::decode(in, c);
//
// A struct is an aggregate of at most 16 members, and needs no more than to be declared. Every type has a largest size on the wire,
// known to the compiler; one that has none does not compile. docs/howto/typed.md has the table of types and their wire forms.
//
// Decoding is strict. What a type does not allow (a length over its limit, a bool of 2, an enum value that valid() does not know, a
// number out of range) ends it: ok() of the decoder is false then, as for any failure of its own, and the value is of no use.
#pragma once

#include <verbena/protocols/xdr/bounded.hpp>
#include <verbena/protocols/xdr/decoder.hpp>
#include <verbena/protocols/xdr/encoder.hpp>
#include <verbena/protocols/xdr/members.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::xdr {

/// How T travels: min_size and max_size in bytes, encode() and decode(). Specialise it for a type with a wire form of its own, such
/// as a discriminated union.
///
/// encode() writes into the block; a value that its type does not allow is as one that does not fit (encoder::overflow()).
/// decode() changes `value`, which was default-constructed; what it holds after a failure is unspecified. It throws std::bad_alloc at
/// most, for what is too large to be held in place.
template<class T>
struct codec;

/// The most bytes that a T takes on the wire. The bytes of an rpc::bulk don't count: they travel beside the message.
template<class T>
inline constexpr std::size_t max_size = codec<T>::max_size;

namespace detail {

template<class T>
inline constexpr bool never = false;

/// What codec<T> is where T has no wire form: it has said so, and causes no other message.
struct no_codec {
    static constexpr std::size_t min_size = 4;
    static constexpr std::size_t max_size = 4;
    static void encode(encoder&, const auto&) noexcept {}
    static void decode(decoder&, auto&) noexcept {}
};

template<std::size_t Size>
struct fixed_size {
    static constexpr std::size_t min_size = Size;
    static constexpr std::size_t max_size = Size;
};

// Large opaques that travel beside the message: rpc::bulk.
template<class T>
constexpr std::size_t count_payloads() noexcept
{
    if constexpr (requires { codec<T>::payloads; })
        return codec<T>::payloads;
    else
        return 0;
}

template<class T>
concept wire_integer = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char> &&
                       !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> && !std::same_as<T, char16_t> &&
                       !std::same_as<T, char32_t> && sizeof(T) <= 8; // __int128 is integral in GNU modes

// Sizes of nested lists: what does not fit stays the largest number, and no limit admits it.
constexpr std::size_t saturated_sum(std::size_t a, std::size_t b) noexcept
{
    std::size_t sum = 0;
    return __builtin_add_overflow(a, b, &sum) ? SIZE_MAX : sum;
}
constexpr std::size_t saturated_product(std::size_t a, std::size_t b) noexcept
{
    std::size_t product = 0;
    return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

template<class E>
concept says_which_are_valid = requires(E e) {
    { valid(e) } -> std::convertible_to<bool>;
};

template<class T>
concept wire_struct = std::is_aggregate_v<T> && std::is_class_v<T>;

} // namespace detail

/// The bulk items in T: none or one.
template<class T>
inline constexpr std::size_t payload_count = detail::count_payloads<T>();

/// How a T stands on the wire. Each specialisation has `min_size` and `max_size`, the bytes that a T takes
/// there, encode(), which overflows `out` for a value that breaks a limit, and decode(), which lets `in` fail
/// for what is no T. This one is of types that have no XDR form: it does not compile.
template<class T>
struct codec : detail::no_codec {
    static_assert(
        detail::never<T>,
        "this type has no XDR form: use integers of a fixed size, bool, float, double, enum, xdr::text, "
        "xdr::opaque, "
        "xdr::list, std::array, std::optional, rpc::bulk, structs of these, or specialise xdr::codec");
};

/// Does not compile, and says what to use.
template<class C, class Traits, class A>
struct codec<std::basic_string<C, Traits, A>> : detail::no_codec {
    static_assert(detail::never<C>, "a std::string has no limit: use xdr::text<N>");
};
/// Does not compile, and says what to use.
template<class C, class Traits>
struct codec<std::basic_string_view<C, Traits>> : detail::no_codec {
    static_assert(detail::never<C>, "a std::string_view has no limit and owns nothing: use xdr::text<N>");
};
/// Does not compile, and says what to use.
template<class T, class A>
struct codec<std::vector<T, A>> : detail::no_codec {
    static_assert(detail::never<T>,
                  "a std::vector has no limit: use xdr::list<T, N>, or xdr::opaque<N> for bytes");
};
/// Does not compile, and says what to use.
template<class T, std::size_t N>
struct codec<std::span<T, N>> : detail::no_codec {
    static_assert(detail::never<T>,
                  "a std::span owns nothing: use xdr::list<T, N>, or xdr::opaque<N> for bytes");
};

/// bool (RFC 4506 4.4).
template<>
struct codec<bool> : detail::fixed_size<4> {
    static void encode(encoder& out, bool value) noexcept { out.boolean(value); }
    static void decode(decoder& in, bool& value) noexcept { value = in.boolean(); }
};

/// int, unsigned int, hyper, unsigned hyper (4.1, 4.2, 4.5). What has 8 or 16 bits travels as 32 and is refused out of its range.
template<detail::wire_integer T>
struct codec<T> : detail::fixed_size<sizeof(T) == 8 ? 8 : 4> {
    static void encode(encoder& out, T value) noexcept
    {
        if constexpr (sizeof(T) == 8)
            out.u64(static_cast<std::uint64_t>(value));
        else
            out.u32(static_cast<std::uint32_t>(value));
    }
    static void decode(decoder& in, T& value) noexcept
    {
        if constexpr (sizeof(T) == 8) {
            value = static_cast<T>(in.u64());
        } else {
            const std::uint32_t word = in.u32();
            value = static_cast<T>(word);
            if constexpr (sizeof(T) < 4) {
                if (static_cast<std::uint32_t>(value) != word) [[unlikely]]
                    in.fail("number out of its type's range");
            }
        }
    }
};

/// float and double (4.6, 4.7), bit by bit.
template<>
struct codec<float> : detail::fixed_size<4> {
    static void encode(encoder& out, float value) noexcept { out.u32(std::bit_cast<std::uint32_t>(value)); }
    static void decode(decoder& in, float& value) noexcept { value = std::bit_cast<float>(in.u32()); }
};
template<>
struct codec<double> : detail::fixed_size<8> {
    static void encode(encoder& out, double value) noexcept { out.u64(std::bit_cast<std::uint64_t>(value)); }
    static void decode(decoder& in, double& value) noexcept { value = std::bit_cast<double>(in.u64()); }
};

/// enum (4.3), an `enum class` or one with an underlying type. `constexpr bool valid(E)` stands beside the enum and says which of its
/// values there are.
template<class E>
    requires std::is_enum_v<E>
struct codec<E> : detail::fixed_size<4> {
    static_assert(!std::same_as<E, std::byte>,
                  "a std::byte alone has no XDR form: use std::uint8_t, or xdr::opaque<N>");
    static_assert(sizeof(E) <= 4, "an enum has 32 bits in XDR: give it an underlying type that fits");
    // Else a number beyond the enumerators can't be made an E, not even to be refused.
    static_assert(
        requires { E{0}; },
        "an enum without an underlying type can't hold what a peer may send: give it one, or make it an "
        "enum class");
    static_assert(
        std::same_as<E, std::byte> || detail::says_which_are_valid<E>,
        "nothing says which values of this enum there are: write `constexpr bool valid(E e)` beside it");

    static void encode(encoder& out, E value) noexcept
    {
        if (!is_valid(value)) [[unlikely]]
            return out.overflow();
        out.u32(static_cast<std::uint32_t>(value));
    }
    static void decode(decoder& in, E& value) noexcept
    {
        const std::uint32_t word = in.u32();
        value = static_cast<E>(word);
        if (static_cast<std::uint32_t>(value) != word || !is_valid(value)) [[unlikely]]
            in.fail("no such value of an enum");
    }

private:
    static constexpr bool is_valid(E value) noexcept
    {
        if constexpr (detail::says_which_are_valid<E>)
            return valid(value);
        else
            return false;
    }
};

/// string<Max> (4.11).
template<std::uint32_t Max>
struct codec<text<Max>> {
    static constexpr std::size_t min_size = 4;
    static constexpr std::size_t max_size = opaque_size(Max);
    static void encode(encoder& out, const text<Max>& value) noexcept { out.string(value.view()); }
    static void decode(decoder& in, text<Max>& value) { (void)value.assign(in.string(Max)); }
};

/// opaque<Max> (4.10).
template<std::uint32_t Max>
struct codec<opaque<Max>> {
    static constexpr std::size_t min_size = 4;
    static constexpr std::size_t max_size = opaque_size(Max);
    static void encode(encoder& out, const opaque<Max>& value) noexcept { out.opaque_var(value.bytes()); }
    static void decode(decoder& in, opaque<Max>& value) { (void)value.assign(in.opaque_var(Max)); }
};

/// opaque[N] (4.9).
template<std::size_t N>
struct codec<std::array<std::byte, N>> : detail::fixed_size<padded(N)> {
    static void encode(encoder& out, const std::array<std::byte, N>& value) noexcept
    {
        out.opaque_fixed(value);
    }
    static void decode(decoder& in, std::array<std::byte, N>& value) noexcept
    {
        const auto bytes = in.opaque_fixed(N);
        if (bytes.size() == N)
            std::copy(bytes.begin(), bytes.end(), value.begin());
    }
};

/// T[N] (4.12).
template<class T, std::size_t N>
struct codec<std::array<T, N>> {
    static_assert(payload_count<T> == 0,
                  "an rpc::bulk stands last in a struct, and in no array, list or optional");
    static constexpr std::size_t min_size = detail::saturated_product(N, codec<T>::min_size);
    static constexpr std::size_t max_size = detail::saturated_product(N, codec<T>::max_size);
    static void encode(encoder& out, const std::array<T, N>& value) noexcept
    {
        for (const T& element : value)
            codec<T>::encode(out, element);
    }
    static void decode(decoder& in, std::array<T, N>& value)
    {
        for (T& element : value)
            codec<T>::decode(in, element);
    }
};

/// T<Max> (4.13).
template<class T, std::uint32_t Max>
struct codec<list<T, Max>> {
    static_assert(payload_count<T> == 0,
                  "an rpc::bulk stands last in a struct, and in no array, list or optional");
    // Else four bytes would announce any number of elements up to Max, whatever the message holds.
    static_assert(
        codec<T>::min_size > 0,
        "the elements of this list take no bytes on the wire: give them a member, or send their number");
    static constexpr std::size_t min_size = 4;
    static constexpr std::size_t max_size =
        detail::saturated_sum(4, detail::saturated_product(Max, codec<T>::max_size));
    static void encode(encoder& out, const list<T, Max>& value) noexcept
    {
        out.u32(static_cast<std::uint32_t>(value.size()));
        for (const T& element : value)
            codec<T>::encode(out, element);
    }
    static void decode(decoder& in, list<T, Max>& value)
    {
        value.clear();
        const std::uint32_t count = in.array_count(Max, codec<T>::min_size);
        for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
            T element{};
            codec<T>::decode(in, element);
            (void)value.try_push_back(std::move(element));
        }
    }
};

/// T* (4.19).
template<class T>
struct codec<std::optional<T>> {
    static_assert(payload_count<T> == 0,
                  "an rpc::bulk stands last in a struct, and in no array, list or optional");
    static constexpr std::size_t min_size = 4;
    static constexpr std::size_t max_size = detail::saturated_sum(4, codec<T>::max_size);
    static void encode(encoder& out, const std::optional<T>& value) noexcept
    {
        out.boolean(value.has_value());
        if (value)
            codec<T>::encode(out, *value);
    }
    static void decode(decoder& in, std::optional<T>& value)
    {
        if (in.boolean())
            codec<T>::decode(in, value.emplace());
        else
            value.reset();
    }
};

namespace detail {

constexpr std::size_t saturated(std::initializer_list<std::size_t> sizes) noexcept
{
    std::size_t sum = 0;
    for (const std::size_t size : sizes)
        sum = saturated_sum(sum, size);
    return sum;
}

template<class Types>
struct sums;
template<class... T>
struct sums<types<T...>> {
    static constexpr std::size_t min_size = saturated({codec<T>::min_size...});
    static constexpr std::size_t max_size = saturated({codec<T>::max_size...});
    static constexpr std::size_t payloads = (std::size_t(0) + ... + payload_count<T>);
    // Those of the last member.
    static constexpr std::size_t last_payloads = [] {
        std::size_t last = 0;
        ((last = payload_count<T>), ...);
        return last;
    }();
};

template<class T, bool TooMany = (member_count<T> > most_members)>
struct struct_codec : no_codec {
    static_assert(!TooMany, "a struct of more than 16 members: put some of them into a struct of their own, "
                            "which changes nothing on "
                            "the wire");
};
template<class T>
struct struct_codec<T, false> {
    static_assert(member_count<T> != 0 || std::is_empty_v<T>,
                  "the members of this struct can't be counted: give it no base class, and no first member "
                  "that is made from "
                  "anything by a constructor template");
    using of_members = sums<member_types<T>>;
    static constexpr std::size_t min_size = of_members::min_size;
    static constexpr std::size_t max_size = of_members::max_size;
    static constexpr std::size_t payloads = of_members::payloads;
    static_assert(payloads == of_members::last_payloads,
                  "an rpc::bulk stands last in a struct, and there is one at most");

    static void encode(encoder& out, const T& value) noexcept
    {
        with_members(value, [&out](const auto&... members) {
            (void)out;
            (codec<std::remove_cvref_t<decltype(members)>>::encode(out, members), ...);
        });
    }
    static void decode(decoder& in, T& value)
    {
        with_members(value, [&in](auto&... members) {
            (void)in;
            (codec<std::remove_cvref_t<decltype(members)>>::decode(in, members), ...);
        });
    }
};

} // namespace detail

/// A struct: its members in order (4.14).
template<detail::wire_struct T>
struct codec<T> : detail::struct_codec<T> {};

} // namespace verbena::xdr

#pragma GCC visibility pop
