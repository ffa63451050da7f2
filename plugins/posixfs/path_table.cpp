// SPDX-License-Identifier: Apache-2.0
#include "path_table.hpp"

#include "file_status.hpp"
#include "fnv1a.hpp"
#include "kernel_buffer.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <random>
#include <span>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

namespace verbena::posixfs {

namespace {

constexpr std::byte path_kind{3};
constexpr std::size_t handle_size = 1 + 4 + 8 + 4 + 4;
constexpr std::size_t instance_at = handle_size - 4;

template<class T>
std::uint32_t hash_of(std::span<T> what) noexcept
{
    const std::uint64_t x = fnv1a(std::as_bytes(what));
    return static_cast<std::uint32_t>(x ^ x >> 32);
}

} // namespace

path_table::path_table(int root, const struct stat& root_stat, std::size_t capacity, std::uint64_t resolve)
    : root_(root),
      capacity_(capacity),
      resolve_(resolve),
      root_device_(root_stat.st_dev),
      kept_by_root_(kept_by_filesystem(root)),
      root_key_(key_of(root, root_stat)),
      instance_(std::random_device{}())
{
}

// A handle of FUSE names what the kernel has in its cache, and changes when that is emptied; a file of overlayfs is
// born again when it is first written.
path_table::constants path_table::kept_by_filesystem(int fd) noexcept
{
    struct statfs st{};
    constants kept;
    if (::fstatfs(fd, &st) == 0) {
        kept.handle = st.f_type != FUSE_SUPER_MAGIC;
        kept.birth = st.f_type != OVERLAYFS_SUPER_MAGIC;
    }
    return kept;
}

std::uint32_t path_table::generation_of(int fd, constants kept) noexcept
{
    kernel_buffer space;
    file_handle* const handle = space.get();
    handle->handle_bytes = MAX_HANDLE_SZ;
    int mount = 0;
    if (kept.handle && ::name_to_handle_at(fd, "", handle, &mount, AT_EMPTY_PATH) == 0)
        return hash_of(std::span(handle->f_handle, handle->handle_bytes));
    struct statx x{};
    if (!kept.birth || ::statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &x) != 0 ||
        (x.stx_mask & STATX_BTIME) == 0)
        return 0;
    const std::int64_t born[2] = {x.stx_btime.tv_sec, x.stx_btime.tv_nsec};
    return hash_of(std::span<const std::int64_t>(born));
}

path_table::key path_table::key_of(int fd, const struct stat& st) const noexcept
{
    key k;
    k.inode = st.st_ino;
    k.device = static_cast<std::uint32_t>(major(st.st_dev)) << 20 | minor(st.st_dev);
    k.generation = generation_of(fd, st.st_dev == root_device_ ? kept_by_root_ : kept_by_filesystem(fd));
    return k;
}

storage::handle path_table::make(const key& k) const
{
    std::byte bytes[handle_size];
    bytes[0] = path_kind;
    std::memcpy(bytes + 1, &k.device, 4);
    std::memcpy(bytes + 5, &k.inode, 8);
    std::memcpy(bytes + 13, &k.generation, 4);
    std::memcpy(bytes + instance_at, &instance_, 4);
    return storage::handle(bytes);
}

bool path_table::parse(const storage::handle& h, key& k) const
{
    const auto bytes = h.bytes();
    if (bytes.size() != handle_size || bytes[0] != path_kind)
        return false;
    std::memcpy(&k.device, bytes.data() + 1, 4);
    std::memcpy(&k.inode, bytes.data() + 5, 8);
    std::memcpy(&k.generation, bytes.data() + 13, 4);
    return true;
}

// A directory has one name; of a file with one link, any other name is of the past.
void path_table::see(node& n, const struct stat& st, place&& at)
{
    if (n.last == at)
        return;
    if (S_ISDIR(st.st_mode) || st.st_nlink <= 1) {
        n.others.clear();
    } else {
        std::erase(n.others, at);
        if (n.others.size() + 1 == max_names)
            n.others.erase(n.others.begin());
        n.others.push_back(std::move(n.last));
    }
    n.last = std::move(at);
}

storage::handle path_table::insert(int fd, const struct stat& st, const storage::handle& directory,
                                   std::string_view name)
{
    const key k = key_of(fd, st);
    place at;
    if (k == root_key_ || name == "." || name == ".." || !parse(directory, at.directory))
        return make(k);
    at.name = name;
    std::lock_guard lock(mutex_);
    auto found = nodes_.find(k);
    if (found != nodes_.end()) {
        see(found->second, st, std::move(at));
        uses_.splice(uses_.begin(), uses_, found->second.use);
        return make(k);
    }
    if (nodes_.size() >= capacity_) {
        nodes_.erase(uses_.back());
        uses_.pop_back();
    }
    uses_.push_front(k);
    node n;
    n.last = std::move(at);
    n.use = uses_.begin();
    nodes_.emplace(k, std::move(n));
    return make(k);
}

std::string path_table::path_of(const place& at)
{
    std::vector<const std::string*> names{&at.name};
    for (key above = at.directory; !(above == root_key_);) {
        auto found = nodes_.find(above);
        if (found == nodes_.end() || names.size() >= max_depth)
            return {};
        uses_.splice(uses_.begin(), uses_, found->second.use);
        names.push_back(&found->second.last.name);
        above = found->second.last.directory;
    }
    std::string path;
    for (auto name = names.rbegin(); name != names.rend(); ++name) {
        if (!path.empty())
            path += '/';
        path += **name;
    }
    return path;
}

result<unique_fd> path_table::open(const storage::handle& h)
{
    key k;
    if (!parse(h, k))
        return error(storage::errc::bad_handle, "not a handle of the path table");
    std::uint32_t instance = 0;
    std::memcpy(&instance, h.bytes().data() + instance_at, 4);
    if (instance != instance_)
        return error::from_errno(ESTALE, "the handle is of an earlier run");
    std::vector<std::string> paths;
    if (k == root_key_) {
        paths.emplace_back(".");
    } else {
        std::lock_guard lock(mutex_);
        if (auto found = nodes_.find(k); found != nodes_.end()) {
            uses_.splice(uses_.begin(), uses_, found->second.use);
            paths.push_back(path_of(found->second.last));
            for (auto at = found->second.others.rbegin(); at != found->second.others.rend(); ++at)
                paths.push_back(path_of(*at));
        }
    }
    std::erase(paths, std::string());
    // What keeps a name from being looked at counts for more than names that lead elsewhere by now.
    error failed = error::from_errno(ESTALE, "no remembered path leads to this file");
    open_how how{};
    how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    how.resolve = resolve_;
    for (const std::string& path : paths) {
        unique_fd fd(static_cast<int>(::syscall(SYS_openat2, root_, path.c_str(), &how, sizeof(how))));
        struct stat st{};
        if (!fd || file_status(fd.get(), st) != 0) {
            const bool gone =
                errno == ENOENT || errno == ENOTDIR || errno == EXDEV || errno == ELOOP || errno == ESTALE;
            if (!gone)
                failed = error::from_errno(errno, "openat2 of a remembered path");
        } else if (key_of(fd.get(), st) == k) {
            return fd;
        }
    }
    return failed;
}

std::size_t path_table::size() const
{
    std::lock_guard lock(mutex_);
    return nodes_.size();
}

} // namespace verbena::posixfs
