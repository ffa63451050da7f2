// SPDX-License-Identifier: Apache-2.0
// verbs::connection: a queue pair for coroutines, where each message, Write and Read is awaited and its memory is kept until the
// device is done with it. For protocols that need not post in batches; those that do use verbs::queue_pair itself.
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/result.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/semaphore.hpp>
#include <verbena/core/task/task.hpp>
#include <verbena/core/verbs/verbs.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::verbs {

/// What a connection is made with: its depths, its private data.
struct connection_options {
    std::uint32_t operations = 64; ///< Sends, Writes and Reads under way at once; what comes on top waits
    /// Messages that the peer may send before they are received here, while the pool has memory for them. Verbs has no flow
    /// control: on iWARP one more ends the connection, on RDMA devices it comes when there is room, or ends it after a while. The
    /// protocol counts.
    std::uint32_t receives = 64;
    std::uint32_t message_size = 4096; ///< largest that may come; 0 if none but immediates do
    std::uint32_t reads = 16;          ///< RDMA Reads of ours under way at once (ORD), if the peer allows
    std::uint32_t peer_reads = 16;     ///< of the peer's (IRD)
    duration timeout = std::chrono::seconds(10); ///< of connection set-up
    std::span<const std::byte> private_data;     ///< stays until the connection is there
};

/// What came: a Send's bytes, with or without 32 bits beside them, or a Write with immediate, which leaves no bytes
/// here.
class message {
public:
    /// For connection: `memory` is the receive that `c` completed.
    message(lease memory, const completion& c) noexcept
        : memory_(std::move(memory)),
          size_(c.opcode == opcode::receive_immediate ? 0 : c.length),
          invalidated_key_(c.invalidated_key)
    {
        if (has_immediate(c.opcode))
            immediate_ = c.immediate;
        if (c.opcode == opcode::receive_immediate)
            written_ = c.length;
    }
    /// What a Send brought; empty for a Write with immediate. Valid while the message lives, and may be written
    /// to.
    std::span<std::byte> bytes() const noexcept
    {
        return memory_ ? memory_.bytes().first(size_) : std::span<std::byte>();
    }
    /// The 32 bits of a Send or Write with immediate. Where the two parts of a Send come apart
    /// (capabilities::immediates_apart), they are those of the second message, which has no bytes.
    std::optional<std::uint32_t> immediate() const noexcept { return immediate_; }
    std::uint32_t written() const noexcept
    {
        return written_;
    } ///< bytes of the Write that the immediate followed
    std::uint32_t invalidated_key() const noexcept
    {
        return invalidated_key_;
    } ///< of ours, by the Send; or 0
    /// The buffer, for whoever keeps it; bytes() is empty from now on.
    lease take() noexcept { return std::move(memory_); }

private:
    lease memory_;
    std::uint32_t size_;
    std::uint32_t written_ = 0;
    std::uint32_t invalidated_key_;
    std::optional<std::uint32_t> immediate_;
};

/// A connected queue pair, its receives and what is under way on it.
///
/// This holds for all its tasks but connect() and accept(). Completes when: the work request has; what that says of the peer,
/// capabilities::completion_means_delivered tells. On cancel: a request that was posted can't be recalled: the task ends with ECANCELED, and
/// the connection keeps the memory until the completion comes. Errors: ENOTCONN, or what ended the connection, once it has ended; ECANCELED;
/// EINVAL: more bytes than the buffer has; a verbs::status. Lifetime: the connection outlives its tasks, and what it was made of outlives
/// the connection: context, domain and pool. Shard: the context's.
class connection final : private completion_handler, private timer {
public:
    /// Connects to `address`, as context::connect(); `reply` gets the peer's private data. `domain` knows `pool` where the provider
    /// needs_local_keys (protection_domain::add_pool()).
    ///
    /// Completes when, on cancel, errors: as context::connect(); ENOMEM: no memory for receives.
    static task<result<std::unique_ptr<connection>>> connect(context& device, std::string_view address,
                                                             protection_domain& domain, buffer_pool& pool,
                                                             const connection_options& options,
                                                             std::vector<std::byte>* reply = nullptr);
    /// Takes a peer in, on the shard of its listener's context; its receives are posted before it is answered.
    ///
    /// Completes when, on cancel, errors: as connect_request::accept(); ENOMEM: no memory for receives.
    static task<result<std::unique_ptr<connection>>> accept(reactor& shard,
                                                            std::unique_ptr<connect_request> request,
                                                            protection_domain& domain, buffer_pool& pool,
                                                            const connection_options& options);
    /// Kills it, if it has not ended.
    ~connection();
    connection(const connection&) = delete;

