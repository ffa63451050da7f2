// SPDX-License-Identifier: Apache-2.0
// The operations of a block back end by name, and sets of them: what a filter's settings choose.
#pragma once

#include <verbena/core/result.hpp>

#include <cstdint>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::storage {

/// One for each function of block_backend that is a task.
enum class block_operation : std::uint8_t { read, write, flush, discard, write_zeroes };
/// How many values block_operation has.
constexpr unsigned block_operation_count = 5;

/// "read", "write_zeroes"...
std::string_view to_string(block_operation op) noexcept;

/// Some of the operations.
class block_operation_set {
public:
    constexpr block_operation_set() = default;
    /// A set of one.
    constexpr block_operation_set(block_operation op) noexcept : bits_(std::uint8_t(1u << unsigned(op))) {}

    /// Every operation.
    static constexpr block_operation_set all() noexcept
    {
        return block_operation_set(std::uint8_t((1u << block_operation_count) - 1));
    }
    /// Those that change what the device holds: write, discard and write_zeroes.
    static constexpr block_operation_set changes() noexcept
    {
        using enum block_operation;
        return block_operation_set(write) | discard | write_zeroes;
    }

    /// Whether `op` is in the set.
    constexpr bool contains(block_operation op) const noexcept { return (bits_ >> unsigned(op) & 1) != 0; }
    constexpr bool empty() const noexcept { return bits_ == 0; }
    friend constexpr block_operation_set operator|(block_operation_set a, block_operation_set b) noexcept
    {
        return block_operation_set(std::uint8_t(a.bits_ | b.bits_));
    }
    constexpr block_operation_set& operator|=(block_operation_set other) noexcept
    {
        return *this = *this | other;
    }
    friend constexpr bool operator==(block_operation_set, block_operation_set) = default;

private:
    explicit constexpr block_operation_set(std::uint8_t bits) noexcept : bits_(bits) {}
    std::uint8_t bits_ = 0;
};

/// What `name` stands for: an operation's name, or "all", "changes" or "sync" (flush). EINVAL for another name.
result<block_operation_set> parse_block_operations(std::string_view name);

} // namespace verbena::storage

#pragma GCC visibility pop
