// SPDX-License-Identifier: Apache-2.0
#include <verbena/services/config_file.hpp>
#include <verbena/services/metrics.hpp>
#include <verbena/services/service.hpp>

#include "careful_write.hpp"
#include "control_server.hpp"
#include "control_socket.hpp"
#include "notify.hpp"
#include "own_commands.hpp"
#include "rdma_port_metrics.hpp"
#include "reloader.hpp"
#include "served_protocol.hpp"
#include "shard_server.hpp"
#include "shard_watchdog.hpp"
#include "state_directory.hpp"

#include "../resource_limit.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/module/start_error.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/net/refusals.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/core/queued_log.hpp>
#include <verbena/core/reactor/request_list.hpp>
#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/suggestion.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <list>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace verbena {

namespace {

using namespace services;

constexpr unsigned max_default_shards = 8;
constexpr std::uint64_t mebibytes_per_shard = 4;
// How long a stop may take beyond the drain before what does not come back is given up.
constexpr std::chrono::milliseconds default_grace = std::chrono::seconds(5);
// A call is taken to be one that does not return after this time.
constexpr std::chrono::seconds stuck_after{5};
// A shard that has been asked and has run nothing for that long does not work (/healthz).
constexpr std::chrono::seconds hangs_after{2};
// How long whoever reads the standard output may take for the start text.
constexpr std::chrono::seconds text_patience{5};

// Whose hook does not return, in place of a module's name.
constexpr const char* this_program = "of this program (across_shards)";

// Tables of a service's own, and commands of verbenad.
constexpr std::string_view reserved_names[] = {"daemon", "memory", "metrics", "module", "modules", "serve"};

std::vector<setting> daemon_settings()
{
    return {
        setting::text("state", "",
                      "Keep what must survive a restart here (default: /var/lib/verbena for root, else "
                      "$XDG_STATE_HOME/verbena)")
            .form("DIR"),
        setting::number("shards", {1, runtime::max_shards}, 0,
                        "Threads that serve (default: one per CPU, at most 8)")
            .optional("one per CPU, at most 8")
            .form("N"),
        setting::word("policy", {"busy", "adaptive", "event"}, "adaptive",
                      "How shards wait: busy, adaptive (default) or event")
            .form("NAME"),
        setting::number("spin_microseconds", {0, 1'000'000}, 50, "How long adaptive spins before it sleeps"),
        setting::flag("pin", false, "Keeps each shard on a CPU of its own"),
        setting::number("memory_mib", {64, std::uint64_t(1) << 20}, 512,
                        "The most memory that all buffers may take"),
        setting::number(
            "peer_memory_mib", {1, std::uint64_t(1) << 20}, 0,
            "Of that, the most that the sessions of one peer may hold: of an IPv4 address, or of an IPv6 "
            "prefix (default: a third)")
            .optional("a third of memory_mib"),
        setting::number(
            "connections", {1, 1'000'000}, 0,
            "Connections of each kind (TCP, RPC-over-RDMA) by which calls of all peers may come to a "
            "protocol (default: what memory and descriptors allow)")
            .optional("what memory and descriptors allow"),
        setting::number(
            "peer_connections", {1, 1'000'000}, 0,
            "Connections of each kind (TCP, RPC-over-RDMA) by which calls of one peer may come (default: a "
            "quarter of what there may be)")
            .optional("a quarter of what there may be"),
        setting::number("peer_ipv6_prefix", {16, 128}, default_peer_prefix,
                        "Bits of an IPv6 address by which peers are told apart"),
        setting::number("blocking_threads", {1, blocking_pool::max_threads}, 8,
                        "Most threads for calls that block, of each export and device"),
        setting::number("drain_seconds", {0, 3600}, 10, "How long calls in flight may take after SIGTERM"),
        setting::number("slow_seconds", {0, 86400}, 10,
                        "A call or a block operation that takes longer has a line in the log; 0: none has"),
        setting::word("log_level", {"trace", "debug", "info", "warning", "error", "off"}, "info",
                      "trace, debug, info (default), warning, error or off")
            .form("NAME"),
        setting::text(
            "control", "",
            "Unix socket for `verbena admin`, or off (default: control in $RUNTIME_DIRECTORY, else in "
            "the state directory where that is used)")
            .form("PATH"),
    };
}

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

// A service may do without metrics, which metrics::serve() can't know.
template<class F>
void or_off(F f)
{
    try {
        f();
    } catch (const start_error& e) {
        throw start_error(e.what() + std::string("; or off, for no metrics"));
    } catch (const config_error& e) {
        throw config_error(e.what() + std::string("; or off, for no metrics"));
    }
}

// Every thread inherits this: signals come to the main thread, when it asks for them.
sigset_t block_signals()
{
    sigset_t wanted;
    ::sigemptyset(&wanted);
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1})
        ::sigaddset(&wanted, number);
    ::pthread_sigmask(SIG_BLOCK, &wanted, nullptr);
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGXFSZ, SIG_IGN); // a file over RLIMIT_FSIZE is an answer to a client, not our end
    return wanted;
}

