// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/wire/portmap.hpp>

#include <charconv>

namespace verbena::nfs::portmap {
namespace {

/// Cuts the last decimal octet and the dot before it off `text`; -1 if there is none.
int take_last_octet(std::string_view& text) noexcept
{
    const std::size_t dot = text.rfind('.');
    if (dot == std::string_view::npos)
        return -1;
    const std::string_view digits = text.substr(dot + 1);
    text = text.substr(0, dot);
    std::uint8_t octet = 0;
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), octet);
    if (code != std::errc() || end != digits.data() + digits.size())
        return -1;
    return octet;
}

} // namespace

void encode(xdr::encoder& out, const mapping& args) noexcept
{
    out.u32(args.program);
    out.u32(args.version);
    out.u32(args.protocol);
    out.u32(args.port);
}

void decode(xdr::decoder& in, mapping& args) noexcept
{
    args.program = in.u32();
    args.version = in.u32();
    args.protocol = in.u32();
    args.port = in.u32();
}

void encode(xdr::encoder& out, const rpcb& args) noexcept
{
    out.u32(args.program);
    out.u32(args.version);
    out.string(args.netid);
    out.string(args.addr);
    out.string(args.owner);
}

void decode(xdr::decoder& in, rpcb& args) noexcept
{
    args.program = in.u32();
    args.version = in.u32();
    args.netid = in.string(max_string);
    args.addr = in.string(max_string);
    args.owner = in.string(max_string);
}

bool next(xdr::decoder& in, rpcb& entry) noexcept
{
    if (!in.boolean())
        return false;
    decode(in, entry);
    return in.ok();
}

bool next(xdr::decoder& in, mapping& entry) noexcept
{
    if (!in.boolean())
        return false;
    decode(in, entry);
    return in.ok();
}

std::string universal_address(std::string_view host, std::uint16_t port)
{
    return std::string(host) + "." + std::to_string(port >> 8) + "." + std::to_string(port & 255);
}

result<std::uint16_t> port_of(std::string_view universal_address) noexcept
{
    const int low = take_last_octet(universal_address);
    const int high = take_last_octet(universal_address);
    if (low < 0 || high < 0)
        return error(std::errc::bad_message, "universal address does not end in a port");
    return static_cast<std::uint16_t>(high << 8 | low);
}

} // namespace verbena::nfs::portmap
