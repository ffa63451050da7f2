// SPDX-License-Identifier: Apache-2.0
// Who was turned away, and why: one line of the log, and one metric, for all that refuse a peer.
//
//   tell_refusal(refused::export_address, {.peer = "192.0.2.7", .object = "/data"});
//   warning peers: turned away peer=192.0.2.7 export=/data reason=address limit="clients of the export" cure="add ..."
//
// The line names whoever was refused, what was wanted, the rule or limit, and the key of the configuration to change.
// The metric has the reason alone: a label never names a peer. There is one of each for a process, as of the log.
#pragma once

#include <verbena/core/log.hpp>
#include <verbena/core/metrics.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena {

/// Rules and limits by which a peer is refused. Each is a series of verbena_refused_total.
enum class refused : std::uint8_t {
    connection_address,     ///< nothing is served to the address
    connection_security,    ///< a call's security flavor is none that is served
    connection_share,       ///< one peer's share of connections
    connection_handshakes,  ///< the same, before they say what they want
    connection_left_calls,  ///< one peer's share of memory, for calls whose connections have ended
    connection_all,         ///< connections of all peers
    connection_waiting,     ///< the service takes connections too slowly
    connection_descriptors, ///< the process's descriptors
    connection_evicted,     ///< an operator keeps the address out
    export_address,
    export_transport,
    export_port,
    export_read_only,
    export_unknown,      ///< no export of this path
    client_all,          ///< clients of NFS version 4
    client_share,        ///< one peer's share of them
    client_name,         ///< another client has its name
    client_sessions,     ///< sessions of NFS version 4, by whichever limit
    client_opens,        ///< opens, of the client, of its peer or of all
    client_locks,        ///< locks and their owners, likewise
    client_names,        ///< memory for names of owners, likewise
    client_evicted,      ///< an operator keeps the client out
    layout_client,       ///< a data connection of a client that has no layouts
    layout_share,        ///< one client's share of data connections
    session_address,     ///< of RTRS: no device is for the address
    session_name,        ///< another session has its name
    session_connections, ///< one peer's share of connections of RTRS
    session_half_made,   ///< one peer's share of paths that are half made
    session_share,       ///< one peer's share of sessions
    session_all,         ///< sessions of all peers, or paths of a session
    session_peer_memory, ///< one peer's share of memory
    session_memory,      ///< memory of all
    device_unknown,      ///< no device of this name
    device_address,
    device_session, ///< the device is for sessions of another name
    device_read_only,
    device_in_use, ///< another client has it open for writing
    device_count,  ///< devices that a session may have open
    count_
};
/// How many values refused has.
inline constexpr std::size_t refused_count = std::size_t(refused::count_);

/// What a reason means, in words that never vary.
struct refusal_rule {
    std::string_view of; ///< what was refused: connection, export, client, layout, session, device. A label
    std::string_view reason;              ///< a label
    std::string_view limit;               ///< the key, and the table that it stands in
    std::string_view cure;                ///< what to change, and where
    log_level level = log_level::warning; ///< of its line
    bool is_ours = true;                  ///< the peer did not choose the object's name
};
/// The words of a reason, which live as long as the program.
const refusal_rule& rule_of(refused why) noexcept;

/// One refusal. Borrows its texts until the call returns.
struct refusal {
    std::string_view peer;       ///< canonical address, without port
    std::string_view object;     ///< by name: the export's path, the device; of connections the transport
    std::string_view limit = {}; ///< in place of the rule's, which may stand for several keys
    std::string_view cure = {};  ///< likewise
    std::uint64_t most = 0;      ///< the limit's value; 0: it has none
    std::string_view said = {};  ///< more that helps: the port, the user's name of it
};

/// Counts it and writes the line, as often as refusal_lines lets it. Any thread; takes no lock but the log's.
void tell_refusal(refused why, const refusal& r) noexcept;
/// Counts one whose line says more than this has words for. Any thread.
void count_refusal(refused why) noexcept;
/// How often peers of this process were refused so. Any thread.
std::uint64_t refusals(refused why) noexcept;
/// Registers verbena_refused_total. Any thread.
metric_registrations expose_refusals(metric_registry& registry);

/// Which refusals have a line. The same peer, refused the same thing for the same reason, has one a minute; each reason has
/// ten in ten seconds, so that no number of peers fills the disk. What has none is counted, and the next line says how many.
/// Any thread.
class refusal_lines {
public:
    /// the same peer, thing and reason have no other line before
    static constexpr std::chrono::seconds again_after{60};
    static constexpr std::uint32_t burst = 10;          ///< lines of one reason in `interval`
    static constexpr std::chrono::seconds interval{10}; ///< see `burst`

    refusal_lines() noexcept;
    refusal_lines(const refusal_lines&) = delete;
    /// True: a line may be written at `now`; `untold` is how many had none since the last one.
    bool admit(refused why, const refusal& r, std::chrono::steady_clock::time_point now,
               std::uint64_t& untold) noexcept;

private:
    // Each refusal has the place that its hash names, and takes it from another one: that has a line more.
    struct place {
        std::atomic<std::uint64_t> key{0}; // 0: nobody's
        std::atomic<std::chrono::steady_clock::rep> told{0};
        std::atomic<std::uint64_t> untold{0};
    };
    static constexpr std::size_t places = 1024;
    std::array<place, places> places_;
    std::array<log_limiter, refused_count> of_reason_;
};

} // namespace verbena

#pragma GCC visibility pop
