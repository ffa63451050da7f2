// SPDX-License-Identifier: Apache-2.0
// Locks that are also locks of the file system, so that processes of this host see them, and we see theirs.
#include "entries.hpp"

#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace verbena::files {

using namespace detail;

namespace {

// Nobody says when a local process unlocks, so it is asked again so often, doubling.
constexpr duration first_look = std::chrono::milliseconds(50);
constexpr duration last_look = std::chrono::seconds(1);
// Where all stood still (a paused machine), clients that are there say so first.
constexpr duration time_to_be_heard = std::chrono::seconds(2);

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

// What the back end could not be asked for. `what` is for the log.
error answer_of(const error& failure, const char* what)
{
    const int why = failure.errno_value();
    if (why == ESTALE || failure == storage::errc::bad_handle)
        return error(errc::no_file, what);
    return error(why == EIO ? errc::io : errc::busy, what);
}

bool stand_in_way(const storage::lock_range& held, const storage::lock_range& wanted) noexcept
{
    return held.offset <= wanted.last && wanted.offset <= held.last && (held.exclusive || wanted.exclusive);
}

wait_entry* next_local_wait(file_entry& f, std::uint64_t behind) noexcept
{
    for (auto* m = f.waits.front(); m != nullptr; m = f.waits.next(*m))
        if (m->owner.is_local && m->owner.number > behind)
            return &m->owner;
    return nullptr;
}

} // namespace

std::vector<storage::lock_range> detail::held_of(file_entry& f, const byte_range& bytes)
{
    std::vector<storage::lock_range> all;
    for (auto* m = f.locks.front(); m != nullptr; m = f.locks.next(*m))
        for (const locked_range& one : static_cast<const lock_entry&>(m->owner).ranges.overlapping(bytes))
            all.push_back(to_storage(
                {std::max(one.bytes.offset, bytes.offset), std::min(one.bytes.last, bytes.last)}, one.type));
    std::ranges::sort(all, {}, &storage::lock_range::offset);
    std::size_t n = 0;
    for (const storage::lock_range& one : all) {
        if (n == 0 || all[n - 1].last < one.offset) {
            all[n++] = one;
            continue;
        }
        storage::lock_range& before = all[n - 1];
        before.last = std::max(before.last, one.last);
        before.exclusive |= one.exclusive;
    }
    all.resize(n);
    return all;
}

std::unique_ptr<storage::local_locks> state_handler::local_locks_of(const storage::handle&)
{
    return nullptr;
}

storage::local_locks* state_table::local_of(file_entry& f)
{
    if (!f.local_sought) {
        f.local = handler_.local_locks_of(f.handle);
        f.local_sought = true;
        local_files_ += f.local != nullptr;
    }
    return f.local.get();
}

// Once nothing needs it: it costs memory.
void state_table::drop_local(file_entry& f) noexcept
{
    if (f.local == nullptr || !f.locks.empty() || !f.pending_locks.empty() || f.watch != 0 ||
        f.to_keep.is_linked()) // it has something to hear yet
        return;
    f.is_let_go = false;
    f.local.reset();
    f.local_sought = false;
    --local_files_;
}

// --- Asking

void state_table::begin_locally(pending_lock& p, const lock_place& at, const lock_request& r)
{
    assert(p.table_ == nullptr && "a pending_lock is used twice");
    file_entry& f = at.file;
    p.owner_ = text_of(at.owner);
    p.client_ = r.client;
    p.via_ = r.file.via;
    p.has_open_ = at.by != nullptr;
    p.id_ = r.id;
    p.bytes_ = r.bytes;
    p.type_ = r.type;
    p.waits_ = r.wait && at.hears();
    p.file_ = &f;
    p.table_ = this;
    ++f.pins;
    f.pending_locks.push_back(p);
}

// What a pending lock needs to be granted.
bool state_table::has_open_still(const pending_lock& p) const noexcept
{
    return !p.has_open_ || states_->find(p.id_) != nullptr;
}

task<result<void>> state_table::lock_locally(pending_lock& p, const lock_request& r, lock_holder* holder)
{
    return ask_locally(p, r.reclaim, holder);
}

task<result<void>> state_table::lock_locally(pending_lock& p, const owner_lock& r, lock_holder* holder)
{
    return ask_locally(p, r.reclaim, holder);
}

task<result<void>> state_table::ask_locally(pending_lock& p, bool reclaims, lock_holder* holder)
{
    assert(p.asks_back_end() && "not a begun lock of this table");
    file_entry& f = *p.file_;
    p.asked_at_ = ++f.local_calls;
    const client_entry* const c = find_client(p.client_);
    const std::uint64_t peer = c != nullptr && c->card.peer != nullptr ? c->card.peer->number : 0;
    const result<std::optional<storage::local_holder>> asked =
        co_await f.local->lock(to_storage(p.bytes_, p.type_), peer);
    if (!asked) {
        p.took_nothing_ = asked.error().errno_value() != ECANCELED;
        co_return answer_of(asked.error(), "a lock of the file system");
    }
    if (!*asked) {
        p.is_held_ = true;
        co_return result<void>();
    }
    p.took_nothing_ = true;
    tell(holder, **asked);
    if (reclaims)
        co_return refuse(errc::reclaim_conflict, "a local process has the range locked",
                         stats_.conflicting_reclaims);
    stats_.local_lock_denials.add();
    wait_locally(p);
    co_return error(errc::denied);
}

