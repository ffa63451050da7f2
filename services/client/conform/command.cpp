// SPDX-License-Identifier: Apache-2.0
#include "../commands.hpp"
#include "../json_text.hpp"
#include "cases.hpp"
#include "server.hpp"

#include "../../standard_output.hpp"
#include <verbena/core/printable.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/net/net.hpp>
#ifdef VERBENA_HAS_RDMA
#include <verbena/transports/rdma.hpp>
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <sys/utsname.h>

namespace verbena::cli {
namespace {

using nlohmann::json;
using verbena::conform::end;
using verbena::conform::message;

json to_json(const verbs::capabilities& c)
{
    return {{"provider", c.provider},
            {"remote_invalidate", c.remote_invalidate},
            {"grant_per_queue_pair", c.grant_per_queue_pair},
            {"write_with_immediate", c.write_with_immediate},
            {"send_with_immediate", c.send_with_immediate},
            {"immediates_apart", c.immediates_apart},
            {"renewable_grants", c.renewable_grants},
            {"renews_at_once", c.renews_at_once},
            {"local_invalidate", c.local_invalidate},
            {"notices_dead_peers", c.notices_dead_peers},
            {"shared_receives", c.shared_receives},
            {"needs_local_keys", c.needs_local_keys},
            {"read_sink_needs_remote_write", c.read_sink_needs_remote_write},
            {"receive_not_ready_retry", c.receive_not_ready_retry},
            {"completion_means_delivered", c.completion_means_delivered},
            {"checks_read_rights", c.checks_read_rights},
            {"checks_grant_bounds", c.checks_grant_bounds},
            {"bounds_peer_reads", c.bounds_peer_reads},
            {"max_inline", c.max_inline},
            {"max_send_segments", c.max_send_segments},
            {"max_read_segments", c.max_read_segments},
            {"max_outstanding_reads", c.max_outstanding_reads},
            {"max_message", c.max_message},
            {"max_private_data", c.max_private_data},
            {"private_data_padded", c.private_data_padded}};
}

// What a reader of the report has to know of one host. No names or addresses: it is meant to be shared.
json describe(const verbs::context& c)
{
    utsname host{};
    ::uname(&host);
    json devices = json::array();
#ifdef VERBENA_HAS_RDMA
    if (c.query().provider == "rdma") {
        for (const rdma::device_report& d : rdma::devices())
            devices.push_back({{"name", d.name},
                               {"transport", d.transport},
                               {"firmware", d.firmware},
                               {"state", d.state},
                               {"mtu", d.mtu},
                               {"grants", to_string(d.grants)}});
    }
#endif
    return {{"verbena", VERBENA_VERSION},
            {"kernel", std::string(host.sysname) + " " + host.release},
            {"machine", host.machine},
            {"capabilities", to_json(c.query())},
            {"devices", std::move(devices)}};
}

struct destination {
    verbs::context* context;
    std::string address;
};

// rdma://HOST:PORT or iwarp://HOST:PORT.
result<destination> find_place(runtime& r, const std::string& text)
{
    const auto url = net::split_url(text);
    if (!url || (url->scheme != "rdma" && url->scheme != "iwarp"))
        return error(std::errc::invalid_argument, "a URL looks like rdma://HOST:PORT or iwarp://HOST:PORT");
    auto found = net::resolve(url->address);
    if (!found)
        return found.error();
    verbs::context* context = nullptr;
    if (url->scheme == "rdma") {
        auto made = r.rdma();
        if (!made)
            return made.error();
        context = *made;
    } else {
        context = &r.iwarp();
    }
    return destination{context, found->front().to_string()};
}

struct outcome {
    const char* name;
    const char* result;
    std::string reason;
    double seconds;
};

task<outcome> run_one(verbena::conform::target& t, const verbena::conform::check& c)
{
    const auto begun = std::chrono::steady_clock::now();
    t.begin_check();
    outcome o{c.name, "passed", {}, 0};
    try {
        co_await c.run(t);
    } catch (const verbena::conform::failure& f) {
        o.result = "failed";
        o.reason = f.why;
    } catch (const verbena::conform::not_supported& n) {
        o.result = "not supported";
        o.reason = n.what;
    }
    o.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    co_return o;
}

struct tally {
    json cases = json::array();
    std::size_t passed = 0;
    std::size_t failed = 0;
};

std::array<verbena::conform::check_group, 3> all_groups() noexcept
{
    return {{{"verbs", verbena::conform::verbs_checks()},
             {"rpc-over-rdma", verbena::conform::rpc_checks()},
             {"rpc-over-rdma", verbena::conform::rpc_header_checks()}}};
}

bool is_meant(const verbena::conform::check& c, std::string_view only) noexcept
{
    return std::string_view(c.name).find(only) != std::string_view::npos;
}

bool is_anything_meant(std::string_view only) noexcept
{
    const auto groups = all_groups();
    return std::ranges::any_of(groups, [&](const verbena::conform::check_group& g) {
        return std::ranges::any_of(g.checks, [&](const auto& c) { return is_meant(c, only); });
    });
}

task<tally> run_all(runtime& r, verbena::conform::target& t, const std::string& only)
{
    tally told;
    const auto groups = all_groups();
    for (const auto& [group, checks] : groups) {
        for (const verbena::conform::check& c : checks) {
            if (!is_meant(c, only))
                continue;
            const outcome one = co_await run_one(t, c);
            told.passed += one.result == std::string_view("passed") ? 1 : 0;
            told.failed += one.result == std::string_view("failed") ? 1 : 0;
            json row = {
                {"name", one.name}, {"group", group}, {"result", one.result}, {"seconds", one.seconds}};
            if (!one.reason.empty())
                row["reason"] = one.reason;
            told.cases.push_back(std::move(row));
            if (!r.options().json && !r.options().quiet) {
                print("%-13s %s%s%s\n", one.result, one.name, one.reason.empty() ? "" : ": ",
                      printable(one.reason).c_str());
                flush_standard_output();
            }
        }
    }
    t.begin_check(); // what follows has its time too
    co_return told;
}

task<std::string> description_of_server(end& link)
{
    message m;
    m.what = verbena::conform::request::describe;
    co_await link.send(m);
    const verbs::completion c = co_await link.received();
    verbena::conform::need(c.length >= message::size, "a description too short");
    const auto octets = link.incoming(c).subspan(message::size);
    std::string text(reinterpret_cast<const char*>(octets.data()), octets.size());
    link.release(c);
    co_return text;
}

std::string now()
{
    const std::time_t t = std::time(nullptr);
    std::tm utc{};
    ::gmtime_r(&t, &utc);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return text;
}

task<int> run_checks(runtime& r, destination where, conform_options o)
{
    verbena::conform::target t(*where.context, r.buffers(), where.address,
                               static_cast<std::uint64_t>(std::time(nullptr)) << 20);
    std::string server;
    std::string failed;
    const char* cure = "";
    try {
        co_await t.main.prepare();
        cure = "\n  `verbena conform --listen URL` must run there, of the same version";
        co_await t.connect(t.main);
        server = co_await description_of_server(t.main);
    } catch (const verbena::conform::failure& f) {
        failed = f.why;
    }
    if (!failed.empty())
        co_return complain(o.url + ": " + failed + cure, exit_unreachable);
    const tally told = co_await run_all(r, t, o.only);
    json report = {{"suite", "verbena conformance"},
                   {"version", 2},
                   {"date", now()},
                   {"scheme", o.url.substr(0, o.url.find("://"))},
                   {"client", describe(*where.context)},
                   {"server", json::parse(server, nullptr, false)},
                   {"passed", told.passed},
                   {"failed", told.failed},
                   {"not_supported", told.cases.size() - told.passed - told.failed},
                   {"wakes", t.wakes},
                   {"cases", told.cases}};
    if (!o.only.empty())
        report["only"] = o.only;
#ifdef VERBENA_HAS_RDMA
    if (const auto* device = dynamic_cast<const rdma::context*>(where.context))
        report["client"]["posts_by_ibv_wr"] = device->counters().extended.load() != 0;
#endif
    t.main.pair().disconnect();
    if (r.options().json)
        print("%s\n", dump(report).c_str());
    else
        print("%zu passed, %zu failed, %zu not supported; %llu times the other end was woken\n", told.passed,
              told.failed, told.cases.size() - told.passed - told.failed,
              static_cast<unsigned long long>(t.wakes));
    if (!o.report.empty()) {
        std::ofstream file(o.report);
        file << dump(report) << '\n';
        if (!file.flush())
            co_return complain("cannot write " + o.report, exit_failed);
    }
    const auto over = [&t] { return t.main.ended(); };
    try {
        co_await t.main.until(over, "the end");
    } catch (const verbena::conform::failure& f) {
        co_return complain(f.why, exit_failed);
    }
    co_return told.failed == 0 ? exit_ok : exit_failed;
}

task<int> serve(runtime& r, destination where, bool once)
{
    auto listener = where.context->listen(where.address);
    if (!listener)
        co_return complain("cannot listen on " + where.address + ": " + listener.error().message(),
                           exit_failed);
    print("listening at %s\n", (*listener)->local_url().c_str());
    flush_standard_output();
    set_log_level(log_level::error); // what checks provoke is no news
    verbena::conform::server s(*where.context, r.buffers(), describe(*where.context).dump());
    co_await s.run(**listener, once);
    co_return exit_ok;
}

} // namespace

task<int> conform(runtime& r, conform_options o)
{
    if (!is_anything_meant(o.only))
        co_return complain("--only: '" + o.only +
                               "' stands in no check's name; a run without it names them all",
                           exit_usage);
    auto where = find_place(r, o.url);
    if (!where)
        co_return complain(o.url + ": " + where.error().message(),
                           where.error() == std::errc::invalid_argument ? exit_usage : exit_failed);
    if (o.listen)
        co_return co_await serve(r, *where, o.once);
    co_return co_await run_checks(r, *where, o);
}

} // namespace verbena::cli
