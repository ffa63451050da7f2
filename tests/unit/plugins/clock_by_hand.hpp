// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbena/core/reactor/reactor.hpp>

#include <chrono>

namespace suite {

/// Stands still until the test moves it. A virtual_clock would end a reactor that waits for the pool alone.
class clock_by_hand final : public verbena::clock_source {
public:
    verbena::time_point now() const noexcept override { return now_; }
    void advance(verbena::duration d) noexcept { now_ += d; }

private:
    verbena::time_point now_ = verbena::time_point(std::chrono::hours(1));
};

} // namespace suite
