// SPDX-License-Identifier: Apache-2.0
#include "start_text.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/printable.hpp>

#include <verbena/core/net/ip_address.hpp>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>
#include <unistd.h>
#include <vector>

namespace verbena::nfs {

namespace {

std::string host_name()
{
    char name[256] = "";
    ::gethostname(name, sizeof name - 1);
    return name[0] != '\0' ? name : "localhost";
}

std::string bracketed(const std::string& host)
{
    return host.find(':') == std::string::npos ? host : '[' + host + ']';
}

// As one word of a shell; what a terminal would obey, or is no UTF-8, as bash and POSIX.1-2024 have it.
std::string quoted(const std::string& text)
{
    if (text.find('\n') != std::string::npos || printable_lines(text) != text) {
        std::string out = "$'";
        for (const char c : printable(text))
            out += c == '\'' ? std::string("\\'") : std::string(1, c);
        return out + '\'';
    }
    const auto plain = [](unsigned char c) {
        return std::isalnum(c) != 0 || std::strchr("/:[]._-%+", c) != nullptr;
    };
    if (std::ranges::all_of(text, plain))
        return text;
    std::string out = "'";
    for (const char c : text)
        out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + '\'';
}

// The TCP listener that a kernel reaches under the name by which it reaches `l`: at the same address or at
// every one; where `l` takes every address, any of the family does.
const listen_place* mount_listener(const listen_place& l, std::span<const listen_place> all)
{
    const listen_place* best = nullptr;
    for (const auto& tcp : all) {
        if (tcp.transport != "tcp" || tcp.where.family() != l.where.family())
            continue;
        if (tcp.where.address() == l.where.address())
            return &tcp;
        if (tcp.where.is_wildcard() || (l.where.is_wildcard() && best == nullptr))
            best = &tcp;
    }
    return best;
}

std::string listen_everywhere(const std::string& transport)
{
    return "--listen " + transport + (transport == "tcp" ? "://*:2049" : "://*:20049");
}

// Whether an address of the family may be one of the export's clients.
bool admits_family(const exported_as& e, int family)
{
    if (e.admitted.everybody() || e.admitted.local_only())
        return true;
    return std::ranges::any_of(e.admitted.texts(), [family](const std::string& text) {
        // Short prefixes of :: hold the IPv4 addresses too.
        return text.starts_with("::/") || (text.find(':') != std::string::npos) == (family == AF_INET6);
    });
}

// Read from the kernel once for all exports, if one needs them.
class own_addresses {
public:
    host_addresses& get()
    {
        if (!list_)
            list_.emplace();
        return *list_;
    }

private:
    std::optional<host_addresses> list_;
};

// Whether one of this host's own addresses is a client's: a program that binds it reaches a loopback listener from there.
bool admits_own_address(const client_list& admitted, int family, own_addresses& of_host)
{
    const bool v4 = family == AF_INET;
    const auto loopback = ip_prefix::parse(v4 ? "127.0.0.0/8" : "::1/128");
    const auto holds_loopback = [&](const std::string& text) {
        const auto prefix = ip_prefix::parse(text);
        return prefix && (prefix->contains(*loopback) || loopback->contains(*prefix));
    };
    if (admitted.everybody() || std::ranges::any_of(admitted.texts(), holds_loopback))
        return true;
    host_addresses& here = of_host.get();
    const std::vector<ip_address> own = here.list();
    return std::ranges::any_of(
        own, [&](const ip_address& a) { return a.is_v4() == v4 && admitted.admits(a, here); });
}

// Why clients of the export cannot mount what is named `named`, and the cure; empty if they can.
std::string obstacle(const exported_as& e, const std::string& transport, const net::endpoint& named,
                     own_addresses& of_host)
{
    if (e.secure && transport != "tcp")
        return "RDMA clients can't mount " + e.pseudo +
               " here, since secure wants ports below 1024 and they have none: leave out secure, or say "
               "transport=tcp";
    if (!admits_family(e, named.family()))
        return "nobody can mount " + printable(e.pseudo) + " here, since clients= holds no " +
               (named.family() == AF_INET6 ? "IPv6" : "IPv4") + " address";
    const auto address = ip_address::parse(named.address());
    host_addresses loopback_only(std::vector<ip_address>{});
    if (!named.is_loopback() || !address || e.admitted.admits(*address, loopback_only))
        return {};
    if (admits_own_address(e.admitted, named.family(), of_host))
        return "only programs that bind an address of clients= can mount " + e.pseudo +
               " here, since all others come from " + named.address() + ": add " +
               listen_everywhere(transport) + ", or clients=" + named.address();
    return "nobody can mount " + e.pseudo +
           " here, since only this host reaches a loopback address and clients= does not hold " +
           named.address() + ": add " + listen_everywhere(transport) + ", or clients=" + named.address();
}

// What root types on a client. The netids are those of nfs(5).
std::string mount_line(const listen_place& l, std::span<const listen_place> all, const exported_as& e,
                       std::string_view version_4, own_addresses& of_host)
{
    const bool four = !version_4.empty();
    if (const std::string why = obstacle(e, l.transport, l.where, of_host); !why.empty())
        return why;
    const std::string six = l.where.family() == AF_INET6 ? "6" : "";
    // The kernel's client speaks MOUNT over TCP only. Version 4 has no use for it.
    const listen_place* mount = four || l.transport == "tcp" ? &l : mount_listener(l, all);
    if (mount == nullptr)
        return "kernels can't mount " + e.pseudo +
               " here, since they ask for the mount over TCP: add --listen tcp://" +
               bracketed(l.where.address()) + ":2049";
    const net::endpoint& named = l.where.is_wildcard() ? mount->where : l.where;
    if (const std::string why = obstacle(e, four ? l.transport : "tcp", named, of_host); !why.empty())
        return why;
    const std::string host = named.is_wildcard() ? host_name() : bracketed(named.address());
    const std::string port = std::to_string(l.where.port());
    // Neither siw nor rxe connects to it: rdma_resolve_addr() finds no device.
    const bool has_tcp = std::ranges::any_of(all, [](const listen_place& p) { return p.transport == "tcp"; });
    if (l.transport != "tcp" && named.is_loopback())
        return "RDMA devices reach no loopback address: here mount " + printable(e.pseudo) + " by TCP" +
               (has_tcp ? "" : " (add --listen tcp://" + bracketed(l.where.address()) + ":2049)") +
               (l.transport == "iwarp" ? ", or use nfs+iwarp://" + host + ':' + port : "") +
               "; for other hosts add " +
               (l.where.is_loopback() ? listen_everywhere(l.transport) + ", " : std::string()) +
               (!four && mount->where.is_loopback() ? listen_everywhere("tcp") + ", " : std::string()) +
               "and clients= for them";
    if (four)
        return "mount -t nfs -o vers=" + std::string(version_4) +
               ",proto=" + (l.transport == "tcp" ? "tcp" : "rdma") + six + ",port=" + port + ' ' +
               quoted(host + ':' + e.pseudo) + " /mnt";
    const std::string mount_port = std::to_string(mount->where.port());
    const std::string options = l.transport == "tcp"
                                    ? "proto=tcp" + six + ",port=" + port
                                    : "proto=rdma" + six + ",port=" + port + ",mountproto=tcp" + six;
    return "mount -t nfs -o vers=3," + options + ",mountport=" + mount_port + ",nolock " +
           quoted(host + ':' + e.pseudo) + " /mnt";
}

bool admits_transport(const exported_as& e, const listen_place& l)
{
    return e.transports.empty() || std::ranges::find(e.transports, l.transport) != e.transports.end();
}

// Why no client can come as clients do, and the cure; empty if one can.
std::string nobody_comes(const exported_as& e, std::span<const listen_place> all, own_addresses& of_host)
{
    bool transport = false, port = false, elsewhere = false, own = false;
    for (const auto& l : all) {
        if (!admits_transport(e, l))
            continue;
        transport = true;
        if (e.secure && l.transport != "tcp")
            continue;
        port = true;
        elsewhere = elsewhere || !l.where.is_loopback();
        if (obstacle(e, l.transport, l.where, of_host).empty())
            return {};
        own = own || (l.where.is_loopback() && admits_own_address(e.admitted, l.where.family(), of_host));
    }
    if (!transport)
        return "nobody can reach it: no --listen is of a transport that transport= admits";
    if (!port)
        return "nobody can reach it: secure wants ports below 1024, and RDMA clients have none: leave out "
               "secure, or add a --listen tcp:// that transport= admits";
    if (elsewhere)
        return "nobody of clients=" + e.clients +
               " can reach it, since one side has IPv4 addresses only and the other IPv6: add --listen, or "
               "clients=, of the other family";
    const std::string cure = listen_everywhere(e.transports.empty() ? "tcp" : e.transports.front());
    if (own)
        return "only programs of this host that bind an address of clients=" + e.clients +
               " can reach it while its listeners are on loopback: add " + cure;
    return "nobody of clients=" + e.clients +
           " can reach it while its listeners are on loopback, where only this host comes: add " + cure;
}

} // namespace

std::string start_text(std::span<const exported_as> exports, std::span<const listen_place> listeners,
                       mounted_by by)
{
    std::string text;
    own_addresses of_host;
    for (const auto& e : exports) {
        text += "export " + printable(e.pseudo) + " from " + printable(e.source) + " (" + e.options +
                ") to " + e.clients + '\n';
        if (!e.notes.empty())
            text += "  " + printable(e.notes) + '\n';
        if (!e.warning.empty())
            text += "  " + printable(e.warning) + '\n';
        if (const std::string why = nobody_comes(e, listeners, of_host); !why.empty()) {
            text += "  warning: " + why + '\n';
            // Whoever looks for warnings in the journal looks at no standard output.
            log(log_level::warning, "nfs", "an export can't be reached by those whom it is for",
                {{"export", e.pseudo}, {"why", why}});
        }
    }
    bool mountable = false;
    for (const auto& l : listeners) {
        text += "listening at " + l.url() + '\n';
        for (const auto& e : exports) {
            if (!admits_transport(e, l) || !nobody_comes(e, listeners, of_host).empty())
                continue;
            const std::string line =
                by.mount || !by.version_4.empty()
                    ? mount_line(l, listeners, e, by.version_4, of_host)
                    : "kernels can't mount " + printable(e.pseudo) +
                          " here without the protocol that they ask first: load the module mount";
            mountable = mountable || line.starts_with("mount ");
            text += "  " + line + '\n';
        }
    }
    if (mountable && by.version_4.empty())
        text += "nolock, as there is no lock manager yet: locks of files hold among the processes of one "
                "client only\n";
    return text;
}

} // namespace verbena::nfs
