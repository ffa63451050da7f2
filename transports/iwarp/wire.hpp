// SPDX-License-Identifier: Apache-2.0
// The bytes of MPA, DDP and RDMAP.
#pragma once

#include <verbena/core/byte_order.hpp>
#include <verbena/core/result.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace verbena::iwarp::wire {

// All numbers on the wire are big-endian.
inline std::uint16_t load16(const std::byte* p) noexcept { return load_big_endian<std::uint16_t>(p); }
inline std::uint32_t load32(const std::byte* p) noexcept { return load_big_endian<std::uint32_t>(p); }
inline std::uint64_t load64(const std::byte* p) noexcept { return load_big_endian<std::uint64_t>(p); }
inline void store16(std::byte* p, std::uint16_t v) noexcept { store_big_endian(p, v); }
inline void store32(std::byte* p, std::uint32_t v) noexcept { store_big_endian(p, v); }
inline void store64(std::byte* p, std::uint64_t v) noexcept { store_big_endian(p, v); }

// --- MPA start-up frames: RFC 5044 7.1.1, RFC 6581 ---

inline constexpr std::size_t mpa_header_size = 20;
inline constexpr std::size_t max_mpa_private_data = 512; // RFC 5044 7.1.1, the IRD/ORD words included
inline constexpr std::size_t enhanced_size = 4;
inline constexpr std::uint16_t no_negotiation = 0x3fff; // RFC 6581 9.1

struct mpa_frame {
    bool reply = false;
    bool markers = false;
    bool crc = false;
    bool reject = false;
    bool enhanced = false;
    std::uint8_t revision = 2;
    std::uint16_t private_data_length = 0; ///< on the wire, the enhanced words included
};

/// The first two words of an enhanced frame's private data.
struct mpa_depths {
    bool peer_to_peer = false; ///< A
    bool rtr_send = false;     ///< B
    bool rtr_write = false;    ///< C
    bool rtr_read = false;     ///< D
    std::uint16_t ird = 0;
    std::uint16_t ord = 0;
};

/// The 20 bytes of a frame. Fails on a wrong key or an absurd private-data length.
result<mpa_frame> parse_mpa(std::span<const std::byte, mpa_header_size> bytes, bool reply);
void encode_mpa(const mpa_frame& frame, std::byte* to) noexcept;
mpa_depths parse_depths(std::span<const std::byte, enhanced_size> bytes) noexcept;
void encode_depths(const mpa_depths& d, std::byte* to) noexcept;

// --- FPDUs: RFC 5044 4.1 ---

inline constexpr std::size_t length_size = 2;
inline constexpr std::size_t crc_size = 4;
inline constexpr std::size_t max_trailer = 3 + crc_size;

/// Pad bytes that follow a ULPDU of `length` bytes (the length word is part of the alignment).
inline std::size_t pad_of(std::size_t ulpdu_length) noexcept
{
    return (0 - (ulpdu_length + length_size)) & 3;
}

/// CRC32C as MPA wants it: continue with the value of the previous part; start with 0.
std::uint32_t crc32c(std::uint32_t previous, const std::byte* data, std::size_t size) noexcept;

// --- DDP and RDMAP headers: RFC 5041 4, RFC 5040 4. Sizes include the length word ---

inline constexpr std::size_t tagged_size = 16;
inline constexpr std::size_t untagged_size = 20;
inline constexpr std::size_t read_request_size = 48;
inline constexpr std::size_t max_header = read_request_size;

enum : std::uint16_t {
    flag_tagged = 0x8000,
    flag_last = 0x4000,
    reserved_ddp = 0x3c00,
    ddp_version_mask = 0x0300,
    ddp_version = 0x0100,
    rdmap_version_mask = 0x00c0,
    rdmap_version = 0x0040,
    opcode_mask = 0x000f,
};

enum class opcode : std::uint8_t {
    write = 0,
    read_request = 1,
    read_response = 2,
    send = 3,
    send_invalidate = 4,
    send_solicited = 5,
    send_solicited_invalidate = 6,
    terminate = 7,
    immediate = 8, // RFC 7306 6
    immediate_solicited = 9,
};
/// Of an immediate data message. The 32 bits of verbs come first, as other implementations have them.
inline constexpr std::size_t immediate_size = 8;

