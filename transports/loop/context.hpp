// SPDX-License-Identifier: Apache-2.0
// A device on one shard: where its listeners and queue pairs come from.
#pragma once

#include "device.hpp"
#include "port.hpp"

#include "../common/store_buffers.hpp"

#include <memory>
#include <vector>

namespace verbena::loop {

class handshake;

class context_impl final : public context {
public:
    context_impl(device_impl& d, reactor& shard);
    /// The only context of `d`, which goes with it.
    context_impl(std::unique_ptr<device_impl> d, reactor& shard);
    ~context_impl() override;

    const verbs::capabilities& query() const noexcept override { return profile_; }
    reactor& shard() noexcept override { return shard_; }
    device_impl& device() noexcept override { return device_; }
    result<std::unique_ptr<verbs::listener>> listen(std::string_view address) override;
    result<std::unique_ptr<verbs::listener>> listen_adopted(std::string_view url) override;
    void adopt(std::unique_ptr<verbs::arrival> peer, verbs::listener& where) noexcept override;
    void divert(diverter d) override { diverter_ = std::move(d); }
    task<result<std::unique_ptr<verbs::queue_pair>>> connect(std::string_view address,
                                                             verbs::protection_domain& domain,
                                                             const verbs::connect_options& o,
                                                             std::vector<std::byte>& reply) override;
    void remove_device() noexcept override { device_.remove(shard().now()); }
    void return_device() noexcept override { device_.return_device(); }
    bool present() const noexcept override { return device_.present(); }
    std::size_t grants() const noexcept override { return device_.grants(); }

    bool owns(const verbs::protection_domain& d) const noexcept
    {
        return &static_cast<const loop::domain&>(d).device() == &device_;
    }
    loop::fabric_impl& fabric() noexcept { return fabric_; }
    fabric_port& port() noexcept { return port_; }
    steering::table& table() noexcept { return table_; }
    /// By which its queue pairs write and read stores of their peers.
    steering::store_buffers& store_memory() noexcept { return *store_memory_; }
    const diverter& diverted() const noexcept { return diverter_; }
    /// The device went, by a shard for which it is `now`.
    void device_gone(time_point now, const error& why) noexcept;

    void add(queue_pair& q) { queue_pairs_.push_back(&q); }
    void remove(queue_pair& q) noexcept { std::erase(queue_pairs_, &q); }
    void add(handshake& h) { handshakes_.push_back(&h); }
    void remove(handshake& h) noexcept { std::erase(handshakes_, &h); }

private:
    std::unique_ptr<device_impl> own_; // nullptr where the device has contexts on several shards
    device_impl& device_;
    fabric_port& port_;
    // Of those two, for each request.
    reactor& shard_;
    loop::fabric_impl& fabric_;
    const verbs::capabilities& profile_;
    steering::table& table_;
    diverter diverter_;
    // What they have in use is bounded, of no budget, as a fabric is of one program's simulation.
    static constexpr std::size_t most_store_bytes = std::size_t(4) << 20;
    std::atomic<std::uint64_t> store_bytes_{0};
    std::atomic<std::uint64_t> store_waits_{0};
    steering::store_buffers::pointer store_memory_ =
        steering::store_buffers::make(shard_, nullptr, most_store_bytes, {store_bytes_, store_waits_});
    std::vector<queue_pair*> queue_pairs_;
    std::vector<handshake*> handshakes_;
};

} // namespace verbena::loop
