// SPDX-License-Identifier: Apache-2.0
// `verbena admin bundle`: what somebody who reports a problem is asked for, in one archive. Nothing that files hold, and no secret.
#include "admin.hpp"

#include "commands.hpp"
#include "http_get.hpp"
#include "json_text.hpp"
#include "program.hpp"

#include "../standard_output.hpp"

#include <verbena/core/printable.hpp>
#include <verbena/core/unique_fd.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <fstream>
#include <optional>
#include <poll.h>
#include <set>
#include <sstream>
#include <string_view>
#include <sys/utsname.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#ifdef VERBENA_LIBARCHIVE
#include <archive.h>
#include <archive_entry.h>
#endif

namespace verbena::cli {

#ifdef VERBENA_LIBARCHIVE

namespace {

using ordered = nlohmann::ordered_json;
using clock = std::chrono::steady_clock;

constexpr std::size_t most_of_a_part = std::size_t(16) << 20;
constexpr std::size_t most_of_a_log = std::size_t(4) << 20;
constexpr std::chrono::seconds patience_with_a_part{15};
constexpr const char* log_lines = "5000";

// Commands that only tell, of verbena's own: those of others may do anything.
constexpr std::array<std::string_view, 15> listing_commands = {
    "help",  "status", "config", "connections", "modules", "loglevel", "exports", "clients",
    "grace", "opens",  "locks",  "mounts",      "devices", "sessions", "requests"};

/// One file of the archive.
struct part {
    std::string name;
    std::string text;
    std::string failed; // why it is not what it should be
    bool is_cut = false;
    bool may_lack = false; // many hosts have none such
};

std::string why(int number) { return std::generic_category().message(number); }

// Reads until the end, `until` or `most` bytes.
void read_all(int fd, std::size_t most, clock::time_point until, part& to)
{
    for (;;) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - clock::now()).count();
        pollfd one{fd, POLLIN, 0};
        const int ready = left <= 0 ? 0 : ::poll(&one, 1, static_cast<int>(left));
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0) {
            to.failed = "it took longer than " + std::to_string(patience_with_a_part.count()) + " s";
            return;
        }
        char some[65536];
        const ssize_t n = ::read(fd, some, std::min(sizeof some, most - to.text.size() + 1));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            to.failed = why(errno);
        if (n <= 0)
            return;
        to.text.append(some, static_cast<std::size_t>(n));
        if (to.text.size() > most) {
            to.text.resize(most);
            to.is_cut = true;
            return;
        }
    }
}

part file_part(std::string name, const char* path)
{
    part out{std::move(name), {}, {}, false, false};
    const unique_fd fd(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd)
        out.failed = std::string(path) + ": " + why(errno);
    else
        read_all(fd.get(), most_of_a_part, clock::now() + patience_with_a_part, out);
    return out;
}

// Of this host and this program.
part host_part()
{
    part out{"host.txt", {}, {}, false, false};
    utsname name{};
    if (::uname(&name) == 0)
        out.text += std::string("kernel: ") + name.sysname + ' ' + name.release + ' ' + name.version + ' ' +
                    name.machine + '\n';
    out.text +=
        "verbena: " VERBENA_VERSION "\nprocessors: " + std::to_string(::sysconf(_SC_NPROCESSORS_ONLN)) + '\n';
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    char text[40] = "";
    if (::gmtime_r(&now, &parts) != nullptr)
        std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return out.text += std::string("time: ") + text + '\n', out;
}

// --- Other programs

part program_part(std::string name, std::vector<std::string> words, std::size_t most)
{
    part out{std::move(name), {}, {}, false, false};
    const std::string program = words[0];
    said told = run_program(std::move(words),
                            {.patience = patience_with_a_part, .most = most, .errors_with_output = true});
    out.text = std::move(told.output);
    out.is_cut = told.is_cut;
    if (told.failed == ETIMEDOUT)
        out.failed = program + " took longer than " + std::to_string(patience_with_a_part.count()) + " s";
    else if (told.failed != 0)
        out.failed = program + ": " + why(told.failed);
    else if (!told.is_cut && told.status != 0)
        out.failed = program + " failed";
    return out;
}

// --- Metrics

// `url`: "http://127.0.0.1:9464/metrics"
part metrics_part(const std::string& url)
{
    part out{"metrics.txt", {}, {}, false, false};
    if (url.empty()) {
        out.failed = "the daemon serves no metrics";
        out.may_lack = true;
        return out;
    }
    http_reply told = http_get(url, most_of_a_part, patience_with_a_part);
    out.text = std::move(told.body);
    out.failed = std::move(told.failed);
    out.is_cut = told.is_cut;
    return out;
}

