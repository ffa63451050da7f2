// SPDX-License-Identifier: Apache-2.0
// A provider that breaks its promises in one way: loop behind wrappers. For what the kit makes of it.
#pragma once

#include "conformance.hpp"

#include <verbena/core/reactor/timer.hpp>
#include <verbena/core/task/event.hpp>
#include <verbena/core/task/sleep.hpp>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace verbena::conformance {

/// How a provider lies or fails.
struct fault {
    enum class sends {
        go,
        are_lost,    ///< nothing is told of them
        seem_to_go,  ///< each is a success, and the peer gets none
        throw_later, ///< of a responder's queue pair: the first one goes
    };
    std::function<void(verbs::capabilities&)> says; // of what it can
    bool refuses = false;                           // every connect
    bool hangs = false;                             // in every connect, until it is stopped
    duration delay{0};                              // of every connect, once it stands
    bool deaf = false;                              // close() of a listener wakes nobody
    bool ticks = false;                             // a timer arms itself for ever
    bool makes_none = false;                        // make_queue_pair() throws std::bad_alloc
    // Of queue pairs:
    sends posted = sends::go;
    bool stays = false;           // disconnect() does nothing
    bool places_late = false;     // its destructor writes to the last receive, and completes it
    bool tells_on = false;        // one more completion behind the end
    std::uint64_t adds = 0;       // to ids of completions
    std::uint32_t lengthens = 0;  // receives of this many octets more than came
    std::size_t* count = nullptr; // Sends posted

    bool wraps_queue_pairs() const noexcept
    {
        return posted != sends::go || stays || places_late || tells_on || adds != 0 || lengthens != 0;
    }
};

class faulty_queue_pair final : public verbs::queue_pair, verbs::completion_handler, timer {
public:
    static constexpr std::size_t most_sends =
        50'000; // a check that posts without end would use up all memory

    faulty_queue_pair(std::unique_ptr<verbs::queue_pair> q, const fault& f, reactor& shard, bool responds)
        : real_(std::move(q)), fault_(f), shard_(shard), responds_(responds)
    {
    }
    ~faulty_queue_pair() override
    {
        if (!fault_.places_late || !last_)
            return;
        last_->segment.address[0] = std::byte('!');
        verbs::completion c;
        c.id = last_->id;
        c.opcode = opcode::receive;
        handler_->on_completions({&c, 1});
    }
    void set_handler(verbs::completion_handler* h) noexcept override
    {
        handler_ = h;
        real_->set_handler(this);
    }
    result<void> post_send(std::span<const verbs::send_request> batch) override
    {
        sent_ += batch.size();
        if (fault_.count != nullptr)
            *fault_.count = sent_;
        switch (fault_.posted) {
        case fault::sends::go: break;
        case fault::sends::are_lost: return {};
        case fault::sends::seem_to_go:
            if (sent_ > most_sends)
                return error(std::errc::no_buffer_space, "of the test");
            for (const verbs::send_request& w : batch) {
                verbs::completion c;
                c.id = w.id;
                c.opcode = w.opcode;
                done_.push_back(c);
            }
            shard_.timers().arm(*this, shard_.clock().now());
            return {};
        case fault::sends::throw_later:
            if (responds_ && sent_ > 1)
                throw std::bad_alloc();
            break;
        }
        return real_->post_send(batch);
    }
    result<void> post_receive(std::span<const verbs::receive_request> batch) override
    {
        if (!batch.empty())
            last_ = batch.back();
        return real_->post_receive(batch);
    }
    void disconnect() noexcept override
    {
        if (!fault_.stays)
            real_->disconnect();
    }
    void kill(const error& cause) noexcept override
    {
        real_->kill(cause);
        const verbs::completion c;
        if (fault_.tells_on)
            handler_->on_completions({&c, 1});
    }
    bool connected() const noexcept override { return real_->connected(); }
    verbs::protection_domain& domain() noexcept override { return real_->domain(); }
    std::uint32_t max_reads() const noexcept override { return real_->max_reads(); }
    std::string_view peer_name() const noexcept override { return real_->peer_name(); }
    std::string_view peer_address() const noexcept override { return real_->peer_address(); }

private:
    void on_completions(std::span<const verbs::completion> batch) noexcept override
    {
        std::vector<verbs::completion> told(batch.begin(), batch.end());
        for (verbs::completion& c : told) {
            c.id += fault_.adds;
            if (verbs::is_receive(c.opcode))
                c.length += fault_.lengthens;
        }
        handler_->on_completions(told);
    }
    void on_disconnected(const error& cause) noexcept override { handler_->on_disconnected(cause); }
    void on_timer() noexcept override
    {
        const std::deque<verbs::completion> told = std::exchange(done_, {});
        for (const verbs::completion& c : told)
            handler_->on_completions({&c, 1});
    }

    std::unique_ptr<verbs::queue_pair> real_;
    const fault& fault_;
    reactor& shard_;
    const bool responds_;
    verbs::completion_handler* handler_ = nullptr;
    std::size_t sent_ = 0;
    std::optional<verbs::receive_request> last_;
    std::deque<verbs::completion> done_;
};

