// SPDX-License-Identifier: Apache-2.0
#include "host.hpp"

#include "../program.hpp"
#include "path_size.hpp"

#include <verbena/core/net/net.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/run_within.hpp>
#include <verbena/core/unique_fd.hpp>
#ifdef VERBENA_HAS_RDMA
#include <verbena/transports/rdma.hpp>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <grp.h>
#include <iterator>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <memory>
#include <pwd.h>
#include <set>
#include <sstream>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace verbena::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds disk_patience{5};
constexpr std::chrono::seconds program_patience{10};

std::string text_of_file(const fs::path& path)
{
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

template<class F>
void each_process(F f)
{
    std::error_code failed;
    for (auto entry = fs::directory_iterator("/proc", failed); !failed && entry != fs::directory_iterator();
         entry.increment(failed)) {
        const std::string name = entry->path().filename().string();
        if (!name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; }))
            f(static_cast<pid_t>(std::atoi(name.c_str())), entry->path());
    }
}

std::string line_of_file(const fs::path& path)
{
    std::ifstream in(path);
    std::string line;
    std::getline(in, line);
    return line;
}

// --- Whose rights

// The user that the daemon runs as.
struct acting {
    uid_t uid = 0;
    gid_t gid = 0;
    std::vector<gid_t> groups;
    bool switches = false; // this program is root, and it is not
};

acting acting_as(const process_facts& p)
{
    acting a;
    a.uid = p.uid;
    if (::geteuid() != 0 || p.uid == 0)
        return a;
    std::array<char, 16384> room{};
    passwd entry{};
    passwd* found = nullptr;
    if (::getpwuid_r(p.uid, &entry, room.data(), room.size(), &found) != 0 || found == nullptr)
        return a;
    a.gid = entry.pw_gid;
    int count = 256;
    a.groups.resize(static_cast<std::size_t>(count));
    if (::getgrouplist(entry.pw_name, entry.pw_gid, a.groups.data(), &count) >= 0)
        a.groups.resize(static_cast<std::size_t>(std::max(count, 0)));
    else
        a.groups = {entry.pw_gid};
    a.switches = true;
    return a;
}

// This thread alone has that user's rights to files. As the calls of the C library are for all threads, these are the kernel's.
class rights_of {
public:
    explicit rights_of(const acting& a) : switched_(a.switches)
    {
        if (!switched_)
            return;
        own_.resize(static_cast<std::size_t>(std::max(::getgroups(0, nullptr), 0)));
        (void)::getgroups(static_cast<int>(own_.size()), own_.data());
        (void)::syscall(SYS_setgroups, a.groups.size(), a.groups.data());
        ::setfsgid(a.gid);
        ::setfsuid(a.uid);
    }
    rights_of(const rights_of&) = delete;
    ~rights_of()
    {
        if (!switched_)
            return;
        ::setfsuid(::geteuid());
        ::setfsgid(::getegid());
        (void)::syscall(SYS_setgroups, own_.size(), own_.data());
    }

private:
    const bool switched_;
    std::vector<gid_t> own_;
};

