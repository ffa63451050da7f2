// SPDX-License-Identifier: Apache-2.0
#include "rules.hpp"

#include "../commands.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <linux/capability.h>
#include <set>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <utility>

namespace verbena::cli {

namespace {

std::string errno_text(int number) { return std::generic_category().message(number); }

bool holds(std::uint64_t capabilities, int which) { return (capabilities >> which & 1) != 0; }

// What the daemon's user is refused, while the host was looked at without its capabilities: as whom else, these don't count.
int refusal(int number, bool writes, const process_facts& p)
{
    const bool may =
        holds(p.capabilities, CAP_DAC_OVERRIDE) || (!writes && holds(p.capabilities, CAP_DAC_READ_SEARCH));
    return number == EACCES && may ? 0 : number;
}

finding of(std::string check, verdict result, std::string text, std::string cure, const setting_at& s)
{
    return {std::move(check), result, std::move(text), std::move(cure), s.name, s.place};
}

finding late(std::string check, const std::string& path, const setting_at& s)
{
    return of(std::move(check), verdict::bad, path + " does not answer: its disk or its server hangs",
              "see to what is mounted there (findmnt, dmesg); verbenad serves the other exports meanwhile",
              s);
}

std::string user_of(const process_facts& p)
{
    return p.user.empty() ? "user " + std::to_string(p.uid) : "user " + p.user;
}

bool lies_in(std::string_view path, std::string_view folder)
{
    while (folder.size() > 1 && folder.ends_with('/'))
        folder.remove_suffix(1);
    return path == folder || folder == "/" || (path.starts_with(folder) && path[folder.size()] == '/');
}

// --- Exports

void judge_room(const wanted_export& e, const folder_facts& f, std::vector<finding>& out)
{
    constexpr std::uint64_t part = 20; // 5 percent
    const std::string name = "room " + e.pseudo;
    const bool bytes = f.bytes != 0 && f.free_bytes < f.bytes / part;
    const bool files = f.files != 0 && f.free_files < f.files / part;
    if (e.read_only || (!bytes && !files))
        return;
    const std::string text =
        bytes ? human(f.free_bytes) + " of " + human(f.bytes) + " are free"
              : std::to_string(f.free_files) + " of " + std::to_string(f.files) + " files (inodes) are free";
    const bool none = bytes ? f.free_bytes == 0 : f.free_files == 0;
    out.push_back(of(name, none ? verdict::bad : verdict::hint, text,
                     "make room on that file system, or make it larger: clients get \"No space left on "
                     "device\" otherwise",
                     e.directory_is));
}

void judge_handles(const wanted_export& e, const folder_facts& f, const process_facts& p,
                   std::vector<finding>& out)
{
    const std::string name = "handles " + e.pseudo;
    if (e.handles == "path")
        return;
    const bool insists = e.handles == "kernel";
    if (!holds(p.capabilities, CAP_DAC_READ_SEARCH)) {
        out.push_back(of(name, insists ? verdict::bad : verdict::hint,
                         user_of(p) + " has no CAP_DAC_READ_SEARCH, so verbenad can't open files by the "
                                      "handles of the kernel",
                         insists ? "run verbenad by its unit, or give it that capability"
                                 : "clients' handles become stale at each restart of verbenad: give it that "
                                   "capability, or say handles = \"path\"",
                         e.handles_are));
        return;
    }
    if (!f.handles || *f.handles == 0 || *f.handles == EPERM)
        return;
    out.push_back(of(name, insists ? verdict::bad : verdict::hint,
                     f.file_system + " gives no file handles: " + errno_text(*f.handles),
                     insists ? "say handles = \"auto\" or \"path\", or export another file system"
                             : "clients' handles become stale at each restart of verbenad: export ext4, XFS, "
                               "btrfs or another file system that has them",
                     e.handles_are));
}

void judge_export(const wanted_export& e, const folder_facts& f, const process_facts& p,
                  std::vector<finding>& out)
{
    const std::string name = "export " + e.pseudo;
    if (f.is_late) {
        out.push_back(late(name, e.directory, e.directory_is));
        return;
    }
    if (!e.mount_at.empty() && !f.is_mounted) {
        out.push_back(of(name, verdict::bad, "nothing is mounted at " + e.mount_at + ", so clients wait",
                         "mount it, or leave out mountpoint where the folder is no file system of its own",
                         e.mount_is));
        return;
    }
    if (f.failed != 0) {
        out.push_back(of(name, verdict::bad, e.directory + ": " + errno_text(f.failed),
                         f.failed == ENOENT ? "make it, or correct its name"
                         : f.failed == EACCES || f.failed == EPERM
                             ? "run doctor as root, or let this user search each folder above it"
                             : "see to what is mounted there",
                         e.directory_is));
        return;
    }
    if (!f.is_directory) {
        out.push_back(of(name, verdict::bad, e.directory + " is no directory",
                         "name the folder that holds the files", e.directory_is));
        return;
    }
    if (refusal(f.refused, false, p) != 0) {
        out.push_back(of(name, verdict::bad,
                         user_of(p) + " can't read " + e.directory + ": " + errno_text(f.refused),
                         "let that user read it and search each folder above it, or run verbenad by its unit",
                         e.directory_is));
        return;
    }
    if (!e.read_only && f.is_read_only)
        out.push_back(of(name, verdict::hint,
                         e.directory + " is mounted read-only, and clients may try to write",
                         "mount it rw, or say read_only = true", e.directory_is));
    else
        out.push_back(of(name, verdict::good,
                         e.directory + " on " + f.file_system +
                             (e.mount_at.empty() ? "" : ", and something is mounted at " + e.mount_at) +
                             (p.can_be_acted ? ", which " + user_of(p) + " can read"
                                             : "; whether " + user_of(p) + " can read it only root can see"),
                         "", e.directory_is));
    judge_handles(e, f, p, out);
    judge_room(e, f, out);
}

void judge_mount_units(const wanted_host& wanted, const process_facts& p, std::vector<finding>& out)
{
    if (p.unit.empty())
        return;
    for (const wanted_export& e : wanted.exports) {
        if (e.mount_at.empty() || std::ranges::any_of(p.mounts_wanted, [&](const std::string& path) {
                return lies_in(path, e.mount_at);
            }))
            continue;
        out.push_back(of("unit", verdict::hint,
                         p.unit + " has no RequiresMountsFor=" + e.mount_at +
                             ", so verbenad may start before that disk, and clients wait until it is mounted",
                         "write it by `systemctl edit " + p.unit +
                             "`, section [Unit], unless one missing disk must not stop the other exports",
                         e.mount_is));
    }
}

// --- Block devices

void judge_device(const wanted_device& d, const device_facts& f, const process_facts& p,
                  std::vector<finding>& out)
{
    const std::string name = "device " + d.name;
    const auto bad = [&](const std::string& text, const std::string& cure, const setting_at& s) {
        out.push_back(of(name, verdict::bad, text, cure, s));
    };
    if (f.is_late)
        return out.push_back(late(name, d.path, d.path_is));
    if (f.failed == ENOENT && d.size) {
        if (refusal(f.folder_failed, true, p) != 0)
            bad(d.path + " is not there, and can't be made: " + f.folder + ": " + errno_text(f.folder_failed),
                "make that folder, and let " + user_of(p) + " write to it", d.path_is);
        else
            out.push_back(of(name, verdict::good,
                             d.path + " is not there; verbenad makes it with " + human(*d.size), "",
                             d.path_is));
        return;
    }
    if (f.failed != 0)
        return bad(d.path + ": " + errno_text(f.failed),
                   f.failed == ENOENT
                       ? "make it, give its size so that verbenad makes it, or correct its name"
                       : "run doctor as root, or see to what is mounted there",
                   d.path_is);
    if (f.kind == node_kind::other)
        return bad(d.path + " is neither a file nor a block device", "name one of them", d.path_is);
    if (refusal(f.refused, !d.read_only, p) != 0)
        return bad(user_of(p) + " can't " + (d.read_only ? "read " : "write ") + d.path + ": " +
                       errno_text(f.refused),
                   d.read_only ? "let that user read it" : "let that user write it, or say read_only = true",
                   d.path_is);
    if (!f.mounted_at.empty())
        return bad(d.path + " is mounted at " + f.mounted_at + ": two that write to it destroy it",
                   "unmount it, or serve another device", d.path_is);
    if (!f.holders.empty()) {
        std::string all;
        for (const std::string& h : f.holders)
            all += ' ' + h;
        return bad(d.path + " is part of" + all + ", which has it for itself",
                   "serve that device, or take it apart", d.path_is);
    }
    const bool by_daemon = f.locked_by && std::ranges::find(p.daemons, *f.locked_by) != p.daemons.end();
    // A lock of an open file description has no process, as verbenad's has none.
    const bool may_be_daemon = !p.daemons.empty() && f.locked_by && *f.locked_by <= 0;
    if (f.locked_by && !by_daemon && !may_be_daemon)
        return bad(d.path + " is in use by " +
                       (f.locked_by && *f.locked_by > 0 ? "process " + std::to_string(*f.locked_by)
                                                        : "somebody else"),
                   "end that use (`fuser -v " + d.path + "` tells of it): a device has one writer",
                   d.path_is);
    if (d.size && *d.size != f.bytes)
        return bad(d.path + " has " + std::to_string(f.bytes) + " bytes, and not the " +
                       std::to_string(*d.size) + " of size",
                   "correct size, or leave it out", d.size_is);
    if (f.bytes < d.block_size)
        return bad(d.path + " is smaller than one block of " + std::to_string(d.block_size) + " bytes",
                   "make it larger, or give its size while it is not there", d.path_is);
    if (f.logical_block > d.block_size)
        out.push_back(of(name, verdict::hint,
                         d.path + " has blocks of " + std::to_string(f.logical_block) +
                             " bytes, and clients "
                             "see smaller ones",
                         "say block_size = " + std::to_string(f.logical_block), d.path_is));
    else
        out.push_back(of(name, verdict::good,
                         d.path + ", " + human(f.bytes) + (f.locked_by ? ", which verbenad has open" : ""),
                         "", d.path_is));
}

// --- The state folder

void judge_state(const wanted_host& wanted, const state_facts& f, const process_facts& p,
                 std::vector<finding>& out)
{
    const std::string& path = wanted.state;
    const auto say = [&](verdict how, const std::string& text, const std::string& cure) {
        out.push_back(of("state", how, text, cure, wanted.state_is));
    };
    constexpr const char* elsewhere = "name a folder on a local disk with state in [daemon]";
    if (f.is_late)
        return out.push_back(late("state", path, wanted.state_is));
    if (f.failed == ENOENT) {
        if (refusal(f.made_failed, true, p) != 0)
            return say(verdict::bad,
                       path + " is not there, and " + user_of(p) + " can't make it in " + f.made_in + ": " +
                           errno_text(f.made_failed),
                       "make it for that user with mode 700, or name another folder with state in [daemon]");
        return say(verdict::good, path + " is not there; verbenad makes it", "");
    }
    if (f.failed != 0)
        return say(verdict::bad, path + ": " + errno_text(f.failed), elsewhere);
    if (!f.is_directory)
        return say(verdict::bad, path + " is no directory", "name a folder with state in [daemon]");
    if (f.owner != p.uid)
        return say(verdict::bad,
                   path + " belongs to user " + std::to_string(f.owner) + ", and verbenad runs as " +
                       user_of(p),
                   "chown -R " + std::to_string(p.uid) + " " + path + ", or name another folder");
    if ((f.mode & (S_IWGRP | S_IWOTH)) != 0)
        return say(verdict::bad,
                   path + ": others may write there, and could replace the key of the file handles",
                   "chmod go-w " + path);
    if (f.database_held_by && std::ranges::find(p.daemons, *f.database_held_by) == p.daemons.end())
        return say(verdict::bad,
                   path + "/nfs-recovery.sqlite is held by process " +
                       (*f.database_held_by > 0 ? std::to_string(*f.database_held_by)
                                                : std::string("of another container")) +
                       ", which is no verbenad with this file",
                   "end that one, or give each verbenad a state folder of its own");
    if (f.sync_failed && *f.sync_failed != 0)
        return say(verdict::bad, path + ": a sync failed: " + errno_text(*f.sync_failed),
                   "see to the disk (dmesg); what clients may take back after a restart is synced there");
    if (f.is_in_memory)
        return say(verdict::hint,
                   path + " is on " + f.file_system +
                       ": the next start of this host finds "
                       "nothing, and clients' handles are stale",
                   elsewhere);
    if (f.is_remote)
        return say(verdict::hint,
                   path + " is on " + f.file_system +
                       ": verbenad then waits for another host, and its locks "
                       "are as good as that one's",
                   elsewhere);
    constexpr std::chrono::milliseconds slow{500};
    if (f.sync_failed && f.sync_took >= slow)
        return say(verdict::hint,
                   path + ": a sync took " + std::to_string(f.sync_took.count()) +
                       " ms, for which each new client of version 4 waits",
                   "name a folder on a faster disk with state in [daemon]");
    say(verdict::good,
        path + " on " + f.file_system +
            (f.sync_failed ? ", whose syncs work" : "; only " + user_of(p) + " and root can try its syncs"),
        "");
}

// --- Ports

void judge_port(const wanted_listener& l, const listener_facts& f, const process_facts& p,
                std::vector<finding>& out)
{
    const std::string name = "port " + std::to_string(l.port);
    const auto say = [&](verdict how, const std::string& text, const std::string& cure) {
        out.push_back(of(name, how, l.text() + ": " + text, cure, l.url_is));
    };
    if (f.is_late)
        return say(verdict::bad, "its name is not resolved in time",
                   "write an address, or see to the resolver");
    if (!f.unresolved.empty())
        return say(verdict::bad, f.unresolved,
                   "write an address or a name of this host, or * for every address");
    if (l.scheme == "rdma") // the ports of the connection manager are others
        return;
    if (l.port == 0)
        return say(verdict::good, "a free port is taken", "");
    switch (f.failed) {
    case 0: return say(verdict::good, "free", "");
    case EACCES:
        if (holds(p.capabilities, CAP_NET_BIND_SERVICE))
            return say(verdict::good, "only root can see whether it is free, and verbenad may have it", "");
        return say(verdict::bad, user_of(p) + " may not have ports below 1024",
                   "give it CAP_NET_BIND_SERVICE, or choose a higher port");
    case EADDRNOTAVAIL:
        return say(verdict::bad, "this host has no address " + f.address,
                   "`ip address` lists those that it has; one that comes later needs "
                   "After=network-online.target in the unit");
    case EADDRINUSE: break;
    default: return say(verdict::bad, errno_text(f.failed), "see errno(3)");
    }
    std::string others;
    bool own = false;
    for (const port_holder& h : f.holders) {
        if (std::ranges::find(p.daemons, h.pid) != p.daemons.end())
            own = true;
        else if (h.pid != 0)
            others += (others.empty() ? "" : ", ") + h.name + " (process " + std::to_string(h.pid) + ")";
    }
    const std::string ask = "`ss -ltnp 'sport = :" + std::to_string(l.port) + "'` as root tells who";
    if (!others.empty())
        return say(verdict::bad, "held by " + others, "end that one, or choose another port");
    if (own)
        return say(verdict::good, "held by the verbenad that runs with this file", "");
    if (!p.daemons.empty())
        return say(verdict::hint, "held by somebody whom this user can't see; a verbenad runs with this file",
                   ask);
    say(verdict::bad, "held by somebody whom this user can't see, and no verbenad runs with this file",
        ask + "; end that one, or choose another port");
}

// --- What the process may have

void judge_descriptors(const wanted_host& wanted, const process_facts& p, std::vector<finding>& out)
{
    const std::string name = "descriptors";
    const auto more = [&](std::uint64_t count) {
        return "LimitNOFILE=" + std::to_string(count) + " in the unit, or `ulimit -n " +
               std::to_string(count) + "` before it starts";
    };
    if (p.descriptors == no_limit) {
        out.push_back({name, verdict::good, "no limit for " + p.whose});
        return;
    }
    // As a start shares them out.
    const std::uint64_t connections = p.descriptors / 2 - p.descriptors / 8;
    const std::string text = std::to_string(p.descriptors) + " for " + p.whose +
                             ", of which connections may have " + std::to_string(connections);
    constexpr std::uint64_t few = 1024;
    if (wanted.connections && *wanted.connections > connections)
        out.push_back(of(name, verdict::bad, text + " and not " + std::to_string(*wanted.connections),
                         more(*wanted.connections / 3 * 8 + 8), wanted.connections_are));
    else if (!wanted.connections && connections < few)
        out.push_back({name, verdict::hint, text, more(65536)});
    else
        out.push_back({name, verdict::good, text});
}

void judge_locked_memory(const wanted_host& wanted, const process_facts& p, std::vector<finding>& out)
{
    const bool registers =
        std::ranges::any_of(wanted.listeners, [](const wanted_listener& l) { return l.scheme == "rdma"; });
    const std::string limit = p.locked_memory == no_limit ? "no limit" : human(p.locked_memory);
    const std::uint64_t needed = wanted.memory_mib << 20;
    const bool exempt = holds(p.capabilities, CAP_IPC_LOCK) && !p.has_rnic;
    if (!registers)
        out.push_back({"memlock", verdict::good, limit + "; no rdma:// listener registers memory"});
    else if (p.locked_memory >= needed || exempt)
        out.push_back({"memlock", verdict::good,
                       limit + " for " + p.whose + ", of which devices may take " + human(needed) +
                           (p.locked_memory >= needed ? "" : "; CAP_IPC_LOCK is exempt")});
    else
        out.push_back(of("memlock", verdict::bad,
                         limit + " for " + p.whose + ", and rdma:// registers buffers of up to " +
                             human(needed) + " with devices",
                         "LimitMEMLOCK=infinity in the unit, `ulimit -l unlimited` before it starts, or less "
                         "memory_mib",
                         wanted.memory_is));
}

void judge_capabilities(const process_facts& p, bool has_exports, std::vector<finding>& out)
{
    if (!has_exports)
        return;
    constexpr std::array<std::pair<int, const char*>, 5> wanted{{{CAP_SETUID, "CAP_SETUID"},
                                                                 {CAP_SETGID, "CAP_SETGID"},
                                                                 {CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"},
                                                                 {CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"},
                                                                 {CAP_LEASE, "CAP_LEASE"}}};
    std::string missing;
    for (const auto& [bit, name] : wanted) {
        if (!holds(p.capabilities, bit))
            missing += (missing.empty() ? "" : " ") + std::string(name);
    }
    const std::string who = user_of(p) + " (" + p.whose + ")";
    if (missing.empty())
        out.push_back({"rights", verdict::good, who + " can act for its callers"});
    else
        out.push_back({"rights", verdict::hint, who + " lacks " + missing,
                       holds(p.capabilities, CAP_SETUID) && holds(p.capabilities, CAP_SETGID)
                           ? "use the unit that comes with verbenad, or AmbientCapabilities="
                           : "all callers have that user's rights: use the unit that comes with verbenad, or "
                             "AmbientCapabilities="});
}

// --- RDMA

struct gid_place {
    const rdma_port_facts* port = nullptr;
    std::vector<const gid_facts*> gids; // of this address
};

gid_place place_of(const std::vector<rdma_port_facts>& all, const std::string& address)
{
    gid_place p;
    for (const rdma_port_facts& port : all) {
        for (const gid_facts& g : port.gids) {
            if (std::ranges::find(g.addresses, address) == g.addresses.end())
                continue;
            if (p.port == nullptr)
                p.port = &port;
            if (p.port == &port)
                p.gids.push_back(&g);
        }
    }
    return p;
}

std::string gid_text(const gid_place& at)
{
    std::string text = at.port->device + " port " + std::to_string(at.port->port);
    for (const gid_facts* g : at.gids)
        text += ", GID " + std::to_string(g->index) + " " + g->type;
    return text;
}

void judge_gid(const wanted_listener& l, const gid_place& at, std::vector<finding>& out)
{
    const auto has = [&](std::string_view type) {
        return std::ranges::any_of(at.gids, [&](const gid_facts* g) { return g->type == type; });
    };
    if (!at.port->is_ethernet || at.port->is_iwarp)
        return out.push_back(of("GID", verdict::good, l.text() + ": " + gid_text(at), "", l.url_is));
    if (!has("RoCE v2"))
        return out.push_back(
            of("GID", verdict::bad,
               l.text() + ": " + gid_text(at) +
                   ": no RoCE v2, so peers that speak it, and "
                   "those behind a router, do not get there",
               "switch RoCE v2 on in the device's driver (cma_roce_mode), or use another device", l.url_is));
    if (at.port->preferred == "RoCE v1")
        return out.push_back(of("GID", verdict::hint,
                                l.text() + ": " + gid_text(at) +
                                    ": this host connects by RoCE v1 of its own "
                                    "accord, and listens by both",
                                "echo 'RoCE v2' > /sys/kernel/config/rdma_cm/" + at.port->device + "/ports/" +
                                    std::to_string(at.port->port) + "/default_roce_mode",
                                l.url_is));
    out.push_back(of("GID", verdict::good, l.text() + ": " + gid_text(at), "", l.url_is));
}

void judge_mtu(const wanted_listener& l, const gid_place& at, const host_facts& host,
               std::vector<finding>& out)
{
    const std::string& interface = at.gids.front()->interface;
    const auto network = host.interface_mtus.find(interface);
    if (!at.port->is_ethernet || at.port->is_iwarp || network == host.interface_mtus.end())
        return;
    const std::uint32_t possible = roce_mtu(network->second);
    const std::string text = l.text() + ": " + at.port->device + " has an MTU of " +
                             std::to_string(at.port->mtu) + " on " + interface + " with " +
                             std::to_string(network->second);
    constexpr std::uint32_t largest = 4096;
    // Of a message's first packet, over IPv4: IP 20, UDP 8, BTH 12, RETH 16, ICRC 4.
    constexpr std::uint32_t least_headers = 60;
    if (at.port->mtu + least_headers > network->second)
        out.push_back(of("MTU", verdict::bad, text + ", which has room for " + std::to_string(possible),
                         "raise the MTU of the network, on each switch and each host; packets are lost "
                         "otherwise",
                         l.url_is));
    else if (at.port->mtu < largest)
        out.push_back(
            of("MTU", verdict::hint, text,
               at.port->mtu < possible
                   ? "the device is set lower than the network allows: see its driver"
                   : "an MTU of 4200 or more on each host and switch lets RDMA have 4096, the largest",
               l.url_is));
    else
        out.push_back(of("MTU", verdict::good, text, "", l.url_is));
}

void judge_rdma(const wanted_host& wanted, const host_facts& host, std::vector<finding>& out)
{
    std::set<std::string> seen;
    for (std::size_t i = 0; i < wanted.listeners.size() && i < host.listeners.size(); ++i) {
        const wanted_listener& l = wanted.listeners[i];
        if (l.scheme != "rdma")
            continue;
        if (!host.has_rdma) {
            out.push_back(of("RDMA", verdict::hint, l.text() + ": this build of verbena sees no RDMA devices",
                             "build it with libibverbs-dev and librdmacm-dev", l.url_is));
            continue;
        }
        for (const std::string& address : host.listeners[i].addresses) {
            if (address == "0.0.0.0" || address == "::" || !seen.insert(address).second)
                continue;
            const gid_place at = place_of(host.rdma, address);
            if (at.port == nullptr) {
                out.push_back(of("RDMA", verdict::bad,
                                 l.text() + ": no RDMA device has the address " + address,
                                 "`verbena doctor` lists the devices and their addresses; `rdma link` shows "
                                 "what they are on",
                                 l.url_is));
                continue;
            }
            const rdma_port_facts& port = *at.port;
            if (!l.device.empty() &&
                (l.device != port.device || (l.device_port != 0 && l.device_port != port.port)))
                out.push_back(of("RDMA", verdict::bad,
                                 l.text() + ": the address leads to " + port.device + " port " +
                                     std::to_string(port.port),
                                 "write an address of that device, or leave out ?device=", l.url_is));
            else if (!port.is_active)
                out.push_back(of("RDMA", verdict::bad,
                                 l.text() + ": " + port.device + " port " + std::to_string(port.port) +
                                     " is " + port.state,
                                 "check the cable and the switch, or `ip link set " +
                                     at.gids.front()->interface + " up`",
                                 l.url_is));
            else
                out.push_back(of("RDMA", verdict::good,
                                 l.text() + ": " + port.device + " port " + std::to_string(port.port) + ", " +
                                     port.state,
                                 "", l.url_is));
            judge_gid(l, at, out);
            judge_mtu(l, at, host, out);
        }
    }
}

// --- The way to a peer

void judge_route(const wanted_host& wanted, const host_facts& host, std::vector<finding>& out)
{
    const bool remote = std::ranges::any_of(host.listeners, [](const listener_facts& l) {
        return std::ranges::any_of(l.addresses,
                                   [](const std::string& a) { return a != "::1" && !a.starts_with("127."); });
    });
    if (!host.route) {
        if (remote)
            out.push_back(
                {"path MTU", verdict::good, "not looked at: no peer is named; --peer HOST asks one"});
        return;
    }
    const route_facts& r = *host.route;
    if (!r.failed.empty()) {
        out.push_back(
            {"route", verdict::bad, r.peer + ": " + r.failed, "`ip route get " + r.peer + "` shows the way"});
        return;
    }
    const bool by_rdma =
        std::ranges::any_of(wanted.listeners, [](const wanted_listener& l) { return l.scheme == "rdma"; });
    if (by_rdma && host.has_rdma) {
        const gid_place at = place_of(host.rdma, r.source);
        bool listens = false;
        for (std::size_t i = 0; i < wanted.listeners.size() && i < host.listeners.size(); ++i)
            listens |= wanted.listeners[i].scheme == "rdma" &&
                       std::ranges::any_of(host.listeners[i].addresses, [&](const std::string& a) {
                           return a == r.source || a == "0.0.0.0" || a == "::";
                       });
        if (at.port == nullptr)
            out.push_back(
                {"GID by route", verdict::bad,
                 "the route to " + r.peer + " leaves by " + r.source + " on " + r.interface +
                     ", which is of no RDMA device",
                 "correct the routes (`ip route get " + r.peer + "`), so that they leave by the device"});
        else if (!listens)
            out.push_back(
                {"GID by route", verdict::hint,
                 "the route to " + r.peer + " leaves by " + r.source + ", " + gid_text(at) +
                     ", where no rdma:// listener is",
                 "listen at that address, too, or have the route leave by one that is listened at"});
        else
            out.push_back({"GID by route", verdict::good,
                           "the route to " + r.peer + " leaves by " + r.source + ", " + gid_text(at)});
    }
    const std::string there =
        "to " + r.peer + " by " + r.interface + " with an MTU of " + std::to_string(r.mtu);
    if (r.passes == 0) {
        out.push_back({"path MTU", verdict::hint, there + ": not known, as no echo comes back",
                       "allow ICMP echo there for the time of this look; as a user other than root allow "
                       "it here by net.ipv4.ping_group_range"});
        return;
    }
    if (r.passes < r.mtu)
        out.push_back({"path MTU", verdict::bad,
                       there + ": packets of more than " + std::to_string(r.passes) + " bytes get no answer",
                       "give each host and switch on the way the same MTU; `ip link set " + r.interface +
                           " mtu " + std::to_string(r.passes) + "` is what the way has room for"});
    else
        out.push_back({"path MTU", verdict::good, there + ": packets of that size get there"});
    if (r.comes_back != 0 && r.comes_back < r.passes)
        out.push_back(
            {"path MTU back", verdict::bad,
             "from " + r.peer + ": answers come in pieces of " + std::to_string(r.comes_back) + " bytes",
             "give each host and switch on the way back the same MTU: RDMA can't be cut in pieces"});
    else
        out.push_back({"path MTU back", verdict::good,
                       "from " + r.peer + ": answers of " + std::to_string(r.passes) +
                           " bytes come whole; whether larger ones would, doctor at that host tells"});
}

} // namespace

std::uint32_t roce_mtu(std::uint32_t network) noexcept
{
    // What the kernel takes away for its headers (iboe_get_mtu): GRH 40, UDP 8, BTH 12, XRC 4, AtomicETH 28, ICRC 4.
    constexpr std::uint32_t headers = 96;
    for (std::uint32_t mtu = 4096; mtu >= 256; mtu /= 2) {
        if (network >= mtu + headers)
            return mtu;
    }
    return 0;
}

std::vector<finding> judge(const wanted_host& wanted, const host_facts& host)
{
    std::vector<finding> out;
    for (std::size_t i = 0; i < wanted.exports.size() && i < host.folders.size(); ++i)
        judge_export(wanted.exports[i], host.folders[i], host.process, out);
    judge_mount_units(wanted, host.process, out);
    for (std::size_t i = 0; i < wanted.devices.size() && i < host.devices.size(); ++i)
        judge_device(wanted.devices[i], host.devices[i], host.process, out);
    if (host.state)
        judge_state(wanted, *host.state, host.process, out);
    for (std::size_t i = 0; i < wanted.listeners.size() && i < host.listeners.size(); ++i)
        judge_port(wanted.listeners[i], host.listeners[i], host.process, out);
    judge_descriptors(wanted, host.process, out);
    judge_locked_memory(wanted, host.process, out);
    judge_capabilities(host.process, !wanted.exports.empty(), out);
    judge_rdma(wanted, host, out);
    judge_route(wanted, host, out);
    return out;
}

} // namespace verbena::cli
