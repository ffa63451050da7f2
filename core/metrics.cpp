// SPDX-License-Identifier: Apache-2.0
#include <verbena/core/log.hpp>
#include <verbena/core/metrics.hpp>
#include <verbena/core/printable.hpp>

#include <algorithm>
#include <map>
#include <stdexcept>

namespace verbena {

namespace {

// Bytes of a label's value. Whoever scrapes keeps each one, and peers choose some.
constexpr std::size_t max_label_value = 256;

// Two long names that begin alike must stay apart, so the end of a cut name tells which one it was (FNV-1a).
std::string mark_of(std::string_view whole)
{
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char c : whole)
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    std::string mark = "~";
    for (int shift = 60; shift >= 0; shift -= 4)
        mark += "0123456789abcdef"[hash >> shift & 15];
    return mark;
}

// What printable() changes nothing of, as nearly all values are: a scrape has tens of thousands.
bool is_plain(std::string_view text) noexcept
{
    return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~' && c != '\\'; });
}

// Each label's value of each sample is made here, as a peer, a path, a configuration or a device may have chosen its bytes. A scrape that
// holds one octet which is no UTF-8 is refused as a whole, and a NUL ends it.
std::string label_value(std::string_view given)
{
    if (given.size() <= max_label_value && is_plain(given))
        return std::string(given);
    std::string value = printable(given);
    if (value.size() <= max_label_value)
        return value;
    const std::string mark = mark_of(given);
    std::size_t kept = 0;
    for (const std::string_view all = value;;) {
        const std::size_t next = kept + utf8_character(all.substr(kept));
        if (next > max_label_value - mark.size())
            break;
        kept = next;
    }
    value.resize(kept);
    return value + mark;
}

bool is_name(std::string_view text) noexcept
{
    const auto is_letter = [](char c) {
        return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    };
    const auto is_part = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); };
    return !text.empty() && is_letter(text.front()) && std::ranges::all_of(text, is_part);
}

// Modules bring families, and one that no scrape could hold would take all others with it.
void check(const metric_family& family)
{
    const auto refuse = [&](const char* why) {
        throw std::logic_error("metric " + printable(family.name) + ' ' + why);
    };
    if (!is_name(family.name))
        refuse("has a name of other than letters, digits and _");
    if (printable_lines(family.help) != family.help || family.help.find('\n') != std::string::npos)
        refuse("has a help text with octets that are no UTF-8, or control characters");
    for (auto label = family.labels.begin(); label != family.labels.end(); ++label) {
        if (!is_name(*label) || label->starts_with("__") || *label == "le")
            refuse("has a label whose name is not of letters, digits and _, or is reserved");
        if (std::find(family.labels.begin(), label, *label) != label)
            refuse("has a label twice");
    }
}

// Adds up the samples of one family, whichever sources they come from.
class merging_sink final : public metric_sink {
public:
    explicit merging_sink(const metric_family& family) : family_(family) {}

    void value(std::initializer_list<std::string_view> labels, double v) override { find(labels).value += v; }
    void histogram(std::initializer_list<std::string_view> labels, const histogram_snapshot& h) override
    {
        auto& target = find(labels).histogram;
        if (!target)
            target = std::make_unique<histogram_snapshot>();
        target->add(h);
    }
    std::vector<metric_snapshot::series> take()
    {
        std::vector<metric_snapshot::series> samples;
        samples.reserve(series_.size());
        for (auto& [labels, series] : series_)
            samples.push_back(std::move(series));
        return samples;
    }

private:
    metric_snapshot::series& find(std::initializer_list<std::string_view> labels)
    {
        std::vector<std::string> key;
        key.reserve(family_.labels.size());
        for (const std::string_view given : labels)
            key.push_back(label_value(given));
        key.resize(family_.labels.size());
        auto at = series_.find(key);
        if (at == series_.end()) {
            if (!key.empty() && series_.size() >= family_.bound)
                key.assign(key.size(), "other");
            at = series_.try_emplace(key).first;
            at->second.labels = key;
        }
        return at->second;
    }

    const metric_family& family_;
    std::map<std::vector<std::string>, metric_snapshot::series> series_;
};

} // namespace

