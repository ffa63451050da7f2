// SPDX-License-Identifier: Apache-2.0
// Metrics: single-writer primitives for the data path, and a registry that reads them at a scrape.
//
// A component owns its counters, one set per shard, and writes them without a lock or a locked
// instruction. It registers *families*, each with a function that enumerates samples; the function runs
// on whichever thread scrapes and reads atomics only. Several shards may register the same family:
// samples with equal labels are added up.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena {

namespace detail {
/// Adds without a locked instruction: right only where one thread writes.
inline void add_single_writer(std::atomic<std::uint64_t>& value, std::uint64_t n) noexcept
{
    value.store(value.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}
} // namespace detail

/// Counts up. One thread writes, any thread reads.
class counter {
public:
    /// Adds `n`. One thread only; no locked instruction.
    void add(std::uint64_t n = 1) noexcept { detail::add_single_writer(value_, n); }
    /// What was added so far, as a reader sees it now. Any thread.
    std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

private:
    std::atomic<std::uint64_t> value_{0};
};

/// A level. One thread writes, any thread reads.
class gauge {
public:
    /// The level from now on, in the unit of the metric. One thread only.
    void set(std::int64_t value) noexcept { value_.store(value, std::memory_order_relaxed); }
    /// Raises the level by `n`, or lowers it. One thread only.
    void add(std::int64_t n) noexcept { set(value() + n); }
    /// The level now. Any thread.
    std::int64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

private:
    std::atomic<std::int64_t> value_{0};
};

struct histogram_snapshot;

/// What a sample says of a counter, a level, or an atomic number. Any thread.
inline double value_of(const counter& c) noexcept { return double(c.value()); }
inline double value_of(const gauge& g) noexcept { return double(g.value()); }
inline double value_of(const std::atomic<std::uint64_t>& n) noexcept
{
    return double(n.load(std::memory_order_relaxed));
}

/// A distribution of durations in nanoseconds: four buckets to each power of two between 256 ns and
/// 2^35 ns (34 s), so a quantile is off by a quarter at most. One thread writes, any thread reads.
class log_linear_histogram {
public:
    static constexpr unsigned lowest_exponent = 8;   ///< the range begins at 2^8 ns, 256 ns
    static constexpr unsigned highest_exponent = 35; ///< and ends at 2^35 ns, 34 s
    static constexpr unsigned steps_per_octave = 4;  ///< buckets between a power of two and the next
    /// Bucket 0 holds what is below the range, the last one what is above.
    static constexpr std::size_t bucket_count =
        std::size_t(highest_exponent - lowest_exponent) * steps_per_octave + 2;

    /// The bucket that counts an observation of so long.
    static constexpr std::size_t bucket_of(std::uint64_t nanoseconds) noexcept
    {
        if (nanoseconds < (std::uint64_t(1) << lowest_exponent))
            return 0;
        const unsigned exponent = unsigned(std::bit_width(nanoseconds)) - 1;
        if (exponent >= highest_exponent)
            return bucket_count - 1;
        const auto step = unsigned(nanoseconds >> (exponent - 2)) & (steps_per_octave - 1);
        return std::size_t(exponent - lowest_exponent) * steps_per_octave + step + 1;
    }
    /// The first value above `bucket`, in nanoseconds; of the last bucket: 0, it has no end.
    static constexpr std::uint64_t end_of(std::size_t bucket) noexcept
    {
        if (bucket == 0)
            return std::uint64_t(1) << lowest_exponent;
        if (bucket >= bucket_count - 1)
            return 0;
        const auto exponent = lowest_exponent + unsigned(bucket - 1) / steps_per_octave;
        const auto step = unsigned(bucket - 1) % steps_per_octave;
        return std::uint64_t(steps_per_octave + step + 1) << (exponent - 2);
    }

    /// Counts one observation of so long. One thread only.
    void observe(std::uint64_t nanoseconds) noexcept
    {
        detail::add_single_writer(buckets_[bucket_of(nanoseconds)], 1);
        detail::add_single_writer(sum_, nanoseconds);
    }
    /// Adds what was observed so far to `out`. Any thread.
    void add_to(histogram_snapshot& out) const noexcept;

private:
    std::array<std::atomic<std::uint64_t>, bucket_count> buckets_{};
    std::atomic<std::uint64_t> sum_{0};
};

/// One or several histograms, added up at one moment.
struct histogram_snapshot {
    /// observations by bucket, not summed up
    std::array<std::uint64_t, log_linear_histogram::bucket_count> buckets{};
    std::uint64_t sum_nanoseconds = 0; ///< of all observations

