// SPDX-License-Identifier: Apache-2.0
// Why a connection is rejected, in the private data of the rejection. RPC-over-RDMA has no words for that, and other clients look at
// none of it; ours tells its user.
#pragma once

#include <verbena/core/net/refusals.hpp>

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

namespace verbena::rpcrdma {

inline constexpr std::pair<refused, std::string_view> rejection_words[] = {
    {refused::connection_address, "verbena: address"},
    {refused::connection_share, "verbena: peer_connections"},
    {refused::connection_all, "verbena: connections"},
};

/// Nothing for what has no words.
inline std::span<const std::byte> encode_rejection(refused why) noexcept
{
    for (const auto& [reason, word] : rejection_words) {
        if (reason == why)
            return std::as_bytes(std::span(word));
    }
    return {};
}

/// What to say of it; nullptr: it says nothing that we know. Connection managers pad it.
inline const char* rejection_of(std::span<const std::byte> private_data) noexcept
{
    std::string_view text(reinterpret_cast<const char*>(private_data.data()), private_data.size());
    text = text.substr(0, text.find('\0'));
    if (text == rejection_words[0].second)
        return "the server rejected the connection: it serves nothing to this host's address (clients of its "
               "exports say "
               "whom it serves)";
    if (text == rejection_words[1].second)
        return "the server rejected the connection: this host has as many there as one may (peer_connections "
               "of its "
               "[daemon])";
    if (text == rejection_words[2].second)
        return "the server rejected the connection: it has as many as it may (connections of its [daemon])";
    return nullptr;
}

} // namespace verbena::rpcrdma
