// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/net/ip_address.hpp>

#include <algorithm>
#include <arpa/inet.h>
#include <charconv>
#include <cstring>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace verbena {

namespace {

constexpr unsigned v4_bits = 96; // the length of ::ffff:0:0/96

ip_address from_v4(const std::uint8_t* four) noexcept
{
    std::array<std::uint8_t, 16> bytes{};
    bytes[10] = bytes[11] = 0xff;
    std::copy_n(four, 4, bytes.begin() + 12);
    return ip_address(bytes);
}

// Parsed once per call served, so without inet_pton's detour over a copied string.
std::optional<ip_address> parse_v4(std::string_view text) noexcept
{
    std::uint8_t four[4];
    const char* next = text.data();
    const char* const end = next + text.size();
    for (unsigned i = 0; i < 4; ++i) {
        if (i != 0) {
            if (next == end || *next != '.')
                return std::nullopt;
            ++next;
        }
        const char* const start = next;
        const auto [stop, failed] = std::from_chars(start, end, four[i]);
        if (failed != std::errc() || (*start == '0' && stop - start > 1))
            return std::nullopt;
        next = stop;
    }
    if (next != end)
        return std::nullopt;
    return from_v4(four);
}

bool same_prefix(const ip_address& a, const ip_address& b, unsigned length) noexcept
{
    const unsigned whole = length / 8;
    if (std::memcmp(a.bytes().data(), b.bytes().data(), whole) != 0)
        return false;
    const unsigned rest = length % 8;
    return rest == 0 || ((a.bytes()[whole] ^ b.bytes()[whole]) >> (8 - rest)) == 0;
}

// RFC 6890, RFC 8190 and the special-purpose registries they founded; fe80::/9 is link-local and the deprecated site-local
// (RFC 3879), which emulators still hand out.
constexpr const char* not_global[] = {
    "0.0.0.0/8",       "10.0.0.0/8",     "100.64.0.0/10", "127.0.0.0/8",    "169.254.0.0/16",
    "172.16.0.0/12",   "192.0.0.0/24",   "192.0.2.0/24",  "192.168.0.0/16", "198.18.0.0/15",
    "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",   "::/127",         "64:ff9b:1::/48",
    "100::/64",        "2001:db8::/32",  "fc00::/7",      "fe80::/9",       "ff00::/8",
};

} // namespace

std::optional<ip_address> ip_address::parse(std::string_view text) noexcept
{
    if (auto v4 = parse_v4(text))
        return v4;
    text = text.substr(0, text.find('%'));
    char terminated[INET6_ADDRSTRLEN];
    if (text.size() >= sizeof terminated)
        return std::nullopt;
    *std::copy(text.begin(), text.end(), terminated) = '\0';
    std::array<std::uint8_t, 16> bytes;
    if (std::strlen(terminated) != text.size() || ::inet_pton(AF_INET6, terminated, bytes.data()) != 1)
        return std::nullopt;
    return ip_address(bytes);
}

bool ip_address::is_v4() const noexcept
{
    return std::all_of(bytes_.begin(), bytes_.begin() + 10, [](std::uint8_t b) { return b == 0; }) &&
           bytes_[10] == 0xff && bytes_[11] == 0xff;
}

bool ip_address::is_loopback() const noexcept
{
    if (is_v4())
        return bytes_[12] == 127;
    return std::all_of(bytes_.begin(), bytes_.end() - 1, [](std::uint8_t b) { return b == 0; }) &&
           bytes_[15] == 1;
}

bool ip_address::is_unspecified() const noexcept
{
    const auto first = bytes_.begin() + (is_v4() ? 12 : 0);
    return std::all_of(first, bytes_.end(), [](std::uint8_t b) { return b == 0; });
}

bool ip_address::is_global() const noexcept
{
    for (const char* text : not_global) {
        if (ip_prefix::parse(text).value().contains(*this))
            return false;
    }
    return true;
}

std::string ip_address::text() const
{
    char buffer[INET6_ADDRSTRLEN];
    const char* done = is_v4() ? ::inet_ntop(AF_INET, bytes_.data() + 12, buffer, sizeof buffer)
                               : ::inet_ntop(AF_INET6, bytes_.data(), buffer, sizeof buffer);
    return done;
}

result<ip_prefix> ip_prefix::parse(std::string_view text)
{
    const std::size_t slash = text.find('/');
    const auto base = ip_address::parse(text.substr(0, slash));
    if (!base)
        return error(std::errc::invalid_argument, "not an IP address");
    ip_prefix prefix;
    prefix.base_ = *base;
    if (slash == std::string_view::npos)
        return prefix;
    const std::string_view digits = text.substr(slash + 1);
    // A mapped address written as IPv6 counts its bits as IPv6 does.
    const bool v4 = text.find(':') == std::string_view::npos;
    unsigned length = 0;
    const auto [stop, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), length);
    if (failed != std::errc() || stop != digits.data() + digits.size() || length > (v4 ? 32u : 128u))
        return error(std::errc::invalid_argument, "not a prefix length");
    prefix.length_ = v4 ? v4_bits + length : length;
    std::array<std::uint8_t, 16> bytes = base->bytes();
    for (unsigned bit = prefix.length_; bit < 128; ++bit) {
        if (bytes[bit / 8] & (0x80 >> bit % 8))
            return error(std::errc::invalid_argument, "an address prefix with bits set behind its length");
    }
    return prefix;
}

bool ip_prefix::contains(const ip_address& address) const noexcept
{
    // ::/0 means IPv6: IPv4 clients are named as such.
    return (length_ >= v4_bits || !address.is_v4()) && same_prefix(base_, address, length_);
}

bool ip_prefix::includes_global() const noexcept
{
    // A prefix that no special range covers whole reaches beyond all of them: none has a neighbour that
    // would make it whole.
    for (const char* text : not_global) {
        if (ip_prefix::parse(text).value().contains(*this))
            return false;
    }
    return true;
}

std::string ip_prefix::text() const
{
    return base_.text() + '/' + std::to_string(is_v4() ? length_ - v4_bits : length_);
}

host_addresses::host_addresses() { refresh(); }

bool host_addresses::listed(const ip_address& address) const noexcept
{
    return std::find(list_.begin(), list_.end(), address) != list_.end();
}

bool host_addresses::is_local(const ip_address& address)
{
    if (address.is_loopback() || listed(address))
        return true;
    if (fixed_ || std::chrono::steady_clock::now() - read_at_ < min_refresh)
        return false;
    refresh();
    return listed(address);
}

void host_addresses::refresh()
{
    read_at_ = std::chrono::steady_clock::now();
    ifaddrs* first = nullptr;
    if (::getifaddrs(&first) != 0)
        return; // keep what was known; loopback is allowed in any case
    list_.clear();
    for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
        if (i->ifa_addr == nullptr)
            continue;
        if (i->ifa_addr->sa_family == AF_INET) {
            sockaddr_in in;
            std::memcpy(&in, i->ifa_addr, sizeof in);
            list_.push_back(from_v4(reinterpret_cast<const std::uint8_t*>(&in.sin_addr)));
        } else if (i->ifa_addr->sa_family == AF_INET6) {
            sockaddr_in6 in6;
            std::memcpy(&in6, i->ifa_addr, sizeof in6);
            std::array<std::uint8_t, 16> bytes;
            std::memcpy(bytes.data(), &in6.sin6_addr, bytes.size());
            list_.push_back(ip_address(bytes));
        }
    }
    ::freeifaddrs(first);
}

} // namespace verbena
