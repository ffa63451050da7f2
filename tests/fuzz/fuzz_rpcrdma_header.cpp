// SPDX-License-Identifier: Apache-2.0
// The RPC-over-RDMA header in both roles, and the private message of connect and accept.

#include "fuzz.hpp"

#include <verbena/protocols/rpcrdma/header.hpp>
#include <verbena/protocols/rpcrdma/private_data.hpp>

#include <vector>

using namespace verbena;
using fuzz::require;

VERBENA_FUZZ_TARGET(rpcrdma_header)
{
    const auto message = fuzz::bytes_of(data, size);
    rpcrdma::header header;
    const auto decoded = rpcrdma::decode(message, header);
    require((decoded.action == rpcrdma::verdict::good) == (decoded.rule == nullptr));
    if (decoded.action == rpcrdma::verdict::good) {
        require(decoded.offset <= size);
        (void)rpcrdma::broken_call_rule(header, message.subspan(decoded.offset));
        (void)rpcrdma::broken_reply_rule(header, message.subspan(decoded.offset));
        require(header.position_zero().size() + header.data_reads().size() <= size);

        // As a responder has them: each behind the one before, so that a decoder meets all of them or none.
        const std::size_t stream = size - decoded.offset;
        rpcrdma::data_items items;
        if (rpcrdma::total_length(header.reads.all()) <= UINT32_MAX - 4 * rpcrdma::max_read_chunks &&
            rpcrdma::find_data_items(header, stream, items)) {
            std::size_t filled = 0;
            std::size_t inlined = 0;
            for (const xdr::external_item& item : items.all()) {
                require(item.position >= filled && item.position % 4 == 0);
                inlined += item.position - filled;
                filled = item.position + xdr::padded(item.length);
            }
            require(inlined <= stream);
            require((items.size() == 0) == header.data_reads().empty());
            const auto bytes = message.subspan(decoded.offset);
            xdr::decoder in(bytes, items.all());
            require(in.unread() == filled - inlined + stream);
            while (in.ok() && in.unread() != 0) {
                const std::size_t before = in.position();
                in.remaining() >= 4 ? void(in.u32()) : void(in.payload(UINT32_MAX));
                require(!in.ok() || in.position() > before);
            }
        }

        std::vector<std::byte> copy(rpcrdma::encoded_size(header));
        xdr::encoder out(copy);
        rpcrdma::encode(out, header);
        require(out.ok() && out.size() == copy.size());
        rpcrdma::header again;
        require(rpcrdma::decode(copy, again).action == rpcrdma::verdict::good);
        require(again.xid == header.xid && again.proc == header.proc && again.credits == header.credits);
    }
    if (const auto found = rpcrdma::find_private_message(message)) {
        const auto terms = rpcrdma::negotiate({}, found);
        require(terms.send_threshold <= rpcrdma::max_inline_threshold);
        require(terms.receive_threshold <= rpcrdma::max_inline_threshold);
    }
    return 0;
}
