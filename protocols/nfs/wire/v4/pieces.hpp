// SPDX-License-Identifier: Apache-2.0
// What the codecs of the unions share.
#pragma once

#include <verbena/protocols/xdr/codec.hpp>

namespace verbena::nfs::v4::wire {

template<class... T>
void put(xdr::encoder& out, const T&... values) noexcept
{
    (xdr::codec<T>::encode(out, values), ...);
}

template<class... T>
void get(xdr::decoder& in, T&... values) noexcept
{
    (xdr::codec<T>::decode(in, values), ...);
}

} // namespace verbena::nfs::v4::wire
