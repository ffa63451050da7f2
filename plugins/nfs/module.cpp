// SPDX-License-Identifier: Apache-2.0
// NFS as a module: exports, and the program on each shard.
#include "data_places.hpp"
#include "export_config.hpp"
#include "export_word.hpp"
#include "limits_config.hpp"
#include "rpcbind.hpp"
#include "shared_trees.hpp"
#include "start_text.hpp"

#include <verbena/core/module/start_error.hpp>
#include <verbena/plugins/modules.hpp>

#include <verbena/core/module/control.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/core/task/already_made.hpp>
#include <verbena/protocols/files/recovery_database.hpp>
#include <verbena/protocols/nfs/nsswitch_groups.hpp>
#include <verbena/protocols/nfs/nsswitch_names.hpp>
#include <verbena/protocols/nfs/server/export_room.hpp>
#include <verbena/protocols/nfs/server/served_exports.hpp>
#include <verbena/protocols/nfs/server/v3/server.hpp>
#include <verbena/protocols/nfs/server/v4/commons.hpp>
#include <verbena/protocols/nfs/server/v4/pnfs/service.hpp>
#include <verbena/protocols/nfs/server/v4/server.hpp>
#include <verbena/protocols/rpc/module.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <optional>
#include <sys/resource.h>
#include <unistd.h>

