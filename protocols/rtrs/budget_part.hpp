// SPDX-License-Identifier: Apache-2.0
// A part of a memory budget for what is no buffer.
#pragma once

#include <verbena/core/memory/buffer.hpp>

#include <cstddef>
#include <utility>

namespace verbena::rtrs {

/// A part of the process's memory budget for what is no buffer. Given back when it goes.
class budget_part {
public:
    budget_part() noexcept = default;
    /// False if the budget has no room for it.
    budget_part(memory_budget& budget, std::size_t bytes) noexcept
        : budget_(budget.reserve(bytes) ? &budget : nullptr), bytes_(bytes)
    {
    }
    budget_part(budget_part&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(other.bytes_)
    {
    }
    budget_part& operator=(budget_part&& other) noexcept
    {
        std::swap(budget_, other.budget_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~budget_part()
    {
        if (budget_ != nullptr)
            budget_->release(bytes_);
    }
    explicit operator bool() const noexcept { return budget_ != nullptr; }

private:
    memory_budget* budget_ = nullptr;
    std::size_t bytes_ = 0;
};

} // namespace verbena::rtrs
