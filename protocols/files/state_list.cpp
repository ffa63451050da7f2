// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/files/state_list.hpp>

#include "entries.hpp"

namespace verbena::files {

using namespace detail;

namespace {

share access_of_state(const state_entry& s) noexcept
{
    if (s.kind == state_kind::open)
        return static_cast<const open_entry&>(s).access;
    if (s.kind == state_kind::delegation)
        return static_cast<const delegation_entry&>(s).type == delegation_type::write ? share::both
                                                                                      : share::read;
    return static_cast<const other_entry&>(s).type() == lock_type::write ? share::both : share::read;
}

listed_state::what what_of(state_kind k) noexcept
{
    switch (k) {
    case state_kind::open: return listed_state::what::open;
    case state_kind::lock: return listed_state::what::lock;
    case state_kind::delegation: return listed_state::what::delegation;
    case state_kind::other: break;
    }
    return listed_state::what::other;
}

// Opens of a file that are looked at for one of theirs: those by other exports stand between them.
constexpr unsigned most_opens_asked = 16;

const storage::open_file* opened_by(const open_entry* o) noexcept
{
    if (o == nullptr)
        return nullptr;
    return o->by[0] != nullptr ? o->by[0].get() : o->by[1].get();
}

// An open_file belongs to the back end of one export.
const storage::open_file* opened_by_somebody(file_entry& f, std::uint32_t via) noexcept
{
    unsigned looks = 0;
    for (auto* m = f.opens.front(); m != nullptr && looks < most_opens_asked; m = f.opens.next(*m), ++looks)
        if (m->owner.via == via)
            if (const auto* const found = opened_by(static_cast<const open_entry*>(&m->owner)))
                return found;
    return nullptr;
}

const storage::open_file* opened_of(const state_entry& s) noexcept
{
    const storage::open_file* own = nullptr;
    switch (s.kind) {
    case state_kind::open: own = opened_by(static_cast<const open_entry*>(&s)); break;
    case state_kind::lock: own = opened_by(static_cast<const lock_entry&>(s).open); break;
    case state_kind::delegation: own = static_cast<const delegation_entry&>(s).by.get(); break;
    case state_kind::other: break;
    }
    return own != nullptr || s.file == nullptr ? own : opened_by_somebody(*s.file, s.via);
}

} // namespace

bool state_list::next(std::size_t most, const std::function<bool(const listed_state&)>& take)
{
    if (!states_told_) {
        if (next_state(most, take))
            return true;
        states_told_ = true;
    }
    return of_ == of::locks && next_wait(most, take);
}

// False: all places were looked at.
bool state_list::next_state(std::size_t& most, const std::function<bool(const listed_state&)>& take)
{
    const stateid_table& all = *table_.states_;
    for (; place_ < all.places(); ++place_, in_locks_ = false) {
        if (most == 0)
            return true;
        const state_entry* const s = all.at(place_);
        if (s == nullptr || (s->kind == state_kind::lock) != (of_ == of::locks)) {
            --most;
            continue;
        }
        listed_state told;
        told.is = what_of(s->kind);
        told.client = s->client.id;
        told.label = &s->client.card.label;
        told.id = all.id_of(*s);
        told.file = s->file == nullptr ? nullptr : &s->file->handle;
        told.via = s->via;
        told.opened = opened_of(*s);
        if (s->owner != nullptr)
            told.owner = s->owner->name;
        if (s->kind == state_kind::lock) {
            if (!in_locks_ || tag_ != s->tag) { // another one may have the place by now
                in_locks_ = true;
                tag_ = s->tag;
                from_ = 0;
                is_last_told_ = false;
                --most; // one without ranges counts, too
            }
            if (is_last_told_)
                continue;
            const auto& ranges = static_cast<const lock_entry&>(*s).ranges;
            for (const locked_range& r : ranges.overlapping({from_, byte_range::to_the_end})) {
                if (most == 0)
                    return true;
                --most;
                told.bytes = r.bytes;
                told.access = r.type == lock_type::write ? share::both : share::read;
                const bool goes_on = take(told);
                is_last_told_ = r.bytes.last == byte_range::to_the_end;
                from_ = r.bytes.last + 1;
                if (!goes_on)
                    return true;
            }
            continue;
        }
        --most;
        told.access = access_of_state(*s);
        if (s->kind == state_kind::open)
            told.deny = static_cast<const open_entry&>(*s).deny;
        else
            told.is_recalled = static_cast<const recallable_entry&>(*s).is_recalled && told.file != nullptr;
        if (s->kind == state_kind::other)
            told.kind = static_cast<const other_entry&>(*s).of.name();
        if (!take(told)) {
            ++place_;
            return true;
        }
    }
    return false;
}

bool state_list::next_wait(std::size_t& most, const std::function<bool(const listed_state&)>& take)
{
    const auto& waits = table_.by_->waits;
    for (auto at = waits.upper_bound(wait_); at != waits.end(); ++at) {
        if (most == 0)
            return true;
        --most;
        const wait_entry& w = *at->second;
        wait_ = at->first;
        listed_state told;
        told.is = listed_state::what::wait;
        told.client = w.client.id;
        told.label = &w.client.card.label;
        told.file = &w.file.handle;
        told.via = w.via;
        told.opened = opened_by_somebody(w.file, w.via);
        told.bytes = w.bytes;
        told.access = w.type == lock_type::write ? share::both : share::read;
        told.owner = w.owner;
        told.waits_for_local = w.is_local;
        if (!take(told))
            return true;
    }
    return false;
}

} // namespace verbena::files