std::vector<setting> all_settings(const module_table& modules);

setting_values& table_of(setting_values& root, std::string_view name)
{
    return std::get<setting_values::value::tables>(root.find(name)->data).front();
}

} // namespace

struct service::impl final : module_host, std::enable_shared_from_this<service::impl> {
    // A protocol with listeners of its own, and those that are served with it.
    struct served {
        std::string name;
        protocol_module* protocol = nullptr;
        std::vector<protocol_module*> all; // it first
        std::vector<rpc::program_module*> programs;
        listen_plan plan;
        std::unique_ptr<services::server> server;
        std::unique_ptr<std::atomic<bool>> stopping = std::make_unique<std::atomic<bool>>(false);
    };

    // Of across_shards().
    struct hook {
        shards_hook opens;
        shards_hook closes;
        shards_hook drains;
    };

    runtime& shards() noexcept override { return *rt; }
    metric_registry& metrics() noexcept override { return registry; }
    module_table& modules() noexcept override { return table; }
    peer_shares& peers() noexcept override { return *shares; }
    bool uses_rdma_devices() const noexcept override { return uses_devices; }
    const std::string& state_directory() override
    {
        const std::string& path = table_of(values, "daemon").text("state");
        if (path.empty())
            (void)default_state_directory();
        if (!std::exchange(has_state, true))
            make_state_directory(path);
        return path;
    }

    static void complete_daemon(setting_values& values);
    void configure_protocols();
    void configure_protocol(std::string_view name, protocol_module& m);
    void start();
    void start_log_writer();
    void start_runtime();
    metrics::serve_options probes();
    std::string control_path() const;
    void start_control();
    void call(const shards_hook& h, const char* failure);
    void take_down(std::chrono::milliseconds limit);
    void give_up(const char* why);
    bool stop_within(std::chrono::milliseconds drain, std::chrono::milliseconds grace);
    std::string still_running() const;
    std::string in_clear_text() const;
    std::string served_text(const setting_values& values) const;
    void prepare_reloads();
    void reload_by_signal();
    std::string serving_now() const;
    std::string draining_text() const;
    void leave_behind() noexcept;
    runtime_options options() const;

    // A descriptor for what serve() was given.
    struct own_protocol {
        std::string name;
        module_descriptor descriptor;
    };

    std::string program;
    std::string version;
    configuration_words words; // of load() and set()
    std::list<own_protocol> own_protocols;
    std::vector<hook> hooks;
    std::size_t opened = 0; // of hooks, those whose opens() was called
    std::size_t open = 0;   // those whose opens() has returned
    setting_values values;
    std::optional<queued_log> log_writer; // outlives all that logs, if it ends in its time
    metric_registry registry;             // outlives all that register there
    std::optional<peer_shares> shares;    // outlives all that charge peers
    std::unique_ptr<verbena::iwarp::device> iwarp =
        verbena::iwarp::make_device(); // outlives all that its connections may touch
#ifdef VERBENA_HAS_RDMA
    // Likewise, one for each protocol: its contexts end with it, and are of the device that was chosen for it.
    std::vector<std::unique_ptr<verbena::rdma::host>> rdma;
#endif
    std::unique_ptr<runtime> rt; // also when its shards have ended, for modules that go
    std::atomic<bool> has_shards{false};
    module_table table; // modules go when the shards have ended, and before what the host has for them
    metric_registrations registrations;
    std::optional<shard_watchdog> health; // asked by the exporter's thread
    std::atomic<const char*> not_ready{"starting"};
    std::optional<metrics::server> exporter;
    std::vector<control_command> own_commands; // of add_command()
    std::optional<reloader> reloading;         // from start() on
    std::thread reloads_by_signal;
    std::atomic<bool> is_reloading{false}; // the thread is at it
    std::atomic<std::uint64_t> drain_seconds{0};
    mutable std::mutex serving_mutex;
    std::string serving;   // served_text() of what is served now
    std::string in_effect; // the configuration, likewise
    std::optional<control_server> control;
    std::vector<served> protocols;
    std::vector<module*> order;
    std::vector<module*> started; // or tried to
    std::string text;
    std::atomic<const char*> stopping{nullptr}; // whose stop() runs
    std::size_t listener_count = 0;
    std::set<std::string> addresses;
    bool uses_devices = false;
    bool has_state = false;
    bool reloads = false; // it was configured by load() and set()
    bool configured = false;
    bool began = false;
    bool running = false;
    bool runs = false;         // run() waits for signals
    std::thread stopper;       // runs take_down()
    mutable std::mutex ending; // of what it and who gives it up end: the exporter, the control socket
    std::future<void> stopped;
    std::string unfinished;
};

