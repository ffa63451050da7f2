// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/nfs/server/v4/commons.hpp>
#include <verbena/protocols/nfs/server/v4/state_answers.hpp>

#include <verbena/core/net/refusals.hpp>
#include <verbena/core/printable.hpp>
#include <verbena/core/siphash.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/xdr/byte_order.hpp>

#include <array>
#include <cstdio>
#include <new>
#include <utility>

namespace verbena::nfs::v4 {

namespace {

// Another one at each start where it goes by the start's epoch.
siphash_key key_for(const handle_key& secret, std::uint64_t what, std::uint32_t epoch = 0) noexcept
{
    siphash_key made;
    std::array<std::byte, 16> text{};
    xdr::store_u64(text.data(), what);
    xdr::store_u32(text.data() + 8, epoch);
    for (const std::size_t half : {0, 8}) {
        text[15] = std::byte(half);
        xdr::store_u64(made.data() + half, siphash(secret, text));
    }
    return made;
}
// Whoever finds out about one knows nothing of the others.
constexpr std::uint64_t for_sessions = 0x73657373'696f6e73; // "sessions"
constexpr std::uint64_t for_state = 0x73746174'65000000;    // "state"
constexpr std::uint64_t for_v40 = 0x76657273'696f6e30;      // "version0"

std::string owner_of(const handle_key& key)
{
    static constexpr std::array<std::byte, 4> what = {std::byte('n'), std::byte('f'), std::byte('s'),
                                                      std::byte('4')};
    std::array<char, 17> digits{};
    std::snprintf(digits.data(), digits.size(), "%016llx",
                  static_cast<unsigned long long>(siphash(key, what)));
    return "verbena-" + std::string(digits.data());
}

} // namespace

server_commons::server_commons(const export_table& table, const handle_key& secret,
                               std::span<shard* const> homes, files::recovery_store& store,
                               const files::state_options& options, std::int64_t now,
                               const session_limits& limits)
    : exports(table),
      key(secret),
      started(now),
      owner(owner_of(secret)),
      callbacks(*this),
      state(homes, store, callbacks, options, key_for(secret, for_state, options.epoch)),
      sessions(key_for(secret, for_sessions), options.epoch, options.lease, limits),
      v40(state, key_for(secret, for_v40), limits)
{
    state.ask_holders(callbacks);
}

// On the clients' home. A client that no session names has nothing to come back for, however much it has.
task<std::size_t> server_commons::end_lapsed(std::vector<files::client_id> clients, ending what,
                                             std::size_t most)
{
    files::client_book& book = state.clients();
    std::size_t ended = 0;
    for (const files::client_id known : clients) {
        if (ended == most)
            break;
        const auto is = book.state_of(known);
        const session_table::name named = sessions.name_of(known);
        if (!is || *is == files::client_state::active || named.creating)
            continue;
        const auto used = book.is_in_use(known);
        const bool is_named = named.client != 0 || v40.clients().knows(known);
        const bool may_come_back = what == ending::of_what_is_lost && is_named &&
                                   *is == files::client_state::courtesy && used && *used;
        if (may_come_back)
            continue;
        if (named.client != 0)
            sessions.forget(named.client);
        v40.forget(known);
        co_await state.abandon(known);
        ++ended;
    }
    co_return ended;
}

task<void> server_commons::tend()
{
    while (co_await sleep_for(state.clients().options().lease)) {
        // What there is no memory for is done a lease later.
        try {
            task<void> tending = tend_once();
            co_await tending;
        } catch (const std::bad_alloc&) {
        }
    }
}

task<void> server_commons::tend_once()
{
    std::vector<files::client_id> lapsed = state.clients().lapsed();
    task<std::size_t> ending_them = end_lapsed(std::move(lapsed), ending::of_what_is_lost, SIZE_MAX);
    (void)co_await ending_them;
    co_await state.forget_abandoned();
    const task_context& context = co_await current_context();
    sessions.drop_unconfirmed(context.shard->now());
    v40.paths().tidy();
    // All of them each time, and others' calls between a thousand and the next.
    for (bool more = true; more;) {
        task<bool> tending = v40.tend(context.shard->clock().now());
        more = co_await tending;
        if (more)
            more = co_await sleep_for(std::chrono::milliseconds(1));
    }
}

// `choose(book)`, on the clients' home, names those that may be ended.
template<class Choose>
task<bool> server_commons::end_some(Choose choose)
{
    // Enough for those that come meanwhile.
    constexpr std::size_t at_once = 16;
    task<std::size_t> making = state.at_clients([this, &choose](files::client_book& book) {
        return end_lapsed(choose(book), ending::of_each, at_once);
    });
    co_return co_await making != 0;
}

// To end a client of another minor version would be of no use.
task<bool> server_commons::expire_lapsed(session_table::shortage of, std::string_view from)
{
    const task_context& context = co_await current_context();
    if (!sessions.may_expire_lapsed(of, from, context.shard->clock().now()))
        co_return false;
    const auto choose = [this, of, from](files::client_book& book) {
        if (of == session_table::shortage::of_peer)
            return sessions.states_of(from);
        std::vector<files::client_id> those = book.lapsed();
        std::erase_if(those, [this](files::client_id c) { return sessions.name_of(c).client == 0; });
        return those;
    };
    co_return co_await end_some(choose);
}

task<bool> server_commons::expire_lapsed_v40(session_table::shortage of, std::string_view from)
{
    const auto choose = [this, of, from](files::client_book& book) {
        std::vector<files::client_id> those;
        if (!v40.clients().may_expire_lapsed(of, from, state.now()))
            return those;
        if (of == session_table::shortage::of_peer)
            return v40.clients().states_of(from);
        those = book.lapsed();
        std::erase_if(those, [this](files::client_id c) { return !v40.clients().knows(c); });
        return those;
    };
    co_return co_await end_some(choose);
}

namespace {

task<result<void>> keep_rival() { co_return error(files::errc::client_busy); }

} // namespace

// Nothing comes between the question and the end of what it has: see client_book::take().
task<nfsstat4> server_commons::end_rival(files::client_id client)
{
    const auto ending = [this, client](files::client_book&) -> task<result<void>> {
        const session_table::name named = sessions.name_of(client);
        // Who has sessions and nothing else gives way as who has something: when the lease is over.
        const name_rule rule = named.has_sessions ? name_rule::lapsed : name_rule::unused;
        if (named.creating || named.running || !state.yields(client, rule))
            return keep_rival();
        return state.forget(client);
    };
    const result<void> ended = co_await state.at_clients(ending);
    const bool keeps = !ended && ended.error() == files::errc::client_busy;
    co_return keeps ? nfsstat4::clid_inuse : status_of_state(ended);
}

void server_commons::note_shared_name(std::span<const std::byte> name, std::string_view holder,
                                      std::string_view from)
{
    const std::string_view text(reinterpret_cast<const char*>(name.data()), name.size());
    count_refusal(refused::client_name);
    log_limited(shared_names_, log_level::warning, "nfs",
                "a client has the name of another one whose lease runs, and does not get in before that is "
                "over; it may have "
                "moved or restarted, but hosts that were cloned, and containers, often have one name",
                {{"name", printable(text)},
                 {"waits", from},
                 {"has_it", holder},
                 {"cure", "give each its own, by nfs.nfs4_unique_id or its host name (docs/howto/nfs4.md)"}});
}

task<bool> server_commons::expire_lapsed_of_any()
{
    const auto choose = [this](files::client_book& book) {
        return expired_of_any_.may(state.now()) ? book.lapsed() : std::vector<files::client_id>();
    };
    co_return co_await end_some(choose);
}

} // namespace verbena::nfs::v4
