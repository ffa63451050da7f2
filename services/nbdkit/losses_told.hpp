// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace verbena::nbd {

/// How many of a device's losses its NBD clients have been told of. On the device's shard.
class losses_told {
public:
    /// One client, while it is connected.
    class client {
    public:
        /// A loss that nobody has been told of is for the first who flushes.
        explicit client(losses_told& all) noexcept : all_(all), told_(all.told_) {}
        client(const client&) = delete;
        /// It may have written, go before it has been told of a loss, and come again as another.
        ~client() { all_.told_ = std::min(all_.told_, told_); }
        std::uint64_t told() const noexcept { return told_; }
        /// It has just been told of the device's first `losses`.
        void tell(std::uint64_t losses) noexcept { all_.told_ = told_ = losses; }

    private:
        losses_told& all_;
        std::uint64_t told_;
    };

private:
    std::uint64_t told_ = 0;
};

} // namespace verbena::nbd
