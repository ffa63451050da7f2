// SPDX-License-Identifier: Apache-2.0
// The common half of event, semaphore, channel and sleep: coroutines of one shard waiting in a list,
// woken through the run queue, cancellable by the stop token of their context.
#pragma once

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/task.hpp>

#include <cassert>
#include <coroutine>

#pragma GCC visibility push(default)

namespace verbena::detail {

/// One suspended coroutine. Lives in the coroutine's frame.
class waiter : public list_hook {
public:
    waiter() = default;

    /// Suspends `h` on `queue`, which is that of `object`; false if its context was stopped already.
    template<class Promise>
    bool suspend(intrusive_list<waiter>& queue, std::coroutine_handle<Promise> h, wait_kind kind,
                 const void* object) noexcept
    {
        prepare(h);
        check_queue(queue);
        if (context_ != nullptr && !context_->stop.subscribe(listener_)) {
            stopped_ = true;
            return false;
        }
        mark_.set(h, kind, object);
        queue.push_back(*this);
        return true;
    }
    /// Suspends `h` on `queue` whatever its context's stop token says: for waits whose end is certain
    /// and whose memory something else still writes to.
    template<class Promise>
    void suspend_shielded(intrusive_list<waiter>& queue, std::coroutine_handle<Promise> h, wait_kind kind,
                          const void* object) noexcept
    {
        prepare(h);
        check_queue(queue);
        mark_.set(h, kind, object);
        queue.push_back(*this);
    }
    template<class Promise>
    void prepare(std::coroutine_handle<Promise> h) noexcept
    {
        handle_ = h;
        context_ = h.promise().context();
        assert(shard().is_here() && "a task awaits on another thread than its shard's");
    }
    /// Takes the coroutine off its list and queues it to run. Never inline: a poll must not resume.
    void wake() noexcept
    {
        unlink();
        listener_.unlink();
        mark_.clear();
        shard().post(handle_);
    }
    reactor& shard() const noexcept
    {
        return context_ != nullptr && context_->shard != nullptr ? *context_->shard : *reactor::current();
    }
    const task_context* context() const noexcept { return context_; }
    /// True if the wait ended by the stop token rather than by its cause.
    bool stopped() const noexcept { return stopped_; }

private:
    static void check_queue([[maybe_unused]] intrusive_list<waiter>& queue) noexcept
    {
        assert((queue.empty() || queue.front()->shard().is_here()) &&
               "tasks of two shards wait for one event, semaphore or channel, which is one shard's");
    }

    class listener final : public stop_listener {
    public:
        explicit listener(waiter& w) noexcept : waiter_(w) {}
        void on_stop() noexcept override
        {
            waiter_.stopped_ = true;
            waiter_.wake();
        }

    private:
        waiter& waiter_;
    };

    std::coroutine_handle<> handle_;
    const task_context* context_ = nullptr;
    wait_mark mark_;
    bool stopped_ = false;
    listener listener_{*this};
};

} // namespace verbena::detail

#pragma GCC visibility pop
