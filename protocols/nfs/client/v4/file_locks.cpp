// SPDX-License-Identifier: Apache-2.0
// Byte-range locks of an open file (RFC 8881 9.4): LOCK, LOCKT, LOCKU, and how they are had back.
#include "server_open.hpp"

#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <utility>

namespace verbena::nfs::v4 {
namespace {

constexpr files::byte_range everything{0, files::byte_range::to_the_end};

// Between two tries of who waits. A server that can call says when to come, so that the last one is for a call that was lost.
constexpr duration first_lock_delay = std::chrono::milliseconds(100);
constexpr duration last_lock_delay = std::chrono::seconds(5);
constexpr duration last_delay_when_called = std::chrono::seconds(30);

const error lock_stopped(std::errc::operation_canceled, "LOCK");

nfs_lock_type4 to_wire(files::lock_type type, bool waits) noexcept
{
    if (type == files::lock_type::read)
        return waits ? nfs_lock_type4::readw : nfs_lock_type4::read;
    return waits ? nfs_lock_type4::writew : nfs_lock_type4::write;
}

// By its owner's name where the server has forgotten that, or never heard of it.
LOCK4args locking_of(const server_open& o, const file_locks& l, const owner_name& owner,
                     const files::byte_range& bytes, nfs_lock_type4 type) noexcept
{
    LOCK4args args;
    args.locktype = type;
    args.offset = bytes.offset;
    args.length = bytes.length();
    args.locker.new_lock_owner = !l.is_known;
    args.locker.open_stateid = o.id;
    args.locker.lock_stateid = l.id;
    args.locker.lock_owner.owner = owner.bytes();
    return args;
}

// Whether a LOCK that fails so tells that the same one was not granted before: somebody else has the bytes, the open is gone, or it is refused for what
// it is. Whatever else a server says of it, a limit of its memory above all, it may say before it finds that the owner has them.
bool tells_that_none_is_locked(const error& of_lock) noexcept
{
    constexpr std::array refused{nfsstat4::denied,  nfsstat4::inval,        nfsstat4::bad_range,
                                 nfsstat4::notsupp, nfsstat4::lock_notsupp, nfsstat4::openmode,
                                 nfsstat4::isdir,   nfsstat4::wrong_type};
    return is_gone(of_lock) || std::ranges::any_of(refused, [&](nfsstat4 each) {
               return of_lock.code() == make_error_code(each);
           });
}

} // namespace

// A LOCK, which outlives its caller. What the server locks for who has gone is undone before anybody else of this file locks or unlocks.
struct client::locking {
    locking(std::shared_ptr<server_open> of, std::shared_ptr<file_locks> by, files::byte_range wanted,
            files::lock_type as, bool may_wait)
        : o(std::move(of)), l(std::move(by)), bytes(wanted), type(as), waits(may_wait), owner(l->owner)
    {
    }
    // In its turn: until that is over, nobody else changes `ranges`.
    void note_what_was_locked() { before = l->ranges; }
    std::vector<files::locked_range> had() const // of `bytes`, before
    {
        std::vector<files::locked_range> out;
        for (const files::locked_range& each : before.all()) {
            const files::byte_range both{std::max(each.bytes.offset, bytes.offset),
                                         std::min(each.bytes.last, bytes.last)};
            if (both.offset <= both.last)
                out.push_back({both, each.type});
        }
        return out;
    }
    // Once. Needs no memory.
    void restore() noexcept { l->ranges = std::move(before); }

