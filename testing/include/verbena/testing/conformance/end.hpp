// SPDX-License-Identifier: Apache-2.0
// One end of a connection whose other end may be on another host: its memory, its completions, and the messages of both.
#pragma once

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/core/verbs/verbs.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::testing::conformance {

/// Thrown where a check finds something else than it must be.
class failure : public std::exception {
public:
    /// `text` says what was expected, and what was found.
    explicit failure(std::string text) : why(std::move(text)) {}
    const char* what() const noexcept override { return why.c_str(); }

    std::string why; ///< of what()
};
/// Thrown by a check of what the provider can't do.
class not_supported : public std::exception {
public:
    /// `text` says what the provider can't do.
    explicit not_supported(std::string text) : what_it_is(std::move(text)) {}
    const char* what() const noexcept override { return what_it_is.c_str(); }

    std::string what_it_is; ///< of what()
};
/// Throws failure unless there is a value.
template<class T>
void need(const result<T>& r, const char* what)
{
    if (!r)
        throw failure(std::string(what) + ": " + r.error().message());
}
inline void need(bool good, const std::string& what)
{
    if (!good)
        throw failure(what);
}

/// Octets that both ends can make of `seed`.
void fill(std::span<std::byte> to, std::uint64_t seed) noexcept;
/// A checksum after FNV-1a, eight octets at a time.
std::uint64_t sum(std::span<const std::byte> of) noexcept;
/// The same octets.
bool alike(std::span<const std::byte> a, std::span<const std::byte> b) noexcept;

/// What the client asks of the server; the reply bears the same number.
enum class request : std::uint32_t {
    describe = 1, ///< reply: text, JSON
    open,         ///< a: access, b: bytes, c: seed; reply a: key, b: address, c: bytes
    sum,          ///< a: bytes; reply a: sum of what was opened
    revoke,
    pull,      ///< a: key, b: address, c: bytes: RDMA Read; reply a: sum
    push,      ///< a: key, b: address, c: bytes, d: seed: RDMA Write
    push_last, ///< likewise; the reply invalidates the key, or d says that this end can't
    expect, ///< a: messages that follow, of the sizes and contents of numbered(); reply a: as they had to be
    takes_immediate, ///< reply a: 1 if the next can follow
    immediate,       ///< a Write with Immediate follows; reply a: the immediate, b: bytes
    fate,            ///< a: id of another connection; reply: see connection_fate
    data,            ///< no request: a numbered message
    nothing,         ///< no request, and no reply
};
/// What both ends send each other: a request or its reply, in a fixed layout.
struct message {
    static constexpr std::uint32_t size = 40; ///< bytes
    request what{};                           ///< whether it asks, or answers what
    std::uint32_t number = 0;                 ///< of data
    std::uint64_t a = 0, b = 0, c = 0, d = 0; ///< mean what `request` says of them
    /// Writes `size` bytes.
    void write(std::byte* to) const noexcept;
    /// Reads `size` bytes, whatever they hold.
    static message read(const std::byte* from) noexcept;
};
/// How a connection ended, as the server tells.
enum connection_fate : std::uint64_t {
    fate_ended = 1,
    fate_orderly = 2,
    fate_untouched = 4, ///< what it had opened is as it was
    fate_flushed = 8,   ///< each receive that stood has been flushed, once
};

/// What both ends of a connection say in their private data, and after it as much pattern as fits.
struct greeting {
    /// What the client wants of the connection.
    enum kind : std::uint8_t { plain, refuse_me, full };
    static constexpr std::size_t size = 16;  ///< bytes before the pattern
    static constexpr std::size_t total = 56; ///< what each provider carries at least
    kind what = plain;                       ///< `full`: in a reject, of who serves as many as it may
    std::uint64_t id = 0;                    ///< of the connection; the client's choice
    /// The private data.
    std::array<std::byte, total> write() const noexcept;
    /// Zeros may follow. ENOMSG: not this protocol.
    static result<greeting> read(std::span<const std::byte> from);
};

/// How a request is posted.
struct posting {
    bool inline_data = false; ///< send_request::inline_data
    bool signalled = true;    ///< without, it has no completion unless it fails
    bool fence = false;       ///< begins when the RDMA Reads before it are done
};

/// One end of a connection and its memory, 10 MiB.
///
/// This holds for all its tasks. Completes when: what is waited for has come, which takes 60 s at most. On cancel: they fail.
/// What is posted stays posted, and ends with the connection. Errors: failure, thrown, also when the deadline has passed.
/// Lifetime: the end, and what a task is given, outlive the task; what is posted is the end's own memory, but for inline data.
/// Shard: that of the context, which outlives the end.
class end final : public verbs::completion_handler {
public:
    static constexpr std::size_t slot = std::size_t(64) << 10; ///< bytes of a receive, and of a Send
    static constexpr std::size_t slots = 16; ///< receives, and Sends that may be put together at once
    static constexpr std::size_t bulk_size = std::size_t(8) << 20; ///< bytes that bulk() gives at most
    static constexpr auto patience = std::chrono::seconds(60);     ///< longest wait for one thing

    /// On the shard of `c`. Nothing is registered yet.
    explicit end(verbs::context& c) : context_(c) {}
    /// Nothing is waited for beyond this.
    void set_deadline(time_point t) noexcept { deadline_ = t; }
    /// Memory and its registration; with `other`, which outlives this, in its domain, whose shared receives it takes.
    /// Errors: failure.
    task<void> prepare(end* other = nullptr);
    /// Whether prepare() has registered memory.
    bool is_prepared() const noexcept { return region_ != nullptr; }
    /// Between prepare(), without another end, and the connection: receives are shared, and the caller posts them. Errors: failure.
    task<void> share_receives();
    /// Takes a queue pair over: completions come here from now on. The one before goes.
    void adopt(std::unique_ptr<verbs::queue_pair> q);
    /// Of a connection that this end asked for: while nothing has come, who waits for something wakes the peer each second, as a
    /// requester does (protocols/rpcrdma), since a device may leave the first message unread until more comes. `count` outlives
    /// this.
    void wake_peer(std::uint64_t& count) noexcept { wakes_ = &count; }
    /// Posts a receive for each slot. Throws failure.
    void post_receives();

    /// @name What the end is made of
    /// As long as the end lives; domain() and shared() from prepare() on, pair() from adopt() on. Of an end
    /// that was prepared with another one, these are that one's.
    /// @{
    verbs::context& context() noexcept { return context_; }
    verbs::protection_domain& domain() noexcept { return *receiver().domain_; }
    verbs::shared_receive_queue* shared() noexcept { return receiver().shared_.get(); }
    verbs::queue_pair& pair() noexcept { return *pair_; }
    /// @}
    /// Registered: for grants, RDMA Reads and Writes.
    std::span<std::byte> bulk(std::size_t bytes) noexcept
    {
        return std::span(memory_).subspan(2 * slots * slot, bytes);
    }
    /// Where the Send of slot `i` is put together.
    std::span<std::byte> outgoing(std::size_t i = 0) noexcept
    {
        return std::span(memory_).subspan((slots + i) * slot, slot);
    }
    /// The receive of a completion that received() gave: a slot of this end, and no more than it.
    std::span<const std::byte> incoming(const verbs::completion& c) noexcept
    {
        return std::span(receiver().memory_).subspan(c.id * slot, c.length);
    }

    /// The segment of a part of the end's registered memory.
    verbs::segment segment(std::span<const std::byte> of) const noexcept;
    /// Posts one request; its id is returned. Inline data needs no registration and is the caller's again.
    std::uint64_t post(verbs::opcode op, std::span<const std::byte> local,
                       const verbs::remote_segment& remote = {}, std::uint32_t invalidate = 0,
                       std::uint32_t immediate = 0, posting how = {});
    /// The completion of what post() gave `id`, whatever its status.
    task<verbs::completion> finished(std::uint64_t id);
    /// As finished(), and it must be a success.
    task<void> succeeded(std::uint64_t id, const char* what);
    /// The next receive, whose slot is posted again by release(). Where the provider has told of a receive that nobody posted, or
    /// of more octets than it has, each wait fails.
    task<verbs::completion> received();
    /// Posts the receive of `c` again. Throws failure.
    void release(const verbs::completion& c);
    /// received() need not wait.
    bool has_message() const noexcept { return !receives_.empty() || nonsense_ != nullptr; }
    /// A moment, so that others get their turn.
    static sleep_awaiter pause() noexcept { return sleep_for(std::chrono::microseconds(200)); }
    /// Sends `m` from the first slot and waits for the completion. With `invalidate`, the peer's key goes.
    task<void> send(const message& m, std::uint32_t invalidate = 0);
    /// The next message, which must be `what`; its slot is posted again.
    task<message> receive(request what);
    /// send(), then receive().
    task<message> ask(request what, std::uint64_t a = 0, std::uint64_t b = 0, std::uint64_t c = 0,
                      std::uint64_t d = 0);
    /// Waits until `done`, looking whenever others had their turn.
    task<void> until(std::function<bool()> done, const char* what);
    /// A grant of `memory`, which is the end's own, for this connection alone where the provider can limit it
    /// so.
    task<verbs::grant> grant(std::span<std::byte> memory, verbs::access rights);
    /// What was granted, if anything, is this end's alone from then on.
    task<void> revoke(verbs::grant& g);

    /// Whether the connection has ended, for whatever reason.
    bool ended() const noexcept { return ends_ != 0; }
    unsigned ends() const noexcept { return ends_; }
    const error& why() const noexcept { return why_; }
    /// Receives that stand; those flushed; completions that came after the end or of what was not posted.
    std::size_t standing() const noexcept { return standing_; }
    /// Receives that the end of the connection gave back.
    std::size_t flushed_receives() const noexcept { return flushed_; }
    std::size_t strays() const noexcept { return strays_; }

private:
    end& receiver() noexcept { return other_ == nullptr ? *this : *other_; } // whose receives these are
    void on_completions(std::span<const verbs::completion> batch) noexcept override;
    void on_disconnected(const error& cause) noexcept override;
    void wake() noexcept;

    verbs::context& context_;
    time_point deadline_ = time_point::max();
    std::vector<std::byte> memory_;
    end* other_ = nullptr;
    std::unique_ptr<verbs::protection_domain> domain_;
    std::unique_ptr<verbs::region> region_;
    std::unique_ptr<verbs::shared_receive_queue> shared_;
    std::deque<verbs::completion> sends_;
    std::deque<verbs::completion> receives_;
    std::uint64_t last_id_ = 0;
    std::uint64_t* wakes_ = nullptr; // until something came
    bool waking_ = false;            // an RDMA Write of nothing is under way
    std::size_t outstanding_ = 0;
    std::size_t standing_ = 0;
    std::size_t flushed_ = 0;
    std::size_t strays_ = 0;
    const char* nonsense_ = nullptr; // told by the provider; used as an index, it would lead out of memory_
    unsigned ends_ = 0;
    error why_;
    std::unique_ptr<verbs::queue_pair> pair_; // goes first
};

/// Size and contents of the data message of this number: 40 octets to a whole slot.
std::size_t numbered(std::uint32_t number, std::span<std::byte> to) noexcept;

} // namespace verbena::testing::conformance

#pragma GCC visibility pop
