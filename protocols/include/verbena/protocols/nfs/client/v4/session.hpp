// SPDX-License-Identifier: Apache-2.0
// A client's session (RFC 8881 2.10): its client id, its slots, its lease, and how it comes back when the server has lost it.
#pragma once

#include <verbena/core/task/event.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/semaphore.hpp>
#include <verbena/protocols/nfs/client/identity.hpp>
#include <verbena/protocols/nfs/client/limits.hpp>
#include <verbena/protocols/nfs/client/patience.hpp>
#include <verbena/protocols/nfs/client/v4/callback_service.hpp>
#include <verbena/protocols/nfs/client/v4/compound_call.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

class client_session;

/// Takes back from a server that has forgotten the client what that had there.
class reclaimer {
public:
    virtual ~reclaimer() = default;
    /// Runs between CREATE_SESSION of a new client id and RECLAIM_COMPLETE; calls go by client_session::run_to_reclaim(). Completes
    /// when: all was asked for. On cancel: as client_session's. Errors: those that end the recovery too; what could not be had back is
    /// none. Lifetime: the session outlives it. Shard: the session's.
    virtual task<result<void>> reclaim() = 0;
    /// The server says that it has revoked some of what the client had: finds what that is, and frees it there (TEST_STATEID, FREE_STATEID).
    /// Completes when: the server has answered. On cancel: as client_session's. Errors: none. Lifetime: the session outlives it. Shard: the
    /// session's, where other calls run beside it.
    virtual task<void> free_what_is_revoked() = 0;

    // What the server calls for, answered in the middle of a callback: what it takes is done beside. Who has no delegations need not have these.
    /// Takes a delegation back. Its status is the callback's answer.
    virtual nfsstat4 recalled(const CB_RECALL4args&) { return nfsstat4::bad_stateid; }
    /// Delegations and layouts are to go until so few are left.
    virtual nfsstat4 recalled(const CB_RECALL_ANY4args&) { return nfsstat4::ok; }
    /// Takes layouts back; NFS4ERR_NOMATCHING_LAYOUT where there are none.
    virtual nfsstat4 layout_recalled(const CB_LAYOUTRECALL4args&) { return nfsstat4::notsupp; }
    /// Change and size of a file with a write delegation.
    virtual nfsstat4 tell(const CB_GETATTR4args&, attributes&) { return nfsstat4::badhandle; }
    /// A lock that somebody waits for may be free.
    virtual void notified(const CB_NOTIFY_LOCK4args&) noexcept {}
    /// The server can't call any more, and won't soon: gives back what could be recalled.
    virtual void cannot_be_called() {}
};

/// The minor versions of NFS version 4 that a client may speak: the highest of them that the server has is spoken.
struct minor_versions {
    std::uint32_t lowest = 1;  ///< 1 or 2
    std::uint32_t highest = 2; ///< likewise, no less
};

/// Minor version 1 or 2 over any transport. With a callback_service, over a transport that serves calls, it has a back channel; else the server
/// has no way back, and gives no delegations. A call has a slot while it is under way; more calls than slots wait. The transport sends a call again with the same slot and sequence id on its next
/// connection, so that the server runs it once.
///
/// This holds for all its tasks. On cancel: as rpc::client_transport::call(); the slot is asked what became of the call
/// before it is used again. Errors: v4::nfsstat4 codes with the operation's name, those of the transport, bad_message for results
/// that don't decode, protocol_error for a SEQUENCE of another call, protocol_not_supported for a server that has none of the minor versions.
/// Lifetime: the transport outlives the session, the session its tasks. Shard: the transport's.
///
/// DELAY and GRACE are asked again, as nfs::patience tells; GRACE for two leases at least, unless patience is spent. A session that the server
/// has lost is made anew, also with a new client id, before any call goes on. So is what a server has lost that kept the session, by its flags
/// (8881 18.46.3): what it wants reclaimed is, and what it has revoked is freed.
class client_session : private called_session {
public:
    static constexpr std::size_t max_slots = 64;
    /// The largest READ or WRITE, and what stands around it.
    static constexpr std::uint32_t max_transfer = client_limits::max_transfer;
    /// Bytes of a call's message without a large item: header, SEQUENCE and arguments.
    static constexpr std::size_t message_size = 8192;
    /// How often one call may find its session lost.
    static constexpr unsigned max_losses = 8;

