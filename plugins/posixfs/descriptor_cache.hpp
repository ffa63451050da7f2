// SPDX-License-Identifier: Apache-2.0
// One shard's open files: found by handle, and below that by who asks.
//
// A descriptor opened with a caller's rights is used again for that caller only, and only while the
// inode's ctime, mode and owner are as they were when the kernel allowed it, and no ACL was set here; otherwise
// the kernel is asked again. Everything here is shard-local; a pool job gets bare descriptors, and its coroutine holds
// the references meanwhile.
#pragma once

#include "attributes.hpp"
#include "handles.hpp"
#include "unique_fd.hpp"

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/timer.hpp>
#include <verbena/protocols/storage/sync_group.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <sys/stat.h>
#include <utility>
#include <vector>

namespace verbena::posixfs {

using storage::sync_group;

class pin_table;

/// A counted reference within one shard.
template<class T>
class shard_ref {
public:
    shard_ref() = default;
    explicit shard_ref(T* object) noexcept : object_(object)
    {
        if (object_ != nullptr)
            ++object_->references;
    }
    shard_ref(const shard_ref& other) noexcept : shard_ref(other.object_) {}
    shard_ref(shard_ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    shard_ref& operator=(shard_ref other) noexcept
    {
        std::swap(object_, other.object_);
        return *this;
    }
    ~shard_ref()
    {
        if (object_ != nullptr && --object_->references == 0)
            delete object_;
    }
    T* operator->() const noexcept { return object_; }
    T& operator*() const noexcept { return *object_; }
    explicit operator bool() const noexcept { return object_ != nullptr; }

private:
    T* object_ = nullptr;
};

/// What must be unchanged for the kernel's last answer about permissions to hold. ctime alone would
/// miss a chmod within one tick of the kernel's clock; mode and owner alone would miss an ACL. An ACL within one
/// tick that leaves the mode as it is shows in neither, so those that are set here are counted.
struct permission_stamp {
    permission_stamp() = default;
    /// `acls`: cached_file::acl_changes, from before the kernel was asked.
    permission_stamp(const struct stat& st, std::uint64_t acls) noexcept
        : acl_changes(acls),
          seconds(st.st_ctim.tv_sec),
          nanoseconds(st.st_ctim.tv_nsec),
          mode(st.st_mode),
          uid(st.st_uid),
          gid(st.st_gid)
    {
    }
    friend bool operator==(const permission_stamp&, const permission_stamp&) = default;

    std::uint64_t acl_changes = 0;
    std::int64_t seconds = 0;
    std::int64_t nanoseconds = 0;
    std::uint32_t mode = 0;
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
};

/// Closing the last descriptor of a removed file frees its blocks; from this size on not on a shard.
constexpr off_t large_file = off_t(1) << 20;
/// What closing the last descriptor of a removed file frees, in bytes or in what takes as long: blocks may lie beyond
/// its end.
inline off_t size_to_free(const struct stat& st) noexcept
{
    return std::max<off_t>(st.st_size, st.st_blocks * 512);
}

/// Closes a descriptor; on the pool, unless that has ended, if it may be the last of a large removed file, or `always`.
void close_where_it_may_last(blocking_pool& pool, unique_fd fd, bool always) noexcept;

/// A descriptor that several share, of whom any may be the last: replies outlive the cache. Outlived by the pool.
class shared_fd {
public:
    /// `always`: see close_where_it_may_last().
    shared_fd(blocking_pool& pool, unique_fd fd, bool always, std::shared_ptr<sending_rest> sending) noexcept
        : pool_(pool), fd_(std::move(fd)), sending_(std::move(sending)), always_(always)
    {
    }
    shared_fd(const shared_fd&) = delete;
    ~shared_fd() { close_where_it_may_last(pool_, std::move(fd_), always_); }
    int get() const noexcept { return fd_.get(); }
    /// It is the caller's alone from now on. Nobody else has it.
    int release() noexcept { return fd_.release(); }
    /// Of the mount that it is of.
    sending_rest& sending() const noexcept { return *sending_; }

private:
    blocking_pool& pool_;
    unique_fd fd_;
    std::shared_ptr<sending_rest> sending_;
    bool always_;
};

/// What a cached file is reached by. Whoever has the file open may share it, if it is an O_PATH one.
class path_descriptor {
public:
    path_descriptor(blocking_pool& pool, unique_fd fd, const mount_point& m)
        : is_path_only_(posixfs::is_path_only(fd.get())),
          fd_(std::make_shared<shared_fd>(pool, std::move(fd), !m.local, m.sending))
    {
    }
    int get() const noexcept { return fd_->get(); }
    bool is_path_only() const noexcept { return is_path_only_; }
    /// Nothing where it is not to be shared.
    std::shared_ptr<const shared_fd> shared() const noexcept { return is_path_only_ ? fd_ : nullptr; }
    int release() noexcept { return fd_->release(); }

private:
    bool is_path_only_;
    std::shared_ptr<shared_fd> fd_;
};

/// Descriptors that the kernel opened for one caller.
struct user_descriptors {
    explicit user_descriptors(const storage::credential& w) noexcept : who(w) {}
    unsigned references = 0;
    storage::credential who;
    std::shared_ptr<const shared_fd> read; ///< shared with replies that are still being sent from it
    permission_stamp read_stamp;
    std::shared_ptr<const shared_fd> write; ///< shared with writes and commits that are still synced by it
    permission_stamp write_stamp;
};

/// One file.
struct cached_file : list_hook {
    static constexpr std::size_t max_users = 8;
    /// Files of one cache that there are, those included that it has closed and somebody uses. Of its shard.
    class counted {
    public:
        explicit counted(std::size_t& all) noexcept : all_(all) { ++all_; }
        counted(const counted&) = delete;
        ~counted() { --all_; }

