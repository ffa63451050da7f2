// SPDX-License-Identifier: Apache-2.0
// What arguments and results of the operations have in common.
//
// Each operation has a struct of arguments and one of results, which name it in `opcode`; members stand in the order of the XDR. A
// results struct is the RFC's union laid flat: `status` comes first, and what follows counts, and travels, only if it is ok. Where a
// failure says more than its status the struct says so, and has a codec of its own.
#pragma once

#include <verbena/protocols/nfs/wire/v4/types.hpp>
#include <verbena/protocols/nfs/wire/v4/views.hpp>
#include <verbena/protocols/xdr/codec.hpp>

#include <concepts>
#include <cstddef>
#include <type_traits>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// A name in a directory, as it came: up to max_text bytes, so that a long one is NAMETOOLONG.
using component4 = text_view<max_component, max_text>;
/// A file handle.
using nfs_fh4 = bytes_view<max_handle_size>;

/// The arguments of an operation that has none.
template<auto Opcode>
struct no_arguments {
    static constexpr auto opcode = Opcode;
};

/// The results of an operation that has none but its status.
template<auto Opcode>
struct status_alone {
    static constexpr auto opcode = Opcode;
    nfsstat4 status = nfsstat4::ok;
};

namespace detail {

/// A union of results laid flat.
template<class T>
concept results = xdr::detail::wire_struct<T> && requires(T value) {
    T::opcode;
    { value.status } -> std::same_as<nfsstat4&>;
};

/// The codec of a union: encode_union() and decode_union() beside the type. Sizes are in bytes.
template<class T, std::size_t Least, std::size_t Most>
struct union_codec {
    static constexpr std::size_t min_size = Least;
    static constexpr std::size_t max_size = Most;
    static void encode(xdr::encoder& out, const T& value) noexcept { encode_union(out, value); }
    static void decode(xdr::decoder& in, T& value) noexcept { decode_union(in, value); }
};

} // namespace detail
} // namespace verbena::nfs::v4

namespace verbena::xdr {

/// Results of an operation: the status, and the rest where that is ok.
template<nfs::v4::detail::results T>
struct codec<T> {
    /// Its form as a struct.
    using members = detail::struct_codec<T>;
    static constexpr std::size_t min_size = 4;
    static constexpr std::size_t max_size = members::max_size;
    static void encode(encoder& out, const T& value) noexcept
    {
        if (value.status == nfs::v4::nfsstat4::ok)
            members::encode(out, value);
        else
            codec<nfs::v4::nfsstat4>::encode(out, value.status);
    }
    static void decode(decoder& in, T& value) noexcept
    {
        decoder ahead(in);
        if (static_cast<nfs::v4::nfsstat4>(ahead.u32()) == nfs::v4::nfsstat4::ok)
            members::decode(in, value);
        else
            codec<nfs::v4::nfsstat4>::decode(in, value.status);
    }
};

} // namespace verbena::xdr

#pragma GCC visibility pop
