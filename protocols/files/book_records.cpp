// SPDX-License-Identifier: Apache-2.0
// Clients: what is written down of them, and the time in which they take back what they had.
#include "booked_client.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/printable.hpp>

#include <cassert>
#include <new>
#include <string>

namespace verbena::files {

using namespace detail;

namespace {

// Names in one line of the log.
constexpr std::size_t most_told_of_grace = 10;

error no_memory() noexcept { return {std::errc::not_enough_memory, "the recovery store"}; }

} // namespace

// --- Records

task<result<void>> client_book::write_record(client_id client, bool frees_the_last)
{
    if (is_here())
        return write_record_here(client, frees_the_last);
    return home_.run([this, client, frees_the_last] { return write_record_here(client, frees_the_last); });
}

// Where the client has something that was revoked: only as it frees that.
task<result<void>> client_book::write_record_here(client_id id, bool frees_the_last)
{
    bool was_due = false;
    // The client may get something during a write that the record being written does not cover. Then it is written again.
    for (;;) {
        booked_client* c;
        while ((c = find(id)) != nullptr && c->storing) {
            const bool goes_on = co_await change_awaiter(storing_, time_point::max(), "the recovery store");
            if (!goes_on)
                co_return error(std::errc::operation_canceled);
        }
        if (c == nullptr)
            co_return error(errc::stale_client);
        client_card& card = *c->card;
        was_due = was_due || c->unrecorded.is_linked();
        c->unrecorded.unlink();
        // What it had may have been taken meanwhile, and given to others: it is not to take that back after a restart (8881 8.4.3).
        // In this order: a table counts itself out of the first when it is in the second.
        const std::size_t revoking = card.revoking;
        const std::size_t revoked = revoking + card.revoked;
        if (card.record.is_complete() || c->has_lost_all() || revoked > std::size_t(frees_the_last))
            co_return result<void>();
        c->storing = true;
        c->is_removed = false; // whatever is answered
        // While one whose record was gone is written down again it may get more.
        const share says = card.complete && !card.record.is_written() && !card.silent
                               ? share::both
                               : card.record.keeps_out();
        result<void> written = no_memory();
        try {
            written = co_await store_.add(card.key, says); // it stays while `storing` is set
        } catch (...) {                                    // as a store that refuses
        }
        c->storing = false;
        wake(storing_);
        if (!written) {
            stats_.store_failures.add();
            if (was_due)
                queue_record(*c);
            co_return written;
        }
        card.record.set(says);
    }
}

task<result<bool>> client_book::unrecord(client_id client)
{
    if (is_here())
        return unrecord_here(client);
    return home_.run([this, client] { return unrecord_here(client); });
}

task<result<bool>> client_book::unrecord_here(client_id id)
{
    booked_client* c;
    bool has_waited = false;
    while ((c = find(id)) != nullptr && c->storing) {
        has_waited = true;
        const bool goes_on = co_await change_awaiter(storing_, time_point::max(), "the recovery store");
        if (!goes_on)
            co_return error(std::errc::operation_canceled);
    }
    if (c == nullptr || c->has_lost_all()) // and its record went with that
        co_return false;
    ++c->card->revoking;
    if (has_waited && c->is_removed) // for another revocation
        co_return true;
    c->storing = true; // and it stays meanwhile
    result<void> removed = no_memory();
    try {
        removed = co_await store_.remove(c->card->key);
    } catch (...) { // as a store that refuses
    }
    c->storing = false;
    wake(storing_);
    if (!removed) {
        stats_.store_failures.add();
        --c->card->revoking;
        co_return removed.error();
    }
    c->card->record.clear();
    c->is_removed = true;
    co_return true;
}

// The record of one that has freed all that was revoked is to be written again. Any shard.
void client_book::record_later(client_card& c) noexcept
{
    if (!is_here()) {
        c.is_unrecorded = true;
        news_->tell();
    } else if (booked_client* const known = find(c.id)) {
        queue_record(*known);
    }
}

void client_book::queue_record(booked_client& c) noexcept
{
    by_->unrecorded.push_back(c.unrecorded);
    wake(tending_);
}

void client_book::hear_of_records() noexcept
{
    for (const auto& [id, c] : clients_)
        if (c->card->is_unrecorded.exchange(false) && !c->unrecorded.is_linked())
            queue_record(*c);
}

bool client_book::lacks_record(client_id client, share keeps_out) const noexcept
{
    const auto known = clients_.find(client);
    return known != clients_.end() && !known->second->card->may_be_granted(keeps_out);
}

bool client_book::waits_for_store(client_id client) const noexcept
{
    const auto known = clients_.find(client);
    if (known == clients_.end())
        return false;
    const booked_client& c = *known->second;
    return c.card->leaving > 0 && c.storing && !c.is_dropping;
}

bool client_book::is_being_written(client_id client) noexcept
{
    const booked_client* const c = find(client);
    return c != nullptr && (c->storing || c->card->leaving > 0);
}

result<void> client_book::set_silent(client_id client)
{
    booked_client* const c = find(client);
    if (c == nullptr)
        return error(errc::stale_client);
    c->card->silent = true;
    return {};
}

task<result<void>> client_book::record(client_id client, share keeps_out)
{
    if (is_here())
        return record_here(client, keeps_out);
    return home_.run([this, client, keeps_out] { return record_here(client, keeps_out); });
}

task<result<void>> client_book::record_here(client_id client, share keeps_out)
{
    const auto living_one = living(client);
    if (!living_one)
        co_return living_one.error();
    booked_client& c = **living_one;
    client_record& known = c.card->record;
    known.want(keeps_out);
    if ((known.is_complete() && !c.storing) || (!c.card->silent && !known.is_written()))
        co_return result<void>();
    const result<void> written = co_await write_record_here(client, false);
    if (!written)
        co_return written;
    // Its state may have been taken meanwhile, and the record with it.
    const auto again = living(client);
    if (!again)
        co_return again.error();
    if (!(*again)->card->may_be_granted(keeps_out))
        co_return error(errc::busy, "the client is not written down so");
    co_return result<void>();
}

// --- Grace

result<bool> client_book::must_reclaim(client_id client)
{
    const booked_client* const c = find(client);
    if (c == nullptr)
        return error(errc::stale_client);
    return !c->card->complete && grace_.now() == grace_period::phase::reclaiming &&
           grace_.may_reclaim(c->card->key);
}

task<result<void>> client_book::reclaim_complete(client_id client)
{
    if (is_here())
        return reclaim_complete_here(client);
    return home_.run([this, client] { return reclaim_complete_here(client); });
}

task<result<void>> client_book::reclaim_complete_here(client_id client)
{
    const auto living_one = living(client);
    if (!living_one)
        co_return living_one.error();
    if ((*living_one)->card->is_host)
        co_return error(errc::invalid, "a host may reclaim until grace is over");
    if ((*living_one)->card->complete)
        co_return error(errc::already_complete);
    result<void> written = co_await write_record_here(client, false);
    if (!written)
        co_return written;
    const auto again = living(client);
    if (!again)
        co_return again.error();
    client_card& card = *(*again)->card;
    if (card.complete)
        co_return error(errc::already_complete);
    card.complete = true;
    note_complete(card, grace_period::part::done);
    if (grace_.is_due(now())) // if the store refuses, tend() tries again: the client has done its part
        written = co_await end_grace();
    co_return result<void>();
}

void client_book::note_complete(client_card& c, grace_period::part how) noexcept
{
    c.may_reclaim = false;
    c.reclaims_against = share::none;
    grace_.complete(c.key, how);
    note_grace();
}

grace_period::report client_book::how_grace_goes(std::size_t most) const
{
    return grace_.how_it_goes(now(), most);
}

// Whoever waited hears that it is over, and of whom it waited for in vain.
void client_book::tell_end_of_grace() const noexcept
{
    try {
        const grace_period::report how = grace_.how_it_goes(now(), most_told_of_grace);
        std::string names;
        for (const std::string& key : how.keys_absent)
            names += (names.empty() ? "" : ", ") + printable(name_of_key(key));
        if (how.clients.absent > how.keys_absent.size())
            names += " and " + std::to_string(how.clients.absent - how.keys_absent.size()) + " more";
        log(log_level::info, "nfs",
            "grace is over: files are opened, locked and removed again, and nothing of before the restart is "
            "taken back any more",
            {{"clients", how.clients.recorded},
             {"done", how.clients.done},
             {"gone", how.clients.lost},
             {"back", how.clients.back},
             {"absent", how.clients.absent},
             {"not_back", names.empty() ? std::string("nobody") : names}});
    } catch (const std::bad_alloc&) { // `verbena admin grace` tells it
    }
}

task<result<void>> client_book::end_grace()
{
    grace_.begin_end();
    note_grace();
    result<void> written = no_memory();
    try {
        written = co_await store_.end_grace();
    } catch (...) { // as a store that refuses
    }
    grace_.end(written.has_value());
    note_grace();
    if (written)
        tell_end_of_grace();
    else
        stats_.store_failures.add();
    wake(tending_); // which tries again
    co_return written;
}

void client_book::note_grace() noexcept
{
    const auto phase = grace_.now();
    // Who finds that it is over finds nobody that holds anything up.
    holds_up_reads_.store(grace_.holds_up(share::read));
    holds_up_writes_.store(grace_.holds_up(share::write));
    phase_.store(phase, std::memory_order_release);
    stats_.grace.set(phase == grace_period::phase::over         ? 0
                     : phase == grace_period::phase::reclaiming ? 1
                                                                : 2);
    const grace_period::counts& how = grace_.clients();
    stats_.grace_recorded.set(std::int64_t(how.recorded));
    stats_.grace_done.set(std::int64_t(how.done));
    stats_.grace_absent.set(std::int64_t(how.absent));
    stats_.to_reclaim.set(phase == grace_period::phase::over ? 0 : std::int64_t(grace_.left()));
    stats_.reads_wait_for.set(std::int64_t(grace_.left_against(share::read)));
    stats_.writes_wait_for.set(std::int64_t(grace_.left_against(share::write)));
}

bool client_book::holds_up(share access) const noexcept
{
    return (any(access & share::read) && holds_up_reads_.load()) ||
           (any(access & share::write) && holds_up_writes_.load());
}

} // namespace verbena::files
