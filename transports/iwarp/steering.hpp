// SPDX-License-Identifier: Apache-2.0
// Steering tags as iWARP answers for them: each fault has its Terminate code.
#pragma once

#include "wire.hpp"

#include "../common/steering.hpp"

#include <verbena/core/verbs/verbs.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace verbena::iwarp {

class device_impl;
class domain;

/// What a check found: memory to touch, or a store, or the Terminate code that names the fault.
struct steering_check {
    std::byte* address = nullptr;
    wire::terminate_code fault{};
    const char* rule = nullptr;        ///< nullptr: granted
    steering::record* store = nullptr; ///< as finding::store
};

class steering_table : public steering::table {
public:
    using table::table;
    /// `read_source`: the codes of RDMAP rather than DDP (RFC 5040 5.4 gives Read sources to RDMAP; tagged
    /// placement is DDP's, RFC 5041 7.1). Within a section, as table::check().
    steering_check check(std::uint32_t stag, std::uint64_t offset, std::uint64_t size, verbs::access want,
                         const domain& d, steering::scope_id scope, bool read_source) const noexcept;
};

class domain final : public verbs::protection_domain, public steering::tag_owner {
public:
    explicit domain(device_impl& d) noexcept : device_(d) {}
    // Software placement needs no pinning, so registration and pools ask for nothing.
    task<result<std::unique_ptr<verbs::region>>> register_memory(std::span<std::byte> memory) override;
    task<result<void>> add_pool(buffer_pool&) override { co_return result<void>(); }
    bool is_registered(std::span<const std::byte>) const noexcept override { return true; }
    task<result<void>> make_grants(std::span<verbs::grant_request> batch) override;
    task<void> revoke(std::span<verbs::grant> batch) override;
    bool renews_at_once() const noexcept override { return !is_shared(); }
    task<result<std::unique_ptr<verbs::shared_receive_queue>>>
    make_shared_receive_queue(const verbs::shared_receive_queue_options& o) override;
    device_impl& device() const noexcept { return device_; }
    /// A queue pair of it lives on the shard of `l`, from now on.
    void used_at(const steering::lane& l) noexcept;
    /// By queue pairs of several shards.
    bool is_shared() const noexcept { return is_shared_.load(std::memory_order_seq_cst); }

    /// Payloads from which on a peer's Writes are large.
    static constexpr std::size_t bulk = 16384;
    /// Whether grants stand that let a peer write such: a hint that such payloads come.
    bool expects_bulk() const noexcept { return bulk_grants_.load(std::memory_order_relaxed) != 0; }

private:
    void on_bound(const steering::record& r) noexcept override;
    void on_unbound(const steering::record& r) noexcept override;
    bool is_used_beside(const steering::lane* here) const noexcept override;
    static bool is_bulk(const steering::record& r) noexcept;

    device_impl& device_;
    std::atomic<std::uint32_t> bulk_grants_{0};
    std::atomic<const reactor*> only_{nullptr}; // all its queue pairs are of this shard, unless
    std::atomic<bool> is_shared_{false};
};

} // namespace verbena::iwarp
