// SPDX-License-Identifier: Apache-2.0
// Verbs by rdma-core: InfiniBand, RoCE and iWARP devices, the kernel's software ones too. docs/internals/rdma.md.
//
// Here only when Meson found libibverbs and librdmacm (option `rdma`); VERBENA_HAS_RDMA then is 1.
#pragma once

#include <verbena/core/metrics.hpp>
#include <verbena/core/reactor/blocking.hpp>
#include <verbena/core/verbs/verbs.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::rdma {

/// What grants are made by, from the least to the best.
enum class grant_kind : std::uint8_t {
    region,        ///< a registration of its own
    type_1_window, ///< bound, by any queue pair of the domain, to memory that is registered
    type_2_window, ///< the same for one queue pair alone; both ends can invalidate it by a work request
};
/// For people and metrics. A literal.
std::string_view to_string(grant_kind k) noexcept;

/// Which device a context uses, and how.
struct options {
    /// The one device to use, as `verbena doctor` names it; empty: whichever the address leads to. With one,
    /// query() tells what it can do, else what all devices can.
    std::string device;
    /// Its port; 0: any.
    std::uint32_t port = 0;
    /// The own address of connections that are made, in digits and without a port; empty: one of `device`, if that is
    /// named, else as the route goes. Device, port and GID follow from it: the connection manager takes nothing else.
    std::string source;
    /// Grants are made by these alone; empty: by the best that the device has.
    std::optional<grant_kind> grants;
    /// How long an orderly close waits for what was posted.
    duration close_timeout = std::chrono::seconds(2);
    std::size_t max_waiting = 1024; ///< peers that a listener keeps for next(); those beyond are rejected
    /// Sees each peer before the listener does; takes it (for another shard) or leaves it. Called in the poll phase.
    std::function<void(std::unique_ptr<verbs::arrival>&)> divert;
};

/// Why a connection was refused or ended. Bounded label of the metrics.
enum class end_cause : std::uint8_t {
    orderly,          ///< by DISCONNECTED between messages
    completion_error, ///< a work request failed; the queue pair with it
    device_removed,
    rejected,        ///< the service or the peer said no
    other_device,    ///< the peer came by another device or port than the one chosen
    waiting_crowded, ///< the service accepts too slowly
    setup_failed,    ///< a peer that did not come through connection set-up
    local,           ///< killed by this end
    count_
};
/// A label of the metrics. A literal.
std::string_view to_string(end_cause c) noexcept;

/// What a device told without being asked. Bounded label of the metrics.
enum class device_event : std::uint8_t {
    port_down,
    port_up,
    address_change,         ///< of GIDs, LID, P_Keys, or the subnet manager
    queue_pair_error,       ///< it ends, if nobody says why within 100 ms
    completion_queue_error, ///< all its queue pairs end
    shared_receive_event,   ///< an error or the limit of a shared receive queue
    device_fatal,           ///< all its queue pairs end
    removed,                ///< all its queue pairs end; listeners wait for its return
    other,
    count_
};
/// A label of the metrics. A literal.
std::string_view to_string(device_event e) noexcept;

/// Counters of one context. One writer; any thread may read.
struct stats {
    /// connections that ended, and peers that were refused, by end_cause
    std::array<std::atomic<std::uint64_t>, std::size_t(end_cause::count_)> ends{};
    std::atomic<std::uint64_t> accepted{0};             ///< peers that were taken
    std::atomic<std::uint64_t> connected{0};            ///< connections that this end made
    std::atomic<std::uint64_t> active{0};               ///< connections that stand now
    std::atomic<std::uint64_t> stale_completions{0};    ///< of queue pairs that are gone; never followed
    std::atomic<std::uint64_t> registered_bytes{0};     ///< that are registered now
    std::atomic<std::uint64_t> registrations_failed{0}; ///< since the start
    std::atomic<std::uint64_t> window_binds{0};  ///< binds of nothing, which unbind, are not among them
    std::atomic<std::uint64_t> region_grants{0}; ///< grants that took a registration of their own
    std::atomic<std::uint64_t> doorbells{0};     ///< batches posted: ibv_post_send calls, or ibv_wr_complete
    std::atomic<std::uint64_t> extended{0};      ///< of those connected, whose batches go by ibv_wr_*
    /// Each is counted by the shard that read it; `removed` by each shard that used the device.
    std::array<std::atomic<std::uint64_t>, std::size_t(device_event::count_)> device_events{};
};

