// SPDX-License-Identifier: Apache-2.0
// adjustable: a number that is read everywhere and may be set while it is, such as a limit.
#pragma once

#include <atomic>

#pragma GCC visibility push(default)

namespace verbena {

/// Like a `T`. Any thread reads and sets it; who reads several at once may see some that were set and some that are not yet.
template<class T>
class adjustable {
public:
    /// Holds `value` until another one is assigned.
    constexpr adjustable(T value = T()) noexcept : value_(value) {}
    adjustable(const adjustable& other) noexcept : value_(other) {}
    adjustable& operator=(const adjustable& other) noexcept
    {
        value_.store(other, std::memory_order_relaxed);
        return *this;
    }
    operator T() const noexcept { return value_.load(std::memory_order_relaxed); }

private:
    std::atomic<T> value_;
};

} // namespace verbena

#pragma GCC visibility pop
