// SPDX-License-Identifier: Apache-2.0
#include "handles.hpp"

#include "attributes.hpp"
#include "change_order.hpp"
#include "file_status.hpp"
#include "fnv1a.hpp"
#include "identity.hpp"
#include "kernel_buffer.hpp"
#include "root_look.hpp"

#include <verbena/core/log.hpp>

#include <climits>
#include <cstdlib>
#include <dirent.h>
#include <fcntl.h>
#include <fstream>
#include <linux/ioctl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <span>
#include <sstream>
#include <stdexcept>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>

namespace verbena::posixfs {

namespace {

constexpr std::byte root_kind{1};
constexpr std::byte path_kind{3}; // of path_table
constexpr std::byte mount_kind{4};
constexpr std::byte nowhere_kind{5};
constexpr std::size_t key_size = sizeof(std::uint32_t);
constexpr std::size_t max_kernel_bytes = storage::handle::max_size - 2 - key_size;

// What XFS tells of itself (ioctl_xfs_fsgeometry(2), version 1); its headers are in a package of their own.
struct xfs_geometry {
    std::uint32_t sizes[8];
    std::uint64_t blocks[4];
    std::uint64_t uuid[2];
    std::uint32_t more[8];
};
static_assert(sizeof(xfs_geometry) == 112);
constexpr unsigned long xfs_tell_geometry = _IOR('X', 100, xfs_geometry);

// f_fsid comes from the file system's UUID where it has one, so it survives restarts and device renames; but for XFS, which
// makes it of its device's number.
std::uint64_t fsid_of_mount(int fd, const std::string& path, mount_point& mount) noexcept
{
    struct statfs st{};
    if (::fstatfs(fd, &st) != 0)
        return fnv1a(path);
    mount.in_memory = st.f_type == TMPFS_MAGIC || st.f_type == RAMFS_MAGIC;
    mount.local = !changed_by_other_hosts(static_cast<long>(st.f_type));
    std::uint64_t id = 0;
    static_assert(sizeof(st.f_fsid) == sizeof(id));
    std::memcpy(&id, &st.f_fsid, sizeof(id));
    xfs_geometry xfs{};
    if (st.f_type == XFS_SUPER_MAGIC && ::ioctl(fd, xfs_tell_geometry, &xfs) == 0)
        id = xfs.uuid[0] ^ xfs.uuid[1];
    mount.has_own_id = id != 0;
    return id != 0 ? id : fnv1a(path);
}

// mountinfo writes space, tab, newline and backslash as \ooo.
std::string unescape(const std::string& text)
{
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\\' && i + 3 < text.size()) {
            out +=
                static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
            i += 3;
        } else {
            out += text[i];
        }
    }
    return out;
}

// Entries that are looked at for the number of one: others wait for a scan of the mounts.
constexpr unsigned most_listed = 65536;

} // namespace

// What a listing tells as the number of `path`: where something is mounted, that of the directory beneath, which no other call tells. 0 if it
// is not found.
std::uint64_t number_listed(const std::string& path)
{
    const std::size_t slash = path.rfind('/');
    const std::string above = slash == 0 ? "/" : path.substr(0, slash);
    const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(above.c_str()), ::closedir);
    for (unsigned seen = 0; listing && seen < most_listed; ++seen) {
        const dirent* const entry = ::readdir(listing.get());
        if (entry == nullptr)
            break;
        if (path.compare(slash + 1, path.npos, entry->d_name) == 0)
            return entry->d_ino;
    }
    return 0;
}

bool is_without_handles(const error& e) noexcept
{
    switch (e.errno_value()) {
    case EOPNOTSUPP:
    case EOVERFLOW: // larger than any that we take
    case ESTALE:
    case EPERM: // CAP_DAC_READ_SEARCH is missing, in this user namespace or the first one
    case ENOSYS:
    case EINVAL: return true;
    default: return false;
    }
}

