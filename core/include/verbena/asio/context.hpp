// SPDX-License-Identifier: Apache-2.0
// What the adapter keeps with each execution context of Asio's that it meets. For the adapter's other headers.
#pragma once

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/frame_allocator.hpp>

#include <asio/execution/context.hpp>
#include <asio/execution_context.hpp>
#include <asio/query.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>

#pragma GCC visibility push(default)

namespace verbena::detail {

/// A reactor that is nested in an io_context, as what runs beside it in that io_context sees it. On its thread.
class asio_guest {
public:
    /// The reactor was given something to do outside its turn: it gets one.
    virtual void wake() noexcept = 0;

protected:
    ~asio_guest() = default;
};

/// Outlives its context, so that whoever waits for the context can ask whether it is still there. Any thread.
class asio_context {
public:
    /// Calls `f(there)`, false once the context has begun to go, and keeps it from that meanwhile. One caller at a time.
    template<class F>
    void locked(F&& f)
    {
        const std::lock_guard lock(mutex_);
        f(!gone_);
    }
    void go() noexcept
    {
        const std::lock_guard lock(mutex_);
        gone_ = true;
        nested_ = nullptr;
    }
    /// The guest by which `r` is nested in this context, or nullptr. On the thread of `r`.
    asio_guest* guest_of(const reactor& r) const noexcept
    {
        return nested_.load(std::memory_order_acquire) == &r ? guest_ : nullptr;
    }
    /// On the thread of `r`.
    void enter(reactor& r, asio_guest& guest) noexcept
    {
        if (nested_.load(std::memory_order_relaxed) != nullptr)
            return; // one is enough: another is woken by messages
        guest_ = &guest;
        nested_.store(&r, std::memory_order_release);
    }
    void leave(const asio_guest& guest) noexcept
    {
        if (guest_ == &guest)
            nested_.store(nullptr, std::memory_order_release);
    }

private:
    std::mutex mutex_;
    bool gone_ = false;
    std::atomic<reactor*> nested_{nullptr};
    asio_guest* guest_ = nullptr; // of nested_, whose thread alone reads it
};

/// Asio shuts the youngest service down first: this one goes before those whose operations it answers for.
class asio_context_service final : public ::asio::execution_context::service {
public:
    using key_type = asio_context_service;
    static inline ::asio::execution_context::id id;

    explicit asio_context_service(::asio::execution_context& c) : ::asio::execution_context::service(c) {}
    void shutdown() noexcept override { state->go(); }
    const std::shared_ptr<asio_context> state = std::make_shared<asio_context>();
};

inline std::shared_ptr<asio_context> asio_context_of(::asio::execution_context& c)
{
    return ::asio::use_service<asio_context_service>(c).state;
}
template<class Executor>
inline constexpr bool names_asio_context =
    ::asio::can_query<const Executor&, ::asio::execution::context_t>::value ||
    requires(const Executor& e) { e.context(); };

/// nullptr for an executor that names no context.
template<class Executor>
std::shared_ptr<asio_context> asio_context_of_executor(const Executor& e)
{
    if constexpr (::asio::can_query<const Executor&, ::asio::execution::context_t>::value)
        return asio_context_of(::asio::query(e, ::asio::execution::context));
    else if constexpr (names_asio_context<Executor>)
        return asio_context_of(e.context());
    else
        return nullptr;
}

/// What any thread hands over to a shard, once. On the shard's thread it costs no system call where the reactor is in its turn
/// or nested in the context that is named; else it is a message.
///
/// It does not arrive before the thread that handed it over has let go of the reactor: what ends by it may be the last that the
/// reactor is kept for.
class handed_over : public remote_message {
protected:
    handed_over() = default;
    ~handed_over() = default;
    /// Whoever calls it keeps this alive until it returns.
    void hand_over(reactor& r, asio_context* c) noexcept
    {
        if (r.on_its_thread()) {
            if (reactor::current() == &r) {
                arrived();
                return;
            }
            if (asio_guest* guest = c != nullptr ? c->guest_of(r) : nullptr) {
                arrived();
                guest->wake();
                return;
            }
        }
        r.post_remote(*this);
        let_go_.store(1, std::memory_order_release);
        let_go_.notify_one();
    }
    /// On the shard, perhaps in a poll: posts what is to be done.
    virtual void arrived() noexcept = 0;

private:
    void deliver() noexcept final
    {
        // As a rule it has. Else the kernel runs this thread in its place: to spin here would keep it away.
        let_go_.wait(0, std::memory_order_acquire);
        arrived();
    }
    std::atomic<int> let_go_{0};
};

} // namespace verbena::detail

#pragma GCC visibility pop
