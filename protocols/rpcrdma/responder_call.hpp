// SPDX-License-Identifier: Apache-2.0
// One call of a requester, and what it holds until its answer is out.
#pragma once

#include <verbena/core/task/event.hpp>
#include <verbena/protocols/rpcrdma/header.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>

#include <array>
#include <memory>

namespace verbena::rpcrdma {

class responder_connection;

inline const error no_memory(std::errc::not_enough_memory, "no memory for a call");

/// One call. Lives in its connection's table of slots, reused; its leases go when its Send completed.
class responder_call final : public rpc::call {
public:
    explicit responder_call(responder_connection& c) noexcept : connection_(c) {}

    task<result<rpc::payload>> pull(xdr::payload_ref ref) override;
    task<bool> reserve_results(std::size_t size) override;
    std::uint64_t most_result() const noexcept override;
    rpc::sent_in_place sends_in_place() const noexcept override;
    std::shared_ptr<rpc::reverse_channel> reverse() override;

private:
    friend class responder_connection;
    /// Ready to be used for the message in `received`.
    void begin(lease received, const rpc::peer& from, buffer_pool& buffers) noexcept;
    void clear() noexcept;

    responder_connection& connection_;
    lease received_;       // the message; header and inline payload lie in it
    lease assembled_;      // what a Position-Zero chunk held
    lease results_memory_; // larger than inline_results
    lease send_memory_;    // the transport header, with what goes inline: received_, where it will do
    rpcrdma::header transport_;
    data_items items_;          // that pull() brings
    std::uint64_t brought_ = 0; // bytes of the buffers that were taken for them, and for assembled_
    // The awaited RDMA Reads of one pull.
    std::uint32_t reads_pending_ = 0;
    bool read_failed_ = false;
    event reads_done_;
    std::uint32_t generation_ = 0;
    std::uint32_t index_ = 0;
    std::uint32_t posted_ = 0;      // send-queue entries that its Send retires
    std::uint64_t chunk_bytes_ = 0; // what it counts for in the shares
    bool answered_ = false;         // its Send is posted
    alignas(8) std::array<std::byte, inline_results> small_results_;
};

} // namespace verbena::rpcrdma
