// SPDX-License-Identifier: Apache-2.0
#include "ports.hpp"

#include "cm_id.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netpacket/packet.h>
#include <optional>
#include <rdma/rdma_cma.h>

namespace verbena::rdma {
namespace {

constexpr std::size_t mac_size = 6;
constexpr std::size_t ipoib_size = 20; // 4 octets of its own, then a GID

std::string_view state_name(ibv_port_state s) noexcept
{
    switch (s) {
    case IBV_PORT_DOWN: return "down";
    case IBV_PORT_INIT: return "initialising";
    case IBV_PORT_ARMED: return "armed";
    case IBV_PORT_ACTIVE: return "active";
    case IBV_PORT_ACTIVE_DEFER: return "active, deferred";
    default: return "unknown";
    }
}

/// The interfaces of this host, with their addresses.
class interfaces {
public:
    interfaces()
    {
        if (::getifaddrs(&all_) != 0)
            all_ = nullptr;
    }
    interfaces(const interfaces&) = delete;
    ~interfaces()
    {
        if (all_ != nullptr)
            ::freeifaddrs(all_);
    }
    template<class F>
    void each(F f) const
    {
        for (const ifaddrs* i = all_; i != nullptr; i = i->ifa_next) {
            if (i->ifa_addr != nullptr)
                f(*i);
        }
    }
    /// The one whose hardware address such a GID is made of: iWARP's begins with the MAC, IPoIB's address ends in it.
    std::string made_of(const ibv_gid& gid) const
    {
        std::string name;
        each([&](const ifaddrs& i) {
            if (i.ifa_addr->sa_family != AF_PACKET)
                return;
            sockaddr_ll link{};
            std::memcpy(&link, i.ifa_addr, sizeof link);
            const auto* const hardware =
                reinterpret_cast<const std::uint8_t*>(i.ifa_addr) + offsetof(sockaddr_ll, sll_addr);
            const bool mac = link.sll_halen == mac_size && std::equal(gid.raw, gid.raw + mac_size, hardware);
            const bool ipoib =
                link.sll_halen == ipoib_size && std::equal(gid.raw, gid.raw + sizeof gid.raw, hardware + 4);
            if ((mac || ipoib) && name.empty()) // a VLAN of it, which has its address too, stands behind it
                name = i.ifa_name;
        });
        return name;
    }
    std::vector<std::string> addresses_of(const std::string& name) const
    {
        std::vector<std::string> all;
        each([&](const ifaddrs& i) {
            if (const auto e = as_endpoint(i); e && name == i.ifa_name)
                all.push_back(e->address());
        });
        return all;
    }
    static std::optional<net::endpoint> as_endpoint(const ifaddrs& i)
    {
        const int family = i.ifa_addr->sa_family;
        if (family != AF_INET && family != AF_INET6)
            return {};
        const auto e =
            net::endpoint::from(i.ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
        return e ? std::optional(*e) : std::nullopt;
    }

private:
    ifaddrs* all_ = nullptr;
};

bool is_v4_mapped(const ibv_gid& gid) noexcept
{
    constexpr std::array<std::uint8_t, 12> prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::ranges::equal(prefix, std::span(gid.raw).first(prefix.size()));
}

std::string text_of(const ibv_gid& gid, bool v4)
{
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (v4)
        ::inet_ntop(AF_INET, gid.raw + 12, text.data(), text.size());
    else
        ::inet_ntop(AF_INET6, gid.raw, text.data(), text.size());
    return text.data();
}

gid_report report_of(const ibv_gid_entry& e, bool iwarp, const interfaces& known)
{
    gid_report g;
    g.index = e.gid_index;
    g.text = text_of(e.gid, false);
    const bool roce = e.gid_type == IBV_GID_TYPE_ROCE_V1 || e.gid_type == IBV_GID_TYPE_ROCE_V2;
    if (e.gid_type == IBV_GID_TYPE_ROCE_V2)
        g.type = "RoCE v2";
    else if (e.gid_type == IBV_GID_TYPE_ROCE_V1)
        g.type = "RoCE v1";
    else
        g.type = iwarp ? "iWARP" : "InfiniBand";
    std::array<char, IF_NAMESIZE> name{};
    if (e.ndev_ifindex != 0 && ::if_indextoname(e.ndev_ifindex, name.data()) != nullptr)
        g.interface = name.data();
    else if (!roce)
        g.interface = known.made_of(e.gid);
    if (roce)
        g.addresses = {text_of(e.gid, is_v4_mapped(e.gid))};
    else if (!g.interface.empty())
        g.addresses = known.addresses_of(g.interface);
    return g;
}

bool same_subnet(const ifaddrs& i, const net::endpoint& to) noexcept
{
    if (i.ifa_netmask == nullptr)
        return false;
    const auto octets = [](const sockaddr* a) {
        return a->sa_family == AF_INET
                   ? std::span(reinterpret_cast<const std::uint8_t*>(a) + offsetof(sockaddr_in, sin_addr), 4)
                   : std::span(reinterpret_cast<const std::uint8_t*>(a) + offsetof(sockaddr_in6, sin6_addr),
                               16);
    };
    const auto own = octets(i.ifa_addr);
    const auto mask = octets(i.ifa_netmask);
    const auto other = octets(to.data());
    for (std::size_t k = 0; k < own.size(); ++k) {
        if (((own[k] ^ other[k]) & mask[k]) != 0)
            return false;
    }
    return true;
}

bool is_link_local(const net::endpoint& e) noexcept { return e.address().starts_with("fe80:"); }

// 0: best.
int distance(const ifaddrs& i, const net::endpoint& own, const net::endpoint& to) noexcept
{
    if (same_subnet(i, to))
        return 0;
    return is_link_local(own) ? 2 : 1;
}

} // namespace

std::vector<port_report> ports_of(ibv_context* verbs)
{
    std::vector<port_report> all;
    ibv_device_attr device{};
    if (::ibv_query_device(verbs, &device) != 0)
        return all;
    const interfaces known;
    const bool iwarp = verbs->device->transport_type == IBV_TRANSPORT_IWARP;
    for (std::uint32_t number = 1; number <= device.phys_port_cnt; ++number) {
        port_report& p = all.emplace_back();
        p.number = number;
        ibv_port_attr port{};
        if (::ibv_query_port(verbs, static_cast<std::uint8_t>(number), &port) != 0)
            continue;
        p.link_layer = port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand";
        p.state = state_name(port.state);
        p.active = port.state == IBV_PORT_ACTIVE;
        p.mtu = 128U << port.active_mtu;
        for (int i = 0; i < port.gid_tbl_len; ++i) {
            ibv_gid_entry e{};
            if (::ibv_query_gid_ex(verbs, number, static_cast<std::uint32_t>(i), &e, 0) == 0)
                p.gids.push_back(report_of(e, iwarp, known));
        }
    }
    return all;
}

result<net::endpoint> parse_source(std::string_view text)
{
    std::string with_port(text);
    with_port = text.find(':') == std::string_view::npos ? with_port + ":0" : "[" + with_port + "]:0";
    return net::endpoint::parse(with_port);
}

result<std::string> device_with(std::string_view address)
{
    const auto where = parse_source(address);
    if (!where)
        return where.error();
    const std::unique_ptr<rdma_event_channel, void (*)(rdma_event_channel*)> channel(
        ::rdma_create_event_channel(), &::rdma_destroy_event_channel);
    rdma_cm_id* raw = nullptr;
    if (channel == nullptr || ::rdma_create_id(channel.get(), &raw, nullptr, RDMA_PS_TCP) != 0)
        return error::from_errno(errno, "rdma_create_id");
    const cm_id id(raw);
    if (::rdma_bind_addr(raw, const_cast<sockaddr*>(where->data())) != 0 || raw->verbs == nullptr)
        return error(std::errc::no_such_device, "no RDMA device has this address");
    return std::string(::ibv_get_device_name(raw->verbs->device));
}

result<net::endpoint> own_address(std::string_view device, std::uint32_t port, const net::endpoint& to)
{
    std::vector<std::string> names;
    bool any = false;
    int count = 0;
    const std::unique_ptr<ibv_context*, void (*)(ibv_context**)> list(::rdma_get_devices(&count),
                                                                      &::rdma_free_devices);
    for (int i = 0; list != nullptr && i < count; ++i) {
        if (device != ::ibv_get_device_name(list.get()[i]->device))
            continue;
        for (const port_report& p : ports_of(list.get()[i])) {
            if (port != 0 && p.number != port)
                continue;
            any = true;
            for (const gid_report& g : p.gids)
                names.push_back(g.interface);
        }
    }
    if (!any)
        return error(std::errc::no_such_device,
                     "no RDMA device or port of this name; `verbena doctor` lists them", port);
    std::optional<net::endpoint> best;
    int least = 0;
    interfaces().each([&](const ifaddrs& i) {
        const auto own = interfaces::as_endpoint(i);
        if (!own || own->family() != to.family() || std::ranges::find(names, i.ifa_name) == names.end())
            return;
        const int d = distance(i, *own, to);
        if (!best || d < least) {
            best = own;
            least = d;
        }
    });
    if (!best)
        return error(std::errc::address_not_available,
                     "the RDMA device has no address of this family; `verbena doctor` lists them");
    return *best;
}

} // namespace verbena::rdma
