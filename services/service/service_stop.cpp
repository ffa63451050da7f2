// SPDX-License-Identifier: Apache-2.0
// The end of a service, which nothing that hangs holds up.
#include "service_impl.hpp"

#include "shard_server.hpp"
#include "side_by_side.hpp"

#include <algorithm>
#include <stdexcept>
#include <system_error>

namespace verbena {

using namespace services;

namespace {

// How long a stop may take beyond the drain before what does not come back is given up.
constexpr std::chrono::milliseconds default_grace = std::chrono::seconds(5);
// A call is taken to be one that does not return after this time.
constexpr std::chrono::seconds stuck_after{5};

// Whose hook does not return, in place of a module's name.
constexpr const char* this_program = "of this program (across_shards)";

} // namespace

// What follows it ends all the same.
void service::impl::call(const shards_hook& h, const char* failure)
{
    const auto failed = [failure](const char* why) {
        log(log_level::error, "service", failure, {{"exception", why}});
    };
    try {
        if (h)
            h(*rt);
    } catch (const std::exception& e) {
        failed(e.what());
    } catch (...) {
        failed("no std::exception");
    }
}

void service::impl::take_down(std::chrono::milliseconds limit)
{
    if (control) {
        control->finish(); // what it lists and works on goes now
    }
    if (reloading)
        reloading->stop();
    if (reloads_by_signal.joinable())
        reloads_by_signal.join();
    if (control) {
        const std::lock_guard held(ending);
        control.reset(); // its path is free for the next one, whatever hangs below
    }
    const auto name_of = [this](const module& m) { return table.name_of(m).data(); };
    for (served& s : protocols) {
        for (protocol_module* m : s.all) {
            if (std::ranges::find(started, m) == started.end())
                continue;
            stopping = name_of(*m);
            m->closing();
        }
    }
    stopping = this_program;
    while (open != 0)
        call(hooks[--open].drains, "what lives across the shards did not hear of the drain");
    stopping = nullptr;
    // Side by side: the time to drain is everybody's, also of those that come one after the other.
    const auto until = std::chrono::steady_clock::now() + limit;
    std::vector<std::future<void>> ends;
    for (served& s : protocols) {
        if (s.server)
            begin_beside(ends, [&s, until] {
                const auto left =
                    std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
                *s.stopping = true;
                s.server->stop(std::max(left, std::chrono::milliseconds::zero()));
                *s.stopping = false;
            });
    }
    end_all(ends);
    for (served& s : protocols)
        s.server.reset();
    for (auto m = started.rbegin(); m != started.rend(); ++m) {
        stopping = name_of(**m);
        (*m)->stop();
    }
    stopping = this_program;
    while (opened != 0)
        call(hooks[--opened].closes, "what lives across the shards did not close");
    stopping = nullptr;
    started.clear();
    {
        const std::lock_guard held(ending);
        exporter.reset();
    }
    registrations.clear();
    if (rt) {
        has_shards = false;
        rt->stop();
    }
}

service::~service()
{
    try {
        const bool gave_up = impl_->stopper.joinable();
        (void)impl_->stop_within({}, gave_up ? std::chrono::seconds(0) : default_grace);
    } catch (const std::exception& e) {
        log(log_level::error, "service", "the end of a service failed", {{"exception", e.what()}});
    } catch (...) {
        log(log_level::error, "service", "the end of a service failed");
    }
    impl_->leave_behind();
    impl_->log_writer.reset();
}

void service::impl::give_up(const char* why)
{
    // If the end of what did start takes for ever, this would be told to nobody before.
    if (!stop_within({}, default_grace))
        log(log_level::error, "service", "the start failed", {{"error", why}});
}

result<void> service::stop(std::chrono::milliseconds grace)
{
    std::chrono::seconds drain{0};
    if (impl_->running)
        drain = std::chrono::seconds(impl_->drain_seconds.load());
    if (!impl_->stop_within(drain, grace))
        return error(std::errc::timed_out,
                     "the service has not stopped; unfinished() and the log say what still runs");
    return {};
}

const std::string& service::unfinished() const noexcept { return impl_->unfinished; }

// A call that a file system or a device does not return from can't be recalled, and its shard waits for it. So a thread
// of its own waits for both, and whoever called looks at it for some time. False: it is still at it.
bool service::impl::stop_within(std::chrono::milliseconds drain, std::chrono::milliseconds grace)
{
    if (std::exchange(running, false)) {
        not_ready = "stopping";
        std::promise<void> done;
        stopped = done.get_future();
        try {
            stopper = std::thread([self = shared_from_this(), drain, done = std::move(done)]() mutable {
                try {
                    self->take_down(drain);
                    done.set_value();
                } catch (...) {
                    done.set_exception(std::current_exception());
                }
            });
        } catch (const std::system_error&) { // no more threads: then this one waits, for as long as it takes
            take_down(drain);
            return true;
        }
    }
    if (!stopper.joinable())
        return true;
    if (stopped.wait_for(drain + grace) == std::future_status::timeout) {
        unfinished = still_running();
        {
            // Of a process that ends now the kernel keeps what is open for as long as one thread waits for a disk, and so the
            // port from the next start.
            const std::lock_guard held(ending);
            exporter.reset();
        }
        log(log_level::error, "service", "not stopped in time; what still runs goes on by itself",
            {{"seconds", std::chrono::duration<double>(drain + grace).count()}});
        return false;
    }
    stopper.join();
    unfinished.clear();
    stopped.get();
    return true;
}

// A line for each, and one in the log.
std::string service::impl::still_running() const
{
    std::string lines;
    for (const served& s : protocols) {
        if (!*s.stopping)
            continue;
        lines += "calls of the protocol " + s.name + '\n';
        log(log_level::error, "service", "stopped without waiting for calls of a protocol",
            {{"protocol", s.name}});
    }
    for (const auto& [lane, now] : rt ? rt->stuck_lanes(stuck_after) : std::vector<runtime::stuck_lane>()) {
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now.longest).count();
        lines += std::to_string(now.running) + " calls in lane " + lane + " that do not return for " +
                 std::to_string(seconds) + " s\n";
        log(log_level::error, "service",
            "stopped without waiting for calls that do not return; look at what is beneath",
            {{"lane", lane}, {"calls", now.running}, {"seconds", seconds}});
    }
    if (const char* module = stopping; module != nullptr) {
        lines += std::string("the module ") + module + ", which does not return from its end\n";
        log(log_level::error, "service", "stopped without waiting for a module that does not return",
            {{"module", module}});
    }
    const std::lock_guard held(ending);
    if (signalled != by_signal::nothing) {
        lines += "the reload by SIGHUP\n";
        log(log_level::error, "service", "stopped without waiting for a reload");
    }
    for (const std::string& name : control ? control->works() : std::vector<std::string>()) {
        lines += "the operator's command " + name + '\n';
        log(log_level::error, "service", "stopped without waiting for an operator's command",
            {{"command", name}});
    }
    return lines.empty() ? "the shards\n" : lines;
}

// The thread that stops it has what is left, and lets it go in the end.
void service::impl::leave_behind() noexcept
{
    if (stopper.joinable())
        stopper.detach();
}

} // namespace verbena
