// SPDX-License-Identifier: Apache-2.0
// doctor: what on this machine, or between it and a server, keeps verbena from working well.
#include "block_parts.hpp"
#include "commands.hpp"
#include "doctor/finding.hpp"
#include "doctor/with_config.hpp"
#include "session.hpp"

#include "../standard_output.hpp"
#include <verbena/core/printable.hpp>

#include <verbena/core/net/net.hpp>
#ifdef VERBENA_HAS_RDMA
#include <verbena/transports/rdma.hpp>
#endif

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

namespace verbena::cli {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& file)
{
    std::ifstream in(file);
    std::string line;
    std::getline(in, line);
    return line;
}

std::string value_in(const fs::path& file, const std::string& key)
{
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
        if (line.starts_with(key))
            return line.substr(line.find_first_not_of(" \t", key.size()));
    }
    return {};
}

finding check_kernel()
{
    utsname name{};
    ::uname(&name);
    int major = 0;
    int minor = 0;
    std::sscanf(name.release, "%d.%d", &major, &minor);
    if (major < 6 || (major == 6 && minor < 1))
        return {"kernel", verdict::bad, name.release, "verbena needs Linux 6.1 or later"};
    return {"kernel", verdict::good, name.release, ""};
}

finding check_io_uring(bool works, const std::string& why)
{
    if (works)
        return {"io_uring", verdict::good, "a ring with the features that shards use can be made", ""};
    const std::string disabled = first_line("/proc/sys/kernel/io_uring_disabled");
    return {"io_uring", verdict::bad, why,
            disabled.empty() || disabled == "0"
                ? "allow io_uring_setup in the container's or unit's seccomp filter, or raise RLIMIT_MEMLOCK"
                : "sysctl -w kernel.io_uring_disabled=0"};
}

std::uint64_t effective_capabilities()
{
    return std::strtoull(value_in("/proc/self/status", "CapEff:").c_str(), nullptr, 16);
}

// iWARP among the kernel's devices: in software that is siw.
bool has_rnic()
{
    std::error_code ignored;
    for (const auto& device : fs::directory_iterator("/sys/class/infiniband", ignored)) {
        if (first_line(device.path() / "node_type").find("RNIC") != std::string::npos)
            return true;
    }
    return false;
}

finding check_memlock()
{
    rlimit limit{};
    ::getrlimit(RLIMIT_MEMLOCK, &limit);
    // The hard one: programs of this project raise the soft one to it.
    if (limit.rlim_max == RLIM_INFINITY)
        return {"memlock", verdict::good, "unlimited", ""};
    constexpr rlim_t wanted = rlim_t(128) << 20; // what a run of `verbena conform` takes
    const std::string text = human(limit.rlim_max);
    if (limit.rlim_max >= wanted)
        return {"memlock", verdict::good, text, ""};
    const bool exempt = (effective_capabilities() >> 14 & 1) != 0; // CAP_IPC_LOCK
    if (exempt && !has_rnic())
        return {"memlock", verdict::good, text + ", and CAP_IPC_LOCK is exempt", ""};
    return {
        "memlock", verdict::hint,
        text +
            (exempt
                 ? ": too little to register memory with siw of older kernels, as 6.1, which exempts nobody"
                 : ": too little to register memory with an RDMA device"),
        "`ulimit -l unlimited`, LimitMEMLOCK=infinity in the unit, or memlock in "
        "/etc/security/limits.conf; user-space "
        "iWARP does without"};
}

finding check_huge_pages()
{
    const std::string total = value_in("/proc/meminfo", "HugePages_Total:");
    const std::string transparent = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
    if (!total.empty() && total != "0")
        return {"huge pages", verdict::good, total + " reserved", ""};
    if (transparent.find("[never]") != std::string::npos)
        return {"huge pages", verdict::hint, "none reserved and transparent ones off",
                "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, or sysctl -w vm.nr_hugepages=N"};
    return {"huge pages", verdict::good,
            transparent.empty() ? "none reserved" : "none reserved; transparent: " + transparent, ""};
}

#ifdef VERBENA_HAS_RDMA
std::string describe(const verbena::rdma::device_report& d, const verbena::rdma::port_report& p)
{
    std::string text = d.name + " port " + std::to_string(p.number) + ": " + p.link_layer + ", " + p.state +
                       ", MTU " + std::to_string(p.mtu);
    for (const verbena::rdma::gid_report& g : p.gids) {
        text += "; GID " + std::to_string(g.index) + " " + g.type + " " + g.text;
        if (!g.interface.empty())
            text += " on " + g.interface;
        for (const std::string& address : g.addresses)
            text += ", " + address;
    }
    return text;
}

