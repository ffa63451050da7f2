// SPDX-License-Identifier: Apache-2.0
// A call of the server on the connection that its client made, as the client serves it. Over streams as over RDMA.
#pragma once

#include <verbena/protocols/rpc/program.hpp>

#include <cstddef>
#include <span>
#include <utility>

namespace verbena::rpc {

/// Everything of it lies in one piece, and so does its reply: what is larger than its memory for results can't be answered.
class reverse_call final : public call {
public:
    /// `body` is the message, in what `received` keeps. The reply is written to `results`, behind `margin` bytes, which are the
    /// transport's. `from` and `buffers` outlive the call.
    reverse_call(lease received, std::span<const std::byte> body, const peer& from, buffer_pool& buffers,
                 lease results, std::size_t margin = 0)
        : received_(std::move(received)), results_memory_(std::move(results))
    {
        peer_ = &from;
        buffers_ = &buffers;
        args_ = xdr::decoder(body);
        results_ = xdr::encoder(results_memory_.bytes().subspan(margin));
    }
    task<result<payload>> pull(xdr::payload_ref ref) override
    {
        if (ref.external)
            co_return error(std::errc::bad_message, "the argument lies in no chunk", ref.position);
        co_return payload(received_.share(), ref.inline_bytes);
    }
    task<bool> reserve_results(std::size_t size) override { co_return results_.room() >= size; }
    /// What the reply lies in.
    lease take_memory() noexcept { return std::move(results_memory_); }

private:
    lease received_;
    lease results_memory_;
};

} // namespace verbena::rpc
