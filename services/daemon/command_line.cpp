// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"
#include "config_file.hpp"
#include "export_spec.hpp"

#include "../unknown_words.hpp"

#include <CLI/CLI.hpp>

#include <charconv>

namespace verbena::daemon {

namespace {

constexpr const char* export_help =
    "Export DIR as PSEUDO (default for the first: /export); repeated for more. DIR ends at the last \":/\"; "
    "a backslash "
    "escapes. Options: ro root_squash=no all_squash anonuid=N anongid=N clients=CIDR transport=NAME "
    "backend=NAME crossmnt async secure handles=auto|kernel|path. Without clients= only this host may "
    "connect; clients=* "
    "admits "
    "everybody";

} // namespace

parsed_command_line parse_command_line(int argc, const char* const* argv)
{
    CLI::App app("verbenad: serves files to NFS clients over TCP and over RDMA (iWARP in user space)",
                 "verbenad");
    app.set_version_flag("--version", std::string("verbenad ") + VERBENA_VERSION);
    app.require_subcommand(1);
    app.footer("Example: verbenad nfs --export /srv/data");

    std::vector<std::string> exports, listen;
    std::string metrics, state, policy, rpcbind, level, file;
    std::string shards;
    bool allow_public = false, check = false;

    CLI::App* nfs = app.add_subcommand("nfs", "Serve directories, described on the command line");
    const auto repeated = [&](CLI::App* to, const char* name, std::vector<std::string>& values,
                              const char* help) {
        return to->add_option(name, values, help)
            ->expected(1)
            ->allow_extra_args(false)
            ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    };
    repeated(nfs, "--export", exports, export_help)->required()->type_name("DIR[:PSEUDO][,OPTION...]");
    repeated(nfs, "--listen", listen,
             "Listen here; repeated for more. tcp://HOST:PORT, iwarp://HOST:PORT or "
             "rdma://HOST:PORT[?device=NAME[:PORT]], HOST * for "
             "every address; ?device= insists on that RDMA device, as `verbena doctor` names it (default: "
             "iwarp://127.0.0.1:20049 and tcp://127.0.0.1:2049)")
        ->type_name("URL");
    nfs->add_option("--metrics", metrics,
                    "Serve metrics to Prometheus here, over IPv4, or off (default: 127.0.0.1:9464)")
        ->type_name("ADDR:PORT");
    nfs->add_option("--state", state,
                    "Keep the handle key here (default: /var/lib/verbena for root, else "
                    "$XDG_STATE_HOME/verbena)")
        ->type_name("DIR");
    nfs->add_option("--shards", shards, "Threads that serve (default: one per CPU, at most 8)")
        ->type_name("N");
    nfs->add_option("--policy", policy, "How shards wait: busy, adaptive (default) or event")
        ->type_name("NAME");
    nfs->add_option("--rpcbind", rpcbind, "Register with rpcbind: auto (default) or no")
        ->type_name("auto|no");
    nfs->add_flag("--allow-public", allow_public, "Serve everybody on globally routable addresses");
    nfs->add_option("--log-level", level, "trace, debug, info (default), warning, error or off")
        ->type_name("NAME");

    CLI::App* serve = app.add_subcommand("serve", "Serve what a configuration file describes");
    serve->add_option("CONFIG.toml", file, "The configuration file")->required();
    serve->add_flag("--check", check, "Print the effective configuration and exit");
    serve->add_option("--log-level", level, "Instead of the file's log_level")->type_name("NAME");

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        if (const std::string said = unknown_word(app); e.get_exit_code() != 0 && !said.empty())
            throw config_error(said + (serve->parsed() ? "; all else stands in the file" : ""));
        return {{}, app.exit(e) == 0 ? 0 : 2};
    }

    command wanted;
    config& c = wanted.settings;
    if (serve->parsed()) {
        c = load_config(file);
        if (check)
            wanted.kind = command_kind::check;
    } else {
        for (const std::string& spec : exports)
            c.exports.push_back(parse_export(spec));
        c.listen = listen;
        c.allow_public = allow_public;
        c.state = state;
        if (!metrics.empty())
            c.metrics = metrics;
        if (nfs->count("--shards") != 0) {
            unsigned count = 0;
            const auto [end, failed] = std::from_chars(shards.data(), shards.data() + shards.size(), count);
            if (failed != std::errc() || end != shards.data() + shards.size() || !ranges::shards.holds(count))
                throw config_error("--shards " + shards + ": must be " + ranges::shards.text());
            c.shards = count;
        }
        if (!policy.empty()) {
            const auto parsed = parse_wait_policy(policy);
            if (!parsed)
                throw config_error("--policy " + policy + ": must be busy, adaptive or event");
            c.policy = *parsed;
        }
        if (!rpcbind.empty() && rpcbind != "auto" && rpcbind != "no")
            throw config_error("--rpcbind " + rpcbind + ": must be auto or no");
        if (rpcbind == "no")
            c.rpcbind = rpcbind_mode::no;
    }
    if (!level.empty() && !parse_log_level(level, c.log_level))
        throw config_error("--log-level " + level + ": must be trace, debug, info, warning, error or off");
    complete(c);
    return {std::move(wanted), 0};
}

} // namespace verbena::daemon