// What the devices can do, where that decides how verbena uses them.
std::vector<finding> check_devices()
{
    std::vector<finding> found;
    for (const verbena::rdma::device_report& d : verbena::rdma::devices()) {
        const auto has = [](bool yes, const char* what) { return std::string(yes ? "" : "no ") + what; };
        std::string text = d.name + ": " + d.transport + ", port " + d.state + ", MTU " +
                           std::to_string(d.mtu) + ", " + "grants by " + std::string(to_string(d.grants)) +
                           ", " + has(d.can.remote_invalidate, "remote invalidate") + ", " +
                           has(d.can.write_with_immediate, "write with immediate") + ", " +
                           has(d.can.shared_receives, "shared receives") + ", " +
                           has(d.can.checks_read_rights, "check of the right to read") + ", " +
                           has(d.can.checks_grant_bounds, "check of a grant's bounds") + ", " +
                           has(d.can.bounds_peer_reads, "bound on a peer's reads") + ", " +
                           std::to_string(d.can.max_outstanding_reads) + " reads";
        found.push_back({"RDMA abilities", verdict::good, text, ""});
        for (const verbena::rdma::port_report& p : d.ports)
            found.push_back({"RDMA port", p.active ? verdict::good : verdict::hint, describe(d, p), ""});
    }
    if (!found.empty()) {
        const std::string_view fork = verbena::rdma::fork_support();
        const bool unsafe = fork == "disabled";
        found.push_back(
            {"fork", unsafe ? verdict::hint : verdict::good,
             "protection of registered memory: " + std::string(fork),
             unsafe ? "Linux 5.12 or later with an rdma-core that knows it, or RDMAV_FORK_SAFE=1: a fork may "
                      "otherwise lead the device to other memory"
                    : ""});
    }
    return found;
}
#endif

std::vector<finding> check_rdma()
{
    std::vector<finding> found;
    std::error_code ignored;
    for (const auto& device : fs::directory_iterator("/sys/class/infiniband", ignored)) {
        std::string text = device.path().filename().string();
        bool active = false;
        for (const auto& port : fs::directory_iterator(device.path() / "ports", ignored)) {
            const std::string port_state = first_line(port.path() / "state");
            active = active || port_state.find("ACTIVE") != std::string::npos;
            text += ", port " + port.path().filename().string() + " " + port_state + " " +
                    first_line(port.path() / "link_layer");
        }
        const std::string node = first_line(device.path() / "node_type");
        text += node.empty() ? "" : ", " + node;
        found.push_back({"RDMA device", active ? verdict::good : verdict::bad, text,
                         active ? "" : "no port is active: check the cable, or `ip link set DEVICE up`"});
    }
    if (found.empty())
        found.push_back(
            {"RDMA device", verdict::hint, "none; iWARP in user space (nfs+iwarp://) works without", ""});
    else if (::access("/dev/infiniband/rdma_cm", R_OK | W_OK) != 0)
        found.push_back({"RDMA access", verdict::bad,
                         "/dev/infiniband/rdma_cm: " + std::string(std::strerror(errno)),
                         "modprobe rdma_ucm, or give this user access to /dev/infiniband"});
    return found;
}

finding check_port(std::uint16_t port, const char* use)
{
    const std::string name = "port " + std::to_string(port);
    auto where = net::endpoint::parse("127.0.0.1:" + std::to_string(port));
    auto listener = where ? net::open_listener(*where) : verbena::result<net::unique_fd>(where.error());
    if (listener)
        return {name, verdict::good, "free for " + std::string(use), ""};
    if (listener.error() == std::errc::address_in_use)
        return {name, verdict::hint,
                "something listens on 127.0.0.1 already; " + std::string(use) + " wants it",
                "`ss -ltnp 'sport = :" + std::to_string(port) +
                    "'` tells who; or choose another port with --listen"};
    return {name, verdict::hint, listener.error().message(), ""};
}

finding check_capabilities()
{
    const std::uint64_t bits = effective_capabilities();
    // include/uapi/linux/capability.h
    constexpr std::array<std::pair<int, const char*>, 10> wanted{{{0, "CAP_CHOWN"},
                                                                  {1, "CAP_DAC_OVERRIDE"},
                                                                  {2, "CAP_DAC_READ_SEARCH"},
                                                                  {3, "CAP_FOWNER"},
                                                                  {4, "CAP_FSETID"},
                                                                  {6, "CAP_SETGID"},
                                                                  {7, "CAP_SETUID"},
                                                                  {10, "CAP_NET_BIND_SERVICE"},
                                                                  {27, "CAP_MKNOD"},
                                                                  {28, "CAP_LEASE"}}};
    std::string missing;
    for (const auto& [bit, name] : wanted) {
        if ((bits >> bit & 1) == 0)
            missing += (missing.empty() ? "" : " ") + std::string(name);
    }
    if (missing.empty())
        return {"capabilities", verdict::good, "all that verbenad uses", ""};
    return {"capabilities", verdict::hint, "not held: " + missing,
            "only verbenad wants them: without CAP_SETUID and CAP_SETGID it serves everything as its own "
            "user, and as root or "
            "with some of the others only if it is asked to. Use its systemd unit, or "
            "AmbientCapabilities="};
}

