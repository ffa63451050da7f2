// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <limits>
#include <map>

namespace verbena::cli {

namespace {

using names = std::vector<std::string_view>;

const std::vector<metric_sample>& family(const top_scrape& of, std::string_view name)
{
    static const std::vector<metric_sample> none;
    const auto found = of.samples.find(name);
    return found == of.samples.end() ? none : found->second;
}

std::optional<double> total_of(const top_scrape& of, std::string_view name)
{
    const auto& all = family(of, name);
    if (all.empty())
        return {};
    double sum = 0;
    for (const metric_sample& s : all)
        sum += s.value;
    return sum;
}

// The name of a row: the values of these labels.
std::string row_of(const metric_sample& s, const names& labels)
{
    std::string name;
    for (const std::string_view label : labels)
        name += (name.empty() ? "" : " ") + std::string(s.label(label));
    return name;
}

using by_row = std::map<std::string, double>;

struct wanted_series {
    std::string_view family;
    names row;                   // labels that make its name
    std::string_view label = {}; // that must have one of `values`
    names values = {};
    bool others = false; // any but these
};

bool is_wanted(const metric_sample& s, const wanted_series& w)
{
    if (w.label.empty())
        return true;
    return (std::ranges::find(w.values, s.label(w.label)) != w.values.end()) != w.others;
}

// Two scrapes of one process.
class pair_of_scrapes {
public:
    pair_of_scrapes(const top_scrape* before, const top_scrape& now) : before_(before), now_(now) {}

    bool has_rates() const { return before_ != nullptr && seconds() > 0; }
    double seconds() const { return before_ == nullptr ? 0 : (now_.when - before_->when).count(); }
    bool has(std::string_view name) const { return now_.samples.contains(name); }

    by_row gauges(const wanted_series& w) const
    {
        by_row all;
        for (const metric_sample& s : family(now_, w.family)) {
            if (std::isfinite(s.value) && is_wanted(s, w))
                all[row_of(s, w.row)] += s.value;
        }
        return all;
    }
    // How much counters have grown. One that is smaller than before has begun anew, and one that was not there, too.
    by_row growths(const wanted_series& w) const
    {
        by_row all;
        if (before_ == nullptr)
            return all;
        std::map<std::vector<std::pair<std::string, std::string>>, double> old;
        for (const metric_sample& s : family(*before_, w.family)) {
            if (is_wanted(s, w))
                old.emplace(s.labels, s.value);
        }
        for (const metric_sample& s : family(now_, w.family)) {
            if (!is_wanted(s, w))
                continue;
            const auto was = old.find(s.labels);
            const double grown = was == old.end() || s.value < was->second ? s.value : s.value - was->second;
            if (std::isfinite(grown))
                all[row_of(s, w.row)] += grown;
        }
        return all;
    }
    by_row rates(const wanted_series& w) const
    {
        by_row all = growths(w);
        for (auto& [name, value] : all)
            value /= seconds();
        return all;
    }
    // Observations of this interval, by row. `histogram`: the family without its ending.
    std::map<std::string, top_buckets> histograms(const std::string& histogram, const names& row) const
    {
        // As the bound is a label, each bound of a row is a row of its own.
        names with_bound = row;
        with_bound.insert(with_bound.begin(), "le");
        std::map<std::string, top_buckets> all;
        for (const auto& [name, grown] : growths({histogram + "_bucket", with_bound})) {
            const std::size_t blank = name.find(' ');
            const std::string bound = name.substr(0, blank);
            const double end = bound == "+Inf" ? std::numeric_limits<double>::infinity()
                                               : std::strtod(bound.c_str(), nullptr);
            if (std::isnan(end) || !std::isfinite(grown)) // these have no place in an order
                continue;
            all[blank == std::string::npos ? std::string() : name.substr(blank + 1)].emplace_back(end, grown);
        }
        for (auto& [name, buckets] : all)
            std::ranges::sort(buckets);
        return all;
    }

private:
    const top_scrape* before_;
    const top_scrape& now_;
};

// Puts a table together, column by column.
class table_maker {
public:
    table_maker(std::string title, std::string key)
    {
        table_.title = std::move(title), table_.key = std::move(key);
    }

