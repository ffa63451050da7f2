// SPDX-License-Identifier: Apache-2.0
// An iWARP device on one shard: its staging buffer, its counters, its listeners.
#pragma once

#include "device.hpp"

#include "../common/store_buffers.hpp"

#include <verbena/core/memory/idle_memory.hpp>
#include <verbena/transports/iwarp.hpp>

#include <memory>
#include <string>
#include <vector>

namespace verbena::iwarp {

class connection;
class mpa_listener;

class context_impl final : public context, private steering::lane_user {
public:
    /// Bytes received at once when nothing large is expected; shared by all connections, since each
    /// consumes what it received before the next one is polled.
    static constexpr std::size_t staging_size = 131072;

    context_impl(device_impl& d, reactor& shard, const iwarp::options& o);
    /// The only context of `d`, which goes with it.
    context_impl(std::unique_ptr<device_impl> d, reactor& shard, const iwarp::options& o);
    ~context_impl() override;

    const verbs::capabilities& query() const noexcept override { return device_.query(); }
    reactor& shard() noexcept override { return shard_; }
    device_impl& device() noexcept override { return device_; }
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
    bool owns(const verbs::protection_domain& d) const noexcept
    {
        return &static_cast<const iwarp::domain&>(d).device() == &device_;
    }
    steering::lane& lane() noexcept { return lane_; }
    steering::magazine& slots() noexcept { return slots_; }
    /// `c` owes its peer bytes that its socket did not take. In a section. False: there is no memory to note that.
    bool note_debt(connection& c) noexcept;
    void clear_debt(connection& c) noexcept;
    /// By which its connections read and write stores.
    steering::store_buffers& store_memory() noexcept { return *store_memory_; }
    /// What the peer at `address` has of it. Where peers are not told apart all have one. Throws std::bad_alloc.
    steering::store_buffer_share store_share(std::string_view address);
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
    void settle_debts() noexcept override;

    std::unique_ptr<device_impl> own_; // nullptr where the device has contexts on several shards
    device_impl& device_;
    // Of these, for each message.
    reactor& shard_;
    steering_table& table_;
    iwarp::options options_;
    iwarp::stats stats_;
    steering::magazine slots_;
    std::vector<connection*> debtors_; // with Read Response bytes built but not yet taken by the socket
    idle_memory idle_{shard_, std::chrono::seconds(1)};
    steering::store_buffers::pointer store_memory_; // buffers may outlast it
    std::unique_ptr<std::byte[]> staging_;
    std::unique_ptr<std::byte[]> kept_; // of staging_size; no page of it is touched before it is needed
    const connection* held_for_ = nullptr;
    std::span<const std::byte> held_; // in kept_
    steering::lane& lane_;            // last: from then on the device knows of this
};

} // namespace verbena::iwarp
