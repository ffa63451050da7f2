// SPDX-License-Identifier: Apache-2.0
#include "data_places.hpp"

#include <verbena/protocols/nfs/wire/portmap.hpp>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <sys/socket.h>
#include <utility>

namespace verbena::nfs {

namespace {

result<net::endpoint> endpoint_of(std::string_view address)
{
    const std::string any_port = ":2049";
    const bool six = address.find(':') != std::string_view::npos;
    return net::endpoint::parse(six ? '[' + std::string(address) + ']' + any_port
                                    : std::string(address) + any_port);
}

// This host's address from which the kernel would send to `peer`; nothing where there is no way. Errors: no socket.
result<std::optional<net::endpoint>> local_address_toward(const net::endpoint& peer)
{
    // A datagram socket that is connected sends nothing.
    const net::unique_fd probe(::socket(peer.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!probe)
        return error::from_errno(errno, "a socket that asks for the way to a client");
    if (::connect(probe.get(), peer.data(), peer.size()) != 0)
        return std::optional<net::endpoint>();
    const auto local = net::endpoint::local(probe.get());
    return local ? std::optional(*local) : std::nullopt;
}

// RFC 5665 5.2.3.3 and 5.2.3.4. A scope has no place in it, and without its scope an address leads nowhere.
std::string universal(const std::string& address, std::uint16_t port)
{
    if (address.find('%') != std::string::npos)
        return {};
    return nfs::portmap::universal_address(address, port);
}

} // namespace

std::string universal_address_of(std::span<const net::endpoint> listeners, const net::endpoint& local)
{
    const std::string own = local.address();
    const net::endpoint* best = nullptr;
    for (const net::endpoint& l : listeners) {
        if (l.family() != local.family())
            continue;
        if (l.address() == own)
            return universal(own, l.port());
        // Another address of this host is reached too, most likely; but no loopback address from elsewhere.
        if (l.is_wildcard() || (best == nullptr && (!l.is_loopback() || local.is_loopback())))
            best = &l;
    }
    if (best == nullptr)
        return {};
    return universal(best->is_wildcard() ? own : best->address(), best->port());
}

void data_places::set(std::vector<net::endpoint> listeners)
{
    kept_ = std::make_unique<const std::vector<net::endpoint>>(std::move(listeners));
    listeners_.store(kept_.get(), std::memory_order_release);
}

result<std::string> data_places::universal_address_for(std::string_view peer) const
{
    const auto* const all = listeners_.load(std::memory_order_acquire);
    const auto to = endpoint_of(peer);
    if (all == nullptr)
        return error::from_errno(EAGAIN, "the listeners are not open yet");
    if (!to)
        return std::string();
    const auto of_family = [&](const net::endpoint& l) { return l.family() == to->family(); };
    const auto only = std::ranges::find_if(*all, of_family);
    if (only == all->end())
        return std::string();
    // Where there is no choice the kernel is not asked.
    if (!only->is_wildcard() && std::ranges::count_if(*all, of_family) == 1)
        return universal_address_of(*all, *to);
    const auto local = local_address_toward(*to);
    if (!local)
        return local.error();
    return *local ? universal_address_of(*all, **local) : std::string();
}

} // namespace verbena::nfs
