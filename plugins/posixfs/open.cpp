// SPDX-License-Identifier: Apache-2.0
// Opening: handles into files, files into descriptors with a caller's rights.
#include "backend.hpp"

#include <array>
#include <charconv>
#include <climits>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace verbena::posixfs {

fd_name::fd_name(int fd) noexcept { *std::to_chars(text_, text_ + sizeof(text_) - 1, fd).ptr = 0; }

result<unique_fd> backend::open_name(int directory, const char* name,
                                     std::uint64_t extra_resolve) const noexcept
{
    open_how how{};
    how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    how.resolve = handles_->resolve_flags() | extra_resolve;
    unique_fd fd(static_cast<int>(::syscall(SYS_openat2, directory, name, &how, sizeof(how))));
    if (!fd && errno == EXDEV)
        return error(storage::errc::crosses_mount, "the name leads to another mount");
    if (!fd)
        return errno_error("openat2");
    return fd;
}

result<unique_fd> backend::open_parent(const storage::credential& who, int directory) const
{
    unique_fd parent;
    {
        acting_as as(who);
        if (!as)
            return as.error();
        parent.reset(::openat(directory, "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
        if (!parent)
            return errno_error("open of ..");
    }
    if (auto inside = is_beneath_root(parent.get()); !inside)
        return inside.error();
    return parent;
}

// A directory may have been moved out of the export by somebody local: climb until the root appears.
result<void> backend::is_beneath_root(int directory) const
{
    const struct stat& root = handles_->root_stat();
    unique_fd at(::openat(directory, ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
    struct stat st{};
    struct stat above{};
    for (;;) {
        if (!at || file_status(at.get(), st) != 0)
            return errno_error("a directory above");
        if (st.st_dev == root.st_dev && st.st_ino == root.st_ino)
            return {};
        unique_fd next(::openat(at.get(), "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
        if (!next && errno == ENOENT) // above a bind mount's root: it was moved out of that
            break;
        if (!next || file_status(next.get(), above) != 0)
            return errno_error("a directory above");
        if (above.st_dev == st.st_dev && above.st_ino == st.st_ino)
            break;
        at = std::move(next);
    }
    return error::from_errno(ESTALE, "the directory is no longer beneath the export");
}

namespace {

class counted_call {
public:
    explicit counted_call(std::size_t& all) noexcept : all_(all) { ++all_; }
    counted_call(const counted_call&) = delete;
    ~counted_call() { --all_; }

private:
    std::size_t& all_;
};

} // namespace

task<result<file_ref>> backend::open_slow(shard& s, const storage::handle& h)
{
    struct found {
        found(unique_fd f, const mount_point* m) noexcept : fd(std::move(f)), mount(m) {}
        unique_fd fd;
        const mount_point* mount;
        std::uint64_t fsid = 0;
        struct stat st{};
    };
    if (h.empty())
        co_return error(storage::errc::bad_handle, "an empty handle");
    const std::uint64_t standing = s.standing;
    if ((standing & 1) != 0 || is_shut())
        co_return no_root();
    const counted_call opening(s.opening);
    auto job = [this, &h]() -> result<found> {
        unique_fd kept;
        const mount_point* mount = pins_.open(h, kept);
        if (mount != nullptr && !kept)
            return errno_error("an open file");
        if (mount == nullptr) {
            auto opened = handles_->open_handle(h);
            if (opened) {
                kept = std::move(opened->fd);
                mount = opened->mount;
            } else {
                // A removal may have opened it since, before its name went.
                const bool stale = opened.error().errno_value() == ESTALE;
                mount = stale ? pins_.open(h, kept) : nullptr;
                if (stale && mount == nullptr)
                    pins_.missed(h);
                if (mount == nullptr)
                    return opened.error();
                if (!kept)
                    return errno_error("an open file");
            }
        }
        found f(std::move(kept), mount);
        if (file_status(f.fd.get(), f.st) != 0)
            return errno_error("fstat");
        // The kernel finds what a handle is of wherever it lies; paths are walked from the root.
        if (S_ISDIR(f.st.st_mode) && !handles_->uses_paths()) {
            if (auto inside = is_beneath_root(f.fd.get()); !inside)
                return inside.error();
        }
        const bool nameless = f.st.st_nlink == 0;
        if (!pins_.keeps({h, f.fd.get(), *f.mount}, nameless) && nameless)
            return error::from_errno(ESTALE, "the file was removed");
        f.fsid = handles_->fsid_of(f.fd.get(), f.st, *f.mount);
        return f;
    };
    auto opened = co_await run_with_room(s, job);
    if (has_left(standing) || is_shut())
        co_return no_root();
    if (!opened)
        co_return opened.error();
    co_return s.files.insert(h, std::move(opened->fd), opened->mount, opened->fsid, opened->st);
}

task<result<file_ref>> backend::open_directory(shard& s, const storage::handle& h)
{
    auto opened_file = co_await open_file(s, h);
    if (!opened_file)
        co_return opened_file.error();
    file_ref f = std::move(*opened_file);
    if (!f->is_directory())
        co_return error::from_errno(ENOTDIR, "a name is looked for in something that is no directory");
    co_return f;
}

class backend::open_pin final : public storage::open_file {
public:
    open_pin(const backend& of, pin_table::pin pin, const storage::credential& opener, unsigned granted)
        : open_file(opener, granted), of_(of), pin_(std::move(pin))
    {
    }
    std::string path_now() const override
    {
        const auto fd = pin_.descriptor();
        return fd ? of_.path_of(fd->get()) : std::string();
    }

private:
    const backend& of_;
    const pin_table::pin pin_;
};

// The kernel tells by the names that it has in memory, and asks no disk. A file that was opened by its handle may have none
// there: then it tells "/" alone.
std::string backend::path_of(int fd) const
{
    std::array<char, PATH_MAX> told{};
    const auto told_of = [&told](int of) {
        const ssize_t n = ::readlink(fd_path(of).text(), told.data(), told.size());
        // One that fills all of it may have been cut.
        return n > 0 && std::size_t(n) < told.size() ? std::string(told.data(), std::size_t(n))
                                                     : std::string();
    };
    const std::string path = told_of(fd);
    const auto beneath = [&path](std::string_view root) {
        const std::size_t length = root == "/" ? 0 : root.size();
        return !root.empty() && path.size() > length + 1 && path.starts_with(root) && path[length] == '/'
                   ? path.substr(length)
                   : std::string();
    };
    std::string found = beneath(handles_->root_path());
    if (found.empty() && !path.empty()) // the root may have got another name since
        found = beneath(told_of(handles_->root_mount().fd.get()));
    return found;
}

task<result<storage::opened_file>> backend::open(const storage::request& r, const storage::handle& file,
                                                 unsigned wanted, storage::open_right right)
{
    shard& s = at(co_await this_reactor());
    auto opened_file = co_await open_file(s, file);
    if (!opened_file)
        co_return opened_file.error();
    file_ref f = std::move(*opened_file);
    if (!f->is_regular())
        co_return error::from_errno(f->is_directory() ? EISDIR : EINVAL,
                                    "an open of something that is no regular file");
    if (refuses_changes() && (wanted & W_OK) != 0)
        co_return error::from_errno(EROFS, "the export is read-only");
    // To open an O_PATH descriptor costs as much as making the file. So what was just made here gets one when the cache
    // closes its maker's.
    const bool is_made_here = !f->path.is_path_only();
    std::optional<pin_table::pin> pin;
    const auto keep = [&](int fd, bool later) -> result<void> {
        auto shared = fd == f->path.get() ? f->path.shared() : nullptr;
        auto added = pins_.add({file, fd, *f->mount, std::move(shared)}, later, r.client);
        if (!added)
            return added.error();
        pin = std::move(*added);
        return {};
    };
    if (is_made_here && f->mount->local && right == storage::open_right::granted) {
        if (auto kept = keep(f->path.get(), true); !kept)
            co_return kept.error();
    }
    looked st{};
    if (auto live = co_await stat_live(s, *f, f->path.get(), st); !live)
        co_return live.error();
    // Who may execute a file may read it, as its kernel has to. Nobody executes a file without such a bit.
    const bool runs = (st.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)) != 0;
    const auto ask = [path = f->path.get(), wanted, runs]() -> result<void> {
        if (may(path, int(wanted)))
            return {};
        const int refused = errno;
        const bool reads = (wanted & R_OK) == 0 || may(path, R_OK) || (runs && may(path, X_OK));
        const bool writes = (wanted & W_OK) == 0 || may(path, W_OK);
        return reads && writes ? result<void>() : error::from_errno(refused, "open");
    };
    const bool asks = right == storage::open_right::asked && wanted != 0;
    // To open it again might ask another host.
    const bool opens_path = is_made_here && !f->mount->local;
    unique_fd path;
    if (asks && acts_on_shard(r.who, *f)) {
        if (auto acting = act_as(r.who, s.home); !acting)
            co_return acting.error();
        if (auto allowed = ask(); !allowed)
            co_return allowed.error();
    } else if (asks || opens_path) {
        auto job = [this, ask, asks, opens_path, at = f->path.get(), &who = r.who]() -> result<unique_fd> {
            if (asks) {
                const acting_as as(who);
                if (!as)
                    return as.error();
                if (auto allowed = ask(); !allowed)
                    return allowed.error();
            }
            unique_fd made;
            if (opens_path)
                made.reset(::openat(self_.get(), fd_name(at).text(), O_PATH | O_CLOEXEC));
            return made;
        };
        auto asked = co_await run_with_room(s, job);
        if (!asked)
            co_return asked.error();
        path = std::move(*asked);
    }
    s.files.keep_within_budget();
    if (!pin) {
        if (auto kept = keep(path ? path.get() : f->path.get(), false); !kept)
            co_return kept.error();
    }
    storage::opened_file out;
    out.file = std::make_shared<const open_pin>(*this, std::move(*pin), r.who, wanted);
    out.attrs = attributes(st, *f);
    co_return out;
}

task<result<void>> backend::still_allowed(shard& s, const storage::credential& who, const cached_file& f,
                                          const struct stat& st, int fd, use what)
{
    if (st.st_uid == who.uid && capabilities::get().switch_user)
        co_return result<void>();
    const auto ask = [fd, what]() -> result<void> {
        if (may(fd, what == use::write ? W_OK : R_OK))
            return {};
        const int refused = errno;
        if (what == use::read && may(fd, X_OK))
            return {};
        return error::from_errno(refused, "the permissions have changed");
    };
    if (acts_on_shard(who, f)) {
        if (auto acting = act_as(who, s.home); !acting)
            co_return acting.error();
        co_return ask();
    }
    auto job = [ask, &who]() -> result<void> {
        const acting_as as(who);
        return as ? ask() : result<void>(as.error());
    };
    co_return co_await pool_.try_run(std::move(job));
}

task<result<shard_ref<user_descriptors>>> backend::open_for(shard& s, const storage::request& r,
                                                            const file_ref& f, use what, bool by_open)
{
    struct opened {
        opened(unique_fd d, const permission_stamp& s) noexcept : fd(std::move(d)), stamp(s) {}
        unique_fd fd;
        permission_stamp stamp;
    };
    if (f->is_directory())
        co_return error::from_errno(EISDIR, "data of a directory");
    if (!f->is_regular())
        co_return error::from_errno(EINVAL, "data of something that is no regular file");
    auto job = [this, path = f->path.get(), acls = f->acl_changes, what, by_open,
                &who = r.who]() -> result<opened> {
        const fd_name name(path);
        const int flags = (what == use::write ? O_WRONLY : O_RDONLY) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
        // The stamp is older than the answer, so a change in between is seen at the next use.
        struct stat st{};
        if (file_status(path, st) != 0)
            return errno_error("fstat");
        bool ours = false;
        bool is_refused = false;
        int refused = 0;
        {
            acting_as as(who);
            if (!as)
                return as.error();
            unique_fd fd(::openat(self_.get(), name.text(), flags));
            if (fd)
                return opened(std::move(fd), permission_stamp(st, acls));
            refused = errno;
            // Clients check permissions at open and write 0444 files that they made; and what may be
            // executed must be read. Both rules are knfsd's.
            is_refused = refused == EACCES;
            ours = is_refused && (st.st_uid == who.uid || (what == use::read && may(path, X_OK)));
        }
        if (ours || (is_refused && by_open)) {
            unique_fd fd(::openat(self_.get(), name.text(), flags));
            // By the open alone it is of use to nobody without one: then it has the stamp of no file.
            if (fd)
                return opened(std::move(fd), ours ? permission_stamp(st, acls) : permission_stamp());
            refused = errno;
        }
        return error::from_errno(refused, what == use::write ? "open for writing" : "open for reading");
    };
    s.files.keep_within_budget();
    auto done = co_await run_with_room(s, job, changes_here(r.who, *f));
    if (!done)
        co_return done.error();
    auto user = f->find_or_add(r.who);
    if (what == use::write) {
        user->write = f->share(std::move(done->fd));
        user->write_stamp = done->stamp;
        s.files.writes(*f);
    } else {
        user->read = f->share(std::move(done->fd));
        user->read_stamp = done->stamp;
    }
    co_return user;
}

task<void> backend::ensure_sync(const file_ref& f)
{
    if (f->sync || (!f->is_directory() && !f->is_regular()))
        co_return;
    auto job = [this, path = f->path.get()]() -> result<unique_fd> {
        unique_fd fd(
            ::openat(self_.get(), fd_name(path).text(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
        if (!fd)
            return errno_error("open for fsync");
        return fd;
    };
    shard& s = at(co_await this_reactor());
    s.files.keep_within_budget();
    auto opened = co_await run_with_room(s, job, false, when_full::wait);
    if (opened && !f->sync)
        f->sync = std::move(*opened);
}

task<result<void>> backend::settle(const file_ref& f, sync_group::what kind)
{
    if (f->mount->in_memory)
        co_return result<void>();
    co_await ensure_sync(f);
    // What can't be opened (a device, a symbolic link, another's file) is synced with its file system. By path, that
    // may be one mounted beneath, of which nothing is open: a round with the root's descriptor would sync another one.
    if (!f->sync && handles_->uses_paths() && f->dev != handles_->root_stat().st_dev)
        co_return co_await syncs_.sync_everything();
    if (!f->sync)
        co_return co_await syncs_.sync(sync_group::what::filesystem, f->mount->fd.get(), f->dev, f->ino);
    co_return co_await syncs_.sync(kind, f->sync.get(), f->dev, f->ino);
}

task<result<storage::entry>> backend::remember(shard& s, std::uint64_t standing, unique_fd fd, looked& st,
                                               const storage::handle& directory, std::string_view name,
                                               file_ref* out)
{
    const mount_point* mount = nullptr;
    std::uint64_t fsid = 0;
    auto make = [&]() -> result<storage::handle> {
        const std::uint64_t before = numbers_->now();
        if (st.st_mode == 0 && file_status(fd.get(), st) != 0)
            return errno_error("fstat");
        auto made = handles_->handle_of(fd.get(), st, directory, name, &mount);
        if (!made)
            return made;
        fsid = handles_->fsid_of(fd.get(), st, *mount);
        const numbered_file file{st.st_dev, st.st_ino, mount->local};
        if (!st.number)
            numbers_->look_again(file, fd.get(), st, before);
        return made;
    };
    // It may be on a mount beneath, which answers as late as it likes.
    const bool here = !options_.crossmnt && handles_->root_mount().local;
    auto handle = co_await shard_or_pool<decltype(make)>(pool_, std::move(make), here, when_full::wait);
    const bool is_left = has_left(standing);
    if (!handle || is_left) {
        close_where_it_may_last(pool_, std::move(fd), !here);
        co_return is_left ? no_root() : handle.error();
    }
    file_ref f = s.files.insert(*handle, std::move(fd), mount, fsid, st);
    storage::entry e;
    e.handle = *handle;
    e.attrs = attributes(st, *f);
    if (out != nullptr)
        *out = std::move(f);
    co_return e;
}

} // namespace verbena::posixfs
