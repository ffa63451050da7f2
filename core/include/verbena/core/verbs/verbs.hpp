// SPDX-License-Identifier: Apache-2.0
// The provider-neutral verbs interface. Everything above the transports is written against this.
//
// docs/internals/verbs.md maps each operation to ibv_*/rdma_* and says what rxe, siw, mlx5 and cxgb4
// lack. A device is the process's, and so are its domains, regions and grants: any shard makes and uses
// them, and revokes them. A context is the device on one shard, and what it makes is that shard's: queue
// pairs, listeners, requests to connect. Wherever the interface says "posts", the call does not block and
// does not resume anyone; the outcome arrives as a completion. What may have to ask the kernel, or another
// shard, is a task; a provider that places in software finishes it without suspending where no other shard
// has to be asked.
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/core/verbs/byte_store.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::verbs {

/// How a work request ended. The names follow ibv_wc_status.
enum class status : std::uint8_t {
    success,
    local_length_error,     ///< a message longer than the receive that took it
    local_protection_error, ///< the local buffer isn't registered for this
    work_request_flushed,   ///< the queue pair left the connected state first
    remote_invalid_request,
    remote_access_error, ///< the peer refused the steering tag, range or access
    remote_operation_error,
    retry_exceeded,     ///< the peer or the path is gone
    rnr_retry_exceeded, ///< the peer had no receive posted
    fatal_error,
};
/// The word for a status, as in logs and metrics. A literal.
std::string_view to_string(status s) noexcept;
/// The category of codes that are a status.
const std::error_category& status_category() noexcept;
/// So a status stands in an error: error(make_error_code(s)).
std::error_code make_error_code(status s) noexcept;

/// How a connection ended where nothing went wrong. Its other ends have codes of errno or of status.
enum class connection_end : std::uint8_t { orderly = 1 };
/// So an orderly end stands in an error. Its category is "connection".
std::error_code make_error_code(connection_end e) noexcept;

/// What was asked for (work requests) or what happened (completions).
enum class opcode : std::uint8_t {
    send,
    send_with_invalidate,
    rdma_write,
    write_with_immediate, ///< a Write that takes a receive at the peer and tells it 32 bits
    send_with_immediate,  ///< a Send that tells the peer 32 bits as well; see capabilities::immediates_apart
    rdma_read,
    local_invalidate,
    bind, ///< gives a renewable grant its next_key(): what stands behind this in the send queue may tell the peer of it
    unbind, ///< takes a renewable grant's key away: once this has completed, no byte is placed under it
    receive,
    /// Completions only: a receive into whose memory nothing came, and 32 bits. A write_with_immediate took it, or the second half
    /// of a send_with_immediate (capabilities::immediates_apart).
    receive_immediate,
    receive_with_immediate, ///< completions only: a receive that a send_with_immediate took, with its bytes and 32 bits
};
/// Whether the completion took a receive.
constexpr bool is_receive(opcode o) noexcept { return o >= opcode::receive; }
/// Whether it changes the key of a renewable grant.
constexpr bool is_renewal(opcode o) noexcept { return o == opcode::bind || o == opcode::unbind; }
/// Whether the completion has 32 bits in completion::immediate.
constexpr bool has_immediate(opcode o) noexcept { return o >= opcode::receive_immediate; }

/// What a peer, or this end, may do with memory. A bit set.
enum class access : std::uint8_t { local_write = 1, remote_read = 2, remote_write = 4 };
constexpr access operator|(access a, access b) noexcept { return access(unsigned(a) | unsigned(b)); }
/// Whether all rights in `want` are among those in `have`.
constexpr bool allows(access have, access want) noexcept
{
    return (unsigned(have) & unsigned(want)) == unsigned(want);
}

/// Local memory of a work request. `local_key` is that of its region; 0 has the provider find the region by the
/// address, among the pools and regions of the domain.
struct segment {
    std::byte* address = nullptr; ///< local; of registered memory, where the device needs that
    std::uint32_t length = 0;     ///< bytes
    std::uint32_t local_key = 0;  ///< region::local_key(), or 0
};

/// A range of memory that a peer may touch, as the wire names it.
struct remote_segment {
    std::uint32_t key = 0;     ///< steering tag, or remote key
    std::uint32_t length = 0;  ///< bytes
    std::uint64_t address = 0; ///< as the device addresses it; not a pointer of this process
};

class grant;

/// What queue_pair::post_send() posts. It is copied: only what the fields point at has to stay.
struct send_request {
    std::uint64_t id = 0;                ///< comes back in the completion
    verbs::opcode opcode = opcode::send; ///< what is to be done
    bool signalled = true;               ///< false: no completion on success; retired by a later one
    bool fence = false;                  ///< waits for earlier RDMA Reads of this queue pair
    /// The data is copied when it is posted: at most max_inline bytes, which need no registration and are the
    /// caller's again when post_send() returns. Not for rdma_read.
    bool inline_data = false;
    std::span<const segment> segments; ///< read when the request is posted; may die afterwards
    std::uint64_t remote_address = 0;  ///< rdma_write, write_with_immediate, rdma_read
    std::uint32_t remote_key = 0;      ///< the peer's, for the same opcodes
    std::uint32_t invalidate_key = 0;  ///< send_with_invalidate: the peer's key; local_invalidate: ours
    std::uint32_t immediate = 0;       ///< write_with_immediate, send_with_immediate
    /// bind, unbind: of this queue pair's domain, made on any shard, used by one queue pair at a time; outlives the completion.
    verbs::grant* grant = nullptr;
};

/// What queue_pair::post_receive() posts: memory for one message.
struct receive_request {
    std::uint64_t id = 0;   ///< comes back in the completion
    verbs::segment segment; ///< stays, with its registration, until the completion
};

/// How a work request ended, or what came into a receive.
struct completion {
    std::uint64_t id = 0;                   ///< of the request
    verbs::status status = status::success; ///< success, or why not
    verbs::opcode opcode = opcode::send;    ///< of the request; for receives what came
    std::uint32_t length = 0; ///< receives and rdma_read: bytes placed; receive_immediate: bytes written
    std::uint32_t invalidated_key = 0; ///< receive: the local key the peer invalidated, or 0
    std::uint32_t immediate = 0;       ///< receive_immediate, receive_with_immediate
    std::uint32_t vendor_error = 0;    ///< the provider's own code, 0 if none
};

/// What a provider can do. Asked once, at set-up; nothing above may assume more.
struct capabilities {
    std::string_view provider;         ///< as "rdma", "iwarp", "loop"; a literal
    bool remote_invalidate = false;    ///< send_with_invalidate works in both directions
    bool grant_per_queue_pair = false; ///< a grant can be limited to one queue pair
    bool write_with_immediate = false; ///< opcode::write_with_immediate works
    bool send_with_immediate = false;  ///< opcode::send_with_immediate works
    /// true (iWARP, RFC 7306): a send_with_immediate comes as two messages that follow each other, and takes two receives: a `receive`
    /// with its bytes, then a `receive_immediate` of length 0. false: one receive, a `receive_with_immediate`.
    bool immediates_apart = false;
    bool renewable_grants = false; ///< grant_request::renewable, opcode::bind and opcode::unbind work
    /// And what these two ask for has happened when post_send() returns, where protection_domain::renews_at_once() says so.
    bool renews_at_once = false;
    bool local_invalidate = false; ///< opcode::local_invalidate works
    bool grants_stores = false;    ///< grant_request::store works
    /// Contexts of one device on several shards may use one domain.
    bool domains_across_shards = false;
    bool shared_receives = false; ///< make_shared_receive_queue() works
    /// shared_receive_queue_options::supply works: a Send that finds no receive in a shared queue waits, and its peer with it, until
    /// there is one. false (rdma): it is as where a queue pair of its own has none.
    bool receives_on_demand = false;
    bool needs_local_keys = false;             ///< segments must lie in registered memory
    bool read_sink_needs_remote_write = false; ///< iWARP (RFC 5040 5.2): a Read's sink key travels
    bool receive_not_ready_retry = false;      ///< false: a Send without a posted receive is fatal (iWARP)
    /// true: success of a Send or Write tells that the peer's end took it. false (iWARP): only that its memory is
    /// free again; what the peer refuses shows as the end of the connection.
    bool completion_means_delivered = false;
    /// A peer's RDMA Read needs access::remote_read. false (the kernel's siw): whoever knows the key of memory of the
    /// domain, even of memory registered for local use alone, can read that memory.
    bool checks_read_rights = false;
    /// A peer reaches only what its grant covers. false (the kernel's rxe, where grants are memory windows): all of the
    /// region that the grant lies in.
    bool checks_grant_bounds = false;
    /// connect_options::responder_resources of the end that accepts is the most Reads that the peer may send at once.
    /// false (the kernel's siw): the peer gets as many as it asks for, up to max_outstanding_reads.
    bool bounds_peer_reads = false;
    /// The provider finds out by itself, in time, that the peer of an idle connection is gone (TCP keep-alive).
    bool notices_dead_peers = false;
    std::uint32_t max_inline = 0;            ///< bytes of send_request::inline_data
    std::uint32_t max_send_segments = 1;     ///< of a Send or Write
    std::uint32_t max_read_segments = 1;     ///< of a Read
    std::uint32_t max_outstanding_reads = 1; ///< largest ORD and IRD
    std::uint32_t max_message = 0x40000000;  ///< bytes of one request
    std::uint32_t max_private_data = 56;     ///< bytes of the ULP's own, both ways
    bool private_data_padded = false; ///< zeros follow it where it arrives (InfiniBand's connection manager)

    bool operator==(const capabilities&) const = default;
};

/// Registered local memory, for requests of queue pairs on any shard; the memory must outlive it and every request that names it.
/// Destroying it takes the registration back, which may ask the kernel (tens of microseconds). On the shard that registered it.
class region {
public:
    virtual ~region() = default;
    /// What segment::local_key is set to for this memory. Of the device, for any shard.
    virtual std::uint32_t local_key() const noexcept = 0;
};

class queue_pair;

/// Keeps memory where it is for as long as a device may touch it: a buffer, a share in any object, or nothing.
using memory_owner = std::variant<std::monostate, lease, std::shared_ptr<const void>>;

/// A grant as its device has it: for providers.
class grant_slot {
public:
    /// The memory as the peer names it.
    virtual remote_segment where() const noexcept = 0;
    /// Whether the peer can reach the memory now.
    virtual bool valid() const noexcept = 0;
    /// As grant::next_key(); 0 where the grant is not renewable.
    virtual std::uint32_t next_key() noexcept { return 0; }
    /// Nobody holds it any more, and nobody has revoked it: the device does, when it can.
    virtual void drop() noexcept = 0;

protected:
    ~grant_slot() = default;
};

/// Permission for a peer to touch a range: a slot in its device's table, which whoever holds this has. protection_domain::revoke()
/// takes it back and waits until no byte is read or placed under its key any more. A grant that is destroyed is dropped instead: no
/// access begins under its key any more, and the device lets go of grant_request::keep when those that had begun are over. So a
/// grant of memory that nothing keeps is revoked. The domain outlives it. On one shard at a time, which may be any.
class grant {
public:
    grant() noexcept = default;
    /// For providers: the slot is the grant's from now on.
    explicit grant(grant_slot& slot) noexcept : slot_(&slot) {}
    grant(grant&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
    grant& operator=(grant&& other) noexcept
    {
        if (this != &other) {
            drop();
            slot_ = std::exchange(other.slot_, nullptr);
        }
        return *this;
    }
    ~grant() { drop(); }

    /// Whether there is one: it was made, and neither revoked nor moved elsewhere.
    explicit operator bool() const noexcept { return slot_ != nullptr; }
    /// What the peer is told, so that it can reach the memory; zeros if there is no grant. It changes when the
    /// grant is renewed.
    remote_segment where() const noexcept { return slot_ != nullptr ? slot_->where() : remote_segment{}; }
    /// True while the key works: there is one, and the peer has not invalidated it. What the peer of another queue pair
    /// invalidated is to be revoked all the same before its memory is used for something else.
    bool valid() const noexcept { return slot_ != nullptr && slot_->valid(); }
    /// Of a renewable grant: the key that the next opcode::bind gives it, to be asked for each time once the one before has
    /// completed. 0: none can be posted.
    std::uint32_t next_key() noexcept { return slot_ != nullptr ? slot_->next_key() : 0; }
    grant_slot* slot() const noexcept { return slot_; }
    /// For providers: the slot is theirs again, and not dropped.
    grant_slot* release() noexcept { return std::exchange(slot_, nullptr); }

private:
    void drop() noexcept
    {
        if (slot_ != nullptr)
            std::exchange(slot_, nullptr)->drop();
    }
    grant_slot* slot_ = nullptr;
};

/// What protection_domain::make_grants() is asked for, and its outcome.
struct grant_request {
    std::span<std::byte> memory; ///< below 4 GiB; stays alive until the grant is revoked
    /// In place of memory: `store_length` bytes of it from `store_offset` on, which the peer's accesses read and write by calls. What
    /// can't be written is dropped, and the connection lives on: byte_store::write_failure() tells. What can't be read ends the connection. An
    /// RDMA Read finds what earlier Writes of its connection wrote. Shared until the grant has gone.
    std::shared_ptr<byte_store> store;
    std::uint64_t store_offset = 0;      ///< bytes
    std::uint32_t store_length = 0;      ///< bytes
    access rights = access::remote_read; ///< what the peer may do with the memory
    /// The peer of this queue pair, which is of the shard that makes the grant, alone may use it; nullptr: that of any queue pair of the
    /// domain. Providers without grant_per_queue_pair refuse the former.
    queue_pair* scope = nullptr;
    /// opcode::unbind takes its key away, and opcode::bind gives it another one, as often as one likes; nothing is allocated for
    /// that. For such as have no scope.
    bool renewable = false;
    /// The memory is registered for this grant, where the device needs that, and no more when it has been revoked: so it may be memory that
    /// is not registered, and the device checks the bounds whatever capabilities::checks_grant_bounds says. It costs a call of the kernel
    /// each way, and locks all pages at once. For such as have no scope and are not renewable.
    bool own_region = false;
    memory_owner
        keep; ///< goes when the grant has been revoked, also if it was dropped, or could not be made; on any shard
    grant made; ///< the outcome
};

/// Gives a shared receive queue its receives when they are needed, where capabilities::receives_on_demand is set: so connections on
/// which nothing comes cost no memory. Called from the shard's poll phase: it resumes nobody.
class receive_supply {
public:
    /// A message begins to arrive, and no receive stands. Posts one now, if there is memory. Else the queue pair reads nothing more, so
    /// that its peer is held back (by TCP), until a receive is posted; each that is posted goes to whoever has waited longest.
    virtual void receive_wanted() noexcept = 0;
    /// A receive that a queue pair had in reserve, and did not need, is the owner's again. No completion tells of it.
    virtual void receive_returned(std::uint64_t id) noexcept = 0;

protected:
    ~receive_supply() = default;
};

/// The times in which a queue pair held its peer back, since there was no receive for a message (receive_supply).
struct receive_pauses {
    bool lasts = false; ///< it does so now
    time_point begun;   ///< if so: since then
    duration over{0};   ///< those before, together
};

/// What a shared receive queue is made with.
struct shared_receive_queue_options {
    std::uint32_t depth = 1024;       ///< receives that stand at once, at most
    receive_supply* supply = nullptr; ///< where receives_on_demand is set; outlives the queue
};

/// Receives that stand for several queue pairs of its domain, which it must outlive. What a Send takes completes at
/// the queue pair that it came to. A queue pair's end flushes what it has taken and none of those that stand.
///
/// With a supply, a queue pair with RDMA Reads under way takes a receive in advance: a Send that waited for memory would hold up the
/// Read Responses behind it. A Read waits until there is that receive.
class shared_receive_queue {
public:
    virtual ~shared_receive_queue() = default;
    /// ENOBUFS (and nothing posted) when there is no room for all. Memory must stay until the completion, or until
    /// the queue has been destroyed; of a batch that fails otherwise the first stand, as many as standing() has grown by.
    virtual result<void> post_receive(std::span<const receive_request> batch) = 0;
    /// Receives that nothing has taken.
    virtual std::uint32_t standing() const noexcept = 0;
};

/// Memory of a device and the queue pairs that may use it, on whichever shards they are. Outlives both, and its grants; destroyed while
/// no shard has anything under way with it.
///
/// This holds for all its tasks. Completes when: the kernel or the device has answered; a provider that places in software ends
/// without suspending, but for what revoke() may wait for. On cancel: it goes on to its end, as what has begun can't be recalled.
/// Errors: those named below, and what else the kernel or device answers. Lifetime: the domain, and what a task is given, outlive
/// the task. Shard: any that has a reactor; where capabilities::domains_across_shards is not set, that of the context which made
/// the domain.
class protection_domain {
public:
    virtual ~protection_domain() = default;
    /// Registers memory for local access; its key never leaves the process. Errors: ENOMEM with the cure when memlock is spent.
    virtual task<result<std::unique_ptr<region>>> register_memory(std::span<std::byte> memory) = 0;
    /// Registers what `pool` holds, and what it takes from the system later, until one of the two goes. Both are of one shard. A pool
    /// that is registered already stays so, once: whoever uses the two together adds it, and none of them needs to know of the others.
    /// Needed where needs_local_keys is set, before a buffer of the pool is named in a request. Completes when: at once; the
    /// shard waits for the kernel meanwhile. Errors: ENOMEM when memlock is spent.
    virtual task<result<void>> add_pool(buffer_pool& pool) = 0;
    /// Whether all of it lies in memory that is registered here, so that it may be granted or named in a request.
    virtual bool is_registered(std::span<const std::byte> memory) const noexcept = 0;
    /// Makes each grant of the batch, or none. Memory lies in registered memory where needs_local_keys is set, but for
    /// grant_request::own_region. Errors: EINVAL:
    /// memory that doesn't, or of 4 GiB; EOPNOTSUPP: a scope that the provider can't hold to, or none, in a domain whose queue
    /// pairs use several devices; renewable where renewable_grants is not set; a store where grants_stores is not set; ENOTCONN: a scope that is not connected; ENOMEM: no more windows or registrations. Lifetime:
    /// the batch, and the queue pairs in it, outlive the task.
    virtual task<result<void>> make_grants(std::span<grant_request> batch) = 0;
    /// Takes each grant of the batch back, some of which may be none. Completes when: no byte is read or placed under any key that
    /// they ever had, and their slots are the device's again; without suspending where the peers of this shard's queue pairs alone
    /// could use them. Connections that still owe their peer bytes of such memory end. An access to a store that is under way is waited
    /// for, however long its disk takes. Errors: none; std::bad_alloc leaves grants as
    /// they were, or revoked.
    virtual task<void> revoke(std::span<grant> batch) = 0;
    /// Whether opcode::bind and opcode::unbind, posted to a queue pair of this shard, have happened when post_send() returns:
    /// where capabilities::renews_at_once is set, as long as all queue pairs of the domain are of one shard. Asked right before; a queue
    /// pair of another shard that comes behind that finds the old key gone. Shard: that queue pair's.
    virtual bool renews_at_once() const noexcept = 0;
    /// Errors: EOPNOTSUPP where shared_receives is not set, or nothing says which of several devices is meant; ENODEV: it went.
    virtual task<result<std::unique_ptr<shared_receive_queue>>>
    make_shared_receive_queue(const shared_receive_queue_options& options) = 0;

    /// One grant: as make_grants().
    task<result<grant>> make_grant(std::span<std::byte> memory, access rights, queue_pair* scope,
                                   memory_owner keep = {});
};

/// Hears the completions of one queue pair. Called from the shard's poll phase: it notes them and posts
/// work; it must not resume coroutines nor destroy the queue pair. It may post and end the connection: the
/// flush then follows the batch at hand.
class completion_handler {
public:
    /// One batch, in order per direction. The handler takes the whole batch, whatever it finds in it and whether it
    /// ends the connection on the way: no completion is told twice, and each may be what a task waits for or what
    /// memory hangs on.
    virtual void on_completions(std::span<const completion> batch) noexcept = 0;
    /// The connection ended; every request outstanding has been flushed before. Called once. `cause` is
    /// connection_end::orderly when one of the two ends closed it between messages by disconnect(). After kill() it is what
    /// kill() was given at that end, and an error at the other, but on an RDMA device: its connection manager has one word for both.
    virtual void on_disconnected(const error& cause) noexcept = 0;

protected:
    ~completion_handler() = default;
};

/// What a queue pair is made with.
struct queue_pair_options {
    std::uint32_t send_depth = 256;    ///< requests posted and not completed at once, at most
    std::uint32_t receive_depth = 256; ///< receives that stand at once, at most
    /// Receives come from here, and the queue pair has none of its own.
    shared_receive_queue* shared_receives = nullptr;
};

/// A connected (or once connected) reliable connection. Destroying it kills it: the peer sees the
/// connection end, and no memory named by outstanding requests is touched afterwards.
class queue_pair {
public:
    virtual ~queue_pair() = default;

    /// Where completions go, from now on; set before the first turn after accept/connect.
    virtual void set_handler(completion_handler* handler) noexcept = 0;
    /// Posts a batch with one doorbell. ENOBUFS (and nothing posted) when the send queue has no room for
    /// all; ENOTCONN after the end. Memory must stay until the request's completion, or, if unsignalled, that
    /// of a later signalled one.
    virtual result<void> post_send(std::span<const send_request> batch) = 0;
    /// ENOBUFS (and nothing posted) when there is no room for all; EINVAL where receives are shared.
    virtual result<void> post_receive(std::span<const receive_request> batch) = 0;
    /// Orderly end: what was posted drains, then the connection closes. on_disconnected() follows.
    virtual void disconnect() noexcept = 0;
    /// Ends it now; outstanding requests flush, and on_disconnected() has been called when this returns (except
    /// inside on_completions(): after it).
    virtual void kill(const error& cause) noexcept = 0;
    /// As kill(), but where the end of a queue pair takes its time it does not hold the shard: on_disconnected() follows, before
    /// this returns or later, and nothing more can be posted. For what a peer can cause.
    virtual void abort(const error& cause) noexcept { kill(cause); }

    /// Whether requests can be posted: after accept() or connect(), until the end. On the shard.
    virtual bool connected() const noexcept = 0;
    /// The domain that it was made in, which outlives it.
    virtual protection_domain& domain() noexcept = 0;
    /// Largest number of RDMA Reads this end may have outstanding (ORD), as negotiated.
    virtual std::uint32_t max_reads() const noexcept = 0;
    /// What the peer answers meanwhile, as RDMA Reads, may stand behind the message that waits.
    virtual receive_pauses pauses() const noexcept { return {}; }
    /// "192.0.2.7:1023" and the like.
    virtual std::string_view peer_name() const noexcept = 0;
    /// The peer's address without port, canonical text: the duplicate-request cache and access rules key on it.
    virtual std::string_view peer_address() const noexcept = 0;
};

/// How context::connect() connects.
struct connect_options {
    /// stays until connect() has ended; capabilities::max_private_data bytes at most
    std::span<const std::byte> private_data;
    std::uint32_t initiator_depth = 16;          ///< RDMA Reads we may send at once (ORD)
    std::uint32_t responder_resources = 16;      ///< RDMA Reads the peer may send at once (IRD)
    queue_pair_options queue_pair;               ///< of the queue pair that is made
    duration timeout = std::chrono::seconds(10); ///< then connect() fails
};

/// A peer that wants in, on its way to the shard that will serve it. Destroying it refuses the peer. One shard at a time.
class arrival {
public:
    virtual ~arrival() = default;
    /// Of its connect request.
    virtual std::span<const std::byte> private_data() const noexcept = 0;
};

/// A peer that wants in. Destroying it unanswered closes the connection.
///
/// This holds for all its tasks. Lifetime: the request, and what a task is given, outlive the task. Shard: that of the listener's
/// context.
class connect_request {
public:
    virtual ~connect_request() = default;
    /// What the peer said when it connected. Lives as long as the request; zeros may follow it
    /// (capabilities::private_data_padded).
    virtual std::span<const std::byte> private_data() const noexcept = 0;
    /// Canonical text without port, as queue_pair::peer_address().
    virtual std::string_view peer_address() const noexcept = 0;
    /// With port, for people.
    virtual std::string_view peer_name() const noexcept = 0;
    /// RDMA Reads the peer is ready to answer at once (its IRD): our ORD can't be more.
    virtual std::uint32_t peer_responder_resources() const noexcept = 0;
    /// Makes the queue pair, not yet connected: post its receives, then accept(). Once.
    ///
    /// Completes when: it is made, which may ask the kernel. On cancel: it goes on to its end. Errors: EINVAL: there is one
    /// already, or `domain` or options.shared_receives is of another device; ENODEV: the device went; what the kernel answers.
    virtual task<result<std::unique_ptr<queue_pair>>> make_queue_pair(protection_domain& domain,
                                                                      const queue_pair_options& options) = 0;
    /// Answers; the queue pair is connected when this returns success. After a failure on_disconnected() has been called, or will
    /// be: destroying the queue pair earlier may hold the shard.
    ///
    /// Completes when: the peer has confirmed, or options.timeout is over; loop and iwarp only send, and don't suspend. On
    /// cancel: the queue pair ends, ECANCELED. Errors: ETIMEDOUT; ECONNABORTED: the peer has given up, or the queue pair has
    /// ended before; EMSGSIZE: private data over max_private_data; EINVAL: make_queue_pair() comes first; ENODEV, ENOTSUP (RFC
    /// 6581 9.2), and what sending answers.
    virtual task<result<void>> accept(const connect_options& options) = 0;
    /// Refuses, with private data. Completes when: it is sent, without suspending. On cancel: no matter. Errors: EINVAL after
    /// make_queue_pair(); EMSGSIZE: private data over max_private_data; the peer is then refused without any, when the request is
    /// destroyed at the latest; what sending answers, and the request is over all the same.
    virtual task<result<void>> reject(std::span<const std::byte> private_data) = 0;
};

/// Listens on one address, or takes what is given to it by adopt(), for one shard. Used and destroyed there; no
/// task waits in next() then.
class listener {
public:
    virtual ~listener() = default;
    /// The next peer. One task at a time.
    ///
    /// Completes when: a peer wants in, or the listener is closed. On cancel: ECANCELED, which takes no peer away. Errors:
    /// ECANCELED, after close() too, and no other. Lifetime: the listener outlives the wait. Shard: that of its context.
    virtual task<result<std::unique_ptr<connect_request>>> next() = 0;
    /// Takes no more peers: next() fails, and peers that it has not yielded are dropped. Idempotent. Connections
    /// that were made go on.
    virtual void close() noexcept = 0;
    /// The address as bound, with the real port: "iwarp://127.0.0.1:20049".
    virtual std::string local_url() const = 0;
};

/// What a provider has in a process, on all its shards: domains, with their regions and grants. It outlives its contexts and its
/// domains, and is destroyed when no shard uses it any more.
class device {
public:
    virtual ~device() = default;
    /// What the provider can do on all shards. Lives as long as the device.
    virtual const capabilities& query() const noexcept = 0;
    /// `address`, if any: an address of this host, as text without port. Where there are several devices, a grant of the domain that is of
    /// no queue pair is of the one that has this address: its peers come to that. Asks the kernel for it. Any shard. Errors: EINVAL: no
    /// address; ENODEV: no device has it.
    virtual result<std::unique_ptr<protection_domain>> make_domain(std::string_view address = {}) = 0;
};

/// A device on one shard: where its listeners and queue pairs come from. Destroyed behind these and, where needs_local_keys is set, behind
/// the domains that were used on its shard.
class context {
public:
    virtual ~context() = default;
    /// What the provider can do here. Lives as long as the context.
    virtual const capabilities& query() const noexcept = 0;
    /// The reactor that the context was made for, which outlives it.
    virtual reactor& shard() noexcept = 0;
    /// The device that this context is part of, which outlives it.
    virtual verbs::device& device() noexcept = 0;
    /// One of the device's.
    result<std::unique_ptr<protection_domain>> make_domain() { return device().make_domain(); }
    /// `address` is what follows "scheme://": "host:port", "[v6]:port", or a name for loop.
    virtual result<std::unique_ptr<listener>> listen(std::string_view address) = 0;
    /// Connects; on success the queue pair is connected and `reply` holds the peer's private data, as it does when the peer
    /// rejected (ECONNREFUSED).
    ///
    /// Completes when: the peer has answered, or options.timeout is over. On cancel, and out of time: it lets the attempt go, and
    /// the peer sees a connection that ends. What the kernel is asked for meanwhile is waited for, on siw until its TCP has
    /// connected or given up, minutes at most. Errors: ECANCELED, ETIMEDOUT, ECONNREFUSED, EINVAL: an address that can't be read;
    /// EMSGSIZE: private data over max_private_data; ENODEV, EHOSTUNREACH: no device leads there; ECONNRESET, EPROTO,
    /// EPROTONOSUPPORT, and what the kernel answers. Lifetime: what it is given outlives the task. Shard: the context's.
    virtual task<result<std::unique_ptr<queue_pair>>> connect(std::string_view address,
                                                              protection_domain& domain,
                                                              const connect_options& options,
                                                              std::vector<std::byte>& reply) = 0;
};

} // namespace verbena::verbs

template<>
struct std::is_error_code_enum<verbena::verbs::status> : std::true_type {};
template<>
struct std::is_error_code_enum<verbena::verbs::connection_end> : std::true_type {};

#pragma GCC visibility pop
