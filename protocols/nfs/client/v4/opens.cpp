// SPDX-License-Identifier: Apache-2.0
// The client's opens: OPEN, which outlives its caller, and what becomes of opens when the server forgets or revokes them.
#include "server_open.hpp"

#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/exception.hpp>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

namespace verbena::nfs::v4 {
namespace {

constexpr std::size_t tested_at_once = 100; // stateids

} // namespace

// An OPEN, which outlives its caller: what the server does then is undone.
struct client::opening {
    opening(std::unique_ptr<file> to_be, const known_handle& at, OPEN4args wanted, std::string_view new_name,
            const new_attributes& attributes)
        : made(std::move(to_be)),
          handle(at),
          name(new_name),
          encoded(attributes),
          owner(made->open_->owner),
          call(PUTFH4args{handle.bytes()}, whole(wanted), GETFH4args(), file_attributes_wanted())
    {
        call.once();
    }
    OPEN4args whole(OPEN4args wanted) const noexcept
    {
        wanted.owner.owner = owner.bytes();
        wanted.openhow.attrs = encoded.raw();
        wanted.claim.file = std::string_view(name);
        return wanted;
    }

    std::unique_ptr<file> made;
    const known_handle handle;
    const std::string name;
    const encoded_attributes encoded;
    const owner_name owner;
    operations<PUTFH4args, OPEN4args, GETFH4args, GETATTR4args> call;
    result<void> outcome;
    bool is_over = false;
    event over;
};

std::shared_ptr<server_open> client::new_open(std::uint32_t access)
{
    return std::make_shared<server_open>(++owners_, access);
}

void client::forget(const server_open& gone) noexcept
{
    std::erase_if(opens_, [&](const auto& each) { return each.get() == &gone; });
}

task<result<std::unique_ptr<file>>> client::open(const node& object, std::uint32_t access)
{
    std::shared_ptr<server_open> here = good_for(object, access);
    if (here != nullptr && here->looked_at != here->changes) {
        auto looked = co_await look_at(here);
        here = looked ? good_for(object, access) : nullptr;
    }
    if (here != nullptr)
        co_return open_here(here, access);
    co_return co_await open_there(object, access);
}

task<result<std::unique_ptr<file>>> client::open_there(const node& object, std::uint32_t access)
{
    if (session_.sessions() == 0) {
        auto ready = co_await session_.open(); // whether it can be called
        if (!ready)
            co_return ready.error();
    }
    std::unique_ptr<file> made(new file(*this, object, access, new_open(access)));
    const owner_name owner(made->open_->owner);
    const OPEN4args args = opening_of(owner, access, want_for(access));
    auto o =
        std::make_shared<opening>(std::move(made), object.handle, args, std::string_view(), new_attributes());
    co_return co_await finish(std::move(o));
}

task<result<std::unique_ptr<file>>> client::create(const known_handle& directory, std::string_view name,
                                                   new_attributes attributes, open_how how,
                                                   std::uint32_t access, verifier4 verifier)
{
    if (name.size() > client::max_name)
        co_return name_too_long;
    if (session_.sessions() == 0) {
        auto ready = co_await session_.open();
        if (!ready)
            co_return ready.error();
    }
    std::unique_ptr<file> made(new file(*this, node(), access, new_open(access)));
    made->open_->is_new = true;
    const owner_name owner(made->open_->owner);
    OPEN4args args = opening_of(owner, access, want_for(access));
    args.openhow.opentype = opentype4::create;
    args.openhow.mode = how == open_how::unchecked ? createmode4::unchecked
                        : how == open_how::guarded ? createmode4::guarded
                                                   : createmode4::exclusive4_1;
    args.openhow.verf = verifier;
    args.claim.claim = open_claim_type4::null;
    auto o = std::make_shared<opening>(std::move(made), directory, args, name, attributes);
    co_return co_await finish(std::move(o));
}

task<result<std::unique_ptr<file>>> client::finish(std::shared_ptr<opening> o)
{
    run_beside(perform(o));
    const bool stays = co_await o->over.wait();
    if (!stays) {
        o->call.abandon();
        if (o->is_over && o->outcome)
            run_beside(give_up(o));
        co_return error(std::errc::operation_canceled, "OPEN");
    }
    if (!o->outcome)
        co_return o->outcome.error();
    co_return std::move(o->made);
}

void client::run_beside(task<void> made)
{
    ++openings_; // as it may end at once
    try {
        session_.background().spawn(already_made, std::move(made));
    } catch (...) {
        end_opening();
        throw;
    }
}

// Whoever waits for the OPEN hears where there is no memory for a part of it.
task<void> client::perform(std::shared_ptr<opening> o)
{
    std::optional<asking> under_way;
    try {
        under_way.emplace(*this);
        co_await ask_to_open(o, under_way);
    } catch (...) {
        o->outcome = error_of(std::current_exception(), "OPEN");
    }
    under_way.reset();
    o->is_over = true;
    o->over.set();
    try {
        if (o->call.is_abandoned() && o->outcome)
            (void)co_await o->made->close();
    } catch (...) { // the open stays until the client goes
    }
    end_opening();
}

task<void> client::ask_to_open(std::shared_ptr<opening> o, std::optional<asking>& under_way)
{
    auto& call = o->call;
    o->outcome = co_await session_.run(call);
    if (o->outcome) {
        file& opened = *o->made;
        const std::shared_ptr<server_open> there = opened.open_;
        there->handle = opened.node_.handle = known_handle(call.get<2>().object);
        there->id = call.get<1>().stateid;
        there->id.seqid = 0;
        there->may_notify = (call.get<1>().rflags & open4_result::may_notify_lock) != 0;
        if (there->is_new)
            changed(there->handle, nullptr); // it may have been cut
        opens_.push_back(there);
        there->users.push_back(&opened);
        auto found = node_of(call.get<2>(), call.get<3>());
        if (found)
            opened.node_ = *found;
        co_await take_delegation(there, call.get<1>(), opened.node_.attributes, under_way->number());
        if (!found) {
            o->outcome = found.error();
            (void)co_await opened.close();
        }
    }
    under_way.reset();
    // Names take their time: by now a delegation is one that can be recalled, reclaimed and changed for.
    if (o->outcome && !call.is_abandoned() && needs_names(o->made->node_.attributes)) {
        const std::shared_ptr<server_open> there = o->made->open_;
        const std::uint64_t unnamed = there->changes;
        file_attributes& told = o->made->node_.attributes;
        co_await name_owners(call.get<3>().obj_attributes, told);
        file_attributes& known = there->known;
        known.uid = known.uid == file_attributes::nobody ? told.uid : known.uid;
        known.gid = known.gid == file_attributes::nobody ? told.gid : known.gid;
        there->looked_at = std::max(there->looked_at, unnamed);
    }
}

task<void> client::give_up(std::shared_ptr<opening> o)
{
    try {
        (void)co_await o->made->close();
    } catch (...) { // the open stays until the client goes
    }
    end_opening();
}

task<void> client::close()
{
    most_delegations_ = 0;
    cannot_be_called();
    while (openings_ != 0) {
        all_opened_.reset();
        const bool waited = co_await all_opened_.wait();
        if (!waited)
            break;
    }
    co_await session_.close();
}

// The server keeps in mind what it has revoked until it hears that the client knows.
task<void> client::free_stateid(stateid4 revoked)
{
    operations call(FREE_STATEID4args{revoked});
    (void)co_await session_.run(call);
}

// Opens may go meanwhile. Each is opened again when it is used next.
task<void> client::free_what_is_revoked()
{
    if (layouts_ != nullptr)
        co_await layouts_->free_what_is_revoked();
    std::vector<stateid4> all;
    for (const auto& each : opens_) {
        all.push_back(each->id);
        if (each->delegated == server_open::state::held)
            all.push_back(each->delegation);
        for (const auto& locks : each->locks) {
            if (locks->is_known)
                all.push_back(locks->id);
        }
    }
    for (std::size_t done = 0; done < all.size();) {
        const std::size_t count = std::min<std::size_t>(all.size() - done, tested_at_once);
        const std::span<const stateid4> some = std::span(all).subspan(done, count);
        done += count;
        TEST_STATEID4args args;
        args.stateids = some;
        operations call(args);
        auto ran = co_await session_.run(call);
        if (!ran)
            co_return;
        std::vector<stateid4> lost;
        std::size_t index = 0;
        for (const nfsstat4 status : call.get<0>().status_codes) {
            if (index < some.size() && is_revoked(error(make_error_code(status))))
                lost.push_back(some[index]);
            ++index;
        }
        for (const stateid4& each : lost) {
            const auto of =
                std::ranges::find_if(delegated_, [&](const auto& o) { return o->delegation == each; });
            if (of != delegated_.end())
                drop_delegation(*of);
            for (const auto& o : opens_) {
                for (const auto& locks : o->locks) {
                    if (locks->is_known && locks->id == each)
                        locks->lose();
                }
            }
            co_await free_stateid(each);
        }
    }
}

std::shared_ptr<server_open> client::find(std::uint64_t owner) const noexcept
{
    const auto found = std::ranges::find_if(opens_, [&](const auto& each) { return each->owner == owner; });
    return found == opens_.end() ? nullptr : *found;
}

// While a call is under way a file may go, but none can be opened.
task<result<void>> client::reclaim()
{
    std::vector<std::uint64_t> owners;
    for (const auto& each : opens_)
        owners.push_back(each->owner);
    const asking under_way(*this);
    result<void> all;
    for (const std::uint64_t number : owners) {
        const std::shared_ptr<server_open> lost = find(number);
        if (lost == nullptr)
            continue;
        all = co_await reclaim(lost);
        if (!all)
            break;
    }
    co_return all;
}

// Fails where the session is lost again, which is not this one's matter.
task<result<void>> client::reclaim(std::shared_ptr<server_open> lost)
{
    using state = server_open::state;
    const owner_name owner(lost->owner);
    const std::uint32_t access = lost->access | lost->access_used();
    OPEN4args args = opening_of(owner, access);
    args.claim.claim = open_claim_type4::previous;
    if (lost->delegated == state::held)
        args.claim.delegate_type = lost->type;
    operations call(PUTFH4args{lost->handle.bytes()}, args);
    call.once();
    auto ran = co_await session_.run_to_reclaim(call);
    if (!ran && client_session::ends_recovery(ran.error()))
        co_return ran.error(); // it is asked for again
    if (!ran) {
        // What was not given back is opened anew when it is used next.
        drop_delegation(lost);
        lost->lose_locks();
        co_return result<void>();
    }
    const OPEN4res& res = call.get<1>();
    lost->id = res.stateid;
    lost->id.seqid = 0;
    lost->access = access;
    const std::vector<std::shared_ptr<file_locks>> locked = lost->locks;
    for (const auto& each : locked) {
        auto done = co_await reclaim_locks(lost, each);
        if (!done)
            co_return done.error();
    }
    if (!gives_delegation(res)) {
        drop_delegation(lost);
        co_return result<void>();
    }
    const bool is_of_a_kind = res.delegation.delegation_type == open_delegation_type4::read ||
                              res.delegation.delegation_type == open_delegation_type4::write;
    if (lost->delegated == state::held && is_of_a_kind) {
        lost->delegation = res.delegation.stateid;
        lost->delegation.seqid = 0;
        set_type(*lost, res.delegation);
        const bool was_recalled = std::erase_if(early_recalls_, [&](const early_recall& r) {
                                      return r.id.other == lost->delegation.other;
                                  }) != 0;
        if (was_recalled || res.delegation.recall)
            begin_return(lost);
        co_return result<void>();
    }
    drop_delegation(lost);
    operations back(PUTFH4args{lost->handle.bytes()}, DELEGRETURN4args{res.delegation.stateid});
    (void)co_await session_.run_to_reclaim(back);
    co_return result<void>();
}

} // namespace verbena::nfs::v4
