// SPDX-License-Identifier: Apache-2.0
#include <verbena/plugins/ramblk.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace verbena::ramblk {

namespace {

// Sessions of several shards may read and write the same blocks at once, so the device's memory is touched by whole words that are
// atomic, each by an ordinary move. Both are aligned, and `size` is of whole blocks.
using word = std::uint64_t;

word& word_at(std::byte* device) noexcept { return *reinterpret_cast<word*>(device); }

void copy_out(std::byte* to, std::byte* device, std::size_t size) noexcept
{
    for (std::size_t i = 0; i < size; i += sizeof(word)) {
        const word w = std::atomic_ref(word_at(device + i)).load(std::memory_order_relaxed);
        std::memcpy(to + i, &w, sizeof w);
    }
}

void copy_in(std::byte* device, const std::byte* from, std::size_t size) noexcept
{
    for (std::size_t i = 0; i < size; i += sizeof(word)) {
        word w;
        std::memcpy(&w, from + i, sizeof w);
        std::atomic_ref(word_at(device + i)).store(w, std::memory_order_relaxed);
    }
}

void zero(std::byte* device, std::size_t size) noexcept
{
    for (std::size_t i = 0; i < size; i += sizeof(word))
        std::atomic_ref(word_at(device + i)).store(0, std::memory_order_relaxed);
}

class backend final : public storage::block_backend {
public:
    backend(const ramblk_options& o, std::byte* memory) noexcept : memory_(memory)
    {
        properties_.size = o.size;
        properties_.block_size = o.block_size;
        properties_.physical_block_size = std::max<std::uint32_t>(o.block_size, page_size());
        properties_.discard_granularity = page_size();
        properties_.write_zeroes = true;
        properties_.read_only = o.read_only;
    }
    ~backend() override { ::munmap(memory_, properties_.size); }

    std::string_view kind() const noexcept override { return "ramblk"; }
    storage::block_properties properties() const noexcept override { return properties_; }

    task<result<void>> read(std::uint64_t offset, std::span<std::byte> into) override
    {
        const auto good = check_range(properties_, offset, into.size(), false);
        if (good)
            copy_out(into.data(), memory_ + offset, into.size());
        co_return good;
    }
    task<result<void>> write(std::uint64_t offset, std::span<const std::byte> from, bool) override
    {
        const auto good = check_range(properties_, offset, from.size(), true);
        if (good)
            copy_in(memory_ + offset, from.data(), from.size());
        co_return good;
    }
    task<result<void>> flush() override { co_return result<void>(); }
    task<result<void>> discard(std::uint64_t offset, std::uint64_t length) override
    {
        co_return clear(offset, length, false);
    }
    task<result<void>> write_zeroes(std::uint64_t offset, std::uint64_t length, bool keep) override
    {
        co_return clear(offset, length, keep);
    }

private:
    static std::uint32_t page_size() noexcept { return static_cast<std::uint32_t>(::sysconf(_SC_PAGESIZE)); }

    result<void> clear(std::uint64_t offset, std::uint64_t length, bool keep) noexcept
    {
        const auto good = check_range(properties_, offset, length, true);
        if (!good || length == 0)
            return good;
        const std::uint64_t page = page_size();
        const std::uint64_t first =
            keep ? offset + length : std::min((offset + page - 1) / page * page, offset + length);
        const std::uint64_t last = std::max((offset + length) / page * page, first);
        zero(memory_ + offset, first - offset);
        if (last > first && ::madvise(memory_ + first, last - first, MADV_DONTNEED) != 0)
            return error::from_errno(errno, "give pages back", last - first);
        zero(memory_ + last, offset + length - last);
        return {};
    }

    storage::block_properties properties_;
    std::byte* const memory_;
};

} // namespace

result<std::unique_ptr<storage::block_backend>> open_ramblk(const ramblk_options& o)
{
    if (!std::has_single_bit(o.block_size) || o.block_size < 512 || o.block_size > 4096)
        return error(std::errc::invalid_argument, "a block has 512, 1024, 2048 or 4096 bytes", o.block_size);
    if (o.size == 0 || o.size % o.block_size != 0)
        return error(std::errc::invalid_argument, "a device has a whole number of blocks, and one at least",
                     o.size);
    void* const memory =
        ::mmap(nullptr, o.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return error::from_errno(errno, "map a device's memory", o.size);
    return std::unique_ptr<storage::block_backend>(
        std::make_unique<backend>(o, static_cast<std::byte*>(memory)));
}

} // namespace verbena::ramblk
