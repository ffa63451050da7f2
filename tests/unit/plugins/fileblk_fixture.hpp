// SPDX-License-Identifier: Apache-2.0
// Devices of fileblk on one shard, of files on a disk and in memory, and a disk that fails when it is told to.
#pragma once

#include <boost/test/unit_test.hpp>

#include "../../../plugins/fileblk/backend.hpp"
#include "temporary_directory.hpp"

#include <verbena/core/task/event.hpp>
#include <verbena/core/task/scope.hpp>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace suite {

using namespace verbena;

/// The ring's transfers, as a disk lets them end.
class odd_transfers : public fileblk::transfers {
public:
    struct fate {
        std::int32_t instead = 0;    ///< what it yields, and nothing is done; 0: it is done
        std::size_t most = SIZE_MAX; ///< of its bytes
        event* waits_for = nullptr;  ///< before it is done
    };
    task<std::int32_t> read(int fd, std::span<std::byte> to, std::uint64_t offset) override
    {
        ++reads;
        const fate f = next();
        if (f.waits_for != nullptr)
            (void)co_await f.waits_for->wait();
        if (f.instead != 0)
            co_return f.instead;
        co_return co_await transfers::read(fd, to.first(std::min(to.size(), f.most)), offset);
    }
    task<std::int32_t> write(int fd, std::span<const std::byte> from, std::uint64_t offset,
                             bool through) override
    {
        ++writes;
        throughs += through;
        const fate f = next();
        if (f.waits_for != nullptr)
            (void)co_await f.waits_for->wait();
        if (f.instead != 0)
            co_return f.instead;
        co_return co_await transfers::write(fd, from.first(std::min(from.size(), f.most)), offset, through);
    }
    std::deque<fate> fates; ///< of the next transfers
    unsigned reads = 0;
    unsigned writes = 0;
    unsigned throughs = 0;

private:
    fate next()
    {
        if (fates.empty())
            return {};
        const fate f = fates.front();
        fates.pop_front();
        return f;
    }
};

/// Aligned memory, and `shift` bytes of it left out.
class memory {
public:
    explicit memory(std::size_t size, int fill = 0, std::size_t shift = 0)
        : base_(static_cast<std::byte*>(std::aligned_alloc(4096, (size + shift + 4095) / 4096 * 4096))),
          bytes_(base_ + shift, size)
    {
        std::ranges::fill(bytes_, std::byte(fill));
    }
    memory(const memory&) = delete;
    ~memory() { std::free(base_); }
    std::span<std::byte> get() const noexcept { return bytes_; }
    bool all(int value) const
    {
        return std::ranges::all_of(bytes_, [&](std::byte b) { return b == std::byte(value); });
    }

private:
    std::byte* const base_;
    std::span<std::byte> bytes_;
};

struct device {
    /// A file of `size` bytes in `where`.
    explicit device(const std::string& where = "/var/tmp", fileblk::direct_mode direct = {},
                    std::uint32_t block_size = 4096, std::uint64_t size = 1 << 20)
        : directory(where)
    {
        auto made = reactor::create();
        BOOST_REQUIRE(made);
        shard = std::move(*made);
        options.path = directory.path() / "disk";
        options.size = size;
        options.block_size = block_size;
        options.direct = direct;
        open();
    }
    device(const device&) = delete;
    /// The lane's threads touch the shard after their last job has come home.
    ~device()
    {
        disk.reset();
        lane.finish();
    }
    void open()
    {
        disk.reset();
        auto made = std::make_unique<odd_transfers>();
        ring = made.get();
        disk = std::make_unique<fileblk::backend>(options, fileblk::open_disk_file(options), lane,
                                                  std::move(made));
    }
    bool is_direct() const { return disk->notes().starts_with("O_DIRECT"); }
    /// An errno, 0 for success.
    int run(task<result<void>> t)
    {
        const auto done = run_until_complete(*shard, std::move(t));
        return done ? 0 : done.error().errno_value() != 0 ? done.error().errno_value() : -1;
    }
    int read(std::uint64_t offset, std::span<std::byte> into) { return run(disk->read(offset, into)); }
    int write(std::uint64_t offset, std::span<const std::byte> from, bool through = false)
    {
        return run(disk->write(offset, from, through));
    }
    int flush() { return run(disk->flush()); }

    temporary_directory directory;
    std::unique_ptr<reactor> shard;
    blocking_pool lane{2, "lane"};
    fileblk::fileblk_options options;
    odd_transfers* ring = nullptr;
    std::unique_ptr<fileblk::backend> disk;
};

} // namespace suite
