// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <verbena/protocols/rpc/payload.hpp>
#include <verbena/protocols/xdr/encoder.hpp>

#include <array>
#include <cstddef>
#include <cstring>
#include <span>

namespace verbena::rpc {

/// Writes a message as it travels in one piece: `message` with `items` and their pads in their places. `to` has room for message.position() bytes, and
/// no item lies in a file.
inline void copy_message(const xdr::encoder& message, const attachments& items,
                         std::span<std::byte> to) noexcept
{
    std::byte* at = to.data();
    const auto put = [&at](std::span<const std::byte> bytes) {
        if (!bytes.empty())
            std::memcpy(at, bytes.data(), bytes.size());
        at += bytes.size();
    };
    message.in_order(put, [&](std::size_t item) {
        static constexpr std::array<std::byte, xdr::unit> zeros{};
        const payload& bytes = items[item].bytes;
        for (auto piece : bytes.pieces())
            put(piece);
        put(std::span(zeros).first(xdr::pad_of(bytes.size())));
    });
}

} // namespace verbena::rpc
