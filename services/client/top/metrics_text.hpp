// SPDX-License-Identifier: Apache-2.0
// Reads what a daemon answers to a scrape: Prometheus's text format 0.0.4.
#pragma once

#include <verbena/core/result.hpp>

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace verbena::cli {

struct metric_sample {
    std::vector<std::pair<std::string, std::string>> labels; ///< in the order of the text
    double value = 0;
    /// Empty: it has none of this name.
    std::string_view label(std::string_view name) const noexcept;
};

/// Samples by the name that stands in front of them; buckets, sums and counts of a histogram have names of their own.
using metric_samples = std::map<std::string, std::vector<metric_sample>, std::less<>>;

inline constexpr std::size_t max_samples = 500'000;
inline constexpr std::size_t max_sample_labels = 16;
inline constexpr std::size_t max_sample_line = 65536; ///< bytes
/// Bytes that the labels of all samples take, names and values with their own strings.
inline constexpr std::size_t max_label_bytes = std::size_t(64) << 20;

/// All samples of `text`, which may be anything; comments, types and times are left out. EINVAL, with the line and the rule, for what breaks one.
result<metric_samples> parse_metrics(std::string_view text);

} // namespace verbena::cli
