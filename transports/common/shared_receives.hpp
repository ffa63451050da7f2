// SPDX-License-Identifier: Apache-2.0
// Shared receive queues of the providers that place in software.
#pragma once

#include "bounded_ring.hpp"

#include <verbena/core/verbs/verbs.hpp>

namespace verbena {

/// `depth` receives; a queue pair takes one when a Send begins.
class shared_receives final : public verbs::shared_receive_queue {
public:
    explicit shared_receives(std::uint32_t depth) : ring_(depth) {}

    result<void> post_receive(std::span<const verbs::receive_request> batch) override
    {
        if (batch.size() > ring_.room())
            return error(std::errc::no_buffer_space, "shared receive queue is full", ring_.size());
        for (const auto& r : batch)
            ring_.push(r);
        return {};
    }
    std::uint32_t standing() const noexcept override { return static_cast<std::uint32_t>(ring_.size()); }
    /// The receive that has waited longest, if any.
    bool take(verbs::receive_request& to) noexcept
    {
        if (ring_.empty())
            return false;
        to = ring_.front();
        ring_.pop();
        return true;
    }

private:
    bounded_ring<verbs::receive_request> ring_;
};

} // namespace verbena
