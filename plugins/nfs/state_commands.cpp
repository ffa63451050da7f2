// SPDX-License-Identifier: Apache-2.0
#include "state_commands.hpp"

#include <verbena/core/printable.hpp>
#include <verbena/core/reactor/ask.hpp>
#include <verbena/protocols/files/state_list.hpp>
#include <verbena/protocols/nfs/server/v4/evictions.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace verbena::nfs {

namespace {

using files::listed_state;
using files::state_list;

std::string hex_of(std::span<const std::byte> bytes)
{
    static constexpr char digits[] = "0123456789abcdef";
    std::string out;
    out.reserve(2 * bytes.size());
    for (const std::byte b : bytes) {
        out += digits[std::to_integer<unsigned>(b) >> 4];
        out += digits[std::to_integer<unsigned>(b) & 15];
    }
    return out;
}

std::string_view text_of(files::share s) noexcept
{
    switch (s) {
    case files::share::none: return "none";
    case files::share::read: return "read";
    case files::share::write: return "write";
    case files::share::both: break;
    }
    return "read+write";
}

// Digits in pairs; nothing where it is anything else.
std::optional<std::vector<std::byte>> bytes_of_hex(std::string_view text)
{
    std::vector<std::byte> bytes(text.size() / 2);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        unsigned value = 0;
        const char* const at = text.data() + 2 * i;
        if (std::from_chars(at, at + 2, value, 16).ptr != at + 2)
            return std::nullopt;
        bytes[i] = std::byte(value);
    }
    if (text.empty() || text.size() % 2 != 0)
        return std::nullopt;
    return bytes;
}

// Paths of files, each asked for once. Of one part of a list: the file may get another name before the next one, and be
// closed.
class file_names {
public:
    /// Below the export; empty: not known.
    const std::string& path_of(const listed_state& s)
    {
        static const std::string unknown;
        if (s.file == nullptr || s.opened == nullptr)
            return unknown;
        const auto [at, is_new] = known_.try_emplace({s.file, s.via});
        if (is_new)
            at->second = s.opened->path_now();
        return at->second;
    }
    /// Each costs a system call of some microseconds, more in a deep tree. So a part ends with so many.
    bool are_enough() const noexcept { return known_.size() >= 50; }

private:
    std::map<std::pair<const storage::handle*, std::uint32_t>, std::string> known_;
};

// Which rows are wanted. It is asked about each state there is, so all that it compares with is made before.
class state_filter {
public:
    state_filter(const control_arguments& said, const export_table& exports)
    {
        const std::string* const of = said.find("of");
        if (of == nullptr)
            return;
        const std::string* const value = said.find("value");
        if (value == nullptr)
            throw std::runtime_error("of " + *of +
                                     " whose value? Write one behind it, as the table without it shows it");
        value_ = *value;
        if (*of == "client") {
            of_ = by::client;
            std::uint64_t number = 0;
            const char* const end = value_.data() + value_.size();
            if (value_.size() == 16 && std::from_chars(value_.data(), end, number, 16).ptr == end)
                number_ = number;
        } else if (*of == "file") {
            of_ = value_.starts_with('/') ? by::path : by::handle;
            const auto bytes = bytes_of_hex(value_);
            if (of_ == by::handle && !bytes)
                throw std::runtime_error("no file " + printable(value_) +
                                         ": write its path below the export, which begins with /, or its "
                                         "handle, as the table without it shows them");
            if (of_ == by::handle)
                file_ = *bytes;
        } else {
            of_ = by::exported;
            // Kept, as a reload may drop a list at any time, and this may be a thread that is no shard.
            const std::shared_ptr<const export_list> list = exports.newest();
            const auto known = std::ranges::find(list->all(), value_, &export_options::pseudo);
            if (known == list->all().end())
                throw std::runtime_error("no export " + printable(value_) +
                                         ": `verbena admin exports` shows which there are");
            via_ = known->id;
        }
    }
    bool wants(const listed_state& s, file_names& names) const
    {
        switch (of_) {
        case by::all: return true;
        case by::path: return names.path_of(s) == value_;
        case by::exported: return s.via == via_;
        case by::client:
            return (number_ && s.label->number == *number_) || s.label->name == value_ ||
                   s.label->address == value_;
        case by::handle: break;
        }
        // Behind the number of its space: file_key().
        return s.file != nullptr && s.file->bytes().size() > 4 &&
               std::ranges::equal(s.file->bytes().subspan(4), file_);
    }

private:
    enum class by : std::uint8_t { all, client, exported, path, handle } of_ = by::all;
    std::string value_;
    std::optional<std::uint64_t> number_;
    std::vector<std::byte> file_;
    std::uint32_t via_ = 0;
};

