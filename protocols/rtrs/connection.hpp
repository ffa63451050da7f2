// SPDX-License-Identifier: Apache-2.0
// What a connection of a client and one of a server have in common: a queue pair, receives that stand, what came, and the end.
#pragma once

#include <verbena/core/memory/buffer.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/verbs/verbs.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace verbena::rtrs {

/// One queue pair of a path. What completes is noted by the poll and handled by run().
class connection : public verbs::completion_handler, public deferred {
public:
    connection(const connection&) = delete;
    /// Completes when: nothing of the queue pair touches memory any more, if there is one. On cancel: it waits on. Errors: none.
    /// Lifetime: the connection outlives it. Shard: the connection's.
    task<void> ended();
    void on_disconnected(const error& cause) noexcept final;

protected:
    /// Of a receive that takes its place again once it was handled: which one; none: another.
    static constexpr std::uint32_t no_slot = ~std::uint32_t(0);
    struct arrival {
        verbs::opcode kind;
        std::uint32_t length;
        std::uint32_t immediate;
        std::uint32_t slot;
    };

    explicit connection(std::uint16_t number) noexcept : number_(number) {}
    ~connection();
    /// There is a queue pair now, of which at most `receives` stand at once.
    void take(std::unique_ptr<verbs::queue_pair> made);
    void reserve(std::size_t receives);
    bool is_up() const noexcept { return queue_pair_ != nullptr && !down_; }
    /// Receives that stand from now on, each with `bytes_of_slot` of `memory`, if there is any. Once.
    bool post_receives(std::uint32_t count, lease memory = {}, std::uint32_t bytes_of_slot = 0) noexcept;
    /// Posts again what took `arrivals`.
    bool repost(std::span<const arrival> arrivals) noexcept;
    /// What a receive's slot holds.
    std::span<const std::byte> in_slot(const arrival& a) const noexcept;
    /// A receive that completed with success is one of arrived_; false: it is none.
    bool note(const verbs::completion& c);
    /// The queue pair has ended.
    virtual void on_end(const error& cause) noexcept = 0;

    const std::uint16_t number_; // within the path
    std::vector<arrival> arrived_;
    std::vector<arrival> handling_;
    bool down_ = false;

private:
    verbs::receive_request receive(std::uint32_t slot) const noexcept;

    lease memory_;
    std::uint32_t bytes_of_slot_ = 0;
    event ended_;

protected:
    std::unique_ptr<verbs::queue_pair> queue_pair_; // goes before the memory of its receives
};

} // namespace verbena::rtrs
