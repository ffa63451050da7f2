// SPDX-License-Identifier: Apache-2.0
// The commands of `verbena`. Each returns the exit code of the process.
#pragma once

#include "copy.hpp"
#include "runtime.hpp"

#include <verbena/core/task/task.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace verbena::cli {

/// Documented in docs/reference/cli.md.
enum exit_code : int {
    exit_ok = 0,
    exit_failed = 1,      ///< something that was asked for was not done
    exit_usage = 2,       ///< the command line makes no sense
    exit_unreachable = 3, ///< no connection to the server, or no mount
};

struct ping_options {
    std::string url;
    unsigned count = 10;
    double interval = 0; ///< seconds between a reply and the next call
    unsigned depth = 1;
};
task<int> ping(runtime& r, ping_options o);

struct ls_options {
    std::vector<std::string> urls;
    bool long_format = false;
    bool all = false;
    bool recursive = false;
    bool directory = false;
};
task<int> ls(runtime& r, ls_options o);

task<int> cat(runtime& r, std::vector<std::string> urls);
task<int> stat(runtime& r, std::vector<std::string> urls);

struct layout_command {
    std::string url; ///< a file
    bool write = false;
};
/// Whether layouts are required of a URL that names a version without them. Told then, and a mistake of the command line.
bool has_no_layouts(const runtime& r, const url& where);

/// Shows the layout that the server gives of a file, and gives it back.
task<int> layout(runtime& r, layout_command o);

struct rm_options {
    std::vector<std::string> urls;
    bool recursive = false;
    bool force = false;
};
task<int> rm(runtime& r, rm_options o);

struct mkdir_options {
    std::vector<std::string> urls;
    bool parents = false;
    std::uint32_t mode = 0755;
};
task<int> mkdir(runtime& r, mkdir_options o);

task<int> mv(runtime& r, std::string from, std::string to);
task<int> df(runtime& r, std::vector<std::string> urls);
task<int> mounts(runtime& r, std::string url);

struct cp_options {
    std::vector<std::string> sources;
    std::string target;
    copy_options copy;
};
task<int> cp(runtime& r, cp_options o);

struct conform_options {
    std::string url;     ///< rdma://HOST:PORT or iwarp://HOST:PORT
    bool listen = false; ///< serve there; else run the checks against who serves there
    bool once = false;   ///< serve one run
    std::string report;  ///< file for the JSON; empty: none
    std::string only;    ///< run the checks in whose name it stands
    bool alone = false;  ///< both ends are in this program, and listen at the URL
};
/// Conformance checks of verbs and RPC-over-RDMA between two hosts.
task<int> conform(runtime& r, conform_options o);
/// All checks of verbs, with both ends in this program. It has a shard of its own, which turns check by check.
int conform_alone(const global_options& g, const conform_options& o);
/// Prints the names of all checks.
int conform_list(bool as_json);

/// Looks at this machine and, with a URL, at a server.
task<int> doctor(runtime& r, std::string url);
/// The checks that are possible where no shard can be made.
int doctor_without_shard(const std::string& why, bool json);
/// Looks at this machine for a configuration and, with a `peer`, at the way to that host. `is_late`: threads wait for a disk, and keep
/// this process (doctor/apart.hpp). It has a shard of its own.
int doctor_with_config(const std::string& file, const std::string& peer, bool json, bool& is_late);

/// "verbena: TEXT" on stderr, over a progress bar if one stands there.
void say(const std::string& text);
/// Says `text`; returns `code`.
int complain(const std::string& text, int code);
/// What a change that failed with `e` is answered with: its message, and for root what root_squash means.
std::string refusal(const error& e);
/// True if `e` says that the server is not to be reached, or has stopped serving, rather than something of one thing: others
/// would fare no better.
bool ends_all(const error& e) noexcept;
/// Octets of a path that -r and -R go into. A server may tell of directories without end.
inline constexpr std::size_t max_tree_path = 4096;
/// Parses a URL or complains.
result<url> url_argument(const std::string& text);
/// "1 file", "2 files".
std::string counted(std::uint64_t n, const char* thing);
/// "1.5 GiB".
std::string human(std::uint64_t bytes);

} // namespace verbena::cli
