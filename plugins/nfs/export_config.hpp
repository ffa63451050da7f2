// SPDX-License-Identifier: Apache-2.0
// One export of the NFS module, as its configuration has it.
#pragma once

#include "../filter_config.hpp"

#include <verbena/core/module/module.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>
#include <verbena/protocols/storage/module.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace verbena::nfs {

/// setfsuid() and its like take the number behind the last one for "no change".
inline constexpr number_range id_range{0, UINT32_MAX - 1};

/// What an export can be told, whatever its back end; the back end's own settings stand beside it.
std::vector<setting> export_settings();

struct begun_export; // served_export.hpp

struct export_config {
    std::string name; ///< for messages: "export of /srv/data"
    std::string pseudo;
    storage::backend_module* backend = nullptr;
    std::string backend_name;
    std::vector<std::string> clients;
    std::vector<std::string> transports;
    bool read_only = false;
    bool root_squash = true;
    bool all_squash = false;
    bool secure = false;
    bool local_writers = true;
    bool pnfs = false;
    std::uint32_t anonuid = 0;
    std::uint32_t anongid = 0;
    using filter = filters::filter_config<storage::filter_module>;
    std::vector<filter> filters; ///< the last one stands on the back end
    setting_values values;       ///< the back end's among them
    setting_place place;
    std::shared_ptr<begun_export> begun; ///< of begin_export(), until open_export() takes it
};

/// Reads the tables of `export`, and completes them. Throws config_error, with the place, for what can't work.
std::vector<export_config> read_exports(setting_values& nfs, module_table& modules);

/// What keeps clients of such exports from having layouts, as far as the configuration tells it: throws config_error with
/// the cure. `has_sessions`: version 4.1 or 4.2 is served, which have layouts.
void check_pnfs(const std::vector<export_config>& exports, bool has_sessions);
/// Likewise, of the transports that listeners will have.
void check_pnfs_listeners(const std::vector<export_config>& exports, std::span<const std::string> transports);

/// Who may connect to an export. Throws config_error for an entry that is neither "*", an address nor a prefix.
client_list clients_of(const export_config& e);

} // namespace verbena::nfs
