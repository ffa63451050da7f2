// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rpcrdma/private_data.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>

namespace verbena::rpcrdma {
namespace {

constexpr std::uint32_t identifier = 0xf6ab0e18;
constexpr std::byte version{1};
constexpr std::byte remote_invalidation_flag{1};
constexpr std::uint32_t size_step = 1024;

std::byte encode_size(std::uint32_t size) noexcept
{
    return static_cast<std::byte>(std::clamp(size, min_inline_threshold, max_inline_threshold) / size_step -
                                  1);
}

std::uint32_t decode_size(std::byte size) noexcept
{
    return (std::to_integer<std::uint32_t>(size) + 1) * size_step;
}

std::uint32_t as_told(std::uint32_t size) noexcept { return decode_size(encode_size(size)); }

} // namespace

std::array<std::byte, private_message_size> encode(const private_message& message) noexcept
{
    std::array<std::byte, private_message_size> bytes{};
    xdr::store_u32(bytes.data(), identifier);
    bytes[4] = version;
    bytes[5] = message.remote_invalidation ? remote_invalidation_flag : std::byte(0);
    bytes[6] = encode_size(message.send_size);
    bytes[7] = encode_size(message.receive_size);
    return bytes;
}

std::optional<private_message> find_private_message(std::span<const std::byte> private_data) noexcept
{
    for (; private_data.size() >= private_message_size; private_data = private_data.subspan(1)) {
        if (xdr::load_u32(private_data.data()) != identifier || private_data[4] != version)
            continue;
        private_message message;
        // The other flags are reserved and ignored (RFC 8797 4.1).
        message.remote_invalidation = (private_data[5] & remote_invalidation_flag) != std::byte(0);
        message.send_size = decode_size(private_data[6]);
        message.receive_size = decode_size(private_data[7]);
        return message;
    }
    return std::nullopt;
}

connection_terms negotiate(const private_message& own, const std::optional<private_message>& peer) noexcept
{
    if (!peer)
        return {};
    return {std::min(as_told(own.send_size), peer->receive_size),
            std::min(as_told(own.receive_size), peer->send_size),
            own.remote_invalidation && peer->remote_invalidation};
}

} // namespace verbena::rpcrdma
