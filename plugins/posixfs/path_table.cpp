// SPDX-License-Identifier: Apache-2.0
#include "path_table.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/openat2.h>
#include <random>
#include <sys/syscall.h>
#include <vector>

namespace verbena::posixfs {

namespace {
constexpr std::byte path_kind{3};
constexpr std::size_t handle_size = 1 + 8 + 8 + 4;
} // namespace

path_table::path_table(int root, const struct stat& root_stat, std::size_t capacity, std::uint64_t resolve)
    : root_(root),
      capacity_(capacity),
      resolve_(resolve),
      root_key_{root_stat.st_dev, root_stat.st_ino},
      instance_(std::random_device{}())
{
}

storage::handle path_table::make(const key& k) const
{
    std::byte bytes[handle_size];
    bytes[0] = path_kind;
    std::memcpy(bytes + 1, &k.device, 8);
    std::memcpy(bytes + 9, &k.inode, 8);
    std::memcpy(bytes + 17, &instance_, 4);
    return storage::handle(bytes);
}

bool path_table::parse(const storage::handle& h, key& k) const
{
    const auto bytes = h.bytes();
    if (bytes.size() != handle_size || bytes[0] != path_kind)
        return false;
    std::memcpy(&k.device, bytes.data() + 1, 8);
    std::memcpy(&k.inode, bytes.data() + 9, 8);
    return true;
}

storage::handle path_table::insert(const struct stat& st, const storage::handle& directory,
                                   std::string_view name)
{
    const key k{st.st_dev, st.st_ino};
    key parent;
    if (k == root_key_ || !parse(directory, parent))
        return make(k);
    std::lock_guard lock(mutex_);
    auto found = nodes_.find(k);
    if (found != nodes_.end()) {
        found->second.directory = parent;
        found->second.name = name;
        uses_.splice(uses_.begin(), uses_, found->second.use);
        return make(k);
    }
    if (nodes_.size() >= capacity_) {
        nodes_.erase(uses_.back());
        uses_.pop_back();
    }
    uses_.push_front(k);
    node n;
    n.directory = parent;
    n.name = name;
    n.use = uses_.begin();
    nodes_.emplace(k, std::move(n));
    return make(k);
}

result<unique_fd> path_table::open(const storage::handle& h)
{
    key k;
    if (!parse(h, k))
        return error(storage::errc::bad_handle, "not a handle of the path table");
    std::uint32_t instance = 0;
    std::memcpy(&instance, h.bytes().data() + 17, 4);
    if (instance != instance_)
        return error::from_errno(ESTALE, "the handle is of an earlier run");
    std::string path;
    {
        std::lock_guard lock(mutex_);
        std::vector<const std::string*> names;
        for (key at = k; !(at == root_key_);) {
            auto found = nodes_.find(at);
            if (found == nodes_.end() || names.size() >= max_depth)
                return error::from_errno(ESTALE, "the path table has forgotten this file");
            uses_.splice(uses_.begin(), uses_, found->second.use);
            names.push_back(&found->second.name);
            at = found->second.directory;
        }
        for (auto name = names.rbegin(); name != names.rend(); ++name) {
            if (!path.empty())
                path += '/';
            path += **name;
        }
    }
    if (path.empty())
        path = ".";
    open_how how{};
    how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    how.resolve = resolve_;
    unique_fd fd(static_cast<int>(::syscall(SYS_openat2, root_, path.c_str(), &how, sizeof(how))));
    if (!fd)
        return error::from_errno(
            errno == ENOENT || errno == ENOTDIR || errno == EXDEV || errno == ELOOP ? ESTALE : errno,
            "openat2 of a remembered path");
    struct stat st{};
    if (::fstat(fd.get(), &st) != 0 || !(key{st.st_dev, st.st_ino} == k))
        return error::from_errno(ESTALE, "another file stands at the remembered path");
    return fd;
}

std::size_t path_table::size() const
{
    std::lock_guard lock(mutex_);
    return nodes_.size();
}

} // namespace verbena::posixfs
