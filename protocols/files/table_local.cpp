// SPDX-License-Identifier: Apache-2.0
// Locks that are also locks of the file system, so that processes of this host see them, and we see theirs.
#include "entries.hpp"

#include <verbena/core/scope.hpp>
#include <verbena/core/sleep.hpp>

#include <algorithm>
#include <vector>

namespace verbena::files {

using namespace detail;

namespace {

// Nobody says when a local process unlocks, so it is asked again so often, doubling.
constexpr duration first_look = std::chrono::milliseconds(50);
constexpr duration last_look = std::chrono::seconds(1);

storage::lock_range to_storage(const byte_range& bytes, lock_type type) noexcept
{
    return {bytes.offset, bytes.last, type == lock_type::write};
}

// Not a client's: so it has no number.
void tell(lock_holder* holder, const storage::local_holder& who)
{
    if (holder == nullptr)
        return;
    holder->bytes = {who.bytes.offset, who.bytes.last};
    holder->type = who.bytes.exclusive ? lock_type::write : lock_type::read;
    holder->client = nobody;
    holder->owner = "local process";
    if (who.process > 0)
        holder->owner += " " + std::to_string(who.process);
}

bool has_open(file_entry& f, const client_entry& c) noexcept
{
    for (auto* m = f.opens.front(); m != nullptr; m = f.opens.next(*m))
        if (&m->owner.client == &c)
            return true;
    return false;
}

} // namespace

std::unique_ptr<storage::local_locks> state_handler::local_locks_of(const storage::handle&) noexcept
{
    return nullptr;
}

storage::local_locks* state_table::local_of(file_entry& f)
{
    if (!std::exchange(f.local_sought, true))
        f.local = handler_.local_locks_of(f.handle);
    return f.local.get();
}

// --- Asking

void state_table::begin_locally(pending_lock& p, file_entry& f, const lock_request& r,
                                std::span<const std::byte> owner, bool hears)
{
    assert(p.table_ == nullptr && "a pending_lock is used twice");
    p.owner_ = text_of(owner);
    p.client_ = r.client;
    p.bytes_ = r.bytes;
    p.type_ = r.type;
    p.waits_ = r.wait && hears;
    p.file_ = &f;
    p.table_ = this;
    ++f.pins;
    f.pending_locks.push_back(p);
}

task<result<void>> state_table::lock_locally(pending_lock& p, const lock_request& r, lock_holder* holder)
{
    assert(p.asks_back_end() && "not a begun lock of this table");
    file_entry& f = *p.file_;
    p.asked_at_ = ++f.local_calls;
    const result<std::optional<storage::local_holder>> asked =
        co_await f.local->lock(to_storage(p.bytes_, p.type_));
    if (!asked)
        co_return error(errc::busy, "the back end could not be asked for a lock");
    if (!*asked) {
        p.is_held_ = true;
        co_return result<void>();
    }
    tell(holder, **asked);
    if (r.reclaim)
        co_return refuse(errc::reclaim_conflict, "a local process has the range locked",
                         stats_.conflicting_reclaims);
    stats_.local_lock_denials.add();
    wait_locally(p);
    co_return error(errc::denied);
}

// What the table holds by now is what the back end keeps.
void state_table::end_locally(pending_lock& p) noexcept
{
    if (p.table_ == nullptr)
        return;
    file_entry& f = *p.file_;
    p.unlink();
    p.table_ = nullptr;
    // Where nothing else was said of the file meanwhile, the back end has just that.
    if (f.local_calls != p.asked_at_)
        keep_locally(f, p.bytes_);
    --f.pins; // it has a lock
}

pending_lock::~pending_lock()
{
    if (table_ == nullptr)
        return;
    file_entry& f = *file_;
    unlink();
    if (asked_at_ != 0)
        table_->keep_locally(f, bytes_);
    --f.pins;
    table_->unlocked(f); // others may have been denied for it
}

// One of somebody who is gone holds nothing up: it will not be granted.
std::optional<state_table::lock_obstacle> state_table::find_pending_lock(file_entry& f, client_id client,
                                                                         std::span<const std::byte> owner,
                                                                         const byte_range& bytes,
                                                                         lock_type type) noexcept
{
    for (auto* p = f.pending_locks.front(); p != nullptr; p = f.pending_locks.next(*p)) {
        if ((p->client_ == client && p->owner_ == text_of(owner)) || !p->bytes_.overlaps(bytes) ||
            !conflict(p->type_, type))
            continue;
        client_entry* const c = find_client(p->client_);
        if (c != nullptr && !c->leaving &&
            (c->state == client_state::active || c->state == client_state::courtesy))
            return lock_obstacle{p->bytes_, p->type_, c, p->owner_};
    }
    return std::nullopt;
}

task<result<void>> state_table::test_locally(const storage::handle& file, byte_range bytes, lock_type type,
                                             lock_holder* holder)
{
    passage hold;
    std::unique_ptr<storage::local_locks> for_this_call;
    storage::local_locks* at = nullptr;
    if (has_local_locks(file, hold)) {
        at = hold.file_->local.get();
    } else {
        for_this_call = handler_.local_locks_of(file);
        at = for_this_call.get();
    }
    if (at == nullptr)
        co_return result<void>();
    const std::optional<storage::local_holder> held = co_await at->test(to_storage(bytes, type));
    if (!held)
        co_return result<void>();
    tell(holder, *held);
    co_return error(errc::denied);
}

// --- Unlocking

// Of `bytes` the back end is to hold what owners hold now. What it is being asked for is left alone: its end says
// the same of those bytes.
void state_table::keep_locally(file_entry& f, const byte_range& bytes)
{
    if (f.local == nullptr)
        return;
    ++f.local_calls;
    byte_ranges parts; // of `bytes`, of which nothing is pending
    parts.set(bytes, lock_type::read);
    for (auto* p = f.pending_locks.front(); p != nullptr; p = f.pending_locks.next(*p))
        if (p->asked_at_ != 0)
            parts.clear(p->bytes_);
    std::vector<storage::lock_range> held;
    for (const locked_range& part : parts.all()) {
        // Where one owner has locked to write, nobody else has locked at all.
        byte_ranges all;
        for (auto* m = f.locks.front(); m != nullptr; m = f.locks.next(*m))
            for (const locked_range& one :
                 static_cast<const lock_entry&>(m->owner).ranges.overlapping(part.bytes))
                all.set({std::max(one.bytes.offset, part.bytes.offset),
                         std::min(one.bytes.last, part.bytes.last)},
                        one.type);
        held.clear();
        for (const locked_range& one : all.all())
            held.push_back(to_storage(one.bytes, one.type));
        f.local->keep(part.bytes.offset, part.bytes.last, held);
    }
}

// For let_go_locally(), once for all that go together.
void state_table::note_unlocked(file_entry& f, const byte_ranges& gone) noexcept
{
    if (f.local == nullptr || gone.empty())
        return;
    const byte_range all{gone.all().front().bytes.offset, gone.all().back().bytes.last};
    f.unlocked = f.unlocked ? byte_range{std::min(f.unlocked->offset, all.offset),
                                         std::max(f.unlocked->last, all.last)}
                            : all;
}

void state_table::let_go_locally(file_entry& f)
{
    if (f.unlocked)
        keep_locally(f, *std::exchange(f.unlocked, std::nullopt));
}

bool state_table::has_local_locks(const storage::handle& file, passage& hold)
{
    file_entry* const f = find_file(file);
    if (f == nullptr || f->local == nullptr)
        return false;
    pin(*f, hold);
    return true;
}

task<void> state_table::settle_locally(passage& hold) { return hold.file_->local->settle(); }

// --- Waiting

void state_table::wait_locally(const pending_lock& p)
{
    const auto c = living(p.client_);
    if (!c || !has_open(*p.file_, **c)) // it went meanwhile
        return;
    if (p.waits_)
        wait_for(**c, *p.file_, bytes_of(p.owner_), p.bytes_, p.type_);
    wait_entry* const w = find_wait(*p.file_, p.client_, bytes_of(p.owner_));
    if (w == nullptr) // it does not wait, or too many do
        return;
    begin_wait(*w); // one that was told keeps its place, but no range
    w->is_local = true;
    if (watching_ != nullptr && !std::exchange(w->is_watched, true))
        watching_->spawn(&state_table::watch_locally, this, p.client_, p.file_->handle, p.owner_, w->number);
}

// Until it waits for no local process any more. It hears that it may ask again as others do who wait.
task<void> state_table::watch_locally(client_id client, storage::handle file, std::string owner,
                                      std::uint64_t number)
{
    const auto find = [&](file_entry* f) -> wait_entry* {
        wait_entry* const w = f == nullptr ? nullptr : find_wait(*f, client, bytes_of(owner));
        return w != nullptr && w->number == number ? w : nullptr;
    };
    for (duration pause = first_look;; pause = std::min(2 * pause, last_look)) {
        const bool goes_on = co_await sleep_for(pause);
        file_entry* const f = find_file(file);
        wait_entry* w = find(f);
        if (w == nullptr)
            co_return;
        if (!goes_on || !w->is_local) {
            w->is_watched = false;
            co_return;
        }
        passage hold;
        pin(*f, hold);
        const storage::lock_range wanted = to_storage(w->bytes, w->type);
        const std::optional<storage::local_holder> held = co_await f->local->test(wanted);
        w = find(f);
        if (w == nullptr)
            co_return;
        if (held || !w->is_local || to_storage(w->bytes, w->type) != wanted)
            continue;
        w->is_local = w->is_watched = false;
        w->to_look = true;
        look_at_waiters(*f);
        co_return;
    }
}

} // namespace verbena::files
