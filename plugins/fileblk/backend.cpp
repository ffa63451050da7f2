// SPDX-License-Identifier: Apache-2.0
// Read, write and flush.
#include "backend.hpp"

#include <verbena/core/log.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <string>
#include <sys/stat.h>
#include <sys/uio.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace verbena::fileblk {

namespace {

constexpr std::size_t copied_align = 4096;

// Memory that O_DIRECT takes.
class aligned_memory {
public:
    explicit aligned_memory(std::size_t size)
        : bytes_(static_cast<std::byte*>(::operator new(size, std::align_val_t(copied_align), std::nothrow)))
    {
    }
    aligned_memory(const aligned_memory&) = delete;
    ~aligned_memory() { ::operator delete(bytes_, std::align_val_t(copied_align)); }
    std::byte* get() const noexcept { return bytes_; }

private:
    std::byte* const bytes_;
};

// What a ring can't do at the moment, and the lane can.
bool is_for_lane(std::int32_t n) noexcept { return n == -EAGAIN || n == -ENOBUFS || n == -EOPNOTSUPP; }

error cut_off(std::uint64_t offset) noexcept
{
    return error::from_errno(
        EIO,
        "the file or disk has become shorter than its device: make it as long as it was, or "
        "tell so by `verbena admin resize DEVICE shrink`",
        offset);
}

storage::block_properties properties_of(const fileblk_options& o, const disk_file& f)
{
    storage::block_properties p;
    p.size = f.size;
    p.block_size = o.block_size;
    p.physical_block_size = f.physical_block;
    p.discard_granularity = f.discard_granularity;
    p.write_zeroes = !o.read_only;
    p.read_only = o.read_only;
    p.write_back = !o.read_only && !f.in_memory; // no flush makes memory last
    p.run = f.run;
    return p;
}

} // namespace

backend::backend(const fileblk_options& o, disk_file file, blocking_pool& lane,
                 std::unique_ptr<transfers> by_ring)
    : file_(std::move(file)),
      properties_(properties_of(o, file_)),
      size_(properties_.size),
      largest_(properties_.size),
      lane_(lane),
      by_ring_(std::move(by_ring)),
      syncs_(lane),
      path_(o.path)
{
}

fileblk_counters backend::counters() const noexcept
{
    fileblk_counters c;
    c.direct = direct_.load(std::memory_order_relaxed);
    c.copied = copied_.load(std::memory_order_relaxed);
    c.page_cache = page_cache_.load(std::memory_order_relaxed);
    c.syncs = syncs_.rounds();
    c.sync_failures = syncs_.failures();
    return c;
}

std::string backend::notes() const
{
    std::string text = file_.in_memory ? "in memory: gone at a restart of this host"
                       : file_.direct  ? "O_DIRECT"
                                       : "by the page cache";
    if (!file_.buffered_because.empty())
        text += " (" + file_.buffered_because + ')';
    if (file_.created)
        text += "; created";
    if (!properties_.read_only && properties_.discard_granularity == 0)
        text += "; no discard here";
    if (file_.unserved != 0)
        text +=
            "; the last " + std::to_string(file_.unserved) + " bytes are no whole block and are not served";
    return text;
}

result<std::uint64_t> backend::size_there()
{
    auto there = bytes_of(file_.keeper.get(), file_.is_block_device);
    if (!there)
        return there;
    const std::uint64_t whole = *there - *there % properties_.block_size;
    if (whole == 0)
        return error::from_errno(EINVAL, "there is no whole block", *there);
    return whole;
}

void backend::serve_size(std::uint64_t bytes) noexcept
{
    std::uint64_t before = largest_.load(std::memory_order_relaxed);
    while (before < bytes && !largest_.compare_exchange_weak(before, bytes, std::memory_order_relaxed)) {
    }
    size_.store(bytes, std::memory_order_relaxed);
}

