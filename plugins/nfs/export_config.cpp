// SPDX-License-Identifier: Apache-2.0
#include "export_config.hpp"
#include "export_word.hpp"

#include <verbena/core/module/protocol_module.hpp>
#include <verbena/core/suggestion.hpp>

#include <algorithm>
#include <filesystem>
#include <set>

namespace verbena::nfs {

namespace {

void check_pseudo(const std::string& name, const std::string& path)
{
    const auto fail = [&](const char* rule) {
        throw config_error(name + ": the pseudo-path " + path + ' ' + rule);
    };
    if (path.size() > 1024) // RFC 1813 5.2, MNTPATHLEN
        fail("is longer than 1024 bytes");
    if (path.front() != '/')
        fail("must begin with /");
    if (path == "/")
        return;
    for (std::size_t begin = 1; begin <= path.size();) {
        const std::size_t end = std::min(path.find('/', begin), path.size());
        const std::string_view part = std::string_view(path).substr(begin, end - begin);
        if (part.empty())
            fail("must not end with / or hold two of them in a row");
        if (part == "." || part == "..")
            fail("must not hold . or ..");
        begin = end + 1;
    }
}

// The one setting that people give without its name; nullptr if there is none.
const setting* main_of(const std::vector<setting>& declared)
{
    const auto found = std::ranges::find(declared, true, &setting::is_main);
    return found == declared.end() ? nullptr : &*found;
}

std::vector<std::string_view> names_of(const std::vector<setting>& a, const std::vector<setting>& b)
{
    std::vector<std::string_view> names;
    for (const auto* list : {&a, &b}) {
        for (const setting& s : *list)
            names.emplace_back(s.name);
    }
    return names;
}

// A key of another back end is no slip of the pen.
void refuse_foreign(const setting_values& values, const std::vector<std::string_view>& known,
                    const export_config& e, const module_table& modules)
{
    for (const auto& [key, v] : values.all()) {
        if (std::ranges::find(known, key) != known.end())
            continue;
        for (const std::string_view other : modules.names<storage::backend_module>()) {
            const auto declared = modules.find<storage::backend_module>(other)->settings();
            if (std::ranges::find(declared, key, &setting::name) != declared.end())
                throw config_error(v.key_place, e.name + ": " + key + " is a setting of the back end " +
                                                    std::string(other) + ", not of " + e.backend_name +
                                                    ": leave out " + key);
        }
    }
}

// What stands in front of the colon of --export. A file may have an empty key too, which is nobody's.
const setting_values::value* directory_of(const setting_values& values)
{
    const setting_values::value* given = values.find("");
    return given != nullptr && std::holds_alternative<setting_values::word>(given->data) ? given : nullptr;
}

// What stands in front of the colon of --export belongs to whichever setting the back end has for it.
void place_main(setting_values& values, const std::vector<setting>& declared, const export_config& e)
{
    const setting_values::value* given = directory_of(values);
    if (given == nullptr)
        return;
    const std::string text = std::get<setting_values::word>(given->data).text;
    const setting* main = main_of(declared);
    if (main == nullptr)
        throw config_error("export of " + text + ": the back end " + e.backend_name +
                           " takes nothing in front of the pseudo-path: leave out " + text);
    if (values.written(main->name))
        throw config_error("export of " + text + ": " + main->name +
                           " stands in front of the pseudo-path already");
    values.set(main->name, *given);
    values.erase("");
}

export_config read_export(setting_values& values, module_table& modules, bool first)
{
    export_config e;
    e.place = values.place();
    e.backend_name = values.text("backend");
    const setting_values::value* given = directory_of(values);
    e.name =
        "export of " + (given != nullptr ? std::get<setting_values::word>(given->data).text : e.backend_name);
    e.backend = &modules.use<storage::backend_module>(e.backend_name, "back end", e.name + ": ");
    const std::vector<setting> own = export_settings();
    const std::vector<setting> of_backend = e.backend->settings();
    filters::refuse_collision(own, of_backend, e.backend_name);
    place_main(values, of_backend, e);
    const auto known = names_of(own, of_backend);
    refuse_foreign(values, known, e, modules);
    refuse_unknown(known, values, "nfs.export.");
    check(of_backend, values, "nfs.export.", true);
    if (const setting* main = main_of(of_backend); main != nullptr && !values.text(main->name).empty())
        e.name = "export of " + values.text(main->name);
    e.backend->check(values, e.name);
    if (const setting* main = main_of(of_backend); main != nullptr)
        e.name = "export of " + values.text(main->name);

    for (const std::string& t : values.list("transports")) {
        if (std::ranges::find(known_transports, t) == std::end(known_transports)) {
            throw config_error(e.name + ": no transport " + t +
                               did_you_mean(t, {std::begin(known_transports), std::end(known_transports)}));
        }
    }
    e.clients = values.list("clients");
    e.transports = values.list("transports");
    e.read_only = values.flag("read_only");
    e.root_squash = values.flag("root_squash");
    e.all_squash = values.flag("all_squash");
    e.secure = values.flag("secure");
    e.local_writers = values.flag("local_writers");
    e.pnfs = values.flag("pnfs");
    e.anonuid = static_cast<std::uint32_t>(values.number("anonuid"));
    e.anongid = static_cast<std::uint32_t>(values.number("anongid"));
    (void)clients_of(e);
    e.filters = filters::read_filters<storage::filter_module>(
        values, e.name, "nfs.export.filter.", [&](const std::string& name) -> storage::filter_module& {
            return modules.use<storage::filter_module>(name, "filter", e.name + ": ");
        });

    auto& pseudo = std::get<std::string>(values.find("pseudo")->data);
    if (pseudo.empty()) {
        const setting* main = main_of(of_backend);
        const std::string what = main == nullptr ? std::string() : values.text(main->name);
        if (!first) {
            const std::string name = std::filesystem::path(what).filename().string();
            throw config_error(e.name +
                               " needs a pseudo-path of its own, since only the first export may do "
                               "without: write " +
                               what + ":/" + (name.empty() ? std::string("data") : name));
        }
        pseudo = "/export";
    }
    check_pseudo(e.name, pseudo);
    e.pseudo = pseudo;
    e.values = values;
    return e;
}

} // namespace

std::vector<setting> export_settings()
{
    return {
        setting::text("pseudo", "", "The path that clients mount; /export for the first export"),
        setting::text("backend", "posixfs",
                      "The module that keeps the files; its settings stand beside these"),
        setting::list("clients",
                      "Addresses and CIDR prefixes that may connect, or * for everybody; this host only "
                      "unless one is written"),
        setting::list("transports",
                      "Those by which clients may come: tcp, iwarp, rdma; all unless one is written"),
        setting::flag("read_only", false, "Clients may change nothing"),
        setting::flag("root_squash", true, "uid 0 acts as anonuid and anongid"),
        setting::flag("all_squash", false, "Every uid acts so"),
        setting::number("anonuid", id_range, export_options::nobody, "The uid of squashed callers"),
        setting::number("anongid", id_range, export_options::nobody, "Their gid"),
        setting::flag("secure", false,
                      "Clients may come only from ports below 1024, which RDMA clients don't have"),
        setting::flag(
            "local_writers", true,
            "Others than NFS clients of this export may change its files: processes of this host, "
            "other exports. Where it is no, NFSv4 clients get delegations to write, too, and see no "
            "such change while they have one"),
        setting::flag(
            "pnfs", false,
            "NFSv4.1 clients get layouts, by which they read and write files by RDMA with no work "
            "of the server: "
            "memfs, or posixfs over iwarp:// alone, without filters, and an iwarp:// or rdma:// listener"),
        filters::declare_filters(
            "A filter on the back end, with its settings; the last one stands on the back end"),
    };
}

void check_pnfs(const std::vector<export_config>& exports, bool has_sessions)
{
    for (const export_config& e : exports) {
        if (!e.pnfs)
            continue;
        const auto fail = [&](const std::string& why) {
            throw config_error(e.place, e.name + ": pnfs: " + why);
        };
        if (!has_sessions)
            fail("layouts are of NFS versions 4.1 and 4.2, and neither is served: add one of them to "
                 "versions, or "
                 "leave out pnfs");
        if (!e.filters.empty())
            fail("clients with layouts reach the files past the filter " + e.filters.front().name +
                 ": leave out pnfs, or the filters");
        const auto by = [&e](const char* transport) {
            return e.transports.empty() || std::ranges::find(e.transports, transport) != e.transports.end();
        };
        if (!by("iwarp") && !by("rdma"))
            fail("clients with layouts come by iwarp or rdma, which transports leaves out: add "
                 "transport=iwarp, or leave out pnfs");
    }
}

void check_pnfs_listeners(const std::vector<export_config>& exports, std::span<const std::string> transports)
{
    for (const export_config& e : exports) {
        const auto has = [&](const std::string& by) {
            return (by == "iwarp" || by == "rdma") &&
                   (e.transports.empty() || std::ranges::find(e.transports, by) != e.transports.end());
        };
        if (e.pnfs && std::ranges::none_of(transports, has))
            throw config_error(e.place, e.name +
                                            ": pnfs: clients with layouts connect to an iwarp:// or rdma:// "
                                            "listener, and there is none for them: add --listen "
                                            "iwarp://HOST:20049, or leave out pnfs");
    }
}

client_list clients_of(const export_config& e)
{
    client_list clients;
    for (const std::string& text : e.clients) {
        if (const auto added = clients.add(text); !added)
            throw config_error(e.name + ": clients=" + text + ": " + std::string(added.error().context()) +
                               "; write an address, a prefix as 10.0.0.0/8, or *");
    }
    return clients;
}

std::vector<export_config> read_exports(setting_values& nfs, module_table& modules)
{
    auto& tables = std::get<setting_values::value::tables>(nfs.find("export")->data);
    if (tables.empty())
        throw config_error(
            "nothing is exported: name a directory with --export DIR, or in an [[nfs.export]] table");
    if (tables.size() > export_table::max_exports)
        throw config_error("more than " + std::to_string(export_table::max_exports) + " exports");
    std::vector<export_config> all;
    std::set<std::string> pseudo_paths;
    for (std::size_t i = 0; i < tables.size(); ++i) {
        at_place(tables[i].place(), [&] {
            export_config e = read_export(tables[i], modules, i == 0);
            if (!pseudo_paths.insert(e.pseudo).second)
                throw config_error(e.name + ": the pseudo-path " + e.pseudo +
                                   " is taken by an export before it; give it another one");
            all.push_back(std::move(e));
        });
    }
    return all;
}

} // namespace verbena::nfs
