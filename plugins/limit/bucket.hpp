// SPDX-License-Identifier: Apache-2.0
// A token bucket, with as many tokens as its rate fills in since it was last looked at.
#pragma once

#include <verbena/core/reactor/clock.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace verbena::filters {

/// How fast a bucket fills and how much it holds. A rate of 0: it never lacks anything.
class fill_rate {
public:
    fill_rate(std::uint64_t per_second, duration burst) noexcept
        : rate(double(per_second)), capacity(std::max(rate * double(burst.count()), unit))
    {
    }
    // In units of 1e-9 tokens a rate a second is a rate a nanosecond; and a double holds whole numbers of them exactly up to
    // nine million tokens.
    static constexpr double unit = 1e9;
    const double rate;
    const double capacity;
};

/// Not thread-safe.
class bucket {
public:
    explicit bucket(const fill_rate& rate) noexcept : rate_(rate), level_(rate.capacity) {}

    /// How long until `tokens` may be taken; 0 for now. More than the bucket holds may be taken when it is full.
    duration lacks(std::uint64_t tokens, time_point now) noexcept
    {
        if (rate_.rate == 0 || tokens == 0)
            return duration::zero();
        // Another shard's clock may have been read a little later.
        if (now > filled_) {
            level_ = std::min(level_ + double((now - filled_).count()) * rate_.rate, rate_.capacity);
            filled_ = now;
        }
        const double missing = std::min(double(tokens) * fill_rate::unit, rate_.capacity) - level_;
        if (missing <= 0)
            return duration::zero();
        return duration(std::max<duration::rep>(1, duration::rep(std::ceil(missing / rate_.rate))));
    }
    void take(std::uint64_t tokens) noexcept { level_ -= double(tokens) * fill_rate::unit; }
    void give_back(std::uint64_t tokens) noexcept
    {
        level_ = std::min(level_ + double(tokens) * fill_rate::unit, rate_.capacity);
    }

private:
    const fill_rate& rate_;
    double level_;
    time_point filled_{};
};

} // namespace verbena::filters
