// SPDX-License-Identifier: Apache-2.0
// Calls of a reverse channel that have no reply yet, over streams as over RDMA.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/request_list.hpp>
#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/protocols/rpc/call.hpp>
#include <verbena/protocols/rpc/client.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace verbena::rpc {

/// One connection's; on its shard alone. The owner outlives whoever waits in it.
class calls_under_way final : private timer {
public:
    /// A call has no reply for longer than `limit`: it fails with ETIMEDOUT, counts in `timeouts` and makes room. `most` are sent at once;
    /// the owner sees to that. `to` is used until close().
    calls_under_way(reactor& shard, duration limit, std::size_t most, counter& timeouts, const peer& to)
        : shard_(shard), limit_(limit), timeouts_(timeouts), to_(to)
    {
        sent_.reserve(most);
    }

    std::uint32_t next_xid() noexcept { return next_xid_++; }
    std::size_t size() const noexcept { return sent_.size(); }
    /// Waits until there may be room for another one; false if it was stopped.
    task<bool> room();
    /// There may be room.
    void progress() noexcept { moved_.set(); }
    /// Of the call that was just sent as `xid`: it counts from here on. A call that is stopped counts until its reply or its time all the
    /// same, as its peer has it. ENOTCONN when the connection ends.
    task<result<reply>> reply_to(std::uint32_t xid);
    bool has(std::uint32_t xid) const noexcept;
    /// The reply, or what became of it; nothing happens if there is no such call.
    void end(std::uint32_t xid, result<reply> outcome) noexcept;
    /// The connection is over.
    void close() noexcept;
    /// What a call fails with then.
    static error gone() noexcept;

private:
    struct waiting final : listed_request {
        waiting(const peer& p, std::uint32_t x) noexcept : to(p), xid(x) {}
        void report(request_report& into) const noexcept override;

        const peer& to;
        const std::uint32_t xid;
        event done;
        std::optional<result<reply>> outcome;
    };
    struct sent_call {
        std::uint32_t xid;
        time_point until;
        waiting* caller; // nullptr: it gave up
    };
    void on_timer() noexcept override; // a call may have no reply for too long
    void end(std::vector<sent_call>::iterator call, result<reply> outcome) noexcept;

    reactor& shard_;
    const duration limit_;
    counter& timeouts_;
    const peer& to_;
    std::uint32_t next_xid_ = 1;
    std::vector<sent_call> sent_; // in this order
    event moved_;
    bool closed_ = false;
};

} // namespace verbena::rpc
