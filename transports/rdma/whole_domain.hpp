// SPDX-License-Identifier: Apache-2.0
// A protection domain as all shards see it. Each shard has a part of its own (rdma::domain), with its pools, windows and queue pairs;
// the device's protection domains are one for all, so a key that one shard gave works on the queue pairs of another.
#pragma once

#include "domain.hpp"
#include "host.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace verbena::rdma {

/// Destroyed while no shard has anything to do with it: it takes down what each has, as that shard would.
class whole_domain final : public verbs::protection_domain {
public:
    /// `device`: the one of grants that are of no queue pair; empty: the only one.
    whole_domain(host_impl& all, std::string device) noexcept : host_(all), device_(std::move(device)) {}
    ~whole_domain() override;

    task<result<std::unique_ptr<verbs::region>>> register_memory(std::span<std::byte> memory) override;
    task<result<void>> add_pool(buffer_pool& pool) override;
    bool is_registered(std::span<const std::byte> memory) const noexcept override;
    task<result<void>> make_grants(std::span<verbs::grant_request> batch) override;
    task<void> revoke(std::span<verbs::grant> batch) override;
    bool renews_at_once() const noexcept override { return false; }
    task<result<std::unique_ptr<verbs::shared_receive_queue>>>
    make_shared_receive_queue(const verbs::shared_receive_queue_options& o) override;

    const host_impl& of_host() const noexcept { return host_; }
    const std::string& device() const noexcept { return device_; }
    /// What the shard of `c` has of it, made now if it has to be. On that shard.
    domain& at(context_impl& c);
    /// The device's, made now if it has to be. Any thread; blocks.
    result<ibv_pd*> device_domain(ibv_context* verbs) noexcept;

    /// Has the kernel take regions away, on a thread of `pool`. Where the kernel refuses, the domain's queue pairs on
    /// that device end, on all shards, and the kernel is asked once more.
    ///
    /// Completes when: no peer reaches the memory; a region that the kernel keeps stays with its owner. On cancel: it
    /// goes on. Errors: none; the call may throw std::bad_alloc, co_await does not. Lifetime: `regions` outlives it,
    /// and may be filled until it is awaited. Shard: any.
    task<void> take_away(std::vector<memory_grant::left_behind>& regions, blocking_pool& pool);
    /// Keeps a region that the kernel did not take away: its memory stays with `keep` until the kernel does, or as long
    /// as the domain, and the domain has no new queue pairs on that device until then. Any thread.
    void hold(ibv_mr* region, verbs::memory_owner keep) noexcept;
    /// Whether a peer that connects by the device reaches memory that should be out of reach. Any thread.
    bool is_stuck(const ibv_context* verbs) const noexcept;
    /// Asks the kernel once more for what hold() has of a device: !is_stuck(). Any thread; blocks.
    bool settle(const ibv_context* verbs) noexcept;

    /// Grants that were dropped and are on their way to the shard that made them.
    std::atomic<int>& away() noexcept { return away_; }

    /// What shards change under it, and other shards read: which memory each has registered.
    std::mutex& memory_lock() const noexcept { return memory_lock_; }
    /// Of memory that another shard than that of `asking` has registered with the device. Any shard.
    ibv_mr* find_elsewhere(const domain& asking, std::span<const std::byte> memory,
                           ibv_context* verbs) const noexcept;
    /// The same by local key.
    ibv_mr* find_elsewhere(const domain& asking, const verbs::segment& s, ibv_context* verbs) const noexcept;

private:
    struct share {
        context_impl* context;
        std::unique_ptr<domain> part;
    };
    class errand;
    class pairs_end;
    struct device_part {
        ibv_context* on;
        ibv_pd* pd;
        std::size_t stuck = 0; ///< regions that the kernel has refused to take away
    };
    void note_stuck(const ibv_context* verbs, bool is_one_more) noexcept;
    /// The one behind `last`, the first behind nullptr; or nullptr. They come in the order in which they were made.
    domain* share_behind(const domain* last) const noexcept;
    result<domain*> here();
    domain* known_here() const noexcept;

    host_impl& host_;
    const std::string device_;
    mutable std::mutex lock_; // for who has what
    std::vector<share> shares_;
    mutable std::mutex devices_lock_;
    std::vector<device_part> devices_;
    mutable std::mutex memory_lock_;
    std::vector<memory_grant::left_behind> held_; // under it
    std::atomic<int> away_{0};
};

} // namespace verbena::rdma
