// SPDX-License-Identifier: Apache-2.0
// Cancellation within one shard: a source that is asked to stop once, tokens that see it, and
// callbacks that hear it.
//
// std::stop_token would cost a shared allocation and atomics for something that never leaves its
// thread. A request from another shard travels as a message and stops the source over there.
#pragma once

#include <verbena/core/intrusive_list.hpp>

#include <utility>

#pragma GCC visibility push(default)

namespace verbena {

class stop_source;

/// Base of whatever must react when a source is asked to stop. Unlinks itself on destruction. The
/// callback runs on the shard, inside request_stop(); it must only note the fact and wake someone.
class stop_listener : public list_hook {
public:
    /// Called once, on the shard, when the source is asked to stop; the listener is unlinked by then and may
    /// go.
    virtual void on_stop() noexcept = 0;

protected:
    stop_listener() = default;
    ~stop_listener() = default;
};

/// Sees whether a source was asked to stop. Copyable; must not outlive its source. A token without
/// a source never stops.
class stop_token {
public:
    stop_token() = default;
    /// Whether its source was asked to stop; false without a source.
    inline bool stop_requested() const noexcept;
    /// Whether it has a source, so that a stop can come at all.
    bool stop_possible() const noexcept { return source_ != nullptr; }
    /// Registers `listener` until it is destroyed or unlinked; false (and nothing registered) if
    /// stop was requested already.
    inline bool subscribe(stop_listener& listener) const noexcept;

private:
    friend class stop_source;
    explicit stop_token(stop_source* source) noexcept : source_(source) {}
    stop_source* source_ = nullptr;
};

/// Can be asked to stop, once. Not movable: tokens point at it.
class stop_source {
public:
    stop_source() = default;
    stop_source(const stop_source&) = delete;
    stop_source& operator=(const stop_source&) = delete;

    /// A token that sees this source. The source outlives it.
    stop_token token() noexcept { return stop_token(this); }
    /// Whether request_stop() was called.
    bool stop_requested() const noexcept { return stopped_; }
    /// Stops, once: calls all listeners, in the order in which they subscribed, before it returns. Later calls
    /// do nothing. On the shard of those who listen.
    void request_stop() noexcept
    {
        if (std::exchange(stopped_, true))
            return;
        while (stop_listener* listener = listeners_.pop_front())
            listener->on_stop();
    }

private:
    friend class stop_token;
    intrusive_list<stop_listener> listeners_;
    bool stopped_ = false;
};

bool stop_token::stop_requested() const noexcept { return source_ != nullptr && source_->stopped_; }

bool stop_token::subscribe(stop_listener& listener) const noexcept
{
    if (source_ == nullptr)
        return true;
    if (source_->stopped_)
        return false;
    source_->listeners_.push_back(listener);
    return true;
}

} // namespace verbena

#pragma GCC visibility pop
