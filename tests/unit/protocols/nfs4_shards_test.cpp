// SPDX-License-Identifier: Apache-2.0
// One session whose connections come by two shards, while files have their homes on both of them and clients on the first.
#include "nfs4_called_client.hpp"
#include "nfs4_user_names.hpp"

#include <verbena/core/reactor/runtime.hpp>
#include <verbena/core/task/sleep.hpp>
#include <verbena/protocols/storage/gated_backend.hpp>

#include <atomic>
#include <future>
#include <mutex>
#include <new>
#include <thread>

BOOST_AUTO_TEST_SUITE(nfs4_shards_test)

using namespace verbena;
using namespace verbena::test;

namespace {

/// Writes wait while it is `held`, on whichever shard, and so do changes of attributes if it `sees_cuts`. Files are
/// not made while it `throws`.
class slow_files final : public storage::gated_backend {
public:
    using gated_backend::gated_backend;
    bool gates(storage::operation op) const noexcept override
    {
        return op == storage::operation::write || op == storage::operation::create ||
               (op == storage::operation::setattr && sees_cuts);
    }
    task<result<void>> enter(storage::operation op, const storage::request&, std::uint64_t) override
    {
        if (op == storage::operation::setattr) {
            const task_context& context = co_await current_context();
            cut_on = context.shard;
            if (cut_fails)
                throw std::bad_alloc();
        }
        if (op == storage::operation::create) {
            if (throws)
                throw std::bad_alloc();
            co_return result<void>();
        }
        ++waiting;
        while (held)
            (void)co_await sleep_for(1ms);
        --waiting;
        co_return result<void>();
    }
    std::atomic<bool> held{false}, throws{false}, sees_cuts{false}, cut_fails{false};
    std::atomic<const reactor*> cut_on{nullptr};
    std::atomic<int> waiting{0};
};

struct two_shards {
    two_shards()
    {
        nfs::export_options made;
        made.pseudo = "/export";
        made.backend = &slow;
        BOOST_REQUIRE(exports.add(made));
        runtime_options o;
        o.shards = 2;
        auto started = runtime::start(o);
        BOOST_REQUIRE(started);
        rt = std::move(*started);
        files::state_options state;
        commons.emplace(exports, key, std::array{&rt->at(0), &rt->at(1)}, store, state, 1'700'000'000);
        for (std::size_t i = 0; i < 2; ++i) {
            const auto make = [&](shard& s) {
                programs[i].emplace(*commons, s);
                dispatchers[i].emplace(s.reactor());
                dispatchers[i]->add(*programs[i]);
            };
            rt->call(i, make);
        }
    }
    ~two_shards()
    {
        for (std::size_t i = 0; i < 2; ++i) {
            const auto end = [&](shard&) {
                dispatchers[i].reset();
                programs[i].reset();
            };
            rt->call(i, end);
        }
        rt->stop();
    }
    std::unique_ptr<memory_call> prepare(std::size_t at, const std::function<void(compound_request&)>& write)
    {
        auto c = std::make_unique<memory_call>(rt->at(at).buffers(), from);
        xdr::encoder out = c->begin(100003, 4, 1, nullptr);
        compound_head head;
        head.minorversion = minor;
        compound_request request(out, head);
        write(request);
        c->end(out);
        return c;
    }
    using calls = std::vector<std::unique_ptr<memory_call>>;
    /// One after the other, on a shard.
    void serve(std::size_t at, const calls& all)
    {
        const auto work = [&](shard&) -> task<void> {
            for (const auto& c : all)
                (void)co_await dispatchers[at]->dispatch(*c);
        };
        rt->run(at, work);
    }
    template<class Results, class Args>
    Results alone(const Args& args)
    {
        calls one;
        one.push_back(prepare(0, [&](compound_request& out) { out.add(args); }));
        serve(0, one);
        answer4 out(one[0]->reply());
        return out.good<Results>();
    }

    blocking_pool lane{1};
    std::unique_ptr<storage::file_backend> files = nfs4_fixture::make_files(lane);
    slow_files slow{*files};
    nfs::export_table exports;
    nfs::handle_key key{std::byte(1)};
    std::unique_ptr<runtime> rt;
    files::no_recovery_store store;
    std::optional<server_commons> commons;
    std::array<std::optional<server>, 2> programs;
    std::array<std::optional<rpc::service_dispatcher>, 2> dispatchers;
    rpc::peer from{"127.0.0.1", "127.0.0.1:700", "tcp", 700};
    std::uint32_t minor = 1;
};

} // namespace

BOOST_AUTO_TEST_CASE(a_session_is_served_by_two_shards_at_once)
{
    two_shards s;
    static constexpr std::array<std::string_view, 2> owners = {"first", "second"};
    EXCHANGE_ID4args exchange;
    exchange.clientowner.ownerid = std::as_bytes(std::span(owners[0]));
    const auto known = s.alone<EXCHANGE_ID4res>(exchange);
    const auto made = s.alone<CREATE_SESSION4res>(client4::session_of(known.clientid, known.sequenceid));
    two_shards::calls reclaimed;
    reclaimed.push_back(s.prepare(0, [&](compound_request& out) {
        out.add(SEQUENCE4args{made.sessionid, 1, 2, 2, false}).add(RECLAIM_COMPLETE4args());
    }));
    s.serve(0, reclaimed);
    std::array<two_shards::calls, 2> calls;
    for (std::uint32_t i = 0; i < 2; ++i) {
        for (std::uint32_t n = 1; n <= 200; ++n) {
            const std::string name = "f" + std::to_string(n % 8); // of either home
            calls[i].push_back(s.prepare(i, [&](compound_request& out) {
                OPEN4args opening;
                opening.share_access = share4::access_both;
                opening.owner.owner = std::as_bytes(std::span(owners[i]));
                opening.openhow.opentype = opentype4::create;
                opening.claim.file = std::string_view(name);
                out.add(SEQUENCE4args{made.sessionid, n, i, 1, true})
                    .add(PUTROOTFH4args())
                    .add(LOOKUP4args{"export"})
                    .add(opening)
                    .add(WRITE4args{stateid4::current(), 0, stable_how4::unstable,
                                    std::as_bytes(std::span(owners[i]))})
                    .add(READ4args{stateid4::current(), 0, 5})
                    .add(CLOSE4args{0, stateid4::current()});
            }));
        }
    }
    std::thread other([&] { s.serve(1, calls[1]); });
    s.serve(0, calls[0]);
    other.join();
    for (const two_shards::calls& all : calls) {
        BOOST_TEST(!all.empty());
        for (const auto& c : all) {
            answer4 out(c->reply());
            BOOST_TEST_REQUIRE(out.status() == nfsstat4::ok);
            BOOST_TEST(out.operations() == 7u);
        }
    }
    BOOST_TEST(s.commons->state.total(&files::state_stats::opens) == 0);
}

// What throws on another shard than the owner's gives its turn back there: the next one would wait for ever.
BOOST_AUTO_TEST_CASE(an_owners_turn_goes_home_from_another_shard)
{
    two_shards s;
    s.minor = 0;
    s.commons->minors[0] = true;
    const auto set = s.alone<SETCLIENTID4res>(SETCLIENTID4args());
    s.alone<SETCLIENTID_CONFIRM4res>(SETCLIENTID_CONFIRM4args{set.clientid, set.setclientid_confirm});
    const auto open = [&] {
        two_shards::calls one;
        one.push_back(s.prepare(1, [&](compound_request& out) {
            OPEN4args opening;
            opening.seqid = 1;
            opening.share_access = share4::access_both;
            opening.owner = {set.clientid, std::as_bytes(std::span("opener", 6))};
            opening.openhow.opentype = opentype4::create;
            opening.claim.file = "f";
            out.add(PUTROOTFH4args()).add(LOOKUP4args{"export"}).add(opening);
        }));
        s.serve(1, one);
        return std::move(one[0]);
    };
    s.slow.throws = true;
    const auto thrown = open();
    (void)thrown->reply();
    BOOST_TEST(!thrown->header_of_reply.success());
    s.slow.throws = false;
    const auto opened = open();
    BOOST_TEST(answer4(opened->reply()).status() == nfsstat4::ok);
}

BOOST_AUTO_TEST_CASE(a_repeat_by_another_shard_gets_the_answer_of_the_call_that_runs)
{
    two_shards s;
    const auto known = s.alone<EXCHANGE_ID4res>(EXCHANGE_ID4args());
    const auto made = s.alone<CREATE_SESSION4res>(client4::session_of(known.clientid, known.sequenceid));
    OPEN4args opening;
    opening.share_access = share4::access_both;
    opening.openhow.opentype = opentype4::create;
    opening.claim.file = "f";
    two_shards::calls before;
    before.push_back(s.prepare(0, [&](compound_request& out) {
        out.add(SEQUENCE4args{made.sessionid, 1, 0, 0, false}).add(RECLAIM_COMPLETE4args());
    }));
    before.push_back(s.prepare(0, [&](compound_request& out) {
        out.add(SEQUENCE4args{made.sessionid, 2, 0, 0, false})
            .add(PUTROOTFH4args())
            .add(LOOKUP4args{"export"})
            .add(opening);
    }));
    s.serve(0, before);
    BOOST_TEST_REQUIRE(answer4(before[1]->reply()).status() == nfsstat4::ok);
    const auto write = [&](compound_request& out) {
        out.add(SEQUENCE4args{made.sessionid, 3, 0, 0, true})
            .add(PUTROOTFH4args())
            .add(LOOKUP4args{"export"})
            .add(LOOKUP4args{"f"})
            .add(WRITE4args{{}, 0, stable_how4::unstable, std::as_bytes(std::span("text", 4))});
    };
    s.slow.held = true;
    std::array<std::unique_ptr<memory_call>, 2> calls = {s.prepare(0, write), s.prepare(1, write)};
    std::array<std::promise<void>, 2> ended;
    for (std::size_t at = 0; at < 2; ++at) {
        const auto begin = [&, at](shard& here) {
            here.tasks().spawn([&s, &calls, &ended, at]() -> task<void> {
                (void)co_await s.dispatchers[at]->dispatch(*calls[at]);
                ended[at].set_value();
            });
        };
        s.rt->call(at, begin);
        while (s.slow.waiting == 0)
            std::this_thread::yield();
    }
    // It has had its turns, and neither ran nor was put off.
    for (int i = 0; i < 10; ++i)
        s.rt->call(1, [](shard&) {});
    auto answered = ended[1].get_future();
    BOOST_TEST((answered.wait_for(0s) == std::future_status::timeout));
    BOOST_TEST(s.slow.waiting == 1);
    s.slow.held = false;
    ended[0].get_future().wait();
    answered.wait();
    BOOST_TEST(answer4(calls[0]->reply()).status() == nfsstat4::ok);
    BOOST_TEST(answer4(calls[1]->reply()).status() == nfsstat4::ok);
    BOOST_TEST(std::ranges::equal(calls[0]->whole_reply(), calls[1]->whole_reply()));
    BOOST_TEST(s.programs[1]->counters().replays.value() == 1u);
}

// A shard asks where names are looked up, and then has them at hand.
BOOST_AUTO_TEST_CASE(names_of_owners_come_from_another_shard)
{
    two_shards s;
    named_accounts source;
    source.names = {{{account_kind::user, 0}, "root"}};
    user_names_options o;
    o.sends_names = true;
    user_names users(s.rt->at(0).tasks(), source, o);
    s.commons->users = &users;
    const auto known = s.alone<EXCHANGE_ID4res>(EXCHANGE_ID4args());
    const auto made = s.alone<CREATE_SESSION4res>(client4::session_of(known.clientid, known.sequenceid));
    for (const std::size_t at : {1, 1, 0}) {
        two_shards::calls one;
        static std::uint32_t sequence = 0;
        one.push_back(s.prepare(at, [&](compound_request& out) {
            out.add(SEQUENCE4args{made.sessionid, ++sequence, 0, 0, false})
                .add(PUTROOTFH4args())
                .add(GETATTR4args{{attribute::owner, attribute::owner_group}});
        }));
        s.serve(at, one);
        answer4 out(one[0]->reply());
        out.good<SEQUENCE4res>();
        out.good<PUTROOTFH4res>();
        attributes values;
        BOOST_TEST_REQUIRE(decode_attributes(out.good<GETATTR4res>().obj_attributes, values));
        BOOST_TEST(std::string_view(values.owner) == "root@example.org");
        BOOST_TEST(std::string_view(values.owner_group) == "0");
    }
    BOOST_TEST((source.asked == std::vector<std::string>{"u 0", "g 0"}));
    BOOST_TEST(s.programs[1]->counters().known_names.value() == 2u);
    s.commons->users = nullptr;
}

// Owners' numbers are kept on the clients' home, wherever their operations come, and whichever home a file has.
BOOST_AUTO_TEST_CASE(owners_of_version_0_come_by_two_shards_at_once)
{
    two_shards s;
    s.minor = 0;
    s.commons->minors[0] = true;
    const auto set = s.alone<SETCLIENTID4res>(SETCLIENTID4args());
    s.alone<SETCLIENTID_CONFIRM4res>(SETCLIENTID_CONFIRM4args{set.clientid, set.setclientid_confirm});
    static constexpr std::array<std::string_view, 2> owners = {"first", "second"};
    // The first operation that failed, of each.
    std::array<nfsstat4, 2> came_to{};
    std::mutex checks; // Boost.Test's, which are of one thread at a time
    const auto work = [&](std::size_t at) {
        const auto serve = [&](const std::function<void(compound_request&)>& write) {
            two_shards::calls one;
            {
                const std::lock_guard alone(checks);
                one.push_back(s.prepare(at, [&](compound_request& out) {
                    out.add(PUTROOTFH4args()).add(LOOKUP4args{"export"});
                    write(out);
                }));
            }
            s.serve(at, one);
            const std::lock_guard alone(checks);
            answer4 out(one[0]->reply());
            if (came_to[at] == nfsstat4::ok)
                came_to[at] = out.status();
            return out;
        };
        std::uint32_t seqid = 0;
        for (int n = 0; n < 100 && came_to[at] == nfsstat4::ok; ++n) {
            const std::string name = "f" + std::to_string(n % 8); // of either home
            OPEN4args opening;
            opening.seqid = ++seqid;
            opening.share_access = share4::access_both;
            opening.owner = {set.clientid, std::as_bytes(std::span(owners[at]))};
            opening.openhow.opentype = opentype4::create;
            opening.claim.file = std::string_view(name);
            answer4 opened = serve([&](compound_request& out) { out.add(opening); });
            std::unique_lock alone(checks);
            (void)opened.take<PUTROOTFH4res>();
            (void)opened.take<LOOKUP4res>();
            stateid4 id = opened.take<OPEN4res>().stateid;
            alone.unlock();
            if (n == 0) {
                const OPEN_CONFIRM4args confirming{id, ++seqid};
                answer4 confirmed = serve([&](compound_request& out) {
                    out.add(LOOKUP4args{std::string_view(name)}).add(confirming);
                });
                alone.lock();
                (void)confirmed.take<PUTROOTFH4res>();
                (void)confirmed.take<LOOKUP4res>();
                (void)confirmed.take<LOOKUP4res>();
                id = confirmed.take<OPEN_CONFIRM4res>().open_stateid;
                alone.unlock();
            }
            const CLOSE4args closing{++seqid, id};
            (void)serve([&](compound_request& out) {
                out.add(LOOKUP4args{std::string_view(name)})
                    .add(WRITE4args{id, 0, stable_how4::unstable, std::as_bytes(std::span(owners[at]))})
                    .add(READ4args{id, 0, 5})
                    .add(closing);
            });
        }
    };
    std::thread other([&] { work(1); });
    work(0);
    other.join();
    BOOST_TEST(came_to[0] == nfsstat4::ok);
    BOOST_TEST(came_to[1] == nfsstat4::ok);
    BOOST_TEST(s.commons->state.total(&files::state_stats::opens) == 0);
}

// A write that is under way on one shard, and an open that denies it on the home of the state.
BOOST_AUTO_TEST_CASE(an_open_waits_for_what_another_shard_writes, *boost::unit_test::timeout(60))
{
    two_shards s;
    EXCHANGE_ID4args exchange;
    const auto known = s.alone<EXCHANGE_ID4res>(exchange);
    const auto made = s.alone<CREATE_SESSION4res>(client4::session_of(known.clientid, known.sequenceid));
    const auto opening = [&](std::uint32_t n, std::uint32_t deny) {
        OPEN4args args;
        args.share_access = share4::access_both;
        args.share_deny = deny;
        args.openhow.opentype = opentype4::create;
        args.claim.file = "f";
        return s.prepare(0, [&](compound_request& out) {
            out.add(SEQUENCE4args{made.sessionid, n, 0, 1, false})
                .add(PUTROOTFH4args())
                .add(LOOKUP4args{"export"})
                .add(args)
                .add(CLOSE4args{0, stateid4::current()});
        });
    };
    two_shards::calls first, denying, write;
    first.push_back(s.prepare(0, [&](compound_request& out) {
        out.add(SEQUENCE4args{made.sessionid, 1, 1, 1, false}).add(RECLAIM_COMPLETE4args());
    }));
    first.push_back(opening(1, share4::deny_none));
    s.serve(0, first);
    answer4 opened(first[1]->reply());
    BOOST_TEST_REQUIRE(opened.status() == nfsstat4::ok);
    write.push_back(s.prepare(1, [&](compound_request& out) {
        out.add(SEQUENCE4args{made.sessionid, 2, 1, 1, false})
            .add(PUTROOTFH4args())
            .add(LOOKUP4args{"export"})
            .add(LOOKUP4args{"f"})
            .add(WRITE4args{{}, 0, stable_how4::unstable, std::as_bytes(std::span("text", 4))});
    }));
    denying.push_back(opening(2, share4::deny_write));
    s.slow.held = true;
    std::thread other([&] { s.serve(1, write); });
    while (s.slow.waiting == 0)
        std::this_thread::yield();
    std::atomic<bool> answered{false};
    std::thread opener([&] {
        s.serve(0, denying);
        answered = true;
    });
    // Its bits are in force, so that it waits for nothing else.
    const auto passages = [&](shard&) { return s.commons->state.has_any_state() ? 1 : 0; };
    while (s.rt->call(0, passages) == 0 && !answered)
        std::this_thread::yield();
    BOOST_TEST(!answered);
    s.slow.held = false;
    other.join();
    opener.join();
    answer4 out(denying[0]->reply());
    BOOST_TEST(out.status() == nfsstat4::ok);
    answer4 wrote(write[0]->reply());
    BOOST_TEST(wrote.status() == nfsstat4::ok);
}

// A shard that stops says no more what is under way there. The client comes again.
BOOST_AUTO_TEST_CASE(an_open_that_can_t_ask_another_shard_is_told_to_come_again,
                     *boost::unit_test::timeout(60))
{
    two_shards s;
    EXCHANGE_ID4args exchange;
    const auto known = s.alone<EXCHANGE_ID4res>(exchange);
    const auto made = s.alone<CREATE_SESSION4res>(client4::session_of(known.clientid, known.sequenceid));
    two_shards::calls calls;
    calls.push_back(s.prepare(0, [&](compound_request& out) {
        out.add(SEQUENCE4args{made.sessionid, 1, 1, 1, false}).add(RECLAIM_COMPLETE4args());
    }));
    OPEN4args denying;
    denying.share_access = share4::access_both;
    denying.share_deny = share4::deny_write;
    denying.openhow.opentype = opentype4::create;
    denying.claim.file = "f";
    calls.push_back(s.prepare(0, [&](compound_request& out) {
        out.add(SEQUENCE4args{made.sessionid, 1, 0, 1, false})
            .add(PUTROOTFH4args())
            .add(LOOKUP4args{"export"})
            .add(denying);
    }));
    const auto stop = [](shard& there) { there.tasks().request_stop(); };
    s.rt->call(1, stop);
    s.serve(0, calls);
    BOOST_TEST_REQUIRE(calls[1]->header_of_reply.success());
    BOOST_TEST(answer4(calls[1]->reply()).status() == nfsstat4::delay);
}

// The state of all files is on one shard: to cut a file takes a disk's time, which others there do not have to wait
// for.
BOOST_AUTO_TEST_CASE(an_open_cuts_its_file_on_its_own_shard, *boost::unit_test::timeout(60))
{
    two_shards s;
    EXCHANGE_ID4args exchange;
    const auto known = s.alone<EXCHANGE_ID4res>(exchange);
    const auto made = s.alone<CREATE_SESSION4res>(client4::session_of(known.clientid, known.sequenceid));
    const auto opening = [&](std::size_t at, std::uint32_t slot, std::uint32_t n, bool cuts,
                             std::string_view name, std::uint32_t deny = share4::deny_none) {
        static constexpr std::array<std::string_view, 2> owners = {"first", "second"};
        OPEN4args args;
        args.share_access = share4::access_both;
        args.share_deny = deny;
        args.owner.owner = std::as_bytes(std::span(owners[at]));
        args.openhow.opentype = opentype4::create;
        args.claim.file = name;
        const std::array<std::byte, 8> zero{};
        if (cuts) {
            args.openhow.attrs.attrmask.set(attribute::size);
            args.openhow.attrs.attr_vals = std::span<const std::byte>(zero);
        }
        two_shards::calls one;
        one.push_back(s.prepare(at, [&](compound_request& out) {
            out.add(SEQUENCE4args{made.sessionid, n, slot, 1, false})
                .add(PUTROOTFH4args())
                .add(LOOKUP4args{"export"})
                .add(args)
                .add(CLOSE4args{0, stateid4::current()});
        }));
        return one;
    };
    two_shards::calls first;
    first.push_back(s.prepare(0, [&](compound_request& out) {
        out.add(SEQUENCE4args{made.sessionid, 1, 1, 1, false}).add(RECLAIM_COMPLETE4args());
    }));
    s.serve(0, first);
    const auto status = [](const two_shards::calls& one) { return answer4(one[0]->reply()).status(); };
    const auto creating = opening(0, 0, 1, false, "f");
    s.serve(0, creating);
    BOOST_TEST_REQUIRE(status(creating) == nfsstat4::ok);
    s.slow.sees_cuts = true;
    s.slow.held = true;
    const auto cutting = opening(1, 1, 2, true, "f");
    std::thread other([&] { s.serve(1, cutting); });
    while (s.slow.waiting == 0)
        std::this_thread::yield();
    BOOST_TEST(s.slow.cut_on == &s.rt->at(1).reactor());
    // Meanwhile other files are opened, and nobody gets in its way.
    const auto beside = opening(0, 0, 2, false, "g"),
               denying = opening(0, 0, 3, false, "f", share4::deny_write);
    s.serve(0, beside);
    BOOST_TEST(status(beside) == nfsstat4::ok);
    s.serve(0, denying);
    BOOST_TEST(status(denying) == nfsstat4::share_denied);
    s.slow.held = false;
    other.join();
    BOOST_TEST(status(cutting) == nfsstat4::ok);
    // It is over also where it comes to nothing.
    s.slow.cut_fails = true;
    const auto failing = opening(1, 1, 3, true, "f");
    s.serve(1, failing);
    (void)failing[0]->reply();
    BOOST_TEST(!failing[0]->header_of_reply.success());
    s.slow.cut_fails = false;
    const auto later = opening(0, 0, 4, false, "f", share4::deny_write);
    s.serve(0, later);
    BOOST_TEST(status(later) == nfsstat4::ok);
}

// What the state layer has a client told goes to where the client's connection is.
BOOST_AUTO_TEST_CASE(a_client_is_called_on_the_shard_of_its_connection)
{
    two_shards s;
    auto channel = std::make_shared<called_client>(s.rt->at(1).buffers());
    EXCHANGE_ID4args exchange;
    const auto known = s.alone<EXCHANGE_ID4res>(exchange);
    CREATE_SESSION4args creating = client4::session_of(known.clientid, known.sequenceid);
    creating.flags = create_session4::conn_back_chan;
    const std::array<callback_sec_parms4, 1> parms{};
    creating.sec_parms = std::span<const callback_sec_parms4>(parms);
    two_shards::calls one;
    one.push_back(s.prepare(1, [&](compound_request& out) { out.add(creating); }));
    one[0]->way = channel;
    s.serve(1, one);
    answer4 made(one[0]->reply());
    const auto res = made.good<CREATE_SESSION4res>();
    BOOST_TEST_REQUIRE(res.flags == create_session4::conn_back_chan);
    const auto tell = [&](shard& home) {
        home.tasks().spawn([&] { return s.commons->callbacks.run(); });
        s.commons->callbacks.recall_any(s.commons->sessions.find(res.sessionid)->state(), 3);
    };
    std::promise<std::thread::id> heard;
    channel->on_call = [&] { heard.set_value(std::this_thread::get_id()); };
    s.rt->call(0, tell);
    const std::thread::id where = heard.get_future().get();
    const auto there = [](shard&) { return std::this_thread::get_id(); };
    BOOST_CHECK(where == s.rt->call(1, there));
    const auto count = [&](shard&) { return channel->calls.size(); };
    BOOST_TEST_REQUIRE(s.rt->call(1, count) == 1u);
    BOOST_TEST(channel->calls[0].keep == 3u);
}

BOOST_AUTO_TEST_SUITE_END()
