// SPDX-License-Identifier: Apache-2.0
// Random changes by several users, each made through the back end and, in a directory beside it, by system calls with the same
// user's rights: both must say the same, and leave the same. VERBENA_WALK_SEED=N repeats a walk.
#pragma once

#include "backend_fixture.hpp"
#include "needs_root.hpp"
#include "temporary_directory.hpp"

#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <optional>
#include <random>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <thread>
#include <utility>

namespace suite {

class descriptor {
public:
    explicit descriptor(int fd = -1) noexcept : fd_(fd) {}
    descriptor(descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    descriptor& operator=(descriptor&& other) noexcept
    {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~descriptor()
    {
        if (fd_ >= 0)
            ::close(fd_);
    }
    explicit operator bool() const noexcept { return fd_ >= 0; }
    int get() const noexcept { return fd_; }

private:
    int fd_;
};

/// Does it in a thread with the rights of `who`. The back end, which keeps those of its callers in this one for as long as it
/// can, must not see a change.
template<class Do>
auto as(const credential& who, Do what)
{
    decltype(what()) done;
    std::thread([&] {
        const std::vector<gid_t> groups(who.groups().begin(), who.groups().end());
        // To and from uid 0 the kernel takes and gives the capabilities for files.
        ::setfsuid(1);
        ::setfsuid(0);
        ::syscall(SYS_setgroups, groups.size(), groups.data());
        ::setfsgid(who.gid);
        ::setfsuid(who.uid);
        done = what();
    }).join();
    return done;
}

/// What a local program does with a file that it has open, as a server has its handles.
class local_files {
public:
    static int result(bool good) { return good ? 0 : errno; }
    static std::string by_number(int fd) { return "/proc/self/fd/" + std::to_string(fd); }
    static struct stat status(int fd)
    {
        struct stat st{};
        BOOST_REQUIRE(::fstat(fd, &st) == 0);
        return st;
    }
    static descriptor open(int directory, const std::string& name)
    {
        return as(credential(0, 0), [&] {
            return descriptor(::openat(directory, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
        });
    }
    // mkdir drops these bits, and open the one for the group of a folder whose group the caller is not in.
    static int set_id_bits(int fd, const credential& who, mode_t mode)
    {
        const mode_t now = status(fd).st_mode & 07777;
        if ((mode & 06000 & ~now) == 0)
            return 0;
        return as(who, [&] { return result(::chmod(by_number(fd).c_str(), now | (mode & 06000)) == 0); });
    }
    static int write(int fd, const credential& who, const std::function<bool(int)>& change)
    {
        const struct stat st = status(fd);
        if (!S_ISREG(st.st_mode))
            return S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
        const std::string path = by_number(fd);
        descriptor file;
        const auto open = [&] {
            file = descriptor(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
            return result(bool(file));
        };
        int failed = as(who, open);
        if (failed == EACCES && st.st_uid == who.uid)
            failed = as(credential(0, 0), open); // the owner may always (RFC 1813 4.4)
        return failed != 0 ? failed : as(who, [&] { return result(change(file.get())); });
    }
};

class walk {
public:
    walk(fixture& f, std::uint64_t seed) : fixture_(f), luck_(seed)
    {
        objects_.push_back({f.fs->root(), descriptor(::open(beside_.path().c_str(), O_PATH | O_CLOEXEC))});
    }
    /// Gives how many changes were made and not refused.
    unsigned steps(int count)
    {
        for (int i = 0; i < count; ++i) {
            step();
            BOOST_TEST_REQUIRE(theirs_ == ours_, "step " << i << ": " << what_ << ": " << theirs_ << " ("
                                                         << ::strerror(theirs_) << ") beside ours " << ours_
                                                         << " (" << ::strerror(ours_) << ")");
            compare(i);
        }
        return succeeded_;
    }

private:
    struct object {
        handle ours;
        descriptor theirs;
        mode_t type() const { return local_files::status(theirs.get()).st_mode & S_IFMT; }
    };

    std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(luck_); }
    template<class T, std::size_t N>
    const T& one_of(const T (&list)[N])
    {
        return list[below(N)];
    }
    object& any() { return objects_[below(objects_.size())]; }
    object& directory()
    {
        for (;;) {
            object& o = any();
            if (o.type() == S_IFDIR)
                return o;
        }
    }
    std::string name() { return std::string(1, char('a' + below(6))); }
    template<class T>
    void ours(task<result<T>> t)
    {
        ours_ = fixture_.fails(std::move(t));
    }

    void step()
    {
        static const request users[] = {user(0, 0), user(1000, 1000, {50}), user(1001, 1001, {50, 77}),
                                        user(1002, 77)};
        who_ = &users[below(10) == 0 ? 0 : 1 + below(3)];
        what_ = std::to_string(who_->who.uid) + " ";
        switch (below(15)) {
        case 0:
        case 1:
        case 2: return create();
        case 3:
        case 4: return make_directory();
        case 5: return below(2) == 0 ? make_fifo() : make_link();
        case 6: return remove(false);
        case 7: return remove(true);
        case 8:
        case 9: return rename();
        case 10: return link();
        case 11:
        case 12: return change_mode();
        case 13: return below(2) == 0 ? change_owner() : truncate();
        default: return below(3) == 0 ? access() : write();
        }
    }

    static constexpr mode_t modes[] = {0644,  0600,  0666,  0777,  02755, 02644, 02670,
                                       04755, 06711, 06777, 02070, 0444,  0,     01777};

    void note_new(int in, const std::string& at, storage::create_result& made)
    {
        objects_.push_back({made.made.handle, local_files::open(in, at)});
    }
    void finish(const std::string& at, int in, mode_t mode, bool has_mode,
                task<result<storage::create_result>> t)
    {
        auto made = fixture_.run(std::move(t));
        ours_ = made.has_value() ? 0 : made.error().errno_value();
        if (theirs_ == 0 && has_mode)
            theirs_ = local_files::set_id_bits(local_files::open(in, at).get(), who_->who, mode);
        if (ours_ == 0 && theirs_ == 0)
            note_new(in, at, *made);
    }
    void create()
    {
        const object& d = directory();
        const std::string at = name();
        const mode_t mode = one_of(modes);
        const bool guarded = below(2) == 0;
        what_ += (guarded ? "create " : "create or cut ") + at;
        set_attributes set;
        set.mode = mode;
        set.size = 0;
        const int in = d.theirs.get();
        theirs_ = as(who_->who, [&] {
            return local_files::result(
                bool(descriptor(::openat(in, at.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, mode))));
        });
        const bool again = theirs_ == EEXIST && !guarded;
        if (!again)
            return finish(at, in, mode, true,
                          fixture_.fs->create(*who_, d.ours, at, create_mode::guarded, set, 0));
        ours(fixture_.fs->create(*who_, d.ours, at, create_mode::unchecked, set, 0));
        const descriptor present = local_files::open(in, at);
        if (S_ISREG(local_files::status(present.get()).st_mode))
            theirs_ =
                local_files::write(present.get(), who_->who, [](int fd) { return ::ftruncate(fd, 0) == 0; });
    }
    void make_directory()
    {
        const object& d = directory();
        const std::string at = name();
        const mode_t mode = one_of(modes);
        what_ += "mkdir " + at;
        set_attributes set;
        set.mode = mode;
        const int in = d.theirs.get();
        theirs_ = as(who_->who, [&] { return local_files::result(::mkdirat(in, at.c_str(), mode) == 0); });
        finish(at, in, mode, true, fixture_.fs->mkdir(*who_, d.ours, at, set));
    }
    void make_fifo()
    {
        const object& d = directory();
        const std::string at = name();
        const mode_t mode = one_of(modes);
        what_ += "mkfifo " + at;
        set_attributes set;
        set.mode = mode;
        const int in = d.theirs.get();
        theirs_ = as(who_->who, [&] { return local_files::result(::mkfifoat(in, at.c_str(), mode) == 0); });
        finish(at, in, mode, true, fixture_.fs->mknod(*who_, d.ours, at, file_type::fifo, 0, 0, set));
    }
    void make_link()
    {
        const object& d = directory();
        const std::string at = name();
        what_ += "symlink " + at;
        const int in = d.theirs.get();
        theirs_ =
            as(who_->who, [&] { return local_files::result(::symlinkat("target", in, at.c_str()) == 0); });
        finish(at, in, 0, false, fixture_.fs->symlink(*who_, d.ours, at, "target", {}));
    }
    void remove(bool is_directory)
    {
        const object& d = directory();
        const std::string at = name();
        what_ += (is_directory ? "rmdir " : "remove ") + at;
        theirs_ = as(who_->who, [&] {
            return local_files::result(
                ::unlinkat(d.theirs.get(), at.c_str(), is_directory ? AT_REMOVEDIR : 0) == 0);
        });
        if (is_directory)
            ours(fixture_.fs->rmdir(*who_, d.ours, at));
        else
            ours(fixture_.fs->remove(*who_, d.ours, at));
    }
    void rename()
    {
        const object& from = directory();
        const object& to = directory();
        const std::string a = name(), b = name();
        what_ += "rename " + a + " " + b + (&from == &to ? "" : " elsewhere");
        theirs_ = as(who_->who, [&] {
            return local_files::result(::renameat(from.theirs.get(), a.c_str(), to.theirs.get(), b.c_str()) ==
                                       0);
        });
        ours(fixture_.fs->rename(*who_, from.ours, a, to.ours, b));
        // Of several reasons to refuse it any may be told.
        if (theirs_ != 0 && ours_ != 0)
            ours_ = theirs_;
    }
    void link()
    {
        const object& o = any();
        const object& d = directory();
        const std::string at = name();
        // What others may link is a setting of the kernel's (fs.protected_hardlinks).
        static const request root = user(0, 0);
        if (local_files::status(o.theirs.get()).st_uid != who_->who.uid || o.type() != S_IFREG)
            who_ = &root;
        what_ += "link " + at;
        theirs_ = as(who_->who, [&] {
            return local_files::result(::linkat(AT_FDCWD, local_files::by_number(o.theirs.get()).c_str(),
                                                d.theirs.get(), at.c_str(), AT_SYMLINK_FOLLOW) == 0);
        });
        ours(fixture_.fs->link(*who_, o.ours, d.ours, at));
    }
    void change_mode()
    {
        const object& o = any();
        if (o.type() == S_IFLNK)
            return access();
        const mode_t mode = one_of(modes);
        what_ += "chmod";
        theirs_ = as(who_->who, [&] {
            return local_files::result(::chmod(local_files::by_number(o.theirs.get()).c_str(), mode) == 0);
        });
        set_attributes set;
        set.mode = mode;
        ours(fixture_.fs->setattr(*who_, o.ours, set, std::nullopt));
    }
    void change_owner()
    {
        const object& o = any();
        static const std::uint32_t groups[] = {50, 77, 1000, 1001};
        set_attributes set;
        if (below(2) == 0)
            set.uid = std::uint32_t(1000 + below(3));
        if (!set.uid || below(2) == 0)
            set.gid = one_of(groups);
        what_ += "chown";
        theirs_ = as(who_->who, [&] {
            return local_files::result(::fchownat(o.theirs.get(), "", set.uid ? *set.uid : uid_t(-1),
                                                  set.gid ? *set.gid : gid_t(-1), AT_EMPTY_PATH) == 0);
        });
        ours(fixture_.fs->setattr(*who_, o.ours, set, std::nullopt));
    }
    void truncate()
    {
        const object& o = any();
        const std::size_t size = below(5000);
        what_ += "truncate";
        theirs_ = local_files::write(o.theirs.get(), who_->who,
                                     [size](int fd) { return ::ftruncate(fd, off_t(size)) == 0; });
        set_attributes set;
        set.size = size;
        ours(fixture_.fs->setattr(*who_, o.ours, set, std::nullopt));
    }
    void write()
    {
        const object& o = any();
        const std::size_t at = below(5000);
        what_ += "write";
        theirs_ = local_files::write(o.theirs.get(), who_->who,
                                     [at](int fd) { return ::pwrite(fd, "data", 4, off_t(at)) == 4; });
        ours(fixture_.write(*who_, o.ours, at, "data"));
    }
    void access()
    {
        const object& o = any();
        what_ += "access";
        // The bits of a symbolic link mean nothing.
        theirs_ = o.type() == S_IFLNK ? R_OK | W_OK | X_OK : as(who_->who, [&] {
            int may = 0;
            for (const int bit : {R_OK, W_OK, X_OK}) {
                if (::syscall(SYS_faccessat2, o.theirs.get(), "", bit, AT_EACCESS | AT_EMPTY_PATH) == 0)
                    may |= bit;
            }
            return may;
        });
        ours_ = int(fixture_.must(fixture_.fs->access(*who_, o.ours, R_OK | W_OK | X_OK)));
        what_ += " (bits)";
        BOOST_TEST_REQUIRE(theirs_ == ours_, what_ << ": " << theirs_ << " beside ours " << ours_ << std::oct
                                                   << ", mode " << local_files::status(o.theirs.get()).st_mode
                                                   << std::dec);
        theirs_ = ours_ = 1; // changed nothing
    }

    void compare(int step)
    {
        succeeded_ += ours_ == 0 ? 1 : 0;
        std::erase_if(objects_,
                      [](const object& o) { return local_files::status(o.theirs.get()).st_nlink == 0; });
        for (const object& o : objects_) {
            const struct stat st = local_files::status(o.theirs.get());
            const attributes a = fixture_.stat(o.ours);
            const bool is_directory = S_ISDIR(st.st_mode);
            const bool same = a.mode == (st.st_mode & 07777) && a.uid == st.st_uid && a.gid == st.st_gid &&
                              (is_directory || a.links == st.st_nlink) &&
                              (is_directory || a.size == std::uint64_t(st.st_size));
            BOOST_TEST_REQUIRE(
                same, "step " << step << ": " << what_ << std::oct << ": mode " << (st.st_mode & 07777)
                              << " beside ours " << a.mode << std::dec << ", owner " << st.st_uid << ":"
                              << st.st_gid << " beside " << a.uid << ":" << a.gid << ", links " << st.st_nlink
                              << " beside " << a.links << ", size " << st.st_size << " beside " << a.size);
        }
    }

    fixture& fixture_;
    std::mt19937_64 luck_;
    temporary_directory beside_;
    std::vector<object> objects_;
    const request* who_ = nullptr;
    std::string what_;
    int theirs_ = 0;
    int ours_ = 0;
    unsigned succeeded_ = 0;
};

void walk_beside_system_calls(std::uint64_t fixed, std::uint64_t fresh)
{
    needs_root("to act for several users");
    const char* chosen = std::getenv("VERBENA_WALK_SEED");
    std::random_device random;
    unsigned made = 0;
    const std::uint64_t walks = chosen != nullptr ? 1 : fixed + fresh;
    for (std::uint64_t i = 0; i < walks; ++i) {
        const std::uint64_t seed = chosen != nullptr ? std::strtoull(chosen, nullptr, 10)
                                   : i < fixed       ? i
                                                     : random();
        BOOST_TEST_CONTEXT("VERBENA_WALK_SEED=" << seed)
        {
            fixture f;
            backend_options lazily;
            lazily.async = true;
            f.fs = make_backend(f.pool, lazily);
            made += walk(f, seed).steps(400);
        }
    }
    BOOST_TEST((chosen != nullptr || made > 40 * walks));
}

BOOST_AUTO_TEST_CASE(random_walks_beside_system_calls) { walk_beside_system_calls(8, 4); }

} // namespace suite
