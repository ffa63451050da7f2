// SPDX-License-Identifier: Apache-2.0
// The XDR decoder itself: the input is a program of reads, two bytes each, a zero, and the bytes to
// read; with the first bit of the first byte set, chunks carry one item of them or two; with the second one, they lie in two pieces.

#include "fuzz.hpp"

#include <verbena/protocols/xdr/decoder.hpp>

#include <algorithm>

using namespace verbena;
using fuzz::require;

VERBENA_FUZZ_TARGET(xdr)
{
    const auto end_of_program = std::find(data, data + size, 0);
    if (end_of_program == data + size)
        return 0;
    const auto bytes =
        fuzz::bytes_of(end_of_program + 1, static_cast<std::size_t>(data + size - end_of_program - 1));
    xdr::decoder in(bytes);
    const xdr::external_item items[] = {{*data & 0x3cu, *data & 0x3u}, {(*data & 0x3cu) + 8, 4}};
    if ((*data & 0xc0) == 0xc0)
        in = xdr::decoder(bytes, items);
    else if (*data & 0x80)
        in = xdr::decoder(bytes, items[0]);
    else if ((*data & 0x60) == 0x60)
        in = xdr::decoder(bytes.first(bytes.size() / 2), bytes.subspan(bytes.size() / 2), *data & 0xfu);
    else if (*data & 0x40)
        in = xdr::decoder(bytes, bytes.size() + (*data & 0x3f));

    for (auto step = data; step + 1 < end_of_program; step += 2) {
        const std::uint32_t limit = step[1];
        const std::size_t before = in.position();
        const std::size_t left = in.unread();
        switch (step[0] & 0x0f) {
        case 1: in.u32(); break;
        case 2: in.u64(); break;
        case 3: in.boolean(); break;
        case 4: require(fuzz::within(in.opaque_fixed(limit), bytes)); break;
        case 5: {
            const auto view = in.opaque_var(limit);
            require(view.size() <= limit && fuzz::within(view, bytes));
            break;
        }
        case 6: require(in.string(limit).size() <= limit); break;
        case 7: require(in.array_count(limit, 4) <= limit); break;
        case 8: in.skip(limit); break;
        case 9: {
            const auto item = in.payload(limit);
            require(item.length <= limit && fuzz::within(item.inline_bytes, bytes));
            require(item.inline_bytes.size() <= item.length);
            break;
        }
        default: in.fail("the program says so");
        }
        require(!in.ok() || in.position() - before == left - in.unread());
        require(in.position() >= before && in.remaining() <= bytes.size());
        require(!in.at_end() || in.ok());
    }
    if (!in.ok())
        require(bool(in.failure().code()));
    return 0;
}
