// SPDX-License-Identifier: Apache-2.0
// The start of a service, and what of it others look at: health, the configuration that is in effect, commands.
#include "service_impl.hpp"

#include "control_socket.hpp"
#include "notify.hpp"
#include "own_commands.hpp"
#include "rdma_port_metrics.hpp"
#include "shard_server.hpp"

#include <verbena/core/net/net.hpp>
#include <verbena/core/net/refusals.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/core/reactor/request_list.hpp>
#include <verbena/core/suggestion.hpp>
#include <verbena/services/config_file.hpp>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <unistd.h>

namespace verbena {

using namespace services;

namespace {

// A shard that has been asked and has run nothing for that long does not work (/healthz).
constexpr std::chrono::seconds hangs_after{2};

// VERBENA_MASK: features of the ring to do without, as an older or locked-down kernel would; for tests.
unsigned masked_ring_features()
{
    const char* text = std::getenv("VERBENA_MASK");
    unsigned masked = 0;
    for (std::string_view rest = text == nullptr ? "" : text; !rest.empty();) {
        const std::string_view word = rest.substr(0, rest.find(','));
        rest.remove_prefix(std::min(word.size() + 1, rest.size()));
        if (word == "single_issuer")
            masked |= static_cast<unsigned>(ring_feature::single_issuer);
        else if (word == "defer_taskrun")
            masked |= static_cast<unsigned>(ring_feature::defer_taskrun);
        else
            throw config_error("VERBENA_MASK: no feature " + std::string(word) +
                               did_you_mean(word, {"single_issuer", "defer_taskrun"}));
    }
    if (masked != 0)
        log(log_level::warning, "service", "features are masked off", {{"mask", text}});
    return masked;
}

// Calls a module, whose exceptions are told with its name.
template<class F>
void ask(const module_table& table, const module& m, F f)
{
    try {
        f();
    } catch (const config_error&) {
        throw;
    } catch (const services::program_failure& e) { // of one that is served with it
        throw std::runtime_error("module " + std::string(table.name_of(e.from())) + ": " + e.what());
    } catch (const std::exception& e) {
        throw std::runtime_error("module " + std::string(table.name_of(m)) + ": " + e.what());
    } catch (...) {
        throw std::runtime_error("module " + std::string(table.name_of(m)) +
                                 ": it threw something that is no std::exception");
    }
}

} // namespace

void service::start()
{
    if (!impl_->configured || std::exchange(impl_->began, true))
        throw std::logic_error("a service is started once, after configure()");
    try {
        impl_->start();
        impl_->not_ready = nullptr;
    } catch (const std::exception& e) {
        impl_->give_up(e.what());
        throw;
    } catch (...) {
        impl_->give_up("no std::exception");
        throw;
    }
}

runtime_options service::impl::options() const
{
    const setting_values& d = values.table("daemon");
    runtime_options o;
    o.shards = static_cast<unsigned>(d.number("shards"));
    o.reactor.policy = *parse_wait_policy(d.text("policy"));
    o.reactor.masked_ring_features = masked_ring_features();
    o.reactor.spin = std::chrono::microseconds(d.number("spin_microseconds"));
    o.memory_limit = std::size_t(d.number("memory_mib")) << 20;
    o.pages = values.table("memory").text("huge_pages") == "no" ? huge_pages::no : huge_pages::automatic;
    o.blocking_threads = static_cast<unsigned>(d.number("blocking_threads"));
    o.pin = d.flag("pin");
    return o;
}

void service::impl::start_log_writer()
{
    const setting_values& d = values.table("daemon");
    try {
        log_writer.emplace(d.flag("pin") ? static_cast<unsigned>(d.number("shards")) : 0);
    } catch (const std::system_error& e) {
        throw std::runtime_error(std::string("the thread that writes the log does not start: ") + e.what() +
                                 "; raise the limit of threads (ulimit -u, TasksMax=)");
    }
}

void service::impl::start_runtime()
{
    auto made = runtime::start(options());
    if (!made)
        throw std::runtime_error("the shards do not start: " + made.error().message());
    rt = std::move(*made);
    has_shards = true;
    const setting_values& d = values.table("daemon");
    shares.emplace(peer_options{
        static_cast<unsigned>(d.number("peer_ipv6_prefix")), d.number("peer_memory_mib") << 20,
        d.find("peer_connections") == nullptr ? 0
                                              : static_cast<std::uint32_t>(d.number("peer_connections"))});
    registrations = metrics::expose_process(registry);
    registrations.push_back(registry.add(
        {"verbena_log_dropped_lines_total",
         "Log lines that were dropped, since the standard error was not read in time or there was no memory.",
         metric_type::counter, "lines"},
        [](metric_sink& out) { out.value({}, double(dropped_log_lines())); }));
    append(registrations, expose(registry, *shares));
    append(registrations, expose_refusals(registry));
    rt->expose(registry);
    const std::chrono::seconds slow(d.number("slow_seconds"));
    for (std::size_t i = 0; i < rt->size(); ++i)
        rt->call(i, [slow](shard& s) { s.reactor().requests().set_slow(slow); });
}

void service::impl::start()
{
    running = true;
    log_level level = log_level::info;
    parse_log_level(values.table("daemon").text("log_level"), level);
    set_log_level(level);
    start_log_writer();
    table.start_began();
    drain_seconds = values.table("daemon").number("drain_seconds");
    for (module* m : order)
        ask(table, *m, [&] { m->prepare(); });
    start_runtime();
    for (const hook& h : hooks) {
        ++opened;
        if (h.opens)
            h.opens(*rt);
        ++open;
    }
    std::vector<std::vector<planned_listener>> listeners;
    server::options total;
    total.peers = &*shares;
    if (values.table("daemon").find("connections") != nullptr)
        total.connections = values.table("daemon").number("connections");
    total.iwarp = iwarp.get();
    for (served& s : protocols) {
        listeners.push_back(resolve_listeners(s.plan));
        std::vector<listen_target> targets;
        for (const planned_listener& l : listeners.back()) {
            targets.push_back({l.url.scheme, l.url.text(), l.where});
            ++total.listeners;
            total.rdma_listeners += l.url.scheme == "tcp" ? 0 : 1;
            uses_devices = uses_devices || l.url.scheme == "rdma";
        }
        for (protocol_module* m : s.all)
            ask(table, *m, [&] { m->will_listen(targets); });
    }
    for (module* m : order) {
        started.push_back(m);
        ask(table, *m, [&] { m->start(*this); });
    }
    total.servers = protocols.size();
    std::vector<device_choice> devices;
    for (std::size_t i = 0; i < protocols.size(); ++i) {
        served& s = protocols[i];
        server::options o = total;
        o.name = s.name;
#ifdef VERBENA_HAS_RDMA
        o.rdma = rdma.emplace_back(verbena::rdma::make_host()).get();
#endif
        o.iwarp_crc = s.plan.iwarp_crc;
        o.read_limit = s.plan.read_limit;
        s.server = std::make_unique<services::server>(*rt, std::move(o), std::move(listeners[i]));
        ask(table, *s.protocol, [&] {
            if (auto* v = dynamic_cast<verbs::protocol_module*>(s.protocol); v != nullptr)
                s.server->start(*v, registry);
            else
                s.server->start(s.programs, registry);
        });
        for (const device_choice& d : s.server->devices())
            devices.push_back(d);
    }
    registrations.push_back(expose_rdma_ports(registry, std::move(devices)));
    health.emplace(*rt);
    if (const std::string& where = values.table("metrics").text("listen"); where != "off")
        or_off([&] { exporter.emplace(metrics::serve(registry, where, probes())); });

    const setting_values& d = values.table("daemon");
    const std::uint64_t count = d.number("shards");
    text = program + (version.empty() ? "" : " " + version) + ": " + std::to_string(count) +
           (count == 1 ? " shard" : " shards") + ", policy " + d.text("policy") +
           (has_state ? ", state in " + printable(d.text("state")) : std::string()) + '\n';
    for (served& s : protocols) {
        for (protocol_module* m : s.all) {
            ask(table, *m, [&] {
                const std::string said = m->listening(s.server->places());
                if (m == s.protocol)
                    text += said;
            });
        }
    }
    prepare_reloads();
    text += exporter ? "metrics at " + exporter->url() + '\n' : std::string("no metrics\n");
    text += in_clear_text();
    start_control();
}

// What others than this host can hear and say.
std::string service::impl::in_clear_text() const
{
    std::string urls;
    for (const served& s : protocols) {
        for (const listen_place& l : s.server->places()) {
            if (!l.where.is_loopback())
                urls += ' ' + l.url();
        }
    }
    // Its pages tell names of exports and clients to whoever asks.
    const std::string& pages = values.table("metrics").text("listen");
    if (const auto where = net::endpoint::parse(pages); exporter && where && !where->is_loopback())
        urls += ' ' + exporter->url();
    return urls.empty() ? urls
                        : "not encrypted, and callers are who they say they are:" + urls +
                              "; let only a network that you trust reach that\n";
}

// For /healthz and /readyz.
metrics::serve_options service::impl::probes()
{
    metrics::serve_options o;
    o.health = [this] {
        const auto silent = health->longest_silence();
        if (silent < hangs_after)
            return metrics::probe{};
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(silent).count();
        return metrics::probe{false, "a shard has run no task for " + std::to_string(seconds) +
                                         " s; SIGUSR1 has what each shard is doing logged"};
    };
    o.ready = [this] {
        const char* const why = not_ready;
        return why == nullptr ? metrics::probe{} : metrics::probe{false, why};
    };
    return o;
}

// Empty: there is none.
std::string service::impl::control_path() const
{
    const setting_values& d = values.table("daemon");
    const std::string& said = d.text("control");
    if (said == "off")
        return {};
    if (!said.empty() && !has_control_server())
        throw config_error(
            d.place("control"),
            "control: this build has no control socket, since Asio (libasio-dev) was missing; leave "
            "the setting out, or build verbena with it");
    if (!said.empty())
        return std::filesystem::absolute(said).lexically_normal().string();
    if (!has_control_server())
        return {};
    if (const auto path = runtime_control_path())
        return *path;
    std::string path = has_state ? d.text("state") + "/control" : std::string();
    if (fits_a_socket(path))
        return path;
    log(log_level::warning, "service",
        "there is no control socket, since the path of the state directory is too long for one; set [daemon] "
        "control",
        {{"state", d.text("state")}});
    return {};
}

// What runs now is what a reload compares with.
void service::impl::prepare_reloads()
{
    reloader::terms t;
    t.program = program;
    static const configuration_words nothing;
    t.words = reloads ? &words : &nothing;
    t.modules = &table;
    t.settings = [this] { return all_settings(table); };
    t.complete = [](setting_values& wanted) { complete_daemon(wanted); };
    for (const served& s : protocols)
        t.protocols.emplace_back(s.name, s.all);
    t.running = values;
    t.has_state = has_state;
    t.at_once.emplace_back("log_level", [](const setting_values& daemon) {
        log_level level = log_level::info;
        parse_log_level(daemon.text("log_level"), level);
        set_log_level(level);
    });
    t.at_once.emplace_back("drain_seconds", [this](const setting_values& daemon) {
        drain_seconds = daemon.number("drain_seconds");
    });
    t.reloaded = [this](const setting_values& now) {
        const std::string said = served_text(now);
        std::string effective = to_toml(without_secrets(now));
        {
            const std::lock_guard lock(serving_mutex);
            serving = said;
            in_effect.swap(effective);
        }
        if (runs)
            notify_manager("STATUS=" + said);
    };
    {
        const std::lock_guard lock(serving_mutex);
        serving = served_text(values);
        in_effect = to_toml(without_secrets(values));
    }
    reloading.emplace(std::move(t));
    append(registrations, reloading->expose(registry));
}

std::string service::impl::serving_now() const
{
    const std::lock_guard lock(serving_mutex);
    return serving;
}

// The thread that waits for signals answers the watchdog meanwhile. What comes of it stands in the log.
void service::impl::reload_by_signal()
{
    by_signal was = by_signal::nothing;
    while (!signalled.compare_exchange_strong(was, by_signal::reloads)) {
        if (was == by_signal::once_more)
            return; // that one begins behind this signal
        if (was == by_signal::reloads && signalled.compare_exchange_strong(was, by_signal::once_more)) {
            log(log_level::info, "service", "SIGHUP: a reload is under way, and one more follows");
            return;
        }
        was = by_signal::nothing;
    }
    if (reloads_by_signal.joinable())
        reloads_by_signal.join();
    try {
        reloads_by_signal = std::thread([this] {
            for (;;) {
                try {
                    (void)reloading->reload(reloader::busy::waits);
                } catch (...) { // it is in the log
                }
                by_signal now = by_signal::reloads;
                if (signalled.compare_exchange_strong(now, by_signal::nothing))
                    return;
                signalled = by_signal::reloads;
            }
        });
    } catch (const std::system_error& e) {
        signalled = by_signal::nothing;
        log(log_level::error, "service", "SIGHUP: there is no thread for a reload", {{"error", e.what()}});
    }
}

// When all else has started.
void service::impl::start_control()
{
    control_options o;
    o.path = control_path();
    if (o.path.empty()) {
        text += has_control_server() ? "no control socket\n" : "no control socket: built without Asio\n";
        return;
    }
    const setting_values& d = values.table("daemon");
    told_of_service told;
    told.program = program;
    told.version = version;
    told.policy = d.text("policy");
    told.state = has_state ? d.text("state") : std::string();
    told.metrics = exporter ? exporter->url() : std::string();
    for (const served& s : protocols) {
        for (const listen_place& l : s.server->places())
            told.places.push_back(s.name + " at " + l.url());
        told.protocols.push_back({s.name, [of = s.server.get()](std::size_t shard) -> connection_list& {
                                      return of->connections(shard);
                                  }});
    }
    told.shards = rt.get();
    told.modules = &table;
    told.peers = &*shares;
    told.drain_seconds = [this] { return drain_seconds.load(); };
    told.config = [this] {
        const std::lock_guard lock(serving_mutex);
        return in_effect;
    };
    if (runs)
        told.drain = [] { ::kill(::getpid(), SIGTERM); };
    control_table commands;
    for (control_command& c : own_commands)
        commands.add(std::move(c));
    for (module* m : started) {
        if (auto* const has = dynamic_cast<controlled*>(m); has != nullptr)
            ask(table, *m, [&] {
                for (control_command& c : has->control_commands())
                    commands.add(std::move(c));
            });
    }
    for (control_command& c : reloading->commands())
        commands.add(std::move(c));
    add_own_commands(commands, std::move(told));
    try {
        at_place_of_start(d.place("control"), [&] { control.emplace(*rt, std::move(commands), o); });
    } catch (const std::exception& e) {
        // Where nobody asked for it, a start that needs no socket does not fail for it.
        if (!d.text("control").empty())
            throw;
        log(log_level::warning, "service", "there is no control socket", {{"cause", e.what()}});
        text += "no control socket: " + printable(e.what()) + '\n';
        return;
    }
    text += "control at " + printable(o.path) + '\n';
}

// "2 exports at tcp://127.0.0.1:2049": what stands in lists of tables, and where it is served.
std::string service::impl::served_text(const setting_values& now) const
{
    std::string out = "serving ";
    for (const served& s : protocols) {
        out += out.ends_with("serving ") ? "" : "; ";
        std::string what;
        if (now.find(s.name) == nullptr)
            continue;
        for (const auto& [name, value] : now.table(s.name).all()) {
            const auto* tables = std::get_if<setting_values::value::tables>(&value.data);
            if (tables == nullptr || value.is_table || tables->empty())
                continue;
            what += (what.empty() ? "" : ", ") + std::to_string(tables->size()) + ' ' + name +
                    (tables->size() == 1 ? "" : "s");
        }
        out += what.empty() ? s.name : what;
        const auto& places = s.server->places();
        for (std::size_t i = 0; i < places.size(); ++i)
            out += (i == 0 ? " at " : " ") + places[i].url();
    }
    return out;
}

} // namespace verbena
