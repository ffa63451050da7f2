// SPDX-License-Identifier: Apache-2.0
#include "root_watch.hpp"

#include <verbena/core/log.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <new>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/sysmacros.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace verbena::posixfs {

// Deletes itself.
class watched_root::job final : public blocking_pool::job {
public:
    explicit job(std::shared_ptr<watched_root> of) noexcept : of_(std::move(of)) {}
    ~job() = default;
    void execute() noexcept override
    {
        of_->settle();
        delete this;
    }
    void deliver() noexcept override {}

private:
    const std::shared_ptr<watched_root> of_;
};

namespace {

constexpr std::uint64_t no_mount = UINT64_MAX; // the number of none
constexpr const char* unanswered = " does not answer: look at what is beneath; when it answers it is served";

// What cures that its root can't be looked at.
std::string cure_of_root(int failed)
{
    switch (failed) {
    case ENOENT:
    case ENOTDIR: return "make it again, or mount what it is on";
    case EACCES:
    case EPERM: return "let this process's user in";
    // Of a mount that was ended by force, or whose disk, server or process is gone.
    case ECONNABORTED:
    case ENOTCONN:
    case ESHUTDOWN:
    case ESTALE:
    case EIO:
    case ENODEV:
    case ENXIO: return "its file system is gone: unmount what is left of it (umount -l), and mount it again";
    default: return "look at the file system that it is on";
    }
}

} // namespace

watched_root::watched_root(const posixfs_options& options, blocking_pool& lane, owner& of,
                           const standing_root& at)
    : options_(options),
      root_(options.root.string()),
      mountpoint_(options.mountpoint.string()),
      lane_(lane),
      is_up_(at.at.failed == 0),
      owner_(&of),
      at_(at.at)
{
    if (is_up_) {
        first_ = served_ = at.handles->root_mount().identity;
        asks_others_ = !at.handles->root_mount().local;
    } else {
        // One that did not answer is not asked again by whoever waits for the start.
        tell_down(at.at.failed == ETIMEDOUT ? root_ + unanswered
                                            : why(look_at_root(root_, mountpoint_, false)));
    }
}

root_state watched_root::state() const noexcept
{
    if (!is_up_.load(std::memory_order_relaxed))
        return root_state::down;
    return answers_.load(std::memory_order_relaxed) ? root_state::up : root_state::no_answer;
}

std::string watched_root::trouble() const
{
    if (state() == root_state::no_answer)
        return root_ + unanswered;
    if (is_up_.load(std::memory_order_relaxed))
        return {};
    const std::lock_guard lock(mutex_);
    return told_.empty() ? root_ + " is being opened" : told_;
}

void watched_root::leave() noexcept
{
    const std::lock_guard lock(mutex_);
    owner_ = nullptr;
}

std::string watched_root::why(const root_look& now) const
{
    if (!mountpoint_.empty() && !now.is_mounted)
        return "nothing is mounted at " + mountpoint_ + ": mount it, or leave out mountpoint";
    if (now.failed != 0)
        return root_ + ": " + std::generic_category().message(now.failed) + "; " + cure_of_root(now.failed);
    return root_ + " is another directory";
}

void watched_root::tell_down(const std::string& reason)
{
    if (std::exchange(told_, reason) == reason)
        return;
    log(log_level::warning, "posixfs",
        "an export is not served, and its clients wait, until its root is there",
        {{"export", options_.name}, {"directory", root_}, {"why", reason}});
}

void watched_root::go_down(const root_look& now)
{
    is_up_.store(false, std::memory_order_relaxed);
    owner_->stand_down();
    // The kernel gives the number of a mount that is gone to the next one.
    if (!is_still_mounted(at_.mount))
        at_.mount = no_mount;
    if (!is_good(now)) // else what is there now is opened first
        tell_down(why(now));
}

// Without a mount point that is asked for: what lay beneath a mount that is gone was not meant.
bool watched_root::may_be_served(const root_look& now, const standing_root& opened)
{
    if (!opened.at.is_same(now))
        return false; // it has changed again; the next look finds that
    const bool is_known = !served_ || *served_ == opened.handles->root_mount().identity;
    if (is_known || now.is_mount || !mountpoint_.empty() || is_still_mounted(at_.mount))
        return true;
    at_.mount = no_mount; // for good: its number may be another's tomorrow
    tell_down("the file system that " + root_ +
              " was on is unmounted, and what lay beneath is not served: mount it, or restart to serve that");
    return false;
}

