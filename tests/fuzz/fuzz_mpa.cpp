// SPDX-License-Identifier: Apache-2.0
// MPA start-up frames in both roles: what an initiator reads of a reply, and a responder of a request, with the depths of an
// enhanced frame. The frames of whole connections are fuzz_iwarp's.

#include "fuzz.hpp"

#include "../../transports/iwarp/wire.hpp"

#include <array>

using namespace verbena;
using namespace verbena::iwarp;
using fuzz::require;

VERBENA_FUZZ_TARGET(mpa)
{
    const auto all = fuzz::bytes_of(data, size);
    if (all.size() < wire::mpa_header_size)
        return 0;
    const auto head = all.first<wire::mpa_header_size>();
    for (const bool reply : {false, true}) {
        const auto frame = wire::parse_mpa(head, reply);
        if (!frame)
            continue;
        require(frame->reply == reply);
        require(frame->private_data_length <= wire::max_mpa_private_data);
        require(!frame->enhanced || frame->private_data_length >= wire::enhanced_size);
        std::array<std::byte, wire::mpa_header_size> again{};
        wire::encode_mpa(*frame, again.data());
        const auto twice = wire::parse_mpa(again, reply);
        require(twice && twice->revision == frame->revision && twice->enhanced == frame->enhanced &&
                twice->crc == frame->crc && twice->markers == frame->markers &&
                twice->reject == frame->reject && twice->private_data_length == frame->private_data_length);
        const auto rest = all.subspan(wire::mpa_header_size);
        if (!frame->enhanced || rest.size() < wire::enhanced_size)
            continue;
        const auto depths = wire::parse_depths(rest.first<wire::enhanced_size>());
        require(depths.ird <= wire::no_negotiation && depths.ord <= wire::no_negotiation);
        std::array<std::byte, wire::enhanced_size> words{};
        wire::encode_depths(depths, words.data());
        const auto same = wire::parse_depths(words);
        require(same.ird == depths.ird && same.ord == depths.ord &&
                same.peer_to_peer == depths.peer_to_peer && same.rtr_send == depths.rtr_send &&
                same.rtr_write == depths.rtr_write && same.rtr_read == depths.rtr_read);
    }
    return 0;
}
