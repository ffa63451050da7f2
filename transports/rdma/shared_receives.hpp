// SPDX-License-Identifier: Apache-2.0
// A device's shared receive queue, and which receive each of its entries is.
#pragma once

#include "domain.hpp"

#include <utility>
#include <vector>

namespace verbena::rdma {

class shared_receives final : public verbs::shared_receive_queue, private device_resident {
public:
    shared_receives(domain& d, std::size_t part, std::uint32_t depth);
    ~shared_receives() override;
    /// Blocks; any thread.
    result<void> create() noexcept;
    /// create() succeeded: it is the device's to take back from now on. Errors: ENODEV, the device has gone.
    result<void> settle() noexcept;

    result<void> post_receive(std::span<const verbs::receive_request> batch) override;
    std::uint32_t standing() const noexcept override
    {
        return static_cast<std::uint32_t>(ids_.size() - free_.size());
    }
    ibv_srq* handle() const noexcept { return srq_; }
    std::size_t part() const noexcept { return part_; }
    const domain& of() const noexcept { return domain_; }
    /// The receive of `slot` is over; yields its id.
    std::uint64_t take(std::uint32_t slot) noexcept
    {
        free_.push_back(slot);
        return ids_[slot];
    }
    std::uint32_t depth() const noexcept { return static_cast<std::uint32_t>(ids_.size()); }

private:
    ibv_srq* surrender() noexcept override { return std::exchange(srq_, nullptr); }

    domain& domain_;
    std::size_t part_;
    domain_part& home_;
    ibv_srq* srq_ = nullptr;
    std::vector<std::uint64_t> ids_;
    std::vector<std::uint32_t> free_;
};

} // namespace verbena::rdma
