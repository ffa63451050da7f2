// SPDX-License-Identifier: Apache-2.0
// Codecs that are made from structs, over one with a member of each kind. What is decoded is within its limits, and what is encoded
// again decodes to the same; with the first bit of the first byte set, a chunk carries the bulk.

#include "fuzz.hpp"

#include <verbena/protocols/rpc/bulk.hpp>

#include <algorithm>
#include <vector>

using namespace verbena;
using fuzz::require;

namespace {

enum class color : std::uint8_t { red, green };
constexpr bool valid(color c) { return c <= color::green; }

struct inner {
    xdr::text<10> name;
    std::optional<std::uint16_t> port;
    friend bool operator==(const inner&, const inner&) = default;
};
struct numbers {
    std::int8_t a = 0;
    std::uint16_t b = 0;
    std::int32_t c = 0;
    std::uint64_t d = 0;
    float e = 0;
    double f = 0;
    bool g = false;
    color h = color::red;
};
struct everything {
    numbers n;
    inner one;
    xdr::text<5000> large;
    xdr::opaque<7> bytes;
    xdr::list<inner, 3> few;
    xdr::list<inner, 5000> many;
    std::array<std::byte, 5> key{};
    std::array<inner, 2> two;
    std::optional<inner> maybe;
    rpc::bulk<1000> data;
};

std::vector<std::byte> encoded(const everything& value)
{
    std::vector<std::byte> block(xdr::max_size<everything>);
    xdr::encoder out(block);
    // All but the bulk, whose bytes did not come.
    xdr::codec<numbers>::encode(out, value.n);
    xdr::codec<inner>::encode(out, value.one);
    xdr::codec<xdr::text<5000>>::encode(out, value.large);
    xdr::codec<xdr::opaque<7>>::encode(out, value.bytes);
    xdr::codec<xdr::list<inner, 3>>::encode(out, value.few);
    xdr::codec<xdr::list<inner, 5000>>::encode(out, value.many);
    xdr::codec<std::array<std::byte, 5>>::encode(out, value.key);
    xdr::codec<std::array<inner, 2>>::encode(out, value.two);
    xdr::codec<std::optional<inner>>::encode(out, value.maybe);
    out.u32(0);
    require(out.ok());
    block.resize(out.size());
    return block;
}

} // namespace

VERBENA_FUZZ_TARGET(xdr_codec)
{
    if (size == 0)
        return 0;
    const auto bytes = fuzz::bytes_of(data + 1, size - 1);
    xdr::decoder in(bytes);
    if (*data & 0x80)
        in = xdr::decoder(
            bytes, xdr::external_item{.position = bytes.size() & ~std::size_t(3), .length = *data & 0x7fu});
    everything value;
    xdr::codec<everything>::decode(in, value);
    require(value.one.name.size() <= 10 && value.large.size() <= 5000 && value.bytes.size() <= 7);
    require(value.few.size() <= 3 && value.many.size() <= 5000 && value.data.size() <= 1000);
    // An element takes eight bytes at least.
    require(value.many.size() * 8 <= size);
    if (!in.ok()) {
        require(bool(in.failure().code()));
        return 0;
    }
    require(value.n.h <= color::green);
    const auto again = encoded(value);
    xdr::decoder back(again);
    everything same;
    xdr::codec<everything>::decode(back, same);
    require(back.at_end());
    require(encoded(same) == again);
    require(same.many == value.many && same.two == value.two && same.maybe == value.maybe &&
            same.few == value.few);
    return 0;
}