inline std::unique_ptr<verbs::queue_pair> with_faults(std::unique_ptr<verbs::queue_pair> q, const fault& f,
                                                      reactor& shard, bool responds)
{
    if (!f.wraps_queue_pairs())
        return q;
    return std::make_unique<faulty_queue_pair>(std::move(q), f, shard, responds);
}

class faulty_request final : public verbs::connect_request {
public:
    faulty_request(std::unique_ptr<verbs::connect_request> r, const fault& f, reactor& shard)
        : real_(std::move(r)), fault_(f), shard_(shard)
    {
    }
    std::span<const std::byte> private_data() const noexcept override { return real_->private_data(); }
    std::string_view peer_address() const noexcept override { return real_->peer_address(); }
    std::string_view peer_name() const noexcept override { return real_->peer_name(); }
    std::uint32_t peer_responder_resources() const noexcept override
    {
        return real_->peer_responder_resources();
    }
    task<result<std::unique_ptr<verbs::queue_pair>>>
    make_queue_pair(verbs::protection_domain& domain, const verbs::queue_pair_options& options) override
    {
        if (fault_.makes_none)
            throw std::bad_alloc();
        auto made = co_await real_->make_queue_pair(domain, options);
        if (!made)
            co_return made.error();
        co_return with_faults(std::move(*made), fault_, shard_, true);
    }
    task<result<void>> accept(const verbs::connect_options& options) override
    {
        return real_->accept(options);
    }
    task<result<void>> reject(std::span<const std::byte> private_data) override
    {
        return real_->reject(private_data);
    }

private:
    std::unique_ptr<verbs::connect_request> real_;
    const fault& fault_;
    reactor& shard_;
};

class faulty_listener final : public verbs::listener {
public:
    faulty_listener(std::unique_ptr<verbs::listener> l, const fault& f, reactor& shard)
        : real_(std::move(l)), fault_(f), shard_(shard)
    {
    }
    task<result<std::unique_ptr<verbs::connect_request>>> next() override
    {
        auto one = co_await real_->next();
        if (!one)
            co_return one.error();
        co_return std::make_unique<faulty_request>(std::move(*one), fault_, shard_);
    }
    void close() noexcept override
    {
        if (!fault_.deaf)
            real_->close();
    }
    std::string local_url() const override { return real_->local_url(); }

private:
    std::unique_ptr<verbs::listener> real_;
    const fault& fault_;
    reactor& shard_;
};

/// A context of loop with that fault.
class faulty_context final : public verbs::context, timer {
public:
    faulty_context(std::unique_ptr<verbs::context> c, const fault& f)
        : real_(std::move(c)), fault_(f), said_(real_->query())
    {
        if (fault_.wraps_queue_pairs())
            said_.grant_per_queue_pair = false; // loop takes queue pairs of its own alone
        if (fault_.says)
            fault_.says(said_);
        if (fault_.ticks)
            on_timer();
    }
    const verbs::capabilities& query() const noexcept override { return said_; }
    reactor& shard() noexcept override { return real_->shard(); }
    verbs::device& device() noexcept override { return real_->device(); }
    result<std::unique_ptr<verbs::listener>> listen(std::string_view address) override
    {
        auto made = real_->listen(address);
        if (!made)
            return made.error();
        return std::make_unique<faulty_listener>(std::move(*made), fault_, shard());
    }
    task<result<std::unique_ptr<verbs::queue_pair>>> connect(std::string_view address,
                                                             verbs::protection_domain& domain,
                                                             const verbs::connect_options& options,
                                                             std::vector<std::byte>& reply) override
    {
        if (fault_.refuses)
            co_return error(std::errc::host_unreachable, "of the test");
        if (fault_.hangs) {
            event never;
            (void)co_await never.wait();
            co_return error(std::errc::operation_canceled, "of the test");
        }
        auto made = co_await real_->connect(address, domain, options, reply);
        if (!made)
            co_return made.error();
        if (fault_.delay != duration::zero())
            (void)co_await sleep_for(fault_.delay);
        co_return with_faults(std::move(*made), fault_, shard(), false);
    }

private:
    void on_timer() noexcept override
    {
        shard().timers().arm(*this, shard().clock().now() + std::chrono::seconds(1));
    }

    std::unique_ptr<verbs::context> real_;
    const fault& fault_;
    verbs::capabilities said_;
};

class faulty_world final : public testing::conformance::subject {
public:
    explicit faulty_world(fault f, const loop::conditions& c = {}) : fault_(std::move(f)), real_({}, c) {}
    reactor& shard() noexcept override { return real_.shard(); }
    std::unique_ptr<verbs::context> make_context(const std::string& name) override
    {
        return std::make_unique<faulty_context>(real_.make_context(name), fault_);
    }
    std::string address() const override { return real_.address(); }

private:
    fault fault_;
    loop_world real_;
};

} // namespace verbena::conformance
