// SPDX-License-Identifier: Apache-2.0
// File handles: the input is one as a client may send it; and, but for its first byte, what a handle is made of.

#include "fuzz.hpp"

#include <verbena/protocols/nfs/server/file_handle.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>
#include <array>

using namespace verbena;
using fuzz::require;

namespace {

constexpr std::size_t id_at = 1, inner_at = 5;

nfs::handle_key key()
{
    nfs::handle_key k;
    for (std::size_t i = 0; i < k.size(); ++i)
        k[i] = std::byte(i);
    return k;
}

} // namespace

VERBENA_FUZZ_TARGET(handles)
{
    const auto wire = fuzz::bytes_of(data, size);
    if (const auto opened = nfs::open_handle(key(), wire)) {
        // Only what was signed opens, and signs to itself.
        const auto again = nfs::sign_handle(key(), opened->export_id, opened->inner);
        require(again && std::ranges::equal(again->bytes(), wire));
    }

    if (size < inner_at)
        return 0;
    const std::uint32_t id = xdr::load_u32(wire.data() + id_at);
    const storage::handle inner(wire.subspan(inner_at));
    const auto made = nfs::sign_handle(key(), id, inner);
    require(made.has_value() == (!inner.empty() && inner.bytes().size() <= nfs::file_handle::max_inner));
    if (!made)
        return 0;
    const auto good = made->bytes();
    require(good.size() == inner.bytes().size() + nfs::file_handle::overhead);
    const auto opened = nfs::open_handle(key(), good);
    require(opened && opened->export_id == id && opened->inner == inner);
    // One bit changed, or one byte less, and it is no handle.
    std::array<std::byte, nfs::file_handle::max_size> forged;
    std::copy(good.begin(), good.end(), forged.begin());
    const std::size_t bit = data[0] % (good.size() * 8);
    forged[bit / 8] ^= std::byte(1u << bit % 8);
    require(!nfs::open_handle(key(), std::span(forged).first(good.size())));
    require(!nfs::open_handle(key(), good.first(good.size() - 1)));
    return 0;
}
