// SPDX-License-Identifier: Apache-2.0
#include "server_chunk.hpp"

#include "path_part.hpp"
#include "server_connection.hpp"
#include "server_session.hpp"
#include "server_shared.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace verbena::rtrs {

namespace {

// Of memory that is cleared in one turn of the shard: some 50 us.
constexpr std::size_t cleared_at_once = std::size_t(256) << 10;

} // namespace

void waiting_copy::start(std::unique_ptr<waiting_copy> copy) noexcept
{
    reactor& there = copy->from.path().shared().shard;
    if (there.is_here())
        copy.release()->run();
    else
        there.post_remote(*copy.release());
}

void waiting_copy::deliver() noexcept { from.path().shared().shard.post(static_cast<deferred&>(*this)); }

void waiting_copy::run() noexcept
{
    const std::unique_ptr<waiting_copy> self(this);
    path_part& path = from.path();
    if (path.closing())
        path.session().give_chunk(chunk_, path);
    else
        from.start(chunk_, header_, data_size_);
    path.copy_came();
}

// Pages that hold zeros are not written: those that nobody has used yet take no memory of the host until they are.
std::span<std::byte> clear_some(std::span<std::byte> memory) noexcept
{
    static constexpr std::array<std::byte, 4096> zeros{};
    for (std::size_t done = 0; !memory.empty() && done < cleared_at_once; done += zeros.size()) {
        const std::size_t size = std::min(memory.size(), zeros.size());
        if (std::memcmp(memory.data(), zeros.data(), size) != 0)
            std::memset(memory.data(), 0, size);
        memory = memory.subspan(size);
    }
    return memory;
}

} // namespace verbena::rtrs
