// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/client/v4/session.hpp>

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/in_context.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/nfs/client/written_file.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits.h>
#include <new>
#include <unistd.h>
#include <utility>

namespace verbena::nfs::v4 {
namespace {

constexpr std::uint32_t operations_asked_for = 16;
// What a server keeps of a call that must not run twice: OPEN, GETFH and GETATTR are the longest.
constexpr std::uint32_t kept_results = 4096;
// The head of COMPOUND's results with SEQUENCE's.
constexpr std::size_t head_of_results = 12 + 4 + xdr::max_size<SEQUENCE4res>;

const error stopped(std::errc::operation_canceled, "a call of NFS version 4");
const error closed(std::errc::operation_canceled, "the session is closed");

// The server has none of these.
error without(std::uint32_t lowest, std::uint32_t highest) noexcept
{
    return error(std::errc::protocol_not_supported,
                 lowest != highest ? "the server has neither minor version 1 nor 2 of NFS version 4"
                 : lowest == 1     ? "the server has no minor version 1 of NFS version 4"
                                   : "the server has no minor version 2 of NFS version 4");
}

std::string unlike_any_other(random_source& random)
{
    std::array<char, HOST_NAME_MAX + 1> host{};
    if (::gethostname(host.data(), host.size() - 1) != 0)
        host[0] = '\0';
    return "verbena " + std::string(host.data()) + ' ' + std::to_string(::getpid()) + ' ' +
           std::to_string(random.draw());
}

bool is_put_off(nfsstat4 status) noexcept { return status == nfsstat4::delay || status == nfsstat4::grace; }

// Nothing is left of the session, or nobody knows what it has got.
bool is_lost(nfsstat4 status) noexcept
{
    return status == nfsstat4::badsession || status == nfsstat4::deadsession ||
           status == nfsstat4::stale_clientid || status == nfsstat4::seq_misordered;
}

// Of SEQUENCE: an earlier call had the slot's number.
bool is_used_up(nfsstat4 status) noexcept
{
    return status == nfsstat4::seq_false_retry || status == nfsstat4::retry_uncached_rep;
}

// Of SEQUENCE: the call may have had the slot's number already, and has to be sent again by it.
bool keeps_number(nfsstat4 status) noexcept
{
    return status == nfsstat4::delay || status == nfsstat4::conn_not_bound_to_session;
}

// What the client had is gone without its doing. Delegations are among it, as a server may give some that nobody wants. The back channel's are in
// back_channel.cpp. Left out are those of devices, whose connections tell, and of GSS; where a file system has moved (LEASE_MOVED), its calls
// hear MOVED, which is told, as nobody goes after it.
constexpr std::uint32_t revoked = seq4_status::expired_all_state_revoked |
                                  seq4_status::expired_some_state_revoked | seq4_status::admin_state_revoked |
                                  seq4_status::recallable_state_revoked;

task<result<void>> acquire(semaphore& permits)
{
    const bool acquired = co_await permits.acquire();
    if (!acquired)
        co_return stopped;
    co_return result<void>();
}

std::string text_of(std::span<const std::byte> bytes)
{
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

bool is_status(const error& e) noexcept
{
    return e.code().category() == make_error_code(nfsstat4::ok).category();
}

bool says(const error& e, nfsstat4 status) noexcept { return e.code() == make_error_code(status); }

} // namespace

// A slot that a call has, with its permit.
class client_session::held_slot {
public:
    explicit held_slot(client_session& s, const rpc::client_transport* by = nullptr) noexcept
        : session_(s), number_(s.free_slot(by))
    {
        session_.used_ |= std::uint64_t(1) << number_;
    }
    held_slot(const held_slot&) = delete;
    ~held_slot()
    {
        session_.used_ &= ~(std::uint64_t(1) << number_);
        session_.release_permit();
        if (session_.used_ == 0)
            session_.unused_.set();
    }
    std::size_t number() const noexcept { return number_; }

private:
    client_session& session_;
    std::size_t number_;
};

client_session::client_session(rpc::client_transport& transport, const identity& who, std::string name,
                               minor_versions spoken, callback_service* callbacks)
    : transport_(transport),
      ways_{&transport},
      who_(who),
      name_(std::move(name)),
      lowest_minor_(spoken.lowest),
      minor_(spoken.highest),
      callbacks_(callbacks)
{
    assert(1 <= spoken.lowest && spoken.lowest <= spoken.highest && spoken.highest <= max_minor_version);
    if (callbacks_ != nullptr)
        callbacks_->add(*this);
}

client_session::~client_session()
{
    if (callbacks_ != nullptr)
        callbacks_->remove(*this);
}

// permits at hand + calls that have one = allowed_ + owed_
void client_session::allow(std::size_t slots) noexcept
{
    if (slots > allowed_) {
        const std::size_t more = slots - allowed_;
        const std::size_t paid = std::min(more, owed_);
        owed_ -= paid;
        permits_.release(more - paid);
    } else {
        owed_ += allowed_ - slots;
        while (owed_ > 0 && permits_.try_acquire())
            --owed_;
    }
    allowed_ = slots;
}

void client_session::release_permit() noexcept
{
    if (owed_ > 0)
        --owed_;
    else
        permits_.release();
}

// Nothing follows `closed`.
void client_session::change_to(state next) noexcept
{
    if (state_ != state::closed)
        state_ = next;
}

task<result<void>> client_session::open()
{
    if (state_ == state::up)
        co_return result<void>();
    const task_context& context = co_await current_context();
    shard_ = context.shard;
    time_point limit = limit_of_a_call();
    co_return co_await be_ready(limit);
}

// Of one that begins now, or is asked again by a server that answers. For ever: time_point::max().
time_point client_session::limit_of_a_call() const noexcept
{
    const duration time = transport_.time_of_a_call();
    return time == duration::max() ? time_point::max() : shard_->now() + time;
}

// What a call sees that may go on until then. The transport counts a soft call's time too, from when it is given that: nothing is changed
// where the call has not waited before, unless another one is sent in front of it.
task_context client_session::in_time(task_context of, time_point limit, bool sends_two) const noexcept
{
    if (limit != time_point::max() && (sends_two || limit - shard_->now() < transport_.time_of_a_call()))
        of.deadline = std::min(of.deadline, limit);
    return of;
}

// `in_vain` is said where the limit has come first. No limit: time_point::max().
task<result<void>> client_session::wait_until(time_point limit, task<result<void>> waiting, error in_vain)
{
    if (limit == time_point::max())
        co_return co_await waiting;
    auto waited = co_await with_timeout(limit - shard_->clock().now(), std::move(waiting));
    if (!waited && waited.error() == std::errc::timed_out)
        co_return in_vain;
    co_return waited;
}

// For a permit, which the caller releases.
task<result<void>> client_session::wait_for(semaphore& permits, time_point limit, error in_vain)
{
    return wait_until(limit, acquire(permits), in_vain);
}

error client_session::without_slot() const noexcept
{
    return error(std::errc::timed_out, "waited in vain for calls before, as many as have slots", allowed_);
}

// Calls of the session before hear that it is lost. None of them may come upon a slot of the next one.
task<result<void>> client_session::be_unused()
{
    while (used_ != 0) {
        unused_.reset();
        const bool quiet = co_await unused_.wait();
        if (!quiet)
            co_return stopped;
    }
    co_return result<void>();
}

// Puts the limit off when the server says that it is to be asked again.
task<result<void>> client_session::be_ready(time_point& limit)
{
    if (!turn_.try_acquire()) {
        const error in_vain(std::errc::timed_out, "waited in vain for another call, which makes the session");
        auto mine = co_await wait_for(turn_, limit, in_vain);
        if (!mine)
            co_return mine.error();
    }
    const held_permit held(turn_);
    if (state_ == state::up)
        co_return result<void>();
    if (state_ == state::closed)
        co_return closed;
    if (used_ != 0) {
        const error in_vain(std::errc::timed_out, "waited in vain for calls of the session that is lost");
        auto quiet = co_await wait_until(limit, be_unused(), in_vain);
        if (!quiet)
            co_return quiet.error();
    }
    making_until_ = limit;
    if (std::exchange(discards_, false)) {
        DESTROY_SESSION4args session;
        session.sessionid = id_;
        operations end(session);
        (void)co_await send_to_make(end, true); // one that stays ends with the client
    }
    auto made = co_await begin();
    limit = making_until_;
    co_return made;
}

// Of the calls that make a session, in the time of the one that needs it.
task<result<client_session::verdict>> client_session::send_to_make(compound_call& call, bool alone)
{
    task<result<verdict>> sending = alone ? send_alone(call) : send_in(0, call);
    const task_context& context = co_await current_context();
    const task_context until = in_time(context, making_until_, !alone && slots_[0].in_doubt);
    verbena::detail::in_context<result<verdict>> sent_in_time(sending, until);
    co_return co_await sent_in_time;
}

task<result<void>> client_session::begin()
{
    for (unsigned attempts = 0;; ++attempts) {
        result<void> made;
        if (!client_known_)
            made = co_await exchange_id();
        if (!made)
            co_return made.error();
        if (session_stands_)
            change_to(state::reclaiming);
        else
            made = co_await create_session();
        session_stands_ = false;
        if (made && must_complete_)
            made = co_await reclaim();
        if (made && !lease_known_)
            made = co_await ask_lease();
        if (made)
            break;
        change_to(state::none);
        const error failed = made.error();
        const bool again = is_status(failed) && ends_recovery(failed);
        // Whatever else it was, nobody knows whether CREATE_SESSION's number is used up: EXCHANGE_ID tells.
        client_known_ = says(failed, nfsstat4::badsession) || says(failed, nfsstat4::deadsession);
        if (!again || attempts >= max_losses)
            co_return failed;
    }
    change_to(state::up);
    ++sessions_;
    if (state_ == state::closed)
        co_return closed;
    if (!tasks_) {
        task<void> keeping = keep_lease();
        tasks_.emplace(*shard_, nullptr, &lost_, "lease of NFS version 4");
        try {
            tasks_->spawn(already_made, std::move(keeping));
        } catch (...) {
            tasks_.reset(); // or nobody would ever renew
            throw;
        }
    }
    // Delegations of the session before can't be recalled in this one.
    if (!way_back_ && reclaimer_ != nullptr)
        reclaimer_->cannot_be_called();
    co_return result<void>();
}

EXCHANGE_ID4args client_session::who_it_is() const noexcept
{
    EXCHANGE_ID4args args;
    args.clientowner.verifier = verifier_;
    args.clientowner.ownerid = std::as_bytes(std::span(name_));
    if (uses_layouts_)
        args.flags = exchgid4::use_pnfs_mds | exchgid4::use_non_pnfs;
    return args;
}

// Linux looks so too, before it trunks: an address may lead to another server (8881 2.10.5).
task<result<void>> client_session::add_connection(rpc::client_transport& more)
{
    const clientid4 known = client_id_;
    operations call(who_it_is());
    call.yields(head_of_results + xdr::max_size<EXCHANGE_ID4res>);
    duration delay = patience::first_delay;
    duration waited = duration::zero();
    for (;;) {
        auto sent = co_await send_alone(call, more);
        if (!sent)
            co_return sent.error();
        if (sent->status == nfsstat4::ok)
            break;
        const error failed(make_error_code(sent->status), sent->operation);
        if (!is_put_off(sent->status))
            co_return failed;
        const auto again = co_await wait_to_repeat(failed, delay, waited);
        if (!again || !*again)
            co_return failed;
    }
    const EXCHANGE_ID4res& res = call.get<0>();
    if (res.clientid != known || (res.flags & exchgid4::confirmed_r) == 0 ||
        text_of(res.server_owner.major_id) != server_owner_ || text_of(res.server_scope) != server_scope_)
        co_return error(std::errc::protocol_error,
                        "another server answers over a further connection, or it has just begun anew");
    ways_.push_back(&more);
    if (way_back_)
        (void)co_await bind_way(more); // one way back is enough
    co_return result<void>();
}

task<result<void>> client_session::exchange_id()
{
    if (!has_verifier_) {
        has_verifier_ = true;
        random_source& random = shard_->random();
        xdr::store_u64(verifier_.data(), random.draw());
        if (name_.empty())
            name_ = unlike_any_other(random);
    }
    operations call(who_it_is());
    call.yields(head_of_results + xdr::max_size<EXCHANGE_ID4res>);
    auto sent = co_await insist(call, true);
    const std::uint32_t highest = minor_;
    while (!sent && says(sent.error(), nfsstat4::minor_vers_mismatch) && !minor_settled_ &&
           minor_ > lowest_minor_) {
        --minor_;
        sent = co_await insist(call, true);
    }
    if (!sent && says(sent.error(), nfsstat4::minor_vers_mismatch)) {
        const std::uint32_t lowest = std::exchange(minor_, highest);
        co_return without(lowest, highest);
    }
    if (!sent)
        co_return sent.error();
    minor_settled_ = true;
    const EXCHANGE_ID4res& res = call.get<0>();
    // A server that counts clients from its start may give a new one the number of the old one.
    if (incarnation_ == 0 || res.clientid != client_id_ || (res.flags & exchgid4::confirmed_r) == 0) {
        ++incarnation_;
        must_complete_ = true;
        lease_known_ = false;
    }
    server_owner_ = text_of(res.server_owner.major_id);
    server_scope_ = text_of(res.server_scope);
    serves_layouts_ = (res.flags & exchgid4::use_pnfs_mds) != 0;
    client_id_ = res.clientid;
    create_sequence_ = res.sequenceid;
    client_known_ = true;
    co_return result<void>();
}

task<result<void>> client_session::create_session()
{
    std::array<callback_sec_parms4, 2> signatures;
    CREATE_SESSION4args args;
    args.clientid = client_id_;
    args.sequence = create_sequence_;
    args.fore_chan_attrs = {0,
                            max_transfer + static_cast<std::uint32_t>(message_size),
                            max_transfer + kept_results,
                            kept_results,
                            operations_asked_for,
                            static_cast<std::uint32_t>(max_slots),
                            std::nullopt};
    ask_way_back(args, signatures);
    operations call(args);
    creating_ = true;
    auto sent = co_await insist(call, true);
    creating_ = false;
    if (!sent)
        co_return sent.error();
    const CREATE_SESSION4res& res = call.get<0>();
    if (res.fore_chan_attrs.maxrequests == 0 || res.fore_chan_attrs.maxoperations < 2)
        co_return error(std::errc::protocol_error,
                        "CREATE_SESSION gives a channel without slots or operations");
    ++create_sequence_;
    id_ = res.sessionid;
    channel_ = res.fore_chan_attrs;
    slots_ = {};
    made_ = std::min<std::size_t>(channel_.maxrequests, max_slots);
    allow(made_);
    flags_ = 0;
    take_way_back(res);
    change_to(state::reclaiming);
    co_return result<void>();
}

// What follows a new client id, before anything else is asked for.
task<result<void>> client_session::reclaim()
{
    if (reclaimer_ != nullptr) {
        auto done = co_await reclaimer_->reclaim();
        if (!done)
            co_return done.error();
    }
    operations complete{RECLAIM_COMPLETE4args()};
    complete.once();
    auto completed = co_await insist(complete, false);
    if (!completed && !says(completed.error(), nfsstat4::complete_already))
        co_return completed.error();
    must_complete_ = false;
    co_return result<void>();
}

task<result<void>> client_session::ask_lease()
{
    GETATTR4args wanted;
    wanted.attr_request = {attribute::lease_time};
    operations ask(PUTROOTFH4args(), wanted);
    auto asked = co_await insist(ask, false);
    attributes values;
    if (asked && decode_attributes(ask.get<1>().obj_attributes, values) &&
        values.present.test(attribute::lease_time))
        lease_ = std::chrono::seconds(std::clamp<std::uint32_t>(values.lease_time, 1, 3600));
    lease_known_ = asked.has_value();
    // A root that can't be looked at is for those to hear who ask for it.
    if (!asked && !is_status(asked.error()))
        co_return asked.error();
    co_return result<void>();
}

// Whether there is patience left. Fails where nobody waits any more: then it is not known what the server would say.
task<result<bool>> client_session::wait_to_repeat(const error& cause, duration& delay, duration& waited)
{
    duration limit = patience_.limit();
    if (says(cause, nfsstat4::grace) && !patience_.spends())
        limit = std::max(limit, 2 * lease_);
    if (!patience_.put_off(cause, waited, limit, says(cause, nfsstat4::grace)))
        co_return false;
    delay = std::clamp(limit - waited, duration::zero(), delay);
    const bool slept = co_await sleep_for(delay);
    waited += delay;
    delay = std::min(std::max(delay, patience::first_delay) * 2, patience::max_delay);
    if (!slept)
        co_return stopped;
    co_return true;
}

// Until the server says something else than "later".
task<result<void>> client_session::insist(compound_call& call, bool alone)
{
    duration delay = patience::first_delay;
    duration waited = duration::zero();
    for (;;) {
        auto sent = co_await send_to_make(call, alone);
        if (!sent)
            co_return sent.error();
        if (sent->status == nfsstat4::ok)
            co_return result<void>();
        const error failed(make_error_code(sent->status), sent->operation);
        if (!is_put_off(sent->status))
            co_return failed;
        const auto again = co_await wait_to_repeat(failed, delay, waited);
        if (!again)
            co_return again.error();
        if (!*again)
            co_return failed;
        making_until_ = limit_of_a_call();
    }
}

bool client_session::ends_recovery(const error& why) noexcept
{
    return !is_status(why) || is_lost(static_cast<nfsstat4>(why.code().value()));
}

task<result<void>> client_session::run_to_reclaim(compound_call& call) { return insist(call, false); }

task<result<void>> client_session::run(compound_call& call)
{
    duration delay = patience::first_delay;
    duration waited = duration::zero();
    const auto is_over = [&] {
        return call.is_abandoned() || call.only_in_.value_or(incarnation_) != incarnation_;
    };
    const task_context& context = co_await current_context();
    shard_ = context.shard;
    time_point limit = limit_of_a_call();
    for (unsigned losses = 0;;) {
        if (is_over())
            co_return stopped;
        if (state_ != state::up) {
            auto ready = co_await be_ready(limit);
            if (!ready)
                co_return ready.error();
        }
        if (!permits_.try_acquire()) {
            const error in_vain = without_slot();
            auto permit = co_await wait_for(permits_, limit, in_vain);
            if (!permit)
                co_return permit.error();
        }
        if (state_ != state::up || is_over()) {
            release_permit();
            continue;
        }
        verdict heard;
        {
            const held_slot held(*this);
            task<result<verdict>> sending = send_in(held.number(), call);
            const task_context until = in_time(context, limit, slots_[held.number()].in_doubt);
            verbena::detail::in_context<result<verdict>> sent_in_time(sending, until);
            auto sent = co_await sent_in_time;
            if (!sent)
                co_return sent.error();
            heard = *sent;
            if (heard.of_sequence && is_lost(heard.status) && state_ == state::up)
                change_to(state::none);
        }
        if (!is_put_off(heard.status))
            patience_.served();
        if (heard.status == nfsstat4::ok)
            co_return result<void>();
        const error failed(make_error_code(heard.status), heard.operation);
        if (is_put_off(heard.status) && call.not_later_)
            co_return failed;
        if (is_put_off(heard.status)) {
            const auto again = co_await wait_to_repeat(failed, delay, waited);
            if (!again || !*again)
                co_return failed;
            limit = limit_of_a_call();
            continue;
        }
        // It ran, its results were not kept, and it may run again. What is a false retry did not run: its number was another call's.
        const bool ran = heard.status == nfsstat4::retry_uncached_rep;
        const bool repeats =
            ran ? !call.once_
                : heard.of_sequence &&
                      (is_lost(heard.status) || heard.status == nfsstat4::badslot ||
                       heard.status == nfsstat4::bad_high_slot || heard.status == nfsstat4::seq_false_retry);
        if (!repeats || ++losses > max_losses)
            co_return failed;
    }
}

// The lowest one, of those that go by `by` if it is not nullptr and has one. Who asks has a permit.
std::size_t client_session::free_slot(const rpc::client_transport* by) const noexcept
{
    for (std::size_t n = 0; by != nullptr && n < allowed_; ++n) {
        if ((used_ >> n & 1) == 0 && &way_of(n) == by)
            return n;
    }
    return static_cast<std::size_t>(std::countr_one(used_));
}

// A SEQUENCE alone that is sent once. Where it finds the session lost, that is for others to mend. Fails where no answer comes within a sixth of a lease.
// It waits for a slot until a lease has passed since the way back began to be mended: whoever has the slots may wait by a way that leads nowhere.
task<result<void>> client_session::ask_in_a_slot(rpc::client_transport* by)
{
    const time_point limit = std::max(mended_ + lease_, shard_->clock().now() + lease_ / 6);
    const error in_vain = without_slot();
    auto mine = co_await wait_for(permits_, limit, in_vain);
    if (!mine)
        co_return mine.error();
    if (state_ != state::up) {
        release_permit();
        co_return result<void>();
    }
    const held_slot held(*this, by);
    operations<> nothing;
    task<result<verdict>> sending = send_in(held.number(), nothing);
    auto sent = co_await with_timeout(lease_ / 6, std::move(sending));
    if (!sent)
        co_return sent.error();
    if (sent->of_sequence && is_lost(sent->status) && state_ == state::up)
        change_to(state::none);
    co_return result<void>();
}

// One try in a slot, of which it is known what the server has seen.
task<result<client_session::verdict>> client_session::send_in(std::size_t number, compound_call& call)
{
    // The call before was given up. Whether the server runs its number now, or has done so, that is used up then.
    if (slots_[number].in_doubt) {
        operations<> nothing;
        auto asked = co_await send_until_heard(number, nothing);
        // Whatever was replied then, it was to the call before.
        const bool settled =
            !slots_[number].in_doubt && (!asked || !asked->of_sequence || is_used_up(asked->status));
        if (!settled)
            co_return asked;
    }
    co_return co_await send_until_heard(number, call);
}

// Until the server takes the slot's number, or says that it is none. DELAY is of a copy of this call that runs still, and a connection that is
// not bound may be the second one: if another call had the number now, it would be told what this one did.
task<result<client_session::verdict>> client_session::send_until_heard(std::size_t number,
                                                                       compound_call& call)
{
    duration delay = patience::first_delay;
    duration waited = duration::zero();
    for (unsigned bound = 0;;) {
        auto sent = co_await send_in_known(number, call);
        if (!sent || !sent->of_sequence || !keeps_number(sent->status))
            co_return sent;
        const error later(make_error_code(sent->status), sent->operation);
        if (sent->status == nfsstat4::delay) {
            const auto again = co_await wait_to_repeat(later, delay, waited);
            if (!again || !*again)
                co_return later;
            continue;
        }
        if (++bound > max_losses)
            co_return later;
        BIND_CONN_TO_SESSION4args args;
        args.sessid = id_;
        // A server may refuse to change it later.
        if (way_back_ && way_of(number).serves_calls())
            args.dir = channel_dir_from_client4::fore_or_both;
        operations bind(args);
        auto done = co_await send_alone(bind, way_of(number));
        if (!done)
            co_return done.error();
    }
}

task<result<client_session::verdict>> client_session::send_in_known(std::size_t number, compound_call& call)
{
    slot& s = slots_[number];
    SEQUENCE4args args;
    args.sessionid = id_;
    args.sequenceid = s.sequence;
    args.slotid = static_cast<std::uint32_t>(number);
    args.highest_slotid =
        static_cast<std::uint32_t>(std::max<std::size_t>(number, std::bit_width(used_ | 1) - 1));
    args.cachethis = call.once_;
    if (!std::exchange(s.in_doubt, true))
        s.asked = shard_->clock().now();
    const bool was_in_doubt = call.is_in_doubt(incarnation_);
    auto sent = co_await send(call, &args, way_of(number));
    if (!sent)
        co_return sent.error();
    call.reply_ = std::move(*sent);
    xdr::decoder& in = call.reply_.results();
    compound_reply results(in);
    if (in.ok() && results.status() == nfsstat4::minor_vers_mismatch)
        co_return without(minor_, minor_); // since it has started again
    SEQUENCE4res res;
    const bool good = results.read(res);
    if (!in.ok())
        co_return in.failure();
    if (!good)
        co_return refused(args, results.status());
    if (res.sessionid != id_ || res.slotid != args.slotid || res.sequenceid != args.sequenceid)
        co_return error(std::errc::protocol_error, "SEQUENCE answers another call", res.slotid);
    s.in_doubt = false;
    ++s.sequence;
    last_heard_ = std::max(last_heard_, s.asked);
    if (made_ != 0)
        allow(std::min<std::size_t>(std::size_t(res.target_highest_slotid) + 1, made_));
    heed(res.status_flags);
    verdict out;
    out.operation = call.decode(results);
    if (!in.ok())
        co_return in.failure();
    out.status = results.status();
    if ((out.operation == nullptr) != (out.status == nfsstat4::ok))
        co_return error(std::errc::protocol_error, "COMPOUND's status is not that of its last operation");
    call.in_doubt_ = was_in_doubt && out.status != nfsstat4::ok;
    co_return out;
}

// What SEQUENCE tells beside the call. A flag stays until the server is content, so only one that comes is news.
void client_session::heed(std::uint32_t flags)
{
    if (state_ != state::up)
        return;
    const std::uint32_t news = flags & ~std::exchange(flags_, flags);
    if ((news & revoked) != 0 && reclaimer_ != nullptr) {
        try {
            tasks_->spawn(already_made, free_what_is_revoked());
        } catch (const std::bad_alloc&) {
            flags_ &= ~revoked; // the next SEQUENCE says so again
        }
    }
    // The server has started again and kept its sessions: the next call finds this one not up.
    if ((news & seq4_status::restart_reclaim_needed) != 0) {
        must_complete_ = session_stands_ = true;
        ++incarnation_;
        change_to(state::none);
        return;
    }
    heed_way_back(flags, news);
}

task<void> client_session::free_what_is_revoked() { return reclaimer_->free_what_is_revoked(); }

// SEQUENCE itself failed: the slot is as it was, if its number is not used up or may be.
client_session::verdict client_session::refused(const SEQUENCE4args& asked, nfsstat4 status) noexcept
{
    slot& s = slots_[asked.slotid];
    s.in_doubt = keeps_number(status);
    if (is_used_up(status))
        ++s.sequence;
    // The one is of this call's slot, the other of the highest that was in use then. The first one there always is.
    const std::uint32_t beyond = status == nfsstat4::badslot         ? asked.slotid
                                 : status == nfsstat4::bad_high_slot ? asked.highest_slotid
                                                                     : 0;
    if (beyond > 0) {
        made_ = std::min<std::size_t>(made_, beyond);
        allow(std::min(allowed_, made_));
    }
    return {status, "SEQUENCE", true};
}

task<result<client_session::verdict>> client_session::send_alone(compound_call& call,
                                                                 rpc::client_transport& way)
{
    auto sent = co_await send(call, nullptr, way);
    if (!sent)
        co_return sent.error();
    call.reply_ = std::move(*sent);
    xdr::decoder& in = call.reply_.results();
    compound_reply results(in);
    verdict out;
    out.operation = call.decode(results);
    if (!in.ok())
        co_return in.failure();
    out.status = results.status();
    if (out.status == nfsstat4::minor_vers_mismatch && out.operation == nullptr)
        out.operation = "COMPOUND"; // which has no results then
    if ((out.operation == nullptr) != (out.status == nfsstat4::ok))
        co_return error(std::errc::protocol_error, "COMPOUND's status is not that of its last operation");
    co_return out;
}

task<result<rpc::reply>> client_session::send(compound_call& call, const SEQUENCE4args* sequence,
                                              rpc::client_transport& way)
{
    rpc::call_header header;
    header.program = program;
    header.version = version;
    header.procedure = static_cast<std::uint32_t>(procedure::compound);
    header.credential = who_.credential();
    verbena::lease block;
    if (call.reserve_ != nullptr && *call.reserve_ && call.reserve_->unique())
        block = call.reserve_->share();
    else
        block = co_await way.acquire(message_size);
    if (!block)
        co_return error(std::errc::not_enough_memory, "COMPOUND");
    rpc::request request(std::move(block), header);
    compound_head head;
    head.minorversion = minor_;
    compound_request out(request.message(), head);
    if (sequence != nullptr)
        out.add(*sequence);
    call.encode(out);
    if (call.data_ != nullptr)
        request.attach(share(*call.data_));
    request.max_reply = rpc::max_success_header_size + head_of_results + call.results_;
    request.max_result = call.item_;
    call.in_doubt_ = true;
    call.sent_in_ = incarnation_;
    co_return co_await way.call(request);
}

task<result<void>> client_session::null()
{
    rpc::call_header header;
    header.program = program;
    header.version = version;
    header.procedure = static_cast<std::uint32_t>(procedure::null);
    verbena::lease block = co_await transport_.acquire(message_size);
    if (!block)
        co_return error(std::errc::not_enough_memory, "NULL");
    rpc::request request(std::move(block), header);
    request.max_reply = rpc::max_success_header_size;
    auto reply = co_await transport_.call(request);
    if (!reply)
        co_return reply.error();
    co_return result<void>();
}

// A third of the lease without a call is answered by one that does nothing.
task<void> client_session::keep_lease()
{
    for (;;) {
        const duration period = lease_ / 3;
        const bool slept = co_await sleep_for(period);
        if (!slept)
            co_return;
        if (state_ == state::up && shard_->clock().now() - last_heard_ < period)
            continue;
        try {
            operations<> nothing;
            (void)co_await run(nothing);  // whoever calls next hears why
        } catch (const std::bad_alloc&) { // it is tried again
        }
    }
}

task<void> client_session::close()
{
    if (state_ == state::closed)
        co_return;
    // The renewal may be making a session, which is there to be ended then, or is not made. So may a call that came too late.
    if (tasks_) {
        tasks_->request_stop();
        co_await tasks_->join();
    }
    const bool mine = co_await turn_.acquire();
    std::optional<held_permit> held;
    if (mine)
        held.emplace(turn_);
    if (tasks_) {
        tasks_->request_stop();
        co_await tasks_->join();
    }
    session_is_there_ = false;
    const bool was_up = std::exchange(state_, state::closed) == state::up;
    if (!was_up)
        co_return;
    DESTROY_SESSION4args session;
    session.sessionid = id_;
    operations end_session(session);
    auto ended = co_await send_alone(end_session);
    if (!ended)
        co_return;
    DESTROY_CLIENTID4args client;
    client.clientid = client_id_;
    operations end_client(client);
    (void)co_await send_alone(end_client);
}

} // namespace verbena::nfs::v4
