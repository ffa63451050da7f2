// SPDX-License-Identifier: Apache-2.0
// The server of RNBD: block devices by name, for clients that come by RTRS. docs/internals/rnbd.md.
#pragma once

#include <verbena/core/client_list.hpp>
#include <verbena/core/log.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/result.hpp>
#include <verbena/protocols/rnbd/wire.hpp>
#include <verbena/protocols/rtrs/server.hpp>
#include <verbena/protocols/storage/block_backend.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::rnbd {

/// A device, as clients may open it.
struct device_options {
    std::string name; ///< what clients ask for: 1 to max_device_name bytes, never looked up in a file system
    storage::block_backend* backend = nullptr; ///< outlives the table and every request
    bool read_only = false;
    client_list clients; ///< none: this host only
    std::string
        session; ///< of this name only; empty: of any. Clients claim their names, so this separates, and protects nothing
};

/// The devices, and who has them open. Any thread, once all were added.
class device_table {
public:
    static constexpr std::size_t max_devices = 4096;

    /// Errors: EINVAL, EEXIST. Before anything is served.
    result<void> add(device_options o);
    std::size_t size() const noexcept { return devices_.size(); }
    const device_options& at(std::size_t i) const noexcept { return devices_[i]->options; }

    /// Whether there is any device that `who` may open.
    bool admits(const rtrs::session_info& who, host_addresses& host) const;
    /// Opens the device of this name; yields its number. Errors: ENOENT (also where the client may not know of it), EACCES, EROFS (to write to
    /// one that is read-only), EPERM (it is open for writing elsewhere).
    result<std::size_t> open(std::string_view name, access_mode mode, const rtrs::session_info& who,
                             host_addresses& host);
    void close(std::size_t i, access_mode mode) noexcept;
    /// How many have it open to write, and to read.
    struct users {
        unsigned writers = 0;
        unsigned readers = 0;
    };
    users users_of(std::size_t i) const noexcept;

private:
    struct device {
        device_options options;
        users open;
    };
    static result<void> admits(const device_options& o, const rtrs::session_info& who, host_addresses& host);

    std::vector<std::unique_ptr<device>> devices_;
    mutable std::mutex mutex_; // of device::open
};

/// Counters of one shard. One writer.
struct server_stats {
    counter reads, writes, flushes, discards, zeroes;
    counter read_bytes, written_bytes;
    counter failed;
    counter opens;
    counter refused_opens;
    log_limiter opens_logged;
};

/// RNBD as RTRS serves it, on one shard. The table and the counters outlive it.
class server final : public rtrs::service {
public:
    static constexpr std::size_t max_open_devices = 1024; ///< of a session

    server(device_table& devices, server_stats& stats) noexcept : devices_(devices), stats_(stats) {}
    result<std::unique_ptr<rtrs::session_handler>> open(const rtrs::session_info& s) override;

private:
    friend class server_session;
    device_table& devices_;
    server_stats& stats_;
    host_addresses host_;
};

metric_registrations expose(metric_registry& registry, const server_stats& s);
/// Devices, and by how many sessions they are open.
metric_registrations expose(metric_registry& registry, const device_table& devices);

} // namespace verbena::rnbd

#pragma GCC visibility pop
