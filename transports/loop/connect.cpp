// SPDX-License-Identifier: Apache-2.0
#include "connect.hpp"

#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <new>
#include <utility>

namespace verbena::loop {
namespace {

error refused(const char* why) { return error(std::errc::connection_refused, why); }
error nobody_listens() { return refused("nobody listens at this loop address"); }
error not_taken() { return refused("the listener at this loop address takes no more peers now"); }

class time_limit final : private timer {
public:
    time_limit(reactor& r, time_point when, event& changed) : changed_(changed)
    {
        r.timers().arm(*this, when);
    }
    bool passed() const noexcept { return passed_; }

private:
    void on_timer() noexcept override
    {
        passed_ = true;
        changed_.set();
    }
    event& changed_;
    bool passed_ = false;
};

// The initiator leaves connect(), by whatever way.
class asking {
public:
    explicit asking(std::shared_ptr<handshake> h) : handshake_(std::move(h)) {}
    asking(const asking&) = delete;
    ~asking() { handshake_->abandon(); }
    handshake* operator->() const noexcept { return handshake_.get(); }
    const std::shared_ptr<handshake>& get() const noexcept { return handshake_; }

private:
    std::shared_ptr<handshake> handshake_;
};

} // namespace

// --- handshake ---

handshake::handshake(context_impl& from, std::string name, const verbs::connect_options& o)
    : initiator(from),
      initiator_name(std::move(name)),
      initiator_address(from.device().options().name),
      question(o.private_data.begin(), o.private_data.end()),
      initiator_depth(std::min(o.initiator_depth, from.query().max_outstanding_reads)),
      responder_resources(std::min(o.responder_resources, from.query().max_outstanding_reads))
{
    from.add(*this);
}

handshake::~handshake()
{
    // The initiator has left; its context may be gone.
    if (responder != nullptr)
        responder->watch(nullptr);
}

void handshake::accept(queue_pair& r, std::uint32_t ours, std::uint32_t ird,
                       std::vector<std::byte> data) noexcept
{
    phase = phase::accepted;
    answer = std::move(data);
    ord = std::min(initiator_depth, ird);
    responder = &r;
    r.watch(&responder);
    r.open(ours);
    tell();
}

void handshake::refuse(const error& why, std::vector<std::byte> data) noexcept
{
    if (phase != phase::asking)
        return;
    phase = phase::refused;
    failure = why;
    answer = std::move(data);
    fabric_impl& f = initiator.fabric();
    f.note(f.clock().now(), fabric_impl::happening::refused, 0, 0, answer.size());
    tell();
}

void handshake::abandon() noexcept
{
    initiator.remove(*this);
    phase = phase::abandoned;
    if (responder != nullptr)
        responder->end_at(initiator.shard().now(), error(std::errc::connection_reset, "the peer gave up"));
}

void handshake::device_gone(const error& why) noexcept
{
    failure = why;
    if (phase != phase::abandoned)
        phase = phase::refused;
    tell();
}

void handshake::tell() noexcept
{
    if (initiator.shard().is_here())
        changed.set();
    else
        told_.send(initiator.shard(), shared_from_this());
}

void handshake::go_to(reactor& shard, std::string name) noexcept
{
    listener_ = std::move(name);
    offered_.send(shard, shared_from_this());
}

// The listener may have gone since, and the initiator too.
void handshake::arrived() noexcept
{
    if (phase != phase::asking)
        return;
    const auto& listeners = initiator.fabric().listeners();
    const auto found = listeners.find(listener_);
    if (found == listeners.end() || !found->second->context().shard().is_here())
        refuse(nobody_listens());
    else if (!found->second->offer(shared_from_this()))
        refuse(not_taken());
}

arrived_peer::~arrived_peer()
{
    if (handshake_ != nullptr)
        handshake_->refuse(refused("the peer did not answer the request"));
}

// --- request ---

request::~request()
{
    handshake_->refuse(refused("the peer did not answer the request"));
    if (made_pair_ != nullptr)
        made_pair_->watch(nullptr);
}

task<result<std::unique_ptr<verbs::queue_pair>>> request::make_queue_pair(verbs::protection_domain& d,
                                                                          const verbs::queue_pair_options& o)
{
    if (!context_.owns(d))
        co_return error(std::errc::invalid_argument, "a protection domain of another device");
    if (std::exchange(made_, true))
        co_return error(std::errc::invalid_argument, "a connect request makes one queue pair");
    auto q = std::make_unique<queue_pair>(context_, static_cast<loop::domain&>(d), o,
                                          handshake_->initiator_name, handshake_->initiator_address);
    made_pair_ = q.get();
    q->watch(&made_pair_);
    co_return std::unique_ptr<verbs::queue_pair>(std::move(q));
}

task<result<void>> request::accept(const verbs::connect_options& o)
{
    if (!made_)
        co_return error(std::errc::invalid_argument, "make_queue_pair() comes before accept()");
    if (made_pair_ == nullptr)
        co_return error(std::errc::connection_aborted, "the queue pair has ended, or was accepted");
    std::vector<std::byte> data(o.private_data.begin(), o.private_data.end());
    queue_pair& q = *std::exchange(made_pair_, nullptr);
    q.watch(nullptr);
    handshake& h = *handshake_;
    error failure;
    if (o.private_data.size() > context_.query().max_private_data)
        failure = error(std::errc::message_size, "private data longer than the provider carries",
                        o.private_data.size());
    else if (!context_.present())
        failure = error(std::errc::no_such_device, "the device was removed");
    else if (h.phase != handshake::phase::asking)
        failure = error(std::errc::connection_aborted, "the peer has given up");
    if (failure.code()) {
        h.refuse(refused("the peer could not accept"));
        q.kill(failure);
        co_return failure;
    }
    const std::uint32_t limit = context_.query().max_outstanding_reads;
    const std::uint32_t answered =
        context_.query().bounds_peer_reads ? o.responder_resources : h.initiator_depth;
    h.accept(q, std::min({o.initiator_depth, h.responder_resources, limit}), std::min(answered, limit),
             std::move(data));
    co_return result<void>();
}

task<result<void>> request::reject(std::span<const std::byte> data)
{
    if (made_)
        co_return error(std::errc::invalid_argument, "reject() takes a request without a queue pair");
    if (data.size() > context_.query().max_private_data)
        co_return error(std::errc::message_size, "private data longer than the provider carries",
                        data.size());
    std::vector<std::byte> copied(data.begin(), data.end());
    handshake_->refuse(refused("the peer rejected the connection"), std::move(copied));
    co_return result<void>();
}

// --- listener ---

listener::listener(context_impl& c, std::string name, bool registered)
    : context_(c), name_(std::move(name)), registered_(registered)
{
    if (registered_)
        c.fabric().listeners().emplace(name_, this);
}

void listener::close() noexcept
{
    if (std::exchange(closed_, true))
        return;
    if (registered_)
        context_.fabric().listeners().erase(name_);
    waiting_.clear();
    changed_.set();
}

// Messages between shards bring peers here, from where no exception may leave: a peer for which there is no memory is refused.
bool listener::offer(const std::shared_ptr<handshake>& h) noexcept
{
    if (!context_.present())
        return false;
    try {
        if (const auto& divert = context_.diverted()) {
            std::unique_ptr<verbs::arrival> peer = std::make_unique<arrived_peer>(h);
            divert(peer, *this);
            if (peer == nullptr)
                return true;
            (void)static_cast<arrived_peer&>(*peer).take();
        }
    } catch (...) {
        return false;
    }
    return take(h);
}

bool listener::take(const std::shared_ptr<handshake>& h) noexcept
{
    if (closed_ || !context_.present() || waiting_.size() >= max_waiting)
        return false;
    try {
        waiting_.push_back(std::make_unique<request>(context_, h));
    } catch (const std::bad_alloc&) {
        return false;
    }
    changed_.set();
    return true;
}

task<result<std::unique_ptr<verbs::connect_request>>> listener::next()
{
    for (;;) {
        if (closed_)
            co_return error(std::errc::operation_canceled, "the listener was closed");
        if (!waiting_.empty()) {
            std::unique_ptr<request> r = std::move(waiting_.front());
            waiting_.pop_front();
            if (r->abandoned())
                continue;
            co_return std::unique_ptr<verbs::connect_request>(std::move(r));
        }
        changed_.reset();
        const bool woken = co_await changed_.wait();
        if (!woken)
            co_return error(std::errc::operation_canceled, "the wait for a connection was stopped");
    }
}

result<std::unique_ptr<verbs::listener>> context_impl::listen(std::string_view address)
{
    if (address.empty())
        return error(std::errc::invalid_argument, "a loop address is a name");
    if (fabric().listeners().contains(address))
        return error(std::errc::address_in_use, "another listener has this loop address");
    return std::unique_ptr<verbs::listener>(std::make_unique<listener>(*this, std::string(address), true));
}

result<std::unique_ptr<verbs::listener>> context_impl::listen_adopted(std::string_view url)
{
    return std::unique_ptr<verbs::listener>(std::make_unique<listener>(*this, std::string(url), false));
}

void context_impl::adopt(std::unique_ptr<verbs::arrival> peer, verbs::listener& where) noexcept
{
    const auto h = static_cast<arrived_peer&>(*peer).take();
    if (!static_cast<listener&>(where).take(h))
        h->refuse(not_taken());
}

// --- initiator ---

task<result<std::unique_ptr<verbs::queue_pair>>> context_impl::connect(std::string_view address,
                                                                       verbs::protection_domain& d,
                                                                       const verbs::connect_options& o,
                                                                       std::vector<std::byte>& reply)
{
    if (!owns(d))
        co_return error(std::errc::invalid_argument, "a protection domain of another device");
    if (o.private_data.size() > query().max_private_data)
        co_return error(std::errc::message_size, "private data longer than the provider carries",
                        o.private_data.size());
    if (!present())
        co_return error(std::errc::no_such_device, "the device was removed");
    const std::string to(address);
    const asking h(std::make_shared<handshake>(
        *this, device_.options().name + ":" + std::to_string(fabric().stats().connections + 1), o));
    time_limit limit(shard(), shard().clock().now() + o.timeout, h->changed);
    const auto give_up = [&] {
        return limit.passed() ? error(std::errc::timed_out, "connect")
                              : error(std::errc::operation_canceled, "connect was stopped");
    };
    // There and back; a message that is lost for good leaves only the time limit.
    for (const bool there : {true, false}) {
        const duration takes = fabric().is_calm() ? duration::zero() : fabric().path_delay();
        if (takes < duration::zero()) {
            while (!limit.passed() && h->phase != handshake::phase::refused) {
                h->changed.reset();
                const bool woken = co_await h->changed.wait();
                if (!woken)
                    break;
            }
            co_return h->failure.code() ? h->failure : give_up();
        }
        if (takes > duration::zero()) {
            const bool slept = co_await sleep_for(takes);
            if (!slept)
                co_return give_up();
        }
        if (!there)
            break;
        const auto found = fabric().listeners().find(to);
        if (found == fabric().listeners().end())
            co_return nobody_listens();
        if (reactor& there = found->second->context().shard(); !there.is_here())
            h->go_to(there, to);
        else if (!found->second->offer(h.get()))
            co_return not_taken();
        while (h->phase == handshake::phase::asking && !limit.passed()) {
            h->changed.reset();
            const bool woken = co_await h->changed.wait();
            if (!woken)
                break;
        }
        if (h->phase == handshake::phase::asking)
            co_return give_up();
    }
    reply = h->answer;
    if (h->phase == handshake::phase::refused)
        co_return h->failure;
    if (h->responder == nullptr)
        co_return error(std::errc::connection_reset, "the peer ended the connection");
    if (limit.passed())
        co_return give_up();
    auto q = std::make_unique<queue_pair>(*this, static_cast<loop::domain&>(d), o.queue_pair, to, to);
    q->open(h->ord);
    queue_pair& responder = *std::exchange(h->responder, nullptr);
    responder.watch(nullptr);
    queue_pair::link(*q, responder);
    std::unique_ptr<verbs::queue_pair> made = std::move(q);
    co_return made;
}

} // namespace verbena::loop
