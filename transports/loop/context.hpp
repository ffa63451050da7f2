// SPDX-License-Identifier: Apache-2.0
// A device on a fabric, and the protection domains of it.
#pragma once

#include "../common/steering.hpp"
#include "fabric.hpp"

#include <vector>

namespace verbena::loop {

class context_impl;
class handshake;

class domain final : public verbs::protection_domain {
public:
    explicit domain(context_impl& c) noexcept;
    ~domain() override;
    task<result<std::unique_ptr<verbs::region>>> register_memory(std::span<std::byte> memory) override;
    task<result<void>> add_pool(buffer_pool& pool) override;
    bool is_registered(std::span<const std::byte> memory) const noexcept override;
    task<result<void>> make_grants(std::span<verbs::grant_request> batch) override;
    task<void> revoke(std::span<std::unique_ptr<verbs::grant>> batch) override;
    task<result<std::unique_ptr<verbs::shared_receive_queue>>>
    make_shared_receive_queue(const verbs::shared_receive_queue_options& o) override;
    context_impl& context() noexcept { return context_; }
    /// Whether this end may use `s` in a work request.
    bool owns(const verbs::segment& s) const noexcept;

private:
    class registered;
    class pool_memory;
    context_impl& context_;
    std::vector<registered*> regions_;
    std::vector<std::unique_ptr<pool_memory>> pools_;
};

class context_impl final : public context, private timer {
public:
    context_impl(fabric_impl& f, const options& o);
    ~context_impl() override;

    const verbs::capabilities& query() const noexcept override { return options_.profile; }
    reactor& shard() noexcept override { return fabric_.shard(); }
    result<std::unique_ptr<verbs::protection_domain>> make_domain() override;
    result<std::unique_ptr<verbs::listener>> listen(std::string_view address) override;
    task<result<std::unique_ptr<verbs::queue_pair>>> connect(std::string_view address,
                                                             verbs::protection_domain& domain,
                                                             const verbs::connect_options& o,
                                                             std::vector<std::byte>& reply) override;
    void remove_device() noexcept override;
    void return_device() noexcept override;
    bool present() const noexcept override { return present_; }
    std::size_t grants() const noexcept override { return table_.size(); }

    /// As remove_device(); it comes back by itself.
    void lose_device(duration until) noexcept;
    loop::fabric_impl& fabric() noexcept { return fabric_; }
    const loop::options& options() const noexcept { return options_; }
    steering::table& table() noexcept { return table_; }
    /// Tagged offsets of its own rather than addresses, so that a run with the same seed shows the same, and
    /// whoever takes an address for one fails at once.
    std::uint64_t next_offset(std::size_t size) noexcept;
    std::uint32_t next_local_key() noexcept { return table_.fresh_tag(); }

    void add(queue_pair& q) { queue_pairs_.push_back(&q); }
    void remove(queue_pair& q) noexcept { std::erase(queue_pairs_, &q); }
    void add(handshake& h) { handshakes_.push_back(&h); }
    void remove(handshake& h) noexcept { std::erase(handshakes_, &h); }

private:
    void on_timer() noexcept override { return_device(); }

    fabric_impl& fabric_;
    loop::options options_;
    steering::table table_;
    std::vector<queue_pair*> queue_pairs_;
    std::vector<handshake*> handshakes_;
    std::uint64_t next_offset_ = 0x10000;
    bool present_ = true;
};

} // namespace verbena::loop
