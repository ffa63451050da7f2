// SPDX-License-Identifier: Apache-2.0
// What verbenad shall do: filled from the command line or a TOML file, then checked and completed.
#pragma once

#include "../device_choice.hpp"
#include "../suggestion.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/reactor.hpp>
#include <verbena/core/runtime.hpp>
#include <verbena/core/slab.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::nfs {
class client_list;
}

namespace verbena::daemon {

/// A setting that can't be used. what() names the setting, the rule it broke and the cure.
class config_error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// The numbers that a setting takes. Files, the command line and complete() all ask here.
struct number_range {
    std::uint64_t low;
    std::uint64_t high;
    constexpr bool holds(std::uint64_t value) const noexcept { return value >= low && value <= high; }
    /// "a number from 1 to 256".
    std::string text() const;
};
namespace ranges {
inline constexpr number_range shards{1, runtime::max_shards};
inline constexpr number_range spin_microseconds{0, 1'000'000};
inline constexpr number_range memory_mib{64, std::uint64_t(1) << 20};
inline constexpr number_range blocking_threads{1, blocking_pool::max_threads};
inline constexpr number_range drain_seconds{0, 3600};
inline constexpr number_range rdma_read_seconds{1, 3600};
/// setfsuid() and its like take the number behind the last one for "no change".
inline constexpr number_range id{0, UINT32_MAX - 1};
} // namespace ranges

/// Where a setting stands in a file: "FILE:LINE:COLUMN: ", empty if it was an option. What is written the same in
/// another place is the same.
struct file_place {
    std::string text;
    bool operator==(const file_place&) const { return true; }
};

/// One exported directory, as written.
struct export_config {
    static constexpr std::uint32_t nobody = 65534;

    std::string directory; ///< absolute once completed; empty for a back end without one
    std::string pseudo;    ///< what clients mount; empty: not written
    std::string backend = "posixfs";
    std::vector<std::string> clients;    ///< "*", addresses, CIDR; none: this host only
    std::vector<std::string> transports; ///< none: all
    bool read_only = false;
    bool root_squash = true;
    bool all_squash = false;
    bool secure = false;
    bool crossmnt = false;
    bool async = false;
    /// posixfs's file handles: "auto", "kernel", "path".
    std::string handles = "auto";
    std::uint32_t anonuid = nobody;
    std::uint32_t anongid = nobody;
    file_place place = {};
    bool operator==(const export_config&) const = default;
};

/// Back ends and transports that an export may name.
inline constexpr std::string_view known_backends[] = {"memfs", "posixfs"};
inline constexpr std::string_view known_transports[] = {"iwarp", "rdma", "tcp"};

/// What `handles` may be.
inline constexpr std::string_view known_handles[] = {"auto", "kernel", "path"};

/// "tcp://127.0.0.1:2049", "rdma://192.0.2.1:20049?device=mlx5_0:1".
struct listen_url {
    std::string scheme;
    std::string host; ///< a name or an address without brackets; "*" for every address
    std::uint16_t port = 0;
    device_choice device = {}; ///< of rdma: the address must lead to it, peers must come by it
    std::string text() const;
    /// "host:port" or "[v6]:port".
    std::string address() const;
    bool operator==(const listen_url&) const = default;
};
/// The port may be left out: 2049 for tcp, 20049 for iwarp and rdma. Port 0 takes a free one. Throws config_error.
listen_url parse_listen_url(std::string_view text);
/// The device that each rdma:// listener names, with the port if they agree on it too; empty if they don't.
device_choice common_device(const std::vector<std::string>& listen);

enum class rpcbind_mode : std::uint8_t { automatic, no };

struct config {
    static constexpr unsigned max_default_shards = 8;

    std::vector<export_config> exports;
    std::vector<std::string> listen;        ///< URLs; none: iwarp and tcp on 127.0.0.1
    std::vector<std::string> listen_places; ///< of those of a file, as file_place has them
    rpcbind_mode rpcbind = rpcbind_mode::automatic;
    bool allow_public = false;
    std::uint64_t rdma_read_seconds = 30;
    bool iwarp_crc = false; ///< asked for; a peer that asks gets it anyway

    std::string metrics = "127.0.0.1:9464"; ///< "off": none
    std::string metrics_place;
    std::string listen_place(std::size_t i) const
    {
        return i < listen_places.size() ? listen_places[i] : std::string();
    }

    std::string state;              ///< empty: /var/lib/verbena for root, else $XDG_STATE_HOME/verbena
    std::optional<unsigned> shards; ///< none: one per CPU, at most max_default_shards
    wait_policy policy = wait_policy::adaptive;
    std::uint64_t spin_microseconds = 50;
    bool pin = false;
    std::uint64_t memory_mib = 512;
    verbena::huge_pages huge_pages = verbena::huge_pages::automatic;
    unsigned blocking_threads = 8;
    std::uint64_t drain_seconds = 10;
    verbena::log_level log_level = verbena::log_level::info;
};

/// Runs `f`; a config_error of it then tells the place too.
template<class F>
decltype(auto) at_place(const std::string& place, F f)
{
    try {
        return f();
    } catch (const config_error& e) {
        throw config_error(place + e.what());
    }
}

/// Who may connect to an export. Throws config_error for an entry that is neither "*", an address nor a prefix.
nfs::client_list clients_of(const export_config& e);

/// Fills in what was left out (pseudo-path, listeners, state directory, shards), makes directories
/// absolute, and throws config_error for what can't work together.
void complete(config& c);

} // namespace verbena::daemon