    // `missing`: what a row has that is not in `values`; `makes_rows`: whether a name that is new has a row of its own.
    void add(top_column column, const by_row& values, top_value missing, bool makes_rows)
    {
        const std::size_t at = table_.columns.size();
        table_.columns.push_back(std::move(column));
        for (const auto& [name, value] : values) {
            if (!makes_rows && !rows_.contains(name))
                continue;
            auto& row = rows_[name];
            row.resize(at);
            row.emplace_back(value);
        }
        for (auto& [name, row] : rows_) {
            row.resize(std::max(row.size(), at));
            if (row.size() == at)
                row.push_back(missing);
        }
    }
    bool has(const std::string& name) const { return rows_.contains(name); }
    top_table finish(std::size_t sorted_by) &&
    {
        for (auto& [name, values] : rows_)
            table_.rows.push_back({name, std::move(values)});
        if (sorted_by != 0 && sorted_by <= table_.columns.size())
            std::ranges::sort(table_.rows, [sorted_by](const top_row& a, const top_row& b) {
                const double left = place_of(a.values[sorted_by - 1]);
                const double right = place_of(b.values[sorted_by - 1]);
                return left != right ? left > right : a.name < b.name;
            });
        return std::move(table_);
    }

private:
    // What is no number stands last, as what is not there; in between others it would break their order.
    static double place_of(const top_value& v) { return v && !std::isnan(*v) ? *v : -1; }
    top_table table_;
    std::map<std::string, std::vector<top_value>> rows_;
};

by_row percentiles(const std::map<std::string, top_buckets>& all, double part)
{
    by_row values;
    for (const auto& [name, buckets] : all) {
        if (const auto value = percentile_of(buckets, part))
            values.emplace(name, *value);
    }
    return values;
}

// With a word in front of each name.
template<class T>
std::map<std::string, T> in_front(std::string_view word, const std::map<std::string, T>& all)
{
    std::map<std::string, T> out;
    for (const auto& [name, value] : all)
        out.emplace(std::string(word) + ' ' + name, value);
    return out;
}

template<class T>
std::map<std::string, T> joined(std::map<std::string, T> a, std::map<std::string, T> b)
{
    a.merge(b);
    return a;
}

top_table operations(const pair_of_scrapes& s, std::size_t sorted_by)
{
    const names call = {"program", "version", "procedure", "transport"};
    const names operation = {"operation"};
    constexpr std::string_view of_version_4 = "nfs 4 op";
    table_maker t("operation", "operations");
    t.add({"calls/s", "calls_per_second", top_unit::rate},
          joined(s.rates({"verbena_rpc_calls_total", call}),
                 in_front(of_version_4, s.rates({"verbena_nfs4_operations_total", operation}))),
          0.0, true);
    t.add({"errors/s", "errors_per_second", top_unit::rate},
          joined(s.rates({"verbena_rpc_errors_total", call}),
                 in_front(of_version_4,
                          s.rates({"verbena_nfs4_operations_total", operation, "result", {"failed"}}))),
          0.0, false);
    const auto took =
        joined(s.histograms("verbena_rpc_latency_seconds", call),
               in_front(of_version_4, s.histograms("verbena_nfs4_operation_seconds", operation)));
    t.add({"p50", "p50_seconds", top_unit::seconds}, percentiles(took, 0.5), {}, false);
    t.add({"p99", "p99_seconds", top_unit::seconds}, percentiles(took, 0.99), {}, false);
    return std::move(t).finish(sorted_by);
}

top_table exports(const pair_of_scrapes& s, std::size_t sorted_by)
{
    const names row = {"export"};
    table_maker t("export", "exports");
    t.add({"ops/s", "operations_per_second", top_unit::rate},
          s.rates({"verbena_export_operations_total", row}), 0.0, true);
    t.add({"read/s", "read_bytes_per_second", top_unit::byte_rate},
          s.rates({"verbena_export_bytes_total", row, "direction", {"read"}}), 0.0, false);
    t.add({"written/s", "written_bytes_per_second", top_unit::byte_rate},
          s.rates({"verbena_export_bytes_total", row, "direction", {"write"}}), 0.0, false);
    t.add({"errors/s", "errors_per_second", top_unit::rate}, s.rates({"verbena_export_errors_total", row}),
          0.0, false);
    t.add({"up", "up", top_unit::count}, s.gauges({"verbena_export_up", row}), {}, false);
    return std::move(t).finish(sorted_by);
}

top_table devices(const pair_of_scrapes& s, std::size_t sorted_by)
{
    const names row = {"device"};
    table_maker t("block device", "devices");
    t.add({"ops/s", "operations_per_second", top_unit::rate},
          s.rates({"verbena_rnbd_device_operations_total", row}), 0.0, true);
    t.add({"read/s", "read_bytes_per_second", top_unit::byte_rate},
          s.rates({"verbena_rnbd_device_bytes_total", row, "direction", {"read"}}), 0.0, false);
    t.add({"written/s", "written_bytes_per_second", top_unit::byte_rate},
          s.rates({"verbena_rnbd_device_bytes_total", row, "direction", {"read"}, true}), 0.0, false);
    t.add({"errors/s", "errors_per_second", top_unit::rate},
          s.rates({"verbena_rnbd_device_failed_operations_total", row}), 0.0, false);
    const auto took = s.histograms("verbena_rnbd_device_operation_seconds", row);
    t.add({"p50", "p50_seconds", top_unit::seconds}, percentiles(took, 0.5), {}, false);
    t.add({"p99", "p99_seconds", top_unit::seconds}, percentiles(took, 0.99), {}, false);
    t.add({"in flight", "in_flight", top_unit::count},
          s.gauges({"verbena_rnbd_device_operations_in_flight", row}), {}, false);
    return std::move(t).finish(sorted_by);
}

// One row, as these have no labels that tell connections apart.
top_table rdma(const pair_of_scrapes& s)
{
    constexpr const char* row = "all";
    table_maker t("RDMA", "rdma");
    if (!s.has("verbena_rpcrdma_calls_total"))
        return std::move(t).finish(0);
    const auto one = [](const by_row& all) {
        by_row sum;
        for (const auto& [name, value] : all)
            sum[row] += value;
        return sum;
    };
    const by_row calls = one(s.growths({"verbena_rpcrdma_calls_total", {}}));
    const auto each = [&](std::string_view family) {
        by_row sum = one(s.growths({family, {}}));
        const double of = calls.empty() ? 0 : calls.at(row);
        if (of <= 0)
            return by_row();
        for (auto& [name, value] : sum)
            value /= of;
        return sum;
    };
    t.add({"calls/s", "calls_per_second", top_unit::rate}, one(s.rates({"verbena_rpcrdma_calls_total", {}})),
          0.0, true);
    // What a call asked for, and what its reply granted.
    t.add({"credits wanted", "credits_wanted", top_unit::count}, each("verbena_rpcrdma_credits_wanted_total"),
          {}, false);
    t.add({"granted", "credits_granted", top_unit::count}, each("verbena_rpcrdma_credits_granted_total"), {},
          false);
    t.add({"RNR/s", "receiver_not_ready_per_second", top_unit::rate},
          one(s.rates({"verbena_rdma_receiver_not_ready_total", {}})), {}, false);
    t.add({"registered", "registered_bytes", top_unit::bytes},
          one(s.gauges({"verbena_rdma_registered_bytes", {}})), {}, false);
    t.add({"refused", "registrations_failed", top_unit::count},
          one(s.gauges({"verbena_rdma_registrations_failed_total", {}})), {}, false);
    return std::move(t).finish(0);
}

} // namespace

std::optional<double> percentile_of(const top_buckets& buckets, double part)
{
    const double all = buckets.empty() ? 0 : buckets.back().second;
    if (!(all > 0))
        return {};
    const double wanted = part * all;
    double low = 0;
    double below = 0;
    for (const auto& [end, count] : buckets) {
        if (count >= wanted && count > below) {
            if (std::isinf(end) || end <= 0)
                return low;
            // Bounds are powers of two; below the first one it begins at half of it.
            const double begin = low > 0 ? low : end / 2;
            return begin * std::pow(end / begin, (wanted - below) / (count - below));
        }
        low = std::max(end, 0.0);
        below = std::max(below, count);
    }
    return low;
}

void top_model::add(top_scrape next)
{
    before_ = std::exchange(now_, std::move(next));
    has_restarted_ = false;
    if (!before_)
        return;
    // Each process counts from nothing.
    constexpr std::string_view start = "process_start_time_seconds";
    if (total_of(*before_, start) != total_of(*now_, start)) { // also where it is no number
        has_restarted_ = true;
        before_.reset();
    }
}

top_view top_model::view(std::size_t sorted_by) const
{
    top_view v;
    if (!now_)
        return v;
    const pair_of_scrapes s(before_ ? &*before_ : nullptr, *now_);
    for (const metric_sample& build : family(*now_, "verbena_build_info"))
        v.version = build.label("version");
    constexpr double longest = 1e11; // seconds; a clock may be anything
    if (const auto start = total_of(*now_, "process_start_time_seconds"); start && std::isfinite(*start))
        v.uptime = std::clamp(now_->since_epoch - *start, 0.0, longest);
    v.health = now_->health;
    for (const auto& [transport, count] : s.gauges({"verbena_connections", {"transport"}}))
        v.connections.emplace_back(transport, count);
    const auto streams = total_of(*now_, "verbena_stream_calls_in_flight");
    const auto paths = total_of(*now_, "verbena_rtrs_path_requests_in_flight");
    if (streams || paths)
        v.calls_in_flight = streams.value_or(0) + paths.value_or(0);
    v.has_restarted = has_restarted_;
    if (!s.has_rates())
        return v;
    v.interval = std::chrono::duration<double>(s.seconds());
    for (top_table& t : std::vector<top_table>{operations(s, sorted_by), exports(s, sorted_by),
                                               devices(s, sorted_by), rdma(s)}) {
        if (!t.rows.empty())
            v.tables.push_back(std::move(t));
    }
    return v;
}

} // namespace verbena::cli
