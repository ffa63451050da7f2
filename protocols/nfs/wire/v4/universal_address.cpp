// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/wire/v4/universal_address.hpp>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <sys/socket.h>

namespace verbena::nfs::v4 {

namespace {

// The longest IPv6 address as text, and ".255.255".
constexpr std::size_t longest = INET6_ADDRSTRLEN + 8;

// A byte in decimal, as nobody else would write it: no sign, no blank, no zero in front.
std::optional<unsigned> byte_of(std::string_view text) noexcept
{
    if (text.empty() || text.size() > 3 || (text.size() > 1 && text[0] == '0'))
        return std::nullopt;
    unsigned value = 0;
    for (const char c : text) {
        if (c < '0' || c > '9')
            return std::nullopt;
        value = value * 10 + static_cast<unsigned>(c - '0');
    }
    return value <= 255 ? std::optional(value) : std::nullopt;
}

// What is behind the last dot, taken off `text`.
std::optional<unsigned> take_byte(std::string_view& text) noexcept
{
    const std::size_t dot = text.rfind('.');
    if (dot == std::string_view::npos)
        return std::nullopt;
    const auto value = byte_of(text.substr(dot + 1));
    text = text.substr(0, dot);
    return value;
}

result<net::endpoint> endpoint_of(std::string_view address, unsigned port)
{
    const bool brackets = address.find(':') != std::string_view::npos;
    std::string text(brackets ? "[" : "");
    text += address;
    text += brackets ? "]:" : ":";
    text += std::to_string(port);
    return net::endpoint::parse(text);
}

std::string without_scope(const net::endpoint& e)
{
    std::string text = e.address();
    return text.substr(0, text.find('%'));
}

} // namespace

result<universal_address> parse_universal_address(std::string_view netid, std::string_view text)
{
    universal_address out;
    const bool six = netid.ends_with('6');
    const std::string_view name = six ? netid.substr(0, netid.size() - 1) : netid;
    if (name == "rdma")
        out.over = universal_address::transport::rdma;
    else if (name != "tcp")
        return error(std::errc::protocol_not_supported, "a netid but tcp, tcp6, rdma and rdma6");
    if (text.size() > longest)
        return error(std::errc::invalid_argument, "a universal address is too long", text.size());
    const auto low = take_byte(text);
    const auto high = low ? take_byte(text) : std::nullopt;
    if (!high)
        return error(std::errc::invalid_argument, "a universal address has no port");
    const unsigned port = *high << 8 | *low;
    if (port == 0)
        return error(std::errc::invalid_argument, "a universal address has port 0");
    // inet_pton() takes no scope, and of IPv4 nothing but four numbers.
    std::array<char, longest + 1> address{};
    std::ranges::copy(text, address.begin());
    std::array<std::byte, 16> bytes{};
    if (std::strlen(address.data()) != text.size() ||
        ::inet_pton(six ? AF_INET6 : AF_INET, address.data(), bytes.data()) != 1)
        return error(std::errc::invalid_argument, "a universal address has no address of its netid");
    const auto at = endpoint_of(text, port);
    if (!at)
        return at.error();
    out.at = *at;
    return out;
}

result<universal_address> at_home_of(const universal_address& of, std::string_view from)
{
    const auto home = endpoint_of(from, of.at.port());
    if (!home)
        return home.error();
    if (without_scope(*home) != without_scope(of.at))
        return error(std::errc::permission_denied, "a client is called only where it calls from");
    universal_address out = of;
    out.at = *home;
    return out;
}

} // namespace verbena::nfs::v4
