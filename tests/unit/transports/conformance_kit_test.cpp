// SPDX-License-Identifier: Apache-2.0
// What the kit makes of providers that break their promises: a reason for each, and a program that goes on.
#include "conformance_faults.hpp"

#include <verbena/testing/conformance/server.hpp>
#include <verbena/testing/conformance/target.hpp>

#include <map>
#include <set>
#include <stdexcept>
#include <string_view>

BOOST_AUTO_TEST_SUITE(conformance_kit_test)

using namespace verbena;
using namespace verbena::conformance;
namespace kit = testing::conformance;
using kit::verdict;

namespace {

const kit::check& named(std::string_view name)
{
    const auto all = kit::checks();
    const auto found = std::ranges::find(all, name, &kit::check::name);
    BOOST_REQUIRE(found != all.end());
    return *found;
}

fault lies(std::function<void(verbs::capabilities&)> says)
{
    fault f;
    f.says = std::move(says);
    return f;
}

/// The duration of `run` by the world's clock.
duration took(kit::subject& w, const std::function<void()>& run)
{
    const time_point begun = w.shard().clock().now();
    run();
    return w.shard().clock().now() - begun;
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

} // namespace

BOOST_AUTO_TEST_CASE(each_check_has_a_name_of_its_own_and_one_way_to_run)
{
    std::set<std::string> names;
    std::map<std::string, std::set<std::string>> ids;
    for (const kit::check& c : kit::checks()) {
        BOOST_TEST(names.insert(c.name).second, c.name);
        BOOST_TEST(ids[c.group].insert(kit::as_identifier(c.name)).second, c.name);
        BOOST_TEST((c.in_one_program == nullptr) == (c.from_one_end != nullptr), c.name);
    }
    std::vector<std::string> groups;
    for (const auto& [group, of_it] : ids)
        groups.push_back(group);
    BOOST_TEST(groups ==
                   (std::vector<std::string>{"connections", "messages", "queues", "rights", "two ends"}),
               boost::test_tools::per_element());
    BOOST_TEST(kit::checks_from_one_end().size() == ids["two ends"].size());
}

BOOST_AUTO_TEST_CASE(identifiers_have_letters_digits_and_single_underscores)
{
    BOOST_TEST(kit::as_identifier("RDMA Write, 1 octet to 8 MiB") == "RDMA_Write_1_octet_to_8_MiB");
    BOOST_TEST(kit::as_identifier("a fence waits for reads") == "a_fence_waits_for_reads");
    BOOST_TEST(kit::as_identifier(" (ends) ") == "ends");
    BOOST_TEST(kit::as_identifier("") == "");
}

BOOST_AUTO_TEST_CASE(what_a_provider_can_and_denies_fails_with_a_place)
{
    faulty_world w(lies([](verbs::capabilities& c) { c.write_with_immediate = false; }));
    const kit::outcome o = kit::run(named("a write with immediate"), w);
    BOOST_TEST((o.verdict == verdict::failed));
    BOOST_TEST(has(o.reason, "queues.cpp:"), o.reason);
    BOOST_TEST(has(o.reason, "write_with_immediate"), o.reason);
    // The world is as good as new.
    const kit::outcome next = kit::run(named("every operation at every size"), w);
    BOOST_TEST((next.verdict == verdict::passed), next.reason);
}

BOOST_AUTO_TEST_CASE(what_a_provider_claims_and_can_not_fails)
{
    faulty_world w(lies([](verbs::capabilities& c) { c.max_private_data += 100; }));
    const kit::outcome o = kit::run(named("private data travels both ways"), w);
    BOOST_TEST((o.verdict == verdict::failed));
    BOOST_TEST(!o.reason.empty());
    const kit::outcome other = kit::run(named("inline data is free at once"), w);
    BOOST_TEST((other.verdict == verdict::passed), other.reason);
    faulty_world inlines(lies([](verbs::capabilities& c) { c.max_inline += 100; }));
    const kit::outcome too_long = kit::run(named("inline data"), inlines); // a server has its other end
    BOOST_TEST((too_long.verdict == verdict::failed));
    BOOST_TEST(has(too_long.reason, "post a request"), too_long.reason);
}

BOOST_AUTO_TEST_CASE(what_is_not_supported_is_named)
{
    faulty_world w(lies([](verbs::capabilities& c) { c.remote_invalidate = false; }));
    const kit::outcome o = kit::run(named("Send with Invalidate"), w);
    BOOST_TEST((o.verdict == verdict::not_supported));
    BOOST_TEST(o.reason == "remote invalidation");
}

// Whatever a check has under way, and whatever waits beside it, is over when it fails.
BOOST_AUTO_TEST_CASE(without_a_connection_each_check_fails_and_none_hangs)
{
    for (const bool hangs : {false, true}) {
        fault f;
        f.refuses = !hangs;
        f.hangs = hangs;
        faulty_world w(f);
        for (const kit::check& c : kit::checks()) {
            // Makes no connection.
            const bool passes = std::string_view(c.name) == "close and stop end a wait for peers";
            const kit::outcome o = kit::run(c, w);
            BOOST_TEST((o.verdict == (passes ? verdict::passed : verdict::failed)),
                       c.name << (hangs ? " (hangs)" : " (refuses)"));
            BOOST_TEST(o.reason.empty() == passes, c.name);
        }
    }
}

BOOST_AUTO_TEST_CASE(a_check_that_takes_too_long_says_so)
{
    fault f;
    f.hangs = true;
    faulty_world w(f);
    const time_point begun = w.shard().clock().now();
    const kit::outcome o = kit::run(named("every operation at every size"), w);
    BOOST_TEST((o.verdict == verdict::failed));
    BOOST_TEST(has(o.reason, "time is over"), o.reason);
    BOOST_TEST((w.shard().clock().now() - begun >= std::chrono::seconds(240)));
}

BOOST_AUTO_TEST_CASE(a_wire_that_loses_everything_fails_checks_and_ends_none_of_them_early)
{
    loop::conditions c;
    c[loop::fault::drop] = 1'000'000;
    c.retries = 0;
    faulty_world w({}, c);
    std::set<std::string> failed;
    for (const kit::check& one : kit::checks()) {
        const kit::outcome o = kit::run(one, w);
        if (o.verdict == verdict::failed) {
            failed.insert(one.name);
            BOOST_TEST(!o.reason.empty(), one.name);
        }
    }
    BOOST_TEST(failed.contains("every operation at every size"));
    BOOST_TEST(failed.contains("a fence waits for reads"));
    BOOST_TEST(failed.contains("RDMA Write, 1 octet to 8 MiB"));
}

BOOST_AUTO_TEST_CASE(what_a_handler_finds_wrong_fails_the_check)
{
    loop_world w({}, {});
    kit::fixture f(w);
    const std::function<task<void>()> body = [&]() -> task<void> {
        recorder late(f.complaint);
        late.on_disconnected(error(std::errc::connection_reset, "of the test"));
        const verbs::completion one;
        late.on_completions({&one, 1});
        co_return;
    };
    BOOST_CHECK_EXCEPTION(f.run(body), kit::failure, [](const kit::failure& what) {
        return what.why == "a completion came after the end";
    });
}

BOOST_AUTO_TEST_CASE(a_provider_that_can_not_be_made_fails_with_what_it_throws)
{
    class broken final : public kit::subject {
    public:
        reactor& shard() noexcept override { return real_.shard(); }
        std::unique_ptr<verbs::context> make_context(const std::string&) override
        {
            throw std::runtime_error("no such card");
        }
        std::string address() const override { return real_.address(); }

    private:
        loop_world real_{{}, {}};
    };
    broken w;
    for (const char* name : {"every operation at every size", "RDMA Read, 1 octet to 8 MiB"}) {
        const kit::outcome o = kit::run(named(name), w);
        BOOST_TEST((o.verdict == verdict::failed));
        BOOST_TEST(o.reason == "no such card");
    }
}

BOOST_AUTO_TEST_CASE(a_provider_that_makes_none_or_throws_anything_fails)
{
    class none final : public kit::subject {
    public:
        explicit none(bool throws) : throws_(throws) {}
        reactor& shard() noexcept override { return real_.shard(); }
        std::unique_ptr<verbs::context> make_context(const std::string&) override
        {
            if (throws_)
                throw 42;
            return nullptr;
        }
        std::string address() const override { return real_.address(); }

    private:
        bool throws_;
        loop_world real_{{}, {}};
    };
    for (const char* name : {"every operation at every size", "RDMA Read, 1 octet to 8 MiB"}) {
        none w(false);
        const kit::outcome o = kit::run(named(name), w);
        BOOST_TEST((o.verdict == verdict::failed));
        BOOST_TEST(o.reason == "make_context() has made none");
        none thrown(true);
        const kit::outcome other = kit::run(named(name), thrown);
        BOOST_TEST((other.verdict == verdict::failed));
        BOOST_TEST(other.reason == "something was thrown that is no std::exception");
    }
}

BOOST_AUTO_TEST_CASE(what_ends_by_the_stop_at_the_end_of_the_time_alone_fails)
{
    fault f;
    f.deaf = true;
    faulty_world w(f);
    const kit::outcome o = kit::run(named("close and stop end a wait for peers"), w);
    BOOST_TEST((o.verdict == verdict::failed));
    BOOST_TEST(o.reason == "the check's time is over");
}

BOOST_AUTO_TEST_CASE(all_parts_of_a_check_share_its_time)
{
    fault f;
    f.delay = std::chrono::seconds(30);
    faulty_world w(f);
    const duration all = took(w, [&] {
        const kit::outcome o = kit::run(named("an end at any moment completes each request once"), w);
        BOOST_TEST((o.verdict == verdict::failed));
        BOOST_TEST(has(o.reason, "time is over"), o.reason);
    });
    BOOST_TEST((all == std::chrono::seconds(240)));
    // The next one has its own.
    const kit::outcome next = kit::run(named("an orderly end drains and flushes"), w);
    BOOST_TEST((next.verdict == verdict::passed), next.reason);
}

// What it wrote to, and whom it told, is the check's: gone when the program turns on.
BOOST_AUTO_TEST_CASE(a_host_loop_ends_though_a_timer_arms_itself_for_ever)
{
    fault f;
    f.posted = fault::sends::are_lost;
    f.ticks = true;
    f.places_late = true;
    faulty_world w(f);
    const duration all = took(w, [&] {
        const kit::outcome o = kit::run(named("a connection lives in a host loop"), w);
        BOOST_TEST((o.verdict == verdict::failed));
        BOOST_TEST(o.reason == "the check's time is over in a host loop");
    });
    BOOST_TEST((all >= std::chrono::seconds(240)));
    BOOST_TEST((all <= std::chrono::seconds(241)));
}

BOOST_AUTO_TEST_CASE(a_completion_behind_the_end_fails_also_checks_of_what_is_not_connected)
{
    fault f;
    f.tells_on = true;
    faulty_world w(f);
    const kit::outcome o = kit::run(named("a queue pair that ends before it is accepted"), w);
    BOOST_TEST((o.verdict == verdict::failed));
    BOOST_TEST(o.reason == "a completion came after the end");
}

BOOST_AUTO_TEST_CASE(what_the_servers_provider_says_it_does_not_check_is_not_supported)
{
    faulty_world rights(lies([](verbs::capabilities& c) { c.checks_read_rights = false; }));
    faulty_world bounds(lies([](verbs::capabilities& c) { c.checks_grant_bounds = false; }));
    for (const char* name : {"Read without the right", "Read beyond the end", "Read before the start",
                             "Write beyond the end", "Write before the start", "Write without the right"}) {
        const bool of_reads = name == std::string_view("Read without the right");
        const bool of_writes = name == std::string_view("Write without the right");
        const kit::outcome a = kit::run(named(name), rights);
        BOOST_TEST((a.verdict == (of_reads ? verdict::not_supported : verdict::passed)), name << a.reason);
        const kit::outcome b = kit::run(named(name), bounds);
        BOOST_TEST((b.verdict == (of_reads || of_writes ? verdict::passed : verdict::not_supported)),
                   name << b.reason);
    }
}

// The kit doesn't look where such an id or length leads.
BOOST_AUTO_TEST_CASE(ids_and_lengths_that_nobody_posted_fail)
{
    fault ids;
    ids.adds = 1'000'000;
    fault lengths;
    lengths.lengthens = 1'000'000'000;
    for (const fault& f : {ids, lengths}) {
        faulty_world w(f);
        const kit::outcome o = kit::run(named("RDMA Write, 1 octet to 8 MiB"), w);
        BOOST_TEST((o.verdict == verdict::failed));
    }
    faulty_world w(ids);
    const kit::outcome o = kit::run(named("what is revoked is read no more"), w);
    BOOST_TEST((o.verdict == verdict::failed));
    BOOST_TEST(has(o.reason, "rights.cpp:"), o.reason);
}

BOOST_AUTO_TEST_CASE(sends_that_seem_to_go_are_not_posted_for_ever)
{
    std::size_t count = 0;
    fault f;
    f.posted = fault::sends::seem_to_go;
    f.count = &count;
    faulty_world w(f);
    const kit::outcome o = kit::run(named("a handler may post and may end the connection"), w);
    BOOST_TEST((o.verdict == verdict::failed));
    BOOST_TEST(count >= 20u);
    BOOST_TEST(count <= 10'000u);
}

BOOST_AUTO_TEST_CASE(the_reason_of_a_failed_check_stands_though_its_connection_does_not_end)
{
    fault f = lies([](verbs::capabilities& c) {
        c.max_inline += 100;
        c.grant_per_queue_pair = false;
    });
    f.stays = true;
    faulty_world w(f);
    const kit::outcome o = kit::run(named("inline data"), w);
    BOOST_TEST((o.verdict == verdict::failed));
    BOOST_TEST(has(o.reason, "post a request"), o.reason);
    BOOST_TEST(has(o.reason, "then: nothing came for 60 s"), o.reason);
}

BOOST_AUTO_TEST_CASE(a_check_that_can_not_run_here_fails_with_the_cure)
{
    loop_world w({}, {});
    const kit::outcome none = kit::run(kit::check{"of nothing", "a test", nullptr, nullptr}, w);
    BOOST_TEST((none.verdict == verdict::failed));
    BOOST_TEST(none.reason == "a check without a function");
    kit::fixture f(w);
    kit::outcome o;
    const std::function<task<void>()> body = [&]() -> task<void> {
        kit::target t(*f.client.context, f.where, 1);
        o = co_await run(named("local keys"), t);
    };
    f.run(body);
    BOOST_TEST((o.verdict == verdict::failed));
    BOOST_TEST(has(o.reason, "run(check, subject&)"), o.reason);
}

BOOST_AUTO_TEST_CASE(an_end_in_the_domain_of_another_grants_and_revokes)
{
    loop_world w({}, {});
    kit::fixture f(w);
    const std::function<task<void>()> body = [&]() -> task<void> {
        kit::end a(*f.client.context);
        kit::end b(*f.client.context);
        co_await a.prepare();
        co_await b.prepare(&a);
        auto g = co_await b.grant(b.bulk(100), verbs::access::remote_read);
        BOOST_TEST(g.valid());
        co_await b.revoke(g);
        BOOST_TEST(!g.valid());
        co_await b.share_receives();
    };
    BOOST_CHECK_EXCEPTION(f.run(body), kit::failure,
                          [](const kit::failure& what) { return has(what.why, "share_receives()"); });
}

// --- the server ---

namespace {

/// A server of one run, and what asks it, beside each other. Returns what the server complained of.
std::vector<std::string> serve_once(faulty_world& w, const std::function<task<void>(kit::target&)>& asks)
{
    std::vector<std::string> told;
    kit::fixture f(w);
    const std::function<task<void>()> body = [&]() -> task<void> {
        kit::server_options o;
        o.description = "of the test";
        o.complain = [&told](const std::string& line) { told.push_back(line); };
        kit::server s(*f.server.context, std::move(o));
        kit::target t(*f.client.context, f.where, 1);
        const auto serves = [&] { return s.run(*f.listener, true); };
        const auto both = [&]() -> task<void> {
            co_await t.main.prepare();
            co_await asks(t);
        };
        co_await f.beside(serves, both);
    };
    f.run(body);
    return told;
}

} // namespace

BOOST_AUTO_TEST_CASE(a_server_of_one_run_ends_when_who_asked_for_its_description_leaves)
{
    faulty_world w({});
    const auto told = serve_once(w, [](kit::target& t) -> task<void> {
        co_await t.connect(t.main);
        const std::string server = co_await t.describe();
        BOOST_TEST(server == "of the test");
        const kit::outcome o = co_await run(named("inline data"), t);
        BOOST_TEST((o.verdict == verdict::passed), o.reason);
        co_await t.leave();
        BOOST_TEST(t.main.ended());
    });
    BOOST_TEST(told.empty());
}

BOOST_AUTO_TEST_CASE(what_is_thrown_in_a_session_ends_it_alone_and_a_run_that_waits_for_it)
{
    fault f;
    f.posted = fault::sends::throw_later;
    faulty_world w(f);
    const auto told = serve_once(w, [](kit::target& t) -> task<void> {
        co_await t.connect(t.main);
        (void)co_await t.describe();
        bool failed = false;
        try {
            co_await t.main.ask(kit::request::sum, 100);
        } catch (const kit::failure&) {
            failed = true;
        }
        BOOST_TEST(failed);
    });
    BOOST_REQUIRE(told.size() == 1u);
    BOOST_TEST(has(told.front(), "bad_alloc"), told.front());
}

BOOST_AUTO_TEST_CASE(a_server_may_be_stopped_when_its_listener_has_thrown)
{
    class broken final : public verbs::listener {
    public:
        task<result<std::unique_ptr<verbs::connect_request>>> next() override
        {
            throw std::runtime_error("no more");
            co_return error(std::errc::operation_canceled, "of the test");
        }
        void close() noexcept override {}
        std::string local_url() const override { return "loop://nowhere"; }
    };
    loop_world w({}, {});
    kit::fixture f(w);
    broken listener;
    kit::server s(*f.server.context, {});
    const std::function<task<void>()> body = [&]() { return s.run(listener, true); };
    BOOST_CHECK_EXCEPTION(f.run(body), std::runtime_error,
                          [](const std::runtime_error& e) { return e.what() == std::string("no more"); });
    s.stop();
}

BOOST_AUTO_TEST_CASE(a_peer_that_others_took_after_all_is_not_rejected)
{
    loop_world w({}, {});
    kit::fixture f(w);
    std::unique_ptr<verbs::connect_request> taken;
    const std::function<task<void>()> body = [&]() -> task<void> {
        kit::server_options o;
        o.others = [&](std::unique_ptr<verbs::connect_request>& peer) {
            taken = std::move(peer);
            f.listener->close();
            return false;
        };
        kit::server s(*f.server.context, std::move(o));
        const auto serves = [&] { return s.run(*f.listener, false); };
        const auto asks = [&]() -> task<void> {
            verbs::connect_options plain;
            plain.timeout = 50ms;
            std::vector<std::byte> reply;
            const auto made = co_await f.client.context->connect(f.where, *f.client.domain, plain, reply);
            BOOST_TEST(!made);
        };
        co_await f.beside(serves, asks);
    };
    f.run(body);
    BOOST_TEST((taken != nullptr));
}

BOOST_AUTO_TEST_SUITE_END()