    /// `name` is the client owner (co_ownerid), the same for nobody else; empty: of host, process and chance. `callbacks` is the one that
    /// the transport was made with, and outlives the session; nullptr: there is no back channel.
    client_session(rpc::client_transport& transport, const identity& who, std::string name = {},
                   minor_versions spoken = {}, callback_service* callbacks = nullptr);
    client_session(const client_session&) = delete;
    client_session& operator=(const client_session&) = delete;
    /// After close().
    ~client_session();

    /// What the session's calls go over. It outlives the session.
    rpc::client_transport& transport() noexcept { return transport_; }
    /// How long calls that the server puts off are asked again; shared by all users of the session.
    nfs::patience& patience() noexcept { return patience_; }
    /// Who takes back what a restart of the server took; nullptr: nobody. Outlives the session.
    void reclaim_by(reclaimer* who) noexcept { reclaimer_ = who; }

    /// Has the session tell the server that this client uses layouts. Before open().
    void ask_for_layouts() noexcept { uses_layouts_ = true; }
    /// The server has said that it gives layouts (EXCHGID4_FLAG_USE_PNFS_MDS), to a client that asks for them.
    bool may_get_layouts() const noexcept { return uses_layouts_ && serves_layouts_; }

    /// Makes the session, which run() does too where there is none. Completes when: calls can be made.
    task<result<void>> open();
    /// Makes the session go over one connection more, behind the others and after open(): a call goes by its slot, so that what is under
    /// way at once is spread, and is sent again where it went, but for calls under way while this adds one. `more` outlives the session.
    /// Completes when: the server has said there that it knows this client (EXCHANGE_ID), as only the same one does. Errors: protocol_error
    /// where it does not, and nothing is added then.
    task<result<void>> add_connection(rpc::client_transport& more);
    /// Connections that calls go over.
    std::size_t connections() const noexcept { return ways_.size(); }
    /// Completes when: the server has answered something else than that it is to be asked again. Where it fails with a status, the
    /// results of the operations before are there. Errors: ECANCELED too where the call is abandoned; ETIMEDOUT where a soft call's
    /// time was over before it had a slot. That time is one for all: its wait for a session, or the calls that make one, its wait for a slot, and
    /// being sent, also once more when the session was lost. It begins anew when the server says that it is to be asked again.
    task<result<void>> run(compound_call& call);
    /// As run(), for reclaimer::reclaim() alone. Completes when: as run(), or when the session is lost again.
    task<result<void>> run_to_reclaim(compound_call& call);
    /// A call of reclaimer::reclaim() that failed so ends it: the session is lost again, or the server can't be asked. All is asked for again then.
    static bool ends_recovery(const error& why) noexcept;
    /// Calls nothing, and needs no session. Completes when: the server has answered.
    task<result<void>> null();
    /// Tells the server that session and client are no longer used, and ends the renewal of the lease. No call is under way or comes
    /// later, but for one that makes the session: that is waited for, and fails. Idempotent. Completes when: the server has answered or can't be asked. On cancel: it ends sooner. Errors: none.
    task<void> close();

    /// Runs beside the calls until it ends, or close() ends it. After open().
    scope& background() noexcept { return *tasks_; }

