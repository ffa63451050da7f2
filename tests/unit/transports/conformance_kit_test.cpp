// SPDX-License-Identifier: Apache-2.0
// What the kit makes of providers that break their promises: a reason for each, and a program that goes on.
#include "conformance.hpp"

#include <verbena/core/task/event.hpp>

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

/// How a provider lies or fails.
struct fault {
    std::function<void(verbs::capabilities&)> says; // of what it can
    bool refuses = false;                           // every connect
    bool hangs = false;                             // in every connect, until it is stopped
};

/// A context of loop with that fault.
class faulty final : public verbs::context {
public:
    faulty(std::unique_ptr<verbs::context> c, const fault& f)
        : real_(std::move(c)), fault_(f), said_(real_->query())
    {
        if (fault_.says)
            fault_.says(said_);
    }
    const verbs::capabilities& query() const noexcept override { return said_; }
    reactor& shard() noexcept override { return real_->shard(); }
    verbs::device& device() noexcept override { return real_->device(); }
    result<std::unique_ptr<verbs::listener>> listen(std::string_view address) override
    {
        return real_->listen(address);
    }
    task<result<std::unique_ptr<verbs::queue_pair>>> connect(std::string_view address,
                                                             verbs::protection_domain& domain,
                                                             const verbs::connect_options& options,
                                                             std::vector<std::byte>& reply) override
    {
        if (fault_.refuses)
            co_return error(std::errc::host_unreachable, "of the test");
        if (fault_.hangs) {
            event never;
            (void)co_await never.wait();
            co_return error(std::errc::operation_canceled, "of the test");
        }
        auto made = co_await real_->connect(address, domain, options, reply);
        co_return made;
    }

private:
    std::unique_ptr<verbs::context> real_;
    const fault& fault_;
    verbs::capabilities said_;
};

class faulty_world final : public kit::subject {
public:
    explicit faulty_world(fault f, const loop::conditions& c = {}) : fault_(std::move(f)), real_({}, c) {}
    reactor& shard() noexcept override { return real_.shard(); }
    std::unique_ptr<verbs::context> make_context(const std::string& name) override
    {
        return std::make_unique<faulty>(real_.make_context(name), fault_);
    }
    std::string address() const override { return real_.address(); }

private:
    fault fault_;
    loop_world real_;
};

const kit::check& named(std::string_view name)
{
    const auto all = kit::checks();
    const auto found = std::ranges::find(all, name, &kit::check::name);
    BOOST_REQUIRE(found != all.end());
    return *found;
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
    faulty_world w({[](verbs::capabilities& c) { c.write_with_immediate = false; }});
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
    faulty_world w({[](verbs::capabilities& c) { c.max_private_data += 100; }});
    const kit::outcome o = kit::run(named("private data travels both ways"), w);
    BOOST_TEST((o.verdict == verdict::failed));
    BOOST_TEST(!o.reason.empty());
    const kit::outcome other = kit::run(named("inline data is free at once"), w);
    BOOST_TEST((other.verdict == verdict::passed), other.reason);
    faulty_world inlines({[](verbs::capabilities& c) { c.max_inline += 100; }});
    const kit::outcome too_long = kit::run(named("inline data"), inlines); // a server has its other end
    BOOST_TEST((too_long.verdict == verdict::failed));
    BOOST_TEST(has(too_long.reason, "post a request"), too_long.reason);
}

BOOST_AUTO_TEST_CASE(what_is_not_supported_is_named)
{
    faulty_world w({[](verbs::capabilities& c) { c.remote_invalidate = false; }});
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
        recorder late;
        late.complaint = &f.complaint;
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

BOOST_AUTO_TEST_SUITE_END()
