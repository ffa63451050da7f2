// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/v4/evictions.hpp>

#include <verbena/core/net/refusals.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/core/task/yield.hpp>
#include <verbena/protocols/nfs/server/v4/commons.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <memory>
#include <utility>

namespace verbena::nfs::v4 {

namespace {

// That are looked at before others have their turn.
constexpr std::size_t clients_at_once = 100;
constexpr duration look_again = std::chrono::milliseconds(5);

bool is_meant(const files::client_label& who, std::string_view wanted)
{
    return wanted.empty() || who.name == wanted || who.address == wanted ||
           text_of_client(who.number) == wanted;
}

template<class Meant>
task<std::vector<known_client>> find_in(server_commons& commons, Meant meant, std::size_t most)
{
    std::vector<known_client> found;
    std::optional<std::string> last_name;
    for (bool more = true; more && found.size() < most;) {
        const auto some = commons.sessions.clients_behind(last_name, clients_at_once);
        for (const session_table::client_report& c : some) {
            known_client one{
                {c.name, c.from, c.client}, c.minor.value_or(0), c.minor.has_value(), c.confirmed, c.state};
            if (found.size() < most && meant(one.who))
                found.push_back(std::move(one));
        }
        more = !some.empty();
        if (more)
            last_name = some.back().name;
        co_await yield();
    }
    files::client_id last = files::nobody;
    for (bool more = true; more && found.size() < most;) {
        const auto some = commons.v40.clients().clients_behind(last, clients_at_once);
        for (const v40_clients::client_report& c : some) {
            known_client one{{c.name, c.from, c.client}, 0, true, true, c.state};
            if (found.size() < most && meant(one.who))
                found.push_back(std::move(one));
        }
        more = !some.empty();
        if (more)
            last = some.back().state;
        co_await yield();
    }
    co_return found;
}

} // namespace

std::string text_of_client(std::uint64_t number)
{
    std::array<char, 17> digits{};
    std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(number));
    return digits.data();
}

bool evictions::turns_away(std::span<const std::byte> name, std::string_view from,
                           time_point now) const noexcept
{
    const std::string_view text(reinterpret_cast<const char*>(name.data()), name.size());
    if (!names_.has(text, now))
        return false;
    tell_refusal(refused::client_evicted, {.peer = from, .object = text});
    return true;
}

task<std::vector<known_client>> evictions::find(std::string who, std::size_t most)
{
    return find_in(
        commons_, [who = std::move(who)](const files::client_label& one) { return is_meant(one, who); },
        most);
}

task<evicted_client> evictions::end(std::string id, duration patience)
{
    evicted_client out;
    files::client_book& book = commons_.state.clients();
    const time_point until = commons_.state.now() + patience;
    known_client client;
    std::uint64_t number = 0;
    if (std::from_chars(id.data(), id.data() + id.size(), number, 16).ec != std::errc())
        co_return out;
    // By its number alone: another client may have said that text as its name.
    const auto meant = [number](const files::client_label& one) { return one.number == number; };
    for (;;) {
        std::vector<known_client> found = co_await find_in(commons_, meant, 1);
        if (found.empty())
            co_return out;
        client = std::move(found.front());
        if (client.state != files::nobody)
            break;
        // It goes, unless it is being confirmed just now: then it will be there in a moment.
        if (commons_.sessions.drop_unconfirmed(client.who.number) || commons_.state.now() >= until)
            co_return out;
        const bool goes_on = co_await sleep_for(look_again);
        if (!goes_on)
            co_return out;
    }
    out.had = book.holdings_of(client.state);
    // Before anything is taken: a call that finds its lease over meanwhile has the client's sessions forgotten, while others of
    // its calls run on.
    std::vector<std::shared_ptr<session>> sessions = commons_.sessions.of(client.state);
    out.sessions = sessions.size();
    const result<void> gone = co_await book.revoke_client(client.state);
    if (!gone && gone.error() != files::errc::stale_client) {
        out.failure = gone.error().message();
        co_return out;
    }
    out.fences = book.holdings_of(client.state).fences;
    // At once, and not when it is heard of the next time: a call whose lease was renewed within the last second would not
    // ask whether it still is somebody's, and could write by the anonymous stateid. One of minor version 0 hears of it by
    // its stateids and RENEW.
    for (auto& made_meanwhile : commons_.sessions.of(client.state))
        if (std::ranges::find(sessions, made_meanwhile) == sessions.end())
            sessions.push_back(std::move(made_meanwhile));
    if (commons_.sessions.name_of(client.state).client != 0) {
        commons_.sessions.forget(client.who.number);
        co_await commons_.state.abandon(client.state);
    }
    // What its calls do they have begun before.
    for (;;) {
        out.running = 0;
        for (const auto& s : sessions)
            out.running += s->running();
        if (out.running == 0 || commons_.state.now() >= until)
            break;
        const bool goes_on = co_await sleep_for(look_again);
        if (!goes_on)
            break;
    }
    co_return out;
}

task<unended_client> evictions::how_far(std::string id)
{
    unended_client out;
    std::uint64_t number = 0;
    if (std::from_chars(id.data(), id.data() + id.size(), number, 16).ec != std::errc())
        co_return out;
    const auto meant = [number](const files::client_label& one) { return one.number == number; };
    const std::vector<known_client> found = co_await find_in(commons_, meant, 1);
    if (found.empty() || found.front().state == files::nobody)
        co_return out;
    const files::client_id client = found.front().state;
    files::client_book& book = commons_.state.clients();
    out.is_there = true;
    out.waits_for_store = book.waits_for_store(client);
    out.has = book.holdings_of(client);
    co_return out;
}

} // namespace verbena::nfs::v4