    /// Counts client ids: what was opened under another number is not open any more.
    std::uint64_t incarnation() const noexcept { return incarnation_; }
    /// The minor version that is spoken: the highest one that is asked for, until the server has taken one. It stays from then on.
    std::uint32_t minor_version() const noexcept { return minor_; }
    /// Sessions made so far.
    std::uint64_t sessions() const noexcept { return sessions_; }
    /// Calls that may be under way at once.
    std::size_t slots() const noexcept { return allowed_; }
    duration lease() const noexcept { return lease_; }
    clientid4 client_id() const noexcept { return client_id_; }
    /// Of the session that was made last.
    const sessionid4& id() const noexcept { return id_; }
    const identity& who() const noexcept { return who_; }
    /// The server has granted a back channel, and is not known to be without a way to call.
    bool can_be_called() const noexcept { return way_back_ && !way_back_lost_; }
    /// The lease has not run out since a call that the server has answered was sent: what it gave holds.
    bool lease_holds() const noexcept
    {
        return state_ == state::up && shard_->clock().now() - last_heard_ < lease_;
    }
    /// Both are sessions of one server, by what it says of itself (8881 2.10.4): a handle that the one yields is the other's too.
    bool is_of_one_server_with(const client_session& other) const noexcept
    {
        return !server_owner_.empty() && server_owner_ == other.server_owner_ &&
               server_scope_ == other.server_scope_;
    }
    /// What the server takes, whole messages with the RPC header.
    const channel_attrs4& channel() const noexcept { return channel_; }

private:
    enum class state : std::uint8_t { none, reclaiming, up, closed };
    struct slot {
        std::uint32_t sequence = 1; // of the next call
        bool in_doubt = false;      // whether the server has seen that one
        time_point asked{};         // when that one was sent first
    };
    // What became of a call that was answered.
    struct verdict {
        nfsstat4 status = nfsstat4::ok;
        const char* operation = nullptr; // that it is of
        bool of_sequence = false;
    };
    class held_slot;

    time_point limit_of_a_call() const noexcept;
    task_context in_time(task_context of, time_point limit, bool sends_two) const noexcept;
    task<result<void>> wait_until(time_point limit, task<result<void>> waiting, error in_vain);
    task<result<void>> wait_for(semaphore& permits, time_point limit, error in_vain);
    error without_slot() const noexcept;
    task<result<void>> be_unused();
    task<result<void>> be_ready(time_point& limit);
    task<result<verdict>> send_to_make(compound_call& call, bool alone);
    task<result<void>> begin();
    task<result<void>> exchange_id();
    EXCHANGE_ID4args who_it_is() const noexcept;
    task<result<void>> create_session();
    task<result<void>> reclaim();
    task<result<void>> ask_lease();
    task<result<void>> insist(compound_call& call, bool alone);
    task<result<verdict>> send_alone(compound_call& call) { return send_alone(call, transport_); }
    task<result<verdict>> send_alone(compound_call& call, rpc::client_transport& way);
    task<result<verdict>> send_in(std::size_t number, compound_call& call);
    task<result<verdict>> send_in_known(std::size_t number, compound_call& call);
    task<result<verdict>> send_until_heard(std::size_t number, compound_call& call);
    task<result<rpc::reply>> send(compound_call& call, const SEQUENCE4args* sequence,
                                  rpc::client_transport& way);
    task<result<void>> ask_in_a_slot(rpc::client_transport* by);
    std::size_t free_slot(const rpc::client_transport* by) const noexcept;
    rpc::client_transport& way_of(std::size_t number) const noexcept { return *ways_[number % ways_.size()]; }
    task<result<bool>> wait_to_repeat(const error& cause, duration& delay, duration& waited);
    verdict refused(const SEQUENCE4args& asked, nfsstat4 status) noexcept;
    void heed(std::uint32_t flags);
    task<void> free_what_is_revoked();
    void change_to(state next) noexcept;
    void allow(std::size_t slots) noexcept;
    void release_permit() noexcept;
    task<void> keep_lease();