    /// Sends the first `size` bytes of `memory`.
    task<result<void>> send(lease memory, std::size_t size);
    /// The same, and the peer's key `invalidate` is invalid when it gets them (capabilities::remote_invalidate).
    task<result<void>> send_with_invalidate(lease memory, std::size_t size, std::uint32_t invalidate);
    /// The same, and 32 bits beside the bytes (capabilities::send_with_immediate). Where `immediates_apart` is set the
    /// peer gets two messages, and needs receives for both.
    task<result<void>> send_with_immediate(lease memory, std::size_t size, std::uint32_t immediate);
    /// Writes the first `size` bytes of `memory` to `to`, which is at least as long.
    task<result<void>> write(lease memory, std::size_t size, const remote_segment& to);
    /// The same, and the peer receives `immediate` behind them (capabilities::write_with_immediate). `memory` may be empty, for no
    /// bytes.
    task<result<void>> write_with_immediate(lease memory, std::size_t size, const remote_segment& to,
                                            std::uint32_t immediate);
    /// Reads `size` bytes at `from` into `memory`; yields it.
    task<result<lease>> read(lease memory, std::size_t size, const remote_segment& from);
    /// The oldest message that nobody has taken; several tasks are served in order of asking. Completes when: there is one. What
    /// came before the end of the connection is yielded, then the cause of the end. On cancel: ECANCELED; no message is lost.
    task<result<message>> receive();

    /// Orderly end: what was posted drains first. Idempotent.
    void disconnect() noexcept;
    /// Completes when: the connection has ended, by either end. On cancel: yields before that. Yields what ended it, which is
    /// connection_end::orderly if nothing went wrong.
    task<error> ended();
    /// Whether work can be posted. On its shard.
    bool connected() const noexcept { return pair_ != nullptr && !down_ && pair_->connected(); }
    /// What grant_request::scope limits a grant to. Nothing is posted to it by hand: its queues and completions are this object's.
    queue_pair& scope() noexcept { return *pair_; }
    /// As queue_pair::peer_name(). Valid as long as the connection.
    std::string_view peer_name() const noexcept { return pair_->peer_name(); }
    /// As queue_pair::peer_address().
    std::string_view peer_address() const noexcept { return pair_->peer_address(); }

private:
    struct outcome {
        explicit outcome(bool wants_memory) noexcept : keeps(wants_memory) {}
        event done;
        verbs::status status = verbs::status::success;
        std::uint32_t vendor_error = 0;
        const bool keeps; // memory
        lease memory;
    };
    struct operation {
        lease memory;
        outcome* awaited = nullptr; // none: nobody waits any more
    };
    struct receive_slot {
        lease memory;
    };

    connection(reactor& shard, buffer_pool& pool, const connection_options& options);
    queue_pair_options depths() const noexcept;
    result<void> begin(std::unique_ptr<queue_pair> pair);
    task<error> fail(error cause);
    task<result<void>> run(send_request request, lease memory, std::size_t size, outcome& out);
    task<result<void>> run(send_request request, lease memory, std::size_t size);
    result<void> post_receive();
    void post_receives();
    void on_timer() noexcept override;
    void on_completions(std::span<const completion> batch) noexcept override;
    void on_disconnected(const error& cause) noexcept override;

    reactor& shard_;
    buffer_pool& pool_;
    const std::uint32_t message_size_;
    std::unique_ptr<queue_pair> pair_;
    std::vector<operation> operations_;
    std::vector<std::uint32_t> free_operations_;
    semaphore room_;
    std::vector<receive_slot> receives_;
    std::vector<std::uint32_t> free_receives_;
    struct arrival {
        std::uint32_t slot;
        completion what;
    };
    std::vector<arrival> arrived_; // a ring
    std::size_t first_ = 0;
    std::size_t count_ = 0;
    semaphore filled_{0};
    bool down_ = false;
    error cause_;
    event ended_;
};

} // namespace verbena::verbs

#pragma GCC visibility pop