// What clients have of the files of one home.
class list_of_states final : public control_list {
public:
    list_of_states(files::state_table& table, const export_table& exports, state_list::of what,
                   state_filter wanted)
        : list_(table, what), exports_(exports), what_(what), wanted_(std::move(wanted))
    {
    }
    bool next(std::vector<control_row>& rows, std::size_t most) override
    {
        // So many that are not wanted, or are of the other sort, take some hundred microseconds.
        constexpr std::size_t looks = 1000;
        std::size_t made = 0;
        file_names names;
        return list_.next(looks, [&](const listed_state& s) {
            if (!wanted_.wants(s, names))
                return !names.are_enough();
            rows.push_back(what_ == state_list::of::opens ? row_of_open(s, names) : row_of_lock(s, names));
            rows.back().push_back(handle_of(s));
            return ++made < most && !names.are_enough();
        });
    }

private:
    // As `requests` shows a file, but for the path.
    static std::string text_of_file(const export_options* by, const listed_state& s, file_names& names)
    {
        const std::string& path = names.path_of(s);
        const auto named = files::open_file_key(*s.file);
        if (!path.empty() || !named)
            return path;
        const auto number = by == nullptr ? std::nullopt : by->backend->number_in(named->file);
        return number ? "inode " + std::to_string(*number) : "handle " + hex_of(named->file.bytes());
    }
    static control_value handle_of(const listed_state& s)
    {
        const auto named = s.file == nullptr ? std::nullopt : files::open_file_key(*s.file);
        return named ? control_value(hex_of(named->file.bytes())) : control_value();
    }
    void add_client_and_file(control_row& row, const listed_state& s, file_names& names) const
    {
        row.emplace_back(s.label->name);
        row.emplace_back(v4::text_of_client(s.label->number));
        row.emplace_back(s.label->address);
        const export_options* const by = exports_.by_id(s.via);
        row.push_back(by == nullptr ? control_value() : control_value(by->pseudo));
        row.push_back(s.file == nullptr ? control_value() : control_value(text_of_file(by, s, names)));
    }
    control_row row_of_open(const listed_state& s, file_names& names) const
    {
        control_row row;
        row.reserve(10);
        add_client_and_file(row, s, names);
        switch (s.is) {
        case listed_state::what::open: row.emplace_back(std::string("open")); break;
        case listed_state::what::delegation: row.emplace_back(std::string("delegation")); break;
        default: row.emplace_back(std::string(s.kind)); break;
        }
        row.emplace_back(std::string(text_of(s.access)));
        row.push_back(s.is == listed_state::what::open ? control_value(std::string(text_of(s.deny)))
                                                       : control_value());
        row.emplace_back(std::string(s.file == nullptr ? "revoked" : s.is_recalled ? "recalled" : "held"));
        return row;
    }
    control_row row_of_lock(const listed_state& s, file_names& names) const
    {
        control_row row;
        row.reserve(11);
        add_client_and_file(row, s, names);
        row.emplace_back(std::string(any(s.access & files::share::write) ? "write" : "read"));
        row.emplace_back(s.bytes.offset);
        row.push_back(s.bytes.last == files::byte_range::to_the_end ? control_value()
                                                                    : control_value(s.bytes.last));
        row.emplace_back(hex_of(std::as_bytes(std::span(s.owner))));
        row.emplace_back(std::string(s.is == listed_state::what::lock ? "held"
                                     : s.waits_for_local              ? "waits for a process of this host"
                                                                      : "waits"));
        return row;
    }

