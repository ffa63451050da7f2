// SPDX-License-Identifier: Apache-2.0
#include "own_commands.hpp"

#include "evict_command.hpp"

#include <verbena/core/last_log_lines.hpp>
#include <verbena/core/log.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/core/reactor/request_list.hpp>
#include <verbena/core/task/trace_name.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace verbena::services {

namespace {

std::string words_of(const control_command& c)
{
    std::string text;
    for (const control_argument& a : c.arguments) {
        std::string what = a.name;
        if (!a.words.empty()) {
            what.clear();
            for (const std::string& word : a.words)
                what += (what.empty() ? "" : "|") + word;
        }
        text += (text.empty() ? "" : " ") + (a.required ? what : '[' + what + ']');
    }
    return text;
}

control_command status_command(const std::shared_ptr<const told_of_service>& told)
{
    control_command c;
    c.name = "status";
    c.help = "What runs here, since when, and whether each shard answers";
    c.columns = {"program",   "version",     "pid",          "uptime_seconds", "shards",  "policy",
                 "log_level", "memory_used", "memory_limit", "state",          "metrics", "serves"};
    c.single = true;
    c.answer = [told, began = std::chrono::steady_clock::now()](const control_arguments&) {
        const auto up =
            std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - began);
        const auto or_nothing = [](const std::string& text) {
            return text.empty() ? control_value() : control_value(text);
        };
        control_row row;
        row.emplace_back(told->program);
        row.push_back(or_nothing(told->version));
        row.emplace_back(std::int64_t(::getpid()));
        row.emplace_back(std::int64_t(up.count()));
        row.emplace_back(std::uint64_t(told->shards->size()));
        row.emplace_back(told->policy);
        row.emplace_back(std::string(to_string(current_log_level())));
        row.emplace_back(std::uint64_t(told->shards->budget().used()));
        row.emplace_back(std::uint64_t(told->shards->budget().limit()));
        row.push_back(or_nothing(told->state));
        row.push_back(or_nothing(told->metrics));
        row.emplace_back(told->places);
        return control_answer{{std::move(row)}, {}};
    };
    // Nothing is there, but each shard says so.
    c.list = [](shard&, const control_arguments&) { return std::unique_ptr<control_list>(); };
    return c;
}

double seconds_of(duration d) { return std::chrono::duration_cast<std::chrono::duration<double>>(d).count(); }

// Those of one shard, protocol by protocol.
class list_of_connections final : public control_list {
public:
    list_of_connections(shard& s, std::shared_ptr<const told_of_service> told)
        : shard_(s), told_(std::move(told))
    {
    }
    bool next(std::vector<control_row>& rows, std::size_t most) override
    {
        const time_point now = shard_.reactor().now();
        for (std::size_t n = 0; n < most;) {
            if (!reader_ && at_ == told_->protocols.size())
                return false;
            if (!reader_)
                reader_.emplace(told_->protocols[at_++].connections(shard_.index()));
            const listed_connection* const c = reader_->next();
            if (c == nullptr) {
                reader_.reset();
                continue;
            }
            const connection_report r = c->report();
            rows.push_back({std::uint64_t(r.number), r.peer, told_->protocols[at_ - 1].name,
                            std::string(r.transport), std::uint64_t(shard_.index()),
                            seconds_of(now - r.since), seconds_of(now - r.last_call), std::uint64_t(r.calls),
                            std::string(r.state)});
            ++n;
        }
        return true;
    }

private:
    shard& shard_;
    const std::shared_ptr<const told_of_service> told_;
    std::size_t at_ = 0; // of protocols, behind that of reader_
    std::optional<connection_list::reader> reader_;
};

control_command connections_command(const std::shared_ptr<const told_of_service>& told)
{
    control_command c;
    c.name = "connections";
    c.help = "The connections that calls come by";
    c.columns = {"connection",  "peer",         "protocol", "transport", "shard",
                 "age_seconds", "idle_seconds", "calls",    "state"};
    c.list = [told](shard& s, const control_arguments&) {
        return std::make_unique<list_of_connections>(s, told);
    };
    return c;
}

// To the microsecond, which people can still read.
double milliseconds_of(duration d)
{
    return double(std::chrono::duration_cast<std::chrono::microseconds>(d).count()) / 1000;
}

