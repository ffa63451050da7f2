// SPDX-License-Identifier: Apache-2.0
#include "rpcbind.hpp"

#include <verbena/core/log.hpp>
#include <verbena/protocols/nfs/portmap.hpp>
#include <verbena/protocols/rpc/message.hpp>
#include <verbena/protocols/rpc/record_marking.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

namespace verbena::daemon {

namespace {

namespace portmap = nfs::portmap;

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

std::string netid_of(const nfs_service::listening& l)
{
    return std::string(l.transport == "tcp" ? "tcp" : "rdma") + (l.where.family() == AF_INET6 ? "6" : "");
}

} // namespace

rpcbind_registration::rpcbind_registration(const std::vector<nfs_service::listening>& listeners)
{
    std::vector<std::byte> memory;
    auto registered = call(portmap::procedure_3::dump, nullptr, memory);
    if (!registered) {
        summary_ = "rpcbind does not run here; clients are told the ports by the lines above";
        return;
    }
    portmap::rpcb entry;
    while (portmap::next(*registered, entry)) {
        if (entry.program == nfs_program || entry.program == mount_program) {
            summary_ = "another NFS server is registered with rpcbind; it stays so";
            return;
        }
    }
    const std::string owner = std::to_string(::geteuid());
    for (const nfs_service::listening& l : listeners) {
        const std::string netid = netid_of(l);
        if (std::ranges::any_of(held_, [&](const auto& e) { return e.netid == netid; }))
            continue;
        const std::string address = portmap::universal_address(l.where.address(), l.where.port());
        // MOUNT is not asked for over RDMA by any client that looks here.
        for (const std::uint32_t program : {nfs_program, mount_program}) {
            if (program == mount_program && l.transport != "tcp")
                continue;
            portmap::rpcb args;
            args.program = program;
            args.version = version;
            args.netid = netid;
            args.addr = address;
            args.owner = owner;
            if (call_for_boolean(portmap::procedure_3::set, args))
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
    const std::string owner = std::to_string(::geteuid());
    for (const auto& e : held_) {
        portmap::rpcb args;
        args.program = e.program;
        args.version = e.version;
        args.netid = e.netid;
        args.addr = e.address;
        args.owner = owner;
        call_for_boolean(portmap::procedure_3::unset, args);
    }
}

} // namespace verbena::daemon