    private:
        std::size_t& all_;
    };
    /// In the list of files with descriptors open for writing.
    struct writer : list_hook {
        explicit writer(cached_file& f) noexcept : file(f) {}
        cached_file& file;
        std::uint64_t last_use = 0; ///< count of seconds
    };

    cached_file(const storage::handle& h, unique_fd fd, const mount_point* m, std::uint64_t of_filesystem,
                const struct stat& st, blocking_pool& p, sync_group& s, std::size_t& all)
        : is_there(all),
          pool(p),
          syncs(s),
          handle(h),
          path(p, std::move(fd), *m),
          mount(m),
          fsid(of_filesystem),
          format(st.st_mode & S_IFMT),
          dev(st.st_dev),
          ino(st.st_ino),
          birth(m->local ? birth_of(path.get()) : std::nullopt)
    {
    }
    cached_file(const cached_file&) = delete;
    ~cached_file();
    bool is_directory() const noexcept { return format == S_IFDIR; }
    bool is_regular() const noexcept { return format == S_IFREG; }
    shard_ref<user_descriptors> find(const storage::credential& who) noexcept;
    /// find(), or a new one in place of the one longest unused.
    shard_ref<user_descriptors> find_or_add(const storage::credential& who);

    /// Before a descriptor goes that wrote: has `sync` hear of what it would have told.
    void let_go_of_writer(const shared_fd& writer) noexcept;
    /// Whoever hears of an error of write-back first hears of it alone, but for descriptors that were open before it: notes one
    /// that `fd` was not told yet.
    void ask(int fd) const noexcept;
    /// Asks what wrote and `sync`, but for `fd`.
    void ask_all_but(int fd) const noexcept;
    /// A descriptor of it that is shared.
    std::shared_ptr<const shared_fd> share(unique_fd fd) const
    {
        return std::make_shared<const shared_fd>(pool, std::move(fd), !mount->local, mount->sending);
    }

