// SPDX-License-Identifier: Apache-2.0
// Every reject and accept status (RFC 5531 section 9), as bytes on a stream.
#include <boost/test/unit_test.hpp>

#include "../refusals_since.hpp"
#include "memory_call.hpp"
#include "rpc_server.hpp"

#include <verbena/core/log.hpp>

BOOST_AUTO_TEST_SUITE(rpc_dispatch_test)

using namespace verbena;
using namespace verbena::test;

namespace {

struct fixture {
    served_streams streams;
    net::unique_fd client = streams.connect();

    /// The reply to a hand-made message, without the record mark, which is checked.
    std::string reply_to(std::string_view message) { return reply_to(from_hex(message)); }
    std::string reply_to(const bytes& message)
    {
        streams.send(client, framed(message));
        const bytes all = streams.receive(client);
        if (all.empty())
            return streams.closed ? "closed" : "nothing";
        BOOST_REQUIRE(all.size() >= 4);
        bytes mark;
        append_u32(mark, 0x80000000u | static_cast<std::uint32_t>(all.size() - 4));
        BOOST_TEST(to_hex(mark) == to_hex(std::span(all).first(4)));
        return to_hex(std::span(all).subspan(4));
    }
};

} // namespace

BOOST_FIXTURE_TEST_CASE(success, fixture)
{
    BOOST_TEST(
        reply_to(
            "11223344 00000000 00000002 20000001 00000003 00000000 00000000 00000000 00000000 00000000") ==
        "11223344 00000001 00000000 00000000 00000000 00000000");
    // ECHO of "abcde"
    BOOST_TEST(
        reply_to("00000001 00000000 00000002 20000001 00000002 00000001 00000000 00000000 00000000 00000000"
                 "00000005 61626364 65000000") ==
        "00000001 00000001 00000000 00000000 00000000 00000000 00000005 61626364 65000000");
}

BOOST_FIXTURE_TEST_CASE(each_call_is_a_line_at_level_trace, fixture)
{
    std::string lines;
    set_log_capture(
        [](void* to, std::string_view line) { static_cast<std::string*>(to)->append(line).append("\n"); },
        &lines);
    const log_level before = current_log_level();
    reply_to(call_of(7, 0));
    BOOST_TEST(lines.empty());
    set_log_level(log_level::trace);
    reply_to(call_of(0x11223344, 0));
    reply_to(call_of(9, 6));
    set_log_level(before);
    set_log_capture(nullptr, nullptr);
    const std::size_t second = lines.find('\n') + 1;
    BOOST_TEST(lines.find(".11223344 client=") < second, lines); // behind the number of its connection
    BOOST_TEST(lines.find(".00000009 client=", second) != std::string::npos, lines);
    for (const auto* part :
         {"trace rpc: call served call=", "xid=287454020", "procedure=NULL", "rpc_success=true"})
        BOOST_TEST(lines.substr(0, second).find(part) != std::string::npos, part << " in " << lines);
    BOOST_TEST(lines.find("procedure=unknown rpc_success=false", second) != std::string::npos, lines);
}

BOOST_FIXTURE_TEST_CASE(a_scrape_tells_calls_by_procedure_and_refusals, fixture)
{
    metric_registry registry;
    const auto made = rpc::expose(registry, streams.calls);
    reply_to(call_of(1, 0));
    reply_to(call_of(2, 0));
    reply_to(
        "00000007 00000000 00000003 20000001 00000003 00000000 00000000 00000000 00000000 00000000"); // RPC version 3
    std::map<std::string, double> seen;
    for (const auto& m : registry.collect()) {
        for (const auto& s : m.samples) {
            std::string name = m.family.name;
            for (const auto& label : s.labels)
                name += " " + label;
            seen[name] = s.histogram ? double(s.histogram->count()) : s.value;
        }
    }
    const auto of = [&](const std::string& name) { return seen.contains(name) ? seen.at(name) : -1; };
    std::string procedure;
    for (const auto& [name, value] : seen) {
        if (name.starts_with("verbena_rpc_calls_total ") && value != 0)
            procedure = name.substr(name.find(' '));
    }
    BOOST_TEST(procedure.ends_with(" NULL tcp"), procedure);
    BOOST_TEST(of("verbena_rpc_calls_total" + procedure) == 2);
    BOOST_TEST(of("verbena_rpc_latency_seconds" + procedure) == 2);
    BOOST_TEST(of("verbena_rpc_received_bytes_total" + procedure) == 80);
    BOOST_TEST(of("verbena_rpc_sent_bytes_total" + procedure) == 48);
    BOOST_TEST(of("verbena_rpc_errors_total" + procedure) == 0);
    BOOST_TEST(of("verbena_rpc_exceptions_total" + procedure) == 0);
    BOOST_TEST(of("verbena_rpc_dropped_total" + procedure) == 0);
    BOOST_TEST(of("verbena_rpc_refusals_total rpc_mismatch") == 1);
    BOOST_TEST(of("verbena_rpc_refusals_total unanswerable") == 0);
}

