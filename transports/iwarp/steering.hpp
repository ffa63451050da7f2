// SPDX-License-Identifier: Apache-2.0
// Steering tags as iWARP answers for them: each fault has its Terminate code.
#pragma once

#include "wire.hpp"

#include "../common/steering.hpp"

#include <verbena/core/verbs/verbs.hpp>

#include <cstdint>
#include <vector>

namespace verbena::iwarp {

class connection;
class domain;

class steering_grant final : public steering::grant {
public:
    steering_grant(domain& d, const verbs::grant_request& r, steering::scope_id scope);
    ~steering_grant() override;

private:
    void on_bound() noexcept override;
    void on_revoked(std::uint32_t stag) noexcept override;
    bool is_bulk() const noexcept;
    domain& domain_;
};

/// What a check found: memory to touch, or the Terminate code that names the fault.
struct steering_check {
    std::byte* address = nullptr;
    wire::terminate_code fault{};
    const char* rule = nullptr; ///< nullptr: granted
};

class steering_table : public steering::table {
public:
    /// `read_source`: the codes of RDMAP rather than DDP (RFC 5040 5.4 gives Read sources to RDMAP; tagged
    /// placement is DDP's, RFC 5041 7.1).
    steering_check check(std::uint32_t stag, std::uint64_t offset, std::uint64_t size, verbs::access want,
                         const domain& d, steering::scope_id scope, bool read_source) const noexcept;
};

class domain final : public verbs::protection_domain {
public:
    explicit domain(steering_table& table) noexcept : table_(table) {}
    // Software placement needs no pinning, so registration and pools ask for nothing.
    task<result<std::unique_ptr<verbs::region>>> register_memory(std::span<std::byte> memory) override;
    task<result<void>> add_pool(buffer_pool&) override { co_return result<void>(); }
    bool is_registered(std::span<const std::byte>) const noexcept override { return true; }
    task<result<void>> make_grants(std::span<verbs::grant_request> batch) override;
    task<void> revoke(std::span<std::unique_ptr<verbs::grant>> batch) override;
    task<result<std::unique_ptr<verbs::shared_receive_queue>>>
    make_shared_receive_queue(const verbs::shared_receive_queue_options& o) override;
    steering_table& table() noexcept { return table_; }
    /// Standing grants that let a peer write large payloads: a hint that such payloads come.
    std::uint32_t bulk_grants = 0;
    static constexpr std::size_t bulk = 16384;
    /// Connections with Read Response bytes built but not yet taken by the socket.
    std::vector<connection*> responding;

private:
    steering_table& table_;
};

} // namespace verbena::iwarp
