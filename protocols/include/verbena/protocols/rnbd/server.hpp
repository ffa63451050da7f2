// SPDX-License-Identifier: Apache-2.0
// The server of RNBD: block devices by name, for clients that come by RTRS. docs/internals/rnbd.md.
#pragma once

#include <verbena/core/intrusive_list.hpp>
#include <verbena/core/log.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/net/client_list.hpp>
#include <verbena/core/reactor/reactor.hpp>
#include <verbena/core/result.hpp>
#include <verbena/protocols/rnbd/wire.hpp>
#include <verbena/protocols/rtrs/server.hpp>
#include <verbena/protocols/storage/block_backend.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::rnbd {

/// A device, as clients may open it.
struct device_options {
    std::string name; ///< what clients ask for: 1 to max_device_name bytes, never looked up in a file system
    storage::block_backend* backend = nullptr; ///< outlives the table and every request
    bool read_only = false;                    ///< opens to write are EROFS
    client_list clients;                       ///< none: this host only
    std::string
        session; ///< of this name only; empty: of any. Clients claim their names, so this separates, and protects nothing
};

/// The devices, and who has them open. Any thread; one at a time adds, changes and removes. A device keeps its number for as long as the
/// table lives, and one of the same name that is added later has it again.
class device_table {
public:
    static constexpr std::size_t max_devices = 4096; ///< that ever were
    static constexpr std::size_t max_changes =
        1024; ///< of one device: what it was stays in memory, as somebody may look at it

    device_table();
    ~device_table();
    device_table(const device_table&) = delete;
    /// Yields its number. Errors: EINVAL, EEXIST; EBUSY: one of this name was removed, and somebody still uses it.
    result<std::size_t> add(device_options o);
    /// Who may open it from now on. What is open is server::look_again()'s. Errors: EINVAL: too many changes, or another name or back end.
    result<void> change(std::size_t i, device_options o);
    /// Nobody opens it from now on. Its back end is used for as long as users_of() tells of any, and until every server has looked again.
    void remove(std::size_t i) noexcept;
    /// Whether remove() was called. Any thread.
    bool is_removed(std::size_t i) const noexcept
    {
        return slot(i).is_removed.load(std::memory_order_acquire);
    }
    /// Nothing if there is none, or it was removed.
    std::optional<std::size_t> find(std::string_view name) const noexcept;
    /// All that there ever were.
    std::size_t size() const noexcept { return size_.load(std::memory_order_acquire); }
    /// As it is now. It stays good, but change() makes another one.
    const device_options& at(std::size_t i) const noexcept
    {
        return *slot(i).options.load(std::memory_order_acquire);
    }

    /// Whether there is any device that `who` may open.
    bool admits(const rtrs::session_info& who, host_addresses& host) const;
    /// Whether there is any that some session at this address may open.
    bool admits(std::string_view address, host_addresses& host) const;
    /// Whether `o` is for `who`. Errors: EACCES.
    static result<void> admits(const device_options& o, const rtrs::session_info& who, host_addresses& host);
    /// Opens the device of this name; yields its number. Errors: ENOENT (also where the client may not know of it), EACCES, EROFS (to write to
    /// one that is read-only), EPERM (it is open for writing elsewhere).
    result<std::size_t> open(std::string_view name, access_mode mode, const rtrs::session_info& who,
                             host_addresses& host);
    /// Undoes an open() of the same mode. Any thread.
    void close(std::size_t i, access_mode mode) noexcept;
    /// How many have it open to write, and to read.
    struct users {
        unsigned writers = 0; ///< sessions that may write
        unsigned readers = 0; ///< sessions that only read
    };
    /// Any thread.
    users users_of(std::size_t i) const noexcept;

private:
    struct device {
        std::atomic<const device_options*> options{nullptr};
        std::atomic<bool> is_removed{false};
        std::vector<std::unique_ptr<const device_options>> all; // of who changes it
        users open;
    };
    const device& slot(std::size_t i) const noexcept { return *slots_[i].load(std::memory_order_relaxed); }
    device& slot(std::size_t i) noexcept { return *slots_[i].load(std::memory_order_relaxed); }
    /// `f(number, options)` of those that were not removed, until it yields true.
    template<class F>
    std::optional<std::size_t> first(F f) const
    {
        const std::size_t n = size();
        for (std::size_t i = 0; i < n; ++i)
            if (!is_removed(i) && f(at(i)))
                return i;
        return std::nullopt;
    }

    // Shards read these without a lock, for each request.
    const std::unique_ptr<std::atomic<device*>[]> slots_;
    std::atomic<std::size_t> size_{0};
    mutable std::mutex mutex_; // of device::open, and of removals beside opens
};

