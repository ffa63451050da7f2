// SPDX-License-Identifier: Apache-2.0
// An open that cuts its file and runs out of memory leaves nothing behind, nor does it cut what it is refused. Its
// caller is on another shard than the state. And what time does goes on where memory ran out. A program of its own:
// here each allocation fails in its turn.
#include <boost/test/unit_test.hpp>

#include "fake_backend.hpp"
#include "files_fixture.hpp"

#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/nfs/server/exports.hpp>
#include <verbena/protocols/nfs/server/state_home.hpp>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <semaphore>
#include <string_view>
#include <thread>

namespace {

std::atomic<int> fails_at{0}; // the allocation that fails, from 1; 0: none
std::atomic<bool> has_failed{false};

} // namespace

void* operator new(std::size_t size)
{
    const bool fails = fails_at.load() > 0 && fails_at.fetch_sub(1) == 1;
    if (fails)
        has_failed = true;
    void* const made = fails ? nullptr : std::malloc(size);
    if (made == nullptr)
        throw std::bad_alloc();
    return made;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

BOOST_AUTO_TEST_SUITE(nfs_no_memory_test)

using namespace verbena;
using namespace verbena::test;

namespace {

class deaf_handler final : public files::state_handler {
public:
    void recall(const files::recall_notice&) noexcept override {}
    void recall_any(files::client_id, std::size_t) noexcept override {}
    void lock_available(const files::lock_notice&) noexcept override {}
    time_point last_heard(files::client_id) noexcept override { return time_point::min(); }
};

// Its threads are new, so that no frame of a coroutine is left from a run before.
struct world {
    world()
    {
        runtime_options o;
        o.shards = 2;
        rt = std::move(*runtime::start(o));
        state.emplace(std::array{&rt->at(0)}, store, handler, files::state_options(), verbena::siphash_key());
        for (files::client_id& c : clients) {
            c = rt->call(0,
                         [&](shard&) { return *state->clients().add_client(&c == &clients[0] ? "a" : "b"); });
            const auto complete = [&](shard&) -> task<bool> {
                const auto done = co_await state->reclaim_complete(c);
                co_return done.has_value();
            };
            BOOST_REQUIRE(rt->run(0, complete));
        }
    }
    ~world() { rt->stop(); }
    files::open_request asks(files::client_id client, files::share deny)
    {
        files::open_request r;
        r.client = client;
        r.owner = owner;
        r.file = backend.root();
        r.access = files::share::both;
        r.deny = deny;
        r.want = files::delegation_want::none;
        return r;
    }
    /// The `at`th allocation fails. True if the open succeeded.
    bool cuts(int at)
    {
        const auto open = [&](shard& here) -> task<bool> {
            files::open_request r = asks(clients[0], files::share::both);
            r.truncates = true;
            state_home::opening file;
            file.backend = &backend;
            file.file = r.file.key;
            file.here = &state->operations().on(here);
            bool opened = false;
            fails_at = at;
            try {
                const auto done = co_await state->open(r, file);
                opened = done.has_value();
            } catch (const std::bad_alloc&) {
            }
            fails_at = 0;
            co_return opened;
        };
        return rt->run(1, open);
    }
    /// Whether another client's open finds nothing in its way.
    bool is_free()
    {
        return rt->call(0, [&](shard&) {
            files::pending_open p;
            return state->table().begin_open(asks(clients[1], files::share::both), p).has_value();
        });
    }

    using state_home = nfs::state_home;
    static inline const std::array<std::byte, 1> owner{std::byte('o')};
    fake_backend backend;
    deaf_handler handler;
    files::no_recovery_store store;
    std::unique_ptr<runtime> rt;
    std::optional<state_home> state;
    std::array<files::client_id, 2> clients{};
};

} // namespace

BOOST_AUTO_TEST_CASE(an_open_that_cuts_its_file_and_has_no_memory_leaves_nothing)
{
    int failures = 0;
    for (int at = 1;; ++at) {
        world w;
        has_failed = false;
        const bool opened = w.cuts(at);
        if (!has_failed) {
            BOOST_TEST(opened);
            break;
        }
        ++failures;
        if (!opened)
            BOOST_TEST(w.is_free(), "allocation " << at);
    }
    BOOST_TEST(failures > 10);
}

namespace {

/// The file is cut by an open of a client that is forgotten meanwhile, and somebody else may have written it by then.
struct forgotten {
    /// `meanwhile` is called on the opener's shard when the open is on its way home.
    template<class Meanwhile>
    bool opens(files::share deny, Meanwhile meanwhile)
    {
        const auto open = [&](shard& here) -> task<bool> {
            files::open_request r = w.asks(w.clients[0], deny);
            r.truncates = true;
            nfs::state_home::opening file;
            file.backend = &w.backend;
            file.file = r.file.key;
            file.here = &w.state->operations().on(here);
            bool opened = true;
            scope s(here.reactor());
            s.spawn([&]() -> task<void> {
                const auto done = co_await w.state->open(r, file);
                opened = done.has_value();
            });
            task<void> other = meanwhile(here);
            co_await other;
            co_await s.join();
            co_return opened;
        };
        return w.rt->run(1, open);
    }
    world w;
};

} // namespace

BOOST_FIXTURE_TEST_CASE(an_open_that_was_dropped_while_it_waited_for_io_cuts_nothing, forgotten)
{
    const auto meanwhile = [&](shard& here) -> task<void> {
        files::under_way reading;
        reading.begin(w.state->operations().on(here), 0, w.backend.root(), files::operation::read);
        const auto gone = co_await w.state->forget(w.clients[0]);
        BOOST_TEST(gone.has_value());
    };
    BOOST_TEST(!opens(files::share::both, meanwhile));
    BOOST_TEST(w.backend.called == "");
}

BOOST_FIXTURE_TEST_CASE(an_open_that_was_dropped_on_its_way_to_the_cut_cuts_nothing, forgotten)
{
    std::binary_semaphore is_sent{0}, is_gone{0};
    bool gone = false;
    std::jthread forgets([&] {
        is_sent.acquire();
        const auto forgotten = w.rt->run(0, [&](shard&) { return w.state->forget(w.clients[0]); });
        gone = forgotten.has_value();
        is_gone.release();
    });
    const auto meanwhile = [&](shard&) -> task<void> {
        is_sent.release();
        is_gone.acquire(); // the shard hears nothing meanwhile
        co_return;
    };
    BOOST_TEST(!opens(files::share::none, meanwhile));
    BOOST_TEST(gone);
    BOOST_TEST(w.backend.called == "");
}

// What there is no memory for is done a second later.
BOOST_AUTO_TEST_CASE(what_is_due_is_done_again_where_there_was_no_memory)
{
    int failures = 0;
    for (bool failed = true; failed; failures += failed) {
        bool revoked = false;
        const auto recalls_in_vain = [&, at = failures + 1] {
            files_fixture f;
            const files::client_id c = f.client("a");
            const auto o =
                f.open(c, "o", "f", files::share::read, files::share::none, files::delegation_want::any);
            BOOST_REQUIRE((o && o->delegation));
            const auto all = [&]() -> task<void> {
                scope s(*f.shard);
                s.spawn([&] { return f.book->tend(); });
                s.spawn([&] { return f.table->tend(); });
                BOOST_TEST(f.table->recall(o->delegation->id).has_value());
                (void)co_await sleep_for(f.table->options().recall_time - 1ms);
                has_failed = false;
                fails_at = at;
                (void)co_await sleep_for(2ms);
                fails_at = 0;
                (void)co_await sleep_for(5s);
                revoked = f.table->stats().revocations.value() == 1;
                s.request_stop();
                co_await s.join();
            };
            f.run(all());
        };
        std::jthread(recalls_in_vain)
            .join(); // a new one, so that no frame of a coroutine is left from a run before
        failed = has_failed;
        BOOST_TEST(revoked, "allocation " << failures + 1);
    }
    BOOST_TEST(failures > 0); // an optimizer leaves one
}

// What lies in no list would stay, and end nowhere.
BOOST_AUTO_TEST_CASE(an_open_and_a_lock_for_which_there_was_no_memory_leave_nothing)
{
    int failures = 0;
    for (bool failed = true; failed; failures += failed) {
        const auto opens_and_locks = [&, at = failures + 1] {
            files_fixture f;
            const files::client_id c = f.client("a");
            const auto request = f.request(c, "an owner whose name is not short", "f", files::share::both,
                                           files::share::none, files::delegation_want::any);
            std::optional<files::opened> opened;
            std::optional<files::lock_request> lock;
            bool is_locked = false;
            has_failed = false;
            fails_at = at;
            try {
                if (const auto o = f.table->open(request))
                    opened = *o;
                if (opened)
                    lock = f.lock_of(c, opened->id, "f");
                is_locked = lock && f.table->lock(*lock).has_value();
            } catch (const std::bad_alloc&) {
            }
            fails_at = 0;
            const files::state_stats& stats = f.table->stats();
            BOOST_TEST(stats.open_owners.value() == stats.opens.value(), "allocation " << at);
            BOOST_TEST(stats.lock_owners.value() == stats.lock_states.value(), "allocation " << at);
            if (opened)
                BOOST_TEST(f.table->close(c, opened->id, request.file).has_value());
            failed = has_failed;
            if (!failed)
                BOOST_TEST(is_locked);
        };
        std::jthread(opens_and_locks).join();
    }
    BOOST_TEST(failures > 10);
}

// A reload that has come so far can't fail any more.
BOOST_AUTO_TEST_CASE(a_list_of_exports_is_published_without_memory)
{
    nfs::export_table table;
    for (int i = 0; i < 65; ++i) { // with as many of before as there may be
        auto list = std::make_shared<nfs::export_list>(*table.newest(), 1);
        has_failed = false;
        fails_at = 1;
        table.publish(std::move(list), 1);
        fails_at = 0;
        BOOST_TEST_REQUIRE(!has_failed);
    }
    BOOST_TEST(table.drop_old() == 65u);
}

// A lock or an unlock is done or was never asked for, also where an owner has locks by two opens.
BOOST_AUTO_TEST_CASE(a_lock_without_memory_changes_nothing)
{
    int failures = 0;
    for (bool failed = true; failed; failures += failed) {
        files_fixture f;
        f.start([](files::state_options& o) { o.limits.lockers_per_file = 2; });
        const files::client_id c = f.client("a"), other = f.client("b");
        const storage::handle file = file_named("f");
        const auto first = f.open(c, "one", "f", files::share::both);
        const auto second = f.open(c, "two", "f", files::share::both);
        BOOST_REQUIRE((first && second));
        auto whole = f.lock_of(c, first->id, "f");
        whole.bytes = {0, 99};
        const auto has_whole = f.table->lock(whole);
        auto within = f.lock_of(c, second->id, "f");
        within.bytes = {40, 59};
        BOOST_REQUIRE(has_whole);
        const auto is_whole = [&](files::byte_range bytes) {
            files::lock_holder held;
            return !f.table->test_lock(other, file, owner_named("l"), bytes, files::lock_type::read, &held) &&
                   held.bytes == files::byte_range{0, 99};
        };
        const auto fails = [&](auto&& does) {
            has_failed = false;
            fails_at = failures + 1;
            try {
                does();
            } catch (const std::bad_alloc&) {
            }
            fails_at = 0;
            failed = failed || has_failed;
            return has_failed.load();
        };
        failed = false;
        // It takes the middle from the other open's.
        if (fails([&] { (void)f.table->lock(within); })) {
            BOOST_TEST(is_whole(within.bytes), "allocation " << failures + 1);
            BOOST_TEST(f.table->stats().locks.value() == 1);
            BOOST_TEST(f.table->lock(within).has_value());
        }
        BOOST_TEST(f.table->stats().locks.value() == 3);
        BOOST_REQUIRE(f.table->close(c, second->id, file));
        BOOST_TEST(f.table->stats().locks.value() == 2);
        // What its state has nothing of by now.
        const files::stateid its{0, has_whole->other};
        BOOST_REQUIRE(f.table->unlock(c, its, file, {0, 99}));
        files::lock_request again = whole;
        again.new_owner = false;
        again.id = its;
        if (fails([&] { (void)f.table->lock(again); })) {
            BOOST_TEST(f.table->stats().locks.value() == 0);
            BOOST_TEST(f.table->lock(again).has_value());
        }
        if (fails([&] { (void)f.table->unlock(c, its, file, {40, 59}); })) {
            BOOST_TEST(is_whole({40, 59}), "allocation " << failures + 1);
            BOOST_TEST(f.table->unlock(c, its, file, {40, 59}).has_value());
        }
        BOOST_TEST(f.table->stats().locks.value() == 2);
        BOOST_REQUIRE(f.table->close(c, first->id, file));
        BOOST_TEST(f.table->stats().locks.value() == 0);
        BOOST_TEST(f.table->stats().files.value() == 0);
    }
    BOOST_TEST(failures > 2);
}

BOOST_AUTO_TEST_SUITE_END()
