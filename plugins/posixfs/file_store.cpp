// SPDX-License-Identifier: Apache-2.0
// Files that peers read and write by RDMA: not mapped, but by calls, as READ and WRITE do. So a file that somebody cuts short is
// nobody's SIGBUS, and a disk that fails gives an error.
#include "backend.hpp"
#include "lost_ranges.hpp"
#include "slow_call.hpp"

#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <atomic>
#include <fcntl.h>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <utility>

namespace verbena::posixfs {

namespace {

// What one call of map() yields to write.
constexpr std::uint64_t most_mapped_to_write = std::uint64_t(64) << 20;
// How far behind the end of the file room is taken for it: that stays the file's, so it is the same room for all
// layouts of the file. More is taken as writes come.
constexpr std::uint64_t most_behind_end = std::uint64_t(4) << 20;
// How long a read waits for room in a lane.
constexpr auto lane_is_full = std::chrono::milliseconds(2);
// A grant of it is below 4 GiB.
constexpr std::uint64_t most_mapped_at_once = std::uint64_t(1) << 30;

/// A place among the stores of the process, each of which holds up to two descriptors. One peer may have half of them, so that others
/// have layouts too.
class store_place {
public:
    /// Nothing where there is none.
    static std::optional<store_place> take(std::string_view peer)
    {
        const std::lock_guard lock(mutex_);
        const std::size_t most = pin_table::usual_bound();
        const auto known = of_peer_.find(peer);
        const std::size_t has = known != of_peer_.end() ? known->second : 0;
        if (all_ >= most || (!peer.empty() && has >= std::max<std::size_t>(most / 2, 1)))
            return std::nullopt;
        const auto place =
            known != of_peer_.end() ? known : of_peer_.emplace(std::string(peer), std::size_t(0)).first;
        ++place->second;
        ++all_;
        return store_place(&*place);
    }
    store_place(store_place&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    store_place& operator=(store_place&&) = delete;
    ~store_place()
    {
        if (of_ == nullptr)
            return;
        const std::lock_guard lock(mutex_);
        --all_;
        if (--of_->second == 0)
            of_peer_.erase(of_peer_.find(of_->first));
    }

private:
    using peers = std::map<std::string, std::size_t, std::less<>>;
    explicit store_place(peers::value_type* of) noexcept : of_(of) {}
    static inline std::mutex mutex_;
    static inline peers of_peer_;
    static inline std::size_t all_ = 0;
    peers::value_type* of_;
};

// Where the file system can't, writes take room as they come. `end` of the file stays.
result<void> take_room(int fd, std::uint64_t offset, std::uint64_t length)
{
    int done = 0;
    do
        done = ::fallocate(fd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(length));
    while (done != 0 && errno == EINTR);
    return done == 0 || errno == EOPNOTSUPP ? result<void>() : errno_error("fallocate");
}

// Who writes meanwhile may make the file longer still, so its size is not set, but grows.
result<void> grow(int fd, std::uint64_t end)
{
    struct stat st{};
    if (file_status(fd, st) != 0)
        return errno_error("fstat");
    if (std::uint64_t(st.st_size) >= end)
        return {};
    const auto last = static_cast<off_t>(end - 1);
    int done = 0;
    do
        done = ::fallocate(fd, 0, last, 1);
    while (done != 0 && errno == EINTR);
    if (done == 0)
        return {};
    // Where the file system can't, the file stays as long as writes have made it: a zero might land on what another one has just written.
    return errno == EOPNOTSUPP ? result<void>() : errno_error("fallocate");
}

} // namespace

/// A file for a caller whose rights were looked at. The back end outlives it.
class backend::file_store final : public verbs::byte_store {
public:
    file_store(backend& of, const cached_file& f, const storage::credential& who,
               std::shared_ptr<const shared_fd> read, std::shared_ptr<const shared_fd> write,
               std::uint64_t standing, store_place place) noexcept
        : of_(of),
          mount_(*f.mount),
          file_(numbered(f)),
          who_(who),
          read_(std::move(read)),
          write_(std::move(write)),
          nowait_works_(f.nowait_works),
          lost_before_(of.syncs_.failures()),
          standing_(standing),
          place_(std::move(place))
    {
    }

    task<result<void>> read(std::uint64_t offset, std::span<std::byte> out) override;
    task<result<void>> write(std::uint64_t offset, std::span<const std::byte> data) override;
    std::error_code write_failure() const noexcept override;

private:
    void note_failure(const error& e) const noexcept
    {
        int none = 0;
        failed_.compare_exchange_strong(none, e.errno_value() != 0 ? e.errno_value() : EIO);
    }
    void note_lost(std::uint64_t offset, std::size_t size, const error& why) noexcept
    {
        {
            const std::lock_guard lock(lost_mutex_);
            lost_.add(offset, offset + size);
        }
        note_failure(why);
    }
    bool is_lost(std::uint64_t offset, std::size_t size) const noexcept
    {
        if (failed_.load() == 0)
            return false;
        const std::lock_guard lock(lost_mutex_);
        return lost_.has(offset, offset + size);
    }

