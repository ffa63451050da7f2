// SPDX-License-Identifier: Apache-2.0
#include "admin.hpp"
#include "block.hpp"
#include "commands.hpp"
#include "doctor/apart.hpp"
#include "top/command.hpp"

#include "../standard_output.hpp"
#include "../unknown_words.hpp"

#include <verbena/core/byte_size.hpp>
#include <verbena/core/log.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/protocols/nfs/user_names.hpp>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>

namespace {

using namespace verbena;
using namespace verbena::cli;

// Why an option that chooses an RDMA device has nothing to choose for; empty if it has.
std::string idle_choice(const global_options& global, const std::vector<std::string>& words)
{
    const auto by_iwarp = [](const std::string& word) {
        return word.starts_with("nfs+iwarp://") || word.starts_with("rnbd+iwarp://") ||
               word.starts_with("iwarp://");
    };
    if (global.crc && !std::ranges::any_of(words, by_iwarp))
        return "--crc is of iWARP's FPDUs, and no URL here goes by iWARP: write nfs+iwarp:// (conform: "
               "iwarp://), or leave "
               "out --crc";
    const char* option = !global.rdma_device.empty()   ? "--device"
                         : !global.rdma_source.empty() ? "--source"
                                                       : nullptr;
    const auto by_device = [](const std::string& word) {
        return word.starts_with("nfs+rdma://") || word.starts_with("rnbd+rdma://") ||
               word.starts_with("rdma://");
    };
    if (option == nullptr || std::ranges::any_of(words, by_device))
        return {};
    return std::string(option) +
           " chooses an RDMA device, and no URL here goes by one: write nfs+rdma:// (block: rnbd+rdma://, "
           "conform: rdma://), or leave out " +
           option;
}

// Likewise of --json.
std::string idle_json(const CLI::App& app)
{
    constexpr std::array<std::string_view, 7> without = {"cat",  "mkdir", "mv",     "rm",
                                                         "read", "write", "discard"};
    const CLI::App* used = app.get_subcommands().front();
    for (auto next = used->get_subcommands(); !next.empty(); next = used->get_subcommands())
        used = next.front();
    const std::string command = used->get_name();
    if (std::ranges::find(without, command) == without.end())
        return {};
    return "--json changes nothing here, since " + command +
           (command == "cat"    ? " writes files as they are"
            : command == "read" ? " writes the device as it is"
                                : " prints nothing") +
           ": leave it out";
}

constexpr const char* footer =
    "URLs: nfs+iwarp://host[:20049]/export/path (RDMA in user space), nfs+tcp://host[:2049]/export/path,\n"
    "nfs+rdma://host[:20049]/export/path (an RDMA device),\n"
    "of block devices rnbd+iwarp://host[:1234]/device or rnbd+rdma://host[:1234]/device;\n"
    "IPv6 in brackets; ?mountport=N and ?nfsport=N name ports that rpcbind does not know.\n"
    "?vers=3, 4.1 or 4.2 is the version of NFS (default: the highest that the server has).\n"
    "Exit codes: 0 done, 1 something was not done, 2 wrong usage, 3 no connection or no mount.";

// For the command line: what is wrong with a domain, empty if nothing is.
std::string is_domain(const std::string& text)
{
    return nfs::v4::is_id_domain(text) ? std::string()
                                       : "is no domain: write letters, digits, '-', '_' and '.', such as "
                                         "example.org";
}

// --layout, of a command that moves bytes of files.
void take_layouts(CLI::App* command, std::string& word)
{
    command
        ->add_option(
            "--layout", word,
            "whether bytes go by the server's RDMA layouts: no, auto (where it gives some) or require")
        ->check(CLI::IsMember({"no", "auto", "require"}))
        ->capture_default_str();
}

layout_use layouts_by(const std::string& word)
{
    return word == "auto" ? layout_use::automatic : word == "require" ? layout_use::require : layout_use::no;
}

int with_output_written(int code)
{
    const printed output = flush_standard_output();
    if (!output.lost || code != exit_ok)
        return code;
    if (output.why == std::errc::broken_pipe) // the reader wanted no more
        return exit_failed;
    return complain(output.message(), exit_failed);
}

int run_command(int argc, char** argv)
{
    CLI::App app(
        "verbena: files on NFS servers and block devices on RNBD servers, over RDMA or TCP, without mounting "
        "them",
        "verbena");
    app.footer(footer);
    app.require_subcommand(1);
    app.set_version_flag("--version", "verbena " VERBENA_VERSION);
    app.fallthrough();
    global_options global;
    app.add_flag("--json", global.json,
                 "machine-readable output (ping, ls, stat, layout, df, mounts, cp, doctor, conform, admin, "
                 "top, block info, "
                 "block verify, block bench)");
    app.add_flag("-q,--quiet", global.quiet, "no progress and no summary");
    app.add_flag("--soft", global.soft, "fail when the server stays silent, instead of waiting for it");
    app.add_option("--timeout", global.timeout_seconds,
                   "seconds of silence before the connection is made anew")
        ->check(CLI::Range(1, 3600))
        ->capture_default_str();
    app.add_option("--device", global.rdma_device,
                   "RDMA device for rdma:// URLs, as doctor names it; NAME or NAME:PORT");
    app.add_flag("--crc", global.crc, "ask for a CRC32C in each FPDU of iwarp:// connections");
    app.add_option("--source", global.rdma_source,
                   "own address for rdma:// URLs, which chooses device, port and GID");
    app.add_option("--id-domain", global.id_domain,
                   "what stands behind the @ in names of users that servers of version 4 tell (default: this "
                   "host's domain)")
        ->check(is_domain);

    std::function<task<int>(runtime&)> run;
    std::function<int()> at_once; // in place of it, without a shard
    std::string first;
    std::string second;
    std::vector<std::string> urls;
    std::string layouts = "auto";
    // An empty value, as of a variable that is not set, must not mean what leaving the option out means.
    const auto not_empty = [](const CLI::Option& o, const std::string& value, const std::string& what) {
        if (o.count() != 0 && value.empty())
            throw CLI::ValidationError(o.get_name(), "is empty: it needs " + what + ", or leave it out");
    };
    // A range lets it pass.
    const auto not_nan = [](const CLI::Option& o, double value) {
        if (!std::isfinite(value))
            throw CLI::ValidationError(o.get_name(), "is no number of seconds");
    };

    ping_options ping_o;
    CLI::App* ping_c = app.add_subcommand("ping", "Time the server's NULL procedure");
    ping_c->add_option("url", ping_o.url, "the server, as nfs+iwarp://HOST")->required();
    ping_c->add_option("-c,--count", ping_o.count, "calls")
        ->check(CLI::Range(1u, 10'000'000u))
        ->capture_default_str();
    ping_c->add_option("-i,--interval", ping_o.interval, "seconds between calls")
        ->check(CLI::Range(0.0, 3600.0));
    ping_c->add_option("-d,--depth", ping_o.depth, "calls in flight")
        ->check(CLI::Range(1, 256))
        ->capture_default_str();
    ping_c->callback([&, ping_c] {
        not_nan(*ping_c->get_option("--interval"), ping_o.interval);
        run = [&](runtime& r) { return cli::ping(r, ping_o); };
    });

    ls_options ls_o;
    CLI::App* ls_c = app.add_subcommand("ls", "List directories");
    ls_c->add_option("url", ls_o.urls, "what to list")->required();
    ls_c->add_flag("-l,--long", ls_o.long_format, "mode, links, owner, size, time");
    ls_c->add_flag("-a,--all", ls_o.all, "names that begin with a dot too");
    ls_c->add_flag("-R,--recursive", ls_o.recursive, "directories below too");
    ls_c->add_flag("-d,--directory", ls_o.directory, "the directory itself");
    ls_c->callback([&] { run = [&](runtime& r) { return cli::ls(r, ls_o); }; });

    CLI::App* cat_c = app.add_subcommand("cat", "Write files to the standard output");
    cat_c->add_option("url", urls, "files")->required();
    take_layouts(cat_c, layouts);
    cat_c->callback([&] {
        global.layouts = layouts_by(layouts);
        run = [&](runtime& r) { return cli::cat(r, urls); };
    });

    layout_command layout_o;
    CLI::App* layout_c = app.add_subcommand("layout", "Show the RDMA layout that the server gives of a file");
    layout_c->add_option("url", layout_o.url, "the file")->required();
    layout_c->add_flag("-w,--write", layout_o.write, "a layout to write, not to read");
    layout_c->callback([&] {
        global.layouts = layout_use::require;
        run = [&](runtime& r) { return cli::layout(r, layout_o); };
    });

    CLI::App* stat_c = app.add_subcommand("stat", "Show all attributes");
    stat_c->add_option("url", urls, "files and directories")->required();
    stat_c->callback([&] { run = [&](runtime& r) { return cli::stat(r, urls); }; });

    rm_options rm_o;
    CLI::App* rm_c = app.add_subcommand("rm", "Remove files");
    rm_c->add_option("url", rm_o.urls, "what to remove")->required();
    rm_c->add_flag("-r,--recursive", rm_o.recursive, "directories and what is in them too");
    rm_c->add_flag("-f,--force", rm_o.force, "what is not there is removed already");
    rm_c->callback([&] { run = [&](runtime& r) { return cli::rm(r, rm_o); }; });

    mkdir_options mkdir_o;
    std::string mode = "755";
    CLI::App* mkdir_c = app.add_subcommand("mkdir", "Make directories");
    mkdir_c->add_option("url", mkdir_o.urls, "directories to make")->required();
    mkdir_c->add_flag("-p,--parents", mkdir_o.parents, "parents too; no error if it exists");
    mkdir_c->add_option("-m,--mode", mode, "octal permission bits")->capture_default_str();
    mkdir_c->callback([&] {
        std::size_t used = 0;
        try {
            mkdir_o.mode = static_cast<std::uint32_t>(std::stoul(mode, &used, 8));
        } catch (const std::exception&) {
            used = 0;
        }
        if (used != mode.size() || mkdir_o.mode > 07777)
            throw CLI::ValidationError("--mode", "octal permission bits, like 755");
        run = [&](runtime& r) { return cli::mkdir(r, mkdir_o); };
    });

    CLI::App* mv_c = app.add_subcommand("mv", "Rename within one server");
    mv_c->add_option("from", first, "the old name")->required();
    mv_c->add_option("to", second, "the new name, on the same server")->required();
    mv_c->callback([&] { run = [&](runtime& r) { return cli::mv(r, first, second); }; });

    CLI::App* df_c = app.add_subcommand("df", "Show space and files");
    df_c->add_option("url", urls, "a file or directory of each file system")->required();
    df_c->callback([&] { run = [&](runtime& r) { return cli::df(r, urls); }; });

    CLI::App* mounts_c = app.add_subcommand("mounts", "List what a server exports and who has mounted it");
    mounts_c->add_option("url", first, "the server, as nfs+tcp://HOST")->required();
    mounts_c->callback([&] { run = [&](runtime& r) { return cli::mounts(r, first); }; });

    cp_options cp_o;
    std::vector<std::string> paths;
    CLI::App* cp_c = app.add_subcommand("cp", "Copy files between here and servers, or between servers");
    cp_c->add_option("path", paths, "sources, then the target; each a URL or a local path")
        ->required()
        ->expected(2, -1);
    cp_c->add_flag("-r,-R,--recursive", cp_o.copy.recursive, "directories too");
    cp_c->add_flag("-p,--preserve", cp_o.copy.preserve, "mode and times");
    cp_c->add_flag("--checksum", cp_o.copy.checksum,
                   "read back what was written, compare, print SHA-256 sums");
    cp_c->add_option("-j,--jobs", cp_o.copy.files, "files in flight")
        ->check(CLI::Range(1u, copier::max_files))
        ->capture_default_str();
    cp_c->add_option("-d,--depth", cp_o.copy.depth, "requests in flight per file")
        ->check(CLI::Range(1u, copier::max_depth))
        ->capture_default_str();
    take_layouts(cp_c, layouts);
    cp_c->callback([&] {
        global.layouts = layouts_by(layouts);
        cp_o.target = paths.back();
        cp_o.sources.assign(paths.begin(), paths.end() - 1);
        run = [&](runtime& r) { return cli::cp(r, cp_o); };
    });

    conform_options conform_o;
    std::string conform_listen;
    CLI::App* conform_c = app.add_subcommand(
        "conform", "Check a path of RDMA between two hosts, or a provider of verbs; rdma://HOST:PORT or "
                   "iwarp://HOST:PORT");
    CLI::Option* conform_url = conform_c->add_option("url", conform_o.url, "where the other host listens");
    CLI::Option* conform_listener =
        conform_c->add_option("--listen", conform_listen, "be the other host")->excludes(conform_url);
    conform_c->add_flag("--once", conform_o.once, "with --listen: end after one run")
        ->needs(conform_listener);
    conform_c->add_option("--report", conform_o.report, "file for the results, as JSON that can be shared")
        ->excludes(conform_listener);
    conform_c
        ->add_option("--only", conform_o.only,
                     "run the checks in whose name TEXT stands, such as 'Reply chunk'")
        ->excludes(conform_listener);
    conform_c
        ->add_flag("--alone", conform_o.alone,
                   "run all checks of verbs with both ends in this program, which listens at the URL")
        ->excludes(conform_listener);
    bool conform_names = false;
    conform_c->add_flag("--list", conform_names, "print the names of all checks")
        ->excludes(conform_url)
        ->excludes(conform_listener);
    conform_c->callback([&] {
        if (conform_names) {
            at_once = [&] { return cli::conform_list(global.json); };
            return;
        }
        conform_o.listen = !conform_listen.empty();
        if (conform_o.listen)
            conform_o.url = conform_listen;
        if (conform_o.url.empty())
            throw CLI::RequiredError("url or --listen");
        if (conform_o.alone)
            at_once = [&] { return cli::conform_alone(global, conform_o); };
        run = [&](runtime& r) { return cli::conform(r, conform_o); };
    });

    CLI::App* doctor_c =
        app.add_subcommand("doctor", "Find what keeps verbena from working well, and the cure");
    doctor_c->add_option("url", first,
                         "a server to look at too; with a path, its export is mounted; of a device "
                         "(rnbd+iwarp://), it is opened");
    std::string doctor_config;
    std::string doctor_peer;
    CLI::Option* doctor_file =
        doctor_c
            ->add_option("--config", doctor_config,
                         "look at this host for what this file of verbenad asks of it, in place of a server")
            ->type_name("FILE")
            ->excludes("url");
    doctor_c
        ->add_option("--peer", doctor_peer,
                     "with --config: a host of clients, to see how large packets get there and back")
        ->type_name("HOST")
        ->needs(doctor_file);
    CLI::Option* doctor_host = doctor_c->get_option("--peer");
    doctor_c->callback([&, doctor_file, doctor_host] {
        not_empty(*doctor_file, doctor_config, "the name of a file");
        not_empty(*doctor_host, doctor_peer, "a host");
        if (doctor_file->count() != 0) {
            at_once = [&] {
                return cli::run_apart([&](bool& is_late) {
                    return with_output_written(
                        cli::doctor_with_config(doctor_config, doctor_peer, global.json, is_late));
                });
            };
            return;
        }
        run = [&](runtime& r) { return cli::doctor(r, first); };
    });

    CLI::App* admin_c =
        app.add_subcommand("admin", "Ask a running daemon of this host, by its control socket");
    admin_options admin_o;
    admin_c
        ->add_option("command", admin_o.words,
                     "what to ask, and its arguments: status, connections, loglevel debug; help lists all")
        ->required();
    admin_c
        ->add_option(
            "--socket", admin_o.socket,
            "the daemon's control socket (default: the first that answers of $RUNTIME_DIRECTORY/control, "
            "/run/verbena/control and control in the user's state directory)")
        ->type_name("PATH");
    admin_c->callback([&, admin_c] {
        not_empty(*admin_c->get_option("--socket"), admin_o.socket, "a path");
        at_once = [&] {
            admin_o.json = global.json;
            admin_o.patience = std::chrono::seconds(global.timeout_seconds);
            return cli::admin(admin_o);
        };
    });

    top_options top_o;
    double top_interval = 2;
    CLI::App* top_c = app.add_subcommand("top", "Show what a running daemon does: operations, exports, block "
                                                "devices and RDMA, by rates and latencies");
    top_c->add_flag("--once", top_o.once, "print one interval and end; needs no terminal");
    top_c->add_option("-i,--interval", top_interval, "seconds that rates are of")
        ->check(CLI::Range(0.1, 3600.0))
        ->capture_default_str();
    CLI::Option* top_url =
        top_c
            ->add_option("--url", top_o.url,
                         "the daemon's metrics, also of another host: http://ADDRESS:9464/metrics")
            ->type_name("URL");
    top_c
        ->add_option("--socket", top_o.socket,
                     "the daemon's control socket, which tells where its metrics are (default: as of admin)")
        ->type_name("PATH")
        ->excludes(top_url);
    top_c->callback([&, top_c, top_url] {
        not_empty(*top_url, top_o.url, "the URL of a daemon's metrics, as http://127.0.0.1:9464/metrics");
        not_empty(*top_c->get_option("--socket"), top_o.socket, "a path");
        not_nan(*top_c->get_option("--interval"), top_interval);
        if (global.json && !top_o.once)
            throw CLI::ValidationError("--json", "top has it with --once alone");
        at_once = [&] {
            top_o.json = global.json;
            top_o.patience = std::chrono::seconds(global.timeout_seconds);
            top_o.interval = std::chrono::milliseconds(static_cast<std::int64_t>(top_interval * 1000));
            return cli::top(top_o);
        };
    });

    block_options block_o;
    std::string block_length;
    std::string block_offset;
    std::string block_size = "4K";
    std::string block_pattern = "randread";
    CLI::App* block_c = app.add_subcommand(
        "block", "Read and write block devices of an RNBD server, without a kernel module");
    block_c->require_subcommand(1);
    const auto block_sub = [&](const char* name, const char* help, block_command what) {
        CLI::App* c = block_c->add_subcommand(name, help);
        c->add_option("url", block_o.url, "the device, as rnbd+iwarp://HOST[:1234]/DEVICE or rnbd+rdma://...")
            ->required();
        c->add_option("--path", block_o.paths,
                      "another way to the same server, as rnbd+iwarp://HOST:PORT; repeated for more");
        c->add_option("--session", block_o.session, "name of the session (default: host and process)");
        c->add_option("--connections", block_o.connections, "of each path, for requests")
            ->check(CLI::Range(1u, 64u))
            ->capture_default_str();
        c->callback([&, c, what] {
            // Whether it is there: an empty value, as of a variable that is not set, must not mean the whole device.
            const auto given = [c](const char* option) {
                const CLI::Option* const o = c->get_option_no_throw(option);
                return o != nullptr && o->count() != 0;
            };
            const auto size_of = [](const std::string& option, const std::string& text) {
                const auto bytes = parse_byte_size(text);
                if (!bytes)
                    throw CLI::ValidationError(option, text + " is no size: write bytes, or as 64K or 2M");
                return *bytes;
            };
            block_o.what = what;
            if (given("--offset"))
                block_o.offset = size_of("--offset", block_offset);
            if (given("--length"))
                block_o.length = size_of("--length", block_length);
            if (given("--seconds"))
                not_nan(*c->get_option("--seconds"), block_o.seconds);
            const std::uint64_t size = size_of("--block", block_size);
            if (size == 0 || size > 16 << 20)
                throw CLI::ValidationError("--block", "up to 16M");
            block_o.size = static_cast<std::uint32_t>(size);
            block_o.random = block_pattern.starts_with("rand");
            block_o.writes = block_pattern.ends_with("write");
            if (what == block_command::verify && !block_o.verify_writes && !block_o.verify_reads)
                throw CLI::ValidationError("verify", "say --write, --read or both");
            // Whatever it compared without them, a server that lost a write, or a device that was cut short, could pass.
            if (what == block_command::verify && !block_o.verify_writes && (!block_o.seed || !block_o.length))
                throw CLI::ValidationError(
                    "verify", "say --seed and --length with --read: those that verify --write has printed");
            run = [&](runtime& r) { return cli::block(r, block_o); };
        });
        return c;
    };
    block_sub("info", "Show its size and what it can do", block_command::info);
    CLI::App* block_read =
        block_sub("read", "Write its contents to a file or the standard output", block_command::read);
    CLI::App* block_write =
        block_sub("write", "Fill it from a file or the standard input, then flush it", block_command::write);
    CLI::App* block_discard =
        block_sub("discard", "Say that contents are not needed any more", block_command::discard);
    CLI::App* block_verify =
        block_sub("verify",
                  "Write bytes that follow from a seed and from where they stand, or see "
                  "whether they stand there; exits with 1 if they don't",
                  block_command::verify);
    CLI::App* block_bench =
        block_sub("bench", "Time requests; writes destroy what is there", block_command::bench);
    block_read->add_option("file", block_o.file, "(default, or -: the standard output)");
    block_write->add_option("file", block_o.file, "(default, or -: the standard input)");
    for (CLI::App* c : {block_read, block_write, block_discard, block_verify})
        c->add_option("--offset", block_offset, "where to begin; bytes, or with K, M, G or T");
    for (CLI::App* c : {block_read, block_discard, block_verify})
        c->add_option("--length", block_length, "how much; 0 is nothing (default: to the end)");
    block_verify->add_flag("--write", block_o.verify_writes, "write them and flush; destroys what is there");
    block_verify->add_flag("--read", block_o.verify_reads, "compare what is there; with --write, after it");
    block_verify->add_option(
        "--seed", block_o.seed,
        "of the bytes; another one, other bytes (default of --write: one is drawn and printed)");
    block_bench->add_option("--pattern", block_pattern, "randread, randwrite, read or write")
        ->check(CLI::IsMember({"randread", "randwrite", "read", "write"}))
        ->capture_default_str();
    block_bench->add_option("--block", block_size, "bytes of a request")->capture_default_str();
    block_bench->add_option("-d,--depth", block_o.depth, "requests at once")
        ->check(CLI::Range(1u, 4096u))
        ->capture_default_str();
    block_bench->add_option("--seconds", block_o.seconds, "how long")
        ->check(CLI::Range(0.1, 3600.0))
        ->capture_default_str();

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        if (const std::string said = unknown_word(app); e.get_exit_code() != 0 && !said.empty())
            return complain(said, exit_usage);
        return app.exit(e) == 0 ? exit_ok : exit_usage;
    }
    std::vector<std::string> words = {first, second, ping_o.url, layout_o.url, conform_o.url, block_o.url};
    for (const auto& more : {urls, ls_o.urls, rm_o.urls, mkdir_o.urls, paths, block_o.paths})
        words.insert(words.end(), more.begin(), more.end());
    if (const std::string idle = idle_choice(global, words); !idle.empty())
        return complain(idle, exit_usage);
    if (const std::string idle = global.json ? idle_json(app) : std::string(); !idle.empty())
        return complain(idle, exit_usage);
    if (at_once)
        return at_once();
    auto shard = reactor::create();
    if (!shard) {
        if (doctor_c->parsed())
            return doctor_without_shard(shard.error().message(), global.json);
        return complain("cannot start: " + shard.error().message() + "\n  `verbena doctor` tells more",
                        exit_failed);
    }
    runtime r(std::move(*shard), global);
    int code = exit_failed;
    try {
        code = run_until_complete(r.shard(), run(r));
    } catch (const std::bad_alloc&) {
        (void)std::fputs("verbena: there is no memory to go on\n", stderr);
    }
    if (!run_until_complete(r.shard(), r.end_lookups()))
        std::_Exit(with_output_written(code));
    return code;
}

} // namespace

int main(int argc, char** argv)
{
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGCHLD, SIG_DFL);     // ignored, as a parent may leave it, no child's status is kept
    set_log_level(log_level::warning); // how a server's shard fares is nothing to whoever copies a file
    return with_output_written(run_command(argc, argv));
}
