// SPDX-License-Identifier: Apache-2.0
// One shard's iWARP: its steering tags, its staging buffer, its counters, its listeners.
#pragma once

#include "steering.hpp"

#include <verbena/core/memory/idle_memory.hpp>
#include <verbena/transports/iwarp.hpp>

#include <memory>
#include <string>
#include <vector>

namespace verbena::iwarp {

class connection;
class mpa_listener;

class context_impl final : public context {
public:
    /// Bytes received at once when nothing large is expected; shared by all connections, since each
    /// consumes what it received before the next one is polled.
    static constexpr std::size_t staging_size = 131072;

    context_impl(reactor& shard, const iwarp::options& o);
    ~context_impl() override;

    const verbs::capabilities& query() const noexcept override { return capabilities_; }
    reactor& shard() noexcept override { return shard_; }
    result<std::unique_ptr<verbs::protection_domain>> make_domain() override;
    result<std::unique_ptr<verbs::listener>> listen(std::string_view address) override;
    task<result<std::unique_ptr<verbs::queue_pair>>> connect(std::string_view address,
                                                             verbs::protection_domain& domain,
                                                             const verbs::connect_options& o,
                                                             std::vector<std::byte>& reply) override;
    const iwarp::stats& counters() const noexcept override { return stats_; }
    result<std::unique_ptr<verbs::listener>> listen_adopted(std::string_view url) override;
    void adopt(int fd, verbs::listener& where) noexcept override;
    void adopt(std::unique_ptr<verbs::arrival> peer, verbs::listener& where) noexcept override;

    const iwarp::options& options() const noexcept { return options_; }
    iwarp::stats& stats() noexcept { return stats_; }
    steering_table& table() noexcept { return table_; }
    std::span<std::byte> staging() noexcept { return {staging_.get(), staging_size}; }

    /// Of its connections.
    idle_memory& idle() noexcept { return idle_; }

    // Where the connection that reads when memory for messages runs out keeps what it has read: one place, so that this is bounded.
    // While it is in use nobody reads ahead.
    bool holds_over() const noexcept { return held_for_ != nullptr; }
    /// Keeps `bytes`, which lie in the staging buffer or here.
    void hold_over(const connection& c, std::span<const std::byte> bytes) noexcept;
    std::span<const std::byte> held_over(const connection& c) const noexcept
    {
        return held_for_ == &c ? held_ : std::span<const std::byte>();
    }
    void drop_held(const connection& c) noexcept
    {
        if (held_for_ == &c)
            held_for_ = nullptr;
    }

    void count(end_cause c) noexcept { add(stats_.ends[std::size_t(c)], 1); }
    static void add(std::atomic<std::uint64_t>& counter, std::uint64_t n) noexcept
    {
        counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    }

private:
    reactor& shard_;
    iwarp::options options_;
    verbs::capabilities capabilities_;
    iwarp::stats stats_;
    steering_table table_;
    idle_memory idle_{shard_, std::chrono::seconds(1)};
    std::unique_ptr<std::byte[]> staging_;
    std::unique_ptr<std::byte[]> kept_; // of staging_size; no page of it is touched before it is needed
    const connection* held_for_ = nullptr;
    std::span<const std::byte> held_; // in kept_
};

} // namespace verbena::iwarp
