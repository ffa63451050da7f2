// SPDX-License-Identifier: Apache-2.0
// New names: files, directories, symbolic links and special files. Each is made with the caller's rights, on
// the pool or, in memory, on the shard; then it and its directory go to stable storage.
#include "changes.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

namespace verbena::posixfs {

namespace {

constexpr std::uint32_t default_file_mode = 0600;
constexpr std::uint32_t default_directory_mode = 0700;

// The mode to make something with. Where an ACL is set next, nobody but the owner has anything until then.
mode_t first_mode(const storage::set_attributes& set, mode_t usual) noexcept
{
    const mode_t mode = set.mode ? *set.mode & 07777 : usual;
    return set.acl ? (mode & 07000) | usual : mode;
}

// RFC 1813 3.3.8: the verifier of an exclusive create stands in the file's times until the client sets them.
// Whole seconds below 2^31 survive in every file system, so 62 bits are kept, of a mix of all 64.
struct verifier_times {
    explicit verifier_times(std::uint64_t v) noexcept
    {
        v += 0x9e3779b97f4a7c15ull;
        v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9ull;
        v = (v ^ (v >> 27)) * 0x94d049bb133111ebull;
        v ^= v >> 31;
        times[0].tv_sec = static_cast<time_t>(v & 0x7fffffff);
        times[1].tv_sec = static_cast<time_t>((v >> 32) & 0x7fffffff);
    }
    bool match(const struct stat& st) const noexcept
    {
        return st.st_atim.tv_sec == times[0].tv_sec && st.st_mtim.tv_sec == times[1].tv_sec &&
               st.st_atim.tv_nsec == 0 && st.st_mtim.tv_nsec == 0;
    }
    timespec times[2]{};
};

// What is made in such a directory gets its rights from that list and the mode, whatever the umask (RFC 8275 4). The kernel sees to it,
// as long as the mode reaches it whole.
bool has_default_acl(int directory) noexcept
{
    return ::getxattr(fd_path(directory).text(), "system.posix_acl_default", nullptr, 0) > 0;
}

} // namespace

result<void> backend::apply_to_new(int fd, struct stat& st, const storage::set_attributes& set,
                                   const storage::credential& who, bool& changed) const
{
    storage::set_attributes rest = set;
    rest.mode.reset();
    // Clients name the owner in creates as a matter of course; only root may choose another.
    if (who.uid != 0 || !capabilities::get().switch_user || rest.uid == st.st_uid)
        rest.uid.reset();
    if (rest.gid == st.st_gid || !capabilities::get().switch_user)
        rest.gid.reset();
    if (!S_ISREG(st.st_mode) || rest.size == 0)
        rest.size.reset();
    // mkdir drops these bits from the mode it is given.
    if (set.mode && !S_ISLNK(st.st_mode) && (*set.mode & 06000 & ~st.st_mode) != 0)
        rest.mode = (st.st_mode & 07777) | (*set.mode & 06000);
    if (!rest.mode && !rest.uid && !rest.gid && !rest.size && !rest.acl &&
        rest.atime.how == storage::set_time::kind::keep && rest.mtime.how == storage::set_time::kind::keep)
        return {};
    changed = true;
    if (auto done = apply(fd, st, rest, who); !done)
        return done;
    if (file_status(fd, st) != 0)
        return errno_error("fstat");
    return {};
}

template<class Make>
task<result<storage::create_result>>
backend::make_entry(const storage::request& r, const storage::handle& directory, std::string_view name,
                    const storage::set_attributes& set, Make make)
{
    const checked_name checked(name);
    if (checked.error() != 0)
        co_return error::from_errno(checked.error(), "a name");
    if (checked.is_dot() || checked.is_dot_dot())
        co_return error::from_errno(EEXIST, "a name that every directory has");
    if (refuses_changes())
        co_return error::from_errno(EROFS, "the export is read-only");
    shard& s = at(co_await this_reactor());
    const std::uint64_t standing = s.standing;
    auto opened = co_await open_directory(s, directory);
    if (!opened)
        co_return opened.error();
    const file_ref d = std::move(*opened);

    observed_change change = observe(*d);
    storage::set_attributes wanted = set;
    auto job = [this, local = d->mount->local, fd = d->path.get(), &order = order_of(*d), &checked, &make,
                &change, &wanted, &who = r.who]() -> result<made> {
        struct stat st{};
        if (auto live = live_directory(fd, st); !live)
            return live.error();
        acting_as as(who);
        if (!as)
            return as.error();
        const std::uint64_t before = numbers_->now();
        if (wanted.mode && wanted.umask && !has_default_acl(fd))
            wanted.mode = *wanted.mode & ~*wanted.umask;
        result<made> m = [&] {
            naming at(order, st, fd, checked.text(), change);
            return make(at, wanted);
        }();
        if (!m)
            return m;
        if (S_ISDIR(m->st.st_mode))
            order.adopt(m->st);
        // Others may have looked it up before it was finished.
        const numbered_file file{m->st.st_dev, m->st.st_ino, local};
        if (m->own_attributes)
            numbers_->changed(file);
        numbers_->look_again(file, m->path.get(), m->st, before);
        return m;
    };
    auto done = co_await run_with_room(s, job, changes_here(r.who, *d));
    if (!done)
        co_return done.error();
    if (done->resize) {
        // Not in the directory's turn.
        storage::set_attributes size_only;
        size_only.size = set.size;
        auto cut = [this, local = d->mount->local, &size_only, &m = *done, &who = r.who]() -> result<void> {
            acting_as as(who);
            if (!as)
                return as.error();
            const numbered_file file{m.st.st_dev, m.st.st_ino, local};
            const auto applied = apply(m.path.get(), m.st, size_only, who);
            numbers_->changed(file);
            if (!applied)
                return applied.error();
            return numbers_->look(file, m.path.get(), m.st) == 0 ? result<void>() : errno_error("fstat");
        };
        const bool here = !cuts_much(done->st, size_only) && changes_here(r.who, *d);
        auto resized = co_await run_with_room(s, cut, here, when_full::wait);
        if (!resized)
            co_return resized.error();
    }
    file_ref f;
    auto entry =
        co_await remember(s, standing, std::move(done->path), done->st, directory, checked.text(), &f);
    if (!entry)
        co_return entry.error();
    // Elsewhere the descriptor of a file that was made without a name keeps none in the kernel's cache: see guess().
    if (waits_for_nothing(*d))
        s.names.note(directory, checked.text(), entry->handle);
    if (done->write) {
        auto user = f->find_or_add(r.who);
        user->write = f->share(std::move(done->write));
        user->write_stamp = permission_stamp(done->st, f->acl_changes);
        s.files.writes(*f);
    }
    if (!options_.async) {
        if (done->own_attributes) {
            if (auto synced = co_await settle(f, sync_group::what::file); !synced)
                co_return synced.error();
        }
        if (done->new_name) {
            if (auto synced = co_await settle(d, sync_group::what::metadata); !synced)
                co_return synced.error();
        }
    }
    storage::create_result out;
    out.made = *entry;
    out.directory = change_of(change, *d);
    out.existed = done->existed;
    co_return out;
}

// The file gets its name after its verifier: were power lost between the two, the client would be told that its own file is
// another's. Fails where the file system has no files without names; then the name has to come first.
unique_fd backend::make_with_verifier(const naming& at, mode_t permissions,
                                      std::uint64_t verifier) const noexcept
{
    unique_fd file(::openat(at.directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC | O_NONBLOCK, permissions));
    // By its descriptor only CAP_DAC_READ_SEARCH may name a file before Linux 6.10; others are told that there is none.
    const auto name_it = [&] {
        return ::linkat(file.get(), "", at.directory, at.name, AT_EMPTY_PATH) == 0 ||
               (errno == ENOENT && ::linkat(self_.get(), fd_name(file.get()).text(), at.directory, at.name,
                                            AT_SYMLINK_FOLLOW) == 0);
    };
    if (file && (::futimens(file.get(), verifier_times(verifier).times) != 0 || !name_it())) {
        const int why = errno;
        file.reset();
        errno = why;
    }
    return file;
}

result<backend::made> backend::create_file(naming& at, storage::create_mode mode,
                                           const storage::set_attributes& set, std::uint64_t verifier,
                                           const storage::credential& who) const
{
    made m;
    const bool exclusive = mode == storage::create_mode::exclusive;
    const mode_t permissions = first_mode(set, default_file_mode);
    if (exclusive)
        m.write = make_with_verifier(at, permissions, verifier);
    m.own_attributes = bool(m.write);
    if (!m.write && !(exclusive && errno == EEXIST)) {
        open_how how{};
        how.flags = O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
        how.mode = permissions;
        how.resolve = handles_->resolve_flags();
        m.write.reset(static_cast<int>(::syscall(SYS_openat2, at.directory, at.name, &how, sizeof(how))));
    }
    if (m.write) {
        at.made();
        // It serves for what an O_PATH one does; opening one by /proc costs as much as making the file.
        m.path.reset(::fcntl(m.write.get(), F_DUPFD_CLOEXEC, 0));
        result<void> ready;
        if (exclusive && !m.own_attributes) {
            m.own_attributes = true;
            if (::futimens(m.write.get(), verifier_times(verifier).times) != 0)
                ready = errno_error("the verifier of an exclusive create");
        }
        if (ready && (!m.path || file_status(m.path.get(), m.st) != 0))
            ready = errno_error("open of a new file");
        // The rest is set once the client is known to have made it; but a list that can't be had is to make no file.
        storage::set_attributes list_alone;
        list_alone.acl = set.acl;
        if (ready)
            ready = apply_to_new(m.path.get(), m.st, exclusive ? list_alone : set, who, m.own_attributes);
        if (!ready) {
            at.undo(m.write.get());
            return ready.error();
        }
        return m;
    }
    if (errno != EEXIST || mode == storage::create_mode::guarded)
        return errno_error("create");
    at.turn.end_unchanged(at.change);
    auto present = open_name(at.directory, at.name);
    if (!present)
        return present.error();
    m.path = std::move(*present);
    m.existed = true;
    m.new_name = false;
    if (file_status(m.path.get(), m.st) != 0)
        return errno_error("fstat");
    if (!S_ISREG(m.st.st_mode))
        return error::from_errno(EEXIST, "create over something that is no file");
    if (mode == storage::create_mode::exclusive) {
        if (m.st.st_size != 0 || !verifier_times(verifier).match(m.st))
            return error::from_errno(EEXIST, "exclusive create with another verifier");
        // The first reply may have been lost together with the sync before it.
        m.new_name = m.own_attributes = true;
        return m;
    }
    m.resize = m.own_attributes = set.size.has_value();
    return m;
}

task<result<storage::create_result>>
backend::create(const storage::request& r, const storage::handle& directory, std::string_view name,
                storage::create_mode mode, const storage::set_attributes& set, std::uint64_t verifier)
{
    auto make = [this, mode, verifier, &who = r.who](naming& at, const storage::set_attributes& set) {
        return create_file(at, mode, set, verifier, who);
    };
    co_return co_await make_entry(r, directory, name, set, std::move(make));
}

namespace {

// The rest of mkdir, symlink and mknod once the name is made.
constexpr const char* made_again = "something else stands at the new name";

} // namespace

task<result<storage::create_result>> backend::mkdir(const storage::request& r,
                                                    const storage::handle& directory, std::string_view name,
                                                    const storage::set_attributes& set)
{
    auto make = [this, &who = r.who](naming& at, const storage::set_attributes& set) -> result<made> {
        if (::mkdirat(at.directory, at.name, first_mode(set, default_directory_mode)) != 0)
            return errno_error("mkdir");
        return finish_new(at, S_IFDIR, set, who);
    };
    co_return co_await make_entry(r, directory, name, set, std::move(make));
}

task<result<storage::create_result>> backend::symlink(const storage::request& r,
                                                      const storage::handle& directory, std::string_view name,
                                                      std::string_view target,
                                                      const storage::set_attributes& set)
{
    if (target.empty() || target.find('\0') != target.npos)
        co_return error::from_errno(EINVAL, "the target of a symbolic link");
    if (target.size() >= 4096)
        co_return error::from_errno(ENAMETOOLONG, "the target of a symbolic link");
    const std::string to(target);
    auto make = [this, &to, &who = r.who](naming& at, const storage::set_attributes& set) -> result<made> {
        if (::symlinkat(to.c_str(), at.directory, at.name) != 0)
            return errno_error("symlink");
        return finish_new(at, S_IFLNK, set, who);
    };
    co_return co_await make_entry(r, directory, name, set, std::move(make));
}

task<result<storage::create_result>> backend::mknod(const storage::request& r,
                                                    const storage::handle& directory, std::string_view name,
                                                    storage::file_type type, std::uint32_t major,
                                                    std::uint32_t minor, const storage::set_attributes& set)
{
    mode_t format = 0;
    switch (type) {
    case storage::file_type::block_device: format = S_IFBLK; break;
    case storage::file_type::character_device: format = S_IFCHR; break;
    case storage::file_type::socket: format = S_IFSOCK; break;
    case storage::file_type::fifo: format = S_IFIFO; break;
    default: co_return error::from_errno(EINVAL, "mknod of a type that has its own call");
    }
    auto make = [this, format, major, minor,
                 &who = r.who](naming& at, const storage::set_attributes& set) -> result<made> {
        const mode_t mode = first_mode(set, default_file_mode);
        const bool device = format == S_IFBLK || format == S_IFCHR;
        if (::mknodat(at.directory, at.name, mode | format, device ? makedev(major, minor) : 0) != 0)
            return errno_error("mknod");
        return finish_new(at, format, set, who);
    };
    co_return co_await make_entry(r, directory, name, set, std::move(make));
}

result<backend::made> backend::finish_new(naming& at, mode_t format, const storage::set_attributes& set,
                                          const storage::credential& who) const
{
    at.made();
    made m;
    auto opened = open_name(at.directory, at.name);
    if (!opened) {
        at.undo(-1, format == S_IFDIR ? AT_REMOVEDIR : 0);
        return opened.error();
    }
    m.path = std::move(*opened);
    if (file_status(m.path.get(), m.st) != 0)
        return errno_error("fstat");
    if ((m.st.st_mode & S_IFMT) != format)
        return error::from_errno(EEXIST, made_again);
    if (auto done = apply_to_new(m.path.get(), m.st, set, who, m.own_attributes); !done) {
        at.undo(m.path.get(), format == S_IFDIR ? AT_REMOVEDIR : 0);
        return done.error();
    }
    return m;
}

} // namespace verbena::posixfs