// --- What the daemon tells

part command_part(const admin_options& o, const std::string& command)
{
    admin_options asking = o;
    asking.words = {command};
    asking.patience = std::min<std::chrono::seconds>(o.patience, patience_with_a_part);
    admin_reply told = ask_admin(asking, most_of_a_part);
    return {"commands/" + command + ".json", std::move(told.json), std::move(told.complaint), told.is_cut,
            false};
}

const ordered* first_row(const ordered& all)
{
    const auto rows = all.find("rows");
    return rows != all.end() && rows->is_array() && !rows->empty() && rows->front().is_object()
               ? &rows->front()
               : nullptr;
}

std::string text_of(const ordered& row, const char* name)
{
    const auto value = row.find(name);
    return value != row.end() && value->is_string() ? value->get<std::string>() : std::string();
}

std::set<std::string> known_commands(const part& help)
{
    std::set<std::string> names;
    const ordered all = ordered::parse(help.text, nullptr, false);
    if (all.is_object())
        if (const auto rows = all.find("rows"); rows != all.end() && rows->is_array())
            for (const ordered& row : *rows)
                if (row.is_object())
                    names.insert(text_of(row, "command"));
    return names;
}

// As the file that it would be: the lines of a command's only column.
part lines_part(std::string name, const part& told, const char* column)
{
    part out{std::move(name), {}, told.failed, told.is_cut, false};
    const ordered all = ordered::parse(told.text, nullptr, false);
    if (all.is_object())
        if (const auto rows = all.find("rows"); rows != all.end() && rows->is_array())
            for (const ordered& row : *rows)
                if (row.is_object())
                    out.text += text_of(row, column) + '\n';
    return out;
}

std::vector<part> collect(const admin_options& o)
{
    std::vector<part> all;
    all.push_back(host_part());
    all.push_back(file_part("os-release.txt", "/etc/os-release"));
    part help = command_part(o, "help");
    const std::set<std::string> known = known_commands(help);
    const bool is_there = help.failed.empty();
    std::string metrics, pid;
    all.push_back(std::move(help));
    for (const std::string_view name : listing_commands) {
        const std::string command(name);
        if (!is_there || command == "help" || !known.contains(command))
            continue;
        part told = command_part(o, command);
        if (command == "config") {
            all.push_back(lines_part("config.toml", told, "configuration"));
            continue;
        }
        if (command == "status") {
            const ordered parsed = ordered::parse(told.text, nullptr, false);
            if (const ordered* const row = parsed.is_object() ? first_row(parsed) : nullptr; row != nullptr) {
                metrics = text_of(*row, "metrics");
                if (const auto value = row->find("pid"); value != row->end() && value->is_number_integer())
                    pid = std::to_string(value->get<std::int64_t>());
            }
        }
        all.push_back(std::move(told));
    }
    all.push_back(metrics_part(metrics));
    if (pid.empty()) {
        all.push_back({"log.txt", {}, "no daemon has said which process it is", false, false});
        return all;
    }
    all.push_back(file_part("limits.txt", ("/proc/" + pid + "/limits").c_str()));
    all.push_back(file_part("process.txt", ("/proc/" + pid + "/status").c_str()));
    all.push_back(program_part(
        "log.txt",
        {"journalctl", "--no-pager", "--quiet", "--output=short-iso", "--lines", log_lines, "_PID=" + pid},
        most_of_a_log));
    all.back().may_lack = true;
    // Where no journal has it, as in a container, the daemon itself knows its last lines.
    if ((!all.back().failed.empty() || all.back().text.empty()) && known.contains("log")) {
        part own = lines_part("log.txt", command_part(o, "log"), "line");
        if (own.failed.empty() && !own.text.empty())
            all.back() = std::move(own);
    }
    return all;
}

// --- The archive

