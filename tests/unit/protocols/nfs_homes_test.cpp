// SPDX-License-Identifier: Apache-2.0
// Files whose homes are on several shards, as the programs of all versions ask about them: what is asked comes to the
// file's home, from whichever shard.
#include "fake_backend.hpp"
#include "files_store.hpp"

#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/reactor/simulated_shards.hpp>
#include <verbena/protocols/nfs/server/state_home.hpp>

#include <boost/test/unit_test.hpp>

#include <array>
#include <atomic>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

BOOST_AUTO_TEST_SUITE(nfs_homes_test)

using namespace verbena;
using namespace verbena::test;

namespace {

constexpr unsigned homes = 3;

std::span<const std::byte> named(std::string_view name)
{
    return std::as_bytes(std::span(name.data(), name.size()));
}

class silent_handler final : public files::state_handler {
public:
    void recall(const files::recall_notice&) noexcept override {}
    void recall_any(files::client_id, std::size_t) noexcept override {}
    void lock_available(const files::lock_notice&) noexcept override {}
    time_point last_heard(files::client_id) noexcept override { return time_point::min(); }
};

struct spread_state {
    explicit spread_state(std::uint64_t seed = 1) : shards(clock, seed)
    {
        for (unsigned i = 0; i < homes; ++i)
            shards.add(memory);
        const std::array<shard*, homes> all = {&shards.at(0), &shards.at(1), &shards.at(2)};
        files::state_options o;
        o.epoch = 3;
        state.emplace(all, store, handler, std::move(o), siphash_key());
    }
    ~spread_state() { shards.stop(); }
    /// A space in which the root has that home.
    std::uint32_t space(unsigned home) const
    {
        const files::table_commons same(siphash_key(), homes);
        for (std::uint32_t s = 1;; ++s)
            if (same.home_of(files::file_key(s, backend.root())) == home)
                return s;
    }
    files::exported_file file(unsigned home) const
    {
        return {files::file_key(space(home), backend.root()), space(home)};
    }
    task<files::client_id> client(std::string_view key)
    {
        const auto made = co_await state->add_client(key);
        BOOST_TEST_REQUIRE(made.has_value());
        const auto complete = co_await state->reclaim_complete(made->client);
        BOOST_TEST_REQUIRE(complete.has_value());
        co_return made->client;
    }
    task<result<files::opened>> open(files::client_id c, unsigned home, bool cuts = false)
    {
        files::open_request r;
        r.client = c;
        r.owner = named("o");
        r.file = file(home);
        r.access = files::share::both;
        r.deny = files::share::both;
        r.want = files::delegation_want::none;
        r.truncates = cuts;
        nfs::state_home::opening opening;
        opening.backend = &backend;
        opening.file = backend.root();
        opening.space = space(home);
        const task_context& context = co_await current_context();
        for (unsigned i = 0; i < homes; ++i)
            if (context.shard == &shards.at(i).reactor())
                opening.here = &state->operations().on(shards.at(i));
        co_return co_await state->open(r, opening);
    }
    /// Whether that home, and which others, have something of the client's owner.
    task<std::vector<unsigned>> where(files::client_id c)
    {
        std::vector<unsigned> all;
        for (unsigned home = 0; home < homes; ++home) {
            const auto ask = [this, c, home] { return state->table(home).has_owner(c, false, named("o")); };
            const bool has = co_await shards.at(home).run(ask);
            if (has)
                all.push_back(home);
        }
        co_return all;
    }
    /// From each shard in turn.
    template<class Body>
    void from_each(Body body)
    {
        for (unsigned i = 0; i < homes; ++i)
            shards.run(shards.at(i), body());
    }

    virtual_clock clock;
    memory_budget memory{std::size_t(4) << 20, homes};
    simulated_shards shards;
    fake_backend backend;
    silent_handler handler;
    files::no_recovery_store store;
    std::optional<nfs::state_home> state;
};

bool is(const result<void>& done, files::errc why) { return !done && done.error() == why; }

} // namespace