    /// How many observations there are.
    std::uint64_t count() const noexcept;
    /// Adds what `other` counts.
    void add(const histogram_snapshot& other) noexcept;
    /// The upper end of the bucket in which the q-th part of the observations ends, in nanoseconds;
    /// 0 if there are none. `q` in [0, 1].
    std::uint64_t quantile(double q) const noexcept;
};

/// What kind of metric a family is, as Prometheus tells them apart.
enum class metric_type : std::uint8_t { counter, gauge, histogram };
/// "counter", "gauge" or "histogram". A literal.
std::string_view to_string(metric_type type) noexcept;

/// What a metric is called and means. docs/reference/metrics.md has a line for each one.
struct metric_family {
    std::string name; ///< "verbena_rpc_calls_total": base units, counters end in _total
    std::string help; ///< one sentence
    metric_type type = metric_type::counter; ///< whether it counts, is a level, or a distribution
    std::string unit;                        ///< "seconds", "bytes", "calls"...
    std::vector<std::string> labels = {};
    /// Most series exposed. What is beyond is added up in one more, whose labels are all "other".
    std::size_t bound = 1;
};

/// Receives the samples of one family. Label values stand in the order of metric_family::labels.
class metric_sink {
public:
    /// A counter's or gauge's value, in the family's unit.
    virtual void value(std::initializer_list<std::string_view> labels, double v) = 0;
    /// A distribution of times; Prometheus is given seconds. `h` is borrowed until this returns.
    virtual void histogram(std::initializer_list<std::string_view> labels, const histogram_snapshot& h) = 0;

protected:
    ~metric_sink() = default;
};

/// All samples of one family at one moment, equal labels added up, sorted by labels.
struct metric_snapshot {
    /// The value under one set of labels.
    struct series {
        std::vector<std::string> labels;               ///< in the order of metric_family::labels
        double value = 0;                              ///< of a counter or gauge
        std::unique_ptr<histogram_snapshot> histogram; ///< of type histogram only
    };
    metric_family family;        ///< as the first who registered it described it
    std::vector<series> samples; ///< by their labels, in order
};

/// The families of one process. Thread-safe; the data path never comes here.
class metric_registry {
public:
    /// Gives the samples of its family to the sink, each time that somebody collects. See add().
    using collector = std::function<void(metric_sink&)>;

    /// Takes its collector out of the registry when destroyed, and waits for a scrape that runs it. Must
    /// not be destroyed by a collector. The registry outlives it.
    class [[nodiscard]] registration {
    public:
        registration() = default;
        registration(registration&& other) noexcept
            : registry_(std::exchange(other.registry_, nullptr)), id_(other.id_)
        {
        }
        registration& operator=(registration&& other) noexcept
        {
            std::swap(registry_, other.registry_);
            std::swap(id_, other.id_);
            return *this;
        }
        ~registration()
        {
            if (registry_ != nullptr)
                registry_->remove(id_);
        }

    private:
        friend class metric_registry;
        registration(metric_registry* registry, std::uint64_t id) noexcept : registry_(registry), id_(id) {}
        metric_registry* registry_ = nullptr;
        std::uint64_t id_ = 0;
    };

    metric_registry() = default;
    metric_registry(const metric_registry&) = delete;

    /// Adds a source of samples. `collect` is called with the registry's lock held, from any thread;
    /// what it reads must live as long as the registration. If it throws, what it gave until then counts, and the log
    /// says so the first time. A second registration of a name must describe the same type and labels
    /// (std::logic_error otherwise).
    registration add(metric_family family, collector collect);
    /// For a family without labels; `source` must live as long as the registration.
    registration add(metric_family family, const counter& source);
    registration add(metric_family family, const gauge& source);

    /// Collects everything, sorted by name. Families without samples are included. Throws std::bad_alloc alone: a
    /// collector that throws spoils no other one.
    std::vector<metric_snapshot> collect() const;
    /// Every family registered now, sorted by name.
    std::vector<metric_family> families() const;

private:
    struct source {
        std::uint64_t id;
        metric_family family;
        collector collect;
        mutable bool has_thrown = false;
    };
    void remove(std::uint64_t id) noexcept;
    static void collect_from(const source& s, metric_sink& out);

    mutable std::mutex mutex_;
    std::map<std::string, std::list<source>, std::less<>> sources_; // by name
    std::uint64_t next_id_ = 1;
};

/// What an expose() registered: the registry and what it was given outlive it.
using metric_registrations = std::vector<metric_registry::registration>;
/// Moves the registrations of `more` to the end of `to`.
inline void append(metric_registrations& to, metric_registrations more)
{
    for (auto& one : more)
        to.push_back(std::move(one));
}

/// Writes an expose(): registers one family after the other.
class metric_group {
public:
    /// Registers in `registry`, which outlives the group and what take() gives.
    explicit metric_group(metric_registry& registry) noexcept : registry_(registry) {}

    /// As metric_registry::add(); the registration is kept for take().
    void add(metric_family family, metric_registry::collector collect)
    {
        made_.push_back(registry_.add(std::move(family), std::move(collect)));
    }
    /// A family without labels. `source`, of which value_of() tells, outlives the registration.
    template<class Source>
    void add_sum(metric_family family, const Source& source)
    {
        add(std::move(family), [&source](metric_sink& out) { out.value({}, value_of(source)); });
    }
    /// The registrations so far, for the caller of expose() to keep. The group is empty then.
    metric_registrations take() noexcept { return std::move(made_); }

private:
    metric_registry& registry_;
    metric_registrations made_;
};

} // namespace verbena

#pragma GCC visibility pop
