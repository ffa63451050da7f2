// SPDX-License-Identifier: Apache-2.0
// What the client holds delegations of: opens that they answer, and how they go back.
// docs/internals/nfs4_client.md, "Delegations in the client".
#include "server_open.hpp"

#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/rpc/auth_sys.hpp>

#include <algorithm>
#include <new>
#include <utility>

namespace verbena::nfs::v4 {
namespace {

constexpr std::size_t most_early_recalls = 64;

std::uint32_t access_of(open_delegation_type4 type) noexcept
{
    return type == open_delegation_type4::write ? share4::access_both : share4::access_read;
}

// What the server says that the user may do without being asked (8881 10.4.1).
std::uint32_t access_of(const nfsace4& ace, const identity& who) noexcept
{
    if (ace.type != ace4::type_allowed || (ace.flag & ace4::identifier_group) != 0)
        return 0;
    bool is_mine = std::string_view(ace.who) == "EVERYONE@";
    const rpc::opaque_auth mine = who.credential();
    if (mine.flavor == rpc::auth_flavor::sys) {
        const auto user = rpc::decode_auth_sys(mine.body);
        is_mine =
            is_mine || (user && user->uid != file_attributes::nobody && owner_number(ace.who) == user->uid);
    }
    if (!is_mine)
        return 0;
    return ((ace.access_mask & ace4::read_data) != 0 ? share4::access_read : 0) |
           ((ace.access_mask & ace4::write_data) != 0 ? share4::access_write : 0);
}

// What the mode gives, as far as that can be said here: to the owner. By the server's number, as AUTH_SYS is: `known` is as it came, and not yet
// with the number that this host has for the owner's name.
std::uint32_t access_of(const file_attributes& known, const identity& who) noexcept
{
    const rpc::opaque_auth mine = who.credential();
    if (mine.flavor != rpc::auth_flavor::sys)
        return 0;
    const auto user = rpc::decode_auth_sys(mine.body);
    if (!user || user->uid != known.uid || known.uid == file_attributes::nobody)
        return 0;
    return ((known.mode & 0400) != 0 ? share4::access_read : 0) |
           ((known.mode & 0200) != 0 ? share4::access_write : 0);
}

stateid4 newest(stateid4 id) noexcept
{
    id.seqid = 0;
    return id;
}

} // namespace

void client::use_delegations(std::size_t most)
{
    most_delegations_ = most;
    make_room_for_delegations();
}

std::uint32_t client::want_for(std::uint32_t access) const noexcept
{
    if (most_delegations_ == 0 || !session_.can_be_called())
        return share4::want_no_delegation;
    return (access & share4::access_write) != 0 ? share4::want_write_delegation
                                                : share4::want_read_delegation;
}

std::shared_ptr<server_open> client::delegated(const known_handle& object) const noexcept
{
    const auto found =
        std::ranges::find_if(delegated_, [&](const auto& each) { return each->handle == object; });
    return found == delegated_.end() ? nullptr : *found;
}

// Whose delegation is good for it: no OPEN is sent then.
std::shared_ptr<server_open> client::good_for(const node& object, std::uint32_t access) const noexcept
{
    if (delegated_.empty() || !session_.lease_holds())
        return nullptr;
    std::shared_ptr<server_open> o = delegated(object.handle);
    return o == nullptr || (access & ~o->allowed) != 0 || access == 0 ? nullptr : o;
}

std::unique_ptr<file> client::open_here(const std::shared_ptr<server_open>& o, std::uint32_t access)
{
    ++opens_here_;
    o->last_used = ++uses_;
    const node there{o->handle, o->known};
    std::unique_ptr<file> made(new file(*this, there, access, o));
    o->users.push_back(made.get());
    return made;
}

// What this client has changed itself nobody recalls the delegation for: the attributes are asked for anew then.
task<result<void>> client::look_at(std::shared_ptr<server_open> o)
{
    const std::uint64_t after = o->changes;
    auto now = co_await getattr(o->handle);
    if (!now)
        co_return now.error();
    if (after >= o->looked_at) {
        o->known = *now;
        o->looked_at = after;
        if (o->changes == after && o->writes == 0) {
            o->size = now->size;
            o->is_size_in_doubt = false;
        }
    }
    co_return result<void>();
}

// Once before the change and once behind it, as it may be looked at in between. `by`: the open, if it is known; another one may have the delegation.
void client::changed(const known_handle& object, server_open* by) noexcept
{
    if (layouts_ != nullptr)
        layouts_->changed(object);
    changed_for_delegations(object, by);
}

void client::changed_for_delegations(const known_handle& object, server_open* by) noexcept
{
    server_open* of = by;
    if (by == nullptr || by->delegated != server_open::state::held)
        of = delegated_.empty() ? nullptr : delegated(object).get();
    if (of == nullptr)
        return;
    ++of->changes;
    of->is_size_in_doubt = of->is_size_in_doubt || of != by;
}

// What an OPEN says that began this one anew, or gave it more access. Delegations are what open() and create() ask for.
task<void> client::take_open(std::shared_ptr<server_open> o, const OPEN4res& res, std::uint32_t access,
                             std::uint64_t number)
{
    // It is the same open if only the delegation was gone.
    if (res.stateid.other != o->id.other)
        o->lose_locks();
    o->id = newest(res.stateid);
    o->access = access;
    o->may_notify = (res.rflags & open4_result::may_notify_lock) != 0;
    if (!gives_delegation(res))
        co_return;
    const bool wanted_back = is_wanted_back(res.delegation);
    if (!is_here(o->handle, res.delegation, wanted_back, number))
        co_await return_delegation(o->handle, res.delegation.stateid);
}

// Whether the server does not want it kept, or nobody here knows how.
bool client::is_wanted_back(const open_delegation4& given) noexcept
{
    const bool was_recalled = std::erase_if(early_recalls_, [&](const early_recall& r) {
                                  return r.id.other == given.stateid.other;
                              }) != 0;
    return was_recalled || given.recall ||
           (given.delegation_type != open_delegation_type4::read &&
            given.delegation_type != open_delegation_type4::write);
}

// Whether there is nothing to be done about what an OPEN of that number has brought: it is held already, by whichever open, or it goes back, or went
// back behind that OPEN. Where another one is held for the file, that goes back; what becomes of the new one is the caller's matter.
bool client::is_here(const known_handle& object, const open_delegation4& given, bool wanted_back,
                     std::uint64_t number)
{
    const stateid4 id = newest(given.stateid);
    const std::shared_ptr<server_open> before = delegated(object);
    const bool is_the_same = before != nullptr && before->delegation == id;
    if (is_the_same && !wanted_back) {
        // The answer of an older OPEN may be late, and tell of one that has gone back since: a server may use its stateid again.
        if (number >= before->typed_by) {
            before->typed_by = number;
            set_type(*before, given);
        }
        return true;
    }
    if (is_the_same) {
        begin_return(before);
        return true;
    }
    const auto going = std::ranges::find_if(
        going_back_, [&](const returned_delegation& each) { return each.id == id && number < each.before; });
    if (going != going_back_.end()) {
        // Which of both the server ran first, nobody knows.
        if (going->before != UINT64_MAX) {
            task<void> again = return_once_more(object, id);
            const std::uint64_t before = std::exchange(going->before, UINT64_MAX);
            try {
                run_beside(std::move(again));
            } catch (...) {
                going->before = before;
                throw;
            }
            return true;
        }
        going->came_again = true;
        return true;
    }
    begin_return(before);
    return false;
}

// Of an OPEN that has just been answered. Where it can't be kept it goes back.
task<void> client::take_delegation(std::shared_ptr<server_open> o, const OPEN4res& res, file_attributes known,
                                   std::uint64_t number)
{
    if (!gives_delegation(res))
        co_return;
    const open_delegation4& given = res.delegation;
    const bool wanted_back = is_wanted_back(given);
    if (is_here(o->handle, given, wanted_back, number))
        co_return;
    if (most_delegations_ == 0 || wanted_back) {
        co_await return_delegation(o->handle, given.stateid);
        co_return;
    }
    o->delegation = newest(given.stateid);
    o->delegated = server_open::state::held;
    o->known = known;
    o->allowed_by_mode = access_of(known, session_.who());
    o->granted_at = known.change;
    o->size = known.size;
    o->is_size_in_doubt = false;
    o->last_used = ++uses_;
    o->typed_by = number;
    // Whoever opens it before its owners' names are known asks for them himself.
    if (needs_names(known))
        ++o->changes;
    set_type(*o, given);
    delegated_.push_back(std::move(o));
    make_room_for_delegations();
}

void client::set_type(server_open& o, const open_delegation4& given) const noexcept
{
    o.type = given.delegation_type;
    const std::uint32_t asked = o.is_new ? o.allowed_by_mode : o.access;
    o.allowed = access_of(o.type) & (asked | access_of(given.permissions, session_.who()));
}

void client::make_room_for_delegations()
{
    while (delegated_.size() > most_delegations_)
        begin_return(least_needed([](const server_open&) { return true; }));
}

// Of those that `f` takes: one that no file uses, else any; of these the one that was used least recently.
template<class F>
std::shared_ptr<server_open> client::least_needed(F f) const
{
    std::shared_ptr<server_open> least;
    const auto rank = [](const server_open& o) { return std::pair(!o.users.empty(), o.last_used); };
    for (const auto& each : delegated_) {
        if (f(*each) && (least == nullptr || rank(*each) < rank(*least)))
            least = each;
    }
    return least;
}

// Goes back beside whatever runs.
void client::begin_return(std::shared_ptr<server_open> o)
{
    if (o == nullptr || o->delegated != server_open::state::held)
        return;
    // Where there is no memory for all of this, nothing has changed.
    task<void> giving = give_back(o);
    std::erase_if(going_back_, [&](const returned_delegation& each) { return each.id == o->delegation; });
    going_back_.push_back({o->delegation, UINT64_MAX});
    o->delegated = server_open::state::returning;
    std::erase(delegated_, o);
    try {
        run_beside(std::move(giving));
    } catch (...) {
        o->delegated = server_open::state::held;
        delegated_.push_back(o); // where it was a moment ago
        going_back_.pop_back();
        throw;
    }
}

task<void> client::give_back(std::shared_ptr<server_open> o)
{
    try {
        co_await give_all_back(o);
    } catch (...) { // the server takes it when its time is over
        o->delegated = server_open::state::plain;
        std::erase_if(going_back_, [&](const returned_delegation& each) { return each.id == o->delegation; });
    }
    end_opening();
}

task<void> client::give_all_back(std::shared_ptr<server_open> o)
{
    // Whoever recalls it is answered first.
    (void)co_await sleep_for(duration::zero());
    if (o->writes != 0) {
        o->quiet.reset();
        const auto wait = [](server_open& of) -> task<result<bool>> {
            const bool waited = co_await of.quiet.wait();
            co_return waited;
        };
        task<result<bool>> waiting = wait(*o);
        (void)co_await with_timeout(session_.lease() / 3, std::move(waiting));
    }
    co_await commit_users(o);
    if ((o->access_used() & ~o->access) != 0)
        co_await claim(o);
    if (o->users.empty())
        (void)co_await close_open(o);
    co_await return_for_good(o->handle, o->delegation);
    ++returned_;
    o->delegated = server_open::state::plain;
    // The last file may have gone meanwhile.
    if (o->users.empty())
        (void)co_await close_open(o);
}

// Who opens the file next may write: what was written here is to be stable before, or it might be sent again over that (8881 10.4.4). Files may go
// meanwhile, so none of them waits: they are told of what was done for them. Where something was lost, that is left to their own commit().
task<void> client::commit_users(std::shared_ptr<server_open> o)
{
    for (file* each : o->users) {
        if (each->uncommitted() != 0)
            o->committing.emplace_back(each, each->written());
    }
    if (o->committing.empty())
        co_return;
    const auto commit = [](client& c, server_open& of) -> task<result<v3::writeverf3>> {
        operations call(PUTFH4args{of.handle.bytes()}, COMMIT4args());
        auto ran = co_await c.session_.run(call);
        if (!ran)
            co_return ran.error();
        co_return call.get<1>().writeverf;
    };
    task<result<v3::writeverf3>> committing = commit(*this, *o);
    auto verifier = co_await with_timeout(session_.lease() / 3, std::move(committing));
    for (const auto& [each, before] : std::exchange(o->committing, {})) {
        if (verifier)
            each->committed(before, *verifier);
    }
}

// The server's open comes to have what files have by the delegation alone (8881 10.2.1). Where that fails, they open again when they are used next.
task<void> client::claim(std::shared_ptr<server_open> o)
{
    const bool mine = co_await o->turn.acquire();
    if (!mine)
        co_return;
    const held_permit held(o->turn);
    const std::uint32_t wanted = o->access | o->access_used();
    const owner_name owner(o->owner);
    OPEN4args args = opening_of(owner, wanted);
    args.claim.claim = open_claim_type4::deleg_cur_fh;
    args.claim.delegate_stateid = o->delegation;
    operations call(PUTFH4args{o->handle.bytes()}, args);
    call.once();
    const asking under_way(*this);
    auto ran = co_await session_.run(call);
    if (ran)
        co_await take_open(o, call.get<1>(), wanted, under_way.number());
}

// It is gone: nothing is answered by it any more, and nothing goes back.
void client::drop_delegation(std::shared_ptr<server_open> o)
{
    if (o->delegated != server_open::state::held)
        return;
    o->delegated = server_open::state::plain;
    std::erase(delegated_, o);
    if (!o->users.empty())
        return;
    try {
        run_beside(close_unused(std::move(o)));
    } catch (const std::bad_alloc&) { // it stays open until the client goes
    }
}

task<void> client::close_unused(std::shared_ptr<server_open> o)
{
    try {
        (void)co_await close_open(std::move(o));
    } catch (...) { // likewise
    }
    end_opening();
}

void client::end_opening() noexcept
{
    if (--openings_ == 0)
        all_opened_.set();
}

task<result<void>> client::close_open(std::shared_ptr<server_open> o)
{
    if (std::exchange(o->is_closed, true))
        co_return result<void>();
    result<void> ran;
    for (bool first = true;; first = false) {
        CLOSE4args args;
        args.open_stateid = o->id;
        operations call(PUTFH4args{o->handle.bytes()}, args);
        call.once();
        ran = co_await session_.run(call);
        // A server that started anew meanwhile has the file open by another stateid.
        if (ran || !first || !is_gone(ran.error()) || o->id == args.open_stateid)
            break;
    }
    forget(*o);
    if (!ran && !is_gone(ran.error()))
        co_return ran.error();
    co_return result<void>();
}

// A server that gives one that nobody can keep is told to forget it.
task<void> client::return_delegation(known_handle object, stateid4 delegation)
{
    operations call(PUTFH4args{object.bytes()}, DELEGRETURN4args{delegation});
    call.once();
    auto ran = co_await session_.run(call);
    if (!ran && is_revoked(ran.error()))
        co_await free_stateid(delegation);
}

// It is in `going_back_`. An OPEN whose answer brings it meanwhile may have run behind DELEGRETURN, and then the server has given it anew.
task<void> client::return_for_good(known_handle object, stateid4 delegation)
{
    const auto entry = [&] {
        return std::ranges::find_if(going_back_,
                                    [&](const returned_delegation& each) { return each.id == delegation; });
    };
    for (bool again = true; again;) {
        if (const auto each = entry(); each != going_back_.end())
            each->came_again = false;
        co_await return_delegation(object, delegation);
        const auto each = entry();
        again = each != going_back_.end() && each->came_again;
        // An OPEN that is under way may have run before, and its answer bring it once more.
        if (!again && each != going_back_.end())
            each->before = next_asking_;
    }
    std::erase_if(going_back_,
                  [&](const returned_delegation& each) { return each.before <= oldest_asking(); });
}

task<void> client::return_once_more(known_handle object, stateid4 delegation)
{
    try {
        co_await return_for_good(object, delegation);
    } catch (...) { // the server takes it when its time is over
        std::erase_if(going_back_, [&](const returned_delegation& each) { return each.id == delegation; });
    }
    end_opening();
}

// An OPEN is about to be sent, whose delegation may be recalled before its answer is here.
std::uint64_t client::begin_asking()
{
    asking_.push_back(next_asking_);
    return next_asking_++;
}

// What was recalled, and none of the OPENs has brought that were under way then, goes back by the name that the server gave it.
void client::end_asking(std::uint64_t number) noexcept
{
    std::erase(asking_, number);
    const std::uint64_t oldest = oldest_asking();
    std::erase_if(going_back_, [&](const returned_delegation& each) { return each.before <= oldest; });
    std::erase_if(early_recalls_, [&](const early_recall& each) {
        if (each.before > oldest)
            return false;
        try {
            run_beside(return_unknown(each.object, each.id));
        } catch (const std::bad_alloc&) { // behind a later OPEN
            return false;
        }
        return true;
    });
}

task<void> client::return_unknown(known_handle object, stateid4 delegation)
{
    try {
        co_await return_delegation(object, delegation);
    } catch (...) { // the server takes it when its time is over
    }
    end_opening();
}

nfsstat4 client::recalled(const CB_RECALL4args& args)
{
    const known_handle object(args.fh);
    for (const auto& each : opens_) {
        if (!each->has_delegation() || each->delegation.other != args.stateid.other)
            continue;
        if (!(each->handle == object))
            return nfsstat4::bad_stateid;
        begin_return(each);
        return nfsstat4::ok;
    }
    if (asking_.empty())
        return nfsstat4::bad_stateid;
    const auto is_noted = [&](const early_recall& r) { return r.id.other == args.stateid.other; };
    if (std::ranges::any_of(early_recalls_, is_noted))
        return nfsstat4::ok;
    if (early_recalls_.size() >= most_early_recalls)
        return nfsstat4::delay;
    early_recalls_.push_back({object, newest(args.stateid), next_asking_});
    return nfsstat4::ok;
}

nfsstat4 client::recalled(const CB_RECALL_ANY4args& args)
{
    const auto is_asked_for = [&](const server_open& o) {
        const rca4_type kind =
            o.type == open_delegation_type4::write ? rca4_type::wdata_dlg : rca4_type::rdata_dlg;
        return args.type_mask.test(static_cast<std::uint32_t>(kind));
    };
    auto left = static_cast<std::size_t>(
        std::ranges::count_if(delegated_, [&](const auto& each) { return is_asked_for(*each); }));
    for (; left > args.objects_to_keep; --left)
        begin_return(least_needed(is_asked_for));
    bool of_layouts = false;
    for (auto bit = static_cast<std::uint32_t>(rca4_type::other_layout_min);
         bit <= static_cast<std::uint32_t>(rca4_type::other_layout_max); ++bit)
        of_layouts = of_layouts || args.type_mask.test(bit);
    if (of_layouts && layouts_ != nullptr)
        layouts_->keep_at_most(args.objects_to_keep);
    return nfsstat4::ok;
}

nfsstat4 client::layout_recalled(const CB_LAYOUTRECALL4args& args)
{
    return layouts_ != nullptr ? layouts_->recalled(args) : nfsstat4::notsupp;
}

// As nothing is kept here, the file has the change attribute that it had when it was delegated, and the server looks
// for itself (8881 10.4.3). But the size is what this client takes it for: a server would take another one for a change
// that is kept here, and tell others that size.
nfsstat4 client::tell(const CB_GETATTR4args& args, attributes& out)
{
    const known_handle object(args.fh);
    for (const auto& each : opens_) {
        if (!each->has_delegation() || each->type != open_delegation_type4::write ||
            !(each->handle == object))
            continue;
        if (each->is_size_in_doubt)
            return nfsstat4::serverfault; // it is recalled, and the server looks for itself
        if (each->unmeasured != 0)
            return nfsstat4::delay;
        // A WRITE under way may have reached the server: the size of before would look like a change that is kept here.
        out.change = each->granted_at;
        out.size = std::max(each->size, each->reaches);
        out.present.set(attribute::change);
        out.present.set(attribute::size);
        return nfsstat4::ok;
    }
    return nfsstat4::badhandle;
}

void client::cannot_be_called()
{
    if (layouts_ != nullptr)
        layouts_->cannot_be_called();
    while (!delegated_.empty())
        begin_return(delegated_.front());
}

} // namespace verbena::nfs::v4