// errno of opening it so; 0: it can be opened.
int refusal_of(const std::string& path, int flags, const acting& a)
{
    const rights_of own(a);
    const unique_fd fd(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    return fd ? 0 : errno;
}

// --- File systems

struct kind_of_file_system {
    std::string name;
    bool in_memory = false;
    bool remote = false;
};

kind_of_file_system kind_of(const std::string& path)
{
    struct known {
        std::uint32_t magic;
        const char* name;
        bool in_memory;
        bool remote;
    };
    constexpr std::uint32_t xfs = 0x58465342, cifs = 0xff534d42, smb2 = 0xfe534d42, ceph = 0x00c36400,
                            fuse = 0x65735546, ninep = 0x01021997, zfs = 0x2fc12fc1, ramfs = 0x858458f6,
                            bcachefs = 0xca451a4e, gfs2 = 0x01161970, lustre = 0x0bd00bd0;
    static constexpr std::array<known, 17> all = {{{EXT4_SUPER_MAGIC, "ext4", false, false},
                                                   {xfs, "xfs", false, false},
                                                   {BTRFS_SUPER_MAGIC, "btrfs", false, false},
                                                   {F2FS_SUPER_MAGIC, "f2fs", false, false},
                                                   {zfs, "zfs", false, false},
                                                   {bcachefs, "bcachefs", false, false},
                                                   {OVERLAYFS_SUPER_MAGIC, "overlayfs", false, false},
                                                   {TMPFS_MAGIC, "tmpfs", true, false},
                                                   {ramfs, "ramfs", true, false},
                                                   {NFS_SUPER_MAGIC, "nfs", false, true},
                                                   {cifs, "cifs", false, true},
                                                   {smb2, "cifs", false, true},
                                                   {ceph, "ceph", false, true},
                                                   {fuse, "fuse", false, true},
                                                   {ninep, "9p", false, true},
                                                   {gfs2, "gfs2", false, true},
                                                   {lustre, "lustre", false, true}}};
    struct statfs s{};
    if (::statfs(path.c_str(), &s) != 0)
        return {"an unknown file system"};
    const auto magic = static_cast<std::uint32_t>(s.f_type);
    for (const known& k : all) {
        if (k.magic == magic)
            return {k.name, k.in_memory, k.remote};
    }
    std::ostringstream number;
    number << "file system 0x" << std::hex << magic;
    return {number.str()};
}

// errno of making a handle of it, and of opening that; EPERM without CAP_DAC_READ_SEARCH.
int handles_of(const std::string& path)
{
    struct alignas(file_handle) {
        std::array<std::byte, sizeof(file_handle) + MAX_HANDLE_SZ> bytes{};
    } room;
    auto* const h = reinterpret_cast<file_handle*>(room.bytes.data());
    h->handle_bytes = MAX_HANDLE_SZ;
    int mount = 0;
    const unique_fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd || ::name_to_handle_at(fd.get(), "", h, &mount, AT_EMPTY_PATH) != 0)
        return errno;
    const unique_fd again(::open_by_handle_at(fd.get(), h, O_RDONLY | O_CLOEXEC));
    return again ? 0 : errno;
}

