// SPDX-License-Identifier: Apache-2.0
// Pieces that the argument and the result codec share.
#pragma once

#include <verbena/protocols/nfs/wire/v3/types.hpp>
#include <verbena/protocols/xdr/decoder.hpp>
#include <verbena/protocols/xdr/encoder.hpp>

#include <algorithm>

namespace verbena::nfs::v3::wire {

/// An enum whose values run from `first` to `last`.
template<class E>
E decode_enum(xdr::decoder& in, E first, E last, const char* rule) noexcept
{
    const std::uint32_t value = in.u32();
    if (in.ok() && (value < static_cast<std::uint32_t>(first) || value > static_cast<std::uint32_t>(last)))
        in.fail(rule);
    return in.ok() ? static_cast<E>(value) : first;
}

template<class E>
void encode_enum(xdr::encoder& out, E value) noexcept
{
    out.u32(static_cast<std::uint32_t>(value));
}

/// False if the result is of the failed arm.
inline bool decode_status(xdr::decoder& in, nfsstat3& status) noexcept
{
    status = static_cast<nfsstat3>(in.u32());
    return status == nfsstat3::ok;
}

inline nfstime3 decode_time(xdr::decoder& in) noexcept
{
    nfstime3 time;
    time.seconds = in.u32();
    time.nseconds = in.u32();
    return time;
}

inline void encode_time(xdr::encoder& out, const nfstime3& time) noexcept
{
    out.u32(time.seconds);
    out.u32(time.nseconds);
}

inline void decode_verifier(xdr::decoder& in, verifier3& verifier) noexcept
{
    const auto bytes = in.opaque_fixed(verifier_size);
    if (!bytes.empty())
        std::copy(bytes.begin(), bytes.end(), verifier.begin());
}

/// The opposite of decoder::payload().
inline void encode_payload(xdr::encoder& out, const xdr::payload_ref& payload) noexcept
{
    if (payload.external)
        out.note_payload(payload.length);
    else
        out.opaque_var(payload.inline_bytes);
}

} // namespace verbena::nfs::v3::wire
