// SPDX-License-Identifier: Apache-2.0
// A device on a fabric: what it can do, and the memory that peers may touch by it. Its contexts, one for each shard,
// make its connections.
#pragma once

#include "../common/steering.hpp"
#include "fabric.hpp"

#include <verbena/core/reactor/timer.hpp>

#include <vector>

namespace verbena::loop {

class context_impl;
class device_impl;

/// Of the device: queue pairs of all its contexts use it, and so do tasks of all their shards.
class domain final : public verbs::protection_domain, public steering::tag_owner {
public:
    explicit domain(device_impl& d) noexcept;
    ~domain() override;
    task<result<std::unique_ptr<verbs::region>>> register_memory(std::span<std::byte> memory) override;
    task<result<void>> add_pool(buffer_pool& pool) override;
    bool is_registered(std::span<const std::byte> memory) const noexcept override;
    task<result<void>> make_grants(std::span<verbs::grant_request> batch) override;
    task<void> revoke(std::span<verbs::grant> batch) override;
    bool renews_at_once() const noexcept override;
    task<result<std::unique_ptr<verbs::shared_receive_queue>>>
    make_shared_receive_queue(const verbs::shared_receive_queue_options& o) override;
    /// Whether this end may use `s` in a work request.
    bool owns(const verbs::segment& s) const noexcept;
    device_impl& device() const noexcept { return device_; }

private:
    // All shards are one thread's, and none is in the middle of something while another one runs.
    bool is_used_beside(const steering::lane*) const noexcept override { return false; }
    class registered;
    class pool_memory;
    device_impl& device_;
    std::vector<registered*> regions_;
    std::vector<std::unique_ptr<pool_memory>> pools_;
};

class device_impl final : public device, private timer {
public:
    device_impl(fabric_impl& f, const options& o);
    ~device_impl() override;

    std::unique_ptr<loop::context> make_context(reactor& shard) override;
    void remove_device() noexcept override { remove(fabric_.clock().now()); }
    void return_device() noexcept override;
    bool present() const noexcept override { return present_; }
    std::size_t grants() const noexcept override { return table_.size(); }

    /// As remove_device(), by a shard for which it is `now`.
    void remove(time_point now) noexcept;
    /// As remove_device(), in the turn of `shard`; it comes back by itself.
    void lose(reactor& shard, duration until) noexcept;
    loop::fabric_impl& fabric() noexcept { return fabric_; }
    const loop::options& options() const noexcept { return options_; }
    const verbs::capabilities& query() const noexcept override { return options_.profile; }
    result<std::unique_ptr<verbs::protection_domain>> make_domain(std::string_view) override;
    steering::table& table() noexcept { return table_; }
    /// Tagged offsets of its own rather than addresses, so that a run with the same seed shows the same, and
    /// whoever takes an address for one fails at once.
    std::uint64_t next_offset(std::size_t size) noexcept;
    std::uint32_t next_local_key() noexcept { return table_.fresh_tag(keys_); }

    void add(context_impl& c) { contexts_.push_back(&c); }
    void remove(context_impl& c) noexcept { std::erase(contexts_, &c); }

private:
    void on_timer() noexcept override { return_device(); }

    fabric_impl& fabric_;
    loop::options options_;
    steering::quiescence shards_; // of none: see domain::is_used_beside()
    steering::table table_;
    std::vector<context_impl*> contexts_;
    steering::magazine keys_;
    std::uint64_t next_offset_ = 0x10000;
    bool present_ = true;
};

} // namespace verbena::loop
