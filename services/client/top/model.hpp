// SPDX-License-Identifier: Apache-2.0
// What `verbena top` shows: rates and latencies of the time between two scrapes. Draws nothing.
#pragma once

#include "metrics_text.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace verbena::cli {

/// What a daemon said at one time.
struct top_scrape {
    std::chrono::duration<double> when{0}; ///< of a clock that only goes on
    double since_epoch = 0;                ///< seconds
    metric_samples samples;
    std::string health; ///< of /healthz and /readyz; empty: not asked
};

/// A number of a row, or nothing where the daemon has no such metric or nothing happened that it could be of.
using top_value = std::optional<double>;

enum class top_unit : std::uint8_t { count, rate, bytes, byte_rate, seconds };

struct top_column {
    std::string head; ///< "calls/s"
    std::string key;  ///< of JSON: "calls_per_second"
    top_unit unit = top_unit::rate;
};

struct top_row {
    std::string name;
    std::vector<top_value> values; ///< of the columns
};

/// One of the screen's tables: the name of each row, and its numbers.
struct top_table {
    std::string title; ///< "operation"
    std::string key;   ///< of JSON: "operations"
    std::vector<top_column> columns;
    std::vector<top_row> rows;
};

struct top_view {
    std::string version;
    std::optional<double> uptime; ///< seconds
    std::string health;
    std::vector<std::pair<std::string, double>> connections; ///< by transport
    std::optional<double> calls_in_flight;
    std::chrono::duration<double> interval{
        0};                        ///< that rates are of; 0: there was one scrape, so that there are none
    bool has_restarted = false;    ///< between these scrapes: rates begin anew
    std::vector<top_table> tables; ///< those alone that have rows
};

/// Keeps the last two scrapes.
class top_model {
public:
    void add(top_scrape next);
    /// Rows by name, or by the first, second... column with the largest first, where a table has that column. Before the first add()
    /// it is empty.
    top_view view(std::size_t sorted_by = 0) const;

private:
    std::optional<top_scrape> before_;
    std::optional<top_scrape> now_;
    bool has_restarted_ = false;
};

/// Buckets as the text format has them: the upper bound of each, and how many there were up to it. In ascending order.
using top_buckets = std::vector<std::pair<double, double>>;
/// The value that this part (0.5, 0.99) of the observations did not exceed. In between the bounds of a bucket it is taken to rise by
/// the same factor with each observation, as the bounds do. Nothing if there were none.
std::optional<double> percentile_of(const top_buckets& buckets, double part);

} // namespace verbena::cli
