// SPDX-License-Identifier: Apache-2.0
// What a server calls its clients for, as the client serves it (RFC 8881 20):
// docs/internals/nfs4_client.md, "The client's back channel".
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/protocols/nfs/client/v4/callback_slots.hpp>
#include <verbena/protocols/rpc/program.hpp>

#include <cstdint>
#include <memory>
#include <span>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// A session as CB_COMPOUND finds it; client_session is one. Each function is called on the session's shard, in the middle of a callback, and
/// does not wait.
class called_session {
public:
    /// Whether the callback is of this session.
    virtual bool is_session(const sessionid4& id) const noexcept = 0;
    /// A session is being made, whose id the server knows already.
    virtual bool is_being_made() const noexcept = 0;
    /// The minor version that the session speaks, which CB_COMPOUND must have.
    virtual std::uint32_t minor_of_callbacks() const noexcept = 0;
    /// The slots in which the server calls.
    virtual callback_slots& slots_of_callbacks() noexcept = 0;
    /// A call of this session has that slot and number, and no answer yet.
    virtual bool awaits_answer(const referring_call4& call) const noexcept = 0;
    /// @name What the server calls for
    /// The status is the operation's answer. What it asks for is done beside, behind the callback.
    /// @{
    virtual nfsstat4 recalled(const CB_RECALL4args& args) = 0;
    virtual nfsstat4 recalled(const CB_RECALL_ANY4args& args) = 0;
    virtual nfsstat4 recalled(const CB_RECALL_SLOT4args& args) = 0;
    /// @}
    /// Who uses no layouts need not have this.
    virtual nfsstat4 layout_recalled(const CB_LAYOUTRECALL4args&) { return nfsstat4::notsupp; }
    /// Change and size of a file with a write delegation, as the client has them.
    virtual nfsstat4 tell(const CB_GETATTR4args& args, attributes& out) = 0;
    /// A lock that is waited for may be free.
    virtual void notified(const CB_NOTIFY_LOCK4args& args) noexcept = 0;

protected:
    ~called_session() = default;
};

/// Serves the callbacks of any number of clients of one shard. It is named to their transports (stream_client_options::callbacks,
/// requester_options::callbacks) and to the clients, and outlives both.
///
///     nfs::v4::callback_service callbacks(shard);
///     rpc::stream_client_options options;
///     options.callbacks = &callbacks;
///     auto transport = rpc::make_stream_client(shard, buffers, address, options);
///     nfs::v4::client client(**transport, who, {}, {}, &callbacks);
///     client.use_delegations(256);
class callback_service final : public rpc::dispatcher {
public:
    /// The program's number, which CREATE_SESSION tells the server.
    static constexpr std::uint32_t program = 0x40000000;
    static constexpr std::uint32_t max_operations = 8;
    /// A callback, and an answer, with the RPC header. What Linux offers over RDMA: 4096 bytes inline but for the header of RPC-over-RDMA.
    static constexpr std::uint32_t max_message = 4096 - 28;

    /// Any thread may read them.
    struct counters {
        counter callbacks; ///< CB_COMPOUNDs, those that are refused among them
        counter refused;   ///< by CB_SEQUENCE
        counter repeats;   ///< answered with what was kept
        counter recalls;   ///< CB_RECALL, CB_RECALL_ANY and CB_LAYOUTRECALL
    };

    /// On `shard`, which outlives it.
    explicit callback_service(reactor& shard);
    ~callback_service() override;

    /// As rpc::dispatcher::dispatch().
    task<bool> dispatch(rpc::call& c) override;
    const counters& counts() const noexcept { return counts_; }

    /// For sessions, from their beginning to their end.
    /// The session's callbacks are answered by `s` from now on.
    void add(called_session& s);
    /// They are no more.
    void remove(called_session& s) noexcept;

private:
    struct programs;
    counters counts_;
    std::unique_ptr<programs> programs_;
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
