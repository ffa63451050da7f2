// SPDX-License-Identifier: Apache-2.0
// A state machine whose states have names, with a table that says which state may follow which, and a memory of its last changes.
//
//     enum class door_state : std::uint8_t { open, shut, locked };
//     inline constexpr std::array door_rules = {
//         state_rule{"open", followed_by(door_state::shut)},
//         state_rule{"shut", followed_by(door_state::open, door_state::locked)},
//         state_rule{"locked", followed_by(door_state::shut)},
//     };
//     named_state<door_state, door_rules> state_{shard, "door", door_state::shut};
//     ...
//     state_.to(door_state::locked, "the last guest has left");
//
// It is for objects with more than three flags: an enum has fewer values than flags have combinations, and a dump of the
// shard's tasks (task_dump.hpp) shows how an object that hangs came to where it is.
#pragma once

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/state_record.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)

namespace verbena {

/// The set of `states`, for a state_rule.
template<class... Enum>
constexpr std::uint32_t followed_by(Enum... states) noexcept
{
    return ((std::uint32_t(1) << unsigned(states)) | ... | std::uint32_t(0));
}

namespace detail {

// Each rule names states of the table, and each state but the first can be reached from another one.
template<std::size_t N>
constexpr bool rules_fit(const std::array<state_rule, N>& rules) noexcept
{
    std::uint64_t reached = 1;
    for (std::size_t i = 0; i < N; ++i) {
        if (rules[i].name == nullptr || std::uint64_t(rules[i].next) >> N != 0)
            return false;
        reached |= rules[i].next & ~(std::uint64_t(1) << i);
    }
    return N <= 32 && reached == (std::uint64_t(1) << N) - 1;
}

} // namespace detail

/// The state of one object. `Rules` is a constexpr std::array of state_rule, indexed by `Enum`, whose first value is 0.
/// It allocates nothing, and takes some 250 bytes. Its reactor outlives it, or has been destroyed without a turn since. Shard only.
template<class Enum, const auto& Rules>
class named_state final : private detail::state_record {
    static_assert(detail::rules_fit(Rules),
                  "a rule names a state outside of the table, or nothing leads to a state");

public:
    /// `object` says what has this state, in dumps and logs; a literal.
    named_state(reactor& shard, const char* object, Enum first = Enum()) noexcept
        : state_record(shard, object, Rules.data(), std::uint8_t(first))
    {
    }

    /// The state that the object is in. On its shard.
    Enum get() const noexcept { return Enum(now()); }
    bool operator==(Enum other) const noexcept { return get() == other; }
    /// One of them.
    template<class... Others>
    bool is_in(Others... others) const noexcept
    {
        return (followed_by(others...) >> now() & 1) != 0;
    }
    /// For people.
    const char* name() const noexcept { return state_record::name(now()); }

    /// Goes to `next`. `why` is a literal, kept for dumps. False if no rule allows that, which is a fault of ours: the state stays as
    /// it is, and the fault is counted (reactor_stats::illegal_transitions), logged, and shown by dumps.
    bool to(Enum next, const char* why) noexcept { return go(std::uint8_t(next), why); }
};

} // namespace verbena

#pragma GCC visibility pop
