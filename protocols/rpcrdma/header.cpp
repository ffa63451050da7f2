// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rpcrdma/header.hpp>
#include <verbena/protocols/xdr/decoder.hpp>

#include <algorithm>

namespace verbena::rpcrdma {
namespace {

// What one more element of a list takes, the word in front of it included.
constexpr std::size_t segment_size = 16;
constexpr std::size_t read_item_size = 4 + 4 + segment_size;
constexpr std::size_t write_item_size = 4 + 4;

segment decode_segment(xdr::decoder& in) noexcept
{
    segment decoded;
    decoded.handle = in.u32();
    decoded.length = in.u32();
    decoded.offset = in.u64();
    return decoded;
}

void encode_segment(xdr::encoder& out, const segment& value) noexcept
{
    out.u32(value.handle);
    out.u32(value.length);
    out.u64(value.offset);
}

void decode_reads(xdr::decoder& in, read_list& reads) noexcept
{
    bool in_order = true;
    while (in.boolean()) {
        const std::uint32_t position = in.u32();
        const segment target = decode_segment(in);
        if (!in.ok())
            return;
        // RFC 8166 3.4.5: positions count XDR items.
        if (position % xdr::unit != 0)
            return in.fail("position of a Read segment is not a multiple of 4");
        if (!reads.empty() && position < reads.all().back().position)
            in_order = false;
        if (!reads.push_back({position, target}))
            return in.fail("Read list has more than 64 segments");
    }
    if (!in_order) {
        // A stable insertion: the segments of one chunk keep their order.
        const auto all = reads.all();
        for (std::size_t i = 1; i < all.size(); ++i)
            for (std::size_t j = i; j > 0 && all[j].position < all[j - 1].position; --j)
                std::swap(all[j], all[j - 1]);
    }
}

void decode_writes(xdr::decoder& in, write_list& writes) noexcept
{
    while (in.boolean()) {
        if (!writes.add_chunk())
            return in.fail("Write list has more than 8 chunks");
        const std::uint32_t count = in.array_count(max_write_segments, segment_size);
        for (std::uint32_t i = 0; i < count; ++i) {
            if (!writes.add_segment(decode_segment(in)))
                return in.fail("Write list has more than 64 segments");
        }
    }
}

void decode_reply_chunk(xdr::decoder& in, header& out) noexcept
{
    out.has_reply_chunk = in.boolean();
    if (!out.has_reply_chunk)
        return;
    const std::uint32_t count = in.array_count(max_reply_segments, segment_size);
    for (std::uint32_t i = 0; i < count; ++i) {
        if (!out.reply.push_back(decode_segment(in)))
            return in.fail("Reply chunk has more than 64 segments");
    }
}

decoded_header decode_error(xdr::decoder& in, header& out) noexcept
{
    out.error = static_cast<error_kind>(in.u32());
    if (out.error == error_kind::version) {
        out.low_version = in.u32();
        out.high_version = in.u32();
    } else if (out.error != error_kind::chunk) {
        in.fail("unknown value of rdma_err");
    }
    if (!in.ok())
        return {verdict::drop, in.failure().context(), in.failure().detail()};
    return {verdict::good, nullptr, in.position()};
}

} // namespace

std::uint64_t total_length(std::span<const segment> chunk) noexcept
{
    std::uint64_t sum = 0;
    for (const segment& part : chunk)
        sum += part.length;
    return sum;
}

std::uint64_t total_length(std::span<const read_segment> chunk) noexcept
{
    std::uint64_t sum = 0;
    for (const read_segment& part : chunk)
        sum += part.target.length;
    return sum;
}

bool set_returned_length(std::span<segment> chunk, std::uint64_t length) noexcept
{
    if (length > total_length(chunk))
        return false;
    for (segment& part : chunk) {
        part.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(part.length, length));
        length -= part.length;
    }
    return true;
}

std::span<const read_segment> take_read_chunk(std::span<const read_segment>& list) noexcept
{
    std::size_t count = 0;
    while (count < list.size() && list[count].position == list.front().position)
        ++count;
    const auto chunk = list.first(count);
    list = list.subspan(count);
    return chunk;
}

std::span<const read_segment> header::position_zero() const noexcept
{
    auto list = reads.all();
    return !list.empty() && list.front().position == 0 ? take_read_chunk(list)
                                                       : std::span<const read_segment>();
}

std::span<const read_segment> header::data_reads() const noexcept
{
    return reads.all().subspan(position_zero().size());
}

