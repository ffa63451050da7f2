// SPDX-License-Identifier: Apache-2.0
// main() of a daemon: signals, the service manager and its watchdog.
#include "service_impl.hpp"

#include "careful_write.hpp"
#include "notify.hpp"

#include "../resource_limit.hpp"

#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <sys/stat.h>
#include <unistd.h>

namespace verbena {

using namespace services;

namespace {

// How long whoever reads the standard output may take for the start text.
constexpr std::chrono::seconds text_patience{5};

// Every thread inherits this: signals come to the main thread, when it asks for them.
sigset_t block_signals()
{
    sigset_t wanted;
    ::sigemptyset(&wanted);
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1})
        ::sigaddset(&wanted, number);
    ::pthread_sigmask(SIG_BLOCK, &wanted, nullptr);
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGXFSZ, SIG_IGN); // a file over RLIMIT_FSIZE is an answer to a client, not our end
    return wanted;
}

// On the thread that waits for SIGTERM, which a lack of memory must not end.
void write_tasks(runtime& rt) noexcept
{
    try {
        if (!write_to_log(log_level::info, rt.describe_tasks()))
            log(log_level::warning, "service",
                "SIGUSR1: the tasks are not written, since those of the last one wait to be read, or the log "
                "does");
    } catch (const std::exception&) { // there is no memory for what tells of it either
    }
}

// Answers the service manager's watchdog while each shard turns. On the thread that waits for SIGTERM.
class heartbeat {
public:
    /// `serving`: its status otherwise.
    heartbeat(runtime& rt, std::function<std::string()> serving)
        : serving_(std::move(serving)), interval_(watchdog_interval())
    {
        if (!interval_)
            return;
        shards_.emplace(rt);
        next_ = clock::now();
    }
    /// The next of `signals`, answering meanwhile twice in each interval.
    int wait_for(const sigset_t& signals)
    {
        if (!interval_) {
            int number = 0;
            ::sigwait(&signals, &number);
            return number;
        }
        for (;;) {
            const auto now = clock::now();
            if (now >= next_) {
                // A shard that was late is asked again soon: at the next half of the time it could be too late for systemd.
                const bool all = beat();
                next_ = now + (all ? *interval_ / 2
                                   : std::min<clock::duration>(*interval_ / 20, std::chrono::seconds(1)));
            }
            const auto left = std::chrono::ceil<std::chrono::nanoseconds>(next_ - now);
            const timespec time{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
            if (const int number = ::sigtimedwait(&signals, nullptr, &time); number > 0)
                return number;
        }
    }

private:
    using clock = std::chrono::steady_clock;
    bool beat()
    {
        const bool all = shards_->ask();
        if (all)
            notify_manager("WATCHDOG=1");
        if (std::exchange(well_, all) != all)
            notify_manager(all ? "STATUS=" + serving_()
                               : std::string("STATUS=a shard does not run its tasks; the log says which"));
        return all;
    }
    const std::function<std::string()> serving_;
    const std::optional<std::chrono::microseconds> interval_;
    std::optional<shard_watchdog> shards_;
    clock::time_point next_{};
    bool well_ = true;
};

} // namespace

// Calls by RPC over RDMA are not counted anywhere.
std::string service::impl::draining_text() const
{
    double in_flight = 0;
    for (const metric_snapshot& family : registry.collect()) {
        if (family.family.name != "verbena_stream_calls_in_flight" &&
            family.family.name != "verbena_rtrs_path_requests_in_flight")
            continue;
        for (const metric_snapshot::series& s : family.samples)
            in_flight += s.value;
    }
    return "stopping within " + std::to_string(drain_seconds.load()) + " s; " +
           std::to_string(std::uint64_t(in_flight)) + " calls by TCP and requests for blocks in flight";
}

int service::run()
{
    if (!impl_->configured)
        configure();
    const sigset_t signals = block_signals();
    ::umask(0); // modes in requests are meant as they stand
    for (const auto resource : {RLIMIT_NOFILE, RLIMIT_MEMLOCK})
        raise_soft_limit(resource);
    impl_->runs = true;
    start();
    const std::string said = impl_->text + "ready\n";
    std::fflush(stdout);
    if (write_carefully(STDOUT_FILENO, said, text_patience) < said.size())
        log(log_level::warning, "service", "the standard output did not take the text of the start");
    notify_manager("READY=1\nSTATUS=" + impl_->serving_now());
    heartbeat beats(*impl_->rt, [this] { return impl_->serving_now(); });
    int number = 0;
    do {
        number = beats.wait_for(signals);
        if (number == SIGHUP)
            impl_->reload_by_signal();
        if (number == SIGUSR1)
            write_tasks(*impl_->rt);
    } while (number == SIGHUP || number == SIGUSR1);
    log(log_level::info, "service", "draining",
        {{"signal", ::strsignal(number)}, {"seconds", impl_->drain_seconds.load()}});
    notify_manager("STOPPING=1\nSTATUS=" + impl_->draining_text());
    if (!stop())
        return 1;
    log(log_level::info, "service", "stopped");
    return 0;
}

} // namespace verbena
