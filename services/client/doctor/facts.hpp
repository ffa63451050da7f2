// SPDX-License-Identifier: Apache-2.0
// What was seen of a host, for rules that need no host.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace verbena::cli {

/// What the system did not say.
inline constexpr std::uint64_t no_limit = UINT64_MAX;

/// As whom the daemon runs, and how much it may have.
struct process_facts {
    std::string whose; ///< "verbenad.service", "process 1234", "this user"
    uid_t uid = 0;
    std::string user;
    std::uint64_t capabilities = 0;         ///< bits of linux/capability.h that it has effective
    bool can_be_acted = true;               ///< this program could look with the rights of that user
    std::uint64_t descriptors = 0;          ///< or no_limit
    std::uint64_t locked_memory = 0;        ///< bytes, or no_limit
    std::vector<pid_t> daemons;             ///< verbenads that run with this file
    std::string unit;                       ///< that serves this file; empty: none does
    std::vector<std::string> mounts_wanted; ///< its RequiresMountsFor=
    bool has_rnic = false;                  ///< an iWARP device of the kernel is there
};

/// Anything that is looked at by a path.
struct path_facts {
    bool is_late = false; ///< it did not answer in time
    int failed = 0;       ///< errno of stat()
};

struct folder_facts : path_facts {
    bool is_directory = false;
    bool is_mounted = false;      ///< something is, at wanted_export::mount_at
    int refused = 0;              ///< errno that the daemon's user gets
    std::string file_system;      ///< "ext4"; a number where it has no name here
    bool is_read_only = false;    ///< it is mounted so
    std::optional<int> handles;   ///< errno of making and opening a handle; nothing: not tried
    std::uint64_t bytes = 0;      ///< of the file system; 0: it does not say
    std::uint64_t free_bytes = 0; ///< for others than root
    std::uint64_t files = 0;
    std::uint64_t free_files = 0;
};

enum class node_kind : std::uint8_t { file, block_device, other };

struct device_facts : path_facts {
    node_kind kind = node_kind::other;
    std::uint64_t bytes = 0;
    int refused = 0;                 ///< errno that the daemon's user gets for what it needs
    std::uint64_t logical_block = 0; ///< of a block device
    std::string mounted_at;
    std::vector<std::string> holders; ///< devices on top of it, or what else has it: "dm-0", "swap"
    std::optional<pid_t> locked_by;   ///< or has the block device open to write; 0 or less: not told
    std::string folder;               ///< that it would be made in
    int folder_failed = 0;            ///< errno, also of a folder that the daemon's user may not write to
};

struct state_facts : path_facts {
    bool is_directory = false;
    uid_t owner = 0;
    mode_t mode = 0;
    std::string file_system;
    bool is_in_memory = false;
    bool is_remote = false;
    std::string made_in;            ///< where it is not there: what is, above it
    int made_failed = 0;            ///< errno that the daemon's user gets for writing there
    std::optional<int> sync_failed; ///< errno of a sync there, 0: it works; nothing: not tried
    std::chrono::milliseconds sync_took{0};
    std::optional<pid_t> database_held_by;
};

struct port_holder {
    pid_t pid = 0; ///< 0: not told
    std::string name;
};
/// Of one listener, which may be several addresses.
struct listener_facts {
    std::string unresolved; ///< why its name is no address
    bool is_late = false;
    int failed = 0;                     ///< errno of bind()
    std::string address;                ///< where it failed
    std::vector<std::string> addresses; ///< all, without ports
    std::vector<port_holder> holders;
};

struct gid_facts {
    std::uint32_t index = 0;
    std::string type; ///< "RoCE v2", ...
    std::string interface;
    std::vector<std::string> addresses;
};
struct rdma_port_facts {
    std::string device;
    std::uint32_t port = 0;
    bool is_ethernet = false;
    bool is_iwarp = false;
    bool is_active = false;
    std::string state;
    std::uint32_t mtu = 0; ///< the active one
    std::vector<gid_facts> gids;
    std::string preferred; ///< GID type that the connection manager takes, where it tells: "RoCE v1"
};

/// How large packets get to a peer and back.
struct route_facts {
    std::string peer;   ///< its address
    std::string failed; ///< why nothing is known
    std::string source; ///< own address by the route
    std::string interface;
    std::uint32_t mtu = 0;        ///< of the interface
    std::uint32_t passes = 0;     ///< the largest packet that was answered whole; 0: none was
    std::uint32_t comes_back = 0; ///< the largest piece of its answer; 0: not told
};

struct host_facts {
    process_facts process;
    std::vector<folder_facts> folders;     ///< of wanted_host::exports
    std::vector<device_facts> devices;     ///< likewise
    std::vector<listener_facts> listeners; ///< likewise
    std::optional<state_facts> state;
    bool has_rdma = false; ///< this build can see RDMA devices
    std::vector<rdma_port_facts> rdma;
    std::map<std::string, std::uint32_t> interface_mtus;
    std::optional<route_facts> route; ///< to --peer
};

} // namespace verbena::cli
