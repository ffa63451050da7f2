// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

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

        /// It changes what only a flush makes safe. The device has had `losses`.
        void changes(std::uint64_t losses) noexcept
        {
            if (!unflushed_since_)
                unflushed_since_ = losses;
        }
        /// Its flush begins, of these changes; changes_back() if it fails, and tells it of no loss.
        std::optional<std::uint64_t> flushes() noexcept
        {
            return std::exchange(unflushed_since_, std::nullopt);
        }
        void changes_back(std::optional<std::uint64_t> since) noexcept
        {
            if (since)
                unflushed_since_ = since;
        }
        /// Whether some of its changes may be among the device's `losses`, and no flush has told it.
        bool may_have_lost(std::uint64_t losses) const noexcept
        {
            return unflushed_since_ && *unflushed_since_ < losses;
        }

    private:
        losses_told& all_;
        std::uint64_t told_;
        std::optional<std::uint64_t> unflushed_since_; // the device's losses then
    };

private:
    std::uint64_t told_ = 0;
};

} // namespace verbena::nbd
