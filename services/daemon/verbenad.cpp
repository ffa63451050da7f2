// SPDX-License-Identifier: Apache-2.0
// verbenad: reads its configuration, starts the shards and the service, waits for a signal, drains.
#include "command_line.hpp"
#include "config_file.hpp"
#include "metrics_exporter.hpp"
#include "nfs_service.hpp"
#include "notify.hpp"
#include "rpcbind.hpp"
#include "start_text.hpp"

#include "../printable.hpp"
#include "../resource_limit.hpp"
#include "../standard_output.hpp"

#include <verbena/core/log.hpp>
#include <verbena/core/runtime.hpp>
#include <verbena/plugins/posixfs.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <stdexcept>
#include <string_view>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace verbena::daemon {

namespace {

// Every thread inherits this: signals come to the main thread, when it asks for them.
sigset_t block_signals()
{
    sigset_t wanted;
    ::sigemptyset(&wanted);
    for (const int number : {SIGTERM, SIGINT, SIGHUP})
        ::sigaddset(&wanted, number);
    ::pthread_sigmask(SIG_BLOCK, &wanted, nullptr);
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGXFSZ, SIG_IGN); // a file over RLIMIT_FSIZE is an answer to a client, not our end
    return wanted;
}

void prepare_process()
{
    // Modes in requests are meant as they stand.
    ::umask(0);
    for (const auto resource : {RLIMIT_NOFILE, RLIMIT_MEMLOCK})
        raise_soft_limit(resource);
    if (const auto given_up = posixfs::give_up_resource_rights(); !given_up)
        log(log_level::warning, "verbenad",
            "CAP_SYS_RESOURCE is not given up: beside rdma:// listeners root's calls change threads",
            {{"error", given_up.error().message()}});
}

void print_start(const config& c, const nfs_service& service, const metrics_exporter* metrics,
                 const rpcbind_registration& rpcbind)
{
    std::string text = start_text(c, service);
    if (!rpcbind.summary().empty())
        text += rpcbind.summary() + '\n';
    text += metrics != nullptr ? "metrics at " + metrics->url() + '\n' : std::string("no metrics\n");
    text += "ready\n";
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
}

// VERBENA_MASK: features of the ring to do without, as an older or locked-down kernel would; for tests.
unsigned masked_ring_features()
{
    const char* text = std::getenv("VERBENA_MASK");
    unsigned masked = 0;
    for (std::string_view rest = text == nullptr ? "" : text; !rest.empty();) {
        const std::string_view word = rest.substr(0, rest.find(','));
        rest.remove_prefix(std::min(word.size() + 1, rest.size()));
        if (word == "single_issuer")
            masked |= static_cast<unsigned>(ring_feature::single_issuer);
        else if (word == "defer_taskrun")
            masked |= static_cast<unsigned>(ring_feature::defer_taskrun);
        else
            throw config_error("VERBENA_MASK: no feature " + std::string(word) +
                               did_you_mean(word, {"single_issuer", "defer_taskrun"}));
    }
    if (masked != 0)
        log(log_level::warning, "verbenad", "features are masked off", {{"mask", text}});
    return masked;
}

runtime_options runtime_options_of(const config& c)
{
    runtime_options o;
    o.shards = *c.shards;
    o.reactor.policy = c.policy;
    o.reactor.masked_ring_features = masked_ring_features();
    o.reactor.spin = std::chrono::microseconds(c.spin_microseconds);
    o.memory_limit = std::size_t(c.memory_mib) << 20;
    o.pages = c.huge_pages;
    o.blocking_threads = c.blocking_threads;
    o.pin = c.pin;
    return o;
}

// How long a stop may take beyond the drain before what does not come back is given up.
constexpr std::chrono::seconds stop_grace{5};

// Runs `stop` to its end. A call that a file system or a device does not return from can't be recalled, and its shard waits for it;
// when `limit` is over, says which lane that is and ends the process.
template<class F>
void stop_within(std::chrono::seconds limit, const runtime& rt, F stop)
{
    std::packaged_task<void()> work(std::move(stop));
    std::future<void> end = work.get_future();
    std::thread worker(std::move(work));
    if (end.wait_for(limit) == std::future_status::timeout) {
        for (const blocking_pool* lane : rt.stuck_lanes(stop_grace)) {
            const blocking_pool::occupation now = lane->look();
            log(log_level::error, "verbenad",
                "stopped without waiting for calls that do not return; look at what is beneath",
                {{"lane", lane->name()},
                 {"calls", now.running},
                 {"seconds", std::chrono::duration_cast<std::chrono::seconds>(now.longest).count()}});
        }
        log(log_level::error, "verbenad", "not stopped in time; connections are cut off",
            {{"seconds", limit.count()}});
        std::_Exit(1);
    }
    worker.join();
    end.get();
}

int serve(const config& c)
{
    set_log_level(c.log_level);
    const sigset_t signals = block_signals();
    prepare_process();

    metric_registry registry; // outlives all that register there
    auto started = runtime::start(runtime_options_of(c));
    if (!started)
        throw std::runtime_error("the shards do not start: " + started.error().message());
    runtime& rt = **started;
    const auto process = expose_process(registry);
    rt.expose(registry);
    nfs_service service(c, rt, registry);
    std::unique_ptr<metrics_exporter> metrics;
    if (c.metrics != "off")
        metrics = std::make_unique<metrics_exporter>(registry, c.metrics);
    rpcbind_registration rpcbind;
    if (c.rpcbind == rpcbind_mode::automatic)
        rpcbind = rpcbind_registration(service.listeners());
    print_start(c, service, metrics.get(), rpcbind);
    notify_manager("READY=1");

    int number = 0;
    do {
        ::sigwait(&signals, &number);
        if (number == SIGHUP)
            log(log_level::warning, "verbenad",
                "SIGHUP: the configuration is read at start only; restart to change it");
    } while (number == SIGHUP);
    log(log_level::info, "verbenad", "draining",
        {{"signal", ::strsignal(number)}, {"seconds", c.drain_seconds}});
    notify_manager("STOPPING=1");
    rpcbind = {};
    auto stop = [&] {
        service.stop(std::chrono::seconds(c.drain_seconds));
        metrics.reset();
        rt.stop();
    };
    stop_within(std::chrono::seconds(c.drain_seconds) + stop_grace, rt, stop);
    log(log_level::info, "verbenad", "stopped");
    return 0;
}

} // namespace

} // namespace verbena::daemon

int main(int argc, char** argv)
{
    using namespace verbena::daemon;
    try {
        const parsed_command_line line = parse_command_line(argc, argv);
        const bool checks = line.wanted && line.wanted->kind == command_kind::check;
        if (checks)
            verbena::print("%s", to_toml(line.wanted->settings).c_str());
        if (checks || !line.wanted) {
            if (const verbena::printed output = verbena::flush_standard_output(); output.lost)
                throw std::runtime_error(output.message());
            return checks ? 0 : line.exit_status;
        }
        return serve(line.wanted->settings);
    } catch (const config_error& e) {
        std::fprintf(stderr, "verbenad: %s\n", verbena::printable_lines(e.what()).c_str());
        return 2;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "verbenad: %s\n", verbena::printable_lines(e.what()).c_str());
        return 1;
    }
}
