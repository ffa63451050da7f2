// SPDX-License-Identifier: Apache-2.0
#include "node.hpp"

#include <verbena/protocols/storage/permissions.hpp>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <iterator>

namespace verbena::memfs {

void file_data::read(std::uint64_t offset, std::span<std::byte> out) const noexcept
{
    while (!out.empty()) {
        const std::uint64_t within = offset % block_size;
        const std::size_t n = std::min<std::size_t>(out.size(), block_size - within);
        auto found = blocks_.find(offset / block_size);
        if (found == blocks_.end() || found->second == nullptr)
            std::memset(out.data(), 0, n);
        else
            std::memcpy(out.data(), found->second->data() + within, n);
        out = out.subspan(n);
        offset += n;
    }
}

file_data::block& file_data::own(std::shared_ptr<block>& shared)
{
    if (shared == nullptr)
        shared = std::make_shared<block>();
    else if (shared.use_count() != 1)
        shared = std::make_shared<block>(*shared);
    return *shared;
}

void file_data::zero(std::shared_ptr<block>& shared, std::uint64_t begin, std::uint64_t end)
{
    if (shared != nullptr && begin < end)
        std::memset(own(shared).data() + begin, 0, end - begin);
}

void file_data::write(std::uint64_t offset, std::span<const std::byte> in)
{
    while (!in.empty()) {
        const std::uint64_t within = offset % block_size;
        const std::size_t n = std::min<std::size_t>(in.size(), block_size - within);
        std::memcpy(own(blocks_.find(offset / block_size)->second).data() + within, in.data(), n);
        in = in.subspan(n);
        offset += n;
    }
}

std::uint64_t file_data::missing(std::uint64_t offset, std::uint64_t length) const noexcept
{
    if (length == 0)
        return 0;
    // Those that are there are counted: a range may have more places than anybody has blocks.
    const std::uint64_t first = offset / block_size;
    const std::uint64_t count = (offset + length - 1) / block_size - first + 1;
    return count - blocks(first, count);
}

std::uint64_t file_data::blocks(std::uint64_t first, std::uint64_t count) const noexcept
{
    return static_cast<std::uint64_t>(
        std::distance(blocks_.lower_bound(first), blocks_.lower_bound(first + count)));
}

void file_data::reserve(std::uint64_t offset, std::uint64_t length)
{
    if (length == 0)
        return;
    for (std::uint64_t b = offset / block_size; b <= (offset + length - 1) / block_size; ++b)
        blocks_.try_emplace(b);
}

std::uint64_t file_data::clear(std::uint64_t offset, std::uint64_t length)
{
    if (length == 0)
        return 0;
    const std::size_t before = blocks_.size();
    const std::uint64_t end = offset + length;
    const std::uint64_t first = offset / block_size;
    const std::uint64_t last = end / block_size;
    if (auto part = blocks_.find(first); part != blocks_.end() && offset % block_size != 0)
        zero(part->second, offset % block_size, first == last ? end % block_size : block_size);
    const bool begins_within = offset % block_size != 0;
    if (auto part = blocks_.find(last); part != blocks_.end() && (first != last || !begins_within))
        zero(part->second, 0, end % block_size);
    const std::uint64_t whole = first + (begins_within ? 1 : 0);
    if (whole < last)
        blocks_.erase(blocks_.lower_bound(whole), blocks_.lower_bound(last));
    return before - blocks_.size();
}

std::uint64_t file_data::find(storage::extent what, std::uint64_t offset, std::uint64_t size) const noexcept
{
    const auto is_data = [](const auto& entry) { return entry.second != nullptr; };
    auto at = blocks_.lower_bound(offset / block_size);
    if (what == storage::extent::data) {
        at = std::find_if(at, blocks_.end(), is_data);
        return at == blocks_.end() ? size : std::min(size, std::max(offset, at->first * block_size));
    }
    std::uint64_t next = offset / block_size;
    for (; at != blocks_.end() && at->first == next && is_data(*at); ++at)
        ++next;
    return std::min(size, std::max(offset, next * block_size));
}

void file_data::share(const file_data& other, std::uint64_t from, std::uint64_t to, std::uint64_t count)
{
    block_map taken;
    for (auto at = other.blocks_.lower_bound(from); at != other.blocks_.end() && at->first - from < count;
         ++at) {
        taken.emplace_hint(taken.end(), at->first - from + to, at->second);
    }
    blocks_.erase(blocks_.lower_bound(to), blocks_.lower_bound(to + count));
    blocks_.merge(taken);
}

std::uint64_t file_data::truncate(std::uint64_t size)
{
    const std::size_t before = blocks_.size();
    const std::uint64_t within = size % block_size;
    blocks_.erase(blocks_.lower_bound((size + block_size - 1) / block_size), blocks_.end());
    if (within != 0) {
        // What was cut off must not come back when the file grows again.
        if (auto last = blocks_.find(size / block_size); last != blocks_.end())
            zero(last->second, within, block_size);
    }
    return before - blocks_.size();
}

std::uint32_t mode_set_by(const storage::attributes& a, std::uint32_t mode,
                          const storage::credential& who) noexcept
{
    if (who.uid == 0)
        return mode;
    if (who.uid != a.uid) // WRITE_ACL is no right to what the owner alone may have done in his name
        return mode & ~06000u;
    return in_group(who, a.gid) ? mode : mode & ~02000u;
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