    state_list list_;
    const export_table& exports_;
    const state_list::of what_;
    const state_filter wanted_;
};

std::string_view word_of(files::client_state s) noexcept
{
    switch (s) {
    case files::client_state::active: return "active";
    case files::client_state::courtesy: return "courtesy";
    case files::client_state::expired: return "expired";
    case files::client_state::revoked: break;
    }
    return "revoked";
}

// At their home: those with sessions first, then those of minor version 0.
class list_of_clients final : public control_list {
public:
    explicit list_of_clients(v4::server_commons& commons) : commons_(commons) {}
    bool next(std::vector<control_row>& rows, std::size_t most) override
    {
        if (!with_sessions_told_) {
            const auto some =
                commons_.sessions.clients_behind(last_name_, most / 2); // a name has two at most
            for (const v4::session_table::client_report& c : some)
                rows.push_back(row_of({c.name, c.from, c.client}, c.minor == 2 ? "4.2" : "4.1", c.confirmed,
                                      std::uint64_t(c.sessions), c.heard, c.state));
            with_sessions_told_ = some.empty();
            if (!some.empty())
                last_name_ = some.back().name;
            return true;
        }
        const auto some = commons_.v40.clients().clients_behind(last_, most);
        for (const v4::v40_clients::client_report& c : some)
            rows.push_back(
                row_of({c.name, c.from, c.client}, "4.0", true, control_value(), std::nullopt, c.state));
        if (some.empty())
            return false;
        last_ = some.back().state;
        return true;
    }

private:
    control_row row_of(const files::client_label& who, const char* version, bool confirmed,
                       control_value sessions, std::optional<time_point> heard, files::client_id state)
    {
        files::client_book& book = commons_.state.clients();
        const auto lease = book.state_of(state);
        const auto in_use = book.is_in_use(state);
        const files::client_holdings has = book.holdings_of(state);
        const time_point when = std::max(heard.value_or(time_point::min()), book.renewed(state));
        const duration idle = std::max(commons_.state.now() - when, duration::zero());
        control_row row;
        row.reserve(14);
        row.emplace_back(v4::text_of_client(who.number));
        row.emplace_back(who.name);
        row.emplace_back(who.address);
        row.emplace_back(std::string(version));
        row.emplace_back(confirmed);
        row.push_back(std::move(sessions));
        row.emplace_back(std::chrono::duration<double>(idle).count());
        row.push_back(lease ? control_value(std::string(word_of(*lease))) : control_value());
        row.emplace_back(in_use && *in_use);
        row.emplace_back(std::uint64_t(has.opens));
        row.emplace_back(std::uint64_t(has.locks));
        row.emplace_back(std::uint64_t(has.delegations));
        row.emplace_back(std::uint64_t(has.others));
        return row;
    }

    v4::server_commons& commons_;
    bool with_sessions_told_ = false;
    std::optional<std::string> last_name_;
    files::client_id last_ = files::nobody;
};

// Of one sort, in one answer.
constexpr std::size_t most_names_of_grace = 100;

// As `clients` shows them.
std::vector<std::string> names_of_keys(const std::vector<std::string>& keys)
{
    std::vector<std::string> names;
    for (const std::string& key : keys)
        names.emplace_back(files::name_of_key(key));
    return names;
}