class archive_file {
public:
    /// Throws std::system_error, also where there is a file of that name.
    explicit archive_file(const std::string& path)
        : fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)), to_(nullptr)
    {
        if (!fd_)
            throw std::system_error(errno, std::generic_category());
    }
    /// Before the first add().
    void begin()
    {
        to_ = ::archive_write_new();
        if (to_ == nullptr)
            throw std::bad_alloc();
        check(::archive_write_add_filter_gzip(to_));
        check(::archive_write_set_format_pax_restricted(to_));
        check(::archive_write_open_fd(to_, fd_.get()));
    }
    archive_file(const archive_file&) = delete;
    ~archive_file() { ::archive_write_free(to_); }
    void add(const std::string& name, const std::string& text)
    {
        const std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry(::archive_entry_new(),
                                                                             ::archive_entry_free);
        if (!entry)
            throw std::bad_alloc();
        ::archive_entry_set_pathname(entry.get(), name.c_str());
        ::archive_entry_set_size(entry.get(), static_cast<la_int64_t>(text.size()));
        ::archive_entry_set_filetype(entry.get(), AE_IFREG);
        ::archive_entry_set_perm(entry.get(), 0600);
        ::archive_entry_set_mtime(entry.get(), std::time(nullptr), 0);
        check(::archive_write_header(to_, entry.get()));
        if (::archive_write_data(to_, text.data(), text.size()) != la_ssize_t(text.size()))
            check(ARCHIVE_FATAL);
    }
    void close()
    {
        check(::archive_write_close(to_));
        if (::fsync(fd_.get()) != 0)
            throw std::system_error(errno, std::generic_category());
    }

private:
    void check(int done) const
    {
        if (done == ARCHIVE_OK || done == ARCHIVE_WARN)
            return;
        const int number = ::archive_errno(to_);
        throw std::system_error(number > 0 ? number : EIO, std::generic_category());
    }
    const unique_fd fd_;
    archive* to_;
};

std::string default_name()
{
    utsname name{};
    std::string host = ::uname(&name) == 0 ? name.nodename : "host";
    std::ranges::replace_if(
        host, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.'; },
        '_');
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    char text[32] = "";
    if (::gmtime_r(&now, &parts) != nullptr)
        std::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &parts);
    return "verbena-" + host + '-' + text + ".tar.gz";
}

std::string note_of(const part& p)
{
    if (!p.failed.empty())
        return printable_lines(p.failed);
    return p.is_cut ? "the first part of it, as it is more than may be" : "";
}

} // namespace

int bundle(const admin_options& o)
{
    if (o.words.size() > 2)
        return complain("bundle takes the name of one file", exit_usage);
    const std::string path = o.words.size() == 2 ? o.words[1] : default_name();
    const std::string folder = "verbena-bundle/";
    std::vector<part> parts;
    try {
        archive_file to(path);
        try {
            to.begin();
            parts = collect(o);
            std::string list;
            for (const part& p : parts) {
                // What is not there says why, under its own name.
                const std::string text = p.text + (p.failed.empty() ? "" : "not whole: " + p.failed + '\n');
                to.add(folder + p.name, text);
                list += p.name + ' ' + std::to_string(text.size()) + " bytes" +
                        (note_of(p).empty() ? "" : ": " + note_of(p)) + '\n';
            }
            to.add(folder + "CONTENTS.txt", list);
            to.close();
        } catch (...) {
            ::unlink(path.c_str());
            throw;
        }
    } catch (const std::system_error& e) {
        return complain(printable(path) + ": " + e.code().message() +
                            (e.code() == std::errc::file_exists
                                 ? "; name another file, as none is overwritten"
                                 : "; name another file: verbena admin bundle FILE"),
                        exit_failed);
    }
    bool is_whole = true;
    std::vector<std::vector<std::string>> rows;
    ordered told = ordered::array();
    for (const part& p : parts) {
        is_whole &= p.failed.empty() || p.may_lack;
        const std::string note = note_of(p);
        rows.push_back({p.name, std::to_string(p.text.size()), note.empty() ? "-" : note});
        told.push_back({{"part", p.name},
                        {"bytes", p.text.size()},
                        {"note", note.empty() ? ordered(nullptr) : ordered(note)}});
    }
    if (o.json) {
        ordered all;
        all["command"] = "bundle";
        all["file"] = path;
        all["rows"] = told;
        print("%s\n", all.dump(-1, ' ', false, ordered::error_handler_t::replace).c_str());
    } else {
        print("%s", admin_table({"part", "bytes", "note"}, rows).c_str());
        print("%s: read it before you give it away; it holds names of hosts, users and files\n",
              printable(path).c_str());
    }
    return is_whole ? exit_ok : exit_failed;
}

#else

int bundle(const admin_options&)
{
    return complain("this verbena was built without libarchive: build it with libarchive-dev, or run the "
                    "commands of `verbena admin help` by themselves",
                    exit_failed);
}

#endif

} // namespace verbena::cli