bool is_mount_point(const std::string& path)
{
    struct statx here{};
    return ::statx(AT_FDCWD, path.c_str(), AT_NO_AUTOMOUNT, STATX_BASIC_STATS, &here) == 0 &&
           (here.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0 &&
           (here.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

folder_facts folder_of(const wanted_export& e, const acting& a)
{
    folder_facts f;
    if (!e.mount_at.empty())
        f.is_mounted = is_mount_point(e.mount_at);
    struct stat s{};
    if (::stat(e.directory.c_str(), &s) != 0) {
        f.failed = errno;
        return f;
    }
    f.is_directory = S_ISDIR(s.st_mode);
    if (!f.is_directory)
        return f;
    f.refused = refusal_of(e.directory, O_RDONLY | O_DIRECTORY, a);
    f.file_system = kind_of(e.directory).name;
    f.handles = handles_of(e.directory);
    struct statvfs room{};
    if (::statvfs(e.directory.c_str(), &room) == 0) {
        f.is_read_only = (room.f_flag & ST_RDONLY) != 0;
        f.bytes = std::uint64_t(room.f_blocks) * room.f_frsize;
        f.free_bytes = std::uint64_t(room.f_bavail) * room.f_frsize;
        f.files = room.f_files;
        f.free_files = room.f_favail;
    }
    return f;
}

// --- Block devices

// A process that may write to it, or a verbenad that has it open, by what /proc tells: that disturbs nobody. Root alone sees those of
// other users.
std::optional<pid_t> user_of_device(const std::string& path)
{
    std::optional<pid_t> found;
    each_process([&](pid_t pid, const fs::path& process) {
        if (found || pid == ::getpid())
            return;
        std::error_code failed;
        for (auto fd = fs::directory_iterator(process / "fd", failed);
             !failed && fd != fs::directory_iterator(); fd.increment(failed)) {
            std::error_code gone;
            if (fs::read_symlink(fd->path(), gone).string() != path || gone)
                continue;
            if (line_of_file(process / "comm").find("verbenad") != std::string::npos ||
                is_open_to_write(text_of_file(process / "fdinfo" / fd->path().filename())))
                found = pid;
        }
    });
    return found;
}

// Whether a btrfs of several devices, which is mounted by the name of one, has this one.
bool is_of_btrfs(const std::string& name)
{
    std::error_code failed;
    for (auto system = fs::directory_iterator("/sys/fs/btrfs", failed);
         !failed && system != fs::directory_iterator(); system.increment(failed)) {
        std::error_code none;
        if (fs::exists(fs::symlink_status(system->path() / "devices" / name, none)))
            return true;
    }
    return false;
}

// To open it with O_EXCL would take it from who is about to mount it, and to close it after it was open for writing has udev look
// at it anew. So it is opened to be read at most.
void look_at_block_device(const std::string& path, const struct stat& s, device_facts& f)
{
    const std::string numbers = std::to_string(major(s.st_rdev)) + ":" + std::to_string(minor(s.st_rdev));
    f.kind = node_kind::block_device;
    std::error_code ignored;
    // It, and its partitions.
    std::vector<fs::path> parts = {fs::canonical("/sys/dev/block/" + numbers, ignored)};
    for (const auto& entry : fs::directory_iterator(parts.front(), ignored)) {
        std::error_code none;
        if (fs::exists(entry.path() / "partition", none))
            parts.push_back(entry.path());
    }
    const std::string mounts = text_of_file("/proc/self/mountinfo");
    const std::string swaps = text_of_file("/proc/swaps");
    for (const fs::path& part : parts) {
        if (f.mounted_at.empty())
            f.mounted_at = mounted_at(mounts, line_of_file(part / "dev"));
        for (const auto& holder : fs::directory_iterator(part / "holders", ignored))
            f.holders.push_back(holder.path().filename().string());
        const std::string name = part.filename().string();
        if (is_of_btrfs(name))
            f.holders.emplace_back("btrfs");
        if (is_swap(swaps, "/dev/" + name))
            f.holders.emplace_back("swap");
    }
    const fs::path own = fs::canonical(path, ignored);
    if (f.holders.empty() && is_swap(swaps, own.string()))
        f.holders.emplace_back("swap");
    f.locked_by = user_of_device(own.string());
    const unique_fd plain(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!plain)
        return;
    int logical = 0;
    if (::ioctl(plain.get(), BLKGETSIZE64, &f.bytes) == 0 && ::ioctl(plain.get(), BLKSSZGET, &logical) == 0)
        f.logical_block = static_cast<std::uint64_t>(logical);
}

// errno that the daemon's user gets for it; it is not opened.
int refusal_of_block_device(const std::string& path, const struct stat& s, bool read_only, const acting& a)
{
    const std::string ro =
        "/sys/dev/block/" + std::to_string(major(s.st_rdev)) + ":" + std::to_string(minor(s.st_rdev)) + "/ro";
    if (!read_only && line_of_file(ro) == "1")
        return EROFS;
    const rights_of own(a);
    return ::faccessat(AT_FDCWD, path.c_str(), read_only ? R_OK : R_OK | W_OK, AT_EACCESS) == 0 ? 0 : errno;
}

std::optional<pid_t> holder_of_lock(const std::string& path, short kind)
{
    const unique_fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct flock l{};
    l.l_type = kind;
    l.l_whence = SEEK_SET;
    if (!fd || ::fcntl(fd.get(), F_OFD_GETLK, &l) != 0 || l.l_type == F_UNLCK)
        return {};
    return l.l_pid;
}

device_facts device_of(const wanted_device& d, const acting& a)
{
    device_facts f;
    struct stat s{};
    if (::stat(d.path.c_str(), &s) != 0) {
        f.failed = errno;
        f.folder = fs::path(d.path).parent_path().string();
        const rights_of own(a);
        if (::faccessat(AT_FDCWD, f.folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
            f.folder_failed = errno;
        return f;
    }
    if (!S_ISREG(s.st_mode) && !S_ISBLK(s.st_mode))
        return f;
    if (S_ISBLK(s.st_mode)) {
        f.refused = refusal_of_block_device(d.path, s, d.read_only, a);
        look_at_block_device(d.path, s, f);
        return f;
    }
    f.kind = node_kind::file;
    f.refused = refusal_of(d.path, d.read_only ? O_RDONLY : O_RDWR, a);
    f.bytes = static_cast<std::uint64_t>(s.st_size);
    f.locked_by = holder_of_lock(d.path, d.read_only ? F_RDLCK : F_WRLCK);
    return f;
}

// --- The state folder

state_facts state_of(const std::string& path, bool has_database, const acting& a)
{
    state_facts f;
    struct stat s{};
    if (::stat(path.c_str(), &s) != 0) {
        f.failed = errno;
        fs::path above = fs::path(path).parent_path();
        std::error_code ignored;
        while (above.has_relative_path() && !fs::exists(above, ignored))
            above = above.parent_path();
        f.made_in = above.string();
        const rights_of own(a);
        if (::faccessat(AT_FDCWD, f.made_in.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
            f.made_failed = errno;
        return f;
    }
    f.is_directory = S_ISDIR(s.st_mode);
    f.owner = s.st_uid;
    f.mode = s.st_mode & 07777;
    const kind_of_file_system kind = kind_of(path);
    f.file_system = kind.name;
    f.is_in_memory = kind.in_memory;
    f.is_remote = kind.remote;
    if (has_database)
        f.database_held_by = holder_of_lock(path + "/nfs-recovery.sqlite", F_WRLCK);
    if (!f.is_directory)
        return f;
    const rights_of own(a);
    // Has no name, and is gone with its descriptor.
    const unique_fd fd(::open(path.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (!fd) {
        if (errno == EACCES || errno == EPERM || errno == EOPNOTSUPP)
            return f; // this user may not, or this file system has none such
        f.sync_failed = errno;
        return f;
    }
    const auto begun = std::chrono::steady_clock::now();
    const bool good = ::write(fd.get(), "x", 1) == 1 && ::fsync(fd.get()) == 0;
    f.sync_failed = good ? 0 : errno;
    f.sync_took =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
    return f;
}

// --- Ports

// Binds and does not listen: who begins to listen meanwhile is not kept from it.
int failure_of_bind(const net::endpoint& where)
{
    const unique_fd fd(::socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd)
        return errno;
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (where.family() == AF_INET6)
        ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    return ::bind(fd.get(), where.data(), where.size()) == 0 ? 0 : errno;
}

// Sockets that stand in the way of a listener at `where`.
std::set<std::uint64_t> sockets_at(const net::endpoint& where)
{
    const std::string own = in_socket_table(where.address());
    std::set<std::uint64_t> inodes;
    for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
        for (const listening_socket& s : listening_sockets(text_of_file(table))) {
            if (s.port == where.port() && (s.is_wildcard || where.is_wildcard() || s.address == own))
                inodes.insert(s.inode);
        }
    }
    return inodes;
}

std::vector<port_holder> holders_of(const std::set<std::uint64_t>& inodes)
{
    std::vector<port_holder> all;
    if (inodes.empty())
        return all;
    each_process([&](pid_t pid, const fs::path& process) {
        std::error_code failed;
        for (auto fd = fs::directory_iterator(process / "fd", failed);
             !failed && fd != fs::directory_iterator(); fd.increment(failed)) {
            std::error_code gone;
            const std::string to = fs::read_symlink(fd->path(), gone).string();
            constexpr std::string_view prefix = "socket:[";
            if (gone || !to.starts_with(prefix) ||
                !inodes.contains(std::strtoull(to.c_str() + prefix.size(), nullptr, 10)))
                continue;
            all.push_back({pid, line_of_file(process / "comm")});
            return;
        }
    });
    return all;
}

std::vector<net::endpoint> endpoints_of_listener(const wanted_listener& l, std::string& unresolved)
{
    std::vector<net::endpoint> all;
    const std::string port = ":" + std::to_string(l.port);
    if (l.host == "*") {
        for (const char* any : {"0.0.0.0", "[::]"})
            all.push_back(*net::endpoint::parse(any + port));
        return all;
    }
    auto found = net::resolve(l.host.find(':') == std::string::npos ? l.host : "[" + l.host + "]", 1);
    if (!found) {
        unresolved = found.error().message();
        return all;
    }
    all = std::move(*found);
    for (net::endpoint& e : all)
        e.set_port(l.port);
    return all;
}

listener_facts look_at_listener(const wanted_listener& l)
{
    listener_facts f;
    std::set<std::uint64_t> inodes;
    for (const net::endpoint& where : endpoints_of_listener(l, f.unresolved)) {
        f.addresses.push_back(where.address());
        if (l.scheme == "rdma" || l.port == 0)
            continue;
        const int failed = failure_of_bind(where);
        if (failed == 0 || (failed == EAFNOSUPPORT && where.is_wildcard()))
            continue;
        f.failed = failed;
        f.address = where.address();
        if (failed == EADDRINUSE)
            inodes.merge(sockets_at(where));
    }
    f.holders = holders_of(inodes);
    return f;
}

// --- RDMA and interfaces

void look_at_rdma(host_facts& to)
{
#ifdef VERBENA_HAS_RDMA
    to.has_rdma = true;
    for (const rdma::device_report& d : rdma::devices()) {
        for (const rdma::port_report& p : d.ports) {
            rdma_port_facts& f = to.rdma.emplace_back();
            f.device = d.name;
            f.port = p.number;
            f.is_ethernet = p.link_layer == "Ethernet";
            f.is_iwarp = d.transport == "iWARP";
            f.is_active = p.active;
            f.state = p.state;
            f.mtu = p.mtu;
            for (const rdma::gid_report& g : p.gids)
                f.gids.push_back({g.index, g.type, g.interface, g.addresses});
            // Where somebody has made a folder for the device there.
            const std::string mode = line_of_file("/sys/kernel/config/rdma_cm/" + d.name + "/ports/" +
                                                  std::to_string(p.number) + "/default_roce_mode");
            f.preferred = mode.starts_with("IB/RoCE v1") ? "RoCE v1" : mode;
        }
    }
#endif
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator("/sys/class/net", ignored)) {
        const std::string mtu = line_of_file(entry.path() / "mtu");
        if (!mtu.empty())
            to.interface_mtus[entry.path().filename().string()] =
                static_cast<std::uint32_t>(std::strtoul(mtu.c_str(), nullptr, 10));
    }
}

bool has_iwarp_device()
{
    std::error_code ignored;
    for (const auto& device : fs::directory_iterator("/sys/class/infiniband", ignored)) {
        if (line_of_file(device.path() / "node_type").find("RNIC") != std::string::npos)
            return true;
    }
    return false;
}

// --- Processes

std::vector<std::string> words_of(const std::string& command_line)
{
    std::vector<std::string> all;
    std::istringstream in(command_line);
    for (std::string word; std::getline(in, word, '\0');)
        all.push_back(word);
    return all;
}

// Whether these words, from this folder, serve that file.
bool serves(const std::vector<std::string>& words, const fs::path& from, const std::string& file)
{
    if (std::ranges::find(words, "serve") == words.end())
        return false;
    return std::ranges::any_of(words, [&](const std::string& word) {
        std::error_code failed;
        return !word.empty() && word != "serve" && fs::equivalent(from / word, file, failed) && !failed;
    });
}

std::vector<pid_t> daemons_of(const std::string& file)
{
    std::vector<pid_t> all;
    each_process([&](pid_t pid, const fs::path& process) {
        if (pid == ::getpid() || line_of_file(process / "comm").find("verbenad") == std::string::npos)
            return;
        std::error_code hidden;
        const fs::path from = fs::read_symlink(process / "cwd", hidden);
        if (serves(words_of(text_of_file(process / "cmdline")), hidden ? fs::path("/") : from, file))
            all.push_back(pid);
    });
    return all;
}

std::uint64_t own_capabilities(const fs::path& process)
{
    std::istringstream lines(text_of_file(process / "status"));
    constexpr std::string_view key = "CapEff:";
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(key))
            return std::strtoull(line.c_str() + key.size(), nullptr, 16);
    }
    return 0;
}

// Of the hard limit, to which verbenad raises its own.
std::uint64_t own_limit(decltype(RLIMIT_NOFILE) which)
{
    rlimit l{};
    if (::getrlimit(which, &l) != 0)
        return 0;
    return l.rlim_max == RLIM_INFINITY ? no_limit : l.rlim_max;
}

std::string name_of_user(uid_t uid)
{
    std::array<char, 16384> room{};
    passwd entry{};
    passwd* found = nullptr;
    return ::getpwuid_r(uid, &entry, room.data(), room.size(), &found) == 0 && found != nullptr
               ? entry.pw_name
               : "";
}

std::optional<uid_t> uid_of_user(const std::string& name)
{
    if (!name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; }))
        return static_cast<uid_t>(std::strtoul(name.c_str(), nullptr, 10));
    std::array<char, 16384> room{};
    passwd entry{};
    passwd* found = nullptr;
    if (::getpwnam_r(name.c_str(), &entry, room.data(), room.size(), &found) != 0 || found == nullptr)
        return {};
    return entry.pw_uid;
}

constexpr std::uint64_t all_capabilities = (std::uint64_t(1) << (CAP_LAST_CAP + 1)) - 1;

// Looks by threads of its own, and leaves those that do not come back.
class patient_looks {
public:
    // Nothing: it does not answer in time. `f` owns what it uses.
    template<class F>
    auto operator()(F f)
    {
        if (!crew_)
            crew_ = std::make_unique<blocking_crew>();
        auto lane = std::make_unique<blocking_pool>(*crew_, 1, "doctor");
        auto found = run_within(*lane, patience_, std::move(f));
        if (!found) {
            (void)lane.release(); // a thread of it waits for the disk, for as long as this process lives
            (void)crew_.release();
            is_late_ = true;
            // The next may be of the same disk.
            patience_ = std::chrono::seconds(1);
        }
        return found;
    }
    bool is_late() const noexcept { return is_late_; }

private:
    std::unique_ptr<blocking_crew> crew_;
    std::chrono::milliseconds patience_ = disk_patience;
    bool is_late_ = false;
};

template<class T>
T in_time_or_late(std::optional<T> f)
{
    if (f)
        return std::move(*f);
    T late;
    late.is_late = true;
    return late;
}

} // namespace

std::optional<unit_facts> unit_of(const std::string& file)
{
    const std::string name = "verbenad.service";
    const said shown = run_program({"systemctl", "show", "--no-pager", name}, {program_patience});
    if (!shown.is_good())
        return {};
    unit_facts u = parse_unit(name, shown.output);
    const std::string from = u.working_directory.empty() ? "/" : u.working_directory;
    if (!u.is_loaded || !serves(u.command, from, file))
        return {};
    return u;
}

process_facts look_at_process(const std::string& file, const std::optional<unit_facts>& unit)
{
    process_facts p;
    p.daemons = daemons_of(file);
    p.has_rnic = has_iwarp_device();
    if (unit) {
        p.unit = p.whose = unit->name;
        p.user = unit->user;
        p.uid = unit->user.empty() ? 0 : uid_of_user(unit->user).value_or(0);
        p.capabilities = p.uid == 0 ? unit->bounding & all_capabilities : unit->ambient & unit->bounding;
        p.descriptors = unit->descriptors;
        p.locked_memory = unit->locked_memory;
        p.mounts_wanted = unit->mounts_wanted;
    } else {
        p.whose = "this user";
        p.uid = ::geteuid();
        p.capabilities = own_capabilities("/proc/self");
        p.descriptors = own_limit(RLIMIT_NOFILE);
        p.locked_memory = own_limit(RLIMIT_MEMLOCK);
    }
    // One that runs has what it has.
    if (!p.daemons.empty()) {
        const fs::path process = "/proc/" + std::to_string(p.daemons.front());
        struct stat s{};
        const std::string limits = text_of_file(process / "limits");
        if (::stat(process.c_str(), &s) == 0 && !limits.empty()) {
            p.whose = "process " + std::to_string(p.daemons.front());
            p.uid = s.st_uid;
            p.user.clear();
            p.capabilities = own_capabilities(process);
            p.descriptors = limit_in(limits, "Max open files");
            p.locked_memory = limit_in(limits, "Max locked memory");
        }
    }
    if (p.user.empty())
        p.user = name_of_user(p.uid);
    p.can_be_acted = ::geteuid() == p.uid || ::geteuid() == 0;
    return p;
}

looked look_at_host(const wanted_host& wanted, process_facts process, const std::string& peer)
{
    looked out;
    host_facts& host = out.host;
    patient_looks within;
    const acting a = acting_as(process);
    host.process = std::move(process);
    for (const wanted_export& e : wanted.exports) {
        auto f = within([e, a] { return folder_of(e, a); });
        host.folders.push_back(in_time_or_late(std::move(f)));
    }
    for (const wanted_device& d : wanted.devices) {
        auto f = within([d, a] { return device_of(d, a); });
        host.devices.push_back(in_time_or_late(std::move(f)));
    }
    if (!wanted.state.empty()) {
        auto f = within([path = wanted.state, has = wanted.recovers, a] { return state_of(path, has, a); });
        host.state = in_time_or_late(std::move(f));
    }
    for (const wanted_listener& l : wanted.listeners) {
        auto f = within([l] { return look_at_listener(l); });
        host.listeners.push_back(in_time_or_late(std::move(f)));
    }
    look_at_rdma(host);
    if (!peer.empty())
        host.route = look_at_route(peer);
    out.is_late = within.is_late();
    return out;
}

} // namespace verbena::cli
