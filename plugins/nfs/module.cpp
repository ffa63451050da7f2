// SPDX-License-Identifier: Apache-2.0
// NFS as a module: exports, and the program on each shard.
#include "data_places.hpp"
#include "export_config.hpp"
#include "export_set.hpp"
#include "export_word.hpp"
#include "limits_config.hpp"
#include "rpcbind.hpp"
#include "start_text.hpp"
#include "state_commands.hpp"
#include "suspensions.hpp"

#include <verbena/core/module/start_error.hpp>
#include <verbena/plugins/modules.hpp>

#include <verbena/core/module/control.hpp>
#include <verbena/core/module/reload.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/core/task/already_made.hpp>
#include <verbena/protocols/files/recovery_database.hpp>
#include <verbena/protocols/nfs/nsswitch_groups.hpp>
#include <verbena/protocols/nfs/nsswitch_names.hpp>
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
#include <filesystem>
#include <iterator>
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

class nfs_module final : public rpc::program_module,
                         public served_exports,
                         public controlled,
                         public evicting,
                         public reloadable {
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
        const versions wanted = read_versions(values);
        serves3_ = wanted.three;
        serves4_ = wanted.four;
        minors_ = wanted.minors;
        said_ = read(values, modules);
        lease_ = std::chrono::seconds(values.number("lease"));
        grace_ = values.written("grace") ? std::chrono::seconds(values.number("grace")) : lease_;
        limits_ = read_limits(values.table("limits"));
        names_ = read_names(values);
        manages_gids_ = values.flag("manage_gids");
        uses_rpcbind_ = values.text("rpcbind") == "auto";
    }
    std::unique_ptr<reload_plan> plan_reload(setting_values& values, module_table& modules,
                                             bool looks_only) override;
    void will_listen(std::span<const listen_target> targets) override
    {
        targets_.assign(targets.begin(), targets.end());
        check_pnfs_listeners(said_.exports, transports());
    }
    void start(module_host& host) override
    {
        shards_ = &host.shards();
        has_mount_ = host.modules().find("mount") != nullptr;
        limits_.sessions.v6_prefix = host.peers().options().v6_prefix;
        host_ = &host;
        hung_wait wait;
        exports_.open(host, said_.exports, targets_, wait);
        // A client that does not answer loses what it has after a lease, and a fence has its time.
        suspensions_.start(lease_ + files::state_options().fence_time + std::chrono::seconds(20));
        expose_suspended(host.metrics());
        if (!said_.allow_public)
            refuse_public(exports_.all(), targets_);
        const std::string& state = host.state_directory();
        state_ = state;
        refuse_exported_state(exports_.all(), state, wait);
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
            const export_set::exports all = exports_.all();
            for (std::size_t i = 0; i < all.size(); ++i) {
                export_backend& of = *all[i]->backend;
                s.tasks().spawn(already_made,
                                of.room.tend(*of.beneath, export_room::first_of(i, all.size())));
            }
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
        std::vector<exported_as> exported;
        for (const auto& e : exports_.all())
            exported.push_back(e->as);
        std::string text = start_text(exported, places, {version_4, has_mount_});
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
    void stop() noexcept override
    {
        rpcbind_.reset();
        exports_.stop();
    }

    std::vector<control_command> control_commands() override;
    std::vector<evictable> find_clients(const std::string& who, std::size_t most) override
    {
        return commons_ ? nfs::find_clients(*commons_, who, most) : std::vector<evictable>();
    }
    bool keep_out(const std::string& name, std::chrono::seconds time) override
    {
        return !commons_ || nfs::keep_out(*commons_, name, time);
    }
    evicted end(const evictable& client, std::chrono::milliseconds patience) override
    {
        return nfs::end_client(*commons_, client, patience);
    }

    const export_table& exports() const noexcept override { return table_; }
    const handle_key& key() const noexcept override { return key_; }

private:
    std::vector<std::string> transports() const;
    struct versions {
        bool three = false;
        bool four = false;
        std::array<bool, v4::max_minor_version + 1> minors{}; // of version 4
    };
    static versions read_versions(setting_values& values);
    static v4::user_names_options read_names(const setting_values& values);
    void set_limits(const limits_config& most) noexcept;
    void show_rooms() noexcept;
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
    void expose_suspended(metric_registry& registry);
    static std::string state_of(const served_export& e, const suspensions::status* is);
    static control_value suspended_since(const suspensions::status* is);
    control_value why_down(const served_export& e) const;

    // What a configuration says, and can be compared.
    struct read_config {
        std::vector<export_config> exports;
        setting_values values;
        bool allow_public = false;
    };
    read_config read(setting_values& values, module_table& modules);
    class plan;

    read_config said_; // exports are export_set's once they are open
    std::vector<listen_target> targets_;
    export_table table_;
    export_set exports_{table_};
    module_host* host_ = nullptr;
    std::string state_;
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
    suspensions suspensions_{exports_, [this] { return commons_ ? &commons_->state : nullptr; }};
    metric_registrations suspended_registration_;
    runtime* shards_ = nullptr;
    metric_registry* metrics_ = nullptr;
    metric_registrations registrations_;
    metric_registrations group_registrations_;
    std::optional<rpcbind_registration> rpcbind_;
    bool serves3_ = false;
    bool serves4_ = false;
    std::array<bool, v4::max_minor_version + 1> minors_{}; // of version 4
    bool has_mount_ = false;
    bool manages_gids_ = false;
    bool uses_rpcbind_ = true;
};

