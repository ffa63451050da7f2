// SPDX-License-Identifier: Apache-2.0
// What answering scrapes takes.
#pragma once

#include <verbena/core/metrics.hpp>

namespace verbena::services {

/// Of the thread that answers.
struct scrape_stats {
    counter scrapes;
    counter bytes;
    log_linear_histogram seconds;
};

/// `stats` outlives what is returned.
metric_registrations expose(metric_registry& registry, const scrape_stats& stats);

} // namespace verbena::services
