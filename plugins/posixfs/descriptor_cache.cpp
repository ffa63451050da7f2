// SPDX-License-Identifier: Apache-2.0
#include "descriptor_cache.hpp"

#include "file_status.hpp"
#include "fnv1a.hpp"
#include "identity.hpp"
#include "pins.hpp"

#include <verbena/core/reactor/reactor.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <limits>
#include <new>
#include <sys/resource.h>

namespace verbena::posixfs {

namespace {

/// Closes a descriptor on the pool. It counts as held no more, or caches would give up all they have until it is closed.
class closing final : public blocking_pool::job {
public:
    explicit closing(unique_fd fd) noexcept : fd_(fd.release()) {}
    closing(const closing&) = delete;
    ~closing() { ::close(fd_); }
    void execute() noexcept override { delete this; }
    void deliver() noexcept override {}

private:
    const int fd_;
};

} // namespace

/// What was open for writing, to be closed on the pool: the last of a file on a disk may begin to write it, or wait for a journal.
class closing_writers final : public blocking_pool::job {
public:
    closing_writers() = default;
    closing_writers(const closing_writers&) = delete;
    ~closing_writers() = default;
    void execute() noexcept override { delete this; }
    void deliver() noexcept override {}

    writers_given_up all;
};

writers_given_up::~writers_given_up()
{
    for (const int fd : paths)
        ::close(fd);
}

void close_where_it_may_last(blocking_pool& pool, unique_fd fd, bool always) noexcept
{
    struct stat st{};
    if (!fd || (!always && (file_status(fd.get(), st) != 0 || !S_ISREG(st.st_mode) || st.st_nlink != 0 ||
                            size_to_free(st) < large_file)))
        return;
    try {
        auto* const job = new closing(std::move(fd)); // deletes itself
        if (!pool.submit(*job))
            delete job;
    } catch (const std::bad_alloc&) { // `fd` is closed here
    }
}

// Other hosts' file systems, and FUSE, may answer a close as late as they like, and write what was cached before.
cached_file::~cached_file()
{
    ask_all_but(-1);
    close_where_it_may_last(pool, std::move(sync), !mount->local);
}

void cached_file::ask(int fd) const noexcept
{
    // To wait for nothing at the largest offset is to ask.
    if (uncommitted && mount->local &&
        ::sync_file_range(fd, std::numeric_limits<off64_t>::max() - 1, 1, SYNC_FILE_RANGE_WAIT_BEFORE) != 0 &&
        (errno == EIO || errno == ENOSPC || errno == EDQUOT))
        syncs.lost();
}

void cached_file::ask_all_but(int fd) const noexcept
{
    for (const auto& user : users) {
        if (user->write && user->write->get() != fd)
            ask(user->write->get());
    }
    if (sync && sync.get() != fd)
        ask(sync.get());
}

void cached_file::let_go_of_writer(const shared_fd& writer) noexcept
{
    if (uncommitted && mount->local && !mount->in_memory && !sync) {
        act_as_daemon();
        sync.reset(::open(fd_path(path.get()).text(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
        // What the daemon may not open is synced with its file system, and whoever syncs that is told.
        if (!sync && errno != EACCES)
            syncs.lost();
    }
    ask(writer.get()); // what failed before that was open
}

shard_ref<user_descriptors> cached_file::find(const storage::credential& who) noexcept
{
    for (std::size_t i = 0; i < users.size(); ++i) {
        if (users[i]->who == who) {
            if (i != 0)
                std::swap(users[i], users[i - 1]);
            return users[i != 0 ? i - 1 : 0];
        }
    }
    return {};
}

shard_ref<user_descriptors> cached_file::find_or_add(const storage::credential& who)
{
    if (auto found = find(who))
        return found;
    if (users.size() >= max_users) {
        if (users.back()->write)
            let_go_of_writer(*users.back()->write);
        users.pop_back();
    }
    shard_ref<user_descriptors> made(new user_descriptors(who));
    users.insert(users.begin(), made);
    return made;
}

std::uint64_t name_guesses::key_of(const storage::handle& directory, std::string_view name) noexcept
{
    const std::uint64_t x = fnv1a(name, fnv1a(directory.bytes()));
    return x ^ (x >> 29);
}

void name_guesses::note(const storage::handle& directory, std::string_view name, const storage::handle& file)
{
    if (entries_.empty())
        entries_.resize(max_entries);
    const std::uint64_t key = key_of(directory, name);
    entry& e = entries_[key % max_entries];
    e.key = key;
    e.file = file;
}

const storage::handle* name_guesses::find(const storage::handle& directory,
                                          std::string_view name) const noexcept
{
    if (entries_.empty())
        return nullptr;
    const std::uint64_t key = key_of(directory, name);
    const entry& e = entries_[key % max_entries];
    return e.key == key && !e.file.empty() ? &e.file : nullptr;
}

void removal_log::add(const storage::handle& h, event what)
{
    std::lock_guard lock(mutex_);
    const auto i = static_cast<std::size_t>(what);
    if (entries_[i].empty()) {
        try {
            entries_[i].resize(max_entries);
        } catch (const std::bad_alloc&) {
            counts_[i] += max_entries; // so that readers see that they missed it
        }
    }
    if (!entries_[i].empty())
        entries_[i][counts_[i] % max_entries] = h;
    ++counts_[i];
    count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

removal_log::position removal_log::end()
{
    std::lock_guard lock(mutex_);
    return {count_.load(std::memory_order_relaxed), counts_};
}

descriptor_cache::descriptor_cache(std::size_t limit, removal_log& removals, blocking_pool& pool,
                                   sync_group& syncs, pin_table& pins)
    : limit_(limit),
      removals_(removals),
      pool_(pool),
      removals_seen_(removals.end()),
      buckets_(std::bit_ceil(limit), nullptr),
      syncs_(syncs),
      pins_(pins)
{
    caches_.fetch_add(1, std::memory_order_relaxed);
}

descriptor_cache::~descriptor_cache()
{
    while (cached_file* f = uses_.front())
        remove(*f);
    caches_.fetch_sub(1, std::memory_order_relaxed);
}

std::size_t descriptor_cache::bucket_of(const storage::handle& h) const noexcept
{
    const std::uint64_t x = fnv1a(h.bytes(), h.bytes().size());
    return std::size_t(x ^ (x >> 29)) & (buckets_.size() - 1);
}

file_ref descriptor_cache::find(const storage::handle& h) noexcept
{
    if (removals_seen_.all != removals_.count())
        read_removals();
    for (cached_file* f = buckets_[bucket_of(h)]; f != nullptr; f = f->next_in_bucket) {
        if (f->handle == h) {
            f->last_use = sweeps_;
            uses_.push_back(*f);
            return file_ref(f);
        }
    }
    return {};
}

file_ref descriptor_cache::insert(const storage::handle& h, unique_fd path, const mount_point* mount,
                                  std::uint64_t fsid, const struct stat& st)
{
    if (file_ref present = find(h)) {
        close_where_it_may_last(pool_, std::move(path), !mount->local);
        return present;
    }
    while (size_ >= limit_)
        remove(*uses_.front());
    keep_within_budget();
    auto* f = new cached_file(h, std::move(path), mount, fsid, st, pool_, syncs_, alive_);
    file_ref ref(f);
    ++f->references; // the cache's own
    f->last_use = sweeps_;
    cached_file*& bucket = buckets_[bucket_of(h)];
    f->next_in_bucket = bucket;
    bucket = f;
    uses_.push_back(*f);
    ++size_;
    arm();
    return ref;
}

void descriptor_cache::remove(cached_file& f) noexcept
{
    for (cached_file** at = &buckets_[bucket_of(f.handle)]; *at != nullptr; at = &(*at)->next_in_bucket) {
        if (*at == &f) {
            *at = f.next_in_bucket;
            break;
        }
    }
    // A file that was made here may be open without a descriptor of its own: see backend::open().
    if (f.writes.is_linked())
        pins_.give_later({f.handle, f.path.get(), *f.mount, f.path.shared()});
    f.unlink();
    f.writes.unlink();
    --size_;
    file_ref ref(&f);
    --f.references;
}

void descriptor_cache::drop(const storage::handle& h) noexcept
{
    if (file_ref f = find(h))
        remove(*f);
}

void descriptor_cache::shrink() noexcept
{
    for (std::size_t n = size_ / 2 + 1; n > 0 && !uses_.empty(); --n)
        remove(*uses_.front());
}

std::size_t descriptor_cache::budget() noexcept
{
    static const std::size_t half = [] {
        rlimit limit{};
        ::getrlimit(RLIMIT_NOFILE, &limit);
        return static_cast<std::size_t>(std::min<rlim_t>(limit.rlim_cur, std::size_t(1) << 30)) / 2;
    }();
    return half;
}

void descriptor_cache::keep_within_budget() noexcept
{
    const std::size_t most = budget();
    const std::size_t gentle = most - most / 3;
    if (unique_fd::held() < gentle)
        return;
    // A file that is read or written takes three or so, more if by several callers.
    const std::size_t caches = std::max<std::size_t>(caches_.load(std::memory_order_relaxed), 1);
    const std::size_t part = std::max(spared_files, gentle / 3 / caches);
    std::size_t held = 0;
    while ((held = unique_fd::held()) >= gentle && size_ > (held < most ? part : spared_files))
        remove(*uses_.front());
}

void descriptor_cache::read_removals() noexcept
{
    using event = removal_log::event;
    const auto tell = [this](const storage::handle& h, event what) {
        for (cached_file* f = buckets_[bucket_of(h)]; f != nullptr; f = f->next_in_bucket) {
            if (f->handle == h) {
                if (what == event::new_acl)
                    ++f->acl_changes;
                else
                    remove(*f);
                return;
            }
        }
    };
    const auto missed = [this](event what) {
        if (what == event::new_acl) {
            // It may have been any file's. They stay open, and whoever uses one is asked for again.
            for (cached_file* const head : buckets_)
                for (cached_file* f = head; f != nullptr; f = f->next_in_bucket)
                    ++f->acl_changes;
            return;
        }
        while (cached_file* f = uses_.front())
            remove(*f);
    };
    removals_.read(removals_seen_, tell, missed);
}

void descriptor_cache::arm() noexcept
{
    reactor* shard = reactor::current();
    if (shard != nullptr && !sweeper_.is_armed())
        shard->timers().arm(sweeper_, shard->clock().now() + write_interval);
}

void descriptor_cache::tick() noexcept
{
    read_removals();
    ++seconds_;
    close_writers();
    look_for_removed();
    if (seconds_ % sweep_interval == 0)
        sweep();
    if (size_ != 0)
        arm();
}

void descriptor_cache::sweep() noexcept
{
    ++sweeps_;
    while (cached_file* f = uses_.front()) {
        if (sweeps_ - f->last_use < 3)
            break;
        remove(*f);
    }
    keep_within_budget();
}

void descriptor_cache::close_writers() noexcept
{
    intrusive_list<cached_file::writer> busy;
    std::unique_ptr<closing_writers> gone;
    while (cached_file::writer* w = writers_.front()) {
        if (seconds_ - w->last_use < 2)
            break;
        if (w->file.references == 1) { // the cache's own
            try {
                if (!gone)
                    gone = std::make_unique<closing_writers>();
            } catch (const std::bad_alloc&) { // they stay a second more
                break;
            }
            w->unlink();
            stop_writing(w->file, gone->all);
        } else {
            busy.push_back(*w);
        }
    }
    while (cached_file::writer* w = busy.pop_front())
        writers_.push_front(*w);
    if (!gone || gone->all.empty())
        return;
    if (pool_.submit(*gone)) [[maybe_unused]]
        const auto* const deletes_itself = gone.release();
}

void descriptor_cache::give_up_writers(const storage::handle& file, writers_given_up& gone) noexcept
{
    for (cached_file* f = buckets_[bucket_of(file)]; f != nullptr; f = f->next_in_bucket) {
        if (f->handle == file)
            return give_up_writers(file_ref(f), gone);
    }
}

void descriptor_cache::give_up_writers(const file_ref& file, writers_given_up& gone) noexcept
{
    if (!file->writes.is_linked() || file->references != 2) // the cache's own, and the caller's
        return;
    file->writes.unlink();
    stop_writing(*file, gone);
}

void descriptor_cache::stop_writing(cached_file& f, writers_given_up& gone) noexcept
{
    for (const auto& user : f.users) {
        if (user->write)
            f.let_go_of_writer(*user->write);
        try {
            if (user->write && !f.mount->in_memory)
                gone.writers.push_back(std::move(user->write));
        } catch (const std::bad_alloc&) { // it is closed here
        }
        user->write.reset();
    }
    if (f.path.is_path_only())
        return;
    unique_fd made(f.mount->local ? ::open(fd_path(f.path.get()).text(), O_PATH | O_CLOEXEC) : -1);
    const auto go = [&] { // who has it open may be kept by it alone
        pins_.give_later({f.handle, f.path.get(), *f.mount, f.path.shared()});
        remove(f);
    };
    if (!made)
        return go(); // another host might be asked: the next call does so, on the pool
    try {
        path_descriptor path(pool_, std::move(made), *f.mount);
        if (!f.mount->in_memory)
            gone.paths.reserve(gone.paths.size() + 1);
        std::swap(f.path, path);
        if (!f.mount->in_memory)
            gone.paths.push_back(path.release());
    } catch (const std::bad_alloc&) {
        return go();
    }
    pins_.give_later({f.handle, f.path.get(), *f.mount, f.path.shared()});
}

// Its space is free when nobody holds it open.
void descriptor_cache::look_for_removed() noexcept
{
    std::size_t seen = 0;
    for (std::size_t i = (buckets_.size() + 1) / 2; i > 0 && seen < looked_at; --i) {
        cached_file* next = buckets_[next_look_++ % buckets_.size()];
        while (cached_file* const f = next) {
            next = f->next_in_bucket;
            ++seen;
            struct stat st{};
            if (f->references == 1 && f->mount->local && file_status(f->path.get(), st) == 0 &&
                st.st_nlink == 0 && !pins_.keeps({f->handle, f->path.get(), *f->mount}, true))
                remove(*f);
        }
    }
}

} // namespace verbena::posixfs
