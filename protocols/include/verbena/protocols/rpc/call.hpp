// SPDX-License-Identifier: Apache-2.0
// What a program sees of a call, whichever transport carried it.
//
// A transport wraps each message in a `call`, hands it to the dispatcher and frames the reply that
// stands in results() afterwards. The procedure reads args(), may pull a large argument, writes results()
// and may attach a large result.
// It never learns whether bytes travel inline, as chunks or gathered on a byte stream.
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/clock.hpp>
#include <verbena/core/reactor/file_range.hpp>
#include <verbena/core/reactor/request_list.hpp>
#include <verbena/core/task/in_context.hpp>
#include <verbena/core/task/stop.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/core/task/trace_name.hpp>
#include <verbena/protocols/rpc/message.hpp>
#include <verbena/protocols/rpc/payload.hpp>
#include <verbena/protocols/rpc/principal.hpp>
#include <verbena/protocols/xdr/decoder.hpp>
#include <verbena/protocols/xdr/encoder.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::rpc {

class program;
class reverse_channel;

/// One peer, as seen by access rules, the duplicate-request cache and logs. Owned by the
/// connection; lives as long as its calls.
struct peer {
    std::string_view address;     ///< canonical text without port
    std::string_view name;        ///< address with port
    std::string_view transport;   ///< "tcp", "iwarp", "rdma", "loop"
    std::uint16_t port = 0;       ///< the peer's port, 0 if it has none
    std::uint32_t connection = 0; ///< new_connection_number() of its connection
    /// The client that the connection's calls named last, by a number of its program's; 0: none. For whoever ends a client.
    mutable std::uint64_t client = 0;
};

/// What a transport sends without a copy from where it lies.
enum class sent_in_place : std::uint8_t {
    nothing,        ///< a copy is made of what lies in no buffer of the pool
    memory,         ///< memory of any kind, until what keeps it there is let go
    memory_or_file, ///< and a range of a file, which must be in the page cache, or the shard waits for the disk
};

/// One call being served. Made by a transport, alive until its reply was handed over. Shard-local.
///
/// This holds for its tasks. Lifetime: the call outlives them. Shard: that of the call.
///
/// Its transport says when it begins and ends (request_list). What only the program knows it says by set_detail() and served().
class call : public listed_request {
public:
    virtual ~call() = default;

    /// With the names that the program has for it, once the dispatcher has found that.
    void report(request_report& into) const noexcept final;
    /// For task_context::trace_id, and for lines of the log; for transports before decode_header(), too, if they said start_header().
    std::uint64_t trace() const noexcept { return trace_of(peer_->connection, header_.xid); }
    /// For the dispatcher, before the program sees the call; nullptr: it sees it no more.
    void set_program(const program* serves) noexcept { program_ = serves; }

    /// Reads the call header from args(); for the dispatcher, once, first.
    call_verdict decode_header() noexcept
    {
        refused_ = keeps_failure_ = false; // a transport may use a call again
        most_kept_ = SIZE_MAX;
        ended_ = {};
        const call_verdict verdict = decode(args_, header_);
        is_call_ = verdict != call_verdict::unanswerable;
        return verdict;
    }
    /// False if decode_header() found no call: the RPC layer has no answer to that, and the transport may have one.
    bool is_call() const noexcept { return is_call_; }
    const call_header& header() const noexcept { return header_; }
    /// Finds out by the credential and verifier of header() who calls; for the dispatcher, once, next. The one place that knows flavors:
    /// AUTH_NONE, AUTH_SYS, and the probe for RPC over TLS.
    auth_status authenticate() noexcept;
    /// Whom authenticate() found.
    const principal& who() const noexcept { return who_; }
    /// Who sent it: a connection's end. Valid as long as the call.
    const rpc::peer& from() const noexcept { return *peer_; }
    /// The arguments, after the call header.
    xdr::decoder& args() noexcept { return args_; }
    /// The reply message. When a procedure runs, the dispatcher has written the header of a successful
    /// reply already, and results follow it.
    xdr::encoder& results() noexcept { return results_; }
    /// Shard-local buffers.
    buffer_pool& buffers() noexcept { return *buffers_; }
    /// Another buffer for this call, of buffers(). A call that holds data already (attached()) waits for none: several such calls could
    /// wait for what the others hold.
    ///
    /// Completes when: there is memory, or buffer_pool::call_patience is over; where the call holds data, at once. On cancel: it ends.
    /// Errors: an empty lease.
    buffer_pool::awaiter acquire(std::size_t size) noexcept
    {
        return buffers_->acquire(size, attached_.empty()
                                           ? std::chrono::nanoseconds(buffer_pool::call_patience)
                                           : std::chrono::nanoseconds::zero());
    }

    /// Brings a large argument here: the views into the receive buffers, or memory filled by RDMA Reads. Check permissions first:
    /// until then the bytes may still be with the peer. A call may have several; each is pulled when it is wanted, one at a time,
    /// or not at all, and args() reads on behind it in any case.
    ///
    /// Completes when: the bytes are here; on a byte stream at once. On cancel: a wait for memory, or for a turn to read, ends
    /// with an error; Reads that were posted are waited for. Errors: ENOMEM when acquire() gives no memory, or the wait for it was stopped: the call can still be answered, with an error that asks for
    /// another try; EBADMSG: the argument lies in no chunk; ECONNABORTED: a Read failed, and no reply will go out, as the
    /// connection ends.
    virtual task<result<payload>> pull(xdr::payload_ref ref) = 0;