namespace verbena::nfs {

namespace {

// Lookups of names at once. Those that hang hold up the others.
constexpr unsigned name_threads = 4;
// The same of users' groups, which have threads of their own: calls can do without names, but not without these.
constexpr unsigned group_threads = user_groups_options().most_at_once;

std::int64_t seconds_since_1970()
{
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

std::string join(const std::vector<std::string>& words, const char* between)
{
    std::string text;
    for (const std::string& word : words)
        text += (text.empty() ? "" : between) + word;
    return text;
}

std::string option_text(const export_config& e, const storage::opened_backend& opened)
{
    std::vector<std::string> words = {e.read_only || opened.read_only ? "ro" : "rw"};
    if (e.all_squash)
        words.emplace_back("all_squash");
    else if (opened.tells_callers_apart)
        words.emplace_back(e.root_squash ? "root_squash" : "root_squash=no");
    words.insert(words.end(), opened.options.begin(), opened.options.end());
    if (e.secure)
        words.emplace_back("secure");
    if (e.pnfs)
        words.emplace_back("pnfs");
    if (!e.local_writers)
        words.emplace_back("local_writers=no");
    for (const std::string& t : e.transports)
        words.push_back("transport=" + t);
    for (const export_config::filter& f : e.filters)
        words.push_back("filter=" + f.name);
    return join(words, ",");
}

std::string who(const client_list& clients)
{
    if (clients.everybody())
        return "everybody";
    return clients.local_only() ? "this host only" : join(clients.texts(), " ");
}

// Of minor versions 1 and 2, at their home.
class list_of_clients final : public control_list {
public:
    explicit list_of_clients(v4::server_commons& commons) : commons_(commons) {}
    bool next(std::vector<control_row>& rows, std::size_t most) override
    {
        const auto some = commons_.sessions.clients_behind(last_, most / 2); // a name has two at most
        files::client_book& book = commons_.state.clients();
        const time_point now = commons_.state.now();
        for (const v4::session_table::client_report& c : some) {
            const auto lease = book.state_of(c.state);
            const auto in_use = book.is_in_use(c.state);
            std::array<char, 17> id{};
            std::snprintf(id.data(), id.size(), "%016llx", static_cast<unsigned long long>(c.client));
            rows.push_back({std::string(id.data()), c.name, c.from, c.confirmed, std::uint64_t(c.sessions),
                            std::chrono::duration<double>(std::max(now - c.heard, duration::zero())).count(),
                            lease ? control_value(std::string(word_of(*lease))) : control_value(),
                            in_use && *in_use, book.has_delegations(c.state)});
        }
        if (some.empty())
            return false;
        last_ = some.back().name;
        return true;
    }

private:
    static const char* word_of(files::client_state s) noexcept
    {
        switch (s) {
        case files::client_state::active: return "active";
        case files::client_state::courtesy: return "courtesy";
        case files::client_state::expired: return "expired";
        case files::client_state::revoked: return "revoked";
        }
        return "?";
    }
    v4::server_commons& commons_;
    std::optional<std::string> last_;
};

// What the metrics of an export tell of.
struct watched_export {
    watched_export(storage::file_backend& of, std::size_t shards)
        : files(&of), traffic(std::make_shared<export_traffic>(shards))
    {
    }
    storage::file_backend* files; // beneath all filters
    std::shared_ptr<export_traffic> traffic;
    export_room room;
};

class nfs_module final : public rpc::program_module, public served_exports, public controlled {
public:
    std::vector<setting> settings() const override
    {
        return {
            setting::word(
                "rpcbind", {"auto", "no"}, "auto",
                "auto registers with rpcbind, if it answers and no NFS server is registered; no never does"),
            setting::list("versions",
                          "Versions of NFS that are served, of 3, 4.0, 4.1 and 4.2; all but 4.0 by default"),
            setting::number(
                "lease", {5, 3600}, 90,
                "Seconds after which a client of version 4 that is silent has to give way to others; it "
                "asks for them within that time"),
            setting::number("grace", {0, 3600}, 90,
                            "Seconds that clients of version 4 have after a restart to take back what they "
                            "had open; no less than "
                            "the lease before it. Others wait meanwhile; it ends as soon as all are done. 0: "
                            "nobody takes back "
                            "anything")
                .optional("as long as lease"),
            setting::text(
                "id_domain", "",
                "What stands behind the @ in the names of users and groups that clients of version 4 "
                "send and get; the same for all hosts that share files")
                .optional("the host's DNS domain, else localdomain")
                .form("DOMAIN"),
            setting::flag(
                "user_names", false,
                "Tells clients of version 4 the names of users and groups, where they have any, and "
                "not their numbers; names that clients send are looked up in either case"),
            setting::flag(
                "manage_gids", false,
                "Looks up the groups of callers on this host, as many as they have, and does not take "
                "those that calls name, which are 16 at most"),
            setting::flag("allow_public", false,
                          "Serves everybody on globally routable addresses, where AUTH_SYS lets a caller "
                          "claim any uid"),
            setting::tables(
                "export", export_settings(),
                "Export DIR as PSEUDO (default for the first: /export); repeated for more. DIR ends at the "
                "last \":/\"; a backslash escapes. Options: ro root_squash=no all_squash anonuid=N anongid=N "
                "clients=CIDR transport=NAME backend=NAME secure local_writers=no pnfs, and those of the "
                "back end: of posixfs "
                "mountpoint crossmnt "
                "async handles=auto|kernel|path. Without clients= only this host may connect; clients=* "
                "admits "
                "everybody")
                .open()
                .from_word(&parse_export)
                .form("DIR[:PSEUDO][,OPTION...]"),
            setting::table("limits", limit_settings(),
                           "How much clients of version 4 may have: one, those of one peer, and all"),
        };
    }
    std::vector<std::string> default_listeners() const override
    {
        return {"iwarp://127.0.0.1:20049", "tcp://127.0.0.1:2049"};
    }
    std::uint16_t default_port(std::string_view transport) const override
    {
        return transport == "tcp" ? 2049 : 20049;
    }

    void configure(setting_values& values, module_table& modules) override
    {
        exports_ = read_exports(values, modules);
        allow_public_ = values.flag("allow_public");
        read_versions(values);
        check_pnfs(exports_, minors_[1] || minors_[2]);
        lease_ = std::chrono::seconds(values.number("lease"));
        grace_ = values.written("grace") ? std::chrono::seconds(values.number("grace")) : lease_;
        limits_ = read_limits(values.table("limits"));
        read_names(values);
        manages_gids_ = values.flag("manage_gids");
        uses_rpcbind_ = values.text("rpcbind") == "auto";
    }
    void will_listen(std::span<const listen_target> targets) override
    {
        targets_.assign(targets.begin(), targets.end());
        std::vector<std::string> transports;
        for (const listen_target& t : targets)
            transports.push_back(t.transport);
        check_pnfs_listeners(exports_, transports);
    }
    void start(module_host& host) override
    {
        shards_ = &host.shards();
        has_mount_ = host.modules().find("mount") != nullptr;
        limits_.sessions.v6_prefix = host.peers().options().v6_prefix;
        for (const export_config& e : exports_)
            at_place_of_start(e.place, [&] { open_export(host, e); });
        warn_of_shared_trees();
        refuse_public();
        const std::string& state = host.state_directory();
        refuse_exported_state(state);
        const auto loaded = load_or_create_key(state);
        if (!loaded)
            throw_start_failure(loaded.error(), "state " + state + ": " + loaded.error().message());
        key_ = *loaded;
        if (serves4_) {
            begin_recovery(host, state);
            begin_names(host);
        }
        if (manages_gids_)
            begin_groups(host);
    }
    std::vector<std::unique_ptr<rpc::program>> make_programs(shard& s) override
    {
        std::vector<std::unique_ptr<rpc::program>> programs;
        // The first shard is the home of clients. Files have their homes on all of them.
        if (serves4_ && !commons_)
            make_commons(s);
        if (serves4_)
            tend_files(s);
        if (group_source_ && !groups_)
            make_groups(s);
        if (s.index() == 0) {
            for (watched_export& e : watched_)
                s.tasks().spawn(already_made, e.room.tend(*e.files));
        }
        if (serves3_)
            programs.push_back(
                std::make_unique<v3::server>(table_, key_, serves4_ ? &commons_->state : nullptr, &s));
        if (serves4_)
            programs.push_back(std::make_unique<v4::server>(*commons_, s));
        return programs;
    }
    verbs::side_connections* connections_on(verbs::device& device, std::string_view transport) override;
    std::string listening(std::span<const listen_place> places) override
    {
        note_data_places(places);
        const char* const version_4 = minors_[2] ? "4.2" : minors_[1] ? "4.1" : serves4_ ? "4.0" : "";
        std::string text = start_text(exported_as_, places, {version_4, has_mount_});
        if (serves4_)
            text += recovery_text();
        if (uses_rpcbind_) {
            rpcbind_.emplace(places, has_mount_);
            text += rpcbind_->summary() + '\n';
        }
        return text;
    }
    void closing() noexcept override { rpcbind_.reset(); }
    // Back ends have timers on the shards: they go with this object, when the shards have ended.
    void stop() noexcept override { rpcbind_.reset(); }

    std::vector<control_command> control_commands() override;

    const export_table& exports() const noexcept override { return table_; }
    const handle_key& key() const noexcept override { return key_; }

private:
    void read_versions(setting_values& values);
    void read_names(const setting_values& values);
    void begin_names(module_host& host);
    void begin_groups(module_host& host);
    void make_groups(shard& home);
    void begin_recovery(module_host& host, const std::string& state);
    std::string recovery_text() const;
    std::chrono::seconds grace_time() const;
    void make_commons(shard& home);
    void tend_files(shard& home);
    data_places* places_on(std::string_view transport) noexcept;
    void note_data_places(std::span<const listen_place> places);
    void open_export(module_host& host, const export_config& e);
    void warn_of_shared_trees();
    void refuse_public() const;
    void refuse_exported_state(const std::string& state) const;

    std::vector<export_config> exports_;
    std::vector<listen_target> targets_;
    std::deque<watched_export> watched_;          // likewise; outlives the metrics of opened_
    std::vector<storage::opened_backend> opened_; // in the order of exports_
    std::vector<exported_as> exported_as_;
    export_table table_;
    handle_key key_{};
    std::chrono::seconds lease_{};
    std::chrono::seconds grace_{};
    limits_config limits_;
    std::optional<files::recovery_database> recovery_;
    std::optional<files::database_store> store_;
    files::recovery_start restart_;
    v4::user_names_options names_;
    std::optional<v4::nsswitch_names> nsswitch_;
    std::optional<v4::user_names> users_;
    std::optional<nsswitch_groups> group_source_;
    std::optional<user_groups> groups_;
    std::optional<v4::stream_callback_connector> connector_;
    data_places iwarp_places_, rdma_places_;
    std::optional<v4::pnfs::service> layouts_;    // outlives what commons_ knows of layouts
    std::unique_ptr<v4::server_commons> commons_; // goes when the shards have ended
    runtime* shards_ = nullptr;
    metric_registry* metrics_ = nullptr;
    metric_registrations registrations_;
    metric_registrations group_registrations_;
    std::optional<rpcbind_registration> rpcbind_;
    bool serves3_ = false;
    bool serves4_ = false;
    std::array<bool, v4::max_minor_version + 1> minors_{}; // of version 4
    bool has_mount_ = false;
    bool allow_public_ = false;
    bool manages_gids_ = false;
    bool uses_rpcbind_ = true;
};

void nfs_module::read_versions(setting_values& values)
{
    if (values.list("versions").empty()) {
        setting_values::value all{std::vector<std::string>{"3", "4.1", "4.2"}};
        all.is_default = true;
        values.set("versions", std::move(all));
    }
    for (const std::string& version : values.list("versions")) {
        if (version == "3")
            serves3_ = true;
        else if (version == "4.0")
            serves4_ = minors_[0] = true;
        else if (version == "4.1")
            serves4_ = minors_[1] = true;
        else if (version == "4.2")
            serves4_ = minors_[2] = true;
        else
            throw config_error(values.place("versions"), "versions: no such version of NFS, " +
                                                             printable(version) +
                                                             "; there are 3, 4.0, 4.1 and 4.2");
    }
}

void nfs_module::read_names(const setting_values& values)
{
    names_.sends_names = values.flag("user_names");
    names_.logs = true;
    if (!values.written("id_domain"))
        return;
    names_.domain = values.text("id_domain");
    if (!v4::is_id_domain(names_.domain))
        throw config_error(values.place("id_domain"),
                           "id_domain: " + printable(names_.domain) +
                               " is no domain: write up to 120 letters, digits, '-', '_' and '.', such as "
                               "example.org, or leave it out for the host's own");
}

void nfs_module::begin_names(module_host& host)
{
    const result<blocking_pool*> lane = host.shards().add_lane("nfs user names", name_threads);
    if (!lane)
        throw_start_failure(lane.error(), "nfs user names: " + lane.error().message());
    nsswitch_.emplace(**lane);
}

void nfs_module::begin_groups(module_host& host)
{
    metrics_ = &host.metrics();
    const result<blocking_pool*> lane = host.shards().add_lane("nfs user groups", group_threads);
    if (!lane)
        throw_start_failure(lane.error(), "nfs user groups: " + lane.error().message());
    group_source_.emplace(**lane);
}

void nfs_module::make_groups(shard& home)
{
    user_groups_options options;
    options.logs = true;
    options.v6_prefix = limits_.sessions.v6_prefix;
    groups_.emplace(home, *group_source_, options);
    table_.look_up_groups(*groups_);
    group_registrations_ = groups_->expose(*metrics_);
}

// Before anything listens: that there was this start, and who may reclaim in it, is on the disk.
void nfs_module::begin_recovery(module_host& host, const std::string& state)
{
    metrics_ = &host.metrics();
    const result<blocking_pool*> lane = host.shards().add_lane("nfs recovery", 1);
    if (!lane)
        throw_start_failure(lane.error(), "nfs recovery: " + lane.error().message());
    recovery_.emplace(state + "/nfs-recovery.sqlite");
    store_.emplace(*recovery_, **lane);
    // Not below the time of day: if the file was lost, no epoch is given out twice all the same.
    restart_ = recovery_->begin(lease_, static_cast<std::uint32_t>(seconds_since_1970()) & 0x7fff'ffff);
    if (grace_ == std::chrono::seconds(0)) {
        const files::recovery_change ended(files::recovery_change::kind::end_grace);
        const files::recovery_change* const change = &ended;
        if (const auto done = recovery_->apply(std::span(&change, 1)); !done)
            throw_start_failure(done.error(), "state " + state + ": " + done.error().message());
        restart_.reclaimers.clear();
    }
}

// A client of the start before may not have heard of this one for as long as that lease was.
std::chrono::seconds nfs_module::grace_time() const
{
    return std::max(grace_, std::chrono::ceil<std::chrono::seconds>(restart_.lease_before));
}

std::string nfs_module::recovery_text() const
{
    if (grace_ == std::chrono::seconds(0))
        return "version 4: grace is 0, so clients can't take back what they had open before this start\n";
    std::string text = "version 4: clients take back after a restart what they had open; the list is " +
                       printable(recovery_->path());
    if (const std::size_t count = restart_.reclaimers.size(); count != 0)
        text += "; " + std::to_string(count) + (count == 1 ? " client" : " clients") + " may now, for " +
                std::to_string(grace_time().count()) + " s at most, and others wait";
    return text + '\n';
}

void nfs_module::make_commons(shard& home)
{
    files::state_options options;
    options.epoch = restart_.epoch;
    options.lease = lease_;
    options.recall_time = lease_;
    options.grace_time = grace_time();
    options.reclaimers = restart_.reclaimers;
    // A clock that was set goes on being set by a little.
    options.reclaimed_unchanged = std::int64_t(restart_.started_before) - 60;
    options.limits = limits_.state;
    std::vector<shard*> homes;
    for (std::size_t i = 0; i < shards_->size(); ++i)
        homes.push_back(&shards_->at(i));
    commons_ = std::make_unique<v4::server_commons>(table_, key_, homes, *store_, options,
                                                    seconds_since_1970(), limits_.sessions);
    commons_->minors = minors_;
    users_.emplace(home.tasks(), *nsswitch_, names_);
    commons_->users = &*users_;
    connector_.emplace(home);
    commons_->v40.paths().connect_by(*connector_);
    registrations_ = commons_->expose(*metrics_);
    // Without memory for one of these the start fails.
    home.tasks().spawn(already_made, commons_->state.clients().tend());
    home.tasks().spawn(already_made, commons_->tend());
    home.tasks().spawn(already_made, commons_->callbacks.run());
}

void nfs_module::tend_files(shard& home)
{
    state_home& state = commons_->state;
    for (unsigned i = 0; i < state.homes(); ++i)
        if (&state.where(i) == &home)
            home.tasks().spawn(already_made, state.table(i).tend());
}

namespace {

// Bytes that this process may have registered with devices.
std::uint64_t lockable_memory() noexcept
{
    const auto pages = static_cast<std::uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 0L));
    const std::uint64_t all = pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return all;
    return std::min<std::uint64_t>(all, limit.rlim_cur);
}

} // namespace

verbs::side_connections* nfs_module::connections_on(verbs::device& device, std::string_view transport)
{
    data_places* const places = places_on(transport);
    if (places == nullptr || std::ranges::find(exports_, true, &export_config::pnfs) == exports_.end())
        return nullptr;
    if (!layouts_) {
        std::vector<shard*> all;
        for (std::size_t i = 0; i < shards_->size(); ++i)
            all.push_back(&shards_->at(i));
        v4::pnfs::service::options options;
        options.layouts = limits_.layouts;
        options.layouts.locked = std::min(options.layouts.locked, lockable_memory() / 2);
        layouts_.emplace(*commons_, all, options);
        // Where tasks run already that look at it.
        shards_->call(0, [this](shard& home) {
            commons_->pnfs = &*layouts_;
            home.tasks().spawn(already_made, layouts_->tend());
        });
    }
    return layouts_->add_way(transport, device,
                             [places](std::string_view peer) { return places->universal_address_for(peer); });
}

data_places* nfs_module::places_on(std::string_view transport) noexcept
{
    if (transport == "iwarp")
        return &iwarp_places_;
    return transport == "rdma" ? &rdma_places_ : nullptr;
}

void nfs_module::note_data_places(std::span<const listen_place> places)
{
    for (const std::string_view transport : {"iwarp", "rdma"}) {
        std::vector<net::endpoint> listeners;
        for (const listen_place& l : places) {
            if (l.transport == transport)
                listeners.push_back(l.where);
        }
        places_on(transport)->set(std::move(listeners));
    }
}

void nfs_module::open_export(module_host& host, const export_config& e)
{
    const std::string name = "export " + e.pseudo;
    export_options options;
    options.pseudo = e.pseudo;
    options.clients = clients_of(e);
    options.transports = e.transports;
    options.root_squash = e.root_squash;
    options.all_squash = e.all_squash;
    options.anonuid = e.anonuid;
    options.anongid = e.anongid;
    options.secure = e.secure;
    // A file system that hangs holds up its own export and no other.
    const result<blocking_pool*> lane = host.shards().add_lane(name, 0, lane_rights::callers);
    if (!lane)
        throw_start_failure(lane.error(), name + ": " + lane.error().message());
    storage::open_context context{name, e.pseudo, host.metrics(), **lane};
    context.read_only = e.read_only;
    context.keep_shard_identity = host.uses_rdma_devices();
    if (e.all_squash)
        context.everybody = storage::open_context::ids{e.anonuid, e.anongid};
    storage::opened_backend backend = e.backend->open(e.values, context);
    watched_export& watched = watched_.emplace_back(*backend.files, host.shards().size());
    for (auto f = e.filters.rbegin(); f != e.filters.rend(); ++f)
        f->module->put_on(backend, f->values, context);
    if (e.pnfs && backend.files->info().map_block == 0)
        throw config_error(
            name + ": pnfs: the back end " + e.backend_name +
            " has no files that clients could reach by RDMA: use memfs or posixfs, or leave out "
            "pnfs");
    const auto comes_by = [&e](const listen_target& t) {
        return t.transport == "iwarp" &&
               (e.transports.empty() || std::ranges::find(e.transports, t.transport) != e.transports.end());
    };
    if (e.pnfs && backend.files->info().maps_stores && std::ranges::none_of(targets_, comes_by))
        throw config_error(name + ": pnfs: clients reach files of the back end " + e.backend_name +
                           " by iwarp alone, and no such listener is for them: add --listen "
                           "iwarp://HOST:20049, or leave out pnfs");
    options.backend = backend.files.get();
    options.read_only = e.read_only || backend.read_only;
    options.local_writers = e.local_writers && backend.local_writers;
    options.pnfs = e.pnfs;
    options.traffic = watched.traffic;
    const bool has_writers = !options.read_only;
    exported_as as{e.pseudo,     backend.source, option_text(e, backend), who(options.clients),
                   e.transports, backend.notes,  backend.warning,         options.clients,
                   e.secure};
    backend.metrics.push_back(host.metrics().add({"verbena_export_up",
                                                  "1 while what is exported is there; 0 while nothing is "
                                                  "mounted there, it is gone or does not answer.",
                                                  metric_type::gauge,
                                                  "",
                                                  {"export"},
                                                  export_table::max_exports},
                                                 [label = e.pseudo, is_up = backend.is_up](metric_sink& to) {
                                                     to.value({label}, !is_up || is_up() ? 1 : 0);
                                                 }));
    append(backend.metrics, expose(host.metrics(), *watched.traffic, e.pseudo));
    // Nobody misses room where nobody may write, and media that can't be written have none.
    if (has_writers)
        append(backend.metrics, expose(host.metrics(), watched.room, e.pseudo));
    else
        watched.room.end();
    // Kept first: the table's entry points to it.
    opened_.push_back(std::move(backend));
    if (const auto added = table_.add(std::move(options)); !added)
        throw config_error(name + ": " + added.error().message());
    exported_as_.push_back(std::move(as));
}

std::vector<control_command> nfs_module::control_commands()
{
    control_command c;
    c.name = "exports";
    c.help = "What is exported, to whom and how";
    c.columns = {"path", "source", "backend", "options", "clients", "transports", "warning"};
    c.answer = [this](const control_arguments&) {
        control_answer all;
        for (std::size_t i = 0; i < exported_as_.size(); ++i) {
            const exported_as& e = exported_as_[i];
            all.rows.push_back({e.pseudo, e.source, exports_[i].backend_name, e.options, e.clients,
                                e.transports,
                                e.warning.empty() ? control_value() : control_value(e.warning)});
        }
        return all;
    };
    std::vector<control_command> commands;
    commands.push_back(std::move(c));
    if (commons_) {
        control_command clients;
        clients.name = "clients";
        clients.help = "Clients of NFS 4.1 and 4.2";
        clients.columns = {"client_id",    "name",  "address", "confirmed",  "sessions",
                           "idle_seconds", "lease", "in_use",  "delegations"};
        clients.list = [this](shard& s, const control_arguments&) {
            return commons_->state.is_home(s) ? std::make_unique<list_of_clients>(*commons_) : nullptr;
        };
        commands.push_back(std::move(clients));
    }
    return commands;
}

void nfs_module::warn_of_shared_trees()
{
    for (std::size_t i = 0; i < exports_.size(); ++i) {
        std::string& text = exported_as_[i].warning;
        const std::string more = warning_of_shared_tree(table_, exports_, i);
        text += (text.empty() || more.empty() ? "" : "; ") + more;
    }
}

void nfs_module::refuse_public() const
{
    if (allow_public_)
        return;
    std::vector<ip_address> addresses;
    for (const listen_target& t : targets_) {
        if (const auto address = ip_address::parse(t.where.address()))
            addresses.push_back(*address);
    }
    const host_addresses host;
    for (std::size_t i = 0; i < exports_.size(); ++i) {
        const export_options& e = table_.all()[i];
        if (const auto fine = nfs::refuse_public(e, addresses, host); !fine)
            throw config_error(
                exports_[i].place,
                "export " + e.pseudo +
                    (e.clients.everybody()
                         ? " would be open to the Internet"
                         : " has clients= with globally routable addresses, and is served on such a "
                           "one: calls would cross the Internet") +
                    ", where AUTH_SYS lets a caller claim to be anybody: narrow clients= to private "
                    "addresses, listen on a private address, or insist with --allow-public");
    }
}

// Callers of such an export reach what this process may: the key, with which they could make handles to anything.
void nfs_module::refuse_exported_state(const std::string& directory) const
{
    std::error_code status;
    const auto state = std::filesystem::canonical(directory, status);
    for (std::size_t i = 0; i < exports_.size(); ++i) {
        const export_config& e = exports_[i];
        const storage::opened_backend& opened = opened_[i];
        if (opened.local_tree.empty() || !(opened.as_process || !e.root_squash || e.anonuid == 0))
            continue;
        // Of one that is not mounted yet a part is not there.
        const auto exported = std::filesystem::weakly_canonical(opened.local_tree, status);
        if (std::ranges::mismatch(exported, state).in1 == exported.end())
            throw config_error(
                "state " + directory + ": lies beneath the export " + e.pseudo +
                ", whose clients could read the key of the file handles there; choose a directory "
                "outside of it with --state DIR");
    }
}

} // namespace

} // namespace verbena::nfs

const verbena::module_descriptor verbena::modules::nfs = {
    .name = "nfs",
    .version = VERBENA_VERSION,
    .summary = "NFS versions 3, 4.0, 4.1 and 4.2 over every transport, with its exports",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<verbena::nfs::nfs_module>(); },
};
