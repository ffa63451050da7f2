// SPDX-License-Identifier: Apache-2.0
// What a configuration asks of its host: what `verbena doctor --config` looks at.
#pragma once

#include <verbena/core/module/settings.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace verbena::cli {

/// A setting, and where the file has it.
struct setting_at {
    std::string name;  ///< "nfs.export.directory"
    std::string place; ///< "verbenad.toml:12"; of a default that of its table, or the file alone
};

struct wanted_export {
    std::string pseudo;
    std::string directory;
    std::string mount_at; ///< where something must be mounted; empty: anywhere
    std::string handles;  ///< "auto", "kernel", "path"
    bool read_only = false;
    setting_at directory_is;
    setting_at mount_is;
    setting_at handles_are;
};

/// A device of fileblk: others need nothing of the host.
struct wanted_device {
    std::string name;
    std::string path;
    std::optional<std::uint64_t> size; ///< the file is made so large if there is none
    std::uint64_t block_size = 512;
    bool read_only = false;
    setting_at path_is;
    setting_at size_is;
};

struct wanted_listener {
    std::string scheme; ///< "tcp", "iwarp", "rdma"; "http" of metrics
    std::string host;   ///< a name, an address, or "*"
    std::uint16_t port = 0;
    std::string device; ///< of rdma: the one that the address must lead to
    std::uint32_t device_port = 0;
    setting_at url_is;
    /// "tcp://127.0.0.1:2049".
    std::string text() const;
};

struct wanted_host {
    std::string file;
    std::vector<wanted_export> exports;
    std::vector<wanted_device> devices;
    std::vector<wanted_listener> listeners;
    std::string state; ///< empty: nothing served keeps any
    setting_at state_is;
    bool recovers = false; ///< a database of clients of version 4 is in it
    std::uint64_t memory_mib = 0;
    setting_at memory_is;
    std::optional<std::uint64_t> connections;
    setting_at connections_are;
};

/// `effective`: as `verbenad serve FILE --check` prints it. `written`: the same file as it is read, for the places. Relative paths count
/// from `folder`. What has another form than verbenad prints is left out.
wanted_host what_is_wanted(const setting_values& effective, const setting_values& written,
                           const std::string& file, const std::string& folder);

} // namespace verbena::cli
