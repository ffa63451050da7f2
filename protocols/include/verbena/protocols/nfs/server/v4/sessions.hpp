// SPDX-License-Identifier: Apache-2.0
// Clients and sessions of minor versions 1 and 2 (8881 2.10, 18.35, 18.36, 18.46): who they are, and what each slot answered last.
//
// They are the process's: connections of one session come by several shards. A table is locked to find or to change an entry, a slot
// to change its state; nothing is held while a call runs. What clients have open is the state layer's (state_home.hpp).
#pragma once

#include <verbena/core/adjustable.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/siphash.hpp>
#include <verbena/core/task/wait_record.hpp>
#include <verbena/protocols/files/types.hpp>
#include <verbena/protocols/nfs/server/v4/back_channel.hpp>
#include <verbena/protocols/nfs/wire/v4/session_operations.hpp>
#include <verbena/protocols/rpc/principal.hpp>
#include <verbena/protocols/xdr/decoder.hpp>
#include <verbena/protocols/xdr/encoder.hpp>

#include <array>
#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// Those that may be set while they are read (server_commons::set_limits()): who has more then keeps it.
struct changeable_session_limits {
    adjustable<std::size_t> clients = 16384;          ///< with those that are not confirmed
    adjustable<std::size_t> clients_per_peer = 1024;  ///< likewise
    adjustable<std::size_t> sessions = 4096;          ///< of all clients
    adjustable<std::size_t> sessions_per_client = 16; ///< of one client
    adjustable<std::size_t> sessions_per_peer = 1024; ///< of all clients of one peer group
    /// What all slots may keep, and what they take themselves. A session is granted a sixteenth of what is left at most, and one slot
    /// at least: so much is left for each of the sessions that there may be.
    adjustable<std::size_t> slot_bytes = std::size_t(256) << 20;
    adjustable<std::size_t> slot_bytes_per_peer = std::size_t(64)
                                                  << 20; ///< of all sessions of one peer group
    /// Of minor version 0: what the owners of opens and locks take, with their names and what they were answered last.
    adjustable<std::size_t> owner_memory = std::size_t(256) << 20;
    adjustable<std::size_t> owner_memory_per_peer = std::size_t(64) << 20; ///< of one peer group
    /// Likewise: connections that the server makes to call clients.
    adjustable<std::size_t> callback_connections = 256;
    adjustable<std::size_t> callback_connections_per_peer = 16; ///< to one peer group
};

/// Of sessions, and of what clients keep at the server. What is not changeable_session_limits is set once.
struct session_limits : changeable_session_limits {
    std::uint32_t slots = 64;              ///< of a session
    std::uint32_t operations = 64;         ///< of a COMPOUND
    std::uint32_t request_size = 1049620;  ///< bytes, RPC header included: what Linux asks for to write 1 MiB
    std::uint32_t response_size = 1049480; ///< likewise to read 1 MiB
    std::uint32_t cached_response_size = 4096; ///< bytes that a slot keeps
    unsigned v6_prefix = default_peer_prefix;  ///< of peer_group(), by which peers are told apart
};

/// Lets something happen once a second at most.
class seldom {
public:
    /// True: now is the time.
    bool may(time_point now) noexcept
    {
        if (last_ != time_point() && now - last_ < duration(std::chrono::seconds(1)))
            return false;
        last_ = now;
        return true;
    }

private:
    time_point last_{};
};

/// Who sent a call, by a hash with the server's key: as far as clients and sessions tell callers apart.
using principal_digest = std::uint64_t;

/// What a call on a slot turned out to be.
enum class slot_verdict : std::uint8_t {
    run,      ///< new: it is to be run, and slot_use::finish() called
    repeat,   ///< the reply that was kept answers it
    uncached, ///< a repeat whose reply was not kept
    joins, ///< a repeat of a call that runs: slot_use::first_ends() is to be awaited, and the slot asked again
    refused, ///< slot_use::status() says why; the slot is as it was
};

/// The number of a slot's last call (8881 2.10.6.1): 0 follows 2^32 - 1, and a slot that had no call yet has none
/// that could be repeated.
class slot_number {
public:
    slot_number() = default;
    /// Of a slot whose last call had the number `last`.
    explicit slot_number(std::uint32_t last) noexcept : last_(last), used_(true) {}
    /// Whether a call with that number is the slot's next one.
    bool is_next(std::uint32_t number) const noexcept { return number == last_ + 1; }
    /// Whether it repeats the slot's last one.
    bool is_last(std::uint32_t number) const noexcept { return used_ && number == last_; }
    /// The slot after its next call.
    slot_number next() const noexcept { return slot_number(last_ + 1); }

private:
    std::uint32_t last_ = 0;
    bool used_ = false;
};