// The columns of a request that are the same while it is served and afterwards.
control_row begin_row(const request_report& r, const shard& where)
{
    const auto or_nothing = [](std::string_view text) {
        return text.empty() ? control_value() : control_value(std::string(text));
    };
    std::string protocol(r.protocol.view());
    if (!r.version.empty())
        protocol.append(" ").append(r.version.view());
    return {std::string(trace_name(r.trace).view()),
            or_nothing(r.peer),
            std::move(protocol),
            or_nothing(r.transport),
            std::uint64_t(where.index()),
            or_nothing(r.operation),
            or_nothing(r.object)};
}

// Those of one shard, the oldest first.
class list_of_requests final : public control_list {
public:
    explicit list_of_requests(shard& s) : shard_(s), reader_(s.reactor().requests()) {}
    bool next(std::vector<control_row>& rows, std::size_t most) override
    {
        request_list& all = shard_.reactor().requests();
        const time_point now = shard_.reactor().now();
        for (std::size_t n = 0; n < most; ++n) {
            const listed_request* const r = reader_.next();
            if (r == nullptr)
                return false;
            request_report what;
            r->report(what);
            control_row row = begin_row(what, shard_);
            row.emplace_back(milliseconds_of(now - r->since()));
            std::string waits = all.waits_for(*r);
            row.push_back(waits.empty() ? control_value() : control_value(std::move(waits)));
            row.resize(row.size() + 2); // of those that have ended
            rows.push_back(std::move(row));
        }
        return true;
    }

private:
    shard& shard_;
    request_list::reader reader_;
};

// The slowest that ended on one shard of late.
class list_of_slowest final : public control_list {
public:
    explicit list_of_slowest(shard& s) : shard_(s), all_(s.reactor().requests().slowest()) {}
    bool next(std::vector<control_row>& rows, std::size_t most) override
    {
        const time_point now = shard_.reactor().now();
        for (std::size_t n = 0; n < most && at_ < all_.size(); ++n, ++at_) {
            const request_list::ended& one = all_[at_];
            control_row row = begin_row(one.what, shard_);
            row.emplace_back(milliseconds_of(one.took));
            row.emplace_back(); // it waits for nothing any more
            row.emplace_back(std::string(one.what.status.view()));
            row.emplace_back(seconds_of(now - one.when));
            rows.push_back(std::move(row));
        }
        return at_ < all_.size();
    }

private:
    shard& shard_;
    const std::vector<request_list::ended> all_;
    std::size_t at_ = 0;
};

control_command requests_command()
{
    control_command c;
    c.name = "requests";
    c.help =
        "The calls and block operations under way, the oldest first; with slowest, those that ended of late";
    c.columns = {"call",   "peer",   "protocol",  "transport", "shard",        "operation",
                 "object", "age_ms", "waits_for", "status",    "ended_seconds"};
    c.arguments = {
        {.name = "which", .help = "slowest: the slowest of the last minutes", .words = {"slowest"}}};
    c.largest_first = "age_ms";
    c.list = [](shard& s, const control_arguments& said) -> std::unique_ptr<control_list> {
        if (said.find("which") != nullptr)
            return std::make_unique<list_of_slowest>(s);
        return std::make_unique<list_of_requests>(s);
    };
    return c;
}

control_command modules_command(const std::shared_ptr<const told_of_service>& told)
{
    control_command c;
    c.name = "modules";
    c.help = "The modules that are built in or loaded, and which of them are in use";
    c.columns = {"name", "version", "role", "in_use", "from", "summary"};
    c.answer = [told](const control_arguments&) {
        const auto text = [](const char* words) {
            return words == nullptr ? control_value() : control_value(std::string(words));
        };
        control_answer all;
        for (const module_table::entry& e : told->modules->all())
            all.rows.push_back({std::string(e.name()), text(e.descriptor->version),
                                std::string(e.object->role()), e.used, e.from, text(e.descriptor->summary)});
        return all;
    };
    return c;
}