// One row, of the clients' home.
class row_of_grace final : public control_list {
public:
    explicit row_of_grace(v4::server_commons& commons) : commons_(commons) {}
    bool next(std::vector<control_row>& rows, std::size_t) override
    {
        using phase = files::grace_period::phase;
        const auto how = commons_.state.clients().how_grace_goes(most_names_of_grace);
        const bool is_over = how.now == phase::over;
        control_row row;
        row.emplace_back(std::string(is_over                        ? "over"
                                     : how.now == phase::reclaiming ? "runs"
                                                                    : "its end is being written"));
        row.push_back(is_over ? control_value()
                              : control_value(std::chrono::duration<double>(how.left).count()));
        row.emplace_back(std::string(is_over ? "nothing"
                                             : "of all exports: version 4's new opens, locks and removals, "
                                               "version 3's reads, writes and removals of what clients of "
                                               "version 4 may take back"));
        const auto& clients = how.clients;
        for (const std::size_t n :
             {clients.recorded, clients.done, clients.lost, clients.back, clients.absent})
            row.emplace_back(std::uint64_t(n));
        row.emplace_back(names_of_keys(how.keys_back));
        row.emplace_back(names_of_keys(how.keys_absent));
        rows.push_back(std::move(row));
        return false;
    }

private:
    v4::server_commons& commons_;
};

std::vector<control_argument> filter_arguments()
{
    return {{.name = "of", .help = "Only what is of this", .words = {"client", "export", "file"}},
            {.name = "value",
             .help = "The client's name, id or address, the export's path, or the file's path or handle"}};
}

control_command states_command(v4::server_commons& commons, const export_table& exports, state_list::of what)
{
    control_command c;
    c.arguments = filter_arguments();
    c.answer = [&exports](const control_arguments& said) {
        (void)state_filter(said, exports); // what is wrong with it is said once
        return control_answer();
    };
    c.list = [&commons, &exports, what](shard& s,
                                        const control_arguments& said) -> std::unique_ptr<control_list> {
        for (unsigned home = 0; home < commons.state.homes(); ++home)
            if (&commons.state.where(home) == &s)
                return std::make_unique<list_of_states>(commons.state.table(home), exports, what,
                                                        state_filter(said, exports));
        return nullptr;
    };
    return c;
}

} // namespace

std::vector<control_command> state_commands(v4::server_commons& commons, const export_table& exports)
{
    std::vector<control_command> all;
    control_command clients;
    clients.name = "clients";
    clients.help = "Clients of NFS version 4";
    clients.columns = {"client_id", "name",   "address", "version", "confirmed",   "sessions", "idle_seconds",
                       "lease",     "in_use", "opens",   "locks",   "delegations", "layouts"};
    clients.list = [&commons](shard& s, const control_arguments&) {
        return commons.state.is_home(s) ? std::make_unique<list_of_clients>(commons) : nullptr;
    };
    all.push_back(std::move(clients));
    control_command grace;
    grace.name = "grace";
    grace.help = "Which clients of NFS version 4 have taken back what they had before the restart";
    grace.columns = {"grace", "seconds_left", "holds_up", "clients",  "done",
                     "gone",  "back",         "absent",   "are_back", "not_back"};
    grace.single = true;
    grace.list = [&commons](shard& s, const control_arguments&) {
        return &s == &commons.state.home() ? std::make_unique<row_of_grace>(commons) : nullptr;
    };
    all.push_back(std::move(grace));
    control_command opens = states_command(commons, exports, state_list::of::opens);
    opens.name = "opens";
    opens.help = "What clients of NFS version 4 have open, delegated or laid out";
    opens.columns = {"client", "client_id", "address", "export", "file",
                     "kind",   "access",    "deny",    "state",  "handle"};
    all.push_back(std::move(opens));
    control_command locks = states_command(commons, exports, state_list::of::locks);
    locks.name = "locks";
    locks.help = "What clients of NFS version 4 have locked, and who waits for a lock";
    locks.columns = {"client", "client_id", "address", "export", "file",  "type",
                     "first",  "last",      "owner",   "state",  "handle"};
    all.push_back(std::move(locks));
    return all;
}