inline constexpr std::uint32_t queue_send = 0;
inline constexpr std::uint32_t queue_read = 1;
inline constexpr std::uint32_t queue_terminate = 2;

struct tagged_header {
    opcode op;
    bool last;
    std::uint32_t stag;
    std::uint64_t offset;
};
struct untagged_header {
    opcode op;
    bool last;
    std::uint32_t invalidate;
    std::uint32_t queue;
    std::uint32_t sequence;
    std::uint32_t offset;
};
struct read_request {
    std::uint32_t sink_stag;
    std::uint64_t sink_offset;
    std::uint32_t size;
    std::uint32_t source_stag;
    std::uint64_t source_offset;
};

/// Both write header and length word for a ULPDU with `payload` bytes; return the header's size.
std::size_t encode(const tagged_header& h, std::size_t payload, std::byte* to) noexcept;
std::size_t encode(const untagged_header& h, std::size_t payload, std::byte* to) noexcept;
/// The 28 bytes behind the untagged header of a Read Request.
void encode(const read_request& r, std::byte* to) noexcept;

tagged_header parse_tagged(const std::byte* from) noexcept;
untagged_header parse_untagged(const std::byte* from) noexcept;
read_request parse_read_request(const std::byte* from) noexcept;

// --- Terminate: RFC 5040 4.8 ---

struct terminate_code {
    std::uint8_t layer; ///< 0 RDMAP, 1 DDP, 2 MPA
    std::uint8_t type;
    std::uint8_t code;
};
inline constexpr terminate_code local_catastrophic{0, 0, 0};
inline constexpr terminate_code remote_invalid_stag{0, 1, 0};
inline constexpr terminate_code remote_bounds{0, 1, 1};
inline constexpr terminate_code remote_access{0, 1, 2};
inline constexpr terminate_code remote_not_associated{0, 1, 3};
inline constexpr terminate_code remote_wrap{0, 1, 4};
inline constexpr terminate_code cannot_invalidate{0, 1, 9};
inline constexpr terminate_code rdmap_version_error{0, 2, 5};
inline constexpr terminate_code unexpected_opcode{0, 2, 6};
inline constexpr terminate_code stream_catastrophic{0, 2, 7};
inline constexpr terminate_code ddp_invalid_stag{1, 1, 0};
inline constexpr terminate_code ddp_bounds{1, 1, 1};
inline constexpr terminate_code ddp_not_associated{1, 1, 2};
inline constexpr terminate_code ddp_wrap{1, 1, 3};
inline constexpr terminate_code ddp_tagged_version{1, 1, 4};
inline constexpr terminate_code ddp_queue{1, 2, 1};
inline constexpr terminate_code ddp_no_buffer{1, 2, 2};
inline constexpr terminate_code ddp_sequence{1, 2, 3};
inline constexpr terminate_code ddp_offset{1, 2, 4};
inline constexpr terminate_code ddp_too_long{1, 2, 5};
inline constexpr terminate_code ddp_untagged_version{1, 2, 6};
inline constexpr terminate_code mpa_crc{2, 0, 2};
inline constexpr terminate_code mpa_length{2, 0, 3};
inline constexpr terminate_code insufficient_ird{2, 0, 6};

inline constexpr std::size_t max_terminate = 4 + 2 + 18 + 28;

/// Writes a Terminate's payload; `ddp_header` (without length word) may be empty.
std::size_t encode_terminate(const terminate_code& c, std::span<const std::byte> ddp_header,
                             std::uint16_t segment_length, std::byte* to) noexcept;
/// Linux siw before a fix swaps the nibbles on little-endian hosts; both readings are given.
struct terminate_reading {
    terminate_code as_specified;
    terminate_code as_siw;
};
terminate_reading parse_terminate(std::span<const std::byte> payload) noexcept;

} // namespace verbena::iwarp::wire