    const std::shared_ptr<server_open> o;
    const std::shared_ptr<file_locks> l;
    const files::byte_range bytes;
    const files::lock_type type;
    const bool waits;
    const owner_name owner;
    std::optional<operations<PUTFH4args, LOCK4args>> call; // when it is its owner's turn
    stateid4 used;                                         // that it went by: the lock's, or the open's
    std::optional<held_permit> held; // that turn, until its caller has heard, or all is undone
    files::byte_ranges before;       // what the file had locked
    bool is_abandoned = false;
    std::optional<std::uint64_t> only_in; // incarnation of the server
    bool settles = false; // what the server may have done is undone, whether anybody waits or not
    bool is_over = false;
    result<void> outcome;
    event over;
};

// A LOCKU, which outlives its caller too: no later LOCK may overtake it.
struct client::unlocking {
    unlocking(std::shared_ptr<server_open> of, std::shared_ptr<file_locks> by, files::byte_range what,
              bool at_the_end)
        : o(std::move(of)), l(std::move(by)), bytes(what), closes(at_the_end)
    {
    }
    const std::shared_ptr<server_open> o;
    const std::shared_ptr<file_locks> l;
    const files::byte_range bytes;
    const bool closes;               // the file is closed: nobody unlocks after this one
    std::optional<task<void>> later; // of one that closes: unlock_late(), made while there is memory for it
    bool is_abandoned = false;
    result<void> outcome;
    event over;
};

task<void> client::perform_lock(std::shared_ptr<locking> k)
{
    // Whoever waits for it hears where there is no memory for a part of it.
    try {
        const bool mine = co_await k->l->turn.acquire();
        k->outcome = lock_stopped;
        if (mine) {
            k->held.emplace(k->l->turn);
            k->outcome = co_await send_lock(k);
        }
    } catch (...) {
        k->outcome = error_of(std::current_exception(), "LOCK");
        k->settles = k->call.has_value();
        if (k->settles)
            k->l->in_doubt = {{k->bytes, k->type}, session_.incarnation()};
    }
    k->is_over = true;
    k->over.set();
    if (k->is_abandoned && k->outcome)
        give_up(*k);
    try {
        if (k->held && (k->is_abandoned || k->settles)) // it has the turn
            (void)co_await settle(k->o, k->l);
    } catch (...) { // what is in doubt is settled before the next one
    }
    if (k->is_abandoned || k->settles)
        k->held.reset();
    end_opening();
}

task<result<void>> client::send_lock(std::shared_ptr<locking> k)
{
    auto settled = co_await settle(k->o, k->l);
    if (!settled)
        co_return settled;
    k->note_what_was_locked();
    const files::locked_range wanted{k->bytes, k->type};
    auto locked = co_await lock_there(k, wanted, false);
    k->settles = !locked && k->call && k->call->is_in_doubt(session_.incarnation()) &&
                 !tells_that_none_is_locked(locked.error());
    if (k->settles)
        k->l->in_doubt = {wanted, session_.incarnation()};
    co_return locked;
}

// In its turn. `undoes`: for nobody who waits, or could give it up.
task<result<void>> client::lock_there(std::shared_ptr<locking> k, files::locked_range what, bool undoes)
{
    file_locks& l = *k->l;
    result<void> ran = lock_stopped;
    for (bool first = true; undoes || !k->is_abandoned; first = false) {
        const bool was_known = l.is_known;
        const stateid4 by = l.id;
        k->used = was_known ? by : k->o->id;
        k->call.emplace(PUTFH4args{k->o->handle.bytes()},
                        locking_of(*k->o, l, k->owner, what.bytes, to_wire(what.type, k->waits && !undoes)));
        k->call->once();
        if (k->only_in)
            k->call->only_in(*k->only_in);
        ran = co_await session_.run(*k->call);
        // A server that started anew meanwhile has what was locked before by another stateid.
        if (ran || !first || !is_gone(ran.error()) || !l.is_known || (was_known && l.id == by))
            break;
    }
    if (!ran)
        co_return ran;
    l.id = k->call->get<1>().lock_stateid;
    l.id.seqid = 0;
    l.is_known = true;
    l.ranges.set(what.bytes, what.type);
    co_return ran;
}

// A LOCK that was granted, of a caller who has gone: settle() undoes it. Needs no memory, so that it is known from here
// on whatever fails.
void client::give_up(locking& k) noexcept
{
    file_locks& l = *k.l;
    k.restore();
    l.is_lost = l.is_lost && !l.ranges.empty();
    if (!l.is_lost)
        l.in_doubt = {{k.bytes, k.type}, session_.incarnation()};
}

// What the file had locked of the bytes before is as it was. Whoever else locks or unlocks here waits meanwhile. Where
// the server can't be asked, that stays to be done, and `ranges` says what the file had.
task<result<void>> client::undo_lock(std::shared_ptr<locking> k)
{
    file_locks& l = *k->l;
    const std::vector<files::locked_range> had = k->had();
    std::uint64_t at = k->bytes.offset;
    result<void> undone;
    bool is_done = false;
    for (std::size_t i = 0; !is_done && undone; ++i) {
        const bool is_last = i == had.size();
        const std::uint64_t next = is_last ? k->bytes.last : had[i].bytes.offset;
        if (at < next || (is_last && at == next)) {
            const files::byte_range between{at, is_last ? next : next - 1};
            undone = co_await unlock_there(k->o, k->l, between, true);
        }
        if (is_last || !undone || l.is_lost)
            break;
        const files::locked_range before = had[i];
        if (before.type != k->type)
            undone = co_await lock_there(k, before, true);
        if (!undone && is_gone(undone.error()))
            l.lose();
        if (!undone && is_revoked(undone.error()))
            co_await free_stateid(k->used);
        if (!undone && undone.error().code() == make_error_code(nfsstat4::denied))
            l.is_lost = true; // somebody reads
        is_done = before.bytes.last == k->bytes.last;
        at = before.bytes.last + 1;
    }
    if (undone && !l.is_lost) {
        l.in_doubt.reset();
        co_return undone;
    }
    k->restore();
    if (!l.is_lost) {
        l.in_doubt = {{k->bytes, k->type}, session_.incarnation()};
        co_return undone;
    }
    l.in_doubt.reset();
    l.is_lost = !l.ranges.empty();
    co_return result<void>();
}

task<void> client::undo_late(std::shared_ptr<locking> k)
{
    try {
        (void)co_await settle(k->o, k->l);
    } catch (...) { // before the next one
    }
    k->held.reset();
    end_opening();
}

// In its turn. To undo what is in doubt asks for nothing that the file does not have: where the server has not locked it, nothing changes. Only by which
// stateid it was locked, if the file has none, the server tells nobody but who asks for it once more. A restart has undone it: to ask the server then would
// lock what nobody wants.
task<result<void>> client::settle(std::shared_ptr<server_open> o, std::shared_ptr<file_locks> l)
{
    const auto is_over = [&] { return !l->in_doubt || l->in_doubt->incarnation != session_.incarnation(); };
    if (is_over()) {
        l->in_doubt.reset();
        co_return result<void>();
    }
    const lock_in_doubt sent = *l->in_doubt;
    auto k = std::make_shared<locking>(std::move(o), l, sent.what.bytes, sent.what.type, false);
    k->note_what_was_locked();
    k->only_in = sent.incarnation;
    result<void> locked;
    if (!l->is_known)
        locked = co_await lock_there(k, sent.what, true);
    k->only_in.reset();
    if (locked) {
        // It is in doubt until all of it is undone: memory may run out on the way.
        try {
            const result<void> undone = co_await undo_lock(k);
            co_return undone;
        } catch (...) {
            k->restore();
            throw;
        }
    }
    if (!is_over() && !tells_that_none_is_locked(locked.error()))
        co_return locked;
    l->in_doubt.reset();
    co_return result<void>();
}

task<void> client::perform_unlock(std::shared_ptr<unlocking> k)
{
    try {
        co_await send_unlock(k);
    } catch (...) {
        k->outcome = error_of(std::current_exception(), "LOCKU");
    }
    const bool goes_on = k->closes && !k->outcome;
    if (goes_on) {
        // What may be locked there still goes with the open, if no other file has that.
        try {
            begin_return(k->o);
        } catch (const std::bad_alloc&) { // the delegation stays, and so may the open
        }
        file_locks& l = *k->l;
        l.ranges.clear(everything);
        if (l.is_known)
            l.in_doubt = {{everything, files::lock_type::write}, session_.incarnation()};
    }
    k->over.set();
    end_opening();
    if (goes_on)
        co_await *k->later;
}

task<void> client::send_unlock(std::shared_ptr<unlocking> k)
{
    file_locks& l = *k->l;
    const bool mine = co_await l.turn.acquire();
    k->outcome = lock_stopped;
    if (mine) {
        const held_permit held(l.turn);
        if (!k->is_abandoned) {
            k->outcome = co_await settle(k->o, k->l);
            if (k->outcome)
                k->outcome = co_await unlock_there(k->o, k->l, k->bytes, false);
        }
        if (k->closes && k->outcome && std::exchange(l.is_known, false))
            co_await free_stateid(l.id);
    }
}

// Of a file that is closed: until the server has unlocked it, or the open is closed, which other files may have.
task<void> client::unlock_late(std::shared_ptr<server_open> o, std::shared_ptr<file_locks> l)
{
    const std::uint64_t incarnation = session_.incarnation();
    for (duration delay = first_lock_delay;; delay = std::min(delay * 2, session_.lease() / 3)) {
        const bool slept = co_await sleep_for(delay);
        if (!slept || o->is_closed)
            co_return;
        const bool mine = co_await l->turn.acquire();
        if (!mine)
            co_return;
        const held_permit held(l->turn);
        try {
            const result<void> settled = co_await settle(o, l);
            if (!settled)
                continue;
            // A restart takes the stateid along.
            if (std::exchange(l->is_known, false) && session_.incarnation() == incarnation)
                co_await free_stateid(l->id);
            co_return;
        } catch (const std::bad_alloc&) { // later there may be memory
        }
    }
}

// In its turn. `undoes`: the server may have more locked than anybody knows of.
task<result<void>> client::unlock_there(std::shared_ptr<server_open> o, std::shared_ptr<file_locks> l,
                                        files::byte_range bytes, bool undoes)
{
    if (l->ranges.empty() && !undoes)
        co_return result<void>();
    for (bool first = true; l->is_known || !l->is_lost; first = false) {
        LOCKU4args args;
        args.locktype = nfs_lock_type4::write;
        args.lock_stateid = l->id;
        args.offset = bytes.offset;
        args.length = bytes.length();
        operations call(PUTFH4args{o->handle.bytes()}, args);
        call.once();
        auto ran = co_await session_.run(call);
        if (ran)
            break;
        if (!is_gone(ran.error()))
            co_return ran.error();
        // A server that started anew meanwhile has them locked by another stateid.
        if (first && l->is_known && !(l->id == args.lock_stateid))
            continue;
        // What the server does not know is not locked.
        l->is_known = false;
        l->is_lost = true;
        if (is_revoked(ran.error()))
            co_await free_stateid(args.lock_stateid);
    }
    l->ranges.clear(bytes);
    l->is_lost = l->is_lost && !l->ranges.empty();
    co_return result<void>();
}

// Fails where the session is lost again.
task<result<void>> client::reclaim_locks(std::shared_ptr<server_open> o, std::shared_ptr<file_locks> l)
{
    l->is_known = false;
    l->in_doubt.reset();
    const std::vector<files::locked_range> all(l->ranges.all().begin(), l->ranges.all().end());
    const owner_name owner(l->owner);
    for (const files::locked_range& each : all) {
        if (l->is_lost)
            break;
        LOCK4args args = locking_of(*o, *l, owner, each.bytes, to_wire(each.type, false));
        args.reclaim = true;
        operations call(PUTFH4args{o->handle.bytes()}, args);
        call.once();
        auto ran = co_await session_.run_to_reclaim(call);
        if (!ran && client_session::ends_recovery(ran.error()))
            co_return ran.error();
        if (!ran) {
            l->is_lost = true;
            break;
        }
        l->id = call.get<1>().lock_stateid;
        l->id.seqid = 0;
        l->is_known = true;
    }
    co_return result<void>();
}

void client::notified(const CB_NOTIFY_LOCK4args& args) noexcept
{
    const std::span<const std::byte> named = args.lock_owner.owner;
    for (const auto& o : opens_) {
        for (const auto& l : o->locks) {
            const owner_name owner(l->owner);
            if (std::ranges::equal(owner.bytes(), named))
                l->notice();
        }
    }
}

file_locks& file::locks()
{
    if (!locks_) {
        locks_ = std::make_shared<file_locks>(++client_.owners_);
        open_->locks.push_back(locks_);
    }
    return *locks_;
}

task<result<void>> file::lock(files::byte_range bytes, files::lock_type type, bool waits)
{
    const std::uint32_t needed = type == files::lock_type::read ? share4::access_read : share4::access_write;
    if ((access_ & needed) == 0)
        co_return not_opened_for_this;
    (void)locks();
    const std::shared_ptr<file_locks> l = locks_;
    duration delay = first_lock_delay;
    for (;;) {
        const std::uint64_t heard_before = l->notices;
        auto done = co_await lock_once(bytes, type, waits);
        if (done || !waits || !(done.error().code() == make_error_code(nfsstat4::denied)))
            co_return done;
        // Other tasks may wait for locks of this file: what was said while this one asked is not to be missed.
        if (l->notices != heard_before)
            continue;
        l->may_be_free.reset();
        const auto hear = [](event& free) -> task<result<bool>> {
            const bool heard = co_await free.wait();
            if (!heard)
                co_return lock_stopped;
            co_return true;
        };
        task<result<bool>> hearing = hear(l->may_be_free);
        auto heard = co_await with_timeout(delay, std::move(hearing));
        if (!heard && !(heard.error() == std::errc::timed_out))
            co_return lock_stopped;
        const bool is_told = open_->may_notify && client_.session_.can_be_called();
        delay = std::min(delay * 2, is_told ? last_delay_when_called : last_lock_delay);
    }
}

task<result<void>> file::lock_once(files::byte_range bytes, files::lock_type type, bool waits)
{
    const std::shared_ptr<file_locks> l = locks_;
    // The lock's stateid may be gone, and then the open's.
    for (unsigned gone = 0;;) {
        if (l->is_lost)
            co_return locks_are_lost;
        // A lock hangs on an open of the server's that has the access.
        if ((access_ & ~open_->access) != 0 && open_->has_delegation())
            co_await client_.claim(open_);
        if ((access_ & ~open_->access) != 0 && !open_->has_delegation()) {
            auto opened = co_await reopen(id());
            if (!opened)
                co_return opened.error();
        }
        auto sent = std::make_shared<client::locking>(open_, l, bytes, type, waits);
        client_.run_beside(client_.perform_lock(sent));
        const bool stays = co_await sent->over.wait();
        if (!stays) {
            sent->is_abandoned = true;
            if (sent->call && !sent->is_over)
                sent->call->abandon();
            if (sent->is_over && !sent->settles && sent->outcome) {
                client_.give_up(*sent);
                try {
                    client_.run_beside(client_.undo_late(sent));
                } catch (const std::bad_alloc&) { // before the next one
                }
            }
            co_return lock_stopped;
        }
        if (!sent->settles)
            sent->held.reset();
        if (sent->outcome || !is_gone(sent->outcome.error()) || ++gone > 2)
            co_return sent->outcome;
        const bool again = co_await mended(sent->used, sent->outcome.error());
        if (!again)
            co_return told(sent->outcome.error());
    }
}

// Who locks these bytes next reads and writes them: what was written here is to be stable before, or it might be sent again over that.
task<result<void>> file::unlock(files::byte_range bytes)
{
    if (!locks_ || (locks_->ranges.empty() && !locks_->in_doubt))
        co_return result<void>();
    result<void> kept;
    if (!has_lost_locks() && uncommitted() != 0)
        kept = co_await commit();
    if (has_lost_locks())
        kept = co_await drop_what_is_lost();
    else if (!kept)
        co_return kept;
    auto sent = std::make_shared<client::unlocking>(open_, locks_, bytes, false);
    client_.run_beside(client_.perform_unlock(sent));
    const bool stays = co_await sent->over.wait();
    if (!stays) {
        sent->is_abandoned = true;
        co_return lock_stopped;
    }
    if (!sent->outcome)
        co_return sent->outcome;
    co_return kept;
}

// What was written under a lock that is lost may stand in the way of what somebody else has written since.
task<result<void>> file::drop_what_is_lost()
{
    auto dropped = co_await drop_uncommitted();
    if (!dropped)
        co_return dropped.error();
    if (*dropped != 0)
        co_return locks_are_lost;
    co_return result<void>();
}

// Before the file is closed: the open may stay. A LOCK that nobody waits for any more is waited for, and the unlocking goes on where the caller has gone.
task<result<void>> file::unlock_all()
{
    auto sent = std::make_shared<client::unlocking>(open_, locks_, everything, true);
    sent->later.emplace(client_.unlock_late(open_, locks_));
    client_.run_beside(client_.perform_unlock(sent));
    const bool stays = co_await sent->over.wait();
    if (!stays)
        co_return lock_stopped;
    co_return sent->outcome;
}

task<result<std::optional<file::lock_in_the_way>>> file::test_lock(files::byte_range bytes,
                                                                   files::lock_type type)
{
    const owner_name owner(locks().owner);
    LOCKT4args args;
    args.locktype = to_wire(type, false);
    args.offset = bytes.offset;
    args.length = bytes.length();
    args.owner.owner = owner.bytes();
    operations call(PUTFH4args{open_->handle.bytes()}, args);
    auto ran = co_await client_.session_.run(call);
    if (ran)
        co_return std::optional<lock_in_the_way>();
    if (!(ran.error().code() == make_error_code(nfsstat4::denied)))
        co_return ran.error();
    const LOCK4denied& other = call.get<1>().denied;
    auto held = files::byte_range::of(other.offset, other.length);
    if (!held)
        co_return error(std::errc::protocol_error, "LOCKT tells of a lock of impossible bytes");
    co_return lock_in_the_way{*held, other.locktype == nfs_lock_type4::read ? files::lock_type::read
                                                                            : files::lock_type::write};
}

} // namespace verbena::nfs::v4
