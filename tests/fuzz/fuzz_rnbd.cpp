// SPDX-License-Identifier: Apache-2.0
// Messages of RTRS and RNBD. The first byte chooses which. What is taken is the same when it is written and read again.

#include "fuzz.hpp"

#include <verbena/protocols/rnbd/wire.hpp>
#include <verbena/protocols/rtrs/wire.hpp>

#include <array>
#include <cstring>

using namespace verbena;
using fuzz::require;

VERBENA_FUZZ_TARGET(rnbd)
{
    if (size == 0)
        return 0;
    const auto bytes = fuzz::bytes_of(data + 1, size - 1);
    switch (data[0] % 12) {
    case 0:
        if (const auto m = rtrs::decode_connect_request(bytes)) {
            require(m->connection < m->connections && m->connections <= rtrs::max_connections);
            require(*rtrs::decode_connect_request(encode(*m)) == *m);
        }
        break;
    case 1:
        if (const auto m = rtrs::decode_connect_reply(bytes)) {
            require(m->error != 0 ||
                    rtrs::request_layout(m->queue_depth).fits(m->max_io_size + m->max_header_size));
            require(*rtrs::decode_connect_reply(encode(*m)) == *m);
        }
        break;
    case 2:
        if (const auto name = rtrs::decode_info_request(bytes)) {
            require(!name->empty() && name->size() <= rtrs::max_session_name);
            require(*rtrs::decode_info_request(rtrs::encode_info_request(*name)) == *name);
        }
        break;
    case 3: {
        std::array<rtrs::descriptor, 16> into;
        if (const auto count = rtrs::decode_info_response(bytes, into))
            require(*count <= into.size() && rtrs::info_response_size(*count) <= bytes.size());
        break;
    }
    case 4:
        if (const auto m = rtrs::decode_io_header(bytes)) {
            std::array<std::byte, rtrs::read_header_size> again;
            const std::size_t length = encode(again, *m);
            require(length <= bytes.size() && *rtrs::decode_io_header(std::span(again).first(length)) == *m);
        }
        break;
    case 5:
        if (const auto m = rtrs::decode_new_key(bytes))
            require(*rtrs::decode_new_key(encode(*m)) == *m);
        break;
    case 6:
        if (const auto m = rnbd::decode_open(bytes)) {
            require(!m->device.empty() && m->device.size() <= rnbd::max_device_name);
            const auto again = rnbd::decode_open(encode(*m));
            require(again && again->device == m->device && again->mode == m->mode);
        }
        break;
    case 7:
        if (const auto m = rnbd::decode_open_response(bytes))
            require(m->logical_block_size != 0 && *rnbd::decode_open_response(encode(*m)) == *m);
        break;
    case 8:
        if (const auto m = rnbd::decode_io(bytes))
            require(*rnbd::decode_io(encode(*m)) == *m);
        break;
    case 9:
        if (const auto m = rnbd::decode_close(bytes))
            require(*rnbd::decode_close(rnbd::encode_close(*m)) == *m);
        break;
    case 10: {
        (void)rnbd::type_of(bytes);
        for (const auto m : {rnbd::message::session_info, rnbd::message::session_info_response})
            (void)rnbd::decode_session_info(m, bytes);
        break;
    }
    default:
        if (bytes.size() >= 8) {
            std::uint32_t immediate = 0;
            std::uint32_t depth = 0;
            std::memcpy(&immediate, bytes.data(), 4);
            std::memcpy(&depth, bytes.data() + 4, 4);
            const std::uint32_t chunks = 1 + depth % 65535;
            const rtrs::request_layout layout(chunks);
            require(layout.immediate(layout.chunk(immediate), layout.offset(immediate)) ==
                        (immediate & 0x0fffffff) ||
                    layout.chunk(immediate) >= chunks || chunks == 1);
            (void)rtrs::decode_response(immediate);
        }
        break;
    }
    return 0;
}
