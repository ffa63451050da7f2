// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/storage/block_operation.hpp>

#include <array>

namespace verbena::storage {

namespace {

constexpr std::array<std::string_view, block_operation_count> block_operation_names = {
    "read", "write", "flush", "discard", "write_zeroes"};

} // namespace

std::string_view to_string(block_operation op) noexcept { return block_operation_names[unsigned(op)]; }

result<block_operation_set> parse_block_operations(std::string_view name)
{
    if (name == "all")
        return block_operation_set::all();
    if (name == "changes")
        return block_operation_set::changes();
    if (name == "sync")
        return block_operation_set(block_operation::flush);
    for (unsigned i = 0; i < block_operation_count; ++i) {
        if (name == block_operation_names[i])
            return block_operation_set(block_operation(i));
    }
    return error(
        std::errc::invalid_argument,
        "operations: no such name; take all, changes, sync, read, write, flush, discard or write_zeroes");
}

} // namespace verbena::storage
