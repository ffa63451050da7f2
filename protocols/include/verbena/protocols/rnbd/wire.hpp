// SPDX-License-Identifier: Apache-2.0
// RNBD on the wire: block devices over RTRS.
//
// The protocol is the kernel's (drivers/block/rnbd, rnbd-proto.h); docs/internals/rnbd.md. Fields are little-endian. Kernels leave
// reserved bytes, and the end of names, as they find them: decoders ignore them.
#pragma once

#include <verbena/core/result.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::rnbd {

/// Of RNBD: a client and a server of one major version understand each other.
inline constexpr std::uint8_t protocol_major = 2;
/// Bytes.
inline constexpr std::uint32_t sector_size =
    512; ///< of all numbers of sectors, whatever a device's blocks are

/// What a message is. Each begins with this number.
enum class message : std::uint16_t {
    session_info = 0,
    session_info_response = 1,
    open = 2,
    open_response = 3,
    io = 4,
    close = 5,
};
/// Errors: EBADMSG (too short).
result<message> type_of(std::span<const std::byte> from) noexcept;

/// Bytes of the message and of its answer.
inline constexpr std::size_t session_info_size = 36;
/// What both ends speak: the smaller major version of both. `m` is session_info or session_info_response. `token` is of our own making: a
/// client draws it at random, not 0, and a server that repeats it in its answer tells open_response::run. Other servers leave
/// old memory in these bytes, or zeros.
std::array<std::byte, session_info_size> encode_session_info(message m, std::uint8_t major,
                                                             std::uint64_t token = 0) noexcept;
/// Yields the major version. Errors: EBADMSG.
result<std::uint8_t> decode_session_info(message m, std::span<const std::byte> from) noexcept;
/// The token of a session_info or its answer; 0 if that is too short to have one.
std::uint64_t token_of_session_info(std::span<const std::byte> from) noexcept;

/// What a client wants to do with a device.
enum class access_mode : std::uint8_t {
    read_only = 0,
    read_write = 1, ///< one client at a time
    migration = 2,  ///< two, while a virtual machine moves from one to the other
};

/// Bytes.
inline constexpr std::size_t max_device_name = 254;
/// Bytes of the message.
inline constexpr std::size_t open_size = 264;
/// Opens a device of the server's by its name.
struct open_request {
    access_mode mode = access_mode::read_write; ///< the server may refuse it
    std::string device;                         ///< 1 to max_device_name bytes
};
/// The message, to be sent as RTRS user data.
std::array<std::byte, open_size> encode(const open_request& m) noexcept;
/// Errors: EBADMSG (too short), EINVAL (no such mode, a name that does not end or is empty).
result<open_request> decode_open(std::span<const std::byte> from);

/// Bytes of the message.
inline constexpr std::size_t open_response_size = 56;
/// What the device is like: all that the client asks of it stays within this.
struct open_response {
    std::uint32_t device = 0;                        ///< its number in the session
    std::uint64_t sectors = 0;                       ///< its size, of sector_size bytes
    std::uint32_t max_sectors = 0;                   ///< of a request
    std::uint32_t max_write_zeroes_sectors = 0;      ///< 0: it has no such operation
    std::uint32_t max_discard_sectors = 0;           ///< 0: likewise
    std::uint32_t discard_granularity = 0;           ///< bytes
    std::uint32_t discard_alignment = 0;             ///< bytes
    std::uint16_t physical_block_size = sector_size; ///< bytes; what a write is best a multiple of
    std::uint16_t logical_block_size = sector_size;  ///< bytes; what every request is a multiple of
    std::uint16_t max_segments = 0;                  ///< of a request's memory; of the Linux block layer
    bool secure_discard = false;                     ///< discard has a form that leaves no trace of the data
    bool fua = false;                                ///< flag_fua is honoured
    bool write_back = false;                         ///< the device has a cache that a flush empties
    /// storage::block_properties::run, of our own making: means nothing unless the server repeated the token of session_info.
    std::uint64_t run = 0;
    bool operator==(const open_response&) const = default;
};
/// The message, to be sent as the answer's data.
std::array<std::byte, open_response_size> encode(const open_response& m) noexcept;
/// Errors: EBADMSG (too short), EINVAL (a block size of 0).
result<open_response> decode_open_response(std::span<const std::byte> from) noexcept;

/// Bytes of the message.
inline constexpr std::size_t close_size = 8;
/// The message: the session uses the device no more.
std::array<std::byte, close_size> encode_close(std::uint32_t device) noexcept;
/// Yields the device's number. Errors: EBADMSG.
result<std::uint32_t> decode_close(std::span<const std::byte> from) noexcept;

/// What an io_request asks for.
enum class operation : std::uint8_t {
    read = 0,
    write = 1,
    flush = 2,
    discard = 3,
    secure_erase = 4,
    write_zeroes = 5, ///< clients since protocol 2.1, where open_response::max_write_zeroes_sectors is not 0
};
/// @name Flags of io_request::flags
/// As the Linux block layer has them; others are to be ignored.
/// @{
inline constexpr std::uint32_t flag_sync = 1u << 8;
inline constexpr std::uint32_t flag_fua = 1u << 9;
inline constexpr std::uint32_t flag_preflush = 1u << 10; ///< of clients since protocol 2.1
inline constexpr std::uint32_t flag_no_unmap = 1u
                                               << 11; ///< of write_zeroes, since protocol 2.2: keep the space
/// @}

/// Bytes of an io_request as this end sends it: as kernels of 64 bits do, whose last bytes say nothing.
inline constexpr std::size_t io_size = 32;
/// Bytes that an io_request must have.
inline constexpr std::size_t least_io_size = 24; ///< without the priority
/// What a client asks of a device: sectors to be read, written, flushed, discarded or zeroed.
struct io_request {
    std::uint32_t device = 0;                          ///< its number in the session
    std::uint64_t sector = 0;                          ///< the first
    rnbd::operation operation = rnbd::operation::read; ///< may be one that is not listed
    std::uint32_t flags = 0;                           ///< flag_sync and so on
    std::uint32_t bytes = 0;                           ///< that are read, written, discarded, zeroed
    std::uint16_t priority = 0;                        ///< of the Linux block layer; this end sends 0
    bool operator==(const io_request&) const = default;
};
/// The message, which goes in front of a request's data.
std::array<std::byte, io_size> encode(const io_request& m) noexcept;
/// Errors: EBADMSG.
result<io_request> decode_io(std::span<const std::byte> from) noexcept;

} // namespace verbena::rnbd

#pragma GCC visibility pop
