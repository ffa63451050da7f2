// SPDX-License-Identifier: Apache-2.0
// Remembers the replies to calls that must not run twice, so that a repeat (the peer lost its
// connection before the reply came) gets the same answer. Calls that may run twice, but not both at once, it only keeps
// apart: a repeat waits until the first run has ended.
//
// It holds whole reply messages, which each transport frames again: a client may repeat over TCP what
// it first sent over RDMA. The repeat may come over a connection of another shard, so all shards share it: its
// parts, of which the peer's address chooses one, are locked for as long as a table is looked up, and only where
// there are several shards. A message to a shard that keeps the entries would cost two wake-ups of sleeping threads.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/protocols/rpc/program.hpp>

#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::rpc {

/// What tells one call from another. Ports don't count: a client that reconnects may have a new one.
/// Clients count XIDs up from anywhere, hence the checksum.
struct request_key {
    std::string address;   ///< the peer's, without port
    std::uint32_t xid = 0; ///< of the call
    std::uint32_t program = 0;
    std::uint32_t version = 0;
    std::uint32_t procedure = 0;
    std::uint32_t user = 0;            ///< of AUTH_SYS
    std::uint64_t argument_length = 0; ///< of all, also of what lies in a Read chunk
    /// Of the arguments up to the first that lies in a Read chunk: of all of them if they have whole_bytes and no
    /// more, else of the first first_bytes.
    std::uint64_t checksum = 0;

    /// So many lie in one piece wherever a stream's buffers end, and no argument of NFS but the data of a WRITE and the
    /// target of a symbolic link is longer.
    static constexpr std::size_t whole_bytes = 8192;
    static constexpr std::size_t first_bytes = 256; ///< see `checksum`

    /// Of a call whose header and credential are decoded and whose arguments are not. `whole`: arguments up to that
    /// length count with all octets, longer ones with the first first_bytes; first_bytes for calls that are only kept
    /// apart.
    static request_key of(call& c, std::size_t whole = whole_bytes);
    friend bool operator==(const request_key&, const request_key&) = default;
};

/// How much is kept for repeats, and how long.
struct duplicate_request_options {
    /// Places of all parts together, made as they are needed. Half of them are divided among the parts, the other half
    /// serves any part that needs more. Within them a reply keeps its place for `lifetime`.
    std::size_t max_entries = 65536;
    /// What replies take, in all parts together, with the places of data in them: each place takes usual_reply, and
    /// more while it has a longer one. Divided as places are. For what goes beyond, the oldest replies of the part
    /// go.
    std::size_t max_bytes = std::size_t(32) << 20;
    /// Calls in progress of each part that are only kept apart; these have no other places.
    std::size_t max_in_turn = 16384;
    /// Longer replies are not kept; those of calls that change something are short. NFS version 4.0 makes no longer
    /// ones of such calls (call::most_kept()): some hundred octets are the least for it. Of an effect::changes whose results are longer
    /// it is kept that there is no answer: a repeat hears SYSTEM_ERR. At least max_success_header_size, which that takes.
    std::size_t max_reply = 4096;
    /// Repeats that wait for one call in progress; more are dropped.
    std::size_t max_waiting = 4;
    /// How long a reply is kept. Clients repeat within a minute.
    duration lifetime = std::chrono::seconds(120);

    /// 17,000 changes a second for two minutes.
    static constexpr std::size_t most_entries = std::size_t(1) << 21;
    /// Octets of the replies of all non-idempotent procedures of NFSv3 but for long handles.
    static constexpr std::size_t usual_reply = 288;
    /// As many places as `bytes` of memory hold, with replies of the usual size, up to most_entries.
    static duplicate_request_options within(std::size_t bytes) noexcept;
};

/// Counts of one part, written under its lock; any thread may read them.
struct duplicate_request_stats {
    gauge entries;      ///< places that are taken now
    gauge bytes;        ///< of replies, with the places of data in them
    gauge room;         ///< likewise, and what places have for those that come
    counter remembered; ///< calls that ran and whose reply was kept
    counter replayed;   ///< repeats answered from memory
    counter waited;     ///< repeats that came while the call ran (also of calls that are only kept apart)
    counter dropped;    ///< repeats without an answer, since too many waited (also of those)
    counter evicted;    ///< replies forgotten before their time, for want of room
    counter passed;     ///< entries of other calls that stood in the way to one
    counter
        uncached; ///< calls that ran without protection, since every entry was in progress (also of those)
};