// Who has it open may not know that it is smaller now.
result<void> backend::may(std::uint64_t offset, std::uint64_t length, bool change) const noexcept
{
    storage::block_properties now = properties();
    const auto good = check_range(now, offset, length, change);
    if (good)
        return good;
    now.size = largest_.load(std::memory_order_relaxed);
    if (!check_range(now, offset, length, change))
        return good;
    return error::from_errno(change ? ENOSPC : EIO, "behind the end of a device that has become smaller",
                             offset);
}

bool backend::is_aligned(const void* memory) const noexcept
{
    return reinterpret_cast<std::uintptr_t>(memory) % file_.memory_align == 0;
}

std::size_t backend::whole_part(std::size_t n, std::size_t wanted) const noexcept
{
    return n >= wanted ? wanted : n - n % file_.offset_align;
}

task<result<void>> backend::read(std::uint64_t offset, std::span<std::byte> into)
{
    const auto good = may(offset, into.size(), false);
    if (!good || into.empty())
        co_return good;
    if (!file_.direct) {
        page_cache_.fetch_add(1, std::memory_order_relaxed);
        co_return co_await read_page_cache(offset, into);
    }
    direct_.fetch_add(1, std::memory_order_relaxed);
    if (!is_aligned(into.data()))
        co_return co_await read_copied(offset, into);
    co_return co_await read_by_ring(offset, into);
}

task<result<void>> backend::read_by_ring(std::uint64_t offset, std::span<std::byte> into)
{
    while (!into.empty()) {
        const std::int32_t n = co_await by_ring_->read(file_.io.get(), into, offset);
        if (n == -EINTR)
            continue;
        if (is_for_lane(n))
            co_return co_await read_by_lane(offset, into);
        if (n < 0)
            co_return error::from_errno(-n, "read", offset);
        const std::size_t done = whole_part(static_cast<std::size_t>(n), into.size());
        if (done == 0)
            co_return cut_off(offset + static_cast<std::size_t>(n));
        into = into.subspan(done);
        offset += done;
    }
    co_return result<void>();
}

task<result<void>> backend::read_page_cache(std::uint64_t offset, std::span<std::byte> into)
{
    if (file_.in_memory) {
        const progress p = read_here(offset, into);
        if (p.failed != 0)
            co_return read_failure(offset, p);
        co_return result<void>();
    }
    const bool begins =
        misses_.load(std::memory_order_relaxed) < max_misses && nowait_works_.load(std::memory_order_relaxed);
    if (begins) {
        iovec v{into.data(), into.size()};
        const ssize_t n = ::preadv2(file_.io.get(), &v, 1, static_cast<off_t>(offset), RWF_NOWAIT);
        if (n == 0)
            co_return cut_off(offset);
        if (n < 0 && errno == EOPNOTSUPP)
            nowait_works_.store(false, std::memory_order_relaxed);
        else if (n < 0 && errno != EAGAIN && errno != EINTR)
            co_return error::from_errno(errno, "read", offset);
        const auto done = static_cast<std::size_t>(std::max<ssize_t>(n, 0));
        into = into.subspan(done);
        offset += done;
        if (into.empty())
            co_return result<void>();
    }
    misses_.fetch_add(1, std::memory_order_relaxed);
    result<void> got;
    if (begins && into.size() <= max_ring_read && nowait_works_.load(std::memory_order_relaxed))
        got = co_await read_by_ring(offset, into);
    else
        got = co_await read_by_lane(offset, into);
    misses_.fetch_sub(1, std::memory_order_relaxed);
    co_return got;
}

task<result<void>> backend::read_by_lane(std::uint64_t offset, std::span<std::byte> into)
{
    auto job = [this, offset, into] { return read_here(offset, into); };
    const progress p = co_await lane_.run(std::move(job));
    if (p.failed != 0)
        co_return read_failure(offset, p);
    co_return result<void>();
}

error backend::read_failure(std::uint64_t offset, const progress& p) noexcept
{
    return p.is_cut ? cut_off(offset + p.done) : error::from_errno(p.failed, "read", offset + p.done);
}

