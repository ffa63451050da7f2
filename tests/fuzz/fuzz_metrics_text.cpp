// SPDX-License-Identifier: Apache-2.0
// What `verbena top` reads of an answer to a scrape, which may come from anybody, and the lines that it makes of it.

#include "fuzz.hpp"

#include <client/top/lay_out.hpp>
#include <client/top/metrics_text.hpp>
#include <client/top/model.hpp>

#include <chrono>
#include <string_view>
#include <utility>

using namespace verbena;
using namespace verbena::cli;

VERBENA_FUZZ_TARGET(metrics_text)
{
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    // The halves are two scrapes.
    const std::size_t half = text.find('\0') == std::string_view::npos ? 0 : text.find('\0');
    top_model model;
    double when = 0;
    for (const std::string_view part : {text.substr(0, half), text.substr(half == 0 ? 0 : half + 1)}) {
        auto read = parse_metrics(part);
        if (!read) {
            fuzz::require(read.error().detail() > 0 && *read.error().context() != '\0');
            return 0;
        }
        for (const auto& [name, samples] : *read) {
            fuzz::require(!name.empty() && !samples.empty());
            for (const metric_sample& s : samples)
                fuzz::require(s.labels.size() <= max_sample_labels);
        }
        model.add({std::chrono::duration<double>(++when), when, std::move(*read), {}});
    }
    top_screen screen;
    for (std::size_t sorted = 0; sorted < 4; ++sorted) {
        const top_view v = model.view(sorted);
        for (const top_table& t : v.tables) {
            for (const top_row& r : t.rows)
                fuzz::require(r.values.size() == t.columns.size());
        }
        constexpr std::size_t width = 40, height = 10;
        const auto lines = screen.lines(v, width, height);
        fuzz::require(lines.size() == height);
        for (const top_line& line : lines)
            fuzz::require(line.text.size() <= width && line.text.find('\x1b') == std::string::npos);
    }
    return 0;
}
