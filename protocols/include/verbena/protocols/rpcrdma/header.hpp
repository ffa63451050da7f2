// SPDX-License-Identifier: Apache-2.0
// The RPC-over-RDMA version 1 header (RFC 8166 section 4).
#pragma once

#include <verbena/protocols/rpcrdma/chunk_lists.hpp>
#include <verbena/protocols/xdr/decoder.hpp>
#include <verbena/protocols/xdr/encoder.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

#pragma GCC visibility push(default)

namespace verbena::rpcrdma {

/// RPC-over-RDMA version 1 (RFC 8166).
inline constexpr std::uint32_t protocol_version = 1;
/// A header with three empty lists. A shorter message is no header (RFC 8166 4.5).
inline constexpr std::size_t min_header_size = 28;
/// The largest header that encode() writes.
inline constexpr std::size_t max_header_size = min_header_size + max_read_segments * 24 +
                                               max_write_chunks * 8 + max_write_segments * 16 + 4 +
                                               max_reply_segments * 16;

/// What a message is (RFC 8166 4.2). `msgp` and `done` are no longer used: decode() refuses them.
enum class procedure : std::uint32_t { msg = 0, nomsg = 1, msgp = 2, done = 3, error = 4 };

/// What an RDMA_ERROR tells (RFC 8166 4.5).
enum class error_kind : std::uint32_t { version = 1, chunk = 2 };

/// A responder may turn the header of a call into the header of its reply in place: clear `reads`,
/// set the returned lengths, `credits` and `proc`.
struct header {
    std::uint32_t xid = 0; ///< of the call
    std::uint32_t version = protocol_version;
    std::uint32_t credits = 0;       ///< wanted in a call, granted in a reply
    procedure proc = procedure::msg; ///< what the message is

    // proc msg and nomsg
    read_list reads; ///< decode() leaves it in order of positions
    write_list writes;
    bool has_reply_chunk = false; ///< a chunk of no segments may be there
    reply_chunk reply;

    // proc error
    error_kind error = error_kind::chunk;
    std::uint32_t low_version = protocol_version; ///< error version
    std::uint32_t high_version = protocol_version;

    /// The Position-Zero Read chunk, which holds a long call (RFC 8166 3.5.3). Empty if there is none.
    std::span<const read_segment> position_zero() const noexcept;
    /// The chunks of `reads` behind it.
    std::span<const read_segment> data_reads() const noexcept;
};

/// What is to be done with a received message. A receiver that acts as requester only drops
/// whatever is not good (RFC 8166 4.5).
enum class verdict {
    good,
    drop,          // in silence
    version_error, ///< answer RDMA_ERROR with ERR_VERS
    chunk_error,   // answer RDMA_ERROR with ERR_CHUNK
};

/// What decode() found.
struct decoded_header {
    verdict action = verdict::good; ///< what is to be done with the message
    /// The rule that the message broke; null if good.
    const char* rule = nullptr;
    /// Where that was found; if good, the length of the header: the payload stream follows.
    std::size_t offset = 0;
};

/// Parses the header of a received message, in the role of either side. Unless it returns drop, xid,
/// version and credits in `out` are valid.
///
/// RDMA_ERROR with ERR_CHUNK takes only 20 bytes; it is accepted although RFC 8166 4.5 would drop
/// what is below 28, since peers send it so.
decoded_header decode(std::span<const std::byte> message, header& out) noexcept;

/// The rule that a good header breaks as a call, or null. `payload` is what follows the header in
/// the message. To be answered with ERR_CHUNK.
const char* broken_call_rule(const header& call, std::span<const std::byte> payload) noexcept;

/// What the Read chunks of a call hold beside a Position-Zero chunk, in order, for a decoder of the rest.
using data_items = bounded_list<xdr::external_item, max_read_chunks>;
/// `size` is the length of the call's stream without them. False where there are too many, or where one lies in another one or behind
/// the end (RFC 8166 3.4.5). To be answered with ERR_CHUNK. The lengths together are below 4 GiB: the caller looks before.
bool find_data_items(const header& call, std::size_t size, data_items& out) noexcept;

/// The rule that a good header breaks as a reply, or null: to be dropped. RDMA_ERROR breaks none.
const char* broken_reply_rule(const header& reply, std::span<const std::byte> payload) noexcept;

/// What encode() will write.
std::size_t encoded_size(const header& value) noexcept;

/// Writes the header; the payload stream follows. Overflows `out` where there is no room.
void encode(xdr::encoder& out, const header& value) noexcept;

/// The answer to a verdict of version_error or chunk_error; `failed` is the header that decode()
/// filled, `credits` the grant.
header error_reply(const header& failed, error_kind kind, std::uint32_t credits) noexcept;

} // namespace verbena::rpcrdma

#pragma GCC visibility pop