backend::progress backend::read_here(std::uint64_t offset, std::span<std::byte> into) const noexcept
{
    progress p;
    while (p.done < into.size()) {
        const std::size_t wanted = into.size() - p.done;
        const ssize_t n =
            ::pread(file_.io.get(), into.data() + p.done, wanted, static_cast<off_t>(offset + p.done));
        if (n < 0 && errno == EINTR)
            continue;
        const std::size_t whole = n < 0 ? 0 : whole_part(static_cast<std::size_t>(n), wanted);
        if (whole == 0) {
            p.failed = n < 0 ? errno : EIO;
            p.is_cut = n >= 0;
            break;
        }
        p.done += whole;
    }
    return p;
}

task<result<void>> backend::write(std::uint64_t offset, std::span<const std::byte> from, bool through)
{
    const auto good = may(offset, from.size(), true);
    if (!good || from.empty())
        co_return good;
    if (through && has_lost()) {
        co_await mark_loss();
        co_return error::from_errno(EIO, "an earlier sync of the device failed");
    }
    (file_.direct ? direct_ : page_cache_).fetch_add(1, std::memory_order_relaxed);
    if (file_.in_memory) {
        const progress p = write_here(offset, from, false);
        if (p.failed != 0)
            co_return error::from_errno(p.failed, "write", offset + p.done);
        co_return result<void>();
    }
    result<void> done;
    if (file_.direct && !is_aligned(from.data()))
        done = co_await write_copied(offset, from, through);
    else
        done = co_await write_by_ring(offset, from, through);
    if (!done && through && failed_through(done.error()))
        co_await mark_loss();
    co_return done;
}

// It may have lost what others wrote before, as a sync that fails, and the next flush would not hear of it. Without room it wrote nothing.
bool backend::failed_through(const error& why) noexcept
{
    const bool loses = why != std::errc::no_space_on_device && why.errno_value() != EDQUOT;
    if (loses)
        syncs_.lost();
    return loses;
}

// Before anybody hears of the failure: the file has the mark when this is over, unless it can't be marked. The next
// process hears nothing of the failure from the kernel, and must not tell clients that the run goes on. Whoever comes
// while the mark is under way makes it too, which changes nothing, and is never told before it is there.
task<void> backend::mark_loss()
{
    if (file_.is_block_device || loss_marked_.load(std::memory_order_acquire))
        co_return;
    auto job = [this] { return fileblk::mark_loss(file_.keeper.get()); };
    const int failed = co_await lane_.run(std::move(job));
    if (failed == 0)
        loss_marked_.store(true, std::memory_order_release);
    else if (!unmarked_told_.exchange(true, std::memory_order_relaxed))
        log(log_level::warning, "fileblk",
            "the file can't be marked: after a restart clients do not hear of the sync that failed",
            {{"path", path_},
             {"cause", std::system_category().message(failed)},
             {"cure", "serve it from a file system that has extended attributes (user.*)"}});
}

task<result<void>> backend::write_by_ring(std::uint64_t offset, std::span<const std::byte> from, bool through)
{
    while (!from.empty()) {
        const std::int32_t n = co_await by_ring_->write(file_.io.get(), from, offset, through);
        if (n == -EINTR)
            continue;
        if (is_for_lane(n)) {
            auto job = [this, offset, from, through] { return write_here(offset, from, through); };
            const progress p = co_await lane_.run(std::move(job));
            if (p.failed != 0)
                co_return error::from_errno(p.failed, "write", offset + p.done);
            co_return result<void>();
        }
        if (n < 0)
            co_return error::from_errno(-n, "write", offset);
        const std::size_t done = whole_part(static_cast<std::size_t>(n), from.size());
        if (done == 0)
            co_return error::from_errno(EIO, "a write that wrote nothing", offset);
        from = from.subspan(done);
        offset += done;
    }
    co_return result<void>();
}

backend::progress backend::write_here(std::uint64_t offset, std::span<const std::byte> from,
                                      bool through) const noexcept
{
    progress p;
    while (p.done < from.size()) {
        const std::size_t wanted = from.size() - p.done;
        iovec v{const_cast<std::byte*>(from.data() + p.done), wanted};
        const ssize_t n =
            ::pwritev2(file_.io.get(), &v, 1, static_cast<off_t>(offset + p.done), through ? RWF_DSYNC : 0);
        if (n < 0 && errno == EINTR)
            continue;
        const std::size_t whole = n < 0 ? 0 : whole_part(static_cast<std::size_t>(n), wanted);
        if (whole == 0) {
            p.failed = n < 0 ? errno : EIO;
            break;
        }
        p.done += whole;
    }
    return p;
}