BOOST_FIXTURE_TEST_CASE(rpc_version_mismatch, fixture)
{
    BOOST_TEST(
        reply_to(
            "00000007 00000000 00000003 20000001 00000003 00000000 00000000 00000000 00000000 00000000") ==
        "00000007 00000001 00000001 00000000 00000002 00000002");
    BOOST_TEST(streams.calls.refusals().rpc_mismatch.value() == 1);
}

BOOST_FIXTURE_TEST_CASE(program_unavailable, fixture)
{
    BOOST_TEST(
        reply_to(
            "00000007 00000000 00000002 20000002 00000003 00000000 00000000 00000000 00000000 00000000") ==
        "00000007 00000001 00000000 00000000 00000000 00000001");
}

BOOST_FIXTURE_TEST_CASE(program_mismatch_names_the_versions, fixture)
{
    const std::string expected = "00000007 00000001 00000000 00000000 00000000 00000002 00000002 00000003";
    BOOST_TEST(
        reply_to(
            "00000007 00000000 00000002 20000001 00000001 00000000 00000000 00000000 00000000 00000000") ==
        expected);
    BOOST_TEST(
        reply_to(
            "00000007 00000000 00000002 20000001 00000004 00000000 00000000 00000000 00000000 00000000") ==
        expected);
}

BOOST_FIXTURE_TEST_CASE(procedure_unavailable, fixture)
{
    BOOST_TEST(reply_to(call_of(7, 0x7fffffff)) == "00000007 00000001 00000000 00000000 00000000 00000003");
}

BOOST_FIXTURE_TEST_CASE(garbage_arguments, fixture)
{
    // ECHO of five bytes of which three are there
    BOOST_TEST(reply_to(call_of(7, 1, from_hex("00000005 616263"))) ==
               "00000007 00000001 00000000 00000000 00000000 00000004");
}

BOOST_FIXTURE_TEST_CASE(system_error, fixture)
{
    const std::string expected = "00000007 00000001 00000000 00000000 00000000 00000005";
    BOOST_TEST(reply_to(call_of(7, 6)) == expected);
    // results that did not fit must not go out cut short
    BOOST_TEST(reply_to(call_of(7, 9)) == expected);
}

// A fault of the program's costs one call.
BOOST_FIXTURE_TEST_CASE(a_procedure_that_throws_is_a_system_error, fixture)
{
    std::string lines;
    set_log_capture(
        [](void* to, std::string_view line) { static_cast<std::string*>(to)->append(line).append("\n"); },
        &lines);
    BOOST_TEST(reply_to(call_of(7, 11)) == "00000007 00000001 00000000 00000000 00000000 00000005");
    BOOST_TEST(reply_to(call_of(8, 12)) == "nothing");
    streams.program.go.set();
    BOOST_TEST(to_hex(streams.receive(client)) ==
               "80000018 00000008 00000001 00000000 00000000 00000000 00000005");
    for (std::uint32_t xid = 100; xid < 200; ++xid)
        BOOST_TEST(!reply_to(call_of(xid, 11)).empty());
    set_log_capture(nullptr, nullptr);
    BOOST_TEST(reply_to(call_of(7, 0)) == "00000007 00000001 00000000 00000000 00000000 00000000");
    std::uint64_t thrown = 0;
    std::uint64_t errors = 0;
    streams.calls.for_each([&](const auto&, const rpc::procedure_stats& stats) {
        thrown += stats.exceptions.value();
        errors += stats.errors.value();
    });
    BOOST_TEST(thrown == 102u);
    BOOST_TEST(errors == 102u);
    for (const auto* part : {"error rpc: a procedure threw an exception", "program=test", "version=3",
                             "number=11 procedure=unknown", "client=192.0.2.1:1023", "exception=boom",
                             "exception=\"of an unknown type\""})
        BOOST_TEST(lines.find(part) != std::string::npos, part << " in " << lines);
    BOOST_TEST(std::ranges::count(lines, '\n') < 10); // whatever a peer does
}

