// SPDX-License-Identifier: Apache-2.0
// Block devices as a module: RNBD over RTRS, and the devices.
#include "device_config.hpp"

#include <verbena/core/module/start_error.hpp>
#include <verbena/core/resource_metrics.hpp>
#include <verbena/plugins/modules.hpp>

#include <verbena/core/module/control.hpp>
#include <verbena/core/module/protocol_module.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/protocols/rnbd/server.hpp>

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace verbena::block {

namespace {

// What stands on one shard.
struct shard_part {
    shard_part(shard& s, rnbd::device_table& devices, std::span<rnbd::server_stats> device_stats,
               rtrs::server_group& group, const rtrs::server_options& o, metric_registry& registry)
        : devices_served(devices, device_stats),
          sessions(s.reactor(), s.buffers(), devices_served, group, o, session_stats),
          metrics(rtrs::expose(registry, session_stats))
    {
        append(metrics, rnbd::expose(registry, device_stats[s.index()]));
        // The sessions of all shards together have one limit.
        metric_group resources(registry);
        add_resource(
            resources, "block_sessions", [this] { return session_stats.sessions.value(); },
            [most = s.index() == 0 ? o.max_sessions : 0] { return most; });
        append(metrics, resources.take());
    }
    rtrs::server_stats session_stats;
    rnbd::server devices_served;
    rtrs::server sessions;
    metric_registrations metrics;
};

// Who may open it.
std::string whom(const device_config& d)
{
    std::string text = d.clients.local_only() ? "this host only" : "";
    for (const std::string& one : d.clients.local_only() ? std::vector<std::string>() : d.clients.texts())
        text += (text.empty() ? "" : " ") + (one == "*" ? std::string("everybody") : one);
    return d.session.empty() ? text : text + ", session " + printable(d.session);
}

std::string mib(std::size_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

// Those whose home is one shard, path by path.
class list_of_sessions final : public control_list {
public:
    list_of_sessions(const rtrs::server& of, unsigned shard) : of_(of), shard_(shard) {}
    bool next(std::vector<control_row>& rows, std::size_t most) override
    {
        constexpr std::size_t paths = 8; // of a session, at most
        const auto some = of_.sessions_behind(last_, std::max<std::size_t>(most / paths, 1));
        for (const rtrs::session_report& s : some) {
            for (const rtrs::session_report::path& p : s.paths)
                rows.push_back({s.name.empty() ? control_value() : control_value(s.name), p.peer,
                                std::uint64_t(p.connections), std::uint64_t(shard_), std::string(p.state)});
        }
        if (some.empty())
            return false;
        last_ = some.back().id;
        return true;
    }

private:
    const rtrs::server& of_;
    const unsigned shard_;
    std::optional<rtrs::uuid> last_;
};

class block_module final : public verbs::protocol_module, public controlled {
public:
    std::vector<setting> settings() const override
    {
        return {
            setting::number("queue_depth", {2, 4096}, 512,
                            "Requests that a client may have under way, over all its devices"),
            setting::number(
                "chunk_kib", {8, 16384}, 128,
                "KiB of memory for each request, 4 of which are for headers: a power of two. A client takes "
                "queue_depth times as much of the memory budget"),
            setting::number("sessions", {1, 65536}, 64, "Clients at once"),
            setting::number("sessions_per_peer", {1, 65536}, 0,
                            "Of these, those of one peer: of an IPv4 address, or of an IPv6 prefix (default: "
                            "three eighths)")
                .optional("three eighths of sessions"),
            setting::number("connections_per_peer", {1, 1'000'000}, 4096,
                            "Connections that one peer may have. A kernel's client makes one for each of its "
                            "CPUs, and one more, for each path of each session"),
            setting::flag("always_invalidate", false,
                          "Take the key of a request's memory from its client before the request is looked "
                          "at, and give a new one "
                          "with the answer, as kernel servers do unless told otherwise"),
            setting::tables(
                "device", device_settings(),
                "Serve a device as NAME; repeated for more. WHAT with a slash is the path of a file or a "
                "block device (fileblk), else a size of memory (ramblk); backend=NAME chooses "
                "another. Options: ro clients=CIDR session=NAME iops=N bw=BYTES backend=NAME, and those of "
                "the "
                "back end. Without "
                "clients= only this host may open it; clients=* admits everybody")
                .open()
                .from_word(&parse_device)
                .form("NAME[=WHAT][,OPTION...]"),
        };
    }
    std::vector<std::string> default_listeners() const override { return {"iwarp://127.0.0.1:1234"}; }
    std::uint16_t default_port(std::string_view) const override { return rtrs::default_port; }

    void configure(setting_values& values, module_table& modules) override
    {
        options_.queue_depth = static_cast<std::uint16_t>(values.number("queue_depth"));
        const std::uint64_t chunk_kib = values.number("chunk_kib");
        if (!std::has_single_bit(chunk_kib))
            throw config_error(values.place("chunk_kib"),
                               "chunk_kib " + std::to_string(chunk_kib) + " is no power of two: write " +
                                   std::to_string(std::bit_floor(chunk_kib)) + " or " +
                                   std::to_string(std::bit_ceil(chunk_kib)));
        options_.chunk_size = static_cast<std::uint32_t>(chunk_kib << 10);
        options_.max_sessions = static_cast<std::uint32_t>(values.number("sessions"));
        options_.always_invalidate = values.flag("always_invalidate");
        options_.max_unfinished = std::max<std::uint32_t>(options_.max_sessions / 4, 1);
        if (values.find("sessions_per_peer") == nullptr) {
            setting_values::value v{
                std::int64_t(std::max<std::uint64_t>(values.number("sessions") * 3 / 8, 1))};
            v.is_default = true;
            values.set("sessions_per_peer", std::move(v));
        }
        options_.max_peer_sessions = static_cast<std::uint32_t>(values.number("sessions_per_peer"));
        options_.max_peer_connections = static_cast<std::uint32_t>(values.number("connections_per_peer"));
        if (const auto good = rtrs::check(options_); !good)
            throw config_error("block: " + good.error().message());
        configured_ = read_devices(values, modules);
    }
    void start(module_host& host) override
    {
        registry_ = &host.metrics();
        sessions_.emplace(host.peers());
        budget_ = &host.shards().budget();
        memory_ = rtrs::memory_of_sessions(options_, *budget_, host.shards().size());
        if (memory_.first() > budget_->limit())
            throw config_error("block: a client takes " + mib(memory_of_client()) +
                               " of memory, queue_depth times chunk_kib, with up to " +
                               mib(memory_.first() - memory_of_client()) +
                               " around it, and memory_mib gives " + mib(budget_->limit()) +
                               " for all: make queue_depth or chunk_kib smaller, or memory_mib larger");
        const std::uint64_t of_one = std::min<std::uint64_t>(host.peers().options().memory, budget_->limit());
        of_one_host_ = std::min<std::uint64_t>(std::max<std::uint64_t>(of_one / memory_of_client(), 1),
                                               options_.max_peer_sessions);
        for (const device_config& d : configured_)
            at_place_of_start(d.place, [&] { open_device(host, d); });
        parts_.resize(host.shards().size());
        device_stats_ = std::vector<rnbd::server_stats>(host.shards().size());
        // Their series begin now, so that a rate sees the first failure. On one shard: a series is the sum of all.
        for (std::size_t i = 0; i < devices_.size(); ++i)
            (void)device_stats_.front().by_device.of(i, devices_.at(i).name);
        std::vector<const shard*> shards;
        for (std::size_t i = 0; i < host.shards().size(); ++i)
            shards.push_back(&host.shards().at(i));
        sessions_->spread_over(std::move(shards));
        metrics_ = rnbd::expose(host.metrics(), devices_);
    }
    std::string listening(std::span<const listen_place> places) override
    {
        std::string text;
        const bool others_come =
            std::ranges::any_of(places, [](const listen_place& l) { return !l.where.is_loopback(); });
        for (std::size_t i = 0; i < opened_.size(); ++i) {
            const device_config& d = configured_[i];
            const storage::opened_block& o = opened_[i];
            std::string how = d.read_only ? "ro" : "rw";
            for (const device_config::filter& f : d.filters)
                how += ",filter=" + f.name;
            text += "device " + printable(d.name) + " from " + printable(o.source) + " (" + how + "), " +
                    std::to_string(o.device->properties().size) + " bytes, to " + whom(d) + '\n';
            if (others_come && d.clients.local_only())
                text +=
                    "  other hosts are refused: clients=10.0.0.0/8 lets in those of a network, and clients=* "
                    "everybody\n";
            for (const std::string* line : {&o.notes, &o.warning}) {
                if (!line->empty())
                    text += "  " + printable(*line) + '\n';
            }
        }
        // Listeners, and what else is served, have theirs by now.
        const std::size_t used = budget_->used();
        const std::size_t free = budget_->limit() - std::min(budget_->limit(), used);
        const std::size_t clients = std::min<std::size_t>(memory_.count(free), options_.max_sessions);
        text += "memory for " + std::to_string(clients) + " clients at once, " + mib(memory_of_client()) +
                " each (queue_depth times chunk_kib); " + std::to_string(of_one_host_) +
                " of one host (peer_memory_mib, sessions_per_peer)\n";
        if (clients == 0)
            text += "  a client gets in if no other shard keeps memory of one that has left, up to " +
                    mib(memory_.kept) + ": have fewer shards or a larger memory_mib\n";
        for (const listen_place& l : places)
            text += "listening at " + l.url() + '\n';
        return text;
    }
    task<void> serve(shard& s, verbs::context& d, verbs::listener& l) override
    {
        auto& part = parts_[s.index()];
        if (!part)
            part = std::make_unique<shard_part>(s, devices_, device_stats_, *sessions_, options_, *registry_);
        co_await part->sessions.serve(d, l);
    }
    std::optional<std::size_t> shard_of(std::span<const std::byte> private_data,
                                        std::size_t shards) const noexcept override
    {
        return sessions_->shard_of(private_data, shards);
    }
    std::vector<control_command> control_commands() override;
    void stop() noexcept override
    {
        metrics_.clear();
        parts_.clear();
        device_stats_.clear();
        sessions_.reset();
    }

private:
    void open_device(module_host& host, const device_config& d);
    std::size_t memory_of_client() const noexcept
    {
        return std::size_t(options_.queue_depth) * options_.chunk_size;
    }

    rtrs::server_options options_;
    const memory_budget* budget_ = nullptr;
    rtrs::session_memory memory_;
    std::uint64_t of_one_host_ = 0; // sessions
    std::vector<device_config> configured_;
    std::vector<storage::opened_block> opened_; // in the order of configured_
    rnbd::device_table devices_;
    std::optional<rtrs::server_group> sessions_;
    std::vector<rnbd::server_stats> device_stats_;   // by shard
    std::vector<std::unique_ptr<shard_part>> parts_; // likewise
    metric_registry* registry_ = nullptr;
    metric_registrations metrics_;
};

std::vector<control_command> block_module::control_commands()
{
    control_command c;
    c.name = "devices";
    c.help = "What block devices are served, to whom and how";
    c.columns = {"name",    "source",  "size",    "block_size", "read_only",
                 "filters", "clients", "session", "warning"};
    c.answer = [this](const control_arguments&) {
        const auto or_nothing = [](const std::string& text) {
            return text.empty() ? control_value() : control_value(text);
        };
        control_answer all;
        for (std::size_t i = 0; i < opened_.size(); ++i) {
            const device_config& d = configured_[i];
            const storage::opened_block& o = opened_[i];
            std::vector<std::string> filters;
            for (const device_config::filter& f : d.filters)
                filters.push_back(f.name);
            const auto& is = o.device->properties();
            all.rows.push_back(
                {d.name, o.source, std::uint64_t(is.size), std::uint64_t(is.block_size), d.read_only,
                 std::move(filters),
                 d.clients.local_only() ? std::vector<std::string>{"this host only"} : d.clients.texts(),
                 or_nothing(d.session), or_nothing(o.warning)});
        }
        return all;
    };
    control_command sessions;
    sessions.name = "sessions";
    sessions.help = "Sessions of block clients, path by path";
    sessions.columns = {"session", "peer", "connections", "shard", "state"};
    sessions.list = [this](shard& s, const control_arguments&) -> std::unique_ptr<control_list> {
        const auto& part = parts_[s.index()]; // made when the first listener is served there
        return part ? std::make_unique<list_of_sessions>(part->sessions, s.index()) : nullptr;
    };
    std::vector<control_command> commands;
    commands.push_back(std::move(c));
    commands.push_back(std::move(sessions));
    return commands;
}

void block_module::open_device(module_host& host, const device_config& d)
{
    // A disk that hangs holds up its own device and no other.
    const result<blocking_pool*> lane = host.shards().add_lane(d.told);
    if (!lane)
        throw_start_failure(lane.error(), d.told + ": " + lane.error().message());
    storage::open_block_context context{d.told, d.name, host.metrics(), **lane};
    context.read_only = d.read_only;
    opened_.push_back(d.backend->open(d.values, context));
    for (auto f = d.filters.rbegin(); f != d.filters.rend(); ++f)
        f->module->put_on(opened_.back(), f->values, context);
    rnbd::device_options o;
    o.name = d.name;
    o.backend = opened_.back().device.get();
    o.read_only = d.read_only;
    o.clients = d.clients;
    o.session = d.session;
    if (const auto added = devices_.add(std::move(o)); !added)
        throw config_error(d.told + ": " + added.error().message());
}

} // namespace

} // namespace verbena::block

const verbena::module_descriptor verbena::modules::block = {
    .name = "block",
    .version = VERBENA_VERSION,
    .summary = "block devices for RNBD clients, over RTRS",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<block::block_module>(); },
};
