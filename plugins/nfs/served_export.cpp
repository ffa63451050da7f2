// SPDX-License-Identifier: Apache-2.0
#include "served_export.hpp"

#include <verbena/core/metrics.hpp>
#include <verbena/core/module/reload.hpp>
#include <verbena/core/module/start_error.hpp>
#include <verbena/core/reactor/run_within.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <thread>
#include <unistd.h>
#include <utility>

namespace verbena::nfs {

namespace {

// Whether a lane has something to do still.
constexpr std::chrono::milliseconds lane_look{1};

// Settings of an export that its back end knows nothing of.
constexpr std::string_view changed_in_place[] = {"clients",    "transports", "read_only", "root_squash",
                                                 "all_squash", "anonuid",    "anongid",   "secure"};

bool is_in_place(std::string_view name)
{
    return std::ranges::find(changed_in_place, name) != std::end(changed_in_place);
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

std::string told(const export_config& e) { return "export " + e.pseudo; }

// What the table and people have, when the back end is open.
void describe(served_export& of)
{
    const export_config& e = of.config;
    const storage::opened_backend& opened = of.backend->opened;
    export_options& options = of.options;
    options.pseudo = e.pseudo;
    options.clients = clients_of(e);
    options.transports = e.transports;
    options.root_squash = e.root_squash;
    options.all_squash = e.all_squash;
    options.anonuid = e.anonuid;
    options.anongid = e.anongid;
    options.secure = e.secure;
    options.backend = opened.files.get();
    options.read_only = e.read_only || opened.read_only;
    options.local_writers = e.local_writers && opened.local_writers;
    options.pnfs = e.pnfs;
    of.as = {e.pseudo,     opened.source, option_text(e, opened), who(options.clients),
             e.transports, opened.notes,  opened.warning,         options.clients,
             e.secure};
}

// Every caller acts as the user that this process has: a plain one needs that to serve at all.
bool acts_as_daemon(const export_config& e)
{
    return e.all_squash && e.anonuid == ::geteuid() && e.anongid == ::getegid();
}

void check_layouts(const export_config& e, const storage::opened_backend& backend,
                   std::span<const listen_target> targets)
{
    const std::string name = told(e);
    if (backend.files->info().map_block == 0)
        throw config_error(
            name + ": pnfs: the back end " + e.backend_name +
            " has no files that clients could reach by RDMA: use memfs or posixfs, or leave out "
            "pnfs");
    const auto comes_by = [&e](const listen_target& t) {
        return t.transport == "iwarp" &&
               (e.transports.empty() || std::ranges::find(e.transports, t.transport) != e.transports.end());
    };
    if (backend.files->info().maps_stores && std::ranges::none_of(targets, comes_by))
        throw config_error(name + ": pnfs: clients reach files of the back end " + e.backend_name +
                           " by iwarp alone, and no such listener is for them: add --listen "
                           "iwarp://HOST:20049, or leave out pnfs");
}

} // namespace

export_backend::~export_backend()
{
    if (!is_closed_early || lane == nullptr) // the runtime has ended the lane
        return;
    lane->finish();
    opened.metrics.clear();
    opened.files.reset();
    shards.remove_lane(*lane);
}

bool close_within(export_backend& of, std::chrono::milliseconds patience) noexcept
{
    using clock = std::chrono::steady_clock;
    of.opened.metrics.clear();
    const auto until = clock::now() + patience;
    // Nothing gets onto the lane behind this: a job that hangs would hold up whoever ends the lane.
    while (of.lane != nullptr && !of.lane->finish_if_idle()) {
        if (clock::now() >= until)
            return false;
        std::this_thread::sleep_for(lane_look);
    }
    return of.is_closed_early = true;
}

namespace {

std::shared_ptr<begun_export> begin(module_host& host, const export_config& e,
                                    std::shared_ptr<export_backend>& kept, opened_for what,
                                    hung_wait::clock::time_point answer_by)
{
    const std::string name = told(e);
    auto made = std::make_shared<served_export>();
    made->config = e;
    made->backend = kept = std::make_shared<export_backend>(host.shards());
    // A file system that hangs holds up its own export and no other.
    const result<blocking_pool*> lane = host.shards().add_lane(name, 0, lane_rights::callers);
    if (!lane)
        throw_start_failure(lane.error(), name + ": " + lane.error().message());
    made->backend->lane = *lane;
    auto begun = std::make_shared<begun_export>(
        begun_export{made, storage::open_context{name, e.pseudo, host.metrics(), **lane}, nullptr});
    storage::open_context& context = begun->context;
    context.read_only = e.read_only || what == opened_for::a_look;
    context.keep_shard_identity = host.uses_rdma_devices();
    context.answer_by = answer_by;
    if (e.all_squash)
        context.everybody = storage::open_context::ids{e.anonuid, e.anongid};
    begun->opening = e.backend->begin_open(made->config.values, context);
    return begun;
}

} // namespace

void begin_export(module_host& host, export_config& e, std::shared_ptr<export_backend>& kept, hung_wait& wait,
                  opened_for what)
{
    const auto now = hung_wait::clock::now();
    at_place_of_start(e.place, [&] { e.begun = begin(host, e, kept, what, wait.until(now)); });
    if (!idles_within(*kept->lane, wait.pause()))
        wait.note_hung(now);
}

std::shared_ptr<served_export> open_export(module_host& host, const export_config& e,
                                           std::span<const listen_target> targets)
{
    const std::shared_ptr<begun_export> begun = e.begun;
    const storage::open_context& context = begun->context;
    const std::shared_ptr<served_export> made = std::move(begun->made);
    const std::unique_ptr<storage::opening> opening = std::move(begun->opening);
    storage::opened_backend& backend = made->backend->opened;
    backend = opening->finish();
    made->backend->beneath = backend.files.get();
    made->backend->traffic = std::make_shared<export_traffic>(host.shards().size(), e.pseudo);
    for (auto f = e.filters.rbegin(); f != e.filters.rend(); ++f)
        f->module->put_on(backend, f->values, context);
    if (e.pnfs)
        check_layouts(e, backend, targets);
    describe(*made);
    made->options.traffic = made->backend->traffic;
    made->options.users = std::make_shared<export_users>(host.shards().size());
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
    append(backend.metrics, expose(host.metrics(), *made->backend->traffic, e.pseudo));
    // Media that can't be written have none. Others may be written after a reload.
    if (!backend.read_only)
        append(backend.metrics, expose(host.metrics(), made->backend->room, e.pseudo));
    else
        made->backend->room.end();
    made->backend->room.show(!e.read_only);
    return made;
}

std::shared_ptr<served_export> change_export(const served_export& running, const export_config& e)
{
    auto made = std::make_shared<served_export>(running);
    made->config = e;
    describe(*made);
    return made;
}

std::string needs_another_backend(const export_config& running, const export_config& wanted)
{
    std::vector<std::string> words;
    if (running.backend_name != wanted.backend_name)
        return "backend: " + wanted.backend_name + ", was " + running.backend_name;
    std::set<std::string> names;
    for (const setting_values* const of : {&running.values, &wanted.values})
        for (const auto& [name, value] : of->all())
            names.insert(name);
    for (const std::string& name : names)
        if (!is_in_place(name) && differ(running.values, wanted.values, name))
            words.push_back(name == "filter"
                                ? "filter: changed"
                                : name + ": " + change_text(running.values, wanted.values, name));
    if (words.empty() && acts_as_daemon(running) != acts_as_daemon(wanted))
        words.emplace_back("all_squash, anonuid and anongid: changed from or to this process's own user");
    return join(words, "; ");
}

std::string changes_in_place(const export_config& running, const export_config& wanted)
{
    std::vector<std::string> words;
    for (const std::string_view name : changed_in_place) {
        if (!differ(running.values, wanted.values, name))
            continue;
        if (name == "clients")
            words.push_back("clients: " + who(clients_of(wanted)) + ", was " + who(clients_of(running)));
        else
            words.push_back(std::string(name) + ": " + change_text(running.values, wanted.values, name));
    }
    return join(words, "; ");
}

lost_delegations lost_by_change(const export_config& running, const export_config& wanted)
{
    const auto stays = [&wanted](const std::string& t) {
        return std::ranges::find(wanted.transports, t) != wanted.transports.end();
    };
    const bool has_fewer = !wanted.transports.empty() &&
                           (running.transports.empty() || !std::ranges::all_of(running.transports, stays));
    if (has_fewer || (wanted.secure && !running.secure))
        return lost_delegations::all;
    return differ(running.values, wanted.values, "clients") ? lost_delegations::of_kept_out
                                                            : lost_delegations::none;
}

void refuse_public(std::span<const std::shared_ptr<served_export>> exports,
                   std::span<const listen_target> targets)
{
    std::vector<ip_address> addresses;
    for (const listen_target& t : targets) {
        if (const auto address = ip_address::parse(t.where.address()))
            addresses.push_back(*address);
    }
    const host_addresses host;
    for (const auto& each : exports) {
        const export_options& e = each->options;
        if (const auto fine = nfs::refuse_public(e, addresses, host); !fine)
            throw config_error(
                each->config.place,
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
void refuse_exported_state(std::span<const std::shared_ptr<served_export>> exports,
                           const std::string& directory, const hung_wait& wait)
{
    std::error_code status;
    const auto state = std::filesystem::canonical(directory, status);
    struct looked_at {
        const served_export* of;
        begun_call<std::filesystem::path> resolved;
    };
    std::vector<looked_at> all;
    for (const auto& each : exports) {
        const export_config& e = each->config;
        const storage::opened_backend& opened = each->backend->opened;
        if (opened.local_tree.empty() || !(opened.as_process || !e.root_squash || e.anonuid == 0))
            continue;
        // Of one that is not mounted yet a part is not there, and one that hangs is known by its name alone.
        auto resolve = [tree = opened.local_tree] {
            std::error_code ignored;
            return std::filesystem::weakly_canonical(tree, ignored);
        };
        all.push_back({each.get(), begin_call(*each->backend->lane, std::move(resolve))});
    }
    const auto until = wait.until(hung_wait::clock::now());
    for (looked_at& each : all) {
        const export_config& e = each.of->config;
        const std::string& tree = each.of->backend->opened.local_tree;
        const auto exported =
            each.resolved.wait_until(until).value_or(std::filesystem::path(tree).lexically_normal());
        if (std::ranges::mismatch(exported, state).in1 == exported.end())
            throw config_error(
                "state " + directory + ": lies beneath the export " + e.pseudo +
                ", whose clients could read the key of the file handles there; choose a directory "
                "outside of it with --state DIR");
    }
}

} // namespace verbena::nfs