/// Registers what `s` counts, which outlives what it returns; once for each context. Any thread.
metric_registrations expose(metric_registry& registry, const stats& s);
/// Registers no more than its ends: of a context that takes connections in for others, which count them.
metric_registrations expose_ends(metric_registry& registry, const stats& s);

/// The RDMA devices on one shard. Also the home of what only rdma-core has.
class context : public verbs::context {
public:
    /// What this context counts, as long as it lives.
    virtual const rdma::stats& counters() const noexcept = 0;
    /// A listener without an address of its own: it serves the peers given to adopt().
    virtual result<std::unique_ptr<verbs::listener>> listen_adopted(std::string_view url) = 0;
    /// Takes over a peer that another context's listener diverted, for `where`, one of this context's listeners.
    virtual void adopt(std::unique_ptr<verbs::arrival> peer, verbs::listener& where) noexcept = 0;
};

/// Where contexts do what blocks; both outlive them, and several contexts may share them. They may be one pool where nobody connects.
struct lanes {
    blocking_pool& work;     ///< registration, windows, queue pairs and their end
    blocking_pool& connects; ///< siw's connect returns when TCP has connected, which may take minutes
};

/// All RDMA devices of this host, in this process. Its domains and grants are for the connections of all its contexts: keys
/// work on each device that a domain is connected by. Destroyed after these, which go after its domains.
class host : public verbs::device {
public:
    /// As rdma::make_context(); one for each shard.
    virtual result<std::unique_ptr<context>> make_context(reactor& shard, lanes where,
                                                          const options& o = {}) = 0;
};
/// Looks at no device yet: query() tells what the first context can do, from its making on.
std::unique_ptr<host> make_host();

/// A host with one context, and with which it goes: for a program of one shard.
///
/// Makes it for `shard`; call it on the shard's thread or before it runs. Errors: ENODEV when there is no RDMA device, or not the one named; EOPNOTSUPP when it has not
/// the windows of options::grants; ENOENT without the kernel's connection manager, with the cure. On siw a
/// post costs three system calls less in a process that ignores SIGPIPE, which siw's sends raise.
result<std::unique_ptr<context>> make_context(reactor& shard, lanes where, const options& o = {});

/// An address of a port, as a report shows it.
struct gid_report {
    std::uint32_t index = 0;            ///< in the port's table
    std::string text;                   ///< as an IPv6 address is written
    std::string type;                   ///< "InfiniBand", "RoCE v1", "RoCE v2", "iWARP"
    std::string interface;              ///< of the network; empty: not known
    std::vector<std::string> addresses; ///< that lead to it; of RoCE the one that it is made of
};
/// A port of a device, as a report shows it.
struct port_report {
    std::uint32_t number = 0;     ///< from 1
    std::string link_layer;       ///< "Ethernet", "InfiniBand"
    std::string state;            ///< "active", "down", ...
    bool active = false;          ///< whether it carries data now
    std::uint32_t mtu = 0;        ///< bytes of a packet
    std::vector<gid_report> gids; ///< the addresses of the port that are in use
};
/// A device, as a report shows it.
struct device_report {
    std::string name;                       ///< as `verbena doctor` and options::device have it
    std::string transport;                  ///< "InfiniBand", "RoCE", "iWARP"
    std::string firmware;                   ///< its version
    std::string state;                      ///< of the first port that is active, else of port 1
    std::uint32_t mtu = 0;                  ///< bytes, of that port
    std::vector<port_report> ports;         ///< all of it
    verbs::capabilities can;                ///< what query() says of it
    std::uint32_t max_queue_pairs = 0;      ///< that the device may have
    std::uint32_t max_memory_regions = 0;   ///< likewise
    std::uint32_t max_memory_windows = 0;   ///< likewise
    grant_kind grants = grant_kind::region; ///< what grants are made by there
};
/// What is there; blocks. Empty without a device. Any thread.
std::vector<device_report> devices();
/// What rdma-core says of fork(): "not needed", "enabled", "disabled".
std::string_view fork_support() noexcept;

} // namespace verbena::rdma

#pragma GCC visibility pop
