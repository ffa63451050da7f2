// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rtrs/wire.hpp>

#include <verbena/core/byte_order.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace verbena::rtrs {

namespace {

constexpr std::uint32_t flag_new_keys = 1u << 1;
constexpr std::uint16_t flag_invalidate = 1u << 0;
constexpr std::size_t name_field = 255;

std::uint16_t u16(std::span<const std::byte> from, std::size_t at) noexcept
{
    return load_little_endian<std::uint16_t>(from.data() + at);
}
std::uint32_t u32(std::span<const std::byte> from, std::size_t at) noexcept
{
    return load_little_endian<std::uint32_t>(from.data() + at);
}
template<class T>
void put(std::span<std::byte> to, std::size_t at, T value) noexcept
{
    store_little_endian<T>(to.data() + at, value);
}

void put(std::span<std::byte> to, std::size_t at, const descriptor& d) noexcept
{
    put<std::uint64_t>(to, at, d.address);
    put<std::uint32_t>(to, at + 8, d.key);
    put<std::uint32_t>(to, at + 12, d.length);
}
descriptor descriptor_at(std::span<const std::byte> from, std::size_t at) noexcept
{
    return {load_little_endian<std::uint64_t>(from.data() + at), u32(from, at + 8), u32(from, at + 12)};
}

bool is(std::span<const std::byte> from, message type, std::size_t least) noexcept
{
    return from.size() >= least && u16(from, 0) == std::uint16_t(type);
}

// What requests and answers of a connection begin with, from `at` on.
result<void> check_protocol(std::span<const std::byte> from, std::size_t at) noexcept
{
    if (from.size() < connect_message_size)
        return error(std::errc::bad_message, "private data of an RTRS connection have 56 bytes", from.size());
    if (u16(from, at) != magic)
        return error(std::errc::bad_message, "private data that are not RTRS's", u16(from, at));
    if (u16(from, at + 2) >> 8 != protocol_version >> 8)
        return error(std::errc::protocol_not_supported, "RTRS of another major version", u16(from, at + 2));
    return {};
}

} // namespace

std::array<std::byte, connect_message_size> encode(const connect_request& m) noexcept
{
    std::array<std::byte, connect_message_size> to{};
    put<std::uint16_t>(to, 2, magic);
    put<std::uint16_t>(to, 4, protocol_version);
    put<std::uint16_t>(to, 6, m.connection);
    put<std::uint16_t>(to, 8, m.connections);
    put<std::uint16_t>(to, 10, m.reconnects);
    std::ranges::copy(m.path.bytes, to.begin() + 12);
    std::ranges::copy(m.session.bytes, to.begin() + 28);
    to[44] = std::byte(m.first);
    return to;
}

result<connect_request> decode_connect_request(std::span<const std::byte> from) noexcept
{
    if (const auto good = check_protocol(from, 2); !good)
        return good.error();
    connect_request m;
    m.connection = u16(from, 6);
    m.connections = u16(from, 8);
    m.reconnects = u16(from, 10);
    std::copy_n(from.begin() + 12, m.path.bytes.size(), m.path.bytes.begin());
    std::copy_n(from.begin() + 28, m.session.bytes.size(), m.session.bytes.begin());
    m.first = (from[44] & std::byte(1)) != std::byte(0);
    if (m.connections == 0 || m.connections > max_connections || m.connection >= m.connections)
        return error(std::errc::invalid_argument, "an RTRS path has 1 to 4096 connections, numbered from 0",
                     m.connection);
    return m;
}

std::array<std::byte, connect_message_size> encode(const connect_reply& m) noexcept
{
    std::array<std::byte, connect_message_size> to{};
    put<std::uint16_t>(to, 0, magic);
    put<std::uint16_t>(to, 2, protocol_version);
    put<std::uint16_t>(to, 4, static_cast<std::uint16_t>(-m.error)); // as the kernel has it: negative
    put<std::uint16_t>(to, 6, m.queue_depth);
    put<std::uint32_t>(to, 8, m.max_io_size);
    put<std::uint32_t>(to, 12, m.max_header_size);
    put<std::uint32_t>(to, 16, m.new_keys ? flag_new_keys : 0);
    return to;
}

result<connect_reply> decode_connect_reply(std::span<const std::byte> from) noexcept
{
    if (const auto good = check_protocol(from, 0); !good)
        return good.error();
    connect_reply m;
    m.error = static_cast<std::uint16_t>(-u16(from, 4));
    if (m.error != 0)
        return m;
    m.queue_depth = u16(from, 6);
    m.max_io_size = u32(from, 8);
    m.max_header_size = u32(from, 12);
    m.new_keys = (u32(from, 16) & flag_new_keys) != 0;
    const std::uint64_t chunk = std::uint64_t(m.max_io_size) + m.max_header_size;
    if (m.queue_depth == 0 || m.max_io_size == 0 || m.max_header_size < read_header_size ||
        chunk > 1u << 28 || !request_layout(m.queue_depth).fits(static_cast<std::uint32_t>(chunk)))
        return error(std::errc::invalid_argument, "queue depth and chunk size of an RTRS server", chunk);
    return m;
}

