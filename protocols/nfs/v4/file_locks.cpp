// SPDX-License-Identifier: Apache-2.0
// Byte-range locks of an open file (RFC 8881 9.4): LOCK, LOCKT, LOCKU, and how they are had back.
#include "server_open.hpp"

#include <verbena/core/combine.hpp>

#include <algorithm>
#include <utility>

namespace verbena::nfs::v4 {
namespace {

constexpr files::byte_range everything{0, files::byte_range::to_the_end};

// Between two tries of who waits. A server that can call says when to come, so that the last one is for a call that was lost.
constexpr duration first_delay = std::chrono::milliseconds(100);
constexpr duration last_delay = std::chrono::seconds(5);
constexpr duration last_delay_when_called = std::chrono::seconds(30);

const error locks_are_lost(std::errc::io_error, "the server has lost what was locked here");
const error not_opened_for_this(make_error_code(nfsstat4::openmode), "the file is not open for that");
const error stopped(std::errc::operation_canceled, "LOCK");

nfs_lock_type4 to_wire(files::lock_type type, bool waits) noexcept
{
    if (type == files::lock_type::read)
        return waits ? nfs_lock_type4::readw : nfs_lock_type4::read;
    return waits ? nfs_lock_type4::writew : nfs_lock_type4::write;
}

bool is_status(const error& why) noexcept
{
    return why.code().category() == make_error_code(nfsstat4::ok).category();
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

} // namespace

// A LOCK, which outlives its caller: what the server locks then is unlocked.
struct client::locking {
    locking(std::shared_ptr<server_open> of, std::shared_ptr<file_locks> by, files::byte_range wanted,
            files::lock_type as, bool may_wait)
        : o(std::move(of)), l(std::move(by)), bytes(wanted), type(as), waits(may_wait), owner(l->owner)
    {
    }
    const std::shared_ptr<server_open> o;
    const std::shared_ptr<file_locks> l;
    const files::byte_range bytes;
    const files::lock_type type;
    const bool waits;
    const owner_name owner;
    std::optional<operations<PUTFH4args, LOCK4args>> call; // when it is its owner's turn
    bool is_abandoned = false;
    bool is_over = false;
    result<void> outcome;
    event over;
};

task<void> client::perform_lock(std::shared_ptr<locking> k)
{
    file_locks& l = *k->l;
    const bool mine = co_await l.turn.acquire();
    std::optional<held_permit> held;
    k->outcome = stopped;
    if (mine)
        held.emplace(l.turn);
    if (mine && !k->is_abandoned) {
        k->call.emplace(PUTFH4args{k->o->handle.bytes()},
                        locking_of(*k->o, l, k->owner, k->bytes, to_wire(k->type, k->waits)));
        k->call->once();
        k->outcome = co_await session_.run(*k->call);
    }
    if (k->outcome) {
        l.id = k->call->get<1>().lock_stateid;
        l.id.seqid = 0;
        l.is_known = true;
        l.ranges.set(k->bytes, k->type);
    }
    held.reset();
    k->is_over = true;
    k->over.set();
    if (k->outcome && k->is_abandoned) {
        co_await undo_lock(std::move(k));
        co_return;
    }
    end_opening();
}

// Nobody has it any more that was waited for.
task<void> client::undo_lock(std::shared_ptr<locking> k)
{
    const bool mine = co_await k->l->turn.acquire();
    if (mine) {
        const held_permit held(k->l->turn);
        auto undone = co_await send_unlock(k->o, k->l, k->bytes);
        if (undone)
            k->l->ranges.clear(k->bytes);
    }
    end_opening();
}

task<result<void>> client::send_unlock(std::shared_ptr<server_open> o, std::shared_ptr<file_locks> l,
                                       files::byte_range bytes)
{
    LOCKU4args args;
    args.locktype = nfs_lock_type4::write;
    args.lock_stateid = l->id;
    args.offset = bytes.offset;
    args.length = bytes.length();
    operations call(PUTFH4args{o->handle.bytes()}, args);
    call.once();
    co_return co_await session_.run(call);
}

// Fails where the session is lost again.
task<result<void>> client::reclaim_locks(std::shared_ptr<server_open> o, std::shared_ptr<file_locks> l)
{
    l->is_known = false;
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
        if (!ran && (!is_status(ran.error()) || ran.error().code() == make_error_code(nfsstat4::badsession) ||
                     ran.error().code() == make_error_code(nfsstat4::deadsession)))
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
                l->may_be_free.set();
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
    duration delay = first_delay;
    for (;;) {
        l->may_be_free.reset();
        auto done = co_await lock_once(bytes, type, waits);
        if (done || !waits || !(done.error().code() == make_error_code(nfsstat4::denied)))
            co_return done;
        const auto hear = [](event& free) -> task<result<bool>> {
            const bool heard = co_await free.wait();
            if (!heard)
                co_return stopped;
            co_return true;
        };
        task<result<bool>> hearing = hear(l->may_be_free);
        auto heard = co_await with_timeout(delay, std::move(hearing));
        if (!heard && !(heard.error() == std::errc::timed_out))
            co_return stopped;
        const duration last = client_.session_.can_be_called() ? last_delay_when_called : last_delay;
        delay = std::min(delay * 2, last);
    }
}

task<result<void>> file::lock_once(files::byte_range bytes, files::lock_type type, bool waits)
{
    const std::shared_ptr<file_locks> l = locks_;
    for (bool first = true;; first = false) {
        if (l->is_lost)
            co_return locks_are_lost;
        // A lock hangs on an open of the server's that has the access.
        if ((access_ & ~open_->access) != 0)
            co_await client_.claim(open_);
        const stateid4 used = open_->id;
        auto sent = std::make_shared<client::locking>(open_, l, bytes, type, waits);
        ++client_.openings_;
        client_.session_.background().spawn(&client::perform_lock, &client_, sent);
        const bool stays = co_await sent->over.wait();
        if (!stays) {
            sent->is_abandoned = true;
            if (sent->call)
                sent->call->abandon();
            if (sent->is_over && sent->outcome) {
                ++client_.openings_;
                client_.session_.background().spawn(&client::undo_lock, &client_, sent);
            }
            co_return stopped;
        }
        if (sent->outcome || !first || !is_gone(sent->outcome.error()))
            co_return sent->outcome;
        // Nothing is lost by an owner that has no locks.
        l->is_lost = l->is_lost || !l->ranges.empty();
        l->is_known = false;
        const bool again = co_await mended(used, sent->outcome.error());
        if (!again)
            co_return sent->outcome;
    }
}

task<result<void>> file::unlock(files::byte_range bytes)
{
    if (!locks_ || locks_->ranges.empty())
        co_return result<void>();
    const std::shared_ptr<file_locks> l = locks_;
    const bool mine = co_await l->turn.acquire();
    if (!mine)
        co_return stopped;
    const held_permit held(l->turn);
    result<void> done;
    if (l->is_known)
        done = co_await client_.send_unlock(open_, l, bytes);
    // What the server does not know is not locked.
    if (!done && !is_gone(done.error()))
        co_return done;
    if (!done) {
        l->is_known = false;
        l->is_lost = true;
    }
    l->ranges.clear(bytes);
    l->is_lost = l->is_lost && !l->ranges.empty();
    co_return result<void>();
}

// Before the file is closed: the open may stay.
task<void> file::unlock_all()
{
    (void)co_await unlock(everything);
    if (!locks_->is_known)
        co_return;
    locks_->is_known = false;
    co_await client_.free_stateid(locks_->id);
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