    const counted is_there;
    blocking_pool& pool; ///< where descriptors are closed if that takes long
    sync_group& syncs;   ///< hears of data that could not be written
    unsigned references = 0;
    storage::handle handle;
    /// O_PATH, opened with the daemon's rights; of a file made here a duplicate of its maker's, open for writing, as long as
    /// that is. For what O_PATH is enough for.
    path_descriptor path;
    const mount_point* mount;
    std::uint64_t fsid; ///< for attributes
    mode_t format;
    // What `path` keeps alive keeps its number: no other file has it meanwhile.
    dev_t dev;
    ino_t ino;
    /// When it was made; nothing where its file system does not tell, or would ask another host.
    std::optional<storage::file_time> birth;
    /// Readable, for fsync; opened with the daemon's rights when first needed. What wrote unstably leaves it behind: whoever
    /// opened the file later would hear of no error before that, and nobody can run a file that is open for writing.
    unique_fd sync;
    bool uncommitted = false;                       ///< written unstably since the last COMMIT
    std::vector<shard_ref<user_descriptors>> users; ///< most recent first
    bool nowait_works = true; ///< its file system knows RWF_NOWAIT; those beneath one export differ
    cached_file* next_in_bucket = nullptr;
    std::uint64_t last_use = 0;    ///< sweep count
    std::uint64_t acl_changes = 0; ///< how often the shard has heard of an ACL that was set
    writer writes{*this};
};
using file_ref = shard_ref<cached_file>;

/// Which file a name led to lately: a guess, which whoever takes it must check. Shard-local.
class name_guesses {
public:
    static constexpr std::size_t max_entries = 1024;

    void note(const storage::handle& directory, std::string_view name, const storage::handle& file);
    /// nullptr: no guess. Good until the next note().
    const storage::handle* find(const storage::handle& directory, std::string_view name) const noexcept;

private:
    struct entry {
        std::uint64_t key = 0;
        storage::handle file;
    };
    static std::uint64_t key_of(const storage::handle& directory, std::string_view name) noexcept;

    std::vector<entry> entries_; // by key; a later name takes the place of an earlier one
};

/// Files removed lately, told by one shard to all: an open descriptor would keep their space. Likewise those that were given an
/// ACL: who had a right may have it no more. Each shard's cache reads it at its next call or sweep. Thread-safe.
class removal_log {
public:
    static constexpr std::size_t max_entries = 256;

    /// Of each kind so many are kept: whoever sets many ACLs has nobody miss a removal.
    enum class event { removed, new_acl };
    static constexpr std::size_t events = 2;
    /// What a reader has seen.
    struct position {
        std::uint64_t all = 0;
        std::array<std::uint64_t, events> of{};
    };

    void add(const storage::handle& h, event what = event::removed);
    /// Of all that was ever added.
    std::uint64_t count() const noexcept { return count_.load(std::memory_order_acquire); }
    position end();
    /// Calls `tell` for each entry from `seen` on; of an event, some of which were overwritten already, `missed` instead, once.
    template<class F, class G>
    void read(position& seen, F tell, G missed)
    {
        std::lock_guard lock(mutex_);
        for (std::size_t i = 0; i < events; ++i) {
            const auto& of = entries_[i];
            const auto what = static_cast<event>(i);
            if (counts_[i] - seen.of[i] > max_entries)
                missed(what);
            else
                for (std::uint64_t n = seen.of[i]; n != counts_[i]; ++n)
                    tell(of[n % max_entries], what);
            seen.of[i] = counts_[i];
        }
        seen.all = count_.load(std::memory_order_relaxed);
    }

private:
    std::mutex mutex_;
    std::atomic<std::uint64_t> count_{0};
    std::array<std::uint64_t, events> counts_{};
    // Room for max_entries of each kind from the first of them on.
    std::array<std::vector<storage::handle>, events> entries_;
};

class closing_writers;

/// What a cache had open of a file for writing. It is closed with this, which may wait for a disk.
struct writers_given_up {
    writers_given_up() = default;
    writers_given_up(writers_given_up&& other) noexcept = default;
    writers_given_up& operator=(writers_given_up&& other) noexcept
    {
        writers = std::exchange(other.writers, {});
        paths.swap(other.paths);
        return *this;
    }
    ~writers_given_up();
    bool empty() const noexcept { return writers.empty() && paths.empty(); }

