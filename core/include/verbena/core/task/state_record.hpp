// SPDX-License-Identifier: Apache-2.0
// What a dump shows of a state machine: the state it is in, and how it came there. Written by named_state.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/reactor/clock.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)

namespace verbena {

class reactor;

/// One state of a machine: what people call it, and the set of states that may follow it. States are numbered from 0, at most 32.
struct state_rule {
    const char* name;   ///< a literal
    std::uint32_t next; ///< of followed_by()
};

namespace detail {

/// The last changes of one machine. In its reactor's list for as long as it lives. Shard only.
class state_record : public list_hook {
public:
    /// So many changes are kept.
    static constexpr std::size_t kept = 8;

    struct change {
        time_point when;
        const char* why = nullptr;
        std::uint8_t from = 0;
        std::uint8_t to = 0;
        bool refused = false; ///< no rule allows it, so it did not happen
    };

    state_record(reactor& shard, const char* machine, const state_rule* rules, std::uint8_t first) noexcept;

    /// What the machine belongs to.
    const char* machine() const noexcept { return machine_; }
    const char* name(std::uint8_t state) const noexcept { return rules_[state].name; }
    std::uint8_t now() const noexcept { return now_; }
    time_point since() const noexcept { return since_; }
    /// How many changes are kept at this time.
    std::size_t changes() const noexcept { return count_ < kept ? count_ : kept; }
    /// The `i`th of them; 0 is the oldest.
    const change& at(std::size_t i) const noexcept { return ring_[(count_ - changes() + i) % kept]; }

protected:
    ~state_record() = default;
    bool go(std::uint8_t next, const char* why) noexcept;

private:
    void note(std::uint8_t next, const char* why, bool refused) noexcept;
    void refuse(std::uint8_t next, const char* why) noexcept;

    reactor& shard_;
    const char* const machine_;
    const state_rule* const rules_;
    std::uint8_t now_;
    std::size_t count_ = 0; // of all changes, those that were refused too
    time_point since_;
    std::array<change, kept> ring_;
};

} // namespace detail
} // namespace verbena

#pragma GCC visibility pop