task<result<void>> backend::read_copied(std::uint64_t offset, std::span<std::byte> into)
{
    copied_.fetch_add(1, std::memory_order_relaxed);
    const std::size_t most = std::min(into.size(), max_copied);
    const aligned_memory memory(most);
    if (memory.get() == nullptr)
        co_return error(std::errc::not_enough_memory, "memory that is aligned", most);
    while (!into.empty()) {
        const std::span<std::byte> part(memory.get(), std::min(into.size(), most));
        const auto got = co_await read_by_ring(offset, part);
        if (!got)
            co_return got;
        std::memcpy(into.data(), part.data(), part.size());
        into = into.subspan(part.size());
        offset += part.size();
    }
    co_return result<void>();
}

task<result<void>> backend::write_copied(std::uint64_t offset, std::span<const std::byte> from, bool through)
{
    copied_.fetch_add(1, std::memory_order_relaxed);
    const std::size_t most = std::min(from.size(), max_copied);
    const aligned_memory memory(most);
    if (memory.get() == nullptr)
        co_return error(std::errc::not_enough_memory, "memory that is aligned", most);
    while (!from.empty()) {
        const std::span<std::byte> part(memory.get(), std::min(from.size(), most));
        std::memcpy(part.data(), from.data(), part.size());
        const auto put = co_await write_by_ring(offset, part, through);
        if (!put)
            co_return put;
        from = from.subspan(part.size());
        offset += part.size();
    }
    co_return result<void>();
}

// The kernel tells an error of write-back once, and then forgets what was lost. So the first failure is final.
result<void> backend::synced() noexcept
{
    if (!has_lost())
        return {};
    if (!loss_told_.exchange(true, std::memory_order_relaxed))
        log(log_level::error, "fileblk",
            "a sync or a write through failed, and what was written may be lost: until verbenad is started "
            "anew no flush of this device succeeds",
            {{"path", path_}});
    return error::from_errno(EIO, "a sync of the device failed");
}

// Clients notice nothing, and the next start opens another file, or makes an empty one.
void backend::look_for_name() noexcept
{
    if (file_.is_block_device || nameless_told_.load(std::memory_order_relaxed))
        return;
    struct statx now{};
    if (::statx(file_.keeper.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_NLINK, &now) != 0 ||
        (now.stx_mask & STATX_NLINK) == 0 || now.stx_nlink != 0 || nameless_told_.exchange(true))
        return;
    try {
        log(log_level::error, "fileblk",
            "the file of a device was removed or replaced: what clients write is gone when verbenad ends",
            {{"path", path_},
             {"cure", "before that, and while no client has the device open: cp /proc/" +
                          std::to_string(::getpid()) + "/fd/" + std::to_string(file_.keeper.get()) +
                          " to where there is room, and put it back at the path after the end"}});
    } catch (const std::bad_alloc&) { // the next flush
        nameless_told_.store(false, std::memory_order_relaxed);
    }
}

task<result<void>> backend::flush()
{
    if (!properties_.read_only)
        look_for_name();
    if (file_.in_memory || properties_.read_only)
        co_return result<void>();
    if (has_lost()) {
        co_await mark_loss();
        co_return synced();
    }
    const auto done = co_await syncs_.sync(storage::sync_group::what::data, file_.keeper.get(), 1, 1);
    if (has_lost())
        co_await mark_loss();
    // Of whoever waits for the round behind the one that failed, too: its own fdatasync says that all is well.
    const auto all = synced();
    if (!done)
        co_return done;
    co_return all;
}

std::unique_ptr<fileblk_device> open_fileblk(const fileblk_options& o, blocking_pool& lane)
{
    return std::make_unique<backend>(o, open_disk_file(o), lane, std::make_unique<transfers>());
}

} // namespace verbena::fileblk
