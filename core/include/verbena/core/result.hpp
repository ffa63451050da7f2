// SPDX-License-Identifier: Apache-2.0
// result<T>: a value or an error, for everything on the data path.
//
// A bad peer, a short disk read or a full queue are ordinary outcomes there, so they travel as
// values. Exceptions are for set-up and programming errors.
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena {

/// What went wrong: a code of some category, the rule that failed, and one number (an offset, a
/// length, a vendor code) that helps to find it. Cheap to copy; `context` must be a string with
/// static storage duration, since the error may outlive everything else.
class error {
public:
    error() = default;
    /// `context` is a literal that says what failed; `detail` is an offset, length or code, 0 for none.
    error(std::error_code code, const char* context = "", std::uint64_t detail = 0) noexcept
        : code_(code), context_(context), detail_(detail)
    {
    }
    error(std::errc code, const char* context = "", std::uint64_t detail = 0) noexcept
        : error(std::make_error_code(code), context, detail)
    {
    }

    /// Wraps an errno value (positive).
    static error from_errno(int value, const char* context = "", std::uint64_t detail = 0) noexcept
    {
        return error(std::error_code(value, std::system_category()), context, detail);
    }

    const std::error_code& code() const noexcept { return code_; }
    const char* context() const noexcept { return context_; }
    std::uint64_t detail() const noexcept { return detail_; }
    /// The errno value if the code is one (system or generic category), else 0.
    int errno_value() const noexcept
    {
        const auto& c = code_.category();
        return c == std::system_category() || c == std::generic_category() ? code_.value() : 0;
    }
    /// For people: "context: text of the code (detail)", without what is missing.
    std::string message() const
    {
        std::string text = context_;
        if (!text.empty())
            text += ": ";
        text += code_.message();
        if (detail_ != 0)
            text += " (" + std::to_string(detail_) + ")";
        return text;
    }
    friend bool operator==(const error& a, const std::error_code& b) noexcept { return a.code_ == b; }
    friend bool operator==(const error& a, std::errc b) noexcept { return a.code_ == b; }

private:
    std::error_code code_;
    const char* context_ = "";
    std::uint64_t detail_ = 0;
};

namespace detail {
/// Says which error stands where a value was read, and aborts.
[[noreturn]] void value_of_an_error(const error& e) noexcept;
} // namespace detail

/// A value of type T or an error. Reading the wrong one is a programming error: where assertions are compiled in, it ends the
/// process, and says the error if a value was read in its place.
template<class T>
class [[nodiscard]] result {
public:
    /// What it holds where it holds no error.
    using value_type = T;

    /// Made of an error, or of what a value can be made of, so that a function returns either by name.
    result(class verbena::error e) noexcept : has_value_(false) { std::construct_at(&error_, e); }
    result(std::errc e) noexcept : result(verbena::error(e)) {}
    template<class U = T>
        requires(std::is_constructible_v<T, U> && !std::is_same_v<std::remove_cvref_t<U>, result> &&
                 !std::is_same_v<std::remove_cvref_t<U>, class verbena::error> &&
                 !std::is_same_v<std::remove_cvref_t<U>, std::errc>)
    result(U&& value) noexcept(std::is_nothrow_constructible_v<T, U>) : has_value_(true)
    {
        std::construct_at(&value_, std::forward<U>(value));
    }
    result(result&& other) noexcept : has_value_(other.has_value_)
    {
        if (has_value_)
            std::construct_at(&value_, std::move(other.value_));
        else
            std::construct_at(&error_, other.error_);
    }
    result(const result& other)
        requires std::is_copy_constructible_v<T>
        : has_value_(other.has_value_)
    {
        if (has_value_)
            std::construct_at(&value_, other.value_);
        else
            std::construct_at(&error_, other.error_);
    }
    result& operator=(result&& other) noexcept
    {
        if (this != &other) {
            std::destroy_at(this);
            std::construct_at(this, std::move(other));
        }
        return *this;
    }
    ~result()
    {
        if (has_value_)
            std::destroy_at(&value_);
        else
            std::destroy_at(&error_);
    }

    /// Whether there is a value, and no error.
    bool has_value() const noexcept { return has_value_; }
    /// As has_value().
    explicit operator bool() const noexcept { return has_value_; }

    /// The value, which must be there (assertion).
    T& value() & noexcept { return check_value(), value_; }
    const T& value() const& noexcept { return check_value(), value_; }
    T&& value() && noexcept { return check_value(), std::move(value_); }
    T& operator*() & noexcept { return value(); }
    const T& operator*() const& noexcept { return value(); }
    T&& operator*() && noexcept { return std::move(*this).value(); }
    T* operator->() noexcept { return &value(); }
    const T* operator->() const noexcept { return &value(); }

    /// The error, which must be there: has_value() is false (assertion).
    const class verbena::error& error() const noexcept { return assert(!has_value_), error_; }

private:
    void check_value() const noexcept
    {
#ifndef NDEBUG
        if (!has_value_)
            detail::value_of_an_error(error_);
#endif
    }
    union {
        T value_;
        class verbena::error error_;
    };
    bool has_value_;
};

/// Success or an error.
template<>
class [[nodiscard]] result<void> {
public:
    using value_type = void;
    result() noexcept = default;
    result(class verbena::error e) noexcept : error_(e), has_value_(false) {}
    result(std::errc e) noexcept : result(verbena::error(e)) {}

    bool has_value() const noexcept { return has_value_; }
    explicit operator bool() const noexcept { return has_value_; }
    const class verbena::error& error() const noexcept { return assert(!has_value_), error_; }

private:
    class verbena::error error_;
    bool has_value_ = true;
};

} // namespace verbena

#pragma GCC visibility pop
