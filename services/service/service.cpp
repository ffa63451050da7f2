// SPDX-License-Identifier: Apache-2.0
// What a service is told: settings, files, programs of its own.
#include "service_impl.hpp"

#include <verbena/core/printable.hpp>
#include <verbena/services/config_file.hpp>

#include <algorithm>
#include <filesystem>
#include <stdexcept>

namespace verbena {

using namespace services;

namespace {

constexpr unsigned max_default_shards = 8;
constexpr std::uint64_t mebibytes_per_shard = 4;

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

std::vector<setting> services::all_settings(const module_table& modules)
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

service::service(std::string program, std::string version) : impl_(std::make_shared<impl>())
{
    impl_->program = std::move(program);
    impl_->version = std::move(version);
}

module_table& service::modules() noexcept { return impl_->table; }
metric_registry& service::metrics() noexcept { return impl_->registry; }
const setting_values& service::effective() const noexcept { return impl_->values; }
const std::string& service::start_text() const noexcept { return impl_->text; }

std::vector<setting> service::settings() const { return all_settings(impl_->table); }

void service::serve(std::string name, std::vector<std::string> listen, make_programs make,
                    std::vector<setting> settings)
{
    (void)impl_->words_before("serve(" + name + ")");
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

// What is said later would be without effect.
configuration_words& service::impl::words_before(const std::string& said)
{
    if (configured)
        throw std::logic_error("service::" + said +
                               " comes behind configure(), which has read the configuration: call it before");
    return words;
}

void service::load(const std::string& path) { impl_->words_before("load(" + path + ")").load(path); }

void service::set(std::string_view path, bool value) { impl_->say(path, {value}); }
void service::set(std::string_view path, std::int64_t value) { impl_->say(path, {value}); }
void service::set(std::string_view path, std::string value) { impl_->say(path, {std::move(value)}); }
void service::set(std::string_view path, std::vector<std::string> value)
{
    impl_->say(path, {std::move(value)});
}
void service::set(setting_values values) { impl_->words_before("set()").set(std::move(values)); }

void service::impl::say(std::string_view path, setting_values::value v)
{
    words_before("set(" + std::string(path) + ")").set(path, std::move(v));
}

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

} // namespace verbena