/// Why an operation failed.
enum class failure : std::uint8_t {
    invalid,     ///< EINVAL: a range or a length that is none
    read_only,   ///< EROFS
    unsupported, ///< EOPNOTSUPP
    no_space,    ///< ENOSPC, EDQUOT
    busy,        ///< EBUSY, EAGAIN
    stopped,     ///< ECANCELED: it waited at a filter, and its path ended
    io,          ///< EIO
    other,
    count_
};
/// A label of the metrics. A literal.
std::string_view to_string(failure f) noexcept;

/// What one device did on one shard, which writes.
struct device_counters {
    /// `n` is the device's name.
    explicit device_counters(std::string n) : name(std::move(n)) {}
    static constexpr std::size_t kinds = 5; ///< in the order of storage::block_operation
    const std::string name;                 ///< of the device: a label
    counter operations[kinds];              ///< that have ended, however they did
    log_linear_histogram latency[kinds];    ///< from when its request was read to when the device had done it
    counter read_bytes, written_bytes;      ///< of reads and writes that succeeded
    counter failed[std::size_t(failure::count_)]; ///< by failure
    gauge in_flight;                              ///< requests that the device has now
    /// By device, so that one which fails all the time keeps no other one out of the log; those behind the first
    /// device_series::max_devices share one.
    log_limiter failures_logged{1, std::chrono::seconds(10)};
};

/// The devices that have series of their own, which are the first of the table; the rest is counted together. One shard writes, any
/// thread reads.
class device_series {
public:
    static constexpr std::size_t max_devices = 64; ///< one more counts under "other"

    device_series() = default;
    ~device_series();
    device_series(const device_series&) = delete;
    /// Those of the `number`-th device, which is called `name`. They live as long as this.
    device_counters& of(std::size_t number, const std::string& name);
    /// show(counters) for each that there is.
    template<class Show>
    void each(const Show& show) const
    {
        for (const auto& p : places_) {
            if (const device_counters* c = p.load(std::memory_order_acquire); c != nullptr)
                show(*c);
        }
    }

private:
    std::array<std::atomic<device_counters*>, max_devices + 1> places_{};
};

/// Counters of one shard. One writer.
struct server_stats {
    counter reads, writes, flushes, discards, zeroes;
    counter read_bytes, written_bytes;
    counter failed;
    counter opens;
    counter refused_opens; ///< all of them, of which:
    counter refused_unknown, refused_not_admitted, refused_read_only, refused_in_use, refused_too_many;
    device_series by_device;
    log_limiter opens_logged;
    log_limiter left_open_logged;
};

class server_session;
/// A session's place among those of its server.
struct session_link : list_hook {
    /// For `s`, whose member it is.
    explicit session_link(server_session& s) noexcept : session(s) {}
    server_session& session;
};

/// RNBD as RTRS serves it: opens the sessions whose home is one shard. The table and the counters outlive it.
class server final : public rtrs::service {
public:
    static constexpr std::size_t max_open_devices = 1024; ///< of a session
    /// A CLOSE is answered EBUSY when operations on its device have not ended after so long. The last of them closes the device.
    static constexpr std::chrono::seconds close_patience{5};

    /// Counts what all shards do in one place: for a server of one shard, or where nobody asks for more.
    server(device_table& devices, server_stats& stats) noexcept : server(devices, {&stats, 1}) {}
    /// What requests of its sessions do on shard i is counted in `of_shards[i]`, or in the last one.
    server(device_table& devices, std::span<server_stats> of_shards) noexcept
        : devices_(devices), stats_(of_shards)
    {
    }
    bool admits(std::string_view peer_address) override { return devices_.admits(peer_address, host_); }
    result<std::unique_ptr<rtrs::session_handler>> open(const rtrs::session_info& s) override;
    /// Takes from its sessions what the table does not give them any more: devices that were removed, are for others now, or are read-only
    /// and open to write. Operations that are under way end first; later ones fail, and the number of the device in its session stays taken
    /// until its client closes it. On its shard.
    void look_again() noexcept;

private:
    friend class server_session;
    intrusive_list<session_link> sessions_;
    server_stats& stats_of(const reactor& shard) const noexcept
    {
        return stats_[std::min<std::size_t>(shard.index(), stats_.size() - 1)];
    }
    device_table& devices_;
    const std::span<server_stats> stats_;
    host_addresses host_;
};

/// Registers what `s` counts, which outlives what it returns. Once for each shard. Any thread.
metric_registrations expose(metric_registry& registry, const server_stats& s);
/// Devices, and by how many sessions they are open.
metric_registrations expose(metric_registry& registry, const device_table& devices);

} // namespace verbena::rnbd

#pragma GCC visibility pop
