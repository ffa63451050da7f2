// SPDX-License-Identifier: Apache-2.0
// Holes, room, and bytes that go from one file to another.
#include "backend.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <unistd.h>

namespace verbena::memfs {

namespace {

// What is copied under the mutex, for which all shards wait.
constexpr std::uint64_t most_copied_at_once = std::uint64_t(1) << 20;

bool is_too_far(std::uint64_t offset, std::uint64_t length) noexcept
{
    return offset > max_offset || length > max_offset - offset;
}

bool overlap(std::uint64_t a, std::uint64_t b, std::uint64_t length) noexcept
{
    return a < b ? b - a < length : a - b < length;
}

} // namespace

task<result<storage::seek_result>> backend::seek(const storage::request& r, const storage::handle& file,
                                                 std::uint64_t offset, storage::extent what)
{
    std::lock_guard lock(mutex_);
    auto n = find_data(r, file, R_OK);
    if (!n)
        co_return n.error();
    const node& f = **n;
    if (offset >= f.attrs.size)
        co_return fails(ENXIO, "an offset behind the end of the file");
    storage::seek_result out;
    out.offset = f.data.find(what, offset, f.attrs.size);
    out.end_of_file = out.offset == f.attrs.size;
    co_return out;
}

// A file whose range is to be changed.
result<node*> backend::find_range(const storage::request& r, const storage::handle& file,
                                  std::uint64_t offset, std::uint64_t length)
{
    if (options_.read_only)
        return fails(EROFS, "the export is read-only");
    if (length == 0)
        return fails(EINVAL, "an empty range");
    if (is_too_far(offset, length))
        return fails(EFBIG, "a range past the largest offset");
    return find_data(r, file, W_OK);
}

task<result<storage::change>> backend::allocate(const storage::request& r, const storage::handle& file,
                                                std::uint64_t offset, std::uint64_t length)
{
    std::lock_guard lock(mutex_);
    auto n = find_range(r, file, offset, length);
    if (!n)
        co_return n.error();
    node& f = **n;
    const std::uint64_t missing = f.data.missing(offset, length);
    if (missing > free_bytes() / file_data::block_size)
        co_return fails(ENOSPC, "allocate");
    storage::change out;
    out.before = seen(f);
    f.data.reserve(offset, length);
    blocks_ += missing;
    f.attrs.size = std::max(f.attrs.size, offset + length);
    note_change(f, r);
    out.after = seen(f);
    co_return out;
}

task<result<storage::change>> backend::deallocate(const storage::request& r, const storage::handle& file,
                                                  std::uint64_t offset, std::uint64_t length)
{
    std::lock_guard lock(mutex_);
    auto n = find_range(r, file, offset, length);
    if (!n)
        co_return n.error();
    node& f = **n;
    storage::change out;
    out.before = seen(f);
    blocks_ -= f.data.clear(offset, length);
    note_change(f, r);
    out.after = seen(f);
    co_return out;
}

task<result<storage::copy_result>> backend::copy(const storage::request& r, const storage::handle& from,
                                                 std::uint64_t from_offset, const storage::handle& to,
                                                 std::uint64_t to_offset, std::uint64_t length)
{
    if (options_.read_only)
        co_return fails(EROFS, "the export is read-only");
    if (is_too_far(to_offset, length))
        co_return fails(EFBIG, "a range past the largest offset");
    std::lock_guard lock(mutex_);
    auto source = find_source(r, from);
    if (!source)
        co_return source.error();
    auto target = find_data(r, to, W_OK);
    if (!target)
        co_return target.error();
    const node& s = **source;
    node& t = **target;
    if (&s == &t && overlap(from_offset, to_offset, length))
        co_return fails(EINVAL, "a copy onto itself");
    const std::uint64_t left = from_offset < s.attrs.size ? s.attrs.size - from_offset : 0;
    const std::uint64_t count = std::min({left, length, most_copied_at_once});
    const std::uint64_t missing = t.data.missing(to_offset, count);
    if (missing > free_bytes() / file_data::block_size)
        co_return fails(ENOSPC, "copy");
    storage::copy_result out;
    out.count = count;
    out.committed = storage::stability::file_sync;
    out.file.before = seen(t);
    if (count != 0) {
        std::vector<std::byte> bytes(count);
        s.data.read(from_offset, bytes);
        t.data.reserve(to_offset, count);
        blocks_ += missing;
        t.data.write(to_offset, bytes);
        t.attrs.size = std::max(t.attrs.size, to_offset + count);
        note_change(t, r);
    }
    out.file.after = seen(t);
    co_return out;
}

task<result<storage::change>> backend::clone(const storage::request& r, const storage::handle& from,
                                             std::uint64_t from_offset, const storage::handle& to,
                                             std::uint64_t to_offset, std::uint64_t length)
{
    constexpr std::uint64_t unit = file_data::block_size;
    if (options_.read_only)
        co_return fails(EROFS, "the export is read-only");
    std::lock_guard lock(mutex_);
    auto source = find_source(r, from);
    if (!source)
        co_return source.error();
    auto target = find_data(r, to, W_OK);
    if (!target)
        co_return target.error();
    const node& s = **source;
    node& t = **target;
    const std::uint64_t size = s.attrs.size;
    if (from_offset > size || length > size - from_offset)
        co_return fails(EINVAL, "a range beyond the end of what is cloned");
    if (length == 0)
        length = size - from_offset;
    if (is_too_far(to_offset, length))
        co_return fails(EFBIG, "a range past the largest offset");
    // The rest of the last block is zeros in the source. In the target it may hold what stays.
    const bool to_the_end = from_offset + length == size && to_offset + length >= t.attrs.size;
    if (from_offset % unit != 0 || to_offset % unit != 0 || (length % unit != 0 && !to_the_end))
        co_return fails(EINVAL, "a range that is not of whole blocks");
    if (&s == &t && overlap(from_offset, to_offset, length))
        co_return fails(EINVAL, "a clone onto itself");
    storage::change out;
    out.before = out.after = seen(t);
    if (length == 0) // nothing, at the source's end
        co_return out;
    const std::uint64_t count = (length + unit - 1) / unit;
    const std::uint64_t gone = t.data.blocks(to_offset / unit, count);
    const std::uint64_t come = s.data.blocks(from_offset / unit, count);
    if (come > gone && come - gone > free_bytes() / unit)
        co_return fails(ENOSPC, "clone");
    t.data.share(s.data, from_offset / unit, to_offset / unit, count);
    blocks_ += come - gone;
    t.attrs.size = std::max(t.attrs.size, to_offset + length);
    note_change(t, r);
    out.after = seen(t);
    co_return out;
}

} // namespace verbena::memfs
