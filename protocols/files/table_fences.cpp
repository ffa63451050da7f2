// SPDX-License-Identifier: Apache-2.0
// Fences: what a client has lost goes out of its reach, in turn, before anybody else gets it. docs/internals/files_recallable.md.
#include "entries.hpp"

#include <verbena/core/printable.hpp>
#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <chrono>
#include <exception>

namespace verbena::files {

using namespace detail;

namespace {

// Fences that have a place, of all clients and of one. Others wait for their turn.
constexpr std::size_t fences_at_once = 64;
constexpr std::size_t fences_of_one = 16;
// One that failed is tried again after that.
constexpr duration between_fences = std::chrono::seconds(1);
// Begun in one go before others of the shard have their turn.
constexpr std::size_t begun_at_once = 256;

} // namespace

// What comes of it later is its end alone: what the client has is closed to others until it is written down as gone.
void state_table::fence_now(recallable_entry& r, loss why) noexcept
{
    if (r.kind != state_kind::other || ends_) // with the memory that it would be about
        return;
    auto& o = static_cast<other_entry&>(r);
    if (o.fence == nullptr)
        return;
    o.fenced_type = type_of(o.held);
    o.unfenced.unlink();
    o.to_fence.unlink();
    o.fence->what.id = states_->id_of(o);
    o.fence->what.via = o.via;
    o.fence->what.why = why;
    o.fence->is_unshared = o.has_unshared;
    o.fence->what.bytes.swap(o.held);
    begin_fence(std::move(o.fence));
}

void state_table::begin_fence(std::unique_ptr<fence_entry> made) noexcept
{
    fence_entry& e = *made.release();
    e.what.client = e.use->client;
    e.what.file = &e.file.handle;
    e.type = type_of(e.what.bytes);
    e.begun = now();
    ++e.file.pins;
    e.file.fences.push_back(e.of_file);
    by_->fences.push_back(e.by_age);
    e.use->waiting.push_back(e.by_turn);
    ++e.use->fences;
    e.use->card->count(&client_card::fences, 1);
    ++e.use->of.fences_;
    stats_.fences.add(1);
    take_a_turn(*e.use);
    wake(fencing_);
}

void state_table::end_fence(fence_entry& e) noexcept
{
    stats_.fences.add(-1);
    stats_.ended_fences.add();
    stats_.fence_microseconds.add(static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(now() - e.begun).count()));
    const std::shared_ptr<kind_use> use = e.use;
    give_up_place(e);
    --use->fences;
    use->card->count(&client_card::fences, -1);
    --use->of.fences_;
    file_entry& f = e.file;
    delete &e; // which takes it off its lists
    tell_if_left(*use);
    --f.pins;
    changed(f);
    wake(fenced_);
    wake(fencing_);
}

// The client has nothing of the kind, and all that it had is fenced.
void state_table::tell_if_left(kind_use& u) noexcept
{
    if (u.held == 0 && u.fences == 0 && !ends_)
        u.of.left(u.client);
}

// --- Turns

// Clients have them one after the other, so that no client's dead fences keep others' waiting.
void state_table::take_a_turn(kind_use& u) noexcept
{
    if (u.waiting.empty() || u.running >= fences_of_one)
        u.in_turn.unlink();
    else if (!u.in_turn.is_linked())
        by_->turns.push_back(u.in_turn);
}

void state_table::give_up_place(fence_entry& e) noexcept
{
    if (!e.has_place)
        return;
    e.has_place = false;
    e.by_turn.unlink();
    --e.use->running;
    --running_fences_;
    take_a_turn(*e.use);
}

// Whatever becomes of it, the file stays closed to what it is in the way of until it has ended.
task<void> state_table::run_fence(fence_entry* e)
{
    for (;;) {
        result<void> done = error(std::errc::not_enough_memory, "a fence");
        try {
            task<result<void>> fencing = e->use->of.fence(e->what);
            task<result<void>> timed = with_timeout(options_.fence_time, std::move(fencing));
            done = co_await timed;
        } catch (...) { // as one that does not know
        }
        if (done)
            break;
        stats_.failed_fences.add();
        const bool goes_on = co_await sleep_for(between_fences);
        if (!goes_on)
            co_return;
    }
    end_fence(*e);
}

// False: there is no memory for the next one.
bool state_table::start_fences(scope& running) noexcept
{
    while (running_fences_ < fences_at_once) {
        auto* const turn = by_->turns.front();
        if (turn == nullptr)
            break;
        kind_use& u = turn->owner;
        fence_entry& e = u.waiting.front()->owner;
        e.has_place = true;
        e.started = now();
        by_->placed.push_back(e.by_turn);
        ++u.running;
        ++running_fences_;
        turn->unlink(); // behind the others'
        take_a_turn(u);
        try {
            running.spawn(already_made, run_fence(&e)); // after which `e` may be gone
        } catch (...) {
            give_up_place(e);
            u.waiting.push_front(e.by_turn);
            take_a_turn(u);
            return false;
        }
    }
    return true;
}

