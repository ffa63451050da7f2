// SPDX-License-Identifier: Apache-2.0
// The posixfs back end.
//
// What can't block runs on the shard: fstat of a cached descriptor, a lookup that the kernel's name cache
// answers, a read from the page cache, a buffered write. The rest goes to the pool: opening by handle,
// changes of directories, listings, syncs.
#pragma once

#include "attributes.hpp"
#include "change_order.hpp"
#include "descriptor_cache.hpp"
#include "directory.hpp"
#include "file_status.hpp"
#include "handles.hpp"
#include "identity.hpp"
#include "lease_watch.hpp"
#include "local_locks.hpp"
#include "pins.hpp"
#include "root_watch.hpp"
#include "standing_root.hpp"

#include <verbena/core/task/semaphore.hpp>
#include <verbena/plugins/posixfs.hpp>
#include <verbena/protocols/storage/suspension.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace verbena::posixfs {

/// The last offset that off_t can say.
inline constexpr std::uint64_t max_offset = std::numeric_limits<std::int64_t>::max();

/// Bytes that a layout begins and ends at: any would do, as nothing is mapped.
inline constexpr std::uint32_t mapped_block = 4096;

/// Bytes of the largest extended attribute, and of the longest list of their names (XATTR_SIZE_MAX, XATTR_LIST_MAX).
inline constexpr std::size_t largest_value = 65536;

/// What becomes of a job where as many wait for the pool as may: EAGAIN, which callers hear as "try again later", or it waits all the same,
/// since something was changed already.
enum class when_full : bool { refuse, wait };

/// blocking_pool::run() or try_run(), or a call at once on the caller's thread.
template<class F>
class [[nodiscard("co_await it: nothing runs otherwise")]] shard_or_pool {
public:
    shard_or_pool(blocking_pool& pool, F&& job, bool here, when_full full) noexcept
        : inner_(pool, std::move(job), full == when_full::refuse), here_(here)
    {
    }
    bool await_ready() noexcept
    {
        if (here_)
            inner_.execute();
        return here_;
    }
    template<class Promise>
    bool await_suspend(std::coroutine_handle<Promise> h)
    {
        return inner_.await_suspend(h);
    }
    auto await_resume() { return inner_.await_resume(); }

private:
    blocking_pool::awaiter<F> inner_;
    bool here_;
};

