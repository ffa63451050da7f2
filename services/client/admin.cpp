// SPDX-License-Identifier: Apache-2.0
#include "admin.hpp"

#include "commands.hpp"
#include "json_text.hpp"

#include "../service/state_directory.hpp"
#include "../standard_output.hpp"

#include <verbena/core/module/settings.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/core/unique_fd.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <poll.h>
#include <sstream>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace verbena::cli {

namespace {

using ordered = nlohmann::ordered_json;

constexpr std::size_t longest_line = std::size_t(16) << 20; // of an answer: a part has at most 100 rows

// Where daemons have theirs, unless they are told otherwise.
std::vector<std::string> usual_places()
{
    std::vector<std::string> all;
    if (const char* own = std::getenv("RUNTIME_DIRECTORY"); own != nullptr && *own == '/')
        all.push_back(std::string(own, std::strcspn(own, ":")) + "/control");
    all.emplace_back("/run/verbena/control");
    try {
        all.push_back(services::default_state_directory() + "/control");
    } catch (const config_error&) { // this user has none
    }
    return all;
}

struct connected {
    unique_fd socket;
    std::string path;
    int failed = 0; // errno
};

connected connect_to(const std::string& path)
{
    connected to{unique_fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)), path};
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    if (path.size() >= sizeof where.sun_path) {
        to.failed = ENAMETOOLONG;
        return to;
    }
    std::memcpy(where.sun_path, path.c_str(), path.size() + 1);
    if (!to.socket ||
        ::connect(to.socket.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0)
        to.failed = errno;
    return to;
}

// The process that has the lock of the socket at `path`: it lives, and somebody has removed its socket. 0: nobody has. It is read,
// not tried, which a daemon that starts just now would take for another one.
long owner_of(const std::string& path)
{
    struct stat lock{};
    if (::stat((path + ".lock").c_str(), &lock) != 0)
        return 0;
    char wanted[64];
    std::snprintf(wanted, sizeof wanted, "%02x:%02x:%llu", major(lock.st_dev), minor(lock.st_dev),
                  static_cast<unsigned long long>(lock.st_ino));
    std::ifstream all("/proc/locks");
    // 1: FLOCK  ADVISORY  WRITE 4711 fd:01:1234 0 EOF
    for (std::string line, number, kind, how, mode, file; std::getline(all, line);) {
        std::istringstream words(line);
        long pid = 0;
        if (words >> number >> kind >> how >> mode >> pid >> file && kind == "FLOCK" && file == wanted)
            return pid;
    }
    return 0;
}

const char* cure_of(int number)
{
    switch (number) {
    case ENOENT:
        return "no daemon has its control socket there; `verbenad` says where when it starts: control at "
               "PATH";
    case ECONNREFUSED: return "the daemon that made it is gone";
    case EACCES: return "only root and the daemon's own user may use it";
    default: return "name another with --socket";
    }
}

std::string told(const connected& to)
{
    const std::string what = printable(to.path) + ": " + std::generic_category().message(to.failed) + "; ";
    if (const long pid = to.failed == ENOENT ? owner_of(to.path) : 0; pid > 0)
        return what + "process " + std::to_string(pid) +
               " had its control socket there, and somebody has removed that: SIGHUP, SIGTERM and SIGUSR1 "
               "still reach "
               "it, and a restart makes the socket anew";
    return what + cure_of(to.failed);
}

// Nothing, and `complaint`, if no daemon is there.
std::optional<connected> reach(const std::string& named, std::string& complaint)
{
    const std::vector<std::string> places = named.empty() ? usual_places() : std::vector<std::string>{named};
    for (const std::string& path : places) {
        connected to = connect_to(path);
        if (to.failed == 0)
            return to;
        complaint += (complaint.empty() ? "" : "\n  ") + told(to);
    }
    if (named.empty())
        complaint = "no daemon is there to be asked; looked at\n  " + complaint +
                    "\n  name its control socket with --socket PATH";
    return std::nullopt;
}

enum class heard : std::uint8_t { line, end, late };

