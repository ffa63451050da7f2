// SPDX-License-Identifier: Apache-2.0
#include "cm_events.hpp"

namespace verbena::rdma {

task<result<cm_event>> cm_events::next(const char* what, time_point deadline)
{
    expired_ = false;
    shard_.timers().arm(*this, deadline);
    while (waiting_.empty()) {
        changed_.reset();
        const bool woken = co_await changed_.wait();
        if (!woken || (expired_ && waiting_.empty())) {
            timer::cancel();
            co_return error(woken ? std::errc::timed_out : std::errc::operation_canceled, what);
        }
    }
    timer::cancel();
    cm_event e = std::move(waiting_.front());
    waiting_.pop_front();
    co_return std::move(e);
}

void cm_events::hand_over(rdma_cm_id* id, cm_handler& to) noexcept
{
    id->context = &to;
    for (cm_event& e : waiting_)
        to.on_cm_event(e);
    waiting_.clear();
}

} // namespace verbena::rdma
