// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"
#include "json_text.hpp"
#include "percentile.hpp"
#include "session.hpp"

#include "../standard_output.hpp"

#include <verbena/core/task/already_made.hpp>
#include <verbena/core/task/scope.hpp>
#include <verbena/core/task/sleep.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace verbena::cli {
namespace {

struct samples {
    std::vector<double> microseconds;
    unsigned started = 0;
    unsigned lost = 0;
    error last;
    bool without_memory = false;
};

task<void> call_null(session& s, const ping_options& o, samples& out)
{
    while (out.started < o.count && !out.without_memory) {
        ++out.started;
        const auto begin = std::chrono::steady_clock::now();
        auto answered = co_await s.nfs().null();
        const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
        if (answered) {
            out.microseconds.push_back(took.count());
        } else {
            ++out.lost;
            out.last = answered.error();
            if (!s.transport().answered())
                co_return; // it is no server, or hangs: the next calls would tell no more
        }
        if (o.interval > 0 && out.started < o.count)
            co_await sleep_for(
                std::chrono::duration_cast<duration>(std::chrono::duration<double>(o.interval)));
    }
}

} // namespace

task<int> ping(runtime& r, ping_options o)
{
    auto where = url_argument(o.url);
    if (!where)
        co_return exit_usage;
    session s(r, *where);
    const failure failed = co_await s.connect();
    if (failed.failed()) {
        co_await s.close();
        co_return complain(failed.text(), exit_unreachable);
    }
    samples all;
    if (s.version() == nfs_version::highest) {
        // One call more, which is not counted.
        auto settled = co_await s.settle();
        if (!settled && !s.transport().answered()) {
            co_await s.close();
            co_return complain(s.without_reply(settled.error()).text(), exit_unreachable);
        }
    }
    const auto begin = std::chrono::steady_clock::now();
    {
        scope calls(r.shard());
        for (unsigned i = 0; i < o.depth && !all.without_memory; ++i) {
            try {
                calls.spawn(already_made, call_null(s, o, all));
            } catch (const std::bad_alloc&) {
                all.without_memory = true;
            }
        }
        co_await calls.join();
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const std::string transport(s.transport().name());
    const bool answered = s.transport().answered();
    co_await s.close();
    if (all.without_memory) // with fewer at once it would be another measurement
        co_return complain("there is no memory for so many calls at once: lower --depth", exit_failed);
    std::ranges::sort(all.microseconds);
    if (r.options().json) {
        nlohmann::json out;
        out["url"] = s.where().to_string();
        out["transport"] = transport;
        out["calls"] = all.started;
        out["answered"] = all.microseconds.size();
        out["seconds"] = took.count();
        if (!all.microseconds.empty()) {
            for (const auto& [name, p] : {std::pair("min", 0.0),
                                          {"p50", 50.0},
                                          {"p90", 90.0},
                                          {"p99", 99.0},
                                          {"p99.9", 99.9},
                                          {"max", 100.0}})
                out["microseconds"][name] = percentile(all.microseconds, p);
        }
        print("%s\n", dump(out).c_str());
    } else {
        print("%s over %s: %s of NULL, %zu answered, %.0f calls/s\n", s.where().to_string().c_str(),
              transport.c_str(), counted(all.started, "call").c_str(), all.microseconds.size(),
              static_cast<double>(all.microseconds.size()) / took.count());
        if (!all.microseconds.empty())
            print("us: min %.1f  p50 %.1f  p90 %.1f  p99 %.1f  p99.9 %.1f  max %.1f\n",
                  percentile(all.microseconds, 0), percentile(all.microseconds, 50),
                  percentile(all.microseconds, 90), percentile(all.microseconds, 99),
                  percentile(all.microseconds, 99.9), percentile(all.microseconds, 100));
    }
    if (!answered)
        co_return complain(s.without_reply(all.last).text(), exit_unreachable);
    if (all.lost != 0)
        co_return complain(counted(all.lost, "call") + " failed, the last: " + all.last.message(),
                           exit_failed);
    co_return exit_ok;
}

} // namespace verbena::cli