    // back_channel.cpp
    bool wants_way_back() const noexcept { return callbacks_ != nullptr && transport_.serves_calls(); }
    void ask_way_back(CREATE_SESSION4args& args,
                      std::array<callback_sec_parms4, 2>& signatures) const noexcept;
    void take_way_back(const CREATE_SESSION4res& res) noexcept;
    void heed_way_back(std::uint32_t flags, std::uint32_t news);
    task<void> mend_way_back();
    task<result<void>> ask_for_flags(rpc::client_transport* by);
    // What came of binding a connection, so that it brings the server's calls.
    enum class way_bound : std::uint8_t {
        is_silent,     // nobody answered
        was_not_asked, // it serves no calls
        answers,       // but brings none
        brings_calls
    };
    task<std::vector<way_bound>> bind_ways();
    task<result<way_bound>> bind_way(rpc::client_transport& way);
    bool is_session(const sessionid4& id) const noexcept override { return session_is_there_ && id == id_; }
    bool is_being_made() const noexcept override { return creating_; }
    std::uint32_t minor_of_callbacks() const noexcept override { return minor_; }
    callback_slots& slots_of_callbacks() noexcept override { return back_slots_; }
    bool awaits_answer(const referring_call4& call) const noexcept override;
    nfsstat4 recalled(const CB_RECALL4args& args) override;
    nfsstat4 recalled(const CB_RECALL_ANY4args& args) override;
    nfsstat4 recalled(const CB_RECALL_SLOT4args& args) override;
    nfsstat4 layout_recalled(const CB_LAYOUTRECALL4args& args) override;
    nfsstat4 tell(const CB_GETATTR4args& args, attributes& out) override;
    void notified(const CB_NOTIFY_LOCK4args& args) noexcept override;

    rpc::client_transport& transport_;         // that what has no slot goes by
    std::vector<rpc::client_transport*> ways_; // that one is the first
    reactor* shard_ = nullptr;                 // from the first call on
    identity who_;
    std::string name_;
    verifier4 verifier_{};
    bool has_verifier_ = false; // drawn when the server is first asked
    nfs::patience patience_;
    reclaimer* reclaimer_ = nullptr;
    state state_ = state::none;

    std::uint32_t lowest_minor_;
    std::uint32_t minor_;
    bool minor_settled_ = false; // by a server that takes it
    bool uses_layouts_ = false;
    bool serves_layouts_ = false; // by EXCHANGE_ID
    std::string server_owner_;    // major id, from EXCHANGE_ID
    std::string server_scope_;
    bool client_known_ = false;
    clientid4 client_id_ = 0;
    std::uint32_t create_sequence_ = 0;
    bool must_complete_ = false;  // RECLAIM_COMPLETE is due
    bool session_stands_ = false; // what is due is due in the session that is there
    std::uint32_t flags_ = 0;     // that SEQUENCE told last, bits of seq4_status
    bool lease_known_ = false;
    std::uint64_t incarnation_ = 0;
    std::uint64_t sessions_ = 0;
    sessionid4 id_{};
    channel_attrs4 channel_;
    duration lease_ = std::chrono::seconds(90);
    time_point
        last_heard_{}; // when the last call was sent that was answered: the server may have renewed the lease then

    std::array<slot, max_slots> slots_{};
    std::uint64_t used_ = 0;  // slots, by bits
    std::size_t made_ = 0;    // slots of the session
    std::size_t allowed_ = 0; // of those, by the server's target
    std::size_t owed_ = 0;    // permits to be taken back as slots come home
    semaphore permits_{0};
    semaphore turn_{1};                           // to make a session
    time_point making_until_ = time_point::max(); // for whoever has that turn
    event unused_;                                // while used_ is 0, for who waits there
    exception_logger lost_{"nfs"};
    std::optional<scope> tasks_;

    // The back channel.
    callback_service* const callbacks_;
    callback_slots back_slots_;
    bool creating_ = false;         // CREATE_SESSION is under way
    bool session_is_there_ = false; // CREATE_SESSION has yielded id_
    bool way_back_ = false;         // the session was granted one
    bool way_back_lost_ = false;    // and nothing helped
    bool mending_ = false;          // it is being bound again
    bool discards_ = false;         // the session that is there is to be ended before the next one is made
    time_point mended_{};           // when that was begun last
    std::optional<time_point> begun_anew_; // when a new session was made for it
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
