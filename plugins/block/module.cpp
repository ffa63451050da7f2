// SPDX-License-Identifier: Apache-2.0
// Block devices as a module: RNBD over RTRS, and the devices.
#include "device_config.hpp"
#include "disk_calls.hpp"

#include <verbena/core/module/start_error.hpp>
#include <verbena/core/resource_metrics.hpp>
#include <verbena/plugins/modules.hpp>

#include <verbena/core/module/control.hpp>
#include <verbena/core/module/evicting.hpp>
#include <verbena/core/module/protocol_module.hpp>
#include <verbena/core/module/reload.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/core/reactor/ask.hpp>
#include <verbena/protocols/rnbd/server.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <charconv>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <thread>
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
        s.reactor().requests().expect("block");
        s.reactor().requests().expect("rtrs"); // of what is no operation: a device is opened or closed
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

// Of a shard, before it is taken for one that hangs.
constexpr std::chrono::milliseconds shard_patience{1000};
// Between two looks whether something has ended.
constexpr std::chrono::milliseconds pause{2};

std::string text_of(const rtrs::uuid& id)
{
    std::string text;
    for (const std::byte b : id.bytes) {
        static constexpr char digits[] = "0123456789abcdef";
        text += digits[std::to_integer<unsigned>(b) >> 4];
        text += digits[std::to_integer<unsigned>(b) & 15];
    }
    return text;
}

std::optional<rtrs::uuid> uuid_of(const std::string& text)
{
    rtrs::uuid id;
    if (text.size() != 2 * id.bytes.size())
        return std::nullopt;
    for (std::size_t i = 0; i < id.bytes.size(); ++i) {
        unsigned value = 0;
        const char* const at = text.data() + 2 * i;
        if (std::from_chars(at, at + 2, value, 16).ptr != at + 2)
            return std::nullopt;
        id.bytes[i] = std::byte(value);
    }
    return id;
}

rnbd::device_options options_of(const device_config& d, storage::block_backend& backend)
{
    rnbd::device_options o;
    o.name = d.name;
    o.backend = &backend;
    o.read_only = d.read_only;
    o.clients = d.clients;
    o.session = d.session;
    return o;
}

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

// A shard's sessions look at what they have open. Whoever waits for it may give up.
using session_visit = std::shared_future<bool>;