std::vector<std::string> nfs_module::transports() const
{
    std::vector<std::string> all;
    for (const listen_target& t : targets_)
        all.push_back(t.transport);
    return all;
}

nfs_module::read_config nfs_module::read(setting_values& values, module_table& modules)
{
    read_config made;
    made.exports = read_exports(values, modules);
    made.allow_public = values.flag("allow_public");
    check_pnfs(made.exports, minors_[1] || minors_[2]);
    made.values = values;
    return made;
}

nfs_module::versions nfs_module::read_versions(setting_values& values)
{
    if (values.list("versions").empty()) {
        setting_values::value all{std::vector<std::string>{"3", "4.1", "4.2"}};
        all.is_default = true;
        values.set("versions", std::move(all));
    }
    versions made;
    for (const std::string& version : values.list("versions")) {
        if (version == "3")
            made.three = true;
        else if (version == "4.0")
            made.four = made.minors[0] = true;
        else if (version == "4.1")
            made.four = made.minors[1] = true;
        else if (version == "4.2")
            made.four = made.minors[2] = true;
        else
            throw config_error(values.place("versions"), "versions: no such version of NFS, " +
                                                             printable(version) +
                                                             "; there are 3, 4.0, 4.1 and 4.2");
    }
    return made;
}

v4::user_names_options nfs_module::read_names(const setting_values& values)
{
    v4::user_names_options names;
    names.sends_names = values.flag("user_names");
    names.logs = true;
    if (!values.written("id_domain"))
        return names;
    names.domain = values.text("id_domain");
    if (!v4::is_id_domain(names.domain))
        throw config_error(values.place("id_domain"),
                           "id_domain: " + printable(names.domain) +
                               " is no domain: write up to 120 letters, digits, '-', '_' and '.', such as "
                               "example.org, or leave it out for the host's own");
    return names;
}

// Exports and what they are compared by. All else that a configuration can say waits for a restart.
class nfs_module::plan final : public reload_plan {
public:
    plan(nfs_module& of, std::unique_ptr<reload_plan> exports, bool allow_public, const limits_config& most)
        : of_(of), most_(most), exports_(std::move(exports)), allow_public_(allow_public)
    {
        changes = exports_->changes;
    }
    void apply() noexcept override
    {
        exports_->apply();
        late.swap(exports_->late);
        of_.show_rooms();
        of_.set_limits(most_);
        of_.said_.values.find("limits")->data.swap(limits.data);
        of_.said_.allow_public = allow_public_;
        std::get<bool>(of_.said_.values.find("allow_public")->data) = allow_public_;
    }

    setting_values::value limits;       // as the configuration has them
    std::unique_lock<std::mutex> still; // no export is suspended meanwhile

private:
    nfs_module& of_;
    const limits_config most_;
    const std::unique_ptr<reload_plan> exports_;
    const bool allow_public_;
};

// Of exports that became writable or read-only.
void nfs_module::show_rooms() noexcept
{
    try {
        for (const auto& e : exports_.all())
            e->backend->room.show(!e->config.read_only);
    } catch (const std::bad_alloc&) { // metrics stay as they were, and the next reload sees to them
    }
}

void nfs_module::set_limits(const limits_config& most) noexcept
{
    if (commons_)
        commons_->set_limits(most.state, most.sessions);
    if (layouts_)
        layouts_->layouts().set_most(most.layouts.layouts, most.layouts.layouts_of_client);
}

