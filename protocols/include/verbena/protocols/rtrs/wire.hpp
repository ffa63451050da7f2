// SPDX-License-Identifier: Apache-2.0
// RTRS on the wire: what connection requests carry, messages, and the 32 bits of an immediate.
//
// The protocol is the kernel's (drivers/infiniband/ulp/rtrs, rtrs-pri.h); docs/internals/rtrs.md. Fields are little-endian, and the
// immediate is a number as verbs have it. Decoders ignore reserved bytes, which kernels leave as they find them.
#pragma once

#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/result.hpp>

#include <array>
#include <bit>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::rtrs {

/// What private data of RTRS begin with.
inline constexpr std::uint16_t magic = 0x1BBD;
/// What this end speaks.
inline constexpr std::uint16_t protocol_version = 0x0200; ///< of which the high byte must agree
inline constexpr std::uint16_t default_port = 1234;       ///< of TCP and of the RDMA connection manager
/// Of connection 0, which carries service messages, beside those of requests.
inline constexpr std::uint32_t service_queue_depth = 512;
/// Paths of a session; as the kernel's client has it.
inline constexpr std::uint32_t max_paths = 128;
/// Queue pairs of a path.
inline constexpr std::uint16_t max_connections = 4096; ///< of a path
inline constexpr std::uint32_t min_chunk_size = 8192;  ///< bytes
/// How often each end of a path shows that it lives.
inline constexpr duration heartbeat_interval = std::chrono::seconds(5);
/// Heartbeats without an answer that a path survives.
inline constexpr unsigned heartbeat_misses = 5; ///< one more, and the path is dead

/// What tells sessions and paths apart.
struct uuid {
    std::array<std::byte, 16> bytes{}; ///< in the order of the wire
    auto operator<=>(const uuid&) const = default;
};

// --- Private data of connection requests and their answers -----------------------------------------

/// Bytes of a request's and an answer's private data.
inline constexpr std::size_t connect_message_size = 56;

/// What the client says when it makes a queue pair of a path.
struct connect_request {
    std::uint16_t connection = 0;  ///< its number within the path
    std::uint16_t connections = 0; ///< of the path
    std::uint16_t reconnects = 0;  ///< of the path so far
    uuid path;                     ///< kept when the path is made again
    uuid session;                  ///< the same on all its paths
    bool first = false; ///< the session may begin with this path; false: it is added to one that lives

    bool operator==(const connect_request&) const = default;
};
/// The private data, to be given to context::connect().
std::array<std::byte, connect_message_size> encode(const connect_request& m) noexcept;
/// Bytes beyond the message are the connection manager's. Errors: EBADMSG (too short, not RTRS), EPROTONOSUPPORT (another major
/// version), EINVAL (a number out of range).
result<connect_request> decode_connect_request(std::span<const std::byte> from) noexcept;

/// What the server answers.
struct connect_reply {
    std::uint16_t error = 0;           ///< an errno; 0: accepted
    std::uint16_t queue_depth = 0;     ///< requests that the session may have under way
    std::uint32_t max_io_size = 0;     ///< bytes of a request's data
    std::uint32_t max_header_size = 0; ///< chunks are so much larger than max_io_size
    bool new_keys = false;             ///< each answer brings the key with which its chunk is written next

    bool operator==(const connect_reply&) const = default;
};
/// The private data of accept() or reject().
std::array<std::byte, connect_message_size> encode(const connect_reply& m) noexcept;
/// Errors: as decode_connect_request(), and EINVAL for sizes that are none.
result<connect_reply> decode_connect_reply(std::span<const std::byte> from) noexcept;

// --- Messages --------------------------------------------------------------------------------------

/// What a message of a path is, beside those that are immediates alone. Each begins with this number.
enum class message : std::uint16_t { info_request = 0, info_response = 1, write = 2, read = 3, new_key = 4 };

/// Memory of the one side that the other may write.
struct descriptor {
    std::uint64_t address = 0; ///< where the memory begins, as the peer addresses it
    std::uint32_t key = 0;     ///< of a grant
    std::uint32_t length = 0;  ///< bytes
    bool operator==(const descriptor&) const = default;
};
/// Bytes of a descriptor in a message.
inline constexpr std::size_t descriptor_size = 16;

/// A session's name has up to 254 bytes, none of which is '/' or '.'.
inline constexpr std::size_t max_session_name = 254;
/// Bytes of the message, whatever the name's length.
inline constexpr std::size_t info_request_size = 272;
/// `name` is at most max_session_name long.
std::array<std::byte, info_request_size> encode_info_request(std::string_view name) noexcept;
/// The name. Errors: EBADMSG (not this message), EINVAL (a name that can't be one).
result<std::string> decode_info_request(std::span<const std::byte> from);

