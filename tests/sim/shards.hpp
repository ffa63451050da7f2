// SPDX-License-Identifier: Apache-2.0
// What simulations on several shards share: a peer's way to another shard, and who wrote to whom.
#pragma once

#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/reactor/simulated_shards.hpp>
#include <verbena/transports/loop.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace verbena::sim {

/// Brings a peer that a listener of one shard diverted to another shard, for the listener that adopts there when it
/// arrives. If there is none, the peer is refused.
class handover final : public remote_message {
public:
    using adopting = const std::unique_ptr<verbs::listener>;
    static void send(shard& to, loop::context& device, adopting& listener,
                     std::unique_ptr<verbs::arrival> peer)
    {
        to.reactor().post_remote(*new handover(device, listener, std::move(peer)));
    }
    void deliver() noexcept override
    {
        const std::unique_ptr<handover> self(this);
        if (listener_ != nullptr)
            device_.adopt(std::move(peer_), *listener_);
    }

private:
    handover(loop::context& device, adopting& listener, std::unique_ptr<verbs::arrival> peer) noexcept
        : device_(device), listener_(listener), peer_(std::move(peer))
    {
    }
    loop::context& device_;
    adopting& listener_;
    std::unique_ptr<verbs::arrival> peer_;
};

/// Messages between shards, over all runs with so many shards.
class exchanged {
public:
    explicit exchanged(std::size_t shards) : shards_(shards), messages_(shards * shards) {}
    /// Counts those of a run, if it had so many shards.
    void add(const simulated_shards& all)
    {
        if (all.size() != shards_)
            return;
        for (std::size_t from = 0; from < shards_; ++from)
            for (std::size_t to = 0; to < shards_; ++to)
                messages_[from * shards_ + to] += all.messages(from, to);
    }
    /// Pairs of which neither wrote to the other, for people, or nothing.
    std::string silent_pairs() const
    {
        std::string text;
        for (std::size_t a = 0; a < shards_; ++a)
            for (std::size_t b = a + 1; b < shards_; ++b)
                if (messages_[a * shards_ + b] + messages_[b * shards_ + a] == 0)
                    text += std::to_string(a) + " and " + std::to_string(b) + "; ";
        return text;
    }

private:
    std::size_t shards_;
    std::vector<std::uint64_t> messages_;
};

} // namespace verbena::sim
