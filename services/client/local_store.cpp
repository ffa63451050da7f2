// SPDX-License-Identifier: Apache-2.0
#include "store.hpp"

#include <verbena/core/net/net.hpp>

#include <cerrno>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

namespace verbena::cli {
namespace {

constexpr std::uint32_t local_transfer = 1 << 20;
// Of the mode that the other side tells. The copy is ours: its set-uid bit would lend our rights to another's program.
constexpr std::uint32_t permissions = 01777;

file_info info_of(const struct stat& s) noexcept
{
    file_info info;
    info.kind = S_ISREG(s.st_mode)   ? file_kind::regular
                : S_ISDIR(s.st_mode) ? file_kind::directory
                : S_ISLNK(s.st_mode) ? file_kind::link
                                     : file_kind::other;
    info.mode = s.st_mode & 07777;
    info.size = static_cast<std::uint64_t>(s.st_size);
    info.mtime = s.st_mtim;
    info.atime = s.st_atim;
    info.ctime = s.st_ctim;
    info.file_system = s.st_dev;
    info.id = s.st_ino;
    return info;
}

class local_file final : public open_file {
public:
    local_file(runtime& r, net::unique_fd fd) : runtime_(r), fd_(std::move(fd)) {}

    task<result<rpc::payload>> read(std::uint64_t offset, std::uint32_t count) override
    {
        lease block = co_await runtime_.buffers().acquire(count);
        if (!block)
            co_return error(std::errc::not_enough_memory, "read");
        auto job = [fd = fd_.get(), to = block.data(), count, offset]() noexcept -> ssize_t {
            std::size_t done = 0;
            while (done < count) {
                const ssize_t n = ::pread(fd, to + done, count - done, static_cast<off_t>(offset + done));
                if (n < 0 && errno == EINTR)
                    continue;
                if (n < 0)
                    return -errno;
                if (n == 0)
                    break;
                done += static_cast<std::size_t>(n);
            }
            return static_cast<ssize_t>(done);
        };
        const ssize_t n = co_await runtime_.files().run(std::move(job));
        if (n < 0)
            co_return error::from_errno(static_cast<int>(-n), "read");
        const std::span<const std::byte> bytes(block.data(), static_cast<std::size_t>(n));
        co_return rpc::payload(std::move(block), bytes);
    }

    task<result<void>> write(std::uint64_t offset, rpc::payload data) override
    {
        auto job = [fd = fd_.get(), &data, offset]() noexcept -> int {
            std::uint64_t at = offset;
            for (auto piece : data.pieces()) {
                while (!piece.empty()) {
                    const ssize_t n = ::pwrite(fd, piece.data(), piece.size(), static_cast<off_t>(at));
                    if (n < 0 && errno == EINTR)
                        continue;
                    if (n <= 0)
                        return n < 0 ? errno : EIO;
                    at += static_cast<std::uint64_t>(n);
                    piece = piece.subspan(static_cast<std::size_t>(n));
                }
            }
            return 0;
        };
        const int failed = co_await runtime_.files().run(std::move(job));
        if (failed != 0)
            co_return error::from_errno(failed, "write");
        co_return result<void>();
    }

    task<result<void>> cut(std::uint64_t length) override
    {
        // A device or a pipe has no length.
        auto job = [fd = fd_.get(), length]() noexcept -> int {
            struct stat s{};
            if (::fstat(fd, &s) != 0)
                return errno;
            const bool longer = S_ISREG(s.st_mode) && static_cast<std::uint64_t>(s.st_size) > length;
            return longer && ::ftruncate(fd, static_cast<off_t>(length)) != 0 ? errno : 0;
        };
        const int failed = co_await runtime_.files().run(std::move(job));
        if (failed != 0)
            co_return error::from_errno(failed, "truncate");
        co_return result<void>();
    }

    task<result<void>> close() override
    {
        auto job = [fd = fd_.release()]() noexcept -> int { return ::close(fd) == 0 ? 0 : errno; };
        const int failed = co_await runtime_.files().run(std::move(job));
        if (failed != 0)
            co_return error::from_errno(failed, "close");
        co_return result<void>();
    }

private:
    runtime& runtime_;
    net::unique_fd fd_;
};

class local_store final : public store {
public:
    local_store(runtime& r, std::string root) : runtime_(r), root_(std::move(root)) {}

    task<result<file_info>> stat(std::string path, bool follow) override
    {
        struct stat s{};
        auto job = [full = name_of(path), follow, &s]() noexcept -> int {
            return (follow ? ::stat(full.c_str(), &s) : ::lstat(full.c_str(), &s)) == 0 ? 0 : errno;
        };
        const int failed = co_await runtime_.files().run(std::move(job));
        if (failed != 0)
            co_return error::from_errno(failed);
        co_return info_of(s);
    }