    std::vector<std::shared_ptr<const shared_fd>> writers;
    std::vector<int>
        paths; // they count as held no more, or caches would give up all they have until they are closed
};

class descriptor_cache {
public:
    static constexpr std::size_t min_files = 32;
    static constexpr std::size_t max_files = 65536;
    /// Files that a cache keeps open however few descriptors there are, so that a request finds what it opened.
    static constexpr std::size_t spared_files = 8;
    /// What is open for writing, and unused for one to two of these, is closed: meanwhile nobody can run the file
    /// (ETXTBSY).
    static constexpr std::chrono::seconds write_interval{1};
    /// A file unused for two to three sweeps is closed.
    static constexpr unsigned sweep_interval = 20; ///< of those
    /// Half of the places are looked at in each of those for files that somebody local has removed, or those of so many files,
    /// which takes a shard about a millisecond.
    static constexpr std::size_t looked_at = 1024;

    descriptor_cache(std::size_t limit, removal_log& removals, blocking_pool& pool, sync_group& syncs,
                     pin_table& pins);
    ~descriptor_cache();
    descriptor_cache(const descriptor_cache&) = delete;

    /// Empty if the file isn't cached.
    file_ref find(const storage::handle& h) noexcept;
    /// Takes the descriptor; if another one of the same file came first, that one is kept.
    file_ref insert(const storage::handle& h, unique_fd path, const mount_point* mount, std::uint64_t fsid,
                    const struct stat& st);
    void drop(const storage::handle& h) noexcept;
    /// Says that `f` has a descriptor open for writing, and is written to.
    void writes(cached_file& f) noexcept
    {
        f.writes.last_use = seconds_;
        if (f.is_linked()) // others may have dropped it meanwhile
            writers_.push_back(f.writes);
    }
    /// Gives up what is open of `file` for writing, if it is cached and nobody uses it.
    void give_up_writers(const storage::handle& file, writers_given_up& gone) noexcept;
    /// The same if nobody but the caller uses it.
    void give_up_writers(const file_ref& file, writers_given_up& gone) noexcept;
    /// Closes the longer unused half: the process is out of descriptors.
    void shrink() noexcept;
    /// Closes all, and what a client has open is kept.
    void close_all() noexcept
    {
        while (cached_file* const f = uses_.front())
            remove(*f);
    }
    /// Looks no more by itself: nobody will use it on this shard again.
    void rest() noexcept { sweeper_.cancel(); }
    /// Closes all, and nothing is kept: the file system goes.
    void clear() noexcept
    {
        while (cached_file* const f = uses_.front()) {
            f->writes.unlink(); // or a pin would be given a descriptor of it
            remove(*f);
        }
    }
    /// Files that there are, those included that it has closed and that calls use.
    std::size_t alive() const noexcept { return alive_; }
    /// Closes what was unused longest while the process holds more than two thirds of budget(), which all caches
    /// share: each gives up what is beyond its even part; beyond the budget all but spared_files.
    void keep_within_budget() noexcept;
    /// Descriptors for files of all shards and exports: half of RLIMIT_NOFILE, as it was at the first call. The
    /// rest is for connections and for work under way.
    static std::size_t budget() noexcept;
    std::size_t size() const noexcept { return size_; }

private:
    class sweeper final : public timer {
    public:
        explicit sweeper(descriptor_cache& cache) noexcept : cache_(cache) {}
        void on_timer() noexcept override { cache_.tick(); }

    private:
        descriptor_cache& cache_;
    };
    std::size_t bucket_of(const storage::handle& h) const noexcept;
    void remove(cached_file& f) noexcept;
    void tick() noexcept;
    void sweep() noexcept;
    void close_writers() noexcept;
    void stop_writing(cached_file& f, writers_given_up& gone) noexcept;
    void look_for_removed() noexcept;
    void arm() noexcept;
    void read_removals() noexcept;

    static inline std::atomic<std::size_t> caches_{0};

    const std::size_t limit_;
    removal_log& removals_;
    blocking_pool& pool_;
    removal_log::position removals_seen_;
    std::vector<cached_file*> buckets_;
    sync_group& syncs_;
    pin_table& pins_;
    intrusive_list<cached_file> uses_;            // longest unused first
    intrusive_list<cached_file::writer> writers_; // likewise
    std::size_t next_look_ = 0;
    std::uint64_t seconds_ = 0;
    std::size_t size_ = 0;
    std::size_t alive_ = 0;
    std::uint64_t sweeps_ = 0;
    sweeper sweeper_{*this};
};

} // namespace verbena::posixfs
