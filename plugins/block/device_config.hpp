// SPDX-License-Identifier: Apache-2.0
// One [[block.device]], as somebody wrote it.
#pragma once

#include "../filter_config.hpp"

#include <verbena/core/net/client_list.hpp>
#include <verbena/protocols/storage/module.hpp>

#include <string>
#include <vector>

namespace verbena::block {

struct device_config {
    setting_place place;
    std::string name;
    std::string told; ///< "device vm1", for messages
    std::string backend_name;
    storage::block_module* backend = nullptr;
    client_list clients;
    std::string session;
    bool read_only = false;
    using filter = filters::filter_config<storage::block_filter>;
    std::vector<filter> filters; ///< the last one stands on the back end
    setting_values values;       ///< of the back end too
};

/// What every device has beside its back end's settings.
std::vector<setting> device_settings();
/// One `--device NAME[=MAIN][,OPTION...]`. A backslash escapes. Throws config_error.
setting_values parse_device(std::string_view word);
/// The devices of a [block] table. Throws config_error.
std::vector<device_config> read_devices(setting_values& block, module_table& modules);

} // namespace verbena::block
