// SPDX-License-Identifier: Apache-2.0
// Changes of attributes, and of names that go or move. Each runs with the caller's rights, on the pool or, in
// memory, on the shard; then what it changed goes to stable storage.
#include "changes.hpp"
#include "acls.hpp"

#include <algorithm>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>

namespace verbena::posixfs {

namespace {

timespec time_for(const storage::set_time& t) noexcept
{
    switch (t.how) {
    case storage::set_time::kind::server_time: return {0, UTIME_NOW};
    case storage::set_time::kind::value: return {t.value.seconds, static_cast<long>(t.value.nanoseconds)};
    case storage::set_time::kind::keep: break;
    }
    return {0, UTIME_OMIT};
}

/// Whose rights bind `who`: his own or, in a daemon that can't switch to them, its own.
class bound_by {
public:
    explicit bound_by(const storage::credential& who) noexcept : who_(who) {}
    bool owns_all() const noexcept { return own_.switch_user ? who_.uid == 0 : own_.change_owners; }
    std::uint32_t uid() const noexcept { return own_.switch_user ? who_.uid : ::geteuid(); }
    bool in_group(std::uint32_t gid) const noexcept
    {
        if (own_.switch_user)
            return who_.gid == gid || std::ranges::binary_search(who_.groups(), gid);
        return ::getegid() == gid || ::group_member(gid) != 0;
    }

private:
    const capabilities& own_ = capabilities::get();
    const storage::credential& who_;
};

// What the kernel would refuse in the middle of it, when data are cut off already. It has the last word all the same.
result<void> check_before(const struct stat& st, const storage::set_attributes& set,
                          const storage::credential& who) noexcept
{
    using kind = storage::set_time::kind;
    // chown's -1 means "leave", so it can't be asked for.
    if (set.uid == 0xffffffff || set.gid == 0xffffffff)
        return error::from_errno(EINVAL, "an owner of 2^32-1");
    // Only where data or an ACL is at stake: what an owner is, some file systems decide by themselves.
    const bound_by rights(who);
    if ((!set.size && !set.acl) || rights.owns_all())
        return {};
    const bool owner_only = set.uid || set.gid || (set.mode && !S_ISLNK(st.st_mode)) ||
                            set.atime.how == kind::value || set.mtime.how == kind::value;
    if ((owner_only && rights.uid() != st.st_uid) || (set.uid && *set.uid != st.st_uid) ||
        (set.gid && *set.gid != st.st_gid && !rights.in_group(*set.gid)))
        return error::from_errno(EPERM, "not the owner");
    return {};
}

// Times of the server need no more than the right to write, as with knfsd; to the kernel that goes for both at
// once only. With the identity of `who`, which comes back.
result<void> set_times(int fd, const storage::set_attributes& set, const storage::credential& who) noexcept
{
    using kind = storage::set_time::kind;
    const timespec times[2] = {time_for(set.atime), time_for(set.mtime)};
    if (::utimensat(fd, "", times, AT_EMPTY_PATH) == 0)
        return {};
    const bool one_of_the_server =
        set.atime.how != set.mtime.how && set.atime.how != kind::value && set.mtime.how != kind::value;
    if (errno != EPERM || !one_of_the_server || !may(fd, W_OK))
        return errno_error("utimensat");
    act_as_daemon();
    const int failed = ::utimensat(fd, "", times, AT_EMPTY_PATH) == 0 ? 0 : errno;
    if (auto acting = act_as(who); !acting)
        return acting;
    return failed == 0 ? result<void>() : error::from_errno(failed, "utimensat");
}

} // namespace

result<void> backend::apply(int fd, const struct stat& st, const storage::set_attributes& set,
                            const storage::credential& who, bool may_cut) const
{
    const fd_name name(fd);
    if (auto allowed = check_before(st, set, who); !allowed)
        return allowed;
    posix_acls acls;
    if (set.acl) {
        auto mapped = acls_to_set(st, *set.acl);
        if (!mapped)
            return mapped.error();
        acls = std::move(*mapped);
    }
    unique_fd file;
    if (set.size) {
        if (!S_ISREG(st.st_mode))
            return error::from_errno(S_ISDIR(st.st_mode) ? EISDIR : EINVAL,
                                     "size of something that is no file");
        if (*set.size > std::uint64_t(INT64_MAX))
            return error::from_errno(EFBIG, "a size past the largest offset");
        const int flags = O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
        file.reset(::openat(self_.get(), name.text(), flags));
        if (!file && errno == EACCES && (st.st_uid == who.uid || may_cut)) {
            act_as_daemon();
            file.reset(::openat(self_.get(), name.text(), flags));
            const int failed = errno;
            if (auto acting = act_as(who); !acting)
                return acting.error();
            errno = failed;
        }
        if (!file)
            return errno_error("truncate");
    }
    // Before all that stays done: there may be no room for it, and the file system have no ACLs.
    std::optional<posix_acls> before;
    if (set.acl) {
        if (set.size || set.uid || set.gid) {
            struct stat as_it_is{}; // who had the lock before may have changed the mode
            auto found = posix_acls_of(fd, as_it_is);
            if (!found)
                return found.error();
            before = std::move(*found);
        }
        if (auto done = set_acls(fd, st, acls); !done)
            return done;
    }
    // What is refused shuts nobody out, and lets nobody in.
    const auto refused = [&](const char* what) {
        const error failed = errno_error(what);
        if (before)
            (void)set_acls(fd, st, *before);
        return failed;
    };
    if (file && ::ftruncate(file.get(), static_cast<off_t>(*set.size)) != 0)
        return refused("truncate");
    file.reset();
    if ((set.uid || set.gid) && ::fchownat(fd, "", set.uid ? *set.uid : uid_t(-1),
                                           set.gid ? *set.gid : gid_t(-1), AT_EMPTY_PATH) != 0)
        return refused("chown");
    std::optional<mode_t> mode;
    if (set.mode && !S_ISLNK(st.st_mode))
        mode = *set.mode & 07777;
    if (mode && set.acl) { // which has said all but the bits above
        struct stat now{};
        if (file_status(fd, now) != 0)
            return errno_error("fstat");
        mode = (*mode & 07000) | (now.st_mode & 0777);
        if (*mode == (now.st_mode & 07777))
            mode.reset();
    }
    // A descriptor of a new file is not only a path, and needs no name.
    if (mode && ::fchmod(fd, *mode) != 0 &&
        (errno != EBADF || ::fchmodat(self_.get(), name.text(), *mode, 0) != 0))
        return errno_error("chmod");
    using kind = storage::set_time::kind;
    // Truncation has set the time of modification to that of the server.
    const bool set_already = set.size && set.atime.how == kind::keep && set.mtime.how == kind::server_time;
    if (!set_already && (set.atime.how != kind::keep || set.mtime.how != kind::keep))
        return set_times(fd, set, who);
    return {};
}

task<void> backend::forget(shard& s, victim gone)
{
    if (gone.gone) {
        s.files.drop(gone.handle);
        removals_.add(gone.handle);
    }
    if (gone.fd && gone.size >= large_file) {
        auto job = [fd = gone.fd.get()] { ::close(fd); };
        gone.fd.release();
        co_await pool_.run(std::move(job));
    }
}

task<result<storage::change>> backend::setattr(const storage::request& r, const storage::handle& file,
                                               const storage::set_attributes& set,
                                               std::optional<storage::file_time> guard)
{
    if (refuses_changes())
        co_return error::from_errno(EROFS, "the export is read-only");
    shard& s = at(co_await this_reactor());
    auto opened_file = co_await open_file(s, file);
    if (!opened_file)
        co_return opened_file.error();
    file_ref f = std::move(*opened_file);
    // Who has a file's lock may cut much off, so a shard waits for none.
    struct stat now{};
    const bool here = changes_here(r.who, *f) && (f->is_directory() || !guard) &&
                      file_status(f->path.get(), now) == 0 && !cuts_much(now, set);
    auto job = [this, &f = *f, fd = f->path.get(), &order = order_of(*f), here, mount = f->mount, &file, &set,
                &guard, may_cut = r.may_by_open(W_OK), &who = r.who]() -> result<observed_change> {
        struct stat st{};
        if (file_status(fd, st) != 0)
            return errno_error("fstat");
        if (st.st_nlink == 0 && !pins_.keeps({file, fd, *mount}, true))
            return error::from_errno(ESTALE, "the file was removed");
        // Writes take no turns, so of a file nothing is told from before. A guard and the change it guards are one
        // to all that change attributes on the pool; shards do it without the lock, in no time.
        const bool ordered = S_ISDIR(st.st_mode);
        std::optional<change_order::turn> turn;
        std::unique_lock<std::mutex> lock;
        if (ordered)
            turn.emplace(order, st);
        else if (!here)
            lock = std::unique_lock(
                guarded_[st.st_ino % 128 + (mount->local ? 0 : 128)]); // another host may hang
        if (guard) {
            if (file_status(fd, st) != 0)
                return errno_error("fstat");
            if (!(time_of(st.st_ctim) == *guard))
                return error(storage::errc::not_sync, "the file changed since the client looked");
        }
        acting_as as(who);
        if (!as)
            return as.error();
        observed_change c = observe(f);
        if (ordered)
            turn->begin(fd, c);
        const auto done = apply(fd, st, set, who, may_cut);
        // Also where half of it was set. What these two say is said before anything is.
        if (set.acl &&
            (done || (done.error().errno_value() != EPERM && done.error().errno_value() != EOPNOTSUPP)))
            removals_.add(file, removal_log::event::new_acl);
        if (!done) {
            changed(f);
            return done.error();
        }
        if (ordered)
            turn->end(fd, c);
        else
            c.seen = c.look_after(fd);
        return c;
    };
    auto done = co_await run_with_room(s, job, here);
    if (!done)
        co_return done.error();
    if (!options_.async) {
        const auto kind = f->is_directory() ? sync_group::what::metadata : sync_group::what::file;
        if (auto synced = co_await settle(f, kind); !synced)
            co_return synced.error();
    }
    co_return change_of(*done, *f);
}

task<result<storage::change>> backend::unlink(const storage::request& r, const storage::handle& directory,
                                              std::string_view name, int flags)
{
    const checked_name checked(name);
    if (checked.error() != 0)
        co_return error::from_errno(checked.error(), "a name");
    if (checked.is_dot() || checked.is_dot_dot())
        co_return error::from_errno(EINVAL, "a name that every directory keeps");
    if (refuses_changes())
        co_return error::from_errno(EROFS, "the export is read-only");
    shard& s = at(co_await this_reactor());
    auto opened = co_await open_directory(s, directory);
    if (!opened)
        co_return opened.error();
    const file_ref d = std::move(*opened);
    const bool here = changes_here(r.who, *d);
    auto job = [this, fd = d->path.get(), &order = order_of(*d), &directory, &checked, flags, &who = r.who,
                only = r.victim, cache = here ? &s : nullptr, &d = *d]() -> result<change_job> {
        change_job out;
        struct stat st{};
        if (auto live = live_directory(fd, st); !live)
            return live.error();
        acting_as as(who);
        if (!as)
            return as.error();
        change_order::turn turn(order, st);
        out.from = observe(d);
        // One whose closing takes long needs a descriptor of its own, so that its space is free when the caller is answered.
        looked present{};
        file_ref noted;
        if (cache != nullptr)
            noted = guess(*cache, d, checked.text(), present);
        if (noted && size_to_free(present) < large_file) {
            out.victim.handle = noted->handle;
            out.victim.mount = noted->mount;
            out.victim.size = size_to_free(present);
            out.victim.file = numbered(*noted);
            out.victim.known = std::move(noted);
        } else if (auto known = identify(fd, checked.text(), directory, out.victim); !known) {
            return known.error();
        }
        if (only != nullptr && !(out.victim.handle == *only))
            return error::from_errno(ESTALE, "the name leads to another file");
        auto removing = keep_open(out.victim);
        if (!removing)
            return removing.error();
        turn.begin(fd, out.from);
        if (::unlinkat(fd, checked.text(), flags) != 0)
            return errno_error("unlink");
        numbers_->changed(out.victim.file); // it may have other names
        turn.end(fd, out.from);
        still_there(out.victim, *removing);
        return out;
    };
    auto done = co_await run_with_room(s, job, here);
    if (!done)
        co_return done.error();
    co_await forget(s, std::move(done->victim));
    if (!options_.async) {
        if (auto synced = co_await settle(d, sync_group::what::metadata); !synced)
            co_return synced.error();
    }
    co_return change_of(done->from, *d);
}

task<result<storage::change>> backend::remove(const storage::request& r, const storage::handle& directory,
                                              std::string_view name)
{
    co_return co_await unlink(r, directory, name, 0);
}

task<result<storage::change>> backend::rmdir(const storage::request& r, const storage::handle& directory,
                                             std::string_view name)
{
    co_return co_await unlink(r, directory, name, AT_REMOVEDIR);
}

result<void> backend::identify(int directory, const char* name, const storage::handle& directory_handle,
                               victim& v) const
{
    auto fd = open_name(directory, name);
    if (!fd)
        return fd.error();
    struct stat st{};
    if (file_status(fd->get(), st) != 0)
        return errno_error("fstat");
    const mount_point* mount = nullptr;
    auto handle = handles_->handle_of(fd->get(), st, directory_handle, name, &mount);
    if (!handle)
        return handle.error();
    v.fd = std::move(*fd);
    v.handle = *handle;
    v.mount = mount;
    v.size = size_to_free(st);
    v.file = {st.st_dev, st.st_ino, mount->local};
    return {};
}

result<pin_table::removal> backend::keep_open(const victim& v)
{
    return pins_.removing({v.handle, v.descriptor(), *v.mount});
}

void backend::still_there(victim& v, pin_table::removal& removing) noexcept
{
    struct stat st{};
    v.gone = file_status(v.descriptor(), st) == 0 &&
             (S_ISDIR(st.st_mode) || (st.st_nlink == 0 && !removing.keeps()));
}

task<result<storage::rename_result>> backend::rename(const storage::request& r,
                                                     const storage::handle& from_directory,
                                                     std::string_view from,
                                                     const storage::handle& to_directory, std::string_view to)
{
    const checked_name old_name(from);
    const checked_name new_name(to);
    for (const checked_name* n : {&old_name, &new_name}) {
        if (n->error() != 0)
            co_return error::from_errno(n->error(), "a name");
        if (n->is_dot() || n->is_dot_dot())
            co_return error::from_errno(EINVAL, "a name that every directory keeps");
    }
    if (refuses_changes())
        co_return error::from_errno(EROFS, "the export is read-only");
    shard& s = at(co_await this_reactor());
    auto opened_from = co_await open_directory(s, from_directory);
    if (!opened_from)
        co_return opened_from.error();
    auto opened_to = co_await open_directory(s, to_directory);
    if (!opened_to)
        co_return opened_to.error();
    const file_ref source = std::move(*opened_from);
    const file_ref target = std::move(*opened_to);

    auto job = [this, &source = *source, &target = *target, from_fd = source->path.get(),
                to_fd = target->path.get(), &order = order_of(*source), &old_name, &new_name, &to_directory,
                &from_directory, &who = r.who, only = r.victim]() -> result<change_job> {
        change_job out;
        out.from = observe(source);
        out.to = observe(target);
        struct stat from_st{};
        struct stat to_st{};
        if (auto live = live_directory(from_fd, from_st); !live)
            return live.error();
        if (auto live = live_directory(to_fd, to_st); !live)
            return live.error();
        acting_as as(who);
        if (!as)
            return as.error();
        victim moved;
        std::optional<pin_table::removal> removing;
        {
            change_order::turn turn(order, from_st, to_st);
            if (auto known = identify(from_fd, old_name.text(), from_directory, moved); !known)
                return known.error();
            if (auto known = identify(to_fd, new_name.text(), to_directory, out.victim);
                !known && known.error().errno_value() != ENOENT)
                return known.error();
            const bool one_directory = from_st.st_dev == to_st.st_dev && from_st.st_ino == to_st.st_ino;
            turn.begin(from_fd, out.from);
            if (!one_directory)
                turn.begin(to_fd, out.to);
            // Two names of one file, or the same twice: nothing is done (POSIX, rename).
            if (out.victim.fd && out.victim.file.device == moved.file.device &&
                out.victim.file.inode == moved.file.inode) {
                out.victim = victim();
                change_order::turn::end_unchanged(out.from);
                if (one_directory)
                    out.to = out.from;
                else
                    change_order::turn::end_unchanged(out.to);
                return out;
            }
            if (only != nullptr && !(out.victim.handle == *only))
                return error::from_errno(ESTALE, "the name leads to another file");
            if (out.victim.fd) {
                auto kept = keep_open(out.victim);
                if (!kept)
                    return kept.error();
                removing = std::move(*kept);
            }
            if (::renameat(from_fd, old_name.text(), to_fd, new_name.text()) != 0)
                return errno_error("rename");
            numbers_->changed(moved.file);
            if (out.victim.fd)
                numbers_->changed(out.victim.file);
            turn.end(from_fd, out.from);
            if (one_directory)
                out.to = out.from; // it changed once
            else
                turn.end(to_fd, out.to);
        }
        struct stat st{};
        if (file_status(moved.fd.get(), st) == 0) {
            handles_->moved(moved.fd.get(), st, to_directory, new_name.text());
            if (S_ISDIR(st.st_mode))
                order.adopt(st);
        }
        if (removing)
            still_there(out.victim, *removing);
        return out;
    };
    auto done = co_await run_with_room(s, job, changes_here(r.who, *source));
    if (!done)
        co_return done.error();
    co_await forget(s, std::move(done->victim));
    if (!options_.async) {
        if (auto synced = co_await settle(target, sync_group::what::metadata); !synced)
            co_return synced.error();
        if (!(from_directory == to_directory)) {
            if (auto synced = co_await settle(source, sync_group::what::metadata); !synced)
                co_return synced.error();
        }
    }
    storage::rename_result out;
    out.from = change_of(done->from, *source);
    out.to = change_of(done->to, *target);
    co_return out;
}

task<result<storage::link_result>> backend::link(const storage::request& r, const storage::handle& file,
                                                 const storage::handle& directory, std::string_view name)
{
    const checked_name checked(name);
    if (checked.error() != 0)
        co_return error::from_errno(checked.error(), "a name");
    if (checked.is_dot() || checked.is_dot_dot())
        co_return error::from_errno(EEXIST, "a name that every directory has");
    if (refuses_changes())
        co_return error::from_errno(EROFS, "the export is read-only");
    shard& s = at(co_await this_reactor());
    auto opened_file = co_await open_file(s, file);
    if (!opened_file)
        co_return opened_file.error();
    file_ref f = std::move(*opened_file);
    auto opened = co_await open_directory(s, directory);
    if (!opened)
        co_return opened.error();
    const file_ref d = std::move(*opened);
    auto job = [this, &f = *f, &d = *d, file_fd = f->path.get(), fd = d->path.get(), &order = order_of(*d),
                &checked, &file, mount = f->mount, &directory, &who = r.who]() -> result<change_job> {
        change_job out;
        out.to = observe(d);
        struct stat st{};
        if (auto live = live_directory(fd, st); !live)
            return live.error();
        if (file_status(file_fd, out.file) != 0)
            return errno_error("fstat");
        if (out.file.st_nlink == 0)
            return error::from_errno(pins_.keeps({file, file_fd, *mount}, true) ? ENOENT : ESTALE,
                                     "a link of a file without a name");
        acting_as as(who);
        if (!as)
            return as.error();
        change_order::turn turn(order, st);
        turn.begin(fd, out.to);
        // AT_EMPTY_PATH would need CAP_DAC_READ_SEARCH, which only root has.
        if (::linkat(self_.get(), fd_name(file_fd).text(), fd, checked.text(), AT_SYMLINK_FOLLOW) != 0)
            return errno_error("link");
        changed(f);
        turn.end(fd, out.to);
        numbers_->look(numbered(f), file_fd, out.file);
        handles_->moved(file_fd, out.file, directory, checked.text());
        return out;
    };
    auto done = co_await run_with_room(s, job, changes_here(r.who, *d));
    if (!done)
        co_return done.error();
    if (!options_.async) {
        if (auto synced = co_await settle(d, sync_group::what::metadata); !synced)
            co_return synced.error();
    }
    storage::link_result out;
    out.file = attributes(done->file, *f);
    out.directory = change_of(done->to, *d);
    co_return out;
}

} // namespace verbena::posixfs