namespace {

// The clients' home, before it is taken for one that hangs.
constexpr std::chrono::milliseconds home_patience{2000};

[[noreturn]] void home_is_silent(const shard& home)
{
    throw std::runtime_error("shard " + std::to_string(home.index()) +
                             ", which knows the clients of version 4, does not answer: see what holds it "
                             "(verbena_shard_stall_seconds_total)");
}

} // namespace

std::vector<evictable> find_clients(v4::server_commons& commons, const std::string& who, std::size_t most)
{
    shard& home = commons.state.home();
    const auto found =
        ask(home, [&commons, who, most](shard&) { return commons.evicted.find(who, most); }, home_patience);
    if (!found)
        home_is_silent(home);
    std::vector<evictable> all;
    for (const v4::known_client& c : *found) {
        evictable one;
        one.kind = c.has_minor ? "NFS 4." + std::to_string(c.minor) : "NFS 4";
        one.id = v4::text_of_client(c.who.number);
        one.name = c.who.name;
        one.address = c.who.address;
        one.connections = c.state;
        all.push_back(std::move(one));
    }
    return all;
}

bool keep_out(v4::server_commons& commons, const std::string& name, std::chrono::seconds time)
{
    const time_point now = commons.state.home().reactor().clock().now();
    return commons.evicted.keep_out(name, now + time, now);
}

namespace {

// A part of home_patience: to be told how far the end of a client is, when nobody waits for that any longer.
constexpr std::chrono::milliseconds look_patience{500};

// What the end of a client waits for, as far as its home says so.
std::string end_under_way(v4::server_commons& commons, const std::string& id)
{
    shard& home = commons.state.home();
    const auto far = ask(home, [&commons, id](shard&) { return commons.evicted.how_far(id); }, look_patience);
    if (!far)
        return "its state: shard " + std::to_string(home.index()) + " does not answer";
    if (far->waits_for_store)
        return "its state: the disk of the state folder does not answer";
    const files::client_holdings& has = far->has;
    const std::size_t held = has.opens + has.locks + has.delegations + has.others;
    if (far->is_there && held != 0)
        return "its state: a shard that has files of it does not answer";
    if (has.fences != 0)
        return "memory of " + std::to_string(has.fences) + (has.fences == 1 ? " layout" : " layouts") +
               ", which it may still reach";
    return "the last of its state";
}

} // namespace

evicted end_client(v4::server_commons& commons, const evictable& client, std::chrono::milliseconds patience)
{
    shard& home = commons.state.home();
    const auto end = [&commons, id = client.id, patience](shard&) -> task<v4::evicted_client> {
        return commons.evicted.end(id, patience);
    };
    // What it had is fenced meanwhile, which may take longer than anybody waits. Without patience nobody waits for that.
    const bool waits = patience > std::chrono::milliseconds::zero();
    const auto done = ask(home, end, waits ? patience + home_patience - look_patience : home_patience);
    evicted out;
    if (!done && !waits) {
        out.remains = "its state, which is being ended: the command had no time to wait for it";
        return out;
    }
    if (!done) {
        out.remains = end_under_way(commons, client.id) + "; its end goes on";
        return out;
    }
    const v4::evicted_client& had = *done;
    out.opens = had.had.opens;
    out.locks = had.had.locks;
    out.delegations = had.had.delegations;
    out.layouts = had.had.others;
    out.sessions = had.sessions;
    const auto say = [&out](const std::string& what) {
        out.remains += (out.remains.empty() ? "" : "; ") + what;
    };
    if (!had.failure.empty())
        say("its state, since the state folder can't be written: " + had.failure);
    if (had.running != 0)
        say(std::to_string(had.running) + (had.running == 1 ? " call" : " calls") +
            " of its sessions, which may still change files");
    if (had.fences != 0)
        say("memory of " + std::to_string(had.fences) + (had.fences == 1 ? " layout" : " layouts") +
            ", which it may still reach");
    return out;
}

} // namespace verbena::nfs