BOOST_FIXTURE_TEST_CASE(too_weak, fixture)
{
    BOOST_TEST(reply_to(call_of(7, 7)) == "00000007 00000001 00000001 00000001 00000005");
}

BOOST_FIXTURE_TEST_CASE(credentials, fixture)
{
    const std::string call = "00000007 00000000 00000002 20000001 00000003 00000000";
    const std::string denied = "00000007 00000001 00000001 00000001 ";
    const std::string accepted = "00000007 00000001 00000000 00000000 00000000 00000000";
    // AUTH_SYS: stamp 1, machine "ab", uid 0x3e8, gid 0x64, groups {0x64}
    BOOST_TEST(reply_to(call +
                        "00000001 0000001c 00000001 00000002 61620000 000003e8 00000064 00000001 00000064"
                        "00000000 00000000") == accepted);
    // AUTH_SYS with 17 groups announced
    BOOST_TEST(reply_to(call + "00000001 00000018 00000001 00000002 61620000 000003e8 00000064 00000011"
                               "00000000 00000000") == denied + "00000001");
    // AUTH_SYS with a word too many
    BOOST_TEST(reply_to(call +
                        "00000001 0000001c 00000001 00000002 61620000 000003e8 00000064 00000000 00000000"
                        "00000000 00000000") == denied + "00000001");
    // AUTH_SHORT, AUTH_DH, RPCSEC_GSS and one that nobody knows
    const test::refusals_since refusals;
    for (const std::string flavor : {"00000002", "00000003", "00000006", "00099999"})
        BOOST_TEST(reply_to(call + flavor + "00000000 00000000 00000000") == denied + "00000002");
    BOOST_TEST(refusals(refused::connection_security) == 4u);
    // a credential over 400 bytes
    BOOST_TEST(reply_to(call + "00000001 00000194") == denied + "00000001");
    // verifiers: of 401 bytes, of another flavor, not empty
    BOOST_TEST(reply_to(call + "00000000 00000000 00000000 00000191") == denied + "00000003");
    BOOST_TEST(reply_to(call + "00000000 00000000 00000001 00000000") == denied + "00000003");
    BOOST_TEST(reply_to(call + "00000000 00000000 00000000 00000004 00000000") == denied + "00000003");
    BOOST_TEST(streams.calls.refusals().auth_error.value() == 10);
    BOOST_TEST(refusals(refused::connection_security) == 4u); // what is only malformed is not told as that
}

// RFC 9289 4.1: accepted, and no STARTTLS in the verifier says that there is no TLS here.
// RPC over RDMA serves one call after the other in one object.
BOOST_AUTO_TEST_CASE(a_call_without_a_credential_has_not_that_of_the_call_before)
{
    memory_server s;
    test_program program;
    s.dispatcher.add(program);
    memory_call c(s.pool, s.from);
    rpc::auth_sys user;
    user.uid = 1000;
    c.end(c.begin(0x20000001, 3, 0, &user));
    BOOST_TEST(s.dispatch(c));
    BOOST_REQUIRE(!c.who().is_anonymous());
    BOOST_TEST(c.who().uid() == 1000u);
    c.end(c.begin(0x20000001, 3, 0, nullptr));
    c.refuse();
    BOOST_TEST(s.dispatch(c));
    BOOST_TEST(c.who().is_anonymous());
    BOOST_TEST(!c.refused());
}

namespace {

/// Notes payloads of some lengths, and attaches some of others.
class uneven final : public rpc::program {
public:
    std::uint32_t number() const noexcept override { return 0x20000002; }
    std::uint32_t low_version() const noexcept override { return 1; }
    std::uint32_t high_version() const noexcept override { return 1; }
    std::string_view name() const noexcept override { return "uneven"; }
    std::string_view procedure_name(std::uint32_t, std::uint32_t) const noexcept override { return "ANY"; }
    bool non_idempotent(std::uint32_t, std::uint32_t) const noexcept override { return false; }
    task<rpc::outcome> serve(rpc::call& c) override
    {
        for (const std::uint32_t length : noted)
            c.results().note_payload(length);
        for (const std::uint32_t length : attached)
            c.attach(rpc::payload(lease(), std::span(memory).first(length)));
        co_return rpc::outcome::success;
    }
    std::array<std::byte, 64> memory{};
    std::vector<std::uint32_t> noted, attached;
};

} // namespace

