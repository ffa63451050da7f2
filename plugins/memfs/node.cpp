// SPDX-License-Identifier: Apache-2.0
#include "node.hpp"

#include <verbena/protocols/storage/permissions.hpp>

#include <algorithm>
#include <cstring>
#include <ctime>

namespace verbena::memfs {

void file_data::read(std::uint64_t offset, std::span<std::byte> out) const noexcept
{
    while (!out.empty()) {
        const std::uint64_t within = offset % block_size;
        const std::size_t n = std::min<std::size_t>(out.size(), block_size - within);
        auto found = blocks_.find(offset / block_size);
        if (found == blocks_.end())
            std::memset(out.data(), 0, n);
        else
            std::memcpy(out.data(), found->second->data() + within, n);
        out = out.subspan(n);
        offset += n;
    }
}

void file_data::write(std::uint64_t offset, std::span<const std::byte> in) noexcept
{
    while (!in.empty()) {
        const std::uint64_t within = offset % block_size;
        const std::size_t n = std::min<std::size_t>(in.size(), block_size - within);
        std::memcpy(blocks_.find(offset / block_size)->second->data() + within, in.data(), n);
        in = in.subspan(n);
        offset += n;
    }
}

std::uint64_t file_data::missing(std::uint64_t offset, std::uint64_t length) const noexcept
{
    if (length == 0)
        return 0;
    std::uint64_t n = 0;
    for (std::uint64_t b = offset / block_size; b <= (offset + length - 1) / block_size; ++b)
        n += blocks_.contains(b) ? 0 : 1;
    return n;
}

void file_data::reserve(std::uint64_t offset, std::uint64_t length)
{
    if (length == 0)
        return;
    for (std::uint64_t b = offset / block_size; b <= (offset + length - 1) / block_size; ++b) {
        auto& slot = blocks_[b];
        if (slot == nullptr)
            slot = std::make_unique<block>();
    }
}

std::uint64_t file_data::truncate(std::uint64_t size) noexcept
{
    const std::size_t before = blocks_.size();
    const std::uint64_t within = size % block_size;
    blocks_.erase(blocks_.lower_bound((size + block_size - 1) / block_size), blocks_.end());
    if (within != 0) {
        // What was cut off must not come back when the file grows again.
        if (auto last = blocks_.find(size / block_size); last != blocks_.end())
            std::memset(last->second->data() + within, 0, block_size - within);
    }
    return before - blocks_.size();
}

std::uint32_t without_set_id(const storage::attributes& a, const storage::credential& who) noexcept
{
    // Without the right to execute for the group the bit has another meaning (mandatory locks), and goes only if `who` could not
    // have set it.
    const bool keeps_group = (a.mode & 0010) == 0 && (who.uid == 0 || in_group(who, a.gid));
    return a.mode & ~(keeps_group ? 04000u : 06000u);
}

storage::file_time now() noexcept
{
    timespec t{};
    ::clock_gettime(CLOCK_REALTIME, &t);
    return {t.tv_sec, static_cast<std::uint32_t>(t.tv_nsec)};
}

} // namespace verbena::memfs