BOOST_AUTO_TEST_CASE(what_is_asked_of_a_file_comes_to_its_home)
{
    spread_state s;
    s.from_each([&]() -> task<void> {
        const files::client_id a = co_await s.client("a");
        for (unsigned home = 0; home < homes; ++home) {
            for (const bool cuts : {false, true}) {
                const auto opened = co_await s.open(a, home, cuts);
                BOOST_TEST_REQUIRE(opened.has_value());
                const auto at = co_await s.where(a);
                BOOST_TEST((at == std::vector<unsigned>{home}));
                const files::exported_file file = s.file(home);
                files::lock_request lock;
                lock.client = a;
                lock.file = file;
                lock.new_owner = true;
                lock.id = opened->id;
                lock.owner = named("l");
                lock.bytes = {0, 9};
                lock.type = files::lock_type::write;
                files::lock_holder holder;
                const auto locked = co_await s.state->lock(lock, holder);
                BOOST_TEST_REQUIRE(locked.has_value());
                nfs::state_home::io_terms terms;
                const auto may = co_await s.state->check_io(a, *locked, file, files::operation::write, terms);
                BOOST_TEST(may.has_value());
                const auto others = co_await s.state->check_io_without_open(files::nobody, file,
                                                                            files::operation::read, false);
                BOOST_TEST(is(others, files::errc::locked));
                const auto unlocked = co_await s.state->unlock(a, *locked, file, {0, 9});
                BOOST_TEST_REQUIRE(unlocked.has_value());
                nfs::state_home::losses left{.revoked = true};
                const auto freed = co_await s.state->free(a, *unlocked, left);
                BOOST_TEST(freed.has_value());
                BOOST_TEST(!left.revoked);
                // A stateid of a file is none of another one, which has another home.
                const auto other = co_await s.state->close(a, opened->id, s.file((home + 1) % homes));
                BOOST_TEST(is(other, files::errc::bad_stateid));
                const auto closed = co_await s.state->close(a, opened->id, file);
                BOOST_TEST(closed.has_value());
                BOOST_TEST(!s.state->has_any_state());
            }
        }
        const auto gone = co_await s.state->forget(a);
        BOOST_TEST(gone.has_value());
    });
}

BOOST_AUTO_TEST_CASE(stateids_of_several_homes_are_answered_in_the_order_of_asking)
{
    spread_state s;
    s.from_each([&]() -> task<void> {
        const files::client_id a = co_await s.client("a");
        std::vector<files::stateid> ids;
        std::set<std::size_t> bad;
        for (const unsigned home : {2u, 0u, 1u}) {
            const auto opened = co_await s.open(a, home);
            BOOST_TEST_REQUIRE(opened.has_value());
            ids.push_back(opened->id);
            // That nobody gave out, of whichever home.
            bad.insert(ids.size());
            ids.push_back(opened->id);
            ids.back().other[5] = std::byte(0xff);
        }
        const auto answers = co_await s.state->test(a, ids);
        BOOST_TEST_REQUIRE(answers.size() == ids.size());
        for (std::size_t i = 0; i < ids.size(); ++i)
            BOOST_TEST(answers[i].has_value() == !bad.contains(i));
        const auto gone = co_await s.state->forget(a);
        BOOST_TEST(gone.has_value());
        BOOST_TEST(!s.state->has_any_state());
    });
}

// Its share bits are in force at the file's home while the disk works, on the caller's shard.
BOOST_AUTO_TEST_CASE(an_open_whose_cut_fails_ends_at_the_files_home)
{
    spread_state s;
    s.from_each([&]() -> task<void> {
        const files::client_id a = co_await s.client("a"), b = co_await s.client("b");
        for (unsigned home = 0; home < homes; ++home) {
            s.backend.fail = error(std::errc::no_space_on_device);
            const auto cut = co_await s.open(a, home, true);
            BOOST_TEST(!cut.has_value());
            s.backend.fail.reset();
            const auto theirs = co_await s.open(b, home, true);
            BOOST_TEST(theirs.has_value());
        }
        for (const files::client_id c : {a, b}) {
            const auto gone = co_await s.state->forget(c);
            BOOST_TEST(gone.has_value());
        }
        BOOST_TEST(!s.state->has_any_state());
    });
}