bool is_over(const session_visit& v) noexcept
{
    return !v.valid() || v.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

// One that a reload has removed, and that somebody may still use.
struct leaving_device {
    std::shared_ptr<served_device> device; // nothing: nobody uses it, and its disk is waited for
    std::string name, told;
    closed_flag is_closed;
    std::vector<session_visit> visits;
    bool is_visited = false; // `visits` are of all shards
    bool is_late = false;    // its end was waited for
};

class block_module final : public verbs::protocol_module,
                           public controlled,
                           public evicting,
                           public reloadable {
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
        complete(values);
        options_.max_peer_sessions = static_cast<std::uint32_t>(values.number("sessions_per_peer"));
        options_.max_peer_connections = static_cast<std::uint32_t>(values.number("connections_per_peer"));
        if (const auto good = rtrs::check(options_); !good)
            throw config_error("block: " + good.error().message());
        configured_ = read_devices(values, modules);
        running_ = values;
    }
    void start(module_host& host) override
    {
        registry_ = &host.metrics();
        shards_ = &host.shards();
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
        disks_.emplace(*shards_, *registry_);
        for (auto& made : disks_->open(configured_))
            at_place_of_start(made->config.place, [&] { serve_device(made); });
        parts_.resize(host.shards().size());
        parts_there_ = std::vector<std::atomic<shard_part*>>(host.shards().size());
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
        for (const auto& served : served_now()) {
            const device_config& d = served->config;
            const storage::opened_block& o = *served->block;
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
        if (!part) {
            part = std::make_unique<shard_part>(s, devices_, device_stats_, *sessions_, options_, *registry_);
            parts_there_[s.index()].store(part.get(), std::memory_order_release);
        }
        co_await part->sessions.serve(d, l);
    }
    std::optional<std::size_t> shard_of(std::span<const std::byte> private_data,
                                        std::size_t shards) const noexcept override
    {
        return sessions_->shard_of(private_data, shards);
    }
    std::vector<control_command> control_commands() override;
    std::vector<evictable> find_clients(const std::string& who, std::size_t most) override;
    // A session has a name for as long as it lives; its host is kept out.
    bool keep_out(const std::string&, std::chrono::seconds) override { return true; }
    evicted end(const evictable& client, std::chrono::milliseconds patience) override;
    std::unique_ptr<reload_plan> plan_reload(setting_values& values, module_table& modules,
                                             bool looks_only) override;
    void stop() noexcept override
    {
        metrics_.clear();
        parts_there_.clear();
        parts_.clear();
        device_stats_.clear();
        sessions_.reset();
        // Their lanes close them, and end with the shards, which is waited for with a limit.
        leaving_.clear();
        const std::lock_guard lock(served_mutex_);
        served_.clear();
    }

private:
    class plan;
    static void complete(setting_values& values)
    {
        if (values.find("sessions_per_peer") != nullptr)
            return;
        setting_values::value v{std::int64_t(std::max<std::uint64_t>(values.number("sessions") * 3 / 8, 1))};
        v.is_default = true;
        values.set("sessions_per_peer", std::move(v));
    }
    void serve_device(std::shared_ptr<served_device> made);
    served_list served_now() const
    {
        const std::lock_guard lock(served_mutex_);
        return served_;
    }
    void apply(plan& what) noexcept;
    void have_sessions_look_again(plan& what);
    bool is_used(const leaving_device& d) const noexcept;
    void close_removed() noexcept;
    void finish_removed() noexcept;
    control_answer list_devices() const;
    control_answer resize(const control_arguments& told);
    std::size_t memory_of_client() const noexcept
    {
        return std::size_t(options_.queue_depth) * options_.chunk_size;
    }

    rtrs::server_options options_;
    runtime* shards_ = nullptr;
    const memory_budget* budget_ = nullptr;
    rtrs::session_memory memory_;
    std::uint64_t of_one_host_ = 0;         // sessions
    std::vector<device_config> configured_; // at the start
    setting_values running_;
    std::optional<disk_calls> disks_;
    mutable std::mutex served_mutex_;     // of what follows
    served_list served_;                  // as they were written
    std::vector<leaving_device> leaving_; // of reloads: removed, while somebody uses them or they are closed
    rnbd::device_table devices_;
    std::optional<rtrs::server_group> sessions_;
    std::vector<rnbd::server_stats> device_stats_;      // by shard
    std::vector<std::unique_ptr<shard_part>> parts_;    // likewise; each is its shard's, which makes it
    std::vector<std::atomic<shard_part*>> parts_there_; // the same, for other threads
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
    c.answer = [this](const control_arguments&) { return list_devices(); };
    control_command sessions;
    sessions.name = "sessions";
    sessions.help = "Sessions of block clients, path by path";
    sessions.columns = {"session", "peer", "connections", "shard", "state"};
    sessions.list = [this](shard& s, const control_arguments&) -> std::unique_ptr<control_list> {
        const auto& part = parts_[s.index()]; // made when the first listener is served there
        return part ? std::make_unique<list_of_sessions>(part->sessions, s.index()) : nullptr;
    };
    std::vector<control_command> commands;
    control_command resizing;
    resizing.name = "resize";
    resizing.help = "Serves a device in the size that its file or block device has now";
    resizing.columns = {"device", "size", "size_before", "open_by"};
    resizing.arguments = {{"device", "the name of the device", true},
                          {"how",
                           "shrink: makes it smaller though clients have it open, whose requests behind "
                           "its end fail then",
                           false,
                           {"shrink"}}};
    resizing.single = true;
    resizing.work = [this](const control_arguments& told, const std::stop_token&) { return resize(told); };
    commands.push_back(std::move(c));
    commands.push_back(std::move(sessions));
    commands.push_back(std::move(resizing));
    return commands;
}

// Each shard is asked for its sessions a few at a time.
std::vector<evictable> block_module::find_clients(const std::string& who, std::size_t most)
{
    constexpr std::size_t at_once = 50;
    std::vector<evictable> all;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        std::optional<rtrs::uuid> last;
        for (bool more = true; more && all.size() < most;) {
            const auto look = [this, last](shard& s) {
                const auto& part = parts_[s.index()];
                return part ? part->sessions.sessions_behind(last, at_once)
                            : std::vector<rtrs::session_report>();
            };
            const auto some = ask(shards_->at(i), look, shard_patience);
            more = some && !some->empty();
            if (!more)
                break;
            last = some->back().id;
            for (const rtrs::session_report& s : *some) {
                evictable one;
                one.kind = "block session";
                one.id = text_of(s.id);
                one.name = s.name;
                for (const rtrs::session_report::path& p : s.paths)
                    if (std::ranges::find(one.kept_out_by, p.peer) == one.kept_out_by.end())
                        one.kept_out_by.push_back(p.peer);
                if (!one.kept_out_by.empty())
                    one.address = one.kept_out_by.front();
                const bool is_meant = who.empty() || who == one.id || who == one.name ||
                                      std::ranges::find(one.kept_out_by, who) != one.kept_out_by.end();
                if (is_meant && all.size() < most)
                    all.push_back(std::move(one));
            }
        }
    }
    return all;
}