void service::impl::complete_daemon(setting_values& values)
{
    setting_values& d = table_of(values, "daemon");
    auto& state = std::get<std::string>(d.find("state")->data);
    if (state.empty()) {
        try {
            state = default_state_directory();
        } catch (const config_error&) { // told to who asks for it
        }
    }
    if (!state.empty())
        state = std::filesystem::absolute(state).lexically_normal().string();
    if (d.find("shards") == nullptr) {
        setting_values::value v{
            std::int64_t(std::clamp(std::thread::hardware_concurrency(), 1U, max_default_shards))};
        v.is_default = true;
        d.set("shards", std::move(v));
    }
    const std::uint64_t least = mebibytes_per_shard * d.number("shards");
    if (d.number("memory_mib") < least)
        throw config_error(d.place("memory_mib"), "memory_mib: " + std::to_string(d.number("shards")) +
                                                      " shards need at least " + std::to_string(least) +
                                                      "; give them that, or have fewer shards");
    if (d.find("peer_memory_mib") == nullptr) {
        setting_values::value v{std::int64_t(std::max<std::uint64_t>(d.number("memory_mib") / 3, 1))};
        v.is_default = true;
        d.set("peer_memory_mib", std::move(v));
    }
    setting_values& m = table_of(values, "metrics");
    if (const std::string& where = m.text("listen"); where != "off")
        at_place(m.place("listen"), [&] { or_off([&] { metrics::check_endpoint(where); }); });
}

void service::impl::configure_protocol(std::string_view name, protocol_module& m)
{
    served s;
    s.name = name;
    s.protocol = &m;
    setting_values& own = table_of(values, name);
    s.plan = plan_listeners(m, own, addresses);
    listener_count += s.plan.urls.size();
    if (listener_count > max_listeners)
        throw config_error("more than " + std::to_string(max_listeners) + " listeners");
    m.configure(own, table);
    table.mark_used(name);
    s.all.push_back(&m);
    if (auto* programs = dynamic_cast<rpc::program_module*>(&m); programs != nullptr) {
        s.programs.push_back(programs);
        for (const module_table::entry& e : table.all()) {
            auto* beside = dynamic_cast<rpc::program_module*>(e.object.get());
            if (beside == nullptr || beside->served_with() != name)
                continue;
            if (values.find(e.name()) == nullptr) {
                setting_values nothing;
                check(beside->settings(), nothing);
                setting_values::value v{setting_values::value::tables{std::move(nothing)}};
                v.is_table = true;
                v.is_default = true;
                values.set(std::string(e.name()), std::move(v));
            }
            beside->configure(table_of(values, e.name()), table);
            table.mark_used(e.name());
            s.all.push_back(beside);
            s.programs.push_back(beside);
        }
    }
    protocols.push_back(std::move(s));
}

