// SPDX-License-Identifier: Apache-2.0
// What a caller sees of RPC: a request goes out, a reply comes back, whichever transport carries it.
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/protocols/rpc/message.hpp>
#include <verbena/protocols/rpc/payload.hpp>
#include <verbena/protocols/xdr/decoder.hpp>
#include <verbena/protocols/xdr/encoder.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#pragma GCC visibility push(default)

namespace verbena::rpc {

/// Hears how long a wait lasts, to tell a person. Called on the shard, outside of calls; must not close the client.
class client_watch {
public:
    virtual ~client_watch() = default;
    /// No reply came for client_options::timeout, though calls are outstanding: once, until on_answer(). `cause` is
    /// why there is no connection; no error while there is one.
    virtual void on_silence(const error& cause) noexcept = 0;
    /// The first reply after that.
    virtual void on_answer() noexcept = 0;
};

/// Where a server is, asked when there was no connection yet, or none is to be had at the address of the last one: a server that
/// moves, with its name, is found again.
class server_addresses {
public:
    virtual ~server_addresses() = default;
    /// The addresses to try now, in this order, as the transport takes them. Completes when: they are known, within bounded time
    /// and without holding the shard. On cancel: it ends, ECANCELED. Errors: why there are none, which fails the attempt; an
    /// exception counts as one. Lifetime: it outlives the task. Shard: the client's.
    virtual task<result<std::vector<std::string>>> find() = 0;
    /// There is a connection to `address`, one of those that find() named.
    virtual void connected(const std::string& address) noexcept = 0;
};

/// What becomes of calls while the server is silent or gone.
struct client_options {
    /// true: a call waits, across reconnections, until it is answered or cancelled; with EINVAL it fails while there was no connection yet,
    /// as an address that can't be read stays so. false: it fails after (retries + 1) *
    /// timeout, and until then goes on sending and connecting, also where nothing listens or nothing ever did, as a server may
    /// be back in a moment. It fails with ETIMEDOUT where a server is silent, else with what the last attempt to connect came to; the error's
    /// detail says how often it was sent, or how many attempts to connect failed.
    bool hard = true;
    /// A call unanswered for so long ends the connection; it is sent again with the same XID on the next.
    duration timeout = std::chrono::seconds(60);
    unsigned retries = 2; ///< times that a soft call is sent again
    /// One attempt to connect.
    duration connect_timeout = std::chrono::seconds(10);
    /// Wait between attempts to connect; doubles up to reconnect_delay_max.
    duration reconnect_delay = std::chrono::milliseconds(100);
    duration reconnect_delay_max = std::chrono::seconds(10); ///< the longest wait between attempts
    /// false: calls outstanding on a connection that ends, or can't be made, fail with its error. Each call makes one connection at most.
    bool reconnects = true;
    /// While no reply ever came: after so many connections in a row that the peer ended, each within a second, calls
    /// outstanding fail with ECONNRESET even if hard, as that peer hardly speaks what it is asked. 0: never.
    unsigned connections_without_reply = 0;
    /// Not before the first of those connections ended so long ago: a server that is full may have room by then.
    duration without_reply_for = std::chrono::seconds(3);
    /// Outlives the client; nullptr: nobody is told.
    client_watch* watch = nullptr;
    /// While no reply ever came, the watch hears of a shorter silence than `timeout` already.
    duration first_silence = std::chrono::seconds(5);
    /// Where to connect, in place of the one address that the client was made with. Outlives the client; nullptr: that address.
    /// A connection is made again at the address of the last one, without a question; where that fails, at the others that find() names.
    /// Then another host may be there, which does not know what the last one has run. So calls that were sent, and for which neither
    /// request::idempotent nor may_repeat is set, fail with ECONNRESET when there is a connection to another address: they ran once, or not.
    server_addresses* addresses = nullptr;
    /// Calls outstanding at once, at most max_outstanding_calls; more wait their turn.
    std::uint32_t max_calls = 128;
};
/// The most that client_options::max_calls may be.
inline constexpr std::uint32_t max_outstanding_calls = 256;

/// One call: the encoded message, the large argument that goes with it, and what is expected back.
/// Owns all memory that the transport reads. Move-only.
class request {
public:
    request() = default;
    /// Writes the call header for `header` (its xid is ignored) into `block`; arguments follow through
    /// message(). `block` holds the header and all arguments but the payload.
    request(lease block, const call_header& header) : block_(std::move(block)), message_(block_.bytes())
    {
        encode(message_, header);
    }
    request(request&&) = default;
    request& operator=(request&&) = default;

    /// Where the arguments are written. At most one payload item may be noted; attach() its bytes.
    xdr::encoder& message() noexcept { return message_; }
    const xdr::encoder& message() const noexcept { return message_; }
    /// The bytes of the payload item, in place of what was attached before. The request owns them until its
    /// end.
    void attach(payload bytes)
    {
        arguments_.clear();
        arguments_.add(std::move(bytes));
    }
    /// What was attached; empty for nothing.
    const payload& argument() const noexcept { return arguments_[0].bytes; }
    const attachments& arguments() const noexcept { return arguments_; }

