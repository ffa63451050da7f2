// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/files/under_way.hpp>
#include <verbena/protocols/nfs/server/file_handle.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>

namespace verbena::nfs {

namespace {

constexpr std::byte version{1};
constexpr std::size_t inner_at = 5;
constexpr std::size_t signature_size = 8;

} // namespace

std::optional<file_handle> sign_handle(const handle_key& key, std::uint32_t export_id,
                                       const storage::handle& inner) noexcept
{
    const auto body = inner.bytes();
    if (body.empty() || body.size() > file_handle::max_inner)
        return std::nullopt;
    file_handle handle;
    std::byte* const to = handle.bytes_.data();
    to[0] = version;
    xdr::store_u32(to + 1, export_id);
    std::copy(body.begin(), body.end(), to + inner_at);
    const std::size_t signed_size = inner_at + body.size();
    xdr::store_u64(to + signed_size, siphash(key, {to, signed_size}));
    handle.size_ = static_cast<std::uint8_t>(signed_size + signature_size);
    return handle;
}

std::optional<opened_handle> open_handle(const handle_key& key, std::span<const std::byte> wire) noexcept
{
    if (wire.size() <= file_handle::overhead || wire.size() > file_handle::max_size || wire[0] != version)
        return std::nullopt;
    const auto body = wire.first(wire.size() - signature_size);
    // A difference of whole words tells a forger nothing about how much of it was right.
    if ((siphash(key, body) ^ xdr::load_u64(wire.data() + body.size())) != 0)
        return std::nullopt;
    opened_handle opened;
    opened.export_id = xdr::load_u32(wire.data() + 1);
    opened.inner = storage::handle(body.subspan(inner_at));
    return opened;
}

std::optional<opened_handle> open_state_file(const files::exported_file& name) noexcept
{
    const auto named = files::open_file_key(name.key);
    if (!named || named->file.bytes().size() > file_handle::max_inner)
        return std::nullopt;
    return opened_handle{name.via, named->file};
}

std::optional<file_handle> sign_state_file(const handle_key& key, const files::exported_file& name) noexcept
{
    const auto opened = open_state_file(name);
    return opened ? sign_handle(key, opened->export_id, opened->inner) : std::nullopt;
}

} // namespace verbena::nfs