void service::impl::configure_protocols()
{
    std::string known;
    for (const module_table::entry& e : table.all()) {
        auto* m = dynamic_cast<protocol_module*>(e.object.get());
        if (m == nullptr)
            continue;
        if (const auto* programs = dynamic_cast<const rpc::program_module*>(m);
            programs != nullptr && !programs->served_with().empty())
            continue;
        known += (known.empty() ? "[" : " [") + std::string(e.name()) + ']';
        if (values.find(e.name()) != nullptr)
            configure_protocol(e.name(), *m);
    }
    if (protocols.empty())
        throw config_error("nothing is served: write the table of a protocol; there is " +
                           (known.empty() ? std::string("none, so load a module") : known));
    for (const module_table::entry& e : table.all()) {
        const auto* beside = dynamic_cast<const rpc::program_module*>(e.object.get());
        if (beside == nullptr || beside->served_with().empty() || !values.written(e.name()))
            continue;
        if (std::ranges::none_of(protocols, [&](const served& s) { return s.name == beside->served_with(); }))
            throw config_error(values.place(e.name()), "[" + std::string(e.name()) +
                                                           "] is served on the listeners of [" +
                                                           std::string(beside->served_with()) +
                                                           "], which is not here: write that table too");
    }
    order = table.in_order();
    for (const module* m : order) {
        const auto* protocol = dynamic_cast<const protocol_module*>(m);
        if (protocol != nullptr && std::ranges::none_of(protocols, [&](const served& s) {
                return std::ranges::find(s.all, protocol) != s.all.end();
            }))
            throw config_error("the protocol " + std::string(table.name_of(*m)) +
                               " is needed by another module, and has no table: write [" +
                               std::string(table.name_of(*m)) + "]");
    }
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
    if (is_reloading.exchange(true)) {
        log(log_level::warning, "service", "SIGHUP: the reload before has not ended; send it again then");
        return;
    }
    if (reloads_by_signal.joinable())
        reloads_by_signal.join();
    try {
        reloads_by_signal = std::thread([this] {
            try {
                (void)reloading->reload();
            } catch (...) { // it is in the log
            }
            is_reloading = false;
        });
    } catch (const std::system_error& e) {
        is_reloading = false;
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

// What follows it ends all the same.
void service::impl::call(const shards_hook& h, const char* failure)
{
    const auto failed = [failure](const char* why) {
        log(log_level::error, "service", failure, {{"exception", why}});
    };
    try {
        if (h)
            h(*rt);
    } catch (const std::exception& e) {
        failed(e.what());
    } catch (...) {
        failed("no std::exception");
    }
}

void service::impl::take_down(std::chrono::milliseconds limit)
{
    if (control) {
        control->finish(); // what it lists and works on goes now
    }
    if (reloading)
        reloading->stop();
    if (reloads_by_signal.joinable())
        reloads_by_signal.join();
    if (control) {
        const std::lock_guard held(ending);
        control.reset(); // its path is free for the next one, whatever hangs below
    }
    const auto name_of = [this](const module& m) { return table.name_of(m).data(); };
    for (served& s : protocols) {
        for (protocol_module* m : s.all) {
            if (std::ranges::find(started, m) == started.end())
                continue;
            stopping = name_of(*m);
            m->closing();
        }
    }
    stopping = this_program;
    while (open != 0)
        call(hooks[--open].drains, "what lives across the shards did not hear of the drain");
    stopping = nullptr;
    // Side by side: the time to drain is everybody's.
    std::vector<std::future<void>> ends;
    for (served& s : protocols) {
        if (s.server)
            ends.push_back(std::async(std::launch::async, [&s, limit] {
                *s.stopping = true;
                s.server->stop(limit);
                *s.stopping = false;
            }));
    }
    for (auto& end : ends)
        end.get();
    for (served& s : protocols)
        s.server.reset();
    for (auto m = started.rbegin(); m != started.rend(); ++m) {
        stopping = name_of(**m);
        (*m)->stop();
    }
    stopping = this_program;
    while (opened != 0)
        call(hooks[--opened].closes, "what lives across the shards did not close");
    stopping = nullptr;
    started.clear();
    {
        const std::lock_guard held(ending);
        exporter.reset();
    }
    registrations.clear();
    if (rt) {
        has_shards = false;
        rt->stop();
    }
}

service::service(std::string program, std::string version) : impl_(std::make_shared<impl>())
{
    impl_->program = std::move(program);
    impl_->version = std::move(version);
}

service::~service()
{
    try {
        const bool gave_up = impl_->stopper.joinable();
        (void)impl_->stop_within({}, gave_up ? std::chrono::seconds(0) : default_grace);
    } catch (const std::exception& e) {
        log(log_level::error, "service", "the end of a service failed", {{"exception", e.what()}});
    } catch (...) {
        log(log_level::error, "service", "the end of a service failed");
    }
    impl_->leave_behind();
    impl_->log_writer.reset();
}

module_table& service::modules() noexcept { return impl_->table; }
metric_registry& service::metrics() noexcept { return impl_->registry; }
const setting_values& service::effective() const noexcept { return impl_->values; }
const std::string& service::start_text() const noexcept { return impl_->text; }

std::vector<setting> service::settings() const { return all_settings(impl_->table); }

namespace {

std::vector<setting> all_settings(const module_table& modules)
{
    std::vector<setting> all;
    all.push_back(setting::list("modules",
                                "Modules to load first: paths of files, or names in the folder for modules"));
    all.push_back(setting::table("daemon", daemon_settings(), "The process"));
    all.push_back(setting::table("memory",
                                 {setting::word("huge_pages", {"auto", "no"}, "auto",
                                                "auto: buffers lie on huge pages where there are any")},
                                 "Buffers"));
    all.push_back(
        setting::table("metrics",
                       {setting::text("listen", "127.0.0.1:9464",
                                      "Serve metrics to Prometheus here, or off (default: 127.0.0.1:9464)")
                            .form("ADDR:PORT")},
                       "Prometheus"));
    for (const module_table::entry& e : modules.all()) {
        const auto* m = dynamic_cast<const protocol_module*>(e.object.get());
        if (m == nullptr)
            continue;
        if (std::ranges::find(reserved_names, e.name()) != std::end(reserved_names))
            throw config_error("module (" + e.from + "): a protocol can't be called " +
                               std::string(e.name()) +
                               ", since that is a table or a command already: give it another name");
        const auto* programs = dynamic_cast<const rpc::program_module*>(m);
        std::vector<setting> own;
        if (programs == nullptr || programs->served_with().empty())
            own = listener_settings(*m);
        for (setting& s : m->settings()) {
            if (std::ranges::find(own, s.name, &setting::name) != own.end())
                throw config_error("the module " + std::string(e.name()) + " declares a setting " + s.name +
                                   ", which every protocol has: it needs another name");
            own.push_back(std::move(s));
        }
        all.push_back(setting::table(std::string(e.name()), std::move(own), e.descriptor->summary)
                          .optional("not served"));
    }
    return all;
}

// What serve() was given, as a module.
class own_programs final : public rpc::program_module {
public:
    own_programs(service::make_programs make, std::vector<setting> own)
        : make_(std::move(make)), own_(std::move(own))
    {
    }
    std::vector<setting> settings() const override { return own_; }
    std::vector<std::string> default_listeners() const override { return {}; }
    std::vector<std::unique_ptr<rpc::program>> make_programs(shard& s) override { return make_(s); }

private:
    service::make_programs make_;
    const std::vector<setting> own_;
};

} // namespace

void service::serve(std::string name, std::vector<std::string> listen, make_programs make,
                    std::vector<setting> settings)
{
    impl::own_protocol& own = impl_->own_protocols.emplace_back();
    own.name = std::move(name);
    own.descriptor.name = own.name.c_str();
    own.descriptor.version = impl_->version.c_str();
    own.descriptor.summary = "of this program";
    impl_->table.add(own.descriptor, std::make_unique<own_programs>(std::move(make), std::move(settings)),
                     "this program");
    set(own.name + ".listen", std::move(listen));
}

void service::across_shards(shards_hook opens, shards_hook closes, shards_hook drains)
{
    if (impl_->began)
        throw std::logic_error("across_shards() comes before start()");
    impl_->hooks.push_back({std::move(opens), std::move(closes), std::move(drains)});
}

void service::add_command(control_command command)
{
    if (impl_->began)
        throw std::logic_error("add_command() comes before start()");
    impl_->own_commands.push_back(std::move(command));
}

runtime& service::shards()
{
    if (!impl_->has_shards)
        throw std::logic_error("a service has shards from start() on until it is stopped");
    return *impl_->rt;
}

void service::load(const std::string& path) { impl_->words.load(path); }

void service::set(std::string_view path, bool value) { impl_->words.set(path, {value}); }
void service::set(std::string_view path, std::int64_t value) { impl_->words.set(path, {value}); }
void service::set(std::string_view path, std::string value) { impl_->words.set(path, {std::move(value)}); }
void service::set(std::string_view path, std::vector<std::string> value)
{
    impl_->words.set(path, {std::move(value)});
}
void service::set(setting_values values) { impl_->words.set(std::move(values)); }

void service::configure()
{
    configure(impl_->words.said());
    impl_->reloads = true;
}

void service::configure(setting_values values)
{
    if (impl_->configured)
        throw std::logic_error("a service is configured once");
    load_modules(values, impl_->table);
    impl_->configured = true;
    check(settings(), values);
    impl_->values = std::move(values);
    impl::complete_daemon(impl_->values);
    impl_->configure_protocols();
}

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

void service::impl::give_up(const char* why)
{
    // If the end of what did start takes for ever, this would be told to nobody before.
    if (!stop_within({}, default_grace))
        log(log_level::error, "service", "the start failed", {{"error", why}});
}

result<void> service::stop(std::chrono::milliseconds grace)
{
    std::chrono::seconds drain{0};
    if (impl_->running)
        drain = std::chrono::seconds(impl_->drain_seconds.load());
    if (!impl_->stop_within(drain, grace))
        return error(std::errc::timed_out,
                     "the service has not stopped; unfinished() and the log say what still runs");
    return {};
}

const std::string& service::unfinished() const noexcept { return impl_->unfinished; }

// A call that a file system or a device does not return from can't be recalled, and its shard waits for it. So a thread
// of its own waits for both, and whoever called looks at it for some time. False: it is still at it.
bool service::impl::stop_within(std::chrono::milliseconds drain, std::chrono::milliseconds grace)
{
    if (std::exchange(running, false)) {
        not_ready = "stopping";
        std::promise<void> done;
        stopped = done.get_future();
        try {
            stopper = std::thread([self = shared_from_this(), drain, done = std::move(done)]() mutable {
                try {
                    self->take_down(drain);
                    done.set_value();
                } catch (...) {
                    done.set_exception(std::current_exception());
                }
            });
        } catch (const std::system_error&) { // no more threads: then this one waits, for as long as it takes
            take_down(drain);
            return true;
        }
    }
    if (!stopper.joinable())
        return true;
    if (stopped.wait_for(drain + grace) == std::future_status::timeout) {
        unfinished = still_running();
        {
            // Of a process that ends now the kernel keeps what is open for as long as one thread waits for a disk, and so the
            // port from the next start.
            const std::lock_guard held(ending);
            exporter.reset();
        }
        log(log_level::error, "service", "not stopped in time; what still runs goes on by itself",
            {{"seconds", std::chrono::duration<double>(drain + grace).count()}});
        return false;
    }
    stopper.join();
    unfinished.clear();
    stopped.get();
    return true;
}

// A line for each, and one in the log.
std::string service::impl::still_running() const
{
    std::string lines;
    for (const served& s : protocols) {
        if (!*s.stopping)
            continue;
        lines += "calls of the protocol " + s.name + '\n';
        log(log_level::error, "service", "stopped without waiting for calls of a protocol",
            {{"protocol", s.name}});
    }
    for (const auto& [lane, now] : rt ? rt->stuck_lanes(stuck_after) : std::vector<runtime::stuck_lane>()) {
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now.longest).count();
        lines += std::to_string(now.running) + " calls in lane " + lane + " that do not return for " +
                 std::to_string(seconds) + " s\n";
        log(log_level::error, "service",
            "stopped without waiting for calls that do not return; look at what is beneath",
            {{"lane", lane}, {"calls", now.running}, {"seconds", seconds}});
    }
    if (const char* module = stopping; module != nullptr) {
        lines += std::string("the module ") + module + ", which does not return from its end\n";
        log(log_level::error, "service", "stopped without waiting for a module that does not return",
            {{"module", module}});
    }
    const std::lock_guard held(ending);
    if (is_reloading) {
        lines += "the reload by SIGHUP\n";
        log(log_level::error, "service", "stopped without waiting for a reload");
    }
    for (const std::string& name : control ? control->works() : std::vector<std::string>()) {
        lines += "the operator's command " + name + '\n';
        log(log_level::error, "service", "stopped without waiting for an operator's command",
            {{"command", name}});
    }
    return lines.empty() ? "the shards\n" : lines;
}

// The thread that stops it has what is left, and lets it go in the end.
void service::impl::leave_behind() noexcept
{
    if (stopper.joinable())
        stopper.detach();
}

namespace {

// On the thread that waits for SIGTERM, which a lack of memory must not end.
void write_tasks(runtime& rt) noexcept
{
    try {
        if (!write_to_log(log_level::info, rt.describe_tasks()))
            log(log_level::warning, "service",
                "SIGUSR1: the tasks are not written, since those of the last one wait to be read, or the log "
                "does");
    } catch (const std::exception&) { // there is no memory for what tells of it either
    }
}

// Answers the service manager's watchdog while each shard turns. On the thread that waits for SIGTERM.
class heartbeat {
public:
    /// `serving`: its status otherwise.
    heartbeat(runtime& rt, std::function<std::string()> serving)
        : serving_(std::move(serving)), interval_(watchdog_interval())
    {
        if (!interval_)
            return;
        shards_.emplace(rt);
        next_ = clock::now();
    }
    /// The next of `signals`, answering meanwhile twice in each interval.
    int wait_for(const sigset_t& signals)
    {
        if (!interval_) {
            int number = 0;
            ::sigwait(&signals, &number);
            return number;
        }
        for (;;) {
            const auto now = clock::now();
            if (now >= next_) {
                // A shard that was late is asked again soon: at the next half of the time it could be too late for systemd.
                const bool all = beat();
                next_ = now + (all ? *interval_ / 2
                                   : std::min<clock::duration>(*interval_ / 20, std::chrono::seconds(1)));
            }
            const auto left = std::chrono::ceil<std::chrono::nanoseconds>(next_ - now);
            const timespec time{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
            if (const int number = ::sigtimedwait(&signals, nullptr, &time); number > 0)
                return number;
        }
    }

private:
    using clock = std::chrono::steady_clock;
    bool beat()
    {
        const bool all = shards_->ask();
        if (all)
            notify_manager("WATCHDOG=1");
        if (std::exchange(well_, all) != all)
            notify_manager(all ? "STATUS=" + serving_()
                               : std::string("STATUS=a shard does not run its tasks; the log says which"));
        return all;
    }
    const std::function<std::string()> serving_;
    const std::optional<std::chrono::microseconds> interval_;
    std::optional<shard_watchdog> shards_;
    clock::time_point next_{};
    bool well_ = true;
};

} // namespace

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

// Calls by RPC over RDMA are not counted anywhere.
std::string service::impl::draining_text() const
{
    double in_flight = 0;
    for (const metric_snapshot& family : registry.collect()) {
        if (family.family.name != "verbena_stream_calls_in_flight" &&
            family.family.name != "verbena_rtrs_path_requests_in_flight")
            continue;
        for (const metric_snapshot::series& s : family.samples)
            in_flight += s.value;
    }
    return "stopping within " + std::to_string(drain_seconds.load()) + " s; " +
           std::to_string(std::uint64_t(in_flight)) + " calls by TCP and requests for blocks in flight";
}

int service::run()
{
    if (!impl_->configured)
        configure();
    const sigset_t signals = block_signals();
    ::umask(0); // modes in requests are meant as they stand
    for (const auto resource : {RLIMIT_NOFILE, RLIMIT_MEMLOCK})
        raise_soft_limit(resource);
    impl_->runs = true;
    start();
    const std::string said = impl_->text + "ready\n";
    std::fflush(stdout);
    if (write_carefully(STDOUT_FILENO, said, text_patience) < said.size())
        log(log_level::warning, "service", "the standard output did not take the text of the start");
    notify_manager("READY=1\nSTATUS=" + impl_->serving_now());
    heartbeat beats(*impl_->rt, [this] { return impl_->serving_now(); });
    int number = 0;
    do {
        number = beats.wait_for(signals);
        if (number == SIGHUP)
            impl_->reload_by_signal();
        if (number == SIGUSR1)
            write_tasks(*impl_->rt);
    } while (number == SIGHUP || number == SIGUSR1);
    log(log_level::info, "service", "draining",
        {{"signal", ::strsignal(number)}, {"seconds", impl_->drain_seconds.load()}});
    notify_manager("STOPPING=1\nSTATUS=" + impl_->draining_text());
    if (!stop())
        return 1;
    log(log_level::info, "service", "stopped");
    return 0;
}

} // namespace verbena
