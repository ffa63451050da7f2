// SPDX-License-Identifier: Apache-2.0
// Discard and write zeroes. All of it runs on the lane.
#include "backend.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

namespace verbena::fileblk {

namespace {

constexpr std::size_t most_zeros = std::size_t(128) << 10;
// Never written. Aligned for O_DIRECT.
alignas(4096) std::byte zeros[most_zeros];

// An errno. EINTR: once more.
template<class Call>
int again_if_interrupted(Call call) noexcept
{
    int failed;
    do
        failed = call() == 0 ? 0 : errno;
    while (failed == EINTR);
    return failed;
}

int allocate(int fd, int mode, std::uint64_t offset, std::uint64_t length) noexcept
{
    return again_if_interrupted([&] {
        return ::fallocate(fd, mode | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                           static_cast<off_t>(length));
    });
}

// What a file system or device says that has no such operation. Devices say EINVAL for a range that is not of their sectors.
bool is_unsupported(int failed, bool is_block_device) noexcept
{
    return failed == EOPNOTSUPP || failed == ENOSYS || (is_block_device && failed == EINVAL);
}

} // namespace

int backend::discard_here(std::uint64_t offset, std::uint64_t length) const noexcept
{
    if (!file_.is_block_device)
        return allocate(file_.keeper.get(), FALLOC_FL_PUNCH_HOLE, offset, length);
    const std::uint64_t sector = file_.sector_size;
    std::uint64_t range[2] = {(offset + sector - 1) / sector * sector, 0};
    const std::uint64_t end = (offset + length) / sector * sector;
    if (end <= range[0])
        return 0; // a part of a sector
    range[1] = end - range[0];
    return again_if_interrupted([&] { return ::ioctl(file_.keeper.get(), BLKDISCARD, range); });
}

int backend::write_zeros_here(std::uint64_t offset, std::uint64_t length) const noexcept
{
    while (length != 0) {
        const std::size_t size = std::min<std::uint64_t>(length, most_zeros);
        const progress p = write_here(offset, std::span(zeros).first(size), false);
        if (p.failed != 0)
            return p.failed;
        offset += size;
        length -= size;
    }
    return 0;
}

int backend::zero_here(std::uint64_t offset, std::uint64_t length, bool keep) noexcept
{
    const struct {
        int mode;
        std::atomic<bool>& works;
        bool wanted;
    } ways[] = {{FALLOC_FL_PUNCH_HOLE, punch_works_, !keep}, {FALLOC_FL_ZERO_RANGE, zero_works_, true}};
    for (const auto& way : ways) {
        if (!way.wanted || !way.works.load(std::memory_order_relaxed))
            continue;
        const int failed = allocate(file_.keeper.get(), way.mode, offset, length);
        if (!is_unsupported(failed, file_.is_block_device))
            return failed;
        if (failed != EINVAL) // another range may be of whole sectors
            way.works.store(false, std::memory_order_relaxed);
    }
    return write_zeros_here(offset, length);
}

task<result<void>> backend::discard(std::uint64_t offset, std::uint64_t length)
{
    const auto good = may(offset, length, true);
    if (!good || length == 0)
        co_return good;
    if (properties_.discard_granularity == 0)
        co_return error(std::errc::operation_not_supported, "the device can't discard");
    auto job = [this, offset, length] { return discard_here(offset, length); };
    const int failed = co_await lane_.run(std::move(job));
    if (failed != 0)
        co_return error::from_errno(failed, "discard");
    co_return result<void>();
}

task<result<void>> backend::write_zeroes(std::uint64_t offset, std::uint64_t length, bool keep)
{
    const auto good = may(offset, length, true);
    if (!good || length == 0)
        co_return good;
    auto job = [this, offset, length, keep] { return zero_here(offset, length, keep); };
    const int failed = co_await lane_.run(std::move(job));
    if (failed != 0)
        co_return error::from_errno(failed, "write zeroes");
    co_return result<void>();
}

} // namespace verbena::fileblk
