// SPDX-License-Identifier: Apache-2.0
// A disk in memory with a cache that can lose what was not flushed, as a loss of power does.
#pragma once

#include <verbena/protocols/storage/block_backend.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace verbena::rnbd_test {

class losing_disk : public storage::block_backend {
public:
    static constexpr std::size_t block = 4096;

    explicit losing_disk(std::size_t size, bool write_back = true) : cache_(size), stable_(size)
    {
        properties_.size = size;
        properties_.block_size = block;
        properties_.physical_block_size = block;
        properties_.discard_granularity = block;
        properties_.write_zeroes = true;
        properties_.write_back = write_back;
        properties_.run = 1001;
    }
    std::string_view kind() const noexcept override { return "losing"; }
    storage::block_properties properties() const noexcept override
    {
        storage::block_properties p = properties_;
        p.run = tells_run ? p.run : 0;
        return p;
    }
    task<result<void>> read(std::uint64_t offset, std::span<std::byte> into) override
    {
        std::ranges::copy(std::span(cache_).subspan(offset, into.size()), into.begin());
        co_return result<void>();
    }
    task<result<void>> write(std::uint64_t offset, std::span<const std::byte> from, bool through) override
    {
        std::ranges::copy(from, cache_.begin() + std::ptrdiff_t(offset));
        if (through)
            std::ranges::copy(from, stable_.begin() + std::ptrdiff_t(offset));
        co_return result<void>();
    }
    task<result<void>> flush() override
    {
        stable_ = cache_;
        co_return result<void>();
    }
    task<result<void>> discard(std::uint64_t offset, std::uint64_t length) override
    {
        return write_zeroes(offset, length, false);
    }
    task<result<void>> write_zeroes(std::uint64_t offset, std::uint64_t length, bool) override
    {
        std::ranges::fill(std::span(cache_).subspan(offset, length), std::byte(0));
        co_return result<void>();
    }

    /// Nothing is under way. Each block for which `is_lost(its number)` is what it was when it was flushed last; without a cache all is zero.
    template<class IsLost>
    void lose(IsLost is_lost)
    {
        ++properties_.run;
        if (!properties_.write_back)
            std::ranges::fill(stable_, std::byte(0));
        for (std::size_t at = 0; at < cache_.size(); at += block) {
            const bool lost = !properties_.write_back || is_lost(at / block);
            auto& from = lost ? stable_ : cache_;
            auto& to = lost ? cache_ : stable_;
            std::copy_n(from.begin() + std::ptrdiff_t(at), block, to.begin() + std::ptrdiff_t(at));
        }
    }
    void lose_all()
    {
        lose([](std::size_t) { return true; });
    }
    /// What a loss of power leaves of a block.
    std::span<const std::byte> kept(std::size_t number) const
    {
        return std::span(properties_.write_back ? stable_ : cache_).subspan(number * block, block);
    }
    bool has_cache() const noexcept { return properties_.write_back; }

    bool tells_run = true;

private:
    storage::block_properties properties_;
    std::vector<std::byte> cache_;
    std::vector<std::byte> stable_;
};

} // namespace verbena::rnbd_test
