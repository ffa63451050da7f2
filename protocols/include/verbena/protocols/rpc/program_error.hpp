// SPDX-License-Identifier: Apache-2.0
// Errors of a program's own: an enum that its results begin with, 0 for success.
//
//     enum class status : std::uint32_t { ok = 0, not_found = 1, no_space = 2 };
//     constexpr bool valid(status s) { return s <= status::no_space; }
//     constexpr std::string_view to_string(status s) { ... }
//
// Both functions stand beside the enum, where argument-dependent lookup finds them. What to_string() says is the text of errors and
// a label of metrics: a few words that never change.
#pragma once

#include <verbena/core/result.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

#pragma GCC visibility push(default)

namespace verbena::rpc {

namespace detail {

/// No names of ours: whatever is called beside the enum is found by its arguments alone.
template<class E>
concept has_valid_and_to_string = requires(E e) {
    { valid(e) } -> std::convertible_to<bool>;
    { to_string(e) } -> std::convertible_to<std::string_view>;
};

/// "kv::status", out of the function's own signature.
template<class E>
constexpr auto type_name() noexcept
{
    constexpr std::string_view signature = __PRETTY_FUNCTION__; // "...type_name() [with E = kv::status]"
    constexpr std::size_t begin = signature.find("E = ") + 4;
    constexpr std::size_t size = signature.size() - 1 - begin;
    struct {
        char text[size + 1];
    } name{};
    for (std::size_t i = 0; i < size; ++i)
        name.text[i] = signature[begin + i];
    return name;
}

} // namespace detail

/// An enum of errors as above.
template<class E>
concept program_error = std::is_enum_v<E> && sizeof(E) <= 4 && detail::has_valid_and_to_string<E>;

/// The category of a program's errors; its name is that of the enum. An enum that has one already (std::is_error_code_enum) keeps it.
template<program_error E>
const std::error_category& category_of() noexcept
{
    if constexpr (std::is_error_code_enum_v<E>)
        return make_error_code(E{}).category();
    class category final : public std::error_category {
    public:
        const char* name() const noexcept override
        {
            static constexpr auto text = detail::type_name<E>();
            return text.text;
        }
        std::string message(int value) const override
        {
            const auto e = static_cast<E>(value);
            return valid(e) ? std::string(to_string(e)) : "unknown error " + std::to_string(value);
        }
    };
    static const category one;
    return one;
}

namespace detail {

/// By name: a program and a module of its own, both built with hidden visibility, have a category_of<E>() each.
template<program_error E>
bool is_category_of(const std::error_category& c) noexcept
{
    const std::error_category& own = category_of<E>();
    return c == own || (!std::is_error_code_enum_v<E> && std::string_view(c.name()) == own.name());
}

} // namespace detail

/// The code of `e` in the category of its enum, so that it stands in a verbena::error.
template<program_error E>
std::error_code error_code_of(E e) noexcept
{
    return std::error_code(static_cast<int>(e), category_of<E>());
}

/// What `e` is of E; success (0) if it is none.
template<program_error E>
E error_as(const error& e) noexcept
{
    return detail::is_category_of<E>(e.code().category()) ? static_cast<E>(e.code().value()) : E{};
}

} // namespace verbena::rpc

namespace verbena {

/// `reply.error() == kv::status::not_found`. Of two enums nothing is asked: what compares them may stand between an enum and the
/// functions that program_error looks for.
template<std::same_as<error> Error, rpc::program_error E>
bool operator==(const Error& a, E b) noexcept
{
    return a.code().value() == static_cast<int>(b) && rpc::detail::is_category_of<E>(a.code().category());
}

} // namespace verbena

#pragma GCC visibility pop
