// SPDX-License-Identifier: Apache-2.0
#include "local_locks.hpp"

#include "backend.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <new>
#include <utility>

namespace verbena::posixfs {

namespace {

using files::byte_range;
using files::lock_type;
using files::locked_range;

constexpr byte_range everything{0, byte_range::to_the_end};

// Of all files of the process that have one. Never destroyed: a lane may be at work until the process ends.
struct description_list {
    std::mutex mutex;
    std::map<std::pair<dev_t, ino_t>, std::weak_ptr<lock_description>> all;
};
description_list& descriptions()
{
    static auto* const list = new description_list;
    return *list;
}

struct flock to_kernel(const byte_range& bytes, short type) noexcept
{
    struct flock out{};
    out.l_type = type;
    out.l_whence = SEEK_SET;
    out.l_start = off_t(bytes.offset);
    out.l_len = bytes.last >= max_offset ? 0 : off_t(bytes.last - bytes.offset + 1); // 0: to the end
    return out;
}

short to_kernel(lock_type type) noexcept { return type == lock_type::write ? F_WRLCK : F_RDLCK; }

storage::local_holder holder_of(const struct flock& lock) noexcept
{
    const auto first = std::uint64_t(lock.l_start);
    const std::uint64_t last =
        lock.l_len == 0 ? byte_range::to_the_end : first + std::uint64_t(lock.l_len) - 1;
    return {{first, last, lock.l_type == F_WRLCK}, std::max<std::int64_t>(lock.l_pid, 0)};
}

bool lacks_descriptors(int failed) noexcept
{
    return failed == EMFILE || failed == ENFILE || failed == ENOMEM;
}

} // namespace

// --- What the file system does not have

void unseen_locks::add(int error) noexcept
{
    using enum unseen_lock_counters::reason;
    switch (error) {
    case ENOLCK: return add(no_room, std::strerror(error));
    case EINVAL:
    case ENOSYS:
    case EOPNOTSUPP: return add(unsupported, std::strerror(error));
    case EACCES:
    case EPERM:
    case EROFS: return add(not_permitted, std::strerror(error));
    case EMFILE:
    case ENFILE:
    case ENOMEM: return add(limit, std::strerror(error));
    default: return add(failed, std::strerror(error));
    }
}

void unseen_locks::add_limit() noexcept { add(unseen_lock_counters::reason::limit, "descriptors"); }

void unseen_locks::add(unseen_lock_counters::reason why, const char* error) noexcept
{
    counts_[std::size_t(why)].fetch_add(1, std::memory_order_relaxed);
    if (said_[std::size_t(why)].exchange(true, std::memory_order_relaxed))
        return;
    constexpr std::array<const char*, unseen_lock_counters::reasons> cures = {
        "the file system has no room for locks: a file server behind it may lack its lock daemon",
        "the file system has no locks: keep local programs away from this export, or take local_locks away",
        "let this process's user read and write the files, or give it CAP_DAC_OVERRIDE",
        "raise the limit of descriptors (LimitNOFILE=)",
        "look at the file system; without local_locks nobody asks it",
    };
    log(log_level::warning, "posixfs",
        "a lock is not one of the file system: its clients have it, and processes of this host do not see "
        "it. "
        "This is said once; verbena_posixfs_unseen_locks_total counts all",
        {{"export", root_}, {"error", error}, {"cure", cures[std::size_t(why)]}});
}

unseen_lock_counters unseen_locks::counters() const noexcept
{
    unseen_lock_counters out;
    for (std::size_t i = 0; i < counts_.size(); ++i)
        out.counts[i] = counts_[i].load(std::memory_order_relaxed);
    return out;
}

// --- The descriptions of the process

std::shared_ptr<lock_description> lock_description::of(dev_t device, ino_t inode)
{
    description_list& list = descriptions();
    const std::lock_guard lock(list.mutex);
    auto& known = list.all[{device, inode}];
    auto found = known.lock();
    if (!found)
        known = found = std::make_shared<lock_description>(device, inode);
    return found;
}

// Whoever left has taken its locks along, so that nothing is held any more and another description may be there
// already.
lock_description::~lock_description()
{
    if (fd_)
        held_.fetch_sub(1, std::memory_order_relaxed);
    description_list& list = descriptions();
    const std::lock_guard lock(list.mutex);
    const auto at = list.all.find({device_, inode_});
    if (at != list.all.end() && at->second.expired())
        list.all.erase(at);
}

// --- The queue

void lock_description::add(std::shared_ptr<step> s)
{
    const std::lock_guard lock(queue_mutex_);
    queue_.push_back(std::move(s));
}

void lock_description::run(const step& s) noexcept
{
    const std::lock_guard working(work_mutex_);
    for (;;) {
        std::shared_ptr<step> next;
        {
            const std::lock_guard lock(queue_mutex_);
            if (s.is_done || queue_.empty())
                return;
            next = std::move(queue_.front());
            queue_.pop_front();
        }
        try {
            do_step(*next);
        } catch (const std::bad_alloc&) {
            next->failed = ENOMEM;
            owes_ = true;
        }
        const std::lock_guard lock(queue_mutex_);
        next->is_done = true;
    }
}

void lock_description::do_step(step& s)
{
    switch (s.what) {
    case step::kind::lock: return lock(s);
    case step::kind::test: return test(s, fd_.get());
    case step::kind::keep: return keep(*s.who, s.bytes.bytes, s.kept);
    case step::kind::leave: return leave(*s.who);
    case step::kind::nothing: return;
    }
}

// --- What it holds

void lock_description::lock(step& s)
{
    if (std::ranges::find(parties_, s.who) == parties_.end())
        parties_.push_back(s.who);
    if (!conflicts_with_others(s) && take(s))
        s.who->held.set(s.bytes.bytes, s.bytes.type);
    close_if_unused();
}

bool lock_description::conflicts_with_others(step& s) const
{
    for (const auto& p : parties_) {
        const locked_range* const found =
            p == s.who ? nullptr : p->held.find_conflict(s.bytes.bytes, s.bytes.type);
        if (found != nullptr) {
            s.holder = storage::local_holder{
                {found->bytes.offset, found->bytes.last, found->type == lock_type::write}, 0};
            return true;
        }
    }
    return false;
}

// One call of the kernel's, all or nothing: nobody else here holds the bytes otherwise, as the state layer and
// conflicts_with_others() have found. False: somebody has them, or it is to be tried again.
bool lock_description::take(step& s)
{
    const byte_range& bytes = s.bytes.bytes;
    if (bytes.offset > max_offset) // which no process can lock
        return true;
    const bool to_write = s.bytes.type == lock_type::write;
    if (!fd_ && held() >= s.most) {
        s.who->unseen->add_limit();
        return true;
    }
    if (!fd_ || (to_write && !may_write_)) {
        const int failed = open(s, to_write);
        // Under a lease, which is being broken now; or the caller makes room.
        if (failed == EAGAIN || (lacks_descriptors(failed) && !s.is_last)) {
            s.failed = failed;
            return false;
        }
        if (failed != 0) {
            s.who->unseen->add(failed);
            return true;
        }
    }
    constexpr int most_tries = 4; // the holder may have gone before we look at who it is
    for (int tries = 0; tries < most_tries; ++tries) {
        const int failed = set(fd_.get(), bytes, to_kernel(s.bytes.type));
        if (failed != 0 && failed != EAGAIN && failed != EACCES)
            s.who->unseen->add(failed);
        if (failed != EAGAIN && failed != EACCES)
            return true;
        test(s, fd_.get());
        if (s.holder)
            return false;
    }
    s.holder = storage::local_holder{{bytes.offset, bytes.last, true}, 0};
    return false;
}

void lock_description::test(step& s, int fd)
{
    if (conflicts_with_others(s) || s.bytes.bytes.offset > max_offset)
        return;
    unique_fd for_this_call;
    if (fd < 0) {
        for_this_call.reset(::open(fd_path(s.path).text(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
        fd = for_this_call.get();
    }
    struct flock found = to_kernel(s.bytes.bytes, to_kernel(s.bytes.type));
    if (fd >= 0 && ::fcntl(fd, F_OFD_GETLK, &found) == 0 && found.l_type != F_UNLCK)
        s.holder = holder_of(found);
}

void lock_description::keep(party& who, const byte_range& bytes, std::span<const locked_range> held)
{
    who.held.clear(bytes);
    for (const locked_range& one : held)
        who.held.set(one.bytes, one.type);
    bring(who, bytes);
}

void lock_description::leave(party& who)
{
    who.held = {};
    bring(who, everything);
    std::erase_if(parties_, [&](const auto& p) { return p.get() == &who; });
}

files::byte_ranges lock_description::union_of(const byte_range& bytes) const
{
    files::byte_ranges all;
    for (const lock_type type : {lock_type::read, lock_type::write})
        for (const auto& p : parties_)
            for (const locked_range& one : p->held.overlapping(bytes))
                if (one.type == type)
                    all.set({std::max(one.bytes.offset, bytes.offset), std::min(one.bytes.last, bytes.last)},
                            type);
    return all;
}

// The kernel is to hold of `bytes` what the parties do. It has all of that, and may have more.
void lock_description::bring(party& who, const byte_range& bytes)
{
    close_if_unused();
    if (!fd_)
        return;
    byte_range area = std::exchange(owes_, false) ? everything : bytes;
    area.last = std::min(area.last, max_offset);
    if (area.offset > area.last)
        return;
    const auto tell = [&](const byte_range& part, short type) {
        const int failed = set(fd_.get(), part, type);
        if (failed == 0 || failed == EAGAIN || failed == EACCES) // that, of what it never had
            return;
        owes_ = true;
        who.unseen->add(failed);
    };
    std::uint64_t at = area.offset;
    const files::byte_ranges all = union_of(area);
    for (const locked_range& one : all.all()) {
        if (one.bytes.offset > at)
            tell({at, one.bytes.offset - 1}, F_UNLCK);
        tell(one.bytes, to_kernel(one.type));
        at = one.bytes.last + 1;
    }
    if (at <= area.last)
        tell({at, area.last}, F_UNLCK);
}

void lock_description::close_if_unused() noexcept
{
    if (!fd_ || !std::ranges::all_of(parties_, [](const auto& p) { return p->held.empty(); }))
        return;
    fd_.reset();
    may_write_ = owes_ = false;
    held_.fetch_sub(1, std::memory_order_relaxed);
}

// To read first: a descriptor that is open for writing would prevent leases of the file. What is held is locked by
// the new one before the old one, and its locks, go: all of that is to read, so both may hold it.
int lock_description::open(const step& s, bool to_write) noexcept
{
    unique_fd fresh(
        ::open(fd_path(s.path).text(), (to_write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!fresh)
        return errno;
    if (fd_) {
        for (const auto& p : parties_)
            for (const locked_range& one : p->held.all())
                if (const int failed =
                        one.bytes.offset > max_offset ? 0 : set(fresh.get(), one.bytes, F_RDLCK);
                    failed != 0)
                    return failed;
    } else {
        held_.fetch_add(1, std::memory_order_relaxed);
    }
    fd_ = std::move(fresh);
    may_write_ = to_write;
    return 0;
}

int lock_description::set(int fd, const byte_range& bytes, short type) noexcept
{
    struct flock lock = to_kernel(bytes, type);
    return ::fcntl(fd, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

// --- The back end

/// What a state layer has of one file of the back end.
class backend::inode_locks final : public storage::local_locks {
public:
    inode_locks(backend& b, const storage::handle& file)
        : of_(b), file_(file), me_(std::make_shared<lock_description::party>())
    {
        me_->unseen = b.unseen_;
    }
    ~inode_locks() override
    {
        if (about_)
            do_later(make(lock_description::step::kind::leave));
    }

    task<result<std::optional<storage::local_holder>>> lock(storage::lock_range bytes) override
    {
        return ask(lock_description::step::kind::lock, bytes);
    }
    task<std::optional<storage::local_holder>> test(storage::lock_range bytes) override
    {
        const auto asked = co_await ask(lock_description::step::kind::test, bytes);
        co_return asked ? *asked : std::nullopt;
    }
    void keep(std::uint64_t offset, std::uint64_t last, std::span<const storage::lock_range> held) override
    {
        if (!about_) // it has never had a lock
            return;
        const auto s = make(lock_description::step::kind::keep);
        s->bytes.bytes = {offset, last};
        for (const storage::lock_range& one : held)
            s->kept.push_back(to_files(one));
        do_later(s);
    }
    task<void> settle() override
    {
        if (about_)
            co_await do_now(make(lock_description::step::kind::nothing));
    }

private:
    using step = lock_description::step;
    /// Runs a step for which nobody waits.
    class later final : public blocking_pool::job {
    public:
        later(std::shared_ptr<lock_description> about, std::shared_ptr<step> s) noexcept
            : about_(std::move(about)), step_(std::move(s))
        {
        }
        ~later() = default;
        void execute() noexcept override
        {
            about_->run(*step_);
            delete this;
        }
        void deliver() noexcept override {}

    private:
        const std::shared_ptr<lock_description> about_;
        const std::shared_ptr<step> step_;
    };
    static locked_range to_files(const storage::lock_range& r) noexcept
    {
        return {{r.offset, r.last}, r.exclusive ? lock_type::write : lock_type::read};
    }
    std::shared_ptr<step> make(step::kind what) const { return std::make_shared<step>(what, me_); }
    void do_later(std::shared_ptr<step> s)
    {
        about_->add(s);
        auto* const job = new later(about_, std::move(s));
        if (!of_.pool_.submit(*job)) // the lane ends, and so nobody is held up any more
            job->execute();
    }
    task<void> do_now(std::shared_ptr<step> s)
    {
        about_->add(s);
        auto job = [about = about_, s = std::move(s)] { about->run(*s); };
        co_await of_.pool_.run(std::move(job));
    }
    task<result<std::optional<storage::local_holder>>> ask(step::kind what, storage::lock_range bytes);

    backend& of_;
    const storage::handle file_;
    const std::shared_ptr<lock_description::party> me_;
    std::shared_ptr<lock_description> about_; // once something was asked
};

task<result<std::optional<storage::local_holder>>> backend::inode_locks::ask(step::kind what,
                                                                             storage::lock_range bytes)
{
    shard& s = of_.at(co_await this_reactor());
    file_ref f = s.files.find(file_);
    if (!f) {
        auto opened = co_await of_.open_slow(s, file_);
        if (!opened)
            co_return opened.error();
        f = std::move(*opened);
    }
    if (!f->is_regular())
        co_return error::from_errno(EINVAL, "locks of what is no regular file");
    if (!about_)
        about_ = lock_description::of(f->dev, f->ino);
    s.files.keep_within_budget();
    for (bool again = false;; again = true) {
        const auto asked = make(what);
        asked->bytes = to_files(bytes);
        asked->path = f->path.get();
        asked->most =
            of_.options_.most_lock_files != 0 ? of_.options_.most_lock_files : descriptor_cache::budget() / 4;
        asked->is_last = again;
        co_await do_now(asked);
        if (asked->failed == 0)
            co_return asked->holder;
        if (again || !lacks_descriptors(asked->failed))
            co_return error::from_errno(asked->failed, "a lock of the file system");
        s.files.shrink();
        s.streams = stream_cache();
    }
}

std::unique_ptr<storage::local_locks> backend::local_locks_of(const storage::handle& file)
{
    return options_.local_locks ? std::make_unique<inode_locks>(*this, file) : nullptr;
}

unseen_lock_counters unseen_locks_of(const storage::file_backend& b)
{
    const auto* ours = dynamic_cast<const backend*>(&b);
    return ours != nullptr ? ours->unseen_locks_counters() : unseen_lock_counters();
}

} // namespace verbena::posixfs