std::array<std::byte, info_request_size> encode_info_request(std::string_view name) noexcept
{
    std::array<std::byte, info_request_size> to{};
    put<std::uint16_t>(to, 0, std::uint16_t(message::info_request));
    std::memcpy(to.data() + 2, name.data(), std::min(name.size(), max_session_name));
    return to;
}

result<std::string> decode_info_request(std::span<const std::byte> from)
{
    if (!is(from, message::info_request, 2 + name_field))
        return error(std::errc::bad_message, "no INFO_REQ of RTRS", from.size());
    const std::string_view field(reinterpret_cast<const char*>(from.data() + 2), name_field);
    const std::string_view name = field.substr(0, field.find('\0'));
    if (name.size() == name_field || name.empty() || name.find_first_of("/.") != name.npos)
        return error(std::errc::invalid_argument,
                     "a session's name has 1 to 254 bytes, none of which is '/' or '.'", name.size());
    return std::string(name);
}

void encode_info_response(std::span<std::byte> to, std::span<const descriptor> chunks) noexcept
{
    std::fill_n(to.begin(), 8, std::byte(0));
    put<std::uint16_t>(to, 0, std::uint16_t(message::info_response));
    put<std::uint16_t>(to, 2, static_cast<std::uint16_t>(chunks.size()));
    for (std::size_t i = 0; i < chunks.size(); ++i)
        put(to, 8 + i * descriptor_size, chunks[i]);
}

result<std::size_t> decode_info_response(std::span<const std::byte> from, std::span<descriptor> into) noexcept
{
    if (!is(from, message::info_response, 8))
        return error(std::errc::bad_message, "no INFO_RSP of RTRS", from.size());
    const std::size_t count = u16(from, 2);
    if (count > into.size())
        return error(std::errc::argument_list_too_long, "descriptors of an INFO_RSP", count);
    if (from.size() < info_response_size(count))
        return error(std::errc::bad_message, "an INFO_RSP that ends early", from.size());
    for (std::size_t i = 0; i < count; ++i)
        into[i] = descriptor_at(from, 8 + i * descriptor_size);
    return count;
}

std::size_t encode(std::span<std::byte> to, const io_header& m) noexcept
{
    if (m.is_write) {
        put<std::uint16_t>(to, 0, std::uint16_t(message::write));
        put<std::uint16_t>(to, 2, m.user_size);
        return write_header_size;
    }
    put<std::uint16_t>(to, 0, std::uint16_t(message::read));
    put<std::uint16_t>(to, 2, m.user_size);
    put<std::uint16_t>(to, 4, m.invalidate ? flag_invalidate : 0);
    put<std::uint16_t>(to, 6, m.sink ? 1 : 0);
    if (!m.sink)
        return 8;
    put(to, 8, *m.sink);
    return read_header_size;
}

result<io_header> decode_io_header(std::span<const std::byte> from) noexcept
{
    io_header m;
    if (is(from, message::write, write_header_size)) {
        m.is_write = true;
        m.user_size = u16(from, 2);
        return m;
    }
    if (!is(from, message::read, 8))
        return error(std::errc::bad_message, "neither a read nor a write of RTRS", from.size());
    m.user_size = u16(from, 2);
    const std::uint16_t sinks = u16(from, 6);
    if (sinks == 0)
        return m;
    if (sinks > 1)
        return error(std::errc::invalid_argument, "a read of RTRS has one sink", sinks);
    if (from.size() < read_header_size)
        return error(std::errc::bad_message, "a read of RTRS that ends early", from.size());
    m.invalidate = (u16(from, 4) & flag_invalidate) != 0;
    m.sink = descriptor_at(from, 8);
    return m;
}

std::array<std::byte, new_key_size> encode(const new_key& m) noexcept
{
    std::array<std::byte, new_key_size> to{};
    put<std::uint16_t>(to, 0, std::uint16_t(message::new_key));
    put<std::uint16_t>(to, 2, m.chunk);
    put<std::uint32_t>(to, 4, m.key);
    return to;
}

result<new_key> decode_new_key(std::span<const std::byte> from) noexcept
{
    if (!is(from, message::new_key, new_key_size))
        return error(std::errc::bad_message, "no RKEY_RSP of RTRS", from.size());
    return new_key{u16(from, 2), u32(from, 4)};
}

std::uint32_t encode(const response& m, bool invalidated) noexcept
{
    const std::uint32_t code = m.error > max_response_error ? EIO : m.error;
    return make_immediate(invalidated ? immediate_type::response_invalidated : immediate_type::response,
                          code << 19 | (m.chunk & 0x7ffff));
}

response decode_response(std::uint32_t immediate) noexcept
{
    return {immediate & 0x7ffff, static_cast<std::uint16_t>(immediate >> 19 & max_response_error)};
}

} // namespace verbena::rtrs
