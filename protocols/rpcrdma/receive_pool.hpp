// SPDX-License-Identifier: Apache-2.0
// The receives of a listener's connections on one shard.
//
// Where the provider has shared receive queues the connections have one together. With receives on demand memory is taken when a
// message begins to arrive, so connections on which nothing comes cost none. Else as many receives stand as are promised to the
// requesters, by credits, and some for messages that use no credit. Where there is no such queue each connection has receives of
// its own, which follow its credits in the same way.
#pragma once

#include "credits.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/verbs/verbs.hpp>
#include <verbena/protocols/rpcrdma/responder.hpp>

#include <cassert>
#include <memory>
#include <vector>

namespace verbena::rpcrdma {

/// Receives that were posted, and their memory.
class posted_receives {
public:
    /// What the id of each has in its highest byte; the slot is in the lowest bits.
    static constexpr std::uint64_t id_kind = 1;
    /// Of `size` bytes each.
    posted_receives(buffer_pool& buffers, std::size_t size, std::uint32_t usable) noexcept
        : buffers_(buffers), size_(size), usable_(usable)
    {
    }
    /// Those whose memory nobody has taken yet.
    std::uint32_t held() const noexcept { return held_; }
    std::size_t size() const noexcept { return size_; }
    /// The memory of a receive that is over.
    lease take(std::uint32_t slot) noexcept
    {
        assert(slots_[slot] && "a receive that was over before");
        free_.push_back(slot);
        --held_;
        return std::move(slots_[slot]);
    }
    enum class outcome : std::uint8_t { done, no_memory, refused };
    /// Posts until `target` of them are held. `post` takes a verbs::receive_request.
    template<class Post>
    outcome fill(std::uint64_t target, Post post)
    {
        while (held_ < target) {
            lease memory = buffers_.try_acquire(size_);
            if (!memory)
                return outcome::no_memory;
            if (!add(std::move(memory), post))
                return outcome::refused;
        }
        return outcome::done;
    }
    template<class Post>
    bool add(lease memory, Post post) noexcept
    {
        try {
            if (free_.empty()) {
                free_.reserve(slots_.size() + 1);
                slots_.emplace_back();
                free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
            }
        } catch (const std::bad_alloc&) {
            return false;
        }
        const std::uint32_t slot = free_.back();
        // Of a large buffer no more than what a message may have.
        slots_[slot] = std::move(memory);
        free_.pop_back();
        ++held_;
        try {
            if (post(verbs::receive_request{id_kind << 56 | slot, {slots_[slot].data(), usable_, 0}}))
                return true;
        } catch (const std::bad_alloc&) { // of the queue
        }
        take(slot).reset();
        return false;
    }

private:
    buffer_pool& buffers_;
    const std::size_t size_;
    const std::uint32_t usable_;
    std::uint32_t held_ = 0;
    std::vector<lease> slots_;
    std::vector<std::uint32_t> free_;
};

class receive_pool final : private verbs::receive_supply, private deferred {
public:
    receive_pool(verbs::context& provider, buffer_pool& buffers, const responder_options& options,
                 responder_stats& stats);
    receive_pool(const receive_pool&) = delete;
    ~receive_pool();

    /// Makes the shared queue, if the provider can. Before the first connection.
    task<void> open(verbs::protection_domain& domain);
    /// Behind the last connection.
    task<void> close();

    /// nullptr: each connection has receives of its own, by own_receives().
    verbs::shared_receive_queue* queue() const noexcept { return queue_.get(); }
    bool on_demand() const noexcept { return on_demand_; }
    std::unique_ptr<posted_receives> own_receives();
    credit_pool& credits() noexcept { return credits_; }

    /// Of the shared queue: the memory of a receive that is over.
    lease take(std::uint32_t slot) noexcept { return posted_.take(slot); }
    /// Has all receives stand that are promised. False: there is no memory now; it goes on by itself when there is some.
    bool fill() noexcept;
    /// Not all that are promised stand.
    bool is_short() const noexcept;

private:
    std::uint64_t target() const noexcept;
    bool post(const verbs::receive_request& r) noexcept { return queue_->post_receive({&r, 1}).has_value(); }
    // receive_supply
    void receive_wanted() noexcept override;
    void receive_returned(std::uint64_t id) noexcept override;
    // deferred: it may not begin a task where it hears that it needs one
    void run() noexcept override;
    void wait_for_memory() noexcept;
    task<void> await_memory();
    bool is_hungry() const noexcept;

    verbs::context& provider_;
    buffer_pool& buffers_;
    const responder_options& options_;
    responder_stats& stats_;
    const bool on_demand_;
    credit_pool credits_;
    posted_receives posted_;
    std::unique_ptr<verbs::shared_receive_queue> queue_;
    bool waits_ = false;  // await_memory() is there
    bool hungry_ = false; // on demand: a message has no memory
    scope tasks_;
};

} // namespace verbena::rpcrdma
