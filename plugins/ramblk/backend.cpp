// SPDX-License-Identifier: Apache-2.0
#include <verbena/plugins/ramblk.hpp>

#include <verbena/core/task/yield.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <random>
#include <sys/mman.h>
#include <unistd.h>

namespace verbena::ramblk {

namespace {

// What is written lives as long as the device, and no other device may be taken for it.
std::uint64_t random_run()
{
    std::random_device random;
    std::uint64_t drawn = 0;
    while (drawn == 0)
        drawn = std::uint64_t(random()) << 32 | random();
    return drawn;
}

class backend final : public storage::block_backend {
public:
    backend(const ramblk_options& o, std::uint64_t run, std::byte* memory) noexcept : memory_(memory)
    {
        properties_.size = o.size;
        properties_.block_size = o.block_size;
        properties_.physical_block_size = std::max<std::uint32_t>(o.block_size, page_size());
        properties_.discard_granularity = page_size();
        properties_.write_zeroes = true;
        properties_.read_only = o.read_only;
        properties_.run = run;
    }
    ~backend() override { ::munmap(memory_, properties_.size); }

    std::string_view kind() const noexcept override { return "ramblk"; }
    storage::block_properties properties() const noexcept override { return properties_; }

    task<result<void>> read(std::uint64_t offset, std::span<std::byte> into) override
    {
        const auto good = check_range(properties_, offset, into.size(), false);
        if (good)
            in_stripes(offset, into.size(), [&](std::uint64_t at, std::size_t size) {
                std::memcpy(into.data() + (at - offset), memory_ + at, size);
            });
        co_return good;
    }
    task<result<void>> write(std::uint64_t offset, std::span<const std::byte> from, bool) override
    {
        const auto good = check_range(properties_, offset, from.size(), true);
        if (good)
            in_stripes(offset, from.size(), [&](std::uint64_t at, std::size_t size) {
                std::memcpy(memory_ + at, from.data() + (at - offset), size);
            });
        co_return good;
    }
    task<result<void>> flush() override { co_return result<void>(); }
    task<result<void>> discard(std::uint64_t offset, std::uint64_t length) override
    {
        return clear(offset, length, false);
    }
    task<result<void>> write_zeroes(std::uint64_t offset, std::uint64_t length, bool keep) override
    {
        return clear(offset, length, keep);
    }

private:
    static constexpr std::uint64_t stripe = 65536; // bytes, a multiple of every block size
    static constexpr std::size_t locks = 64;
    // What a turn of the shard clears. That takes some 100 us, and the system a second to take 4 GiB back.
    static constexpr std::uint64_t cleared_at_once = std::uint64_t(2) << 20;

    // Sessions of several shards may read and write a block at once: each gets all of it before, or after, the other.
    template<class F>
    void in_stripes(std::uint64_t offset, std::uint64_t length, F f)
    {
        for (const std::uint64_t end = offset + length; offset < end;) {
            const std::uint64_t size = std::min(end, (offset / stripe + 1) * stripe) - offset;
            const std::scoped_lock lock(locks_[offset / stripe % locks]);
            f(offset, static_cast<std::size_t>(size));
            offset += size;
        }
    }
    void zero(std::uint64_t offset, std::uint64_t length)
    {
        in_stripes(offset, length,
                   [&](std::uint64_t at, std::size_t size) { std::memset(memory_ + at, 0, size); });
    }
    static std::uint32_t page_size() noexcept { return static_cast<std::uint32_t>(::sysconf(_SC_PAGESIZE)); }

    // The shard serves others between two parts.
    task<result<void>> clear(std::uint64_t offset, std::uint64_t length, bool keep)
    {
        auto done = check_range(properties_, offset, length, true);
        const std::uint64_t end = done ? offset + length : 0;
        while (done && offset < end) {
            const std::uint64_t size =
                std::min(end, (offset / cleared_at_once + 1) * cleared_at_once) - offset;
            done = clear_part(offset, size, keep);
            offset += size;
            if (offset < end)
                co_await yield();
        }
        co_return done;
    }
    // Pages go back to the system while others read them: each byte reads as it was, or as zero.
    result<void> clear_part(std::uint64_t offset, std::uint64_t length, bool keep)
    {
        const std::uint64_t page = page_size();
        const std::uint64_t first =
            keep ? offset + length : std::min((offset + page - 1) / page * page, offset + length);
        const std::uint64_t last = std::max((offset + length) / page * page, first);
        zero(offset, first - offset);
        if (last > first && ::madvise(memory_ + first, last - first, MADV_DONTNEED) != 0)
            return error::from_errno(errno, "give pages back", last - first);
        zero(last, offset + length - last);
        return {};
    }

    storage::block_properties properties_;
    std::byte* const memory_;
    std::array<std::mutex, locks> locks_;
};

} // namespace

result<std::unique_ptr<storage::block_backend>> open_ramblk(const ramblk_options& o)
{
    if (!std::has_single_bit(o.block_size) || o.block_size < 512 || o.block_size > 4096)
        return error(std::errc::invalid_argument, "a block has 512, 1024, 2048 or 4096 bytes", o.block_size);
    if (o.size == 0 || o.size % o.block_size != 0)
        return error(std::errc::invalid_argument, "a device has a whole number of blocks, and one at least",
                     o.size);
    const std::uint64_t run = random_run();
    void* const memory =
        ::mmap(nullptr, o.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return error::from_errno(errno, "map a device's memory", o.size);
    return std::unique_ptr<storage::block_backend>(
        std::make_unique<backend>(o, run, static_cast<std::byte*>(memory)));
}

} // namespace verbena::ramblk