    /// The largest reply, from its XID on, without the result payload: max_success_header_size and the largest results, in
    /// bytes. Streams take replies of any length and don't look at it. Over RDMA the caller offers the room, a Reply chunk
    /// where that may not fit inline (RFC 8166 4.3.3), and a server whose reply finds too little has run the call in vain: it
    /// fails with EOVERFLOW. So set it for each procedure whose results may exceed some 480 bytes. Room costs memory while the
    /// call is outstanding, and no transfer.
    std::size_t max_reply = 512;
    /// The reply's large result (READ data, READLINK text) may have so many bytes; 0: it has none.
    /// Over RDMA a Write chunk of that size is offered.
    std::uint32_t max_result = 0;
    /// Set it where max_reply is a guess, as results have no small bound (a list), and to run the call twice does no harm, as it
    /// only reads or sets what it would set again. Instead of failing with EOVERFLOW the client then calls again with fourfold
    /// room, up to three times, and begins later calls of that procedure with what sufficed. Not for calls that append, create or
    /// remove: each of those repeats runs. What is sent again to the same address after a broken connection does not depend on this:
    /// it has the same XID, and a server with a duplicate-request cache runs it once.
    bool may_repeat = false;
    /// To run the call twice does no harm. So it is sent again also at another address of the server (client_options::addresses), whose
    /// cache does not know it. What may_repeat says holds for this, too. A procedure sets it unless it is one of effect::changes.
    bool idempotent = false;
    /// With may_repeat: the room for the large result that the first calls of a procedure offer, so that small results of one that may
    /// have large ones take little memory. 0: max_result. Where a result does not fit, the call runs again with fourfold room, up to
    /// max_result; later calls of the procedure begin with that, until 64 in a row needed a quarter or less. max_reply is then
    /// no guess, and stays.
    std::uint32_t first_result = 0;

private:
    lease block_;
    xdr::encoder message_;
    attachments arguments_;
};

/// A successful reply. Keeps alive what results() and the payloads point at.
class reply {
public:
    reply() = default;
    /// `message` begins at the XID and is kept by `owner`. `data` is what arrived in a Write chunk;
    /// `chunk_offered` tells that the result payload had to come that way.
    reply(lease owner, std::span<const std::byte> message, payload data, bool chunk_offered) noexcept
        : owner_(std::move(owner)),
          message_(message),
          data_(std::move(data)),
          chunk_offered_(chunk_offered),
          results_(message_, message_.size() + xdr::padded(data_.size()))
    {
    }
    reply(reply&&) = default;
    reply& operator=(reply&&) = default;

    /// Reads the header; results() then stands at the results. For the transport, once.
    result<void> decode_header();
    /// Where the results begin, behind decode_header(); for whoever made the call. The reply owns the bytes.
    xdr::decoder& results() noexcept { return results_; }
    /// Bytes that came in the Write chunk.
    std::size_t chunk_size() const noexcept { return data_.size(); }
    /// The bytes of the payload item `ref` that results() yielded. Once. Fails when the responder broke
    /// RFC 8166 4.3.2: the item inline although a chunk was offered, or of another length than the chunk.
    result<payload> take(const xdr::payload_ref& ref);

private:
    lease owner_;
    std::span<const std::byte> message_;
    payload data_;
    bool chunk_offered_ = false;
    xdr::decoder results_;
};

/// A connection to one server that is made again when it breaks. close() it before it goes.
///
/// This holds for all its tasks. Lifetime: the client outlives them; once close() has returned none of call() and connect() is
/// left. Shard: the client's.
class client_transport {
public:
    virtual ~client_transport() = default;

    /// Connects now, once, hard or soft, so that a wrong address is an error and not a wait. Optional: call() connects too,
    /// and goes on trying as client_options::hard tells.
    ///
    /// Completes when: there is a connection, or the attempt has failed, which client_options::connect_timeout bounds. While
    /// calls wait for the next attempt it fails at once. On cancel: ECANCELED, and the attempt goes on. Errors: what the last
    /// attempt came to; ECANCELED after close().
    virtual task<result<void>> connect() = 0;
    /// Sends `r`, taking what it owns, and waits for the reply. Any number may be outstanding.
    ///
    /// Completes when: the reply is there, or client_options give the call up. On cancel: the caller goes on with ECANCELED, and
    /// at the context's deadline with ETIMEDOUT; the server may or may not have run the call, and memory that it could have
    /// touched is out of its reach by then. A call that waits for its turn (client_options::max_calls) hears the stop, and the
    /// deadline only when it has its turn. Errors: rejections of the RPC layer as accept_status or auth_status; EMSGSIZE:
    /// arguments beyond the message; ECANCELED after close(); those that the function names which made the transport; why there
    /// is no connection, for a soft client. Lifetime: `r` outlives the task.
    virtual task<result<reply>> call(request& r) = 0;
    /// Ends the connection; calls outstanding fail with ECANCELED. Idempotent; one at a time. Completes when: the connection has
    /// ended, and so have all calls. On cancel: it goes on to its end. Errors: none.
    virtual task<void> close() = 0;

    /// Memory for a call's message or for a payload that travels without being copied or registered anew. Completes when: the
    /// budget allows it, as buffer_pool::acquire(). On cancel: it ends. Errors: an empty lease, of a wait that was stopped, and
    /// at once for more than buffer_pool::max_size.
    virtual task<lease> acquire(std::size_t size) = 0;
    /// "tcp", "iwarp", "rdma", "loop".
    virtual std::string_view name() const noexcept = 0;
    /// Connections made since the start; more than one means reconnections.
    virtual std::uint64_t connections() const noexcept = 0;
    /// Whether any reply ever came, also one that rejects.
    virtual bool answered() const noexcept = 0;
    /// How long a call may take, its wait for a turn included; duration::max(): as long as the server does (client_options::hard). Whoever
    /// lets a call wait before it comes here counts that, too.
    virtual duration time_of_a_call() const noexcept { return duration::max(); }
    /// Whether calls of the server that come over its connection are served; else they are dropped.
    virtual bool serves_calls() const noexcept { return false; }
};

} // namespace verbena::rpc

#pragma GCC visibility pop
