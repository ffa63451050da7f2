// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/wire/v4/rdma_layout_connect.hpp>

#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>

namespace verbena::nfs::v4 {

namespace {

constexpr std::uint32_t rdma_layout_magic = 0x704e4652; // "pNFR"
constexpr std::uint8_t spoken_version = 1;
constexpr std::size_t client_at = 8;
constexpr std::size_t session_at = 16;
constexpr std::size_t device_at = 32;

bool is_ours(std::span<const std::byte> data, std::size_t size) noexcept
{
    return data.size() >= size && xdr::load_u32(data.data()) == rdma_layout_magic;
}

bool are_zeros(std::span<const std::byte> data) noexcept
{
    return std::ranges::all_of(data, [](std::byte b) { return b == std::byte(0); });
}

} // namespace

std::array<std::byte, rdma_layout_connect::size> encode(const rdma_layout_connect& value) noexcept
{
    std::array<std::byte, rdma_layout_connect::size> out{};
    xdr::store_u32(out.data(), rdma_layout_magic);
    out[4] = std::byte(spoken_version);
    xdr::store_u64(out.data() + client_at, value.client);
    std::ranges::copy(value.session, out.begin() + session_at);
    std::ranges::copy(value.device, out.begin() + device_at);
    return out;
}

std::array<std::byte, rdma_layout_answer::size> encode(const rdma_layout_answer& value) noexcept
{
    std::array<std::byte, rdma_layout_answer::size> out{};
    xdr::store_u32(out.data(), rdma_layout_magic);
    out[4] = std::byte(value.version);
    out[5] = std::byte(value.reason);
    return out;
}

result<rdma_layout_connect> decode_rdma_layout_connect(std::span<const std::byte> data)
{
    // What another version has behind its number is not known.
    if (data.size() >= 5 && is_ours(data, 5) && data[4] != std::byte(spoken_version))
        return error(std::errc::protocol_not_supported, "a data server's version that is not 1");
    if (!is_ours(data, rdma_layout_connect::size) || !are_zeros(data.subspan(5, 3)) ||
        !are_zeros(data.subspan(device_at + 16)))
        return error(std::errc::bad_message, "no request of a client with an RDMA layout");
    rdma_layout_connect out;
    out.client = xdr::load_u64(data.data() + client_at);
    std::ranges::copy(data.subspan(session_at, out.session.size()), out.session.begin());
    std::ranges::copy(data.subspan(device_at, out.device.size()), out.device.begin());
    return out;
}

result<rdma_layout_answer> decode_rdma_layout_answer(std::span<const std::byte> data)
{
    if (!is_ours(data, rdma_layout_answer::size))
        return error(std::errc::bad_message, "no answer of a data server for RDMA layouts");
    rdma_layout_answer out;
    out.version = std::to_integer<std::uint8_t>(data[4]);
    out.reason = std::to_integer<std::uint8_t>(data[5]);
    return out;
}

} // namespace verbena::nfs::v4