    backend& of_;
    const mount_point& mount_;
    const numbered_file file_;
    const storage::credential who_;
    const std::shared_ptr<const shared_fd> read_;
    const std::shared_ptr<const shared_fd> write_; // nullptr: it is to read alone
    std::atomic<bool> nowait_works_;
    const std::uint64_t lost_before_; // sync_group::failures() then
    const std::uint64_t standing_;    // backend::standing_ then
    const store_place place_;
    mutable std::atomic<int> failed_{0};
    mutable std::mutex lost_mutex_;
    lost_ranges lost_; // what could not be written
};

task<result<void>> backend::file_store::read(std::uint64_t offset, std::span<std::byte> out)
{
    shard& s = of_.at(co_await this_reactor());
    if (of_.has_left(standing_))
        co_return no_root();
    const task_context& context = co_await current_context();
    // A byte alone is how a client finds out that its writes have come: LAYOUTCOMMIT tells it what became of them.
    if (out.size() > 1 && is_lost(offset, out.size()))
        co_return error::from_errno(EIO, "bytes that could not be written");
    const int fd = read_->get();
    std::size_t done = 0;
    const bool begins = begins_reads(s, mount_);
    bool nowait_works = nowait_works_.load(std::memory_order_relaxed);
    const auto here = of_.read_here(s, mount_, nowait_works, begins, fd, out, offset);
    if (!here)
        co_return here.error();
    if (!nowait_works)
        nowait_works_.store(false, std::memory_order_relaxed);
    done = *here;
    std::optional<slow_call> call;
    if (done < out.size())
        call.emplace(*s.home, context.stop, of_.slow_logged_,
                     slow_call::what{of_.options_.name, of_.handles_->root_path(), fd, "read", offset + done,
                                     out.size() - done});
    while (done < out.size()) {
        // Of another host's file the pool finds the end.
        struct stat st{};
        st.st_size = max_offset;
        if (mount_.local && file_status(fd, st) != 0)
            co_return errno_error("fstat");
        task<result<std::size_t>> reading =
            of_.read_rest(s, mount_, begins && nowait_works, fd, out.subspan(done), offset + done, true, st);
        const auto more = co_await reading;
        if (!more && more.error().errno_value() != EAGAIN)
            co_return more.error();
        if (!more) { // the lane is full
            const bool goes_on = co_await sleep_for(lane_is_full);
            if (!goes_on)
                co_return more.error();
            continue;
        }
        if (*more == 0)
            break;
        done += *more;
    }
    std::fill(out.begin() + static_cast<std::ptrdiff_t>(done), out.end(), std::byte());
    co_return result<void>();
}

task<result<void>> backend::file_store::write(std::uint64_t offset, std::span<const std::byte> data)
{
    shard& s = of_.at(co_await this_reactor());
    const task_context& context = co_await current_context();
    const int fd = write_->get();
    if (of_.has_left(standing_)) {
        const error gone = no_root();
        note_lost(offset, data.size(), gone);
        co_return gone;
    }
    while (!data.empty()) {
        const std::span<const std::byte> pieces[] = {data};
        auto written = of_.write_here(s, mount_, file_, who_, fd, pieces, offset);
        if (!written) {
            // It may have waited behind others for long.
            const slow_call call(
                *s.home, context.stop, of_.slow_logged_,
                {of_.options_.name, of_.handles_->root_path(), fd, "write", offset, data.size()});
            auto job = [fd, &pieces, offset, &who = who_, &call]() -> result<std::size_t> {
                if (call.is_stopped())
                    return error(std::errc::operation_canceled, "a write whose connection has ended");
                return write_as(who, fd, pieces, offset);
            };
            written.emplace(co_await of_.pool_.run(std::move(job))); // a connection has one of these
            of_.numbers_->changed(file_);
        }
        if (!*written && written->error() == std::errc::operation_canceled)
            co_return written->error();
        if (!*written || **written == 0) {
            const error why =
                *written ? error::from_errno(EIO, "a file that takes no bytes") : written->error();
            note_lost(offset, data.size(), why);
            co_return why;
        }
        of_.syncs_.wrote(**written);
        offset += **written;
        data = data.subspan(**written);
    }
    co_return result<void>();
}

// What could not be written back is told once to each descriptor: to this one, or to one that was synced.
std::error_code backend::file_store::write_failure() const noexcept
{
    // To wait for nothing at the largest offset is to ask. The kernel of this host knows it of other hosts' file
    // systems, too.
    const bool asks = write_ != nullptr && !mount_.in_memory;
    if (asks &&
        ::sync_file_range(write_->get(), std::numeric_limits<off64_t>::max() - 1, 1,
                          SYNC_FILE_RANGE_WAIT_BEFORE) != 0 &&
        (errno == EIO || errno == ENOSPC || errno == EDQUOT)) {
        note_failure(errno_error("write back"));
        of_.syncs_.lost();
    }
    if (of_.syncs_.failures() != lost_before_)
        note_failure(error::from_errno(EIO, "a sync failed"));
    const int failed = failed_.load();
    return failed != 0 ? std::error_code(failed, std::system_category()) : std::error_code();
}

task<result<storage::mapping>> backend::map(const storage::request& r, const storage::handle& file,
                                            std::uint64_t offset, std::uint64_t length, storage::map_use use)
{
    const bool writes = use != storage::map_use::read;
    if (writes && refuses_changes())
        co_return error::from_errno(EROFS, "the export is read-only");
    if (length == 0)
        co_return error::from_errno(EINVAL, "an empty range");
    if (offset > max_offset || (writes && length > max_offset - offset))
        co_return error::from_errno(EFBIG, "a range past the largest offset");
    length = std::min({length, max_offset - offset, writes ? most_mapped_to_write : most_mapped_at_once});
    shard& s = at(co_await this_reactor());
    const std::uint64_t standing = s.standing;
    task<result<in_use>> opening = open_data(s, r, file, backend::use::read, r.may_by_open(R_OK));
    auto source = co_await opening;
    if (!source)
        co_return source.error();
    const file_ref f = source->file;
    std::shared_ptr<const shared_fd> target;
    if (writes) {
        task<result<in_use>> opening_target = open_data(s, r, file, backend::use::write, r.may_by_open(W_OK));
        auto opened = co_await opening_target;
        if (!opened)
            co_return opened.error();
        target = opened->open;
    }
    storage::mapping out;
    looked st{};
    if (auto live = co_await stat_live(s, *f, source->open->get(), st); !live)
        co_return live.error();
    out.attrs = attributes(st, *f);
    out.length = writes ? length : std::min(length, out.attrs.size - std::min(out.attrs.size, offset));
    if (out.length == 0)
        co_return out;
    auto place = store_place::take(r.client);
    if (!place)
        co_return error::from_errno(EMFILE, "as many files are open for layouts as may");
    // Not within the file, whose holes stay what they are until somebody writes there.
    const std::uint64_t from = std::max(offset, out.attrs.size);
    const std::uint64_t last = std::min(offset + length, out.attrs.size + most_behind_end);
    if (writes && from < last) {
        const std::uint64_t behind = last - from;
        auto job = [fd = target->get(), from, behind, &who = r.who]() -> result<void> {
            const acting_as as(who);
            return as ? take_room(fd, from, behind) : result<void>(as.error());
        };
        const auto room = co_await pool_.try_run(std::move(job));
        changed(*f);
        if (!room)
            co_return room.error();
    }
    out.store = std::make_shared<file_store>(*this, *f, r.who, source->open, std::move(target), standing,
                                             std::move(*place));
    co_return out;
}

task<result<storage::change>> backend::note_written(const storage::request& r, const storage::handle& file,
                                                    storage::peer_writes what)
{
    const std::uint64_t end = what.end;
    if (refuses_changes())
        co_return error::from_errno(EROFS, "the export is read-only");
    if (end > max_offset)
        co_return error::from_errno(EFBIG, "a write past the largest offset");
    shard& s = at(co_await this_reactor());
    if (end == 0) { // nothing is to grow, so nobody opens it: that would break leases
        auto opened_file = co_await open_file(s, file);
        if (!opened_file)
            co_return opened_file.error();
        file_ref known = std::move(*opened_file);
        looked now{};
        if (auto live = co_await stat_live(s, *known, known->path.get(), now); !live)
            co_return live.error();
        known->uncommitted = true;
        storage::change out;
        out.before = out.after = attributes(now, *known);
        co_return out;
    }
    task<result<in_use>> opening = open_data(s, r, file, backend::use::write, r.may_by_open(W_OK));
    const auto target = co_await opening;
    if (!target)
        co_return target.error();
    const file_ref f = target->file;
    const int fd = target->open->get();
    storage::change out;
    looked st{};
    const int failed = co_await stat_of(*f, fd, st);
    if (failed == 0)
        out.before = attributes(st, *f);
    // What was written has moved the file's times by itself.
    if (failed != 0 || std::uint64_t(st.st_size) < end) {
        auto job = [fd, end, &who = r.who]() -> result<void> {
            const acting_as as(who);
            return as ? grow(fd, end) : result<void>(as.error());
        };
        const auto grown = co_await pool_.try_run(std::move(job));
        changed(*f);
        if (!grown)
            co_return grown.error();
    }
    f->uncommitted = true; // by whomever, since the last COMMIT
    const int gone = co_await stat_of(*f, fd, st);
    if (gone == 0)
        out.after = attributes(st, *f);
    co_return out;
}

} // namespace verbena::posixfs
