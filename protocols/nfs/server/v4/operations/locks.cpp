// SPDX-License-Identifier: Apache-2.0
// LOCK, LOCKT, LOCKU, TEST_STATEID, FREE_STATEID.
#include "locks.hpp"
#include "limits.hpp"
#include "operations.hpp"
#include "steps.hpp"

#include <verbena/core/task/yield.hpp>

#include <algorithm>
#include <span>
#include <vector>

namespace verbena::nfs::v4::operations {

namespace {

// What TEST_STATEID's answer takes beside its codes, at most.
constexpr std::size_t around_codes = 24;
// How many stateids are looked at before others have their turn.
constexpr std::size_t tested_at_once = 1024;

} // namespace

LOCK4denied to_denied(const files::lock_holder& holder) noexcept
{
    LOCK4denied denied;
    denied.offset = holder.bytes.offset;
    denied.length = holder.bytes.length();
    denied.locktype = holder.type == files::lock_type::read ? nfs_lock_type4::read : nfs_lock_type4::write;
    // Not the holder's number: whoever knows it could create sessions of that client.
    denied.owner.clientid = 0;
    denied.owner.owner = std::as_bytes(std::span(holder.owner));
    return denied;
}

task<nfsstat4> lock(compound& k)
{
    LOCK4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    stateid4 id = args.locker.new_lock_owner ? args.locker.open_stateid : args.locker.lock_stateid;
    const auto bytes = files::byte_range::of(args.offset, args.length);
    nfsstat4 status = k.need_file(purpose::reading);
    if (status == nfsstat4::ok && !bytes)
        status = nfsstat4::inval;
    if (status == nfsstat4::ok)
        status = k.resolve(id);
    if (status == nfsstat4::ok && id.is_reserved())
        status = nfsstat4::bad_stateid;
    if (status == nfsstat4::ok)
        status = k.check_room<LOCK4res>();
    if (status == nfsstat4::ok)
        status = co_await need_regular(k.current);
    if (status != nfsstat4::ok)
        co_return status;
    files::lock_request request;
    request.client = k.client;
    request.file = k.current.state_file();
    request.new_owner = args.locker.new_lock_owner;
    request.id = to_state(id);
    request.owner = args.locker.lock_owner.owner;
    request.bytes = *bytes;
    request.type = type_of(args.locktype);
    request.reclaim = args.reclaim;
    // Who can't be told keeps no place.
    request.wait = (args.locktype == nfs_lock_type4::readw || args.locktype == nfs_lock_type4::writew) &&
                   k.session->back().is_up();
    files::lock_holder holder;
    const auto done = co_await k.server.state.lock(request, holder);
    LOCK4res res;
    if (done)
        k.current_id = res.lock_stateid = to_wire(*done);
    else
        tell_limit(k, done.error());
    co_return add_lock(k, res, status_of_state(done), &holder);
}

task<nfsstat4> lockt(compound& k)
{
    LOCKT4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    const auto bytes = files::byte_range::of(args.offset, args.length);
    nfsstat4 status = k.need_file(purpose::reading);
    if (status == nfsstat4::ok && !bytes)
        status = nfsstat4::inval;
    if (status == nfsstat4::ok)
        status = co_await need_regular(k.current);
    if (status != nfsstat4::ok)
        co_return status;
    const files::exported_file file = k.current.state_file();
    files::lock_holder holder;
    if (k.minor() == 0) {
        status = co_await k.server.commons.v40.test_lock(args, file, *bytes, holder);
    } else {
        const std::span<const std::byte> owner = args.owner.owner;
        const files::lock_type type = type_of(args.locktype);
        files::back_end_locks asks;
        result<void> free =
            co_await k.server.state.test_lock(k.client, file.key, owner, *bytes, type, holder, &asks);
        if (asks)
            free = co_await k.server.state.test_locally(file.key, asks, *bytes, type, holder);
        status = status_of_state(free);
    }
    LOCKT4res res;
    co_return add_lock(k, res, status, &holder);
}

namespace {

// What LOCKU fails with. Nobody has a lock of what is no regular file, and the client hears that it is none (8881
// 18.12.3).
task<nfsstat4> refuse_unlock(const object& file, nfsstat4 status)
{
    if (status != nfsstat4::bad_stateid)
        co_return status;
    const nfsstat4 type = co_await need_regular(file);
    co_return type == nfsstat4::ok ? status : type;
}

} // namespace

task<nfsstat4> locku(compound& k)
{
    LOCKU4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    const auto bytes = files::byte_range::of(args.offset, args.length);
    nfsstat4 status = k.need_file(purpose::reading);
    if (status == nfsstat4::ok && !bytes)
        status = nfsstat4::inval;
    if (status == nfsstat4::ok)
        status = k.resolve(args.lock_stateid);
    if (status == nfsstat4::ok && args.lock_stateid.is_reserved())
        status = nfsstat4::bad_stateid;
    if (status == nfsstat4::ok)
        status = k.check_room<LOCKU4res>();
    if (status == nfsstat4::bad_stateid)
        co_return co_await refuse_unlock(k.current, status);
    if (status != nfsstat4::ok)
        co_return status;
    const files::exported_file file = k.current.state_file();
    const files::stateid id = to_state(args.lock_stateid);
    files::back_end_locks unsettled;
    const auto done = co_await k.server.state.unlock(k.client, id, file, *bytes, &unsettled);
    if (unsettled)
        co_await k.server.state.settle(file.key, unsettled);
    if (!done) {
        tell_limit(k, done.error());
        status = status_of_state(done.error());
        co_return co_await refuse_unlock(k.current, status);
    }
    LOCKU4res res;
    k.current_id = res.lock_stateid = to_wire(*done);
    co_return k.add(res);
}

namespace {

// What is lost from here on is told of again.
void note_asked(compound& k) noexcept
{
    k.server.state.note_asked(k.client);
    k.session->set_lost_with_lease(false);
}

} // namespace

task<nfsstat4> test_stateid(compound& k)
{
    TEST_STATEID4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    const std::size_t wanted = around_codes + 4 * args.stateids.size();
    if (wanted > k.left()) // before memory is taken for so many
        co_return k.too_big();
    std::vector<files::stateid> ids;
    std::vector<nfsstat4> codes;
    ids.reserve(args.stateids.size());
    codes.reserve(args.stateids.size());
    note_asked(k);
    for (const stateid4 id : args.stateids) {
        ids.push_back(to_state(id));
        codes.push_back(id.is_reserved() ? nfsstat4::bad_stateid : nfsstat4::ok);
    }
    for (std::size_t first = 0; first < ids.size(); first += tested_at_once) {
        const std::size_t count = std::min(tested_at_once, ids.size() - first);
        const auto those = std::span<const files::stateid>(ids).subspan(first, count);
        const std::vector<result<void>> answers = co_await k.server.state.test(k.client, those);
        for (std::size_t i = 0; i < count; ++i)
            if (codes[first + i] == nfsstat4::ok)
                codes[first + i] = status_of_state(answers[i]);
        if (first + count < ids.size())
            co_await yield();
    }
    if (wanted > k.results.room())
        k.lacks_memory = !co_await k.c.reserve_results(wanted);
    TEST_STATEID4res res;
    res.status_codes = std::span<const nfsstat4>(codes);
    co_return k.add(res);
}

task<nfsstat4> free_stateid(compound& k)
{
    FREE_STATEID4args args;
    if (!k.args.read(args))
        co_return nfsstat4::badxdr;
    nfsstat4 status = k.resolve(args.stateid);
    if (status == nfsstat4::ok && args.stateid.is_reserved())
        status = nfsstat4::bad_stateid;
    if (status == nfsstat4::ok)
        status = k.check_room<FREE_STATEID4res>();
    if (status == nfsstat4::ok) {
        state_home::losses left;
        const files::stateid id = to_state(args.stateid);
        note_asked(k);
        const result<void> freed = co_await k.server.state.free(k.client, id, left);
        status = status_of_state(freed);
        k.session->set_revoked(left.revoked);
        if (!left.by_admin) // else as the book says, which tells for a time alone
            k.session->set_lost_by_admin(false);
    }
    co_return status == nfsstat4::ok ? k.add(FREE_STATEID4res()) : status;
}

} // namespace verbena::nfs::v4::operations