/// What two calls with one sequence id are told apart by, beside how they begin (8881 2.10.6.1.3.1): the arguments of
/// the operations that ran. Large items are left out: they may lie elsewhere, and a client that sends a WRITE again
/// may send what its file's pages hold by now. It depends on the bytes alone, not on how the call came in pieces.
class call_digest {
public:
    /// An operation's bytes, from its opcode on.
    struct bytes_of {
        /// The next `size` bytes of `in`, as far as they are in reach: all up to an item that a chunk carries.
        bytes_of(const xdr::decoder& in, std::size_t size) noexcept
            : bytes_of(in.rest(), in.rest_of_second(), size)
        {
        }
        /// The first `size` bytes of both together.
        bytes_of(std::span<const std::byte> one, std::span<const std::byte> other, std::size_t size) noexcept
            : first(one.first(std::min(one.size(), size))),
              second(other.first(std::min(other.size(), size - first.size())))
        {
        }
        std::span<const std::byte> first, second;
    };
    /// The next operation.
    void add(nfs_opnum4 operation, const bytes_of& bytes) noexcept;
    std::uint32_t operations() const noexcept { return operations_; }
    friend bool operator==(const call_digest&, const call_digest&) = default;

private:
    friend struct call_mark;
    void mix(std::uint64_t value) noexcept;
    void mix(const bytes_of& bytes, std::size_t size) noexcept;
    std::uint64_t value_ = 0;
    std::uint32_t operations_ = 0;
};

/// What tells calls with one sequence id apart before they run (8881 2.10.6.1.3.1): who sent it, and how it begins.
struct call_mark {
    call_mark() = default;
    /// Of a COMPOUND of `count` operations, of which `begins` follows SEQUENCE.
    call_mark(const rpc::principal& who, std::uint32_t count, bool kept,
              const call_digest::bytes_of& begins) noexcept;
    friend bool operator==(const call_mark&, const call_mark&) = default;

private:
    // Not hashed: nobody gets what another user's call was answered.
    std::uint32_t user_ = 0, group_ = 0;
    bool anonymous_ = true, kept_ = false;
    std::uint32_t operations_ = 0;
    call_digest begins_;
};

class session_table;
class slot_use;

/// One session. Shared by the calls that run on it. Any thread.
class session {
public:
    /// `id` is its own, `client` as the protocol calls it, `state` as the state layer does; `fore` is what was
    /// agreed on for calls. `must_reclaim`: it is a client of before the restart.
    session(const sessionid4& id, clientid4 client, files::client_id state, const channel_attrs4& fore,
            bool must_reclaim = false);