// The holder of a delegation is asked where its client is called.
BOOST_AUTO_TEST_CASE(a_holder_is_asked_on_the_clients_home)
{
    spread_state s;
    struct inquiry final : nfs::holder_inquiry {
        explicit inquiry(const shard& h) noexcept : home(h) {}
        task<result<nfs::held_attributes>> ask(files::client_id, const files::stateid&,
                                               const files::exported_file&, duration) override
        {
            asked += home.reactor().is_here();
            elsewhere += !home.reactor().is_here();
            co_return nfs::held_attributes{0, 77};
        }
        const shard& home;
        unsigned asked = 0, elsewhere = 0;
    } holders(s.shards.at(0));
    s.state->ask_holders(holders);
    unsigned looks = 0;
    s.from_each([&]() -> task<void> {
        const files::client_id a = co_await s.client("a");
        const auto callable = co_await s.state->set_callable(a);
        BOOST_TEST(callable.has_value());
        for (unsigned home = 0; home < homes; ++home) {
            files::open_request r;
            r.client = a;
            r.owner = named("o");
            r.file = s.file(home);
            r.access = files::share::both;
            r.want = files::delegation_want::write;
            r.change = 5;
            nfs::state_home::opening opening;
            opening.backend = &s.backend;
            opening.file = s.backend.root();
            opening.space = s.space(home);
            const auto opened = co_await s.state->open(r, opening);
            BOOST_TEST_REQUIRE((opened && opened->delegation));
            nfs::state_home::looking looking;
            looking.backend = &s.backend;
            looking.file = s.backend.root();
            looking.known = s.file(home);
            const auto looked = co_await s.state->look(files::nobody, looking);
            BOOST_TEST_REQUIRE((looked && *looked));
            BOOST_TEST((*looked)->size == 77u);
            ++looks;
        }
        const auto gone = co_await s.state->forget(a);
        BOOST_TEST(gone.has_value());
    });
    BOOST_TEST(holders.asked == looks);
    BOOST_TEST(holders.elsewhere == 0u);
}

// Clients come, open, are refused for each other, and go, from all shards at once. A limit that they share is never passed
// by more than the other shards' one open each.
BOOST_AUTO_TEST_CASE(homes_on_threads_of_their_own_agree)
{
    runtime_options o;
    o.shards = homes;
    silent_handler handler;
    files::no_recovery_store store;
    const auto rt = std::move(*runtime::start(o));
    files::state_options limited;
    limited.limits.opens = 6;
    limited.limits.peer_percent = 100;
    std::optional<nfs::state_home> state;
    const std::array<shard*, homes> all = {&rt->at(0), &rt->at(1), &rt->at(2)};
    state.emplace(all, store, handler, limited, siphash_key());
    const fake_backend backend;
    std::atomic<int> open{0}, most{0}, failed{0};
    const auto work = [&](shard& here) -> task<void> {
        const std::string key = "client of " + std::to_string(here.index());
        for (int life = 0; life < 20; ++life) {
            const auto made = co_await state->add_client(key);
            failed += !made;
            if (!made)
                co_return;
            (void)co_await state->reclaim_complete(made->client);
            int has = 0;
            for (std::uint32_t n = 0; n < 20; ++n) {
                files::open_request r;
                r.client = made->client;
                r.owner = named("o");
                r.file = {files::file_key(1 + (n + 7 * here.index()) % 20, backend.root()), 1};
                r.access = files::share::read;
                r.deny = files::share::write;
                r.want = files::delegation_want::none;
                const nfs::state_home::opening opening;
                const auto opened = co_await state->open(r, opening);
                if (!opened)
                    continue;
                const int now = ++open;
                for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
                }
                if (n % 3 == 0) {
                    ++has;
                    continue;
                }
                --open;
                const auto closed = co_await state->close(made->client, opened->id, r.file);
                failed += !closed;
            }
            open -= has;
            const auto gone = co_await state->forget(made->client);
            failed += !gone;
        }
    };
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < homes; ++i)
        threads.emplace_back([&, i] { rt->run(i, work); });
    for (std::thread& t : threads)
        t.join();
    BOOST_TEST(failed == 0);
    BOOST_TEST(!state->has_any_state());
    BOOST_TEST(most > 0);
    BOOST_TEST(most <= 6 + int(homes) - 1);
    rt->stop();
}

BOOST_AUTO_TEST_SUITE_END()
