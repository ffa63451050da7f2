// SPDX-License-Identifier: Apache-2.0
// The slots of a session's back channel, as the client keeps them (RFC 8881 2.10.6).
#pragma once

#include <verbena/protocols/nfs/wire/v4/callback.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// Which callback runs, and what the one before it in its slot was answered. Decides alone; shard-local. A callback runs from end to end without
/// a wait, so that none finds its slot in use.
class callback_slots {
public:
    static constexpr std::size_t max_slots = 4;
    /// Bytes of an answer, from COMPOUND's status on; all are kept.
    static constexpr std::size_t max_kept = 1024;

    /// Of a new session, which was granted so many.
    void reset(std::size_t slots) noexcept;
    std::size_t size() const noexcept { return size_; }

    /// What CB_SEQUENCE of a callback is to be answered. OK with `repeated` false: it runs, and begin() and keep() follow. OK with
    /// `repeated` true: kept() is the answer. `digest` is of all of its arguments.
    nfsstat4 look(const CB_SEQUENCE4args& args, std::uint64_t digest, bool& repeated) const noexcept;
    /// Uses the number up.
    void begin(const CB_SEQUENCE4args& args, std::uint64_t digest) noexcept;
    /// Keeps the answer for a repeat: a copy. `number` is one that begin() used.
    void keep(std::uint32_t number, std::span<const std::byte> answer)
    {
        slots_[number].kept.assign(answer.begin(), answer.end());
    }
    /// The answer that keep() kept, until the slot's next callback.
    std::span<const std::byte> kept(std::uint32_t number) const noexcept { return slots_[number].kept; }

private:
    struct slot {
        std::uint32_t sequence = 0; // of the last one
        std::uint64_t digest = 0;
        std::vector<std::byte> kept; // empty: none
    };
    std::array<slot, max_slots> slots_;
    std::size_t size_ = 0;
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