    const sessionid4& id() const noexcept { return id_; }
    clientid4 client() const noexcept { return client_; }
    /// The client in the state layer.
    files::client_id state() const noexcept { return state_; }
    const channel_attrs4& fore() const noexcept { return fore_; }
    /// Calls that may run at once; the client may have been asked to use fewer.
    std::uint32_t slots() const noexcept { return static_cast<std::uint32_t>(slots_.size()); }
    /// Whether the lease is to be renewed with this call: once a second is enough, and spares the way to the state layer.
    bool is_due(time_point now) noexcept
    {
        const auto at = now.time_since_epoch().count();
        const auto last = renewed_.load(std::memory_order_relaxed);
        if (last != 0 && at - last < duration(std::chrono::seconds(1)).count())
            return false;
        renewed_.store(at, std::memory_order_relaxed);
        return true;
    }
    /// The way back to the client.
    back_channel& back() noexcept { return back_; }
    const back_channel& back() const noexcept { return back_; }
    /// Whether something that the client holds was revoked and is not freed yet, as the state layer said with the last renewal.
    bool has_revoked() const noexcept { return revoked_.load(std::memory_order_relaxed); }
    /// What the state layer said with a renewal.
    void set_revoked(bool revoked) noexcept { revoked_.store(revoked, std::memory_order_relaxed); }
    /// Likewise, whether something ended with the client's lease, and the client has not asked what is left.
    bool has_lost_with_lease() const noexcept { return lost_with_lease_.load(std::memory_order_relaxed); }
    /// Likewise.
    void set_lost_with_lease(bool lost) noexcept { lost_with_lease_.store(lost, std::memory_order_relaxed); }
    /// Whether an administrator took some of what the client had, and it has not freed that
    /// (files::client_book::has_lost_by_admin()), as the state layer said last.
    bool has_lost_by_admin() const noexcept { return lost_by_admin_.load(std::memory_order_relaxed); }
    /// Notes what the state layer has said.
    void set_lost_by_admin(bool lost) noexcept { lost_by_admin_.store(lost, std::memory_order_relaxed); }
    /// Whether its client had lost all ways back with the last renewal: asked for by sessions that have had none.
    bool lost_all_ways() const noexcept { return lost_ways_.load(std::memory_order_relaxed); }
    /// Likewise.
    void set_lost_all_ways(bool lost) noexcept { lost_ways_.store(lost, std::memory_order_relaxed); }
    /// Whether its client has still to take back what it had before a restart of the server, or to say that it did.
    bool must_reclaim() const noexcept { return must_reclaim_.load(std::memory_order_relaxed); }
    /// Its client has said that it is done (RECLAIM_COMPLETE).
    void reclaimed() noexcept { must_reclaim_.store(false, std::memory_order_relaxed); }
    /// Calls that run on it.
    unsigned running() const noexcept { return running_.load(std::memory_order_seq_cst); }
    /// From now on no call begins on it: slot_use::begin() answers badsession. Who asks for running() behind this sees each call that
    /// began before.
    void end() noexcept { is_over_.store(true, std::memory_order_seq_cst); }
    /// Whether end() was called.
    bool is_over() const noexcept { return is_over_.load(std::memory_order_seq_cst); }
    /// A call of its has run until now. Said before its slot is free.
    void heard(time_point now) noexcept
    {
        heard_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
    }
    /// As files::state_handler has it.
    time_point last_heard() const noexcept
    {
        if (running() != 0)
            return time_point::max();
        return time_point(duration(heard_.load(std::memory_order_relaxed)));
    }
    /// What slots of a channel take at most, with the replies that they keep.
    static std::size_t bytes_of(const channel_attrs4& fore) noexcept;

private:
    friend class slot_use;
    struct slot {
        std::mutex lock;
        slot_number number;
        bool running = false;
        bool kept = false;           // `reply` is that call's
        slot_use* waiting = nullptr; // a repeat of it, while it runs
        call_mark mark;
        call_digest digest;                   // if `kept`
        std::vector<std::byte> reply;         // of COMPOUND, from its status on
        std::vector<xdr::payload_item> items; // in it, for who offers chunks for them
    };

    const sessionid4 id_;
    const clientid4 client_;
    const files::client_id state_;
    const channel_attrs4 fore_;
    std::vector<slot> slots_;
    std::atomic<unsigned> running_{0};
    std::atomic<bool> is_over_{false};
    std::atomic<duration::rep> renewed_{0};
    std::atomic<duration::rep> heard_{time_point::min().time_since_epoch().count()};
    std::atomic<bool> revoked_{false};
    std::atomic<bool> lost_with_lease_{false};
    std::atomic<bool> lost_by_admin_{false};
    std::atomic<bool> lost_ways_{false};
    back_channel back_;
    std::atomic<bool> must_reclaim_;
};

/// A call's hold of its slot.
class slot_use final : remote_message {
public:
    slot_use() = default;
    slot_use(const slot_use&) = delete;
    /// A call that was not finished never was, unless it counts(): its repeat runs.
    ~slot_use();

    /// `mark` is equal for repeats of a call, and differs where a peer uses a sequence id for two. `of` outlives this.
    slot_verdict begin(session& of, const SEQUENCE4args& args, const call_mark& mark);
    /// What first_ends() returns.
    class [[nodiscard("co_await it: nothing waits here otherwise")]] awaiter {
    public:
        awaiter(slot_use& u, reactor& here) noexcept : use_(u), here_(here) {}
        bool await_ready() { return !use_.stands_in_line(here_); }
        template<class Promise>
        void await_suspend(std::coroutine_handle<Promise> h) noexcept
        {
            use_.mark_.set(h, "the first run of the same call");
            use_.suspended_ = h;
        }
        void await_resume() const noexcept {}

