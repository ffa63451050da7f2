// SPDX-License-Identifier: Apache-2.0
// ramblk: a block device in memory, for tests and scratch space.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/protocols/storage/block_backend.hpp>

#include <cstdint>
#include <memory>

#pragma GCC visibility push(default)

namespace verbena::ramblk {

/// The size of a device in memory.
struct ramblk_options {
    std::uint64_t size = std::uint64_t(64)
                         << 20;     ///< bytes; a multiple of block_size. Pages count once they are written
    std::uint32_t block_size = 512; ///< 512, 1024, 2048 or 4096
    bool read_only = false;         ///< what changes it is refused
};

/// Its calls never wait. What is discarded or zeroed gives its pages back, but write_zeroes() with `keep`. Errors: EINVAL (sizes),
/// ENOMEM (no address space). Any thread.
result<std::unique_ptr<storage::block_backend>> open_ramblk(const ramblk_options& o);

} // namespace verbena::ramblk

#pragma GCC visibility pop