// Each payload is there, and as long as was said: a reply that is no reply would cost the connection.
BOOST_AUTO_TEST_CASE(payloads_are_attached_as_they_were_noted)
{
    using lengths = std::vector<std::uint32_t>;
    memory_server s;
    uneven program;
    s.dispatcher.add(program);
    const auto succeeds = [&](const lengths& noted, const lengths& attached) {
        program.noted = noted;
        program.attached = attached;
        memory_call c(s.pool, s.from);
        c.end(c.begin(0x20000002, 1, 0, nullptr));
        BOOST_TEST(s.dispatch(c));
        (void)c.reply();
        const bool good = c.header_of_reply.success();
        BOOST_TEST(c.attached().size() == (good ? noted.size() : 0));
        return good;
    };
    BOOST_TEST(succeeds({}, {}));
    BOOST_TEST(succeeds({5}, {5}));
    BOOST_TEST(succeeds({5, 0, 8}, {5, 0, 8}));
    BOOST_TEST(!succeeds({5, 8}, {8, 5}));
    BOOST_TEST(!succeeds({5, 8}, {13}));
    BOOST_TEST(!succeeds({5}, {5, 0}));
    BOOST_TEST(!succeeds({5, 8}, {5}));
    BOOST_TEST(!succeeds({}, {5}));
}

BOOST_FIXTURE_TEST_CASE(tls_probe, fixture)
{
    BOOST_TEST(
        reply_to(
            "00000007 00000000 00000002 20000001 00000003 00000000 00000007 00000000 00000000 00000000") ==
        "00000007 00000001 00000000 00000000 00000000 00000000");
    // with another procedure, with a body
    BOOST_TEST(
        reply_to(
            "00000007 00000000 00000002 20000001 00000003 00000001 00000007 00000000 00000000 00000000") ==
        "00000007 00000001 00000001 00000001 00000001");
    BOOST_TEST(reply_to("00000007 00000000 00000002 20000001 00000003 00000000 00000007 00000004 00000000 "
                        "00000000 00000000") == "00000007 00000001 00000001 00000001 00000001");
}

BOOST_FIXTURE_TEST_CASE(what_is_not_a_call_gets_no_answer, fixture)
{
    BOOST_TEST(reply_to("00000007") == "nothing");
    BOOST_TEST(reply_to("00000007 00000001 00000000 00000000 00000000 00000000") == "nothing"); // a reply
    BOOST_TEST(reply_to("00000007 00000002 00000002 20000001 00000003 00000000") == "nothing");
    BOOST_TEST(reply_to("00000007 00000000 00000002 20000001 00000003 00000000 00000001 00000004") ==
               "nothing");
    BOOST_TEST(reply_to("") == "nothing");
    BOOST_TEST(reply_to(call_of(7, 8)) == "nothing"); // dropped by the procedure
    BOOST_TEST(streams.calls.refusals().unanswerable.value() == 5);
    // and the stream goes on
    BOOST_TEST(reply_to(call_of(9, 0)) == "00000009 00000001 00000000 00000000 00000000 00000000");
}

BOOST_FIXTURE_TEST_CASE(calls_are_counted_by_procedure, fixture)
{
    reply_to(call_of(1, 0));
    reply_to(call_of(2, 0));
    reply_to(call_of(3, 1, from_hex("00000005 616263")));
    reply_to(call_of(4, 99, {}, 2));
    std::string seen;
    streams.calls.for_each(
        [&](const rpc::service_dispatcher::procedure_label& label, const rpc::procedure_stats& s) {
            histogram_snapshot h;
            s.latency.add_to(h);
            BOOST_TEST(h.count() == s.calls.value());
            seen += std::string(label.program) + std::to_string(label.version) + ' ' +
                    std::string(label.procedure) + ' ' + std::string(label.transport) + " calls " +
                    std::to_string(s.calls.value()) + " errors " + std::to_string(s.errors.value()) + " in " +
                    std::to_string(s.bytes_in.value()) + " out " + std::to_string(s.bytes_out.value()) + '\n';
        });
    BOOST_TEST(seen == "test2 unknown tcp calls 1 errors 1 in 40 out 24\n"
                       "test3 NULL tcp calls 2 errors 0 in 80 out 48\n"
                       "test3 ECHO tcp calls 1 errors 1 in 44 out 24\n");
}

BOOST_AUTO_TEST_SUITE_END()
