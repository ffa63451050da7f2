// SPDX-License-Identifier: Apache-2.0
// The storage back ends that verbenad has built in, by name.
#pragma once

#include "config.hpp"

#include <verbena/core/blocking.hpp>
#include <verbena/protocols/storage/file_backend.hpp>

#include <memory>
#include <string>

namespace verbena::daemon {

struct opened_backend {
    std::unique_ptr<storage::file_backend> files;
    std::string notes; ///< what it can and can't do here, for the start-up lines
};

/// Throws config_error with the cure. `pool` outlives the back end.
opened_backend open_backend(const export_config& e, blocking_pool& pool, bool keep_shard_identity);

} // namespace verbena::daemon