result<std::unique_ptr<handle_source>> handle_source::open(const posixfs_options& options,
                                                           std::optional<std::uint64_t> unmarked)
{
    std::unique_ptr<handle_source> s(new handle_source);
    char resolved[PATH_MAX];
    if (::realpath(options.root.c_str(), resolved) == nullptr)
        return errno_error("the exported directory");
    s->root_path_ = resolved;
    s->crossmnt_ = options.crossmnt;
    s->resolve_ = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
    if (!options.crossmnt)
        s->resolve_ |= RESOLVE_NO_XDEV;
    auto root = std::make_unique<mount_point>();
    root->fd.reset(::open(resolved, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!root->fd || file_status(root->fd.get(), s->root_stat_) != 0)
        return errno_error("the exported directory");
    root->dev = s->root_stat_.st_dev;
    root->fsid = root->identity = fsid_of_mount(root->fd.get(), s->root_path_, *root);
    s->root_mount_ = std::move(root);
    s->is_marked_ = unmarked && *unmarked != s->root_mount_->identity;

    bool paths = options.handles == handle_mode::path_table;
    if (!paths) {
        const auto tried = s->try_kernel_handles();
        paths = !tried && options.handles == handle_mode::automatic && is_without_handles(tried.error());
        if (!tried && !paths)
            return tried.error();
        if (paths)
            s->why_paths_ = tried.error().context();
    }
    if (paths) {
        // A path may lead to another mount, of which nothing is known: every change is synced, and none told from before.
        if (options.crossmnt)
            s->root_mount_->in_memory = s->root_mount_->local = false;
        s->paths_ =
            std::make_unique<path_table>(s->root_mount_->fd.get(), s->root_stat_,
                                         std::max<std::size_t>(options.path_table_entries, 16), s->resolve_);
        s->root_ = s->paths_->root_handle();
        return s;
    }
    if (options.crossmnt)
        s->scan_mounts();
    return s;
}

std::unique_ptr<handle_source> handle_source::nowhere(const posixfs_options& options)
{
    std::unique_ptr<handle_source> s(new handle_source);
    s->root_path_ = options.root.string();
    s->resolve_ = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
    s->root_mount_ = std::make_unique<mount_point>();
    const std::byte bytes[] = {nowhere_kind, std::byte{0}, std::byte{0}};
    s->root_ = storage::handle(bytes);
    return s;
}

namespace {

// In place of a descriptor that others may be about to use. By this one nothing is opened: it is no directory, and its file
// system has no handles.
void put_nothing_at(int fd) noexcept
{
    const unique_fd nothing(::eventfd(0, EFD_CLOEXEC));
    if (nothing && fd >= 0)
        ::dup3(nothing.get(), fd, O_CLOEXEC);
}

} // namespace

void handle_source::let_go() noexcept
{
    put_nothing_at(root_mount_->fd.get());
    const std::lock_guard lock(mutex_);
    mounts_.retire([](const mount_point& m) { put_nothing_at(m.fd.get()); });
}

std::vector<unique_fd> handle_source::duplicates()
{
    std::vector<unique_fd> all;
    const auto add = [&all](const mount_point& m) {
        unique_fd fd(::fcntl(m.fd.get(), F_DUPFD_CLOEXEC, 0));
        if (!fd)
            throw std::runtime_error("no descriptor is left: raise the limit of descriptors (LimitNOFILE=)");
        all.push_back(std::move(fd));
    };
    add(*root_mount_);
    const std::shared_lock lock(mutex_);
    mounts_.each(add);
    return all;
}

bool handle_source::has_root_of(const handle_source& other) const noexcept
{
    if (root_mount_->identity != other.root_mount_->identity || uses_paths() != other.uses_paths())
        return false;
    return uses_paths() ? paths_->has_root_of(*other.paths_) : root_ == other.root_;
}

void handle_source::reach(handle_source& newer) noexcept
{
    ::dup3(newer.root_mount_->fd.get(), root_mount_->fd.get(), O_CLOEXEC);
    root_mount_->id = int(newer.root_mount_->id);
    newer.root_mount_->fd.reset();
}

// Finds out by the root whether its file system makes handles and opens them, as overlayfs does not.
result<void> handle_source::try_kernel_handles()
{
    const int fd = root_mount_->fd.get();
    if (!capabilities::get().open_handles)
        return error(std::errc::operation_not_permitted, "kernel file handles need CAP_DAC_READ_SEARCH");
    kernel_buffer k;
    k.get()->handle_bytes = MAX_HANDLE_SZ;
    int id = 0;
    if (::name_to_handle_at(fd, "", k.get(), &id, AT_EMPTY_PATH) != 0)
        return error::from_errno(errno, "this file system has no file handles");
    root_mount_->id = id;
    if (unique_fd probe(::open_by_handle_at(fd, k.get(), O_PATH | O_CLOEXEC)); !probe)
        return error::from_errno(errno, "this file system can't open its file handles");
    auto handle = kernel_handle(fd, nullptr);
    if (!handle)
        return handle.error();
    root_ = *handle;
    return {};
}

void handle_source::look_for_mounts()
{
    {
        std::unique_lock lock(mutex_);
        // What is unknown may be asked for at any rate; reading mountinfo for each would be a gift to whoever asks.
        const auto now = std::chrono::steady_clock::now();
        if (scanning_)
            scan_ended_.wait_until(lock, scanned_ + scan_interval, [this] { return !scanning_; });
        if (scanning_ || now - scanned_ < scan_interval)
            return;
        scanning_ = true;
        scanned_ = now;
    }
    scan_mounts();
    {
        const std::lock_guard lock(mutex_);
        scanning_ = false;
    }
    scan_ended_.notify_all();
}

error handle_source::unknown_mount(const error& otherwise)
{
    const std::shared_lock lock(mutex_);
    return scanning_ ? error(storage::errc::delayed, "mounts are still being looked for") : otherwise;
}

// Opening a mount may start an automounter, or wait for a server that is down, so it is done without the lock.
void handle_source::scan_mounts()
{
    std::ifstream in("/proc/self/mountinfo");
    std::string line;
    const std::string beneath = root_path_ == "/" ? "/" : root_path_ + "/";
    while (std::getline(in, line)) {
        std::istringstream fields(line);
        int id = 0;
        std::string skip;
        std::string path;
        fields >> id >> skip >> skip >> skip >> path;
        path = unescape(path);
        if (!path.starts_with(beneath))
            continue;
        if (id == root_mount_->id)
            continue;
        {
            const std::shared_lock lock(mutex_);
            if (mounts_.full())
                return;
            if (mounts_.has(id))
                continue;
        }
        auto m = std::make_unique<mount_point>();
        m->fd.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
        kernel_buffer k;
        k.get()->handle_bytes = MAX_HANDLE_SZ;
        // A mount hidden beneath another one opens as the upper one: its id differs.
        int opened_as = 0;
        if (!m->fd || ::name_to_handle_at(m->fd.get(), "", k.get(), &opened_as, AT_EMPTY_PATH) != 0 ||
            opened_as != id)
            continue;
        m->id = id;
        m->fsid = fsid_of_mount(m->fd.get(), path, *m);
        m->identity = fnv1a(path.substr(beneath.size()), m->fsid ^ fnv1a_start);
        struct stat st{};
        if (file_status(m->fd.get(), st) != 0)
            continue;
        m->dev = st.st_dev;
        m->root = st.st_ino;
        m->covered = number_listed(path);
        const std::lock_guard lock(mutex_);
        // A copy of a file system has its id, and files of the same numbers.
        if (mounts_.has_another(m->fsid, m->dev, m->identity) ||
            (m->fsid == root_mount_->fsid && m->dev != root_mount_->dev))
            m->fsid = m->identity;
        if (!mounts_.add(std::move(m)))
            log(log_level::warning, "posixfs",
                "a mount is not entered, its key is another's: mount it elsewhere", {{"mount", path}});
    }
}

template<class Find>
const mount_point* handle_source::find_mount(Find find)
{
    {
        const std::shared_lock lock(mutex_);
        if (const mount_point* known = find())
            return known;
    }
    look_for_mounts();
    const std::shared_lock lock(mutex_);
    return find();
}

const mount_point* handle_source::by_id(int id)
{
    if (root_mount_->id == id)
        return root_mount_.get();
    if (!crossmnt_)
        return nullptr;
    return find_mount([this, id] { return mounts_.by_id(id); });
}

const mount_point* handle_source::by_key(std::uint32_t key)
{
    if (!crossmnt_)
        return nullptr;
    return find_mount([this, key] { return mounts_.by_key(key); });
}

result<storage::handle> handle_source::kernel_handle(int fd, const mount_point** mount)
{
    kernel_buffer k;
    k.get()->handle_bytes = MAX_HANDLE_SZ;
    int id = 0;
    if (::name_to_handle_at(fd, "", k.get(), &id, AT_EMPTY_PATH) != 0)
        return errno_error("name_to_handle_at");
    const mount_point* m = by_id(id);
    if (m == nullptr)
        return unknown_mount(
            error(storage::errc::crosses_mount, "the file is on a mount beneath the export"));
    if (k.get()->handle_bytes > max_kernel_bytes || unsigned(k.get()->handle_type) > 0xff)
        return error::from_errno(EOVERFLOW, "the kernel's file handle is too long");
    std::byte bytes[storage::handle::max_size];
    std::size_t n = 0;
    const bool has_key = m != root_mount_.get() || is_marked_;
    bytes[n++] = has_key ? mount_kind : root_kind;
    bytes[n++] = static_cast<std::byte>(k.get()->handle_type);
    if (has_key) {
        const std::uint32_t key = m->key();
        std::memcpy(bytes + n, &key, key_size);
        n += key_size;
    }
    std::memcpy(bytes + n, k.get()->f_handle, k.get()->handle_bytes);
    n += k.get()->handle_bytes;
    if (mount != nullptr)
        *mount = m;
    return storage::handle(std::span<const std::byte>(bytes, n));
}

result<storage::handle> handle_source::handle_of(int fd, const struct stat& st,
                                                 const storage::handle& directory, std::string_view name,
                                                 const mount_point** mount)
{
    if (paths_ == nullptr)
        return kernel_handle(fd, mount);
    if (mount != nullptr)
        *mount = root_mount_.get();
    return paths_->insert(fd, st, directory, name);
}

result<handle_source::opened> handle_source::open_handle(const storage::handle& h)
{
    if (paths_ != nullptr) {
        auto fd = paths_->open(h);
        if (!fd)
            return fd.error();
        return opened(std::move(*fd), root_mount_.get());
    }
    const auto bytes = h.bytes();
    if (bytes.size() < 3 || (bytes[0] != root_kind && bytes[0] != mount_kind))
        return error(storage::errc::bad_handle, "not a kernel file handle");
    const mount_point* m = root_mount_.get();
    std::size_t n = 2;
    if (bytes[0] == mount_kind) {
        std::uint32_t key = 0;
        if (bytes.size() <= n + key_size)
            return error(storage::errc::bad_handle, "a kernel file handle cut short");
        std::memcpy(&key, bytes.data() + n, key_size);
        n += key_size;
        m = is_marked_ && key == root_mount_->key() ? root_mount_.get() : by_key(key);
        if (m == nullptr)
            return unknown_mount(error::from_errno(ESTALE, "the mount of the handle is gone"));
    } else if (is_marked_) {
        return error::from_errno(ESTALE, "another file system is at the export's root now");
    }
    kernel_buffer k;
    k.get()->handle_type = static_cast<int>(bytes[1]);
    k.get()->handle_bytes = static_cast<unsigned>(bytes.size() - n);
    std::memcpy(k.get()->f_handle, bytes.data() + n, bytes.size() - n);
    unique_fd fd(open_settled(
        [&] { return ::open_by_handle_at(m->fd.get(), k.get(), O_PATH | O_NOFOLLOW | O_CLOEXEC); }));
    if (!fd && errno == EINVAL)
        return error(storage::errc::bad_handle, "open_by_handle_at");
    if (!fd)
        return errno_error("open_by_handle_at");
    // File systems ignore parts of a handle; one file must have one name here.
    auto canonical = kernel_handle(fd.get(), nullptr);
    if (!canonical || !(*canonical == h))
        return error(storage::errc::bad_handle, "not the handle that the file has");
    return opened(std::move(fd), m);
}

// As fs/exportfs, mm/shmem, fs/xfs and fs/btrfs of Linux write them, in the host's byte order.
std::optional<std::uint64_t> inode_in(const storage::handle& h) noexcept
{
    std::span<const std::byte> bytes = h.bytes();
    const auto number = [&](std::size_t at, std::size_t size) {
        std::uint64_t n =
            0; // both ends of a number of 4 are the same in one of 8, as hosts are little-endian
        std::memcpy(&n, bytes.data() + at, size);
        return n;
    };
    if (bytes.size() < 2)
        return std::nullopt;
    if (bytes[0] == path_kind)
        return bytes.size() >= 13 ? std::optional(number(5, 8)) : std::nullopt;
    if (bytes[0] != root_kind && bytes[0] != mount_kind)
        return std::nullopt;
    const auto type = std::to_integer<unsigned>(bytes[1]);
    bytes = bytes.subspan(std::min(bytes.size(), bytes[0] == mount_kind ? 2 + key_size : 2));
    constexpr unsigned inode_and_generation = 0x01, inode64_and_generation = 0x81, of_btrfs = 0x4d;
    if (type == inode_and_generation && bytes.size() == 8)
        return number(0, 4);
    if (type == inode_and_generation && bytes.size() == 12) // of tmpfs, whose generation stands in front
        return number(4, 8);
    if ((type == inode64_and_generation && bytes.size() == 12) || (type == of_btrfs && bytes.size() >= 20))
        return number(0, 8);
    return std::nullopt;
}

// Subvolumes of btrfs, which are no mounts, each have a device and an id (statfs(2)), and a root of the same number. By path, mounts
// beneath the export are not known either. There the device tells copies of a file system apart, since handles don't last.
// A file of overlayfs may have the device of the layer that it lies in.
std::uint64_t handle_source::fsid_of(int fd, const struct stat& st, const mount_point& mount) const noexcept
{
    if (st.st_dev == mount.dev)
        return mount.fsid;
    struct statfs of_file{};
    std::uint64_t id = 0;
    if (::fstatfs(fd, &of_file) == 0)
        std::memcpy(&id, &of_file.f_fsid, sizeof(id));
    if (id != 0 && (!uses_paths() || of_file.f_type == OVERLAYFS_SUPER_MAGIC))
        return id;
    const std::uint64_t device[1] = {st.st_dev};
    return fnv1a(std::as_bytes(std::span(device)), (id != 0 ? id : mount.fsid) ^ fnv1a_start);
}

void handle_source::moved(int fd, const struct stat& st, const storage::handle& directory,
                          std::string_view name)
{
    if (paths_ != nullptr)
        paths_->insert(fd, st, directory, name);
}

} // namespace verbena::posixfs
