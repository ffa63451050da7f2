// SPDX-License-Identifier: Apache-2.0
// One shard's rdma-core: devices, the table of queue pairs, the connection manager's channel.
#pragma once

#include "connection_manager.hpp"
#include "device.hpp"
#include "host.hpp"
#include "removal_watch.hpp"
#include "shared_devices.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/net/net.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/transports/rdma.hpp>

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace verbena::rdma {

class domain;
class listener;
class queue_pair;
struct work_id;

/// What peers can cause, each kind as often as its limiter lets through.
struct refusal_logs {
    log_limiter other_device;
    log_limiter setup_failed;
};

/// A counter with one writer.
inline void add(std::atomic<std::uint64_t>& counter, std::uint64_t n) noexcept
{
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}
/// Completion-queue entries that a queue pair may fill.
queue_entries entries_of(const verbs::queue_pair_options& o) noexcept;

class context_impl final : public context, private event_source, private removal_watch::observer {
public:
    context_impl(host_impl& all, reactor& shard, lanes where, const rdma::options& o,
                 rdma_event_channel* channel, const verbs::capabilities& can);
    /// `all` goes with this, its only context.
    void own(std::unique_ptr<host_impl> all) noexcept { own_ = std::move(all); }
    ~context_impl() override;

    const verbs::capabilities& query() const noexcept override { return capabilities_; }
    reactor& shard() noexcept override { return shard_; }
    verbs::device& device() noexcept override;
    bool owns(const verbs::protection_domain& d) const noexcept;
    result<std::unique_ptr<verbs::listener>> listen(std::string_view address) override;
    task<result<std::unique_ptr<verbs::queue_pair>>> connect(std::string_view address,
                                                             verbs::protection_domain& domain,
                                                             const verbs::connect_options& o,
                                                             std::vector<std::byte>& reply) override;
    const rdma::stats& counters() const noexcept override { return stats_; }
    result<std::unique_ptr<verbs::listener>> listen_adopted(std::string_view url) override;
    void adopt(std::unique_ptr<verbs::arrival> peer, verbs::listener& where) noexcept override;

    const rdma::options& options() const noexcept { return options_; }
    blocking_pool& pool() noexcept { return lanes_.work; }
    rdma::stats& counts() noexcept { return stats_; }
    void count(end_cause c) noexcept { add(stats_.ends[std::size_t(c)], 1); }
    refusal_logs& refusals() noexcept { return refusals_; }
    rdma_event_channel* channel() noexcept { return channel_.get(); }

    /// The device behind an rdma_cm_id.
    task<result<rdma::device*>> device_of(ibv_context* verbs);
    /// The device, where there is one only, or one by name.
    result<rdma::device*> only_device(std::string_view name);
    /// Where connections to `to` come from, as the options say; nothing: as the route goes.
    task<result<std::optional<net::endpoint>>> source_for(net::endpoint to);
    /// Whether device and port of `id` are those of the options, if these name any.
    result<void> as_chosen(const rdma_cm_id& id) const;
    /// connect() by one port of this end's; `held` if somebody else has that.
    task<result<std::unique_ptr<verbs::queue_pair>>>
    connect_once(std::string_view address, verbs::protection_domain& domain, const verbs::connect_options& o,
                 time_point deadline, std::vector<std::byte>& reply, bool& held);
    /// A queue pair on `id`, which it owns when this succeeds; else the caller still does.
    task<result<std::unique_ptr<queue_pair>>> make_pair(rdma_cm_id* id, domain& d,
                                                        const verbs::queue_pair_options& o, std::string name,
                                                        std::string address);

    void add(queue_pair& q, std::uint16_t& slot, std::uint16_t& generation);
    void remove(queue_pair& q) noexcept;
    /// From the poll of `from`.
    void take(const ibv_wc& wc, const rdma::device& from) noexcept;
    /// Has `q` deliver in the next poll.
    void ready(queue_pair& q) noexcept;

    void add(rdma::listener& l) { listeners_.push_back(&l); }
    void remove(rdma::listener& l) noexcept { std::erase(listeners_, &l); }
    /// The device was taken away: its queue pairs end, and what this shard has of it goes.
    void lose(ibv_context* verbs) noexcept;
    /// Has this shard's queue pairs of a domain and a device end, on pool threads.
    void end_pairs(const verbs::protection_domain& d, const ibv_context* on) noexcept;
    /// Whether one of them is not over yet.
    bool has_pairs(const verbs::protection_domain& d, const ibv_context* on) noexcept;
    /// What a device said, whichever shard read it. Outside of polls of the device.
    void on_notice(const device_notice& n) noexcept;

private:
    struct slot {
        queue_pair* owner = nullptr;
        std::uint16_t generation = 0;
    };
    static void add(std::atomic<std::uint64_t>& counter, std::uint64_t n) noexcept { rdma::add(counter, n); }
    bool poll() noexcept override;
    bool pending() const noexcept override { return !ready_.empty(); }
    bool try_arm() noexcept override;
    void on_device_removal() noexcept override;
    rdma::device* known(ibv_context* verbs) noexcept;
    result<rdma::device*> note(ibv_context* verbs, const device_limits& limits);
    template<class F>
    void each_on(const rdma::device& d, F f) noexcept;
    template<class F>
    void each_of(const verbs::protection_domain& d, const ibv_context* on, F f) noexcept;

    std::unique_ptr<host_impl> own_; // nullptr where the host has contexts on several shards
    host_impl& host_;
    reactor& shard_;
    lanes lanes_;
    rdma::options options_;
    verbs::capabilities capabilities_;
    rdma::stats stats_;
    refusal_logs refusals_;
    event_channel channel_;
    std::shared_ptr<notice_box> notices_;
    std::unique_ptr<removal_watch> removals_;
    std::vector<rdma::listener*> listeners_;
    std::vector<std::unique_ptr<rdma::device>>
        devices_; // those that went too: their queue pairs' owners may be there
    std::vector<slot> slots_;
    std::vector<std::uint16_t> free_slots_;
    mutable intrusive_list<queue_pair> ready_;
};

/// A context of `all`, which goes with it if it is given as `own`. Errors: as make_context().
result<std::unique_ptr<context>> open_context(reactor& shard, lanes where, const options& o, host_impl& all,
                                              std::unique_ptr<host_impl> own);

} // namespace verbena::rdma