std::unique_ptr<reload_plan> nfs_module::plan_reload(setting_values& values, module_table& modules,
                                                     bool looks_only)
{
    (void)read_versions(values);
    (void)read_names(values);
    limits_config most = read_limits(values.table("limits"));
    most.sessions.v6_prefix = limits_.sessions.v6_prefix;
    read_config wanted = read(values, modules);
    std::unique_lock<std::mutex> still = suspensions_.hold_still();
    std::map<std::uint32_t, std::string> suspended;
    for (const auto& [pseudo, is] : suspensions_.all()) {
        if (is.now != storage::suspension::state::served)
            suspended.emplace(is.space, pseudo);
        const auto stays = [&path = pseudo](const export_config& w) { return w.pseudo == path; };
        if (is.now != storage::suspension::state::served && std::ranges::none_of(wanted.exports, stays))
            throw config_error(
                "export " + pseudo +
                " is suspended: resume it (verbena admin resume) before a reload takes it away");
    }
    check_pnfs_listeners(wanted.exports, transports());
    export_set::terms by{*host_, targets_, commons_.get(), layouts_.has_value(), wanted.allow_public, state_};
    by.suspended = std::move(suspended);
    auto made = std::make_unique<plan>(*this, exports_.plan(by, wanted.exports, looks_only),
                                       wanted.allow_public, most);
    made->limits = *values.find("limits");
    made->still = std::move(still);
    std::vector<setting> others = settings();
    std::erase_if(others, [](const setting& s) { return s.name == "export"; });
    for (const setting& s : others)
        note_changes(std::span(&s, 1), said_.values, values, "nfs.",
                     s.name != "allow_public" && s.name != "limits", made->changes);
    return made;
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
    if (places == nullptr ||
        std::ranges::find(said_.exports, true, &export_config::pnfs) == said_.exports.end())
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

void nfs_module::expose_suspended(metric_registry& registry)
{
    metric_family family{"verbena_export_suspended",
                         "1 while an operator has the export suspended: verbena_export_up is 0 then.",
                         metric_type::gauge,
                         "",
                         {"export"},
                         export_table::max_exports};
    suspended_registration_.push_back(registry.add(std::move(family), [this](metric_sink& to) {
        for (const auto& [pseudo, is] : suspensions_.all())
            to.value({pseudo}, is.since ? 1 : 0);
    }));
    metric_family unclosed{
        "verbena_unclosed_exports",
        "Exports that are not served and are not closed yet, by why: a reload removed them, or they "
        "were opened for nothing and their disks do not answer.",
        metric_type::gauge,
        "",
        {"reason"},
        2};
    suspended_registration_.push_back(registry.add(std::move(unclosed), [this](metric_sink& to) {
        const export_set::unclosed now = exports_.count_unclosed();
        to.value({"removed"}, double(now.removed));
        to.value({"unused"}, double(now.unused));
    }));
}

// "up", "down" where its disk is not mounted or does not answer, or how far it is on its way to `suspended` and back.
std::string nfs_module::state_of(const served_export& e, const suspensions::status* is)
{
    if (is != nullptr && is->now != storage::suspension::state::served)
        return std::string(to_string(is->now));
    const storage::opened_backend& opened = e.backend->opened;
    return !opened.is_up || opened.is_up() ? "up" : "down";
}

control_value nfs_module::suspended_since(const suspensions::status* is)
{
    return is != nullptr && is->since ? control_value(utc_text(*is->since)) : control_value();
}

control_value nfs_module::why_down(const served_export& e) const
{
    const storage::opened_backend& of = e.backend->opened;
    const std::string why = of.why_down ? of.why_down() : std::string();
    return why.empty() ? control_value() : control_value(why);
}

std::vector<control_command> nfs_module::control_commands()
{
    control_command c;
    c.name = "exports";
    c.help = "What is exported, to whom and how";
    c.columns = {"path",       "source",  "backend", "options",  "clients",
                 "transports", "warning", "state",   "why_down", "suspended_since"};
    c.answer = [this](const control_arguments&) {
        control_answer all;
        const auto suspended = suspensions_.all();
        for (const auto& each : exports_.all()) {
            const exported_as& e = each->as;
            const auto found = suspended.find(e.pseudo);
            const suspensions::status* const is = found == suspended.end() ? nullptr : &found->second;
            all.rows.push_back({e.pseudo, e.source, each->config.backend_name, e.options, e.clients,
                                e.transports, e.warning.empty() ? control_value() : control_value(e.warning),
                                state_of(*each, is), why_down(*each), suspended_since(is)});
        }
        // Those that a reload took away, for as long as something keeps them.
        for (const export_set::leaving& each : exports_.all_leaving()) {
            const exported_as& e = each.as;
            all.rows.push_back({e.pseudo, e.source, each.backend_name, e.options, e.clients, e.transports,
                                e.warning.empty() ? control_value() : control_value(e.warning), "closing",
                                each.why, control_value()});
        }
        return all;
    };
    std::vector<control_command> commands;
    commands.push_back(std::move(c));
    if (commons_)
        std::ranges::move(state_commands(*commons_, table_), std::back_inserter(commands));
    for (control_command& one : suspensions_.commands())
        commands.push_back(std::move(one));
    return commands;
}

} // namespace

} // namespace verbena::nfs

const verbena::module_descriptor verbena::modules::nfs = {
    .name = "nfs",
    .version = VERBENA_VERSION,
    .summary = "NFS versions 3, 4.0, 4.1 and 4.2 over every transport, with its exports",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<verbena::nfs::nfs_module>(); },
};
