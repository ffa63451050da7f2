// SPDX-License-Identifier: Apache-2.0
// Memory that objects have grown while they had much to do, given back when they have nothing.
//
// Steady work must not allocate, so queues and tables keep what they have grown to. A server has thousands of connections, of which
// few are busy at a time but each was once. So whatever grows says so here, and is asked to shrink when it did nothing for a period.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/reactor/timer.hpp>

#pragma GCC visibility push(default)

namespace verbena {

/// An object that has grown.
class grown_object : public list_hook {
public:
    /// Gives back what it does not need. False if it had something to do in this period: it is asked again after the next one.
    virtual bool shrink() noexcept = 0;

protected:
    ~grown_object() = default;
};

/// Of one shard. It wakes nobody while nothing has grown.
class idle_memory final : private timer {
public:
    /// Looks each `period` at what has grown on `shard`, whose reactor outlives it.
    idle_memory(reactor& shard, duration period) noexcept : shard_(shard), period_(period) {}

    /// `o` has grown. Cheap, and may be called again.
    void grown(grown_object& o) noexcept
    {
        if (o.is_linked())
            return;
        all_.push_back(o);
        if (!timer::is_armed())
            shard_.timers().arm(*this, shard_.now() + period_);
    }

private:
    void on_timer() noexcept override
    {
        intrusive_list<grown_object> still;
        while (grown_object* o = all_.pop_front()) {
            if (!o->shrink())
                still.push_back(*o);
        }
        while (grown_object* o = still.pop_front())
            all_.push_back(*o);
        if (!all_.empty())
            shard_.timers().arm(*this, shard_.now() + period_);
    }

    reactor& shard_;
    const duration period_;
    intrusive_list<grown_object> all_;
};

} // namespace verbena

#pragma GCC visibility pop