/// Bytes of an answer that has so many descriptors.
constexpr std::size_t info_response_size(std::size_t descriptors) noexcept
{
    return 8 + descriptors * descriptor_size;
}
/// Writes info_response_size() bytes to `to`, which has room for them; at most 65535 descriptors.
void encode_info_response(std::span<std::byte> to, std::span<const descriptor> chunks) noexcept;
/// Reads one descriptor after the other. Errors: EBADMSG (not this message, or it ends early), E2BIG (more than `into` takes).
/// Yields how many there are.
result<std::size_t> decode_info_response(std::span<const std::byte> from,
                                         std::span<descriptor> into) noexcept;

/// Says how the bytes before it in the chunk are to be taken: data, the user's header, this.
struct io_header {
    bool is_write = false;       ///< the client's data are in the chunk; false: the client waits for data
    std::uint16_t user_size = 0; ///< bytes of the user's header
    /// Of a read: the client wants `sink`'s key invalidated by the answer.
    bool invalidate = false;
    std::optional<descriptor> sink; ///< of a read: where its data go; without, no data are wanted
    bool operator==(const io_header&) const = default;
};
/// Of a write, and of a read with a sink. A read without ends after 8 bytes.
inline constexpr std::size_t write_header_size = 4;
/// Bytes of the header of a read with a sink.
inline constexpr std::size_t read_header_size = 8 + descriptor_size;
/// Returns how many bytes it wrote, at most read_header_size, for which `to` has room.
std::size_t encode(std::span<std::byte> to, const io_header& m) noexcept;
/// Errors: EBADMSG (neither a read nor a write, or it ends early), EINVAL (more than one sink).
result<io_header> decode_io_header(std::span<const std::byte> from) noexcept;

/// Bytes of the message.
inline constexpr std::size_t new_key_size = 8;
/// The key by which a chunk is written next, where keys work once (connect_reply::new_keys).
struct new_key {
    std::uint16_t chunk = 0; ///< its number
    std::uint32_t key = 0;   ///< the key
    bool operator==(const new_key&) const = default;
};
/// The message, which goes with the answer that frees the chunk.
std::array<std::byte, new_key_size> encode(const new_key& m) noexcept;
/// Errors: EBADMSG.
result<new_key> decode_new_key(std::span<const std::byte> from) noexcept;

// --- Immediates ------------------------------------------------------------------------------------

/// What 32 bits beside a message mean: their upper four bits.
enum class immediate_type : std::uint8_t {
    request = 0,
    response = 1,
    response_invalidated = 2, ///< the read's sink has been invalidated by a Send before
    heartbeat = 8,
    heartbeat_reply = 9,
};

/// Puts the two parts together; of `payload` the lower 28 bits.
constexpr std::uint32_t make_immediate(immediate_type type, std::uint32_t payload = 0) noexcept
{
    return std::uint32_t(type) << 28 | (payload & 0x0fffffff);
}
/// The upper four bits; may be a type that is not listed.
constexpr immediate_type type_of(std::uint32_t immediate) noexcept { return immediate_type(immediate >> 28); }

/// How the 28 bits of a request are shared by the chunk's number and the place of the io_header in it.
class request_layout {
public:
    /// `queue_depth` is 1 to 65535.
    constexpr explicit request_layout(std::uint32_t queue_depth) noexcept
        : offset_bits_(28 - static_cast<unsigned>(std::bit_width(queue_depth - 1)))
    {
    }
    /// The chunk's number in a request's immediate.
    constexpr std::uint32_t chunk(std::uint32_t immediate) const noexcept
    {
        return offset_bits_ == 28 ? 0 : (immediate & 0x0fffffff) >> offset_bits_;
    }
    /// Where in the chunk the io_header begins.
    constexpr std::uint32_t offset(std::uint32_t immediate) const noexcept
    {
        return immediate & ((std::uint32_t(1) << offset_bits_) - 1);
    }
    /// The immediate of a request in chunk `chunk` whose header begins at `offset`.
    constexpr std::uint32_t immediate(std::uint32_t chunk, std::uint32_t offset) const noexcept
    {
        return make_immediate(immediate_type::request,
                              (offset_bits_ == 28 ? 0 : chunk << offset_bits_) | offset);
    }
    /// Whether a session with such chunks can be spoken of.
    constexpr bool fits(std::uint32_t chunk_size) const noexcept
    {
        return static_cast<unsigned>(std::bit_width(chunk_size - 1)) <= offset_bits_;
    }

private:
    unsigned offset_bits_;
};

/// The largest errno that a response carries.
inline constexpr std::uint16_t max_response_error = 0x1ff;

/// A server's answer to a request, as an immediate carries it.
struct response {
    std::uint32_t chunk = 0; ///< that the request was in; it is free now
    std::uint16_t error = 0; ///< an errno; 0: done
    bool operator==(const response&) const = default;
};
/// `m.error` beyond max_response_error becomes EIO.
std::uint32_t encode(const response& m, bool invalidated) noexcept;
/// Reads an immediate of type response or response_invalidated. All values are good ones.
response decode_response(std::uint32_t immediate) noexcept;

} // namespace verbena::rtrs

#pragma GCC visibility pop
