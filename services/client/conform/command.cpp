// SPDX-License-Identifier: Apache-2.0
#include "../commands.hpp"
#include "../json_text.hpp"
#include "rpc_checks.hpp"
#include "rpc_server.hpp"

#include "../../standard_output.hpp"
#include <verbena/core/printable.hpp>

#include <verbena/core/log.hpp>
#include <verbena/core/net/net.hpp>
#include <verbena/testing/conformance.hpp>
#include <verbena/testing/conformance/server.hpp>
#include <verbena/testing/conformance/target.hpp>
#ifdef VERBENA_HAS_RDMA
#include <verbena/transports/rdma.hpp>
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <sys/utsname.h>

namespace verbena::cli {
namespace {

namespace kit = verbena::testing::conformance;

using nlohmann::json;

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
            {"grants_stores", c.grants_stores},
            {"domains_across_shards", c.domains_across_shards},
            {"notices_dead_peers", c.notices_dead_peers},
            {"shared_receives", c.shared_receives},
            {"receives_on_demand", c.receives_on_demand},
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

struct place {
    bool by_device;
    std::string address;
};

// rdma://HOST:PORT or iwarp://HOST:PORT.
result<place> find_place(const std::string& text)
{
    const auto url = net::split_url(text);
    if (!url || (url->scheme != "rdma" && url->scheme != "iwarp"))
        return error(std::errc::invalid_argument, "a URL looks like rdma://HOST:PORT or iwarp://HOST:PORT");
    auto found = net::resolve(url->address);
    if (!found)
        return found.error();
    return place{url->scheme == "rdma", found->front().to_string()};
}

result<destination> find_destination(runtime& r, const std::string& text)
{
    const auto found = find_place(text);
    if (!found)
        return found.error();
    verbs::context* context = nullptr;
    if (found->by_device) {
        auto made = r.rdma();
        if (!made)
            return made.error();
        context = *made;
    } else {
        context = &r.iwarp();
    }
    return destination{context, found->address};
}

constexpr const char* rpc_group = "rpc-over-rdma";

bool is_meant(const char* name, const conform_options& o) noexcept
{
    return std::string_view(name).find(o.only) != std::string_view::npos;
}

// Of a run of this kind.
bool is_anything_meant(const conform_options& o) noexcept
{
    const auto meant = [&o](const auto& c) { return is_meant(c.name, o); };
    if (o.alone)
        return std::ranges::any_of(kit::checks(), meant);
    return std::ranges::any_of(kit::checks_from_one_end(), meant) ||
           std::ranges::any_of(verbena::conform::rpc_checks(), meant) ||
           std::ranges::any_of(verbena::conform::rpc_header_checks(), meant);
}

class tally {
public:
    explicit tally(bool tells) noexcept : tells_(tells) {}
    void add(const char* name, const char* group, const kit::outcome& what,
             std::chrono::steady_clock::time_point begun)
    {
        const std::string result(to_string(what.verdict));
        const double seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
        ++by_verdict_[static_cast<std::size_t>(what.verdict)];
        json row = {{"name", name}, {"group", group}, {"result", result}, {"seconds", seconds}};
        if (!what.reason.empty())
            row["reason"] = what.reason;
        cases_.push_back(std::move(row));
        if (!tells_)
            return;
        print("%-13s %s%s%s\n", result.c_str(), name, what.reason.empty() ? "" : ": ",
              printable(what.reason).c_str());
        flush_standard_output();
    }
    std::size_t of(kit::verdict v) const noexcept { return by_verdict_[static_cast<std::size_t>(v)]; }
    std::size_t passed() const noexcept { return of(kit::verdict::passed); }
    std::size_t failed() const noexcept { return of(kit::verdict::failed); }
    std::size_t not_supported() const noexcept { return of(kit::verdict::not_supported); }
    /// What every report has.
    json report(const conform_options& o) const;

private:
    bool tells_;
    std::array<std::size_t, 3> by_verdict_{};
    json cases_ = json::array();
};

// Prints it, if that is asked for, and writes it to the file for it.
int hand_over(const json& report, const conform_options& o, bool as_json, const std::string& totals)
{
    if (as_json)
        print("%s\n", dump(report).c_str());
    else
        print("%s\n", totals.c_str());
    if (o.report.empty())
        return exit_ok;
    std::ofstream file(o.report);
    file << dump(report) << '\n';
    return file.flush() ? exit_ok : complain("cannot write " + o.report, exit_failed);
}

std::string totals_of(const tally& t)
{
    return std::to_string(t.passed()) + " passed, " + std::to_string(t.failed()) + " failed, " +
           std::to_string(t.not_supported()) + " not supported";
}

task<void> run_all(verbena::conform::target& t, const conform_options& o, tally& told)
{
    for (const kit::check& c : kit::checks_from_one_end()) {
        if (!is_meant(c.name, o))
            continue;
        const auto begun = std::chrono::steady_clock::now();
        const kit::outcome what = co_await run(c, t);
        told.add(c.name, "verbs", what, begun);
    }
    for (const auto checks : {verbena::conform::rpc_checks(), verbena::conform::rpc_header_checks()}) {
        for (const verbena::conform::check& c : checks) {
            if (!is_meant(c.name, o))
                continue;
            const auto begun = std::chrono::steady_clock::now();
            kit::outcome what;
            t.begin_check();
            try {
                co_await c.run(t);
            } catch (const kit::failure& f) {
                what = kit::outcome{kit::verdict::failed, f.why};
            }
            told.add(c.name, rpc_group, what, begun);
        }
    }
    t.begin_check(); // what follows has its time too
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

json tally::report(const conform_options& o) const
{
    json r = {{"suite", "verbena conformance"},
              {"version", 2},
              {"date", now()},
              {"scheme", o.url.substr(0, o.url.find("://"))},
              {"passed", passed()},
              {"failed", failed()},
              {"not_supported", not_supported()},
              {"cases", cases_}};
    if (!o.only.empty())
        r["only"] = o.only;
    return r;
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
        server = co_await t.describe();
    } catch (const kit::failure& f) {
        failed = f.why;
    }
    if (!failed.empty())
        co_return complain(o.url + ": " + failed + cure, exit_unreachable);
    tally told(!r.options().json && !r.options().quiet);
    co_await run_all(t, o, told);
    json report = told.report(o);
    report["client"] = describe(*where.context);
    report["server"] = json::parse(server, nullptr, false);
    report["wakes"] = t.wakes;
#ifdef VERBENA_HAS_RDMA
    if (const auto* device = dynamic_cast<const rdma::context*>(where.context))
        report["client"]["posts_by_ibv_wr"] = device->counters().extended.load() != 0;
#endif
    t.main.pair().disconnect();
    const int written =
        hand_over(report, o, r.options().json,
                  totals_of(told) + "; " + std::to_string(t.wakes) + " times the other end was woken");
    if (written != exit_ok)
        co_return written;
    try {
        co_await t.leave();
    } catch (const kit::failure& f) {
        co_return complain(f.why, exit_failed);
    }
    co_return told.failed() == 0 ? exit_ok : exit_failed;
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
    verbena::conform::rpc_server rpc(*where.context, r.buffers());
    kit::server_options o;
    o.description = describe(*where.context).dump();
    o.others = [&rpc](std::unique_ptr<verbs::connect_request>& peer) {
        if (!verbena::conform::wants_rpc(peer->private_data()))
            return false;
        rpc.hand(std::move(peer));
        return true;
    };
    o.complain = [](const std::string& text) { say(text); };
    kit::server s(*where.context, std::move(o));
    scope beside(r.shard());
    beside.spawn([&rpc] { return rpc.run(); });
    std::exception_ptr failed;
    try {
        co_await s.run(**listener, once);
    } catch (...) {
        failed = std::current_exception();
    }
    rpc.close();
    co_await beside.join();
    if (failed)
        std::rethrow_exception(failed);
    co_return exit_ok;
}

// Contexts of one provider, whose checks have both ends in this program.
class alone final : public kit::subject {
public:
    alone(std::unique_ptr<reactor> r, const global_options& o, bool by_device, std::string address)
        : shard_(std::move(r)), options_(o), address_(std::move(address))
    {
        if (by_device) {
            device_.emplace(runtime::device_threads, "RDMA devices");
            connects_.emplace(runtime::connect_threads, "RDMA connects");
        }
    }
    reactor& shard() noexcept override { return *shard_; }
    std::unique_ptr<verbs::context> make_context(const std::string&) override
    {
        if (!device_)
            return make_iwarp(*shard_, options_);
        auto made = make_rdma(*shard_, options_, *device_, *connects_);
        kit::need(made, "the RDMA device");
        return std::move(*made);
    }
    std::string address() const override { return address_; }
    bool works_by_itself() const noexcept override { return device_.has_value(); }

private:
    std::optional<blocking_pool> device_;
    std::optional<blocking_pool> connects_;
    std::unique_ptr<reactor> shard_;
    const global_options& options_;
    std::string address_;
};

int no_such_check(const conform_options& o)
{
    conform_options other = o;
    other.alone = !o.alone;
    const char* cure = "a run without it names them all, and so does --list";
    if (is_anything_meant(other))
        cure = o.alone ? "they need a server: leave --alone out"
                       : "they need both ends in one program: add --alone";
    return complain("--only: '" + o.only + "' stands in no check's name of this kind of run; " + cure,
                    exit_usage);
}

int failed_place(const conform_options& o, const error& e)
{
    return complain(o.url + ": " + e.message(), e == std::errc::invalid_argument ? exit_usage : exit_failed);
}

} // namespace

int conform_list(bool as_json)
{
    json all = json::array();
    const auto add = [&](const char* name, const char* group) {
        if (as_json)
            all.push_back({{"name", name}, {"group", group}});
        else
            print("%-13s %s\n", group, name);
    };
    for (const kit::check& c : kit::checks())
        add(c.name, c.group);
    for (const auto checks : {verbena::conform::rpc_checks(), verbena::conform::rpc_header_checks()}) {
        for (const verbena::conform::check& c : checks)
            add(c.name, rpc_group);
    }
    if (as_json)
        print("%s\n", dump(all).c_str());
    return exit_ok;
}

int conform_alone(const global_options& g, const conform_options& o)
{
    if (!is_anything_meant(o))
        return no_such_check(o);
    const auto where = find_place(o.url);
    if (!where)
        return failed_place(o, where.error());
    auto shard = reactor::create();
    if (!shard)
        return complain("cannot start: " + shard.error().message() + "\n  `verbena doctor` tells more",
                        exit_failed);
    set_log_level(log_level::error); // what checks provoke is no news
    alone here(std::move(*shard), g, where->by_device, where->address);
    tally told(!g.json && !g.quiet);
    json client;
    try {
        client = describe(*here.make_context("client"));
    } catch (const kit::failure& f) {
        return complain(o.url + ": " + f.why, exit_failed);
    }
    for (const kit::check& c : kit::checks()) {
        if (!is_meant(c.name, o))
            continue;
        const auto begun = std::chrono::steady_clock::now();
        told.add(c.name, c.group, run(c, here), begun);
    }
    json report = told.report(o);
    report["client"] = std::move(client);
    report["alone"] = true;
    const int written = hand_over(report, o, g.json, totals_of(told));
    return told.failed() != 0 ? exit_failed : written;
}

task<int> conform(runtime& r, conform_options o)
{
    if (!is_anything_meant(o))
        co_return no_such_check(o);
    auto where = find_destination(r, o.url);
    if (!where)
        co_return failed_place(o, where.error());
    if (o.listen)
        co_return co_await serve(r, *where, o.once);
    co_return co_await run_checks(r, *where, o);
}

} // namespace verbena::cli