class backend final : public storage::file_backend,
                      private watched_root::owner,
                      private storage::suspendable {
public:
    backend(const posixfs_options& options, blocking_pool& pool, std::unique_ptr<standing_root> root);
    ~backend() override;
    /// Opens what calls need; once, before the first.
    result<void> start();

    std::string_view kind() const noexcept override { return "posixfs"; }
    const storage::filesystem_info& info() const noexcept override;
    storage::handle root() const noexcept override { return handles_->root(); }
    std::optional<std::uint64_t> number_in(const storage::handle& file) const noexcept override
    {
        return inode_in(file);
    }
    bool has_local_locks() const noexcept { return unseen_.use_count() > 1; } // each has its own reference
    std::uint64_t write_verifier() const noexcept override
    {
        return verifier_ + syncs_.failures() + late_losses_->load();
    }
    std::string describe() const;
    open_file_counters counters() const noexcept { return pins_.counters(); }
    unseen_lock_counters unseen_locks_counters() const noexcept { return unseen_->counters(); }
    root_state state() const noexcept
    {
        return is_shut() ? root_state::suspended : watched_ ? watched_->state() : root_state::up;
    }
    /// nullptr without posixfs_options::watch: nobody would see what is there later.
    storage::suspendable* suspension() noexcept { return watched_ ? this : nullptr; }
    std::string trouble() const { return watched_ ? watched_->trouble() : std::string(); }
    /// From here on no root is served that is not served now. Any thread.
    void leave_root_alone() noexcept
    {
        if (watched_)
            watched_->leave();
    }
    /// Looks at the root at once, on the calling thread, which may wait. Nothing without posixfs_options::watch.
    void look_at_root() noexcept
    {
        if (watched_)
            watched_->settle();
    }

    task<result<storage::attributes>> getattr(const storage::request& r,
                                              const storage::handle& file) override;
    task<result<storage::change>> setattr(const storage::request& r, const storage::handle& file,
                                          const storage::set_attributes& set,
                                          std::optional<storage::file_time> guard) override;
    task<result<storage::lookup_result>> lookup(const storage::request& r, const storage::handle& directory,
                                                std::string_view name) override;
    task<result<unsigned>> access(const storage::request& r, const storage::handle& file,
                                  unsigned wanted) override;
    task<result<storage::opened_file>> open(const storage::request& r, const storage::handle& file,
                                            unsigned wanted, storage::open_right right) override; // open.cpp
    task<result<std::string>> readlink(const storage::request& r, const storage::handle& link) override;
    task<result<storage::read_result>> read(const storage::request& r, const storage::handle& file,
                                            std::uint64_t offset, std::span<std::byte> out) override;
    task<result<storage::located_read>> locate(const storage::request& r, const storage::handle& file,
                                               std::uint64_t offset, std::uint32_t count,
                                               storage::locatable where) override;
    task<result<storage::write_result>> write(const storage::request& r, const storage::handle& file,
                                              std::uint64_t offset,
                                              std::span<const std::span<const std::byte>> pieces,
                                              storage::stability wanted) override;
    task<result<storage::create_result>> create(const storage::request& r, const storage::handle& directory,
                                                std::string_view name, storage::create_mode mode,
                                                const storage::set_attributes& set,
                                                std::uint64_t verifier) override;
    task<result<storage::create_result>> mkdir(const storage::request& r, const storage::handle& directory,
                                               std::string_view name,
                                               const storage::set_attributes& set) override;
    task<result<storage::create_result>> symlink(const storage::request& r, const storage::handle& directory,
                                                 std::string_view name, std::string_view target,
                                                 const storage::set_attributes& set) override;
    task<result<storage::create_result>> mknod(const storage::request& r, const storage::handle& directory,
                                               std::string_view name, storage::file_type type,
                                               std::uint32_t major, std::uint32_t minor,
                                               const storage::set_attributes& set) override;
    task<result<storage::change>> remove(const storage::request& r, const storage::handle& directory,
                                         std::string_view name) override;
    task<result<storage::change>> rmdir(const storage::request& r, const storage::handle& directory,
                                        std::string_view name) override;
    task<result<storage::rename_result>> rename(const storage::request& r,
                                                const storage::handle& from_directory, std::string_view from,
                                                const storage::handle& to_directory,
                                                std::string_view to) override;
    task<result<storage::link_result>> link(const storage::request& r, const storage::handle& file,
                                            const storage::handle& directory, std::string_view name) override;
    task<result<storage::readdir_result>> readdir(const storage::request& r, const storage::handle& directory,
                                                  std::uint64_t cookie, std::uint64_t verifier,
                                                  bool with_attributes,
                                                  storage::directory_sink& sink) override;
    task<result<storage::filesystem_stat>> statfs(const storage::request& r,
                                                  const storage::handle& file) override;
    task<result<storage::change>> commit(const storage::request& r, const storage::handle& file,
                                         std::uint64_t offset, std::uint32_t count) override;
    task<result<storage::seek_result>> seek(const storage::request& r, const storage::handle& file,
                                            std::uint64_t offset, storage::extent what) override;
    task<result<storage::change>> allocate(const storage::request& r, const storage::handle& file,
                                           std::uint64_t offset, std::uint64_t length) override;
    task<result<storage::change>> deallocate(const storage::request& r, const storage::handle& file,
                                             std::uint64_t offset, std::uint64_t length) override;
    task<result<storage::copy_result>> copy(const storage::request& r, const storage::handle& from,
                                            std::uint64_t from_offset, const storage::handle& to,
                                            std::uint64_t to_offset, std::uint64_t length) override;
    task<result<storage::change>> clone(const storage::request& r, const storage::handle& from,
                                        std::uint64_t from_offset, const storage::handle& to,
                                        std::uint64_t to_offset, std::uint64_t length) override;
    task<result<storage::mapping>> map(const storage::request& r, const storage::handle& file,
                                       std::uint64_t offset, std::uint64_t length,
                                       storage::map_use use) override; // file_store.cpp
    task<result<storage::change>> note_written(const storage::request& r, const storage::handle& file,
                                               storage::peer_writes what) override;
    task<result<std::vector<std::byte>>> getxattr(const storage::request& r, const storage::handle& file,
                                                  std::string_view name) override;
    task<result<storage::change>> setxattr(const storage::request& r, const storage::handle& file,
                                           std::string_view name, std::span<const std::byte> value,
                                           storage::xattr_mode mode) override;
    task<result<std::vector<std::string>>> listxattrs(const storage::request& r,
                                                      const storage::handle& file) override;
    task<result<storage::change>> removexattr(const storage::request& r, const storage::handle& file,
                                              std::string_view name) override;
    task<result<storage::access_list>> getacl(const storage::request& r,
                                              const storage::handle& file) override; // acls.cpp
    task<result<std::unique_ptr<storage::file_lease>>> lease(const storage::handle& file,
                                                             storage::lease_wanted wanted) override;
    std::unique_ptr<storage::local_locks> local_locks_of(const storage::handle& file) override;
    void leave_shard() noexcept override;
    void refuse_changes(bool all) noexcept override
    {
        refuses_changes_.store(all, std::memory_order_relaxed);
    }

private:
    bool refuses_changes() const noexcept { return refuses_changes_.load(std::memory_order_relaxed); }
    struct departure;
    /// What belongs to one shard.
    struct shard {
        shard(std::size_t files, removal_log& removals, blocking_pool& pool, sync_group& syncs, pin_table& p)
            : pins(p), files(files, removals, pool, syncs, p)
        {
        }
        reactor* home = nullptr;
        pin_table& pins;
        descriptor_cache files;
        name_guesses names;
        stream_cache streams;
        unsigned ring_reads = 0; ///< under way
        semaphore clone_turn{1};
        std::size_t opening = 0;    ///< calls that wait for a file to be opened
        std::uint64_t standing = 0; ///< backend::standing_, as far as the shard has heard
        std::shared_ptr<departure> leaving;

        /// Lets go of the root that was, and of all that is in it.
        void leave(std::uint64_t now) noexcept
        {
            files.clear();
            names = name_guesses();
            streams = stream_cache();
            standing = now;
        }
        /// Closes all that no call uses; the root stays.
        void close_all() noexcept
        {
            files.close_all();
            streams = stream_cache();
        }
    };
    /// Has a shard that nobody calls leave a root, too.
    struct departure final : remote_message {
        departure(backend& b, shard& s) noexcept : of(b), at(&s) {}
        void deliver() noexcept override
        {
            const std::shared_ptr<departure> here = std::move(on_its_way);
            is_under_way.store(false, std::memory_order_release);
            if (at == nullptr)
                return;
            if (const std::uint64_t now = of.standing_.load(std::memory_order_acquire); now != at->standing)
                at->leave(now);
            const std::uint64_t asked = of.rounds_.load(std::memory_order_acquire);
            if (of.is_shut())
                at->close_all();
            calls.store(at->files.alive() + at->opening, std::memory_order_relaxed);
            answered.store(asked, std::memory_order_release);
        }
        backend& of;
        shard* at; ///< nullptr: it has gone, and the back end with it
        std::atomic<bool> is_under_way{false};
        std::atomic<std::size_t> calls{0};      ///< at its last visit that shard had so many files in use
        std::atomic<std::uint64_t> answered{0}; ///< backend::rounds_ then
        std::shared_ptr<departure> on_its_way;  // itself, as a message
    };
    enum class use : std::uint8_t { read, write };
    /// The calling shard's thread may act for `who` on `f`: that asks no other host, and it may take his rights for the
    /// rest of its turn, or has them.
    bool acts_on_shard(const storage::credential& who, const cached_file& f) const noexcept
    {
        return acts_on_shard(who, *f.mount);
    }
    bool acts_on_shard(const storage::credential& who, const mount_point& m) const noexcept
    {
        return m.local &&
               (!options_.keep_shard_identity || !capabilities::get().switch_user || has_rights_of(who));
    }

    /// What is in memory waits for no disk, so that its changes run on the shard too. An automounter might wait.
    bool waits_for_nothing(const cached_file& f) const noexcept
    {
        return f.mount->in_memory && !options_.crossmnt;
    }
    /// Changes that `who` makes of `f` run on the shard.
    bool changes_here(const storage::credential& who, const cached_file& f) const noexcept
    {
        return waits_for_nothing(f) && acts_on_shard(who, f);
    }
    /// Runs `job` on the pool, or `here`; once more with files closed if descriptors had run out, when it must have
    /// changed nothing.
    template<class F>
    task<std::invoke_result_t<F&>> run_with_room(shard& s, const F& job, bool here = false,
                                                 when_full full = when_full::refuse)
    {
        for (bool again = false;; again = true) {
            auto copy = job;
            auto done = co_await shard_or_pool<F>(pool_, std::move(copy), here, full);
            if (done || again || !out_of_descriptors(done.error()))
                co_return std::move(done);
            s.files.shrink();
            s.streams = stream_cache();
        }
    }
    /// One for what shards themselves change, so that they never wait for a disk.
    change_order& order_of(const cached_file& f) noexcept
    {
        return waits_for_nothing(f) ? memory_order_ : order_;
    }

    shard& at(reactor& home);
    void stand_down() noexcept override;
    void stand_up(std::unique_ptr<standing_root> root) override;
    void visit_shards() noexcept;

    // suspend.cpp
    std::optional<std::string> hold() override;
    void release() noexcept override { watched_->release(); }
    storage::suspension_step find_nameless() override;
    void want_leases() noexcept override;
    std::size_t leases() noexcept override;
    void shut() noexcept override;
    void unshut() noexcept override { shut_.store(false); }
    calls calls_under_way() override;
    storage::suspension_step sync() override;
    void let_go() noexcept override;
    storage::suspension_step still_open() override;
    storage::suspension_step come_back() override;
    bool give_up() noexcept override { return watched_->give_up(); }
    bool is_shut() const noexcept { return shut_.load(std::memory_order_acquire); }
    /// What a call is answered with while nothing is there, or when that has changed under it.
    static error no_root() { return error::from_errno(ENOMEDIUM, "the export's root is not there"); }
    bool has_left(std::uint64_t standing) const noexcept
    {
        return standing_.load(std::memory_order_acquire) != standing;
    }
    const standing_root& root_now() const noexcept { return *root_.load(std::memory_order_acquire); }
    static numbered_file numbered(const cached_file& f) noexcept { return {f.dev, f.ino, f.mount->local}; }
    /// To be called right after each change of the file.
    void changed(const cached_file& f) const noexcept { numbers_->changed(numbered(f)); }
    observed_change observe(const cached_file& f) const noexcept
    {
        return observed_change(*numbers_, numbered(f));
    }
    storage::attributes attributes(const looked& st, const cached_file& f) const noexcept
    {
        storage::attributes a = attributes_of(st, f.fsid);
        a.birth = f.birth;
        if (f.ino == f.mount->root && f.dev == f.mount->dev)
            a.covered_fileid = f.mount->covered;
        return a;
    }
    struct look {
        int operator()() const noexcept
        {
            const int failed = numbers == nullptr ? file_status(fd, *st)
                                                  : numbers->look(file, fd, *static_cast<looked*>(st));
            return failed == 0 ? 0 : errno;
        }
        int fd;
        struct stat* st;
        change_numbers* numbers = nullptr; ///< if `st` is a `looked`
        numbered_file file = {};
    };
    struct refusable_look : look {
        result<void> operator()() const noexcept
        {
            if (const int failed = look::operator()(); failed != 0)
                return error::from_errno(failed, "fstat");
            return {};
        }
    };
    class live_look : public shard_or_pool<refusable_look> {
    public:
        live_look(blocking_pool& pool, shard& s, const cached_file& f, int fd, struct stat& st,
                  change_numbers* numbers) noexcept
            : shard_or_pool<refusable_look>(pool, {{fd, &st, numbers, numbered(f)}}, f.mount->local,
                                            when_full::refuse),
              shard_(s),
              file_(f),
              stat_(st)
        {
        }
        result<void> await_resume() noexcept;

    private:
        shard& shard_;
        const cached_file& file_;
        const struct stat& stat_;
    };
    /// `co_await stat_of(f, fd, st)`: fstat after a change, which may ask another host; its errno.
    shard_or_pool<look> stat_of(const cached_file& f, int fd, looked& st) noexcept
    {
        return {pool_, look(fd, &st, numbers_.get(), numbered(f)), f.mount->local, when_full::wait};
    }
    /// `co_await stat_live(...)`: of a live file. ESTALE once its last name is gone and nobody has it open; then it leaves
    /// the cache.
    live_look stat_live(shard& s, const cached_file& f, int fd, struct stat& st) noexcept
    {
        return live_look(pool_, s, f, fd, st, nullptr);
    }
    live_look stat_live(shard& s, const cached_file& f, int fd, looked& st) noexcept
    {
        return live_look(pool_, s, f, fd, st, numbers_.get());
    }
    /// On a pool thread.
    std::optional<storage::attributes> attributes_now(const cached_file& f) const noexcept;
    storage::change change_of(const observed_change& c, const cached_file& directory) const noexcept;
    /// An O_PATH descriptor for the calling thread's identity, of `name` in `directory`; with `cached` EAGAIN
    /// instead of waiting for a disk. One name, no symbolic link, no way out of the export.
    result<unique_fd> open_name(int directory, const char* name,
                                std::uint64_t extra_resolve = 0) const noexcept;
    /// The file that `name` leads to, if it is the one it led to last time: half the system calls. Empty
    /// otherwise, whatever the reason. With the calling thread's identity.
    file_ref guess(shard& s, const cached_file& directory, const char* name, looked& st) const noexcept;
    /// ".." of a directory, never above the root. On a pool thread.
    result<unique_fd> open_parent(const storage::credential& who, int directory) const;
    /// ESTALE if `directory` lies elsewhere. With the thread's rights; on a pool thread.
    result<void> is_beneath_root(int directory) const;
    class open_pin;
    /// Of what is open: beneath the root, as open_file::path_now() has it.
    std::string path_of(int fd) const;

    // open.cpp
    /// `h`, which is not in the cache.
    task<result<file_ref>> open_slow(shard& s, const storage::handle& h);
    class opening {
    public:
        opening(backend& b, shard& s, const storage::handle& h)
            : found_(b.is_shut() ? file_ref() : s.files.find(h))
        {
            if (!found_)
                slow_ = b.open_slow(s, h);
        }
        bool await_ready() const noexcept { return bool(found_); }
        template<class Promise>
        bool await_suspend(std::coroutine_handle<Promise> waits) noexcept
        {
            return slow_.operator co_await().await_suspend(waits);
        }
        result<file_ref> await_resume()
        {
            if (found_)
                return std::move(found_);
            return slow_.operator co_await().await_resume();
        }

    private:
        file_ref found_;
        task<result<file_ref>> slow_;
    };
    /// `co_await open_file(s, h)`: `h` from the cache, for which nothing suspends and no frame is made, or opened.
    opening open_file(shard& s, const storage::handle& h) { return opening(*this, s, h); }
    task<result<file_ref>> open_directory(shard& s, const storage::handle& h);
    /// `by_open`: the caller has it open for that, and is not asked for rights.
    task<result<shard_ref<user_descriptors>>> open_for(shard& s, const storage::request& r, const file_ref& f,
                                                       use what, bool by_open);
    /// True if the kernel has all of it in memory.
    static bool kernel_tells_what_is_cached() noexcept;
    bool is_cached(int fd, std::uint64_t offset, std::uint64_t size) noexcept;
    /// True if what is_cached() up to `last` was not read from the disk yet, or could not be.
    static bool is_being_read(cached_file& f, int fd, std::uint64_t last) noexcept;
    /// Asks the kernel again whether `who` may use a descriptor of `f` whose stamp has changed.
    task<result<void>> still_allowed(shard& s, const storage::credential& who, const cached_file& f,
                                     const struct stat& st, int fd, use what);
    /// Opens `f` for fsync, if it is a file or a directory.
    task<void> ensure_sync(const file_ref& f);
    /// Has what changed on stable storage.
    task<result<void>> settle(const file_ref& f, sync_group::what kind);
    /// The handle of what `name` led to, which goes into the cache. `st` is looked up first if it is empty, and again if it has no
    /// number. `standing`: the shard's when the call began.
    task<result<storage::entry>> remember(shard& s, std::uint64_t standing, unique_fd fd, looked& st,
                                          const storage::handle& directory, std::string_view name,
                                          file_ref* out = nullptr);

    // file_io.cpp
    /// A shard may begin reads of its disk.
    static bool begins_reads(const shard& s, const mount_point& m) noexcept;
    /// What the shard can read without waiting for the disk.
    result<std::size_t> read_here(shard& s, const mount_point& m, bool& nowait_works, bool begins, int fd,
                                  std::span<std::byte> out, std::uint64_t offset);
    /// What it could not, up to the end that `st` says; `st` is of after that. Fewer bytes where there is an error behind them, and if `is_first`
    /// the error where there are none.
    task<result<std::size_t>> read_rest(shard& s, const mount_point& m, bool by_ring, int fd,
                                        std::span<std::byte> rest, std::uint64_t offset, bool is_first,
                                        struct stat& st);
    /// Bytes written. On a pool thread.
    static result<std::size_t> write_as(const storage::credential& who, int fd,
                                        std::span<const std::span<const std::byte>> pieces,
                                        std::uint64_t offset);
    /// The same on the shard; nothing where the pool is to do it.
    std::optional<result<std::size_t>> write_here(shard& s, const mount_point& m, const numbered_file& file,
                                                  const storage::credential& who, int fd,
                                                  std::span<const std::span<const std::byte>> pieces,
                                                  std::uint64_t offset);

    // file_store.cpp
    class file_store;

    // leases.cpp
    class writers_elsewhere;
    class inode_locks;

    // extents.cpp
    struct in_use {
        in_use(file_ref f, std::shared_ptr<const shared_fd> d, const struct stat& s) noexcept
            : file(std::move(f)), open(std::move(d)), st(s)
        {
        }
        file_ref file;
        std::shared_ptr<const shared_fd> open; // others may replace the file's meanwhile
        struct stat st;
    };
    /// A regular file, open for the caller, whose rights are those of now; `by_open`: those of his open.
    task<result<in_use>> open_data(shard& s, const storage::request& r, const storage::handle& h, use what,
                                   bool by_open);
    /// What was done through `open`, on stable storage as a change of metadata is; the attributes since.
    task<result<storage::change>> settle_data(const in_use& open);
    task<result<storage::change>> change_extents(const storage::request& r, const storage::handle& file,
                                                 std::uint64_t offset, std::uint64_t length, int mode);

    // xattrs.cpp
    task<result<file_ref>> open_live(shard& s, const storage::handle& h);
    template<class Change>
    task<result<storage::change>> change_xattrs(const storage::request& r, const storage::handle& file,
                                                std::string_view name, Change change);

    // changes.cpp
    struct made;
    struct naming;
    struct victim;
    struct change_job;
    /// Makes an entry with `make` (see made) as the caller, on the pool or, in memory, on the shard; and has it on stable
    /// storage.
    template<class Make>
    task<result<storage::create_result>> make_entry(const storage::request& r,
                                                    const storage::handle& directory, std::string_view name,
                                                    const storage::set_attributes& set, Make make);
    task<result<storage::change>> unlink(const storage::request& r, const storage::handle& directory,
                                         std::string_view name, int flags);
    /// Sets attributes with the thread's identity, which is `who`. `may_cut`: he has it open for writing.
    result<void> apply(int fd, const struct stat& st, const storage::set_attributes& set,
                       const storage::credential& who, bool may_cut = false) const;
    result<void> apply_to_new(int fd, struct stat& st, const storage::set_attributes& set,
                              const storage::credential& who, bool& changed) const;
    unique_fd make_with_verifier(const naming& at, mode_t permissions, std::uint64_t verifier) const noexcept;
    result<made> create_file(naming& at, storage::create_mode mode, const storage::set_attributes& set,
                             std::uint64_t verifier, const storage::credential& who) const;
    result<made> finish_new(naming& at, mode_t format, const storage::set_attributes& set,
                            const storage::credential& who) const;
    result<void> identify(int directory, const char* name, const storage::handle& directory_handle,
                          victim& v) const;
    /// Before a name of it goes: if somebody has the file open, it keeps a descriptor.
    result<pin_table::removal> keep_open(const victim& v);
    static void still_there(victim& v, pin_table::removal& removing) noexcept;
    task<void> forget(shard& s, victim gone);

    // readdir.cpp
    /// False for a name that leads nowhere any more.
    bool describe_entry(const cached_file& d, bool is_root, listed_entry& e) const;
    /// Of what the name leads to: 0, or an errno value.
    int describe_named(const cached_file& d, listed_entry& e) const;

    class measuring;
    void measure();

    /// Those of the root that is served now.
    class current_handles {
    public:
        explicit current_handles(const std::atomic<const standing_root*>& root) noexcept : root_(root) {}
        handle_source* operator->() const noexcept
        {
            return root_.load(std::memory_order_acquire)->handles.get();
        }

    private:
        const std::atomic<const standing_root*>& root_;
    };
    /// Roots that one back end serves one after the other, each another directory. What was opened of one refers to it for as long
    /// as the back end lives.
    static constexpr std::size_t most_roots = 1024;

    const posixfs_options options_;
    std::atomic<bool> refuses_changes_;
    blocking_pool& pool_;
    std::vector<std::unique_ptr<standing_root>> roots_; ///< all that there were; of watched_root's calls
    std::atomic<const standing_root*> root_;
    std::atomic<std::uint64_t> standing_;  ///< how often the root went and came; odd: it is not there
    std::atomic<bool> shut_{false};        ///< new calls are put off, as it is suspended
    std::atomic<std::uint64_t> rounds_{0}; ///< how often it was shut
    // Of who suspends.
    std::vector<std::uint64_t> held_mounts_;
    /// Syncs of a suspension that failed, also when nobody waited for them any more. Outlives the back end.
    const std::shared_ptr<std::atomic<std::uint64_t>> late_losses_ =
        std::make_shared<std::atomic<std::uint64_t>>(0);
    const current_handles handles_{root_};
    unique_fd self_; ///< /proc/self/fd
    std::uint64_t verifier_;
    std::size_t files_per_shard_;
    sync_group syncs_;
    removal_log removals_;
    pin_table pins_;
    const std::shared_ptr<unseen_locks> unseen_;
    const std::shared_ptr<lock_lane> lock_lane_; // nullptr: without local locks
    std::shared_ptr<lease_watch> leases_;        // nullptr: none are taken
    const std::shared_ptr<change_numbers> numbers_ = change_numbers::of_process();
    change_order order_;
    change_order memory_order_;
    std::array<std::mutex, 256> guarded_; ///< by inode: of files, a guard and the change that it guards
    log_limiter slow_logged_;             // of all stores
    const bool cachestat_works_ = kernel_tells_what_is_cached();
    std::array<std::atomic<shard*>, max_shards> shards_{};
    std::shared_ptr<root_watch> watch_; // nullptr: nobody looks
    std::shared_ptr<watched_root> watched_;
};

/// `co_await this_reactor()`: the reactor of the running chain of tasks, which may not run yet.
class [[nodiscard("co_await it: it yields the reactor")]] this_reactor {
public:
    bool await_ready() const noexcept { return false; }
    template<class Promise>
    bool await_suspend(std::coroutine_handle<Promise> self) noexcept
    {
        const task_context* context = self.promise().context();
        reactor_ = context != nullptr && context->shard != nullptr ? context->shard : reactor::current();
        return false;
    }
    reactor& await_resume() const noexcept { return *reactor_; }

private:
    reactor* reactor_ = nullptr;
};

/// "123": the name of a descriptor in /proc/self/fd.
class fd_name {
public:
    explicit fd_name(int fd) noexcept;
    const char* text() const noexcept { return text_; }

private:
    char text_[16];
};

} // namespace verbena::posixfs
