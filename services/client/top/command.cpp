// SPDX-License-Identifier: Apache-2.0
#include "command.hpp"

#include "../commands.hpp"
#include "../http_get.hpp"
#include "../json_text.hpp"
#include "lay_out.hpp"
#include "terminal.hpp"

#include "../../standard_output.hpp"
#include <verbena/core/printable.hpp>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

namespace verbena::cli {

namespace {

using steady = std::chrono::steady_clock;

constexpr std::size_t most_of_a_scrape = std::size_t(64) << 20;
constexpr std::chrono::seconds scrape_patience{15};

volatile std::sig_atomic_t asked_to_end = 0;
void end_top(int) { asked_to_end = 1; }

// So that the terminal is given back. Who started this may have a signal ignored, as nohup has SIGHUP.
void end_by_signals()
{
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
        struct sigaction was{};
        if (::sigaction(number, nullptr, &was) == 0 && was.sa_handler != SIG_IGN)
            std::signal(number, end_top);
    }
}

using stops_asking = std::function<bool()>;

// Where the daemon of the control socket serves its metrics; 0 and the URL, or an exit code, which was complained of.
int find_url(const top_options& o, std::string& url)
{
    admin_options asking;
    asking.socket = o.socket;
    asking.words = {"status"};
    asking.patience = o.patience;
    constexpr std::size_t most = std::size_t(1) << 20;
    const admin_reply told = ask_admin(asking, most);
    if (told.code != exit_ok)
        return complain(told.complaint +
                            "\n  or name the URL of its metrics: --url http://127.0.0.1:9464/metrics",
                        exit_code(told.code));
    const auto all = nlohmann::json::parse(told.json, nullptr, false);
    const auto rows = all.is_object() ? all.find("rows") : all.end();
    if (all.is_object() && rows != all.end() && rows->is_array() && !rows->empty() &&
        rows->front().is_object()) {
        const auto metrics = rows->front().find("metrics");
        if (metrics != rows->front().end() && metrics->is_string())
            url = metrics->get<std::string>();
    }
    if (url.empty())
        return complain(
            "the daemon serves no metrics, from which top takes its figures: set listen in [metrics], and "
            "start it again",
            exit_failed);
    return exit_ok;
}

// The page beside the metrics.
std::string beside(const std::string& url, const char* page)
{
    const std::size_t slash = url.find('/', std::string_view("http://").size());
    return url.substr(0, slash) + page;
}

std::string health_of(const std::string& url, const stops_asking& stops)
{
    for (const char* page : {"/healthz", "/readyz"}) {
        http_reply told = http_get(beside(url, page), 4096, scrape_patience, stops);
        if (told.status == 200 && told.failed.empty())
            continue;
        if (told.status != 503)
            return {};
        told.body.erase(told.body.find_last_not_of('\n') + 1);
        return told.body;
    }
    return "healthy";
}

// Nothing, and why.
std::optional<top_scrape> scrape(const std::string& url, std::string& failed, const stops_asking& stops = {})
{
    top_scrape s;
    const http_reply told = http_get(url, most_of_a_scrape, scrape_patience, stops);
    s.when = steady::now().time_since_epoch();
    s.since_epoch =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    failed = told.is_cut ? "its metrics are more than 64 MiB" : told.failed;
    if (!failed.empty())
        return {};
    auto samples = parse_metrics(told.body);
    if (!samples) {
        failed = "what answers there are no metrics: line " + std::to_string(samples.error().detail()) +
                 ": " + samples.error().context();
        return {};
    }
    s.samples = std::move(*samples);
    s.health = health_of(url, stops);
    return s;
}

std::string told_of(const std::string& url, const std::string& failed)
{
    return printable(url) + ": " + printable(failed);
}

nlohmann::ordered_json json_of_view(const top_view& v)
{
    nlohmann::ordered_json all;
    const auto or_null = [](const std::optional<double>& value) {
        return value && std::isfinite(*value) ? nlohmann::ordered_json(*value)
                                              : nlohmann::ordered_json(nullptr);
    };
    all["version"] = v.version;
    all["uptime_seconds"] = or_null(v.uptime);
    all["health"] = v.health.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(v.health);
    all["connections"] = nlohmann::ordered_json::object();
    for (const auto& [transport, count] : v.connections)
        all["connections"][transport] = count;
    all["calls_in_flight"] = or_null(v.calls_in_flight);
    all["interval_seconds"] = v.interval.count();
    all["has_restarted"] = v.has_restarted;
    for (const top_table& t : v.tables) {
        auto& rows = all[t.key] = nlohmann::ordered_json::array();
        for (const top_row& r : t.rows) {
            auto& row = rows.emplace_back();
            row["name"] = r.name;
            for (std::size_t i = 0; i < r.values.size(); ++i)
                row[t.columns[i].key] = or_null(r.values[i]);
        }
    }
    return all;
}

int run_once(const top_options& o, const std::string& url)
{
    top_model model;
    for (int i = 0; i < 2; ++i) {
        if (i != 0)
            std::this_thread::sleep_for(o.interval);
        std::string failed;
        auto next = scrape(url, failed);
        if (!next)
            return complain(told_of(url, failed), exit_unreachable);
        model.add(std::move(*next));
    }
    const top_view v = model.view(1);
    if (o.json) {
        print("%s\n",
              json_of_view(v).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
        return exit_ok;
    }
    for (const top_line& line : header_lines(v))
        print("%s\n", line.text.c_str());
    for (const top_line& line : table_lines(v, false))
        print("%s\n", line.text.c_str());
    return exit_ok;
}

int run_screen(const top_options& o, const std::string& url)
{
    std::string failed;
    auto first = scrape(url, failed);
    if (!first)
        return complain(told_of(url, failed), exit_unreachable);
    top_model model;
    model.add(std::move(*first));
    const auto shown = terminal::open(failed);
    if (!shown)
        return complain(failed, exit_usage);
    end_by_signals();
    top_screen screen;
    failed.clear();
    const auto draw = [&] {
        top_view v = model.view(screen.sorted_by);
        auto lines = screen.lines(v, shown->width(), shown->height());
        // What was seen stays, and the time of it is told.
        if (!failed.empty() && lines.size() > 2)
            lines[2] = {told_of(url, failed).substr(0, shown->width()), true};
        shown->show(lines);
        return v;
    };
    const auto has_ended = [&] { return screen.has_ended || asked_to_end != 0; };
    const auto press = [&](top_screen::key key, const top_view& v) {
        screen.press(key, table_lines(v, screen.shows_idle).size(), shown->height());
    };
    // Keys are heard while an answer is waited for, too.
    const auto stops = [&] {
        while (const auto key = shown->key(std::chrono::milliseconds(0))) {
            press(*key, model.view(screen.sorted_by));
            if (has_ended())
                break;
            draw();
        }
        return has_ended();
    };
    auto next = steady::now() + o.interval;
    while (!has_ended()) {
        const top_view v = draw();
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - steady::now());
        if (const auto key = shown->key(std::max(left, std::chrono::milliseconds(0))))
            press(*key, v);
        if (has_ended() || steady::now() < next)
            continue;
        std::string why;
        auto more = scrape(url, why, stops);
        failed = std::move(why);
        if (more)
            model.add(std::move(*more));
        // Behind the answer: one that takes longer than the interval leaves time for others.
        next = steady::now() + o.interval;
    }
    return exit_ok;
}

} // namespace

int top(const top_options& o)
{
    std::string url = o.url;
    if (url.empty()) {
        if (const int code = find_url(o, url); code != exit_ok)
            return code;
    }
    return o.once ? run_once(o, url) : run_screen(o, url);
}

} // namespace verbena::cli
