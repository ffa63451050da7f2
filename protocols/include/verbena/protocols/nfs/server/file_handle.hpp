// SPDX-License-Identifier: Apache-2.0
// What stands in an NFS file handle on the wire, and the key that signs it.
//
// A client must not be able to make up a handle: one that it guesses would reach files outside of
// what was exported. So each handle carries a keyed hash over all its other bytes.
//
//   0      version, 1
//   1..4   export id, big endian
//   5..n   the back end's handle, n-5 bytes
//   n..n+8 SipHash-2-4 of bytes 0..n under the server's key, big endian
//
// A back-end handle of 12 bytes gives 25, so NFS version 2's fixed 32 bytes can hold it.
#pragma once

#include <verbena/core/result.hpp>
#include <verbena/core/siphash.hpp>
#include <verbena/protocols/files/exported_file.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

#pragma GCC visibility push(default)

namespace verbena::nfs {

/// The key that file handles are signed with: secret, and the same after a restart.
using handle_key = siphash_key;

/// A signed handle, ready for the wire.
class file_handle {
public:
    /// RFC 1813 2.4, NFS3_FHSIZE.
    static constexpr std::size_t max_size = 64;
    static constexpr std::size_t overhead = 1 + 4 + 8;
    /// The longest back-end handle that fits.
    static constexpr std::size_t max_inner = max_size - overhead;
    static_assert(4 + max_inner <= storage::handle::max_size,
                  "what can be signed has a files::file_key() of its own");

    file_handle() = default;
    /// As the wire has it. Valid as long as this.
    std::span<const std::byte> bytes() const noexcept { return {bytes_.data(), size_}; }

private:
    friend std::optional<file_handle> sign_handle(const handle_key&, std::uint32_t,
                                                  const storage::handle&) noexcept;
    std::array<std::byte, max_size> bytes_;
    std::uint8_t size_ = 0;
};

/// What a handle says once its signature was found good.
struct opened_handle {
    std::uint32_t export_id = 0;
    storage::handle inner;
};

/// Nothing if `inner` is empty or longer than max_inner.
std::optional<file_handle> sign_handle(const handle_key& key, std::uint32_t export_id,
                                       const storage::handle& inner) noexcept;

/// Nothing if the bytes are not a handle that sign_handle() made under `key`: NFS3ERR_BADHANDLE.
std::optional<opened_handle> open_handle(const handle_key& key, std::span<const std::byte> wire) noexcept;

/// What the state layer names so, in the export by which somebody came to it; nothing if it names nothing, or a handle
/// that can't be signed.
std::optional<opened_handle> open_state_file(const files::exported_file& name) noexcept;
/// The handle by which clients of that export know it.
std::optional<file_handle> sign_state_file(const handle_key& key, const files::exported_file& name) noexcept;

/// The key kept in `state`/handle.key, made there at the first start. Handles stay good for as long
/// as it does. Blocking; for start-up. Fails if the file can be read by others, is not 16 bytes, or
/// can't be made; the context of the error says the cure.
result<handle_key> load_or_create_key(const std::filesystem::path& state);

} // namespace verbena::nfs

#pragma GCC visibility pop
