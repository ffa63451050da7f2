// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rnbd/wire.hpp>

#include <verbena/core/byte_order.hpp>

#include <algorithm>
#include <cstring>

namespace verbena::rnbd {

namespace {

constexpr std::size_t name_field = 255;
// Of our own making, in bytes that are reserved.
constexpr std::size_t token_at = 8; // of session_info and its answer
constexpr std::size_t run_at = 46;  // of the answer to open
constexpr std::uint8_t cache_fua = 1u << 0;
constexpr std::uint8_t cache_write_back = 1u << 1;

template<class T>
T get(std::span<const std::byte> from, std::size_t at) noexcept
{
    return load_little_endian<T>(from.data() + at);
}
template<class T>
void put(std::span<std::byte> to, std::size_t at, T value) noexcept
{
    store_little_endian<T>(to.data() + at, value);
}
template<std::size_t Size>
std::array<std::byte, Size> begin(message m) noexcept
{
    std::array<std::byte, Size> to{};
    put<std::uint16_t>(to, 0, std::uint16_t(m));
    return to;
}
result<void> check(std::span<const std::byte> from, message m, std::size_t least) noexcept
{
    if (from.size() < least || get<std::uint16_t>(from, 0) != std::uint16_t(m))
        return error(std::errc::bad_message, "an RNBD message of another kind or too short", from.size());
    return {};
}

} // namespace

result<message> type_of(std::span<const std::byte> from) noexcept
{
    if (from.size() < 4)
        return error(std::errc::bad_message, "an RNBD message has 4 bytes at least", from.size());
    return message(get<std::uint16_t>(from, 0));
}

std::array<std::byte, session_info_size> encode_session_info(message m, std::uint8_t major,
                                                             std::uint64_t token) noexcept
{
    auto to = begin<session_info_size>(m);
    to[4] = std::byte(major);
    put<std::uint64_t>(to, token_at, token);
    return to;
}

std::uint64_t token_of_session_info(std::span<const std::byte> from) noexcept
{
    return from.size() < token_at + 8 ? 0 : get<std::uint64_t>(from, token_at);
}

result<std::uint8_t> decode_session_info(message m, std::span<const std::byte> from) noexcept
{
    if (const auto good = check(from, m, 5); !good)
        return good.error();
    return std::to_integer<std::uint8_t>(from[4]);
}

std::array<std::byte, open_size> encode(const open_request& m) noexcept
{
    auto to = begin<open_size>(message::open);
    to[4] = std::byte(m.mode);
    std::memcpy(to.data() + 6, m.device.data(), std::min(m.device.size(), max_device_name));
    return to;
}

result<open_request> decode_open(std::span<const std::byte> from)
{
    if (const auto good = check(from, message::open, 6 + name_field); !good)
        return good.error();
    if (from[4] > std::byte(access_mode::migration))
        return error(std::errc::invalid_argument, "access modes are ro, rw and migration",
                     std::to_integer<unsigned>(from[4]));
    const std::string_view field(reinterpret_cast<const char*>(from.data() + 6), name_field);
    const std::size_t end = field.find('\0');
    if (end == field.npos || end == 0)
        return error(std::errc::invalid_argument,
                     "a device's name has 1 to 254 bytes and a zero behind them");
    return open_request{access_mode(from[4]), std::string(field.substr(0, end))};
}

std::array<std::byte, open_response_size> encode(const open_response& m) noexcept
{
    auto to = begin<open_response_size>(message::open_response);
    put<std::uint32_t>(to, 4, m.device);
    put<std::uint64_t>(to, 8, m.sectors);
    put<std::uint32_t>(to, 16, m.max_sectors);
    put<std::uint32_t>(to, 20, m.max_write_zeroes_sectors);
    put<std::uint32_t>(to, 24, m.max_discard_sectors);
    put<std::uint32_t>(to, 28, m.discard_granularity);
    put<std::uint32_t>(to, 32, m.discard_alignment);
    put<std::uint16_t>(to, 36, m.physical_block_size);
    put<std::uint16_t>(to, 38, m.logical_block_size);
    put<std::uint16_t>(to, 40, m.max_segments);
    put<std::uint16_t>(to, 42, m.secure_discard);
    to[45] = std::byte((m.fua ? cache_fua : 0) | (m.write_back ? cache_write_back : 0));
    put<std::uint64_t>(to, run_at, m.run);
    return to;
}

result<open_response> decode_open_response(std::span<const std::byte> from) noexcept
{
    if (const auto good = check(from, message::open_response, 46); !good)
        return good.error();
    open_response m;
    m.device = get<std::uint32_t>(from, 4);
    m.sectors = get<std::uint64_t>(from, 8);
    m.max_sectors = get<std::uint32_t>(from, 16);
    m.max_write_zeroes_sectors = get<std::uint32_t>(from, 20);
    m.max_discard_sectors = get<std::uint32_t>(from, 24);
    m.discard_granularity = get<std::uint32_t>(from, 28);
    m.discard_alignment = get<std::uint32_t>(from, 32);
    m.physical_block_size = get<std::uint16_t>(from, 36);
    m.logical_block_size = get<std::uint16_t>(from, 38);
    m.max_segments = get<std::uint16_t>(from, 40);
    m.secure_discard = get<std::uint16_t>(from, 42) != 0;
    const auto cache = std::to_integer<std::uint8_t>(from[45]);
    m.fua = (cache & cache_fua) != 0;
    m.write_back = (cache & cache_write_back) != 0;
    m.run = from.size() < run_at + 8 ? 0 : get<std::uint64_t>(from, run_at);
    if (m.logical_block_size == 0)
        return error(std::errc::invalid_argument, "a device whose blocks have 0 bytes");
    return m;
}

std::array<std::byte, close_size> encode_close(std::uint32_t device) noexcept
{
    auto to = begin<close_size>(message::close);
    put<std::uint32_t>(to, 4, device);
    return to;
}

result<std::uint32_t> decode_close(std::span<const std::byte> from) noexcept
{
    if (const auto good = check(from, message::close, close_size); !good)
        return good.error();
    return get<std::uint32_t>(from, 4);
}

std::array<std::byte, io_size> encode(const io_request& m) noexcept
{
    auto to = begin<io_size>(message::io);
    put<std::uint32_t>(to, 4, m.device);
    put<std::uint64_t>(to, 8, m.sector);
    put<std::uint32_t>(to, 16, std::uint32_t(m.operation) | m.flags);
    put<std::uint32_t>(to, 20, m.bytes);
    put<std::uint16_t>(to, 24, m.priority);
    return to;
}

result<io_request> decode_io(std::span<const std::byte> from) noexcept
{
    if (const auto good = check(from, message::io, least_io_size); !good)
        return good.error();
    io_request m;
    m.device = get<std::uint32_t>(from, 4);
    m.sector = get<std::uint64_t>(from, 8);
    const auto word = get<std::uint32_t>(from, 16);
    m.operation = operation(word & 0xff);
    m.flags = word & ~std::uint32_t(0xff);
    m.bytes = get<std::uint32_t>(from, 20);
    m.priority = from.size() >= 26 ? get<std::uint16_t>(from, 24) : std::uint16_t(0);
    return m;
}

} // namespace verbena::rnbd
