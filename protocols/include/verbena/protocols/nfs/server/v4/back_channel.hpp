// SPDX-License-Identifier: Apache-2.0
// The back channel of a session (8881 2.10.3, 2.10.6): the connections over which its client can be called, and how such calls are signed.
#pragma once

#include <verbena/core/reactor/shard.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/protocols/nfs/wire/v4/session_operations.hpp>
#include <verbena/protocols/rpc/message.hpp>
#include <verbena/protocols/rpc/reverse_channel.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// Which program of the client's is called, and as whom.
struct callback_identity {
    /// The best of what a client allows: Linux drops calls that say AUTH_NONE. Nothing if there is none that we can give.
    static std::optional<callback_identity>
    choose(std::uint32_t program, const array_view<callback_sec_parms4, max_security_flavours>& allowed);

    std::uint32_t program = 0;
    rpc::auth_flavor flavor = rpc::auth_flavor::none;
    std::array<std::byte, rpc::max_auth_body> body{};
    std::size_t body_size = 0;
};

/// One session's. Any thread, but for its slots, which are those of the state layer's shard.
class back_channel {
public:
    /// Of a client that asks for more, no more are used.
    static constexpr std::uint32_t most_slots = 16;
    static constexpr std::size_t most_ways = 16;

    /// A connection, and the shard on which it can be called. `at` lives as long as the server.
    struct way {
        std::shared_ptr<rpc::reverse_channel> channel;
        const shard* at = nullptr;
        bool calls_alone = false; ///< it was bound for calls to the client alone: CDFC4_BACK
    };

    /// What the client agreed to when it made the session: it is called as `minor` and within `limits`, which are all 0 if it wants no
    /// calls. There is a back channel from the first bind() on.
    void set_up(std::uint32_t minor, const channel_attrs4& limits);
    /// As whom the client is called, from the next call on (BACKCHANNEL_CTL).
    void set_identity(const callback_identity& identity);
    /// From now on the client is called over `channel`, too. `calls_alone`: see way.
    void bind(std::shared_ptr<rpc::reverse_channel> channel, const shard& at, bool calls_alone = false);

    /// A connection that is there; nothing if there is none.
    std::optional<way> find() const;
    /// As set_identity() said it; nothing before.
    std::optional<callback_identity> identity() const;
    /// The minor version of calls to the client.
    std::uint32_t minor() const noexcept { return minor_.load(std::memory_order_relaxed); }
    /// 0: no back channel was agreed on.
    std::uint32_t max_request() const noexcept { return max_request_.load(std::memory_order_relaxed); }
    /// How the client is called over `channel`; nothing if it is not.
    std::optional<way> bound(const rpc::reverse_channel& channel) const;
    /// Whether there has been a connection of it.
    bool was_granted() const noexcept { return granted_.load(std::memory_order_acquire); }
    /// Whether it was granted, and no connection of it is left.
    bool is_down() const;
    /// Whether the client can be called now, as far as is known.
    bool is_up() const;
    /// What the client does with calls makes no sense: it is to make the session anew (SEQ4_STATUS_BACKCHANNEL_FAULT).
    void set_fault(bool fault) noexcept { fault_.store(fault, std::memory_order_relaxed); }
    /// As set_fault() said it.
    bool has_fault() const noexcept { return fault_.load(std::memory_order_relaxed); }

    /// --- On the state layer's shard.

    struct slot {
        std::uint32_t sequence = 0; ///< that was last known to have been used up
        bool busy = false;          ///< a call is under way
        bool restarted = false;     ///< its numbers began anew once, since the client's were others
        bool in_doubt = false;      ///< the next number may be known there, and answered as an earlier call
    };
    /// A slot that is free, or nothing; then `freed` is set when one may be.
    std::optional<std::uint32_t> take_slot();
    /// A call has ended; its slot may be taken again.
    void release_slot(std::uint32_t slot) noexcept;
    /// A slot that take_slot() gave.
    slot& at(std::uint32_t number) noexcept { return slots_[number]; }
    /// Calls that the client takes at once.
    std::uint32_t slots() const noexcept { return slot_count_.load(std::memory_order_relaxed); }
    /// The client takes fewer than it said.
    void use_first_slot_only() noexcept { slot_count_.store(1, std::memory_order_relaxed); }
    event freed; ///< set when a slot may be free

private:
    bool has_way() const; // with `lock_`

    mutable std::mutex lock_;
    std::vector<way> ways_;
    std::optional<callback_identity> identity_;
    std::atomic<bool> granted_{false};
    std::atomic<bool> fault_{false};
    std::atomic<std::uint32_t> minor_{1};
    std::atomic<std::uint32_t> max_request_{0};
    std::atomic<std::uint32_t> slot_count_{1};
    std::array<slot, most_slots> slots_;
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