void watched_root::look(clock::time_point now) noexcept
{
    try {
        const std::lock_guard lock(mutex_);
        if (is_held_)
            return;
        if (is_looking_) {
            if (now - since_ >= patience && answers_.exchange(false, std::memory_order_relaxed))
                log(log_level::warning, "posixfs",
                    "the root of an export does not answer; look at what is beneath",
                    {{"export", options_.name}, {"directory", root_}});
            return;
        }
        const root_look seen = look_at_root(root_, mountpoint_, true);
        const bool stays = is_up_.load(std::memory_order_relaxed)
                               ? is_good(seen) && seen.is_same(at_) && !asks_others_
                               : seen.failed != EAGAIN && !is_good(seen);
        if (stays || owner_ == nullptr)
            return;
        auto made = std::make_unique<job>(shared_from_this());
        is_looking_ = lane_.submit(*made);
        since_ = now;
        if (is_looking_) [[maybe_unused]]
            const auto* const deletes_itself = made.release();
    } catch (const std::bad_alloc&) { // the next look
    }
}

void watched_root::settle() noexcept
{
    try {
        const std::lock_guard turn(settling_);
        settle_or_throw();
    } catch (const std::bad_alloc&) { // the next look
    }
    const std::lock_guard lock(mutex_);
    is_looking_ = false;
    if (!answers_.exchange(true, std::memory_order_relaxed) && is_up_.load(std::memory_order_relaxed))
        log(log_level::info, "posixfs", "the root of an export answers again",
            {{"export", options_.name},
             {"directory", root_},
             {"seconds", std::chrono::duration_cast<std::chrono::seconds>(clock::now() - since_).count()}});
}

void watched_root::settle_or_throw()
{
    const root_look now = look_at_root(root_, mountpoint_, false);
    if (says_nothing(now))
        return; // the next look
    std::optional<std::uint64_t> unmarked;
    {
        const std::lock_guard lock(mutex_);
        if (owner_ == nullptr || is_held_)
            return;
        if (is_up_.load(std::memory_order_relaxed) && !(is_good(now) && now.is_same(at_)))
            go_down(now);
        if (is_up_.load(std::memory_order_relaxed) || !is_good(now))
            return;
        unmarked = first_;
    }
    auto opened = open_root(options_, unmarked);
    std::shared_ptr<measured_info> measured;
    unique_fd root;
    {
        const std::lock_guard lock(mutex_);
        if (owner_ == nullptr || is_held_ || is_up_.load(std::memory_order_relaxed) || unmarked != first_)
            return;
        if (!opened)
            return tell_down(root_ + ": " + opened.error().message());
        if (!may_be_served(now, **opened))
            return;
        const std::uint64_t identity = (*opened)->handles->root_mount().identity;
        measured = (*opened)->measured;
        root.reset(::fcntl((*opened)->handles->root_mount().fd.get(), F_DUPFD_CLOEXEC, 0));
        asks_others_ = !(*opened)->handles->root_mount().local;
        const bool is_another = served_ && *served_ != identity;
        root_look at = (*opened)->at;
        const bool was_made_anew =
            served_ && (at.ino != at_.ino || (at.born != 0 && at_.born != 0 && at.born != at_.born));
        owner_->stand_up(std::move(*opened));
        at_ = at;
        served_ = identity;
        if (!first_)
            first_ = identity;
        is_up_.store(true, std::memory_order_relaxed);
        told_.clear();
        log(log_level::info, "posixfs",
            is_another ? "an export is served by another file system: handles of the one before are stale"
            : was_made_anew
                ? "an export is served by a directory that was made anew: handles of the one before are stale"
                : "an export is served",
            {{"export", options_.name}, {"directory", root_}});
    }
    measure(*measured, std::move(root));
}

// A frozen file system holds this up, and nobody else.
void watched_root::measure(measured_info& measured, unique_fd root) const
{
    if (options_.read_only || !root)
        measured.end(std::nullopt);
    else
        measured.measure(root.get());
}

// --- Suspended

std::optional<std::string> watched_root::hold()
{
    const std::lock_guard lock(mutex_);
    if (is_held_)
        return "it is suspended already";
    if (!is_up_.load(std::memory_order_relaxed))
        return root_ + " is not there, so nothing of it is open and clients wait as it is";
    if (is_looking_)
        return std::nullopt;
    is_held_ = true;
    return std::string();
}

void watched_root::release() noexcept
{
    const std::lock_guard lock(mutex_);
    is_held_ = false;
}

std::uint64_t watched_root::begin_coming_back() noexcept
{
    const std::lock_guard lock(mutex_);
    return ++attempt_;
}

bool watched_root::give_up() noexcept
{
    const std::lock_guard lock(mutex_);
    ++attempt_;
    return is_held_;
}

std::string watched_root::come_back(std::uint64_t attempt) noexcept
{
    try {
        const std::lock_guard turn(settling_);
        return come_back_or_throw(attempt);
    } catch (const std::bad_alloc&) {
        return "no memory"; // short enough to need none
    }
}

