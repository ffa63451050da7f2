// SPDX-License-Identifier: Apache-2.0
// Shared receive queues of the providers that place in software.
#pragma once

#include "bounded_ring.hpp"

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/verbs/verbs.hpp>

namespace verbena {

/// A queue pair that waits for a receive. It leaves the list when it ends.
class receive_waiter : public list_hook {
public:
    /// Its receive has been posted. Called inside post_receive(): it only notes it.
    virtual void give(const verbs::receive_request& r) noexcept = 0;

protected:
    ~receive_waiter() = default;
};

/// `depth` receives; a queue pair takes one when a Send begins.
class shared_receives final : public verbs::shared_receive_queue {
public:
    explicit shared_receives(const verbs::shared_receive_queue_options& o) : ring_(o.depth), supply_(o.supply)
    {
    }

    result<void> post_receive(std::span<const verbs::receive_request> batch) override
    {
        if (batch.size() > ring_.room())
            return error(std::errc::no_buffer_space, "shared receive queue is full", ring_.size());
        for (const auto& r : batch) {
            if (receive_waiter* w = waiting_.pop_front())
                w->give(r);
            else
                ring_.push(r);
        }
        return {};
    }
    std::uint32_t standing() const noexcept override { return static_cast<std::uint32_t>(ring_.size()); }

    /// Receives come when they are needed, so a queue pair waits for one.
    bool is_on_demand() const noexcept { return supply_ != nullptr; }
    /// The receive that has stood longest, or one that is supplied now; false if there is none.
    bool take(verbs::receive_request& to) noexcept
    {
        if (ring_.empty() &&
            supply_ != nullptr) // also if others wait: what is posted is theirs, and then somebody asks again
            supply_->receive_wanted();
        return take_standing(to);
    }
    bool take_standing(verbs::receive_request& to) noexcept
    {
        if (ring_.empty())
            return false;
        to = ring_.front();
        ring_.pop();
        return true;
    }
    /// `w` gets the next receive that is posted and that nobody has waited for longer.
    void wait(receive_waiter& w) noexcept
    {
        if (!w.is_linked())
            waiting_.push_back(w);
    }
    /// What take() gave, unused. With a supply.
    void give_back(const verbs::receive_request& r) noexcept
    {
        if (receive_waiter* w = waiting_.pop_front())
            w->give(r);
        else
            supply_->receive_returned(r.id);
    }

private:
    bounded_ring<verbs::receive_request> ring_;
    verbs::receive_supply* const supply_;
    intrusive_list<receive_waiter> waiting_;
};

} // namespace verbena
