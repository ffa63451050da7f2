// SPDX-License-Identifier: Apache-2.0
#include "stateid_table.hpp"

#include "entries.hpp"

#include <algorithm>
#include <new>

namespace verbena::files::detail {

namespace {

void put(stateid& id, std::size_t at, std::uint32_t value) noexcept
{
    for (std::size_t i = 0; i < 4; ++i)
        id.other[at + i] = std::byte(value >> (8 * i));
}

std::uint32_t get(const stateid& id, std::size_t at) noexcept
{
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i)
        value |= std::to_integer<std::uint32_t>(id.other[at + i]) << (8 * i);
    return value;
}

} // namespace

stateid_table::~stateid_table() = default;

// Four rounds of a Feistel network over the generation: a permutation, so each generation has a tag of its own. It goes by the number, so
// tables of one key give no two places the same tags.
std::uint32_t stateid_table::tag(std::uint32_t place) const noexcept
{
    const std::uint32_t generation = slots_[place].generation, number = number_of(place);
    std::uint32_t left = generation >> 16, right = generation & 0xffff;
    for (std::uint32_t round = 0; round < 4; ++round) {
        std::array<std::byte, 7> text{};
        for (std::size_t i = 0; i < 4; ++i)
            text[i] = std::byte(number >> (8 * i));
        text[4] = std::byte(round);
        text[5] = std::byte(right);
        text[6] = std::byte(right >> 8);
        const std::uint32_t mixed = left ^ (std::uint32_t(siphash(key_, text)) & 0xffff);
        left = right;
        right = mixed;
    }
    return left << 16 | right;
}

state_entry& stateid_table::add(std::unique_ptr<state_entry> state)
{
    std::uint32_t place;
    if (free_.empty()) {
        if (slots_.size() > (UINT32_MAX - home_) / homes_)
            throw std::bad_alloc();
        place = std::uint32_t(slots_.size());
        if (slots_.size() == slots_.capacity())
            slots_.reserve(std::max<std::size_t>(16, 2 * slots_.capacity()));
        free_.reserve(slots_.capacity()); // so that remove() needs no memory
        slots_.emplace_back();
    } else {
        place = free_.back();
        free_.pop_back();
    }
    slot& s = slots_[place];
    s.state = std::move(state);
    s.state->place = place;
    s.state->tag = tag(place);
    return *s.state;
}

void stateid_table::remove(state_entry& state) noexcept
{
    const std::uint32_t place = state.place;
    slots_[place].state.reset();
    ++slots_[place].generation;
    free_.push_back(place);
}

void stateid_table::note_taken(const state_entry& state) noexcept
{
    taken_[state.place % taken_.size()] = id_of(state).other;
}

bool stateid_table::was_taken(const stateid& id) const noexcept
{
    return taken_[get(id, 4) / homes_ % taken_.size()] == id.other;
}

bool stateid_table::note_revoked(const state_entry& state, client_id& forgotten) noexcept
{
    forgotten = nobody;
    try {
        revoked_.resize(taken_.size());
    } catch (const std::bad_alloc&) { // its client hears of a bad stateid
        return false;
    }
    revoked_state& kept = revoked_[state.place % revoked_.size()];
    forgotten = kept.client;
    kept = {id_of(state).other, state.client.id};
    return true;
}

client_id stateid_table::revoked_from(const stateid& id) const noexcept
{
    if (revoked_.empty())
        return nobody;
    const revoked_state& kept = revoked_[get(id, 4) / homes_ % revoked_.size()];
    return kept.other == id.other ? kept.client : nobody;
}

void stateid_table::free_revoked(const stateid& id) noexcept
{
    if (revoked_from(id) != nobody)
        revoked_[get(id, 4) / homes_ % revoked_.size()] = {};
}

bool stateid_table::is_of_this_epoch(const stateid& id) const noexcept { return get(id, 0) == epoch_; }

state_entry* stateid_table::find(const stateid& id) const noexcept
{
    const std::uint32_t number = get(id, 4), place = number / homes_;
    if (!is_of_this_epoch(id) || number % homes_ != home_ || place >= slots_.size())
        return nullptr;
    state_entry* state = slots_[place].state.get();
    return state != nullptr && state->tag == get(id, 8) ? state : nullptr;
}

stateid stateid_table::id_of(const state_entry& state) const noexcept
{
    stateid id;
    id.seqid = state.seqid;
    put(id, 0, epoch_);
    put(id, 4, number_of(state.place));
    put(id, 8, state.tag);
    return id;
}

} // namespace verbena::files::detail

namespace verbena::files {

unsigned home_of(const stateid& id, unsigned homes) noexcept { return detail::get(id, 4) % homes; }

} // namespace verbena::files
