// SPDX-License-Identifier: Apache-2.0
#include "reloader.hpp"
#include "served_protocol.hpp"
#include "state_directory.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/module/start_error.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/core/task/exception.hpp>
#include <verbena/protocols/rpc/module.hpp>
#include <verbena/services/config_file.hpp>

#include <algorithm>
#include <filesystem>
#include <netinet/in.h>
#include <set>
#include <stdexcept>
#include <sys/socket.h>

namespace verbena::services {

namespace {

[[noreturn]] void refuse_table(const setting_place& place, const std::string& name)
{
    throw config_error(place, name + " is a table here and none there: write it as [" + name + "]");
}

// `path` ends in a dot, if there is one.
void merge(setting_values& into, const setting_values& from, const std::string& path = {})
{
    using tables = setting_values::value::tables;
    for (const auto& [name, v] : from.all()) {
        setting_values::value* const there = into.find(name);
        if (there != nullptr && there->is_table != v.is_table) {
            if (v.place.text.empty()) // check() refuses what the file has
                continue;
            refuse_table(v.place, path + name);
        }
        if (there != nullptr && v.is_table) {
            merge(std::get<tables>(there->data).front(), std::get<tables>(v.data).front(), path + name + '.');
            if (!v.place.text.empty())
                there->place = v.place;
        } else {
            into.set(name, v);
        }
    }
}

// A file may have put something else where the path needs a table: its author is told, and where.
void say(setting_values& said, std::string_view path, setting_values::value v)
{
    const setting_values* at = &said;
    for (std::size_t dot = path.find('.'), begin = 0; dot != std::string_view::npos;
         begin = dot + 1, dot = path.find('.', begin)) {
        const setting_values::value* const there = at->find(path.substr(begin, dot - begin));
        if (there == nullptr)
            break;
        if (!there->is_table && !there->place.text.empty())
            refuse_table(there->place, std::string(path.substr(0, dot)));
        if (!there->is_table)
            break;
        at = &std::get<setting_values::value::tables>(there->data).front();
    }
    said.set_path(path, std::move(v));
}

setting_values& table_in(setting_values& root, std::string_view name)
{
    return std::get<setting_values::value::tables>(root.find(name)->data).front();
}

setting_values::value table_of_nothing(const protocol_module& m)
{
    setting_values nothing;
    check(m.settings(), nothing);
    setting_values::value v{setting_values::value::tables{std::move(nothing)}};
    v.is_table = true;
    v.is_default = true;
    return v;
}

// Whether somebody could listen there, without anybody seeing that it was tried.
void look_at_listener(const listen_url& url)
{
    if (url.port == 0 || url.scheme == "rdma")
        return;
    for (const net::endpoint& where : endpoints_of(url)) {
        const int family = where.family();
        net::unique_fd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const int on = 1;
        if (!socket)
            throw_start_failure(error::from_errno(errno, "a socket"), url.text() + ": no socket can be made");
        (void)::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (family == AF_INET6)
            (void)::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
        if (::bind(socket.get(), where.data(), where.size()) != 0) {
            const error why = error::from_errno(errno, "bind");
            throw_start_failure(why, url.text() + ": can't listen there: " + why.message() +
                                         cure_of_listening(why, url));
        }
    }
}

} // namespace

void configuration_words::load(const std::string& path)
{
    setting_values made = said_;
    merge(made, load_config(path));
    words_.emplace_back(file{path});
    said_ = std::move(made);
}

void configuration_words::set(std::string_view path, setting_values::value v)
{
    say(said_, path, v);
    words_.emplace_back(word{std::string(path), std::move(v)});
}

void configuration_words::set(setting_values values)
{
    merge(said_, values);
    words_.emplace_back(std::move(values));
}

bool configuration_words::has_file() const noexcept
{
    return std::ranges::any_of(words_, [](const auto& w) { return std::holds_alternative<file>(w); });
}

setting_values configuration_words::again(const std::string* in_place_of_file) const
{
    setting_values made;
    bool first = true;
    if (in_place_of_file != nullptr && !has_file())
        merge(made, load_config(*in_place_of_file));
    for (const auto& w : words_) {
        if (const auto* const f = std::get_if<file>(&w)) {
            if (in_place_of_file == nullptr)
                merge(made, load_config(f->path));
            else if (std::exchange(first, false))
                merge(made, load_config(*in_place_of_file));
        } else if (const auto* const one = std::get_if<word>(&w)) {
            say(made, one->path, one->value);
        } else {
            merge(made, std::get<setting_values>(w));
        }
    }
    return made;
}

/// A plan of each module that has one, and of the service itself.
struct reloader::plan {
    setting_values wanted;
    std::vector<reload_change> changes;
    std::vector<std::pair<std::string, std::unique_ptr<reload_plan>>> of_modules; // by their tables
    std::vector<std::string> at_once;                                             // settings of [daemon]
};

reloader::reloader(terms t)
    : terms_(std::move(t)),
      last_success_(
          std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count())
{
}

std::unique_lock<std::mutex> reloader::turn(busy while_another_runs)
{
    std::unique_lock lock(turn_, std::defer_lock);
    if (while_another_runs == busy::waits)
        lock.lock();
    else if (!lock.try_lock())
        throw std::runtime_error("a reload or a check is under way: wait until it has ended");
    if (stops_)
        throw std::runtime_error("the program stops");
    return lock;
}

reloader::plan reloader::make_plan(const std::string* file, bool looks_only)
{
    plan made;
    made.wanted = terms_.words->again(file);
    setting_values& wanted = made.wanted;
    const setting_values& running = terms_.running;
    const std::vector<setting> declared = terms_.settings();
    check(declared, wanted);
    terms_.complete(wanted);
    const auto declared_of = [&declared](std::string_view name) -> const setting& {
        return *std::ranges::find(declared, name, &setting::name);
    };

    // Of the service itself.
    note_changes(std::span(&declared_of("modules"), 1), running, wanted, {}, true, made.changes);
    for (const setting& s : declared_of("daemon").inner) {
        const auto change = std::ranges::find(terms_.at_once, s.name, [](const auto& c) { return c.first; });
        const bool is_at_once = change != terms_.at_once.end();
        const std::size_t before = made.changes.size();
        note_changes(std::span(&s, 1), table_in(terms_.running, "daemon"), table_in(wanted, "daemon"),
                     "daemon.", !is_at_once, made.changes);
        if (is_at_once && made.changes.size() != before)
            made.at_once.push_back(s.name);
    }
    for (const std::string_view name : {"memory", "metrics"})
        note_changes(declared_of(name).inner, running.table(name), wanted.table(name),
                     std::string(name) + '.', true, made.changes);

    const std::string& state = wanted.table("daemon").text("state");
    if (looks_only && !state.empty() && terms_.has_state)
        at_place_of_start(wanted.table("daemon").place("state"), [&] {
            if (!look_at_state_directory(state))
                made.changes.push_back({"daemon.state", state + " is not there: a start makes it", true});
        });

    // Of protocols.
    std::set<std::string> addresses;
    const auto is_served = [this](std::string_view name) {
        return std::ranges::any_of(terms_.protocols, [&](const auto& p) {
            return std::ranges::any_of(
                p.second, [&](const protocol_module* m) { return terms_.modules->name_of(*m) == name; });
        });
    };
    for (const setting& s : declared)
        if (terms_.modules->find<protocol_module>(s.name) != nullptr && !is_served(s.name) &&
            wanted.find(s.name) != nullptr)
            made.changes.push_back({s.name, "added", true});
    for (const auto& [name, modules] : terms_.protocols) {
        if (wanted.find(name) == nullptr) {
            made.changes.push_back({name, "removed", true});
            continue;
        }
        for (protocol_module* m : modules) {
            const std::string own(terms_.modules->name_of(*m));
            if (wanted.find(own) == nullptr)
                wanted.set(own, table_of_nothing(*m));
            setting_values& values = table_in(wanted, own);
            if (m == modules.front()) {
                const listen_plan listeners = plan_listeners(*m, values, addresses);
                const auto known = listener_settings(*m);
                note_changes(known, running.table(own), values, own + '.', true, made.changes);
                if (looks_only && differ(running.table(own), values, "listen")) {
                    const auto& there = running.table(own).list("listen");
                    for (const auto& l : listeners.urls)
                        if (std::ranges::find(there, l.url.text()) == there.end())
                            at_place_of_start(l.place, [&] { look_at_listener(l.url); });
                }
            }
            if (auto* const can = dynamic_cast<reloadable*>(m); can != nullptr) {
                made.of_modules.emplace_back(own, can->plan_reload(values, *terms_.modules, looks_only));
                for (const reload_change& c : made.of_modules.back().second->changes)
                    made.changes.push_back(c);
            } else {
                note_changes(m->settings(), running.table(own), values, own + '.', true, made.changes);
            }
        }
    }
    return made;
}

reloader::outcome reloader::look(const std::string* file)
{
    if (file != nullptr && !std::filesystem::path(*file).is_absolute())
        throw config_error(printable(*file) +
                           ": write the whole path, from / on: this program may be in another folder");
    if (file == nullptr && !terms_.words->has_file())
        throw config_error(terms_.program +
                           " was given its configuration without a file: name one to look at");
    const auto lock = turn();
    plan made = make_plan(file, true);
    return {std::move(made.changes), {}};
}

reloader::outcome reloader::reload(busy while_another_runs)
{
    bool has_begun = false;
    try {
        if (!terms_.words->has_file())
            throw config_error(terms_.program +
                               " was given its configuration by itself or by a command line, and has no file "
                               "to read again: restart it");
        const auto lock = turn(while_another_runs);
        plan made = make_plan(nullptr, false);
        has_begun = true;
        outcome done;
        done.changes = std::move(made.changes);
        // From here on nothing fails but for want of memory for what is said.
        for (const auto& [name, change] : terms_.at_once)
            if (std::ranges::find(made.at_once, name) != made.at_once.end()) {
                change(table_in(made.wanted, "daemon"));
                table_in(terms_.running, "daemon").set(name, *table_in(made.wanted, "daemon").find(name));
            }
        for (const auto& [name, each] : made.of_modules) {
            each->apply();
            for (const std::string& text : each->late)
                done.late.push_back(text);
        }
        if (terms_.reloaded)
            terms_.reloaded(made.wanted);
        succeeded_ = true;
        last_success_ =
            std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
        for (const reload_change& c : done.changes)
            log(c.needs_restart ? log_level::warning : log_level::info, "service",
                c.needs_restart ? "a change of the configuration needs a restart" : "reloaded",
                {{"what", c.what}, {"change", c.change}});
        for (const std::string& text : done.late)
            log(log_level::warning, "service", "a reload is not done everywhere yet", {{"why", text}});
        log(log_level::info, "service", "the configuration was reloaded", {{"changes", done.changes.size()}});
        return done;
    } catch (...) { // a module's own may be of any kind
        succeeded_ = false;
        log(log_level::error, "service",
            has_begun ? "the configuration was reloaded, but what came of it can't be told"
                      : "the configuration was not reloaded, and nothing has changed",
            {{"why", what_of(std::current_exception())}});
        throw;
    }
}

void reloader::stop() noexcept
{
    stops_ = true;
    const std::lock_guard lock(turn_);
}

metric_registrations reloader::expose(metric_registry& registry) const
{
    metric_group group(registry);
    group.add({"verbena_config_last_reload_successful",
               "1 if the last attempt to reload the configuration succeeded, or there was none; else 0.",
               metric_type::gauge, ""},
              [this](metric_sink& out) { out.value({}, succeeded_ ? 1 : 0); });
    group.add({"verbena_config_last_reload_success_timestamp_seconds",
               "When the configuration was last reloaded, or read at the start, in seconds since 1970.",
               metric_type::gauge, "seconds"},
              [this](metric_sink& out) { out.value({}, last_success_); });
    return group.take();
}

namespace {

control_answer rows_of(const reloader::outcome& done)
{
    control_answer all;
    for (const reload_change& c : done.changes)
        all.rows.push_back({c.what, c.change, c.needs_restart});
    for (const std::string& text : done.late)
        all.rows.push_back({std::string("later"), text, false});
    return all;
}

} // namespace

std::vector<control_command> reloader::commands()
{
    control_command again;
    again.name = "reload";
    again.help = "Reads the configuration file again and takes what can change without a restart";
    again.columns = {"what", "change", "needs_restart"};
    again.work = [this](const control_arguments&, const std::stop_token&) { return rows_of(reload()); };
    control_command looks;
    looks.name = "check";
    looks.help = "What a reload would change, with FILE or with the file of the program; changes nothing";
    looks.columns = again.columns;
    looks.arguments = {{.name = "file", .help = "The whole path of a configuration file"}};
    looks.work = [this](const control_arguments& said, const std::stop_token&) {
        return rows_of(look(said.find("file")));
    };
    std::vector<control_command> all;
    all.push_back(std::move(again));
    all.push_back(std::move(looks));
    return all;
}

} // namespace verbena::services