    task<result<std::vector<std::string>>> list(std::string path) override
    {
        std::vector<std::string> names;
        auto job = [full = name_of(path), &names]() noexcept -> int {
            DIR* d = ::opendir(full.c_str());
            if (d == nullptr)
                return errno;
            errno = 0;
            while (const dirent* entry = ::readdir(d)) {
                const std::string_view name = entry->d_name;
                try {
                    if (name != "." && name != "..")
                        names.emplace_back(name);
                } catch (const std::bad_alloc&) {
                    ::closedir(d);
                    return ENOMEM;
                }
                errno = 0;
            }
            const int failed = errno;
            ::closedir(d);
            return failed;
        };
        const int failed = co_await runtime_.files().run(std::move(job));
        if (failed != 0)
            co_return error::from_errno(failed, "read the directory");
        co_return std::move(names);
    }

    task<result<std::string>> read_link(std::string path) override
    {
        std::string target(PATH_MAX, '\0');
        const ssize_t n = ::readlink(name_of(path).c_str(), target.data(), target.size());
        if (n < 0)
            co_return error::from_errno(errno, "readlink");
        target.resize(static_cast<std::size_t>(n));
        co_return std::move(target);
    }

    task<result<std::unique_ptr<open_file>>> open(std::string path) override
    {
        co_return co_await open_with(std::move(path), O_RDONLY, 0);
    }
    // What the user named may be a link. Beneath it names come from elsewhere: a server that shows one as a link first and
    // as a file then would have its data written where that link leads.
    task<result<std::unique_ptr<open_file>>> create(std::string path, std::uint32_t mode) override
    {
        const int flags = O_RDWR | O_CREAT | (path.empty() ? 0 : O_NOFOLLOW);
        co_return co_await open_with(std::move(path), flags, mode & permissions);
    }

    task<result<std::uint64_t>> copy_within(store&, open_file&, open_file&, std::uint64_t,
                                            std::function<void(std::uint64_t)>) override
    {
        co_return error(std::errc::not_supported, "copy within this host");
    }

    task<result<void>> make_directory(std::string path, std::uint32_t mode) override
    {
        const std::string full = name_of(path);
        if (::mkdir(full.c_str(), (mode & permissions) | S_IRWXU) != 0) {
            struct stat s{};
            const int look = path.empty() ? 0 : AT_SYMLINK_NOFOLLOW; // see create()
            if (errno != EEXIST || ::fstatat(AT_FDCWD, full.c_str(), &s, look) != 0 || !S_ISDIR(s.st_mode))
                co_return error::from_errno(EEXIST == errno ? ENOTDIR : errno, "mkdir");
        }
        co_return result<void>();
    }

    task<result<void>> make_link(std::string path, std::string target) override
    {
        const std::string full = name_of(path);
        if (target.empty() || target.find('\0') != std::string::npos)
            co_return error(std::errc::invalid_argument,
                            "a symbolic link leads to a path: not an empty one, and without NUL");
        struct stat s{};
        if (::lstat(full.c_str(), &s) == 0 && S_ISLNK(s.st_mode))
            ::unlink(full.c_str());
        if (::symlink(target.c_str(), full.c_str()) != 0)
            co_return error::from_errno(errno, "symlink");
        co_return result<void>();
    }

    task<result<void>> set_mode_and_times(std::string path, const file_info& info) override
    {
        const std::string full = name_of(path);
        const timespec times[2] = {info.atime, info.mtime};
        const int look = path.empty() ? 0 : AT_SYMLINK_NOFOLLOW; // see create()
        if (info.kind != file_kind::link &&
            ::fchmodat(AT_FDCWD, full.c_str(), info.mode & permissions, look) != 0)
            co_return error::from_errno(errno, "chmod");
        if (::utimensat(AT_FDCWD, full.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0)
            co_return error::from_errno(errno, "utimensat");
        co_return result<void>();
    }

    std::uint32_t transfer_size() const noexcept override { return local_transfer; }
    std::string place() const override { return {}; }
    std::string server() const override { return "this host"; }
    std::string name_of(const std::string& path) const override { return join(root_, path); }

private:
    task<result<std::unique_ptr<open_file>>> open_with(std::string path, int flags, std::uint32_t mode)
    {
        auto job = [full = name_of(path), flags, mode]() noexcept -> int {
            const int fd = ::open(full.c_str(), flags | O_CLOEXEC, mode);
            return fd >= 0 ? fd : -errno;
        };
        const int fd = co_await runtime_.files().run(std::move(job));
        if (fd == -ELOOP && (flags & O_NOFOLLOW) != 0)
            co_return error(std::errc::too_many_symbolic_link_levels,
                            "a symbolic link is there, which a copy does not write through: remove it first");
        if (fd < 0)
            co_return error::from_errno(-fd, "open");
        co_return std::unique_ptr<open_file>(std::make_unique<local_file>(runtime_, net::unique_fd(fd)));
    }

    runtime& runtime_;
    std::string root_;
};

} // namespace

std::string join(const std::string& directory, const std::string& name)
{
    if (directory.empty() || name.empty())
        return directory + name;
    return directory.ends_with('/') ? directory + name : directory + "/" + name;
}

std::unique_ptr<store> make_local_store(runtime& r, std::string root)
{
    return std::make_unique<local_store>(r, std::move(root));
}

} // namespace verbena::cli
