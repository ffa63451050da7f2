// SPDX-License-Identifier: Apache-2.0
#include "evict_command.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/net/ip_address.hpp>
#include <verbena/core/net/peer_shares.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/core/reactor/ask.hpp>

#include <algorithm>
#include <charconv>
#include <future>
#include <numeric>
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
// Clients whose end may take all the time that one may; those behind them are ended, and not waited for. That has an end,
// too: a disk or a shard that hangs may hold up each of them.
constexpr int clients_at_patience = 8;
constexpr int patiences_in_all = 12;

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
    struct ends {
        std::size_t ended = 0;
        std::string remains; // empty: nothing of them does
    };
    /// Ends those that are meant, for `patience` at most.
    ends end(milliseconds patience, const std::stop_token& stop)
    {
        const auto until = std::chrono::steady_clock::now() + patience;
        ends all;
        std::vector<std::size_t> left(told_->shards->size());
        std::iota(left.begin(), left.end(), 0);
        while (!left.empty()) {
            const auto seen = look(left, true);
            std::vector<std::size_t> more;
            for (std::size_t i = 0; i < left.size(); ++i) {
                all.ended += seen[i] ? seen[i]->ended : 0;
                if (seen[i] && seen[i]->more)
                    more.push_back(left[i]);
            }
            if (!more.empty() && (std::chrono::steady_clock::now() >= until || stop.stop_requested())) {
                all.remains = "connections, which are made as fast as they are ended: keep it out, by `evict "
                              "CLIENT SECONDS`";
                break;
            }
            left.swap(more);
        }
        return all;
    }
    /// Waits until no call of those that have ended runs any more; yields what remains.
    std::string await_calls(milliseconds patience, const std::stop_token& stop)
    {
        const auto until = std::chrono::steady_clock::now() + patience;
        std::vector<std::size_t> shards(told_->shards->size());
        std::iota(shards.begin(), shards.end(), 0);
        for (;;) {
            std::size_t calls = 0;
            std::set<std::string> peers;
            std::string silent;
            const auto all = look(shards, false);
            for (const std::size_t i : shards) {
                if (!all[i]) {
                    silent += (silent.empty() ? "" : ",") + std::to_string(i);
                    continue;
                }
                calls += all[i]->calls;
                peers.insert(all[i]->peers.begin(), all[i]->peers.end());
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
    // Side by side: several shards that hang cost no more than one. Of one that does not answer nothing is known.
    std::vector<std::optional<seen_connections>> look(const std::vector<std::size_t>& shards, bool ends)
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
        std::vector<std::future<seen_connections>> asked;
        for (const std::size_t i : shards)
            asked.push_back(begin_ask(told_->shards->at(i), on_shard));
        const auto until = std::chrono::steady_clock::now() + shard_patience;
        std::vector<std::optional<seen_connections>> all(shards.size());
        for (std::size_t i = 0; i < shards.size(); ++i)
            if (asked[i].wait_until(until) == std::future_status::ready)
                all[i] = asked[i].get();
        return all;
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

// Whom an operator keeps out, by his own words for it: so that he can let it in by the same, and see whom he keeps out.
class bans {
public:
    struct ban {
        std::string words;           // of the last command
        std::set<std::string> known; // these, ids of the clients, and words of commands before, for the same
        std::set<std::string> addresses;
        std::set<std::pair<evicting*, std::string>> names;
        time_point until;
    };
    void add(ban b, time_point now)
    {
        forget_over(now);
        for (ban& old : all_) {
            const std::size_t had =
                std::erase_if(old.addresses, [&](const auto& a) { return b.addresses.contains(a); }) +
                std::erase_if(old.names, [&](const auto& n) { return b.names.contains(n); });
            if (had != 0 && old.addresses.empty() && old.names.empty())
                b.known.insert(old.known.begin(), old.known.end());
        }
        forget_over(now);
        all_.push_back(std::move(b));
    }
    /// What is let in by these words; nothing: nobody of them is kept out.
    ban take(const std::string& words, const std::string& address, time_point now)
    {
        forget_over(now);
        ban out;
        for (ban& b : all_) {
            const bool whole = b.known.contains(words);
            const auto move = [whole](auto& from, auto& to, const auto& is_meant) {
                for (auto at = from.begin(); at != from.end();) {
                    const auto here = at++;
                    if (whole || is_meant(*here))
                        to.insert(from.extract(here));
                }
            };
            move(b.addresses, out.addresses, [&](const std::string& a) { return a == address; });
            move(b.names, out.names, [&](const auto& n) { return n.second == words; });
        }
        forget_over(now);
        return out;
    }
    const std::vector<ban>& all(time_point now)
    {
        forget_over(now);
        return all_;
    }

private:
    // Each has an address or a name that nobody else here has, so there are no more than of these.
    void forget_over(time_point now)
    {
        std::erase_if(
            all_, [now](const ban& b) { return b.until <= now || (b.addresses.empty() && b.names.empty()); });
    }
    std::vector<ban> all_;
};

control_answer list_of(const std::vector<bans::ban>& all, time_point now)
{
    control_answer answer;
    for (const bans::ban& b : all) {
        const auto left = std::int64_t(std::chrono::ceil<seconds>(b.until - now).count());
        const auto add = [&](control_value name, control_value address) {
            answer.rows.push_back({std::string("kept out"), control_value(), std::move(name),
                                   std::move(address), control_value(), control_value(), control_value(),
                                   control_value(), control_value(), control_value(), left, control_value()});
        };
        for (const auto& [module, name] : b.names)
            add(name, control_value());
        for (const std::string& a : b.addresses)
            add(b.words == a ? control_value() : control_value(b.words), a);
    }
    return answer;
}

control_answer let_in(const told_of_service& told, bans& kept, const std::string& who,
                      const std::string& address, time_point now)
{
    const bans::ban in = kept.take(who, address, now);
    if (in.addresses.empty() && in.names.empty()) {
        std::string text;
        std::size_t shown = 0;
        for (const bans::ban& b : kept.all(now)) {
            if (shown++ < most_shown)
                text += (text.empty() ? "" : ", ") + printable(b.words);
        }
        throw std::runtime_error("evict: nobody is kept out as " + printable(who) +
                                 ": write what the command said that keeps it out, or its name or address as "
                                 "`verbena admin evict` shows them; " +
                                 (text.empty()
                                      ? "nobody is kept out now"
                                      : "kept out are " + text + (shown > most_shown ? " and others" : "")));
    }
    for (const std::string& a : in.addresses)
        (void)told.peers->evicted().add(a, now, now);
    for (const auto& [module, name] : in.names)
        (void)module->keep_out(name, seconds::zero());
    log(log_level::warning, "control", "an operator has let in whom he kept out", {{"as", printable(who)}});
    control_answer answer;
    answer.rows.push_back({std::string("let in"), control_value(), who,
                           in.addresses.empty() ? control_value() : control_value(*in.addresses.begin()),
                           control_value(), control_value(), control_value(), control_value(),
                           control_value(), control_value(), std::int64_t(0), control_value()});
    return answer;
}

control_answer evict(const std::shared_ptr<const told_of_service>& service, bans& kept_out_now,
                     const control_arguments& said, milliseconds patience, const std::stop_token& stop)
{
    const told_of_service& told = *service;
    const time_point now = system_clock().now();
    const std::string* const words = said.find("client");
    if (words == nullptr)
        return list_of(kept_out_now.all(now), now);
    const std::string& who = *words;
    const std::optional<seconds> time = time_of(said);
    if (who.empty())
        throw std::runtime_error("evict: an empty name is nobody's");
    // As connections have it.
    const auto parsed = ip_address::parse(who);
    const std::string address = parsed ? parsed->text() : std::string();
    if (time && time->count() == 0)
        return let_in(told, kept_out_now, who, address, now); // who is let in loses nothing
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
    std::string full;
    bans::ban ban{
        .words = who, .known = {who}, .addresses = {}, .names = {}, .until = now + time.value_or(seconds(0))};
    const auto keep_out_address = [&](const std::string& a) {
        if (told.peers->evicted().add(a, ban.until, now))
            ban.addresses.insert(a);
        else
            full = "it is not kept out, since as many addresses are as may be (" +
                   std::to_string(kept_out::most) + ")";
    };
    // What was named by an address is kept out by that alone.
    const auto keep_out_client = [&](const found_client& f) {
        ban.known.insert(f.client.id);
        for (const std::string& a : f.client.kept_out_by)
            keep_out_address(a);
        if (!f.client.kept_out_by.empty())
            return;
        if (f.of->keep_out(f.client.name, *time))
            ban.names.emplace(f.of, f.client.name);
        else
            full = "it is not kept out, since as many clients are as may be (" +
                   std::to_string(kept_out::most) + ")";
    };
    // Before anything ends, or it would be back at once.
    if (time && !address.empty())
        keep_out_address(address);
    else if (time)
        std::ranges::for_each(found, keep_out_client);
    if (!ban.addresses.empty() || !ban.names.empty())
        kept_out_now.add(std::move(ban), now);
    control_answer answer;
    const control_value kept =
        time && full.empty() ? control_value(std::int64_t(time->count())) : control_value();
    wanted_connections wanted;
    wanted.address = address;
    for (const found_client& f : found)
        wanted.clients.insert(f.client.connections);
    wanted.clients.erase(0);
    connections_of_service connections(service, std::move(wanted));
    std::size_t ended = connections.end(patience, stop).ended;
    if (found.empty() && ended == 0 && (address.empty() || !time))
        nobody_is(who, modules);
    const auto begun = std::chrono::steady_clock::now();
    const auto waits_until = begun + clients_at_patience * patience;
    const auto until = begun + patiences_in_all * patience;
    for (const found_client& f : found) {
        evicted had;
        const auto at = std::chrono::steady_clock::now();
        const bool has_time = at < until && !stop.stop_requested();
        try {
            if (has_time)
                had = f.of->end(f.client, std::clamp(std::chrono::ceil<milliseconds>(waits_until - at),
                                                     milliseconds::zero(), patience));
            else
                had.remains = "it was not ended, since the command's time was over: evict it again";
        } catch (const std::exception& e) {
            had.remains = std::string("it was not ended: ") + e.what();
        }
        const std::string remains = had.remains + (had.remains.empty() || full.empty() ? "" : "; ") + full;
        answer.rows.push_back({f.client.kind, f.client.id, f.client.name, f.client.address,
                               or_nothing(had.opens), or_nothing(had.locks), or_nothing(had.delegations),
                               or_nothing(had.layouts), or_nothing(had.sessions), control_value(), kept,
                               remains.empty() ? control_value() : control_value(remains)});
        log(log_level::warning, "control",
            has_time ? "an operator has ended a client" : "there was no time to end a client",
            {{"kind", f.client.kind},
             {"name", printable(f.client.name)},
             {"address", f.client.address},
             {"remains", remains.empty() ? std::string("nothing") : remains}});
    }
    const auto late = connections.end(patience, stop); // that it made meanwhile
    ended += late.ended;
    std::string calls = connections.await_calls(patience, stop);
    if (!late.remains.empty())
        calls = late.remains + (calls.empty() ? "" : "; ") + calls;
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
    c.arguments = {{.name = "client", .help = "Its id, its name or its address; without: who is kept out"},
                   {.name = "for", .help = "Seconds for which it is kept out; 0: it is let in again"}};
    // One such command runs at a time.
    c.work = [told, kept = std::make_shared<bans>(), patience](const control_arguments& said,
                                                               const std::stop_token& stop) {
        return evict(told, *kept, said, patience, stop);
    };
    return c;
}

} // namespace verbena::services
