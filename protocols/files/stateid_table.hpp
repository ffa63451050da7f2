// SPDX-License-Identifier: Apache-2.0
// Which stateids there are, and what each names.
//
//   other 0..3   epoch of the server's start, little endian
//         4..7   number: place in the table * tables + the table's own number. So each number leads to a table that there is (home_of())
//         8..11  tag: a keyed permutation of the place's generation, so that no two holders of a place have the same one, and nobody guesses it
#pragma once

#include <verbena/core/siphash.hpp>
#include <verbena/protocols/files/stateid.hpp>
#include <verbena/protocols/files/types.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace verbena::files::detail {

struct state_entry;

/// Owns what it names. Shard-local.
class stateid_table {
public:
    /// The table is number `home` of `homes`.
    stateid_table(std::uint32_t epoch, const siphash_key& key, std::uint32_t home = 0,
                  std::uint32_t homes = 1) noexcept
        : epoch_(epoch), key_(key), home_(home), homes_(homes)
    {
    }
    ~stateid_table();
    stateid_table(const stateid_table&) = delete;

    /// Gives `state` a place, where it is until remove(). bad_alloc also where a number would not fit.
    state_entry& add(std::unique_ptr<state_entry> state);
    void remove(state_entry& state) noexcept;
    /// The state, which is to be removed, is taken from its client: was_taken() is true of it, until others have been taken.
    void note_taken(const state_entry& state) noexcept;
    bool was_taken(const stateid& id) const noexcept;
    /// Likewise, but its client keeps all else: revoked_from() names that one, until free_revoked(). `forgotten`: whose older one is
    /// kept in mind no more for it, or nobody. False: there is no memory to keep it in mind.
    bool note_revoked(const state_entry& state, client_id& forgotten) noexcept;
    client_id revoked_from(const stateid& id) const noexcept;
    void free_revoked(const stateid& id) noexcept;
    /// What `id` names, whatever its number, or nullptr.
    state_entry* find(const stateid& id) const noexcept;
    bool is_of_this_epoch(const stateid& id) const noexcept;
    stateid id_of(const state_entry& state) const noexcept;
    std::size_t size() const noexcept { return slots_.size() - free_.size(); }
    /// For who looks at all states, place by place: at() is nullptr where none is. A state keeps its place.
    std::size_t places() const noexcept { return slots_.size(); }
    state_entry* at(std::size_t place) const noexcept { return slots_[place].state.get(); }

private:
    struct slot {
        std::unique_ptr<state_entry> state;
        std::uint32_t generation = 0;
    };
    std::uint32_t tag(std::uint32_t place) const noexcept;
    std::uint32_t number_of(std::uint32_t place) const noexcept { return place * homes_ + home_; }

    const std::uint32_t epoch_;
    const siphash_key key_;
    const std::uint32_t home_, homes_;
    std::vector<slot> slots_;
    std::vector<std::uint32_t> free_;
    // By place, the last of each: 48 KiB.
    std::vector<std::array<std::byte, 12>> taken_ = std::vector<std::array<std::byte, 12>>(4096);
    struct revoked_state {
        std::array<std::byte, 12> other{};
        client_id client = nobody;
    };
    std::vector<revoked_state> revoked_; // likewise, once there is one: 96 KiB
};

} // namespace verbena::files::detail