// How long a server may be silent: who asks what is wrong wants an answer, whatever --soft and --timeout say.
constexpr std::chrono::seconds patience{5};

task<finding> check_rpcbind(runtime& r)
{
    url where;
    where.host = "127.0.0.1";
    where.port = 111;
    session s(r, where);
    s.give_up_after(patience);
    const failure failed = co_await s.connect();
    co_await s.close();
    if (failed.failed())
        co_return finding{
            "rpcbind", verdict::hint, "does not answer on 127.0.0.1:111",
            "clients of NFSv3 that ask for ports need it: apt-get install rpcbind; verbena's own URLs name "
            "the port"};
    co_return finding{"rpcbind", verdict::good, "answers on 127.0.0.1:111", ""};
}

std::string cure_of_mnt(const error& e)
{
    if (e == std::errc::permission_denied || e == std::errc::operation_not_permitted)
        return "the server admits other clients, or only ports below 1024: add this host to the export's "
               "clients over there, or run as root where it wants such ports";
    if (e == std::errc::no_such_file_or_directory || e == std::errc::not_a_directory)
        return "no export holds this path: write one of those that `verbena mounts` lists";
    return "look at the server's log";
}

// Mounts what the URL's path lies in, and asks NFS whether the handle serves by this transport.
task<void> check_export(session& s, nfs::mount_client& mounts, report& out)
{
    const std::string path = s.where().path;
    auto found = co_await mounts.mount_path(path);
    if (!found) {
        out.add({"MNT", verdict::bad, path + ": " + found.error().message(), cure_of_mnt(found.error())});
        co_return;
    }
    auto info = co_await s.nfs3().fsinfo(found->root);
    auto left = co_await mounts.umnt(found->directory);
    if (!info)
        out.add(
            {"MNT", verdict::bad,
             found->directory + " can be mounted, but not used: " + info.error().message(),
             info.error() == std::errc::permission_denied
                 ? "the export does not admit this transport, or wants ports below 1024, which RDMA clients "
                   "have not: change its transports or leave out secure over there, or try nfs+tcp://"
                 : "look at the server's log"});
    else if (!left)
        out.add({"MNT", verdict::hint, found->directory + " can be mounted; UMNT: " + left.error().message(),
                 ""});
    else
        out.add({"MNT", verdict::good, found->directory + " can be mounted", ""});
}

// In version 4 there is nothing to mount.
task<void> check_path(session& s, report& out)
{
    auto found = co_await s.walk(s.rest());
    const std::string path = s.where().path;
    if (found)
        out.add({"path", verdict::good, path + " is there", ""});
    else
        out.add({"path", verdict::bad, path + ": " + found.error().message(),
                 found.error() == std::errc::no_such_file_or_directory
                     ? "see what `verbena ls` shows of the server's root: an export that does not admit this "
                       "host or "
                       "transport is not there"
                     : "look at the server's log"});
}

