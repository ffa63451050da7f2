// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/rpc/reconnecting_client.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/combine.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <cassert>
#include <utility>

namespace verbena::rpc {
namespace {

/// A connection that lasted so long is made again without a wait, and no proof that the peer is no server.
constexpr auto healthy_connection = std::chrono::seconds(1);

/// Times that max_reply grows, fourfold each, before its call fails.
constexpr unsigned max_enlarged = 3;

const error cancelled(std::errc::operation_canceled, "call cancelled");

} // namespace

// Counts a coroutine in, for close() to wait for.
class reconnecting_client::visit {
public:
    explicit visit(reconnecting_client& client) noexcept : client_(client) { ++client.inside_; }
    visit(const visit&) = delete;
    ~visit()
    {
        if (--client_.inside_ == 0 && client_.closer_) {
            client_.closer_mark_.clear();
            client_.shard_.post(std::exchange(client_.closer_, {}));
        }
    }

private:
    reconnecting_client& client_;
};

// Not an event: it must wait whatever the stop token of close()'s caller says.
class reconnecting_client::until_empty {
public:
    explicit until_empty(reconnecting_client& client) noexcept : client_(client) {}
    bool await_ready() const noexcept { return client_.inside_ == 0; }
    template<class Promise>
    void await_suspend(std::coroutine_handle<Promise> h) noexcept
    {
        client_.closer_ = h;
        client_.closer_mark_.set(h, "the end of a client's calls");
    }
    void await_resume() const noexcept {}

private:
    reconnecting_client& client_;
};

reconnecting_client::reconnecting_client(reactor& shard, const client_options& options)
    : shard_(shard),
      options_(options),
      tasks_(shard, nullptr, this, "an RPC client"),
      permits_(std::clamp<std::uint32_t>(options.max_calls, 1, max_outstanding_calls))
{
    // XIDs must not repeat those of a former process: the server may remember its replies.
    next_generation_ = static_cast<std::uint32_t>(shard.random().draw());
}

reconnecting_client::~reconnecting_client() { assert(inside_ == 0 && "close() a client before it goes"); }

task<result<void>> reconnecting_client::connect()
{
    const visit here(*this);
    if (closing_)
        co_return cancelled;
    start();
    if (!connected_ && !co_await attempted_.wait())
        co_return cancelled;
    if (!connected_)
        co_return closing_ ? cancelled : last_error_;
    co_return result<void>();
}

task<result<reply>> reconnecting_client::call(request& r)
{
    const visit here(*this);
    if (!r.message().ok())
        co_return error(std::errc::message_size, "arguments exceed the message");
    // A soft call's time is that of its wait for a turn, too.
    const time_point limit = options_.hard ? time_point::max() : shard_.clock().now() + time_of_a_call();
    if (!permits_.try_acquire()) {
        const auto turn = co_await wait_for_turn(limit);
        if (!turn)
            co_return turn.error();
    }
    if (closing_)
        co_return cancelled;
    const task_context& context = co_await current_context();
    if (free_.empty()) {
        free_.push_back(static_cast<std::uint32_t>(slots_.size()));
        slots_.push_back(std::make_unique<outstanding>(*this));
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    outstanding& o = *slots_[index];
    o.call = std::move(r);
    o.deadline_ = context.deadline;
    o.sent_ = 0;
    o.failed_before_ = failed_attempts_;
    const std::uint32_t most_result = o.call.max_result;
    if (o.call.may_repeat) {
        const learned* const known = learned_of(o.call);
        if (o.call.first_result != 0)
            o.call.max_result = std::min(
                most_result, std::max(o.call.first_result, known != nullptr ? known->max_result : 0));
        else if (known != nullptr)
            o.call.max_reply = std::max(o.call.max_reply, known->max_reply);
    }
    o.limit_ = limit;
    for (unsigned enlarged = 0;; ++enlarged) {
        begin(o, index);
        if (!co_await o.done_.wait())
            complete(o, cancelled);
        if (std::exchange(o.must_settle, false))
            co_await settle(o);
        // A reply that found too little room: more of it, under a new XID, if repeating does no harm
        // (RFC 8267 3.1).
        if (*o.outcome_ && enlarged != 0)
            learn(o.call);
        else if (*o.outcome_ && o.call.may_repeat && o.call.first_result != 0)
            note_result(o.call, (*o.outcome_)->chunk_size());
        if (*o.outcome_ || !o.call.may_repeat || enlarged == max_enlarged || closing_ ||
            o.outcome_->error() != std::errc::value_too_large || !enlarge(o.call, most_result))
            break;
        o.outcome_.reset();
    }
    result<reply> outcome = std::move(*o.outcome_);
    o.outcome_.reset();
    o.call = request();
    free_.push_back(index);
    permits_.release();
    if (outcome) {
        if (auto header = outcome->decode_header(); !header)
            co_return header.error();
    }
    co_return std::move(outcome);
}

task<result<void>> reconnecting_client::wait_for_turn(time_point limit)
{
    const auto turn = [this]() -> task<result<void>> {
        const bool mine = co_await permits_.acquire();
        if (!mine)
            co_return cancelled;
        co_return result<void>();
    };
    if (limit == time_point::max())
        co_return co_await turn();
    const auto waited = co_await with_timeout(limit - shard_.clock().now(), turn());
    if (!waited && waited.error() == std::errc::timed_out)
        co_return error(std::errc::timed_out,
                        "a soft call waited in vain for others to end, as many as may be outstanding",
                        options_.max_calls);
    co_return waited;
}

void reconnecting_client::begin(outstanding& o, std::uint32_t index)
{
    o.xid_ = (next_generation_++ << slot_bits) | index;
    o.call.message().patch_u32(0, o.xid_);
    o.sequence_ = next_sequence_++;
    o.tries_ = 0;
    o.done_.reset();
    o.active_ = true;
    if (active_++ == 0 && options_.watch != nullptr) {
        last_heard_ = shard_.clock().now();
        if (!patience_.is_armed() && !told_)
            look_at_silence();
    }
    arm(o);
    if (connected_)
        send(o);
    else
        start();
}

void reconnecting_client::send(outstanding& o) noexcept
{
    ++o.sent_;
    transmit(o);
}

reconnecting_client::learned* reconnecting_client::learned_of(const request& r) noexcept
{
    constexpr std::size_t offset = 12; // behind XID, message type and RPC version
    const auto message = r.message().bytes();
    const auto at = std::ranges::find_if(learned_, [&](const learned& l) {
        return message.size() >= offset + l.procedure.size() &&
               std::ranges::equal(l.procedure, message.subspan(offset, l.procedure.size()));
    });
    return at == learned_.end() ? nullptr : &*at;
}

void reconnecting_client::learn(const request& r)
{
    learned* known = learned_of(r);
    if (known == nullptr) {
        if (learned_.size() < max_learned) {
            known = &learned_.emplace_back();
        } else {
            known = &learned_[next_learned_];
            next_learned_ = (next_learned_ + 1) % max_learned;
        }
        std::ranges::copy(r.message().bytes().subspan(12, known->procedure.size()), known->procedure.begin());
    }
    known->max_reply = r.max_reply;
    known->max_result = r.first_result != 0 ? r.max_result : 0;
    known->unneeded = 0;
}

// Makes more room for the reply to `r`, which found too little; false if there may be no more.
bool reconnecting_client::enlarge(request& r, std::uint32_t most_result) const noexcept
{
    if (r.first_result == 0) {
        r.max_reply *= 4;
        return true;
    }
    if (r.max_result >= most_result)
        return false;
    r.max_result = r.max_result <= most_result / 4 ? r.max_result * 4 : most_result;
    return true;
}

// What was learned of a few large results is not kept for many small ones.
void reconnecting_client::note_result(const request& r, std::size_t size) noexcept
{
    learned* const known = learned_of(r);
    if (known == nullptr)
        return;
    if (size > known->max_result / 4)
        known->unneeded = 0;
    else if (++known->unneeded == unneeded_in_a_row) {
        known->unneeded = 0;
        known->max_result /= 4;
    }
}

task<void> reconnecting_client::close()
{
    if (!closing_) {
        closing_ = true;
        fail_all(cancelled);
        if (connected_)
            co_await hang_up();
        connected_ = false;
        tasks_.request_stop();
        permits_.release(max_outstanding_calls + inside_); // whoever waits for one sees closing_
    }
    co_await tasks_.join();
    co_await quiesce();
    drop();
    co_await until_empty(*this);
}

// Where there is no memory, the timer of a call that waits tries again.
void reconnecting_client::start() noexcept
{
    if (running_ || closing_)
        return;
    running_ = true;
    attempted_.reset();
    try {
        tasks_.spawn(already_made, keep_connected());
    } catch (...) {
        attempt_failed(error_of(std::current_exception(), "an attempt to connect could not begin"));
        running_ = false;
        attempted_.set();
    }
}

void reconnecting_client::attempt_failed(const error& why) noexcept
{
    last_error_ = why;
    ++failed_attempts_;
    if (options_.hard && why == std::errc::no_such_device && !std::exchange(told_missing_, true))
        log(log_level::warning, "rpc",
            "the way to a server is not here: the network interface of its address is not there yet, or no "
            "RDMA device leads to it; "
            "calls wait for that",
            {{"cause", why.message()}});
    // What was never reached by an address that can't be read will not be.
    if (!options_.reconnects || (connections_ == 0 && why == std::errc::invalid_argument))
        fail_all(why);
}

void reconnecting_client::on_exception(const std::exception_ptr& e) noexcept
{
    connection_lost(error_of(e, "an exception left a task of the connection"));
}

task<result<void>> reconnecting_client::try_to_open()
{
    std::exception_ptr failure;
    try {
        if (options_.addresses == nullptr)
            co_return co_await open();
        co_return co_await open_one_of(*options_.addresses);
    } catch (...) {
        failure = std::current_exception();
    }
    co_return error_of(failure, "an exception left the attempt to connect");
}

task<result<void>> reconnecting_client::open_one_of(server_addresses& where)
{
    result<void> opened = error(std::errc::address_not_available, "the name has no address");
    const bool tried = keeps_address_;
    if (tried) {
        opened = co_await open_at(where, address_);
        if (opened || closing_)
            co_return opened;
    }
    auto found = co_await where.find();
    if (!found)
        co_return tried ? opened.error() : found.error();
    keeps_address_ = std::ranges::find(*found, address_) != found->end();
    for (const std::string& address : *found) {
        if (tried && address == address_)
            continue;
        opened = co_await open_at(where, address);
        if (opened || closing_)
            break;
    }
    co_return opened;
}

task<result<void>> reconnecting_client::open_at(server_addresses& where, std::string address)
{
    drop();
    if (closing_)
        co_return cancelled;
    go_to(address);
    auto opened = co_await open();
    if (!opened)
        co_return opened;
    if (!address_.empty() && address != address_)
        fail_what_another_host_may_run_again();
    where.connected(address);
    address_ = std::move(address);
    keeps_address_ = true;
    co_return opened;
}

task<void> reconnecting_client::keep_connected()
{
    try {
        co_await connect_while_wanted();
    } catch (...) { // there was no memory, and is no connection
        attempt_failed(error_of(std::current_exception(), "an exception left the attempts to connect"));
    }
    running_ = false;
    attempted_.set();
}

// An exception leaves it only while nothing is open.
task<void> reconnecting_client::connect_while_wanted()
{
    duration delay = options_.reconnect_delay;
    const auto wanted = [this] { return !closing_ && active_ != 0; };
    do {
        attempted_.reset();
        task<void> quieting = quiesce(); // made now, as what is open must be ended whatever memory there is
        result<void> opened = co_await try_to_open();
        if (opened && !closing_) {
            const time_point begun = shard_.now();
            ++connections_;
            connected_ = true;
            told_missing_ = false;
            lost_.reset();
            attempted_.set();
            try {
                transmit_all();
            } catch (...) {
                connection_lost(error_of(std::current_exception(), "calls could not be sent"));
            }
            co_await lost_.wait();
            connected_ = false;
            co_await quieting;
            drop();
            if (!options_.reconnects)
                fail_all(last_error_);
            const duration lasted = shard_.now() - begun;
            if (wanted() && is_stranger(lasted))
                fail_all(error(std::errc::connection_reset,
                               "the peer ends connections without a reply: is this "
                               "its transport and port?"));
            if (lasted >= healthy_connection) {
                delay = options_.reconnect_delay;
                continue;
            }
        } else {
            drop();
            without_reply_ = 0;
            if (!opened)
                attempt_failed(opened.error());
            attempted_.set();
        }
        if (!wanted())
            break;
        const bool slept = co_await sleep_for(delay);
        if (!slept)
            break;
        delay = std::min(delay * 2, options_.reconnect_delay_max);
    } while (wanted());
}

void reconnecting_client::transmit_all()
{
    std::vector<outstanding*> all;
    for (const auto& o : slots_) {
        if (o->active_)
            all.push_back(o.get());
    }
    std::ranges::sort(all, {}, [](const outstanding* o) { return o->sequence_; });
    for (outstanding* o : all) {
        if (!connected_)
            return;
        arm(*o);
        send(*o);
    }
}

void reconnecting_client::arm(outstanding& o) noexcept
{
    shard_.timers().arm(o.timer_, std::min({o.deadline_, o.limit_, shard_.clock().now() + options_.timeout}));
}

void reconnecting_client::on_silence(outstanding& o) noexcept
{
    if (shard_.clock().now() >= o.deadline_)
        return complete(o, error(std::errc::timed_out, "deadline of the call"));
    if (!options_.hard && (o.tries_ >= options_.retries || shard_.clock().now() >= o.limit_))
        return complete(o, given_up(o));
    ++o.tries_;
    arm(o);
    if (connected_)
        connection_lost(error(std::errc::timed_out, "server does not answer"));
    else
        start();
}

error reconnecting_client::given_up(const outstanding& o) const noexcept
{
    if (!connected_ && o.sent_ == 0 && !last_error_.code())
        return error(std::errc::timed_out,
                     "no connection for a soft call: the first attempt to connect goes on");
    if (connected_ || !last_error_.code())
        return {std::errc::timed_out, "server does not answer a soft call, times sent", o.sent_};
    if (const std::uint64_t attempts = failed_attempts_ - o.failed_before_; attempts != 0)
        return {last_error_.code(), "no connection for a soft call, failed attempts to connect", attempts};
    return last_error_;
}

void reconnecting_client::connection_lost(const error& cause) noexcept
{
    if (!connected_)
        return;
    last_error_ = cause;
    connected_ = false;
    lost_.set();
}

// Counts a connection that ended; whether the peer has shown by now that it does not speak what it is asked.
bool reconnecting_client::is_stranger(duration lasted)
{
    if (answered_ || options_.connections_without_reply == 0)
        return false;
    if (lasted >= healthy_connection || last_error_ == std::errc::timed_out) {
        without_reply_ = 0;
        return false;
    }
    if (++without_reply_ == 1)
        first_without_reply_ = shard_.now();
    if (without_reply_ < options_.connections_without_reply ||
        shard_.now() - first_without_reply_ < options_.without_reply_for)
        return false;
    without_reply_ = 0;
    return true;
}

// One timer for all calls, which looks now and then: a reply costs it nothing but the time that is noted.
void reconnecting_client::look_at_silence() noexcept
{
    if (active_ == 0 || told_)
        return;
    const duration limit = answered_ ? options_.timeout : std::min(options_.timeout, options_.first_silence);
    if (shard_.clock().now() < last_heard_ + limit) {
        shard_.timers().arm(patience_, last_heard_ + limit);
        return;
    }
    told_ = true;
    options_.watch->on_silence(connected_ ? error() : last_error_);
}

void reconnecting_client::heard() noexcept
{
    answered_ = true;
    if (options_.watch == nullptr)
        return;
    last_heard_ = shard_.clock().now();
    if (std::exchange(told_, false)) {
        options_.watch->on_answer();
        look_at_silence();
    }
}

reconnecting_client::outstanding* reconnecting_client::find(std::uint32_t xid) noexcept
{
    const std::size_t index = xid & (max_outstanding_calls - 1);
    if (index >= slots_.size() || !slots_[index]->active_ || slots_[index]->xid_ != xid)
        return nullptr;
    return slots_[index].get();
}

void reconnecting_client::complete(outstanding& o, result<reply> outcome) noexcept
{
    if (!o.active_)
        return;
    retract(o);
    o.unlink();
    o.active_ = false;
    --active_;
    if (outcome)
        heard();
    o.timer_.cancel();
    o.outcome_.emplace(std::move(outcome));
    o.done_.set();
}

void reconnecting_client::fail_all(const error& cause) noexcept
{
    for (const auto& o : slots_)
        complete(*o, cause);
}

// The duplicate-request cache of the last address has them, and that of another one may be another host's.
void reconnecting_client::fail_what_another_host_may_run_again() noexcept
{
    for (const auto& o : slots_) {
        if (o->sent_ != 0 && !o->call.idempotent && !o->call.may_repeat)
            complete(*o, error(std::errc::connection_reset, "the server is at another address now, where a "
                                                            "call that was sent before might run again"));
    }
}

} // namespace verbena::rpc
