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