// Lines of an answer, one at a time.
class answer_reader {
public:
    answer_reader(int fd, std::chrono::seconds patience) : fd_(fd), patience_(patience) {}
    heard next(std::string& line)
    {
        for (;;) {
            if (const std::size_t end = got_.find('\n', looked_); end != std::string::npos) {
                line = got_.substr(0, end);
                got_.erase(0, end + 1);
                looked_ = 0;
                return heard::line;
            }
            looked_ = got_.size();
            if (got_.size() > longest_line)
                return heard::end;
            pollfd one{fd_, POLLIN, 0};
            const auto limit = std::chrono::milliseconds(patience_).count();
            const int ready = ::poll(&one, 1, static_cast<int>(std::min<std::int64_t>(limit, 3'600'000)));
            if (ready == 0)
                return heard::late;
            char part[65536];
            const ssize_t n = ready < 0 ? -1 : ::recv(fd_, part, sizeof part, 0);
            if (n < 0 && errno == EINTR)
                continue;
            if (n <= 0)
                return heard::end;
            got_.append(part, static_cast<std::size_t>(n));
        }
    }

private:
    const int fd_;
    const std::chrono::seconds patience_;
    std::string got_;
    std::size_t looked_ = 0; // of got_, without a line feed
};

bool send_all(int fd, std::string_view text)
{
    while (!text.empty()) {
        const ssize_t n = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return false;
        text.remove_prefix(n > 0 ? static_cast<std::size_t>(n) : 0);
    }
    return true;
}

std::string cell(const ordered& value)
{
    if (value.is_null())
        return "-";
    if (value.is_string())
        return printable(value.get_ref<const std::string&>());
    if (value.is_boolean())
        return value.get<bool>() ? "yes" : "no";
    if (!value.is_array())
        return value.dump();
    std::string all;
    for (const ordered& one : value)
        all += (all.empty() ? "" : ", ") + cell(one);
    return all.empty() ? "-" : all;
}

// The parts of one answer.
struct answer {
    std::string command;
    std::vector<std::string> columns;
    bool single = false;
    std::string largest_first; // a column of numbers, or none
    ordered rows = ordered::array();
    ordered silent = ordered::array();
    ordered failed = ordered::array();
    std::string refused; // the daemon's words

    // False: that was the last line.
    bool add(const ordered& part)
    {
        if (part.contains("error"))
            refused = part["error"].value("message", "it does not say why");
        if (part.contains("columns")) {
            command = part.value("command", "");
            columns = part["columns"].get<std::vector<std::string>>();
            single = part.value("single", false);
            largest_first = part.value("largest_first", "");
        }
        if (part.contains("rows"))
            for (const ordered& row : part["rows"])
                rows.push_back(row);
        silent = part.value("shards_silent", silent);
        failed = part.value("shards_failed", failed);
        return part.value("more", false);
    }
    // Each shard has sent its own in their order.
    void sort()
    {
        if (largest_first.empty())
            return;
        const auto number = [&](const ordered& row) {
            const auto found = row.find(largest_first);
            return found != row.end() && found->is_number() ? found->get<double>() : 0.0;
        };
        std::sort(rows.begin(), rows.end(),
                  [&](const ordered& a, const ordered& b) { return number(a) > number(b); });
    }
    std::vector<std::vector<std::string>> cells() const
    {
        std::vector<std::vector<std::string>> all;
        for (const ordered& row : rows) {
            std::vector<std::string>& line = all.emplace_back();
            for (const std::string& column : columns)
                line.push_back(cell(row.value(column, ordered(nullptr))));
        }
        return all;
    }
};

void show(const answer& a)
{
    if (!a.single)
        return print("%s", admin_table(a.columns, a.cells()).c_str());
    std::size_t width = 0;
    for (const std::string& column : a.columns)
        width = std::max(width, column.size());
    for (const auto& row : a.cells()) {
        for (std::size_t i = 0; i < a.columns.size(); ++i)
            print("%-*s  %s\n", static_cast<int>(width), printable(a.columns[i]).c_str(), row[i].c_str());
    }
}

// What the rows lack.
int complain_of_shards(const answer& a)
{
    int code = exit_ok;
    for (const ordered& shard : a.silent)
        code = complain(
            "shard " + shard.dump() +
                " does not answer, so what it has is missing here; SIGUSR1 has the daemon log what each "
                "shard is doing",
            exit_failed);
    for (const ordered& one : a.failed)
        code = complain("shard " + cell(one.value("shard", ordered(nullptr))) + ": " +
                            cell(one.value("message", ordered(nullptr))),
                        exit_failed);
    return code;
}

