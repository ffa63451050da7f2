// SPDX-License-Identifier: Apache-2.0
// What the connection manager says of one rdma_cm_id while it is set up.
#pragma once

#include "connection_manager.hpp"

#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/task/event.hpp>

#include <deque>
#include <new>
#include <utility>

namespace verbena::rdma {

/// What the connection manager says of one rdma_cm_id while it is set up.
class cm_events final : public cm_handler, private timer {
public:
    explicit cm_events(reactor& r) noexcept : shard_(r) {}
    void on_cm_event(cm_event& e) noexcept override
    {
        try {
            waiting_.push_back(std::move(e));
        } catch (const std::bad_alloc&) { // whoever waits for it hears of that when time is up
        }
        changed_.set();
    }
    /// The next one; an error when time is up or the task is stopped.
    task<result<cm_event>> next(const char* what, time_point deadline);
    /// What came and was not asked for goes to `to`, as what comes from now on.
    void hand_over(rdma_cm_id* id, cm_handler& to) noexcept;
    bool empty() const noexcept { return waiting_.empty(); }

private:
    void on_timer() noexcept override
    {
        expired_ = true;
        changed_.set();
    }
    reactor& shard_;
    std::deque<cm_event> waiting_;
    event changed_;
    bool expired_ = false;
};

} // namespace verbena::rdma
