// SPDX-License-Identifier: Apache-2.0
// The data of a READ that a transport sends from where they lie.
#pragma once

#include <verbena/protocols/rpc/call.hpp>
#include <verbena/protocols/storage/file_backend.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace verbena::nfs {

/// Whether to ask where `count` bytes lie that the transport could send from there.
inline bool may_be_located(const storage::file_backend& files, std::uint32_t count,
                           rpc::sent_in_place what) noexcept
{
    return what != rpc::sent_in_place::nothing && count >= files.info().least_located;
}

/// What locate() may find for a transport that sends something in place.
inline storage::locatable locatable_by(rpc::sent_in_place what) noexcept
{
    return what == rpc::sent_in_place::memory_or_file ? storage::locatable::memory_or_file
                                                      : storage::locatable::memory;
}

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