// What the table holds by now is what the back end keeps. It has not weakened anything yet.
void state_table::end_locally(pending_lock& p, bool weakens) noexcept
{
    if (p.table_ == nullptr)
        return;
    file_entry& f = *p.file_;
    p.unlink();
    p.table_ = nullptr;
    if (weakens)
        p.unsettled_ = f.local;
    // Where nothing else was said of the file meanwhile, the back end has just that.
    if (weakens || f.local_calls != p.asked_at_)
        keep_locally(f, p.bytes_);
    --f.pins; // it has a lock
    // Its lease may have been over meanwhile.
    if (client_entry* const c = find_client(p.client_);
        c != nullptr && c->card.state == client_state::courtesy)
        give_way_locally(*c);
}

pending_lock::~pending_lock()
{
    if (table_ == nullptr)
        return;
    file_entry& f = *file_;
    unlink();
    // Who was refused, while nothing else was said of the file, has changed nothing there.
    if (asked_at_ != 0 && !(took_nothing_ && f.local_calls == asked_at_))
        table_->keep_locally(f, bytes_);
    table_->drop_local(f);
    --f.pins;
    table_->unlocked(f); // others may have been denied for it
}

// One of somebody who is gone, or whose open is, holds nothing up: it will not be granted.
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
        if (c != nullptr && is_living(c->card, false) && has_open_still(*p))
            return lock_obstacle{p->bytes_, p->type_, c, p->owner_, nullptr};
    }
    return std::nullopt;
}

bool state_table::is_asked_for(file_entry& f, client_id client, std::span<const std::byte> owner,
                               const byte_range& bytes) noexcept
{
    for (auto* p = f.pending_locks.front(); p != nullptr; p = f.pending_locks.next(*p))
        if (p->client_ == client && p->owner_ == text_of(owner) && p->bytes_.overlaps(bytes))
            return true;
    return false;
}

task<result<void>> state_table::test_locally(back_end_locks asked, byte_range bytes, lock_type type,
                                             lock_holder* holder)
{
    const result<std::optional<storage::local_holder>> held = co_await asked->test(to_storage(bytes, type));
    if (!held)
        co_return answer_of(held.error(), "a test of a lock of the file system");
    if (!*held)
        co_return result<void>();
    tell(holder, **held);
    co_return error(errc::denied);
}

// --- Unlocking

// Of `bytes` the back end is to hold what owners hold now. Where there is no memory to say so, it holds more for a
// while, and tend() says it again.
void state_table::keep_locally(file_entry& f, const byte_range& bytes) noexcept
{
    if (f.local == nullptr)
        return;
    if (f.is_let_go)
        return drop_local(f);
    ++f.local_calls;
    try {
        tell_what_is_kept(f, bytes);
    } catch (...) {
        note_unlocked(f, bytes);
        if (!f.to_keep.is_linked()) {
            by_->to_keep.push_back(f.to_keep);
            ++f.pins;
            wake(tending_);
        }
    }
    drop_local(f);
}

// What it is being asked for is left alone: its end says the same of those bytes.
void state_table::tell_what_is_kept(file_entry& f, const byte_range& bytes)
{
    if (f.locks.empty() && f.pending_locks.empty())
        return f.local->keep(0, byte_range::to_the_end, {});
    byte_ranges parts; // of `bytes`, of which nothing is pending
    parts.set(bytes, lock_type::read);
    for (auto* p = f.pending_locks.front(); p != nullptr; p = f.pending_locks.next(*p))
        if (p->asked_at_ != 0)
            parts.clear(p->bytes_);
    const std::vector<storage::lock_range> all = held_of(f, bytes);
    std::vector<storage::lock_range> held;
    for (const locked_range& part : parts.all()) {
        held.clear();
        auto one = std::ranges::partition_point(
            all, [&](const storage::lock_range& r) { return r.last < part.bytes.offset; });
        for (; one != all.end() && one->offset <= part.bytes.last; ++one)
            held.push_back({std::max(one->offset, part.bytes.offset), std::min(one->last, part.bytes.last),
                            one->exclusive});
        f.local->keep(part.bytes.offset, part.bytes.last, held);
    }
}

// For let_go_locally(), once for all that go together.
void state_table::note_unlocked(file_entry& f, const byte_ranges& gone) noexcept
{
    if (f.local != nullptr && !gone.empty())
        note_unlocked(f, {gone.all().front().bytes.offset, gone.all().back().bytes.last});
}

