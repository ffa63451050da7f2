// SPDX-License-Identifier: Apache-2.0
// text, opaque and list: values of variable length whose limit is part of their type.
//
// They own what they hold. Up to bounded_in_place bytes lie in the object itself, so that small ones cost no allocation; what may
// be larger is held by a std::vector. Copying costs what is in use, not the limit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::xdr {

/// Bytes that a text, opaque or list may take in the object itself.
inline constexpr std::size_t bounded_in_place = 512;

namespace detail {

template<class T, std::uint32_t Max, bool InPlace>
class bounded_elements;

template<class T, std::uint32_t Max>
class bounded_elements<T, Max, true> {
public:
    // Leaves numbers and bytes uninitialised: clearing them would cost more than decoding a few.
    bounded_elements() noexcept {}
    bounded_elements(const bounded_elements& other) { append(other.data(), other.size_); }
    bounded_elements& operator=(const bounded_elements& other)
    {
        if (this != &other) {
            size_ = 0;
            append(other.data(), other.size_);
        }
        return *this;
    }
    T* data() noexcept { return elements_; }
    const T* data() const noexcept { return elements_; }
    std::size_t size() const noexcept { return size_; }
    void clear() noexcept { size_ = 0; }
    void append(const T* from, std::size_t n)
    {
        std::copy_n(from, n, elements_ + size_);
        size_ += static_cast<std::uint32_t>(n);
    }
    T& add(T value)
    {
        elements_[size_] = std::move(value);
        return elements_[size_++];
    }

private:
    std::uint32_t size_ = 0;
    T elements_[Max == 0 ? 1 : Max];
};

template<class T, std::uint32_t Max>
class bounded_elements<T, Max, false> {
    static_assert(!std::is_same_v<T, bool>, "a list of so many bool is an xdr::opaque<N>, one bit for each");

public:
    T* data() noexcept { return elements_.data(); }
    const T* data() const noexcept { return elements_.data(); }
    std::size_t size() const noexcept { return elements_.size(); }
    void clear() noexcept { elements_.clear(); }
    void append(const T* from, std::size_t n) { elements_.insert(elements_.end(), from, from + n); }
    T& add(T value) { return elements_.emplace_back(std::move(value)); }

private:
    std::vector<T> elements_;
};

template<class T, std::uint32_t Max>
using elements_of = bounded_elements<
    T, Max, std::is_trivially_destructible_v<T> && sizeof(T) * std::uint64_t(Max) <= bounded_in_place>;

[[noreturn]] inline void beyond_limit(const char* type) { throw std::length_error(type); }

} // namespace detail

/// string<Max>: at most Max bytes of text. Bytes may have any value: that they are UTF-8 is for the program to check.
template<std::uint32_t Max>
class text {
public:
    static constexpr std::uint32_t limit = Max; ///< bytes

    text() = default;
    /// Throws std::length_error where there are more than Max bytes; assign() returns false instead.
    text(std::string_view value)
    {
        if (!assign(value))
            detail::beyond_limit("a text longer than its xdr::text<N> allows");
    }
    text(const char* value) : text(std::string_view(value)) {}
    text(const std::string& value) : text(std::string_view(value)) {}

    /// False, and unchanged, where there are more than Max bytes. `value` may not be a part of this text.
    [[nodiscard]] bool assign(std::string_view value)
    {
        if (value.size() > Max)
            return false;
        elements_.clear();
        elements_.append(value.data(), value.size());
        return true;
    }
    /// The text, valid until it is assigned to.
    std::string_view view() const noexcept { return {elements_.data(), elements_.size()}; }
    operator std::string_view() const noexcept { return view(); }
    std::size_t size() const noexcept { return elements_.size(); }
    bool empty() const noexcept { return size() == 0; }

    /// With another text, a std::string, a literal.
    template<class Text>
        requires std::is_convertible_v<const Text&, std::string_view>
    friend bool operator==(const text& a, const Text& b) noexcept
    {
        return a.view() == std::string_view(b);
    }

private:
    detail::elements_of<char, Max> elements_;
};

/// opaque<Max>: at most Max bytes. For bytes by the kilobyte there is rpc::bulk, which travels without a copy.
template<std::uint32_t Max>
class opaque {
public:
    static constexpr std::uint32_t limit = Max; ///< bytes

    opaque() = default;
    /// Throws std::length_error where there are more than Max bytes; assign() returns false instead.
    opaque(std::span<const std::byte> value)
    {
        if (!assign(value))
            detail::beyond_limit("more bytes than their xdr::opaque<N> allows");
    }

    /// False, and unchanged, where there are more than Max bytes. `value` may not be a part of this object.
    [[nodiscard]] bool assign(std::span<const std::byte> value)
    {
        if (value.size() > Max)
            return false;
        elements_.clear();
        elements_.append(value.data(), value.size());
        return true;
    }
    /// The bytes, valid until they are assigned to.
    std::span<const std::byte> bytes() const noexcept { return {elements_.data(), elements_.size()}; }
    operator std::span<const std::byte>() const noexcept { return bytes(); }
    std::size_t size() const noexcept { return elements_.size(); }
    bool empty() const noexcept { return size() == 0; }

    friend bool operator==(const opaque& a, const opaque& b) noexcept
    {
        return std::ranges::equal(a.bytes(), b.bytes());
    }

private:
    detail::elements_of<std::byte, Max> elements_;
};

/// T<Max>: at most Max elements in order. T is default-constructible.
template<class T, std::uint32_t Max>
class list {
public:
    using value_type = T;
    static constexpr std::uint32_t limit = Max; ///< elements

    list() = default;
    /// Throws std::length_error where there are more than Max.
    list(std::initializer_list<T> values) : list(std::span<const T>(values.begin(), values.size())) {}
    explicit list(std::span<const T> values)
    {
        if (values.size() > Max)
            detail::beyond_limit("more elements than their xdr::list<T, N> allows");
        elements_.append(values.data(), values.size());
    }

    /// False if the list is full.
    [[nodiscard]] bool try_push_back(T value)
    {
        if (size() == Max)
            return false;
        elements_.add(std::move(value));
        return true;
    }
    /// Throws std::length_error if the list is full.
    void push_back(T value)
    {
        if (!try_push_back(std::move(value)))
            detail::beyond_limit("more elements than their xdr::list<T, N> allows");
    }
    void clear() noexcept { elements_.clear(); }

    std::size_t size() const noexcept { return elements_.size(); }
    bool empty() const noexcept { return size() == 0; }
    /// `index` is below size().
    T& operator[](std::size_t index) noexcept { return elements_.data()[index]; }
    const T& operator[](std::size_t index) const noexcept { return elements_.data()[index]; }
    T* begin() noexcept { return elements_.data(); }
    T* end() noexcept { return begin() + size(); }
    const T* begin() const noexcept { return elements_.data(); }
    const T* end() const noexcept { return begin() + size(); }

    friend bool operator==(const list& a, const list& b)
    {
        return std::equal(a.begin(), a.end(), b.begin(), b.end());
    }

private:
    detail::elements_of<T, Max> elements_;
};

} // namespace verbena::xdr

#pragma GCC visibility pop