void state_table::note_late(fence_entry& e) noexcept
{
    by_->late_fences.push_back(e.by_age);
    stats_.late_fences.add();
    try {
        log_limited(
            late_, log_level::warning, "nfs",
            "what a client has lost is not out of its reach in time, and its file is closed to others "
            "until it is",
            {{"kind", e.use->of.name()},
             {"client", printable(e.use->key)},
             {"cure", "see whether its connections can be ended"}});
    } catch (const std::exception&) { // no memory for the line
    }
}

// The stop waits for those that run.
void state_table::note_left() noexcept
{
    auto* const m = by_->late_fences.empty() ? by_->fences.front() : by_->late_fences.front();
    if (m == nullptr)
        return;
    try {
        log(log_level::warning, "nfs",
            "the server stops, and what clients have lost is not out of their reach; it waits for each that "
            "was "
            "told to end by force",
            {{"left", stats_.fences.value()},
             {"kind", m->owner.use->of.name()},
             {"client", printable(m->owner.use->key)},
             {"cure", "if it does not end, end the process: its memory is out of reach then"}});
    } catch (const std::exception&) { // no memory for the line
    }
}

// In the scope of tend(), but beside it: what tend() waits for may be the end of a fence, or a store that hangs.
task<void> state_table::run_fences(scope* running, const stop_token* stops)
{
    for (;;) {
        if (stops->stop_requested())
            fence_all();
        const time_point t = now();
        time_point next = time_point::max();
        const auto is_due = [&next, t](time_point when) {
            if (when > t)
                next = std::min(next, when);
            return when <= t;
        };
        while (auto* m = by_->to_fence.front()) {
            if (!is_due(m->owner.deadline))
                break;
            fence_now(m->owner, has_lapsed(m->owner) ? loss::lapsed : loss::revoked);
        }
        // One that takes too long is told so (run_fence()), and others need not wait for that.
        while (auto* m = by_->placed.front()) {
            if (!is_due(m->owner.started + options_.fence_time))
                break;
            give_up_place(m->owner);
        }
        if (!start_fences(*running))
            next = std::min(next, t + between_fences);
        if (auto* m = by_->placed.front())
            (void)is_due(m->owner.started + options_.fence_time);
        while (auto* m = by_->fences.front()) {
            if (!is_due(m->owner.begun + options_.fence_time))
                break;
            note_late(m->owner);
        }
        if (fences_until_) {
            if (by_->fences.empty() && by_->late_fences.empty())
                co_return;
            if (is_due(*fences_until_)) {
                running->request_stop(); // those that run end by force
                note_left();
                co_return;
            }
        }
        const bool goes_on = co_await change_awaiter(fencing_, next, "fences");
        if (!goes_on)
            co_return;
    }
}

// --- All that somebody has

// Before what the client has is taken: a recovery store that hangs leaves no memory within its reach. True if something
// is left.
bool state_table::fence_some(client_id client) noexcept
{
    client_entry* const c = find_client(client);
    std::size_t begun = 0;
    for (std::size_t i = 0; c != nullptr && i < c->uses.size(); ++i)
        for (auto* m = c->uses[i]->unfenced.front(); m != nullptr && begun < begun_at_once; ++begun) {
            fence_now(m->owner, loss::client_ended);
            m = c->uses[i]->unfenced.front();
        }
    return begun == begun_at_once;
}

// The shard stops. Nothing is given any more, and what is out is fenced, for as long as a fence may take.
void state_table::fence_all() noexcept
{
    if (fences_until_)
        return;
    fences_until_ = now() + options_.fence_time;
    for (const auto& [id, c] : clients_)
        for (const auto& use : c->uses)
            while (auto* m = use->unfenced.front())
                fence_now(m->owner, loss::server_ends);
    wake(fencing_);
}

task<void> state_table::end_recallable()
{
    fence_all();
    const time_point until = *fences_until_;
    while (!(by_->fences.empty() && by_->late_fences.empty()) && now() < until) {
        const bool goes_on = co_await change_awaiter(fenced_, until, "the last fences");
        if (!goes_on)
            co_return;
    }
}

bool state_table::has_fences_of(client_id client) const noexcept
{
    for (auto* const all : {&by_->fences, &by_->late_fences})
        for (auto* m = all->front(); m != nullptr; m = all->next(*m))
            if (m->owner.use->client == client)
                return true;
    return false;
}

task<void> state_table::fences_of(client_id client, time_point until)
{
    while (has_fences_of(client) && now() < until) {
        const bool goes_on = co_await change_awaiter(fenced_, until, "fences of a client");
        if (!goes_on)
            co_return;
    }
}

} // namespace verbena::files
