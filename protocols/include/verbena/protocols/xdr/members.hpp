// SPDX-License-Identifier: Apache-2.0
// The members of an aggregate, in order, by structured bindings: what lets a codec be made from a struct alone.
#pragma once

#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena::xdr::detail {

template<class T>
inline constexpr bool is_optional = false;
template<class T>
inline constexpr bool is_optional<std::optional<T>> = true;

// Stands for any initialiser of an Outer, but for a whole one. An optional takes it by its own constructor; a conversion too would
// be ambiguous.
template<class Outer>
struct any_initialiser {
    template<class T>
        requires(!std::is_base_of_v<T, Outer> && !is_optional<T>)
    operator T() const noexcept
    {
        __builtin_unreachable(); // never called; clang asks for a body where an Outer has internal linkage
    }
};

template<class T, std::size_t... I>
constexpr bool takes_initialisers(std::index_sequence<I...>) noexcept
{
    return requires { T{(void(I), any_initialiser<T>{})...}; };
}

inline constexpr std::size_t most_members = 16;

/// How many members `T` has; most_members + 1 where there are more. A struct that takes one initialiser less than it has members takes any
/// smaller number too, so it is counted from below: that is what each file that reads a message pays for, and most structs are small.
template<class T, std::size_t N = 0>
constexpr std::size_t count_members() noexcept
{
    if constexpr (N > most_members || !takes_initialisers<T>(std::make_index_sequence<N + 1>()))
        return N;
    else
        return count_members<T, N + 1>();
}

template<class T>
inline constexpr std::size_t member_count = count_members<std::remove_cv_t<T>>();

/// f(the members of `value`).
template<class T, class F>
constexpr decltype(auto) with_members(T& value, F&& f)
{
    constexpr std::size_t n = member_count<T>;
    if constexpr (n == 0) {
        return f();
    } else if constexpr (n == 1) {
        auto& [m1] = value;
        return f(m1);
    } else if constexpr (n == 2) {
        auto& [m1, m2] = value;
        return f(m1, m2);
    } else if constexpr (n == 3) {
        auto& [m1, m2, m3] = value;
        return f(m1, m2, m3);
    } else if constexpr (n == 4) {
        auto& [m1, m2, m3, m4] = value;
        return f(m1, m2, m3, m4);
    } else if constexpr (n == 5) {
        auto& [m1, m2, m3, m4, m5] = value;
        return f(m1, m2, m3, m4, m5);
    } else if constexpr (n == 6) {
        auto& [m1, m2, m3, m4, m5, m6] = value;
        return f(m1, m2, m3, m4, m5, m6);
    } else if constexpr (n == 7) {
        auto& [m1, m2, m3, m4, m5, m6, m7] = value;
        return f(m1, m2, m3, m4, m5, m6, m7);
    } else if constexpr (n == 8) {
        auto& [m1, m2, m3, m4, m5, m6, m7, m8] = value;
        return f(m1, m2, m3, m4, m5, m6, m7, m8);
    } else if constexpr (n == 9) {
        auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9] = value;
        return f(m1, m2, m3, m4, m5, m6, m7, m8, m9);
    } else if constexpr (n == 10) {
        auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10] = value;
        return f(m1, m2, m3, m4, m5, m6, m7, m8, m9, m10);
    } else if constexpr (n == 11) {
        auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11] = value;
        return f(m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11);
    } else if constexpr (n == 12) {
        auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12] = value;
        return f(m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12);
    } else if constexpr (n == 13) {
        auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13] = value;
        return f(m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13);
    } else if constexpr (n == 14) {
        auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14] = value;
        return f(m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14);
    } else if constexpr (n == 15) {
        auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15] = value;
        return f(m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15);
    } else if constexpr (n == 16) {
        auto& [m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16] = value;
        return f(m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16);
    }
}

template<class... T>
struct types {};

// Not a lambda: g++ 12 takes what depends on one in a decltype for no constant.
struct to_types {
    template<class... T>
    constexpr types<std::remove_const_t<T>...> operator()(T&...) const noexcept
    {
        return {};
    }
};

/// types<Member...> of `T`.
template<class T>
using member_types = decltype(with_members(std::declval<T&>(), to_types{}));

} // namespace verbena::xdr::detail

#pragma GCC visibility pop