void state_table::note_unlocked(file_entry& f, const byte_range& gone) noexcept
{
    f.unlocked = f.unlocked ? byte_range{std::min(f.unlocked->offset, gone.offset),
                                         std::max(f.unlocked->last, gone.last)}
                            : gone;
}

void state_table::let_go_locally(file_entry& f) noexcept
{
    if (f.unlocked)
        keep_locally(f, *std::exchange(f.unlocked, std::nullopt));
}

// Each once: for those that fail again there is time later.
void state_table::let_go_again() noexcept
{
    const auto* const last = by_->to_keep.back();
    for (bool is_last = last == nullptr; !is_last;) {
        auto* const m = by_->to_keep.front();
        is_last = m == last;
        file_entry& f = m->owner;
        m->unlink();
        let_go_locally(f);
        --f.pins;
        release_file(f);
    }
}

// The kernel tells nobody that a local process wants what a client has locked whose lease is over. So its locks go:
// nobody else could take them from it.
void state_table::give_way_locally(client_entry& c) noexcept
{
    if (c.card.use.locks == 0 || local_files_ == 0 || c.in_way.is_linked())
        return;
    for (auto* s = c.states.front(); s != nullptr; s = c.states.next(*s)) {
        const state_entry& one = s->owner;
        if (one.kind != state_kind::lock || !one.of_file.is_linked() || one.file->local == nullptr)
            continue;
        c.in_way_from = now() + time_to_be_heard;
        by_->in_way.push_back(c.in_way);
        wake(tending_);
        return;
    }
}

// --- Waiting

void state_table::wait_locally(const pending_lock& p)
{
    const auto c = living(p.client_);
    if (!c || !has_open_still(p)) // it went meanwhile
        return;
    file_entry& f = *p.file_;
    const std::span<const std::byte> owner = bytes_of(p.owner_);
    wait_entry* w = find_wait(f, p.client_, owner);
    const bool was_local = w != nullptr && w->is_local;
    const bool was_told = w != nullptr && w->is_told;
    if (p.waits_) {
        wait_for(**c, p.via_, f, owner, p.bytes_, p.type_);
        w = find_wait(f, p.client_, owner);
        if (w != nullptr) { // else too many wait
            w->is_local = true;
            if (!was_local || f.watch == 0)
                look_soon(f);
        }
    } else if (w != nullptr && w->bytes == p.bytes_ && w->type == p.type_) {
        erase_wait(*w); // as in lock()
    } else if (w != nullptr) {
        begin_wait(*w);
    }
    if (was_told) // what was kept for it is free
        tell_waiters(f);
}

// One task asks for all who wait for local processes, so that who has waited longest is asked for first.
void state_table::look_soon(file_entry& f)
{
    f.has_new_wait = true;
    if (watching_ == nullptr || (f.watch != 0 && f.next_look <= now() + first_look))
        return;
    const std::uint64_t number = ++last_watch_;
    watching_->spawn(already_made, watch_locally(f.handle, number));
    f.watch = number; // an earlier one ends when its time comes
    f.next_look = now() + first_look;
}

task<void> state_table::watch_locally(storage::handle file, std::uint64_t number)
{
    for (duration pause = first_look;;) {
        const bool goes_on = co_await sleep_for(pause);
        file_entry* const f = find_file(file);
        if (f == nullptr || f->watch != number)
            co_return;
        const pinned kept(*this, *f);
        f->has_new_wait = false;
        bool some_wait = false;
        if (goes_on) {
            some_wait = true;
            try {
                some_wait = co_await look_locally(*f);
            } catch (...) { // no memory to ask: they wait on
            }
        }
        if (f->watch != number) // there is another task by now
            co_return;
        // One with a lower number may have begun to wait, whom this look has passed by.
        if (!some_wait && !f->has_new_wait) {
            f->watch = 0;
            drop_local(*f);
            co_return;
        }
        pause = f->has_new_wait ? first_look : std::min(2 * pause, last_look);
        f->next_look = now() + pause;
    }
}

// Tests in the order of asking. Who holds bytes against one waiter holds them against others that want them. True if
// somebody still waits.
task<bool> state_table::look_locally(file_entry& f)
{
    bool some_wait = false;
    std::optional<storage::local_holder> known;
    for (wait_entry* w = next_local_wait(f, 0); w != nullptr;) {
        const std::uint64_t number = w->number;
        const storage::lock_range wanted = to_storage(w->bytes, w->type);
        if (known && stand_in_way(known->bytes, wanted)) {
            some_wait = true;
            w = next_local_wait(f, number);
            continue;
        }
        const result<std::optional<storage::local_holder>> asked = co_await f.local->test(wanted);
        if (asked && *asked)
            known = **asked;
        w = next_local_wait(f, number - 1);
        const bool is_it = w != nullptr && w->number == number;
        if (is_it && asked && !*asked && to_storage(w->bytes, w->type) == wanted) {
            w->is_local = false;
            w->to_look = true;
            look_at_waiters(f);
        } else {
            some_wait |= is_it;
        }
        w = next_local_wait(f, number);
    }
    co_return some_wait;
}

} // namespace verbena::files
