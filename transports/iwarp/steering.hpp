// SPDX-License-Identifier: Apache-2.0
// Steering tags: what a peer may touch, and the table that every tagged byte is checked against.
#pragma once

#include "wire.hpp"

#include <verbena/core/verbs.hpp>

#include <array>
#include <cstdint>
#include <vector>

namespace verbena::iwarp {

class connection;
class domain;
class steering_table;

/// One steering tag's permission. Its tag is random over all 32 bits and never reused while it stands;
/// a new grant of the same memory gets another one, which is what a generation is for.
class steering_grant final : public verbs::grant {
public:
    steering_grant(domain& d, std::span<std::byte> memory, verbs::access rights, const void* scope);
    ~steering_grant() override;
    static void* operator new(std::size_t size) { return allocate_frame(size); }
    static void operator delete(void* p, std::size_t size) noexcept { release_frame(p, size); }

    verbs::remote_segment where() const noexcept override;
    void revoke() noexcept override;
    bool valid() const noexcept override { return stag_ != 0; }

    std::span<std::byte> memory() const noexcept { return memory_; }
    std::uint32_t stag() const noexcept { return stag_; }

private:
    friend class steering_table;
    domain& domain_;
    std::span<std::byte> memory_;
    verbs::access rights_;
    const void* scope_; // the queue pair it is limited to, or nullptr
    std::uint32_t stag_ = 0;
};

/// What a check found: memory to touch, or the Terminate code that names the fault.
struct steering_check {
    std::byte* address = nullptr;
    steering_grant* grant = nullptr;
    wire::terminate_code fault{};
    const char* rule = nullptr; ///< nullptr: granted
};

/// All tags of one context. Open addressing; a lookup touches one cache line as a rule.
class steering_table {
public:
    steering_table();
    /// A random tag that is in no use; for the sinks of our own Reads, which no peer may write by itself.
    std::uint32_t fresh_tag() noexcept;
    /// A tag nobody has, for `g`.
    std::uint32_t insert(steering_grant& g);
    void erase(std::uint32_t stag) noexcept;
    steering_grant* find(std::uint32_t stag) const noexcept;
    /// May `scope`'s peer touch `size` bytes at `offset`? `read_source`: the codes of RDMAP rather than
    /// DDP (RFC 5040 5.4 gives Read sources to RDMAP; tagged placement is DDP's, RFC 5041 7.1).
    steering_check check(std::uint32_t stag, std::uint64_t offset, std::uint64_t size, verbs::access want,
                         const domain& d, const void* scope, bool read_source) const noexcept;
    /// Invalidation by the peer; false if it may not.
    bool invalidate(std::uint32_t stag, const domain& d, const void* scope) noexcept;

private:
    struct slot {
        std::uint32_t stag = 0;
        steering_grant* grant = nullptr;
    };
    std::uint32_t random() noexcept;
    void grow();
    std::size_t home(std::uint32_t stag) const noexcept { return stag & (slots_.size() - 1); }

    std::vector<slot> slots_;
    std::size_t count_ = 0;
    std::array<std::uint32_t, 256> entropy_{};
    std::size_t entropy_left_ = 0;
};

class domain final : public verbs::protection_domain {
public:
    explicit domain(steering_table& table) noexcept : table_(table) {}
    result<std::unique_ptr<verbs::region>> register_memory(std::span<std::byte> memory) override;
    result<std::unique_ptr<verbs::grant>> make_grant(std::span<std::byte> memory, verbs::access rights,
                                                     verbs::queue_pair* scope) override;
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