control_answer block_module::list_devices() const
{
    const auto or_nothing = [](const std::string& text) {
        return text.empty() ? control_value() : control_value(text);
    };
    control_answer all;
    for (const auto& served : served_now()) {
        const device_config& d = served->config;
        const storage::opened_block& o = *served->block;
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
}

evicted block_module::end(const evictable& client, std::chrono::milliseconds patience)
{
    constexpr std::chrono::milliseconds least{10}; // of a shard that does not hang
    const auto until = std::chrono::steady_clock::now() + patience;
    evicted out;
    out.sessions = 1;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
        const auto end_there = [this, id = client.id](shard& s) {
            const auto& part = parts_[s.index()];
            const auto known = uuid_of(id);
            return part && known && part->sessions.end_session(*known);
        };
        for (;;) {
            // Shards that hang take `patience` together.
            const auto left =
                std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
            const auto is_there = ask(shards_->at(i), end_there,
                                      std::clamp(left, least, std::chrono::milliseconds(shard_patience)));
            if (is_there && !*is_there)
                break;
            if (std::chrono::steady_clock::now() >= until) {
                out.remains += (out.remains.empty() ? "" : "; ") +
                               (is_there ? std::string("requests that have not ended, and may still write")
                                         : "no answer of shard " + std::to_string(i));
                break;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
    }
    return out;
}

void block_module::serve_device(std::shared_ptr<served_device> made)
{
    const auto added = devices_.add(options_of(made->config, *made->block->device));
    if (!added)
        throw config_error(made->config.told + ": " + added.error().message());
    made->number = *added;
    const std::lock_guard lock(served_mutex_);
    served_.push_back(std::move(made));
}

// --- Resize

control_answer block_module::resize(const control_arguments& told)
{
    const std::string& wanted = *told.find("device");
    std::shared_ptr<served_device> found;
    std::string names;
    for (const auto& served : served_now()) {
        if (served->config.name == wanted)
            found = served;
        names += (names.empty() ? "" : ", ") + printable(served->config.name);
    }
    if (!found)
        throw std::runtime_error("no device " + printable(wanted) + "; there are " + names);
    const device_config& d = found->config;
    storage::opened_block& block = *found->block;
    if (block.size == nullptr)
        throw std::runtime_error(d.told + ": the back end " + d.backend_name +
                                 " has the size that its configuration says; change that and restart");
    const auto there = disks_->size_there(*found);
    if (!there)
        throw std::runtime_error(d.told + ": " + block.source + ": " + there.error().message());
    const std::uint64_t before = block.device->properties().size;
    const rnbd::device_table::users users = devices_.users_of(found->number);
    const std::uint64_t open_by = users.writers + users.readers;
    if (*there < before && open_by != 0 && told.find("how") == nullptr)
        throw std::runtime_error(d.told + ": " + block.source + " has " + std::to_string(*there) +
                                 " bytes now, less than the " + std::to_string(before) +
                                 " that are served, and clients have it open (" + std::to_string(open_by) +
                                 "): have them close it, or insist with `resize " + d.name + " shrink`");
    block.size->serve_size(*there);
    log(log_level::info, "block", "a device has another size",
        {{"device", d.name}, {"size", *there}, {"before", before}});
    control_answer out;
    out.rows.push_back({d.name, *there, before, open_by});
    return out;
}

// --- Reload

namespace {

// What a reload changes of a device that stays.
constexpr std::array<std::string_view, 3> changeable = {"clients", "session", "read_only"};

bool is_changeable(std::string_view name) { return std::ranges::find(changeable, name) != changeable.end(); }

} // namespace

class block_module::plan final : public reload_plan {
public:
    explicit plan(block_module& of) noexcept : of_(of) {}
    ~plan() override { of_.disks_->close(std::move(added)); }
    void apply() noexcept override { of_.apply(*this); }

    struct change {
        std::shared_ptr<served_device> of;
        device_config to;
    };
    served_list added, removed;
    std::vector<change> changed;

private:
    block_module& of_;
};

std::unique_ptr<reload_plan> block_module::plan_reload(setting_values& values, module_table& modules,
                                                       bool looks_only)
{
    auto out = std::make_unique<plan>(*this);
    finish_removed();
    complete(values);
    const std::vector<device_config> wanted = read_devices(values, modules);
    std::vector<setting> own = settings();
    std::erase_if(own, [](const setting& s) { return s.name == std::string_view("device"); });
    note_changes(own, running_, values, "block.", true, out->changes);
    const served_list running = served_now();
    const auto find = [](const auto& all, std::string_view name, auto name_of) {
        return std::ranges::find_if(all, [&](const auto& one) { return name_of(one) == name; });
    };
    const auto of_served = [](const auto& s) { return std::string_view(s->config.name); };
    const auto of_config = [](const device_config& d) { return std::string_view(d.name); };
    std::vector<device_config> added; // opened when all else is known to be good
    for (const auto& served : running) {
        if (find(wanted, served->config.name, of_config) != wanted.end())
            continue;
        out->removed.push_back(served);
        out->changes.push_back({served->config.told, "removed", false});
    }
    for (const device_config& d : wanted) {
        const auto there = find(running, d.name, of_served);
        if (there == running.end()) {
            out->changes.push_back({d.told, "added", false});
            for (const auto& leaving : leaving_)
                if (leaving.name == d.name)
                    throw config_error(
                        d.place, d.told + (leaving.device ? ": it was removed, and operations on it have "
                                                            "not ended yet: try again later"
                                                          : ": it was removed, and its disk does not "
                                                            "answer its end: see what the disk waits for, "
                                                            "and try again then"));
            if (!looks_only)
                added.push_back(d);
            continue;
        }
        const device_config& is = (*there)->config;
        std::vector<setting> fixed, may_change;
        std::vector<setting> all = device_settings();
        const std::vector<setting> of_backend = d.backend->settings();
        all.insert(all.end(), of_backend.begin(), of_backend.end());
        for (setting& s : all)
            (is_changeable(s.name) ? may_change : fixed).push_back(s);
        note_changes(fixed, is.values, d.values, d.told + " ", true, out->changes);
        // It was opened so that nobody can write.
        const bool was_opened_to_read =
            is.read_only && !d.read_only && (*there)->block->device->properties().read_only;
        const std::size_t before = out->changes.size();
        note_changes(may_change, is.values, d.values, d.told + " ", false, out->changes);
        if (out->changes.size() == before)
            continue;
        device_config to = is;
        to.clients = d.clients;
        to.session = d.session;
        to.read_only = d.read_only || was_opened_to_read;
        for (const std::string_view name : changeable)
            if (const auto* const value = d.values.find(name))
                to.values.set(std::string(name), *value);
            else
                to.values.erase(std::string(name));
        if (was_opened_to_read) {
            for (std::size_t i = before; i < out->changes.size(); ++i)
                if (out->changes[i].what == d.told + " read_only")
                    out->changes[i].needs_restart = true;
            to.values.set("read_only", *is.values.find("read_only"));
        }
        out->changed.push_back({*there, std::move(to)});
    }
    out->added = disks_->open(added);
    return out;
}

// Sessions hear of what is gone or changed in their turns. What is gone is closed when all have heard and nobody uses it.
void block_module::have_sessions_look_again(plan& what)
{
    constexpr auto patience = std::chrono::seconds(5);
    std::vector<session_visit> visits(parts_.size());
    for (std::size_t i = 0; i < parts_.size(); ++i)
        // One that is made from now on has no session that knew what is gone.
        if (shard_part* const part = parts_there_[i].load(std::memory_order_acquire))
            visits[i] = begin_ask(shards_->at(i), [part](shard&) {
                part->devices_served.look_again();
                return true;
            });
    for (leaving_device& gone : leaving_) {
        if (gone.is_visited)
            continue;
        gone.visits = visits;
        gone.is_visited = true;
    }
    const auto until = std::chrono::steady_clock::now() + patience;
    for (std::size_t i = 0; i < visits.size(); ++i) {
        if (visits[i].valid() && visits[i].wait_until(until) != std::future_status::ready)
            what.late.push_back("shard " + std::to_string(i) +
                                " does not run its tasks, and takes devices from its sessions when it does");
    }
    for (close_removed(); !leaving_.empty() && std::chrono::steady_clock::now() < until; close_removed())
        std::this_thread::sleep_for(pause);
    for (leaving_device& left : leaving_) {
        left.is_late = !left.device;
        what.late.push_back(left.told + (left.device
                                             ? ": operations on it have not ended; a later reload closes it"
                                             : ": its disk does not answer its end; it is closed when the "
                                               "disk does"));
    }
}

void block_module::apply(plan& what) noexcept
{
    try {
        // Whatever has no memory behind this, sessions that use a device have it: a later reload visits them.
        leaving_.reserve(leaving_.size() + what.removed.size());
        for (const auto& gone : what.removed) {
            leaving_.push_back({gone, gone->config.name, gone->config.told, gone->is_closed, {}});
            devices_.remove(gone->number);
            const std::lock_guard lock(served_mutex_);
            std::erase(served_, gone);
        }
        what.removed.clear(); // who has one of them keeps it open
        for (plan::change& c : what.changed) {
            if (const auto done = devices_.change(c.of->number, options_of(c.to, *c.of->block->device));
                !done) {
                what.late.push_back(c.to.told + ": " + done.error().message() + ": restart for that");
                continue;
            }
            auto now = std::make_shared<served_device>();
            now->number = c.of->number;
            now->config = std::move(c.to);
            now->block = c.of->block;
            now->is_closed = c.of->is_closed;
            now->is_asked = c.of->is_asked;
            const std::lock_guard lock(served_mutex_);
            std::ranges::replace(served_, c.of, now);
        }
        for (auto& made : what.added) {
            try {
                serve_device(std::move(made));
            } catch (const config_error& e) {
                what.late.push_back(e.what());
            }
        }
        have_sessions_look_again(what);
    } catch (const std::exception& e) { // no memory
        try {
            what.late.push_back("not all could be done: " + std::string(e.what()) + ": reload again");
        } catch (const std::bad_alloc&) {
        }
    }
}

bool block_module::is_used(const leaving_device& d) const noexcept
{
    const rnbd::device_table::users users = devices_.users_of(d.device->number);
    return !d.is_visited || users.writers + users.readers != 0 || !std::ranges::all_of(d.visits, is_over);
}

// Those that nobody uses any more. Who lists devices may have one a moment longer. Their lanes close them.
void block_module::close_removed() noexcept
{
    for (leaving_device& d : leaving_)
        if (d.device && !is_used(d))
            d.device.reset();
    std::erase_if(leaving_, [](const leaving_device& d) {
        return !d.device && d.is_closed->load(std::memory_order_acquire);
    });
}

// Until then what is opened next may find that they have its file. A disk that hangs is waited for once.
void block_module::finish_removed() noexcept
{
    const auto until = std::chrono::steady_clock::now() + disks_->patience();
    const auto is_new = [](const leaving_device& d) { return !d.device && !d.is_late; };
    for (close_removed(); std::ranges::any_of(leaving_, is_new) && std::chrono::steady_clock::now() < until;
         close_removed())
        std::this_thread::sleep_for(pause);
    for (leaving_device& d : leaving_)
        d.is_late = !d.device;
}

} // namespace

} // namespace verbena::block

const verbena::module_descriptor verbena::modules::block = {
    .name = "block",
    .version = VERBENA_VERSION,
    .summary = "block devices for RNBD clients, over RTRS",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<block::block_module>(); },
};
