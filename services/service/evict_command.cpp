// SPDX-License-Identifier: Apache-2.0
#include "evict_command.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/net/ip_address.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/core/reactor/ask.hpp>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace verbena::services {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds longest_ban = std::chrono::hours(24 * 30);
constexpr std::size_t most_clients = 1000; // of one command
constexpr std::size_t most_shown = 10;     // where nothing matches
// Of a shard, before it is taken for one that hangs.
constexpr milliseconds shard_patience{1000};
// Connections that a shard ends before others have their turn: each costs some system calls.
constexpr std::size_t ended_at_once = 32;
constexpr milliseconds look_again{20};

// Whose connections are ended, on any shard.
struct wanted_connections {
    std::string address; // empty: none by that
    std::set<std::uint64_t> clients;
    bool has(const connection_party& p) const
    {
        return (!address.empty() && p.address == address) || (p.client != 0 && clients.contains(p.client));
    }
};

// What was seen of them on one shard.
struct seen_connections {
    std::size_t ended = 0;       // just now
    std::size_t calls = 0;       // of those that have ended, which still run
    std::set<std::string> peers; // that have these
    bool more = false;           // that are to end
};

// The connections of all protocols, on all shards.
class connections_of_service {
public:
    connections_of_service(std::shared_ptr<const told_of_service> told, wanted_connections wanted)
        : told_(std::move(told)), wanted_(std::make_shared<const wanted_connections>(std::move(wanted)))
    {
    }
    /// Ends those that are meant; yields how many these were.
    std::size_t end()
    {
        std::size_t ended = 0;
        for (std::size_t i = 0; i < told_->shards->size(); ++i) {
            for (bool more = true; more;) {
                const auto seen = look(i, true);
                more = seen && seen->more;
                ended += seen ? seen->ended : 0;
            }
        }
        return ended;
    }
    /// Waits until no call of those that have ended runs any more; yields what remains.
    std::string await_calls(milliseconds patience, const std::stop_token& stop)
    {
        const auto until = std::chrono::steady_clock::now() + patience;
        for (;;) {
            std::size_t calls = 0;
            std::set<std::string> peers;
            std::string silent;
            for (std::size_t i = 0; i < told_->shards->size(); ++i) {
                const auto seen = look(i, false);
                if (!seen) {
                    silent += (silent.empty() ? "" : ",") + std::to_string(i);
                    continue;
                }
                calls += seen->calls;
                peers.insert(seen->peers.begin(), seen->peers.end());
            }
            if (calls == 0 && silent.empty())
                return {};
            if (std::chrono::steady_clock::now() < until && !stop.stop_requested()) {
                std::this_thread::sleep_for(look_again);
                continue;
            }
            std::string text;
            if (calls != 0) {
                text = std::to_string(calls) + (calls == 1 ? " call has" : " calls have") +
                       " not ended, and may still change files (";
                for (const std::string& peer : peers)
                    text += (text.back() == '(' ? "" : " ") + peer;
                text += ')';
            }
            if (!silent.empty())
                text += (text.empty() ? "" : "; ") + std::string("no answer of shard ") + silent;
            return text;
        }
    }

private:
    std::optional<seen_connections> look(std::size_t shard, bool ends)
    {
        const auto on_shard = [told = told_, wanted = wanted_, ends](verbena::shard& here) {
            seen_connections seen;
            for (const told_of_service::served& protocol : told->protocols) {
                connection_list::reader reader(protocol.connections(here.index()));
                while (listed_connection* const c = reader.next()) {
                    const connection_party party = c->party();
                    if (!wanted->has(party))
                        continue;
                    if (party.has_ended) {
                        seen.calls += party.calls;
                        if (party.calls != 0 && seen.peers.size() < most_shown)
                            seen.peers.insert(c->report().peer);
                    } else if (ends && seen.ended < ended_at_once) {
                        c->end_now();
                        ++seen.ended;
                    } else if (ends) {
                        seen.more = true;
                    }
                }
            }
            return seen;
        };
        return ask(told_->shards->at(shard), on_shard, shard_patience);
    }
    const std::shared_ptr<const told_of_service> told_;
    const std::shared_ptr<const wanted_connections> wanted_;
};

// "60", "for=60".
std::optional<seconds> time_of(const control_arguments& said)
{
    const std::string* const text = said.find("for");
    if (text == nullptr)
        return std::nullopt;
    std::string_view digits = *text;
    if (digits.starts_with("for="))
        digits.remove_prefix(4);
    std::int64_t value = -1;
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (status != std::errc() || end != digits.data() + digits.size() || value < 0 ||
        seconds(value) > longest_ban)
        throw std::runtime_error(
            "evict: \"" + printable(*text) +
            "\" is no time to keep a client out: write seconds, from 0, which lets it in, to " +
            std::to_string(longest_ban.count()));
    return seconds(value);
}

std::vector<evicting*> modules_of(const told_of_service& told)
{
    std::vector<evicting*> all;
    for (const module_table::entry& e : told.modules->all()) {
        if (auto* const has = dynamic_cast<evicting*>(e.object.get()); has != nullptr && e.used)
            all.push_back(has);
    }
    return all;
}

[[noreturn]] void nobody_is(const std::string& who, const std::vector<evicting*>& modules)
{
    std::string text;
    std::size_t shown = 0;
    for (evicting* const m : modules) {
        for (const evictable& c : m->find_clients({}, most_shown)) {
            if (shown++ < most_shown)
                text += (text.empty() ? "" : ", ") + (c.name.empty() ? c.id : printable(c.name)) + " at " +
                        c.address;
        }
    }
    throw std::runtime_error("evict: no client and no connection of " + printable(who) +
                             ": write a client's id, its name or its address as `verbena admin clients`, "
                             "sessions or connections show them; " +
                             (text.empty()
                                  ? "there are no clients now"
                                  : "there are " + text + (shown > most_shown ? " and others" : "")));
}

