// SPDX-License-Identifier: Apache-2.0
#include "backend.hpp"
#include "begun_open.hpp"

#include "acls.hpp"

#include <verbena/core/reactor/reactor.hpp>

#include <atomic>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <mutex>
#include <optional>
#include <random>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

namespace verbena::posixfs {

namespace {

// The last offset that a file of the file system may have: pathconf(3) knows only how many bits it takes, by a table of the C library's. A file
// without a name is asked, which nobody sees. Nothing where there can be none.
std::optional<std::uint64_t> find_max_file_size(int directory) noexcept
{
    const unique_fd file(::openat(directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (!file)
        return std::nullopt;
    const auto may_be = [&](std::uint64_t size) { return ::lseek(file.get(), off_t(size), SEEK_SET) >= 0; };
    if (may_be(max_offset))
        return max_offset;
    std::uint64_t good = 0;
    std::uint64_t bad = max_offset;
    while (bad - good > 1) {
        const std::uint64_t middle = good + (bad - good) / 2;
        (may_be(middle) ? good : bad) = middle;
    }
    return good == 0 ? std::nullopt : std::optional(good);
}

// A frozen file system makes no files until it is thawed. The start waits no longer than that.
constexpr std::chrono::milliseconds patience_with_size(250);
// Below that two copies cost less than sendfile(2) and the looks that it needs.
constexpr std::uint32_t least_located = 65536;

} // namespace

void measured_info::end(std::optional<std::uint64_t> max_file_size)
{
    {
        const std::lock_guard lock(mutex_);
        info_.max_file_size = max_file_size.value_or(info_.max_file_size);
        is_known_.store(true, std::memory_order_release);
    }
    known_.notify_all();
}

void measured_info::measure(int root) { end(find_max_file_size(root)); }

bool measured_info::wait_for(std::chrono::milliseconds patience)
{
    std::unique_lock lock(mutex_);
    return known_.wait_for(lock, patience, [this] { return is_known_.load(); });
}

result<std::unique_ptr<standing_root>> open_root(const posixfs_options& options,
                                                 std::optional<std::uint64_t> unmarked)
{
    auto handles = handle_source::open(options, unmarked);
    if (!handles)
        return handles.error();
    auto out = std::make_unique<standing_root>();
    out->handles = std::move(*handles);
    const handle_source& h = *out->handles;
    const int root = h.root_mount().fd.get();
    out->at = look_at_open(root);
    // Constant, since cookies are d_off and stay good while the file system lives.
    out->cookie_verifier = h.root_mount().fsid | 1;
    storage::filesystem_info& info = out->info;
    if (const long n = ::fpathconf(root, _PC_LINK_MAX); n > 0)
        info.max_links = static_cast<std::uint32_t>(std::min<long>(n, 0x7fffffff));
    struct statfs of_root{};
    if (::fstatfs(root, &of_root) == 0)
        info.clone_block = static_cast<std::uint32_t>(of_root.f_bsize);
    // There a directory is born again when something beneath it is first written, or has no birth until then.
    if (of_root.f_type == OVERLAYFS_SUPER_MAGIC || of_root.f_type == FUSE_SUPER_MAGIC)
        out->at.born = 0;
    info.map_block = mapped_block;
    info.maps_stores = true;
    info.least_located = least_located;
    info.acls = has_acls(root);
    info.birth_times = h.root_mount().local && birth_of(root).has_value();
    info.lasting_handles = !h.uses_paths();
    info.leases = options.leases;
    // The kernel's handles are those of the file system, whatever directory or mount of it is exported. With crossmnt some
    // name a mount by its path beneath the root, and with a mark all name this file system.
    if (!h.uses_paths() && !options.crossmnt && !h.is_marked())
        info.file_space = h.root_stat().st_dev;
    info.xattrs = ::fgetxattr(root, "user.verbena", nullptr, 0) >= 0 || errno == ENODATA;
    out->measured = std::make_shared<measured_info>(info);
    return out;
}

std::unique_ptr<standing_root> no_root(const posixfs_options& options, int why)
{
    auto out = std::make_unique<standing_root>();
    out->handles = handle_source::nowhere(options);
    out->at.failed = why;
    out->info.map_block = mapped_block;
    out->info.maps_stores = true;
    out->info.least_located = least_located;
    out->info.leases = options.leases;
    out->measured = std::make_shared<measured_info>(out->info);
    return out;
}

const storage::filesystem_info& backend::info() const noexcept
{
    const standing_root& root = root_now();
    return root.measured->is_known() ? root.measured->get() : root.info;
}

class backend::measuring final : public blocking_pool::job {
public:
    measuring(std::shared_ptr<measured_info> result, unique_fd root) noexcept
        : result_(std::move(result)), root_(std::move(root))
    {
    }
    ~measuring() = default;
    void execute() noexcept override
    {
        result_->measure(root_.get());
        delete this;
    }
    void deliver() noexcept override {}

private:
    const std::shared_ptr<measured_info> result_;
    const unique_fd root_;
};

void backend::measure()
{
    const std::shared_ptr<measured_info> measured = root_now().measured;
    unique_fd root(::fcntl(handles_->root_mount().fd.get(), F_DUPFD_CLOEXEC, 0));
    if (!root || options_.read_only) {
        measured->end(std::nullopt);
        return;
    }
    auto* const job = new measuring(measured, std::move(root)); // deletes itself
    if (!pool_.submit(*job)) {
        delete job;
        measured->end(std::nullopt);
    } else if (!measured->wait_for(patience_with_size)) {
        log(log_level::warning, "posixfs",
            "the file system makes no file yet, so its largest file size is not known; is it frozen?",
            {{"export", options_.name}, {"directory", handles_->root_path()}});
    }
}

backend::backend(const posixfs_options& options, blocking_pool& pool, std::unique_ptr<standing_root> root)
    : options_(options),
      refuses_changes_(options.read_only),
      pool_(pool),
      root_(root.get()),
      standing_(root->at.failed == 0 ? 0 : 1),
      syncs_(pool),
      pins_(pool, removals_,
            options.most_kept_files != 0 ? options.most_kept_files : pin_table::usual_bound(),
            root->handles->root_path(), options.name),
      unseen_(std::make_shared<unseen_locks>(options.name, root->handles->root_path())),
      lock_lane_(options.local_locks ? std::make_shared<lock_lane>(pool) : nullptr)
{
    std::random_device random;
    verifier_ = std::uint64_t(random()) << 32 | random();
    if (root->info.file_space != 0)
        pins_.share(root->info.file_space, root->handles->root_mount());
    files_per_shard_ = options.cached_files;
    if (files_per_shard_ == 0) {
        rlimit limit{};
        ::getrlimit(RLIMIT_NOFILE, &limit);
        files_per_shard_ =
            static_cast<std::size_t>(std::min<rlim_t>(limit.rlim_cur / 8, descriptor_cache::max_files / 4));
    }
    files_per_shard_ = std::clamp(files_per_shard_, descriptor_cache::min_files, descriptor_cache::max_files);
    roots_.push_back(std::move(root));
}

backend::~backend()
{
    if (watched_) {
        watch_->remove(*watched_);
        watched_->leave();
    }
    if (lock_lane_)
        lock_lane_->close();
    for (auto& slot : shards_) {
        shard* const s = slot.load(std::memory_order_acquire);
        if (s != nullptr)
            s->leaving->at = nullptr;
        delete s;
    }
}

// The rest goes with the back end, on whatever thread that is: files are closed there, which a shard would be held for.
void backend::leave_shard() noexcept
{
    const reactor* const here = reactor::current();
    shard* const s = here != nullptr && here->index() < max_shards
                         ? shards_[here->index()].load(std::memory_order_acquire)
                         : nullptr;
    if (s == nullptr)
        return;
    s->leaving->at = nullptr;
    s->files.rest();
}

result<void> backend::start()
{
    self_.reset(::open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!self_)
        return errno_error("/proc/self/fd; is /proc mounted?");
    if (options_.leases) {
        auto watch = lease_watch::of(options_.lease_signal);
        if (!watch)
            return watch.error();
        leases_ = std::move(*watch);
    }
    measure();
    if (!options_.watch)
        return {};
    auto watch = root_watch::of_process();
    if (!watch)
        return watch.error();
    watch_ = std::move(*watch);
    watched_root::owner& own = *this;
    watched_ = std::make_shared<watched_root>(options_, pool_, own, root_now());
    watch_->add(watched_);
    return {};
}

// The gate closes first: nobody finds what is taken away.
void backend::stand_down() noexcept
{
    standing_.fetch_add(1, std::memory_order_acq_rel);
    handles_->let_go();
    pins_.let_go(false);
    if (leases_)
        leases_->want_all_of(pool_);
    syncs_.lost(); // what was written unstably may be
    visit_shards();
}

// They hear that the root has gone, or that they are to say what calls they have.
void backend::visit_shards() noexcept
{
    for (auto& slot : shards_) {
        shard* const s = slot.load(std::memory_order_acquire);
        if (s == nullptr || s->leaving->is_under_way.exchange(true, std::memory_order_acq_rel))
            continue;
        s->leaving->on_its_way = s->leaving;
        s->home->post_remote(*s->leaving);
    }
}

void backend::stand_up(std::unique_ptr<standing_root> root)
{
    const auto is_it = [&](const auto& r) {
        return r->at.is_same_directory(root->at) && r->handles->has_root_of(*root->handles);
    };
    // Descriptors of one that was unplugged lead to nothing, though it is the same file system.
    const bool is_same_device = root_now().at.failed == 0 && root_now().at.dev == root->at.dev;
    if (const auto known = std::ranges::find_if(roots_, is_it); known != roots_.end()) {
        (*known)->handles->reach(*root->handles);
        root_.store(known->get(), std::memory_order_release);
    } else {
        if (roots_.size() >= most_roots) {
            static log_limiter limit(1, std::chrono::hours(1));
            log_limited(
                limit, log_level::error, "posixfs",
                "an export is not served: its root was exchanged as often as may be; restart",
                {{"export", options_.name}, {"directory", handles_->root_path()}, {"roots", roots_.size()}});
            throw std::bad_alloc();
        }
        roots_.push_back(std::move(root));
        root_.store(roots_.back().get(), std::memory_order_release);
    }
    pins_.let_go(!is_same_device); // also what was opened since by a call that was under way
    pins_.share(root_now().info.file_space, handles_->root_mount());
    standing_.fetch_add(1, std::memory_order_acq_rel);
    shut_.store(false);
}

backend::shard& backend::at(reactor& home)
{
    const unsigned index = home.index();
    assert(index < max_shards && "posixfs serves shards below max_shards");
    auto& slot = shards_[index];
    shard* s = slot.load(std::memory_order_relaxed); // only this shard's thread writes it
    if (s == nullptr) {
        s = new shard(files_per_shard_, removals_, pool_, syncs_, pins_);
        s->home = &home; // others read it, to send it messages
        s->leaving = std::make_shared<departure>(*this, *s);
        s->standing = standing_.load(std::memory_order_acquire);
        slot.store(s, std::memory_order_release);
    }
    if (s->home != &home)
        s->home = &home;
    if (const std::uint64_t now = standing_.load(std::memory_order_acquire); s->standing != now)
        s->leave(now);
    return *s;
}

std::string backend::describe() const
{
    const capabilities& c = capabilities::get();
    std::string text = handles_->root_path() + ": ";
    if ((standing_.load(std::memory_order_acquire) & 1) != 0)
        return text + "it is not there yet; clients wait until it is";
    text += c.switch_user ? "requests run with their callers' rights"
                          : "everything runs as the daemon's user " + std::to_string(::geteuid());
    text += handles_->uses_paths() ? "; handles by a path table, good until the daemon ends"
                                   : "; handles survive rename and restart";
    if (!handles_->why_paths().empty())
        text += " (" + handles_->why_paths() + ")";
    text += options_.async ? "; ASYNC: answered changes may be lost in a crash" : "; sync";
    if (leases_ && !c.lease)
        text += "; without CAP_LEASE read delegations are given of the daemon's own files only";
    if (const std::string missing = c.missing(); !missing.empty())
        text += "; missing " + missing;
    return text;
}

result<void> backend::live_look::await_resume() noexcept
{
    if (const auto looked = shard_or_pool<refusable_look>::await_resume(); !looked)
        return looked.error();
    if (stat_.st_nlink == 0 && !shard_.pins.keeps({file_.handle, file_.path.get(), *file_.mount}, true)) {
        shard_.files.drop(file_.handle);
        return error::from_errno(ESTALE, "the file was removed");
    }
    return {};
}

std::optional<storage::attributes> backend::attributes_now(const cached_file& f) const noexcept
{
    looked st{};
    if (numbers_->look(numbered(f), f.path.get(), st) != 0)
        return std::nullopt;
    return attributes(st, f);
}

storage::change backend::change_of(const observed_change& c, const cached_file& directory) const noexcept
{
    storage::change out;
    if (!c.seen)
        return out;
    if (c.alone && directory.mount->local)
        out.before = attributes(c.before, directory);
    out.after = attributes(c.after, directory);
    return out;
}

task<result<storage::attributes>> backend::getattr(const storage::request&, const storage::handle& file)
{
    shard& s = at(co_await this_reactor());
    auto opened_file = co_await open_file(s, file);
    if (!opened_file)
        co_return opened_file.error();
    file_ref f = std::move(*opened_file);
    looked st{};
    if (auto live = co_await stat_live(s, *f, f->path.get(), st); !live)
        co_return live.error();
    co_return attributes(st, *f);
}

file_ref backend::guess(shard& s, const cached_file& directory, const char* name, looked& st) const noexcept
{
    if (handles_->uses_paths())
        return {};
    const storage::handle* handle = s.names.find(directory.handle, name);
    file_ref f = handle != nullptr ? s.files.find(*handle) : file_ref();
    // The descriptor keeps the file's entry in the kernel's cache, so this asks no disk unless the name
    // leads elsewhere by now.
    struct statx now{};
    if (!f || !f->mount->local)
        return {};
    const change_numbers::mark mark = numbers_->before_look(numbered(*f));
    if (::statx(directory.path.get(), name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
                STATX_BASIC_STATS | STATX_MNT_ID, &now) != 0)
        return {};
    if ((now.stx_mask & STATX_MNT_ID) == 0 || now.stx_mnt_id != std::uint64_t(f->mount->id) ||
        makedev(now.stx_dev_major, now.stx_dev_minor) != f->dev || now.stx_ino != f->ino ||
        (now.stx_mode & S_IFMT) != f->format)
        return {};
    st = looked{to_stat(now), std::nullopt};
    st.number = numbers_->number_of(mark, st.st_ctim);
    return f;
}

task<result<storage::lookup_result>> backend::lookup(const storage::request& r,
                                                     const storage::handle& directory, std::string_view name)
{
    const checked_name checked(name);
    if (checked.error() != 0)
        co_return error::from_errno(checked.error(), "a name");
    shard& s = at(co_await this_reactor());
    const std::uint64_t standing = s.standing;
    auto opened_directory = co_await open_directory(s, directory);
    if (!opened_directory)
        co_return opened_directory.error();
    const file_ref d = std::move(*opened_directory);

    looked st{};
    if (auto live = co_await stat_live(s, *d, d->path.get(), st); !live)
        co_return live.error();
    storage::lookup_result out;
    out.directory = attributes(st, *d);
    const char* text = checked.text();
    if (checked.is_dot_dot() && directory == handles_->root())
        text = ".";

    looked found_stat{};
    unique_fd found;
    if (text[0] == '.' && text[1] == '.' && text[2] == 0) {
        auto job = [this, fd = d->path.get(), &who = r.who] { return open_parent(who, fd); };
        auto parent = co_await run_with_room(s, job);
        if (!parent)
            co_return parent.error();
        found = std::move(*parent);
    } else {
        result<unique_fd> quick = error(std::errc::resource_unavailable_try_again);
        if (acts_on_shard(r.who, *d)) {
            if (auto acting = act_as(r.who, s.home); !acting)
                co_return acting.error();
            if (const file_ref known = guess(s, *d, text, found_stat)) {
                out.found.handle = known->handle;
                out.found.attrs = attributes(found_stat, *known);
                co_return out;
            }
            // With crossmnt it may lead to another host. In memory the kernel keeps no names that lead nowhere, so that they
            // would go to the pool each time.
            if (!options_.crossmnt)
                quick = open_name(d->path.get(), text, waits_for_nothing(*d) ? 0 : RESOLVE_CACHED);
        }
        if (!quick && (quick.error().errno_value() == EAGAIN || out_of_descriptors(quick.error()))) {
            auto job = [this, fd = d->path.get(), text, &who = r.who]() -> result<unique_fd> {
                acting_as as(who);
                if (!as)
                    return as.error();
                return open_name(fd, text);
            };
            quick = co_await run_with_room(s, job);
        }
        if (!quick)
            co_return quick.error();
        found = std::move(*quick);
    }
    auto entry = co_await remember(s, standing, std::move(found), found_stat, directory, checked.text());
    if (!entry)
        co_return entry.error();
    if (!checked.is_dot() && !checked.is_dot_dot())
        s.names.note(directory, checked.text(), entry->handle);
    out.found = *entry;
    co_return out;
}

namespace {

// Those of `wanted` that the thread's identity has.
unsigned granted_of(int fd, unsigned wanted) noexcept
{
    if (wanted == 0 || may(fd, int(wanted)))
        return wanted;
    unsigned granted = 0;
    for (unsigned bit : {unsigned(R_OK), unsigned(W_OK), unsigned(X_OK)}) {
        if ((wanted & bit) != 0 && may(fd, int(bit)))
            granted |= bit;
    }
    return granted;
}

} // namespace

task<result<unsigned>> backend::access(const storage::request& r, const storage::handle& file,
                                       unsigned wanted)
{
    shard& s = at(co_await this_reactor());
    auto opened_file = co_await open_file(s, file);
    if (!opened_file)
        co_return opened_file.error();
    file_ref f = std::move(*opened_file);
    struct stat st{};
    if (auto live = co_await stat_live(s, *f, f->path.get(), st); !live)
        co_return live.error();
    if (refuses_changes())
        wanted &= ~unsigned(W_OK);
    wanted &= R_OK | W_OK | X_OK;
    // Nobody executes a file without such a bit, root neither, and what an ACL allows is no more than its mask, which the mode shows. Clients
    // ask all the same, and to hear of one refusal costs a call for each right.
    if (f->format == S_IFREG && (st.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)) == 0)
        wanted &= ~unsigned(X_OK);
    if (acts_on_shard(r.who, *f)) {
        if (auto acting = act_as(r.who, s.home); !acting)
            co_return acting.error();
        co_return granted_of(f->path.get(), wanted);
    }
    auto job = [fd = f->path.get(), wanted, &who = r.who]() -> result<unsigned> {
        const acting_as as(who);
        if (!as)
            return as.error();
        return granted_of(fd, wanted);
    };
    co_return co_await pool_.try_run(std::move(job));
}

task<result<std::string>> backend::readlink(const storage::request&, const storage::handle& link)
{
    shard& s = at(co_await this_reactor());
    auto opened_file = co_await open_file(s, link);
    if (!opened_file)
        co_return opened_file.error();
    file_ref f = std::move(*opened_file);
    if (f->format != S_IFLNK)
        co_return error::from_errno(EINVAL, "readlink of something else");
    auto job = [fd = f->path.get()]() -> result<std::string> {
        std::string target(4096, 0);
        const ssize_t n = ::readlinkat(fd, "", target.data(), target.size());
        if (n < 0)
            return errno_error("readlinkat");
        target.resize(static_cast<std::size_t>(n));
        return target;
    };
    co_return co_await pool_.try_run(std::move(job));
}

task<result<storage::filesystem_stat>> backend::statfs(const storage::request&, const storage::handle& file)
{
    shard& s = at(co_await this_reactor());
    auto opened_file = co_await open_file(s, file);
    if (!opened_file)
        co_return opened_file.error();
    file_ref f = std::move(*opened_file);
    auto job = [fd = f->path.get()]() -> result<storage::filesystem_stat> {
        struct statfs st{};
        if (::fstatfs(fd, &st) != 0)
            return errno_error("fstatfs");
        const auto unit = static_cast<std::uint64_t>(st.f_frsize != 0 ? st.f_frsize : st.f_bsize);
        storage::filesystem_stat out;
        out.total_bytes = st.f_blocks * unit;
        out.free_bytes = st.f_bfree * unit;
        out.available_bytes = st.f_bavail * unit;
        out.total_files = st.f_files;
        out.free_files = out.available_files = st.f_ffree;
        return out;
    };
    co_return co_await pool_.try_run(std::move(job));
}

namespace {

result<std::unique_ptr<storage::file_backend>> open_at(const posixfs_options& named, blocking_pool& pool,
                                                       result<std::unique_ptr<standing_root>> root)
{
    if (!root)
        return root.error();
    auto made = std::make_unique<backend>(named, pool, std::move(*root));
    if (auto ready = made->start(); !ready)
        return ready.error();
    return std::unique_ptr<storage::file_backend>(std::move(made));
}

} // namespace

begun_open::begun_open(const posixfs_options& options, blocking_pool& lane,
                       std::optional<clock::time_point> answer_by)
    : options_(options), lane_(lane), until_(answer_by.value_or(clock::now() + watched_root::patience))
{
    if (options_.name.empty())
        options_.name = options_.root.string();
    if (capabilities::get().lends && !options_.callers_are_daemon) {
        refused_ =
            error(std::errc::operation_not_permitted,
                  "without CAP_SETUID and CAP_SETGID all callers would have the rights of this process");
        return;
    }
    // A disk that hangs holds up this export, and not the start of all: what it answers later is for watched_root to serve.
    auto look = [o = options_]() -> result<std::unique_ptr<standing_root>> {
        if (!o.mountpoint.empty() && !look_at_root(o.root.string(), o.mountpoint.string(), false).is_mounted)
            return no_root(o, ENOMEDIUM);
        return open_root(o);
    };
    if (options_.watch)
        first_look_ = begin_call(lane_, std::move(look));
}

result<std::unique_ptr<storage::file_backend>> begun_open::finish()
{
    if (refused_)
        return *refused_;
    if (!first_look_)
        return open_at(options_, lane_, open_root(options_));
    auto root = first_look_->wait_until(until_);
    return open_at(options_, lane_, root ? std::move(*root) : no_root(options_, ETIMEDOUT));
}

result<std::unique_ptr<storage::file_backend>> open_posixfs(const posixfs_options& options,
                                                            blocking_pool& pool)
{
    return begun_open(options, pool).finish();
}

open_file_counters counters_of(const storage::file_backend& b)
{
    const auto* ours = dynamic_cast<const backend*>(&b);
    return ours != nullptr ? ours->counters() : open_file_counters();
}

bool has_local_locks(const storage::file_backend& b)
{
    const auto* ours = dynamic_cast<const backend*>(&b);
    return ours != nullptr && ours->has_local_locks();
}

storage::suspendable* suspension_of(storage::file_backend& b)
{
    auto* const ours = dynamic_cast<backend*>(&b);
    return ours != nullptr ? ours->suspension() : nullptr;
}

root_state root_state_of(const storage::file_backend& b)
{
    const auto* ours = dynamic_cast<const backend*>(&b);
    return ours != nullptr ? ours->state() : root_state::up;
}

void leave_root_alone(storage::file_backend& b) noexcept
{
    if (auto* const ours = dynamic_cast<backend*>(&b))
        ours->leave_root_alone();
}

std::string root_trouble_of(const storage::file_backend& b)
{
    const auto* ours = dynamic_cast<const backend*>(&b);
    return ours != nullptr ? ours->trouble() : std::string();
}

std::string describe(const storage::file_backend& b)
{
    const auto* ours = dynamic_cast<const backend*>(&b);
    return ours != nullptr ? ours->describe() : std::string();
}

} // namespace verbena::posixfs