    /// Where args() failed with ENOBUFS: what is to be read lies in two pieces. Goes back to `from`, a former args().position(), from
    /// where on more lies in one piece then, copied if need be. For arguments that stand behind a payload; those in front of the
    /// first one never lie apart. Views of what stood behind the `from` of an earlier call of this are gone.
    ///
    /// Completes when: acquire() gives memory, or none. On cancel: it ends. Errors: ENOMEM; EMSGSIZE: the
    /// transport has no more of them in one piece.
    virtual task<result<void>> join_arguments(std::size_t from)
    {
        co_return error(std::errc::message_size, "arguments in several pieces", from);
    }

    /// Gives results() room for at least `size` more bytes, keeping what was written and noted; call it before writing results that
    /// may exceed inline_results bytes.
    ///
    /// Completes when: acquire() gives memory, or none; at once where there is room. On cancel: it ends,
    /// false. Errors: false, also for more than a buffer can hold, and in a call from a server for more than travels inline; the
    /// procedure answers with an error that asks for another try.
    virtual task<bool> reserve_results(std::size_t size) = 0;
    static constexpr std::size_t inline_results = 512;

    /// The data item that is noted next can't be larger, in bytes: the caller offers no room for it. Memory for one byte more than
    /// that is all that a procedure needs.
    virtual std::uint64_t most_result() const noexcept { return UINT32_MAX; }

    /// Says that the results will take up to `size` bytes of buffers(), also what is attached to them. Say so before waiting
    /// for anything: a transport may start no more calls of a peer that has much in hand. reserve_results() counts by itself.
    virtual void expect_results(std::size_t size) noexcept { (void)size; }

    /// Says that the call was refused and has changed nothing, whatever results() say: its reply need not be kept for repeats.
    void refuse() noexcept { refused_ = true; }
    bool refused() const noexcept { return refused_; }
    /// What the program keeps for itself while it serves the call. Nobody else looks at it.
    void note(void* what) noexcept { noted_ = what; }
    void* noted() const noexcept { return noted_; }
    /// The program has looked at the clock at its very end: what the call took is counted by that, and the clock is read once less.
    void set_ended(time_point at) noexcept { ended_ = at; }
    /// What set_ended() was told of this call; nothing where it was not.
    std::optional<time_point> ended() const noexcept
    {
        return ended_ == time_point() ? std::nullopt : std::optional(ended_);
    }
    /// Says that the call may change something from now on: a failure is kept for repeats as results are, of a program that is
    /// non_idempotent() here. Else a repeat of what failed runs again. refuse() takes it back.
    void keep_failure() noexcept { keeps_failure_ = true; }
    /// Whether a failure is kept for repeats.
    bool keeps_failure() const noexcept { return keeps_failure_ && !refused_; }

    /// How long results() may become, from the reply's header on and with what is attached, to be kept for repeats; SIZE_MAX where nothing is
    /// kept, whatever their length. The dispatcher says so before the program runs.
    std::size_t most_kept() const noexcept { return most_kept_; }
    /// For the dispatcher.
    void set_most_kept(std::size_t bytes) noexcept { most_kept_ = bytes; }

    /// Asked to stop when nobody waits for the reply any more: the caller's connection has ended, or the server's time has.
    stop_token caller_gone() const noexcept { return caller_gone_; }
    /// For the dispatcher, before the program runs.
    void set_caller_gone(stop_token gone) noexcept { caller_gone_ = gone; }
    /// Runs `t`, which is asked to stop when the caller is gone, also in a call that goes on without its caller
    /// (program::goes_on_alone()): for a wait before anything is changed, as for a job that the caller is to get.
    ///
    /// Completes when: `t` has ended. On cancel: `t` is not asked, unless the caller's connection ends, as it does when
    /// the server stops. Errors: those of `t`.
    template<class T>
    task<T> while_awaited(task<T> t)
    {
        may_take_long();
        task_context context = co_await current_context();
        context.stop = caller_gone_;
        verbena::detail::in_context<T> running(t, context);
        if constexpr (std::is_void_v<T>)
            co_await running;
        else
            co_return co_await running;
    }
    /// Asked to stop when the server can wait no longer for a call that goes on without its caller
    /// (program::goes_on_alone()). A token that can't stop where the transport makes no difference: then such a call is
    /// asked to stop like all others.
    stop_token server_stop() const noexcept { return server_stop_; }

    /// The way back to the caller over the connection that this call came on; nullptr where that has none.
    virtual std::shared_ptr<reverse_channel> reverse() { return nullptr; }

    /// The bytes of a payload item that results().note_payload() announced: once for each item, in their order. Beyond the first
    /// one it may allocate.
    void attach(payload&& bytes) { attached_.add(std::move(bytes)); }
    /// Instead of memory, where the transport takes it.
    void attach(file_range&& bytes) { attached_.add(std::move(bytes)); }
    const attachments& attached() const noexcept { return attached_; }
    /// Lets go what was attached, as the results are to be others.
    void detach() noexcept { attached_.clear(); }
    /// What the transport sends a payload from without a copy, where it lies.
    virtual sent_in_place sends_in_place() const noexcept { return sent_in_place::nothing; }

protected:
    /// For a transport, before the dispatcher has the call: all that is known is how the peer calls it.
    void start_header(std::uint32_t xid) noexcept
    {
        header_.xid = xid;
        program_ = nullptr;
    }

    call_header header_;
    principal who_;
    const program* program_ = nullptr;
    bool refused_ = false;
    bool keeps_failure_ = false;
    bool is_call_ = true;
    std::size_t most_kept_ = SIZE_MAX;
    void* noted_ = nullptr;
    time_point ended_{};
    stop_token caller_gone_;
    stop_token server_stop_;
    const rpc::peer* peer_ = nullptr;
    xdr::decoder args_;
    xdr::encoder results_;
    buffer_pool* buffers_ = nullptr;
    attachments attached_;
};

} // namespace verbena::rpc

#pragma GCC visibility pop
