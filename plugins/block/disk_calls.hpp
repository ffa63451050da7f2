// SPDX-License-Identifier: Apache-2.0
// What may wait for a disk while a device is opened, measured or closed.
//
// The problem: a disk that hangs answers neither open() nor close(), and no thread can be called back from there. So each
// device has a lane of its own for such calls, and whoever needs an answer waits for a time at most.
#pragma once

#include "device_config.hpp"

#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/reactor/run_within.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/result.hpp>
#include <verbena/protocols/storage/module.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace verbena::block {

/// Set when a device has been closed. Any thread.
using closed_flag = std::shared_ptr<const std::atomic<bool>>;

/// A device that is served, or was until a reload removed it.
struct served_device {
    device_config config;
    /// Of the one with the configuration before, too. Its lane closes it when the last who has it lets go, so that nobody
    /// waits for a disk by that.
    std::shared_ptr<storage::opened_block> block;
    closed_flag is_closed;
    /// While a question for its size is under way. Likewise.
    std::shared_ptr<std::atomic<bool>> is_asked;
    std::size_t number = 0; ///< in the table of devices
};
using served_list = std::vector<std::shared_ptr<served_device>>;

/// On threads that are no shard's.
class disk_calls {
public:
    static constexpr std::chrono::milliseconds usual_patience{5000};
    static constexpr std::chrono::milliseconds usual_turn{50};

    /// `patience`: how long a disk may take; `turn`: before the next one is opened beside it. Both others outlive this.
    disk_calls(runtime& shards, metric_registry& metrics, std::chrono::milliseconds patience = usual_patience,
               std::chrono::milliseconds turn = usual_turn) noexcept
        : shards_(shards), metrics_(metrics), patience_(patience), turn_(turn)
    {
    }

    /// Opens them in their order, and goes on from one that hangs after `turn`, so that disks that hang cost one `patience`
    /// together. Throws config_error or start_error for the first in their order that can't be opened, with its place.
    /// Those that could be opened are closed again then, which is waited for as in close(). Opens none beside a disk that
    /// has not answered an earlier call for `patience`.
    served_list open(std::span<const device_config> wanted);
    /// How large `d` is now. ETIMEDOUT: the disk does not answer; EBUSY: it still owes the answer before. `d.block` has a size.
    result<std::uint64_t> size_there(const served_device& d);
    /// Lets all of them go, and waits until they are closed, for `patience` at most. Nobody else has
    /// one. Those that are nothing are passed over.
    void close(served_list devices) const noexcept;
    std::chrono::milliseconds patience() const noexcept { return patience_; }

private:
    blocking_pool& lane_of(const device_config& d);

    runtime& shards_;
    metric_registry& metrics_;
    const std::chrono::milliseconds patience_, turn_;
    std::mutex lanes_mutex_;
    std::map<std::string, blocking_pool*> lanes_; // by device: one that comes back has its own again
};

} // namespace verbena::block
