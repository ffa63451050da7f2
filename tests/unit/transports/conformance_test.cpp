// SPDX-License-Identifier: Apache-2.0
// Each check of the kit on each provider: conformance_test/GROUP/CHECK/PROVIDER.
#include "conformance.hpp"

#include <set>

BOOST_AUTO_TEST_SUITE(conformance_test)

using namespace verbena;
using namespace verbena::conformance;
namespace kit = testing::conformance;

namespace {

verbs::capabilities abilities(const provider& p)
{
    const std::unique_ptr<world> w = p.make();
    return w->make_context("asked")->query();
}

// Of a check whose other end is a server: all else passes.
kit::verdict verdict_of(const verbs::capabilities& can, const std::string& name)
{
    using kit::verdict;
    if ((name == "inline data" && can.max_inline == 0) ||
        (name == "Write with Immediate" && !can.write_with_immediate) ||
        (name == "Send with Invalidate" && !can.remote_invalidate) ||
        (name == "Local Invalidate" && !can.local_invalidate) ||
        (name == "two connections share their receives" && !can.shared_receives) ||
        (name == "Read without the right" && !can.checks_read_rights) ||
        (name.find("beyond the end") != std::string::npos && !can.checks_grant_bounds) ||
        (name.find("before the start") != std::string::npos && !can.checks_grant_bounds))
        return verdict::not_supported;
    return verdict::passed;
}

void runs(const kit::check& c, const provider& p)
{
    const kit::verdict wanted =
        c.from_one_end != nullptr ? verdict_of(abilities(p), c.name) : kit::verdict::passed;
    const std::unique_ptr<world> w = p.make();
    const kit::outcome o = kit::run(c, *w);
    BOOST_TEST((o.verdict == wanted), to_string(o.verdict) << ": " << o.reason);
    BOOST_TEST(o.reason.empty() == (wanted == kit::verdict::passed));
}

// A server and a check move many megabytes, so these run on what differs most.
bool talks_to_servers(const provider& p)
{
    static const std::set<std::string> some = {"loop", "loop, no windows",
                                               "loop, no check of Reads, no bound on them", "iwarp", "rdma"};
    return some.contains(p.name);
}

boost::unit_test::test_suite& suite_in(boost::unit_test::test_suite& parent, const std::string& name)
{
    const auto id = parent.get(name);
    if (id != boost::unit_test::INV_TEST_UNIT_ID)
        return boost::unit_test::framework::get<boost::unit_test::test_suite>(id);
    auto* made = new boost::unit_test::test_suite(name, __FILE__, __LINE__); // the parent's from now on
    parent.add(made);
    return *made;
}

// While suites are made: the suite of this file is the one at hand.
const bool made = [] {
    auto& here = boost::unit_test::framework::current_auto_test_suite();
    for (const kit::check& c : kit::checks()) {
        auto& suite = suite_in(suite_in(here, kit::as_identifier(c.group)), kit::as_identifier(c.name));
        for (const provider& p : providers()) {
            if (c.from_one_end != nullptr && !talks_to_servers(p))
                continue;
            suite.add(boost::unit_test::make_test_case([&c, &p] { runs(c, p); }, kit::as_identifier(p.name),
                                                       __FILE__, __LINE__));
        }
    }
    return true;
}();

} // namespace

#ifdef VERBENA_HAS_RDMA
namespace {

// What the device binds windows for, or registers regions for, is seen by its counters alone.
std::vector<provider> devices()
{
    std::vector<provider> some;
    for (const provider& p : providers()) {
        if (p.name == std::string("rdma"))
            some.push_back(p);
    }
    return some;
}

} // namespace

BOOST_DATA_TEST_CASE(grants_are_made_by_what_was_asked_for, boost::unit_test::data::make(devices()), p)
{
    constexpr std::size_t count = 200;
    constexpr std::size_t rounds = 3;
    fixture f(p);
    const std::function<task<void>()> body = [&]() -> task<void> {
        connection n;
        co_await f.connect(n);
        memory target(co_await registered(*f.server.domain, count * 64));
        for (std::size_t round = 0; round < rounds; ++round) {
            std::vector<verbs::grant_request> requests(count);
            for (std::size_t i = 0; i < count; ++i) {
                requests[i].memory = std::span(target.bytes).subspan(i * 64, 64);
                requests[i].rights = verbs::access::remote_write;
                requests[i].scope = f.can().grant_per_queue_pair ? n.s.get() : nullptr;
            }
            const auto granted = co_await f.server.domain->make_grants(requests);
            BOOST_REQUIRE_MESSAGE(granted, why(granted));
            std::vector<verbs::grant> grants;
            for (auto& r : requests)
                grants.push_back(std::move(r.made));
            co_await f.server.domain->revoke(grants);
        }
        auto& device = dynamic_cast<rdma::context&>(*f.server.context);
        const char* const forced = std::getenv("VERBENA_TEST_RDMA_GRANTS");
        const bool regions =
            forced != nullptr ? std::string(forced) == "region" : !f.can().grant_per_queue_pair;
        // Also in later rounds: windows that come back are bound again.
        BOOST_TEST(device.counters().window_binds.load() == (regions ? 0 : count * rounds));
        BOOST_TEST(device.counters().region_grants.load() == (regions ? count * rounds : 0));
    };
    f.run(body);
}
#endif

BOOST_AUTO_TEST_SUITE_END()