task<void> check_server(runtime& r, url where, report& out)
{
    session s(r, std::move(where));
    s.give_up_after(patience);
    failure failed = co_await s.connect();
    if (failed.failed()) {
        out.add({"server", verdict::bad, failed.what(), failed.cure()});
        co_await s.close();
        co_return;
    }
    auto answered = co_await s.settle();
    // Which of version 4 it has is told by a session; it may be none.
    if (answered && s.version() != nfs_version::v3) {
        failed = co_await s.mount_connected();
        if (s.version() == nfs_version::v3)
            answered = co_await s.settle();
    }
    const bool lacks_version = !answered && unavailable(answered.error());
    const bool mounts_too = s.version() == nfs_version::v3 && !lacks_version;
    if (failed.failed() && !mounts_too) {
        out.add({"server", verdict::bad, failed.what(), failed.cure()});
    } else if (!answered && !s.transport().answered()) {
        // MOUNT would be asked there too.
        const failure mute = s.without_reply(answered.error());
        out.add({"server", verdict::bad, mute.what(), mute.cure()});
    } else if (answered) {
        out.add(
            {"server", verdict::good,
             "NFS version " + std::string(to_string(s.version())) + " answers at " + s.where().to_string(),
             ""});
        if (!mounts_too && s.where().path != "/")
            co_await check_path(s, out);
    } else if (lacks_version) {
        const failure lacking = s.without_version(answered.error());
        out.add({"server", verdict::bad, lacking.what() + ": " + answered.error().message(), lacking.cure()});
    } else {
        out.add({"server", verdict::bad, "NULL: " + answered.error().message(),
                 "the port answers, but not as NFS: give the port of an NFS server"});
    }
    if (mounts_too && s.transport().answered()) {
        auto mounts = co_await s.mounts();
        result<std::vector<nfs::export_entry>> exports = std::vector<nfs::export_entry>();
        if (mounts)
            exports = co_await mounts->exports();
        else
            exports = mounts.error();
        if (!exports) {
            out.add({"MOUNT", verdict::bad, exports.error().message(),
                     "give its port with ?mountport=N, or start rpcbind over there"});
        } else {
            std::string text = counted(exports->size(), "export");
            for (const nfs::export_entry& e : *exports)
                text += " " + e.directory;
            if (mounts->is_cut())
                text += " and more, which are left out";
            out.add({"MOUNT", verdict::good, text, ""});
            if (answered && s.where().path != "/")
                co_await check_export(s, *mounts, out);
        }
    }
    co_await s.close();
}

// A session, and the device opened for reading, which no other client's use stands against.
task<void> check_device(runtime& r, block_place where, report& out)
{
    where.patience = patience;
    block_session link(r.shard(), r.buffers(), providers_of(r));
    failure failed = co_await link.connect(where);
    if (failed.failed()) {
        out.add({"server", verdict::bad, failed.what(), failed.cure()});
        co_await link.close();
        co_return;
    }
    out.add({"server", verdict::good, "RTRS and RNBD answer at " + where.url, ""});
    failed = co_await link.open(rnbd::access_mode::read_only);
    if (failed.failed()) {
        out.add({"device", verdict::bad, failed.what(), failed.cure()});
    } else {
        const storage::block_properties p = link.device()->properties();
        out.add({"device", verdict::good,
                 "can be opened to read: " + human(p.size) + ", blocks of " + std::to_string(p.block_size) +
                     " bytes",
                 ""});
    }
    co_await link.close();
}

} // namespace

namespace {

// `alone`: without a configuration, so that its standard ports and the like are looked at.
std::vector<finding> look_at_machine(bool ring_works, const std::string& why, bool alone)
{
    std::vector<finding> found;
    found.push_back(check_kernel());
    found.push_back(check_io_uring(ring_works, why));
    if (alone)
        found.push_back(check_memlock());
    found.push_back(check_huge_pages());
    for (finding& f : check_rdma())
        found.push_back(std::move(f));
#ifdef VERBENA_HAS_RDMA
    for (finding& f : check_devices())
        found.push_back(std::move(f));
#endif
    if (!alone)
        return found;
    found.push_back(check_port(20049, "verbenad's iWARP listener"));
    found.push_back(check_port(2049, "verbenad's TCP listener"));
    found.push_back(check_port(9464, "verbenad's metrics"));
    found.push_back(check_capabilities());
    return found;
}

} // namespace

int doctor_without_shard(const std::string& why, bool as_json)
{
    report out(as_json);
    for (const finding& f : look_at_machine(false, why, true))
        out.add(f);
    return out.finish();
}

int doctor_with_config(const std::string& file, const std::string& peer, bool as_json, bool& is_late)
{
    if (!std::ifstream(file))
        return complain(file + ": can't be opened: " + std::strerror(errno), exit_usage);
    report out(as_json);
    const auto shard = reactor::create();
    for (const finding& f :
         look_at_machine(bool(shard), shard ? std::string() : shard.error().message(), false))
        out.add(f);
    is_late = look_at_config(file, peer, out);
    return out.finish();
}

task<int> doctor(runtime& r, std::string text)
{
    result<url> where = url();
    block_place device;
    if (is_device_url(text)) {
        device.url = text;
        if (const std::string wrong = check(device); !wrong.empty())
            co_return complain(wrong, exit_usage);
    } else if (!text.empty()) {
        where = url_argument(text);
    }
    if (!where)
        co_return exit_usage;
    report out(r.options().json);
    for (const finding& f : look_at_machine(true, {}, true))
        out.add(f);
    const finding rpcbind = co_await check_rpcbind(r);
    out.add(rpcbind);
    if (!device.url.empty())
        co_await check_device(r, std::move(device), out);
    else if (!text.empty())
        co_await check_server(r, *where, out);
    co_return out.finish();
}

} // namespace verbena::cli