decoded_header decode(std::span<const std::byte> message, header& out) noexcept
{
    xdr::decoder in(message);
    out.xid = in.u32();
    out.version = in.u32();
    out.credits = in.u32();
    const std::uint32_t proc = in.u32();
    out.proc = static_cast<procedure>(proc);
    out.reads.clear();
    out.writes.clear();
    out.has_reply_chunk = false;
    out.reply.clear();

    // The four words keep their meaning in all versions (RFC 8166 4.2), and an error carries the
    // version of the request that it answers.
    if (in.ok() && out.proc == procedure::error)
        return decode_error(in, out);
    if (message.size() < min_header_size)
        return {verdict::drop, "shorter than an RPC-over-RDMA header", message.size()};
    if (out.version != protocol_version)
        return {verdict::version_error, "RPC-over-RDMA version is not 1", 4};
    switch (out.proc) {
    case procedure::msg:
    case procedure::nomsg: break;
    case procedure::done: return {verdict::drop, "RDMA_DONE is no longer supported", 12};
    case procedure::msgp: return {verdict::chunk_error, "RDMA_MSGP is no longer supported", 12};
    default: return {verdict::chunk_error, "unknown RPC-over-RDMA procedure", 12};
    }

    decode_reads(in, out.reads);
    decode_writes(in, out.writes);
    decode_reply_chunk(in, out);
    if (!in.ok())
        return {verdict::chunk_error, in.failure().context(), in.failure().detail()};
    if (out.proc == procedure::nomsg && out.reads.empty() && out.writes.empty() && !out.has_reply_chunk)
        return {verdict::chunk_error, "RDMA_NOMSG without any chunk", 12};
    return {verdict::good, nullptr, in.position()};
}

const char* broken_call_rule(const header& call, std::span<const std::byte> payload) noexcept
{
    const bool position_zero = !call.position_zero().empty();
    if (call.proc == procedure::nomsg)
        return position_zero ? nullptr : "RDMA_NOMSG call without a Position-Zero Read chunk";
    if (position_zero)
        return "RDMA_MSG call with a Position-Zero Read chunk";
    if (payload.size() < 4 || xdr::load_u32(payload.data()) != call.xid)
        return "XIDs of the RPC-over-RDMA header and of the RPC message differ";
    return nullptr;
}

bool find_data_items(const header& call, std::size_t size, data_items& out) noexcept
{
    auto list = call.data_reads();
    std::size_t filled = 0; // of the unreduced stream, which positions count
    for (auto chunk = take_read_chunk(list); !chunk.empty(); chunk = take_read_chunk(list)) {
        const std::size_t position = chunk.front().position;
        const auto length = static_cast<std::uint32_t>(total_length(chunk));
        if (position < filled || position - filled > size || !out.push_back({position, length}))
            return false;
        size -= position - filled;
        filled = position + xdr::padded(length);
    }
    return true;
}

const char* broken_reply_rule(const header& reply, std::span<const std::byte> payload) noexcept
{
    if (reply.proc == procedure::error)
        return nullptr;
    if (!reply.reads.empty())
        return "reply with a Read list"; // RFC 8166 4.3.1
    const std::uint64_t in_reply_chunk = total_length(reply.reply.all());
    if (reply.proc == procedure::nomsg)
        return in_reply_chunk != 0 ? nullptr : "RDMA_NOMSG reply without anything in the Reply chunk";
    if (in_reply_chunk != 0)
        return "RDMA_MSG reply with bytes in the Reply chunk";
    if (payload.size() < 4 || xdr::load_u32(payload.data()) != reply.xid)
        return "XIDs of the RPC-over-RDMA header and of the RPC message differ";
    return nullptr;
}

std::size_t encoded_size(const header& value) noexcept
{
    if (value.proc == procedure::error)
        return value.error == error_kind::version ? 28 : 20;
    std::size_t size = min_header_size + value.reads.size() * read_item_size +
                       value.writes.size() * write_item_size + value.writes.segments().size() * segment_size;
    if (value.has_reply_chunk)
        size += 4 + value.reply.size() * segment_size;
    return size;
}

void encode(xdr::encoder& out, const header& value) noexcept
{
    out.u32(value.xid);
    out.u32(value.version);
    out.u32(value.credits);
    out.u32(static_cast<std::uint32_t>(value.proc));
    if (value.proc == procedure::error) {
        out.u32(static_cast<std::uint32_t>(value.error));
        if (value.error == error_kind::version) {
            out.u32(value.low_version);
            out.u32(value.high_version);
        }
        return;
    }
    for (const read_segment& item : value.reads.all()) {
        out.boolean(true);
        out.u32(item.position);
        encode_segment(out, item.target);
    }
    out.boolean(false);
    for (std::size_t i = 0; i < value.writes.size(); ++i) {
        const auto chunk = value.writes.chunk(i);
        out.boolean(true);
        out.u32(static_cast<std::uint32_t>(chunk.size()));
        for (const segment& part : chunk)
            encode_segment(out, part);
    }
    out.boolean(false);
    out.boolean(value.has_reply_chunk);
    if (value.has_reply_chunk) {
        out.u32(static_cast<std::uint32_t>(value.reply.size()));
        for (const segment& part : value.reply.all())
            encode_segment(out, part);
    }
}

header error_reply(const header& failed, error_kind kind, std::uint32_t credits) noexcept
{
    header reply;
    reply.xid = failed.xid;
    reply.version = failed.version; // RFC 8166 4.5: the request's, whatever it is
    reply.credits = credits;
    reply.proc = procedure::error;
    reply.error = kind;
    return reply;
}

} // namespace verbena::rpcrdma