control_value or_nothing(const std::optional<std::uint64_t>& n)
{
    return n ? control_value(*n) : control_value();
}

control_answer evict(const std::shared_ptr<const told_of_service>& service, const control_arguments& said,
                     milliseconds patience, const std::stop_token& stop)
{
    const told_of_service& told = *service;
    const std::string& who = *said.find("client");
    const std::optional<seconds> time = time_of(said);
    if (who.empty())
        throw std::runtime_error("evict: an empty name is nobody's");
    // As connections have it.
    const auto parsed = ip_address::parse(who);
    const std::string address = parsed ? parsed->text() : std::string();
    const std::vector<evicting*> modules = modules_of(told);
    struct found_client {
        evicting* of;
        evictable client;
    };
    std::vector<found_client> found;
    for (evicting* const m : modules) {
        for (evictable& c : m->find_clients(address.empty() ? who : address, most_clients))
            found.push_back({m, std::move(c)});
    }
    const time_point now = system_clock().now();
    std::string full;
    const auto keep_out_address = [&](const std::string& a) {
        if (time && !told.peers->evicted().add(a, now + *time, now))
            full = "it is not kept out, since as many addresses are as may be (" +
                   std::to_string(kept_out::most) + ")";
    };
    // Before anything ends, or it would be back at once.
    if (!address.empty())
        keep_out_address(address);
    for (const found_client& f : found) {
        // By what the operator named, so that he can let it in by the same words.
        if (!address.empty())
            continue;
        for (const std::string& a : f.client.kept_out_by)
            keep_out_address(a);
        if (time && f.client.kept_out_by.empty() && !f.of->keep_out(f.client.name, *time))
            full = "it is not kept out, since as many clients are as may be (" +
                   std::to_string(kept_out::most) + ")";
    }
    control_answer answer;
    const control_value kept =
        time && full.empty() ? control_value(std::int64_t(time->count())) : control_value();
    // Who is let in again loses nothing.
    if (time && time->count() == 0) {
        if (found.empty())
            for (evicting* const m : modules)
                (void)m->keep_out(who, *time); // one that is kept out is no client
        answer.rows.push_back({std::string("let in"), control_value(), who, control_value(address),
                               control_value(), control_value(), control_value(), control_value(),
                               control_value(), control_value(), std::int64_t(0), control_value()});
        return answer;
    }
    wanted_connections wanted;
    wanted.address = address;
    for (const found_client& f : found)
        wanted.clients.insert(f.client.connections);
    wanted.clients.erase(0);
    connections_of_service connections(service, std::move(wanted));
    std::size_t ended = connections.end();
    if (found.empty() && ended == 0 && (address.empty() || !time))
        nobody_is(who, modules);
    for (const found_client& f : found) {
        std::string failure;
        evicted had;
        try {
            had = f.of->end(f.client, stop.stop_requested() ? milliseconds::zero() : patience);
        } catch (const std::exception& e) {
            had.remains = std::string("it was not ended: ") + e.what();
        }
        const std::string remains = had.remains + (had.remains.empty() || full.empty() ? "" : "; ") + full;
        answer.rows.push_back({f.client.kind, f.client.id, f.client.name, f.client.address,
                               or_nothing(had.opens), or_nothing(had.locks), or_nothing(had.delegations),
                               or_nothing(had.layouts), or_nothing(had.sessions), control_value(), kept,
                               remains.empty() ? control_value() : control_value(remains)});
        log(log_level::warning, "control", "an operator has ended a client",
            {{"kind", f.client.kind},
             {"name", printable(f.client.name)},
             {"address", f.client.address},
             {"remains", remains.empty() ? std::string("nothing") : remains}});
    }
    ended += connections.end(); // that it made meanwhile
    const std::string calls = connections.await_calls(patience, stop);
    std::string remains = calls;
    if (found.empty())
        remains += (remains.empty() || full.empty() ? "" : "; ") + full;
    answer.rows.push_back({std::string("connections"), control_value(), control_value(),
                           address.empty() ? control_value() : control_value(address), control_value(),
                           control_value(), control_value(), control_value(), control_value(),
                           std::uint64_t(ended), address.empty() ? control_value() : kept,
                           remains.empty() ? control_value() : control_value(remains)});
    log(log_level::warning, "control", "an operator has ended connections",
        {{"of", printable(who)},
         {"connections", ended},
         {"remains", calls.empty() ? std::string("nothing") : calls}});
    return answer;
}

} // namespace

control_command evict_command(const std::shared_ptr<const told_of_service>& told, milliseconds patience)
{
    control_command c;
    c.name = "evict";
    c.help =
        "Ends a client with all that it has, and its connections; with SECONDS, keeps it out for so long";
    c.columns = {"kind",    "id",       "name",        "address",          "opens",  "locks", "delegations",
                 "layouts", "sessions", "connections", "kept_out_seconds", "remains"};
    c.arguments = {{.name = "client", .help = "Its id, its name or its address", .required = true},
                   {.name = "for", .help = "Seconds for which it is kept out; 0: it is let in again"}};
    c.work = [told, patience](const control_arguments& said, const std::stop_token& stop) {
        return evict(told, said, patience, stop);
    };
    return c;
}

} // namespace verbena::services