    private:
        slot_use& use_;
        reactor& here_;
    };
    /// After slot_verdict::joins. One call may wait for a slot.
    /// Completes when: the first run has ended, or another repeat waits for it; then the slot is asked again. On cancel: it waits on, for the
    /// end of that run, which a stop ends. Errors: none. Lifetime: this outlives the wait. Shard: that of `here`.
    awaiter first_ends(reactor& here) noexcept { return {*this, here}; }
    nfsstat4 status() const noexcept { return status_; }
    /// finish(), unless a repeat waits for the end of this run. False: one does, and nothing is done.
    bool finish_unless_waited_for();
    /// Of slot_verdict::repeat: the whole reply, and the places of data items in it.
    std::span<const std::byte> reply() const noexcept { return reply_; }
    std::span<const xdr::payload_item> items() const noexcept { return items_; }
    /// Likewise: of the call that was run.
    const call_digest& digest() const noexcept { return digest_; }
    /// Of this one, while it runs: an operation that was read.
    void note(nfs_opnum4 operation, const call_digest::bytes_of& bytes) noexcept
    {
        digest_.add(operation, bytes);
    }
    /// Instead: all operations that were read.
    void set_digest(const call_digest& all) noexcept { digest_ = all; }
    /// The call has changed something: whatever becomes of it, it does not run again.
    void counts() noexcept { counts_ = true; }
    /// The call has run, and nothing is kept.
    void finish();
    /// The call has run. `reply` is copied; `items` say where data items lie in it, each by its `position`.
    void finish(std::span<const std::byte> reply, std::span<const xdr::payload_item> items);

private:
    void end(session::slot& s, bool kept) noexcept;
    bool stands_in_line(reactor& here);
    void deliver() noexcept override;
    static void wake(session::slot& s) noexcept;

    reactor* here_ = nullptr;
    std::coroutine_handle<> suspended_;
    wait_mark mark_;
    call_mark call_;
    session* session_ = nullptr;
    std::uint32_t slot_ = 0;
    bool running_ = false;
    bool counts_ = false;
    // The slot's, for a repeat of the call before where this one never was.
    call_mark mark_before_;
    slot_number number_before_;
    nfsstat4 status_ = nfsstat4::ok;
    call_digest digest_;
    std::vector<std::byte> reply_;
    std::vector<xdr::payload_item> items_;
};

/// All clients and sessions of a server. Any thread.
class session_table {
public:
    /// `epoch` differs from start to start, so that what an earlier one gave out is known as stale. `lease`: how long a client that
    /// is not confirmed is kept.
    session_table(const siphash_key& key, std::uint32_t epoch, duration lease, session_limits limits = {});

    const session_limits& limits() const noexcept { return limits_; }

    /// Which limit was met: what its owner can do without may be given back, and the question asked again.
    enum class shortage : std::uint8_t { none, of_peer, of_all };
    /// What exchange_id() answers.
    struct exchanged {
        nfsstat4 status = nfsstat4::ok; ///< of the operation
        clientid4 client = 0;           ///< which the answer names
        std::uint32_t sequence = 0;     ///< of the next CREATE_SESSION
        bool confirmed = false;         ///< it has confirmed before: EXCHGID4_FLAG_CONFIRMED_R
        /// With a refusal: whose it is. After CLID_INUSE the state layer ends what the rival has, if the rival gives
        /// way; after DELAY it is asked whether the rival's lease is over. Then the question is asked again, with
        /// `yields`.
        files::client_id rival = files::nobody;
        std::string held_by; ///< with a refusal for its name: where the client that has it came from
        shortage short_of = shortage::none;
    };
    /// The decision table of 8881 18.35.4. Besides, nobody ends what a client has whose lease runs from another address. A client that is
    /// not confirmed gives way to the next one of its peer group, where that has used up its share, and to anybody's where the table
    /// is full. Whoever confirmed is in nobody's way.
    exchanged exchange_id(const client_owner4& owner, bool update, principal_digest who,
                          std::string_view from, time_point now, files::client_id yields = files::nobody);

