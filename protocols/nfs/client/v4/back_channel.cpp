// SPDX-License-Identifier: Apache-2.0
// The client's back channel: how it is asked for, what is done where the server says that it is broken, and which callbacks are the session's.
#include <verbena/protocols/nfs/client/v4/session.hpp>

#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/rpc/auth_sys.hpp>

#include <algorithm>
#include <new>
#include <utility>

namespace verbena::nfs::v4 {
namespace {

// What says that the server can't call.
constexpr std::uint32_t no_way =
    seq4_status::cb_path_down | seq4_status::cb_path_down_session | seq4_status::backchannel_fault;

// Until the connections are bound once more: a fault may stay until the server has tried again.
constexpr std::array<duration, 3> until_bound_again{std::chrono::seconds(1), std::chrono::seconds(2),
                                                    std::chrono::seconds(4)};

} // namespace

// Linux serves none but those that are signed with AUTH_SYS; a server that signs nothing is served here.
void client_session::ask_way_back(CREATE_SESSION4args& args,
                                  std::array<callback_sec_parms4, 2>& signatures) const noexcept
{
    constexpr std::uint32_t most = callback_service::max_message;
    const auto slots =
        wants_way_back() ? static_cast<std::uint32_t>(callback_slots::max_slots) : std::uint32_t(1);
    args.back_chan_attrs = {
        0, most, most, callback_slots::max_kept, callback_service::max_operations, slots, std::nullopt};
    args.cb_program = callback_service::program;
    std::size_t count = 0;
    const rpc::opaque_auth mine = who_.credential();
    if (mine.flavor == rpc::auth_flavor::sys && wants_way_back()) {
        if (const auto user = rpc::decode_auth_sys(mine.body)) {
            signatures[count].cb_secflavor = static_cast<std::uint32_t>(rpc::auth_flavor::sys);
            signatures[count].sys_cred.machinename = user->machine_name;
            signatures[count].sys_cred.uid = user->uid;
            signatures[count].sys_cred.gid = user->gid;
            ++count;
        }
    }
    signatures[count++].cb_secflavor = static_cast<std::uint32_t>(rpc::auth_flavor::none);
    args.sec_parms = std::span<const callback_sec_parms4>(signatures).first(count);
    if (wants_way_back())
        args.flags |= create_session4::conn_back_chan;
}

void client_session::take_way_back(const CREATE_SESSION4res& res) noexcept
{
    session_is_there_ = true;
    way_back_ = wants_way_back() && (res.flags & create_session4::conn_back_chan) != 0 &&
                res.back_chan_attrs.maxrequests != 0;
    way_back_lost_ = false;
    back_slots_.reset(way_back_ ? res.back_chan_attrs.maxrequests : 0);
}

// While it stays broken it is mended again now and then: a firewall may be open again.
void client_session::heed_way_back(std::uint32_t flags, std::uint32_t news)
{
    if ((flags & no_way) == 0) {
        way_back_lost_ = false;
        return;
    }
    if (!way_back_ || mending_ || !tasks_)
        return;
    if ((news & no_way) == 0 && shard_->clock().now() - mended_ < lease_ / 3)
        return;
    mended_ = shard_->clock().now();
    try {
        task<void> mending = mend_way_back();
        mending_ = true;
        tasks_->spawn(already_made, std::move(mending));
    } catch (const std::bad_alloc&) {
        mending_ = false; // it is tried again
    }
}

task<void> client_session::mend_way_back()
{
    // However it ends, it may begin again.
    struct mending_ends {
        explicit mending_ends(bool& of) noexcept : mending(of) {}
        mending_ends(const mending_ends&) = delete;
        ~mending_ends() { mending = false; }
        bool& mending;
    };
    const mending_ends ends(mending_);
    constexpr std::array best_first{way_bound::brings_calls, way_bound::answers, way_bound::was_not_asked};
    bool may_begin_anew = false; // as somebody answers where a session is made
    for (std::size_t round = 0; round <= until_bound_again.size(); ++round) {
        if (round != 0) {
            const bool slept = co_await sleep_for(until_bound_again[round - 1]);
            if (!slept)
                co_return;
        }
        const auto bound = co_await bind_ways();
        const auto first_of = [&](way_bound wanted) {
            return static_cast<std::size_t>(std::ranges::find(bound, wanted) - bound.begin());
        };
        const std::size_t none = bound.size();
        const bool brings_calls = first_of(way_bound::brings_calls) != none;
        std::size_t best = none;
        for (const way_bound each : best_first) {
            if (best == none)
                best = first_of(each);
        }
        auto asked = co_await ask_for_flags(best == none ? nullptr : ways_[best]);
        // Other calls may have heard that it helped.
        if ((flags_ & no_way) == 0) {
            mending_ = false;
            co_return;
        }
        const bool answers = bound.front() == way_bound::answers || bound.front() == way_bound::brings_calls;
        may_begin_anew = asked && (answers || best == 0);
        if (!brings_calls || shard_->clock().now() - mended_ >= lease_)
            break;
    }
    const time_point now = shard_->clock().now();
    if (may_begin_anew && state_ == state::up && (!begun_anew_ || now - *begun_anew_ >= lease_)) {
        begun_anew_ = now;
        discards_ = true;
        change_to(state::none);
        operations<> nothing;
        (void)co_await run(nothing);
    }
    mending_ = false;
    if (state_ != state::up || (flags_ & no_way) == 0)
        co_return;
    way_back_lost_ = true;
    if (reclaimer_ != nullptr)
        reclaimer_->cannot_be_called();
}

// A SEQUENCE tells whether it helped. It has a limit, as its way may lead nowhere, and so has what it waits for a slot, as others may wait by such ways;
// what it takes to make a lost session anew has none.
task<result<void>> client_session::ask_for_flags(rpc::client_transport* by)
{
    auto asked = co_await ask_in_a_slot(by);
    if (state_ == state::up)
        co_return asked;
    operations<> nothing;
    co_return co_await run(nothing);
}

// One that leads nowhere does not hold up the others.
task<std::vector<client_session::way_bound>> client_session::bind_ways()
{
    std::vector<task<result<way_bound>>> binding;
    for (rpc::client_transport* const way : ways_)
        binding.push_back(with_timeout(lease_ / 6, bind_way(*way)));
    const auto all = co_await when_all(std::move(binding));
    std::vector<way_bound> out;
    for (const auto& each : all)
        out.push_back(each ? *each : way_bound::is_silent);
    co_return out;
}

// Fails where nobody answers.
task<result<client_session::way_bound>> client_session::bind_way(rpc::client_transport& way)
{
    if (!way.serves_calls())
        co_return way_bound::was_not_asked;
    BIND_CONN_TO_SESSION4args args;
    args.sessid = id_;
    args.dir = channel_dir_from_client4::fore_or_both;
    operations bind(args);
    auto sent = co_await send_alone(bind, way);
    if (!sent)
        co_return sent.error();
    const bool brings_calls =
        sent->status == nfsstat4::ok && bind.get<0>().dir != channel_dir_from_server4::fore;
    co_return brings_calls ? way_bound::brings_calls : way_bound::answers;
}

// One that was given up has no answer that anybody would look at.
bool client_session::awaits_answer(const referring_call4& call) const noexcept
{
    if (call.slotid >= max_slots)
        return false;
    const slot& s = slots_[call.slotid];
    const bool is_under_way = (used_ >> call.slotid & 1) != 0 || state_ != state::up;
    return is_under_way && s.in_doubt && s.sequence == call.sequenceid;
}

nfsstat4 client_session::recalled(const CB_RECALL4args& args)
{
    return reclaimer_ != nullptr ? reclaimer_->recalled(args) : nfsstat4::bad_stateid;
}

nfsstat4 client_session::recalled(const CB_RECALL_ANY4args& args)
{
    return reclaimer_ != nullptr ? reclaimer_->recalled(args) : nfsstat4::ok;
}

nfsstat4 client_session::recalled(const CB_RECALL_SLOT4args& args)
{
    allow(std::min<std::size_t>(std::size_t(args.target_highest_slotid) + 1, made_));
    return nfsstat4::ok;
}

nfsstat4 client_session::layout_recalled(const CB_LAYOUTRECALL4args& args)
{
    return reclaimer_ != nullptr ? reclaimer_->layout_recalled(args) : nfsstat4::notsupp;
}

nfsstat4 client_session::tell(const CB_GETATTR4args& args, attributes& out)
{
    return reclaimer_ != nullptr ? reclaimer_->tell(args, out) : nfsstat4::badhandle;
}

void client_session::notified(const CB_NOTIFY_LOCK4args& args) noexcept
{
    if (reclaimer_ != nullptr)
        reclaimer_->notified(args);
}

} // namespace verbena::nfs::v4
