// SPDX-License-Identifier: Apache-2.0
#include "lease_watch.hpp"

#include "attributes.hpp"
#include "descriptor_cache.hpp"
#include "file_status.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <iterator>
#include <map>
#include <pthread.h>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>

namespace verbena::posixfs {

namespace {

// Leases that are looked at under one lock, for which a shard waits that gives a lease back.
constexpr std::size_t at_once = 64;

// Threads that start meanwhile have no signal's handler run on them.
class all_signals_blocked {
public:
    all_signals_blocked() noexcept
    {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    all_signals_blocked(const all_signals_blocked&) = delete;
    ~all_signals_blocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
    sigset_t before_{};
};

/// What changes when somebody changes what is no data.
struct file_stamp {
    explicit file_stamp(const struct stat& st) noexcept : attributes(st, 0), links(st.st_nlink) {}
    friend bool operator==(const file_stamp&, const file_stamp&) = default;
    permission_stamp attributes;
    std::uint64_t links;
};

} // namespace

/// What the thread knows of a lease.
struct lease_watch::lease_record final : remote_message {
    lease_record(reactor& r, const storage::lease_wanted& w, unique_fd f, const struct stat& st,
                 blocking_pool& p)
        : home(r), fd(f.get()), seen(st), pool(p), file(std::move(f)), wanted(w)
    {
    }
    void deliver() noexcept override
    {
        const std::shared_ptr<lease_record> here = std::move(on_its_way); // what is called may end the lease
        if (const storage::lease_wanted call = std::exchange(wanted, nullptr))
            call();
    }
    reactor& home;
    const int fd;
    const file_stamp seen;
    blocking_pool& pool;
    // Under the watch's lock.
    unique_fd file; // or it was let go
    bool is_told = false;
    // Of the lease's shard.
    storage::lease_wanted wanted;
    std::shared_ptr<lease_record> on_its_way; // itself, as a message
};

class lease_watch::held_lease final : public storage::file_lease {
public:
    held_lease(std::shared_ptr<lease_watch> watch, std::shared_ptr<lease_record> record,
               blocking_pool& pool) noexcept
        : watch_(std::move(watch)), record_(std::move(record)), pool_(pool)
    {
        held_.fetch_add(1, std::memory_order_relaxed);
    }
    ~held_lease() override
    {
        unique_fd file = watch_->forget(*record_);
        record_->wanted = nullptr;
        // Whoever waits goes on now, wherever the descriptor is closed.
        if (file)
            ::fcntl(file.get(), F_SETLEASE, F_UNLCK);
        close_where_it_may_last(pool_, std::move(file), false);
        held_.fetch_sub(1, std::memory_order_relaxed);
    }

private:
    const std::shared_ptr<lease_watch> watch_;
    const std::shared_ptr<lease_record> record_;
    blocking_pool& pool_;
};

int lease_watch::default_signal() noexcept { return SIGRTMAX - 4; }

result<std::shared_ptr<lease_watch>> lease_watch::of(int signal)
{
    if (signal == 0)
        signal = default_signal();
    if (signal < SIGRTMIN || signal > SIGRTMAX)
        return error::from_errno(EINVAL, "the signal for leases: one from SIGRTMIN to SIGRTMAX");
    static std::mutex mutex;
    static std::map<int, std::weak_ptr<lease_watch>> all;
    const std::lock_guard lock(mutex);
    std::weak_ptr<lease_watch>& known = all[signal];
    if (auto there = known.lock(); there && there->process_ == ::getpid())
        return there;
    try {
        std::shared_ptr<lease_watch> made(new lease_watch(signal));
        known = made;
        return made;
    } catch (const std::system_error& e) {
        return error(e.code(), "a thread that hears whose leases are wanted");
    }
}

lease_watch::lease_watch(int signal) : signal_(signal), process_(::getpid())
{
    const all_signals_blocked quiet;
    thread_ = std::thread([this] { listen(); });
    listener_.wait(0, std::memory_order_acquire);
}

lease_watch::~lease_watch()
{
    if (process_ != ::getpid()) {
        thread_.detach();
        return;
    }
    ends_.store(true, std::memory_order_release);
    ::pthread_kill(thread_.native_handle(), SIGIO); // which the kernel always has room for
    thread_.join();
}

void lease_watch::listen() noexcept
{
    auto next_look = std::chrono::steady_clock::now();
    listener_.store(static_cast<pid_t>(::syscall(SYS_gettid)), std::memory_order_release);
    listener_.notify_one();
    sigset_t heard;
    ::sigemptyset(&heard);
    ::sigaddset(&heard, signal_);
    ::sigaddset(&heard, SIGIO);
    for (;;) {
        siginfo_t info{};
        const timespec second{1, 0};
        const int signal =
            has_leases() ? ::sigtimedwait(&heard, &info, &second) : ::sigwaitinfo(&heard, &info);
        if (ends_.load(std::memory_order_acquire))
            return;
        // SIGIO: the queue of signals was full, and it says nothing of the descriptor (fs/fcntl.c, send_sigio_to_task()).
        if (signal == signal_ && info.si_code == POLL_MSG)
            look_at(info.si_fd);
        else if (signal > 0)
            look_at_all();
        if (const auto now = std::chrono::steady_clock::now(); now >= next_look) {
            look_for_changes();
            next_look = now + std::chrono::seconds(1);
        }
    }
}

bool lease_watch::has_leases() noexcept
{
    const std::lock_guard lock(mutex_);
    return !records_.empty();
}

// Under the lock: so the descriptor is still the lease's.
void lease_watch::look(const std::shared_ptr<lease_record>& at) noexcept
{
    if (at->is_told || ::fcntl(at->fd, F_GETLEASE) == F_RDLCK)
        return;
    tell(at);
}

void lease_watch::tell(const std::shared_ptr<lease_record>& whom) noexcept
{
    whom->is_told = true;
    whom->on_its_way = whom;
    whom->home.post_remote(*whom);
}

void lease_watch::look_for_changes() noexcept
{
    for (std::size_t seen = 0; seen < looked_at; seen += at_once) {
        const std::lock_guard lock(mutex_);
        auto it = records_.upper_bound(last_look_);
        for (std::size_t i = 0; i < at_once; ++i, ++it) {
            if (it == records_.end()) {
                last_look_ = -1;
                return;
            }
            const auto& record = it->second;
            struct stat st{};
            if (!record->is_told && file_status(record->fd, st) == 0 && !(record->seen == file_stamp(st)))
                tell(record);
            last_look_ = it->first;
        }
    }
}

void lease_watch::look_at(int fd) noexcept
{
    const std::lock_guard lock(mutex_);
    if (const auto it = records_.find(fd); it != records_.end())
        look(it->second);
}

void lease_watch::look_at_all() noexcept
{
    for (int last = -1;;) {
        const std::lock_guard lock(mutex_);
        auto it = records_.upper_bound(last);
        for (std::size_t i = 0; i < at_once; ++i, ++it) {
            if (it == records_.end())
                return;
            look(it->second);
            last = it->first;
        }
    }
}

// `f(record)`, under the lock; true: it is no more in the list.
template<class F>
void lease_watch::each(F f) noexcept
{
    for (int last = -1;;) {
        const std::lock_guard lock(mutex_);
        auto it = records_.upper_bound(last);
        for (std::size_t i = 0; i < at_once; ++i) {
            if (it == records_.end())
                return;
            last = it->first;
            it = f(it->second) ? records_.erase(it) : std::next(it);
        }
    }
}

void lease_watch::want_all_of(const blocking_pool& pool) noexcept
{
    each([&pool](const std::shared_ptr<lease_record>& r) {
        if (&r->pool == &pool && !r->is_told)
            tell(r);
        return false;
    });
}

// Of local file systems, where no close of what was open to read waits for a disk; but the file may have been removed.
void lease_watch::let_go_all_of(const blocking_pool& pool) noexcept
{
    each([&pool](const std::shared_ptr<lease_record>& r) {
        if (&r->pool != &pool)
            return false;
        if (!r->is_told)
            tell(r);
        close_where_it_may_last(r->pool, std::move(r->file), false);
        return true;
    });
}

std::size_t lease_watch::held_of(const blocking_pool& pool) noexcept
{
    std::size_t n = 0;
    each([&](const std::shared_ptr<lease_record>& r) {
        n += &r->pool == &pool;
        return false;
    });
    return n;
}

// The number of a descriptor that was let go may be another lease's by now.
unique_fd lease_watch::forget(lease_record& gone) noexcept
{
    const std::lock_guard lock(mutex_);
    if (gone.file)
        records_.erase(gone.fd);
    return std::move(gone.file);
}

result<std::unique_ptr<storage::file_lease>>
lease_watch::take(unique_fd file, reactor& home, const storage::lease_wanted& wanted, blocking_pool& pool)
{
    const int fd = file.get();
    f_owner_ex owner{F_OWNER_TID, listener_.load(std::memory_order_relaxed)};
    if (::fcntl(fd, F_SETSIG, signal_) != 0 || ::fcntl(fd, F_SETOWN_EX, &owner) != 0)
        return errno_error("a signal for a lease");
    if (::fcntl(fd, F_SETLEASE, F_RDLCK) != 0)
        return errno_error("F_SETLEASE");
    struct stat st{};
    if (file_status(fd, st) != 0)
        return errno_error("fstat"); // the lease goes with the descriptor
    auto record = std::make_shared<lease_record>(home, wanted, std::move(file), st, pool);
    std::unique_ptr<storage::file_lease> made =
        std::make_unique<held_lease>(shared_from_this(), record, pool);
    const std::lock_guard lock(mutex_);
    if (records_.empty())
        ::pthread_kill(thread_.native_handle(), SIGIO); // from now on it looks each second
    records_.emplace(fd, record);
    look(record); // its first signal may have come before
    return made;
}

} // namespace verbena::posixfs
