// SPDX-License-Identifier: Apache-2.0
#include "rpcbind.hpp"

#include "unix_listener.hpp"

#include <verbena/core/log.hpp>
#include <verbena/protocols/nfs/wire/portmap.hpp>
#include <verbena/protocols/rpc/message.hpp>
#include <verbena/protocols/rpcstream/record_marking.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <poll.h>
#include <random>
#include <set>
#include <span>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

namespace verbena::nfs {

namespace {

constexpr std::uint32_t nfs_program = 100003;
constexpr std::uint32_t mount_program = 100005;
constexpr std::uint32_t version = 3;
constexpr std::size_t max_reply = 64 * 1024;
// rpcbind lets each user change what he registered himself; over its Unix socket it knows who asks.
constexpr const char* socket_path = "/run/rpcbind.sock";

net::unique_fd connect_to_rpcbind()
{
    net::unique_fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval patience{1, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::strcpy(to.sun_path, socket_path);
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
        return {};
    return fd;
}

bool receive(int fd, std::span<std::byte> to)
{
    while (!to.empty()) {
        const auto n = ::recv(fd, to.data(), to.size(), 0);
        if (n <= 0)
            return false;
        to = to.subspan(std::size_t(n));
    }
    return true;
}

// One call to rpcbind version 4; the results, or nothing. `results` keeps them alive.
std::optional<xdr::decoder> call(portmap::procedure_3 procedure, const portmap::rpcb* args,
                                 std::vector<std::byte>& results)
{
    const net::unique_fd fd = connect_to_rpcbind();
    if (!fd)
        return {};
    std::array<std::byte, 4096> message;
    const std::span<std::byte> body = std::span(message).subspan(rpc::fragment_header_size);
    xdr::encoder out(body);
    rpc::call_header header;
    header.xid = std::random_device()();
    header.program = portmap::program;
    header.version = portmap::version_4;
    header.procedure = std::uint32_t(procedure);
    rpc::encode(out, header);
    if (args != nullptr)
        portmap::encode(out, *args);
    if (!out.ok())
        return {};
    rpc::encode_fragment_header(std::span(message).first<rpc::fragment_header_size>(),
                                {std::uint32_t(out.size()), true});
    const std::size_t size = rpc::fragment_header_size + out.size();
    if (::send(fd.get(), message.data(), size, MSG_NOSIGNAL) != ssize_t(size))
        return {};

    results.clear();
    for (bool last = false; !last;) {
        std::array<std::byte, rpc::fragment_header_size> mark;
        if (!receive(fd.get(), mark))
            return {};
        const rpc::fragment_header fragment = rpc::decode_fragment_header(mark);
        const std::size_t at = results.size();
        if (fragment.length > max_reply - at)
            return {};
        results.resize(at + fragment.length);
        if (!receive(fd.get(), std::span(results).subspan(at)))
            return {};
        last = fragment.last;
    }
    xdr::decoder in(results);
    rpc::reply_header reply;
    rpc::decode(in, reply);
    if (!in.ok() || reply.xid != header.xid || !reply.success())
        return {};
    return in;
}

bool call_for_boolean(portmap::procedure_3 procedure, const portmap::rpcb& args)
{
    std::vector<std::byte> memory;
    auto in = call(procedure, &args, memory);
    return in && in->boolean() && in->ok();
}

std::string netid_of(const listen_place& l)
{
    return std::string(l.transport == "tcp" ? "tcp" : "rdma") + (l.where.family() == AF_INET6 ? "6" : "");
}

constexpr int patience_milliseconds = 1000;

// What rpcbind holds of NFS, from whomever.
struct found_entry {
    std::uint32_t program;
    std::uint32_t version;
    std::string netid;
    std::string address; // universal
};

std::optional<net::endpoint> endpoint_of(const found_entry& e)
{
    const auto port = portmap::port_of(e.address);
    if (!port)
        return {};
    const std::string host = e.address.substr(0, e.address.rfind('.', e.address.rfind('.') - 1));
    auto where = net::endpoint::parse((host.find(':') != std::string::npos ? '[' + host + ']' : host) + ':' +
                                      std::to_string(*port));
    return where ? std::optional(*where) : std::nullopt;
}

// Whether this host says that no TCP socket is bound there.
bool is_refused_by_tcp(const net::endpoint& where)
{
    const auto fd = net::start_connect(where);
    if (!fd)
        return fd.error() == std::errc::connection_refused;
    pollfd wanted{fd->get(), POLLOUT, 0};
    if (::poll(&wanted, 1, patience_milliseconds) != 1)
        return false;
    const auto outcome = net::connect_outcome(fd->get());
    return !outcome && outcome.error() == std::errc::connection_refused;
}

bool is_refused_by_udp(const net::endpoint& where)
{
    const net::unique_fd fd(::socket(where.family(), SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (::connect(fd.get(), where.data(), where.size()) != 0 || ::send(fd.get(), nullptr, 0, 0) != 0)
        return false;
    pollfd wanted{fd.get(), POLLIN, 0};
    ::poll(&wanted, 1, patience_milliseconds / 10);
    const auto outcome = net::connect_outcome(fd.get());
    return !outcome && outcome.error() == std::errc::connection_refused;
}

// Whether this host is known to have no RDMA device that another server could listen at.
bool has_no_rdma_device()
{
    std::error_code unknown;
    const std::filesystem::path classes("/sys/class");
    if (!std::filesystem::is_directory(classes, unknown))
        return false;
    const std::filesystem::directory_iterator devices(classes / "infiniband", unknown);
    return unknown ? unknown == std::errc::no_such_file_or_directory : devices == end(devices);
}

// Whether nobody but this listener can listen where the entry says, if its transport is meant.
bool is_taken_by(const listen_place& l, const found_entry& e, const net::endpoint& where)
{
    return e.netid == netid_of(l) && where.port() == l.where.port() &&
           (where.address() == l.where.address() || where.is_wildcard() || l.where.is_wildcard());
}

// Whether who was there is gone: we listen there ourselves, or nobody does. Of a foreign RDMA device nothing can be said.
bool is_left_behind(const found_entry& e, std::span<const listen_place> listeners)
{
    const auto where = endpoint_of(e);
    if (!where)
        return false;
    const auto ours = [&](std::string_view transport) {
        return std::ranges::any_of(
            listeners, [&](const auto& l) { return l.transport == transport && is_taken_by(l, e, *where); });
    };
    if (e.netid.starts_with("tcp"))
        return ours("tcp") || is_refused_by_tcp(*where);
    if (e.netid.starts_with("udp"))
        return is_refused_by_udp(*where);
    // One netid stands for the port spaces of both transports.
    const bool iwarp = ours("iwarp");
    const bool rdma = ours("rdma");
    return (iwarp || rdma) && (iwarp || is_refused_by_tcp(*where)) && (rdma || has_no_rdma_device());
}

// "127.0.0.1:2049 (tcp)".
std::string place_of(const found_entry& e)
{
    const auto where = endpoint_of(e);
    return (where ? where->to_string() : e.address) + " (" + e.netid + ')';
}

// What removes all these entries, as root types it.
std::string removal_of(const std::vector<found_entry>& entries)
{
    std::set<std::pair<std::uint32_t, std::uint32_t>> programs;
    for (const found_entry& e : entries)
        programs.emplace(e.program, e.version);
    std::string text;
    for (const auto& [program, version] : programs)
        text += (text.empty() ? "rpcinfo -d " : "; rpcinfo -d ") + std::to_string(program) + ' ' +
                std::to_string(version);
    return text;
}

// Asks rpcbind to set or unset an entry, as this user; whether it did.
bool change(portmap::procedure_3 procedure, std::uint32_t program, std::uint32_t version,
            const std::string& netid, const std::string& address)
{
    const std::string owner = std::to_string(::geteuid());
    portmap::rpcb args;
    args.program = program;
    args.version = version;
    args.netid = netid;
    args.addr = address;
    args.owner = owner;
    return call_for_boolean(procedure, args);
}

// Makes room for our entries; why there is none, with the cure, or nothing.
std::string make_room(const std::vector<found_entry>& entries, std::span<const listen_place> listeners)
{
    // What listens here says nothing of addresses that mean another network's places.
    const bool ours = listens_in_our_network(socket_path);
    const auto lives =
        std::ranges::find_if(entries, [&](const auto& e) { return !ours || !is_left_behind(e, listeners); });
    if (lives != entries.end())
        return "not registered with rpcbind, since an NFS server is registered there at " + place_of(*lives) +
               "; if that one is gone, " + removal_of(entries) + " and start this server anew";
    for (const found_entry& e : entries) {
        if (!change(portmap::procedure_3::unset, e.program, e.version, e.netid, e.address))
            return "not registered with rpcbind, since it keeps what a server that is gone left there at " +
                   place_of(e) + " for root or another user: as that user, " + removal_of(entries) +
                   ", and start this server anew";
        log(log_level::info, "rpcbind", "entry of a server that is gone removed",
            {{"program", e.program}, {"netid", e.netid}, {"address", e.address}});
    }
    return {};
}

} // namespace

rpcbind_registration::rpcbind_registration(std::span<const listen_place> listeners, bool has_mount)
{
    std::vector<std::byte> memory;
    auto registered = call(portmap::procedure_3::dump, nullptr, memory);
    if (!registered) {
        summary_ = "rpcbind does not run here; clients are told the ports by the lines above";
        return;
    }
    std::vector<found_entry> others;
    portmap::rpcb entry;
    while (portmap::next(*registered, entry)) {
        if (entry.program == nfs_program || entry.program == mount_program)
            others.push_back(
                {entry.program, entry.version, std::string(entry.netid), std::string(entry.addr)});
    }
    summary_ = make_room(others, listeners);
    if (!summary_.empty())
        return;
    for (const listen_place& l : listeners) {
        const std::string netid = netid_of(l);
        if (std::ranges::any_of(held_, [&](const auto& e) { return e.netid == netid; }))
            continue;
        const std::string address = portmap::universal_address(l.where.address(), l.where.port());
        // MOUNT is not asked for over RDMA by any client that looks here.
        for (const std::uint32_t program : {nfs_program, mount_program}) {
            if (program == mount_program && (!has_mount || l.transport != "tcp"))
                continue;
            if (change(portmap::procedure_3::set, program, version, netid, address))
                held_.push_back({program, version, netid, address});
            else
                log(log_level::warning, "rpcbind", "registration refused",
                    {{"program", program}, {"netid", netid}, {"address", address}});
        }
    }
    summary_ = "registered with rpcbind:";
    for (const auto& e : held_) {
        if (e.program == nfs_program)
            summary_ += ' ' + e.netid;
    }
    if (held_.empty())
        summary_ = "rpcbind refused to register the NFS service";
}

rpcbind_registration::~rpcbind_registration()
{
    for (const auto& e : held_)
        change(portmap::procedure_3::unset, e.program, e.version, e.netid, e.address);
}

} // namespace verbena::nfs
