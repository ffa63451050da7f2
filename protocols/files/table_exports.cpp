// SPDX-License-Identifier: Apache-2.0
// What goes with an export that is served no more. docs/internals/files.md.
#include "entries.hpp"

namespace verbena::files {

using namespace detail;

namespace {

// In one go, before others of the shard have their turn: less than a millisecond's.
constexpr std::size_t places_at_once = 2048;
constexpr std::size_t states_at_once = 128;
constexpr std::size_t buckets_at_once = 2048;

} // namespace

// By their places: what is given meanwhile may get one that was passed by, so whoever wants all of it sees to it that no more is given.
// The client's record stays: it says nothing of exports.
bool state_table::drop_export(std::uint32_t via, export_state what, std::size_t& place, export_losses& lost,
                              const std::function<bool(const client_label&)>& whose)
{
    file_list freed;
    std::size_t spent = 0;
    for (const std::size_t end = place + places_at_once; place < end && spent < states_at_once; ++place) {
        if (place >= states_->places()) {
            tell_all(freed);
            if (what == export_state::all)
                stop_waiting_by(via);
            return false;
        }
        state_entry* s = states_->at(place);
        if (s == nullptr || s->via != via || s->file == nullptr ||
            (what == export_state::layouts && s->kind != state_kind::other) ||
            (what == export_state::delegations && s->kind != state_kind::delegation) ||
            (whose && !whose(s->client.card.label)))
            continue;
        file_entry& f = *s->file;
        ++f.pins;
        // A lock in front of the open that it hangs on goes by itself.
        while (s != nullptr && s->kind == state_kind::open && spent < states_at_once) {
            auto* const m = static_cast<open_entry*>(s)->locks.front();
            if (m == nullptr)
                break;
            if (!m->owner.ranges.empty())
                spent += tell_later(f, freed);
            note_lost(m->owner);
            (void)erase_lock(m->owner);
            ++lost.locks;
            ++spent;
        }
        const bool has_locks =
            s->kind == state_kind::open && !static_cast<open_entry*>(s)->locks.empty(); // the next time
        if (has_locks) {
            --f.pins;
            release_file(f);
            break;
        }
        ++spent;
        switch (s->kind) {
        case state_kind::open:
            ++lost.opens;
            note_lost(*s);
            remove(*s);
            break;
        case state_kind::lock:
            ++lost.locks;
            note_lost(*s);
            if (auto& l = static_cast<lock_entry&>(*s); !l.ranges.empty())
                spent += tell_later(f, freed);
            (void)erase_lock(static_cast<lock_entry&>(*s));
            break;
        case state_kind::delegation: {
            auto& d = static_cast<delegation_entry&>(*s);
            if (d.is_reserved()) { // nobody has heard of it; the open that it is in ends it
                recall(d);
                break;
            }
            ++lost.delegations;
            note_lost(d); // its client must not go by what it caches
            recall(d);    // so that it hears of it at once
            remove(d);
            break;
        }
        case state_kind::other:
            ++lost.layouts;
            recall(static_cast<recallable_entry&>(*s));
            remove(*s);
            break;
        }
        --f.pins;
        release_file(f);
    }
    tell_all(freed);
    return true;
}

void state_table::stop_waiting_by(std::uint32_t via) noexcept
{
    if (stats_.lock_waiters.value() == 0)
        return;
    for (auto* const list : {&by_->told, &by_->untold})
        for (auto* m = list->front(); m != nullptr;) {
            wait_entry& w = m->owner;
            m = list->next(*m);
            if (w.via == via)
                remove_wait(w);
        }
}

bool state_table::has_fences_by(std::uint32_t via) const noexcept
{
    for (auto* const all : {&by_->fences, &by_->late_fences})
        for (auto* m = all->front(); m != nullptr; m = all->next(*m))
            if (m->owner.what.via == via)
                return true;
    return false;
}

std::optional<bool> state_table::has_files_in(std::uint32_t space, file_search& at) const
{
    if (at.buckets != files_->bucket_count())
        at = {0, files_->bucket_count()};
    for (const std::size_t end = std::min(at.next + buckets_at_once, at.buckets); at.next < end; ++at.next)
        for (auto f = files_->cbegin(at.next); f != files_->cend(at.next); ++f)
            if (const auto named = open_file_key((*f)->handle); named && named->space == space)
                return true;
    if (at.next == at.buckets)
        return false;
    return std::nullopt;
}

} // namespace verbena::files