// A command that takes long, for who looks at a terminal.
class wait_told {
public:
    wait_told() = default;
    wait_told(const wait_told&) = delete;
    ~wait_told()
    {
        if (told_)
            std::fputs("\r\033[K", stderr);
    }
    void at(const std::string& command, const ordered& part)
    {
        if (::isatty(STDERR_FILENO) != 1)
            return;
        told_ = true;
        std::fprintf(stderr, "\r%s: %lld s", printable(command).c_str(),
                     static_cast<long long>(part["working_seconds"].get<std::int64_t>()));
    }

private:
    bool told_ = false;
};

std::string request_of(const std::vector<std::string>& words)
{
    ordered request;
    request["version"] = 1;
    request["command"] = words.front();
    request["arguments"] = std::vector<std::string>(words.begin() + 1, words.end());
    return request.dump(-1, ' ', false, ordered::error_handler_t::replace) + '\n';
}

} // namespace

std::string admin_table(const std::vector<std::string>& columns,
                        const std::vector<std::vector<std::string>>& rows)
{
    std::vector<std::string> heads;
    for (const std::string& column : columns) {
        std::string head = printable(column);
        std::ranges::transform(head, head.begin(), [](char c) {
            return c == '_' ? ' ' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
        });
        heads.push_back(std::move(head));
    }
    std::vector<std::size_t> widths(columns.size());
    for (std::size_t i = 0; i < columns.size(); ++i) {
        widths[i] = heads[i].size();
        for (const auto& row : rows)
            widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    const auto add = [&](const std::vector<std::string>& row) {
        for (std::size_t i = 0; i < row.size(); ++i)
            text += row[i] + (i + 1 < row.size() ? std::string(widths[i] - row[i].size() + 2, ' ') : "\n");
    };
    add(heads);
    for (const auto& row : rows)
        add(row);
    return text;
}

namespace {

struct asked {
    int code = exit_ok;
    std::string complaint;
    answer all;
    bool is_cut = false;
};

// `most`: bytes of its lines.
asked ask(const admin_options& o, std::size_t most)
{
    asked out;
    const auto broken = [&out](int code, std::string how) {
        out.code = code;
        out.complaint = std::move(how);
        return out;
    };
    std::string complaint;
    const std::optional<connected> to = reach(o.socket, complaint);
    if (!to)
        return broken(exit_unreachable, complaint);
    const std::string name = "control socket " + printable(to->path) + ": ";
    // A daemon that refuses this user, or has no room, says so unasked.
    (void)send_all(to->socket.get(), request_of(o.words));
    answer_reader lines(to->socket.get(), o.patience);
    wait_told waits;
    for (bool more = true; more;) {
        std::string line;
        switch (lines.next(line)) {
        case heard::end:
            return broken(
                exit_unreachable,
                name + "the daemon closed the connection before its answer was whole; is it stopping?");
        case heard::late:
            return broken(exit_unreachable,
                          name + "the daemon does not answer (--timeout); does its process run?");
        case heard::line: break;
        }
        if (line.size() > most) {
            out.is_cut = true;
            break;
        }
        most -= line.size();
        const ordered part = ordered::parse(line, nullptr, false);
        try {
            if (!part.is_object())
                return broken(exit_unreachable, name + "what answers there is no verbena daemon");
            more = out.all.add(part);
            if (part.contains("working_seconds"))
                waits.at(out.all.command, part);
        } catch (const ordered::exception&) {
            return broken(exit_unreachable, name + "what answers there is no daemon of this version");
        }
    }
    if (!out.all.refused.empty())
        return broken(exit_failed, printable_lines(out.all.refused));
    out.all.sort();
    return out;
}

std::string json_of(const answer& a)
{
    ordered all;
    all["command"] = a.command;
    all["rows"] = a.rows;
    all["shards_silent"] = a.silent;
    all["shards_failed"] = a.failed;
    return all.dump(-1, ' ', false, ordered::error_handler_t::replace) + '\n';
}

} // namespace

admin_reply ask_admin(const admin_options& o, std::size_t most)
{
    asked got = ask(o, most);
    admin_reply out{got.code, std::move(got.complaint), {}, got.is_cut};
    if (out.code == exit_ok)
        out.json = json_of(got.all);
    return out;
}

int admin(const admin_options& o)
{
    if (o.words.front() == "bundle")
        return bundle(o);
    const asked got = ask(o, SIZE_MAX);
    if (got.code != exit_ok)
        return complain(got.complaint, exit_code(got.code));
    if (o.json)
        print("%s", json_of(got.all).c_str());
    else
        show(got.all);
    return complain_of_shards(got.all);
}

} // namespace verbena::cli
