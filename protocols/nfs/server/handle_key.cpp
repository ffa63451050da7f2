// SPDX-License-Identifier: Apache-2.0
// The file with the key that signs file handles.
#include <verbena/core/log.hpp>
#include <verbena/core/net/net.hpp>
#include <verbena/protocols/nfs/server/file_handle.hpp>

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <string>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

namespace verbena::nfs {

namespace {

// Made after the key, at the first start: where it is, and the key is not, the key was lost.
constexpr const char* later_file = "nfs-recovery.sqlite";

result<handle_key> read_key(int fd)
{
    struct stat status;
    if (::fstat(fd, &status) != 0)
        return error::from_errno(errno, "handle.key");
    if (!S_ISREG(status.st_mode))
        return error(std::errc::invalid_argument, "handle.key is not a regular file; remove it");
    if ((status.st_mode & 077) != 0)
        return error(
            std::errc::permission_denied,
            "handle.key can be read by others: chmod 600 handle.key; if somebody may have read it, remove "
            "it instead, and clients must mount again");
    if (status.st_uid != ::geteuid())
        return error(std::errc::permission_denied,
                     "handle.key belongs to another user; chown it to the daemon's");
    // One byte more than a key, to see a longer file.
    std::array<std::byte, sizeof(handle_key) + 1> content;
    const ssize_t got = ::pread(fd, content.data(), content.size(), 0);
    if (got < 0)
        return error::from_errno(errno, "handle.key");
    if (got != sizeof(handle_key))
        return error(
            std::errc::invalid_argument,
            "handle.key is not 16 bytes; remove it, and a new one is made (clients must mount again)",
            static_cast<std::uint64_t>(got));
    handle_key key;
    std::copy_n(content.begin(), key.size(), key.begin());
    return key;
}

// Under another name first: a start that is cut short, or another daemon, never sees half a key.
result<void> create_key(int directory)
{
    handle_key key;
    if (::getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size()))
        return error::from_errno(errno, "no random bytes for handle.key");
    const std::string name = "handle.key." + std::to_string(::getpid());
    ::unlinkat(directory, name.c_str(), 0);
    const net::unique_fd file(
        ::openat(directory, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file)
        return error::from_errno(errno, "can't create handle.key in the state directory");
    int failed = 0;
    if (const ssize_t put = ::write(file.get(), key.data(), key.size());
        put != static_cast<ssize_t>(key.size()))
        failed = put < 0 ? errno : ENOSPC;
    else if (::fsync(file.get()) != 0)
        failed = errno;
    // Unlike rename, link never replaces the key of a daemon that was quicker.
    else if (::linkat(directory, name.c_str(), directory, "handle.key", 0) != 0 && errno != EEXIST)
        failed = errno;
    ::unlinkat(directory, name.c_str(), 0);
    if (failed == 0 && ::fsync(directory) != 0)
        failed = errno;
    if (failed != 0)
        return error::from_errno(failed, "can't write handle.key in the state directory");
    return {};
}

} // namespace

result<handle_key> load_or_create_key(const std::filesystem::path& state)
{
    std::error_code failed;
    std::filesystem::create_directories(state, failed);
    const net::unique_fd directory(::open(state.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory)
        return error::from_errno(errno, "can't open the state directory; name another with --state");
    for (bool created = false;; created = true) {
        const net::unique_fd file(::openat(directory.get(), "handle.key", O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
        if (file)
            return read_key(file.get());
        if (errno != ENOENT || created)
            return error::from_errno(errno, "can't open handle.key in the state directory");
        const bool was_used = ::faccessat(directory.get(), later_file, F_OK, 0) == 0;
        if (auto done = create_key(directory.get()); !done)
            return done.error();
        if (was_used)
            log(log_level::warning, "nfs",
                "a new handle.key was made where an earlier verbenad had one: handles that clients have are "
                "stale; put the copy of that key back and start again, or have all clients mount again",
                {{"state", state.native()}});
        else
            log(log_level::info, "nfs",
                "a new handle.key signs file handles; keep a copy of it, since without it all clients must "
                "mount again",
                {{"state", state.native()}});
    }
}

} // namespace verbena::nfs
