// SPDX-License-Identifier: Apache-2.0
#include "metrics_text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

namespace verbena::cli {

namespace {

bool begins_name(char c) noexcept
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';
}

bool is_in_name(char c) noexcept { return begins_name(c) || (c >= '0' && c <= '9'); }

// What is left of one line.
class line_reader {
public:
    explicit line_reader(std::string_view line) noexcept : rest_(line) {}

    std::string_view name() noexcept
    {
        std::size_t size = 0;
        if (!rest_.empty() && begins_name(rest_.front()))
            size = static_cast<std::size_t>(std::ranges::find_if_not(rest_, is_in_name) - rest_.begin());
        return take(size);
    }
    bool takes(char c) noexcept
    {
        if (!rest_.starts_with(c))
            return false;
        rest_.remove_prefix(1);
        return true;
    }
    void blanks() noexcept { take(std::min(rest_.find_first_not_of(" \t"), rest_.size())); }
    std::string_view word() noexcept { return take(std::min(rest_.find_first_of(" \t"), rest_.size())); }
    bool is_empty() const noexcept { return rest_.empty(); }
    // Behind the quote that begins it; nothing if none ends it.
    std::optional<std::string> quoted()
    {
        std::string value;
        while (!rest_.empty()) {
            char c = rest_.front();
            rest_.remove_prefix(1);
            if (c == '"')
                return value;
            if (c == '\\') {
                if (rest_.empty())
                    return {};
                c = rest_.front();
                rest_.remove_prefix(1);
                if (c == 'n')
                    c = '\n';
                else if (c != '"' && c != '\\')
                    return {};
            }
            value += c;
        }
        return {};
    }

private:
    std::string_view take(std::size_t size) noexcept
    {
        const std::string_view taken = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return taken;
    }
    std::string_view rest_;
};

// std::from_chars() reads neither a sign in front of a number nor "Inf" with one.
std::optional<double> value_of(std::string_view word) noexcept
{
    if (word == "NaN")
        return std::numeric_limits<double>::quiet_NaN();
    if (word == "+Inf" || word == "Inf")
        return std::numeric_limits<double>::infinity();
    if (word == "-Inf")
        return -std::numeric_limits<double>::infinity();
    if (word.starts_with('+'))
        word.remove_prefix(1);
    double value = 0;
    const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (failed != std::errc() || end != word.data() + word.size() || !std::isfinite(value))
        return {};
    return value;
}

// nullptr: it is in `to`; else the rule that the line breaks.
const char* read_labels(line_reader& line, metric_sample& to, std::size_t& left)
{
    if (!line.takes('{'))
        return nullptr;
    for (;;) {
        line.blanks();
        if (line.takes('}'))
            return nullptr;
        const std::string_view name = line.name();
        if (name.empty())
            return "a label has no name";
        line.blanks();
        if (!line.takes('='))
            return "a label has no value";
        line.blanks();
        if (!line.takes('"'))
            return "a label's value must stand in quotes";
        auto value = line.quoted();
        if (!value)
            return "a label's value does not end, or has an escape other than \\\\, \\\" and \\n";
        if (to.labels.size() == max_sample_labels)
            return "a sample has at most 16 labels";
        const std::size_t bytes = sizeof(to.labels[0]) + name.size() + value->size();
        if (bytes > left)
            return "the labels of all samples take at most 64 MiB";
        left -= bytes;
        to.labels.emplace_back(name, std::move(*value));
        line.blanks();
        if (line.takes(','))
            continue;
        if (!line.takes('}'))
            return "labels must be ended by }";
        return nullptr;
    }
}

// `left`: bytes that labels may take yet.
const char* read_sample(std::string_view text, metric_samples& to, std::size_t& left)
{
    line_reader line(text);
    line.blanks();
    const std::string_view name = line.name();
    if (name.empty())
        return "a sample begins with a name";
    metric_sample sample;
    if (const char* const broken = read_labels(line, sample, left); broken != nullptr)
        return broken;
    line.blanks();
    const auto value = value_of(line.word());
    if (!value)
        return "a sample needs a number";
    sample.value = *value;
    line.blanks();
    (void)line.word(); // its time
    line.blanks();
    if (!line.is_empty())
        return "nothing may follow a sample's time";
    auto at = to.find(name);
    if (at == to.end())
        at = to.emplace(std::string(name), std::vector<metric_sample>()).first;
    at->second.push_back(std::move(sample));
    return nullptr;
}

} // namespace

std::string_view metric_sample::label(std::string_view name) const noexcept
{
    for (const auto& [own, said] : labels) {
        if (own == name)
            return said;
    }
    return {};
}

result<metric_samples> parse_metrics(std::string_view text)
{
    metric_samples all;
    std::size_t count = 0;
    std::size_t left = max_label_bytes;
    for (std::size_t number = 1; !text.empty(); ++number) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.ends_with('\r'))
            line.remove_suffix(1);
        const std::size_t begin = line.find_first_not_of(" \t");
        if (begin == std::string_view::npos || line[begin] == '#')
            continue;
        const char* broken = nullptr;
        if (line.size() > max_sample_line)
            broken = "a line has at most 64 KiB";
        else if (++count > max_samples)
            broken = "there are at most 500,000 samples";
        else
            broken = read_sample(line, all, left);
        if (broken != nullptr)
            return error(std::errc::invalid_argument, broken, number);
    }
    return all;
}

} // namespace verbena::cli
