// SPDX-License-Identifier: Apache-2.0
#include "stream_call.hpp"

#include "stream_connection.hpp"

#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

namespace verbena::rpc {

stream_call::stream_call(stream_connection& connection, record&& message,
                         const task_context& context) noexcept
    : connection_(connection), message_(std::move(message)), context_(context)
{
    if (message_.first.size() >= 4)
        start_header(xdr::load_u32(message_.first.data()));
    context_.trace_id = trace_of(connection.peer().connection, header_.xid);
    peer_ = &connection.peer();
    buffers_ = &connection.buffers();
    server_stop_ = connection.server_stop();
    args_ = xdr::decoder(message_.first, message_.second, 0);
    results_ = xdr::encoder(std::span(inline_).subspan(fragment_header_size));
}

// By its position in the record, wherever the decoder has read its length.
task<result<payload>> stream_call::pull(xdr::payload_ref ref)
{
    payload bytes;
    const std::size_t in_first = ref.position < message_.first.size()
                                     ? std::min<std::size_t>(message_.first.size() - ref.position, ref.length)
                                     : 0;
    if (in_first != 0)
        bytes.append(message_.first_owner.share(), message_.first.subspan(ref.position, in_first));
    if (in_first != ref.length)
        bytes.append(
            message_.second_owner.share(),
            message_.second.subspan(ref.position + in_first - message_.first.size(), ref.length - in_first));
    if (message_.copied > ref.position)
        connection_.payload_copied().add(std::min<std::size_t>(message_.copied - ref.position, ref.length));
    co_return std::move(bytes);
}

// What stands between two payloads is short, and the payload behind it leads out of the copy. So first a little of the second piece is
// copied behind what is left of the first one; what does not suffice for the arguments of one operation becomes sixteenfold.
task<result<void>> stream_call::join_arguments(std::size_t from)
{
    const std::size_t border = message_.first.size();
    const std::size_t behind = message_.second.size();
    // It begins in what was copied of the second piece, and there it lies in one.
    if (from >= border && from <= message_.size() && joined_behind_ != 0) {
        args_ = xdr::decoder(message_.second.subspan(from - border), {}, from);
        co_return result<void>();
    }
    // What is read from its beginning once more, as to be compared, finds here what was put in one piece before.
    if (joined_ && from == joined_from_ && !reads_joined()) {
        args_ = joined_arguments();
        co_return result<void>();
    }
    const std::size_t wanted = std::min(behind, buffer_pool::min_size << (4 * joins_));
    if (from >= border || joined_behind_ == behind)
        co_return error(std::errc::message_size, "arguments end inside an item", from);
    ++joins_;
    const std::size_t size = border - from + wanted;
    lease memory = co_await acquire(size);
    if (!memory)
        co_return error(std::errc::not_enough_memory, "no buffer for arguments in two pieces", size);
    std::memcpy(memory.data(), message_.first.data() + from, border - from);
    std::memcpy(memory.data() + (border - from), message_.second.data(), wanted);
    connection_.payload_copied().add(size);
    connection_.expect_results(memory.size());
    joined_bytes_ += memory.size();
    joined_from_ = from;
    joined_behind_ = wanted;
    joined_ = std::move(memory);
    args_ = joined_arguments();
    co_return result<void>();
}

xdr::decoder stream_call::joined_arguments() const noexcept
{
    const std::size_t size = message_.first.size() - joined_from_ + joined_behind_;
    return {std::span<const std::byte>(joined_.data(), size), message_.second.subspan(joined_behind_),
            joined_from_};
}

bool stream_call::reads_joined() const noexcept
{
    const std::byte* const at = args_.rest().data();
    return std::greater_equal<>()(at, joined_.data()) &&
           std::less_equal<>()(at, joined_.data() + joined_.size());
}

task<bool> stream_call::reserve_results(std::size_t size)
{
    if (results_.room() >= size)
        co_return true;
    if (size > buffer_pool::max_size / 2)
        co_return false;
    expect_results(fragment_header_size + results_.size() + size);
    lease fresh = co_await acquire(fragment_header_size + results_.size() + size);
    if (!fresh)
        co_return false;
    results_.move_to(fresh.bytes().subspan(fragment_header_size));
    block_ = std::move(fresh);
    co_return true;
}

std::shared_ptr<reverse_channel> stream_call::reverse() { return connection_.reverse(); }

void stream_call::expect_results(std::size_t size) noexcept
{
    const std::size_t whole = std::bit_ceil(std::clamp(size, buffer_pool::min_size, buffer_pool::max_size));
    if (whole <= expected_results_)
        return;
    connection_.expect_results(whole - expected_results_);
    expected_results_ = whole;
}

std::size_t stream_call::unused_results() const noexcept
{
    std::size_t unused = unused_block();
    for (std::size_t item = 0; item < attached_.size(); ++item) {
        const payload& bytes = attached_[item].bytes;
        for (std::size_t i = 0; i < bytes.pieces().size(); ++i) {
            const std::size_t used = bytes.pieces()[i].size();
            if (const lease& owner = bytes.owner(i); owner && owner.size() > used)
                unused += owner.size() - used;
        }
    }
    return unused;
}

void stream_call::mark_reply() noexcept
{
    joined_.reset(); // nobody reads arguments any more, and the reply may wait long
    std::byte* begin = block_ ? block_.data() : inline_.data();
    const std::span<std::byte, fragment_header_size> mark(begin, fragment_header_size);
    encode_fragment_header(mark, {static_cast<std::uint32_t>(results_.position()), true});
}

} // namespace verbena::rpc
