// SPDX-License-Identifier: Apache-2.0
// The data of a READ that a transport sends from where they lie.
#pragma once

#include <verbena/protocols/rpc/call.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace verbena::nfs {

/// Below that two copies cost less than what spares one.
inline constexpr std::uint32_t least_sent_in_place = 65536;

/// Attaches what locate() found. The results have noted the item already.
inline void attach(rpc::call& c, storage::located_read&& there)
{
    if (there.memory.empty())
        return c.attach(std::move(there.bytes));
    storage::lent_memory& m = there.memory;
    static_assert(storage::lent_memory::max_pieces <= rpc::payload::max_pieces);
    rpc::payload data(std::move(m.keeper), m.pieces[0]);
    for (std::size_t i = 1; i < m.count; ++i)
        data.append(lease(), m.pieces[i]);
    c.attach(std::move(data));
}

} // namespace verbena::nfs
