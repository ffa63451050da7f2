// SPDX-License-Identifier: Apache-2.0
#include "wire.hpp"

#include <isa-l/crc.h>
#include <string_view>

namespace verbena::iwarp::wire {
namespace {

constexpr std::string_view request_key = "MPA ID Req Frame";
constexpr std::string_view reply_key = "MPA ID Rep Frame";

constexpr std::uint8_t flag_m = 0x80;
constexpr std::uint8_t flag_c = 0x40;
constexpr std::uint8_t flag_r = 0x20;
constexpr std::uint8_t flag_s = 0x10;

std::uint16_t control(bool tagged, bool last, opcode op) noexcept
{
    return static_cast<std::uint16_t>((tagged ? flag_tagged : 0) | (last ? flag_last : 0) | ddp_version |
                                      rdmap_version | static_cast<unsigned>(op));
}

} // namespace

result<mpa_frame> parse_mpa(std::span<const std::byte, mpa_header_size> bytes, bool reply)
{
    const std::string_view key = reply ? reply_key : request_key;
    if (std::memcmp(bytes.data(), key.data(), key.size()) != 0)
        return error(std::errc::protocol_error, "MPA key (RFC 5044 7.1.1)");
    const auto flags = std::to_integer<std::uint8_t>(bytes[16]);
    mpa_frame f;
    f.reply = reply;
    f.markers = (flags & flag_m) != 0;
    f.crc = (flags & flag_c) != 0;
    f.reject = (flags & flag_r) != 0;
    f.revision = std::to_integer<std::uint8_t>(bytes[17]);
    f.enhanced = f.revision >= 2 && (flags & flag_s) != 0;
    f.private_data_length = load16(&bytes[18]);
    if (f.private_data_length > max_mpa_private_data)
        return error(std::errc::protocol_error, "MPA private data longer than 512 octets (RFC 5044 7.1.1)",
                     f.private_data_length);
    if (f.enhanced && f.private_data_length < enhanced_size)
        return error(std::errc::protocol_error, "enhanced MPA frame without IRD and ORD (RFC 6581 6)");
    return f;
}

void encode_mpa(const mpa_frame& f, std::byte* to) noexcept
{
    std::memcpy(to, (f.reply ? reply_key : request_key).data(), 16);
    to[16] = std::byte((f.markers ? flag_m : 0) | (f.crc ? flag_c : 0) | (f.reject ? flag_r : 0) |
                       (f.enhanced ? flag_s : 0));
    to[17] = std::byte(f.revision);
    store16(to + 18, f.private_data_length);
}

mpa_depths parse_depths(std::span<const std::byte, enhanced_size> bytes) noexcept
{
    const std::uint16_t first = load16(&bytes[0]);
    const std::uint16_t second = load16(&bytes[2]);
    mpa_depths d;
    d.peer_to_peer = (first & 0x8000) != 0;
    d.rtr_send = (first & 0x4000) != 0;
    d.ird = first & 0x3fff;
    d.rtr_write = (second & 0x8000) != 0;
    d.rtr_read = (second & 0x4000) != 0;
    d.ord = second & 0x3fff;
    return d;
}

void encode_depths(const mpa_depths& d, std::byte* to) noexcept
{
    store16(to,
            static_cast<std::uint16_t>((d.peer_to_peer ? 0x8000 : 0) | (d.rtr_send ? 0x4000 : 0) | d.ird));
    store16(to + 2,
            static_cast<std::uint16_t>((d.rtr_write ? 0x8000 : 0) | (d.rtr_read ? 0x4000 : 0) | d.ord));
}

std::uint32_t crc32c(std::uint32_t previous, const std::byte* data, std::size_t size) noexcept
{
    // isa-l takes and returns the raw register; its length is an int.
    std::uint32_t crc = ~previous;
    while (size > 0) {
        const std::size_t part = size < (1u << 30) ? size : (1u << 30);
        crc = crc32_iscsi(reinterpret_cast<unsigned char*>(const_cast<std::byte*>(data)),
                          static_cast<int>(part), crc);
        data += part;
        size -= part;
    }
    return ~crc;
}

std::size_t encode(const tagged_header& h, std::size_t payload, std::byte* to) noexcept
{
    store16(to, static_cast<std::uint16_t>(tagged_size - length_size + payload));
    store16(to + 2, control(true, h.last, h.op));
    store32(to + 4, h.stag);
    store64(to + 8, h.offset);
    return tagged_size;
}

std::size_t encode(const untagged_header& h, std::size_t payload, std::byte* to) noexcept
{
    store16(to, static_cast<std::uint16_t>(untagged_size - length_size + payload));
    store16(to + 2, control(false, h.last, h.op));
    store32(to + 4, h.invalidate);
    store32(to + 8, h.queue);
    store32(to + 12, h.sequence);
    store32(to + 16, h.offset);
    return untagged_size;
}

void encode(const read_request& r, std::byte* to) noexcept
{
    store32(to, r.sink_stag);
    store64(to + 4, r.sink_offset);
    store32(to + 12, r.size);
    store32(to + 16, r.source_stag);
    store64(to + 20, r.source_offset);
}

tagged_header parse_tagged(const std::byte* from) noexcept
{
    const std::uint16_t c = load16(from + 2);
    return {opcode(c & opcode_mask), (c & flag_last) != 0, load32(from + 4), load64(from + 8)};
}

untagged_header parse_untagged(const std::byte* from) noexcept
{
    const std::uint16_t c = load16(from + 2);
    return {opcode(c & opcode_mask), (c & flag_last) != 0, load32(from + 4),
            load32(from + 8),        load32(from + 12),    load32(from + 16)};
}

read_request parse_read_request(const std::byte* from) noexcept
{
    return {load32(from), load64(from + 4), load32(from + 12), load32(from + 16), load64(from + 20)};
}

std::size_t encode_terminate(const terminate_code& c, std::span<const std::byte> ddp_header,
                             std::uint16_t segment_length, std::byte* to) noexcept
{
    to[0] = std::byte(c.layer << 4 | c.type);
    to[1] = std::byte(c.code);
    to[2] = std::byte(ddp_header.empty() ? 0 : 0xc0); // M and D: segment length and DDP header follow
    to[3] = std::byte(0);
    if (ddp_header.empty())
        return 4;
    store16(to + 4, segment_length);
    std::memcpy(to + 6, ddp_header.data(), ddp_header.size());
    return 6 + ddp_header.size();
}

terminate_reading parse_terminate(std::span<const std::byte> payload) noexcept
{
    terminate_reading r{};
    if (payload.size() < 2)
        return r;
    const auto first = std::to_integer<std::uint8_t>(payload[0]);
    const auto code = std::to_integer<std::uint8_t>(payload[1]);
    r.as_specified = {static_cast<std::uint8_t>(first >> 4), static_cast<std::uint8_t>(first & 15), code};
    r.as_siw = {static_cast<std::uint8_t>(first & 15), static_cast<std::uint8_t>(first >> 4), code};
    return r;
}

} // namespace verbena::iwarp::wire
