// SPDX-License-Identifier: Apache-2.0
#include "lay_out.hpp"

#include <verbena/core/printable.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iterator>

namespace verbena::cli {

namespace {

constexpr std::size_t header_height = 4; // with the empty line beneath
constexpr std::size_t most_sorted = 7;   // columns of the widest table

std::string number_text(double value, const char* unit)
{
    std::array<char, 48> text{};
    const int digits = value != 0 && std::abs(value) < 10 ? 1 : 0;
    (void)std::snprintf(text.data(), text.size(), "%.*f%s", digits, value, unit);
    return text.data();
}

// With the largest of the units that leaves at least 1.
template<std::size_t N>
std::string scaled(double value, double step, const std::array<const char*, N>& units)
{
    std::size_t at = 0;
    while (std::abs(value) >= step && at + 1 < N) {
        value /= step;
        ++at;
    }
    return number_text(value, units[at]);
}

std::string seconds_text(double value)
{
    if (value < 1e-3)
        return number_text(value * 1e6, " us");
    if (value < 1)
        return number_text(value * 1e3, " ms");
    return number_text(value, " s");
}

std::string uptime_text(double seconds)
{
    const auto all = static_cast<std::uint64_t>(seconds);
    std::array<char, 64> text{};
    if (all >= 86400)
        (void)std::snprintf(text.data(), text.size(), "%llu d %02u:%02u",
                            static_cast<unsigned long long>(all / 86400),
                            static_cast<unsigned>(all / 3600 % 24), static_cast<unsigned>(all / 60 % 60));
    else
        (void)std::snprintf(text.data(), text.size(), "%02u:%02u:%02u", static_cast<unsigned>(all / 3600),
                            static_cast<unsigned>(all / 60 % 60), static_cast<unsigned>(all % 60));
    return text.data();
}

// Whether something happened: any rate that is not 0.
bool is_busy(const top_table& t, const top_row& r)
{
    for (std::size_t i = 0; i < r.values.size(); ++i) {
        const top_unit unit = t.columns[i].unit;
        if ((unit == top_unit::rate || unit == top_unit::byte_rate) && r.values[i].value_or(0) > 0)
            return true;
    }
    return false;
}

std::string cut(std::string text, std::size_t width)
{
    if (width == 0 || text.size() <= width)
        return text;
    // Not within a character of several octets.
    while (width > 0 && (static_cast<unsigned char>(text[width]) & 0xc0) == 0x80)
        --width;
    text.resize(width);
    return text;
}

// Of what a terminal shows, not of octets.
std::size_t columns_of(std::string_view text)
{
    return static_cast<std::size_t>(
        std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

void add_table(std::vector<top_line>& to, const top_table& t, bool idle)
{
    std::vector<std::vector<std::string>> cells;
    std::vector<std::string> heads = {t.title};
    for (const top_column& c : t.columns)
        heads.push_back(c.head);
    // Exports and devices are few, and it matters that they are there.
    const bool all = idle || t.key != "operations";
    for (const top_row& r : t.rows) {
        if (!all && !is_busy(t, r))
            continue;
        auto& line = cells.emplace_back();
        line.push_back(printable(r.name));
        for (std::size_t i = 0; i < r.values.size(); ++i)
            line.push_back(text_of(r.values[i], t.columns[i].unit));
    }
    std::vector<std::size_t> widths;
    for (std::size_t i = 0; i < heads.size(); ++i) {
        std::size_t width = columns_of(heads[i]);
        for (const auto& line : cells)
            width = std::max(width, columns_of(line[i]));
        widths.push_back(width);
    }
    const auto line_of = [&](const std::vector<std::string>& words) {
        std::string text = words[0] + std::string(widths[0] - columns_of(words[0]), ' ');
        for (std::size_t i = 1; i < words.size(); ++i)
            text += std::string(widths[i] - columns_of(words[i]) + 2, ' ') + words[i];
        return text;
    };
    to.push_back({line_of(heads), true});
    for (const auto& line : cells)
        to.push_back({line_of(line), false});
    if (cells.empty())
        to.push_back({"(nothing in this interval)", false});
}

} // namespace

std::string text_of(top_value value, top_unit unit)
{
    constexpr std::array<const char*, 4> counts = {"", "k", "M", "G"};
    constexpr std::array<const char*, 6> bytes = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
    if (!value || std::isnan(*value))
        return "-";
    switch (unit) {
    case top_unit::count:
        if (*value == std::floor(*value) && std::abs(*value) < 1000) {
            std::array<char, 8> text{};
            (void)std::snprintf(text.data(), text.size(), "%.0f", *value);
            return text.data();
        }
        [[fallthrough]];
    case top_unit::rate: return scaled(*value, 1000, counts);
    case top_unit::bytes:
    case top_unit::byte_rate: return scaled(*value, 1024, bytes);
    case top_unit::seconds: return seconds_text(*value);
    }
    return "-";
}

std::vector<top_line> header_lines(const top_view& v)
{
    std::string first = "verbenad " + (v.version.empty() ? "of an unknown version" : printable(v.version));
    if (v.uptime)
        first += ", up " + uptime_text(*v.uptime);
    if (!v.health.empty())
        first += ", " + printable(v.health);
    std::string second = "connections:";
    for (const auto& [transport, count] : v.connections)
        second += ' ' + printable(transport) + ' ' + text_of(count, top_unit::count);
    if (v.connections.empty())
        second += " none";
    second += "; calls in flight: " + text_of(v.calls_in_flight, top_unit::count);
    std::string third = v.has_restarted           ? "it has started again: rates come with the next interval"
                        : v.interval.count() <= 0 ? "rates come with the next interval"
                                                  : "of the last " + number_text(v.interval.count(), " s");
    return {{first, false}, {second, false}, {third, false}, {"", false}};
}

std::vector<top_line> table_lines(const top_view& v, bool idle, std::size_t width)
{
    std::vector<top_line> all;
    for (const top_table& t : v.tables) {
        if (!all.empty())
            all.push_back({"", false});
        add_table(all, t, idle);
    }
    for (top_line& line : all)
        line.text = cut(std::move(line.text), width);
    return all;
}

void top_screen::press(key k, std::size_t lines, std::size_t height)
{
    const std::size_t room = height > header_height + 1 ? height - header_height - 1 : 1;
    const std::size_t last = lines > room ? lines - room : 0;
    switch (k) {
    case key::quit: has_ended = true; break;
    case key::sort: sorted_by = (sorted_by + 1) % (most_sorted + 1); break;
    case key::up: scrolled -= scrolled > 0 ? 1 : 0; break;
    case key::down: ++scrolled; break;
    case key::page_up: scrolled -= std::min(scrolled, room); break;
    case key::page_down: scrolled += room; break;
    case key::home: scrolled = 0; break;
    case key::idle: shows_idle = !shows_idle; break;
    }
    scrolled = std::min(scrolled, last);
}

std::string top_screen::sort_text(const top_view& v) const
{
    std::string text;
    if (sorted_by == 0)
        return "name";
    for (const top_table& t : v.tables) {
        if (sorted_by > t.columns.size() || t.key == "rdma")
            continue;
        const std::string& head = t.columns[sorted_by - 1].head;
        if (text.find(head) == std::string::npos)
            text += (text.empty() ? "" : ", ") + head;
    }
    return text.empty() ? "name" : text;
}

std::vector<top_line> top_screen::lines(const top_view& v, std::size_t width, std::size_t height)
{
    std::vector<top_line> all;
    for (top_line& line : header_lines(v)) {
        line.text = cut(std::move(line.text), width);
        all.push_back(std::move(line));
    }
    std::vector<top_line> tables = table_lines(v, shows_idle, width);
    const std::size_t room = height > header_height + 1 ? height - header_height - 1 : 0;
    // There may be less than before.
    scrolled = std::min(scrolled, tables.size() > room ? tables.size() - room : 0);
    for (std::size_t i = scrolled; i < tables.size() && i < scrolled + room; ++i)
        all.push_back(std::move(tables[i]));
    all.resize(height > 0 ? height - 1 : 0);
    std::string keys = "q quit  s sort: " + sort_text(v) + "  i " + (shows_idle ? "hide" : "show") +
                       " idle  arrows, PgUp, PgDn, Home scroll";
    if (height > 0)
        all.push_back({cut(std::move(keys), width), true});
    return all;
}

} // namespace verbena::cli
