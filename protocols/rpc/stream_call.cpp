// SPDX-License-Identifier: Apache-2.0
#include "stream_call.hpp"

#include "stream_connection.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace verbena::rpc {

stream_call::stream_call(stream_connection& connection, record&& message,
                         const task_context& context) noexcept
    : connection_(connection), message_(std::move(message)), context_(context)
{
    peer_ = &connection.peer();
    buffers_ = &connection.buffers();
    args_ = xdr::decoder(message_.first, message_.size());
    results_ = xdr::encoder(std::span(inline_).subspan(fragment_header_size));
}

task<result<payload>> stream_call::pull(xdr::payload_ref ref)
{
    payload bytes;
    if (!ref.inline_bytes.empty())
        bytes.append(message_.first_owner.share(), ref.inline_bytes);
    const std::size_t rest = ref.length - ref.inline_bytes.size();
    if (rest != 0) {
        const std::size_t offset = ref.position + ref.inline_bytes.size() - message_.first.size();
        bytes.append(message_.second_owner.share(), message_.second.subspan(offset, rest));
    }
    if (message_.copied > ref.position)
        connection_.payload_copied().add(std::min<std::size_t>(message_.copied - ref.position, ref.length));
    co_return std::move(bytes);
}

void stream_call::pass_payload() noexcept
{
    if (args_.remaining() == 0 && args_.position() >= message_.first.size() && args_.unread() != 0)
        args_.go_on_in(message_.second.subspan(args_.position() - message_.first.size()));
}

task<bool> stream_call::reserve_results(std::size_t size)
{
    if (results_.room() >= size)
        co_return true;
    if (!results_.payloads().empty() || size > buffer_pool::max_size / 2)
        co_return false;
    expect_results(fragment_header_size + results_.size() + size);
    lease fresh =
        co_await buffers_->acquire(fragment_header_size + results_.size() + size, buffer_pool::call_patience);
    if (!fresh)
        co_return false;
    xdr::encoder out(fresh.bytes().subspan(fragment_header_size));
    const auto written = results_.bytes();
    std::memcpy(out.reserve(written.size()).data(), written.data(), written.size());
    results_ = out;
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
    std::size_t unused = 0;
    if (block_)
        unused += block_.size() - (fragment_header_size + results_.size());
    for (std::size_t i = 0; i < result_payload_.pieces().size(); ++i) {
        const std::size_t used = result_payload_.pieces()[i].size();
        if (const lease& owner = result_payload_.owner(i); owner && owner.size() > used)
            unused += owner.size() - used;
    }
    return unused;
}

std::span<const std::byte> stream_call::framed_reply() noexcept
{
    std::byte* begin = block_ ? block_.data() : inline_.data();
    const std::span<std::byte, fragment_header_size> mark(begin, fragment_header_size);
    encode_fragment_header(mark, {static_cast<std::uint32_t>(results_.position()), true});
    return {begin, fragment_header_size + results_.size()};
}

} // namespace verbena::rpc