void log_linear_histogram::add_to(histogram_snapshot& out) const noexcept
{
    for (std::size_t i = 0; i < bucket_count; ++i)
        out.buckets[i] += buckets_[i].load(std::memory_order_relaxed);
    out.sum_nanoseconds += sum_.load(std::memory_order_relaxed);
}

std::uint64_t histogram_snapshot::count() const noexcept
{
    std::uint64_t n = 0;
    for (std::uint64_t bucket : buckets)
        n += bucket;
    return n;
}

void histogram_snapshot::add(const histogram_snapshot& other) noexcept
{
    for (std::size_t i = 0; i < buckets.size(); ++i)
        buckets[i] += other.buckets[i];
    sum_nanoseconds += other.sum_nanoseconds;
}

std::uint64_t histogram_snapshot::quantile(double q) const noexcept
{
    const std::uint64_t total = count();
    if (total == 0)
        return 0;
    const double wanted = std::clamp(q, 0.0, 1.0) * double(total);
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i + 1 < buckets.size(); ++i) {
        seen += buckets[i];
        if (seen != 0 && double(seen) >= wanted)
            return log_linear_histogram::end_of(i);
    }
    return std::uint64_t(1) << log_linear_histogram::highest_exponent;
}

std::string_view to_string(metric_type type) noexcept
{
    switch (type) {
    case metric_type::counter: return "counter";
    case metric_type::gauge: return "gauge";
    case metric_type::histogram: return "histogram";
    }
    return "?";
}

metric_registry::registration metric_registry::add(metric_family family, collector collect)
{
    check(family);
    const std::lock_guard lock(mutex_);
    std::list<source>& same = sources_[family.name];
    if (!same.empty() &&
        (same.front().family.type != family.type || same.front().family.labels != family.labels))
        throw std::logic_error("metric " + family.name + " is registered with another type or labels");
    const std::uint64_t id = next_id_++;
    same.push_back(source{id, std::move(family), std::move(collect)});
    return registration(this, id);
}

metric_registry::registration metric_registry::add(metric_family family, const counter& source)
{
    return add(std::move(family), [&source](metric_sink& out) { out.value({}, double(source.value())); });
}

metric_registry::registration metric_registry::add(metric_family family, const gauge& source)
{
    return add(std::move(family), [&source](metric_sink& out) { out.value({}, double(source.value())); });
}

void metric_registry::remove(std::uint64_t id) noexcept
{
    const std::lock_guard lock(mutex_);
    for (auto at = sources_.begin(); at != sources_.end(); ++at) {
        // By their ids, from the first on: of thousands that go in the order in which they came, each is found at once.
        std::list<source>& same = at->second;
        const auto found = std::ranges::find_if(same, [id](const source& s) { return s.id >= id; });
        if (found == same.end() || found->id != id)
            continue;
        same.erase(found);
        if (same.empty())
            sources_.erase(at);
        return;
    }
}

// Whoever asks may be a server in C, which no exception passes.
void metric_registry::collect_from(const source& s, metric_sink& out)
{
    std::string why = "not a std::exception";
    try {
        s.collect(out);
        return;
    } catch (const std::exception& e) {
        why = e.what();
    } catch (...) {
    }
    if (!std::exchange(s.has_thrown, true))
        log(log_level::error, "metrics", "a collector throws; its samples are missing or incomplete",
            {{"family", s.family.name}, {"exception", why}});
}

std::vector<metric_snapshot> metric_registry::collect() const
{
    const std::lock_guard lock(mutex_);
    std::vector<metric_snapshot> all;
    all.reserve(sources_.size());
    for (const auto& [name, same] : sources_) {
        const metric_family& family = same.front().family;
        merging_sink sink(family);
        for (const source& s : same)
            collect_from(s, sink);
        all.push_back(metric_snapshot{family, sink.take()});
    }
    return all;
}

std::vector<metric_family> metric_registry::families() const
{
    const std::lock_guard lock(mutex_);
    std::vector<metric_family> all;
    all.reserve(sources_.size());
    for (const auto& [name, same] : sources_)
        all.push_back(same.front().family);
    return all;
}

} // namespace verbena