namespace {

std::string device_text(dev_t dev) { return std::to_string(major(dev)) + ':' + std::to_string(minor(dev)); }

} // namespace

// Handles, opens and locks of clients are of that one alone.
std::string watched_root::why_not_it(const standing_root& opened) const
{
    const mount_point& mount = opened.handles->root_mount();
    char is[24], was[24];
    std::snprintf(is, sizeof(is), "%016llx", static_cast<unsigned long long>(mount.identity));
    std::snprintf(was, sizeof(was), "%016llx", static_cast<unsigned long long>(*served_));
    if (mount.identity != *served_)
        return "another file system is at " + root_ + " (id " + is + ", device " +
               device_text(opened.at.dev) + ") than was suspended (id " + was + ", device " +
               device_text(at_.dev) + "): mount that one, or restart to serve what is there";
    if (!mount.has_own_id && !opened.at.is_same(at_))
        return "the file system at " + root_ +
               " has no id of its own, so after it was unmounted nobody can tell whether it is the same: "
               "restart to serve it";
    if (opened.at.ino != at_.ino || (opened.at.born != 0 && at_.born != 0 && opened.at.born != at_.born))
        return root_ + " is another directory than was suspended: restart to serve it";
    return {};
}

std::string watched_root::come_back_or_throw(std::uint64_t attempt)
{
    const root_look now = look_at_root(root_, mountpoint_, false);
    if (!is_good(now))
        return why(now);
    std::optional<std::uint64_t> unmarked;
    {
        const std::lock_guard lock(mutex_);
        unmarked = first_;
    }
    auto opened = open_root(options_, unmarked);
    if (!opened)
        return root_ + ": " + opened.error().message();
    std::shared_ptr<measured_info> measured = (*opened)->measured;
    unique_fd root(::fcntl((*opened)->handles->root_mount().fd.get(), F_DUPFD_CLOEXEC, 0));
    {
        const std::lock_guard lock(mutex_);
        if (owner_ == nullptr || !is_held_ || attempt != attempt_)
            return "nobody waits for it any more";
        if (std::string other = why_not_it(**opened); !other.empty())
            return other;
        asks_others_ = !(*opened)->handles->root_mount().local;
        const root_look at = (*opened)->at;
        owner_->stand_up(std::move(*opened));
        at_ = at;
        is_held_ = false;
        told_.clear();
    }
    log(log_level::info, "posixfs", "an export is served again",
        {{"export", options_.name}, {"directory", root_}});
    measure(*measured, std::move(root));
    return {};
}

result<std::shared_ptr<root_watch>> root_watch::of_process()
{
    static std::mutex mutex;
    static std::weak_ptr<root_watch> known;
    const std::lock_guard lock(mutex);
    if (auto there = known.lock(); there && there->process_ == ::getpid())
        return there;
    unique_fd mounts(::open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC));
    if (!mounts)
        return error::from_errno(errno, "the mount table, /proc/self/mountinfo");
    unique_fd end(::eventfd(0, EFD_CLOEXEC));
    if (!end)
        return error::from_errno(errno, "eventfd");
    try {
        std::shared_ptr<root_watch> made(new root_watch(std::move(mounts), std::move(end)));
        known = made;
        return made;
    } catch (const std::system_error& e) {
        return error(e.code(), "a thread that looks at the roots of exports");
    }
}

root_watch::root_watch(unique_fd mounts, unique_fd end)
    : mounts_(std::move(mounts)), end_(std::move(end)), process_(::getpid())
{
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        thread_ = std::thread([this] { watch(); });
    } catch (...) {
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

root_watch::~root_watch()
{
    if (process_ != ::getpid()) {
        thread_.detach();
        return;
    }
    const std::uint64_t one = 1;
    while (::write(end_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    thread_.join();
}

void root_watch::add(std::shared_ptr<watched_root> root)
{
    const std::lock_guard lock(mutex_);
    roots_.push_back(std::move(root));
}

void root_watch::remove(const watched_root& root) noexcept
{
    const std::lock_guard lock(mutex_);
    std::erase_if(roots_, [&root](const auto& r) { return r.get() == &root; });
}

// The kernel says that the mount table has changed, but nothing of a directory that was made anew.
void root_watch::watch() noexcept
{
    for (;;) {
        pollfd fds[] = {{end_.get(), POLLIN, 0}, {mounts_.get(), POLLPRI, 0}};
        (void)::poll(fds, 2, static_cast<int>(interval.count()));
        if ((fds[0].revents & POLLIN) != 0)
            return;
        const auto now = watched_root::clock::now();
        const std::lock_guard lock(mutex_);
        for (const auto& root : roots_)
            root->look(now);
    }
}

} // namespace verbena::posixfs
