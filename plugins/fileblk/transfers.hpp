// SPDX-License-Identifier: Apache-2.0
// The calls of fileblk that go by the ring.
#pragma once

#include <verbena/core/reactor/file_read.hpp>
#include <verbena/core/reactor/file_write.hpp>
#include <verbena/core/task/task.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace verbena::fileblk {

/// As file_read and file_write, which this class uses. A test puts a disk that fails in its place.
class transfers {
public:
    virtual ~transfers() = default;
    virtual task<std::int32_t> read(int fd, std::span<std::byte> to, std::uint64_t offset)
    {
        file_read one(fd, to, offset);
        co_return co_await one;
    }
    virtual task<std::int32_t> write(int fd, std::span<const std::byte> from, std::uint64_t offset,
                                     bool through)
    {
        file_write one(fd, from, offset, through);
        co_return co_await one;
    }
};

} // namespace verbena::fileblk