/// Answers calls that come again with what the first one was answered, so that they don't run twice.
///
/// One for all shards of a program: a call's key chooses the part that keeps it, by messages between shards.
/// What has no place is counted, and runs. It outlives the dispatchers that use it.
class duplicate_request_cache {
public:
    /// For so many shards; it has as many parts. They run no visit any more when it is destroyed. `random` draws the
    /// key by which a peer's calls get their part, and their place in it; it is not kept.
    explicit duplicate_request_cache(std::size_t shards, const duplicate_request_options& options = {},
                                     random_source& random = system_random());
    ~duplicate_request_cache();
    duplicate_request_cache(const duplicate_request_cache&) = delete;

    /// What a visit has found of its call.
    enum class state : std::uint8_t {
        fresh, ///< not seen before, or not answered: run it, then remember(), or destroy the visit to forget it; whoever
        ///< waits for a call that is forgotten is fresh then, one after the other
        answered, ///< reply() is what was answered
        dropped,  ///< give no answer
        uncached, ///< run it; there is no room to remember it
    };

    /// What is to become of a repeat.
    enum class repeat : std::uint8_t {
        answered, ///< from memory
        in_turn,  ///< it runs when the first run has ended: remember() must not be called
    };

private:
    friend struct duplicate_request_options;
    struct entry;
    class part;

public:
    /// One call's look into the cache, from the shard that serves it.
    class visit final : remote_message {
    public:
        /// `here` is the shard that the call runs on.
        visit(duplicate_request_cache& cache, reactor& here, request_key key,
              repeat of_it = repeat::answered);
        /// Forgets the call if it was fresh and nothing was said about it; a repeat that waits is fresh then.
        ~visit();
        visit(const visit&) = delete;

        /// What begin() returns.
        class [[nodiscard("co_await it: nothing waits here otherwise")]] awaiter {
        public:
            explicit awaiter(visit& v) noexcept : visit_(v) {}
            bool await_ready() { return visit_.look(); }
            template<class Promise>
            void await_suspend(std::coroutine_handle<Promise> h) noexcept
            {
                visit_.mark_.set(h, "the first run of the same call");
                visit_.leave(h);
            }
            state await_resume() const noexcept { return visit_.state_; }

        private:
            visit& visit_;
        };
        /// Finds out what to do with the call. Once. Completes when: no other run of the same call is in progress,
        /// mostly at once. On cancel: it waits on, for the end of that run. Errors: none but std::bad_alloc.
        /// Lifetime: the visit outlives the wait, and the cache the visit. Shard: that which the visit was made for.
        awaiter begin() noexcept { return awaiter(*this); }
        /// The reply message, after `answered`.
        std::span<const std::byte> reply() const noexcept { return reply_; }
        /// Likewise: where data lie in it that transports may send beside it.
        std::span<const xdr::payload_item> items() const noexcept { return items_; }
        /// After `fresh`: what the call was answered with. Says so before the reply is sent. `items` as of
        /// kept_results.
        void remember(std::span<const std::byte> reply, std::span<const xdr::payload_item> items = {});

    private:
        friend class part;
        friend struct entry;
        bool look();
        void leave(std::coroutine_handle<> h) noexcept { waiting_ = h; }
        void go_on();
        void deliver() noexcept override;
        void finish(std::span<const std::byte> reply, std::span<const xdr::payload_item> items);

        struct queued : list_hook {
            explicit queued(visit& v) noexcept : owner(v) {}
            visit& owner;
        };
        part& part_;
        reactor& here_;
        request_key key_;
        state state_ = state::dropped;
        entry* entry_ = nullptr; // while fresh, and nothing is said yet
        std::vector<std::byte> reply_;
        std::vector<xdr::payload_item> items_;
        std::coroutine_handle<> waiting_;
        wait_mark mark_;
        queued queued_{*this};
    };

    /// As many as shards.
    std::size_t parts() const noexcept { return parts_.size(); }
    /// duplicate_request_options::max_reply.
    std::size_t max_reply() const noexcept { return max_reply_; }
    /// Of the calls whose replies the part keeps. Any thread may read.
    const duplicate_request_stats& stats(std::size_t part) const noexcept;
    /// Of calls that are only kept apart.
    const duplicate_request_stats& in_turn_stats(std::size_t part) const noexcept;

private:
    struct share {
        std::size_t places = 0, bytes = 0;
    };
    struct common_share { // that any part may take
        std::atomic<std::size_t> places{0}, bytes{0};
    };
    part& part_of(const request_key& key, repeat of_it) noexcept;

    const siphash_key secret_;
    const std::size_t max_reply_;
    common_share common_, no_more_;
    std::vector<std::unique_ptr<part>> parts_;
    std::vector<std::unique_ptr<part>> in_turn_;
};

/// Registers what `cache` counts, of all its parts, which outlives what it returns: once. Any thread.
metric_registrations expose(metric_registry& registry, const duplicate_request_cache& cache);

} // namespace verbena::rpc

#pragma GCC visibility pop