    /// CREATE_SESSION in two parts: between them the client is made known to the state layer. Others that want to create a session of
    /// that client meanwhile are told to come again.
    struct creation {
        nfsstat4 status = nfsstat4::ok;
        std::optional<CREATE_SESSION4res> repeat; ///< answers the call
        shortage short_of = shortage::none;
        bool confirms = false;
        std::string key;                        ///< of the client in the state layer, if it confirms
        files::client_id state = files::nobody; ///< in the state layer, unless it confirms
        files::client_id older =
            files::nobody; ///< to be forgotten, if it confirms: the client before its restart
        /// What is answered instead, for as long as that one doesn't yield: it may have come back since EXCHANGE_ID.
        nfsstat4 stands_against = nfsstat4::ok;
        std::string held_by; ///< with that: where that one came from
    };
    /// Unless it answers the call, a `creating` follows, and in its life end_creation() or nothing.
    creation begin_creation(const CREATE_SESSION4args& args, principal_digest who, time_point now);
    /// `must_reclaim`: a client that it confirms has to take back what it had, or to say that it did. `back`: the client can be called
    /// over the connection that it asks on, and a back channel is granted.
    CREATE_SESSION4res end_creation(const CREATE_SESSION4args& args, files::client_id state,
                                    bool must_reclaim, bool back);
    /// One that came to nothing after begin_creation(), in the life of its `creating`. Its number is used up and its
    /// repeats are answered so (8881 18.36.4), but for what is to be tried again, what is nobody's, and TOOSMALL:
    /// pynfs' CSESS29 asks again with the number of a channel that was too small. Nor does who is not the client's
    /// user use up its numbers. begin_creation() notes its own refusals.
    void refuse_creation(const CREATE_SESSION4args& args, nfsstat4 why) noexcept;
    /// The client has, and says so.
    void reclaimed(clientid4 client);
    /// A creation that has begun; with it that goes, done or not.
    class creating {
    public:
        /// Follows begin_creation() that did not answer the call; `t` outlives it.
        creating(session_table& t, clientid4 client) noexcept : table_(t), client_(client) {}
        creating(const creating&) = delete;
        ~creating() { table_.leave_creation(client_); }

    private:
        session_table& table_;
        const clientid4 client_;
    };
    /// What a channel of the client's is granted; toosmall where nothing could be said over it.
    nfsstat4 grant(const channel_attrs4& asked, channel_attrs4& granted) const noexcept;

    /// Nothing if there is no such session.
    std::shared_ptr<session> find(const sessionid4& id) const;
    /// Those of a client of the state layer.
    std::vector<std::shared_ptr<session>> of(files::client_id state) const;
    /// Whether the client can be called over none of them, though it could over one of them before (8881 18.46.3). A
    /// client that has never had a back channel asked for none, or can't have one.
    bool lost_all_ways_to(clientid4 client) const noexcept;
    /// When the client was last heard from over one of them, as files::state_handler has it.
    time_point last_heard(files::client_id state) const noexcept;
    /// badsession, also of a client that somebody else made; delay while more than `own` calls run on it.
    nfsstat4 destroy_session(const sessionid4& id, principal_digest who, unsigned own);
    /// stale_clientid, also of one that somebody else made; clientid_busy while it has sessions. Otherwise its state can be asked
    /// about, and forget() follows.
    nfsstat4 may_destroy_client(clientid4 client, principal_digest who, files::client_id& state) const;
    /// The client and its sessions are no more.
    void forget(clientid4 client);
    /// Who a client of the state layer is, and what it does.
    struct name {
        clientid4 client = 0;      ///< 0: nobody
        bool creating = false;     ///< a session of it is being created just now
        bool running = false;      ///< a call runs on one of its sessions
        bool has_sessions = false; ///< so that it has something while its lease runs
    };
    /// Who the client is by this table; zeros if nobody has that name. Any thread.
    name name_of(files::client_id state) const;
    /// The names in the state layer of a peer group's clients.
    std::vector<files::client_id> states_of(std::string_view from) const;
    /// Where the client that is called so in the state layer came from; empty for none. Any thread.
    std::string address_of(files::client_id state) const;
    /// A client, for people.
    struct client_report {
        std::string name; ///< its own for itself: any octets
        clientid4 client = 0;
        std::string from; ///< the address that it came from
        bool confirmed = false;
        std::size_t sessions = 0;
        time_point heard{}; ///< last, over one of its sessions; or when it said its name
        files::client_id state = files::nobody;
        std::optional<std::uint32_t> minor; ///< version of its first session
    };
    /// Up to `most` names in their order, from the one behind `name` on or from the first one on, each with the client that has it,
    /// and the one that is about to take its place. Empty: there are no more. Holds the table for as long. Any thread.
    std::vector<client_report> clients_behind(const std::optional<std::string>& name, std::size_t most) const;
    /// The client goes if it is not confirmed. False: it is, or is about to be.
    bool drop_unconfirmed(clientid4 client);
    /// Of what is given from now on. Any thread.
    void set_limits(const changeable_session_limits& limits) noexcept
    {
        static_cast<changeable_session_limits&>(limits_) = limits;
    }
    /// Whose limits the peer at `from` shares.
    std::string group_of(std::string_view from) const { return peer_group(from, limits_.v6_prefix); }
    /// Whether it is time to look for what can be given back: once a second for each peer group, and once for all.
    bool may_expire_lapsed(shortage of, std::string_view from, time_point now);
    /// A client that did not go on within a lease is not waited for (8881 18.35.4).
    void drop_unconfirmed(time_point now);