control_command config_command(const std::shared_ptr<const told_of_service>& told)
{
    control_command c;
    c.name = "config";
    c.help = "The configuration that is in effect, without what may be a secret";
    c.columns = {"configuration"};
    c.answer = [told](const control_arguments&) {
        control_answer all;
        std::istringstream lines(told->config ? told->config() : std::string());
        for (std::string line; std::getline(lines, line);)
            all.rows.push_back({line});
        return all;
    };
    return c;
}

control_command log_level_command()
{
    control_command c;
    c.name = "loglevel";
    c.help = "The level of the log; with LEVEL, sets it until the next start";
    c.columns = {"log_level"};
    c.arguments = {{.name = "level",
                    .help = "The lowest level that is written",
                    .words = {"trace", "debug", "info", "warning", "error", "off"}}};
    c.single = true;
    c.answer = [](const control_arguments& said) {
        log_level wanted = current_log_level();
        if (const std::string* const level = said.find("level"); level != nullptr) {
            parse_log_level(*level, wanted);
            set_log_level(wanted);
        }
        control_answer own;
        own.rows.push_back({std::string(to_string(current_log_level()))});
        return own;
    };
    return c;
}

// Of a process without a journal, or whose journal nobody may read.
control_command log_command()
{
    control_command c;
    c.name = "log";
    c.help = "The last lines of the log, the newest last; LINES of them";
    c.columns = {"line"};
    c.arguments = {{.name = "lines", .help = "How many at most; without it all that are kept"}};
    c.answer = [](const control_arguments& said) {
        std::size_t most = std::numeric_limits<std::size_t>::max();
        if (const std::string* const lines = said.find("lines"); lines != nullptr) {
            const char* const end = lines->data() + lines->size();
            const auto [last, bad] = std::from_chars(lines->data(), end, most);
            if (bad != std::errc() || last != end || most == 0)
                throw std::runtime_error("log: " + printable(*lines) +
                                         " is no number of lines: write one from 1 on, as in log 100");
        }
        control_answer all;
        std::istringstream lines(last_log_lines());
        for (std::string line; std::getline(lines, line);)
            all.rows.push_back({line});
        if (all.rows.size() > most)
            all.rows.erase(all.rows.begin(), all.rows.end() - std::ptrdiff_t(most));
        return all;
    };
    return c;
}

control_command drain_command(const std::shared_ptr<const told_of_service>& told)
{
    control_command c;
    c.name = "drain";
    c.help = "Begins the orderly stop, as SIGTERM does";
    c.columns = {"draining", "drain_seconds"};
    c.single = true;
    c.answer = [told](const control_arguments&) {
        if (!told->drain)
            throw std::runtime_error(
                "drain: " + told->program +
                " does not leave its end to service::run(), which alone can be asked to stop: "
                "end it in its own way");
        control_answer own;
        own.rows.push_back({true, told->drain_seconds()});
        own.afterwards = told->drain;
        return own;
    };
    return c;
}

} // namespace

setting_values without_secrets(const setting_values& values)
{
    setting_values out = values;
    for (const auto& [name, v] : values.all()) {
        setting_values::value shown = v;
        if (is_secret(name)) {
            shown.data = std::string(not_shown);
            shown.is_table = false;
        } else if (auto* const tables = std::get_if<setting_values::value::tables>(&shown.data)) {
            for (setting_values& t : *tables)
                t = without_secrets(t);
        }
        out.set(name, std::move(shown));
    }
    return out;
}

void add_own_commands(control_table& table, told_of_service told)
{
    const auto shared = std::make_shared<const told_of_service>(std::move(told));
    table.add(status_command(shared));
    table.add(config_command(shared));
    table.add(connections_command(shared));
    table.add(requests_command());
    table.add(modules_command(shared));
    table.add(log_level_command());
    table.add(log_command());
    table.add(evict_command(shared));
    table.add(drain_command(shared));
    control_command help;
    help.name = "help";
    help.help = "The commands that there are";
    help.columns = {"command", "arguments", "help"};
    auto rows = std::make_shared<std::vector<control_row>>();
    help.answer = [rows](const control_arguments&) { return control_answer{*rows, {}}; };
    table.add(std::move(help));
    for (const control_command& c : table.all())
        rows->push_back({c.name, words_of(c), c.help});
}

} // namespace verbena::services
