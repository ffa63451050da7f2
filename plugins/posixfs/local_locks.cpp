// SPDX-License-Identifier: Apache-2.0
#include "local_locks.hpp"

#include "backend.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <new>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace verbena::posixfs {

namespace {

using files::byte_range;
using files::lock_type;
using files::locked_range;

constexpr byte_range everything{0, byte_range::to_the_end};

// A description with more ranges stays one for writing until its file has no lock.
constexpr std::size_t most_to_read_again = 32;
// With more ranges that the kernel may hold or not, all of the file is looked at.
constexpr std::size_t most_doubtful = 64;

// Of all files of the process that have one. Never destroyed: a lane may be at work until the process ends.
struct description_list {
    std::mutex mutex;
    std::map<std::pair<dev_t, ino_t>, std::weak_ptr<lock_description>> all;
    std::unordered_map<std::uint64_t, std::size_t> of_peer; // those that are open
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

// Somebody has it.
bool is_refused(int failed) noexcept { return failed == EAGAIN || failed == EACCES; }

// The file system does not have the lock, and would not have it the next time. Of all else we can't say who has what.
bool is_lacking(int failed) noexcept
{
    switch (failed) {
    case ENOLCK:
    case EINVAL:
    case ENOSYS:
    case EOPNOTSUPP:
    case EACCES:
    case EPERM:
    case EROFS:
    case ETXTBSY: return true;
    default: return lacks_descriptors(failed);
    }
}

unique_fd open_again(int fd, int access) noexcept
{
    return unique_fd(::open(fd_path(fd).text(), access | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
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
        "the file system has no locks: keep local programs away from this export, or set local_locks=no",
        "let this process's user read and write the files, or give it CAP_DAC_OVERRIDE",
        "raise the limit of descriptors (LimitNOFILE=)",
        "look at the file system; with local_locks=no nobody asks it",
    };
    log(log_level::warning, "posixfs",
        "a lock is not one of the file system: its clients have it, and processes of this host do not see "
        "it. "
        "This is said once; verbena_posixfs_unseen_locks_total counts all",
        {{"export", name_}, {"directory", root_}, {"error", error}, {"cure", cures[std::size_t(why)]}});
}

unseen_lock_counters unseen_locks::counters() const noexcept
{
    unseen_lock_counters out;
    for (std::size_t i = 0; i < counts_.size(); ++i)
        out.counts[i] = counts_[i].load(std::memory_order_relaxed);
    return out;
}

// --- Turns

class lock_lane::worker final : public blocking_pool::job {
public:
    explicit worker(std::shared_ptr<lock_lane> of) noexcept : lane_(std::move(of)) {}
    ~worker() = default;
    void execute() noexcept override
    {
        const std::shared_ptr<lock_lane> lane =
            lane_; // behind submit() another thread may run and delete this
        do {
            if (!lane->give_turns()) {
                delete this;
                return;
            }
        } while (!lane->pool_.submit(*this)); // behind what else waits for the lane
    }
    void deliver() noexcept override {}

private:
    const std::shared_ptr<lock_lane> lane_;
};

lock_lane::lock_lane(blocking_pool& pool) noexcept
    : pool_(pool), most_(std::max<std::size_t>(1, pool.threads() / 2))
{
}

bool lock_lane::want(turns& one) noexcept
{
    const std::lock_guard lock(mutex_);
    if (closed_)
        return false;
    if (running_ < most_) {
        std::unique_ptr<worker> made;
        try {
            made = std::make_unique<worker>(shared_from_this());
        } catch (const std::bad_alloc&) { // those that work do it
        }
        if (made && pool_.submit(*made)) {
            std::ignore = made.release(); // it waits for the mutex, if it runs already
            ++running_;
        } else if (running_ == 0) {
            return false;
        }
    }
    waiting_.splice(waiting_.end(), one);
    return true;
}

void lock_lane::close() noexcept
{
    const std::lock_guard lock(mutex_);
    closed_ = true;
}

// For one worker: what waits now, within a bound. One turn for each wait in the lane would let whoever keeps the lane
// full hold up all locks. False: the worker is not needed any more.
bool lock_lane::give_turns() noexcept
{
    std::size_t turns = 0;
    {
        const std::lock_guard lock(mutex_);
        turns = std::max<std::size_t>(1, waiting_.size());
    }
    for (unsigned calls = calls_of_a_pass; turns > 0 && calls > 0; --turns)
        if (!give_turn(calls))
            return false;
    return true;
}

// `calls`: how many the worker may make yet.
bool lock_lane::give_turn(unsigned& calls) noexcept
{
    turns one;
    {
        const std::lock_guard lock(mutex_);
        if (waiting_.empty()) {
            --running_;
            return false;
        }
        one.splice(one.end(), waiting_, waiting_.begin());
    }
    unsigned took = 0;
    const std::shared_ptr<lock_lane> next = one.front()->turn(&took);
    calls -= std::min(calls, std::max(took, least_of_a_turn));
    const bool stays = next != nullptr && (next.get() == this || !next->want(one));
    const std::lock_guard lock(mutex_);
    if (stays)
        waiting_.splice(waiting_.end(), one);
    if (!waiting_.empty())
        return true;
    --running_;
    return false;
}

// --- Steps

void lock_description::step::deliver() noexcept { waiter_->go_on(); }

// Unless it is awaited, whoever asked may be gone as soon as it is done.
void lock_description::step::end() noexcept
{
    if (state_.exchange(state::done, std::memory_order_acq_rel) == state::awaited)
        waiter_->home_->post_remote(*this);
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
        note_closed();
    description_list& list = descriptions();
    const std::lock_guard lock(list.mutex);
    const auto at = list.all.find({device_, inode_});
    if (at != list.all.end() && at->second.expired())
        list.all.erase(at);
}

// --- The queue

void lock_description::add(std::shared_ptr<step> s)
{
    const std::shared_ptr<lock_lane> lane = s->lane;
    lock_lane::turns one; // first: what is queued must not be left there for lack of memory
    one.push_back(shared_from_this());
    {
        const std::lock_guard lock(queue_mutex_);
        queue_.push_back(std::move(s));
        if (std::exchange(is_busy_, true))
            return;
    }
    if (lane->want(one))
        return;
    // The lane ends, and so nobody is held up any more. Or there is no memory for a worker of it.
    while (turn() != nullptr) {
    }
}

std::shared_ptr<lock_lane> lock_description::turn(unsigned* took) noexcept
{
    std::shared_ptr<step> s;
    {
        const std::lock_guard lock(queue_mutex_);
        s = queue_.front();
    }
    bool is_done = true;
    try {
        is_done = do_step(*s);
    } catch (const std::bad_alloc&) {
        is_done = !begins_again(*s);
    }
    if (took != nullptr)
        *took = calls_of_a_turn - calls_;
    std::shared_ptr<lock_lane> next;
    {
        const std::lock_guard lock(queue_mutex_);
        if (is_done)
            queue_.pop_front();
        is_busy_ = !queue_.empty();
        if (is_busy_)
            next = queue_.front()->lane;
    }
    if (is_done)
        s->end();
    return next;
}

// A step that lacked memory. What the kernel holds may not be what is known of it. The end of a lock is tried some more
// times, as nobody else does it.
bool lock_description::begins_again(step& s) noexcept
{
    constexpr unsigned most_tries = 16;
    owes_ = all_in_doubt_ = true;
    if (s.what == step::kind::keep && s.tries_++ < most_tries)
        return true;
    s.failed = ENOMEM;
    try {
        end_step(s);
    } catch (const std::bad_alloc&) { // the next step ends it
    }
    return false;
}

bool lock_description::do_step(step& s)
{
    calls_ = calls_of_a_turn;
    looks_ = looks_of_a_turn;
    bool is_done = true;
    switch (s.what) {
    case step::kind::lock:
        if (s.now_ == stage::begins)
            s.now_ = begin_lock(s);
        if (s.now_ == stage::replaces)
            s.now_ = replace(s);
        if (s.now_ == stage::takes)
            s.now_ = take(s);
        if (s.now_ == stage::undoes && sync(s))
            s.now_ = stage::ended;
        // However it ends; but what was just refused is not tried again at once.
        if (s.now_ == stage::ended && is_behind_ && !s.is_unseen_ && s.failed == 0) {
            is_behind_ = false;
            s.at_ = 0;
            s.now_ = stage::catches_up;
        }
        if (s.now_ == stage::catches_up)
            s.now_ = catch_up(s);
        is_done = s.now_ == stage::ended;
        break;
    case step::kind::test: test(s); break;
    case step::kind::keep: is_done = keep(s); break;
    case step::kind::nothing: break;
    }
    if (is_done)
        end_step(s);
    return is_done;
}

// --- A lock

lock_description::stage lock_description::begin_lock(step& s)
{
    if (conflicts_with_others(s))
        return stage::ended;
    const byte_range bytes{s.bytes.bytes.offset, std::min(s.bytes.bytes.last, max_offset)};
    if (bytes.offset > max_offset || has(bytes, s.bytes.type)) { // behind it no process can lock
        grant(s);
        return stage::ended;
    }
    if (!fd_) {
        if (!may_have_another(s)) {
            s.who->unseen->add_limit();
            grant(s);
            return stage::ended;
        }
        fd_ = open_again(s.path.get(), O_RDONLY);
        if (!fd_)
            return open_failed(s, errno);
        note_open(s.peer);
        is_behind_ = true;
    }
    s.at_ = bytes.offset;
    if (s.bytes.type == lock_type::read || may_write_)
        return stage::takes;
    // What is denied opens nothing for writing: that breaks leases and is seen as a change by who watches the file.
    (void)find_holder(s, fd_.get()); // without an answer take() decides
    if (s.holder)
        return stage::ended;
    s.fresh_ = open_again(fd_.get(), O_RDWR);
    if (!s.fresh_)
        return open_failed(s, errno);
    s.at_ = 0;
    return stage::replaces;
}

lock_description::stage lock_description::open_failed(step& s, int failed)
{
    // Under a lease, which is being broken now; or out of reach; or the caller makes room.
    if (!is_lacking(failed) || (lacks_descriptors(failed) && !s.is_last)) {
        s.failed = failed;
    } else {
        s.who->unseen->add(failed);
        grant(s);
    }
    return stage::ended;
}

// What the old description holds is locked by the new one before the old one, and its locks, go. All of that is to
// read, so both may hold it, and no local process comes in between.
lock_description::stage lock_description::replace(step& s)
{
    for (const locked_range& one : in_kernel_.overlapping({s.at_, max_offset})) {
        if (is_spent())
            return stage::replaces;
        if (const int failed = set(s.fresh_.get(), one.bytes, F_RDLCK); failed != 0) {
            // Somebody has what the old description should hold, so that nobody can say who has what.
            if (is_refused(failed) && is_locked_by_others(s.fresh_.get(), one.bytes)) {
                s.failed = EAGAIN;
                return stage::ended;
            }
            if (is_refused(failed) || is_lacking(failed))
                return grant_unseen(s, failed);
            s.failed = failed;
            return stage::ended;
        }
        s.at_ = one.bytes.last + 1;
    }
    fd_ = std::move(s.fresh_);
    may_write_ = is_behind_ = true;
    doubtful_ = {};
    all_in_doubt_ = false;
    s.at_ = s.bytes.bytes.offset;
    return stage::takes;
}

// Usually one call of the kernel's, all or nothing. What the party has locked to write it keeps so: then the rest is
// taken around that.
lock_description::stage lock_description::take(step& s)
{
    constexpr unsigned most_tries = 4; // the holder may have gone before we look at who it is
    const std::uint64_t last = std::min(s.bytes.bytes.last, max_offset);
    while (s.at_ <= last) {
        if (is_spent())
            return stage::takes;
        --looks_;
        byte_range piece{s.at_, last};
        if (s.bytes.type == lock_type::read)
            for (const locked_range& one : s.who->held.overlapping(piece)) {
                if (one.type != lock_type::write)
                    continue;
                piece.last = one.bytes.offset > s.at_ ? one.bytes.offset - 1 : one.bytes.last;
                break;
            }
        const auto own = s.who->held.overlapping({s.at_, s.at_});
        const bool is_to_stay =
            s.bytes.type == lock_type::read && !own.empty() && own.front().type == lock_type::write;
        if (is_to_stay || has(piece, s.bytes.type)) {
            s.at_ = std::min(piece.last, last) + 1;
            continue;
        }
        const int failed = set(piece, s.bytes.type);
        if (failed == 0) {
            s.at_ = piece.last + 1;
            continue;
        }
        if (!is_refused(failed) && is_lacking(failed))
            return grant_unseen(s, failed);
        if (!is_refused(failed)) {
            s.failed = failed;
            if (parties_.empty()) // the description goes
                return stage::ended;
            s.last_ = piece.last;
            s.at_ = s.bytes.bytes.offset;
            return stage::undoes;
        }
        (void)find_holder(s, fd_.get());
        if (!s.holder) {
            if (++s.tries_ < most_tries)
                continue;
            // A security module says so of each lock. A file system that means a conflict by it names the holder.
            if (failed == EACCES)
                return grant_unseen(s, failed);
            s.holder = storage::local_holder{{piece.offset, piece.last, true}, 0};
        }
        if (s.at_ == s.bytes.bytes.offset)
            return stage::ended;
        s.last_ = s.at_ - 1;
        s.at_ = s.bytes.bytes.offset;
        return stage::undoes;
    }
    grant(s);
    return stage::ended;
}

lock_description::stage lock_description::grant_unseen(step& s, int failed)
{
    s.who->unseen->add(failed);
    grant(s);
    s.is_unseen_ = true;
    return stage::ended;
}

// A description that was just opened tries what the file system did not have before. Nobody is told of what it
// refuses again.
lock_description::stage lock_description::catch_up(step& s)
{
    for (;;) {
        if (is_spent())
            return stage::catches_up;
        const segment next = wanted_from(s.at_);
        const bool can = next.type && (*next.type == lock_type::read || may_write_);
        if (can && !has({s.at_, next.last}, *next.type)) {
            const int failed = set({s.at_, next.last}, next.type);
            if (failed != 0 && !is_refused(failed))
                return stage::ended;
        }
        if (next.last == max_offset)
            return stage::ended;
        s.at_ = next.last + 1;
    }
}

// The party has it, be it that the kernel has not.
void lock_description::grant(step& s)
{
    files::byte_ranges& held = s.who->held;
    std::vector<locked_range> to_write; // which stay so
    if (s.bytes.type == lock_type::read)
        for (const locked_range& one : held.overlapping(s.bytes.bytes))
            if (one.type == lock_type::write)
                to_write.push_back(one);
    held.set(s.bytes.bytes, s.bytes.type);
    for (const locked_range& one : to_write)
        held.set(one.bytes, one.type);
    if (std::ranges::find(parties_, s.who) == parties_.end())
        parties_.push_back(s.who);
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

// Against a lock to read.
bool lock_description::is_locked_by_others(int fd, const byte_range& bytes) noexcept
{
    struct flock found = to_kernel(bytes, F_RDLCK);
    return ::fcntl(fd, F_OFD_GETLK, &found) == 0 && found.l_type != F_UNLCK;
}

// 0, or why the kernel does not say. Nobody is found then.
int lock_description::find_holder(step& s, int fd) noexcept
{
    struct flock found = to_kernel(s.bytes.bytes, to_kernel(s.bytes.type));
    if (::fcntl(fd, F_OFD_GETLK, &found) != 0)
        return errno;
    if (found.l_type != F_UNLCK)
        s.holder = holder_of(found);
    return 0;
}

void lock_description::test(step& s)
{
    if (conflicts_with_others(s) || s.bytes.bytes.offset > max_offset)
        return;
    unique_fd for_this_call;
    int failed = 0;
    if (!fd_)
        for_this_call = open_again(s.path.get(), O_RDONLY);
    if (fd_ || for_this_call)
        failed = find_holder(s, fd_ ? fd_.get() : for_this_call.get());
    else
        failed = errno;
    if (failed != 0 && (!is_lacking(failed) || lacks_descriptors(failed)))
        s.failed = failed; // anything else lock() counts as not seen
}

// --- The end of locks

bool lock_description::keep(step& s)
{
    if (s.now_ == stage::begins) {
        files::byte_ranges left = s.who->held; // all or nothing
        left.clear(s.bytes.bytes);
        for (const locked_range& one : s.kept)
            left.set(one.bytes, one.type);
        s.who->held = std::move(left);
        std::erase_if(parties_, [](const auto& p) { return p->held.empty(); });
        const byte_range area = std::exchange(owes_, false) ? everything : s.bytes.bytes;
        s.at_ = area.offset;
        s.last_ = std::min(area.last, max_offset);
        s.now_ = stage::syncs;
    }
    return !fd_ || parties_.empty() || sync(s);
}

// The answer to a lock was lost, as by a server that did not say: the kernel may hold it or not. So it is told what is
// to be there. False: there is more to do.
bool lock_description::end_doubt(step& s)
{
    if (all_in_doubt_) {
        doubtful_ = {};
        doubtful_.set({0, max_offset}, lock_type::read);
        all_in_doubt_ = false;
    }
    while (!doubtful_.empty()) {
        if (is_spent())
            return false;
        const byte_range first = doubtful_.all().front().bytes;
        const segment wanted = wanted_from(first.offset);
        const byte_range part{first.offset, std::min(wanted.last, first.last)};
        const bool is_to_read = wanted.type && !may_write_;
        const int failed = set(part, is_to_read ? lock_type::read : wanted.type);
        if (failed != 0 && !is_refused(failed)) {
            owes_ = true;
            s.who->unseen->add(failed);
            return true; // the next end of a lock tries again
        }
        doubtful_.clear(part);
    }
    return true;
}

// Of the step's bytes the kernel is to hold no more than the parties do. What it lacks of that it lacks on.
bool lock_description::sync(step& s)
{
    if (!end_doubt(s))
        return false;
    while (s.at_ <= s.last_) {
        if (is_spent())
            return false;
        const auto there = in_kernel_.overlapping({s.at_, s.last_});
        if (there.empty())
            return true;
        const locked_range first = there.front();
        s.at_ = std::max(s.at_, first.bytes.offset);
        const segment wanted = wanted_from(s.at_);
        byte_range part{s.at_, std::min(wanted.last, s.last_)};
        int failed = 0;
        if (!wanted.type) {
            failed = set(part, std::nullopt);
        } else {
            part.last = std::min(part.last, first.bytes.last);
            if (*wanted.type == lock_type::read && first.type == lock_type::write)
                failed = set(part, lock_type::read);
        }
        if (failed != 0) {
            owes_ = true;
            s.who->unseen->add(failed);
        }
        s.at_ = part.last + 1;
    }
    return true;
}

void lock_description::end_step(step& s)
{
    s.fresh_.reset();
    if (parties_.empty()) {
        if (fd_)
            note_closed();
        fd_.reset();
        path_.reset();
        in_kernel_ = {};
        doubtful_ = {};
        may_write_ = owes_ = is_behind_ = all_in_doubt_ = false;
    } else if (fd_) {
        path_.reset();
        read_again();
    } else if (!path_) {
        path_ = std::move(s.path);
    }
    s.path.reset(); // here, since whoever asked is on a shard
}

// Without a lock to write, a descriptor that is open for writing would prevent leases of the file for nothing.
void lock_description::read_again()
{
    const auto is_to_write = [](const locked_range& one) { return one.type == lock_type::write; };
    if (!may_write_ || in_kernel_.size() > most_to_read_again ||
        std::ranges::any_of(in_kernel_.all(), is_to_write))
        return;
    unique_fd fresh = open_again(fd_.get(), O_RDONLY);
    if (!fresh)
        return;
    for (const locked_range& one : in_kernel_.all())
        if (set(fresh.get(), one.bytes, F_RDLCK) != 0)
            return;
    fd_ = std::move(fresh);
    doubtful_ = {};
    all_in_doubt_ = may_write_ = false;
}

// --- The kernel

lock_description::segment lock_description::wanted_from(std::uint64_t at) noexcept
{
    segment out{std::nullopt, max_offset};
    for (const auto& p : parties_) {
        looks_ -= looks_ > 0;
        const auto there = p->held.overlapping({at, max_offset});
        if (there.empty())
            continue;
        const locked_range& first = there.front();
        if (first.bytes.offset > at) {
            out.last = std::min(out.last, first.bytes.offset - 1);
            continue;
        }
        out.last = std::min(out.last, first.bytes.last);
        if (!out.type || first.type == lock_type::write)
            out.type = first.type;
    }
    return out;
}

// All of `bytes`, so or more.
bool lock_description::has(const byte_range& bytes, lock_type type) const noexcept
{
    std::uint64_t at = bytes.offset;
    if (all_in_doubt_)
        return false;
    for (const locked_range& one : in_kernel_.overlapping(bytes)) {
        if (one.bytes.offset > at || (type == lock_type::write && one.type == lock_type::read))
            return false;
        if (one.bytes.last >= bytes.last)
            return true;
        at = one.bytes.last + 1;
    }
    return false;
}

int lock_description::set(int fd, const byte_range& bytes, short type) noexcept
{
    calls_ -= calls_ > 0;
    struct flock lock = to_kernel(bytes, type);
    return ::fcntl(fd, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

// By the description, which notes what it holds. Nothing for `type`: unlocks.
int lock_description::set(const byte_range& bytes, std::optional<lock_type> type)
{
    const int failed = set(fd_.get(), bytes, type ? to_kernel(*type) : short(F_UNLCK));
    if (failed == 0 && type)
        in_kernel_.set(bytes, *type);
    else if (failed == 0)
        in_kernel_.clear(bytes);
    if (failed == 0) {
        doubtful_.clear(bytes);
    } else if (type && !is_refused(failed) && !is_lacking(failed)) {
        const bool is_full = doubtful_.size() >= most_doubtful;
        doubtful_.set(is_full ? byte_range{0, max_offset} : bytes, lock_type::read);
    }
    return failed;
}

// --- Shares of descriptors

bool lock_description::may_have_another(const step& s) const noexcept
{
    if (held() >= s.most)
        return false;
    description_list& list = descriptions();
    const std::lock_guard lock(list.mutex);
    const auto its = list.of_peer.find(s.peer);
    return s.peer == 0 || its == list.of_peer.end() || its->second < std::max<std::size_t>(1, s.most / 2);
}

void lock_description::note_open(std::uint64_t peer)
{
    held_.fetch_add(1, std::memory_order_relaxed);
    peer_ = peer;
    description_list& list = descriptions();
    const std::lock_guard lock(list.mutex);
    ++list.of_peer[peer];
}

void lock_description::note_closed() noexcept
{
    held_.fetch_sub(1, std::memory_order_relaxed);
    description_list& list = descriptions();
    const std::lock_guard lock(list.mutex);
    const auto its = list.of_peer.find(peer_);
    if (its != list.of_peer.end() && --its->second == 0)
        list.of_peer.erase(its);
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
        if (!about_ || grants_ == 0)
            return;
        try {
            keep(everything.offset, everything.last, {});
        } catch (const std::bad_alloc&) { // the last of the description's users lets go of it
        }
    }

    task<result<std::optional<storage::local_holder>>> lock(storage::lock_range bytes,
                                                            std::uint64_t peer) override
    {
        ++grants_;
        auto asked = co_await ask(step::kind::lock, bytes, peer);
        const bool may_hold = asked ? !*asked : asked.error() == std::errc::operation_canceled;
        if (!may_hold && grants_ > 0)
            --grants_;
        co_return asked;
    }
    task<result<std::optional<storage::local_holder>>> test(storage::lock_range bytes) override
    {
        return ask(step::kind::test, bytes, 0);
    }
    void keep(std::uint64_t offset, std::uint64_t last, std::span<const storage::lock_range> held) override
    {
        if (!about_) // it has never had a lock
            return;
        const auto s = make(step::kind::keep);
        s->bytes.bytes = {offset, last};
        for (const storage::lock_range& one : held)
            s->kept.push_back(to_files(one));
        last_ = s;
        about_->add(s);
        if (offset == everything.offset && last == everything.last && held.empty())
            grants_ = 0;
    }
    task<void> settle() override
    {
        std::shared_ptr<step> s = last_.lock();
        if (!s || s->is_done())
            co_return;
        if (s->is_awaited()) { // by somebody else
            s = make(step::kind::nothing);
            about_->add(s);
        }
        (void)co_await step_awaiter(std::move(s));
    }

private:
    using step = lock_description::step;
    static locked_range to_files(const storage::lock_range& r) noexcept
    {
        return {{r.offset, r.last}, r.exclusive ? lock_type::write : lock_type::read};
    }
    std::shared_ptr<step> make(step::kind what) const
    {
        return std::make_shared<step>(what, me_, of_.lock_lane_);
    }
    task<result<std::optional<storage::local_holder>>> ask(step::kind what, storage::lock_range bytes,
                                                           std::uint64_t peer);

    backend& of_;
    const storage::handle file_;
    const std::shared_ptr<lock_description::party> me_;
    std::shared_ptr<lock_description> about_; // once something was asked
    std::weak_ptr<step> last_;                // of keep()
    std::size_t grants_ = 0;                  // since it had nothing: locks that it may hold
};

task<result<std::optional<storage::local_holder>>>
backend::inode_locks::ask(step::kind what, storage::lock_range bytes, std::uint64_t peer)
{
    shard& s = of_.at(co_await this_reactor());
    for (bool again = false;; again = true) {
        auto opened_file = co_await of_.open_file(s, file_);
        if (!opened_file)
            co_return opened_file.error();
        file_ref f = std::move(*opened_file);
        if (!f->is_regular())
            co_return error::from_errno(EINVAL, "locks of what is no regular file");
        if (!about_)
            about_ = lock_description::of(f->dev, f->ino);
        s.files.keep_within_budget();
        const auto asked = make(what);
        asked->bytes = to_files(bytes);
        asked->peer = peer;
        asked->most =
            of_.options_.most_lock_files != 0 ? of_.options_.most_lock_files : descriptor_cache::budget() / 4;
        asked->is_last = again;
        // Of its own, since nobody waits for it any more where the shard stops.
        asked->path.reset(::fcntl(f->path.get(), F_DUPFD_CLOEXEC, 0));
        asked->failed = asked->path ? 0 : errno;
        if (asked->path) {
            about_->add(asked);
            const bool is_done = co_await step_awaiter(asked);
            if (!is_done)
                co_return error(std::errc::operation_canceled);
        }
        if (asked->failed == 0)
            co_return asked->holder;
        if (again || !lacks_descriptors(asked->failed))
            co_return error::from_errno(asked->failed, "a lock of the file system");
        f = {};
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