    /// Clients, those that are not confirmed too. Any thread.
    std::size_t clients() const;
    /// Owners that clients have named: each has a client.
    std::size_t names() const;
    /// Sessions of all clients. Any thread.
    std::size_t sessions() const;
    /// What slots take, and may keep.
    std::size_t slot_bytes() const;

private:
    using ids = std::list<clientid4>;
    struct peer_entry {
        std::size_t clients = 0, sessions = 0, slot_bytes = 0;
        ids unconfirmed; // by age
        seldom last_expired;
    };
    using peer_map = std::map<std::string, peer_entry, std::less<>>;
    struct client {
        clientid4 id = 0;
        std::string owner;
        verifier4 verifier{};
        principal_digest who = 0;
        std::string from;
        peer_map::iterator peer;
        bool confirmed = false;
        bool creating = false;
        bool must_reclaim = false;
        std::uint32_t sequence = 0; // of the last CREATE_SESSION
        CREATE_SESSION4res last;
        files::client_id state = files::nobody;
        std::vector<sessionid4> sessions;
        time_point exchanged;
        ids::iterator by_age, by_age_of_peer; // unless it is confirmed
    };
    struct owner_entry {
        clientid4 confirmed = 0;
        clientid4 unconfirmed = 0;
    };
    bool runs_something(const client& c) const noexcept;
    time_point heard_from(const client& c) const noexcept;
    static void refuse(client& c, const CREATE_SESSION4args& args, nfsstat4 why) noexcept;
    static nfsstat4 stands_against(const client& holder, const verifier4& verifier,
                                   const std::string& group) noexcept;
    client* find_client(clientid4 id) noexcept;
    const client* find_client(clientid4 id) const noexcept;
    void erase(clientid4 id);
    void erase_session(const sessionid4& id);
    void release(peer_map::iterator peer);
    void drop_old(time_point now);
    bool drop_first(const ids& of);
    shortage make_room(peer_entry& peer, time_point now);
    shortage grant_slots(const client& c, channel_attrs4& granted) const noexcept;
    void leave_creation(clientid4 client) noexcept;
    clientid4 make_client_id();
    sessionid4 make_session_id();

    mutable std::mutex lock_;
    const siphash_key key_;
    const std::uint32_t epoch_;
    const duration lease_;
    session_limits limits_;
    std::unordered_map<clientid4, client> clients_;
    std::unordered_map<files::client_id, clientid4> by_state_;
    std::map<std::string, owner_entry, std::less<>> owners_;
    std::map<sessionid4, std::shared_ptr<session>> sessions_;
    peer_map peers_;
    ids unconfirmed_; // by age
    std::size_t slot_bytes_ = 0;
    seldom last_expired_;
    std::uint32_t last_client_ = 0;
    std::uint64_t last_session_ = 0;
};

/// The sessions that calls of one shard used last: found without the lock of the table, which all shards share. A session ends all the same;
/// what is kept of one that did is the object, without its slots. Shard-local.
class recent_sessions {
public:
    /// Outlived by `all`.
    explicit recent_sessions(const session_table& all) noexcept : all_(all) {}
    /// As session_table::find().
    std::shared_ptr<session> find(const sessionid4& id);

private:
    struct place {
        sessionid4 id{};
        std::weak_ptr<verbena::nfs::v4::session> session;
    };
    const session_table& all_;
    std::array<place, 64> places_;
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
